//! Exchanges a request with one server, reading the head while sending (nginx: `ngx_http_upstream_send_request`,
//! `ngx_http_upstream_process_header`). An early response ends sending and reuse, except with full-duplex protocols.

use super::failure::{self, OutgoingState, TryFailure, note_failure};
use super::{Announce, PassPlan};
use crate::body_store::{self, BodyStore};
use crate::target::UpstreamTarget;
use crate::upstream_state::UpstreamState;
use bytes::Bytes;
use http_engine::{BodyReader, Request};
use http_types::{BodyLength, Version};
use observe::{Severity, os_error};
use runtime::budget;
use smallvec::SmallVec;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use upstream::{
    ClientStream, Connection, Event, MalformedResponse, Peer, ReceivedHead, RequestFacts, ResponseEvent, ResponseStart,
    Serial, Stop,
};

/// Maximum bytes of a streamed body per write.
const STREAM_BYTES: usize = 64 * 1024;

/// Maximum size in bytes of a request whose buffer is reused.
const SPARE_BYTES_MAX: usize = 16 * 1024;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

enum BodyOrigin {
    Ended,
    Stored(Rc<BodyStore>, u64),
    Client(Box<ClientSide>),
}

struct ClientSide {
    reader: Box<dyn BodyReader>,
    /// `client_max_body_size`; 0: no limit.
    limit: u64,
    total: u64,
    /// Bytes of the latest pieces.
    latest: u64,
    /// Copy for `$request_body`, up to the buffer's size.
    copy: Vec<u8>,
    copy_max: u64,
}

