//! An OpenID Provider without pages: a test plays the user, and may let the provider misbehave.

#![allow(dead_code, reason = "every test file uses another part")]

use super::origin::{Origin, ok};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

/// A login that the user has completed at the provider.
struct Code {
    nonce: String,
    challenge: Option<String>,
    redirect: String,
}

pub struct Inner {
    key: Ed25519KeyPair,
    kid: String,
    codes: HashMap<String, Code>,
    next: usize,
    pub issuer: String,
    /// Refresh tokens that are valid, one for each session.
    refresh_tokens: Vec<String>,
    pub expires_in: u64,
    /// Changes the claims of ID tokens before they are signed.
    pub claims: fn(&mut Value),
    /// Replaces ID tokens after they are signed.
    pub id_token: Option<fn(&str) -> String>,
    /// Changes the answer of the token endpoint.
    pub answer: fn(&mut Value),
    /// Replaces the answer of a path, whole.
    pub instead: HashMap<String, Vec<u8>>,
    pub metadata: fn(&mut Value),
    /// Signs the user information, after a change of its claims.
    pub userinfo: Option<fn(&mut Value)>,
    /// Requests by path, without the query.
    pub asked: Vec<String>,
    /// Requests of a path wait.
    pub held: Option<String>,
}

/// See the module's documentation.
pub struct Provider {
    pub inner: Arc<Mutex<Inner>>,
    pub origin: Origin,
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

pub fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns a query's or form's argument, decoded.
pub fn argument(text: &str, name: &str) -> Option<String> {
    let query = text.split_once('?').map_or(text, |(_, query)| query);
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    let (mut out, mut bytes) = (Vec::new(), value.bytes());
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            b'+' => out.push(b' '),
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}

/// Returns the length of a complete request.
fn whole(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length = text.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok());
    Some(head + length.unwrap_or(0)).filter(|length| bytes.len() >= *length)
}

fn error(status: &str, error: &str) -> Vec<u8> {
    let body = json!({ "error": error }).to_string();
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

impl Inner {
    fn sign(&self, claims: &Value) -> String {
        self.sign_as("JWT", claims)
    }
    pub fn sign_as(&self, kind: &str, claims: &Value) -> String {
        let header = json!({"alg": "EdDSA", "kid": self.kid, "typ": kind});
        let message = format!("{}.{}", base64url(header.to_string()), base64url(claims.to_string()));
        format!("{message}.{}", base64url(self.key.sign(message.as_bytes())))
    }
    pub fn rotate(&mut self) {
        self.key = Ed25519KeyPair::generate().expect("a key");
        self.kid = format!("{}x", self.kid);
    }
    fn id_token(&self, nonce: Option<&str>) -> String {
        let mut claims = json!({
            "iss": self.issuer, "aud": "client", "sub": "joe", "sid": "sid-1", "iat": now(), "exp": now() + 600,
            "groups": ["a", "b"], "address": {"postal_code": "12345"},
        });
        if let Some(nonce) = nonce {
            claims["nonce"] = nonce.into();
        }
        (self.claims)(&mut claims);
        let token = self.sign(&claims);
        self.id_token.map_or(token.clone(), |change| change(&token))
    }
    fn tokens(&mut self, id_token: String) -> Vec<u8> {
        self.next += 1;
        let refresh = format!("refresh-{}", self.next);
        let mut answer = json!({
            "id_token": id_token, "access_token": format!("access-{}", self.next), "token_type": "Bearer",
            "refresh_token": refresh, "expires_in": self.expires_in,
        });
        self.refresh_tokens.push(refresh);
        (self.answer)(&mut answer);
        ok(&answer.to_string())
    }

    fn token_request(&mut self, head: &str, form: &str) -> Vec<u8> {
        // Both parts are encoded as in a form: the secret is "se cret+".
        let basic = format!("authorization: basic {}", STANDARD.encode("client:se%20cret%2B").to_lowercase());
        if !head.to_lowercase().contains(&basic) {
            return error("401 Unauthorized", "invalid_client");
        }
        match argument(form, "grant_type").as_deref() {
            Some("authorization_code") => {
                let code = argument(form, "code").and_then(|code| self.codes.remove(&code));
                let Some(code) = code else { return error("400 Bad Request", "invalid_grant") };
                let challenge = argument(form, "code_verifier").map(|v| base64url(digest(&SHA256, v.as_bytes())));
                if challenge != code.challenge || argument(form, "redirect_uri").as_deref() != Some(&code.redirect) {
                    return error("400 Bad Request", "invalid_grant");
                }
                let token = self.id_token(Some(&code.nonce));
                self.tokens(token)
            }
            Some("refresh_token") => {
                let token = argument(form, "refresh_token").unwrap_or_default();
                // A refresh token serves once.
                let Some(at) = self.refresh_tokens.iter().position(|known| *known == token) else {
                    return error("400 Bad Request", "invalid_grant");
                };
                self.refresh_tokens.swap_remove(at);
                let token = self.id_token(None);
                self.tokens(token)
            }
            _ => error("400 Bad Request", "unsupported_grant_type"),
        }
    }

    fn respond(&mut self, request: &str, form: &str) -> Vec<u8> {
        let path = request.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default().to_string();
        self.asked.push(path.clone());
        if let Some(answer) = self.instead.get(&path) {
            return answer.clone();
        }
        let issuer = self.issuer.clone();
        match path.as_str() {
            "/.well-known/openid-configuration" => {
                let mut metadata = json!({
                    "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
                    "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/jwks"),
                    "userinfo_endpoint": format!("{issuer}/userinfo"),
                    "end_session_endpoint": format!("{issuer}/end"),
                    "code_challenge_methods_supported": ["S256"],
                });
                (self.metadata)(&mut metadata);
                ok(&metadata.to_string())
            }
            "/jwks" => {
                let x = base64url(self.key.public_key().as_ref());
                let key = json!({"kty": "OKP", "crv": "Ed25519", "x": x, "kid": self.kid, "use": "sig"});
                ok(&json!({ "keys": [key] }).to_string())
            }
            "/token" => self.token_request(request, form),
            "/userinfo" if request.to_lowercase().contains("authorization: bearer access-") => {
                let mut info = json!({"sub": "joe", "email": "joe@example.com"});
                let Some(change) = self.userinfo else { return ok(&info.to_string()) };
                (info["iss"], info["aud"]) = (issuer.into(), "client".into());
                change(&mut info);
                let token = self.sign(&info);
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/jwt;charset=UTF-8\r\nContent-Length";
                format!("{head}: {}\r\n\r\n{token}", token.len()).into_bytes()
            }
            _ => error("404 Not Found", "unknown"),
        }
    }
}

