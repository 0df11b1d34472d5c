//! Several servers with one store (`shared_store`): pairs, limits, a store that stalls, dies and comes back.

use crate::support;

use serde_json::json;
use std::process::{Child, Command, Stdio};
use support::api::{ask, get};
use support::client::Client;
use support::origin::{Origin, ok};
use support::{Running, Site, free_port, wait};

/// Redis without a port.
pub struct Redis {
    pub site: Site,
    pub child: Child,
}

impl Redis {
    pub fn start() -> Option<Redis> {
        let site = Site::new("", "");
        let child = Redis::spawn(&site)?;
        Some(Redis { site, child })
    }

    pub fn spawn(site: &Site) -> Option<Child> {
        let _ = std::fs::remove_file(site.path("redis.sock"));
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocketperm", "777", "--unixsocket"])
            .arg(site.path("redis.sock"))
            .stdout(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            testkit::missing_peer("redis-server");
            return None;
        };
        wait("Redis", || site.path("redis.sock").exists().then_some(()).ok_or("no socket"));
        Some(child)
    }

    /// Starts Redis on a port of 127.0.0.1, without a socket.
    pub fn on_port(port: u16) -> Option<Redis> {
        let text = port.to_string();
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &text])
            .stdout(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            testkit::missing_peer("redis-server");
            return None;
        };
        let redis = Redis { site: Site::new("", ""), child };
        wait("Redis", || std::net::TcpStream::connect(("127.0.0.1", port)).map(drop));
        Some(redis)
    }

    pub fn address(&self) -> String {
        format!("redis+unix:{}", self.site.path("redis.sock").display())
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(port: u16, more: &str) -> String {
    format!(
        "http {{
            access_log off;
            keyval_zone zone=pairs:64k timeout=1h sync;
            keyval $arg_key $pair zone=pairs;
            limit_req_zone $arg_key zone=rate:64k rate=1r/m sync;
            {more}
            server {{
                listen 127.0.0.1:{port};
                location /api {{ api write=on; }}
                location /metrics {{ metrics; }}
                location /pair {{ return 200 \"$pair\"; }}
                location /limited {{ limit_req zone=rate burst=31 nodelay; limit_req_status 429; root .; try_files /none =204; }}
            }}
        }}"
    )
}

struct Node {
    port: u16,
    site: Site,
}

impl Node {
    fn new(store: &str) -> Node {
        let port = free_port();
        let main = format!("daemon off; worker_processes 2; shared_store {store} timeout=300ms;");
        Node { port, site: Site::new(&main, &configuration(port, "")) }
    }

    fn status(&self, path: &str) -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        Client::connect(self.port).and_then(|mut client| client.ask(&request)).expect("an answer")
    }

    fn set(&self, method: &str, key: &str, value: &str) {
        let (status, body) = ask(self.port, method, "/9/http/keyvals/pairs", Some(&json!({ key: value })));
        assert!(status < 300, "{status} {body}");
    }

    fn wait_for(&self, key: &str, value: &str) {
        wait(&format!("{key}={value}"), || match self.status(&format!("/pair?key={key}")) {
            (200, seen) if seen == value => Ok(()),
            seen => Err(format!("{seen:?}; {}", self.site.log())),
        });
    }

    fn wait_for_store(&self, is_connected: bool) {
        wait("the store", || {
            let all = get(self.port, "/tidegate/1/stores");
            let seen = all.pointer("/0/connected").and_then(serde_json::Value::as_bool);
            (seen == Some(is_connected)).then_some(()).ok_or_else(|| all.to_string())
        });
    }
}

