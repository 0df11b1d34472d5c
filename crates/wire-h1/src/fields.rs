//! Field lines (RFC 9112, 5): the table of a head's fields, and the reader of one line.

use crate::bytes::{self, NAME};
use crate::error::HeadError;
use crate::head::Span;
use crate::known::{Known, known, known_words, words};
use crate::scan;

/// One header field line: `name` as written, `value` without the spaces around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    pub name: Span,
    pub value: Span,
    pub known: Known,
}

/// The fields of a head in order of arrival.
#[derive(Clone, Debug)]
pub struct Fields {
    pub all: Vec<Field>,
    /// Index + 1 in `all` of the first field of each known name, 0 when absent.
    first: [u16; Known::COUNT],
}

/// More fields than this are refused whatever `max_headers` says: beyond it the index could not name them, and a field
/// that framing cannot see is a smuggled request.
pub(crate) const FIELDS_MAX: usize = u16::MAX as usize - 1;

impl Default for Fields {
    fn default() -> Self {
        Fields { all: Vec::new(), first: [0; Known::COUNT] }
    }
}

impl Fields {
    pub fn clear(&mut self) {
        self.all.clear();
        self.first = [0; Known::COUNT];
    }

    /// Forgets all but the first `count` fields.
    pub fn truncate(&mut self, count: usize) {
        self.all.truncate(count);
        for slot in &mut self.first {
            if usize::from(*slot) > count {
                *slot = 0;
            }
        }
    }

    /// Keeps the fields that are wanted, in their order.
    pub fn retain(&mut self, wanted: impl Fn(&Field) -> bool) {
        let mut all = std::mem::take(&mut self.all);
        all.retain(|field| wanted(field));
        self.clear();
        for field in all {
            self.push(field);
        }
    }

    /// Adds a field. At most 65,535 are counted; the parsers stop before.
    #[inline]
    pub fn push(&mut self, field: Field) {
        self.all.push(field);
        if let Some(slot) = self.first.get_mut(field.known as usize)
            && *slot == 0
        {
            *slot = self.all.len() as u16;
        }
    }

    /// The value span of the first field of this name.
    #[inline]
    pub fn first(&self, known: Known) -> Option<Span> {
        self.first_field(known).map(|f| f.value)
    }

    /// The first field of this name.
    #[inline]
    pub fn first_field(&self, known: Known) -> Option<&Field> {
        let index = *self.first.get(known as usize)?;
        self.all.get(usize::from(index).checked_sub(1)?)
    }

    /// Every field of this name, in order.
    pub fn each(&self, known: Known) -> impl Iterator<Item = &Field> {
        let from = self.first.get(known as usize).map_or(0, |&i| usize::from(i));
        let rest = match from {
            0 if known == Known::Other => self.all.as_slice(),
            0 => &[],
            _ => self.all.get(from - 1..).unwrap_or(&[]),
        };
        rest.iter().filter(move |f| f.known == known)
    }

    /// The first field with this name (case-insensitive), known or not: for names that only the configuration knows.
    pub fn by_name<'a>(&'a self, buf: &[u8], name: &[u8]) -> Option<&'a Field> {
        self.all.iter().find(|f| f.name.of(buf).eq_ignore_ascii_case(name))
    }
}

/// What a line of the field section turned out to be.
pub(crate) enum Line {
    Field(Field),
    /// The name holds a byte that nginx does not take: the caller ignores the line or keeps it.
    InvalidName(Field),
    /// The empty line.
    End,
    /// From the start of the line up to the offending byte.
    Bad(Span),
    /// A second status line, as some servers send it; responses only.
    Ignored,
}

/// Reads a trailer section as [`crate::ChunkedDecoder::trailers`] keeps it: field lines, each with its line end, and no
/// empty line. Names that nginx would not take from a client are kept, as in a response's head.
pub fn parse_trailers(buf: &[u8], fields: &mut Fields) -> Result<(), HeadError> {
    fields.clear();
    let mut start = 0;
    while start < buf.len() {
        match any_line(buf, start, true, false) {
            Some((Line::Field(field) | Line::InvalidName(field), next)) if fields.all.len() < FIELDS_MAX => {
                fields.push(field);
                start = next;
            }
            Some((Line::Bad(span), _)) => return Err(HeadError::InvalidField(span)),
            Some((Line::Field(_) | Line::InvalidName(_), _)) => return Err(HeadError::TooManyFields),
            Some((Line::End | Line::Ignored, _)) | None => return Ok(()),
        }
    }
    Ok(())
}

