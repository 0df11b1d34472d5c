//! TLS rules of upstream connections (`proxy_ssl_*`).

use crate::certs::{ClientCertificate, KeyPair};
use crate::server::{Protocols, RustlsClock, provider};
use crate::verify::{AlternativeName, RevocationList, ServerVerifier, Trust};
use crate::x509::Certificate;
use crate::{Clock, KeyLog};
use rustls::client::{ClientSessionMemoryCache, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, SupportedProtocolVersion};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Configurations kept by peer; beyond, all are dropped with their sessions.
const PEERS_MAX: usize = 1024;
/// Sessions per peer: parallel connections take one each.
const SESSIONS_MAX: usize = 8;

/// Directives of a location towards upstream servers.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Prefix of directives in messages: `proxy_ssl`.
    pub prefix: &'static str,
    /// `proxy_ssl_protocols`.
    pub protocols: Protocols,
    /// `proxy_ssl_ciphers`.
    pub ciphers: String,
    /// TLS 1.3 suites by name (`proxy_ssl_conf_command Ciphersuites`); `None`: the default.
    pub ciphersuites: Option<String>,
    /// `auto`, or group names.
    pub groups: String,
    /// `proxy_ssl_verify`.
    pub verify: bool,
    /// `proxy_ssl_verify_depth`: certificates between the server's and an authority.
    pub verify_depth: u32,
    /// Subject alternative names of which the server's certificate must have one, in place of [`Target::name`]; empty: that name.
    pub verify_names: Vec<AlternativeName>,
    /// `proxy_ssl_trusted_certificate`.
    pub trusted: Vec<Certificate>,
    /// `proxy_ssl_crl`; if not empty, each certificate of a chain needs a list.
    pub revocations: Vec<RevocationList>,
    /// `proxy_ssl_certificate` without variables.
    pub certificate: Option<KeyPair>,
    /// `proxy_ssl_session_reuse`.
    pub session_reuse: bool,
    /// ALPN protocols to offer, unless a target has its own; empty: none.
    pub alpn: Vec<Vec<u8>>,
    /// A name that is an address must be an address of the certificate (RFC 9110, 4.3.5); nginx compares it with host names.
    pub addresses: bool,
    /// Receives the secrets of connections; `None`: they stay in memory.
    pub key_log: Option<KeyLog>,
}

impl Default for ClientSettings {
    fn default() -> Self {
        ClientSettings {
            prefix: "proxy_ssl",
            protocols: Protocols::default(),
            ciphers: "DEFAULT".into(),
            ciphersuites: None,
            groups: "auto".into(),
            verify: false,
            verify_depth: 1,
            verify_names: Vec::new(),
            trusted: Vec::new(),
            revocations: Vec::new(),
            certificate: None,
            session_reuse: true,
            alpn: Vec::new(),
            addresses: false,
            key_log: None,
        }
    }
}

/// The server of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Target {
    /// Peer address, to which sessions belong.
    pub peer: String,
    /// `proxy_ssl_name`, verified in the certificate.
    pub name: String,
    /// `proxy_ssl_server_name on`: sends the name, unless it is an address.
    pub send_name: bool,
    /// ALPN protocols, in place of the rules'.
    pub alpn: Vec<Vec<u8>>,
}

/// Prepared rules of upstream connections, shared by all threads. Sessions are kept in them, by target.
pub struct ClientRules {
    /// Unique in the process; part of the scope of idle connections.
    pub id: u64,
    provider: Arc<CryptoProvider>,
    versions: Vec<&'static SupportedProtocolVersion>,
    trust: Option<Arc<Trust>>,
    certificate: Option<KeyPair>,
    session_reuse: bool,
    alpn: Vec<Vec<u8>>,
    addresses: bool,
    verify_names: Arc<[AlternativeName]>,
    key_log: Option<KeyLog>,
    clock: RustlsClock,
    /// Configurations by target: sessions resume only under the verifier that accepted them.
    configs: Mutex<HashMap<Target, Arc<ClientConfig>>>,
}

