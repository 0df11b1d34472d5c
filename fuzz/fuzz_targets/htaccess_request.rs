//! A folder's `.htaccess` file and a request: no answer holds a file outside the root, an `internal` one, or the file itself.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    server::fuzzing::htaccess_request(data);
});
