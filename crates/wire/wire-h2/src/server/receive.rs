//! Receiving side of a server connection: parses the client's frames, enforces limits, and queues events. The sending
//! side is in [`super`].

use super::{ConnectionError, FRAME_MAX, HeaderBlock, PREFACE, RESET_KEPT, Server};
use crate::frame::{self, ErrorCode, Head};
use crate::hpack::Broken;
use crate::stream::{Stream, append_content};
use http_types::{Event, List, ListLimits, Priority, request_message};

/// Maximum octets of an encoded header block, over all its frames.
const BLOCK_MAX: usize = 128 * 1024;
/// Number of pseudo-header fields of a request: `:method`, `:scheme`, `:authority`, `:path`, `:protocol`.
const PSEUDO_MAX: usize = 5;
/// Maximum number of CONTINUATION frames per header block.
const CONTINUATIONS_MAX: u32 = 64;
/// Frames without content that a client may send before the flood limit counts answered requests and sent octets.
const IDLE_FRAMES_MAX: u64 = 10_000;
/// Further frames without content that each answered request permits.
const IDLE_FRAMES_PER_REQUEST: u64 = 20;
/// Maximum octets of frames per octet of content, beyond [`PAYLOAD_CREDIT`] (`ngx_http_v2_read_handler`). Limits bodies
/// in one-octet frames.
const OCTETS_PER_PAYLOAD: u64 = 8;
const PAYLOAD_CREDIT: u64 = 1024 * 1024;
/// Number of settings that count as one frame without content.
const SETTINGS_PER_IDLE_FRAME: usize = 8;
/// Maximum number of streams that the client resets before their response begins, or that are reset because of it; each
/// answered request permits one more.
const RESETS_MAX: u64 = 200;

