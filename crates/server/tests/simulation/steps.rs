//! Every step of a set of exchanges, one after the other: the same course is run with a panic at step n, with a reload there, and with
//! QUIT there, for every n that the course has. A step is a read, a write, a start in the engine, a poll of a body, a request's end
//! (`Worker::step`). A failing course says which one it is.

use crate::support;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::simulated::{FOLDER, big, first, have_process_alone, logging, second};
use wire_h2::hpack::Encoder;
use wire_h2::{Client, ClientEvent, ClientLimits};
use worker::sim::Sim;
use worker::thread::{ServeLoop, WorkerCommand};

/// Rounds after which a course has failed.
const ROUNDS_MAX: usize = 300;

static BIG: LazyLock<Vec<u8>> = LazyLock::new(big);

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// Counts and descriptors are the process's.
fn alone() {
    have_process_alone();
    std::panic::set_hook(Box::new(|info| {
        if info.payload().downcast_ref::<&str>() == Some(&"a test's panic") {
            PANICS.set(PANICS.get() + 1);
        } else {
            eprintln!("{info}");
        }
    }));
}

/// Action at the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Panic,
    Reload,
    Quit,
}

/// Expected answer. Bodies of the configuration name the plan, twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Words,
    Big,
    /// From the server behind: the words that it was sent.
    Passed(&'static [u8]),
    Refused,
    /// The end of HTTP: these bytes come back.
    Tunnel(&'static [u8]),
}

/// An HTTP/1 client with its requests.
struct Talk {
    stream: UnixStream,
    /// Number of responses after which it is sent.
    pieces: Vec<(usize, Vec<u8>)>,
    wanted: Vec<Wanted>,
    got: Vec<u8>,
    ended: bool,
}

impl Talk {
    fn new(stream: UnixStream, requests: &[(usize, &str)], wanted: &[Wanted]) -> Talk {
        let mut pieces = Vec::new();
        for (after, text) in requests {
            // Three parts: split in the middle of the head, and after it.
            let end = text.find("\r\n\r\n").map_or(text.len(), |at| at + 4);
            let middle = end.min(text.len() / 3);
            for part in [text.get(..middle), text.get(middle..end), text.get(end..)] {
                let part = part.expect("a part").as_bytes().to_vec();
                if !part.is_empty() {
                    pieces.push((*after, part));
                }
            }
        }
        Talk { stream, pieces, wanted: wanted.to_vec(), got: Vec::new(), ended: false }
    }
    fn step(&mut self) {
        let answers = self.answers();
        if self.pieces.first().is_some_and(|(after, _)| *after <= answers) && !self.ended {
            let (_, piece) = self.pieces.remove(0);
            // A few bytes into an empty buffer: all of them, or the server is gone.
            if self.stream.write(&piece).is_err() {
                self.ended = true;
            }
        }
        let mut buf = vec![0; 100_000];
        match self.stream.read(&mut buf) {
            Ok(0) => self.ended = true,
            Ok(n) => self.got.extend_from_slice(buf.get(..n).expect("read")),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.ended = true,
        }
    }
    /// Counts complete responses, each the expected one and of one plan.
    fn answers(&self) -> usize {
        let mut rest = self.got.as_slice();
        for (n, wanted) in self.wanted.iter().enumerate() {
            let Some(end) = rest.windows(4).position(|w| w == b"\r\n\r\n") else { return n };
            let head = String::from_utf8_lossy(rest.get(..end).unwrap_or_default()).into_owned();
            let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            let status = match wanted {
                Wanted::Refused => "HTTP/1.1 400 ",
                Wanted::Tunnel(_) => "HTTP/1.1 101 ",
                _ => "HTTP/1.1 200 ",
            };
            assert!(head.starts_with(status), "answer {n}: {head}");
            let plan = field("X-Plan").unwrap_or_else(|| panic!("answer {n} names no plan: {head}"));
            let body = rest.get(end + 4..).unwrap_or_default();
            if let Wanted::Tunnel(bytes) = wanted {
                assert!(bytes.starts_with(body), "what came back: {}", String::from_utf8_lossy(body));
                return n + usize::from(body.len() == bytes.len());
            }
            let length: usize = field("Content-Length").expect("a length").parse().expect("a number");
            let Some(body) = body.get(..length) else { return n };
            check_body(*wanted, plan, body);
            rest = rest.get(end + 4 + length..).unwrap_or_default();
        }
        assert!(rest.is_empty(), "more than was asked for: {}", String::from_utf8_lossy(rest));
        self.wanted.len()
    }
    fn is_done(&self) -> bool {
        self.ended || self.answers() == self.wanted.len()
    }
}

fn check_body(wanted: Wanted, plan: &str, body: &[u8]) {
    match wanted {
        Wanted::Words => assert_eq!(body, format!("words of {plan}").as_bytes()),
        Wanted::Big => assert!(body == BIG.as_slice(), "{} bytes", body.len()),
        Wanted::Passed(bytes) => assert_eq!(
            String::from_utf8_lossy(body),
            format!("{plan}: {}", String::from_utf8_lossy(bytes)),
            "the server behind was sent something else"
        ),
        Wanted::Refused | Wanted::Tunnel(_) => {}
    }
}

/// A client of HTTP/2 with its streams.
struct Streams {
    stream: UnixStream,
    client: Client,
    all: BTreeMap<u32, Answer>,
    /// Bodies that are still to be sent.
    bodies: Vec<(u32, &'static [u8])>,
    ended: bool,
}

struct Answer {
    wanted: Wanted,
    plan: String,
    body: Vec<u8>,
    ended: bool,
    /// The server aborted it; `true`: without processing, so that it can be retried elsewhere.
    reset: Option<bool>,
}

impl Streams {
    fn new(stream: UnixStream, requests: &[(&str, Wanted)]) -> Streams {
        let client = Client::new(ClientLimits::default());
        let mut streams = Streams { stream, client, all: BTreeMap::new(), bodies: Vec::new(), ended: false };
        for (path, wanted) in requests {
            let body = match wanted {
                Wanted::Passed(bytes) if !bytes.is_empty() => Some(*bytes),
                _ => None,
            };
            let mut block = Vec::new();
            let mut encoder = Encoder::stateless();
            encoder.begin(&mut block);
            let method = if body.is_some() { "POST" } else { "GET" };
            for (name, value) in [(":method", method), (":scheme", "http"), (":path", path), (":authority", "a")] {
                encoder.field(name.as_bytes(), value.as_bytes(), &mut block);
            }
            let id = streams.client.open(&block, body.is_none()).expect("a stream");
            streams.bodies.extend(body.map(|bytes| (id, bytes)));
            let answer = Answer { wanted: *wanted, plan: String::new(), body: Vec::new(), ended: false, reset: None };
            streams.all.insert(id, answer);
        }
        streams
    }
    fn step(&mut self) {
        if self.ended {
            return;
        }
        // Sends in pieces, bodies after the opening head.
        let out = self.client.output();
        if out.is_empty()
            && let Some((id, bytes)) = self.bodies.pop()
        {
            let is_open = self.all.get(&id).is_some_and(|answer| answer.reset.is_none());
            assert_eq!(self.client.send_body(id, bytes, true), if is_open { bytes.len() } else { 0 });
        }
        let out = self.client.output();
        let most = out.len().min(50);
        match self.stream.write(out.get(..most).expect("a part")) {
            Ok(n) => self.client.advance(n),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.ended = true,
        }
        let mut buf = vec![0; 100_000];
        match self.stream.read(&mut buf) {
            Ok(0) => self.ended = true,
            Ok(n) => {
                let read = self.client.receive(buf.get(..n).expect("read"));
                assert!(read.is_ok(), "{read:?}");
                self.events();
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.ended = true,
        }
    }
    fn events(&mut self) {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Head { stream, list, end, .. } => {
                    let value = |wanted: &[u8]| {
                        let found = list.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_vec());
                        String::from_utf8(found.unwrap_or_default()).expect("text")
                    };
                    let answer = self.all.get_mut(&stream).expect("a stream of ours");
                    let status = if answer.wanted == Wanted::Refused { "400" } else { "200" };
                    assert_eq!(value(b":status"), status, "stream {stream}");
                    answer.plan = value(b"x-plan");
                    answer.ended |= end;
                }
                ClientEvent::Body { stream, bytes, end, .. } => {
                    let answer = self.all.get_mut(&stream).expect("a stream of ours");
                    answer.body.extend_from_slice(&bytes);
                    answer.ended |= end;
                    self.client.consumed(stream, bytes.len());
                }
                ClientEvent::Reset { stream, unprocessed, .. } => {
                    let answer = self.all.get_mut(&stream).expect("a stream of ours");
                    assert!(!unprocessed || answer.plan.is_empty(), "stream {stream} has begun to be answered");
                    answer.reset = Some(unprocessed);
                }
                ClientEvent::Goaway | ClientEvent::Capacity(_) => {}
                ClientEvent::Trailers { stream, .. } | ClientEvent::Counted { stream, .. } => {
                    panic!("nobody asked for that on {stream}")
                }
            }
        }
    }
    /// How many streams have not been answered whole, and may have been worked on.
    fn missing(&self) -> usize {
        let mut missing = 0;
        for answer in self.all.values() {
            match answer.reset {
                None if answer.ended => check_body(answer.wanted, &answer.plan, &answer.body),
                Some(true) => {}
                _ => missing += 1,
            }
        }
        missing
    }
    fn is_done(&self) -> bool {
        self.ended || self.all.values().all(|answer| answer.ended || answer.reset.is_some())
    }
}

