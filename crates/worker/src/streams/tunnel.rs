//! A stream as a byte stream: WebSockets over HTTP/2 (RFC 8441) and CONNECT.
//! A WebSocket request becomes the GET with `Upgrade` of HTTP/1, for equal locations, directives and servers.

use super::{Streams, StreamsState};
use base64::Engine;
use http_engine::Request;
use http_types::{Field, Known, Method, StreamId, TakenLines, known_name};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// The only supported protocol (RFC 8441, 5).
pub const WEBSOCKET: &[u8] = b"websocket";

/// Converts a WebSocket request to HTTP/1's form. Creates its key, which HTTP/2 lacks and servers require.
pub fn as_upgrade(r: &mut Request) {
    r.target.set_method(Method::Get);
    r.head.method = Method::Get;
    let key = base64::engine::general_purpose::STANDARD.encode(net::random::bytes16());
    for (name, value) in [("upgrade", "websocket"), ("connection", "Upgrade"), ("sec-websocket-key", key.as_str())] {
        let place = known_name(name.as_bytes());
        if place == Known::Other && r.head.fields.all.iter().any(|f| f.name.of(&r.buf) == name.as_bytes()) {
            continue;
        }
        let name = super::request::append(r, name.as_bytes());
        let value = super::request::append(r, value.as_bytes());
        r.head.fields.push(Field { name, value, known: place });
    }
}

/// A stream as one end of a tunnel.
pub struct RawStream {
    streams: Rc<Streams>,
    id: StreamId,
    shared: Rc<StreamsState>,
}

impl RawStream {
    /// Begins with the stream's state; `None`: the stream has ended.
    pub fn new(streams: &Rc<Streams>, id: StreamId) -> Option<RawStream> {
        let shared = streams.open.borrow().get(&id).cloned()?;
        Some(RawStream { streams: streams.clone(), id, shared })
    }
}

impl area::relay::RelaySide for RawStream {
    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        ready!(runtime::budget::poll_proceed(cx));
        let taken = self.streams.core.borrow_mut().take_body(self.id);
        self.streams.touch();
        match taken {
            TakenLines::Bytes(bytes) => {
                runtime::budget::spend(bytes.len());
                buf.extend_from_slice(&bytes);
                Poll::Ready(Ok(bytes.len()))
            }
            TakenLines::End => Poll::Ready(Ok(0)),
            TakenLines::Broken | TakenLines::Gone => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            TakenLines::Later if self.shared.gone.get() => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            TakenLines::Later => {
                *self.shared.body.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
    fn poll_send(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let (id, frame_max) = (self.id, buf.len().max(1));
        let sent =
            ready!(self.streams.poll_send(id, buf.is_empty(), cx, |core| core.send_body(id, buf, frame_max, false)));
        Poll::Ready(sent.ok_or(io::ErrorKind::ConnectionReset.into()))
    }
    /// Output leaves at the turn's end.
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn room(&self) -> Option<usize> {
        if self.streams.is_full() {
            return Some(0);
        }
        self.streams.core.borrow_mut().capacity(self.id)
    }
    fn has_unsent(&self) -> bool {
        false
    }
    fn shutdown_write(&mut self) {
        super::stream::end_now(&self.streams, self.id, &self.shared);
    }
    /// END_STREAM is a TCP FIN (RFC 8441, 5). Browsers send it with their Close frame, before the server's.
    fn closes_by_halves(&self) -> bool {
        true
    }
}
