//! Interned names: local names, prefixes and namespace names are numbers, so that node tests compare integers.

use std::collections::HashMap;
use std::sync::Arc;

/// Number of an interned string. `NameId::NONE` is the empty string: no namespace, or no prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub(crate) u32);

impl NameId {
    pub const NONE: NameId = NameId(0);
    pub const XML: NameId = NameId(1);
    pub const XML_NS: NameId = NameId(2);
    pub const XSL_NS: NameId = NameId(3);
    pub const XMLNS: NameId = NameId(4);

    pub fn is_none(self) -> bool {
        self == NameId::NONE
    }
}

pub const XSL_URI: &str = "http://www.w3.org/1999/XSL/Transform";
pub const XML_URI: &str = "http://www.w3.org/XML/1998/namespace";

/// Expanded name: namespace and local part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExpandedName {
    pub ns: NameId,
    pub local: NameId,
}

/// Name of a node with its prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QName {
    pub ns: NameId,
    pub local: NameId,
    pub prefix: NameId,
}

impl QName {
    pub fn expanded(self) -> ExpandedName {
        ExpandedName { ns: self.ns, local: self.local }
    }
    pub fn local(local: NameId) -> QName {
        QName { local, ..QName::default() }
    }
}

/// A table of names. The table of a transformation extends the immutable table of its stylesheet.
#[derive(Clone, Debug)]
pub struct NameTable {
    base: Option<Arc<NameTable>>,
    offset: u32,
    ids: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
}

impl Default for NameTable {
    fn default() -> NameTable {
        let mut names = NameTable { base: None, offset: 0, ids: HashMap::new(), texts: Vec::new() };
        for text in ["", "xml", XML_URI, XSL_URI, "xmlns"] {
            names.id(text);
        }
        names
    }
}

impl NameTable {
    pub fn extending(base: Arc<NameTable>) -> NameTable {
        let offset = base.len();
        NameTable { base: Some(base), offset, ids: HashMap::new(), texts: Vec::new() }
    }
    fn len(&self) -> u32 {
        self.offset + self.texts.len() as u32
    }
    fn find(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied().or_else(|| self.base.as_ref().and_then(|base| base.find(text)))
    }
    /// Interns a string.
    pub fn id(&mut self, text: &str) -> NameId {
        if let Some(id) = self.find(text) {
            return NameId(id);
        }
        let id = self.len();
        let text: Arc<str> = text.into();
        self.ids.insert(text.clone(), id);
        self.texts.push(text);
        NameId(id)
    }
    /// The interned string; empty for a number of another table.
    pub fn text(&self, id: NameId) -> &str {
        match id.0.checked_sub(self.offset) {
            Some(index) => self.texts.get(index as usize).map_or("", |text| text),
            None => self.base.as_ref().map_or("", |base| base.text(id)),
        }
    }
    /// The name as written: `prefix:local`.
    pub fn qualified(&self, name: QName) -> String {
        match name.prefix.is_none() {
            true => self.text(name.local).into(),
            false => format!("{}:{}", self.text(name.prefix), self.text(name.local)),
        }
    }
}
