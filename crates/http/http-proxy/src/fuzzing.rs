//! Bodies of the features' fuzz targets: arbitrary bytes in, a panic when an invariant fails. Run under libFuzzer from
//! `fuzz/`, and with a seeded generator in `cargo test`.

pub use http_upstream::exchange::fuzzing::cut_anywhere;
pub use http_upstream::exchange::round_trip::round_trip;

use crate::fastcgi::record::FastCgi;
use crate::memcached::text::MemcachedReader;
use crate::proxy::http1::Http1;
use http_upstream::cgi::codec::ClosingStream;
use upstream::SerialCodec;

pub fn fastcgi(data: &[u8]) {
    cut_anywhere(data, b"", &|flag| Box::new(FastCgi::new(flag, [].into())) as Box<dyn SerialCodec>);
}

pub fn cgi(data: &[u8]) {
    cut_anywhere(data, b"", &|_| Box::new(ClosingStream::new()) as Box<dyn SerialCodec>);
}

pub fn memcached(data: &[u8]) {
    cut_anywhere(data, b"get k\r\n", &|flag| {
        Box::new(MemcachedReader::new(u32::from(flag) * 2)) as Box<dyn SerialCodec>
    });
}

pub fn http1_answer(data: &[u8]) {
    cut_anywhere(data, b"", &|_| Box::new(Http1::new()) as Box<dyn SerialCodec>);
}
