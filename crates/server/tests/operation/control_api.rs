//! The control API of nginx (`-l`): its responses, reloads with their outcome, its socket through upgrades and ends.

use crate::support;

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::client::get;
use support::{Running, Site, alive, children, exists, free_port, signal, stop, text, wait};

const PATIENCE: Duration = Duration::from_secs(20);

/// In the foreground, with the API at `control.sock`.
struct Controlled<'a> {
    running: Running<'a>,
    path: PathBuf,
}

fn start(site: &Site) -> Controlled<'_> {
    let path = site.path("control.sock");
    let running = site.start_with(&["-l", &format!("unix:{}", path.display())]);
    Controlled { running, path }
}

/// Sends octets; returns the response, after whose end the server closes.
fn exchange(mut stream: impl Read + Write, octets: &[u8]) -> String {
    stream.write_all(octets).expect("sent");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("a whole response");
    text(&response)
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream
}

/// Status and body of a response.
fn parts(response: &str) -> (u16, Value) {
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    assert!(
        head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())) || head.ends_with(&body.len().to_string())
    );
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

fn ask(path: &Path, method: &str, target: &str) -> (u16, Value) {
    let request = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    parts(&exchange(connect(path), request.as_bytes()))
}

fn page(port: u16, words: &str) -> String {
    format!("http {{ server {{ listen 127.0.0.1:{port}; return 200 {words}; }} }}")
}

#[test]
fn shows_the_process_and_its_configuration() {
    let site = Site::new("daemon off;", "include more.conf;");
    site.write("conf/more.conf", "# \"included\"\n");
    let server = start(&site);
    let get = |target: &str| ask(&server.path, "GET", target);
    assert_eq!(server.path.metadata().expect("a socket").permissions().mode() & 0o777, 0o600);
    assert_eq!(get("/"), (200, json!(["1"])));
    assert_eq!(get("/1"), (200, json!(["control", "nginx"])));
    assert_eq!(get("/1/control/"), (200, json!(["processes", "config"])));
    let (status, program) = get("/1/nginx");
    assert!(status == 200 && program["version"].as_str().is_some_and(|version| version.starts_with("1.")), "{program}");
    assert_eq!(program["build"], format!("tidegate/{}", env!("CARGO_PKG_VERSION")));
    let worker = server.running.worker();
    let process = json!([{ "name": "worker process", "pid": worker, "exiting": false }]);
    assert_eq!(get("/1/control/processes"), (200, process));
    let (status, files) = get("/1/control/config");
    let name = |file: &str| site.path(file).display().to_string();
    let wanted =
        ["conf/nginx.conf", "conf/more.conf"].map(|file| json!({ "name": name(file), "content": site.read(file) }));
    assert_eq!((status, files), (200, json!(wanted)));
    server.running.quit();
    assert!(!exists(&site.path("control.sock")));
    site.assert_no_alerts();
}

#[test]
fn refuses_what_is_no_request_of_its_own() {
    let site = Site::new("daemon off;", "");
    let server = start(&site);
    for (method, target, status) in [
        ("GET", "/2", 404),
        ("GET", "/1/control/process", 404),
        ("HEAD", "/1", 405),
        ("PATCH", "/1/control/processes", 405),
        ("DELETE", "/1/control/config", 405),
        ("get", "/1", 400),
        ("GET", "1", 400),
    ] {
        assert_eq!(ask(&server.path, method, target), (status, Value::Null), "{method} {target}");
    }
    let response = exchange(connect(&server.path), b"PUT /1/control/config HTTP/1.0\r\n");
    assert!(response.starts_with("HTTP/1.1 405 Not Allowed\r\n"), "{response}");
    assert!(
        response.contains("\r\nAllow: GET, PATCH\r\n") && response.contains("\r\nConnection: close\r\n"),
        "{response}"
    );
    // A body and long fields are read, so that the connection is not reset before its response.
    let long = format!("GET /1 HTTP/1.1\r\nX: {0}\r\nContent-Length: {1}\r\n\r\n{0}", "x".repeat(50_000), 50_000);
    assert_eq!(parts(&exchange(connect(&server.path), long.as_bytes())), (200, json!(["control", "nginx"])));
    let endless = "x".repeat(2_000);
    assert_eq!(parts(&exchange(connect(&server.path), endless.as_bytes())).0, 400);
    server.running.quit();
}

