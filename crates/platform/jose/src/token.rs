//! Tokens: parsing, verification, claims.

use crate::base64url;
use crate::encryption::{Content, Management, Parts, decrypt_content};
use crate::key::{Key, KeySet, Purpose, candidates};
use crate::signature::Algorithm;
use serde_json::{Map, Value};

/// In bytes.
pub const TOKEN_BYTES_MAX: usize = 65_536;
/// Maximum number of keys that are tried for a token: a token without `kid` could use any.
pub const KEYS_TRIED_MAX: usize = 32;
/// Maximum cost ([`Key::cost`]) of the keys that are tried for a token: eight RSA keys of 8192 bits.
const COST_MAX: usize = 128;
/// Maximum number of private RSA keys that are tried: an attempt takes milliseconds.
pub const SLOW_KEYS_TRIED_MAX: usize = 2;

/// `auth_jwt_type`: the structure that a token must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpectedClaims {
    Signed,
    Encrypted,
    /// A signed token within an encrypted one.
    Nested,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFailure {
    Malformed(&'static str),
    /// `alg` or `enc` are unknown, or belong to the other type of token; `none`.
    Algorithm,
    /// No key of the sets may serve this token.
    NoKey,
    /// No key verifies or decrypts the token.
    Invalid,
    Expired,
    NotYet,
}

impl std::fmt::Display for TokenFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TokenFailure::Malformed(why) => why,
            TokenFailure::Algorithm => "unsupported algorithm",
            TokenFailure::NoKey => "no key of the set fits the token",
            TokenFailure::Invalid => "signature or decryption failed",
            TokenFailure::Expired => "token is expired",
            TokenFailure::NotYet => "token is not valid yet",
        })
    }
}

impl std::error::Error for TokenFailure {}

#[derive(Debug)]
pub struct Header(Map<String, Value>);

impl Header {
    fn parse(encoded: &[u8]) -> Result<Header, TokenFailure> {
        Ok(Header(object(encoded).ok_or(TokenFailure::Malformed("invalid JOSE header"))?))
    }
    pub fn members(&self) -> &Map<String, Value> {
        &self.0
    }
    fn name(&self, name: &str) -> Option<&str> {
        member(&self.0, name)
    }
    /// Refuses what the recipient would have to understand (RFC 7515, 4.1.11), and compression, whose result has no limit.
    fn check(&self) -> Result<(), TokenFailure> {
        if self.0.contains_key("crit") || self.0.get("b64").is_some_and(|b64| *b64 != Value::Bool(true)) {
            return Err(TokenFailure::Malformed("unsupported critical header parameter"));
        }
        if self.0.contains_key("zip") {
            return Err(TokenFailure::Malformed("compressed token"));
        }
        Ok(())
    }
}

pub(crate) fn member<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    members.get(name).and_then(Value::as_str)
}

fn object(encoded: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice(&base64url(encoded)?).ok()? {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

/// In seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    pub exp: Option<f64>,
    pub nbf: Option<f64>,
}

impl Times {
    fn of(claims: &Map<String, Value>) -> Result<Times, TokenFailure> {
        let time = |name| match claims.get(name) {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or(TokenFailure::Malformed("\"exp\" or \"nbf\" is no number")),
        };
        Ok(Times { exp: time("exp")?, nbf: time("nbf")? })
    }
    /// Judges the times; `leeway` in seconds.
    ///
    /// # Errors
    /// [`TokenFailure::Expired`], [`TokenFailure::NotYet`].
    pub fn check(&self, now: f64, leeway: f64) -> Result<(), TokenFailure> {
        if self.exp.is_some_and(|exp| now >= exp + leeway) {
            return Err(TokenFailure::Expired);
        }
        if self.nbf.is_some_and(|nbf| now + leeway < nbf) {
            return Err(TokenFailure::NotYet);
        }
        Ok(())
    }
}

#[derive(Debug)]
pub struct SignedToken {
    /// The JOSE header, the outer one of a nested token.
    pub header: Map<String, Value>,
    pub claims: Map<String, Value>,
    /// The decrypted content: claims, or the signed token of a nested one.
    pub payload: Option<Vec<u8>>,
    pub times: Times,
}

impl SignedToken {
    /// Verifies a token with the keys of these sets. Judges no times.
    ///
    /// # Errors
    /// See [`TokenFailure`].
    pub fn verify(text: &[u8], expected: ExpectedClaims, sets: &[&KeySet]) -> Result<SignedToken, TokenFailure> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenFailure::Malformed("token is too long"));
        }
        match expected {
            ExpectedClaims::Signed => {
                let (header, payload) = signed(text, sets)?;
                SignedToken::new(header, object(payload).ok_or(CLAIMS)?, None)
            }
            ExpectedClaims::Encrypted => {
                let (header, payload) = encrypted(text, sets)?;
                let claims = serde_json::from_slice(&payload).map_err(|_| CLAIMS)?;
                SignedToken::new(header, claims, Some(payload))
            }
            ExpectedClaims::Nested => {
                let (header, payload) = encrypted(text, sets)?;
                let claims = object(signed(&payload, sets)?.1).ok_or(CLAIMS)?;
                SignedToken::new(header, claims, Some(payload))
            }
        }
    }
    fn new(header: Header, claims: Map<String, Value>, payload: Option<Vec<u8>>) -> Result<SignedToken, TokenFailure> {
        let times = Times::of(&claims)?;
        Ok(SignedToken { header: header.0, claims, payload, times })
    }
    /// Tells whether verification of this token is slow: milliseconds.
    pub fn is_slow(text: &[u8], expected: ExpectedClaims) -> bool {
        expected != ExpectedClaims::Signed
            && UnverifiedToken::parse(text).is_some_and(|token| {
                member(&token.header, "alg").and_then(Management::named).is_some_and(Management::is_slow)
            })
    }
}

