//! Requests to one server: directory, nonces, account, orders.

use crate::certificate::{self, IssuedChain};
use crate::error::Error;
use crate::identifier::Identifier;
use crate::jws;
use crate::key::{AccountKey, Algorithm};
use crate::messages::{AccountState, Authorization, Challenge, Directory, OrderState, Problem, RenewalInfo, shown};
use crate::renewal::{self, RenewalWindow};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_client::{Client, Request, Response, Url};
use runtime::time::sleep_for;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Redirects that a request without a signature follows.
const REDIRECTS_MAX: usize = 10;
/// Network errors and rate limits after which a signed request fails.
const TRIES_MAX: usize = 4;
/// Refused nonces after which a signed request fails. Each refusal carries a new nonce, which is tried at once.
const NONCE_TRIES_MAX: usize = 16;
/// Longer delays requested by a server end the order.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Intervals between polls of a state: the first, and the longest that the server does not request.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// Looks at an authorization or an order; with their pauses about a minute and a half, or a quarter of an hour if the server requests
/// long ones.
const LOOKS_MAX: usize = 15;
/// Unused nonces that are kept.
const NONCES_MAX: usize = 8;
/// Authorizations of an order: an authority limits identifiers to 100.
const AUTHORIZATIONS_MAX: usize = 1000;
/// Other chains that are looked at for the preferred one.
const ALTERNATES_MAX: usize = 10;

/// A kind of challenge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChallengeKind {
    #[default]
    Http01,
    TlsAlpn01,
    Dns01,
}

impl ChallengeKind {
    /// Parses a name, with or without its version.
    pub fn parse(text: &str) -> Option<ChallengeKind> {
        match text {
            "http" | "http-01" => Some(ChallengeKind::Http01),
            "tls-alpn" | "tls-alpn-01" => Some(ChallengeKind::TlsAlpn01),
            "dns" | "dns-01" => Some(ChallengeKind::Dns01),
            _ => None,
        }
    }
    pub fn name(self) -> &'static str {
        match self {
            ChallengeKind::Http01 => "http-01",
            ChallengeKind::TlsAlpn01 => "tls-alpn-01",
            ChallengeKind::Dns01 => "dns-01",
        }
    }
}

/// Work of a [`Solver`].
pub type SessionWork<T> = Pin<Box<dyn Future<Output = T>>>;

/// Makes challenges answerable.
pub trait Solver {
    /// Answers from the future's end on.
    ///
    /// # Errors
    /// A description; the order fails.
    fn present(&self, identifier: &Identifier, token: &str, authorization: &str) -> SessionWork<Result<(), String>>;
    /// Stops answering.
    fn remove(&self, identifier: &Identifier, token: &str, authorization: &str) -> SessionWork<()>;
}

/// Ends an answer when the wait for it ends, whatever the reason.
struct PresentedChallenge<'a> {
    solver: &'a dyn Solver,
    identifier: &'a Identifier,
    token: &'a str,
    authorization: &'a str,
    ended: bool,
}

impl PresentedChallenge<'_> {
    async fn end(mut self) {
        self.ended = true;
        self.solver.remove(self.identifier, self.token, self.authorization).await;
    }
}

impl Drop for PresentedChallenge<'_> {
    fn drop(&mut self) {
        if !self.ended {
            drop(runtime::task::spawn_local(self.solver.remove(self.identifier, self.token, self.authorization)));
        }
    }
}

/// An external account: key identifier and secret (RFC 8555, section 7.3.4).
#[derive(Clone)]
pub struct Binding {
    pub id: String,
    pub secret: Vec<u8>,
    pub digest: BindingDigest,
}

/// The digest of a binding's signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BindingDigest {
    #[default]
    Sha256,
    Sha384,
    Sha512,
}

/// A certificate profile; `required`: an order without it fails.
#[derive(Clone, Debug)]
pub struct Profile {
    pub name: String,
    pub required: bool,
}

