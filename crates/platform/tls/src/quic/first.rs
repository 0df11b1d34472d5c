//! Reads the ClientHello of a client without a connection. Decrypts Initial packets with their public keys (RFC 9001,
//! 5.2), because `quinn-proto` exposes no content before a connection exists.

use super::VERSION;
use super::path::read_varint;
use crate::hello::{Peek, peek_message};
use rustls::Side;
use rustls::quic::Keys;

/// [`VERSION`] in long headers.
const VERSION_1: [u8; 4] = [0, 0, 0, 1];
const LONG_HEADER: u8 = 0x80;
const TYPE: u8 = 0x30;
/// Octets from the start of the packet number to the sample of header protection, and octets of the sample (RFC 9001,
/// 5.4.2).
const SAMPLE_AT: usize = 4;
const SAMPLE_BYTES: usize = 16;
/// Maximum number of out-of-order pieces of a ClientHello. Browsers shuffle about a dozen.
const PIECES_MAX: usize = 64;
/// Maximum stored octets of a flight. Browsers' ClientHellos have about 2,000.
const FLIGHT_MAX: usize = 16 * 1024;

const PADDING: u64 = 0x00;
const PING: u64 = 0x01;
const ACK: u64 = 0x02;
const ACK_ECN: u64 = 0x03;
const CRYPTO: u64 = 0x06;

/// The first flight of a client.
pub struct FirstFlight {
    keys: Keys,
    id: Vec<u8>,
    /// Octets of the message up to the first gap.
    message: Vec<u8>,
    /// Offsets and octets of pieces after a gap.
    pieces: Vec<(usize, Vec<u8>)>,
}

/// Header of an Initial packet; `number_at` and `end` are the offsets of the packet number and of the packet's end.
struct Initial<'a> {
    id: &'a [u8],
    number_at: usize,
    end: usize,
}

fn number(r: &mut &[u8]) -> Option<usize> {
    usize::try_from(read_varint(r)?).ok()
}

fn take<'a>(r: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, rest) = r.split_at_checked(n)?;
    *r = rest;
    Some(head)
}

/// Reads a long header. Returns `None` unless the packet is an Initial packet of QUIC version 1.
fn initial(packet: &[u8]) -> Option<Initial<'_>> {
    let mut r = packet;
    let first = *take(&mut r, 1)?.first()?;
    if first & LONG_HEADER == 0 || first & TYPE != 0 || take(&mut r, VERSION_1.len())? != VERSION_1 {
        return None;
    }
    let length = usize::from(*take(&mut r, 1)?.first()?);
    let id = take(&mut r, length)?;
    let length = usize::from(*take(&mut r, 1)?.first()?);
    take(&mut r, length)?;
    let token = number(&mut r)?;
    take(&mut r, token)?;
    let length = number(&mut r)?;
    let number_at = packet.len() - r.len();
    (length <= r.len()).then_some(Initial { id, number_at, end: number_at + length })
}

impl FirstFlight {
    /// Starts with a client's first datagram. Returns `None` if it contains no Initial packet.
    pub fn new(datagram: &[u8]) -> Option<FirstFlight> {
        let head = initial(datagram)?;
        let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
        let keys = suite.tls13()?.quic_suite()?.keys(head.id, Side::Server, VERSION);
        let mut flight = FirstFlight { keys, id: head.id.to_vec(), message: Vec::new(), pieces: Vec::new() };
        flight.take_in(datagram);
        Some(flight)
    }

    /// Tells whether a datagram may belong to this flight.
    pub fn is_of(&self, datagram: &[u8]) -> bool {
        initial(datagram).is_some_and(|head| head.id == self.id)
    }

    /// Processes a datagram. Ignores packets that cannot be decrypted, as the connection will.
    pub fn take_in(&mut self, datagram: &[u8]) {
        let mut rest = datagram;
        while let Some(head) = initial(rest) {
            if head.id == self.id
                && let Some(frames) = self.open(rest, &head)
            {
                let _ = self.read(&frames);
            }
            rest = rest.get(head.end..).unwrap_or_default();
        }
    }

    fn open(&self, packet: &[u8], head: &Initial<'_>) -> Option<Vec<u8>> {
        let mut bytes = packet.get(..head.end)?.to_vec();
        let sample_at = head.number_at + SAMPLE_AT;
        let sample = packet.get(sample_at..sample_at + SAMPLE_BYTES)?;
        let (before, from_number) = bytes.split_at_mut_checked(head.number_at)?;
        let first = before.first_mut()?;
        self.keys.remote.header.decrypt_in_place(sample, first, from_number.get_mut(..SAMPLE_AT)?).ok()?;
        let length = usize::from(*first & 0x03) + 1;
        // Numbers of a first flight are too small to be shortened.
        let number = from_number.get(..length)?.iter().fold(0_u64, |n, b| n << 8 | u64::from(*b));
        let (header, payload) = bytes.split_at_mut_checked(head.number_at + length)?;
        let clear = self.keys.remote.packet.decrypt_in_place(number, header, payload).ok()?;
        Some(clear.to_vec())
    }

