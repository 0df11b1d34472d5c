//! A client's connection with TLS: the handshake, and records around the bytes of the protocol.
//!
//! The handshake needs no task: its messages are answered as they come, by an idle connection. A request over TLS is one
//! read and one write like any other; between requests the buffers of the TLS session are given back.

use crate::link::READ_BYTES;
use crate::task::{self, Start};
use crate::worker::{Registration, Worker};
use crate::{head_in, inline};
use http_engine::Connection;
use net::poller::Key;
use observe::Level;
use runtime::budget;
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::rc::Rc;
use tls::{Received, TlsError, TlsStream};

/// Ciphertext of one connection that waits for its socket, at most, before nothing more is taken.
const UNSENT_BYTES_MAX: usize = 64 * 1024;
/// Plaintext that is encrypted at one go: what the socket takes at once, mostly.
const SEND_BYTES_MAX: usize = 80 * 1024;
/// What a handshake's arithmetic costs of a turn's share (a signature and a key exchange: a good half of a millisecond).
const HANDSHAKE_COST: usize = budget::BYTES as usize / 2;

/// See the module's documentation.
pub struct Secure {
    /// Replaced when the handshake is done, by one that has its facts.
    connection: RefCell<Rc<Connection>>,
    stream: RefCell<TlsStream>,
    /// The first byte has been looked at.
    begun: Cell<bool>,
    /// Why it ends has been logged.
    told: Cell<bool>,
    /// Ciphertext that came with a PROXY protocol header.
    unread: RefCell<Vec<u8>>,
    /// Plaintext that came with the end of a handshake that was made elsewhere.
    plain: RefCell<Vec<u8>>,
}

impl Secure {
    /// `unread`: bytes that were read from the socket before TLS began.
    pub fn new(connection: Rc<Connection>, unread: &[u8]) -> Secure {
        Secure {
            connection: RefCell::new(connection),
            stream: RefCell::new(TlsStream::server()),
            begun: Cell::new(false),
            told: Cell::new(false),
            unread: RefCell::new(unread.to_vec()),
            plain: RefCell::default(),
        }
    }
    /// A connection whose handshake another area has made; `plain`: what has been decrypted already.
    pub fn established(connection: Rc<Connection>, stream: TlsStream, plain: Vec<u8>) -> Secure {
        let secure =
            Secure { stream: RefCell::new(stream), plain: RefCell::new(plain), ..Secure::new(connection, &[]) };
        secure.begun.set(true);
        secure.handshake_done();
        secure
    }
    pub fn connection(&self) -> Rc<Connection> {
        self.connection.borrow().clone()
    }
    /// What comes goes on with the handshake, or begins it.
    pub fn is_handshaking(&self) -> bool {
        self.stream.borrow().is_handshaking()
    }
    /// The client has sent something.
    pub fn has_begun(&self) -> bool {
        self.begun.get()
    }
    /// Why it ends stands in the log already.
    pub fn has_told(&self) -> bool {
        self.told.get()
    }
    pub fn has_unsent(&self) -> bool {
        self.stream.borrow().wants_write()
    }
    /// Gives the session's buffers back: the connection is idle.
    pub fn shrink(&self) {
        self.stream.borrow_mut().shrink();
    }

    /// # Errors
    /// As [`Link::flush`].
    pub fn flush(&self, worker: &Worker, key: Key) -> io::Result<()> {
        write_out(&mut self.stream.borrow_mut(), worker, key)
    }

    /// # Errors
    /// As [`Link::send`].
    pub fn send(&self, worker: &Worker, key: Key, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut stream = self.stream.borrow_mut();
        if stream.output().len() >= UNSENT_BYTES_MAX {
            write_out(&mut stream, worker, key)?;
        }
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
        let sent = stream.send(&taken).map_err(io::Error::other)?;
        match write_out(&mut stream, worker, key) {
            // It is taken; the rest leaves with the next write.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(sent),
            Err(e) => Err(e),
            Ok(()) => Ok(sent),
        }
    }

