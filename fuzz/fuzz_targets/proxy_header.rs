//! PROXY protocol headers: read, looked into, written again.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire_proxy::fuzzing::header(data));
