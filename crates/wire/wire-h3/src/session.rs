//! Parts of a connection that servers and clients share: unidirectional streams, settings, QPACK.

use crate::frame::{self, ConnectionError, ErrorCode, Settings, connection_error, put_varint, read_varint};
use crate::qpack::{Decoder, Encoder, TABLE_CAPACITY_MAX};
use crate::reader::{ControlFrame, ControlReader};
use bytes::{Buf, Bytes};
use quinn_proto::{Connection, Dir, ReadError, Side, StreamId, VarInt};

/// Maximum octets queued for one of this side's unidirectional streams.
const WAITING_MAX: usize = 64 * 1024;
/// Maximum octets of frames per octet of fields and bodies, beyond a credit (nginx: `ngx_http_v3_check_flood`).
const OCTETS_PER_PAYLOAD: u64 = 8;
const PAYLOAD_CREDIT: u64 = 1024 * 1024;
/// Maximum number of open unidirectional streams of unknown types.
const UNKNOWN_MAX: usize = 8;

const CLOSED: ConnectionError = connection_error(ErrorCode::ClosedCriticalStream, "client closed critical stream");

/// Converts a code for `quinn-proto`.
pub fn error_code(code: ErrorCode) -> VarInt {
    VarInt::from_u32(code as u32)
}

/// Result of reading a stream.
#[derive(Debug)]
pub enum Read {
    /// Octets of the stream, in order.
    Bytes(Bytes),
    /// None have arrived.
    Blocked,
    /// The peer has ended its side.
    End,
    /// The stream has ended: the code of the peer's reset, or 0 if the stream does not exist any more.
    Reset(u64),
}

/// A unidirectional stream that this side has opened.
#[derive(Debug, Default)]
struct OutgoingStream {
    id: Option<StreamId>,
    waiting: Vec<u8>,
}

#[derive(Debug)]
enum StreamKind {
    /// The stream's type is incomplete.
    Unknown(Vec<u8>),
    Control(ControlReader),
    Encoder,
    Decoder,
}

#[derive(Debug)]
struct IncomingStream {
    id: StreamId,
    kind: StreamKind,
}

/// The shared part of a connection. Changes of `quic` are followed by [`Session::flush`].
pub struct Session {
    /// The QUIC connection.
    pub quic: Connection,
    /// HTTP/0.9: only request streams.
    pub hq: bool,
    /// The handshake has not selected the protocol yet, so no stream is opened.
    pub undecided: bool,
    /// Encoder of this side's sections.
    pub encoder: Encoder,
    /// Decoder of the peer's sections.
    pub decoder: Decoder,
    /// The peer's settings, after their arrival.
    pub peer: Option<Settings>,
    control: OutgoingStream,
    encoder_out: OutgoingStream,
    decoder_out: OutgoingStream,
    incoming: Vec<IncomingStream>,
    /// Types of critical streams that the peer has opened, one bit each.
    created: u8,
    /// Octets read from all streams; below, those of fields and bodies among them.
    received: u64,
    /// Octets of fields and bodies, which the owner counts.
    pub payload: u64,
}

impl Session {
    /// Begins a connection; this side's SETTINGS wait for the control stream.
    pub fn new(
        quic: Connection,
        blocked_streams: u64,
        section_size: u64,
        field_max: usize,
        extended_connect: bool,
    ) -> Session {
        let settings = Settings {
            table_capacity: TABLE_CAPACITY_MAX,
            blocked_streams,
            section_size: Some(section_size),
            extended_connect: extended_connect && quic.side() == Side::Server,
        };
        let mut session = Session {
            quic,
            hq: false,
            undecided: false,
            encoder: Encoder::default(),
            decoder: Decoder::new(TABLE_CAPACITY_MAX, field_max),
            peer: None,
            control: OutgoingStream::default(),
            encoder_out: OutgoingStream::default(),
            decoder_out: OutgoingStream::default(),
            incoming: Vec::new(),
            created: 0,
            received: 0,
            payload: 0,
        };
        put_varint(frame::STREAM_CONTROL, &mut session.control.waiting);
        settings.put(&mut session.control.waiting);
        put_varint(frame::STREAM_ENCODER, &mut session.encoder_out.waiting);
        put_varint(frame::STREAM_DECODER, &mut session.decoder_out.waiting);
        session
    }

