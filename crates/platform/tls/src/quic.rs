//! TLS of QUIC: `quinn-proto`'s handshake under the configuration's rules; the ClientHello selects the server, by
//! [`with_chooser`] while a datagram is processed. `quic/path.rs` observes path validation, `quic/token.rs` has address validation tokens,
//! `quic/first.rs` reads the ClientHello of a client without a connection,
//! `quic/padding.rs` removes padding.

mod first;
mod padding;
mod path;
mod token;

use crate::certs::KeyPair as CertificateKey;
use crate::client::{ClientRules, Target};
use crate::current::{self, HandshakeRecord};
use crate::hello::{ClientHello, HELLO_MAX, Peek, peek_message};
use crate::stream::facts_of;
use crate::{Choice, Facts, ServerRules, TlsError, VerifyClient};
use aws_lc_rs::{hkdf, hmac};
use padding::TrimmedKey;
use path::{TlsPacketKey, WatchedKey, read_varint};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::crypto::{
    self, ExportKeyingMaterialError, HandshakeTokenKey, HeaderKey, HmacKey, KeyPair, Keys, PacketKey, Session,
    UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::quic::{self, KeyChange, Secrets, ServerConnection, Suite};
use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use token::TokenKey;

pub use crate::server::HQ;
pub use first::FirstFlight;
pub(crate) use first::fuzz as fuzz_first;
pub use path::PathWatch;
pub use token::UsedTokens;

/// RFC 9000. As in nginx, its drafts are unknown versions.
const VERSION: quic::Version = quic::Version::V1;

const UNRECOGNIZED_NAME: u8 = 112;
const INTERNAL_ERROR: u8 = 80;
const DECODE_ERROR: u8 = 50;
const NO_APPLICATION_PROTOCOL: u8 = 120;
const UNEXPECTED_MESSAGE: u8 = 10;
const UNSUPPORTED_CERTIFICATE: u8 = 43;

/// Rules of a handshake, and the protocols that it offers.
#[derive(Clone, Debug)]
pub struct ChosenRules {
    /// The rules, or the refusal.
    pub choice: Choice,
    /// HTTP/3.
    pub h3: bool,
    /// HTTP/0.9 (`hq-interop`).
    pub hq: bool,
}

/// Selects the rules for a ClientHello. Runs while `quinn-proto` processes a datagram: it must use neither the endpoint
/// nor the connection.
pub type Chooser = Rc<dyn Fn(&ClientHello) -> ChosenRules>;

thread_local! {
    static CHOOSER: RefCell<Option<Chooser>> = const { RefCell::new(None) };
}

/// Lets `chooser` decide about ClientHellos read by `work`.
pub fn with_chooser<R>(chooser: Chooser, work: impl FnOnce() -> R) -> R {
    struct Ends;
    impl Drop for Ends {
        fn drop(&mut self) {
            CHOOSER.with_borrow_mut(|chooser| *chooser = None);
        }
    }
    CHOOSER.with_borrow_mut(|slot| *slot = Some(chooser));
    let _ends = Ends;
    work()
}

/// Secrets of an endpoint: stateless resets and address validation tokens.
#[derive(Clone)]
pub struct EndpointKeys {
    /// Key of stateless reset tokens (RFC 9000, 10.3).
    pub reset: Arc<dyn HmacKey>,
    /// Key of address validation tokens (RFC 9000, 8.1).
    pub token: Arc<dyn HandshakeTokenKey>,
}

impl EndpointKeys {
    /// Derives the keys from a secret, such as the content of `quic_host_key`.
    pub fn derive(secret: &[u8]) -> EndpointKeys {
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, b"tidegate quic").extract(secret);
        let mut reset = [0; 32];
        if let Ok(okm) = prk.expand(&[b"stateless reset"], hkdf::HKDF_SHA256) {
            let _ = okm.fill(&mut reset);
        }
        let token = hkdf::Salt::new(hkdf::HKDF_SHA256, b"tidegate quic token").extract(secret);
        EndpointKeys { reset: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &reset)), token: Arc::new(TokenKey(token)) }
    }

    /// Returns keys of a random secret, equal for all endpoints of the process.
    pub fn of_process() -> EndpointKeys {
        static SECRET: OnceLock<[u8; 32]> = OnceLock::new();
        let secret = SECRET.get_or_init(|| {
            let mut secret = [0; 32];
            assert!(aws_lc_rs::rand::fill(&mut secret).is_ok(), "the system gives no random numbers");
            secret
        });
        EndpointKeys::derive(secret)
    }
}

