//! Responses of uwsgi and SCGI servers, cut anywhere.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_features::fuzzing::cgi(data));
