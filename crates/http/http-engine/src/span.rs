//! The trace context of a request and its subrequests (W3C Trace Context), and the tries of servers that become spans.
//! A request without one pays a check of a pointer.

use base::clock::Instant;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use variables::variable::VarId;

/// Maximum number of tries per request, those of subrequests included, that become spans.
pub const TRIES_MAX: usize = 100;

/// The trace context of a request.
#[derive(Clone, Debug, Default)]
pub enum TraceContext {
    /// Not looked at yet: no directive has asked for the context.
    #[default]
    Unknown,
    /// Without a parent, and not sampled: most requests of a server that samples some.
    Unsampled(UnsampledTrace),
    /// As `Unsampled`, with known ids.
    Ids(TraceIds),
    /// Shared with subrequests.
    Span(Rc<RequestSpan>),
}

/// The context of a request whose ids are not known yet; `sampling.rs` makes them.
#[derive(Clone, Debug)]
pub struct UnsampledTrace {
    /// The variable of `split_clients` that decided.
    pub(crate) by: VarId,
    pub(crate) ids: OnceCell<TraceIds>,
}

/// The ids of a request's trace and of its span, as in `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceIds {
    /// The trace's id.
    pub trace: [u8; 16],
    /// The span's id.
    pub span: [u8; 8],
}

impl TraceIds {
    /// Makes random ids other than 0.
    pub fn new() -> TraceIds {
        loop {
            let [trace @ .., s0, s1, s2, s3, s4, s5, s6, s7] = net::random::bytes::<24>();
            let span = [s0, s1, s2, s3, s4, s5, s6, s7];
            if trace != [0; 16] && span != [0; 8] {
                return TraceIds { trace, span };
            }
        }
    }
}

impl Default for TraceIds {
    fn default() -> TraceIds {
        TraceIds::new()
    }
}

impl TraceContext {
    /// Returns the span of a request that is sampled or has a parent.
    #[inline]
    pub fn span(&self) -> Option<&Rc<RequestSpan>> {
        match self {
            TraceContext::Span(span) => Some(span),
            TraceContext::Unknown | TraceContext::Unsampled(_) | TraceContext::Ids(_) => None,
        }
    }
    pub(crate) fn is_sampled(&self) -> bool {
        self.span().is_some_and(|span| span.sampled.get())
    }
}

/// The span of a main request that is sampled or has a parent; shared with its subrequests.
#[derive(Debug)]
pub struct RequestSpan {
    /// Ids of the trace and of this span.
    pub ids: TraceIds,
    /// Id of the parent's span; `None`: the trace begins here.
    pub parent_id: Option<[u8; 8]>,
    /// The parent is sampled.
    pub parent_sampled: bool,
    /// `tracestate` of the parent.
    pub state: Box<[u8]>,
    /// The span is exported.
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
    /// Id of the try's span, drawn by chance.
    pub id: u64,
    /// The server's address.
    pub address: Arc<str>,
    /// Scheme of the server's URL.
    pub scheme: &'static str,
    /// 0 without a response.
    pub status: u16,
    /// Begin of the try.
    pub started: Instant,
    /// End of the try.
    pub ended: Instant,
    /// Index among the tries of its request.
    pub index: usize,
    /// Method sent to the server.
    pub method: Box<str>,
    /// Path of the subrequest, if one made the try.
    pub subrequest: Option<Box<str>>,
}

impl RequestSpan {
    /// Makes a span without a parent, not sampled.
    pub fn of(ids: TraceIds) -> RequestSpan {
        RequestSpan {
            ids,
            parent_id: None,
            parent_sampled: false,
            state: Box::default(),
            sampled: Cell::default(),
            tries: Cell::default(),
            injected: Cell::default(),
            made: Cell::default(),
            ended: RefCell::default(),
        }
    }
}

/// Returns the value of a `traceparent` field, version 00.
pub fn format_traceparent(ids: &TraceIds, sampled: bool) -> [u8; 55] {
    let mut out = *b"00-................................-................-00";
    let (head, span) = out.split_at_mut(36);
    put_digits(&ids.trace, head.get_mut(3..).unwrap_or_default());
    put_digits(&ids.span, span);
    if let Some(last) = span.last_mut() {
        *last = if sampled { b'1' } else { b'0' };
    }
    out
}

/// Returns octets as lower-case hexadecimal digits; `D`: twice their number. `$otel_trace_id` has those of a trace's id.
pub fn hex_digits<const N: usize, const D: usize>(octets: &[u8; N]) -> [u8; D] {
    const { assert!(D == 2 * N) };
    let mut out = [0; D];
    put_digits(octets, &mut out);
    out
}

/// Writes octets as lower-case hexadecimal digits to the start of `out`.
fn put_digits(octets: &[u8], out: &mut [u8]) {
    let (pairs, _) = out.as_chunks_mut::<2>();
    for (octet, pair) in octets.iter().zip(pairs) {
        *pair = DIGITS.get(usize::from(*octet)).copied().unwrap_or_default();
    }
}

/// The digits of each octet.
#[expect(clippy::indexing_slicing, reason = "runs at compile time")]
pub(crate) static DIGITS: [[u8; 2]; 256] = {
    const DIGIT: &[u8; 16] = b"0123456789abcdef";
    let mut all = [[0; 2]; 256];
    let mut octet = 0;
    while octet < 256 {
        all[octet] = [DIGIT[octet >> 4], DIGIT[octet & 15]];
        octet += 1;
    }
    all
};

/// Appends octets as lower-case hexadecimal digits.
pub fn write_hex(octets: &[u8], out: &mut Vec<u8>) {
    let mut digits = [0; 2 * HEX_BATCH];
    for octets in octets.chunks(HEX_BATCH) {
        put_digits(octets, &mut digits);
        out.extend_from_slice(digits.get(..2 * octets.len()).unwrap_or_default());
    }
}

/// Octets whose digits are appended at once.
const HEX_BATCH: usize = 16;

/// Returns a random id other than 0.
pub fn new_id() -> [u8; 8] {
    loop {
        let id = net::random::bytes();
        if id != [0; 8] {
            return id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_has_both_ids_and_the_flag() {
        let trace: [u8; 16] = std::array::from_fn(|at| 0xf0 + at as u8);
        let ids = TraceIds { trace, span: [0, 1, 2, 3, 4, 0xab, 0xcd, 0xef] };
        let text = |sampled| String::from_utf8(format_traceparent(&ids, sampled).to_vec());
        let sampled = "00-f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff-0001020304abcdef-01";
        assert_eq!(text(true).as_deref(), Ok(sampled));
        assert_eq!(text(false).as_deref(), Ok(&*sampled.replace("ef-01", "ef-00")));
        let mut digits = b"id=".to_vec();
        write_hex(&[0, 9, 10, 255], &mut digits);
        assert_eq!(digits, b"id=00090aff");
    }
}
