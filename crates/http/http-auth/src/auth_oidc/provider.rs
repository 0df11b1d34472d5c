//! `oidc_provider`: an OpenID Provider, and this server as its client.

use super::secrets::{ProviderSecrets, TextSecret};
use super::state::State;
use area::keyval as zones;
use area::keyval::Keyval;
use area::shared_secret::read_key_text;
use conf_schema::value::parse_msec;
use conf_schema::{Complaint, ComplaintLevel, Cx, Directive, Problem, ValueKind};
use conf_syntax::Directive as Row;
use http_client::Url;
use http_engine::HttpArea;
use keyval::KeyMatch;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tls::{ClientRules, ClientSettings};
use tls_directives::authorities;

/// Bytes of the zone that keeps the sessions of a provider without `session_store`.
const DEFAULT_STORE_BYTES: u64 = 8 << 20;
/// Certificates between a server's and its authority's.
const VERIFY_DEPTH: u32 = 10;

/// See the module's documentation.
pub struct Provider {
    pub name: String,
    pub issuer: String,
    pub config_url: Url,
    pub client_id: String,
    pub client_secret: Option<String>,
    pub cookie_name: String,
    /// Query arguments of the authentication request, as written.
    pub extra_auth_args: Option<String>,
    /// `None`: by the provider's metadata.
    pub pkce: Option<bool>,
    pub redirect: RedirectTarget,
    pub logout_path: Option<Vec<u8>>,
    pub post_logout: Option<String>,
    pub frontchannel_path: Option<Vec<u8>>,
    pub backchannel_path: Option<Vec<u8>>,
    pub logout_token_hint: bool,
    pub scope: String,
    /// Milliseconds.
    pub session_timeout: u64,
    pub userinfo: bool,
    /// `None`: the provider is reached without TLS, on this machine.
    pub rules: Option<Arc<ClientRules>>,
    /// `session_store`; `None`: the default.
    store_name: Option<String>,
    store: OnceLock<Arc<Keyval>>,
    session_key: Option<Vec<u8>>,
    /// With `session_key`, or if the store is shared: sessions are sealed, and logins may return to another server.
    secrets: OnceLock<ProviderSecrets>,
    pub state: Arc<State>,
}

/// `redirect_uri`
pub struct RedirectTarget {
    pub path: Vec<u8>,
    /// Scheme and authority, if they are configured.
    pub origin: Option<String>,
}

impl Provider {
    pub fn store(&self) -> Option<&Arc<Keyval>> {
        self.store.get()
    }
    /// Returns the secret that seals sessions; `None`: they are stored as they are.
    pub fn session_secret(&self) -> Option<&TextSecret> {
        self.secrets.get().map(|secrets| &secrets.sessions)
    }
    pub fn login_secret(&self) -> &TextSecret {
        self.secrets.get().map_or(&self.state.logins, |secrets| &secrets.logins)
    }
    /// Derives the secrets from `session_key`, or from `client_secret` for a shared store.
    fn derive_secrets(&self) -> Result<(), Problem> {
        let is_shared = self.store().is_some_and(|store| store.has_sync());
        let name = &self.name;
        let configured = match (&self.session_key, &self.client_secret) {
            (Some(key), _) => key.as_slice(),
            (None, _) if !is_shared => return Ok(()),
            (None, Some(secret)) => secret.as_bytes(),
            (None, None) => {
                let text = format!(
                    "oidc_provider \"{name}\" shares its sessions with other servers, and has no secret to encrypt them"
                );
                let hint = "add \"session_key FILE\": the same random characters on all servers, at least 32";
                return Err(Problem::says(text).hint(hint).of("oidc_provider"));
            }
        };
        let derived = ProviderSecrets::derived(configured, &[name, &self.issuer, &self.client_id]);
        let failed = || Problem::says(format!("no keys for the sessions of oidc_provider \"{name}\""));
        let _ = self.secrets.set(derived.ok_or_else(failed)?);
        Ok(())
    }
    /// Tells whether a path is one of the provider's answers.
    pub fn answers(&self, path: &[u8]) -> bool {
        let is = |own: &Option<Vec<u8>>| own.as_deref() == Some(path);
        let by_provider = is(&self.frontchannel_path) || is(&self.backchannel_path);
        self.redirect.path == path || is(&self.logout_path) || by_provider
    }
}

