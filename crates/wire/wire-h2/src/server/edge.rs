//! Implements the edge for drivers. Numbers beyond 31 bits name no stream.

use super::Server;
use crate::frame::ErrorCode;
use http_types::{
    ByteCore, Event, FieldLines, ProtocolError, Rank, ResetReason, SentBody, StreamId, StreamMux, TakenLines, Version,
};

const NONE: u32 = 0;

fn narrow(stream: StreamId) -> u32 {
    u32::try_from(stream).unwrap_or(NONE)
}

impl StreamMux for Server {
    fn version(&self) -> Version {
        Version::Http20
    }
    fn poll_event(&mut self) -> Option<Event> {
        Server::poll_event(self)
    }
    fn take_body(&mut self, stream: StreamId) -> TakenLines {
        Server::take_body(self, narrow(stream))
    }
    fn taken(&self, stream: StreamId) -> u64 {
        Server::taken(self, narrow(stream))
    }
    fn promise(&mut self, stream: StreamId, length: u64) {
        Server::promise(self, narrow(stream), length);
    }
    fn capacity(&mut self, stream: StreamId) -> Option<usize> {
        Server::capacity(self, narrow(stream))
    }
    fn send_head(&mut self, stream: StreamId, status: u16, fields: FieldLines<'_, '_>, end: bool) -> usize {
        Server::send_head(self, narrow(stream), status, fields, end)
    }
    fn send_interim(&mut self, stream: StreamId, status: u16, fields: FieldLines<'_, '_>) {
        Server::send_interim(self, narrow(stream), status, fields);
    }
    fn send_body(&mut self, stream: StreamId, body: &[u8], frame_max: usize, end: bool) -> SentBody {
        let before = self.unsent();
        let taken = Server::send_body(self, narrow(stream), body, frame_max, end);
        SentBody { taken, octets: self.unsent() - before }
    }
    fn send_trailers(&mut self, stream: StreamId, fields: FieldLines<'_, '_>) -> usize {
        Server::send_trailers(self, narrow(stream), fields)
    }
    fn finish(&mut self, stream: StreamId) {
        Server::finish(self, narrow(stream));
    }
    fn reset(&mut self, stream: StreamId, why: ResetReason) {
        let code = match why {
            ResetReason::Refused => ErrorCode::RefusedStream,
            ResetReason::Protocol => ErrorCode::Protocol,
            ResetReason::Connect => ErrorCode::Connect,
            ResetReason::Internal => ErrorCode::Internal,
        };
        Server::reset(self, narrow(stream), code);
    }
    fn rank(&self, stream: StreamId) -> Option<Rank> {
        Server::rank(self, narrow(stream))
    }
    fn offers_connect(&self) -> bool {
        Server::offers_connect(self)
    }
    fn begin_shutdown(&mut self) {
        self.shutdown();
    }
    fn is_going(&self) -> bool {
        Server::is_going(self)
    }
    fn is_idle(&self) -> bool {
        Server::is_idle(self)
    }
    fn is_within_head(&self) -> bool {
        Server::is_within_head(self)
    }
    fn give_up_head(&mut self) -> bool {
        self.give_up_block()
    }
    fn has_begun(&self) -> bool {
        Server::has_begun(self)
    }
    fn shrink(&mut self) {
        Server::shrink(self);
    }
}

impl ByteCore for Server {
    fn receive(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        Server::receive(self, bytes).map_err(|error| ProtocolError { words: error.words })
    }
    fn has_preface(&self) -> bool {
        Server::has_preface(self)
    }
    fn output(&self) -> &[u8] {
        Server::output(self)
    }
    fn unsent(&self) -> usize {
        Server::unsent(self)
    }
    fn release_written(&mut self) {
        Server::release_written(self);
    }
    fn advance(&mut self, n: usize) {
        Server::advance(self, n);
    }
}
