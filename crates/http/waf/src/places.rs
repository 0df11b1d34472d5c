//! Places of addresses, which the caller looks up.

use std::net::IpAddr;

/// Places of addresses, for `@geoLookup`.
pub trait GeoDatabase: Send + Sync {
    /// The place of an address: names as `COUNTRY_CODE` or `CITY`, and values. `None` if it is unknown.
    fn place_of(&self, address: IpAddr) -> Option<Vec<(String, String)>>;
}
