//! Sends a response from a task, at the client's pace, with few writes.

use crate::file_out::FileOut;
use crate::link::{Link, SEND_BYTES_MAX};
use crate::pace::Pace;
use crate::send_plan::{PromisedLength, SendPlan, SingleChunk, kernel_part};
use crate::steps;
use base::append::append_bytes;
use base::room::Room;
use bytes::{Buf, Bytes};
use http_engine::{FilePart, Piece, Request, ResponseBody, head_out};
use observe::Severity;
use runtime::budget;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};
use std::time::Duration;

/// The reason why a response was not sent whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The connection ended, with the error code of a write.
    Gone(Option<i32>),
    /// No progress for `send_timeout`.
    TimedOut,
    /// The body's source failed, or a file was truncated.
    Truncated,
}

/// Bytes of pieces gathered before a write.
const GATHER_BYTES: usize = 64 * 1024;
const GATHER_PIECES: usize = 32;
/// Bytes of pieces gathered for a socket that takes no bytes now, and the least piece that a source is asked for.
const GATHER_BYTES_MIN: usize = 4 * 1024;

/// Queues pieces of a response and writes them at the client's pace.
pub struct Sender {
    link: Link,
    queue: VecDeque<Piece>,
    queued: u64,
    files: FileOut,
    timeout: Duration,
    /// Of the client's socket, for bytes in memory.
    room: Room,
    /// Bytes written so far.
    pub sent: u64,
}

impl Sender {
    /// Begins with an empty queue. `timeout_ms`: `send_timeout`.
    pub fn new(link: Link, timeout_ms: u64) -> Sender {
        Sender {
            link,
            queue: VecDeque::new(),
            queued: 0,
            files: FileOut::default(),
            timeout: Duration::from_millis(timeout_ms),
            room: Room::assumed(GATHER_BYTES),
            sent: 0,
        }
    }
    /// Queues a piece; an empty one is ignored.
    pub fn push(&mut self, piece: Piece) {
        if !piece.is_empty() {
            self.queued += piece.len();
            self.queue.push_back(piece);
        }
    }
    fn full(&mut self) -> bool {
        let queued = self.queued as usize;
        self.queue.len() >= GATHER_PIECES || queued >= GATHER_BYTES_MIN && queued >= self.room_for(GATHER_BYTES)
    }
    fn room_for(&mut self, bytes: usize) -> usize {
        self.room.up_to(bytes, || self.link.send_room())
    }
    /// Returns [`http_engine::request::Reply::piece_room`].
    fn piece_room(&mut self) -> u32 {
        let queued = self.queued as usize;
        match self.room_for(GATHER_BYTES) {
            GATHER_BYTES => 0,
            room => room.saturating_sub(queued).max(GATHER_BYTES_MIN) as u32,
        }
    }
    /// Writes all queued pieces, at the client's pace. Only a write that leaves queued pieces announces more (MSG_MORE): the kernel holds
    /// an announced rest back for 200 ms, while the source may pause.
    pub async fn flush(&mut self) -> Result<(), SendError> {
        self.flush_while(|_| {}).await
    }
    /// [`Sender::flush`] that polls `meanwhile` while the client does not read.
    pub async fn flush_while(&mut self, mut meanwhile: impl FnMut(&mut Context<'_>)) -> Result<(), SendError> {
        while !self.queue.is_empty() || self.link.has_unsent() {
            // A fast client must not keep the thread.
            budget::proceed().await;
            if !self.files.kernel_alone() {
                self.read_ahead_of_write().await?;
            }
            let written =
                if self.queue.is_empty() { self.link.flush().map(|()| None) } else { self.write_some().map(Some) };
            match written {
                Ok(Some(0)) => return Err(SendError::Truncated),
                Ok(Some(n)) => {
                    self.room.sent(n);
                    self.sent += n as u64;
                    self.queued = self.queued.saturating_sub(n as u64);
                }
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.room.blocked();
                    let writable = poll_fn(|cx| {
                        meanwhile(cx);
                        self.link.poll_writable(cx)
                    });
                    match runtime::time::with_timeout(self.timeout, writable).await {
                        Ok(true) => {}
                        Ok(false) => return Err(SendError::Gone(None)),
                        Err(_) => return Err(SendError::TimedOut),
                    }
                }
                Err(e) => return Err(SendError::Gone(e.raw_os_error())),
            }
        }
        Ok(())
    }
    /// Prepares a file part at the front of the queue: reads it, or loads it into the page cache.
    async fn read_ahead_of_write(&mut self) -> Result<(), SendError> {
        let Some(Piece::File(part)) = self.queue.front() else { return Ok(()) };
        let mut part = part.clone();
        // A socket with little room gets one buffer at a time.
        let is_free = self.room_for(GATHER_BYTES) == GATHER_BYTES;
        let buffers = if is_free { self.files.buffers } else { 1 };
        let mut read = Vec::with_capacity(buffers);
        while read.len() < buffers && part.length > 0 {
            match self.files.prepare(&part).await {
                Ok(None) => return Ok(()),
                Ok(Some(bytes)) => {
                    if bytes.is_empty() {
                        break;
                    }
                    part.start += bytes.len() as u64;
                    part.length -= bytes.len() as u64;
                    read.push(Piece::Bytes(bytes));
                }
                Err(e) => {
                    self.files.trouble = Some(format!("read() failed {}", observe::os_error(&e)));
                    return Err(SendError::Truncated);
                }
            }
        }
        if read.is_empty() {
            return Err(SendError::Truncated);
        }
        self.queue.pop_front();
        if part.length > 0 {
            self.queue.push_front(Piece::File(part));
        }
        read.into_iter().rev().for_each(|piece| self.queue.push_front(piece));
        Ok(())
    }
    fn write_some(&mut self) -> io::Result<usize> {
        match self.queue.front_mut() {
            None => Ok(0),
            Some(Piece::File(part)) => {
                let mut offset = part.start;
                let length = self.files.chunk(part);
                let n = self.link.sendfile(&part.file.file, &mut offset, length)?;
                part.start += n as u64;
                part.length -= n as u64;
                if part.length == 0 {
                    self.queue.pop_front();
                }
                Ok(n)
            }
            Some(_) => {
                let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(self.queue.len().min(GATHER_PIECES));
                let (mut rest_follows, mut left) = (false, SEND_BYTES_MAX);
                for piece in &self.queue {
                    match piece {
                        Piece::Bytes(b) if b.len() <= left => slices.push(IoSlice::new(b)),
                        Piece::Bytes(b) => {
                            slices.push(IoSlice::new(b.get(..left).unwrap_or_default()));
                            rest_follows = true;
                        }
                        _ => rest_follows = true,
                    }
                    left = left.saturating_sub(piece.len() as usize);
                    if rest_follows || left == 0 || slices.len() == GATHER_PIECES {
                        break;
                    }
                }
                let n = self.link.send(&slices, rest_follows)?;
                drop(slices);
                let mut left = n;
                while left > 0 {
                    let Some(Piece::Bytes(b)) = self.queue.front_mut() else { break };
                    let step = left.min(b.len());
                    b.advance(step);
                    left -= step;
                    if b.is_empty() {
                        self.queue.pop_front();
                    }
                }
                Ok(n)
            }
        }
    }
}