    /// Reads the frames of a packet, up to a frame that clients do not send in Initial packets.
    fn read(&mut self, mut r: &[u8]) -> Option<()> {
        while !r.is_empty() {
            match read_varint(&mut r)? {
                PADDING | PING => {}
                kind @ (ACK | ACK_ECN) => {
                    read_varint(&mut r)?;
                    read_varint(&mut r)?;
                    let ranges = read_varint(&mut r)?;
                    read_varint(&mut r)?;
                    for _ in 0..ranges {
                        read_varint(&mut r)?;
                        read_varint(&mut r)?;
                    }
                    for _ in 0..if kind == ACK_ECN { 3 } else { 0 } {
                        read_varint(&mut r)?;
                    }
                }
                CRYPTO => {
                    let offset = number(&mut r)?;
                    let length = number(&mut r)?;
                    let bytes = take(&mut r, length)?;
                    self.put(offset, bytes);
                }
                _ => return None,
            }
        }
        Some(())
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        let kept = self.message.len() + self.pieces.iter().map(|(_, piece)| piece.len()).sum::<usize>();
        if offset.saturating_add(bytes.len()) > FLIGHT_MAX || kept + bytes.len() > FLIGHT_MAX {
            return;
        }
        if offset > self.message.len() {
            let is_known = self.pieces.iter().any(|(at, piece)| *at == offset && piece.len() >= bytes.len());
            if !is_known && self.pieces.len() < PIECES_MAX {
                self.pieces.push((offset, bytes.to_vec()));
            }
            return;
        }
        self.append(offset, bytes);
        while let Some(at) = self.pieces.iter().position(|(offset, _)| *offset <= self.message.len()) {
            let (offset, piece) = self.pieces.swap_remove(at);
            self.append(offset, &piece);
        }
    }

    fn append(&mut self, offset: usize, bytes: &[u8]) {
        let new = self.message.len().saturating_sub(offset);
        self.message.extend_from_slice(bytes.get(new..).unwrap_or_default());
    }

    /// Returns the received part of the ClientHello.
    pub fn hello(&self) -> Peek {
        peek_message(&self.message)
    }
}

