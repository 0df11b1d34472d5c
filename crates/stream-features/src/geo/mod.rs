//! geo (nginx: `ngx_stream_geo_module`): a variable whose value depends on the client's address. What it does stands in
//! `session_engine::geo`.

use crate::build::Feature;
use crate::session::StreamSession;
use conf_schema::{Area, Table, directives};

type Geos = session_engine::geo::Geos<StreamSession>;

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
        GeoConf::table("geo", Area::Stream)
    }
}
