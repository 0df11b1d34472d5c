//! geoip (nginx: `ngx_http_geoip_module`): where a client is, by MaxMind's databases of the first kind (`.dat`).

mod dat;
pub mod fuzzing;
mod names;

use crate::shared::located::{self, Proxies};
use conf_schema::value::Flag;
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use dat::{Database, Kind, Record};
use http_engine::forwarded::Trusted;
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, HttpBuild, Request};
use std::any::Any;
use std::net::{IpAddr, Ipv4Addr};
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

/// What a directive's file must be.
pub trait Wanted: Clone + 'static {
    /// As nginx calls it in its complaint.
    const NAME: &'static str;
    fn takes(kind: Kind) -> bool;
}

/// `geoip_country`
#[derive(Clone)]
pub struct CountryFile;
/// `geoip_city`
#[derive(Clone)]
pub struct CityFile;
/// `geoip_org`
#[derive(Clone)]
pub struct OrgFile;

impl Wanted for CountryFile {
    const NAME: &'static str = "GeoIP";
    fn takes(kind: Kind) -> bool {
        matches!(kind, Kind::Country { .. })
    }
}

impl Wanted for CityFile {
    const NAME: &'static str = "GeoIP City";
    fn takes(kind: Kind) -> bool {
        matches!(kind, Kind::City { .. })
    }
}

impl Wanted for OrgFile {
    const NAME: &'static str = "GeoIP Org";
    fn takes(kind: Kind) -> bool {
        matches!(kind, Kind::Org { .. })
    }
}

/// A database that was read.
#[derive(Clone)]
pub struct File<W> {
    database: Arc<Database>,
    wanted: std::marker::PhantomData<W>,
}

impl<W: Wanted> Value for File<W> {
    const SYNTAX: &'static str = "file [utf8]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some(word) = d.args.first() else { return Err(Problem::invalid()) };
        let text = word.text();
        let utf8 = match d.args.get(1).map(|w| w.text()) {
            None => false,
            Some(word) if word == "utf8" => true,
            Some(other) => return Err(Problem::says(format!("invalid parameter \"{other}\"")).at(1)),
        };
        let failed = || Problem::says(format!("GeoIP_open(\"{text}\") failed")).at(0);
        let bytes = std::fs::read(cx.full_name(&text)).map_err(|e| failed().hint(format!("it cannot be read: {e}")))?;
        let database = Database::new(bytes, utf8).ok_or_else(|| failed().hint("it is no GeoIP database"))?;
        if !W::takes(database.kind) {
            let (name, number) = (W::NAME, database.number);
            return Err(Problem::says(format!("invalid {name} database \"{text}\" type:{number}")).at(0));
        }
        Ok(File { database: Arc::new(database), wanted: std::marker::PhantomData })
    }
}

macro_rules! city {
    ($($name:literal $get:ident $doc:literal)*) => {
        &[
            Builtin::one("geoip_country_code", country_code, "The client's country, in two letters."),
            Builtin::one("geoip_country_code3", country_code3, "The client's country, in three letters."),
            Builtin::one("geoip_country_name", country_name, "The name of the client's country."),
            Builtin::one("geoip_org", org, "The client's organisation, by the database of `geoip_org`."),
            $(Builtin::one($name, |r, out| of_city(r, out, |record, out| record.$get(out)), $doc),)*
        ]
    };
}

static VARIABLES: &[Builtin] = city! {
    "geoip_city_continent_code" continent "The client's continent, by the database of cities."
    "geoip_city_country_code" country_code "The client's country in two letters, by the database of cities."
    "geoip_city_country_code3" country_code3 "The client's country in three letters, by the database of cities."
    "geoip_city_country_name" country_name "The name of the client's country, by the database of cities."
    "geoip_region" region "The client's region, as a code of two characters."
    "geoip_region_name" region_name "The name of the client's region."
    "geoip_city" city "The client's city."
    "geoip_postal_code" postal_code "The client's postal code."
    "geoip_latitude" latitude "Where the client is, in degrees north."
    "geoip_longitude" longitude "Where the client is, in degrees east."
    "geoip_dma_code" dma_code "The metropolitan area of a client in the United States."
    "geoip_area_code" area_code "The telephone area of a client in the United States."
};

/// The databases of a configuration.
struct Databases {
    country: Option<Arc<Database>>,
    city: Option<Arc<Database>>,
    org: Option<Arc<Database>>,
    proxies: Vec<Trusted>,
    recursive: bool,
}

/// The feature.
pub struct GeoipFeature;

impl Feature for GeoipFeature {
    fn table(&self) -> Table {
        GeoipConf::table("geoip", Area::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn plan_http(&self, conf: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        if let Some(conf) = conf.downcast_ref::<GeoipConf>() {
            http.extensions.push(Arc::new(Databases {
                country: conf.geoip_country.as_ref().map(|file| file.database.clone()),
                city: conf.geoip_city.as_ref().map(|file| file.database.clone()),
                org: conf.geoip_org.as_ref().map(|file| file.database.clone()),
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

/// Looks the client up in one of the databases.
fn look_up<T>(
    r: &Request,
    which: impl Fn(&Databases) -> Option<&Arc<Database>>,
    ask: impl FnOnce(&Database, IpAddr) -> Option<T>,
) -> Option<T> {
    let databases = r.plan().ext::<Databases>()?;
    let database = which(databases)?;
    let address = located::client(r, &databases.proxies, databases.recursive);
    // Who has no address is looked up as nginx does: as the highest one.
    ask(database, address.unwrap_or(IpAddr::V4(Ipv4Addr::BROADCAST)))
}

fn of_country(r: &Request, out: &mut Vec<u8>, write: impl FnOnce(&names::Country, bool, &mut Vec<u8>)) -> bool {
    let found = look_up(r, |d| d.country.as_ref(), |d, address| Some((d.country(address)?, d.utf8)));
    found.map(|(country, utf8)| write(&country, utf8, out)).is_some()
}

fn country_code(r: &mut Request, out: &mut Vec<u8>) -> bool {
    of_country(r, out, |country, _, out| out.extend_from_slice(country.code.as_bytes()))
}

fn country_code3(r: &mut Request, out: &mut Vec<u8>) -> bool {
    of_country(r, out, |country, _, out| out.extend_from_slice(country.code3.as_bytes()))
}

fn country_name(r: &mut Request, out: &mut Vec<u8>) -> bool {
    of_country(r, out, |country, utf8, out| out.extend_from_slice(country.name(utf8).as_bytes()))
}

fn org(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let found = look_up(r, |d| d.org.as_ref(), |d, address| d.org(address));
    found.map(|org| out.extend_from_slice(&org)).is_some()
}

fn of_city(r: &mut Request, out: &mut Vec<u8>, write: impl FnOnce(&Record<'_>, &mut Vec<u8>) -> bool) -> bool {
    look_up(r, |d| d.city.as_ref(), |d, address| Some(write(&d.city(address)?, out))).unwrap_or(false)
}
