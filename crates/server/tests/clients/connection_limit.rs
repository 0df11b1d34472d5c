//! `worker_connections` counts connections of both sides, as in nginx; without room or descriptors, no server is blamed.

use crate::support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;
use support::client::get;
use support::origin::Origin;
use support::{Site, free_port, text, wait};

const PATIENCE: Duration = Duration::from_secs(20);
const LIMIT: usize = 32;

/// Servers whose connections stay open until the test has answered them.
struct Origins([TcpListener; 2]);

impl Origins {
    fn new() -> Origins {
        Origins([(); 2].map(|()| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
            listener.set_nonblocking(true).expect("set");
            listener
        }))
    }
    fn addresses(&self) -> [String; 2] {
        [0, 1].map(|n| self.0[n].local_addr().expect("an address").to_string())
    }
    /// A group in which a failure would disable its server.
    fn group(&self) -> String {
        let [first, second] = self.addresses().map(|to| format!("server {to} max_fails=1 fail_timeout=1h;"));
        format!("upstream group {{ {first} {second} }}")
    }
    fn find(&self) -> Option<TcpStream> {
        let held = self.0.iter().find_map(|listener| listener.accept().ok())?.0;
        held.set_nonblocking(false).expect("set");
        held.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Some(held)
    }
    fn accept(&self, site: &Site) -> TcpStream {
        wait("a connection", || self.find().ok_or_else(|| site.log()))
    }
    /// Waits for a connection to a server; `None` if the client got bytes or its end instead.
    fn accept_for(&self, client: &TcpStream, site: &Site) -> Option<TcpStream> {
        client.set_nonblocking(true).expect("set");
        let found = wait("a connection or a response", || match self.find() {
            Some(held) => Ok(Some(held)),
            None if client.peek(&mut [0]).is_ok() => Ok(None),
            None => Err(site.log()),
        });
        client.set_nonblocking(false).expect("set");
        found
    }
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.extend(byte);
    }
    text(&head)
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// A client that has begun a request is not closed for others.
fn begin(port: u16, path: &str) -> TcpStream {
    let mut client = connect(port);
    let _ = write!(client, "GET {path} HTTP/1.1\r\n");
    client
}

fn complete(client: &mut TcpStream) {
    client.write_all(b"Host: a\r\n\r\n").expect("sent");
}

/// Reads a response with a `Content-Length`. Returns its status.
fn status(stream: &mut TcpStream) -> u16 {
    let head = read_head(stream);
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
    stream.read_exact(&mut vec![0; length.parse().expect("a number")]).expect("a body");
    head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status")
}

fn answer(held: &mut TcpStream) {
    read_head(held);
    held.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("sent");
}

fn site(connections: usize, main: &str, rest: &str) -> Site {
    let site = Site::new("", "");
    let first = format!("error_log logs/error.log info; daemon off; worker_processes 1; {main}");
    site.write("conf/nginx.conf", &format!("{first} events {{ worker_connections {connections}; }} {rest}"));
    site
}

fn wait_for_line(site: &Site, file: &str, line: &str) {
    wait("a line", || {
        let lines = site.read(file);
        if lines.lines().any(|one| one == line) { Ok(()) } else { Err(lines) }
    });
}

