//! Token requests (OpenID Connect Core 1.0, sections 3.1.3 and 12), validation of ID tokens, user information.

use super::discovery::{ANSWER_BYTES_MAX, Metadata, ProviderFailure, invalid_metadata};
use super::provider::Provider;
use super::session::{EndedSessions, Moment};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http_client::{Client, Request};
use http_engine::path::escape_component;
use jose::{ExpectedClaims, KeySet, SignedToken, TokenFailure, UnverifiedToken};
use resolver::ResolveRules;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Seconds by which the provider's clock may differ.
const LEEWAY: f64 = 60.0;

/// A token response that has been checked.
pub struct Tokens {
    pub id_token: Option<String>,
    pub claims: Option<Map<String, Value>>,
    pub access_token: Option<String>,
    pub refresh_token: Option<String>,
    /// Seconds.
    pub expires_in: Option<u64>,
}

/// Writes arguments as a query or a form.
pub fn write_form(arguments: &[(&str, &str)]) -> String {
    let mut out = Vec::new();
    for (name, value) in arguments {
        if !out.is_empty() {
            out.push(b'&');
        }
        out.extend_from_slice(name.as_bytes());
        out.push(b'=');
        escape_component(value.as_bytes(), &mut out);
    }
    String::from_utf8(out).unwrap_or_default()
}

/// Everything that a request to a provider needs.
pub struct ProviderClient {
    pub provider: Arc<Provider>,
    pub resolving: Option<ResolveRules>,
    pub metadata: Arc<Metadata>,
    client: Client,
}

impl ProviderClient {
    pub fn new(provider: &Arc<Provider>, resolving: Option<ResolveRules>, metadata: Arc<Metadata>) -> ProviderClient {
        let client = provider.client(resolving.clone(), ANSWER_BYTES_MAX);
        ProviderClient { provider: provider.clone(), resolving, metadata, client }
    }

    /// Sends a token request with the client's credentials.
    async fn ask(&self, arguments: &[(&str, &str)]) -> Result<Map<String, Value>, ProviderFailure> {
        let Provider { client_id, client_secret, .. } = &*self.provider;
        let url = &self.metadata.token;
        let bad = |_| ProviderFailure::Invalid("invalid credentials of the client".into());
        let mut request = Request::new("POST", url.clone()).field("Accept", "application/json").map_err(bad)?;
        let mut all = arguments.to_vec();
        match client_secret {
            Some(secret) if !self.metadata.secret_in_body => {
                // Both are encoded as in a form first (RFC 6749, section 2.3.1).
                let mut pair = Vec::new();
                escape_component(client_id.as_bytes(), &mut pair);
                pair.push(b':');
                escape_component(secret.as_bytes(), &mut pair);
                request = request.field("Authorization", &format!("Basic {}", STANDARD.encode(pair))).map_err(bad)?;
            }
            Some(secret) => all.extend([("client_id", client_id.as_str()), ("client_secret", secret.as_str())]),
            None => all.push(("client_id", client_id)),
        }
        let request = request.body("application/x-www-form-urlencoded", write_form(&all).into_bytes()).map_err(bad)?;
        let response = match self.client.ask(&request).await {
            Ok(response) => response,
            Err(why) => return Err(ProviderFailure::Unavailable(format!("{why} while asking {url}"))),
        };
        let status = response.status();
        let parsed = serde_json::from_slice::<Value>(&response.body);
        match (status, parsed) {
            (200, Ok(Value::Object(members))) => Ok(members),
            (200, _) => invalid_metadata(format!("answer of {url} is no JSON object")),
            (400 | 401, Ok(Value::Object(members))) => {
                let error = members.get("error").and_then(Value::as_str).unwrap_or_default();
                let why = format!("error {error:?} of {url}");
                if error == "invalid_grant" {
                    Err(ProviderFailure::Refused(why))
                } else {
                    Err(ProviderFailure::Invalid(why))
                }
            }
            (500..=599 | 429, _) => Err(ProviderFailure::Unavailable(format!("status {status} of {url}"))),
            _ => invalid_metadata(format!("status {status} of {url}")),
        }
    }

