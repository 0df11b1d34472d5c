//! Keys and key sets (RFC 7517, RFC 7518 section 6), and the choice of keys for a token.

use crate::{base64url, der};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rsa::{OaepPrivateDecryptingKey, PrivateDecryptingKey};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519};
use aws_lc_rs::signature::{ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, VerificationAlgorithm};
use serde_json::{Map, Value};

/// In bytes.
pub const KEY_SET_BYTES_MAX: usize = 1 << 20;
/// Maximum number of keys per set.
pub const KEYS_MAX: usize = 1_000;

/// Lengths of an RSA key's modulus in bytes (RFC 7518, 3.3, and aws-lc-rs).
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySetError {
    Malformed(String),
    /// Longer than [`KEY_SET_BYTES_MAX`], or more than [`KEYS_MAX`] keys.
    TooLarge,
    /// The set has keys, and none of them can be used; the reason is that of the first one.
    Unusable(&'static str),
}

impl std::fmt::Display for KeySetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeySetError::Malformed(why) => write!(f, "invalid JWK set: {why}"),
            KeySetError::TooLarge => write!(f, "JWK set is larger than {KEY_SET_BYTES_MAX} bytes or {KEYS_MAX} keys"),
            KeySetError::Unusable(why) => write!(f, "JWK set has no usable key: {why}"),
        }
    }
}

impl std::error::Error for KeySetError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Curve {
    P256,
    P384,
    P521,
}

/// A key by its type, in the form that its algorithms take.
pub(crate) enum Material {
    Oct(Box<[u8]>),
    /// An RSAPublicKey, and the private key if the set has it.
    Rsa(Box<[u8]>, Option<Box<OaepPrivateDecryptingKey>>),
    Ec(Curve, Box<ParsedPublicKey>),
    Ed25519(Box<ParsedPublicKey>),
}

/// The use of a key by a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Verify,
    Decrypt,
}

/// A key with the restrictions of its owner.
pub(crate) struct Key {
    kid: Option<Box<str>>,
    alg: Option<Box<str>>,
    usage: Option<Box<str>>,
    operations: Option<Box<[Box<str>]>>,
    pub material: Material,
}

impl Key {
    /// Cost of a verification, in those with an RSA key of 2048 bits: it grows with the square of the modulus.
    pub fn cost(&self) -> usize {
        match &self.material {
            Material::Rsa(public, _) => (public.len() / RSA_BYTES.start()).pow(2).max(1),
            Material::Oct(_) | Material::Ec(..) | Material::Ed25519(_) => 1,
        }
    }
    fn parse(members: &Map<String, Value>) -> Result<Key, &'static str> {
        let text = |name: &str| match members.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err("a member that must be a string is none"),
        };
        let bytes = |name: &'static str| {
            let text = text(name)?.ok_or("a member that the type of key needs is missing")?;
            base64url(text.as_bytes()).filter(|bytes| !bytes.is_empty()).ok_or("a member is not base64url")
        };
        let parsed = |algorithm: &'static dyn VerificationAlgorithm, public: &[u8]| -> Result<_, &'static str> {
            Ok(Box::new(ParsedPublicKey::new(algorithm, public).map_err(|_| "the public key is invalid")?))
        };
        let material = match text("kty")?.ok_or("\"kty\" is missing")? {
            "oct" => Material::Oct(bytes("k")?.into()),
            "RSA" => {
                let (n, e) = (bytes("n")?, bytes("e")?);
                let public = der::rsa_public(&n, &e);
                let bytes_of_n = n.iter().skip_while(|byte| **byte == 0).count();
                if !RSA_BYTES.contains(&bytes_of_n) {
                    return Err("an RSA key has 2048 to 8192 bits");
                }
                parsed(&RSA_PKCS1_2048_8192_SHA256, &public)?;
                let private = match members.contains_key("d") {
                    false => None,
                    true => {
                        let rest = ["d", "p", "q", "dp", "dq", "qi"].map(bytes);
                        let [d, p, q, dp, dq, qi] = rest;
                        let (d, p, q, dp, dq, qi) = (d?, p?, q?, dp?, dq?, qi?);
                        let whole = der::rsa_private([&n, &e, &d, &p, &q, &dp, &dq, &qi]);
                        let key = PrivateDecryptingKey::from_pkcs8(&whole).and_then(|key| {
                            OaepPrivateDecryptingKey::new(key)
                                .map_err(|_| aws_lc_rs::error::KeyRejected::from(aws_lc_rs::error::Unspecified))
                        });
                        Some(Box::new(key.map_err(|_| "the RSA private key is invalid")?))
                    }
                };
                Material::Rsa(public.into(), private)
            }
            "EC" => {
                let (curve, size, algorithm): (_, _, &'static dyn VerificationAlgorithm) = match text("crv")? {
                    Some("P-256") => (Curve::P256, 32, &ECDSA_P256_SHA256_FIXED),
                    Some("P-384") => (Curve::P384, 48, &ECDSA_P384_SHA384_FIXED),
                    Some("P-521") => (Curve::P521, 66, &ECDSA_P521_SHA512_FIXED),
                    _ => return Err("the curve is not supported"),
                };
                let (x, y) = (bytes("x")?, bytes("y")?);
                if x.len() != size || y.len() != size {
                    return Err("the length of a coordinate is not that of the curve");
                }
                let point = [&[4u8][..], &x, &y].concat();
                Material::Ec(curve, parsed(algorithm, &point)?)
            }
            "OKP" => match text("crv")? {
                Some("Ed25519") => Material::Ed25519(parsed(&ED25519, &bytes("x")?)?),
                _ => return Err("the curve is not supported"),
            },
            _ => return Err("the type of key is not supported"),
        };
        let operations = match members.get("key_ops") {
            None => None,
            Some(Value::Array(all)) => Some(all.iter().filter_map(Value::as_str).map(Box::from).collect()),
            Some(_) => return Err("\"key_ops\" is no array"),
        };
        let (kid, alg, usage) = (text("kid")?, text("alg")?, text("use")?);
        let owned = |text: Option<&str>| text.map(Box::from);
        Ok(Key { kid: owned(kid), alg: owned(alg), usage: owned(usage), operations, material })
    }

    fn permits(&self, purpose: Purpose, algorithms: [&str; 2]) -> bool {
        let (usage, operations): (_, &[&str]) = match purpose {
            Purpose::Verify => ("sig", &["verify"]),
            Purpose::Decrypt => ("enc", &["decrypt", "unwrapKey"]),
        };
        self.usage.as_deref().is_none_or(|own| own == usage)
            && self.operations.as_ref().is_none_or(|own| own.iter().any(|one| operations.contains(&&**one)))
            && self.alg.as_deref().is_none_or(|own| algorithms.contains(&own))
    }
}

