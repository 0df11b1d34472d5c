//! A protocol is a core and nothing else: this one is invented, exists in this file alone, and is served by the driver,
//! engine and plan of HTTP/2.
//!
//! It has lines. A client sends `ID PATH`. The server sends `ID STATUS`, parts of the body as `ID +OCTETS` followed by
//! the octets, and `ID .` at the end. `ID !` aborts a response, `bye` announces the end of the connection.

use crate::support;

use http_types::{
    ByteCore, Event, FieldLines, List, ListPlace, ProtocolError, Rank, ResetReason, SentBody, StreamId, StreamMux,
    TakenLines, Version, request_message,
};
use std::collections::{BTreeSet, VecDeque};
use std::io::Write;
use std::os::unix::net::UnixStream;
use support::simulated::{big, drain, first, quiet_panics, serving};
use worker::sim::Sim;
use worker::thread::{ServeLoop, WorkerCommand};

#[derive(Default)]
struct Lines {
    input: Vec<u8>,
    open: BTreeSet<StreamId>,
    events: VecDeque<Event>,
    out: Vec<u8>,
    has_begun: bool,
    is_going: bool,
}

impl Lines {
    fn ask(&mut self, line: &str) -> Result<(), ProtocolError> {
        let (id, path) = line.split_once(' ').ok_or(ProtocolError { words: "client sent a line that asks nothing" })?;
        let stream = id.parse().map_err(|_| ProtocolError { words: "client sent an odd number" })?;
        if self.is_going || !self.open.insert(stream) {
            self.out.extend(format!("{stream} !\n").into_bytes());
            return Ok(());
        }
        self.has_begun = true;
        let mut list = List::default();
        for (name, value) in [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "site")] {
            let field: (ListPlace, ListPlace) = (list.put(name.as_bytes()), list.put(value.as_bytes()));
            list.fields.push(field);
        }
        let message = request_message(&list, false, true);
        self.events.push_back(Event::Head { stream, list, message, end: true, octets: line.len() + 1 });
        Ok(())
    }
    fn say(&mut self, stream: StreamId, words: &str) -> usize {
        let line = format!("{stream} {words}\n");
        self.out.extend_from_slice(line.as_bytes());
        line.len()
    }
    fn end(&mut self, stream: StreamId) {
        self.say(stream, ".");
        self.open.remove(&stream);
    }
}

impl StreamMux for Lines {
    fn version(&self) -> Version {
        Version::Http20
    }
    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
    fn take_body(&mut self, _: StreamId) -> TakenLines {
        TakenLines::End
    }
    fn taken(&self, _: StreamId) -> u64 {
        0
    }
    fn promise(&mut self, _: StreamId, _: u64) {}
    fn capacity(&mut self, stream: StreamId) -> Option<usize> {
        self.open.contains(&stream).then_some(10_000)
    }
    fn send_head(&mut self, stream: StreamId, status: u16, _: FieldLines<'_, '_>, end: bool) -> usize {
        let sent = self.say(stream, &status.to_string());
        if end {
            self.end(stream);
        }
        sent
    }
    fn send_interim(&mut self, _: StreamId, _: u16, _: FieldLines<'_, '_>) {}
    fn send_body(&mut self, stream: StreamId, body: &[u8], _: usize, end: bool) -> SentBody {
        let before = self.out.len();
        let part = &body[..body.len().min(10_000)];
        if !part.is_empty() {
            self.say(stream, &format!("+{}", part.len()));
            self.out.extend_from_slice(part);
        }
        if end && part.len() == body.len() {
            self.end(stream);
        }
        SentBody { taken: part.len(), octets: self.out.len() - before }
    }
    fn send_trailers(&mut self, stream: StreamId, _: FieldLines<'_, '_>) -> usize {
        self.end(stream);
        0
    }
    fn finish(&mut self, stream: StreamId) {
        self.reset(stream, ResetReason::Internal);
    }
    fn reset(&mut self, stream: StreamId, _: ResetReason) {
        if self.open.remove(&stream) {
            self.say(stream, "!");
        }
    }
    fn rank(&self, _: StreamId) -> Option<Rank> {
        None
    }
    fn offers_connect(&self) -> bool {
        false
    }
    fn begin_shutdown(&mut self) {
        if !std::mem::replace(&mut self.is_going, true) {
            self.out.extend_from_slice(b"bye\n");
        }
    }
    fn is_going(&self) -> bool {
        self.is_going
    }
    fn is_idle(&self) -> bool {
        self.open.is_empty()
    }
    fn is_within_head(&self) -> bool {
        !self.input.is_empty()
    }
    fn give_up_head(&mut self) -> bool {
        false
    }
    fn has_begun(&self) -> bool {
        self.has_begun
    }
    fn shrink(&mut self) {
        self.out.shrink_to_fit();
    }
}

