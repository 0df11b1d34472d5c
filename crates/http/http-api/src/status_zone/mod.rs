//! status_zone: counters per server and location (documented with nginx's `ngx_http_api_module`); see
//! `http_engine::counting`.

use conf_schema::{ContextArea, Contexts, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::counting::ServerZone;
use http_engine::{BlockPlan, Feature};
use metrics::MetricZone;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct ZoneConf from ZoneInput {
        /// Counts the requests of a server or location, and of the locations inside it, under this name (see
        /// `metrics`). Several blocks may share a name; `off` excludes an inner location.
        status_zone: StatusZoneValue,
    }
}

#[derive(Clone, Debug)]
pub struct StatusZoneValue {
    name: Option<String>,
    /// A server's value, which locations do not inherit.
    of_server: bool,
}

impl ValueKind for StatusZoneValue {
    const SYNTAX: &'static str = "zone | off";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        if name.is_empty() {
            return Err(Problem::says("invalid zone name \"\"").at(0));
        }
        Ok(StatusZoneValue { name: (name != "off").then_some(name), of_server: cx.context == Contexts::server })
    }
}

pub struct StatusZone;

impl Feature for StatusZone {
    fn table(&self) -> FeatureTable {
        ZoneConf::table("status_zone", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let said = conf.downcast_ref::<ZoneConf>().and_then(|conf| conf.status_zone.as_ref());
        let Some((name, of_server)) = said.and_then(|said| Some((said.name.as_deref()?, said.of_server))) else {
            return Ok(());
        };
        match (block.context == Contexts::server, of_server) {
            (true, _) => block.location.extensions.push(Arc::new(ServerZone(MetricZone::named(&[name])))),
            (false, false) => block.location.zone = Some(MetricZone::named(&[name])),
            (false, true) => {}
        }
        Ok(())
    }
}