#[test]
fn connections_to_servers_count() {
    let (port, origins) = (free_port(), Origins::new());
    let site = site(
        LIMIT,
        "",
        &format!(
            "http {{ log_format tries \"$status [$upstream_addr] [$upstream_status]\"; {}
             server {{ listen 127.0.0.1:{port}; access_log logs/tries.log tries; location / {{ return 200 free; }}
             location /passed {{ proxy_pass http://group; }} }} }}",
            origins.group()
        ),
    );
    let running = site.start();
    let mut waiting: Vec<TcpStream> = (0..LIMIT / 2 + 4).map(|_| begin(port, "/passed")).collect();
    let mut served = Vec::new();
    let refused = loop {
        let mut client = waiting.pop().expect("the limit");
        complete(&mut client);
        match origins.accept_for(&client, &site) {
            Some(held) => served.push((client, held)),
            None => break client,
        }
    };
    assert_eq!(status(&mut { refused }), 500);
    assert!(served.len() > 4, "{}", site.log());
    wait_for_line(&site, "logs/tries.log", "500 [] [-]");
    let log = site.log();
    let words = format!("{LIMIT} worker_connections are not enough while connecting to upstream, client: 127.0.0.1");
    assert!(log.contains(&words) && !log.contains("temporarily disabled"), "{log}");
    // Requests without a server are served, and each connection that ends makes room for another.
    // (The refused client's connection has ended, too.)
    let mut free = begin(port, "/");
    complete(&mut free);
    assert_eq!(status(&mut free), 200);
    for (mut client, mut held) in served {
        answer(&mut held);
        assert_eq!(status(&mut client), 200);
        drop(held);
        write!(client, "GET /passed HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        answer(&mut origins.accept(&site));
        assert_eq!(status(&mut client), 200);
    }
    running.signal("TERM");
}

#[test]
fn idle_clients_give_way_to_connections_to_servers() {
    let (port, origins) = (free_port(), Origins::new());
    let site = site(
        LIMIT,
        "",
        &format!(
            "http {{ {} server {{ listen 127.0.0.1:{port}; location / {{ return 200 free; }}
             location /passed {{ proxy_pass http://group; }} }} }}",
            origins.group()
        ),
    );
    let running = site.start();
    let mut asking: Vec<TcpStream> = (0..4).map(|_| begin(port, "/passed")).collect();
    let _idle: Vec<TcpStream> = (0..LIMIT).map(|_| connect(port)).collect();
    // Connections are accepted in order: those before are idle now.
    assert_eq!(get(port), Ok((200, "free".into())));
    for client in &mut asking {
        complete(client);
        answer(&mut origins.accept(&site));
        assert_eq!(status(client), 200, "{}", site.log());
    }
    site.wait_for_log(&format!("{LIMIT} worker_connections are not enough, reusing connections"), 1);
    site.assert_no_alerts();
    running.signal("TERM");
}

/// nginx: `ngx_http_set_lingering_close`.
#[test]
fn lingering_clients_give_way_to_others() {
    let port = free_port();
    let site = site(
        LIMIT,
        "",
        &format!(
            "http {{ lingering_timeout 1h; lingering_time 1h; server {{ listen 127.0.0.1:{port};
             location / {{ return 200 free; }} location /refused {{ return 403; }} }} }}"
        ),
    );
    let running = site.start();
    let mut lingering: Vec<TcpStream> = (0..LIMIT + 8)
        .map(|_| {
            let mut client = connect(port);
            client.write_all(b"POST /refused HTTP/1.0\r\nContent-Length: 9\r\n\r\n").expect("sent");
            client
        })
        .collect();
    for _ in 0..4 {
        assert_eq!(get(port), Ok((200, "free".into())), "{}", site.log());
    }
    assert_eq!(status(&mut lingering[0]), 403);
    site.wait_for_log(&format!("{LIMIT} worker_connections are not enough, reusing connections"), 1);
    running.signal("TERM");
}

#[test]
fn kept_connections_to_servers_give_way_to_clients() {
    const KEPT: usize = LIMIT / 2 - 4;
    let (port, origins) = (free_port(), Origins::new());
    let site = site(
        LIMIT,
        "",
        &format!(
            "http {{ upstream kept {{ server {}; keepalive {LIMIT}; }} server {{ listen 127.0.0.1:{port};
             location / {{ return 200 free; }} location /passed {{ proxy_pass http://kept;
             proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }} }}",
            origins.addresses()[0]
        ),
    );
    let running = site.start();
    let mut clients: Vec<TcpStream> = (0..KEPT).map(|_| begin(port, "/passed")).collect();
    clients.iter_mut().for_each(complete);
    let mut kept: Vec<TcpStream> = (0..KEPT).map(|_| origins.accept(&site)).collect();
    kept.iter_mut().for_each(answer);
    assert!(clients.iter_mut().all(|client| status(client) == 200));
    drop(clients);
    let mut more: Vec<TcpStream> = (0..LIMIT - 8).map(|_| begin(port, "/")).collect();
    more.iter_mut().for_each(complete);
    assert!(more.iter_mut().all(|client| status(client) == 200), "{}", site.log());
    site.wait_for_log(&format!("{LIMIT} worker_connections are not enough, reusing connections"), 1);
    site.assert_no_alerts();
    running.signal("TERM");
}

#[test]
fn kept_connections_that_requests_share_give_way_to_clients() {
    const KEPT: usize = LIMIT / 2 - 4;
    let behind = free_port();
    let origin = Site::new("", "");
    origin.certify();
    origin.configure(
        "daemon off;",
        &format!(
            "http {{ ssl_certificate a.crt; ssl_certificate_key a.key; http2 on;
             server {{ listen 127.0.0.1:{behind}; listen 127.0.0.1:{behind} quic; return 200 ok; }} }}"
        ),
    );
    let origin = origin.start();
    for (version, scheme) in [(2, "http"), (3, "https")] {
        let port = free_port();
        // Requests of a group share a connection.
        let group = |n| format!("upstream kept{n} {{ server 127.0.0.1:{behind}; keepalive 4; }}");
        let location = |n| format!("location /{n}/ {{ proxy_pass {scheme}://kept{n}; }}");
        let site = site(
            LIMIT,
            "",
            &format!(
                "http {{ {} server {{ listen 127.0.0.1:{port}; proxy_http_version {version}; {}
                 location / {{ return 200 free; }} }} }}",
                (0..KEPT).map(group).collect::<String>(),
                (0..KEPT).map(location).collect::<String>()
            ),
        );
        let running = site.start();
        for n in 0..KEPT {
            let mut client = begin(port, &format!("/{n}/"));
            complete(&mut client);
            assert_eq!(status(&mut client), 200, "{}", site.log());
        }
        let mut more: Vec<TcpStream> = (0..LIMIT - 8).map(|_| begin(port, "/")).collect();
        // In reverse: requests that end must not make room for the last one.
        for client in more.iter_mut().rev() {
            complete(client);
            assert_eq!(status(client), 200, "{}", site.log());
        }
        site.wait_for_log(&format!("{LIMIT} worker_connections are not enough, reusing connections"), 1);
        site.assert_no_alerts();
        running.signal("TERM");
    }
    origin.signal("TERM");
}