/// Everything that a server must know of an account.
#[derive(Clone, Default)]
pub struct AcmeAccount {
    /// URLs, with their schemes.
    pub contacts: Vec<String>,
    pub agreed: bool,
    pub binding: Option<Binding>,
}

/// An order.
#[derive(Clone, Debug)]
pub struct AcmeOrder {
    pub identifiers: Vec<Identifier>,
    pub key: Algorithm,
    pub challenge: ChallengeKind,
    pub profile: Option<Profile>,
    pub common_name: bool,
    /// Common name of the issuer of the topmost certificate.
    pub preferred_chain: Option<String>,
    /// Identifier of the certificate that the new one replaces (RFC 9773, section 5).
    pub replaces: Option<String>,
}

/// Requests to one server with one account.
pub struct AcmeSession {
    http: Client,
    url: Url,
    key: Arc<AccountKey>,
    directory: Option<Directory>,
    nonces: Vec<String>,
    account: Option<String>,
}

fn json_of<T: DeserializeOwned>(response: &Response) -> Result<T, Error> {
    serde_json::from_slice(&response.body).map_err(|e| Error::Protocol(format!("invalid JSON of the server: {e}")))
}

fn url(text: &str) -> Result<Url, Error> {
    Url::parse(text).map_err(|why| Error::Protocol(format!("invalid URL of the server: {why}")))
}

/// `Retry-After` in seconds, or as a date, which is compared with the server's own clock (RFC 9110, section 10.2.3).
fn retry_after(response: &Response) -> Option<Duration> {
    waiting_time(response.text("retry-after")?, response.text("date"))
}

fn waiting_time(after: &str, date: Option<&str>) -> Option<Duration> {
    if let Ok(seconds) = after.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let seconds = |text: &str| chrono::DateTime::parse_from_rfc2822(text.trim()).ok().map(|time| time.timestamp());
    let wait = seconds(after)?.saturating_sub(seconds(date?)?);
    Some(Duration::from_secs(u64::try_from(wait).unwrap_or(0)))
}

/// Returns the pause before the next look at a state: the server's, or a longer one than the last.
fn next_pause(response: &Response, last: Duration) -> Duration {
    let own = (last * 2).clamp(PAUSE, PAUSE_MAX);
    retry_after(response).map_or(own, |asked| asked.clamp(PAUSE, WAIT_MAX))
}

fn refusal(response: &Response) -> Error {
    match serde_json::from_slice::<Problem>(&response.body) {
        Ok(problem) if !problem.kind.is_empty() => Error::Refused { problem, after: retry_after(response) },
        _ => Error::Status(response.status(), retry_after(response)),
    }
}

fn succeeded(response: &Response) -> bool {
    (200..300).contains(&response.status())
}

impl AcmeSession {
    /// `url`: of the directory. `account`: the account's URL, if it is known.
    pub fn new(http: Client, url: Url, key: Arc<AccountKey>, account: Option<String>) -> AcmeSession {
        AcmeSession { http, url, key, directory: None, nonces: Vec::new(), account }
    }

    /// Returns the account's URL, once it is known.
    pub fn account(&self) -> Option<&str> {
        self.account.as_deref()
    }

    /// Sets the account's URL, which another session has found.
    pub fn use_account(&mut self, url: Option<String>) {
        self.account = url;
    }

    /// Returns the URL of the terms of service.
    pub fn terms(&self) -> Option<&str> {
        self.directory.as_ref()?.meta.terms_of_service.as_deref()
    }