enum Peer {
    One(Talk),
    Two(Box<Streams>),
}

impl Peer {
    fn step(&mut self) {
        match self {
            Peer::One(talk) => talk.step(),
            Peer::Two(streams) => streams.step(),
        }
    }
    fn is_done(&self) -> bool {
        match self {
            Peer::One(talk) => talk.is_done(),
            Peer::Two(streams) => streams.is_done(),
        }
    }
    /// Returns the numbers of sent requests and of those answered or refused for retry elsewhere.
    fn outcome(&self) -> (usize, usize) {
        match self {
            Peer::One(talk) => (talk.wanted.len(), talk.answers()),
            Peer::Two(streams) => (streams.all.len(), streams.all.len() - streams.missing()),
        }
    }
}

/// The upstream server: echoes the request, or the bytes of a tunnel.
struct Origin {
    listener: UnixListener,
    connections: Vec<(UnixStream, Vec<u8>, bool)>,
}

impl Origin {
    fn new() -> Origin {
        let path = FOLDER.join("origin");
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(path).expect("bound");
        listener.set_nonblocking(true).expect("nonblocking");
        Origin { listener, connections: Vec::new() }
    }
    fn step(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true).expect("nonblocking");
            self.connections.push((stream, Vec::new(), false));
        }
        self.connections.retain_mut(|(stream, bytes, is_tunnel)| {
            let mut buf = [0; 4096];
            let ended = loop {
                match stream.read(&mut buf) {
                    Ok(0) => break true,
                    Ok(n) => bytes.extend_from_slice(buf.get(..n).expect("read")),
                    Err(e) => break e.kind() != ErrorKind::WouldBlock,
                }
            };
            if *is_tunnel {
                let _ = stream.write(bytes);
                bytes.clear();
            } else if let Some((answer, tunnel)) = answer_of(bytes) {
                let _ = stream.write(&answer);
                bytes.clear();
                *is_tunnel = tunnel;
            }
            !ended
        });
    }
}

