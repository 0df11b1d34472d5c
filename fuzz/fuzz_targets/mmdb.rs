//! Databases of places of the second kind, asked about addresses.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_features::fuzzing::mmdb(data));
