//! Responses of servers that pause, unbuffered: filters pass on all that came before a pause (nginx marks every buffer of an
//! unbuffered response for flushing).

use crate::support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use support::client::read_until;
use support::http2::{DATA, HEADERS, frame};
use support::{Site, free_port, http2};

/// Octets whose compressed form is about as long.
fn event(n: u32) -> Vec<u8> {
    let mut state = u64::from(n) + 1;
    let digit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b'!' + (state >> 58) as u8
    };
    [b"data: ", &std::iter::repeat_with(digit).take(60).collect::<Vec<u8>>()[..], b"\n\n"].concat()
}

/// Least growth of a compressed body by an event.
const EVENT_BYTES: usize = 30;
const EVENTS: u32 = 4;

/// Answers one request with an event for each signal.
fn serve(listener: &TcpListener, head: &str, frames: fn(&[u8]) -> Vec<u8>, go: &Receiver<()>) {
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).expect("a request");
    stream.write_all(&frames(head.as_bytes())).expect("a head");
    for n in 0..EVENTS {
        go.recv().expect("a signal");
        stream.write_all(&frames(&event(n))).expect("an event");
    }
}

/// Octets of a body that have arrived.
trait Arriving {
    fn grow(&mut self) -> usize;
}

/// HTTP/1.1 with chunks.
struct Chunks {
    stream: TcpStream,
    raw: Vec<u8>,
    body: usize,
}

impl Arriving for Chunks {
    fn grow(&mut self) -> usize {
        let mut piece = [0; 4096];
        let got = self.stream.read(&mut piece).expect("no octets came before the server went on");
        assert!(got > 0, "the response ended");
        self.raw.extend_from_slice(&piece[..got]);
        while let Some(end) = self.raw.windows(2).position(|two| two == b"\r\n") {
            let size = std::str::from_utf8(&self.raw[..end]).ok().and_then(|hex| usize::from_str_radix(hex, 16).ok());
            let size = size.expect("a chunk's size");
            if self.raw.len() < end + 2 + size + 2 {
                break;
            }
            self.body += size;
            self.raw.drain(..end + 2 + size + 2);
        }
        self.body
    }
}

struct Frames {
    client: http2::Client,
    body: usize,
}

impl Arriving for Frames {
    fn grow(&mut self) -> usize {
        let (kind, _, _, payload) = self.client.next().expect("no octets came before the server went on");
        if kind == DATA {
            self.body += payload.len();
        }
        self.body
    }
}

fn read_events(mut from: impl Arriving, go: &Sender<()>) {
    let mut before = 0;
    for _ in 0..EVENTS {
        go.send(()).expect("the server listens");
        let least = before + EVENT_BYTES;
        while before < least {
            before = from.grow();
        }
    }
}

/// Reads events through each compressor, over HTTP/1.1 and HTTP/2.
fn check(pass: &str, head: &str, frames: fn(&[u8]) -> Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let origin = listener.local_addr().expect("an address");
    let port = free_port();
    let pass = pass.replace("ORIGIN", &origin.to_string());
    let site = Site::new(
        "daemon off;",
        &format!(
            "http {{ server {{ listen 127.0.0.1:{port}; http2 on; gzip_min_length 0;
             gzip_types text/event-stream; brotli_types text/event-stream; zstd_types text/event-stream;
             location /gzip {{ gzip on; {pass} }} location /br {{ brotli on; {pass} }} location /zstd {{ zstd on; {pass} }} }} }}"
        ),
    );
    let running = site.start();
    for coding in ["gzip", "br", "zstd"] {
        for over_http2 in [false, true] {
            let (go, signal) = channel();
            let listener = &listener;
            std::thread::scope(|scope| {
                scope.spawn(move || serve(listener, head, frames, &signal));
                if over_http2 {
                    let mut client = http2::Client::connect(port);
                    let block = client.block(&format!("/{coding}"), &[("accept-encoding", coding)]);
                    client.send(&frame(HEADERS, 5, 1, &block));
                    read_events(Frames { client, body: 0 }, &go);
                } else {
                    let mut stream = support::wait("a listener", || TcpStream::connect(("127.0.0.1", port)));
                    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
                    let request = format!("GET /{coding} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n");
                    stream.write_all(request.as_bytes()).expect("sent");
                    let head = read_until(&mut stream, "\r\n\r\n");
                    assert!(head.contains(&format!("Content-Encoding: {coding}\r\n")), "{head}");
                    let raw = head.split_once("\r\n\r\n").expect("a head").1;
                    assert!(raw.is_empty(), "octets of a body before the first event: {raw}");
                    read_events(Chunks { stream, raw: Vec::new(), body: 0 }, &go);
                }
            });
        }
    }
    running.quit();
    site.assert_no_alerts();
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";

#[test]
fn an_unbuffered_proxied_response_passes_compressors_before_each_pause() {
    check("proxy_pass http://ORIGIN; proxy_http_version 1.1; proxy_buffering off;", HEAD, <[u8]>::to_vec);
}

#[test]
fn a_server_that_switches_buffering_off_passes_compressors_before_each_pause() {
    let head = HEAD.replace("Connection", "X-Accel-Buffering: no\r\nConnection");
    check("proxy_pass http://ORIGIN;", &head, <[u8]>::to_vec);
}

#[test]
fn an_unbuffered_fastcgi_response_passes_compressors_before_each_pause() {
    let record = |text: &[u8]| {
        let length = (text.len() as u16).to_be_bytes();
        [&[1, 6, 0, 1], &length[..], &[0, 0], text].concat()
    };
    let pass = "fastcgi_pass ORIGIN; fastcgi_buffering off; fastcgi_param REQUEST_METHOD GET;";
    check(pass, "Content-Type: text/event-stream\r\n\r\n", record);
}
