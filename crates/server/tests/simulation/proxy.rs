//! A client, the proxy and servers in one virtual clock: random courses of requests that are passed on, cut into any pieces, to servers
//! that answer in any framing, in any pieces, with interim responses, or close, fall silent, lie and talk nonsense in the middle; with
//! reloads, panics, QUIT and clients that leave. No response belongs to another request, no octet is wrong, nothing is left behind.
//! `TIDEGATE_SIM_SEED=N` runs one course alone, `TIDEGATE_SIM_COUNT=N` so many.

use crate::support;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use support::simulated::{FOLDER, first, for_seeds, logging, quiet_panics};
use testkit::Random;
use worker::sim::Sim;
use worker::thread::{ServeLoop, WorkerCommand};

/// Servers behind the proxy.
const SERVERS: usize = 2;
/// Configurations: they differ in buffering, kept connections and the protocol's details.
const PLANS: usize = 6;
const STEPS_MAX: usize = 30_000;

/// The octet of a body at a place: every request has another sequence.
fn octet(id: usize, at: usize) -> u8 {
    b'a' + ((id * 7 + at * 3 + at / 251) % 23) as u8
}

fn body(id: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| octet(id, at)).collect()
}

fn plan(number: usize) -> ServeLoop {
    let folder = FOLDER.display();
    let details = [
        "",
        "proxy_http_version 1.1; proxy_set_header Connection '';",
        "proxy_http_version 1.1; proxy_set_header Connection ''; proxy_buffering off;",
        "proxy_http_version 1.1; proxy_set_header Connection ''; proxy_request_buffering off;",
        "proxy_http_version 1.1; proxy_set_header Connection ''; proxy_buffer_size 512; proxy_buffers 2 512; proxy_busy_buffers_size 512;",
        "proxy_http_version 1.1; proxy_set_header Connection ''; proxy_next_upstream error timeout http_503 non_idempotent;",
    ];
    let keep = if number == 0 { "" } else { "keepalive 3;" };
    let servers: String = (0..SERVERS).map(|n| format!("server unix:{folder}/sim-origin-{n} max_fails=0;")).collect();
    logging(
        "proxied.log",
        "$arg_id $status",
        &format!(
            "upstream behind {{ {servers} {keep} }}
             server {{ listen 127.0.0.1:8001; client_body_timeout 30s; send_timeout 30s;
              proxy_connect_timeout 2s; proxy_send_timeout 5s; proxy_read_timeout 5s; {}
              location / {{ proxy_pass http://behind; }} }}",
            details[number % details.len()]
        ),
    )
}

#[derive(Clone, Debug)]
struct Asked {
    id: usize,
    /// Octets of its body; `None`: GET.
    sends: Option<usize>,
    chunked: bool,
    /// Octets of the response's body.
    wants: usize,
}

impl Asked {
    fn text(&self) -> Vec<u8> {
        let (id, wants) = (self.id, self.wants);
        let method = if self.sends.is_some() { "POST" } else { "GET" };
        let sends = self.sends.map_or(0, |n| n);
        let mut text = format!("{method} /?id={id}&wants={wants}&sends={sends} HTTP/1.1\r\nHost: a\r\n").into_bytes();
        match self.sends {
            None => text.extend_from_slice(b"\r\n"),
            Some(length) if self.chunked => {
                text.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                for part in body(id, length).chunks(1000) {
                    text.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                    text.extend_from_slice(part);
                    text.extend_from_slice(b"\r\n");
                }
                text.extend_from_slice(b"0\r\n\r\n");
            }
            Some(length) => {
                text.extend_from_slice(format!("Content-Length: {length}\r\n\r\n").as_bytes());
                text.extend_from_slice(&body(id, length));
            }
        }
        text
    }
}

struct Client {
    stream: Option<UnixStream>,
    asked: Vec<Asked>,
    to_send: Vec<u8>,
    sent: usize,
    got: Vec<u8>,
    ended: bool,
    torn: bool,
}

/// Splits a message: the end of its head, its head, and a field's value.
fn head(bytes: &[u8]) -> Option<(usize, String)> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    Some((end + 4, String::from_utf8_lossy(bytes.get(..end)?).into_owned()))
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().skip(1).find_map(|line| {
        let (own, value) = line.split_once(':')?;
        own.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Takes a chunked body apart: its octets, how many it took, and true at its end.
fn dechunked(bytes: &[u8]) -> (Vec<u8>, usize, bool) {
    let (mut out, mut at) = (Vec::new(), 0);
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(line) = rest.windows(2).position(|w| w == b"\r\n") else { return (out, at, false) };
        let size = String::from_utf8_lossy(rest.get(..line).unwrap_or_default()).into_owned();
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or_else(|_| panic!("a chunk's size: {size:?}"));
        let data = rest.get(line + 2..).unwrap_or_default();
        if size == 0 {
            return if data.starts_with(b"\r\n") { (out, at + line + 4, true) } else { (out, at, false) };
        }
        out.extend_from_slice(data.get(..size.min(data.len())).unwrap_or_default());
        if data.len() < size + 2 {
            return (out, at, false);
        }
        at += line + 2 + size + 2;
    }
}

impl Client {
    /// Whole responses so far; panics at a wrong one. An incomplete one must be the beginning of the right one.
    fn check(&self) -> usize {
        let mut rest = self.got.as_slice();
        for (n, asked) in self.asked.iter().enumerate() {
            let Some((end, head)) = head(rest) else { return n };
            let status = head.get(9..12).unwrap_or_default();
            let after = rest.get(end..).unwrap_or_default();
            let (octets, used, whole) = match field(&head, "Content-Length") {
                Some(length) => {
                    let length: usize = length.parse().expect("a length");
                    let taken = after.len().min(length);
                    (after.get(..taken).unwrap_or_default().to_vec(), taken, taken == length)
                }
                None if field(&head, "Transfer-Encoding").is_some() => dechunked(after),
                None => (after.to_vec(), after.len(), false),
            };
            match status {
                "200" => {
                    let id: usize = field(&head, "X-Id").expect("an id").parse().expect("a number");
                    assert_eq!(id, asked.id, "the response of another request: {head}");
                    assert!(octets.len() <= asked.wants, "more than the server has sent");
                    let right = octets.iter().enumerate().all(|(at, c)| *c == octet(id, at));
                    assert!(right, "response {id}: wrong octets");
                    assert!(!whole || octets.len() == asked.wants, "response {id} is cut and says it is whole");
                }
                "502" | "504" | "500" | "503" | "408" | "400" => {}
                other => panic!("status {other}: {head}"),
            }
            if !whole {
                return n;
            }
            rest = rest.get(end + used..).unwrap_or_default();
        }
        assert!(rest.is_empty(), "more than was asked for: {}", String::from_utf8_lossy(rest));
        self.asked.len()
    }
    fn step(&mut self, random: &mut Random) {
        let Some(stream) = &mut self.stream else { return };
        if random.chance(50) {
            let left = self.to_send.get(self.sent..).unwrap_or_default();
            let most = if random.chance(30) { left.len() } else { 1 + random.below(left.len().min(400)) };
            if let Ok(n) = stream.write(left.get(..most.min(left.len())).unwrap_or_default()) {
                self.sent += n;
            }
            return;
        }
        let mut buf = vec![0; if random.chance(70) { 100_000 } else { 1 + random.below(3000) }];
        match stream.read(&mut buf) {
            Ok(0) => self.ended = true,
            Ok(n) => self.got.extend_from_slice(buf.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.ended = true,
        }
    }
    fn is_open(&self) -> bool {
        self.stream.is_some() && !self.ended && self.check() < self.asked.len()
    }
}

struct Served {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// The connection closes when the output is sent.
    closes: bool,
    /// Neither sends nor reads.
    silent: bool,
}

struct Servers {
    listeners: Vec<UnixListener>,
    served: Vec<Served>,
    /// Number of complete arrivals of each POST.
    heard: BTreeMap<usize, usize>,
    /// A fault has happened: not every request has its response.
    faulty: bool,
}

impl Servers {
    fn new() -> Servers {
        let listeners = (0..SERVERS)
            .map(|n| {
                let path = FOLDER.join(format!("sim-origin-{n}"));
                let _ = std::fs::remove_file(&path);
                let listener = UnixListener::bind(&path).expect("bound");
                listener.set_nonblocking(true).expect("set");
                listener
            })
            .collect();
        Servers { listeners, served: Vec::new(), heard: BTreeMap::new(), faulty: false }
    }
    fn step(&mut self, random: &mut Random, faults: u64) {
        for listener in &self.listeners {
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true).expect("set");
                let silent = random.chance(faults / 4);
                self.faulty |= silent;
                self.served.push(Served { stream, input: Vec::new(), output: Vec::new(), closes: false, silent });
            }
        }
        let mut at = 0;
        while at < self.served.len() {
            if self.one(at, random, faults) {
                at += 1;
            } else {
                drop(self.served.swap_remove(at));
            }
        }
    }
    /// A step of one connection; false when it is closed.
    fn one(&mut self, at: usize, random: &mut Random, faults: u64) -> bool {
        let Some(served) = self.served.get_mut(at) else { return false };
        if served.silent {
            return true;
        }
        let mut buf = vec![0; if random.chance(70) { 100_000 } else { 1 + random.below(500) }];
        match served.stream.read(&mut buf) {
            Ok(0) => return false,
            Ok(n) => served.input.extend_from_slice(buf.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
        if served.output.is_empty() && !served.closes {
            if let Some((used, id, wants, is_post, keeps)) = request(&served.input) {
                served.input.drain(..used);
                if is_post {
                    *self.heard.entry(id).or_default() += 1;
                }
                served.closes = !keeps;
                self.faulty |= respond(served, id, wants, random, faults);
            } else if served.input.is_empty() && random.chance(faults / 4) {
                // A kept connection, or one that has just been made, ends without a word.
                self.faulty = true;
                return false;
            }
        }
        if served.output.is_empty() {
            return !served.closes;
        }
        let most = if random.chance(50) { served.output.len() } else { 1 + random.below(served.output.len().min(900)) };
        match served.stream.write(served.output.get(..most).unwrap_or_default()) {
            Ok(n) => drop(served.output.drain(..n)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
        true
    }
}

/// A complete request: length, id, requested octets, true for POST, true with keep-alive.
fn request(bytes: &[u8]) -> Option<(usize, usize, usize, bool, bool)> {
    let (end, head) = head(bytes)?;
    let line = head.lines().next().expect("a line").to_string();
    let number = |name: &str| -> usize {
        let at = line.find(name).unwrap_or_else(|| panic!("{name} in {line:?}")) + name.len();
        let text: String = line.get(at..).unwrap_or_default().chars().take_while(char::is_ascii_digit).collect();
        text.parse().expect("a number")
    };
    let (id, wants, sends) = (number("id="), number("wants="), number("sends="));
    let after = bytes.get(end..).unwrap_or_default();
    let (octets, used) = match field(&head, "Content-Length") {
        Some(length) => {
            let length: usize = length.parse().expect("a length");
            (after.get(..length)?.to_vec(), length)
        }
        None if field(&head, "Transfer-Encoding").is_some() => match dechunked(after) {
            (octets, used, true) => (octets, used),
            _ => return None,
        },
        None => (Vec::new(), 0),
    };
    assert_eq!(octets.len(), sends, "the body of request {id}");
    assert!(octets.iter().enumerate().all(|(at, c)| *c == octet(id, at)), "request {id}: wrong octets");
    let keeps = field(&head, "Connection") != Some("close") && line.ends_with("HTTP/1.1");
    Some((end + used, id, wants, line.starts_with("POST"), keeps))
}

/// Queues a response; true when it has a fault.
fn respond(served: &mut Served, id: usize, wants: usize, random: &mut Random, faults: u64) -> bool {
    let out = &mut served.output;
    if random.chance(15) {
        out.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
    }
    let start = out.len();
    out.extend_from_slice(format!("HTTP/1.1 200 OK\r\nX-Id: {id}\r\nETag: \"{id}\"\r\n").as_bytes());
    let content = body(id, wants);
    let mut head_end = 0;
    match random.below(3) {
        0 => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            head_end += out.len();
            let size = 1 + random.below(4000);
            for part in content.chunks(size) {
                out.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                out.extend_from_slice(part);
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(b"0\r\n\r\n");
        }
        1 if served.closes => {
            // The connection's end delimits the body, so a cut cannot be detected and is not simulated.
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(&content);
            return false;
        }
        _ => {
            out.extend_from_slice(format!("Content-Length: {wants}\r\n\r\n").as_bytes());
            head_end += out.len();
            out.extend_from_slice(&content);
        }
    }
    if random.chance(10) {
        served.closes = true;
    }
    if !random.chance(faults) {
        return false;
    }
    match random.below(5) {
        // The connection ends anywhere.
        0 | 1 => {
            out.truncate(start + random.below(out.len() - start));
            served.closes = true;
        }
        // It falls silent anywhere.
        2 => {
            out.truncate(start + random.below(out.len() - start));
            served.silent = out.is_empty();
        }
        // Nonsense instead of a head.
        3 => {
            out.splice(start..head_end, b"HTTP/1.1 200 OK\r\n\x00: \r\n\r\n".iter().copied());
            served.closes = true;
        }
        // Sends more than announced.
        _ => {
            out.extend_from_slice(b"and more");
            served.closes = true;
        }
    }
    true
}

fn course(seed: u64, plans: &[ServeLoop]) {
    let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut servers = Servers::new();
    let log = FOLDER.join("proxied.log");
    let logged = std::fs::metadata(&log).map_or(0, |file| file.len());
    let begin = random.below(plans.len());
    let mut sim = Sim::new(plans.get(begin).expect("a plan").clone()).expect("a thread");
    let faults = if random.chance(60) { 12 } else { 0 };
    let (reloads, quits, panics) = (random.chance(30), random.chance(15), random.chance(15));
    if panics {
        sim.panic_at(1 + random.number() % 120);
    }
    let mut id = seed as usize % 1000 * 100;
    let mut clients: Vec<Client> = (0..1 + random.below(3))
        .map(|_| {
            let stream = Some(sim.connect(&first()).expect("connected"));
            let asked: Vec<Asked> = (0..1 + random.below(4))
                .map(|_| {
                    id += 1;
                    let sizes = [0, 1, 700, 5000, 60_000];
                    let wants = sizes.get(random.below(sizes.len())).copied().unwrap_or_default();
                    let sends = random.chance(40).then(|| sizes.get(random.below(4)).copied().unwrap_or_default());
                    Asked { id, sends, chunked: random.chance(40), wants }
                })
                .collect();
            let to_send = asked.iter().flat_map(Asked::text).collect();
            Client { stream, asked, to_send, sent: 0, got: Vec::new(), ended: false, torn: false }
        })
        .collect();
    let (mut quit, mut steps, mut reloaded) = (false, 0, false);
    while clients.iter().any(Client::is_open) {
        steps += 1;
        assert!(steps < STEPS_MAX, "no progress");
        let one = random.below(clients.len());
        let client = clients.get_mut(one).expect("a client");
        match random.below(12) {
            0..=4 => client.step(&mut random),
            5..=8 => servers.step(&mut random, faults),
            9 => sim.pass(random.number() % 200).expect("rest"),
            10 if faults > 0 && random.chance(10) => sim.pass(3000).expect("rest"),
            _ if reloads && random.chance(3) => {
                let serving = plans.get(random.below(plans.len())).expect("a plan").clone();
                sim.tell(WorkerCommand::Serve { serving, listeners: Vec::new(), keep: vec![(first(), false)] });
                reloaded = true;
            }
            _ if quits && !quit && random.chance(2) => {
                sim.tell(WorkerCommand::Quit { timeout_ms: 0 });
                quit = true;
            }
            _ if random.chance(1) => {
                client.torn = true;
                if random.chance(50) {
                    client.stream = None;
                } else if let Some(stream) = &client.stream {
                    let _ = stream.shutdown(Shutdown::Write);
                }
            }
            _ => {}
        }
        if random.chance(60) {
            sim.settle().expect("rest");
        }
    }
    for client in &clients {
        let whole = client.check();
        // Without faults and time jumps, every request gets its response.
        if faults == 0 && !servers.faulty && !client.torn && !quit && !panics {
            assert_eq!(whole, client.asked.len(), "requests without a response, reloaded: {reloaded}");
        }
    }
    let retries = plans.len() - 1;
    if servers.heard.values().any(|times| *times > 1) {
        // A POST goes to a second server where the configuration says so, or where nothing of it was answered over a kept connection.
        assert!(servers.faulty || begin == retries || reloaded, "a POST was passed on twice: {:?}", servers.heard);
    }
    drop(clients);
    sim.panic_at(0);
    sim.settle().expect("rest");
    servers.step(&mut random, 0);
    sim.pass(200_000).expect("rest");
    assert_eq!((sim.clients(), sim.tasks()), (0, 0), "something is left");
    if !quit {
        sim.tell(WorkerCommand::Quit { timeout_ms: 0 });
    }
    sim.settle().expect("rest");
    assert!(sim.has_ended(), "the thread has not ended: {}", sim.owned());
    assert!(sim.end(), "something holds the thread");
    let text = std::fs::read(&log).expect("a log");
    let text = String::from_utf8_lossy(text.get(logged as usize..).unwrap_or_default()).into_owned();
    let mut lines: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).filter(|id| *id != "-").collect();
    let count = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), count, "a request is logged twice:\n{text}");
}

#[test]
fn random_courses_through_a_proxy() {
    quiet_panics();
    let plans: Vec<ServeLoop> = (0..PLANS).map(plan).collect();
    for_seeds(2_000, |seed| course(seed, &plans));
}
