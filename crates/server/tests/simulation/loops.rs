//! Loops over sockets, in every state of a connection: each call on a socket meets the same without end (EAGAIN although it was said
//! to be ready, an error, a peer that never stops), and every loop has to let the others go first. A loop that does not is a panic
//! of `net::faults`, which counts calls between two turns of a task.
#![cfg(debug_assertions)]

use crate::support;

use net::faults::{self, SocketFault};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use support::http2::{self, frame};
use support::simulated::{FOLDER, configured};
use worker::sim::Sim;
use worker::thread::{BoundSocket, WorkerCommand};

/// Turns that a fault lasts: each loop has its budget in each.
const TURNS: usize = 8;

const FAULTS: [SocketFault; 6] = [
    SocketFault::Again,
    SocketFault::Error(libc::ECONNREFUSED),
    SocketFault::Error(libc::ECONNRESET),
    SocketFault::Endless(b'x'),
    SocketFault::Endless(0),
    SocketFault::Endless(b'\n'),
];

/// Connections that stay open while the faults last.
#[derive(Default)]
struct Held {
    tcp: Vec<TcpStream>,
    udp: Vec<UdpSocket>,
    http2: Vec<http2::Client>,
}

/// A thread with real sockets in simulated time.
struct Bench {
    sim: Sim,
    /// Where clients of these listeners connect to, in the order of the configuration.
    ports: Vec<u16>,
    origin: TcpListener,
    held: Held,
}

impl Bench {
    /// `{P0}`, `{P1}` ... are listening ports, `{O}` is that of a silent origin that accepts connections; `{D}` is an
    /// unused datagram port.
    fn new(conf: &str) -> Bench {
        let origin = TcpListener::bind("127.0.0.1:0").expect("bound");
        origin.set_nonblocking(true).expect("nonblocking");
        let port = |origin: &TcpListener| origin.local_addr().expect("address").port().to_string();
        let mut text = conf.replace("{O}", &port(&origin)).replace("{ROOT}", &FOLDER.display().to_string());
        text = text.replace("{D}", &testkit::free_port().to_string());
        let mut ports = Vec::new();
        for n in 0.. {
            let name = format!("{{P{n}}}");
            if !text.contains(&name) {
                break;
            }
            let free = support::free_port();
            text = text.replace(&name, &free.to_string());
            ports.push(free);
        }
        let (serving, specs) = configured(&text);
        let listeners = specs.into_iter().map(|spec| {
            let net::Address::Ip(ip) = &spec.address else { panic!("no path") };
            let fd: OwnedFd = if spec.datagram {
                let socket = UdpSocket::bind(ip).expect("bound");
                socket.set_nonblocking(true).expect("nonblocking");
                socket.into()
            } else {
                let socket = TcpListener::bind(ip).expect("bound");
                socket.set_nonblocking(true).expect("nonblocking");
                socket.into()
            };
            BoundSocket { spec, fd, shared: false }
        });
        let listeners = listeners.collect();
        let mut sim = Sim::new(serving.clone()).expect("a thread");
        sim.tell(WorkerCommand::Serve { serving, listeners, keep: Vec::new() });
        sim.settle().expect("rest");
        Bench { sim, ports, origin, held: Held::default() }
    }
    fn rest(&mut self) {
        // The loopback delivers at once to waiting sockets; connections made meanwhile need a few more turns.
        for _ in 0..4 {
            self.sim.settle().expect("rest");
        }
    }
    fn client(&mut self, listener: usize, bytes: &[u8]) -> &mut TcpStream {
        let mut client = TcpStream::connect(("127.0.0.1", self.ports[listener])).expect("connected");
        client.write_all(bytes).expect("sent");
        self.held.tcp.push(client);
        self.rest();
        self.held.tcp.last_mut().expect("held")
    }
    /// The origin takes a connection and says this.
    fn answer(&mut self, bytes: &[u8]) {
        let (mut server, _) = self.origin.accept().expect("the thread has connected");
        server.write_all(bytes).expect("sent");
        self.held.tcp.push(server);
        self.rest();
    }
    fn datagram(&mut self, listener: usize, bytes: &[u8]) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        socket.send_to(bytes, ("127.0.0.1", self.ports[listener])).expect("sent");
        self.held.udp.push(socket);
        self.rest();
    }
    fn http2(&mut self, listener: usize, requests: &[(&str, &str, bool)]) {
        let mut client = http2::Client::connect(self.ports[listener]);
        for (n, (method, path, ends)) in requests.iter().enumerate() {
            let mut block = Vec::new();
            client.encoder.begin(&mut block);
            for (name, value) in [(":method", *method), (":scheme", "http"), (":path", *path), (":authority", "a")] {
                client.encoder.field(name.as_bytes(), value.as_bytes(), &mut block);
            }
            let stream = 2 * n as u32 + 1;
            client.send(&frame(http2::HEADERS, if *ends { 5 } else { 4 }, stream, &block));
            if !ends {
                client.send(&frame(http2::DATA, 0, stream, b"some"));
            }
        }
        self.held.http2.push(client);
        self.rest();
    }
}

