//! Subrequests: requests that the server makes of itself (nginx: `ngx_http_subrequest`).
//!
//! A subrequest is a [`Request`] of its own, made from the one that needs it (its parent; the client's own request is the
//! *main* one). It has the parent's connection, server and request head, so that headers and `$request_uri` read the same, and
//! a path, arguments and answer of its own. It runs through the phases like any request, with these differences:
//!
//! - it is internal, its method is GET unless it is told otherwise, and access checks are not made again;
//! - of the filters only those that change content act on it ([`FilterOrder::for_subrequests`]): what belongs to the message
//!   that the client gets (conditions, ranges, added fields, compression, framing) is left to the main request;
//! - it never reads the client's body; what the main request has read already is shared ([`Request::share`]);
//! - variables that requests keep are one set for the main request and all its subrequests, as in nginx.
//!
//! Three ways to use one: [`stream()`] gives its body piece by piece, so that a slow client slows it; [`head`] and
//! [`in_memory`] wait for the answer; [`background`] lets it run beside the main request, which is logged and makes room for
//! the connection's next one when the last of these has ended. A subrequest is logged where `log_subrequest` says so.
//!
//! Loops are bounded: [`DEPTH_MAX`] levels, [`MADE_MAX`] in all for one main request (twins aside, of which each stands for a
//! part of the answer).

use crate::engine::{self, Outcome, Phase};
use crate::path::CanonicalPath;
use crate::plan::FilterOrder;
use crate::request::{Request, Slot, URI_CHANGES_MAX};
use crate::response::{Body, BodyError, Piece, Str};
use bytes::Bytes;
use http_types::Method;
use observe::Level;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// How deep subrequests may make subrequests (nginx: `NGX_HTTP_MAX_SUBREQUESTS`).
pub const DEPTH_MAX: u8 = 50;
/// Subrequests that one main request may make, with those that they make (nginx limits those that are alive at a time).
pub const MADE_MAX: u32 = 64_000;

/// What a main request and its subrequests have in common.
#[derive(Default)]
pub(crate) struct Common {
    pub slots: Vec<Slot>,
    pub extensions: Vec<Rc<dyn Any>>,
}

/// The same once there is a subrequest, and how many there are.
#[derive(Default)]
pub struct RequestTree {
    pub(crate) common: RefCell<Common>,
    made: Cell<u32>,
    background: Cell<u32>,
    /// The connection, when it waits for those in the background.
    waiting: RefCell<Option<Waker>>,
}

/// What a request that is a subrequest knows besides.
pub struct Sub {
    /// The method of the main request (`$request_method`).
    pub main_method: Box<[u8]>,
    /// Its own, as it is passed on.
    pub method: Box<[u8]>,
    /// The charset of the main response: what is included in it is recoded to that.
    pub main_charset: Str,
    /// An error is not made into a page: the answer ends with the status and without a body.
    pub bare_errors: bool,
    /// No filter acts on the answer: it is taken as it comes, as a part of one that filters act on.
    pub as_it_comes: bool,
    /// The client's body is not its business, even where the main request has read it.
    pub without_body: bool,
    depth_left: u8,
    background: Option<InBackground>,
}

/// Counts a subrequest in the background while it lives.
struct InBackground(Rc<RequestTree>);

impl Drop for InBackground {
    fn drop(&mut self) {
        let left = self.0.background.get().saturating_sub(1);
        self.0.background.set(left);
        if left == 0
            && let Some(waker) = self.0.waiting.take()
        {
            waker.wake();
        }
    }
}

/// A limit was met; it has been logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl FilterOrder {
    /// Whether a filter acts on a subrequest's answer: on content, not on the client's message.
    pub const fn for_subrequests(self) -> bool {
        matches!(
            self,
            FilterOrder::Slice | FilterOrder::Gunzip | FilterOrder::Sub | FilterOrder::Charset | FilterOrder::Ssi
        )
    }
}

