//! MaxMind's legacy format: a binary tree over address bits; leaves are numbers or offsets behind it.
//! A node has two little-endian records of 3 or 4 bytes for bits 0 and 1; records not below the number of nodes are
//! leaves. The file ends with 0xff 0xff 0xff, kind, and number of nodes.

use super::names::{self, Country};
use std::net::IpAddr;

/// First leaf of a country database, which does not state its number of nodes.
const COUNTRIES_BEGIN: u32 = 0xff_ff00;
/// Maximum distance of the kind from the end of the file.
const INFO_BYTES_MAX: usize = 20;
const NAME_BYTES_MAX: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    Country {
        v6: bool,
    },
    /// `areas`: records of the United States have additional data.
    City {
        v6: bool,
        areas: bool,
    },
    Org {
        v6: bool,
    },
    Other,
}

impl DatabaseKind {
    fn of(number: u8) -> DatabaseKind {
        match number {
            1 => DatabaseKind::Country { v6: false },
            12 => DatabaseKind::Country { v6: true },
            2 => DatabaseKind::City { v6: false, areas: true },
            6 => DatabaseKind::City { v6: false, areas: false },
            30 => DatabaseKind::City { v6: true, areas: true },
            31 => DatabaseKind::City { v6: true, areas: false },
            4 | 5 | 9 | 11 => DatabaseKind::Org { v6: false },
            21..=24 => DatabaseKind::Org { v6: true },
            _ => DatabaseKind::Other,
        }
    }
    fn v6(self) -> bool {
        match self {
            DatabaseKind::Country { v6 } | DatabaseKind::City { v6, .. } | DatabaseKind::Org { v6 } => v6,
            DatabaseKind::Other => false,
        }
    }
}

pub struct Database {
    bytes: Vec<u8>,
    pub kind: DatabaseKind,
    pub number: u8,
    /// The file names its kind.
    pub has_kind: bool,
    nodes: u32,
    /// Bytes per record.
    width: usize,
    /// Returns names in UTF-8.
    pub utf8: bool,
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

impl Database {
    /// Returns `None` for an invalid database.
    pub fn new(bytes: Vec<u8>, utf8: bool) -> Option<Database> {
        let start = bytes.len().saturating_sub(INFO_BYTES_MAX + 3);
        let tail = bytes.get(start..)?;
        let at = tail.windows(3).rposition(|three| three == [0xff; 3]);
        // Files without a kind are country databases.
        let has_kind = at.is_some();
        let (kind, nodes) = match at.and_then(|at| tail.get(at + 3..)).and_then(<[u8]>::split_first) {
            Some((kind, rest)) => (if *kind >= 106 { kind - 105 } else { *kind }, rest.get(..3).map(number)),
            None => (1, None),
        };
        let (number, kind) = (kind, DatabaseKind::of(kind));
        let nodes = match kind {
            DatabaseKind::Country { .. } => COUNTRIES_BEGIN,
            DatabaseKind::City { .. } | DatabaseKind::Org { .. } => nodes?,
            DatabaseKind::Other => 0,
        };
        // Name databases have records of four bytes, except autonomous systems.
        let width = if matches!(number, 4 | 5 | 11 | 22..=24) { 4 } else { 3 };
        Some(Database { bytes, kind, number, has_kind, nodes, width, utf8 })
    }

    fn leaf(&self, address: IpAddr) -> Option<u32> {
        let (bits, count) = match (address, self.kind.v6()) {
            (IpAddr::V4(v4), false) => (u128::from(v4.to_bits()), 32),
            (IpAddr::V4(v4), true) => (v4.to_ipv6_mapped().to_bits(), 128),
            (IpAddr::V6(v6), true) => (v6.to_bits(), 128),
            // IPv6 without an IPv4 form counts as the highest address, as in nginx.
            (IpAddr::V6(v6), false) => (u128::from(v6.to_ipv4_mapped().map_or(u32::MAX, |v4| v4.to_bits())), 32),
        };
        if self.kind == DatabaseKind::Other {
            return None;
        }
        let mut node = 0u32;
        for depth in (0..count).rev() {
            let record = (2 * node as usize + (bits >> depth & 1) as usize) * self.width;
            node = number(self.bytes.get(record..record + self.width)?);
            if node >= self.nodes {
                return Some(node);
            }
        }
        None
    }

