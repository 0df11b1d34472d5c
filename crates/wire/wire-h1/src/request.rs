//! Request heads: the resumable parser and its limits; `request_line` reads the first line, `fields` the others.

use crate::bytes::{self, METHOD, TARGET_END};
use crate::error::HeadError;
use crate::fields::{FieldLine, any_line, usual_line};
use crate::request_line;
use http_types::{FIELDS_MAX, Field, HEAD_MAX, RequestHead, Span, Version};

/// Limits of a head; lengths include line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Request line (nginx: one of `large_client_header_buffers`).
    pub line_max: usize,
    /// Field line (nginx: one of `large_client_header_buffers`).
    pub field_max: usize,
    /// Whole head with preceding empty lines (nginx: all of the buffers).
    pub total_max: usize,
    /// Number of fields (`max_headers`).
    pub fields_max: usize,
    /// Accepts underscores in names (`underscores_in_headers`).
    pub underscores: bool,
    /// Drops fields with invalid names instead of refusing the head (`ignore_invalid_headers`).
    pub ignore_invalid: bool,
}

impl Default for HeadLimits {
    /// nginx's defaults: `client_header_buffer_size 1k`, `large_client_header_buffers 4 8k`, `max_headers 1000`.
    fn default() -> Self {
        HeadLimits {
            line_max: 8 * 1024,
            field_max: 8 * 1024,
            total_max: 33 * 1024,
            fields_max: 1000,
            underscores: false,
            ignore_invalid: true,
        }
    }
}

impl HeadLimits {
    /// End of the line's allowed range, and the limit that sets it.
    #[inline]
    pub(crate) fn line_limit(&self, start: usize, line_max: usize) -> (usize, bool) {
        let total = self.total_max.min(HEAD_MAX);
        let line = start.saturating_add(line_max);
        (line.min(total), line <= total)
    }
}

