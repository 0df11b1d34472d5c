//! Fields of a head: a table of spans with an index of known names.

use crate::head::Span;
use crate::known::Known;

/// Field line: `name` as written, trimmed `value`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    /// Span of the name.
    pub name: Span,
    /// Span of the value, without surrounding blanks.
    pub value: Span,
    /// The name, if it is known.
    pub known: Known,
}

/// The fields of a head, in their order.
#[derive(Clone, Debug)]
pub struct Fields {
    /// All fields. Additions go through [`Fields::push`], otherwise the index misses them.
    pub all: Vec<Field>,
    /// Index + 1 in `all` of the first field of each known name; 0 if absent.
    first: [u16; Known::COUNT],
}

/// Fields at most, whatever `max_headers` says: framing could not see a field beyond the index, which would smuggle a
/// request.
pub const FIELDS_MAX: usize = u16::MAX as usize - 1;

impl Default for Fields {
    fn default() -> Self {
        Fields { all: Vec::new(), first: [0; Known::COUNT] }
    }
}

impl Fields {
    /// Removes all fields and keeps the memory.
    pub fn clear(&mut self) {
        self.all.clear();
        self.first = [0; Known::COUNT];
    }

    /// Keeps the first `count` fields.
    pub fn truncate(&mut self, count: usize) {
        self.all.truncate(count);
        for slot in &mut self.first {
            if usize::from(*slot) > count {
                *slot = 0;
            }
        }
    }

    /// Keeps the fields that `wanted` accepts.
    pub fn retain(&mut self, wanted: impl Fn(&Field) -> bool) {
        let mut all = std::mem::take(&mut self.all);
        all.retain(|field| wanted(field));
        self.clear();
        for field in all {
            self.push(field);
        }
    }

    /// Adds a field; the index covers 65,535.
    #[inline]
    pub fn push(&mut self, field: Field) {
        self.all.push(field);
        if let Some(slot) = self.first.get_mut(field.known as usize)
            && *slot == 0
        {
            *slot = self.all.len() as u16;
        }
    }

    /// Returns the value of the first field of a known name.
    #[inline]
    pub fn first(&self, known: Known) -> Option<Span> {
        self.first_field(known).map(|f| f.value)
    }

    /// Returns the first field of a known name.
    #[inline]
    pub fn first_field(&self, known: Known) -> Option<&Field> {
        let index = *self.first.get(known as usize)?;
        self.all.get(usize::from(index).checked_sub(1)?)
    }

    /// Returns all fields of a known name.
    pub fn each(&self, known: Known) -> impl Iterator<Item = &Field> {
        let from = self.first.get(known as usize).map_or(0, |&i| usize::from(i));
        let rest = match from {
            0 if known == Known::Other => self.all.as_slice(),
            0 => &[],
            _ => self.all.get(from - 1..).unwrap_or(&[]),
        };
        rest.iter().filter(move |f| f.known == known)
    }

    /// First field of any name (case-insensitive), for configured names.
    pub fn by_name<'a>(&'a self, buf: &[u8], name: &[u8]) -> Option<&'a Field> {
        self.all.iter().find(|f| f.name.of(buf).eq_ignore_ascii_case(name))
    }
}
