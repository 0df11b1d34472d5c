//! Angie's ACME client: `acme_client`, `acme`, `acme_client_path`, `$acme_cert_NAME` and `$acme_cert_key_NAME`, over the issuers and
//! orders of this module. A client has one certificate, for the names of all servers that use it.
//!
//! Differs: `challenge=dns`, `acme_hook`, `acme_dns_port` and `acme_http_port` are refused; `dns_hook` and `dns_update` of `acme_issuer`
//! do their work.

use super::issuer::{Habits, Issuer, KeySource, Source};
use super::order::{self, Ordered};
use acme::{Account, AccountKey, Algorithm, ChallengeKind, Identifier};
use conf_schema::value::{parse_sec, parse_size};
use conf_schema::{Cx, Directive, Problem, Value};
use http_client::Url;
use http_engine::{HttpPlan, Request};
use session_engine::authorities;
use session_engine::names::ServerName;
use session_engine::upstreams::Resolving;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tls::{ClientRules, ClientSettings};

/// Seconds before a certificate's end at which it is renewed, and after a failure (Angie's defaults).
const RENEW_BEFORE: i64 = 30 * 86_400;
const RETRY: i64 = 2 * 3600;
const VERIFY_DEPTH: u32 = 10;
const DNS_HINT: &str = "write \"acme_issuer\" with \"challenge dns-01\" and \"dns_hook\" or \"dns_update\"";

/// `acme_client` as written.
#[derive(Clone)]
pub struct Line {
    name: String,
    uri: Url,
    key: Algorithm,
    account_key: KeySource,
    account: Account,
    challenge: ChallengeKind,
    habits: Habits,
    trusted: Option<PathBuf>,
    /// `FILE:LINE` of the directive.
    place: String,
}

impl Value for Line {
    const SYNTAX: &'static str = "name uri [enabled=on|off] [key_type=type] [key_bits=number] [email=email] \
        [max_cert_size=size] [renew_before_expiry=time] [renew_on_load] [retry_after_error=off|time] [challenge=http|alpn] \
        [account_key=file] [ssl_trusted_certificate=file]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let words: Vec<String> = d.args.iter().map(|word| word.text().into_owned()).collect();
        let [name, uri, rest @ ..] = words.as_slice() else { return Err(Problem::invalid()) };
        let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(Problem::says(format!("invalid ACME client name \"{name}\"")).at(0));
        }
        let uri = Url::parse(uri).map_err(|why| Problem::says(format!("{why} in \"{uri}\"")).at(1))?;
        let (mut kind, mut bits) = ("ecdsa".to_string(), None);
        let mut line = Line {
            name: name.to_ascii_lowercase(),
            uri,
            key: Algorithm::default(),
            account_key: KeySource::Generated(Algorithm::default()),
            account: Account { agreed: true, ..Account::default() },
            challenge: ChallengeKind::Http01,
            habits: Habits { renew_before: RENEW_BEFORE, on_load: false, retry: Some(RETRY), enabled: true },
            trusted: None,
            place: cx.place(),
        };
        for (index, word) in rest.iter().enumerate() {
            let at = |problem: Problem| problem.at(index + 2);
            let wrong = || at(Problem::says(format!("invalid parameter \"{word}\"")));
            let seconds = |text: &str| {
                parse_sec(text.as_bytes()).and_then(|time| i64::try_from(time).ok()).filter(|time| *time > 0)
            };
            match word.split_once('=').unwrap_or((word, "")) {
                ("enabled", "on") => line.habits.enabled = true,
                ("enabled", "off") => line.habits.enabled = false,
                ("key_type", text @ ("rsa" | "ecdsa")) => kind = text.to_string(),
                ("key_bits", text) => bits = Some((index, text.to_string())),
                ("email", text) if text.contains('@') => line.account.contacts = vec![format!("mailto:{text}")],
                // Certificates have no zone whose size would have to be known.
                ("max_cert_size", text) if parse_size(text.as_bytes()).is_some_and(|size| size > 0) => {}
                ("renew_before_expiry", text) => line.habits.renew_before = seconds(text).ok_or_else(wrong)?,
                ("renew_on_load", "") => line.habits.on_load = true,
                ("retry_after_error", "off") => line.habits.retry = None,
                ("retry_after_error", text) => line.habits.retry = Some(seconds(text).ok_or_else(wrong)?),
                ("challenge", "http") => line.challenge = ChallengeKind::Http01,
                ("challenge", "alpn") => line.challenge = ChallengeKind::TlsAlpn01,
                ("challenge", "dns") => {
                    return Err(at(Problem::says("\"challenge=dns\" is not supported").hint(DNS_HINT)));
                }
                ("ssl_trusted_certificate", file) if !file.is_empty() => line.trusted = Some(cx.conf_full_name(file)),
                ("account_key", file) if !file.is_empty() => {
                    let path = cx.conf_full_name(file);
                    let text = cx.store.read(&path).map_err(|e| observe::os(&e).to_string());
                    let key = text.and_then(|pem| AccountKey::load(&pem));
                    let failed = |why| format!("cannot load account key \"{}\": {why}", path.display());
                    line.account_key = KeySource::Loaded(Arc::new(key.map_err(|why| at(Problem::says(failed(why))))?));
                }
                _ => return Err(wrong()),
            }
        }
        let text = match &bits {
            Some((_, bits)) => format!("{kind}:{bits}"),
            None => kind,
        };
        let parsed = Algorithm::parse(&text).unwrap_or_else(|| Err(format!("unsupported key \"{text}\"")));
        let at = bits.map_or(0, |(index, _)| index + 2);
        line.key = parsed.map_err(|why| Problem::says(why).at(at))?;
        Ok(line)
    }
    fn meets(&self, later: &Self, _: &mut Cx, _: &Directive) -> Result<(), Problem> {
        if self.name == later.name {
            return Err(Problem::says(format!("duplicate ACME client name \"{}\"", later.name)).at(0));
        }
        Ok(())
    }
}

