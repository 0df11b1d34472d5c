//! Parsers of frames: [`MessageReader`] for request streams, [`ControlReader`] for the control stream.

use crate::frame::{self, ConnectionError, ErrorCode, Settings, connection_error, read_varint};
use bytes::Bytes;

/// Maximum octets of a type and a length.
const HEAD_MAX: usize = 16;
/// Maximum octets of a known frame of the control stream.
const CONTROL_FRAME_MAX: u64 = 4096;

/// The received octets of a frame's type and length.
#[derive(Clone, Copy, Debug, Default)]
struct FrameHead {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl FrameHead {
    /// Consumes octets of `input` until type and length are complete. Returns both, and the number of their octets.
    fn take(&mut self, input: &mut Bytes) -> Option<(u64, u64, usize)> {
        loop {
            let so_far = self.bytes.get(..self.len).unwrap_or_default();
            if let Some((kind, used)) = read_varint(so_far)
                && let Some((length, _)) = read_varint(so_far.get(used..).unwrap_or_default())
            {
                let octets = std::mem::take(&mut self.len);
                return Some((kind, length, octets));
            }
            let octet = *input.first()?;
            // Two integers of eight octets fill the array: the loop has returned before.
            *self.bytes.get_mut(self.len)? = octet;
            self.len += 1;
            bytes::Buf::advance(input, 1);
        }
    }
}

/// Splits up to `left` octets off `input`.
fn part(input: &mut Bytes, left: &mut u64) -> Bytes {
    let n = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    *left -= n as u64;
    input.split_to(n)
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessagePart {
    /// A complete encoded field section.
    Section(Vec<u8>),
    /// Octets of a DATA frame.
    Data(Bytes),
}

#[derive(Debug)]
enum MessageState {
    Head,
    Section { left: u64, bytes: Vec<u8> },
    Data { left: u64 },
    Skip { left: u64 },
}

/// Reads the frames of a request stream (RFC 9114, 4.1).
#[derive(Debug)]
pub struct MessageReader {
    head: FrameHead,
    state: MessageState,
    /// Number of sections that have begun: the first is the head, the second the trailers.
    sections: u32,
    /// Octets of an encoded section.
    section_max: u64,
    has_data: bool,
    /// Octets of frames' types and lengths, and of skipped frames.
    overhead: u64,
}

impl MessageReader {
    /// Begins a message. `section_max`: octets of an encoded section.
    pub fn new(section_max: u64) -> MessageReader {
        let (head, state) = (FrameHead::default(), MessageState::Head);
        MessageReader { head, state, sections: 0, section_max, has_data: false, overhead: 0 }
    }

    /// Resets the count of sections after an interim response, so that another head may follow.
    pub fn interim_seen(&mut self) {
        self.sections = self.sections.saturating_sub(1);
    }

    /// Tells whether the stream may end here, outside a frame.
    pub fn is_between_frames(&self) -> bool {
        matches!(self.state, MessageState::Head) && self.head.len == 0
    }

    /// Tells whether the message has a body, which may be empty.
    pub fn has_data(&self) -> bool {
        self.has_data
    }

    /// Returns the number of octets since [`take_overhead`](Self::take_overhead) that are no part of the message.
    pub fn overhead(&self) -> u64 {
        self.overhead
    }

    /// Returns the overhead and starts its count anew.
    pub fn take_overhead(&mut self) -> u64 {
        std::mem::take(&mut self.overhead)
    }

    /// Returns the number of buffered octets.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        match &self.state {
            MessageState::Section { bytes, .. } => bytes.capacity(),
            _ => 0,
        }
    }

