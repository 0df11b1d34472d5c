//! Closes idle connections for new ones when `worker_connections` are in use (nginx: `ngx_drain_connections`).

use crate::worker::Worker;
use base::clock;
use net::outbound::Admission;
use net::poller::Key;
use observe::Severity;
use std::rc::{Rc, Weak};

/// Idle connections closed for new ones: maximum, and share of all.
const DRAINED_MAX: usize = 32;
const DRAINED_PART: usize = 8;
/// Interval of the log message about it, in milliseconds.
const REUSE_LOG_MS: u64 = 1000;

/// Admits a worker's connections to servers.
pub struct AdmitOrder(pub Weak<Worker>);

impl Admission for AdmitOrder {
    fn admit(&self) -> Result<(), usize> {
        let Some(worker) = self.0.upgrade() else { return Ok(()) };
        // The driver that connects may hold the state of its own clients.
        admit_beside(&worker, worker.turn().current())
    }
}

/// Makes room for a new connection if all are in use. Fails with the limit.
pub fn admit_connection(worker: &Rc<Worker>) -> Result<(), usize> {
    admit_beside(worker, None)
}

/// [`admit_connection`] without closing the idle connections of an entry.
fn admit_beside(worker: &Rc<Worker>, except: Option<Key>) -> Result<(), usize> {
    let limit = worker.serving().connections_max;
    if worker.connections() < limit || make_room(worker, except) { Ok(()) } else { Err(limit) }
}

/// Closes lingering connections, or idle ones but for those of the entry `except`: sockets nearest to their deadline, or the client of a
/// datagram socket that has been idle longest, whichever kind has more connections, and without idle clients a kept
/// connection to a server. Returns `false` if none is idle.
pub fn make_room(worker: &Rc<Worker>, except: Option<Key>) -> bool {
    if close_lingering(worker) {
        log_reuse(worker);
        return true;
    }
    // A search looks at all entries: none more before the clock proceeds.
    if worker.admission.is_without_idle(clock::now()) {
        return false;
    }
    let is_made = match worker.poller.registered() >= worker.admission.datagram_clients() {
        true => close_sockets(worker, except) || close_datagram_client(worker, except),
        false => close_datagram_client(worker, except) || close_sockets(worker, except),
    };
    let is_made = is_made || upstream::idle::drop_oldest();
    match is_made {
        true => log_reuse(worker),
        false => worker.admission.note_without_idle(clock::now()),
    }
    is_made
}

/// Closes connections that have their response.
fn close_lingering(worker: &Rc<Worker>) -> bool {
    let mut keys = worker.admission.take_lingering(DRAINED_PART, DRAINED_MAX);
    keys.retain(|key| worker.poller.contains(*key));
    keys.iter().for_each(|key| worker.close(*key));
    !keys.is_empty()
}

fn close_sockets(worker: &Rc<Worker>, except: Option<Key>) -> bool {
    let most = (worker.poller.registered() / DRAINED_PART).clamp(1, DRAINED_MAX);
    let mut idle = worker.poller.nearest_idle(most + 1, |carrier| carrier.is_idle());
    idle.retain(|key| Some(*key) != except);
    idle.truncate(most);
    idle.iter().for_each(|key| worker.close(*key));
    !idle.is_empty()
}

fn close_datagram_client(worker: &Rc<Worker>, except: Option<Key>) -> bool {
    let keys: Vec<Key> = worker.listening().borrow().iter().map(|listening| listening.key).collect();
    let mut others = keys.into_iter().filter(|key| Some(*key) != except);
    others.any(|key| worker.poller.registration(key).is_some_and(|carrier| carrier.close_idle_client()))
}

fn log_reuse(worker: &Worker) {
    let now = clock::now();
    if worker.admission.note_reuse(now, REUSE_LOG_MS) {
        let limit = worker.serving().connections_max;
        worker.log(Severity::Warn, 0, format_args!("{limit} worker_connections are not enough, reusing connections"));
    }
}
