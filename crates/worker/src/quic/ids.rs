//! Connection ids that name the process and the socket which has the connection. A datagram that reaches another socket
//! of the address, because the client's address or the number of sockets has changed, is handed over (the purpose of
//! nginx's `quic_bpf`); `relay.rs` hands it to other processes.
//! An id consists of a nonce of six octets, the process's generation, the socket's slot of two octets, and an octet
//! that distinguishes Tidegate's ids from others. A keyed hash of the nonce masks all octets after it, so that
//! observers cannot relate two ids of a connection.

use super::relay;
use quinn_proto::{ConnectionId, ConnectionIdGenerator};
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Length of an id in octets.
const ID_BYTES: usize = 10;
const NONCE_BYTES: usize = 6;
/// Maximum number of datagrams that wait for another thread; further ones are dropped, as a network may drop them.
const WAITING_MAX: usize = 256;

const LONG: u8 = 0x80;
const TYPE: u8 = 0x30;

static NEXT: AtomicU16 = AtomicU16::new(1);
/// Number of this process's sockets that accept no new clients.
static LEAVING: AtomicUsize = AtomicUsize::new(0);
static INBOXES: RwLock<BTreeMap<u16, Inbox>> = RwLock::new(BTreeMap::new());

/// A datagram that arrived at a socket other than its connection's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrayDatagram {
    /// The datagram.
    pub bytes: Vec<u8>,
    /// Address of the sender.
    pub from: SocketAddr,
    /// Local address that it was sent to.
    pub to: Option<IpAddr>,
    /// Bits of Explicit Congestion Notification.
    pub ecn: u8,
}

struct Inbox {
    listener: SocketAddr,
    sender: Sender<StrayDatagram>,
    /// Takes no new clients.
    leaving: Arc<AtomicBool>,
}

/// A socket's number within the process. Dropping it ends the delivery of datagrams.
#[derive(Debug)]
pub struct SocketSlot {
    number: u16,
    listener: SocketAddr,
    leaving: Arc<AtomicBool>,
}

