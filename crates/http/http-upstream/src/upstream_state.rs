//! Records a request's attempts on upstream servers, for `$upstream_addr` and its relatives, logs, metrics and spans.

use crate::binding::BindTo;
use crate::target::UrlOrigin;
use base::clock::{self, Instant};
use http_engine::Request;
use http_engine::head_out::write_number;
use http_engine::span::TrySpan;
use http_engine::upstream_slot::UpstreamFacts;
use smallvec::SmallVec;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use upstream::{Peer, ReceivedHead};

/// Receiver of an attempt.
#[derive(Clone, Debug)]
pub enum Receiver {
    /// A server.
    Server(Arc<Peer>),
    /// Name of a group without an available server.
    Group(Arc<str>),
}

impl Default for Receiver {
    fn default() -> Self {
        Receiver::Group(Arc::default())
    }
}

/// An attempt on one server.
#[derive(Clone, Debug, Default)]
pub struct Try {
    /// Its receiver.
    pub to: Receiver,
    /// Status of the response, or of the failure; 0: none yet.
    pub status: u16,
    /// Action of a failure, for later messages about it.
    pub doing: Option<&'static str>,
    /// Start of the attempt.
    pub started: Instant,
    /// Id of the attempt's span; 0 without a span.
    pub span: u64,
    /// Time from the start of the attempt until the connection; `None` if this point was not reached, as below.
    pub connect_time: Option<Duration>,
    /// Time from the start until the response's head.
    pub header_time: Option<Duration>,
    /// Time from the start until the end of the response or of the attempt.
    pub response_time: Option<Duration>,
    /// `response_time` of a response that was complete before its head was sent. The variables show it only afterwards,
    /// as in nginx.
    pub whole_time: Option<Duration>,
    /// Bytes received after the head of the response, with the framing of its body.
    pub response_length: u64,
    /// Marks the first attempt in another group, after an internal redirect.
    pub apart: bool,
    /// Set once a part of the request was sent over an established connection.
    pub sent: bool,
    /// The socket could not be bound: `$upstream_addr` is empty, as in nginx.
    pub has_no_socket: bool,
    /// Bytes sent to the server.
    pub bytes_sent: u64,
    /// Bytes received from the server.
    pub bytes_received: u64,
}

impl Try {
    /// Creates an attempt without results.
    pub fn new(to: Receiver, started: Instant) -> Try {
        Try {
            to,
            status: 0,
            doing: None,
            started,
            span: 0,
            connect_time: None,
            header_time: None,
            response_time: None,
            whole_time: None,
            response_length: 0,
            apart: false,
            sent: false,
            has_no_socket: false,
            bytes_sent: 0,
            bytes_received: 0,
        }
    }
    /// Creates an attempt whose bytes are added to the counters of `peer`.
    pub fn of(peer: &Arc<Peer>, started: Instant) -> Try {
        Try::new(Receiver::Server(peer.clone()), started)
    }
    /// Creates an attempt for which a group has no server.
    pub fn without_server(group: &str, started: Instant) -> Try {
        Try { status: 502, response_time: Some(Duration::ZERO), ..Try::new(Receiver::Group(group.into()), started) }
    }
    /// Returns the server's address, or the group's name.
    pub fn address(&self) -> &Arc<str> {
        match &self.to {
            Receiver::Server(peer) => &peer.text,
            Receiver::Group(name) => name,
        }
    }
    /// Returns the server.
    pub fn peer(&self) -> Option<&Peer> {
        match &self.to {
            Receiver::Server(peer) => Some(peer),
            Receiver::Group(_) => None,
        }
    }
    /// Adds bytes to the attempt and to the server's counters.
    #[inline]
    pub fn transferred(&mut self, sent: u64, received: u64) {
        self.bytes_sent += sent;
        self.bytes_received += received;
        if let Some(zone) = self.peer().and_then(Peer::zone).map(metrics::MetricZone::here) {
            zone.add(metrics::peer::SENT, sent);
            zone.add(metrics::peer::RECEIVED, received);
        }
    }
}

