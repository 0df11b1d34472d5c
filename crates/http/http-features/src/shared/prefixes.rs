//! Replacement of the prefix that a location's name is (`redirect_to prefix=`, `rewrite_prefix`).

use conf_schema::{Contexts, Cx, Problem};

/// Returns the name of the enclosing location, if a path or a prefix is its name.
///
/// # Errors
/// In another location.
pub fn of_location(cx: &Cx) -> Result<Vec<u8>, Problem> {
    let words: Vec<&[u8]> = cx.around.iter().map(Vec::as_slice).collect();
    let name = match words.as_slice() {
        [b"=" | b"^~", name] => Some(*name),
        [b"^/", name] => name.get(..name.iter().rposition(|c| *c != b'/').map_or(1, |last| last + 1)),
        [name] => match name {
            [b'~' | b'@' | b'$', ..] => None,
            [b'=', name @ ..] | [b'^', b'~', name @ ..] => Some(name),
            name => Some(*name),
        },
        _ => None,
    };
    match name.filter(|_| cx.context == Contexts::location) {
        Some(name) => Ok(name.to_vec()),
        None => Err(Problem::says("a prefix is replaced only in a location whose name is a path or a prefix")
            .hint("such as \"location ^/ /name { ... }\"")),
    }
}

/// Returns the path with `new` instead of the location's name; `None` if it does not begin with that name, as after
/// `rewrite ... break`. `write` appends the rest behind the name, which may escape it. Writes no doubled slash at the seam, and at least
/// `/`.
pub fn replace_prefix(path: &[u8], name: &[u8], new: &[u8], write: impl Fn(&[u8], &mut Vec<u8>)) -> Option<Vec<u8>> {
    let rest = path.strip_prefix(name.strip_suffix(b"/").unwrap_or(name))?;
    let mut out = new.to_vec();
    if !rest.is_empty() {
        out.truncate(out.iter().rposition(|c| *c != b'/').map_or(0, |last| last + 1));
        if out.is_empty() && !rest.starts_with(b"/") {
            out.push(b'/');
        }
        write(rest, &mut out);
    } else if out.is_empty() {
        out.push(b'/');
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_replaced_without_doubled_slashes() {
        let of = |path: &str, name: &str, new: &str| {
            let made = replace_prefix(path.as_bytes(), name.as_bytes(), new.as_bytes(), |rest, out| out.extend(rest));
            made.map(|made| String::from_utf8_lossy(&made).into_owned()).unwrap_or_default()
        };
        for (path, name, new, expected) in [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo/", "/foo", "", "/"),
            ("/foo", "/foo", "", "/"),
            ("/foo/", "/foo", "/", "/"),
            ("/foo", "/foo", "/", "/"),
            ("/foo/bar", "/foo", "/", "/bar"),
            ("/x", "/", "/new", "/new/x"),
            ("/fooled", "/foo", "/", "/led"),
            ("/fooled", "/foo", "/xyz", "/xyzled"),
            ("/other", "/foo", "/xyz", ""),
        ] {
            assert_eq!(of(path, name, new), expected, "{path} {name} {new}");
        }
    }
}
