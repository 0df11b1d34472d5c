//! Clients: single requests, and connections whose bytes arrive in parts.

use super::{FreshRequest, SceneStep, Talk, known};
use crate::normal;
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than anything takes; only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Long enough for responses of one second to expire: servers count whole seconds.
const PAUSE: Duration = Duration::from_millis(2_200);
/// A server that sends nothing for so long waits for the client. On a busy machine a reply may take longer: differences are
/// compared again before they count.
const SILENT: Duration = Duration::from_millis(150);
/// Between parts of a response.
const QUIET: Duration = Duration::from_millis(50);
/// Octets of a body that are shown.
const SHOWN_MAX: usize = 120;

/// State of a client between the requests of a scene.
#[derive(Default)]
pub struct Client {
    /// The latest cookie of `sticky cookie`.
    cookie: String,
}

impl Client {
    /// Takes a step; returns what the server sent, line by line.
    pub fn take(&mut self, step: &SceneStep, port: u16) -> String {
        match step {
            SceneStep::Pause => {
                std::thread::sleep(PAUSE);
                String::new()
            }
            SceneStep::Ask(ask) => {
                let text = asked(&self.bytes(ask), port).unwrap_or_else(|e| format!("<{}>", e.kind()));
                let cookie = text.lines().find_map(|line| line.strip_prefix("Set-Cookie: srv="));
                if let Some(cookie) = cookie.filter(|_| !known::is_own_failure(&text)) {
                    self.cookie = cookie.split(';').next().unwrap_or_default().into();
                }
                text
            }
            SceneStep::Talk(talk) => talked(talk, port).unwrap_or_else(|e| format!("<{}>", e.kind())),
        }
    }

    fn bytes(&self, ask: &FreshRequest) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: a\r\n", ask.method, ask.target);
        for field in &ask.fields {
            if field == super::STICKY {
                if !self.cookie.is_empty() {
                    head += &format!("Cookie: srv={}\r\n", self.cookie);
                }
            } else {
                head += &format!("{field}\r\n");
            }
        }
        head += "Connection: close\r\n\r\n";
        [head.as_bytes(), &ask.body].concat()
    }
}

/// A body, shortened; error pages lose the version.
pub fn shown_body(body: &[u8]) -> String {
    const PAGE: &[u8] = b"<center>nginx/";
    if body.windows(PAGE.len()).any(|w| w == PAGE) {
        return normal::unversioned(&String::from_utf8_lossy(body)).escape_debug().to_string();
    }
    let hash = body
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3));
    match body.get(..SHOWN_MAX) {
        Some(start) => format!("{} ... {} octets, hash {hash:x}", start.escape_ascii(), body.len()),
        None => body.escape_ascii().to_string(),
    }
}

fn asked(request: &[u8], port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // A server that refuses a request may close before its body.
    let _ = stream.write_all(request);
    let (mut all, mut buf) = (Vec::new(), vec![0; 64 * 1024]);
    let state = loop {
        match stream.read(&mut buf) {
            Ok(n @ 1..) => all.extend_from_slice(buf.get(..n).unwrap_or_default()),
            Ok(_) => break "",
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break "<nothing more comes>",
            Err(_) => break "",
        }
    };
    let Some(end) = all.windows(4).position(|w| w == b"\r\n\r\n") else {
        return Ok(format!("{}{state}\n", shown_body(&all)));
    };
    let (head, body) = all.split_at(end + 4);
    let raw = String::from_utf8_lossy(head).into_owned();
    let is_chunked = raw.contains("\r\nTransfer-Encoding: chunked\r\n") && !body.is_empty();
    let body = if is_chunked { normal::unchunked(body) } else { body.to_vec() };
    let body = body.strip_suffix(b"\r\n\r\n").filter(|_| is_chunked).unwrap_or(&body);
    // Responses in memory have a length, where nginx sends chunks.
    let framing = ["Transfer-Encoding: chunked".to_string(), format!("Content-Length: {}", body.len())];
    let mut out = String::new();
    let head = normal::normal_answer(head, &|text| text.to_string());
    for line in String::from_utf8_lossy(&head).split_terminator("\r\n").filter(|line| !line.is_empty()) {
        if !framing.iter().any(|own| own == line) {
            out += &format!("{line}\n");
        }
    }
    let boundary = raw.split_once("; boundary=").map(|(_, rest)| rest.split("\r\n").next().unwrap_or_default());
    let mut text = if raw.contains("\r\nContent-Encoding: gzip\r\n") { unzipped(body) } else { shown_body(body) };
    if let Some(boundary) = boundary {
        // The boundary is a number, and the hash of a body includes it.
        text = String::from_utf8_lossy(body).replace(boundary, "BOUNDARY").escape_debug().to_string();
    }
    Ok(format!("{out}{text}{state}\n"))
}

/// Decompresses a body: libraries of both servers compress differently. Others stay.
fn unzipped(body: &[u8]) -> String {
    let mut out = Vec::new();
    let end = flate2::read::GzDecoder::new(body).read_to_end(&mut out);
    match end {
        Ok(_) => format!("(compressed) {}", shown_body(&out)),
        Err(_) => shown_body(body),
    }
}

/// End of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed,
}

/// Reads until the server closes or falls silent.
fn settle(stream: &mut TcpStream, all: &mut Vec<u8>) -> State {
    let mut buf = vec![0; 64 * 1024];
    let _ = stream.set_read_timeout(Some(SILENT));
    loop {
        match stream.read(&mut buf) {
            Ok(n @ 1..) => {
                all.extend_from_slice(buf.get(..n).unwrap_or_default());
                let _ = stream.set_read_timeout(Some(QUIET));
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return State::Open,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            _ => return State::Closed,
        }
    }
}

fn talked(talk: &Talk, port: u16) -> std::io::Result<String> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 1, 0, talk.from), 0)).into())?;
    socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
    socket.set_tcp_nodelay(true)?;
    let mut stream: TcpStream = socket.into();
    let mut all = Vec::new();
    let mut state = State::Open;
    for part in &talk.parts {
        state = match stream.write_all(part) {
            Ok(()) => settle(&mut stream, &mut all),
            Err(_) => State::Closed,
        };
        if state == State::Closed {
            break;
        }
    }
    let mut end = match state {
        State::Open => known::OPEN,
        State::Closed => known::CLOSED,
    };
    if talk.half_closes && state == State::Open {
        let _ = stream.shutdown(Shutdown::Write);
        if settle(&mut stream, &mut all) == State::Closed {
            end = known::CLOSED_LATER;
        }
    }
    let text: String = String::from_utf8_lossy(&all).split("\r\n").map(line_of_stream).collect();
    Ok(format!("{text}{end}\n"))
}

/// Writes a line of responses that follow each other, without values of the moment.
fn line_of_stream(line: &str) -> String {
    const OF_MOMENT: [&str; 2] = ["Date: ", "Expires: "];
    match OF_MOMENT.iter().find(|start| line.starts_with(**start)) {
        Some(start) => format!("{start}*\n"),
        None if line.starts_with("Server: nginx/") => "Server: nginx\n".into(),
        None => format!("{}\n", shown_body(line.as_bytes())),
    }
}
