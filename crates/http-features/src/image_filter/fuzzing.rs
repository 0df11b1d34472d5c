//! The body of the fuzz target of pictures.

use super::change::Wish;
use super::head::{self, Kind};
use super::picture::{Output, change, pixels};

/// Pixels that a fuzzed picture may have: the bound itself is not what is looked for.
const PIXELS_MAX: u64 = 1 << 20;

/// A file of any bytes is measured and made smaller, and what comes of it is a picture of the same kind.
pub fn image(data: &[u8]) {
    let Some(kind) = Kind::of(data) else { return };
    let _ = head::measure(kind, data);
    if pixels(kind, data).is_ok_and(|pixels| pixels > PIXELS_MAX) {
        return;
    }
    let output = Output { kind, jpeg_quality: 50, webp_quality: 50, interlace: true, transparency: true };
    let wish = Wish { bounds: Some((3, 5)), crop: data.len().is_multiple_of(2), angle: 90, sharpen: 50, force: true };
    if let Ok(Some(made)) = change(data, &wish, &output) {
        assert_eq!(Kind::of(&made), Some(kind));
        assert!(pixels(kind, &made).is_ok());
    }
}