    /// The data is behind the tree.
    fn behind(&self, address: IpAddr) -> Option<&[u8]> {
        let leaf = self.leaf(address).filter(|leaf| *leaf != self.nodes)?;
        let at = leaf as usize + (2 * self.width - 1) * self.nodes as usize;
        self.bytes.get(at..).filter(|rest| !rest.is_empty())
    }

    pub fn country(&self, address: IpAddr) -> Option<Country> {
        let number = self.leaf(address)?.checked_sub(COUNTRIES_BEGIN).filter(|number| *number > 0)?;
        names::find_country(number as usize)
    }

    pub fn org(&self, address: IpAddr) -> Option<Vec<u8>> {
        let rest = self.behind(address)?;
        let (name, _) = string(rest.get(..NAME_BYTES_MAX).unwrap_or(rest));
        Some(self.text(name))
    }

    pub fn city(&self, address: IpAddr) -> Option<Record<'_>> {
        let (first, rest) = self.behind(address)?.split_first()?;
        let country = names::find_country(usize::from(*first))?;
        let (region, rest) = string(rest);
        let (city, rest) = string(rest);
        let (postal, rest) = string(rest);
        let (latitude, rest) = rest.split_at_checked(3)?;
        let (longitude, rest) = rest.split_at_checked(3)?;
        let areas = matches!(self.kind, DatabaseKind::City { areas: true, .. }) && country.code == "US";
        let areas = if areas { rest.get(..3).map(number).unwrap_or(0) } else { 0 };
        Some(Record { database: self, country, region, city, postal, latitude, longitude, areas })
    }

    /// Returns ISO 8859-1 as in the file, or UTF-8.
    fn text(&self, latin: &[u8]) -> Vec<u8> {
        match self.utf8 {
            false => latin.to_vec(),
            true => latin.iter().map(|c| char::from(*c)).collect::<String>().into_bytes(),
        }
    }
}

fn string(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|c| *c == 0).unwrap_or(bytes.len());
    (bytes.get(..end).unwrap_or_default(), bytes.get(end + 1..).unwrap_or_default())
}

pub struct Record<'a> {
    database: &'a Database,
    country: Country,
    region: &'a [u8],
    city: &'a [u8],
    postal: &'a [u8],
    latitude: &'a [u8],
    longitude: &'a [u8],
    areas: u32,
}

/// Each method appends a value; `false`: no value.
impl Record<'_> {
    pub fn continent(&self, out: &mut Vec<u8>) -> bool {
        put(self.country.continent.as_bytes(), out)
    }
    pub fn country_code(&self, out: &mut Vec<u8>) -> bool {
        put(self.country.code.as_bytes(), out)
    }
    pub fn country_code3(&self, out: &mut Vec<u8>) -> bool {
        put(self.country.code3.as_bytes(), out)
    }
    pub fn country_name(&self, out: &mut Vec<u8>) -> bool {
        put(self.country.name(self.database.utf8).as_bytes(), out)
    }
    pub fn region(&self, out: &mut Vec<u8>) -> bool {
        put(self.region, out)
    }
    pub fn region_name(&self, out: &mut Vec<u8>) -> bool {
        let region = std::str::from_utf8(self.region).ok();
        put(region.and_then(|region| names::region_name(self.country.code, region)).unwrap_or_default().as_bytes(), out)
    }
    pub fn city(&self, out: &mut Vec<u8>) -> bool {
        put(&self.database.text(self.city), out)
    }
    pub fn postal_code(&self, out: &mut Vec<u8>) -> bool {
        put(self.postal, out)
    }
    pub fn latitude(&self, out: &mut Vec<u8>) -> bool {
        degrees(self.latitude, out)
    }
    pub fn longitude(&self, out: &mut Vec<u8>) -> bool {
        degrees(self.longitude, out)
    }
    pub fn dma_code(&self, out: &mut Vec<u8>) -> bool {
        put((self.areas / 1000).to_string().as_bytes(), out)
    }
    pub fn area_code(&self, out: &mut Vec<u8>) -> bool {
        put((self.areas % 1000).to_string().as_bytes(), out)
    }
}

fn put(value: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(value);
    !value.is_empty()
}

