//! A TLS connection without a socket: `receive` turns ciphertext into plaintext, `send` fills `output`, and `advance`
//! follows each write. A server stops at the complete ClientHello ([`ReceivedBytes::hello`]) until [`TlsStream::choose`].
//! Decrypts in place and keeps only incomplete records; one output buffer lets head and body leave together.
//! [`TlsStream::shrink`] frees both between requests.

use crate::certs::KeyPair;
use crate::client::{ClientRules, Target};
use crate::current::{self, HandshakeRecord};
use crate::error::{
    INTERNAL_ERROR, MISSING_EXTENSION, PROTOCOL_VERSION, TlsError, UNEXPECTED_MESSAGE, UNRECOGNIZED_NAME,
};
use crate::facts::{Facts, PeerCertificate};
use crate::hello::{self, ClientHello, Peek};
use crate::output::Output;
use crate::server::{Choice, ServerRules, VerifyClient};
use crate::verify::Purpose;
use crate::x509::Certificate;
use crate::{ciphers, groups};
use base::append::append_bytes;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{CommonState, HandshakeKind, ProtocolVersion};
use std::io::IoSlice;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

const TLS1_2: u16 = 0x0303;
const TLS1_3: u16 = 0x0304;
/// Octets of plaintext per record (RFC 8446, 5.1).
pub(crate) const RECORD_MAX: usize = 16_384;
/// Record overhead: header, explicit nonce, tag, inner type.
const RECORD_OVERHEAD: usize = 64;
/// Steps of rustls per call; each consumes a record or emits a message.
const STEPS_MAX: usize = 100_000;
/// Steps of rustls until its last alert is encoded: failure, alert, end.
const ALERT_STEPS_MAX: usize = 4;
/// Octets above which empty buffers are freed at once. The records of two `output_buffers` and a head fit.
pub(crate) const KEPT_MAX: usize = 80 * 1024;

/// Result of [`TlsStream::receive`] and [`TlsStream::choose`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedBytes {
    /// Octets of plaintext that were appended.
    pub plain: usize,
    /// The ClientHello is complete: continue with [`TlsStream::choose`].
    pub hello: bool,
    /// The handshake has ended in this call.
    pub handshake_done: bool,
    /// The peer sent `close_notify`; earlier data is valid.
    pub closed: bool,
    /// Some plaintext of this call is early data, which may be replayed (RFC 8446, 8).
    pub early: bool,
}

enum Role {
    /// A server waiting for the ClientHello, or for its rules.
    Accepting,
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
    Dead,
}

const HANDSHAKE: u8 = 22;
/// Type of encrypted records (RFC 8446, 5.1).
const APPLICATION_DATA: u8 = 23;

/// Either side of a TLS connection.
///
/// For ciphertext, [`TlsStream::receive`]; after [`ReceivedBytes::hello`], [`TlsStream::choose`] before any other input. For
/// plaintext, [`TlsStream::send`]. After each of these, also after errors, [`TlsStream::output`] is written and removed
/// with [`TlsStream::advance`].
pub struct TlsStream {
    role: Role,
    pending: Vec<u8>,
    /// Octets that a complete ClientHello needs at least.
    hello_at: usize,
    /// Offset of the ClientHello's next record header.
    record_at: usize,
    /// A record under handshake keys arrived: early data is over.
    early_over: bool,
    output: Output,
    /// Set after the handshake, or with early data.
    facts: Option<Arc<Facts>>,
    hello: Option<Box<ClientHello>>,
    rules: Option<Arc<ServerRules>>,
    told: HandshakeRecord,
    record: usize,
    received_close: bool,
    sent_close: bool,
}

impl std::fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsStream")
            .field("handshaking", &self.is_handshaking())
            .field("pending", &self.pending.len())
            .field("output", &self.output.filled().len())
            .finish_non_exhaustive()
    }
}

enum ReadStep {
    Again,
    Rest,
}

impl TlsStream {
    /// Server side; waits for the ClientHello.
    pub fn server() -> TlsStream {
        TlsStream::new(Role::Accepting)
    }

