//! Removes the padding of received packets before `quinn-proto` sees it. `quinn-proto` parses PADDING (RFC 9000, 19.1)
//! octet by octet, about a thousand octets in each Initial datagram and path MTU probe, which took a tenth of a
//! handshake's CPU time.

use super::path::read_varint;
use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, PacketKey};

const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const ACK: u8 = 0x02;
const ACK_ECN: u8 = 0x03;
const CRYPTO: u8 = 0x06;
const RESET_STREAM: u8 = 0x04;
const STOP_SENDING: u8 = 0x05;
/// STREAM frames with a length: without and with an offset, each without and with the stream's end.
const STREAM: u8 = 0x0a;
const STREAM_FIN: u8 = 0x0b;
const STREAM_AT: u8 = 0x0e;
const STREAM_AT_FIN: u8 = 0x0f;
const MAX_STREAM_DATA: u8 = 0x11;
const STREAM_DATA_BLOCKED: u8 = 0x15;
const NEW_CONNECTION_ID: u8 = 0x18;
const RETIRE_CONNECTION_ID: u8 = 0x19;
const PATH_CHALLENGE: u8 = 0x1a;
const PATH_RESPONSE: u8 = 0x1b;
/// From MAX_DATA to STREAMS_BLOCKED: limits of the connection and of streams, with one number each unless listed above.
const LIMITS: std::ops::RangeInclusive<u8> = 0x10..=0x17;
const RESET_TOKEN_BYTES: usize = 16;
const CHALLENGE_BYTES: usize = 8;
/// Minimum length of padding to remove, in octets.
const PADDING_MIN: usize = 64;

/// A packet key that removes the padding of the packets that it decrypts.
pub struct TrimmedKey {
    pub key: Box<dyn PacketKey>,
}

impl PacketKey for TrimmedKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.key.encrypt(packet, buf, header_len);
    }
    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        self.key.decrypt(packet, header, payload)?;
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

/// Shortens the padding at the end of a payload to one octet, because a packet without frames is an error. Copies the
/// rest: `quinn-proto` limits the memory of out-of-order frames by the length of their packet, and a slice would keep
/// the whole datagram.
pub fn trim_padding(payload: &mut BytesMut) {
    if let Some(end) = frames_end(payload) {
        *payload = BytesMut::from(payload.get(..=end).unwrap_or_default());
    }
}

/// Returns the end of the frames before the padding. Returns `None` if the padding is short, or if a frame before it
/// has no known length, so that its content may end in zeros.
fn frames_end(payload: &[u8]) -> Option<usize> {
    let zeros = trailing_zeros(payload);
    if zeros < PADDING_MIN {
        return None;
    }
    let padding = payload.len() - zeros;
    let mut rest = payload;
    loop {
        let at = payload.len() - rest.len();
        if at >= padding {
            // The content of a frame may end in zeros.
            return (payload.len() - at >= PADDING_MIN).then_some(at);
        }
        let (kind, after) = rest.split_first()?;
        rest = after;
        match *kind {
            PADDING | PING => {}
            ACK | ACK_ECN => {
                let (_largest, _delay) = (read_varint(&mut rest)?, read_varint(&mut rest)?);
                let ranges = read_varint(&mut rest)?;
                read_varint(&mut rest)?;
                for _ in 0..ranges {
                    let (_gap, _length) = (read_varint(&mut rest)?, read_varint(&mut rest)?);
                }
                if *kind == ACK_ECN {
                    let (_ect0, _ect1, _ce) =
                        (read_varint(&mut rest)?, read_varint(&mut rest)?, read_varint(&mut rest)?);
                }
            }
            CRYPTO => {
                let _offset = read_varint(&mut rest)?;
                let length = usize::try_from(read_varint(&mut rest)?).ok()?;
                rest = rest.get(length..)?;
            }
            STREAM | STREAM_FIN | STREAM_AT | STREAM_AT_FIN => {
                let _id = read_varint(&mut rest)?;
                if matches!(*kind, STREAM_AT | STREAM_AT_FIN) {
                    read_varint(&mut rest)?;
                }
                let length = usize::try_from(read_varint(&mut rest)?).ok()?;
                rest = rest.get(length..)?;
            }
            RESET_STREAM => {
                let (_id, _code, _size) = (read_varint(&mut rest)?, read_varint(&mut rest)?, read_varint(&mut rest)?);
            }
            STOP_SENDING | MAX_STREAM_DATA | STREAM_DATA_BLOCKED => {
                let (_id, _number) = (read_varint(&mut rest)?, read_varint(&mut rest)?);
            }
            NEW_CONNECTION_ID => {
                let (_number, _retired) = (read_varint(&mut rest)?, read_varint(&mut rest)?);
                let (length, after) = rest.split_first()?;
                rest = after.get(usize::from(*length) + RESET_TOKEN_BYTES..)?;
            }
            PATH_CHALLENGE | PATH_RESPONSE => rest = rest.get(CHALLENGE_BYTES..)?,
            kind if kind == RETIRE_CONNECTION_ID || LIMITS.contains(&kind) => {
                read_varint(&mut rest)?;
            }
            // A STREAM frame without a length extends to the end of the packet.
            _ => return None,
        }
    }
}