    async fn get(&mut self, from: &Url) -> Result<Response, Error> {
        let mut from = from.clone();
        for _ in 0..REDIRECTS_MAX {
            let request = Request::new("GET", from.clone()).field("User-Agent", AGENT).map_err(bad_field)?;
            let response = self.http.ask(&request).await?;
            self.keep_nonce(&response);
            match response.status() {
                301 | 302 | 303 | 307 | 308 => {
                    let to =
                        response.text("location").ok_or_else(|| Error::Protocol("a redirect to nowhere".into()))?;
                    let next = from.join(to).map_err(|why| Error::Protocol(format!("invalid redirect: {why}")))?;
                    if from.tls && !next.tls {
                        return Err(Error::Protocol("a redirect from https to http".into()));
                    }
                    from = next;
                }
                _ if succeeded(&response) => return Ok(response),
                _ => return Err(refusal(&response)),
            }
        }
        Err(Error::Protocol("too many redirects".into()))
    }

    fn keep_nonce(&mut self, response: &Response) {
        if let Some(nonce) = response.text("replay-nonce").filter(|_| self.nonces.len() < NONCES_MAX) {
            self.nonces.push(nonce.to_string());
        }
    }

    async fn directory(&mut self) -> Result<Directory, Error> {
        if let Some(directory) = &self.directory {
            return Ok(directory.clone());
        }
        let response = self.get(&self.url.clone()).await?;
        let directory: Directory = json_of(&response)?;
        self.directory = Some(directory.clone());
        Ok(directory)
    }

    async fn nonce(&mut self) -> Result<String, Error> {
        if let Some(nonce) = self.nonces.pop() {
            return Ok(nonce);
        }
        let from = url(&self.directory().await?.new_nonce)?;
        self.get(&from).await?;
        self.nonces.pop().ok_or_else(|| Error::Protocol("the server sends no nonce".into()))
    }

