//! map (nginx: `ngx_stream_map_module`): a variable whose value depends on another's. What it does stands in
//! `session_engine::map`.

use crate::build::Feature;
use crate::session::StreamSession;
use conf_schema::value::Number;
use conf_schema::{Area, Table, directives};

type Maps = session_engine::map::Maps<StreamSession>;

directives! {
    /// What the module is told.
    pub struct MapConf from MapInput {
        /// Makes a variable whose value is looked up in a table by the value of a string.
        map: Maps,
        /// Accepted for nginx's sake: tables here grow as they must.
        map_hash_bucket_size: Number,
        /// Accepted for nginx's sake: tables here grow as they must.
        map_hash_max_size: Number,
    }
}

/// The feature.
pub struct Map;

impl Feature for Map {
    fn table(&self) -> Table {
        MapConf::table("map", Area::Stream)
    }
}
