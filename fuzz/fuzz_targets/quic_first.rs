//! First flights of QUIC clients, before they have a connection.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tls::fuzzing::quic_first(data));
