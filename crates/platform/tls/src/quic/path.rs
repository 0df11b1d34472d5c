//! Detects when a client has proven that it receives packets at a new address. `quinn-proto` validates paths but does
//! not report the result, so the packet keys watch for the frames of the proof.

use super::padding::trim_padding;
use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, PacketKey};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const ACK: u8 = 0x02;
const ACK_ECN: u8 = 0x03;
const PATH_CHALLENGE: u8 = 0x1a;
const PATH_RESPONSE: u8 = 0x1b;
const HANDSHAKE_DONE: u8 = 0x1e;
const CHALLENGE_BYTES: usize = 8;

/// Watches the packets of one connection for a path challenge and its response (RFC 9000, 8.2). Costs one load per
/// packet while it is inactive.
#[derive(Debug, Default)]
pub struct PathWatch {
    /// Records sent challenges while set.
    notes: AtomicBool,
    /// Recorded challenge, or 0. (A challenge of 0 has a probability of 2^-64 and is not recorded.)
    sent: AtomicU64,
    /// Challenge that the client must repeat, or 0.
    awaited: AtomicU64,
    proven: AtomicBool,
}

impl PathWatch {
    /// Starts watching after the client has moved: forgets older challenges, and records those that are sent.
    pub fn begin(&self) {
        self.notes.store(true, Ordering::Relaxed);
        self.sent.store(0, Ordering::Relaxed);
        self.awaited.store(0, Ordering::Relaxed);
        self.proven.store(false, Ordering::Relaxed);
    }
    /// Ends watching.
    pub fn end(&self) {
        self.begin();
        self.notes.store(false, Ordering::Relaxed);
    }
    /// Reports whether the packets of the last transmit went to the new address. A response proves only the address
    /// that its challenge was sent to.
    pub fn sent_to_it(&self, is_it: bool) {
        let sent = self.sent.swap(0, Ordering::Relaxed);
        if is_it && sent != 0 {
            self.awaited.store(sent, Ordering::Relaxed);
        }
    }
    /// Tells whether the client has repeated the challenge.
    pub fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    fn note_sent(&self, payload: &[u8]) {
        if self.notes.load(Ordering::Relaxed)
            && let Some(challenge) = challenge(payload)
        {
            self.sent.store(challenge, Ordering::Relaxed);
        }
    }
    /// Looks for the challenge in a payload. The challenge is random and was sent to one address, so that these octets
    /// are its response.
    fn note_received(&self, payload: &[u8]) {
        let awaited = self.awaited.load(Ordering::Relaxed);
        if awaited == 0 {
            return;
        }
        let mut response = [PATH_RESPONSE; 1 + CHALLENGE_BYTES];
        if let Some(to) = response.get_mut(1..) {
            to.copy_from_slice(&awaited.to_be_bytes());
        }
        if payload.windows(response.len()).any(|part| part == response) {
            self.awaited.store(0, Ordering::Relaxed);
            self.proven.store(true, Ordering::Relaxed);
        }
    }
}

/// Returns the challenge of a packet that `quinn-proto` has written. Acknowledgments and frames without content may
/// precede it.
fn challenge(mut payload: &[u8]) -> Option<u64> {
    loop {
        let (kind, rest) = payload.split_first()?;
        payload = rest;
        match *kind {
            PADDING | PING | HANDSHAKE_DONE => {}
            ACK | ACK_ECN => {
                let (_largest, _delay) = (read_varint(&mut payload)?, read_varint(&mut payload)?);
                let ranges = read_varint(&mut payload)?;
                read_varint(&mut payload)?;
                for _ in 0..ranges {
                    let (_gap, _length) = (read_varint(&mut payload)?, read_varint(&mut payload)?);
                }
                if *kind == ACK_ECN {
                    let (_ect0, _ect1, _ce) =
                        (read_varint(&mut payload)?, read_varint(&mut payload)?, read_varint(&mut payload)?);
                }
            }
            PATH_CHALLENGE => return Some(u64::from_be_bytes(*payload.first_chunk()?)),
            _ => return None,
        }
    }
}

/// Reads a variable-length integer (RFC 9000, 16).
pub fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    let (number, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    *bytes = rest;
    let (first, rest) = number.split_first()?;
    Some(rest.iter().fold(u64::from(first & 0x3f), |value, octet| value << 8 | u64::from(*octet)))
}

pub type TlsPacketKey = Box<dyn rustls::quic::PacketKey>;

/// A packet key that watches its packets, and removes the padding of the packets that it decrypts.
pub struct WatchedKey {
    pub key: TlsPacketKey,
    pub watch: Arc<PathWatch>,
}

impl PacketKey for WatchedKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let end = buf.len().saturating_sub(self.key.tag_len());
        self.watch.note_sent(buf.get(header_len..end).unwrap_or_default());
        PacketKey::encrypt(&self.key, packet, buf, header_len);
    }
    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        PacketKey::decrypt(&self.key, packet, header, payload)?;
        self.watch.note_received(payload);
        trim_padding(payload);
        Ok(())
    }
    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }
    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }
    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: u64 = 0x0102_0304_0506_0708;

    fn frame(kind: u8, token: u64) -> Vec<u8> {
        [&[kind][..], &token.to_be_bytes()].concat()
    }

    #[test]
    fn numbers_have_four_lengths() {
        // RFC 9000, A.1.
        for (bytes, value) in [
            (&[0x25][..], 37),
            (&[0x40, 0x25], 37),
            (&[0x7b, 0xbd], 15_293),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
        ] {
            let mut rest = bytes;
            assert_eq!((read_varint(&mut rest), rest.len()), (Some(value), 0));
        }
        assert_eq!(read_varint(&mut &[0x40][..]), None);
    }

    #[test]
    fn challenges_are_found_behind_acknowledgments_alone() {
        let challenge = |before: &[u8]| challenge(&[before, &frame(PATH_CHALLENGE, TOKEN), &[0; 20]].concat());
        let ack = [ACK, 9, 0, 2, 1, 0, 1, 0, 1];
        let ecn = [ACK_ECN, 0x40, 9, 0, 0, 1, 1, 2, 3];
        for before in [&[][..], &[PING], &ack, &ecn, &[&[HANDSHAKE_DONE, PING][..], &ack].concat()] {
            assert_eq!(challenge(before), Some(TOKEN), "{before:?}");
        }
        assert_eq!(challenge(&[0x08, 0]), None, "a stream's octets may be anything");
        assert_eq!(challenge(&[ACK, 9, 0, 0xff]), None);
    }

    #[test]
    fn a_response_proves_the_address_of_its_challenge_alone() {
        let watch = PathWatch::default();
        let send = |token| watch.note_sent(&frame(PATH_CHALLENGE, token));
        let receive = |token| watch.note_received(&[&[PING][..], &frame(PATH_RESPONSE, token)].concat());
        send(TOKEN);
        receive(TOKEN);
        assert!(!watch.is_proven(), "nothing is watched");
        watch.begin();
        receive(TOKEN);
        assert!(!watch.is_proven(), "nothing was sent");
        send(7);
        watch.sent_to_it(false);
        receive(7);
        assert!(!watch.is_proven(), "another address has answered");
        send(TOKEN);
        watch.sent_to_it(true);
        receive(TOKEN + 1);
        receive(0);
        assert!(!watch.is_proven());
        receive(TOKEN);
        assert!(watch.is_proven());
        watch.end();
        assert!(!watch.is_proven());
        watch.begin();
        receive(TOKEN);
        assert!(!watch.is_proven(), "of an earlier move");
    }
}
