//! Implements the protocol-independent interface of `http-types` for [`Server`].

use super::Server;
use crate::frame::ErrorCode;
use bytes::Bytes;
use http_types::{Event, FieldLines, Rank, ResetReason, SentBody, StreamId, StreamMux, TakenLines, Version};

impl StreamMux for Server {
    fn version(&self) -> Version {
        if self.session.hq { Version::Http09 } else { Version::Http30 }
    }
    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
    fn take_body(&mut self, stream: StreamId) -> TakenLines {
        Server::take_body(self, stream)
    }
    fn taken(&self, stream: StreamId) -> u64 {
        // Frames of a body that is not read do not count, as in nginx, although their heads are read ahead.
        match self.streams.get(&stream) {
            Some(stream) if stream.taken > 0 => stream.taken + stream.reader.overhead(),
            _ => 0,
        }
    }
    fn promise(&mut self, stream: StreamId, length: u64) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.promised = Some(length);
        }
    }
    fn capacity(&mut self, stream: StreamId) -> Option<usize> {
        Server::capacity(self, stream)
    }
    fn send_head(&mut self, stream: StreamId, status: u16, fields: FieldLines<'_, '_>, end: bool) -> usize {
        Server::send_head(self, stream, status, fields, end)
    }
    fn send_interim(&mut self, stream: StreamId, status: u16, fields: FieldLines<'_, '_>) {
        Server::send_interim(self, stream, status, fields);
    }
    /// Sends one frame, whose size is limited by the stream's capacity. (`http2_chunk_size` applies only to HTTP/2.)
    fn send_body(&mut self, stream: StreamId, body: &[u8], _frame_max: usize, end: bool) -> SentBody {
        Server::send_body(self, stream, body, end)
    }
    fn send_shared(&mut self, stream: StreamId, body: &Bytes, _frame_max: usize, end: bool) -> SentBody {
        Server::send_shared(self, stream, body, end)
    }
    fn send_trailers(&mut self, stream: StreamId, fields: FieldLines<'_, '_>) -> usize {
        Server::send_trailers(self, stream, fields)
    }
    fn finish(&mut self, stream: StreamId) {
        Server::finish(self, stream);
    }
    fn reset(&mut self, stream: StreamId, why: ResetReason) {
        let code = match why {
            ResetReason::Refused => ErrorCode::RequestRejected,
            ResetReason::Protocol => ErrorCode::GeneralProtocol,
            ResetReason::Connect => ErrorCode::Connect,
            ResetReason::Internal => ErrorCode::Internal,
        };
        Server::reset(self, stream, code);
    }
    fn rank(&self, stream: StreamId) -> Option<Rank> {
        Server::rank(self, stream)
    }
    fn offers_connect(&self) -> bool {
        self.limits.extended_connect
    }
    fn begin_shutdown(&mut self) {
        self.shutdown();
    }
    fn is_going(&self) -> bool {
        self.going
    }
    fn is_idle(&self) -> bool {
        Server::is_idle(self)
    }
    fn is_within_head(&self) -> bool {
        Server::is_within_head(self)
    }
    fn give_up_head(&mut self) -> bool {
        Server::give_up_head(self)
    }
    fn has_begun(&self) -> bool {
        self.next > 0
    }
    fn shrink(&mut self) {
        self.streams.shrink_to(0);
        self.events.shrink_to(0);
        self.updates.shrink_to(0);
        self.session.shrink();
    }
}
