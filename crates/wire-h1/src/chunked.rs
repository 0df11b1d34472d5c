//! The chunked coding (RFC 9112, 7.1): a resumable decoder that copies nothing but trailers.

use std::ops::Range;

/// Who is decoding: it decides the words of the log, nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The body came from a client.
    Server,
    /// The body came from an upstream.
    Client,
}

/// Why a chunked body is refused: 400 for a client's, a broken response for an upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkError {
    /// No size, a byte that cannot stand where it does, an LF without its CR.
    Invalid(Role),
    /// The size does not fit a file offset.
    TooLarge(Role),
    /// More than [`EXTENSIONS_MAX`] bytes of chunk extensions in one body.
    Extensions(Role),
    /// A trailer section of more than [`TRAILERS_MAX`] bytes.
    Trailers(Role),
}

impl ChunkError {
    pub fn status(&self) -> u16 {
        match self.role() {
            Role::Server => 400,
            Role::Client => 502,
        }
    }

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

/// Bytes of chunk extensions and leading zeros that one body may hold: nobody uses them, and a peer that hides
/// kilobytes of them between single bytes of data makes every byte cost a thousand (RFC 9112, 7.1.1).
pub const EXTENSIONS_MAX: u32 = 16 * 1024;

/// Bytes that the trailer section may hold (RFC 9112, 7.1.2).
pub const TRAILERS_MAX: usize = 8 * 1024;

/// nginx's bound: sixteen times this would not fit a file offset.
const SIZE_MAX: u64 = i64::MAX as u64 / 16;

/// What one call of [`ChunkedDecoder::decode`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of `input` that are dealt with; the next call starts after them.
    pub consumed: usize,
    /// Body bytes within `input`; empty when there are none.
    pub data: Range<usize>,
    /// The body is complete; what follows `consumed` belongs to the next message.
    pub done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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

/// A resumable decoder of one chunked body.
///
/// Line ends are CRLF and nothing else: nginx took a bare LF until 1.29.4, and two servers that disagree about one byte
/// disagree about where the next request starts.
#[derive(Clone, Debug)]
pub struct ChunkedDecoder {
    state: State,
    role: Role,
    /// Of the size line: the value so far; of the data: the bytes that are left.
    size: u64,
    digits: u32,
    extensions: u32,
    trailers: Vec<u8>,
}

impl ChunkedDecoder {
    pub fn new(role: Role) -> Self {
        ChunkedDecoder { state: State::Start, role, size: 0, digits: 0, extensions: 0, trailers: Vec::new() }
    }

