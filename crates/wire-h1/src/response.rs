//! Response heads, for the proxy's upstream side and the load generator (RFC 9112, 4).

use crate::error::HeadError;
use crate::fields::{FIELDS_MAX, Fields, Line, read_line};
use crate::head::{Span, Version};
use crate::request::{HeadLimits, Progress, too_long};

/// A response head: offsets into the buffer it was parsed from.
#[derive(Clone, Debug, Default)]
pub struct ResponseHead {
    pub version: Version,
    pub status: u16,
    /// From the status code to the end of the line (`404 Not Found`), as nginx passes it on.
    pub status_line: Span,
    /// What follows the status code; may be empty.
    pub reason: Span,
    pub fields: Fields,
}

impl ResponseHead {
    /// Ready for another head; keeps what has been allocated.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = ResponseHead {
            fields,
            ..ResponseHead::default()
        };
    }
}

/// A resumable parser of one response head; the counterpart of [`crate::HeadParser`].
#[derive(Clone, Debug, Default)]
pub struct ResponseParser {
    line_done: bool,
    start: usize,
    scanned: usize,
}

impl ResponseParser {
    /// Ready for the next head, for instance after a `103`.
    pub fn reset(&mut self) {
        *self = ResponseParser::default();
    }

    /// The status line has been parsed.
    pub fn line_done(&self) -> bool {
        self.line_done
    }

    /// Goes on where it stopped. `buf` starts at the same byte in every call for one head and only grows.
    /// `limits.ignore_invalid` and `limits.underscores` are not looked at: nginx keeps every upstream field that it can read.
    pub fn parse(
        &mut self,
        buf: &[u8],
        limits: &HeadLimits,
        head: &mut ResponseHead,
    ) -> Result<Progress, HeadError> {
        if self.scanned == 0 {
            head.clear();
        }
        let complete = memchr::memrchr(b'\n', buf.get(self.scanned..).unwrap_or(&[]))
            .map(|at| self.scanned + at + 1);
        if let Some(complete) = complete {
            if !self.line_done {
                let lf = memchr::memchr(b'\n', buf).unwrap_or(complete - 1);
                let (limit, line_first) = limits.line_limit(0, limits.line_max);
                if lf + 1 > limit {
                    status_prefix(buf)?;
                    return Err(if line_first {
                        HeadError::LineTooLong
                    } else {
                        HeadError::HeadTooLarge
                    });
                }
                status(buf.get(..lf).unwrap_or(&[]), head)?;
                self.line_done = true;
                self.start = lf + 1;
            }
            while self.start < complete {
                let (line, next) = read_line(buf, self.start, true, true);
                let (limit, line_first) = limits.line_limit(self.start, limits.field_max);
                if next > limit {
                    return Err(too_long(buf, self.start, limit, line_first));
                }
                match line {
                    Line::Field(field) | Line::InvalidName(field) => {
                        if head.fields.all.len() >= limits.fields_max.min(FIELDS_MAX) {
                            return Err(HeadError::TooManyFields);
                        }
                        head.fields.push(field);
                    }
                    Line::End => return Ok(Progress::Done { consumed: next }),
                    Line::Bad(span) => return Err(HeadError::InvalidField(span)),
                    Line::Ignored => {}
                }
                self.start = next;
            }
        }
        let max = if self.line_done {
            limits.field_max
        } else {
            limits.line_max
        };
        let (limit, line_first) = limits.line_limit(self.start, max);
        if !self.line_done {
            status_prefix(buf)?;
        }
        if buf.len() > limit {
            return Err(match self.line_done {
                true => too_long(buf, self.start, limit, line_first),
                false if line_first => HeadError::LineTooLong,
                false => HeadError::HeadTooLarge,
            });
        }
        self.scanned = buf.len();
        Ok(Progress::Partial)
    }
}

/// Something that does not start like a status line will not become one: an HTTP/0.9 or foreign upstream is noticed at once.
fn status_prefix(buf: &[u8]) -> Result<(), HeadError> {
    let len = buf.len().min(5);
    if buf.get(..len) == b"HTTP/".get(..len) {
        Ok(())
    } else {
        Err(HeadError::InvalidStatusLine)
    }
}

/// Reads a status line without its LF (`ngx_http_parse_status_line`).
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
    head.version = if major == b"1" && value == 0 {
        Version::Http10
    } else {
        Version::Http11
    };
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
    // IIS may send 403.1 and the like.
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
