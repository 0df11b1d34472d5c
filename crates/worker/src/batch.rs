//! Responses of a connection that leave with one write, and its continuation: idle, closed, or a task.

use crate::head_in;
use crate::linger;
use crate::link::Link;
use crate::presence::Presence;
use crate::send_plan::{SendPlan, SingleChunk, kernel_part};
use crate::task::{self, Start};
use base::clock;
use bytes::Bytes;
use http_engine::values::LingeringClose;
use http_engine::{ClientConnection, FilePart, Piece, Request, ResponseBody, head_out};
use http_types::Version;
use runtime::budget;
use std::cell::RefMut;
use std::io::{self, IoSlice};
use std::rc::Rc;

/// Bodies up to this size are copied behind their head; larger ones join the write.
const COPY_BYTES_MAX: usize = 1024;
/// Largest body sent without a task.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of requests whose responses share a write.
const REQUESTS_MAX: usize = 64;

/// Responses that leave together. [`Batch::add`] each in the order of the requests, then [`conclude_batch`] or
/// [`Batch::send_then`]. If it is dropped before, its requests count as lost.
pub struct Batch<'a> {
    /// The connection's bytes.
    pub link: Link,
    /// The connection.
    pub connection: &'a Rc<ClientConnection>,
    /// Requests with their responses' ends in the output.
    done: smallvec::SmallVec<[(Box<Request>, usize); 4]>,
    /// Body of the last response, if too large to copy.
    body: Option<Bytes>,
    /// Octets after `body`: the end of its chunk.
    tail: &'static [u8],
    /// Part of a file behind the last response's head, which the kernel sends.
    file: Option<FilePart>,
    /// View of the client that the requests share.
    pub presence: Option<Rc<Presence>>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if let Some(presence) = self.presence.take() {
            presence.recycle(&self.link.worker);
        }
    }
}

impl<'a> Batch<'a> {
    /// Begins an empty batch.
    pub fn new(link: Link, connection: &'a Rc<ClientConnection>) -> Batch<'a> {
        Batch { link, connection, done: smallvec::SmallVec::new(), body: None, tail: b"", file: None, presence: None }
    }
    /// Appends a response that can be sent at once; otherwise returns it.
    pub fn add(
        &mut self,
        mut r: Box<Request>,
        body: ResponseBody,
        out: &mut Vec<u8>,
    ) -> Option<(Box<Request>, ResponseBody)> {
        let file = kernel_part(&self.link, &r, &body).cloned();
        let (plan, body) = match &file {
            Some(part) => (SendPlan::of_length(&r, usize::try_from(part.length).unwrap_or(usize::MAX)), body),
            None => {
                let body = body.into_cached();
                (SendPlan::of(&r, &body, BODY_BYTES_MAX), body)
            }
        };
        if !matches!(plan, SendPlan::Whole(_)) || self.has_last() {
            return Some((r, body));
        }
        let start = out.len();
        head_out::write_head(&mut r, self.link.worker.turn().is_quitting(), out);
        let head = out.len() - start;
        let framing = SingleChunk::of(&r, &body);
        framing.begin(out);
        match body {
            ResponseBody::File(_) if !r.reply.is_head_only() => self.file = file,
            ResponseBody::Bytes(b) if b.len() > COPY_BYTES_MAX => {
                (self.body, self.tail) = (Some(b), framing.end());
            }
            body => {
                if let ResponseBody::Bytes(b) = body {
                    out.extend_from_slice(&b);
                }
                out.extend_from_slice(framing.end());
            }
        }
        let apart = self.body.as_ref().map_or(0, |body| body.len() + self.tail.len()) as u64
            + self.file.as_ref().map_or(0, |file| file.length);
        let total = (out.len() - start) as u64 + apart;
        // Framing counts, as in nginx.
        r.accounting.set_sent(total, total - head as u64);
        if r.target.version() == Version::Http09 {
            r.reply.set_keep_alive(false);
        }
        self.done.push((r, out.len()));
        None
    }
    /// Ends the batch: the last response closes the connection, the batch is full, or its time is over.
    pub fn is_full(&self) -> bool {
        let last = self.done.last().is_none_or(|(r, ..)| !r.reply.keeps_alive() || r.incoming.is_alone());
        last || self.done.len() >= REQUESTS_MAX || self.has_last() || !budget::is_left()
    }
    /// Tells whether the last response's body is apart from the output, so that no other can follow.
    fn has_last(&self) -> bool {
        self.body.is_some() || self.file.is_some()
    }
    /// Tells whether no response was added.
    pub fn is_empty(&self) -> bool {
        self.done.is_empty()
    }
    /// Writes the batch, and continues in a task with `start`, unless the connection fails.
    pub fn send_then(&mut self, out: &mut Vec<u8>, start: Start) {
        let start = match self.send(out, false) {
            BatchEnd::All => start,
            BatchEnd::Part(part) => part.start(Some(Box::new(start))),
            BatchEnd::Gone => return,
        };
        task::spawn_task(&self.link.worker, self.link.key, self.connection, start);
    }
    fn all_sent(&mut self) {
        for (mut r, _) in self.done.drain(..) {
            r.accounting.set_completed(true);
            self.link.worker.finished(r);
        }
    }
    /// Writes the batch. `closed_next`: the close follows, so the last segment may carry the FIN.
    fn send(&mut self, out: &mut Vec<u8>, closed_next: bool) -> BatchEnd {
        if out.is_empty() {
            // HTTP/0.9 without a body has nothing to send.
            self.all_sent();
            return BatchEnd::All;
        }
        if let Some(file) = self.file.take() {
            self.no_delay();
            return self.send_file(out, file);
        }
        let (body, tail) = (self.body.take().unwrap_or_default(), std::mem::take(&mut self.tail));
        if !body.is_empty() {
            self.no_delay();
        }
        let result = if body.is_empty() {
            self.link.send(&[IoSlice::new(out)], closed_next)
        } else if tail.is_empty() {
            self.link.send(&[IoSlice::new(out), IoSlice::new(&body)], closed_next)
        } else {
            self.link.send(&[IoSlice::new(out), IoSlice::new(&body), IoSlice::new(tail)], closed_next)
        };
        let sent = match result {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => return self.gone(),
        };
        if sent == out.len() + body.len() + tail.len() && !self.link.has_unsent() {
            out.clear();
            self.all_sent();
            return BatchEnd::All;
        }
        let Some(last) = self.take_last() else { return BatchEnd::Gone };
        let head = out.get(sent..).unwrap_or_default().to_vec();
        let sent_body = sent.saturating_sub(out.len());
        let body = match tail {
            b"" => body.slice(sent_body..),
            tail => {
                let rest = [body.get(sent_body..).unwrap_or_default(), tail].concat();
                // The tail itself may have been sent in part.
                Bytes::from(rest).slice(sent_body.saturating_sub(body.len())..)
            }
        };
        BatchEnd::Part(BatchPart { head, body: Piece::Bytes(body), last })
    }
    /// Lets several segments of the last response leave without acknowledgment between them.
    fn no_delay(&self) {
        if self.done.last().is_some_and(|(r, _)| r.loc().core.conf.tcp_nodelay) {
            self.link.worker.no_delay(self.link.key, self.connection);
        }
    }
    /// Writes the batch's heads and the part of a file behind them.
    fn send_file(&mut self, out: &mut Vec<u8>, mut file: FilePart) -> BatchEnd {
        let head = match self.link.send(&[IoSlice::new(out)], true) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => return self.gone(),
        };
        if head == out.len() {
            let length = usize::try_from(file.length).unwrap_or(usize::MAX);
            match self.link.sendfile(&file.file.file, &mut file.start, length) {
                Ok(n) => file.length -= (n as u64).min(file.length),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return self.gone(),
            }
        }
        if head == out.len() && file.length == 0 {
            out.clear();
            self.all_sent();
            return BatchEnd::All;
        }
        let Some(last) = self.take_last() else { return BatchEnd::Gone };
        BatchEnd::Part(BatchPart { head: out.get(head..).unwrap_or_default().to_vec(), body: Piece::File(file), last })
    }
    /// Ends all requests but the last one, whose response is not sent whole.
    fn take_last(&mut self) -> Option<Box<Request>> {
        let (last, _) = self.done.pop()?;
        self.all_sent();
        Some(last)
    }
    /// Ends all requests: the connection has failed.
    fn gone(&mut self) -> BatchEnd {
        for (mut r, _) in self.done.drain(..) {
            r.accounting.set_sent(0, 0);
            self.link.worker.finished(r);
        }
        self.link.worker.close(self.link.key);
        BatchEnd::Gone
    }
}

