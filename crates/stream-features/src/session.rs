//! A TCP or UDP session (nginx: `ngx_stream_session_t`).

use crate::area::StreamArea;
use crate::plan::{PreaccessOrder, StreamPlan, StreamServer};
use base::clock::{self, Instant};
use net::Address;
use observe::{Detail, ErrorLog, Severity};
use smallvec::SmallVec;
use std::any::Any;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use variables::regex::Captures;
use variables::variable::VarId;
use variables::{AreaTypes, Session, SessionSlot};

#[derive(Clone, Debug)]
pub struct Try {
    pub address: Arc<str>,
    /// The selected server; `None` if there was none.
    pub peer: Option<Arc<upstream::Peer>>,
    pub started: Instant,
    /// Milliseconds until the connection was established; `None` if it was not.
    pub connect_ms: Option<u64>,
    pub first_byte_ms: Option<u64>,
    pub session_ms: Option<u64>,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

impl Try {
    pub fn new(address: Arc<str>) -> Try {
        Try {
            address,
            peer: None,
            started: clock::now(),
            connect_ms: None,
            first_byte_ms: None,
            session_ms: None,
            bytes_sent: 0,
            bytes_received: 0,
        }
    }
}

pub struct SessionFacts {
    pub plan: Rc<Arc<StreamPlan>>,
    pub listener: usize,
    pub number: u64,
    /// `None`: a UNIX-domain socket.
    pub peer: Option<SocketAddr>,
    pub local: Rc<Address>,
    pub udp: bool,
}

pub struct StreamSession {
    pub plan: Rc<Arc<StreamPlan>>,
    pub listener: usize,
    /// Index of the server in the plan: the listener's default, or the one selected by SNI.
    pub server: usize,
    pub number: u64,
    /// Possibly from a trusted proxy.
    pub peer: Option<SocketAddr>,
    /// Address of the connection itself, if `realip` replaced it.
    pub replaced: Option<Option<SocketAddr>>,
    pub local: Rc<Address>,
    pub udp: bool,
    pub started: Instant,
    /// With its bytes.
    pub proxy: Option<Box<(wire_proxy::Header, Vec<u8>)>>,
    pub tls: Option<Arc<tls::Facts>>,
    /// `$status`; 0 until the session ends.
    pub status: u16,
    /// Bytes received from and sent to the client.
    pub received: u64,
    pub sent: u64,
    /// Bytes taken from the socket, or the first datagram, for the content handler.
    pub preread: Vec<u8>,
    pub tries: SmallVec<[Try; 1]>,
    /// For the error log.
    pub doing: &'static str,
    /// The error log names both sides from here on.
    pub proxied: bool,
    pub upstream: Option<Arc<str>>,
    pub passes: u8,
    pub(crate) captures: Captures,
    slots: Vec<SessionSlot>,
    /// State of features, by type.
    extensions: SmallVec<[Box<dyn Any>; 1]>,
}

impl StreamSession {
    pub fn new(facts: SessionFacts) -> StreamSession {
        let SessionFacts { plan, listener, number, peer, local, udp } = facts;
        let server = plan.listeners.get(listener).map_or(0, |l| l.default_server);
        StreamSession {
            plan,
            listener,
            server,
            number,
            peer,
            replaced: None,
            local,
            udp,
            started: clock::now(),
            proxy: None,
            tls: None,
            status: 0,
            received: 0,
            sent: 0,
            preread: Vec::new(),
            tries: SmallVec::new(),
            doing: "initializing session",
            proxied: false,
            upstream: None,
            passes: 0,
            captures: Captures::default(),
            slots: Vec::new(),
            extensions: SmallVec::new(),
        }
    }
    #[inline]
    pub fn srv(&self) -> &StreamServer {
        self.plan.srv(self.server)
    }
    pub fn ext<T: 'static>(&self) -> Option<&T> {
        self.extensions.iter().find_map(|t| t.downcast_ref())
    }
    pub fn keep<T: 'static>(&mut self, thing: T) {
        self.extensions.retain(|t| !t.is::<T>());
        self.extensions.push(Box::new(thing));
    }
    pub fn forget<T: 'static>(&mut self) {
        self.extensions.retain(|t| !t.is::<T>());
    }
    /// `unix:` for UNIX-domain sockets.
    pub fn peer_text(&self) -> String {
        self.peer.map_or_else(|| "unix:".into(), |a| a.ip().to_string())
    }
    /// Logs with the client's connection only: for the end of a session.
    #[cold]
    pub fn note(&self, level: Severity, words: std::fmt::Arguments<'_>) {
        self.srv().error_log.log(level, self.number, words);
    }
    /// Logs an exchange that has ended with a status, and begins another one of the connection: its variables are computed
    /// anew.
    pub fn log_and_renew(&mut self, status: u16) {
        self.status = status;
        let plan = self.plan.clone();
        for logger in &plan.srv(self.server).loggers {
            logger.log(self);
        }
        self.slots.clear();
        self.captures = Captures::default();
        self.status = 0;
        for (_, handler) in plan.srv(self.server).preaccess.iter().filter(|(order, _)| *order == PreaccessOrder::Set) {
            handler.run(self);
        }
    }
    pub fn set_variable(&mut self, id: VarId, value: Vec<u8>) {
        let plan = self.plan.clone();
        let Some(variable) = plan.variables.get(id.0 as usize) else { return };
        match (variable.set, variable.slot()) {
            (Some(set), _) => set(self, value),
            (None, Some(slot)) => self.write_slot(slot, SessionSlot::Value(value.into())),
            (None, None) => {}
        }
    }
}

