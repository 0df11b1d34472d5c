//! Reading a header.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

/// Longest header of version 1: two full IPv6 addresses and ports.
pub const V1_MAX_HEADER: usize = 107;

/// Longest header of version 2, nginx's buffer.
pub const MAX_HEADER: usize = 4096;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED: usize = 16;

/// Version of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A line of text.
    V1,
    /// Binary, with TLVs.
    V2,
}

/// A parsed header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its version.
    pub version: Version,
    /// `None` for `UNKNOWN`, `LOCAL`, datagrams and Unix sockets: the connection's own addresses count.
    pub addresses: Option<Addresses>,
    /// Range of version 2's TLVs in the buffer; empty without addresses, as in nginx. See [`Header::tlv`].
    pub tlvs: Range<usize>,
}

/// Addresses of the original connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The client.
    pub source: SocketAddr,
    /// The server that the client has connected to.
    pub destination: SocketAddr,
}

/// Reason to close the connection without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Missing or malformed header, with the first line for the log.
    Broken(Vec<u8>),
    /// Signature of version 2 with another version number.
    UnknownVersion(u8),
    /// A header of version 2 beyond [`MAX_HEADER`].
    TooLarge,
    /// Version 2 with addresses shorter than their family's.
    Truncated,
}

impl Error {
    /// Writes nginx's log message with the peer's raw bytes.
    pub fn log(&self, out: &mut Vec<u8>) {
        match self {
            Error::Broken(line) => {
                out.extend_from_slice(b"broken header: \"");
                out.extend_from_slice(line);
                out.push(b'"');
            }
            Error::UnknownVersion(version) => {
                out.extend_from_slice(format!("unknown PROXY protocol version: {version}").as_bytes());
            }
            Error::TooLarge => out.extend_from_slice(b"header is too large"),
            Error::Truncated => out.extend_from_slice(b"broken PROXY protocol header"),
        }
    }
}

/// Parses the header at the start of `buf` and returns it with its length. `None`: incomplete; needs at most
/// [`MAX_HEADER`] bytes.
pub fn parse_header(buf: &[u8]) -> Result<Option<(Header, usize)>, Error> {
    if buf.starts_with(SIGNATURE) {
        return v2(buf);
    }
    if SIGNATURE.starts_with(buf) {
        return Ok(None);
    }
    v1(buf)
}

fn v1(buf: &[u8]) -> Result<Option<(Header, usize)>, Error> {
    let broken = || {
        let end = buf.iter().position(|b| matches!(b, b'\r' | b'\n')).unwrap_or(buf.len()).min(V1_MAX_HEADER);
        Error::Broken(buf.get(..end).unwrap_or(&[]).to_vec())
    };
    let known = buf.len().min(6);
    if buf.get(..known) != b"PROXY ".get(..known) {
        return Err(broken());
    }
    // An unknown family can never become a valid header.
    let family = buf.get(6..).unwrap_or_default();
    let begins = |word: &[u8]| family.iter().zip(word).all(|(a, b)| a == b);
    if ![&b"TCP4 "[..], b"TCP6 ", b"UNKNOWN"].iter().any(|word| begins(word)) {
        return Err(broken());
    }
    // The first LF ends the header. As in nginx, `UNKNOWN` may exceed 107 bytes.
    let max = if family.starts_with(b"UNKNOWN") { MAX_HEADER } else { V1_MAX_HEADER };
    let window = buf.get(..max).unwrap_or(buf);
    let Some(lf) = window.iter().position(|&b| b == b'\n') else {
        return if buf.len() >= max { Err(broken()) } else { Ok(None) };
    };
    let end = match lf.checked_sub(1) {
        Some(cr) if window.get(cr) == Some(&b'\r') => cr,
        _ => return Err(broken()),
    };
    let line = window.get(6..end).unwrap_or(&[]);
    let header = |addresses| Some((Header { version: Version::V1, addresses, tlvs: 0..0 }, end + 2));
    if line.starts_with(b"UNKNOWN") {
        return Ok(header(None));
    }
    match v1_addresses(line) {
        Some(addresses) => Ok(header(Some(addresses))),
        None => Err(broken()),
    }
}

fn v1_addresses(line: &[u8]) -> Option<Addresses> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let family = words.next()?;
    let ips = (words.next()?, words.next()?);
    let ports = (port(words.next()?)?, port(words.next()?)?);
    if words.next().is_some() {
        return None;
    }
    // As in nginx, either family may be followed by addresses of both kinds.
    if !matches!(family, "TCP4" | "TCP6") {
        return None;
    }
    let socket = |text: &str, port| Some(SocketAddr::new(ip(text)?, port));
    Some(Addresses { source: socket(ips.0, ports.0)?, destination: socket(ips.1, ports.1)? })
}

/// Parses an address; IPv4 numbers may have leading zeros and are decimal (nginx: `ngx_inet_addr`).
fn ip(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse() {
        return Some(ip);
    }
    let mut octets = text.split('.').map(|number| u8::try_from(port(number).filter(|_| !number.is_empty())?).ok());
    let ip = [octets.next()??, octets.next()??, octets.next()??, octets.next()??];
    octets.next().is_none().then(|| IpAddr::from(ip))
}

/// Digits only: `u16::from_str` accepts a `+`.
fn port(text: &str) -> Option<u16> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn v2(buf: &[u8]) -> Result<Option<(Header, usize)>, Error> {
    let Some(&[command, family, high, low]) = buf.get(12..).and_then(|rest| rest.first_chunk()) else {
        return match buf.get(12) {
            Some(&command) if command >> 4 != 2 => Err(Error::UnknownVersion(command >> 4)),
            _ => Ok(None),
        };
    };
    if command >> 4 != 2 {
        return Err(Error::UnknownVersion(command >> 4));
    }
    let end = V2_FIXED + usize::from(u16::from_be_bytes([high, low]));
    if end > MAX_HEADER {
        return Err(Error::TooLarge);
    }
    let Some(body) = buf.get(V2_FIXED..end) else { return Ok(None) };
    let none = Header { version: Version::V2, addresses: None, tlvs: 0..0 };
    // Only PROXY over a stream counts.
    if command & 15 != 1 || family & 15 != 1 {
        return Ok(Some((none, end)));
    }
    let (addresses, len) = match family >> 4 {
        1 => (v2_addresses::<4>(body), 12),
        2 => (v2_addresses::<16>(body), 36),
        _ => return Ok(Some((none, end))),
    };
    let addresses = addresses.ok_or(Error::Truncated)?;
    let header = Header { version: Version::V2, addresses: Some(addresses), tlvs: V2_FIXED + len..end };
    Ok(Some((header, end)))
}

fn v2_addresses<const N: usize>(body: &[u8]) -> Option<Addresses>
where
    [u8; N]: Into<IpAddr>,
{
    let (source, rest) = body.split_first_chunk::<N>()?;
    let (destination, rest) = rest.split_first_chunk::<N>()?;
    let &[a, b, c, d] = rest.first_chunk()?;
    Some(Addresses {
        source: SocketAddr::new((*source).into(), u16::from_be_bytes([a, b])),
        destination: SocketAddr::new((*destination).into(), u16::from_be_bytes([c, d])),
    })
}
