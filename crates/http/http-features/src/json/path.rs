//! Paths of `json_set`: `user.name`, `tags[0]`, `["a.b"].c`.

use super::document::{Scanner, unescape_string};

/// A step from a value to one of its parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathPart {
    Member(Vec<u8>),
    Element(u64),
}

/// Parses a path; `None` if it is invalid.
pub fn parse_path(path: &[u8]) -> Option<Vec<PathPart>> {
    let mut parts = Vec::new();
    let mut rest = path;
    let mut is_name = !rest.starts_with(b"[");
    loop {
        if is_name {
            let end = rest.iter().position(|c| matches!(c, b'.' | b'[')).unwrap_or(rest.len());
            let (name, behind) = rest.split_at_checked(end)?;
            if name.is_empty() || name.starts_with(b"$") {
                return None;
            }
            parts.push(PathPart::Member(name.to_vec()));
            rest = behind;
        } else {
            let (part, behind) = bracket(rest)?;
            parts.push(part);
            rest = behind;
        }
        is_name = match rest.first() {
            None => return Some(parts),
            Some(b'.') => {
                rest = rest.get(1..)?;
                true
            }
            Some(b'[') => false,
            Some(_) => return None,
        };
    }
}

/// Parses `[number]` or `["name"]`, and returns the text behind it.
fn bracket(text: &[u8]) -> Option<(PathPart, &[u8])> {
    let inner = text.strip_prefix(b"[")?;
    if inner.starts_with(b"\"") {
        let mut scanner = Scanner::new(inner, 0);
        let name = scanner.string()?;
        let rest = inner.get(scanner.at()..)?.strip_prefix(b"]")?;
        return Some((PathPart::Member(unescape_string(inner.get(name)?).into_owned()), rest));
    }
    let digits = inner.iter().take_while(|c| c.is_ascii_digit()).count();
    let (number, rest) = inner.split_at_checked(digits)?;
    let index = std::str::from_utf8(number).ok()?.parse().ok().filter(|index| *index <= i64::MAX as u64)?;
    Some((PathPart::Element(index), rest.strip_prefix(b"]")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> PathPart {
        PathPart::Member(name.as_bytes().to_vec())
    }

    #[test]
    fn names_indexes_and_quoted_names_follow_each_other() {
        let all = [
            ("user.name", vec![member("user"), member("name")]),
            ("tags[0]", vec![member("tags"), PathPart::Element(0)]),
            ("[1][2].x", vec![PathPart::Element(1), PathPart::Element(2), member("x")]),
            (r#"["a.b"].c"#, vec![member("a.b"), member("c")]),
            (r#"o["x[0]"][3]"#, vec![member("o"), member("x[0]"), PathPart::Element(3)]),
            (r#"[""]"#, vec![member("")]),
            (r#"["\"\u8898\ud83d\ude00\\"]"#, vec![member("\"\u{8898}\u{1f600}\\")]),
            ("a$]\"", vec![member("a$]\"")]),
        ];
        for (path, parts) in all {
            assert_eq!(parse_path(path.as_bytes()), Some(parts), "{path}");
        }
    }

    #[test]
    fn other_paths_are_invalid() {
        let all = [
            "",
            ".a",
            "a.",
            "a..b",
            "$",
            "$.a",
            "a.$b",
            "a.[0]",
            "a[]",
            "a[x]",
            "a[1a]",
            "a[12",
            "a[0]b",
            "a[-1]",
            r#"a["x"#,
            r#"a["x""#,
            r#"a["x"b"#,
            r#"a["x"]y"#,
            r#"a["\q"]"#,
            r#"a["\u12"]"#,
            r#"a["\ud83d"]"#,
            r#"a["\ude00"]"#,
            "a[\"\t\"]",
            "a[9223372036854775808]",
        ];
        for path in all {
            assert_eq!(parse_path(path.as_bytes()), None, "{path}");
        }
    }
}
