//! geoip (nginx: `ngx_http_geoip_module`): where a client is, by MaxMind's databases of the first kind (`.dat`). What it does
//! stands in `session_engine::geoip`.

use conf_schema::value::Flag;
use conf_schema::{Area, Problem, Table, directives};
use http_engine::forwarded::Trusted;
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, HttpBuild, Request};
use http_upstream::located::{self, Proxies};
use session_engine::geoip::{self, CityFile, CountryFile, Databases, File, Located, OrgFile};
use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

directives! {
    /// What the module is told.
    pub struct GeoipConf from GeoipInput {
        /// A database of countries, which is read into memory; `utf8`: names come in UTF-8 instead of ISO 8859-1.
        geoip_country: File<CountryFile>,
        /// A database of cities.
        geoip_city: File<CityFile>,
        /// A database of organisations, providers, domains or autonomous systems.
        geoip_org: File<OrgFile>,
        /// Proxies that are believed: the address is then that of `X-Forwarded-For`.
        geoip_proxy: Proxies,
        /// Whether the last address that is not a proxy's counts, instead of the last one.
        geoip_proxy_recursive: Flag = "off",
    }
}

/// What is looked up, and whose word is taken for whom a proxy speaks for.
struct Lookups {
    databases: Databases,
    proxies: Vec<Trusted>,
    recursive: bool,
}

/// The feature.
pub struct GeoipFeature;

impl Located for GeoipFeature {
    type Of = Request;
    fn databases(r: &Request) -> Option<&Databases> {
        r.plan().ext::<Lookups>().map(|lookups| &lookups.databases)
    }
    fn address(r: &Request) -> Option<IpAddr> {
        let lookups = r.plan().ext::<Lookups>()?;
        located::client(r, &lookups.proxies, lookups.recursive)
    }
}

static VARIABLES: [Builtin; 16] = geoip::variables::<GeoipFeature>();

impl Feature for GeoipFeature {
    fn table(&self) -> Table {
        GeoipConf::table("geoip", Area::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        &VARIABLES
    }
    fn plan_http(&self, conf: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        if let Some(conf) = conf.downcast_ref::<GeoipConf>() {
            http.extensions.push(Arc::new(Lookups {
                databases: Databases::new(
                    conf.geoip_country.as_ref(),
                    conf.geoip_city.as_ref(),
                    conf.geoip_org.as_ref(),
                ),
                proxies: conf.geoip_proxy.clone().map(|proxies| proxies.0).unwrap_or_default(),
                recursive: conf.geoip_proxy_recursive,
            }));
        }
        Ok(())
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}
