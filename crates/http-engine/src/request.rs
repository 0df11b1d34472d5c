//! A request on its way through the phases (nginx: `ngx_http_request_t`).

use crate::path::CanonicalPath;
use crate::plan::{HttpPlan, Location, Server};
use crate::regex::Captures;
use crate::response::OutHead;
use crate::subrequest::{Common, RequestTree, Sub};
use crate::trace::StepKind;
use crate::upstream_slot::UpstreamSlot;
use crate::variable::{Source, VarId};
use base::clock::Instant;
use bytes::Bytes;
use http_types::{BodyLength, Known, Method, RequestHead, Version};
use std::any::Any;
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Who talks to us: the facts of a connection that outlive one request.
#[derive(Clone, Debug)]
pub struct Connection {
    /// `$connection`
    pub number: u64,
    /// `None` for UNIX-domain sockets.
    pub peer: Option<SocketAddr>,
    /// The address that the client connected to.
    pub local: Rc<net::listen::Address>,
    /// The listener that it came in by.
    pub listener: ListenerRef,
    /// `$connection_requests`: requests so far, this one included. It stays at its highest.
    pub requests: Cell<u32>,
    /// `tcp_nodelay` has been acted upon.
    pub nodelay: Cell<bool>,
    pub started: Instant,
    /// What a PROXY protocol header said, and its bytes.
    pub proxy: Option<Box<(wire_proxy::Header, Vec<u8>)>>,
    /// Its entry in the poller of its thread, for `$tcpinfo_*`; `None`: nobody is connected.
    pub socket: Option<net::poller::Key>,
    /// What is known of its TLS; `None`: it has none, and the scheme is http.
    pub tls: Option<Arc<tls::Facts>>,
    /// The beginning of a head of which the rest has not come yet.
    pub begun: Begun,
}

impl Connection {
    /// Counts a request.
    pub fn count_request(&self) {
        self.requests.set(self.requests.get().saturating_add(1));
    }
}

// With the counts of its `Rc` it fits 128 bytes, a size that allocators have: idle connections consist of little else.
const _: () = assert!(size_of::<Connection>() <= 112);

/// A listener, named by what a reload does not change: its address. Where it stands in a plan is looked up once a plan.
#[derive(Clone, Debug)]
pub struct ListenerRef {
    address: Rc<net::listen::Address>,
    /// The plan that was asked last, by its generation, and the index there (`u32::MAX`: it does not listen there).
    place: Cell<(u32, u32)>,
}

impl ListenerRef {
    pub fn new(address: Rc<net::listen::Address>) -> ListenerRef {
        ListenerRef { address, place: Cell::new((0, u32::MAX)) }
    }
    pub fn address(&self) -> &Rc<net::listen::Address> {
        &self.address
    }
    /// Its index among a plan's listeners.
    #[inline]
    pub fn index_in(&self, plan: &HttpPlan) -> Option<usize> {
        let (generation, index) = self.place.get();
        if generation == plan.generation && index != u32::MAX {
            return Some(index as usize);
        }
        let found = plan.listeners.iter().position(|l| l.spec.address == *self.address);
        self.place.set((plan.generation, found.map_or(u32::MAX, |index| index as u32)));
        found
    }
}

/// Bytes that a connection has sent and nobody can use yet; nothing for most.
#[derive(Default)]
#[allow(clippy::box_collection)]
pub struct Begun(Cell<Option<Box<Vec<u8>>>>);

impl std::fmt::Debug for Begun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Begun({})", self.is_some())
    }
}

impl Clone for Begun {
    /// The bytes stay with the connection they came on.
    fn clone(&self) -> Self {
        Begun::default()
    }
}

impl Begun {
    pub fn take(&self) -> Option<Vec<u8>> {
        self.0.take().map(|bytes| *bytes)
    }
    /// Keeps the bytes, in no more memory than they need.
    pub fn keep(&self, bytes: &[u8]) {
        self.0.set((!bytes.is_empty()).then(|| Box::new(bytes.to_vec())));
    }
    pub fn is_some(&self) -> bool {
        let bytes = self.0.take();
        let is_some = bytes.is_some();
        self.0.set(bytes);
        is_some
    }
}

