//! Accepts and counts connections, and reads them at once.

use crate::intake;
use crate::mail_area;
use crate::room::{admit_connection, make_room};
use crate::serving::ListenSocket;
use crate::stream_area;
use crate::worker::{Carrier, Worker};
use base::clock;
use metrics::process;
use net::poller::Key;
use observe::Severity;
use runtime::{budget, task};
use std::io;
use std::rc::Rc;

/// Connections accepted at once with a single listener; `multi_accept` lifts it.
const ACCEPTS_MAX: usize = 32;
/// Events of a turn for each further accept. An accept that finds no connection costs ten times as much as the wait that
/// reports one, because the kernel allocates the socket first: only long turns try again.
const EVENTS_PER_ACCEPT: usize = 4;
/// Tasks that run before an accept.
const WOKEN_MAX: usize = 32;
/// Milliseconds that a listener pauses without descriptors (nginx: `accept_mutex_delay`), and that clients wait for one of
/// `worker_connections` before they are closed. nginx closes them at once.
const ACCEPT_REST_MS: u64 = 500;
/// Interval of searches for an idle connection to close while clients wait, in milliseconds.
const FULL_LOOK_MS: u64 = 20;
/// Waiting clients of a listener that are closed at once.
const REFUSED_MAX: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AcceptFailure {
    /// No connection waits.
    Empty,
    /// This connection failed; the next may succeed.
    ThatOne,
    /// Out of descriptors: closing connections makes room.
    Descriptors,
    /// Persistent: pauses the listener.
    Lasting,
}

fn judge(e: &io::Error) -> AcceptFailure {
    match e.raw_os_error().unwrap_or(0) {
        libc::EAGAIN => AcceptFailure::Empty,
        // accept(2): network errors of the new connection, equal to its absence.
        libc::ECONNABORTED
        | libc::EPROTO
        | libc::ENETDOWN
        | libc::ENOPROTOOPT
        | libc::EHOSTDOWN
        | libc::ENONET
        | libc::EHOSTUNREACH
        | libc::EOPNOTSUPP
        | libc::ENETUNREACH
        | libc::EPERM => AcceptFailure::ThatOne,
        libc::EMFILE | libc::ENFILE => AcceptFailure::Descriptors,
        _ => AcceptFailure::Lasting,
    }
}

impl Carrier for ListenSocket {
    fn ready(self: Rc<Self>, worker: &Rc<Worker>, key: Key) {
        // A client that has left must not count against one that comes (`limit_conn`).
        task::run_woken(WOKEN_MAX);
        budget::renew();
        accept(worker, key, &self);
    }
}

fn accept(worker: &Rc<Worker>, listen_key: Key, listen_socket: &ListenSocket) {
    let multi = worker.serving().multi_accept;
    // With several listeners, epoll's order decides: one at a time, so that no later connection precedes an earlier
    // one.
    let most = if worker.listening().borrow().len() > 1 { 1 } else { accepts_at_once(worker.turn().events()) };
    let mut count = 0;
    loop {
        // A connection's first request may have been answered at once.
        budget::charge_time();
        if (!multi && count == most) || !budget::is_left() {
            // epoll reports listeners again in the next turn.
            return;
        }
        if is_full(worker) {
            // Closes no idle connection before epoll reports another client.
            if count > 0 {
                return;
            }
            if let Err(limit) = admit_connection(worker) {
                return wait_for_room(worker, listen_key, listen_socket, limit);
            }
        }
        worker.admission.note_room();
        count += 1;
        let Some(accepted) = worker.poller.accept(listen_key) else { return };
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(e) => {
                let failure = judge(&e);
                let level = match failure {
                    AcceptFailure::Empty => return,
                    AcceptFailure::ThatOne => Severity::Error,
                    AcceptFailure::Descriptors => Severity::Crit,
                    AcceptFailure::Lasting => Severity::Alert,
                };
                worker.log(level, 0, format_args!("accept4() failed {}", observe::os_error(&e)));
                if failure == AcceptFailure::ThatOne {
                    continue;
                }
                if failure == AcceptFailure::Descriptors {
                    make_room(worker, None);
                }
                return pause(worker, listen_key, listen_socket, ACCEPT_REST_MS);
            }
        };
        process::CONNECTIONS_ACCEPTED.up();
        if let Some((plan, place)) = worker.areas.stream.place(listen_socket) {
            stream_area::begin_session(worker, accepted, &listen_socket.listener, &plan, place);
        } else if let Some((plan, place)) = worker.areas.mail.place(listen_socket) {
            mail_area::begin_mail(worker, accepted, &listen_socket.listener, &plan, place);
        } else {
            intake::take_in(worker, accepted, &listen_socket.listener);
        }
    }
}

