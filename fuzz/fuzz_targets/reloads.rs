//! Connections of a thread with reloads, QUIT and misbehaving clients, in simulated time.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    server::fuzzing::run_reloads(data);
});
