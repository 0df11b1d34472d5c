//! geoip2 (the module of that name by others): variables out of databases in MaxMind's second format (`.mmdb`), by the client's
//! address. What it does stands in `session_engine::geoip2`.

use conf_schema::value::Flag;
use conf_schema::{Area, Problem, Table, directives};
use http_engine::forwarded::Trusted;
use http_engine::{BlockPlan, Feature, HttpBuild, Request};
use http_upstream::located::{self, Proxies};
use session_engine::geoip2::{Client, Databases};
use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

type OfHttp = Databases<Geoip2Feature>;

directives! {
    /// What the module is told.
    pub struct Geoip2Conf from Geoip2Input {
        /// A database, and variables that are paths in what it knows of an address: `$name [default=text] [source=$variable] path ...;`,
        /// `$name metadata build_epoch | last_check | last_change;`, `auto_reload time;`. The database is read into memory.
        geoip2: OfHttp,
        /// Proxies that are believed: the address is then that of `X-Forwarded-For`.
        geoip2_proxy: Proxies,
        /// Whether the last address that is not a proxy's counts, instead of the last one.
        geoip2_proxy_recursive: Flag = "off",
    }
}

/// Whose word is taken for whom a proxy speaks for.
struct Trust {
    proxies: Vec<Trusted>,
    recursive: bool,
}

/// The feature.
pub struct Geoip2Feature;

impl Client for Geoip2Feature {
    type Of = Request;
    fn address(r: &Request) -> Option<IpAddr> {
        let trust = r.plan().ext::<Trust>()?;
        located::client(r, &trust.proxies, trust.recursive)
    }
}

impl Feature for Geoip2Feature {
    fn table(&self) -> Table {
        Geoip2Conf::table("geoip2", Area::Http)
    }
    fn plan_http(&self, conf: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        if let Some(conf) = conf.downcast_ref::<Geoip2Conf>() {
            let proxies = conf.geoip2_proxy.clone().map(|proxies| proxies.0).unwrap_or_default();
            http.extensions.push(Arc::new(Trust { proxies, recursive: conf.geoip2_proxy_recursive }));
        }
        Ok(())
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}
