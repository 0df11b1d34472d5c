//! Clients whose window is exactly as long as the body: its end needs no window, whatever filters make of it.

use crate::support;

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::sync::{Mutex, mpsc};
use std::time::Duration;
use support::http2::{self, DATA, HEADERS, RST_STREAM, SETTINGS, frame};
use support::origin::Origin;
use support::{Site, free_port};

fn gzipped(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).expect("packed");
    encoder.finish().expect("packed")
}

/// Asks with a window of so many octets, and returns the body. `came` is told of the octets so far.
fn body(port: u16, path: &str, window: u32, mut came: impl FnMut(usize)) -> Result<Vec<u8>, String> {
    let mut client = http2::Client::connect(port);
    client.send(&frame(SETTINGS, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat()));
    client.ask(1, path);
    let mut all = Vec::new();
    while let Some((kind, flags, stream, payload)) = client.next() {
        match (kind, stream) {
            (RST_STREAM, 1) => return Err(format!("a reset: {payload:?}")),
            (DATA, 1) => all.extend_from_slice(&payload),
            (HEADERS, 1) => {}
            _ => continue,
        }
        if flags & 1 != 0 {
            return Ok(all);
        }
        came(all.len());
    }
    Err("the connection ended".into())
}

#[test]
fn the_end_of_a_body_needs_no_window() {
    // Answers when the octets before it have come.
    let (answer, asked) = mpsc::channel();
    let asked = Mutex::new(asked);
    let late = Origin::answering(move |_| {
        let asked = asked.lock().expect("the only one");
        asked.recv_timeout(Duration::from_secs(30)).expect("the octets before it");
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let many = [gzipped(b"text"), gzipped(b"").repeat(40)].concat();
    let packed = Origin::answering(move |request| {
        let body = if request.starts_with("GET /many") { many.clone() } else { Vec::new() };
        let chunk = if body.is_empty() {
            Vec::new()
        } else {
            [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n"].concat()
        };
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n";
        [&head[..], &chunk, b"0\r\n\r\n"].concat()
    });
    let port = free_port();
    let (late, packed) = (late.port, packed.port);
    let site = Site::new(
        "daemon off; error_log logs/error.log;",
        &format!(
            "http {{ types {{ text/html html; text/plain txt; }} server {{ listen 127.0.0.1:{port}; http2 on; root html;
             location /nothing/ {{ alias html/; sub_filter x ''; sub_filter_once off; sub_filter_types *; }}
             location /late {{ proxy_pass http://127.0.0.1:{late}; }}
             location /page/ {{ alias html/; ssi on; }}
             location /added/ {{ alias html/; add_after_body /late; addition_types *; }}
             location /packed/ {{ proxy_pass http://127.0.0.1:{packed}/; gunzip on; }}
             location /replaced/ {{ proxy_pass http://127.0.0.1:{packed}/; gunzip on; sub_filter text ''; sub_filter_types *; }} }} }}"
        ),
    );
    site.write("html/x.txt", &"x".repeat(3_000_000));
    site.write("html/tail.txt", &("keep".to_string() + &"x".repeat(3_000_000)));
    site.write("html/page.html", "A<!--# include virtual=\"/late\" -->");
    site.write("html/a.txt", "A");
    let running = site.start();
    for (path, wanted, waits) in [
        ("/nothing/x.txt", "", false),
        ("/nothing/tail.txt", "keep", false),
        ("/page/page.html", "A", true),
        ("/added/a.txt", "A", true),
        ("/packed/many", "text", false),
        ("/packed/none", "", false),
        ("/replaced/many", "", false),
    ] {
        let mut answers = waits.then_some(());
        let got = body(port, path, wanted.len() as u32, |length| {
            if length == wanted.len() && answers.take().is_some() {
                answer.send(()).expect("the origin");
            }
        });
        assert_eq!(got.map(|body| support::text(&body)), Ok(wanted.to_string()), "{path}");
    }
    running.quit();
}
