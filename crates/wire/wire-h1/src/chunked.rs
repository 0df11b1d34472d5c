//! Chunked coding (RFC 9112, 7.1): a resumable decoder that copies nothing but trailers.

use std::ops::Range;

/// Decoding side; affects log messages only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Requests of a client.
    Server,
    /// Responses of an upstream server.
    Client,
}

/// 400 for a client's, a broken response for an upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkError {
    /// Missing size, unexpected byte, or an LF without CR.
    Invalid(Role),
    /// A size beyond a file offset.
    TooLarge(Role),
    /// More than [`EXTENSIONS_MAX`] bytes of chunk extensions in one body, beyond those that its data pay for.
    Extensions(Role),
    /// Trailers longer than [`TRAILERS_MAX`] bytes.
    Trailers(Role),
}

impl ChunkError {
    /// Returns the status of the response: 400, or 502 for an upstream server's fault.
    pub fn status(&self) -> u16 {
        match self.role() {
            Role::Server => 400,
            Role::Client => 502,
        }
    }

    /// Returns the log message.
    pub fn message(&self) -> &'static str {
        match self.role() {
            Role::Server => "client sent invalid chunked body",
            Role::Client => "upstream sent invalid chunked response",
        }
    }

    fn role(&self) -> Role {
        match *self {
            ChunkError::Invalid(r) | ChunkError::TooLarge(r) | ChunkError::Extensions(r) | ChunkError::Trailers(r) => r,
        }
    }
}

/// Bytes of chunk extensions and leading zeros per body, beyond the bytes of data: they multiply the cost per byte (RFC
/// 9112, 7.1.1). A long body may have a signature in each chunk.
pub const EXTENSIONS_MAX: u32 = 16 * 1024;

/// Bytes of the trailer section (RFC 9112, 7.1.2).
pub const TRAILERS_MAX: usize = 8 * 1024;

/// nginx's bound: sixteen times this exceeds a file offset.
const SIZE_MAX: u64 = i64::MAX as u64 / 16;

/// Result of a step of the decoder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecodedChunk {
    /// Bytes of the input that were used, data included.
    pub consumed: usize,
    /// Range of the input that is data; may be empty.
    pub data: Range<usize>,
    /// The body is complete; later bytes belong to the next message.
    pub done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Start,
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
    Done,
}

/// Resumable decoder of a chunked body. Requires CRLF, as nginx since 1.29.4: servers that disagree about a bare LF
/// disagree about where the next request starts.
#[derive(Clone, Debug)]
pub struct ChunkedDecoder {
    state: ChunkState,
    role: Role,
    /// In the size line the value so far, in data the remaining bytes.
    size: u64,
    digits: u32,
    extensions: u32,
    trailers: Vec<u8>,
}

impl ChunkedDecoder {
    /// Begins a body.
    pub fn new(role: Role) -> Self {
        ChunkedDecoder { state: ChunkState::Start, role, size: 0, digits: 0, extensions: 0, trailers: Vec::new() }
    }

