//! TLS towards upstream servers: a location's settings under any prefix.

use super::values::{CacheOf, Passwords, Pem, TlsProtocols};
use super::{CommandRules, ConfCommand, Dynamic, KeyLogFile, key_pair, load_authorities, load_crls, wall_clock};
use conf_schema::value::Text;
use conf_schema::{Complaint, ComplaintLevel, Cx, Directive, Problem, ValueKind};
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};
use tls::certs::KeyPair;
use tls::quic::ClientCrypto;
use tls::verify::AlternativeName;
use tls::{ClientRules, ClientSettings, Target, TlsError, TlsStream};
use variables::{AreaTypes, Template};

pub struct UpstreamTlsConf<'a, A> {
    pub prefix: &'static str,
    pub certificate: Option<&'a Pem<A>>,
    pub certificate_key: Option<&'a Pem<A>>,
    pub certificate_cache: &'a CacheOf,
    pub ciphers: &'a Text,
    pub conf_command: &'a [ConfCommand],
    pub crl: Option<&'a Text>,
    pub name: Option<&'a Template<A>>,
    pub password_file: Option<&'a Passwords>,
    pub protocols: TlsProtocols,
    pub server_name: bool,
    pub session_reuse: bool,
    pub trusted_certificate: Option<&'a Text>,
    pub verify: bool,
    pub verify_depth: u64,
    /// In place of the name; empty: the name is verified.
    pub verify_names: &'a [AlternativeName],
    pub key_log: Option<&'a KeyLogFile>,
    /// Offered ALPN protocols, by preference; none: no ALPN.
    pub alpn: &'static [&'static str],
}

/// `proxy_ssl_verify_names`
#[derive(Clone, Debug)]
pub struct VerifyNames(pub Vec<AlternativeName>);

impl ValueKind for VerifyNames {
    const SYNTAX: &'static str = "name ...";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut names = Vec::new();
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            let invalid = || {
                Problem::says(format!("invalid name \"{text}\""))
                    .at(index)
                    .hint("a DNS name without wildcards, or a URI such as spiffe://cluster/service")
            };
            let uri = text.strip_prefix("URI:").or_else(|| Some(&*text).filter(|text| text.contains("://")));
            let is_uri = |uri: &str| {
                uri.split_once(':').is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty())
                    && uri.bytes().all(|c| c.is_ascii_graphic())
            };
            let is_dns = |name: &str| {
                !name.starts_with('.') && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c))
            };
            names.push(match uri {
                Some(uri) if is_uri(uri) => AlternativeName::Uri(uri.to_string()),
                None if !text.is_empty() && is_dns(&text) => AlternativeName::Dns(text.to_string()),
                _ => return Err(invalid()),
            });
        }
        Ok(VerifyNames(names))
    }
}

/// TLS of a location's upstream connections.
pub struct UpstreamTls<A> {
    rules: Arc<ClientRules>,
    /// `None`: the requested host.
    name: Option<Template<A>>,
    send_name: bool,
    dynamic: Option<Dynamic<A>>,
}

/// Rules by settings: equal locations share them and their sessions.
#[derive(Default)]
struct BuiltRules(HashMap<String, Arc<ClientRules>>);

fn word(text: Option<&Text>) -> Option<String> {
    text.map(|t| t.str().into_owned()).filter(|t| !t.is_empty())
}

