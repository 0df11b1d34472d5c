//! Heads of stored responses that were changed behind their checksum.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cache::fuzzing::mutated_entry(data));
