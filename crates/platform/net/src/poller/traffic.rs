//! Transfers on entries' sockets: each call borrows the descriptor for one system call. Fails with `NotConnected` for a
//! key whose entry is gone.

use super::{Key, Poller};
use crate::budget;
use crate::socket::{self, AcceptedSocket};
use std::io::{self, IoSlice};

fn gone<T>() -> io::Result<T> {
    Err(io::ErrorKind::NotConnected.into())
}

/// Counts a call, even one that moved nothing.
#[inline]
fn counted(moved: io::Result<usize>) -> io::Result<usize> {
    budget::pass(*moved.as_ref().unwrap_or(&0));
    moved
}

impl<T: Clone> Poller<T> {
    /// Reads; `Ok(0)` is the end. Fails with `WouldBlock` without data.
    #[inline]
    pub fn recv(&self, key: Key, buf: &mut [u8]) -> io::Result<usize> {
        counted(self.with_fd(key, |fd| socket::recv(fd, buf)).unwrap_or_else(gone))
    }
    /// [`Poller::recv`] into a vector's spare room.
    #[inline]
    pub fn recv_spare(&self, key: Key, buf: &mut Vec<u8>) -> io::Result<usize> {
        counted(self.with_fd(key, |fd| socket::recv_spare(fd, buf)).unwrap_or_else(gone))
    }
    /// Writes as much as fits. `more`: another write follows at once (MSG_MORE).
    #[inline]
    pub fn send(&self, key: Key, buf: &[u8], more: bool) -> io::Result<usize> {
        counted(self.with_fd(key, |fd| socket::send(fd, buf, more)).unwrap_or_else(gone))
    }
    /// [`Poller::send`] of several buffers with one system call.
    #[inline]
    pub fn send_vectored(&self, key: Key, bufs: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        counted(self.with_fd(key, |fd| socket::send_vectored(fd, bufs, more)).unwrap_or_else(gone))
    }
    /// Sends a part of a file; advances `offset`. `Ok(0)`: the file was truncated.
    pub fn sendfile(&self, key: Key, file: &std::fs::File, offset: &mut u64, length: usize) -> io::Result<usize> {
        counted(self.with_fd(key, |fd| socket::sendfile(fd, file, offset, length)).unwrap_or_else(gone))
    }
    /// Accepts a connection; `None` if the listener is gone. Fails with `WouldBlock` when none is pending; callers wait
    /// on EMFILE and similar errors.
    pub fn accept(&self, key: Key) -> Option<io::Result<AcceptedSocket>> {
        budget::pass(0);
        self.with_fd(key, socket::accept)
    }
    /// Sets TCP_NODELAY; ignored for UNIX-domain sockets.
    pub fn set_nodelay(&self, key: Key) {
        self.with_fd(key, socket::set_nodelay);
    }
    /// Makes the next close send RST, which frees kernel memory at once.
    pub fn set_reset_on_close(&self, key: Key) {
        self.with_fd(key, socket::set_reset_on_close);
    }
    /// Ends the own direction with a FIN.
    pub fn shutdown_write(&self, key: Key) {
        self.with_fd(key, socket::shutdown_write);
    }
    /// Round-trip time and deviation (microseconds), congestion window (segments), receive space (bytes).
    pub fn tcp_info(&self, key: Key) -> Option<[u32; 4]> {
        self.with_fd(key, socket::tcp_info).flatten()
    }
    /// Returns the free bytes of the send buffer; `None` if they are unknown.
    pub fn send_room(&self, key: Key) -> Option<usize> {
        self.with_fd(key, socket::send_room).flatten()
    }
}
