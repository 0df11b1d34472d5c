//! The vocabulary of a head: spans, methods, versions and the heads themselves. Nothing here reads bytes.

use crate::fields::Fields;

/// A byte range of the buffer that a head was read into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// The bytes in `buf`; empty when the range is out of bounds.
    #[inline]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        buf.get(self.start as usize..self.end as usize).unwrap_or(&[])
    }
    #[inline]
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }
    #[inline]
    pub fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }
    /// A span from buffer offsets. Heads are at most [`HEAD_MAX`] bytes, so the narrowing loses nothing.
    #[inline]
    pub fn at(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }
}

/// No head is longer, whatever the limits say: offsets are 32 bits wide.
pub const HEAD_MAX: usize = 1 << 31;

/// The methods that nginx has a bit for; a method that it does not know is [`Method::Other`] and is served all the
/// same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[rustfmt::skip]
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

    /// The name on the wire; empty for [`Method::Other`].
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

/// `HTTP/1.1` stands for every 1.x above 1.0: nginx accepts `HTTP/1.2` and treats it as 1.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    Http09,
    Http10,
    #[default]
    Http11,
    /// Requests of HTTP/2 are described by the same head.
    Http20,
}

impl Version {
    /// As a request line has it; HTTP/0.9 has none.
    pub fn name(self) -> &'static str {
        match self {
            Version::Http09 => "",
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http20 => "HTTP/2.0",
        }
    }
}

/// A request head: offsets into the buffer it was parsed from.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    pub method: Method,
    /// The method as written.
    pub method_span: Span,
    /// The request target as written (see [`RequestHead::request_uri`] for `$request_uri`; for the absolute form see
    /// `authority`).
    pub target: Span,
    /// The whole request line without its line end (`$request`).
    pub line: Span,
    pub version: Version,
    /// The version as written, with the spaces that may follow it (`$server_protocol`); empty for HTTP/0.9.
    pub protocol: Span,
    /// absolute-form only: what stands before `://`, and the authority after it (`host[:port]`). Empty otherwise.
    /// `CONNECT host:port` sets `authority` alone.
    pub scheme: Span,
    pub authority: Span,
    /// Path as written, without query and fragment. Empty when the target has none (`http://host`, `CONNECT`): it is
    /// `/` then.
    pub path: Span,
    /// Query as written, without `?` and fragment; empty when there is none.
    pub args: Span,
    /// The canonical path may differ from `path`: it holds `%`, `//` or a segment that starts with a dot, the target
    /// holds a `#`, or there is no path. May be true for a path that turns out to be canonical, never false for one
    /// that is not.
    pub complex: bool,
    pub fields: Fields,
}

impl RequestHead {
    /// Ready for another head; keeps what has been allocated.
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

    /// What nginx calls `$request_uri`: the target from its path on. Where the target has no path it is a `/` that
    /// stands in the request line anyway (in `://` or in `HTTP/`), as in nginx's `ngx_http_parse_request_line`.
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
    /// Where the text of the status line and of the fields ends in the buffer.
    pub fn text_end(&self) -> usize {
        let ends = self.fields.all.iter().map(|field| field.value.end.max(field.name.end));
        ends.fold(self.status_line.end, u32::max) as usize
    }
    /// Ready for another head; keeps what has been allocated.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = ResponseHead { fields, ..ResponseHead::default() };
    }
}

/// How a message's body is delimited (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    None,
    Exact(u64),
    Chunked,
    /// Responses only: until the connection closes.
    UntilClose,
}
