//! Datagram sessions (nginx: `ngx_event_recvmsg`, `ngx_event_udp.c`): datagrams with equal client and local address
//! belong to one session.

use crate::client::{DatagramClient, SessionClient};
use crate::engine;
use crate::session::{SessionFacts, StreamSession};
use crate::sessions::{Host, StreamSessions};
use net::Address;
use net::datagram;
use net::outbound::Outbound;
use net::packets::PacketSocket;
use runtime::budget;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use transport::{ConnectOptions, datagram_socket};

/// In bytes.
pub const DATAGRAM_MAX: usize = 65_535;
/// Maximum number of queued datagrams per client; further ones are dropped.
const WAITING_MAX: usize = 256;
/// Maximum number of system calls per event, each of which may receive several datagrams.
const RECEIVES_MAX: usize = 16;
/// Buffers of datagrams that a thread keeps, and the largest of them in bytes.
const SPARE_MAX: usize = 256;
const SPARE_BYTES_MAX: usize = 2048;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FlowKey {
    listener: Address,
    peer: Address,
    to: Option<IpAddr>,
}

/// The hash is seeded at random in each process and much cheaper than the library's, which each datagram would pay.
#[derive(Default)]
pub struct Flows(RefCell<hashbrown::HashMap<FlowKey, Rc<Flow>>>);

impl Flows {
    /// Detaches the session: further datagrams start new sessions.
    pub fn forget(&self) {
        self.0.borrow_mut().clear();
    }
}

/// SessionClient side of a datagram session.
pub struct Flow {
    key: FlowKey,
    socket: Rc<UdpSocket>,
    sessions: Weak<StreamSessions>,
    /// `None`: without a worker.
    host: Option<Rc<dyn Host>>,
    waiting: RefCell<VecDeque<Vec<u8>>>,
    waker: RefCell<Option<Waker>>,
}

impl Flow {
    pub(crate) fn alone(fd: OwnedFd, peer: SocketAddr) -> Option<Flow> {
        let address = Address::Ip(peer);
        Some(Flow {
            key: FlowKey { listener: address.clone(), peer: address.clone(), to: None },
            socket: UdpSocket::new(fd, address).ok()?,
            sessions: Weak::new(),
            host: None,
            waiting: RefCell::default(),
            waker: RefCell::default(),
        })
    }
    pub(crate) fn offer(&self, datagram: &[u8]) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() < WAITING_MAX {
            waiting.push_back(buffered(datagram));
        }
        drop(waiting);
        self.wake();
    }
    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl DatagramClient for Flow {
    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Vec<u8>> {
        if let Some(datagram) = self.waiting.borrow_mut().pop_front() {
            return Poll::Ready(datagram);
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        datagram::send(self.socket.as_fd(), bytes, &self.key.peer, self.key.to)
    }
    fn detach(&self) {
        let Some(sessions) = self.sessions.upgrade() else { return };
        {
            let mut all = sessions.flows.0.borrow_mut();
            if all.get(&self.key).is_some_and(|flow| std::ptr::eq(&**flow, self)) {
                all.remove(&self.key);
            }
        }
        let waiting = self.waiting.take();
        if let Some(host) = &self.host
            && !waiting.is_empty()
            && !sessions.ended.get()
        {
            let taking = DatagramReceiver { sessions: &sessions, host, before: None };
            for bytes in waiting {
                take(&taking, &self.socket, &bytes, self.key.peer.clone(), self.key.to);
            }
        }
    }
}

struct HeldDatagrams(Rc<Flow>);

impl Drop for HeldDatagrams {
    fn drop(&mut self) {
        self.0.detach();
    }
}

pub struct UdpSocket {
    kind: SocketKind,
    pub address: Address,
    /// Bound to all addresses: datagrams have destinations of their own.
    wildcard: bool,
}

enum SocketKind {
    /// UDP: several datagrams per system call.
    Packets(PacketSocket),
    /// UNIX-domain datagrams.
    Single(OwnedFd),
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            SocketKind::Packets(socket) => socket.as_fd(),
            SocketKind::Single(fd) => fd.as_fd(),
        }
    }
}

impl UdpSocket {
    pub fn new(fd: OwnedFd, address: Address) -> io::Result<Rc<UdpSocket>> {
        let wildcard = matches!(&address, Address::Ip(ip) if ip.ip().is_unspecified());
        let kind = match &address {
            // The configuration or the system sizes the receive buffer, as in nginx.
            Address::Ip(_) => SocketKind::Packets(PacketSocket::fragmenting(fd)?),
            Address::Unix(_) => SocketKind::Single(fd),
        };
        Ok(Rc::new(UdpSocket { kind, address, wildcard }))
    }
}

