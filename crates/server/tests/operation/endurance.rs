//! Reloads and upgrades (USR2) one after the other, under requests of HTTP/1, TLS, HTTP/2 and HTTP/3, with the sandbox and isolated keys:
//! no request is lost, and no process keeps descriptors.
//!
//! `TIDEGATE_RELOADS` and `TIDEGATE_UPGRADES` make it longer than in `cargo test`; 1000 and 100 are what a release is tested with.

use crate::support;

use http_types::ListLimits;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;
use support::client::{Client, get};
use support::http2::{DATA, GOAWAY, HEADERS, RST_STREAM, SETTINGS, frame};
use support::{Site, alive, children, descriptors, free_port, http3, private_kb, signal, wait};
use wire_h2::PREFACE;
use wire_h2::hpack::{Decoder, Encoder};

const REQUESTS: u32 = 5;
/// Descriptors that a process may have more than in the beginning: of connections that are about to end.
const MORE_DESCRIPTORS: usize = 24;
const FILE_BYTES: usize = 100_000;

fn env(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[derive(Debug, Default)]
struct Outcome {
    answered: usize,
    /// Requests that the server had not taken when it closed: the client may send them again (RFC 9110, 9.2.2; RFC 9113, 6.8).
    untaken: usize,
}

type Conversation = fn(&Ports) -> Result<Outcome, String>;

#[derive(Clone, Debug)]
struct Ports {
    plain: u16,
    tls: u16,
}

/// Clients without a pause, until they are stopped.
struct Load<'scope> {
    threads: Vec<ScopedJoinHandle<'scope, ()>>,
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    answered: [AtomicUsize; CLIENTS.len()],
    untaken: [AtomicUsize; CLIENTS.len()],
    lost: std::sync::Mutex<Vec<String>>,
}

const CLIENTS: [(&str, Conversation); 5] =
    [("HTTP/1", http1), ("HTTP/1, kept", http1_kept), ("TLS", tls), ("HTTP/2", http2), ("HTTP/3", http3)];

impl<'scope> Load<'scope> {
    fn start<'env>(scope: &'scope Scope<'scope, 'env>, ports: &'env Ports, counts: &'env Counts) -> Load<'scope> {
        let client = |(number, (name, talk)): (usize, (&'static str, Conversation))| {
            scope.spawn(move || {
                while !counts.stop.load(Ordering::Relaxed) {
                    match talk(ports) {
                        Ok(outcome) => {
                            counts.answered[number].fetch_add(outcome.answered, Ordering::Relaxed);
                            counts.untaken[number].fetch_add(outcome.untaken, Ordering::Relaxed);
                        }
                        Err(why) => counts.lost.lock().expect("no panic").push(format!("{name}: {why}")),
                    }
                }
            })
        };
        Load { threads: CLIENTS.into_iter().enumerate().map(client).collect() }
    }

    fn end(self, counts: &Counts, phase: &str) {
        counts.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("no panic");
        }
        for (number, (name, _)) in CLIENTS.iter().enumerate() {
            let (answered, untaken) = (&counts.answered[number], &counts.untaken[number]);
            let (answered, untaken) = (answered.load(Ordering::Relaxed), untaken.load(Ordering::Relaxed));
            println!("{phase}: {name}: {answered} answered, {untaken} sent again");
            assert!(answered > 0, "{phase}: {name}");
        }
        let lost = counts.lost.lock().expect("no panic");
        assert!(lost.is_empty(), "{phase}: {} lost: {:#?}", lost.len(), &lost[..lost.len().min(10)]);
    }
}

fn is_right(path: &str, status: u16, body: &[u8]) -> Result<(), String> {
    let right = match path {
        "/file" => body.len() == FILE_BYTES && body.iter().all(|byte| *byte == b'x'),
        _ => body.starts_with(b"served "),
    };
    if status == 200 && right {
        return Ok(());
    }
    Err(format!("{path}: {status}, {} bytes, \"{:.40}\"", body.len(), support::text(body)))
}

