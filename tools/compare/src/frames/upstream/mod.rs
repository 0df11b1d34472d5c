//! `--upstream-frames`: servers of HTTP/2 behind `grpc_pass` and `proxy_http_version 2` answer with random frames, good and faulty
//! ones. Compared are the responses that clients of HTTP/1.1 and of cleartext HTTP/2 receive, the requests that the servers receive,
//! and the lines of both logs.

mod known;
mod peer;
mod pool;
mod script;

use super::acts::request_fields;
use super::pool::{FramePlace, FramePut};
use super::transcript::Transcript;
use super::{Differs, FramesSubject, by_client, in_parallel, put, reduce, wire};
use crate::server::{Binary, Dirs, ServerRun};
use crate::stream::without_ports;
use crate::{Dice, Plan, normal};
use peer::{Peer, Scripts};
use script::{FrameMove, Maker};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Sessions of one configuration, each with a server of its own.
const SESSIONS: u8 = 24;
/// Frames that the proxy sends behind a response arrive within this time.
const AFTERWARDS: Duration = Duration::from_millis(30);
/// Longer than a response takes, read timeouts of the configuration included.
const PATIENCE: Duration = Duration::from_millis(2_500);

/// Requests of a client, and the answers of its server.
#[derive(Clone, Debug)]
pub struct UpstreamSession {
    pub from: u8,
    pub grpc: bool,
    /// The client speaks HTTP/2.
    pub h2: bool,
    pub requests: Vec<UpstreamRequest>,
    pub scripts: Scripts,
}

#[derive(Clone, Copy, Debug)]
pub struct UpstreamRequest {
    pub method: &'static str,
    /// Octets of the body.
    pub body: usize,
}

impl std::fmt::Display for UpstreamSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let protocol = if self.grpc { "gRPC" } else { "HTTP/2" };
        writeln!(f, "client of HTTP/{}, server of {protocol}", if self.h2 { "2" } else { "1.1" })?;
        for ask in &self.requests {
            writeln!(f, "    > {} with {} octets", ask.method, ask.body)?;
        }
        let mut list = |title: &str, steps: &[FrameMove]| -> std::fmt::Result {
            writeln!(f, "    {title}")?;
            steps.iter().try_for_each(|step| writeln!(f, "      < {}", step.words))
        };
        list("opening", &self.scripts.opening)?;
        self.scripts.answers.iter().try_for_each(|steps| list("answer", steps))
    }
}

fn draw_session(dice: &mut Dice, from: u8) -> UpstreamSession {
    const METHODS: &[&str] = &["GET", "GET", "POST", "POST", "HEAD", "PUT"];
    const BODIES: &[usize] = &[0, 5, 5, 3_000, 30_000, 100_000];
    let (grpc, h2) = (dice.below(2) == 0, dice.below(2) == 0);
    let count = 1 + dice.below(3);
    let mut requests = Vec::new();
    for _ in 0..count {
        let method = METHODS[dice.below(METHODS.len())];
        let body = if matches!(method, "POST" | "PUT") { BODIES[dice.below(BODIES.len())] } else { 0 };
        requests.push(UpstreamRequest { method, body });
    }
    let mut maker = Maker { dice, grpc };
    let opening = maker.opening();
    let faulty = maker.dice.below(count);
    let answers = (0..count).map(|index| maker.script(index != faulty)).collect();
    UpstreamSession { from, grpc, h2, requests, scripts: Scripts { opening, answers } }
}

/// The configuration with the directives in their places.
fn text(
    puts: &[FramePut],
    dirs: &Dirs,
    port: u16,
    sessions: &[UpstreamSession],
    peers: &[Peer],
    binary: &Binary,
) -> String {
    let [http, server, location, upstream] =
        [FramePlace::Http, FramePlace::Server, FramePlace::Location, FramePlace::Upstream]
            .map(|place| put(puts, place));
    let mut groups = String::new();
    let mut locations = String::new();
    for (session, peer) in sessions.iter().zip(peers) {
        let from = session.from;
        let line = format!("server 127.0.0.1:{} max_fails=0;", peer.port);
        groups += &format!("    upstream u{from} {{ {line} {} keepalive 4; }}\n", upstream.replace("AGAIN", &line));
        let pass = match session.grpc {
            true => format!("grpc_pass grpc://u{from};"),
            false => format!("proxy_http_version 2; proxy_pass http://u{from};"),
        };
        locations += &format!("        location /{from}/ {{ {location} {pass} }}\n");
    }
    let conf = format!(
        "daemon off;
worker_processes 1;
{user}
pid DIR/pid;
error_log DIR/error.log info;
events {{ }}
http {{
    {own}
    log_format all '$http_x_client|$status|$request|$upstream_cache_status|'
                   '$upstream_http_x_own|$upstream_http_grpc_status';
    access_log DIR/access.log all;
    client_body_temp_path DIR/bodies;
    http2 on;
    grpc_read_timeout 500ms;
    grpc_send_timeout 500ms;
    proxy_read_timeout 500ms;
    proxy_send_timeout 500ms;
    proxy_cache_path DIR/cache keys_zone=one:1m;
{groups}
    {http}
    server {{
        listen 127.0.0.1:PORT;
        server_name localhost;
        {server}
        location / {{ return 200 'text of $request_uri'; }}
        location @named {{ return 200 'named'; }}
{locations}
    }}
}}
",
        user = if binary.nginx { "user root root;" } else { "" },
        own = if binary.nginx { "" } else { "server_identity nginx;" },
    );
    conf.replace("PORT", &port.to_string()).replace("DIR", &dirs.folder.display().to_string())
}

