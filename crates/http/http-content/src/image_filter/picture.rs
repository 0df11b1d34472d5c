//! Decodes and encodes images within bounds of memory and `PIXELS_MAX`.

use super::change::{Pixels, ResizeOptions, Smaller};
use super::head::ImageFormat;
use gif::{ColorOutput, DecodeOptions, Frame, MemoryLimit};
use image_webp::{WebPDecoder, WebPEncoder};
use jpeg_encoder::ColorType as JpegColour;
use net::pool::ResultInterest;
use std::fmt::Display;
use std::io::Cursor;
use std::num::NonZeroU64;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// Maximum number of pixels of an image: 160 MB as RGBA.
pub const PIXELS_MAX: u64 = 40_000_000;
const SIDE_MAX: u32 = 65_535;
const DECODER_BYTES_MAX: usize = 256 << 20;
/// Speed of the palette search (1: best palette, 30: fastest).
const PALETTE_SPEED: i32 = 10;

#[derive(Clone, Copy, Debug)]
pub struct ImageOutput {
    pub kind: ImageFormat,
    pub jpeg_quality: u64,
    pub webp_quality: u64,
    pub interlace: bool,
    pub transparency: bool,
}

struct Picture {
    pixels: Pixels,
    palette: bool,
    alpha: bool,
}

fn failed(kind: ImageFormat) -> impl Fn(&dyn Display) -> String {
    move |e| format!("reading {} failed: {e}", kind.name())
}

/// As the decoder will. Fails on a broken head, or beyond [`PIXELS_MAX`].
pub fn count_pixels(kind: ImageFormat, bytes: &[u8]) -> Result<u64, String> {
    size(kind, bytes).map(|(width, height)| width as u64 * height as u64)
}

fn size(kind: ImageFormat, bytes: &[u8]) -> Result<(usize, usize), String> {
    let failed = failed(kind);
    let (width, height) = match kind {
        ImageFormat::Jpeg => {
            let mut decoder = JpegDecoder::new(ZCursor::new(bytes));
            decoder.decode_headers().map_err(|e| failed(&e))?;
            let info = decoder.info().ok_or_else(|| failed(&"it has no size"))?;
            (u32::from(info.width), u32::from(info.height))
        }
        ImageFormat::Gif => {
            let decoder = DecodeOptions::new().read_info(Cursor::new(bytes)).map_err(|e| failed(&e))?;
            (u32::from(decoder.width()), u32::from(decoder.height()))
        }
        ImageFormat::Png => {
            let reader = png::Decoder::new(Cursor::new(bytes)).read_info().map_err(|e| failed(&e))?;
            (reader.info().width, reader.info().height)
        }
        ImageFormat::Webp => WebPDecoder::new(Cursor::new(bytes)).map_err(|e| failed(&e))?.dimensions(),
    };
    let pixels = u64::from(width) * u64::from(height);
    if pixels == 0 || pixels > PIXELS_MAX || width > SIDE_MAX || height > SIDE_MAX {
        return Err(format!("a picture of {width} x {height} pixels is not read"));
    }
    Ok((width as usize, height as usize))
}

/// Decodes, changes and encodes an image. `None`: unchanged. Fails with a log message, also if the client has left between two steps.
pub fn change_image(
    bytes: &[u8],
    wish: &ResizeOptions,
    output: &ImageOutput,
    wanted: &ResultInterest<'_>,
) -> Result<Option<Vec<u8>>, String> {
    let look = || if wanted.is_wanted() { Ok(()) } else { Err("the client has left".to_string()) };
    let (width, height) = size(output.kind, bytes)?;
    if wish.is_met(width, height) {
        return Ok(None);
    }
    let mut picture = read(bytes, wish, output, wanted)?;
    look()?;
    if picture.palette {
        // Palette transparency is binary; sharpening applies to images without a palette.
        let opaque = !output.transparency;
        picture.pixels.bytes.as_chunks_mut::<4>().0.iter_mut().filter(|_| opaque).for_each(|pixel| pixel[3] = 255);
        picture.alpha &= output.transparency;
    }
    let wish = ResizeOptions { sharpen: if picture.palette { 0 } else { wish.sharpen }, ..*wish };
    picture.pixels = wish.apply(picture.pixels);
    look()?;
    write(picture, output).map(Some)
}

