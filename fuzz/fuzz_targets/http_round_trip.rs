//! Requests of HTTP/1, generated from the input, over HTTP/2 and back.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_proxy::fuzzing::round_trip(data));
