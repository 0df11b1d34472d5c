//! TLS rules of a server block (`ssl_*`).

use crate::certs::{CertificateResolver, CertificateSet, KeyPair};
use crate::current::HandshakeRecord;
use crate::session::{ScopedCache, Tickets};
use crate::verify::{ClientVerifier, RevocationList, Trust};
use crate::wait::Wait;
use crate::x509::Certificate;
use crate::{Clock, Facts, KeyLog, SessionCache, SessionScope, TicketKeys, ciphers, groups};
use aws_lc_rs::digest;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert, ServerConfig, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{DistinguishedName, SupportedCipherSuite, SupportedProtocolVersion};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// ALPN name of HTTP/0.9 over QUIC.
pub const HQ: &[u8] = b"hq-interop";

/// Octets of early data per connection (`NGX_SSL_BUFSIZE`).
pub const EARLY_DATA_MAX: u32 = 16_384;
const RECORD_MAX: usize = 16_384;
/// rustls includes the record header.
const RECORD_HEADER: usize = 5;
/// Octets of the implicit session cache with `ssl_early_data on`.
const EARLY_CACHE_SIZE: usize = 1 << 20;

/// `ssl_protocols`, as far as rustls has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// TLS 1.2.
    pub tls12: bool,
    /// TLS 1.3.
    pub tls13: bool,
    /// Unavailable SSLv2, SSLv3, TLSv1 or TLSv1.1 were requested.
    pub older: bool,
}

impl Default for Protocols {
    fn default() -> Self {
        Protocols { tls12: true, tls13: true, older: false }
    }
}

/// `ssl_verify_client`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VerifyClient {
    /// Clients are not asked for certificates.
    #[default]
    Off,
    /// A valid certificate is required.
    On,
    /// A certificate is verified if the client sends one.
    Optional,
    /// As `Optional`; certificates of unknown authorities are permitted.
    OptionalNoCa,
}

/// `ssl_session_cache`.
#[derive(Clone, Debug, Default)]
pub enum SessionStore {
    /// `off` and `none`: no cache; tickets are still possible.
    #[default]
    None,
    /// `shared:`, or `builtin`, which is shared, too.
    Cache(Arc<SessionCache>),
}

/// Directives of a server block.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// In file order. Empty: loaded per connection, or every handshake is rejected.
    pub certificates: Vec<KeyPair>,
    /// Names of certificates loaded per connection, part of the sessions' scope.
    pub certificate_names: Vec<String>,
    /// `ssl_protocols`.
    pub protocols: Protocols,
    /// `ssl_ciphers`.
    pub ciphers: String,
    /// TLS 1.3 suites by name (`ssl_conf_command Ciphersuites`).
    pub ciphersuites: Option<String>,
    /// `ssl_prefer_server_ciphers`.
    pub prefer_server_ciphers: bool,
    /// `auto`, or group names.
    pub groups: String,
    /// `ssl_verify_client`.
    pub verify: VerifyClient,
    /// `ssl_verify_depth`: certificates between the client's and an authority.
    pub verify_depth: u32,
    /// `ssl_client_certificate`: trusted, and named to clients.
    pub client_authorities: Vec<Certificate>,
    /// `ssl_trusted_certificate`: trusted, and not named to clients.
    pub trusted: Vec<Certificate>,
    /// `ssl_crl`; if not empty, each certificate of a chain needs a list.
    pub revocations: Vec<RevocationList>,
    /// The session cache.
    pub sessions: SessionStore,
    /// `None`: no tickets.
    pub tickets: Option<Arc<TicketKeys>>,
    /// `ssl_session_timeout` in seconds.
    pub session_timeout: u64,
    /// ALPN protocols without HTTP/2, which is chosen per connection.
    pub alpn: Vec<Vec<u8>>,
    /// `ssl_early_data`.
    pub early_data: bool,
    /// `ssl_buffer_size`: plaintext bytes of a record at most.
    pub buffer_size: usize,
    /// `ssl_reject_handshake`.
    pub reject_handshake: bool,
    /// `ssl_certificate_compression`.
    pub compress_certificates: bool,
    /// Keeps the path of a client's certificate (`ssl_ocsp`).
    pub keep_path: bool,
    /// Receives the secrets of connections; `None`: they stay in memory.
    pub key_log: Option<KeyLog>,
}

