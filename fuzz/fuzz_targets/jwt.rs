//! JSON Web Tokens and key sets.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| jose::fuzzing::jwt(data));