fn read(
    bytes: &[u8],
    wish: &ResizeOptions,
    output: &ImageOutput,
    wanted: &ResultInterest<'_>,
) -> Result<Picture, String> {
    let failed = failed(output.kind);
    match output.kind {
        ImageFormat::Jpeg => {
            let decoding = |colours| {
                let options = DecoderOptions::default()
                    .jpeg_set_out_colorspace(colours)
                    .set_max_width(SIDE_MAX as usize)
                    .set_max_height(SIDE_MAX as usize);
                JpegDecoder::new_with_options(ZCursor::new(bytes), options)
            };
            let (mut decoder, mut samples) = (decoding(ColorSpace::RGBA), 4);
            decoder.decode_headers().map_err(|e| failed(&e))?;
            // zune-jpeg 0.5 converts these to pixels of three samples, whatever the output.
            if matches!(decoder.input_colorspace(), Some(ColorSpace::CMYK | ColorSpace::YCCK)) {
                (decoder, samples) = (decoding(ColorSpace::RGB), 3);
            }
            let pixels = decoder.decode().map_err(|e| failed(&e))?;
            let info = decoder.info().ok_or_else(|| failed(&"it has no size"))?;
            let picture = picture(info.width.into(), info.height.into(), pixels, samples);
            picture.map(|picture| Picture { alpha: false, ..picture }).ok_or_else(|| failed(&"it is cut short"))
        }
        ImageFormat::Gif => gif(bytes).map_err(|e| failed(&e)),
        ImageFormat::Png => png(bytes, wish, output, wanted).map_err(|e| failed(&e)),
        ImageFormat::Webp => {
            let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(|e| failed(&e))?;
            decoder.set_memory_limit(DECODER_BYTES_MAX);
            let (width, height) = decoder.dimensions();
            let size = decoder.output_buffer_size().filter(|size| *size <= DECODER_BYTES_MAX);
            let mut buf = vec![0; size.ok_or_else(|| failed(&"it is too large"))?];
            decoder.read_image(&mut buf).map_err(|e| failed(&e))?;
            let samples = if decoder.has_alpha() { 4 } else { 3 };
            picture(width as usize, height as usize, buf, samples).ok_or_else(|| failed(&"it is cut short"))
        }
    }
}

/// Decodes a PNG; reduces it row by row, unless interlaced.
fn png(
    bytes: &[u8],
    wish: &ResizeOptions,
    output: &ImageOutput,
    wanted: &ResultInterest<'_>,
) -> Result<Picture, String> {
    let cut = || "it is cut short".to_string();
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), png::Limits { bytes: DECODER_BYTES_MAX });
    decoder.set_transformations(png::Transformations::normalize_to_color8() | png::Transformations::ALPHA);
    let mut reader = decoder.read_info().map_err(|e| e.to_string())?;
    let info = reader.info();
    let palette = info.color_type == png::ColorType::Indexed;
    let alpha = info.trns.is_some() || matches!(info.color_type, png::ColorType::GrayscaleAlpha | png::ColorType::Rgba);
    let (width, height) = (info.width as usize, info.height as usize);
    let (wide, high) = wish.size(width, height);
    let samples = reader.output_color_type().0.samples();
    if wish.is_met(width, height) || info.interlaced || (wide, high) == (width, height) {
        let size = reader.output_buffer_size().filter(|size| *size <= DECODER_BYTES_MAX).ok_or("it is too large")?;
        let mut buf = vec![0; size];
        reader.next_frame(&mut buf).map_err(|e| e.to_string())?;
        return Ok(Picture { palette, alpha, ..picture(width, height, buf, samples).ok_or_else(cut)? });
    }
    let mut smaller = Smaller::new((width, height), (wide, high));
    let mut line = Vec::with_capacity(width * 4);
    for _ in 0..height {
        if !wanted.is_wanted() {
            return Err("the client has left".into());
        }
        let row = reader.next_row().map_err(|e| e.to_string())?.ok_or_else(cut)?;
        line.clear();
        widen(row.data(), samples, &mut line).ok_or_else(cut)?;
        if palette && !output.transparency {
            line.as_chunks_mut::<4>().0.iter_mut().for_each(|pixel| pixel[3] = 255);
        }
        smaller.add(&line);
    }
    Ok(Picture { pixels: smaller.done(), palette, alpha })
}

