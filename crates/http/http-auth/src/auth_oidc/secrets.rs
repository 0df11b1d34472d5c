//! Secrets of a provider: they seal logins and sessions, and derive nonces and code verifiers.

use area::shared_secret::SharedSecret;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A secret whose results are texts of base64url.
pub struct TextSecret(SharedSecret);

impl TextSecret {
    /// Of this process.
    pub fn random() -> TextSecret {
        TextSecret(SharedSecret::random())
    }

    /// Derives a value of a login: 43 characters.
    pub fn derive(&self, purpose: &str, login: &[u8], cookie: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(self.0.tag(purpose, &[login, cookie]))
    }

    /// See [`SharedSecret::seal`].
    pub fn seal(&self, text: &[u8], context: &[u8]) -> Option<String> {
        Some(URL_SAFE_NO_PAD.encode(self.0.seal(text, context)?))
    }

    /// See [`SharedSecret::open`].
    pub fn open(&self, sealed: &[u8], context: &[u8]) -> Option<Vec<u8>> {
        self.0.open(&URL_SAFE_NO_PAD.decode(sealed).ok()?, context)
    }
}

/// Secrets of a provider whose sessions are sealed: those of all servers with its configuration.
pub struct ProviderSecrets {
    pub logins: TextSecret,
    pub sessions: TextSecret,
}

impl ProviderSecrets {
    /// `provider`: its name, issuer and client. `None` if the library fails.
    pub fn derived(configured: &[u8], provider: &[&str]) -> Option<ProviderSecrets> {
        let derived = |purpose| SharedSecret::derived(configured, purpose, provider).map(TextSecret);
        Some(ProviderSecrets { logins: derived("oidc logins")?, sessions: derived("oidc sessions")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_and_sessions_have_secrets_of_their_own() {
        let (one, two) = (ProviderSecrets::derived(b"key", &["a"]), ProviderSecrets::derived(b"key", &["a"]));
        let (one, two) = (one.expect("derived"), two.expect("derived"));
        let sealed = one.logins.seal(b"text", b"c").expect("sealed");
        assert_eq!(two.logins.open(sealed.as_bytes(), b"c").as_deref(), Some(&b"text"[..]));
        assert!(two.sessions.open(sealed.as_bytes(), b"c").is_none());
        assert_eq!(one.logins.derive("a", b"b", b"c"), two.logins.derive("a", b"b", b"c"));
        assert_ne!(one.logins.derive("a", b"b", b"c"), two.logins.derive("d", b"b", b"c"));
    }
}
