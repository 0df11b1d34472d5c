//! Runs one client: `openssl s_client` for handshakes, a socket for other bytes. Returns a text of all that the client saw.

use super::client::{Client, ClientKind, Handshake, Next};
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longer than anything takes; only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(6);
const GLANCE: Duration = Duration::from_millis(1);

/// Marks the start and the end of bodies.
pub const MARK: &str = "@body@";

/// Runs a client against the server on `port`; `files`: the folder of certificates.
pub fn run_client(client: &Client, port: u16, files: &Path) -> Vec<u8> {
    let shown = match &client.kind {
        ClientKind::Raw { bytes, ends } => {
            let came = raw(client, port, bytes, *ends).unwrap_or_else(|e| format!("<{:?}>", e.kind()).into());
            match came.as_slice() {
                // The version of the record depends on the library.
                [0x15, 3, _, 0, 2, 2, alert] => format!("alert {alert}\n"),
                came => http_text(came),
            }
        }
        ClientKind::Tls(handshake) => handshakes(client, handshake, port, files),
    };
    shown.into_bytes()
}

fn raw(client: &Client, port: u16, bytes: &[u8], ends: bool) -> std::io::Result<Vec<u8>> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 1, 0, client.from), 0)).into())?;
    socket.connect(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, client.door.host()), port)).into())?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    let _ = stream.write_all(bytes);
    if ends {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let (mut all, mut buf) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buf) {
            Ok(n @ 1..) => all.extend_from_slice(&buf[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                all.extend_from_slice(b"<and nothing more for a long time>");
                return Ok(all);
            }
            // A connection that is reset behind unread bytes has ended like any other.
            _ => return Ok(all),
        }
    }
}

/// A text of bytes without dates and line ends of the protocol.
fn http_text(bytes: &[u8]) -> String {
    let mut out = String::new();
    for line in bytes.split(|c| *c == b'\n') {
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned();
        let line = if line.starts_with("Date: ") { "Date: now".into() } else { line };
        let is_text = line.chars().all(|c| !c.is_control() || c == '\t');
        out += &if is_text { line } else { line.escape_debug().to_string() };
        out.push('\n');
    }
    out
}

/// The session of the first connection.
struct SessionFile(std::path::PathBuf);

impl Drop for SessionFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Session {
    Kept,
    Used,
    UsedEarly,
}

fn handshakes(client: &Client, handshake: &Handshake, port: u16, files: &Path) -> String {
    let session = SessionFile(files.join(format!("session-{}", client.from)));
    let early = files.join("early");
    let _ = std::fs::write(&early, request(handshake));
    let again = Handshake { renegotiates: false, ..handshake.clone() };
    let mut connections = vec![(handshake.clone(), Session::Kept)];
    match handshake.next {
        Next::End => {}
        Next::Resume(name) => {
            let other = Handshake { name, ..again };
            connections.extend([(other.clone(), Session::Used), (other, Session::Used)]);
        }
        Next::Early => connections.extend([(again.clone(), Session::UsedEarly), (again, Session::UsedEarly)]),
    }
    let mut out = String::new();
    for (index, (handshake, kind)) in connections.into_iter().enumerate() {
        let has_session = session.0.exists();
        let offers_early = out.contains("Max Early Data: 1");
        out += &format!("connection {}\n", index + 1);
        let mut options: Vec<String> = Vec::new();
        let path = |path: &Path| path.display().to_string();
        match kind {
            Session::Kept => options.extend(["-sess_out".into(), path(&session.0)]),
            _ if !has_session => {}
            Session::UsedEarly if offers_early => {
                options.extend(["-sess_in".into(), path(&session.0), "-early_data".into(), path(&early)]);
            }
            Session::Used | Session::UsedEarly => options.extend(["-sess_in".into(), path(&session.0)]),
        }
        let is_early = kind == Session::UsedEarly && has_session && offers_early;
        out += &connect(client, &handshake, &options, is_early, port, files);
    }
    out
}

/// The bytes of all requests.
fn request(handshake: &Handshake) -> Vec<u8> {
    if handshake.is_h2 {
        return h2_request(&handshake.hosts);
    }
    let last = handshake.hosts.len().saturating_sub(1);
    let one = |(index, host): (usize, &&str)| {
        let close = if index == last { "Connection: close\r\n" } else { "" };
        format!("GET /{} HTTP/1.1\r\nHost: {host}\r\n{close}\r\n", index + 1)
    };
    handshake.hosts.iter().enumerate().map(one).collect::<String>().into_bytes()
}

