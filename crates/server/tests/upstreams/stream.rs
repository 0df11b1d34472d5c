//! The stream area over real sockets: TCP and UDP sessions, what ends them, and what a reload means for them.

use crate::support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Site, free_port, private_kb, wait};

/// Longer than any step takes; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(15);

fn connect(port: u16) -> TcpStream {
    let stream = wait("a connection", || TcpStream::connect(("127.0.0.1", port)));
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream
}

fn read_all(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

fn read_some(stream: &mut TcpStream, length: usize) -> String {
    let mut some = vec![0; length];
    stream.read_exact(&mut some).expect("bytes");
    String::from_utf8_lossy(&some).into_owned()
}

/// A server that handles connections one after the other on its own thread.
fn server(act: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("address").port();
    let act = Arc::new(act);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let act = act.clone();
            std::thread::spawn(move || {
                let _ = stream.set_read_timeout(Some(PATIENCE));
                act(stream);
            });
        }
    });
    port
}

/// Echoes piece by piece.
fn echo(mut stream: TcpStream) {
    let mut buf = [0; 65536];
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        if stream.write_all(&buf[..n]).is_err() {
            return;
        }
    }
}

/// Sends its name, then echoes.
fn named(name: &'static str) -> impl Fn(TcpStream) {
    move |mut stream| {
        let _ = stream.write_all(name.as_bytes());
        echo(stream);
    }
}

#[test]
fn the_end_of_one_direction_leaves_the_other_open_where_that_is_asked_for() {
    // Responds after it has read everything.
    let upstream = server(|mut stream| {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        let _ = stream.write_all(format!("heard {}", all.len()).as_bytes());
    });
    let (on, off) = (free_port(), free_port());
    let site = Site::new(
        "daemon off;",
        &format!(
            "stream {{ proxy_buffer_size 4k;
             server {{ listen 127.0.0.1:{on}; proxy_pass 127.0.0.1:{upstream}; proxy_half_close on; }}
             server {{ listen 127.0.0.1:{off}; proxy_pass 127.0.0.1:{upstream}; }} }}"
        ),
    );
    let running = site.start();
    for (port, want) in [(on, "heard 100000"), (off, "")] {
        let mut client = connect(port);
        client.write_all(&vec![b'x'; 100_000]).expect("written");
        client.shutdown(Shutdown::Write).expect("half closed");
        assert_eq!(read_all(&mut client), want);
    }
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn large_bodies_pass_both_ways_whatever_their_pieces() {
    let (upstream, port) = (server(echo), free_port());
    let site = Site::new(
        "daemon off;",
        &format!(
            "stream {{ server {{ listen 127.0.0.1:{port}; proxy_pass 127.0.0.1:{upstream}; proxy_buffer_size 1k; }} }}"
        ),
    );
    let running = site.start();
    let mut client = connect(port);
    let sent: Vec<u8> = (0..4_000_000u32).map(|n| (n % 251) as u8).collect();
    let mut writer = client.try_clone().expect("a copy");
    let written = sent.clone();
    let thread = std::thread::spawn(move || writer.write_all(&written).expect("written"));
    let mut got = vec![0; sent.len()];
    client.read_exact(&mut got).expect("all of it");
    thread.join().expect("the writer");
    assert!(got == sent, "every byte, in its order");
    drop(client);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn another_server_is_asked_and_the_log_tells_of_both() {
    let (good, port, single) = (server(named("good")), free_port(), free_port());
    let dead = free_port();
    let site = Site::new(
        "daemon off;",
        &format!(
            "stream {{ log_format tries '$status $upstream_addr $upstream_bytes_received $protocol $bytes_sent';
             access_log logs/s.log tries;
             upstream u {{ server 127.0.0.1:{dead} weight=100; server 127.0.0.1:{good} backup; }}
             server {{ listen 127.0.0.1:{port}; proxy_pass u; }}
             server {{ listen 127.0.0.1:{single}; proxy_pass u; proxy_next_upstream off; }} }}"
        ),
    );
    let running = site.start();
    let mut client = connect(port);
    assert_eq!(read_some(&mut client, 4), "good");
    drop(client);
    let line = format!("200 127.0.0.1:{dead}, 127.0.0.1:{good} 0, 4 TCP 4\n");
    wait("a line", || (site.read("logs/s.log") == line).then_some(()).ok_or_else(|| site.read("logs/s.log")));
    site.wait_for_log("upstream server temporarily disabled while connecting to upstream", 1);
    // The failed server is excluded now, so that a group without a retry uses the other one.
    assert_eq!(read_some(&mut connect(single), 4), "good");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn limits_count_sessions_while_they_last() {
    let (upstream, port) = (server(named("in")), free_port());
    let site = Site::new(
        "daemon off;",
        &format!(
            "stream {{ limit_conn_zone $remote_addr zone=a:64k; log_format l '$status $limit_conn_status';
             server {{ listen 127.0.0.1:{port}; limit_conn a 2; proxy_pass 127.0.0.1:{upstream}; access_log logs/s.log l; }} }}"
        ),
    );
    let running = site.start();
    let mut held: Vec<TcpStream> = (0..2).map(|_| connect(port)).collect();
    for client in &mut held {
        assert_eq!(read_some(client, 2), "in");
    }
    assert_eq!(read_all(&mut connect(port)), "", "the third is refused");
    held.pop();
    wait("a place", || {
        let mut client = connect(port);
        let mut two = [0; 2];
        client.read_exact(&mut two)
    });
    drop(held);
    running.quit();
    let log = site.read("logs/s.log");
    assert!(log.contains("503 REJECTED\n") && log.contains("200 PASSED\n"), "{log}");
    site.assert_no_alerts();
}

