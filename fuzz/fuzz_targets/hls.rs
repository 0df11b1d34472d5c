//! Films as playlists and fragments of HTTP Live Streaming.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_content::fuzzing::hls(data));