    /// Client side; its first message is in [`TlsStream::output`]. `certificate` replaces the rules'. Fails when rustls
    /// refuses the rules.
    pub fn client(rules: &ClientRules, target: &Target, certificate: Option<&KeyPair>) -> Result<TlsStream, TlsError> {
        let config = rules.config(target, certificate).map_err(|why| TlsError::from(&why))?;
        let (name, _) = ClientRules::server_name(target);
        let connection = UnbufferedClientConnection::new(config, name).map_err(|why| TlsError::from(&why))?;
        let mut stream = TlsStream::new(Role::Client(Box::new(connection)));
        stream.receive(&mut [], &mut Vec::new())?;
        Ok(stream)
    }

    fn new(role: Role) -> TlsStream {
        TlsStream {
            role,
            pending: Vec::new(),
            hello_at: 0,
            record_at: 0,
            early_over: false,
            output: Output::default(),
            facts: None,
            hello: None,
            rules: None,
            told: HandshakeRecord::default(),
            record: RECORD_MAX,
            received_close: false,
            sent_close: false,
        }
    }

    fn common(&self) -> Option<&CommonState> {
        match &self.role {
            Role::Server(c) => Some(c.deref()),
            Role::Client(c) => Some(c.deref()),
            Role::Accepting | Role::Dead => None,
        }
    }

    /// Tells whether the handshake is incomplete; early data may have arrived.
    pub fn is_handshaking(&self) -> bool {
        match &self.role {
            // A connection that failed later had ended its handshake.
            Role::Dead => self.facts.is_none(),
            _ => self.common().is_none_or(CommonState::is_handshaking),
        }
    }

    /// `None` before the handshake or early data may carry a request.
    pub fn facts(&self) -> Option<&Arc<Facts>> {
        self.facts.as_ref()
    }

    /// Returns the ClientHello of a server's connection, once it is complete.
    pub fn hello(&self) -> Option<&ClientHello> {
        self.hello.as_deref()
    }

    /// Returns the rules that were chosen.
    pub fn rules(&self) -> Option<&Arc<ServerRules>> {
        self.rules.as_ref()
    }

    /// Returns the ciphertext to be written.
    pub fn output(&self) -> &[u8] {
        self.output.filled()
    }

    /// Tells whether there is ciphertext to be written.
    pub fn wants_write(&self) -> bool {
        !self.output.filled().is_empty()
    }

    /// Tells whether input is useful: until the peer closes or a failure.
    pub fn wants_read(&self) -> bool {
        !self.received_close && !matches!(self.role, Role::Dead)
    }

    /// Consumes `n` written octets of [`TlsStream::output`].
    pub fn advance(&mut self, n: usize) {
        self.output.advance(n);
    }

    /// Frees the buffer of written octets, while the socket takes no more.
    pub fn release_written(&mut self) {
        self.output.release_written();
    }

    /// Releases spare memory of an idle connection.
    pub fn shrink(&mut self) {
        if self.output.filled().is_empty() {
            self.output.release();
        }
        self.pending.shrink_to_fit();
    }

    /// Decrypts ciphertext of any length in place and appends the plaintext, which is no longer than it. On failure
    /// [`TlsStream::output`] may hold an alert.
    pub fn receive(&mut self, ciphertext: &mut [u8], plain: &mut Vec<u8>) -> Result<ReceivedBytes, TlsError> {
        let before = plain.len();
        let was_handshaking = self.is_handshaking();
        let mut received = ReceivedBytes::default();
        if matches!(self.role, Role::Dead) {
            return Err(TlsError::Dead);
        }
        if let Role::Accepting = self.role {
            self.pending.extend_from_slice(ciphertext);
            received.hello = self.look()?;
            return Ok(received);
        }
        if self.pending.is_empty() {
            let used = self.run(ciphertext, plain, &mut received)?;
            self.pending.extend_from_slice(ciphertext.get(used..).unwrap_or_default());
        } else {
            self.pending.extend_from_slice(ciphertext);
            self.run_pending(plain, &mut received)?;
        }
        self.settle(before, was_handshaking, plain.len(), &mut received);
        Ok(received)
    }