/// Where the request's body comes from; the connection implements it.
pub trait BodyReader {
    /// The next bytes, or `None` at the end.
    ///
    /// # Errors
    /// The status that the request ends with: 400 for broken framing, 408 for silence, 413, 499 when the client left.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, u16>>>;
}

/// The client's side of a connection that has stopped speaking HTTP.
pub trait RawClient {
    /// Reads some bytes; `Ok(0)` is the end.
    ///
    /// # Errors
    /// A broken connection.
    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut Vec<u8>) -> Poll<std::io::Result<usize>>;
    /// Writes some bytes.
    ///
    /// # Errors
    /// A broken connection.
    fn poll_send(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>>;
    /// Writes out what was taken and held back.
    ///
    /// # Errors
    /// A broken connection.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>>;
    /// Closes the writing side.
    fn shutdown(&mut self);
    /// The client's end of writing is a message of its own (END_STREAM), behind which it goes on reading. Otherwise it is taken for
    /// the end of the connection, as in nginx.
    fn closes_by_halves(&self) -> bool {
        false
    }
}

/// Takes a connection over after the head of a response.
pub trait Tunnel {
    /// Runs to the end of the connection; `(received, sent)` bytes of the client.
    fn run(self: Box<Self>, client: Box<dyn RawClient>) -> LocalFuture<(u64, u64)>;
}

/// Tells when the client has closed its side of the connection; the connection implements it.
pub trait Watch {
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()>;
    /// Sends an interim response (103); ready when all of it was written, or nothing can be any more.
    fn poll_interim(&self, cx: &mut Context<'_>, bytes: &mut Bytes) -> Poll<()>;
}

/// The request's body: unread, being read, or read.
#[derive(Default)]
pub enum RequestBody {
    #[default]
    None,
    /// Not read yet.
    Unread(Box<dyn BodyReader>),
    /// Somebody reads it, or it was read to its end.
    Taken,
}

/// What a handler says.
pub enum Flow {
    /// Nothing to say: the next handler.
    Declined,
    /// Access granted (matters under `satisfy any`).
    Allowed,
    /// The response is in `Request::out`; this is its body.
    Content(crate::Body),
    /// End with this status: error pages apply.
    Status(u16),
    /// Start over with another URI (nginx: `ngx_http_internal_redirect`); `internal` says that `internal` locations may answer it.
    Redirect { path: CanonicalPath, args: Vec<u8>, internal: bool },
    /// Go on in a named location.
    Named(Vec<u8>),
    /// The URI was changed in place: match locations again (rewrite phase).
    Rewritten,
    /// Close the connection without a response (444).
    Close,
    /// The rest needs to wait.
    Later(Later),
    /// The rest waits for sockets alone, and is polled where the connection stands.
    Exchange(Box<dyn crate::Exchange>),
}

impl Flow {
    /// Starts over with a URI that the operator or an application named.
    pub fn redirect(path: CanonicalPath, args: Vec<u8>) -> Flow {
        Flow::Redirect { path, args, internal: true }
    }
}

pub use session_engine::background::LocalFuture;
/// Work that waits: it is given the request and hands it back with what it says.
pub type Later = Box<dyn FnOnce(Box<Request>) -> LocalFuture<(Box<Request>, Flow)>>;

pub use session_engine::Slot;

/// Where a script of the rewrite module is (nginx: `ngx_http_script_engine_t`).
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptState {
    pub depth: u8,
    /// Groups are escaped when they become values.
    pub quote: bool,
}

/// A request. Boxed, and recycled by its thread: see [`Request::recycle`].
#[derive(Default)]
pub struct Request {
    pub plan: Option<Rc<Arc<HttpPlan>>>,
    pub connection: Option<Rc<Connection>>,
    /// Index of the server in the plan.
    pub server: usize,
    /// Index of the location (or `if` block) in the plan.
    pub location: usize,

