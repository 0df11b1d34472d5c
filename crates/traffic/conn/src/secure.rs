//! TLS between a client's socket and its protocol, including handshakes; frees buffers between requests.

use crate::worker::{READ_BYTES, Worker};
use http_engine::Connection;
use metrics::TlsFailure;
use net::poller::Key;
use observe::Level;
use runtime::budget;
use runtime::wake::KeyWaker;
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use tls::{Received, TlsError, TlsStream, Wait};

/// Unsent ciphertext above which nothing more is accepted.
const UNSENT_BYTES_MAX: usize = 64 * 1024;
/// Plaintext encrypted at once: mostly what the socket takes.
const SEND_BYTES_MAX: usize = 80 * 1024;
/// Budget of a handshake in octets: signature and key exchange take over half a millisecond.
const HANDSHAKE_COST: usize = budget::BYTES as usize / 2;

pub struct Secure {
    /// Replaced after the handshake by one with its facts.
    connection: RefCell<Rc<Connection>>,
    stream: RefCell<TlsStream>,
    /// The first byte was examined.
    begun: Cell<bool>,
    /// The reason for closing was logged.
    told: Cell<bool>,
    /// Ciphertext that followed a PROXY protocol header.
    unread: RefCell<Vec<u8>>,
    /// Plaintext of a handshake made elsewhere.
    plain: RefCell<Vec<u8>>,
    /// The certificate is being ordered.
    wait: RefCell<Option<Arc<Wait>>>,
}

impl Secure {
    /// `unread`: bytes read before TLS.
    pub fn new(connection: Rc<Connection>, unread: &[u8]) -> Secure {
        Secure {
            connection: RefCell::new(connection),
            stream: RefCell::new(TlsStream::server()),
            begun: Cell::new(false),
            told: Cell::new(false),
            unread: RefCell::new(unread.to_vec()),
            plain: RefCell::default(),
            wait: RefCell::default(),
        }
    }
    /// Connection after a handshake in another area; `plain`: decrypted bytes.
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
    pub fn is_handshaking(&self) -> bool {
        self.stream.borrow().is_handshaking()
    }
    pub fn has_begun(&self) -> bool {
        self.begun.get()
    }
    pub fn begin(&self) {
        self.begun.set(true);
    }
    /// Takes read bytes that are not TLS.
    pub fn take_unread(&self) -> Vec<u8> {
        self.unread.take()
    }
    pub fn has_told(&self) -> bool {
        self.told.get()
    }
    /// Tells whether the handshake waits for its certificate.
    pub fn is_waiting(&self) -> bool {
        self.wait.borrow().is_some()
    }
    pub fn has_unsent(&self) -> bool {
        self.stream.borrow().wants_write()
    }
    pub fn shrink(&self) {
        self.stream.borrow_mut().shrink();
    }

