//! Carrier of HTTP/1 over TLS: performs the handshake on an idle connection, without a task.

use crate::secure::Secure;
use crate::task::{self, Start};
use crate::worker::{Carrier, Worker};
use crate::{head_in, inline};
use http_engine::ClientConnection;
use net::poller::Key;
use observe::Severity;
use std::io;
use std::rc::Rc;

impl Carrier for Secure {
    fn ready(self: Rc<Self>, worker: &Rc<Worker>, key: Key) {
        if !self.has_begun() {
            match self.first(worker, key) {
                // A handshake record, or an SSL 2 hello (nginx: `ngx_http_ssl_handshake`).
                Ok(Some(0x16 | 0x80..)) => self.begin(),
                // Plain HTTP gets a plain 497.
                Ok(Some(_)) => {
                    let connection = self.connection();
                    worker.poller.set_registration(key, connection.clone());
                    return task::spawn_task(worker, key, &connection, Start::Bytes(self.take_unread()));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // Closed before its first byte.
                Ok(None) | Err(_) => {}
            }
        }
        inline::handle_ready(worker, key, &self.connection(), Some(&self));
        if !worker.poller.is_idle(key) {
            return;
        }
        if self.has_unsent() {
            // A slow peer; keeps its deadline.
            let until = worker.poller.deadline(key);
            task::spawn_task(worker, key, &self.connection(), Start::Flush(until));
        } else {
            self.shrink();
        }
    }
    /// Closes a slow handshake like a slow head (nginx: `ssl_handshake_timeout`).
    fn timed_out(self: Rc<Self>, worker: &Rc<Worker>, key: Key) {
        let connection = self.connection();
        if Secure::is_handshaking(&self) {
            self.count(worker, Err(metrics::TlsFailure::Timeout));
            self.say(worker, Severity::Info, head_in::TIMED_OUT);
            return worker.close(key);
        }
        head_in::timed_out(worker, key, &connection);
    }
    fn closing(&self, worker: &Worker, key: Key) {
        self.say_goodbye(worker, key);
    }
    fn has_wakeups(&self) -> bool {
        self.is_waiting()
    }
    fn is_handshaking(&self) -> bool {
        Secure::is_handshaking(self)
    }
    fn is_idle(&self) -> bool {
        if Secure::is_handshaking(self) { !self.has_begun() } else { !self.connection().begun.is_some() }
    }
    fn client(self: Rc<Self>) -> Option<Rc<ClientConnection>> {
        Some(self.connection())
    }
    fn tls(self: Rc<Self>) -> Option<Rc<Secure>> {
        Some(self)
    }
}
