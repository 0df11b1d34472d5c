//! Bodies of the fuzz targets; each also runs with a seed in `cargo test`.

use crate::hpack::{Decoder, Encoder};
use crate::{Client, ClientEvent, ClientLimits, PREFACE, Server, ServerLimits};
use http_types::{Event, ListLimits, StreamMux, TakenLines};
use std::collections::BTreeMap;

/// Panics unless a decoded header block encodes to an equal one.
pub fn hpack(bytes: &[u8]) {
    let limits = ListLimits { bytes_max: 8192, fields_max: 100, field_max: 4096 };
    let (mut decoder, mut encoder, mut back) = (Decoder::default(), Encoder::default(), Decoder::default());
    for block in bytes.split(|octet| *octet == 0xff) {
        let Ok(list) = decoder.decode(block, &limits) else { return };
        assert!(list.arena.len() <= limits.bytes_max && list.fields.len() <= limits.fields_max);
        assert!(decoder.table_size() <= crate::hpack::TABLE_SIZE_DEFAULT);
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for (name, value) in list.iter() {
            encoder.field(name, value, &mut out);
        }
        let Ok(again) = back.decode(&out, &limits) else { panic!("our own block is refused") };
        assert!(again.iter().eq(list.iter()));
    }
}

/// Panics when a server exceeds its bounds, or its events depend on how octets are cut.
pub fn server(bytes: &[u8]) {
    let whole = events(bytes, bytes.len().max(1));
    for size in [1, 7, 64] {
        assert_eq!(events(bytes, size), whole, "cut into pieces of {size}");
        answer(bytes, size);
    }
}

const LIMITS: ServerLimits = ServerLimits {
    extended_connect: true,
    streams_max: 4,
    list_max: 32 * 1024,
    field_max: 8 * 1024,
    fields_max: 1000,
    underscores: false,
    ignore_invalid: true,
    stream_window: 1000,
};

fn events(bytes: &[u8], size: usize) -> (Vec<String>, Vec<u8>) {
    let mut server = Server::new(LIMITS);
    let mut all = Vec::new();
    for piece in PREFACE.chunks(size).chain(bytes.chunks(size)) {
        let failed = server.receive(piece).is_err();
        while let Some(event) = server.poll_event() {
            all.push(format!("{event:?}"));
        }
        if failed {
            break;
        }
    }
    (all, server.output().to_vec())
}

fn answer(bytes: &[u8], size: usize) {
    let mut server = Server::new(LIMITS);
    for piece in PREFACE.chunks(size).chain(bytes.chunks(size)) {
        let failed = server.receive(piece).is_err();
        while let Some(event) = server.poll_event() {
            match event {
                Event::Head { stream, message, .. } => {
                    let status = if message.is_ok() { 200 } else { 400 };
                    StreamMux::send_head(
                        &mut server,
                        stream,
                        status,
                        &mut [(&b"server"[..], &b"x"[..])].into_iter(),
                        false,
                    );
                }
                Event::Body(stream) | Event::Capacity(stream) => loop {
                    match StreamMux::take_body(&mut server, stream) {
                        TakenLines::Bytes(bytes) => assert!(bytes.len() <= 16_384),
                        TakenLines::End => {
                            StreamMux::send_body(&mut server, stream, b"done", 8192, true);
                            StreamMux::finish(&mut server, stream);
                            break;
                        }
                        _ => break,
                    }
                },
                Event::Reset(stream) => assert!(StreamMux::capacity(&mut server, stream).is_none()),
                Event::Goaway => server.shutdown(),
            }
        }
        assert!(server.streams() <= 4);
        server.advance(server.output().len());
        if failed {
            break;
        }
    }
}

/// Panics when a client exceeds its bounds, or its events depend on how octets are cut.
pub fn client(bytes: &[u8]) {
    let whole = seen(bytes, bytes.len().max(1), false);
    for size in [1, 7, 64] {
        assert_eq!(seen(bytes, size, false), whole, "cut into pieces of {size}");
        seen(bytes, size, true);
    }
}

/// Events of a stream. Adjacent parts of a body are one, because an event may cover several frames.
#[derive(Debug, Default, PartialEq, Eq)]
struct StreamEvents {
    others: Vec<String>,
    body: Vec<u8>,
    /// Octets of the body's frames, and whether the last one ended the stream.
    frames: (usize, bool),
}