const PATHS: [&str; 3] = ["/", "/file", "/proxy"];

fn path(number: u32) -> &'static str {
    PATHS[number as usize % PATHS.len()]
}

fn http1(ports: &Ports) -> Result<Outcome, String> {
    for path in PATHS {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let (status, body) = Client::connect(ports.plain)?.ask(&request)?;
        is_right(path, status, body.as_bytes())?;
    }
    Ok(Outcome { answered: PATHS.len(), untaken: 0 })
}

fn http1_kept(ports: &Ports) -> Result<Outcome, String> {
    let mut client = Client::connect(ports.plain)?;
    let mut outcome = Outcome::default();
    for number in 0..REQUESTS {
        let path = path(number);
        match client.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")) {
            Ok((status, body)) => is_right(path, status, body.as_bytes())?,
            // An idle connection may be closed at any time (RFC 9112, 9.5).
            Err(why) if number > 0 && is_a_close(&why) => {
                outcome.untaken += 1;
                break;
            }
            Err(why) => return Err(format!("request {number}: {why}")),
        }
        outcome.answered += 1;
        if client.closing {
            break;
        }
    }
    Ok(outcome)
}

/// Tells whether a connection ended before the first byte of a response.
fn is_a_close(why: &str) -> bool {
    why == "the connection was closed" || why.contains("reset by peer") || why.contains("Broken pipe")
}

fn secured(port: u16, protocol: &[u8]) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(http3::Believing))
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("localhost").map_err(|e| e.to_string())?;
    let session = ClientConnection::new(Arc::new(config), name).map_err(|e| e.to_string())?;
    let socket = TcpStream::connect(("127.0.0.1", port)).map_err(|e| format!("connect: {e}"))?;
    socket.set_read_timeout(Some(Duration::from_secs(20))).map_err(|e| e.to_string())?;
    Ok(StreamOwned::new(session, socket))
}

/// A handshake, signed by the key process, and a request.
fn tls(ports: &Ports) -> Result<Outcome, String> {
    let mut stream = secured(ports.tls, b"http/1.1")?;
    let path = "/file";
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(|e| format!("write: {e}"))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(|e| format!("read: {e}, after {} bytes", answer.len()))?;
    let end = answer.windows(4).position(|at| at == b"\r\n\r\n").ok_or("no head")? + 4;
    let status = if answer.starts_with(b"HTTP/1.1 200") { 200 } else { 0 };
    is_right(path, status, &answer[end..])?;
    Ok(Outcome { answered: 1, untaken: 0 })
}

