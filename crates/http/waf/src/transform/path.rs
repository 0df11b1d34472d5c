//! Paths: multiple slashes, self-references and back-references.

/// Normalises a path as ModSecurity does. Absolute paths do not climb above the root; leading back-references of
/// relative paths stay. A trailing slash stays if there was one. With `windows`, backslashes become slashes.
pub fn normalise(input: &[u8], windows: bool) -> Option<Vec<u8>> {
    let separates = |byte: &u8| *byte == b'/' || windows && *byte == b'\\';
    let absolute = input.first().is_some_and(separates);
    let trailing = input.last().is_some_and(separates);
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in input.split(separates).filter(|segment| !segment.is_empty()) {
        match segment {
            b"." => {}
            b".." => match kept.last() {
                Some(last) if *last != b".." => {
                    kept.pop();
                }
                _ if absolute => {}
                _ => kept.push(segment),
            },
            _ => kept.push(segment),
        }
    }
    let mut out = Vec::with_capacity(input.len());
    if absolute {
        out.push(b'/');
    }
    out.extend_from_slice(&kept.join(&b'/'));
    if trailing && !kept.is_empty() {
        out.push(b'/');
    }
    (out != input).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved() {
        assert_eq!(normalise(b"/a//b/./c/../d", false).as_deref(), Some(&b"/a/b/d"[..]));
        assert_eq!(normalise(b"/../../etc/passwd", false).as_deref(), Some(&b"/etc/passwd"[..]));
        assert_eq!(normalise(b"../../a", false), None);
        assert_eq!(normalise(b"a\\..\\b\\", true).as_deref(), Some(&b"b/"[..]));
        assert_eq!(normalise(b"/dir/sub/../", false).as_deref(), Some(&b"/dir/"[..]));
    }
}
