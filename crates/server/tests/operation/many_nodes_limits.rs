//! Several servers with one store: connections, failed logins, learned sessions, and sessions of TLS.

use crate::many_nodes::Redis;
use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use support::api::get;
use support::client::Client;
use support::origin::{Origin, ok};
use support::{Running, Site, free_port, pace, wait, wait_within};

/// Longest time in which a server that died is counted, and more.
const DEATH: Duration = Duration::from_secs(60);

struct Node {
    port: u16,
    site: Site,
}

impl Node {
    /// `http` stands before the server, `server` in it.
    fn new(store: &str, http: &str, server: &str) -> Node {
        let node = Node { port: free_port(), site: Site::new("", "") };
        node.configure(store, http, server);
        node
    }

    fn configure(&self, store: &str, http: &str, server: &str) {
        let timeout = if store.contains("timeout=") { "" } else { "timeout=300ms" };
        let (main, port) = (format!("daemon off; shared_store {store} {timeout};"), self.port);
        let conf = format!(
            "http {{ access_log off; {http} server {{
                listen 127.0.0.1:{port}; server_name a;
                location /api {{ api write=on; }} location /dash {{ dashboard; }}
                {server}
            }} }}"
        );
        self.site.configure(&main, &conf);
    }

    fn ask(&self, path: &str, fields: &str) -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
        Client::connect(self.port).and_then(|mut client| client.ask(&request)).expect("an answer")
    }

    /// Sends a request without waiting for its response.
    fn begin(&self, path: &str) -> std::net::TcpStream {
        use std::io::Write;
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).expect("connected");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        stream
    }

    fn wait_for_store(&self, is_connected: bool, nodes: usize) {
        wait("the store", || {
            let all = get(self.port, "/tidegate/1/stores");
            let connected = all.pointer("/0/connected").and_then(serde_json::Value::as_bool);
            let seen = all.pointer("/0/nodes").and_then(serde_json::Value::as_u64);
            let is_there = connected == Some(is_connected) && (!is_connected || seen == Some(nodes as u64));
            is_there.then_some(()).ok_or_else(|| all.to_string())
        });
    }
}

fn start(nodes: &[Node]) -> Vec<Running<'_>> {
    let running = nodes.iter().map(|node| node.site.start()).collect();
    nodes.iter().for_each(|node| node.wait_for_store(true, nodes.len()));
    running
}

#[test]
fn connections_of_all_servers_count_together() {
    let Some(mut redis) = Redis::start() else { return };
    let is_open = Arc::new(AtomicBool::new(false));
    let gate = is_open.clone();
    let arrived = Arc::new(AtomicUsize::new(0));
    let arrivals = arrived.clone();
    let origin = Origin::new(move |mut talk| {
        while talk.request().is_some() {
            arrivals.fetch_add(1, Ordering::Relaxed);
            while !gate.load(Ordering::Relaxed) && !talk.is_over() {
                pace(Duration::from_millis(5));
            }
            if !talk.send(&ok("done")) {
                return;
            }
        }
    });
    let http = "limit_conn_zone $arg_key zone=open:64k sync; limit_conn_status 429;";
    let server = format!(
        "location /held {{ limit_conn open 4; proxy_pass http://127.0.0.1:{0}; }}
         location /free {{ limit_conn open 4; root .; try_files /none =204; }}",
        origin.port
    );
    let nodes: Vec<Node> = (0..2).map(|_| Node::new(&redis.address(), http, &server)).collect();
    let mut running = start(&nodes);
    let status = |node: &Node, key: &str| node.ask(&format!("/free?key={key}"), "").0;
    let wait_for = |node: &Node, key: &str, wanted: u16| {
        wait(&format!("{wanted} for {key}"), || match status(node, key) {
            seen if seen == wanted => Ok(()),
            seen => Err(format!("{seen}; {}", get(node.port, "/tidegate/1/stores"))),
        });
    };
    let held: Vec<_> = (0..4).map(|index| nodes[index % 2].begin("/held?key=a")).collect();
    // A request that asks would count as well, and take the place of the last of them.
    wait("all requests at the origin", || match arrived.load(Ordering::Relaxed) {
        4 => Ok(()),
        seen => Err(seen.to_string()),
    });
    nodes.iter().for_each(|node| wait_for(node, "a", 429));
    assert_eq!((status(&nodes[0], "b"), status(&nodes[1], "b")), (204, 204), "another key");
    // A reload changes nothing, also if it begins another connection to the store.
    let other_store = format!("{} timeout=290ms", redis.address());
    nodes[0].configure(&other_store, http, &format!("{server} location /new {{ return 204; }}"));
    running[0].signal("HUP");
    wait("the new configuration", || match nodes[0].ask("/new", "").0 {
        204 => Ok(()),
        seen => Err(seen.to_string()),
    });
    nodes.iter().for_each(|node| wait_for(node, "a", 429));
    is_open.store(true, Ordering::Relaxed);
    nodes.iter().for_each(|node| wait_for(node, "a", 204));
    drop(held);

    // Those of a server that dies are not counted any more.
    is_open.store(false, Ordering::Relaxed);
    let held: Vec<_> = (0..4).map(|_| nodes[1].begin("/held?key=c")).collect();
    wait_for(&nodes[0], "c", 429);
    drop(running.pop());
    wait_within(DEATH, "the server to be forgotten", || match status(&nodes[0], "c") {
        204 => Ok(()),
        seen => Err(seen.to_string()),
    });
    drop(held);

    // Without the store each server has its part.
    std::fs::remove_file(nodes[1].site.path("logs/nginx.pid")).expect("a process that was killed leaves its file");
    running.push(nodes[1].site.start());
    nodes.iter().for_each(|node| node.wait_for_store(true, 2));
    redis.kill();
    nodes.iter().for_each(|node| node.wait_for_store(false, 2));
    let held: Vec<_> = (0..2).map(|_| nodes[0].begin("/held?key=d")).collect();
    wait_for(&nodes[0], "d", 429);
    assert_eq!(status(&nodes[1], "d"), 204);
    is_open.store(true, Ordering::Relaxed);
    drop(held);
    running.into_iter().for_each(Running::quit);
}

