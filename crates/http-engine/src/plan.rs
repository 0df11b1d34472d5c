//! What runs: servers, locations, variables. Built once from the checked tree, immutable afterwards.

use crate::core_table::CoreConf;
use crate::engine::Phase;
use crate::request::{Flow, Request};
use crate::response::Body;
use crate::route::{Names, Tree};
use crate::variable::Variable;
use net::listen::ListenSpec;
use std::any::Any;
use std::sync::Arc;

/// The http area, ready to run.
pub struct HttpPlan {
    /// No two plans of a process have the same; never 0.
    pub generation: u32,
    /// Every address that servers listen on.
    pub listeners: Vec<Listener>,
    pub servers: Vec<Server>,
    /// All locations and `if` blocks of all servers; each server's own level is one of them.
    pub locations: Vec<Location>,
    pub variables: Vec<Variable>,
    /// Some variable tells a field of a response: ours, or a server's.
    pub asks_for_fields: bool,
    /// Their names, for those that are looked up while a request runs.
    pub names: crate::variable::Names,
    /// Some template asks for groups of the last match (`$1`).
    pub groups_used: bool,
    /// Some location obeys `.htaccess` files: names that begin with `.ht` are nothing that clients may write or read.
    pub ht_names_hidden: bool,
    /// `tidegate_cache`: its size, and the milliseconds of `recheck`.
    pub cache_bytes: u64,
    pub cache_recheck: u64,
    /// Connections to servers are made from addresses that are not this machine's: workers need the capability for it.
    pub transparent: bool,
    /// Called on every thread when log lines must not wait any longer.
    pub flushers: Vec<fn()>,
    /// Things that features keep for the whole http area.
    pub extensions: Vec<Arc<dyn Any + Send + Sync>>,
    /// What goes on beside the requests, on the control thread.
    pub background: Vec<Arc<dyn Background<HttpPlan>>>,
    /// Folders that are made before the first request, and given to the workers' account.
    pub folders: Vec<Folder>,
}

/// A folder that is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    pub path: std::path::PathBuf,
    /// Nothing can be served when it cannot be made. Others are tried again by whoever needs them.
    pub needed: bool,
}

/// What goes on beside the requests of a plan.
pub use session_engine::background::Background;
pub use session_engine::upstreams::Transparent;

impl std::fmt::Debug for HttpPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpPlan({} servers, {} locations)", self.servers.len(), self.locations.len())
    }
}

impl HttpPlan {
    /// The sockets that it needs.
    pub fn specs(&self) -> impl Iterator<Item = &ListenSpec> {
        self.listeners.iter().map(|l| &l.spec)
    }
    /// The listener that a connection came in by; `None` when this plan does not listen there.
    #[inline]
    pub fn listener_of(&self, connection: &crate::Connection) -> Option<&Listener> {
        self.listener(&connection.listener)
    }
    /// This plan's listener of that name; `None` when it does not listen there.
    #[inline]
    pub fn listener(&self, listener: &crate::ListenerRef) -> Option<&Listener> {
        self.listeners.get(listener.index_in(self)?)
    }
    /// The settings of a listener's connections before a handshake or a request has named a server.
    pub fn default_conf(&self, listener: &Listener) -> Option<Arc<Core>> {
        self.locations.get(self.servers.get(listener.default_server)?.location).map(|location| location.core.clone())
    }
    /// A location by its index.
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "the builder makes the indices of its plan's locations; no byte of a peer is one"
    )]
    pub fn loc(&self, index: usize) -> &Location {
        &self.locations[index]
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

/// An address with the servers behind it.
#[derive(Debug)]
pub struct Listener {
    pub spec: ListenSpec,
    pub proxy_protocol: bool,
    /// `listen ... ssl`: connections begin with a handshake.
    pub ssl: bool,
    /// HTTP/2 is spoken here, without TLS by clients that begin with its preface.
    pub http2: bool,
    /// A `listen` of the address says so, for all of its servers.
    pub http2_listen: bool,
    /// Index of the server for hosts that no name matches.
    pub default_server: usize,
    pub names: Names,
}

/// What a server allows HTTP/2 connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// `http2`
    pub on: bool,
    /// `http2_max_concurrent_streams`
    pub streams_max: u32,
    /// Octets of a body that a client may send before anybody reads it (`http2_body_preread_size`).
    pub preread_bytes: u32,
    /// WebSockets in streams (`http2_websockets`).
    pub websockets: bool,
    /// Requests of HTTP/1.1 may ask for it (`http2_upgrade`).
    pub upgrade: bool,
}