impl ClientSide {
    fn too_large(&self, r: &Request) -> String {
        body_store::too_large(r, self.total - self.latest, self.latest)
    }
    /// Queues available bytes of the body, up to [`STREAM_BYTES`]; `Ready(true)` at the end of the body.
    fn poll_fill(&mut self, cx: &mut Context<'_>, stream: &mut ClientStream) -> Poll<Result<bool, u16>> {
        // Pieces that arrive together share a frame.
        let mut pieces: SmallVec<[Bytes; 1]> = SmallVec::new();
        let mut filled = 0;
        let mut ended = false;
        while filled < STREAM_BYTES && !ended {
            match self.reader.poll_read(cx) {
                Poll::Ready(Some(Ok(piece))) => {
                    filled += piece.len();
                    pieces.push(piece);
                }
                Poll::Ready(Some(Err(status))) => return Poll::Ready(Err(status)),
                Poll::Ready(None) => ended = true,
                Poll::Pending if filled == 0 => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        (self.total, self.latest) = (self.total + filled as u64, filled as u64);
        if self.limit != 0 && self.total > self.limit {
            return Poll::Ready(Err(413));
        }
        if self.total <= self.copy_max {
            pieces.iter().for_each(|piece| self.copy.extend_from_slice(piece));
        }
        match pieces.as_slice() {
            [] => stream.queue(&[], ended),
            [piece] => stream.queue_shared(piece, ended),
            many => stream.queue_owned(many.concat(), ended),
        }
        Poll::Ready(Ok(ended))
    }
}

const SENDING: &str = "sending request to";

/// Returns the failure for a status from the client's body; logs a body that is too large.
fn client_failed(r: &mut Request, io: &Io, context: &PeerContext<'_>, status: u16) -> TryFailure {
    if let (413, BodyOrigin::Client(client)) = (status, &io.source) {
        let words = client.too_large(r);
        failure::log_attempt(Severity::Error, r, context.peer, context.target, &words, SENDING);
    } else if let BodyOrigin::Stored(..) = &io.source {
        // (As after a full or removed disk.)
        failure::log_attempt(
            Severity::Crit,
            r,
            context.peer,
            context.target,
            "the stored request body cannot be read",
            SENDING,
        );
    } else {
        // For the line about a body that ends early.
        r.accounting.set_action(Some("sending request to upstream"));
    }
    TryFailure::Final(status)
}

enum ExchangeEvent {
    Sent,
    /// The server stopped reading; a response may explain why.
    Refused,
    Event(Event),
    Wrong(MalformedResponse),
    /// The server guarantees that it did not process the request.
    Unprocessed(MalformedResponse),
    Closed,
    SendFailed(io::Error),
    ReceiveFailed(io::Error),
    /// The client's body ends the request with this status.
    Client(u16),
    SendTimeout,
    ReadTimeout,
}

/// A request that is sent to a server, and its response. [`Io::poll_head`] until the head, then the body from `stream`,
/// with [`Io::poll_send_on`] for full-duplex protocols.
pub struct Io {
    /// The connection.
    pub stream: ClientStream,
    source: BodyOrigin,
    done: bool,
    /// The announced length of the body is correct.
    honest: bool,
    send_timeout: Duration,
    read_timeout: Duration,
    /// The client's body, once it is complete.
    ended: Option<EndedBody>,
}

struct EndedBody {
    total: u64,
    /// Copy of a body that fits the buffer.
    copy: Option<Vec<u8>>,
}

/// The client's body failed during the response.
pub struct ClientFailed;

impl Io {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ExchangeEvent> {
        if !self.done
            && let Poll::Ready(happened) = self.poll_send(cx)
        {
            return Poll::Ready(happened);
        }
        if let Poll::Ready(came) = self.stream.poll_event(cx, usize::MAX) {
            return Poll::Ready(match came {
                ResponseEvent::Event(event) => ExchangeEvent::Event(event),
                ResponseEvent::Closed => ExchangeEvent::Closed,
                ResponseEvent::Failed(e) => ExchangeEvent::ReceiveFailed(e),
                ResponseEvent::Wrong(wrong) => ExchangeEvent::Wrong(wrong),
                ResponseEvent::Unprocessed(wrong) => ExchangeEvent::Unprocessed(wrong),
            });
        }
        // Waits for the client's body, under the client's own timeout.
        let timeout = match (self.done, self.stream.is_flushed()) {
            (true, _) => self.read_timeout,
            (false, false) => self.send_timeout,
            (false, true) => return Poll::Pending,
        };
        if self.stream.idle_timer().poll_over(cx, timeout) {
            return Poll::Ready(if self.done { ExchangeEvent::ReadTimeout } else { ExchangeEvent::SendTimeout });
        }
        Poll::Pending
    }
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<ExchangeEvent> {
        loop {
            match std::task::ready!(self.stream.poll_flush(cx)) {
                Ok(()) => {}
                Err(Stop::Refused) => return Poll::Ready(ExchangeEvent::Refused),
                Err(Stop::Failed(e)) => return Poll::Ready(ExchangeEvent::SendFailed(e)),
            }
            match std::task::ready!(self.poll_fill(cx)) {
                Ok(true) => {}
                Ok(false) => {
                    self.stream.sent(self.honest);
                    return Poll::Ready(ExchangeEvent::Sent);
                }
                Err(status) => return Poll::Ready(ExchangeEvent::Client(status)),
            }
        }
    }
    /// Queues more of the body; `Ready(false)` at its end.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, u16>> {
        match &mut self.source {
            BodyOrigin::Ended => Poll::Ready(Ok(false)),
            BodyOrigin::Stored(store, offset) => match store.read_at(*offset) {
                Ok(bytes) if !bytes.is_empty() => {
                    *offset += bytes.len() as u64;
                    let last = *offset >= store.len();
                    self.stream.queue_owned(bytes, last);
                    if last {
                        self.source = BodyOrigin::Ended;
                    }
                    Poll::Ready(Ok(true))
                }
                _ => Poll::Ready(Err(500)),
            },
            BodyOrigin::Client(client) => {
                if std::task::ready!(client.poll_fill(cx, &mut self.stream))? {
                    let copy = std::mem::take(&mut client.copy);
                    let copy = (client.total > 0 && client.total <= client.copy_max).then_some(copy);
                    self.ended = Some(EndedBody { total: client.total, copy });
                    self.source = BodyOrigin::Ended;
                }
                Poll::Ready(Ok(true))
            }
        }
    }
    /// Tells whether a response came before the end of the client's body, the rest of which is not read.
    pub fn is_cut_short(&self) -> bool {
        matches!(self.source, BodyOrigin::Client(_))
    }
    /// Continues sending during the response, for full-duplex protocols. Fails if the client's body does: its error is
    /// logged, and the server still waits for the rest.
    pub fn poll_send_on(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Result<(), ClientFailed> {
        if self.done {
            return Ok(());
        }
        match self.poll_send(cx) {
            Poll::Pending => {}
            Poll::Ready(ExchangeEvent::Client(status)) => {
                self.done = true;
                if let (413, BodyOrigin::Client(client)) = (status, &self.source) {
                    let words = client.too_large(r);
                    log_said(r, words.as_bytes(), SENDING);
                }
                return Err(ClientFailed);
            }
            // (If the server stopped reading, its response or close explains why.)
            Poll::Ready(_) => {
                self.done = true;
                self.body_ended(r);
            }
        }
        Ok(())
    }
    /// Publishes the body of the client, which has been sent: its bytes, if it fits the buffer, and its length.
    fn body_ended(&mut self, r: &mut Request) {
        let Some(ended) = self.ended.take() else { return };
        // nginx counts the chunks of HTTP/1.
        if r.target.version() <= Version::Http11 {
            body_store::set_length(r, ended.total);
        }
        if let Some(copy) = ended.copy {
            r.incoming.set_body_bytes(Some(copy.into()));
        }
    }
    /// Adds transferred bytes to the try's counts; returns the bytes received.
    pub fn count(&mut self, r: &mut Request) -> u64 {
        let counts = self.stream.take_counts();
        if counts.sent | counts.received != 0
            && let Some(one) = UpstreamState::last(r)
        {
            one.transferred(counts.sent, counts.received);
        }
        counts.received
    }
}

/// Starts a try: writes the head and queues the available body.
pub fn begin_try(
    r: &mut Request,
    context: &PeerContext<'_>,
    outgoing: &OutgoingState,
    connection: Connection,
    cx: &mut Context<'_>,
) -> Result<Box<Io>, TryFailure> {
    let PeerContext { plan, target, .. } = *context;
    let conf = &plan.conf;
    let announce = match outgoing {
        OutgoingState::Nothing => Announce::Nothing,
        OutgoingState::Text(text) => Announce::Length(text.len() as u64),
        OutgoingState::Stored(store) => Announce::Length(store.len()),
        OutgoingState::Streamed(BodyLength::Exact(n)) => Announce::Length(*n),
        OutgoingState::Streamed(_) => Announce::Chunked,
    };
    let mut out = SPARE.take();
    let honest = plan.protocol.write(plan, r, target, announce, &mut out).map_err(TryFailure::Final);
    UpstreamState::show(r);
    let honest = honest?;
    let method = plan.protocol.method(r);
    let asked = RequestFacts { method, head_max: conf.buffer_size as usize, chunked: announce == Announce::Chunked };
    let mut stream = ClientStream::new(connection, &asked, out);
    let source = match outgoing {
        OutgoingState::Nothing => {
            stream.queue(&[], true);
            BodyOrigin::Ended
        }
        OutgoingState::Text(text) => {
            stream.queue(text, true);
            BodyOrigin::Ended
        }
        OutgoingState::Stored(store) => match store.shared() {
            Some(bytes) => {
                stream.queue_shared(&bytes, true);
                BodyOrigin::Ended
            }
            None if store.is_empty() => {
                stream.queue(&[], true);
                BodyOrigin::Ended
            }
            None => BodyOrigin::Stored(store.clone(), 0),
        },
        OutgoingState::Streamed(_) => match r.incoming.take_body() {
            Some(reader) => {
                let core = &r.loc().core.conf;
                BodyOrigin::Client(Box::new(ClientSide {
                    reader,
                    limit: core.client_max_body_size.0,
                    total: 0,
                    latest: 0,
                    copy: Vec::new(),
                    copy_max: core.client_body_buffer_size.0,
                }))
            }
            None => return Err(TryFailure::Error),
        },
    };
    // Boxed, because it is moved many times, up to the response body.
    let mut io = Box::new(Io {
        stream,
        source,
        done: false,
        honest,
        send_timeout: conf.send_timeout,
        read_timeout: conf.read_timeout,
        ended: None,
    });
    if let Some(one) = UpstreamState::last(r) {
        one.sent = true;
    }
    // The head leaves together with available bytes of the client's body.
    if matches!(io.source, BodyOrigin::Client(_))
        && let Poll::Ready(Err(status)) = io.poll_fill(cx)
    {
        return Err(client_failed(r, &io, context, status));
    }
    Ok(io)
}

/// Result of [`Io::poll_head`].
pub enum HeadStep {
    /// The final head.
    Head(ResponseStart),
    /// An interim response, and its length in bytes.
    Interim(Rc<ReceivedHead>, usize),
    /// The try has failed; its line is logged.
    Failed(TryFailure),
}

/// The server of a try, and what the try is for.
#[derive(Clone, Copy)]
pub struct PeerContext<'a> {
    /// The location's plan.
    pub plan: &'a PassPlan,
    /// Group and URL.
    pub target: &'a UpstreamTarget<'a>,
    /// The server.
    pub peer: &'a Peer,
}

impl PeerContext<'_> {
    /// Logs a failure with nginx's context, and returns it.
    pub fn note(&self, r: &mut Request, words: &str, doing: &'static str) -> TryFailure {
        note_failure(r, self.peer, self.target, words, doing)
    }
}

