//! Request and control streams of HTTP/3: any octets, in any pieces.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire_h3::fuzzing::frames(data));
