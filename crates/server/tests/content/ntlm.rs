//! `ntlm`: a server's connection belongs to the client's that logged in over it.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::client::Client;
use support::http2::{self, HEADERS, frame};
use support::origin::Origin;
use support::{Site, free_port, wait};

/// A server that authenticates connections in two steps, and counts the authenticated ones that have ended.
fn server(name: &'static str, ended: &Arc<AtomicUsize>) -> Origin {
    let ended = ended.clone();
    Origin::new(move |mut talk| {
        let (mut user, mut is_challenged) = (None, false);
        while let Some(request) = talk.request() {
            // Names of fields are lowercase in HTTP/2.
            let fields = || request.lines().filter_map(|line| line.split_once(": "));
            let credentials =
                fields().find(|(name, _)| name.eq_ignore_ascii_case("authorization")).map(|(_, text)| text);
            match credentials.and_then(|text| text.split_once(' ')) {
                Some((_, "negotiate")) => (user, is_challenged) = (None, true),
                Some((_, name)) if is_challenged => (user, is_challenged) = (Some(name.to_string()), false),
                Some(_) => user = None,
                None => {}
            }
            let (status, body) = match &user {
                Some(user) => ("200 OK", format!("{user} at {name}")),
                None => ("401 Unauthorized", String::new()),
            };
            let length = body.len();
            let answer =
                format!("HTTP/1.1 {status}\r\nWWW-Authenticate: NTLM\r\nContent-Length: {length}\r\n\r\n{body}");
            if !talk.send(answer.as_bytes()) {
                break;
            }
        }
        ended.fetch_add(usize::from(user.is_some()), Ordering::Relaxed);
    })
}

fn ask(client: &mut Client, credentials: &str) -> (u16, String) {
    let field = if credentials.is_empty() { String::new() } else { format!("Authorization: {credentials}\r\n") };
    client.ask(&format!("GET / HTTP/1.1\r\nHost: localhost\r\n{field}\r\n")).expect("an answer")
}

fn log_in(client: &mut Client, scheme: &str, user: &str) -> String {
    assert_eq!(ask(client, "").0, 401);
    assert_eq!(ask(client, &format!("{scheme} negotiate")).0, 401);
    let (status, body) = ask(client, &format!("{scheme} {user}"));
    assert_eq!(status, 200, "{body}");
    body
}

#[test]
fn a_login_holds_for_the_connection_of_its_client() {
    let ended = Arc::new(AtomicUsize::new(0));
    let (a, b, port) = (server("a", &ended), server("b", &ended), free_port());
    let site = Site::new(
        "daemon off; worker_processes 1;",
        &format!(
            "http {{ upstream u {{ server 127.0.0.1:{}; server 127.0.0.1:{}; keepalive 8; ntlm; }}
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://u; }} }} }}",
            a.port, b.port
        ),
    );
    let running = site.start();
    let mut alice = wait("the server", || Client::connect(port));
    let mut bob = Client::connect(port).expect("connected");
    let mut other = Client::connect(port).expect("connected");
    let as_alice = log_in(&mut alice, "NTLM", "alice");
    let as_bob = log_in(&mut bob, "negotiate", "bob");
    assert!(as_alice.starts_with("alice at ") && as_bob.starts_with("bob at "), "{as_alice} {as_bob}");
    for _ in 0..5 {
        // Without credentials, and at the same server.
        assert_eq!(ask(&mut alice, ""), (200, as_alice.clone()));
        assert_eq!(ask(&mut bob, ""), (200, as_bob.clone()));
        assert_eq!(ask(&mut other, "").0, 401);
        // Other schemes bind nothing.
        assert_eq!(ask(&mut other, "Basic negotiate").0, 401);
    }
    assert_eq!(ended.load(Ordering::Relaxed), 0);
    drop(alice);
    wait("the end of the connection", || match ended.load(Ordering::Relaxed) {
        1 => Ok(()),
        n => Err(format!("{n} ended")),
    });
    for _ in 0..4 {
        assert_eq!(ask(&mut other, "").0, 401);
        assert_eq!(ask(&mut bob, ""), (200, as_bob.clone()));
    }
    drop((bob, other));
    running.quit();
    site.assert_no_alerts();
}

/// Concurrent requests share a client's HTTP/2 connection, which is not bound: its logins leave nothing to other clients.
#[test]
fn a_login_over_http2_authenticates_no_connection_of_others() {
    let ended = Arc::new(AtomicUsize::new(0));
    let (origin, port) = (server("a", &ended), free_port());
    let site = Site::new(
        "daemon off; worker_processes 1;",
        &format!(
            "http {{ upstream u {{ server 127.0.0.1:{}; keepalive 8; ntlm; }}
             server {{ listen 127.0.0.1:{port}; http2 on; location / {{ proxy_pass http://u; }} }} }}",
            origin.port
        ),
    );
    let running = site.start();
    let mut other = wait("the server", || Client::connect(port));
    let mut carol = http2::Client::connect(port);
    for (stream, credentials) in [(1, "NTLM negotiate"), (3, "NTLM carol")] {
        let block = carol.block("/", &[("authorization", credentials)]);
        carol.send(&frame(HEADERS, 5, stream, &block));
        assert_eq!(carol.answer(stream).0, "401", "another connection for each step");
        assert_eq!(ask(&mut other, "").0, 401);
    }
    drop((carol, other));
    running.quit();
    site.assert_no_alerts();
}
