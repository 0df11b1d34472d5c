//! map (nginx: `ngx_http_map_module`) and num_map; see `variables::map`.

use conf_schema::value::Number;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::{BlockPlan, Feature, HttpArea};
use std::any::Any;
use std::sync::Arc;

type HttpMaps = variables::map::Maps<HttpArea>;
type NumMaps = variables::map::NumMaps<HttpArea>;

directives! {
    pub struct MapConf from MapInput {
        /// Defines a variable by looking up a string in a table.
        map: HttpMaps,
        /// Accepted for compatibility: tables grow as needed.
        map_hash_bucket_size: Number,
        /// Accepted for compatibility: tables grow as needed.
        map_hash_max_size: Number,
        /// Defines a variable by looking up an integer in a table of numbers and ranges (`<n`, `<=n`, `>n`, `>=n`, `n-m`). An equal
        /// number comes first, then the first range that contains the value; other values have the default.
        num_map: NumMaps,
    }
}

pub struct Map;

impl Feature for Map {
    fn table(&self) -> FeatureTable {
        MapConf::table("map", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}
