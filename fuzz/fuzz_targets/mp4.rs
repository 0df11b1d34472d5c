//! Films, cut at any time.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_content::fuzzing::mp4(data));
