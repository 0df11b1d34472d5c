//! How a server stops while it is used: at once where it can, completely where it must. Connections may stay for 75 seconds or
//! more (`keepalive_timeout`), which is longer than `support::wait` waits for the end.

use crate::support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;
use support::client::{Client, get, read_until};
use support::origin::Origin;
use support::{Running, Site, free_port, wait};

/// Wait for octets that come; ends failed tests alone.
const READ_PATIENCE: Duration = Duration::from_secs(10);

fn site(main: &str, port: u16) -> Site {
    let http = format!("http {{ server {{ listen 127.0.0.1:{port}; location / {{ return 200 x; }} }} }}");
    Site::new(&format!("daemon off; worker_processes 2; {main}"), &http)
}

fn start(site: &Site, port: u16) -> Running<'_> {
    let running = site.start();
    wait("an answer", || get(port));
    running
}

#[test]
fn idle_connections_do_not_hold_up_a_stop() {
    let port = free_port();
    let site = site("", port);
    let running = start(&site, port);
    let mut kept: Vec<Client> = (0..20).map(|_| Client::connect(port).expect("connected")).collect();
    for client in &mut kept {
        assert_eq!(client.get(), Ok((200, "x".into())));
    }
    running.quit();
    assert!(kept.iter_mut().all(Client::is_closed));
    site.assert_no_alerts();
}

