//! Random faults under load: origins die and return, names change, the configuration is reloaded every second, clients
//! are slow or disconnect. Every response is correct or a proper error, and descriptors and memory return to their
//! initial numbers.
//!
//! One number decides what happens (`CHAOS_SEED`); `CHAOS_SECONDS` makes it longer than the few seconds of every day.

use crate::support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::origin::{NameServer, Origin, Talk};
use support::{Site, descriptors, free_port, pace, private_kb, wait};
use testkit::Random;

/// Numbers of one client or origin.
fn dice_of(seed: u64, who: u64) -> Random {
    Random::new((seed ^ who.wrapping_mul(0x9E37_79B9_7F4A_7C15)) | 1)
}

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

const SLOTS: usize = 4;

/// The body of `/LENGTH/ID`: any byte out of place shows.
fn body(path: &str) -> Vec<u8> {
    let length: usize = path.split('/').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let seed = path.bytes().fold(7u64, |hash, b| hash.wrapping_mul(31).wrapping_add(u64::from(b)));
    let mut dice = dice_of(seed, 1);
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        out.extend_from_slice(&dice.below(u64::MAX >> 12).to_le_bytes());
    }
    out.truncate(length);
    out
}

/// An origin's conversation: mostly right, sometimes not.
fn act(mut talk: Talk<'_>, seed: u64) {
    let mut dice = dice_of(seed, talk.number as u64 + 1);
    while let Some(head) = talk.request() {
        let path = head.split(' ').nth(1).unwrap_or("/0/").to_string();
        let body = body(&path);
        let plain = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        let cut = dice.below(body.len() as u64 + 1) as usize;
        let done = match dice.below(40) {
            0 => return,
            1 => return talk.reset(),
            2 => {
                talk.send(&plain);
                talk.send(&body[..cut]);
                return;
            }
            3 => {
                talk.send(&plain);
                talk.send(&body[..cut]);
                return talk.reset();
            }
            4 => {
                talk.send(&plain[..plain.len() / 2]);
                return;
            }
            5 => talk.send(&[plain, body, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil".to_vec()].concat()),
            6 => talk.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"),
            7..=20 => {
                let mut out = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
                for piece in body.chunks(1 + dice.below(5000) as usize) {
                    out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                    out.extend_from_slice(piece);
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(b"0\r\n\r\n");
                talk.send(&out)
            }
            21 => talk.send(&plain) && body.chunks(700).all(|piece| talk.send(piece)),
            _ => talk.send(&[plain, body].concat()),
        };
        if !done {
            return;
        }
    }
}

#[derive(Default)]
struct Tally {
    right: AtomicUsize,
    errors: AtomicUsize,
    cut_short: AtomicUsize,
    left: AtomicUsize,
}

/// One request; an `Err` is a lie of the server's.
fn one(port: u16, dice: &mut Random, tally: &Tally) -> Result<(), String> {
    let length = match dice.below(4) {
        0 => 0,
        1 => dice.below(200_000),
        _ => dice.below(3000),
    };
    let path = format!("/{length}/{}", dice.below(1_u64 << 40));
    let group = ["/fixed", "/named", "/hash"][dice.below(3) as usize];
    let fail = |words: &str| Err(format!("{group}{path}: {words}"));
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return fail("no connection") };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
    let posts = dice.below(8) == 0;
    let request = match posts {
        true => {
            format!("POST {group}{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello")
        }
        false => format!("GET {group}{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
    };
    if stream.write_all(request.as_bytes()).is_err() {
        return fail("not taken");
    }
    let (leaves, slow) = (dice.below(30) == 0, dice.below(10) == 0);
    let mut bytes = Vec::new();
    let mut buf = vec![0; if slow { 2000 } else { 64 * 1024 }];
    loop {
        match stream.read(&mut buf) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&buf[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(e) => return fail(&format!("{e} after {} bytes", bytes.len())),
        }
        if leaves {
            tally.left.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        if slow {
            std::thread::yield_now();
        }
    }
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
        return if bytes.is_empty() { fail("nothing at all") } else { fail("no head") };
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let status: u16 = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    if matches!(status, 502..=504) {
        tally.errors.fetch_add(1, Ordering::Relaxed);
        // Errors are quick: without a pause there would be little else.
        pace(Duration::from_millis(5));
        return Ok(());
    }
    if status != 200 {
        return fail(&format!("status {status}"));
    }
    let (got, complete) = match head.lines().find_map(|l| l.strip_prefix("content-length: ")) {
        Some(n) => {
            let n: usize = n.parse().unwrap_or(usize::MAX);
            if bytes.len() - end - 4 > n {
                return fail("more than was announced");
            }
            (bytes[end + 4..].to_vec(), bytes.len() - end - 4 == n)
        }
        None => dechunk(&bytes[end + 4..]),
    };
    let wanted = body(&path);
    if complete {
        if got != wanted {
            return fail("another body");
        }
        tally.right.fetch_add(1, Ordering::Relaxed);
    } else {
        if !wanted.starts_with(&got) {
            return fail("a part of another body");
        }
        tally.cut_short.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Returns the data of chunks; `true`: complete.
fn dechunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    while let Some(at) = rest.windows(2).position(|w| w == b"\r\n") {
        let size = std::str::from_utf8(&rest[..at]).ok().and_then(|s| usize::from_str_radix(s, 16).ok());
        let Some(size) = size else { return (out, false) };
        rest = &rest[at + 2..];
        if size == 0 {
            return (out, rest == b"\r\n");
        }
        let here = size.min(rest.len());
        out.extend_from_slice(&rest[..here]);
        if here < size || rest.len() < size + 2 {
            return (out, false);
        }
        rest = &rest[size + 2..];
    }
    (out, false)
}

fn address(slot: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, slot as u8 + 1)
}

fn configuration(port: u16, origins: u16, names: u16, turn: u64) -> String {
    let weight = 1 + turn % 3;
    let server = |slot| format!("server {}:{origins} max_fails=3 fail_timeout=1s weight={weight};", address(slot));
    let servers: String = (0..SLOTS).map(server).collect();
    format!(
        "http {{ access_log off; resolver 127.0.0.1:{names} valid=1s; resolver_timeout 1s; proxy_connect_timeout 2s;
         proxy_read_timeout 5s; proxy_buffers 8 4k; proxy_next_upstream error timeout http_503;
         upstream fixed {{ zone fixed 64k; {servers} keepalive {}; keepalive_timeout 1s; outlier_ejection time=1s; }}
         upstream hash {{ zone hash 64k; hash $request_uri consistent; {servers} keepalive_timeout 1s; retry_budget 50%; }}
         upstream named {{ zone named 64k; least_conn; server app.test:{origins} resolve max_fails=0; keepalive_timeout 1s; }}
         server {{ listen 127.0.0.1:{port};
         location /fixed/ {{ proxy_pass http://fixed/; health_check interval=200ms uri=/0/health; }}
         location /hash/ {{ proxy_pass http://hash/; proxy_buffering off; }}
         location /named/ {{ proxy_pass http://named/; }} }} }}",
        4 + turn % 5
    )
}

#[test]
fn every_answer_is_right_or_an_honest_error() {
    let (seed, seconds) = (env("CHAOS_SEED", 4), env("CHAOS_SECONDS", 4));
    let port = free_port();
    let first = TcpListener::bind(("127.0.0.1", free_port())).expect("a port");
    let origins = first.local_addr().expect("address").port();
    let name_server = NameServer::new();
    name_server.set("app.test", &[address(0), address(1)]);
    let start = |slot: usize, listener: Option<TcpListener>| {
        let listener = listener.or_else(|| TcpListener::bind((address(slot), origins)).ok())?;
        Some(Origin::on(listener, move |talk| act(talk, seed ^ (slot as u64) << 32)))
    };
    let mut first = Some(first);
    let slots: Vec<Mutex<Option<Origin>>> = (0..SLOTS).map(|slot| Mutex::new(start(slot, first.take()))).collect();
    assert!(slots.iter().all(|slot| slot.lock().expect("slot").is_some()), "every origin has its port");

    let main = "daemon off; worker_processes 2;";
    let site = Site::new(main, &configuration(port, origins, name_server.port, 0));
    let running = site.start();
    let worker = running.worker();
    let tally = Tally::default();
    // A first round fills buffers, threads and caches, which stay.
    let mut dice = dice_of(seed, 99);
    for _ in 0..300 {
        one(port, &mut dice, &tally).expect("an honest answer");
    }
    // Longer than the time-outs of the configuration. Health checks and the resolver go on.
    let (fds, memory) = (support::least_of(500, || descriptors(worker)), private_kb(worker));

    let stop = AtomicBool::new(false);
    let lies = Mutex::new(Vec::new());
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut reloads = 0;
    std::thread::scope(|scope| {
        for client in 0..6u64 {
            let (stop, tally, lies) = (&stop, &tally, &lies);
            scope.spawn(move || {
                let mut dice = dice_of(seed, 1000 + client);
                while !stop.load(Ordering::Relaxed) {
                    if let Err(lie) = one(port, &mut dice, tally) {
                        lies.lock().expect("lies").push(lie);
                        return;
                    }
                }
            });
        }
        let mut dice = dice_of(seed, 2000);
        let mut reload_at = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until && lies.lock().expect("lies").is_empty() {
            // Kills or revives an origin, changes a name, and reloads once per second.
            let dead = slots.iter().position(|slot| slot.lock().expect("slot").is_none());
            let slot = dead.unwrap_or(dice.below(SLOTS as u64) as usize);
            let revived = if dead.is_some() { start(slot, None) } else { None };
            *slots[slot].lock().expect("slot") = revived;
            let named: Vec<Ipv4Addr> = (0..SLOTS).filter(|_| dice.below(2) == 0).map(address).collect();
            name_server.set("app.test", &named);
            let next = Instant::now() + Duration::from_millis(50 + dice.below(200));
            wait("the next fault", || (Instant::now() >= next).then_some(()).ok_or("it is early"));
            if Instant::now() >= reload_at {
                reload_at += Duration::from_secs(1);
                reloads += 1;
                site.configure(main, &configuration(port, origins, name_server.port, reloads));
                running.signal("HUP");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let lies = lies.into_inner().expect("lies");
    assert!(lies.is_empty(), "seed {seed}: {lies:#?}\n{}", site.log());

    // Everything is back, and every replaced configuration is gone.
    for (slot, origin) in slots.iter().enumerate() {
        let mut origin = origin.lock().expect("slot");
        if origin.is_none() {
            *origin = start(slot, None);
        }
    }
    name_server.set("app.test", &[address(0), address(1)]);
    site.wait_for_log("is no longer used", reloads as usize);
    wait("all origins", || {
        one(port, &mut dice, &tally)?;
        let before = tally.right.load(Ordering::Relaxed);
        for _ in 0..50 {
            one(port, &mut dice, &tally)?;
        }
        let right = tally.right.load(Ordering::Relaxed) - before;
        if right > 30 { Ok(()) } else { Err(format!("{right} of 50")) }
    });
    wait("the descriptors", || {
        let now = descriptors(worker);
        if now <= fds { Ok(()) } else { Err(format!("{now} instead of {fds}")) }
    });
    let grown = private_kb(worker).saturating_sub(memory);
    let count = |n: &AtomicUsize| n.load(Ordering::Relaxed);
    eprintln!(
        "seed {seed}, {seconds} s: {} right, {} errors, {} cut short, {} left early, {reloads} reloads; {fds} descriptors, \
         {memory} KB and {grown} KB more",
        count(&tally.right),
        count(&tally.errors),
        count(&tally.cut_short),
        count(&tally.left)
    );
    assert!(grown < 16 * 1024, "{grown} KB more than {memory}");
    assert_eq!(running.worker(), worker, "it is the process that it was");
    running.quit();
    site.assert_no_alerts();
}
