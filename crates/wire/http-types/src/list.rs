//! Decoded header lists (HPACK, QPACK) and their validation as requests (RFC 9113, 8.3.1; RFC 9114, 4.3.1).

/// A range of a list's arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListPlace {
    /// Offset of the first octet.
    pub start: usize,
    /// Offset behind the last octet.
    pub end: usize,
}

impl ListPlace {
    /// Returns the octets.
    pub fn of(self, arena: &[u8]) -> &[u8] {
        arena.get(self.start..self.end).unwrap_or_default()
    }
}

/// The text is in one arena.
#[derive(Clone, Debug, Default)]
pub struct List {
    /// Text of all names and values.
    pub arena: Vec<u8>,
    /// Places of names and values, in the order of the fields.
    pub fields: Vec<(ListPlace, ListPlace)>,
    /// Exceeded the size limit; the excess was decoded and dropped.
    pub too_large: bool,
    /// Exceeded the number of fields, likewise.
    pub too_many: bool,
}

impl List {
    /// Returns names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(name, value)| (name.of(&self.arena), value.of(&self.arena)))
    }

    /// Appends a text to the arena, without a field.
    pub fn put(&mut self, text: &[u8]) -> ListPlace {
        let start = self.arena.len();
        self.arena.extend_from_slice(text);
        ListPlace { start, end: self.arena.len() }
    }
    /// Tells whether a field fits; otherwise records the reason.
    pub fn fits(&mut self, name: usize, value: usize, limits: &ListLimits) -> bool {
        self.too_large |= self.arena.len() + name + value > limits.bytes_max;
        self.too_many |= self.fields.len() >= limits.fields_max;
        !self.too_large && !self.too_many
    }
}

/// Limits of a decoded list.
#[derive(Clone, Copy, Debug)]
pub struct ListLimits {
    /// Octets of all names and values.
    pub bytes_max: usize,
    /// Number of fields.
    pub fields_max: usize,
    /// Octets of one name, and of one value, in Huffman's code (as in nginx).
    pub field_max: usize,
}

