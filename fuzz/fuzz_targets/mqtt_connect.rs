//! CONNECT packets of MQTT, read and written.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stream_features::fuzzing::mqtt_connect(data));
