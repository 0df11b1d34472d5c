//! Sessions of datagrams in any course of events.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stream_features::fuzzing::datagram_session(data));
