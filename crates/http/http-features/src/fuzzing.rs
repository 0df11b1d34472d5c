//! Bodies of the features' fuzz targets: arbitrary bytes in, a panic when an invariant fails. Run under libFuzzer from
//! `fuzz/`, and with a seeded generator in `cargo test`.

pub use geo_variables::geoip::fuzzing::geoip;
pub use geo_variables::geoip2::fuzzing::mmdb;
