//! A request in the course of its phases (nginx: `ngx_http_request_t`).

mod accounting;
mod incoming;
mod progress;
mod reply;
mod scope;
mod target;

pub use accounting::{CacheCount, RequestAccount};
pub use incoming::IncomingHead;
pub use progress::RequestProgress;
pub use reply::Reply;
pub use scope::Scope;
pub use target::Target;

use crate::area::HttpSource;
use crate::connection::{BodyReader, ClientConnection, TunnelFault, TunnelMark};
use crate::family::Family;
use crate::handler::{Flow, ResponseBody};
use crate::plan::{HttpPlan, Location, Server};
use crate::response::OutHead;
use crate::span::TraceContext;
use crate::trace::{StepKind, Trace, TraceStep};
use crate::upstream_slot::UpstreamSlot;
use base::clock::Instant;
use bytes::Bytes;
use conf_schema::At;
use http_types::{BodyLength, Known, Method, RequestHead};
use observe::Detail;
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use variables::SessionSlot;
use variables::variable::VarId;

/// The client's body of a request.
#[derive(Default)]
pub enum RequestBody {
    /// The request has none, or it was discarded.
    #[default]
    None,
    /// The reader of a body that no handler has taken.
    Unread(Box<dyn BodyReader>),
    /// A handler has the reader.
    Taken,
}

/// nginx: `ngx_http_script_engine_t`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptState {
    /// Depth of nested `if` blocks.
    pub depth: u8,
    /// Escapes captures in values.
    pub quote: bool,
}

/// A request. Boxed, and recycled by its thread: see [`Request::recycle`].
#[derive(Default)]
pub struct Request {
    /// Plan, connection, server and location.
    pub(crate) scope: Scope,
    /// Bytes of the head; the spans of `head` refer to it.
    pub buf: Vec<u8>,
    /// The parsed head as received.
    pub head: RequestHead,
    /// The requested resource as currently in effect.
    pub target: Target,
    /// The body and the client.
    pub incoming: IncomingHead,
    /// The response head, which handlers and filters fill.
    pub out: OutHead,
    /// Framing and pace of the response.
    pub reply: Reply,
    /// Counts and times for logs and metrics.
    pub accounting: RequestAccount,
    /// Progress through the phases.
    pub progress: RequestProgress,
    /// Relation to other requests of its tree.
    pub(crate) family: Family,
    /// Facts about its upstream servers.
    pub upstream: UpstreamSlot,
    /// A buffer for use within one function, which takes it and puts it back. Holds nothing between calls.
    pub(crate) scratch: Vec<u8>,
    extensions: Vec<Box<dyn Any>>,
    /// Steps of a traced request (`trace.rs`).
    trace: Option<Box<Trace>>,
    /// The trace context (`otel_trace`).
    pub(crate) context: TraceContext,
}

