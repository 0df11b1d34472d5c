//! Canonical paths, for matching, access rules, logs, caches and upstreams. Decoding, dot segments and slashes are
//! resolved only here (nginx: `ngx_http_parse_complex_uri`, `ngx_http_parse_unsafe_uri`).
//! Only this file constructs [`CanonicalPath`] and [`FilePath`], from which locations are matched and files opened.

use http_types::RequestHead;
use std::ops::Deref;
use variables::template::Part;

/// Answered with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPath {
    /// `%` without two hexadecimal digits.
    Escape,
    /// NUL, or `%00`.
    Nul,
    /// `..` above the root.
    AboveRoot,
}

/// Decoded path without dot segments and NUL; empty for a target without a path. A configuration may omit the leading
/// slash (`rewrite ^/(.*) $1`), as in nginx.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CanonicalPath(Vec<u8>);

impl Deref for CanonicalPath {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl CanonicalPath {
    /// Sets the path of a request head, reusing the buffer; on error it holds the valid part.
    pub fn read(&mut self, head: &RequestHead, buf: &[u8], merge_slashes: bool) -> Result<(), BadPath> {
        let raw = head.path;
        if head.complex {
            return write_canonical(if raw.is_empty() { b"/" } else { raw.of(buf) }, merge_slashes, &mut self.0);
        }
        // The head's parser found no escape, dot segment or doubled slash.
        self.0.clear();
        self.0.extend_from_slice(raw.of(buf));
        Ok(())
    }
    /// Parses an escaped path without a query.
    pub fn escaped(raw: &[u8], merge_slashes: bool) -> Result<CanonicalPath, BadPath> {
        let mut out = Vec::new();
        write_canonical(raw, merge_slashes, &mut out)?;
        Ok(CanonicalPath(out))
    }
    /// Takes a path from the configuration, a file or a server: resolves dot segments, decodes nothing and keeps
    /// doubled slashes, as nginx.
    pub fn made(path: Vec<u8>) -> Result<CanonicalPath, BadPath> {
        if path.contains(&0) {
            return Err(BadPath::Nul);
        }
        if !path.split(|c| *c == b'/').any(is_dots) {
            return Ok(CanonicalPath(path));
        }
        let mut kept: Vec<&[u8]> = Vec::new();
        // The empty first segment of an absolute path is not a parent.
        let floor = usize::from(path.starts_with(b"/"));
        let mut segments = path.split(|c| *c == b'/').peekable();
        while let Some(segment) = segments.next() {
            match segment {
                b"." => {}
                b".." if kept.len() > floor => _ = kept.pop(),
                b".." => return Err(BadPath::AboveRoot),
                name => kept.push(name),
            }
            if is_dots(segment) && segments.peek().is_none() {
                kept.push(b"");
            }
        }
        Ok(CanonicalPath(kept.join(&b'/')))
    }
    /// [`CanonicalPath::made`] for configured strings.
    pub fn configured(path: &[u8]) -> Result<CanonicalPath, conf_schema::Problem> {
        CanonicalPath::made(path.to_vec()).map_err(|_| {
            conf_schema::Problem::says(format!("\"{}\" leads above the root", String::from_utf8_lossy(path)))
        })
    }
    /// Resolves a name or relative path in this folder.
    pub fn join(&self, name: &[u8]) -> Result<CanonicalPath, BadPath> {
        CanonicalPath::made([&self.0, name].concat())
    }
    /// Removes the path and keeps the buffer.
    pub fn clear(&mut self) {
        self.0.clear();
    }
    /// Case-insensitive: Apache's per-folder files.
    pub fn has_ht_name(&self) -> bool {
        self.0.split(|c| *c == b'/').any(is_ht_name)
    }
}

fn is_dots(segment: &[u8]) -> bool {
    matches!(segment, b"." | b"..")
}

/// Case-insensitive, like some file systems.
pub fn is_ht_name(name: &[u8]) -> bool {
    name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b".ht"))
}

