//! The provider's metadata (OpenID Connect Discovery 1.0) and key set. They are fetched when a login or a token first needs them,
//! once for all requests that wait, and again in the background when they have become old.

use super::provider::Provider;
use super::state::FetchedState;
use http_client::{Client, Limits, Request, Response, Settings, Url};
use jose::KeySet;
use resolver::ResolveRules;
use runtime::task::spawn_local;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// Milliseconds after which metadata and keys are fetched again, while the present ones serve.
const OLD_MILLIS: u64 = 3_600_000;
/// Milliseconds after which keys that cannot be fetched again do not serve any more.
const KEYS_LIFE_MILLIS: u64 = 24 * OLD_MILLIS;
/// Milliseconds after a failed fetch in which others fail without a try.
const FAILURE_MILLIS: u64 = 3_000;
/// Keys are fetched again for an unknown key, at most once in this time.
const REFETCH_MILLIS: u64 = 10_000;
/// Octets of metadata, and of a token response or user information.
const METADATA_BYTES_MAX: usize = 256 * 1024;
pub const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Time to connect, and for a whole request.
const CONNECT: Duration = Duration::from_secs(5);
const TOTAL: Duration = Duration::from_secs(15);

/// The reason why a provider's part of a login failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderFailure {
    /// The provider cannot be reached or is out of order: 503.
    Unavailable(String),
    /// The provider or the user refuses: 403.
    Refused(String),
    /// An answer that must not be trusted, or a client that is configured wrong: 500.
    Invalid(String),
}

impl ProviderFailure {
    pub fn status(&self) -> u16 {
        match self {
            ProviderFailure::Unavailable(_) => 503,
            ProviderFailure::Refused(_) => 403,
            ProviderFailure::Invalid(_) => 500,
        }
    }
}

impl std::fmt::Display for ProviderFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProviderFailure::Unavailable(why) | ProviderFailure::Refused(why) | ProviderFailure::Invalid(why) => {
                f.write_str(why)
            }
        }
    }
}

pub fn invalid_metadata<T>(why: impl Into<String>) -> Result<T, ProviderFailure> {
    Err(ProviderFailure::Invalid(why.into()))
}

/// The parts of the metadata that a client needs.
#[derive(Debug)]
pub struct Metadata {
    pub authorization: Url,
    pub token: Url,
    pub keys: Url,
    pub userinfo: Option<Url>,
    pub end_session: Option<Url>,
    /// The token endpoint takes `client_secret_post` and not `client_secret_basic`.
    pub secret_in_body: bool,
    /// PKCE with SHA-256 is announced.
    pub pkce: bool,
    /// Authentication responses have `iss` (RFC 9207).
    pub names_issuer: bool,
}

impl Metadata {
    fn parse(text: &[u8], issuer: &str) -> Result<Metadata, String> {
        let all: Value = serde_json::from_slice(text).map_err(|e| format!("metadata are no JSON: {e}"))?;
        let own = all.get("issuer").and_then(Value::as_str).unwrap_or_default();
        if own != issuer {
            return Err(format!("metadata of issuer \"{own}\" instead of \"{issuer}\""));
        }
        let secure = issuer.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
        let endpoint = |name: &str| match all.get(name).and_then(Value::as_str) {
            None => Ok(None),
            Some(text) => match Url::parse(text) {
                Ok(url) if url.tls || !secure => Ok(Some(url)),
                Ok(_) => Err(format!("\"{name}\" is no \"https\" URL")),
                Err(why) => Err(format!("invalid \"{name}\": {why}")),
            },
        };
        let needed = |name: &str| endpoint(name)?.ok_or_else(|| format!("metadata have no \"{name}\""));
        let lists = |name: &str, word: &str| {
            all.get(name).and_then(Value::as_array).is_some_and(|list| list.iter().any(|one| one == word))
        };
        let methods = "token_endpoint_auth_methods_supported";
        Ok(Metadata {
            authorization: needed("authorization_endpoint")?,
            token: needed("token_endpoint")?,
            keys: needed("jwks_uri")?,
            userinfo: endpoint("userinfo_endpoint")?,
            end_session: endpoint("end_session_endpoint")?,
            secret_in_body: lists(methods, "client_secret_post") && !lists(methods, "client_secret_basic"),
            pkce: lists("code_challenge_methods_supported", "S256"),
            names_issuer: all.get("authorization_response_iss_parameter_supported") == Some(&Value::Bool(true)),
        })
    }
}

