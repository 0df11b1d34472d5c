//! TLS on a connection to an upstream server.

use net::outbound::Outbound;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll};
use tls::{Channel, ChannelError, Choice, ClientHello, Facts, Socket, TlsError, TlsStream};

/// Least ciphertext per read: a record is decrypted whole.
const READ_BYTES_MIN: usize = 4 * 1024;

/// The socket below the channel (a type of this crate, for the trait's sake).
struct Below<'a>(&'a Outbound);

impl Socket for Below<'_> {
    fn recv(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        self.0.try_recv(buf)
    }
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_send(bytes)
    }
    fn room(&self) -> Option<usize> {
        self.0.send_room()
    }
}

/// A failed handshake.
#[derive(Debug)]
pub enum HandshakeError {
    /// The rules were not met, or a message is malformed.
    Tls(TlsError),
    /// A failed system call.
    Io(io::Error),
    /// Closed by the server during the handshake.
    Closed,
}

impl std::fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HandshakeError::Tls(why) => why.fmt(f),
            HandshakeError::Io(why) => why.fmt(f),
            HandshakeError::Closed => f.write_str("the server closed the connection"),
        }
    }
}

impl std::error::Error for HandshakeError {}

#[derive(Debug)]
pub(crate) struct Secure {
    channel: RefCell<Box<Channel>>,
    /// Plaintext received with the end of the handshake.
    early: RefCell<Vec<u8>>,
}

impl Secure {
    /// Performs the handshake. A client's last message leaves with its first data. `choose`: a server's rules for a
    /// ClientHello.
    pub async fn handshake(
        outbound: &Outbound,
        tls: TlsStream,
        mut choose: impl FnMut(&ClientHello) -> Choice,
    ) -> Result<Secure, HandshakeError> {
        let (mut channel, socket) = (Box::new(Channel::new(tls)), Below(outbound));
        let mut early = Vec::new();
        while channel.is_handshaking() {
            match channel.flush(&socket) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| outbound.poll_writable(cx)).await;
                    continue;
                }
                Err(e) => return Err(HandshakeError::Io(e)),
            }
            let failed = match channel.read(&socket, READ_BYTES_MIN, &mut early) {
                Ok((_, received)) if received.hello => {
                    let choice = channel.hello().map_or(Choice::Fail, &mut choose);
                    channel.choose(choice, false, &mut early).err()
                }
                Ok((0, _)) => return Err(HandshakeError::Closed),
                // Data and the end may arrive with the last message.
                Ok(_) if channel.is_handshaking() && !channel.wants_read() => return Err(HandshakeError::Closed),
                Ok(_) => None,
                Err(ChannelError::Tls(why)) => Some(why),
                Err(ChannelError::Io(e)) if e.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| outbound.poll_readable(cx)).await;
                    None
                }
                Err(ChannelError::Io(e)) => return Err(HandshakeError::Io(e)),
            };
            if let Some(why) = failed {
                let _ = channel.flush(&socket);
                return Err(HandshakeError::Tls(why));
            }
        }
        // A server's last message leaves alone.
        let _ = channel.flush(&socket);
        Ok(Secure { channel: RefCell::new(channel), early: RefCell::new(early) })
    }

    /// Reads plaintext without waiting; `Ok(0)` is the end.
    pub fn recv(&self, outbound: &Outbound, buf: &mut Vec<u8>) -> io::Result<usize> {
        let mut early = self.early.take();
        if !early.is_empty() {
            let n = early.len();
            buf.append(&mut early);
            return Ok(n);
        }
        let (channel, socket) = (&mut **self.channel.borrow_mut(), Below(outbound));
        let before = buf.len();
        while channel.wants_read() {
            let room = buf.capacity() - buf.len();
            match channel.read(&socket, room.max(READ_BYTES_MIN), buf) {
                Ok((0, _)) => return Ok(0),
                Ok(_) if buf.len() > before => {
                    let _ = channel.flush(&socket);
                    return Ok(buf.len() - before);
                }
                // Incomplete record, or no data (a ticket, for example).
                Ok(_) => {}
                Err(why) => {
                    if matches!(why, ChannelError::Tls(_)) {
                        let _ = channel.flush(&socket);
                    }
                    return Err(why.into());
                }
            }
        }
        Ok(0)
    }

    /// Encrypts plaintext; what the socket does not take goes with the next write or wait.
    pub fn send(&self, outbound: &Outbound, buf: &[u8]) -> io::Result<usize> {
        Ok(self.channel.borrow_mut().send(&Below(outbound), &[IoSlice::new(buf)])?)
    }

    /// Waits for ciphertext, or has plaintext at once; meanwhile sends the rest of earlier writes.
    pub fn poll_readable(&self, outbound: &Outbound, cx: &mut Context<'_>) -> Poll<()> {
        if !self.early.borrow().is_empty() {
            return Poll::Ready(());
        }
        let channel = &mut **self.channel.borrow_mut();
        while channel.has_unsent() {
            match channel.flush(&Below(outbound)) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if outbound.poll_writable(cx).is_pending() {
                        break;
                    }
                }
                // Reading reports it.
                Err(_) => return Poll::Ready(()),
            }
        }
        outbound.poll_readable(cx)
    }

    /// Tells whether ciphertext waits for the socket.
    pub fn has_unsent(&self) -> bool {
        self.channel.borrow().has_unsent()
    }
    /// Writes ciphertext as far as the socket takes it; fails with `WouldBlock` if more is left.
    pub fn flush(&self, outbound: &Outbound) -> io::Result<()> {
        self.channel.borrow_mut().flush(&Below(outbound))
    }
    /// Returns the handshake's facts.
    pub fn facts(&self) -> Option<Arc<Facts>> {
        self.channel.borrow().facts().cloned()
    }
    /// Returns the TLS state, and plaintext that was received with the handshake.
    pub fn into_parts(self) -> (TlsStream, Vec<u8>) {
        (self.channel.into_inner().into_inner(), self.early.into_inner())
    }
    /// Releases spare memory of the buffers.
    pub fn shrink(&self) {
        self.channel.borrow_mut().shrink();
    }
    /// Does not wait.
    pub fn close(&self, outbound: &Outbound) {
        self.channel.borrow_mut().close(&Below(outbound));
    }
}