    /// The bytes that `head` points into.
    pub buf: Vec<u8>,
    pub head: RequestHead,
    /// The method that is in force: error pages turn it to GET.
    pub method: Method,
    pub version: Version,
    /// `$host` when the request named one: checked, in lower case, without port.
    pub host: Vec<u8>,
    /// The port that the request named (`$request_port`).
    pub host_port: Option<u16>,
    /// The canonical path (`$uri`), its query (`$args`).
    pub path: CanonicalPath,
    pub args: Vec<u8>,
    /// There is a query, though it may be empty: `$args` has a value.
    pub args_given: bool,
    /// The path was changed by a rewrite, or is not as written: `$request_uri` must not be passed on.
    pub path_changed: bool,
    /// A rewrite changed the path, and the location stayed (`break`): its name no longer stands in the path.
    pub left_location: bool,
    /// An `if` block that passes requests on gave way to one that has no handler: what would pass it on has nowhere to pass it
    /// to, as in nginx.
    pub handler_lost: bool,
    /// Which server the host means could not be decided: the request ends with 500.
    pub undecided: bool,
    /// A rewrite changed the path: locations are matched again at the end of the phase.
    pub match_again: bool,

    pub body: RequestBody,
    /// How a handler that waits learns that nobody waits for it any more.
    pub watch: Option<Rc<dyn Watch>>,
    /// What happens to the connection once the response's head was sent (101, CONNECT): bytes are passed both ways.
    pub tunnel: Option<Box<dyn Tunnel>>,
    pub body_length: Option<BodyLength>,
    /// Bytes of the request as read from the client, head and body (`$request_length`).
    pub length: u64,

    pub keep_alive: bool,
    /// The request came from within: `internal` locations may answer.
    pub internal: bool,
    /// Internal redirects and rounds of rewriting that are left; 0 ends the request with 500.
    pub uri_changes_left: u8,
    /// An error page is being made: its own errors get the built-in page, unless `recursive_error_pages` is on.
    pub error_page: bool,
    /// The status that an error page keeps (nginx: `r->err_status`).
    pub error_status: u16,
    /// Only the head is sent.
    pub head_only: bool,
    pub chunked: bool,
    /// The body is followed by trailers: it is sent in chunks even when its length is known.
    pub expect_trailers: bool,
    /// Answered before `Expect: 100-continue` was satisfied; do not send a 100 any more.
    pub expect_tested: bool,

    pub out: OutHead,
    /// The body has a reason to wait, and nothing is to be sent as long as it does.
    pub hold_output: bool,
    /// The body failed in a way that the client need not see: what was not sent is dropped.
    pub abandoned: bool,
    /// Bytes sent to the client: all (`$bytes_sent`), and of the body alone.
    pub bytes_sent: u64,
    pub body_bytes_sent: u64,
    pub header_size: u64,
    /// The whole response went out.
    pub completed: bool,

