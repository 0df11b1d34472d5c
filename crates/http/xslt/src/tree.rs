//! Documents: an arena of nodes that grows in document order, so that the order of numbers is the order of nodes.

use crate::names::{ExpandedName, NameId, QName};
use std::collections::HashMap;

/// Number of a node in its document; 0 is the document itself.
pub type NodeIndex = u32;
/// "No node" of links.
pub const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    Document,
    Element,
    Attribute,
    Text,
    /// Text written without escapes (`disable-output-escaping`).
    RawText,
    /// CDATA section: text to XPath.
    Cdata,
    Comment,
    Instruction,
}

impl NodeKind {
    pub fn is_text(self) -> bool {
        matches!(self, NodeKind::Text | NodeKind::RawText | NodeKind::Cdata)
    }
}

#[derive(Clone, Debug)]
pub struct Node {
    pub kind: NodeKind,
    pub name: QName,
    pub parent: u32,
    pub first: u32,
    pub last: u32,
    pub next: u32,
    pub prev: u32,
    /// First attribute of an element.
    pub attributes: u32,
    /// First namespace declaration of an element, an index of `Document::declarations`.
    pub declarations: u32,
    /// Line of the source, from 1.
    pub line: u32,
    start: u32,
    end: u32,
}

/// Namespace declaration of an element.
#[derive(Clone, Copy, Debug)]
pub struct NamespaceDecl {
    pub prefix: NameId,
    pub uri: NameId,
    pub next: u32,
}

/// Document or result fragment.
#[derive(Clone, Debug)]
pub struct Document {
    nodes: Vec<Node>,
    text: String,
    decls: Vec<NamespaceDecl>,
    pub ids: HashMap<String, NodeIndex>,
    /// Unparsed entities and their system identifiers.
    pub unparsed: HashMap<String, String>,
    /// Address: the base of relative references.
    pub uri: String,
    /// Elements with a base of their own: those of external entities, and the entities' addresses.
    pub bases: Vec<(NodeIndex, String)>,
}

static ABSENT: Node = Node {
    kind: NodeKind::Comment,
    name: QName { ns: NameId::NONE, local: NameId::NONE, prefix: NameId::NONE },
    parent: NIL,
    first: NIL,
    last: NIL,
    next: NIL,
    prev: NIL,
    attributes: NIL,
    declarations: NIL,
    line: 0,
    start: 0,
    end: 0,
};

impl Default for Document {
    fn default() -> Document {
        Document::new(String::new())
    }
}

impl Document {
    pub fn new(uri: String) -> Document {
        let mut document = Document {
            nodes: Vec::new(),
            text: String::new(),
            decls: vec![NamespaceDecl { prefix: NameId::XML, uri: NameId::XML_NS, next: NIL }],
            ids: HashMap::new(),
            unparsed: HashMap::new(),
            uri,
            bases: Vec::new(),
        };
        document.nodes.push(Node { kind: NodeKind::Document, ..ABSENT.clone() });
        document
    }
    pub fn node(&self, index: NodeIndex) -> &Node {
        self.nodes.get(index as usize).unwrap_or(&ABSENT)
    }
    pub fn len(&self) -> usize {
        self.nodes.len()
    }
    pub fn is_empty(&self) -> bool {
        self.nodes.len() <= 1
    }
    /// Bytes in memory, roughly.
    pub fn bytes(&self) -> usize {
        self.nodes.len() * size_of::<Node>() + self.text.len() + self.decls.len() * size_of::<NamespaceDecl>()
    }
    fn change(&mut self, index: NodeIndex, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(index as usize) {
            change(node);
        }
    }
    pub fn value(&self, index: NodeIndex) -> &str {
        let node = self.node(index);
        self.text.get(node.start as usize..node.end as usize).unwrap_or("")
    }
    pub fn declaration(&self, index: u32) -> Option<NamespaceDecl> {
        self.decls.get(index as usize).copied()
    }

    /// Appends a node to a parent's children.
    pub fn append(&mut self, parent: NodeIndex, kind: NodeKind, name: QName, value: &str, line: u32) -> NodeIndex {
        let index = self.nodes.len() as u32;
        let start = self.text.len() as u32;
        self.text.push_str(value);
        let prev = self.node(parent).last;
        let node = Node { kind, name, parent, prev, line, start, end: self.text.len() as u32, ..ABSENT.clone() };
        self.nodes.push(node);
        match prev {
            NIL => self.change(parent, |node| node.first = index),
            prev => self.change(prev, |node| node.next = index),
        }
        self.change(parent, |node| node.last = index);
        index
    }