fn accepts_at_once(events: usize) -> usize {
    (1 + events / EVENTS_PER_ACCEPT).min(ACCEPTS_MAX)
}

fn is_full(worker: &Worker) -> bool {
    worker.connections() >= worker.serving().connections_max
}

/// Leaves clients in the listener's queue, where another thread may take them, until a connection ends or becomes idle.
fn wait_for_room(worker: &Worker, key: Key, listen_socket: &ListenSocket, limit: usize) {
    let now = clock::now();
    if worker.admission.note_full(now, ACCEPT_REST_MS) {
        worker.log(Severity::Alert, 0, format_args!("{limit} worker_connections are not enough"));
    }
    pause(worker, key, listen_socket, FULL_LOOK_MS);
}

fn pause(worker: &Worker, key: Key, listen_socket: &ListenSocket, ms: u64) {
    if !listen_socket.paused.replace(true) {
        let _ = worker.poller.listen(key, false, listen_socket.shared);
        worker.admission.pause_until(Some(clock::now().plus_millis(ms)));
    }
}

/// Resumes paused listeners when their pause is over or a connection has ended; tells whether it did. Closes the waiting
/// clients if no connection has become free for [`ACCEPT_REST_MS`].
pub fn resume_listeners(worker: &Rc<Worker>) -> bool {
    let Some(until) = worker.admission.paused_until() else { return false };
    let (now, full_since) = (clock::now(), worker.admission.full_since());
    if until > now && (full_since.is_none() || is_full(worker)) {
        return false;
    }
    worker.admission.pause_until(None);
    let is_over =
        full_since.is_some_and(|since| now.millis_since(since) >= ACCEPT_REST_MS) && admit_connection(worker).is_err();
    if is_over {
        worker.admission.note_room();
    }
    for listening in worker.listening().borrow().iter() {
        if let Some(listen_socket) = &listening.accepting
            && listen_socket.paused.replace(false)
        {
            if is_over {
                refuse(worker, listening.key);
            }
            if let Err(e) = worker.poller.listen(listening.key, true, listen_socket.shared) {
                worker.log(Severity::Alert, 0, format_args!("epoll_ctl() failed {}", observe::os_error(&e)));
                // Tried again after a rest: no event would come any more.
                listen_socket.paused.set(true);
                worker.admission.note_room();
                worker.admission.pause_until(Some(now.plus_millis(ACCEPT_REST_MS)));
            }
        }
    }
    true
}

