//! Commands of IMAP, POP3 and SMTP clients, cut anywhere.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mail_features::fuzzing::mail_dialogue(data));
