//! Builds a server's TLS rules from directives (nginx: `ngx_http_ssl_merge_srv_conf`, `ngx_stream_ssl_merge_srv_conf`).

use super::asking::Responder;
use super::cache::{OcspCache, SslSessionCache};
use super::loaded::LoadedStaples;
use super::ocsp::{Answers, AskAuthorities};
use super::stapling::Staples;
use super::{CacheOf, Ciphers, CommandRules, ConfCommand, Dynamic, KeyLogFile, Passwords, Pem, TlsProtocols, report};
use crate::shared_tickets::SharedTickets;
use area::listed::ListedObjects;
use area::shared_store::StoreSlot;
use area::zones;
use conf_schema::value::{Text, ValueList};
use conf_schema::{Complaint, ComplaintLevel, Cx, Problem};
use std::path::Path;
use std::sync::Arc;
use tls::certs::{CertificateSet, KeyPair};
use tls::{ServerRules, ServerSettings, SessionCache, SessionStore, TICKET_KEY_SIZES, TicketKeys, VerifyClient};
use variables::AreaTypes;

/// Approximate octets of a cached session, for caches sized in sessions.
const SESSION_BYTES: u64 = 256;

conf_schema::words! {
    pub enum Verify { Off = "off", On = "on", Optional = "optional", OptionalNoCa = "optional_no_ca" }
}
conf_schema::words! {
    pub enum Ocsp { Off = "off", On = "on", Leaf = "leaf" }
}

pub struct ServerSaid<A: AreaTypes> {
    pub ssl_certificate: Option<ValueList<Pem<A>>>,
    pub ssl_certificate_key: Option<ValueList<Pem<A>>>,
    pub ssl_certificate_cache: CacheOf,
    pub ssl_ech_file: Option<ValueList<Text>>,
    pub ssl_password_file: Option<Passwords>,
    pub ssl_certificate_compression: bool,
    pub ssl_dhparam: Option<Text>,
    pub ssl_ecdh_curve: Text,
    pub ssl_protocols: TlsProtocols,
    pub ssl_ciphers: Ciphers,
    pub ssl_verify_client: Verify,
    pub ssl_verify_depth: u64,
    pub ssl_client_certificate: Option<Text>,
    pub ssl_trusted_certificate: Option<Text>,
    pub ssl_prefer_server_ciphers: bool,
    pub ssl_session_cache: Option<SslSessionCache>,
    pub ssl_session_tickets: bool,
    pub ssl_session_ticket_key: Option<ValueList<Text>>,
    pub ssl_session_timeout: u64,
    pub ssl_crl: Option<Text>,
    pub ssl_ocsp: Ocsp,
    pub ssl_ocsp_responder: Option<Text>,
    pub ssl_ocsp_cache: OcspCache,
    pub ssl_stapling: bool,
    pub ssl_stapling_file: Option<Text>,
    pub ssl_stapling_responder: Option<Text>,
    pub ssl_stapling_verify: bool,
    pub ssl_conf_command: Option<ValueList<ConfCommand>>,
    pub ssl_key_log: Option<KeyLogFile>,
    pub ssl_reject_handshake: bool,
    pub buffer_size: usize,
    pub early_data: bool,
    pub alpn: Vec<Vec<u8>>,
}

pub struct ServerTls<A> {
    /// `ssl_verify_client`, enforced for every session whatever its handshake's rules.
    pub verify: VerifyClient,
    /// `None`: no certificate; uses the default server's rules.
    pub rules: Option<Arc<ServerRules>>,
    /// Hosts that the certificates should cover.
    pub names: Vec<String>,
    pub staples: Option<Staples>,
    /// Certificates loaded per connection (`ssl_certificate` with variables).
    pub certificates: Option<Loaders<A>>,
}

impl<A> ServerTls<A> {
    /// Adds stapled responses to certificates that were loaded for a handshake.
    pub fn stapled(&self, set: CertificateSet) -> CertificateSet {
        match &self.staples {
            Some(staples) => staples.staple(set),
            None => set,
        }
    }
}

