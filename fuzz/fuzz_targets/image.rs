//! Pictures, made smaller, turned and written again.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_content::fuzzing::image(data));
