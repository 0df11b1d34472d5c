//! Fuzz target `reloads`: connections of a thread in simulated time, with reloads, QUIT, clients that stall, leave or send rubbish, in the order
//! that the input says.

use crate::conf::{self, Invocation};
use base::clock;
use conf_schema::TextStore;
use conf_syntax::Disk;
use net::Address;
use observe::log_file::LogFiles;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use worker::sim::Sim;
use worker::thread::{ServeLoop, WorkerCommand};

/// Clients at once, steps of an input, and plans.
const CLIENTS_MAX: usize = 4;
const STEPS_MAX: usize = 300;
const PLANS: usize = 5;
/// Time after which no connection is left: the longest timeouts of the plans, one after the other.
const END_MILLIS: u64 = 400_000;
/// Octets of the file `/big`: more than a socket takes.
const BIG_BYTES: usize = 400_000;

const REQUESTS: [&[u8]; 6] = [
    b"GET /words HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /words HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /words HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"GET /words HTTP/1.1\r\nHost: a\r\n\r\nGET /again HTTP/1.1\r\nHost: a\r\n\r\nGET /words HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD /words HTTP/1.1\r\nHost: a\r\n\r\n",
];
/// Responses to each of them; the length of the bodies is in their heads, except for HEAD.
const RESPONSES: [usize; 6] = [1, 1, 1, 1, 3, 1];
const HEAD: usize = 5;

struct MockClient {
    stream: UnixStream,
    got: Vec<u8>,
    /// Responses that are due, `true` for those without a body; `None`: the client has sent other bytes, too.
    due: Option<Vec<bool>>,
    ended: bool,
    unsent: Vec<u8>,
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<usize> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(usize::from(*first))
    }
    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (some, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        some
    }
}

/// Each step is a byte: what happens (3 bits) and to which client, mostly followed by another byte. Returns the number of whole responses.
///
/// # Panics
/// The loop does not come to rest or to its end, a task panicked, a connection stays, or a response is missing or not of one plan.
#[allow(clippy::expect_used, reason = "a fuzz target reports by panics")]
pub fn run_reloads(data: &[u8]) -> usize {
    thread_local! {
        static SERVINGS: Vec<ServeLoop> = servings();
    }
    SERVINGS.with(|plans| course(plans, data))
}

#[allow(clippy::expect_used, reason = "a fuzz target reports by panics")]
fn course(plans: &[ServeLoop], data: &[u8]) -> usize {
    let mut input = Input(data);
    let panics = metrics::process::PANICS.sum();
    let mut sim = Sim::new(plans.first().expect("a plan").clone()).expect("a thread");
    let addresses = [address(8001), address(8002)];
    let mut clients: Vec<MockClient> = Vec::new();
    let began = clock::now();
    let (mut quit, mut answered) = (false, 0);
    for _ in 0..STEPS_MAX {
        let Some(step) = input.byte() else { break };
        let number = (step >> 3) % CLIENTS_MAX;
        let client = clients.get_mut(number);
        match (step & 7, client) {
            (0, None) if !quit => {
                let stream = sim.connect(&addresses[step >> 7]).expect("connected");
                let due = Some(Vec::new());
                clients.push(MockClient { stream, got: Vec::new(), due, ended: false, unsent: Vec::new() });
            }
            (1, Some(client)) => {
                let length = input.byte().unwrap_or(0);
                client.due = None;
                client.unsent.extend_from_slice(input.bytes(length));
                client.send(usize::MAX);
            }
            (2, Some(client)) => {
                let which = input.byte().unwrap_or(0);
                let kind = which % REQUESTS.len();
                client.unsent.extend_from_slice(REQUESTS[kind]);
                if let Some(due) = &mut client.due {
                    due.extend(vec![kind == HEAD; RESPONSES[kind]]);
                }
                // A part of the request now, the remainder with the next step.
                client.send(if which >= 128 { which - 128 } else { usize::MAX });
            }
            (3, Some(client)) => client.receive(),
            (4, _) if !quit => {
                let serving = plans[input.byte().unwrap_or(0) % plans.len()].clone();
                let keep = addresses.iter().map(|address| (address.clone(), false)).collect();
                sim.tell(WorkerCommand::Serve { serving, listeners: Vec::new(), keep });
            }
            (5, _) => {
                let span = input.byte().unwrap_or(0) as u64;
                sim.pass(span * span).expect("the loop rests");
            }
            (6, Some(client)) => {
                // The client leaves, or says that nothing follows.
                client.send(usize::MAX);
                if step >> 5 & 1 == 0 {
                    answered += clients.swap_remove(number).check(true);
                } else {
                    client.due = None;
                    let _ = client.stream.shutdown(Shutdown::Write);
                }
            }
            (7, _) if step >> 3 == 31 && !quit => {
                quit = true;
                sim.tell(WorkerCommand::Quit { timeout_ms: input.byte().unwrap_or(0) as u64 * 100 });
            }
            (7, _) if step >> 3 > 15 => sim.turn().expect("a turn"),
            _ => _ = sim.settle().expect("the loop rests"),
        }
    }
    // No timeout has passed, and no client is cut off: every request gets its response.
    let in_time = clock::now() == began && !quit;
    for _ in 0..STEPS_MAX {
        sim.settle().expect("the loop rests");
        let before: usize = clients.iter().map(|client| client.got.len() + client.unsent.len()).sum();
        for client in &mut clients {
            client.send(usize::MAX);
            client.receive();
        }
        sim.settle().expect("the loop rests");
        if clients.iter().map(|client| client.got.len() + client.unsent.len()).sum::<usize>() == before {
            break;
        }
    }
    answered += clients.drain(..).map(|client| client.check(!in_time)).sum::<usize>();
    sim.pass(END_MILLIS).expect("the loop rests");
    // After `worker_shutdown_timeout` the thread ends with its connections.
    if !sim.has_ended() {
        assert_eq!((sim.clients(), sim.tasks()), (0, 0), "something is left");
    }
    if !quit {
        sim.tell(WorkerCommand::Quit { timeout_ms: 0 });
        sim.settle().expect("the loop rests");
    }
    assert!(sim.has_ended(), "the thread has not ended: {}", sim.owned());
    assert_eq!(metrics::process::PANICS.sum(), panics, "a task panicked");
    assert!(sim.end(), "the thread's state stays");
    answered
}