/// TLS of a QUIC connection to a server, and the name that its handshake begins with.
pub struct ClientCrypto {
    /// Configuration for `quinn-proto`.
    pub config: Arc<dyn crypto::ClientConfig>,
    /// Name for the ClientHello.
    pub name: String,
}

impl ClientCrypto {
    /// Fails when the rules exclude TLS 1.3 or the cipher suite of Initial packets.
    pub fn new(
        rules: &ClientRules,
        target: &Target,
        certificate: Option<&CertificateKey>,
    ) -> Result<ClientCrypto, String> {
        let config = rules.config(target, certificate).map_err(|why| why.to_string())?;
        let config =
            QuicClientConfig::try_from(config).map_err(|_| "no TLS_AES_128_GCM_SHA256 for QUIC".to_string())?;
        let (name, _) = ClientRules::server_name(target);
        Ok(ClientCrypto { config: Arc::new(config), name: name.to_str().into_owned() })
    }
}

/// TLS of a QUIC endpoint. The rules of each handshake come from [`with_chooser`], which must enclose each call of
/// `quinn-proto` that can process a ClientHello.
pub struct QuicServer {
    /// Keys of Initial and Retry packets, which are public.
    public: Arc<QuicServerConfig>,
    initial: Suite,
    /// Connection ids that a client may have us keep; `quinn-proto` keeps up to 5.
    active_ids: u8,
}

/// Connection ids of a client that `quinn-proto` keeps.
const ACTIVE_IDS_MAX: u8 = 5;
/// Transport parameter of that number (RFC 9000, 18.2).
const ACTIVE_CONNECTION_ID_LIMIT: u64 = 0x0e;

impl QuicServer {
    /// `active_ids`: `quic_active_connection_id_limit`, clamped to 2 to 5. Fails when the Initial packets' cipher suite is unavailable.
    pub fn new(active_ids: u64) -> Result<QuicServer, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|why| why.to_string())?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
        let public = QuicServerConfig::try_from(config).map_err(|why| why.to_string())?;
        let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
        let initial = suite.tls13().and_then(|suite| suite.quic_suite()).ok_or("no suite for QUIC")?;
        let active_ids = active_ids.clamp(2, ACTIVE_IDS_MAX.into()) as u8;
        Ok(QuicServer { public: Arc::new(public), initial, active_ids })
    }
}

impl crypto::ServerConfig for QuicServer {
    fn initial_keys(&self, version: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.public.initial_keys(version, dst_cid).map(trimmed)
    }
    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.public.retry_tag(version, orig_dst_cid, packet)
    }
    /// Endpoints support version 1 only.
    fn start_session(self: Arc<Self>, _: u32, params: &TransportParameters) -> Box<dyn Session> {
        let mut parameters = Vec::new();
        params.write(&mut parameters);
        limit_active_ids(&mut parameters, self.active_ids);
        Box::new(Handshake {
            parameters,
            initial: self.initial,
            hello: Vec::new(),
            read: None,
            inner: None,
            is_over: false,
            rules: None,
            next: None,
            told: HandshakeRecord::default(),
            facts: None,
            is_told: false,
            path: Arc::default(),
        })
    }
}

/// Replaces the value of `active_connection_id_limit` among encoded transport parameters.
fn limit_active_ids(parameters: &mut [u8], active_ids: u8) {
    let mut rest = &parameters[..];
    loop {
        let before = rest.len();
        let (Some(id), Some(length)) = (read_varint(&mut rest), read_varint(&mut rest)) else { return };
        let at = parameters.len() - rest.len();
        if id == ACTIVE_CONNECTION_ID_LIMIT && length == 1 {
            // A number below 64 is one octet.
            if let Some(value) = parameters.get_mut(at) {
                *value = active_ids;
            }
            return;
        }
        let Some(next) = rest.get(usize::try_from(length).unwrap_or(usize::MAX)..) else { return };
        rest = next;
        debug_assert!(rest.len() < before);
    }
}

