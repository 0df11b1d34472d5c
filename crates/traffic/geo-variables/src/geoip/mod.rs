//! geoip (nginx: `ngx_http_geoip_module`, `ngx_stream_geoip_module`): location by MaxMind's legacy databases. Areas
//! implement [`GeoipArea`] and include [`geoip_variables`].

pub(crate) mod dat;
pub mod fuzzing;
pub(crate) mod names;

use conf_schema::{Cx, Directive, Problem, ValueKind};
use dat::{Database, DatabaseKind, Record};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use variables::variable::Builtin;
use variables::{AreaTypes, SessionOf};

pub trait WantedValue: Clone + 'static {
    const NAME: &'static str;
    fn takes(kind: DatabaseKind) -> bool;
}

#[derive(Clone)]
pub struct CountryFile;
#[derive(Clone)]
pub struct CityFile;
#[derive(Clone)]
pub struct OrgFile;

impl WantedValue for CountryFile {
    const NAME: &'static str = "GeoIP";
    fn takes(kind: DatabaseKind) -> bool {
        matches!(kind, DatabaseKind::Country { .. })
    }
}

impl WantedValue for CityFile {
    const NAME: &'static str = "GeoIP City";
    fn takes(kind: DatabaseKind) -> bool {
        matches!(kind, DatabaseKind::City { .. })
    }
}

impl WantedValue for OrgFile {
    const NAME: &'static str = "GeoIP Org";
    fn takes(kind: DatabaseKind) -> bool {
        matches!(kind, DatabaseKind::Org { .. })
    }
}

#[derive(Clone)]
pub struct File<W> {
    database: Arc<Database>,
    wanted: std::marker::PhantomData<W>,
}

impl<W: WantedValue> ValueKind for File<W> {
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
        let bytes =
            read_database(&cx.full_name(&text)).map_err(|e| failed().hint(format!("it cannot be read: {e}")))?;
        let database = Database::new(bytes, utf8).ok_or_else(|| failed().hint("not a GeoIP database"))?;
        if !W::takes(database.kind) {
            let (name, number) = (W::NAME, database.number);
            return Err(Problem::says(format!("invalid {name} database \"{text}\" type:{number}")).at(0));
        }
        Ok(File { database: Arc::new(database), wanted: std::marker::PhantomData })
    }
}

#[derive(Clone, Default)]
pub struct Databases {
    country: Option<Arc<Database>>,
    city: Option<Arc<Database>>,
    org: Option<Arc<Database>>,
}

impl Databases {
    pub fn new(
        country: Option<&File<CountryFile>>,
        city: Option<&File<CityFile>>,
        org: Option<&File<OrgFile>>,
    ) -> Databases {
        Databases {
            country: country.map(|file| file.database.clone()),
            city: city.map(|file| file.database.clone()),
            org: org.map(|file| file.database.clone()),
        }
    }
}

pub trait GeoipArea: 'static {
    type Area: AreaTypes;
    fn databases(s: &SessionOf<Self::Area>) -> Option<&Databases>;
    /// Returns `None` for a client of a UNIX-domain socket.
    fn address(s: &SessionOf<Self::Area>) -> Option<IpAddr>;
}

pub const fn geoip_variables<L: GeoipArea>() -> [Builtin<L::Area>; 16] {
    macro_rules! city {
        ($name:literal, $get:ident, $doc:literal) => {
            Builtin::one($name, |s, out| of_city::<L>(s, out, |record, out| record.$get(out)), $doc)
        };
    }
    [
        Builtin::one("geoip_country_code", country_code::<L>, "The client's country, in two letters."),
        Builtin::one("geoip_country_code3", country_code3::<L>, "The client's country, in three letters."),
        Builtin::one("geoip_country_name", country_name::<L>, "The name of the client's country."),
        Builtin::one("geoip_org", org::<L>, "The client's organisation, by the database of `geoip_org`."),
        city!("geoip_city_continent_code", continent, "The client's continent, by the database of cities."),
        city!(
            "geoip_city_country_code",
            country_code,
            "The client's country in two letters, by the database of cities."
        ),
        city!(
            "geoip_city_country_code3",
            country_code3,
            "The client's country in three letters, by the database of cities."
        ),
        city!("geoip_city_country_name", country_name, "The name of the client's country, by the database of cities."),
        city!("geoip_region", region, "The client's region, as a code of two characters."),
        city!("geoip_region_name", region_name, "The name of the client's region."),
        city!("geoip_city", city, "The client's city."),
        city!("geoip_postal_code", postal_code, "The client's postal code."),
        city!("geoip_latitude", latitude, "The client's latitude, in degrees."),
        city!("geoip_longitude", longitude, "The client's longitude, in degrees."),
        city!("geoip_dma_code", dma_code, "The metropolitan area of a client in the United States."),
        city!("geoip_area_code", area_code, "The telephone area of a client in the United States."),
    ]
}

fn look_up<L: GeoipArea, T>(
    s: &SessionOf<L::Area>,
    which: impl Fn(&Databases) -> Option<&Arc<Database>>,
    ask: impl FnOnce(&Database, IpAddr) -> Option<T>,
) -> Option<T> {
    let database = which(L::databases(s)?)?;
    // A missing address counts as the highest one, as in nginx.
    ask(database, L::address(s).unwrap_or(IpAddr::V4(Ipv4Addr::BROADCAST)))
}

fn of_country<L: GeoipArea>(
    s: &SessionOf<L::Area>,
    out: &mut Vec<u8>,
    write: impl FnOnce(&names::Country, bool, &mut Vec<u8>),
) -> bool {
    let found = look_up::<L, _>(s, |d| d.country.as_ref(), |d, address| Some((d.country(address)?, d.utf8)));
    found.map(|(country, utf8)| write(&country, utf8, out)).is_some()
}

fn country_code<L: GeoipArea>(s: &mut SessionOf<L::Area>, out: &mut Vec<u8>) -> bool {
    of_country::<L>(s, out, |country, _, out| out.extend_from_slice(country.code.as_bytes()))
}

fn country_code3<L: GeoipArea>(s: &mut SessionOf<L::Area>, out: &mut Vec<u8>) -> bool {
    of_country::<L>(s, out, |country, _, out| out.extend_from_slice(country.code3.as_bytes()))
}

fn country_name<L: GeoipArea>(s: &mut SessionOf<L::Area>, out: &mut Vec<u8>) -> bool {
    of_country::<L>(s, out, |country, utf8, out| out.extend_from_slice(country.name(utf8).as_bytes()))
}

fn org<L: GeoipArea>(s: &mut SessionOf<L::Area>, out: &mut Vec<u8>) -> bool {
    let found = look_up::<L, _>(s, |d| d.org.as_ref(), |d, address| d.org(address));
    found.map(|org| out.extend_from_slice(&org)).is_some()
}

fn of_city<L: GeoipArea>(
    s: &SessionOf<L::Area>,
    out: &mut Vec<u8>,
    write: impl FnOnce(&Record<'_>, &mut Vec<u8>) -> bool,
) -> bool {
    look_up::<L, _>(s, |d| d.city.as_ref(), |d, address| Some(write(&d.city(address)?, out))).unwrap_or(false)
}

/// Reads a database of any size; a pipe or a device is an error, for it would hold the thread.
pub(crate) fn read_database(path: &std::path::Path) -> std::io::Result<Vec<u8>> {
    let mut file = conf_syntax::open_regular(path)?;
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(bytes)
}
