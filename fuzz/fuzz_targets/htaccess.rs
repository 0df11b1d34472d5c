//! .htaccess files, and their rules run over a path.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| htaccess::fuzzing::htaccess(data));
