//! Client side of one HTTP/3 connection, for requests to upstream servers, the load generator, and tests.

use crate::frame::{self, ConnectionError, ErrorCode, Settings, connection_error};
use crate::qpack::{Broken, DecodedSection};
use crate::reader::{ControlFrame, MessagePart};
use crate::session::{Read, Session, error_code};
use crate::stream::{Phase, Stream};
use bytes::{Buf, Bytes};
use http_types::{ByStream, FieldLines, List, ListLimits, TakenLines};
use quinn_proto::{Connection, Dir, Event as QuicEvent, StreamEvent, StreamId, VarInt, WriteError};
use std::collections::VecDeque;
use std::time::Instant;

/// Maximum number of interim responses to one request.
const INTERIM_MAX: u32 = 1000;
/// Maximum number of sections that wait for entries of the dynamic table.
const BLOCKED_STREAMS_MAX: usize = 16;

/// Limits of the data that a server may send.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Maximum octets of all names and values of a response, octets of one name and value, and number of fields.
    pub list_max: usize,
    /// Maximum octets of one name and value.
    pub field_max: usize,
    /// Maximum number of fields.
    pub fields_max: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        ClientLimits { list_max: 64 * 1024, field_max: 32 * 1024, fields_max: 1000 }
    }
}

/// Events of a connection.
#[derive(Debug)]
pub enum ClientEvent {
    /// The handshake is complete. Refused 0-RTT requests have no further events.
    Connected {
        /// The server has accepted 0-RTT requests.
        early_accepted: bool,
    },
    /// The server's SETTINGS frame has arrived.
    Settings(Settings),
    /// Head of a response, of `octets` encoded octets; `status` below 200 marks an interim response.
    Head {
        /// The stream.
        stream: u64,
        /// Status code.
        status: u16,
        /// Decoded fields, `:status` among them.
        list: List,
        /// Octets of the encoded section.
        octets: usize,
    },
    /// A part of a body, or its end, has arrived; see [`Client::take_body`].
    Body(u64),
    /// Trailer fields of a response.
    Trailers {
        /// The stream.
        stream: u64,
        /// Decoded fields.
        list: List,
    },
    /// The server has reset a stream, or violated the protocol on it.
    Reset {
        /// The stream.
        stream: u64,
        /// Error code of the server, or this side's for a violation (RFC 9114, 8.1).
        code: u64,
    },
    /// A stream accepts further octets.
    Capacity(u64),
    /// The server processes no requests from this stream on (GOAWAY).
    Goaway(u64),
    /// The connection has ended.
    Lost(String),
}

/// Client side of one connection. Contains the `quinn_proto::Connection`, whose owner drives both, without I/O and with
/// the owner's time.
///
/// # Order of calls
///
/// [`Client::quic`] lends the connection: for events of the endpoint, timeouts and transmits. After events and
/// timeouts, call [`Client::drive`], then [`Client::poll_event`] until there is none. Requests go to QUIC when they are
/// sent, as far as it takes them; [`ClientEvent::Capacity`] announces room for more. After any of these calls the owner
/// polls QUIC's endpoint events, transmits and timeout: nothing leaves otherwise. A stream ends with the end of its
/// response ([`Client::take_body`]), [`ClientEvent::Reset`] or [`Client::cancel`].
pub struct Client {
    session: Session,
    limits: ClientLimits,
    streams: ByStream<Stream>,
    interim: ByStream<u32>,
    events: VecDeque<ClientEvent>,
    failed: Option<ConnectionError>,
    goaway: Option<u64>,
    closed: bool,
    decoded_with: u64,
    reserved: Option<StreamId>,
}

