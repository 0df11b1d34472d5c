//! Requests of the server itself: they run in a location as subrequests do, without a client.
//!
//! Access checks of the location do not apply, and only content filters do. The caller drives the request on any thread with an event
//! loop, and drops its response.

use crate::connection::{ClientConnection, ListenerRef, PartialHead};
use crate::engine::enter_location;
use crate::order::Phase;
use crate::plan::HttpPlan;
use crate::request::Request;
use crate::subrequest;
use http_types::{Method, Version};
use net::Address;
use runtime::time::with_timeout;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use wire_h1::{HeadLimits, HeadParser, ParseProgress};

/// Bytes of a URI.
const URI_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a response that are read, so that a server is not interrupted.
const RESPONSE_BYTES_MAX: u64 = 1024 * 1024;

/// A request that has no response.
#[derive(Debug, PartialEq, Eq)]
pub enum OwnFailure {
    /// The URI does not begin with a slash, is too long, or is malformed.
    InvalidUri,
    /// The location closes the connection (444), or its response is incomplete.
    Closed,
    /// The time limit has passed.
    TimedOut,
}

impl std::fmt::Display for OwnFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            OwnFailure::InvalidUri => "the URI is invalid",
            OwnFailure::Closed => "the location sends no complete response",
            OwnFailure::TimedOut => "the location did not respond in time",
        })
    }
}

/// Creates a request for a server. `agent`: its field `User-Agent`.
///
/// # Errors
/// The URI does not begin with a slash, is too long, or is not valid in a request line.
pub fn create_request(
    plan: &Arc<HttpPlan>,
    server: usize,
    uri: &[u8],
    agent: &str,
) -> Result<Box<Request>, OwnFailure> {
    if !uri.starts_with(b"/") || uri.len() > URI_BYTES_MAX {
        return Err(OwnFailure::InvalidUri);
    }
    let listener = plan.listeners.iter().find(|listener| !listener.quic && listener.default_server == server);
    let address = Rc::new(
        listener
            .or(plan.listeners.first())
            .map_or_else(|| Address::Unix(Default::default()), |listener| listener.spec.address.clone()),
    );
    let connection = ClientConnection {
        number: 0,
        peer: None,
        local: address.clone(),
        listener: ListenerRef::new(address),
        requests: Cell::new(1),
        nodelay: Cell::new(true),
        pipelining: crate::connection::PipelineState::default(),
        started: base::clock::now(),
        proxy: None,
        socket: None,
        tls: None,
        begun: PartialHead::default(),
    };
    let mut r = Box::<Request>::default();
    r.scope.plan = Some(Rc::new(plan.clone()));
    r.scope.connection = Some(Rc::new(connection));
    r.scope.server = server;
    r.scope.location = plan.servers.get(server).map_or(0, |server| server.location);
    r.accounting.started = base::clock::now();
    r.progress.internal = true;
    r.buf = [b"GET ", uri, b" HTTP/1.1\r\nUser-Agent: ", agent.as_bytes(), b"\r\n\r\n"].concat();
    let limits = HeadLimits { line_max: URI_BYTES_MAX + 64, total_max: 2 * URI_BYTES_MAX, ..HeadLimits::default() };
    match HeadParser::default().parse(&r.buf, &limits, &mut r.head) {
        Ok(ParseProgress::Done { consumed }) if consumed == r.buf.len() => {}
        _ => return Err(OwnFailure::InvalidUri),
    }
    (r.target.method, r.target.version) = (Method::Get, Version::Http11);
    let merge = r.loc().core.conf.merge_slashes;
    r.target.path.read(&r.head, &r.buf, merge).map_err(|_| OwnFailure::InvalidUri)?;
    let args = r.head.args;
    r.target.args.extend_from_slice(args.of(&r.buf));
    r.target.args_given = !r.target.args.is_empty();
    let name = r.srv().name.clone();
    if !name.is_empty() && !name.iter().any(|c| b"*~_".contains(c)) {
        r.target.host = name.strip_prefix(b".").unwrap_or(&name).to_ascii_lowercase();
    }
    Ok(r)
}

/// Runs a request in a location, and returns the status of the response.
///
/// # Errors
/// [`OwnFailure`].
pub async fn run_request(mut r: Box<Request>, location: usize, limit: Duration) -> Result<u16, OwnFailure> {
    let (path, args) = (r.target.path.clone(), r.target.args.clone());
    let mut child = r.subrequest(path, args).map_err(|_| OwnFailure::Closed)?;
    child.target.args_given = r.target.args_given;
    child.scope.location = location;
    child.progress.phase = Phase::Rewrite;
    enter_location(&mut child);
    let work = async {
        let Some((mut child, mut body)) = subrequest::run_to_head(child).await else { return Err(OwnFailure::Closed) };
        let status = child.out.status;
        let mut read = 0;
        while read < RESPONSE_BYTES_MAX {
            match std::future::poll_fn(|cx| body.poll_piece(cx, &mut child)).await {
                Some(Ok(piece)) => read += piece.len(),
                Some(Err(_)) => return Err(OwnFailure::Closed),
                None => break,
            }
        }
        subrequest::log_subrequest(child);
        Ok(status)
    };
    let done = with_timeout(limit, work).await;
    base::clock::update();
    done.unwrap_or(Err(OwnFailure::TimedOut))
}
