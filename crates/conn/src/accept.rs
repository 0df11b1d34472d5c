//! New connections: accepted, counted, and read at once.

use crate::inline;
use crate::mails;
use crate::secure::{self, Secure};
use crate::streams;
use crate::thread::guarded;
use crate::worker::{ListenSocket, Registration, Worker};
use base::clock;
use http_engine::{Begun, Connection, ListenerRef};
use metrics::process;
use net::listen::Address;
use net::poller::Key;
use net::socket;
use observe::Level;
use runtime::budget;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use stream_features::sessions::ProxyHeader;

/// Connections accepted at one go where the thread has one listener; `multi_accept` lifts it.
const ACCEPTS_MAX: usize = 32;
/// How long a listener is paused when the system has no more of something (nginx: `accept_mutex_delay`).
const ACCEPT_REST_MS: u64 = 500;
/// How many idle connections are closed to make room for new ones, at most, and which part of those that are there (nginx:
/// `ngx_drain_connections`).
const DRAINED_MAX: usize = 32;
const DRAINED_PART: usize = 8;
/// How often it is logged that connections are closed to make room.
const REUSE_LOG_MS: u64 = 1000;

/// What a failed `accept` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// Nobody waits.
    Nobody,
    /// That one connection is gone; the next may be had.
    ThatOne,
    /// No descriptors are left: closing some makes room.
    Descriptors,
    /// Asking again at once would find the same: the listener is paused.
    Lasting,
}

fn judge(e: &io::Error) -> Failure {
    match e.raw_os_error().unwrap_or(0) {
        libc::EAGAIN => Failure::Nobody,
        // accept(2): errors of the network that the new connection met, to be treated as if it had not been.
        libc::ECONNABORTED
        | libc::EPROTO
        | libc::ENETDOWN
        | libc::ENOPROTOOPT
        | libc::EHOSTDOWN
        | libc::ENONET
        | libc::EHOSTUNREACH
        | libc::EOPNOTSUPP
        | libc::ENETUNREACH
        | libc::EPERM => Failure::ThatOne,
        libc::EMFILE | libc::ENFILE => Failure::Descriptors,
        _ => Failure::Lasting,
    }
}

/// Accepts who waits at a listener.
pub fn accept(worker: &Rc<Worker>, listen_key: Key, listen_socket: &ListenSocket) {
    let (limit, multi) = {
        let serving = worker.serving.borrow();
        (serving.connections_max, serving.multi_accept)
    };
    // Of several listeners, epoll tells which has the connection that came first: one at a time, or a later connection of this
    // listener would be served before an earlier one of another.
    let most = if worker.listen_sockets.borrow().len() > 1 { 1 } else { ACCEPTS_MAX };
    let mut count = 0;
    loop {
        if (!multi && count == most) || !budget::is_left() {
            // epoll tells of listeners again: the next turn looks after the clients that still wait.
            return;
        }
        count += 1;
        let Some(accepted) = worker.poller.accept(listen_key) else { return };
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(e) => {
                let failure = judge(&e);
                let level = match failure {
                    Failure::Nobody => return,
                    Failure::ThatOne => Level::Error,
                    Failure::Descriptors => Level::Crit,
                    Failure::Lasting => Level::Alert,
                };
                worker.log(level, 0, format_args!("accept4() failed {}", observe::os(&e)));
                if failure == Failure::ThatOne {
                    continue;
                }
                if failure == Failure::Descriptors {
                    make_room(worker);
                }
                return pause(worker, listen_key, listen_socket);
            }
        };
        process::CONNECTIONS_ACCEPTED.up();
        // Connections to servers do not count: closing idle clients makes no room among them.
        if worker.connections() >= limit && !make_room(worker) {
            worker.log(Level::Alert, 0, format_args!("{limit} worker_connections are not enough"));
            return pause(worker, listen_key, listen_socket);
        }
        if let Some((plan, place)) = worker.streams.place(listen_socket) {
            streams::begin(worker, accepted, &listen_socket.listener, &plan, place);
        } else if let Some((plan, place)) = worker.mails.place(listen_socket) {
            mails::begin(worker, accepted, &listen_socket.listener, &plan, place);
        } else {
            take_in(worker, accepted, &listen_socket.listener);
        }
    }
}

/// Takes a connection in that came to this listener; it may have been answered and closed when this returns.
pub fn take_in(worker: &Rc<Worker>, accepted: socket::Accepted, listener: &ListenerRef) -> Option<Key> {
    let local = local_of(&accepted, listener.address());
    take_in_as(
        worker,
        accepted,
        listener,
        As { local, proxy: None, established: None::<fn(Rc<Connection>) -> Rc<Secure>> },
    )
}

/// The address that a client has connected to. A listener on the wildcard address: it is asked for once.
pub fn local_of(accepted: &socket::Accepted, address: &Rc<Address>) -> Rc<Address> {
    match &**address {
        Address::Ip(ip) if ip.ip().is_unspecified() => {
            socket::local_address(&accepted.fd).map_or_else(|| address.clone(), |local| Rc::new(Address::Ip(local)))
        }
        _ => address.clone(),
    }
}