    /// Exchanges a code for tokens; the ID token must have this nonce.
    ///
    /// # Errors
    /// See [`ProviderFailure`].
    pub async fn exchange(
        &self,
        code: &str,
        redirect: &str,
        verifier: Option<&str>,
        nonce: &str,
    ) -> Result<Tokens, ProviderFailure> {
        let mut arguments = vec![("grant_type", "authorization_code"), ("code", code), ("redirect_uri", redirect)];
        arguments.extend(verifier.map(|verifier| ("code_verifier", verifier)));
        let members = self.ask(&arguments).await?;
        let tokens = self.check(members).await?;
        let claims = match &tokens.claims {
            Some(claims) => claims,
            None => return invalid_metadata("token response without an ID token"),
        };
        if claims.get("nonce").and_then(Value::as_str) != Some(nonce) {
            return invalid_metadata("ID token of another login: its nonce differs");
        }
        Ok(tokens)
    }

    /// Asks for new tokens; an ID token must have this subject.
    ///
    /// # Errors
    /// See [`ProviderFailure`].
    pub async fn refresh(&self, token: &str, subject: &str) -> Result<Tokens, ProviderFailure> {
        let members = self.ask(&[("grant_type", "refresh_token"), ("refresh_token", token)]).await?;
        let tokens = self.check(members).await?;
        let own = tokens.claims.as_ref().map(|claims| claims.get("sub").and_then(Value::as_str));
        if own.is_some_and(|own| own != Some(subject)) {
            return invalid_metadata("ID token of another user");
        }
        Ok(tokens)
    }

    async fn check(&self, members: Map<String, Value>) -> Result<Tokens, ProviderFailure> {
        let text = |name: &str| match members.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(ProviderFailure::Invalid(format!("\"{name}\" of a token response is not a string"))),
        };
        let (id_token, access_token) = (text("id_token")?, text("access_token")?);
        let expires_in = match members.get("expires_in") {
            // Some providers send a string.
            Some(Value::String(digits)) => digits.parse().ok(),
            other => other.and_then(Value::as_u64),
        };
        let claims = match &id_token {
            Some(token) => Some(self.validate(token, access_token.as_deref()).await?),
            None => None,
        };
        Ok(Tokens { id_token, claims, access_token, refresh_token: text("refresh_token")?, expires_in })
    }

    /// Verifies a token of the provider: signature and times. Returns the algorithm, too.
    async fn verify(&self, token: &str, kind: &str) -> Result<(String, SignedToken), ProviderFailure> {
        let readable = UnverifiedToken::parse(token.as_bytes())
            .ok_or_else(|| ProviderFailure::Invalid(format!("malformed {kind}")))?;
        let algorithm = readable.header.get("alg").and_then(Value::as_str).unwrap_or_default().to_string();
        // With a secret key in a public set any client could sign.
        if algorithm.starts_with("HS") {
            return invalid_metadata(format!("{kind} with the algorithm {algorithm:?}"));
        }
        let (provider, metadata) = (&self.provider, &self.metadata);
        let verify = |set: Arc<KeySet>| SignedToken::verify(token.as_bytes(), ExpectedClaims::Signed, &[&set]);
        let mut verified = match provider.keys(self.resolving.clone(), metadata, false).await? {
            Some(set) => verify(set),
            None => Err(TokenFailure::NoKey),
        };
        // The keys may have been replaced. A set whose keys have no names tells it by the signature.
        if matches!(verified, Err(TokenFailure::NoKey | TokenFailure::Invalid))
            && let Some(set) = provider.keys(self.resolving.clone(), metadata, true).await?
        {
            verified = verify(set);
        }
        let refused = |why| ProviderFailure::Invalid(format!("{kind} is refused: {why}"));
        let token = verified.map_err(refused)?;
        token.times.check(base::clock::unix_millis() as f64 / 1000.0, LEEWAY).map_err(refused)?;
        Ok((algorithm, token))
    }

    /// Validates an ID token (section 3.1.3.7), apart from its nonce.
    async fn validate(&self, token: &str, access_token: Option<&str>) -> Result<Map<String, Value>, ProviderFailure> {
        let (algorithm, token) = self.verify(token, "ID token").await?;
        let provider = &self.provider;
        check_claims(&token.claims, &provider.issuer, &provider.client_id).map_err(ProviderFailure::Invalid)?;
        if let (Some(hash), Some(access)) = (token.claims.get("at_hash"), access_token)
            && access_hash(&algorithm, access).is_some_and(|own| hash.as_str() != Some(&own))
        {
            return invalid_metadata("ID token of another access token: its at_hash differs");
        }
        Ok(token.claims)
    }

    /// Validates a logout token (OpenID Connect Back-Channel Logout 1.0, section 2.6). Returns the sessions that end, and the token's
    /// time.
    ///
    /// # Errors
    /// See [`ProviderFailure`].
    pub async fn logout(&self, token: &str) -> Result<(EndedSessions, Moment), ProviderFailure> {
        let (_, token) = self.verify(token, "logout token").await?;
        let Provider { issuer, client_id, .. } = &*self.provider;
        let now = base::clock::unix_millis() as f64 / 1000.0;
        let checked = check_logout(&token, issuer, client_id, now);
        checked.map(|(ended, issued)| (ended, Moment::now(issued))).map_err(|why| ProviderFailure::Invalid(why.into()))
    }

    /// Fetches the user information of a subject, as JSON.
    ///
    /// # Errors
    /// See [`ProviderFailure`].
    pub async fn userinfo(&self, access_token: &str, subject: &str) -> Result<String, ProviderFailure> {
        let Some(url) = &self.metadata.userinfo else {
            return invalid_metadata("the provider has no \"userinfo_endpoint\"");
        };
        let bad = |_| ProviderFailure::Invalid("invalid access token".into());
        let accepted = "application/json, application/jwt";
        let request = Request::new("GET", url.clone()).field("Accept", accepted).map_err(bad)?;
        let request = request.field("Authorization", &format!("Bearer {access_token}")).map_err(bad)?;
        let response = match self.client.ask(&request).await {
            Ok(response) => response,
            Err(why) => return Err(ProviderFailure::Unavailable(format!("{why} while asking {url}"))),
        };
        if response.status() != 200 {
            return Err(ProviderFailure::Unavailable(format!("status {} of {url}", response.status())));
        }
        let is_signed = response.field("content-type").is_some_and(is_jwt);
        let members = if is_signed {
            let text = std::str::from_utf8(&response.body).unwrap_or_default().trim();
            let (_, token) = self.verify(text, "user information").await?;
            check_signed_info(&token.claims, &self.provider.issuer, &self.provider.client_id)
                .map_err(|why| ProviderFailure::Invalid(why.into()))?;
            token.claims
        } else {
            match serde_json::from_slice::<Value>(&response.body) {
                Ok(Value::Object(members)) => members,
                _ => return invalid_metadata(format!("answer of {url} is no JSON object")),
            }
        };
        // Section 5.3.4: without this check another user's claims could be substituted.
        if members.get("sub").and_then(Value::as_str) != Some(subject) {
            return invalid_metadata("user information of another user");
        }
        Ok(Value::Object(members).to_string())
    }
}

