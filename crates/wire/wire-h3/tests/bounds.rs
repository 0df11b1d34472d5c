//! Clients that break rules, or ask for more than they may.

mod pair;

use http_types::{Event, StreamMux, TakenLines};
use pair::{Echo, Pair, Random, Raw, World};
use quinn_proto::{Dir, StreamId};
use std::time::Duration;
use wire_h3::{ErrorCode, Limits, Server};

/// A control stream with empty settings.
const CONTROL: &[u8] = &[0, 4, 0];
/// HEADERS of `GET https://a/`, without the dynamic table.
const GET: &[u8] = &[1, 8, 0, 0, 0xd1, 0xd7, 0x50, 1, b'a', 0xc1];
/// HEADERS of `POST https://a/`.
const POST: &[u8] = &[1, 8, 0, 0, 0xd4, 0xd7, 0x50, 1, b'a', 0xc1];

fn connected(limits: Limits) -> Pair<Raw> {
    World::new(&limits).raw(limits)
}

fn server(pair: &mut Pair<Raw>) -> &mut Server {
    pair.server.as_mut().expect("a server")
}

fn settle(pair: &mut Pair<Raw>, echo: &mut Echo) {
    pair.run_for(Duration::from_millis(300), |server, _| echo.act(server));
}

/// The error that ends a connection on which these streams come: types of streams with their octets, and whether they end.
fn error_of(streams: &[(Dir, &[u8], bool)]) -> Option<ErrorCode> {
    let mut pair = connected(Limits::default());
    for (dir, bytes, end) in streams {
        pair.client.open(*dir, bytes, *end);
    }
    settle(&mut pair, &mut Echo::default());
    let code = server(&mut pair).failure().map(|error| error.code);
    assert_eq!(code.is_some(), pair.client.lost.is_some(), "the client is told");
    code
}

#[test]
fn rules_of_streams() {
    use Dir::{Bi, Uni};
    use ErrorCode as E;
    for (streams, code) in [
        (&[(Uni, CONTROL, false), (Bi, GET, true)][..], None),
        (&[(Bi, GET, true)], None),
        // A stream of a reserved type, and one that ends before its type.
        (&[(Uni, CONTROL, false), (Uni, b"\x21anything", true), (Uni, b"", true), (Uni, b"\x40", true)], None),
        (&[(Uni, CONTROL, true)], Some(E::ClosedCriticalStream)),
        (&[(Uni, b"\x02", true)], Some(E::ClosedCriticalStream)),
        (&[(Uni, b"\x03", true)], Some(E::ClosedCriticalStream)),
        (&[(Uni, CONTROL, false), (Uni, CONTROL, false)], Some(E::StreamCreation)),
        (&[(Uni, b"\x02", false), (Uni, b"\x02", false)], Some(E::StreamCreation)),
        (&[(Uni, b"\x01", false)], Some(E::StreamCreation)),
        (&[(Uni, b"\x00\x07\x01\x00", false)], Some(E::MissingSettings)),
        (&[(Uni, b"\x00\x04\x02\x02\x00", false)], Some(E::Settings)),
        (&[(Uni, b"\x02\x3f\xe2\x1f", false)], Some(E::EncoderStream)),
        (&[(Uni, b"\x02\x02", false)], Some(E::EncoderStream)),
        (&[(Uni, b"\x03\x01", false)], Some(E::DecoderStream)),
        (&[(Bi, b"\x00\x01x", true)], Some(E::FrameUnexpected)),
        (&[(Bi, b"\x04\x00", true)], Some(E::FrameUnexpected)),
        (&[(Bi, b"\x01\x03\x00\x00\xff", true)], Some(E::DecompressionFailed)),
        (&[(Bi, b"\x01\x80\x02\x00\x00\x00\x00", false)], Some(E::ExcessiveLoad)),
        // An index beyond the static table, a reference without a table.
        (&[(Bi, b"\x01\x04\x00\x00\xff\x30", true)], Some(E::DecompressionFailed)),
        (&[(Bi, b"\x01\x03\x00\x00\x80", true)], Some(E::DecompressionFailed)),
    ] {
        assert_eq!(error_of(streams), code, "{streams:x?}");
    }
}