impl MockClient {
    fn send(&mut self, most: usize) {
        let length = self.unsent.len().min(most);
        match self.stream.write(&self.unsent[..length]) {
            Ok(sent) => drop(self.unsent.drain(..sent)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            // The server has closed the connection.
            Err(_) => self.unsent.clear(),
        }
    }

    fn receive(&mut self) {
        let mut bytes = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return self.ended = true,
                Ok(n) => self.got.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.ended = true,
            }
        }
    }

    /// Looks at the responses to well-formed requests: each is whole and of one plan, and none is missing unless the connection was cut
    /// off or the server announced its end.
    #[allow(clippy::expect_used, reason = "a fuzz target reports by panics")]
    fn check(self, cut_off: bool) -> usize {
        let Some(due) = &self.due else { return 0 };
        let (mut rest, mut closes) = (self.got.as_slice(), false);
        for (n, bodiless) in due.iter().enumerate() {
            let Some(end) = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
                assert!(cut_off || closes, "response {n} of {} is missing: {}", due.len(), rest.escape_ascii());
                return n;
            };
            assert!(!closes, "a response after the last one: {}", rest.escape_ascii());
            let head = String::from_utf8_lossy(&rest[..end]);
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "response {n}: {head}");
            closes = head.contains("Connection: close");
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
            let length = if *bodiless { 0 } else { length.parse().expect("a number") };
            let Some(body) = rest.get(end + 4..end + 4 + length) else {
                assert!(cut_off, "response {n} of {} is not whole: {head}", due.len());
                return n;
            };
            let is_right = match length {
                BIG_BYTES => body.iter().all(|byte| *byte == b'b'),
                _ => *bodiless || body.starts_with(b"words of plan "),
            };
            assert!(is_right, "response {n}: {}", body.escape_ascii());
            rest = &rest[end + 4 + length..];
        }
        assert!(rest.is_empty(), "more than was asked for: {}", rest.escape_ascii());
        due.len()
    }
}

fn address(port: u16) -> Address {
    Address::Ip(([127, 0, 0, 1], port).into())
}

/// Plans whose listeners have other places, and whose protocols, buffers and timeouts differ.
#[allow(clippy::expect_used, reason = "a fuzz target reports by panics")]
fn servings() -> Vec<ServeLoop> {
    let folder = std::env::temp_dir().join(format!("tidegate-fuzz-reloads-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("big"), vec![b'b'; BIG_BYTES]).expect("a file");
    let more = [
        "",
        "http2 on; client_header_timeout 3s; large_client_header_buffers 2 1k;",
        "keepalive_requests 2; keepalive_timeout 1s;",
        "keepalive_timeout 0; client_body_buffer_size 1; open_file_cache max=10;",
        "gzip on; gzip_min_length 1; gzip_types *; sendfile on; output_buffers 1 512; lingering_close always;",
    ];
    (0..PLANS)
        .map(|number| {
            let server = |port: u16| {
                format!(
                    "server {{ listen 127.0.0.1:{port}; location /big {{ }} location / {{ return 200 \"words of plan {number}\"; }} }}"
                )
            };
            let mut servers = [server(8001), server(8002), server(8100 + number as u16)];
            servers.rotate_left(number % 3);
            let (more, servers, root) = (more[number], servers.concat(), folder.display());
            serving(&format!(
                "error_log stderr emerg; events {{ }} http {{ access_log off; root {root}; {more} {servers} }}"
            ))
        })
        .collect()
}

#[allow(clippy::expect_used, reason = "a fuzz target reports by panics")]
fn serving(text: &str) -> ServeLoop {
    let invocation = Invocation {
        prefix: "/nowhere/".into(),
        conf_file: "/nowhere/n.conf".into(),
        error_log: None,
        error_log_said: false,
        pid: "/nowhere/pid".into(),
        globals: Vec::new(),
        text: Some(text.into()),
    };
    let reading = conf::read_config(&Disk, TextStore::default(), &invocation, LogFiles::default());
    let config = reading.config.unwrap_or_else(|failure| panic!("{:?}", failure.complaints));
    ServeLoop {
        stream: config.stream,
        mail: config.mail,
        http: config.http,
        error_log: config.error_log,
        connections_max: config.core.worker_connections,
        multi_accept: config.core.multi_accept,
        shutdown_timeout_ms: config.core.shutdown_timeout_ms,
        stall_threshold_ms: config.core.stall_threshold_ms,
    }
}
