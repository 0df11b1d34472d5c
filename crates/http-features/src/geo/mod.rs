//! geo (nginx: `ngx_http_geo_module`): a variable whose value depends on the client's address. What it does stands in
//! `session_engine::geo`.

use conf_schema::{Area, Problem, Table, directives};
use http_engine::{BlockPlan, Feature, Request};
use std::any::Any;
use std::sync::Arc;

type Geos = session_engine::geo::Geos<Request>;

directives! {
    /// What the module is told.
    pub struct GeoConf from GeoInput {
        /// Makes a variable whose value depends on the client's address, or on the address that another variable holds.
        geo: Geos,
    }
}

/// The feature.
pub struct Geo;

impl Feature for Geo {
    fn table(&self) -> Table {
        GeoConf::table("geo", Area::Http)
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}