impl StreamEvents {
    fn add(&mut self, event: &ClientEvent) {
        if let ClientEvent::Body { bytes, end, octets, .. } = event {
            self.body.extend_from_slice(bytes);
            self.frames = (self.frames.0 + octets, *end);
        } else {
            let (body, frames) = (std::mem::take(&mut self.body), std::mem::take(&mut self.frames));
            self.others.push(format!("{body:?} {frames:?} {event:?}"));
        }
    }
}

/// Returns the events by stream, those of the connection as stream 0. `acts`: takes and sends bodies; the result then
/// depends on the pieces.
fn seen(bytes: &[u8], size: usize, acts: bool) -> BTreeMap<u32, StreamEvents> {
    let limits = ClientLimits {
        streams_max: 4,
        list_max: 32 * 1024,
        field_max: 8 * 1024,
        fields_max: 100,
        stream_window: 1000,
        // As in the load generator, with a table.
        table: if acts { 4096 } else { 0 },
        count_bodies: acts && size == 7,
        ..ClientLimits::default()
    };
    let mut client = Client::new(limits);
    let mut block = Vec::new();
    Encoder::stateless().field(b":method", b"POST", &mut block);
    let streams: Vec<u32> = (0..5).filter_map(|n| client.open(&block, n % 2 == 0)).collect();
    assert!(streams.len() == 4, "more streams than the limit");
    let mut all = BTreeMap::<u32, StreamEvents>::new();
    for piece in bytes.chunks(size) {
        let failed = client.receive(piece).is_err();
        while let Some(event) = client.poll_event() {
            all.entry(stream_of(&event)).or_default().add(&event);
            match event {
                _ if !acts => {}
                ClientEvent::Body { stream, bytes, .. } => {
                    assert!(bytes.len() <= 1000, "more than the window");
                    client.consumed(stream, bytes.len());
                }
                ClientEvent::Capacity(stream) => {
                    client.send_body(stream, &[b'x'; 100], false);
                }
                ClientEvent::Reset { stream, .. } => client.forget(stream),
                _ => {}
            }
        }
        assert!(client.output().len() <= 2 * 1024 * 1024, "answers without an end");
        client.advance(client.output().len());
        if failed {
            break;
        }
    }
    all
}

fn stream_of(event: &ClientEvent) -> u32 {
    match event {
        ClientEvent::Head { stream, .. }
        | ClientEvent::Body { stream, .. }
        | ClientEvent::Counted { stream, .. }
        | ClientEvent::Trailers { stream, .. }
        | ClientEvent::Reset { stream, .. }
        | ClientEvent::Capacity(stream) => *stream,
        ClientEvent::Goaway => 0,
    }
}

#[cfg(test)]
mod tests {
    fn frames(seed: u64) -> Vec<u8> {
        let mut random = testkit::Random::new(seed);
        let mut next = move |below: u64| random.below(below as usize) as u64;
        let mut out = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
        for _ in 0..1 + next(20) {
            let kind = next(11) as u8;
            let payload: Vec<u8> = match kind {
                1 => [&[0x82, 0x87, 0x84, 0x41, 0x01, b'h'][..], &vec![0x86; next(3) as usize]].concat(),
                8 | 3 => (next(70_000) as u32).to_be_bytes().to_vec(),
                4 => (0..next(3)).flat_map(|_| [0, next(7) as u8, 0, 0, next(256) as u8, next(256) as u8]).collect(),
                _ => (0..next(40)).map(|_| next(256) as u8).collect(),
            };
            let flags = [0, 1, 4, 5, 8, 32][next(6) as usize];
            crate::frame::put_head(payload.len(), kind, flags, [0, 1, 1, 3, 5, 7, 2][next(7) as usize], &mut out);
            out.extend_from_slice(&payload);
        }
        out
    }

    #[test]
    fn connections_from_seeds() {
        for seed in 1..20_000u64 {
            super::server(&frames(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        }
    }

    #[test]
    fn servers_from_seeds() {
        for seed in 1..20_000u64 {
            super::client(&frames(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        }
    }

    #[test]
    fn blocks_from_seeds() {
        let mut random = testkit::Random::new(1);
        for _ in 0..20_000 {
            super::hpack(&random.octets(64));
        }
    }
}