fn picture(width: usize, height: usize, mut bytes: Vec<u8>, samples: usize) -> Option<Picture> {
    let pixels = width.checked_mul(height)?;
    let size = pixels.checked_mul(samples)?;
    if bytes.len() < size {
        return None;
    }
    bytes.truncate(size);
    let alpha = matches!(samples, 2 | 4);
    if samples != 4 {
        let mut wide = Vec::with_capacity(pixels * 4);
        widen(&bytes, samples, &mut wide)?;
        bytes = wide;
    }
    Some(Picture { pixels: Pixels { width, height, bytes }, palette: false, alpha })
}

fn widen(bytes: &[u8], samples: usize, out: &mut Vec<u8>) -> Option<()> {
    for pixel in bytes.chunks_exact(samples) {
        out.extend_from_slice(&match *pixel {
            [grey] => [grey, grey, grey, 255],
            [grey, alpha] => [grey, grey, grey, alpha],
            [red, green, blue] => [red, green, blue, 255],
            [red, green, blue, alpha] => [red, green, blue, alpha],
            _ => return None,
        });
    }
    Some(())
}

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
    // Clips the image at its canvas.
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

fn write(picture: Picture, output: &ImageOutput) -> Result<Vec<u8>, String> {
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
        ImageFormat::Jpeg => {
            let quality = quality(output.jpeg_quality)?;
            let mut encoder = jpeg_encoder::Encoder::new(&mut out, quality);
            encoder.set_progressive(output.interlace);
            encoder.encode(&rgb(&bytes), wide, high, JpegColour::Rgb).map_err(|e| failed(&e))?;
            comment(&mut out, &format!("CREATOR: tidegate, quality = {quality}\n"));
        }
        ImageFormat::Gif => {
            let mut frame = with_palette(wide, high, &mut bytes);
            if output.interlace {
                frame.buffer = interlaced(&frame.buffer, width).into();
                frame.interlaced = true;
            }
            let mut encoder = gif::Encoder::new(&mut out, wide, high, &[]).map_err(|e| failed(&e))?;
            encoder.write_frame(&frame).map_err(|e| failed(&e))?;
        }
        ImageFormat::Png => {
            let mut encoder = png::Encoder::new(&mut out, u32::from(wide), u32::from(high));
            encoder.set_depth(png::BitDepth::Eight);
            let data = if palette {
                let frame = with_palette(wide, high, &mut bytes);
                encoder.set_color(png::ColorType::Indexed);
                encoder.set_palette(frame.palette.unwrap_or_default());
                if let Some(index) = frame.transparent {
                    // Opaque up to the transparent colour.
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
        ImageFormat::Webp => {
            quality(output.webp_quality)?;
            // The format's longest side is 16,383.
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

/// Finds a palette of 256 colours; nearly transparent pixels become transparent.
fn with_palette(width: u16, height: u16, bytes: &mut [u8]) -> Frame<'static> {
    bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|pixel| pixel[3] = if pixel[3] < 128 { 0 } else { 255 });
    Frame::from_rgba_speed(width, height, bytes, PALETTE_SPEED)
}

/// Rows in interlaced order: every eighth first.
fn interlaced(bytes: &[u8], width: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let rows: Vec<&[u8]> = bytes.chunks(width.max(1)).collect();
    for (first, step) in [(0, 8), (4, 8), (2, 4), (1, 2)] {
        rows.iter().skip(first).step_by(step).for_each(|row| out.extend_from_slice(row));
    }
    out
}

/// Inserts a comment after a JPEG's first segment, which must stay first.
fn comment(jpeg: &mut Vec<u8>, text: &str) {
    let Some(&[0xff, 0xd8, 0xff, 0xe0, high, low]) = jpeg.first_chunk() else { return };
    let at = 4 + usize::from(u16::from_be_bytes([high, low]));
    if at <= jpeg.len() {
        let length = (text.len() as u16 + 2).to_be_bytes();
        let segment = [&[0xff, 0xfe], length.as_slice(), text.as_bytes()].concat();
        jpeg.splice(at..at, segment);
    }
}
