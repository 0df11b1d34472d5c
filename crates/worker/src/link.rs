//! Bytes between a client's socket and its protocol, optionally over TLS.

use crate::pools::READ_BYTES;
use crate::secure::Secure;
use crate::steps;
use crate::worker::Worker;
use net::poller::Key;
use runtime::budget;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};

const READ_BYTES_MIN: usize = 8 * 1024;

/// Access to a connection's bytes. Cheap to clone; does not keep the connection open.
#[derive(Clone)]
pub struct Link {
    /// The thread.
    pub worker: Rc<Worker>,
    /// The entry in the poller.
    pub key: Key,
    /// `None`: cleartext.
    pub secure: Option<Rc<Secure>>,
}

impl Link {
    /// Returns the link of an entry, with TLS if its carrier has it.
    pub fn of(worker: &Rc<Worker>, key: Key) -> Link {
        let secure = worker.poller.registration(key).and_then(|carrier| carrier.tls());
        Link { worker: worker.clone(), key, secure }
    }

    /// Appends received bytes without waiting; `Ok(0)` is the end. `WouldBlock` also without budget.
    pub fn recv(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        if !budget::is_left() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if let Some(secure) = &self.secure {
            return secure.recv(&self.worker, self.key, READ_BYTES, buf);
        }
        if buf.capacity() - buf.len() < READ_BYTES_MIN {
            buf.reserve(READ_BYTES);
        }
        self.recv_clear(buf)
    }

    /// [`Link::recv`] into the spare capacity. TLS decrypts whole records, which may exceed it.
    pub fn recv_spare(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        if !budget::is_left() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match &self.secure {
            Some(secure) => secure.recv(&self.worker, self.key, buf.capacity() - buf.len(), buf),
            None => self.recv_clear(buf),
        }
    }

    fn recv_clear(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        let room = buf.capacity() - buf.len();
        let got = self.worker.poller.recv_spare(self.key, buf);
        self.worker.note_read(self.key, &got, room);
        got
    }

    /// Writes frames of concurrent requests, without waiting. They leave with one write: the client's window updates acknowledge them.
    pub fn send_frames(&self, frames: &[u8]) -> io::Result<usize> {
        if self.secure.is_some() {
            return self.send(&[IoSlice::new(frames)], false);
        }
        let sent = self.worker.poller.send(self.key, frames, false);
        self.note_written(&sent);
        sent
    }

    /// Writes bytes of a response, without waiting. `more`: another write follows at once.
    pub fn send(&self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let poller = &self.worker.poller;
        let sent = match &self.secure {
            Some(secure) => secure.send(&self.worker, self.key, pieces),
            None => poller.send_vectored(self.key, pieces, more),
        };
        self.note_written(&sent);
        sent
    }

    /// Sends a part of a file (only with [`Link::has_sendfile`]); advances `offset`.
    pub fn sendfile(&self, file: &std::fs::File, offset: &mut u64, length: usize) -> io::Result<usize> {
        let sent = self.worker.poller.sendfile(self.key, file, offset, length.min(SEND_BYTES_MAX));
        self.note_written(&sent);
        sent
    }
    /// Tells whether the kernel can send files by itself: in cleartext.
    pub fn has_sendfile(&self) -> bool {
        self.secure.is_none()
    }

    fn note_written(&self, sent: &io::Result<usize>) {
        steps::note_step();
        if matches!(sent, Err(e) if e.kind() == io::ErrorKind::WouldBlock) {
            self.worker.poller.blocked(self.key);
        }
    }

    /// Tells whether accepted output is not yet in the socket.
    pub fn has_unsent(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.has_unsent())
    }

    /// Returns the free bytes of the socket's send buffer; `None` if they are unknown.
    pub fn send_room(&self) -> Option<usize> {
        self.worker.poller.send_room(self.key)
    }

    /// Writes ciphertext that the socket has not taken; fails with `WouldBlock` if more is left.
    pub fn flush(&self) -> io::Result<()> {
        let Some(secure) = &self.secure else { return Ok(()) };
        let flushed = secure.flush(&self.worker, self.key);
        self.note_written(&flushed.as_ref().map(|()| 0).map_err(|e| e.kind().into()));
        flushed
    }

    /// Waits until all accepted output is in the socket.
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

    /// Releases spare memory of TLS.
    pub fn shrink(&self) {
        if let Some(secure) = &self.secure {
            secure.shrink();
        }
    }

    /// Ends output; the peer may still send.
    pub fn shutdown_write(&self) {
        if let Some(secure) = &self.secure {
            secure.say_goodbye(&self.worker, self.key);
        }
        self.worker.poller.shutdown_write(self.key);
    }

    /// Waits for input; `false` if the connection is gone. Yields without budget.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<bool> {
        self.worker.poller.poll_readable(self.key, cx)
    }
    /// Waits for room in the socket; `false` if the connection is gone.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<bool> {
        self.worker.poller.poll_writable(self.key, cx)
    }
    /// Tells whether the server itself has closed the connection.
    pub fn is_cut(&self) -> bool {
        !self.worker.poller.contains(self.key)
    }
    /// Waits for the end of the client's output; `false` if the connection is gone.
    pub fn poll_closing(&self, cx: &mut Context<'_>) -> Poll<bool> {
        self.worker.poller.poll_closing(self.key, cx)
    }
}

/// Bytes per system call, so that other connections get a turn.
pub const SEND_BYTES_MAX: usize = 2 * budget::BYTES as usize;