/// The providers of a configuration by name; kept in `Cx`.
#[derive(Default)]
pub struct Providers(pub BTreeMap<String, Arc<Provider>>);

impl Providers {
    /// Connects the providers with their session stores, after the whole configuration was read.
    ///
    /// # Errors
    /// A store that is not declared, or not of the type `string`; a shared store without a secret.
    pub fn connect(cx: &mut Cx) -> Result<(), Problem> {
        let all: Vec<Arc<Provider>> = cx.get::<Providers>().0.values().cloned().collect();
        for provider in all {
            let Some(name) = &provider.store_name else {
                provider.derive_secrets()?;
                continue;
            };
            let found = zones::find_zone::<HttpArea>(cx, name).map_err(|p| p.of("oidc_provider"))?;
            if found.zone.matching() != KeyMatch::String {
                let text = format!("session_store \"{name}\" is a keyval_zone of another type than \"string\"");
                return Err(Problem::says(text).of("oidc_provider"));
            }
            if found.state.is_some() && found.timeout.is_none() {
                let text = format!(
                    "sessions that keyval_zone \"{name}\" reads from its state file have no time of expiry there"
                );
                let hint = Some("write a time such as timeout=8h".into());
                cx.warnings.push(Complaint { level: ComplaintLevel::Warn, text, span: None, line: 0, hint });
            }
            let _ = provider.store.set(found);
            provider.derive_secrets()?;
        }
        Ok(())
    }
}

/// `oidc_provider name { ... }`; the providers are found by their names.
#[derive(Clone)]
pub struct ProviderBlocks;

impl ValueKind for ProviderBlocks {
    const SYNTAX: &'static str = "name { ... }";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
        if name.is_empty() || name == "off" || !name.bytes().all(plain) {
            return Err(Problem::says(format!("invalid provider name \"{name}\"")).at(0));
        }
        if cx.get::<Providers>().0.contains_key(&name) {
            return Err(Problem::says(format!("duplicate provider name \"{name}\"")).at(0));
        }
        let mut draft = ProviderDraft::default();
        for row in conf_syntax::list_directives(d.block.as_deref().unwrap_or_default()) {
            draft.row(cx, row).map_err(|problem| problem.on(row))?;
        }
        let provider = draft.finish(cx, d, &name)?;
        cx.get::<Providers>().0.insert(name, Arc::new(provider));
        Ok(ProviderBlocks)
    }
}

/// A block while it is read.
#[derive(Default)]
struct ProviderDraft {
    seen: Vec<Vec<u8>>,
    issuer: Option<String>,
    config_url: Option<Url>,
    client_id: Option<String>,
    client_secret: Option<String>,
    cookie_name: Option<String>,
    extra_auth_args: Option<String>,
    pkce: Option<bool>,
    redirect: Option<RedirectTarget>,
    logout_path: Option<Vec<u8>>,
    post_logout: Option<String>,
    frontchannel_path: Option<Vec<u8>>,
    backchannel_path: Option<Vec<u8>>,
    logout_token_hint: bool,
    scope: Option<String>,
    session_key: Option<Vec<u8>>,
    store: Option<String>,
    timeout: Option<u64>,
    userinfo: bool,
    crl: Option<String>,
    trusted: Option<PathBuf>,
}

/// Parses a URL of a provider: `https`, or `http` within this machine.
fn provider_url(text: &str) -> Result<Url, Problem> {
    let url = Url::parse(text).map_err(|why| Problem::says(format!("{why} in \"{text}\"")).at(0))?;
    let local = url.host == "localhost" || url.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if !url.tls && !local {
        return Err(Problem::says(format!("\"{text}\" is no \"https\" URL"))
            .at(0)
            .hint("\"http\" is for providers on a loopback address"));
    }
    Ok(url)
}

