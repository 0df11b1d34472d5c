//! Cipher strings.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tls::fuzzing::cipher_string(data));
