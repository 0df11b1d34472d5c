//! What runs: listeners and servers. Built once from the checked tree, immutable afterwards.

use crate::client::Client;
use crate::session::StreamSession;
use net::listen::{Address, ListenSpec};
use observe::ErrorLog;
use session_engine::background::Background;
use session_engine::tls::{AskAuthorities, Certified, ServerTls};
use session_engine::upstreams::Resolving;
use session_engine::variable;
use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub type Names = session_engine::names::Names<StreamSession>;

/// The stream area, ready to run.
pub struct StreamPlan {
    /// No two plans of a process have the same; never 0.
    pub generation: u32,
    pub listeners: Vec<Listener>,
    /// Listeners by address, and whether they take datagrams.
    pub(crate) places: HashMap<(Address, bool), usize>,
    pub servers: Vec<Server>,
    pub variables: Vec<variable::Variable<StreamSession>>,
    /// Some template asks for groups of the last match (`$1`).
    pub groups_used: bool,
    /// Connections to servers are made from addresses that are not this machine's: workers need the capability for it.
    pub transparent: bool,
    /// What features keep for the whole area.
    pub extensions: Vec<Arc<dyn Any + Send + Sync>>,
    /// What goes on beside the sessions, on the control thread.
    pub background: Vec<Arc<dyn Background<StreamPlan>>>,
}

impl std::fmt::Debug for StreamPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StreamPlan({} servers)", self.servers.len())
    }
}

impl StreamPlan {
    /// The sockets that it needs.
    pub fn specs(&self) -> impl Iterator<Item = &ListenSpec> {
        self.listeners.iter().map(|l| &l.spec)
    }
    /// The index of the listener on an address.
    pub fn place(&self, address: &Address, datagram: bool) -> Option<usize> {
        // A key without a copy of the address would need a type of its own; this is asked once a connection or socket.
        self.places.get(&(address.clone(), datagram)).copied()
    }
    /// A server by its index.
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "the builder makes the indices of its plan's servers; no byte of a peer is one"
    )]
    pub fn srv(&self, index: usize) -> &Server {
        &self.servers[index]
    }
    /// What a feature keeps for the whole area.
    pub fn ext<T: 'static + Send + Sync>(&self) -> Option<&T> {
        self.extensions.iter().find_map(|t| t.downcast_ref())
    }
}

impl Certified for StreamPlan {
    type Session = StreamSession;
    fn servers(&self) -> usize {
        self.servers.len()
    }
    fn tls(&self, server: usize) -> Option<&ServerTls<StreamSession>> {
        self.servers.get(server)?.tls.as_ref().map(|tls| &tls.rules)
    }
    fn resolving(&self, server: usize) -> Option<Resolving> {
        self.servers.get(server)?.resolving.clone()
    }
}

/// An address with the servers behind it.
#[derive(Debug)]
pub struct Listener {
    pub spec: ListenSpec,
    pub proxy_protocol: bool,
    /// `listen ... ssl`: connections begin with a handshake.
    pub ssl: bool,
    /// Index of the server for names that nobody has.
    pub default_server: usize,
    pub names: Names,
}

/// A server's side of TLS.
pub struct Tls {
    pub rules: ServerTls<StreamSession>,
    pub handshake_timeout: Duration,
    /// Whom to ask about clients' certificates.
    pub ask: Option<AskAuthorities>,
}

/// A `server` block.
pub struct Server {
    /// The first name: `$server_name`.
    pub name: Vec<u8>,
    pub error_log: Arc<ErrorLog>,
    pub tcp_nodelay: bool,
    /// Octets of the first bytes that are looked at, at most, and how long they are waited for.
    pub preread_bytes: usize,
    pub preread_timeout: Duration,
    pub proxy_protocol_timeout: Duration,
    /// Whom it asks for names.
    pub resolving: Option<Resolving>,
    /// How TLS connections to it are answered; `None`: it has no certificate, and that of the default server stands in.
    pub tls: Option<Arc<Tls>>,
    /// Handlers by phase. They are asked in this order.
    pub post_accept: Vec<Arc<dyn Handler>>,
    pub preaccess: Vec<(PreaccessOrder, Arc<dyn Handler>)>,
    pub access: Vec<Arc<dyn Handler>>,
    /// Who looks at the first bytes.
    pub preread: Vec<Arc<dyn Preread>>,
    /// What it answers with.
    pub content: Option<Arc<dyn Content>>,
    pub loggers: Vec<Arc<dyn Logger>>,
    /// `status_zone`
    pub zone: Option<metrics::Zone<metrics::stream_zone::Of>>,
}

/// The order of handlers of the preaccess phase; it stands here and nowhere else (nginx: the reverse order of its modules).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreaccessOrder {
    Set,
    LimitConn,
}

/// What a handler says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Nothing: the next handler.
    Declined,
    /// The phase is over.
    Done,
    /// The session ends with this status.
    End(u16),
}

/// Acts in a phase.
pub trait Handler: Send + Sync {
    fn run(&self, s: &mut StreamSession) -> Flow;
}

/// What somebody makes of the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// More are needed.
    More,
    Flow(Flow),
}

/// Looks at the first bytes of a client.
pub trait Preread: Send + Sync {
    /// `bytes`: all that is there, from the beginning; `None` before the first have been waited for.
    fn look(&self, s: &mut StreamSession, bytes: Option<&[u8]>) -> Looked;
}

/// How a session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Status(u16),
    /// The connection goes to another listener of ours, as if it had been accepted there.
    Pass(Address),
}

/// What a content handler does until the session ends.
pub type Work<'a> = Pin<Box<dyn Future<Output = End> + 'a>>;

/// Answers a session.
pub trait Content: Send + Sync {
    fn run<'a>(&'a self, s: &'a mut StreamSession, client: &'a mut Client) -> Work<'a>;
}

/// Told of every session that is over.
pub trait Logger: Send + Sync {
    fn log(&self, s: &mut StreamSession);
}
