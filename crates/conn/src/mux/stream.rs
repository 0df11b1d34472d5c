//! A stream's answer: sent at once where it can be, by a task where it must wait.

use super::MuxConnection;
use super::tunnel::RawStream;
use crate::file_out::FileOut;
use crate::pace::Pace;
use bytes::{Buf, Bytes};
use http_engine::engine::{self, Outcome};
use http_engine::{Body, FilePart, Piece, Request, head_out};
use http_types::{StreamId, Why};
use metrics::process;
use observe::Level;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

/// Bodies that are sent without a task.
const AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// Answers a request, now or by a task.
pub fn answer(mux: &Rc<MuxConnection>, id: StreamId, outcome: Outcome) {
    let outcome = match outcome {
        Outcome::Ready(r, body) => match at_once(mux, id, r, body) {
            Some((r, body)) => Outcome::Ready(r, body),
            None => return,
        },
        outcome => outcome,
    };
    mux.worker.tasks.set(mux.worker.tasks.get() + 1);
    let guard = Guard { mux: mux.clone(), id };
    runtime::task::spawn_local(Box::pin(async move {
        run(&guard.mux, id, outcome).await;
        drop(guard);
    }));
}

/// The end of a stream's task, however it ends.
struct Guard {
    mux: Rc<MuxConnection>,
    id: StreamId,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.mux.finished(self.id);
        let worker = &self.mux.worker;
        worker.tasks.set(worker.tasks.get() - 1);
    }
}

/// Sends what is there whole and fits; gives it back otherwise.
fn at_once(mux: &Rc<MuxConnection>, id: StreamId, mut r: Box<Request>, body: Body) -> Option<(Box<Request>, Body)> {
    let length = match &body {
        Body::Empty => 0,
        Body::Bytes(bytes) if bytes.len() <= AT_ONCE_BYTES_MAX => bytes.len(),
        _ => return Some((r, body)),
    };
    let room = mux.core.borrow_mut().capacity(id).unwrap_or(usize::MAX);
    if length > room
        || mux.unsent() + length > 2 * super::UNSENT_BYTES_MAX
        || r.tunnel.is_some()
        || wants_tunnel(mux, id)
        || r.limit_rate.is_some()
        || r.has_background()
        || !r.out.trailers.is_empty()
        || r.expect_trailers
        || r.loc().core.needs_task
        || r.out.content_length.is_some_and(|promised| !r.head_only && promised != length as u64)
    {
        return Some((r, body));
    }
    let bytes = match body {
        Body::Bytes(bytes) if !r.head_only => bytes,
        _ => Bytes::new(),
    };
    send_head(mux, id, &mut r, bytes.is_empty());
    if !bytes.is_empty() {
        let chunk = r.loc().http2_chunk;
        mux.core.borrow_mut().send_body(id, &bytes, chunk, true);
    }
    note_sent(&mut r, bytes.len() as u64);
    r.completed = true;
    r.length += mux.core.borrow().taken(id);
    mux.worker.finished(r);
    mux.finished(id);
    None
}

/// The client asks for a WebSocket.
fn wants_tunnel(mux: &MuxConnection, id: StreamId) -> bool {
    mux.streams.borrow().get(&id).is_some_and(|shared| shared.websocket.get())
}

fn note_sent(r: &mut Request, body: u64) {
    r.body_bytes_sent = body;
    // Each frame has its header.
    r.bytes_sent = r.header_size + body + body.div_ceil(16_384) * 9;
}

/// Sends the head; fields as HTTP/1 has them, but for their case and those of the connection.
fn send_head(mux: &Rc<MuxConnection>, id: StreamId, r: &mut Request, end: bool) {
    head_out::prepare(r, mux.worker.quitting.get());
    let mut arena: Vec<u8> = Vec::with_capacity(512);
    let mut places: smallvec::SmallVec<[(usize, usize, usize); 16]> = smallvec::SmallVec::new();
    head_out::fields(r, false, &mut |name: &[u8], value: &[u8]| {
        let start = arena.len();
        arena.extend(name.iter().map(u8::to_ascii_lowercase));
        let middle = arena.len();
        arena.extend_from_slice(value);
        // What an application says of its connection with us is nothing to this one's.
        if http_types::is_connection_field(arena.get(start..middle).unwrap_or_default(), value) {
            arena.truncate(start);
        } else {
            places.push((start, middle, arena.len()));
        }
    });
    let part = |from: usize, to: usize| arena.get(from..to).unwrap_or_default();
    let mut fields = places.iter().map(|(start, middle, end)| (part(*start, *middle), part(*middle, *end)));
    let sent = mux.core.borrow_mut().send_head(id, r.out.status, &mut fields, end);
    r.header_size = sent as u64;
    mux.touch();
}

