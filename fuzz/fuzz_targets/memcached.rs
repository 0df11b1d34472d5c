//! Responses of memcached, cut anywhere.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_proxy::fuzzing::memcached(data));