/// A key set: a `keys` array, or a single key.
pub struct KeySet {
    keys: Vec<Key>,
    digest: [u8; 32],
    skipped: Vec<&'static str>,
}

impl KeySet {
    /// Parses a key set. Keys that are unknown or invalid are skipped (RFC 7517, section 5).
    ///
    /// # Errors
    /// See [`KeySetError`].
    pub fn parse(text: &[u8]) -> Result<KeySet, KeySetError> {
        if text.len() > KEY_SET_BYTES_MAX {
            return Err(KeySetError::TooLarge);
        }
        let malformed = |why: &str| KeySetError::Malformed(why.to_string());
        let whole = serde_json::from_slice::<Value>(text).map_err(|e| KeySetError::Malformed(e.to_string()))?;
        let Value::Object(members) = whole else { return Err(malformed("the outermost value is no object")) };
        let all: &[Value] = match members.get("keys") {
            Some(Value::Array(keys)) => keys,
            None if members.contains_key("kty") => &[Value::Object(members)],
            _ => return Err(malformed("it has no array \"keys\"")),
        };
        if all.len() > KEYS_MAX {
            return Err(KeySetError::TooLarge);
        }
        let mut set = KeySet { keys: Vec::new(), digest: sha256(text), skipped: Vec::new() };
        for key in all {
            match key.as_object().ok_or("a key is no object").and_then(Key::parse) {
                Ok(key) => set.keys.push(key),
                Err(why) => set.skipped.push(why),
            }
        }
        match set.skipped.first() {
            Some(why) if set.keys.is_empty() => Err(KeySetError::Unusable(why)),
            _ => Ok(set),
        }
    }
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
    pub fn len(&self) -> usize {
        self.keys.len()
    }
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
    pub fn skipped(&self) -> &[&'static str] {
        &self.skipped
    }
}

/// Contents are secret.
impl std::fmt::Debug for KeySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeySet({} keys, {} skipped)", self.keys.len(), self.skipped.len())
    }
}

/// Returns the keys that may serve a token, in the order of the sets: those with its `kid`, or, if no key has it, those
/// without a `kid`. A token without `kid` may use any.
pub(crate) fn candidates<'a>(
    sets: &'a [&'a KeySet],
    kid: Option<&'a str>,
    purpose: Purpose,
    algorithms: [&'a str; 2],
) -> impl Iterator<Item = &'a Key> {
    let all = || sets.iter().flat_map(|set| &set.keys);
    let known = kid.is_some() && all().any(|key| key.kid.as_deref() == kid);
    all()
        .filter(move |key| match (kid, known) {
            (None, _) => true,
            (Some(_), true) => key.kid.as_deref() == kid,
            (Some(_), false) => key.kid.is_none(),
        })
        .filter(move |key| key.permits(purpose, algorithms))
}

pub(crate) fn sha256(text: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    for (to, from) in out.iter_mut().zip(digest(&SHA256, text).as_ref()) {
        *to = *from;
    }
    out
}
