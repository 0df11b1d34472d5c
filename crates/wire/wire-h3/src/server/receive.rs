//! Receiving side of a server connection: turns a client's octets into events.

use super::{MANY_STREAMS, Server, UPDATES_MAX, send_window, stream_id};
use crate::frame::{ConnectionError, ErrorCode, connection_error};
use crate::qpack::{Broken, DecodedSection};
use crate::reader::{ControlFrame, MessagePart};
use crate::session::{Read, error_code};
use crate::stream::{Phase, Stream};
use http_types::{Event, List, ListLimits, Priority, RequestFault, TakenLines, request_message};
use quinn_proto::{Dir, Event as QuicEvent, StreamEvent, StreamId};

/// Number of pseudo-header fields of a request: `:method`, `:scheme`, `:authority`, `:path`, `:protocol`.
const PSEUDO_MAX: usize = 5;
/// Maximum number of streams that the client resets before their response begins, or that are reset because of it; each
/// answered request permits one more.
const RESETS_MAX: u64 = 200;

impl Server {
    /// Processes events of the QUIC connection, and sends queued octets. Must be called after each event and timeout;
    /// [`Server::failure`] and [`Server::lost`] return the reason of an end.
    pub fn drive(&mut self) {
        let window = send_window(self.session.quic.congestion_state().window());
        self.session.quic.set_send_window(window);
        let mut control = Vec::new();
        let mut writable = Vec::new();
        while let Some(event) = self.session.quic.poll() {
            let result = match event {
                QuicEvent::Connected => {
                    self.connected = true;
                    Ok(())
                }
                QuicEvent::ConnectionLost { reason } => {
                    self.lost = Some(reason);
                    self.drop_streams();
                    Ok(())
                }
                QuicEvent::Stream(StreamEvent::Opened { dir: Dir::Uni }) => self.session.accept_uni(&mut control),
                QuicEvent::Stream(StreamEvent::Opened { dir: Dir::Bi }) => self.accept(),
                QuicEvent::Stream(StreamEvent::Readable { id }) if id.dir() == Dir::Uni => {
                    self.session.read_uni(id, &mut control)
                }
                QuicEvent::Stream(StreamEvent::Readable { id }) => self.readable(id.into()),
                QuicEvent::Stream(StreamEvent::Writable { id }) => {
                    writable.push(id.into());
                    Ok(())
                }
                QuicEvent::Stream(StreamEvent::Stopped { id, .. }) => self.stopped(id),
                _ => Ok(()),
            };
            if self.lost.is_some() {
                return;
            }
            if let Err(error) = result {
                return self.fail(error);
            }
        }
        if self.failed.is_some() {
            return;
        }
        for frame in control {
            self.control(frame);
        }
        if self.urgency {
            writable.sort_by_cached_key(|id| self.rank(*id));
        }
        for id in writable {
            self.push(id);
        }
        if let Err(error) = self.unblock() {
            return self.fail(error);
        }
        if self.resets > RESETS_MAX + self.answered {
            return self.fail(connection_error(ErrorCode::ExcessiveLoad, "http3 flood detected"));
        }
        if self.connected && !self.session.is_open() {
            self.flush();
            if !self.session.is_open() {
                self.fail(connection_error(ErrorCode::StreamCreation, "failed to create server stream"));
            }
            return;
        }
        self.flush();
    }

    fn accept(&mut self) -> Result<(), ConnectionError> {
        while let Some(id) = self.session.quic.streams().accept(Dir::Bi) {
            let id: u64 = id.into();
            if self.going {
                // The GOAWAY has told the client that this stream is not processed.
                self.end_in_quic(id, ErrorCode::RequestRejected);
                self.session.cancel(id);
                continue;
            }
            self.next = id + 4;
            self.streams.insert(id, Stream::new(self.limits.section_max()));
            if self.streams.len() == MANY_STREAMS {
                let most = quinn_proto::VarInt::from_u32(self.limits.streams_max);
                self.session.quic.set_max_concurrent_streams(Dir::Bi, most);
            }
            self.read_head(id)?;
        }
        Ok(())
    }

