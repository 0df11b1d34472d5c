//! Body whose commands run while it is sent.

use super::SsiConf;
use super::command::{self, Branch, Encoding};
use super::parse::{SsiParser, SsiToken};
use super::state::PageState;
use crate::shared::joining::{self, JOINED_BYTES};
use bytes::Bytes;
use http_engine::body_memory::{self, Reservation};
use http_engine::subrequest::{self, BodyStream, NoAnswer};
use http_engine::{BodyError, BodySource, FilePart, LocalFuture, Piece, Request, ResponseBody};
use net::budget;
use observe::Severity;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Concurrent includes of a page; the rest of the page waits.
const TOGETHER_MAX: usize = 64;
/// Bytes of the requests of concurrent includes: each copies the head of the page's request, which may have grown from some bytes
/// of HPACK. One include always runs.
const TOGETHER_BYTES_MAX: usize = 136 * 1024;
/// Bytes of a request without its head.
const INCLUDE_BYTES: usize = 2 * 1024;
/// Bytes, and parts, of text held behind a pending include.
const HELD_BYTES_MAX: u64 = 256 * 1024;
const HELD_PARTS_MAX: usize = 1024;
const GATHERED_PARTS_MAX: usize = 64;

pub enum PagePart {
    Piece(Piece),
    Include(BodyStream),
    /// A response to store in a variable.
    Set(LocalFuture<Result<(Box<Request>, Vec<u8>), NoAnswer>>, Vec<u8>),
}

pub struct SsiPage {
    conf: Arc<SsiConf>,
    pub shared: Rc<PageState>,
    body: ResponseBody,
    ended: bool,
    /// Failed; reported after earlier output.
    broken: bool,
    parser: SsiParser,
    input: Bytes,
    /// Position of the input in its file.
    origin: Option<FilePart>,
    file: Option<FilePart>,
    pub queue: VecDeque<PagePart>,
    /// Includes in the queue.
    pub includes: usize,
    /// Includes that run together, at most [`TOGETHER_MAX`].
    together_max: usize,
    /// Memory of the request of an include.
    include_bytes: u64,
    /// That of includes beside the first one: many pages of a connection share its part of `generated_body_memory`.
    beside: Vec<Reservation>,
    /// A piece was asked for.
    is_begun: bool,
    /// Not all of them have been started.
    pub unstarted: bool,
    /// Waits for the queue's last include.
    pub waiting: bool,
    pub output: bool,
    /// A branch of the current `if` was taken.
    pub chosen: bool,
    pub branch: Branch,
    pub in_block: bool,
    pub encoding: Encoding,
    pub errmsg: Bytes,
}