const CLAIMS: TokenFailure = TokenFailure::Malformed("claims are no JSON object");

/// Splits a compact serialization into exactly this many parts.
fn parts<const N: usize>(text: &[u8]) -> Option<[&[u8]; N]> {
    let mut all = text.split(|byte| *byte == b'.');
    let mut out = [b"".as_slice(); N];
    for part in &mut out {
        *part = all.next()?;
    }
    all.next().is_none().then_some(out)
}

/// Returns the encoded payload.
pub(crate) fn signed<'a>(text: &'a [u8], sets: &[&KeySet]) -> Result<(Header, &'a [u8]), TokenFailure> {
    let [protected, payload, signature] = parts(text).ok_or(TokenFailure::Malformed("not a signed token"))?;
    let header = Header::parse(protected)?;
    header.check()?;
    let name = header.name("alg").ok_or(TokenFailure::Algorithm)?;
    let algorithm = Algorithm::named(name).ok_or(TokenFailure::Algorithm)?;
    let signature = base64url(signature).ok_or(TokenFailure::Malformed("invalid base64url"))?;
    let message = text.get(..protected.len() + 1 + payload.len()).unwrap_or_default();
    let names = if matches!(algorithm, Algorithm::Ed25519) { ["EdDSA", "Ed25519"] } else { [name, name] };
    let keys = candidates(sets, header.name("kid"), Purpose::Verify, names).filter(|key| algorithm.fits(key));
    let mut left = COST_MAX;
    let keys = keys.take(KEYS_TRIED_MAX).take_while(|key| {
        let rest = left.checked_sub(key.cost());
        left = rest.unwrap_or_default();
        rest.is_some()
    });
    let verified = first(keys, |key| algorithm.verify(key, message, &signature).then_some(()));
    verified.map(|()| (header, payload))
}

pub(crate) fn encrypted(text: &[u8], sets: &[&KeySet]) -> Result<(Header, Vec<u8>), TokenFailure> {
    let [protected, wrapped, iv, ciphertext, tag] =
        parts(text).ok_or(TokenFailure::Malformed("not an encrypted token"))?;
    let header = Header::parse(protected)?;
    header.check()?;
    let (alg, enc) =
        (header.name("alg").ok_or(TokenFailure::Algorithm)?, header.name("enc").ok_or(TokenFailure::Algorithm)?);
    let management = Management::named(alg).ok_or(TokenFailure::Algorithm)?;
    let content = Content::named(enc).ok_or(TokenFailure::Algorithm)?;
    let decoded = |part| base64url(part).ok_or(TokenFailure::Malformed("invalid base64url"));
    let (wrapped, iv, ciphertext, tag) = (decoded(wrapped)?, decoded(iv)?, decoded(ciphertext)?, decoded(tag)?);
    let parts = Parts { protected, wrapped, iv, ciphertext, tag };
    // A key that encrypts the content directly may name that encryption as its algorithm.
    let names = [alg, if matches!(management, Management::Direct) { enc } else { alg }];
    let keys = candidates(sets, header.name("kid"), Purpose::Decrypt, names).filter(|key| management.fits(key));
    let tried = if management.is_slow() { SLOW_KEYS_TRIED_MAX } else { KEYS_TRIED_MAX };
    let payload = first(keys.take(tried), |key| decrypt_content(management, content, key, &header, &parts));
    payload.map(|payload| (header, payload))
}

fn first<'a, T>(keys: impl Iterator<Item = &'a Key>, attempt: impl Fn(&Key) -> Option<T>) -> Result<T, TokenFailure> {
    let mut failure = TokenFailure::NoKey;
    for key in keys {
        if let Some(done) = attempt(key) {
            return Ok(done);
        }
        failure = TokenFailure::Invalid;
    }
    Err(failure)
}

/// A token's readable parts, before verification: for the choice of keys by variables.
#[derive(Debug)]
pub struct UnverifiedToken {
    pub header: Map<String, Value>,
    /// Claims of a signed token.
    pub claims: Option<Map<String, Value>>,
}

impl UnverifiedToken {
    pub fn parse(text: &[u8]) -> Option<UnverifiedToken> {
        if text.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let header = object(text.split(|byte| *byte == b'.').next()?)?;
        let claims = parts::<3>(text).and_then(|[_, payload, _]| object(payload));
        Some(UnverifiedToken { header, claims })
    }
}

/// Finds a member by the names of a path. A name of letters in lower case also finds one that differs in case, as
/// variables have names without case.
pub fn find_member<'a>(members: &'a Map<String, Value>, path: &[impl AsRef<str>], any_case: bool) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let first = first.as_ref();
    let found = members.get(first).or_else(|| {
        let mut alike = members.iter().filter(|(name, _)| any_case && name.eq_ignore_ascii_case(first));
        alike.next().map(|(_, value)| value)
    })?;
    match (rest.is_empty(), found) {
        (true, found) => Some(found),
        (false, Value::Object(inner)) => find_member(inner, rest, any_case),
        _ => None,
    }
}

/// Appends a value as text: strings as they are, elements of arrays separated by commas, other values as JSON. Objects and
/// `null` have no text.
pub fn append_text(value: &Value, out: &mut Vec<u8>) -> bool {
    match value {
        Value::Null | Value::Object(_) => return false,
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        Value::Array(all) => {
            for (index, one) in all.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                match one {
                    Value::String(text) => out.extend_from_slice(text.as_bytes()),
                    other => out.extend_from_slice(other.to_string().as_bytes()),
                }
            }
        }
        other => out.extend_from_slice(other.to_string().as_bytes()),
    }
    true
}
