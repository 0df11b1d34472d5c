//! Caches while others are at it: variants whose main entry is gone, answers on their way when they are purged, folders that
//! vanish, long entries that get another head.

use crate::support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use support::{Site, free_port, wait};

fn site(port: u16, pass: &str, more: &str) -> Site {
    let rest = format!(
        "http {{ proxy_cache_path cache keys_zone=C:1m inactive=1h {more};\n\
         map $request_method $purges {{ PURGE 1; }}\n\
         server {{ listen 127.0.0.1:{port};\n\
         location /origin/ {{ add_header Vary X-A; add_header Cache-Control max-age=1000; return 200 \"$http_x_a\"; }}\n\
         location / {{ proxy_pass {pass}; proxy_cache C; proxy_cache_key $uri; proxy_cache_purge $purges;\n\
         add_header X-Cache $upstream_cache_status; }} }} }}"
    );
    Site::new("daemon off; master_process off; worker_processes 2;", &rest)
}

/// Status, cache status and body of the response.
fn ask(port: u16, line: &str, field: &str) -> (String, String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    write!(stream, "{line} HTTP/1.1\r\nHost: a\r\n{field}Connection: close\r\n\r\n").expect("sent");
    let mut all = String::new();
    stream.read_to_string(&mut all).expect("an answer");
    let (head, body) = all.split_once("\r\n\r\n").expect("a head");
    let cache = head.lines().find_map(|l| l.strip_prefix("X-Cache: ")).unwrap_or("");
    (head[9..12].into(), cache.into(), body.into())
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    all.filter(|path| path.file_name().is_some_and(|name| name.len() == 32)).collect()
}

fn ready(port: u16) {
    wait("a listener", || TcpStream::connect(("127.0.0.1", port)));
}

#[test]
fn variants_are_purged_though_their_main_entry_is_gone() {
    for wild in [false, true] {
        let port = free_port();
        let site = site(port, &format!("http://127.0.0.1:{port}/origin/"), "");
        let folder = site.path("cache");
        let running = site.start();
        ready(port);
        assert_eq!(ask(port, "GET /v", "").1, "MISS");
        let main = entries(&folder);
        assert_eq!(ask(port, "GET /v", "X-A: 1\r\n").1, "MISS");
        assert_eq!(ask(port, "GET /w", "X-A: 1\r\n").1, "MISS");
        assert_eq!(ask(port, "GET /w", "").1, "MISS");
        running.quit();
        assert_eq!(main.len(), 1);
        std::fs::remove_file(&main[0]).expect("removed");

        let running = site.start();
        site.wait_for_log("http file cache: ", 2);
        assert_eq!(ask(port, if wild { "PURGE /v*" } else { "PURGE /v" }, "").0, if wild { "204" } else { "404" });
        assert_eq!(ask(port, "GET /v", "").1, "MISS");
        let (_, cache, body) = ask(port, "GET /v", "X-A: 1\r\n");
        assert_eq!((cache.as_str(), body.as_str()), ("MISS", "1"), "what was purged does not come back");
        assert_eq!(ask(port, "GET /v", "X-A: 1\r\n").1, "HIT");
        // Others stay.
        assert_eq!(ask(port, "GET /w", "").1, "HIT");
        assert_eq!(ask(port, "GET /w", "X-A: 1\r\n").1, "HIT");
        running.quit();
        site.assert_no_alerts();
    }
}

/// Sends half of each response, reports it, and sends the rest on request.
fn halting(told: mpsc::Receiver<()>, says: mpsc::Sender<()>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("address").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).expect("a request");
            }
            let mut stream = reader.into_inner();
            let head =
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\nContent-Length: 10\r\nConnection: close\r\n\r\n";
            stream.write_all(format!("{head}01234").as_bytes()).expect("half of it");
            if says.send(()).is_err() || told.recv().is_err() {
                return;
            }
            stream.write_all(b"56789").expect("the rest");
        }
    });
    port
}

