//! The client's side of a session.

use crate::udp::Flow;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use upstream::Stream;

/// Whom a session talks to.
pub enum Client {
    Stream(Stream),
    Datagrams(Rc<Flow>),
}

impl Client {
    /// Sends all of it; a datagram is sent at once or, when its socket has no room, lost.
    ///
    /// # Errors
    /// A broken connection.
    pub async fn send_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Client::Stream(stream) => {
                stream.write_all(bytes).await?;
                std::future::poll_fn(|cx| poll_flushed(stream, cx)).await
            }
            Client::Datagrams(flow) => flow.send(bytes).map(|_| ()),
        }
    }
}

/// Ready once the socket has taken all ciphertext.
pub fn poll_flushed(stream: &Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    while stream.has_unsent() {
        match stream.try_flush() {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::task::ready!(stream.poll_writable(cx))?,
            Err(e) => return Poll::Ready(Err(e)),
        }
    }
    Poll::Ready(Ok(()))
}