#[test]
fn streams_that_end_in_their_heads_are_reset() {
    let mut pair = connected(Limits::default());
    let mut ids = Vec::new();
    for bytes in [&b""[..], b"\x01", &GET[..5], b"\x21\x00"] {
        ids.push(pair.client.open(Dir::Bi, bytes, true).expect("a stream"));
    }
    let mut echo = Echo::default();
    settle(&mut pair, &mut echo);
    for id in ids {
        assert_eq!(pair.client.resets.get(&u64::from(id)), Some(&0x10d), "H3_REQUEST_INCOMPLETE");
    }
    assert_eq!((echo.heads, server(&mut pair).streams()), (0, 0));
}

#[test]
fn streams_that_are_reset_in_their_heads_are_answered_with_400() {
    let mut pair = connected(Limits::default());
    let mut echo = Echo::default();
    // A head that has not come whole, and one that waits for the table.
    for bytes in [&GET[..5], &[1, 8, 2, 0, 0xd1, 0xd7, 0x50, 1, b'a', 0x80]] {
        let id = pair.client.open(Dir::Bi, bytes, false).expect("a stream");
        settle(&mut pair, &mut echo);
        pair.client.reset_sending(id);
        settle(&mut pair, &mut echo);
        let (answer, is_whole) = &pair.client.read[&u64::from(id)];
        assert!(*is_whole && answer.first() == Some(&1), "{answer:x?}");
        assert_eq!(server(&mut pair).answered(), 0, "it allows no further reset");
    }
    assert_eq!((echo.heads, server(&mut pair).streams()), (2, 0));
}

#[test]
fn a_reference_to_an_evicted_entry_ends_the_connection() {
    let mut pair = connected(Limits::default());
    let mut echo = Echo::default();
    // A capacity of 64 octets, and two entries of 39: the first one is evicted.
    pair.client.open(Dir::Uni, b"\x02\x3f\x21\xc1\x02/x\xc1\x02/y", false);
    // Required Insert Count 1, Base 1: the first entry.
    pair.client.open(Dir::Bi, &[1, 8, 2, 0, 0xd1, 0xd7, 0x50, 1, b'a', 0x80], true);
    settle(&mut pair, &mut echo);
    let server = server(&mut pair);
    assert_eq!(server.failure().map(|e| e.code), Some(ErrorCode::DecompressionFailed));
    assert_eq!((echo.heads, server.streams()), (0, 0));
}

/// Takes a request's body to its end; `length`: its `content-length`.
fn body(frames: &[u8], length: Option<u64>) -> (Vec<u8>, TakenLines) {
    let mut pair = connected(Limits::default());
    let (mut all, mut last) = (Vec::new(), TakenLines::Later);
    pair.client.open(Dir::Bi, &[POST, frames].concat(), true);
    pair.run_for(Duration::from_millis(300), |server, _| {
        while let Some(event) = server.poll_event() {
            if let (Event::Head { stream, .. }, Some(length)) = (event, length) {
                server.promise(stream, length);
            }
        }
        loop {
            match StreamMux::take_body(server, 0) {
                TakenLines::Bytes(bytes) => all.extend_from_slice(&bytes),
                taken => {
                    last = taken;
                    break;
                }
            }
        }
    });
    (all, last)
}

#[test]
fn bodies_are_as_long_as_they_say() {
    assert_eq!(body(b"\x00\x03abc\x00\x00\x21\x01x\x00\x01d", None), (b"abcd".to_vec(), TakenLines::End));
    assert_eq!(body(b"\x00\x03abc", Some(3)), (b"abc".to_vec(), TakenLines::End));
    assert_eq!(body(b"", None), (Vec::new(), TakenLines::End), "an end alone");
    // An end alone behind a length that promises more: a request of HTTP/1 behind us would wait for the next one's octets.
    assert_eq!(body(b"", Some(10)).1, TakenLines::Broken);
    assert_eq!(body(b"\x00\x03abc", Some(4)).1, TakenLines::Broken);
    assert_eq!(body(b"\x00\x03abc", Some(2)).1, TakenLines::Broken);
    assert_eq!(body(b"\x00\x08abc", None).1, TakenLines::Broken, "a frame that is cut");
    // Trailers, and trailers that are a head.
    assert_eq!(body(b"\x00\x01a\x01\x08\x00\x00\x23xyz\x01z", None), (b"a".to_vec(), TakenLines::End));
    assert_eq!(body(b"\x00\x01a\x01\x03\x00\x00\xd1", None).1, TakenLines::Gone);
}

