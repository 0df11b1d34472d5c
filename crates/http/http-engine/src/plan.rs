//! Plan of the http area, built once from the checked tree, immutable afterwards.

use crate::area::{HttpServerNames, Variable};
use crate::core_table::CoreConf;
use crate::handler::{Filter, Handler, Logger, ResponseGuard, Transform};
use crate::order::{FilterOrder, HandlerOrder};
use crate::own_socket::Datagrams;
use crate::sampler::LateSampler;
use crate::tree::Tree;
use net::Address;
use net::listen::ListenSpec;
use std::any::Any;
use std::sync::Arc;

/// The plan of the http area. Immutable once built: requests in flight keep their plan over a reload.
pub struct HttpPlan {
    /// Unique among the plans of a process; never 0.
    pub generation: u32,
    /// Listeners, one for each address and kind (streams or datagrams).
    pub listeners: Vec<Listener>,
    /// Servers; [`Listener::default_server`] and the names of a listener are indices into it.
    pub servers: Vec<Server>,
    /// Locations of all servers, `if` blocks and server levels included. Other parts of the plan refer to them by
    /// index.
    pub locations: Vec<Location>,
    /// Variables by the index of their `VarId`.
    pub variables: Vec<Variable>,
    /// Some variable reads a field of a response, ours or an upstream server's.
    pub asks_for_fields: bool,
    /// Names of the variables, for lookups at run time.
    pub names: crate::area::HttpNames,
    /// Some template refers to captures of the last match (`$1`).
    pub groups_used: bool,
    /// Some location applies `.htaccess` files: clients may neither write nor read names that begin with `.ht`.
    pub ht_names_hidden: bool,
    /// Some server has a `status_zone`.
    pub servers_counted: bool,
    /// `tidegate_cache`: its size in bytes, and `recheck` in milliseconds.
    pub cache_bytes: u64,
    /// Milliseconds after which a cached entry is compared with its file without an event.
    pub cache_recheck: u64,
    /// Connections to servers use foreign source addresses: workers need the capability for it.
    pub transparent: bool,
    /// Functions that write the buffered log lines of the calling thread.
    pub flushers: Vec<fn()>,
    /// Values of features for the http block, found by type with [`HttpPlan::ext`].
    pub extensions: Vec<Arc<dyn Any + Send + Sync>>,
    /// Work of the control thread while the plan serves.
    pub background: Vec<Arc<dyn Background<HttpPlan>>>,
    /// Folders to be created before the first request, owned by the workers' account.
    pub folders: Vec<Folder>,
    /// Files that directives name and that do not exist, to be created with the folders.
    pub new_files: Vec<NewFile>,
    /// Datagrams that features answer. Their sockets are not among [`HttpPlan::specs`].
    pub datagrams: Vec<Datagrams>,
}

/// A folder that the master creates for the workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// The folder, absolute.
    pub path: std::path::PathBuf,
    /// Failure to create the folder prevents the start. Other folders are created again on use.
    pub needed: bool,
    /// It keeps keys and certificates: missing parents are created, and files of a former owner come along.
    pub is_state: bool,
}

/// A file that the master creates, readable by its own account alone.
#[derive(Clone, PartialEq, Eq)]
pub struct NewFile {
    /// The file, absolute.
    pub path: std::path::PathBuf,
    /// Its content.
    pub content: Vec<u8>,
}

pub use area::background::Background;
pub use area::binding::Transparent;
use area::plan::{self, AreaPlan, NamedRules, Work};

impl std::fmt::Debug for HttpPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpPlan({} servers, {} locations)", self.servers.len(), self.locations.len())
    }
}

