//! Names on demand over QUIC: the first flight of a client waits in the endpoint until its certificate is there.

use crate::support;

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use support::http3::{Client, config, config_of_two_datagrams};
use support::{Site, free_port};

/// State of the operator's URL, which answers about a name once the test permits it.
#[derive(Default)]
struct Gate {
    asked: Vec<String>,
    open: HashSet<String>,
}

type Shared = Arc<(Mutex<Gate>, Condvar)>;

fn gate() -> (u16, Shared) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("an address").port();
    let shared = Shared::default();
    let gate = Arc::clone(&shared);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let gate = Arc::clone(&gate);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                let mut lines = Vec::new();
                while lines.last().is_none_or(|line: &String| !line.trim().is_empty()) {
                    let mut line = String::new();
                    if reader.read_line(&mut line).is_ok_and(|n| n == 0) {
                        return;
                    }
                    lines.push(line);
                }
                let name = lines[0].split("domain=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
                let (lock, changed) = &*gate;
                let mut state = lock.lock().expect("not poisoned");
                state.asked.push(name.to_string());
                while !state.open.contains(name) && !name.starts_with("bad") {
                    state = changed.wait(state).expect("not poisoned");
                }
                drop(state);
                let status = if name.starts_with("bad") { "403 Forbidden" } else { "200 OK" };
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                let _ = reader.into_inner().write_all(answer.as_bytes());
            });
        }
    });
    (port, shared)
}

fn open(gate: &Shared, name: &str) {
    gate.0.lock().expect("not poisoned").open.insert(name.into());
    gate.1.notify_all();
}

fn asked(gate: &Shared) -> Vec<String> {
    gate.0.lock().expect("not poisoned").asked.clone()
}

fn configuration(site: &Site, port: u16, gate: u16) -> String {
    let state = site.path("state").display().to_string();
    format!(
        "http {{ resolver 127.0.0.1:1;
            acme_issuer local {{ local_authority; state_path {state}; }}
            server {{ listen 127.0.0.1:{port} quic; listen 127.0.0.1:{port} ssl; server_name _;
                acme_on_demand local ask=http://127.0.0.1:{gate}/ rate=1000r/m;
                ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
                location / {{ return 200 \"served $ssl_server_name\"; }} }}
            server {{ listen 127.0.0.1:{port} quic; listen 127.0.0.1:{port} ssl; server_name fixed.test;
                acme_certificate local; ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
                location / {{ return 200 \"fixed $ssl_server_name\"; }} }} }}"
    )
}

const MAIN: &str = "worker_processes 1;\ndaemon off;";

/// Works on clients until something holds.
fn work(clients: &mut [Client], holds: impl Fn(&[Client]) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds(clients) {
        let lost: Vec<_> = clients.iter().filter_map(|client| client.lost.clone()).collect();
        assert!(Instant::now() < end, "lost: {lost:?}");
        clients.iter_mut().for_each(Client::poke);
    }
}

fn served(client: &mut Client, name: &str) -> String {
    client.until("the handshake", |client| client.connected.is_some());
    let stream = client.get(name, "/");
    client.answer(stream).text()
}

#[test]
fn first_flights_wait_for_their_certificate() {
    let port = free_port();
    let (ask, gate) = gate();
    let site = Site::new(MAIN, "");
    site.configure(MAIN, &configuration(&site, port, ask));
    let running = site.start();
    let (config, two) = (config(), config_of_two_datagrams());
    // Clients of one name, a ClientHello of one datagram and one of two: one question, no handshake before its answer.
    let mut clients: Vec<Client> =
        (0..4).map(|at| Client::connect(port, "ok1.test", if at % 2 == 0 { &config } else { &two })).collect();
    let have_retried = |clients: &[Client]| clients.iter().all(|client| client.retried);
    work(&mut clients, |clients| !asked(&gate).is_empty() && have_retried(clients));
    // Other names are served meanwhile, by the only worker thread.
    let mut other = Client::connect(port, "fixed.test", &config);
    assert_eq!(served(&mut other, "fixed.test"), "fixed fixed.test");
    assert!(!other.retried);
    clients.iter_mut().for_each(Client::step);
    assert!(clients.iter().all(|client| client.connected.is_none() && client.lost.is_none()));
    open(&gate, "ok1.test");
    for client in &mut clients {
        assert_eq!(served(client, "ok1.test"), "served ok1.test");
    }
    assert_eq!(asked(&gate), ["ok1.test"]);
    // Later handshakes wait for nothing.
    for config in [&config, &two] {
        let mut later = Client::connect(port, "OK1.test", config);
        assert_eq!(served(&mut later, "ok1.test"), "served OK1.test");
        assert!(!later.retried);
    }
    // Refused names have their alert, at the end of the wait and later without one.
    for _ in 0..2 {
        let mut refused = Client::connect(port, "bad1.test", &config);
        refused.until("a refusal", |client| client.lost.is_some());
        assert!(refused.lost.as_deref().is_some_and(|why| why.contains("112")), "{:?}", refused.lost);
    }
    assert_eq!(asked(&gate), ["ok1.test", "bad1.test"]);
    // A reload while a client waits asks again.
    let mut waiting = [Client::connect(port, "ok2.test", &config)];
    work(&mut waiting, |_| asked(&gate).len() >= 3);
    running.signal("HUP");
    work(&mut waiting, |_| asked(&gate).len() >= 4);
    open(&gate, "ok2.test");
    assert_eq!(served(&mut waiting[0], "ok2.test"), "served ok2.test");
    // A server that leaves refuses clients that wait, and does not wait for them.
    let mut waiting = [Client::connect(port, "ok3.test", &config)];
    work(&mut waiting, |waiting| asked(&gate).len() >= 5 && have_retried(waiting));
    for client in clients.iter_mut().chain([&mut other]) {
        client.close();
    }
    running.quit();
    waiting[0].until("a refusal", |client| client.lost.is_some());
    site.assert_no_alerts();
}

/// Clients beyond the limit are not held: their handshakes fail, and others go on.
#[test]
fn waiting_first_flights_are_bounded() {
    let port = free_port();
    let (ask, gate) = gate();
    let site = Site::new(MAIN, "");
    site.configure(MAIN, &configuration(&site, port, ask));
    let running = site.start();
    let config = config();
    // One more than a name may have, and than a socket holds.
    let mut clients: Vec<Client> = (0..257).map(|_| Client::connect(port, "ok1.test", &config)).collect();
    let failed = |clients: &[Client]| clients.iter().filter(|client| client.lost.is_some()).count();
    work(&mut clients, |clients| !asked(&gate).is_empty() && failed(clients) > 0);
    let mut other = Client::connect(port, "fixed.test", &config);
    assert_eq!(served(&mut other, "fixed.test"), "fixed fixed.test");
    open(&gate, "ok1.test");
    clients.retain(|client| client.lost.is_none());
    assert!(clients.len() >= 200, "{} of 257 wait", clients.len());
    work(&mut clients, |clients| clients.iter().all(|client| client.connected.is_some() || client.lost.is_some()));
    assert_eq!(failed(&clients), 0);
    running.quit();
    site.assert_no_alerts();
}
