//! The forms in which passwords are stored (nginx: `ngx_crypt.c`, and what crypt(3) knows).

use crate::unix;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha1::{Digest, Sha1};
use yescrypt::{PasswordVerifier, Yescrypt};

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordVerdict {
    Right,
    Wrong,
    /// The stored form is unknown: no password matches.
    Unreadable,
}

/// Tells whether a check is slow and must run on another thread.
pub fn is_slow(stored: &[u8]) -> bool {
    stored.starts_with(b"$") && !stored.starts_with(b"$apr1$") && !stored.starts_with(b"$1$")
}

/// Compares a password with what the file holds.
pub fn check_password(password: &[u8], stored: &[u8]) -> PasswordVerdict {
    let right = if let Some(rest) = stored.strip_prefix(b"$apr1$") {
        unix::crypt_md5(password, b"$apr1$", rest).is_some_and(|computed| equal(&computed, stored))
    } else if let Some(plain) = stored.strip_prefix(b"{PLAIN}") {
        equal(plain, password)
    } else if let Some(encoded) = stored.strip_prefix(b"{SSHA}") {
        // The digest of password and salt, followed by the salt.
        match BASE64.decode(encoded) {
            Ok(bytes) if bytes.len() >= 20 => {
                let (digest, salt) = bytes.split_at(20);
                equal(&Sha1::new().chain_update(password).chain_update(salt).finalize(), digest)
            }
            _ => false,
        }
    } else if let Some(encoded) = stored.strip_prefix(b"{SHA}") {
        BASE64.decode(encoded).is_ok_and(|digest| equal(&Sha1::digest(password), &digest))
    } else if stored.is_empty() {
        // A user without a password gets in with none.
        false
    } else if stored.starts_with(b"$y$") {
        yescrypt(password, stored)
    } else {
        return unix(password, stored);
    };
    if right { PasswordVerdict::Right } else { PasswordVerdict::Wrong }
}

/// The forms of crypt(3): DES, MD5, SHA-1, SHA-256, SHA-512, bcrypt.
fn unix(password: &[u8], stored: &[u8]) -> PasswordVerdict {
    match unix::crypt_unix(password, stored) {
        Some(computed) if equal(&computed, stored) => PasswordVerdict::Right,
        Some(_) => PasswordVerdict::Wrong,
        None => PasswordVerdict::Unreadable,
    }
}

/// yescrypt, which newer systems' password files hold.
fn yescrypt(password: &[u8], stored: &[u8]) -> bool {
    /// 32 bytes in crypt's base64: of a shorter digest, an empty one at last, less and less would be compared.
    const DIGEST_CHARS: usize = 43;
    let Ok(stored) = std::str::from_utf8(stored) else { return false };
    stored.rsplit('$').next().is_some_and(|digest| digest.len() == DIGEST_CHARS)
        && Yescrypt::default().verify_password(password, stored).is_ok()
}

/// Compares without telling by its duration where the first difference is.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |seen, (x, y)| seen | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form() {
        for stored in [
            "$apr1$salt$Xxd1irWT9ycqoYxGFn4cb.",
            "{PLAIN}password",
            "{SSHA}yI6cZwQadOA1e+/f+T+H3eCQQhRzYWx0",
            "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
            "$1$salt$qJH7.N4xYta3aEG/dfqo/0",
            "$5$salt$Gcm6FsVtF/Qa77ZKD.iwsJlCVPY0XSMgLJL0Hnww/c1",
            "$6$salt$IxDD3jeSOb5eB1CX5LBsqZFVkJdido3OUILO5Ifz5iwMuTS4XMS130MTSuDDl3aCI6WouIL9AjRbLCelDCy.g.",
            "sa3tHJ3/KuYvI",
        ] {
            assert_eq!(check_password(b"password", stored.as_bytes()), PasswordVerdict::Right, "{stored}");
            assert_eq!(check_password(b"passwort", stored.as_bytes()), PasswordVerdict::Wrong, "{stored}");
        }
    }

    #[test]
    fn yescrypt_as_crypt_makes_it() {
        let stored = b"$y$j9T$F5Jx5fExrKuPp53xLKQ..1$GmcwIgvdUC9qLWcKCi6gklUa1dM3ziD43YxYNURLKy0";
        assert!(is_slow(stored));
        assert_eq!(check_password(b"secret", stored), PasswordVerdict::Right);
        assert_eq!(check_password(b"secrets", stored), PasswordVerdict::Wrong);
        for cut in ["$y$j9T$F5Jx5fExrKuPp53xLKQ..1$", "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$Gmcw", "$y$j9T", "$y$", "$y$$$"] {
            assert_eq!(check_password(b"secret", cut.as_bytes()), PasswordVerdict::Wrong, "{cut}");
        }
    }

    #[test]
    fn an_empty_form_is_wrong() {
        assert_eq!(check_password(b"", b""), PasswordVerdict::Wrong);
        assert_eq!(check_password(b"x", b""), PasswordVerdict::Wrong);
    }

    #[test]
    fn broken_forms_let_nobody_in() {
        for stored in ["$apr1$", "{SSHA}_____w", "{SSHA}Zm9vCg==", "{SHA}Zm9vCg==", "$1$", "", "x", "$9$x$y", "{PLAIN}"]
        {
            assert_ne!(check_password(b"1", stored.as_bytes()), PasswordVerdict::Right, "{stored}");
        }
    }

    #[test]
    fn long_passwords() {
        // As `openssl passwd -apr1 -salt abcdefgh` gives it.
        let long = b"a password of more than sixteen bytes";
        assert_eq!(check_password(long, b"$apr1$abcdefgh$EJvhw845MtIPi.xyhIm.Y/"), PasswordVerdict::Right);
    }
}
