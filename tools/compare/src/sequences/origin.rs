//! The servers behind: several listeners whose responses the query of a request describes, and the requests they received.
//!
//! | Argument | Effect |
//! |---|---|
//! | `s` | status, or `close`, `reset`, `bad`, `short`, `early` |
//! | `on` | digits of the servers that `s` applies to (default: all) |
//! | `f`, `fs` | from the `f`-th request of a path on, the status is `fs` |
//! | `z` | octets of the body |
//! | `ch`, `eof`, `tr`, `eh` | chunked, ends with the connection, with a trailer, behind early hints |
//! | `c`, `r` | answers conditions and ranges |
//! | `cc`, `v`, `e`, `lm`, ... | fields ([`FIELDS`]) |

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Number of servers.
pub const SERVERS: usize = 6;
/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Arguments whose value becomes a field.
const FIELDS: [(&str, &str); 12] = [
    ("cc", "Cache-Control"),
    ("v", "Vary"),
    ("e", "ETag"),
    ("xa", "X-Accel-Expires"),
    ("sc", "Set-Cookie"),
    ("ex", "Expires"),
    ("ce", "Content-Encoding"),
    ("lm", "Last-Modified"),
    ("pr", "Pragma"),
    ("age", "Age"),
    ("loc", "Location"),
    ("xr", "X-Accel-Redirect"),
];

#[derive(Default)]
struct State {
    /// Requests, by the client that the argument `n` names.
    notes: BTreeMap<String, Vec<String>>,
    /// Requests per path.
    hits: BTreeMap<String, u32>,
    /// Connections with a request, per server.
    connections: [u32; SERVERS],
}

/// Runs in background threads until the process ends.
pub struct ScriptOrigin {
    pub ports: [u16; SERVERS],
    state: Arc<Mutex<State>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ScriptOrigin {
    /// # Errors
    /// No socket.
    pub fn start() -> std::io::Result<ScriptOrigin> {
        let state = Arc::new(Mutex::new(State::default()));
        let mut ports = [0; SERVERS];
        for (index, port) in ports.iter_mut().enumerate() {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            *port = listener.local_addr()?.port();
            let state = state.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let state = state.clone();
                    // The proxy sees a broken connection as the end.
                    std::thread::spawn(move || serve(stream, index, &state));
                }
            });
        }
        Ok(ScriptOrigin { ports, state })
    }

    /// Drops everything of an earlier run.
    pub fn forget(&self) {
        *lock(&self.state) = State::default();
    }

    /// Removes and returns the requests of a client.
    pub fn take(&self, client: &str) -> Vec<String> {
        lock(&self.state).notes.remove(client).unwrap_or_default()
    }

    /// Replaces the servers' ports.
    pub fn named(&self, text: &str) -> String {
        let name =
            |text: String, (index, port): (usize, &u16)| text.replace(&port.to_string(), &format!("ORIGIN{index}"));
        self.ports.iter().enumerate().fold(text.to_string(), name)
    }
}

/// Arguments of a query, decoded.
struct Query(BTreeMap<String, String>);

impl Query {
    fn of(target: &str) -> Query {
        let query = target.split_once('?').map_or("", |(_, query)| query);
        Query(query.split('&').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.into(), decoded(v))).collect())
    }
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
    fn number(&self, name: &str) -> Option<usize> {
        self.get(name)?.parse().ok()
    }
    fn is_on(&self, name: &str) -> bool {
        self.get(name) == Some("1")
    }
}

fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        match part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(octet) => {
                out.push(char::from(octet));
                out += part.get(2..).unwrap_or_default();
            }
            None => out = out + "%" + part,
        }
    }
    out
}

/// A request as it was received.
struct OriginRequest {
    line: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    /// The connection ended before the request did.
    is_cut: bool,
}

