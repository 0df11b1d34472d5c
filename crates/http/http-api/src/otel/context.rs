//! A request's trace context: made once, at the rewrite phase or by the first of its variables.

use super::settings::Settings;
use http_engine::request::URI_CHANGES_MAX;
use http_engine::sampler::{LateSampler, Sampler, enables_tracing};
use http_engine::span::{RequestSpan, TraceContext, TraceIds, format_traceparent, write_hex};
use http_engine::variable::Builtin;
use http_engine::{Flow, Handler, HttpTemplate, Request};
use http_types::Known;
use otlp::context::{Parent, join_state, parse_parent};
use std::rc::Rc;
use std::sync::Arc;

pub static ROWS: &[Builtin] = &[
    Builtin::one("otel_trace_id", trace_id, "The id of the trace, in hexadecimal."),
    Builtin::one("otel_span_id", span_id, "The id of the request's span, in hexadecimal."),
    Builtin::one("otel_parent_id", parent_id, "The id of the parent span; none without `otel_trace_context extract`."),
    Builtin::one("otel_parent_sampled", parent_sampled, "`1` if the parent span is sampled, otherwise `0`."),
];

/// Decides at the rewrite phase whether a request is traced, and passes its context on.
pub struct Start {
    /// `None`: not traced.
    pub trace: Option<HttpTemplate>,
    pub settings: Arc<Settings>,
    pub sampler: Arc<LateSampler>,
}

impl Handler for Start {
    fn run(&self, r: &mut Request) -> Flow {
        // The decision of the first location stands.
        if r.is_subrequest() || (r.progress.is_internal() && r.progress.uri_changes_left() < URI_CHANGES_MAX) {
            return Flow::Declined;
        }
        let sampled = match self.trace.as_ref().and_then(|value| self.sampler.get(r.plan(), value)) {
            Some(sampler) => self.by_share(r, sampler),
            None => None,
        };
        let sampled = sampled.unwrap_or_else(|| self.by_value(r));
        if !sampled && !self.settings.extracts && !self.settings.injects {
            return Flow::Declined;
        }
        self.start(r, sampled);
        Flow::Declined
    }
}

impl Start {
    /// Begins the context, with a span for a sampled request, and passes it on.
    #[inline(never)]
    fn start(&self, r: &mut Request, sampled: bool) {
        let ids = begin(r, self.settings.extracts);
        if sampled && r.trace_context().span().is_none() {
            r.set_trace_context(TraceContext::Span(Rc::new(RequestSpan::of(ids))));
        }
        let span = r.trace_context().span().cloned();
        if let Some(span) = &span {
            span.sampled.set(sampled);
            span.tries.set(self.settings.tries);
            span.injected.set(self.settings.injects);
        }
        if self.settings.injects {
            let state = span.as_ref().map_or(&[][..], |span| &span.state);
            r.set_incoming(Known::Traceparent, b"traceparent", &format_traceparent(&ids, sampled));
            r.set_incoming(Known::Tracestate, b"tracestate", state);
        }
    }
    /// Decides by a share of `$otel_trace_id`; `None`: `otel_trace` has another value.
    #[inline]
    fn by_share(&self, r: &mut Request, sampler: &Sampler) -> Option<bool> {
        if self.settings.extracts || self.settings.injects {
            begin(r, self.settings.extracts);
        }
        sampler.decide(r)
    }
    #[inline(never)]
    fn by_value(&self, r: &mut Request) -> bool {
        let Some(trace) = &self.trace else { return false };
        match trace.as_literal() {
            Some(text) => enables_tracing(text),
            None => {
                let mut value = r.take_scratch();
                value.clear();
                trace.write(r, &mut value);
                let enables = enables_tracing(&value);
                r.put_scratch(value);
                enables
            }
        }
    }
}

/// Returns the client's context; more than one `traceparent` is none (W3C Trace Context, 3.2.1).
fn extract(r: &Request) -> Option<(Parent, Box<[u8]>)> {
    let of = |known| r.head.fields.each(known).map(|field| field.value.of(&r.buf));
    let mut parents = of(Known::Traceparent);
    let (Some(first), None) = (parents.next(), parents.next()) else { return None };
    Some((parse_parent(first)?, join_state(of(Known::Tracestate))))
}

/// Returns the ids of the context, which is made on demand.
fn ensure(r: &mut Request) -> TraceIds {
    match r.trace_ids() {
        Some(ids) => ids,
        None => {
            let extracts = r.loc().ext::<Settings>().is_some_and(|settings| settings.extracts);
            begin(r, extracts)
        }
    }
}

/// As [`ensure`], with the location's setting.
fn begin(r: &mut Request, extracts: bool) -> TraceIds {
    if let Some(ids) = r.trace_ids() {
        return ids;
    }
    let parent = if extracts { extract(r) } else { None };
    let mut ids = TraceIds::new();
    let context = match parent {
        None => TraceContext::Ids(ids),
        Some((parent, state)) => {
            ids.trace = parent.trace_id;
            let mut span = RequestSpan::of(ids);
            (span.parent_id, span.parent_sampled, span.state) = (Some(parent.span_id), parent.sampled, state);
            TraceContext::Span(Rc::new(span))
        }
    };
    r.set_trace_context(context);
    ids
}

fn put(octets: &[u8], out: &mut Vec<u8>) -> bool {
    write_hex(octets, out);
    true
}

fn trace_id(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put(&ensure(r).trace, out)
}

fn span_id(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put(&ensure(r).span, out)
}

fn parent_id(r: &mut Request, out: &mut Vec<u8>) -> bool {
    ensure(r);
    r.trace_context().span().and_then(|span| span.parent_id).is_some_and(|id| put(&id, out))
}

fn parent_sampled(r: &mut Request, out: &mut Vec<u8>) -> bool {
    ensure(r);
    out.push(if r.trace_context().span().is_some_and(|span| span.parent_sampled) { b'1' } else { b'0' });
    true
}
