//! Sending side of a server connection: turns heads and bodies of responses into octets for QUIC.

use super::{Server, stream_id};
use crate::frame::{self, ErrorCode};
use crate::session::error_code;
use crate::stream::{CONNECTION_QUEUED_MAX, QUEUED_LEAST, QUEUED_MAX, Stream};
use bytes::Bytes;
use http_types::{Event, FieldLines, SentBody};
use quinn_proto::WriteError;

impl Server {
    /// Returns the octets that a stream accepts, or `None` for a stream that has ended. After 0, [`Event::Capacity`]
    /// follows once half of the queue was sent.
    pub fn capacity(&mut self, id: u64) -> Option<usize> {
        let most = self.queued_max();
        let stream = self.streams.get_mut(&id)?;
        let room = most.saturating_sub(stream.queued);
        stream.starved = room == 0;
        Some(room)
    }

    /// Returns the octets that a stream may queue at present.
    fn queued_max(&self) -> usize {
        if (self.queued as usize) < CONNECTION_QUEUED_MAX { QUEUED_MAX } else { QUEUED_LEAST }
    }

    fn send_section(&mut self, id: u64, status: Option<&[u8]>, fields: FieldLines<'_, '_>, end: bool) -> usize {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.fin) else { return 0 };
        if self.session.hq {
            // Responses of HTTP/0.9 have neither a head nor trailers.
            stream.fin = end;
            self.push(id);
            return 0;
        }
        let mut section = Vec::with_capacity(256);
        let status = status.map(|status| (&b":status"[..], status));
        self.session.encoder.section(id, status, fields, &mut section);
        let mut out = Vec::with_capacity(frame::head_length(section.len()) + section.len());
        frame::put_head(frame::HEADERS, section.len(), &mut out);
        out.extend_from_slice(&section);
        let octets = out.len();
        self.queued += octets as u32;
        stream.queue(out);
        stream.fin |= end;
        self.push(id);
        self.flush();
        octets
    }

    /// Sends a response's head, whose names are in lower case. `end` ends the response. Returns the octets of the
    /// frame.
    pub fn send_head(&mut self, id: u64, status: u16, fields: FieldLines<'_, '_>, end: bool) -> usize {
        // Prefers the response's field to the request's (RFC 9218, 8).
        let mut priority = None;
        let before = self.streams.get(&id).map(|stream| stream.priority);
        let mut fields = fields.inspect(|(name, value)| {
            if *name == b"priority" {
                priority = before.map(|before| before.with(value));
            }
        });
        let octets = self.send_section(id, Some(&digits(status)), &mut fields, end);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.answering = true;
        }
        if let Some(priority) = priority {
            self.set_priority(id, priority);
        }
        octets
    }

    /// Sends an interim response (RFC 9110, 15.2).
    pub fn send_interim(&mut self, id: u64, status: u16, fields: FieldLines<'_, '_>) {
        if (100..200).contains(&status) && status != 101 {
            self.send_section(id, Some(&digits(status)), fields, false);
        }
    }

    /// Sends trailer fields. Returns the octets of the frame.
    pub fn send_trailers(&mut self, id: u64, fields: FieldLines<'_, '_>) -> usize {
        self.send_section(id, None, fields, true)
    }

    /// Sends as much of a body as the stream accepts, in one frame. `end` ends the stream if all of it was accepted.
    pub fn send_body(&mut self, id: u64, body: &[u8], end: bool) -> SentBody {
        let now = body.len().min(self.room_for(id));
        let now = Bytes::copy_from_slice(body.get(..now).unwrap_or_default());
        self.send_data(id, now, body.len(), end)
    }

    /// Sends a body as [`Server::send_body`], but without a copy: QUIC keeps the buffer until the client has
    /// acknowledged it.
    pub fn send_shared(&mut self, id: u64, body: &Bytes, end: bool) -> SentBody {
        let now = body.slice(..body.len().min(self.room_for(id)));
        self.send_data(id, now, body.len(), end)
    }

    fn room_for(&self, id: u64) -> usize {
        self.streams.get(&id).map_or(0, |stream| self.queued_max().saturating_sub(stream.queued))
    }

    /// Sends a frame with the first octets of a body of `length`.
    fn send_data(&mut self, id: u64, now: Bytes, length: usize, end: bool) -> SentBody {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.fin) else { return SentBody::default() };
        let is_all = now.len() == length;
        let mut sent = SentBody { taken: now.len(), octets: now.len() };
        if !now.is_empty() {
            if !self.session.hq {
                let mut head = Vec::with_capacity(frame::head_length(now.len()));
                frame::put_head(frame::DATA, now.len(), &mut head);
                sent.octets += head.len();
                stream.queue(head);
            }
            self.queued += sent.octets as u32;
            stream.queue(now);
        }
        stream.fin = end && is_all;
        self.push(id);
        let most = self.queued_max();
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.starved = !is_all || (stream.queued >= most && !stream.fin);
            // QUIC may have accepted all octets in the meantime.
            if stream.starved && stream.queued <= most / 2 {
                stream.starved = false;
                self.events.push_back(Event::Capacity(id));
            }
        }
        sent
    }

    /// Passes to QUIC as many queued octets of a stream as it accepts.
    pub(super) fn push(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let mut quic = self.session.quic.send_stream(stream_id(id));
        // The call after an incomplete write has QUIC notify of room.
        while !stream.out.is_empty() {
            match quic.write_chunks(stream.out.make_contiguous()) {
                Ok(written) => {
                    self.passed += written.bytes as u64;
                    stream.queued -= written.bytes;
                    self.queued -= written.bytes as u32;
                    stream.out.drain(..written.chunks);
                }
                Err(WriteError::Blocked) => break,
                // The stream was stopped or closed, for which QUIC has an event.
                Err(_) => {
                    self.queued -= stream.queued as u32;
                    stream.queued = 0;
                    stream.out.clear();
                }
            }
        }
        let most = if (self.queued as usize) < CONNECTION_QUEUED_MAX { QUEUED_MAX } else { QUEUED_LEAST };
        if stream.starved && stream.queued <= most / 2 {
            stream.starved = false;
            self.events.push_back(Event::Capacity(id));
        }
        if stream.fin && !stream.fin_sent && stream.out.is_empty() {
            stream.fin_sent = true;
            self.answered += u64::from(!stream.cut);
            let _ = quic.finish();
            self.release_if_done(id);
        }
    }

    /// Releases a stream. Resets it if its response is incomplete, and stops the unread rest of its request (RFC 9114,
    /// 4.1.1).
    pub fn finish(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.released = true;
        if !stream.fin {
            self.end_in_quic(id, ErrorCode::Internal);
            self.forget(id);
        } else {
            self.release_if_done(id);
        }
        self.flush();
    }

    fn release_if_done(&mut self, id: u64) {
        let is_done = |stream: &Stream| stream.released && stream.fin_sent;
        if !self.streams.get(&id).is_some_and(is_done) {
            return;
        }
        // The end of the request may have arrived after the last octets that were read.
        if self.forget(id).is_some_and(|stream| !stream.ended) {
            let _ = self.session.quic.recv_stream(stream_id(id)).stop(error_code(ErrorCode::NoError));
        }
    }

    /// Resets a stream with this error code.
    pub fn reset(&mut self, id: u64, why: ErrorCode) {
        if self.streams.contains_key(&id) {
            self.end_in_quic(id, why);
            self.forget(id);
            self.flush();
        }
    }
}

fn digits(status: u16) -> [u8; 3] {
    let digit = |of: u16| b'0' + (of % 10) as u8;
    [digit(status / 100), digit(status / 10), digit(status)]
}