impl Provider {
    pub fn start() -> Provider {
        Provider::on(std::net::TcpListener::bind(("127.0.0.1", testkit::free_port())).expect("a port"))
    }
    pub fn on(listener: std::net::TcpListener) -> Provider {
        let issuer = format!("http://{}", listener.local_addr().expect("an address"));
        let inner = Arc::new(Mutex::new(Inner {
            key: Ed25519KeyPair::generate().expect("a key"),
            kid: "one".into(),
            codes: HashMap::new(),
            next: 0,
            issuer,
            refresh_tokens: Vec::new(),
            expires_in: 3600,
            claims: |_| {},
            id_token: None,
            answer: |_| {},
            instead: HashMap::new(),
            metadata: |_| {},
            userinfo: None,
            asked: Vec::new(),
            held: None,
        }));
        let its = inner.clone();
        let origin = Origin::on(listener, move |mut talk| {
            while let Some(whole) = talk.until(whole) {
                let whole = String::from_utf8_lossy(&whole).into_owned();
                let (head, form) = whole.split_once("\r\n\r\n").unwrap_or((&whole, ""));
                let answer = its.lock().expect("not poisoned").respond(head, form);
                let path = head.split([' ', '?']).nth(1).unwrap_or_default();
                super::wait("the release", || {
                    let held = its.lock().expect("not poisoned").held.clone();
                    if held.as_deref() == Some(path) { Err("held") } else { Ok(()) }
                });
                if answer.is_empty() {
                    return talk.hang();
                }
                // An answer may end before its announced length.
                if !talk.send(&answer) || answer.windows(17).any(|window| window == b"Connection: close") {
                    return;
                }
            }
        });
        Provider { inner, origin }
    }
    pub fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("not poisoned")
    }
    /// By path.
    pub fn asked(&self, path: &str) -> usize {
        self.inner().asked.iter().filter(|asked| *asked == path).count()
    }
    /// The user agrees to an authentication request. Returns the path and query of the way back.
    pub fn agree(&self, location: &str) -> String {
        let get = |name: &str| argument(location, name).unwrap_or_else(|| panic!("no {name} in {location}"));
        let mut inner = self.inner();
        assert!(location.starts_with(&format!("{}/authorize?", inner.issuer)), "{location}");
        assert_eq!((get("response_type").as_str(), get("client_id").as_str()), ("code", "client"));
        inner.next += 1;
        let code = format!("code {}", inner.next);
        let redirect = get("redirect_uri");
        let challenge = argument(location, "code_challenge");
        assert_eq!(challenge.is_some(), argument(location, "code_challenge_method").as_deref() == Some("S256"));
        inner.codes.insert(code.clone(), Code { nonce: get("nonce"), challenge, redirect: redirect.clone() });
        let path = redirect.splitn(4, '/').nth(3).unwrap_or_default().to_string();
        format!("/{path}?code={}&state={}", code.replace(' ', "%20"), get("state"))
    }
}
