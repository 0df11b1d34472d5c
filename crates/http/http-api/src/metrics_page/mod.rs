//! metrics: a location that exposes all metrics (crate `metrics`, docs/metrics.md). A separate thread makes the pages
//! in order, so that adding up a thousand zones delays no worker.

mod format;
mod negotiation;
mod nginxplus;

use crate::shared::page_thread;
use bytes::Bytes;
use conf_schema::value::Own;
use conf_schema::{ContextArea, Contexts, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use format::MetricsFormat;
use http_engine::variables::find_arg;
use http_engine::{BlockPlan, Feature, Flow, Handler, Request, ResponseBody};
use http_types::Method;
use metrics::{MetricZone, certificate};
use std::any::Any;
use std::sync::Arc;
use upstream_directives::inventory::Inventory;

directives! {
    pub struct MetricsConf from MetricsInput {
        /// Responds with the metrics of the process and of all zones. `tidegate` (default) has Tidegate's names, as
        /// OpenMetrics if the client prefers it, else as Prometheus text; `prometheus`, `openmetrics` and `json` fix
        /// the format. `nginx` and `nginxplus` have the names of nginx's exporter for `stub_status` and for the API of
        /// the commercial edition, and `all` has all names, as Prometheus text. A request selects another format with
        /// the argument `format` or, in a prefix location, with the rest of its path. Restrict access with `allow` and
        /// `deny`.
        metrics: Own<PageFormat>,
    }
}

#[derive(Clone, Copy, Debug)]
pub struct PageFormat(MetricsFormat);

impl ValueKind for PageFormat {
    const SYNTAX: &'static str = "[format=tidegate | prometheus | openmetrics | json | nginx | nginxplus | all]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some(word) = d.args.first() else { return Ok(PageFormat(MetricsFormat::Tidegate)) };
        let invalid = || {
            let words = format!("invalid parameter \"{}\"", word.text());
            Problem::says(words).at(0).hint(format!("the formats are {}", format::NAMES.replace(" | ", ", ")))
        };
        let name = word.bytes.strip_prefix(b"format=").ok_or_else(invalid)?;
        MetricsFormat::named(name).map(PageFormat).ok_or_else(invalid)
    }
}

pub struct MetricsPage;

impl Feature for MetricsPage {
    fn table(&self) -> FeatureTable {
        MetricsConf::table("metrics_page", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let said = conf.downcast_ref::<MetricsConf>().and_then(|conf| conf.metrics.as_ref());
        if let Some(Own(PageFormat(format))) = said.filter(|_| block.context == Contexts::location) {
            let has_prefix = block.location.has_path();
            block.location.content = Some(Arc::new(MetricsHandler {
                format: *format,
                prefix: has_prefix.then_some(block.location.name.len()),
                inventory: Inventory::of(block.cx),
            }));
        }
        Ok(())
    }
}

struct MetricsHandler {
    format: MetricsFormat,
    /// Length of the location's prefix, behind which a format may stand.
    prefix: Option<usize>,
    inventory: Arc<Inventory>,
}

impl MetricsHandler {
    /// Returns the format that the request chooses, `None` if it chooses none.
    ///
    /// # Errors
    /// 400: there is no such format.
    fn chosen(&self, r: &Request) -> Result<Option<MetricsFormat>, u16> {
        if let Some(name) = find_arg(r.target.args(), b"format") {
            return MetricsFormat::named(name).map(Some).ok_or(400);
        }
        let rest = self.prefix.and_then(|prefix| r.target.path().get(prefix..)).unwrap_or_default();
        Ok(MetricsFormat::named(rest.strip_prefix(b"/").unwrap_or(rest)))
    }
}

impl Handler for MetricsHandler {
    fn run(&self, r: &mut Request) -> Flow {
        if !matches!(r.target.method(), Method::Get | Method::Head) {
            return Flow::Status(405);
        }
        let said = match self.chosen(r) {
            Ok(chosen) => chosen.unwrap_or(self.format),
            Err(status) => return Flow::Status(status),
        };
        let accept = r.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"accept")).map(|(_, value)| value);
        let format = said.negotiated(|| negotiation::prefers_openmetrics(accept));
        let (inventory, negotiates) = (self.inventory.clone(), said == MetricsFormat::Tidegate);
        page_thread::answer_later(
            move || write(format, &inventory),
            move |r, text| content(r, format, negotiates, text),
        )
    }
}

/// Runs on the page's thread, while the request's task counts it as one that is being written.
fn write(format: MetricsFormat, inventory: &Inventory) -> String {
    base::clock::update();
    match format {
        MetricsFormat::Tidegate | MetricsFormat::Prometheus => metrics::prometheus_text(&gather(inventory)),
        MetricsFormat::OpenMetrics => metrics::openmetrics_text(&gather(inventory)),
        MetricsFormat::Json => metrics::metrics_json(&gather(inventory)),
        MetricsFormat::Nginx => metrics::exporter_text(),
        MetricsFormat::NginxPlus => nginxplus::nginxplus_page(inventory),
        MetricsFormat::All => {
            let mut text = metrics::prometheus_text(&gather(inventory));
            text.push_str(&metrics::exporter_text());
            text.push_str(&nginxplus::nginxplus_page(inventory));
            text
        }
    }
}

/// Collects all metrics, with the certificates of the page's configuration.
fn gather(inventory: &Inventory) -> Vec<metrics::MetricFamily> {
    let _certificates: Vec<MetricZone<certificate::Of>> = inventory
        .certificates()
        .into_iter()
        .map(|(name, validity)| {
            let zone = MetricZone::named(&[&name]);
            zone.ask(move |values| {
                let (from, to) = validity().unwrap_or_default();
                let micros = |seconds: i64| u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000);
                values.set(certificate::NOT_BEFORE, micros(from));
                values.set(certificate::NOT_AFTER, micros(to));
            });
            zone
        })
        .collect();
    metrics::gather_families()
}

fn content(r: &mut Request, format: MetricsFormat, negotiates: bool, text: Bytes) -> Flow {
    r.out.set_status(200);
    r.out.set_content_type(format.media_type());
    r.out.set_content_length(Some(text.len() as u64));
    if negotiates {
        r.out.add("Vary", b"Accept".to_vec());
    }
    Flow::Content(ResponseBody::Bytes(text))
}
