//! `acme_issuer`: an ACME server with an account.

use super::dns::{DnsProvider, Hook, Records, Updates};
use super::shared_issuer::SharedIssuer;
use acme::{AccountKey, AcmeAccount, Algorithm, Binding, BindingDigest, ChallengeKind, Profile};
use area::shared_secret::read_key_text;
use area::shared_store::StoreSlot;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use conf_schema::value::{parse_msec, parse_sec};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use conf_syntax::Directive as Row;
use http_client::{Limits, Url};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tls::{ClientRules, ClientSettings};
use tls_directives::authorities;

/// Certificates between a server's and its authority's.
const VERIFY_DEPTH: u32 = 10;
/// Milliseconds between a change of DNS records and the question for their validation.
const PROPAGATION_MILLIS_MAX: u64 = 600_000;
/// Seconds of a certificate's life from the local authority: by default, least and most.
const LOCAL_LIFE: i64 = 7 * 86_400;
const LOCAL_LIFE_LEAST: i64 = 60;
const LOCAL_LIFE_MOST: i64 = 90 * 86_400;
/// Directives of an issuer that is the local authority.
const LOCAL_ROWS: [&[u8]; 3] = [b"local_authority", b"state_path", b"fallback"];
/// Octets of a key's file.
const KEY_BYTES_MAX: usize = 64 * 1024;

/// The key of an account.
#[derive(Clone)]
pub enum KeySource {
    Generated(Algorithm),
    Loaded(Arc<AccountKey>),
}

/// Times of orders, where a configuration sets them.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Seconds before a certificate's end.
    pub renew_before: i64,
    /// Renews when a configuration begins.
    pub on_load: bool,
    /// Seconds after a failure; `None`: failed orders are not repeated.
    pub retry: Option<i64>,
    /// Orders at all.
    pub enabled: bool,
}

/// Who signs.
#[derive(Clone)]
pub enum SignerSource {
    /// The ACME server with this directory.
    Server(Url),
    /// The authority of this machine; seconds of a certificate's life.
    Local(i64),
}

impl std::fmt::Display for SignerSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SignerSource::Server(url) => url.fmt(f),
            SignerSource::Local(_) => f.write_str("local authority"),
        }
    }
}

/// See the module's documentation.
pub struct Issuer {
    pub name: String,
    pub source: SignerSource,
    /// Names of the issuers to try after this one.
    pub(super) fallbacks: Vec<String>,
    pub key: KeySource,
    pub account: AcmeAccount,
    pub challenge: ChallengeKind,
    /// For dns-01.
    pub dns: Option<Arc<Records>>,
    pub profile: Option<Profile>,
    pub preferred_chain: Option<String>,
    pub common_name: bool,
    /// `None`: nothing is stored.
    pub state_path: Option<PathBuf>,
    pub rules: Arc<ClientRules>,
    /// Sizes of the authority's responses.
    pub limits: Limits,
    /// Of Angie's client.
    pub timing: Option<Timing>,
    /// `sync`
    pub shared: Option<Arc<SharedIssuer>>,
}

/// The issuers of a configuration by name; kept in `Cx`.
#[derive(Default)]
pub struct Issuers {
    by_name: BTreeMap<String, Arc<Issuer>>,
    /// A server gets certificates on demand.
    pub on_demand: bool,
}

impl Issuers {
    pub fn all(&self) -> Vec<Arc<Issuer>> {
        self.by_name.values().cloned().collect()
    }
    pub fn find(&self, name: &str) -> Option<Arc<Issuer>> {
        self.by_name.get(name).cloned()
    }

    /// Returns an issuer and those that are tried after it, each once, in their order.
    ///
    /// # Errors
    /// One of them does not exist.
    pub fn chain(&self, name: &str) -> Result<Vec<Arc<Issuer>>, Problem> {
        let mut chain: Vec<Arc<Issuer>> = Vec::new();
        let mut names = vec![name.to_string()];
        while let Some(name) = names.pop() {
            if chain.iter().any(|issuer| issuer.name == name) {
                continue;
            }
            let Some(issuer) = self.find(&name) else {
                return Err(Problem::says(format!("issuer \"{name}\" is missing")));
            };
            names.extend(issuer.fallbacks.iter().rev().cloned());
            chain.push(issuer);
        }
        Ok(chain)
    }
}

