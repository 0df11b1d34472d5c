//! Packets between master, workers and the key process: one request or answer each, over sequenced-packet sockets.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use tls::isolation::KeyId;

/// Octets of a packet. The longest messages are transcripts with chains of certificates (client certificates under TLS
/// 1.2).
pub const PACKET_MAX: usize = 128 << 10;
/// In octets: keys, certificates or passwords.
pub const FILE_MAX: u64 = 1 << 20;
/// In octets.
const PATH_MAX: usize = 4096;
/// Maximum number of descriptors per packet.
const DESCRIPTORS_MAX: usize = 2;

/// Requests of the master: takes over a file with keys (descriptors: the file, its passwords), forgets keys, and admits workers: the
/// process has the keys of its predecessor.
pub const LOAD: u8 = b'l';
pub const FORGET: u8 = b'f';
pub const ADMIT: u8 = b'a';
const SIGN: u8 = b's';
const OPEN: u8 = b'o';
/// First octets of answers.
const DONE: u8 = b'd';
const ERRNO: u8 = b'e';
const WORDS: u8 = b'w';

const EIO: i32 = 5;
const EPROTO: i32 = 71;

#[derive(Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Signs `message`. `origin`: the file to load the key from; empty for keys of the master.
    Sign {
        id: KeyId,
        scheme: u16,
        origin: &'a str,
        message: &'a [u8],
    },
    Open {
        path: &'a str,
    },
}

impl<'a> Request<'a> {
    pub fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        match self {
            Request::Sign { id, scheme, origin, message } => {
                out.push(SIGN);
                out.extend_from_slice(id);
                out.extend_from_slice(&scheme.to_le_bytes());
                out.extend_from_slice(&(origin.len().min(PATH_MAX) as u16).to_le_bytes());
                out.extend_from_slice(origin.as_bytes());
                out.extend_from_slice(message);
            }
            Request::Open { path } => {
                out.push(OPEN);
                out.extend_from_slice(path.as_bytes());
            }
        }
    }

    /// `None` for packets that no worker sends.
    pub fn read(bytes: &'a [u8]) -> Option<Request<'a>> {
        let (kind, rest) = bytes.split_first()?;
        let path = |bytes: &'a [u8]| std::str::from_utf8(bytes).ok().filter(|path| path.len() <= PATH_MAX);
        match *kind {
            SIGN => {
                let (id, rest) = rest.split_first_chunk::<32>()?;
                let (scheme, rest) = rest.split_first_chunk::<2>()?;
                let (length, rest) = rest.split_first_chunk::<2>()?;
                let (origin, message) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
                Some(Request::Sign { id: *id, scheme: u16::from_le_bytes(*scheme), origin: path(origin)?, message })
            }
            OPEN => Some(Request::Open { path: path(rest)? }),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyResponse {
    Done(Vec<u8>),
    Errno(i32),
    Words(String),
}

impl KeyResponse {
    pub fn error(why: &io::Error) -> KeyResponse {
        KeyResponse::Errno(why.raw_os_error().unwrap_or(EIO))
    }

    pub fn bytes(&self) -> Vec<u8> {
        match self {
            KeyResponse::Done(bytes) => [&[DONE], &bytes[..]].concat(),
            KeyResponse::Errno(code) => [&[ERRNO], &code.to_le_bytes()[..]].concat(),
            KeyResponse::Words(words) => [&[WORDS], words.as_bytes()].concat(),
        }
    }

    pub fn read(bytes: &[u8]) -> KeyResponse {
        match bytes.split_first() {
            Some((&DONE, rest)) => KeyResponse::Done(rest.to_vec()),
            Some((&ERRNO, rest)) => KeyResponse::Errno(rest.try_into().map_or(EPROTO, i32::from_le_bytes)),
            Some((&WORDS, rest)) => KeyResponse::Words(String::from_utf8_lossy(rest).into_owned()),
            _ => KeyResponse::Errno(EPROTO),
        }
    }

    /// # Errors
    /// The key process has answered with one.
    pub fn done(self) -> io::Result<Vec<u8>> {
        match self {
            KeyResponse::Done(bytes) => Ok(bytes),
            KeyResponse::Errno(code) => Err(io::Error::from_raw_os_error(code)),
            KeyResponse::Words(words) => Err(io::Error::other(words)),
        }
    }
}

pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends a packet without waiting.
///
/// # Errors
/// As `sendmsg`: among others, the peer has ended or its queue is full.
pub fn send_packet(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors in one packet"));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

/// Receives a packet with its descriptors; no octets: the peer has ended.
///
/// # Errors
/// As `recvmsg`.
pub fn receive_packet(socket: impl AsFd, buffer: &mut [u8], wait: bool) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let got = loop {
        match rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((got.bytes.min(buffer.len()), descriptors))
}

/// Waits until a socket has something to read. False after the time.
pub fn await_readable(socket: impl AsFd, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut one = [PollFd::new(&socket, PollFlags::IN)];
        match poll(&mut one, Some(&timeout)) {
            Ok(0) if left == Duration::ZERO => return false,
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_as_written() {
        let mut bytes = Vec::new();
        for request in [
            Request::Sign { id: [7; 32], scheme: 0x0804, origin: "", message: b"to be signed" },
            Request::Sign { id: [8; 32], scheme: 1, origin: "/certs/a.key", message: b"" },
            Request::Open { path: "/certs/b.crt" },
        ] {
            request.write(&mut bytes);
            assert_eq!(Request::read(&bytes), Some(request));
        }
        for answer in [KeyResponse::Done(vec![1, 2]), KeyResponse::Errno(2), KeyResponse::Words("no".into())] {
            assert_eq!(KeyResponse::read(&answer.bytes()), answer);
        }
        assert_eq!(KeyResponse::read(b""), KeyResponse::Errno(EPROTO));
    }

    #[test]
    fn broken_packets_are_no_requests() {
        let mut whole = Vec::new();
        Request::Sign { id: [7; 32], scheme: 1, origin: "/a", message: b"" }.write(&mut whole);
        for end in 0..whole.len() {
            assert_eq!(Request::read(&whole[..end]), None, "{end}");
        }
        assert_eq!(Request::read(b"x"), None);
        assert_eq!(Request::read(b"o\xff"), None);
        assert_eq!(Request::read(&[&b"o"[..], &[b'a'; PATH_MAX + 1]].concat()), None);
    }

    #[test]
    fn descriptors_travel_and_ends_are_told() {
        let (a, b) = socket_pair().expect("a pair");
        let (c, d) = socket_pair().expect("a pair");
        send_packet(&a, b"x", &[c.as_fd()]).expect("sent");
        let mut buffer = [0; 8];
        let (length, descriptors) = receive_packet(&b, &mut buffer, true).expect("received");
        assert_eq!((&buffer[..length], descriptors.len()), (&b"x"[..], 1));
        send_packet(&descriptors[0], b"y", &[]).expect("sent");
        assert_eq!(receive_packet(&d, &mut buffer, false).expect("received").0, 1);
        assert!(!await_readable(&b, Instant::now()));
        drop(a);
        assert!(await_readable(&b, Instant::now()));
        assert_eq!(receive_packet(&b, &mut buffer, false).expect("the end").0, 0);
    }
}