fn h2_request(hosts: &[&str]) -> Vec<u8> {
    /// GET and `https` of the static table; path and authority follow as literals (RFC 7541).
    const METHOD_AND_SCHEME: [u8; 2] = [0x82, 0x87];
    const PATH: u8 = 0x04;
    const AUTHORITY: u8 = 0x01;
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for (index, host) in hosts.iter().enumerate() {
        let mut block = METHOD_AND_SCHEME.to_vec();
        for (name, value) in [(PATH, format!("/{}", index + 1)), (AUTHORITY, (*host).to_string())] {
            block.extend([name, u8::try_from(value.len()).unwrap_or_default()]);
            block.extend_from_slice(value.as_bytes());
        }
        let (length, stream) = (u8::try_from(block.len()).unwrap_or_default(), u8::try_from(2 * index + 1));
        out.extend([0, 0, length, 1, 5, 0, 0, 0, stream.unwrap_or_default()]);
        out.extend_from_slice(&block);
    }
    out
}

/// Tells whether all responses over HTTP/2 have ended: a DATA frame with END_STREAM for each stream.
fn is_over(came: &[u8], streams: usize) -> bool {
    const FRAME: usize = 6;
    let ended = |index: usize| {
        let id = u8::try_from(2 * index + 1).unwrap_or_default();
        [[0, 1, 0, 0, 0, id], [1, 5, 0, 0, 0, id]].iter().any(|end| came.windows(FRAME).any(|part| part == end))
    };
    (0..streams).all(ended)
}

fn connect(
    client: &Client,
    handshake: &Handshake,
    options: &[String],
    mut is_early: bool,
    port: u16,
    files: &Path,
) -> String {
    // Without a buffer, messages of the program and bytes of the server keep their order.
    let mut command = Command::new("stdbuf");
    command.args(["-o0", "openssl", "s_client"]);
    command.args(["-connect", &format!("127.0.0.{}:{port}", client.door.host())]);
    command.args(["-bind", &format!("127.1.0.{}:0", client.from)]);
    match handshake.name {
        Some(name) => command.args(["-servername", name]),
        None => command.arg("-noservername"),
    };
    command.args(&handshake.options).args(options);
    if let Some(identity) = handshake.identity {
        let file = |end: &str| files.join(format!("{identity}.{end}")).display().to_string();
        command.args(["-cert", &file("crt"), "-cert_chain", &file("crt"), "-key", &file("key")]);
    }
    let is_http = client.door.is_http();
    // The program ends at the end of its input, or at the server's end.
    let ends = handshake.renegotiates || (handshake.is_h2 && is_http);
    if !ends {
        command.arg("-ign_eof");
    }
    let waits = ends || is_early;
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(e) => return format!("<openssl or stdbuf does not start: {e}>\n"),
    };
    let mut input = child.stdin.take();
    let text = match (handshake.renegotiates, is_http && !is_early) {
        (true, _) => b"R\n".to_vec(),
        (false, true) => request(handshake),
        (false, false) => Vec::new(),
    };
    if let Some(input) = &mut input {
        let _ = input.write_all(&text);
    }
    if !waits {
        input = None;
    }
    let came = Arc::new(Mutex::new(Vec::new()));
    let errors = Arc::new(Mutex::new(Vec::new()));
    let readers = [
        child.stdout.take().map(|pipe| reader(pipe, Arc::clone(&came))),
        child.stderr.take().map(|pipe| reader(pipe, Arc::clone(&errors))),
    ];
    let until = Instant::now() + PATIENCE;
    let mut hangs = false;
    while child.try_wait().ok().flatten().is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            hangs = true;
            break;
        }
        if let (Some(pipe), true) = (&mut input, is_early && is_http && lost_early_data(&taken(&came))) {
            let _ = pipe.write_all(&request(handshake));
            is_early = false;
        }
        if input.is_some() && !is_early && !ends {
            input = None;
        }
        if input.is_some() && handshake.is_h2 && is_over(&taken(&came), handshake.hosts.len()) {
            input = None;
        }
        std::thread::park_timeout(GLANCE);
    }
    for reader in readers.into_iter().flatten() {
        let _ = reader.join();
    }
    let mut out = report(&taken(&came), &taken(&errors), handshake.is_h2 && is_http);
    if hangs {
        out += "    <nothing more for a long time>\n";
    }
    out
}

/// Tells whether the server did not take the request in early data: it has to be sent again.
fn lost_early_data(came: &[u8]) -> bool {
    let text = String::from_utf8_lossy(came);
    ["Early data was rejected", "Early data was not sent"].iter().any(|words| text.contains(words))
}

fn taken(bytes: &Mutex<Vec<u8>>) -> Vec<u8> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn reader(mut pipe: impl Read + Send + 'static, into: Arc<Mutex<Vec<u8>>>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buf = [0; 16 * 1024];
        while let Ok(n @ 1..) = pipe.read(&mut buf) {
            into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buf[..n]);
        }
    })
}

/// Starts of lines of `s_client` about the connection.
const FACTS: [&str; 9] = [
    "New, ",
    "Reused, ",
    "ALPN protocol: ",
    "No ALPN negotiated",
    "Server Temp Key: ",
    "Peer signing digest: ",
    "Peer signature type: ",
    "Early data was ",
    "Secure Renegotiation IS ",
];

/// Starts of lines of a ticket or of a session of TLS 1.2.
const SESSION_FACTS: [&str; 1] = ["Max Early Data: "];

