//! Header blocks of HPACK, and our own encoding of what they mean.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire_h2::fuzzing::hpack(data));
