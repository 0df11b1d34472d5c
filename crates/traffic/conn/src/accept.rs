//! Accepts and counts connections, and reads them at once.

use crate::intake;
use crate::mail_area;
use crate::room::{admit, make_room};
use crate::serving::ListenSocket;
use crate::stream_area;
use crate::worker::{Carrier, Worker};
use base::clock;
use metrics::process;
use net::poller::Key;
use observe::Level;
use runtime::{budget, task};
use std::io;
use std::rc::Rc;

/// Connections accepted at once with a single listener; `multi_accept` lifts it.
const ACCEPTS_MAX: usize = 32;
/// Tasks that run before an accept.
const WOKEN_MAX: usize = 32;
/// Milliseconds that a listener pauses without resources (nginx: `accept_mutex_delay`).
const ACCEPT_REST_MS: u64 = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// No connection waits.
    Empty,
    /// This connection failed; the next may succeed.
    ThatOne,
    /// Out of descriptors: closing connections makes room.
    Descriptors,
    /// Persistent: pauses the listener.
    Lasting,
}

fn judge(e: &io::Error) -> Failure {
    match e.raw_os_error().unwrap_or(0) {
        libc::EAGAIN => Failure::Empty,
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
        | libc::EPERM => Failure::ThatOne,
        libc::EMFILE | libc::ENFILE => Failure::Descriptors,
        _ => Failure::Lasting,
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
    let multi = worker.serving.borrow().multi_accept;
    // With several listeners, epoll's order decides: one at a time, so that no later connection precedes an earlier
    // one.
    let most = if worker.listening.borrow().len() > 1 { 1 } else { ACCEPTS_MAX };
    let mut count = 0;
    loop {
        // A connection's first request may have been answered at once.
        budget::charge_time();
        if (!multi && count == most) || !budget::is_left() {
            // epoll reports listeners again in the next turn.
            return;
        }
        count += 1;
        let Some(accepted) = worker.poller.accept(listen_key) else { return };
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(e) => {
                let failure = judge(&e);
                let level = match failure {
                    Failure::Empty => return,
                    Failure::ThatOne => Level::Error,
                    Failure::Descriptors => Level::Crit,
                    Failure::Lasting => Level::Alert,
                };
                worker.log(level, 0, format_args!("accept4() failed {}", observe::os(&e)));
                if failure == Failure::ThatOne {
                    continue;
                }
                if failure == Failure::Descriptors {
                    make_room(worker, None);
                }
                return pause(worker, listen_key, listen_socket);
            }
        };
        process::CONNECTIONS_ACCEPTED.up();
        if let Err(limit) = admit(worker) {
            worker.log(Level::Alert, 0, format_args!("{limit} worker_connections are not enough"));
            return pause(worker, listen_key, listen_socket);
        }
        if let Some((plan, place)) = worker.stream.place(listen_socket) {
            stream_area::begin(worker, accepted, &listen_socket.listener, &plan, place);
        } else if let Some((plan, place)) = worker.mail.place(listen_socket) {
            mail_area::begin(worker, accepted, &listen_socket.listener, &plan, place);
        } else {
            intake::take_in(worker, accepted, &listen_socket.listener);
        }
    }
}

fn pause(worker: &Worker, key: Key, listen_socket: &ListenSocket) {
    if !listen_socket.paused.replace(true) {
        let _ = worker.poller.listen(key, false, listen_socket.shared);
        worker.paused_until.set(Some(clock::now().plus_millis(ACCEPT_REST_MS)));
    }
}

pub fn resume(worker: &Worker) {
    for listening in worker.listening.borrow().iter() {
        if let Some(listen_socket) = &listening.accepting
            && listen_socket.paused.replace(false)
            && let Err(e) = worker.poller.listen(listening.key, true, listen_socket.shared)
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
        assert_eq!(of(libc::EAGAIN), Failure::Empty);
    }
}