/// Returns the program's errors: reasons, and numbers of alerts.
fn error_lines(errors: &[u8]) -> String {
    let mut text = String::new();
    for line in String::from_utf8_lossy(errors).lines() {
        let parts: Vec<&str> = line.split(':').collect();
        if let [_, "error", _, _, _, reason, .., more] = parts.as_slice() {
            text += &format!("    {reason} {more}\n");
        } else if line.contains("errno") {
            text += "    broken\n";
        }
    }
    text
}

/// A text of the program's output.
fn report(out: &[u8], errors: &[u8], is_h2: bool) -> String {
    let data_at = [&b"HTTP/1."[..], MARK.as_bytes()]
        .iter()
        .filter_map(|start| out.windows(start.len()).position(|part| part == *start))
        .min()
        .unwrap_or(out.len());
    let (before, data) = out.split_at(data_at);
    let mut text = String::new();
    let errors = error_lines(errors);
    if !errors.is_empty() && data.is_empty() {
        // The state of a failed handshake depends on the order of a library's checks.
        return errors;
    }
    let mut has_tickets = false;
    let mut in_names = false;
    let mut session = String::new();
    for line in String::from_utf8_lossy(before).lines() {
        let line = line.trim_end();
        let bare = line.trim_start();
        has_tickets |= bare.starts_with("Post-Handshake New Session Ticket");
        in_names = match bare {
            "Acceptable client certificate CA names" | "No client certificate CA names sent" => true,
            _ => in_names && !["---", "Requested Signature", "Client Certificate"].iter().any(|s| bare.starts_with(s)),
        };
        let is_chain = line.starts_with("   i:") || line.get(1..).is_some_and(|rest| rest.contains(" s:"));
        let is_fact = FACTS.iter().any(|start| line.starts_with(start));
        let is_session = SESSION_FACTS.iter().any(|start| bare.starts_with(start));
        let has_id = bare.strip_prefix("Session-ID: ").is_some_and(|id| !id.is_empty());
        if in_names || is_chain || is_fact {
            text += &format!("    {bare}\n");
        }
        session = match is_session {
            // Of several tickets, the last one counts.
            true => format!("{session}    {bare}\n"),
            // The next ticket.
            _ if has_id => String::new(),
            _ => session,
        };
    }
    // Tickets without early data depend on the cache.
    text += if session.contains("Max Early Data: 0") { "" } else { &session };
    if has_tickets {
        text += if session.contains("Max Early Data: 0") { "" } else { "    has tickets\n" };
    }
    text += &errors;
    let tail = String::from_utf8_lossy(out);
    let is_closed = tail.ends_with("closed\n") || tail.ends_with("DONE\n");
    if !is_closed && tail.contains("read:errno=0") {
        text += "    ended without close_notify\n";
    }
    if is_h2 && !data.starts_with(b"HTTP/1.") {
        for body in String::from_utf8_lossy(data).split(MARK).skip(1).step_by(2) {
            text += &format!("{body}\n");
        }
        return text;
    }
    let data = http_text(data);
    let own = |line: &&str| !["read R BLOCK", "closed", "DONE", ""].contains(line) && !line.starts_with("read:errno");
    for line in data.lines().filter(own) {
        text += &format!("{line}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_facts_and_data() {
        let out = b"CONNECTED(00000003)\n---\nCertificate chain\n 0 s:CN = a\n   i:CN = r\n---\n\
            Acceptable client certificate CA names\nCN = r\nRequested Signature Algorithms: x\n\
            New, TLSv1.3, Cipher is X\n    Session-ID: 0A\n    Max Early Data: 1\n\
            \x20   Session-ID: 0B\n    Max Early Data: 16384\nHTTP/1.1 200 OK\r\nDate: today\r\n\r\nbody\nclosed\n";
        let errors = b"verify error:num=20\n";
        let text = report(out, errors, false);
        let expected = "    0 s:CN = a\n    i:CN = r\n    Acceptable client certificate CA names\n    CN = r\n    \
            New, TLSv1.3, Cipher is X\n    Max Early Data: 16384\nHTTP/1.1 200 OK\nDate: now\nbody\n";
        assert_eq!(text, expected);
        let errors = b"4:error:0A00:SSL routines:f:no renegotiation:../x.c:1:\n";
        assert_eq!(report(b"New, TLSv1.2, Cipher is X\n", errors, false), "    no renegotiation \n");
        assert!(report(b"read:errno=0\n", b"", false).contains("without close_notify"));
    }

    #[test]
    fn streams_end_one_by_one() {
        let end = |id: u8| [0, 0, 1, 0, 1, 0, 0, 0, id, b'x'];
        assert!(is_over(&end(1), 1));
        assert!(!is_over(&end(1), 2));
        assert!(is_over(&[end(3), end(1)].concat(), 2));
        let bytes = h2_request(&["a", "b"]);
        assert!(bytes.ends_with(&[0x82, 0x87, 4, 2, b'/', b'2', 1, 1, b'b']));
    }
}