impl Client {
    /// Creates the client side of a connection of `quinn-proto`, before or after its handshake.
    pub fn new(quic: Connection, limits: ClientLimits) -> Client {
        let section_max = limits.list_max as u64;
        Client {
            session: Session::new(quic, BLOCKED_STREAMS_MAX as u64, section_max, limits.field_max, false),
            limits,
            streams: ByStream::default(),
            interim: ByStream::default(),
            events: VecDeque::new(),
            failed: None,
            goaway: None,
            closed: false,
            decoded_with: 0,
            reserved: None,
        }
    }
    /// The QUIC connection, for the endpoint that carries it. After events and timeouts, call [`Client::drive`].
    pub fn quic(&mut self) -> &mut Connection {
        &mut self.session.quic
    }
    /// Returns the error that ends the connection; [`Client::close`] sends it to the server.
    pub fn failure(&self) -> Option<ConnectionError> {
        self.failed
    }
    /// Returns the number of open streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }
    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }
    /// Closes the connection.
    pub fn close(&mut self, now: Instant) {
        if !self.closed {
            self.closed = true;
            let (why, words) = self.failed.map_or((ErrorCode::NoError, ""), |error| (error.code, error.words));
            self.session.quic.close(now, error_code(why), Bytes::from_static(words.as_bytes()));
        }
    }

    fn fail(&mut self, error: ConnectionError) {
        if self.failed.is_none() {
            self.failed = Some(error);
            self.drop_streams(error.code as u32);
        }
    }
    fn drop_streams(&mut self, code: u32) {
        let mut gone: Vec<u64> = self.streams.drain().map(|(id, _)| id).collect();
        gone.sort_unstable();
        self.events.extend(gone.into_iter().map(|stream| ClientEvent::Reset { stream, code: code.into() }));
    }

    /// Starts a request. Names in `fields` are in lower case, and pseudo-header fields come first. Returns `None` if no
    /// stream is available, or if the server accepts no more requests.
    pub fn open(&mut self, fields: FieldLines<'_, '_>, end: bool) -> Option<u64> {
        if self.failed.is_some() || self.goaway.is_some() {
            return None;
        }
        let id = self.open_stream()?;
        self.section(id, fields, end);
        Some(id)
    }

    /// Starts a request with a section from [`crate::encoded_section`], as [`Client::open`].
    pub fn open_encoded(&mut self, section: &[u8], end: bool) -> Option<u64> {
        if self.failed.is_some() || self.goaway.is_some() {
            return None;
        }
        let id = self.open_stream()?;
        self.send_section(id, section, end);
        Some(id)
    }

    /// Reserves a stream for the next request. Returns `false` if the server allows no further stream at the moment.
    pub fn reserve(&mut self) -> bool {
        if self.reserved.is_none() {
            self.reserved = self.session.quic.streams().open(Dir::Bi);
        }
        self.reserved.is_some()
    }

    fn open_stream(&mut self) -> Option<u64> {
        let id: u64 = self.reserved.take().or_else(|| self.session.quic.streams().open(Dir::Bi))?.into();
        self.streams.insert(id, Stream::new(2 * self.limits.list_max as u64 + 4096));
        Some(id)
    }

    fn section(&mut self, id: u64, fields: FieldLines<'_, '_>, end: bool) {
        let mut section = Vec::with_capacity(256);
        self.session.encoder.section(id, None, fields, &mut section);
        self.send_section(id, &section, end);
    }

    fn send_section(&mut self, id: u64, section: &[u8], end: bool) {
        let mut out = Vec::with_capacity(frame::head_length(section.len()) + section.len());
        frame::put_head(frame::HEADERS, section.len(), &mut out);
        out.extend_from_slice(section);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.queue(out);
            stream.fin |= end;
        }
        self.push(id);
        self.flush();
    }

    /// Queues a part of a body and returns the number of accepted octets. `end` ends the body if all octets were
    /// accepted; otherwise [`ClientEvent::Capacity`] follows.
    pub fn send_body(&mut self, id: u64, body: &[u8], end: bool) -> usize {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.fin) else { return 0 };
        let (now, later) = body.split_at(body.len().min(stream.room()));
        if !now.is_empty() {
            let mut out = Vec::with_capacity(frame::head_length(now.len()) + now.len());
            frame::put_head(frame::DATA, now.len(), &mut out);
            out.extend_from_slice(now);
            stream.queue(out);
        }
        stream.fin = end && later.is_empty();
        stream.starved = !later.is_empty();
        self.push(id);
        now.len()
    }

    /// Tells whether the server still accepts a request's body.
    pub fn takes_body(&self, id: u64) -> bool {
        self.streams.get(&id).is_some_and(|stream| !stream.fin)
    }

    /// Sends trailer fields.
    pub fn send_trailers(&mut self, id: u64, fields: FieldLines<'_, '_>) {
        self.section(id, fields, true);
    }

    /// Cancels a request.
    pub fn cancel(&mut self, id: u64) {
        if self.streams.contains_key(&id) {
            self.end_in_quic(id, ErrorCode::RequestCancelled);
            self.forget(id);
            self.flush();
        }
    }

    fn end_in_quic(&mut self, id: u64, why: ErrorCode) {
        let _ = self.session.quic.recv_stream(stream_id(id)).stop(error_code(why));
        let _ = self.session.quic.send_stream(stream_id(id)).reset(error_code(why));
    }

    fn forget(&mut self, id: u64) {
        self.interim.remove(&id);
        if self.streams.remove(&id).is_some_and(|stream| !stream.ended) {
            self.session.cancel(id);
        }
    }

    fn flush(&mut self) {
        if let Err(error) = self.session.flush() {
            self.fail(error);
        }
    }

    fn push(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let mut quic = self.session.quic.send_stream(stream_id(id));
        while let Some(front) = stream.out.front_mut() {
            let before = front.len();
            match quic.write_chunks(std::slice::from_mut(front)) {
                Ok(written) => {
                    stream.queued -= written.bytes;
                    if written.bytes == before {
                        stream.out.pop_front();
                    }
                }
                Err(WriteError::Blocked) => break,
                Err(_) => {
                    stream.queued -= front.remaining();
                    stream.out.pop_front();
                }
            }
        }
        if stream.starved && stream.room() > 0 {
            stream.starved = false;
            self.events.push_back(ClientEvent::Capacity(id));
        }
        if stream.fin && !stream.fin_sent && stream.out.is_empty() {
            stream.fin_sent = true;
            let _ = quic.finish();
        }
    }

    /// Processes events of the QUIC connection, and sends queued octets.
    pub fn drive(&mut self) {
        let mut control = Vec::new();
        while let Some(event) = self.session.quic.poll() {
            let result = match event {
                QuicEvent::Connected => {
                    let early_accepted = self.session.quic.accepted_0rtt();
                    self.events.push_back(ClientEvent::Connected { early_accepted });
                    Ok(())
                }
                QuicEvent::ConnectionLost { reason } => {
                    self.drop_streams(ErrorCode::Internal as u32);
                    self.events.push_back(ClientEvent::Lost(reason.to_string()));
                    return;
                }
                QuicEvent::Stream(StreamEvent::Opened { dir: Dir::Uni }) => self.session.accept_uni(&mut control),
                QuicEvent::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                    // RFC 9114, 6.1
                    Err(connection_error(ErrorCode::StreamCreation, "server opened a bidirectional stream"))
                }
                QuicEvent::Stream(StreamEvent::Readable { id }) if id.dir() == Dir::Uni => {
                    self.session.read_uni(id, &mut control)
                }
                QuicEvent::Stream(StreamEvent::Readable { id }) => self.readable(id.into()),
                QuicEvent::Stream(StreamEvent::Writable { id }) => {
                    self.push(id.into());
                    Ok(())
                }
                QuicEvent::Stream(StreamEvent::Stopped { id, .. }) => self.stopped(id),
                _ => Ok(()),
            };
            if let Err(error) = result {
                return self.fail(error);
            }
        }
        for frame in control {
            match frame {
                ControlFrame::Settings(settings) => self.events.push_back(ClientEvent::Settings(settings)),
                ControlFrame::Goaway(id) => {
                    self.goaway = Some(id);
                    self.events.push_back(ClientEvent::Goaway(id));
                }
                ControlFrame::Priority { .. } => {}
            }
        }
        if let Err(error) = self.unblock() {
            return self.fail(error);
        }
        self.flush();
    }

    /// Handles STOP_SENDING for a request; the response may still arrive (RFC 9114, 4.1).
    fn stopped(&mut self, id: StreamId) -> Result<(), ConnectionError> {
        if self.session.is_critical(id) {
            return Err(connection_error(ErrorCode::ClosedCriticalStream, "server closed critical stream"));
        }
        let _ = self.session.quic.send_stream(id).reset(error_code(ErrorCode::NoError));
        if let Some(stream) = self.streams.get_mut(&id.into()) {
            stream.out.clear();
            stream.queued = 0;
            (stream.fin, stream.fin_sent, stream.starved) = (true, true, false);
        }
        Ok(())
    }

    fn readable(&mut self, id: u64) -> Result<(), ConnectionError> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if stream.phase == Phase::Head {
            return self.read_head(id);
        }
        if let Ok(Some(code)) = self.session.quic.recv_stream(stream_id(id)).received_reset() {
            self.gone(id, code.into_inner());
        } else if std::mem::take(&mut stream.hungry) {
            self.events.push_back(ClientEvent::Body(id));
        }
        Ok(())
    }

    fn gone(&mut self, id: u64, code: u64) {
        self.end_in_quic(id, ErrorCode::RequestCancelled);
        self.forget(id);
        self.events.push_back(ClientEvent::Reset { stream: id, code });
    }

    fn read_head(&mut self, id: u64) -> Result<(), ConnectionError> {
        loop {
            let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
            if stream.blocked_section.is_some() {
                return Ok(());
            }
            match stream.reader.next(&mut stream.input)? {
                Some(MessagePart::Section(section)) => {
                    self.head(id, section)?;
                    if self.streams.get(&id).is_none_or(|stream| stream.phase == Phase::Body) {
                        return Ok(());
                    }
                    continue;
                }
                Some(MessagePart::Data(_)) => return Ok(()),
                None => {}
            }
            match stream.read_next(stream_id(id), &mut self.session)? {
                Read::Bytes(bytes) => stream.input = bytes,
                Read::Blocked => return Ok(()),
                Read::End => {
                    self.gone(id, ErrorCode::RequestIncomplete as u64);
                    return Ok(());
                }
                Read::Reset(code) => {
                    self.gone(id, code);
                    return Ok(());
                }
            }
        }
    }

    fn decode(&mut self, id: u64, section: &[u8]) -> Result<Option<List>, ConnectionError> {
        let limits = ListLimits {
            bytes_max: self.limits.list_max,
            fields_max: self.limits.fields_max,
            field_max: self.limits.field_max,
        };
        match self.session.decoder.decode(section, &limits) {
            Ok(DecodedSection::List { list, required }) => {
                self.session.payload += section.len() as u64;
                self.session.acknowledge(id, required);
                Ok(Some(list))
            }
            Ok(DecodedSection::Blocked(required)) => {
                let blocked = self.streams.values().filter(|stream| stream.blocked_section.is_some()).count();
                if blocked >= BLOCKED_STREAMS_MAX {
                    return Err(connection_error(
                        ErrorCode::DecompressionFailed,
                        "server exceeded the limit of blocked streams",
                    ));
                }
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.blocked_section = Some((section.to_vec(), required));
                }
                Ok(None)
            }
            Err(Broken::Cut) => {
                Err(connection_error(ErrorCode::DecompressionFailed, "server sent a section that is cut"))
            }
            Err(Broken::Code(words)) => Err(connection_error(ErrorCode::DecompressionFailed, words)),
            Err(Broken::Large(words)) => Err(connection_error(ErrorCode::ExcessiveLoad, words)),
        }
    }

    fn head(&mut self, id: u64, section: Vec<u8>) -> Result<(), ConnectionError> {
        let Some(list) = self.decode(id, &section)? else { return Ok(()) };
        if list.too_large || list.too_many {
            self.gone(id, ErrorCode::ExcessiveLoad as u64);
            return Ok(());
        }
        let Some(status) = status(&list) else {
            self.gone(id, ErrorCode::Message as u64);
            return Ok(());
        };
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if status < 200 {
            let seen = self.interim.entry(id).or_default();
            *seen += 1;
            if *seen > INTERIM_MAX || status == 101 {
                self.gone(id, ErrorCode::Message as u64);
                return Ok(());
            }
            stream.reader.interim_seen();
        } else {
            stream.phase = Phase::Body;
        }
        self.events.push_back(ClientEvent::Head { stream: id, status, list, octets: section.len() });
        if status >= 200 {
            self.events.push_back(ClientEvent::Body(id));
        }
        Ok(())
    }

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
                        self.events.push_back(ClientEvent::Trailers { stream: id, list });
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
                Read::Reset(code) => self.gone(id, code),
            }
        }
    }

    /// Returns the next part of a response's body. After [`TakenLines::End`] and [`TakenLines::Broken`] the stream does not exist
    /// any more.
    pub fn take_body(&mut self, id: u64) -> TakenLines {
        if let Err(error) = self.fill(id) {
            self.fail(error);
            return TakenLines::Gone;
        }
        let Some(stream) = self.streams.get_mut(&id) else { return TakenLines::Gone };
        if !stream.front.is_empty() {
            stream.taken += stream.front.len() as u64;
            return TakenLines::Bytes(std::mem::take(&mut stream.front));
        }
        if stream.ended {
            let is_broken = stream.is_broken();
            if stream.fin_sent {
                self.forget(id);
            } else {
                self.cancel(id);
            }
            return if is_broken { TakenLines::Broken } else { TakenLines::End };
        }
        stream.hungry = true;
        TakenLines::Later
    }

    fn unblock(&mut self) -> Result<(), ConnectionError> {
        let inserted = self.session.decoder.inserted();
        if std::mem::replace(&mut self.decoded_with, inserted) == inserted {
            return Ok(());
        }
        let is_ready = |stream: &Stream| stream.blocked_section.as_ref().is_some_and(|(_, needs)| *needs <= inserted);
        let ready: Vec<u64> = self.streams.iter().filter(|(_, stream)| is_ready(stream)).map(|(id, _)| *id).collect();
        for id in ready {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let Some((section, _)) = stream.blocked_section.take() else { continue };
            if stream.phase == Phase::Head {
                self.head(id, section)?;
                self.readable(id)?;
                continue;
            }
            if let Some(list) = self.decode(id, &section)? {
                self.events.push_back(ClientEvent::Trailers { stream: id, list });
            }
            self.readable(id)?;
        }
        Ok(())
    }
}

fn stream_id(id: u64) -> StreamId {
    StreamId::from(VarInt::from_u64(id).unwrap_or(VarInt::MAX))
}

/// Returns the status of a response's head (RFC 9114, 4.3.2), or `None` for a malformed head.
fn status(list: &List) -> Option<u16> {
    let mut fields = list.iter();
    let (name, value) = fields.next()?;
    let [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = *value else { return None };
    let is_field = |name: &[u8], value: &[u8]| {
        !name.is_empty()
            && !name.starts_with(b":")
            && !name.iter().any(|c| c.is_ascii_uppercase() || *c <= b' ')
            && !value.iter().any(|c| matches!(c, 0 | b'\r' | b'\n'))
            && !http_types::is_connection_field(name, value)
    };
    (name == b":status" && fields.all(|(name, value)| is_field(name, value)))
        .then(|| u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0'))
}