/// Body of the fuzz target: uses octets as datagrams, and as the frames of a packet.
pub(crate) fn fuzz(data: &[u8]) {
    let is_bounded = |flight: &FirstFlight| {
        let kept = flight.message.len() + flight.pieces.iter().map(|(_, piece)| piece.len()).sum::<usize>();
        assert!(kept <= FLIGHT_MAX && flight.pieces.len() <= PIECES_MAX);
    };
    if let Some(mut flight) = FirstFlight::new(data) {
        flight.take_in(data);
        is_bounded(&flight);
    }
    // An empty Initial packet of a client.
    let Some(mut flight) = FirstFlight::new(&[0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0]) else { return };
    let _ = flight.read(data);
    is_bounded(&flight);
    let _ = flight.hello();
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;

    const ID: &[u8] = b"an id of it";

    fn frame(offset: usize, bytes: &[u8]) -> Vec<u8> {
        let two = |n: usize| (0x4000 | n as u16).to_be_bytes();
        [&[CRYPTO as u8][..], &two(offset), &two(bytes.len()), bytes].concat()
    }

    /// Encrypts an Initial packet of a client.
    fn packet(id: &[u8], number: u8, frames: &[u8]) -> Vec<u8> {
        let suite = TLS13_AES_128_GCM_SHA256.tls13().expect("1.3").quic_suite().expect("QUIC");
        let keys = suite.keys(id, Side::Client, VERSION);
        let mut payload = frames.to_vec();
        payload.resize(payload.len().max(32), 0);
        let length = 1 + payload.len() + keys.local.packet.tag_len();
        let mut header = vec![0xc0, 0, 0, 0, 1, id.len() as u8];
        header.extend_from_slice(id);
        header.extend_from_slice(&[0, 2, 9, 9]);
        header.extend_from_slice(&(0x4000 | length as u16).to_be_bytes());
        let at = header.len();
        header.push(number);
        let tag = keys.local.packet.encrypt_in_place(number.into(), &header, &mut payload).expect("encrypted");
        let mut packet = [header, payload, tag.as_ref().to_vec()].concat();
        let sample = packet[at + 4..at + 20].to_vec();
        let (first, rest) = packet.split_at_mut(1);
        keys.local.header.encrypt_in_place(&sample, &mut first[0], &mut rest[at - 1..at]).expect("protected");
        packet
    }

    /// A ClientHello with a name.
    fn hello() -> Vec<u8> {
        let name = b"a.example";
        let list = [&[0][..], &(name.len() as u16).to_be_bytes(), name].concat();
        let value = [&(list.len() as u16).to_be_bytes()[..], &list].concat();
        let extension = [&[0, 0][..], &(value.len() as u16).to_be_bytes(), &value].concat();
        let all = [&(extension.len() as u16).to_be_bytes()[..], &extension].concat();
        let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &all].concat();
        [&[1, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat()
    }

    fn name(flight: &FirstFlight) -> Option<String> {
        match flight.hello() {
            Peek::Hello(hello) => hello.server_name,
            _ => None,
        }
    }

    #[test]
    fn hellos_are_found_however_they_are_cut() {
        let hello = hello();
        let (a, b) = (frame(0, &hello[..20]), frame(20, &hello[20..]));
        let is = |flight: &FirstFlight| name(flight).as_deref() == Some("a.example");
        let whole = packet(ID, 0, &frame(0, &hello));
        assert!(is(&FirstFlight::new(&whole).expect("Initial")));
        // Shuffled, overlapping, with other frames between.
        let late = frame(10, &hello[10..30]);
        let shuffled = [&frame(30, &hello[30..])[..], &[0, 1, 2, 0, 0, 0, 0], &late, &frame(0, &hello[..15])].concat();
        assert!(is(&FirstFlight::new(&packet(ID, 0, &shuffled)).expect("Initial")));
        // Two datagrams in any order, one of them twice; two packets in a datagram.
        let (first, second) = (packet(ID, 0, &a), packet(ID, 1, &b));
        for (one, two) in [(&first, &second), (&second, &first)] {
            let mut flight = FirstFlight::new(one).expect("Initial");
            assert!(matches!(flight.hello(), Peek::More(_)));
            flight.take_in(one);
            assert!(flight.is_of(two));
            flight.take_in(two);
            assert!(is(&flight));
        }
        assert!(is(&FirstFlight::new(&[first.clone(), second].concat()).expect("Initial")));
        // Another client's packet, and one that was changed on its way.
        let mut flight = FirstFlight::new(&first).expect("Initial");
        let stranger = packet(b"another id!", 1, &b);
        assert!(!flight.is_of(&stranger));
        flight.take_in(&stranger);
        let mut bent = packet(ID, 1, &b);
        *bent.last_mut().expect("an octet") ^= 1;
        flight.take_in(&bent);
        assert!(matches!(flight.hello(), Peek::More(_)));
    }

    #[test]
    fn fuzzing_body_holds_with_seeds() {
        let hello = hello();
        let frames = [&frame(30, &hello[30..])[..], &[0, 1, 2, 0, 0, 0, 0], &frame(0, &hello[..40])].concat();
        for bytes in [&b""[..], &frames, &packet(ID, 0, &frames)] {
            fuzz(bytes);
            for at in 0..bytes.len() {
                let mut bent = bytes.to_vec();
                bent[at] ^= 1 << (at % 8);
                fuzz(&bent);
                fuzz(&bytes[..at]);
            }
        }
    }

    #[test]
    fn first_packets_of_a_client_are_bounded() {
        let mut flight = FirstFlight::new(&packet(ID, 0, &frame(0, &hello()[..20]))).expect("Initial");
        for at in 0..1000 {
            flight.put(100 + at, &[0]);
        }
        flight.put(FLIGHT_MAX - 1, &[0; 2]);
        flight.put(usize::MAX, &[0; 2]);
        assert_eq!((flight.pieces.len(), flight.message.len()), (PIECES_MAX, 20));
        flight.pieces.clear();
        (0..PIECES_MAX).for_each(|at| flight.put(100 + at, &[0; 1000]));
        assert_eq!(flight.pieces.len(), FLIGHT_MAX / 1000);
        assert!(FirstFlight::new(b"").is_none() && FirstFlight::new(&[0x40; 1200]).is_none());
        let whole = packet(ID, 0, &frame(0, &hello()));
        for version in [[0; 4], [0xff, 0, 0, 29], [0x6b, 0x33, 0x43, 0xcf]] {
            let other = [&whole[..1], &version, &whole[5..]].concat();
            assert!(FirstFlight::new(&other).is_none(), "{version:?}");
        }
        for cut in 0..whole.len() {
            assert!(FirstFlight::new(&whole[..cut]).is_none_or(|flight| matches!(flight.hello(), Peek::More(_))));
        }
    }
}