/// Answers a complete request; the flag announces a tunnel.
fn answer_of(bytes: &[u8]) -> Option<(Vec<u8>, bool)> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(bytes.get(..end)?).into_owned();
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    if field("Upgrade").is_some() {
        return Some((b"HTTP/1.1 101 Switching\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n".to_vec(), true));
    }
    let length = field("Content-Length").map_or(0, |length| length.parse().expect("a number"));
    let body = bytes.get(end + 4..end + 4 + length)?;
    let mut said = format!("{}: ", field("X-Plan").expect("a plan")).into_bytes();
    said.extend_from_slice(body);
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", said.len()).into_bytes();
    answer.extend_from_slice(&said);
    Some((answer, false))
}

/// Two listeners, which every plan has in another order. `$arg_n` tells requests apart in the log.
fn plan(number: usize) -> ServeLoop {
    let folder = FOLDER.display();
    let server = |listen: &str| {
        format!(
            "server {{ listen 127.0.0.1:{listen}; add_header X-Plan {number} always;
             location /words {{ return 200 \"words of {number}\"; }}
             location /pass {{ proxy_pass http://unix:{folder}/origin:/; proxy_set_header X-Plan {number}; }}
             location /tunnel {{ proxy_pass http://unix:{folder}/origin:/; proxy_http_version 1.1;
              proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }} }}"
        )
    };
    let mut servers = [server("8001"), server("8002; http2 on")];
    servers.rotate_left(number % 2);
    logging("steps.log", "$arg_n $status", &servers.concat())
}

/// By name.
const COURSES: &[&str] = &[
    "words",
    "static",
    "kept",
    "pipelined",
    "length, discarded",
    "chunked, discarded",
    "passed",
    "length, passed",
    "chunked, passed",
    "tunnel",
    "refused",
    "HTTP/2",
];

fn client(sim: &mut Sim, name: &str) -> Peer {
    let address = if name == "HTTP/2" { second() } else { first() };
    let stream = sim.connect(&address).expect("connected");
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let post = |path: &str, rest: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\n{rest}");
    let (length, chunked) =
        ("Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n");
    let (requests, wanted): (Vec<(usize, String)>, Vec<Wanted>) = match name {
        "words" => (vec![(0, get("/words?n=1"))], vec![Wanted::Words]),
        "static" => (vec![(0, get("/big?n=1"))], vec![Wanted::Big]),
        "kept" => (
            vec![(0, get("/words?n=1")), (1, get("/big?n=2")), (2, get("/words?n=3"))],
            vec![Wanted::Words, Wanted::Big, Wanted::Words],
        ),
        "pipelined" => {
            let three = [get("/words?n=1"), get("/words?n=2"), get("/big?n=3")].concat();
            (vec![(0, three)], vec![Wanted::Words, Wanted::Words, Wanted::Big])
        }
        "length, discarded" => (vec![(0, post("/words?n=1", length))], vec![Wanted::Words]),
        "chunked, discarded" => (vec![(0, post("/words?n=1", chunked))], vec![Wanted::Words]),
        "passed" => (vec![(0, get("/pass?n=1"))], vec![Wanted::Passed(b"")]),
        "length, passed" => (vec![(0, post("/pass?n=1", length))], vec![Wanted::Passed(b"hello")]),
        "chunked, passed" => (vec![(0, post("/pass?n=1", chunked))], vec![Wanted::Passed(b"hello")]),
        "tunnel" => {
            let asked =
                "GET /tunnel?n=1 HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\nthere and back";
            (vec![(0, asked.into())], vec![Wanted::Tunnel(b"there and back")])
        }
        "refused" => {
            let asked = "GET /words?n=1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
            (vec![(0, asked.into())], vec![Wanted::Refused])
        }
        _ => {
            let requests = [
                ("/words?n=1", Wanted::Words),
                ("/big?n=2", Wanted::Big),
                ("/pass?n=3", Wanted::Passed(b"hello")),
                ("/pass?n=4", Wanted::Passed(b"")),
            ];
            return Peer::Two(Box::new(Streams::new(stream, &requests)));
        }
    };
    let requests: Vec<(usize, &str)> = requests.iter().map(|(after, text)| (*after, text.as_str())).collect();
    Peer::One(Talk::new(stream, &requests, &wanted))
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a list").count()
}

struct Outcome {
    steps: u64,
    /// Requests and number of responses of the client and of its neighbour.
    client: (usize, usize),
    other: (usize, usize),
    /// The client's connection has ended.
    ended: bool,
    panics: usize,
    /// The step was reached while answers were awaited.
    happened: bool,
    /// Descriptors that were open before, and behind it.
    descriptors: (usize, usize),
}

fn course(name: &str, at: Option<(What, u64)>, plans: &[ServeLoop; 2]) -> Outcome {
    let counts = || {
        use metrics::process::{HTTP_DISCARDED, HTTP_REQUESTS, HTTP_RESPONSES};
        (HTTP_REQUESTS.sum(), HTTP_RESPONSES.sum() + HTTP_DISCARDED.sum())
    };
    let (before, open) = (counts(), descriptors());
    let log = FOLDER.join("steps.log");
    let logged = std::fs::metadata(&log).map_or(0, |file| file.len());
    PANICS.set(0);
    let mut origin = Origin::new();
    let mut sim = Sim::new(plans[0].clone()).expect("a thread");
    let keep = vec![(first(), false), (second(), false)];
    match at {
        None => sim.count_steps(),
        Some((What::Panic, step)) => sim.panic_at(step),
        Some((What::Reload, step)) => {
            sim.tell_at(step, WorkerCommand::Serve { serving: plans[1].clone(), listeners: Vec::new(), keep });
        }
        Some((What::Quit, step)) => sim.tell_at(step, WorkerCommand::Quit { timeout_ms: 0 }),
    }
    let mut client = client(&mut sim, name);
    let stream = sim.connect(&second()).expect("connected");
    let mut other = Talk::new(stream, &[(0, "GET /big?n=9 HTTP/1.1\r\nHost: a\r\n\r\n")], &[Wanted::Big]);
    let mut rounds = 0;
    while !client.is_done() || !other.is_done() {
        rounds += 1;
        assert!(rounds < ROUNDS_MAX, "no progress");
        client.step();
        other.step();
        sim.settle().expect("rest");
        origin.step();
        sim.settle().expect("rest");
    }
    let steps = sim.steps_made();
    // Requests whose last bytes arrived end only when the thread has noticed.
    sim.settle().expect("rest");
    let ended = match &mut client {
        Peer::One(talk) => {
            talk.step();
            let _ = talk.stream.shutdown(Shutdown::Both);
            talk.ended
        }
        Peer::Two(streams) => streams.ended,
    };
    let mut outcome = Outcome {
        steps,
        client: client.outcome(),
        other: (1, other.answers()),
        ended,
        panics: PANICS.get(),
        happened: at.is_some_and(|(_, step)| steps == step),
        descriptors: (0, 0),
    };
    sim.forget_step();
    drop((client, other));
    sim.settle().expect("rest");
    origin.step();
    sim.pass(200_000).expect("rest");
    assert_eq!((sim.clients(), sim.tasks()), (0, 0), "something is left");
    sim.tell(WorkerCommand::Quit { timeout_ms: 0 });
    sim.settle().expect("rest");
    assert!(sim.has_ended(), "the thread has not ended: {}", sim.owned());
    assert!(sim.end(), "something holds the thread");
    drop(origin);
    outcome.descriptors = (open, descriptors());
    let text = std::fs::read(&log).expect("a log");
    let text = String::from_utf8_lossy(text.get(logged as usize..).unwrap_or_default()).into_owned();
    let mut lines: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    let count = lines.len() as u64;
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len() as u64, count, "a request is logged twice:\n{text}");
    let after = counts();
    assert_eq!(after.0 - before.0, count, "requests that began, and lines:\n{text}");
    assert_eq!(after.1 - before.1, count, "requests that are counted as ended, and lines:\n{text}");
    outcome
}

/// Runs every course with this at every of its steps.
fn at_every_step(what: What, check: impl Fn(&str, &Outcome) + Sync) {
    // Runs on its own thread, which ends before the next run counts.
    let run = || {
        alone();
        every_step(what, &check);
    };
    let done = std::thread::scope(|scope| scope.spawn(run).join());
    assert!(done.is_ok(), "see above");
}

fn every_step(what: What, check: &(impl Fn(&str, &Outcome) + Sync)) {
    let plans = [plan(0), plan(1)];
    let mut count = 0;
    for name in COURSES {
        // Opens descriptors that a process opens only once.
        course(name, None, &plans);
        let whole = course(name, None, &plans);
        assert_eq!((whole.client.0, whole.other.0), (whole.client.1, whole.other.1), "{name}: all is answered");
        assert!(whole.steps > 5, "{name}: {} steps", whole.steps);
        assert_eq!(whole.descriptors.0, whole.descriptors.1, "{name}: descriptors are left");
        let mut step = 1;
        loop {
            let done =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| course(name, Some((what, step)), &plans)));
            let Ok(outcome) = done else { panic!("{name}: {what:?} at step {step} of {}", whole.steps) };
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                assert_eq!(outcome.descriptors.0, outcome.descriptors.1, "descriptors are left");
                check(name, &outcome);
            }));
            assert!(checked.is_ok(), "{name}: {what:?} at step {step} of {}", whole.steps);
            count += 1;
            if !outcome.happened {
                break;
            }
            step += 1;
            assert!(step < 10_000, "{name}: steps without end");
        }
    }
    println!("{count} courses");
}

