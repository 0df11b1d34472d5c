//! The one canonical path: what location matching, access rules, logs, caches and upstreams see.
//!
//! Percent-decoding, dot segments and slashes are resolved here and nowhere else (nginx: `ngx_http_parse_complex_uri`,
//! `ngx_http_parse_unsafe_uri`). The raw form lives on only in `$request_uri`.

/// Why a target has no canonical path: answered with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPath {
    /// `%` without two hexadecimal digits.
    Escape,
    /// A NUL byte, plain or encoded.
    Nul,
    /// `..` above the root.
    AboveRoot,
}

/// Writes the canonical form of a raw path (no query, no fragment) to `out`.
///
/// A decoded `%2f` is a slash and a decoded `%2e` a dot, before dot segments are resolved: what is matched is what is
/// opened. `?` and `#` that were encoded are ordinary bytes.
///
/// # Errors
/// See [`BadPath`]; `out` then holds nothing of use.
pub fn canonical(raw: &[u8], merge_slashes: bool, out: &mut Vec<u8>) -> Result<(), BadPath> {
    out.clear();
    out.reserve(raw.len());
    let mut at = 0;
    while let Some(&c) = raw.get(at) {
        at += 1;
        let c = if c == b'%' {
            let (Some(high), Some(low)) = (raw.get(at).and_then(hex), raw.get(at + 1).and_then(hex)) else {
                return Err(BadPath::Escape);
            };
            at += 2;
            high << 4 | low
        } else {
            c
        };
        match c {
            0 => return Err(BadPath::Nul),
            b'/' => {
                let resolved = close_segment(out)?;
                let doubled = merge_slashes && out.last() == Some(&b'/');
                if !(resolved || doubled) {
                    out.push(b'/');
                }
            }
            _ => out.push(c),
        }
    }
    close_segment(out).map(|_| ())
}

fn hex(c: &u8) -> Option<u8> {
    (*c as char).to_digit(16).map(|d| d as u8)
}

