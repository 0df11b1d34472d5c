//! Responses of memcached, cut anywhere.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_features::fuzzing::memcached(data));