/// Fault of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// Pseudo-header fields: behind other fields, unknown, repeated, empty or absent.
    Order,
    /// Unknown pseudo-header field of this name.
    Unknown(Vec<u8>),
    /// Repeated pseudo-header field.
    Duplicate(&'static str),
    /// Pseudo-header field without a value.
    Empty(&'static str),
    /// Missing pseudo-header field.
    Absent(&'static str),
    /// Name and value of a pseudo-header field.
    Invalid(&'static str, Vec<u8>),
    /// Invalid method.
    Method(Vec<u8>),
    /// Invalid name of a field.
    Name(Vec<u8>),
    /// Name and value of a field.
    Value(Vec<u8>, Vec<u8>),
    /// Connection-specific field (8.2.2), which would change its meaning behind HTTP/1.
    Connection(Vec<u8>),
    /// HTTP/0.9 has GET alone.
    NotGet,
    /// The client has reset the stream within the list.
    Cut,
}

impl RequestFault {
    /// nginx's message. HTTP/3 has pseudo-header fields in quotes (`quoted`).
    pub fn words(&self, quoted: bool) -> String {
        let quote = if quoted { "\"" } else { "" };
        match self {
            RequestFault::Order => "client sent out of order pseudo-headers".into(),
            RequestFault::Unknown(name) => format!("client sent unknown pseudo-header \"{}\"", shown(name)),
            RequestFault::Duplicate(name) => format!("client sent duplicate {quote}{name}{quote} header"),
            RequestFault::Empty(name) => format!("client sent empty {quote}{name}{quote} header"),
            RequestFault::Absent(name) => format!("client sent no {quote}{name}{quote} header"),
            RequestFault::Invalid(name, value) => {
                format!("client sent invalid {quote}{name}{quote} header: \"{}\"", shown(value))
            }
            RequestFault::Method(method) => format!("client sent invalid method: \"{}\"", shown(method)),
            RequestFault::Name(name) => format!("client sent invalid header name: \"{}\"", shown(name)),
            RequestFault::Value(name, value) => {
                format!("client sent header \"{}\" with invalid value: \"{}\"", shown(name), shown(value))
            }
            RequestFault::Connection(name) if name == b"te" => "client sent invalid \"TE\" header".into(),
            RequestFault::Connection(name) => format!("client sent \"{}\" header", capitalized(name)),
            RequestFault::NotGet => "client sent invalid method in HTTP/0.9 request".into(),
            RequestFault::Cut => "client prematurely closed stream".into(),
        }
    }
}

fn shown(text: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(text)
}

/// `keep-alive` as `Keep-Alive`.
fn capitalized(name: &[u8]) -> String {
    let parts = name.split(|c| *c == b'-').map(|part| {
        let (first, rest) = part.split_at(part.len().min(1));
        format!("{}{}", shown(first).to_ascii_uppercase(), shown(rest))
    });
    parts.collect::<Vec<_>>().join("-")
}

/// Invalid request, answered with 400 as in nginx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedFields {
    /// The fault.
    pub fault: RequestFault,
    /// Method, if its field came before the fault.
    pub method: Option<ListPlace>,
    /// Path, if the fault is behind valid pseudo-header fields: such a request has a request line.
    pub path: Option<ListPlace>,
}

impl From<RequestFault> for MalformedFields {
    fn from(fault: RequestFault) -> MalformedFields {
        MalformedFields { fault, method: None, path: None }
    }
}

/// A valid request, as places in its list.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// `:method`.
    pub method: ListPlace,
    /// `:scheme`.
    pub scheme: ListPlace,
    /// `:authority`.
    pub authority: Option<ListPlace>,
    /// `:path`.
    pub path: ListPlace,
    /// `:protocol` of extended CONNECT (RFC 8441).
    pub protocol: Option<ListPlace>,
    /// Indices of fields, without ignored ones.
    pub fields: Vec<usize>,
    /// Indices of fields that `ignore_invalid_headers` drops.
    pub ignored: Vec<usize>,
}

/// Tells whether a field concerns the connection and must not appear in HTTP/2 and HTTP/3 (RFC 9113, 8.2.2).
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

fn is_method(text: &[u8]) -> bool {
    text.iter().all(|c| c.is_ascii_uppercase() || matches!(c, b'_' | b'-'))
}

fn is_scheme(text: &[u8]) -> bool {
    let of_scheme = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'-' | b'.');
    text.first().is_some_and(u8::is_ascii_alphabetic) && text.iter().all(of_scheme)
}

fn is_value(value: &[u8]) -> bool {
    !value.iter().any(|c| matches!(c, 0 | b'\n' | b'\r'))
}

/// Pseudo-header fields of a request, in the order of their faults' messages.
#[derive(Default)]
struct Pseudo {
    method: Option<ListPlace>,
    scheme: Option<ListPlace>,
    path: Option<ListPlace>,
    authority: Option<ListPlace>,
    protocol: Option<ListPlace>,
}

impl Pseudo {
    fn take(&mut self, arena: &[u8], name: &[u8], place: ListPlace) -> Result<(), RequestFault> {
        let value = place.of(arena);
        let (slot, name) = match name {
            b":method" => (&mut self.method, ":method"),
            b":scheme" => (&mut self.scheme, ":scheme"),
            b":path" => (&mut self.path, ":path"),
            b":authority" => (&mut self.authority, ":authority"),
            b":protocol" => (&mut self.protocol, ":protocol"),
            _ => return Err(RequestFault::Unknown(name.to_vec())),
        };
        if slot.is_some() {
            return Err(RequestFault::Duplicate(name));
        }
        match name {
            ":method" | ":scheme" | ":path" if value.is_empty() => return Err(RequestFault::Empty(name)),
            ":method" if !is_method(value) => {
                // nginx logs it as the request's method.
                *slot = Some(place);
                return Err(RequestFault::Method(value.to_vec()));
            }
            ":scheme" if !is_scheme(value) => return Err(RequestFault::Invalid(name, value.to_vec())),
            _ => {}
        }
        *slot = Some(place);
        Ok(())
    }

