//! Datagrams that another process has received: while a worker process is replaced (a new binary, or a setting of the
//! process), both read the same sockets. Connection ids tell the generation of the process that has the connection; its
//! datagrams go there through a socket pair between each process and the next. First datagrams that a process receives
//! while it ends go to the next process.

use super::ids::{self, First, StrayDatagram};
use base::bug;
use rustix::net::SendFlags;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Octets before a datagram: kind, generation, slot, ECN, and the addresses of sender, receiver and listener.
const HEAD: usize = 1 + 1 + 2 + 1 + ADDRESS + ADDRESS + ADDRESS;
/// Octets of an address: family, IP address, port.
const ADDRESS: usize = 1 + 16 + 2;
const DATAGRAM_MAX: usize = 65_536;

/// The next process has begun to read.
const HELLO: u8 = 0;
/// Datagram of a connection of another process.
const KNOWN: u8 = 1;
/// First datagram of a client.
const FIRST: u8 = 2;

/// This worker process, and its predecessor and successor.
#[derive(Debug)]
pub struct Relay {
    /// Distinguishes concurrent processes. The successor's number is greater by less than 128, modulo 256.
    pub generation: u8,
    /// Key that masks connection ids, equal in all processes.
    pub key: [u8; 16],
    /// Sockets to the predecessor and to a possible successor.
    pub older: Option<OwnedFd>,
    /// See [`Relay::older`].
    pub newer: Option<OwnedFd>,
}

static RELAY: OnceLock<Relay> = OnceLock::new();
/// Set when the successor reads the sockets, too.
static IS_FOLLOWED: AtomicBool = AtomicBool::new(false);
/// Set when a successor starts, which may not read yet.
static WILL_BE_FOLLOWED: AtomicBool = AtomicBool::new(false);
/// Set while the predecessor still reads the sockets.
static HAS_OLDER: AtomicBool = AtomicBool::new(false);

/// Sets this process's neighbours. Must be called before threads start.
pub fn set_relay(relay: Relay) {
    if RELAY.set(relay).is_err() {
        bug!("the process has a place already");
    }
}

/// Returns this process's place; without [`set_relay`], one without neighbours.
pub fn process_relay() -> &'static Relay {
    RELAY.get_or_init(|| Relay { generation: 0, key: net::random::bytes16(), older: None, newer: None })
}

/// Reads the neighbours' datagrams, once this process has a QUIC socket.
pub fn start_relay() {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if STARTED.swap(true, Ordering::Relaxed) {
        return;
    }
    let relay = process_relay();
    HAS_OLDER.store(relay.older.is_some(), Ordering::Relaxed);
    for (socket, is_older) in [(&relay.older, true), (&relay.newer, false)] {
        let Some(socket) = socket else { continue };
        // Runs until the neighbour or this process ends.
        let reader = move || {
            read(socket);
            if is_older {
                HAS_OLDER.store(false, Ordering::Relaxed);
            }
        };
        if std::thread::Builder::new().name("quic relay".into()).spawn(reader).is_err() {
            return;
        }
    }
    if let Some(older) = &relay.older {
        let _ = send(older, &[HELLO]);
    }
}

fn read(socket: &OwnedFd) {
    let mut buf = vec![0; HEAD + DATAGRAM_MAX];
    loop {
        match rustix::net::recv(socket, &mut buf[..], rustix::net::RecvFlags::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            // The neighbour has ended.
            Ok((_, 0)) | Err(_) => return,
            Ok((_, length)) => take(buf.get(..length).unwrap_or_default()),
        }
    }
}

fn take(message: &[u8]) {
    let Some((kind, generation, slot, listener, stray)) = decode(message) else {
        if message == [HELLO] {
            IS_FOLLOWED.store(true, Ordering::Relaxed);
        }
        return;
    };
    let is_delivered = match kind {
        KNOWN if generation == process_relay().generation => ids::put_datagram(slot, stray.clone()),
        KNOWN => to_generation(generation, slot, listener, &stray),
        _ => false,
    };
    // An id that the client has chosen may look like a Tidegate id.
    let is_first = !is_delivered && ids::is_first(&stray.bytes);
    if is_first && ids::put_first(listener, None, stray.clone()) == First::Nowhere {
        to_newer(listener, &stray);
    }
}

/// Tells whether the predecessor still reads the sockets.
pub fn has_older() -> bool {
    HAS_OLDER.load(Ordering::Relaxed)
}