#[test]
fn pairs_are_the_same_on_all_servers_also_after_the_store_was_gone() {
    let Some(mut redis) = Redis::start() else { return };
    let nodes: Vec<Node> = (0..3).map(|_| Node::new(&redis.address())).collect();
    let running: Vec<Running> = nodes.iter().map(|node| node.site.start()).collect();
    nodes.iter().for_each(|node| node.wait_for_store(true));
    nodes[0].set("POST", "a", "1");
    nodes.iter().for_each(|node| node.wait_for("a", "1"));
    nodes[1].set("PATCH", "a", "2");
    nodes.iter().for_each(|node| node.wait_for("a", "2"));

    // Requests and changes go on without the store.
    redis.kill();
    nodes.iter().for_each(|node| node.wait_for_store(false));
    nodes[2].set("POST", "b", "3");
    nodes[0].set("PATCH", "a", "4");
    assert_eq!(nodes[1].status("/pair?key=a"), (200, "2".into()));
    // So does a reload, and a start.
    running[0].signal("HUP");
    nodes[0].site.wait_for_log("is no longer used", 1);
    assert_eq!(nodes[0].status("/pair?key=a"), (200, "4".into()));
    let late = Node::new(&redis.address());
    let late_running = late.site.start();
    late.wait_for_store(false);
    assert_eq!(late.status("/pair?key=a"), (200, String::new()));

    redis.child = Redis::spawn(&redis.site).expect("Redis");
    for node in nodes.iter().chain([&late]) {
        node.wait_for("a", "4");
        node.wait_for("b", "3");
    }
    let (status, _) = ask(nodes[1].port, "DELETE", "/9/http/keyvals/pairs", None);
    assert_eq!(status, 204);
    nodes.iter().for_each(|node| node.wait_for("a", ""));
    running.into_iter().for_each(Running::quit);
    late_running.quit();
    nodes.iter().for_each(|node| node.site.assert_no_alerts());
}

#[test]
fn a_limit_counts_the_requests_of_all_servers() {
    let Some(mut redis) = Redis::start() else { return };
    let nodes: Vec<Node> = (0..3).map(|_| Node::new(&redis.address())).collect();
    let running: Vec<Running> = nodes.iter().map(|node| node.site.start()).collect();
    nodes.iter().for_each(|node| node.wait_for_store(true));
    wait("three nodes", || {
        let all = get(nodes[0].port, "/tidegate/1/stores");
        (all.pointer("/0/nodes") == Some(&json!(3))).then_some(()).ok_or_else(|| all.to_string())
    });
    let pass = |key: &str, rounds: usize| -> usize {
        let mut passed = 0;
        for _ in 0..rounds {
            for node in &nodes {
                match node.status(&format!("/limited?key={key}")).0 {
                    204 => passed += 1,
                    status => assert_eq!(status, 429),
                }
            }
        }
        passed
    };
    // A server admits the burst and one before it hears of the others, at most.
    let mut passed = pass("a", 11);
    wait("the burst to be used", || {
        let more = pass("a", 1);
        passed += more;
        if more == 0 && passed >= 32 { Ok(()) } else { Err(passed) }
    });
    passed += pass("a", 20);
    assert!(
        (32..=4 * 32 + 1).contains(&passed),
        "{passed}: the burst and one, as many a server, and one for a slow minute"
    );

    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let (_, metrics) = Client::connect(nodes[0].port).and_then(|mut client| client.ask(request)).expect("metrics");
    for line in
        ["tidegate_store_connected{store=", "tidegate_store_nodes{store=", "tidegate_store_permits_total{store="]
    {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }

    // Without the store each server has a third of the burst, and one.
    redis.kill();
    nodes.iter().for_each(|node| node.wait_for_store(false));
    let alone = pass("b", 40);
    assert!((33..=39).contains(&alone), "{alone}: three times 31/3 + 1");
    running.into_iter().for_each(Running::quit);
    nodes.iter().for_each(|node| node.site.assert_no_alerts());
}