impl Issuer {
    /// Tells whether certificates come from the authority of this machine.
    pub fn is_local(&self) -> bool {
        matches!(self.source, SignerSource::Local(_))
    }
}

/// `acme_issuer name { ... }`; the issuers are found by their names.
#[derive(Clone)]
pub struct IssuerBlocks;

impl ValueKind for IssuerBlocks {
    const SYNTAX: &'static str = "name { ... }";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(plain) {
            return Err(Problem::says(format!("invalid issuer name \"{name}\"")).at(0));
        }
        if cx.get::<Issuers>().by_name.contains_key(&name) {
            return Err(Problem::says(format!("duplicate issuer name \"{name}\"")).at(0));
        }
        let mut draft = IssuerDraft::default();
        for row in conf_syntax::list_directives(d.block.as_deref().unwrap_or_default()) {
            draft.row(cx, row).map_err(|problem| problem.on(row))?;
        }
        let issuer = draft.finish(cx, &name)?;
        cx.get::<Issuers>().by_name.insert(name, Arc::new(issuer));
        Ok(IssuerBlocks)
    }
}

/// A block while it is read.
#[derive(Default)]
struct IssuerDraft {
    seen: Vec<Vec<u8>>,
    uri: Option<Url>,
    /// Seconds of a certificate's life.
    local: Option<i64>,
    fallbacks: Vec<String>,
    key: Option<KeySource>,
    account: AcmeAccount,
    challenge: ChallengeKind,
    provider: Option<DnsProvider>,
    propagation: Option<Duration>,
    profile: Option<Profile>,
    preferred_chain: Option<String>,
    common_name: bool,
    trusted: Option<PathBuf>,
    skip_verification: bool,
    /// `Some(None)`: `off`
    state_path: Option<Option<PathBuf>>,
    /// `Some(None)`: without `key_file`
    sync: Option<Option<Vec<u8>>>,
}

