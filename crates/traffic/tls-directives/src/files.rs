//! Certificate, key and list files, with nginx's error messages.

use super::values::{Passwords, Pem};
use conf_schema::{At, Cx, Problem};
use std::io;
use std::sync::Arc;
use tls::certs::{self, KeyPair, LoadError};
use tls::key::KeyError;
use tls::verify::RevocationList;
use tls::x509::Certificate;

pub(super) fn os(why: &io::Error) -> String {
    match why.raw_os_error() {
        Some(code) => format!("({code}: {})", reason(why)),
        None => format!("({why})"),
    }
}

/// System's message without Rust's number.
fn reason(why: &io::Error) -> String {
    let text = why.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

/// Text of a PEM word: after `data:`, or of a file. Fails with the text after `cannot load certificate "...": `.
pub fn pem_text(word: &str, read: impl FnOnce(&str) -> io::Result<Arc<[u8]>>) -> Result<Arc<[u8]>, String> {
    if let Some(text) = word.strip_prefix("data:") {
        return Ok(Arc::from(text.as_bytes()));
    }
    match read(word) {
        // Opening a directory succeeds; OpenSSL finds no PEM text in it.
        Err(why) if why.kind() == io::ErrorKind::IsADirectory => Ok(Arc::from([])),
        read => read.map_err(|why| format!("BIO_new_file() failed {}", unopened_message(word, "r", &why))),
    }
}

/// OpenSSL's message about an unopened file.
pub fn unopened_message(path: &str, mode: &str, why: &io::Error) -> String {
    let code = 0x8000_0000_u32 | why.raw_os_error().unwrap_or(0).unsigned_abs();
    let rest = match why.kind() {
        io::ErrorKind::NotFound => "error:10000080:BIO routines::no such file",
        _ => "error:10080002:BIO routines::system lib",
    };
    format!("(SSL: error:{code:08X}:system library::{}:calling fopen({path}, {mode}) {rest})", reason(why))
}

/// Contents of a configured word, relative to the configuration's directory.
fn read(cx: &mut Cx, word: &str, passwords: Option<&Passwords>) -> Result<Arc<[u8]>, String> {
    if word.starts_with("data:") {
        return pem_text(word, |_| Ok(Arc::from([])));
    }
    let path = cx.conf_full_name(word);
    let passwords = passwords.and_then(|passwords| passwords.file.as_deref());
    pem_text(&path.display().to_string(), |_| cx.store.read_pem(&path, passwords))
}

/// Reason why a key cannot be isolated from the workers (`ssl_key_isolation`).
pub(super) fn exposed<A>(cx: &Cx, key: &Pem<A>, passwords: Option<&Passwords>, at_handshakes: bool) -> Option<Problem> {
    if !cx.store.isolates_keys {
        return None;
    }
    let says = |words: String| Problem { inner: (key.at.line > 0).then_some(key.at), ..Problem::says(words) };
    if key.text.starts_with("data:") {
        let words = "cannot load certificate key \"data:...\": \"ssl_key_isolation\" requires keys in files, because workers read \
                     the configuration and its variables";
        return Some(says(words.into()));
    }
    if at_handshakes && passwords.is_some() {
        let name = &key.text;
        return Some(says(format!(
            "cannot load certificate key \"{name}\": with \"ssl_key_isolation\" a password file requires certificates and keys without variables"
        )));
    }
    None
}

/// Absolute name, as in nginx's messages.
fn shown(cx: &Cx, word: &str) -> String {
    if word.starts_with("data:") { word.to_string() } else { cx.conf_full_name(word).display().to_string() }
}

/// nginx's message for a failure of [`KeyPair::load`].
pub(super) fn sentence(why: &LoadError, certificate: &str, key: &str) -> String {
    match why {
        LoadError::Certificate(why) => format!(
            "cannot load certificate \"{certificate}\": PEM_read_bio_X509_AUX() failed (SSL: error:0480006C:PEM routines::{why})"
        ),
        LoadError::Key(why) => {
            let code = match why {
                KeyError::NoKey => "1E08010C:DECODER",
                KeyError::WrongPassword => "1C800064:Provider",
                _ => "0480006C:PEM",
            };
            format!(
                "cannot load certificate key \"{key}\": PEM_read_bio_PrivateKey() failed (SSL: error:{code} routines::{why})"
            )
        }
        LoadError::Mismatch => format!(
            "SSL_CTX_use_PrivateKey(\"{key}\") failed (SSL: error:05800074:x509 certificate routines::key values mismatch)"
        ),
    }
}

/// File of `store:file:PATH`, `store:file:///PATH` or `store:PATH`; other words unchanged.
pub(super) fn stored(key: &str) -> &str {
    let Some(uri) = key.strip_prefix("store:") else { return key };
    match uri.strip_prefix("file:") {
        Some(path) => path.strip_prefix("//").unwrap_or(path),
        None if uri.starts_with('/') => uri,
        None => key,
    }
}

/// Reason why a key's source is unsupported.
pub(super) fn unavailable(key: &str) -> Option<String> {
    let (place, _) = key.split_once(':').filter(|(place, _)| matches!(*place, "engine" | "store"))?;
    Some(format!(
        "cannot load certificate key \"{key}\": keys from \"{place}:\" are not available, only from files and \"data:\""
    ))
}

pub fn key_pair<A>(
    cx: &mut Cx,
    certificate: &Pem<A>,
    key: &Pem<A>,
    passwords: Option<&Passwords>,
) -> Result<KeyPair, Problem> {
    if let Some(problem) = exposed(cx, key, passwords, false) {
        return Err(problem);
    }
    let (of_certificate, of_key) = (certificate.at, key.at);
    let says = |at: At, words: String| Problem { inner: (at.line > 0).then_some(at), ..Problem::says(words) };
    let key = stored(&key.text);
    let (c, k) = (shown(cx, &certificate.text), shown(cx, key));
    if let Some(why) = unavailable(key) {
        return Err(says(of_key, why));
    }
    let chain = read(cx, &certificate.text, passwords)
        .map_err(|why| says(of_certificate, format!("cannot load certificate \"{c}\": {why}")))?;
    KeyPair::chain(&chain).map_err(|why| says(of_certificate, sentence(&why, &c, &k)))?;
    let text =
        read(cx, key, passwords).map_err(|why| says(of_key, format!("cannot load certificate key \"{k}\": {why}")))?;
    let none = Passwords::default();
    let loaded = match cx.store.has_stand_ins() {
        true => KeyPair::load_isolated(&chain, &text),
        false => KeyPair::load(&chain, &text, &passwords.unwrap_or(&none).lines),
    };
    loaded.map_err(|why| says(of_key, sentence(&why, &c, &k)))
}

/// Fails with nginx's message if unreadable or empty.
pub fn load_authorities(cx: &mut Cx, word: &str) -> Result<Vec<Certificate>, Problem> {
    let name = shown(cx, word);
    let says = |why: String| Problem::says(format!("cannot load certificate \"{name}\": {why}"));
    let text = read(cx, word, None).map_err(says)?;
    let all = certs::parse_certificates(&text)
        .map_err(|why| says(format!("PEM_read_bio_X509_AUX() failed (SSL: error:0480006C:PEM routines::{why})")))?;
    if all.is_empty() {
        let why = "PEM_read_bio_X509_AUX() failed (SSL: error:0480006C:PEM routines::no start line:Expecting: TRUSTED CERTIFICATE)";
        return Err(says(why.into()));
    }
    Ok(all)
}

pub fn load_crls(cx: &mut Cx, word: &str) -> Result<Vec<RevocationList>, Problem> {
    let name = shown(cx, word);
    let says = |why: String| Problem::says(format!("cannot load CRL \"{name}\": {why}"));
    let text = read(cx, word, None).map_err(says)?;
    RevocationList::all(&text)
        .map_err(|why| says(format!("PEM_read_bio_X509_CRL() failed (SSL: error:0480006C:PEM routines::{why})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_of_files_are_files() {
        for (word, path) in [
            ("a.key", "a.key"),
            ("store:file:/etc/a.key", "/etc/a.key"),
            ("store:file:///etc/a.key", "/etc/a.key"),
            ("store:file:a.key", "a.key"),
            ("store:/etc/a.key", "/etc/a.key"),
            ("store:pkcs11:token=x", "store:pkcs11:token=x"),
            ("engine:pkcs11:x", "engine:pkcs11:x"),
        ] {
            assert_eq!(stored(word), path);
            assert_eq!(unavailable(stored(word)).is_some(), path.contains("pkcs11"), "{word}");
        }
    }
}
