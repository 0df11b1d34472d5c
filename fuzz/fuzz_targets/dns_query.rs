//! Queries to a zone with records of all kinds.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dns_zone::fuzzing::dns_query(data));