    /// Continues a server's handshake after [`ReceivedBytes::hello`]. `h2`: offers HTTP/2 first. Fails also when the choice
    /// refuses.
    pub fn choose(&mut self, choice: Choice, h2: bool, plain: &mut Vec<u8>) -> Result<ReceivedBytes, TlsError> {
        let before = plain.len();
        let mut received = ReceivedBytes::default();
        self.accept(choice, h2)?;
        self.run_pending(plain, &mut received)?;
        self.settle(before, true, plain.len(), &mut received);
        Ok(received)
    }

    fn settle(&mut self, before: usize, was_handshaking: bool, after: usize, received: &mut ReceivedBytes) {
        if self.pending.is_empty() && self.pending.capacity() > KEPT_MAX {
            self.pending = Vec::new();
        }
        received.plain = after - before;
        received.handshake_done = was_handshaking && !self.is_handshaking();
        received.closed = self.received_close;
    }

    fn run_pending(&mut self, plain: &mut Vec<u8>, received: &mut ReceivedBytes) -> Result<(), TlsError> {
        let mut pending = std::mem::take(&mut self.pending);
        let result = self.run(&mut pending, plain, received);
        let used = *result.as_ref().unwrap_or(&pending.len());
        pending.drain(..used);
        self.pending = pending;
        result.map(|_| ())
    }

    /// Returns `false` for an incomplete ClientHello.
    fn look(&mut self) -> Result<bool, TlsError> {
        if self.pending.len() < self.hello_at && !self.hello_is_broken() {
            return Ok(false);
        }
        match hello::peek_hello(&self.pending) {
            Peek::More(missing) => {
                self.hello_at = self.pending.len().saturating_add(missing);
                Ok(false)
            }
            Peek::Hello(hello) if hello.versions.iter().all(|v| *v < TLS1_2) => {
                self.alert(PROTOCOL_VERSION);
                Err(self.fail(TlsError::UnsupportedProtocol))
            }
            Peek::Hello(hello) => {
                self.hello = Some(hello);
                Ok(true)
            }
            Peek::NotTls => Err(self.fail(TlsError::NotTls)),
            Peek::Broken(alert) => {
                self.alert(alert);
                let words = match alert {
                    UNEXPECTED_MESSAGE => "error:0A0000F4:SSL routines::unexpected message",
                    _ => "error:0A00009F:SSL routines::length mismatch",
                };
                Err(self.fail(TlsError::Protocol(words.into())))
            }
        }
    }

    /// Detects a foreign record amid the ClientHello's; examines each header once.
    fn hello_is_broken(&mut self) -> bool {
        while let Some([kind, _, _, high, low]) = self.pending.get(self.record_at..).and_then(<[u8]>::first_chunk) {
            if *kind != HANDSHAKE {
                return true;
            }
            self.record_at += 5 + usize::from(u16::from_be_bytes([*high, *low]));
        }
        false
    }

    fn accept(&mut self, choice: Choice, h2: bool) -> Result<(), TlsError> {
        if !matches!(self.role, Role::Accepting) || self.hello.is_none() {
            return Err(TlsError::Dead);
        }
        let (rules, config) = match choice {
            Choice::Rules(rules) => {
                let config = rules.config(h2);
                (rules, config)
            }
            Choice::WithCertificates(rules, set) => {
                let config = rules.config_with(set, h2);
                (rules, config)
            }
            Choice::Reject => {
                self.alert(UNRECOGNIZED_NAME);
                return Err(self.fail(TlsError::Rejected));
            }
            Choice::Fail | Choice::Wait(_) => {
                self.alert(INTERNAL_ERROR);
                return Err(self.fail(TlsError::Protocol("error:0A000179:SSL routines::cert cb error".into())));
            }
        };
        if rules.reject {
            self.alert(UNRECOGNIZED_NAME);
            return Err(self.fail(TlsError::Rejected));
        }
        let connection = match UnbufferedServerConnection::new(config) {
            Ok(connection) => connection,
            Err(why) => {
                self.alert(INTERNAL_ERROR);
                return Err(self.fail(TlsError::from(&why)));
            }
        };
        self.record = rules.record;
        self.rules = Some(rules);
        self.role = Role::Server(Box::new(connection));
        Ok(())
    }

