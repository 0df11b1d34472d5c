//! Body of the fuzz target of location databases.

use super::dat::Database;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub fn geoip(data: &[u8]) {
    let (address, file) = data.split_at(data.len().min(16));
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(address).for_each(|(to, from)| *to = *from);
    let v4 = Ipv4Addr::from_bits(u128::from_be_bytes(bytes) as u32);
    let Some(database) = Database::new(file.to_vec(), true) else { return };
    for address in [IpAddr::V6(Ipv6Addr::from(bytes)), IpAddr::V4(v4)] {
        if let Some(country) = database.country(address) {
            assert_eq!(country.code.len(), 2);
        }
        assert!(database.org(address).is_none_or(|name| name.len() <= 600));
        if let Some(record) = database.city(address) {
            let mut out = Vec::new();
            record.city(&mut out);
            record.region_name(&mut out);
            record.latitude(&mut out);
            assert!(std::str::from_utf8(&out).is_ok());
        }
    }
}