/// Tells whether a media type is that of a token, whatever its parameters.
fn is_jwt(kind: &[u8]) -> bool {
    let end = kind.iter().position(|c| *c == b';').unwrap_or(kind.len());
    kind.get(..end).is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(b"application/jwt"))
}

/// Checks issuer and audience of signed user information (section 5.3.2). An ID token of another client must not pass as such.
fn check_signed_info(claims: &Map<String, Value>, issuer: &str, client: &str) -> Result<(), &'static str> {
    if claims.get("iss").is_some_and(|own| own != issuer) {
        return Err("user information of another issuer");
    }
    let own = !claims.contains_key("aud") || is_for(claims.get("aud"), client);
    if own { Ok(()) } else { Err("user information for another audience") }
}

/// Checks issuer, audience, times and subject of an ID token.
fn check_claims(claims: &Map<String, Value>, issuer: &str, client: &str) -> Result<(), String> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(issuer) {
        return Err(format!("ID token of the issuer {:?}", text("iss").unwrap_or_default()));
    }
    let (own, others) = match claims.get("aud") {
        Some(Value::String(one)) => (one == client, false),
        Some(Value::Array(all)) => (all.iter().any(|one| one == client), all.len() > 1),
        _ => (false, false),
    };
    if !own {
        return Err("ID token for another audience".into());
    }
    match claims.get("azp") {
        None if others => return Err("ID token for several audiences, without \"azp\"".into()),
        Some(party) if party != client => return Err("ID token for another authorized party".into()),
        _ => {}
    }
    if !claims.get("exp").is_some_and(Value::is_number) || !claims.get("iat").is_some_and(Value::is_number) {
        return Err("ID token without \"exp\" or \"iat\"".into());
    }
    if text("sub").is_none_or(str::is_empty) {
        return Err("ID token without \"sub\"".into());
    }
    Ok(())
}

