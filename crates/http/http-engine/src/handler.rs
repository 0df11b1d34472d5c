//! The interface between the engine and features: handlers and their answers, filters, bodies, loggers.

use crate::path::CanonicalPath;
use crate::request::Request;
use crate::response::{BodyError, FilePart, Piece};
pub use area::background::LocalFuture;
use bytes::Bytes;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Answer of a handler: how the request goes on.
pub enum Flow {
    /// Continues with the next handler.
    Declined,
    /// Grants access (relevant for `satisfy any`).
    Allowed,
    /// Responds with the body; the head is in `Request::out`.
    Content(ResponseBody),
    /// Ends with this status; error pages apply.
    Status(u16),
    /// Starts over with another URI (nginx: `ngx_http_internal_redirect`); `internal` permits `internal` locations.
    Redirect {
        /// The new path.
        path: CanonicalPath,
        /// The new query, without `?`.
        args: Vec<u8>,
        /// Permits `internal` locations.
        internal: bool,
    },
    /// Continues in a named location, given with its `@` (nginx: `ngx_http_named_location`).
    Named(Vec<u8>),
    /// The URI was changed in place: matches locations again (rewrite phase).
    Rewritten,
    /// Closes the connection without a response (444).
    Close,
    /// Continues with the answer of a future, which owns the request meanwhile.
    Later(Later),
    /// Continues with socket I/O only, polled in place by the connection.
    Exchange(Box<dyn Exchange>),
}

impl Flow {
    /// Restarts with a URI of the operator or an application.
    pub fn redirect(path: CanonicalPath, args: Vec<u8>) -> Flow {
        Flow::Redirect { path, args, internal: true }
    }
}

impl Flow {
    /// Describes the answer for the steps of a traced request.
    pub fn words(&self) -> String {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            Flow::Declined => "nothing to say".into(),
            Flow::Allowed => "allows".into(),
            Flow::Content(_) => "responds".into(),
            Flow::Status(status) => format!("ends with {status}"),
            Flow::Redirect { path, .. } => format!("continues with \"{}\"", shown(path)),
            Flow::Named(name) => format!("continues in \"{}\"", shown(name)),
            Flow::Rewritten => "the path has changed".into(),
            Flow::Close => "closes the connection".into(),
            Flow::Later(_) | Flow::Exchange(_) => "needs to wait".into(),
        }
    }
}

/// Asynchronous work, which takes the request and returns it with the handler's answer.
pub type Later = Box<dyn FnOnce(Box<Request>) -> LocalFuture<(Box<Request>, Flow)>>;

/// Judges a file that a request of a location is about to open, whatever handler chose its name: an access rule that is asked
/// before the last choice is asked for another file.
pub trait FileGuard: Send + Sync {
    /// Tells whether the request may have the file. Logs a refusal.
    fn admits(&self, r: &mut Request, file: &crate::path::FilePath) -> bool;
}

/// A handler of a phase. Shared by all requests of its location, on all threads: state of a request is kept in the
/// request.
pub trait Handler: Send + Sync {
    /// Handles a request. Must not block: work that waits is [`Flow::Later`] or [`Flow::Exchange`].
    fn run(&self, r: &mut Request) -> Flow;
}

/// A filter of responses: changes the head in `Request::out`, and wraps or replaces the body.
pub trait Filter: Send + Sync {
    /// Filters a response, before its head is sent. `Err`: the status of an error that takes its place.
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16>;
    /// Returns the name, for logs and the steps of a traced request.
    fn name(&self) -> &'static str;
}

/// Transforms a complete response before the filters, when the head depends on the whole body.
pub trait Transform: Send + Sync {
    /// Tells, from the head alone, whether the response is to be transformed.
    fn wants(&self, r: &mut Request) -> bool;
    /// Reads the body; the result replaces the handler's answer.
    fn run(self: Arc<Self>, r: Box<Request>, body: ResponseBody) -> LocalFuture<(Box<Request>, Flow)>;
}

/// Judges responses behind the filters of text and before compression, whatever handler made them.
pub trait ResponseGuard: Send + Sync {
    /// Judges a response, whose head is in `Request::out`. [`Flow::Content`] with the body lets it pass; any other answer
    /// takes its place, and the guard is asked about that one again. [`Flow::Later`] waits for the body, or for a verdict.
    /// Not called for subrequests and `post_action`.
    fn inspect(&self, r: &mut Request, body: ResponseBody) -> Flow;
}

/// Logs requests at their end.
pub trait Logger: Send + Sync {
    /// Logs a request whose response was sent or given up. Called once for each request, subrequests only with
    /// `log_subrequest`.
    fn log(&self, r: &mut Request);
}