/// A request's attempts, in `Request::upstream`.
#[derive(Debug, Default)]
pub struct UpstreamState {
    /// The attempts, in their order.
    pub tries: SmallVec<[Try; 1]>,
    /// The last response's head, for `$upstream_http_*`.
    pub answer: Option<Rc<ReceivedHead>>,
    /// Host and port of the URL.
    pub origin: Option<Arc<UrlOrigin>>,
    /// Request target of the last attempt, for the error log; set by a task, or by its response, failure or end.
    pub uri: Option<Rc<[u8]>>,
    /// Trailers of the response, as lines with their ends; over HTTP/1 only with `proxy_pass_trailers`.
    pub trailers: Vec<u8>,
    /// Marks the next attempt as the first one in another group.
    pub apart: bool,
    /// Attempts in earlier groups.
    pub(crate) earlier: usize,
    /// Hides the attempts in this group from variables, while a text is made that nginx makes once, before it selects
    /// a server.
    pub(crate) hides: bool,
}

impl UpstreamFacts for UpstreamState {
    fn reset(&mut self) {
        self.tries.clear();
        self.trailers.clear();
        (self.answer, self.origin, self.uri, self.apart) = (None, None, None, false);
        (self.earlier, self.hides) = (0, false);
    }
    fn tries(&self) -> Vec<TrySpan> {
        let mut all = Vec::new();
        for (index, one) in self.tries.iter().enumerate().filter(|(_, one)| one.span != 0) {
            let lasted = one.response_time.or(one.whole_time);
            let ended = lasted.map_or_else(clock::now, |time| one.started.plus(time));
            all.push(TrySpan {
                id: one.span,
                address: one.address().clone(),
                scheme: self.scheme(),
                status: one.status,
                started: one.started,
                ended,
                index,
                method: Box::default(),
                subrequest: None,
            });
        }
        all
    }
}

impl UpstreamState {
    /// Returns the state, which it creates for the first attempt.
    pub fn of(r: &mut Request) -> Option<&mut UpstreamState> {
        let (state, begins) = r.upstream.get_or_begin::<UpstreamState>()?;
        if begins {
            r.accounting.ask_url_of(UpstreamState::url);
        }
        Some(state)
    }
    /// Starts attempts in a group, separated from those in an earlier group (internal redirect).
    pub fn begin(&mut self) {
        self.earlier = self.tries.len();
        self.apart = self.earlier > 0;
    }
    /// Returns the attempts that variables show.
    fn shown(&self) -> &[Try] {
        let end = if self.hides { self.earlier } else { self.tries.len() };
        self.tries.get(..end).unwrap_or_default()
    }
    /// Notes the connection of an attempt. With `hides`, variables do not show attempts in this group until
    /// [`UpstreamState::show`].
    pub fn connected(r: &mut Request, started: Instant, hides: bool) {
        let Some(state) = r.upstream.get_mut::<UpstreamState>() else { return };
        state.hides = hides;
        if let Some(one) = state.tries.last_mut() {
            one.connect_time = Some(clock::now().since(started));
        }
    }
    fn hide(r: &mut Request) {
        if let Some(state) = r.upstream.get_mut::<UpstreamState>() {
            state.hides = true;
        }
    }
    /// Shows all attempts again; returns the last one.
    pub fn show(r: &mut Request) -> Option<&mut Try> {
        let state = r.upstream.get_mut::<UpstreamState>()?;
        state.hides = false;
        state.tries.last_mut()
    }
    /// Tells whether a request is being made: neither an attempt nor a stored response is shown.
    pub fn is_hidden(r: &Request) -> bool {
        r.upstream.get::<UpstreamState>().is_some_and(|state| state.hides)
    }
    /// Returns the server that was selected last, for variables.
    pub fn last_peer(r: &Request) -> Option<&Peer> {
        r.upstream.get::<UpstreamState>()?.shown().last()?.peer()
    }
    /// Adds an attempt.
    pub fn push(&mut self, one: Try) {
        let apart = std::mem::take(&mut self.apart);
        self.tries.push(Try { apart, ..one });
    }
    /// Returns `http`, `https`, `fastcgi`, ...; empty before the request is passed on.
    pub fn scheme(&self) -> &'static str {
        self.origin.as_ref().map_or("", |origin| origin.scheme())
    }
    /// Returns the call that nginx names for a failed read from the server.
    pub fn read_call(r: &Request) -> &'static str {
        let origin = r.upstream.get::<UpstreamState>().and_then(|state| state.origin.as_ref());
        if origin.is_some_and(|origin| origin.tls) { "SSL_read()" } else { "recv()" }
    }
    /// Returns the URL of the last attempt, for the error log.
    pub fn url(r: &Request) -> Option<String> {
        let state = r.upstream.get::<UpstreamState>()?;
        Some(shown_url(state.scheme(), state.tries.last()?.address(), state.uri.as_deref().unwrap_or_default()))
    }
    /// Returns the last attempt.
    pub fn last(r: &mut Request) -> Option<&mut Try> {
        r.upstream.get_mut::<UpstreamState>()?.tries.last_mut()
    }
}

