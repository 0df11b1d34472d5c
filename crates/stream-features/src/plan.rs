//! Plan of the area, built once from the checked tree, immutable afterwards.

use crate::StreamArea;
use crate::client::SessionClient;
use crate::session::StreamSession;
use area::background::Background;
use area::plan::{self, AreaPlan, NamedRules};
use net::Address;
use net::listen::ListenSpec;
use observe::ErrorLog;
use resolver::ResolveRules;
use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tls_directives::{AskAuthorities, ServerTls, StapleOwner};
use transport::Stream;
use upstream::Group;
use variables::variable;

pub type StreamNames = variables::names::AreaNames<StreamArea>;

pub struct StreamPlan {
    /// Within a process; never 0.
    pub generation: u32,
    pub listeners: Vec<StreamListener>,
    /// Listeners by address and by datagram or stream.
    pub(crate) places: HashMap<(Address, bool), usize>,
    pub servers: Vec<StreamServer>,
    pub variables: Vec<variable::Variable<StreamArea>>,
    /// A template uses captures of the last match (`$1`).
    pub groups_used: bool,
    /// Upstream connections use foreign source addresses: workers need the capability.
    pub transparent: bool,
    /// Data of features for the whole area.
    pub extensions: Vec<Arc<dyn Any + Send + Sync>>,
    /// On the control thread.
    pub background: Vec<Arc<dyn Background<StreamPlan>>>,
}

impl std::fmt::Debug for StreamPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StreamPlan({} servers)", self.servers.len())
    }
}

impl StreamPlan {
    pub fn specs(&self) -> impl Iterator<Item = &ListenSpec> {
        self.listeners.iter().map(|l| &l.spec)
    }
    pub fn place(&self, address: &Address, datagram: bool) -> Option<usize> {
        // Copies the address: a borrowed key would need its own type, and this runs once per connection.
        self.places.get(&(address.clone(), datagram)).copied()
    }
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "the builder makes the indices of its plan's servers; no byte of a peer is one"
    )]
    pub fn srv(&self, index: usize) -> &StreamServer {
        &self.servers[index]
    }
    pub fn ext<T: 'static + Send + Sync>(&self) -> Option<&T> {
        self.extensions.iter().find_map(|t| t.downcast_ref())
    }
}

impl StapleOwner for StreamPlan {
    type Area = StreamArea;
    fn servers(&self) -> usize {
        self.servers.len()
    }
    fn tls(&self, server: usize) -> Option<&ServerTls<StreamArea>> {
        self.servers.get(server)?.tls.as_ref().map(|tls| &tls.rules)
    }
    fn resolving(&self, server: usize) -> Option<ResolveRules> {
        self.servers.get(server)?.resolving.clone()
    }
}

#[derive(Debug)]
pub struct StreamListener {
    pub spec: ListenSpec,
    pub proxy_protocol: bool,
    /// `listen ... ssl`: connections begin with a handshake.
    pub ssl: bool,
    /// For unknown names.
    pub default_server: usize,
    pub names: StreamNames,
}

pub struct Tls {
    pub rules: ServerTls<StreamArea>,
    pub handshake_timeout: Duration,
    pub ask: Option<AskAuthorities>,
}

pub struct StreamServer {
    /// `$server_name`
    pub name: Vec<u8>,
    pub error_log: Arc<ErrorLog>,
    pub tcp_nodelay: bool,
    /// For the preread phase.
    pub preread_bytes: usize,
    pub preread_timeout: Duration,
    pub proxy_protocol_timeout: Duration,
    pub resolving: Option<ResolveRules>,
    /// TLS settings; `None`: uses those of the default server.
    pub tls: Option<Arc<Tls>>,
    pub post_accept: Vec<Arc<dyn Handler>>,
    pub preaccess: Vec<(PreaccessOrder, Arc<dyn Handler>)>,
    pub access: Vec<Arc<dyn Handler>>,
    pub preread: Vec<Arc<dyn Preread>>,
    /// Before a server is connected.
    pub first_message: Option<Arc<dyn FirstMessage>>,
    pub content: Option<Arc<dyn Content>>,
    pub loggers: Vec<Arc<dyn Logger>>,
    /// Data of features.
    pub extensions: Vec<Arc<dyn Any + Send + Sync>>,
    pub zone: Option<metrics::MetricZone<metrics::stream_zone::Of>>,
}

impl StreamServer {
    pub fn ext<T: 'static + Send + Sync>(&self) -> Option<&T> {
        self.extensions.iter().find_map(|t| t.downcast_ref())
    }
}

/// Order of handlers in the preaccess phase, defined only here (nginx: the reverse order of its modules).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreaccessOrder {
    Set,
    LimitConn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Declined,
    Done,
    End(u16),
}

pub trait Handler: Send + Sync {
    fn run(&self, s: &mut StreamSession) -> Flow;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookedUp {
    More,
    Flow(Flow),
}

pub trait Preread: Send + Sync {
    /// `bytes`: all bytes so far; `None` before the first wait.
    fn look(&self, s: &mut StreamSession, bytes: Option<&[u8]>) -> LookedUp;
}

/// Replaces the first message of a TCP client for the server.
pub trait FirstMessage: Send + Sync {
    /// `bytes`: all bytes so far, at least one.
    fn replace(&self, s: &mut StreamSession, bytes: &[u8]) -> ReplacedHandler;
}

/// Result of [`FirstMessage::replace`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplacedHandler {
    /// The message is incomplete.
    More,
    /// Length of the message, and the bytes in its place.
    By(usize, Vec<u8>),
    /// Ends the session with this status.
    End(u16),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentResult {
    Status(u16),
    /// Passes the connection to another listener, as if accepted there.
    Pass(Address),
}

pub type ContentFuture<'a> = Pin<Box<dyn Future<Output = ContentResult> + 'a>>;

pub type CheckFuture<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;

pub trait Content: Send + Sync {
    fn run<'a>(&'a self, s: &'a mut StreamSession, client: &'a mut SessionClient) -> ContentFuture<'a>;
    /// Returns the group of servers, if it does not depend on the session.
    fn group(&self) -> Option<Arc<Group>> {
        None
    }
    /// Returns all groups of servers that health checks of the server probe.
    fn groups(&self) -> Vec<Arc<Group>> {
        self.group().into_iter().collect()
    }
    /// Prepares a connection for a health check as for a session: PROXY protocol before data, and TLS. Fails with the
    /// reason.
    fn begin_check<'a>(
        &'a self,
        s: &'a mut StreamSession,
        stream: &'a mut Stream,
        address: &'a Address,
        has_data: bool,
    ) -> CheckFuture<'a> {
        let _ = (s, stream, address, has_data);
        Box::pin(async { Ok(()) })
    }
    /// Returns the number of bytes of an answer that a health check examines.
    fn check_bytes_max(&self) -> usize {
        0
    }
}

pub trait Logger: Send + Sync {
    fn log(&self, s: &mut StreamSession);
}

impl AreaPlan for StreamPlan {
    fn specs(&self) -> Box<dyn Iterator<Item = &ListenSpec> + '_> {
        Box::new(StreamPlan::specs(self))
    }
    fn transparent(&self) -> bool {
        self.transparent
    }
    fn tls(&self) -> Vec<NamedRules<'_>> {
        let all = self.servers.iter().filter_map(|server| server.tls.as_ref()).map(|tls| &tls.rules);
        all.filter_map(|tls| Some((tls.names.as_slice(), tls.rules.as_ref()?))).collect()
    }
    fn work(self: Arc<Self>) -> Vec<Box<dyn plan::Work>> {
        plan::area_work(&self, &self.background)
    }
}
