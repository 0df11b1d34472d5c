//! metrics: a location that exposes all metrics (crate `metrics`, docs/metrics.md).

use bytes::Bytes;
use conf_schema::value::Own;
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use http_engine::variables::find_arg;
use http_engine::{BlockPlan, Body, Feature, Flow, Handler, Request};
use http_types::Method;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct MetricsConf from MetricsInput {
        /// Responds with the metrics of the process and of all zones. The format is that of the request's argument
        /// `format` (`prometheus`, `openmetrics`, `json`, `nginx`), else the one configured here, else OpenMetrics if
        /// the client accepts it, else Prometheus text. Restrict access with `allow` and `deny`.
        metrics: Own<Given>,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Prometheus,
    OpenMetrics,
    Json,
    /// Names of nginx's exporter.
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
        if !matches!(r.target.method, Method::Get | Method::Head) {
            return Flow::Status(405);
        }
        let asked = match find_arg(&r.target.args, b"format") {
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
            // As in `stub_status`, counts the present request, even if too fast to be counted.
            Format::Nginx => {
                (metrics::nginx(u64::from(!r.accounting.counted && !r.is_subrequest())), metrics::PROMETHEUS_TYPE)
            }
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
