//! A stream's response: at once where possible, otherwise by a task.

use super::tunnel::RawStream;
use super::{Streams, StreamsState};
use crate::file_out::FileOut;
use crate::guard::WriteGuard;
use crate::head_in;
use crate::pace::Pace;
use crate::send_plan::{PromisedLength, SendPlan};
use crate::steps;
use bytes::{Buf, Bytes};
use http_engine::engine::{self, PhaseOutcome};
use http_engine::{FilePart, Piece, Request, ResponseBody, head_out};
use http_types::{ResetReason, StreamId};
use observe::Severity;
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Largest body sent without a task.
const AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// Sends a response at once if it is in memory and the window permits it; otherwise a task does.
pub fn answer_stream(streams: &Rc<Streams>, id: StreamId, outcome: PhaseOutcome) {
    let outcome = match outcome {
        PhaseOutcome::Ready(r, body) => match at_once(streams, id, r, body) {
            Some((r, body)) => PhaseOutcome::Ready(r, body),
            None => return,
        },
        outcome => outcome,
    };
    let guard = Guard::new(streams, id);
    runtime::task::spawn_local(Box::pin(async move {
        run(&guard.streams, id, outcome).await;
        drop(guard);
    }));
}

/// Starts a request in its own task: earlier requests of the connection have used up the time of this slice.
pub fn start_later(streams: &Rc<Streams>, id: StreamId, r: Box<Request>) {
    let guard = Guard::new(streams, id);
    runtime::task::spawn_local(Box::pin(async move {
        steps::note_step();
        run(&guard.streams, id, engine::start_phases(r)).await;
        drop(guard);
    }));
}

struct Guard {
    streams: Rc<Streams>,
    id: StreamId,
}

impl Guard {
    fn new(streams: &Rc<Streams>, id: StreamId) -> Guard {
        streams.worker.turn().begin_task();
        Guard { streams: streams.clone(), id }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.streams.finished(self.id);
        let worker = &self.streams.worker;
        worker.turn().end_task();
    }
}

fn at_once(
    streams: &Rc<Streams>,
    id: StreamId,
    mut r: Box<Request>,
    body: ResponseBody,
) -> Option<(Box<Request>, ResponseBody)> {
    let body = body.into_cached();
    let SendPlan::Whole(length) = SendPlan::of(&r, &body, AT_ONCE_BYTES_MAX) else { return Some((r, body)) };
    let room = streams.core.borrow_mut().capacity(id).unwrap_or(usize::MAX);
    if length > room || streams.unsent() + length > 2 * super::UNSENT_BYTES_MAX || wants_tunnel(streams, id) {
        return Some((r, body));
    }
    let bytes = match body {
        ResponseBody::Bytes(bytes) if !r.reply.is_head_only() => bytes,
        _ => Bytes::new(),
    };
    send_head(streams, id, &mut r, bytes.is_empty());
    let mut total = r.accounting.header_size();
    if !bytes.is_empty() {
        let chunk = r.loc().http2_chunk;
        total += streams.core.borrow_mut().send_shared(id, &bytes, chunk, true).octets as u64;
    }
    r.accounting.set_sent(total, bytes.len() as u64);
    r.accounting.set_completed(true);
    r.incoming.add_body(streams.core.borrow().taken(id));
    streams.worker.finished(r);
    streams.finished(id);
    None
}

fn wants_tunnel(streams: &Streams, id: StreamId) -> bool {
    streams.open.borrow().get(&id).is_some_and(|shared| shared.websocket.get())
}

