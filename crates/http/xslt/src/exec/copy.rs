//! `xsl:copy` and `xsl:copy-of`.

use super::FrameEnd;
use crate::engine::{Engine, Focus};
use crate::failure::RunResult;
use crate::names::ExpandedName;
use crate::sheet::LocatedNode;
use crate::store::NodeRef;
use crate::tree::NodeKind;
use crate::xpath::XPathValue;

impl<'s> Engine<'s> {
    pub(super) fn copy(&mut self, sets: &[ExpandedName], body: &'s [LocatedNode], focus: Focus) -> RunResult<()> {
        if focus.node.ns > 0 {
            let (prefix, uri) = self.namespace_node(focus.node);
            let output = self.output();
            return self.declare(output.parent, prefix, uri);
        }
        match self.store.kind(focus.node) {
            NodeKind::Document => self.push(body, focus, FrameEnd::Nothing),
            NodeKind::Element => {
                let name = self.store.name(focus.node);
                let element = self.open_element(name)?;
                self.copy_own_declarations(focus.node, element)?;
                self.name_element(element, name)?;
                self.push(body, focus, FrameEnd::CloseElement);
                self.push_sets(sets, focus)?;
            }
            NodeKind::Attribute => self.copy_attribute(focus.node)?,
            _ => self.copy_leaf(focus.node)?,
        }
        Ok(())
    }

    pub(super) fn copy_of(&mut self, value: XPathValue) -> RunResult<()> {
        match value {
            XPathValue::Nodes(nodes) => {
                for node in nodes {
                    self.copy_node(node)?;
                }
                Ok(())
            }
            XPathValue::Fragment(root) => self.copy_node(root),
            value => {
                let text = self.take_text(value)?;
                self.add_text(&text, false)
            }
        }
    }

    fn namespace_node(&self, node: NodeRef) -> (crate::names::NameId, crate::names::NameId) {
        let decl = self.store.doc(node.doc).declaration(node.ns.saturating_sub(1));
        decl.map_or(Default::default(), |decl| (decl.prefix, decl.uri))
    }

    fn copy_attribute(&mut self, node: NodeRef) -> RunResult<()> {
        let (name, value) = (self.store.name(node), self.string(node)?);
        self.add_attribute(name, &value)
    }

    fn copy_leaf(&mut self, node: NodeRef) -> RunResult<()> {
        let kind = self.store.kind(node);
        let value = self.string(node)?;
        match kind {
            NodeKind::RawText => self.add_text(&value, true),
            NodeKind::Text | NodeKind::Cdata => self.add_text(&value, false),
            NodeKind::Comment => {
                self.spend_node(value.len())?;
                let output = self.output();
                let name = crate::names::QName::default();
                self.store.doc_mut(output.doc).append(output.parent, kind, name, &value, 0);
                Ok(())
            }
            NodeKind::Instruction => {
                self.spend_node(value.len())?;
                let (name, output) = (self.store.name(node), self.output());
                self.store.doc_mut(output.doc).append(output.parent, kind, name, &value, 0);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn copy_own_declarations(&mut self, node: NodeRef, element: u32) -> RunResult<()> {
        let own: Vec<_> = self.store.doc(node.doc).own_declarations(node.node).map(|(_, decl)| decl).collect();
        for decl in own {
            if !decl.uri.is_none() {
                self.declare(element, decl.prefix, decl.uri)?;
            }
        }
        Ok(())
    }

    /// Copies a node with its descendants.
    fn copy_node(&mut self, node: NodeRef) -> RunResult<()> {
        if node.ns > 0 {
            let ((prefix, uri), output) = (self.namespace_node(node), self.output());
            return match self.store.doc(output.doc).node(output.parent).kind {
                NodeKind::Element => self.declare(output.parent, prefix, uri),
                _ => Ok(()),
            };
        }
        match self.store.kind(node) {
            NodeKind::Attribute => return self.copy_attribute(node),
            NodeKind::Document | NodeKind::Element => {}
            _ => return self.copy_leaf(node),
        }
        // Walks without recursion: the tree may be deep.
        let is_document = self.store.kind(node) == NodeKind::Document;
        let mut depth = 0;
        let mut at = Some(node.node);
        let top = node.node;
        while let Some(index) = at {
            let current = node.at(index);
            let mut opened = false;
            if !(is_document && index == top) {
                match self.store.kind(current) {
                    NodeKind::Element => {
                        self.copy_element(current, depth == 0)?;
                        opened = true;
                        depth += 1;
                    }
                    _ => self.copy_leaf(current)?,
                }
            }
            // The next node, with the elements that end before it.
            let document = self.store.doc(node.doc);
            let entry = document.node(index);
            if entry.first != crate::tree::NIL {
                at = Some(entry.first);
                continue;
            }
            let mut ended = usize::from(opened);
            let mut climb = index;
            at = None;
            while climb != top {
                let entry = document.node(climb);
                if entry.next != crate::tree::NIL {
                    at = Some(entry.next);
                    break;
                }
                climb = entry.parent;
                ended += usize::from(!(is_document && climb == top));
            }
            for _ in 0..ended.min(depth) {
                self.close_element();
                depth -= 1;
            }
        }
        Ok(())
    }

    fn copy_element(&mut self, node: NodeRef, is_top: bool) -> RunResult<()> {
        let name = self.store.name(node);
        let element = self.open_element(name)?;
        if is_top {
            for (_, decl) in self.store.doc(node.doc).namespaces(node.node) {
                self.declare(element, decl.prefix, decl.uri)?;
            }
        } else {
            self.copy_own_declarations(node, element)?;
        }
        self.name_element(element, name)?;
        let attributes: Vec<u32> = self.store.doc(node.doc).attributes(node.node).collect();
        for attribute in attributes {
            self.copy_attribute(node.at(attribute))?;
        }
        Ok(())
    }
}