#[test]
fn purges_reach_all_servers_also_one_that_was_away() {
    let Some(mut redis) = Redis::start() else { return };
    let origin = Origin::answering(|request| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        ok(path)
    });
    let nodes: Vec<Node> = (0..2)
        .map(|_| {
            let port = free_port();
            let main = format!("daemon off; shared_store {} timeout=300ms;", redis.address());
            let conf = format!(
                "http {{
                    access_log off;
                    proxy_cache_path cache keys_zone=pages:1m sync;
                    server {{
                        listen 127.0.0.1:{port};
                        location /api {{ api write=on; }}
                        location / {{
                            proxy_pass http://127.0.0.1:{};
                            proxy_cache pages; proxy_cache_key $uri; proxy_cache_valid 1h;
                            add_header X-Cache $upstream_cache_status;
                        }}
                    }}
                }}",
                origin.port
            );
            Node { port, site: Site::new(&main, &conf) }
        })
        .collect();
    let running: Vec<Running> = nodes.iter().map(|node| node.site.start()).collect();
    nodes.iter().for_each(|node| node.wait_for_store(true));
    let cached = |node: &Node, path: &str| -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let (status, head, _) =
            Client::connect(node.port).and_then(|mut client| client.ask_for_all(&request)).expect("an answer");
        assert_eq!(status, 200, "{head}");
        head.lines().find_map(|line| line.strip_prefix("X-Cache: ")).unwrap_or_default().trim().to_string()
    };
    let fill = || {
        for (node, path) in nodes.iter().flat_map(|node| ["/a", "/b/1", "/b/2", "/c"].map(|path| (node, path))) {
            wait(&format!("a hit for {path} on {}", node.port), || match cached(node, path).as_str() {
                "HIT" => Ok(()),
                seen => Err(format!("{seen}; {}; {}", get(node.port, "/tidegate/1/stores"), node.site.log())),
            });
        }
    };
    let purge = |node: &Node, key: &str| {
        let (status, body) = ask(node.port, "DELETE", &format!("/tidegate/1/caches/pages?key={key}"), None);
        assert_eq!(status, 204, "{body}");
    };
    let wait_for_miss = |node: &Node, path: &str| {
        wait(&format!("{path} to be purged"), || match cached(node, path).as_str() {
            "MISS" | "EXPIRED" => Ok(()),
            seen => Err(seen.to_string()),
        });
    };
    fill();
    purge(&nodes[0], "/a");
    wait_for_miss(&nodes[1], "/a");
    purge(&nodes[1], "/b/*");
    wait_for_miss(&nodes[0], "/b/1");
    wait_for_miss(&nodes[0], "/b/2");
    assert_eq!(cached(&nodes[0], "/c"), "HIT");

    // The store is gone; one purges, a reload follows, and the other hears of it later.
    fill();
    redis.kill();
    nodes.iter().for_each(|node| node.wait_for_store(false));
    purge(&nodes[0], "/c");
    running[0].signal("HUP");
    nodes[0].site.wait_for_log("is no longer used", 1);
    assert_eq!(cached(&nodes[1], "/c"), "HIT");
    redis.child = Redis::spawn(&redis.site).expect("Redis");
    wait_for_miss(&nodes[1], "/c");
    running.into_iter().for_each(Running::quit);
    nodes.iter().for_each(|node| node.site.assert_no_alerts());
}