/// The member of `events` that makes a token a logout token.
const LOGOUT_EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";
/// Seconds after which a logout token without `exp` is refused.
const LOGOUT_SECONDS: f64 = 600.0;

/// Tells whether an audience is, or has, this client.
pub fn is_for(audience: Option<&Value>, client: &str) -> bool {
    match audience {
        Some(Value::Array(all)) => all.iter().any(|one| one == client),
        Some(one) => one == client,
        None => false,
    }
}

/// Checks the header and the claims of a logout token. No other token of the provider passes as one.
fn check_logout(
    token: &SignedToken,
    issuer: &str,
    client: &str,
    now: f64,
) -> Result<(EndedSessions, u64), &'static str> {
    let claims = &token.claims;
    let text = |name: &str| claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(kind) = token.header.get("typ")
        && !kind.as_str().is_some_and(|kind| ["jwt", "logout+jwt"].contains(&kind.to_ascii_lowercase().as_str()))
    {
        return Err("logout token of another type");
    }
    if text("iss") != Some(issuer) {
        return Err("logout token of another issuer");
    }
    if !is_for(claims.get("aud"), client) {
        return Err("logout token for another audience");
    }
    if !claims.get("events").and_then(|events| events.get(LOGOUT_EVENT)).is_some_and(Value::is_object) {
        return Err("logout token without the event of a logout");
    }
    if claims.contains_key("nonce") {
        return Err("logout token with a nonce");
    }
    if text("jti").is_none() {
        return Err("logout token without \"jti\"");
    }
    let Some(issued) = claims.get("iat").and_then(Value::as_f64) else { return Err("logout token without \"iat\"") };
    if issued > now + LEEWAY || issued < 0.0 {
        return Err("logout token of the future");
    }
    if token.times.exp.is_none() && now > issued + LOGOUT_SECONDS + LEEWAY {
        return Err("logout token is too old");
    }
    let named = |name: &str| claims.get(name).is_none_or(Value::is_string);
    match (text("sid"), text("sub")) {
        _ if !named("sid") || !named("sub") => Err("logout token with a \"sid\" or \"sub\" that is not a string"),
        (Some(sid), _) => Ok((EndedSessions::Sid(sid.into()), issued as u64)),
        (None, Some(subject)) => Ok((EndedSessions::Subject(subject.into()), issued as u64)),
        (None, None) => Err("logout token without \"sid\" and \"sub\""),
    }
}