#[test]
fn fetches_during_a_purge_are_not_stored() {
    let (go, told) = mpsc::channel();
    let (says, halfway) = mpsc::channel();
    let origin = halting(told, says);
    let port = free_port();
    let site = site(port, &format!("http://127.0.0.1:{origin}"), "");
    let running = site.start();
    ready(port);
    for (round, purge) in ["PURGE /a", "PURGE /a*", "PURGE /a", "PURGE /*"].into_iter().enumerate() {
        thread::scope(|scope| {
            let client = scope.spawn(|| ask(port, "GET /a", ""));
            halfway.recv().expect("the first half is on its way");
            let (status, ..) = ask(port, purge, "");
            assert_eq!(status, if purge.ends_with('*') { "204" } else { "404" }, "{purge}");
            go.send(()).expect("the origin listens");
            assert_eq!(client.join().expect("an answer"), ("200".into(), "MISS".into(), "0123456789".into()));
        });
        assert!(entries(&site.path("cache")).len() <= usize::from(purge.ends_with('*')), "round {round}");
    }
    // Responses fetched right after the purge are stored.
    for n in 0..20 {
        let path = format!("/{n}");
        go.send(()).expect("the origin listens");
        assert_eq!(ask(port, &format!("GET {path}"), "").1, "MISS");
        assert_eq!(ask(port, "PURGE /*", "").0, "204");
        go.send(()).expect("the origin listens");
        assert_eq!(ask(port, &format!("GET {path}"), "").1, "MISS");
        assert_eq!(ask(port, &format!("GET {path}"), "").1, "HIT");
    }
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_folder_that_vanishes_is_an_empty_cache() {
    for more in ["levels=1:2 use_temp_path=off", "levels=1:2 use_temp_path=on"] {
        let port = free_port();
        let site = site(port, &format!("http://127.0.0.1:{port}/origin/"), more);
        let text = site.read("conf/nginx.conf").replace("http {", "http { tidegate_response_memory off;");
        site.write("conf/nginx.conf", &text);
        let running = site.start();
        ready(port);
        for round in 0..3 {
            assert_eq!(ask(port, "GET /v", "X-A: x\r\n"), ("200".into(), "MISS".into(), "x".into()), "{round}");
            assert_eq!(ask(port, "GET /v", "X-A: x\r\n").1, "HIT");
            std::fs::remove_dir_all(site.path("cache")).expect("removed");
            if round == 1 {
                // A file in place of the directory: nothing can be stored, and every response is complete.
                site.write("cache", "");
                assert_eq!(ask(port, "GET /v", "X-A: x\r\n"), ("200".into(), "MISS".into(), "x".into()));
                assert_eq!(ask(port, "GET /v", "X-A: x\r\n").1, "MISS");
                std::fs::remove_file(site.path("cache")).expect("removed");
            }
        }
        running.quit();
        site.assert_no_alerts();
    }
}

#[test]
fn a_long_entry_gets_the_fields_of_a_304() {
    let port = free_port();
    let locations = format!(
        "http {{ proxy_cache_path cache keys_zone=C:1m; server {{ listen 127.0.0.1:{port};
         location /origin/ {{ alias html/; add_header X-Accel-Expires @1; add_header X-Turn $request_id; }}
         location / {{ proxy_pass http://127.0.0.1:{port}/origin/; proxy_cache C; proxy_cache_revalidate on;
         proxy_cache_rfc9111 on; add_header X-Cache $upstream_cache_status; }} }} }}"
    );
    let site = Site::new("daemon off; master_process off;", &locations);
    let body: String = (0..30_000).map(|n| format!("{n}\n")).collect();
    site.write("html/long", &body);
    let running = site.start();
    ready(port);
    let turn = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        write!(stream, "GET /long HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
        let mut all = String::new();
        stream.read_to_string(&mut all).expect("an answer");
        let (head, got) = all.split_once("\r\n\r\n").expect("a head");
        assert!(got == body, "another body: {head}");
        let field = |name: &str| head.lines().find_map(|l| l.strip_prefix(name)).unwrap_or("").to_string();
        (field("X-Cache: "), field("X-Turn: "))
    };
    let mut turns = Vec::new();
    for round in 0..5 {
        let (cache, now) = turn();
        assert_eq!(cache, if round == 0 { "MISS" } else { "REVALIDATED" });
        assert!(!turns.contains(&now), "the fields of this 304, not of an earlier one");
        // A thread of the pool writes the entry anew.
        wait("the entry with its new head", || {
            let files = entries(&site.path("cache"));
            let text = files.first().and_then(|file| std::fs::read(file).ok()).unwrap_or_default();
            let new = text.windows(now.len()).any(|part| part == now.as_bytes()) && text.ends_with(body.as_bytes());
            if new && files.len() == 1 { Ok(()) } else { Err(files.len()) }
        });
        turns.push(now);
    }
    running.quit();
    site.assert_no_alerts();
}
