//! map (nginx: `ngx_stream_map_module`) and num_map: variables by lookup; see `variables::map`.

use crate::StreamArea;
use crate::build::Feature;
use conf_schema::value::Number;
use conf_schema::{ContextArea, FeatureTable, directives};

type StreamMaps = variables::map::Maps<StreamArea>;
type NumMaps = variables::map::NumMaps<StreamArea>;

directives! {
    pub struct MapConf from MapInput {
        /// Defines a variable by looking up a string in a table.
        map: StreamMaps,
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
        MapConf::table("map", ContextArea::Stream)
    }
}