fn interrupted<T>() -> Result<T, ProviderFailure> {
    Err(ProviderFailure::Unavailable("the fetch was interrupted".into()))
}

fn millis() -> u64 {
    base::clock::update();
    base::clock::now().0 / 1000
}

impl Provider {
    /// Returns a client for one or more requests to the provider.
    pub fn client(&self, resolving: Option<ResolveRules>, body: usize) -> Client {
        Client::new(Settings {
            resolver: resolving.map(|ResolveRules { resolver, timeout }| (resolver, timeout)),
            rules: self.rules.clone(),
            connect: CONNECT,
            total: TOTAL,
            limits: Limits { body, ..Limits::default() },
        })
    }

    async fn get(&self, resolving: Option<ResolveRules>, url: &Url, body: usize) -> Result<Response, ProviderFailure> {
        let request = Request::new("GET", url.clone()).field("Accept", "application/json");
        let request = request.map_err(|_| ProviderFailure::Invalid("an invalid field".into()))?;
        let asked = self.client(resolving, body).ask(&request).await;
        match asked {
            Ok(response) if response.status() == 200 => Ok(response),
            Ok(response) => Err(ProviderFailure::Unavailable(format!("status {} of {url}", response.status()))),
            Err(why) => Err(ProviderFailure::Unavailable(format!("{why} while asking {url}"))),
        }
    }

    /// Returns the metadata that are at hand.
    pub fn known_metadata(&self) -> Option<Arc<Metadata>> {
        self.state.metadata.load().as_ref().map(|known| known.thing.clone())
    }

    /// Returns the metadata, fetched if necessary. Old ones serve while new ones are fetched.
    ///
    /// # Errors
    /// See [`ProviderFailure`].
    pub async fn metadata(self: &Arc<Self>, resolving: Option<ResolveRules>) -> Result<Arc<Metadata>, ProviderFailure> {
        let began = millis();
        let known = self.state.metadata.load_full();
        let turn = match &known {
            Some(known) if began.saturating_sub(known.at) <= OLD_MILLIS => return Ok(known.thing.clone()),
            // One fetch renews it for all.
            Some(known) => match self.state.turn.clone().try_lock_owned() {
                Ok(turn) => turn,
                Err(_) => return Ok(known.thing.clone()),
            },
            None => self.state.turn.clone().lock_owned().await,
        };
        let provider = self.clone();
        let fetch = spawn_local(async move { provider.fetch_metadata(resolving, began, turn).await });
        match known {
            Some(known) => {
                drop(fetch);
                Ok(known.thing.clone())
            }
            None => fetch.await.unwrap_or_else(|_| interrupted()),
        }
    }

    fn may_try(&self) -> Result<(), ProviderFailure> {
        let failed = self.state.failed.load(Ordering::Relaxed);
        let wait = failed.saturating_add(FAILURE_MILLIS).saturating_sub(millis());
        if failed > 0 && wait > 0 {
            let text =
                format!("the last request to the provider failed, the next one follows in {wait} ms at the earliest");
            return Err(ProviderFailure::Unavailable(text));
        }
        Ok(())
    }
    fn note_failure(&self, trouble: ProviderFailure) -> ProviderFailure {
        self.state.failed.store(millis().max(1), Ordering::Relaxed);
        trouble
    }

    /// Runs in a task of its own: its client may leave while others wait for the `turn`.
    async fn fetch_metadata(
        &self,
        resolving: Option<ResolveRules>,
        began: u64,
        _turn: OwnedMutexGuard<()>,
    ) -> Result<Arc<Metadata>, ProviderFailure> {
        if let Some(known) = self.state.metadata.load().as_ref().filter(|known| known.at >= began) {
            return Ok(known.thing.clone());
        }
        self.may_try()?;
        let response = self.get(resolving, &self.config_url, METADATA_BYTES_MAX).await;
        let response = response.map_err(|why| self.note_failure(why))?;
        let parsed = Metadata::parse(&response.body, &self.issuer);
        let metadata = Arc::new(parsed.map_err(|why| self.note_failure(ProviderFailure::Invalid(why)))?);
        self.state.metadata.store(Some(Arc::new(FetchedState { thing: metadata.clone(), at: millis() })));
        Ok(metadata)
    }

