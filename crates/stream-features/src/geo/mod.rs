//! geo (nginx: `ngx_stream_geo_module`): variables by client address; see `geo_variables::geo`.

use crate::StreamArea;
use crate::build::Feature;
use conf_schema::{ContextArea, FeatureTable, directives};

type Geos = geo_variables::geo::Geos<StreamArea>;

directives! {
    pub struct GeoConf from GeoInput {
        /// Defines a variable by the client's address, or by the address in another variable.
        geo: Geos,
    }
}

pub struct Geo;

impl Feature for Geo {
    fn table(&self) -> FeatureTable {
        GeoConf::table("geo", ContextArea::Stream)
    }
}
