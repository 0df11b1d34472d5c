//! One request to one server: it is sent, and the head of the answer is read. Both go on at the same time: a server may answer
//! before it has taken the whole body (nginx: `ngx_http_upstream_send_request`, `ngx_http_upstream_process_header`). Then the
//! rest is not sent, and the connection is not used again.

use super::exchange::{Failure, Outgoing, note};
use super::request::{self, Announce};
use super::target::Aim;
use super::{PassPlan, early_hints};
use crate::shared::body_store::BodyStore;
use crate::shared::upstream_state::{Answer, UpstreamState};
use bytes::Bytes;
use http_engine::{BodyReader, Request, RequestBody};
use observe::os;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use upstream::{Patience, Peer, Pooled, Stream};
use wire_h1::{BodyLength, HeadLimits, Progress, ResponseHead, ResponseParser};

/// Interim responses (1xx) that may come before the one that counts: a server that sends nothing else is given up.
const INTERIM_MAX: usize = 1000;

/// A head that has come.
pub struct Come {
    pub answer: Rc<Answer>,
    /// What came behind it.
    pub rest: Bytes,
    /// The whole request was sent.
    pub whole: bool,
}

/// How much of a body that is passed on as it comes is written at once.
const STREAM_BYTES: usize = 64 * 1024;
/// What one read takes.
const READ_BYTES: usize = 4096;

/// Requests up to this size leave their buffer to the next one.
const SPARE_BYTES_MAX: usize = 16 * 1024;

thread_local! {
    /// The buffer of the request that was sent last.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Where the bytes behind the head come from.
enum Source {
    Ended,
    Stored(Rc<BodyStore>, u64),
    Client(Box<Client>),
}

/// A client's body that is passed on as it comes.
struct Client {
    reader: Box<dyn BodyReader>,
    chunked: bool,
    /// `client_max_body_size`; 0: none.
    limit: u64,
    total: u64,
    /// What fits the buffer is kept for `$request_body`.
    copy: Vec<u8>,
    copy_max: u64,
}

impl Client {
    /// Adds what has come to `out`, as much as fits; `Ready(true)` at the end of the body.
    fn poll_fill(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Result<bool, u16>> {
        let mut piece = Vec::new();
        let mut ended = false;
        while piece.len() < STREAM_BYTES && !ended {
            match self.reader.poll_read(cx) {
                Poll::Ready(Some(Ok(more))) => piece.extend_from_slice(&more),
                Poll::Ready(Some(Err(status))) => return Poll::Ready(Err(status)),
                Poll::Ready(None) => ended = true,
                Poll::Pending if piece.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        self.total += piece.len() as u64;
        if self.limit != 0 && self.total > self.limit {
            return Poll::Ready(Err(413));
        }
        if self.total <= self.copy_max {
            self.copy.extend_from_slice(&piece);
        }
        if self.chunked && !piece.is_empty() {
            wire_h1::encode_chunk_head(piece.len(), out);
            piece.extend_from_slice(b"\r\n");
        }
        out.append(&mut piece);
        if self.chunked && ended {
            out.extend_from_slice(wire_h1::LAST_CHUNK);
        }
        Poll::Ready(Ok(ended))
    }
}

/// What happened on the connection.
enum Event {
    /// Everything was sent.
    Sent,
    /// The server takes nothing more; it may have said why.
    Refused,
    /// Bytes came.
    Came,
    Closed,
    SendFailed(io::Error),
    ReceiveFailed(io::Error),
    /// The client's body ends the request with this.
    Client(u16),
    SendTimeout,
    ReadTimeout,
}

/// The bytes on their way in both directions.
struct Talk<'a> {
    stream: &'a Stream,
    patience: &'a mut Patience,
    out: Vec<u8>,
    /// So much of `out` was written.
    at: usize,
    source: Source,
    /// Nothing more is written.
    done: bool,
    came: Vec<u8>,
    send_timeout: Duration,
    read_timeout: Duration,
    /// Something of this request was written before.
    wrote: bool,
    written: u64,
    /// A client's body that ended, when it fitted the buffer.
    copied: Option<Vec<u8>>,
}

impl Talk<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if !self.done
            && let Poll::Ready(event) = self.poll_send(cx)
        {
            return Poll::Ready(event);
        }
        loop {
            self.came.reserve(READ_BYTES);
            match self.stream.try_read_buf(&mut self.came) {
                Ok(0) => return Poll::Ready(Event::Closed),
                Ok(_) => {
                    self.patience.renew();
                    return Poll::Ready(Event::Came);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match self.stream.poll_readable(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(e)) => return Poll::Ready(Event::ReceiveFailed(e)),
                    Poll::Pending => break,
                },
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Event::ReceiveFailed(e)),
            }
        }
        // A client that is waited for has its own time.
        let timeout = match (self.done, self.at < self.out.len()) {
            (true, _) => self.read_timeout,
            (false, true) => self.send_timeout,
            (false, false) => return Poll::Pending,
        };
        if self.patience.poll_over(cx, timeout) {
            return Poll::Ready(if self.done { Event::ReadTimeout } else { Event::SendTimeout });
        }
        Poll::Pending
    }
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        loop {
            while self.at < self.out.len() {
                if std::mem::replace(&mut self.wrote, true) {
                    self.stream.hurry();
                }
                match self.stream.try_write(self.out.get(self.at..).unwrap_or_default()) {
                    Ok(0) => return Poll::Ready(Event::SendFailed(io::ErrorKind::WriteZero.into())),
                    Ok(n) => {
                        self.at += n;
                        self.written += n as u64;
                        self.patience.renew();
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => match self.stream.poll_writable(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(e)) => return Poll::Ready(Event::SendFailed(e)),
                        Poll::Pending => return Poll::Pending,
                    },
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    // The server may have answered before it closed: its answer is read.
                    Err(e) if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                        return Poll::Ready(Event::Refused);
                    }
                    Err(e) => return Poll::Ready(Event::SendFailed(e)),
                }
            }
            self.out.clear();
            self.at = 0;
            match std::task::ready!(self.poll_fill(cx)) {
                Ok(true) => {}
                Ok(false) => return Poll::Ready(Event::Sent),
                Err(status) => return Poll::Ready(Event::Client(status)),
            }
        }
    }
    /// Puts more into `out`; `Ready(false)` when there is no more.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, u16>> {
        match &mut self.source {
            Source::Ended => Poll::Ready(Ok(false)),
            Source::Stored(store, offset) => {
                if *offset >= store.len() {
                    self.source = Source::Ended;
                    return Poll::Ready(Ok(false));
                }
                match store.read_at(*offset) {
                    Ok(bytes) if !bytes.is_empty() => {
                        *offset += bytes.len() as u64;
                        self.out = bytes;
                        Poll::Ready(Ok(true))
                    }
                    _ => Poll::Ready(Err(500)),
                }
            }
            Source::Client(client) => {
                if std::task::ready!(client.poll_fill(cx, &mut self.out))? {
                    let copy = std::mem::take(&mut client.copy);
                    self.copied = (client.total > 0 && client.total <= client.copy_max).then_some(copy);
                    self.source = Source::Ended;
                }
                Poll::Ready(Ok(true))
            }
        }
    }
}