    /// Returns the next part of `input`, or `None` when all of it was consumed.
    ///
    /// # Errors
    /// A frame that is not allowed at its position is H3_FRAME_UNEXPECTED, a section of more than `section_max` octets
    /// H3_EXCESSIVE_LOAD. Both end the connection.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<MessagePart>, ConnectionError> {
        loop {
            match &mut self.state {
                MessageState::Head => {
                    let Some((kind, left, octets)) = self.head.take(input) else { return Ok(None) };
                    self.overhead += octets as u64;
                    self.state = self.begin(kind, left)?;
                }
                MessageState::Section { left, bytes } => {
                    bytes.extend_from_slice(&part(input, left));
                    if *left > 0 {
                        return Ok(None);
                    }
                    let bytes = std::mem::take(bytes);
                    self.state = MessageState::Head;
                    return Ok(Some(MessagePart::Section(bytes)));
                }
                MessageState::Data { left } => {
                    let data = part(input, left);
                    if *left == 0 {
                        self.state = MessageState::Head;
                    }
                    if !data.is_empty() {
                        return Ok(Some(MessagePart::Data(data)));
                    }
                    if matches!(self.state, MessageState::Data { .. }) {
                        return Ok(None);
                    }
                }
                MessageState::Skip { left } => {
                    self.overhead += part(input, left).len() as u64;
                    if *left > 0 {
                        return Ok(None);
                    }
                    self.state = MessageState::Head;
                }
            }
        }
    }

    fn begin(&mut self, kind: u64, left: u64) -> Result<MessageState, ConnectionError> {
        const UNEXPECTED: ConnectionError =
            connection_error(ErrorCode::FrameUnexpected, "client sent unexpected frame");
        match kind {
            frame::HEADERS => {
                if self.sections >= 2 {
                    return Err(UNEXPECTED);
                }
                if left > self.section_max {
                    return Err(connection_error(ErrorCode::ExcessiveLoad, "client sent too large header"));
                }
                self.sections += 1;
                Ok(MessageState::Section { left, bytes: Vec::new() })
            }
            frame::DATA if self.sections != 1 => Err(UNEXPECTED),
            frame::DATA => {
                self.has_data = true;
                Ok(MessageState::Data { left })
            }
            frame::CANCEL_PUSH
            | frame::SETTINGS
            | frame::PUSH_PROMISE
            | frame::GOAWAY
            | frame::MAX_PUSH_ID
            | frame::PRIORITY_UPDATE
            | frame::PRIORITY_UPDATE_PUSH => Err(UNEXPECTED),
            kind if frame::is_of_http2(kind) => Err(UNEXPECTED),
            // Ignores unknown types (RFC 9114, 9).
            _ => Ok(MessageState::Skip { left }),
        }
    }
}

/// A frame of the control stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlFrame {
    /// SETTINGS, which come first and once.
    Settings(Settings),
    /// GOAWAY, with the id of the last stream or push.
    Goaway(u64),
    /// PRIORITY_UPDATE: the request stream and its new priority field (RFC 9218, 7.2).
    Priority {
        /// The request's stream.
        stream: u64,
        /// Value of the priority field.
        field: Vec<u8>,
    },
}

#[derive(Debug)]
enum ControlState {
    Head,
    Payload { kind: u64, left: u64, bytes: Vec<u8> },
    Skip { left: u64 },
}

/// Reads the frames of the peer's control stream (RFC 9114, 6.2.1).
#[derive(Debug)]
pub struct ControlReader {
    head: FrameHead,
    state: ControlState,
    /// The peer is a client, which may send MAX_PUSH_ID and PRIORITY_UPDATE.
    of_client: bool,
    settled: bool,
    /// Id of the last GOAWAY frame.
    goaway: Option<u64>,
    /// Id of the last MAX_PUSH_ID frame.
    push_max: u64,
}

impl ControlReader {
    /// Begins the control stream of a client (`of_client`) or a server.
    pub fn new(of_client: bool) -> ControlReader {
        ControlReader {
            head: FrameHead::default(),
            state: ControlState::Head,
            of_client,
            settled: false,
            goaway: None,
            push_max: 0,
        }
    }