impl IssuerDraft {
    fn row(&mut self, cx: &mut Cx, row: &Row) -> Result<(), Problem> {
        let name = row.name.bytes.as_slice();
        let words: Vec<String> = row.args.iter().map(|word| word.text().into_owned()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if self.seen.iter().any(|seen| seen == name) {
            return Err(Problem::says(format!("\"{}\" directive is duplicate", row.name.text())));
        }
        self.seen.push(name.to_vec());
        let switch = |word: &str| match word {
            "on" => Ok(true),
            "off" => Ok(false),
            other => Err(Problem::says(format!("invalid value \"{other}\", it must be \"on\" or \"off\"")).at(0)),
        };
        match (name, words.as_slice()) {
            (b"uri", [text]) => {
                let url = Url::parse(text).map_err(|why| Problem::says(format!("{why} in \"{text}\"")).at(0))?;
                self.uri = Some(url);
            }
            (b"local_authority", []) => self.local = Some(LOCAL_LIFE),
            (b"local_authority", [text]) => {
                let life = text.strip_prefix("lifetime=").and_then(|time| parse_sec(time.as_bytes()));
                let wrong = || Problem::says(format!("invalid parameter \"{text}\"")).at(0);
                let life = life.and_then(|life| i64::try_from(life).ok());
                let life = life.filter(|life| (LOCAL_LIFE_LEAST..=LOCAL_LIFE_MOST).contains(life));
                let hint = "\"lifetime=\" and a time of one minute to 90 days";
                self.local = Some(life.ok_or_else(|| wrong().hint(hint))?);
            }
            (b"fallback", [_, ..]) => self.fallbacks = words.iter().map(|word| word.to_string()).collect(),
            (b"account_key", [text]) => self.key = Some(account_key(cx, text).map_err(|why| Problem::says(why).at(0))?),
            (b"challenge", [text]) => {
                let kind = ChallengeKind::parse(text);
                self.challenge =
                    kind.ok_or_else(|| Problem::says(format!("unsupported challenge: \"{text}\"")).at(0))?;
            }
            (b"dns_hook" | b"dns_update", _) if self.provider.is_some() => {
                return Err(Problem::says("\"dns_hook\" and \"dns_update\" exclude each other"));
            }
            (b"dns_hook", [program]) => self.provider = Some(DnsProvider::Hook(Hook::parse(cx, program, None)?)),
            (b"dns_hook", [program, limit]) => {
                self.provider = Some(DnsProvider::Hook(Hook::parse(cx, program, Some(limit))?))
            }
            (b"dns_update", [_, ..]) => {
                self.provider = Some(DnsProvider::Updates(Box::new(Updates::parse(cx, &words)?)))
            }
            (b"dns_propagation", [time]) => {
                let wrong = || Problem::says(format!("invalid time \"{time}\"")).at(0);
                let millis = parse_msec(time.as_bytes()).filter(|millis| *millis <= PROPAGATION_MILLIS_MAX);
                self.propagation = Some(Duration::from_millis(millis.ok_or_else(wrong)?));
            }
            (b"contact", [_, ..]) => {
                for (index, text) in words.iter().enumerate() {
                    if text.is_empty() || !text.bytes().all(|c| c.is_ascii_graphic()) {
                        return Err(Problem::says(format!("invalid contact \"{text}\"")).at(index));
                    }
                    // A scheme ends with a colon before anything that an address has.
                    let has_scheme = text.split_once(':').is_some_and(|(scheme, _)| {
                        !scheme.is_empty() && scheme.bytes().all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(&c))
                    });
                    self.account.contacts.push(if has_scheme { text.to_string() } else { format!("mailto:{text}") });
                }
            }
            (b"external_account_key", [id, source]) => {
                let secret = secret(cx, source).map_err(|why| Problem::says(why).at(1))?;
                self.account.binding = Some(Binding { id: id.to_string(), secret, digest: BindingDigest::default() });
            }
            (b"preferred_chain", [name]) => self.preferred_chain = Some(name.to_string()),
            (b"profile", [name]) => self.profile = Some(Profile { name: name.to_string(), required: false }),
            (b"profile", [name, "require"]) => self.profile = Some(Profile { name: name.to_string(), required: true }),
            (b"profile", [_, other]) => return Err(Problem::says(format!("invalid parameter \"{other}\"")).at(1)),
            (b"common_name_in_csr", [word]) => self.common_name = switch(word)?,
            (b"ssl_verify", [word]) => self.skip_verification = !switch(word)?,
            (b"ssl_trusted_certificate", [file]) => self.trusted = Some(cx.conf_full_name(file)),
            (b"state_path", ["off"]) => self.state_path = Some(None),
            (b"state_path", [path]) => self.state_path = Some(Some(cx.full_name(path))),
            (b"sync", []) => self.sync = Some(None),
            (b"sync", [text]) => {
                let file = text.strip_prefix("key_file=").filter(|file| !file.is_empty());
                let wrong = || Problem::says(format!("invalid parameter \"{text}\"")).at(0).hint("write key_file=FILE");
                let file = cx.conf_full_name(file.ok_or_else(wrong)?);
                let key = read(cx, &file).and_then(|bytes| read_key_text(&bytes));
                let failed = |why| {
                    let problem = Problem::says(format!("cannot load key \"{}\": {why}", file.display())).at(0);
                    problem.hint("a file with the same random characters on all servers, at least 32")
                };
                self.sync = Some(Some(key.map_err(failed)?));
            }
            (b"accept_terms_of_service", []) => self.account.agreed = true,
            (
                b"uri"
                | b"local_authority"
                | b"fallback"
                | b"account_key"
                | b"challenge"
                | b"dns_hook"
                | b"dns_propagation"
                | b"dns_update"
                | b"contact"
                | b"external_account_key"
                | b"preferred_chain"
                | b"profile"
                | b"common_name_in_csr"
                | b"ssl_verify"
                | b"ssl_trusted_certificate"
                | b"state_path"
                | b"sync"
                | b"accept_terms_of_service",
                _,
            ) => {
                return Err(Problem::says(format!("invalid number of arguments in \"{}\" directive", row.name.text())));
            }
            _ => return Err(Problem::says(format!("unknown directive \"{}\"", row.name.text()))),
        }
        Ok(())
    }