/// A ClientHello for a name.
fn hello(name: &str) -> Vec<u8> {
    let number = |n: usize| (n as u16).to_be_bytes();
    let host = [&[0][..], &number(name.len()), name.as_bytes()].concat();
    let list = [&number(host.len())[..], &host].concat();
    let extension = [&[0, 0][..], &number(list.len()), &list].concat();
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0, 2, 0x13, 1, 1, 0]);
    body.extend_from_slice(&number(extension.len()));
    body.extend_from_slice(&extension);
    let message = [&[1, 0][..], &number(body.len()), &body].concat();
    [&[0x16, 3, 1][..], &number(message.len()), &message].concat()
}

#[test]
fn the_name_of_a_handshake_chooses_the_server_and_nothing_of_it_is_lost() {
    let (a, b, port) = (server(named("a:")), server(named("b:")), free_port());
    let site = Site::new(
        "daemon off;",
        &format!(
            "stream {{ map $ssl_preread_server_name $to {{ a.example 127.0.0.1:{a}; default 127.0.0.1:{b}; }}
             server {{ listen 127.0.0.1:{port}; ssl_preread on; proxy_pass $to; }} }}"
        ),
    );
    let running = site.start();
    for (name, want) in [("a.example", "a:"), ("c.example", "b:")] {
        let hello = hello(name);
        let mut client = connect(port);
        // In pieces: it is decided once the record is whole.
        let (first, rest) = hello.split_at(20);
        client.write_all(first).expect("written");
        client.write_all(rest).expect("written");
        let mut all = vec![0; 2 + hello.len()];
        client.read_exact(&mut all).expect("the answer");
        assert_eq!(all, [want.as_bytes(), &hello].concat());
    }
    let mut client = connect(port);
    client.write_all(b"no hello at all").expect("written");
    assert_eq!(read_some(&mut client, 17), "b:no hello at all");
    drop(client);
    running.quit();
    site.assert_no_alerts();
}

/// An MQTT packet with fields of less than 128 octets in all.
fn mqtt_connect(version: u8, flags: u8, fields: &[&str]) -> Vec<u8> {
    let mut content = b"\0\x04MQTT".to_vec();
    content.extend([version, flags, 0, 60]);
    content.extend(if version == 5 { &[0][..] } else { &[] });
    for field in fields {
        content.extend([0, field.len() as u8]);
        content.extend(field.as_bytes());
    }
    [&[0x10, content.len() as u8], &content[..]].concat()
}

