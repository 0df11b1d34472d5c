//! Names under load while a server dies: no query without an answer, and no wrong one.

use crate::support;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::dns::{A, query, read, socket};
use support::origin::Origin;
use support::{Site, free_port, wait};

/// Queries per second of all clients together, and the length of the load; it goes on until each client has sent some
/// queries after the checks have found the dead server.
const RATE: u32 = 10_000;
const CLIENTS: u32 = 4;
const SECONDS: u32 = 3;
const AFTERWARDS: u32 = 250;
/// Answers before the server dies.
const BEFORE: u32 = RATE / 2;
/// Queries of a client that wait for their answers: fewer than a socket's buffer holds.
const WAITING_MAX: usize = 64;

/// Counts of a client.
#[derive(Default)]
struct Seen {
    sent: u32,
    sent_afterwards: u32,
    answered: u32,
    /// Addresses that were answered, before and after the checks have found the dead server.
    before: BTreeMap<String, u32>,
    after: BTreeMap<String, u32>,
    micros: Vec<u64>,
}

/// Sends at a constant rate, and matches answers by their ids.
fn client(port: u16, is_known: &AtomicBool, answered: &AtomicU32) -> Seen {
    let socket = socket(port);
    let mut seen = Seen::default();
    let begin = Instant::now();
    let interval = Duration::from_secs(1) * CLIENTS / RATE;
    let total = RATE * SECONDS / CLIENTS;
    let mut waiting: BTreeMap<u16, (Instant, bool)> = BTreeMap::new();
    let mut buf = [0; 1500];
    loop {
        let is_over = seen.sent >= total && seen.sent_afterwards >= AFTERWARDS;
        if is_over && waiting.is_empty() {
            return seen;
        }
        let due = begin + interval * seen.sent;
        if !is_over && waiting.len() < WAITING_MAX && due <= Instant::now() {
            let id = (seen.sent % 50_000) as u16;
            // Only the answers to queries sent after the discovery must be without the dead server.
            let is_known = is_known.load(Ordering::SeqCst);
            seen.sent_afterwards += u32::from(is_known);
            waiting.insert(id, (Instant::now(), is_known));
            socket.send(&query(id, "www.example.org", A, None)).expect("sent");
            seen.sent += 1;
            continue;
        }
        if waiting.is_empty() {
            support::pace(due.saturating_duration_since(Instant::now()));
            continue;
        }
        let length = socket.recv(&mut buf).expect("an answer to every query");
        let answer = read(&buf[..length]);
        let (sent, was_known) = waiting.remove(&answer.id).expect("an answer to a query of this client, once");
        seen.micros.push(sent.elapsed().as_micros() as u64);
        assert_eq!((answer.code(), answer.records.len()), (0, 2), "two addresses");
        seen.answered += 1;
        answered.fetch_add(1, Ordering::Relaxed);
        let counts = if was_known { &mut seen.after } else { &mut seen.before };
        for address in answer.addresses() {
            *counts.entry(address).or_default() += 1;
        }
    }
}

#[test]
fn a_server_that_dies_under_load_leaves_the_answers_and_no_query_is_lost() {
    let port = free_port();
    let listeners = (2..5).map(|last| TcpListener::bind((format!("127.0.0.{last}").as_str(), 0)).expect("bind"));
    let mut origins: Vec<(SocketAddr, Origin)> =
        listeners.map(|one| (one.local_addr().expect("an address"), Origin::on(one, |talk| drop(talk)))).collect();
    let servers: Vec<String> = origins.iter().map(|(address, _)| format!("server {address};")).collect();
    let rest = format!(
        "stream {{
            upstream u {{ zone u 64k; {} }}
            server {{
                listen 127.0.0.1:{port} udp; dns_rate_limit off;
                health_check interval=50ms jitter=0 fails=1 passes=1;
                dns example.org {{ @ NS ns.example.net.; www 5 pool u answers=2; }}
            }}
        }}",
        servers.join(" ")
    );
    let site = Site::new("daemon off; worker_processes 2;", &rest);
    let running = site.start();
    let (is_known, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (is_known, answered) = (is_known.clone(), answered.clone());
            std::thread::spawn(move || client(port, &is_known, &answered))
        })
        .collect();
    wait("some answers", || match answered.load(Ordering::Relaxed) {
        count if count >= BEFORE => Ok(()),
        count => Err(count.to_string()),
    });
    let (address, origin) = origins.remove(0);
    let dead = address.ip().to_string();
    drop(origin);
    site.wait_for_log("unhealthy", 1);
    is_known.store(true, Ordering::SeqCst);
    let mut micros = Vec::new();
    let (mut sent, mut before, mut after) = (0, 0, 0);
    for client in clients {
        let seen = client.join().expect("a client without a failure");
        assert_eq!(seen.sent, seen.answered);
        sent += seen.sent;
        assert!(seen.after.keys().all(|address| *address != dead), "a dead server: {:?}", seen.after);
        let valid = |counts: &BTreeMap<String, u32>| {
            counts.keys().all(|address| ["127.0.0.2", "127.0.0.3", "127.0.0.4"].contains(&address.as_str()))
        };
        assert!(valid(&seen.before) && valid(&seen.after));
        before += seen.before.get(&dead).copied().unwrap_or_default();
        after += seen.after.values().sum::<u32>();
        micros.extend(seen.micros);
    }
    drop(origins);
    assert!(sent >= RATE * SECONDS, "{sent}");
    assert!(before > 0 && after > 0, "the server was answered before it died, and others afterwards");
    micros.sort_unstable();
    let at = |share: f64| micros[((micros.len() - 1) as f64 * share) as usize];
    eprintln!("{sent} queries, none lost; p50 {} us, p99 {} us, p99.9 {} us", at(0.5), at(0.99), at(0.999));
    running.quit();
    site.assert_no_alerts();
}