impl Default for ServerSettings {
    fn default() -> Self {
        ServerSettings {
            certificates: Vec::new(),
            certificate_names: Vec::new(),
            protocols: Protocols::default(),
            ciphers: "HIGH:!aNULL:!MD5".into(),
            ciphersuites: None,
            prefer_server_ciphers: false,
            groups: "auto".into(),
            verify: VerifyClient::Off,
            verify_depth: 1,
            client_authorities: Vec::new(),
            trusted: Vec::new(),
            revocations: Vec::new(),
            sessions: SessionStore::None,
            tickets: None,
            session_timeout: 300,
            alpn: Vec::new(),
            early_data: false,
            buffer_size: RECORD_MAX,
            reject_handshake: false,
            compress_certificates: false,
            keep_path: false,
            key_log: None,
        }
    }
}

/// The answer to a ClientHello.
#[derive(Clone, Debug)]
pub enum Choice {
    /// Continues under these rules.
    Rules(Arc<ServerRules>),
    /// Rules with certificates of this connection (`ssl_certificate` with variables).
    WithCertificates(Arc<ServerRules>, CertificateSet),
    /// Alert `unrecognized_name` (`ssl_reject_handshake`).
    Reject,
    /// Alert `internal_error`: a certificate could not be loaded.
    Fail,
    /// The certificate is being ordered: a driver that can wait asks again at the end. Otherwise like `Fail`.
    Wait(Arc<Wait>),
}

/// Prepared rules of a server block, shared by all threads.
#[derive(Debug)]
pub struct ServerRules {
    config: Arc<ServerConfig>,
    config_h2: Arc<ServerConfig>,
    /// For QUIC: HTTP/3 only.
    config_h3: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    /// `ssl_verify_client`.
    pub verify: VerifyClient,
    pub(crate) trust: Arc<Trust>,
    /// Digest of the requirements for clients; equal ones are interchangeable.
    pub asks: SessionScope,
    dynamic: bool,
    /// `ssl_reject_handshake`.
    pub reject: bool,
    /// TLS 1.3 is enabled, as QUIC requires.
    pub tls13: bool,
    pub(crate) record: usize,
    pub(crate) keep_path: bool,
    pub(crate) clock: RustlsClock,
}

#[derive(Clone)]
pub(crate) struct RustlsClock(pub Clock);

impl std::fmt::Debug for RustlsClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl TimeProvider for RustlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs((self.0)())))
    }
}

/// Files and stapled responses change at run time.
#[derive(Debug)]
struct Certificates {
    set: RwLock<Arc<CertificateSet>>,
    suites: Arc<[SupportedCipherSuite]>,
}