fn digits(octets: &[u8]) -> String {
    let mut out = Vec::new();
    crate::span::write_hex(octets, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// A folder's response to an error (`htaccess`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FolderPage {
    /// A path on this server, with its query.
    Path(Vec<u8>),
    /// A redirect to this URL.
    Url(Vec<u8>),
    /// A text, sent as the page.
    Text(Vec<u8>),
    /// The built-in page.
    Builtin,
}

/// First URI change beyond the limit (nginx: `NGX_HTTP_MAX_URI_CHANGES` + 1).
pub const URI_CHANGES_MAX: u8 = 11;

impl Request {
    /// Gives a new or recycled request its plan and connection, before anything else is done with it.
    #[inline]
    #[allow(clippy::redundant_allocation)]
    pub fn begin(&mut self, plan: Rc<Arc<HttpPlan>>, connection: Rc<ClientConnection>, started: Instant) {
        self.scope.plan = Some(plan);
        self.scope.connection = Some(connection);
        self.accounting.started = started;
    }
    /// Replaces the facts about the client's connection (`realip`).
    pub fn set_connection(&mut self, connection: Rc<ClientConnection>) {
        self.scope.connection = Some(connection);
    }
    /// Returns the client connection as an owned reference.
    pub fn connection_rc(&self) -> Option<Rc<ClientConnection>> {
        self.scope.connection.clone()
    }
    /// Returns the index of the server in the plan.
    #[inline]
    pub fn server_index(&self) -> usize {
        self.scope.server
    }
    /// Returns the index of the location (or `if` block) in the plan.
    #[inline]
    pub fn location_index(&self) -> usize {
        self.scope.location
    }
    /// Selects the server by its index in the plan. [`Request::select_location`] follows.
    #[inline]
    pub fn select_server(&mut self, server: usize) {
        self.scope.server = server;
    }
    /// Selects the location by its index in the plan (`engine::enter_location` applies its settings).
    #[inline]
    pub fn select_location(&mut self, location: usize) {
        self.scope.location = location;
    }
    /// Responds with a body in memory: sets status, `Content-Type` and length. Fields may be added before or after.
    pub fn respond(&mut self, status: u16, media: impl Into<crate::Str>, body: impl Into<Bytes>) -> Flow {
        let body = body.into();
        self.out.set_status(status);
        self.out.set_content_type(media);
        self.out.set_content_length(Some(body.len() as u64));
        Flow::Content(ResponseBody::Bytes(body))
    }
    /// Sets status, length, validators and type of a file that becomes the body, and allows ranges of it. `modified`: in
    /// seconds since 1970. `etag` is asked if the location has entity tags.
    #[inline]
    pub fn describe_file(&mut self, length: u64, modified: i64, etag: impl FnOnce() -> crate::Str) {
        self.out.set_status(200);
        self.out.set_content_length(Some(length));
        self.out.set_last_modified(Some(modified));
        if self.loc().core.conf.etag {
            self.out.set_etag(etag());
        }
        self.set_content_type();
        self.out.allow_ranges(true);
    }
    /// Takes an empty buffer for use within one function, which gives it back by [`Request::put_scratch`].
    #[inline]
    pub fn take_scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.scratch)
    }
    /// Gives back the buffer of [`Request::take_scratch`], emptied.
    #[inline]
    pub fn put_scratch(&mut self, buffer: Vec<u8>) {
        self.scratch = buffer;
    }
    /// Returns the trace context (`otel_trace`).
    #[inline]
    pub fn trace_context(&self) -> &TraceContext {
        &self.context
    }
    /// Sets the trace context.
    #[inline]
    pub fn set_trace_context(&mut self, context: TraceContext) {
        self.context = context;
    }
    /// Never panics for a request in the engine, which has a plan from the start.
    #[inline]
    pub fn plan(&self) -> &Arc<HttpPlan> {
        match &self.scope.plan {
            Some(plan) => plan,
            None => unreachable!("a request has its plan before it runs"),
        }
    }
    /// [`Request::plan`] as an owned reference, for use while the request changes.
    #[inline]
    #[allow(clippy::redundant_allocation)]
    pub fn plan_rc(&self) -> Rc<Arc<HttpPlan>> {
        match &self.scope.plan {
            Some(plan) => plan.clone(),
            None => unreachable!("a request has its plan before it runs"),
        }
    }
    /// Returns the client connection. Never panics for a request in the engine, which has one from the start.
    #[inline]
    pub fn connection(&self) -> &ClientConnection {
        match &self.scope.connection {
            Some(connection) => connection,
            None => unreachable!("a request has its connection before it runs"),
        }
    }
    /// Refuses a body that is too large: neither reads it nor sends 100 (Continue); error pages see an empty body.
    pub fn refuse_body(&mut self) {
        self.incoming.expect_tested = true;
        self.incoming.body = RequestBody::None;
        self.incoming.body_length = Some(BodyLength::Exact(0));
    }
    /// Discards the body (nginx: `ngx_http_discard_request_body`): later handlers see none, the connection drains it.
    pub fn discard_body(&mut self) {
        if matches!(self.incoming.body, RequestBody::Unread(_)) {
            if self.incoming.body_length == Some(BodyLength::Chunked) {
                self.incoming.body_received = Some(0);
            }
            if self.incoming.body_length.is_some() {
                self.incoming.body_length = Some(BodyLength::Exact(0));
            }
            self.incoming.body = RequestBody::None;
        }
    }
    /// Returns the current location.
    #[inline]
    pub fn loc(&self) -> &Location {
        self.plan().loc(self.scope.location)
    }
    /// Returns the server.
    #[inline]
    pub fn srv(&self) -> &Server {
        self.plan().srv(self.scope.server)
    }
    /// Returns the value of the first field of this name.
    #[inline]
    pub fn header(&self, name: Known) -> Option<&[u8]> {
        self.head.fields.first(name).map(|span| span.of(&self.buf))
    }
    /// Returns names and values of all fields of the request, in their order.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.head.fields.all.iter().map(|f| (f.name.of(&self.buf), f.value.of(&self.buf)))
    }
    /// After the last dot of the last segment, unless the segment begins with it: `.css` has no extension (nginx:
    /// `ngx_http_set_exten`).
    pub fn extension(&self) -> &[u8] {
        let name = self.target.path.rsplit(|c| *c == b'/').next().unwrap_or_default();
        match name.iter().rposition(|c| *c == b'.') {
            Some(dot) if dot > 0 => name.get(dot + 1..).unwrap_or_default(),
            _ => b"",
        }
    }
    /// nginx: `ngx_http_set_content_type`.
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
    /// Tells whether the client sent HEAD, whatever the effective method is.
    pub fn is_head(&self) -> bool {
        self.head.method == Method::Head
    }
    /// Appends a variable's value; `false` if not found.
    #[inline]
    pub fn variable(&mut self, id: VarId, out: &mut Vec<u8>) -> bool {
        if let Some(HttpSource::One(get)) = self.plan().variables.get(id.0 as usize).map(|v| &v.source) {
            let get = *get;
            return get(self, out);
        }
        let plan = self.plan_rc();
        let Some(variable) = plan.variables.get(id.0 as usize) else { return false };
        variables::variable::append_value(self, variable, out)
    }
    /// Stores a variable's value in the request's slot; ignored for variables without a slot.
    pub fn set_slot(&mut self, id: VarId, value: Box<[u8]>) {
        if let Some(slot) = self.plan().variables.get(id.0 as usize).and_then(|v| v.slot()) {
            variables::Session::write_slot(self, slot, SessionSlot::Value(value));
        }
    }
    /// Stores a computed value for later, unless the variable has one; `None`: it is known to have none.
    pub fn offer_value(&mut self, id: VarId, value: Option<&[u8]>) {
        let Some(slot) = self.plan().variables.get(id.0 as usize).and_then(|v| v.slot()) else { return };
        if variables::Session::read_slot(self, slot, &mut Vec::new()).is_none() {
            variables::Session::write_slot(self, slot, value.map_or(SessionSlot::Missing, SessionSlot::of));
        }
    }
    /// Assigns a variable, by its setter if it has one (`$args`, `$limit_rate`).
    pub fn set_variable(&mut self, id: VarId, value: Vec<u8>) {
        let set = self.plan().variables.get(id.0 as usize).and_then(|v| v.set);
        match set {
            Some(set) => set(self, value),
            None => self.set_slot(id, value.into()),
        }
    }
    /// Returns the value of a type that a feature keeps with the request.
    pub fn ext<T: 'static>(&self) -> Option<&T> {
        self.extensions.iter().find_map(|t| t.downcast_ref())
    }
    /// Returns the value of a type that a feature keeps with the request, to be changed.
    pub fn ext_mut<T: 'static>(&mut self) -> Option<&mut T> {
        self.extensions.iter_mut().find_map(|t| t.downcast_mut())
    }
    /// Takes the value of a type out of the request.
    pub fn take_ext<T: 'static>(&mut self) -> Option<Box<T>> {
        let at = self.extensions.iter().position(|t| t.is::<T>())?;
        self.extensions.swap_remove(at).downcast().ok()
    }
    /// [`Request::keep`] for a boxed value.
    pub fn keep_boxed<T: 'static>(&mut self, thing: Box<T>) {
        self.extensions.push(thing);
    }
    /// Tells whether features keep any value with the request.
    #[inline]
    pub fn has_extensions(&self) -> bool {
        !self.extensions.is_empty()
    }
    /// Returns the steps so far; `None`: the request is not traced.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_deref()
    }
    /// Begins or ends the recording of steps.
    pub fn set_trace(&mut self, trace: Option<Box<Trace>>) {
        self.trace = trace;
    }
    /// Takes the steps out of the request, and ends their recording.
    pub fn take_trace(&mut self) -> Option<Box<Trace>> {
        self.trace.take()
    }
    /// Keeps a value with the request, in place of one of its type. Lasts until [`Request::recycle`].
    pub fn keep<T: 'static>(&mut self, thing: T) {
        self.extensions.retain(|t| !t.is::<T>());
        self.extensions.push(Box::new(thing));
    }
    /// Resets the request, keeping its buffers.
    pub fn recycle(&mut self) {
        let Request {
            scope,
            buf,
            head,
            target,
            incoming,
            out,
            reply,
            accounting,
            progress,
            family,
            upstream,
            scratch,
            extensions,
            trace,
            context,
        } = self;
        scope.reset();
        target.reset();
        incoming.reset();
        reply.reset();
        accounting.reset();
        progress.reset();
        family.reset();
        upstream.reset();
        head.clear();
        out.clear();
        buf.clear();
        scratch.clear();
        extensions.clear();
        *trace = None;
        *context = TraceContext::Unknown;
    }
    /// Records and logs the end of the request's tunnel (nginx: `ngx_http_upstream_process_upgraded`).
    pub fn tunnel_ended(&mut self, ended: TunnelMark) {
        const DOING: &str = "while proxying upgraded connection";
        self.accounting.tunnelled = (ended.received, ended.from_server);
        let (level, words) = match ended.broken {
            _ if ended.timed_out => {
                (observe::Severity::Info, "upstream timed out (110: Connection timed out)".to_string())
            }
            Some(TunnelFault { error, of_server, is_read, is_secure }) => {
                let call = match (is_secure, is_read) {
                    (true, true) => "SSL_read",
                    (true, false) => "SSL_write",
                    (false, true) => "recv",
                    (false, false) => "send",
                };
                let level = if of_server { observe::Severity::Error } else { observe::Severity::Info };
                (level, format!("{call}() failed {}", observe::os_error(&error)))
            }
            None => return,
        };
        let url = self.last_url().unwrap_or_default();
        self.log_of(level, format_args!("{words} {DOING}"), Some(&url));
    }
    /// Returns the URL of the last server that the request was passed to.
    pub fn last_url(&self) -> Option<String> {
        self.accounting.asked.and_then(|asked| asked(self))
    }
    /// Writes to the location's error log, with the context that nginx adds to messages of a request.
    #[cold]
    pub fn log(&self, level: observe::Severity, words: std::fmt::Arguments<'_>) {
        self.log_of(level, words, None);
    }

    /// [`Request::log`] about an upstream server, with its URL where nginx has it.
    pub fn log_of(&self, level: observe::Severity, words: std::fmt::Arguments<'_>, upstream: Option<&str>) {
        let log = &self.loc().core.error_log;
        if level <= observe::Severity::Error {
            self.note(StepKind::Log, self.loc().at, |_| words.to_string());
        }
        if self.is_rehearsal() || !log.wants(level) {
            return;
        }
        let c = self.connection();
        let line = String::from_utf8_lossy(self.head.line.of(&self.buf));
        let mut details = vec![
            Detail::new("client", c.peer_text()),
            Detail::new("server", String::from_utf8_lossy(&self.srv().name)),
        ];
        let line = match line.split_once('?') {
            Some((before, after)) if self.incoming.has_secret => {
                let protocol = after.rsplit_once(' ').map_or("", |(_, protocol)| protocol);
                format!("{before}?... {protocol}").into()
            }
            _ => line,
        };
        if !line.is_empty() {
            details.push(Detail::quoted("request", line));
        }
        if self.is_subrequest() {
            details.push(Detail::quoted("subrequest", String::from_utf8_lossy(&self.target.path)));
        }
        if let Some(url) = upstream.map(ToString::to_string).or_else(|| self.last_url()) {
            details.push(Detail::quoted("upstream", url));
        }
        if let Some(host) = self.header(Known::Host) {
            details.push(Detail::quoted("host", String::from_utf8_lossy(host)));
        }
        if let Some(referer) = self.header(Known::Referer) {
            details.push(Detail::quoted("referrer", String::from_utf8_lossy(referer)));
        }
        if let Some(id) = &self.accounting.id {
            details.push(Detail::hidden("request_id", digits(id)));
        }
        if let Some(ids) = self.trace_ids() {
            details.push(Detail::hidden("trace_id", digits(&ids.trace)));
            details.push(Detail::hidden("span_id", digits(&ids.span)));
        }
        match (self.accounting.action, upstream) {
            // Messages that name the server also state the action.
            (Some(action), None) => {
                log.log_with(level, c.number, format_args!("{words} while {action}"), &details);
            }
            _ => log.log_with(level, c.number, words, &details),
        }
    }
}

impl Request {
    /// Ignored unless the request is traced.
    #[inline]
    pub fn note(&self, kind: StepKind, at: At, words: impl FnOnce(&Request) -> String) {
        if let Some(trace) = &self.trace {
            trace.add(TraceStep { kind, at, location: self.scope.location, text: words(self) });
        }
    }
    /// Tells whether the request is a rehearsal, which must not pass on, count or change anything.
    #[inline]
    pub fn is_rehearsal(&self) -> bool {
        self.trace.as_ref().is_some_and(|trace| trace.rehearsal)
    }
}
