//! geoip (nginx: `ngx_http_geoip_module`): location by MaxMind's legacy databases (`.dat`); see
//! `geo_variables::geoip`.

use conf_schema::value::Flag;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use geo_variables::geoip::{self, CityFile, CountryFile, Databases, File, GeoipArea, OrgFile};
use http_engine::forwarded::TrustedNetwork;
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, HttpArea, HttpBuild, Request};
use http_upstream::located::{self, Proxies};
use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

directives! {
    pub struct GeoipConf from GeoipInput {
        /// Loads a database of countries into memory; `utf8` recodes names from ISO 8859-1 to UTF-8.
        geoip_country: File<CountryFile>,
        /// Loads a database of cities into memory.
        geoip_city: File<CityFile>,
        /// Loads a database of organizations, providers, domains or autonomous systems into memory.
        geoip_org: File<OrgFile>,
        /// Trusted proxies: for their requests the address is taken from `X-Forwarded-For`.
        geoip_proxy: Proxies,
        /// Takes the last address in `X-Forwarded-For` that is not a trusted proxy's, instead of the last one.
        geoip_proxy_recursive: Flag = "off",
    }
}

struct Lookups {
    databases: Databases,
    proxies: Vec<TrustedNetwork>,
    recursive: bool,
}

pub struct GeoipFeature;

impl GeoipArea for GeoipFeature {
    type Area = HttpArea;
    fn databases(r: &Request) -> Option<&Databases> {
        r.plan().ext::<Lookups>().map(|lookups| &lookups.databases)
    }
    fn address(r: &Request) -> Option<IpAddr> {
        let lookups = r.plan().ext::<Lookups>()?;
        located::client_address(r, &lookups.proxies, lookups.recursive)
    }
}

static VARIABLES: [Builtin; 16] = geoip::geoip_variables::<GeoipFeature>();

impl Feature for GeoipFeature {
    fn table(&self) -> FeatureTable {
        GeoipConf::table("geoip", ContextArea::Http)
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
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}