impl AreaTypes for StreamArea {
    type Session = StreamSession;
    /// A log requires a format.
    const LOG_FORMAT: Option<(&'static str, &'static str)> = None;
    const FORWARDED: bool = false;
}

impl Session for StreamSession {
    fn variable(&mut self, id: VarId, out: &mut Vec<u8>) -> bool {
        let plan = self.plan.clone();
        let Some(variable) = plan.variables.get(id.0 as usize) else { return false };
        variables::variable::append_value(self, variable, out)
    }
    fn read_slot(&self, slot: u32, out: &mut Vec<u8>) -> Option<bool> {
        self.slots.get(slot as usize)?.read(out)
    }
    fn write_slot(&mut self, slot: u32, value: SessionSlot) {
        SessionSlot::write(&mut self.slots, slot, value);
    }
    fn set_slot(&mut self, id: VarId, value: Box<[u8]>) {
        if let Some(slot) = self.plan.variables.get(id.0 as usize).and_then(|v| v.slot()) {
            self.write_slot(slot, SessionSlot::Value(value));
        }
    }
    fn captures(&mut self) -> &mut Captures {
        &mut self.captures
    }
    fn groups_used(&self) -> bool {
        self.plan.groups_used
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
        let client_label = if self.udp { "udp client" } else { "client" };
        let address = self.plan.listeners.get(self.listener).map(|l| l.spec.address.to_string()).unwrap_or_default();
        let client = self.peer_text();
        let mut details = vec![Detail::new("client", client).labelled(client_label), Detail::new("server", address)];
        if self.proxied {
            let (from, to) = self.tries.last().map_or((0, 0), |one| (one.bytes_received, one.bytes_sent));
            if let Some(upstream) = &self.upstream {
                details.push(Detail::quoted("upstream", upstream.to_string()));
            }
            let (received, sent) = (self.received, self.sent);
            let bytes = format!("bytes from/to client:{received}/{sent}, bytes from/to upstream:{from}/{to}");
            details.push(Detail::bare("bytes", bytes));
        }
        log.log_with(level, self.number, format_args!("{words}{doing}"), &details);
    }
}
