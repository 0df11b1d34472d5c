//! Credentials and envelope of a client before its login.

use area::unopened_failure;
use observe::os_error;
use std::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoginMethod {
    /// Name and password: LOGIN, USER and PASS, AUTH PLAIN, AUTH LOGIN.
    #[default]
    Plain,
    Apop,
    CramMd5,
    External,
    None,
}

impl LoginMethod {
    pub fn name(self) -> &'static str {
        match self {
            LoginMethod::Plain => "plain",
            LoginMethod::Apop => "apop",
            LoginMethod::CramMd5 => "cram-md5",
            LoginMethod::External => "external",
            LoginMethod::None => "none",
        }
    }
    /// The password is a digest of the salt; the authentication server returns the real one.
    pub fn is_digest(self) -> bool {
        matches!(self, LoginMethod::Apop | LoginMethod::CramMd5)
    }
}

/// Envelope of an SMTP client's message. Values contain no line breaks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    pub helo: Vec<u8>,
    /// The complete MAIL command, without the line break.
    pub from: Vec<u8>,
    /// The complete RCPT command.
    pub to: Vec<u8>,
    /// The client sent EHLO.
    pub extended: bool,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub struct MailLogin {
    /// Contains no CR, LF and NUL.
    pub user: Vec<u8>,
    /// `None`: not sent.
    pub password: Option<Vec<u8>>,
    pub method: LoginMethod,
    /// Salt of digests, without a line break; empty if no method needs it.
    pub salt: Vec<u8>,
    pub attempts: u64,
    pub envelope: Envelope,
}

impl fmt::Debug for MailLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = String::from_utf8_lossy(&self.user);
        f.debug_struct("Login").field("user", &user).field("method", &self.method).finish_non_exhaustive()
    }
}

impl MailLogin {
    /// Sets name and password; `false` if they contain bytes that do not fit into a command.
    #[must_use]
    pub fn set(&mut self, method: LoginMethod, user: &[u8], password: Option<&[u8]>) -> bool {
        if !fits_command(user) || !password.is_none_or(fits_command) {
            return false;
        }
        self.method = method;
        self.user = user.to_vec();
        self.password = password.map(<[u8]>::to_vec);
        true
    }
}

/// Tells whether a value fits into a command line: no line break, and no NUL, which separates in SASL.
pub fn fits_command(value: &[u8]) -> bool {
    !value.iter().any(|c| matches!(c, b'\r' | b'\n' | 0))
}

/// Creates a salt (nginx: `ngx_mail_salt`): `<random.time@name>`.
pub fn create_salt(random: u64, unix_seconds: i64, server_name: &str) -> Vec<u8> {
    format!("<{random}.{unix_seconds}@{server_name}>").into_bytes()
}

/// Maximum bytes of a peer in an error log line, with room for the rest of the line.
const SHOWN_BYTES: usize = 512;

/// For the error log.
pub fn shown_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..SHOWN_BYTES).unwrap_or(bytes)).into_owned()
}

/// With the system's error.
pub fn call_failed(call: &str, e: &std::io::Error) -> String {
    match unopened_failure(e) {
        Some((_, words)) => words,
        None => format!("{call}() failed {}", os_error(e)),
    }
}