/// Octets of a request's body.
fn body(length: usize) -> Vec<u8> {
    b"abcdefghij".iter().cycle().take(length).copied().collect()
}

/// Returns the octets up to the end of the connection.
fn ask_http1(port: u16, from: u8, index: usize, ask: UpstreamRequest) -> std::io::Result<Vec<u8>> {
    let mut socket = connect(from, port)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let length = if ask.body > 0 { format!("Content-Length: {}\r\n", ask.body) } else { String::new() };
    let head = format!(
        "{} /{from}/{index} HTTP/1.1\r\nHost: localhost\r\nX-Client: 127.1.0.{from}\r\nTE: trailers\r\n{length}Connection: close\r\n\r\n",
        ask.method
    );
    // A server that has answered may read no more.
    let _ = socket.write_all(&[head.as_bytes(), &body(ask.body)].concat());
    let (mut all, mut buf) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match socket.read(&mut buf) {
            Ok(n @ 1..) => all.extend_from_slice(&buf[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                all.extend_from_slice(b"<nothing more for a long time>");
                return Ok(all);
            }
            _ => return Ok(all),
        }
    }
}

fn connect(from: u8, port: u16) -> std::io::Result<TcpStream> {
    super::client::connect_from(from, port)
}

/// Sends all requests one after the other on a connection; returns the frames that arrive.
fn ask_http2(port: u16, session: &UpstreamSession) -> std::io::Result<String> {
    let mut socket = connect(session.from, port)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut transcript = Transcript::of_server();
    let window =
        [wire::settings_frame(&[(wire::INITIAL_WINDOW, 1 << 24)]), wire::number_frame(wire::WINDOW_UPDATE, 0, 1 << 24)]
            .concat();
    socket.write_all(&[wire::PREFACE, &window, &wire::write_frame(wire::SETTINGS, wire::ACK, 0, b"")].concat())?;
    let mut buf = vec![0; 64 * 1024];
    for (index, ask) in session.requests.iter().enumerate() {
        let id = 2 * index as u32 + 1;
        let path = format!("/{}/{index}", session.from);
        let client = format!("127.1.0.{}", session.from);
        let length = ask.body.to_string();
        let mut block = Vec::new();
        for (name, value) in request_fields(ask.method, &path) {
            wire::field(&name, &value, wire::Coding::Plain, &mut block);
        }
        let more: &[(&str, &str)] = &[("x-client", &client), ("te", "trailers"), ("content-length", &length)];
        block.extend(wire::literal_block(more.get(..if ask.body > 0 { 3 } else { 2 }).unwrap_or(more)));
        let end = if ask.body == 0 { wire::END_STREAM } else { 0 };
        socket.write_all(&wire::headers_frames(id, end, &block, &wire::Shape::default()))?;
        let body = body(ask.body);
        let mut chunks = body.chunks(16_000).peekable();
        // Within the windows of both servers; the rest waits for them.
        let mut unsent = 65_535usize;
        while let Some(chunk) = chunks.next() {
            while unsent < chunk.len() {
                match socket.read(&mut buf) {
                    Ok(n @ 1..) => {
                        for (kind, _, stream, payload) in transcript.feed(&buf[..n]) {
                            if kind == wire::WINDOW_UPDATE && stream == id {
                                unsent += payload.first_chunk().copied().map_or(0, u32::from_be_bytes) as usize;
                            }
                        }
                    }
                    _ => break,
                }
                if transcript.has_ended(id) {
                    break;
                }
            }
            if transcript.has_ended(id) || unsent < chunk.len() {
                break;
            }
            unsent -= chunk.len();
            let end = if chunks.peek().is_none() { wire::END_STREAM } else { 0 };
            if socket.write_all(&wire::write_frame(wire::DATA, end, id, chunk)).is_err() {
                break;
            }
        }
        while !transcript.has_ended(id) {
            match socket.read(&mut buf) {
                Ok(n @ 1..) => drop(transcript.feed(&buf[..n])),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    transcript.say("nothing more for a long time");
                    return Ok(transcript.text());
                }
                _ => {
                    transcript.say("the server closes the connection");
                    return Ok(transcript.text());
                }
            }
        }
    }
    Ok(transcript.text())
}

