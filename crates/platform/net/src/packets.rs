//! Batched datagrams of QUIC and of the stream area (quinn-udp): `recvmmsg` with GRO, GSO, ECN and local addresses.

use crate::budget;
use crate::listen::options;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use socket2::SockRef;
use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Octets of the receive buffer without `rcvbuf` in `listen`: simultaneous clients overflow the kernel's default.
pub const RECEIVE_BUFFER: usize = 2 * 1024 * 1024;
/// Messages per `recvmmsg`; with GRO each may hold several datagrams of a peer.
const MESSAGES: usize = 8;
const MESSAGE_BYTES: usize = 65_536;
/// Datagrams per GSO send: with 1,500 octets each, all of them fit into the 65,507 that IPv4 and UDP have lengths for.
/// The kernel refuses a longer message whole, whatever `UDP_MAX_SEGMENTS` is.
const SEGMENTS_MAX: usize = 43;

/// A received datagram.
#[derive(Debug)]
pub struct Packet<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Address of the sender.
    pub from: SocketAddr,
    /// Local address that it was sent to.
    pub to: Option<IpAddr>,
    /// ECN bits of the IP header.
    pub ecn: u8,
}

/// One, or several of `segment` octets (GSO).
#[derive(Debug)]
pub struct OutgoingPackets<'a> {
    /// Bytes of the datagram or datagrams.
    pub bytes: &'a [u8],
    /// Address of the receiver.
    pub to: SocketAddr,
    /// Local address to send from; `None`: the system selects it.
    pub from: Option<IpAddr>,
    /// ECN bits of the IP header.
    pub ecn: u8,
    /// Bytes of each datagram but the last one; `None`: a single datagram.
    pub segment: Option<usize>,
}

