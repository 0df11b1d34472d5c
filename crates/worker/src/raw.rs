//! A connection of HTTP/1 as a byte stream, for tunnels.

use crate::input::Input;
use crate::link::Link;
use runtime::budget;
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Client side of a tunnel; octets read behind the head come first.
pub struct Raw {
    /// The connection's bytes.
    pub link: Link,
    /// Bytes that were read behind the head.
    pub input: Rc<RefCell<Input>>,
}

impl area::relay::RelaySide for Raw {
    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let mut input = self.input.borrow_mut();
        if !input.bytes().is_empty() {
            let n = input.bytes().len();
            buf.extend_from_slice(input.bytes());
            *input = Input::default();
            return Poll::Ready(Ok(n));
        }
        loop {
            match self.link.recv_spare(buf) {
                Ok(n) => return Poll::Ready(Ok(n)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match self.link.poll_readable(cx) {
                    Poll::Ready(true) => {}
                    Poll::Ready(false) => return Poll::Ready(Ok(0)),
                    Poll::Pending => {
                        // Upgraded connections are mostly idle: hold no buffer.
                        *input = Input::default();
                        self.link.shrink();
                        return Poll::Pending;
                    }
                },
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
    fn poll_send(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(budget::poll_proceed(cx));
            match self.link.send(&[IoSlice::new(buf)], false) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if !ready!(self.link.poll_writable(cx)) {
                        return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
                    }
                }
                done => return Poll::Ready(done),
            }
        }
    }
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.link.flush() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if !ready!(self.link.poll_writable(cx)) {
                        return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
                    }
                }
                done => return Poll::Ready(done),
            }
        }
    }
    fn room(&self) -> Option<usize> {
        self.link.send_room()
    }
    fn has_unsent(&self) -> bool {
        self.link.has_unsent()
    }
    fn shutdown_write(&mut self) {
        self.link.shutdown_write();
    }
}
