//! Logins: the redirect to the provider, and the callback.
//!
//! Nothing is stored for a login that has begun. Its `state` is encrypted and bound to a cookie of the browser, from which nonce and
//! code verifier are derived, so that any number of windows may log in at once and strangers can fill no memory.

use super::discovery::{Metadata, ProviderFailure};
use super::provider::Provider;
use super::session::{Session, session_cookie};
use super::state;
use super::tokens::{ProviderClient, write_form};
use base::clock;
use http_engine::path::unescape_path;
use http_engine::{Flow, Request};
use net::Address;
use observe::Severity;
use resolver::ResolveRules;
use std::sync::Arc;

/// Maximum seconds of a login at the provider; a longer one starts again.
const LOGIN_SECONDS: u64 = 3600;
/// Longest URI in bytes to which a login returns; after a longer one it returns to `/`.
const RETURN_BYTES_MAX: usize = 2048;
/// Bytes of a code.
const CODE_BYTES_MAX: usize = 4096;
/// Length of the cookie of a login.
const LOGIN_COOKIE_BYTES: usize = 32;
const ID_BYTES: usize = 16;

/// Returns scheme and authority under which the client sees this server.
pub fn request_origin(provider: &Provider, r: &Request) -> String {
    if let Some(origin) = &provider.redirect.origin {
        return origin.clone();
    }
    let scheme = if r.connection().tls.is_some() { "https" } else { "http" };
    let local = &r.connection().local;
    let host = match (r.target.host().is_empty(), &**local) {
        (false, _) => String::from_utf8_lossy(r.target.host()).into_owned(),
        (true, Address::Ip(address)) if address.is_ipv6() => format!("[{}]", address.ip()),
        (true, Address::Ip(address)) => address.ip().to_string(),
        (true, Address::Unix(_)) => String::from_utf8_lossy(&r.srv().name).into_owned(),
    };
    match r.target.host_port() {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    }
}

pub fn request_resolver(r: &Request) -> Option<ResolveRules> {
    r.loc().ext::<ResolveRules>().cloned()
}

/// Redirects the client.
pub fn redirect_client(r: &mut Request, to: String) -> Flow {
    r.discard_body();
    r.out.add("Cache-Control", "no-store");
    r.out.set_location(to.into_bytes());
    Flow::Status(302)
}

/// Sets a cookie for the whole server; `None` removes it.
pub fn set_cookie(r: &mut Request, name: &str, value: Option<&str>, secure: bool) {
    let end = if value.is_none() { "; Max-Age=0" } else { "" };
    let secure = if secure { "; Secure" } else { "" };
    let value = value.unwrap_or_default();
    r.out.add("Set-Cookie", format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}{end}").into_bytes());
}

/// Logs the reason why a login or a session failed.
pub fn log_failure(r: &Request, provider: &Provider, why: &ProviderFailure) {
    r.log(Severity::Error, format_args!("oidc_provider \"{}\": {why}", provider.name));
}

/// A login, and the things that are derived from it.
struct LoginState<'a> {
    provider: &'a Provider,
    origin: String,
    cookie: Vec<u8>,
    id: Vec<u8>,
}

fn cookie_name(provider: &Provider, secure: bool) -> String {
    // Other hosts of the domain cannot set a cookie with this prefix.
    let prefix = if secure { "__Host-" } else { "" };
    format!("{prefix}{}_LOGIN", provider.cookie_name)
}

fn login_cookie(provider: &Provider, r: &Request, secure: bool) -> Option<Vec<u8>> {
    session_cookie(r, &cookie_name(provider, secure)).filter(|value| value.len() == LOGIN_COOKIE_BYTES)
}

impl LoginState<'_> {
    fn redirect_uri(&self) -> String {
        format!("{}{}", self.origin, String::from_utf8_lossy(&self.provider.redirect.path))
    }
    fn context(provider: &Provider, origin: &str, cookie: &[u8]) -> Vec<u8> {
        [provider.name.as_bytes(), b"\0", origin.as_bytes(), b"\0", cookie].concat()
    }
    fn nonce(&self) -> String {
        self.provider.login_secret().derive("nonce", &self.id, &self.cookie)
    }
    fn verifier(&self, metadata: &Metadata) -> Option<String> {
        let wanted = self.provider.pkce.unwrap_or(metadata.pkce);
        wanted.then(|| self.provider.login_secret().derive("verifier", &self.id, &self.cookie))
    }
}

