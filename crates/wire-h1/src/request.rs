//! Request heads: the resumable parser and the request line (RFC 9112, 3).

use crate::bytes::{self, HOST, LITERAL, METHOD, TARGET_END};
use crate::error::HeadError;
use crate::fields::{FIELDS_MAX, Field, Line, any_line, usual_line};
use crate::head::{HEAD_MAX, Method, RequestHead, Span, Version};
use crate::scan;

/// How much of a head is taken. Lengths count the line end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The request line (nginx: one of `large_client_header_buffers`).
    pub line_max: usize,
    /// One field line (the same).
    pub field_max: usize,
    /// The whole head, empty lines before it included (nginx: all of the buffers).
    pub total_max: usize,
    /// `max_headers`.
    pub fields_max: usize,
    /// `underscores_in_headers`
    pub underscores: bool,
    /// `ignore_invalid_headers`
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
    /// Where a line that starts at `start` must have ended, and which limit says so.
    #[inline]
    pub(crate) fn line_limit(&self, start: usize, line_max: usize) -> (usize, bool) {
        let total = self.total_max.min(HEAD_MAX);
        let line = start.saturating_add(line_max);
        (line.min(total), line <= total)
    }
}

/// What a parser has to say about the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Partial,
    /// The head is complete; what follows `consumed` bytes is body or the next head.
    Done {
        consumed: usize,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Empty,
    Line,
    Fields,
    Done,
}

/// A resumable parser of one request head. Remembers where it stopped, so that a client that sends a byte at a time costs linear
/// time. Allocates only to remember ignored field lines.
#[derive(Clone, Debug, Default)]
pub struct HeadParser {
    state: State,
    /// Start of the line being read.
    start: usize,
    /// No LF in `start..scanned`.
    scanned: usize,
    /// The method of an incomplete request line has ended.
    method_done: bool,
    invalid: Vec<Span>,
}

/// Ignored lines that are remembered for the log; more are ignored in silence, so that a head cannot buy log lines in bulk.
pub(crate) const INVALID_MAX: usize = 64;

impl HeadParser {
    /// Ready for the next head.
    pub fn reset(&mut self) {
        self.state = State::Empty;
        self.start = 0;
        self.scanned = 0;
        self.method_done = false;
        self.invalid.clear();
    }

    /// The request line has been parsed: `head` says what was asked, and nginx would log and answer as this request.
    pub fn line_done(&self) -> bool {
        matches!(self.state, State::Fields | State::Done)
    }

    /// A byte of the request line has been seen; before that, a closed connection is no request at all.
    pub fn started(&self) -> bool {
        self.state != State::Empty
    }

    /// Field lines that were ignored because of their names, to be logged as `client sent invalid header line: "..."`.
    pub fn invalid_fields(&self) -> &[Span] {
        &self.invalid
    }

    /// Goes on where it stopped. `buf` starts at the same byte in every call for one head and only grows; it may move in memory.
    pub fn parse(&mut self, buf: &[u8], limits: &HeadLimits, head: &mut RequestHead) -> Result<Progress, HeadError> {
        if self.scanned > self.start && memchr::memchr(b'\n', buf.get(self.scanned..).unwrap_or(&[])).is_none() {
            return self.partial(buf, limits, head);
        }
        match self.state {
            State::Fields => {}
            State::Done => {
                return Ok(Progress::Done { consumed: self.start });
            }
            State::Empty | State::Line => {
                if self.state == State::Empty && !self.begin(buf, head) {
                    return if buf.len() > limits.total_max {
                        Err(HeadError::HeadTooLarge)
                    } else {
                        Ok(Progress::Partial)
                    };
                }
                if !self.line(buf, limits, head)? {
                    return self.partial(buf, limits, head);
                }
                if self.state == State::Done {
                    return Ok(Progress::Done { consumed: self.start });
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
                Line::InvalidName(_) if limits.ignore_invalid => self.ignore(buf, next),
                Line::Field(field) | Line::InvalidName(field) => take(field, fields_max, head)?,
                Line::End => {
                    self.start = next;
                    self.scanned = next;
                    self.state = State::Done;
                    return Ok(Progress::Done { consumed: next });
                }
                Line::Bad(span) => return Err(HeadError::InvalidField(span)),
                Line::Ignored => {}
            }
            self.start = next;
        }
    }

    /// Skips the empty lines before the request line (RFC 9112, 2.2). False when there is nothing else yet.
    #[inline]
    fn begin(&mut self, buf: &[u8], head: &mut RequestHead) -> bool {
        let rest = buf.get(self.start..).unwrap_or(&[]);
        let Some(skipped) = rest.iter().position(|&b| b != b'\r' && b != b'\n') else {
            self.start = buf.len();
            return false;
        };
        head.clear();
        self.start += skipped;
        self.state = State::Line;
        true
    }

    /// Reads the request line. False when its end has not arrived.
    #[inline]
    fn line(&mut self, buf: &[u8], limits: &HeadLimits, head: &mut RequestHead) -> Result<bool, HeadError> {
        let (limit, _) = limits.line_limit(self.start, limits.line_max);
        if let Some(next) = usual_request_line(buf, self.start, head)
            && next <= limit
        {
            self.start = next;
            self.state = State::Fields;
            return Ok(true);
        }
        self.any_line(buf, limit, limits, head)
    }

    /// Any request line, valid or not.
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
        request_line(line.strip_suffix(b"\r").unwrap_or(line), self.start, head)?;
        self.start = lf + 1;
        self.state = if head.version == Version::Http09 { State::Done } else { State::Fields };
        Ok(true)
    }