impl SocketSlot {
    /// Reserves an unused number, with an inbox for datagrams.
    pub fn take(listener: SocketAddr) -> (SocketSlot, Receiver<StrayDatagram>) {
        let (sender, receiver) = channel(WAITING_MAX);
        let leaving = Arc::<AtomicBool>::default();
        let mut inboxes = INBOXES.write().unwrap_or_else(PoisonError::into_inner);
        // Numbers repeat after 65,535 sockets; skips those in use.
        let mut number = NEXT.fetch_add(1, Ordering::Relaxed);
        while inboxes.contains_key(&number) && inboxes.len() < usize::from(u16::MAX) {
            number = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        inboxes.insert(number, Inbox { listener, sender, leaving: leaving.clone() });
        (SocketSlot { number, listener, leaving }, receiver)
    }
    /// Returns the generator of ids that name this socket.
    pub fn ids(&self) -> Ids {
        Ids { generation: relay::process_relay().generation, slot: self.number }
    }
    /// The socket takes no new clients.
    pub fn leave(&self) {
        if !self.leaving.swap(true, Ordering::Relaxed) {
            LEAVING.fetch_add(1, Ordering::Relaxed);
        }
    }
    /// Hands a datagram over to the socket that has its connection, or that takes new clients. Returns `false` for a
    /// datagram of this socket.
    ///
    /// While sockets have two readers (threads or processes that leave, and their successors), first datagrams of a
    /// client may reach either. A ClientHello with post-quantum keys takes two of them: all go to one socket, which the
    /// client's address chooses.
    pub fn pass_on(&self, bytes: &[u8], stray: impl FnOnce() -> StrayDatagram) -> bool {
        match name_of(bytes) {
            Some(name) if name.generation == relay::process_relay().generation => {
                name.slot != self.number && has_inbox(name.slot) && put_datagram(name.slot, stray())
            }
            Some(name) => relay::to_generation(name.generation, name.slot, self.listener, &stray()),
            None if is_first(bytes) && (LEAVING.load(Ordering::Relaxed) > 0 || relay::has_older()) => {
                let stray = stray();
                match put_first(self.listener, Some(self.number), stray.clone()) {
                    First::Own => false,
                    First::Put => true,
                    First::Nowhere => relay::to_newer(self.listener, &stray),
                }
            }
            None => false,
        }
    }
}

impl Drop for SocketSlot {
    fn drop(&mut self) {
        if self.leaving.load(Ordering::Relaxed) {
            LEAVING.fetch_sub(1, Ordering::Relaxed);
        }
        INBOXES.write().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

fn has_inbox(slot: u16) -> bool {
    INBOXES.read().unwrap_or_else(PoisonError::into_inner).contains_key(&slot)
}

/// Puts a datagram into a slot's inbox; drops it if the inbox is full. Returns `false` if the slot has no inbox.
pub fn put_datagram(slot: u16, stray: StrayDatagram) -> bool {
    let inboxes = INBOXES.read().unwrap_or_else(PoisonError::into_inner);
    let Some(inbox) = inboxes.get(&slot) else { return false };
    let _ = inbox.sender.try_send(stray);
    true
}

/// Socket that processes a client's first datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The socket that received the datagram.
    Own,
    /// Another socket, whose inbox has the datagram.
    Put,
    /// No socket accepts new clients.
    Nowhere,
}

/// Puts a client's first datagram into the inbox of a socket of the listener that takes new clients, which is the same
/// for all datagrams of the client. `own`: the socket that received it.
pub fn put_first(listener: SocketAddr, own: Option<u16>, stray: StrayDatagram) -> First {
    let inboxes = INBOXES.read().unwrap_or_else(PoisonError::into_inner);
    let takes = |inbox: &Inbox| inbox.listener == listener && !inbox.leaving.load(Ordering::Relaxed);
    let open: Vec<(&u16, &Inbox)> = inboxes.iter().filter(|(_, inbox)| takes(inbox)).collect();
    let chosen = usize::from(stray.from.port()).checked_rem(open.len()).and_then(|at| open.get(at));
    match chosen {
        None => First::Nowhere,
        Some((number, _)) if Some(**number) == own => First::Own,
        Some((_, inbox)) => {
            let _ = inbox.sender.try_send(stray);
            First::Put
        }
    }
}

/// Generates ids that name a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// Number of the process.
    pub generation: u8,
    /// Number of the socket within the process.
    pub slot: u16,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_BYTES];
        for (to, from) in id.iter_mut().zip(net::random::bytes16()) {
            *to = from;
        }
        let [high, low] = self.slot.to_be_bytes();
        let (nonce, place) = id.split_at_mut(NONCE_BYTES);
        for (to, (plain, mask)) in place.iter_mut().zip([self.generation, high, low, 0].into_iter().zip(mask(nonce))) {
            *to = plain ^ mask;
        }
        ConnectionId::new(&id)
    }
    fn cid_len(&self) -> usize {
        ID_BYTES
    }
    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[allow(deprecated, reason = "the standard library's only hash with a key that can be given")]
fn mask(nonce: &[u8]) -> [u8; 8] {
    let (high, low) = relay::process_relay().key.split_at(8);
    let key = |half: &[u8]| half.first_chunk().map_or(0, |octets| u64::from_be_bytes(*octets));
    let mut hasher = std::hash::SipHasher::new_with_keys(key(high), key(low));
    hasher.write(nonce);
    hasher.finish().to_be_bytes()
}

/// Tells whether a packet is an Initial packet (long header), with which clients begin connections.
pub fn is_first(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & (LONG | TYPE) == LONG)
}