fn converse(session: &UpstreamSession, peer: &Peer, port: u16) -> Vec<u8> {
    peer.prepare(&session.scripts);
    let mut out = String::from("client received\n");
    if session.h2 {
        out += &ask_http2(port, session).unwrap_or_else(|e| format!("<{:?}>", e.kind()));
    } else {
        for (index, ask) in session.requests.iter().enumerate() {
            let bytes =
                ask_http1(port, session.from, index, *ask).unwrap_or_else(|e| format!("<{:?}>", e.kind()).into());
            let mut bytes = bytes.as_slice();
            // Interim responses.
            while bytes.starts_with(b"HTTP/1.1 1")
                && let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n")
            {
                let (head, rest) = bytes.split_at(end + 4);
                out += &format!("    interim {}\n", head.escape_ascii());
                bytes = rest;
            }
            let mut answer = normal::normal_answer(bytes, &|text| text.to_string());
            normal::lower_names(&mut answer);
            let text = super::text_of(&answer);
            let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
            let length: Option<usize> =
                head.split("\r\n").find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let is_whole = length.is_none_or(|length| body.len() == length || ask.method == "HEAD");
            out += &match is_whole && !text.is_empty() && !body.ends_with("<cut off>") {
                true => {
                    let body = super::transcript::shown_bytes(body.as_bytes());
                    format!("    {}\n    body {body}\n", head.replace("\r\n", "\n      "))
                }
                false => "    an incomplete response\n".into(),
            };
        }
    }
    std::thread::park_timeout(AFTERWARDS);
    out += &format!("server received\n{}", peer.text());
    out.into_bytes()
}

fn run_of(
    binary: &Binary,
    peers: &[Peer],
    puts: &[FramePut],
    sessions: &[UpstreamSession],
) -> Result<ServerRun, String> {
    let froms: Vec<u8> = sessions.iter().map(|session| session.from).collect();
    let pairs: Vec<(&UpstreamSession, &Peer)> = sessions.iter().zip(peers).collect();
    let all = |port: u16| Ok(in_parallel(&pairs, |(session, peer)| converse(session, peer, port)));
    let conf = |dirs: &Dirs, port: u16| text(puts, dirs, port, sessions, peers, binary);
    let mut run = ServerRun::with(binary, &conf, &all, None)?;
    run.errors = run.errors.iter().filter_map(|line| known::log_line(&without_ports(line))).collect();
    by_client(&mut run.access, "access log", &froms, &mut run.answers);
    by_client(&mut run.errors, "error log", &froms, &mut run.answers);
    run.answers.iter_mut().for_each(|answer| *answer = without_ports(&super::text_of(answer)).into_bytes());
    Ok(run)
}

/// Removes the last requests, and then the steps of the scripts, that a difference does not need.
fn shorten(
    session: &mut UpstreamSession,
    puts: &[FramePut],
    words: &mut String,
    differs: &mut Differs<'_, UpstreamSession>,
) -> Result<(), String> {
    while session.requests.len() > 1 {
        let mut fewer = session.clone();
        fewer.requests.pop();
        let Some(still) = differs(puts, &fewer)? else { break };
        (*session, *words) = (fewer, still);
    }
    for index in 0..session.scripts.answers.len() {
        let Some(mut steps) = session.scripts.answers.get(index).cloned() else { continue };
        let with = |steps: &[FrameMove]| {
            let mut fewer = session.clone();
            if let Some(place) = fewer.scripts.answers.get_mut(index) {
                *place = steps.to_vec();
            }
            fewer
        };
        reduce(&mut steps, words, 0, &mut |steps| differs(puts, &with(steps)))?;
        *session = with(&steps);
    }
    Ok(())
}

/// Runs the plan of `--upstream-frames`; as [`FramesSubject::search`].
pub fn compare_upstream(plan: &Plan) -> Result<String, String> {
    let peers: Vec<Peer> = (0..SESSIONS)
        .map(|_| Peer::start())
        .collect::<Result<_, _>>()
        .map_err(|e| format!("the servers behind: {e}"))?;
    let subject = FramesSubject {
        name: "frames of upstream servers",
        pool: pool::POOL,
        sessions: SESSIONS,
        draw: draw_session,
        run: &|binary, puts, sessions| run_of(binary, &peers, puts, sessions),
        compared: known::compared_lines,
        reason: known::known_reason,
        shorten,
    };
    subject.search(plan)
}