/// Work that waits for sockets only (`exchange.rs`). Dropped before its end, it closes its sockets.
pub trait Exchange {
    /// Proceeds as far as possible. `Ready`: the answer, and the last poll. `Pending`: wakes `cx` for more.
    fn poll(&mut self, r: &mut Request, cx: &mut Context<'_>) -> Poll<Flow>;
    /// Handles the client's disconnection. `Some`: ends with this answer; `None`: continues without a client.
    fn client_gone(&mut self, r: &mut Request) -> Option<Flow>;
}

/// A streamed body, pulled by the connection, so that a slow client slows the source.
pub trait BodySource {
    /// Returns the next piece, or `None` at the end. The request serves variables and trailers.
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>>;
    /// Restricts the source to a range before the first piece. `false`: it still sends everything.
    fn window(&mut self, span: &std::ops::Range<u64>) -> bool {
        let _ = span;
        false
    }
    /// Tells whether the next piece takes memory or time before it is there, and certainly comes: it is asked for when the client's
    /// window takes octets. The end of a body needs no window, and a client that has got all octets opens none, so a source that may turn
    /// its input into nothing returns `false` and makes small pieces. One that passes pieces on passes this on, too.
    fn needs_window(&self) -> bool;
    /// Reads ahead, within the source's limits, while the client does not read.
    fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        let _ = (cx, r);
    }
}

/// The body of a response. The connection pulls it piece by piece.
#[derive(Default)]
pub enum ResponseBody {
    /// No body, or one without bytes.
    #[default]
    Empty,
    /// A body in memory.
    Bytes(Bytes),
    /// A part of a file, which the kernel may send by itself.
    File(FilePart),
    /// Several pieces of known length (multipart ranges, additions).
    Pieces(std::collections::VecDeque<Piece>),
    /// A body that is made while it is sent; its length is unknown.
    Source(Box<dyn BodySource>),
}

impl ResponseBody {
    /// Returns the length in bytes; `None` for a source.
    pub fn length(&self) -> Option<u64> {
        match self {
            ResponseBody::Empty => Some(0),
            ResponseBody::Bytes(b) => Some(b.len() as u64),
            ResponseBody::File(f) => Some(f.length),
            ResponseBody::Pieces(p) => Some(p.iter().map(Piece::len).sum()),
            ResponseBody::Source(_) => None,
        }
    }
    /// Replaces a file by its bytes, if the thread's cache holds them.
    pub fn into_cached(self) -> ResponseBody {
        match self {
            ResponseBody::File(part) => part.cached().map_or(ResponseBody::File(part), ResponseBody::Bytes),
            other => other,
        }
    }
    /// Returns [`BodySource::needs_window`].
    pub fn needs_window(&self) -> bool {
        matches!(self, ResponseBody::Source(source) if source.needs_window())
    }
    /// Lets a source read ahead ([`BodySource::poll_ahead`]); other bodies need no time.
    pub fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        if let ResponseBody::Source(source) = self {
            source.poll_ahead(cx, r);
        }
    }
    /// Takes the next piece; `None` at the end. Of a source as [`BodySource::poll_piece`]; other bodies are always
    /// ready.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        match self {
            ResponseBody::Source(source) => source.poll_piece(cx, r),
            ResponseBody::Pieces(pieces) => Poll::Ready(pieces.pop_front().map(Ok)),
            _ => Poll::Ready(match std::mem::take(self) {
                ResponseBody::Bytes(b) if !b.is_empty() => Some(Ok(Piece::Bytes(b))),
                ResponseBody::File(f) if f.length > 0 => Some(Ok(Piece::File(f))),
                _ => None,
            }),
        }
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Body({:?})", self.length())
    }
}

/// Gets certificates for names that are not configured, as the server of a handshake says; kept with the plan.
pub struct CertificateHook(
    /// Returns the certificate for a ClientHello in a server's location; `None`: it is not gotten on
    /// demand.
    pub std::sync::Arc<dyn Fn(&crate::plan::Location, &tls::ClientHello) -> Option<CertificateResult> + Send + Sync>,
);

/// The certificate of a handshake by [`CertificateHook`].
pub enum CertificateResult {
    /// A certificate that is at hand.
    Known(tls::certs::CertificateSet),
    /// A certificate that is being ordered: the handshake waits.
    Wait(std::sync::Arc<tls::Wait>),
    /// No certificate for this name.
    Refused,
    /// None for now.
    Failed,
}

/// The content of a feature's own server (`own_socket.rs`): closes connections whose request no feature has answered.
pub(crate) struct CloseHandler;

impl Handler for CloseHandler {
    fn run(&self, _: &mut Request) -> Flow {
        Flow::Close
    }
}