#[test]
fn a_panic_at_any_step_costs_one_exchange() {
    let streams = AtomicUsize::new(0);
    at_every_step(What::Panic, |name, outcome| {
        assert!(outcome.panics == 1 || (outcome.panics == 0 && !outcome.happened));
        let client = outcome.client.1 < outcome.client.0;
        let other = outcome.other.1 < outcome.other.0;
        assert!(usize::from(client) + usize::from(other) <= outcome.panics, "one alone: {client} {other}");
        if name == "HTTP/2" && !outcome.ended {
            assert!(outcome.client.0 - outcome.client.1 <= 1, "one stream alone: {:?}", outcome.client);
            streams.fetch_add(outcome.client.0 - outcome.client.1, Ordering::Relaxed);
        }
    });
    assert!(streams.into_inner() > 0, "some panics cost a stream, and its connection goes on");
}

#[test]
fn a_reload_at_any_step_loses_nothing() {
    at_every_step(What::Reload, |_, outcome| {
        assert_eq!(outcome.other.0, outcome.other.1);
        assert_eq!(outcome.client.0, outcome.client.1);
    });
}

#[test]
fn quit_at_any_step_ends_no_request_that_has_come() {
    at_every_step(What::Quit, |name, outcome| {
        assert_eq!(outcome.other.0, outcome.other.1);
        // Requests after the first may find the connection closed; HTTP/2 names the unprocessed streams.
        let wanted = if name == "HTTP/2" { outcome.client.0 } else { 1 };
        assert!(outcome.client.1 >= wanted, "{:?}", outcome.client);
    });
}
