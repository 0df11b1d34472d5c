//! Connections of HTTP/2 in simulated time: random courses of streams that are opened, fed, read, cut into any pieces and given up, with
//! reloads, QUIT, panics and clients that leave in the middle. `TIDEGATE_SIM_SEED=N` runs one course alone.

use crate::support;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use support::simulated::{big, drain, first, for_seeds, longest_turn, quiet_panics, second, serving};
use testkit::Random;
use wire_h2::hpack::Encoder;
use wire_h2::{Client, ClientEvent, ClientLimits};
use worker::sim::Sim;
use worker::thread::{ServeLoop, WorkerCommand};

const PLANS: usize = 4;
const BODY: &[u8] = &[b'x'; 5000];

/// Two listeners; every plan has them in another order.
fn plan(number: usize) -> ServeLoop {
    let server = |port: u16, name: &str| {
        format!("server {{ listen 127.0.0.1:{port}; http2 on; location /words {{ return 200 \"{name} {number}\"; }} }}")
    };
    let mut servers = [server(8001, "one"), server(8002, "two"), server(8100 + number as u16, "other")];
    let turns = number % servers.len();
    servers.rotate_left(turns);
    serving(&servers.concat())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Words,
    Big,
    Refused,
}

#[derive(Debug)]
struct Stream {
    wanted: Wanted,
    /// Remaining request body.
    left: usize,
    status: String,
    body: Vec<u8>,
    ended: bool,
    /// The server has reset it; `true`: without processing.
    reset: Option<bool>,
    /// The client has given it up.
    given_up: bool,
}

struct Course {
    name: &'static str,
    stream: Option<UnixStream>,
    client: Client,
    streams: BTreeMap<u32, Stream>,
    /// How many it still wants to open.
    to_open: usize,
    /// The connection has ended, or takes no more streams.
    ended: bool,
    going: bool,
    torn: bool,
}