    /// The field line at `start` has a name that nginx does not take.
    #[cold]
    fn ignore(&mut self, buf: &[u8], next: usize) {
        if self.invalid.len() < INVALID_MAX {
            let line = buf.get(self.start..next).unwrap_or(&[]).trim_ascii_end();
            self.invalid.push(Span::at(self.start, self.start + line.len()));
        }
    }

    /// The line at `start` is beyond a limit: which one it met first.
    #[cold]
    fn too_long(&self, buf: &[u8], limits: &HeadLimits) -> HeadError {
        if self.state == State::Line {
            let (_, line_first) = limits.line_limit(self.start, limits.line_max);
            return if line_first { HeadError::LineTooLong } else { HeadError::HeadTooLarge };
        }
        field_too_long(buf, self.start, limits)
    }

    /// What can be said about a line whose end has not arrived.
    #[cold]
    fn partial(&mut self, buf: &[u8], limits: &HeadLimits, head: &mut RequestHead) -> Result<Progress, HeadError> {
        let in_line = self.state == State::Line;
        let max = if in_line { limits.line_max } else { limits.field_max };
        let (limit, _) = limits.line_limit(self.start, max);
        if in_line {
            self.line_prefix(buf.get(..limit).unwrap_or(buf), head)?;
        }
        if buf.len() > limit {
            return Err(self.too_long(buf, limits));
        }
        self.scanned = buf.len();
        Ok(Progress::Partial)
    }

