//! Field names that somebody looks up per request, and how they are recognised.

/// Header fields that somebody looks up per request; recognised once, while the head is parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[rustfmt::skip]
#[repr(u8)]
pub enum Known {
    #[default] Other, Host, Connection, ContentLength, TransferEncoding, KeepAlive, Expect, Upgrade, Te, Trailer,
    UserAgent, Referer, Cookie, Authorization, ContentType, Range, IfRange, IfModifiedSince, IfUnmodifiedSince, IfMatch,
    IfNoneMatch, AcceptEncoding, Accept, AcceptLanguage, Via, XForwardedFor, XRealIp, Origin, Depth, Destination, Overwrite, Date,
    ProxyAuthorization, ProxyConnection,
    // response side
    Server, ContentEncoding, ContentRange, LastModified, Etag, Expires, CacheControl, Location, SetCookie, Vary, WwwAuthenticate,
    AcceptRanges, Age, Refresh, Link, XAccelRedirect, XAccelExpires, XAccelLimitRate, XAccelBuffering, XAccelCharset, Status,
}

impl Known {
    pub const COUNT: usize = Known::Status as usize + 1;

    /// A request with two fields of this name is refused (`ngx_http_headers_in`, the unique ones, and `Host`).
    #[inline]
    pub fn is_unique_in_requests(self) -> bool {
        UNIQUE & (1 << self as u8) != 0
    }

    /// The name in its usual spelling; empty for [`Known::Other`].
    pub fn name(self) -> &'static str {
        NAMES
            .iter()
            .find(|(_, known)| *known == self)
            .map_or("", |(name, _)| name)
    }
}

const UNIQUE: u64 = unique();

const fn unique() -> u64 {
    use Known::*;
    #[rustfmt::skip]
    let list = [
        Host, IfModifiedSince, IfUnmodifiedSince, IfMatch, IfNoneMatch, ContentLength, ContentRange, IfRange, TransferEncoding,
        Expect, Authorization, ProxyAuthorization,
    ];
    let mut bits = 0;
    let mut i = 0;
    while i < list.len() {
        #[expect(
            clippy::indexing_slicing,
            reason = "const loop over the list's own length"
        )]
        let known = list[i];
        bits |= 1 << known as u8;
        i += 1;
    }
    bits
}

/// Every known name; [`known`] is tested against this table.
#[rustfmt::skip]
pub(crate) const NAMES: [(&str, Known); Known::COUNT - 1] = [
    ("Host", Known::Host), ("Connection", Known::Connection), ("Content-Length", Known::ContentLength),
    ("Transfer-Encoding", Known::TransferEncoding), ("Keep-Alive", Known::KeepAlive), ("Expect", Known::Expect),
    ("Upgrade", Known::Upgrade), ("TE", Known::Te), ("Trailer", Known::Trailer), ("User-Agent", Known::UserAgent),
    ("Referer", Known::Referer), ("Cookie", Known::Cookie), ("Authorization", Known::Authorization),
    ("Content-Type", Known::ContentType), ("Range", Known::Range), ("If-Range", Known::IfRange),
    ("If-Modified-Since", Known::IfModifiedSince), ("If-Unmodified-Since", Known::IfUnmodifiedSince),
    ("If-Match", Known::IfMatch), ("If-None-Match", Known::IfNoneMatch), ("Accept-Encoding", Known::AcceptEncoding),
    ("Accept", Known::Accept), ("Accept-Language", Known::AcceptLanguage), ("Via", Known::Via),
    ("X-Forwarded-For", Known::XForwardedFor), ("X-Real-IP", Known::XRealIp), ("Origin", Known::Origin), ("Depth", Known::Depth),
    ("Destination", Known::Destination), ("Overwrite", Known::Overwrite), ("Date", Known::Date),
    ("Proxy-Authorization", Known::ProxyAuthorization), ("Proxy-Connection", Known::ProxyConnection),
    ("Server", Known::Server), ("Content-Encoding", Known::ContentEncoding), ("Content-Range", Known::ContentRange),
    ("Last-Modified", Known::LastModified), ("ETag", Known::Etag), ("Expires", Known::Expires),
    ("Cache-Control", Known::CacheControl), ("Location", Known::Location), ("Set-Cookie", Known::SetCookie),
    ("Vary", Known::Vary), ("WWW-Authenticate", Known::WwwAuthenticate), ("Accept-Ranges", Known::AcceptRanges),
    ("Age", Known::Age), ("Refresh", Known::Refresh), ("Link", Known::Link), ("X-Accel-Redirect", Known::XAccelRedirect),
    ("X-Accel-Expires", Known::XAccelExpires), ("X-Accel-Limit-Rate", Known::XAccelLimitRate),
    ("X-Accel-Buffering", Known::XAccelBuffering), ("X-Accel-Charset", Known::XAccelCharset), ("Status", Known::Status),
];

