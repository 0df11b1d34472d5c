//! All documents of a transformation. Temporary ones, the fragments of templates, end with their template.

use crate::names::{NameId, NameTable, QName};
use crate::tree::{Document, NIL, NodeKind};

/// Number of a document; temporary documents have the highest bit.
pub(crate) type DocId = u32;
pub(crate) const TEMPORARY: u32 = 1 << 31;

/// Node of a document. Ordered by document, then by document order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeRef {
    pub doc: DocId,
    pub node: u32,
    /// 0, or the number of a namespace declaration + 1: a namespace node of the element `node`.
    pub ns: u32,
}

impl NodeRef {
    pub fn root(doc: DocId) -> NodeRef {
        NodeRef { doc, node: 0, ns: 0 }
    }
    pub fn at(self, node: u32) -> NodeRef {
        NodeRef { doc: self.doc, node, ns: 0 }
    }
}

#[derive(Default)]
pub(crate) struct Store {
    permanent: Vec<Document>,
    temporary: Vec<Document>,
    empty: Document,
}

impl Store {
    pub fn doc(&self, id: DocId) -> &Document {
        let found = match id & TEMPORARY {
            0 => self.permanent.get(id as usize),
            _ => self.temporary.get((id & !TEMPORARY) as usize),
        };
        found.unwrap_or(&self.empty)
    }
    pub fn doc_mut(&mut self, id: DocId) -> &mut Document {
        let found = match id & TEMPORARY {
            0 => self.permanent.get_mut(id as usize),
            _ => self.temporary.get_mut((id & !TEMPORARY) as usize),
        };
        found.unwrap_or(&mut self.empty)
    }
    pub fn add(&mut self, document: Document, permanent: bool) -> DocId {
        let (list, bit) = match permanent {
            true => (&mut self.permanent, 0),
            false => (&mut self.temporary, TEMPORARY),
        };
        list.push(document);
        (list.len() as u32 - 1) | bit
    }
    pub fn take(&mut self, id: DocId) -> Document {
        std::mem::take(self.doc_mut(id))
    }
    /// Temporary documents so far.
    pub fn mark(&self) -> usize {
        self.temporary.len()
    }
    /// Ends the temporary documents since a mark.
    pub fn release(&mut self, mark: usize) {
        self.temporary.truncate(mark);
    }

    pub fn kind(&self, node: NodeRef) -> NodeKind {
        self.doc(node.doc).node(node.node).kind
    }
    pub fn name(&self, node: NodeRef) -> QName {
        if node.ns > 0 {
            return QName::local(self.doc(node.doc).declaration(node.ns - 1).map_or(NameId::NONE, |decl| decl.prefix));
        }
        self.doc(node.doc).node(node.node).name
    }
    pub fn text(&self, node: NodeRef, names: &NameTable) -> String {
        let mut out = String::new();
        self.append_text(node, names, &mut out);
        out
    }
    pub fn append_text(&self, node: NodeRef, names: &NameTable, out: &mut String) {
        if node.ns > 0 {
            let uri = self.doc(node.doc).declaration(node.ns - 1).map_or(NameId::NONE, |decl| decl.uri);
            out.push_str(names.text(uri));
            return;
        }
        self.doc(node.doc).string_value(node.node, out);
    }
    pub fn parent(&self, node: NodeRef) -> Option<NodeRef> {
        if node.ns > 0 {
            return Some(node.at(node.node));
        }
        let parent = self.doc(node.doc).node(node.node).parent;
        (parent != NIL).then(|| node.at(parent))
    }
}
