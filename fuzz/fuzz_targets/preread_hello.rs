//! ClientHellos read by `ssl_preread`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stream_features::fuzzing::preread_hello(data));