/// Shared by a listener's clients.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    state: UdpSocketState,
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl PacketSocket {
    /// Prepares a bound socket. `sized`: the configuration sets the receive buffer.
    pub fn new(fd: OwnedFd, sized: bool) -> io::Result<PacketSocket> {
        let state = UdpSocketState::new((&fd).into())?;
        if !sized {
            // Best effort: the system's limit may be lower.
            let _ = SockRef::from(&fd).set_recv_buffer_size(RECEIVE_BUFFER);
        }
        Ok(PacketSocket { fd, state })
    }

    /// Prepares a bound socket whose datagrams may be fragmented on their way, unlike those of QUIC.
    pub fn fragmenting(fd: OwnedFd) -> io::Result<PacketSocket> {
        let socket = PacketSocket::new(fd, true)?;
        let is_v6 = SockRef::from(&socket.fd).local_addr()?.is_ipv6();
        options::allow_fragments(&socket.fd, is_v6)?;
        Ok(socket)
    }

    /// Returns the maximum number of datagrams per call.
    pub fn segments_max(&self) -> usize {
        self.state.max_gso_segments().min(SEGMENTS_MAX)
    }

    /// Passes the datagrams of one `recvmmsg` to `take`. Returns false if it emptied the socket. Fails with
    /// `WouldBlock` when there are none.
    pub fn receive(&self, mut take: impl FnMut(Packet<'_>)) -> io::Result<bool> {
        let mut buffer = BUFFER.take();
        buffer.resize(MESSAGES * MESSAGE_BYTES, 0);
        let mut metas = [RecvMeta::default(); MESSAGES];
        let received = self.receive_now(&mut buffer, &mut metas);
        let octets = received.as_ref().map_or(0, |n| metas.iter().take(*n).map(|meta| meta.len).sum());
        budget::pass(octets);
        if let Ok(n) = &received {
            for (meta, message) in metas.iter().take(*n).zip(buffer.chunks_exact(MESSAGE_BYTES)) {
                let message = message.get(..meta.len).unwrap_or_default();
                let ecn = meta.ecn.map_or(0, |ecn| ecn as u8);
                let mut rest = message;
                // An empty datagram is one, too.
                loop {
                    let (bytes, others) = rest.split_at(meta.stride.clamp(1, message.len().max(1)).min(rest.len()));
                    take(Packet { bytes, from: meta.addr, to: meta.dst_ip, ecn });
                    rest = others;
                    if rest.is_empty() {
                        break;
                    }
                }
            }
        }
        BUFFER.set(buffer);
        received.map(|n| n == MESSAGES)
    }

    fn receive_now(&self, buffer: &mut [u8], metas: &mut [RecvMeta; MESSAGES]) -> io::Result<usize> {
        #[cfg(debug_assertions)]
        if let Some(met) = crate::faults::meet(MESSAGE_BYTES, |_, _| {}) {
            let length = met?;
            if let Some(meta) = metas.first_mut() {
                (meta.len, meta.stride) = (length, length);
            }
            return Ok(1);
        }
        let mut parts = buffer.chunks_exact_mut(MESSAGE_BYTES);
        let mut slices: [IoSliceMut<'_>; MESSAGES] =
            std::array::from_fn(|_| IoSliceMut::new(parts.next().unwrap_or_default()));
        self.state.recv((&self.fd).into(), &mut slices, metas)
    }

    /// Sends datagrams; those that the network refuses are lost. Fails with `WouldBlock` without room.
    pub fn send(&self, outgoing: &OutgoingPackets<'_>) -> io::Result<()> {
        let transmit = Transmit {
            destination: outgoing.to,
            ecn: EcnCodepoint::from_bits(outgoing.ecn),
            contents: outgoing.bytes,
            segment_size: outgoing.segment,
            src_ip: outgoing.from,
        };
        budget::pass(outgoing.bytes.len());
        match self.state.try_send((&self.fd).into(), &transmit) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(e),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn messages_are_switched_for_another_program() {
        // `server/tests/clients/listening.rs` has an address of all interfaces, in a network of its own.
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(server) = UdpSocket::bind(address) else { continue };
            let port = server.local_addr().expect("address").port();
            let socket = PacketSocket::new(server.into(), false).expect("prepared");
            for on in [true, false, true] {
                options::set_messages(&socket, on).expect("set");
                let ip = if address.starts_with('[') { "::1" } else { "127.0.0.1" };
                let client = UdpSocket::bind((ip, 0)).expect("bind");
                client.send_to(b"x", (ip, port)).expect("sent");
                let came = crate::datagram::receive(socket.as_fd(), &mut [0; 9]);
                assert_eq!(came.expect("received").to.is_some(), on, "{address}");
            }
        }
    }

    #[test]
    fn datagrams_come_and_go_in_batches() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let at = server.local_addr().expect("address");
        let server = PacketSocket::new(server.into(), false).expect("prepared");
        let nothing = server.receive(|_| panic!("nothing was sent")).expect_err("nothing is there");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let client = UdpSocket::bind("127.0.0.1:0").expect("bind");
        for text in [&b"one"[..], b"three", b""] {
            client.send_to(text, at).expect("sent");
        }
        let mut all = Vec::new();
        let mut from = None;
        while all.len() < 3 {
            let took = server.receive(|packet| {
                assert_eq!(packet.to, Some(at.ip()));
                from = Some(packet.from);
                all.push(packet.bytes.to_vec());
            });
            if took.is_err() {
                break;
            }
        }
        assert_eq!(all, [b"one".to_vec(), b"three".to_vec(), Vec::new()]);
        let bytes: Vec<u8> = (0..30).collect();
        let segment = (server.segments_max() > 1).then_some(10);
        let to = from.expect("an address");
        server.send(&OutgoingPackets { bytes: &bytes, to, from: Some(at.ip()), ecn: 2, segment }).expect("sent");
        let mut buf = [0; 2000];
        let n = client.recv(&mut buf).expect("a datagram");
        assert_eq!(&buf[..n], &bytes[..segment.unwrap_or(30)]);
        for _ in 1..segment.map_or(1, |_| 3) {
            client.recv(&mut buf).expect("a datagram");
        }
        // The largest send is one that the kernel takes.
        let bytes = vec![7; server.segments_max() * 1500];
        server.send(&OutgoingPackets { bytes: &bytes, to, from: None, ecn: 0, segment: Some(1500) }).expect("sent");
        let whole: usize = (0..server.segments_max()).map(|_| client.recv(&mut buf).expect("a datagram")).sum();
        assert_eq!(whole, bytes.len());
    }
}