impl HttpPlan {
    /// Returns the addresses that the process must open.
    pub fn specs(&self) -> impl Iterator<Item = &ListenSpec> {
        self.listeners.iter().map(|l| &l.spec)
    }
    /// Returns `None` for an address that this plan does not listen on.
    #[inline]
    pub fn listener_of(&self, connection: &crate::ClientConnection) -> Option<&Listener> {
        self.listener(&connection.listener)
    }
    /// Returns `None` for an address that this plan does not listen on.
    #[inline]
    pub fn listener(&self, listener: &crate::ListenerRef) -> Option<&Listener> {
        let find = |address: &Address, datagrams: bool| {
            self.listeners.iter().position(|l| l.spec.datagram == datagrams && l.spec.address == *address)
        };
        self.listeners.get(listener.index_in(self.generation, find)?)
    }
    /// Returns the settings of a listener's default server, which apply before the server of a request is known.
    pub fn default_conf(&self, listener: &Listener) -> Option<Arc<Core>> {
        self.locations.get(self.servers.get(listener.default_server)?.location).map(|location| location.core.clone())
    }
    /// Returns a location. Panics if the index is of another plan.
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "the builder makes the indices of its plan's locations; no byte of a peer is one"
    )]
    pub fn loc(&self, index: usize) -> &Location {
        &self.locations[index]
    }
    /// Returns a server. Panics if the index is of another plan.
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "the builder makes the indices of its plan's servers; no byte of a peer is one"
    )]
    pub fn srv(&self, index: usize) -> &Server {
        &self.servers[index]
    }
    /// Returns the first value of a type that a feature has kept.
    pub fn ext<T: 'static + Send + Sync>(&self) -> Option<&T> {
        self.exts().next()
    }
    /// Returns all values of a type that features have kept, in the order of their planning.
    pub fn exts<T: 'static + Send + Sync>(&self) -> impl Iterator<Item = &T> {
        self.extensions.iter().filter_map(|t| t.downcast_ref())
    }
}

/// An address on which servers listen, with the options of all its `listen` lines.
#[derive(Debug)]
pub struct Listener {
    /// The address and its socket options.
    pub spec: ListenSpec,
    /// Connections begin with a PROXY protocol header.
    pub proxy_protocol: bool,
    /// `listen ... ssl`: connections start with a handshake.
    pub ssl: bool,
    /// HTTP/2 is enabled; in cleartext for clients that start with the preface.
    pub http2: bool,
    /// `listen ... http2` enables HTTP/2 for all servers of the address.
    pub http2_listen: bool,
    /// `listen ... quic`: HTTP/3 over datagrams. `ssl` is true, too.
    pub quic: bool,
    /// Index of the server for hosts that no name fits, and for handshakes without a name.
    pub default_server: usize,
    /// The names of the address's servers.
    pub names: HttpServerNames,
}

/// Settings of HTTP/2 of a server (nginx: `ngx_http_v2_srv_conf_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// `http2 on`.
    pub on: bool,
    /// `http2_max_concurrent_streams`.
    pub streams_max: u32,
    /// Bytes of a body that a client may send before it is read (`http2_body_preread_size`).
    pub preread_bytes: u32,
    /// WebSockets over HTTP/2 are offered (RFC 8441).
    pub websockets: bool,
    /// HTTP/1.1 requests may upgrade (`http2_upgrade`).
    pub upgrade: bool,
}

impl Default for Http2 {
    fn default() -> Self {
        Http2 { on: false, streams_max: 128, preread_bytes: 65_536, websockets: true, upgrade: false }
    }
}

/// `quic_congestion_control`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR.
    Bbr,
    /// New Reno (RFC 9002).
    NewReno,
}

/// nginx: `ngx_http_v3_srv_conf_t`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http3 {
    /// `http3`.
    pub on: bool,
    /// `http3_hq`
    pub hq: bool,
    /// `http3_max_concurrent_streams`.
    pub streams_max: u32,
    /// `http3_stream_buffer_size`, in bytes.
    pub stream_buffer: u32,
    /// `quic_retry`: validates the client's address with a Retry packet.
    pub retry: bool,
    /// `quic_active_connection_id_limit`
    pub active_ids: u64,
    /// `quic_gso`: sends batches of datagrams with one system call, cut by the kernel.
    pub gso: bool,
    /// `quic_congestion_control`.
    pub congestion: Congestion,
    /// Content of the `quic_host_key` file; `None`: a key generated by this process.
    pub host_key: Option<Arc<[u8]>>,
}

