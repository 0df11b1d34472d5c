//! geoip2 (third-party module): variables from MaxMind's databases (`.mmdb`); see `geo_variables::geoip2`.

use crate::StreamArea;
use crate::build::Feature;
use crate::session::StreamSession;
use conf_schema::{ContextArea, FeatureTable, directives};
use geo_variables::geoip2::{Databases, GeoipClient};
use std::net::IpAddr;

type OfStream = Databases<Geoip2Feature>;

directives! {
    pub struct Geoip2Conf from Geoip2Input {
        /// Loads a MaxMind database into memory and defines variables: `$name [default=text] [source=$variable] path
        /// ...;` for a value of an address, `$name metadata build_epoch | last_check | last_change;` for the database
        /// itself. `auto_reload time;` checks the file for changes.
        geoip2: OfStream,
    }
}

pub struct Geoip2Feature;

impl GeoipClient for Geoip2Feature {
    type Area = StreamArea;
    fn address(s: &StreamSession) -> Option<IpAddr> {
        s.peer.map(|peer| peer.ip())
    }
}

impl Feature for Geoip2Feature {
    fn table(&self) -> FeatureTable {
        Geoip2Conf::table("geoip2", ContextArea::Stream)
    }
}