fn http2(ports: &Ports) -> Result<Outcome, String> {
    let mut stream = secured(ports.tls, b"h2")?;
    let mut encoder = Encoder::default();
    let mut decoder = Decoder::default();
    let limits = ListLimits { bytes_max: 65_536, fields_max: 100, field_max: 65_536 };
    // Windows for all responses: no updates are needed.
    let settings = [&[0, 4][..], &(1_u32 << 24).to_be_bytes()].concat();
    let window = (1_u32 << 24).to_be_bytes();
    let mut out = [PREFACE, &frame(SETTINGS, 0, 0, &settings), &frame(8, 0, 0, &window)].concat();
    for number in 0..REQUESTS {
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (name, value) in
            [(":method", "GET"), (":scheme", "https"), (":path", path(number)), (":authority", "localhost")]
        {
            encoder.field(name.as_bytes(), value.as_bytes(), &mut block);
        }
        out.extend(frame(HEADERS, 5, 2 * number + 1, &block));
    }
    stream.write_all(&out).map_err(|e| format!("write: {e}"))?;
    let mut taken_up_to = u32::MAX;
    let mut answers = vec![(0_u16, Vec::new(), false); REQUESTS as usize];
    let missing = |answers: &[(u16, Vec<u8>, bool)], last: u32| {
        answers.iter().enumerate().filter(|(n, (_, _, whole))| !whole && 2 * (*n as u32) < last).count()
    };
    while missing(&answers, taken_up_to) > 0 {
        let mut head = [0; 9];
        stream
            .read_exact(&mut head)
            .map_err(|e| format!("read: {e}, of {REQUESTS} requests {} are missing", missing(&answers, taken_up_to)))?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).map_err(|e| format!("read: {e} in a frame"))?;
        let (kind, ended) = (head[3], head[4] & 1 != 0);
        let id = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        if kind == GOAWAY {
            taken_up_to = u32::from_be_bytes(payload[..4].try_into().expect("four bytes"));
            continue;
        }
        let Some(answer) = id.checked_sub(1).and_then(|n| answers.get_mut(n as usize / 2)) else { continue };
        match kind {
            HEADERS => {
                let list = decoder.decode(&payload, &limits).map_err(|e| format!("{e:?}"))?;
                let status = list.iter().find(|(name, _)| *name == b":status").map(|(_, value)| support::text(value));
                answer.0 = status.and_then(|status| status.parse().ok()).unwrap_or(0);
            }
            DATA => answer.1.extend_from_slice(&payload),
            RST_STREAM => return Err(format!("stream {id} was reset: {payload:?}")),
            _ => continue,
        }
        answer.2 |= ended;
    }
    let mut outcome = Outcome::default();
    for (number, (status, body, whole)) in answers.iter().enumerate() {
        if *whole {
            is_right(path(number as u32), *status, body)?;
            outcome.answered += 1;
        } else {
            outcome.untaken += 1;
        }
    }
    Ok(outcome)
}

fn http3(ports: &Ports) -> Result<Outcome, String> {
    let mut client = http3::Client::connect(ports.tls, "localhost", &http3::config());
    client.until("the handshake", |client| client.connected.is_some() || client.lost.is_some());
    let mut outcome = Outcome::default();
    for number in 0..REQUESTS {
        if client.goaway.is_some() {
            break;
        }
        if let Some(why) = &client.lost {
            return Err(format!("request {number}: lost: {why}"));
        }
        let stream = client.get("localhost", path(number));
        client.until("an answer", |client| {
            let ended = |answer: &http3::Answer| answer.whole || answer.reset.is_some();
            client.answers.get(&stream).is_some_and(ended)
                || client.lost.is_some()
                || client.goaway.is_some_and(|id| id <= stream)
        });
        match client.answers.get(&stream) {
            Some(answer) if answer.whole => is_right(path(number), answer.status, &answer.body)?,
            _ if client.goaway.is_some_and(|id| id <= stream) => {
                outcome.untaken += 1;
                break;
            }
            other => return Err(format!("request {number}: {other:?}; lost: {:?}", client.lost)),
        }
        outcome.answered += 1;
    }
    client.close();
    Ok(outcome)
}

