//! map (nginx: `ngx_stream_map_module`): variables by lookup of a string; see `session_engine::map`.

use crate::build::Feature;
use crate::session::StreamSession;
use conf_schema::value::Number;
use conf_schema::{Area, Table, directives};

type Maps = session_engine::map::Maps<StreamSession>;

directives! {
    pub struct MapConf from MapInput {
        /// Defines a variable by looking up a string in a table.
        map: Maps,
        /// Accepted for compatibility: tables grow as needed.
        map_hash_bucket_size: Number,
        /// Accepted for compatibility: tables grow as needed.
        map_hash_max_size: Number,
    }
}

pub struct Map;

impl Feature for Map {
    fn table(&self) -> Table {
        MapConf::table("map", Area::Stream)
    }
}
