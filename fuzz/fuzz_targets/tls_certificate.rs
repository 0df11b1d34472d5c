//! Certificates.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tls::fuzzing::certificate(data));