/// Counts the zeros at the end of a payload, 32 octets at a time.
fn trailing_zeros(payload: &[u8]) -> usize {
    let whole = payload.rchunks_exact(32).take_while(|chunk| chunk.iter().fold(0, |all, octet| all | octet) == 0);
    let whole = whole.count() * 32;
    let before = payload.get(..payload.len() - whole).unwrap_or_default();
    whole + before.iter().rev().take_while(|octet| **octet == 0).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trimmed(frames: &[u8], padding: usize) -> Vec<u8> {
        let mut payload = BytesMut::from(frames);
        payload.resize(frames.len() + padding, 0);
        trim_padding(&mut payload);
        if payload.len() < frames.len() + padding {
            assert!(payload.capacity() <= payload.len().max(64), "the padding's memory is kept");
        }
        payload.to_vec()
    }

    #[test]
    fn padding_behind_known_frames_becomes_one_octet() {
        let ack = [ACK, 9, 0, 2, 1, 0, 1, 0, 1];
        let ecn = [ACK_ECN, 0x40, 9, 0, 0, 1, 1, 2, 3];
        let crypto = [CRYPTO, 0, 4, b'a', 0, 0, 0];
        // The last range is 0, and so is the last count.
        let zeros = [ACK, 0, 0, 0, 0];
        let known: &[&[u8]] = &[
            &[STREAM, 2, 2, b'a', 0],
            &[STREAM_AT_FIN, 0, 0x40, 0, 2, 0, 0],
            &[RESET_STREAM, 0, 0, 0],
            &[STOP_SENDING, 0, 0],
            &[0x10, 0],
            &[MAX_STREAM_DATA, 0, 0],
            &[0x12, 0],
            &[STREAM_DATA_BLOCKED, 4, 0],
            &[0x17, 0],
            &[RETIRE_CONNECTION_ID, 0],
            &[PATH_CHALLENGE, 1, 2, 3, 4, 5, 6, 0, 0],
        ];
        let id = [&[NEW_CONNECTION_ID, 1, 0, 4][..], &[0; 4 + RESET_TOKEN_BYTES]].concat();
        let all = [&known.concat()[..], &id, &ack].concat();
        let known = known.iter().copied().chain([&id[..], &all]);
        let others = [&[][..], &[PING], &ack, &ecn, &crypto, &zeros, &[&ack[..], &[0, 0], &crypto].concat()];
        for frames in known.chain(others) {
            let expected = [frames, &[0]].concat();
            for padding in [PADDING_MIN, 100, 1000, 1337] {
                assert_eq!(trimmed(frames, padding), expected, "{frames:?} and {padding}");
            }
        }
    }

    #[test]
    fn content_that_ends_in_zeros_stays() {
        // STREAM frames up to the packet's end, frames that are cut, an unknown type, and a datagram (RFC 9221).
        for frames in [
            &[0x08, 0, b'a'][..],
            &[0x0c, 0, 1, b'a'],
            &[STREAM, 0, 0x44, 0],
            &[CRYPTO, 0, 0x44, 0],
            &[ACK, 9, 0, 0x44],
            &[0x1e],
            &[0x30, b'a'],
        ] {
            assert_eq!(trimmed(frames, 300).len(), frames.len() + 300, "{frames:?}");
        }
        // A CRYPTO frame of zeros, and little behind it.
        let frames = [&[CRYPTO, 0, 0x41, 0][..], &[0; 256]].concat();
        assert_eq!(trimmed(&frames, 10).len(), frames.len() + 10);
        assert_eq!(trimmed(&frames, 200).len(), frames.len() + 1);
        assert_eq!(trimmed(&[PING], PADDING_MIN - 1).len(), PADDING_MIN);
    }
}
