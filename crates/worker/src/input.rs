//! Input of a connection's task: bytes of heads, and readers of bodies.

use crate::link::Link;
use crate::steps;
use bytes::{Buf, Bytes};
use http_engine::BodyReader;
use http_types::BodyLength;
use runtime::time::Sleep;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use wire_h1::{ChunkedDecoder, Role};

/// Bytes that a task has read, and how many of them are used.
#[derive(Default)]
pub struct Input {
    /// The bytes; the first `start` are used.
    pub buf: Vec<u8>,
    /// Number of used bytes.
    pub start: usize,
}

impl Input {
    /// Returns the unused bytes.
    pub fn bytes(&self) -> &[u8] {
        self.buf.get(self.start..).unwrap_or_default()
    }
    /// Takes bytes: without a copy if they are all, and most of the buffer.
    fn split(&mut self, n: usize) -> Bytes {
        let is_all = self.start + n == self.buf.len();
        if is_all && n >= self.buf.capacity() / 2 {
            let start = std::mem::take(&mut self.start);
            let mut bytes = Bytes::from(std::mem::take(&mut self.buf));
            bytes.advance(start);
            return bytes;
        }
        let bytes = Bytes::copy_from_slice(self.bytes().get(..n).unwrap_or_default());
        self.use_up(n);
        bytes
    }
    /// Drops all bytes, and keeps the buffer.
    pub fn clear(&mut self) {
        self.buf.clear();
        self.start = 0;
    }
    /// Marks `n` further bytes as used.
    pub fn use_up(&mut self, n: usize) {
        self.start += n;
        if self.start >= self.buf.len() {
            self.buf.clear();
            self.start = 0;
        }
    }
    /// Frees an empty buffer: a client that pauses within its body keeps the body's memory only.
    fn release(&mut self) {
        if self.bytes().is_empty() {
            *self = Input::default();
        }
    }
    /// Reads once without waiting.
    pub fn read_some(&mut self, link: &Link) -> io::Result<usize> {
        if self.start > 0 {
            self.buf.drain(..self.start);
            self.start = 0;
        }
        link.recv(&mut self.buf)
    }
    /// Waits for more bytes; `Ok(0)` is the end. Fails with `TimedOut` after `timeout`.
    pub async fn read(input: &RefCell<Input>, link: &Link, timeout: impl Future<Output = ()>) -> io::Result<usize> {
        tokio::pin!(timeout);
        loop {
            match input.borrow_mut().read_some(link) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            tokio::select! {
                biased;
                alive = poll_fn(|cx| link.poll_readable(cx)) => if !alive { return Err(io::ErrorKind::NotConnected.into()) },
                () = &mut timeout => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }
}

enum BodyFraming {
    Left(u64),
    Chunked(Box<ChunkedDecoder>),
    /// Malformed behind data that was taken: the status to answer with.
    Broken(u16),
    Done,
}

/// Data of small chunks that have arrived together forms pieces of at least this size.
const PIECE_BYTES: usize = 16 * 1024;

/// State of a request's body, shared by its reader and the connection, which finds the next request behind it.
pub struct BodyState {
    framing: RefCell<BodyFraming>,
    /// `Expect: 100-continue` is unanswered.
    pub expects: std::cell::Cell<bool>,
    /// `$request_length`
    pub read: std::cell::Cell<u64>,
    /// `$bytes_sent`, before the response.
    pub sent: std::cell::Cell<u64>,
    /// The client closed or the connection broke within the body: needs no response.
    pub cut: std::cell::Cell<bool>,
}

impl http_engine::connection::BodyOctets for BodyState {
    fn octets(&self) -> u64 {
        self.read.get()
    }
}

impl BodyState {
    /// Begins the state of a body that is still to be read. `expects`: the client waits for 100 (Continue).
    pub fn new(length: BodyLength, expects: bool) -> BodyState {
        let framing = match length {
            BodyLength::Exact(0) | BodyLength::None | BodyLength::UntilClose => BodyFraming::Done,
            BodyLength::Exact(n) => BodyFraming::Left(n),
            BodyLength::Chunked => BodyFraming::Chunked(Box::new(ChunkedDecoder::new(Role::Server))),
        };
        BodyState {
            framing: RefCell::new(framing),
            expects: expects.into(),
            read: 0.into(),
            sent: 0.into(),
            cut: false.into(),
        }
    }
    /// Tells whether the end of the body was read.
    pub fn done(&self) -> bool {
        matches!(*self.framing.borrow(), BodyFraming::Done)
    }
    /// Checks the part of a chunked body that was read with the head ([`Request::broken_body`](http_engine::Request)).
    pub fn in_order(&self, bytes: &[u8]) -> bool {
        let BodyFraming::Chunked(decoder) = &*self.framing.borrow() else { return true };
        let (mut decoder, mut rest) = (decoder.clone(), bytes);
        while !rest.is_empty() {
            match decoder.decode(rest) {
                Ok(decoded) if !decoded.done && decoded.consumed > 0 => {
                    rest = rest.get(decoded.consumed..).unwrap_or_default()
                }
                Ok(_) => return true,
                Err(_) => return false,
            }
        }
        true
    }
    /// Takes buffered body bytes. `Ok(None)`: none, or the end. Fails with 400 on invalid chunks.
    pub fn take(&self, input: &RefCell<Input>) -> Result<Option<Bytes>, u16> {
        let mut framing = self.framing.borrow_mut();
        let mut input = input.borrow_mut();
        loop {
            if input.bytes().is_empty() {
                return Ok(None);
            }
            match &mut *framing {
                BodyFraming::Done => return Ok(None),
                BodyFraming::Left(left) => {
                    let n = (input.bytes().len() as u64).min(*left) as usize;
                    let bytes = input.split(n);
                    self.read.set(self.read.get() + n as u64);
                    *left -= n as u64;
                    if *left == 0 {
                        *framing = BodyFraming::Done;
                    }
                    return Ok(Some(bytes));
                }
                BodyFraming::Broken(status) => return Err(*status),
                BodyFraming::Chunked(decoder) => {
                    let mut piece = Vec::new();
                    let mut next = None;
                    while piece.len() < PIECE_BYTES && !input.bytes().is_empty() {
                        let decoded = match decoder.decode(input.bytes()) {
                            Ok(decoded) => decoded,
                            Err(e) => {
                                next = Some(BodyFraming::Broken(e.status()));
                                break;
                            }
                        };
                        piece.extend_from_slice(input.bytes().get(decoded.data.clone()).unwrap_or_default());
                        self.read.set(self.read.get() + decoded.consumed as u64);
                        input.use_up(decoded.consumed);
                        if decoded.done {
                            next = Some(BodyFraming::Done);
                            break;
                        }
                        if decoded.consumed == 0 {
                            break;
                        }
                    }
                    if let Some(next) = next {
                        *framing = next;
                    }
                    if !piece.is_empty() {
                        return Ok(Some(piece.into()));
                    }
                    if let BodyFraming::Chunked(_) = &*framing {
                        return Ok(None);
                    }
                }
            }
        }
    }
}

/// Reads a request's body over HTTP/1; sends 100 (Continue) before its first read.
pub struct Reader {
    /// The connection's bytes.
    pub link: Link,
    /// Bytes read so far, which may begin with the body.
    pub input: Rc<RefCell<Input>>,
    /// State that the connection shares.
    pub state: Rc<BodyState>,
    /// `client_body_timeout`.
    pub timeout: Duration,
    /// Timer of the current wait.
    pub sleep: Option<Sleep>,
    /// `client_max_body_size`; 0: unlimited.
    pub limit: u64,
    /// Bytes of the body so far.
    pub taken: u64,
}

/// The interim response 100.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

impl Reader {
    /// Sends 100 (Continue) if the client expects it and the body is not empty. Does not wait: a full socket loses the
    /// response.
    pub fn say_continue(link: &Link, state: &BodyState) {
        if !state.done() {
            Reader::say_continue_even_if_empty(link, state);
        }
    }
    fn cut(&self) -> Poll<Option<Result<Bytes, u16>>> {
        self.state.cut.set(true);
        Poll::Ready(Some(Err(499)))
    }
    /// [`Reader::say_continue`] even for a body known to be empty, for a handler's read.
    pub fn say_continue_even_if_empty(link: &Link, state: &BodyState) {
        if state.expects.replace(false) {
            // Fits into an empty socket buffer; a client that does not read it times out.
            if link.send(&[IoSlice::new(CONTINUE)], false).is_ok() {
                state.sent.set(CONTINUE.len() as u64);
            }
        }
    }
}

impl BodyReader for Reader {
    fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, u16>>> {
        steps::note_step();
        // Also for a client that did not wait, as nginx.
        Reader::say_continue(&self.link, &self.state);
        loop {
            match self.state.take(&self.input) {
                Ok(Some(bytes)) => {
                    self.sleep = None;
                    self.taken += bytes.len() as u64;
                    if self.limit != 0 && self.taken > self.limit {
                        return Poll::Ready(Some(Err(413)));
                    }
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Ok(None) if self.state.done() => {
                    if self.taken == 0 {
                        Reader::say_continue_even_if_empty(&self.link, &self.state);
                    }
                    return Poll::Ready(None);
                }
                Ok(None) => {}
                Err(status) => return Poll::Ready(Some(Err(status))),
            }
            match self.input.borrow_mut().read_some(&self.link) {
                Ok(0) => return self.cut(),
                Ok(_) => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return self.cut(),
            }
            let timeout = self.timeout;
            let sleep = self.sleep.get_or_insert_with(|| runtime::time::sleep_for(timeout));
            if Pin::new(sleep).poll(cx).is_ready() {
                return Poll::Ready(Some(Err(408)));
            }
            match self.link.poll_readable(cx) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return self.cut(),
                Poll::Pending => {
                    self.input.borrow_mut().release();
                    return Poll::Pending;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_buffer_is_freed() {
        let mut input = Input { buf: b"ab".to_vec(), start: 1 };
        input.release();
        assert_eq!(input.bytes(), b"b");
        input.use_up(1);
        assert!(input.buf.capacity() > 0);
        input.release();
        assert_eq!((input.buf.capacity(), input.start), (0, 0));
    }

    #[test]
    fn a_buffer_goes_with_the_bytes_that_fill_it() {
        let filled = |length: usize, start| {
            let mut buf = Vec::with_capacity(1000);
            buf.extend((0..length).map(|n| n as u8));
            Input { buf, start }
        };
        // Most of the buffer, without a rest: not copied.
        let mut input = filled(900, 10);
        let place = input.bytes().as_ptr();
        let taken = input.split(890);
        assert_eq!((taken.as_ptr(), taken.len(), taken.first()), (place, 890, Some(&10)));
        assert!(input.bytes().is_empty() && input.start == 0);
        // With a rest, or a small part of the buffer: copied.
        for (length, start, n) in [(900, 10, 880), (300, 0, 300), (300, 290, 5)] {
            let mut input = filled(length, start);
            let place = input.bytes().as_ptr();
            let taken = input.split(n);
            assert!(taken.as_ptr() != place && taken.len() == n && taken.first() == Some(&(start as u8)));
            assert_eq!(input.bytes().len(), length - start - n);
            assert!(input.bytes().first().is_none_or(|first| *first == (start + n) as u8));
        }
    }

    #[test]
    fn small_chunks_become_one_piece_and_a_fault_comes_behind_them() {
        let filled = |text: &str| RefCell::new(Input { buf: text.as_bytes().to_vec(), start: 0 });
        let whole = BodyState::new(BodyLength::Chunked, false);
        let input = filled("1\r\na\r\n2\r\nbc\r\n0\r\n\r\nGET");
        assert_eq!(whole.take(&input), Ok(Some(Bytes::from_static(b"abc"))));
        assert!(whole.done() && whole.take(&input) == Ok(None) && input.borrow().bytes() == b"GET");
        assert_eq!(whole.read.get(), 18);
        let broken = BodyState::new(BodyLength::Chunked, false);
        let input = filled("1\r\na\r\n2\r\nbcX");
        assert_eq!(broken.take(&input), Ok(Some(Bytes::from_static(b"abc"))));
        assert!(!broken.done() && broken.take(&input) == Err(400) && broken.take(&input) == Err(400));
        let cut = BodyState::new(BodyLength::Chunked, false);
        assert_eq!(cut.take(&filled("1\r\na\r\n1")), Ok(Some(Bytes::from_static(b"a"))));
        assert_eq!(cut.take(&filled("0\r\n")), Ok(None));
        assert_eq!(cut.take(&filled("0123456789abcdef\r\n")).map(|piece| piece.map(|p| p.len())), Ok(Some(16)));
    }
}