/// Closes a listener's waiting clients.
fn refuse(worker: &Worker, key: Key) {
    for _ in 0..REFUSED_MAX {
        let Some(Ok(_)) = worker.poller.accept(key) else { return };
        process::CONNECTIONS_ACCEPTED.up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use observe::ring::Ring;
    use std::sync::Arc;

    #[test]
    fn short_turns_accept_one_connection() {
        assert_eq!([1, 3, 4, 100, 512].map(accepts_at_once), [1, 1, 2, 26, 32]);
    }

    #[test]
    fn a_lack_that_lasts_is_not_asked_about_again_at_once() {
        let of = |code| judge(&io::Error::from_raw_os_error(code));
        for code in [libc::ENOBUFS, libc::ENOMEM, libc::EINVAL, libc::EBADF] {
            assert_eq!(of(code), AcceptFailure::Lasting);
        }
        assert_eq!((of(libc::EMFILE), of(libc::ENFILE)), (AcceptFailure::Descriptors, AcceptFailure::Descriptors));
        assert_eq!((of(libc::ECONNABORTED), of(libc::EPROTO)), (AcceptFailure::ThatOne, AcceptFailure::ThatOne));
        assert_eq!(of(libc::EAGAIN), AcceptFailure::Empty);
    }

    /// A worker with a listener, which is its first connection, and with a limit of connections.
    fn full(limit: usize) -> (Rc<Worker>, Rc<ListenSocket>, Key, std::net::SocketAddr, Arc<Ring>) {
        let ring = Arc::new(Ring::new(1 << 16));
        let sink = observe::Sink::Memory(ring.clone());
        let target = observe::LogTarget { level: Severity::Warn, sink, format: observe::LineFormat::Text };
        let serving = crate::serving::ServeLoop {
            http: None,
            stream: None,
            mail: None,
            error_log: Arc::new(observe::ErrorLog::new(vec![target])),
            connections_max: limit,
            multi_accept: false,
            shutdown_timeout_ms: 0,
            stall_threshold_ms: 0,
        };
        let worker = Rc::new(Worker::new(serving).expect("a worker"));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        listener.set_nonblocking(true).expect("set");
        let to = listener.local_addr().expect("an address");
        let spec = net::listen::ListenSpec::new(net::Address::Ip(to));
        crate::command::open(&worker, crate::thread::BoundSocket { spec, fd: listener.into(), shared: false })
            .expect("open");
        let (key, listen_socket) = {
            let listening = worker.listening().borrow();
            let first = listening.first().expect("the listener");
            (first.key, first.accepting.clone().expect("a listener of streams"))
        };
        (worker, listen_socket, key, to, ring)
    }

    /// Connects clients, which the kernel queues.
    fn queue(to: std::net::SocketAddr, count: usize) -> Vec<std::net::TcpStream> {
        let connect = || {
            let client = std::net::TcpStream::connect(to).expect("connected");
            client.set_nonblocking(true).expect("set");
            client
        };
        (0..count).map(|_| connect()).collect()
    }

    fn waits(client: &mut std::net::TcpStream) -> bool {
        let got = std::io::Read::read(client, &mut [0]);
        matches!(got, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }

    #[test]
    fn clients_wait_for_a_connection_and_are_closed_in_the_end() {
        clock::freeze();
        let (worker, listen_socket, key, to, _) = full(1);
        let mut clients = queue(to, 5);
        let began = clock::now();
        while clock::now().millis_since(began) < ACCEPT_REST_MS {
            budget::renew();
            listen_socket.clone().ready(&worker, key);
            assert!(listen_socket.paused.get() && clients.iter_mut().all(waits));
            assert!(!resume_listeners(&worker), "no connection has become free");
            clock::set_frozen(clock::now().plus_millis(FULL_LOOK_MS));
            if clock::now().millis_since(began) < ACCEPT_REST_MS {
                assert!(resume_listeners(&worker), "a connection may have become idle");
            }
        }
        assert!(resume_listeners(&worker) && !listen_socket.paused.get());
        assert!(!clients.iter_mut().any(waits), "no queue drains slowly");
        clock::thaw();
    }

    #[test]
    fn a_listener_that_cannot_be_resumed_is_tried_again() {
        clock::freeze();
        let (worker, listen_socket, key, to, log) = full(1);
        let mut clients = queue(to, 1);
        budget::renew();
        listen_socket.clone().ready(&worker, key);
        assert!(listen_socket.paused.get());
        worker.limit_connections(2);
        // The kernel refuses a descriptor that it has (EEXIST).
        worker.poller.listen(key, true, listen_socket.shared).expect("added");
        assert!(resume_listeners(&worker) && listen_socket.paused.get());
        assert!(String::from_utf8_lossy(&log.contents()).contains("epoll_ctl() failed"));
        worker.poller.listen(key, false, listen_socket.shared).expect("removed");
        assert!(!resume_listeners(&worker), "not at once");
        clock::set_frozen(clock::now().plus_millis(ACCEPT_REST_MS));
        assert!(resume_listeners(&worker) && !listen_socket.paused.get());
        listen_socket.clone().ready(&worker, key);
        assert!(!waits(&mut clients[0]), "accepted, and closed because no area has the address");
        clock::thaw();
    }

    #[test]
    fn a_connection_that_ends_resumes_listeners_at_once() {
        clock::freeze();
        let (worker, listen_socket, key, to, log) = full(1);
        let mut clients = queue(to, 1);
        budget::renew();
        listen_socket.clone().ready(&worker, key);
        assert!(listen_socket.paused.get() && waits(&mut clients[0]) && !resume_listeners(&worker));
        worker.limit_connections(2);
        assert!(resume_listeners(&worker) && !listen_socket.paused.get());
        assert!(waits(&mut clients[0]));
        // Accepted, and closed because no area has the address.
        listen_socket.clone().ready(&worker, key);
        assert!(!waits(&mut clients[0]));
        // The lack is logged again only after a while.
        worker.limit_connections(1);
        listen_socket.clone().ready(&worker, key);
        assert!(listen_socket.paused.get());
        let log = String::from_utf8_lossy(&log.contents()).into_owned();
        assert_eq!(log.matches("1 worker_connections are not enough").count(), 1, "{log}");
        clock::thaw();
    }
}