    /// Returns the next frame of `input`, or `None` when all of it was consumed.
    ///
    /// # Errors
    /// A violation ends the connection.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<ControlFrame>, ConnectionError> {
        loop {
            match &mut self.state {
                ControlState::Head => {
                    let Some((kind, left, _)) = self.head.take(input) else { return Ok(None) };
                    self.state = self.begin(kind, left)?;
                }
                ControlState::Payload { kind, left, bytes } => {
                    bytes.extend_from_slice(&part(input, left));
                    if *left > 0 {
                        return Ok(None);
                    }
                    let (kind, bytes) = (*kind, std::mem::take(bytes));
                    self.state = ControlState::Head;
                    let control = whole(kind, &bytes)?;
                    self.check_order(kind, control.as_ref(), &bytes)?;
                    if control.is_some() {
                        return Ok(control);
                    }
                }
                ControlState::Skip { left } => {
                    part(input, left);
                    if *left > 0 {
                        return Ok(None);
                    }
                    self.state = ControlState::Head;
                }
            }
        }
    }

    /// Checks that ids of GOAWAY frames do not increase and those of MAX_PUSH_ID frames do not decrease (RFC 9114, 5.2
    /// and 7.2.7).
    fn check_order(
        &mut self,
        kind: u64,
        control: Option<&ControlFrame>,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        if let Some(ControlFrame::Goaway(id)) = control {
            if !self.of_client && id % 4 != 0 {
                return Err(connection_error(ErrorCode::Id, "client sent GOAWAY frame for no request"));
            }
            if self.goaway.replace(*id).is_some_and(|before| before < *id) {
                return Err(connection_error(ErrorCode::Id, "client sent GOAWAY frame with a larger id"));
            }
        } else if kind == frame::MAX_PUSH_ID
            && let Some((id, _)) = read_varint(payload)
            && std::mem::replace(&mut self.push_max, id) > id
        {
            return Err(connection_error(ErrorCode::Id, "client sent MAX_PUSH_ID frame with a smaller id"));
        }
        Ok(())
    }

    fn begin(&mut self, kind: u64, left: u64) -> Result<ControlState, ConnectionError> {
        const UNEXPECTED: ConnectionError =
            connection_error(ErrorCode::FrameUnexpected, "client sent unexpected frame on the control stream");
        if !std::mem::replace(&mut self.settled, true) {
            if kind != frame::SETTINGS {
                return Err(connection_error(ErrorCode::MissingSettings, "client sent no SETTINGS frame"));
            }
        } else if kind == frame::SETTINGS {
            return Err(UNEXPECTED);
        }
        match kind {
            frame::DATA | frame::HEADERS | frame::PUSH_PROMISE => Err(UNEXPECTED),
            kind if frame::is_of_http2(kind) => Err(UNEXPECTED),
            // No push was promised, and none is allowed.
            frame::CANCEL_PUSH => Err(connection_error(ErrorCode::Id, "client sent CANCEL_PUSH frame for no push")),
            frame::MAX_PUSH_ID | frame::PRIORITY_UPDATE | frame::PRIORITY_UPDATE_PUSH if !self.of_client => {
                Err(UNEXPECTED)
            }
            frame::PRIORITY_UPDATE_PUSH => {
                Err(connection_error(ErrorCode::Id, "client sent PRIORITY_UPDATE frame for no push"))
            }
            frame::SETTINGS | frame::GOAWAY | frame::MAX_PUSH_ID | frame::PRIORITY_UPDATE => {
                if left > CONTROL_FRAME_MAX {
                    return Err(connection_error(
                        ErrorCode::ExcessiveLoad,
                        "client sent too large frame on the control stream",
                    ));
                }
                Ok(ControlState::Payload { kind, left, bytes: Vec::new() })
            }
            _ => Ok(ControlState::Skip { left }),
        }
    }
}

