//! An HTTP/2 client that can send any frame.

use http_types::ListLimits;
use std::io::{Read, Write};
use std::net::TcpStream;
use wire_h2::PREFACE;
use wire_h2::hpack::{Decoder, Encoder};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A client that can send any frame.
pub struct Client {
    pub stream: TcpStream,
    pub encoder: Encoder,
    pub decoder: Decoder,
}

impl Client {
    pub fn connect(port: u16) -> Client {
        Client::over(TcpStream::connect(("127.0.0.1", port)).expect("connected"))
    }
    pub fn over(mut stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
        stream.write_all(PREFACE).expect("sent");
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).expect("sent");
        Client { stream, encoder: Encoder::default(), decoder: Decoder::default() }
    }
    pub fn block(&mut self, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        self.encoder.begin(&mut out);
        let usual = [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "a")];
        for (name, value) in usual.iter().chain(more) {
            self.encoder.field(name.as_bytes(), value.as_bytes(), &mut out);
        }
        out
    }
    pub fn ask(&mut self, stream: u32, path: &str) {
        let block = self.block(path, &[]);
        self.send(&frame(HEADERS, 5, stream, &block));
    }
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("sent");
    }
    /// `None` at the end.
    pub fn next(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).ok()?;
        Some((head[3], head[4], u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]), payload))
    }
    /// Returns status and body of a stream's response; ignores other frames.
    pub fn answer(&mut self, stream: u32) -> (String, Vec<u8>) {
        let (mut status, mut body) = (String::new(), Vec::new());
        let limits = ListLimits { bytes_max: 65_536, fields_max: 100, field_max: 65_536 };
        while let Some((kind, flags, id, payload)) = self.next() {
            if kind == HEADERS {
                let list = self.decoder.decode(&payload, &limits).expect("a block");
                if id == stream {
                    status = list.iter().find(|(n, _)| *n == b":status").map_or(String::new(), |(_, v)| super::text(v));
                }
            }
            if id == stream && kind == DATA {
                body.extend_from_slice(&payload);
            }
            if id == stream && (kind == RST_STREAM || flags & 1 != 0) {
                return (status, body);
            }
        }
        panic!("the connection ended before stream {stream}: {status}");
    }
    /// Checks that the connection ends afterwards.
    pub fn goaway(&mut self) -> u32 {
        let mut code = u32::MAX;
        while let Some((kind, _, _, payload)) = self.next() {
            if kind == GOAWAY {
                code = u32::from_be_bytes(payload[4..8].try_into().expect("a number"));
            }
        }
        code
    }
}
