//! DNS queries to the responder of `acme_dns_port`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_acme::fuzzing::acme_dns(data));