    /// Appends to the control stream.
    pub fn control(&mut self) -> &mut Vec<u8> {
        &mut self.control.waiting
    }
    /// Acknowledges a section to the peer.
    pub fn acknowledge(&mut self, stream: u64, required: u64) {
        if required > 0 {
            self.decoder.acknowledge(stream, required, &mut self.decoder_out.waiting);
        }
    }
    /// Cancels a stream's sections at the peer.
    pub fn cancel(&mut self, stream: u64) {
        self.decoder.cancel(stream, &mut self.decoder_out.waiting);
    }

    /// Reads from a stream, which opens the stream's window. Sets `is_last` if no octets follow the returned ones: QUIC
    /// has forgotten the stream then, and a second look would cost as much as the first.
    ///
    /// # Errors
    /// The peer has sent too many octets of frames for the octets of fields and bodies.
    pub fn read(&mut self, id: StreamId, is_last: &mut bool) -> Result<Read, ConnectionError> {
        let mut stream = self.quic.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Ok(Read::Reset(0)) };
        let read = match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => {
                // Asks for no octets, only for the end.
                *is_last = matches!(chunks.next(0), Ok(None));
                Read::Bytes(chunk.bytes)
            }
            Ok(None) => Read::End,
            Err(ReadError::Blocked) => Read::Blocked,
            Err(ReadError::Reset(code)) => Read::Reset(code.into_inner()),
        };
        let _ = chunks.finalize();
        if let Read::Bytes(bytes) = &read {
            self.received += bytes.len() as u64;
            if self.received / OCTETS_PER_PAYLOAD > self.payload + PAYLOAD_CREDIT {
                return Err(connection_error(ErrorCode::ExcessiveLoad, "http3 flood detected"));
            }
        }
        Ok(read)
    }

    /// Accepts unidirectional streams that the peer has opened.
    ///
    /// # Errors
    /// As [`Session::read_uni`].
    pub fn accept_uni(&mut self, control: &mut Vec<ControlFrame>) -> Result<(), ConnectionError> {
        while let Some(id) = self.quic.streams().accept(Dir::Uni) {
            if self.hq {
                return Err(connection_error(ErrorCode::StreamCreation, "uni stream in hq mode"));
            }
            if self.incoming.len() >= UNKNOWN_MAX {
                return Err(connection_error(ErrorCode::StreamCreation, "reached maximum number of uni streams"));
            }
            self.incoming.push(IncomingStream { id, kind: StreamKind::Unknown(Vec::new()) });
            self.read_uni(id, control)?;
        }
        Ok(())
    }

    /// Reads the available octets of a unidirectional stream, and appends frames of the control stream.
    ///
    /// # Errors
    /// A violation ends the connection.
    pub fn read_uni(&mut self, id: StreamId, control: &mut Vec<ControlFrame>) -> Result<(), ConnectionError> {
        loop {
            let Some(at) = self.incoming.iter().position(|stream| stream.id == id) else { return Ok(()) };
            let mut bytes = match self.read(id, &mut false)? {
                Read::Bytes(bytes) => bytes,
                Read::Blocked => return Ok(()),
                Read::End | Read::Reset(_) => {
                    let stream = self.incoming.swap_remove(at);
                    return if matches!(stream.kind, StreamKind::Unknown(_)) { Ok(()) } else { Err(CLOSED) };
                }
            };
            let Some(stream) = self.incoming.get_mut(at) else { return Ok(()) };
            if let StreamKind::Unknown(begun) = &mut stream.kind {
                let n = bytes.len().min(8 - begun.len());
                begun.extend_from_slice(bytes.get(..n).unwrap_or_default());
                let Some((kind, used)) = read_varint(begun) else { continue };
                bytes.advance(used + n - begun.len());
                match self.kind(kind)? {
                    Some(kind) => {
                        if let Some(stream) = self.incoming.get_mut(at) {
                            stream.kind = kind;
                        }
                    }
                    None => {
                        // Does not read reserved and unknown types (RFC 9114, 6.2).
                        let _ = self.quic.recv_stream(id).stop(error_code(ErrorCode::StreamCreation));
                        self.incoming.swap_remove(at);
                        return Ok(());
                    }
                }
            }
            let Some(stream) = self.incoming.get_mut(at) else { return Ok(()) };
            match &mut stream.kind {
                StreamKind::Unknown(_) => {}
                StreamKind::Control(reader) => {
                    while let Some(frame) = reader.next(&mut bytes)? {
                        if let ControlFrame::Settings(settings) = &frame {
                            self.peer = Some(*settings);
                            self.encoder.allow(settings.table_capacity, settings.blocked_streams);
                        }
                        control.push(frame);
                    }
                }
                StreamKind::Encoder => {
                    self.decoder.receive(&bytes).map_err(|words| connection_error(ErrorCode::EncoderStream, words))?;
                }
                StreamKind::Decoder => {
                    self.encoder.receive(&bytes).map_err(|words| connection_error(ErrorCode::DecoderStream, words))?;
                }
            }
        }
    }

    /// Registers a stream's type. Returns `None` for a type whose octets are ignored.
    fn kind(&mut self, kind: u64) -> Result<Option<StreamKind>, ConnectionError> {
        let of_client = self.quic.side() == Side::Server;
        let found = match kind {
            frame::STREAM_CONTROL => StreamKind::Control(ControlReader::new(of_client)),
            frame::STREAM_ENCODER => StreamKind::Encoder,
            frame::STREAM_DECODER => StreamKind::Decoder,
            // Clients cannot push, and without MAX_PUSH_ID servers may not.
            frame::STREAM_PUSH if of_client => {
                return Err(connection_error(ErrorCode::StreamCreation, "client opened a push stream"));
            }
            frame::STREAM_PUSH => return Err(connection_error(ErrorCode::Id, "server opened a push stream")),
            _ => return Ok(None),
        };
        if self.created & 1 << kind != 0 {
            return Err(connection_error(ErrorCode::StreamCreation, "stream already created"));
        }
        self.created |= 1 << kind;
        Ok(Some(found))
    }

    /// Tells whether a stream is a critical stream of this side, which must stay open.
    pub fn is_critical(&self, id: StreamId) -> bool {
        [&self.control, &self.encoder_out, &self.decoder_out].iter().any(|stream| stream.id == Some(id))
    }

    /// Opens this side's streams and sends their queued octets.
    ///
    /// # Errors
    /// The peer rejects a required stream or frame.
    pub fn flush(&mut self) -> Result<(), ConnectionError> {
        if self.quic.is_closed() || self.undecided {
            return Ok(());
        }
        if self.hq {
            for stream in [&mut self.control, &mut self.decoder_out, &mut self.encoder_out] {
                stream.waiting.clear();
            }
            return Ok(());
        }
        self.decoder.tell_insertions(&mut self.decoder_out.waiting);
        self.encoder_out.waiting.append(self.encoder.instructions());
        for stream in [&mut self.control, &mut self.decoder_out, &mut self.encoder_out] {
            if stream.waiting.is_empty() {
                continue;
            }
            if stream.id.is_none() {
                stream.id = self.quic.streams().open(Dir::Uni);
                if let Some(id) = stream.id {
                    let _ = self.quic.send_stream(id).set_priority(i32::MAX);
                }
            }
            if let Some(id) = stream.id {
                match self.quic.send_stream(id).write(&stream.waiting) {
                    Ok(n) => drop(stream.waiting.drain(..n)),
                    Err(quinn_proto::WriteError::Blocked) => {}
                    Err(_) => return Err(CLOSED),
                }
            }
            if stream.waiting.len() > WAITING_MAX {
                return Err(connection_error(ErrorCode::ExcessiveLoad, "client does not read its control streams"));
            }
        }
        Ok(())
    }

    /// Returns the number of this side's streams that stay open.
    pub fn own_streams(&self) -> usize {
        [&self.control, &self.encoder_out, &self.decoder_out].iter().filter(|stream| stream.id.is_some()).count()
    }

    /// Frees buffers that an idle connection does not need.
    pub fn shrink(&mut self) {
        for stream in [&mut self.control, &mut self.decoder_out, &mut self.encoder_out] {
            stream.waiting.shrink_to(0);
        }
        self.incoming.shrink_to(0);
        self.encoder.shrink();
    }

    /// Tells whether the control stream could be opened.
    pub fn is_open(&self) -> bool {
        self.hq || self.undecided || self.control.id.is_some()
    }
}