    /// Decodes a prefix of `input`: framing up to and including the next data. Call with the rest until all is consumed
    /// or `done`; consumes at least a byte of non-empty input unless `done`.
    pub fn decode(&mut self, input: &[u8]) -> Result<DecodedChunk, ChunkError> {
        let mut at = 0;
        while let Some(&b) = input.get(at) {
            match self.state {
                ChunkState::Start | ChunkState::Size => {
                    if let Some(digit) = hex(b) {
                        if self.size > SIZE_MAX {
                            return Err(ChunkError::TooLarge(self.role));
                        }
                        self.size = self.size * 16 + u64::from(digit);
                        self.digits += 1;
                        if self.digits > 16 {
                            self.spend(1)?;
                        }
                        self.state = ChunkState::Size;
                    } else if self.state == ChunkState::Start {
                        return Err(self.invalid());
                    } else if self.size > SIZE_MAX {
                        return Err(ChunkError::TooLarge(self.role));
                    } else {
                        self.state = match b {
                            b'\r' => ChunkState::SizeLf,
                            b';' | b' ' | b'\t' => ChunkState::Extension,
                            _ => return Err(self.invalid()),
                        };
                    }
                }
                ChunkState::Extension => {
                    let rest = input.get(at..).unwrap_or(&[]);
                    let len = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
                    self.spend(len)?;
                    match rest.get(len) {
                        None => {
                            return Ok(DecodedChunk { consumed: input.len(), ..DecodedChunk::default() });
                        }
                        Some(b'\r') => self.state = ChunkState::SizeLf,
                        Some(_) => return Err(self.invalid()),
                    }
                    at += len;
                }
                ChunkState::SizeLf => {
                    self.expect(b, b'\n', if self.size == 0 { ChunkState::TrailerStart } else { ChunkState::Data })?;
                }
                ChunkState::Data => {
                    let available = input.len() - at;
                    let take = usize::try_from(self.size).map_or(available, |size| size.min(available));
                    self.size -= take as u64;
                    // Data pays for extensions.
                    self.extensions = self.extensions.saturating_sub(u32::try_from(take).unwrap_or(u32::MAX));
                    let data = at..at + take;
                    at += take;
                    if self.size == 0 {
                        self.state = ChunkState::DataCr;
                        if let Some([b'\r', b'\n']) = input.get(at..at + 2) {
                            self.next_chunk();
                            at += 2;
                        }
                    }
                    return Ok(DecodedChunk { consumed: at, data, done: false });
                }
                ChunkState::DataCr => self.expect(b, b'\r', ChunkState::DataLf)?,
                ChunkState::DataLf => {
                    self.expect(b, b'\n', ChunkState::Start)?;
                    self.next_chunk();
                }
                ChunkState::TrailerStart => match b {
                    b'\r' => self.state = ChunkState::EndLf,
                    b'\n' => return Err(self.invalid()),
                    _ => {
                        self.state = ChunkState::Trailer;
                        continue;
                    }
                },
                ChunkState::Trailer => {
                    let rest = input.get(at..).unwrap_or(&[]);
                    let len = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
                    self.keep(rest.get(..len).unwrap_or(&[]))?;
                    match rest.get(len) {
                        None => {
                            return Ok(DecodedChunk { consumed: input.len(), ..DecodedChunk::default() });
                        }
                        Some(b'\r') => self.state = ChunkState::TrailerLf,
                        Some(_) => return Err(self.invalid()),
                    }
                    at += len;
                }
                ChunkState::TrailerLf => {
                    self.expect(b, b'\n', ChunkState::TrailerStart)?;
                    self.keep(b"\r\n")?;
                }
                ChunkState::EndLf => {
                    self.expect(b, b'\n', ChunkState::Done)?;
                    return Ok(DecodedChunk { consumed: at + 1, data: 0..0, done: true });
                }
                ChunkState::Done => {
                    return Ok(DecodedChunk { consumed: 0, data: 0..0, done: true });
                }
            }
            at += 1;
        }
        Ok(DecodedChunk { consumed: at, data: 0..0, done: self.state == ChunkState::Done })
    }

    /// Minimum bytes still to come, as nginx's `ctx->length`.
    pub fn remaining_hint(&self) -> u64 {
        const LAST: u64 = 5; // "0" CRLF CRLF
        match self.state {
            ChunkState::Start => LAST,
            ChunkState::Size if self.size == 0 => 4,
            ChunkState::Size | ChunkState::Extension => 2 + self.after_size(),
            ChunkState::SizeLf => 1 + self.after_size(),
            ChunkState::Data => self.size + 2 + LAST,
            ChunkState::DataCr => 2 + LAST,
            ChunkState::DataLf => 1 + LAST,
            ChunkState::TrailerStart => 2,
            ChunkState::Trailer => 4,
            ChunkState::TrailerLf => 3,
            ChunkState::EndLf => 1,
            ChunkState::Done => 0,
        }
    }

    /// Remaining data bytes of the chunk, which may be spliced past the decoder; see [`ChunkedDecoder::skip`].
    pub fn data_left(&self) -> u64 {
        if self.state == ChunkState::Data { self.size } else { 0 }
    }

    /// Skips `len` spliced bytes, at most [`ChunkedDecoder::data_left`].
    pub fn skip(&mut self, len: u64) {
        debug_assert!(len <= self.data_left());
        if self.state == ChunkState::Data {
            self.size = self.size.saturating_sub(len);
            if self.size == 0 {
                self.state = ChunkState::DataCr;
            }
        }
    }

    /// Tells whether the end of the body was decoded.
    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Trailer lines so far, with CRLFs, without the empty line.
    pub fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    fn after_size(&self) -> u64 {
        if self.size == 0 { 2 } else { self.size + 7 }
    }

    fn invalid(&self) -> ChunkError {
        ChunkError::Invalid(self.role)
    }

    fn expect(&mut self, b: u8, wanted: u8, next: ChunkState) -> Result<(), ChunkError> {
        if b != wanted {
            return Err(self.invalid());
        }
        self.state = next;
        Ok(())
    }

    fn next_chunk(&mut self) {
        self.state = ChunkState::Start;
        self.size = 0;
        self.digits = 0;
    }

    fn spend(&mut self, bytes: usize) -> Result<(), ChunkError> {
        self.extensions = self.extensions.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if self.extensions > EXTENSIONS_MAX { Err(ChunkError::Extensions(self.role)) } else { Ok(()) }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), ChunkError> {
        if self.trailers.len() + bytes.len() > TRAILERS_MAX {
            return Err(ChunkError::Trailers(self.role));
        }
        self.trailers.extend_from_slice(bytes);
        Ok(())
    }
}

fn hex(b: u8) -> Option<u8> {
    match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        b'A'..=b'F' => Some(b - b'A' + 10),
        _ => None,
    }
}