    fn finish(self, cx: &mut Cx, name: &str) -> Result<Issuer, Problem> {
        let source = match (self.uri, self.local) {
            (Some(uri), None) => SignerSource::Server(uri),
            (None, Some(life)) => {
                let foreign = |seen: &&Vec<u8>| !LOCAL_ROWS.contains(&seen.as_slice());
                if let Some(row) = self.seen.iter().find(foreign) {
                    let row = String::from_utf8_lossy(row);
                    let text = format!("\"{row}\" has no meaning beside \"local_authority\" in issuer \"{name}\"");
                    return Err(Problem::says(text));
                }
                SignerSource::Local(life)
            }
            (Some(_), Some(_)) => {
                let text = format!("\"uri\" and \"local_authority\" exclude each other in issuer \"{name}\"");
                return Err(Problem::says(text));
            }
            (None, None) => return Err(Problem::says(format!("\"uri\" is missing in issuer \"{name}\""))),
        };
        let is_dns = self.challenge == ChallengeKind::Dns01;
        if is_dns != self.provider.is_some() || (self.propagation.is_some() && !is_dns) {
            let text =
                format!("\"challenge dns-01\" and \"dns_hook\" or \"dns_update\" need each other in issuer \"{name}\"");
            return Err(Problem::says(text));
        }
        let propagation = self.propagation.unwrap_or_default();
        let dns = self.provider.map(|provider| Arc::new(Records { provider, propagation }));
        let mut settings =
            ClientSettings { prefix: "ssl", verify_depth: VERIFY_DEPTH, addresses: true, ..ClientSettings::default() };
        if !self.skip_verification && matches!(&source, SignerSource::Server(url) if url.tls) {
            settings.verify = true;
            settings.trusted = authorities::trusted_certificates(cx, self.trusted, &format!("issuer \"{name}\""))?;
        }
        let rules = ClientRules::build(&settings, &tls_directives::wall_clock(), &mut Vec::new());
        let slot = cx.get::<StoreSlot>().clone();
        let share = |key: Option<Vec<u8>>| Arc::new(SharedIssuer::new(slot, name, &source.to_string(), key.as_deref()));
        let shared = self.sync.map(share);
        let state_path = match self.state_path {
            Some(path) => path,
            None => Some(cx.full_name(&format!("acme_{name}"))),
        };
        Ok(Issuer {
            name: name.to_string(),
            source,
            fallbacks: self.fallbacks,
            key: self.key.unwrap_or(KeySource::Generated(Algorithm::default())),
            account: self.account,
            challenge: self.challenge,
            dns,
            profile: self.profile,
            preferred_chain: self.preferred_chain,
            common_name: self.common_name,
            state_path,
            rules: rules.map_err(Problem::says)?,
            limits: Limits::default(),
            timing: None,
            shared,
        })
    }
}

/// Reads a file, which the workers' user need not be allowed to.
fn read(cx: &mut Cx, file: &Path) -> Result<Arc<[u8]>, String> {
    let found = cx.store.read(file).map_err(|e| e.to_string())?;
    if found.len() > KEY_BYTES_MAX { Err("it is no file of a key".into()) } else { Ok(found) }
}

fn account_key(cx: &mut Cx, text: &str) -> Result<KeySource, String> {
    if let Some(algorithm) = Algorithm::parse(text) {
        return algorithm.map(KeySource::Generated);
    }
    let file = cx.conf_full_name(text);
    let key = read(cx, &file).and_then(|pem| AccountKey::load(&pem));
    let key = key.map_err(|why| format!("cannot load certificate key \"{}\": {why}", file.display()))?;
    Ok(KeySource::Loaded(Arc::new(key)))
}

/// The secret of an external account, from a file or from `data:`.
fn secret(cx: &mut Cx, source: &str) -> Result<Vec<u8>, String> {
    let text = match source.strip_prefix("data:") {
        Some(text) => text.as_bytes().to_vec(),
        None => {
            let file = cx.conf_full_name(source);
            let text = read(cx, &file).map(|text| text.to_vec());
            text.map_err(|why| format!("cannot load external account key \"{}\": {why}", file.display()))?
        }
    };
    decode_secret(text.trim_ascii()).ok_or_else(|| "the external account key is not base64url".into())
}

/// Decodes a secret in base64url, with padding or without.
pub fn decode_secret(text: &[u8]) -> Option<Vec<u8>> {
    let bare = text.iter().rposition(|c| *c != b'=').map_or(0, |last| last + 1);
    let decoded = URL_SAFE_NO_PAD.decode(text.get(..bare).unwrap_or_default());
    decoded.ok().filter(|key| !key.is_empty())
}