impl Default for Http3 {
    fn default() -> Self {
        Http3 {
            on: true,
            hq: false,
            streams_max: 128,
            stream_buffer: 65_536,
            retry: false,
            active_ids: 2,
            gso: true,
            congestion: Congestion::Cubic,
            host_key: None,
        }
    }
}

/// A virtual server.
pub struct Server {
    /// The first name, for `$server_name`, redirects and log lines.
    pub name: Vec<u8>,
    /// Index of the location with the settings of the server's own level.
    pub location: usize,
    /// The server's locations.
    pub tree: Tree,
    /// Limits of a request head, from the server's buffers.
    pub limits: wire_h1::HeadLimits,
    /// Treats CONNECT like other methods (`tunnel_pass`).
    pub allow_connect: bool,
    /// Settings of HTTP/2.
    pub http2: Http2,
    /// Settings of HTTP/3.
    pub http3: Http3,
    /// Response to TLS handshakes; `None`: without a certificate; the default server's is used.
    pub tls: Option<Arc<crate::area::ServerTls>>,
    /// Handlers of [`Phase::ServerRewrite`](crate::order::Phase), in their order.
    pub rewrite: Vec<Arc<dyn Handler>>,
    /// Zone of metrics (`status_zone`).
    pub zone: Option<metrics::MetricZone<metrics::server_zone::Of>>,
}

/// Settings and handlers of a location, an `if` block or a server's own level.
pub struct Location {
    /// Name as in nginx's messages. An `if` or `limit_except` block has that of its location.
    pub name: Vec<u8>,
    /// Place of the block in the configuration.
    pub at: conf_schema::At,
    /// Orders of the handlers, sorted: within a phase, in the order of the phase's list.
    pub orders: Vec<HandlerOrder>,
    /// Name and place of the directive that set `content`.
    pub answered_by: Option<(&'static str, conf_schema::At)>,
    /// Settings of the core module.
    pub core: Arc<Core>,
    /// The name is a regular expression: `alias` replaces the whole URI.
    pub regex: bool,
    /// A named location (`@name`).
    pub named: bool,
    /// `http2_chunk_size`: bytes of a DATA frame at most.
    pub http2_chunk: usize,
    /// The name must match exactly (`=`).
    pub exact: bool,
    /// Only internal redirects and subrequests may enter (`internal`).
    pub internal: bool,
    /// Applies `.htaccess` files, and serves no name that begins with `.ht`.
    pub ht_names_hidden: bool,
    /// Judges files before they are opened.
    pub file_guard: Option<Arc<dyn crate::handler::FileGuard>>,
    /// Index of the server.
    pub server: usize,
    /// Redirects `/name` to `/name/` (a proxy's location whose name ends with a slash).
    pub auto_redirect: bool,
    /// Passes requests on (`proxy_pass`), as do its `if` blocks.
    pub passes: bool,
    /// The location has `tunnel_pass`.
    pub connect: bool,
    /// Locations inside this one.
    pub inner: Tree,
    /// The restriction of methods, if there is one.
    pub limit_except: Option<LimitExcept>,
    /// Charset of responses (`charset`).
    pub charset: crate::area::HttpTemplate,
    /// Leaves out the first handler of `rewrite`, which starts traces, for requests that are not sampled.
    pub sampler: Option<Arc<LateSampler>>,
    /// Handlers of [`Phase::Rewrite`](crate::order::Phase), in their order.
    pub rewrite: Vec<Arc<dyn Handler>>,
    /// Handlers of [`Phase::Preaccess`](crate::order::Phase), in their order.
    pub preaccess: Vec<Arc<dyn Handler>>,
    /// Handlers of [`Phase::Access`](crate::order::Phase), in their order.
    pub access: Vec<Arc<dyn Handler>>,
    pub(crate) precontent: Vec<Arc<dyn Handler>>,
    /// The content handler (apart from `return`), or the chain of handlers that look up files.
    pub content: Option<Arc<dyn Handler>>,
    pub(crate) content_chain: Vec<Arc<dyn Handler>>,
    /// Handlers during planning; empty in a finished plan.
    pub drafts: Vec<(HandlerOrder, Arc<dyn Handler>)>,
    /// Filters of responses, in their order.
    pub filters: Vec<(FilterOrder, Arc<dyn Filter>)>,
    /// Transforms the handler's response before all filters.
    pub transform: Option<Arc<dyn Transform>>,
    /// Transforms the output of the filters up to `FilterOrder::Sub`.
    pub late_transform: Option<Arc<dyn Transform>>,
    /// Judges responses before compression (`modsecurity`).
    pub guard: Option<Arc<dyn ResponseGuard>>,
    /// Loggers of requests that end in this location.
    pub loggers: Vec<Arc<dyn Logger>>,
    /// Zone of metrics (`status_zone` of the location).
    pub zone: Option<metrics::MetricZone<metrics::location_zone::Of>>,
    /// Values of features for this block, found by type with [`Location::ext`].
    pub extensions: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Location {
    /// Tells whether its name is a path or a prefix, and not a regular expression, a variable or `@name`.
    pub fn has_path(&self) -> bool {
        !self.regex && !self.named && !self.name.starts_with(b"$")
    }
    fn transforms(&self) -> bool {
        self.transform.is_some() || self.late_transform.is_some()
    }
    /// Counts what features add to a location.
    pub(crate) fn footprint(&self) -> [usize; 8] {
        let flags = [
            self.passes,
            self.connect,
            self.auto_redirect,
            self.ht_names_hidden,
            self.transforms(),
            self.file_guard.is_some(),
            self.guard.is_some(),
        ];
        [
            self.drafts.len() + self.rewrite.len() + self.preaccess.len(),
            self.access.len() + self.precontent.len() + self.content_chain.len(),
            self.filters.len(),
            self.loggers.len(),
            self.extensions.len(),
            self.content.as_ref().map_or(0, |content| Arc::as_ptr(content).addr()),
            flags.into_iter().fold(0, |all, flag| all << 1 | usize::from(flag)),
            usize::from(self.zone.is_some()) << 32 | self.http2_chunk,
        ]
    }
    /// Returns the first value of a type that a feature has kept.
    pub fn ext<T: 'static + Send + Sync>(&self) -> Option<&T> {
        self.all().next()
    }
    /// Returns all values of a type that features have kept, in the order of their planning.
    pub fn all<T: 'static + Send + Sync>(&self) -> impl Iterator<Item = &T> {
        self.extensions.iter().filter_map(|t| t.downcast_ref())
    }
}