    /// Checks the fields together.
    fn message(&self, arena: &[u8]) -> Result<Message, RequestFault> {
        let method = self.method.ok_or(RequestFault::Absent(":method"))?;
        let (authority, protocol) = (self.authority, self.protocol);
        let message = Message { method, authority, protocol, ..Message::default() };
        if method.of(arena) == b"CONNECT" && protocol.is_none() {
            // CONNECT: an authority without scheme and path (8.5). The handler refuses a disabled method, as in nginx.
            return Ok(Message { path: self.path.or(authority).unwrap_or_default(), ..message });
        }
        let scheme = self.scheme.ok_or(RequestFault::Absent(":scheme"))?;
        let path = self.path.ok_or(RequestFault::Absent(":path"))?;
        let text = path.of(arena);
        let is_path = text.first() == Some(&b'/') || (text == b"*" && method.of(arena) == b"OPTIONS");
        // A space would end the target when forwarded in a request line.
        if !is_path || text.iter().any(|c| *c <= b' ' || *c == 0x7f) {
            return Err(RequestFault::Invalid(":path", text.to_vec()));
        }
        Ok(Message { scheme, path, ..message })
    }
}

/// Validates a list as a request. `ignore_invalid` skips fields with odd names (nginx: `ignore_invalid_headers`);
/// delimiters or upper case in names and broken values always fail.
pub fn request_message(list: &List, underscores: bool, ignore_invalid: bool) -> Result<Message, MalformedFields> {
    let mut pseudo = Pseudo::default();
    let mut message: Option<Message> = None;
    for (index, (name_place, value_place)) in list.fields.iter().enumerate() {
        let (name, value) = (name_place.of(&list.arena), value_place.of(&list.arena));
        let checked = match (&mut message, name) {
            _ if !is_value(value) => Err(RequestFault::Value(name.to_vec(), value.to_vec())),
            (Some(_), [b':', ..]) => Err(RequestFault::Order),
            (None, [b':', ..]) => pseudo.take(&list.arena, name, *value_place),
            _ if is_broken_name(name) => Err(RequestFault::Name(name.to_vec())),
            (so_far, _) => match so_far.take().map_or_else(|| pseudo.message(&list.arena), Ok) {
                Ok(complete) => {
                    let complete = so_far.insert(complete);
                    if ignore_invalid && !is_name(name, underscores) {
                        complete.ignored.push(index);
                        Ok(())
                    } else if is_connection_field(name, value) && name != b"http2-settings" {
                        // (RFC 9113, 8.2.2 does not name that one; it stays at this hop.)
                        Err(RequestFault::Connection(name.to_vec()))
                    } else {
                        complete.fields.push(index);
                        Ok(())
                    }
                }
                Err(fault) => Err(fault),
            },
        };
        if let Err(fault) = checked {
            return Err(MalformedFields { fault, method: pseudo.method, path: message.map(|message| message.path) });
        }
    }
    match message {
        Some(message) => Ok(message),
        None => {
            pseudo.message(&list.arena).map_err(|fault| MalformedFields { fault, method: pseudo.method, path: None })
        }
    }
}

