//! TLS between a client's socket and its protocol, including handshakes; frees buffers between requests.

use crate::pools::READ_BYTES;
use crate::worker::Worker;
use http_engine::ClientConnection;
use metrics::TlsFailure;
use net::poller::Key;
use observe::Severity;
use runtime::budget;
use runtime::wake::KeyWaker;
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use tls::{Channel, ChannelError, ReceivedBytes, Socket, TlsError, TlsStream, Wait};

/// Bytes read to detect TLS: most ClientHellos are shorter.
const FIRST_BYTES: usize = 2 * 1024;
/// Least ciphertext per read: a record is decrypted whole.
const READ_BYTES_MIN: usize = 4 * 1024;
/// Budget of a handshake in octets: signature and key exchange take over half a millisecond.
const HANDSHAKE_COST: usize = budget::BYTES as usize / 2;

/// TLS of a client's connection: the carrier of its entry, and the channel below its [`Link`](crate::link::Link).
///
/// The channel is borrowed for single calls; no method may be called from within another.
pub struct Secure {
    /// Replaced after the handshake by one with its facts.
    connection: RefCell<Rc<ClientConnection>>,
    channel: RefCell<Channel>,
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
    pub fn new(connection: Rc<ClientConnection>, unread: &[u8]) -> Secure {
        Secure {
            connection: RefCell::new(connection),
            channel: RefCell::new(Channel::new(TlsStream::server())),
            begun: Cell::new(false),
            told: Cell::new(false),
            unread: RefCell::new(unread.to_vec()),
            plain: RefCell::default(),
            wait: RefCell::default(),
        }
    }
    /// Connection after a handshake in another area; `plain`: decrypted bytes.
    pub fn established(connection: Rc<ClientConnection>, stream: TlsStream, plain: Vec<u8>) -> Secure {
        let channel = RefCell::new(Channel::new(stream));
        let secure = Secure { channel, plain: RefCell::new(plain), ..Secure::new(connection, &[]) };
        secure.begun.set(true);
        secure.handshake_done();
        secure
    }
    /// Returns the connection; after the handshake with its facts.
    pub fn connection(&self) -> Rc<ClientConnection> {
        self.connection.borrow().clone()
    }
    /// Tells whether the handshake is unfinished.
    pub fn is_handshaking(&self) -> bool {
        self.channel.borrow().is_handshaking()
    }
    /// Tells whether the first byte was examined, so that the connection is known to use TLS.
    pub fn has_begun(&self) -> bool {
        self.begun.get()
    }
    /// Notes that the first byte begins a handshake.
    pub fn begin(&self) {
        self.begun.set(true);
    }
    /// Takes read bytes that are not TLS.
    pub fn take_unread(&self) -> Vec<u8> {
        self.unread.take()
    }
    /// Tells whether the reason for closing was logged.
    pub fn has_told(&self) -> bool {
        self.told.get()
    }
    /// Tells whether the handshake waits for a certificate.
    pub fn is_waiting(&self) -> bool {
        self.wait.borrow().is_some()
    }
    /// Tells whether ciphertext waits for the socket.
    pub fn has_unsent(&self) -> bool {
        self.channel.borrow().has_unsent()
    }
    /// Releases spare memory of the buffers.
    pub fn shrink(&self) {
        self.channel.borrow_mut().shrink();
    }

    fn socket<'a>(&'a self, worker: &'a Worker, key: Key) -> ClientSocket<'a> {
        ClientSocket { worker, key, unread: &self.unread }
    }

    /// Writes ciphertext; fails with `WouldBlock` if more is left.
    pub fn flush(&self, worker: &Worker, key: Key) -> io::Result<()> {
        self.channel.borrow_mut().flush(&self.socket(worker, key))
    }

    /// Encrypts and writes pieces; returns the number of accepted plaintext bytes.
    pub fn send(&self, worker: &Worker, key: Key, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(self.channel.borrow_mut().send(&self.socket(worker, key), pieces)?)
    }

    /// Reads up to `room` bytes of ciphertext, at least [`READ_BYTES_MIN`]. Fails as `Link::recv`; a broken handshake or
    /// record is `InvalidData`, and logged.
    pub fn recv(&self, worker: &Rc<Worker>, key: Key, room: usize, plain: &mut Vec<u8>) -> io::Result<usize> {
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
            if !self.channel.borrow().wants_read() {
                return Ok(0);
            }
            // Unread bytes stay in the socket: the rest of the handshake follows the choice.
            if !budget::is_left() || self.is_waiting() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let was_handshaking = self.is_handshaking();
            let read = self.channel.borrow_mut().read(&self.socket(worker, key), room.max(READ_BYTES_MIN), plain);
            let received = match read {
                Err(ChannelError::Io(e)) => return Err(e),
                Ok((0, _)) => {
                    self.ended(worker);
                    return Ok(0);
                }
                Ok((_, received)) if received.hello => {
                    let chosen = self.choose(worker, plain);
                    self.received(worker, chosen, was_handshaking)
                }
                Ok((_, received)) => self.received(worker, Ok(received), was_handshaking),
                Err(ChannelError::Tls(why)) => self.received(worker, Err(why), was_handshaking),
            };
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
    fn resume(&self, worker: &Rc<Worker>, key: Key, plain: &mut Vec<u8>) -> io::Result<Option<ReceivedBytes>> {
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
            let mut first = Vec::with_capacity(FIRST_BYTES);
            let got = worker.poller.recv_spare(key, &mut first);
            worker.note_read(key, &got, FIRST_BYTES);
            got?;
            *unread = first;
        }
        Ok(unread.first().copied())
    }