/// Reads the payload of a complete frame.
fn whole(kind: u64, payload: &[u8]) -> Result<Option<ControlFrame>, ConnectionError> {
    const LENGTH: ConnectionError =
        connection_error(ErrorCode::Frame, "client sent control frame with incorrect length");
    if kind == frame::SETTINGS {
        return Settings::read(payload).map(|settings| Some(ControlFrame::Settings(settings)));
    }
    let (id, used) = read_varint(payload).ok_or(LENGTH)?;
    let rest = payload.get(used..).unwrap_or_default();
    match kind {
        frame::PRIORITY_UPDATE if id % 4 != 0 => {
            Err(connection_error(ErrorCode::Id, "client sent PRIORITY_UPDATE frame for no request"))
        }
        frame::PRIORITY_UPDATE => Ok(Some(ControlFrame::Priority { stream: id, field: rest.to_vec() })),
        _ if !rest.is_empty() => Err(LENGTH),
        frame::GOAWAY => Ok(Some(ControlFrame::Goaway(id))),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::put_head;

    fn frames(all: &[(u64, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, payload) in all {
            put_head(*kind, payload.len(), &mut out);
            out.extend_from_slice(payload);
        }
        out
    }

    /// Reads a message in pieces, and joins its data.
    fn message(bytes: &[u8], size: usize) -> Result<(Vec<Vec<u8>>, Vec<u8>, bool), ConnectionError> {
        let mut reader = MessageReader::new(1000);
        let (mut sections, mut data) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(size) {
            let mut input = Bytes::copy_from_slice(piece);
            while let Some(part) = reader.next(&mut input)? {
                match part {
                    MessagePart::Section(section) => sections.push(section),
                    MessagePart::Data(part) => data.extend_from_slice(&part),
                }
            }
            assert!(input.is_empty());
        }
        Ok((sections, data, reader.is_between_frames()))
    }

    #[test]
    fn a_message_is_read_however_it_is_cut() {
        let bytes = frames(&[
            (0x21, b"grease"),
            (frame::HEADERS, b"head"),
            (frame::DATA, b""),
            (frame::DATA, b"some "),
            (0x1f * 7 + 0x21, &[0; 300]),
            (frame::DATA, &[b'x'; 200]),
            (frame::HEADERS, b"trailers"),
            (0x21, b""),
        ]);
        let data = [&b"some "[..], &[b'x'; 200]].concat();
        for size in 1..=bytes.len() {
            let read = message(&bytes, size).expect("a message");
            assert_eq!(read, (vec![b"head".to_vec(), b"trailers".to_vec()], data.clone(), true), "pieces of {size}");
        }
        assert!(!message(&bytes[..bytes.len() - 1], 7).expect("a part").2);
    }

    #[test]
    fn frames_in_wrong_places_end_the_connection() {
        let head = (frame::HEADERS, &b"h"[..]);
        let data = (frame::DATA, &b"d"[..]);
        for (all, code) in [
            (&[data][..], ErrorCode::FrameUnexpected),
            (&[head, head, data], ErrorCode::FrameUnexpected),
            (&[head, data, head, head], ErrorCode::FrameUnexpected),
            (&[head, (frame::SETTINGS, b"")], ErrorCode::FrameUnexpected),
            (&[(frame::PUSH_PROMISE, b"")], ErrorCode::FrameUnexpected),
            (&[(0x2, b"")], ErrorCode::FrameUnexpected),
            (&[(frame::PRIORITY_UPDATE, b"")], ErrorCode::FrameUnexpected),
            (&[(frame::HEADERS, &[0; 1001])], ErrorCode::ExcessiveLoad),
        ] {
            assert_eq!(message(&frames(all), 3).map_err(|e| e.code), Err(code), "{all:?}");
        }
    }

    #[test]
    fn a_length_that_lies_takes_no_memory() {
        let mut reader = MessageReader::new(frame::VARINT_MAX);
        let mut bytes = Vec::new();
        put_head(frame::HEADERS, 1 << 40, &mut bytes);
        bytes.extend_from_slice(&[0; 100]);
        assert_eq!(reader.next(&mut Bytes::from(bytes)), Ok(None));
        assert!(reader.held() <= 256);
    }

    fn control(bytes: &[u8], size: usize) -> Result<Vec<ControlFrame>, ConnectionError> {
        let mut reader = ControlReader::new(true);
        let mut all = Vec::new();
        for piece in bytes.chunks(size) {
            let mut input = Bytes::copy_from_slice(piece);
            while let Some(control) = reader.next(&mut input)? {
                all.push(control);
            }
        }
        Ok(all)
    }

    #[test]
    fn the_control_stream_is_read_however_it_is_cut() {
        let bytes = frames(&[
            (frame::SETTINGS, &[1, 0x50, 0, 0x21, 5]),
            (0x21, &[0; 5000]),
            (frame::MAX_PUSH_ID, &[7]),
            (frame::PRIORITY_UPDATE, b"\x04u=1"),
            (frame::GOAWAY, &[0]),
        ]);
        let wanted = vec![
            ControlFrame::Settings(Settings { table_capacity: 4096, ..Settings::default() }),
            ControlFrame::Priority { stream: 4, field: b"u=1".to_vec() },
            ControlFrame::Goaway(0),
        ];
        for size in [1, 2, 3, 5, 7, 64, bytes.len()] {
            assert_eq!(control(&bytes, size), Ok(wanted.clone()), "pieces of {size}");
        }
    }

    #[test]
    fn the_control_stream_has_rules() {
        let settings = (frame::SETTINGS, &b""[..]);
        for (all, code) in [
            (&[(frame::GOAWAY, &[0][..])][..], ErrorCode::MissingSettings),
            (&[settings, settings], ErrorCode::FrameUnexpected),
            (&[settings, (frame::DATA, b"")], ErrorCode::FrameUnexpected),
            (&[settings, (frame::HEADERS, b"")], ErrorCode::FrameUnexpected),
            (&[settings, (0x8, b"")], ErrorCode::FrameUnexpected),
            (&[settings, (frame::CANCEL_PUSH, &[0])], ErrorCode::Id),
            (&[settings, (frame::PRIORITY_UPDATE, &[1])], ErrorCode::Id),
            (&[settings, (frame::PRIORITY_UPDATE_PUSH, &[1])], ErrorCode::Id),
            (&[settings, (frame::GOAWAY, &[0, 0])], ErrorCode::Frame),
            (&[settings, (frame::GOAWAY, b"")], ErrorCode::Frame),
            (&[settings, (frame::GOAWAY, &[4]), (frame::GOAWAY, &[4]), (frame::GOAWAY, &[5])], ErrorCode::Id),
            (&[settings, (frame::MAX_PUSH_ID, &[7]), (frame::MAX_PUSH_ID, &[6])], ErrorCode::Id),
            (&[settings, (frame::PRIORITY_UPDATE, &[0; 5000])], ErrorCode::ExcessiveLoad),
        ] {
            assert_eq!(control(&frames(all), 1).map_err(|e| e.code), Err(code), "{all:?}");
        }
        let mut of_server = ControlReader::new(false);
        let mut input = Bytes::from(frames(&[settings, (frame::MAX_PUSH_ID, &[1])]));
        let read: Result<Vec<_>, _> = std::iter::from_fn(|| of_server.next(&mut input).transpose()).collect();
        assert_eq!(read.map_err(|e| e.code), Err(ErrorCode::FrameUnexpected));
        let mut of_server = ControlReader::new(false);
        let mut input = Bytes::from(frames(&[settings, (frame::GOAWAY, &[6])]));
        let read: Result<Vec<_>, _> = std::iter::from_fn(|| of_server.next(&mut input).transpose()).collect();
        assert_eq!(read.map_err(|e| e.code), Err(ErrorCode::Id), "servers name streams of requests");
    }
}