#[test]
fn the_oldest_connection_makes_room() {
    let site = Site::new("daemon off;", "");
    let server = start(&site);
    let mut idle: Vec<UnixStream> = (0..63).map(|_| connect(&server.path)).collect();
    // Octets of the last one show that all have been accepted.
    assert_eq!(ask(&server.path, "GET", "/1").0, 200);
    let mut oldest = idle.remove(0);
    assert_eq!(oldest.read(&mut [0]).expect("closed"), 0, "the oldest of 64 connections is closed");
    assert_eq!(parts(&exchange(&mut idle[0], b"GET /1 HTTP/1.1\r\n\r\n")).0, 200, "the second serves");
    site.wait_for_log("control: too many client connections", 1);
    server.running.quit();
}

#[test]
fn a_reload_reports_its_outcome() {
    let port = free_port();
    let site = Site::new("daemon off;", &page(port, "old"));
    let server = start(&site);
    let reload = || ask(&server.path, "PATCH", "/1/control/config");
    site.configure("daemon off;", &page(port, "new"));
    assert_eq!(reload(), (200, json!({ "logs": [] })));
    assert_eq!(get(port), Ok((200, "new".into())), "the response comes after the activation");

    site.configure("daemon off;", "htpp { }");
    let (status, body) = reload();
    let line = body["logs"][0].as_str().expect("a line");
    assert!(status == 422 && line.contains("[emerg]") && line.contains("unknown directive \"htpp\""), "{body}");
    assert_eq!(get(port), Ok((200, "new".into())));

    // Bound by this test: sockets are opened behind the check of the configuration.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    site.configure("daemon off;", &page(taken.local_addr().expect("address").port(), "taken"));
    let (status, body) = reload();
    assert!(status == 422 && body["logs"].to_string().contains("still could not bind()"), "{body}");
    assert_eq!(get(port), Ok((200, "new".into())));

    // A warning is no reason to refuse.
    let servers = format!("server {{ listen 127.0.0.1:{port}; server_name a; return 200 warned; }}").repeat(2);
    site.configure("daemon off;", &format!("http {{ {servers} }}"));
    let (status, body) = reload();
    let line = body["logs"][0].as_str().expect("a line");
    assert!(status == 200 && line.contains("[warn]") && line.contains("conflicting server name"), "{body}");
    assert_eq!(get(port), Ok((200, "warned".into())));
    server.running.quit();
}

#[test]
fn a_reload_by_a_new_worker_process_is_awaited() {
    let port = free_port();
    let site = Site::new("daemon off;", &page(port, "old"));
    let server = start(&site);
    let first = server.running.worker();
    site.configure("daemon off; worker_rlimit_nofile 600;", &page(port, "new"));
    assert_eq!(ask(&server.path, "PATCH", "/1/control/config"), (200, json!({ "logs": [] })));
    assert_eq!(get(port), Ok((200, "new".into())));
    assert_ne!(children(server.running.pid()), [first], "a setting of the process has changed");
    // Its successor cannot start: the old configuration stays.
    site.configure("daemon off; working_directory /nonexistent;", &page(port, "never"));
    let (status, body) = ask(&server.path, "PATCH", "/1/control/config");
    assert!(status == 422 && body["logs"].to_string().contains("the old configuration stays"), "{body}");
    assert_eq!(get(port), Ok((200, "new".into())));
    server.running.quit();
}

