//! A stylesheet and a document, within small limits.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| xslt::fuzzing::xslt(data));
