//! Comments of SQL, C and HTML.

/// Replaces each `/* ... */` with a space; an open one reaches to the end.
pub fn replace(input: &[u8]) -> Option<Vec<u8>> {
    let mut rest = input;
    let mut out = Vec::with_capacity(input.len());
    let mut changed = false;
    while let Some(start) = memchr::memmem::find(rest, b"/*") {
        changed = true;
        out.extend_from_slice(rest.get(..start).unwrap_or_default());
        out.push(b' ');
        let inside = rest.get(start + 2..).unwrap_or_default();
        match memchr::memmem::find(inside, b"*/") {
            Some(end) => rest = inside.get(end + 2..).unwrap_or_default(),
            None => rest = &[],
        }
    }
    out.extend_from_slice(rest);
    changed.then_some(out)
}

/// Removes `/* */` and `<!-- -->` comments, and everything behind `--` or `#`.
pub fn remove(input: &[u8]) -> Option<Vec<u8>> {
    let mut rest = input;
    let mut out = Vec::with_capacity(input.len());
    let mut in_comment = false;
    let mut changed = false;
    while let Some((&first, tail)) = rest.split_first() {
        if in_comment {
            let end = [&b"*/"[..], b"-->"].into_iter().find_map(|mark| rest.strip_prefix(mark));
            let Some(after) = end else {
                rest = tail;
                continue;
            };
            in_comment = false;
            // ModSecurity copies the byte behind a comment without a look at it.
            rest = match after.split_first() {
                Some((&byte, after)) => {
                    out.push(byte);
                    after
                }
                None => after,
            };
            continue;
        }
        let start = [&b"/*"[..], b"<!--"].into_iter().find_map(|mark| rest.strip_prefix(mark));
        if let Some(inside) = start {
            in_comment = true;
            changed = true;
            rest = inside;
        } else if first == b'#' || rest.starts_with(b"--") {
            changed = true;
            break;
        } else {
            out.push(first);
            rest = tail;
        }
    }
    if in_comment {
        out.push(b' ');
    }
    changed.then_some(out)
}

/// Removes the characters that begin or end comments, and keeps the text between.
pub fn remove_marks(input: &[u8]) -> Option<Vec<u8>> {
    const MARKS: [&[u8]; 6] = [b"/*", b"*/", b"<!--", b"-->", b"--", b"#"];
    let mut rest = input;
    let mut out = Vec::with_capacity(input.len());
    while let Some((&first, tail)) = rest.split_first() {
        match MARKS.iter().find_map(|mark| rest.strip_prefix(*mark)) {
            Some(after) => rest = after,
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    (out.len() != input.len()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_become_a_space() {
        assert_eq!(replace(b"a/* x */b/*").as_deref(), Some(&b"a b "[..]));
        assert_eq!(replace(b"a*/b"), None);
    }

    #[test]
    fn comments_are_removed_with_the_rest_of_a_line() {
        assert_eq!(remove(b"a/*x*/b").as_deref(), Some(&b"ab"[..]));
        assert_eq!(remove(b"a -- b").as_deref(), Some(&b"a "[..]));
        assert_eq!(remove(b"a<!-- b").as_deref(), Some(&b"a "[..]));
    }

    #[test]
    fn marks_are_removed_and_text_stays() {
        assert_eq!(remove_marks(b"un/**/ion<!--x-->#").as_deref(), Some(&b"unionx"[..]));
    }
}
