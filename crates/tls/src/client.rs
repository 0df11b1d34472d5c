//! The rules of connections to upstream servers: what `proxy_ssl_*` directives say, built once.

use crate::Clock;
use crate::certs::{ClientCertificate, KeyPair};
use crate::server::{Clock2, Protocols, provider};
use crate::verify::{RevocationList, ServerVerifier, Trust};
use crate::x509::Certificate;
use rustls::client::{ClientSessionMemoryCache, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, SupportedProtocolVersion};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Configurations by peer that are kept; beyond it all are made anew, and their sessions are lost.
const PEERS_MAX: usize = 1024;
/// Sessions of one peer: connections that are opened side by side take one each.
const SESSIONS_MAX: usize = 8;

/// What `proxy_ssl_*` directives of one location say, in values.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The directives' prefix, for messages: `proxy_ssl`.
    pub prefix: &'static str,
    pub protocols: Protocols,
    pub ciphers: String,
    pub ciphersuites: Option<String>,
    pub groups: String,
    /// `proxy_ssl_verify`.
    pub verify: bool,
    pub verify_depth: u32,
    pub trusted: Vec<Certificate>,
    pub revocations: Vec<RevocationList>,
    /// `proxy_ssl_certificate` without variables.
    pub certificate: Option<KeyPair>,
    pub session_reuse: bool,
    pub alpn: Vec<Vec<u8>>,
}

impl Default for ClientSettings {
    /// nginx's defaults.
    fn default() -> Self {
        ClientSettings {
            prefix: "proxy_ssl",
            protocols: Protocols::default(),
            ciphers: "DEFAULT".into(),
            ciphersuites: None,
            groups: "auto".into(),
            verify: false,
            verify_depth: 1,
            trusted: Vec::new(),
            revocations: Vec::new(),
            certificate: None,
            session_reuse: true,
            alpn: Vec::new(),
        }
    }
}

/// Whom one connection is made to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Target {
    /// The peer's address: sessions belong to it.
    pub peer: String,
    /// `proxy_ssl_name`: must stand in the certificate when it is verified.
    pub name: String,
    /// `proxy_ssl_server_name on`: the name is sent (an address never is).
    pub send_name: bool,
    /// Protocols that are offered (ALPN), in place of those of the rules.
    pub alpn: Vec<Vec<u8>>,
}

/// The rules of one location, shared by its connections.
pub struct ClientRules {
    /// No two rules of a process have the same.
    pub id: u64,
    provider: Arc<CryptoProvider>,
    versions: Vec<&'static SupportedProtocolVersion>,
    trust: Option<Arc<Trust>>,
    certificate: Option<KeyPair>,
    session_reuse: bool,
    alpn: Vec<Vec<u8>>,
    clock: Clock2,
    /// Sessions are resumed only under the very verifier that accepted them, so configurations are kept by target.
    configs: Mutex<HashMap<Target, Arc<ClientConfig>>>,
}

impl std::fmt::Debug for ClientRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientRules").field("verify", &self.trust.is_some()).finish_non_exhaustive()
    }
}

impl ClientRules {
    /// Builds the rules. Warnings are sentences that say what holds in place of what was asked for.
    ///
    /// # Errors
    /// What cannot be done, in nginx's and OpenSSL's words where they have some.
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
            clock: Clock2(Arc::clone(clock)),
            configs: Mutex::default(),
        }))
    }

    /// The configuration for a target. `certificate`: one that was loaded for this connection.
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
        let verifier =
            ServerVerifier { trust: self.trust.clone(), name: target.name.clone(), clock: Arc::clone(&self.clock.0) };
        let builder = ClientConfig::builder_with_details(Arc::clone(&self.provider), Arc::new(self.clock.clone()))
            .with_protocol_versions(&self.versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match certificate.or(self.certificate.as_ref()) {
            Some(pair) => builder.with_client_cert_resolver(Arc::new(ClientCertificate(pair.clone()))),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols.clone_from(if target.alpn.is_empty() { &self.alpn } else { &target.alpn });
        config.enable_sni = target.send_name;
        config.resumption = if self.session_reuse && certificate.is_none() {
            Resumption::store(Arc::new(ClientSessionMemoryCache::new(SESSIONS_MAX)))
        } else {
            Resumption::disabled()
        };
        Ok(config)
    }

    /// The name that rustls is given. One that is no host name cannot be sent; the verifier knows the real one.
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
