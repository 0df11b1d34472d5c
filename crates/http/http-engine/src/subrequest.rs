//! Subrequests (nginx: `ngx_http_subrequest`): requests derived from a parent, with its connection, server and head,
//! and with their own path, arguments and response.
//!
//! A subrequest is internal, uses GET by default, skips access checks, applies only content filters
//! (`FilterOrder::for_subrequests`), never reads the client's body (a read one is shared, [`Request::share`]), and
//! shares stored variables with the main request, as in nginx.
//!
//! [`start_stream()`] pulls the body; [`run_to_head`] and [`in_memory`] wait for the response; [`run_background`] runs beside the main
//! request, whose log line and connection wait for it. [`DEPTH_MAX`] and [`MADE_MAX`] bound loops.

use crate::engine::{self, PhaseOutcome};
use crate::family::{Common, InBackground, RequestTree, Sub};
use crate::handler::ResponseBody;
use crate::order::Phase;
use crate::outgoing;
use crate::path::CanonicalPath;
use crate::request::{Request, URI_CHANGES_MAX};
use crate::response::{BodyError, Piece, Str};
use bytes::Bytes;
use http_types::Method;
use observe::Severity;
use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Maximum nesting of subrequests (nginx: `NGX_HTTP_MAX_SUBREQUESTS` and one more).
pub const DEPTH_MAX: u8 = 51;
/// Maximum number of subrequests per main request, nested ones included (nginx limits those alive at a time).
pub const MADE_MAX: u32 = 64_000;