/// `acme` as written.
#[derive(Clone)]
pub struct Named(pub String);

impl Value for Named {
    const SYNTAX: &'static str = "name";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Ok(Named(d.args.first().map(|word| word.text().into_owned()).unwrap_or_default()))
    }
}

/// A client with its certificate.
pub struct Client {
    pub name: String,
    issuer: Arc<Issuer>,
    key: Algorithm,
    place: String,
    /// Of the servers that use the client.
    resolving: Mutex<Option<Resolving>>,
    names: Mutex<Vec<Identifier>>,
    ordered: OnceLock<Option<Ordered>>,
}

/// The clients of a configuration; kept in `Cx` and with the plan.
#[derive(Clone, Default)]
pub struct Clients(pub Vec<Arc<Client>>);

impl Line {
    /// Makes the client. `folder`: `acme_client_path`.
    ///
    /// # Errors
    /// No trusted certificates are installed.
    pub fn client(&self, cx: &mut Cx, folder: &Path) -> Result<Client, Problem> {
        let mut settings =
            ClientSettings { prefix: "ssl", verify_depth: VERIFY_DEPTH, addresses: true, ..ClientSettings::default() };
        if self.uri.tls {
            settings.verify = true;
            settings.trusted =
                authorities::trusted(cx, self.trusted.clone(), &format!("ACME client \"{}\"", self.name))?;
        }
        let rules = ClientRules::build(&settings, &session_engine::tls::clock(), &mut Vec::new());
        let issuer = Issuer {
            name: self.name.clone(),
            source: Source::Server(self.uri.clone()),
            fallbacks: Vec::new(),
            key: self.account_key.clone(),
            account: self.account.clone(),
            challenge: self.challenge,
            dns: None,
            profile: None,
            preferred_chain: None,
            common_name: false,
            state_path: Some(folder.join(&self.name)),
            rules: rules.map_err(Problem::says)?,
            habits: Some(self.habits),
        };
        Ok(Client {
            name: self.name.clone(),
            issuer: Arc::new(issuer),
            key: self.key,
            place: self.place.clone(),
            resolving: Mutex::default(),
            names: Mutex::default(),
            ordered: OnceLock::new(),
        })
    }
}

impl Client {
    /// Adds the names of a server (`acme`).
    ///
    /// # Errors
    /// A wildcard, which needs dns-01.
    pub fn add(&self, names: &[ServerName<Request>], resolving: Resolving) -> Result<(), Problem> {
        let mut own = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            let written = String::from_utf8_lossy(&name.written()).into_owned();
            match name {
                ServerName::Exact(name) if name.is_empty() || written == "_" => {}
                ServerName::Exact(_) | ServerName::Below(_) => order::add(&written, &mut own)?,
                // As Angie: regular expressions are no names.
                _ if written.starts_with('~') => {}
                _ => {
                    return Err(
                        Problem::says(format!("wildcard name \"{written}\" needs \"challenge=dns\"")).hint(DNS_HINT)
                    );
                }
            }
        }
        *self.resolving.lock().unwrap_or_else(PoisonError::into_inner) = Some(resolving);
        Ok(())
    }

    /// Returns the order, once all servers have added their names; `None` without names.
    pub fn ordered(&self) -> Option<&Ordered> {
        let make = || {
            let mut identifiers = self.names.lock().unwrap_or_else(PoisonError::into_inner).clone();
            identifiers.sort();
            let issuers = vec![Arc::clone(&self.issuer)];
            let resolving = self.resolving.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let certificate = super::certificates::of(&issuers, &identifiers, self.key);
            let place = self.place.clone();
            let ordered = Ordered { issuers, resolving, identifiers, key: self.key, place, certificate };
            (!ordered.identifiers.is_empty()).then_some(ordered)
        };
        self.ordered.get_or_init(make).as_ref()
    }
    pub fn folder(&self) -> Option<&Path> {
        self.issuer.state_path.as_deref()
    }
}

/// Returns the orders of the clients of a plan.
pub fn orders(plan: &HttpPlan) -> impl Iterator<Item = &Ordered> {
    plan.ext::<Clients>().into_iter().flat_map(|clients| clients.0.iter().filter_map(|client| client.ordered()))
}

/// Writes `$acme_cert_NAME` or `$acme_cert_key_NAME`.
pub fn value(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    let plan = r.plan();
    let find = |name: &str| plan.ext::<Clients>()?.0.iter().find(|client| client.name == name)?.ordered();
    let name = name.to_ascii_lowercase();
    let key = || name.strip_prefix("key_").and_then(find).and_then(|ordered| ordered.certificate.key());
    let text = find(&name).and_then(|ordered| ordered.certificate.chain()).or_else(key);
    let Some(text) = text else { return false };
    out.extend_from_slice(&text);
    true
}
