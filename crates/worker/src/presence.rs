//! An HTTP/1 request's view of its client.

use crate::link::Link;
use crate::worker::Worker;
use bytes::Bytes;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Watches an HTTP/1 client for its request. Recycled by its thread.
pub struct Presence {
    /// The connection's bytes.
    pub link: Link,
}

impl Presence {
    /// Returns a recycled or a new one.
    pub fn of(link: &Link) -> Rc<Presence> {
        if let Some(mut spare) = link.worker.pools.spares().take::<Presence>()
            && let Some(own) = Rc::get_mut(&mut spare)
        {
            own.link = link.clone();
            return spare;
        }
        Rc::new(Presence { link: link.clone() })
    }
    /// Returns it to the thread's spares, if no request refers to it any more.
    pub fn recycle(mut self: Rc<Presence>, worker: &Worker) {
        if let Some(own) = Rc::get_mut(&mut self) {
            own.link.secure = None;
            worker.pools.spares().put(self);
        }
    }
}

impl http_engine::Watch for Presence {
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.link.poll_closing(cx).map(|_| ())
    }
    fn is_cut(&self) -> bool {
        self.link.is_cut()
    }
    fn poll_interim(&self, cx: &mut Context<'_>, bytes: &mut Bytes) -> Poll<()> {
        while !bytes.is_empty() {
            match self.link.send(&[IoSlice::new(bytes)], false) {
                Ok(n) => {
                    let _ = bytes.split_to(n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if !ready!(self.link.poll_writable(cx)) {
                        return Poll::Ready(());
                    }
                }
                Err(_) => return Poll::Ready(()),
            }
        }
        Poll::Ready(())
    }
}
