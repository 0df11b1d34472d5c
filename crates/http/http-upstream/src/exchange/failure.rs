//! Failures of a try, with nginx's log lines, and the body that a try sends.

use super::conf::NextUpstream;
use super::{Announce, PassPlan};
use crate::balancing;
use crate::body_store::BodyStore;
use crate::target::UpstreamTarget;
use crate::upstream_state::{self, UpstreamState, shown_url};
use base::clock;
use http_engine::Request;
use http_types::BodyLength;
use observe::Severity;
use std::rc::Rc;
use std::time::Duration;
use upstream::{Peer, PeerLease};

/// nginx's message about a timeout.
pub const TIMED_OUT: &str = "upstream timed out (110: Connection timed out)";

/// A failed try, which may be followed by another.
#[derive(Debug)]
pub enum TryFailure {
    /// Connecting, sending or receiving failed, or the server closed too early.
    Error,
    /// The server was silent for too long.
    Timeout,
    /// The response's head is malformed.
    InvalidHeader,
    /// `proxy_allow_upstream` excludes the server.
    Denied,
    /// The response's status counts as a failure.
    Status(u16),
    /// The server guarantees that it did not process the request: any request may be retried.
    Unprocessed,
    /// No retry: the request ends with this status.
    Final(u16),
}

impl TryFailure {
    /// Returns the bit in `proxy_next_upstream`; 0: no further try.
    pub fn bit(&self) -> u32 {
        match self {
            TryFailure::Error | TryFailure::Unprocessed => NextUpstream::ERROR.0,
            TryFailure::Timeout => NextUpstream::TIMEOUT.0,
            TryFailure::InvalidHeader => NextUpstream::INVALID_HEADER.0,
            TryFailure::Denied => NextUpstream::DENIED.0,
            TryFailure::Status(status) => status_bit(*status),
            TryFailure::Final(_) => 0,
        }
    }
    /// Returns the status of the response if no other try follows.
    pub fn status(&self) -> u16 {
        match self {
            TryFailure::Error | TryFailure::Unprocessed | TryFailure::InvalidHeader => 502,
            TryFailure::Timeout => 504,
            TryFailure::Denied => 403,
            TryFailure::Status(status) | TryFailure::Final(status) => *status,
        }
    }
}

/// Returns the bit of a status in `proxy_next_upstream`; 0: the status is no failure.
pub fn status_bit(status: u16) -> u32 {
    match status {
        500 => NextUpstream::HTTP_500.0,
        502 => NextUpstream::HTTP_502.0,
        503 => NextUpstream::HTTP_503.0,
        504 => NextUpstream::HTTP_504.0,
        403 => NextUpstream::HTTP_403.0,
        404 => NextUpstream::HTTP_404.0,
        429 => NextUpstream::HTTP_429.0,
        _ => 0,
    }
}

/// The body that a try sends.
pub enum OutgoingState {
    /// None.
    Nothing,
    /// A text of the configuration (`proxy_set_body`).
    Text(Vec<u8>),
    /// The client's body, read before; it can be sent repeatedly.
    Stored(Rc<BodyStore>),
    /// `proxy_request_buffering off`: streamed; can be sent only once.
    Streamed(BodyLength),
}

impl OutgoingState {
    /// Returns the announcement of a body without bytes, and `None` for other bodies.
    pub fn bodiless(&self) -> Option<Announce> {
        match self {
            OutgoingState::Nothing => Some(Announce::Nothing),
            OutgoingState::Text(text) if text.is_empty() => Some(Announce::Length(0)),
            _ => None,
        }
    }
}

/// Counts a failed try against its server, except for [`TryFailure::Final`].
pub fn count_failure(r: &mut Request, lease: &mut PeerLease, target: &UpstreamTarget<'_>, why: &TryFailure) {
    let is_final = matches!(why, TryFailure::Final(_));
    if let Some(one) = UpstreamState::last(r) {
        let started = one.started;
        one.response_time.get_or_insert_with(|| clock::now().since(started));
        if is_final {
            one.status = 0;
        }
    }
    if is_final {
        return;
    }
    balancing::count_failure(r, lease, target.uri());
    if matches!(why, TryFailure::Timeout) {
        log_timeout(r, lease.peer(), target);
    }
    balancing::judge_peer(r, lease, true);
}