pub struct DatagramReceiver<'a> {
    pub sessions: &'a Rc<StreamSessions>,
    pub host: &'a Rc<dyn Host>,
    /// Answers a datagram in place of a session: writes the response.
    pub before: Option<&'a dyn Fn(&[u8], &mut Vec<u8>) -> bool>,
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Buffers of datagrams that have been passed on.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Uses a spare buffer of the thread.
fn buffered(datagram: &[u8]) -> Vec<u8> {
    let mut buf = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
    buf.extend_from_slice(datagram);
    buf
}

/// Takes back the buffer of a datagram that has been passed on.
pub fn recycle_buffer(mut datagram: Vec<u8>) {
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < SPARE_MAX && datagram.capacity() <= SPARE_BYTES_MAX {
            datagram.clear();
            spare.push(datagram);
        }
    });
}

/// Receives pending datagrams; returns whether there may be more.
pub fn receive_datagrams(taking: &DatagramReceiver<'_>, socket: &Rc<UdpSocket>) -> io::Result<bool> {
    for _ in 0..RECEIVES_MAX {
        if !budget::is_left() {
            break;
        }
        let received = match &socket.kind {
            SocketKind::Packets(packets) => packets.receive(|packet| {
                let to = packet.to.filter(|_| socket.wildcard);
                take(taking, socket, packet.bytes, Address::Ip(packet.from), to);
            }),
            SocketKind::Single(fd) => receive_one(taking, socket, fd.as_fd()),
        };
        match received {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

fn receive_one(taking: &DatagramReceiver<'_>, socket: &Rc<UdpSocket>, fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut buf = BUFFER.take();
    buf.resize(DATAGRAM_MAX, 0);
    let came = datagram::receive(fd, &mut buf);
    if let Ok(came) = &came {
        let bytes = buf.get(..came.length).unwrap_or_default();
        // A client without an address cannot be answered; nginx accepts its datagrams, too.
        let peer = came.from.clone().unwrap_or_else(|| Address::Unix(Default::default()));
        take(taking, socket, bytes, peer, came.to);
    }
    BUFFER.set(buf);
    came.map(|_| true)
}

fn take(taking: &DatagramReceiver<'_>, socket: &Rc<UdpSocket>, bytes: &[u8], peer: Address, to: Option<IpAddr>) {
    if let Some(answer) = taking.before {
        let mut response = Vec::new();
        if answer(bytes, &mut response) {
            // A lost response is requested again.
            let _ = datagram::send(socket.as_fd(), &response, &peer, to);
            return;
        }
    }
    let sessions = taking.sessions;
    let key = FlowKey { listener: socket.address.clone(), peer, to };
    let known = sessions.flows.0.borrow().get(&key).cloned();
    if let Some(flow) = known {
        return flow.offer(bytes);
    }
    let Some(plan) = taking.host.plan() else { return };
    let Some(listener) = plan.place(&socket.address, true) else { return };
    let Some(number) = taking.host.number() else { return };
    let address = |address: &Address| match address {
        Address::Ip(ip) => Some(*ip),
        Address::Unix(_) => None,
    };
    let local = match &socket.address {
        Address::Ip(ip) => Address::Ip(datagram::local_address(*ip, to)),
        unix @ Address::Unix(_) => unix.clone(),
    };
    let peer: Option<SocketAddr> = address(&key.peer);
    let facts = SessionFacts { plan, listener, number, peer, local: Rc::new(local), udp: true };
    let mut session = Box::new(StreamSession::new(facts));
    session.preread = bytes.to_vec();
    session.received = bytes.len() as u64;
    let flow = Rc::new(Flow {
        key: key.clone(),
        socket: socket.clone(),
        sessions: Rc::downgrade(sessions),
        host: Some(taking.host.clone()),
        waiting: RefCell::default(),
        waker: RefCell::default(),
    });
    sessions.flows.0.borrow_mut().insert(key, flow.clone());
    let (place, host, held) = (sessions.place(number, true), taking.host.clone(), HeldDatagrams(flow.clone()));
    runtime::task::spawn_local(async move {
        let _held = held;
        engine::serve(session, SessionClient::Datagrams(flow), place, host).await;
    });
}
/// Opens a socket that is connected to a server.
pub fn open_outbound(to: &Address, options: &ConnectOptions) -> io::Result<Outbound> {
    datagram_socket(to, options).and_then(Outbound::datagrams)
}