/// Returns the value of `at_hash` for an access token; `None` for algorithms whose hash is not defined.
fn access_hash(algorithm: &str, token: &str) -> Option<String> {
    use aws_lc_rs::digest::{SHA256, SHA384, SHA512, digest};
    let hash = match algorithm.get(2..)? {
        "256" => &SHA256,
        "384" => &SHA384,
        "512" => &SHA512,
        _ => return None,
    };
    let whole = digest(hash, token.as_bytes());
    let half = whole.as_ref().get(..whole.as_ref().len() / 2)?;
    Some(URL_SAFE_NO_PAD.encode(half))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn forms_are_encoded() {
        assert_eq!(write_form(&[("a", "b c&d"), ("e", "ü=/+")]), "a=b%20c%26d&e=%C3%BC%3D%2F%2B");
    }

    #[test]
    fn claims_are_of_this_issuer_for_this_client() {
        let check = |claims: Value| check_claims(claims.as_object().expect("an object"), "https://a", "me");
        let right = json!({"iss": "https://a", "aud": "me", "exp": 1, "iat": 1, "sub": "u"});
        assert_eq!(check(right.clone()), Ok(()));
        let with = |name: &str, value: Value| {
            let mut claims = right.clone();
            claims[name] = value;
            check(claims)
        };
        assert_eq!(with("aud", json!(["me"])), Ok(()));
        assert!(with("aud", json!(["me", "you"])).is_err());
        let mut several = right.clone();
        (several["aud"], several["azp"]) = (json!(["me", "you"]), json!("me"));
        assert_eq!(check(several), Ok(()));
        for (name, value) in [
            ("iss", json!("https://a/")),
            ("iss", json!(null)),
            ("aud", json!("you")),
            ("aud", json!(["you"])),
            ("aud", json!([])),
            ("aud", json!({"me": 1})),
            ("azp", json!("you")),
            ("exp", json!("1")),
            ("iat", json!(null)),
            ("sub", json!("")),
            ("sub", json!(7)),
        ] {
            assert!(with(name, value.clone()).is_err(), "{name} {value}");
        }
    }

    #[test]
    fn logout_tokens_are_no_other_tokens() {
        let check = |header: Value, claims: Value| {
            let of = |value: Value| value.as_object().cloned().expect("an object");
            let exp = claims.get("exp").and_then(Value::as_f64);
            let times = jose::Times { exp, nbf: None };
            let token = SignedToken { header: of(header), claims: of(claims), payload: None, times };
            check_logout(&token, "https://a", "me", 10_000.0)
        };
        let right = json!({"iss": "https://a", "aud": "me", "iat": 9_990, "exp": 10_100, "jti": "j", "sub": "u", "sid": "s",
            "events": {LOGOUT_EVENT: {}}});
        let with = |name: &str, value: Value| {
            let mut claims = right.clone();
            match value {
                Value::Null => drop(claims.as_object_mut().and_then(|claims| claims.remove(name))),
                value => claims[name] = value,
            }
            check(json!({"alg": "RS256", "typ": "logout+jwt"}), claims)
        };
        let sid = Ok((EndedSessions::Sid("s".into()), 9_990));
        assert_eq!(with("x", json!(1)), sid);
        assert_eq!(with("sub", json!(null)), sid);
        assert_eq!(with("exp", json!(null)), sid);
        assert_eq!(with("aud", json!(["you", "me"])), sid);
        assert_eq!(with("sid", json!(null)), Ok((EndedSessions::Subject("u".into()), 9_990)));
        assert_eq!(check(json!({"alg": "RS256"}), right.clone()), sid);
        assert_eq!(check(json!({"alg": "RS256", "typ": "JWT"}), right.clone()), sid);
        for kind in [json!("at+jwt"), json!(1), json!("")] {
            assert!(check(json!({"typ": kind}), right.clone()).is_err(), "{kind}");
        }
        for (name, value) in [
            ("iss", json!("https://b")),
            ("iss", json!(null)),
            ("aud", json!("you")),
            ("aud", json!([])),
            ("aud", json!(null)),
            ("events", json!(null)),
            ("events", json!({})),
            ("events", json!([LOGOUT_EVENT])),
            ("events", json!({LOGOUT_EVENT: true})),
            ("nonce", json!("n")),
            ("nonce", json!("")),
            ("jti", json!(null)),
            ("jti", json!("")),
            ("iat", json!(null)),
            ("iat", json!("9990")),
            ("iat", json!(10_061)),
            ("iat", json!(-1)),
            ("sid", json!(7)),
            ("sub", json!({})),
        ] {
            assert!(with(name, value.clone()).is_err(), "{name} {value}");
        }
        let mut without_subject = right.clone();
        without_subject.as_object_mut().expect("an object").retain(|name, _| name != "sid" && name != "sub");
        assert!(check(json!({}), without_subject).is_err());
        let mut old = right;
        old.as_object_mut().expect("an object").remove("exp");
        old["iat"] = json!(9_000);
        assert_eq!(check(json!({}), old), Err("logout token is too old"));
    }

    #[test]
    fn signed_user_information_is_for_this_client() {
        let check = |claims: Value| check_signed_info(claims.as_object().expect("an object"), "https://a", "me");
        assert_eq!(check(json!({"sub": "u"})), Ok(()));
        assert_eq!(check(json!({"iss": "https://a", "aud": ["you", "me"]})), Ok(()));
        assert!(check(json!({"iss": "https://b"})).is_err() && check(json!({"aud": "you"})).is_err());
        assert!(check(json!({"aud": []})).is_err() && check(json!({"aud": null})).is_err());
        assert!(is_jwt(b"application/JWT; charset=utf-8") && !is_jwt(b"application/json") && !is_jwt(b""));
    }

    #[test]
    fn access_tokens_are_bound() {
        // OpenID Connect Core 1.0, appendix A.3.
        assert_eq!(
            access_hash("RS256", "jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y").as_deref(),
            Some("77QmUPtjPfzWtF2AnpK9RQ")
        );
        assert_eq!(access_hash("EdDSA", "a"), None);
    }
}
