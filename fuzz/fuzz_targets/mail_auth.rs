//! Responses of the mail area's authentication servers.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mail_features::fuzzing::mail_auth(data));
