//! A TLS stream over a non-blocking socket, for clients and upstream servers alike. The socket belongs to the caller.

use crate::{Choice, ClientHello, Facts, ReceivedBytes, TlsError, TlsStream};
use base::room::Room;
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::sync::Arc;

/// Unsent ciphertext above which nothing more is encrypted, and plaintext that is encrypted whatever the socket's room.
const UNSENT_BYTES_MAX: usize = 16 * 1024;
/// Maximum plaintext per encryption, about the size that a socket accepts.
const SEND_BYTES_MAX: usize = 80 * 1024;

thread_local! {
    /// Ciphertext between the socket and its decryption.
    static CIPHERTEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A non-blocking socket. Both calls fail with `WouldBlock` rather than wait.
pub trait Socket {
    /// Reads into the spare capacity of `buf`; `Ok(0)` is the end.
    fn recv(&self, buf: &mut Vec<u8>) -> io::Result<usize>;
    /// Writes as much as fits, and returns the number of bytes.
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Returns the free bytes of the send buffer; `None` if they are unknown.
    fn room(&self) -> Option<usize>;
}

/// A failed transfer. After `Tls` the channel is unusable.
#[derive(Debug)]
pub enum ChannelError {
    /// A failure of TLS.
    Tls(TlsError),
    /// A failed call of the socket.
    Io(io::Error),
}

impl From<ChannelError> for io::Error {
    fn from(why: ChannelError) -> io::Error {
        match why {
            ChannelError::Tls(why) => io::Error::new(io::ErrorKind::InvalidData, format!("(SSL: {why})")),
            ChannelError::Io(e) => e,
        }
    }
}

/// A TLS stream, and the state of its transfers. Each call gets the socket, which must be the same one.
///
/// [`Channel::read`] when the socket is readable; if it returns a ClientHello, [`Channel::choose`], then
/// [`Channel::flush`]. [`Channel::send`] for plaintext. After `WouldBlock`, [`Channel::flush`] once the socket is
/// writable.
#[derive(Debug)]
pub struct Channel {
    stream: TlsStream,
    /// Of the socket, so that ciphertext which it does not take is short.
    room: Room,
}

impl Channel {
    /// Begins without transfers.
    pub fn new(stream: TlsStream) -> Channel {
        Channel { stream, room: Room::assumed(SEND_BYTES_MAX) }
    }
    /// Returns the stream. Ciphertext that was not sent is in its output.
    pub fn into_inner(self) -> TlsStream {
        self.stream
    }
    /// Tells whether the handshake is incomplete.
    pub fn is_handshaking(&self) -> bool {
        self.stream.is_handshaking()
    }
    /// Tells whether the peer may still send: it has not closed its side, and nothing failed.
    pub fn wants_read(&self) -> bool {
        self.stream.wants_read()
    }
    /// Tells whether ciphertext waits for the socket.
    pub fn has_unsent(&self) -> bool {
        self.stream.wants_write()
    }
    /// Returns the facts of the handshake; `None` before them.
    pub fn facts(&self) -> Option<&Arc<Facts>> {
        self.stream.facts()
    }
    /// Returns the ClientHello of a server's connection, once it is complete.
    pub fn hello(&self) -> Option<&ClientHello> {
        self.stream.hello()
    }
    /// Frees the buffers of an idle connection.
    pub fn shrink(&mut self) {
        self.stream.shrink();
    }

    /// Reads once, up to `room` bytes of ciphertext, and appends their plaintext. Returns the ciphertext's length; 0 is
    /// the end of the socket's input.
    pub fn read(
        &mut self,
        socket: &impl Socket,
        room: usize,
        plain: &mut Vec<u8>,
    ) -> Result<(usize, ReceivedBytes), ChannelError> {
        CIPHERTEXT.with_borrow_mut(|ciphertext| {
            ciphertext.clear();
            // Grown to the caller's room only: a larger read would decrypt more than requested.
            if ciphertext.capacity() < room {
                ciphertext.reserve_exact(room);
            }
            let n = socket.recv(ciphertext).map_err(ChannelError::Io)?;
            if n == 0 {
                return Ok((0, ReceivedBytes::default()));
            }
            let received = self.stream.receive(ciphertext, plain).map_err(ChannelError::Tls)?;
            Ok((n, received))
        })
    }

    /// Continues a server's handshake with the rules for its ClientHello. `h2`: HTTP/2 may be negotiated.
    pub fn choose(&mut self, choice: Choice, h2: bool, plain: &mut Vec<u8>) -> Result<ReceivedBytes, TlsError> {
        self.stream.choose(choice, h2, plain)
    }

    /// Encrypts and sends; returns the accepted plaintext's length. Ciphertext that the socket does not take leaves
    /// with the next write or [`Channel::flush`].
    pub fn send(&mut self, socket: &impl Socket, pieces: &[IoSlice<'_>]) -> Result<usize, ChannelError> {
        if self.stream.output().len() >= UNSENT_BYTES_MAX {
            self.flush(socket).map_err(ChannelError::Io)?;
        }
        let length = pieces.iter().map(|piece| piece.len()).sum::<usize>().min(SEND_BYTES_MAX);
        let most = match length {
            ..=UNSENT_BYTES_MAX => length,
            _ => self.room.up_to(length, || socket.room()).max(UNSENT_BYTES_MAX),
        };
        let sent = match pieces {
            [one] => self.stream.send(&[IoSlice::new(one.get(..most.min(one.len())).unwrap_or_default())]),
            _ => {
                let mut left = most;
                let mut taken: smallvec::SmallVec<[IoSlice<'_>; 8]> = smallvec::SmallVec::new();
                for piece in pieces {
                    let part = piece.get(..left.min(piece.len())).unwrap_or_default();
                    left -= part.len();
                    taken.push(IoSlice::new(part));
                    if left == 0 {
                        break;
                    }
                }
                self.stream.send(&taken)
            }
        };
        let sent = sent.map_err(ChannelError::Tls)?;
        match self.flush(socket) {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(ChannelError::Io(e)),
            _ => Ok(sent),
        }
    }

    /// Sends pending ciphertext: data, handshake messages, alerts, answers to key updates.
    pub fn flush(&mut self, socket: &impl Socket) -> io::Result<()> {
        while self.stream.wants_write() {
            match socket.send(self.stream.output()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.stream.advance(n);
                    self.room.sent(n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    if e.kind() == io::ErrorKind::WouldBlock {
                        self.room.blocked();
                        self.stream.release_written();
                    }
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Does not wait.
    pub fn close(&mut self, socket: &impl Socket) {
        if self.stream.close_notify().is_ok() {
            let _ = self.flush(socket);
        }
    }
}
