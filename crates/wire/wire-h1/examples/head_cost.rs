//! Cost of a request head: run under callgrind with two counts and divide the difference.
//!
//! `valgrind --tool=callgrind target/release/examples/head_cost 1000`, then with 2000.

use http_types::RequestHead;
use std::hint::black_box;
use wire_h1::{HeadLimits, HeadParser, ParseProgress, check_request, keep_alive};

/// A request line of 40 bytes, `Host` and three fields, as a load generator sends them.
const HEAD: &[u8] = b"GET /static/images/logo-big.png HTTP/1.1\r\n\
    Host: www.example.com\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n";

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(10_000_000);
    let parse_only = arguments.next().as_deref() == Some("parse");
    let limits = HeadLimits::default();
    let mut parser = HeadParser::default();
    let mut head = RequestHead::default();
    let started = std::time::Instant::now();
    for _ in 0..rounds {
        parser.reset();
        let progress = parser.parse(black_box(HEAD), &limits, &mut head);
        assert_eq!(progress, Ok(ParseProgress::Done { consumed: HEAD.len() }));
        if !parse_only {
            black_box(check_request(&head, HEAD, false).is_ok());
            black_box(keep_alive(&head, HEAD));
        }
    }
    println!("{rounds} heads of {} bytes, {} ns each", HEAD.len(), started.elapsed().as_nanos() / rounds as u128);
}