    /// Writes a fatal alert in cleartext, before there are keys.
    fn alert(&mut self, description: u8) {
        let record = [0x15, 3, 3, 0, 2, 2, description];
        if let Some(room) = self.output.room(record.len()).get_mut(..record.len()) {
            room.copy_from_slice(&record);
            self.output.add(record.len());
        }
    }

    fn fail(&mut self, why: TlsError) -> TlsError {
        self.role = Role::Dead;
        self.pending = Vec::new();
        why
    }

    /// Tells whether rejected early data may still arrive.
    fn may_skip(&self) -> bool {
        matches!(self.role, Role::Server(_))
            && !self.early_over
            && self.is_handshaking()
            && self.hello.as_ref().is_some_and(|hello| hello.early_data)
    }

    /// Processes `input`; returns the octets used. Rejected early data is skipped (RFC 8446, 4.2.10): rustls leaves
    /// such records in its input and counts them against its bound (16,384 octets, as OpenSSL) every time, so each is
    /// shown once and removed here.
    fn run(&mut self, input: &mut [u8], plain: &mut Vec<u8>, received: &mut ReceivedBytes) -> Result<usize, TlsError> {
        let mut used = 0;
        while self.may_skip() {
            let rest = input.get_mut(used..).unwrap_or_default();
            let Some([kind, _, _, high, low]) = rest.first_chunk::<5>().copied() else { return Ok(used) };
            let length = 5 + usize::from(u16::from_be_bytes([high, low]));
            let Some(record) = rest.get_mut(..length) else { return Ok(used) };
            match self.work(record, plain, received)? {
                0 if kind == APPLICATION_DATA => used += length,
                // Part of a message: read together with the next bytes.
                0 => break,
                n => {
                    self.early_over = kind == APPLICATION_DATA;
                    used += n;
                }
            }
        }
        let rest = input.get_mut(used..).unwrap_or_default();
        Ok(used + self.work(rest, plain, received)?)
    }

    /// Runs rustls on `input` until it stops; returns the octets used.
    fn work(&mut self, input: &mut [u8], plain: &mut Vec<u8>, received: &mut ReceivedBytes) -> Result<usize, TlsError> {
        let mut used = 0;
        current::begin(self.told.group);
        let mut failed = None;
        // Octets of output at the time of the failure.
        let mut told_before = 0;
        for _ in 0..STEPS_MAX {
            let rest = input.get_mut(used..).unwrap_or_default();
            let (discard, step) = match &mut self.role {
                Role::Server(c) => {
                    let UnbufferedStatus { discard, state, .. } = c.process_tls_records(rest);
                    (discard, server_step(state, &mut self.output, plain, received, &mut self.received_close))
                }
                Role::Client(c) => {
                    let UnbufferedStatus { discard, state, .. } = c.process_tls_records(rest);
                    (discard, step(state, &mut self.output, plain, &mut self.received_close))
                }
                Role::Accepting | Role::Dead => break,
            };
            used += discard;
            match step {
                Ok(ReadStep::Again) => {}
                Ok(ReadStep::Rest) => break,
                // rustls sends handshake_failure; a missing extension has its own alert.
                Err(why @ (TlsError::NoKeyShare | TlsError::NoSignatureAlgorithms)) if self.offers_tls13() => {
                    self.alert(MISSING_EXTENSION);
                    failed = Some(why);
                    break;
                }
                Err(why) if failed.is_none() => {
                    told_before = self.output.filled().len();
                    failed = Some(why);
                }
                Err(_) => break,
            }
            // Further steps emit the alert without rereading the input.
            if failed.is_some() && !self.common().is_some_and(CommonState::wants_write) {
                break;
            }
        }
        self.told.add(current::end());
        if let Some(why) = failed {
            if matches!(why, TlsError::Misbehaved(_)) && self.output.filled().len() == told_before {
                let rest = input.get(used..).unwrap_or_default();
                let alone = rest.first_chunk::<5>().is_some_and(|[_, _, _, high, low]| {
                    rest.len() == 5 + usize::from(u16::from_be_bytes([*high, *low]))
                });
                self.unexpected(alone);
            }
            return Err(self.fail(why));
        }
        let done = !self.is_handshaking();
        if self.facts.is_none() && (done || received.early) {
            self.finish(!done)?;
        }
        if let (true, Some(facts)) = (done, &self.facts) {
            facts.early.store(false, Ordering::Relaxed);
        }
        Ok(used)
    }

