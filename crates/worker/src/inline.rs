//! Inline path: answers an idle connection's request at once, with one read and one write, without a task.

use crate::batch::{self, Batch};
use crate::h2;
use crate::head_in::{self, HeadState};
use crate::link::Link;
use crate::presence::Presence;
use crate::secure::Secure;
use crate::steps;
use crate::task::{self, Start};
use crate::waiting;
use crate::worker::{Carrier, Worker};
use http_engine::engine::{self, PhaseOutcome};
use http_engine::{ClientConnection, counting};
use http_types::Known;
use net::poller::Key;
use runtime::budget;
use std::io;
use std::rc::Rc;
use wire_h1::HeadParser;

/// Bytes after which an incomplete head is parsed again, besides at each line end.
const LOOK_BYTES: usize = 1024;

/// HTTP/1 in cleartext; between requests the connection is the whole entry.
impl Carrier for ClientConnection {
    fn ready(self: Rc<Self>, worker: &Rc<Worker>, key: Key) {
        handle_ready(worker, key, &self, None);
    }
    fn timed_out(self: Rc<Self>, worker: &Rc<Worker>, key: Key) {
        head_in::timed_out(worker, key, &self);
    }
    fn is_idle(&self) -> bool {
        !self.begun.is_some()
    }
    fn client(self: Rc<Self>) -> Option<Rc<ClientConnection>> {
        Some(self)
    }
}