impl<A: AreaTypes> UpstreamTlsConf<'_, A> {
    /// Key of the rules: equal keys have equal rules.
    fn key(&self) -> String {
        let pem = |p: Option<&Pem<A>>| p.map(|p| p.text.clone());
        let commands: Vec<(&str, &str)> = self.conf_command.iter().map(|c| (&*c.name, &*c.value)).collect();
        format!(
            "{:?}",
            (
                (pem(self.certificate), pem(self.certificate_key), self.password_file),
                (self.ciphers, commands, self.crl, self.protocols),
                (self.session_reuse, self.trusted_certificate, self.verify, self.verify_depth, self.alpn),
                (self.key_log.map(KeyLogFile::path), self.verify_names),
            )
        )
    }

    /// Builds the settings; fails with nginx's message.
    pub fn build(&self, cx: &mut Cx) -> Result<UpstreamTls<A>, Problem> {
        let prefix = self.prefix;
        let (mut fixed, mut dynamic) = (None, None);
        if let Some(certificate) = self.certificate.filter(|c| !c.text.is_empty()) {
            let Some(key) = self.certificate_key else {
                let text =
                    format!("no \"{prefix}_certificate_key\" is defined for certificate \"{}\"", certificate.text);
                return Err(Problem::says(text));
            };
            if certificate.is_dynamic() || key.is_dynamic() {
                let cache = self.certificate_cache;
                if let Some(problem) = super::files::exposed(cx, key, self.password_file, true) {
                    return Err(problem);
                }
                dynamic = Some(Dynamic::new(certificate, key, self.password_file, cache, cx));
            } else {
                fixed = Some((certificate, key));
            }
        }
        let trusted = word(self.trusted_certificate);
        if self.verify && trusted.is_none() {
            return Err(Problem::says(format!("no {prefix}_trusted_certificate for {prefix}_verify")));
        }
        if !self.verify && !self.verify_names.is_empty() {
            let text = format!("\"{prefix}_verify_names\" has no effect with \"{prefix}_verify off\"");
            let complaint = Complaint { level: ComplaintLevel::Warn, ..Complaint::emerg(text) };
            if !cx.warnings.contains(&complaint) {
                cx.warnings.push(complaint);
            }
        }
        let key = self.key();
        let known = cx.get::<BuiltRules>().0.get(&key).cloned();
        let rules = match known {
            Some(rules) => rules,
            None => {
                let rules = self.rules(cx, fixed, trusted)?;
                cx.get::<BuiltRules>().0.insert(key, Arc::clone(&rules));
                rules
            }
        };
        Ok(UpstreamTls { rules, name: self.name.cloned(), send_name: self.server_name, dynamic })
    }

    fn rules(
        &self,
        cx: &mut Cx,
        certificate: Option<(&Pem<A>, &Pem<A>)>,
        trusted: Option<String>,
    ) -> Result<Arc<ClientRules>, Problem> {
        let commanded = CommandRules::<A>::read(cx, self.conf_command)?;
        let mut settings = ClientSettings {
            prefix: self.prefix,
            protocols: self.protocols.settings(),
            ciphers: commanded.ciphers.unwrap_or_else(|| self.ciphers.str().into_owned()),
            ciphersuites: commanded.ciphersuites,
            groups: commanded.groups.unwrap_or_else(|| "auto".into()),
            verify: self.verify,
            verify_depth: u32::try_from(self.verify_depth).unwrap_or(u32::MAX),
            verify_names: self.verify_names.to_vec(),
            session_reuse: self.session_reuse,
            alpn: self.alpn.iter().map(|name| name.as_bytes().to_vec()).collect(),
            key_log: self.key_log.map(KeyLogFile::log),
            ..ClientSettings::default()
        };
        settings.protocols.tls12 = commanded.tls12.unwrap_or(settings.protocols.tls12);
        settings.protocols.tls13 = commanded.tls13.unwrap_or(settings.protocols.tls13);
        if let Some((certificate, key)) = certificate {
            settings.certificate = Some(key_pair(cx, certificate, key, self.password_file)?);
        }
        if let (Some(certificate), Some(key)) = (&commanded.certificate, &commanded.key) {
            settings.certificate = Some(key_pair(cx, certificate, key, self.password_file)?);
        }
        if self.verify {
            if let Some(file) = trusted {
                let of = format!("{}_trusted_certificate", self.prefix);
                settings.trusted = load_authorities(cx, &file).map_err(|p| p.of(of))?;
            }
            if let Some(file) = word(self.crl) {
                settings.revocations = load_crls(cx, &file)?;
            }
        }
        let mut warnings = Vec::new();
        let rules = ClientRules::build(&settings, &wall_clock(), &mut warnings).map_err(Problem::says)?;
        for text in warnings {
            let complaint = Complaint { level: ComplaintLevel::Warn, ..Complaint::emerg(text) };
            if !cx.warnings.contains(&complaint) {
                cx.warnings.push(complaint);
            }
        }
        Ok(rules)
    }
}

pub struct UpstreamTlsRequest {
    target: Target,
    certificate: Option<KeyPair>,
    rules: Arc<ClientRules>,
}

impl<A: AreaTypes> UpstreamTls<A> {
    /// Requirements of a session's connection. `host`: of the URL; `peer`: server's address. Fails when a certificate
    /// cannot be loaded.
    pub fn wanted(&self, r: &mut A::Session, host: &str, peer: String) -> Result<UpstreamTlsRequest, String> {
        let name = match &self.name {
            Some(template) => String::from_utf8_lossy(&template.eval(r)).into_owned(),
            None => host.to_string(),
        };
        // Strips the port, and an address's brackets.
        let name = match name.rsplit_once(':') {
            Some((before, port)) if !before.contains(':') && port.bytes().all(|c| c.is_ascii_digit()) => {
                before.to_string()
            }
            Some((before, _)) if before.ends_with(']') => before.trim_matches(['[', ']']).to_string(),
            _ => name.trim_matches(['[', ']']).to_string(),
        };
        let certificate = match &self.dynamic {
            Some(dynamic) => dynamic.load(r)?,
            None => None,
        };
        let target = Target { peer, name, send_name: self.send_name, alpn: Vec::new() };
        Ok(UpstreamTlsRequest { target, certificate, rules: Arc::clone(&self.rules) })
    }
}

impl UpstreamTlsRequest {
    pub fn offer(&mut self, alpn: Vec<Vec<u8>>) {
        self.target.alpn = alpn;
    }
    /// Identifies interchangeable connections; never 0.
    pub fn scope(&self) -> usize {
        static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let leaf = self.certificate.as_ref().and_then(|c| c.leaf()).map(|leaf| leaf.der().as_ref().to_vec());
        let hash = HASH.hash_one((self.rules.id, &self.target, leaf));
        // Distinct from locations' numbers by the highest bit.
        (hash as usize) | (1 << (usize::BITS - 1))
    }

    /// Fails when the rules allow no connection.
    pub fn stream(&self) -> Result<TlsStream, TlsError> {
        TlsStream::client(&self.rules, &self.target, self.certificate.as_ref())
    }

    /// [`UpstreamTlsRequest::stream`] for QUIC.
    pub fn quic(&self) -> Result<ClientCrypto, String> {
        ClientCrypto::new(&self.rules, &self.target, self.certificate.as_ref())
    }

    /// Returns the name that the certificate must have, or its alternatives.
    pub fn name(&self) -> Cow<'_, str> {
        match self.rules.verify_names() {
            [] => Cow::Borrowed(&self.target.name),
            names => names.iter().map(AlternativeName::text).collect::<Vec<_>>().join(", ").into(),
        }
    }
}
