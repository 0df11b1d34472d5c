//! Messages of DNS: read, and names asked for again.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| resolver::fuzzing::dns(data));
