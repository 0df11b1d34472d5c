//! What a client has said of itself before it is logged in.

use observe::os;
use std::fmt;

/// How a client says who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// A name and a password: LOGIN, USER and PASS, AUTH PLAIN, AUTH LOGIN.
    #[default]
    Plain,
    Apop,
    CramMd5,
    External,
    /// SMTP without a login.
    None,
}

impl Method {
    /// As the authentication server is told (`Auth-Method`).
    pub fn name(self) -> &'static str {
        match self {
            Method::Plain => "plain",
            Method::Apop => "apop",
            Method::CramMd5 => "cram-md5",
            Method::External => "external",
            Method::None => "none",
        }
    }
    /// The password is a digest of the salt: the real one is the authentication server's to tell.
    pub fn is_digest(self) -> bool {
        matches!(self, Method::Apop | Method::CramMd5)
    }
}

/// What an SMTP client has said of a message. No value has a line's end in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The argument of HELO or EHLO.
    pub helo: Vec<u8>,
    /// The whole command MAIL, without its line's end.
    pub from: Vec<u8>,
    /// The whole command RCPT.
    pub to: Vec<u8>,
    /// It has said EHLO.
    pub extended: bool,
}

/// See the module's documentation.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// Without CR, LF and NUL, which would mean something to servers.
    pub user: Vec<u8>,
    /// The same; `None`: none was said.
    pub password: Option<Vec<u8>>,
    pub method: Method,
    /// What digests are made with, without a line's end; empty where no method needs it.
    pub salt: Vec<u8>,
    /// How often the client has said who it is.
    pub attempts: u64,
    pub envelope: Envelope,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = String::from_utf8_lossy(&self.user);
        f.debug_struct("Login").field("user", &user).field("method", &self.method).finish_non_exhaustive()
    }
}

impl Login {
    /// Takes a name and a password over; `false`: they could not stand in a command's line.
    #[must_use]
    pub fn set(&mut self, method: Method, user: &[u8], password: Option<&[u8]>) -> bool {
        if !fits(user) || !password.is_none_or(fits) {
            return false;
        }
        self.method = method;
        self.user = user.to_vec();
        self.password = password.map(<[u8]>::to_vec);
        true
    }
}

/// A value that may stand in a line of a command: without its end, and without NUL, which separates in SASL.
pub fn fits(value: &[u8]) -> bool {
    !value.iter().any(|c| matches!(c, b'\r' | b'\n' | 0))
}

/// A new salt (nginx: `ngx_mail_salt`): `<random.time@name>`.
pub fn salt(random: u64, unix_seconds: i64, server_name: &str) -> Vec<u8> {
    format!("<{random}.{unix_seconds}@{server_name}>").into_bytes()
}

/// Octets of what a peer has said that a line of the error log shows: there is room for the rest of the line.
const SHOWN_BYTES: usize = 512;

/// What a peer has said, for the error log.
pub fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..SHOWN_BYTES).unwrap_or(bytes)).into_owned()
}

/// nginx's words for a failed call, with the system's.
pub fn failed(call: &str, e: &std::io::Error) -> String {
    format!("{call}() failed {}", os(e))
}