/// A client whose request the master has read.
fn begin_reload(site: &Site, server: &Controlled<'_>) -> UnixStream {
    let mut stream = connect(&server.path);
    stream.write_all(b"PATCH /1/control/config HTTP/1.1\r\n\r\n").expect("sent");
    // The API handles its connections in the order of their arrival.
    assert_eq!(ask(&server.path, "GET", "/1").0, 200);
    site.wait_for_log("reconfiguring", 1);
    // The line precedes the reading of the files, which this answer follows.
    assert_eq!(ask(&server.path, "GET", "/1").0, 200);
    stream
}

#[test]
fn each_of_two_reloads_reports_its_outcome() {
    let port = free_port();
    let site = Site::new("daemon off;", &page(port, "old"));
    let server = start(&site);
    let worker = server.running.worker();
    stop(worker);
    let first = begin_reload(&site, &server);
    site.configure("daemon off;", "htpp { }");
    let second = begin_reload(&site, &server);
    signal(worker, "CONT");
    assert_eq!(parts(&exchange(first, b"")), (200, json!({ "logs": [] })));
    let (status, body) = parts(&exchange(second, b""));
    assert!(status == 422 && body["logs"].to_string().contains("unknown directive"), "{body}");
    server.running.quit();
}

#[test]
fn a_reload_that_the_end_of_the_server_prevents_is_refused() {
    for ends in ["QUIT", "TERM"] {
        let site = Site::new("daemon off;", "");
        let server = start(&site);
        let worker = server.running.worker();
        stop(worker);
        let client = begin_reload(&site, &server);
        signal(server.running.pid(), ends);
        let (status, body) = parts(&exchange(client, b""));
        let lines = body["logs"].as_array().map_or(0, Vec::len);
        assert!(status == 422 && lines == 1 && body.to_string().contains("the old one stays"), "{ends}: {body}");
        signal(worker, "CONT");
        server.running.quit();
    }
}

#[test]
fn clients_share_the_shown_configuration() {
    let site = Site::new("daemon off;", "include long.conf;");
    site.write("conf/long.conf", &format!("# {}\n", "x".repeat(8 << 20)));
    let server = start(&site);
    let peak = || {
        let path = format!("/proc/{}/status", server.running.pid());
        let status = std::fs::read_to_string(path).expect("readable");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") / 1024
    };
    let ask = || {
        let mut stream = connect(&server.path);
        stream.write_all(b"GET /1/control/config HTTP/1.1\r\n\r\n").expect("sent");
        stream.read_exact(&mut [0]).expect("the begin of a response");
        stream
    };
    let first = ask();
    let before = peak();
    let others: Vec<UnixStream> = (0..40).map(|_| ask()).collect();
    let more = peak() - before;
    assert!(more < 64, "{more} MB for responses that are not read");
    let response = exchange(others.into_iter().next().expect("one"), b"");
    assert!(response.len() > 8 << 20);
    drop(first);
    // The next response has the configuration of the reload.
    site.write("conf/long.conf", "# short\n");
    assert_eq!(self::ask(&server.path, "PATCH", "/1/control/config").0, 200);
    assert_eq!(self::ask(&server.path, "GET", "/1/control/config").1[1]["content"], "# short\n");
    server.running.quit();
}

#[test]
fn a_new_binary_takes_the_socket_over() {
    let site = Site::new("", "");
    let path = site.path("control.sock");
    let address = format!("unix:{}", path.display());
    assert!(site.run(&["-l", &address]).status.success());
    let old = wait("the pid file", || site.pid().ok_or("none"));
    let inode = path.metadata().expect("a socket").ino();
    signal(old, "USR2");
    let new = wait("the new master", || site.pid().filter(|pid| *pid != old).ok_or_else(|| site.log()));
    // The new master has written its pid file before its worker runs.
    let worker = wait("its worker", || children(new).first().copied().ok_or_else(|| site.log()));
    let process = json!([{ "name": "worker process", "pid": worker, "exiting": false }]);
    assert_eq!(ask(&path, "GET", "/1/control/processes"), (200, process));
    signal(new, "TERM");
    wait("its end", || if alive(new) { Err("alive") } else { Ok(()) });
    wait("the old pid file", || site.pid().filter(|pid| *pid == old).ok_or_else(|| site.log()));
    let (status, processes) = ask(&path, "GET", "/1/control/processes");
    assert!(status == 200 && processes[0]["pid"] != worker, "the old master answers again: {processes}");
    signal(old, "USR2");
    let new = wait("the new master", || site.pid().filter(|pid| *pid != old).ok_or_else(|| site.log()));
    signal(old, "QUIT");
    wait("its end", || if alive(old) { Err("alive") } else { Ok(()) });
    assert_eq!(path.metadata().expect("kept").ino(), inode);
    assert_eq!(ask(&path, "PATCH", "/1/control/config").0, 200);
    signal(new, "QUIT");
    wait("its end", || if alive(new) { Err("alive") } else { Ok(()) });
    assert!(!exists(&path));
    site.assert_no_alerts();
}

