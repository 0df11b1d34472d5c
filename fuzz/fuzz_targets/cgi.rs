//! Responses of uwsgi and SCGI servers, cut anywhere.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_proxy::fuzzing::cgi(data));
