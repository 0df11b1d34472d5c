//! Writes a header for an upstream (`ngx_proxy_protocol_write`, `ngx_proxy_protocol_v2_write`).

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use crate::crc32c::crc32c;
use crate::parse::MAX_HEADER;
use crate::tlv;

/// Appends a header of version 1; `UNKNOWN` without addresses. As in nginx, the family is the client's, whatever the
/// destination's.
pub fn write_v1(addresses: Option<(SocketAddr, SocketAddr)>, out: &mut Vec<u8>) {
    let Some((source, destination)) = addresses else {
        out.extend_from_slice(b"PROXY UNKNOWN\r\n");
        return;
    };
    let family = if source.is_ipv4() { 4 } else { 6 };
    let (from, to) = (source.ip(), destination.ip());
    let _ = write!(out, "PROXY TCP{family} {from} {to} {} {}\r\n", source.port(), destination.port());
}

/// Writer of a header of version 2: [`V2Writer::new`], fields, [`V2Writer::finish`].
#[derive(Debug)]
pub struct V2Writer {
    bytes: Vec<u8>,
    overflow: bool,
}

impl V2Writer {
    /// Starts a header; `LOCAL` without addresses. Mixed families use mapped IPv6 addresses; two mapped ones become
    /// IPv4.
    pub fn new(addresses: Option<(SocketAddr, SocketAddr)>) -> Self {
        let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
        let Some((source, destination)) = addresses else {
            bytes.extend_from_slice(&[0x20, 0, 0, 0]);
            return V2Writer { bytes, overflow: false };
        };
        let narrow = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(ip) => ip.to_ipv4_mapped(),
        };
        let wide = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        // nginx keeps a pair of one mapped and one plain address.
        let same_family = source.is_ipv4() == destination.is_ipv4();
        match (narrow(source.ip()), narrow(destination.ip())) {
            (Some(from), Some(to)) if same_family => {
                bytes.extend_from_slice(&[0x21, 0x11, 0, 0]);
                bytes.extend_from_slice(&from.octets());
                bytes.extend_from_slice(&to.octets());
            }
            _ => {
                bytes.extend_from_slice(&[0x21, 0x21, 0, 0]);
                bytes.extend_from_slice(&wide(source.ip()).octets());
                bytes.extend_from_slice(&wide(destination.ip()).octets());
            }
        }
        bytes.extend_from_slice(&source.port().to_be_bytes());
        bytes.extend_from_slice(&destination.port().to_be_bytes());
        V2Writer { bytes, overflow: false }
    }

    /// Marks a header with addresses as one of datagrams.
    pub fn datagrams(&mut self) -> &mut Self {
        if let Some(family @ (0x11 | 0x21)) = self.bytes.get_mut(13) {
            *family += 1;
        }
        self
    }

    /// Appends a field. A value beyond 65,535 bytes makes [`V2Writer::finish`] fail.
    pub fn tlv(&mut self, kind: u8, value: &[u8]) -> &mut Self {
        append(&mut self.bytes, kind, value, &mut self.overflow);
        self
    }

    /// Appends the name that the client has asked for (SNI).
    pub fn authority(&mut self, name: &[u8]) -> &mut Self {
        self.tlv(tlv::AUTHORITY, name)
    }

    /// Appends the negotiated protocol.
    pub fn alpn(&mut self, protocol: &[u8]) -> &mut Self {
        self.tlv(tlv::ALPN, protocol)
    }

    /// Appends the SSL field (see [`crate::SslInfo`]); `fields` are kinds 0x21 to 0x25 with values.
    pub fn ssl(&mut self, client: u8, verify: u32, fields: &[(u8, &[u8])]) -> &mut Self {
        let mut value = vec![client];
        value.extend_from_slice(&verify.to_be_bytes());
        for (kind, field) in fields {
            append(&mut value, *kind, field, &mut self.overflow);
        }
        self.tlv(tlv::SSL, &value)
    }

    /// Completes length and checksum. `None` beyond [`MAX_HEADER`].
    pub fn finish(mut self) -> Option<Vec<u8>> {
        self.tlv(tlv::CRC32C, &[0; 4]);
        let len = u16::try_from(self.bytes.len().checked_sub(16)?).ok()?;
        if self.overflow || self.bytes.len() > MAX_HEADER {
            return None;
        }
        self.bytes.get_mut(14..16)?.copy_from_slice(&len.to_be_bytes());
        let sum = crc32c(&self.bytes);
        self.bytes.last_chunk_mut::<4>()?.copy_from_slice(&sum.to_be_bytes());
        Some(self.bytes)
    }
}

fn append(out: &mut Vec<u8>, kind: u8, value: &[u8], overflow: &mut bool) {
    let Ok(len) = u16::try_from(value.len()) else {
        *overflow = true;
        return;
    };
    out.push(kind);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(value);
}
