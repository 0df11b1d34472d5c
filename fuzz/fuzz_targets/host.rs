//! Hosts of requests.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_engine::fuzzing::authority(data));