    /// Looks at the new part of an incomplete request line for bytes that no rest can save: a TLS client on a plain port must be
    /// answered at once, for it will never send a line end. `buf` ends where the line's limit is.
    fn line_prefix(&mut self, buf: &[u8], head: &mut RequestHead) -> Result<(), HeadError> {
        let mut at = self.scanned.max(self.start);
        if at > self.start && buf.get(at - 1) == Some(&b'\r') {
            // The CR that was let through for an LF that may follow.
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
        // The error is the first one from the left, as it would be had the whole line come at once.
        request_line(buf.get(self.start..=at).unwrap_or(buf), self.start, head)?;
        Err(HeadError::InvalidRequest)
    }
}

/// Adds a field, unless there are too many or it is the second of a kind that comes once.
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

/// A field line that starts at `start` is beyond a limit.
#[cold]
pub(crate) fn field_too_long(buf: &[u8], start: usize, limits: &HeadLimits) -> HeadError {
    match limits.line_limit(start, limits.field_max) {
        (limit, true) => HeadError::FieldTooLong(Span::at(start, limit.min(buf.len()))),
        (_, false) => HeadError::HeadTooLarge,
    }
}

/// The request line that nearly every request has: a common method, origin-form
/// with a plain path, `HTTP/1.1` or `HTTP/1.0`, CRLF. Returns the offset
/// after it, `None` for everything else, errors included; that is [`request_line`]'s.
#[inline(always)]
pub(crate) fn usual_request_line(buf: &[u8], start: usize, head: &mut RequestHead) -> Option<usize> {
    let (method, method_len) = match buf.get(start..)?.first_chunk()? {
        b"GET /" => (Method::Get, 3),
        b"HEAD " => (Method::Head, 4),
        b"POST " => (Method::Post, 4),
        b"PUT /" => (Method::Put, 3),
        _ => return None,
    };
    let target = start + method_len + 1;
    if buf.get(target) != Some(&b'/') {
        return None;
    }
    let mut at = target;
    let path_end = loop {
        let &bytes = buf.get(at..)?.first_chunk::<{ scan::WIDTH + 1 }>()?;
        let [first, next @ ..] = bytes;
        let next = u64::from_le_bytes(next);
        let found = scan::not_plain_path(next << 8 | u64::from(first), next);
        if found != 0 {
            break at + scan::index(found);
        }
        at += scan::WIDTH;
    };
    let mut end = path_end;
    head.args = Span::default();
    if buf.get(end) == Some(&b'?') {
        end = scan::first(buf, end + 1, scan::args_end)?;
        head.args = Span::at(path_end + 1, end);
    }
    let rest = buf.get(end..)?.first_chunk::<11>()?;
    head.version = match rest {
        b" HTTP/1.1\r\n" => Version::Http11,
        b" HTTP/1.0\r\n" => Version::Http10,
        _ => return None,
    };
    head.method = method;
    head.method_span = Span::at(start, start + method_len);
    head.target = Span::at(target, end);
    head.line = Span::at(start, end + 9);
    head.protocol = Span::at(end + 1, end + 9);
    head.path = Span::at(target, path_end);
    head.complex = false;
    Some(end + 11)
}

/// What [`usual_request_line`] is checked against.
pub(crate) fn reference_line(line: &[u8], base: usize, head: &mut RequestHead) -> Result<(), HeadError> {
    request_line(line, base, head)
}

/// Reads a request line that stands at offset `base` of the buffer, without its line end. The first fault from the left is the one
/// reported (`ngx_http_parse_request_line`).
fn request_line(line: &[u8], base: usize, head: &mut RequestHead) -> Result<(), HeadError> {
    let span = |from: usize, to: usize| Span::at(base + from, base + to);
    let method_len = bytes::run(line, METHOD);
    if method_len == 0 || line.get(method_len) != Some(&b' ') {
        return Err(HeadError::InvalidMethod);
    }
    head.line = span(0, line.len());
    head.method_span = span(0, method_len);
    head.method = Method::of(line.get(..method_len).unwrap_or(&[]));
    let start = skip_spaces(line, method_len);
    let first = line.get(start).copied().unwrap_or(b'\r');
    let end = if first == b'/' && head.method != Method::Connect {
        origin(line, start, base, head)?
    } else if head.method == Method::Connect {
        let end = authority(line, start)?;
        if line.get(end) != Some(&b' ') || !has_port(line.get(start..end).unwrap_or(&[])) {
            return Err(HeadError::InvalidRequest);
        }
        head.authority = span(start, end);
        head.complex = true;
        end
    } else if first.is_ascii_alphabetic() {
        absolute(line, start, base, head)?
    } else {
        return Err(HeadError::InvalidRequest);
    };
    head.target = span(start, end);
    version(line, end, base, head)?;
    if head.scheme.start < head.scheme.end && head.authority.is_empty() {
        return Err(HeadError::InvalidHost);
    }
    Ok(())
}

fn skip_spaces(line: &[u8], mut at: usize) -> usize {
    while line.get(at) == Some(&b' ') {
        at += 1;
    }
    at
}

/// Path and query from `start` on; returns where the target ends.
fn origin(line: &[u8], start: usize, base: usize, head: &mut RequestHead) -> Result<usize, HeadError> {
    let mut at = start;
    let mut complex = false;
    let mut previous = 0;
    // The path: up to a query, a fragment or the end.
    let stop = loop {
        let Some(&b) = line.get(at) else { break b' ' };
        match b {
            b'?' | b'#' => break b,
            b'%' => complex = true,
            b'/' | b'.' if previous == b'/' => complex = true,
            _ if bytes::is(b, TARGET_END) => break b,
            _ => {}
        }
        previous = b;
        at += 1;
    };
    head.path = Span::at(base + start, base + at);
    complex |= at == start;
    let mut end = at;
    if stop == b'?' {
        end = target_end(line, at + 1);
        let args = line.get(at + 1..end).unwrap_or(&[]);
        let args_len = memchr::memchr(b'#', args).unwrap_or(args.len());
        complex |= args_len < args.len();
        head.args = Span::at(base + at + 1, base + at + 1 + args_len);
    } else if stop == b'#' {
        end = target_end(line, at + 1);
        complex = true;
    }
    head.complex = complex;
    match line.get(end) {
        None | Some(b' ') => Ok(end),
        Some(_) => Err(HeadError::InvalidRequest),
    }
}

fn target_end(line: &[u8], from: usize) -> usize {
    let rest = line.get(from..).unwrap_or(&[]);
    rest.iter().position(|&b| bytes::is(b, TARGET_END)).map_or(line.len(), |n| from + n)
}

/// absolute-form (RFC 9112, 3.2.2).
fn absolute(line: &[u8], start: usize, base: usize, head: &mut RequestHead) -> Result<usize, HeadError> {
    let rest = line.get(start..).unwrap_or(&[]);
    let is_scheme = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    let scheme_len = rest.iter().position(|b| !is_scheme(b)).unwrap_or(rest.len());
    if !rest.get(scheme_len..).unwrap_or(&[]).starts_with(b"://") {
        return Err(HeadError::InvalidRequest);
    }
    let host = start + scheme_len + 3;
    let end = authority(line, host)?;
    head.scheme = Span::at(base + start, base + start + scheme_len);
    head.authority = Span::at(base + host, base + end);
    match line.get(end) {
        Some(b'/' | b'?') => origin(line, end, base, head),
        Some(b' ') => {
            head.complex = true;
            Ok(end)
        }
        _ => Err(HeadError::InvalidRequest),
    }
}

/// `host[:port]` from `start` on; returns where it ends. Only its bytes are looked at here: whether it is a host, the caller decides.
fn authority(line: &[u8], start: usize) -> Result<usize, HeadError> {
    let rest = line.get(start..).unwrap_or(&[]);
    let mut len = match rest.first() {
        Some(b'[') => {
            let inner = bytes::run(rest.get(1..).unwrap_or(&[]), LITERAL);
            if rest.get(1 + inner) != Some(&b']') {
                return Err(HeadError::InvalidRequest);
            }
            inner + 2
        }
        _ => bytes::run(rest, HOST),
    };
    if rest.get(len) == Some(&b':') {
        let port = rest.get(len + 1..).unwrap_or(&[]);
        len += 1 + port.iter().position(|b| !b.is_ascii_digit()).unwrap_or(port.len());
    }
    Ok(start + len)
}

/// `CONNECT` names its port (RFC 9112, 3.2.3).
fn has_port(authority: &[u8]) -> bool {
    let digits = authority.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    digits > 0 && authority.iter().rev().nth(digits) == Some(&b':')
}

/// The version and what may follow it (RFC 9112, 2.3). No version is HTTP/0.9.
fn version(line: &[u8], target_end: usize, base: usize, head: &mut RequestHead) -> Result<(), HeadError> {
    let at = skip_spaces(line, target_end);
    let rest = line.get(at..).unwrap_or(&[]);
    head.protocol = Span::at(base + at, base + line.len());
    match rest {
        b"HTTP/1.1" => head.version = Version::Http11,
        b"HTTP/1.0" => head.version = Version::Http10,
        [] => {
            head.version = Version::Http09;
            if head.method != Method::Get {
                return Err(HeadError::InvalidMethodHttp09);
            }
        }
        _ => head.version = odd_version(rest)?,
    }
    Ok(())
}

#[cold]
fn odd_version(rest: &[u8]) -> Result<Version, HeadError> {
    let digits = rest.strip_prefix(b"HTTP/").ok_or(HeadError::InvalidRequest)?;
    let minor = match digits {
        [b'1', b'.', minor @ ..] => minor,
        [b'2'..=b'9', ..] | [b'1', b'0'..=b'9', ..] => return Err(HeadError::InvalidVersion),
        _ => return Err(HeadError::InvalidRequest),
    };
    let len = minor.iter().position(|b| !b.is_ascii_digit()).unwrap_or(minor.len());
    let (number, rest) = minor.split_at_checked(len).ok_or(HeadError::InvalidRequest)?;
    // nginx stops adding digits once the number has three of them.
    let mut value = 0u32;
    for digit in number {
        if value > 99 {
            return Err(HeadError::InvalidRequest);
        }
        value = value * 10 + u32::from(digit - b'0');
    }
    if number.is_empty() || rest.iter().any(|&b| b != b' ') {
        return Err(HeadError::InvalidRequest);
    }
    Ok(if value == 0 { Version::Http10 } else { Version::Http11 })
}