impl Certificates {
    fn now(&self) -> Arc<CertificateSet> {
        Arc::clone(&self.set.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        CertificateResolver { set: self.now(), suites: Arc::clone(&self.suites) }.resolve(hello)
    }
}

impl ServerRules {
    /// Warnings name replaced settings. Fails on unsupported ones, in nginx's and OpenSSL's words.
    pub fn build(
        settings: &ServerSettings,
        clock: &Clock,
        warnings: &mut Vec<String>,
    ) -> Result<Arc<ServerRules>, String> {
        let (mut provider, versions) = provider(
            "ssl",
            settings.protocols,
            &settings.ciphers,
            settings.ciphersuites.as_deref(),
            &settings.groups,
            warnings,
        )?;
        provider.kx_groups = groups::recording(&provider.kx_groups);
        let asks = asks(settings);
        let fingerprint = fingerprint(settings, asks);
        let certificates = Arc::new(Certificates {
            set: RwLock::new(Arc::new(CertificateSet::new(settings.certificates.clone()))),
            suites: provider.cipher_suites.clone().into(),
        });
        let mut anchors = settings.client_authorities.clone();
        anchors.extend(settings.trusted.iter().cloned());
        let trust = Trust { anchors, revocations: settings.revocations.clone(), depth: settings.verify_depth };
        let verifier: Arc<dyn ClientCertVerifier> = if settings.verify == VerifyClient::Off {
            WebPkiClientVerifier::no_client_auth()
        } else {
            let mut subjects: Vec<DistinguishedName> = Vec::new();
            for authority in &settings.client_authorities {
                if !subjects.iter().any(|known| known.as_ref() == authority.subject()) {
                    subjects.push(DistinguishedName::from(authority.subject().to_vec()));
                }
            }
            Arc::new(ClientVerifier { subjects })
        };
        let mut config =
            ServerConfig::builder_with_details(Arc::new(provider), Arc::new(RustlsClock(Arc::clone(clock))))
                .with_protocol_versions(&versions)
                .map_err(|why| why.to_string())?
                .with_client_cert_verifier(verifier)
                .with_cert_resolver(Arc::clone(&certificates) as Arc<dyn ResolvesServerCert>);
        config.ignore_client_order = settings.prefer_server_ciphers;
        config.alpn_protocols.clone_from(&settings.alpn);
        config.cert_compressors =
            if settings.compress_certificates { vec![&crate::compress::Zlib] } else { Vec::new() };
        let record = settings.buffer_size.clamp(512, RECORD_MAX);
        config.max_fragment_size = (record < RECORD_MAX).then_some(record + RECORD_HEADER);
        if let Some(log) = &settings.key_log {
            config.key_log = Arc::new(log.clone());
        }
        sessions(&mut config, settings, fingerprint, clock);
        let mut config_h2 = config.clone();
        config_h2.alpn_protocols.insert(0, b"h2".to_vec());
        let config_h3 = Arc::new(for_quic(&config));
        Ok(Arc::new(ServerRules {
            config_h3,
            tls13: settings.protocols.tls13,
            config_h2: Arc::new(config_h2),
            config: Arc::new(config),
            certificates,
            verify: settings.verify,
            trust: Arc::new(trust),
            asks,
            dynamic: !settings.certificate_names.is_empty(),
            reject: settings.reject_handshake,
            record,
            keep_path: settings.keep_path,
            clock: RustlsClock(Arc::clone(clock)),
        }))
    }

    pub(crate) fn config(&self, h2: bool) -> Arc<ServerConfig> {
        Arc::clone(if h2 { &self.config_h2 } else { &self.config })
    }

    pub(crate) fn config_with(&self, set: CertificateSet, h2: bool) -> Arc<ServerConfig> {
        let mut config = (*self.config(h2)).clone();
        config.cert_resolver =
            Arc::new(CertificateResolver { set: Arc::new(set), suites: Arc::clone(&self.certificates.suites) });
        Arc::new(config)
    }

    /// Configuration for QUIC with the protocols `h3` and `hq`; `set`: certificates of this connection.
    pub(crate) fn config_quic(&self, set: Option<CertificateSet>, h3: bool, hq: bool) -> Arc<ServerConfig> {
        if set.is_none() && h3 && !hq {
            return Arc::clone(&self.config_h3);
        }
        let mut config = (*self.config_h3).clone();
        let protocols = [(h3, &b"h3"[..]), (hq, HQ)].into_iter().filter(|(on, _)| *on);
        config.alpn_protocols = protocols.map(|(_, name)| name.to_vec()).collect();
        if let Some(set) = set {
            let (set, suites) = (Arc::new(set), Arc::clone(&self.certificates.suites));
            config.cert_resolver = Arc::new(CertificateResolver { set, suites });
        }
        Arc::new(config)
    }

    /// Removes the connection's sessions from the cache if its client is refused (`ngx_ssl_remove_cached_session`).
    pub(crate) fn forget_refused(&self, facts: &Facts, told: &HandshakeRecord) {
        let is_refused = match (&facts.peer, self.verify) {
            (_, VerifyClient::Off) => false,
            (Some(peer), VerifyClient::OptionalNoCa) => !peer.verdict.is_ok() && !peer.verdict.is_missing_authority(),
            (Some(peer), _) => !peer.verdict.is_ok(),
            (None, verify) => verify == VerifyClient::On,
        };
        let resumed = told.session.as_ref().map(|session| &session.bytes);
        for id in told.stored.iter().chain(resumed).filter(|_| is_refused) {
            self.config.session_storage.take(id);
        }
    }