/// Sends the client to the provider.
pub fn begin_login(provider: &Provider, r: &mut Request, metadata: &Metadata) -> Flow {
    let origin = request_origin(provider, r);
    let secure = origin.starts_with("https:");
    let known = login_cookie(provider, r, secure);
    let is_new = known.is_none();
    let cookie = known.unwrap_or_else(|| state::random_text::<24>().into_bytes());
    let login = LoginState { provider, origin, cookie, id: net::random::bytes16().to_vec() };
    let uri = r.head.request_uri().of(&r.buf);
    let fits = uri.starts_with(b"/") && uri.len() <= RETURN_BYTES_MAX;
    let uri = if fits { uri } else { b"/" };
    let now = clock::unix_millis() / 1000;
    let text = [&login.id, &now.to_be_bytes()[..], uri].concat();
    let context = LoginState::context(provider, &login.origin, &login.cookie);
    let Some(sealed) = provider.login_secret().seal(&text, &context) else {
        log_failure(r, provider, &ProviderFailure::Invalid("the login could not be encrypted".into()));
        return Flow::Status(500);
    };
    let (redirect_uri, nonce) = (login.redirect_uri(), login.nonce());
    let mut arguments = vec![
        ("response_type", "code"),
        ("scope", provider.scope.as_str()),
        ("client_id", provider.client_id.as_str()),
        ("redirect_uri", redirect_uri.as_str()),
        ("state", sealed.as_str()),
        ("nonce", nonce.as_str()),
    ];
    let challenge = login.verifier(metadata).map(|verifier| challenge(&verifier));
    if let Some(challenge) = &challenge {
        arguments.extend([("code_challenge", challenge.as_str()), ("code_challenge_method", "S256")]);
    }
    let target = with_arguments(&metadata.authorization.to_string(), &write_form(&arguments));
    let target = match &provider.extra_auth_args {
        Some(extra) => format!("{target}&{extra}"),
        None => target,
    };
    if is_new {
        let value = String::from_utf8_lossy(&login.cookie).into_owned();
        set_cookie(r, &cookie_name(provider, secure), Some(&value), secure);
    }
    redirect_client(r, target)
}

/// Appends arguments to a URL.
pub fn with_arguments(url: &str, arguments: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    if arguments.is_empty() { url.to_string() } else { format!("{url}{separator}{arguments}") }
}

/// `S256` of RFC 7636, section 4.2.
fn challenge(verifier: &str) -> String {
    use base64::Engine as _;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, verifier.as_bytes());
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(digest)
}

/// Returns the decoded value of a query argument; `Err` if there are several.
pub fn query_argument(query: &[u8], name: &[u8]) -> Result<Option<String>, ()> {
    let mut found = None;
    for pair in query.split(|byte| *byte == b'&') {
        let Some(value) = pair.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"=")) else { continue };
        let value: Vec<u8> = value.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        let mut decoded = Vec::new();
        unescape_path(&value, &mut decoded);
        if found.replace(String::from_utf8(decoded).map_err(|_| ())?).is_some() {
            return Err(());
        }
    }
    Ok(found)
}

/// A callback that belongs to a login of this browser.
pub struct Return {
    provider: Arc<Provider>,
    origin: String,
    cookie: Vec<u8>,
    id: Vec<u8>,
    began: u64,
    uri: Vec<u8>,
}

impl Return {
    /// Recognizes the login of a request; `None`: none of this browser.
    pub fn of(provider: &Arc<Provider>, r: &Request) -> Option<Return> {
        let origin = request_origin(provider, r);
        let cookie = login_cookie(provider, r, origin.starts_with("https:"))?;
        let sealed = query_argument(r.target.args(), b"state").ok()??;
        let text = provider.login_secret().open(sealed.as_bytes(), &LoginState::context(provider, &origin, &cookie))?;
        let (id, rest) = text.split_at_checked(ID_BYTES)?;
        let (began, uri) = rest.split_first_chunk::<8>()?;
        let (id, began) = (id.to_vec(), u64::from_be_bytes(*began));
        Some(Return { provider: provider.clone(), origin, cookie, id, began, uri: uri.to_vec() })
    }

