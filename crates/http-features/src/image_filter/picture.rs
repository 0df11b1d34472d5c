//! Pictures read and written. The decoders are given a bound of memory, and nothing larger than `PIXELS_MAX` is begun.

use super::change::{Pixels, Wish};
use super::head::Kind;
use gif::{ColorOutput, DecodeOptions, Frame, MemoryLimit};
use image_webp::{WebPDecoder, WebPEncoder};
use jpeg_encoder::ColorType as JpegColour;
use std::fmt::Display;
use std::io::Cursor;
use std::num::NonZeroU64;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// The most that a picture may have: 160 MB of memory as pixels.
pub const PIXELS_MAX: u64 = 40_000_000;
/// Pixels of a side.
const SIDE_MAX: u32 = 65_535;
/// What a decoder may take for itself.
const DECODER_BYTES_MAX: usize = 256 << 20;
/// How hard a palette is looked for (1: hardest, 30: least).
const PALETTE_SPEED: i32 = 10;

/// How a picture is written.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub kind: Kind,
    pub jpeg_quality: u64,
    pub webp_quality: u64,
    pub interlace: bool,
    /// What is transparent in a picture with a palette stays so.
    pub transparency: bool,
}

/// A picture as it was read.
struct Picture {
    pixels: Pixels,
    /// It has a palette, and gets one again.
    palette: bool,
    /// Some of it may be transparent.
    alpha: bool,
}

fn failed(kind: Kind) -> impl Fn(&dyn Display) -> String {
    move |e| format!("reading {} failed: {e}", kind.name())
}

/// Pixels of the picture in a file, as its decoder will see them; more than there may be are an error.
pub fn pixels(kind: Kind, bytes: &[u8]) -> Result<u64, String> {
    let failed = failed(kind);
    let (width, height) = match kind {
        Kind::Jpeg => {
            let mut decoder = JpegDecoder::new(ZCursor::new(bytes));
            decoder.decode_headers().map_err(|e| failed(&e))?;
            let info = decoder.info().ok_or_else(|| failed(&"it has no size"))?;
            (u32::from(info.width), u32::from(info.height))
        }
        Kind::Gif => {
            let decoder = DecodeOptions::new().read_info(Cursor::new(bytes)).map_err(|e| failed(&e))?;
            (u32::from(decoder.width()), u32::from(decoder.height()))
        }
        Kind::Png => {
            let reader = png::Decoder::new(Cursor::new(bytes)).read_info().map_err(|e| failed(&e))?;
            (reader.info().width, reader.info().height)
        }
        Kind::Webp => WebPDecoder::new(Cursor::new(bytes)).map_err(|e| failed(&e))?.dimensions(),
    };
    let pixels = u64::from(width) * u64::from(height);
    if pixels == 0 || pixels > PIXELS_MAX || width > SIDE_MAX || height > SIDE_MAX {
        return Err(format!("a picture of {width} x {height} pixels is not read"));
    }
    Ok(pixels)
}

/// Reads a picture, does what is wanted, and writes it. `None`: there was nothing to do.
///
/// # Errors
/// What went wrong, in words for the log.
pub fn change(bytes: &[u8], wish: &Wish, output: &Output) -> Result<Option<Vec<u8>>, String> {
    pixels(output.kind, bytes)?;
    let mut picture = read(output.kind, bytes)?;
    if wish.is_met(picture.pixels.width, picture.pixels.height) {
        return Ok(None);
    }
    if picture.palette {
        // What is transparent is so, or not at all; sharpening is for pictures without a palette.
        let opaque = !output.transparency;
        picture.pixels.bytes.as_chunks_mut::<4>().0.iter_mut().filter(|_| opaque).for_each(|pixel| pixel[3] = 255);
        picture.alpha &= output.transparency;
    }
    let wish = Wish { sharpen: if picture.palette { 0 } else { wish.sharpen }, ..*wish };
    picture.pixels = wish.apply(picture.pixels);
    write(picture, output).map(Some)
}

