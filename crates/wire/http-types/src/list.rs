//! Decoded header lists (HPACK, QPACK) and their validation as requests (RFC 9113, 8.3.1; RFC 9114, 4.3.1).

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub start: usize,
    pub end: usize,
}

impl Place {
    pub fn of(self, arena: &[u8]) -> &[u8] {
        arena.get(self.start..self.end).unwrap_or_default()
    }
}

/// The text is in one arena.
#[derive(Clone, Debug, Default)]
pub struct List {
    pub arena: Vec<u8>,
    pub fields: Vec<(Place, Place)>,
    /// Exceeded the size limit; the excess was decoded and dropped.
    pub too_large: bool,
    /// Exceeded the number of fields, likewise.
    pub too_many: bool,
}

impl List {
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(name, value)| (name.of(&self.arena), value.of(&self.arena)))
    }

    pub fn put(&mut self, text: &[u8]) -> Place {
        let start = self.arena.len();
        self.arena.extend_from_slice(text);
        Place { start, end: self.arena.len() }
    }
    /// Tells whether a field fits; otherwise records the reason.
    pub fn fits(&mut self, name: usize, value: usize, limits: &ListLimits) -> bool {
        self.too_large |= self.arena.len() + name + value > limits.bytes_max;
        self.too_many |= self.fields.len() >= limits.fields_max;
        !self.too_large && !self.too_many
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ListLimits {
    pub bytes_max: usize,
    pub fields_max: usize,
    /// Octets of one name, and of one value, in Huffman's code (as in nginx).
    pub field_max: usize,
}

/// Invalid request, answered with 400 as in nginx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Unknown, late, repeated or empty pseudo-header field.
    Pseudo,
    Missing,
    Name,
    Value,
    /// Connection-specific field (8.2.2), which would change its meaning behind HTTP/1.
    Connection,
    Target,
    /// HTTP/0.9 has GET alone.
    Method,
    /// The client has reset the stream within the list.
    Cut,
}

impl Malformed {
    pub fn words(self) -> &'static str {
        match self {
            Malformed::Pseudo => "client sent invalid pseudo-header",
            Malformed::Missing => "client sent no required pseudo-header",
            Malformed::Name => "client sent invalid header name",
            Malformed::Value => "client sent header with invalid value",
            Malformed::Connection => "client sent a connection-specific header",
            Malformed::Target => "client sent invalid :path header",
            Malformed::Method => "client sent invalid method in HTTP/0.9 request",
            Malformed::Cut => "client prematurely closed stream",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Message {
    pub method: Place,
    pub scheme: Place,
    pub authority: Option<Place>,
    pub path: Place,
    pub protocol: Option<Place>,
    /// Indices of fields, without ignored ones.
    pub fields: Vec<usize>,
    pub ignored: Vec<usize>,
}

pub fn is_connection_field(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" | b"http2-settings" => {
            true
        }
        b"te" => !value.eq_ignore_ascii_case(b"trailers"),
        _ => false,
    }
}

/// Valid names in nginx: lower-case letters, digits, hyphens, and underscores if allowed.
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

/// Validates a list as a request. `ignore_invalid` skips fields with odd names (nginx: `ignore_invalid_headers`);
/// delimiters or upper case in names and broken values always fail.
pub fn request(list: &List, underscores: bool, ignore_invalid: bool) -> Result<Message, Malformed> {
    let mut request = Message::default();
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
        // CONNECT: an authority without scheme and path (8.5). The handler refuses a disabled method, as in nginx.
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
    // A space would end the target when forwarded in a request line.
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