    fn readable(&mut self, id: u64) -> Result<(), ConnectionError> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if stream.phase == Phase::Head {
            return self.read_head(id);
        }
        if matches!(self.session.quic.recv_stream(stream_id(id)).received_reset(), Ok(Some(_))) {
            self.gone(id, ErrorCode::RequestCancelled);
        } else if std::mem::take(&mut stream.hungry) {
            self.events.push_back(Event::Body(id));
        }
        Ok(())
    }

    /// Handles STOP_SENDING: the client reads no more of a response.
    fn stopped(&mut self, id: StreamId) -> Result<(), ConnectionError> {
        if self.session.is_critical(id) {
            return Err(connection_error(ErrorCode::ClosedCriticalStream, "client closed critical stream"));
        }
        if self.streams.contains_key(&id.into()) {
            self.gone(id.into(), ErrorCode::RequestCancelled);
        } else {
            let _ = self.session.quic.send_stream(id).reset(error_code(ErrorCode::RequestCancelled));
        }
        Ok(())
    }

    /// Ends a stream early, because of a reset or a violation by the client.
    pub(super) fn gone(&mut self, id: u64, why: ErrorCode) {
        // Both RESET_STREAM and STOP_SENDING can arrive for one stream. Clients end subscriptions and downloads this way.
        let ends = |stream: &Stream| stream.answering && why == ErrorCode::RequestCancelled;
        self.resets += u64::from(self.streams.get(&id).is_none_or(|stream| !stream.cut && !ends(stream)));
        self.end_in_quic(id, why);
        if self.forget(id).is_some_and(|stream| stream.phase == Phase::Body && !stream.released) {
            self.events.push_back(Event::Reset(id));
        }
    }

    pub(super) fn forget(&mut self, id: u64) -> Option<Stream> {
        let stream = self.streams.remove(&id)?;
        self.queued -= stream.queued as u32;
        self.blocked_sections -= u32::from(stream.blocked_section.is_some());
        if !stream.ended {
            self.session.cancel(id);
        }
        Some(stream)
    }

    /// Ends both directions of a stream in QUIC.
    pub(super) fn end_in_quic(&mut self, id: u64, why: ErrorCode) {
        let id = stream_id(id);
        let _ = self.session.quic.recv_stream(id).stop(error_code(why));
        let _ = self.session.quic.send_stream(id).reset(error_code(why));
    }

    /// Reads a stream until its head is complete or the available octets are used up.
    fn read_head(&mut self, id: u64) -> Result<(), ConnectionError> {
        if self.session.hq {
            return self.read_line(id);
        }
        loop {
            let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
            if stream.blocked_section.is_some() {
                // The head waits for the dynamic table; meanwhile the stream may be reset.
                if matches!(self.session.quic.recv_stream(stream_id(id)).received_reset(), Ok(Some(_))) {
                    self.cut_head(id);
                }
                return Ok(());
            }
            match stream.reader.next(&mut stream.input)? {
                Some(MessagePart::Section(section)) => return self.head(id, section),
                // The reader rejects data before a head.
                Some(MessagePart::Data(_)) => return Ok(()),
                None => {}
            }
            match stream.read_next(stream_id(id), &mut self.session)? {
                Read::Bytes(bytes) => stream.input = bytes,
                Read::Blocked => return Ok(()),
                Read::End => {
                    stream.ended = true;
                    self.gone(id, ErrorCode::RequestIncomplete);
                    return Ok(());
                }
                Read::Reset(_) => {
                    self.cut_head(id);
                    return Ok(());
                }
            }
        }
    }

    /// Handles a reset within a request's head. The client may still read the response, which is 400, as in nginx.
    fn cut_head(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        self.blocked_sections -= u32::from(stream.blocked_section.take().is_some());
        stream.phase = Phase::Body;
        (stream.ended, stream.cut) = (true, true);
        self.resets += 1;
        self.session.cancel(id);
        let message = Err(RequestFault::Cut.into());
        self.events.push_back(Event::Head { stream: id, list: List::default(), message, end: true, octets: 0 });
    }

    /// Decodes a section. Returns `None` if the section waits for entries.
    fn decode(&mut self, id: u64, section: &[u8]) -> Result<Option<List>, ConnectionError> {
        let limits = ListLimits {
            bytes_max: self.limits.list_max,
            // Does not count pseudo-header fields.
            fields_max: self.limits.fields_max + PSEUDO_MAX,
            field_max: self.limits.field_max,
        };
        match self.session.decoder.decode(section, &limits) {
            Ok(DecodedSection::List { list, required }) => {
                self.session.payload += section.len() as u64;
                self.session.acknowledge(id, required);
                Ok(Some(list))
            }
            Ok(DecodedSection::Blocked(required)) => {
                self.blocked_sections += 1;
                if u64::from(self.blocked_sections) > super::BLOCKED_STREAMS_MAX.min(u64::from(self.limits.streams_max))
                {
                    let words = "client exceeded http3_max_blocked_streams limit";
                    return Err(connection_error(ErrorCode::DecompressionFailed, words));
                }
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.blocked_section = Some((section.to_vec(), required));
                }
                Ok(None)
            }
            Err(why) => Err(match why {
                Broken::Cut => connection_error(
                    ErrorCode::DecompressionFailed,
                    "client sent a header block that cannot be decoded",
                ),
                Broken::Code(words) => connection_error(ErrorCode::DecompressionFailed, words),
                Broken::Large(words) => connection_error(ErrorCode::ExcessiveLoad, words),
            }),
        }
    }

    fn head(&mut self, id: u64, section: Vec<u8>) -> Result<(), ConnectionError> {
        let Some(list) = self.decode(id, &section)? else { return Ok(()) };
        let mut octets = section.len();
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.phase = Phase::Body;
            // As in nginx, the length of a request has those of its frames.
            octets += stream.reader.take_overhead() as usize;
        }
        // Prefers a PRIORITY_UPDATE to the field, even if the update arrived first (RFC 9218, 7).
        let update = self.updates.iter().position(|(of, _)| *of == id).and_then(|at| self.updates.remove(at));
        if let Some((_, priority)) = update {
            self.set_priority(id, priority);
        } else if let Some((_, field)) = list.iter().find(|(name, _)| *name == b"priority") {
            self.set_priority(id, Priority::default().with(field));
        } else {
            self.rank_in_quic(id);
        }
        let message = request_message(&list, self.limits.underscores, self.limits.ignore_invalid);
        self.fill(id)?;
        let Some(stream) = self.streams.get(&id) else { return Ok(()) };
        let end = stream.ended && !stream.cut && !stream.reader.has_data();
        self.events.push_back(Event::Head { stream: id, list, message, end, octets });
        Ok(())
    }

    /// Reads on until octets of the body are available or all received octets are used up.
    fn fill(&mut self, id: u64) -> Result<(), ConnectionError> {
        loop {
            let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
            if !stream.front.is_empty() || stream.ended || stream.blocked_section.is_some() {
                return Ok(());
            }
            match stream.reader.next(&mut stream.input)? {
                Some(MessagePart::Data(data)) => {
                    stream.received += data.len() as u64;
                    self.session.payload += data.len() as u64;
                    stream.front = data;
                    return Ok(());
                }
                Some(MessagePart::Section(section)) => {
                    if let Some(list) = self.decode(id, &section)? {
                        self.trailers(id, &list);
                    }
                    continue;
                }
                None => {}
            }
            match stream.read_next(stream_id(id), &mut self.session)? {
                Read::Bytes(bytes) => stream.input = bytes,
                Read::Blocked => return Ok(()),
                Read::End => {
                    stream.ended = true;
                    stream.cut = !stream.reader.is_between_frames();
                }
                Read::Reset(_) => self.gone(id, ErrorCode::RequestCancelled),
            }
        }
    }

    /// Decodes trailers only to keep the QPACK tables in step; requests do not contain them, as in nginx.
    fn trailers(&mut self, id: u64, list: &List) {
        let is_broken = list.iter().any(|(name, _)| name.starts_with(b":") || name.iter().any(u8::is_ascii_uppercase));
        if is_broken {
            self.gone(id, ErrorCode::Message);
        }
    }

    /// Decodes blocked sections whose entries have arrived.
    fn unblock(&mut self) -> Result<(), ConnectionError> {
        let inserted = self.session.decoder.inserted();
        if std::mem::replace(&mut self.decoded_with, inserted) == inserted || self.blocked_sections == 0 {
            return Ok(());
        }
        let is_ready = |stream: &Stream| stream.blocked_section.as_ref().is_some_and(|(_, needs)| *needs <= inserted);
        let mut ready: Vec<u64> =
            self.streams.iter().filter(|(_, stream)| is_ready(stream)).map(|(id, _)| *id).collect();
        ready.sort_unstable();
        for id in ready {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let Some((section, _)) = stream.blocked_section.take() else { continue };
            self.blocked_sections -= 1;
            if stream.phase == Phase::Head {
                self.head(id, section)?;
                continue;
            }
            if let Some(list) = self.decode(id, &section)? {
                self.trailers(id, &list);
            }
            if let Some(stream) = self.streams.get_mut(&id)
                && std::mem::take(&mut stream.hungry)
            {
                self.events.push_back(Event::Body(id));
            }
        }
        Ok(())
    }

    fn control(&mut self, frame: ControlFrame) {
        match frame {
            ControlFrame::Settings(_) => {}
            ControlFrame::Goaway(_) => self.events.push_back(Event::Goaway),
            ControlFrame::Priority { stream, field } => {
                let priority = Priority::default().with(&field);
                if self.streams.contains_key(&stream) {
                    self.set_priority(stream, priority);
                } else if stream >= self.next {
                    self.updates.retain(|(of, _)| *of != stream);
                    if self.updates.len() >= UPDATES_MAX {
                        self.updates.pop_front();
                    }
                    self.updates.push_back((stream, priority));
                }
            }
        }
    }

    /// Returns the next part of a request's body. Reading opens the client's windows.
    pub fn take_body(&mut self, id: u64) -> TakenLines {
        if self.streams.get(&id).is_some_and(Stream::is_broken) {
            return TakenLines::Broken;
        }
        if let Err(error) = self.fill(id) {
            self.fail(error);
            return TakenLines::Gone;
        }
        let Some(stream) = self.streams.get_mut(&id) else { return TakenLines::Gone };
        if stream.is_broken() {
            return TakenLines::Broken;
        }
        if !stream.front.is_empty() {
            stream.taken += stream.front.len() as u64;
            return TakenLines::Bytes(std::mem::take(&mut stream.front));
        }
        if stream.ended {
            return TakenLines::End;
        }
        stream.hungry = true;
        TakenLines::Later
    }

    /// Resets the streams of all incomplete heads, of which one has taken too long. Returns `false` if no head is
    /// incomplete.
    pub fn give_up_head(&mut self) -> bool {
        let late = |(id, stream): (&u64, &Stream)| (stream.phase == Phase::Head).then_some(*id);
        let mut late: Vec<u64> = self.streams.iter().filter_map(late).collect();
        late.sort_unstable();
        late.iter().for_each(|id| self.gone(*id, ErrorCode::GeneralProtocol));
        !late.is_empty()
    }
}