    pub fn flush(&self, worker: &Worker, key: Key) -> io::Result<()> {
        write_out(&mut self.stream.borrow_mut(), worker, key)
    }

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
            // Accepted; the rest leaves with the next write.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(sent),
            Err(e) => Err(e),
            Ok(()) => Ok(sent),
        }
    }

    /// Fails as `Link::recv`; a broken handshake or record is `InvalidData`, and logged.
    pub fn recv(&self, worker: &Rc<Worker>, key: Key, plain: &mut Vec<u8>) -> io::Result<usize> {
        let mut early = self.plain.take();
        if !early.is_empty() && worker.poller.contains(key) {
            let n = early.len();
            plain.append(&mut early);
            return Ok(n);
        }
        if let Some(received) = self.resume(worker, key, plain)?
            && (received.plain > 0 || received.closed)
        {
            return Ok(received.plain);
        }
        loop {
            if !self.stream.borrow().wants_read() {
                return Ok(0);
            }
            // Unread bytes stay in the socket: the rest of the handshake follows the choice.
            if !budget::is_left() || self.is_waiting() {
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
            self.flush_handshake(worker, key);
            self.wake_later(key);
            let received = received?;
            if received.plain > 0 {
                return Ok(received.plain);
            }
            if received.closed {
                return Ok(0);
            }
        }
    }

    /// Sends handshake messages, alerts, answers to key updates.
    fn flush_handshake(&self, worker: &Worker, key: Key) {
        let flushed = self.flush(worker, key);
        if flushed.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) {
            worker.poller.blocked(key);
        }
    }

    /// Lets the end of a wait wake the entry.
    fn wake_later(&self, key: Key) {
        if let Some(wait) = &*self.wait.borrow() {
            wait.wake(&KeyWaker::new(key).waker());
        }
    }

    /// Continues a handshake whose wait has ended.
    fn resume(&self, worker: &Rc<Worker>, key: Key, plain: &mut Vec<u8>) -> io::Result<Option<Received>> {
        if self.wait.borrow().as_ref().is_none_or(|wait| !wait.is_over()) {
            return Ok(None);
        }
        self.wait.take();
        let chosen = self.choose(worker, plain);
        let received = self.received(worker, chosen, true);
        self.flush_handshake(worker, key);
        self.wake_later(key);
        received.map(Some)
    }

    /// Reads the first byte, to detect TLS. Reads instead of peeking: bytes that arrive in between would be missed.
    pub fn first(&self, worker: &Worker, key: Key) -> io::Result<Option<u8>> {
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
        self.received(worker, result, is_handshaking)
    }

    /// Notes the progress of the stream.
    fn received(
        &self,
        worker: &Worker,
        result: Result<Received, TlsError>,
        is_handshaking: bool,
    ) -> io::Result<Received> {
        match result {
            Ok(received) => {
                // Early data's requests need the facts, too.
                if received.handshake_done || received.early {
                    self.handshake_done();
                }
                if received.handshake_done {
                    let resumed = self.connection().tls.as_ref().is_some_and(|facts| facts.resumed);
                    if let Some(facts) = &self.connection().tls {
                        metrics::count_tls_version(facts.protocol);
                    }
                    self.count(worker, Ok(resumed));
                }
                Ok(received)
            }
            Err(e) => {
                self.log(worker, &e, is_handshaking);
                Err(io::ErrorKind::InvalidData.into())
            }
        }
    }

    /// Continues the handshake by the ClientHello's server.
    fn choose(&self, worker: &Rc<Worker>, plain: &mut Vec<u8>) -> Result<Received, TlsError> {
        budget::spend(HANDSHAKE_COST);
        let connection = self.connection();
        let plan = worker.plan.borrow().clone();
        let choice = {
            let stream = self.stream.borrow();
            plan.as_ref().zip(stream.hello()).and_then(|(plan, hello)| plan.tls_choice(&connection, hello))
        };
        // The listener is gone or lost TLS.
        let (choice, h2) = choice.unwrap_or((tls::Choice::Fail, false));
        if let tls::Choice::Wait(wait) = choice {
            *self.wait.borrow_mut() = Some(wait);
            return Ok(Received::default());
        }
        self.stream.borrow_mut().choose(choice, h2, plain)
    }

    fn handshake_done(&self) {
        let facts = self.stream.borrow().facts().cloned();
        let old = self.connection();
        *self.connection.borrow_mut() = Rc::new(Connection { tls: facts, ..(*old).clone() });
    }

    fn ended(&self, worker: &Worker) {
        if self.stream.borrow().is_handshaking() {
            self.count(worker, Err(TlsFailure::Other));
            // nginx distinguishes clients that sent nothing (`ngx_http_ssl_handshake`).
            let words =
                if self.begun.get() { "peer closed connection in SSL handshake" } else { "client closed connection" };
            self.say(worker, Level::Info, words);
        }
    }

    fn log(&self, worker: &Worker, e: &TlsError, is_handshaking: bool) {
        if is_handshaking {
            self.count(worker, Err(failure(e)));
        }
        let call = if is_handshaking { "SSL_do_handshake" } else { "SSL_read" };
        self.say(worker, level_of(e), &format!("{call}() failed (SSL: {e})"));
    }

    /// Counts the handshake for the process and, if it has a zone, for the server that the client names.
    pub fn count(&self, worker: &Worker, done: Result<bool, TlsFailure>) {
        metrics::count_handshake(metrics::Area::Http, done);
        if let Some(plan) = &*worker.plan.borrow() {
            plan.count_handshake(&self.connection(), self.stream.borrow().hello(), done);
        }
    }

    pub fn say(&self, worker: &Worker, level: Level, words: &str) {
        self.told.set(true);
        let connection = self.connection();
        let during = if self.stream.borrow().is_handshaking() { " while SSL handshaking" } else { "" };
        worker.log_client(level, &connection, format_args!("{words}{during}"));
    }

    /// Sends `close_notify` without waiting.
    pub fn say_goodbye(&self, worker: &Worker, key: Key) {
        if let Ok(mut stream) = self.stream.try_borrow_mut()
            && stream.close_notify().is_ok()
        {
            let _ = write_out(&mut stream, worker, key);
        }
    }
}

pub fn failure(e: &TlsError) -> TlsFailure {
    match e {
        TlsError::UnsupportedProtocol => TlsFailure::NoCommonProtocol,
        TlsError::NoSharedCipher => TlsFailure::NoCommonCipher,
        e if e.is_rejected_certificate() => TlsFailure::PeerRejectedCert,
        _ => TlsFailure::Other,
    }
}

/// Clients' faults are `info`, own ones `crit`.
fn level_of(e: &TlsError) -> Level {
    match e {
        TlsError::Dead => Level::Crit,
        _ => Level::Info,
    }
}

fn write_out(stream: &mut TlsStream, worker: &Worker, key: Key) -> io::Result<()> {
    while stream.wants_write() {
        let n = worker.poller.send(key, stream.output(), false)?;
        stream.advance(n);
    }
    Ok(())
}

const _: () = assert!(READ_BYTES >= 16 * 1024 + 256, "a record fits a read");