/// Idle HTTP/2 connections get a GOAWAY at once, including Tidegate's own connections to its listeners.
#[test]
fn idle_connections_of_http2_do_not_hold_up_a_stop() {
    use support::http2::{Client as Http2, GOAWAY};
    let (front, back) = (free_port(), free_port());
    let conf = format!(
        "http {{ keepalive_timeout 1h; upstream u {{ server 127.0.0.1:{back}; keepalive 4; keepalive_timeout 1h; }}
         server {{ listen 127.0.0.1:{front}; location / {{ proxy_pass http://u; proxy_http_version 2; }} }}
         server {{ listen 127.0.0.1:{back}; http2 on; location / {{ return 200 x; }} }} }}"
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    let running = start(&site, front);
    let mut idle = Http2::connect(back);
    idle.ask(1, "/");
    assert_eq!(idle.answer(1), ("200".into(), b"x".to_vec()));
    running.signal("QUIT");
    let mut told = false;
    while let Some((kind, ..)) = idle.next() {
        told |= kind == GOAWAY;
    }
    assert!(told, "a GOAWAY, then the end");
    drop(idle);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_request_that_has_begun_is_answered() {
    let port = free_port();
    let site = site("", port);
    let running = start(&site, port);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: ").expect("sent");
    // The server has read it when a later connection is answered by every thread.
    for _ in 0..50 {
        get(port).expect("answered");
    }
    running.signal("QUIT");
    site.wait_for_log("gracefully shutting down", 1);
    wait("no new connections", || if get(port).is_err() { Ok(()) } else { Err("answered") });
    stream.write_all(b"localhost\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.set_read_timeout(Some(READ_PATIENCE)).expect("timeout");
    stream.read_to_string(&mut answer).expect("an answer, then the end");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("Connection: close\r\n"), "{answer}");
    assert!(running.ended().success());
    site.assert_no_alerts();
}

#[test]
fn a_request_that_never_ends_is_cut_off_when_the_time_is_up() {
    let port = free_port();
    let site = site("worker_shutdown_timeout 100ms;", port);
    let running = start(&site, port);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: ").expect("sent");
    for _ in 0..50 {
        get(port).expect("answered");
    }
    running.quit();
    let mut rest = Vec::new();
    assert!(matches!(stream.read_to_end(&mut rest), Ok(0) | Err(_)), "{rest:?}");
    site.assert_no_alerts();
}

#[test]
fn requests_that_are_cut_off_are_logged() {
    let silent = Origin::new(|mut talk| while talk.some().is_some() {});
    let slow = Origin::new(|mut talk| {
        talk.some();
        talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
        while talk.some().is_some() {}
    });
    let port = free_port();
    // In place and as a task, which a variable requires.
    let conf = format!(
        "http {{ log_format l '$status $uri'; access_log logs/l.log l; server {{ listen 127.0.0.1:{port};
            location / {{ return 200 x; }}
            location /place {{ proxy_pass http://127.0.0.1:{silent}; }}
            location /task {{ proxy_pass http://127.0.0.1:$arg_port; }}
            location /begun {{ proxy_buffering off; proxy_pass http://127.0.0.1:{slow}; }}
            location /body {{ proxy_pass http://127.0.0.1:{silent}; }} }} }}",
        silent = silent.port,
        slow = slow.port
    );
    let site = Site::new(
        "daemon off; worker_processes 1; worker_shutdown_timeout 100ms; error_log logs/error.log info;",
        &conf,
    );
    let running = start(&site, port);
    let open = |head: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.set_read_timeout(Some(READ_PATIENCE)).expect("timeout");
        write!(stream, "{head}\r\nHost: a\r\n\r\n").expect("sent");
        stream
    };
    let mut all = vec![open("GET /place HTTP/1.1"), open(&format!("GET /task?port={} HTTP/1.1", silent.port))];
    // Both requests have begun when the later ones are answered by the same thread.
    all.push(open("GET /begun HTTP/1.1"));
    read_until(all.last_mut().expect("a stream"), "abc");
    all.push(open("POST /body HTTP/1.1\r\nContent-Length: 9\r\nExpect: 100-continue"));
    read_until(all.last_mut().expect("a stream"), "100 Continue");
    running.quit();
    let log = site.read("logs/l.log");
    let mut lines: Vec<_> = log.lines().filter(|line| !line.ends_with(" /")).collect();
    lines.sort();
    assert_eq!(lines, ["000 /body", "000 /place", "000 /task", "200 /begun"]);
    // The clients are not to blame.
    assert!(!site.log().contains("client prematurely closed connection"), "{}", site.log());
    drop(all);
    site.assert_no_alerts();
}

#[test]
fn term_waits_for_no_client() {
    let port = free_port();
    let site = site("", port);
    let running = start(&site, port);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: ").expect("sent");
    get(port).expect("answered");
    running.signal("TERM");
    assert!(running.ended().success());
    site.assert_no_alerts();
}

#[test]
fn a_supervisor_is_told() {
    let site = Site::new("daemon off;", "");
    let path = site.path("notify");
    let supervisor = UnixDatagram::bind(&path).expect("bind");
    supervisor.set_read_timeout(Some(READ_PATIENCE)).expect("timeout");
    let child = site.command(&[]).env("NOTIFY_SOCKET", &path).spawn().expect("starts");
    let running = Running { site: &site, child };
    let mut buffer = [0; 200];
    let mut next = || {
        let length = supervisor.recv(&mut buffer).expect("a message");
        support::text(&buffer[..length])
    };
    assert_eq!(next(), format!("READY=1\nMAINPID={}", running.pid()));
    assert_eq!(site.pid(), Some(running.pid()), "ready is told when the pid file is there");
    running.signal("QUIT");
    assert_eq!(next(), "STOPPING=1");
    assert!(running.ended().success());
}

#[test]
fn limits_of_the_worker_process() {
    let port = free_port();
    let site = site("worker_rlimit_nofile 300; worker_rlimit_core 1m; worker_cpu_affinity 1 1;", port);
    let running = start(&site, port);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", running.worker())).expect("limits");
    let value = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line[name.len()..].split_whitespace().next().and_then(|n| n.parse::<u64>().ok())
    };
    assert_eq!(value("Max open files"), Some(600), "two threads' worth");
    assert_eq!(value("Max core file size"), Some(1 << 20));
    // A thread sets its own affinity; one of them may answer before the other has begun.
    support::wait("both threads on processor 0", || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", running.worker())).expect("tasks").flatten();
        let statuses = tasks.map(|task| std::fs::read_to_string(task.path().join("status")).unwrap_or_default());
        let workers: Vec<_> = statuses.filter(|status| status.starts_with("Name:\tworker ")).collect();
        let bound = workers.iter().filter(|status| status.contains("Cpus_allowed_list:\t0\n")).count();
        if (workers.len(), bound) == (2, 2) { Ok(()) } else { Err(workers.concat()) }
    });
    running.quit();
}