/// Sends the request and reads the head of the response. The flag of an error says that nothing had come back yet.
pub async fn converse(
    plan: &PassPlan,
    r: &mut Request,
    aim: &Aim<'_>,
    peer: &Peer,
    outgoing: &Outgoing,
    connection: &mut Pooled,
) -> Result<Come, (Failure, bool)> {
    let conf = &plan.conf;
    let announce = match outgoing {
        Outgoing::Nothing => Announce::Nothing,
        Outgoing::Text(text) => Announce::Length(text.len() as u64),
        Outgoing::Stored(store) => Announce::Length(store.len()),
        Outgoing::Streamed(BodyLength::Exact(n)) => Announce::Length(*n),
        Outgoing::Streamed(_) => Announce::Chunked,
    };
    let mut out = SPARE.take();
    let honest = request::write(plan, r, aim, announce, &mut out);
    let source = match outgoing {
        Outgoing::Nothing => Source::Ended,
        Outgoing::Text(text) => {
            out.extend_from_slice(text);
            Source::Ended
        }
        Outgoing::Stored(store) => match store.in_memory() {
            Some(bytes) => {
                out.extend_from_slice(bytes);
                Source::Ended
            }
            None => Source::Stored(store.clone(), 0),
        },
        Outgoing::Streamed(_) => match std::mem::replace(&mut r.body, RequestBody::Taken) {
            RequestBody::Unread(reader) => {
                let core = &r.loc().core.conf;
                Source::Client(Box::new(Client {
                    reader,
                    chunked: announce == Announce::Chunked,
                    limit: core.client_max_body_size.0,
                    total: 0,
                    copy: Vec::new(),
                    copy_max: core.client_body_buffer_size.0,
                }))
            }
            _ => return Err((Failure::Error, false)),
        },
    };
    let streamed = matches!(source, Source::Client(_));
    if let Some(one) = UpstreamState::last(r) {
        one.sent = true;
    }
    let requests = connection.requests;
    let mut talk = Talk {
        stream: &connection.stream,
        patience: &mut connection.patience,
        out,
        at: 0,
        source,
        done: false,
        came: Vec::with_capacity(READ_BYTES),
        send_timeout: conf.proxy_send_timeout.duration(),
        read_timeout: conf.proxy_read_timeout.duration(),
        wrote: false,
        written: 0,
        copied: None,
    };
    if streamed {
        // The head goes along with what is here already.
        let first = std::future::poll_fn(|cx| Poll::Ready(talk.poll_fill(cx))).await;
        if let Poll::Ready(Err(status)) = first {
            return Err((Failure::Final(status), false));
        }
    }
    let limits = HeadLimits {
        line_max: conf.proxy_buffer_size.0 as usize,
        field_max: conf.proxy_buffer_size.0 as usize,
        total_max: conf.proxy_buffer_size.0 as usize,
        fields_max: 1000,
        underscores: true,
        ignore_invalid: true,
    };
    let mut head = ResponseHead::default();
    let mut parser = ResponseParser::default();
    let mut hinted = 0;
    let mut interim = 0;
    let mut refused = false;
    let broken = |r: &mut Request, came: &[u8], words: &str, doing: &str| {
        // Whoever asked says it of a kept connection that has simply ended.
        if !(came.is_empty() && requests > 1) {
            note(r, peer, aim, words, doing);
        }
        (Failure::Error, came.is_empty())
    };
    loop {
        let had = talk.came.len();
        let event = std::future::poll_fn(|cx| talk.poll(cx)).await;
        if let Some(one) = UpstreamState::last(r) {
            one.bytes_sent += std::mem::take(&mut talk.written);
            one.bytes_received += (talk.came.len() - had) as u64;
        }
        let doing = if talk.done { "reading response header from" } else { "sending request to" };
        match event {
            Event::Sent => {
                talk.done = true;
                let mut out = std::mem::take(&mut talk.out);
                if out.capacity() <= SPARE_BYTES_MAX {
                    out.clear();
                    SPARE.set(out);
                }
                if let Some(copy) = talk.copied.take() {
                    r.body_bytes = Some(copy.into());
                }
                continue;
            }
            Event::Refused => {
                (talk.done, refused) = (true, true);
                continue;
            }
            Event::Client(status) => return Err((Failure::Final(status), false)),
            Event::Closed => return Err(broken(r, &talk.came, "upstream prematurely closed connection", doing)),
            Event::SendFailed(e) => {
                note(r, peer, aim, &format!("send() failed {}", os(&e)), doing);
                return Err((Failure::Error, true));
            }
            Event::ReceiveFailed(e) => {
                return Err(broken(r, &talk.came, &format!("recv() failed {}", os(&e)), doing));
            }
            Event::SendTimeout | Event::ReadTimeout => {
                note(r, peer, aim, "upstream timed out (110: Connection timed out)", doing);
                if let Some(one) = UpstreamState::last(r) {
                    one.status = 504;
                }
                return Err((Failure::Timeout, false));
            }
            Event::Came => {}
        }
        loop {
            match parser.parse(&talk.came, &limits, &mut head) {
                Ok(Progress::Done { consumed }) if (100..200).contains(&head.status) && head.status != 101 => {
                    interim += 1;
                    if interim > INTERIM_MAX {
                        let words = "upstream sent too many interim responses";
                        note(r, peer, aim, words, "reading response header from");
                        return Err((Failure::InvalidHeader, false));
                    }
                    if head.status == 103 {
                        hinted += consumed as u64;
                        early_hints::pass(plan, r, &head, &talk.came, hinted).await;
                    }
                    talk.came.drain(..consumed);
                    parser.reset();
                    head = ResponseHead::default();
                    if talk.came.is_empty() {
                        break;
                    }
                }
                Ok(Progress::Done { consumed }) => {
                    let sent = talk.done && !refused;
                    let whole = sent && honest;
                    if !sent && streamed {
                        // What the client still sends is nobody's.
                        r.keep_alive = false;
                    }
                    let buf = talk.came;
                    // Whoever talks for long is not to hold more of the buffer than the head.
                    let buf = if head.status == 101 { Bytes::copy_from_slice(&buf) } else { Bytes::from(buf) };
                    let rest = buf.slice(consumed..);
                    return Ok(Come { answer: Rc::new(Answer { head, buf }), rest, whole });
                }
                Ok(Progress::Partial) => break,
                Err(e) => {
                    let words = match e.status() {
                        494 | 414 => "upstream sent too big header".to_string(),
                        _ => {
                            let mut text = Vec::new();
                            e.log(&talk.came, &mut text);
                            String::from_utf8_lossy(&text)
                                .replace("client sent invalid header line:", "upstream sent invalid header:")
                                .replace("client sent", "upstream sent")
                        }
                    };
                    note(r, peer, aim, &words, "reading response header from");
                    return Err((Failure::InvalidHeader, false));
                }
            }
        }
    }
}