impl Default for Http2 {
    /// nginx's defaults.
    fn default() -> Self {
        Http2 { on: false, streams_max: 128, preread_bytes: 65_536, websockets: true, upgrade: false }
    }
}

/// A `server` block.
pub struct Server {
    /// The first name: `$server_name`, redirects, log lines.
    pub name: Vec<u8>,
    /// Index of the location that stands for the server's own level.
    pub location: usize,
    pub tree: Tree,
    pub limits: wire_h1::HeadLimits,
    /// CONNECT is a method like others (`tunnel_pass`).
    pub allow_connect: bool,
    /// What it allows HTTP/2 connections.
    pub http2: Http2,
    /// How TLS connections to it are answered; `None`: it has no certificate, and that of the default server stands in.
    pub tls: Option<Arc<crate::tls::ServerTls>>,
    /// What the server level of its rewrite directives does.
    pub rewrite: Vec<Arc<dyn Handler>>,
    /// `status_zone`
    pub zone: Option<metrics::Zone<metrics::server_zone::Of>>,
}

/// What may be done with a request in a location, an `if` block or a server's own level.
pub struct Location {
    /// As written; for log lines.
    pub name: Vec<u8>,
    /// The directive that opens it.
    pub at: conf_schema::At,
    /// Its handlers' orders, sorted: those of a phase stand here as they do in the phase's list.
    pub orders: Vec<HandlerOrder>,
    /// The directive that makes `content` answer.
    pub answered_by: Option<(&'static str, conf_schema::At)>,
    pub core: Arc<Core>,
    /// The name was a regular expression: `alias` then replaces the whole URI.
    pub regex: bool,
    pub named: bool,
    /// `http2_chunk_size`
    pub http2_chunk: usize,
    pub exact: bool,
    pub internal: bool,
    /// It obeys `.htaccess` files, and serves no name that begins with `.ht`.
    pub ht_names_hidden: bool,
    pub server: usize,
    /// `/name` is redirected to `/name/` (a location of a proxy whose name ends with a slash).
    pub auto_redirect: bool,
    /// Its content comes from elsewhere (`proxy_pass`): that of its `if` blocks does, too.
    pub passes: bool,
    /// CONNECT requests are answered here.
    pub connect: bool,
    pub inner: Tree,
    pub limit_except: Option<LimitExcept>,
    /// What text is marked with unless it says otherwise itself (`charset`); empty: nothing.
    pub charset: crate::Template,
    pub rewrite: Vec<Arc<dyn Handler>>,
    pub preaccess: Vec<Arc<dyn Handler>>,
    pub access: Vec<Arc<dyn Handler>>,
    pub precontent: Vec<Arc<dyn Handler>>,
    /// One handler that answers (`return` aside), or the chain of those that look at the file system.
    pub content: Option<Arc<dyn Handler>>,
    pub content_chain: Vec<Arc<dyn Handler>>,
    /// The same while features are asked one after the other; empty in a finished plan.
    pub drafts: Vec<(HandlerOrder, Arc<dyn Handler>)>,
    pub filters: Vec<(FilterOrder, Arc<dyn Filter>)>,
    pub transform: Option<Arc<dyn Transform>>,
    pub loggers: Vec<Arc<dyn Logger>>,
    /// `status_zone`
    pub zone: Option<metrics::Zone<metrics::location_zone::Of>>,
    /// What features keep for the location, by type.
    pub extensions: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Location {
    /// What a feature keeps for the location.
    pub fn ext<T: 'static + Send + Sync>(&self) -> Option<&T> {
        self.all().next()
    }
    /// The same where several are kept.
    pub fn all<T: 'static + Send + Sync>(&self) -> impl Iterator<Item = &T> {
        self.extensions.iter().filter_map(|t| t.downcast_ref())
    }
}

/// `limit_except`: other methods than these are handled in another block's location.
#[derive(Clone, Debug)]
pub struct LimitExcept {
    /// Bit of every method that is *not* limited.
    pub allowed: u32,
    pub location: usize,
}

