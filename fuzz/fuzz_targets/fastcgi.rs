//! Responses of FastCGI servers, cut anywhere.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_proxy::fuzzing::fastcgi(data));
