//! A client of QUIC that sends frames of the test's own: packets of `quinn-proto` whose content is replaced before it is encrypted.

use bytes::BytesMut;
use quinn_proto::crypto::{self, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ClientConfig, ConnectError, ConnectionId, Side, TransportError};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Contents of packets that are sent instead of those of `quinn-proto`: each takes the place of one that is long enough.
#[derive(Clone, Default)]
pub struct Contents(Arc<Mutex<VecDeque<Vec<u8>>>>);

impl Contents {
    pub fn push(&self, frames: Vec<u8>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(frames);
    }
    pub fn waiting(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
    fn take(&self, room: usize) -> Option<Vec<u8>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.front()?.len() > room { None } else { all.pop_front() }
    }
}

/// A number as QUIC writes it (RFC 9000, 16), in four octets.
pub fn number(value: u32) -> [u8; 4] {
    (value | 0x8000_0000).to_be_bytes()
}

/// `config` with a handshake whose packets carry `contents`.
pub fn config(inner: Arc<dyn crypto::ClientConfig>, contents: &Contents) -> ClientConfig {
    ClientConfig::new(Arc::new(Config { inner, contents: contents.clone() }))
}

struct Config {
    inner: Arc<dyn crypto::ClientConfig>,
    contents: Contents,
}

impl crypto::ClientConfig for Config {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let inner = self.inner.clone().start_session(version, server_name, params)?;
        Ok(Box::new(Crafted { inner, contents: self.contents.clone(), handshakes: 0 }))
    }
}

struct Crafted {
    inner: Box<dyn Session>,
    contents: Contents,
    /// Keys that the handshake has given: the second ones are those of 1-RTT packets.
    handshakes: u8,
}

impl Crafted {
    fn replaced(&self, packet: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
        let local = Box::new(Key { inner: packet.local, contents: self.contents.clone() });
        KeyPair { local, remote: packet.remote }
    }
}

impl Session for Crafted {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(dst_cid, side)
    }
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }
    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }
    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }
    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }
    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(buf)
    }
    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }
    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let Keys { header, packet } = self.inner.write_handshake(buf)?;
        self.handshakes += 1;
        let packet = if self.handshakes == 2 { self.replaced(packet) } else { packet };
        Some(Keys { header, packet })
    }
    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let next = self.inner.next_1rtt_keys()?;
        Some(self.replaced(next))
    }
    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(orig_dst_cid, header, payload)
    }
    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

struct Key {
    inner: Box<dyn PacketKey>,
    contents: Contents,
}

impl PacketKey for Key {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let end = buf.len() - self.inner.tag_len();
        if let Some(frames) = self.contents.take(end - header_len) {
            let payload = &mut buf[header_len..end];
            payload.fill(0);
            payload[..frames.len()].copy_from_slice(&frames);
        }
        self.inner.encrypt(packet, buf, header_len);
    }
    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        self.inner.decrypt(packet, header, payload)
    }
    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }
    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }
    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}
