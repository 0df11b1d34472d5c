//! HTTP/1.x as a sans-io core, both roles: bytes to heads and bodies and back (RFC 9112, RFC 9110).
//!
//! No socket, no clock, no randomness, no allocation per request once the caller's [`RequestHead`] has grown: heads are tables of
//! offsets into the buffer that the caller read into. Framing is decided here and nowhere else.

#![forbid(unsafe_code)]

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
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[rustfmt::skip]
pub enum Method { #[default] Other, Get, Head, Post, Put, Delete, Mkcol, Copy, Move, Options, Propfind, Proppatch, Lock, Unlock, Patch, Trace, Connect }

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    Http09,
    Http10,
    #[default]
    Http11,
}

/// Header fields that somebody looks up per request; recognised once, while the head is parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[rustfmt::skip]
#[repr(u8)]
pub enum Known {
    #[default] Other, Host, Connection, ContentLength, TransferEncoding, KeepAlive, Expect, Upgrade, Te, Trailer,
    UserAgent, Referer, Cookie, Authorization, ContentType, Range, IfRange, IfModifiedSince, IfUnmodifiedSince, IfMatch,
    IfNoneMatch, AcceptEncoding, Accept, AcceptLanguage, Via, XForwardedFor, XRealIp, Origin, Depth, Destination, Overwrite, Date,
    // response side
    Server, ContentEncoding, ContentRange, LastModified, Etag, Expires, CacheControl, Location, SetCookie, Vary, WwwAuthenticate,
    AcceptRanges, Age, Refresh, Link, XAccelRedirect, XAccelExpires, XAccelLimitRate, XAccelBuffering, XAccelCharset, Status,
}
impl Known {
    pub const COUNT: usize = Known::Status as usize + 1;
}

/// One header field line: `name` as written, `value` without surrounding white space.
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
    pub fn push(&mut self, field: Field) {
        self.all.push(field);
        let slot = &mut self.first[field.known as usize];
        if *slot == 0 {
            *slot = u16::try_from(self.all.len()).unwrap_or(0);
        }
    }
    /// The value span of the first field of this name.
    #[inline]
    pub fn first(&self, known: Known) -> Option<Span> {
        let index = *self.first.get(known as usize)?;
        self.all.get(usize::from(index).checked_sub(1)?).map(|f| f.value)
    }
}

/// A request head: offsets into the buffer it was parsed from.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    pub method: Method,
    /// The method as written.
    pub method_span: Span,
    /// The request target as written (`$request_uri` is derived from it; for the absolute form see `authority`).
    pub target: Span,
    /// The whole request line without its line end (`$request`).
    pub line: Span,
    pub version: Version,
    /// absolute-form only: what stands before `://`, and the authority after it (`host[:port]`). Empty otherwise.
    pub scheme: Span,
    pub authority: Span,
    /// Path as written, without query and fragment. Empty for `http://host` and `*` forms.
    pub path: Span,
    /// Query as written, without `?` and fragment; empty when there is none.
    pub args: Span,
    /// The path holds `%`, `//`, a dot segment, a `#`, `\0` or anything else that makes the canonical path differ from `path`.
    pub complex: bool,
    pub fields: Fields,
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
