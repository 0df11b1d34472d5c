//! Files of the page, compressed once.

use bytes::Bytes;
use http_compression::coding_quality;
use std::io::Write as _;
use std::sync::LazyLock;

pub struct Asset {
    pub name: &'static str,
    pub media_type: &'static str,
    plain: Bytes,
    gzip: Bytes,
    brotli: Bytes,
}

impl Asset {
    fn new(name: &'static str, media_type: &'static str, text: &'static str) -> Asset {
        Asset { name, media_type, plain: Bytes::from_static(text.as_bytes()), gzip: gzip(text), brotli: brotli(text) }
    }
    /// Returns the content and its coding for a client that accepts these.
    pub fn coded(&self, accept: &[u8]) -> (Bytes, &'static str) {
        let (gzip, brotli) = (coding_quality(accept, "gzip"), coding_quality(accept, "br"));
        match () {
            () if brotli > 0 && brotli >= gzip && !self.brotli.is_empty() => (self.brotli.clone(), "br"),
            () if gzip > 0 && !self.gzip.is_empty() => (self.gzip.clone(), "gzip"),
            () => (self.plain.clone(), ""),
        }
    }
}

/// Empty on failure: the file is then sent as it is.
fn gzip(text: &str) -> Bytes {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let done = out.write_all(text.as_bytes()).and_then(|()| out.finish());
    done.map(Bytes::from).unwrap_or_default()
}

fn brotli(text: &str) -> Bytes {
    let mut out = Vec::new();
    let parameters = ::brotli::enc::BrotliEncoderParams::default();
    match ::brotli::BrotliCompress(&mut text.as_bytes(), &mut out, &parameters) {
        Ok(_) => out.into(),
        Err(_) => Bytes::new(),
    }
}

static ALL: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    [
        Asset::new("dashboard.css", "text/css; charset=utf-8", include_str!("assets/dashboard.css")),
        Asset::new("dashboard.js", "text/javascript; charset=utf-8", include_str!("assets/dashboard.js")),
        Asset::new("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
    ]
});

/// Version of the files, for their addresses: clients may keep a version for ever.
pub static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    ALL.iter().for_each(|asset| hasher.update(&asset.plain));
    hasher.finish().as_ref().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
});

pub fn find_asset(name: &str) -> Option<&'static Asset> {
    ALL.iter().find(|asset| asset.name == name)
}

/// At the start, so that no request has to.
pub fn prepare_assets() {
    let _ = VERSION.len();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn codings_hold_the_same_text() {
        for asset in &*ALL {
            let (plain, none) = asset.coded(b"");
            assert_eq!(none, "");
            let (zipped, coding) = asset.coded(b"gzip, br;q=0");
            assert_eq!(coding, "gzip");
            let mut text = Vec::new();
            flate2::read::GzDecoder::new(&*zipped).read_to_end(&mut text).expect("gzip");
            assert_eq!(text, plain);
            let (coded, coding) = asset.coded(b"gzip, br");
            assert_eq!(coding, "br");
            let mut text = Vec::new();
            ::brotli::BrotliDecompress(&mut &*coded, &mut text).expect("brotli");
            assert_eq!(text, plain);
        }
        assert!(find_asset("../mod.rs").is_none());
    }
}