/// `limit_except`: other methods are handled in the location of the inner block.
#[derive(Clone, Debug)]
pub struct LimitExcept {
    /// Bits of the methods that are *not* limited.
    pub allowed: u32,
    /// Index of the location for the other methods.
    pub location: usize,
}

/// The core module's settings of a block, with values derived from them. Blocks without settings of their own share it.
pub struct Core {
    /// The settings as configured and inherited.
    pub conf: CoreConf,
    /// `root` or `alias`, whichever applies.
    pub root: crate::values::Root,
    /// The `Server` name, for the footer of error pages.
    pub signature: Vec<u8>,
    /// `types`, or nginx's default ones.
    pub types: crate::values::Types,
    /// `default_type`.
    pub default_type: Arc<[u8]>,
    /// The error log.
    pub error_log: Arc<observe::ErrorLog>,
    /// `limit_rate` or `limit_rate_after` is set: the body is sent in pieces.
    pub rate_limited: bool,
    /// Requests need a task: the rate is limited, or `post_action` is set.
    pub needs_task: bool,
}

impl AreaPlan for HttpPlan {
    fn specs(&self) -> Box<dyn Iterator<Item = &ListenSpec> + '_> {
        Box::new(HttpPlan::specs(self))
    }
    fn transparent(&self) -> bool {
        self.transparent
    }
    fn tls(&self) -> Vec<NamedRules<'_>> {
        let all = self.servers.iter().filter_map(|server| server.tls.as_ref());
        all.filter_map(|tls| Some((tls.names.as_slice(), tls.rules.as_ref()?))).collect()
    }
    fn work(self: Arc<Self>) -> Vec<Box<dyn Work>> {
        plan::area_work(&self, &self.background)
    }
}