    /// Appends text, merged with a preceding text node of the kind.
    pub fn append_text(&mut self, parent: NodeIndex, kind: NodeKind, value: &str, line: u32) {
        if value.is_empty() {
            return;
        }
        let last = self.node(parent).last;
        if last == NIL || self.node(last).kind != kind || kind == NodeKind::Cdata {
            self.append(parent, kind, QName::default(), value, line);
            return;
        }
        let (start, end) = (self.node(last).start as usize, self.node(last).end as usize);
        if end != self.text.len() {
            let moved = self.text.get(start..end).unwrap_or("").to_string();
            let start = self.text.len() as u32;
            self.text.push_str(&moved);
            self.change(last, |node| node.start = start);
        }
        self.text.push_str(value);
        let end = self.text.len() as u32;
        self.change(last, |node| node.end = end);
    }

    /// Sets an attribute: replaces the value of one with this name.
    pub fn set_attribute(&mut self, element: NodeIndex, name: QName, value: &str) -> NodeIndex {
        let start = self.text.len() as u32;
        self.text.push_str(value);
        let end = self.text.len() as u32;
        let (mut last, mut at) = (NIL, self.node(element).attributes);
        while at != NIL {
            if self.node(at).name.expanded() == name.expanded() {
                self.change(at, |node| (node.start, node.end, node.name) = (start, end, name));
                return at;
            }
            (last, at) = (at, self.node(at).next);
        }
        let index = self.nodes.len() as u32;
        let line = self.node(element).line;
        let kind = NodeKind::Attribute;
        self.nodes.push(Node { kind, name, parent: element, prev: last, line, start, end, ..ABSENT.clone() });
        match last {
            NIL => self.change(element, |node| node.attributes = index),
            last => self.change(last, |node| node.next = index),
        }
        index
    }

    /// Appends an attribute whose name the element does not have: attributes come before other nodes.
    pub fn append_attribute(&mut self, element: NodeIndex, name: QName, value: &str) -> NodeIndex {
        let start = self.text.len() as u32;
        self.text.push_str(value);
        let (index, end) = (self.nodes.len() as u32, self.text.len() as u32);
        let before = index.saturating_sub(1);
        let prev = if before != element && self.node(before).kind == NodeKind::Attribute { before } else { NIL };
        let line = self.node(element).line;
        let kind = NodeKind::Attribute;
        self.nodes.push(Node { kind, name, parent: element, prev, line, start, end, ..ABSENT.clone() });
        match prev {
            NIL => self.change(element, |node| node.attributes = index),
            prev => self.change(prev, |node| node.next = index),
        }
        index
    }

    pub fn declare(&mut self, element: NodeIndex, prefix: NameId, uri: NameId) {
        let index = self.decls.len() as u32;
        self.decls.push(NamespaceDecl { prefix, uri, next: NIL });
        let mut at = self.node(element).declarations;
        if at == NIL {
            self.change(element, |node| node.declarations = index);
            return;
        }
        while let Some(next) = self.declaration(at).map(|decl| decl.next).filter(|next| *next != NIL) {
            at = next;
        }
        if let Some(decl) = self.decls.get_mut(at as usize) {
            decl.next = index;
        }
    }

    pub fn rename(&mut self, index: NodeIndex, name: QName) {
        self.change(index, |node| node.name = name);
    }

    /// Replaces the names of all nodes and declarations.
    pub fn for_each_name(&mut self, change: &mut impl FnMut(QName) -> QName) {
        for node in &mut self.nodes {
            node.name = change(node.name);
        }
        for decl in &mut self.decls {
            let changed = change(QName { ns: decl.uri, local: NameId::NONE, prefix: decl.prefix });
            (decl.prefix, decl.uri) = (changed.prefix, changed.ns);
        }
    }

    /// Removes a node from its siblings.
    pub fn unlink(&mut self, index: NodeIndex) {
        let Node { parent, prev, next, .. } = *self.node(index);
        match prev {
            NIL => self.change(parent, |node| node.first = next),
            prev => self.change(prev, |node| node.next = next),
        }
        match next {
            NIL => self.change(parent, |node| node.last = prev),
            next => self.change(next, |node| node.prev = prev),
        }
    }

