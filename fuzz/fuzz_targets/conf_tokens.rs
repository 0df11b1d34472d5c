//! Configuration texts, token by token.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| conf_syntax::fuzzing::tokens(data));
