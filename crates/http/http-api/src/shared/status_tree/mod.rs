//! The state of the server as JSON, as the API of nginx's commercial edition defines it: for the API, and for pages with
//! metrics under the names of its exporter.

pub mod groups;
pub mod process;
pub mod zones;

use upstream_directives::inventory::{AreaInventory, Inventory};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Http,
    Stream,
}

impl Side {
    pub fn of(self, inventory: &Inventory) -> &AreaInventory {
        match self {
            Side::Http => &inventory.http,
            Side::Stream => &inventory.stream,
        }
    }
}

/// ISO 8601, UTC, with milliseconds; from milliseconds since 1970.
pub fn iso_time(ms: u64) -> String {
    let text = observe::clock::iso8601(i64::try_from(ms / 1000).unwrap_or(0), 0);
    let text = String::from_utf8_lossy(&text);
    format!("{}.{:03}Z", text.get(..19).unwrap_or_default(), ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds() {
        assert_eq!(iso_time(1_656_415_544_067), "2022-06-28T11:25:44.067Z");
    }
}