/// Runs a state against every fault: the loops of each turn end, and afterwards the thread serves.
fn yields(conf: &str, begin: impl Fn(&mut Bench)) {
    for fault in FAULTS {
        let mut bench = Bench::new(conf);
        begin(&mut bench);
        let before = faults::runaways();
        let injected = faults::inject_fault(fault);
        for _ in 0..TURNS {
            bench.sim.turn().expect("a turn");
        }
        // Timeouts close the remaining connections, and their loops yield as well.
        bench.sim.stall(3_600_000);
        for _ in 0..TURNS {
            bench.sim.turn().expect("a turn");
        }
        drop(injected);
        assert_eq!(faults::runaways(), before, "{fault:?}: a loop does not yield");
        let mut later = TcpStream::connect(("127.0.0.1", bench.ports[0])).expect("connected");
        later.write_all(b"GET /answer HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
        bench.rest();
        let mut text = String::new();
        later.read_to_string(&mut text).expect("an answer");
        assert!(text.starts_with("HTTP/1.1 200"), "{fault:?}: {text}");
    }
}

/// A configuration with a server at `{P0}` that proves that the thread still serves.
fn http(directives: &str) -> String {
    format!(
        "error_log /dev/null crit; events {{ worker_connections 64; }} http {{ root {{ROOT}}; access_log off;
         server {{ listen 127.0.0.1:{{P0}}; http2 on; location /answer {{ return 200 here; }} {directives} }} }}"
    )
}

#[test]
fn a_client_that_has_sent_nothing_or_half_a_head_or_is_kept() {
    yields(&http(""), |bench| {
        bench.client(0, b"");
        bench.client(0, b"GET / HT");
        bench.client(0, b"GET /answer HTTP/1.1\r\nHost: a\r\n\r\n");
    });
}

