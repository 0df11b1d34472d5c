//! Frames from a server.

use super::{Client, ClientEvent, HeaderBlock};
use crate::frame::{self, ErrorCode, Head};
use crate::hpack::Broken;
use crate::server::ConnectionError;
use crate::stream::join_piece;
use bytes::Bytes;
use http_types::ListLimits;

/// CONTINUATION frames per block.
const CONTINUATIONS_MAX: u32 = 64;
/// Frames without content that a server may send on credit.
const IDLE_FRAMES_MAX: u64 = 10_000;
/// Further such frames per frame with content.
const IDLE_FRAMES_PER_USEFUL: u64 = 20;
/// Interim responses per stream.
const INTERIM_MAX: u32 = 1000;
/// Pending events above which interim responses are dropped.
const EVENTS_BEFORE_INTERIM_MAX: usize = 64;
/// Unsent octets of replies to PING and SETTINGS, for a server that reads nothing.
const UNSENT_MAX: usize = 1024 * 1024;

const REFUSED_STREAM: u32 = ErrorCode::RefusedStream as u32;

fn protocol(words: &'static str) -> ConnectionError {
    ConnectionError { code: ErrorCode::Protocol, words }
}
fn flow(words: &'static str) -> ConnectionError {
    ConnectionError { code: ErrorCode::FlowControl, words }
}
fn size(words: &'static str) -> ConnectionError {
    ConnectionError { code: ErrorCode::FrameSize, words }
}