/// A file system path below the folder of a location's `root` or `alias`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePath(Vec<u8>);

impl Deref for FilePath {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl FilePath {
    /// Path in a folder; the slash between is part of either. `path` may be any string; resolves dot segments. Fails
    /// with [`BadPath::AboveRoot`] outside of the folder, or when extending its name.
    pub fn below(folder: Vec<u8>, path: &[u8]) -> Result<FilePath, BadPath> {
        FilePath::of(folder, &CanonicalPath::made(path.to_vec())?)
    }
    /// Path of a canonical path in a folder; the slash between must be part of either, otherwise fails with
    /// [`BadPath::AboveRoot`].
    #[inline]
    pub fn of(mut folder: Vec<u8>, path: &CanonicalPath) -> Result<FilePath, BadPath> {
        if !matches!(path.first(), None | Some(b'/')) && !folder.ends_with(b"/") {
            return Err(BadPath::AboveRoot);
        }
        folder.extend_from_slice(path);
        Ok(FilePath(folder))
    }
    /// Appends the path after its first `named` bytes, possibly within a segment. Fails with [`BadPath::AboveRoot`] on
    /// a resulting `..` segment (`/i../x` in `location /i` with `alias /data/`).
    pub fn aliased(mut alias: Vec<u8>, path: &CanonicalPath, named: usize) -> Result<FilePath, BadPath> {
        let rest = path.get(named..).unwrap_or_default();
        let start = alias.iter().rposition(|c| *c == b'/').map_or(0, |slash| slash + 1);
        let own = alias.get(start..) == Some(b"..");
        alias.extend_from_slice(rest);
        let meeting = alias.get(start..).and_then(|text| text.split(|c| *c == b'/').next());
        if meeting == Some(b"..") && !own {
            return Err(BadPath::AboveRoot);
        }
        Ok(FilePath(alias))
    }
    /// Takes an evaluated template (`alias` with a regular expression); fails as [`only_own_dots`].
    pub fn configured<S>(template: &variables::Template<S>, text: Vec<u8>) -> Result<FilePath, BadPath> {
        only_own_dots(template, &text)?;
        Ok(FilePath(text))
    }
    /// Appends an extension (`.gz`) or the folder's slash.
    #[must_use]
    pub fn with_extension(mut self, extension: &'static str) -> FilePath {
        self.0.extend_from_slice(extension.as_bytes());
        self
    }
    /// Resolves a name or relative path in this folder (without a trailing slash).
    pub fn inside(&self, name: &[u8]) -> Result<FilePath, BadPath> {
        let mut folder = self.0.clone();
        folder.push(b'/');
        FilePath::below(folder, name)
    }
    /// Appends a name to the path, without a slash in between; fails as [`FilePath::below`].
    pub fn join(&self, name: &[u8]) -> Result<FilePath, BadPath> {
        FilePath::below(self.0.clone(), name)
    }
    /// Returns the path without its last `rest` bytes and without a slash at the end; `None` if the path is shorter.
    pub fn before(&self, rest: usize) -> Option<FilePath> {
        let folder = self.0.len().checked_sub(rest).and_then(|at| self.0.get(..at))?;
        Some(FilePath(folder.strip_suffix(b"/").unwrap_or(folder).to_vec()))
    }
    /// Tells whether a path, once its dot segments are resolved, is this folder or is below it.
    pub fn holds(&self, path: &[u8]) -> bool {
        let Ok(path) = CanonicalPath::made(path.to_vec()) else { return false };
        path.strip_prefix(self.0.strip_suffix(b"/").unwrap_or(&self.0))
            .is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    }
    /// Returns the path without a slash at its end.
    #[must_use]
    pub fn without_slash(&self) -> FilePath {
        FilePath(self.0.strip_suffix(b"/").unwrap_or(&self.0).to_vec())
    }
    /// Returns the path's bytes, for a system call or for use of the buffer.
    #[inline]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Rejects `..` segments from variables in a file system path (`root /srv/$arg_site`); allows literal ones.
pub fn only_own_dots<S>(template: &variables::Template<S>, text: &[u8]) -> Result<(), BadPath> {
    if text.contains(&0) {
        return Err(BadPath::Nul);
    }
    let count = |text: &[u8]| text.split(|c| *c == b'/').filter(|segment| *segment == b"..").count();
    let found = count(text);
    if found == 0 {
        return Ok(());
    }
    let parts = template.parts().iter().map(|part| match part {
        Part::Literal(text) => &text[..],
        _ => b"x",
    });
    if found > count(&parts.collect::<Vec<_>>().concat()) { Err(BadPath::AboveRoot) } else { Ok(()) }
}

/// Writes the canonical form of a raw path to `out`, undefined on error. Decodes `%2f` and `%2e` before dot segments:
/// the matched path is the opened one. Encoded `?` and `#` are ordinary bytes.
pub fn write_canonical(raw: &[u8], merge_slashes: bool, out: &mut Vec<u8>) -> Result<(), BadPath> {
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

/// Resolves a final dot segment; `true` if there was one. `out` then ends with the preceding slash.
fn close_segment(out: &mut Vec<u8>) -> Result<bool, BadPath> {
    let start = out.iter().rposition(|c| *c == b'/').map_or(0, |p| p + 1);
    match out.get(start..) {
        Some(b".") if start > 0 => out.truncate(start),
        Some(b"..") if start > 0 => {
            // out[start - 1] is the slash before "..": removes the segment before it.
            let Some(parent) = out.get(..start - 1).and_then(|before| before.iter().rposition(|c| *c == b'/')) else {
                return Err(BadPath::AboveRoot);
            };
            out.truncate(parent + 1);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Percent-encodes a path (nginx: `NGX_ESCAPE_URI`): bytes invalid by RFC 3986, and `#`, `%`, `?`.
pub fn escape_uri(path: &[u8], out: &mut Vec<u8>) {
    escape(path, out, |c| never(c) || matches!(c, b'#' | b'%' | b'?'));
}

fn never(c: u8) -> bool {
    c <= b' ' || c >= 0x7f || matches!(c, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
}

/// Percent-encodes a query value (nginx: `NGX_ESCAPE_ARGS`): [`escape_uri`], `&`, `+` and `;`.
pub fn escape_args(text: &[u8], out: &mut Vec<u8>) {
    escape(text, out, |c| never(c) || matches!(c, b'#' | b'%' | b'&' | b'+' | b';' | b'?'));
}

/// Percent-encodes a component of a URL (nginx: `NGX_ESCAPE_URI_COMPONENT`): all but unreserved bytes.
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

/// Decodes well-formed `%XX`; keeps all other bytes.
pub fn unescape_path(text: &[u8], out: &mut Vec<u8>) {
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

/// Splits the query off a path from a header (`X-Accel-Redirect`, `Destination`; nginx: `ngx_http_parse_unsafe_uri`).
/// Fails on an empty path, a leading `?`, or a path above the root.
pub fn unsafe_uri(text: &[u8]) -> Result<(CanonicalPath, Vec<u8>), BadPath> {
    if text.first().is_none_or(|c| *c == b'?') {
        return Err(BadPath::Escape);
    }
    let mut parts = text.splitn(2, |c| *c == b'?');
    let mut path = Vec::new();
    unescape_path(parts.next().unwrap_or_default(), &mut path);
    if path.contains(&0) {
        return Err(BadPath::Nul);
    }
    if path.split(|c| *c == b'/').any(|segment| segment == b"..") {
        return Err(BadPath::AboveRoot);
    }
    Ok((CanonicalPath::made(path)?, parts.next().unwrap_or_default().to_vec()))
}

pub use variables::names::parse_host as host;

/// Views bytes as a path of the file system.
pub fn bytes_path(bytes: &[u8]) -> &std::path::Path {
    use std::os::unix::ffi::OsStrExt;
    std::path::Path::new(std::ffi::OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(raw: &str) -> Result<String, BadPath> {
        let mut out = Vec::new();
        write_canonical(raw.as_bytes(), true, &mut out).map(|()| String::from_utf8_lossy(&out).into_owned())
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
        assert_eq!(write_canonical(b"//a//../b", false, &mut out), Ok(()));
        assert_eq!(out, b"//a/b");
    }

    #[test]
    fn made_paths() {
        let made =
            |path: &str| CanonicalPath::made(path.into()).map(|path| String::from_utf8_lossy(&path).into_owned());
        for (path, want) in [
            ("/a/b", "/a/b"),
            ("//a//b", "//a//b"),
            ("/a/../b", "/b"),
            ("/a/..", "/"),
            ("/a/.", "/a/"),
            ("/./a/./b/..", "/a/"),
            ("/%2e%2e/a", "/%2e%2e/a"),
            ("a/../b", "b"),
            ("", ""),
        ] {
            assert_eq!(made(path).as_deref(), Ok(want), "{path}");
        }
        for path in ["/..", "/a/../../b", "..", "../a", "a/../../b"] {
            assert_eq!(made(path), Err(BadPath::AboveRoot), "{path}");
        }
        assert_eq!(made("/a\0b"), Err(BadPath::Nul));
    }

    #[test]
    fn files_stay_below_their_folder() {
        let below =
            |folder: &str, path: &str| FilePath::below(folder.into(), path.as_bytes()).map(FilePath::into_bytes);
        assert_eq!(below("/srv", "/a/../b").as_deref(), Ok(b"/srv/b".as_slice()));
        assert_eq!(below("/srv/", "b").as_deref(), Ok(b"/srv/b".as_slice()));
        for (folder, path) in [("/srv", "/../x"), ("/srv/", "../x"), ("/srv", "-old/x")] {
            assert_eq!(below(folder, path), Err(BadPath::AboveRoot), "{folder} {path}");
        }
        let aliased = |alias: &str, path: &str, named| {
            let path = CanonicalPath::made(path.into()).expect("canonical");
            FilePath::aliased(alias.into(), &path, named).map(FilePath::into_bytes)
        };
        assert_eq!(aliased("/data/", "/i/x", 3).as_deref(), Ok(b"/data/x".as_slice()));
        assert_eq!(aliased("/data", "/i_x", 2).as_deref(), Ok(b"/data_x".as_slice()));
        assert_eq!(aliased("/data", "/i../x", 2).as_deref(), Ok(b"/data../x".as_slice()));
        for (alias, path) in [("/data/", "/i../x"), ("/data/.", "/i./x"), ("/data/", "/i..")] {
            assert_eq!(aliased(alias, path, 2), Err(BadPath::AboveRoot), "{alias} {path}");
        }
        let folder = FilePath::below("/srv".into(), b"/a").expect("below");
        assert!(folder.holds(b"/srv/a") && folder.holds(b"/srv/a/x") && folder.holds(b"/srv/b/../a/x"));
        assert!(!folder.holds(b"/srv/ab") && !folder.holds(b"/srv/a/../b") && !folder.holds(b"/etc/passwd"));
    }

    /// Results start with `/`, have no dot segment, and are canonical.
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
            if write_canonical(&raw, true, &mut once).is_err() {
                continue;
            }
            assert_eq!(once.first(), Some(&b'/'));
            assert!(!once.windows(2).any(|w| w == b"//"), "{raw:?}");
            assert!(!once.split(|c| *c == b'/').any(|s| s == b"." || s == b".."), "{raw:?} {once:?}");
            write_canonical(&once, true, &mut twice).expect("canonical");
            assert_eq!(once, twice);
        }
    }

    #[test]
    fn hosts_are_normalized() {
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
