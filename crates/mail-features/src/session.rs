//! A session of the mail area (nginx: `ngx_mail_session_t`).

use crate::login::MailLogin;
use crate::plan::{MailPlan, MailServer};
use net::Address;
use observe::{Detail, ErrorLog, Severity};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use variables::regex::Captures;
use variables::variable::VarId;
use variables::{AreaTypes, Session, SessionSlot};

pub struct SessionFacts {
    pub plan: Rc<Arc<MailPlan>>,
    pub listener: usize,
    /// For the error log.
    pub number: u64,
    /// `None`: a UNIX-domain socket.
    pub peer: Option<SocketAddr>,
    pub local: Rc<Address>,
}

pub struct MailSession {
    pub plan: Rc<Arc<MailPlan>>,
    pub listener: usize,
    pub server: usize,
    pub number: u64,
    /// The client, or the one that a trusted proxy reports.
    pub peer: Option<SocketAddr>,
    pub local: Rc<Address>,
    /// With its bytes.
    pub proxy: Option<Box<(wire_proxy::Header, Vec<u8>)>>,
    pub tls: Option<Arc<tls::Facts>>,
    pub starttls: bool,
    pub login: MailLogin,
    /// Client's host name, or the reason for its absence; empty if not needed.
    pub host: String,
    pub doing: &'static str,
    /// For the error log.
    pub upstream: Option<String>,
    captures: Captures,
}

impl MailSession {
    pub fn new(facts: SessionFacts) -> MailSession {
        let SessionFacts { plan, listener, number, peer, local } = facts;
        let server = plan.listeners.get(listener).map_or(0, |l| l.server);
        MailSession {
            plan,
            listener,
            server,
            number,
            peer,
            local,
            proxy: None,
            tls: None,
            starttls: false,
            login: MailLogin::default(),
            host: String::new(),
            doing: "sending client greeting line",
            upstream: None,
            captures: Captures::default(),
        }
    }
    #[inline]
    pub fn srv(&self) -> &MailServer {
        self.plan.srv(self.server)
    }
    /// The client's address as text; `unix:` for UNIX-domain sockets.
    pub fn peer_text(&self) -> String {
        self.peer.map_or_else(|| "unix:".into(), |a| a.ip().to_string())
    }
    pub fn address_text(&self) -> String {
        self.plan.listeners.get(self.listener).map(|l| l.spec.address.to_string()).unwrap_or_default()
    }
    /// With the connection number only.
    #[cold]
    pub fn note(&self, level: Severity, words: std::fmt::Arguments<'_>) {
        self.srv().error_log.log(level, self.number, words);
    }
}

/// The `mail` block.
pub struct MailArea;

impl AreaTypes for MailArea {
    type Session = MailSession;
    const LOG_FORMAT: Option<(&'static str, &'static str)> = None;
    const FORWARDED: bool = false;
}

impl Session for MailSession {
    fn variable(&mut self, _: VarId, _: &mut Vec<u8>) -> bool {
        false
    }
    fn read_slot(&self, _: u32, _: &mut Vec<u8>) -> Option<bool> {
        None
    }
    fn write_slot(&mut self, _: u32, _: SessionSlot) {}
    fn set_slot(&mut self, _: VarId, _: Box<[u8]>) {}
    fn captures(&mut self) -> &mut Captures {
        &mut self.captures
    }
    fn groups_used(&self) -> bool {
        false
    }
    fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }
    fn tls(&self) -> Option<&tls::Facts> {
        self.tls.as_deref()
    }
    fn error_log(&self) -> &Arc<ErrorLog> {
        &self.srv().error_log
    }
    #[cold]
    fn log(&self, level: Severity, words: std::fmt::Arguments<'_>) {
        let log = &self.srv().error_log;
        if !log.wants(level) {
            return;
        }
        let doing = if self.doing.is_empty() { String::new() } else { format!(" while {}", self.doing) };
        let starttls = if self.starttls { " using starttls" } else { "" };
        let (client, address) = (self.peer_text(), self.address_text());
        let client = Detail::new("client", client).followed_by(starttls);
        let mut details = vec![client, Detail::new("server", address)];
        if !self.login.user.is_empty() {
            details.push(Detail::quoted("login", String::from_utf8_lossy(&self.login.user)));
        }
        if let Some(upstream) = &self.upstream {
            details.push(Detail::new("upstream", upstream.to_string()));
        }
        log.log_with(level, self.number, format_args!("{words}{doing}"), &details);
    }
}
