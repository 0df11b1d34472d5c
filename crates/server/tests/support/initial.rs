//! Initial packets of QUIC version 1 (RFC 9000, 17.2.2), built octet by octet: ids, tokens and lengths are the test's.

use rustls::quic::{ClientConnection, Keys, Version};
use rustls::{ClientConfig, Side};
use std::sync::Arc;

pub const VERSION: [u8; 4] = [0, 0, 0, 1];
/// Length of the smallest datagram that may begin a connection (RFC 9000, 14.1).
pub const DATAGRAM_MIN: usize = 1200;
/// Source connection id of all packets, which the transport parameters repeat.
pub const SOURCE: &[u8] = b"source!!";

const TAG: usize = 16;
const PACKET_NUMBER: usize = 4;

/// The fields of an Initial packet.
#[derive(Clone, Debug)]
pub struct Initial {
    pub destination: Vec<u8>,
    pub token: Vec<u8>,
    pub frames: Vec<u8>,
    pub number: u32,
}

/// A CRYPTO frame with a ClientHello for `localhost`.
pub fn hello(config: ClientConfig) -> Vec<u8> {
    let name = "localhost".try_into().expect("a name");
    let parameters = [&[0x0f, SOURCE.len() as u8], SOURCE].concat();
    let mut client = ClientConnection::new(Arc::new(config), Version::V1, name, parameters).expect("a client");
    let mut octets = Vec::new();
    client.write_hs(&mut octets);
    [&[0x06, 0][..], &length(octets.len()), &octets].concat()
}

/// A length in two octets (RFC 9000, 16).
pub fn length(value: usize) -> [u8; 2] {
    (value as u16 | 0x4000).to_be_bytes()
}

impl Initial {
    pub fn new(destination: &[u8], frames: &[u8]) -> Initial {
        Initial { destination: destination.to_vec(), token: Vec::new(), frames: frames.to_vec(), number: 0 }
    }

    /// Encrypts the packet; PADDING frames extend it to `size`.
    pub fn packet(&self, size: usize) -> Vec<u8> {
        let mut header = vec![0xc0 | (PACKET_NUMBER as u8 - 1)];
        header.extend_from_slice(&VERSION);
        for id in [&self.destination[..], SOURCE] {
            header.push(id.len() as u8);
            header.extend_from_slice(id);
        }
        header.extend_from_slice(&length(self.token.len()));
        header.extend_from_slice(&self.token);
        let mut payload = self.frames.clone();
        let used = header.len() + 2 + PACKET_NUMBER + TAG;
        payload.resize(payload.len().max(size.saturating_sub(used)), 0);
        header.extend_from_slice(&length(PACKET_NUMBER + payload.len() + TAG));
        let at = header.len();
        header.extend_from_slice(&self.number.to_be_bytes());
        let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().expect("of TLS 1.3");
        let quic = suite.quic.expect("of QUIC");
        let keys = Keys::initial(Version::V1, suite, quic, &self.destination, Side::Client);
        let tag = keys.local.packet.encrypt_in_place(u64::from(self.number), &header, &mut payload).expect("encrypted");
        payload.extend_from_slice(tag.as_ref());
        let (first, number) = header.split_at_mut(at);
        let sample = &payload[4 - PACKET_NUMBER..][..keys.local.header.sample_len()];
        keys.local.header.encrypt_in_place(sample, &mut first[0], number).expect("protected");
        [header, payload].concat()
    }

    /// A datagram of the least length.
    pub fn datagram(&self) -> Vec<u8> {
        self.packet(DATAGRAM_MIN)
    }
}
