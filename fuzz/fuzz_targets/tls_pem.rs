//! PEM texts: keys, certificates, lists.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tls::fuzzing::pem_text(data));
