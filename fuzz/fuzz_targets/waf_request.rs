//! A request with its body in each format, through rules with all transformations.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| waf::fuzzing::waf_request(data));