/// Bodies up to this size are copied behind their head, for one write.
const COPY_BYTES_MAX: usize = 16 * 1024;

/// Sends head and body. After an error the connection is unusable.
pub async fn send_response(link: &Link, r: &mut Request, body: ResponseBody) -> Result<(), SendError> {
    let timeout_ms = r.loc().core.conf.send_timeout.0;
    let body = if kernel_part(link, r, &body).is_some() { body } else { body.into_cached() };
    if SendPlan::of(r, &body, COPY_BYTES_MAX) != SendPlan::Pieces {
        let Some((rest, sent)) = at_once(link, r, &body)? else { return Ok(()) };
        let mut sender = Sender::new(link.clone(), timeout_ms);
        sender.push(Piece::Bytes(rest));
        let result = Box::pin(sender.flush()).await;
        note_sent(r, sent + sender.sent, r.accounting.header_size());
        return result;
    }
    // Boxed: large and rare.
    Box::pin(in_pieces(link, r, body, timeout_ms)).await
}

async fn in_pieces(link: &Link, r: &mut Request, mut body: ResponseBody, timeout_ms: u64) -> Result<(), SendError> {
    let mut sender = Sender::new(link.clone(), timeout_ms);
    sender.files = FileOut::of(r, link.has_sendfile());
    let mut head = Vec::with_capacity(512);
    head_out::write_head(r, link.worker.turn().is_quitting(), &mut head);
    let head_size = head.len() as u64;
    let result = send_all(&mut sender, r, Piece::Bytes(Bytes::from(head)), &mut body).await;
    if let Some(words) = sender.files.trouble.take() {
        r.log(Severity::Alert, format_args!("{words}"));
    }
    note_sent(r, sender.sent, head_size);
    result
}

fn note_sent(r: &mut Request, sent: u64, head_size: u64) {
    let total = r.accounting.bytes_sent() + sent;
    r.accounting.set_sent(total, sent.saturating_sub(head_size));
}

