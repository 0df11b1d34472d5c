//! Features that compress and decompress responses.
//! One directory per feature; the server's `http_registry` lists all.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub use shared::compress::coding_quality;

use http_engine::Feature;

mod brotli;
mod gunzip;
mod gzip;
mod gzip_static;
mod shared;
mod zstd;

pub static FEATURES: &[&dyn Feature] =
    &[&brotli::Brotli, &gunzip::Gunzip, &zstd::Zstd, &gzip::Gzip, &gzip_static::GzipStatic];
