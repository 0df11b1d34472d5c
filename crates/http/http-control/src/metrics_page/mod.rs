//! metrics: a location that exposes all metrics (crate `metrics`, docs/metrics.md). A separate thread makes the pages
//! in order, so that adding up a thousand zones delays no worker.

mod format;
mod negotiation;
mod nginxplus;

use crate::shared::page_thread;
use bytes::Bytes;
use conf_schema::value::Own;
use conf_schema::{Area, Contexts, Cx, Directive, Problem, Table, Value, directives};
use format::Format;
use http_engine::variables::find_arg;
use http_engine::{BlockPlan, Body, Feature, Flow, Handler, Request};
use http_types::Method;
use metrics::{Zone, certificate};
use session_engine::inventory::Inventory;
use std::any::Any;
use std::sync::Arc;

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
pub struct PageFormat(Format);

impl Value for PageFormat {
    const SYNTAX: &'static str = "[format=tidegate | prometheus | openmetrics | json | nginx | nginxplus | all]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some(word) = d.args.first() else { return Ok(PageFormat(Format::Tidegate)) };
        let invalid = || {
            let words = format!("invalid parameter \"{}\"", word.text());
            Problem::says(words).at(0).hint(format!("the formats are {}", format::NAMES.replace(" | ", ", ")))
        };
        let name = word.bytes.strip_prefix(b"format=").ok_or_else(invalid)?;
        Format::named(name).map(PageFormat).ok_or_else(invalid)
    }
}

pub struct MetricsPage;

impl Feature for MetricsPage {
    fn table(&self) -> Table {
        MetricsConf::table("metrics_page", Area::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let said = conf.downcast_ref::<MetricsConf>().and_then(|conf| conf.metrics.as_ref());
        if let Some(Own(PageFormat(format))) = said.filter(|_| block.context == Contexts::location) {
            let has_prefix = block.location.has_path();
            block.location.content = Some(Arc::new(Page {
                format: *format,
                prefix: has_prefix.then_some(block.location.name.len()),
                inventory: Inventory::of(block.cx),
            }));
        }
        Ok(())
    }
}

struct Page {
    format: Format,
    /// Length of the location's prefix, behind which a format may stand.
    prefix: Option<usize>,
    inventory: Arc<Inventory>,
}

impl Page {
    /// Returns the format that the request chooses, `None` if it chooses none.
    ///
    /// # Errors
    /// 400: there is no such format.
    fn chosen(&self, r: &Request) -> Result<Option<Format>, u16> {
        if let Some(name) = find_arg(&r.target.args, b"format") {
            return Format::named(name).map(Some).ok_or(400);
        }
        let rest = self.prefix.and_then(|prefix| r.target.path.get(prefix..)).unwrap_or_default();
        Ok(Format::named(rest.strip_prefix(b"/").unwrap_or(rest)))
    }
}

impl Handler for Page {
    fn run(&self, r: &mut Request) -> Flow {
        if !matches!(r.target.method, Method::Get | Method::Head) {
            return Flow::Status(405);
        }
        let said = match self.chosen(r) {
            Ok(chosen) => chosen.unwrap_or(self.format),
            Err(status) => return Flow::Status(status),
        };
        let accept = r.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"accept")).map(|(_, value)| value);
        let format = said.negotiated(|| negotiation::prefers_openmetrics(accept));
        let (inventory, negotiates) = (self.inventory.clone(), said == Format::Tidegate);
        page_thread::answer(move || write(format, &inventory), move |r, text| content(r, format, negotiates, text))
    }
}

/// Runs on the page's thread, while the request's task counts it as one that is being written.
fn write(format: Format, inventory: &Inventory) -> String {
    base::clock::update();
    match format {
        Format::Tidegate | Format::Prometheus => metrics::prometheus(&gather(inventory)),
        Format::OpenMetrics => metrics::openmetrics(&gather(inventory)),
        Format::Json => metrics::json(&gather(inventory)),
        Format::Nginx => metrics::nginx(),
        Format::NginxPlus => nginxplus::page(inventory),
        Format::All => {
            let mut text = metrics::prometheus(&gather(inventory));
            text.push_str(&metrics::nginx());
            text.push_str(&nginxplus::page(inventory));
            text
        }
    }
}

/// Collects all metrics, with the certificates of the page's configuration.
fn gather(inventory: &Inventory) -> Vec<metrics::Family> {
    let _certificates: Vec<Zone<certificate::Of>> = inventory
        .certificates()
        .into_iter()
        .map(|(name, validity)| {
            let zone = Zone::named(&[&name]);
            zone.ask(move |values| {
                let (from, to) = validity().unwrap_or_default();
                let micros = |seconds: i64| u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000);
                values.set(certificate::NOT_BEFORE, micros(from));
                values.set(certificate::NOT_AFTER, micros(to));
            });
            zone
        })
        .collect();
    metrics::gather()
}

fn content(r: &mut Request, format: Format, negotiates: bool, text: Bytes) -> Flow {
    r.out.status = 200;
    r.out.content_type = format.media_type().into();
    r.out.content_length = Some(text.len() as u64);
    if negotiates {
        r.out.add("Vary", b"Accept".to_vec());
    }
    Flow::Content(Body::Bytes(text))
}
