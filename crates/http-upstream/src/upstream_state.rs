//! What a request remembers of its upstream servers: `$upstream_addr` and kin, one entry a try.

use crate::exchange::target::Origin;
use base::clock::{self, Instant};
use http_engine::Request;
use http_engine::head_out::number;
use http_engine::upstream_slot::UpstreamFacts;
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;
use upstream::Answer;

/// One try.
#[derive(Clone, Debug, Default)]
pub struct Try {
    pub address: Arc<str>,
    pub status: u16,
    pub started: Instant,
    /// Milliseconds since the try began; `None` when it did not come so far.
    pub connect_ms: Option<u64>,
    pub header_ms: Option<u64>,
    pub response_ms: Option<u64>,
    /// The same of a response that was whole before its head was passed on: said once that has happened, as in nginx.
    pub whole_ms: Option<u64>,
    pub response_length: u64,
    /// The first one of another group, after an internal redirect.
    pub apart: bool,
    /// There was a connection, and the request was begun on it.
    pub sent: bool,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

impl Try {
    pub fn new(address: Arc<str>, started: Instant) -> Try {
        Try {
            address,
            status: 0,
            started,
            connect_ms: None,
            header_ms: None,
            response_ms: None,
            whole_ms: None,
            response_length: 0,
            apart: false,
            sent: false,
            bytes_sent: 0,
            bytes_received: 0,
        }
    }
}

/// All tries of a request, and the last response's head.
#[derive(Debug, Default)]
pub struct UpstreamState {
    pub tries: SmallVec<[Try; 1]>,
    pub answer: Option<Rc<Answer>>,
    /// `$proxy_host`, `$proxy_port`
    pub origin: Option<Arc<Origin>>,
    /// The request target of the last try, once its answer has come or it has failed: for the error log.
    pub uri: Option<Rc<[u8]>>,
    /// The next try is the first one of another group.
    pub apart: bool,
}

impl UpstreamFacts for UpstreamState {
    fn reset(&mut self) {
        self.tries.clear();
        (self.answer, self.origin, self.uri, self.apart) = (None, None, None, false);
    }
}

impl UpstreamState {
    /// The request's state, made when first asked for.
    pub fn of(r: &mut Request) -> Option<&mut UpstreamState> {
        let (state, begins) = r.upstream.get_or_begin::<UpstreamState>()?;
        if begins {
            r.asked = Some(UpstreamState::url);
        }
        Some(state)
    }
    /// The request goes to a group: what went before, by an internal redirect or to a group for the same request, is
    /// separated from what comes.
    pub fn begin(&mut self) {
        self.apart = !self.tries.is_empty();
    }
    pub fn push(&mut self, one: Try) {
        let apart = std::mem::take(&mut self.apart);
        self.tries.push(Try { apart, ..one });
    }
    /// `http`, `https`, `fastcgi`, ...; empty before anything was passed on.
    pub fn scheme(&self) -> &'static str {
        self.origin.as_ref().map_or("", |origin| origin.scheme())
    }
    /// The URL of the server that was asked last, as the error log shows it.
    pub fn url(r: &Request) -> Option<String> {
        let state = r.upstream.get::<UpstreamState>()?;
        Some(shown_url(state.scheme(), &state.tries.last()?.address, state.uri.as_deref().unwrap_or_default()))
    }
    /// The try that is going on.
    pub fn last(r: &mut Request) -> Option<&mut Try> {
        r.upstream.get_mut::<UpstreamState>()?.tries.last_mut()
    }
}

/// The URL that a server was asked for, as the error log shows it.
pub fn shown_url(scheme: &str, server: &str, uri: &[u8]) -> String {
    let end = if server.starts_with("unix:") { ":" } else { "" };
    format!("{scheme}://{server}{end}{}", String::from_utf8_lossy(uri))
}

/// What was done last where a server has been asked, for later lines of the error log.
pub const OVER: &str = "sending to client";

/// Bytes of the last try, counting those that went through a tunnel: sent to the server, and received from it.
pub fn bytes(r: &mut Request, out: &mut Vec<u8>, which: impl Fn(&Try) -> u64) -> bool {
    let (from_client, to_client) = std::mem::take(&mut r.tunnelled);
    if let Some(one) = UpstreamState::last(r) {
        one.bytes_sent += from_client;
        one.bytes_received += to_client;
    }
    each(r, out, |one, out| number(which(one), out))
}

/// Writes one figure of every try, separated as nginx does.
pub fn each(r: &mut Request, out: &mut Vec<u8>, write: impl Fn(&Try, &mut Vec<u8>)) -> bool {
    let Some(state) = r.upstream.get::<UpstreamState>() else { return false };
    for (index, one) in state.tries.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(if one.apart { b" : " } else { b", " });
        }
        write(one, out);
    }
    !state.tries.is_empty()
}

/// The times until the ends of the responses. The last one is still going on while the head is made (`-`), and has ended
/// when a line is logged, even if its end was never read.
pub fn response_times(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let logging = r.header_size > 0 || r.out.status == 499;
    each(r, out, |one, out| {
        let now = (logging && one.connect_ms.is_some()).then(|| clock::now().millis_since(one.started));
        seconds(one.response_ms.or(one.whole_ms.filter(|_| logging)).or(now), out);
    })
}

/// Seconds with milliseconds, or `-`.
pub fn seconds(ms: Option<u64>, out: &mut Vec<u8>) {
    match ms {
        None => out.push(b'-'),
        Some(ms) => {
            number(ms / 1000, out);
            out.push(b'.');
            out.extend_from_slice(format!("{:03}", ms % 1000).as_bytes());
        }
    }
}
