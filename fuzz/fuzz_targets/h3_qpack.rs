//! QPACK: encoder streams and field sections of any octets.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire_h3::fuzzing::qpack(data));
