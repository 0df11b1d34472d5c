//! What runs: listeners and servers. Built once from the checked tree, immutable afterwards.

use crate::protocol::{Protocol, Refusal, ServerLogin, Starttls};
use crate::session::MailSession;
use net::listen::{Address as Local, ListenSpec};
use observe::ErrorLog;
use session_engine::forwarded::Trusted;
use session_engine::tls::ServerTls;
use session_engine::upstreams::Resolving;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use upstream::{Address, Stream};

/// The mail area, ready to run.
pub struct MailPlan {
    /// No two plans of a process have the same; never 0.
    pub generation: u32,
    pub listeners: Vec<Listener>,
    /// Listeners by address.
    pub(crate) places: HashMap<Local, usize>,
    pub servers: Vec<Server>,
}

impl std::fmt::Debug for MailPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MailPlan({} servers)", self.servers.len())
    }
}

impl MailPlan {
    /// The sockets that it needs.
    pub fn specs(&self) -> impl Iterator<Item = &ListenSpec> {
        self.listeners.iter().map(|l| &l.spec)
    }
    /// The index of the listener on an address.
    pub fn place(&self, address: &Local) -> Option<usize> {
        self.places.get(address).copied()
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
}

/// An address, and the one server behind it.
#[derive(Debug)]
pub struct Listener {
    pub spec: ListenSpec,
    pub proxy_protocol: bool,
    /// `listen ... ssl`: connections begin with a handshake.
    pub ssl: bool,
    /// Index of its server.
    pub server: usize,
}

/// A `server` block.
pub struct Server {
    /// `server_name`, or the machine's name.
    pub name: String,
    pub error_log: Arc<ErrorLog>,
    /// How long a client has for its login, and a server for its part in it.
    pub timeout: Duration,
    /// Invalid commands after which the connection ends.
    pub max_errors: u64,
    /// Whom it asks for names.
    pub resolving: Option<Resolving>,
    /// Who may name another client in a PROXY protocol header.
    pub proxies: Vec<Trusted>,
    pub starttls: Starttls,
    pub tls: Option<Arc<ServerTls<MailSession>>>,
    pub protocol: Arc<dyn Protocol>,
    pub authenticator: Arc<dyn Authenticate>,
    pub passer: Arc<dyn PassOn>,
}

/// The same while it is planned.
pub struct Draft {
    pub name: String,
    pub error_log: Arc<ErrorLog>,
    pub timeout: Duration,
    pub max_errors: u64,
    pub resolving: Option<Resolving>,
    pub proxies: Vec<Trusted>,
    pub starttls: Starttls,
    pub tls: Option<Arc<ServerTls<MailSession>>>,
    pub protocol: Option<Arc<dyn Protocol>>,
    pub authenticator: Option<Arc<dyn Authenticate>>,
    pub passer: Option<Arc<dyn PassOn>>,
}

impl Draft {
    /// `None`: a feature has complained.
    pub fn finish(self) -> Option<Server> {
        Some(Server {
            name: self.name,
            error_log: self.error_log,
            timeout: self.timeout,
            max_errors: self.max_errors,
            resolving: self.resolving,
            proxies: self.proxies,
            starttls: self.starttls,
            tls: self.tls,
            protocol: self.protocol?,
            authenticator: self.authenticator?,
            passer: self.passer?,
        })
    }
}

/// What becomes of a client that has said who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may try again after a while; with no time it may not.
    Refused { refusal: Refusal, wait: Duration },
    /// The question is put again after a while.
    AskAgain { wait: Duration, user: Option<Vec<u8>>, password: Option<Vec<u8>> },
    /// It is logged in at a server, under another name and password where these are said.
    Pass {
        to: Address,
        /// The server, for the error log.
        name: String,
        user: Option<Vec<u8>>,
        password: Option<Vec<u8>>,
        /// Who said so.
        authority: String,
    },
}

/// Nobody could say; the words are for the error log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthFault(pub Option<String>);

/// Says what becomes of clients.
pub trait Authenticate: Send + Sync {
    fn ask<'a>(&'a self, s: &'a MailSession) -> Pin<Box<dyn Future<Output = Result<Verdict, AuthFault>> + 'a>>;
}

/// Where a client goes, and what is on its way there already.
pub struct Passing {
    pub to: Address,
    pub login: Box<dyn ServerLogin>,
    /// What the client has said behind its login.
    pub pending: Vec<u8>,
}

/// How a session ends that was to be passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassEnd {
    /// It was.
    Done,
    /// It was not, and the client is told so.
    Failed(Vec<u8>),
}

/// Logs a client in at a server, and passes its bytes from then on.
pub trait PassOn: Send + Sync {
    fn run<'a>(
        &'a self,
        s: &'a mut MailSession,
        client: &'a Stream,
        passing: Passing,
    ) -> Pin<Box<dyn Future<Output = PassEnd> + 'a>>;
}