fn read(kind: Kind, bytes: &[u8]) -> Result<Picture, String> {
    let failed = failed(kind);
    match kind {
        Kind::Jpeg => {
            let options = DecoderOptions::default()
                .jpeg_set_out_colorspace(ColorSpace::RGB)
                .set_max_width(SIDE_MAX as usize)
                .set_max_height(SIDE_MAX as usize);
            let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
            let rgb = decoder.decode().map_err(|e| failed(&e))?;
            let info = decoder.info().ok_or_else(|| failed(&"it has no size"))?;
            picture(info.width.into(), info.height.into(), &rgb, 3, false).ok_or_else(|| failed(&"it is cut short"))
        }
        Kind::Gif => gif(bytes).map_err(|e| failed(&e)),
        Kind::Png => {
            let limits = png::Limits { bytes: DECODER_BYTES_MAX };
            let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
            decoder.set_transformations(png::Transformations::normalize_to_color8());
            let mut reader = decoder.read_info().map_err(|e| failed(&e))?;
            let palette = reader.info().color_type == png::ColorType::Indexed;
            let size = reader.output_buffer_size().filter(|size| *size <= DECODER_BYTES_MAX);
            let mut buf = vec![0; size.ok_or_else(|| failed(&"it is too large"))?];
            let frame = reader.next_frame(&mut buf).map_err(|e| failed(&e))?;
            buf.truncate(frame.buffer_size());
            let (width, height) = (frame.width as usize, frame.height as usize);
            picture(width, height, &buf, frame.color_type.samples(), palette).ok_or_else(|| failed(&"it is cut short"))
        }
        Kind::Webp => {
            let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(|e| failed(&e))?;
            decoder.set_memory_limit(DECODER_BYTES_MAX);
            let (width, height) = decoder.dimensions();
            let size = decoder.output_buffer_size().filter(|size| *size <= DECODER_BYTES_MAX);
            let mut buf = vec![0; size.ok_or_else(|| failed(&"it is too large"))?];
            decoder.read_image(&mut buf).map_err(|e| failed(&e))?;
            let samples = if decoder.has_alpha() { 4 } else { 3 };
            picture(width as usize, height as usize, &buf, samples, false).ok_or_else(|| failed(&"it is cut short"))
        }
    }
}

/// Pixels of so many bytes each, as pixels of four.
fn picture(width: usize, height: usize, bytes: &[u8], samples: usize, palette: bool) -> Option<Picture> {
    if bytes.len() < width.checked_mul(height)?.checked_mul(samples)? {
        return None;
    }
    let mut out = Vec::with_capacity(width * height * 4);
    for pixel in bytes.chunks_exact(samples).take(width * height) {
        out.extend_from_slice(&match *pixel {
            [grey] => [grey, grey, grey, 255],
            [grey, alpha] => [grey, grey, grey, alpha],
            [red, green, blue] => [red, green, blue, 255],
            [red, green, blue, alpha] => [red, green, blue, alpha],
            _ => return None,
        });
    }
    Some(Picture { pixels: Pixels { width, height, bytes: out }, palette, alpha: matches!(samples, 2 | 4) })
}

/// The first picture of a file, which may have more.
fn gif(bytes: &[u8]) -> Result<Picture, String> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::RGBA);
    options
        .set_memory_limit(NonZeroU64::new(DECODER_BYTES_MAX as u64).map_or(MemoryLimit::Unlimited, MemoryLimit::Bytes));
    let mut decoder = options.read_info(Cursor::new(bytes)).map_err(|e| e.to_string())?;
    let (width, height) = (usize::from(decoder.width()), usize::from(decoder.height()));
    let frame = decoder.read_next_frame().map_err(|e| e.to_string())?.ok_or("it has no picture")?;
    let mut canvas = vec![0; width * height * 4];
    let (left, top, wide) = (usize::from(frame.left), usize::from(frame.top), usize::from(frame.width));
    // What stands over its canvas is not seen.
    let seen = wide.min(width.saturating_sub(left)) * 4;
    if wide > 0 && seen > 0 {
        for (y, row) in frame.buffer.chunks_exact(wide * 4).enumerate() {
            let at = ((top + y) * width + left) * 4;
            if let (Some(to), Some(from)) = (canvas.get_mut(at..at + seen), row.get(..seen)) {
                to.copy_from_slice(from);
            }
        }
    }
    Ok(Picture { pixels: Pixels { width, height, bytes: canvas }, palette: true, alpha: true })
}