#[test]
fn sessions_of_stream_count_their_servers() {
    let (port, origins) = (free_port(), Origins::new());
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    datagrams.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let site = site(
        LIMIT,
        "",
        &format!(
            "stream {{ log_format sessions \"$protocol $status [$upstream_addr]\"; access_log logs/sessions.log sessions;
             {} server {{ listen 127.0.0.1:{port}; ssl_preread on; preread_timeout 1h; proxy_pass group; }}
             server {{ listen 127.0.0.1:{port} udp; proxy_pass {}; proxy_timeout 1h; }} }}",
            origins.group(),
            datagrams.local_addr().expect("an address")
        ),
    );
    let running = site.start();
    let mut waiting: Vec<TcpStream> = (0..LIMIT / 2 + 4).map(|_| connect(port)).collect();
    let mut served = Vec::new();
    loop {
        let mut client = waiting.pop().expect("the limit");
        // No ClientHello: the session connects.
        client.write_all(b"12345").expect("sent");
        match origins.accept_for(&client, &site) {
            Some(held) => served.push((client, held)),
            None => break,
        }
    }
    assert!(served.len() > 4, "{}", site.log());
    let words = format!("{LIMIT} worker_connections are not enough while connecting to upstream, client: 127.0.0.1");
    site.wait_for_log(&words, 1);
    wait_for_line(&site, "logs/sessions.log", "TCP 500 []");
    assert!(!site.log().contains("temporarily disabled"), "{}", site.log());
    let ended = served.len();
    drop((waiting, served));
    wait("the end of the sessions", || {
        let lines = site.read("logs/sessions.log");
        if lines.matches("TCP 200").count() >= ended { Ok(()) } else { Err(lines) }
    });
    // Each session of UDP needs a socket towards its server, and counts itself.
    let send = || {
        let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        client.send_to(b"x", ("127.0.0.1", port)).expect("sent");
        client
    };
    let clients: Vec<UdpSocket> = (0..LIMIT / 2 + 1).map(|_| send()).collect();
    site.wait_for_log(&format!("{LIMIT} worker_connections are not enough"), 2);
    datagrams.recv_from(&mut [0; 8]).expect("a datagram");
    drop(clients);
    running.signal("TERM");
}

