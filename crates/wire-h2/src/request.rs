//! What a header list says as a request (RFC 9113, 8.3.1), and what none may say.

use crate::hpack::{List, Place};

/// A list that is no request. nginx answers it with 400, and so do we.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A pseudo-header field that is unknown, stands behind a field, comes twice or is empty.
    Pseudo,
    /// One that must be there is not.
    Missing,
    /// A name that is empty or holds what may not stand in one.
    Name,
    /// A value with CR, LF or NUL.
    Value,
    /// A field that speaks of the connection (8.2.2): behind HTTP/1 it would mean something else.
    Connection,
    /// `:scheme` or `:path` is not what one may be.
    Target,
}

impl Malformed {
    /// As nginx words it.
    pub fn words(self) -> &'static str {
        match self {
            Malformed::Pseudo => "client sent invalid pseudo-header",
            Malformed::Missing => "client sent no required pseudo-header",
            Malformed::Name => "client sent invalid header name",
            Malformed::Value => "client sent header with invalid value",
            Malformed::Connection => "client sent a connection-specific header",
            Malformed::Target => "client sent invalid :path header",
        }
    }
}

/// A request's parts: places in the list's arena.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: Place,
    pub scheme: Place,
    pub authority: Option<Place>,
    pub path: Place,
    /// Extended CONNECT (RFC 8441).
    pub protocol: Option<Place>,
    /// The fields, as indices into the list; those with a name that is no token are left out when that is asked for.
    pub fields: Vec<usize>,
    /// Fields that were left out.
    pub ignored: Vec<usize>,
}

/// Fields that have no place in HTTP/2.
pub fn is_connection_field(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" | b"http2-settings" => {
            true
        }
        b"te" => !value.eq_ignore_ascii_case(b"trailers"),
        _ => false,
    }
}

/// What nginx takes for a valid name: lower-case letters, digits, hyphens, and underscores where they are allowed.
fn is_name(name: &[u8], underscores: bool) -> bool {
    !name.is_empty()
        && name.iter().all(|c| match c {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => true,
            b'_' => underscores,
            _ => false,
        })
}

fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|c| c.is_ascii_uppercase() || matches!(c, b'_' | b'-'))
}

fn is_value(value: &[u8]) -> bool {
    !value.iter().any(|c| matches!(c, 0 | b'\n' | b'\r'))
}

