//! `traceparent` and `tracestate`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| otlp::fuzzing::trace_context(data));