pub struct Loaders<A>(Vec<Dynamic<A>>);

impl<A: AreaTypes> Loaders<A> {
    /// Fails with nginx's error log message.
    pub fn load(&self, r: &mut A::Session) -> Result<CertificateSet, String> {
        let mut pairs = Vec::new();
        for one in &self.0 {
            match one.load(r)? {
                Some(pair) => pairs.push(pair),
                None => return Err("cannot load certificate \"\": its name is empty".into()),
            }
        }
        Ok(CertificateSet::new(pairs))
    }
}

fn warn(cx: &mut Cx, text: String) {
    let complaint = Complaint { level: ComplaintLevel::Warn, ..Complaint::emerg(text) };
    if !cx.warnings.contains(&complaint) {
        cx.warnings.push(complaint);
    }
}

fn text(value: &Option<Text>) -> Option<String> {
    value.as_ref().map(|t| t.str().into_owned()).filter(|t| !t.is_empty())
}

/// Rules of a server; `None`: neither a certificate nor rejection.
pub fn server_rules<A: AreaTypes>(conf: &ServerSaid<A>, cx: &mut Cx) -> Result<Option<ServerTls<A>>, Problem> {
    let certificates = conf.ssl_certificate.as_ref().map(|l| l.0.as_slice()).unwrap_or_default();
    let keys = conf.ssl_certificate_key.as_ref().map(|l| l.0.as_slice()).unwrap_or_default();
    if let Some(bare) = certificates.last().filter(|_| keys.len() < certificates.len()) {
        let words = format!("no \"ssl_certificate_key\" is defined for certificate \"{}\"", bare.text);
        return Err(Problem { inner: (bare.at.line > 0).then_some(bare.at), ..Problem::says(words) });
    }
    let verify = match conf.ssl_verify_client {
        Verify::Off => VerifyClient::Off,
        Verify::On => VerifyClient::On,
        Verify::Optional => VerifyClient::Optional,
        Verify::OptionalNoCa => VerifyClient::OptionalNoCa,
    };
    if certificates.is_empty() && !conf.ssl_reject_handshake {
        let asks = verify != VerifyClient::Off;
        return Ok(asks.then_some(ServerTls {
            verify,
            rules: None,
            names: Vec::new(),
            staples: None,
            certificates: None,
        }));
    }
    let mut settings = ServerSettings {
        protocols: conf.ssl_protocols.settings(),
        ciphers: conf.ssl_ciphers.text.clone(),
        prefer_server_ciphers: conf.ssl_prefer_server_ciphers,
        groups: conf.ssl_ecdh_curve.str().into_owned(),
        session_timeout: conf.ssl_session_timeout,
        alpn: conf.alpn.clone(),
        early_data: conf.early_data,
        buffer_size: conf.buffer_size,
        reject_handshake: conf.ssl_reject_handshake,
        compress_certificates: conf.ssl_certificate_compression,
        key_log: conf.ssl_key_log.as_ref().map(KeyLogFile::log),
        verify,
        ..ServerSettings::default()
    };
    let mut loaders = Vec::new();
    let passwords = conf.ssl_password_file.as_ref();
    if certificates.iter().chain(keys.iter().take(certificates.len())).any(|p| p.is_dynamic()) {
        for (certificate, key) in certificates.iter().zip(keys) {
            if let Some(problem) = super::files::exposed(cx, key, passwords, true) {
                return Err(problem);
            }
            loaders.push(Dynamic::new(certificate, key, passwords, &conf.ssl_certificate_cache, cx));
            settings.certificate_names.push(certificate.text.clone());
        }
    } else {
        for (certificate, key) in certificates.iter().zip(keys) {
            let pair = super::key_pair(cx, certificate, key, passwords)?;
            // (`data:` holds the certificate itself, which is no name.)
            if let Some(leaf) = pair.leaf().filter(|_| !certificate.text.starts_with("data:")) {
                let validity = (leaf.not_before, leaf.not_after);
                ListedObjects::of(cx).add_certificate(&certificate.text, Arc::new(move || Some(validity)));
            }
            settings.certificates.push(pair);
        }
    }
    clients(conf, cx, &mut settings)?;
    other_files(conf, cx).map_err(|p| p.of("ssl_dhparam"))?;
    let commands = conf.ssl_conf_command.as_ref().map(|l| l.0.as_slice()).unwrap_or_default();
    let mut tickets = conf.ssl_session_tickets;
    command(
        CommandRules::read(cx, commands).map_err(|p| p.of("ssl_conf_command"))?,
        cx,
        conf,
        &mut settings,
        &mut tickets,
    )
    .map_err(|p| p.of("ssl_conf_command"))?;
    sessions(conf, cx, &mut settings, tickets).map_err(|p| p.of("ssl_session_ticket_key"))?;
    let staples = stapling(conf, cx, &mut settings).map_err(|p| p.of("ssl_stapling_file"))?;
    let mut warnings = Vec::new();
    let rules = ServerRules::build(&settings, &super::wall_clock(), &mut warnings).map_err(|why| {
        let of = if why.contains("_protocols") { "ssl_protocols" } else { "ssl_ciphers" };
        Problem::says(why).of(of)
    })?;
    for text in warnings {
        warn(cx, text);
    }
    if settings.protocols.tls12 {
        report::note_ciphers(cx, &settings.ciphers, conf.ssl_ciphers.at);
    }
    let certificates = (!loaders.is_empty()).then_some(Loaders(loaders));
    Ok(Some(ServerTls { verify, rules: Some(rules), names: Vec::new(), staples, certificates }))
}