struct Handshake {
    parameters: Vec<u8>,
    initial: Suite,
    hello: Vec<u8>,
    read: Option<Box<ClientHello>>,
    /// `None` until the ClientHello is complete, and after the handshake: idle connections need no more than their keys.
    inner: Option<Box<ServerConnection>>,
    /// The handshake is complete, and its last messages were written.
    is_over: bool,
    rules: Option<Arc<ServerRules>>,
    next: Option<Secrets>,
    told: HandshakeRecord,
    facts: Option<Arc<Facts>>,
    is_told: bool,
    path: Arc<PathWatch>,
}

/// Facts of a connection that [`Session::handshake_data`] gives, in a box, once the protocol is selected.
#[derive(Debug)]
pub struct ConnectionFacts {
    /// The protocol is HTTP/0.9.
    pub hq: bool,
    /// `None`: no request can come yet.
    pub facts: Option<Arc<Facts>>,
    /// Watch over the path to the client.
    pub path: Arc<PathWatch>,
}

fn alert(description: u8, reason: impl Into<String>) -> TransportError {
    TransportError { code: TransportErrorCode::crypto(description), frame: None, reason: reason.into() }
}

impl Handshake {
    fn choose(&mut self, hello: Box<ClientHello>) -> Result<(), TransportError> {
        let chosen = CHOOSER.with_borrow(Clone::clone).map(|chooser| chooser(&hello));
        let Some(ChosenRules { choice, h3, hq }) = chosen else {
            return Err(alert(INTERNAL_ERROR, "nothing decides about the handshake"));
        };
        if !h3 && !hq {
            return Err(alert(NO_APPLICATION_PROTOCOL, TlsError::NoApplicationProtocol.to_string()));
        }
        let (rules, config) = match choice {
            Choice::Rules(rules) => {
                let config = rules.config_quic(None, h3, hq);
                (rules, config)
            }
            Choice::WithCertificates(rules, set) => {
                let config = rules.config_quic(Some(set), h3, hq);
                (rules, config)
            }
            Choice::Reject => return Err(alert(UNRECOGNIZED_NAME, TlsError::Rejected.to_string())),
            // Drivers wait before they accept the connection: quinn-proto cannot resume a handshake later.
            Choice::Fail | Choice::Wait(_) => return Err(alert(INTERNAL_ERROR, "no certificate could be loaded")),
        };
        if rules.reject {
            return Err(alert(UNRECOGNIZED_NAME, TlsError::Rejected.to_string()));
        }
        let inner = ServerConnection::new(config, VERSION, std::mem::take(&mut self.parameters))
            .map_err(|why| alert(INTERNAL_ERROR, why.to_string()))?;
        self.inner = Some(Box::new(inner));
        self.rules = Some(rules);
        self.read = Some(hello);
        Ok(())
    }

    fn watched(&self, local: TlsPacketKey, remote: TlsPacketKey) -> KeyPair<Box<dyn PacketKey>> {
        let watched = |key| Box::new(WatchedKey { key, watch: self.path.clone() }) as Box<dyn PacketKey>;
        KeyPair { local: watched(local), remote: watched(remote) }
    }

    fn work(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        let Some(inner) = &mut self.inner else { return Ok(()) };
        current::begin(self.told.group);
        let result = inner.read_hs(bytes);
        self.told.add(current::end());
        result.map_err(|why| {
            let reason = TlsError::from(&why).to_string();
            match inner.alert() {
                Some(description) => alert(description.into(), reason),
                None => alert(INTERNAL_ERROR, reason),
            }
        })
    }

    /// Stores the facts once early data or the handshake's end provides them; the client's certificate comes at the
    /// end.
    fn learn(&mut self) -> Result<(), TransportError> {
        let Some(inner) = &self.inner else { return Ok(()) };
        let is_done = !inner.is_handshaking();
        let is_early = !is_done
            && inner.zero_rtt_keys().is_some()
            && self.rules.as_ref().is_some_and(|rules| rules.verify == VerifyClient::Off);
        if self.facts.is_none() && (is_done || is_early) {
            let facts = facts_of(inner, &self.told, self.read.as_deref(), self.rules.as_ref(), is_early);
            let facts = facts.map_err(|why| alert(UNSUPPORTED_CERTIFICATE, why.to_string()))?;
            if let Some(rules) = &self.rules {
                rules.forget_refused(&facts, &self.told);
            }
            self.facts = Some(Arc::new(facts));
        }
        if let (true, Some(facts)) = (is_done, &self.facts) {
            facts.early.store(false, Ordering::Relaxed);
            self.read = None;
        }
        Ok(())
    }
}