/// Result of parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseProgress {
    /// More bytes are needed.
    Partial,
    /// Complete; the body or the next head follows `consumed` bytes.
    Done {
        /// Bytes of the head, with preceding empty lines.
        consumed: usize,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HeadState {
    #[default]
    Empty,
    Line,
    Fields,
    Done,
}

/// Resumable parser of a request head, in linear time even for single bytes. Allocates only to remember ignored lines.
#[derive(Clone, Debug, Default)]
pub struct HeadParser {
    state: HeadState,
    start: usize,
    scanned: usize,
    /// The method of an incomplete request line is complete.
    method_done: bool,
    invalid: Vec<Span>,
}

/// Ignored lines remembered for the log; bounds the lines that a head can cause.
pub(crate) const INVALID_MAX: usize = 64;

impl HeadParser {
    /// Prepares for the next head.
    pub fn reset(&mut self) {
        self.state = HeadState::Empty;
        self.start = 0;
        self.scanned = 0;
        self.method_done = false;
        self.invalid.clear();
    }

    /// Tells whether the request line is parsed and `head` describes the request.
    pub fn line_done(&self) -> bool {
        matches!(self.state, HeadState::Fields | HeadState::Done)
    }

    /// Start of the current (or failed) line.
    pub fn at(&self) -> usize {
        self.start
    }

    /// Tells whether the request line has begun; a connection closed before carried no request.
    pub fn started(&self) -> bool {
        self.state != HeadState::Empty
    }

    /// Ignored field lines, logged as `client sent invalid header line: "..."`.
    pub fn invalid_fields(&self) -> &[Span] {
        &self.invalid
    }

    /// Resumes parsing. `buf` starts at an equal byte in every call for a head and only grows; it may move.
    pub fn parse(
        &mut self,
        buf: &[u8],
        limits: &HeadLimits,
        head: &mut RequestHead,
    ) -> Result<ParseProgress, HeadError> {
        if self.scanned > self.start && memchr::memchr(b'\n', buf.get(self.scanned..).unwrap_or(&[])).is_none() {
            return self.partial(buf, limits, head);
        }
        match self.state {
            HeadState::Fields => {}
            HeadState::Done => {
                return Ok(ParseProgress::Done { consumed: self.start });
            }
            HeadState::Empty | HeadState::Line => {
                if self.state == HeadState::Empty && !self.begin(buf, head) {
                    return if buf.len() > limits.total_max {
                        Err(HeadError::HeadTooLarge)
                    } else {
                        Ok(ParseProgress::Partial)
                    };
                }
                if !self.line(buf, limits, head)? {
                    return self.partial(buf, limits, head);
                }
                if self.state == HeadState::Done {
                    return Ok(ParseProgress::Done { consumed: self.start });
                }
            }
        }
        let total_max = limits.total_max.min(HEAD_MAX);
        let fields_max = limits.fields_max.min(FIELDS_MAX);
        loop {
            while let Some((field, next)) = usual_line(buf, self.start) {
                if next > total_max || next - self.start > limits.field_max {
                    return Err(self.too_long(buf, limits));
                }
                take(field, fields_max, head)?;
                self.start = next;
            }
            let Some((line, next)) = any_line(buf, self.start, limits.underscores, false) else {
                return self.partial(buf, limits, head);
            };
            if next > total_max || next - self.start > limits.field_max {
                return Err(self.too_long(buf, limits));
            }
            match line {
                FieldLine::InvalidName(_) if limits.ignore_invalid => self.ignore(buf, next),
                FieldLine::Field(field) | FieldLine::InvalidName(field) => take(field, fields_max, head)?,
                FieldLine::End => {
                    self.start = next;
                    self.scanned = next;
                    self.state = HeadState::Done;
                    return Ok(ParseProgress::Done { consumed: next });
                }
                FieldLine::Bad(span) => return Err(HeadError::InvalidField(span)),
                FieldLine::Ignored => {}
            }
            self.start = next;
        }
    }

    /// Skips empty lines before the request line (RFC 9112, 2.2). False without further bytes.
    #[inline]
    fn begin(&mut self, buf: &[u8], head: &mut RequestHead) -> bool {
        let rest = buf.get(self.start..).unwrap_or(&[]);
        let Some(skipped) = rest.iter().position(|&b| b != b'\r' && b != b'\n') else {
            self.start = buf.len();
            return false;
        };
        head.clear();
        self.start += skipped;
        self.state = HeadState::Line;
        true
    }

    #[inline]
    fn line(&mut self, buf: &[u8], limits: &HeadLimits, head: &mut RequestHead) -> Result<bool, HeadError> {
        let (limit, _) = limits.line_limit(self.start, limits.line_max);
        if let Some(next) = request_line::usual(buf, self.start, head)
            && next <= limit
        {
            self.start = next;
            self.state = HeadState::Fields;
            return Ok(true);
        }
        self.any_line(buf, limit, limits, head)
    }

    #[inline(never)]
    fn any_line(
        &mut self,
        buf: &[u8],
        limit: usize,
        limits: &HeadLimits,
        head: &mut RequestHead,
    ) -> Result<bool, HeadError> {
        head.clear();
        let from = self.scanned.max(self.start);
        let Some(lf) = memchr::memchr(b'\n', buf.get(from..).unwrap_or(&[])).map(|at| from + at) else {
            return Ok(false);
        };
        if lf + 1 > limit {
            self.line_prefix(buf.get(..limit).unwrap_or(buf), head)?;
            return Err(self.too_long(buf, limits));
        }
        let line = buf.get(self.start..lf).unwrap_or(&[]);
        request_line::any(line.strip_suffix(b"\r").unwrap_or(line), self.start, head)?;
        self.start = lf + 1;
        self.state = if head.version == Version::Http09 { HeadState::Done } else { HeadState::Fields };
        Ok(true)
    }

    #[cold]
    fn ignore(&mut self, buf: &[u8], next: usize) {
        if self.invalid.len() < INVALID_MAX {
            let line = buf.get(self.start..next).unwrap_or(&[]).trim_ascii_end();
            self.invalid.push(Span::at(self.start, self.start + line.len()));
        }
    }

    #[cold]
    fn too_long(&self, buf: &[u8], limits: &HeadLimits) -> HeadError {
        if self.state == HeadState::Line {
            let (_, line_first) = limits.line_limit(self.start, limits.line_max);
            return if line_first { HeadError::LineTooLong } else { HeadError::HeadTooLarge };
        }
        match field_too_long(buf, self.start, limits) {
            // nginx names the line that exhausts its buffers.
            HeadError::HeadTooLarge if self.start < limits.total_max => {
                HeadError::FieldTooLong(Span::at(self.start, limits.total_max.min(buf.len())))
            }
            e => e,
        }
    }

    #[cold]
    fn partial(&mut self, buf: &[u8], limits: &HeadLimits, head: &mut RequestHead) -> Result<ParseProgress, HeadError> {
        let in_line = self.state == HeadState::Line;
        let max = if in_line { limits.line_max } else { limits.field_max };
        let (limit, _) = limits.line_limit(self.start, max);
        if in_line {
            self.line_prefix(buf.get(..limit).unwrap_or(buf), head)?;
        }
        if buf.len() > limit {
            return Err(self.too_long(buf, limits));
        }
        self.scanned = buf.len();
        Ok(ParseProgress::Partial)
    }

    /// Rejects an incomplete request line that no rest can complete: a TLS client on a plain port never sends a line
    /// end. `buf` ends at the line's limit.
    fn line_prefix(&mut self, buf: &[u8], head: &mut RequestHead) -> Result<(), HeadError> {
        let mut at = self.scanned.max(self.start);
        if at > self.start && buf.get(at - 1) == Some(&b'\r') {
            at -= 1;
        }
        let mut failed = false;
        if !self.method_done {
            at += bytes::run(buf.get(at..).unwrap_or(&[]), METHOD);
            match buf.get(at) {
                None => return Ok(()),
                Some(b' ') if at > self.start => self.method_done = true,
                Some(_) => failed = true,
            }
        }
        if !failed {
            let rest = buf.get(at..).unwrap_or(&[]);
            let bad = rest.iter().position(|&b| b != b' ' && bytes::is(b, TARGET_END));
            match bad {
                None => return Ok(()),
                // The line may be about to end.
                Some(n) if n + 1 == rest.len() && rest.last() == Some(&b'\r') => return Ok(()),
                Some(n) => at += n,
            }
        }
        // Reports the leftmost error, as for a complete line.
        request_line::any(buf.get(self.start..=at).unwrap_or(buf), self.start, head)?;
        Err(HeadError::InvalidRequest)
    }
}

#[inline(always)]
fn take(field: Field, fields_max: usize, head: &mut RequestHead) -> Result<(), HeadError> {
    if head.fields.all.len() >= fields_max {
        return Err(HeadError::TooManyFields);
    }
    if field.known.is_unique_in_requests() && head.fields.first(field.known).is_some() {
        return Err(duplicate(field, head));
    }
    head.fields.push(field);
    Ok(())
}

#[cold]
fn duplicate(field: Field, head: &RequestHead) -> HeadError {
    let previous = head.fields.first_field(field.known).copied().unwrap_or_default();
    HeadError::DuplicateField { field, previous }
}

/// Error for a field line beyond a limit.
#[cold]
pub(crate) fn field_too_long(buf: &[u8], start: usize, limits: &HeadLimits) -> HeadError {
    match limits.line_limit(start, limits.field_max) {
        (limit, true) => HeadError::FieldTooLong(Span::at(start, limit.min(buf.len()))),
        (_, false) => HeadError::HeadTooLarge,
    }
}