    /// Sends a signed request; the empty payload is a POST-as-GET.
    async fn post(&mut self, to: &str, payload: &str) -> Result<Response, Error> {
        let target = url(to)?;
        let mut pause = PAUSE;
        let mut tries = Tries::default();
        loop {
            let nonce = self.nonce().await?;
            let body = jws::sign(&self.key, self.account.as_deref(), &nonce, to, payload).map_err(Error::Local)?;
            let request = Request::new("POST", target.clone()).field("User-Agent", AGENT).map_err(bad_field)?;
            let request = request.body("application/jose+json", body.into_bytes()).map_err(bad_field)?;
            let wait = match self.http.ask(&request).await {
                Ok(response) => {
                    self.keep_nonce(&response);
                    if succeeded(&response) {
                        return Ok(response);
                    }
                    let refused = refusal(&response);
                    let Error::Refused { problem, after } = &refused else { return Err(refused) };
                    match () {
                        () if problem.is("badNonce") && tries.another_nonce() => continue,
                        () if problem.is("rateLimited") => match after.unwrap_or(pause) {
                            wait if wait <= WAIT_MAX && tries.another() => wait,
                            _ => return Err(refused),
                        },
                        () => return Err(refused),
                    }
                }
                Err(_) if tries.another() => pause,
                Err(failure) => return Err(failure.into()),
            };
            sleep_for(wait).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Finds the account of the key, or creates it. Returns `true` for a new account.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn open_account(&mut self, account: &AcmeAccount) -> Result<bool, Error> {
        let directory = self.directory().await?;
        if directory.meta.external_account_required && account.binding.is_none() {
            return Err(Error::ExternalAccount);
        }
        let mut payload = json!({});
        if account.agreed {
            payload["termsOfServiceAgreed"] = true.into();
        }
        if !account.contacts.is_empty() {
            payload["contact"] = account.contacts.clone().into();
        }
        if let Some(binding) = &account.binding {
            payload["externalAccountBinding"] = jws::bind(&self.key, binding, &directory.new_account);
        }
        self.account = None;
        let response = self.post(&directory.new_account, &payload.to_string()).await?;
        let state: AccountState = json_of(&response)?;
        if state.status != "valid" {
            return Err(Error::Account(state.status));
        }
        let location = response.text("location").ok_or_else(|| Error::Protocol("an account without a URL".into()))?;
        self.account = Some(location.to_string());
        Ok(response.status() == 201)
    }

    /// Returns the window in which a certificate should be renewed, or `None` if the server does not tell.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn renewal_window(&mut self, id: &str) -> Result<Option<RenewalWindow>, Error> {
        let Some(from) = self.directory().await?.renewal_info else { return Ok(None) };
        let from = url(&format!("{}/{id}", from.trim_end_matches('/')))?;
        let response = self.get(&from).await?;
        let info: RenewalInfo = json_of(&response)?;
        let window = (renewal::seconds(&info.suggested_window.start), renewal::seconds(&info.suggested_window.end));
        match window {
            (Some(start), Some(end)) if start < end => {
                let explanation = info.explanation.as_deref().map(shown);
                Ok(Some(RenewalWindow { start, end, again: retry_after(&response), explanation }))
            }
            _ => Err(Error::Protocol("an invalid renewal window".into())),
        }
    }

    /// Orders a certificate. Its key is made on a thread of the default pool.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn order(&mut self, order: &AcmeOrder, solver: &dyn Solver) -> Result<IssuedChain, Error> {
        let directory = self.directory().await?;
        let identifiers: Vec<Value> =
            order.identifiers.iter().map(|id| json!({ "type": id.kind(), "value": id.to_string() })).collect();
        let mut payload = json!({ "identifiers": identifiers });
        match &order.profile {
            Some(profile) if directory.meta.profiles.contains_key(&profile.name) => {
                payload["profile"] = profile.name.clone().into();
            }
            Some(profile) if profile.required => return Err(Error::Profile(profile.name.clone())),
            _ => {}
        }
        if let Some(replaces) = order.replaces.as_ref().filter(|_| directory.renewal_info.is_some()) {
            payload["replaces"] = replaces.clone().into();
        }
        let made = match self.post(&directory.new_order, &payload.to_string()).await {
            // Its order has been made by another node, or is unknown to the server.
            Err(Error::Refused { problem, .. })
                if payload.get("replaces").is_some() && (problem.is("alreadyReplaced") || problem.is("malformed")) =>
            {
                payload["replaces"] = Value::Null;
                if let Some(fields) = payload.as_object_mut() {
                    fields.remove("replaces");
                }
                self.post(&directory.new_order, &payload.to_string()).await?
            }
            made => made?,
        };
        let place = made.text("location").ok_or_else(|| Error::Protocol("an order without a URL".into()))?.to_string();
        let mut state: OrderState = json_of(&made)?;
        if state.authorizations.len() > AUTHORIZATIONS_MAX {
            return Err(Error::Protocol("too many authorizations".into()));
        }
        for authorization in std::mem::take(&mut state.authorizations) {
            self.authorize(&authorization, order, solver).await?;
        }
        let key = generated(order.key).await?;
        let request = certificate::request(&order.identifiers, &key, order.common_name).map_err(Error::Local)?;
        let state = self.settled(&place, state, &["ready", "valid"]).await?;
        let state = if state.status == "valid" {
            return Err(Error::Protocol("the order is valid before its request".into()));
        } else {
            let payload = json!({ "csr": URL_SAFE_NO_PAD.encode(request) }).to_string();
            let response = self.post(&state.finalize, &payload).await?;
            self.settled(&place, json_of(&response)?, &["valid"]).await?
        };
        let from = state.certificate.ok_or_else(|| Error::Protocol("a valid order without a certificate".into()))?;
        let chain = self.chain(&from, order.preferred_chain.as_deref()).await?;
        let key = key.serialize_pem();
        match tls::certs::KeyPair::load(chain.as_bytes(), key.as_bytes(), &[]) {
            Ok(_) => Ok(IssuedChain { chain, key }),
            Err(why) => Err(Error::Protocol(format!("the server sent an unusable certificate: {why}"))),
        }
    }

