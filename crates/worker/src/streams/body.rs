//! Request body of a stream, and the watch over its client.

use super::{Streams, StreamsState};
use crate::steps;
use bytes::Bytes;
use http_engine::BodyReader;
use http_types::{ResponseHead, StreamId, TakenLines};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use wire_h1::{HeadLimits, ParseProgress, ResponseParser};

/// Reads the body; consumed octets reopen the window.
pub struct StreamBody {
    streams: Rc<Streams>,
    id: StreamId,
    shared: Rc<StreamsState>,
    timeout: Duration,
    sleep: Option<runtime::time::Sleep>,
}

impl StreamBody {
    /// Begins the reader of a stream's body. `timeout`: `client_body_timeout`.
    pub fn new(streams: Rc<Streams>, id: StreamId, shared: Rc<StreamsState>, timeout: Duration) -> StreamBody {
        StreamBody { streams, id, shared, timeout, sleep: None }
    }
}

impl BodyReader for StreamBody {
    fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, u16>>> {
        std::task::ready!(runtime::budget::poll_proceed(cx));
        steps::note_step();
        let taken = self.streams.core.borrow_mut().take_body(self.id);
        match taken {
            TakenLines::Bytes(bytes) => {
                self.sleep = None;
                runtime::budget::spend(bytes.len());
                self.shared.read.set(self.shared.read.get() + bytes.len() as u64);
                self.streams.touch();
                Poll::Ready(Some(Ok(bytes)))
            }
            TakenLines::End => Poll::Ready(None),
            TakenLines::Broken => Poll::Ready(Some(Err(400))),
            TakenLines::Gone => Poll::Ready(Some(Err(499))),
            TakenLines::Later => {
                self.streams.touch();
                if self.shared.gone.get() {
                    return Poll::Ready(Some(Err(499)));
                }
                let timeout = self.timeout;
                let sleep = self.sleep.get_or_insert_with(|| runtime::time::sleep_for(timeout));
                if Pin::new(sleep).poll(cx).is_ready() {
                    return Poll::Ready(Some(Err(408)));
                }
                *self.shared.body.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Detects a stream's end, and sends interim responses.
pub struct Watch {
    streams: Rc<Streams>,
    id: StreamId,
    shared: Rc<StreamsState>,
}

impl Watch {
    /// Begins to watch a stream.
    pub fn new(streams: Rc<Streams>, id: StreamId, shared: Rc<StreamsState>) -> Watch {
        Watch { streams, id, shared }
    }
}

impl http_engine::Watch for Watch {
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.shared.gone.get() {
            return Poll::Ready(());
        }
        *self.shared.watch.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
    fn poll_interim(&self, cx: &mut Context<'_>, bytes: &mut Bytes) -> Poll<()> {
        if !std::task::ready!(self.streams.poll_room(self.id, cx)) {
            return Poll::Ready(());
        }
        let (mut head, mut parser) = (ResponseHead::default(), ResponseParser::default());
        let text = std::mem::take(bytes);
        if let Ok(ParseProgress::Done { .. }) = parser.parse(&text, &HeadLimits::default(), &mut head) {
            let fields: Vec<_> = head
                .fields
                .all
                .iter()
                .map(|field| (field.name.of(&text).to_ascii_lowercase(), field.value.of(&text)))
                .collect();
            let mut fields = fields.iter().map(|(name, value)| (name.as_slice(), *value));
            self.streams.core.borrow_mut().send_interim(self.id, head.status, &mut fields);
            self.streams.touch();
        }
        Poll::Ready(())
    }
}