/// Sends the head: HTTP/1's fields in lower case without connection-specific ones.
fn send_head(streams: &Rc<Streams>, id: StreamId, r: &mut Request, end: bool) {
    head_out::prepare_head(r, streams.worker.turn().is_quitting());
    let mut arena: Vec<u8> = Vec::with_capacity(512);
    let mut places: smallvec::SmallVec<[(usize, usize, usize); 16]> = smallvec::SmallVec::new();
    head_out::pass_fields(r, false, &mut |name: &[u8], value: &[u8]| {
        let start = arena.len();
        arena.extend(name.iter().map(u8::to_ascii_lowercase));
        let middle = arena.len();
        arena.extend_from_slice(value);
        // An application's connection-specific fields do not concern the client.
        if http_types::is_connection_field(arena.get(start..middle).unwrap_or_default(), value) {
            arena.truncate(start);
        } else {
            places.push((start, middle, arena.len()));
        }
    });
    let part = |from: usize, to: usize| arena.get(from..to).unwrap_or_default();
    let mut fields = places.iter().map(|(start, middle, end)| (part(*start, *middle), part(*middle, *end)));
    let sent = streams.core.borrow_mut().send_head(id, r.out.status(), &mut fields, end);
    r.accounting.set_header_size(sent as u64);
    streams.touch();
}

async fn run(streams: &Rc<Streams>, id: StreamId, outcome: PhaseOutcome) {
    let _writing = WriteGuard::begin();
    let shared = streams.open.borrow().get(&id).cloned().unwrap_or_default();
    let (mut r, body) = engine::finish_request(outcome).await;
    r.accounting.note_counted();
    let Some(body) = body else {
        // Without a response (444 and similar).
        if r.out.status() == 0 {
            r.out.set_status(444);
        }
        // A slow client or a request without response is the client's fault (nginx: `ngx_http_v2_close_stream`).
        let code = if matches!(r.out.status(), 408 | 444) { ResetReason::Protocol } else { ResetReason::Internal };
        r.incoming.add_body(shared.read.get());
        streams.core.borrow_mut().reset(id, code);
        return streams.worker.finished(r);
    };
    // Requests that have waited, or did not begin in their connection's slice, have not met `at_once`.
    let body = body.into_cached();
    let websocket = wants_tunnel(streams, id);
    let timeout = SendTimeout { limit: r.loc().core.conf.send_timeout.duration(), is_over: Cell::new(false) };
    let room = poll_fn(|cx| streams.poll_room(id, cx));
    let has_room = timeout.of(room).await == Some(true);
    let sent = if !has_room {
        // The client reads nothing or is gone: head-only responses must not pile up.
        false
    } else if let Some(tunnel) = r.reply.take_tunnel() {
        // 101 becomes 200 (RFC 8441, 4).
        if r.out.status() == 101 {
            r.out.set_status(200);
            r.out.remove(b"Sec-WebSocket-Accept");
        }
        send_head(streams, id, &mut r, false);
        match RawStream::new(streams, id) {
            Some(client) => {
                let ended = tunnel.run(Box::new(client)).await;
                r.accounting.set_sent(0, ended.sent);
                r.tunnel_ended(ended);
                end_now(streams, id, &shared);
                true
            }
            None => false,
        }
    } else if websocket && (200..300).contains(&r.out.status()) {
        // The client would take it for a tunnel.
        r.log(Severity::Error, format_args!("a WebSocket was requested, and the response is {}", r.out.status()));
        streams.core.borrow_mut().reset(id, ResetReason::Connect);
        false
    } else {
        send(streams, id, &mut r, body, &shared, &timeout).await
    };
    let total = shared.octets.get() + r.accounting.header_size();
    r.accounting.set_sent(total, r.accounting.body_bytes_sent());
    r.incoming.add_body(streams.core.borrow().taken(id).max(shared.read.get()));
    r.accounting.set_completed(sent);
    if timeout.is_over.get() {
        r.log(Severity::Info, format_args!("{}", head_in::TIMED_OUT));
        streams.core.borrow_mut().reset(id, ResetReason::Protocol);
    } else if !sent {
        streams.core.borrow_mut().reset(id, ResetReason::Internal);
    }
    if r.loc().core.needs_task || !sent {
        r = engine::post_action(r).await;
    }
    if r.has_background() {
        poll_fn(|cx| r.poll_background(cx)).await;
    }
    streams.worker.finished(r);
}