    /// # Errors
    /// As [`Link::recv`]; a broken handshake or record is `InvalidData`, and has been logged.
    pub fn recv(&self, worker: &Rc<Worker>, key: Key, plain: &mut Vec<u8>) -> io::Result<usize> {
        let mut early = self.plain.take();
        if !early.is_empty() && worker.poller.contains(key) {
            let n = early.len();
            plain.append(&mut early);
            return Ok(n);
        }
        loop {
            if !self.stream.borrow().wants_read() {
                return Ok(0);
            }
            if !budget::is_left() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let mut cipher = worker.cipher_buf.borrow_mut();
            if cipher.is_empty() {
                cipher.resize(READ_BYTES, 0);
            }
            let got = self.read(worker, key, &mut cipher)?;
            if got == 0 {
                self.ended(worker);
                return Ok(0);
            }
            let received = self.receive(worker, cipher.get_mut(..got).unwrap_or_default(), plain);
            drop(cipher);
            // Handshake messages, alerts, answers to key updates.
            let flushed = self.flush(worker, key);
            if flushed.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) {
                worker.poller.blocked(key);
            }
            let received = received?;
            if received.plain > 0 {
                return Ok(received.plain);
            }
            if received.closed {
                return Ok(0);
            }
        }
    }

    /// The first byte of all, which says whether it is TLS. It is read, not looked at: what comes between a look and a read would not
    /// have been looked at.
    fn first(&self, worker: &Worker, key: Key) -> io::Result<Option<u8>> {
        let mut unread = self.unread.borrow_mut();
        if unread.is_empty() {
            let mut cipher = worker.cipher_buf.borrow_mut();
            if cipher.is_empty() {
                cipher.resize(READ_BYTES, 0);
            }
            let got = worker.poller.recv(key, &mut cipher);
            worker.note_read(key, &got, cipher.len());
            unread.extend_from_slice(cipher.get(..got?).unwrap_or_default());
        }
        Ok(unread.first().copied())
    }

    fn read(&self, worker: &Worker, key: Key, cipher: &mut [u8]) -> io::Result<usize> {
        let unread = std::mem::take(&mut *self.unread.borrow_mut());
        if unread.is_empty() || !worker.poller.contains(key) {
            let got = worker.poller.recv(key, cipher);
            worker.note_read(key, &got, cipher.len());
            return got;
        }
        let n = unread.len().min(cipher.len());
        let (now, later) = unread.split_at(n);
        cipher.get_mut(..n).unwrap_or_default().copy_from_slice(now);
        *self.unread.borrow_mut() = later.to_vec();
        Ok(n)
    }

    fn receive(&self, worker: &Rc<Worker>, cipher: &mut [u8], plain: &mut Vec<u8>) -> io::Result<Received> {
        let (result, is_handshaking) = {
            let mut stream = self.stream.borrow_mut();
            let is_handshaking = stream.is_handshaking();
            (stream.receive(cipher, plain), is_handshaking)
        };
        let result = match result {
            Ok(received) if received.hello => self.choose(worker, plain),
            result => result,
        };
        match result {
            Ok(received) => {
                // Requests in early data know of the connection, too.
                if received.handshake_done || received.early {
                    self.handshake_done();
                }
                if received.handshake_done {
                    let resumed = self.connection().tls.as_ref().is_some_and(|facts| facts.resumed);
                    metrics::count_handshake(metrics::Area::Http, Some(resumed));
                }
                Ok(received)
            }
            Err(e) => {
                self.log(worker, &e, is_handshaking);
                Err(io::ErrorKind::InvalidData.into())
            }
        }
    }

    /// The ClientHello is there: its server's rules go on with the handshake.
    fn choose(&self, worker: &Rc<Worker>, plain: &mut Vec<u8>) -> Result<Received, TlsError> {
        budget::spend(HANDSHAKE_COST);
        let connection = self.connection();
        let plan = worker.plan.borrow().clone();
        let choice = {
            let stream = self.stream.borrow();
            plan.as_ref().zip(stream.hello()).and_then(|(plan, hello)| plan.tls_choice(&connection, hello))
        };
        // The listener is gone or has no TLS any more.
        let (choice, h2) = choice.unwrap_or((tls::Choice::Fail, false));
        self.stream.borrow_mut().choose(choice, h2, plain)
    }

    fn handshake_done(&self) {
        let facts = self.stream.borrow().facts().cloned();
        let old = self.connection();
        *self.connection.borrow_mut() = Rc::new(Connection { tls: facts, ..(*old).clone() });
    }

    fn ended(&self, worker: &Worker) {
        if self.stream.borrow().is_handshaking() {
            metrics::count_handshake(metrics::Area::Http, None);
            // nginx says less of a client that has not sent a byte (`ngx_http_ssl_handshake`).
            let words =
                if self.begun.get() { "peer closed connection in SSL handshake" } else { "client closed connection" };
            self.say(worker, Level::Info, words);
        }
    }

    fn log(&self, worker: &Worker, e: &TlsError, is_handshaking: bool) {
        if is_handshaking {
            metrics::count_handshake(metrics::Area::Http, None);
        }
        let call = if is_handshaking { "SSL_do_handshake" } else { "SSL_read" };
        self.say(worker, level_of(e), &format!("{call}() failed (SSL: {e})"));
    }

    fn say(&self, worker: &Worker, level: Level, words: &str) {
        self.told.set(true);
        let connection = self.connection();
        let client = http_engine::variables::peer_text(&connection);
        let during = if self.stream.borrow().is_handshaking() { " while SSL handshaking" } else { "" };
        let local = &connection.local;
        worker.log(level, connection.number, format_args!("{words}{during}, client: {client}, server: {local}"));
    }

    /// `close_notify`, as far as the socket takes it at once.
    pub fn say_goodbye(&self, worker: &Worker, key: Key) {
        if let Ok(mut stream) = self.stream.try_borrow_mut()
            && stream.close_notify().is_ok()
        {
            let _ = write_out(&mut stream, worker, key);
        }
    }
}