fn path(text: &str) -> Result<Vec<u8>, Problem> {
    let plain = |c: u8| c.is_ascii_graphic() && !b"?#%\\\"".contains(&c);
    if !text.starts_with('/') || text.starts_with("//") || !text.bytes().all(plain) {
        let problem = Problem::says(format!("invalid URI \"{text}\"")).at(0);
        return Err(problem.hint("a path of this server, which begins with \"/\" and has no query"));
    }
    Ok(text.as_bytes().to_vec())
}

fn redirect(text: &str) -> Result<RedirectTarget, Problem> {
    if text.starts_with('/') {
        return Ok(RedirectTarget { path: path(text)?, origin: None });
    }
    let url = Url::parse(text).map_err(|why| Problem::says(format!("{why} in \"{text}\"")).at(0))?;
    if !url.tls {
        return Err(Problem::says(format!("\"{text}\" is neither a path nor an \"https\" URL")).at(0));
    }
    Ok(RedirectTarget { path: path(&url.target)?, origin: Some(format!("https://{}", url.authority())) })
}

/// Reads the secret of a file, without white space at its ends.
fn session_key(cx: &mut Cx, file: &str) -> Result<Vec<u8>, String> {
    let path = cx.conf_full_name(file);
    let failed = |why: &dyn std::fmt::Display| format!("cannot load session key \"{}\": {why}", path.display());
    let bytes = cx.store.read(&path).map_err(|e| failed(&e))?;
    read_key_text(&bytes).map_err(|why| failed(&why))
}

/// Refuses characters that would end a header field or an argument.
fn graphic(text: &str, excluded: &[u8]) -> Result<String, Problem> {
    if text.is_empty() || !text.bytes().all(|c| c.is_ascii_graphic() && !excluded.contains(&c)) {
        return Err(Problem::says(format!("invalid value \"{text}\"")).at(0));
    }
    Ok(text.to_string())
}

