//! Chunked bodies: fed whole and in pieces.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire_h1::fuzzing::chunked(data));
