//! Names that are resolved for requests and sessions: sockets and questions have a bound.

use crate::support;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use support::client::Client;
use support::origin::{Origin, ok};
use support::{Site, descriptors, free_port, wait};

/// Requests that leave while their names are resolved; more than half of all connections of a worker.
const LEAVING: usize = 200;

#[test]
fn names_of_requests_that_have_left_shut_no_client_out() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let names = silent.local_addr().expect("an address").port();
    let (port, stream) = (free_port(), free_port());
    let site = Site::new(
        "daemon off; worker_processes 1;",
        &format!(
            "http {{ resolver 127.0.0.1:{names};
             server {{ listen 127.0.0.1:{port}; location ~ ^/name/(.*) {{ proxy_pass http://$1; }} location / {{ return 204; }} }} }}
             stream {{ resolver 127.0.0.1:{names}; resolver_timeout 1s; map $remote_port $name {{ default n$remote_port.test:1; }}
             server {{ listen 127.0.0.1:{stream}; proxy_pass $name; }} }}"
        ),
    );
    let running = site.start();
    let free = || {
        let answer = Client::connect(port).and_then(|mut client| client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(answer.map(|(status, _)| status), Ok(204));
    };
    // Worker threads open their queues when they start.
    free();
    let before = descriptors(running.worker());
    for n in 0..LEAVING {
        let mut client = TcpStream::connect(("127.0.0.1", port)).expect("connects");
        let head = format!("GET /name/n{n}.test HTTP/1.1\r\nHost: a\r\n\r\n");
        client.write_all(head.as_bytes()).expect("sent");
        drop(client);
    }
    free();
    // Every pending query of both address types shares a few sockets, and its end closes them.
    wait("the requests' end", || {
        let now = descriptors(running.worker());
        if now <= before + 2 { Ok(()) } else { Err(format!("{now} descriptors, {before} before")) }
    });
    let sessions: Vec<TcpStream> =
        (0..50).map(|_| TcpStream::connect(("127.0.0.1", stream)).expect("connects")).collect();
    for mut session in sessions {
        assert_eq!(session.read(&mut [0]).expect("an end"), 0, "no name server answers");
    }
    wait("the sessions' end", || {
        let now = descriptors(running.worker());
        if now <= before + 2 { Ok(()) } else { Err(format!("{now} descriptors, {before} before")) }
    });
    running.quit();
    assert!(!site.log().contains("worker_connections are not enough"), "{}", site.log());
    site.assert_no_alerts();
}

/// Answers every A question with 127.0.0.1 and a TTL of 0, and counts the questions by name.
fn name_server_without_ttl() -> (u16, Arc<Mutex<HashMap<Vec<u8>, usize>>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("an address").port();
    let counts: Arc<Mutex<HashMap<Vec<u8>, usize>>> = Arc::default();
    let its_counts = counts.clone();
    std::thread::spawn(move || {
        let mut buf = [0; 512];
        while let Ok((n, from)) = socket.recv_from(&mut buf) {
            *its_counts.lock().expect("counts").entry(buf[12..n].to_vec()).or_default() += 1;
            let mut answer = buf[..n].to_vec();
            answer[2..8].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1]);
            answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
            let _ = socket.send_to(&answer, from);
        }
    });
    (port, counts)
}

#[test]
fn a_name_without_a_ttl_is_asked_for_once_a_second() {
    let (names, counts) = name_server_without_ttl();
    let origin = Origin::answering(|_| ok("here"));
    let (port, stream) = (free_port(), free_port());
    let site = Site::new(
        "daemon off; worker_processes 1;",
        &format!(
            "http {{ resolver 127.0.0.1:{names} ipv6=off;
             server {{ listen 127.0.0.1:{port}; location / {{ set $n app.test:{origin}; proxy_pass http://$n; }} }} }}
             stream {{ resolver 127.0.0.1:{names} ipv6=off; map $remote_port $name {{ default tcp.test:{origin}; }}
             server {{ listen 127.0.0.1:{stream}; proxy_pass $name; }} }}",
            origin = origin.port
        ),
    );
    let running = site.start();
    let began = std::time::Instant::now();
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for port in [port, stream] {
        for _ in 0..50 {
            let answer = Client::connect(port).and_then(|mut client| client.ask(request));
            assert_eq!(answer, Ok((200, "here".into())));
        }
    }
    // A slow machine may need more than a second for the requests.
    let seconds = usize::try_from(began.elapsed().as_secs()).expect("a short time");
    let counts = counts.lock().expect("counts");
    assert_eq!(counts.len(), 2);
    for count in counts.values() {
        assert!((1..=1 + seconds).contains(count), "{count} questions in {seconds} s");
    }
    running.quit();
    site.assert_no_alerts();
}