#[test]
fn servers_are_not_blamed_for_a_lack_of_descriptors() {
    let (port, origins) = (free_port(), Origins::new());
    let site = site(
        512,
        "worker_rlimit_nofile 120;",
        &format!(
            "http {{ {} server {{ listen 127.0.0.1:{port}; location / {{ return 200 free; }}
             location /passed {{ proxy_pass http://group; }} }} }}",
            origins.group()
        ),
    );
    let running = site.start();
    let mut asking: Vec<TcpStream> = (0..8).map(|_| begin(port, "/passed")).collect();
    let mut others = Vec::new();
    wait("the end of descriptors", || {
        others.push(begin(port, "/"));
        if site.log().contains("accept4() failed (24: Too many open files)") { Ok(()) } else { Err(site.log()) }
    });
    // Few descriptors have become free: clients without a byte are closed for others.
    let mut served = Vec::new();
    loop {
        let mut client = asking.pop().expect("the end of descriptors");
        complete(&mut client);
        match origins.accept_for(&client, &site) {
            Some(held) => served.push((client, held)),
            None => {
                assert_eq!(status(&mut client), 500);
                break;
            }
        }
    }
    let log = site.log();
    let words = "socket() failed (24: Too many open files) while connecting to upstream, client: 127.0.0.1";
    assert_eq!((log.matches("[alert]").count(), log.matches(words).count()), (1, 1), "{log}");
    assert!(!log.contains("temporarily disabled"), "{log}");
    drop(others);
    // A listener without descriptors pauses.
    let mut client = begin(port, "/passed");
    complete(&mut client);
    answer(&mut origins.accept(&site));
    assert_eq!(status(&mut client), 200);
    // Their servers have not responded, and would be replaced.
    drop(served);
    running.signal("TERM");
}

#[test]
fn health_checks_do_not_blame_servers_for_a_lack_of_descriptors() {
    let port = free_port();
    let origin = Origin::new(|mut talk| {
        if talk.request().is_some() {
            talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        }
    });
    let server = format!("127.0.0.1:{}", origin.port);
    let site = site(
        512,
        "worker_rlimit_nofile 120;",
        &format!(
            "http {{ upstream checked {{ zone checked 64k; server {server}; }} server {{ listen 127.0.0.1:{port};
             location / {{ return 200 free; }}
             location /passed {{ proxy_pass http://checked; health_check interval=20ms fails=1 mandatory; }} }} }}"
        ),
    );
    let running = site.start();
    site.wait_for_log(&format!("health check: {server} of upstream \"checked\" is healthy"), 1);
    let words = format!("socket() failed (24: Too many open files) while checking {server} of upstream \"checked\"");
    let mut others = Vec::new();
    wait("the end of descriptors", || {
        others.push(begin(port, "/"));
        if site.log().contains(&words) { Ok(()) } else { Err(site.log()) }
    });
    site.wait_for_log(&words, 3);
    assert!(!site.log().contains("unhealthy"), "{}", site.log());
    drop(others);
    let mut client = begin(port, "/passed");
    complete(&mut client);
    assert_eq!(status(&mut client), 200);
    running.signal("TERM");
}
