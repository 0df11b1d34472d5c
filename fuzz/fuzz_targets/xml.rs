//! Documents and document type definitions.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| xslt::fuzzing::xml(data));
