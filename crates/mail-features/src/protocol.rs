//! Interface of mail protocols (nginx: `ngx_mail_protocol_t`): bytes in, answers out, without sockets and clocks.

use crate::login::MailLogin;
use std::net::IpAddr;
use std::time::Duration;

conf_schema::words! {
    pub enum MailProtocol { Imap = "imap", Pop3 = "pop3", Smtp = "smtp" }
}

impl MailProtocol {
    pub fn name(self) -> &'static str {
        match self {
            MailProtocol::Imap => "imap",
            MailProtocol::Pop3 => "pop3",
            MailProtocol::Smtp => "smtp",
        }
    }
    pub fn of_port(port: u16) -> Option<MailProtocol> {
        match port {
            143 | 993 => Some(MailProtocol::Imap),
            110 | 995 => Some(MailProtocol::Pop3),
            25 | 465 | 587 => Some(MailProtocol::Smtp),
            _ => None,
        }
    }
}

conf_schema::words! {
    pub enum Starttls { Off = "off", On = "on", Only = "only" }
}

pub trait DialogueProtocol: Send + Sync {
    fn kind(&self) -> MailProtocol;
    /// In bytes.
    fn command_bytes_max(&self) -> usize;
    fn needs_salt(&self) -> bool;
    fn greeting(&self, login: &MailLogin) -> Vec<u8>;
    /// Time in which a client that sends data before the greeting is rejected.
    fn greeting_delay(&self) -> Duration {
        Duration::ZERO
    }
    fn too_early(&self) -> &'static str {
        ""
    }
    fn wants_host(&self) -> bool {
        false
    }
    fn internal_error(&self) -> &'static str;
    fn certificate_error(&self) -> &'static str;
    fn no_certificate(&self) -> &'static str;
    fn dialogue(&self) -> Box<dyn Dialogue>;
}

pub struct DialogueContext<'a> {
    pub login: &'a mut MailLogin,
    /// Setting of `starttls`; `Off` once the connection is secure.
    pub starttls: Starttls,
    /// Lines for the error log, at the level `info`.
    pub notes: &'a mut Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialogueStep {
    pub consumed: usize,
    pub then: NextStep,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Incomplete command; nothing was consumed.
    More,
    Reply(MailReply),
    /// The credentials are complete: the authentication server decides.
    Authenticate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailReply {
    pub bytes: Vec<u8>,
    pub next: Next,
    /// Invalid command; counts towards `max_errors`.
    pub invalid: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Go,
    Quit,
    /// Starts the TLS handshake; input after the command is discarded.
    StartTls,
}

impl MailReply {
    pub fn go(bytes: impl Into<Vec<u8>>) -> NextStep {
        NextStep::Reply(MailReply { bytes: bytes.into(), next: Next::Go, invalid: false })
    }
    pub fn then(bytes: impl Into<Vec<u8>>, next: Next) -> NextStep {
        NextStep::Reply(MailReply { bytes: bytes.into(), next, invalid: false })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MailRefusal {
    pub message: Vec<u8>,
    /// SMTP status code (`Auth-Error-Code`).
    pub code: Option<Vec<u8>>,
}

pub trait Dialogue {
    /// Parses and answers one command; `input` grows while it is incomplete.
    fn step(&mut self, input: &[u8], talk: &mut DialogueContext<'_>) -> DialogueStep;
    fn invalid(&mut self) -> Vec<u8>;
    fn refused(&self, refusal: &MailRefusal) -> Vec<u8>;
    /// Resets the state after a handshake or a refused login.
    fn restart(&mut self, login: &mut MailLogin, secured: bool);
    /// At the mail server.
    fn server_login(&self) -> Box<dyn ServerLogin>;
}

pub struct LoginFacts<'a> {
    pub login: &'a MailLogin,
    pub server_name: &'a str,
    /// Client address; `None`: a UNIX-domain socket.
    pub client: Option<IpAddr>,
    /// Client's host name, or the reason why there is none; for SMTP.
    pub host: &'a str,
    pub xclient: bool,
    pub smtp_auth: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginStep {
    /// Sends a line; the text describes the next action for the error log.
    Line(Vec<u8>, &'static str),
    /// The client is logged in and gets this reply; `None`: the server's last reply.
    LoggedIn(Option<&'static str>),
    /// An unexpected answer; the error log quotes it from this offset.
    Refused(usize),
    /// The server requires a password that the client did not send.
    NoPassword,
}

pub trait ServerLogin {
    /// Tells whether bytes that end with a line break are a complete answer.
    fn is_whole(&self, answer: &[u8]) -> bool {
        let _ = answer;
        true
    }
    fn answer(&mut self, answer: &[u8], facts: &LoginFacts<'_>) -> LoginStep;
}