#[test]
fn fields_of_an_mqtt_client_are_set_for_the_server() {
    let (backend, port, strict) = (server(echo), free_port(), free_port());
    let site = Site::new(
        "daemon off;",
        &format!(
            "stream {{ log_format f '$status $bytes_received $upstream_bytes_sent'; access_log logs/stream.log f;
             mqtt on; server {{ listen 127.0.0.1:{port}; proxy_pass 127.0.0.1:{backend}; mqtt_preread on;
                mqtt_set_connect clientid x-$mqtt_preread_clientid; mqtt_set_connect username \"$remote_addr\"; }}
             server {{ listen 127.0.0.1:{strict}; proxy_pass 127.0.0.1:{backend}; mqtt_buffers 2 16; }} }}"
        ),
    );
    let running = site.start();
    let logged = |words: &str| {
        wait(words, || {
            let log = site.read("logs/stream.log");
            if log.contains(words) { Ok(()) } else { Err(log) }
        });
    };
    for (sent, want) in [
        (mqtt_connect(4, 0x02, &["a"]), mqtt_connect(4, 0x82, &["x-a", "127.0.0.1"])),
        (mqtt_connect(5, 0xC2, &["b", "user", "secret"]), mqtt_connect(5, 0xC2, &["x-b", "127.0.0.1", "secret"])),
    ] {
        let mut client = connect(port);
        // In pieces; later packets pass unchanged.
        let (first, rest) = sent.split_at(9);
        client.write_all(first).expect("written");
        client.write_all(&[rest, b"\xc0\0"].concat()).expect("written");
        let want = [&want[..], b"\xc0\0"].concat();
        let mut all = vec![0; want.len()];
        client.read_exact(&mut all).expect("the answer");
        assert_eq!(all, want);
        client.write_all(b"\xe0\0").expect("written");
        assert_eq!(client.read_exact(&mut all[..2]).map(|()| &all[..2]).expect("the answer"), b"\xe0\0");
        drop(client);
        logged(&format!("200 {} {}\n", sent.len() + 4, want.len() + 2));
    }
    // Other protocols and long packets do not reach the server.
    for (port, sent, words) in [
        (port, b"GET / HTTP/1.1\r\n\r\n".to_vec(), "client sent no valid MQTT CONNECT packet while"),
        (
            strict,
            mqtt_connect(4, 0x82, &["client", "long user name"]),
            "client intended to send too large MQTT packet: 36",
        ),
    ] {
        let mut client = connect(port);
        client.write_all(&sent).expect("written");
        assert_eq!(read_all(&mut client), "");
        site.wait_for_log(words, 1);
        logged("400 ");
    }
    let short = mqtt_connect(4, 0x02, &["client"]);
    let mut client = connect(strict);
    client.write_all(&short).expect("written");
    assert_eq!(read_some(&mut client, short.len()).as_bytes(), short);
    drop(client);
    running.quit();
    site.assert_no_alerts();
}

/// The end of a client's handshake, data, and `close_notify` in one write.
fn all_at_once(port: u16, certificate: &rcgen::Certificate, data: &[u8]) -> TcpStream {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.der().clone()).expect("a root");
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let mut tls = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut socket = connect(port);
    while tls.is_handshaking() {
        while tls.wants_write() {
            tls.write_tls(&mut socket).expect("written");
        }
        assert_ne!(tls.read_tls(&mut socket).expect("read"), 0);
        tls.process_new_packets().expect("a handshake");
    }
    tls.writer().write_all(data).expect("data");
    tls.send_close_notify();
    let mut last = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut last).expect("encoded");
    }
    socket.write_all(&last).expect("written");
    socket
}

