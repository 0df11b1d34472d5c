//! prometheus, `prometheus_template` (Angie: `ngx_http_prometheus_module`): metrics with names and labels that the
//! configuration defines, over the tree of statistics (`tree.rs`).
//!
//! A separate thread collects and searches the tree. The request's thread computes names and values of samples, which
//! may have any variables, a few at a time.

mod template;
mod tree;

use bytes::Bytes;
use conf_schema::value::Own;
use conf_schema::{ContextArea, Contexts, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, Flow, Handler, Request, ResponseBody, body_memory};
use http_types::Method;
use net::pool::{Pool, PoolSpec};
use std::any::Any;
use std::sync::{Arc, OnceLock};
use template::{Metric, MetricSample, TemplateBlocks, Templates};
use upstream_directives::inventory::Inventory;

directives! {
    pub struct PrometheusConf from PrometheusInput {
        /// Responds with the metrics of a `prometheus_template`, as Prometheus text. Restrict access with `allow` and
        /// `deny`.
        prometheus: Own<NamedTemplate>,
        /// Defines metrics over Angie's tree of statistics. A line has a name with labels, a variable with the value,
        /// and `path=`, `type=` and `help=`: each value whose path matches produces a sample, with the value in
        /// `$p8s_value` and captures in `$1` to `$9`. A line without `path=` produces one sample. Empty values produce
        /// none. Differs: paths whose values Tidegate does not count are refused.
        prometheus_template: TemplateBlocks,
    }
}

#[derive(Clone, Debug)]
pub struct NamedTemplate(String);

impl ValueKind for NamedTemplate {
    const SYNTAX: &'static str = "template";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Ok(NamedTemplate(d.args.first().map(|word| word.text().into_owned()).unwrap_or_default()))
    }
}

/// Value of the sample that is being computed.
struct SampleValue(String);

static VARIABLES: &[Builtin] =
    &[Builtin::one("p8s_value", sample_value, "Value of the sample that a `prometheus_template` makes.")];

fn sample_value(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let Some(SampleValue(value)) = r.ext::<SampleValue>() else { return false };
    out.extend_from_slice(value.as_bytes());
    true
}

pub struct PrometheusFeature;

impl Feature for PrometheusFeature {
    fn table(&self) -> FeatureTable {
        PrometheusConf::table("prometheus", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let said = conf.downcast_ref::<PrometheusConf>().and_then(|conf| conf.prometheus.as_ref());
        let Some(Own(NamedTemplate(name))) = said.filter(|_| block.context == Contexts::location) else {
            return Ok(());
        };
        let Some(metrics) = block.cx.get::<Templates>().0.get(name).cloned() else {
            let words = format!("unknown Prometheus template \"{name}\"");
            return Err(Problem::says(words)
                .of("prometheus")
                .hint("\"prometheus_template\" in the http block defines it"));
        };
        block.location.content =
            Some(Arc::new(TemplatePage { name: name.clone(), metrics, inventory: Inventory::of(block.cx) }));
        Ok(())
    }
}

struct TemplatePage {
    name: String,
    metrics: Arc<Vec<Metric>>,
    inventory: Arc<Inventory>,
}

/// Requests that wait for the thread at most; more get 503.
const WAITING_MAX: usize = 64;
/// Expected size of a page.
const PAGE_BYTES: u64 = 128 << 10;
/// Samples that are computed before other connections get their turn.
const AT_ONCE: usize = 64;

fn pool() -> &'static Arc<Pool> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    POOL.get_or_init(|| Pool::new(PoolSpec::control("prometheus", WAITING_MAX)))
}

impl Handler for TemplatePage {
    fn run(&self, r: &mut Request) -> Flow {
        if !matches!(r.target.method(), Method::Get | Method::Head) {
            return Flow::Status(405);
        }
        let (name, metrics, inventory) = (self.name.clone(), self.metrics.clone(), self.inventory.clone());
        let local = r.connection().local.to_string();
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let memory = match body_memory::reserve_memory(&r, PAGE_BYTES).await {
                    Ok(memory) => memory,
                    Err(none) => return (r, Flow::Status(none.status())),
                };
                let searched = metrics.clone();
                let work = pool().run(move || {
                    base::clock::update();
                    template::search_values(&searched, tree::collect_leaves(&inventory, &local))
                });
                let found = match work {
                    Ok(work) => work.await.map_err(|_| 500),
                    Err(_) => Err(503),
                };
                let flow = match found {
                    Ok(found) => content(&mut r, &name, &metrics, found).await,
                    Err(status) => Flow::Status(status),
                };
                (r, memory.hold_content(flow))
            })
        }))
    }
}

async fn content(r: &mut Request, name: &str, metrics: &[Metric], found: Vec<Vec<MetricSample>>) -> Flow {
    let mut text = format!("# Tidegate Prometheus template \"{name}\"\n").into_bytes();
    let mut made = 0_usize;
    for (metric, found) in metrics.iter().zip(found) {
        let mut lines = Vec::new();
        for MetricSample { path, value } in found {
            made += 1;
            if made.is_multiple_of(AT_ONCE) {
                runtime::task::yield_now().await;
            }
            if metric.capture(r, path.as_bytes()).is_err() {
                return Flow::Status(500);
            }
            r.keep(SampleValue(value));
            metric.sample(r, &mut lines);
            drop(r.take_ext::<SampleValue>());
        }
        if metric.path.is_none() {
            metric.sample(r, &mut lines);
        }
        metric.family(&lines, &mut text);
    }
    r.out.set_status(200);
    r.out.set_content_type(metrics::PROMETHEUS_TYPE);
    r.out.set_content_length(Some(text.len() as u64));
    r.out.add("Cache-Control", b"no-cache".to_vec());
    Flow::Content(ResponseBody::Bytes(Bytes::from(text)))
}
