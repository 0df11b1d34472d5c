//! First messages of TLS clients.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tls::fuzzing::client_hello(data));