#[test]
fn data_and_the_end_may_come_with_the_last_message_of_a_handshake() {
    let (sender, received) = std::sync::mpsc::channel();
    let origin = server(move |mut stream| {
        let _ = sender.send(read_all(&mut stream));
    });
    let port = free_port();
    let site = Site::new(
        "daemon off;",
        &format!(
            "stream {{ server {{ listen 127.0.0.1:{port} ssl; ssl_certificate own.crt; ssl_certificate_key own.key;
             proxy_pass 127.0.0.1:{origin}; }} }}"
        ),
    );
    let own = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
    site.write("conf/own.crt", &own.cert.pem());
    site.write("conf/own.key", &own.signing_key.serialize_pem());
    let running = site.start();
    let client = all_at_once(port, &own.cert, b"short");
    assert_eq!(received.recv_timeout(PATIENCE).expect("a connection"), "short");
    drop(client);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn sessions_go_on_over_a_reload_and_new_ones_begin_with_the_new_plan() {
    let (old, new, port) = (server(named("old")), server(named("new")), free_port());
    let conf = |to: u16| format!("stream {{ server {{ listen 127.0.0.1:{port}; proxy_pass 127.0.0.1:{to}; }} }}");
    let site = Site::new("daemon off; worker_processes 2;", &conf(old));
    let running = site.start();
    let mut open = connect(port);
    assert_eq!(read_some(&mut open, 3), "old");
    site.configure("daemon off; worker_processes 2;", &conf(new));
    running.signal("HUP");
    wait("the new plan", || {
        let mut client = connect(port);
        let name = read_some(&mut client, 3);
        if name == "new" { Ok(()) } else { Err(name) }
    });
    open.write_all(b"still here").expect("written");
    assert_eq!(read_some(&mut open, 10), "still here");
    assert!(!site.log().contains("is no longer used"), "it is");
    // The plan is dropped with its last session.
    drop(open);
    site.wait_for_log("is no longer used", 1);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_shutdown_waits_for_sessions_as_long_as_it_may() {
    let (upstream, port) = (server(named("in")), free_port());
    let conf = format!(
        "stream {{ log_format l $status; access_log logs/s.log l;
         server {{ listen 127.0.0.1:{port}; proxy_pass 127.0.0.1:{upstream}; }} }}"
    );
    let site = Site::new("daemon off; worker_shutdown_timeout 50ms;", &conf);
    let running = site.start();
    let mut open = connect(port);
    assert_eq!(read_some(&mut open, 2), "in");
    running.signal("QUIT");
    assert_eq!(read_all(&mut open), "");
    running.ended();
    assert_eq!(site.read("logs/s.log"), "200\n");
    assert!(site.log().contains("shutdown timeout"), "{}", site.log());
}

#[test]
fn a_connection_is_passed_to_another_area() {
    let (port, http) = (free_port(), free_port());
    let site = Site::new(
        "daemon off;",
        &format!(
            "stream {{ server {{ listen 127.0.0.1:{port}; pass 127.0.0.1:{http}; }} }}
             http {{ server {{ listen 127.0.0.1:{http}; location / {{ return 200 $server_port; }} }} }}"
        ),
    );
    let running = site.start();
    for _ in 0..2 {
        let mut client = connect(port);
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("written");
        let answer = read_all(&mut client);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&http.to_string()), "{answer}");
    }
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn set_writes_into_a_map_variable_volatile_or_not() {
    let (port, other) = (free_port(), free_port());
    let stream = format!(
        "stream {{
            map $remote_addr $volatile {{ volatile; default map; }}
            map $remote_addr $cached {{ default map; }}
            server {{ listen 127.0.0.1:{port}; set $volatile x; set $cached y; return '$volatile $cached'; }}
            server {{ listen 127.0.0.1:{other}; return '$volatile $cached'; }}
        }}"
    );
    let site = Site::new("daemon off;", &stream);
    let running = site.start();
    assert_eq!(read_all(&mut connect(port)), "x y");
    assert_eq!(read_all(&mut connect(other)), "map map");
    running.quit();
}

#[test]
fn a_connection_that_is_passed_in_a_circle_ends() {
    let port = free_port();
    let site = Site::new(
        "daemon off;",
        &format!(
            "stream {{ log_format f $status; access_log logs/s.log f;
             server {{ listen 127.0.0.1:{port}; pass 127.0.0.1:{port}; }} }}"
        ),
    );
    let running = site.start();
    assert_eq!(read_all(&mut connect(port)), "");
    site.wait_for_log("stream pass cycle", 1);
    running.quit();
    assert_eq!(site.read("logs/s.log"), "500\n", "passing a connection on is not a session's end");
    site.assert_no_alerts();
}

/// Responds to datagrams until told to stop. Returns the source ports.
fn datagram_server() -> (u16, Arc<AtomicBool>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let port = socket.local_addr().expect("address").port();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a time-out");
    std::thread::spawn(move || {
        let mut buf = [0; 2048];
        while !stopped.load(Ordering::Relaxed) {
            if let Ok((n, from)) = socket.recv_from(&mut buf) {
                let text = String::from_utf8_lossy(&buf[..n]).into_owned();
                let _ = socket.send_to(format!("{} {text}", from.port()).as_bytes(), from);
            }
        }
    });
    (port, stop)
}

/// Sends a datagram, and again without a response. Returns the port that the server saw.
fn ask(client: &UdpSocket, to: u16, text: &str) -> String {
    let mut buf = [0; 2048];
    client.send_to(text.as_bytes(), ("127.0.0.1", to)).expect("sent");
    let n = client.recv(&mut buf).expect("an answer");
    let answer = String::from_utf8_lossy(&buf[..n]).into_owned();
    let (port, rest) = answer.split_once(' ').expect("a port");
    assert_eq!(rest, text);
    port.to_string()
}