#[test]
fn a_port_and_what_it_cannot_be() {
    let (port, site) = (free_port(), Site::new("daemon off;", ""));
    let running = site.start_with(&["-l", &format!("127.0.0.1:{port}")]);
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("connects");
    assert_eq!(parts(&exchange(stream, b"GET /1 HTTP/1.0\r\n\r\n")), (200, json!(["control", "nginx"])));
    let other = Site::new("daemon off;", "");
    for (address, words) in [
        (format!("127.0.0.1:{port}"), "control: bind() to 127.0.0.1"),
        ("127.0.0.1".into(), "control: invalid port in \"127.0.0.1\""),
        ("unix:".into(), "control: no path in the unix domain socket in \"unix:\""),
    ] {
        let output = other.run(&["-l", &address]);
        assert!(!output.status.success() && text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
    other.configure("daemon off; master_process off;", "");
    let output = other.run(&["-l", "unix:control.sock"]);
    assert!(!output.status.success() && text(&output.stderr).contains("requires a master process"));
    running.quit();
}

#[test]
fn a_start_that_fails_leaves_no_socket_paths() {
    let site = Site::new("daemon off;", "");
    let (page, api) = (site.path("page.sock"), site.path("control.sock"));
    let http = format!("http {{ server {{ listen unix:{}; }} }}", page.display());
    let start = || site.run(&["-l", &format!("unix:{}", api.display())]);
    site.configure("daemon off; pid missing/nginx.pid;", &http);
    assert!(text(&start().stderr).contains("missing/nginx.pid"), "{}", site.log());
    assert!(!exists(&page) && !exists(&api));
    // The control API is the second to be opened.
    site.write("control.sock", "not a socket");
    site.configure("daemon off;", &http);
    assert!(text(&start().stderr).contains("control: bind() to unix:"), "{}", site.log());
    assert!(!exists(&page) && site.read("control.sock") == "not a socket");
}

#[test]
fn workers_lack_its_sockets() {
    let site = Site::new("daemon off;", "");
    let server = start(&site);
    let client = connect(&server.path);
    assert_eq!(ask(&server.path, "GET", "/1").0, 200);
    let first = server.running.worker();
    signal(first, "KILL");
    let second = wait("another worker", || {
        children(server.running.pid()).into_iter().find(|pid| *pid != first).ok_or_else(|| site.log())
    });
    let path = server.path.display().to_string();
    let bound = std::fs::read_to_string("/proc/net/unix").expect("the table");
    let inodes: Vec<&str> =
        bound.lines().filter(|line| line.ends_with(&path)).filter_map(|line| line.split_whitespace().nth(6)).collect();
    assert!(inodes.len() >= 2, "a listening socket and a connection: {inodes:?}");
    wait("the end of inherited descriptors", || {
        let all = std::fs::read_dir(format!("/proc/{second}/fd")).map_err(|e| e.to_string())?;
        let names = all.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let held: Vec<PathBuf> =
            names.filter(|name| inodes.iter().any(|inode| *name == Path::new(&format!("socket:[{inode}]")))).collect();
        if held.is_empty() { Ok(()) } else { Err(format!("{held:?}")) }
    });
    drop(client);
    server.running.quit();
}
