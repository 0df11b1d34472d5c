//! From a line of a rendered configuration back to the object that it comes from: the server complains about lines.

use cluster_model::ObjectOrigin;

/// Returns the origin that the comments of a text from [`render`](crate::render()) give to a line; lines count from 1.
/// `None` for lines that belong to no object, and beyond the end.
///
/// A comment names the lines behind it in its block, with the blocks in them, up to an empty line; at the beginning of a
/// block, also the line that opens it. No value of an object
/// can make such a comment: the writer quotes `#`, and writes line feeds as escapes.
pub fn line_owner(text: &str, line: usize) -> Option<ObjectOrigin> {
    // Comments in force, by the depth of their block.
    let mut owners: Vec<Option<ObjectOrigin>> = Vec::new();
    let mut follows_empty_line = false;
    let index = line.checked_sub(1)?;
    let head = text.lines().nth(index)?;
    // A location has its comment as its first line.
    let first = text.lines().nth(line).filter(|_| head.ends_with('{'));
    let inner = first.and_then(|first| parse_origin(first.trim_start_matches(' ').strip_prefix("# ")?));
    if inner.is_some() {
        return inner;
    }
    for text in text.lines().take(line) {
        let words = text.trim_start_matches(' ');
        if words.is_empty() {
            follows_empty_line = true;
            continue;
        }
        let depth = (text.len() - words.len()) / 4;
        owners.resize(depth + 1, None);
        if let Some(comment) = words.strip_prefix("# ") {
            owners[depth] = parse_origin(comment);
        } else if std::mem::take(&mut follows_empty_line) {
            owners[depth] = None;
        }
        follows_empty_line = false;
    }
    owners.into_iter().rev().flatten().next()
}

/// Reads an origin as its `Display` writes it: `KIND NAMESPACE/NAME, PART`.
fn parse_origin(comment: &str) -> Option<ObjectOrigin> {
    let (object, part) = comment.split_once(", ").unwrap_or((comment, ""));
    let (kind, name) = object.split_once(' ')?;
    let (namespace, name) = name.split_once('/')?;
    let is_kind = kind.starts_with(|c: char| c.is_ascii_uppercase()) && kind.chars().all(|c| c.is_ascii_alphanumeric());
    let is_name = |name: &str| !name.is_empty() && !name.contains([' ', '/']);
    (is_kind && is_name(namespace) && is_name(name)).then(|| ObjectOrigin::new(kind, namespace, name).part(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
http {
    map $a $b {
        default 1;
    }

    # Ingress shop/first
    server {
        listen 80;
        # Ingress shop/second, server-snippet
        proxy_read_timeout x;

        port_in_redirect off;
        location / {
            # HTTPRoute shop/api, rule 2
            set $route a;

            return 200;
        }

        location /b {
            return 404;
        }
    }

    server {
        return 503;
    }
    # Other hosts of port 80
    server {
        return 404;
    }
}
";

    #[test]
    fn lines_belong_to_the_comment_of_their_block() {
        let owner = |words: &str| {
            let line = TEXT.lines().position(|line| line.contains(words)).unwrap() + 1;
            line_owner(TEXT, line).map(|origin| origin.to_string())
        };
        assert_eq!(owner("default 1"), None);
        assert_eq!(owner("listen").as_deref(), Some("Ingress shop/first"));
        assert_eq!(owner("read_timeout").as_deref(), Some("Ingress shop/second, server-snippet"));
        assert_eq!(owner("port_in").as_deref(), Some("Ingress shop/first"));
        assert_eq!(owner("set $route").as_deref(), Some("HTTPRoute shop/api, rule 2"));
        assert_eq!(owner("location /b").as_deref(), Some("Ingress shop/first"));
        assert_eq!(owner("return 503"), None);
        let last = TEXT.lines().count();
        assert_eq!(line_owner(TEXT, last - 2), None, "the comment names no object");
        assert_eq!(line_owner(TEXT, 0), None);
        assert_eq!(line_owner(TEXT, last + 1), None);
    }

    #[test]
    fn the_head_of_a_location_belongs_to_the_object_of_its_lines() {
        let line = TEXT.lines().position(|line| line.contains("location / {")).unwrap() + 1;
        assert_eq!(line_owner(TEXT, line).unwrap().to_string(), "HTTPRoute shop/api, rule 2");
    }
}