    /// Tells whether the client offers TLS 1.3, whose rules of extensions then apply.
    fn offers_tls13(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.versions.contains(&TLS1_3))
    }

    /// Sends the alert that rustls omits for some errors (decision 0074). With keys, an invalid change_cipher_spec
    /// makes rustls send `unexpected_message`; without, the alert is written here. `alone`: the faulty record is all of
    /// the input; otherwise rustls would search it for a preceding part of a message.
    fn unexpected(&mut self, alone: bool) {
        let content = u8::from(!self.is_handshaking());
        let mut record = [20, 3, 3, 0, 1, content];
        let before = self.output.filled().len();
        for _ in 0..if alone { ALERT_STEPS_MAX } else { 0 } {
            let step = match &mut self.role {
                Role::Server(c) => passing_of(c.process_tls_records(&mut record).state, &mut self.output),
                Role::Client(c) => passing_of(c.process_tls_records(&mut record).state, &mut self.output),
                Role::Accepting | Role::Dead => return,
            };
            if matches!(step, Some(ReadStep::Rest)) || !self.common().is_some_and(CommonState::wants_write) {
                break;
            }
        }
        let in_the_clear = self.is_handshaking()
            && self.common().is_some_and(|c| c.protocol_version() != Some(ProtocolVersion::TLSv1_3));
        if self.output.filled().len() == before && in_the_clear {
            self.alert(UNEXPECTED_MESSAGE);
        }
    }

    /// Stores the final facts; with `early` the handshake continues.
    fn finish(&mut self, early: bool) -> Result<(), TlsError> {
        let Some(common) = self.common() else { return Ok(()) };
        let facts = facts_of(common, &self.told, self.hello.as_deref(), self.rules.as_ref(), early)?;
        if let Some(rules) = &self.rules {
            rules.forget_refused(&facts, &self.told);
        }
        self.facts = Some(Arc::new(facts));
        self.hello = None;
        self.told = HandshakeRecord::default();
        Ok(())
    }

    /// Encrypts into [`TlsStream::output`]; joins pieces, so that head and body share records. Fails before the
    /// handshake's end, after closing, or with used-up keys.
    pub fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, TlsError> {
        let total: usize = pieces.iter().map(|p| p.len()).sum();
        if self.sent_close || total == 0 {
            return if total == 0 { Ok(0) } else { Err(TlsError::Dead) };
        }
        let mut joined: Vec<u8> = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            let mut piece: &[u8] = piece;
            if !joined.is_empty() {
                let (head, rest) = piece.split_at(piece.len().min(self.record - joined.len()));
                append_bytes(&mut joined, head);
                piece = rest;
                if joined.len() == self.record {
                    self.encrypt(&joined)?;
                    joined.clear();
                }
            }
            // Whole records are not copied; the remainder starts the next one, unless it is the last.
            let last = pieces.get(index + 1..).unwrap_or_default().iter().all(|p| p.is_empty());
            let whole = if last && joined.is_empty() { piece.len() } else { piece.len() / self.record * self.record };
            let (direct, rest) = piece.split_at(whole);
            if !direct.is_empty() {
                self.encrypt(direct)?;
            }
            append_bytes(&mut joined, rest);
        }
        if !joined.is_empty() {
            self.encrypt(&joined)?;
        }
        Ok(total)
    }

    fn encrypt(&mut self, plain: &[u8]) -> Result<(), TlsError> {
        let size = plain.len() + (plain.len() / self.record + 1) * RECORD_OVERHEAD;
        self.writing(size, |traffic, room| traffic.encrypt(plain, room))
    }

    /// Ends the own direction with `close_notify`; ignored during the handshake.
    pub fn close_notify(&mut self) -> Result<(), TlsError> {
        // A connection with early data may have been answered: closes it normally (RFC 8446, 6.1).
        if self.sent_close || (self.is_handshaking() && self.facts.is_none()) {
            return Ok(());
        }
        self.writing(RECORD_OVERHEAD, |traffic, room| traffic.queue_close_notify(room))?;
        self.sent_close = true;
        Ok(())
    }

    fn writing(
        &mut self,
        size: usize,
        write: impl Fn(&mut dyn Write, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<(), TlsError> {
        let mut size = size;
        for _ in 0..STEPS_MAX {
            let (pending, output) = (&mut self.pending, &mut self.output);
            // Keeps the rest of a record, to which rustls may refer.
            let (discard, result) = match &mut self.role {
                Role::Server(c) => {
                    let status = c.process_tls_records(pending);
                    (status.discard, write_in(status.state, output, size, &write))
                }
                Role::Client(c) => {
                    let status = c.process_tls_records(pending);
                    (status.discard, write_in(status.state, output, size, &write))
                }
                Role::Accepting | Role::Dead => return Err(TlsError::Dead),
            };
            pending.drain(..discard);
            let Some(result) = result? else { continue };
            match result {
                Ok(written) => {
                    self.output.add(written);
                    return Ok(());
                }
                Err(EncryptError::InsufficientSize(need)) => size = need.required_size,
                Err(EncryptError::EncryptExhausted) => return Err(TlsError::Protocol("the keys are used up".into())),
            }
        }
        Err(TlsError::Protocol("no progress".into()))
    }
}

/// Facts after the handshake, or (`early`) with early data.
pub(crate) fn facts_of(
    common: &CommonState,
    told: &HandshakeRecord,
    hello: Option<&ClientHello>,
    rules: Option<&Arc<ServerRules>>,
    early: bool,
) -> Result<Facts, TlsError> {
    let mut facts = Facts {
        protocol: match common.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "unknown",
        },
        cipher: common.negotiated_cipher_suite().map_or("(NONE)", |s| ciphers::name_of(s.suite())),
        curve: common
            .negotiated_key_exchange_group()
            .map(|g| u16::from(g.name()))
            .or(told.resumed_group)
            .map(groups::group_name),
        alpn: common.alpn_protocol().map(Box::from),
        resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
        session_id: told.session.as_ref().map(|session| session.bytes.as_slice()).unwrap_or_default().into(),
        signature: told.signature.filter(|_| rules.is_some()),
        peer_signature: told.peer_signature,
        early: AtomicBool::new(early),
        ..Facts::default()
    };
    let certificate = common.peer_certificates().map(|c| c.iter().map(own).collect::<Vec<_>>());
    if let Some(hello) = hello {
        facts.server_name = hello.server_name.as_deref().map(Box::from);
        facts.client_ciphers = hello.suites.clone().into();
        facts.client_groups = hello.groups.clone().into();
        facts.client_signature_schemes = hello.signature_schemes.clone().into();
        // As OpenSSL: a new session with a ticket has no id, a resumed one the client's, and only a full handshake
        // reads the list of groups.
        if facts.protocol == "TLSv1.2" {
            if facts.resumed {
                facts.session_id = hello.session_id.clone().into();
                facts.client_groups = Box::default();
            } else if told.session.as_ref().is_some_and(|session| session.is_ticket) {
                facts.session_id = Box::default();
            }
        }
    }
    if let Some(rules) = rules {
        facts.rules = rules.asks;
        if let (Some(chain), true) = (certificate, rules.verify != VerifyClient::Off) {
            facts.peer = verify_client(rules, chain)?;
        }
    }
    Ok(facts)
}

