//! The inline path: an idle connection turned readable, and what it asks for can be answered at once. The connection never
//! becomes a task: one read, one write, and it is idle again.

use crate::h2;
use crate::head_in::{self, Head};
use crate::link::Link;
use crate::secure::Secure;
use crate::task::{self, Presence, Start};
use crate::waiting;
use crate::worker::Worker;
use base::clock;
use bytes::Bytes;
use http_engine::engine::{self, Outcome};
use http_engine::{Body, Connection, Exchange, Request, counting, head_out};
use http_types::{Known, Version};
use net::poller::Key;
use std::cell::RefMut;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};
use wire_h1::HeadParser;

/// Bodies up to this size are copied behind their head; larger ones leave from where they are, in the same write.
const COPY_BYTES_MAX: usize = 1024;
/// Bodies that are sent from the inline path at all.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// The beginning of a head is looked at again when a line has ended, or so many bytes more have come.
const LOOK_BYTES: usize = 1024;
/// Pipelined requests that are answered with one write.
const BATCH_MAX: usize = 64;

/// Acts on an idle connection that turned readable.
pub fn readable(worker: &Rc<Worker>, key: Key, connection: &Rc<Connection>, secure: Option<&Rc<Secure>>) {
    let Ok(mut buf) = worker.read_buf.try_borrow_mut() else { return };
    buf.clear();
    // What came before and was not a whole head.
    if let Some(bytes) = head_in::take(connection) {
        buf.extend_from_slice(&bytes);
    }
    let held = buf.len();
    let link = Link { worker: worker.clone(), key, secure: secure.cloned() };
    match link.recv(&mut buf) {
        Ok(n) if n > 0 => {}
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return head_in::keep(worker, key, connection, &buf, false),
        got => {
            if held > 0 {
                head_in::never_came(worker, connection, &buf, 400, "client prematurely closed connection");
            } else if !secure.is_some_and(|secure| secure.has_told()) {
                head_in::went_away(worker, connection, &got);
            }
            return worker.close(key);
        }
    }
    // A handshake that has just ended has made it known more of.
    let renewed = secure.map(|secure| secure.connection());
    let connection = renewed.as_ref().unwrap_or(connection);
    let bytes = buf.as_slice();
    if connection.requests.get() == 0 {
        match protocol(worker, connection, bytes) {
            Protocol::Http1 => {}
            Protocol::Http2 => {
                let bytes = bytes.to_vec();
                drop(buf);
                return h2::begin(worker, key, connection, secure, &bytes);
            }
            Protocol::Unknown => return head_in::keep(worker, key, connection, bytes, held == 0),
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
            return task::spawn(worker, key, connection, Start::Bytes(bytes.to_vec()));
        }
    }
    // A head ends with a line: single bytes of one are not worth looking at again.
    let came = bytes.get(held..).unwrap_or_default();
    if held > 0 && held / LOOK_BYTES == bytes.len() / LOOK_BYTES && !came.contains(&b'\n') {
        return head_in::keep(worker, key, connection, bytes, false);
    }
    let mut out = worker.out_buf.borrow_mut();
    out.clear();
    let mut batch = Batch::new(link, connection);
    let limits = head_in::limits(worker, connection);
    let mut at = 0;
    let mut is_partial = false;
    loop {
        let Some(r) = worker.request(connection) else { return worker.close(key) };
        let mut parser = HeadParser::default();
        let (head, spare) = head_in::read(&mut parser, &limits, from(bytes, at), r, connection);
        if let Some(spare) = spare {
            worker.recycle(spare);
        }
        let (mut r, used) = match head {
            Head::Request(r, used) => (r, used),
            Head::Partial if bytes.len() - at <= head_in::BEGUN_BYTES_MAX => {
                is_partial = true;
                break;
            }
            Head::Partial => return batch.send_then(&mut out, Start::Bytes(from(bytes, at).to_vec())),
            Head::Refused(mut r, status) => {
                counting::begun(&mut r);
                return batch.send_then(&mut out, Start::Refused(r, status, from(bytes, at).to_vec()));
            }
        };
        counting::begun(&mut r);
        if at == 0
            && r.head.fields.first(Known::Upgrade).is_some()
            && let Some(settings) = h2::upgrade::asked(&r, connection)
        {
            let rest = from(bytes, used).to_vec();
            drop((batch, out, buf));
            return h2::upgrade::begin(worker, key, &connection.clone(), r, &settings, &rest);
        }
        r.pipelined = at > 0;
        if r.body_length.is_some() || r.head.fields.first(Known::Expect).is_some() {
            return batch.send_then(&mut out, Start::Request(r, from(bytes, at + used).to_vec()));
        }
        at += used;
        let watch = batch.presence.get_or_insert_with(|| worker.presence(&batch.link));
        r.watch = Some(watch.clone());
        worker.step();
        let mut outcome = engine::start(r);
        while at >= bytes.len() && batch.done.is_empty() {
            let Outcome::Exchange(r, exchange) = outcome else { break };
            match poll_in_place(&mut batch, r, exchange) {
                Some(said) => outcome = said,
                None => return,
            }
        }
        match outcome {
            Outcome::Ready(r, body) => {
                if let Some((r, body)) = batch.add(r, body, &mut out) {
                    // Too much, too slow or of unknown length: a task sends it.
                    let start = Start::Outcome(Outcome::Ready(r, body), from(bytes, at).to_vec());
                    return batch.send_then(&mut out, start);
                }
            }
            outcome => return batch.send_then(&mut out, Start::Outcome(outcome, from(bytes, at).to_vec())),
        }
        let last = batch.done.last().is_none_or(|(r, ..)| !r.keep_alive || r.alone);
        if last || at >= bytes.len() || batch.done.len() >= BATCH_MAX || batch.body.is_some() {
            break;
        }
    }
    let rest = from(bytes, at);
    if is_partial && batch.done.is_empty() {
        return head_in::keep(worker, key, connection, rest, held == 0 && connection.requests.get() > 0);
    }
    conclude(batch, out, rest, is_partial);
}