fn write(picture: Picture, output: &Output) -> Result<Vec<u8>, String> {
    let failed = |e: &dyn Display| format!("writing {} failed: {e}", output.kind.name());
    let Picture { pixels: Pixels { width, height, mut bytes }, palette, alpha } = picture;
    let quality = |quality: u64| match quality {
        0 => Err("the quality is no number".to_string()),
        quality => Ok(quality.min(100) as u8),
    };
    let (Ok(wide), Ok(high)) = (u16::try_from(width), u16::try_from(height)) else {
        return Err(failed(&"it is too large"));
    };
    let mut out = Vec::new();
    match output.kind {
        Kind::Jpeg => {
            let quality = quality(output.jpeg_quality)?;
            let mut encoder = jpeg_encoder::Encoder::new(&mut out, quality);
            encoder.set_progressive(output.interlace);
            encoder.encode(&rgb(&bytes), wide, high, JpegColour::Rgb).map_err(|e| failed(&e))?;
            comment(&mut out, &format!("CREATOR: tidegate, quality = {quality}\n"));
        }
        Kind::Gif => {
            let mut frame = with_palette(wide, high, &mut bytes);
            if output.interlace {
                frame.buffer = interlaced(&frame.buffer, width).into();
                frame.interlaced = true;
            }
            let mut encoder = gif::Encoder::new(&mut out, wide, high, &[]).map_err(|e| failed(&e))?;
            encoder.write_frame(&frame).map_err(|e| failed(&e))?;
        }
        Kind::Png => {
            let mut encoder = png::Encoder::new(&mut out, u32::from(wide), u32::from(high));
            encoder.set_depth(png::BitDepth::Eight);
            let data = if palette {
                let frame = with_palette(wide, high, &mut bytes);
                encoder.set_color(png::ColorType::Indexed);
                encoder.set_palette(frame.palette.unwrap_or_default());
                if let Some(index) = frame.transparent {
                    // How opaque the colours are, up to the one that is not.
                    encoder.set_trns([vec![255; usize::from(index)], vec![0]].concat());
                }
                frame.buffer.into_owned()
            } else if alpha {
                encoder.set_color(png::ColorType::Rgba);
                bytes
            } else {
                encoder.set_color(png::ColorType::Rgb);
                rgb(&bytes)
            };
            let mut writer = encoder.write_header().map_err(|e| failed(&e))?;
            writer.write_image_data(&data).map_err(|e| failed(&e))?;
            writer.finish().map_err(|e| failed(&e))?;
        }
        Kind::Webp => {
            quality(output.webp_quality)?;
            // A side of 16,384 is what the format can hold.
            if width.max(height) > 16_384 {
                return Err(failed(&"it is too large"));
            }
            let (data, colour) = match alpha {
                true => (bytes, image_webp::ColorType::Rgba8),
                false => (rgb(&bytes), image_webp::ColorType::Rgb8),
            };
            let encoded = WebPEncoder::new(&mut out).encode(&data, u32::from(wide), u32::from(high), colour);
            encoded.map_err(|e| failed(&e))?;
        }
    }
    Ok(out)
}

fn rgb(bytes: &[u8]) -> Vec<u8> {
    bytes.as_chunks::<4>().0.iter().flat_map(|[red, green, blue, _]| [*red, *green, *blue]).collect()
}

/// Finds at most 256 colours for a picture; what is hardly opaque becomes transparent.
fn with_palette(width: u16, height: u16, bytes: &mut [u8]) -> Frame<'static> {
    bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|pixel| pixel[3] = if pixel[3] < 128 { 0 } else { 255 });
    Frame::from_rgba_speed(width, height, bytes, PALETTE_SPEED)
}

/// Rows in the order in which they are sent: every eighth, then those between them, and so on.
fn interlaced(bytes: &[u8], width: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let rows: Vec<&[u8]> = bytes.chunks(width.max(1)).collect();
    for (first, step) in [(0, 8), (4, 8), (2, 4), (1, 2)] {
        rows.iter().skip(first).step_by(step).for_each(|row| out.extend_from_slice(row));
    }
    out
}

/// Puts a comment behind the first segment of a JPEG file, which must stay the first.
fn comment(jpeg: &mut Vec<u8>, text: &str) {
    let Some(&[0xff, 0xd8, 0xff, 0xe0, high, low]) = jpeg.first_chunk() else { return };
    let at = 4 + usize::from(u16::from_be_bytes([high, low]));
    if at <= jpeg.len() {
        let length = (text.len() as u16 + 2).to_be_bytes();
        let segment = [&[0xff, 0xfe], length.as_slice(), text.as_bytes()].concat();
        jpeg.splice(at..at, segment);
    }
}