/// The line that nearly every line is: a name of at most fifteen letters, digits and `-`, a colon, a value without
/// controls, CRLF. Everything else, errors included, is left to [`any_line`].
#[inline(always)]
pub(crate) fn usual_line(buf: &[u8], start: usize) -> Option<(Field, usize)> {
    let block = u128::from_le_bytes(*buf.get(start..)?.first_chunk()?);
    let name_len = match scan::eq(block as u64, b':') {
        0 => 8 + scan::index(scan::eq((block >> 64) as u64, b':')),
        found => scan::index(found),
    };
    if name_len == 0 || name_len == 16 {
        return None;
    }
    let known = known_words(name_len, words(block, name_len)?);
    let colon = start + name_len;
    if known == Known::Other && bytes::run(buf.get(start..colon)?, NAME) < name_len {
        return None;
    }
    let mut value = colon + 1;
    while buf.get(value) == Some(&b' ') {
        value += 1;
    }
    // The first byte that may end the line. A tab, too, is less than CR: `any_line` knows about tabs.
    let end = scan::first(buf, value, |word| scan::below(word, b'\r' + 1))?;
    if buf.get(end..)?.first_chunk() != Some(b"\r\n") {
        return None;
    }
    let mut value_end = end;
    while value_end > value && buf.get(value_end - 1) == Some(&b' ') {
        value_end -= 1;
    }
    let field = Field { name: Span::at(start, colon), value: Span::at(value, value_end), known };
    Some((field, end + 2))
}

/// Reads the line that starts at `start`; returns it with the offset after its LF. `None` when the LF has not arrived.
///
/// The rules are those of `ngx_http_parse_header_line`: LF alone ends a line; CRs before the LF are dropped; only
/// spaces, not tabs, are trimmed from the value; a line without a colon is a field with an empty value; a line that
/// starts with white space (obs-fold, RFC 9112, 5.2) and white space before the colon (5.1) are errors, as is a NUL
/// anywhere.
#[inline(never)]
pub(crate) fn any_line(buf: &[u8], start: usize, underscores: bool, response: bool) -> Option<(Line, usize)> {
    let rest = buf.get(start..)?;
    match rest {
        [b'\n', ..] => return Some((Line::End, start + 1)),
        [b'\r', b'\n', ..] => return Some((Line::End, start + 2)),
        _ => {}
    }
    let lf = memchr::memchr(b'\n', rest)?;
    let line = rest.get(..lf)?;
    let next = start + lf + 1;
    let bad = |at: usize| Some((Line::Bad(Span::at(start, start + at)), next));
    if let Some(b'\r' | b':') = line.first() {
        return bad(0);
    }
    let mut invalid = false;
    let mut at = 0;
    let (name_len, colon) = loop {
        at += bytes::run(line.get(at..)?, NAME);
        match line.get(at) {
            Some(b':') => break (at, true),
            None | Some(b'\r') => break (at, false),
            Some(b'_') if underscores => {}
            Some(b'/') if response && at == 4 && line.starts_with(b"HTTP") => {
                return Some((Line::Ignored, next));
            }
            Some(&b) if b > b' ' && b != 0x7f => invalid = true,
            Some(_) => return bad(at),
        }
        at += 1;
    };
    let mut value = name_len + usize::from(colon);
    while line.get(value) == Some(&b' ') && colon {
        value += 1;
    }
    let rest = line.get(value..)?;
    let value_len = memchr::memchr2(b'\r', 0, rest).unwrap_or(rest.len());
    // Any number of CRs, and nothing but CRs, may stand before the LF.
    if rest.get(value_len..)?.iter().any(|&b| b != b'\r') {
        return bad(value + value_len);
    }
    let mut value_end = value + value_len;
    while value_end > value && line.get(value_end - 1) == Some(&b' ') {
        value_end -= 1;
    }
    let field = Field {
        name: Span::at(start, start + name_len),
        value: Span::at(start + value, start + value_end),
        known: known(line.get(..name_len)?),
    };
    Some((if invalid { Line::InvalidName(field) } else { Line::Field(field) }, next))
}
