//! Sessions of datagrams (nginx: `ngx_event_recvmsg`, `ngx_event_udp.c`): those with the same client and the same address of
//! ours belong to one, until it ends or has had as many as it takes.

use crate::client::Client;
use crate::engine;
use crate::session::{Facts, StreamSession};
use crate::sessions::{Host, Sessions};
use net::datagram;
use net::listen::Address;
use runtime::budget;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

/// Octets of the largest datagram there is.
pub const DATAGRAM_MAX: usize = 65_535;
/// Datagrams of one client that wait to be worked on; more are dropped, as a socket without room drops them.
const WAITING_MAX: usize = 256;
/// Datagrams that are taken at one go.
const TAKEN_MAX: usize = 64;

/// A client, and which of our addresses it talks to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    listener: Address,
    peer: Address,
    to: Option<IpAddr>,
}

/// All sessions of datagrams of a thread that hear their clients.
#[derive(Default)]
pub struct Flows(RefCell<HashMap<Key, Rc<Flow>>>);

impl Flows {
    /// Nobody hears any more: datagrams that come begin new sessions.
    pub fn forget(&self) {
        self.0.borrow_mut().clear();
    }
}

/// One client's side of a session of datagrams.
pub struct Flow {
    key: Key,
    socket: Rc<Socket>,
    sessions: Weak<Sessions>,
    /// `None`: without a worker.
    host: Option<Rc<dyn Host>>,
    waiting: RefCell<VecDeque<Vec<u8>>>,
    waker: RefCell<Option<Waker>>,
}

impl Flow {
    /// The side of a client without a worker, for tests.
    pub(crate) fn alone(fd: OwnedFd, peer: SocketAddr) -> Option<Flow> {
        let address = Address::Ip(peer);
        Some(Flow {
            key: Key { listener: address.clone(), peer: address.clone(), to: None },
            socket: Socket::new(fd, address).ok()?,
            sessions: Weak::new(),
            host: None,
            waiting: RefCell::default(),
            waker: RefCell::default(),
        })
    }
    /// Its client has said something.
    pub(crate) fn offer(&self, datagram: Vec<u8>) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() < WAITING_MAX {
            waiting.push_back(datagram);
        }
        drop(waiting);
        self.wake();
    }
    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
    /// The next datagram.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Vec<u8>> {
        if let Some(datagram) = self.waiting.borrow_mut().pop_front() {
            return Poll::Ready(datagram);
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
    /// Answers. A socket without room loses the datagram, as the network might.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        datagram::send(self.socket.fd.as_fd(), bytes, &self.key.peer, self.key.to)
    }
    /// Hears no more of its client: what comes next, or has come and was not asked for, begins another session.
    pub fn detach(&self) {
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
            let taking = Taking { sessions: &sessions, host };
            for bytes in waiting {
                take(&taking, &self.socket, &bytes, self.key.peer.clone(), self.key.to);
            }
        }
    }
}

/// A flow that ends with its session, however that ends.
struct Held(Rc<Flow>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.detach();
    }
}

/// A socket of this thread that hears datagrams.
pub struct Socket {
    fd: OwnedFd,
    pub address: Address,
}

impl Socket {
    /// Prepares a socket that was bound.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn new(fd: OwnedFd, address: Address) -> io::Result<Rc<Socket>> {
        if let Address::Ip(ip) = &address
            && ip.ip().is_unspecified()
        {
            datagram::tell_destination(&fd, ip.is_ipv6())?;
        }
        Ok(Rc::new(Socket { fd, address }))
    }
}

/// What is needed to take datagrams in.
pub struct Taking<'a> {
    pub sessions: &'a Rc<Sessions>,
    pub host: &'a Rc<dyn Host>,
}

thread_local! {
    /// Where datagrams are received.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Takes what has come to a socket; whether there may be more.
///
/// # Errors
/// As the system gives them.
pub fn receive(taking: &Taking<'_>, socket: &Rc<Socket>) -> io::Result<bool> {
    let mut buf = BUFFER.take();
    buf.resize(DATAGRAM_MAX, 0);
    let mut more = true;
    for _ in 0..TAKEN_MAX {
        if !budget::is_left() {
            break;
        }
        match datagram::receive(socket.fd.as_fd(), &mut buf) {
            Ok(came) => {
                let bytes = buf.get(..came.length).unwrap_or_default();
                // A client that has no address cannot be answered; nginx takes its datagrams all the same.
                let peer = came.from.unwrap_or_else(|| Address::Unix(Default::default()));
                take(taking, socket, bytes, peer, came.to);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                more = false;
                break;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => {
                BUFFER.set(buf);
                return Err(e);
            }
        }
    }
    BUFFER.set(buf);
    Ok(more)
}

fn take(taking: &Taking<'_>, socket: &Rc<Socket>, bytes: &[u8], peer: Address, to: Option<IpAddr>) {
    let sessions = taking.sessions;
    let key = Key { listener: socket.address.clone(), peer, to };
    let known = sessions.flows.0.borrow().get(&key).cloned();
    if let Some(flow) = known {
        return flow.offer(bytes.to_vec());
    }
    let Some(plan) = taking.host.plan() else { return };
    let Some(listener) = plan.place(&socket.address, true) else { return };
    let Some(number) = taking.host.number() else { return };
    let address = |address: &Address| match address {
        Address::Ip(ip) => Some(*ip),
        Address::Unix(_) => None,
    };
    let local = match &socket.address {
        Address::Ip(ip) => Address::Ip(datagram::local(*ip, to)),
        unix @ Address::Unix(_) => unix.clone(),
    };
    let peer: Option<SocketAddr> = address(&key.peer);
    let facts = Facts { plan, listener, number, peer, local: Rc::new(local), udp: true };
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
    let (place, host, held) = (sessions.place(number, true), taking.host.clone(), Held(flow.clone()));
    runtime::task::spawn_local(async move {
        let _held = held;
        engine::serve(session, Client::Datagrams(flow), place, host).await;
    });
}
