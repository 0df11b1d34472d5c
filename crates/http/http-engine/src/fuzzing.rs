//! Bodies of the fuzz targets: each takes arbitrary bytes and panics if an invariant fails. They run under libFuzzer
//! (`fuzz/`), and with a seeded generator in `cargo test`.

use crate::path::{BadPath, escape_uri, host, unescape_path, unsafe_uri, write_canonical};

/// Checks that an accepted path is canonical (leading slash, no dot segment, no NUL, no empty segment if merged), and
/// that every escaped form of it parses to an equal path.
pub fn path(data: &[u8]) {
    let mut raw = vec![b'/'];
    raw.extend(data.iter().filter(|c| !matches!(c, b'?' | b'#')));
    for merge in [true, false] {
        let mut out = Vec::new();
        match write_canonical(&raw, merge, &mut out) {
            Ok(()) => check_path(&raw, &out, merge),
            Err(BadPath::Escape) => assert!(raw.contains(&b'%')),
            Err(BadPath::Nul) => assert!(raw.contains(&0) || raw.windows(3).any(|w| w == b"%00")),
            Err(BadPath::AboveRoot) => {
                let mut plain = Vec::new();
                unescape_path(&raw, &mut plain);
                assert!(plain.windows(2).any(|w| w == b".."));
            }
        }
    }
    if let Ok((path, _)) = unsafe_uri(data) {
        assert!(!path.contains(&0) && !path.split(|c| *c == b'/').any(|segment| segment == b".."));
    }
}

fn check_path(raw: &[u8], out: &[u8], merge: bool) {
    assert_eq!(out.first(), Some(&b'/'));
    assert!(out.len() <= raw.len() && !out.contains(&0));
    assert!(!out.split(|c| *c == b'/').any(|segment| segment == b"." || segment == b".."), "a dot segment is left");
    assert!(!merge || !out.windows(2).any(|w| w == b"//"), "an empty segment is left");
    let (mut escaped, mut again) = (Vec::new(), Vec::new());
    escape_uri(out, &mut escaped);
    assert_eq!(write_canonical(&escaped, merge, &mut again), Ok(()));
    assert_eq!(again, out, "escaping changes what is meant");
    let all: String = out.iter().map(|c| format!("%{c:02x}")).collect();
    assert_eq!(write_canonical(all.as_bytes(), merge, &mut again), Ok(()));
    assert_eq!(again, out, "an escaped slash or dot has another meaning");
}

/// Checks that an accepted host is in lower case, contains no delimiter, and equals its own canonical form.
pub fn authority(data: &[u8]) {
    let mut out = Vec::new();
    let Some(port) = host(data, &mut out) else { return };
    assert!(!out.is_empty() && out.len() <= data.len());
    assert!(port.is_none_or(|port| port > 0));
    for c in &out {
        assert!(!c.is_ascii_uppercase() && *c > b' ' && *c < 0x7f, "{}", c.escape_ascii());
        assert!(!matches!(c, b'/' | b'\\' | b'@' | b'?' | b'#' | b'"' | b'<' | b'>'), "{}", c.escape_ascii());
    }
    assert!(!out.windows(2).any(|w| w == b".."));
    let mut again = Vec::new();
    assert_eq!(host(&out, &mut again), Some(None), "{}", out.escape_ascii());
    assert_eq!(out, again);
}
