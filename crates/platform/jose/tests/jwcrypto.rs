//! Tokens and keys made by another implementation: jwcrypto (Python). Skipped with a notice where it is not installed.

use jose::{ExpectedClaims, KeySet, SignedToken};
use serde_json::Value;
use std::process::Command;

/// Prints a line of JSON for each token: the key set, the token, its type and its claims.
const MAKER: &str = r#"
import json, sys
from jwcrypto import jwk, jws, jwe

def show(keys, token, kind, claims):
    print(json.dumps({"keys": {"keys": keys}, "token": token, "kind": kind, "claims": claims}))

def public(key): return json.loads(key.export_public())
def whole(key): return json.loads(key.export())

def sign(key, alg, claims):
    token = jws.JWS(json.dumps(claims))
    token.add_signature(key, None, json.dumps({"alg": alg, "kid": key.key_id, "typ": "JWT"}))
    return token.serialize(True)

def encrypt(key, alg, enc, text):
    token = jwe.JWE(text, json.dumps({"alg": alg, "enc": enc, "kid": key.key_id}), algs=jwe.default_allowed_algs)
    token.add_recipient(key)
    return token.serialize(True)

claims = {"sub": "j\u00f6e", "n": 1, "deep": {"a": ["b", None, True]}, "exp": 4102444800}
rsa = jwk.JWK.generate(kty="RSA", size=2048, kid="rsa")
large = jwk.JWK.generate(kty="RSA", size=4096, kid="large")
signers = [(jwk.JWK.generate(kty="oct", size=size, kid=name), name)
           for size, name in [(256, "HS256"), (384, "HS384"), (512, "HS512"), (4096, "HS256")]]
signers += [(rsa, name) for name in ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]]
signers += [(large, "RS256"), (large, "PS512")]
signers += [(jwk.JWK.generate(kty="EC", crv=crv, kid=crv), name)
            for crv, name in [("P-256", "ES256"), ("P-384", "ES384"), ("P-521", "ES512")]]
signers += [(jwk.JWK.generate(kty="OKP", crv="Ed25519", kid="ed"), "EdDSA")]
for key, alg in signers:
    exported = whole(key) if alg.startswith("HS") else public(key)
    for i in range(4):
        show([exported], sign(key, alg, claims), "signed", claims)
encs = ["A128GCM", "A192GCM", "A256GCM", "A128CBC-HS256", "A192CBC-HS384", "A256CBC-HS512"]
signer = signers[0][0]
for enc in encs:
    keys = [(rsa, "RSA-OAEP"), (rsa, "RSA-OAEP-256")]
    for size in (128, 192, 256):
        key = jwk.JWK.generate(kty="oct", size=size, kid="wrap")
        keys += [(key, "A%dKW" % size), (key, "A%dGCMKW" % size)]
    bits = {"A128GCM": 128, "A192GCM": 192, "A256GCM": 256, "A128CBC-HS256": 256, "A192CBC-HS384": 384, "A256CBC-HS512": 512}
    keys += [(jwk.JWK.generate(kty="oct", size=bits[enc], kid="dir"), "dir")]
    for key, alg in keys:
        # Padding of every length.
        for more in range(0, 17, 5):
            wide = dict(claims, pad="x" * more)
            show([whole(key)], encrypt(key, alg, enc, json.dumps(wide)), "encrypted", wide)
        show([whole(key), whole(signer)], encrypt(key, alg, enc, sign(signer, "HS256", claims)), "nested", claims)
"#;

/// A Python that has jwcrypto. Debian's packages are for the one in /usr/bin.
fn python() -> Option<String> {
    let named = std::env::var("PYTHON").ok();
    let all = named.into_iter().chain(["python3".into(), "/usr/bin/python3".into()]);
    let has = |python: &String| {
        Command::new(python).args(["-c", "import jwcrypto"]).output().is_ok_and(|o| o.status.success())
    };
    all.into_iter().find(has)
}

/// Every token is verified with its keys, and neither with other keys nor changed.
#[test]
fn tokens_of_jwcrypto_are_verified() {
    let Some(python) = python() else {
        testkit::missing_peer("jwcrypto (Debian: python3-jwcrypto) is missing; tokens of another maker are not tried");
        return;
    };
    let made = Command::new(&python).args(["-c", MAKER]).output().expect("python runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let stranger = KeySet::parse(br#"{"keys":[{"kty":"oct","k":"c3RyYW5nZXI"}]}"#).expect("a key");
    let mut count = 0;
    for line in String::from_utf8(made.stdout).expect("UTF-8").lines() {
        let made: Value = serde_json::from_str(line).expect("JSON");
        let token = made["token"].as_str().expect("a token");
        let keys = KeySet::parse(made["keys"].to_string().as_bytes()).expect(line);
        let expected = match made["kind"].as_str() {
            Some("signed") => ExpectedClaims::Signed,
            Some("encrypted") => ExpectedClaims::Encrypted,
            _ => ExpectedClaims::Nested,
        };
        let verified =
            SignedToken::verify(token.as_bytes(), expected, &[&keys]).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_eq!(Value::Object(verified.claims), made["claims"], "{line}");
        assert_eq!(verified.times.check(1.7e9, 0.0), Ok(()));
        assert!(SignedToken::verify(token.as_bytes(), expected, &[&stranger]).is_err(), "{line}");
        // A changed last character of each part.
        for at in token.match_indices('.').map(|(at, _)| at).chain([token.len()]) {
            if at == 0 || token.as_bytes()[at - 1] == b'.' {
                continue;
            }
            let mut changed = token.as_bytes().to_vec();
            changed[at - 1] = if changed[at - 1] == b'A' { b'Q' } else { b'A' };
            if changed != token.as_bytes() {
                assert!(SignedToken::verify(&changed, expected, &[&keys]).is_err(), "{line}: changed before {at}");
            }
        }
        count += 1;
    }
    assert!(count > 300, "{count}");
}