    pub captures: Captures,
    /// What subrequests will share; it moves into the tree with the first of them.
    pub(crate) common: Common,
    /// The main request and its subrequests, once there are any.
    pub(crate) tree: Option<Rc<RequestTree>>,
    /// It is a subrequest.
    pub sub: Option<Box<Sub>>,
    /// What is known of the servers that it was passed to.
    pub upstream: UpstreamSlot,
    /// Things that features keep with a request, by type.
    pub extensions: Vec<Box<dyn Any>>,
    pub started: Instant,
    /// `$limit_rate` set by hand; bytes a second.
    pub limit_rate: Option<u64>,
    /// Where the engine goes on.
    pub phase: crate::engine::Phase,
    /// `$request_id`, once asked for.
    pub id: Option<[u8; 16]>,
    /// Access handlers under `satisfy any`: the status to end with when none allows.
    pub access_status: u16,
    /// Index of the next handler of the current phase.
    pub handler: usize,
    /// The `Location` that an error page was redirected away from; it holds unless the page sets one.
    pub old_location: crate::Str,
    /// The body, when a handler has read it whole into memory (`$request_body`).
    pub body_bytes: Option<Bytes>,
    /// Bytes of a body without `Content-Length` that a handler has read so far (`$content_length`).
    pub body_received: Option<u64>,
    /// `try_files` found a file below an `alias` that stands for the whole URI.
    pub append_to_alias: bool,
    /// How deep a rewrite script is in its `if` blocks, and whether it has not rewritten anything yet.
    pub script: ScriptState,
    /// Pages for errors that the folder of the file names, before those of the configuration.
    pub folder_pages: Option<Rc<[(u16, FolderPage)]>>,
    /// What becomes of it is noted, step by step (`trace.rs`).
    pub trace: Option<Box<crate::trace::Trace>>,
    /// A buffer for whoever needs one for a moment.
    pub scratch: Vec<u8>,
    /// A handler has decided itself: conditions of the request do not count (nginx: `disable_not_modified`).
    pub ignore_conditions: bool,
    /// With `If-None-Match` there, `If-Modified-Since` does not count (RFC 9110, 13.1.3), though it does for nginx.
    pub etag_alone: bool,
    /// The response was sent, and `post_action` is being done: what it answers goes nowhere.
    pub post_action: bool,
    /// A filter has put an error in the place of a response that had begun (nginx: `filter_finalize`).
    pub filter_failed: bool,
    /// After such an error an action was done: what is logged is settled.
    pub settled: bool,
    /// What was done last, where log lines of what goes wrong afterwards say so (nginx: `log->action`).
    pub action: Option<&'static str>,
    /// Tells the URL of the server that was asked last: it stands in later log lines, too.
    pub asked: Option<fn(&Request) -> Option<String>>,
    /// A task works on it, and has counted it among the writing ones.
    pub counted: bool,
    /// It is counted as begun and not yet as ended; it has no line in the logs yet (`counting.rs`).
    pub(crate) owes_count: bool,
    pub(crate) owes_line: bool,
    /// Its head was read together with an earlier request (`$pipe`).
    pub pipelined: bool,
    /// It holds something that others wait for (`limit_conn`): the next request of its connection begins when it is over.
    pub alone: bool,
    /// Bytes that came from the client and went to it after a response that turned the connection into a tunnel.
    pub tunnelled: (u64, u64),
}

/// What a folder answers an error with (`htaccess`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FolderPage {
    /// A path of this server, with its query.
    Path(Vec<u8>),
    /// Another place: 302.
    Url(Vec<u8>),
    /// A text of type text/html.
    Text(Vec<u8>),
    Builtin,
}

/// The change of a URI that is one too many (nginx: `NGX_HTTP_MAX_URI_CHANGES` + 1).
pub const URI_CHANGES_MAX: u8 = 11;