impl std::fmt::Debug for ClientRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientRules").field("verify", &self.trust.is_some()).finish_non_exhaustive()
    }
}

impl ClientRules {
    /// Warnings name replaced settings. Fails on unsupported ones, in nginx's and OpenSSL's words.
    pub fn build(
        settings: &ClientSettings,
        clock: &Clock,
        warnings: &mut Vec<String>,
    ) -> Result<Arc<ClientRules>, String> {
        let (provider, versions) = provider(
            settings.prefix,
            settings.protocols,
            &settings.ciphers,
            settings.ciphersuites.as_deref(),
            &settings.groups,
            warnings,
        )?;
        let trust = settings.verify.then(|| {
            Arc::new(Trust {
                anchors: settings.trusted.clone(),
                revocations: settings.revocations.clone(),
                depth: settings.verify_depth,
            })
        });
        static IDS: AtomicU64 = AtomicU64::new(1);
        Ok(Arc::new(ClientRules {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            provider: Arc::new(provider),
            versions,
            trust,
            certificate: settings.certificate.clone(),
            session_reuse: settings.session_reuse,
            alpn: settings.alpn.clone(),
            addresses: settings.addresses,
            verify_names: settings.verify_names.as_slice().into(),
            key_log: settings.key_log.clone(),
            clock: RustlsClock(Arc::clone(clock)),
            configs: Mutex::default(),
        }))
    }

    /// Returns [`ClientSettings::verify_names`].
    pub fn verify_names(&self) -> &[AlternativeName] {
        &self.verify_names
    }

    /// Configuration for a target. `certificate`: loaded for this connection.
    pub(crate) fn config(
        &self,
        target: &Target,
        certificate: Option<&KeyPair>,
    ) -> Result<Arc<ClientConfig>, rustls::Error> {
        if !self.session_reuse || certificate.is_some() {
            return self.make(target, certificate).map(Arc::new);
        }
        let mut configs = self.configs.lock().unwrap_or_else(PoisonError::into_inner);
        if configs.len() >= PEERS_MAX {
            configs.clear();
        }
        match configs.entry(target.clone()) {
            Entry::Occupied(known) => Ok(Arc::clone(known.get())),
            Entry::Vacant(place) => Ok(Arc::clone(place.insert(Arc::new(self.make(target, None)?)))),
        }
    }

    fn make(&self, target: &Target, certificate: Option<&KeyPair>) -> Result<ClientConfig, rustls::Error> {
        let verifier = ServerVerifier {
            trust: self.trust.clone(),
            name: target.name.clone(),
            addresses: self.addresses,
            names: Arc::clone(&self.verify_names),
            clock: Arc::clone(&self.clock.0),
        };
        let builder = ClientConfig::builder_with_details(Arc::clone(&self.provider), Arc::new(self.clock.clone()))
            .with_protocol_versions(&self.versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match certificate.or(self.certificate.as_ref()) {
            Some(pair) => builder.with_client_cert_resolver(Arc::new(ClientCertificate(pair.clone()))),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols.clone_from(if target.alpn.is_empty() { &self.alpn } else { &target.alpn });
        if let Some(log) = &self.key_log {
            config.key_log = Arc::new(log.clone());
        }
        config.enable_sni = target.send_name;
        config.resumption = if self.session_reuse && certificate.is_none() {
            Resumption::store(Arc::new(ClientSessionMemoryCache::new(SESSIONS_MAX)))
        } else {
            Resumption::disabled()
        };
        Ok(config)
    }

    /// Name for rustls. An invalid host name cannot be sent; the verifier has the real one.
    pub(crate) fn server_name(target: &Target) -> (ServerName<'static>, bool) {
        match ServerName::try_from(target.name.clone()) {
            Ok(name @ ServerName::DnsName(_)) => (name, true),
            Ok(name) => (name, false),
            Err(_) => {
                let address = std::net::Ipv4Addr::UNSPECIFIED;
                (ServerName::from(std::net::IpAddr::from(address)), false)
            }
        }
    }
}