/// Reads once and answers the requests of an idle connection. Those that cannot be answered at once continue in the
/// entry (`waiting.rs`) or in a task; the start of a head stays with the connection.
pub fn handle_ready(worker: &Rc<Worker>, key: Key, connection: &Rc<ClientConnection>, secure: Option<&Rc<Secure>>) {
    let Ok(mut buf) = worker.pools.read_buffer().try_borrow_mut() else {
        // The event is edge-triggered: a connection that lost it would hang.
        base::bug!("a connection is ready while another one is read");
        return worker.close(key);
    };
    buf.clear();
    // Start of an incomplete head.
    let since = head_in::take_head(connection).map(|begun| {
        buf.extend_from_slice(&begun.bytes);
        begun.since
    });
    let held = buf.len();
    let link = Link { worker: worker.clone(), key, secure: secure.cloned() };
    match link.recv(&mut buf) {
        Ok(n) if n > 0 => {}
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            return head_in::keep_head(worker, key, connection, &buf, false, since);
        }
        got => {
            if held > 0 {
                let since = since.unwrap_or_else(base::clock::now);
                head_in::never_came(worker, connection, &buf, since, 400, "client prematurely closed connection");
            } else if !secure.is_some_and(|secure| secure.has_told()) {
                head_in::went_away(worker, connection, &got);
            }
            return worker.close(key);
        }
    }
    // Re-reads the connection: a completed handshake adds its TLS facts.
    let renewed = secure.map(|secure| secure.connection());
    let connection = renewed.as_ref().unwrap_or(connection);
    let bytes = buf.as_slice();
    if connection.requests.get() == 0 {
        match protocol(worker, connection, bytes) {
            InlineProtocol::Http1 => {}
            InlineProtocol::Http2 => {
                let bytes = bytes.to_vec();
                drop(buf);
                return h2::begin_http2(worker, key, connection, secure, &bytes);
            }
            InlineProtocol::Unknown => return head_in::keep_head(worker, key, connection, bytes, held == 0, since),
        }
    }
    {
        let plan = worker.plan.borrow();
        let Some(listener) = plan.as_ref().and_then(|plan| plan.listener_of(connection)) else {
            drop(plan);
            return worker.close(key);
        };
        if listener.proxy_protocol && connection.proxy.is_none() && connection.requests.get() == 0 {
            drop(plan);
            return task::spawn_task(worker, key, connection, Start::Bytes(bytes.to_vec()));
        }
    }
    // A head ends with a line: single bytes need no new parsing.
    let came = bytes.get(held..).unwrap_or_default();
    if held > 0 && held / LOOK_BYTES == bytes.len() / LOOK_BYTES && !came.contains(&b'\n') {
        return head_in::keep_head(worker, key, connection, bytes, false, since);
    }
    let mut out = worker.pools.out_buffer().borrow_mut();
    out.clear();
    let mut batch = Batch::new(link, connection);
    let limits = head_in::head_limits(worker, connection);
    let mut at = 0;
    let mut is_partial = false;
    loop {
        let Some(mut r) = worker.request(connection) else { return worker.close(key) };
        if let Some(since) = since.filter(|_| at == 0) {
            r.accounting.set_started(since);
        }
        let mut parser = HeadParser::default();
        let (head, spare) = head_in::read_head(&mut parser, &limits, from(bytes, at), r, connection);
        if let Some(spare) = spare {
            worker.pools.put_request(spare);
        }
        let (mut r, used) = match head {
            HeadState::Request(r, used) => (r, used),
            HeadState::Partial if bytes.len() - at <= head_in::BEGUN_BYTES_MAX => {
                is_partial = true;
                break;
            }
            HeadState::Partial => return batch.send_then(&mut out, Start::Bytes(from(bytes, at).to_vec())),
            HeadState::Refused(mut r, status) => {
                counting::count_begun(&mut r);
                return batch.send_then(&mut out, Start::Refused(r, status, from(bytes, at).to_vec()));
            }
        };
        counting::count_begun(&mut r);
        if at == 0
            && r.head.fields.first(Known::Upgrade).is_some()
            && let Some(settings) = h2::upgrade::asked_settings(&r, connection)
        {
            let rest = from(bytes, used).to_vec();
            drop((batch, out, buf));
            return h2::upgrade::begin_upgrade(worker, key, &connection.clone(), r, &settings, &rest);
        }
        if r.incoming.body_length().is_some() || r.head.fields.first(Known::Expect).is_some() {
            return batch.send_then(&mut out, Start::Request(r, from(bytes, at + used).to_vec()));
        }
        at += used;
        if at < bytes.len() {
            connection.pipelining.note();
        }
        let watch = batch.presence.get_or_insert_with(|| Presence::of(&batch.link));
        r.incoming.set_watch(Some(watch.clone()));
        steps::note_step();
        let mut outcome = engine::start_phases(r);
        while at >= bytes.len() && batch.is_empty() {
            let PhaseOutcome::Exchange(r, exchange) = outcome else { break };
            match waiting::poll_in_place(&mut batch, r, exchange) {
                Some(said) => outcome = said,
                None => return,
            }
        }
        match outcome {
            PhaseOutcome::Ready(r, body) => {
                if let Some((r, body)) = batch.add(r, body, &mut out) {
                    // Too large, paced or of unknown length: by a task.
                    let start = Start::Outcome(PhaseOutcome::Ready(r, body), from(bytes, at).to_vec());
                    return batch.send_then(&mut out, start);
                }
            }
            outcome => return batch.send_then(&mut out, Start::Outcome(outcome, from(bytes, at).to_vec())),
        }
        if at >= bytes.len() {
            break;
        }
        budget::charge_time();
        if batch.is_full() {
            break;
        }
    }
    let rest = from(bytes, at);
    if is_partial && batch.is_empty() {
        let is_new = held == 0 && connection.requests.get() > 0;
        return head_in::keep_head(worker, key, connection, rest, is_new, since);
    }
    batch::conclude_batch(batch, out, rest, is_partial);
}

fn from(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at..).unwrap_or_default()
}

enum InlineProtocol {
    Http1,
    Http2,
    Unknown,
}

/// The ALPN protocol; without one, detected by the first bytes where HTTP/2 is on.
fn protocol(worker: &Worker, connection: &ClientConnection, bytes: &[u8]) -> InlineProtocol {
    if let Some(facts) = &connection.tls {
        return if facts.alpn.as_deref() == Some(b"h2") { InlineProtocol::Http2 } else { InlineProtocol::Http1 };
    }
    let is_on = {
        let plan = worker.plan.borrow();
        let listener = plan.as_ref().and_then(|plan| plan.listener_of(connection));
        listener.is_some_and(|l| l.http2 && !l.ssl && !(l.proxy_protocol && connection.proxy.is_none()))
    };
    match is_on.then(|| h2::is_preface(bytes)) {
        Some(Some(true)) => InlineProtocol::Http2,
        Some(None) => InlineProtocol::Unknown,
        _ => InlineProtocol::Http1,
    }
}
