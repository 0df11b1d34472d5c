//! Closes idle connections for new ones when `worker_connections` are in use (nginx: `ngx_drain_connections`).

use crate::worker::Worker;
use base::clock;
use net::poller::Key;
use observe::Level;
use std::rc::Rc;

/// Idle connections closed for new ones: maximum, and share of all.
const DRAINED_MAX: usize = 32;
const DRAINED_PART: usize = 8;
/// Interval of the log message about it, in milliseconds.
const REUSE_LOG_MS: u64 = 1000;

/// Closes idle connections: sockets nearest to their deadline, or the client of a datagram socket that has been idle
/// longest, whichever kind has more connections. Returns `false` if none is idle.
pub fn make_room(worker: &Rc<Worker>) -> bool {
    let is_made = match worker.poller.registered() >= worker.datagram_clients.get() {
        true => close_sockets(worker) || close_datagram_client(worker),
        false => close_datagram_client(worker) || close_sockets(worker),
    };
    if is_made {
        log_reuse(worker);
    }
    is_made
}

fn close_sockets(worker: &Rc<Worker>) -> bool {
    let most = (worker.poller.registered() / DRAINED_PART).clamp(1, DRAINED_MAX);
    let idle = worker.poller.nearest_idle(most, |carrier| carrier.is_idle());
    idle.iter().for_each(|key| worker.close(*key));
    !idle.is_empty()
}

fn close_datagram_client(worker: &Rc<Worker>) -> bool {
    let keys: Vec<Key> = worker.listening.borrow().iter().map(|listening| listening.key).collect();
    keys.into_iter().filter_map(|key| worker.poller.registration(key)).any(|carrier| carrier.close_idle_client())
}

fn log_reuse(worker: &Worker) {
    let now = clock::now();
    if worker.reuse_logged.get().is_none_or(|at| now.millis_since(at) >= REUSE_LOG_MS) {
        worker.reuse_logged.set(Some(now));
        let limit = worker.serving.borrow().connections_max;
        worker.log(Level::Warn, 0, format_args!("{limit} worker_connections are not enough, reusing connections"));
    }
}
