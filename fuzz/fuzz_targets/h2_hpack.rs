//! HPACK header blocks, and the encoder's output for their fields.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire_h2::fuzzing::hpack(data));