#[test]
fn purges_of_tags_reach_all_servers_also_those_that_were_away() {
    let Some(mut redis) = Redis::start() else { return };
    // The first part of a path is the tag of its page.
    let origin = Origin::answering(|request| {
        let tag = request.split([' ', '/']).nth(2).unwrap_or_default();
        format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSurrogate-Key: all {tag}\r\n\r\nok").into_bytes()
    });
    let nodes: Vec<Node> = (0..2)
        .map(|_| {
            let port = free_port();
            let main = format!("daemon off; shared_store {} timeout=300ms;", redis.address());
            let conf = format!(
                "http {{
                    access_log off;
                    proxy_cache_path cache keys_zone=pages:1m inactive=1h sync;
                    map $request_method $is_purge {{ PURGE 1; }}
                    server {{
                        listen 127.0.0.1:{port};
                        location /api {{ api write=on; }}
                        location / {{
                            proxy_pass http://127.0.0.1:{};
                            proxy_cache pages; proxy_cache_key $uri; proxy_cache_valid 1h;
                            proxy_cache_tags $upstream_http_surrogate_key;
                            proxy_cache_purge $is_purge; proxy_cache_purge_tags $http_surrogate_key;
                            add_header X-Cache $upstream_cache_status;
                        }}
                    }}
                }}",
                origin.port
            );
            Node { port, site: Site::new(&main, &conf) }
        })
        .collect();
    let ask_for = |node: &Node, line: &str| -> (u16, String) {
        let request = format!("{line}\r\nHost: a\r\nConnection: close\r\n\r\n");
        let (status, head, _) =
            Client::connect(node.port).and_then(|mut client| client.ask_for_all(&request)).expect("an answer");
        let cache = head.lines().find_map(|line| line.strip_prefix("X-Cache: ")).unwrap_or_default();
        (status, cache.trim().to_string())
    };
    let wait_for = |node: &Node, path: &str, wanted: &str| {
        wait(&format!("{wanted} for {path}"), || match ask_for(node, &format!("GET {path} HTTP/1.1")).1 {
            seen if seen == wanted => Ok(()),
            seen => Err(format!("{seen}; {}; {}", get(node.port, "/tidegate/1/stores"), node.site.log())),
        });
    };
    let fill = || {
        for (node, path) in nodes.iter().flat_map(|node| ["/a/1", "/a/2", "/b/1", "/c/1"].map(|path| (node, path))) {
            wait_for(node, path, "HIT");
        }
    };
    let mut running: Vec<Running> = nodes.iter().map(|node| node.site.start()).collect();
    nodes.iter().for_each(|node| node.wait_for_store(true));
    fill();
    assert_eq!(ask_for(&nodes[0], "PURGE / HTTP/1.1\r\nSurrogate-Key: a none").0, 204);
    wait_for(&nodes[1], "/a/1", "MISS");
    wait_for(&nodes[1], "/a/2", "MISS");
    for path in ["/b/1", "/c/1"] {
        assert_eq!(ask_for(&nodes[1], &format!("GET {path} HTTP/1.1")), (200, "HIT".into()));
    }

    // One server is away: its files are there when it comes back, and the purge arrives behind its start.
    fill();
    running.pop().expect("two servers").quit();
    let (status, body) = ask(nodes[0].port, "DELETE", "/tidegate/1/caches/pages?tag=b", None);
    assert_eq!(status, 204, "{body}");
    running.push(nodes[1].site.start());
    nodes[1].wait_for_store(true);
    wait_for(&nodes[1], "/b/1", "MISS");
    assert_eq!(ask_for(&nodes[1], "GET /c/1 HTTP/1.1"), (200, "HIT".into()));

    // The store is away: its comparison with both servers brings the purge.
    fill();
    redis.kill();
    nodes.iter().for_each(|node| node.wait_for_store(false));
    let (status, _) = ask(nodes[1].port, "DELETE", "/tidegate/1/caches/pages?tag=c", None);
    assert_eq!(status, 204);
    assert_eq!(ask_for(&nodes[0], "GET /c/1 HTTP/1.1"), (200, "HIT".into()));
    redis.child = Redis::spawn(&redis.site).expect("Redis");
    wait_for(&nodes[0], "/c/1", "MISS");
    assert_eq!(ask_for(&nodes[0], "GET /a/1 HTTP/1.1"), (200, "HIT".into()));
    running.into_iter().for_each(Running::quit);
    nodes.iter().for_each(|node| node.site.assert_no_alerts());
}

#[test]
fn zones_without_a_store_and_wrong_addresses_are_named() {
    let site = Site::new("daemon off;", &configuration(free_port(), ""));
    let output = site.run(&["-t"]);
    let words = support::text(&output.stderr);
    assert!(output.status.success(), "{words}");
    assert!(words.contains("limit_req_zone \"rate\": \"sync\" has no effect"), "{words}");
    assert!(words.contains("keyval_zone \"pairs\": \"sync\" has no effect without \"shared_store\""), "{words}");
    site.configure("daemon off; shared_store redis://me:secret@127.0.0.1;", &configuration(free_port(), ""));
    let output = site.run(&["-t", "--explain"]);
    let words = support::text(&output.stderr);
    assert!(!output.status.success() && words.contains("a password in the address"), "{words}");
    assert!(words.contains("password_file=FILE"), "{words}");
    // The store need not be there; the doctor says that it is not.
    site.configure("daemon off; shared_store redis://127.0.0.1:1;", &configuration(free_port(), ""));
    let output = site.run(&["-t"]);
    assert!(output.status.success(), "{}", support::text(&output.stderr));
    let output = std::process::Command::new(support::BINARY)
        .args(["doctor", "--json", "-p"])
        .arg(&site.dir)
        .args(["-c", "conf/nginx.conf"])
        .output()
        .expect("the doctor runs");
    let findings = support::text(&output.stdout);
    assert!(findings.contains("shared store") && findings.contains("not reachable"), "{findings}");
}