#[test]
fn a_download() {
    yields(&http("location /lazy { limit_rate 100000k; sendfile on; } sendfile off;"), |bench| {
        bench.client(0, b"GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    });
    yields(&http("sendfile on;"), |bench| {
        bench.client(0, b"GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    });
}

#[test]
fn an_upload() {
    let conf = http(
        "client_max_body_size 0; location /on { proxy_pass http://127.0.0.1:{O}; proxy_request_buffering off; }
         location /whole { proxy_pass http://127.0.0.1:{O}; }",
    );
    yields(&conf, |bench| {
        bench.client(0, b"POST /on HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nx");
        bench.client(0, b"POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nx");
        bench.client(0, b"POST /on HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx");
        // Lingers.
        bench.client(0, b"POST /answer HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 100000000\r\n\r\nx");
    });
}

#[test]
fn a_server_that_answers_and_one_that_does_not() {
    for directives in ["proxy_buffering on;", "proxy_buffering off;"] {
        let conf = http(&format!("{directives} location / {{ proxy_pass http://127.0.0.1:{{O}}; }}"));
        yields(&conf, |bench| {
            bench.client(0, b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
            bench.client(0, b"GET /half HTTP/1.1\r\nHost: a\r\n\r\n");
            bench.answer(b"");
            bench.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\nx");
        });
    }
}

#[test]
fn an_upgraded_connection() {
    let conf = http(
        "location / { proxy_pass http://127.0.0.1:{O}; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }",
    );
    yields(&conf, |bench| {
        bench.client(0, b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: b\r\nConnection: upgrade\r\n\r\n");
        bench.answer(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: b\r\nConnection: upgrade\r\n\r\nx");
    });
}

#[test]
fn servers_of_other_protocols() {
    for pass in ["fastcgi_pass", "scgi_pass", "uwsgi_pass", "grpc_pass", "memcached_pass"] {
        let conf = http(&format!("set $memcached_key a; location / {{ {pass} 127.0.0.1:{{O}}; }}"));
        yields(&conf, |bench| {
            bench.client(0, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            bench.answer(b"");
        });
    }
}

#[test]
fn streams_of_http2() {
    let conf = http("location /pass { proxy_pass http://127.0.0.1:{O}; proxy_request_buffering off; }");
    yields(&conf, |bench| {
        bench.http2(0, &[("GET", "/huge", true), ("POST", "/pass", false), ("POST", "/answer", false)]);
        bench.http2(0, &[]);
    });
}

#[test]
fn a_session_of_the_stream_area() {
    let conf = http("")
        + "stream { server { listen 127.0.0.1:{P1}; proxy_pass 127.0.0.1:{O}; }
         server { listen 127.0.0.1:{P2}; ssl_preread on; proxy_pass 127.0.0.1:{O}; }
         server { listen 127.0.0.1:{P3} proxy_protocol; proxy_pass 127.0.0.1:{O}; } }";
    yields(&conf, |bench| {
        bench.client(1, b"up");
        bench.answer(b"down");
        bench.client(1, b"up");
        bench.client(2, b"\x16\x03\x01");
        bench.client(3, b"PROXY ");
    });
}

#[test]
fn a_session_of_datagrams() {
    let conf = http("")
        + "stream { proxy_timeout 1h; server { listen 127.0.0.1:{P1} udp; proxy_pass 127.0.0.1:{D}; }
         server { listen 127.0.0.1:{P2} udp; proxy_pass 127.0.0.1:{D}; proxy_upload_rate 1; proxy_download_rate 1; }
         server { listen 127.0.0.1:{P3} udp; proxy_pass 127.0.0.1:{D}; proxy_responses 3; } }";
    yields(&conf, |bench| {
        for listener in 1..=3 {
            bench.datagram(listener, b"anybody?");
            bench.datagram(listener, b"");
        }
    });
}

#[test]
fn a_session_of_the_mail_area() {
    let conf = http("")
        + "mail { auth_http 127.0.0.1:{O}/auth;
         server { listen 127.0.0.1:{P1}; protocol imap; } server { listen 127.0.0.1:{P2}; protocol pop3; }
         server { listen 127.0.0.1:{P3}; protocol smtp; smtp_auth none; server_name a; } }";
    yields(&conf, |bench| {
        bench.client(1, b"a LOGIN b c\r\n");
        bench.client(1, b"a LOG");
        bench.client(2, b"USER b\r\nPASS c\r\n");
        bench.client(3, b"EHLO a\r\n");
    });
}

#[test]
fn a_name_server_that_says_nothing() {
    let conf = http("resolver 127.0.0.1:{D}; location / { set $to nowhere.test; proxy_pass http://$to; }");
    yields(&conf, |bench| {
        bench.client(0, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    });
}