/// The core module's settings of a location, with what is derived from them.
pub struct Core {
    pub conf: CoreConf,
    pub root: crate::values::Root,
    /// The same word at the foot of error pages.
    pub signature: Vec<u8>,
    pub types: crate::values::Types,
    pub default_type: Arc<[u8]>,
    pub error_log: Arc<observe::ErrorLog>,
    /// `limit_rate` or `limit_rate_after` is set: the body is sent piecemeal.
    pub rate_limited: bool,
    /// A connection must work on it as a task: the rate is limited, or `post_action` follows.
    pub needs_task: bool,
}

/// Acts in a phase.
pub trait Handler: Send + Sync {
    fn run(&self, r: &mut Request) -> Flow;
}

/// Changes the response head and wraps the body.
pub trait Filter: Send + Sync {
    /// # Errors
    /// A status that replaces the response (416, say).
    fn apply(&self, r: &mut Request, body: Body) -> Result<Body, u16>;
    /// Whether the filter also sees responses without a body of their own (304, HEAD).
    fn name(&self) -> &'static str;
}

/// Makes another response of a whole one, before the filters see it: what must be read to its end before its head is known.
pub trait Transform: Send + Sync {
    /// Whether this response is its business.
    fn wants(&self, r: &mut Request) -> bool;
    /// Reads the body; what it says then is acted upon as if the handler had said it.
    fn run(self: Arc<Self>, r: Box<Request>, body: Body) -> crate::LocalFuture<(Box<Request>, Flow)>;
}

/// Told of every finished request.
pub trait Logger: Send + Sync {
    fn log(&self, r: &mut Request);
}

/// The order in which filters see a response; it stands here and nowhere else (nginx: the order of its filter modules).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterOrder {
    NotModified,
    Slice,
    MoreHeaders,
    Headers,
    Htaccess,
    UserId,
    Gunzip,
    Addition,
    Sub,
    Charset,
    Ssi,
    Compress,
    Range,
    Trailers,
    Explain,
}

/// The order in which handlers are asked, phase by phase; it stands here and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandlerOrder {
    /// Whether a certificate still holds is known before anything is done for its owner.
    ServerOcsp,
    /// Before anything looks at the address.
    ServerRealip,
    /// Behind that: who may ask is judged by the address that counts.
    ServerExplain,
    ServerEarlyBody,
    ServerScript,
    Script,
    Realip,
    /// Before the limits of connections, which would otherwise count requests that wait here.
    LimitReq,
    Degradation,
    LimitConn,
    Access,
    AuthBasic,
    AuthRequest,
    /// What folders say of themselves comes before what looks for files.
    Htaccess,
    /// Before anything reads the body.
    TrackUploads,
    /// Before a mirror, which is to see the URI that was found.
    TryFiles,
    DavGuard,
    Mirror,
    Video,
    RandomIndex,
    Index,
    /// A folder may forbid its listing.
    HtaccessListing,
    Autoindex,
    Dav,
    CompressedFiles,
    Files,
}

impl HandlerOrder {
    /// When they are asked.
    pub fn phase(self) -> Phase {
        match self {
            HandlerOrder::ServerOcsp
            | HandlerOrder::ServerRealip
            | HandlerOrder::ServerExplain
            | HandlerOrder::ServerEarlyBody
            | HandlerOrder::ServerScript => Phase::ServerRewrite,
            HandlerOrder::Script => Phase::Rewrite,
            HandlerOrder::Realip | HandlerOrder::LimitReq | HandlerOrder::Degradation | HandlerOrder::LimitConn => {
                Phase::Preaccess
            }
            HandlerOrder::Access | HandlerOrder::AuthBasic | HandlerOrder::AuthRequest => Phase::Access,
            HandlerOrder::Htaccess
            | HandlerOrder::TrackUploads
            | HandlerOrder::TryFiles
            | HandlerOrder::DavGuard
            | HandlerOrder::Mirror => Phase::Precontent,
            HandlerOrder::Video
            | HandlerOrder::RandomIndex
            | HandlerOrder::Index
            | HandlerOrder::HtaccessListing
            | HandlerOrder::Autoindex
            | HandlerOrder::Dav
            | HandlerOrder::CompressedFiles
            | HandlerOrder::Files => Phase::Content,
        }
    }
}

/// When a feature plans a block: whether it finds there what others have planned, or others find its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanOrder {
    /// What others build upon (caches, which whatever passes requests on takes).
    Before,
    #[default]
    Usual,
    /// What stands around that of others (`slice`).
    Around,
}
