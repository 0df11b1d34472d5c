//! The spans of an ended request: its own of kind server, and those of the tries of servers.

use super::facts::{span_status, variable_value};
use super::settings::Settings;
use super::{old, stable};
use base::clock::{self, Instant};
use http_engine::span::{RequestSpan, TrySpan};
use http_engine::{Logger, Request};
use observe::Severity;
use otlp::{Exporter, SpanHead, TraceKind, TraceSpan};
use std::sync::Arc;

/// Bits of `Span.flags`: sampled, and the parent's location if known (`SpanFlags`).
const SAMPLED: u32 = 1;
const KNOWS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Makes the spans when the request is logged.
pub struct SpanEnd {
    pub settings: Arc<Settings>,
    pub exporter: Arc<Exporter>,
}

impl Logger for SpanEnd {
    fn log(&self, r: &mut Request) {
        if r.trace_context().span().is_some_and(|span| span.sampled.get()) {
            self.export(r);
        }
    }
}

fn nanos(at: Instant) -> u64 {
    clock::unix_micros_at(at).saturating_mul(1000)
}

impl SpanEnd {
    #[inline(never)]
    fn export(&self, r: &mut Request) {
        let Some(span) = r.trace_context().span().cloned() else { return };
        // A subrequest of `log_subrequest` has its main request's span.
        if r.is_subrequest() {
            return;
        }
        let mut spans = vec![self.server(r, &span)];
        if span.tries.get() {
            spans.extend(r.take_tries().iter().map(|one| self.client(&span, one)));
        }
        let dropped = self.exporter.queue.push(spans, clock::unix_millis() / 1000);
        if let Some(dropped) = dropped {
            r.log(Severity::Notice, format_args!("OTel dropped records: {dropped}"));
        }
    }
    fn server(&self, r: &mut Request, own: &RequestSpan) -> Vec<u8> {
        let settings = &self.settings;
        let name = match &settings.name {
            Some(name) => name.eval(r),
            None if settings.is_old() => r.loc().name.clone(),
            None => stable::span_name(r),
        };
        let head = SpanHead {
            trace_id: own.ids.trace,
            span_id: own.ids.span,
            trace_state: &own.state,
            parent_span_id: own.parent_id,
            name: &name,
            kind: TraceKind::Server,
            start: nanos(r.accounting.started()),
            end: nanos(clock::now().max(r.accounting.started())),
            flags: SAMPLED | KNOWS_REMOTE | if own.parent_id.is_some() { IS_REMOTE } else { 0 },
        };
        let mut span = TraceSpan::new(&head, &settings.names);
        if span_status(r) >= 500 {
            span.fail();
        }
        if !r.loc().name.is_empty() {
            span.text("http.route", &r.loc().name);
        }
        if settings.is_old() {
            old::server_attributes(r, &mut span);
        }
        if settings.is_stable() {
            stable::server_attributes(r, &mut span);
        }
        if let Some(status) = variable_value(r, "upstream_cache_status") {
            span.text("tidegate.cache.status", status);
        }
        for (at, row) in settings.attributes.iter().enumerate() {
            let (name, value) = &**row;
            // The last value of a name counts.
            if !settings.attributes.iter().skip(at + 1).any(|later| later.0 == *name) {
                span.own(name, &value.eval(r));
            }
        }
        span.encoded()
    }

    fn client(&self, own: &RequestSpan, one: &TrySpan) -> Vec<u8> {
        let old_name = || format!("upstream {}", one.method).into_bytes();
        let head = SpanHead {
            trace_id: own.ids.trace,
            span_id: one.id.to_be_bytes(),
            trace_state: &own.state,
            parent_span_id: Some(own.ids.span),
            name: &if self.settings.is_old() { old_name() } else { one.method.as_bytes().to_vec() },
            kind: TraceKind::Client,
            start: nanos(one.started),
            end: nanos(one.ended.max(one.started)),
            flags: SAMPLED | KNOWS_REMOTE,
        };
        let mut span = TraceSpan::new(&head, &[]);
        // Without a response, or with an error of the client (semantic conventions of HTTP, "Status").
        if one.status == 0 || one.status >= 400 {
            span.fail();
        }
        if self.settings.is_old() {
            old::client_attributes(one, &mut span);
        }
        if self.settings.is_stable() {
            stable::client_attributes(one, &mut span);
        }
        span.text("tidegate.upstream.scheme", one.scheme);
        if let Some(path) = &one.subrequest {
            span.text("tidegate.subrequest", path.as_bytes());
        }
        span.encoded()
    }
}