impl Session for Handshake {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        let side = match side {
            Side::Client => rustls::Side::Client,
            Side::Server => rustls::Side::Server,
        };
        trimmed(keys(self.initial.keys(dst_cid, side, VERSION)))
    }
    /// Returns [`ConnectionFacts`], once there are facts.
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let protocol = self.inner.as_ref().and_then(|inner| inner.alpn_protocol());
        let hq = match (&self.facts, protocol) {
            (Some(facts), _) => facts.alpn.as_deref() == Some(HQ),
            (None, Some(protocol)) => protocol == HQ,
            (None, None) => return None,
        };
        Some(Box::new(ConnectionFacts { hq, facts: self.facts.clone(), path: self.path.clone() }))
    }
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }
    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.inner.as_ref()?.zero_rtt_keys()?;
        Some((Box::new(keys.header), Box::new(keys.packet)))
    }
    fn early_data_accepted(&self) -> Option<bool> {
        None
    }
    fn is_handshaking(&self) -> bool {
        !self.is_over && self.inner.as_ref().is_none_or(|inner| inner.is_handshaking())
    }
    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        if self.is_over {
            // Clients have no messages left: neither KeyUpdate (RFC 9001, 6) nor late authentication (4.4).
            return Err(alert(UNEXPECTED_MESSAGE, "a TLS message after the handshake"));
        }
        if self.inner.is_some() {
            self.work(buf)?;
        } else {
            self.hello.extend_from_slice(buf);
            match peek_message(&self.hello) {
                Peek::More(_) if self.hello.len() <= HELLO_MAX => return Ok(false),
                Peek::More(_) | Peek::NotTls => return Err(alert(DECODE_ERROR, "the ClientHello is too long")),
                Peek::Broken(description) => return Err(alert(description, "the ClientHello cannot be read")),
                Peek::Hello(hello) => self.choose(hello)?,
            }
            let hello = std::mem::take(&mut self.hello);
            self.work(&hello)?;
        }
        self.learn()?;
        Ok(self.facts.is_some() && !std::mem::replace(&mut self.is_told, true))
    }
    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(mut bytes) = self.inner.as_ref().and_then(|inner| inner.quic_transport_parameters()) else {
            return Ok(None);
        };
        TransportParameters::read(Side::Server, &mut bytes).map(Some).map_err(TransportError::from)
    }
    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let inner = self.inner.as_mut()?;
        let before = buf.len();
        let Some(change) = inner.write_hs(buf) else {
            if buf.len() == before && !inner.is_handshaking() {
                self.is_over = true;
                self.inner = None;
            }
            return None;
        };
        match change {
            KeyChange::Handshake { keys: new } => Some(trimmed(keys(new))),
            KeyChange::OneRtt { keys: new, next } => {
                self.next = Some(next);
                let header =
                    KeyPair { local: Box::new(new.local.header) as _, remote: Box::new(new.remote.header) as _ };
                Some(Keys { header, packet: self.watched(new.local.packet, new.remote.packet) })
            }
        }
    }
    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let new = self.next.as_mut()?.next_packet_keys();
        Some(self.watched(new.local, new.remote))
    }
    /// Servers receive no Retry.
    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        false
    }
    fn export_keying_material(&self, _: &mut [u8], _: &[u8], _: &[u8]) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

fn keys(new: quic::Keys) -> Keys {
    Keys {
        header: KeyPair { local: Box::new(new.local.header), remote: Box::new(new.remote.header) },
        packet: KeyPair { local: Box::new(new.local.packet), remote: Box::new(new.remote.packet) },
    }
}

/// Keys whose received packets lose their padding.
fn trimmed(keys: Keys) -> Keys {
    let Keys { header, packet: KeyPair { local, remote } } = keys;
    Keys { header, packet: KeyPair { local, remote: Box::new(TrimmedKey { key: remote }) } }
}

#[cfg(test)]
mod tests;