#[test]
fn failed_logins_on_all_servers_count_together() {
    let Some(mut redis) = Redis::start() else { return };
    let http = "auth_failure_limit_zone $http_x_client zone=logins:64k rate=1r/m sync;";
    let server = "location / {
            auth_failure_limit zone=logins burst=2;
            auth_basic staff; auth_basic_user_file users;
            root .; try_files /none =204;
        }";
    let nodes: Vec<Node> = (0..3).map(|_| Node::new(&redis.address(), http, server)).collect();
    nodes.iter().for_each(|node| node.site.write("conf/users", "me:{PLAIN}secret\n"));
    let running = start(&nodes);
    // "me:wrong" and "me:secret".
    let attempt = |node: &Node, client: &str, login: &str| {
        node.ask("/", &format!("X-Client: {client}\r\nAuthorization: Basic {login}\r\n")).0
    };
    let (wrong, right) = ("bWU6d3Jvbmc=", "bWU6c2VjcmV0");
    assert_eq!(attempt(&nodes[0], "a", right), 204);
    let mut failures = 0;
    wait("all servers to refuse", || {
        let seen: Vec<u16> = nodes.iter().map(|node| attempt(node, "a", wrong)).collect();
        failures += seen.iter().filter(|status| **status == 401).count();
        seen.iter().all(|status| *status == 429).then_some(()).ok_or(format!("{seen:?}"))
    });
    assert!((3..=6).contains(&failures), "{failures}: the burst and one, and one a server");
    assert_eq!(attempt(&nodes[1], "a", right), 429, "also with the right password");
    assert_eq!(attempt(&nodes[1], "b", right), 204, "another client");

    // Each server has a third without the store: one failure.
    redis.kill();
    nodes.iter().for_each(|node| node.wait_for_store(false, 3));
    for node in &nodes {
        assert_eq!(attempt(node, "c", wrong), 401);
        wait("the server to refuse", || match attempt(node, "c", wrong) {
            429 => Ok(()),
            seen => Err(seen),
        });
    }
    running.into_iter().for_each(Running::quit);
}

