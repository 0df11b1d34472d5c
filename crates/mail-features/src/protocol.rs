//! What a mail protocol is to the engine (nginx: `ngx_mail_protocol_t`). Bytes in, answers out: nothing here reads a socket or
//! a clock, so that every step can be tested with bytes.

use crate::login::Login;
use std::net::IpAddr;
use std::time::Duration;

conf_schema::words! {
    /// `protocol`
    pub enum Kind { Imap = "imap", Pop3 = "pop3", Smtp = "smtp" }
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Imap => "imap",
            Kind::Pop3 => "pop3",
            Kind::Smtp => "smtp",
        }
    }
    /// The protocol of a port, where none is written.
    pub fn of_port(port: u16) -> Option<Kind> {
        match port {
            143 | 993 => Some(Kind::Imap),
            110 | 995 => Some(Kind::Pop3),
            25 | 465 | 587 => Some(Kind::Smtp),
            _ => None,
        }
    }
}

conf_schema::words! {
    /// `starttls`
    pub enum Starttls { Off = "off", On = "on", Only = "only" }
}

/// A protocol with what a server says of it.
pub trait Protocol: Send + Sync {
    fn kind(&self) -> Kind;
    /// Octets that a command may have.
    fn command_bytes_max(&self) -> usize;
    /// Some method makes digests of a salt.
    fn needs_salt(&self) -> bool;
    fn greeting(&self, login: &Login) -> Vec<u8>;
    /// Whoever says something before the greeting is turned away.
    fn greeting_delay(&self) -> Duration {
        Duration::ZERO
    }
    /// The answer to such a client.
    fn too_early(&self) -> &'static str {
        ""
    }
    /// The client's host name is of interest.
    fn wants_host(&self) -> bool {
        false
    }
    fn internal_error(&self) -> &'static str;
    fn certificate_error(&self) -> &'static str;
    fn no_certificate(&self) -> &'static str;
    /// Begins the talk with a client.
    fn dialogue(&self) -> Box<dyn Dialogue>;
}

/// What a dialogue may use of its session.
pub struct Talk<'a> {
    pub login: &'a mut Login,
    /// What `starttls` says; `Off` once the connection is secure.
    pub starttls: Starttls,
    /// Lines for the error log, at the level `info`.
    pub notes: &'a mut Vec<String>,
}

/// One command's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Octets that were taken from the input.
    pub consumed: usize,
    pub then: Then,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// More must come; nothing was taken.
    More,
    Reply(Reply),
    /// The client has said who it is: the authentication server decides.
    Authenticate,
}

/// What is said to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub bytes: Vec<u8>,
    pub next: Next,
    /// The command made no sense, and counts towards `max_errors`.
    pub invalid: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Go,
    /// The connection ends.
    Quit,
    /// The handshake of TLS comes next; what was read behind the command is forgotten.
    StartTls,
}

impl Reply {
    pub fn go(bytes: impl Into<Vec<u8>>) -> Then {
        Then::Reply(Reply { bytes: bytes.into(), next: Next::Go, invalid: false })
    }
    pub fn then(bytes: impl Into<Vec<u8>>, next: Next) -> Then {
        Then::Reply(Reply { bytes: bytes.into(), next, invalid: false })
    }
}

/// Why the authentication server has refused a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    pub message: Vec<u8>,
    /// The code of SMTP (`Auth-Error-Code`).
    pub code: Option<Vec<u8>>,
}

/// The talk with one client, up to its login.
pub trait Dialogue {
    /// Looks at what the client has sent, from the first octet that was not taken, and answers one command. The same octets are
    /// shown again, with more behind them, while more must come.
    fn step(&mut self, input: &[u8], talk: &mut Talk<'_>) -> Step;
    /// The answer to a command that is longer than it may be.
    fn invalid(&mut self) -> Vec<u8>;
    /// The answer to a login that was refused.
    fn refused(&self, refusal: &Refusal) -> Vec<u8>;
    /// Forgets what was begun: after a handshake, and after a login that was refused.
    fn restart(&mut self, login: &mut Login, secured: bool);
    /// The login at the server that the client is given.
    fn server_login(&self) -> Box<dyn ServerLogin>;
}

/// What a login at a server may use of its session.
pub struct Facts<'a> {
    pub login: &'a Login,
    pub server_name: &'a str,
    /// The client's address; `None`: a UNIX-domain socket.
    pub client: Option<IpAddr>,
    /// The client's host name, or why there is none; for SMTP.
    pub host: &'a str,
    /// `xclient`
    pub xclient: bool,
    /// `proxy_smtp_auth`
    pub smtp_auth: bool,
}

/// What comes after an answer of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// This is sent; what is done then, for the error log.
    Line(Vec<u8>, &'static str),
    /// The client is logged in, and is told this; `None`: what the server has just said.
    LoggedIn(Option<&'static str>),
    /// The answer is not the one that was hoped for. It begins here, for the error log.
    Refused(usize),
    /// The server wants a password, and there is none.
    NoPassword,
}

/// A login at a server.
pub trait ServerLogin {
    /// Whether these octets, which end with a line, are a whole answer.
    fn is_whole(&self, answer: &[u8]) -> bool {
        let _ = answer;
        true
    }
    fn answer(&mut self, answer: &[u8], facts: &Facts<'_>) -> Said;
}