    /// Moves the last child of a parent in front of its other children. For serialization: breaks the order of numbers.
    pub fn move_last_to_front(&mut self, parent: NodeIndex) {
        let Node { first, last, .. } = *self.node(parent);
        if first == last || last == NIL {
            return;
        }
        self.unlink(last);
        self.change(last, |node| (node.prev, node.next) = (NIL, first));
        self.change(first, |node| node.prev = last);
        self.change(parent, |node| node.first = last);
    }

    pub fn children(&self, index: NodeIndex) -> Siblings<'_> {
        Siblings { document: self, at: self.node(index).first }
    }
    pub fn attributes(&self, index: NodeIndex) -> Siblings<'_> {
        Siblings { document: self, at: self.node(index).attributes }
    }
    /// Declarations of this element alone, with their numbers.
    pub fn own_declarations(&self, index: NodeIndex) -> impl Iterator<Item = (u32, NamespaceDecl)> + '_ {
        let mut at = self.node(index).declarations;
        std::iter::from_fn(move || {
            let decl = self.declaration(at)?;
            let number = at;
            at = decl.next;
            Some((number, decl))
        })
    }
    /// Namespaces in scope, nearest declaration first, without `xml`. Undeclared ones are left out.
    pub fn namespaces(&self, index: NodeIndex) -> Vec<(u32, NamespaceDecl)> {
        let mut found: Vec<(u32, NamespaceDecl)> = Vec::new();
        let mut at = index;
        while at != NIL {
            for (number, decl) in self.own_declarations(at) {
                if !found.iter().any(|(_, other)| other.prefix == decl.prefix) {
                    found.push((number, decl));
                }
            }
            at = self.node(at).parent;
        }
        found.retain(|(_, decl)| !decl.uri.is_none());
        found
    }
    /// Resolves a prefix at an element. The empty prefix without a declaration: no namespace.
    pub fn resolve(&self, index: NodeIndex, prefix: NameId) -> Option<NameId> {
        if prefix == NameId::XML {
            return Some(NameId::XML_NS);
        }
        let mut at = index;
        while at != NIL {
            if let Some((_, decl)) = self.own_declarations(at).find(|(_, decl)| decl.prefix == prefix) {
                return Some(decl.uri).filter(|uri| prefix.is_none() || !uri.is_none());
            }
            at = self.node(at).parent;
        }
        prefix.is_none().then_some(NameId::NONE)
    }
    pub fn attribute(&self, element: NodeIndex, name: ExpandedName) -> Option<&str> {
        self.attributes(element).find(|at| self.node(*at).name.expanded() == name).map(|at| self.value(at))
    }
    /// The element among the document's children.
    pub fn root_element(&self) -> Option<NodeIndex> {
        self.children(0).find(|at| self.node(*at).kind == NodeKind::Element)
    }
    /// The next node in document order within `top`, attributes left out; with `skip`, behind the node's descendants.
    pub fn following(&self, index: NodeIndex, top: NodeIndex, skip: bool) -> Option<NodeIndex> {
        let node = self.node(index);
        if node.first != NIL && !skip {
            return Some(node.first);
        }
        let mut at = index;
        while at != top && at != NIL {
            let node = self.node(at);
            if node.next != NIL {
                return Some(node.next);
            }
            at = node.parent;
        }
        None
    }
    /// Appends the string value (XPath 1.0, section 5).
    pub fn string_value(&self, index: NodeIndex, out: &mut String) {
        match self.node(index).kind {
            NodeKind::Document | NodeKind::Element => {
                let mut at = index;
                while let Some(next) = self.following(at, index, false) {
                    at = next;
                    if self.node(at).kind.is_text() {
                        out.push_str(self.value(at));
                    }
                }
            }
            _ => out.push_str(self.value(index)),
        }
    }
    /// The address against which the references of a node are resolved.
    pub fn base(&self, index: NodeIndex) -> &str {
        let mut at = index;
        while at != NIL && !self.bases.is_empty() {
            if let Some((_, base)) = self.bases.iter().find(|(node, _)| *node == at) {
                return base;
            }
            at = self.node(at).parent;
        }
        &self.uri
    }
}

pub struct Siblings<'a> {
    document: &'a Document,
    at: NodeIndex,
}

impl Iterator for Siblings<'_> {
    type Item = NodeIndex;
    fn next(&mut self) -> Option<NodeIndex> {
        if self.at == NIL {
            return None;
        }
        let at = self.at;
        self.at = self.document.node(at).next;
        Some(at)
    }
}