/// Sends head and body; false if incomplete.
async fn send(
    streams: &Rc<Streams>,
    id: StreamId,
    r: &mut Request,
    mut body: ResponseBody,
    shared: &StreamsState,
    timeout: &SendTimeout,
) -> bool {
    let bodiless = r.reply.is_head_only() || (matches!(body, ResponseBody::Empty) && r.out.trailers().is_empty());
    send_head(streams, id, r, bodiless);
    if bodiless {
        return true;
    }
    let core = r.loc().core.clone();
    let mut out = Out {
        streams,
        id,
        timeout,
        files: FileOut::of(r, false),
        pace: if core.rate_limited || r.reply.limit_rate().is_some() { Pace::new(r) } else { None },
        sent: 0,
        chunk: r.loc().http2_chunk,
        ended: false,
    };
    if let Some(pace) = &mut out.pace {
        pace.sent += r.accounting.header_size();
    }
    let mut promised = PromisedLength::of(r);
    let whole = loop {
        if body.needs_window() && !out.wait_for_window(&mut body, r).await {
            break false;
        }
        r.reply.set_piece_room(streams.piece_room());
        let piece = poll_fn(|cx| {
            steps::note_step();
            body.poll_piece(cx, r)
        });
        match piece.await {
            None => break !promised.is_short(),
            Some(Err(_)) => break false,
            Some(Ok(Piece::Flush)) => {}
            Some(Ok(piece)) => {
                if !promised.take(piece.len()) {
                    break false;
                }
                // A known last piece ends the stream.
                let last = promised.is_kept() && r.out.trailers().is_empty() && !r.reply.expects_trailers();
                if !out.piece(piece, last, &mut body, r).await {
                    break false;
                }
            }
        }
    };
    if let Some(words) = out.files.trouble.take() {
        r.log(Severity::Alert, format_args!("{words}"));
    }
    let sent = out.sent;
    let ended = whole
        && if out.ended {
            true
        } else if r.out.trailers().is_empty() {
            out.end().await
        } else {
            send_trailers(streams, id, r, shared)
        };
    r.accounting.set_sent(0, sent);
    ended
}

fn send_trailers(streams: &Rc<Streams>, id: StreamId, r: &Request, shared: &StreamsState) -> bool {
    let fields: Vec<_> =
        r.out.trailers().iter().map(|f| (f.name.bytes().to_ascii_lowercase(), f.value.bytes())).collect();
    let mut fields = fields.iter().map(|(name, value)| (name.as_slice(), *value));
    let sent = streams.core.borrow_mut().send_trailers(id, &mut fields);
    shared.octets.set(shared.octets.get() + sent as u64);
    streams.touch();
    sent > 0
}

/// Ends the stream's output (END_STREAM).
pub fn end_now(streams: &Streams, id: StreamId, shared: &StreamsState) {
    let sent = streams.core.borrow_mut().send_body(id, b"", 1, true);
    shared.octets.set(shared.octets.get() + sent.octets as u64);
    streams.touch();
}

/// `send_timeout`, for each wait.
struct SendTimeout {
    limit: Duration,
    is_over: Cell<bool>,
}

impl SendTimeout {
    /// Waits; `None` after the timeout.
    async fn of<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let done = runtime::time::with_timeout(self.limit, future).await.ok();
        self.is_over.set(done.is_none());
        done
    }
}

struct Out<'a> {
    streams: &'a Rc<Streams>,
    id: StreamId,
    timeout: &'a SendTimeout,
    files: FileOut,
    pace: Option<Pace>,
    sent: u64,
    chunk: usize,
    ended: bool,
}