impl ByteCore for Lines {
    fn receive(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        self.input.extend_from_slice(bytes);
        while let Some(end) = self.input.iter().position(|c| *c == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            self.ask(String::from_utf8_lossy(&line).trim_end())?;
        }
        Ok(())
    }
    fn has_preface(&self) -> bool {
        true
    }
    fn output(&self) -> &[u8] {
        &self.out
    }
    fn advance(&mut self, n: usize) {
        self.out.drain(..n);
    }
}

fn plan() -> ServeLoop {
    serving(
        "server { listen 127.0.0.1:8001; http2 on; keepalive_timeout 7s; client_header_timeout 3s;
             location /words { return 200 \"$server_protocol $uri\"; } location /slow { limit_rate 1; return 200 abcdef; } }",
    )
}

fn begin(asked: &str) -> (Sim, UnixStream) {
    let mut sim = Sim::new(plan()).expect("a thread");
    let mut client = sim.connect_speaking(&first(), Lines::default()).expect("a connection");
    client.write_all(asked.as_bytes()).expect("sent");
    sim.settle().expect("settles");
    (sim, client)
}

#[test]
fn requests_of_any_protocol_are_served() {
    let (mut sim, mut client) = begin("1 /words/a\n2 /big\n3 /nothing\n4 /wo");
    let (mut came, mut ended) = drain(&mut client);
    while !came.windows(4).any(|w| w == b"2 .\n") {
        assert!(!ended, "the connection stays");
        sim.settle().expect("settles");
        let (more, end) = drain(&mut client);
        came.extend(more);
        ended = end;
    }
    let text = String::from_utf8_lossy(&came);
    assert!(text.contains("1 200\n1 +17\nHTTP/2.0 /words/a1 .\n"), "{}", &text[..100]);
    assert!(text.contains("3 404\n"));
    let mut body = Vec::new();
    let mut rest = came.as_slice();
    // Parts of other streams stand between those of the large one.
    while let Some(end) = rest.iter().position(|c| *c == b'\n') {
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = &rest[end + 1..];
        if let Some((id, octets)) = line.split_once(" +") {
            let (part, behind) = rest.split_at(octets.parse().expect("a number"));
            if id == "2" {
                body.extend_from_slice(part);
            }
            rest = behind;
        }
    }
    assert!(body == big(), "{} octets of {}", body.len(), big().len());
    // A head that has begun has its time to come whole.
    client.write_all(b"rds\n").expect("sent");
    sim.settle().expect("settles");
    assert!(String::from_utf8_lossy(&drain(&mut client).0).ends_with("4 .\n"));
    sim.pass(6_900).expect("passes");
    assert!(!drain(&mut client).1, "keepalive_timeout has not passed");
    sim.pass(200).expect("passes");
    assert!(drain(&mut client).1 && sim.clients() == 0);
    assert!(sim.end(), "nothing holds the thread's state");
}

#[test]
fn unknown_protocols_end_their_connection() {
    let (mut sim, mut client) = begin("nonsense\n");
    sim.pass(10_000).expect("passes");
    assert!(drain(&mut client).1 && sim.clients() == 0);
    let (mut sim, mut client) = begin("1 /wor");
    sim.pass(2_900).expect("passes");
    assert!(!drain(&mut client).1, "client_header_timeout has not passed");
    sim.pass(200).expect("passes");
    assert!(drain(&mut client).1 && sim.clients() == 0);
}

#[test]
fn quit_lets_streams_end_and_takes_no_more() {
    let (mut sim, mut client) = begin("1 /slow\n");
    sim.tell(WorkerCommand::Quit { timeout_ms: 0 });
    sim.settle().expect("settles");
    client.write_all(b"2 /words\n").expect("sent");
    sim.settle().expect("settles");
    assert!(!sim.has_ended());
    sim.pass(60_000).expect("passes");
    let text = String::from_utf8_lossy(&drain(&mut client).0).into_owned();
    assert!(text.contains("bye\n") && text.contains("2 !\n") && text.ends_with("1 .\n"), "{text}");
    assert!(sim.has_ended());
}

#[test]
fn a_panic_costs_its_connection_at_most() {
    quiet_panics();
    for step in 1..40 {
        let (mut sim, mut client) = begin("1 /slow\n");
        sim.panic_at(step);
        client.write_all(b"2 /slow\n").expect("sent");
        sim.pass(30_000).expect("passes");
        let (came, ended) = drain(&mut client);
        let text = String::from_utf8_lossy(&came);
        assert!(ended || (text.contains("1 .\n") && text.contains("2 .\n")), "step {step}: {text}");
        sim.panic_at(0);
        let mut other = sim.connect_speaking(&first(), Lines::default()).expect("a connection");
        other.write_all(b"1 /words\n").expect("sent");
        sim.settle().expect("settles");
        assert!(String::from_utf8_lossy(&drain(&mut other).0).ends_with("1 .\n"), "step {step}");
    }
}