/// Resolves the last segment when it is `.` or `..`. `true` when it was one: then `out` ends with the slash that stood before
/// it, and a slash that follows is that same one.
fn close_segment(out: &mut Vec<u8>) -> Result<bool, BadPath> {
    let start = out.iter().rposition(|c| *c == b'/').map_or(0, |p| p + 1);
    match out.get(start..) {
        Some(b".") if start > 0 => out.truncate(start),
        Some(b"..") if start > 0 => {
            // out[start - 1] is the slash before "..": step over the segment before that.
            let Some(parent) = out.get(..start - 1).and_then(|before| before.iter().rposition(|c| *c == b'/')) else {
                return Err(BadPath::AboveRoot);
            };
            out.truncate(parent + 1);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Bytes that stay as they are in the path of a redirect or an upstream request; the others become `%XX`
/// (nginx: `NGX_ESCAPE_URI`: what RFC 3986 does not allow in a path, and `#`, `%`, `?`).
pub fn escape_uri(path: &[u8], out: &mut Vec<u8>) {
    escape(path, out, |c| never(c) || matches!(c, b'#' | b'%' | b'?'));
}

/// Bytes that no part of a URI holds as they are.
fn never(c: u8) -> bool {
    c <= b' ' || c >= 0x7f || matches!(c, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
}

/// For one value of a query (nginx: `NGX_ESCAPE_ARGS`): also `&`, `+`, `;` and `\`.
pub fn escape_args(text: &[u8], out: &mut Vec<u8>) {
    escape(text, out, |c| never(c) || matches!(c, b'#' | b'%' | b'&' | b'+' | b';' | b'?'));
}

/// For a name within a URL (nginx: `NGX_ESCAPE_URI_COMPONENT`): everything but unreserved bytes.
pub fn escape_component(text: &[u8], out: &mut Vec<u8>) {
    escape(text, out, |c| !(c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_' | b'~')));
}

#[allow(clippy::indexing_slicing, reason = "half a byte is below 16")]
fn escape(text: &[u8], out: &mut Vec<u8>, bad: impl Fn(u8) -> bool) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &c in text {
        if bad(c) {
            out.extend_from_slice(&[b'%', HEX[usize::from(c >> 4)], HEX[usize::from(c & 15)]]);
        } else {
            out.push(c);
        }
    }
}

/// Decodes `%XX` where it is well formed; anything else stays.
pub fn unescape(text: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&c) = text.get(at) {
        if c == b'%'
            && let (Some(high), Some(low)) = (text.get(at + 1).and_then(hex), text.get(at + 2).and_then(hex))
        {
            out.push(high << 4 | low);
            at += 3;
        } else {
            out.push(c);
            at += 1;
        }
    }
}

/// A path from a header (`X-Accel-Redirect`, `Destination`) split off its query and checked for steps above the root
/// (nginx: `ngx_http_parse_unsafe_uri`).
///
/// # Errors
/// When it is empty, starts with `?` or climbs.
pub fn unsafe_uri(text: &[u8]) -> Result<(Vec<u8>, Vec<u8>), BadPath> {
    if text.first().is_none_or(|c| *c == b'?') {
        return Err(BadPath::Escape);
    }
    let mut parts = text.splitn(2, |c| *c == b'?');
    let mut path = Vec::new();
    unescape(parts.next().unwrap_or_default(), &mut path);
    if path.contains(&0) {
        return Err(BadPath::Nul);
    }
    if path.split(|c| *c == b'/').any(|segment| segment == b"..") {
        return Err(BadPath::AboveRoot);
    }
    Ok((path, parts.next().unwrap_or_default().to_vec()))
}

pub use session_engine::names::parse_host as host;

#[cfg(test)]
mod tests {
    use super::*;

    fn path(raw: &str) -> Result<String, BadPath> {
        let mut out = Vec::new();
        canonical(raw.as_bytes(), true, &mut out).map(|()| String::from_utf8_lossy(&out).into_owned())
    }

    #[test]
    fn canonical_paths() {
        for (raw, want) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("//a///b//", "/a/b/"),
            ("/a/./b/.", "/a/b/"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/b/../", "/a/"),
            ("/a/..", "/"),
            ("/.", "/"),
            ("/a/.../b", "/a/.../b"),
            ("/a/..b", "/a/..b"),
            ("/%61%2fb", "/a/b"),
            ("/a%2f%2e%2e/b", "/b"),
            ("/a/%2e%2e%2fb", "/b"),
            ("/a%3fb%23c", "/a?b#c"),
            ("/a\\b", "/a\\b"),
            ("/a/.%2e/b", "/b"),
            ("/%25%32%65", "/%2e"),
            ("/a//../b", "/b"),
        ] {
            assert_eq!(path(raw).as_deref(), Ok(want), "{raw}");
        }
        for (raw, why) in [
            ("/..", BadPath::AboveRoot),
            ("/a/../..", BadPath::AboveRoot),
            ("/%2e%2e/x", BadPath::AboveRoot),
            ("/%00", BadPath::Nul),
            ("/%", BadPath::Escape),
            ("/%4", BadPath::Escape),
            ("/%zz", BadPath::Escape),
        ] {
            assert_eq!(path(raw), Err(why), "{raw}");
        }
        let mut out = Vec::new();
        assert_eq!(canonical(b"//a//../b", false, &mut out), Ok(()));
        assert_eq!(out, b"//a/b");
    }

    /// Property: the result starts with `/`, holds no dot segment and is its own canonical form.
    #[test]
    fn canonical_paths_are_canonical() {
        let letters = [b"/".as_slice(), b".", b"..", b"a", b"%2e", b"%2f", b"//", b"%2E."];
        for seed in 0..letters.len().pow(5) {
            let mut raw = b"/".to_vec();
            let mut n = seed;
            for _ in 0..5 {
                raw.extend_from_slice(letters[n % letters.len()]);
                n /= letters.len();
            }
            let (mut once, mut twice) = (Vec::new(), Vec::new());
            if canonical(&raw, true, &mut once).is_err() {
                continue;
            }
            assert_eq!(once.first(), Some(&b'/'));
            assert!(!once.windows(2).any(|w| w == b"//"), "{raw:?}");
            assert!(!once.split(|c| *c == b'/').any(|s| s == b"." || s == b".."), "{raw:?} {once:?}");
            canonical(&once, true, &mut twice).expect("canonical");
            assert_eq!(once, twice);
        }
    }

    #[test]
    fn hosts() {
        let mut out = Vec::new();
        for (text, want) in [
            ("Example.COM:8080", Some(("example.com", Some(8080)))),
            ("[::1]:80", Some(("[::1]", Some(80)))),
            ("a.", Some(("a", None))),
            ("a..b", None),
            ("a b", None),
            ("a/b", None),
            ("", None),
            (":80", None),
            ("a:", Some(("a", None))),
            ("a:8x", None),
            ("[::1]x", None),
            ("a@b", None),
        ] {
            let got = host(text.as_bytes(), &mut out);
            let name = String::from_utf8_lossy(&out).into_owned();
            assert_eq!(got.map(|port| (name.as_str(), port)), want, "{text}");
        }
    }
}
