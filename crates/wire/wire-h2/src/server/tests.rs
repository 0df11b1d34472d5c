//! Tests of the server side: bounds on a client, and faults of its frames.

use crate::frame::{self, END_HEADERS, END_STREAM};
use crate::hpack::Encoder;
use crate::{PREFACE, Server, ServerLimits};
use http_types::{Event, TakenLines};

#[test]
fn a_large_frame_is_passed_on_before_it_is_whole_and_kept_nowhere() {
    let mut block = Vec::new();
    for (name, value) in [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")] {
        Encoder::stateless().field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    let body = vec![b'x'; 60_000];
    let mut bytes = PREFACE.to_vec();
    frame::put_head(0, frame::SETTINGS, 0, 0, &mut bytes);
    frame::put_head(0, frame::SETTINGS, frame::ACK, 0, &mut bytes);
    frame::put_head(block.len(), frame::HEADERS, END_HEADERS, 1, &mut bytes);
    bytes.extend_from_slice(&block);
    frame::put_head(body.len(), frame::DATA, END_STREAM, 1, &mut bytes);
    bytes.extend_from_slice(&body);
    for step in [1000, 33_333, 100_000] {
        let mut server = Server::new(ServerLimits::default());
        let mut received = 0;
        for part in bytes.chunks(step) {
            server.receive(part).expect("in order");
            assert!(server.pending.len() < 1000, "{step}");
            while let Some(event) = server.poll_event() {
                assert!(matches!(event, Event::Head { end: false, .. } | Event::Body(1)), "{event:?}");
            }
            while let TakenLines::Bytes(piece) = server.take_body(1) {
                received += piece.len();
            }
        }
        assert_eq!((received, server.take_body(1)), (body.len(), TakenLines::End), "{step}");
    }
}

fn with_upload() -> Server {
    let mut block = Vec::new();
    for (name, value) in [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")] {
        Encoder::stateless().field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    let mut bytes = PREFACE.to_vec();
    frame::put_head(0, frame::SETTINGS, 0, 0, &mut bytes);
    frame::put_head(0, frame::SETTINGS, frame::ACK, 0, &mut bytes);
    frame::put_head(block.len(), frame::HEADERS, END_HEADERS, 1, &mut bytes);
    bytes.extend_from_slice(&block);
    let mut server = Server::new(ServerLimits::default());
    server.receive(&bytes).expect("in order");
    assert!(matches!(server.poll_event(), Some(Event::Head { .. })));
    let written = server.unsent();
    server.advance(written);
    server
}
fn octets(n: usize) -> Vec<u8> {
    let mut one = Vec::new();
    frame::put_head(1, frame::DATA, 0, 1, &mut one);
    one.push(b'x');
    one.repeat(n)
}

#[test]
fn frames_of_one_octet_become_large_pieces_and_one_event() {
    let mut server = with_upload();
    server.receive(&octets(50_000)).expect("within the window");
    assert!(matches!(server.poll_event(), Some(Event::Body(1))));
    assert!(server.poll_event().is_none(), "one event for a waiting reader");
    let mut pieces = Vec::new();
    while let TakenLines::Bytes(piece) = server.take_body(1) {
        pieces.push(piece.len());
    }
    assert_eq!((pieces.iter().sum::<usize>(), pieces.len()), (50_000, 4), "{pieces:?}");
}

#[test]
fn frames_of_one_octet_are_a_flood_in_the_end() {
    let mut server = with_upload();
    let part = octets(10_000);
    let result = (0..1000).try_for_each(|_| {
        let done = server.receive(&part);
        while let TakenLines::Bytes(_) = server.take_body(1) {}
        while server.poll_event().is_some() {}
        done
    });
    assert_eq!(result.expect_err("a flood").words, "http2 flood detected");
}

#[test]
fn a_frame_without_room_for_its_fields_has_a_wrong_size() {
    const PADDED: u8 = frame::PADDED | END_HEADERS | END_STREAM;
    const BOTH: u8 = PADDED | frame::WITH_PRIORITY;
    let cases: [(u8, u8, &[u8], &str); 7] = [
        (frame::DATA, frame::PADDED, &[], "FrameSize"),
        (frame::DATA, frame::PADDED, &[2, 0], "Protocol"),
        (frame::HEADERS, PADDED, &[], "FrameSize"),
        (frame::HEADERS, PADDED, &[1], "Protocol"),
        (frame::HEADERS, BOTH, &[0, 0, 0, 0, 0], "FrameSize"),
        (frame::HEADERS, BOTH, &[1, 0, 0, 0, 0, 0], "Protocol"),
        (frame::HEADERS, BOTH, &[0, 0, 0, 0, 3, 0], "Protocol"),
    ];
    for (kind, flags, payload, code) in cases {
        let mut bytes = Vec::new();
        let stream = if kind == frame::DATA { 1 } else { 3 };
        frame::put_head(payload.len(), kind, flags, stream, &mut bytes);
        bytes.extend_from_slice(payload);
        let error = with_upload().receive(&bytes).expect_err("a wrong frame");
        assert_eq!(format!("{:?}", error.code), code, "{kind} {flags} {payload:?}");
    }
}

#[test]
fn settings_count_as_what_they_cost() {
    let mut server = with_upload();
    let mut one = Vec::new();
    frame::put_head(2700 * 6, frame::SETTINGS, 0, 0, &mut one);
    one.extend_from_slice(&[0, 4, 0, 0, 255, 255].repeat(2700));
    let taken = (0..100).take_while(|_| server.receive(&one).is_ok() && !server.failed).count();
    assert_eq!(taken, 29, "IDLE_FRAMES_MAX, at 338 for each");
}

#[test]
fn octets_on_the_wire_count_every_frame() {
    let mut server = with_upload();
    server.send_head(1, 200, std::iter::empty(), false);
    let sent = http_types::StreamMux::send_body(&mut server, 1, &[b'x'; 20_000], 8192, true);
    assert_eq!((sent.taken, sent.octets), (20_000, 20_000 + 3 * frame::HEADER));
}

#[test]
fn a_reset_behind_an_answer_has_a_write_of_its_own() {
    let mut server = with_upload();
    server.send_head(1, 403, std::iter::empty(), false);
    server.send_body(1, b"no", 8192, true);
    server.finish(1);
    let answer = server.output().to_vec();
    let rest = server.unsent() - answer.len();
    assert_eq!((&answer[answer.len() - 2..], rest), (&b"no"[..], frame::HEADER + 4));
    server.advance(answer.len());
    let reset = frame::Head::read(server.output()).expect("a frame");
    assert_eq!((reset.kind, reset.stream, server.output().len()), (frame::RST_STREAM, 1, rest));
    server.advance(rest);
    assert!(server.output().is_empty() && server.unsent() == 0);
}

#[test]
fn a_socket_that_never_takes_everything_leaves_no_trace_of_sent_octets() {
    let mut server = with_upload();
    let mut windows = Vec::new();
    frame::put_number(frame::WINDOW_UPDATE, 0, 1 << 30, &mut windows);
    frame::put_number(frame::WINDOW_UPDATE, 1, 1 << 30, &mut windows);
    server.receive(&windows).expect("in order");
    server.send_head(1, 200, std::iter::empty(), false);
    let (piece, mut sent) = ([b'x'; 16_000], Vec::new());
    for _ in 0..1000 {
        while server.unsent() < 64 * 1024 {
            assert_eq!(server.send_body(1, &piece, 8192, false), piece.len());
        }
        let part = server.output()[..20_000].to_vec();
        server.advance(part.len());
        sent.extend_from_slice(&part);
    }
    assert!(server.out.capacity() < 512 * 1024, "{}", server.out.capacity());
    let rest = server.output().to_vec();
    sent.extend_from_slice(&rest);
    server.advance(rest.len());
    let (mut at, mut body) = (0, 0);
    while let Some(head) = frame::Head::read(&sent[at..]) {
        body += if head.kind == frame::DATA { head.length } else { 0 };
        at += frame::HEADER + head.length;
    }
    assert_eq!((at, body % piece.len(), server.unsent()), (sent.len(), 0, 0));
}

#[test]
fn a_separate_write_survives_the_removal_of_sent_octets() {
    let mut server = with_upload();
    server.send_head(1, 403, std::iter::empty(), false);
    server.send_body(1, &[b'x'; 1000], 8192, true);
    server.finish(1);
    let answer = server.output().len();
    let rest = server.unsent() - answer;
    server.advance(answer - 10);
    assert_eq!((server.out_start, server.output().len()), (0, 10));
    server.advance(10);
    let reset = frame::Head::read(server.output()).expect("a frame");
    assert_eq!((reset.kind, server.output().len()), (frame::RST_STREAM, rest));
}

#[test]
fn a_waiting_connection_keeps_no_memory_of_written_octets() {
    let mut server = with_upload();
    server.send_head(1, 200, std::iter::empty(), false);
    let body = vec![b'x'; 100_000];
    assert_eq!(server.send_body(1, &body, 8192, false), 65_535, "the window");
    // The socket takes nearly everything.
    server.advance(server.unsent() - 1000);
    server.release_written();
    assert_eq!((server.unsent(), server.out.capacity()), (1000, 1000));
    server.advance(1000);
    let mut window = Vec::new();
    frame::put_number(frame::WINDOW_UPDATE, 0, 65_535, &mut window);
    frame::put_number(frame::WINDOW_UPDATE, 1, 65_535, &mut window);
    server.receive(&window).expect("in order");
    // The socket takes everything, and the client has to open its window.
    assert_eq!(server.send_body(1, &body[65_535..], 8192, false), 34_465);
    server.advance(server.unsent());
    assert!(server.out.capacity() > 34_465, "the stream may go on at once");
    assert_eq!(server.send_body(1, &body, 8192, false), 31_070);
    server.advance(server.unsent());
    assert_eq!(server.out.capacity(), 0);
}

fn windows(by: u32) -> Vec<u8> {
    let mut frames = Vec::new();
    frame::put_number(frame::WINDOW_UPDATE, 0, by, &mut frames);
    frame::put_number(frame::WINDOW_UPDATE, 1, by, &mut frames);
    frames
}

#[test]
fn a_client_may_acknowledge_each_small_piece() {
    let mut server = with_upload();
    server.send_head(1, 200, std::iter::empty(), false);
    for _ in 0..20_000 {
        assert_eq!(server.send_body(1, b"event", 8192, false), 5);
        server.advance(server.unsent());
        server.receive(&windows(5)).expect("no flood");
    }
}

#[test]
fn windows_that_open_octet_by_octet_are_a_flood() {
    let mut server = with_upload();
    server.send_head(1, 200, std::iter::empty(), false);
    let body = vec![b'x'; 100_000];
    assert_eq!(server.send_body(1, &body, 8192, false), 65_535, "the window");
    let result = (0..6000).try_for_each(|_| {
        server.receive(&windows(1))?;
        assert_eq!(server.send_body(1, &body, 8192, false), 1);
        server.advance(server.unsent());
        Ok::<_, crate::ConnectionError>(())
    });
    assert_eq!(result.expect_err("a flood").words, "http2 flood detected");
}

/// HEADERS of a request without a body.
fn request(stream: u32) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")] {
        Encoder::stateless().field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    let mut bytes = Vec::new();
    frame::put_head(block.len(), frame::HEADERS, END_HEADERS | END_STREAM, stream, &mut bytes);
    bytes.extend_from_slice(&block);
    bytes
}

#[test]
fn a_client_may_end_any_number_of_subscriptions() {
    let reset_all = |answered: bool| {
        let mut server = with_upload();
        (1..1000).try_for_each(|n| {
            let id = 2 * n + 1;
            server.receive(&request(id))?;
            if answered {
                server.send_head(id, 200, std::iter::empty(), false);
                assert_eq!(server.send_body(id, b"event", 8192, false), 5);
            }
            server.advance(server.unsent());
            let mut reset = Vec::new();
            frame::put_number(frame::RST_STREAM, id, 8, &mut reset);
            server.receive(&reset)
        })
    };
    assert!(reset_all(true).is_ok());
    assert_eq!(reset_all(false).expect_err("a flood").words, "http2 flood detected");
}

#[test]
fn a_block_that_becomes_too_large_is_refused_by_a_frames_head() {
    for (kind, code) in
        [(frame::CONTINUATION, crate::ErrorCode::EnhanceYourCalm), (frame::DATA, crate::ErrorCode::Protocol)]
    {
        let mut server = Server::new(ServerLimits::default());
        let mut bytes = PREFACE.to_vec();
        frame::put_head(0, frame::SETTINGS, 0, 0, &mut bytes);
        frame::put_head(100_000, frame::HEADERS, 0, 1, &mut bytes);
        bytes.resize(bytes.len() + 100_000, 0x82);
        server.receive(&bytes).expect("half of a block");
        let mut head = Vec::new();
        frame::put_head(100_000, kind, 0, 1, &mut head);
        let failed = server.receive(&head).expect_err("no octet of its payload is kept");
        assert_eq!(failed.code as u32, code as u32);
    }
}