impl SsiPage {
    pub fn new(conf: Arc<SsiConf>, r: &mut Request, body: ResponseBody) -> SsiPage {
        let include_bytes = include_bytes(r);
        SsiPage {
            parser: SsiParser::new(conf.ssi_value_length.0 as usize),
            conf,
            shared: command::page_state(r),
            body,
            ended: false,
            broken: false,
            input: Bytes::new(),
            origin: None,
            file: None,
            queue: VecDeque::new(),
            includes: 0,
            together_max: (TOGETHER_BYTES_MAX / include_bytes).clamp(1, TOGETHER_MAX),
            include_bytes: include_bytes as u64,
            beside: Vec::new(),
            is_begun: false,
            unstarted: false,
            waiting: false,
            output: true,
            chosen: false,
            branch: Branch::default(),
            in_block: false,
            encoding: Encoding::default(),
            errmsg: Bytes::from_static(b"[an error occurred while processing the directive]"),
        }
    }
    pub fn put(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.queue.push_back(PagePart::Piece(Piece::Bytes(bytes)));
        }
    }
    fn failed(&mut self) {
        if !self.conf.ssi_silent_errors {
            self.put(self.errmsg.clone());
        }
    }
    /// Sends text, adds it to the open block, or omits it.
    fn text(&mut self, r: &mut Request, piece: Piece) {
        if self.output {
            self.queue.push_back(PagePart::Piece(piece));
        } else if self.in_block
            && let Piece::Bytes(bytes) = piece
            && let Err(words) = self.shared.add_to_block(&bytes)
        {
            r.log(Severity::Error, format_args!("{words}"));
            self.failed();
        }
    }
    /// Gets more input; `Ready(false)` at the end.
    fn poll_fill(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Result<bool, BodyError>> {
        loop {
            if let Some(part) = &mut self.file {
                if part.length == 0 {
                    self.file = None;
                    continue;
                }
                self.origin = Some(part.clone());
                self.input = part.read().map_err(|_| BodyError)?;
                return Poll::Ready(Ok(true));
            }
            self.origin = None;
            match std::task::ready!(self.body.poll_piece(cx, r)) {
                None => return Poll::Ready(Ok(false)),
                Some(Err(e)) => return Poll::Ready(Err(e)),
                Some(Ok(Piece::Bytes(bytes))) => {
                    self.input = bytes;
                    return Poll::Ready(Ok(true));
                }
                Some(Ok(Piece::File(part))) => self.file = Some(part),
                Some(Ok(Piece::Flush)) => self.queue.push_back(PagePart::Piece(Piece::Flush)),
            }
        }
    }
    /// Processes the next part; `Ready(false)` at the end.
    fn poll_step(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Result<bool, BodyError>> {
        if self.broken {
            return Poll::Ready(Err(BodyError));
        }
        if self.ended {
            return Poll::Ready(Ok(false));
        }
        if self.input.is_empty() {
            let more = std::task::ready!(self.poll_fill(cx, r)).inspect_err(|_| self.broken = true)?;
            if !more {
                self.ended = true;
                let rest = self.parser.rest();
                if !rest.is_empty() {
                    self.text(r, Piece::Bytes(Bytes::from_static(rest)));
                }
                return Poll::Ready(Ok(true));
            }
        }
        let before = self.input.clone();
        let found = self.parser.next(&mut self.input);
        let used = (before.len() - self.input.len()) as u64;
        let origin = self.origin.clone();
        if let Some(part) = &mut self.origin {
            part.start += used;
        }
        match found {
            None => {}
            Some(SsiToken::Text(range)) => {
                // Long text is sent from the file.
                let part = origin.filter(|_| range.len() as u64 > self.conf.ssi_min_file_chunk.0 && self.output);
                let piece = match part {
                    Some(part) => {
                        let (start, length) = (part.start + range.start as u64, range.len() as u64);
                        Piece::File(FilePart { file: part.file, start, length })
                    }
                    None => Piece::Bytes(before.slice(range)),
                };
                self.text(r, piece);
            }
            Some(SsiToken::Held(text)) => self.text(r, Piece::Bytes(Bytes::from_static(text))),
            Some(SsiToken::Fault(words)) => r.log(Severity::Error, format_args!("{words}")),
            Some(SsiToken::Broken) => self.failed(),
            Some(SsiToken::Command(command)) if self.run(r, &command).is_err() => self.failed(),
            Some(SsiToken::Command(_)) => {}
        }
        Poll::Ready(Ok(true))
    }
    /// Tells whether the page may be parsed further while an include is pending, and reserves the memory of one more.
    fn has_room(&mut self, r: &Request) -> bool {
        if self.waiting || self.queue.len() >= HELD_PARTS_MAX {
            return false;
        }
        let (mut includes, mut held) = (0, 0);
        for part in &self.queue {
            match part {
                PagePart::Piece(piece) => held += piece.len(),
                _ => includes += 1,
            }
        }
        if includes >= self.together_max || held >= HELD_BYTES_MAX {
            return false;
        }
        if self.beside.len() >= includes {
            return true;
        }
        let reserved = body_memory::try_reserve(r, self.include_bytes);
        let has_memory = reserved.is_some();
        self.beside.extend(reserved);
        has_memory
    }
    /// Tells whether input remains that is parsed before an include starts. As in nginx, an include sees the variables that
    /// commands behind it have set, unless the page waits for it.
    fn parses_first(&mut self, r: &Request) -> bool {
        self.includes > 0 && !self.input.is_empty() && self.has_room(r)
    }
    /// Starts the includes in their order, and lets those behind the first one proceed.
    fn drive_all(&mut self, cx: &mut Context<'_>) {
        self.unstarted = false;
        for part in &mut self.queue {
            if let PagePart::Include(stream) = part {
                stream.poll_ahead(cx);
                if step_done(cx).is_pending() {
                    self.unstarted = true;
                    break;
                }
            }
        }
    }
    /// Tells whether only a little text is queued.
    fn may_gather(&self) -> bool {
        let text = |part: &PagePart| match part {
            PagePart::Piece(Piece::Bytes(bytes)) => Some(bytes.len() as u64),
            _ => None,
        };
        let sum = self.queue.iter().map(text).sum::<Option<u64>>();
        !self.waiting && self.queue.len() < GATHERED_PARTS_MAX && sum.is_some_and(|sum| sum < JOINED_BYTES)
    }
    /// Joined with small pieces after it.
    fn next_piece(&mut self) -> Option<Piece> {
        let Some(PagePart::Piece(first)) = self.queue.pop_front() else { return None };
        let Piece::Bytes(first) = first else { return Some(first) };
        Some(Piece::Bytes(joining::join_pieces(first, |room| match self.queue.front() {
            Some(PagePart::Piece(Piece::Bytes(next))) if next.len() as u64 <= room => match self.queue.pop_front() {
                Some(PagePart::Piece(Piece::Bytes(next))) => Some(next),
                _ => None,
            },
            _ => None,
        })))
    }
    fn next_part(&mut self) {
        self.queue.pop_front();
        self.includes = self.includes.saturating_sub(1);
        self.beside.truncate(self.includes.saturating_sub(1));
        if self.queue.is_empty() {
            self.waiting = false;
        }
    }
    fn set(&mut self, r: &mut Request, name: &[u8], child: Box<Request>, value: Vec<u8>) {
        // An error page sets the variable to nothing.
        let value = if child.out.status() < 300 { value } else { self.shared.get(name).unwrap_or_default() };
        if let Err(words) = self.shared.set(name, value) {
            r.log(Severity::Error, format_args!("{words}"));
        }
        subrequest::log_subrequest(child);
    }
}

fn include_bytes(r: &Request) -> usize {
    INCLUDE_BYTES + r.buf.len() + r.head.fields.all.len() * size_of::<http_types::Field>()
}

/// Charges the turn for a step: commands may have no output, and there may be any number of them. Called behind steps, so
/// that each poll makes at least one, nested pages included.
fn step_done(cx: &mut Context<'_>) -> Poll<()> {
    budget::charge_time();
    budget::poll_proceed(cx)
}

impl BodySource for SsiPage {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        self.is_begun = true;
        loop {
            if self.parses_first(r) {
                match std::task::ready!(self.poll_step(cx, r)) {
                    Ok(_) => std::task::ready!(step_done(cx)),
                    Err(e) => return Poll::Ready(Some(Err(e))),
                }
                continue;
            }
            if self.unstarted {
                self.drive_all(cx);
            }
            if let Some(PagePart::Piece(_)) = self.queue.front() {
                // Parses available input, to join it.
                if self.may_gather() && matches!(self.poll_step(cx, r), Poll::Ready(Ok(true))) {
                    continue;
                }
                if let Some(piece) = self.next_piece() {
                    return Poll::Ready(Some(Ok(piece)));
                }
            }
            let piece = match self.queue.front_mut() {
                None => match std::task::ready!(self.poll_step(cx, r)) {
                    Ok(true) => {
                        std::task::ready!(step_done(cx));
                        continue;
                    }
                    Ok(false) => return Poll::Ready(None),
                    Err(e) => return Poll::Ready(Some(Err(e))),
                },
                Some(PagePart::Piece(_)) => continue,
                Some(PagePart::Include(stream)) => {
                    let piece = stream.poll_piece(cx);
                    if piece.is_pending() {
                        self.drive_all(cx);
                    }
                    piece
                }
                Some(PagePart::Set(coming, name)) => match coming.as_mut().poll(cx) {
                    Poll::Pending => {
                        r.reply.hold_output(true);
                        Poll::Pending
                    }
                    Poll::Ready(Err(_)) => {
                        r.reply.abandon();
                        return Poll::Ready(Some(Err(BodyError)));
                    }
                    Poll::Ready(Ok((child, value))) => {
                        r.reply.hold_output(false);
                        let name = std::mem::take(name);
                        self.set(r, &name, child, value);
                        Poll::Ready(None)
                    }
                },
            };
            match piece {
                Poll::Ready(None) => self.next_part(),
                Poll::Ready(piece) => return Poll::Ready(piece),
                // Parses ahead, so that its includes start.
                Poll::Pending if !self.has_room(r) => return Poll::Pending,
                Poll::Pending => match self.poll_step(cx, r) {
                    Poll::Ready(Ok(true)) => std::task::ready!(step_done(cx)),
                    // The end and errors are reported in turn.
                    Poll::Ready(Ok(false)) | Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(e)) => return Poll::Ready(Some(Err(e))),
                },
            }
        }
    }
    /// The page begins when its client takes octets, and its includes go on then. Its end, which may have none, needs no window.
    fn needs_window(&self) -> bool {
        !self.is_begun || matches!(self.queue.front(), Some(PagePart::Include(stream)) if stream.needs_window())
    }
    fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        self.drive_all(cx);
        self.body.poll_ahead(cx, r);
    }
}
