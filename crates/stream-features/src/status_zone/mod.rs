//! status_zone: counters per server (documented with nginx's `ngx_http_api_module`); `engine.rs` counts.

use crate::build::{Feature, ServerBuild};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use metrics::MetricZone;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct ZoneConf from ZoneInput {
        /// Counts the sessions of a server under this name (see `metrics`); several servers may share a name.
        status_zone: ZoneName,
    }
}

#[derive(Clone, Debug)]
pub struct ZoneName(Option<String>);

impl ValueKind for ZoneName {
    const SYNTAX: &'static str = "zone | off";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        if name.is_empty() {
            return Err(Problem::says("invalid zone name \"\"").at(0));
        }
        Ok(ZoneName((name != "off").then_some(name)))
    }
}

pub struct StatusZone;

impl Feature for StatusZone {
    fn table(&self) -> FeatureTable {
        ZoneConf::table("status_zone", ContextArea::Stream)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        let said = conf.downcast_ref::<ZoneConf>().and_then(|conf| conf.status_zone.as_ref());
        if let Some(name) = said.and_then(|said| said.0.as_deref()) {
            block.server.zone = Some(MetricZone::named(&[name]));
        }
        Ok(())
    }
}
