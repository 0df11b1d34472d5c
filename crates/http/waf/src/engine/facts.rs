//! The values of variables.

use crate::rule::{Target, TargetSelector};
use crate::variable::Variable;
use hashbrown::HashMap;
use std::borrow::Cow;
use std::sync::Arc;

/// Position of a value in the request, for the `ref` of messages: offset and length in bytes.
pub(super) type Origin = Option<(u32, u32)>;

/// A named value that does not change.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub name: Arc<[u8]>,
    pub value: Arc<[u8]>,
    /// The value's number in the cache of transformations; the name's is the next.
    pub id: u32,
    pub origin: Origin,
    pub name_origin: Origin,
}

/// Where an argument comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentSource {
    Query,
    Body,
    /// JSON: in `ARGS` alone.
    Document,
}

/// A variable without elements.
#[derive(Clone, Debug)]
pub(super) struct Single {
    pub value: Arc<[u8]>,
    pub id: u32,
    pub origin: Origin,
}

/// A file of a multipart body.
#[derive(Clone, Debug)]
pub(super) struct FileFacts {
    pub field: Arc<[u8]>,
    pub name: Arc<[u8]>,
    pub size: usize,
    pub content: Arc<[u8]>,
    /// Numbers of four values: the field's name, the file's name, size, content.
    pub id: u32,
}

/// Returns a name in lower case; most are written so.
pub(super) fn lower_case(name: &[u8]) -> Cow<'_, [u8]> {
    match name.iter().any(u8::is_ascii_uppercase) {
        true => Cow::Owned(name.to_ascii_lowercase()),
        false => Cow::Borrowed(name),
    }
}

/// Variables of `TX`, in the order of their first setting.
#[derive(Debug, Default)]
pub(super) struct TxVariables {
    /// Name as first set, and value; `None` marks a removed variable.
    entries: Vec<(Arc<[u8]>, Option<Arc<[u8]>>)>,
    /// Index by name in lower case.
    index: HashMap<Box<[u8]>, usize>,
}

impl TxVariables {
    /// The entry of a name in lower case.
    pub fn get(&self, lower: &[u8]) -> Option<(&Arc<[u8]>, &Arc<[u8]>)> {
        let (name, value) = self.entries.get(*self.index.get(lower)?)?;
        Some((name, value.as_ref()?))
    }
    pub fn set(&mut self, name: &[u8], value: Arc<[u8]>) {
        let lower = lower_case(name);
        match self.index.get(&*lower).and_then(|index| self.entries.get_mut(*index)) {
            Some(entry) => entry.1 = Some(value),
            None => {
                self.index.insert(lower.into_owned().into(), self.entries.len());
                self.entries.push((name.into(), Some(value)));
            }
        }
    }
    pub fn remove(&mut self, name: &[u8]) {
        let index = self.index.get(&*lower_case(name)).copied();
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
            entry.1 = None;
        }
    }
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<[u8]>, &Arc<[u8]>)> {
        self.entries.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)))
    }
}

/// The name of a value that matched. Most are never shown.
#[derive(Clone, Debug)]
pub(super) struct MatchedName {
    variable: Variable,
    counts: bool,
    /// The name of the element; a path as written, for `XML`.
    element: Option<Arc<[u8]>>,
    is_path: bool,
}

impl MatchedName {
    pub fn new(target: &Target, element: Option<Arc<[u8]>>) -> MatchedName {
        let is_path = matches!(target.selector, TargetSelector::Path(_));
        let element = if is_path { Some(Arc::from(target.text.as_bytes())) } else { element };
        MatchedName { variable: target.variable, counts: target.counts, element, is_path }
    }

    /// As messages show it: `ARGS:name`, `&ARGS`, `XML:/*`.
    pub fn text(&self) -> Arc<[u8]> {
        let name = self.variable.name().as_bytes();
        let element = self.element.as_deref().unwrap_or_default();
        let mut text = Vec::with_capacity(name.len() + element.len() + 2);
        if self.counts {
            text.push(b'&');
        }
        if !self.is_path {
            text.extend_from_slice(name);
            if self.element.is_some() {
                text.push(b':');
            }
        }
        text.extend_from_slice(element);
        text.into()
    }
}

/// A value that matched.
#[derive(Clone, Debug)]
pub(super) struct MatchedValue {
    pub name: MatchedName,
    pub value: Arc<[u8]>,
}

/// All variables of a transaction.
#[derive(Debug, Default)]
pub(super) struct Facts {
    singles: Vec<(Variable, Single)>,
    pub arguments: Vec<(ArgumentSource, Field)>,
    pub arguments_bytes: usize,
    /// Arguments beyond `SecArgumentsLimit` were left out.
    pub is_cut: bool,
    pub request_headers: Vec<Field>,
    pub cookies: Vec<Field>,
    pub response_headers: Vec<Field>,
    pub files: Vec<FileFacts>,
    pub files_bytes: usize,
    pub multipart_names: Vec<Field>,
    pub multipart_filenames: Vec<Field>,
    pub part_headers: Vec<Field>,
    /// Values of the set's XML paths, in their order.
    pub xml: Vec<Vec<(Arc<[u8]>, u32)>>,
    pub tx: TxVariables,
    pub geo: Vec<(Box<[u8]>, Arc<[u8]>)>,
    pub matched: Vec<MatchedValue>,
    next_id: u32,
    /// Bytes of the request so far, as ModSecurity counts offsets.
    pub offset: usize,
}

impl Facts {
    /// Reserves numbers in the cache of transformations.
    pub fn reserve(&mut self, count: u32) -> u32 {
        // Number 0 is for values that are not cached.
        let id = self.next_id + 1;
        self.next_id = self.next_id.saturating_add(count);
        id
    }
    pub fn set(&mut self, variable: Variable, value: &[u8], origin: Origin) {
        let single = Single { value: value.into(), id: self.reserve(1), origin };
        match self.singles.iter_mut().find(|(known, _)| *known == variable) {
            Some((_, held)) => *held = single,
            None => self.singles.push((variable, single)),
        }
    }
    pub fn single(&self, variable: Variable) -> Option<&Single> {
        self.singles.iter().find(|(known, _)| *known == variable).map(|(_, single)| single)
    }
    pub fn field(&mut self, name: &[u8], value: &[u8], origin: Origin, name_origin: Origin) -> Field {
        Field { name: name.into(), value: value.into(), id: self.reserve(2), origin, name_origin }
    }
    /// The first header of a name, in any case.
    pub fn request_header(&self, name: &str) -> Option<&Arc<[u8]>> {
        let found = self.request_headers.iter().find(|field| field.name.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|field| &field.value)
    }
}