impl Course {
    fn open(&mut self, random: &mut Random) {
        if self.to_open == 0 || self.going {
            return;
        }
        let (path, wanted, body) = match random.below(6) {
            0 | 1 => ("/words?x=1", Wanted::Words, false),
            2 | 3 => ("/big", Wanted::Big, false),
            4 => ("/words", Wanted::Words, true),
            _ => ("no path", Wanted::Refused, false),
        };
        let mut block = Vec::new();
        let mut encoder = Encoder::stateless();
        encoder.begin(&mut block);
        let method: &[u8] = if body { b"POST" } else { b"GET" };
        for (name, value) in
            [(&b":method"[..], method), (b":scheme", b"http"), (b":path", path.as_bytes()), (b":authority", b"a")]
        {
            encoder.field(name, value, &mut block);
        }
        if random.chance(30) {
            encoder.field(b"priority", format!("u={}", random.below(8)).as_bytes(), &mut block);
        }
        let Some(id) = self.client.open(&block, !body) else { return };
        self.to_open -= 1;
        let left = if body { BODY.len() } else { 0 };
        self.streams.insert(
            id,
            Stream {
                wanted,
                left,
                status: String::new(),
                body: Vec::new(),
                ended: false,
                reset: None,
                given_up: false,
            },
        );
    }
    /// A part of some request's body.
    fn feed(&mut self, random: &mut Random) {
        let open: Vec<u32> =
            self.streams.iter().filter(|(_, s)| s.left > 0 && s.is_open()).map(|(id, _)| *id).collect();
        let Some(id) = open.get(random.below(open.len())).copied() else { return };
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let part = (1 + random.below(stream.left)).min(stream.left);
        let sent = self.client.send_body(id, BODY.get(..part).unwrap_or_default(), part == stream.left);
        stream.left -= sent;
    }
    fn give_up(&mut self, random: &mut Random) {
        let open: Vec<u32> = self.streams.iter().filter(|(_, s)| s.is_open()).map(|(id, _)| *id).collect();
        let Some(id) = open.get(random.below(open.len())).copied() else { return };
        self.client.forget(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.given_up = true;
        }
    }
    fn send(&mut self, random: &mut Random) {
        let Some(stream) = &mut self.stream else { return };
        let out = self.client.output();
        let most = if random.chance(40) { out.len() } else { (1 + random.below(60)).min(out.len()) };
        if let Ok(n) = stream.write(out.get(..most).unwrap_or_default()) {
            self.client.advance(n);
        }
    }
    fn receive(&mut self, most: usize) {
        let Some(stream) = &mut self.stream else { return };
        let mut buf = vec![0; most];
        match stream.read(&mut buf) {
            Ok(0) => self.ended = true,
            Ok(n) => {
                let bytes = buf.get(..n).unwrap_or_default();
                let read = self.client.receive(bytes);
                assert!(read.is_ok(), "{read:?}: {}", String::from_utf8_lossy(bytes));
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
                    let Some(found) = self.streams.get_mut(&stream) else { continue };
                    let status = list.iter().find(|(name, _)| *name == b":status").map(|(_, value)| value.to_vec());
                    found.status = String::from_utf8(status.expect("a status")).expect("text");
                    found.ended |= end;
                }
                ClientEvent::Body { stream, bytes, end, .. } => {
                    let Some(found) = self.streams.get_mut(&stream) else { continue };
                    found.body.extend_from_slice(&bytes);
                    found.ended |= end;
                    self.client.consumed(stream, bytes.len());
                }
                ClientEvent::Trailers { stream, .. } => panic!("trailers on {stream}"),
                ClientEvent::Counted { stream, .. } => panic!("a body that nobody asked to count, on {stream}"),
                ClientEvent::Reset { stream, code, unprocessed } => {
                    let Some(found) = self.streams.get_mut(&stream) else { continue };
                    // A response before the end of the request means that the rest is not wanted.
                    assert!(!found.ended || code == 0, "stream {stream}: reset with {code} behind its answer");
                    found.left = 0;
                    if !found.ended {
                        found.reset = Some(unprocessed);
                    }
                }
                ClientEvent::Capacity(_) => {}
                ClientEvent::Goaway => self.going = true,
            }
        }
        let done: Vec<u32> = self.streams.iter().filter(|(_, s)| s.ended && s.left == 0).map(|(id, _)| *id).collect();
        for id in done {
            self.client.forget(id);
        }
    }
    /// The stream is still open.
    fn is_on(&self) -> bool {
        self.stream.is_some()
            && !self.ended
            && ((self.to_open > 0 && !self.going) || self.streams.values().any(Stream::is_open))
    }
    /// Whole answers are the right ones; how many streams were not answered.
    fn check(&self, big: &[u8], plans: usize) -> usize {
        let mut harmed = 0;
        for (id, stream) in &self.streams {
            if stream.given_up || stream.reset == Some(true) {
                continue;
            }
            if !stream.ended {
                harmed += 1;
                continue;
            }
            let status = if stream.wanted == Wanted::Refused { "400" } else { "200" };
            assert_eq!(stream.status, status, "stream {id}");
            match stream.wanted {
                Wanted::Words => {
                    let words = String::from_utf8_lossy(&stream.body).into_owned();
                    let number = words.strip_prefix(self.name).and_then(|rest| rest.trim().parse::<usize>().ok());
                    assert!(number.is_some_and(|number| number < plans), "stream {id} of {}: {words}", self.name);
                }
                Wanted::Big => assert!(stream.body == big, "stream {id}: {} octets", stream.body.len()),
                Wanted::Refused => {}
            }
        }
        harmed
    }
}

impl Stream {
    fn is_open(&self) -> bool {
        (!self.ended || self.left > 0) && self.reset.is_none() && !self.given_up
    }
}

