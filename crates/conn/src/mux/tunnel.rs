//! A stream as a stream of bytes: WebSockets over HTTP/2 (RFC 8441) and CONNECT.
//!
//! Towards everything behind it, a request for a WebSocket is the GET with `Upgrade` that it is in HTTP/1: the same locations,
//! directives and upstream servers serve both.

use super::{MuxConnection, Shared};
use base64::Engine;
use http_engine::Request;
use http_types::{Field, Known, Method, StreamId, Taken, known};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// The only protocol that is passed on (RFC 8441, 5).
pub const WEBSOCKET: &[u8] = b"websocket";

/// Makes a request for a WebSocket what it is in HTTP/1. The key is ours: with HTTP/2 there is none, and servers want one.
pub fn as_upgrade(r: &mut Request) {
    r.method = Method::Get;
    r.head.method = Method::Get;
    let key = base64::engine::general_purpose::STANDARD.encode(net::random::bytes16());
    for (name, value) in [("upgrade", "websocket"), ("connection", "Upgrade"), ("sec-websocket-key", key.as_str())] {
        let place = known(name.as_bytes());
        if place == Known::Other && r.head.fields.all.iter().any(|f| f.name.of(&r.buf) == name.as_bytes()) {
            continue;
        }
        let name = super::request::append(r, name.as_bytes());
        let value = super::request::append(r, value.as_bytes());
        r.head.fields.push(Field { name, value, known: place });
    }
}

/// The client's side of a tunnel.
pub struct RawStream {
    mux: Rc<MuxConnection>,
    id: StreamId,
    shared: Rc<Shared>,
}

impl RawStream {
    /// `None`: the stream is gone.
    pub fn new(mux: &Rc<MuxConnection>, id: StreamId) -> Option<RawStream> {
        let shared = mux.streams.borrow().get(&id).cloned()?;
        Some(RawStream { mux: mux.clone(), id, shared })
    }
}

impl http_engine::RawClient for RawStream {
    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        ready!(runtime::budget::poll_proceed(cx));
        let taken = self.mux.core.borrow_mut().take_body(self.id);
        self.mux.touch();
        match taken {
            Taken::Bytes(bytes) => {
                runtime::budget::spend(bytes.len());
                buf.extend_from_slice(&bytes);
                Poll::Ready(Ok(bytes.len()))
            }
            Taken::End => Poll::Ready(Ok(0)),
            Taken::Broken | Taken::Gone => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Taken::Later if self.shared.gone.get() => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Taken::Later => {
                *self.shared.body.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
    fn poll_send(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let sent = ready!(self.mux.poll_send(self.id, buf, buf.len().max(1), false, cx));
        Poll::Ready(sent.ok_or(io::ErrorKind::ConnectionReset.into()))
    }
    /// What was taken leaves at the end of the turn.
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn shutdown(&mut self) {
        self.mux.core.borrow_mut().send_body(self.id, b"", 1, true);
        self.mux.touch();
    }
    /// RFC 8441, 5: END_STREAM stands for a TCP FIN. Browsers send it with their Close frame, and the server's is still to come.
    fn closes_by_halves(&self) -> bool {
        true
    }
}
