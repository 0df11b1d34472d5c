//! The bodies of the fuzz targets of the features: any bytes in, a panic when a belief does not hold. `fuzz/` runs them under
//! libFuzzer, and `tests/smoke.rs` with a seeded generator in every `cargo test`.

pub use crate::dav::fuzzing::dav;
pub use crate::geoip::fuzzing::geoip;
pub use crate::geoip2::fuzzing::mmdb;
pub use crate::image_filter::fuzzing::image;
pub use crate::mp4::fuzzing::mp4;
