//! Purges of tags (`proxy_cache_tags`): over a restart, for responses on their way, beyond the bounds, by the API, and with the
//! fields of a 304.

use crate::support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use support::client::Client;
use support::origin::{Origin, ok};
use support::{Running, Site, api, free_port, wait};

fn site(port: u16, origin: u16, http: &str, more: &str) -> Site {
    let rest = format!(
        "http {{ proxy_cache_path cache keys_zone=C:1m inactive=1h; access_log off; {http}
         map $request_method $purges {{ PURGE 1; }}
         server {{ listen 127.0.0.1:{port};
         location /api {{ api write=on; }}
         location / {{ proxy_pass http://127.0.0.1:{origin}; proxy_cache C; proxy_cache_key $uri; proxy_cache_valid 1h;
         proxy_cache_tags $upstream_http_cache_tag; proxy_cache_purge $purges; proxy_cache_purge_tags $http_cache_tag;
         add_header X-Cache $upstream_cache_status; {more} }} }} }}"
    );
    Site::new("daemon off; master_process off; worker_processes 2;", &rest)
}

/// Status and cache status of the response.
fn ask(port: u16, line: &str, field: &str) -> (u16, String) {
    let request = format!("{line} HTTP/1.1\r\nHost: a\r\n{field}Connection: close\r\n\r\n");
    let (status, head, _) =
        Client::connect(port).and_then(|mut client| client.ask_for_all(&request)).expect("an answer");
    let cache = head.lines().find_map(|line| line.strip_prefix("X-Cache: ")).unwrap_or_default();
    (status, cache.trim().to_string())
}

fn started(site: &Site, port: u16) -> Running<'_> {
    let running = site.start();
    wait("a listener", || Client::connect(port));
    running
}

fn purge(port: u16, tags: &str) -> u16 {
    ask(port, "PURGE /", &format!("Cache-Tag: {tags}\r\n")).0
}

fn tagged(tags: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Tag: {tags}\r\n\r\nok").into_bytes()
}

/// Answers `GET /TAGS/NAME` with the tags of the path, which `+` separates.
fn echo() -> Origin {
    Origin::answering(|request| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        tagged(&path.split('/').nth(1).unwrap_or_default().replace('+', " "))
    })
}

#[test]
fn tags_and_their_purges_outlive_the_process() {
    for memory in ["", "tidegate_response_memory off;"] {
        let origin = echo();
        let port = free_port();
        let site = site(port, origin.port, memory, "");
        let running = started(&site, port);
        let paths = ["/news/1", "/news+sports/2", "/sports/3", "//4"];
        let look = || paths.map(|path| ask(port, &format!("GET {path}"), "").1);
        assert_eq!(look(), ["MISS"; 4]);
        assert_eq!(look(), ["HIT"; 4]);
        running.quit();

        // Tags of entries that an earlier process has stored.
        let running = started(&site, port);
        assert_eq!(purge(port, "news"), 204);
        assert_eq!(look(), ["MISS", "MISS", "HIT", "HIT"]);
        assert_eq!(look(), ["HIT"; 4]);
        assert_eq!(purge(port, "none, sports"), 204);
        running.quit();

        // A purge before the restart.
        let running = started(&site, port);
        assert_eq!(look(), ["HIT", "MISS", "MISS", "HIT"]);
        assert_eq!(look(), ["HIT"; 4]);
        running.quit();
        site.assert_no_alerts();
    }
}

