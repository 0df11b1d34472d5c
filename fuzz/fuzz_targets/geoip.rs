//! Databases of places of the first kind, asked about any address.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_features::fuzzing::geoip(data));