fn configure(site: &Site, ports: &Ports, number: usize) {
    let Ports { plain, tls } = ports;
    let main = "worker_processes 2; ssl_key_isolation on; sandbox on; env TIDEGATE_SANDBOX;";
    let http = format!(
        "http {{ keepalive_timeout 20s; server {{ listen 127.0.0.1:{plain}; listen 127.0.0.1:{tls} ssl; listen 127.0.0.1:{tls} quic; http2 on;
         ssl_certificate a.crt; ssl_certificate_key a.key; root html; location = / {{ return 200 \"served {number}\"; }}
         location = /proxy {{ proxy_pass http://127.0.0.1:{plain}/; }} location /file {{ }} }} }}"
    );
    site.configure(main, &http);
}

fn serves(site: &Site, ports: &Ports, number: usize) {
    wait("the new configuration", || match get(ports.plain) {
        Ok((200, body)) if body == format!("served {number}") => Ok(()),
        other => {
            let log = site.log();
            Err(format!("{other:?} instead of {number}\n{}", &log[log.len().saturating_sub(4000)..]))
        }
    });
}

/// Master, key process and worker process, with their descriptors and memory.
fn processes(master: u32) -> Vec<(usize, u64)> {
    let mut all = children(master);
    all.insert(0, master);
    all.into_iter().map(|pid| (descriptors(pid), private_kb(pid))).collect()
}

/// Linux 5.9.
fn filters(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find(|line| line.starts_with("Seccomp_filters")).unwrap_or_default().to_string()
}

#[test]
fn reloads_and_upgrades_lose_nothing() {
    let (reloads, upgrades) = (env("TIDEGATE_RELOADS", 20), env("TIDEGATE_UPGRADES", 3));
    let ports = Ports { plain: free_port(), tls: free_port() };
    let site = Site::new("", "");
    std::fs::write(site.path("html/file"), vec![b'x'; FILE_BYTES]).expect("a file");
    site.certify();
    configure(&site, &ports, 0);
    let started = site.run(&[]);
    assert!(started.status.success(), "{}", support::text(&started.stderr));
    let mut master = wait("the pid file", || site.pid().ok_or("none"));
    serves(&site, &ports, 0);
    for (name, talk) in CLIENTS {
        talk(&ports).unwrap_or_else(|why| panic!("{name}: {why}\n{}", site.log()));
    }
    let before = processes(master);
    let filters_before = filters(master);

    let counts = Counts::default();
    thread::scope(|scope| {
        let load = Load::start(scope, &ports, &counts);
        for number in 1..=reloads {
            if number % 10 == 0 {
                site.certify();
            }
            configure(&site, &ports, number);
            signal(master, "HUP");
            serves(&site, &ports, number);
        }
        load.end(&counts, &format!("{reloads} reloads"));
    });
    let untaken: usize = counts.untaken.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    assert_eq!(untaken, 0, "a reload closes no connection");
    let after = wait("the descriptors of before", || {
        let after = processes(master);
        let fits = |(now, then): (&(usize, u64), &(usize, u64))| now.0 <= then.0 + MORE_DESCRIPTORS;
        let all = after.len() == before.len() && after.iter().zip(&before).all(fits);
        if all { Ok(after) } else { Err(format!("{before:?}, then {after:?} (descriptors, KB)")) }
    });
    println!("descriptors and KB: {before:?}, after the reloads {after:?}");
    site.assert_no_alerts();

    let counts = Counts::default();
    thread::scope(|scope| {
        let load = Load::start(scope, &ports, &counts);
        for number in reloads + 1..=reloads + upgrades {
            configure(&site, &ports, number);
            let old = master;
            signal(old, "USR2");
            master = wait("the new master", || site.pid().filter(|pid| *pid != old).ok_or_else(|| site.log()));
            // The pid file is there before the worker.
            wait("the new worker", || (children(master).len() >= 2).then_some(()).ok_or_else(|| site.log()));
            signal(old, "QUIT");
            serves(&site, &ports, number);
            wait("the old master's end", || if alive(old) { Err(site.log()) } else { Ok(()) });
        }
        load.end(&counts, &format!("{upgrades} upgrades"));
    });
    let last = wait("the descriptors of before", || {
        let last = processes(master);
        let fits = |(now, then): (&(usize, u64), &(usize, u64))| now.0 <= then.0 + MORE_DESCRIPTORS;
        let all = last.len() == before.len() && last.iter().zip(&before).all(fits);
        if all { Ok(last) } else { Err(format!("{before:?}, then {last:?} (descriptors, KB)")) }
    });
    println!("after the upgrades {last:?}");
    assert_eq!(filters(master), filters_before, "a new binary adds no filters to those that it inherits");
    signal(master, "QUIT");
    wait("the end", || if alive(master) { Err(site.log()) } else { Ok(()) });
    site.assert_no_alerts();
}
