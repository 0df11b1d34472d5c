//! Body of the fuzz target `jwt`: any bytes as a token and as a key set. A panic fails the run; so does a token that is
//! accepted without a key.

use crate::{ExpectedClaims, KeySet, SignedToken, TOKEN_BYTES_MAX, UnverifiedToken};

/// Keys whose algorithms a fuzzer can reach without computing a signature.
const KEYS: &[u8] = br#"{"keys":[{"kty":"oct","k":"AAECAwQFBgcICQoLDA0ODw"},{"kty":"oct","k":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"},
{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"},
{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

/// Any bytes as a token and as a key set.
///
/// # Panics
/// A token is accepted without keys, or with a key that none of its parts was made with.
pub fn jwt(data: &[u8]) {
    let blank = KeySet::parse(b"{\"keys\":[]}");
    let own = KeySet::parse(KEYS);
    let foreign = KeySet::parse(data);
    for expected in [ExpectedClaims::Signed, ExpectedClaims::Encrypted, ExpectedClaims::Nested] {
        if let Ok(blank) = &blank {
            assert!(SignedToken::verify(data, expected, &[blank]).is_err(), "a token without a key");
        }
        if let Ok(token) =
            own.as_ref().map_err(|_| ()).and_then(|own| SignedToken::verify(data, expected, &[own]).map_err(|_| ()))
        {
            let _ = token.times.check(0.0, 0.0);
        }
        if let (Ok(own), Ok(foreign)) = (&own, &foreign) {
            let _ = SignedToken::verify(data, expected, &[own, foreign]);
        }
        let _ = SignedToken::is_slow(data, expected);
    }
    if let Some(token) = UnverifiedToken::parse(data) {
        assert!(data.len() <= TOKEN_BYTES_MAX);
        let mut out = Vec::new();
        for (name, value) in token.header.iter().chain(token.claims.iter().flatten()) {
            crate::append_text(value, &mut out);
            crate::find_member(&token.header, &[name], true);
        }
    }
}
