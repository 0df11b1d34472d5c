//! Bytes of the sockets that the poller's entries own: each call names an entry by its key and borrows its descriptor for the one
//! system call. A key whose entry is gone is `NotConnected`, whatever has been opened since with the same number.

use super::{Key, Poller};
use crate::budget;
use crate::socket::{self, Accepted};
use std::io::{self, IoSlice};

fn gone<T>() -> io::Result<T> {
    Err(io::ErrorKind::NotConnected.into())
}

/// Counts a call, also one that moved nothing.
#[inline]
fn counted(moved: io::Result<usize>) -> io::Result<usize> {
    budget::pass(*moved.as_ref().unwrap_or(&0));
    moved
}

impl<T: Clone> Poller<T> {
    /// Reads what is there; `Ok(0)` is the end.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there; `NotConnected` when the entry is gone; a broken connection.
    #[inline]
    pub fn recv(&self, key: Key, buf: &mut [u8]) -> io::Result<usize> {
        counted(self.with_fd(key, |fd| socket::recv(fd, buf)).unwrap_or_else(gone))
    }
    /// Reads into the spare room that a vector has.
    ///
    /// # Errors
    /// As [`Poller::recv`].
    #[inline]
    pub fn recv_spare(&self, key: Key, buf: &mut Vec<u8>) -> io::Result<usize> {
        counted(self.with_fd(key, |fd| socket::recv_spare(fd, buf)).unwrap_or_else(gone))
    }
    /// Writes what the socket takes. `more`: another write follows at once (MSG_MORE).
    ///
    /// # Errors
    /// `WouldBlock`; `NotConnected` when the entry is gone; a broken connection.
    #[inline]
    pub fn send(&self, key: Key, buf: &[u8], more: bool) -> io::Result<usize> {
        counted(self.with_fd(key, |fd| socket::send(fd, buf, more)).unwrap_or_else(gone))
    }
    /// Writes several buffers with one call.
    ///
    /// # Errors
    /// As [`Poller::send`].
    #[inline]
    pub fn send_vectored(&self, key: Key, bufs: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        counted(self.with_fd(key, |fd| socket::send_vectored(fd, bufs, more)).unwrap_or_else(gone))
    }
    /// Sends a part of a file from the page cache; advances `offset`. `Ok(0)`: the file is shorter than it was.
    ///
    /// # Errors
    /// As [`Poller::send`].
    pub fn sendfile(&self, key: Key, file: &std::fs::File, offset: &mut u64, length: usize) -> io::Result<usize> {
        counted(self.with_fd(key, |fd| socket::sendfile(fd, file, offset, length)).unwrap_or_else(gone))
    }
    /// Accepts one connection of a listener; `None` when the listener is gone.
    ///
    /// # Errors
    /// `WouldBlock` when nobody waits; EMFILE and friends are the caller's to wait out.
    pub fn accept(&self, key: Key) -> Option<io::Result<Accepted>> {
        budget::pass(0);
        self.with_fd(key, socket::accept)
    }
    /// Turns Nagle's algorithm off.
    pub fn set_nodelay(&self, key: Key) {
        self.with_fd(key, socket::set_nodelay);
    }
    /// The next close sends RST and frees the kernel's memory at once.
    pub fn set_reset_on_close(&self, key: Key) {
        self.with_fd(key, socket::set_reset_on_close);
    }
    /// Closes the writing side: the peer sees the end, and may still send.
    pub fn shutdown_write(&self, key: Key) {
        self.with_fd(key, socket::shutdown_write);
    }
    /// Round-trip time and deviation (microseconds), congestion window (segments), receive space (bytes).
    pub fn tcp_info(&self, key: Key) -> Option<[u32; 4]> {
        self.with_fd(key, socket::tcp_info).flatten()
    }
}