/// Converts ten-thousandths of a degree above -180.
fn degrees(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    // nginx uses single precision.
    let degrees = (f64::from(number(bytes)) / 10_000.0 - 180.0) as f32;
    put(format!("{:.4}", f64::from(degrees)).as_bytes(), out)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Builds a tree with data for one address.
    fn tree(address: u32, width: usize, behind: &[u8], kind: u8) -> Vec<u8> {
        let nodes = 32u32;
        let mut out = Vec::new();
        for depth in 0..nodes {
            let next = if depth == 31 { nodes + 1 } else { depth + 1 };
            let pair = if address >> (31 - depth) & 1 == 0 { [next, nodes] } else { [nodes, next] };
            pair.iter().for_each(|record| out.extend_from_slice(&record.to_le_bytes()[..width]));
        }
        out.push(42);
        out.extend_from_slice(behind);
        out.extend_from_slice(&[0xff, 0xff, 0xff, kind]);
        out.extend_from_slice(&nodes.to_le_bytes()[..3]);
        out
    }

    /// Builds a database of cities with a place in California for 10.0.0.1.
    pub fn city_database() -> Vec<u8> {
        let mut place = vec![225];
        place.extend_from_slice(b"CA\0S\xe3o\0\x39\0");
        place.extend_from_slice(&2_175_543u32.to_le_bytes()[..3]);
        place.extend_from_slice(&576_202u32.to_le_bytes()[..3]);
        place.extend_from_slice(&807_415u32.to_le_bytes()[..3]);
        tree(0x0a00_0001, 3, &place, 2)
    }

    /// Builds a database of countries with one for 10.0.0.1.
    pub fn country_database(country: u32) -> Vec<u8> {
        let mut out = Vec::new();
        for depth in 0..32u32 {
            let next = if depth == 31 { COUNTRIES_BEGIN + country } else { depth + 1 };
            let pair =
                if 0x0a00_0001 >> (31 - depth) & 1 == 0 { [next, COUNTRIES_BEGIN] } else { [COUNTRIES_BEGIN, next] };
            pair.iter().for_each(|record| out.extend_from_slice(&record.to_le_bytes()[..3]));
        }
        out.extend_from_slice(&[0xff, 0xff, 0xff, 1]);
        out
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn cities_are_found() {
        let bytes = city_database();
        for (utf8, city) in [(false, b"S\xe3o".as_slice()), (true, "S\u{e3}o".as_bytes())] {
            let database = Database::new(bytes.clone(), utf8).expect("a database");
            assert_eq!(database.kind, DatabaseKind::City { v6: false, areas: true });
            let record = database.city(ip("10.0.0.1")).expect("a place");
            let mut out = Vec::new();
            record.city(&mut out);
            assert_eq!(out, city);
            out.clear();
            for write in [Record::region_name, Record::latitude, Record::longitude, Record::dma_code, Record::area_code]
            {
                write(&record, &mut out);
                out.push(b' ');
            }
            assert_eq!(out.escape_ascii().to_string(), "California 37.5543 -122.3798 807 415 ");
            assert!(database.city(ip("10.0.0.2")).is_none() && database.city(ip("2001:db8::1")).is_none());
            assert!(database.city(ip("::ffff:10.0.0.1")).is_some());
        }
        let cut = Database::new([&bytes[..200], &[0xff, 0xff, 0xff, 2, 32, 0, 0]].concat(), false).expect("a database");
        assert!(cut.city(ip("10.0.0.1")).is_none());
    }

    #[test]
    fn organisations_are_found() {
        let database = Database::new(tree(0x0a00_0001, 4, b"Tide\0", 5), false).expect("a database");
        assert_eq!(database.org(ip("10.0.0.1")).as_deref(), Some(b"Tide".as_slice()));
        assert_eq!(database.org(ip("10.0.0.3")), None);
    }

    #[test]
    fn other_files_are_refused() {
        assert!(Database::new(vec![0xff; 3], false).is_some_and(|d| d.kind == DatabaseKind::Country { v6: false }));
        assert!(Database::new(vec![0xff, 0xff, 0xff, 5], false).is_none(), "nodes are not counted");
        let other = Database::new(vec![0xff, 0xff, 0xff, 40, 1, 1, 1], false).expect("a database");
        assert_eq!((other.kind, other.country(ip("10.0.0.1"))), (DatabaseKind::Other, None));
    }
}
