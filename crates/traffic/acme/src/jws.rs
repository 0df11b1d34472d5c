//! Signed requests: flattened JSON web signatures (RFC 7515, section 7.2.2; RFC 8555, section 6.2).

use crate::key::AccountKey;
use crate::session::{Binding, BindingDigest};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Signs a payload. `account`: the account's URL; without one the key itself goes with the request.
pub(crate) fn sign(
    key: &AccountKey,
    account: Option<&str>,
    nonce: &str,
    url: &str,
    payload: &str,
) -> Result<String, String> {
    let mut head = json!({ "alg": key.name(), "nonce": nonce, "url": url });
    match account {
        Some(account) => head["kid"] = account.into(),
        None => head["jwk"] = serde_json::from_str(key.jwk()).map_err(|e| e.to_string())?,
    }
    let (protected, payload) = (encode(head.to_string()), encode(payload));
    let signature = encode(key.sign(format!("{protected}.{payload}").as_bytes())?);
    Ok(json!({ "protected": protected, "payload": payload, "signature": signature }).to_string())
}

/// Binds an account to one that the authority knows elsewhere (RFC 8555, section 7.3.4).
pub(crate) fn bind(key: &AccountKey, binding: &Binding, url: &str) -> Value {
    let (name, algorithm) = match binding.digest {
        BindingDigest::Sha256 => ("HS256", hmac::HMAC_SHA256),
        BindingDigest::Sha384 => ("HS384", hmac::HMAC_SHA384),
        BindingDigest::Sha512 => ("HS512", hmac::HMAC_SHA512),
    };
    let protected = encode(json!({ "alg": name, "kid": binding.id, "url": url }).to_string());
    let payload = encode(key.jwk());
    let secret = hmac::Key::new(algorithm, &binding.secret);
    let signature = encode(hmac::sign(&secret, format!("{protected}.{payload}").as_bytes()));
    json!({ "protected": protected, "payload": payload, "signature": signature })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    fn part(jws: &Value, name: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(jws[name].as_str().expect("text")).expect("base64url")
    }

    #[test]
    fn signatures_verify() {
        let key = AccountKey::generate(Algorithm::Ecdsa(256)).expect("generated");
        let jws = sign(&key, None, "n", "https://a/b", "{}").expect("signed");
        let jws: Value = serde_json::from_str(&jws).expect("JSON");
        let head: Value = serde_json::from_slice(&part(&jws, "protected")).expect("JSON");
        assert_eq!((&head["alg"], &head["nonce"], &head["url"]), (&"ES256".into(), &"n".into(), &"https://a/b".into()));
        assert_eq!((head["kid"].is_null(), part(&jws, "payload")), (true, b"{}".to_vec()));
        let coordinate =
            |name: &str| URL_SAFE_NO_PAD.decode(head["jwk"][name].as_str().expect("text")).expect("base64url");
        let point = [vec![4], coordinate("x"), coordinate("y")].concat();
        let signed = format!("{}.{}", jws["protected"].as_str().expect("text"), jws["payload"].as_str().expect("text"));
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        public.verify(signed.as_bytes(), &part(&jws, "signature")).expect("a valid signature");
        let jws = sign(&key, Some("https://a/1"), "n", "https://a/b", "").expect("signed");
        let jws: Value = serde_json::from_str(&jws).expect("JSON");
        let head: Value = serde_json::from_slice(&part(&jws, "protected")).expect("JSON");
        assert_eq!((&head["kid"], head["jwk"].is_null(), &jws["payload"]), (&"https://a/1".into(), true, &"".into()));
    }
}
