//! TLS on a connection to an upstream server.

use net::outbound::Outbound;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll};
use tls::{Choice, ClientHello, Facts, Received, TlsError, TlsStream};

/// Least ciphertext per read: a record is decrypted whole.
const READ_BYTES_MIN: usize = 4 * 1024;
/// Unsent ciphertext above which nothing is encrypted.
const UNSENT_MAX: usize = 128 * 1024;
/// Plaintext encrypted per write.
const WRITE_BYTES: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
pub enum HandshakeError {
    Tls(TlsError),
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
    tls: RefCell<Box<TlsStream>>,
    /// Plaintext received with the end of the handshake.
    early: RefCell<Vec<u8>>,
}

fn broken(why: &TlsError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("(SSL: {why})"))
}

impl Secure {
    /// Performs the handshake. A client's last message leaves with its first data. `choose`: a server's rules for a
    /// ClientHello.
    pub async fn handshake(
        outbound: &Outbound,
        mut tls: Box<TlsStream>,
        mut choose: impl FnMut(&ClientHello) -> Choice,
    ) -> Result<Secure, HandshakeError> {
        let mut early = Vec::new();
        while tls.is_handshaking() {
            match flush(&mut tls, outbound) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| outbound.poll_writable(cx)).await;
                    continue;
                }
                Err(e) => return Err(HandshakeError::Io(e)),
            }
            match receive(&mut tls, outbound, &mut early, READ_BYTES_MIN) {
                Ok((_, received)) if received.hello => {
                    let choice = tls.hello().map_or(Choice::Fail, &mut choose);
                    if let Err(why) = tls.choose(choice, false, &mut early) {
                        let _ = flush(&mut tls, outbound);
                        return Err(HandshakeError::Tls(why));
                    }
                }
                Ok((n, _)) if n == 0 || !tls.wants_read() => return Err(HandshakeError::Closed),
                Ok(_) => {}
                Err(Failed::Tls(why)) => {
                    let _ = flush(&mut tls, outbound);
                    return Err(HandshakeError::Tls(why));
                }
                Err(Failed::Io(e)) if e.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| outbound.poll_readable(cx)).await;
                }
                Err(Failed::Io(e)) => return Err(HandshakeError::Io(e)),
            }
        }
        // A server's last message leaves alone.
        let _ = flush(&mut tls, outbound);
        Ok(Secure { tls: RefCell::new(tls), early: RefCell::new(early) })
    }

    /// Reads plaintext without waiting; `Ok(0)` is the end.
    pub fn recv(&self, outbound: &Outbound, buf: &mut Vec<u8>) -> io::Result<usize> {
        let mut early = self.early.take();
        if !early.is_empty() {
            let n = early.len();
            buf.append(&mut early);
            return Ok(n);
        }
        let tls = &mut **self.tls.borrow_mut();
        let before = buf.len();
        while tls.wants_read() {
            let room = buf.capacity() - buf.len();
            match receive(tls, outbound, buf, room.max(READ_BYTES_MIN)) {
                Ok((0, _)) => return Ok(0),
                Ok(_) if buf.len() > before => {
                    let _ = flush(tls, outbound);
                    return Ok(buf.len() - before);
                }
                // Incomplete record, or no data (a ticket, for example).
                Ok(_) => {}
                Err(Failed::Io(e)) => return Err(e),
                Err(Failed::Tls(why)) => {
                    let _ = flush(tls, outbound);
                    return Err(broken(&why));
                }
            }
        }
        Ok(0)
    }

    /// Encrypts plaintext; what the socket does not take goes with the next write or wait.
    pub fn send(&self, outbound: &Outbound, buf: &[u8]) -> io::Result<usize> {
        let tls = &mut **self.tls.borrow_mut();
        if tls.output().len() >= UNSENT_MAX {
            flush(tls, outbound)?;
        }
        let taken = buf.get(..buf.len().min(WRITE_BYTES)).unwrap_or(buf);
        tls.send(&[IoSlice::new(taken)]).map_err(|why| broken(&why))?;
        match flush(tls, outbound) {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
            _ => Ok(taken.len()),
        }
    }

    pub fn poll_readable(&self, outbound: &Outbound, cx: &mut Context<'_>) -> Poll<()> {
        if !self.early.borrow().is_empty() {
            return Poll::Ready(());
        }
        let tls = &mut **self.tls.borrow_mut();
        while tls.wants_write() {
            match flush(tls, outbound) {
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

    pub fn has_unsent(&self) -> bool {
        self.tls.borrow().wants_write()
    }
    pub fn flush(&self, outbound: &Outbound) -> io::Result<()> {
        flush(&mut self.tls.borrow_mut(), outbound)
    }
    pub fn facts(&self) -> Option<Arc<Facts>> {
        self.tls.borrow().facts().cloned()
    }
    pub fn into_parts(self) -> (TlsStream, Vec<u8>) {
        (*self.tls.into_inner(), self.early.into_inner())
    }
    pub fn shrink(&self) {
        self.tls.borrow_mut().shrink();
    }

    /// Sends `close_notify` without waiting.
    pub fn close(&self, outbound: &Outbound) {
        let tls = &mut **self.tls.borrow_mut();
        if tls.close_notify().is_ok() {
            let _ = flush(tls, outbound);
        }
    }
}

enum Failed {
    Tls(TlsError),
    Io(io::Error),
}

/// Reads once; returns the octets of ciphertext.
fn receive(
    tls: &mut TlsStream,
    outbound: &Outbound,
    plain: &mut Vec<u8>,
    room: usize,
) -> Result<(usize, Received), Failed> {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        // The room is the caller's: decrypts no more than requested.
        if scratch.capacity() < room {
            scratch.reserve_exact(room);
        }
        let mut bytes = std::mem::take(scratch);
        let got = outbound.try_recv(&mut bytes).map_err(Failed::Io);
        let got = got.and_then(|n| tls.receive(&mut bytes, plain).map(|received| (n, received)).map_err(Failed::Tls));
        *scratch = bytes;
        got
    })
}

fn flush(tls: &mut TlsStream, outbound: &Outbound) -> io::Result<()> {
    while tls.wants_write() {
        match outbound.try_send(tls.output()) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => tls.advance(n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
