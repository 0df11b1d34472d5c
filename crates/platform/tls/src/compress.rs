//! Certificate compression (RFC 8879) with zlib, which all clients with the extension support.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use rustls::CertificateCompressionAlgorithm;
use rustls::compress::{CertCompressor, CompressionFailed, CompressionLevel};
use std::io::Write;

#[derive(Debug)]
pub(crate) struct Zlib;

impl CertCompressor for Zlib {
    fn compress(&self, input: Vec<u8>, level: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        let level = match level {
            CompressionLevel::Interactive => Compression::default(),
            CompressionLevel::Amortized => Compression::best(),
        };
        let mut encoder = ZlibEncoder::new(Vec::with_capacity(input.len()), level);
        encoder.write_all(&input).map_err(|_| CompressionFailed)?;
        encoder.finish().map_err(|_| CompressionFailed)
    }
    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Zlib
    }
}
