//! One field section of any octets.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire_h3::fuzzing::section(data));