impl OriginRequest {
    /// Reads one; `None`: the connection has ended.
    fn read(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<OriginRequest>> {
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let mut request =
            OriginRequest { line: shown_line(&line), fields: Vec::new(), body: Vec::new(), is_cut: false };
        loop {
            let mut line = Vec::new();
            if reader.read_until(b'\n', &mut line)? == 0 {
                request.is_cut = true;
                return Ok(Some(request));
            }
            if line == b"\r\n" {
                break;
            }
            let text = shown_line(&line);
            let (name, value) = text.split_once(':').unwrap_or((&text, ""));
            request.fields.push((name.into(), value.trim().into()));
        }
        let length = request.field("content-length").and_then(|n| n.parse::<u64>().ok());
        if let Some(length) = length {
            reader.take(length).read_to_end(&mut request.body)?;
            request.is_cut = (request.body.len() as u64) < length;
        } else if request.field("transfer-encoding").is_some() {
            request.is_cut = chunks(reader, &mut request.body).is_none();
        }
        Ok(Some(request))
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Names every part. A body that is complete may have a length or come in chunks.
    fn shown(&self) -> String {
        let framing = ["content-length", "transfer-encoding"];
        let mut out = self.line.clone();
        for (name, value) in &self.fields {
            if !framing.iter().any(|own| name.eq_ignore_ascii_case(own)) {
                out += &format!(" | {name}: {value}");
            }
        }
        if framing.iter().any(|name| self.field(name).is_some()) {
            out += &format!(" | body {}", super::client::shown_body(&self.body));
        }
        out + if self.is_cut { " and the end" } else { "" }
    }
}

fn shown_line(line: &[u8]) -> String {
    line.trim_ascii_end().escape_ascii().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

/// Reads chunks; `None`: they end early.
fn chunks(reader: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> Option<()> {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let size = u64::from_str_radix(line.trim_end(), 16).ok()?;
        let before = body.len() as u64;
        reader.take(size).read_to_end(body).ok()?;
        let mut end = [0; 2];
        reader.read_exact(&mut end).ok()?;
        if body.len() as u64 - before < size {
            return None;
        }
        if size == 0 {
            return Some(());
        }
    }
}

fn serve(stream: TcpStream, server: usize, state: &Mutex<State>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut out = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    let mut connection = 0;
    while let Some(request) = OriginRequest::read(&mut reader)? {
        let target = request.line.split(' ').nth(1).unwrap_or_default().to_string();
        let query = Query::of(&target);
        let hit = {
            let mut state = lock(state);
            if connection == 0 {
                let count = state.connections.get_mut(server).into_iter();
                count.for_each(|count| *count += 1);
                connection = state.connections.get(server).copied().unwrap_or_default();
            }
            let path = target.split('?').next().unwrap_or_default().to_string();
            let hit = state.hits.entry(path).or_default();
            *hit += 1;
            let hit = *hit;
            let words = format!("server {server}, connection {connection}: {}", request.shown());
            state.notes.entry(query.get("n").unwrap_or_default().into()).or_default().push(words);
            hit
        };
        if request.is_cut {
            return Ok(());
        }
        let ends = request.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
            || request.line.ends_with("HTTP/1.0");
        let response = OriginResponse::to(&request, &query, server, hit);
        match &response {
            OriginResponse::Nothing { reset } => {
                if *reset {
                    socket2::SockRef::from(&out).set_linger(Some(Duration::ZERO))?;
                }
                return Ok(());
            }
            OriginResponse::Bytes { bytes, last } => {
                out.write_all(bytes)?;
                if *last || ends {
                    out.shutdown(Shutdown::Write)?;
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

enum OriginResponse {
    /// The connection ends.
    Nothing { reset: bool },
    Bytes {
        bytes: Vec<u8>,
        /// The connection ends behind the response.
        last: bool,
    },
}

impl OriginResponse {
    fn to(request: &OriginRequest, query: &Query, server: usize, hit: u32) -> OriginResponse {
        let is_head = request.line.starts_with("HEAD ");
        let applies = query.get("on").is_none_or(|on| on.contains(&server.to_string()));
        let mut status = query.get("s").filter(|_| applies).unwrap_or("200");
        if query.number("f").is_some_and(|from| hit as usize >= from) {
            status = query.get("fs").unwrap_or("500");
        }
        match status {
            "close" | "reset" => return OriginResponse::Nothing { reset: status == "reset" },
            "bad" => return OriginResponse::Bytes { bytes: b"junk\r\n\r\n".to_vec(), last: true },
            _ => {}
        }
        let is_short = status == "short";
        if is_short {
            status = "200";
        }
        let method = request.line.split(' ').next().unwrap_or_default();
        let start = format!("{server} {method} n={hit} {} ", request.body.len());
        let size = query.number("z").unwrap_or(30);
        let mut body: Vec<u8> = start.bytes().chain(b"abcdefghij".iter().copied().cycle()).take(size).collect();
        let mut fields = String::new();
        for (argument, name) in FIELDS {
            if let Some(value) = query.get(argument) {
                fields += &format!("{name}: {value}\r\n");
            }
        }
        let is_asked =
            |field: &str, argument: &str| request.field(field).is_some_and(|value| query.get(argument) == Some(value));
        if status == "200"
            && query.is_on("c")
            && (is_asked("if-none-match", "e") || is_asked("if-modified-since", "lm"))
        {
            status = "304";
        }
        if query.is_on("r") {
            fields += "Accept-Ranges: bytes\r\n";
            let range = request.field("range").and_then(|value| value.strip_prefix("bytes=")?.split_once('-'));
            let numbers = range.and_then(|(from, to)| Some((from.parse().ok()?, to.parse().unwrap_or(size))));
            if let Some((from, to)) = numbers.filter(|_| status == "200") {
                let to: usize = to.min(size.saturating_sub(1));
                match body.get(from..=to).filter(|part| !part.is_empty()) {
                    Some(part) => {
                        (status, body) = ("206", part.to_vec());
                        fields += &format!("Content-Range: bytes {from}-{to}/{size}\r\n");
                    }
                    None => {
                        (status, body) = ("416", Vec::new());
                        fields += &format!("Content-Range: bytes */{size}\r\n");
                    }
                }
            }
        }
        let hints = if query.is_on("eh") { "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" } else { "" };
        let kind = query.get("ct").unwrap_or("plain");
        let mut head = format!(
            "{hints}HTTP/1.1 {status} X\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Type: text/{kind}\r\n{fields}"
        );
        let has_body = !is_head && status != "304" && status != "204";
        let mut last = is_short;
        let coded = if matches!(status, "204" | "304") {
            Vec::new()
        } else if query.is_on("ch") && has_body {
            head += "Transfer-Encoding: chunked\r\n";
            chunked(&body, query.is_on("tr"), is_short)
        } else if query.is_on("eof") && has_body {
            head += "Connection: close\r\n";
            last = true;
            body
        } else {
            head += &format!("Content-Length: {}\r\n", body.len());
            let sent = if is_short { body.len() / 2 } else { body.len() };
            body.truncate(if has_body { sent } else { 0 });
            body
        };
        let bytes = [head.as_bytes(), b"\r\n", &coded].concat();
        OriginResponse::Bytes { bytes, last }
    }
}

fn chunked(body: &[u8], has_trailer: bool, is_short: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for part in body.chunks(body.len().div_ceil(2).max(1)) {
        out.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
    if !is_short {
        out.extend_from_slice(if has_trailer { b"0\r\nX-Trailer: t\r\n\r\n" } else { b"0\r\n\r\n" });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(line: &str, fields: &[(&str, &str)]) -> String {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let request = OriginRequest { line: line.into(), fields, body: Vec::new(), is_cut: false };
        let query = Query::of(line.split(' ').nth(1).unwrap_or_default());
        match OriginResponse::to(&request, &query, 2, 1) {
            OriginResponse::Bytes { bytes, .. } => String::from_utf8_lossy(&bytes).into_owned(),
            OriginResponse::Nothing { .. } => "nothing".into(),
        }
    }

    #[test]
    fn queries_describe_responses() {
        assert!(response("GET /?s=404&on=13 HTTP/1.1", &[]).starts_with("HTTP/1.1 200 X\r\n"));
        assert!(response("GET /?s=404&on=12 HTTP/1.1", &[]).starts_with("HTTP/1.1 404 X\r\n"));
        assert!(response("GET /?f=1&fs=500 HTTP/1.1", &[]).starts_with("HTTP/1.1 500 X\r\n"));
        assert_eq!(response("GET /?s=close HTTP/1.1", &[]), "nothing");
        let found = response("GET /?r=1&z=10 HTTP/1.1", &[("Range", "bytes=8-")]);
        assert!(
            found.starts_with("HTTP/1.1 206 X\r\n") && found.contains("Content-Range: bytes 8-9/10\r\n"),
            "{found}"
        );
        assert!(response("GET /?r=1&z=10 HTTP/1.1", &[("range", "bytes=20-")]).starts_with("HTTP/1.1 416 X\r\n"));
        assert!(
            response("GET /?c=1&e=%22a%22 HTTP/1.1", &[("if-none-match", "\"a\"")]).starts_with("HTTP/1.1 304 X\r\n")
        );
        let found = response("GET /?ch=1&z=4&tr=1 HTTP/1.1", &[]);
        assert!(found.ends_with("\r\n\r\n2\r\n2 \r\n2\r\nGE\r\n0\r\nX-Trailer: t\r\n\r\n"), "{found}");
    }
}
