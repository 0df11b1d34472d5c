//! Tests with the vectors of the RFCs (`vectors.json`), and of attacks on the choice of keys.

use crate::token::{encrypted, signed};
use crate::{
    ExpectedClaims, KeySet, KeySetError, SignedToken, Times, TokenFailure, UnverifiedToken, append_text, base64url,
    find_member,
};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn set(text: &Value) -> KeySet {
    KeySet::parse(text.to_string().as_bytes()).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// A token signed with HMAC-SHA-256, whatever its header says.
fn hs256(header: &Value, claims: &str, secret: &[u8]) -> String {
    let message = format!("{}.{}", encode(header.to_string()), encode(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    format!("{message}.{}", encode(tag))
}

fn oct(secret: &[u8]) -> Value {
    json!({"kty": "oct", "k": encode(secret)})
}

#[test]
fn vectors_of_the_rfcs() {
    let all: Vec<Value> = serde_json::from_str(include_str!("vectors.json")).expect("JSON");
    assert!(all.len() > 20);
    for vector in &all {
        let (source, token) = (&vector["source"], vector["token"].as_str().expect("a token").as_bytes());
        let keys = set(&json!({"keys": [vector["key"]]}));
        let payload = match vector["kind"].as_str() {
            Some("signed") => signed(token, &[&keys]).map(|(_, payload)| base64url(payload).expect("base64url")),
            _ => encrypted(token, &[&keys]).map(|(_, payload)| payload),
        };
        match vector["refused"].as_str() {
            Some(why) => assert_eq!(payload.expect_err("refused").to_string(), why, "{source}"),
            None => {
                let expected = base64url(vector["payload"].as_str().expect("a payload").as_bytes()).expect("base64url");
                assert_eq!(payload.unwrap_or_else(|e| panic!("{source}: {e}")), expected, "{source}");
                changed_tokens_are_refused(source, token, &keys, vector["kind"] == "signed");
            }
        }
    }
}

/// Changes each part of a token in turn, in a way that leaves base64url valid.
fn changed_tokens_are_refused(source: &Value, token: &[u8], keys: &KeySet, is_signed: bool) {
    let starts: Vec<usize> =
        std::iter::once(0).chain(token.iter().enumerate().filter(|(_, c)| **c == b'.').map(|(i, _)| i + 1)).collect();
    for start in starts {
        let Some(first) = token.get(start).filter(|c| **c != b'.') else { continue };
        let mut changed = token.to_vec();
        changed[start] = if *first == b'A' { b'B' } else { b'A' };
        let accepted = if is_signed { signed(&changed, &[keys]).is_ok() } else { encrypted(&changed, &[keys]).is_ok() };
        assert!(!accepted, "{source}, changed at {start}");
    }
    for cut in [1, token.len() / 2] {
        let short = &token[..token.len() - cut];
        assert!(signed(short, &[keys]).is_err() && encrypted(short, &[keys]).is_err(), "{source}, cut by {cut}");
    }
}

#[test]
fn a_public_key_is_no_secret() {
    // The classic confusion: HMAC with the text of the public key.
    let all: Vec<Value> = serde_json::from_str(include_str!("vectors.json")).expect("JSON");
    let rsa = all.iter().find(|v| v["source"] == "RFC 7520 4.1").expect("the vector")["key"].clone();
    let modulus = base64url(rsa["n"].as_str().expect("n").as_bytes()).expect("base64url");
    let keys = set(&json!({"keys": [rsa]}));
    for secret in [rsa.to_string().into_bytes(), modulus, Vec::new(), rsa["n"].to_string().into_bytes()] {
        let token = hs256(&json!({"alg": "HS256"}), "{}", &secret);
        assert_eq!(
            SignedToken::verify(token.as_bytes(), ExpectedClaims::Signed, &[&keys]).expect_err("no"),
            TokenFailure::NoKey
        );
    }
    // An elliptic curve's signature algorithm with a key of another curve.
    let p521 = all.iter().find(|v| v["source"] == "RFC 7520 4.3").expect("the vector");
    let token = format!("{}.e30.{}", encode("{\"alg\":\"ES256\"}"), encode([1; 64]));
    let keys = set(&p521["key"]);
    assert_eq!(
        SignedToken::verify(token.as_bytes(), ExpectedClaims::Signed, &[&keys]).expect_err("no"),
        TokenFailure::NoKey
    );
}

#[test]
fn none_is_no_algorithm() {
    let keys = set(&oct(b"secret"));
    for alg in ["none", "None", "NONE", "nOnE", "", "HS1", "hs256"] {
        for signature in ["", "AA"] {
            let token =
                format!("{}.{}.{signature}", encode(json!({"alg": alg}).to_string()), encode("{\"sub\":\"a\"}"));
            let failure =
                SignedToken::verify(token.as_bytes(), ExpectedClaims::Signed, &[&keys]).expect_err("no signature");
            assert_eq!(failure, TokenFailure::Algorithm, "{alg}");
        }
    }
    let token = format!("{}.{}.", encode("{}"), encode("{}"));
    assert_eq!(
        SignedToken::verify(token.as_bytes(), ExpectedClaims::Signed, &[&keys]).expect_err("no alg"),
        TokenFailure::Algorithm
    );
    let token = format!("{}.{}.", encode("{\"alg\":\"HS256\"}"), encode("{}"));
    assert_eq!(
        SignedToken::verify(token.as_bytes(), ExpectedClaims::Signed, &[&keys]).expect_err("no tag"),
        TokenFailure::Invalid
    );
}

#[test]
fn keys_keep_to_their_restrictions() {
    let token = |kid: &str| hs256(&json!({"alg": "HS256", "kid": kid}), "{}", b"secret");
    let with = |extra: Value| {
        let mut key = oct(b"secret");
        key.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        key
    };
    let try_with = |keys: &[Value], kid: &str| {
        let keys = set(&json!({ "keys": keys }));
        SignedToken::verify(token(kid).as_bytes(), ExpectedClaims::Signed, &[&keys]).map(|_| ())
    };
    for (extra, verdict) in [
        (json!({}), Ok(())),
        (json!({"kid": "a"}), Ok(())),
        (json!({"kid": "b"}), Err(TokenFailure::NoKey)),
        (json!({"alg": "HS256", "use": "sig", "key_ops": ["sign", "verify"]}), Ok(())),
        (json!({"alg": "HS512"}), Err(TokenFailure::NoKey)),
        (json!({"use": "enc"}), Err(TokenFailure::NoKey)),
        (json!({"key_ops": ["sign"]}), Err(TokenFailure::NoKey)),
        (json!({"key_ops": []}), Err(TokenFailure::NoKey)),
    ] {
        assert_eq!(try_with(&[with(extra.clone())], "a"), verdict, "{extra}");
    }
    let (mine, other) = (with(json!({"kid": "a"})), json!({"kty": "oct", "k": encode("other"), "kid": "a"}));
    assert_eq!(try_with(&[other.clone(), mine.clone()], "a"), Ok(()), "two keys of one kid");
    assert_eq!(
        try_with(&[other.clone(), with(json!({}))], "a"),
        Err(TokenFailure::Invalid),
        "a kid that is known is decisive"
    );
    let many: Vec<Value> = (0..200).map(|i| json!({"kty": "oct", "k": encode(format!("{i}"))})).chain([mine]).collect();
    let keys = set(&json!({ "keys": many }));
    let anonymous = hs256(&json!({"alg": "HS256"}), "{}", b"secret");
    let failure =
        SignedToken::verify(anonymous.as_bytes(), ExpectedClaims::Signed, &[&keys]).expect_err("too many keys to try");
    assert_eq!(failure, TokenFailure::Invalid);
    assert_eq!(try_with(&many, "a"), Ok(()), "a kid finds its key among many");
    // Keys of several sets.
    let (one, two) = (set(&other), set(&with(json!({"kid": "c"}))));
    let token = hs256(&json!({"alg": "HS256", "kid": "c"}), "{}", b"secret");
    assert!(SignedToken::verify(token.as_bytes(), ExpectedClaims::Signed, &[&one, &two]).is_ok());
}

/// A verification takes a millisecond with a key of 8192 bits.
#[test]
fn long_keys_count_for_several() {
    let all: Vec<Value> = serde_json::from_str(include_str!("vectors.json")).expect("JSON");
    let vector = all.iter().find(|vector| vector["source"] == "RFC 7515 A.2").expect("a token of RS256");
    let long =
        |n: usize| json!({"kty": "RSA", "n": encode([vec![0xff; 1023], vec![n as u8 * 2 + 1]].concat()), "e": "AQAB"});
    let verify = |others: usize| {
        let keys: Vec<Value> = (0..others).map(long).chain([vector["key"].clone()]).collect();
        signed(vector["token"].as_str().expect("a token").as_bytes(), &[&set(&json!({ "keys": keys }))]).map(|_| ())
    };
    assert_eq!(verify(7), Ok(()));
    assert_eq!(verify(8), Err(TokenFailure::Invalid));
}

#[test]
fn malformed_tokens() {
    let keys = set(&oct(b"secret"));
    let refused = |token: &str, expected| SignedToken::verify(token.as_bytes(), expected, &[&keys]).expect_err(token);
    for token in ["", ".", "..", "a.b", "a.b.c.d", "a.b.c.d.e", " e30.e30.", "e30=.e30.", "\u{0}.\u{0}.\u{0}"] {
        for expected in [ExpectedClaims::Signed, ExpectedClaims::Encrypted, ExpectedClaims::Nested] {
            assert!(
                matches!(refused(token, expected), TokenFailure::Malformed(_) | TokenFailure::Algorithm),
                "{token}"
            );
        }
    }
    let good = hs256(&json!({"alg": "HS256"}), "{}", b"secret");
    assert!(SignedToken::verify(good.as_bytes(), ExpectedClaims::Signed, &[&keys]).is_ok());
    assert_eq!(refused(&good, ExpectedClaims::Encrypted), TokenFailure::Malformed("not an encrypted token"));
    assert!(matches!(refused(&format!("{good}="), ExpectedClaims::Signed), TokenFailure::Malformed(_)), "padding");
    for claims in [
        "[]",
        "1",
        "",
        "{",
        "{\"exp\":\"soon\"}",
        "{\"nbf\":{}}",
        "{\"exp\":null}",
        "{\"exp\":1e999}",
        "{\"exp\":NaN}",
        "{\"exp\":true}",
    ] {
        let token = hs256(&json!({"alg": "HS256"}), claims, b"secret");
        assert!(matches!(refused(&token, ExpectedClaims::Signed), TokenFailure::Malformed(_)), "{claims}");
    }
    for header in [
        json!({"alg": "HS256", "crit": ["exp"]}),
        json!({"alg": "HS256", "crit": []}),
        json!({"alg": "HS256", "crit": null}),
        json!({"alg": "HS256", "crit": ["b64"], "b64": false}),
        json!({"alg": "HS256", "b64": false}),
        json!({"alg": "HS256", "b64": "false"}),
        json!({"alg": "HS256", "zip": "DEF"}),
    ] {
        let token = hs256(&header, "{}", b"secret");
        assert!(matches!(refused(&token, ExpectedClaims::Signed), TokenFailure::Malformed(_)), "{header}");
    }
    let huge_name = hs256(&json!({"alg": "HS256", "kid": "k".repeat(1 << 20)}), "{}", b"secret");
    assert_eq!(refused(&huge_name, ExpectedClaims::Signed), TokenFailure::Malformed("token is too long"));
    let nested_name = hs256(&json!({"alg": "HS256", "kid": {"a": ["x"]}}), "{}", b"secret");
    assert!(
        SignedToken::verify(nested_name.as_bytes(), ExpectedClaims::Signed, &[&keys]).is_ok(),
        "a name that is none: any key"
    );
    let long = hs256(&json!({"alg": "HS256"}), &format!("{{\"a\":\"{}\"}}", "x".repeat(80_000)), b"secret");
    assert_eq!(refused(&long, ExpectedClaims::Signed), TokenFailure::Malformed("token is too long"));
    let deep =
        hs256(&json!({"alg": "HS256"}), &format!("{{\"a\":{}1{}}}", "[".repeat(5_000), "]".repeat(5_000)), b"secret");
    assert!(matches!(refused(&deep, ExpectedClaims::Signed), TokenFailure::Malformed(_)));
}

#[test]
fn times_are_judged_with_leeway() {
    let times = |claims: &str| {
        let token = hs256(&json!({"alg": "HS256"}), claims, b"secret");
        SignedToken::verify(token.as_bytes(), ExpectedClaims::Signed, &[&set(&oct(b"secret"))]).expect(claims).times
    };
    assert_eq!(times("{}"), Times::default());
    let exp = times("{\"exp\":1000}");
    assert_eq!((exp.check(999.9, 0.0), exp.check(1000.0, 0.0)), (Ok(()), Err(TokenFailure::Expired)));
    assert_eq!((exp.check(1059.0, 60.0), exp.check(1060.0, 60.0)), (Ok(()), Err(TokenFailure::Expired)));
    for (claims, at) in [
        // The last of equal names, as RFC 7519 permits (section 4).
        ("{\"exp\":1,\"exp\":1000}", 999.0),
        ("{\"exp\":1000.0e0}", 999.0),
        ("{\"exp\":18446744073709551615}", 1e12),
        ("{\"exp\":99999999999999999999999999}", 1e12),
        ("{\"nbf\":-1e300}", 0.0),
    ] {
        assert_eq!(times(claims).check(at, 0.0), Ok(()), "{claims}");
    }
    for claims in ["{\"exp\":-1}", "{\"exp\":-1e300}", "{\"exp\":0}", "{\"exp\":1000,\"exp\":1}", "{\"exp\":-0.0}"] {
        assert_eq!(times(claims).check(500.0, 60.0), Err(TokenFailure::Expired), "{claims}");
    }
    let nbf = times("{\"nbf\":1000.5}");
    assert_eq!((nbf.check(1000.0, 0.0), nbf.check(1000.5, 0.0)), (Err(TokenFailure::NotYet), Ok(())));
    assert_eq!((nbf.check(940.0, 60.0), nbf.check(941.0, 60.0)), (Err(TokenFailure::NotYet), Ok(())));
    assert_eq!(times("{\"exp\":1e300,\"nbf\":-5}").check(1e12, 0.0), Ok(()));
}

#[test]
fn key_sets_are_read_with_care() {
    let error = |text: &str| KeySet::parse(text.as_bytes()).expect_err(text);
    for text in ["", "[]", "{}", "{\"keys\":{}}", "{\"keys\":", "null"] {
        assert!(matches!(error(text), KeySetError::Malformed(_)), "{text}");
    }
    assert_eq!(KeySet::parse(b"{\"keys\":[]}").expect("a set").len(), 0);
    for (key, why) in [
        (json!({}), "\"kty\" is missing"),
        (json!({"kty": "none"}), "the type of key is not supported"),
        (json!({"kty": 1}), "a member that must be a string is none"),
        (json!({"kty": "oct"}), "a member that the type of key needs is missing"),
        (json!({"kty": "oct", "k": ""}), "a member is not base64url"),
        (json!({"kty": "oct", "k": "a b"}), "a member is not base64url"),
        (json!({"kty": "RSA", "n": "AQAB", "e": "AQAB"}), "an RSA key has 2048 to 8192 bits"),
        (
            json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}),
            "the length of a coordinate is not that of the curve",
        ),
        (json!({"kty": "EC", "crv": "P-256", "x": encode([1; 32]), "y": encode([1; 32])}), "the public key is invalid"),
        (json!({"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"}), "the curve is not supported"),
        (json!({"kty": "OKP", "crv": "Ed448", "x": "AA"}), "the curve is not supported"),
        (json!({"kty": "oct", "k": "AA", "key_ops": "verify"}), "\"key_ops\" is no array"),
    ] {
        assert_eq!(error(&json!({ "keys": [key] }).to_string()), KeySetError::Unusable(why), "{key}");
        let both = set(&json!({ "keys": [key, {"kty": "oct", "k": "AA"}] }));
        assert_eq!((both.len(), both.skipped()), (1, &[why][..]));
    }
    assert_eq!(error(&json!({ "keys": vec![oct(b"a"); 1_001] }).to_string()), KeySetError::TooLarge);
    assert_eq!(error(&" ".repeat(crate::key::KEY_SET_BYTES_MAX + 1)), KeySetError::TooLarge);
    let shown = format!("{:?}", set(&oct(b"secret")));
    assert_eq!(shown, "KeySet(1 keys, 0 skipped)", "no secret is printed");
}

#[test]
fn values_as_text() {
    let members = json!({
        "sub": "joe", "n": 12, "f": 1.5, "yes": true, "none": null, "groups": ["a", "b", 3, {"c": 1}], "blank": [],
        "info": {"e-mail": "a@b", "job title": "x", "in": {"deep": ["1", "2"]}}, "userId": "u"
    });
    let Value::Object(members) = members else { unreachable!() };
    let show = |path: &[&str]| {
        let mut out = Vec::new();
        let found = find_member(&members, path, true).is_some_and(|value| append_text(value, &mut out));
        found.then(|| String::from_utf8(out).expect("UTF-8"))
    };
    for (path, value) in [
        (&["sub"][..], Some("joe")),
        (&["n"], Some("12")),
        (&["f"], Some("1.5")),
        (&["yes"], Some("true")),
        (&["none"], None),
        (&["groups"], Some("a,b,3,{\"c\":1}")),
        (&["blank"], Some("")),
        (&["info"], None),
        (&["info", "e-mail"], Some("a@b")),
        (&["info", "job title"], Some("x")),
        (&["info", "in", "deep"], Some("1,2")),
        (&["sub", "x"], None),
        (&["userid"], Some("u")),
        (&["missing"], None),
        (&[], None),
    ] {
        assert_eq!(show(path).as_deref(), value, "{path:?}");
    }
    assert!(find_member(&members, &["userid"], false).is_none());
}

#[test]
fn headers_and_claims_are_readable_before_verification() {
    let token = hs256(&json!({"alg": "HS256", "kid": "a"}), "{\"iss\":\"me\"}", b"any");
    let read = UnverifiedToken::parse(token.as_bytes()).expect("readable");
    assert_eq!((&read.header["kid"], &read.claims.expect("claims")["iss"]), (&json!("a"), &json!("me")));
    let read = UnverifiedToken::parse(format!("{}.a.b.c.d", encode("{\"alg\":\"dir\"}")).as_bytes()).expect("readable");
    assert!(read.claims.is_none());
    assert!(UnverifiedToken::parse(b"no token").is_none());
}

#[test]
fn fuzzing_body_holds_with_seeds() {
    crate::fuzzing::jwt(b"");
    crate::fuzzing::jwt(b"{\"keys\":[{\"kty\":\"oct\",\"k\":\"AA\"}]}");
    crate::fuzzing::jwt(hs256(&json!({"alg": "HS256"}), "{\"exp\":1}", &(0..16).collect::<Vec<u8>>()).as_bytes());
    let all: Vec<Value> = serde_json::from_str(include_str!("vectors.json")).expect("JSON");
    for vector in &all {
        let token = vector["token"].as_str().expect("a token").as_bytes();
        crate::fuzzing::jwt(token);
        for step in (0..token.len()).step_by(7) {
            let mut changed = token.to_vec();
            changed[step] ^= 1 << (step % 8);
            crate::fuzzing::jwt(&changed);
            crate::fuzzing::jwt(&token[..step]);
        }
    }
}