async fn run(mux: &Rc<MuxConnection>, id: StreamId, outcome: Outcome) {
    process::CONNECTIONS_WRITING.up();
    let _writing = Writing;
    let (mut r, body) = engine::finish(outcome).await;
    r.counted = true;
    let Some(body) = body else {
        // 444 and its like: the client gets nothing.
        if r.out.status == 0 {
            r.out.status = 444;
        }
        // What the client was too slow for is its own fault, and so is what is not worth an answer (nginx: `ngx_http_v2_close_stream`).
        let code = if matches!(r.out.status, 408 | 444) { Why::Protocol } else { Why::Internal };
        mux.core.borrow_mut().reset(id, code);
        return mux.worker.finished(r);
    };
    let websocket = wants_tunnel(mux, id);
    let timeout = r.loc().core.conf.send_timeout.duration();
    let room = poll_fn(|cx| mux.poll_room(id, cx));
    let has_room = matches!(runtime::time::timeout(timeout, room).await, Ok(true));
    let sent = if !has_room {
        // The client takes nothing, or has gone: an answer that is only a head must not pile up with others.
        false
    } else if let Some(tunnel) = r.tunnel.take() {
        // RFC 8441, 4: what a server of HTTP/1 says with 101 is said with 200 here.
        if r.out.status == 101 {
            r.out.status = 200;
            r.out.remove(b"Sec-WebSocket-Accept");
        }
        send_head(mux, id, &mut r, false);
        match RawStream::new(mux, id) {
            Some(client) => {
                let (received, sent) = tunnel.run(Box::new(client)).await;
                note_sent(&mut r, sent);
                r.tunnelled = (received, sent);
                mux.core.borrow_mut().send_body(id, b"", 1, true);
                true
            }
            None => false,
        }
    } else if websocket && (200..300).contains(&r.out.status) {
        // The client would take it for a tunnel.
        r.log(Level::Error, format_args!("a WebSocket was asked for, and the answer is {}", r.out.status));
        mux.core.borrow_mut().reset(id, Why::Connect);
        false
    } else {
        send(mux, id, &mut r, body).await
    };
    r.length += mux.core.borrow().taken(id);
    r.completed = sent;
    if !sent {
        mux.core.borrow_mut().reset(id, Why::Internal);
    }
    if r.loc().core.needs_task || !sent {
        r = engine::post_action(r).await;
    }
    if r.has_background() {
        poll_fn(|cx| r.poll_background(cx)).await;
    }
    mux.worker.finished(r);
}

struct Writing;
impl Drop for Writing {
    fn drop(&mut self) {
        process::CONNECTIONS_WRITING.down();
    }
}

/// Sends head and body; whether all of it was.
async fn send(mux: &Rc<MuxConnection>, id: StreamId, r: &mut Request, mut body: Body) -> bool {
    let bodiless = r.head_only || (matches!(body, Body::Empty) && r.out.trailers.is_empty());
    send_head(mux, id, r, bodiless);
    if bodiless {
        note_sent(r, 0);
        return true;
    }
    let core = r.loc().core.clone();
    let mut out = Out {
        mux,
        id,
        timeout: core.conf.send_timeout.duration(),
        files: FileOut::of(r, false),
        pace: if core.rate_limited || r.limit_rate.is_some() { Pace::new(r) } else { None },
        sent: 0,
        chunk: r.loc().http2_chunk,
        ended: false,
    };
    if let Some(pace) = &mut out.pace {
        pace.sent += r.header_size;
    }
    let mut promised = r.out.content_length;
    let whole = loop {
        let piece = poll_fn(|cx| {
            mux.worker.step();
            body.poll_piece(cx, r)
        });
        match piece.await {
            None => break promised.is_none_or(|left| left == 0),
            Some(Err(_)) => break false,
            Some(Ok(Piece::Flush)) => {}
            Some(Ok(piece)) => {
                if let Some(left) = &mut promised {
                    if piece.len() > *left {
                        break false;
                    }
                    *left -= piece.len();
                }
                // Known to be the last, it ends the stream itself.
                let last = promised == Some(0) && r.out.trailers.is_empty() && !r.expect_trailers;
                if !out.piece(piece, last, &mut body, r).await {
                    break false;
                }
            }
        }
    };
    if let Some(words) = out.files.trouble.take() {
        r.log(Level::Alert, format_args!("{words}"));
    }
    let sent = out.sent;
    let ended = whole
        && if out.ended {
            true
        } else if r.out.trailers.is_empty() {
            out.end().await
        } else {
            send_trailers(mux, id, r)
        };
    note_sent(r, sent);
    ended
}