#[test]
fn a_response_on_its_way_is_purged_by_its_tags() {
    let (go, told) = mpsc::channel::<()>();
    let (says, halfway) = mpsc::channel();
    let (told, says) = (Mutex::new(told), Mutex::new(says));
    let origin = Origin::new(move |mut talk| {
        let _ = talk.request();
        talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\nCache-Tag: news\r\n\r\n01234");
        let _ = says.lock().expect("no panic").send(());
        let _ = told.lock().expect("no panic").recv();
        talk.send(b"56789");
    });
    let port = free_port();
    let site = site(port, origin.port, "", "");
    let running = started(&site, port);
    for (tags, after) in [("news", "MISS"), ("sports", "HIT")] {
        assert_eq!(ask(port, "PURGE /*", "").0, 204);
        thread::scope(|scope| {
            let client = scope.spawn(|| ask(port, "GET /a", ""));
            halfway.recv().expect("the first half is on its way");
            assert_eq!(purge(port, tags), 204);
            go.send(()).expect("the origin listens");
            assert_eq!(client.join().expect("an answer"), (200, "MISS".into()));
        });
        go.send(()).expect("the origin listens");
        assert_eq!(ask(port, "GET /a", "").1, after, "{tags}");
        if after == "MISS" {
            halfway.recv().expect("a fetch");
        }
    }
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn bounds_of_tags_are_told_and_no_purge_misses_an_entry_beyond_them() {
    let many = (0..1001).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let long = "x".repeat(1025);
    let (more, longer) = (many.clone(), long.clone());
    let origin = Origin::answering(move |request| match request.split(' ').nth(1) {
        Some("/many") => tagged(&more),
        Some("/long") => tagged(&longer),
        _ => tagged("few"),
    });
    let port = free_port();
    let site =
        site(port, origin.port, "large_client_header_buffers 4 16k;", "proxy_buffer_size 16k; proxy_buffers 4 16k;");
    let running = started(&site, port);
    let look = || ["/many", "/long", "/few"].map(|path| ask(port, &format!("GET {path}"), "").1);
    assert_eq!(look(), ["MISS"; 3]);
    assert_eq!(look(), ["HIT"; 3]);
    site.wait_for_log("the response has more than 1000 tags, or one of more than 1024 bytes", 2);
    assert_eq!((purge(port, &many), purge(port, &long)), (400, 400));
    site.wait_for_log("a purge names more than 1000 tags, or one of more than 1024 bytes", 2);
    assert_eq!(look(), ["HIT"; 3]);
    assert_eq!(purge(port, "another"), 204);
    assert_eq!(look(), ["MISS", "MISS", "HIT"]);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn the_api_purges_tags() {
    let origin = echo();
    let port = free_port();
    let site = site(port, origin.port, "", "");
    let running = started(&site, port);
    let look = || ["/news/1", "/sports/2", "/x/3"].map(|path| ask(port, &format!("GET {path}"), "").1);
    assert_eq!(look(), ["MISS"; 3]);
    let delete = |query: &str| api::ask(port, "DELETE", &format!("/tidegate/1/caches/C?{query}"), None);
    assert_eq!(delete("tag=news,%20sports").0, 204);
    assert_eq!(look(), ["MISS", "MISS", "HIT"]);
    let caches = api::get(port, "/tidegate/1/caches");
    assert_eq!(caches.pointer("/C/purged_tags"), Some(&serde_json::json!(2)), "{caches}");
    for query in ["tag=", "tag=,", "tag=a&key=b", &format!("tag={}", "x".repeat(1025))] {
        assert_eq!(api::code(&delete(query)), (400, "CacheTagFormatError"), "{query}");
    }
    assert_eq!(look(), ["HIT"; 3]);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_304_changes_tags_only_with_rfc9111_and_only_to_its_own() {
    for (more, of_304, purged) in
        [("", "new", "old"), ("proxy_cache_rfc9111 on;", "", "old"), ("proxy_cache_rfc9111 on;", "new", "new")]
    {
        let asked = AtomicUsize::new(0);
        let origin = Origin::answering(move |_| {
            let field = if of_304.is_empty() { String::new() } else { format!("Cache-Tag: {of_304}\r\n") };
            match asked.fetch_add(1, Ordering::Relaxed) {
                // Expired at once.
                0 => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: \"1\"\r\nX-Accel-Expires: @1\r\n\
                      Cache-Tag: old\r\n\r\nok"
                    .to_vec(),
                1 => format!("HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nX-Accel-Expires: 1000\r\n{field}\r\n")
                    .into_bytes(),
                _ => ok("new"),
            }
        });
        let port = free_port();
        let site = site(port, origin.port, "", &format!("proxy_cache_revalidate on; {more}"));
        let running = started(&site, port);
        let get = || ask(port, "GET /a", "").1;
        assert_eq!([get(), get(), get()], ["MISS", "REVALIDATED", "HIT"], "{more} {}", site.log());
        assert_eq!(purge(port, if purged == "old" { "new" } else { "old" }), 204);
        assert_eq!(get(), "HIT", "{more} {of_304}");
        assert_eq!(purge(port, purged), 204);
        assert_eq!(get(), "MISS", "{more} {of_304}");
        running.quit();
        site.assert_no_alerts();
    }
}
