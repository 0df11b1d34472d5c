//! geoip2 (third-party module): variables from MaxMind's databases (`.mmdb`); see `geo_variables::geoip2`.

use conf_schema::value::Flag;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use geo_variables::geoip2::{Databases, GeoipClient};
use http_engine::forwarded::TrustedNetwork;
use http_engine::{BlockPlan, Feature, HttpArea, HttpBuild, Request};
use http_upstream::located::{self, Proxies};
use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

type OfHttp = Databases<Geoip2Feature>;

directives! {
    pub struct Geoip2Conf from Geoip2Input {
        /// Loads a MaxMind database into memory and defines variables: `$name [default=text] [source=$variable] path
        /// ...;` for a value of an address, `$name metadata build_epoch | last_check | last_change;` for the database
        /// itself. `auto_reload time;` checks the file for changes.
        geoip2: OfHttp,
        /// Trusted proxies: for their requests the address is taken from `X-Forwarded-For`.
        geoip2_proxy: Proxies,
        /// Takes the last address in `X-Forwarded-For` that is not a trusted proxy's, instead of the last one.
        geoip2_proxy_recursive: Flag = "off",
    }
}

struct Trust {
    proxies: Vec<TrustedNetwork>,
    recursive: bool,
}

pub struct Geoip2Feature;

impl GeoipClient for Geoip2Feature {
    type Area = HttpArea;
    fn address(r: &Request) -> Option<IpAddr> {
        let trust = r.plan().ext::<Trust>()?;
        located::client_address(r, &trust.proxies, trust.recursive)
    }
}

impl Feature for Geoip2Feature {
    fn table(&self) -> FeatureTable {
        Geoip2Conf::table("geoip2", ContextArea::Http)
    }
    fn plan_http(&self, conf: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        if let Some(conf) = conf.downcast_ref::<Geoip2Conf>() {
            let proxies = conf.geoip2_proxy.clone().map(|proxies| proxies.0).unwrap_or_default();
            http.extensions.push(Arc::new(Trust { proxies, recursive: conf.geoip2_proxy_recursive }));
        }
        Ok(())
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}
