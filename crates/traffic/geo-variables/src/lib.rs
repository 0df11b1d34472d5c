//! Variables that a client's address determines, in http and stream: `geo` blocks, and databases in the formats of `geoip` and `geoip2`.
//! `places` reads either format for rules.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod geo;
pub mod geoip;
pub mod geoip2;
pub mod places;
