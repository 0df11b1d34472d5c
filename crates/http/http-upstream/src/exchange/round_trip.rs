//! Body of a fuzz target: a request of HTTP/1 that is passed on over HTTP/2 and again over HTTP/1 is the same request
//! for each receiver.
//!
//! The octets choose parts of a request (method, target, fields, framing, pieces), so that most inputs are requests,
//! and some of their octets are put in as they are.

use super::block::{Coding, HeaderBlock};
use http_types::{BodyLength, Event, Known, RequestHead, TakenLines};
use wire_h1::{ChunkedDecoder, HeadLimits, HeadParser, ParseProgress, RequestWriter, Role, check_request};
use wire_h2::{Client, ClientLimits, Server, ServerLimits};

/// Parts of a request that receivers have to agree about.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    method: Vec<u8>,
    target: Vec<u8>,
    host: Option<Vec<u8>>,
    /// Names in lower case, without those of the connection and of the framing.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

const LIMITS: ServerLimits = ServerLimits {
    extended_connect: false,
    streams_max: 1,
    list_max: 64 * 1024,
    field_max: 16 * 1024,
    fields_max: 1000,
    underscores: false,
    ignore_invalid: true,
    stream_window: 65_535,
};

/// Panics unless an accepted request keeps its meaning.
pub fn round_trip(data: &[u8]) {
    let text = generate(&mut Choices { rest: data });
    let Some(first) = of_http1(&text) else { return };
    let Some(second) = over_http2(&first) else { return };
    assert_eq!(second, first, "over HTTP/2: {}", text.escape_ascii());
    let mut again = Vec::new();
    // Requests of HTTP/1.1 have a host.
    let minor = u8::from(second.host.is_some());
    let mut writer = RequestWriter::new(&mut again, &second.method, &second.target, minor);
    if let Some(host) = &second.host {
        writer.field(b"Host", host);
    }
    for (name, value) in &second.fields {
        writer.field(name, value);
    }
    writer.field(b"Content-Length", second.body.len().to_string().as_bytes());
    assert!(writer.end(), "a field of an accepted request: {}", text.escape_ascii());
    again.extend_from_slice(&second.body);
    let third = of_http1(&again).unwrap_or_else(|| panic!("our own request is refused: {}", again.escape_ascii()));
    assert_eq!(third, second, "over HTTP/1 again: {}", text.escape_ascii());
}

/// Reads a request as the server does. Returns `None` for a refused or incomplete request.
fn of_http1(text: &[u8]) -> Option<Request> {
    let (mut parser, mut head) = (HeadParser::default(), RequestHead::default());
    let Ok(ParseProgress::Done { consumed }) = parser.parse(text, &HeadLimits::default(), &mut head) else {
        return None;
    };
    let rest = text.get(consumed..)?;
    let body = match check_request(&head, text, false).ok()? {
        BodyLength::Exact(length) => rest.get(..usize::try_from(length).ok()?)?.to_vec(),
        BodyLength::Chunked => dechunked(rest)?,
        _ => Vec::new(),
    };
    let host = head.fields.first(Known::Host).map(|span| span.of(text).to_vec());
    let left_out = |name: &[u8], value: &[u8]| {
        matches!(name, b"host" | b"content-length" | b"te") || http_types::is_connection_field(name, value)
    };
    let lines = head.fields.all.iter().map(|field| (field.name.of(text).to_ascii_lowercase(), field.value.of(text)));
    let fields = lines.filter(|(name, value)| !left_out(name, value)).map(|(name, value)| (name, value.to_vec()));
    Some(Request {
        method: head.method_span.of(text).to_vec(),
        target: head.request_uri().of(text).to_vec(),
        host,
        fields: fields.collect(),
        body,
    })
}

fn dechunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let (mut decoder, mut body) = (ChunkedDecoder::new(Role::Server), Vec::new());
    loop {
        let decoded = decoder.decode(rest).ok()?;
        body.extend_from_slice(rest.get(decoded.data.clone())?);
        rest = rest.get(decoded.consumed..)?;
        if decoded.done {
            return Some(body);
        }
        if rest.is_empty() {
            return None;
        }
    }
}

