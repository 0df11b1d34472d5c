//! metrics: a location that answers with everything that is counted, for Prometheus and its like. What there is stands in the
//! crate `metrics`, docs/metrics.md lists it.

use bytes::Bytes;
use conf_schema::value::Own;
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use http_engine::variables::find_arg;
use http_engine::{BlockPlan, Body, Feature, Flow, Handler, Request};
use http_types::Method;
use std::any::Any;
use std::sync::Arc;

directives! {
    /// What the module is told in a block.
    pub struct MetricsConf from MetricsInput {
        /// Answers with the metrics of the process and of all zones as text for Prometheus, or in another format: the one that the
        /// argument `format` of the request names (`prometheus`, `openmetrics`, `json`, `nginx`), else the one given here, else
        /// OpenMetrics where the client accepts it. Who may see it is said by `allow`, `deny` and their like.
        metrics: Own<Given>,
    }
}

/// A format that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Prometheus,
    OpenMetrics,
    Json,
    /// The names of nginx's exporter.
    Nginx,
}

impl Format {
    fn named(name: &[u8]) -> Option<Format> {
        Some(match name {
            b"prometheus" => Format::Prometheus,
            b"openmetrics" => Format::OpenMetrics,
            b"json" => Format::Json,
            b"nginx" => Format::Nginx,
            _ => return None,
        })
    }
}

/// What the directive says.
#[derive(Clone, Copy, Debug)]
pub struct Given(Option<Format>);

impl Value for Given {
    const SYNTAX: &'static str = "[format=prometheus | openmetrics | json | nginx]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some(word) = d.args.first() else { return Ok(Given(None)) };
        let invalid = || Problem::says(format!("invalid parameter \"{}\"", word.text())).at(0);
        let name = word.bytes.strip_prefix(b"format=").ok_or_else(invalid)?;
        Format::named(name).map(|format| Given(Some(format))).ok_or_else(invalid)
    }
}

/// The feature.
pub struct MetricsPage;

impl Feature for MetricsPage {
    fn table(&self) -> Table {
        MetricsConf::table("metrics_page", Area::Http)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if let Some(Own(given)) = conf.downcast_ref::<MetricsConf>().and_then(|conf| conf.metrics.as_ref()) {
            block.location.content = Some(Arc::new(Page(*given)));
        }
        Ok(())
    }
}

struct Page(Given);

/// The client says that it takes OpenMetrics (Prometheus does, before the older format).
fn accepts_openmetrics(r: &Request) -> bool {
    let is_refused = |parameter: &[u8]| matches!(parameter.trim_ascii(), b"q=0" | b"q=0.0" | b"q=0.00" | b"q=0.000");
    let mut accepted = r.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"accept"));
    accepted.any(|(_, value)| {
        value.split(|c| *c == b',').any(|range| {
            let mut parts = range.split(|c| *c == b';');
            let is_it =
                parts.next().is_some_and(|t| t.trim_ascii().eq_ignore_ascii_case(b"application/openmetrics-text"));
            is_it && !parts.any(is_refused)
        })
    })
}

impl Handler for Page {
    fn run(&self, r: &mut Request) -> Flow {
        if !matches!(r.method, Method::Get | Method::Head) {
            return Flow::Status(405);
        }
        let asked = match find_arg(&r.args, b"format") {
            Some(name) => match Format::named(name) {
                Some(format) => Some(format),
                None => return Flow::Status(400),
            },
            None => self.0.0,
        };
        let negotiated = || if accepts_openmetrics(r) { Format::OpenMetrics } else { Format::Prometheus };
        let format = asked.unwrap_or_else(negotiated);
        let (text, media_type) = match format {
            Format::Prometheus => (metrics::prometheus(&metrics::gather()), metrics::PROMETHEUS_TYPE),
            Format::OpenMetrics => (metrics::openmetrics(&metrics::gather()), metrics::OPENMETRICS_TYPE),
            Format::Json => (metrics::json(&metrics::gather()), "application/json"),
            // As `stub_status`: the request that asks is being answered, also where it is too quick to have been counted.
            Format::Nginx => (metrics::nginx(u64::from(!r.counted && !r.is_subrequest())), metrics::PROMETHEUS_TYPE),
        };
        r.out.status = 200;
        r.out.content_type = media_type.into();
        r.out.content_length = Some(text.len() as u64);
        if asked.is_none() {
            r.out.add("Vary", b"Accept".to_vec());
        }
        Flow::Content(Body::Bytes(Bytes::from(text)))
    }
}
