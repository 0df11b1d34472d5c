//! otel: OpenTelemetry traces (nginx: `ngx_otel_module`).
//!
//! `exporter.rs` reads `otel_exporter`; `context.rs` makes a request's trace context and its variables; `span.rs` makes
//! the spans at the request's end, which crate `otlp` exports on the control thread (`background.rs`).

mod background;
mod context;
mod exporter;
mod facts;
mod old;
mod settings;
mod span;
mod stable;

use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use context::Start;
use exporter::ExporterBlock;
use http_engine::sampler::LateSampler;
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, HandlerOrder, HttpBuild, HttpTemplate};
use otlp::Exporter;
use settings::{Propagation, Semconv, Settings};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct OtelConf from OtelInput {
        /// Exports spans by OTLP: `endpoint` (`[http[s]://]host[:port][/path]`; gRPC, or HTTP if there is a path),
        /// `protocol` (`grpc` or `http/protobuf`), `trusted_certificate`, `header`, `interval` (5s), `batch_size` (512)
        /// and `batch_count` (4). Spans beyond `batch_size` times `batch_count` are dropped. See docs/tracing.md.
        otel_exporter: ExporterBlock,
        /// Sets the attribute `service.name` of the resource.
        otel_service_name: ServiceName = "unknown_service:nginx",
        /// Adds an attribute to the resource.
        otel_resource_attr: Resources,
        /// Enables tracing: `on`, `off`, or a value with variables, which enables tracing if it is `on` or `1`.
        otel_trace: HttpTemplate = "off",
        /// Controls the request fields `traceparent` and `tracestate`: `extract` makes the client's context the parent,
        /// `inject` sends Tidegate's context to upstream servers, `propagate` does both, `ignore` passes the client's
        /// fields unchanged.
        otel_trace_context: Propagation = "ignore",
        /// Sets the span's name; by default, it is the location's name.
        otel_span_name: HttpTemplate,
        /// Adds an attribute to the span. Names that begin with `http.request.header.` or `http.response.header.` have
        /// a list as their value.
        otel_span_attr: SpanAttributes,
        /// Selects the names of automatic attributes: nginx's (version 1.16.0 of the semantic conventions), the stable
        /// ones (since 1.23.0), or both.
        otel_semconv: Semconv = "old",
        /// Records a child span of kind `client` for every attempt on an upstream server, including those of
        /// subrequests. The injected `traceparent` then names the attempt's span instead of the request's.
        otel_upstream_spans: bool = "off",
    }
}

/// `otel_service_name`
#[derive(Clone, Debug)]
pub struct ServiceName(String);

impl ValueKind for ServiceName {
    const SYNTAX: &'static str = "name";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Ok(ServiceName(d.args.first().map(|word| word.text().into_owned()).unwrap_or_default()))
    }
}

/// `otel_resource_attr`: later values of a name replace earlier ones.
#[derive(Clone, Debug)]
pub struct Resources(Vec<(String, String)>);

fn name_of(d: &Directive) -> Result<String, Problem> {
    match d.args.first().map(|word| word.text().into_owned()) {
        Some(name) if !name.is_empty() => Ok(name),
        _ => Err(Problem::says("empty attribute name").at(0)),
    }
}

impl ValueKind for Resources {
    const SYNTAX: &'static str = "name value";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let value = d.args.get(1).map(|word| word.text().into_owned()).unwrap_or_default();
        Ok(Resources(vec![(name_of(d)?, value)]))
    }
    fn append(&mut self, later: Self) {
        self.0.retain(|(name, _)| !later.0.iter().any(|(other, _)| other == name));
        self.0.extend(later.0);
    }
}

/// `otel_span_attr`
#[derive(Clone)]
pub struct SpanAttributes(Vec<Arc<(String, HttpTemplate)>>);

impl ValueKind for SpanAttributes {
    const SYNTAX: &'static str = "name value";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let value = d.args.get(1).map(|word| word.bytes.clone()).unwrap_or_default();
        let value = HttpTemplate::compile(cx, d, &value).map_err(|problem| problem.at(1))?;
        Ok(SpanAttributes(vec![Arc::new((name_of(d)?, value))]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// The exporter of the configuration; kept in `Cx`.
#[derive(Default)]
struct Current(Option<Arc<Exporter>>);

pub struct OtelFeature;

impl Feature for OtelFeature {
    fn table(&self) -> FeatureTable {
        OtelConf::table("otel", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        context::ROWS
    }
    fn plan_http(&self, conf: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        let exporter = conf.downcast_ref::<OtelConf>().and_then(|conf| {
            let attributes = conf.otel_resource_attr.as_ref().map(|rows| rows.0.as_slice()).unwrap_or_default();
            Some(Arc::new(conf.otel_exporter.as_ref()?.exporter(&conf.otel_service_name.0, attributes)))
        });
        if let Some(exporter) = &exporter {
            http.background.push(Arc::new(background::Export(exporter.clone())));
        }
        http.cx.get::<Current>().0 = exporter;
        Ok(())
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<OtelConf>() else { return Ok(()) };
        let exporter = block.cx.get::<Current>().0.clone();
        let traces = conf.otel_trace.as_literal() != Some(b"off");
        if traces && exporter.is_none() {
            return Err(Problem::says("\"otel_exporter\" block is missing")
                .of("otel_trace")
                .hint("write \"otel_exporter { endpoint localhost:4317; }\" in the http block"));
        }
        let context = conf.otel_trace_context;
        if exporter.is_none() && context == Propagation::Ignore {
            return Ok(());
        }
        let attributes = conf.otel_span_attr.as_ref().map(|rows| rows.0.clone()).unwrap_or_default();
        let settings = Arc::new(Settings {
            extracts: matches!(context, Propagation::Extract | Propagation::Propagate),
            injects: matches!(context, Propagation::Inject | Propagation::Propagate),
            name: conf.otel_span_name.clone(),
            names: attributes.iter().map(|row| row.0.clone()).collect(),
            attributes,
            semconv: conf.otel_semconv,
            tries: conf.otel_upstream_spans,
        });
        block.location.extensions.push(settings.clone());
        if traces || context != Propagation::Ignore {
            let sampler = Arc::new(LateSampler::default());
            if !settings.extracts && !settings.injects {
                block.location.sampler = Some(sampler.clone());
            }
            let trace = traces.then(|| conf.otel_trace.clone());
            let start = Start { trace, settings: settings.clone(), sampler };
            block.handle(HandlerOrder::Otel, Arc::new(start));
        }
        if let Some(exporter) = exporter {
            block.location.loggers.push(Arc::new(span::SpanEnd { settings, exporter }));
        }
        Ok(())
    }
}