impl Server {
    /// Processes received octets. After an error the output contains a GOAWAY, which should still be sent.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        if self.failed {
            return Ok(());
        }
        let result = self.read(bytes);
        if let Err(error) = &result {
            self.failed = true;
            self.goaway(error.code);
        }
        result
    }

    fn read(&mut self, mut bytes: &[u8]) -> Result<(), ConnectionError> {
        let expected = PREFACE.get(self.preface..).unwrap_or_default();
        if !expected.is_empty() {
            let n = expected.len().min(bytes.len());
            let (preface, rest) = bytes.split_at(n);
            if !expected.starts_with(preface) {
                return Err(protocol("invalid connection preface"));
            }
            self.preface += n;
            bytes = rest;
        }
        if self.pending.is_empty() {
            let used = self.frames(bytes)?;
            self.pending.extend_from_slice(bytes.get(used..).unwrap_or_default());
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        make_room(&mut pending, bytes.len());
        pending.extend_from_slice(bytes);
        let used = self.frames(&pending)?;
        pending.drain(..used);
        if pending.is_empty() {
            pending = Vec::new();
        }
        self.pending = pending;
        Ok(())
    }

    fn frames(&mut self, bytes: &[u8]) -> Result<usize, ConnectionError> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            if let Some(head) = self.rest_of_data {
                let part = rest.get(..head.length.min(rest.len())).unwrap_or_default();
                if part.is_empty() {
                    return Ok(used);
                }
                used += part.len();
                self.part_of_data(head, part)?;
                continue;
            }
            let Some(head) = Head::read(rest) else { return Ok(used) };
            if head.kind == frame::PUSH_PROMISE {
                return Err(protocol("client sent PUSH_PROMISE frame"));
            }
            if head.length > FRAME_MAX {
                return Err(ConnectionError {
                    code: ErrorCode::FrameSize,
                    words: "client sent a frame that is too large",
                });
            }
            self.check_order(head)?;
            // Passes on parts of a large DATA frame as they arrive, instead of buffering the frame.
            if head.kind == frame::DATA
                && head.length > frame::FRAME_SIZE
                && !head.has(frame::PADDED)
                && self.block.is_none()
            {
                self.rest_of_data = Some(head);
                used += frame::HEADER;
                continue;
            }
            let Some(payload) = rest.get(frame::HEADER..frame::HEADER + head.length) else { return Ok(used) };
            self.received += (frame::HEADER + head.length) as u64;
            self.frame(head, payload)?;
            used += frame::HEADER + head.length;
            let allowed = IDLE_FRAMES_MAX
                + self.answered * IDLE_FRAMES_PER_REQUEST
                + self.pieces * frame::IDLE_FRAMES_PER_PIECE
                + self.sent / frame::OCTETS_PER_IDLE_FRAME;
            if self.idle_frames > allowed
                || self.resets > RESETS_MAX + self.answered
                || self.received / OCTETS_PER_PAYLOAD > self.payload + PAYLOAD_CREDIT
            {
                return Err(ConnectionError { code: ErrorCode::EnhanceYourCalm, words: "http2 flood detected" });
            }
        }
    }

    fn part_of_data(&mut self, head: Head, part: &[u8]) -> Result<(), ConnectionError> {
        let left = head.length - part.len();
        self.rest_of_data = (left > 0).then_some(Head { length: left, ..head });
        let flags = if left > 0 { head.flags & !frame::END_STREAM } else { head.flags };
        self.data(Head { length: part.len(), flags, ..head }, part)
    }

    /// Refuses a frame by its head, before its payload is kept: one that a header block excludes, or that makes it too large.
    fn check_order(&self, head: Head) -> Result<(), ConnectionError> {
        match &self.block {
            Some(block) if head.kind != frame::CONTINUATION || head.stream != block.stream => {
                Err(protocol("client sent a frame in the middle of a header block"))
            }
            None if head.kind == frame::CONTINUATION => Err(protocol("client sent unexpected CONTINUATION frame")),
            Some(block) if block.bytes.len() + head.length > BLOCK_MAX || block.continuations >= CONTINUATIONS_MAX => {
                Err(ConnectionError {
                    code: ErrorCode::EnhanceYourCalm,
                    words: "client sent a header block that is too large",
                })
            }
            _ => Ok(()),
        }
    }

    fn frame(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        match head.kind {
            frame::DATA => self.data(head, payload),
            frame::HEADERS => self.headers(head, payload),
            frame::PRIORITY => self.priority(head, payload),
            frame::PRIORITY_UPDATE => self.priority_update(head, payload),
            frame::RST_STREAM => self.rst_stream(head, payload),
            frame::SETTINGS => self.settings(head, payload),
            frame::PING => self.ping(head, payload),
            frame::GOAWAY => self.peer_goes(head, payload),
            frame::WINDOW_UPDATE => self.window_update(head, payload),
            frame::CONTINUATION => self.continuation(head, payload),
            _ => {
                self.idle_frames += 1;
                Ok(())
            }
        }
    }

    fn data(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        if head.stream == 0 {
            return Err(protocol("client sent DATA frame with incorrect identifier"));
        }
        let content = frame::strip_padding(head, payload).ok_or(ConnectionError {
            // The frame lacks the field (4.2), or the padding is longer than the payload (6.1).
            code: if payload.is_empty() { ErrorCode::FrameSize } else { ErrorCode::Protocol },
            words: "client sent padded DATA frame with incorrect length",
        })?;
        self.payload += content.len() as u64;
        self.recv_window -= payload.len() as i64;
        if self.recv_window < 0 {
            return Err(ConnectionError {
                code: ErrorCode::FlowControl,
                words: "client violated connection flow control",
            });
        }
        // Reopens the connection's window on receipt, so that no stream can stall the others; streams have their own
        // windows.
        if self.recv_window < frame::WINDOW_MAX / 4 {
            let more = frame::WINDOW_MAX - self.recv_window;
            self.recv_window = frame::WINDOW_MAX;
            frame::put_number(frame::WINDOW_UPDATE, 0, more as u32, &mut self.out);
        }
        if content.is_empty() && !head.has(frame::END_STREAM) {
            self.idle_frames += 1;
        }
        let Some(stream) = self.streams.get_mut(&head.stream) else { return self.late(head) };
        if stream.recv_closed {
            return self.stream_error(head.stream, ErrorCode::StreamClosed);
        }
        stream.recv_window -= payload.len() as i64;
        if stream.recv_window < 0 {
            return self.stream_error(head.stream, ErrorCode::FlowControl);
        }
        // Counts padding as read.
        stream.credit += (payload.len() - content.len()) as i64;
        stream.received += content.len() as u64;
        let mut tells = stream.promised.is_some_and(|promised| stream.received > promised);
        if stream.deaf {
            stream.credit += content.len() as i64;
        } else if !content.is_empty() {
            stream.buffered += content.len();
            // Signals only the first piece: a reader waits only while no body is buffered.
            tells |= append_content(&mut stream.body, content) && stream.body.len() == 1;
        }
        if head.has(frame::END_STREAM) {
            stream.recv_closed = true;
        }
        if tells || head.has(frame::END_STREAM) {
            self.events.push_back(Event::Body(head.stream.into()));
        }
        if head.has(frame::END_STREAM) {
            self.forget_if_closed(head.stream);
        }
        Ok(())
    }

    fn late(&mut self, head: Head) -> Result<(), ConnectionError> {
        self.idle_frames += 1;
        if head.stream > self.last || head.stream.is_multiple_of(2) {
            return Err(protocol("client sent a frame for an idle stream"));
        }
        // Ignores frames that were in transit when the stream was reset.
        if head.kind != frame::DATA || self.reset.contains(&head.stream) || self.going {
            return Ok(());
        }
        self.resets += 1;
        frame::put_number(frame::RST_STREAM, head.stream, ErrorCode::StreamClosed as u32, &mut self.out);
        self.remember(head.stream);
        Ok(())
    }

    fn headers(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        if head.stream.is_multiple_of(2) {
            return Err(protocol("client sent HEADERS frame with incorrect identifier"));
        }
        let words = "client sent HEADERS frame with incorrect length";
        let too_short = ConnectionError { code: ErrorCode::FrameSize, words };
        let (padding, rest) = match (head.has(frame::PADDED), payload) {
            (true, [padding, rest @ ..]) => (usize::from(*padding), rest),
            (true, []) => return Err(too_short),
            (false, rest) => (0, rest),
        };
        let priority_octets = if head.has(frame::WITH_PRIORITY) { 5 } else { 0 };
        let (priority, rest) = rest.split_at_checked(priority_octets).ok_or(too_short)?;
        let fragment = rest
            .len()
            .checked_sub(padding)
            .and_then(|length| rest.get(..length))
            .ok_or(protocol("client sent padded HEADERS frame with incorrect length"))?;
        if self.depends(head.stream, priority) {
            return Err(protocol("client sent HEADERS frame with incorrect dependency"));
        }
        if head.stream <= self.last && !self.streams.contains_key(&head.stream) && !self.reset.contains(&head.stream) {
            return Err(protocol("client sent HEADERS frame with incorrect identifier"));
        }
        // Accepts trailers that were in transit when the stream was reset.
        let is_late = head.stream <= self.last && !self.streams.contains_key(&head.stream);
        if is_late && !head.has(frame::END_STREAM) && self.given_up != Some(head.stream) {
            return Err(protocol("client sent HEADERS frame without END_STREAM behind a request"));
        }
        let block = HeaderBlock {
            stream: head.stream,
            bytes: fragment.to_vec(),
            end_stream: head.has(frame::END_STREAM),
            continuations: 0,
        };
        if head.has(frame::END_HEADERS) {
            return self.block_done(block);
        }
        self.block = Some(block);
        Ok(())
    }

    /// Resets the stream of a header block that takes too long; the rest of the block is still decoded, to keep the
    /// HPACK table in step. Returns `false` if no block is incomplete.
    pub fn give_up_block(&mut self) -> bool {
        let stream = match (&self.block, Head::read(&self.pending)) {
            (Some(block), _) => block.stream,
            (None, Some(head)) if head.kind == frame::HEADERS => head.stream,
            _ => return false,
        };
        if self.reset.contains(&stream) {
            return false;
        }
        self.last = self.last.max(stream);
        self.given_up = Some(stream);
        self.resets += 1;
        frame::put_number(frame::RST_STREAM, stream, ErrorCode::Protocol as u32, &mut self.out);
        self.remember(stream);
        true
    }

    fn continuation(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        let Some(mut block) = self.block.take() else { return Ok(()) };
        block.continuations += 1;
        block.bytes.extend_from_slice(payload);
        if head.has(frame::END_HEADERS) {
            return self.block_done(block);
        }
        self.block = Some(block);
        Ok(())
    }

    fn block_done(&mut self, block: HeaderBlock) -> Result<(), ConnectionError> {
        let limits = ListLimits {
            bytes_max: self.limits.list_max,
            // Does not count pseudo-header fields.
            fields_max: self.limits.fields_max + PSEUDO_MAX,
            field_max: self.limits.field_max,
        };
        self.payload += block.bytes.len() as u64;
        let is_new = block.stream > self.last;
        self.last = self.last.max(block.stream);
        // Decodes every block, even of reset streams, to keep the HPACK table in step.
        let list = self.decoder.decode(&block.bytes, &limits).map_err(|why| ConnectionError {
            code: if why == Broken::Cut { ErrorCode::FrameSize } else { ErrorCode::Compression },
            words: "client sent a header block that cannot be decoded",
        })?;
        if list.too_large {
            return Err(ConnectionError {
                code: ErrorCode::EnhanceYourCalm,
                words: "client exceeded large_client_header_buffers",
            });
        }
        if !is_new {
            return self.trailers(&block, &list);
        }
        if self.going {
            // The GOAWAY reports the stream as unprocessed.
            self.idle_frames += 1;
            return Ok(());
        }
        if self.streams.len() >= self.limits.streams_max as usize {
            self.resets += 1;
            frame::put_number(frame::RST_STREAM, block.stream, ErrorCode::RefusedStream as u32, &mut self.out);
            self.remember(block.stream);
            return Ok(());
        }
        // Refuses the stream: before it has read the settings, the client may send more than the window allows.
        if !self.settings_acked && !block.end_stream && i64::from(self.limits.stream_window) < frame::WINDOW {
            frame::put_number(frame::RST_STREAM, block.stream, ErrorCode::RefusedStream as u32, &mut self.out);
            self.remember(block.stream);
            return Ok(());
        }
        let mut stream = Stream::new(block.stream, self.peer_window, i64::from(self.limits.stream_window));
        stream.recv_closed = block.end_stream;
        let request = request_message(&list, self.limits.underscores, self.limits.ignore_invalid);
        stream.deaf = request.is_err();
        self.streams.insert(block.stream, stream);
        // Prefers a PRIORITY_UPDATE to the `priority` field, even if the update arrived first (RFC 9218, 7).
        let update = self.priorities.as_mut().and_then(|priorities| priorities.take_update(block.stream));
        if let (Some(priority), Some(stream)) = (update, self.streams.get_mut(&block.stream)) {
            stream.priority = priority;
        } else if let Some((_, field)) = list.iter().find(|(name, _)| *name == b"priority") {
            self.set_priority(block.stream, field);
        }
        self.events.push_back(Event::Head {
            stream: block.stream.into(),
            list,
            message: request,
            end: block.end_stream,
            octets: block.bytes.len(),
        });
        Ok(())
    }

    fn trailers(&mut self, block: &HeaderBlock, list: &List) -> Result<(), ConnectionError> {
        let Some(stream) = self.streams.get_mut(&block.stream) else {
            self.idle_frames += 1;
            return Ok(());
        };
        if stream.recv_closed {
            return self.stream_error(block.stream, ErrorCode::StreamClosed);
        }
        let is_broken = list.iter().any(|(name, _)| name.starts_with(b":") || name.iter().any(u8::is_ascii_uppercase));
        if !block.end_stream || is_broken {
            return self.stream_error(block.stream, ErrorCode::Protocol);
        }
        stream.recv_closed = true;
        self.events.push_back(Event::Body(block.stream.into()));
        self.forget_if_closed(block.stream);
        Ok(())
    }

    fn priority(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        self.idle_frames += 1;
        if head.stream == 0 {
            return Err(protocol("client sent PRIORITY frame with incorrect identifier"));
        }
        if payload.len() != 5 {
            return Err(ConnectionError {
                code: ErrorCode::FrameSize,
                words: "client sent PRIORITY frame with incorrect length",
            });
        }
        // Fails the connection, as nginx does.
        if self.depends(head.stream, payload) {
            return Err(protocol("client sent PRIORITY frame with incorrect dependency"));
        }
        Ok(())
    }

    /// Applies a dependency. Returns `true`, without a change, if the stream would depend on itself.
    fn depends(&mut self, stream: u32, said: &[u8]) -> bool {
        let (Some(on), Some(weight)) = (frame::read_number(said), said.get(4)) else { return false };
        if on & 0x7fff_ffff == stream {
            return true;
        }
        self.priorities.get_or_insert_default().depends(stream, on, *weight);
        false
    }

    fn priority_update(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        self.idle_frames += 1;
        if head.stream != 0 {
            return Err(protocol("client sent PRIORITY_UPDATE frame with incorrect identifier"));
        }
        let (Some(of), Some(field)) = (frame::read_number(payload), payload.get(4..)) else {
            return Err(ConnectionError {
                code: ErrorCode::FrameSize,
                words: "client sent PRIORITY_UPDATE frame with incorrect length",
            });
        };
        let of = of & 0x7fff_ffff;
        if of == 0 || of.is_multiple_of(2) {
            return Err(protocol("client sent PRIORITY_UPDATE frame for no request"));
        }
        let priority = Priority::default().with(field);
        let priorities = self.priorities.get_or_insert_default();
        priorities.spoken();
        match self.streams.get_mut(&of) {
            Some(stream) => stream.priority = priority,
            None if of > self.last => priorities.update(of, priority),
            None => {}
        }
        Ok(())
    }

    fn rst_stream(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        if payload.len() != 4 {
            return Err(ConnectionError {
                code: ErrorCode::FrameSize,
                words: "client sent RST_STREAM frame with incorrect length",
            });
        }
        if head.stream == 0 {
            return Err(protocol("client sent RST_STREAM frame with incorrect identifier"));
        }
        let Some(stream) = self.streams.remove(&head.stream) else {
            // Both sides have reset the stream: no further frame is in transit.
            self.reset.retain(|stream| *stream != head.stream);
            return self.late(head);
        };
        // Clients end subscriptions and downloads this way.
        self.resets += u64::from(!stream.answering);
        self.events.push_back(Event::Reset(head.stream.into()));
        Ok(())
    }

    fn settings(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        let size = |words| ConnectionError { code: ErrorCode::FrameSize, words };
        if head.stream != 0 {
            return Err(protocol("client sent SETTINGS frame with incorrect identifier"));
        }
        self.idle_frames += 1;
        if head.has(frame::ACK) {
            self.settings_acked = true;
            return if payload.is_empty() {
                Ok(())
            } else {
                Err(size("client sent SETTINGS frame with the ACK flag and nonzero length"))
            };
        }
        if !payload.len().is_multiple_of(6) {
            return Err(size("client sent SETTINGS frame with incorrect length"));
        }
        self.idle_frames += (payload.len() / 6 / SETTINGS_PER_IDLE_FRAME) as u64;
        self.apply(payload)?;
        frame::put_head(0, frame::SETTINGS, frame::ACK, 0, &mut self.out);
        Ok(())
    }

    pub(super) fn apply(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        for setting in payload.chunks_exact(6) {
            let (Some(name), Some(value)) =
                (setting.first_chunk::<2>(), frame::read_number(setting.get(2..).unwrap_or_default()))
            else {
                continue;
            };
            match u16::from_be_bytes(*name) {
                frame::SETTINGS_HEADER_TABLE_SIZE => self.encoder.resize(value as usize),
                frame::SETTINGS_ENABLE_PUSH if value > 1 => {
                    return Err(protocol("client sent SETTINGS frame with incorrect ENABLE_PUSH value"));
                }
                frame::SETTINGS_INITIAL_WINDOW_SIZE => self.initial_window(value)?,
                frame::SETTINGS_MAX_FRAME_SIZE => {
                    if !(frame::FRAME_SIZE as u32..=frame::FRAME_SIZE_MAX).contains(&value) {
                        return Err(protocol("client sent SETTINGS frame with incorrect MAX_FRAME_SIZE value"));
                    }
                    self.peer_frame = value as usize;
                }
                frame::SETTINGS_NO_RFC7540_PRIORITIES if value > 1 => {
                    return Err(protocol("client sent SETTINGS frame with incorrect NO_RFC7540_PRIORITIES value"));
                }
                frame::SETTINGS_NO_RFC7540_PRIORITIES if value == 1 => {
                    self.priorities.get_or_insert_default().no_tree();
                }
                frame::SETTINGS_MAX_CONCURRENT_STREAMS | frame::SETTINGS_MAX_HEADER_LIST_SIZE => {}
                _ => {}
            }
        }
        Ok(())
    }

    fn initial_window(&mut self, value: u32) -> Result<(), ConnectionError> {
        let flow = |words| ConnectionError { code: ErrorCode::FlowControl, words };
        if i64::from(value) > frame::WINDOW_MAX {
            return Err(flow("client sent SETTINGS frame with incorrect INITIAL_WINDOW_SIZE value"));
        }
        let change = i64::from(value) - self.peer_window;
        self.peer_window = i64::from(value);
        for stream in self.streams.values_mut() {
            stream.send_window += change;
            if stream.send_window > frame::WINDOW_MAX {
                return Err(flow("a window grows beyond its limit"));
            }
        }
        self.unblock();
        Ok(())
    }

    fn unblock(&mut self) {
        if self.send_window <= 0 {
            return;
        }
        let has_window = |stream: &&mut Stream| stream.blocked && stream.send_window > 0;
        let mut found: Vec<u32> = Vec::new();
        for stream in self.streams.values_mut().filter(has_window) {
            stream.blocked = false;
            found.push(stream.id);
        }
        found.sort_unstable();
        if self.priorities.is_some() {
            found.sort_by_cached_key(|id| self.rank(*id));
        }
        self.events.extend(found.into_iter().map(|id| Event::Capacity(id.into())));
    }

    fn ping(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        if payload.len() != 8 {
            return Err(ConnectionError {
                code: ErrorCode::FrameSize,
                words: "client sent PING frame with incorrect length",
            });
        }
        if head.stream != 0 {
            return Err(protocol("client sent PING frame with incorrect identifier"));
        }
        self.idle_frames += 1;
        if !head.has(frame::ACK) {
            frame::put_head(8, frame::PING, frame::ACK, 0, &mut self.out);
            self.out.extend_from_slice(payload);
        }
        Ok(())
    }

    fn peer_goes(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        if payload.len() < 8 {
            return Err(ConnectionError {
                code: ErrorCode::FrameSize,
                words: "client sent GOAWAY frame with incorrect length",
            });
        }
        if head.stream != 0 {
            return Err(protocol("client sent GOAWAY frame with incorrect identifier"));
        }
        self.idle_frames += 1;
        self.events.push_back(Event::Goaway);
        Ok(())
    }

    fn window_update(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        let Some(more) = frame::read_number(payload).filter(|_| payload.len() == 4) else {
            return Err(ConnectionError {
                code: ErrorCode::FrameSize,
                words: "client sent WINDOW_UPDATE frame with incorrect length",
            });
        };
        let more = i64::from(more & 0x7fff_ffff);
        self.idle_frames += 1;
        if head.stream == 0 {
            if more == 0 {
                return Err(protocol("client sent WINDOW_UPDATE frame with incorrect window increment 0"));
            }
            self.send_window += more;
            if self.send_window > frame::WINDOW_MAX {
                return Err(ConnectionError {
                    code: ErrorCode::FlowControl,
                    words: "client violated flow control for connection",
                });
            }
            self.unblock();
            return Ok(());
        }
        // Rejects increment 0 even after the response has ended.
        if more == 0 && (self.streams.contains_key(&head.stream) || self.reset.contains(&head.stream)) {
            return self.stream_error(head.stream, ErrorCode::Protocol);
        }
        let Some(stream) = self.streams.get_mut(&head.stream) else { return self.late(head) };
        stream.send_window += more;
        if stream.send_window > frame::WINDOW_MAX {
            return self.stream_error(head.stream, ErrorCode::FlowControl);
        }
        if stream.blocked && stream.send_window > 0 && self.send_window > 0 {
            stream.blocked = false;
            self.events.push_back(Event::Capacity(head.stream.into()));
        }
        Ok(())
    }

    fn stream_error(&mut self, stream: u32, code: ErrorCode) -> Result<(), ConnectionError> {
        // Counts like the client's own resets.
        self.resets += 1;
        frame::put_number(frame::RST_STREAM, stream, code as u32, &mut self.out);
        self.remember(stream);
        if self.streams.remove(&stream).is_some() {
            self.events.push_back(Event::Reset(stream.into()));
        }
        Ok(())
    }

    pub(super) fn remember(&mut self, stream: u32) {
        if self.reset.len() >= RESET_KEPT {
            self.reset.pop_front();
        }
        self.reset.push_back(stream);
    }

    pub(super) fn forget_if_closed(&mut self, stream: u32) {
        if self.streams.get(&stream).is_some_and(|s| s.is_closed() && s.body.is_empty()) {
            self.streams.remove(&stream);
        }
    }
}

fn make_room(pending: &mut Vec<u8>, more: usize) {
    let needed = pending.len() + more;
    if needed <= pending.capacity() {
        return;
    }
    let whole = Head::read(pending).map_or(frame::HEADER, |head| frame::HEADER + head.length);
    let room = (2 * pending.capacity()).min(whole).max(needed);
    pending.reserve_exact(room - pending.len());
}

fn protocol(words: &'static str) -> ConnectionError {
    ConnectionError { code: ErrorCode::Protocol, words }
}