/// Returns the local address of a connection, and whether it may be foreign. Unless it is `dynamic`, it does not depend
/// on the selected server, as in nginx, which determines it before.
pub fn local_address(r: &mut Request, bind: &Option<BindTo>, dynamic: bool) -> (Option<SocketAddr>, bool) {
    if bind.is_none() || dynamic {
        return BindTo::of(bind, r);
    }
    UpstreamState::hide(r);
    let address = BindTo::of(bind, r);
    UpstreamState::show(r);
    address
}

/// Formats the URL of a server for log lines.
pub fn shown_url(scheme: &str, server: &str, uri: &[u8]) -> String {
    // A tunnel has the address alone.
    if scheme.is_empty() {
        return server.to_string();
    }
    let end = if server.starts_with("unix:") { ":" } else { "" };
    format!("{scheme}://{server}{end}{}", String::from_utf8_lossy(uri))
}

/// Action for error log messages after the response.
pub const OVER: &str = "sending to client";

/// Writes the bytes of each attempt, sent or received, including those of a tunnel.
pub fn write_bytes(r: &mut Request, out: &mut Vec<u8>, which: impl Fn(&Try) -> u64) -> bool {
    let (from_client, from_server) = r.accounting.take_tunnelled();
    if let Some(one) = UpstreamState::last(r) {
        one.transferred(from_client, from_server);
    }
    write_each(r, out, |one, out| write_number(which(one), out))
}

/// Writes one value per attempt, separated as in nginx.
pub fn write_each(r: &mut Request, out: &mut Vec<u8>, write: impl Fn(&Try, &mut Vec<u8>)) -> bool {
    let Some(state) = r.upstream.get::<UpstreamState>() else { return false };
    let shown = state.shown();
    for (index, one) in shown.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(if one.apart { b" : " } else { b", " });
        }
        write(one, out);
    }
    !shown.is_empty()
}

/// Writes the response times; `-` during the response. In the log line, the time of an unread response ends now.
pub fn response_times(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let logging = r.accounting.header_size() > 0 || r.out.status() == 499;
    write_each(r, out, |one, out| {
        let now = (logging && one.connect_time.is_some()).then(|| clock::now().since(one.started));
        write_seconds(one.response_time.or(one.whole_time.filter(|_| logging)).or(now), out);
    })
}

/// Writes a time in seconds with three decimals, rounded down; `-` for an unknown one.
pub fn write_seconds(time: Option<Duration>, out: &mut Vec<u8>) {
    match time {
        None => out.push(b'-'),
        Some(time) => {
            write_number(time.as_secs(), out);
            out.push(b'.');
            out.extend_from_slice(format!("{:03}", time.subsec_millis()).as_bytes());
        }
    }
}