impl Client {
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        if self.pending.is_empty() {
            let used = self.frames(bytes)?;
            self.pending.extend_from_slice(bytes.get(used..).unwrap_or_default());
            return Ok(());
        }
        let mut bytes = bytes;
        for _ in ["header", "payload"] {
            let length = |head: Head| frame::HEADER + head.length.min(frame::FRAME_SIZE);
            let whole = Head::read(&self.pending).map_or(frame::HEADER, length);
            let missing = whole.saturating_sub(self.pending.len()).min(bytes.len());
            let (now, later) = bytes.split_at(missing);
            self.pending.extend_from_slice(now);
            bytes = later;
        }
        let mut pending = std::mem::take(&mut self.pending);
        let used = self.frames(&pending)?;
        pending.drain(..used);
        self.pending = pending;
        if self.pending.is_empty() && !bytes.is_empty() {
            let used = self.frames(bytes)?;
            self.pending.extend_from_slice(bytes.get(used..).unwrap_or_default());
        }
        Ok(())
    }

    fn frames(&mut self, bytes: &[u8]) -> Result<usize, ConnectionError> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let Some(head) = Head::read(rest) else { return Ok(used) };
            if head.length > frame::FRAME_SIZE {
                return Err(size("upstream sent too large http2 frame"));
            }
            if !self.settled && head.kind != frame::SETTINGS && head.kind != frame::GOAWAY {
                return Err(protocol("upstream sent no http2 SETTINGS first"));
            }
            let Some(payload) = rest.get(frame::HEADER..frame::HEADER + head.length) else { return Ok(used) };
            self.frame(head, payload)?;
            used += frame::HEADER + head.length;
            let allowed = IDLE_FRAMES_MAX
                + self.useful * IDLE_FRAMES_PER_USEFUL
                + self.pieces * frame::IDLE_FRAMES_PER_PIECE
                + self.sent / frame::OCTETS_PER_IDLE_FRAME;
            if self.idle_frames > allowed || self.out.len() - self.out_start > UNSENT_MAX {
                return Err(ConnectionError { code: ErrorCode::EnhanceYourCalm, words: "upstream floods http2" });
            }
        }
    }

    fn frame(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        match &self.block {
            Some(block) if head.kind != frame::CONTINUATION || head.stream != block.stream => {
                return Err(protocol("upstream sent unexpected http2 frame, CONTINUATION expected"));
            }
            None if head.kind == frame::CONTINUATION => {
                return Err(protocol("upstream sent unexpected http2 CONTINUATION frame"));
            }
            _ => {}
        }
        match head.kind {
            frame::DATA => self.data(head, payload),
            frame::HEADERS => self.headers(head, payload),
            frame::CONTINUATION => self.continuation(head, payload),
            frame::RST_STREAM => self.rst_stream(head, payload),
            frame::SETTINGS => self.settings(head, payload),
            frame::PING => self.ping(head, payload),
            frame::GOAWAY => self.peer_goes(head, payload),
            frame::WINDOW_UPDATE => self.window_update(head, payload),
            frame::PUSH_PROMISE => Err(protocol("upstream sent unexpected http2 PUSH_PROMISE frame")),
            _ => {
                self.idle_frames += 1;
                Ok(())
            }
        }
    }

    /// Fails for a stream that was never started.
    fn known(&self, id: u32) -> Result<(), ConnectionError> {
        match id % 2 == 1 && id < self.next {
            true => Ok(()),
            false => Err(protocol("upstream sent http2 frame for unknown stream")),
        }
    }

    fn data(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        self.known(head.stream)?;
        let content =
            frame::strip_padding(head, payload).ok_or(size("upstream sent http2 DATA frame with too long padding"))?;
        self.recv_window -= payload.len() as i64;
        if self.recv_window < 0 {
            return Err(flow("upstream violated http2 connection flow control"));
        }
        // Reopened on receipt: one slow reader must not stall the others.
        if self.recv_window < self.recv_window_max / 4 {
            let more = self.recv_window_max - self.recv_window;
            self.recv_window = self.recv_window_max;
            frame::put_number(frame::WINDOW_UPDATE, 0, more as u32, &mut self.out);
        }
        let end = head.has(frame::END_STREAM);
        let Some(stream) = self.streams.get_mut(&head.stream) else { return Ok(()) };
        stream.recv_window -= payload.len() as i64;
        if stream.recv_window < 0 {
            return Err(flow("upstream violated http2 stream flow control"));
        }
        if stream.recv_closed {
            return Err(ConnectionError {
                code: ErrorCode::StreamClosed,
                words: "upstream sent http2 DATA frame for closed stream",
            });
        }
        if !stream.answered {
            return Err(protocol("upstream sent unexpected http2 DATA frame"));
        }
        stream.credit += (payload.len() - content.len()) as i64;
        stream.recv_closed = end;
        if content.is_empty() && !end {
            self.idle_frames += 1;
            return Ok(());
        }
        self.useful += 1;
        let octets = frame::HEADER + payload.len();
        if !self.limits.count_bodies {
            if let Some(ClientEvent::Body { stream, bytes, end: ends, octets: sum }) = self.events.back_mut()
                && *stream == head.stream
                && join_piece(bytes, content)
            {
                *ends = end;
                *sum += octets;
                return Ok(());
            }
            let bytes = Bytes::copy_from_slice(content);
            self.events.push_back(ClientEvent::Body { stream: head.stream, bytes, end, octets });
            return Ok(());
        }
        match self.events.back_mut() {
            Some(ClientEvent::Counted { stream, length, end: ends, octets: sum }) if *stream == head.stream => {
                *length += content.len();
                *sum += octets;
                *ends = end;
            }
            _ => {
                self.events.push_back(ClientEvent::Counted { stream: head.stream, length: content.len(), end, octets })
            }
        }
        self.consumed(head.stream, content.len());
        Ok(())
    }

    fn headers(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        self.known(head.stream)?;
        let too_short = size("upstream sent http2 HEADERS frame with invalid length");
        let mut block = frame::strip_padding(head, payload).ok_or(too_short)?;
        if head.has(frame::WITH_PRIORITY) {
            block = block.get(5..).ok_or(too_short)?;
        }
        let octets = frame::HEADER + payload.len();
        let end_stream = head.has(frame::END_STREAM);
        self.block =
            Some(HeaderBlock { stream: head.stream, bytes: block.to_vec(), end_stream, continuations: 0, octets });
        if head.has(frame::END_HEADERS) { self.block_done() } else { Ok(()) }
    }

    fn continuation(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        let max = self.limits.list_max;
        let Some(block) = &mut self.block else { return Ok(()) };
        block.continuations += 1;
        block.octets += frame::HEADER + payload.len();
        if block.continuations > CONTINUATIONS_MAX || block.bytes.len() + payload.len() > max {
            return Err(ConnectionError {
                code: ErrorCode::EnhanceYourCalm,
                words: "upstream sent too large http2 header",
            });
        }
        block.bytes.extend_from_slice(payload);
        if head.has(frame::END_HEADERS) { self.block_done() } else { Ok(()) }
    }

    fn block_done(&mut self) -> Result<(), ConnectionError> {
        let Some(HeaderBlock { stream: id, bytes, end_stream: end, octets, .. }) = self.block.take() else {
            return Ok(());
        };
        let limits = ListLimits {
            bytes_max: self.limits.list_max,
            fields_max: self.limits.fields_max,
            field_max: self.limits.field_max,
        };
        // Decodes all blocks in order, even of ended streams: the table must stay in step.
        let list = self.decoder.decode(&bytes, &limits).map_err(|broken| {
            let words = match broken {
                Broken::Cut => "upstream sent truncated http2 header",
                Broken::Code => "upstream sent invalid http2 header",
            };
            ConnectionError { code: ErrorCode::Compression, words }
        })?;
        let Some(stream) = self.streams.get_mut(&id) else {
            self.idle_frames += 1;
            return Ok(());
        };
        if stream.recv_closed {
            return Err(ConnectionError {
                code: ErrorCode::StreamClosed,
                words: "upstream sent http2 HEADERS frame for closed stream",
            });
        }
        if stream.answered {
            if !end {
                return Err(protocol("upstream sent http2 trailer without end stream flag"));
            }
            stream.recv_closed = true;
            self.useful += 1;
            self.events.push_back(ClientEvent::Trailers { stream: id, list, octets });
            return Ok(());
        }
        let interim =
            list.iter().any(|(name, value)| name == b":status" && value.len() == 3 && value.starts_with(b"1"));
        if interim && end {
            return Err(protocol("upstream sent http2 interim response with end stream flag"));
        }
        if interim {
            stream.interim += 1;
            if stream.interim > INTERIM_MAX {
                return self.give_up(id);
            }
            // Interim responses are hints: drops them instead of buffering for a slow reader.
            if self.events.len() >= EVENTS_BEFORE_INTERIM_MAX {
                return Ok(());
            }
        }
        self.useful += 1;
        stream.answered = !interim;
        stream.recv_closed = end;
        self.events.push_back(ClientEvent::Head { stream: id, list, end, octets });
        Ok(())
    }

    /// Ends a stream that exceeds its bounds; others continue.
    fn give_up(&mut self, id: u32) -> Result<(), ConnectionError> {
        let code = ErrorCode::EnhanceYourCalm as u32;
        frame::put_number(frame::RST_STREAM, id, code, &mut self.out);
        self.streams.remove(&id);
        self.events.push_back(ClientEvent::Reset { stream: id, code, unprocessed: false });
        Ok(())
    }

    fn rst_stream(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        self.known(head.stream)?;
        let code = frame::read_number(payload)
            .filter(|_| payload.len() == 4)
            .ok_or(size("upstream sent http2 RST_STREAM frame with invalid length"))?;
        let Some(stream) = self.streams.get_mut(&head.stream) else { return Ok(()) };
        (stream.send_closed, stream.recv_closed) = (true, true);
        let unprocessed = code == REFUSED_STREAM;
        self.events.push_back(ClientEvent::Reset { stream: head.stream, code, unprocessed });
        Ok(())
    }

    fn settings(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        if head.stream != 0 {
            return Err(protocol("upstream sent http2 SETTINGS frame with a stream"));
        }
        let length = size("upstream sent http2 SETTINGS frame with invalid length");
        if head.has(frame::ACK) {
            return if payload.is_empty() { Ok(()) } else { Err(length) };
        }
        if !payload.len().is_multiple_of(6) {
            return Err(length);
        }
        self.settled = true;
        self.idle_frames += 1;
        for entry in payload.chunks_exact(6) {
            let [a, b, rest @ ..] = entry else { continue };
            let Some(value) = frame::read_number(rest) else { continue };
            self.setting(u16::from_be_bytes([*a, *b]), value)?;
        }
        frame::put_head(0, frame::SETTINGS, frame::ACK, 0, &mut self.out);
        Ok(())
    }

    fn setting(&mut self, name: u16, value: u32) -> Result<(), ConnectionError> {
        match name {
            frame::SETTINGS_INITIAL_WINDOW_SIZE => {
                let window = i64::from(value);
                if window > frame::WINDOW_MAX {
                    return Err(flow("upstream sent http2 SETTINGS frame with too large window"));
                }
                let more = window - self.peer_window;
                self.peer_window = window;
                for (id, stream) in &mut self.streams {
                    stream.send_window += more;
                    if stream.send_window > frame::WINDOW_MAX {
                        return Err(flow("upstream sent http2 SETTINGS frame with too large window"));
                    }
                    if stream.blocked && stream.send_window > 0 && self.send_window > 0 {
                        stream.blocked = false;
                        self.events.push_back(ClientEvent::Capacity(*id));
                    }
                }
            }
            frame::SETTINGS_MAX_FRAME_SIZE if !(frame::FRAME_SIZE as u32..=frame::FRAME_SIZE_MAX).contains(&value) => {
                return Err(protocol("upstream sent http2 SETTINGS frame with invalid frame size"));
            }
            // A larger value would only make others wait.
            frame::SETTINGS_MAX_CONCURRENT_STREAMS => self.peer_streams = value as usize,
            _ => {}
        }
        Ok(())
    }

    fn ping(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        if head.stream != 0 {
            return Err(protocol("upstream sent http2 PING frame with a stream"));
        }
        if payload.len() != 8 {
            return Err(size("upstream sent http2 PING frame with invalid length"));
        }
        if !head.has(frame::ACK) {
            self.idle_frames += 1;
            frame::put_head(8, frame::PING, frame::ACK, 0, &mut self.out);
            self.out.extend_from_slice(payload);
        }
        Ok(())
    }

    fn peer_goes(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        if head.stream != 0 {
            return Err(protocol("upstream sent http2 GOAWAY frame with a stream"));
        }
        let last = frame::read_number(payload)
            .filter(|_| payload.len() >= 8)
            .ok_or(size("upstream sent http2 GOAWAY frame with invalid length"))?
            & !(1 << 31);
        self.going = true;
        let mut lost: Vec<u32> = self.streams.keys().copied().filter(|id| *id > last).collect();
        lost.sort_unstable();
        let code = payload.get(4..).and_then(frame::read_number).unwrap_or(0);
        for id in lost {
            if let Some(stream) = self.streams.get_mut(&id) {
                (stream.send_closed, stream.recv_closed) = (true, true);
            }
            self.events.push_back(ClientEvent::Reset { stream: id, code, unprocessed: true });
        }
        self.events.push_back(ClientEvent::Goaway);
        Ok(())
    }

    fn window_update(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        let more = frame::read_number(payload)
            .filter(|_| payload.len() == 4)
            .ok_or(size("upstream sent http2 WINDOW_UPDATE frame with invalid length"))?;
        let more = i64::from(more & !(1 << 31));
        if more == 0 {
            return Err(protocol("upstream sent http2 WINDOW_UPDATE frame with zero increment"));
        }
        self.idle_frames += 1;
        let too_large = flow("upstream sent http2 WINDOW_UPDATE frame with too large window");
        if head.stream != 0 {
            self.known(head.stream)?;
            let Some(stream) = self.streams.get_mut(&head.stream) else { return Ok(()) };
            stream.send_window += more;
            if stream.send_window > frame::WINDOW_MAX {
                return Err(too_large);
            }
            if stream.blocked && stream.send_window > 0 && self.send_window > 0 {
                stream.blocked = false;
                self.events.push_back(ClientEvent::Capacity(head.stream));
            }
            return Ok(());
        }
        self.send_window += more;
        if self.send_window > frame::WINDOW_MAX {
            return Err(too_large);
        }
        let waiting = self.streams.iter_mut().filter(|(_, stream)| stream.blocked && stream.send_window > 0);
        for (id, stream) in waiting {
            stream.blocked = false;
            self.events.push_back(ClientEvent::Capacity(*id));
        }
        Ok(())
    }
}