fn clients<A: AreaTypes>(conf: &ServerSaid<A>, cx: &mut Cx, settings: &mut ServerSettings) -> Result<(), Problem> {
    settings.verify_depth = u32::try_from(conf.ssl_verify_depth).unwrap_or(u32::MAX);
    let (client, trusted) = (text(&conf.ssl_client_certificate), text(&conf.ssl_trusted_certificate));
    if matches!(settings.verify, VerifyClient::On | VerifyClient::Optional) && client.is_none() && trusted.is_none() {
        return Err(Problem::says("no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client")
            .of("ssl_verify_client"));
    }
    if let Some(file) = client.filter(|_| settings.verify != VerifyClient::Off) {
        settings.client_authorities = super::load_authorities(cx, &file).map_err(|p| p.of("ssl_client_certificate"))?;
    }
    if let Some(file) = trusted {
        settings.trusted = super::load_authorities(cx, &file).map_err(|p| p.of("ssl_trusted_certificate"))?;
    }
    if let Some(file) = text(&conf.ssl_crl) {
        settings.revocations = super::load_crls(cx, &file).map_err(|p| p.of("ssl_crl"))?;
    }
    if conf.ssl_ocsp != Ocsp::Off {
        if settings.verify == VerifyClient::OptionalNoCa {
            return Err(Problem::says("\"ssl_ocsp\" is incompatible with \"ssl_verify_client optional_no_ca\""));
        }
        settings.keep_path = true;
    }
    Ok(())
}

/// Checks files of directives without effect here.
fn other_files<A: AreaTypes>(conf: &ServerSaid<A>, cx: &mut Cx) -> Result<(), Problem> {
    if let Some(file) = text(&conf.ssl_dhparam) {
        let path = cx.conf_full_name(&file);
        let shown = path.display();
        let bytes = cx.store.read(&path).map_err(|why| unopened(&path, "r", &why))?;
        let blocks = tls::pem::parse_blocks(&bytes).unwrap_or_default();
        if !blocks.iter().any(|b| b.label.ends_with("DH PARAMETERS")) {
            return Err(Problem::says(format!(
                "PEM_read_bio_DHparams(\"{shown}\") failed (SSL: error:0480006C:PEM routines::no start line:Expecting: DH PARAMETERS)"
            )));
        }
        warn(cx, "\"ssl_dhparam\" has no effect: keys are exchanged over elliptic curves and ML-KEM only".into());
    }
    if conf.ssl_ech_file.is_some() {
        warn(cx, "\"ssl_ech_file\" is not supported on this platform, ignored".into());
    }
    Ok(())
}

