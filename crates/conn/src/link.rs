//! The bytes between a client's socket and its protocol: as they are, or through TLS. Everything above reads and writes here
//! and need not know which.

use crate::secure::Secure;
use crate::worker::{Registration, Worker};
use net::poller::Key;
use runtime::budget;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};

/// What one read takes at most.
pub const READ_BYTES: usize = 32 * 1024;
/// A read that has less room gets more.
const READ_BYTES_MIN: usize = 8 * 1024;

/// A client's connection, as far as it carries bytes.
#[derive(Clone)]
pub struct Link {
    pub worker: Rc<Worker>,
    pub key: Key,
    /// `None`: the bytes are on the socket as they are.
    pub secure: Option<Rc<Secure>>,
}

impl Link {
    pub fn of(worker: &Rc<Worker>, key: Key) -> Link {
        let secure = match worker.poller.registration(key) {
            Some(Registration::Secure(secure)) => Some(secure),
            Some(Registration::Waiting(waiting)) => waiting.secure(),
            Some(Registration::Mux(mux)) => mux.link().secure.clone(),
            _ => None,
        };
        Link { worker: worker.clone(), key, secure }
    }

    /// Appends what has come, without waiting; `Ok(0)` is the end.
    ///
    /// # Errors
    /// `WouldBlock`, also when the task has had its share of the turn; a broken connection.
    pub fn recv(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        if !budget::is_left() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if let Some(secure) = &self.secure {
            return secure.recv(&self.worker, self.key, buf);
        }
        if buf.capacity() - buf.len() < READ_BYTES_MIN {
            buf.reserve(READ_BYTES);
        }
        let room = buf.capacity() - buf.len();
        let got = self.worker.poller.recv_spare(self.key, buf);
        self.worker.note_read(self.key, &got, room);
        got
    }

    /// Writes what is taken at the moment. `more`: another write follows at once.
    ///
    /// # Errors
    /// `WouldBlock`; a broken connection.
    pub fn send(&self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let poller = &self.worker.poller;
        let sent = match (&self.secure, pieces) {
            (Some(secure), _) => secure.send(&self.worker, self.key, pieces),
            (None, [one]) => poller.send(self.key, one, more),
            (None, many) => poller.send_vectored(self.key, many, more),
        };
        self.note_written(&sent);
        sent
    }

    /// Sends a part of a file from the kernel's memory; only where [`Link::has_sendfile`]. Advances `offset`.
    ///
    /// # Errors
    /// As [`Link::send`].
    pub fn sendfile(&self, file: &std::fs::File, offset: &mut u64, length: usize) -> io::Result<usize> {
        let sent = self.worker.poller.sendfile(self.key, file, offset, length.min(SENDFILE_BYTES_MAX));
        self.note_written(&sent);
        sent
    }
    pub fn has_sendfile(&self) -> bool {
        self.secure.is_none()
    }

    fn note_written(&self, sent: &io::Result<usize>) {
        self.worker.step();
        if matches!(sent, Err(e) if e.kind() == io::ErrorKind::WouldBlock) {
            self.worker.poller.blocked(self.key);
        }
    }

    /// Something that was taken is not on the socket yet.
    pub fn has_unsent(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.has_unsent())
    }

    /// Writes what was taken and held back.
    ///
    /// # Errors
    /// `WouldBlock`; a broken connection.
    pub fn flush(&self) -> io::Result<()> {
        let Some(secure) = &self.secure else { return Ok(()) };
        let flushed = secure.flush(&self.worker, self.key);
        self.note_written(&flushed.as_ref().map(|()| 0).map_err(|e| e.kind().into()));
        flushed
    }

    /// As [`Link::flush`], waiting.
    ///
    /// # Errors
    /// A broken connection.
    pub async fn flushed(&self) -> io::Result<()> {
        loop {
            match self.flush() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if !poll_fn(|cx| self.poll_writable(cx)).await {
                        return Err(io::ErrorKind::NotConnected.into());
                    }
                }
                done => return done,
            }
        }
    }

    /// The connection is idle: what it can do without is given back.
    pub fn shrink(&self) {
        if let Some(secure) = &self.secure {
            secure.shrink();
        }
    }

    /// Nothing more will be sent: the peer sees the end, and may still send.
    pub fn shutdown_write(&self) {
        if let Some(secure) = &self.secure {
            secure.say_goodbye(&self.worker, self.key);
        }
        self.worker.poller.shutdown_write(self.key);
    }

    /// Waits until the client has sent something; `false` when the connection is gone. A task that has had its share waits
    /// for the next turn.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<bool> {
        self.worker.poller.poll_readable(self.key, cx)
    }
    /// Waits until the client takes something; otherwise as [`Link::poll_readable`].
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<bool> {
        self.worker.poller.poll_writable(self.key, cx)
    }
    /// Waits until the client has closed its side.
    pub fn poll_closing(&self, cx: &mut Context<'_>) -> Poll<bool> {
        self.worker.poller.poll_closing(self.key, cx)
    }
}

/// What one `sendfile` sends at most: the thread looks at its other connections in between.
const SENDFILE_BYTES_MAX: usize = 2 * budget::BYTES as usize;