/// Returns the process and the slot that a datagram's destination id names. An id that the client has chosen looks like
/// a Tidegate id with a probability of 1 in 256; another socket then processes the client's first datagrams.
fn name_of(datagram: &[u8]) -> Option<Ids> {
    let first = *datagram.first()?;
    let id = match first & LONG {
        0 => datagram.get(1..1 + ID_BYTES)?,
        _ if datagram.get(5) == Some(&(ID_BYTES as u8)) => datagram.get(6..6 + ID_BYTES)?,
        _ => return None,
    };
    let (nonce, place) = id.split_at_checked(NONCE_BYTES)?;
    let mask = mask(nonce);
    let mut plain = place.iter().zip(mask).map(|(octet, mask)| octet ^ mask);
    let (generation, high, low, check) = (plain.next()?, plain.next()?, plain.next()?, plain.next()?);
    (check == 0).then_some(Ids { generation, slot: u16::from_be_bytes([high, low]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(id: &ConnectionId) -> Vec<u8> {
        [&[0x40], &id[..], b"payload"].concat()
    }
    fn listener(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }
    fn stray(bytes: &[u8]) -> StrayDatagram {
        StrayDatagram { bytes: bytes.to_vec(), from: listener(1), to: None, ecn: 0 }
    }

    #[test]
    fn ids_name_their_socket() {
        let ((one, mut inbox), (other, mut others)) = (SocketSlot::take(listener(1)), SocketSlot::take(listener(1)));
        let (a, b) = (one.ids().generate_cid(), one.ids().generate_cid());
        assert_ne!(a, b);
        for id in [a, b] {
            let datagram = short(&id);
            assert_eq!(name_of(&datagram), Some(one.ids()));
            assert!(!one.pass_on(&datagram, || stray(&datagram)), "its own");
            assert!(other.pass_on(&datagram, || stray(&datagram)));
            assert_eq!(inbox.try_recv().map(|stray| stray.bytes).ok(), Some(datagram));
        }
        for first in [0xe0, 0xc0, 0xd0] {
            let long = [&[first, 0, 0, 0, 1, 10], &a[..], b"rest"].concat();
            assert!(other.pass_on(&long, || stray(&long)), "{first:x}");
        }
        let chosen = [&[0xc0, 0, 0, 0, 1, 8], &a[..8], b"rest"].concat();
        assert!(!other.pass_on(&chosen, || stray(&chosen)), "the client's own choice");
        for cut in [&b""[..], b"\x40", b"\x40123", b"\xe0\0\0\0\x01\x0a123"] {
            assert!(!other.pass_on(cut, || stray(cut)));
        }
        assert!(others.try_recv().is_err());
    }

    #[test]
    fn ids_of_others_are_hardly_ever_taken_for_ours() {
        let taken = (0..20_000u32).filter(|n| {
            let id = [&n.to_be_bytes()[..], b"random"].concat();
            name_of(&short(&ConnectionId::new(&id))).is_some()
        });
        assert!(taken.count() < 400);
    }

    #[test]
    fn an_inbox_has_a_bound_and_ends_with_its_socket() {
        let ((one, mut inbox), (other, _others)) = (SocketSlot::take(listener(2)), SocketSlot::take(listener(2)));
        let datagram = short(&one.ids().generate_cid());
        for _ in 0..2 * WAITING_MAX {
            assert!(other.pass_on(&datagram, || stray(b"")));
        }
        let waiting = std::iter::from_fn(|| inbox.try_recv().ok()).count();
        assert_eq!(waiting, WAITING_MAX);
        drop(one);
        assert!(!other.pass_on(&datagram, || stray(b"")));
    }

    #[test]
    fn new_clients_of_a_socket_that_leaves_go_to_another_of_its_address() {
        let first = b"\xc0\0\0\0\x01\x08a client's choice";
        let ((one, _), (other, mut others), (third, mut thirds)) =
            (SocketSlot::take(listener(3)), SocketSlot::take(listener(3)), SocketSlot::take(listener(4)));
        assert!(!one.pass_on(first, || stray(first)), "it takes them itself");
        one.leave();
        assert!(!other.pass_on(first, || stray(first)), "the one that is left takes them, whichever socket they reach");
        assert!(one.pass_on(first, || stray(first)));
        assert!(others.try_recv().is_ok() && thirds.try_recv().is_err());
        assert!(!one.pass_on(b"\xd0\0\0\0\x01\x08no first one", || stray(b"")));
        other.leave();
        assert!(!one.pass_on(first, || stray(first)), "none is left");
        drop(third);
    }
}
