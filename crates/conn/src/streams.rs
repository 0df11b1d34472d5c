//! Sessions of the stream area on a worker thread: whose listener a connection came to, sockets of datagrams, connections that
//! are passed from one area to another. What a session does stands in the crate `stream-features`.

use crate::accept;
use crate::secure::Secure;
use crate::worker::{ListenSocket, Worker};
use http_engine::ListenerRef;
use metrics::process;
use net::listen::Address;
use net::poller::Key;
use net::socket;
use observe::Level;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use stream_features::sessions::{Accepted, Passed};
use stream_features::udp::{Socket, Taking, receive};
use stream_features::{Host, Sessions, StreamPlan};

/// Behind an `Rc`, so that a session's hold on its plan is not counted across threads.
#[allow(clippy::redundant_allocation)]
pub type PlanRef = Rc<Arc<StreamPlan>>;

/// What a worker keeps of the stream area.
pub struct Streams {
    plan: RefCell<Option<PlanRef>>,
    pub sessions: Rc<Sessions>,
}

impl Streams {
    pub fn new(plan: Option<Arc<StreamPlan>>) -> Streams {
        Streams { plan: RefCell::new(plan.map(Rc::new)), sessions: Rc::default() }
    }
    /// Another plan: sessions that are there keep the one they began with.
    pub fn replan(&self, plan: Option<Arc<StreamPlan>>) {
        *self.plan.borrow_mut() = plan.map(Rc::new);
        self.sessions.replan();
    }
    /// The plan, if the area has the listener of a listening socket, and its index there.
    #[inline]
    pub fn place(&self, listen_socket: &ListenSocket) -> Option<(PlanRef, usize)> {
        let plan = self.plan.borrow();
        let plan = plan.as_ref()?;
        let (generation, place) = listen_socket.stream.get();
        let place = if generation == plan.generation {
            place
        } else {
            let found = plan.place(listen_socket.listener.address(), false);
            listen_socket.stream.set((plan.generation, found));
            found
        };
        place.map(|place| (plan.clone(), place))
    }
}

/// A socket of datagrams.
pub struct DatagramSocket {
    socket: Rc<Socket>,
}

impl DatagramSocket {
    /// # Errors
    /// When the system has no more descriptors.
    pub fn new(fd: &OwnedFd, address: Address) -> io::Result<DatagramSocket> {
        Ok(DatagramSocket { socket: Socket::new(fd.try_clone()?, address)? })
    }
    pub fn address(&self) -> &Address {
        &self.socket.address
    }
}

/// Begins the session of a connection that was accepted.
pub fn begin(
    worker: &Rc<Worker>,
    accepted: socket::Accepted,
    listen_socket: &ListenerRef,
    plan: &PlanRef,
    listener: usize,
) {
    let local = accept::local_of(&accepted, listen_socket.address());
    process::CONNECTIONS_HANDLED.up_at(metrics::Area::Stream as usize);
    let accepted = Accepted { fd: accepted.fd, peer: accepted.peer, local, listener, number: Worker::next_number() };
    worker.streams.sessions.begin(plan, accepted, &host(worker));
}

/// Takes the datagrams in that have come to a socket.
pub fn datagrams(worker: &Rc<Worker>, key: Key, listen_socket: &DatagramSocket) {
    let taking = Taking { sessions: &worker.streams.sessions, host: &host(worker) };
    match receive(&taking, &listen_socket.socket) {
        Ok(true) => worker.poller.again(key),
        Ok(false) => {}
        Err(e) => worker.log(Level::Alert, 0, format_args!("recvmsg() failed {}", observe::os(&e))),
    }
}

fn host(worker: &Rc<Worker>) -> Rc<dyn Host> {
    let mut host = worker.host.borrow_mut();
    host.get_or_insert_with(|| Rc::new(WorkerHost(Rc::downgrade(worker)))).clone()
}

struct WorkerHost(Weak<Worker>);

/// Whether a listener takes connections to an address: the very one, or (`wildcard`) any of its port.
fn takes(listener: &Address, to: &Address, wildcard: bool) -> bool {
    match (listener, to) {
        (Address::Ip(own), Address::Ip(to)) if wildcard => {
            own.ip().is_unspecified() && own.is_ipv4() == to.is_ipv4() && own.port() == to.port()
        }
        (own, to) => !wildcard && own == to,
    }
}

impl Host for WorkerHost {
    fn plan(&self) -> Option<PlanRef> {
        self.0.upgrade()?.streams.plan.borrow().clone()
    }
    fn number(&self) -> Option<u64> {
        let worker = self.0.upgrade()?;
        let limit = worker.serving.borrow().connections_max;
        if worker.connections() >= limit {
            worker.log(Level::Alert, 0, format_args!("{limit} worker_connections are not enough"));
            return None;
        }
        Some(Worker::next_number())
    }
    fn pass(&self, mut passed: Passed, to: &Address) -> Result<(), Passed> {
        let Some(worker) = self.0.upgrade() else { return Err(passed) };
        for wildcard in [false, true] {
            let stream = worker.streams.plan.borrow().clone();
            let found = stream.as_ref().and_then(|plan| {
                plan.listeners.iter().position(|l| !l.spec.datagram && takes(&l.spec.address, to, wildcard))
            });
            if let (Some(plan), Some(listener)) = (&stream, found) {
                let number = Worker::next_number();
                worker.streams.sessions.resume(plan, passed, listener, Rc::new(to.clone()), number, &host(&worker));
                return Ok(());
            }
            passed = match worker.mails.pass(passed, to, |listener| takes(listener, to, wildcard)) {
                Ok(()) => return Ok(()),
                Err(passed) => passed,
            };
            let http = worker.plan.borrow().clone();
            let found = http.as_ref().and_then(|plan| {
                plan.listeners.iter().find(|l| takes(&l.spec.address, to, wildcard)).map(|l| l.spec.address.clone())
            });
            if let Some(address) = found {
                take_in(&worker, passed, address, to);
                return Ok(());
            }
        }
        Err(passed)
    }
}

/// A connection that becomes the http area's.
fn take_in(worker: &Rc<Worker>, passed: Passed, listener: Address, to: &Address) {
    let Passed { stream, peer, proxy, .. } = passed;
    let Ok((fd, tls)) = stream.into_parts() else { return };
    let listener = ListenerRef::new(Rc::new(listener));
    let accepted = socket::Accepted { fd, peer };
    let tls = tls.map(|(tls, plain)| move |connection| Rc::new(Secure::established(connection, tls, plain)));
    let as_passed = accept::As { local: Rc::new(to.clone()), proxy, established: tls };
    accept::take_in_as(worker, accepted, &listener, as_passed);
}

/// Where a listening socket's place among the listeners of the stream area is kept: the plan's generation, and the place.
pub type ListenPlace = Cell<(u32, Option<usize>)>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn the_listener_of_an_address() {
        let ip = |text: &str| Address::Ip(text.parse::<SocketAddr>().expect(text));
        let any = ip("0.0.0.0:80");
        assert!(takes(&ip("127.0.0.1:80"), &ip("127.0.0.1:80"), false));
        assert!(!takes(&any, &ip("127.0.0.1:80"), false) && takes(&any, &ip("127.0.0.1:80"), true));
        assert!(!takes(&any, &ip("127.0.0.1:81"), true) && !takes(&any, &ip("[::1]:80"), true));
        assert!(takes(&Address::Unix("/s".into()), &Address::Unix("/s".into()), false));
    }
}
