//! HTTP/1.x request heads: fed whole and in pieces.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire_h1::fuzzing::request(data));
