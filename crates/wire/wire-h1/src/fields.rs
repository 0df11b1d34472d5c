//! Reader of one field line (RFC 9112, 5).

use crate::bytes::{self, NAME};
use crate::error::HeadError;
use crate::scan;
use http_types::{FIELDS_MAX, Field, Fields, Known, Span, known_name, known_words, name_words};

pub(crate) enum FieldLine {
    Field(Field),
    /// Name with a byte that nginx rejects: callers ignore or keep it.
    InvalidName(Field),
    End,
    /// A line with an invalid byte; the span extends from the start of the line to this byte.
    Bad(Span),
    /// Repeated status line of a response, which some servers send.
    Ignored,
}

/// Parses a trailer section from [`crate::ChunkedDecoder::trailers`]. Keeps names that nginx rejects from clients.
pub fn parse_trailers(buf: &[u8], fields: &mut Fields) -> Result<(), HeadError> {
    fields.clear();
    let mut start = 0;
    while start < buf.len() {
        match any_line(buf, start, true, false) {
            Some((FieldLine::Field(field) | FieldLine::InvalidName(field), next)) if fields.all.len() < FIELDS_MAX => {
                fields.push(field);
                start = next;
            }
            Some((FieldLine::Bad(span), _)) => return Err(HeadError::InvalidField(span)),
            Some((FieldLine::Field(_) | FieldLine::InvalidName(_), _)) => return Err(HeadError::TooManyFields),
            Some((FieldLine::End | FieldLine::Ignored, _)) | None => return Ok(()),
        }
    }
    Ok(())
}

/// Fast path: a short plain name, a value without controls, CRLF. `None` leaves the line to [`any_line`].
#[inline(always)]
pub(crate) fn usual_line(buf: &[u8], start: usize) -> Option<(Field, usize)> {
    let rest = buf.get(start..)?;
    let block = match rest.first_chunk() {
        Some(block) => u128::from_le_bytes(*block),
        None => {
            let mut block = [0; 16];
            block.get_mut(..rest.len())?.copy_from_slice(rest);
            u128::from_le_bytes(block)
        }
    };
    let name_len = match scan::eq(block as u64, b':') {
        0 => 8 + scan::index(scan::eq((block >> 64) as u64, b':')),
        found => scan::index(found),
    };
    if name_len == 0 || name_len == 16 {
        return None;
    }
    let known = known_words(name_len, name_words(block, name_len)?);
    let colon = start + name_len;
    if known == Known::Other && bytes::run(buf.get(start..colon)?, NAME) < name_len {
        return None;
    }
    let mut value = colon + 1;
    while buf.get(value) == Some(&b' ') {
        value += 1;
    }
    // Includes tabs, which `any_line` handles.
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

/// Reads the line at `start`; returns it with the offset after its LF, or `None` before the LF has arrived.
/// By `ngx_http_parse_header_line`: LF ends a line, preceding CRs are dropped; only spaces are trimmed; without a colon
/// the value is empty; leading white space (obs-fold, RFC 9112, 5.2), white space before the colon (5.1) and NUL are
/// errors.
#[inline(never)]
pub(crate) fn any_line(buf: &[u8], start: usize, underscores: bool, response: bool) -> Option<(FieldLine, usize)> {
    let rest = buf.get(start..)?;
    match rest {
        [b'\n', ..] => return Some((FieldLine::End, start + 1)),
        [b'\r', b'\n', ..] => return Some((FieldLine::End, start + 2)),
        _ => {}
    }
    let lf = memchr::memchr(b'\n', rest)?;
    let line = rest.get(..lf)?;
    let next = start + lf + 1;
    let bad = |at: usize| Some((FieldLine::Bad(Span::at(start, start + at)), next));
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
                return Some((FieldLine::Ignored, next));
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
    // Only CRs may stand before the LF.
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
        known: known_name(line.get(..name_len)?),
    };
    Some((if invalid { FieldLine::InvalidName(field) } else { FieldLine::Field(field) }, next))
}
