//! A TLS stream over a non-blocking socket, for clients and upstream servers alike. The socket belongs to the caller.

use crate::{Choice, ClientHello, Facts, Received, TlsError, TlsStream};
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::sync::Arc;

/// Unsent ciphertext above which nothing more is encrypted.
const UNSENT_BYTES_MAX: usize = 64 * 1024;
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
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;
}

#[derive(Debug)]
pub enum ChannelError {
    Tls(TlsError),
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

#[derive(Debug)]
pub struct Channel(TlsStream);

impl Channel {
    pub fn new(stream: TlsStream) -> Channel {
        Channel(stream)
    }
    pub fn into_inner(self) -> TlsStream {
        self.0
    }
    pub fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }
    /// Tells whether the peer may still send: it has not closed its side, and nothing failed.
    pub fn wants_read(&self) -> bool {
        self.0.wants_read()
    }
    pub fn has_unsent(&self) -> bool {
        self.0.wants_write()
    }
    pub fn facts(&self) -> Option<&Arc<Facts>> {
        self.0.facts()
    }
    pub fn hello(&self) -> Option<&ClientHello> {
        self.0.hello()
    }
    /// Frees the buffers of an idle connection.
    pub fn shrink(&mut self) {
        self.0.shrink();
    }

    /// Reads once, up to `room` bytes of ciphertext, and appends their plaintext. Returns the ciphertext's length; 0 is
    /// the end of the socket's input.
    pub fn read(
        &mut self,
        socket: &impl Socket,
        room: usize,
        plain: &mut Vec<u8>,
    ) -> Result<(usize, Received), ChannelError> {
        CIPHERTEXT.with_borrow_mut(|ciphertext| {
            ciphertext.clear();
            // Grown to the caller's room only: a larger read would decrypt more than requested.
            if ciphertext.capacity() < room {
                ciphertext.reserve_exact(room);
            }
            let n = socket.recv(ciphertext).map_err(ChannelError::Io)?;
            if n == 0 {
                return Ok((0, Received::default()));
            }
            let received = self.0.receive(ciphertext, plain).map_err(ChannelError::Tls)?;
            Ok((n, received))
        })
    }

    /// Continues a server's handshake with the rules for its ClientHello. `h2`: HTTP/2 may be negotiated.
    pub fn choose(&mut self, choice: Choice, h2: bool, plain: &mut Vec<u8>) -> Result<Received, TlsError> {
        self.0.choose(choice, h2, plain)
    }

    /// Encrypts and sends; returns the accepted plaintext's length. Ciphertext that the socket does not take leaves
    /// with the next write or [`Channel::flush`].
    pub fn send(&mut self, socket: &impl Socket, pieces: &[IoSlice<'_>]) -> Result<usize, ChannelError> {
        if self.0.output().len() >= UNSENT_BYTES_MAX {
            self.flush(socket).map_err(ChannelError::Io)?;
        }
        let sent = match pieces {
            [one] if one.len() <= SEND_BYTES_MAX => self.0.send(pieces),
            _ => {
                let mut left = SEND_BYTES_MAX;
                let mut taken: smallvec::SmallVec<[IoSlice<'_>; 8]> = smallvec::SmallVec::new();
                for piece in pieces {
                    let part = piece.get(..left.min(piece.len())).unwrap_or_default();
                    left -= part.len();
                    taken.push(IoSlice::new(part));
                    if left == 0 {
                        break;
                    }
                }
                self.0.send(&taken)
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
        while self.0.wants_write() {
            match socket.send(self.0.output()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.0.advance(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Does not wait.
    pub fn close(&mut self, socket: &impl Socket) {
        if self.0.close_notify().is_ok() {
            let _ = self.flush(socket);
        }
    }
}
