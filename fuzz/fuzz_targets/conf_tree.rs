//! Configuration texts as trees: printed and read again.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| conf_syntax::fuzzing::tree(data));
