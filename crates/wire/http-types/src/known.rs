//! Field names used per request, and their recognition.

macro_rules! names {
    ($($known:ident $text:literal)*) => {
        /// Field names used per request, recognised while the head is parsed.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the names are those of the fields")]
        pub enum Known { #[default] Other, $($known),* }

        impl Known {
            /// Number of names, with [`Known::Other`].
            pub const COUNT: usize = NAMES.len() + 1;

            /// Empty for [`Known::Other`].
            pub fn name(self) -> &'static str {
                match self { Known::Other => "", $(Known::$known => $text),* }
            }
        }

        /// All names, as usually spelled.
        pub const NAMES: &[(&str, Known)] = &[$(($text, Known::$known)),*];
    };
}

#[rustfmt::skip]
names! {
    Host "Host" Connection "Connection" ContentLength "Content-Length" TransferEncoding "Transfer-Encoding"
    KeepAlive "Keep-Alive" Expect "Expect" Upgrade "Upgrade" Te "TE" Trailer "Trailer" UserAgent "User-Agent"
    Referer "Referer" Cookie "Cookie" Authorization "Authorization" ContentType "Content-Type" Range "Range"
    IfRange "If-Range" IfModifiedSince "If-Modified-Since" IfUnmodifiedSince "If-Unmodified-Since" IfMatch "If-Match"
    IfNoneMatch "If-None-Match" AcceptEncoding "Accept-Encoding" Accept "Accept" AcceptLanguage "Accept-Language"
    Via "Via" XForwardedFor "X-Forwarded-For" XRealIp "X-Real-IP" Origin "Origin" Depth "Depth"
    Destination "Destination"
    Overwrite "Overwrite" Date "Date" ProxyAuthorization "Proxy-Authorization" ProxyConnection "Proxy-Connection"
    Server "Server" ContentEncoding "Content-Encoding" ContentRange "Content-Range" LastModified "Last-Modified"
    Etag "ETag" Expires "Expires" CacheControl "Cache-Control" Location "Location" SetCookie "Set-Cookie" Vary "Vary"
    WwwAuthenticate "WWW-Authenticate" AcceptRanges "Accept-Ranges" Age "Age" Refresh "Refresh" Link "Link"
    XAccelRedirect "X-Accel-Redirect" XAccelExpires "X-Accel-Expires" XAccelLimitRate "X-Accel-Limit-Rate"
    XAccelBuffering "X-Accel-Buffering" XAccelCharset "X-Accel-Charset" Status "Status"
    Traceparent "Traceparent" Tracestate "Tracestate"
}

/// A set of known names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownSet(u64);

impl KnownSet {
    /// Makes a set of names.
    pub const fn of(names: &[Known]) -> KnownSet {
        let mut set = KnownSet(0);
        let mut rest = names;
        while let [name, tail @ ..] = rest {
            set.0 |= 1 << *name as u8;
            rest = tail;
        }
        set
    }
    /// Adds a name.
    pub fn insert(&mut self, name: Known) {
        self.0 |= 1 << name as u8;
    }
    /// Tells whether the set has a name.
    #[inline]
    pub const fn has(self, name: Known) -> bool {
        self.0 & (1 << name as u8) != 0
    }
}

/// Configured field names; known ones are found at once.
#[derive(Clone, Debug, Default)]
pub struct NameSet {
    known: KnownSet,
    /// Other names, in lower case.
    others: Vec<Vec<u8>>,
}

impl NameSet {
    /// Adds a name, in any case of letters.
    pub fn insert(&mut self, name: &[u8]) {
        match known_name(name) {
            Known::Other => self.others.push(name.to_ascii_lowercase()),
            name => self.known.insert(name),
        }
    }
    /// Tells whether the set has a name that was recognised before; `name` matters for [`Known::Other`] only.
    #[inline]
    pub fn has(&self, known: Known, name: &[u8]) -> bool {
        match known {
            Known::Other => self.others.iter().any(|other| other.eq_ignore_ascii_case(name)),
            known => self.known.has(known),
        }
    }
    /// Tells whether the set has a name.
    pub fn has_name(&self, name: &[u8]) -> bool {
        self.has(known_name(name), name)
    }
}

impl<'a> FromIterator<&'a [u8]> for NameSet {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(names: I) -> NameSet {
        let mut set = NameSet::default();
        names.into_iter().for_each(|name| set.insert(name));
        set
    }
}

impl Known {
    /// Fields that a request must not repeat (`ngx_http_headers_in`: the unique ones, and `Host`).
    #[inline]
    pub fn is_unique_in_requests(self) -> bool {
        UNIQUE & (1 << self as u8) != 0
    }
}

const UNIQUE: u64 = {
    use Known::*;
    bit(Host)
        | bit(IfModifiedSince)
        | bit(IfUnmodifiedSince)
        | bit(IfMatch)
        | bit(IfNoneMatch)
        | bit(ContentLength)
        | bit(ContentRange)
        | bit(IfRange)
        | bit(TransferEncoding)
        | bit(Expect)
        | bit(Authorization)
        | bit(ProxyAuthorization)
};