impl Out<'_> {
    /// Sends a piece at the client's pace; `false` if the stream is gone.
    async fn piece(&mut self, piece: Piece, last: bool, body: &mut ResponseBody, r: &mut Request) -> bool {
        match piece {
            Piece::Bytes(bytes) => self.bytes(bytes, last, body, r).await,
            Piece::File(mut part) => {
                while part.length > 0 {
                    // Reads no more than may be sent.
                    let Some(room) = self.room().await else { return false };
                    let now = FilePart { length: part.length.min(room as u64), ..part.clone() };
                    let read = match self.files.prepare(&now).await {
                        Ok(Some(bytes)) if !bytes.is_empty() => bytes,
                        Ok(_) => return false,
                        Err(e) => {
                            self.files.trouble = Some(format!("read() failed {}", observe::os_error(&e)));
                            return false;
                        }
                    };
                    part.start += read.len() as u64;
                    part.length -= (read.len() as u64).min(part.length);
                    let last = last && part.length == 0;
                    if !self.bytes(read, last, body, r).await {
                        return false;
                    }
                }
                true
            }
            Piece::Flush => true,
        }
    }

    async fn bytes(&mut self, mut bytes: Bytes, last: bool, body: &mut ResponseBody, r: &mut Request) -> bool {
        while !bytes.is_empty() {
            let mut most = bytes.len();
            if let Some(pace) = &mut self.pace {
                loop {
                    match pace.allowed() {
                        Ok(allowed) => {
                            most = most.min(usize::try_from(allowed).unwrap_or(usize::MAX));
                            break;
                        }
                        Err(pause) => {
                            let watch = r.incoming.watch().cloned();
                            let gone = poll_fn(|cx| match &watch {
                                Some(watch) => watch.poll_gone(cx),
                                None => Poll::Pending,
                            });
                            if runtime::time::with_timeout(pause, gone).await.is_ok() {
                                return false;
                            }
                        }
                    }
                }
            }
            let part = bytes.slice(..most.min(bytes.len()));
            let (id, chunk) = (self.id, self.chunk);
            let sending = poll_fn(|cx| {
                let room = self.streams.free(part.len()).max(super::PIECE_BYTES_MIN);
                // Frames are not cut for lack of room.
                let room = room.checked_next_multiple_of(chunk).unwrap_or(room);
                let mut now = part.clone();
                now.truncate(room);
                let ends = last && now.len() == bytes.len();
                let sent = self.streams.poll_send(id, false, cx, |core| core.send_shared(id, &now, chunk, ends));
                if sent.is_pending() {
                    body.poll_ahead(cx, r);
                }
                sent
            });
            let Some(Some(n)) = self.timeout.of(sending).await else { return false };
            bytes.advance(n);
            self.ended |= last && bytes.is_empty();
            self.sent += n as u64;
            if let Some(pace) = &mut self.pace {
                pace.sent += n as u64;
            }
        }
        true
    }

    /// Waits until the window and the connection take octets, before a piece is made; `false` if the stream is gone.
    async fn wait_for_window(&mut self, body: &mut ResponseBody, r: &mut Request) -> bool {
        if self.ended {
            return true;
        }
        let (streams, id) = (self.streams, self.id);
        let waiting = poll_fn(|cx| {
            let polled = match streams.poll_capacity(id, cx) {
                Poll::Ready(Some(_)) => streams.poll_room(id, cx),
                Poll::Ready(None) => Poll::Ready(false),
                Poll::Pending => Poll::Pending,
            };
            if polled.is_pending() {
                body.poll_ahead(cx, r);
            }
            polled
        });
        self.timeout.of(waiting).await == Some(true)
    }

    /// Waits for room; `None` if the stream is gone.
    async fn room(&mut self) -> Option<usize> {
        let room = poll_fn(|cx| self.streams.poll_capacity(self.id, cx));
        self.timeout.of(room).await.flatten()
    }

    async fn end(&mut self) -> bool {
        let id = self.id;
        let ending = poll_fn(|cx| self.streams.poll_send(id, true, cx, |core| core.send_body(id, b"", 1, true)));
        matches!(self.timeout.of(ending).await, Some(Some(_)))
    }
}