impl ProviderDraft {
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
            (b"issuer", [text]) => {
                if text.contains(['?', '#']) {
                    return Err(Problem::says(format!("issuer \"{text}\" has a query or a fragment")).at(0));
                }
                provider_url(text)?;
                self.issuer = Some(text.to_string());
            }
            (b"client_id", [text]) => self.client_id = Some(graphic(text, b"")?),
            (b"client_secret", [text]) if !text.is_empty() => self.client_secret = Some(text.to_string()),
            (b"config_url", [text]) => self.config_url = Some(provider_url(text)?),
            (b"cookie_name", [text]) => self.cookie_name = Some(graphic(text, b"()<>@,;:\\\"/[]?={}")?),
            (b"extra_auth_args", [text]) => self.extra_auth_args = Some(graphic(text, b"#\"<>")?),
            (b"pkce", [word]) => self.pkce = Some(switch(word)?),
            (b"redirect_uri", [text]) => self.redirect = Some(redirect(text)?),
            (b"logout_uri", [text]) => self.logout_path = Some(path(text)?),
            (b"post_logout_uri", [text]) => {
                match text.starts_with('/') {
                    true => drop(path(text)?),
                    false => drop(Url::parse(text).map_err(|why| Problem::says(format!("{why} in \"{text}\"")).at(0))?),
                }
                self.post_logout = Some(text.to_string());
            }
            (b"frontchannel_logout_uri", [text]) => self.frontchannel_path = Some(path(text)?),
            (b"backchannel_logout_uri", [text]) => self.backchannel_path = Some(path(text)?),
            (b"logout_token_hint", [word]) => self.logout_token_hint = switch(word)?,
            (b"scope", [_, ..]) => {
                for (index, word) in words.iter().enumerate() {
                    graphic(word, b"\"\\").map_err(|problem| problem.at(index))?;
                }
                // Without it the provider would not answer with an ID token.
                let own = if words.contains(&"openid") { "" } else { "openid " };
                self.scope = Some(format!("{own}{}", words.join(" ")));
            }
            (b"session_key", [file]) => {
                self.session_key = Some(session_key(cx, file).map_err(|why| Problem::says(why).at(0))?);
            }
            (b"session_store", [text]) if !text.is_empty() => self.store = Some(text.to_string()),
            (b"session_timeout", [text]) => {
                let time = parse_msec(text.as_bytes()).filter(|time| *time > 0);
                let wrong = || Problem::says(format!("\"session_timeout\" directive invalid value \"{text}\"")).at(0);
                self.timeout = Some(time.ok_or_else(wrong)?);
            }
            (b"userinfo", [word]) => self.userinfo = switch(word)?,
            (b"ssl_crl", [file]) => self.crl = Some(file.to_string()),
            (b"ssl_trusted_certificate", [file]) => self.trusted = Some(cx.conf_full_name(file)),
            (
                b"issuer"
                | b"client_id"
                | b"client_secret"
                | b"config_url"
                | b"cookie_name"
                | b"extra_auth_args"
                | b"pkce"
                | b"redirect_uri"
                | b"logout_uri"
                | b"post_logout_uri"
                | b"frontchannel_logout_uri"
                | b"backchannel_logout_uri"
                | b"logout_token_hint"
                | b"scope"
                | b"session_key"
                | b"session_store"
                | b"session_timeout"
                | b"userinfo"
                | b"ssl_crl"
                | b"ssl_trusted_certificate",
                _,
            ) => {
                return Err(Problem::says(format!("invalid number of arguments in \"{}\" directive", row.name.text())));
            }
            _ => return Err(Problem::says(format!("unknown directive \"{}\"", row.name.text()))),
        }
        Ok(())
    }

    fn finish(self, cx: &mut Cx, d: &Directive, name: &str) -> Result<Provider, Problem> {
        let missing = |what: &str| Problem::says(format!("\"{what}\" is missing in oidc_provider \"{name}\""));
        let issuer = self.issuer.ok_or_else(|| missing("issuer"))?;
        let client_id = self.client_id.ok_or_else(|| missing("client_id"))?;
        let config_url = match self.config_url {
            Some(url) => url,
            None => provider_url(&format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/')))?,
        };
        let local = config_url.tls || provider_url(&issuer)?.tls;
        let rules = match local {
            false => None,
            true => {
                let mut settings = ClientSettings {
                    prefix: "ssl",
                    verify: true,
                    verify_depth: VERIFY_DEPTH,
                    addresses: true,
                    ..ClientSettings::default()
                };
                settings.trusted =
                    authorities::trusted_certificates(cx, self.trusted, &format!("oidc_provider \"{name}\""))?;
                if let Some(file) = &self.crl {
                    settings.revocations = tls_directives::load_crls(cx, file)?;
                }
                let rules = ClientRules::build(&settings, &tls_directives::wall_clock(), &mut Vec::new());
                Some(rules.map_err(Problem::says)?)
            }
        };
        let store = OnceLock::new();
        if self.store.is_none() {
            let own =
                zones::declare_zone::<HttpArea>(cx, d, &format!("oidc_default_store_{name}"), DEFAULT_STORE_BYTES)?;
            let _ = store.set(own);
        }
        let state = State::of(name, &[&issuer, &config_url.to_string(), &client_id]);
        Ok(Provider {
            name: name.to_string(),
            issuer,
            config_url,
            client_id,
            client_secret: self.client_secret,
            cookie_name: self.cookie_name.unwrap_or_else(|| "NGX_OIDC_SESSION".into()),
            extra_auth_args: self.extra_auth_args,
            pkce: self.pkce,
            redirect: self
                .redirect
                .unwrap_or_else(|| RedirectTarget { path: b"/oidc_callback".to_vec(), origin: None }),
            logout_path: self.logout_path,
            post_logout: self.post_logout,
            frontchannel_path: self.frontchannel_path,
            backchannel_path: self.backchannel_path,
            logout_token_hint: self.logout_token_hint,
            scope: self.scope.unwrap_or_else(|| "openid".into()),
            session_timeout: self.timeout.unwrap_or(8 * 3600 * 1000),
            userinfo: self.userinfo,
            rules,
            store_name: self.store,
            store,
            session_key: self.session_key,
            secrets: OnceLock::new(),
            state,
        })
    }
}
