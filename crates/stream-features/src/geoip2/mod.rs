//! geoip2 (the module of that name by others, for the stream area): variables out of databases in MaxMind's second format
//! (`.mmdb`), by the client's address. What it does stands in `session_engine::geoip2`.

use crate::build::Feature;
use crate::session::StreamSession;
use conf_schema::{Area, Table, directives};
use session_engine::geoip2::{Client, Databases};
use std::net::IpAddr;

type OfStream = Databases<Geoip2Feature>;

directives! {
    /// What the module is told.
    pub struct Geoip2Conf from Geoip2Input {
        /// A database, and variables that are paths in what it knows of an address: `$name [default=text] [source=$variable] path ...;`,
        /// `$name metadata build_epoch | last_check | last_change;`, `auto_reload time;`. The database is read into memory.
        geoip2: OfStream,
    }
}

/// The feature.
pub struct Geoip2Feature;

impl Client for Geoip2Feature {
    type Of = StreamSession;
    fn address(s: &StreamSession) -> Option<IpAddr> {
        s.peer.map(|peer| peer.ip())
    }
}

impl Feature for Geoip2Feature {
    fn table(&self) -> Table {
        Geoip2Conf::table("geoip2", Area::Stream)
    }
}