/// Reads a list as a request. `ignore_invalid`: fields with an odd name are left out (nginx:
/// `ignore_invalid_headers`); names with what would end them, or in upper case, and broken values are refused always.
///
/// # Errors
/// [`Malformed`].
pub fn request(list: &List, underscores: bool, ignore_invalid: bool) -> Result<Request, Malformed> {
    let mut request = Request::default();
    let (mut method, mut scheme, mut path) = (None, None, None);
    let mut any_field = false;
    for (index, (name_place, value_place)) in list.fields.iter().enumerate() {
        let (name, value) = (name_place.of(&list.arena), value_place.of(&list.arena));
        if !is_value(value) {
            return Err(Malformed::Value);
        }
        if let [b':', ..] = name {
            if any_field {
                return Err(Malformed::Pseudo);
            }
            let slot = match name {
                b":method" => &mut method,
                b":scheme" => &mut scheme,
                b":path" => &mut path,
                b":authority" => &mut request.authority,
                b":protocol" => &mut request.protocol,
                _ => return Err(Malformed::Pseudo),
            };
            if slot.replace(*value_place).is_some() {
                return Err(Malformed::Pseudo);
            }
            continue;
        }
        any_field = true;
        if name.is_empty() || name.iter().any(|c| c.is_ascii_uppercase() || *c <= b' ' || matches!(c, 0x7f | b':')) {
            return Err(Malformed::Name);
        }
        if ignore_invalid && !is_name(name, underscores) {
            request.ignored.push(index);
            continue;
        }
        if is_connection_field(name, value) {
            return Err(Malformed::Connection);
        }
        request.fields.push(index);
    }
    let filled = |place: Option<Place>| place.filter(|place| place.start < place.end).ok_or(Malformed::Missing);
    request.method = filled(method)?;
    if !is_token(request.method.of(&list.arena)) {
        return Err(Malformed::Pseudo);
    }
    let connect = request.method.of(&list.arena) == b"CONNECT" && request.protocol.is_none();
    if connect {
        // 8.5: an authority, and neither scheme nor path. Whoever does not allow the method says so, as nginx does.
        request.path = path.or(request.authority).unwrap_or_default();
        return Ok(request);
    }
    request.scheme = filled(scheme)?;
    request.path = filled(path)?;
    let scheme = request.scheme.of(&list.arena);
    let is_scheme = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'-' | b'.');
    if !scheme.first().is_some_and(u8::is_ascii_alphabetic) || !scheme.iter().all(is_scheme) {
        return Err(Malformed::Target);
    }
    let path = request.path.of(&list.arena);
    let is_path = path.first() == Some(&b'/') || (path == b"*" && request.method.of(&list.arena) == b"OPTIONS");
    // A space would end the target of the request line that this may become behind us.
    if !is_path || path.iter().any(|c| *c <= b' ' || *c == 0x7f) {
        return Err(Malformed::Target);
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(fields: &[(&str, &str)]) -> List {
        let mut list = List::default();
        for (name, value) in fields {
            let mut put = |text: &str| {
                let start = list.arena.len();
                list.arena.extend_from_slice(text.as_bytes());
                Place { start, end: list.arena.len() }
            };
            let places = (put(name), put(value));
            list.fields.push(places);
        }
        list
    }

    const GET: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "https"), (":path", "/a?b"), (":authority", "h")];

    #[test]
    fn a_request_has_its_parts() {
        let list = list(&[&GET[..], &[("accept", "*/*"), ("te", "trailers"), ("odd.name", "x")]].concat());
        let request = request(&list, false, true).expect("a request");
        assert_eq!(request.path.of(&list.arena), b"/a?b");
        assert_eq!((request.fields, request.ignored), (vec![4, 5], vec![6]));
    }

    #[test]
    fn what_is_none_is_refused() {
        let with = |field: (&'static str, &'static str)| [&GET[..], &[field]].concat();
        let without = |name: &str| GET.iter().copied().filter(|(n, _)| *n != name).collect::<Vec<_>>();
        let other = |name: &str, value: &'static str| {
            GET.iter().map(|(n, v)| if *n == name { (*n, value) } else { (*n, *v) }).collect::<Vec<_>>()
        };
        let cases = [
            (with((":path", "/")), Malformed::Pseudo),
            (with((":status", "200")), Malformed::Pseudo),
            ([&[("a", "b")], &GET[..]].concat(), Malformed::Pseudo),
            (without(":method"), Malformed::Missing),
            (without(":scheme"), Malformed::Missing),
            (without(":path"), Malformed::Missing),
            (with(("X", "y")), Malformed::Name),
            (with(("a\rb", "y")), Malformed::Name),
            (with(("x", "a\nb")), Malformed::Value),
            (with(("x", "a\0b")), Malformed::Value),
            (with(("transfer-encoding", "chunked")), Malformed::Connection),
            (with(("connection", "close")), Malformed::Connection),
            (with(("te", "gzip")), Malformed::Connection),
            (other(":path", "a"), Malformed::Target),
            (other(":path", "/ HTTP/1.1"), Malformed::Target),
            (other(":path", "*"), Malformed::Target),
            (other(":path", ""), Malformed::Missing),
            (other(":scheme", "ht tp"), Malformed::Target),
            (other(":method", "GET / HTTP/1.1\u{b}"), Malformed::Pseudo),
        ];
        for (fields, why) in cases {
            assert_eq!(request(&list(&fields), false, true).err(), Some(why), "{fields:?}");
        }
        assert!(request(&list(&[(":method", "CONNECT"), (":authority", "h:1")]), false, true).is_ok());
    }
}