/// Polls an exchange for the first time. `None`: it waits, with the connection's entry.
pub fn poll_in_place(batch: &mut Batch<'_>, mut r: Box<Request>, mut exchange: Box<dyn Exchange>) -> Option<Outcome> {
    let Link { worker, key, .. } = &batch.link;
    let waiting = worker.waits.take(*key);
    let polled = exchange.poll(&mut r, &mut Context::from_waker(waiting.waker()));
    match polled {
        Poll::Ready(flow) => {
            exchange.recycle();
            worker.waits.put(waiting);
            Some(engine::after(r, flow))
        }
        Poll::Pending => {
            waiting::begin(batch, waiting, r, exchange);
            None
        }
    }
}

/// Writes the answers of a batch; the connection is idle again, or closed, or a task's. `rest`: what was read behind the
/// requests; `is_partial`: the beginning of a head.
pub fn conclude(mut batch: Batch<'_>, mut out: RefMut<'_, Vec<u8>>, rest: &[u8], is_partial: bool) {
    let (worker, key, connection) = (batch.link.worker.clone(), batch.link.key, batch.connection);
    let worker = &worker;
    let closing = batch.done.last().is_none_or(|(r, ..)| !r.keep_alive);
    let conf = batch.done.last().map(|(r, ..)| &r.loc().core.conf);
    let (idle, nodelay) = conf.map_or((0, false), |c| (c.keepalive_timeout.millis, c.tcp_nodelay));
    let close_at_once = closing && rest.is_empty() && !worker.poller.readable_now(key);
    match batch.send(&mut out, close_at_once) {
        Sent::All => {}
        Sent::Gone => return,
        Sent::Part(part) => {
            let then = (!closing && !rest.is_empty()).then(|| Box::new(Start::Bytes(rest.to_vec())));
            return task::spawn(worker, key, connection, part.start(then));
        }
    }
    if closing {
        if close_at_once {
            return worker.close(key);
        }
        return task::spawn(worker, key, connection, Start::Linger);
    }
    if nodelay {
        worker.no_delay(key, connection);
    }
    if is_partial {
        head_in::keep(worker, key, connection, rest, true);
        return;
    }
    if !rest.is_empty() {
        return task::spawn(worker, key, connection, Start::Bytes(rest.to_vec()));
    }
    worker.poller.stay_idle(key, clock::now().plus_millis(idle));
}

/// What follows so many bytes.
fn from(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at..).unwrap_or_default()
}

/// What a connection's first bytes are.
enum Protocol {
    Http1,
    Http2,
    /// They may become either.
    Unknown,
}

/// TLS has agreed on the protocol; without it the first bytes say which it is, where HTTP/2 is on.
fn protocol(worker: &Worker, connection: &Connection, bytes: &[u8]) -> Protocol {
    if let Some(facts) = &connection.tls {
        return if facts.alpn.as_deref() == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
    }
    let is_on = {
        let plan = worker.plan.borrow();
        let listener = plan.as_ref().and_then(|plan| plan.listener_of(connection));
        listener.is_some_and(|l| l.http2 && !l.ssl && !(l.proxy_protocol && connection.proxy.is_none()))
    };
    match is_on.then(|| h2::is_preface(bytes)) {
        Some(Some(true)) => Protocol::Http2,
        Some(None) => Protocol::Unknown,
        _ => Protocol::Http1,
    }
}