impl Io {
    /// Sends the rest of the request and reads the response head.
    pub fn poll_head(
        &mut self,
        r: &mut Request,
        peer_context: &PeerContext<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<HeadStep> {
        const READING: &str = "reading response header from";
        loop {
            let polled = self.poll(cx);
            self.count(r);
            let happened = std::task::ready!(polled);
            let doing = if self.done { READING } else { SENDING };
            let why = match happened {
                ExchangeEvent::Sent => {
                    self.done = true;
                    set_spare(self.stream.take_buffer());
                    self.body_ended(r);
                    continue;
                }
                ExchangeEvent::Refused => {
                    self.done = true;
                    continue;
                }
                ExchangeEvent::Event(Event::Stderr(words)) => {
                    log_said(r, &words, READING);
                    std::task::ready!(budget::poll_proceed(cx));
                    continue;
                }
                ExchangeEvent::Event(Event::Head(begun)) => return Poll::Ready(HeadStep::Head(begun)),
                ExchangeEvent::Event(Event::Interim(answer, bytes)) => {
                    return Poll::Ready(HeadStep::Interim(answer, bytes));
                }
                ExchangeEvent::Closed => peer_context.note(r, "upstream prematurely closed connection", doing),
                ExchangeEvent::ReceiveFailed(e) => {
                    peer_context.note(r, &format!("{} failed {}", read_call(peer_context), os_error(&e)), doing)
                }
                ExchangeEvent::Client(status) => client_failed(r, self, peer_context, status),
                ExchangeEvent::SendFailed(e) => {
                    peer_context.note(r, &format!("{} failed {}", write_call(peer_context), os_error(&e)), doing)
                }
                ExchangeEvent::SendTimeout | ExchangeEvent::ReadTimeout => {
                    failure::timed_out(r, peer_context.target, doing)
                }
                ExchangeEvent::Wrong(wrong) => {
                    peer_context.note(r, &wrong.0, READING);
                    TryFailure::InvalidHeader
                }
                ExchangeEvent::Unprocessed(wrong) => {
                    peer_context.note(r, &wrong.0, READING);
                    TryFailure::Unprocessed
                }
                // Codecs report no body before the head.
                ExchangeEvent::Event(Event::Body(_) | Event::End(_)) => {
                    peer_context.note(r, "upstream sent no valid header", READING);
                    TryFailure::InvalidHeader
                }
            };
            return Poll::Ready(HeadStep::Failed(why));
        }
    }
}

/// Continues a request that was written on the short path (`light.rs`).
pub fn resume_stream(plan: &PassPlan, stream: Serial, honest: bool) -> Box<Io> {
    Box::new(Io {
        stream: ClientStream::Serial(stream),
        source: BodyOrigin::Ended,
        done: false,
        honest,
        send_timeout: plan.conf.send_timeout,
        read_timeout: plan.conf.read_timeout,
        ended: None,
    })
}

/// Returns the call that nginx names for a failed read.
fn read_call(peer_context: &PeerContext<'_>) -> &'static str {
    if peer_context.target.origin.tls { "SSL_read()" } else { "recv()" }
}

fn write_call(peer_context: &PeerContext<'_>) -> &'static str {
    if peer_context.target.origin.tls { "SSL_write()" } else { "writev()" }
}

/// Logs a read error before any response, and returns its failure.
pub fn read_failure(r: &mut Request, peer_context: &PeerContext<'_>, e: &io::Error) -> TryFailure {
    const READING: &str = "reading response header from";
    if e.kind() == io::ErrorKind::TimedOut && e.raw_os_error().is_none() {
        return failure::timed_out(r, peer_context.target, READING);
    }
    peer_context.note(r, &format!("{} failed {}", read_call(peer_context), os_error(e)), READING)
}

/// Takes the thread's spare buffer for a request.
pub fn spare_buffer() -> Vec<u8> {
    SPARE.take()
}
/// Keeps a buffer for the next request of the thread, unless it is large.
pub fn set_spare(mut out: Vec<u8>) {
    if out.capacity() <= SPARE_BYTES_MAX {
        out.clear();
        SPARE.set(out);
    }
}

/// Logs a text of a server. A line costs as much as an event, however short the text is.
pub fn log_said(r: &Request, words: &[u8], doing: &str) {
    budget::spend(budget::STEP as usize);
    let url = UpstreamState::url(r);
    let shown = String::from_utf8_lossy(words);
    r.log_of(Severity::Error, format_args!("{shown} while {doing} upstream"), url.as_deref());
}
