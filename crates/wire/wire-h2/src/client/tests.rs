//! Tests of client and server together, and of misbehaving servers.

use super::*;
use crate::hpack::Encoder;
use crate::{Server, ServerLimits};
use http_types::{Event, TakenLines};

fn block(path: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = Encoder::stateless();
    for (name, value) in [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "a")] {
        encoder.field(name.as_bytes(), value.as_bytes(), &mut out);
    }
    out
}

fn talk(client: &mut Client, server: &mut Server, step: usize) {
    loop {
        let (up, down) = (client.output().to_vec(), server.output().to_vec());
        if up.is_empty() && down.is_empty() {
            return;
        }
        client.advance(up.len());
        server.advance(down.len());
        up.chunks(step).for_each(|part| server.receive(part).expect("a client in order"));
        down.chunks(step).for_each(|part| client.receive(part).expect("a server in order"));
    }
}

#[test]
fn many_streams_with_bodies_both_ways() {
    for step in [1, 100, 100_000] {
        let mut client = Client::new(ClientLimits { stream_window: 1000, ..ClientLimits::default() });
        let mut server = Server::new(ServerLimits { stream_window: 100, ..ServerLimits::default() });
        // A server may refuse streams before its window is known.
        talk(&mut client, &mut server, step);
        let ids: Vec<u32> = (0..20).filter_map(|n| client.open(&block(&format!("/{n}")), false)).collect();
        assert_eq!((ids.len(), ids[19]), (20, 39));
        let body = vec![b'x'; 5000];
        let mut left: HashMap<u32, usize> = ids.iter().map(|id| (*id, body.len())).collect();
        let (mut answered, mut received, mut got, mut ended) = (HashMap::new(), HashMap::new(), HashMap::new(), 0);
        while ended < 20 {
            for (id, left) in &mut left {
                *left -= client.send_body(*id, &body[body.len() - *left..], true);
            }
            talk(&mut client, &mut server, step);
            while let Some(event) = server.poll_event() {
                if let Event::Head { stream, .. } = event {
                    let stream = stream as u32;
                    server.send_head(stream, 200, [(&b"x-a"[..], &b"b"[..])].into_iter(), false);
                    answered.insert(stream, body.len());
                }
            }
            for (id, left) in &mut answered {
                while let TakenLines::Bytes(bytes) = server.take_body(*id) {
                    *received.entry(*id).or_insert(0) += bytes.len();
                }
                *left -= server.send_body(*id, &body[body.len() - *left..], 16_384, true);
            }
            talk(&mut client, &mut server, step);
            while let Some(event) = client.poll_event() {
                match event {
                    ClientEvent::Head { list, .. } => {
                        assert_eq!(list.iter().next(), Some((&b":status"[..], &b"200"[..])))
                    }
                    ClientEvent::Body { stream, bytes, end, .. } => {
                        *got.entry(stream).or_insert(0) += bytes.len();
                        client.consumed(stream, bytes.len());
                        ended += usize::from(end);
                    }
                    ClientEvent::Capacity(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(got.values().chain(received.values()).all(|n| *n == body.len()) && got.len() == 20);
        ids.iter().for_each(|id| client.forget(*id));
        assert!(client.is_idle() && client.output().is_empty());
    }
}

#[test]
fn bodies_that_nobody_wants_are_counted_and_windows_opened() {
    for step in [1, 7, 100_000] {
        let limits = ClientLimits {
            stream_window: 70_000,
            connection_window: 70_000,
            table: 4096,
            count_bodies: true,
            ..ClientLimits::default()
        };
        let (mut client, mut server) = (Client::new(limits), Server::new(ServerLimits::default()));
        talk(&mut client, &mut server, step);
        assert!(client.is_settled());
        let id = client.open(&block("/"), true).expect("room");
        talk(&mut client, &mut server, step);
        server.send_head(id, 200, std::iter::empty(), false);
        let (body, mut sent, mut got, mut over) = (vec![b'x'; 300_000], 0, 0, false);
        while !over {
            sent += server.send_body(id, &body[sent..], 16_384, true);
            talk(&mut client, &mut server, step);
            while let Some(event) = client.poll_event() {
                match event {
                    ClientEvent::Counted { length, end, octets, .. } => {
                        assert!(octets > length);
                        (got, over) = (got + length, end);
                    }
                    ClientEvent::Head { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(got, 300_000);
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put_head(payload.len(), kind, flags, stream, &mut out);
    out.extend_from_slice(payload);
    out
}

fn begun() -> Client {
    let mut client = Client::new(ClientLimits::default());
    client.receive(&frame(frame::SETTINGS, 0, 0, &[])).expect("settings");
    assert_eq!(client.open(&block("/"), true), Some(1));
    client
}

#[test]
fn violations_of_a_server_end_the_connection() {
    let status = [0x88];
    for (bytes, code) in [
        (frame(frame::DATA, 0, 1, b"x"), ErrorCode::Protocol),
        (frame(frame::HEADERS, 4, 3, &status), ErrorCode::Protocol),
        (frame(frame::HEADERS, 4, 2, &status), ErrorCode::Protocol),
        (frame(frame::HEADERS, 4, 1, &[0x80]), ErrorCode::Compression),
        (frame(frame::PUSH_PROMISE, 4, 1, &status), ErrorCode::Protocol),
        (frame(frame::CONTINUATION, 4, 1, &status), ErrorCode::Protocol),
        (frame(frame::WINDOW_UPDATE, 0, 1, &[0; 4]), ErrorCode::Protocol),
        (frame(frame::WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff]), ErrorCode::FlowControl),
        (frame(frame::SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]), ErrorCode::FlowControl),
        (frame(frame::SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1]), ErrorCode::Protocol),
        (frame(frame::SETTINGS, 0, 0, &[0]), ErrorCode::FrameSize),
        (frame(frame::PING, 0, 0, &[0]), ErrorCode::FrameSize),
        (frame(frame::RST_STREAM, 0, 1, &[0]), ErrorCode::FrameSize),
        ([frame(frame::HEADERS, 5, 1, &status), frame(frame::DATA, 0, 1, b"x")].concat(), ErrorCode::StreamClosed),
        ([frame(frame::HEADERS, 4, 1, &status), frame(frame::HEADERS, 4, 1, &status)].concat(), ErrorCode::Protocol),
        (frame(frame::PING, 0, 0, &[0; 8]).repeat(12_000), ErrorCode::EnhanceYourCalm),
        (vec![0xff; 9], ErrorCode::FrameSize),
    ] {
        let mut client = begun();
        let error = client.receive(&bytes).expect_err("an error");
        assert_eq!(error.code, code, "{}", error.words);
        assert!(client.is_going() && !client.has_room());
    }
    let mut first = Client::new(ClientLimits::default());
    assert!(first.receive(&frame(frame::PING, 0, 0, &[0; 8])).is_err());
}

#[test]
fn a_server_that_goes_says_what_it_has_not_done() {
    let mut client = begun();
    let second = client.open(&block("/2"), true).expect("room");
    client.receive(&frame(frame::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])).expect("in order");
    assert!(
        matches!(client.poll_event(), Some(ClientEvent::Reset { stream, unprocessed: true, .. }) if stream == second)
    );
    assert!(matches!(client.poll_event(), Some(ClientEvent::Goaway)));
    client.receive(&frame(frame::HEADERS, 5, 1, &[0x88])).expect("the first goes on");
    assert!(matches!(client.poll_event(), Some(ClientEvent::Head { stream: 1, end: true, .. })));
    assert!(client.open(&block("/3"), true).is_none());
}

#[test]
fn room_is_what_both_sides_allow() {
    let mut client = Client::new(ClientLimits { streams_max: 3, ..ClientLimits::default() });
    client.receive(&frame(frame::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 2])).expect("in order");
    assert!(client.open(&block("/"), true).is_some() && client.open(&block("/"), true).is_some());
    assert!(client.open(&block("/"), true).is_none());
    client.receive(&frame(frame::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9])).expect("in order");
    assert!(client.open(&block("/"), true).is_some() && client.open(&block("/"), true).is_none());
    client.forget(1);
    assert!(client.output().windows(9).any(|w| w == [0, 0, 4, frame::RST_STREAM, 0, 0, 0, 0, 1]));
    assert!(client.has_room());
}

#[test]
fn responses_before_the_answer_have_an_end() {
    let mut client = Client::new(ClientLimits::default());
    let mut bytes = Vec::new();
    frame::put_head(0, frame::SETTINGS, 0, 0, &mut bytes);
    client.receive(&bytes).expect("settings");
    let (given_up, other) =
        (client.open(&block("/"), true).expect("room"), client.open(&block("/"), true).expect("room"));
    let head = |id: u32, status: &[u8]| {
        let (mut fields, mut out) = (Vec::new(), Vec::new());
        Encoder::stateless().field(b":status", status, &mut fields);
        frame::put_head(fields.len(), frame::HEADERS, frame::END_HEADERS, id, &mut out);
        out.extend_from_slice(&fields);
        out
    };
    client.receive(&head(given_up, b"103").repeat(1000)).expect("up to the bound");
    let mut waiting = 0;
    while client.poll_event().is_some() {
        waiting += 1;
    }
    assert_eq!(waiting, 64);
    client.receive(&head(given_up, b"103").repeat(2)).expect("the stream's fault");
    assert!(matches!(client.poll_event(), Some(ClientEvent::Reset { stream, .. }) if stream == given_up));
    client.receive(&head(other, b"200")).expect("in order");
    assert!(matches!(client.poll_event(), Some(ClientEvent::Head { stream, .. }) if stream == other));
    let flood = head(given_up, b"103").repeat(1000);
    assert!((0..100).any(|_| client.receive(&flood).is_err() || client.failed));
}

#[test]
fn bodies_in_frames_of_one_octet_become_large_pieces() {
    let mut client = Client::new(ClientLimits::default());
    let mut bytes = Vec::new();
    frame::put_head(0, frame::SETTINGS, 0, 0, &mut bytes);
    client.receive(&bytes).expect("settings");
    let id = client.open(&block("/"), true).expect("room");
    let (mut fields, mut one) = (Vec::new(), Vec::new());
    Encoder::stateless().field(b":status", b"200", &mut fields);
    frame::put_head(fields.len(), frame::HEADERS, frame::END_HEADERS, id, &mut one);
    one.extend_from_slice(&fields);
    client.receive(&one).expect("a head");
    one.clear();
    frame::put_head(1, frame::DATA, 0, id, &mut one);
    one.push(b'x');
    client.receive(&one.repeat(40_000)).expect("within the window");
    assert!(matches!(client.poll_event(), Some(ClientEvent::Head { .. })));
    let mut lengths = Vec::new();
    while let Some(ClientEvent::Body { bytes, .. }) = client.poll_event() {
        lengths.push(bytes.len());
    }
    assert_eq!((lengths.iter().sum::<usize>(), lengths.len()), (40_000, 3));
}

#[test]
fn a_socket_that_never_takes_everything_leaves_no_trace_of_sent_octets() {
    let mut client = begun();
    let id = client.open(&block("/"), false).expect("room");
    let mut windows = Vec::new();
    frame::put_number(frame::WINDOW_UPDATE, 0, 1 << 30, &mut windows);
    frame::put_number(frame::WINDOW_UPDATE, id, 1 << 30, &mut windows);
    client.receive(&windows).expect("in order");
    for _ in 0..1000 {
        while client.output().len() < 64 * 1024 {
            assert_eq!(client.send_body(id, &[b'x'; 16_000], false), 16_000);
        }
        client.advance(20_000);
    }
    assert!(client.out.capacity() < 512 * 1024, "{}", client.out.capacity());
}

#[test]
fn a_server_may_open_its_windows_after_each_frame() {
    let mut client = begun();
    let id = client.open(&block("/upload"), false).expect("room");
    let body = vec![b'x'; frame::FRAME_SIZE];
    // A stream of small messages, and a long upload in full frames.
    for piece in [b"event", &body[..]] {
        for _ in 0..20_000 {
            let n = client.send_body(id, piece, false);
            assert_eq!(n, piece.len());
            client.advance(client.output().len());
            let mut windows = Vec::new();
            frame::put_number(frame::WINDOW_UPDATE, 0, n as u32, &mut windows);
            frame::put_number(frame::WINDOW_UPDATE, id, n as u32, &mut windows);
            client.receive(&windows).expect("no flood");
        }
    }
}