    /// Now or per connection.
    pub fn has_certificates(&self) -> bool {
        self.dynamic || !self.certificates.now().is_empty()
    }

    /// Returns the present certificates.
    pub fn certificates(&self) -> Arc<CertificateSet> {
        self.certificates.now()
    }

    /// Replaces the certificates for new handshakes (changed files, new stapled response).
    pub fn replace_certificates(&self, set: CertificateSet) {
        *self.certificates.set.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(set);
    }
}

/// Adapts a configuration to QUIC: HTTP/3 only, and early data all or nothing (RFC 9001, 4.6.1).
fn for_quic(config: &ServerConfig) -> ServerConfig {
    let mut config = config.clone();
    config.alpn_protocols = vec![b"h3".to_vec()];
    config.max_fragment_size = None;
    if config.max_early_data_size > 0 {
        config.max_early_data_size = u32::MAX;
    }
    config
}

fn sessions(config: &mut ServerConfig, settings: &ServerSettings, scope: SessionScope, clock: &Clock) {
    let cache = match &settings.sessions {
        SessionStore::Cache(cache) => Some(Arc::clone(cache)),
        // Early data is replay-safe only with single-use sessions, which must be remembered.
        SessionStore::None if settings.early_data => Some(Arc::new(SessionCache::new(EARLY_CACHE_SIZE))),
        SessionStore::None => None,
    };
    let tickets = settings.tickets.as_ref().filter(|_| !settings.early_data);
    let lifetime = settings.session_timeout;
    config.send_tls13_tickets = if cache.is_some() || tickets.is_some() { 2 } else { 0 };
    config.session_storage = match cache {
        Some(cache) => Arc::new(ScopedCache { cache, scope, lifetime, clock: Arc::clone(clock) }),
        None => Arc::new(NoServerSessionStorage {}),
    };
    if let Some(keys) = tickets {
        config.ticketer = Arc::new(Tickets {
            keys: Arc::clone(keys),
            scope,
            lifetime: u32::try_from(lifetime).unwrap_or(u32::MAX),
            clock: Arc::clone(clock),
        });
    }
    if settings.early_data {
        config.max_early_data_size = EARLY_DATA_MAX;
        // As in nginx, early requests are answered before the handshake ends. rustls excludes handshakes that request a
        // certificate; resumed ones, to which early data belongs, request none.
        config.send_half_rtt_data = true;
    }
}

/// Suites, groups and versions of both roles. `prefix`: the directives' in messages (`ssl`, `proxy_ssl`).
pub(crate) fn provider(
    prefix: &str,
    protocols: Protocols,
    ciphers: &str,
    ciphersuites: Option<&str>,
    groups: &str,
    warnings: &mut Vec<String>,
) -> Result<(CryptoProvider, Vec<&'static SupportedProtocolVersion>), String> {
    let list = ciphers::evaluate_ciphers(ciphers).map_err(|why| {
        let code = if why == "invalid command" { "0A000118" } else { "0A0000B9" };
        format!("SSL_CTX_set_cipher_list(\"{ciphers}\") failed (SSL: error:{code}:SSL routines::{why})")
    })?;
    let tls12: Vec<_> = list.suites.iter().filter_map(|s| ciphers::supported_suite(s.id)).collect();
    let mut versions: Vec<&'static SupportedProtocolVersion> = Vec::new();
    if protocols.tls13 {
        versions.push(&rustls::version::TLS13);
    }
    if protocols.tls12 && !tls12.is_empty() {
        versions.push(&rustls::version::TLS12);
    }
    if protocols.older {
        if versions.is_empty() {
            return Err(format!(
                "\"{prefix}_protocols\": only TLSv1.2 and TLSv1.3 are available, and neither is enabled"
            ));
        }
        warnings.push(format!(
            "\"{prefix}_protocols\": versions before TLSv1.2 are not available, {} will be used",
            match (protocols.tls12 && !tls12.is_empty(), protocols.tls13) {
                (true, true) => "TLSv1.2 and TLSv1.3",
                (true, false) => "TLSv1.2",
                _ => "TLSv1.3",
            }
        ));
    }
    if protocols.tls12 && tls12.is_empty() {
        let why = format!(
            "\"{prefix}_ciphers\": none of \"{ciphers}\" is available; TLSv1.2 has {}",
            ciphers::supported_names().join(":")
        );
        if !protocols.tls13 {
            return Err(why);
        }
        warnings.push(format!("{why}; only TLSv1.3 will be used"));
    }
    if versions.is_empty() {
        return Err(format!("\"{prefix}_protocols\": no protocol is enabled"));
    }
    let mut provider = (**ciphers::provider()).clone();
    let mut suites = match ciphersuites {
        None => ciphers::TLS13.iter().filter_map(|(id, _)| ciphers::supported_suite(*id)).collect::<Vec<_>>(),
        Some(names) => {
            let mut all = Vec::new();
            for name in names.split(':').filter(|n| !n.is_empty()) {
                match ciphers::TLS13.iter().find(|(_, known)| *known == name) {
                    Some((id, _)) => all.extend(ciphers::supported_suite(*id)),
                    None if matches!(name, "TLS_AES_128_CCM_SHA256" | "TLS_AES_128_CCM_8_SHA256") => {
                        warnings.push(format!("the cipher suite \"{name}\" is not available"));
                    }
                    None => return Err(format!("unknown TLSv1.3 cipher suite \"{name}\"")),
                }
            }
            if all.is_empty() && !names.is_empty() {
                return Err(format!("none of the cipher suites \"{names}\" is available"));
            }
            all
        }
    };
    if !protocols.tls13 {
        suites.clear();
    }
    if protocols.tls12 {
        suites.extend(tls12);
    }
    provider.cipher_suites = suites;
    let selected = groups::select_groups(groups).map_err(|word| {
        format!(
            "SSL_CTX_set1_curves_list(\"{groups}\") failed (SSL: error:0A080106:SSL routines::passed invalid argument:group '{word}' cannot be set)"
        )
    })?;
    if selected.groups.is_empty() {
        return Err(format!(
            "none of the curves \"{groups}\" is available; X25519MLKEM768:X25519:prime256v1:secp384r1 are"
        ));
    }
    if !selected.missing.is_empty() {
        warnings.push(format!("the curves \"{}\" are not available and left out", selected.missing.join(":")));
    }
    provider.kx_groups = selected.groups;
    Ok((provider, versions))
}

/// Digest that a resumed session must match: certificates and requirements for clients.
fn fingerprint(settings: &ServerSettings, asks: SessionScope) -> SessionScope {
    let mut parts: Vec<(u8, &[u8])> = vec![(0, &asks)];
    parts.extend(settings.certificates.iter().filter_map(|p| p.leaf()).map(|leaf| (1, leaf.der().as_ref())));
    parts.extend(settings.certificate_names.iter().map(|name| (2, name.as_bytes())));
    digest_of(&parts)
}

fn asks(settings: &ServerSettings) -> SessionScope {
    let mode = [settings.verify as u8];
    let depth = settings.verify_depth.to_be_bytes();
    let mut parts: Vec<(u8, &[u8])> = vec![(3, &mode)];
    if settings.verify != VerifyClient::Off {
        parts.push((4, &depth));
        parts.extend(settings.client_authorities.iter().map(|c| (5, c.der().as_ref())));
        parts.extend(settings.trusted.iter().map(|c| (6, c.der().as_ref())));
    }
    digest_of(&parts)
}

fn digest_of(parts: &[(u8, &[u8])]) -> SessionScope {
    let mut context = digest::Context::new(&digest::SHA256);
    for (kind, bytes) in parts {
        context.update(&[*kind]);
        context.update(&(bytes.len() as u64).to_be_bytes());
        context.update(bytes);
    }
    let mut scope = [0; 32];
    scope.copy_from_slice(context.finish().as_ref().get(..32).unwrap_or(&[0; 32]));
    scope
}