#[test]
fn learned_sessions_are_known_to_all_servers() {
    let Some(mut redis) = Redis::start() else { return };
    let origins: Vec<Origin> = ["one", "two"]
        .map(|name| {
            Origin::answering(move |request| {
                let session = request.split("session=").nth(1).and_then(|rest| rest.split([';', '\r', ' ']).next());
                let session = session.unwrap_or_default();
                format!(
                    "HTTP/1.1 200 OK\r\nSet-Cookie: session={session}\r\nContent-Length: {}\r\n\r\n{name}",
                    name.len()
                )
                .into_bytes()
            })
        })
        .into();
    let http = format!(
        "upstream apps {{
            server 127.0.0.1:{}; server 127.0.0.1:{};
            sticky learn create=$upstream_cookie_session lookup=$cookie_session zone=sessions:64k timeout=1h sync;
         }}",
        origins[0].port, origins[1].port
    );
    let server = "location /app { proxy_pass http://apps; }";
    let nodes: Vec<Node> = (0..2).map(|_| Node::new(&redis.address(), &http, server)).collect();
    let running = start(&nodes);
    let app = |node: &Node, session: &str| {
        let (status, body) = node.ask("/app", &format!("Cookie: session={session}\r\n"));
        assert_eq!(status, 200);
        body
    };
    let sessions: Vec<String> = (0..12).map(|number| format!("s{number}")).collect();
    let servers: Vec<String> = sessions.iter().map(|session| app(&nodes[0], session)).collect();
    assert!(servers.contains(&"one".to_string()) && servers.contains(&"two".to_string()), "{servers:?}");
    let wait_for_records = |node: &Node, number: u64| {
        wait("the sessions", || {
            let all = get(node.port, "/tidegate/1/stores");
            let applied = all.pointer("/0/records/applied").and_then(serde_json::Value::as_u64);
            applied.is_some_and(|applied| applied >= number).then_some(()).ok_or_else(|| all.to_string())
        });
    };
    wait_for_records(&nodes[1], 12);
    for (session, server) in sessions.iter().zip(&servers) {
        assert_eq!(app(&nodes[1], session), *server, "{session}");
    }
    // Sessions go on without the store; a server that starts has them.
    redis.kill();
    nodes.iter().for_each(|node| node.wait_for_store(false, 2));
    let page = nodes[0].ask("/dash/data", "").1;
    assert!(page.contains("Shared store") && page.contains("is not there"), "{page}");
    for (session, server) in sessions.iter().zip(&servers) {
        assert_eq!(app(&nodes[1], session), *server, "{session}");
    }
    redis.child = Redis::spawn(&redis.site).expect("Redis");
    nodes.iter().for_each(|node| node.wait_for_store(true, 2));
    let late = Node::new(&redis.address(), &http, server);
    let late_running = late.site.start();
    wait_for_records(&late, 12);
    for (session, server) in sessions.iter().zip(&servers) {
        assert_eq!(app(&late, session), *server, "{session}");
    }
    late_running.quit();
    running.into_iter().for_each(Running::quit);
}

#[test]
fn sessions_of_tls_are_resumed_by_all_servers() {
    let Some(mut redis) = Redis::start() else { return };
    let secret = Site::new("", "");
    secret.write("store.key", "a secret of more than thirty-two characters");
    secret.certify();
    let node = |key: &str| {
        let (port, plain) = (free_port(), free_port());
        let main = format!("daemon off; shared_store {} timeout=300ms {key};", redis.address());
        let conf = format!(
            "http {{ access_log off; server {{
                listen 127.0.0.1:{port} ssl; listen 127.0.0.1:{plain};
                ssl_certificate {0}/conf/a.crt; ssl_certificate_key {0}/conf/a.key; ssl_protocols TLSv1.2;
                ssl_session_ticket_key sync;
                location /api {{ api; }}
            }} }}",
            secret.dir.display()
        );
        (port, Node { port: plain, site: Site::new(&main, &conf) })
    };
    let key_file = format!("key_file={}", secret.path("store.key").display());
    let (_, keyless) = node("");
    let output = keyless.site.run(&["-t"]);
    let words = support::text(&output.stderr);
    assert!(!output.status.success(), "{words}");
    assert!(
        words.contains("\"ssl_session_ticket_key sync\" needs a \"shared_store\" with \"key_file\" in "),
        "{words}"
    );

    let session = secret.path("session.pem").display().to_string();
    let handshake = |port: u16, option: &str| -> String {
        let output = std::process::Command::new("openssl")
            .args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-servername", "localhost", option, &session])
            .stdin(std::process::Stdio::null())
            .output();
        support::text(&output.expect("openssl").stdout)
    };
    let nodes: Vec<(u16, Node)> = (0..2).map(|_| node(&key_file)).collect();
    let running: Vec<Running> = nodes.iter().map(|(_, node)| node.site.start()).collect();
    nodes.iter().for_each(|(_, node)| node.wait_for_store(true, 2));
    // Each server has its own key until the store has told it the common one.
    wait("a session to be resumed on the other server", || {
        handshake(nodes[0].0, "-sess_out");
        let said = handshake(nodes[1].0, "-sess_in");
        if said.contains("Reused, TLSv1.2") { Ok(()) } else { Err(said) }
    });
    // Without the store sessions are resumed as before, after a reload, too.
    redis.kill();
    nodes.iter().for_each(|(_, node)| node.wait_for_store(false, 2));
    running[1].signal("HUP");
    nodes[1].1.site.wait_for_log("is no longer used", 1);
    assert!(handshake(nodes[1].0, "-sess_in").contains("Reused, TLSv1.2"));
    running.into_iter().for_each(Running::quit);
}
