//! Places of addresses, by a database in either format, under the names of ModSecurity's collection `GEO`.

use crate::geoip::dat::{Database, DatabaseKind, Record};
use crate::geoip::names::{Country, find_country};
use crate::geoip::read_database;
use crate::geoip2::mmdb::Mmdb;
use std::net::IpAddr;
use std::path::Path;

/// Numbers of countries in the legacy format.
const COUNTRIES_MAX: usize = 256;

/// A database of places in memory.
pub struct PlaceDatabase(PlaceFormat);

enum PlaceFormat {
    /// MaxMind DB (`.mmdb`).
    Tree(Mmdb),
    /// MaxMind's legacy format (`.dat`), of countries or cities.
    Legacy(Database),
}

/// Fields of `GEO` and their paths in a MaxMind DB.
const TREE_FIELDS: &[(&str, &[&str])] = &[
    ("COUNTRY_CODE", &["country", "iso_code"]),
    ("COUNTRY_NAME", &["country", "names", "en"]),
    ("COUNTRY_CONTINENT", &["continent", "code"]),
    ("REGION", &["subdivisions", "0", "iso_code"]),
    ("CITY", &["city", "names", "en"]),
    ("POSTAL_CODE", &["postal", "code"]),
    ("LATITUDE", &["location", "latitude"]),
    ("LONGITUDE", &["location", "longitude"]),
    ("DMA_CODE", &["location", "metro_code"]),
];

type WriteField = for<'a, 'b, 'c> fn(&'a Record<'b>, &'c mut Vec<u8>) -> bool;

/// Fields of `GEO` in a record of cities.
const CITY_FIELDS: &[(&str, WriteField)] = &[
    ("COUNTRY_CODE", |record, out| record.country_code(out)),
    ("COUNTRY_CODE3", |record, out| record.country_code3(out)),
    ("COUNTRY_NAME", |record, out| record.country_name(out)),
    ("COUNTRY_CONTINENT", |record, out| record.continent(out)),
    ("REGION", |record, out| record.region(out)),
    ("CITY", |record, out| record.city(out)),
    ("POSTAL_CODE", |record, out| record.postal_code(out)),
    ("LATITUDE", |record, out| record.latitude(out)),
    ("LONGITUDE", |record, out| record.longitude(out)),
    ("DMA_CODE", |record, out| record.dma_code(out)),
    ("AREA_CODE", |record, out| record.area_code(out)),
];

impl PlaceDatabase {
    /// Reads a database of countries or cities into memory. Blocks for the disk. Fails with the reason.
    pub fn open(path: &Path) -> Result<PlaceDatabase, String> {
        let bytes = read_database(path).map_err(|error| format!("it cannot be read: {error}"))?;
        PlaceDatabase::from_bytes(bytes).ok_or_else(|| "it is no database of countries or cities".to_string())
    }

    fn from_bytes(bytes: Vec<u8>) -> Option<PlaceDatabase> {
        if Mmdb::has_mark(&bytes) {
            return Mmdb::new(bytes).map(|tree| PlaceDatabase(PlaceFormat::Tree(tree)));
        }
        // Any file ends somehow; a country database begins with a tree that has the countries as leaves.
        let database = Database::new(bytes, true)?;
        let is_kind = matches!(database.kind, DatabaseKind::Country { .. } | DatabaseKind::City { .. });
        (is_kind && database.has_kind).then_some(PlaceDatabase(PlaceFormat::Legacy(database)))
    }

    /// The place of an address: fields of `GEO`, those with a value. `None` if the database does not know it.
    pub fn place_of(&self, address: IpAddr) -> Option<Vec<(String, String)>> {
        let mut place = Vec::new();
        let mut add = |name: &str, value: &[u8]| {
            place.push((name.to_string(), String::from_utf8_lossy(value).into_owned()));
        };
        match &self.0 {
            PlaceFormat::Tree(tree) => {
                let mut value = Vec::new();
                for (name, path) in TREE_FIELDS {
                    value.clear();
                    if tree.value(address, path, &mut value) {
                        add(name, &value);
                        if *name == "COUNTRY_CODE"
                            && let Some(country) = country_of(&value)
                        {
                            add("COUNTRY_CODE3", country.code3.as_bytes());
                        }
                    }
                }
            }
            PlaceFormat::Legacy(database) if matches!(database.kind, DatabaseKind::City { .. }) => {
                let record = database.city(address)?;
                for (name, write) in CITY_FIELDS {
                    let mut value = Vec::new();
                    if write(&record, &mut value) {
                        add(name, &value);
                    }
                }
            }
            PlaceFormat::Legacy(database) => {
                let country = database.country(address)?;
                add("COUNTRY_CODE", country.code.as_bytes());
                add("COUNTRY_CODE3", country.code3.as_bytes());
                add("COUNTRY_NAME", country.name(true).as_bytes());
                add("COUNTRY_CONTINENT", country.continent.as_bytes());
            }
        }
        (!place.is_empty()).then_some(place)
    }
}

/// Finds a country by its code of two letters.
fn country_of(code: &[u8]) -> Option<Country> {
    (1..COUNTRIES_MAX).filter_map(find_country).find(|country| country.code.as_bytes() == code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geoip::dat::tests::{city_database, country_database};
    use crate::geoip2::mmdb::tests::place_database;

    fn place(bytes: Vec<u8>, address: &str) -> Option<Vec<(String, String)>> {
        let database = PlaceDatabase::from_bytes(bytes).expect("a database");
        database.place_of(address.parse().expect("an address"))
    }

    fn value(place: &[(String, String)], name: &str) -> Option<String> {
        place.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn places_have_the_names_of_modsecurity_in_each_format() {
        let tree = place(place_database("CA", "Canada"), "10.0.0.1").expect("a place");
        assert_eq!(value(&tree, "COUNTRY_CODE").as_deref(), Some("CA"));
        assert_eq!(value(&tree, "COUNTRY_CODE3").as_deref(), Some("CAN"));
        assert_eq!(value(&tree, "COUNTRY_NAME").as_deref(), Some("Canada"));
        assert_eq!(value(&tree, "CITY"), None);
        let city = place(city_database(), "10.0.0.1").expect("a place");
        assert_eq!(value(&city, "COUNTRY_CODE").as_deref(), Some("US"));
        assert_eq!(value(&city, "CITY").as_deref(), Some("S\u{e3}o"));
        assert_eq!(value(&city, "REGION").as_deref(), Some("CA"));
        let country = place(country_database(225), "10.0.0.1").expect("a place");
        assert_eq!(value(&country, "COUNTRY_CODE3").as_deref(), Some("USA"));
        assert_eq!(value(&country, "COUNTRY_CONTINENT").as_deref(), Some("NA"));
    }

    #[test]
    fn unknown_addresses_have_no_place_and_other_files_are_refused() {
        assert_eq!(place(place_database("CA", "Canada"), "10.0.0.2"), None);
        assert_eq!(place(city_database(), "10.0.0.2"), None);
        for bytes in [Vec::new(), b"country,code\n".to_vec(), vec![0; 4096]] {
            assert!(PlaceDatabase::from_bytes(bytes).is_none());
        }
    }
}
