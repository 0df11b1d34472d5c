//! Heads of stored responses: read, looked into, written again.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cache::fuzzing::entry(data));
