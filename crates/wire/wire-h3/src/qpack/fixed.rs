//! The static table (RFC 9204, appendix A).

/// Names and values by index.
pub const TABLE: [(&str, &str); 99] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

/// Length of the longest name in octets.
const NAME_MAX: usize = 32;

/// Indices of the table sorted by the length of the name, and the start of each length in that list.
const BY_LENGTH: ([u8; TABLE.len()], [u8; NAME_MAX + 2]) = by_length();

#[allow(clippy::indexing_slicing, reason = "it runs when this is compiled")]
const fn by_length() -> ([u8; TABLE.len()], [u8; NAME_MAX + 2]) {
    let (mut order, mut starts) = ([0; TABLE.len()], [0; NAME_MAX + 2]);
    let (mut length, mut count) = (0, 0);
    while length <= NAME_MAX {
        starts[length] = count as u8;
        let mut at = 0;
        while at < TABLE.len() {
            if TABLE[at].0.len() == length {
                order[count] = at as u8;
                count += 1;
            }
            at += 1;
        }
        length += 1;
    }
    assert!(count == TABLE.len(), "a name is longer than NAME_MAX");
    starts[NAME_MAX + 1] = count as u8;
    (order, starts)
}

/// Returns the index of the entry with this name and value, and the index of the first entry with this name.
pub fn find_entry(name: &[u8], value: &[u8]) -> (Option<usize>, Option<usize>) {
    let (order, starts) = &BY_LENGTH;
    let start = |length: usize| starts.get(length).map_or(TABLE.len(), |start| usize::from(*start));
    let mut named = None;
    for at in order.get(start(name.len())..start(name.len().saturating_add(1))).unwrap_or_default() {
        let at = usize::from(*at);
        let Some((_, common)) = TABLE.get(at).filter(|(known, _)| known.as_bytes() == name) else { continue };
        if common.as_bytes() == value {
            return (Some(at), Some(at));
        }
        named = named.or(Some(at));
    }
    (None, named)
}

/// Returns name and value of an index.
pub fn entry_at(index: u64) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = TABLE.get(usize::try_from(index).ok()?)?;
    Some((name.as_bytes(), value.as_bytes()))
}
