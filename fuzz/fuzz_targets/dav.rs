//! `If` fields and XML bodies of WebDAV's clients.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_content::fuzzing::dav(data));
