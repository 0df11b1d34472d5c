//! Frames to a client.

use super::Server;
use crate::frame::{self, ErrorCode};
use base::append::append_bytes;

/// Room for other streams' frames that an output buffer gets at once.
const OUT_AHEAD_MAX: usize = 64 * 1024;

impl Server {
    /// Octets that a stream may send; `None`: ended. After 0, [`http_types::Event::Capacity`] follows.
    pub fn capacity(&mut self, id: u32) -> Option<usize> {
        let window = self.send_window;
        let stream = self.streams.get_mut(&id)?;
        let capacity = usize::try_from(window.min(stream.send_window)).unwrap_or(0);
        stream.blocked = capacity == 0;
        Some(capacity)
    }

    /// Sends a response head; names in lower case. `end`: nothing follows.
    pub fn send_head<'a>(
        &mut self,
        id: u32,
        status: u16,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        end: bool,
    ) -> usize {
        if !self.streams.contains_key(&id) {
            return 0;
        }
        let status = [b'0' + (status / 100 % 10) as u8, b'0' + (status / 10 % 10) as u8, b'0' + (status % 10) as u8];
        // The response's priority overrides the request's (RFC 9218, 8).
        let mut priority = None;
        let fields = fields.inspect(|(name, value)| {
            if *name == b"priority" {
                priority = Some(*value);
            }
        });
        let sent = self.send_block(id, Some(&status), fields, end);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.answering = true;
        }
        if end {
            self.end(id);
        } else if let Some(priority) = priority {
            self.set_priority(id, priority);
        }
        sent
    }

    /// RFC 9110, 15.2.
    pub fn send_interim<'a>(&mut self, id: u32, status: u16, fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
        if self.streams.contains_key(&id) && (100..200).contains(&status) && status != 101 {
            let status = status.to_string();
            self.send_block(id, Some(status.as_bytes()), fields, false);
        }
    }

    /// Sends trailers, with which the response ends; returns the octets of their frames. Names in lower case.
    pub fn send_trailers<'a>(&mut self, id: u32, fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> usize {
        if !self.streams.contains_key(&id) {
            return 0;
        }
        let sent = self.send_block(id, None, fields, true);
        self.end(id);
        sent
    }

    fn send_block<'a>(
        &mut self,
        id: u32,
        status: Option<&[u8]>,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        end: bool,
    ) -> usize {
        let start = self.out.len();
        // Overwritten once the block's length is known.
        frame::put_head(0, frame::HEADERS, 0, id, &mut self.out);
        self.encoder.begin(&mut self.out);
        if let Some(status) = status {
            self.encoder.field(b":status", status, &mut self.out);
        }
        for (name, value) in fields {
            self.encoder.field(name, value, &mut self.out);
        }
        let length = self.out.len() - start - frame::HEADER;
        let end_stream = if end { frame::END_STREAM } else { 0 };
        if length <= self.peer_frame {
            let mut head = Vec::with_capacity(frame::HEADER);
            frame::put_head(length, frame::HEADERS, frame::END_HEADERS | end_stream, id, &mut head);
            if let Some(place) = self.out.get_mut(start..start + frame::HEADER) {
                place.copy_from_slice(&head);
            }
            return self.out.len() - start;
        }
        let block = self.out.split_off(start + frame::HEADER);
        self.out.truncate(start);
        let mut parts = block.chunks(self.peer_frame).peekable();
        let mut kind = frame::HEADERS;
        while let Some(part) = parts.next() {
            let first = if kind == frame::HEADERS { end_stream } else { 0 };
            let last = if parts.peek().is_none() { frame::END_HEADERS } else { 0 };
            frame::put_head(part.len(), kind, first | last, id, &mut self.out);
            self.out.extend_from_slice(part);
            kind = frame::CONTINUATION;
        }
        self.out.len() - start
    }

    /// Sends body within the windows in frames of up to `frame_max` octets; returns the octets taken. `end`: the last,
    /// if all is taken.
    pub fn send_body(&mut self, id: u32, body: &[u8], frame_max: usize, end: bool) -> usize {
        let Some(capacity) = self.capacity(id) else { return 0 };
        let n = body.len().min(capacity);
        let (now, later) = body.split_at(n);
        let ends = end && later.is_empty();
        if now.is_empty() && !ends {
            return 0;
        }
        let frame_max = self.peer_frame.min(frame_max.max(1));
        let needed = n + n.div_ceil(frame_max) * frame::HEADER;
        if self.out.capacity() - self.out.len() < needed {
            // Other streams often answer in the same turn: growing step by step would copy their frames each time.
            self.out.reserve(needed.max((needed * self.streams.len()).min(OUT_AHEAD_MAX)));
        }
        let mut parts = now.chunks(frame_max).peekable();
        if parts.peek().is_none() {
            frame::put_head(0, frame::DATA, frame::END_STREAM, id, &mut self.out);
        }
        while let Some(part) = parts.next() {
            let flags = if ends && parts.peek().is_none() { frame::END_STREAM } else { 0 };
            frame::put_head(part.len(), frame::DATA, flags, id, &mut self.out);
            append_bytes(&mut self.out, part);
        }
        self.send_window -= n as i64;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.send_window -= n as i64;
            self.pieces += u64::from(self.send_window.min(stream.send_window) > 0);
            stream.blocked = !later.is_empty() || (self.send_window.min(stream.send_window) <= 0 && !ends);
            self.stalled |= stream.blocked;
        }
        if ends {
            self.end(id);
        }
        n
    }

    fn end(&mut self, id: u32) {
        self.answered += 1;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.send_closed = true;
            stream.blocked = false;
        }
    }

    /// Forgets a stream; resets it unless closed on both sides, with NO_ERROR when the answer is complete but the
    /// request is not.
    pub fn finish(&mut self, id: u32) {
        let Some(stream) = self.streams.remove(&id) else { return };
        let code = match (stream.send_closed, stream.recv_closed) {
            (true, true) => return,
            (true, false) => ErrorCode::NoError,
            (false, _) => ErrorCode::Internal,
        };
        if code == ErrorCode::NoError {
            // libcurl 7.88 loses a response read together with the reset: over TLS, a write is a record.
            self.break_output();
        }
        frame::put_number(frame::RST_STREAM, id, code as u32, &mut self.out);
        self.remember(id);
    }

    /// Resets a stream and forgets it.
    pub fn reset(&mut self, id: u32, code: ErrorCode) {
        if self.streams.remove(&id).is_some() {
            frame::put_number(frame::RST_STREAM, id, code as u32, &mut self.out);
            self.remember(id);
        }
    }

    /// Existing streams continue.
    pub fn shutdown(&mut self) {
        if !self.going && !self.failed {
            self.goaway(ErrorCode::NoError);
        }
    }

    pub(super) fn goaway(&mut self, code: ErrorCode) {
        self.going = true;
        frame::put_head(8, frame::GOAWAY, 0, 0, &mut self.out);
        self.out.extend_from_slice(&self.last.to_be_bytes());
        self.out.extend_from_slice(&(code as u32).to_be_bytes());
    }
}