fn own(der: &CertificateDer<'_>) -> CertificateDer<'static> {
    CertificateDer::from(der.as_ref().to_vec())
}

fn verify_client(
    rules: &ServerRules,
    chain: Vec<CertificateDer<'static>>,
) -> Result<Option<Box<PeerCertificate>>, TlsError> {
    let chain: Result<Vec<Certificate>, _> = chain.into_iter().map(Certificate::parse).collect();
    let mut chain = chain.map_err(|why| TlsError::Protocol(why.into()))?;
    let now = (rules.clock.0)() as i64;
    let verdict = rules.trust.verify(&chain, now, Purpose::Client);
    let path = if rules.keep_path && verdict.is_ok() { rules.trust.path(&chain, now) } else { Vec::new() };
    chain.truncate(1);
    let peer = |certificate| PeerCertificate { certificate, verdict, path, asked: OnceLock::new() };
    Ok(chain.pop().map(|certificate| Box::new(peer(certificate))))
}

trait Write {
    fn encrypt(&mut self, plain: &[u8], room: &mut [u8]) -> Result<usize, EncryptError>;
    fn queue_close_notify(&mut self, room: &mut [u8]) -> Result<usize, EncryptError>;
}

impl<D> Write for rustls::unbuffered::WriteTraffic<'_, D> {
    fn encrypt(&mut self, plain: &[u8], room: &mut [u8]) -> Result<usize, EncryptError> {
        rustls::unbuffered::WriteTraffic::encrypt(self, plain, room)
    }
    fn queue_close_notify(&mut self, room: &mut [u8]) -> Result<usize, EncryptError> {
        rustls::unbuffered::WriteTraffic::queue_close_notify(self, room)
    }
}

