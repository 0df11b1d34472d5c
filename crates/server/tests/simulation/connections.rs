//! Connections in simulated time: every timeout of a client's side, and thousands of random courses with reloads, QUIT, resets
//! and panics in the middle. A failing course prints its seed; `TIDEGATE_SIM_SEED=N` runs that one alone.

use crate::support;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use support::simulated::{FOLDER, big, drain, first, for_seeds, longest_turn, quiet_panics, second, serving};
use testkit::Random;
use worker::sim::Sim;
use worker::thread::{ServeLoop, WorkerCommand};

fn sim(directives: &str) -> Sim {
    let servers = format!(
        "server {{ listen 127.0.0.1:8001; {directives}
         location /answer {{ return 200 here; }} location /read {{ proxy_pass http://127.0.0.1:1; }} }}"
    );
    Sim::new(serving(&servers)).expect("a thread")
}

fn is_open(stream: &mut UnixStream) -> bool {
    let (bytes, ended) = drain(stream);
    assert!(bytes.is_empty(), "{}", String::from_utf8_lossy(&bytes));
    !ended
}
fn answered(stream: &mut UnixStream, status: u16) -> bool {
    let (bytes, ended) = drain(stream);
    assert!(bytes.starts_with(format!("HTTP/1.1 {status}").as_bytes()), "{}", String::from_utf8_lossy(&bytes));
    !ended
}

const GET: &[u8] = b"GET /answer HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn expensive_requests_delay_others_for_milliseconds_only() {
    let mut sim = sim("");
    let mut greedy: Vec<UnixStream> = (0..8).map(|_| sim.connect(&first()).expect("connected")).collect();
    for stream in &mut greedy {
        stream.write_all(&GET.repeat(64)).expect("sent");
    }
    sim.slow_steps(700);
    assert!(longest_turn(&mut sim) < 30_000, "a turn of 512 requests");
    for stream in &mut greedy {
        let (bytes, ended) = drain(stream);
        assert_eq!((bytes.windows(4).filter(|part| part == b"here").count(), ended), (64, false));
    }
    sim.forget_step();
}

#[test]
fn a_head_has_client_header_timeout_however_it_drips() {
    let mut sim = sim("client_header_timeout 7s;");
    let mut silent = sim.connect(&first()).expect("connected");
    let mut dripping = sim.connect(&first()).expect("connected");
    for byte in GET.iter().take(13) {
        dripping.write_all(&[*byte]).expect("sent");
        sim.pass(500).expect("rest");
        assert!(is_open(&mut dripping) && is_open(&mut silent));
    }
    sim.pass(499).expect("rest");
    assert!(is_open(&mut dripping) && is_open(&mut silent));
    sim.pass(2).expect("rest");
    assert!(!is_open(&mut dripping) && !is_open(&mut silent));
    // On a kept connection it runs from the first byte.
    let mut kept = sim.connect(&first()).expect("connected");
    kept.write_all(GET).expect("sent");
    sim.pass(20_000).expect("rest");
    assert!(answered(&mut kept, 200));
    kept.write_all(b"GET").expect("sent");
    sim.pass(6_999).expect("rest");
    assert!(is_open(&mut kept));
    sim.pass(2).expect("rest");
    assert!(!is_open(&mut kept));
    assert_eq!((sim.clients(), sim.tasks()), (0, 0));
}

#[test]
fn a_kept_connection_has_keepalive_timeout() {
    let mut sim = sim("keepalive_timeout 11s;");
    let mut stream = sim.connect(&first()).expect("connected");
    for _ in 0..3 {
        stream.write_all(GET).expect("sent");
        sim.settle().expect("rest");
        assert!(answered(&mut stream, 200));
        sim.pass(10_999).expect("rest");
        assert!(is_open(&mut stream));
    }
    sim.pass(2).expect("rest");
    assert!(!is_open(&mut stream));
}

#[test]
fn timely_requests_are_answered_by_a_late_thread() {
    let mut sim = sim("keepalive_timeout 11s; client_header_timeout 7s;");
    let mut kept = sim.connect(&first()).expect("connected");
    let mut new = sim.connect(&first()).expect("connected");
    kept.write_all(GET).expect("sent");
    sim.settle().expect("rest");
    assert!(answered(&mut kept, 200));
    kept.write_all(GET).expect("sent");
    new.write_all(GET).expect("sent");
    sim.stall(60_000);
    sim.settle().expect("rest");
    assert!(answered(&mut kept, 200) && answered(&mut new, 200));
}

#[test]
fn a_body_has_client_body_timeout_between_two_reads() {
    let mut sim = sim("client_body_timeout 5s;");
    let mut stream = sim.connect(&first()).expect("connected");
    stream.write_all(b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n").expect("sent");
    for _ in 0..3 {
        stream.write_all(b"x").expect("sent");
        sim.pass(4_999).expect("rest");
        assert!(is_open(&mut stream));
    }
    sim.pass(2).expect("rest");
    assert!(!is_open(&mut stream), "closed without an answer, as nginx does");
    assert_eq!((sim.clients(), sim.tasks()), (0, 0));
}

#[test]
fn a_client_that_takes_nothing_has_send_timeout() {
    let mut sim = sim("send_timeout 4s;");
    let mut stream = sim.connect(&first()).expect("connected");
    stream.write_all(b"GET /huge HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    sim.pass(3_999).expect("rest");
    let mut got = drain(&mut stream).0.len();
    for _ in 0..2 {
        // The timeout starts again after each successful write.
        sim.pass(3_999).expect("rest");
        let (bytes, ended) = drain(&mut stream);
        assert!(!bytes.is_empty() && !ended);
        got += bytes.len();
    }
    sim.pass(4_001).expect("rest");
    let (bytes, ended) = drain(&mut stream);
    assert!(ended && got + bytes.len() < 1 << 30);
    assert_eq!((sim.clients(), sim.tasks()), (0, 0));
}

#[test]
fn a_thread_that_ends_leaves_nothing_whatever_its_tasks_wait_for() {
    let mut sim = sim("send_timeout 4s;");
    // A task has served this one, and parked it.
    let mut served = sim.connect(&first()).expect("connected");
    served.write_all(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    sim.settle().expect("rest");
    assert_eq!(sim.tasks(), 1);
    let mut got = 0;
    while got < 400_000 {
        got += drain(&mut served).0.len();
        sim.settle().expect("rest");
    }
    assert_eq!((sim.clients(), sim.tasks()), (1, 0));
    let mut stream = |bytes: &[u8]| {
        let mut stream = sim.connect(&first()).expect("connected");
        stream.write_all(bytes).expect("sent");
        sim.settle().expect("rest");
        stream
    };
    let _takes_nothing = stream(b"GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    let _sends_no_body = stream(b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nx");
    let _half_a_head = stream(b"GET /");
    let _kept = stream(GET);
    assert_eq!((sim.clients(), sim.tasks()), (5, 2));
    assert!(sim.end());
}

#[test]
fn input_of_a_refused_client_is_read_for_lingering_time() {
    let mut sim = sim("lingering_time 10s; lingering_timeout 3s;");
    let head = b"POST /answer HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n";
    let (mut silent, mut dripping) =
        (sim.connect(&first()).expect("connected"), sim.connect(&first()).expect("connected"));
    silent.write_all(head).expect("sent");
    dripping.write_all(head).expect("sent");
    sim.pass(2_999).expect("rest");
    assert_eq!(sim.clients(), 2);
    dripping.write_all(b"x").expect("sent");
    sim.pass(2).expect("rest");
    assert_eq!(sim.clients(), 1, "silence has ended the one");
    for _ in 0..3 {
        dripping.write_all(b"x").expect("sent");
        sim.pass(2_300).expect("rest");
    }
    assert_eq!(sim.clients(), 1);
    dripping.write_all(b"x").expect("sent");
    sim.pass(200).expect("rest");
    assert_eq!((sim.clients(), sim.tasks()), (0, 0), "the whole time has ended the other");
    assert!(drain(&mut dripping).0.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn a_location_limits_its_own_lingering_close() {
    let mut sim = sim("lingering_time 1h; lingering_timeout 1h; keepalive_requests 1; lingering_close always;
         location /brief { lingering_timeout 3s; return 200 here; }");
    // With a body, the response is written by a task.
    for body in ["", "Content-Length: 9\r\n"] {
        let mut stream = sim.connect(&first()).expect("connected");
        stream.write_all(format!("POST /brief HTTP/1.1\r\nHost: a\r\n{body}\r\n").as_bytes()).expect("sent");
        sim.pass(2_999).expect("rest");
        assert!(!answered(&mut stream, 200), "the write side is closed");
        assert_eq!(sim.clients(), 1, "{body}");
        sim.pass(2).expect("rest");
        assert_eq!(sim.clients(), 0, "{body}");
    }
}

#[test]
fn a_connection_lingers_behind_a_body_that_was_read() {
    let mut sim = sim("lingering_time 10s; lingering_timeout 3s;");
    for head in [
        "POST /read HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
        "POST /read HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc",
        "POST /read HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ] {
        let mut stream = sim.connect(&first()).expect("connected");
        stream.write_all(head.as_bytes()).expect("sent");
        sim.settle().expect("rest");
        assert!(!answered(&mut stream, 502), "no server is there");
        assert_eq!(sim.clients(), 1, "{head}");
        stream.write_all(b"\r\n").expect("sent");
        sim.pass(3_001).expect("rest");
        assert_eq!(sim.clients(), 0);
    }
    let mut without_body = sim.connect(&first()).expect("connected");
    without_body
        .write_all(b"POST /read HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        .expect("sent");
    sim.settle().expect("rest");
    assert_eq!(sim.clients(), 0);
}

#[test]
fn input_behind_a_refused_head_is_read() {
    let mut sim = sim("lingering_time 10s; lingering_timeout 3s;");
    for head in [
        "POST /answer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        "POST /answer HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\nabc",
        "POST /answer HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
    ] {
        let mut stream = sim.connect(&first()).expect("connected");
        stream.write_all(head.as_bytes()).expect("sent");
        sim.settle().expect("rest");
        assert!(!answered(&mut stream, 400), "the answer is whole");
        assert_eq!(sim.clients(), 1, "and what follows is read");
        stream.write_all(b"and more").expect("sent");
        sim.pass(3_001).expect("rest");
        assert_eq!(sim.clients(), 0);
    }
}

#[test]
fn quit_leaves_kept_connections_keepalive_min_timeout_and_requests_worker_shutdown_timeout() {
    let mut sim = sim("keepalive_min_timeout 3s; send_timeout 100s;");
    let mut kept = sim.connect(&first()).expect("connected");
    kept.write_all(GET).expect("sent");
    let mut busy = sim.connect(&first()).expect("connected");
    busy.write_all(b"GET /huge HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    sim.settle().expect("rest");
    assert!(answered(&mut kept, 200));
    sim.tell(WorkerCommand::Quit { timeout_ms: 20_000 });
    sim.pass(2_999).expect("rest");
    assert!(is_open(&mut kept));
    sim.pass(2).expect("rest");
    assert!(!is_open(&mut kept));
    sim.pass(16_990).expect("rest");
    assert!(!sim.has_ended());
    sim.pass(20).expect("rest");
    assert!(sim.has_ended());
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// The configuration's own words, for this listener.
    Words(&'static str),
    Big,
    Refused,
}

struct Course {
    stream: Option<UnixStream>,
    to_send: Vec<u8>,
    sent: usize,
    wanted: Vec<Wanted>,
    got: Vec<u8>,
    ended: bool,
    /// It was torn down by the client.
    torn: bool,
}

fn requests(random: &mut Random, name: &'static str) -> (Vec<u8>, Vec<Wanted>) {
    let (mut bytes, mut wanted) = (Vec::new(), Vec::new());
    for _ in 0..1 + random.below(4) {
        match random.below(6) {
            0 | 1 => {
                bytes.extend_from_slice(
                    b"GET /words?x=1 HTTP/1.1\r\nHost: a\r\nX-Long: aaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n",
                );
                wanted.push(Wanted::Words(name));
            }
            2 => {
                bytes.extend_from_slice(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
                wanted.push(Wanted::Big);
            }
            3 => {
                bytes.extend_from_slice(
                    b"POST /words HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\nGET / HTTP/1.1\r\n\r\n..",
                );
                wanted.push(Wanted::Words(name));
            }
            4 => {
                bytes.extend_from_slice(
                    b"POST /words HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n",
                );
                wanted.push(Wanted::Words(name));
            }
            _ => {
                bytes.extend_from_slice(b"GET /words HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
                wanted.push(Wanted::Refused);
                return (bytes, wanted);
            }
        }
    }
    (bytes, wanted)
}

impl Course {
    fn send(&mut self, random: &mut Random) {
        let Some(stream) = &mut self.stream else { return };
        let left = self.to_send.get(self.sent..).unwrap_or_default();
        let most = if random.chance(20) { left.len() } else { 1 + random.below(left.len().min(60)) };
        if let Ok(n) = stream.write(left.get(..most.min(left.len())).unwrap_or_default()) {
            self.sent += n;
        }
    }
    fn receive(&mut self, random: &mut Random) {
        let Some(stream) = &mut self.stream else { return };
        let mut buf = vec![0; if random.chance(70) { 100_000 } else { 1 + random.below(3000) }];
        match stream.read(&mut buf) {
            Ok(0) => self.ended = true,
            Ok(n) => self.got.extend_from_slice(buf.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.ended = true,
        }
    }
    /// Counts complete responses. Each must belong to its request, in order, and to one configuration.
    fn check(&self, big: &[u8], plans: usize) -> usize {
        let (mut rest, mut plan) = (self.got.as_slice(), 0);
        for (n, wanted) in self.wanted.iter().enumerate() {
            let Some(end) = rest.windows(4).position(|w| w == b"\r\n\r\n") else { return n };
            let head = String::from_utf8_lossy(rest.get(..end).unwrap_or_default()).into_owned();
            let status = if *wanted == Wanted::Refused { "HTTP/1.1 400 " } else { "HTTP/1.1 200 " };
            assert!(head.starts_with(status), "answer {n}: {head}");
            let length = head.lines().find_map(|l| l.strip_prefix("Content-Length: ")).expect("a length");
            let length: usize = length.parse().expect("a number");
            let Some(body) = rest.get(end + 4..end + 4 + length) else { return n };
            match wanted {
                Wanted::Words(name) => {
                    let words = String::from_utf8_lossy(body).into_owned();
                    let number = words.strip_prefix(name).and_then(|w| w.trim().parse().ok());
                    let number: usize = number.unwrap_or_else(|| panic!("answer {n} of {name}: {words}"));
                    assert!(number >= plan && number < plans, "answer {n}: {words} after plan {plan} of {plans}");
                    plan = number;
                }
                Wanted::Big => assert!(body == big, "answer {n}"),
                Wanted::Refused => {}
            }
            rest = rest.get(end + 4 + length..).unwrap_or_default();
        }
        assert!(rest.is_empty(), "more than was asked for: {}", String::from_utf8_lossy(rest));
        self.wanted.len()
    }
}

/// Two listeners; every plan has them in another order.
fn plan(number: usize) -> ServeLoop {
    let server = |port: u16, name: &str| {
        format!("server {{ listen 127.0.0.1:{port}; location /words {{ return 200 \"{name} {number}\"; }} }}")
    };
    let mut servers = [server(8001, "one"), server(8002, "two"), server(8100 + number as u16, "other")];
    let turns = number % servers.len();
    servers.rotate_left(turns);
    serving(&servers.concat())
}

const PLANS: usize = 4;

fn course(seed: u64, plans: &[ServeLoop], big: &[u8]) {
    let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut sim = Sim::new(plans.first().expect("a plan").clone()).expect("a thread");
    let (reloads, quits, panics) = (random.chance(50), random.chance(25), random.chance(25));
    if panics {
        sim.panic_at(1 + random.number() % 40);
    }
    let mut clients: Vec<Course> = (0..1 + random.below(3))
        .map(|_| {
            let (address, name) = if random.chance(50) { (first(), "one") } else { (second(), "two") };
            let (to_send, wanted) = requests(&mut random, name);
            let stream = Some(sim.connect(&address).expect("connected"));
            Course { stream, to_send, sent: 0, wanted, got: Vec::new(), ended: false, torn: false }
        })
        .collect();
    let (mut current, mut quit) = (1, false);
    let mut steps = 0;
    while clients
        .iter()
        .any(|c| c.stream.is_some() && !c.ended && (c.sent < c.to_send.len() || c.check(big, current) < c.wanted.len()))
    {
        steps += 1;
        assert!(steps < 20_000, "no progress");
        let one = random.below(clients.len());
        let client = clients.get_mut(one).expect("a client");
        match random.below(8) {
            0..=2 => client.send(&mut random),
            3..=5 => client.receive(&mut random),
            6 => sim.pass(random.number() % 50).expect("rest"),
            _ if reloads && current < plans.len() && random.chance(5) => {
                let serving = plans.get(current).expect("a plan").clone();
                sim.tell(WorkerCommand::Serve {
                    serving,
                    listeners: Vec::new(),
                    keep: vec![(first(), false), (second(), false)],
                });
                current += 1;
                // Later requests are judged by the new plan.
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
    let mut harmed = 0;
    for client in &mut clients {
        if let Some(stream) = &mut client.stream {
            sim.settle().expect("rest");
            client.got.extend_from_slice(&drain(stream).0);
        }
        let whole = client.check(big, current);
        if whole < client.wanted.len() && !client.torn && !quit {
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
fn random_courses() {
    quiet_panics();
    let plans: Vec<ServeLoop> = (0..PLANS).map(plan).collect();
    let big = big();
    for_seeds(10_000, |seed| course(seed, &plans, &big));
}

/// The first message of a client of TLS 1.2 that takes ECDHE with ECDSA.
fn client_hello() -> Vec<u8> {
    let extensions: &[&[u8]] = &[
        // supported_groups: x25519, secp256r1
        &[0, 10, 0, 6, 0, 4, 0, 29, 0, 23],
        // ec_point_formats: uncompressed
        &[0, 11, 0, 2, 1, 0],
        // signature_algorithms: ecdsa_secp256r1_sha256
        &[0, 13, 0, 4, 0, 2, 4, 3],
    ];
    let extensions = extensions.concat();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    // No session; TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256; no compression.
    body.extend([0, 0, 2, 0xC0, 0x2B, 1, 0, 0, extensions.len() as u8]);
    body.extend(extensions);
    let mut message = vec![22, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8];
    message.extend(body);
    message
}

#[test]
fn handshakes_come_after_all_others_and_a_few_at_a_time() {
    const CLIENTS: usize = 20;
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["localhost".to_string()]).expect("parameters");
    let certificate = params.self_signed(&key).expect("signed").pem();
    std::fs::write(FOLDER.join("cert.pem"), certificate).expect("a file");
    std::fs::write(FOLDER.join("key.pem"), key.serialize_pem()).expect("a file");
    let folder = FOLDER.display();
    let mut sim = Sim::new(serving(&format!(
        "ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;
         server {{ listen 127.0.0.1:8001 ssl; location / {{ return 200 here; }} }}
         server {{ listen 127.0.0.1:8002; location / {{ return 200 here; }} }}"
    )))
    .expect("a thread");
    let mut handshakes: Vec<UnixStream> = (0..CLIENTS).map(|_| sim.connect(&first()).expect("connected")).collect();
    let mut plain = sim.connect(&second()).expect("connected");
    sim.settle().expect("rest");
    for stream in &mut handshakes {
        stream.write_all(&client_hello()).expect("sent");
    }
    plain.write_all(GET).expect("sent");
    sim.turn().expect("a turn");
    assert!(answered(&mut plain, 200), "who came last is answered first");
    let begun = |sim: &mut Sim, handshakes: &mut Vec<UnixStream>| {
        let (mut count, before) = (0, handshakes.len());
        handshakes.retain_mut(|stream| {
            let (bytes, ended) = drain(stream);
            // A handshake record with a ServerHello.
            assert!(
                !ended && (bytes.is_empty() || (bytes.first(), bytes.get(5)) == (Some(&22), Some(&2))),
                "{bytes:?}"
            );
            count += usize::from(!bytes.is_empty());
            bytes.is_empty()
        });
        assert_eq!(before - handshakes.len(), count);
        assert_eq!(sim.tasks(), 0);
        count
    };
    let mut counts = vec![begun(&mut sim, &mut handshakes)];
    while !handshakes.is_empty() {
        sim.turn().expect("a turn");
        counts.push(begun(&mut sim, &mut handshakes));
        assert!(counts.len() <= CLIENTS, "{counts:?}");
    }
    assert!(counts.iter().all(|count| (1..=4).contains(count)), "{counts:?}");
}
