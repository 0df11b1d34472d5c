//! The trace context of a request and its subrequests (W3C Trace Context), and the tries of servers that become spans.
//! A request without one pays a check of a pointer.

use crate::Request;
use base::clock::Instant;
use http_types::{Field, Fields, Span as Place, known};
use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
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
    made: Cell<usize>,
    /// Tries of ended subrequests.
    ended: RefCell<Vec<TrySpan>>,
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
    for octet in octets {
        let _ = write!(out, "{octet:02x}");
    }
}

/// Returns a random id other than 0.
pub fn new_id() -> [u8; 8] {
    let mut id = [0; 8];
    while id == [0; 8] {
        net::random::fill(&mut id);
    }
    id
}

impl Request {
    /// Returns the id of the span of a new try, which the server receives as its parent; 0 without a span.
    #[inline]
    pub fn begin_try(&mut self) -> u64 {
        match &self.span {
            None => 0,
            Some(_) => self.begin_try_span(),
        }
    }

    #[cold]
    fn begin_try_span(&mut self) -> u64 {
        let Some(span) = self.span.clone().filter(|span| span.sampled.get() && span.tries.get()) else { return 0 };
        if span.made.get() >= TRIES_MAX {
            return 0;
        }
        span.made.set(span.made.get() + 1);
        let id = new_id();
        if span.injected.get() {
            self.set_incoming(b"traceparent", traceparent(&span.trace_id, &id, true).as_bytes());
        }
        u64::from_be_bytes(id)
    }

    /// Replaces all request fields of a name by one; an empty value removes them.
    pub fn set_incoming(&mut self, name: &[u8], value: &[u8]) {
        let mut fields = Fields::default();
        for field in std::mem::take(&mut self.head.fields.all) {
            if !field.name.of(&self.buf).eq_ignore_ascii_case(name) {
                fields.push(field);
            }
        }
        if !value.is_empty() {
            let mut put = |text: &[u8]| {
                let start = self.buf.len() as u32;
                self.buf.extend_from_slice(text);
                Place { start, end: self.buf.len() as u32 }
            };
            let (at, value) = (put(name), put(value));
            fields.push(Field { name: at, value, known: known(name) });
        }
        self.head.fields = fields;
    }

    /// Hands the tries of an ended subrequest to its main request.
    #[cold]
    pub(crate) fn hand_over_tries(&mut self) {
        if let Some(span) = self.span.clone() {
            let mut tries = self.upstream.tries();
            let path: Box<str> = String::from_utf8_lossy(&self.target.path).into();
            let method: Box<str> = String::from_utf8_lossy(self.method_name()).into();
            for one in &mut tries {
                (one.subrequest, one.method) = (Some(path.clone()), method.clone());
            }
            span.ended.borrow_mut().append(&mut tries);
        }
    }

    /// Takes the tries of a request and its subrequests, in the order of their start.
    pub fn take_tries(&mut self) -> Vec<TrySpan> {
        let mut all = self.upstream.tries();
        let method: Box<str> = String::from_utf8_lossy(self.method_name()).into();
        for one in &mut all {
            one.method = method.clone();
        }
        if let Some(span) = &self.span {
            all.append(&mut span.ended.borrow_mut());
        }
        all.sort_by_key(|one| one.started);
        all
    }
}