/// Writes if rustls is ready; `None`: it had own output first.
fn write_in<D>(
    state: Result<ConnectionState<'_, '_, D>, rustls::Error>,
    output: &mut Output,
    size: usize,
    write: impl Fn(&mut dyn Write, &mut [u8]) -> Result<usize, EncryptError>,
) -> Result<Option<Result<usize, EncryptError>>, TlsError> {
    match state.map_err(|why| TlsError::from(&why))? {
        ConnectionState::WriteTraffic(mut traffic) => Ok(Some(write(&mut traffic, output.room(size)))),
        other => match passing(other, output)? {
            ReadStep::Again => Ok(None),
            ReadStep::Rest => Err(TlsError::Protocol("the handshake is not done".into())),
        },
    }
}

/// Handles states common to receiving and sending.
fn passing<D>(state: ConnectionState<'_, '_, D>, output: &mut Output) -> Result<ReadStep, TlsError> {
    match state {
        ConnectionState::EncodeTlsData(mut data) => {
            let mut size = 1024;
            loop {
                match data.encode(output.room(size)) {
                    Ok(written) => {
                        output.add(written);
                        return Ok(ReadStep::Again);
                    }
                    Err(EncodeError::InsufficientSize(need)) if need.required_size > size => size = need.required_size,
                    Err(why) => return Err(TlsError::Protocol(why.to_string())),
                }
            }
        }
        // Buffered output will be written: rustls need not wait.
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(ReadStep::Again)
        }
        _ => Ok(ReadStep::Rest),
    }
}

/// [`passing`] for the last steps of a failed connection; `None`: another error.
fn passing_of<D>(state: Result<ConnectionState<'_, '_, D>, rustls::Error>, output: &mut Output) -> Option<ReadStep> {
    passing(state.ok()?, output).ok()
}

fn step<D>(
    state: Result<ConnectionState<'_, '_, D>, rustls::Error>,
    output: &mut Output,
    plain: &mut Vec<u8>,
    closed: &mut bool,
) -> Result<ReadStep, TlsError> {
    match state.map_err(|why| TlsError::from(&why))? {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                plain.extend_from_slice(record.map_err(|why| TlsError::from(&why))?.payload);
            }
            Ok(ReadStep::Again)
        }
        ConnectionState::PeerClosed => {
            *closed = true;
            Ok(ReadStep::Again)
        }
        ConnectionState::Closed => {
            *closed = true;
            Ok(ReadStep::Rest)
        }
        other => passing(other, output),
    }
}

fn server_step(
    state: Result<ConnectionState<'_, '_, rustls::server::ServerConnectionData>, rustls::Error>,
    output: &mut Output,
    plain: &mut Vec<u8>,
    received: &mut ReceivedBytes,
    closed: &mut bool,
) -> Result<ReadStep, TlsError> {
    match state {
        Ok(ConnectionState::ReadEarlyData(mut early)) => {
            received.early = true;
            while let Some(record) = early.next_record() {
                plain.extend_from_slice(record.map_err(|why| TlsError::from(&why))?.payload);
            }
            Ok(ReadStep::Again)
        }
        other => step(other, output, plain, closed),
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