    /// Completes the login.
    pub fn complete(self, r: &mut Request) -> Flow {
        r.incoming.hide_arguments();
        // A login that timed out, or of another window: starts again, without a prompt if the user is logged in at the
        // provider.
        if clock::unix_millis() / 1000 > self.began.saturating_add(LOGIN_SECONDS) {
            return self.go_back(r);
        }
        let code = match self.code(r) {
            Ok(code) => code,
            Err(why) => {
                log_failure(r, &self.provider, &why);
                return Flow::Status(why.status());
            }
        };
        let Some(exchange) = self.provider.state.exchange() else {
            log_failure(r, &self.provider, &ProviderFailure::Unavailable("too many logins at once".into()));
            return Flow::Status(503);
        };
        let resolving = request_resolver(r);
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let _exchange = exchange;
                let flow = match self.log_in(&code, resolving, &mut r).await {
                    Ok(()) => self.go_back(&mut r),
                    Err(why) => {
                        log_failure(&r, &self.provider, &why);
                        Flow::Status(why.status())
                    }
                };
                (r, flow)
            })
        }))
    }

    fn go_back(&self, r: &mut Request) -> Flow {
        r.discard_body();
        r.out.add("Cache-Control", "no-store");
        // Absolute: a path that begins with two slashes would name another host.
        r.out.set_location([self.origin.as_bytes(), &self.uri].concat());
        Flow::Status(302)
    }

    /// Reads the authentication response.
    fn code(&self, r: &Request) -> Result<String, ProviderFailure> {
        let refused = |why: String| Err(ProviderFailure::Refused(why));
        let argument = |name: &str| {
            let malformed =
                |()| ProviderFailure::Refused(format!("malformed argument \"{name}\" of an authentication response"));
            query_argument(r.target.args(), name.as_bytes()).map_err(malformed)
        };
        let metadata = self.provider.known_metadata();
        match argument("iss")? {
            Some(issuer) if issuer != self.provider.issuer => {
                return refused(format!("authentication response of the issuer {issuer:?}"));
            }
            None if metadata.is_some_and(|metadata| metadata.names_issuer) => {
                return refused("authentication response without \"iss\"".into());
            }
            _ => {}
        }
        if let Some(error) = argument("error")? {
            let why = format!("the provider answers with the error {error:?}");
            return Err(match error.as_str() {
                "server_error" | "temporarily_unavailable" => ProviderFailure::Unavailable(why),
                _ => ProviderFailure::Refused(why),
            });
        }
        match argument("code")? {
            Some(code) if !code.is_empty() && code.len() <= CODE_BYTES_MAX => Ok(code),
            _ => refused("authentication response without a code".into()),
        }
    }

    async fn log_in(
        &self,
        code: &str,
        resolving: Option<ResolveRules>,
        r: &mut Request,
    ) -> Result<(), ProviderFailure> {
        let provider = &self.provider;
        let metadata = provider.metadata(resolving.clone()).await?;
        let login =
            LoginState { provider, origin: self.origin.clone(), cookie: self.cookie.clone(), id: self.id.clone() };
        let verifier = login.verifier(&metadata);
        let talk = ProviderClient::new(provider, resolving, metadata);
        let (redirect, nonce) = (login.redirect_uri(), login.nonce());
        let tokens = talk.exchange(code, &redirect, verifier.as_deref(), &nonce).await?;
        clock::update();
        let mut session = Session::default();
        session.renew(tokens, provider.session_timeout);
        if let (Some(access), true) = (&session.access_token, provider.userinfo) {
            session.userinfo = Some(talk.userinfo(access, &session.subject).await?);
        }
        // A new identifier for each login; the former session of the browser ends.
        if let Some((key, _)) = provider.session_of(r) {
            provider.end(&key);
        }
        let cookie = provider
            .begin(&session)
            .map_err(|refusal| ProviderFailure::Unavailable(format!("the session is not stored: {refusal}")))?;
        set_cookie(r, &provider.cookie_name, Some(&cookie), self.origin.starts_with("https:"));
        r.log(Severity::Info, format_args!("logged in by oidc_provider \"{}\"", provider.name));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_unique_and_decoded() {
        let query = b"code=a%20b+c&state=&iss&x=1&x=2&bad=%ff";
        assert_eq!(query_argument(query, b"code"), Ok(Some("a b c".into())));
        assert_eq!(query_argument(query, b"state"), Ok(Some(String::new())));
        assert_eq!((query_argument(query, b"iss"), query_argument(query, b"none")), (Ok(None), Ok(None)));
        assert_eq!((query_argument(query, b"x"), query_argument(query, b"bad")), (Err(()), Err(())));
    }

    #[test]
    fn challenges_are_those_of_the_rfc() {
        // RFC 7636, appendix B.
        assert_eq!(
            challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
        assert_eq!(with_arguments("https://a/b", "c=d"), "https://a/b?c=d");
        assert_eq!(with_arguments("https://a/b?e=f", "c=d"), "https://a/b?e=f&c=d");
    }
}
