//! geo (nginx: `ngx_http_geo_module`): variables by client address; see `geo_variables::geo`.

use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::{BlockPlan, Feature, HttpArea};
use std::any::Any;
use std::sync::Arc;

type Geos = geo_variables::geo::Geos<HttpArea>;

directives! {
    pub struct GeoConf from GeoInput {
        /// Defines a variable by the client's address, or by the address in another variable.
        geo: Geos,
    }
}

pub struct Geo;

impl Feature for Geo {
    fn table(&self) -> FeatureTable {
        GeoConf::table("geo", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}
