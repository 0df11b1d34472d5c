//! geoip (nginx: `ngx_stream_geoip_module`): location by MaxMind's legacy databases (`.dat`); see
//! `geo_variables::geoip`.

use crate::Builtin;
use crate::area::StreamArea;
use crate::build::{Feature, StreamBuild};
use crate::session::StreamSession;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use geo_variables::geoip::{self, CityFile, CountryFile, Databases, File, GeoipArea, OrgFile};
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
    }
}

pub struct GeoipFeature;

impl GeoipArea for GeoipFeature {
    type Area = StreamArea;
    fn databases(s: &StreamSession) -> Option<&Databases> {
        s.plan.ext::<Databases>()
    }
    fn address(s: &StreamSession) -> Option<IpAddr> {
        s.peer.map(|peer| peer.ip())
    }
}

static VARIABLES: [Builtin; 16] = geoip::geoip_variables::<GeoipFeature>();

impl Feature for GeoipFeature {
    fn table(&self) -> FeatureTable {
        GeoipConf::table("geoip", ContextArea::Stream)
    }
    fn variables(&self) -> &'static [Builtin] {
        &VARIABLES
    }
    fn plan_stream(&self, conf: &Arc<dyn Any + Send + Sync>, stream: &mut StreamBuild<'_>) -> Result<(), Problem> {
        if let Some(conf) = conf.downcast_ref::<GeoipConf>() {
            let (country, city, org) = (&conf.geoip_country, &conf.geoip_city, &conf.geoip_org);
            stream.extensions.push(Arc::new(Databases::new(country.as_ref(), city.as_ref(), org.as_ref())));
        }
        Ok(())
    }
}