#[test]
fn datagrams_of_a_client_are_one_session_until_it_has_had_enough() {
    let (upstream, stop) = datagram_server();
    let (many, two, answered) = (free_port(), free_port(), free_port());
    let conf = |port: u16, more: &str| {
        format!("server {{ listen 127.0.0.1:{port} udp; proxy_pass 127.0.0.1:{upstream}; {more} }}")
    };
    let servers = [
        conf(many, "access_log off;"),
        conf(two, "proxy_requests 2; proxy_responses 1;"),
        conf(answered, "proxy_responses 1;"),
    ];
    let site = Site::new(
        "daemon off; worker_processes 2;",
        &format!(
            "stream {{ log_format l '$protocol $status $bytes_received $bytes_sent'; access_log logs/s.log l; {} }}",
            servers.join("\n")
        ),
    );
    let running = site.start();
    let (one, other) = (UdpSocket::bind("127.0.0.1:0").expect("bind"), UdpSocket::bind("127.0.0.1:0").expect("bind"));
    for client in [&one, &other] {
        client.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    }
    let first = ask(&one, many, "a");
    assert_eq!(ask(&one, many, "b"), first, "the same session");
    let second = ask(&other, many, "c");
    assert_ne!(second, first, "another client is another session");
    assert_eq!(ask(&one, many, "d"), first);
    let first = ask(&one, two, "a");
    assert_eq!(ask(&one, two, "b"), first);
    assert_ne!(ask(&one, two, "c"), first, "the session had its two");
    ask(&other, answered, "abc");
    // After a reload, the next datagram belongs to a session of the new plan.
    let before = ask(&one, many, "e");
    running.signal("HUP");
    wait("a new session", || if ask(&one, many, "f") == before { Err("the old one") } else { Ok(()) });
    stop.store(true, Ordering::Relaxed);
    running.quit();
    let log = site.read("logs/s.log");
    assert!(log.contains("UDP 200 3 9\n"), "three bytes, and its port with them: {log}");
    site.assert_no_alerts();
}

#[test]
fn the_proxy_header_of_a_datagram_says_so() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("bind");
    server.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let (port, web) = (free_port(), free_port());
    let to = server.local_addr().expect("address").port();
    let site = Site::new(
        "daemon off;",
        &format!(
            "stream {{ server {{ listen 127.0.0.1:{port} udp; proxy_pass 127.0.0.1:{to}; proxy_protocol v2; }}
             server {{ listen 127.0.0.1:{web}; return x; }} }}"
        ),
    );
    let running = site.start();
    drop(connect(web));
    let client = UdpSocket::bind("127.0.0.1:0").expect("bind");
    client.send_to(b"one", ("127.0.0.1", port)).expect("sent");
    let mut buf = [0; 64];
    let (n, _) = server.recv_from(&mut buf).expect("a datagram");
    assert!(buf[..n].starts_with(b"\r\n\r\n\0\r\nQUIT\n\x21\x12") && buf[..n].ends_with(b"one"), "{:?}", &buf[..n]);
    running.quit();
    site.assert_no_alerts();
}