fn is_broken_name(name: &[u8]) -> bool {
    name.is_empty() || name.iter().any(|c| c.is_ascii_uppercase() || *c <= b' ' || matches!(c, 0x7f | b':'))
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
                ListPlace { start, end: list.arena.len() }
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
        let request = request_message(&list, false, true).expect("a request");
        assert_eq!(request.path.of(&list.arena), b"/a?b");
        assert_eq!((request.fields, request.ignored), (vec![4, 5], vec![6]));
    }

    #[test]
    fn an_invalid_method_is_known_to_the_log() {
        let fields = [(":method", "get"), (":scheme", "http"), (":path", "/")];
        let list = list(&fields);
        let malformed = request_message(&list, false, true).expect_err("no method of HTTP");
        assert_eq!(malformed.fault, RequestFault::Method(b"get".to_vec()));
        assert_eq!(malformed.method.map(|place| place.of(&list.arena)), Some(&b"get"[..]));
    }

    #[test]
    fn malformed_lists_are_refused() {
        let with = |field: (&'static str, &'static str)| [&GET[..], &[field]].concat();
        let without = |name: &str| GET.iter().copied().filter(|(n, _)| *n != name).collect::<Vec<_>>();
        let other = |name: &str, value: &'static str| {
            GET.iter().map(|(n, v)| if *n == name { (*n, value) } else { (*n, *v) }).collect::<Vec<_>>()
        };
        let cases = [
            (with((":path", "/")), "client sent duplicate :path header"),
            (with((":status", "200")), "client sent unknown pseudo-header \":status\""),
            ([&GET[..], &[("a", "b"), (":path", "/")]].concat(), "client sent out of order pseudo-headers"),
            ([&[("a", "b")], &GET[..]].concat(), "client sent no :method header"),
            (without(":method"), "client sent no :method header"),
            (without(":scheme"), "client sent no :scheme header"),
            (without(":path"), "client sent no :path header"),
            (with(("X", "y")), "client sent invalid header name: \"X\""),
            (with(("a\rb", "y")), "client sent invalid header name: \"a\rb\""),
            (with(("", "y")), "client sent invalid header name: \"\""),
            (with(("x", "a\nb")), "client sent header \"x\" with invalid value: \"a\nb\""),
            (with(("x", "a\0b")), "client sent header \"x\" with invalid value: \"a\0b\""),
            (with(("transfer-encoding", "chunked")), "client sent \"Transfer-Encoding\" header"),
            (with(("connection", "close")), "client sent \"Connection\" header"),
            (with(("te", "gzip")), "client sent invalid \"TE\" header"),
            (other(":path", "a"), "client sent invalid :path header: \"a\""),
            (other(":path", "/ HTTP/1.1"), "client sent invalid :path header: \"/ HTTP/1.1\""),
            (other(":path", "*"), "client sent invalid :path header: \"*\""),
            (other(":path", ""), "client sent empty :path header"),
            (other(":scheme", "ht tp"), "client sent invalid :scheme header: \"ht tp\""),
            (other(":method", "GET / HTTP/1.1\u{b}"), "client sent invalid method: \"GET / HTTP/1.1\u{b}\""),
            (other(":method", ""), "client sent empty :method header"),
        ];
        for (fields, why) in cases {
            let got = request_message(&list(&fields), false, true).err().map(|malformed| malformed.fault.words(false));
            assert_eq!(got.as_deref(), Some(why), "{fields:?}");
        }
        assert_eq!(RequestFault::Empty(":path").words(true), "client sent empty \":path\" header");
        assert!(request_message(&list(&[(":method", "CONNECT"), (":authority", "h:1")]), false, true).is_ok());
    }

    /// As nginx's variables, which it sets as it reads the fields.
    #[test]
    fn a_malformed_request_has_the_parts_before_its_fault() {
        let parts = |fields: &[(&str, &str)]| {
            let list = list(fields);
            let malformed = request_message(&list, false, true).expect_err("malformed");
            let text = |place: Option<ListPlace>| place.map(|place| shown(place.of(&list.arena)).into_owned());
            (text(malformed.method), text(malformed.path))
        };
        let (get, path) = (Some("GET".to_string()), Some("/a?b".to_string()));
        assert_eq!(parts(&[&GET[..], &[("X", "y")]].concat()), (get.clone(), None));
        assert_eq!(parts(&[&GET[..], &[("a", "b"), ("X", "y")]].concat()), (get.clone(), path.clone()));
        assert_eq!(parts(&[&GET[..], &[("te", "gzip")]].concat()), (get.clone(), path));
        assert_eq!(parts(&[(":method", "GET"), (":path", "")]), (get, None));
        assert_eq!(parts(&[(":path", ""), (":method", "GET")]), (None, None));
    }
}