/// Which known field is this? Case-insensitive (RFC 9110, 5.1).
pub fn known(name: &[u8]) -> Known {
    let Some(first) = name.first() else {
        return Known::Other;
    };
    let one = |text: &str, known| {
        if name.eq_ignore_ascii_case(text.as_bytes()) {
            known
        } else {
            Known::Other
        }
    };
    let two = |a: &str, ka, b: &str, kb| match one(a, ka) {
        Known::Other => one(b, kb),
        found => found,
    };
    match (name.len(), first | 0x20) {
        (2, b't') => one("te", Known::Te),
        (3, b'v') => one("via", Known::Via),
        (3, b'a') => one("age", Known::Age),
        (4, b'h') => one("host", Known::Host),
        (4, b'd') => one("date", Known::Date),
        (4, b'e') => one("etag", Known::Etag),
        (4, b'v') => one("vary", Known::Vary),
        (4, b'l') => one("link", Known::Link),
        (5, b'r') => one("range", Known::Range),
        (5, b'd') => one("depth", Known::Depth),
        (6, b'a') => one("accept", Known::Accept),
        (6, b'c') => one("cookie", Known::Cookie),
        (6, b'o') => one("origin", Known::Origin),
        (6, b'e') => one("expect", Known::Expect),
        (6, b's') => two("server", Known::Server, "status", Known::Status),
        (7, b'r') => two("referer", Known::Referer, "refresh", Known::Refresh),
        (7, b'u') => one("upgrade", Known::Upgrade),
        (7, b't') => one("trailer", Known::Trailer),
        (7, b'e') => one("expires", Known::Expires),
        (8, b'i') => two("if-range", Known::IfRange, "if-match", Known::IfMatch),
        (8, b'l') => one("location", Known::Location),
        (9, b'x') => one("x-real-ip", Known::XRealIp),
        (9, b'o') => one("overwrite", Known::Overwrite),
        (10, b'u') => one("user-agent", Known::UserAgent),
        (10, b'c') => one("connection", Known::Connection),
        (10, b'k') => one("keep-alive", Known::KeepAlive),
        (10, b's') => one("set-cookie", Known::SetCookie),
        (11, b'd') => one("destination", Known::Destination),
        (12, b'c') => one("content-type", Known::ContentType),
        (13, b'a') => two(
            "authorization",
            Known::Authorization,
            "accept-ranges",
            Known::AcceptRanges,
        ),
        (13, b'i') => one("if-none-match", Known::IfNoneMatch),
        (13, b'c') => two(
            "cache-control",
            Known::CacheControl,
            "content-range",
            Known::ContentRange,
        ),
        (13, b'l') => one("last-modified", Known::LastModified),
        (14, b'c') => one("content-length", Known::ContentLength),
        (15, b'a') => two(
            "accept-encoding",
            Known::AcceptEncoding,
            "accept-language",
            Known::AcceptLanguage,
        ),
        (15, b'x') => match two(
            "x-forwarded-for",
            Known::XForwardedFor,
            "x-accel-expires",
            Known::XAccelExpires,
        ) {
            Known::Other => one("x-accel-charset", Known::XAccelCharset),
            found => found,
        },
        (16, b'c') => one("content-encoding", Known::ContentEncoding),
        (16, b'w') => one("www-authenticate", Known::WwwAuthenticate),
        (16, b'x') => one("x-accel-redirect", Known::XAccelRedirect),
        (16, b'p') => one("proxy-connection", Known::ProxyConnection),
        (17, b't') => one("transfer-encoding", Known::TransferEncoding),
        (17, b'i') => one("if-modified-since", Known::IfModifiedSince),
        (17, b'x') => one("x-accel-buffering", Known::XAccelBuffering),
        (18, b'x') => one("x-accel-limit-rate", Known::XAccelLimitRate),
        (19, b'i') => one("if-unmodified-since", Known::IfUnmodifiedSince),
        (19, b'p') => one("proxy-authorization", Known::ProxyAuthorization),
        _ => Known::Other,
    }
}
