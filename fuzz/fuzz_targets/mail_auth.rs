//! What authentication servers of the mail area answer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mail_features::fuzzing::mail_auth(data));
