//! Paths of requests, to their canonical form.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_engine::fuzzing::path(data));