enum BatchEnd {
    All,
    Gone,
    Part(BatchPart),
}

struct BatchPart {
    head: Vec<u8>,
    body: Piece,
    last: Box<Request>,
}

impl BatchPart {
    fn start(self, then: Option<Box<Start>>) -> Start {
        Start::Unsent { head: self.head, body: self.body, last: self.last, then }
    }
}

/// Writes the batch; the connection becomes idle, closed, or a task. `rest`: bytes behind the requests; `is_partial`:
/// the start of a head.
pub fn conclude_batch(mut batch: Batch<'_>, mut out: RefMut<'_, Vec<u8>>, rest: &[u8], is_partial: bool) {
    let (worker, key, connection) = (batch.link.worker.clone(), batch.link.key, batch.connection);
    let worker = &worker;
    let closing = batch.done.last().is_none_or(|(r, ..)| !r.reply.keeps_alive());
    let conf = batch.done.last().map(|(r, ..)| &r.loc().core.conf);
    let (idle, nodelay, lingers) =
        conf.map_or((0, false, LingeringClose::On), |c| (c.keepalive_timeout.millis, c.tcp_nodelay, c.lingering_close));
    let may_follow = !rest.is_empty() || worker.poller.readable_now(key) || connection.pipelining.is_seen();
    let close_at_once = closing && !linger::is_due(lingers, may_follow);
    let limits = conf.map_or_else(linger::Limits::default, linger::Limits::of);
    match batch.send(&mut out, close_at_once) {
        BatchEnd::All => {}
        BatchEnd::Gone => return,
        BatchEnd::Part(part) => {
            let then = (!closing && !rest.is_empty()).then(|| Box::new(Start::Bytes(rest.to_vec())));
            return task::spawn_task(worker, key, connection, part.start(then));
        }
    }
    if closing {
        if close_at_once {
            return worker.close(key);
        }
        return linger::spawn_linger(worker, key, limits);
    }
    if nodelay {
        worker.no_delay(key, connection);
    }
    if is_partial {
        head_in::keep_head(worker, key, connection, rest, true, None);
        return;
    }
    if !rest.is_empty() {
        return task::spawn_task(worker, key, connection, Start::Bytes(rest.to_vec()));
    }
    worker.poller.stay_idle(key, clock::now().plus_millis(idle));
}
