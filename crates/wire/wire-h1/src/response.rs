//! Response heads of upstreams (RFC 9112, 4).

use crate::error::HeadError;
use crate::fields::{FieldLine, any_line, usual_line};
use crate::request::{HeadLimits, ParseProgress, field_too_long};
use http_types::{FIELDS_MAX, HEAD_MAX, ResponseHead, Span, Version};

/// Resumable parser of a response head.
#[derive(Clone, Debug, Default)]
pub struct ResponseParser {
    line_done: bool,
    start: usize,
    scanned: usize,
}

impl ResponseParser {
    /// Parser of a head that begins with fields, one of which is the status (RFC 3875, 6.2); [`read_status_line`] reads
    /// a separate line.
    pub fn of_fields() -> ResponseParser {
        ResponseParser { line_done: true, ..ResponseParser::default() }
    }

    /// Prepares for the next head.
    pub fn reset(&mut self) {
        *self = ResponseParser::default();
    }

    /// Tells whether the status line is parsed.
    pub fn line_done(&self) -> bool {
        self.line_done
    }

    /// Resumes parsing, as [`crate::HeadParser::parse`]. Ignores `limits.ignore_invalid` and `limits.underscores`:
    /// nginx keeps every readable upstream field.
    pub fn parse(
        &mut self,
        buf: &[u8],
        limits: &HeadLimits,
        head: &mut ResponseHead,
    ) -> Result<ParseProgress, HeadError> {
        if self.scanned == 0 && self.start == 0 {
            head.clear();
            // Fits most heads: growing in steps costs more.
            head.fields.all.reserve(16);
        }
        if self.scanned > self.start && memchr::memchr(b'\n', buf.get(self.scanned..).unwrap_or(&[])).is_none() {
            return self.partial(buf, limits);
        }
        if !self.line_done {
            let Some(lf) = memchr::memchr(b'\n', buf) else {
                return self.partial(buf, limits);
            };
            if lf + 1 > limits.line_limit(0, limits.line_max).0 {
                status_prefix(buf)?;
                return Err(self.too_long(buf, limits));
            }
            status(buf.get(..lf).unwrap_or(&[]), head)?;
            self.line_done = true;
            self.start = lf + 1;
        }
        let total_max = limits.total_max.min(HEAD_MAX);
        let fields_max = limits.fields_max.min(FIELDS_MAX);
        loop {
            while let Some((field, next)) = usual_line(buf, self.start) {
                if next > total_max || next - self.start > limits.field_max {
                    return Err(self.too_long(buf, limits));
                }
                if head.fields.all.len() >= fields_max {
                    return Err(HeadError::TooManyFields);
                }
                head.fields.push(field);
                self.start = next;
            }
            let Some((line, next)) = any_line(buf, self.start, true, true) else {
                return self.partial(buf, limits);
            };
            if next > total_max || next - self.start > limits.field_max {
                return Err(self.too_long(buf, limits));
            }
            match line {
                FieldLine::Field(field) | FieldLine::InvalidName(field) => {
                    if head.fields.all.len() >= fields_max {
                        return Err(HeadError::TooManyFields);
                    }
                    head.fields.push(field);
                }
                FieldLine::End => return Ok(ParseProgress::Done { consumed: next }),
                FieldLine::Bad(span) => return Err(HeadError::InvalidField(span)),
                FieldLine::Ignored => {}
            }
            self.start = next;
        }
    }

    #[cold]
    fn partial(&mut self, buf: &[u8], limits: &HeadLimits) -> Result<ParseProgress, HeadError> {
        let max = if self.line_done { limits.field_max } else { limits.line_max };
        if !self.line_done {
            status_prefix(buf)?;
        }
        if buf.len() > limits.line_limit(self.start, max).0 {
            return Err(self.too_long(buf, limits));
        }
        self.scanned = buf.len();
        Ok(ParseProgress::Partial)
    }

    #[cold]
    fn too_long(&self, buf: &[u8], limits: &HeadLimits) -> HeadError {
        if self.line_done {
            return field_too_long(buf, self.start, limits);
        }
        let (_, line_first) = limits.line_limit(self.start, limits.line_max);
        if line_first { HeadError::LineTooLong } else { HeadError::HeadTooLarge }
    }
}

/// Rejects an HTTP/0.9 or foreign upstream at once.
fn status_prefix(buf: &[u8]) -> Result<(), HeadError> {
    let len = buf.len().min(5);
    if buf.get(..len) == b"HTTP/".get(..len) { Ok(()) } else { Err(HeadError::InvalidStatusLine) }
}

/// Reads a status line without its line end into a head; spans count from the line's start. Fails with
/// [`HeadError::InvalidStatusLine`].
pub fn read_status_line(line: &[u8], head: &mut ResponseHead) -> Result<(), HeadError> {
    status(line, head)
}

fn status(line: &[u8], head: &mut ResponseHead) -> Result<(), HeadError> {
    let bad = HeadError::InvalidStatusLine;
    let digits = line.strip_prefix(b"HTTP/").ok_or(bad)?;
    let dot = digits.iter().position(|b| !b.is_ascii_digit()).ok_or(bad)?;
    let (major, rest) = digits.split_at_checked(dot).ok_or(bad)?;
    let rest = rest.strip_prefix(b".").ok_or(bad)?;
    let space = rest.iter().position(|b| !b.is_ascii_digit()).ok_or(bad)?;
    let (minor, rest) = rest.split_at_checked(space).ok_or(bad)?;
    if !matches!(major, [b'1'..=b'9', ..]) || major.len() > 3 || minor.is_empty() {
        return Err(bad);
    }
    let mut value = 0u32;
    for digit in minor {
        if value > 99 {
            return Err(bad);
        }
        value = value * 10 + u32::from(digit - b'0');
    }
    head.version = if major == b"1" && value == 0 { Version::Http10 } else { Version::Http11 };
    if rest.first() != Some(&b' ') {
        return Err(bad);
    }
    let code = rest.iter().position(|&b| b != b' ').ok_or(bad)?;
    let rest = rest.get(code..).ok_or(bad)?;
    let at = line.len() - rest.len();
    let &[a, b, c, ref tail @ ..] = rest else {
        return Err(bad);
    };
    if !(a.is_ascii_digit() && b.is_ascii_digit() && c.is_ascii_digit()) {
        return Err(bad);
    }
    head.status = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
    // IIS may send 403.1 and similar.
    if !matches!(tail, [] | [b'\r'] | [b' ' | b'.', ..]) {
        return Err(bad);
    }
    let tail = match memchr::memchr(b'\r', tail) {
        None => tail,
        Some(cr) if cr + 1 == tail.len() => tail.get(..cr).unwrap_or(&[]),
        Some(_) => return Err(bad),
    };
    head.status_line = Span::at(at, at + 3 + tail.len());
    let skip = usize::from(tail.first() == Some(&b' '));
    head.reason = Span::at(at + 3 + skip, at + 3 + tail.len());
    Ok(())
}
