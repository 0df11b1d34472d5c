//! Frames of an HTTP/2 server: any octets, in any pieces.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire_h2::fuzzing::client(data));