#[test]
fn unread_bodies_stay_within_their_windows() {
    let limits = Limits { streams_max: 4, stream_window: 8192, ..Limits::default() };
    let mut pair = connected(limits);
    let frame = [&[0, 0x80, 0x10, 0, 0][..], &[b'x'; 4000]].concat();
    let ids: Vec<StreamId> = (0..4).filter_map(|_| pair.client.open(Dir::Bi, POST, false)).collect();
    assert_eq!(ids.len(), 4);
    assert!(pair.client.open(Dir::Bi, POST, false).is_none(), "more streams than the limit");
    let mut written = 0;
    pair.run_for(Duration::from_secs(2), |_, client| {
        for id in &ids {
            written += client.write(*id, &frame, false);
        }
    });
    // In addition to the window, a packet that arrived with the head.
    assert!((4 * 8192..=4 * (8192 + 1500)).contains(&written), "{written}");
}

#[test]
fn clients_that_do_not_read_hold_little() {
    let limits = Limits { streams_max: 8, ..Limits::default() };
    let mut transport = quinn_proto::TransportConfig::default();
    transport.stream_receive_window(1000u32.into());
    let mut pair = World::with_transport(&limits, transport).raw(limits);
    pair.client.deaf = true;
    // `:path` is `/size/9999999`.
    let path = b"/size/9999999";
    let get = [&[1, 22, 0, 0, 0xd1, 0xd7, 0x50, 1, b'a', 0x51, 13][..], path].concat();
    for _ in 0..8 {
        pair.client.open(Dir::Bi, &get, true);
    }
    let mut echo = Echo::default();
    pair.run_for(Duration::from_secs(5), |server, _| echo.act(server));
    assert_eq!(echo.heads, 8);
    let server = server(&mut pair);
    // The last stream to pass the connection's limit, and the least that each stream may queue.
    assert!(server.unsent() <= (512 + 64) * 1024 + 8 * (16 * 1024 + 100), "{}", server.unsent());
    assert!((1..=8 * 1100).contains(&server.passed()), "{}", server.passed());
    assert!(!server.is_idle());
}

#[test]
fn floods_of_resets_end_the_connection() {
    let mut pair = connected(Limits::default());
    let mut echo = Echo::default();
    for round in 0..100 {
        for _ in 0..10 {
            if let Some(id) = pair.client.open(Dir::Bi, POST, false) {
                pair.client.reset(id);
            }
        }
        pair.run_for(Duration::from_millis(50), |server, _| echo.act(server));
        if pair.client.lost.is_some() {
            assert!(round >= 15, "round {round}");
            break;
        }
    }
    assert_eq!(server(&mut pair).failure().map(|e| e.code), Some(ErrorCode::ExcessiveLoad));
}

#[test]
fn a_client_may_end_any_number_of_subscriptions() {
    let mut pair = connected(Limits::default());
    let mut echo = Echo::default();
    for _ in 0..400 {
        let id = pair.client.open(Dir::Bi, POST, false).expect("room");
        settle(&mut pair, &mut echo);
        server(&mut pair).send_head(id.into(), 200, &mut std::iter::empty(), false);
        settle(&mut pair, &mut echo);
        pair.client.reset(id);
        settle(&mut pair, &mut echo);
    }
    assert!(pair.client.lost.is_none());
    assert!(server(&mut pair).failure().is_none());
}

#[test]
fn octets_that_bring_nothing_end_the_connection() {
    // Empty DATA frames, reserved frames of a control stream, priorities, push ids, one setting of capacity after the other.
    for (dir, begin, again) in [
        (Dir::Bi, POST, &[0u8, 0][..]),
        (Dir::Uni, CONTROL, &[0x21, 0]),
        (Dir::Uni, CONTROL, b"\x80\x0f\x07\x00\x02\x00\x00"),
        (Dir::Uni, CONTROL, b"\x0d\x01\x05"),
        (Dir::Uni, b"\x02", &[0x20]),
    ] {
        let mut pair = connected(Limits::default());
        let mut echo = Echo::default();
        let id = pair.client.open(dir, begin, false).expect("a stream");
        let many = again.repeat(7 * 8192);
        let (mut at, mut sent) = (0, 0);
        pair.run(|server, client| {
            let n = client.write(id, &many[at..], false);
            at = (at + n) % many.len();
            sent += n;
            echo.act(server);
            client.lost.is_some()
        });
        assert_eq!(server(&mut pair).failure().map(|e| e.code), Some(ErrorCode::ExcessiveLoad), "{again:x?}");
        assert!((8 << 20..10 << 20).contains(&sent), "{sent}");
    }
}