/// Tries one system call; returns the unsent part and the sent length.
fn at_once(link: &Link, r: &mut Request, body: &ResponseBody) -> Result<Option<(Bytes, u64)>, SendError> {
    let worker = &link.worker;
    let mut out = worker.pools.out_buffer().borrow_mut();
    out.clear();
    head_out::write_head(r, worker.turn().is_quitting(), &mut out);
    let head_size = out.len() as u64;
    let framing = SingleChunk::of(r, body);
    framing.begin(&mut out);
    if let ResponseBody::Bytes(bytes) = body {
        append_bytes(&mut out, bytes);
    }
    out.extend_from_slice(framing.end());
    let sent = match link.send(&[IoSlice::new(&out)], false) {
        Ok(sent) => sent,
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
        Err(e) => return Err(SendError::Gone(e.raw_os_error())),
    };
    if sent == out.len() && !link.has_unsent() {
        note_sent(r, sent as u64, head_size);
        return Ok(None);
    }
    Ok(Some((Bytes::copy_from_slice(out.get(sent..).unwrap_or_default()), sent as u64)))
}

async fn send_all(sender: &mut Sender, r: &mut Request, head: Piece, body: &mut ResponseBody) -> Result<(), SendError> {
    let core = r.loc().core.clone();
    let mut limiter = None;
    if core.rate_limited || r.reply.limit_rate().is_some() {
        limiter = Pace::new(r);
        // The head counts, too.
        push(sender, false, head, &mut limiter).await?;
    } else {
        sender.push(head);
    }
    let mut promised = PromisedLength::of(r);
    loop {
        let piece = {
            r.reply.set_piece_room(sender.piece_room());
            let mut polled = std::future::poll_fn(|cx| {
                steps::note_step();
                match body.poll_piece(cx, r) {
                    // Sends what the source produced while it is silent.
                    Poll::Pending if !sender.queue.is_empty() && !r.reply.is_held() => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(piece) => Poll::Ready(Some(piece)),
                }
            });
            (&mut polled).await
        };
        match piece {
            None => sender.flush_while(|cx| body.poll_ahead(cx, r)).await?,
            Some(None) => break,
            Some(Some(Err(_))) => {
                if !r.reply.is_abandoned() {
                    let _ = sender.flush().await;
                }
                return Err(SendError::Truncated);
            }
            Some(Some(Ok(Piece::Flush))) => sender.flush().await?,
            Some(Some(Ok(piece))) => {
                if !promised.take(piece.len()) {
                    let _ = sender.flush().await;
                    return Err(SendError::Truncated);
                }
                push(sender, r.reply.is_chunked(), piece, &mut limiter).await?;
                if sender.full() {
                    sender.flush_while(|cx| body.poll_ahead(cx, r)).await?;
                }
            }
        }
    }
    if promised.is_short() {
        let _ = sender.flush().await;
        return Err(SendError::Truncated);
    }
    if r.reply.is_chunked() && !r.reply.is_head_only() {
        let mut last = b"0\r\n".to_vec();
        for field in r.out.trailers() {
            last.extend_from_slice(field.name.bytes());
            last.extend_from_slice(b": ");
            last.extend_from_slice(field.value.bytes());
            last.extend_from_slice(b"\r\n");
        }
        last.extend_from_slice(b"\r\n");
        sender.push(Piece::Bytes(Bytes::from(last)));
    }
    sender.flush().await
}

/// Queues a framed piece; under a rate limit in portions.
async fn push(
    sender: &mut Sender,
    chunked: bool,
    mut piece: Piece,
    limiter: &mut Option<Pace>,
) -> Result<(), SendError> {
    if chunked {
        let mut head = Vec::with_capacity(18);
        wire_h1::encode_chunk_head(piece.len() as usize, &mut head);
        sender.push(Piece::Bytes(Bytes::from(head)));
    }
    if let Some(limiter) = limiter {
        while !piece.is_empty() {
            let allowed = wait(limiter, sender).await?;
            let portion = split(&mut piece, allowed);
            limiter.sent += portion.len();
            sender.push(portion);
            sender.flush().await?;
        }
    } else {
        sender.push(piece);
    }
    if chunked {
        sender.push(Piece::Bytes(Bytes::from_static(b"\r\n")));
    }
    Ok(())
}

fn split(piece: &mut Piece, length: u64) -> Piece {
    match piece {
        Piece::Bytes(b) => Piece::Bytes(b.split_to(b.len().min(length as usize))),
        Piece::File(part) => {
            let take = part.length.min(length);
            let front = FilePart { file: part.file.clone(), start: part.start, length: take };
            part.start += take;
            part.length -= take;
            Piece::File(front)
        }
        Piece::Flush => Piece::Flush,
    }
}

/// Waits for, and returns, the bytes that may be sent.
async fn wait(pace: &Pace, sender: &mut Sender) -> Result<u64, SendError> {
    loop {
        let pause = match pace.allowed() {
            Ok(allowed) => return Ok(allowed),
            Err(pause) => pause,
        };
        sender.flush().await?;
        tokio::select! {
            biased;
            () = runtime::time::sleep_for(pause) => {}
            _ = poll_fn(|cx| sender.link.poll_closing(cx)) => return Err(SendError::Gone(None)),
        }
    }
}
