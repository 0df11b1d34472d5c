//! Drivers of the stream area: connections, datagram sockets, connections passed between areas; sessions are in
//! `stream-features`.

use crate::areas::StreamPlanRef;
use crate::intake;
use crate::mail_area;
use crate::room::admit_connection;
use crate::secure::Secure;
use crate::worker::{Carrier, Worker};
use http_engine::ListenerRef;
use metrics::process;
use net::Address;
use net::poller::Key;
use net::socket;
use observe::Severity;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use stream_features::Host;
use stream_features::sessions::{AcceptedClient, PassedClient};
use stream_features::udp::{DatagramReceiver, UdpSocket, receive_datagrams};

/// Carrier of a datagram socket of the stream area.
pub struct DatagramSocket {
    socket: Rc<UdpSocket>,
}

impl DatagramSocket {
    /// Duplicates the descriptor, for sessions that outlive the entry.
    pub fn new(fd: &OwnedFd, address: Address) -> io::Result<DatagramSocket> {
        Ok(DatagramSocket { socket: UdpSocket::new(fd.try_clone()?, address)? })
    }
}

impl Carrier for DatagramSocket {
    fn ready(self: Rc<Self>, worker: &Rc<Worker>, key: Key) {
        let http = worker.plan.borrow().clone();
        let datagrams = http.iter().flat_map(|plan| &plan.datagrams);
        let own = datagrams.filter(|own| own.socket.covered_by(&self.socket.address)).collect::<Vec<_>>();
        let is_shared =
            || worker.areas.stream.plan().is_some_and(|plan| plan.place(&self.socket.address, true).is_some());
        let refuses = !own.is_empty() && !is_shared();
        let answer = |packet: &[u8], out: &mut Vec<u8>| {
            own.iter().any(|own| (own.answer)(packet, out))
                || own.iter().any(|own| refuses && (own.refuse)(packet, out))
        };
        let before = (!own.is_empty()).then_some(&answer as &dyn Fn(&[u8], &mut Vec<u8>) -> bool);
        let taking = DatagramReceiver { sessions: &worker.areas.stream.sessions, host: &host(worker), before };
        match receive_datagrams(&taking, &self.socket) {
            Ok(true) => worker.poller.again(key),
            Ok(false) => {}
            Err(e) => worker.log(Severity::Alert, 0, format_args!("recvmsg() failed {}", observe::os_error(&e))),
        }
    }
}

/// Begins the session of an accepted connection.
pub fn begin_session(
    worker: &Rc<Worker>,
    accepted: socket::AcceptedSocket,
    listen_socket: &ListenerRef,
    plan: &StreamPlanRef,
    listener: usize,
) {
    let local = intake::local_of(&accepted, listen_socket.address());
    // The address itself may have a listener that shares the wildcard's socket.
    let listener = plan.place(&local, false).unwrap_or(listener);
    process::CONNECTIONS_HANDLED.up_at(metrics::Area::Stream as usize);
    let accepted =
        AcceptedClient { fd: accepted.fd, peer: accepted.peer, local, listener, number: Worker::next_number() };
    worker.areas.stream.sessions.begin(plan, accepted, &host(worker));
}

fn host(worker: &Rc<Worker>) -> Rc<dyn Host> {
    worker.areas.host(|| Rc::new(WorkerHost(Rc::downgrade(worker))))
}

struct WorkerHost(Weak<Worker>);

/// Tells whether a listener accepts connections to an address: its own, or (`wildcard`) any of its port.
fn takes(listener: &Address, to: &Address, wildcard: bool) -> bool {
    match (listener, to) {
        (Address::Ip(own), Address::Ip(to)) if wildcard => {
            own.ip().is_unspecified() && own.is_ipv4() == to.is_ipv4() && own.port() == to.port()
        }
        (own, to) => !wildcard && own == to,
    }
}

impl Host for WorkerHost {
    fn plan(&self) -> Option<StreamPlanRef> {
        self.0.upgrade()?.areas.stream.plan()
    }
    fn number(&self) -> Option<u64> {
        let worker = self.0.upgrade()?;
        if let Err(limit) = admit_connection(&worker) {
            worker.log(Severity::Alert, 0, format_args!("{limit} worker_connections are not enough"));
            return None;
        }
        Some(Worker::next_number())
    }
    fn pass(&self, mut passed: PassedClient, to: &Address) -> Result<(), PassedClient> {
        let Some(worker) = self.0.upgrade() else { return Err(passed) };
        for wildcard in [false, true] {
            let stream = worker.areas.stream.plan();
            let found = stream.as_ref().and_then(|plan| {
                plan.listeners.iter().position(|l| !l.spec.datagram && takes(&l.spec.address, to, wildcard))
            });
            if let (Some(plan), Some(listener)) = (&stream, found) {
                let number = Worker::next_number();
                worker.areas.stream.sessions.resume(
                    plan,
                    passed,
                    listener,
                    Rc::new(to.clone()),
                    number,
                    &host(&worker),
                );
                return Ok(());
            }
            passed = match mail_area::pass_connection(&worker, passed, to, |listener| takes(listener, to, wildcard)) {
                Ok(()) => return Ok(()),
                Err(passed) => passed,
            };
            let http = worker.plan.borrow().clone();
            let found = http.as_ref().and_then(|plan| {
                plan.listeners
                    .iter()
                    .find(|l| !l.quic && takes(&l.spec.address, to, wildcard))
                    .map(|l| l.spec.address.clone())
            });
            if let Some(address) = found {
                take_in(&worker, passed, address, to);
                return Ok(());
            }
        }
        Err(passed)
    }
}

fn take_in(worker: &Rc<Worker>, passed: PassedClient, listener: Address, to: &Address) {
    let PassedClient { stream, peer, proxy, .. } = passed;
    let Ok((fd, tls)) = stream.into_parts() else { return };
    let listener = ListenerRef::new(Rc::new(listener));
    let accepted = socket::AcceptedSocket { fd, peer };
    let tls = tls.map(|(tls, plain)| move |connection| Rc::new(Secure::established(connection, tls, plain)));
    let as_passed = intake::As { local: Rc::new(to.clone()), proxy, established: tls };
    intake::take_in_as(worker, accepted, &listener, as_passed);
}

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
