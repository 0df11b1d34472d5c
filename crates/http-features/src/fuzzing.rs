//! The bodies of the fuzz targets of the features: any bytes in, a panic when a belief does not hold. `fuzz/` runs them under
//! libFuzzer, and `tests/smoke.rs` with a seeded generator in every `cargo test`.

pub use crate::dav::fuzzing::dav;
pub use crate::image_filter::fuzzing::image;
pub use crate::mp4::fuzzing::mp4;
pub use http_upstream::exchange::fuzzing::cut_anywhere;
pub use session_engine::geoip::fuzzing::geoip;
pub use session_engine::geoip2::fuzzing::mmdb;

use crate::fastcgi::record::FastCgi;
use crate::memcached::text::Memcached;
use crate::proxy::http1::Http1;
use http_upstream::cgi::codec::Closing;
use upstream::SerialCodec;

/// What a server of FastCGI answers.
pub fn fastcgi(data: &[u8]) {
    cut_anywhere(data, b"", &|flag| Box::new(FastCgi::new(flag, [].into())) as Box<dyn SerialCodec>);
}

/// What a server of uwsgi or SCGI answers: the same for both.
pub fn cgi(data: &[u8]) {
    cut_anywhere(data, b"", &|_| Box::new(Closing::new()) as Box<dyn SerialCodec>);
}

/// What memcached answers.
pub fn memcached(data: &[u8]) {
    cut_anywhere(data, b"get k\r\n", &|flag| Box::new(Memcached::new(u32::from(flag) * 2)) as Box<dyn SerialCodec>);
}

/// What a server of HTTP/1 answers.
pub fn http1_answer(data: &[u8]) {
    cut_anywhere(data, b"", &|_| Box::new(Http1::new()) as Box<dyn SerialCodec>);
}