const fn bit(known: Known) -> u64 {
    1 << known as u8
}

/// Up to sixteen bytes of a lower-case name, zero-padded, as two words.
pub type Words = (u64, u64);

/// Words of the name of `len` (1 to 16) bytes at the start of `block`. `None` with a control byte, for which setting a
/// bit is not lower case (CR would become `-`).
#[inline(always)]
pub fn name_words(block: u128, len: usize) -> Option<Words> {
    const LOWER: u64 = 0x2020_2020_2020_2020;
    const VISIBLE: u64 = 0x4040_4040_4040_4040;
    let word = |word: u64, keep: u64| {
        let visible = (word | word << 1) & VISIBLE & keep;
        (visible == VISIBLE & keep).then_some((word | LOWER) & keep)
    };
    let low = word(block as u64, u64::MAX >> (64 - 8 * len.clamp(1, 8)))?;
    let high = if len > 8 { word((block >> 64) as u64, u64::MAX >> (128 - 8 * len.clamp(9, 16)))? } else { 0 };
    Some((low, high))
}

const fn text(name: &str) -> Words {
    let bytes = name.as_bytes();
    let mut all = 0u128;
    let mut i = 0;
    while i < bytes.len() {
        #[expect(clippy::indexing_slicing, reason = "runs at compile time")]
        let byte = bytes[i];
        all |= (byte as u128) << (8 * i);
        i += 1;
    }
    (all as u64, (all >> 64) as u64)
}

macro_rules! by_length {
    ($len:expr, $words:expr; $($n:literal: $($text:literal $known:ident),+;)*) => {
        match $len {
            $($n => {
                $({ const TEXT: Words = text($text); if $words == TEXT { return Known::$known; } })+
                Known::Other
            })*
            _ => Known::Other,
        }
    };
}

/// 1 to 16 bytes.
#[inline]
#[rustfmt::skip]
pub fn known_words(len: usize, words: Words) -> Known {
    by_length! { len, words;
        2: "te" Te;
        3: "via" Via, "age" Age;
        4: "host" Host, "date" Date, "etag" Etag, "vary" Vary, "link" Link;
        5: "range" Range, "depth" Depth;
        6: "accept" Accept, "cookie" Cookie, "origin" Origin, "expect" Expect, "server" Server, "status" Status;
        7: "referer" Referer, "upgrade" Upgrade, "expires" Expires, "trailer" Trailer, "refresh" Refresh;
        8: "if-range" IfRange, "if-match" IfMatch, "location" Location;
        9: "x-real-ip" XRealIp, "overwrite" Overwrite;
        10: "user-agent" UserAgent, "connection" Connection, "set-cookie" SetCookie, "keep-alive" KeepAlive,
            "tracestate" Tracestate;
        11: "destination" Destination, "traceparent" Traceparent;
        12: "content-type" ContentType;
        13: "authorization" Authorization, "if-none-match" IfNoneMatch, "cache-control" CacheControl,
            "last-modified" LastModified, "accept-ranges" AcceptRanges, "content-range" ContentRange;
        14: "content-length" ContentLength;
        15: "accept-encoding" AcceptEncoding, "accept-language" AcceptLanguage, "x-forwarded-for" XForwardedFor,
            "x-accel-expires" XAccelExpires, "x-accel-charset" XAccelCharset;
        16: "content-encoding" ContentEncoding, "www-authenticate" WwwAuthenticate, "proxy-connection" ProxyConnection,
            "x-accel-redirect" XAccelRedirect;
    }
}

/// Case-insensitive (RFC 9110, 5.1).
pub fn known_name(name: &[u8]) -> Known {
    let mut block = [0; 16];
    if let Some(start) = block.get_mut(..name.len()) {
        start.copy_from_slice(name);
        return match name_words(u128::from_le_bytes(block), name.len()) {
            Some(words) if !name.is_empty() => known_words(name.len(), words),
            _ => Known::Other,
        };
    }
    let long = |text: &str| name.eq_ignore_ascii_case(text.as_bytes());
    match (name.len(), name.first().map(|b| b | 0x20)) {
        (17, Some(b't')) if long("transfer-encoding") => Known::TransferEncoding,
        (17, Some(b'i')) if long("if-modified-since") => Known::IfModifiedSince,
        (17, Some(b'x')) if long("x-accel-buffering") => Known::XAccelBuffering,
        (18, Some(b'x')) if long("x-accel-limit-rate") => Known::XAccelLimitRate,
        (19, Some(b'i')) if long("if-unmodified-since") => Known::IfUnmodifiedSince,
        (19, Some(b'p')) if long("proxy-authorization") => Known::ProxyAuthorization,
        _ => Known::Other,
    }
}
