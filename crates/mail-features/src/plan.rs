//! Plan of the area, built once from the checked tree, immutable afterwards.

use crate::MailArea;
use crate::protocol::{DialogueProtocol, MailRefusal, ServerLogin, Starttls};
use crate::session::MailSession;
use area::plan::{AreaPlan, NamedRules};
use net::Address;
use net::listen::ListenSpec;
use observe::ErrorLog;
use resolver::ResolveRules;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tls_directives::ServerTls;
use transport::Stream;
use variables::forwarded::TrustedNetwork;

pub struct MailPlan {
    /// Within a process; never 0.
    pub generation: u32,
    pub listeners: Vec<MailListener>,
    pub(crate) places: HashMap<Address, usize>,
    pub servers: Vec<MailServer>,
}

impl std::fmt::Debug for MailPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MailPlan({} servers)", self.servers.len())
    }
}

impl MailPlan {
    pub fn specs(&self) -> impl Iterator<Item = &ListenSpec> {
        self.listeners.iter().map(|l| &l.spec)
    }
    pub fn place(&self, address: &Address) -> Option<usize> {
        self.places.get(address).copied()
    }
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "the builder makes the indices of its plan's servers; no byte of a peer is one"
    )]
    pub fn srv(&self, index: usize) -> &MailServer {
        &self.servers[index]
    }
}

#[derive(Debug)]
pub struct MailListener {
    pub spec: ListenSpec,
    pub proxy_protocol: bool,
    /// Connections begin with a handshake.
    pub ssl: bool,
    pub server: usize,
}

pub struct MailServer {
    /// `server_name`, or the machine's name.
    pub name: String,
    pub error_log: Arc<ErrorLog>,
    /// Maximum time for the client's login, and for each step of the login at the mail server.
    pub timeout: Duration,
    pub max_errors: u64,
    pub resolving: Option<ResolveRules>,
    /// Proxies whose PROXY protocol headers are trusted.
    pub proxies: Vec<TrustedNetwork>,
    pub starttls: Starttls,
    pub tls: Option<Arc<ServerTls<MailArea>>>,
    pub protocol: Arc<dyn DialogueProtocol>,
    pub authenticator: Arc<dyn Authenticate>,
    pub passer: Arc<dyn PassOn>,
}

pub struct ServerDraft {
    pub name: String,
    pub error_log: Arc<ErrorLog>,
    pub timeout: Duration,
    pub max_errors: u64,
    pub resolving: Option<ResolveRules>,
    pub proxies: Vec<TrustedNetwork>,
    pub starttls: Starttls,
    pub tls: Option<Arc<ServerTls<MailArea>>>,
    pub protocol: Option<Arc<dyn DialogueProtocol>>,
    pub authenticator: Option<Arc<dyn Authenticate>>,
    pub passer: Option<Arc<dyn PassOn>>,
}

impl ServerDraft {
    /// Returns `None` if a feature has reported an error.
    pub fn finish(self) -> Option<MailServer> {
        Some(MailServer {
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthResult {
    /// The client may try again after `wait`; never if it is zero.
    Refused {
        refusal: MailRefusal,
        wait: Duration,
        user: Option<Vec<u8>>,
    },
    AskAgain {
        wait: Duration,
        user: Option<Vec<u8>>,
        password: Option<Vec<u8>>,
    },
    /// Logs the client in at a server, with another name and password if given.
    Pass {
        to: Address,
        name: String,
        user: Option<Vec<u8>>,
        password: Option<Vec<u8>>,
    },
}

/// The authentication failed to decide; the text is for the error log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthFault(pub Option<String>);

pub trait Authenticate: Send + Sync {
    fn ask<'a>(&'a self, s: &'a MailSession) -> Pin<Box<dyn Future<Output = Result<AuthResult, AuthFault>> + 'a>>;
}

pub struct PassPlan {
    pub to: Address,
    pub login: Box<dyn ServerLogin>,
    /// Bytes that the client sent after its login.
    pub pending: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassEnd {
    Done,
    /// The login failed; the client gets this reply.
    Failed(Vec<u8>),
}

pub trait PassOn: Send + Sync {
    fn run<'a>(
        &'a self,
        s: &'a mut MailSession,
        client: &'a Stream,
        passing: PassPlan,
    ) -> Pin<Box<dyn Future<Output = PassEnd> + 'a>>;
}

impl AreaPlan for MailPlan {
    fn specs(&self) -> Box<dyn Iterator<Item = &ListenSpec> + '_> {
        Box::new(MailPlan::specs(self))
    }
    fn tls(&self) -> Vec<NamedRules<'_>> {
        let all = self.servers.iter().filter_map(|server| server.tls.as_ref());
        all.filter_map(|tls| Some((tls.names.as_slice(), tls.rules.as_ref()?))).collect()
    }
}