/// What is known of a connection that comes to a listener.
pub struct As<F> {
    /// The address that the client has connected to.
    pub local: Rc<Address>,
    /// What another listener has read of a PROXY protocol header.
    pub proxy: Option<ProxyHeader>,
    /// Its handshake was made already.
    pub established: Option<F>,
}

/// The same, with what is known of it.
pub fn take_in_as(
    worker: &Rc<Worker>,
    accepted: socket::Accepted,
    listener: &ListenerRef,
    known: As<impl FnOnce(Rc<Connection>) -> Rc<Secure>>,
) -> Option<Key> {
    let As { local, proxy, established } = known;
    let address = listener.address();
    let reads_header = |l: &http_engine::Listener| l.spec.address == **address && l.proxy_protocol;
    let proxy = proxy.filter(|_| worker.plan.borrow().as_ref().is_some_and(|p| !p.listeners.iter().any(reads_header)));
    let (core, is_secure) = {
        let plan = worker.plan.borrow();
        let plan = plan.as_ref()?;
        let found = plan.listener(listener)?;
        // A PROXY protocol header comes before the handshake.
        (plan.default_conf(found)?, found.ssl && !found.proxy_protocol)
    };
    let timeout = core.conf.client_header_timeout.0;
    let known = |key| {
        Rc::new(Connection {
            number: Worker::next_number(),
            peer: accepted.peer,
            local,
            listener: listener.clone(),
            requests: Cell::new(0),
            nodelay: Cell::new(false),
            started: clock::now(),
            proxy,
            socket: Some(key),
            tls: None,
            begun: Begun::default(),
        })
    };
    let key = worker.poller.add_unwatched(accepted.fd, |key| match established {
        Some(established) => Registration::Secure(established(known(key))),
        None if is_secure => Registration::Secure(Rc::new(Secure::new(known(key), &[]))),
        None => Registration::Client(known(key)),
    });
    process::CONNECTIONS_HANDLED.up_at(metrics::Area::Http as usize);
    process::CONNECTIONS_ACTIVE.up();
    worker.poller.set_deadline(key, clock::now().plus_millis(timeout));
    // The request mostly follows the handshake at once: a connection that is answered and closed here costs epoll nothing.
    // What goes wrong with it is its own affair, not the listener's.
    guarded(worker, key, |worker, key| match worker.poller.registration(key) {
        // Its event will come, and stand behind theirs.
        Some(Registration::Secure(_)) if worker.handshakes_wait.get() => {}
        Some(Registration::Secure(secure)) => secure::readable(worker, key, &secure),
        Some(Registration::Client(connection)) => inline::readable(worker, key, &connection, None),
        _ => {}
    });
    if let Err(e) = worker.poller.watch_now(key) {
        worker.close(key);
        worker.log(Level::Alert, 0, format_args!("epoll_ctl() failed {}", observe::os(&e)));
        return None;
    }
    Some(key)
}

/// Closes idle connections, those nearest to their end first.
fn make_room(worker: &Rc<Worker>) -> bool {
    let most = (worker.poller.registered() / DRAINED_PART).clamp(1, DRAINED_MAX);
    let mut closed = 0;
    while closed < most {
        let idle = worker.poller.nearest_idle(Registration::is_idle);
        let Some(key) = idle else { break };
        worker.close(key);
        closed += 1;
    }
    let now = clock::now();
    if closed > 0 && worker.reuse_logged.get().is_none_or(|at| now.millis_since(at) >= REUSE_LOG_MS) {
        worker.reuse_logged.set(Some(now));
        let limit = worker.serving.borrow().connections_max;
        worker.log(Level::Warn, 0, format_args!("{limit} worker_connections are not enough, reusing connections"));
    }
    closed > 0
}

fn pause(worker: &Worker, key: Key, listen_socket: &ListenSocket) {
    if !listen_socket.paused.replace(true) {
        let _ = worker.poller.listen(key, false, listen_socket.shared);
        worker.paused_until.set(Some(clock::now().plus_millis(ACCEPT_REST_MS)));
    }
}

/// Paused listeners accept again.
pub fn resume(worker: &Worker) {
    for key in worker.listen_sockets.borrow().iter() {
        if let Some(Registration::Listener(listen_socket)) = worker.poller.registration(*key)
            && listen_socket.paused.replace(false)
            && let Err(e) = worker.poller.listen(*key, true, listen_socket.shared)
        {
            worker.log(Level::Alert, 0, format_args!("epoll_ctl() failed {}", observe::os(&e)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_that_lasts_is_not_asked_about_again_at_once() {
        let of = |code| judge(&io::Error::from_raw_os_error(code));
        for code in [libc::ENOBUFS, libc::ENOMEM, libc::EINVAL, libc::EBADF] {
            assert_eq!(of(code), Failure::Lasting);
        }
        assert_eq!((of(libc::EMFILE), of(libc::ENFILE)), (Failure::Descriptors, Failure::Descriptors));
        assert_eq!((of(libc::ECONNABORTED), of(libc::EPROTO)), (Failure::ThatOne, Failure::ThatOne));
        assert_eq!(of(libc::EAGAIN), Failure::Nobody);
    }
}