/// A limit was exceeded; logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl Request {
    /// Tells whether the request is a subrequest.
    #[inline]
    pub fn is_subrequest(&self) -> bool {
        self.family.sub.is_some()
    }
    /// Returns the effective method as text, such as `GET`; for a method that Tidegate does not know, as the client
    /// sent it.
    pub fn method_name(&self) -> &[u8] {
        match &self.family.sub {
            Some(_) if self.target.method == Method::Get => b"GET",
            Some(sub) => &sub.method,
            // An error page is requested with GET; HEAD stays HEAD.
            None if self.target.method == Method::Get && self.head.method != Method::Get => b"GET",
            None => self.head.method_span.of(&self.buf),
        }
    }
    /// Charset of the main response, for a subrequest: its text is converted to it (nginx:
    /// `ngx_http_main_request_charset`). Empty before the main response has one.
    pub fn main_charset(&self) -> Option<&[u8]> {
        self.family.sub.as_ref().map(|sub| sub.main_charset.bytes())
    }
    /// Returns the main request's method as text (`$request_method`).
    pub fn main_method_name(&self) -> &[u8] {
        match &self.family.sub {
            Some(sub) => &sub.main_method,
            None => self.method_name(),
        }
    }
    /// Keeps a value for the main request and all its subrequests.
    pub fn share<T: 'static>(&mut self, thing: Rc<T>) {
        self.with_common(|common| {
            common.extensions.retain(|t| !t.is::<T>());
            common.extensions.push(thing);
        });
    }
    /// Returns the value of a type that a request of the tree has shared.
    pub fn shared<T: 'static>(&self) -> Option<Rc<T>> {
        let find = |extensions: &[Rc<dyn Any>]| extensions.iter().find_map(|t| t.clone().downcast::<T>().ok());
        match &self.family.tree {
            None => find(&self.family.common.extensions),
            Some(tree) => find(&tree.common.borrow().extensions),
        }
    }
    #[inline]
    pub(crate) fn with_common<R>(&mut self, f: impl FnOnce(&mut Common) -> R) -> R {
        match &self.family.tree {
            None => f(&mut self.family.common),
            Some(tree) => f(&mut tree.common.borrow_mut()),
        }
    }
    /// Fails beyond [`DEPTH_MAX`] or [`MADE_MAX`].
    pub fn subrequest(&mut self, path: CanonicalPath, args: Vec<u8>) -> Result<Box<Request>, TooMany> {
        let mut child = self.child(&path)?;
        if let Some(tree) = &self.family.tree {
            if tree.made.get() >= MADE_MAX {
                let shown = String::from_utf8_lossy(&path);
                self.log(Severity::Crit, format_args!("too many subrequests while processing \"{shown}\""));
                return Err(TooMany);
            }
            tree.made.set(tree.made.get() + 1);
        }
        child.target.path = path;
        child.target.args = args;
        // The URI differs from the client's request line.
        child.target.path_changed = true;
        child.progress.phase = Phase::ServerRewrite;
        child.scope.location = child.srv().location;
        Ok(child)
    }
    /// Creates a subrequest with this URI, method and location, from the content phase on (nginx:
    /// `NGX_HTTP_SUBREQUEST_CLONE`). Fails beyond [`DEPTH_MAX`].
    pub fn copy(&mut self) -> Result<Box<Request>, TooMany> {
        let mut child = self.child(&self.target.path.clone())?;
        child.target.path = self.target.path.clone();
        child.target.args = self.target.args.clone();
        child.target.path_changed = self.target.path_changed;
        child.target.left_location = self.target.left_location;
        child.set_method_of(self);
        child.scope.location = self.scope.location;
        child.progress.phase = Phase::Content;
        child.target.captures = self.target.captures.clone();
        Ok(child)
    }
    /// Makes a subrequest independent, with a method and a path of its own.
    pub fn leave_family(&mut self) {
        self.become_main();
        self.target.path_changed = false;
    }
    /// Makes a subrequest independent: its log messages are those of a main request.
    pub fn become_main(&mut self) {
        self.family.sub = None;
    }
    /// Has a subrequest answer as its upstream server does: without error pages, and without filters.
    pub fn answer_unchanged(&mut self) {
        if let Some(sub) = &mut self.family.sub {
            (sub.bare_errors, sub.as_it_comes) = (true, true);
        }
    }
    /// Tells whether a subrequest ignores the client's body.
    pub fn ignores_body(&self) -> bool {
        self.family.sub.as_ref().is_some_and(|sub| sub.without_body)
    }
    /// Makes a subrequest ignore the client's body, even if the main request has read it.
    pub fn leave_body(&mut self) {
        self.incoming.body_bytes = None;
        if let Some(sub) = &mut self.family.sub {
            sub.without_body = true;
        }
    }
    /// nginx: `mirror`.
    pub fn set_method_of(&mut self, parent: &Request) {
        self.target.method = parent.target.method;
        self.head.method = parent.target.method;
        let name = parent.method_name().into();
        if let Some(sub) = &mut self.family.sub {
            sub.method = name;
        }
    }
    fn child(&mut self, path: &[u8]) -> Result<Box<Request>, TooMany> {
        let depth_left = self.family.sub.as_ref().map_or(DEPTH_MAX, |sub| sub.depth_left);
        if depth_left == 0 {
            let shown = String::from_utf8_lossy(path);
            self.log(Severity::Error, format_args!("subrequests cycle while processing \"{shown}\""));
            return Err(TooMany);
        }
        let tree = match &self.family.tree {
            Some(tree) => tree.clone(),
            None => {
                let common = RefCell::new(std::mem::take(&mut self.family.common));
                self.family.tree.insert(Rc::new(RequestTree { common, ..RequestTree::default() })).clone()
            }
        };
        let sub = Sub {
            main_method: self.main_method_name().into(),
            method: (*b"GET").into(),
            main_charset: match &self.family.sub {
                Some(sub) => sub.main_charset.clone(),
                None => self.out.charset_name().to_vec().into(),
            },
            bare_errors: false,
            as_it_comes: false,
            without_body: false,
            depth_left: depth_left - 1,
            background: None,
        };
        let mut child = Box::<Request>::default();
        child.scope.plan = self.scope.plan.clone();
        child.scope.connection = self.scope.connection.clone();
        child.scope.server = self.scope.server;
        // A copy would make other ids.
        self.trace_ids();
        child.context = self.context.clone();
        child.buf = self.buf.clone();
        child.head = self.head.clone();
        child.incoming.changed_by.clone_from(&self.incoming.changed_by);
        child.target.method = Method::Get;
        child.target.version = self.target.version;
        child.target.host = self.target.host.clone();
        child.target.host_port = self.target.host_port;
        child.incoming.body_length = self.incoming.body_length;
        child.incoming.body_bytes = self.incoming.body_bytes.clone();
        child.incoming.watch = self.incoming.watch.clone();
        child.progress.internal = true;
        child.incoming.expect_tested = true;
        child.incoming.pipelined = self.incoming.pipelined;
        child.incoming.ordinal = self.incoming.ordinal;
        child.accounting.started = base::clock::now();
        // One for the whole tree (`$request_id`).
        child.accounting.id = Some(*self.accounting.id.get_or_insert_with(net::random::bytes16));
        child.progress.uri_changes_left = URI_CHANGES_MAX;
        child.family.tree = Some(tree);
        child.family.sub = Some(Box::new(sub));
        child.head.method = Method::Get;
        Ok(child)
    }
    /// Tells whether subrequests of [`run_background`] are running, for which log line and connection wait.
    #[inline]
    pub fn has_background(&self) -> bool {
        self.family.tree.as_ref().is_some_and(|tree| tree.background.get() > 0)
    }
    /// Ready once no subrequest of [`run_background`] runs. One waiter at a time.
    pub fn poll_background(&self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(tree) = self.family.tree.as_ref().filter(|tree| tree.background.get() > 0) {
            tree.waiting.replace(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

/// Returns `None` if the connection must be closed (status 444).
pub async fn run_to_head(child: Box<Request>) -> Option<(Box<Request>, ResponseBody)> {
    let (child, body) = engine::finish_request(engine::resume_phases(child)).await;
    body.map(|body| (child, body))
}

/// [`run_to_head`] that fails with the status with which the connection must be closed: 444, or 499 if the client has left.
pub async fn head_or_status(child: Box<Request>) -> Result<(Box<Request>, ResponseBody), u16> {
    let (child, body) = engine::finish_request(engine::resume_phases(child)).await;
    let status = if child.out.status == 499 { 499 } else { 444 };
    body.map(|body| (child, body)).ok_or(status)
}

/// Logs a subrequest if `log_subrequest` is on; to be called once its response was used.
pub fn log_subrequest(mut child: Box<Request>) {
    if child.context.span().is_some() {
        child.hand_over_tries();
    }
    if !child.loc().core.conf.log_subrequest {
        return;
    }
    let plan = child.plan_rc();
    for logger in &plan.loc(child.scope.location).loggers {
        logger.log(&mut child);
    }
}

/// A subrequest without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The connection must be closed: status 444, or the client has left.
    Close,
    /// The response is incomplete, or longer than `subrequest_output_buffer_size`.
    Broken,
}

/// Runs a subrequest and collects its body up to `subrequest_output_buffer_size`; leaves it unlogged.
pub async fn in_memory(child: Box<Request>) -> Result<(Box<Request>, Vec<u8>), NoAnswer> {
    let Some((mut child, mut body)) = run_to_head(child).await else { return Err(NoAnswer::Close) };
    let limit = child.loc().core.conf.subrequest_output_buffer_size.0;
    let mut out = Vec::new();
    loop {
        let announced = child.out.content_length.filter(|n| *n > limit);
        let piece = match announced {
            Some(n) => {
                child.log(Severity::Error, format_args!("too big subrequest response: {n}"));
                return Err(NoAnswer::Broken);
            }
            None => std::future::poll_fn(|cx| body.poll_piece(cx, &mut child)).await,
        };
        // A Content-Length also bounds the body.
        let limit = child.out.content_length.unwrap_or(limit);
        match piece {
            None => return Ok((child, out)),
            Some(Err(BodyError)) => return Err(NoAnswer::Broken),
            Some(Ok(piece)) => {
                if out.len() as u64 + piece.len() > limit {
                    child.log(Severity::Error, format_args!("too big subrequest response"));
                    return Err(NoAnswer::Broken);
                }
                let bytes = piece.into_bytes().map_err(|_| NoAnswer::Broken)?;
                out.extend_from_slice(&bytes);
            }
        }
    }
}

/// Runs a subrequest in a task and discards its response. It goes on when the client disconnects.
pub fn run_background(mut child: Box<Request>) {
    // Continues when the client disconnects.
    child.incoming.watch = None;
    if let (Some(sub), Some(tree)) = (&mut child.family.sub, &child.family.tree) {
        tree.background.set(tree.background.get() + 1);
        sub.background = Some(InBackground(tree.clone()));
    }
    runtime::task::spawn_local(async move {
        let (mut child, body) = engine::finish_request(engine::resume_phases(child)).await;
        base::clock::update();
        if let Some(mut body) = body {
            while let Some(Ok(_)) = std::future::poll_fn(|cx| body.poll_piece(cx, &mut child)).await {}
        }
        base::clock::update();
        log_subrequest(child);
    });
}

/// A subrequest whose body becomes a part of another body. Begins at once or at the first poll; logged when its body
/// ends.
pub struct BodyStream {
    state: StreamState,
    /// Text and media type that replace an error or an empty response.
    fallback: Option<(Bytes, Str)>,
}

enum StreamState {
    New(Box<Request>),
    Coming(crate::LocalFuture<Option<(Box<Request>, ResponseBody)>>),
    Body(Box<Request>, ResponseBody),
    Ended,
}

/// Starts a subrequest whose body becomes a part of another body.
pub fn start_stream(child: Box<Request>) -> BodyStream {
    let mut stream = stream_later(child);
    stream.begin();
    stream
}

/// [`start_stream()`] that starts when it is polled.
pub fn stream_later(child: Box<Request>) -> BodyStream {
    BodyStream { state: StreamState::New(child), fallback: None }
}

/// [`stream_later()`] with a text in place of an error or an empty response; the text passes the location's filters.
pub fn stream_or(mut child: Box<Request>, text: Bytes, media: Str) -> BodyStream {
    if let Some(sub) = &mut child.family.sub {
        sub.bare_errors = true;
    }
    BodyStream { fallback: Some((text, media)), ..stream_later(child) }
}

impl BodyStream {
    fn begin(&mut self) {
        if !matches!(self.state, StreamState::New(_)) {
            return;
        }
        let StreamState::New(child) = std::mem::replace(&mut self.state, StreamState::Ended) else { return };
        self.state = match engine::resume_phases(child) {
            PhaseOutcome::Ready(child, body) => StreamState::Body(child, body),
            outcome => StreamState::Coming(Box::pin(async move {
                let (child, body) = engine::finish_request(outcome).await;
                body.map(|body| (child, body))
            })),
        };
    }
    /// For a subrequest that is not yet needed.
    pub fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        self.begin();
        // [`BodyStream::poll_head`] reports the missing response.
        if let StreamState::Coming(coming) = &mut self.state
            && let Poll::Ready(come) = coming.as_mut().poll(cx)
        {
            match come {
                Some((child, body)) => self.state = StreamState::Body(child, body),
                None => self.state = StreamState::Coming(Box::pin(std::future::ready(None))),
            }
        }
        if let StreamState::Body(child, body) = &mut self.state {
            body.poll_ahead(cx, child);
        }
    }
    /// An error closes the connection.
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.begin();
        if let StreamState::Coming(coming) = &mut self.state {
            match std::task::ready!(coming.as_mut().poll(cx)) {
                None => {
                    self.state = StreamState::Ended;
                    return Poll::Ready(Err(BodyError));
                }
                Some((child, body)) => self.state = StreamState::Body(child, body),
            }
        }
        Poll::Ready(Ok(()))
    }
    /// Set between its head and the end of its body.
    pub fn request(&self) -> Option<&Request> {
        match &self.state {
            StreamState::Body(child, _) => Some(child),
            _ => None,
        }
    }
    /// As [`BodySource::needs_window`]. A subrequest that has not answered yet may have no body.
    pub fn needs_window(&self) -> bool {
        matches!(&self.state, StreamState::Body(_, body) if body.needs_window())
    }
    /// An incomplete body just ends, as in nginx; it has been logged.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, BodyError>>> {
        match self.poll_strict(cx) {
            Poll::Ready(Some(Err(BodyError))) if matches!(self.state, StreamState::Body(..)) => {
                self.end();
                Poll::Ready(None)
            }
            other => other,
        }
    }
    /// [`BodyStream::poll_piece`] with an error for an incomplete body.
    pub fn poll_strict(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, BodyError>>> {
        if let Err(e) = std::task::ready!(self.poll_head(cx)) {
            return Poll::Ready(Some(Err(e)));
        }
        loop {
            let StreamState::Body(child, body) = &mut self.state else { return Poll::Ready(None) };
            match std::task::ready!(body.poll_piece(cx, child)) {
                Some(Ok(piece)) => {
                    if !piece.is_empty() {
                        self.fallback = None;
                    }
                    child.accounting.body_bytes_sent += piece.len();
                    return Poll::Ready(Some(Ok(piece)));
                }
                None => {
                    if let Some((text, media)) = self.fallback.take() {
                        // Known to be empty, it passed filters, which ignore empty bodies.
                        if child.out.status < 300 && child.out.content_length == Some(0) {
                            *body = ResponseBody::Bytes(text);
                            continue;
                        }
                        child.out.content_type = media;
                        child.out.content_length = Some(text.len() as u64);
                        match outgoing::respond(child, ResponseBody::Bytes(text)) {
                            Ok(filtered) => *body = filtered,
                            Err(_) => *body = ResponseBody::Empty,
                        }
                        continue;
                    }
                    self.end();
                    return Poll::Ready(None);
                }
                broken => return Poll::Ready(broken),
            }
        }
    }
    fn end(&mut self) {
        if let StreamState::Body(child, _) = std::mem::replace(&mut self.state, StreamState::Ended) {
            log_subrequest(child);
        }
    }
}