/// What a client does wrong is its own affair; what we cannot do is ours.
fn level_of(e: &TlsError) -> Level {
    match e {
        TlsError::Dead => Level::Crit,
        _ => Level::Info,
    }
}

/// One write, mostly.
fn write_out(stream: &mut TlsStream, worker: &Worker, key: Key) -> io::Result<()> {
    while stream.wants_write() {
        let n = worker.poller.send(key, stream.output(), false)?;
        stream.advance(n);
    }
    Ok(())
}

/// An idle connection with TLS turned readable.
pub fn readable(worker: &Rc<Worker>, key: Key, secure: &Rc<Secure>) {
    let connection = secure.connection();
    if !secure.begun.get() {
        match secure.first(worker, key) {
            // A handshake's record, or the hello of SSL 2 (nginx: `ngx_http_ssl_handshake`).
            Ok(Some(0x16 | 0x80..)) => secure.begun.set(true),
            // Plain HTTP is answered in plain: with 497.
            Ok(Some(_)) => {
                worker.poller.set_registration(key, Registration::Client(connection.clone()));
                return task::spawn(worker, key, &connection, Start::Bytes(secure.unread.take()));
            }
            // Nothing has come yet.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            // It has ended before it has begun.
            Ok(None) | Err(_) => {}
        }
    }
    inline::readable(worker, key, &connection, Some(secure));
    if !worker.poller.is_idle(key) {
        return;
    }
    if secure.has_unsent() {
        // The peer takes its time; its deadline stays.
        task::spawn(worker, key, &secure.connection(), Start::Flush(worker.poller.deadline(key)));
    } else {
        secure.shrink();
    }
}

/// A handshake that takes too long is closed like a head that does (nginx: `ssl_handshake_timeout`).
pub fn timed_out(worker: &Rc<Worker>, key: Key, secure: &Rc<Secure>) {
    if secure.stream.borrow().is_handshaking() {
        metrics::count_handshake(metrics::Area::Http, None);
        secure.say(worker, Level::Info, "client timed out (110: Connection timed out)");
        head_in::reset_timed_out(worker, key, &secure.connection());
        return worker.close(key);
    }
    head_in::timed_out(worker, key, &secure.connection());
}

const _: () = assert!(READ_BYTES >= 16 * 1024 + 256, "a record fits a read");
