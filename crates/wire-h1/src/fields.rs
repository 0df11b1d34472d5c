//! Field lines (RFC 9112, 5): the table of a head's fields, and the reader of one line.

use crate::bytes::{self, NAME};
use crate::head::Span;
use crate::known::{Known, known};

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

/// More fields than this are refused whatever `max_headers` says: beyond it the index could not name them, and a field that
/// framing cannot see is a smuggled request.
pub(crate) const FIELDS_MAX: usize = u16::MAX as usize - 1;

impl Default for Fields {
    fn default() -> Self {
        Fields {
            all: Vec::new(),
            first: [0; Known::COUNT],
        }
    }
}

impl Fields {
    pub fn clear(&mut self) {
        self.all.clear();
        self.first = [0; Known::COUNT];
    }

    pub fn push(&mut self, field: Field) {
        self.all.push(field);
        if field.known == Known::Other {
            return;
        }
        if let Some(slot) = self.first.get_mut(field.known as usize)
            && *slot == 0
        {
            *slot = u16::try_from(self.all.len()).unwrap_or(0);
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
        let from = self
            .first
            .get(known as usize)
            .map_or(0, |&i| usize::from(i));
        let rest = match from {
            0 if known == Known::Other => self.all.as_slice(),
            0 => &[],
            _ => self.all.get(from - 1..).unwrap_or(&[]),
        };
        rest.iter().filter(move |f| f.known == known)
    }

    /// The first field with this name (case-insensitive), known or not: for names that only the configuration knows.
    pub fn by_name<'a>(&'a self, buf: &[u8], name: &[u8]) -> Option<&'a Field> {
        self.all
            .iter()
            .find(|f| f.name.of(buf).eq_ignore_ascii_case(name))
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

/// Reads the line that starts at `start`; returns it with the offset after its LF. The caller has made sure that there is an LF
/// at or after `start`; without one the answer is `Bad`.
///
/// The rules are those of `ngx_http_parse_header_line`: LF alone ends a line; CRs before the LF are dropped; only spaces, not tabs,
/// are trimmed from the value; a line without a colon is a field with an empty value; a line that starts with white space (obs-fold,
/// RFC 9112, 5.2) and white space before the colon (5.1) are errors, as is a NUL anywhere.
#[inline]
pub(crate) fn read_line(
    buf: &[u8],
    start: usize,
    underscores: bool,
    response: bool,
) -> (Line, usize) {
    let bad = |at: usize| (Line::Bad(Span::at(start, at)), at);
    let line = buf.get(start..).unwrap_or(&[]);
    match line {
        [b'\n', ..] => return (Line::End, start + 1),
        [b'\r', b'\n', ..] => return (Line::End, start + 2),
        [b'\r' | b':', ..] => return bad(start),
        _ => {}
    }
    let mut invalid = false;
    let mut len = 0;
    let (name_len, colon) = loop {
        len += bytes::run(line.get(len..).unwrap_or(&[]), NAME);
        match line.get(len) {
            Some(b':') => break (len, true),
            Some(b'\r' | b'\n') => break (len, false),
            Some(b'_') if underscores => {}
            Some(b'/') if response && len == 4 && line.starts_with(b"HTTP") => {
                return match memchr::memchr(b'\n', line) {
                    Some(lf) => (Line::Ignored, start + lf + 1),
                    None => bad(start + len),
                };
            }
            Some(&b) if b > b' ' && b != 0x7f => invalid = true,
            _ => return bad(start + len),
        }
        len += 1;
    };
    let mut value_at = name_len;
    if colon {
        value_at += 1;
        while line.get(value_at) == Some(&b' ') {
            value_at += 1;
        }
    }
    let rest = line.get(value_at..).unwrap_or(&[]);
    let Some(value_len) = memchr::memchr3(b'\r', b'\n', 0, rest) else {
        return bad(start + line.len());
    };
    let mut end = value_at + value_len;
    match line.get(end) {
        Some(b'\n') => {}
        Some(b'\r') => {
            let cr = end;
            while line.get(end) == Some(&b'\r') {
                end += 1;
            }
            if line.get(end) != Some(&b'\n') {
                return bad(start + cr);
            }
        }
        _ => return bad(start + end),
    }
    let mut value_end = value_at + value_len;
    while value_end > value_at && line.get(value_end - 1) == Some(&b' ') {
        value_end -= 1;
    }
    let name = line.get(..name_len).unwrap_or(&[]);
    let field = Field {
        name: Span::at(start, start + name_len),
        value: Span::at(start + value_at, start + value_end),
        known: known(name),
    };
    (
        if invalid {
            Line::InvalidName(field)
        } else {
            Line::Field(field)
        },
        start + end + 1,
    )
}
