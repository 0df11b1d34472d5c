//! Body of the image fuzz target.

use super::change::ResizeOptions;
use super::head::{self, ImageFormat};
use super::picture::{ImageOutput, change_image, count_pixels};

/// Maximum number of pixels of a fuzzed image; the real bound is not under test.
const PIXELS_MAX: u64 = 1 << 20;

/// Panics unless a decodable file, reduced, stays an image of its format.
pub fn image(data: &[u8]) {
    let Some(kind) = ImageFormat::of(data) else { return };
    let _ = head::measure_image(kind, data);
    if count_pixels(kind, data).is_ok_and(|pixels| pixels > PIXELS_MAX) {
        return;
    }
    let output = ImageOutput { kind, jpeg_quality: 50, webp_quality: 50, interlace: true, transparency: true };
    let wish =
        ResizeOptions { bounds: Some((3, 5)), crop: data.len().is_multiple_of(2), angle: 90, sharpen: 50, force: true };
    if let Ok(Some(made)) = change_image(data, &wish, &output, &net::pool::ResultInterest::ALWAYS) {
        assert_eq!(ImageFormat::of(&made), Some(kind));
        assert!(count_pixels(kind, &made).is_ok());
    }
}
