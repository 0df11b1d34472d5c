//! Rules of SecLang, compiled and evaluated for a request.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| waf::fuzzing::seclang(data));