    /// Waits until an order has one of the statuses.
    async fn settled(&mut self, place: &str, mut state: OrderState, wanted: &[&str]) -> Result<OrderState, Error> {
        let mut pause = PAUSE;
        for _ in 0..LOOKS_MAX {
            if wanted.contains(&state.status.as_str()) {
                return Ok(state);
            }
            if state.status == "invalid" {
                let why = state.error.map_or_else(|| "the order is invalid".into(), |problem| problem.to_string());
                return Err(Error::Order(why));
            }
            sleep_for(pause).await;
            let response = self.post(place, "").await?;
            pause = next_pause(&response, pause);
            state = json_of(&response)?;
        }
        Err(Error::TimedOut("the order"))
    }

    async fn authorize(&mut self, place: &str, order: &AcmeOrder, solver: &dyn Solver) -> Result<(), Error> {
        let kind = order.challenge;
        let found: Authorization = json_of(&self.post(place, "").await?)?;
        match found.status.as_str() {
            "valid" => return Ok(()),
            "pending" => {}
            other => return Err(Error::Authorization(format!("unexpected authorization status \"{other}\""))),
        }
        let name = &found.identifier.value;
        let identifier = Identifier::parse(name).ok_or_else(|| Error::Protocol("an unknown identifier".into()))?;
        if !order.identifiers.iter().any(|ordered| ordered.is_proven_by(&identifier)) {
            return Err(Error::Protocol(format!("an authorization of \"{name}\", which is not ordered")));
        }
        let challenge = found.challenges.iter().find(|challenge| challenge.kind == kind.name());
        let Challenge { url, token, .. } = challenge.ok_or_else(|| Error::Challenge(name.clone()))?;
        // Tokens become paths and keys: base64url only (section 8.3).
        if token.is_empty()
            || token.len() > 256
            || !token.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_".contains(&c))
        {
            return Err(Error::Protocol("an invalid token".into()));
        }
        let authorization = format!("{token}.{}", self.key.thumbprint());
        let presented =
            PresentedChallenge { solver, identifier: &identifier, token, authorization: &authorization, ended: false };
        let present = solver.present(&identifier, token, &authorization).await;
        let validated = match present {
            Ok(()) => self.validated(place, url, name).await,
            Err(why) => Err(Error::Local(why)),
        };
        // Before the next challenge, which may concern the same DNS name.
        presented.end().await;
        validated
    }

    /// Asks for the validation of a challenge, and waits for its end.
    async fn validated(&mut self, place: &str, challenge: &str, name: &str) -> Result<(), Error> {
        self.post(challenge, "{}").await?;
        let mut pause = PAUSE;
        for _ in 0..LOOKS_MAX {
            sleep_for(pause).await;
            let response = self.post(place, "").await?;
            let state: Authorization = json_of(&response)?;
            match state.status.as_str() {
                "valid" => return Ok(()),
                "pending" => {}
                other => {
                    let problem = state.challenges.into_iter().find(|challenge| challenge.error.is_some());
                    let why = problem.and_then(|challenge| challenge.error).map(|problem| format!(": {problem}"));
                    let why = why.unwrap_or_default();
                    return Err(Error::Authorization(format!("authorization of \"{name}\" is {other}{why}")));
                }
            }
            pause = next_pause(&response, pause);
        }
        Err(Error::TimedOut("the authorization"))
    }

    /// Downloads a certificate, or the chain whose topmost certificate has this issuer.
    async fn chain(&mut self, from: &str, preferred: Option<&str>) -> Result<String, Error> {
        let response = self.post(from, "").await?;
        let text = |response: &Response| {
            String::from_utf8(response.body.clone()).map_err(|_| Error::Protocol("a certificate that is no PEM".into()))
        };
        let first = text(&response)?;
        let Some(preferred) = preferred.filter(|name| !is_issued_by(&first, name)) else { return Ok(first) };
        let links = response.fields("link").into_iter().filter_map(alternate).map(String::from);
        for link in links.take(ALTERNATES_MAX).collect::<Vec<_>>() {
            let link = url(from)?.join(&link).map_err(|why| Error::Protocol(format!("invalid link: {why}")))?;
            let other = text(&self.post(&link.to_string(), "").await?)?;
            if is_issued_by(&other, preferred) {
                return Ok(other);
            }
        }
        Ok(first)
    }
}

const AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));

fn bad_field(field: http_client::BadField) -> Error {
    Error::Local(format!("invalid field \"{}\"", field.0))
}

/// The target of a `Link` field with the relation `alternate`.
fn alternate(value: &[u8]) -> Option<&str> {
    let value = std::str::from_utf8(value).ok()?;
    let (target, parameters) = value.trim().strip_prefix('<')?.split_once('>')?;
    let relation = parameters.split(';').map(str::trim).find_map(|one| one.strip_prefix("rel="))?;
    (relation.trim_matches('"') == "alternate").then_some(target)
}

/// Tells whether the topmost certificate of a chain has an issuer with this common name.
fn is_issued_by(chain: &str, name: &str) -> bool {
    let chain = tls::certs::parse_certificates(chain.as_bytes()).unwrap_or_default();
    let names = chain.last().map(|top| tls::x509::name::common_names(top.issuer())).unwrap_or_default();
    names.iter().any(|one| one == name)
}

/// Generates a certificate's key without holding up the thread.
async fn generated(algorithm: Algorithm) -> Result<rcgen::KeyPair, Error> {
    let pool = net::pool::find_pool(net::pool::DEFAULT).ok_or_else(|| Error::Local("no thread pool".into()))?;
    let job = pool.run(move || algorithm.generate()).map_err(|_| Error::Local("the thread pool is full".into()))?;
    job.await.map_err(|_| Error::Local("key generation failed".into()))?.map_err(Error::Local)
}

/// Failed tries of one signed request.
#[derive(Default)]
struct Tries {
    failed: usize,
    refused_nonces: usize,
}

impl Tries {
    /// Counts a network error or a rate limit. Returns `false` after [`TRIES_MAX`] of them.
    fn another(&mut self) -> bool {
        self.failed += 1;
        self.failed < TRIES_MAX
    }

    /// Counts a refused nonce. Returns `false` after [`NONCE_TRIES_MAX`] of them.
    fn another_nonce(&mut self) -> bool {
        self.refused_nonces += 1;
        self.refused_nonces < NONCE_TRIES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_other_chains() {
        assert_eq!(alternate(b"<https://a/1>;rel=\"alternate\""), Some("https://a/1"));
        assert_eq!(alternate(b" </1> ; title=x; rel=alternate"), Some("/1"));
        assert_eq!(alternate(b"<https://a/1>;rel=\"up\""), None);
        assert_eq!(alternate(b"https://a/1;rel=alternate"), None);
    }

    #[test]
    fn delays_are_seconds_or_dates() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (after, date, want) in [
            ("120", None, Some(120)),
            (" 0 ", Some(date), Some(0)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(date), Some(30)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(date), Some(0)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", None, None),
            ("soon", Some(date), None),
            ("-1", Some(date), None),
            ("", None, None),
        ] {
            assert_eq!(waiting_time(after, date), want.map(Duration::from_secs), "{after}");
        }
    }

    #[test]
    fn tries_end_after_network_errors_and_refused_nonces_in_any_order() {
        let mut tries = Tries::default();
        assert_eq!((0..).take_while(|_| tries.another_nonce()).count(), NONCE_TRIES_MAX - 1);
        assert!(!tries.another_nonce());
        assert_eq!((0..).take_while(|_| tries.another()).count(), TRIES_MAX - 1);
    }

    #[test]
    fn names_of_challenges() {
        for (text, kind) in [
            ("http", ChallengeKind::Http01),
            ("tls-alpn-01", ChallengeKind::TlsAlpn01),
            ("dns-01", ChallengeKind::Dns01),
        ] {
            assert_eq!(ChallengeKind::parse(text), Some(kind));
        }
        assert_eq!(ChallengeKind::parse("dns-02"), None);
    }
}
