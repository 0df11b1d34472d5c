//! Responses of HTTP/1 servers with their bodies, cut anywhere.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_proxy::fuzzing::http1_answer(data));
