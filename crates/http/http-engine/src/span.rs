//! The trace context of a request and its subrequests (W3C Trace Context), and the tries of servers that become spans.
//! A request without one pays a check of a pointer.

use base::clock::Instant;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Maximum number of tries per request, those of subrequests included, that become spans.
pub const TRIES_MAX: usize = 100;

/// The span of a main request; shared with its subrequests.
#[derive(Debug, Default)]
pub struct RequestSpan {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub parent_id: Option<[u8; 8]>,
    pub parent_sampled: bool,
    /// `tracestate` of the parent.
    pub state: Box<[u8]>,
    pub sampled: Cell<bool>,
    /// Tries of servers become spans.
    pub tries: Cell<bool>,
    /// The request carries `traceparent` to servers.
    pub injected: Cell<bool>,
    pub(crate) made: Cell<usize>,
    /// Tries of ended subrequests.
    pub(crate) ended: RefCell<Vec<TrySpan>>,
}

/// A try of a server. Times are those of the process's clock.
#[derive(Clone, Debug)]
pub struct TrySpan {
    pub id: u64,
    pub address: Arc<str>,
    pub scheme: &'static str,
    /// 0 without a response.
    pub status: u16,
    pub started: Instant,
    pub ended: Instant,
    /// Index among the tries of its request.
    pub index: usize,
    pub method: Box<str>,
    /// Path of the subrequest, if one made the try.
    pub subrequest: Option<Box<str>>,
}

impl RequestSpan {
    /// Makes a context with new ids and no parent.
    pub fn begin() -> RequestSpan {
        let mut trace_id = [0; 16];
        while trace_id == [0; 16] {
            trace_id = net::random::bytes16();
        }
        RequestSpan { trace_id, span_id: new_id(), ..RequestSpan::default() }
    }
}

/// Returns the value of a `traceparent` field, version 00.
pub fn traceparent(trace_id: &[u8; 16], span_id: &[u8; 8], sampled: bool) -> String {
    let mut out = String::with_capacity(55);
    out.push_str("00-");
    hex(trace_id, &mut out);
    out.push('-');
    hex(span_id, &mut out);
    out.push_str(if sampled { "-01" } else { "-00" });
    out
}

/// Appends octets as lower-case hexadecimal digits.
pub fn hex(octets: &[u8], out: &mut String) {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |four: u8| DIGITS.get(usize::from(four)).copied().unwrap_or('0');
    for octet in octets {
        out.push(digit(octet >> 4));
        out.push(digit(octet & 15));
    }
}

/// Returns a random id other than 0.
pub fn new_id() -> [u8; 8] {
    let mut id = [0; 8];
    while id == [0; 8] {
        if let Some(half) = net::random::bytes16().first_chunk() {
            id = *half;
        }
    }
    id
}