fn course(seed: u64, plans: &[ServeLoop], big: &[u8]) {
    let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut sim = Sim::new(plans.first().expect("a plan").clone()).expect("a thread");
    let (reloads, quits, panics) = (random.chance(50), random.chance(25), random.chance(25));
    if panics {
        sim.panic_at(1 + random.number() % 60);
    }
    let mut clients: Vec<Course> = (0..1 + random.below(2))
        .map(|_| {
            let (address, name) = if random.chance(50) { (first(), "one") } else { (second(), "two") };
            Course {
                name,
                stream: Some(sim.connect(&address).expect("connected")),
                client: Client::new(ClientLimits::default()),
                streams: BTreeMap::new(),
                to_open: 1 + random.below(6),
                ended: false,
                going: false,
                torn: false,
            }
        })
        .collect();
    let (mut current, mut quit, mut steps) = (1, false, 0);
    while clients.iter().any(Course::is_on) {
        steps += 1;
        assert!(steps < 20_000, "no progress");
        let one = random.below(clients.len());
        let client = clients.get_mut(one).expect("a client");
        match random.below(12) {
            0 => client.open(&mut random),
            1 => client.feed(&mut random),
            2..=5 => client.send(&mut random),
            6..=8 => client.receive(if random.chance(70) { 100_000 } else { 1 + random.below(3000) }),
            9 => sim.pass(random.number() % 50).expect("rest"),
            10 if reloads && current < plans.len() && random.chance(10) => {
                let serving = plans.get(current).expect("a plan").clone();
                let keep = vec![(first(), false), (second(), false)];
                sim.tell(WorkerCommand::Serve { serving, listeners: Vec::new(), keep });
                current += 1;
            }
            10 if quits && !quit && random.chance(4) => {
                sim.tell(WorkerCommand::Quit { timeout_ms: 0 });
                quit = true;
            }
            11 if random.chance(10) => client.give_up(&mut random),
            11 if random.chance(1) => {
                client.torn = true;
                client.stream = None;
            }
            _ => {}
        }
        if random.chance(60) {
            sim.settle().expect("rest");
        }
    }
    let mut harmed = 0;
    for client in &mut clients {
        let missing = client.check(big, current);
        // A connection closed with a GOAWAY may lose frames in flight.
        if missing > 0 && !client.torn && !quit {
            harmed += 1;
        }
    }
    assert!(harmed <= usize::from(panics), "{harmed} clients were not answered");
    drop(clients);
    sim.panic_at(0);
    sim.pass(200_000).expect("rest");
    assert_eq!((sim.clients(), sim.tasks()), (0, 0), "something is left");
    if !quit {
        sim.tell(WorkerCommand::Quit { timeout_ms: 0 });
    }
    sim.settle().expect("rest");
    assert!(sim.has_ended(), "the thread has not ended: {}", sim.owned());
}

#[test]
fn expensive_requests_of_one_read_delay_others_for_milliseconds_only() {
    let mut sim = Sim::new(plan(0)).expect("a thread");
    let mut greedy: Vec<UnixStream> = (0..4).map(|_| sim.connect(&first()).expect("connected")).collect();
    for stream in &mut greedy {
        let mut client = Client::new(ClientLimits::default());
        for _ in 0..100 {
            let mut block = Vec::new();
            let mut encoder = Encoder::stateless();
            encoder.begin(&mut block);
            for (name, value) in
                [(&b":method"[..], &b"GET"[..]), (b":scheme", b"http"), (b":path", b"/words"), (b":authority", b"a")]
            {
                encoder.field(name, value, &mut block);
            }
            client.open(&block, true).expect("a stream");
        }
        stream.write_all(client.output()).expect("sent");
    }
    sim.slow_steps(700);
    // The beginnings of one connection's requests are 100 steps; their answers would be 200 more.
    let longest = longest_turn(&mut sim);
    assert!(longest < 150_000, "a turn of 400 requests: {longest}");
    for stream in &mut greedy {
        let (bytes, ended) = drain(stream);
        assert_eq!((bytes.windows(5).filter(|part| part == b"one 0").count(), ended), (100, false));
    }
    sim.forget_step();
}

/// nginx: frames do not touch the timer of an idle connection.
#[test]
fn only_requests_prolong_an_idle_connection() {
    const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0tidegate";
    let conf = "keepalive_timeout 10s; client_header_timeout 5s;
        server { listen 127.0.0.1:8001; http2 on; location /words { return 200 words; } }";
    let mut sim = Sim::new(serving(conf)).expect("a thread");
    let mut client = Client::new(ClientLimits::default());
    let mut stream = sim.connect(&first()).expect("connected");
    let mut ask = |stream: &mut UnixStream| {
        let mut block = Vec::new();
        let mut encoder = Encoder::stateless();
        encoder.begin(&mut block);
        for (name, value) in
            [(&b":method"[..], &b"GET"[..]), (b":scheme", b"http"), (b":path", b"/words"), (b":authority", b"a")]
        {
            encoder.field(name, value, &mut block);
        }
        client.open(&block, true).expect("a stream");
        stream.write_all(client.output()).expect("sent");
        client.advance(client.output().len());
    };
    ask(&mut stream);
    for wait in [6_000, 6_000] {
        sim.pass(wait).expect("time");
        assert_eq!(sim.clients(), 1);
        ask(&mut stream);
    }
    for wait in [3_000, 3_000, 3_000] {
        sim.pass(wait).expect("time");
        assert_eq!(sim.clients(), 1);
        stream.write_all(PING).expect("sent");
    }
    sim.pass(2_000).expect("time");
    assert_eq!(sim.clients(), 0, "10 seconds after the last request");
}

#[test]
fn random_courses() {
    quiet_panics();
    let plans: Vec<ServeLoop> = (0..PLANS).map(plan).collect();
    let big = big();
    for_seeds(10_000, |seed| course(seed, &plans, &big));
}
