//! Spans, methods, versions and heads; reads no bytes.

use crate::fields::Fields;

/// A range of bytes in the buffer of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset behind the last byte.
    pub end: u32,
}

impl Span {
    /// Empty when out of bounds.
    #[inline]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        buf.get(self.start as usize..self.end as usize).unwrap_or(&[])
    }
    /// Tells whether the range has no bytes.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }
    /// Returns the number of bytes.
    #[inline]
    pub fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }
    /// Span of offsets, which fit since heads have at most [`HEAD_MAX`] bytes.
    #[inline]
    pub fn at(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }
}

/// Longest head: offsets have 32 bits.
pub const HEAD_MAX: usize = 1 << 31;

/// nginx's methods; others are [`Method::Other`] and served, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[rustfmt::skip]
#[allow(missing_docs, reason = "the names are those of the methods")]
pub enum Method {
    #[default] Other, Get, Head, Post, Put, Delete, Mkcol, Copy, Move, Options, Propfind, Proppatch, Lock, Unlock,
    Patch, Trace, Connect,
}

impl Method {
    /// Methods are case-sensitive (RFC 9110, 9.1).
    #[inline]
    pub fn of(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"PATCH" => Method::Patch,
            b"COPY" => Method::Copy,
            b"MOVE" => Method::Move,
            b"LOCK" => Method::Lock,
            b"UNLOCK" => Method::Unlock,
            b"MKCOL" => Method::Mkcol,
            b"TRACE" => Method::Trace,
            b"CONNECT" => Method::Connect,
            b"PROPFIND" => Method::Propfind,
            b"PROPPATCH" => Method::Proppatch,
            _ => Method::Other,
        }
    }

    /// Name on the wire; empty for [`Method::Other`].
    pub fn name(self) -> &'static str {
        match self {
            Method::Other => "",
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Mkcol => "MKCOL",
            Method::Copy => "COPY",
            Method::Move => "MOVE",
            Method::Options => "OPTIONS",
            Method::Propfind => "PROPFIND",
            Method::Proppatch => "PROPPATCH",
            Method::Lock => "LOCK",
            Method::Unlock => "UNLOCK",
            Method::Patch => "PATCH",
            Method::Trace => "TRACE",
            Method::Connect => "CONNECT",
        }
    }
}

/// `HTTP/1.1` covers every 1.x above 1.0, as in nginx.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// A request line without a version.
    Http09,
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
    /// HTTP/2.
    Http20,
    /// HTTP/3.
    Http30,
}

impl Version {
    /// As in a request line; empty for HTTP/0.9.
    pub fn name(self) -> &'static str {
        match self {
            Version::Http09 => "",
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http20 => "HTTP/2.0",
            Version::Http30 => "HTTP/3.0",
        }
    }
}

/// Request head: offsets into the parsed buffer.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The method as written.
    pub method_span: Span,
    /// Target as written; see [`RequestHead::request_uri`] for `$request_uri`.
    pub target: Span,
    /// Request line without its line end (`$request`).
    pub line: Span,
    /// The version.
    pub version: Version,
    /// Version as written, with trailing spaces (`$server_protocol`); empty for HTTP/0.9.
    pub protocol: Span,
    /// Scheme and authority (`host[:port]`) of an absolute-form target; `CONNECT host:port` sets `authority` alone.
    pub scheme: Span,
    /// Authority of an absolute-form target or of CONNECT.
    pub authority: Span,
    /// Path as written; empty without one (`http://host`, `CONNECT`), meaning `/`.
    pub path: Span,
    /// Query as written, without `?` and fragment.
    pub args: Span,
    /// The canonical path may differ from `path`: it contains `%`, `//` or a segment starting with a dot, or there is a
    /// `#` or no path. Never false for a path that is not canonical.
    pub complex: bool,
    /// The fields.
    pub fields: Fields,
}

impl RequestHead {
    /// Empties the head for the next request, and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.method = Method::Other;
        self.method_span = Span::default();
        self.target = Span::default();
        self.line = Span::default();
        self.version = Version::Http11;
        self.protocol = Span::default();
        self.scheme = Span::default();
        self.authority = Span::default();
        self.path = Span::default();
        self.args = Span::default();
        self.complex = false;
        self.fields.clear();
    }

    /// `$request_uri`: the target from its path on. Without a path, a `/` elsewhere in the request line (`://`,
    /// `HTTP/`), as in `ngx_http_parse_request_line`.
    pub fn request_uri(&self) -> Span {
        if !self.path.is_empty() {
            Span { start: self.path.start, end: self.target.end }
        } else if self.target.end > self.authority.end {
            Span { start: self.authority.end, end: self.target.end }
        } else if !self.scheme.is_empty() {
            Span { start: self.scheme.end + 1, end: self.scheme.end + 2 }
        } else {
            Span { start: self.protocol.start + 4, end: self.protocol.start + 5 }
        }
    }
}

/// Response head: offsets into the parsed buffer.
#[derive(Clone, Debug, Default)]
pub struct ResponseHead {
    /// The version.
    pub version: Version,
    /// Status code.
    pub status: u16,
    /// Status code to line end (`404 Not Found`), as nginx relays it.
    pub status_line: Span,
    /// Reason phrase; may be empty.
    pub reason: Span,
    /// The fields.
    pub fields: Fields,
}

impl ResponseHead {
    /// End of the status line's and fields' text in the buffer.
    pub fn text_end(&self) -> usize {
        let ends = self.fields.all.iter().map(|field| field.value.end.max(field.name.end));
        ends.fold(self.status_line.end, u32::max) as usize
    }
    /// Empties the head for the next response, and keeps the memory.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = ResponseHead { fields, ..ResponseHead::default() };
    }
}

/// Delimitation of a body (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// No body.
    None,
    /// This many bytes.
    Exact(u64),
    /// Chunked coding.
    Chunked,
    /// Responses only: ends with the connection.
    UntilClose,
}
