//! Axes and node tests (XPath 1.0, sections 2.2 and 2.3).

use super::ast::{Axis, NodeTest};
use crate::store::{NodeRef, Store};
use crate::tree::{Document, NIL, NodeKind};

impl NodeTest {
    /// Matches a node whose axis has elements as its principal type, or attributes or namespaces.
    pub fn matches(&self, store: &Store, node: NodeRef, axis: Axis) -> bool {
        let kind = store.kind(node);
        let is_principal = match axis {
            Axis::Attribute => kind == NodeKind::Attribute,
            Axis::Namespace => node.ns > 0,
            _ => kind == NodeKind::Element && node.ns == 0,
        };
        match self {
            NodeTest::Node => true,
            NodeTest::Text => kind.is_text() && node.ns == 0,
            NodeTest::Comment => kind == NodeKind::Comment,
            NodeTest::Instruction(None) => kind == NodeKind::Instruction,
            NodeTest::Instruction(Some(name)) => kind == NodeKind::Instruction && store.name(node).local == *name,
            NodeTest::Any => is_principal,
            NodeTest::InNamespace(ns) => is_principal && node.ns == 0 && store.name(node).ns == *ns,
            NodeTest::Name(name) => is_principal && store.name(node).expanded() == *name,
        }
    }
}

/// Appends the nodes of an axis that pass the test, in the order of the axis. Returns the number of visited nodes.
pub(crate) fn collect(store: &Store, node: NodeRef, axis: Axis, test: &NodeTest, out: &mut Vec<NodeRef>) -> u64 {
    let document = store.doc(node.doc);
    let mut walk = Walk { store, document, axis, test, out, visited: 1 };
    let is_side = node.ns > 0 || document.node(node.node).kind == NodeKind::Attribute;
    match axis {
        Axis::SelfNode => walk.offer(node),
        Axis::Parent => {
            if let Some(parent) = store.parent(node) {
                walk.offer(parent);
            }
        }
        Axis::Ancestor | Axis::AncestorOrSelf => {
            if axis == Axis::AncestorOrSelf {
                walk.offer(node);
            }
            let mut at = node;
            while let Some(parent) = store.parent(at) {
                walk.offer(parent);
                at = parent;
            }
        }
        Axis::Child => {
            if !is_side {
                document.children(node.node).for_each(|at| walk.offer(node.at(at)));
            }
        }
        Axis::Descendant | Axis::DescendantOrSelf => {
            if axis == Axis::DescendantOrSelf {
                walk.offer(node);
            }
            if !is_side {
                let mut at = node.node;
                while let Some(next) = document.following(at, node.node, false) {
                    walk.offer(node.at(next));
                    at = next;
                }
            }
        }
        Axis::Attribute => {
            if node.ns == 0 {
                document.attributes(node.node).for_each(|at| walk.offer(node.at(at)));
            }
        }
        Axis::Namespace => {
            if !is_side && document.node(node.node).kind == NodeKind::Element {
                walk.offer(NodeRef { ns: 1, ..node });
                let found = document.namespaces(node.node);
                found.iter().rev().for_each(|(number, _)| walk.offer(NodeRef { ns: number + 1, ..node }));
            }
        }
        Axis::FollowingSibling => {
            let mut at = if is_side { NIL } else { document.node(node.node).next };
            while at != NIL {
                walk.offer(node.at(at));
                at = document.node(at).next;
            }
        }
        Axis::PrecedingSibling => {
            let mut at = if is_side { NIL } else { document.node(node.node).prev };
            while at != NIL {
                walk.offer(node.at(at));
                at = document.node(at).prev;
            }
        }
        Axis::Following => {
            // As in libxml2, the descendants of an attribute's element are left out.
            let element = if is_side && node.ns == 0 { document.node(node.node).parent } else { node.node };
            let mut at = document.following(element, 0, true);
            while let Some(next) = at {
                walk.offer(node.at(next));
                at = document.following(next, 0, false);
            }
        }
        Axis::Preceding => {
            walk.preceding(if is_side && node.ns == 0 { document.node(node.node).parent } else { node.node }, node)
        }
    }
    walk.visited
}

struct Walk<'w> {
    store: &'w Store,
    document: &'w Document,
    axis: Axis,
    test: &'w NodeTest,
    out: &'w mut Vec<NodeRef>,
    visited: u64,
}

impl Walk<'_> {
    fn offer(&mut self, node: NodeRef) {
        self.visited += 1;
        if self.test.matches(self.store, node, self.axis) {
            self.out.push(node);
        }
    }
    fn preceding(&mut self, from: u32, node: NodeRef) {
        let mut at = from;
        while at != NIL {
            let mut sibling = self.document.node(at).prev;
            while sibling != NIL {
                // The subtree of a preceding sibling, backwards.
                let mut inner = sibling;
                while self.document.node(inner).last != NIL {
                    inner = self.document.node(inner).last;
                }
                loop {
                    self.offer(node.at(inner));
                    if inner == sibling {
                        break;
                    }
                    let prev = self.document.node(inner).prev;
                    if prev == NIL {
                        inner = self.document.node(inner).parent;
                        continue;
                    }
                    inner = prev;
                    while self.document.node(inner).last != NIL {
                        inner = self.document.node(inner).last;
                    }
                }
                sibling = self.document.node(sibling).prev;
            }
            at = self.document.node(at).parent;
        }
    }
}