fn command<A: AreaTypes>(
    commanded: CommandRules<A>,
    cx: &mut Cx,
    conf: &ServerSaid<A>,
    settings: &mut ServerSettings,
    tickets: &mut bool,
) -> Result<(), Problem> {
    if let Some(ciphers) = commanded.ciphers {
        settings.ciphers = ciphers;
    }
    settings.ciphersuites = commanded.ciphersuites;
    if let Some(groups) = commanded.groups {
        settings.groups = groups;
    }
    settings.protocols.tls12 = commanded.tls12.unwrap_or(settings.protocols.tls12);
    settings.protocols.tls13 = commanded.tls13.unwrap_or(settings.protocols.tls13);
    settings.prefer_server_ciphers = commanded.server_preference.unwrap_or(settings.prefer_server_ciphers);
    *tickets = commanded.tickets.unwrap_or(*tickets);
    match (commanded.certificate, commanded.key) {
        (Some(certificate), Some(key)) => {
            settings.certificates.push(super::key_pair(cx, &certificate, &key, conf.ssl_password_file.as_ref())?);
        }
        (None, None) => {}
        _ => {
            return Err(Problem::says(
                "\"ssl_conf_command\": \"Certificate\" and \"PrivateKey\" must be given together",
            ));
        }
    }
    Ok(())
}

fn sessions<A: AreaTypes>(
    conf: &ServerSaid<A>,
    cx: &mut Cx,
    settings: &mut ServerSettings,
    tickets: bool,
) -> Result<(), Problem> {
    let said = conf.ssl_session_cache.clone().unwrap_or_default();
    let make = |size: u64| SessionCache::new(usize::try_from(size).unwrap_or(usize::MAX));
    settings.sessions = match (&said.shared, said.builtin) {
        (Some((name, size)), _) => {
            SessionStore::Cache(zones::zone_state("ssl_session_cache", name, *size, b"", || make(*size)))
        }
        (None, Some(count)) => SessionStore::Cache(Arc::new(make(count.saturating_mul(SESSION_BYTES)))),
        (None, None) => SessionStore::None,
    };
    if !tickets {
        return Ok(());
    }
    let files = conf.ssl_session_ticket_key.as_ref().map(|l| l.0.as_slice()).unwrap_or_default();
    if files.is_empty() {
        // A shared cache's keys survive reloads with it.
        settings.tickets = Some(match &said.shared {
            Some((name, size)) => zones::zone_state("ssl_ticket_keys", name, *size, b"", TicketKeys::automatic),
            None => Arc::new(TicketKeys::automatic()),
        });
        return Ok(());
    }
    if let [word] = files
        && word.str() == "sync"
    {
        let tickets = zones::zone_state("ssl_ticket_keys", "shared_store", 0, b"", SharedTickets::new);
        settings.tickets = Some(tickets.keys().clone());
        let slot = StoreSlot::for_key(cx, "ssl_session_ticket_key sync");
        let its = slot.clone();
        slot.at_start(move |agent| {
            if let Some(secret) = its.secret("tickets") {
                tickets.begin_sharing(agent, Arc::new(secret));
            }
        });
        return Ok(());
    }
    let mut keys = Vec::new();
    for file in files {
        let path = cx.conf_full_name(&file.str());
        let shown = path.display();
        let bytes = cx.store.read(&path);
        let bytes = match bytes {
            // Opening a directory succeeds; it has no bytes.
            Err(why) if why.kind() == std::io::ErrorKind::IsADirectory => std::sync::Arc::from([]),
            read => {
                read.map_err(|why| Problem::says(format!("open() \"{shown}\" failed {}", observe::os_error(&why))))?
            }
        };
        if !TICKET_KEY_SIZES.contains(&bytes.len()) {
            return Err(Problem::says(format!("\"{shown}\" must be 48 or 80 bytes")));
        }
        keys.push(bytes.to_vec());
    }
    let keys = TicketKeys::from_files(&keys).map_err(|_| Problem::says("ticket keys must be 48 or 80 bytes"))?;
    settings.tickets = Some(Arc::new(keys));
    Ok(())
}