impl Request {
    #[inline]
    pub fn is_subrequest(&self) -> bool {
        self.sub.is_some()
    }
    /// The method in force, as it is passed on.
    pub fn method_name(&self) -> &[u8] {
        match &self.sub {
            Some(_) if self.method == Method::Get => b"GET",
            Some(sub) => &sub.method,
            // An error page's GET is what is asked for; a HEAD stays one.
            None if self.method == Method::Get && self.head.method != Method::Get => b"GET",
            None => self.head.method_span.of(&self.buf),
        }
    }
    /// The same of the main request.
    pub fn main_method_name(&self) -> &[u8] {
        match &self.sub {
            Some(sub) => &sub.main_method,
            None => self.method_name(),
        }
    }
    /// Keeps something for the main request and all its subrequests.
    pub fn share<T: 'static>(&mut self, thing: Rc<T>) {
        self.with_common(|common| {
            common.extensions.retain(|t| !t.is::<T>());
            common.extensions.push(thing);
        });
    }
    /// What is kept for the main request and all its subrequests.
    pub fn shared<T: 'static>(&self) -> Option<Rc<T>> {
        let find = |extensions: &[Rc<dyn Any>]| extensions.iter().find_map(|t| t.clone().downcast::<T>().ok());
        match &self.tree {
            None => find(&self.common.extensions),
            Some(tree) => find(&tree.common.borrow().extensions),
        }
    }
    #[inline]
    pub(crate) fn with_common<R>(&mut self, f: impl FnOnce(&mut Common) -> R) -> R {
        match &self.tree {
            None => f(&mut self.common),
            Some(tree) => f(&mut tree.common.borrow_mut()),
        }
    }
    /// A subrequest for another URI; run it with one of the functions here.
    ///
    /// # Errors
    /// [`TooMany`]
    pub fn subrequest(&mut self, path: CanonicalPath, args: Vec<u8>) -> Result<Box<Request>, TooMany> {
        let mut child = self.child(&path)?;
        if let Some(tree) = &self.tree {
            if tree.made.get() >= MADE_MAX {
                let shown = String::from_utf8_lossy(&path);
                self.log(Level::Crit, format_args!("too many subrequests while processing \"{shown}\""));
                return Err(TooMany);
            }
            tree.made.set(tree.made.get() + 1);
        }
        child.path = path;
        child.args = args;
        // The URI as the client wrote it is not this one.
        child.path_changed = true;
        child.phase = Phase::ServerRewrite;
        child.location = child.srv().location;
        Ok(child)
    }
    /// A subrequest that answers what this one answers, once more: same URI, method and location, from the content phase on
    /// (nginx: `NGX_HTTP_SUBREQUEST_CLONE`).
    ///
    /// # Errors
    /// [`TooMany`]
    pub fn copy(&mut self) -> Result<Box<Request>, TooMany> {
        let mut child = self.child(&self.path.clone())?;
        child.path = self.path.clone();
        child.args = self.args.clone();
        child.path_changed = self.path_changed;
        child.left_location = self.left_location;
        child.set_method_of(self);
        child.location = self.location;
        child.phase = Phase::Content;
        child.captures = self.captures.clone();
        Ok(child)
    }
    /// Makes a subrequest one that has no body to pass on.
    pub fn leave_body(&mut self) {
        self.body_bytes = None;
        if let Some(sub) = &mut self.sub {
            sub.without_body = true;
        }
    }
    /// Gives a subrequest its parent's method (nginx: `mirror`).
    pub fn set_method_of(&mut self, parent: &Request) {
        self.method = parent.method;
        self.head.method = parent.method;
        let name = parent.method_name().into();
        if let Some(sub) = &mut self.sub {
            sub.method = name;
        }
    }
    fn child(&mut self, path: &[u8]) -> Result<Box<Request>, TooMany> {
        let depth_left = self.sub.as_ref().map_or(DEPTH_MAX, |sub| sub.depth_left);
        if depth_left == 0 {
            let shown = String::from_utf8_lossy(path);
            self.log(Level::Error, format_args!("subrequests cycle while processing \"{shown}\""));
            return Err(TooMany);
        }
        let tree = match &self.tree {
            Some(tree) => tree.clone(),
            None => {
                let common = RefCell::new(std::mem::take(&mut self.common));
                self.tree.insert(Rc::new(RequestTree { common, ..RequestTree::default() })).clone()
            }
        };
        let sub = Sub {
            main_method: self.main_method_name().into(),
            method: (*b"GET").into(),
            main_charset: self.sub.as_ref().map_or_else(|| self.out.charset.clone(), |sub| sub.main_charset.clone()),
            bare_errors: false,
            as_it_comes: false,
            without_body: false,
            depth_left: depth_left - 1,
            background: None,
        };
        let mut child = Box::<Request>::default();
        child.plan = self.plan.clone();
        child.connection = self.connection.clone();
        child.server = self.server;
        child.buf = self.buf.clone();
        child.head = self.head.clone();
        child.method = Method::Get;
        child.version = self.version;
        child.host = self.host.clone();
        child.host_port = self.host_port;
        child.body_length = self.body_length;
        child.body_bytes = self.body_bytes.clone();
        child.watch = self.watch.clone();
        child.internal = true;
        child.expect_tested = true;
        child.pipelined = self.pipelined;
        child.started = base::clock::now();
        // One for all (`$request_id`).
        child.id = Some(*self.id.get_or_insert_with(net::random::bytes16));
        child.uri_changes_left = URI_CHANGES_MAX;
        child.tree = Some(tree);
        child.sub = Some(Box::new(sub));
        child.head.method = Method::Get;
        Ok(child)
    }
    /// Whether subrequests run in the background.
    #[inline]
    pub fn has_background(&self) -> bool {
        self.tree.as_ref().is_some_and(|tree| tree.background.get() > 0)
    }
    /// Ready when none runs in the background any more.
    pub fn poll_background(&self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(tree) = self.tree.as_ref().filter(|tree| tree.background.get() > 0) {
            tree.waiting.replace(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

/// Runs a subrequest through its phases. `None`: it asks for the end of the connection (444, say).
pub async fn head(child: Box<Request>) -> Option<(Box<Request>, Body)> {
    let (child, body) = engine::finish(engine::resume(child)).await;
    body.map(|body| (child, body))
}

/// To be called with every subrequest whose answer was taken: writes its line to the log, where that is wanted.
pub fn ended(mut child: Box<Request>) {
    if !child.loc().core.conf.log_subrequest {
        return;
    }
    let plan = child.plan_rc();
    for logger in &plan.loc(child.location).loggers {
        logger.log(&mut child);
    }
}

/// Why a subrequest's answer is not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The connection is to be closed.
    Close,
    /// It broke off, or is longer than `subrequest_output_buffer_size`.
    Broken,
}

/// Runs a subrequest and gathers its body, up to `subrequest_output_buffer_size` of its location. The subrequest is given
/// back unlogged.
///
/// # Errors
/// See [`NoAnswer`].
pub async fn in_memory(child: Box<Request>) -> Result<(Box<Request>, Vec<u8>), NoAnswer> {
    let Some((mut child, mut body)) = head(child).await else { return Err(NoAnswer::Close) };
    let limit = child.loc().core.conf.subrequest_output_buffer_size.0;
    let mut out = Vec::new();
    loop {
        let announced = child.out.content_length.filter(|n| *n > limit);
        let piece = match announced {
            Some(n) => {
                child.log(Level::Error, format_args!("too big subrequest response: {n}"));
                return Err(NoAnswer::Broken);
            }
            None => std::future::poll_fn(|cx| body.poll_piece(cx, &mut child)).await,
        };
        // What is announced is the limit, too.
        let limit = child.out.content_length.unwrap_or(limit);
        match piece {
            None => return Ok((child, out)),
            Some(Err(BodyError)) => return Err(NoAnswer::Broken),
            Some(Ok(piece)) => {
                if out.len() as u64 + piece.len() > limit {
                    child.log(Level::Error, format_args!("too big subrequest response"));
                    return Err(NoAnswer::Broken);
                }
                let bytes = piece.into_bytes().map_err(|_| NoAnswer::Broken)?;
                out.extend_from_slice(&bytes);
            }
        }
    }
}

/// Lets a subrequest run on its own; its body is read to the end and dropped, unless only its head is wanted.
pub fn background(mut child: Box<Request>) {
    // The client's going away does not end it.
    child.watch = None;
    if let (Some(sub), Some(tree)) = (&mut child.sub, &child.tree) {
        tree.background.set(tree.background.get() + 1);
        sub.background = Some(InBackground(tree.clone()));
    }
    runtime::task::spawn_local(async move {
        let (mut child, body) = engine::finish(engine::resume(child)).await;
        base::clock::update();
        if let Some(mut body) = body {
            while let Some(Ok(_)) = std::future::poll_fn(|cx| body.poll_piece(cx, &mut child)).await {}
        }
        base::clock::update();
        ended(child);
    });
}

/// The answer of a subrequest as it comes.
pub struct Stream {
    state: State,
    /// Takes the place of an error, or of an answer without a body: with its media type.
    fallback: Option<(Bytes, Str)>,
}

enum State {
    /// The head has not come.
    Coming(crate::LocalFuture<Option<(Box<Request>, Body)>>),
    Body(Box<Request>, Body),
    Ended,
}

/// Begins a subrequest whose body becomes a part of another one.
pub fn stream(child: Box<Request>) -> Stream {
    let state = match engine::resume(child) {
        Outcome::Ready(child, body) => State::Body(child, body),
        outcome => State::Coming(Box::pin(async move {
            let (child, body) = engine::finish(outcome).await;
            body.map(|body| (child, body))
        })),
    };
    Stream { state, fallback: None }
}

/// The same; this text, which passes the location's filters like an answer, stands in for an error or an empty answer.
pub fn stream_or(mut child: Box<Request>, text: Bytes, media: Str) -> Stream {
    if let Some(sub) = &mut child.sub {
        sub.bare_errors = true;
    }
    Stream { fallback: Some((text, media)), ..stream(child) }
}

impl Stream {
    /// Makes the head come, and a body that reads ahead do so; for a subrequest whose turn has not come.
    pub fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        // An end that is met here is told to whoever asks for a piece.
        if let State::Coming(coming) = &mut self.state
            && let Poll::Ready(come) = coming.as_mut().poll(cx)
        {
            match come {
                Some((child, body)) => self.state = State::Body(child, body),
                None => self.state = State::Coming(Box::pin(std::future::ready(None))),
            }
        }
        if let State::Body(child, body) = &mut self.state {
            body.poll_ahead(cx, child);
        }
    }
    /// Ready once the head has come.
    ///
    /// # Errors
    /// The connection is to be closed.
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if let State::Coming(coming) = &mut self.state {
            match std::task::ready!(coming.as_mut().poll(cx)) {
                None => {
                    self.state = State::Ended;
                    return Poll::Ready(Err(BodyError));
                }
                Some((child, body)) => self.state = State::Body(child, body),
            }
        }
        Poll::Ready(Ok(()))
    }
    /// The subrequest, once its head has come and until its body ends.
    pub fn request(&self) -> Option<&Request> {
        match &self.state {
            State::Body(child, _) => Some(child),
            _ => None,
        }
    }
    /// The next piece. An answer that breaks off just ends, as in nginx; it has been logged.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, BodyError>>> {
        match self.poll_strict(cx) {
            Poll::Ready(Some(Err(BodyError))) if matches!(self.state, State::Body(..)) => {
                self.end();
                Poll::Ready(None)
            }
            other => other,
        }
    }
    /// The same for whoever must know: an answer that breaks off is an error.
    pub fn poll_strict(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, BodyError>>> {
        if let Err(e) = std::task::ready!(self.poll_head(cx)) {
            return Poll::Ready(Some(Err(e)));
        }
        loop {
            let State::Body(child, body) = &mut self.state else { return Poll::Ready(None) };
            match std::task::ready!(body.poll_piece(cx, child)) {
                Some(Ok(piece)) => {
                    if !piece.is_empty() {
                        self.fallback = None;
                    }
                    child.body_bytes_sent += piece.len();
                    return Poll::Ready(Some(Ok(piece)));
                }
                None => {
                    if let Some((text, media)) = self.fallback.take() {
                        // An answer that was known to be empty has passed its filters, which leave such a body alone.
                        if child.out.status < 300 && child.out.content_length == Some(0) {
                            *body = Body::Bytes(text);
                            continue;
                        }
                        child.out.content_type = media;
                        child.out.content_length = Some(text.len() as u64);
                        match engine::respond(child, Body::Bytes(text)) {
                            Ok(filtered) => *body = filtered,
                            Err(_) => *body = Body::Empty,
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
        if let State::Body(child, _) = std::mem::replace(&mut self.state, State::Ended) {
            ended(child);
        }
    }
}