/// Sends a datagram in the direction of a generation's process. Returns `false` if there is no such neighbour.
pub fn to_generation(generation: u8, slot: u16, listener: SocketAddr, stray: &StrayDatagram) -> bool {
    let relay = process_relay();
    let is_newer = generation.wrapping_sub(relay.generation) < 128;
    let socket = if is_newer { &relay.newer } else { &relay.older };
    let Some(socket) = socket.as_ref().filter(|_| !is_newer || IS_FOLLOWED.load(Ordering::Relaxed)) else {
        return false;
    };
    send(socket, &encode(KNOWN, generation, slot, listener, stray))
}

/// Records that a successor starts while this process ends.
pub fn expect_next() {
    WILL_BE_FOLLOWED.store(true, Ordering::Relaxed);
}

/// Sends a client's first datagram to the successor; until the successor reads, the datagram waits in the socket.
/// Returns `false` without a successor.
pub fn to_newer(listener: SocketAddr, stray: &StrayDatagram) -> bool {
    let is_next = || IS_FOLLOWED.load(Ordering::Relaxed) || WILL_BE_FOLLOWED.load(Ordering::Relaxed);
    let Some(newer) = process_relay().newer.as_ref().filter(|_| is_next()) else { return false };
    send(newer, &encode(FIRST, 0, 0, listener, stray))
}

/// Sends a datagram; drops it if the neighbour's socket is full, as a network may. Returns `false` if the neighbour has
/// ended.
fn send(socket: impl AsFd, message: &[u8]) -> bool {
    match rustix::net::send(socket, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(_) => true,
        Err(e) => e == rustix::io::Errno::AGAIN,
    }
}

fn put_address(address: Option<SocketAddr>, out: &mut Vec<u8>) {
    let octets = match address.map(|address| address.ip()) {
        Some(IpAddr::V4(ip)) => ip.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(ip)) => ip.octets(),
        None => [0; 16],
    };
    out.push(match address {
        None => 0,
        Some(SocketAddr::V4(_)) => 4,
        Some(SocketAddr::V6(_)) => 6,
    });
    out.extend_from_slice(&octets);
    out.extend_from_slice(&address.map_or(0, |address| address.port()).to_be_bytes());
}

fn read_address(bytes: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = bytes.split_first()?;
    let octets: [u8; 16] = *rest.first_chunk()?;
    let port = u16::from_be_bytes(*rest.get(16..)?.first_chunk()?);
    let ip = std::net::Ipv6Addr::from(octets);
    match family {
        4 => Some((ip.to_ipv4_mapped()?, port).into()),
        6 => Some((ip, port).into()),
        _ => None,
    }
}

fn encode(kind: u8, generation: u8, slot: u16, listener: SocketAddr, stray: &StrayDatagram) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + stray.bytes.len());
    out.extend_from_slice(&[kind, generation]);
    out.extend_from_slice(&slot.to_be_bytes());
    out.push(stray.ecn);
    put_address(Some(stray.from), &mut out);
    put_address(stray.to.map(|ip| (ip, 0).into()), &mut out);
    put_address(Some(listener), &mut out);
    out.extend_from_slice(&stray.bytes);
    out
}

fn decode(message: &[u8]) -> Option<(u8, u8, u16, SocketAddr, StrayDatagram)> {
    let (head, bytes) = message.split_at_checked(HEAD)?;
    let (first, addresses) = head.split_first_chunk::<5>()?;
    let [kind, generation, high, low, ecn] = *first;
    let address = |at: usize| read_address(addresses.get(at * ADDRESS..)?);
    let stray = StrayDatagram { bytes: bytes.to_vec(), from: address(0)?, to: address(1).map(|to| to.ip()), ecn };
    Some((kind, generation, u16::from_be_bytes([high, low]), address(2)?, stray))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_as_they_were_sent() {
        for (from, to) in
            [("192.0.2.1:443", Some("192.0.2.9")), ("[2001:db8::1]:5", Some("2001:db8::9")), ("1.2.3.4:5", None)]
        {
            let stray = StrayDatagram {
                bytes: b"octets".to_vec(),
                from: from.parse().expect("an address"),
                to: to.map(|to| to.parse().expect("an address")),
                ecn: 2,
            };
            let listener = "0.0.0.0:443".parse().expect("an address");
            let message = encode(KNOWN, 200, 515, listener, &stray);
            assert_eq!(decode(&message), Some((KNOWN, 200, 515, listener, stray)));
            assert!((0..HEAD).all(|cut| decode(&message[..cut]).is_none()));
        }
    }
}