/// Sends a request as the exchange does, and reads it as the server does. Returns `None` if the server rejects a
/// request that HTTP/2 cannot carry.
fn over_http2(request: &Request) -> Option<Request> {
    let (mut client, mut server) = (Client::new(ClientLimits::default()), Server::new(LIMITS));
    let mut block = Vec::new();
    let mut head =
        HeaderBlock::new(Coding::Http2, &request.method, false, &request.target, request.host.as_deref(), &mut block);
    for (name, value) in &request.fields {
        head.field(name, value);
    }
    let stream = client.open(&block, request.body.is_empty())?;
    if !request.body.is_empty() {
        assert_eq!(client.send_body(stream, &request.body, true), request.body.len(), "within the first window");
    }
    assert!(server.receive(client.output()).is_ok(), "our own frames");
    let (mut got, mut body) = (None, Vec::new());
    while let Some(event) = server.poll_event() {
        match event {
            Event::Head { list, message, .. } => {
                let message = message.ok()?;
                let fields = message.fields.iter().filter_map(|index| list.fields.get(*index));
                let fields =
                    fields.map(|(name, value)| (name.of(&list.arena).to_vec(), value.of(&list.arena).to_vec()));
                got = Some(Request {
                    method: message.method.of(&list.arena).to_vec(),
                    target: message.path.of(&list.arena).to_vec(),
                    host: message.authority.map(|place| place.of(&list.arena).to_vec()),
                    fields: fields.collect(),
                    body: Vec::new(),
                });
            }
            Event::Body(_) => {
                while let TakenLines::Bytes(bytes) = server.take_body(stream) {
                    body.extend_from_slice(&bytes);
                }
            }
            _ => {}
        }
    }
    got.map(|got| Request { body, ..got })
}

/// Decisions from octets; 0 when they are used up.
struct Choices<'a> {
    rest: &'a [u8],
}

impl Choices<'_> {
    fn octet(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }
    fn below(&mut self, n: usize) -> usize {
        usize::from(self.octet()) % n.max(1)
    }
    fn one<'b>(&mut self, of: &[&'b [u8]]) -> &'b [u8] {
        of.get(self.below(of.len())).copied().unwrap_or_default()
    }
    /// A listed text, or octets of the input.
    fn text(&mut self, of: &[&[u8]], out: &mut Vec<u8>) {
        if self.below(4) > 0 {
            out.extend_from_slice(self.one(of));
            return;
        }
        let length = self.below(24).min(self.rest.len());
        let (text, rest) = self.rest.split_at(length);
        out.extend_from_slice(text);
        self.rest = rest;
    }
}

const METHODS: &[&[u8]] = &[b"GET", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PROPFIND", b"X-A", b"HEAD"];
const TARGETS: &[&[u8]] =
    &[b"/", b"/a/b?c=d", b"/%2e%2e/x", b"//a", b"http://h/p?q", b"*", b"/a#b", b"http://h", b"/\xc3\xa9", b"?q"];
const HOSTS: &[&[u8]] = &[b"localhost", b"a.example:80", b"[::1]:8", b"A.b", b"", b"a, b", b"a@b"];
const NAMES: &[&[u8]] = &[
    b"Accept",
    b"Cookie",
    b"X-Y",
    b"x_y",
    b"Connection",
    b"TE",
    b"Upgrade",
    b"Keep-Alive",
    b"Proxy-Connection",
    b":path",
    b"Content-Type",
    b"HTTP2-Settings",
    b"Trailer",
    b"Expect",
    b"Content-Length",
    b"Transfer-Encoding",
    b"Host",
];
const VALUES: &[&[u8]] =
    &[b"a", b"", b" a ", b"a, b", b"a=b; c=d", b"trailers", b"chunked", b"close", b"0", b"\xff\xfe", b"\t", b"X-Y"];

/// Whole, or not quite.
fn generate(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    choices.text(METHODS, &mut out);
    out.push(b' ');
    choices.text(TARGETS, &mut out);
    out.extend_from_slice(choices.one(&[b" HTTP/1.1\r\n", b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b" HTTP/1.1\n"]));
    if choices.below(8) > 0 {
        out.extend_from_slice(b"Host: ");
        choices.text(HOSTS, &mut out);
        out.extend_from_slice(b"\r\n");
    }
    for _ in 0..choices.below(6) {
        choices.text(NAMES, &mut out);
        out.extend_from_slice(choices.one(&[b": ", b": ", b":", b" : "]));
        choices.text(VALUES, &mut out);
        out.extend_from_slice(choices.one(&[b"\r\n", b"\r\n", b"\r\n", b"\n"]));
    }
    let length = choices.below(5) * choices.below(60);
    let body: Vec<u8> = (0..length).map(|_| choices.octet()).collect();
    match choices.below(3) {
        0 => out.extend_from_slice(b"\r\n"),
        1 => {
            out.extend_from_slice(format!("Content-Length: {length}\r\n\r\n").as_bytes());
            out.extend_from_slice(&body);
        }
        _ => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            for part in body.chunks(1 + choices.below(40)) {
                out.extend_from_slice(format!("{:x}", part.len()).as_bytes());
                out.extend_from_slice(choices.one(&[b"\r\n", b"\r\n", b";a=b\r\n", b"\n"]));
                out.extend_from_slice(part);
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(choices.one(&[b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", b""]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_requests_keep_their_meaning() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        let (mut accepted, mut carried) = (0, 0);
        for _ in 0..30_000 {
            let data: Vec<u8> = (0..300).map(|_| next()).collect();
            if let Some(request) = of_http1(&generate(&mut Choices { rest: &data })) {
                accepted += 1;
                carried += usize::from(over_http2(&request).is_some());
            }
            round_trip(&data);
        }
        assert!(accepted > 2000 && carried > 1500, "{accepted} accepted, {carried} carried");
    }
}