/// Requests that were answered and whose answers wait to be written.
pub struct Batch<'a> {
    pub link: Link,
    pub connection: &'a Rc<Connection>,
    /// The request and where its answer ends in the output.
    done: smallvec::SmallVec<[(Box<Request>, usize); 4]>,
    /// The last answer's body, when it was too large to be copied.
    body: Option<Bytes>,
    /// What its requests see the client by.
    pub presence: Option<Rc<Presence>>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if let Some(presence) = self.presence.take() {
            self.link.worker.keep_presence(presence);
        }
    }
}

impl<'a> Batch<'a> {
    pub fn new(link: Link, connection: &'a Rc<Connection>) -> Batch<'a> {
        Batch { link, connection, done: smallvec::SmallVec::new(), body: None, presence: None }
    }
    /// Appends a response that can be sent at once, or gives it back.
    pub fn add(&mut self, mut r: Box<Request>, body: Body, out: &mut Vec<u8>) -> Option<(Box<Request>, Body)> {
        let simple = match &body {
            Body::Empty => true,
            Body::Bytes(b) => b.len() <= BODY_BYTES_MAX && self.body.is_none(),
            _ => false,
        };
        if !simple
            || r.tunnel.is_some()
            || r.chunked
            || r.limit_rate.is_some()
            || r.has_background()
            || (r.loc().core.needs_task && (r.loc().core.conf.post_action.is_some() || body.length() != Some(0)))
        {
            return Some((r, body));
        }
        let start = out.len();
        head_out::write(&mut r, self.link.worker.quitting.get(), out);
        let head = out.len() - start;
        r.body_bytes_sent = 0;
        match body {
            Body::Bytes(b) if b.len() <= COPY_BYTES_MAX => {
                r.body_bytes_sent = b.len() as u64;
                out.extend_from_slice(&b);
            }
            Body::Bytes(b) => {
                r.body_bytes_sent = b.len() as u64;
                self.body = Some(b);
            }
            _ => {}
        }
        r.bytes_sent = head as u64 + r.body_bytes_sent;
        if r.version == Version::Http09 {
            r.keep_alive = false;
        }
        self.done.push((r, out.len()));
        None
    }
    /// Writes what was gathered, and lets a task go on with the connection.
    fn send_then(&mut self, out: &mut Vec<u8>, start: Start) {
        let start = match self.send(out, false) {
            Sent::All => start,
            Sent::Part(part) => part.start(Some(Box::new(start))),
            Sent::Gone => return,
        };
        task::spawn(&self.link.worker, self.link.key, self.connection, start);
    }
    /// Writes what was gathered. `closed_next`: the connection is closed at once, so that the last bytes may leave in one
    /// segment with the FIN.
    fn send(&mut self, out: &mut Vec<u8>, closed_next: bool) -> Sent {
        if out.is_empty() {
            return Sent::All;
        }
        let body = self.body.take().unwrap_or_default();
        let result = if body.is_empty() {
            self.link.send(&[IoSlice::new(out)], closed_next)
        } else {
            self.link.send(&[IoSlice::new(out), IoSlice::new(&body)], closed_next)
        };
        let sent = match result {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => {
                for (mut r, _) in self.done.drain(..) {
                    (r.bytes_sent, r.body_bytes_sent) = (0, 0);
                    self.link.worker.finished(r);
                }
                self.link.worker.close(self.link.key);
                return Sent::Gone;
            }
        };
        if sent == out.len() + body.len() && !self.link.has_unsent() {
            out.clear();
            for (mut r, _) in self.done.drain(..) {
                r.completed = true;
                self.link.worker.finished(r);
            }
            return Sent::All;
        }
        let mut requests: Vec<Box<Request>> = self.done.drain(..).map(|(r, _)| r).collect();
        let Some(last) = requests.pop() else { return Sent::Gone };
        for mut r in requests {
            r.completed = true;
            self.link.worker.finished(r);
        }
        let head = out.get(sent..).unwrap_or_default().to_vec();
        let body = body.slice(sent.saturating_sub(out.len())..);
        Sent::Part(Part { head, body, last })
    }
}

/// What became of a write.
enum Sent {
    All,
    /// The connection is closed.
    Gone,
    /// The socket took only so much.
    Part(Part),
}

/// What a task has to write still.
struct Part {
    head: Vec<u8>,
    body: Bytes,
    last: Box<Request>,
}

impl Part {
    fn start(self, then: Option<Box<Start>>) -> Start {
        Start::Unsent { head: self.head, body: self.body, last: self.last, then }
    }
}
