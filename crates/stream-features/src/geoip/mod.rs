//! geoip (nginx: `ngx_stream_geoip_module`): where a client is, by MaxMind's databases of the first kind (`.dat`). What it does
//! stands in `session_engine::geoip`.

use crate::Builtin;
use crate::build::{Feature, StreamBuild};
use crate::session::StreamSession;
use conf_schema::{Area, Problem, Table, directives};
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
    }
}

/// The feature.
pub struct GeoipFeature;

impl Located for GeoipFeature {
    type Of = StreamSession;
    fn databases(s: &StreamSession) -> Option<&Databases> {
        s.plan.ext::<Databases>()
    }
    fn address(s: &StreamSession) -> Option<IpAddr> {
        s.peer.map(|peer| peer.ip())
    }
}

static VARIABLES: [Builtin; 16] = geoip::variables::<GeoipFeature>();

impl Feature for GeoipFeature {
    fn table(&self) -> Table {
        GeoipConf::table("geoip", Area::Stream)
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