/// Returns `true` if a try over a kept connection failed because of the connection: another one follows, if
/// `proxy_next_upstream` permits (nginx: `u->peer.cached`). Notes a request of which no byte was written as not sent.
pub fn note_broken_connection(r: &mut Request, why: &TryFailure) -> bool {
    let is_broken = matches!(why, TryFailure::Error | TryFailure::Unprocessed);
    if is_broken
        && let Some(one) = UpstreamState::last(r)
        && one.bytes_sent == 0
    {
        one.sent = false;
    }
    is_broken
}

/// Logs that the conditions of `proxy_allow_upstream` and the like exclude a server.
pub fn log_denied(plan: &PassPlan, r: &mut Request, target: &UpstreamTarget<'_>, peer: &Peer) -> TryFailure {
    let words = format!("access to upstream denied by \"{}_allow_upstream\"", plan.conf.prefix);
    note_failure(r, peer, target, &words, "connecting to");
    if let Some(one) = UpstreamState::last(r) {
        (one.status, one.response_time) = (TryFailure::Denied.status(), Some(Duration::ZERO));
    }
    TryFailure::Denied
}

/// With nginx's context.
pub fn note_failure(
    r: &mut Request,
    peer: &Peer,
    target: &UpstreamTarget<'_>,
    words: &str,
    doing: &'static str,
) -> TryFailure {
    note_at(Severity::Error, r, peer, target, words, doing)
}

/// Takes note of a timeout, which [`log_timeout`] logs.
pub fn timed_out(r: &mut Request, target: &UpstreamTarget<'_>, doing: &'static str) -> TryFailure {
    record(r, target, 504, doing);
    TryFailure::Timeout
}

/// Logs a timeout after the server's "temporarily disabled" line, as nginx does (`ngx_http_upstream_next`).
fn log_timeout(r: &Request, peer: &Peer, target: &UpstreamTarget<'_>) {
    let doing = r.upstream.get::<UpstreamState>().and_then(|state| state.tries.last()?.doing).unwrap_or("reading");
    let url = shown_url(target.origin.scheme(), &peer.text, target.uri());
    r.log_of(Severity::Error, format_args!("{TIMED_OUT} while {doing} upstream"), Some(&url));
}

/// Logs a failure at a level, and records it with its try.
pub fn note_at(
    level: Severity,
    r: &mut Request,
    peer: &Peer,
    target: &UpstreamTarget<'_>,
    words: &str,
    doing: &'static str,
) -> TryFailure {
    log_attempt(level, r, peer, target, words, doing);
    record(r, target, 502, doing);
    TryFailure::Error
}

fn record(r: &mut Request, target: &UpstreamTarget<'_>, status: u16, doing: &'static str) {
    set_action(r, target);
    if let Some(one) = UpstreamState::last(r) {
        (one.status, one.doing) = (status, Some(doing));
    }
}

/// Writes nginx's line about an attempt; the attempt has no status yet.
pub fn log_attempt(
    level: Severity,
    r: &mut Request,
    peer: &Peer,
    target: &UpstreamTarget<'_>,
    words: &str,
    doing: &'static str,
) {
    let url = shown_url(target.origin.scheme(), &peer.text, target.uri());
    r.log_of(level, format_args!("{words} while {doing} upstream"), Some(&url));
    set_action(r, target);
}

/// Sets the action and the URL that later log lines of the request name.
fn set_action(r: &mut Request, target: &UpstreamTarget<'_>) {
    r.accounting.set_action(Some(upstream_state::OVER));
    if let Some(state) = UpstreamState::of(r) {
        state.uri = target.uri.cloned();
    }
}