/// OCSP settings for client certificates; `None`: no check. Fails on an invalid responder.
pub fn client_ocsp<A: AreaTypes>(conf: &ServerSaid<A>) -> Result<Option<AskAuthorities>, Problem> {
    if conf.ssl_ocsp == Ocsp::Off || conf.ssl_verify_client == Verify::Off {
        return Ok(None);
    }
    let answers = match &conf.ssl_ocsp_cache {
        OcspCache::Off => None,
        OcspCache::Shared(name, size) => {
            Some(zones::zone_state("ssl_ocsp_cache", name, *size, b"", || Answers::new(*size)))
        }
    };
    Ok(Some(AskAuthorities {
        leaf: conf.ssl_ocsp == Ocsp::Leaf,
        responder: responder(&conf.ssl_ocsp_responder, "ssl_ocsp_responder")?,
        answers,
    }))
}

fn unopened(path: &Path, mode: &str, why: &std::io::Error) -> Problem {
    let shown = path.display().to_string();
    Problem::says(format!("BIO_new_file(\"{shown}\") failed {}", super::unopened_message(&shown, mode, why)))
}

fn responder(url: &Option<Text>, directive: &str) -> Result<Option<Responder>, Problem> {
    let Some(url) = text(url) else { return Ok(None) };
    Responder::resolved(&url).map(Some).map_err(|why| Problem::says(format!("{why} in \"{directive}\"")))
}

/// Sets up stapling from a file or by fetching. Warns if neither is available.
fn stapling<A: AreaTypes>(
    conf: &ServerSaid<A>,
    cx: &mut Cx,
    settings: &mut ServerSettings,
) -> Result<Option<Staples>, Problem> {
    if !conf.ssl_stapling {
        return Ok(None);
    }
    if conf.ssl_certificate_compression {
        return Err(Problem::says("\"ssl_stapling\" is incompatible with \"ssl_certificate_compression\""));
    }
    if let Some(file) = text(&conf.ssl_stapling_file) {
        let path = cx.conf_full_name(&file);
        let shown = path.display();
        let bytes = cx.store.read(&path).map_err(|why| unopened(&path, "rb", &why))?;
        if !tls::ocsp_response(&bytes) {
            return Err(Problem::says(format!(
                "d2i_OCSP_RESPONSE_bio(\"{shown}\") failed (SSL: error:0680008E:asn1 encoding routines::not enough data)"
            )));
        }
        let staple = |pair: KeyPair| pair.with_ocsp(Some(bytes.to_vec()));
        settings.certificates = std::mem::take(&mut settings.certificates).into_iter().map(staple).collect();
        return Ok(None);
    }
    let staples = Staples {
        responder: responder(&conf.ssl_stapling_responder, "ssl_stapling_responder")?,
        verify: conf.ssl_stapling_verify,
        known: settings.trusted.iter().chain(&settings.client_authorities).cloned().collect(),
        loaded: LoadedStaples::default(),
    };
    for (pair, name) in settings.certificates.iter().zip(conf.ssl_certificate.iter().flat_map(|l| &l.0)) {
        let Some(leaf) = pair.leaf() else { continue };
        let name = cx.conf_full_name(&name.text).display().to_string();
        if staples.issuer(&pair.chain).is_none() {
            warn(cx, format!("\"ssl_stapling\" ignored, issuer certificate not found for certificate \"{name}\""));
        } else if let Err(why) = staples.responder(leaf) {
            warn(cx, format!("\"ssl_stapling\" ignored, {why} \"{name}\""));
        }
    }
    Ok(Some(staples))
}