    /// Takes a prefix of `input`: framing up to and including the next piece of data. Call again with the rest until
    /// `consumed` is the whole input or `done`. Never returns `consumed == 0` for a non-empty input unless `done`.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, ChunkError> {
        let mut at = 0;
        while let Some(&b) = input.get(at) {
            match self.state {
                State::Start | State::Size => {
                    if let Some(digit) = hex(b) {
                        if self.size > SIZE_MAX {
                            return Err(ChunkError::TooLarge(self.role));
                        }
                        self.size = self.size * 16 + u64::from(digit);
                        self.digits += 1;
                        if self.digits > 16 {
                            self.spend(1)?;
                        }
                        self.state = State::Size;
                    } else if self.state == State::Start {
                        return Err(self.invalid());
                    } else if self.size > SIZE_MAX {
                        return Err(ChunkError::TooLarge(self.role));
                    } else {
                        self.state = match b {
                            b'\r' => State::SizeLf,
                            b';' | b' ' | b'\t' => State::Extension,
                            _ => return Err(self.invalid()),
                        };
                    }
                }
                State::Extension => {
                    let rest = input.get(at..).unwrap_or(&[]);
                    let len = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
                    self.spend(len)?;
                    match rest.get(len) {
                        None => {
                            return Ok(Decoded { consumed: input.len(), ..Decoded::default() });
                        }
                        Some(b'\r') => self.state = State::SizeLf,
                        Some(_) => return Err(self.invalid()),
                    }
                    at += len;
                }
                State::SizeLf => {
                    self.expect(b, b'\n', if self.size == 0 { State::TrailerStart } else { State::Data })?;
                }
                State::Data => {
                    let available = input.len() - at;
                    let take = usize::try_from(self.size).map_or(available, |size| size.min(available));
                    self.size -= take as u64;
                    let data = at..at + take;
                    at += take;
                    if self.size == 0 {
                        self.state = State::DataCr;
                        // The end of the chunk is taken along, so that a piece costs one call.
                        if let Some([b'\r', b'\n']) = input.get(at..at + 2) {
                            self.next_chunk();
                            at += 2;
                        }
                    }
                    return Ok(Decoded { consumed: at, data, done: false });
                }
                State::DataCr => self.expect(b, b'\r', State::DataLf)?,
                State::DataLf => {
                    self.expect(b, b'\n', State::Start)?;
                    self.next_chunk();
                }
                State::TrailerStart => match b {
                    b'\r' => self.state = State::EndLf,
                    b'\n' => return Err(self.invalid()),
                    _ => {
                        self.state = State::Trailer;
                        continue;
                    }
                },
                State::Trailer => {
                    let rest = input.get(at..).unwrap_or(&[]);
                    let len = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
                    self.keep(rest.get(..len).unwrap_or(&[]))?;
                    match rest.get(len) {
                        None => {
                            return Ok(Decoded { consumed: input.len(), ..Decoded::default() });
                        }
                        Some(b'\r') => self.state = State::TrailerLf,
                        Some(_) => return Err(self.invalid()),
                    }
                    at += len;
                }
                State::TrailerLf => {
                    self.expect(b, b'\n', State::TrailerStart)?;
                    self.keep(b"\r\n")?;
                }
                State::EndLf => {
                    self.expect(b, b'\n', State::Done)?;
                    return Ok(Decoded { consumed: at + 1, data: 0..0, done: true });
                }
                State::Done => {
                    return Ok(Decoded { consumed: 0, data: 0..0, done: true });
                }
            }
            at += 1;
        }
        Ok(Decoded { consumed: at, data: 0..0, done: self.state == State::Done })
    }

    /// The least number of bytes that must still come: what to ask the socket for, as nginx's `ctx->length`.
    pub fn remaining_hint(&self) -> u64 {
        const LAST: u64 = 5; // "0" CRLF CRLF
        match self.state {
            State::Start => LAST,
            State::Size if self.size == 0 => 4,
            State::Size | State::Extension => 2 + self.after_size(),
            State::SizeLf => 1 + self.after_size(),
            State::Data => self.size + 2 + LAST,
            State::DataCr => 2 + LAST,
            State::DataLf => 1 + LAST,
            State::TrailerStart => 2,
            State::Trailer => 4,
            State::TrailerLf => 3,
            State::EndLf => 1,
            State::Done => 0,
        }
    }

    /// Bytes of data left in the chunk that is being read: they may be spliced past the decoder, see
    /// [`ChunkedDecoder::skip`].
    pub fn data_left(&self) -> u64 {
        if self.state == State::Data { self.size } else { 0 }
    }

    /// `len` bytes of the current chunk's data have gone another way; at most [`ChunkedDecoder::data_left`].
    pub fn skip(&mut self, len: u64) {
        debug_assert!(len <= self.data_left());
        if self.state == State::Data {
            self.size = self.size.saturating_sub(len);
            if self.size == 0 {
                self.state = State::DataCr;
            }
        }
    }

    /// The whole body has been read.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The trailer section so far, each line with its CRLF, without the empty line.
    pub fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    fn after_size(&self) -> u64 {
        if self.size == 0 { 2 } else { self.size + 7 }
    }

    fn invalid(&self) -> ChunkError {
        ChunkError::Invalid(self.role)
    }

    fn expect(&mut self, b: u8, wanted: u8, next: State) -> Result<(), ChunkError> {
        if b != wanted {
            return Err(self.invalid());
        }
        self.state = next;
        Ok(())
    }

    fn next_chunk(&mut self) {
        self.state = State::Start;
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