impl Request {
    /// # Panics
    /// Never for a request that the engine runs: it is given its plan before anything else.
    #[inline]
    pub fn plan(&self) -> &Arc<HttpPlan> {
        match &self.plan {
            Some(plan) => plan,
            None => unreachable!("a request has its plan before it runs"),
        }
    }
    /// The same, to hold while the request is changed.
    #[inline]
    #[allow(clippy::redundant_allocation)]
    pub fn plan_rc(&self) -> Rc<Arc<HttpPlan>> {
        match &self.plan {
            Some(plan) => plan.clone(),
            None => unreachable!("a request has its plan before it runs"),
        }
    }
    #[inline]
    pub fn connection(&self) -> &Connection {
        match &self.connection {
            Some(connection) => connection,
            None => unreachable!("a request has its connection before it runs"),
        }
    }
    /// The body is too large: nobody asks the client for it, and who answers in place of the refused gets an empty one.
    pub fn refuse_body(&mut self) {
        self.expect_tested = true;
        self.body = RequestBody::None;
        self.body_length = Some(BodyLength::Exact(0));
    }
    /// The handler has no use for the body, and no handler after it gets it (nginx: `ngx_http_discard_request_body`). The connection
    /// reads what is left of it.
    pub fn discard_body(&mut self) {
        if matches!(self.body, RequestBody::Unread(_)) {
            if self.body_length == Some(BodyLength::Chunked) {
                self.body_received = Some(0);
            }
            if self.body_length.is_some() {
                self.body_length = Some(BodyLength::Exact(0));
            }
            self.body = RequestBody::None;
        }
    }
    #[inline]
    pub fn loc(&self) -> &Location {
        self.plan().loc(self.location)
    }
    #[inline]
    pub fn srv(&self) -> &Server {
        self.plan().srv(self.server)
    }
    /// The value of the first header of this name.
    #[inline]
    pub fn header(&self, name: Known) -> Option<&[u8]> {
        self.head.fields.first(name).map(|span| span.of(&self.buf))
    }
    /// All fields as name and value.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.head.fields.all.iter().map(|f| (f.name.of(&self.buf), f.value.of(&self.buf)))
    }
    /// The path's extension: what stands behind the last dot of its last segment.
    pub fn extension(&self) -> &[u8] {
        let name = self.path.rsplit(|c| *c == b'/').next().unwrap_or_default();
        match name.iter().rposition(|c| *c == b'.') {
            Some(dot) if dot > 0 || name.len() > 1 => name.get(dot + 1..).unwrap_or_default(),
            _ => b"",
        }
    }
    /// Sets the media type of a response by the path's extension (nginx: `ngx_http_set_content_type`).
    pub fn set_content_type(&mut self) {
        if !self.out.content_type.bytes().is_empty() {
            return;
        }
        let core = &self.loc().core;
        let extension = self.extension();
        let mut found = None;
        if !extension.is_empty() {
            found = core.types.0.get(extension).cloned();
            if found.is_none() && extension.iter().any(u8::is_ascii_uppercase) {
                found = core.types.0.get(&extension.to_ascii_lowercase()).cloned();
            }
        }
        let media = found.unwrap_or_else(|| core.default_type.clone());
        self.out.content_type = crate::Str::Shared(media);
    }
    pub fn is_head(&self) -> bool {
        self.head.method == Method::Head
    }
    /// Appends a variable's value; `false` when it has none.
    #[inline]
    pub fn variable(&mut self, id: VarId, out: &mut Vec<u8>) -> bool {
        // (What most of them are: the plan need not be held for it.)
        if let Some(Source::One(get)) = self.plan().variables.get(id.0 as usize).map(|v| &v.source) {
            let get = *get;
            return get(self, out);
        }
        let plan = self.plan_rc();
        let Some(variable) = plan.variables.get(id.0 as usize) else { return false };
        session_engine::variable::value(self, variable, out)
    }
    /// Whether a variable that the request keeps has been given a value.
    pub fn slot_is_set(&self, id: VarId) -> bool {
        match self.plan().variables.get(id.0 as usize).map(|v| &v.source) {
            Some(Source::Slot(slot)) => {
                let set = |slots: &[Slot]| !matches!(slots.get(*slot as usize), None | Some(Slot::Unset));
                match &self.tree {
                    None => set(&self.common.slots),
                    Some(tree) => set(&tree.common.borrow().slots),
                }
            }
            _ => true,
        }
    }
    /// Sets a variable that the request keeps.
    pub fn set_slot(&mut self, id: VarId, value: Box<[u8]>) {
        if let Some(slot) = self.plan().variables.get(id.0 as usize).and_then(|v| v.slot()) {
            session_engine::Session::write_slot(self, slot, Slot::Value(value));
        }
    }
    /// Sets any variable that may be set.
    pub fn set_variable(&mut self, id: VarId, value: Vec<u8>) {
        let set = self.plan().variables.get(id.0 as usize).and_then(|v| v.set);
        match set {
            Some(set) => set(self, value),
            None => self.set_slot(id, value.into()),
        }
    }
    /// What a feature keeps with the request.
    pub fn ext<T: 'static>(&self) -> Option<&T> {
        self.extensions.iter().find_map(|t| t.downcast_ref())
    }
    pub fn ext_mut<T: 'static>(&mut self) -> Option<&mut T> {
        self.extensions.iter_mut().find_map(|t| t.downcast_mut())
    }
    pub fn keep<T: 'static>(&mut self, thing: T) {
        self.extensions.retain(|t| !t.is::<T>());
        self.extensions.push(Box::new(thing));
    }
    /// Makes it as new, keeping the memory of its tables.
    pub fn recycle(&mut self) {
        crate::counting::given_up(self);
        let Request {
            owes_count: _,
            owes_line: _,
            plan,
            connection,
            server,
            location,
            buf,
            head,
            method,
            version,
            host,
            host_port,
            path,
            args,
            args_given,
            path_changed,
            match_again,
            left_location,
            handler_lost,
            undecided,
            hold_output,
            abandoned,
            body,
            watch,
            body_length,
            length,
            keep_alive,
            internal,
            uri_changes_left,
            error_page,
            error_status,
            head_only,
            chunked,
            expect_trailers,
            expect_tested,
            out,
            bytes_sent,
            body_bytes_sent,
            header_size,
            completed,
            captures,
            common,
            tree,
            sub,
            upstream,
            extensions,
            started,
            limit_rate,
            phase,
            id,
            access_status,
            handler,
            ignore_conditions,
            etag_alone,
            counted,
            pipelined,
            alone,
            tunnelled,
            post_action,
            filter_failed,
            settled,
            action,
            asked,
            old_location,
            body_bytes,
            body_received,
            tunnel,
            append_to_alias,
            scratch,
            script,
            trace,
            folder_pages,
        } = self;
        (*trace, *folder_pages) = (None, None);
        *script = ScriptState::default();
        *append_to_alias = false;
        (*old_location, *body_bytes, *body_received, *tunnel) = (crate::Str::default(), None, None, None);
        (*plan, *connection, *body, *body_length, *watch) = (None, None, RequestBody::None, None, None);
        (*server, *location, *handler) = (0, 0, 0);
        (*method, *version, *phase) = (Method::default(), Version::default(), crate::engine::Phase::default());
        (*host_port, *limit_rate, *id) = (None, None, None);
        (*path_changed, *match_again, *keep_alive, *internal) = (false, false, false, false);
        (*error_page, *head_only, *chunked, *expect_tested) = (false, false, false, false);
        (*completed, *ignore_conditions, *counted, *pipelined) = (false, false, false, false);
        (*expect_trailers, *post_action, *etag_alone) = (false, false, false);
        (*left_location, *hold_output, *abandoned, *handler_lost) = (false, false, false, false);
        (*undecided, *args_given, *alone) = (false, false, false);
        (*filter_failed, *settled, *action, *asked) = (false, false, None, None);
        *tunnelled = (0, 0);
        *uri_changes_left = 0;
        (*error_status, *access_status) = (0, 0);
        (*length, *bytes_sent, *body_bytes_sent, *header_size) = (0, 0, 0, 0);
        *started = Instant::default();
        path.clear();
        for table in [buf, host, args, scratch] {
            table.clear();
        }
        head.clear();
        out.clear();
        captures.clear();
        (*tree, *sub) = (None, None);
        common.slots.clear();
        common.extensions.clear();
        extensions.clear();
        upstream.reset();
    }
    /// Writes to the error log of the location, with the facts that nginx adds to every line of a request.
    #[cold]
    pub fn log(&self, level: observe::Level, words: std::fmt::Arguments<'_>) {
        self.log_of(level, words, None);
    }

    /// The same, of a server that the request was passed to: its URL stands where nginx has it.
    pub fn log_of(&self, level: observe::Level, words: std::fmt::Arguments<'_>, upstream: Option<&str>) {
        let log = &self.loc().core.error_log;
        if level <= observe::Level::Error {
            self.note(StepKind::Log, self.loc().at, |_| words.to_string());
        }
        if self.is_rehearsal() || !log.wants(level) {
            return;
        }
        let c = self.connection();
        let client = crate::variables::peer_text(c);
        let server = String::from_utf8_lossy(&self.srv().name);
        let line = String::from_utf8_lossy(self.head.line.of(&self.buf));
        let mut text = match (self.action, upstream) {
            // Who names the server says itself what was being done.
            (Some(action), None) => format!("{words} while {action}, client: {client}, server: {server}"),
            _ => format!("{words}, client: {client}, server: {server}"),
        };
        if !line.is_empty() {
            text += &format!(", request: \"{line}\"");
        }
        if self.is_subrequest() {
            text += &format!(", subrequest: \"{}\"", String::from_utf8_lossy(&self.path));
        }
        let asked = || self.asked.and_then(|asked| asked(self));
        if let Some(url) = upstream.map(ToString::to_string).or_else(asked) {
            text += &format!(", upstream: \"{url}\"");
        }
        if let Some(host) = self.header(Known::Host) {
            text += &format!(", host: \"{}\"", String::from_utf8_lossy(host));
        }
        if let Some(referer) = self.header(Known::Referer) {
            text += &format!(", referrer: \"{}\"", String::from_utf8_lossy(referer));
        }
        log.log(level, c.number, format_args!("{text}"));
    }
}