    fn received(
        &self,
        worker: &Worker,
        result: Result<ReceivedBytes, TlsError>,
        was_handshaking: bool,
    ) -> io::Result<ReceivedBytes> {
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
                self.log(worker, &e, was_handshaking);
                Err(io::ErrorKind::InvalidData.into())
            }
        }
    }

    /// Continues the handshake by the ClientHello's server.
    fn choose(&self, worker: &Rc<Worker>, plain: &mut Vec<u8>) -> Result<ReceivedBytes, TlsError> {
        budget::spend(HANDSHAKE_COST);
        let connection = self.connection();
        let plan = worker.plan.borrow().clone();
        let choice = {
            let channel = self.channel.borrow();
            plan.as_ref().zip(channel.hello()).and_then(|(plan, hello)| plan.tls_choice(&connection, hello))
        };
        // The listener is gone or lost TLS.
        let (choice, h2) = choice.unwrap_or((tls::Choice::Fail, false));
        if let tls::Choice::Wait(wait) = choice {
            *self.wait.borrow_mut() = Some(wait);
            return Ok(ReceivedBytes::default());
        }
        self.channel.borrow_mut().choose(choice, h2, plain)
    }

    fn handshake_done(&self) {
        let facts = self.channel.borrow().facts().cloned();
        let old = self.connection();
        *self.connection.borrow_mut() = Rc::new(ClientConnection { tls: facts, ..(*old).clone() });
    }

    fn ended(&self, worker: &Worker) {
        if self.channel.borrow().is_handshaking() {
            self.count(worker, Err(TlsFailure::Other));
            // nginx distinguishes clients that sent nothing (`ngx_http_ssl_handshake`).
            let words =
                if self.begun.get() { "peer closed connection in SSL handshake" } else { "client closed connection" };
            self.say(worker, Severity::Info, words);
        }
    }

    fn log(&self, worker: &Worker, e: &TlsError, is_handshaking: bool) {
        if is_handshaking {
            self.count(worker, Err(tls_failure(e)));
        }
        let words = if is_handshaking { e.of_handshake() } else { format!("SSL_read() failed (SSL: {e})") };
        self.say(worker, level_of(e), &words);
    }

    /// Counts the handshake for the process and, if it has a zone, for the server that the client names.
    pub fn count(&self, worker: &Worker, done: Result<bool, TlsFailure>) {
        metrics::count_handshake(metrics::Area::Http, done);
        if let Some(plan) = &*worker.plan.borrow() {
            plan.count_handshake(&self.connection(), self.channel.borrow().hello(), done);
        }
    }

    /// Logs the reason for closing, with nginx's context.
    pub fn say(&self, worker: &Worker, level: Severity, words: &str) {
        self.told.set(true);
        let connection = self.connection();
        let during = if self.channel.borrow().is_handshaking() { " while SSL handshaking" } else { "" };
        worker.log_client(level, &connection, format_args!("{words}{during}"));
    }

    /// Sends `close_notify` without waiting.
    pub fn say_goodbye(&self, worker: &Worker, key: Key) {
        if let Ok(mut channel) = self.channel.try_borrow_mut() {
            channel.close(&self.socket(worker, key));
        }
    }
}

/// Returns the class of a failed handshake, for metrics.
pub fn tls_failure(e: &TlsError) -> TlsFailure {
    match e {
        TlsError::UnsupportedProtocol => TlsFailure::NoCommonProtocol,
        TlsError::NoSharedCipher => TlsFailure::NoCommonCipher,
        e if e.is_rejected_certificate() => TlsFailure::PeerRejectedCert,
        _ => TlsFailure::Other,
    }
}

/// Clients' faults are `info`, own ones `crit`.
fn level_of(e: &TlsError) -> Severity {
    match e {
        TlsError::Dead => Severity::Crit,
        _ => Severity::Info,
    }
}

/// A client's socket below its channel.
struct ClientSocket<'a> {
    worker: &'a Worker,
    key: Key,
    unread: &'a RefCell<Vec<u8>>,
}

impl Socket for ClientSocket<'_> {
    fn recv(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        let (worker, room) = (self.worker, buf.capacity() - buf.len());
        let mut unread = self.unread.borrow_mut();
        if unread.is_empty() || !worker.poller.contains(self.key) {
            let got = worker.poller.recv_spare(self.key, buf);
            worker.note_read(self.key, &got, room);
            return got;
        }
        let n = unread.len().min(room);
        buf.extend(unread.drain(..n));
        if unread.is_empty() {
            *unread = Vec::new();
        }
        Ok(n)
    }
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.worker.poller.send(self.key, bytes, false)
    }
    fn room(&self) -> Option<usize> {
        self.worker.poller.send_room(self.key)
    }
}

const _: () = assert!(READ_BYTES >= 16 * 1024 + 256, "a record fits a read");