#[test]
fn sections_wait_for_the_table_up_to_a_number() {
    let mut pair = connected(Limits::default());
    let mut echo = Echo::default();
    // Required Insert Count 1: the path is the first entry.
    let waits = [1, 8, 2, 0, 0xd1, 0xd7, 0x50, 1, b'a', 0x80];
    let ids: Vec<StreamId> = (0..16).filter_map(|_| pair.client.open(Dir::Bi, &waits, true)).collect();
    settle(&mut pair, &mut echo);
    assert_eq!((echo.heads, server(&mut pair).streams()), (0, 16));
    assert!(StreamMux::is_within_head(server(&mut pair)) && server(&mut pair).is_idle());
    // `:path: /x` comes: all of them go on.
    pair.client.open(Dir::Uni, b"\x02\x3f\xe1\x1f\xc1\x02/x", false);
    settle(&mut pair, &mut echo);
    assert_eq!(echo.heads, 16);
    assert!(ids.iter().all(|id| pair.client.read[&u64::from(*id)].1), "answered to their ends");
    // The decoder's stream: its type and 16 acknowledgments, which tell of the insertion, too.
    let decoder: Vec<&Vec<u8>> =
        pair.client.read.iter().filter(|(id, _)| **id % 4 == 3).map(|(_, (bytes, _))| bytes).collect();
    assert!(decoder.iter().any(|bytes| bytes.first() == Some(&3) && bytes.len() == 17), "{decoder:x?}");

    let mut pair = connected(Limits::default());
    for _ in 0..17 {
        pair.client.open(Dir::Bi, &waits, true);
    }
    settle(&mut pair, &mut echo);
    assert_eq!(server(&mut pair).failure().map(|e| e.code), Some(ErrorCode::DecompressionFailed));
}

#[test]
fn heads_that_take_too_long_are_given_up() {
    let mut pair = connected(Limits::default());
    let mut echo = Echo::default();
    let mut open = || pair.client.open(Dir::Bi, &GET[..5], false).expect("a stream");
    let ids = [open(), open(), open()];
    settle(&mut pair, &mut echo);
    let server = server(&mut pair);
    assert!(server.is_within_head() && server.is_idle());
    assert!(server.give_up_head() && !server.give_up_head());
    settle(&mut pair, &mut echo);
    for id in ids {
        assert_eq!(pair.client.resets.get(&u64::from(id)), Some(&0x101));
    }
    assert_eq!(echo.resets, 0, "the driver did not know of it");
}

/// Streams of random frames in random places: no panic, no stream beyond the limit, and no memory beyond the bounds.
#[test]
fn connections_from_seeds() {
    for seed in 1..300u64 {
        let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let limits = Limits { streams_max: 4, stream_window: 2048, ..Limits::default() };
        let mut pair = connected(limits);
        let mut echo = Echo::default();
        let mut open: Vec<StreamId> = Vec::new();
        for _ in 0..30 {
            let mut bytes = match random.below(8) {
                0 => CONTROL.to_vec(),
                1 => b"\x02\x3f\xe1\x1f\xc1\x02/x".to_vec(),
                2 => b"\x03".to_vec(),
                3 => vec![1, 8, 2, 0, 0xd1, 0xd7, 0x50, 1, b'a', 0x80],
                4 => [GET, &[1, 3, 0, 0, 0xd1]].concat(),
                _ => [POST, &[0, 5], b"hello"].concat(),
            };
            for _ in 0..random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
            match random.below(4) {
                0 => open.extend(pair.client.open(Dir::Uni, &bytes, random.below(8) == 0)),
                1 if !open.is_empty() => {
                    let id = open[random.below(open.len() as u64) as usize];
                    pair.client.write(id, &bytes, random.below(3) == 0);
                }
                2 if !open.is_empty() => {
                    let id = open.swap_remove(random.below(open.len() as u64) as usize);
                    pair.client.reset(id);
                }
                _ => open.extend(pair.client.open(Dir::Bi, &bytes, random.below(2) == 0)),
            }
            pair.run_for(Duration::from_millis(random.below(30)), |server, _| echo.act(server));
            let server = server(&mut pair);
            assert!(server.streams() <= 4 && server.unsent() <= 4 * 65_600, "seed {seed}");
            if server.failure().is_some() {
                break;
            }
        }
    }
}