/// A restarting datagram server causes ICMP errors, and the sessions' threads continue.
#[test]
fn a_datagram_for_a_closed_port_costs_no_thread() {
    let closed = free_port();
    let (datagrams, web) = (free_port(), free_port());
    let site = Site::new(
        "daemon off;",
        &format!(
            "stream {{ server {{ listen 127.0.0.1:{datagrams} udp; proxy_pass 127.0.0.1:{closed}; }} }}
             http {{ server {{ listen 127.0.0.1:{web}; return 200 here; }} }}"
        ),
    );
    let running = site.start();
    let client = UdpSocket::bind("127.0.0.1:0").expect("bind");
    client.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    for _ in 0..3 {
        client.send_to(b"anybody?", ("127.0.0.1", datagrams)).expect("sent");
    }
    site.wait_for_log("recv() failed (111: Connection refused)", 1);
    let mut http = connect(web);
    http.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
    assert!(read_all(&mut http).ends_with("here"));
    // The session continues: once the server is back, its datagrams pass.
    let server = UdpSocket::bind(("127.0.0.1", closed)).expect("bind");
    server.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    client.send_to(b"and now?", ("127.0.0.1", datagrams)).expect("sent");
    let mut buf = [0; 64];
    // A datagram of before the bind may still be on its way.
    let from = loop {
        let (n, from) = server.recv_from(&mut buf).expect("a datagram");
        if &buf[..n] == b"and now?" {
            break from;
        }
        assert_eq!(&buf[..n], b"anybody?");
    };
    server.send_to(b"yes", from).expect("sent");
    let n = client.recv(&mut buf).expect("an answer");
    assert_eq!(&buf[..n], b"yes");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn idle_sessions_cost_little() {
    const SESSIONS: usize = 500;
    /// Upper bound of the ratio; 2.0 is measured.
    const IDLE_KB_MAX: f64 = 4.0;
    let (upstream, port) = (server(named("in")), free_port());
    let conf = format!("stream {{ server {{ listen 127.0.0.1:{port}; proxy_pass 127.0.0.1:{upstream}; }} }}");
    let site = Site::new("daemon off;", &conf);
    site.write(
        "conf/nginx.conf",
        &format!("error_log logs/error.log; daemon off; events {{ worker_connections 4096; }} {conf}"),
    );
    let running = site.start();
    // One after the other, because many would exceed the origin's accept queue.
    let begin = |n: usize| -> Vec<TcpStream> {
        let one = |_| {
            let mut client = connect(port);
            assert_eq!(read_some(&mut client, 2), "in");
            client
        };
        (0..n).map(one).collect()
    };
    // The first sessions allocate the thread's own memory.
    let warm = begin(50);
    let before = private_kb(running.worker());
    let all = begin(SESSIONS);
    let kb = (private_kb(running.worker()).saturating_sub(before)) as f64 / SESSIONS as f64;
    assert!(kb < IDLE_KB_MAX, "an idle session costs {kb:.1} KB");
    drop((warm, all));
    running.quit();
}

/// A tree over the bits of addresses of IPv4 that leads 127.0.0.1 to a record, and all others nowhere.
fn tree(beyond: u32, put: &dyn Fn(&mut Vec<u8>, u32)) -> Vec<u8> {
    const NODES: u32 = 32;
    let mut out = Vec::new();
    for depth in 0..NODES {
        let next = if depth == 31 { NODES + beyond } else { depth + 1 };
        let bit = 0x7f00_0001u32 >> (31 - depth) & 1;
        let pair = if bit == 0 { [next, NODES] } else { [NODES, next] };
        pair.iter().for_each(|record| put(&mut out, *record));
    }
    out
}

#[test]
fn databases_of_places_are_asked_about_the_client() {
    // MaxMind's first format: the kind (5: organisations) and the number of nodes stand at the end.
    let mut org = tree(1, &|out, record| out.extend_from_slice(&record.to_le_bytes()));
    org.extend_from_slice(b"\x01Tide and Gate\0\xff\xff\xff\x05\x20\0\0");
    // The second one: text is 0x40 and its length; 16 octets lie between tree and values.
    let mut city = tree(16, &|out, record| out.extend_from_slice(&record.to_be_bytes()[1..]));
    city.extend_from_slice(&[0; 16]);
    city.extend_from_slice(b"\xe1\x44city\x45Basel");
    city.extend_from_slice(
        b"\xab\xcd\xefMaxMind.com\xe5\x4anode_count\xc1\x20\x4brecord_size\xa1\x18\x4aip_version\xa1\x04",
    );
    city.extend_from_slice(b"\x5bbinary_format_major_version\xa1\x02\x4bbuild_epoch\x02\x02\x01\0");
    let port = free_port();
    let site = Site::new("daemon off;", "");
    std::fs::write(site.path("org.dat"), org).expect("a file");
    std::fs::write(site.path("city.mmdb"), city).expect("a file");
    let (org, city) = (site.path("org.dat"), site.path("city.mmdb"));
    site.configure(
        "daemon off;",
        &format!(
            "http {{ geoip_org {}; geoip2 {} {{ $city city; }} }}
             stream {{ geoip_org {}; geoip2 {} {{ $city city; $none default=no source=$server_name city; }}
             server {{ listen 127.0.0.1:{port}; return \"$geoip_org [$geoip_country_code] $city $none\"; }} }}",
            org.display(),
            city.display(),
            org.display(),
            city.display(),
        ),
    );
    let running = site.start();
    assert_eq!(read_all(&mut connect(port)), "Tide and Gate [] Basel no");
    running.quit();
    site.assert_no_alerts();
}