    /// Returns the key set; an old one serves while a new one is fetched. `anew`: for a token whose key is not in the present set;
    /// `Ok(None)` if it was fetched within [`REFETCH_MILLIS`].
    ///
    /// # Errors
    /// See [`ProviderFailure`].
    pub async fn keys(
        self: &Arc<Self>,
        resolving: Option<ResolveRules>,
        metadata: &Metadata,
        anew: bool,
    ) -> Result<Option<Arc<KeySet>>, ProviderFailure> {
        let now = millis();
        let known = self.state.keys.load_full().filter(|known| now.saturating_sub(known.at) <= KEYS_LIFE_MILLIS);
        let known = known.filter(|_| !anew);
        let turn = match &known {
            Some(known) if now.saturating_sub(known.at) <= OLD_MILLIS => return Ok(Some(known.thing.clone())),
            Some(known) => match self.state.turn.clone().try_lock_owned() {
                Ok(turn) => turn,
                Err(_) => return Ok(Some(known.thing.clone())),
            },
            None => match self.state.turn.clone().try_lock_owned() {
                Ok(turn) if anew => {
                    let last = self.state.doubted.load(Ordering::Relaxed);
                    if last > 0 && now < last.saturating_add(REFETCH_MILLIS) {
                        return Ok(None);
                    }
                    self.state.doubted.store(now, Ordering::Relaxed);
                    turn
                }
                Ok(turn) => turn,
                // A fetch under way serves all tokens that need it.
                Err(_) => self.state.turn.clone().lock_owned().await,
            },
        };
        let (provider, url) = (self.clone(), metadata.keys.clone());
        let fetch = spawn_local(async move { provider.fetch_keys(resolving, &url, now, turn).await });
        match known {
            Some(known) => {
                drop(fetch);
                Ok(Some(known.thing.clone()))
            }
            None => fetch.await.unwrap_or_else(|_| interrupted()).map(Some),
        }
    }

    /// Runs in a task of its own, as [`Provider::fetch_metadata`].
    async fn fetch_keys(
        &self,
        resolving: Option<ResolveRules>,
        url: &Url,
        began: u64,
        _turn: OwnedMutexGuard<()>,
    ) -> Result<Arc<KeySet>, ProviderFailure> {
        if let Some(known) = self.state.keys.load().as_ref().filter(|known| known.at >= began) {
            return Ok(known.thing.clone());
        }
        self.may_try()?;
        let response = self.get(resolving, url, jose::key::KEY_SET_BYTES_MAX).await;
        let response = response.map_err(|why| self.note_failure(why))?;
        let set = KeySet::parse(&response.body);
        let set = Arc::new(set.map_err(|why| self.note_failure(ProviderFailure::Invalid(format!("{why} of {url}"))))?);
        self.state.keys.store(Some(Arc::new(FetchedState { thing: set.clone(), at: millis() })));
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_are_of_their_issuer_and_secure() {
        let text = |issuer: &str, scheme: &str, more: &str| {
            format!(
                r#"{{"issuer":"{issuer}","authorization_endpoint":"{scheme}://a/b","token_endpoint":"{scheme}://a/c",
                "jwks_uri":"{scheme}://a/d"{more}}}"#
            )
        };
        let parse = |text: String, issuer: &str| Metadata::parse(text.as_bytes(), issuer);
        let plain = parse(text("https://a", "https", ""), "https://a").expect("valid");
        assert!(!plain.pkce && !plain.secret_in_body && !plain.names_issuer && plain.end_session.is_none());
        let more = r#","code_challenge_methods_supported":["plain","S256"],
            "token_endpoint_auth_methods_supported":["client_secret_post"],
            "authorization_response_iss_parameter_supported":true,"end_session_endpoint":"https://a/e""#;
        let full = parse(text("https://a", "https", more), "https://a").expect("valid");
        assert!(full.pkce && full.secret_in_body && full.names_issuer && full.end_session.is_some());
        for (document, issuer) in [
            (text("https://a/", "https", ""), "https://a"),
            (text("https://b", "https", ""), "https://a"),
            (text("https://a", "http", ""), "https://a"),
            (text("https://a", "https", r#","end_session_endpoint":"javascript:x""#), "https://a"),
            (String::from(r#"{"issuer":"https://a"}"#), "https://a"),
            (String::from("<html>"), "https://a"),
            (String::from("[]"), "https://a"),
        ] {
            assert!(parse(document.clone(), issuer).is_err(), "{document}");
        }
        assert!(parse(text("http://127.0.0.1:1", "http", ""), "http://127.0.0.1:1").is_ok());
    }
}
