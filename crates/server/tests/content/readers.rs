//! Memory of connections whose clients read slowly or not at all.

use crate::support;

use rustls::pki_types::ServerName;
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::http2::{HEADERS, SETTINGS, WINDOW_UPDATE, frame};
use support::origin::Origin;
use support::{Site, free_port, http2, private_kb, wait, wait_for_rest};

/// Length of a response, far above the buffers of both sockets.
const LONG: usize = 6 << 20;
/// Connections of a measurement.
const CLIENTS: usize = 30;

/// Connects with the smallest receive buffer.
fn connect(port: u16) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a buffer size");
    socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into()).expect("connected");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream
}

fn site(conf: &str) -> Site {
    let site = Site::new("", "");
    let events = "events { worker_connections 4096; }";
    let main = "error_log logs/error.log; daemon off; worker_processes 1;";
    site.write("conf/nginx.conf", &format!("{main} {events} {conf}"));
    site
}

/// Reads a long response in small pieces, and returns the growth of the worker's memory meanwhile, in KB.
fn read_slowly(worker: u32, mut from: impl Read) -> u64 {
    let mut piece = [0; 1500];
    from.read_exact(&mut piece).expect("a beginning");
    let (before, mut most) = (private_kb(worker), 0);
    for n in 0..LONG / piece.len() - 1 {
        from.read_exact(&mut piece).expect("a part");
        if n % 100 == 0 {
            most = most.max(private_kb(worker));
        }
    }
    most.saturating_sub(before)
}

#[test]
fn slow_readers_hold_no_memory_of_octets_that_they_have_read() {
    // Without the removal of written octets each of these takes twice the response.
    const GROWTH_KB: u64 = 3 * 1024;
    let (clear, secure) = (free_port(), free_port());
    // The socket never takes all output, as over a network with a small congestion window.
    let site = site(&format!(
        "http {{ access_log off; root html; ssl_certificate a.crt; ssl_certificate_key a.key;
         server {{ listen 127.0.0.1:{clear} sndbuf=8k; http2 on; }}
         server {{ listen 127.0.0.1:{secure} ssl sndbuf=8k; }} }}"
    ));
    site.certify();
    site.write("html/long", &"x".repeat(LONG));
    let running = site.start();
    let worker = running.worker();

    let mut client = http2::Client::over(connect(clear));
    client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    client.send(&frame(WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes()));
    let block = client.block("/long", &[]);
    client.send(&frame(HEADERS, 5, 1, &block));
    let grown = read_slowly(worker, client.stream);
    assert!(grown < GROWTH_KB, "HTTP/2: {grown} KB");

    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(support::http3::Believing))
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let session = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut client = rustls::StreamOwned::new(session, connect(secure));
    client.write_all(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let grown = read_slowly(worker, client);
    assert!(grown < GROWTH_KB, "TLS: {grown} KB");
    drop(running);
}

/// A server that sends without end, and counts the bytes that are taken.
fn endless(head: &'static str) -> (Origin, Arc<AtomicU64>) {
    let taken = Arc::new(AtomicU64::new(0));
    let its_taken = taken.clone();
    let origin = Origin::new(move |mut talk| {
        if head.is_empty() || talk.request().is_some() {
            talk.send(head.as_bytes());
            let block = [b'x'; 16 * 1024];
            while talk.send(&block) {
                its_taken.fetch_add(block.len() as u64, Ordering::Relaxed);
            }
        }
    });
    (origin, taken)
}

#[test]
fn clients_that_do_not_read_cost_little() {
    let (http, tcp) = (free_port(), free_port());
    let (page, of_page) = endless("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
    let (socket, of_socket) =
        endless("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    let (raw, of_raw) = endless("");
    let site = site(&format!(
        "http {{ access_log off; server {{ listen 127.0.0.1:{http} sndbuf=64k;
         location /unbuffered {{ proxy_pass http://127.0.0.1:{0}; proxy_buffering off; }}
         location /buffered {{ proxy_pass http://127.0.0.1:{0}; proxy_max_temp_file_size 0; }}
         location /socket {{ proxy_pass http://127.0.0.1:{1}; proxy_http_version 1.1;
                             proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }} }} }}
         stream {{ server {{ listen 127.0.0.1:{tcp} sndbuf=64k; proxy_pass 127.0.0.1:{2}; }} }}",
        page.port, socket.port, raw.port
    ));
    let running = site.start();
    let worker = running.worker();
    // Connections, and the KB that each may cost.
    let rows = [
        ("a session", tcp, "", of_raw, 18),
        ("a WebSocket", http, "GET /socket HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n", of_socket, 18),
        ("an unbuffered response", http, "GET /unbuffered HTTP/1.1\r\nHost: a\r\n\r\n", of_page.clone(), 30),
        ("a buffered response", http, "GET /buffered HTTP/1.1\r\nHost: a\r\n\r\n", of_page, 80),
    ];
    for (name, port, request, taken, allowed) in rows {
        // One after the other: flows that run together hold their buffers for a turn each.
        let begin = |n: usize| -> Vec<TcpStream> {
            let one = |_| {
                let before = taken.load(Ordering::Relaxed);
                let mut client = connect(port);
                client.write_all(request.as_bytes()).expect("sent");
                wait("the server to begin", || match taken.load(Ordering::Relaxed) {
                    some if some > before => Ok(()),
                    some => Err(some),
                });
                wait_for_rest("the server to be stopped", 4, || taken.load(Ordering::Relaxed));
                client
            };
            (0..n).map(one).collect()
        };
        // The first connections allocate the thread's own memory.
        let warm = begin(10);
        let before = private_kb(worker);
        let all = begin(CLIENTS);
        let each = private_kb(worker).saturating_sub(before) / CLIENTS as u64;
        println!("{name}: {each} KB");
        assert!(each <= allowed, "{name} costs {each} KB");
        drop((warm, all));
    }
    drop(running);
}
