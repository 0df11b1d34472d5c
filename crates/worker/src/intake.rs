//! New connections of the http area: their poller entry and immediate first read.

use crate::guard::call_guarded;
use crate::secure::Secure;
use crate::worker::{Carrier, Worker};
use base::clock;
use http_engine::{ClientConnection, ListenerRef, PartialHead};
use metrics::process;
use net::Address;
use net::poller::Key;
use net::socket;
use observe::Severity;
use std::cell::Cell;
use std::rc::Rc;
use stream_features::sessions::ProxyHeader;

/// Takes in a listener's connection, which may be answered and closed on return.
pub fn take_in(worker: &Rc<Worker>, accepted: socket::AcceptedSocket, listener: &ListenerRef) -> Option<Key> {
    let local = local_of(&accepted, listener.address());
    let covered = covered_listener(worker, listener, &local);
    take_in_as(
        worker,
        accepted,
        covered.as_ref().unwrap_or(listener),
        As { local, proxy: None, established: None::<fn(Rc<ClientConnection>) -> Rc<Secure>> },
    )
}

/// The listener of the address itself, which shares the wildcard's socket. `None`: the wildcard.
fn covered_listener(worker: &Worker, listener: &ListenerRef, local: &Rc<Address>) -> Option<ListenerRef> {
    if **local == **listener.address() {
        return None;
    }
    let plan = worker.plan.borrow();
    let is_its = |l: &http_engine::Listener| !l.spec.datagram && l.spec.address == **local;
    plan.as_ref()?.listeners.iter().any(is_its).then(|| ListenerRef::new(local.clone()))
}

/// Local address of a client; on the wildcard address asked for once.
pub fn local_of(accepted: &socket::AcceptedSocket, address: &Rc<Address>) -> Rc<Address> {
    match &**address {
        Address::Ip(ip) if ip.ip().is_unspecified() => {
            socket::local_address(&accepted.fd).map_or_else(|| address.clone(), |local| Rc::new(Address::Ip(local)))
        }
        _ => address.clone(),
    }
}

/// Facts known from another listener or area.
pub struct As<F> {
    /// Local address.
    pub local: Rc<Address>,
    /// PROXY protocol header that was read already.
    pub proxy: Option<ProxyHeader>,
    /// TLS after its handshake.
    pub established: Option<F>,
}

/// [`take_in`] with known facts.
pub fn take_in_as(
    worker: &Rc<Worker>,
    accepted: socket::AcceptedSocket,
    listener: &ListenerRef,
    known: As<impl FnOnce(Rc<ClientConnection>) -> Rc<Secure>>,
) -> Option<Key> {
    let As { local, proxy, established } = known;
    let address = listener.address();
    let reads_header = |l: &http_engine::Listener| l.spec.address == **address && l.proxy_protocol;
    let proxy = proxy.filter(|_| worker.plan.borrow().as_ref().is_some_and(|p| !p.listeners.iter().any(reads_header)));
    let (core, is_secure) = {
        let plan = worker.plan.borrow();
        let plan = plan.as_ref()?;
        let found = plan.listener(listener)?;
        // A PROXY protocol header precedes the handshake.
        (plan.default_conf(found)?, found.ssl && !found.proxy_protocol)
    };
    let timeout = core.conf.client_header_timeout.0;
    let known = |key| {
        Rc::new(ClientConnection {
            number: Worker::next_number(),
            peer: accepted.peer,
            local,
            listener: listener.clone(),
            requests: Cell::new(0),
            nodelay: Cell::new(false),
            pipelining: http_engine::PipelineState::default(),
            started: clock::now(),
            proxy,
            socket: Some(key),
            tls: None,
            begun: PartialHead::default(),
        })
    };
    let key = worker.poller.add_unwatched(accepted.fd, |key| -> Rc<dyn Carrier> {
        match established {
            Some(established) => established(known(key)),
            None if is_secure => Rc::new(Secure::new(known(key), &[])),
            None => known(key),
        }
    });
    process::CONNECTIONS_HANDLED.up_at(metrics::Area::Http as usize);
    process::CONNECTIONS_ACTIVE.up();
    worker.poller.set_deadline(key, clock::now().plus_millis(timeout));
    // The request mostly follows at once: a connection answered and closed here needs no epoll. A fault costs only the
    // connection.
    let waits = worker.admission.has_queued_handshakes() && worker.is_handshaking(key);
    // A delayed handshake has its event later, in order.
    if !waits && let Some(carrier) = worker.poller.registration(key) {
        call_guarded(worker, key, |worker, key| carrier.ready(worker, key));
    }
    if let Err(e) = worker.poller.watch_now(key) {
        worker.close(key);
        worker.log(Severity::Alert, 0, format_args!("epoll_ctl() failed {}", observe::os_error(&e)));
        return None;
    }
    Some(key)
}