fn send_trailers(mux: &Rc<MuxConnection>, id: StreamId, r: &Request) -> bool {
    let fields: Vec<_> =
        r.out.trailers.iter().map(|f| (f.name.bytes().to_ascii_lowercase(), f.value.bytes())).collect();
    let mut fields = fields.iter().map(|(name, value)| (name.as_slice(), *value));
    let sent = mux.core.borrow_mut().send_trailers(id, &mut fields);
    mux.touch();
    sent > 0
}

/// What is on its way on one stream.
struct Out<'a> {
    mux: &'a Rc<MuxConnection>,
    id: StreamId,
    timeout: Duration,
    files: FileOut,
    pace: Option<Pace>,
    sent: u64,
    /// Octets in a frame, at most.
    chunk: usize,
    /// The stream was ended with the last piece.
    ended: bool,
}

impl Out<'_> {
    /// Sends a piece, at the client's pace; `false` when the stream is gone.
    async fn piece(&mut self, piece: Piece, last: bool, body: &mut Body, r: &mut Request) -> bool {
        match piece {
            Piece::Bytes(bytes) => self.bytes(bytes, last, body, r).await,
            Piece::File(mut part) => {
                while part.length > 0 {
                    // No more is read than may be sent.
                    let Some(room) = self.room().await else { return false };
                    let now = FilePart { length: part.length.min(room as u64), ..part.clone() };
                    let read = match self.files.prepare(&now).await {
                        Ok(Some(bytes)) if !bytes.is_empty() => bytes,
                        Ok(_) => return false,
                        Err(e) => {
                            self.files.trouble = Some(format!("read() failed {}", observe::os(&e)));
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

    async fn bytes(&mut self, mut bytes: Bytes, last: bool, body: &mut Body, r: &mut Request) -> bool {
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
                            let watch = r.watch.clone();
                            let gone = poll_fn(|cx| match &watch {
                                Some(watch) => watch.poll_gone(cx),
                                None => std::task::Poll::Pending,
                            });
                            if runtime::time::timeout(pause, gone).await.is_ok() {
                                return false;
                            }
                        }
                    }
                }
            }
            let part = bytes.get(..most).unwrap_or_default();
            let ends = last && part.len() == bytes.len();
            let sending = poll_fn(|cx| {
                let sent = self.mux.poll_send(self.id, part, self.chunk, ends, cx);
                if sent.is_pending() {
                    body.poll_ahead(cx, r);
                }
                sent
            });
            let Ok(Some(n)) = runtime::time::timeout(self.timeout, sending).await else { return false };
            bytes.advance(n);
            self.ended |= ends && bytes.is_empty();
            self.sent += n as u64;
            if let Some(pace) = &mut self.pace {
                pace.sent += n as u64;
            }
        }
        true
    }

    /// Waits until something may be sent; `None` when the stream is gone.
    async fn room(&mut self) -> Option<usize> {
        let room = poll_fn(|cx| self.mux.poll_capacity(self.id, cx));
        runtime::time::timeout(self.timeout, room).await.ok().flatten()
    }

    async fn end(&mut self) -> bool {
        let ending = poll_fn(|cx| self.mux.poll_send(self.id, b"", self.chunk, true, cx));
        matches!(runtime::time::timeout(self.timeout, ending).await, Ok(Some(_)))
    }
}
