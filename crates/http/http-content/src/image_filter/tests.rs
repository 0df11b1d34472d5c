//! Tests with generated images.

use super::change::{Pixels, ResizeOptions};
use super::head::{self, ImageFormat, Measure};
use super::picture::{ImageOutput, change_image};
use super::*;

const KINDS: [ImageFormat; 4] = [ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::Png, ImageFormat::Webp];

fn changed(bytes: &[u8], wish: &ResizeOptions, output: &ImageOutput) -> Result<Option<Vec<u8>>, String> {
    change_image(bytes, wish, output, &ResultInterest::ALWAYS)
}

fn wish() -> ResizeOptions {
    ResizeOptions { bounds: None, crop: false, angle: 0, sharpen: 0, force: true }
}

fn output(kind: ImageFormat) -> ImageOutput {
    ImageOutput { kind, jpeg_quality: 90, webp_quality: 80, interlace: false, transparency: true }
}

/// PNG with a colour per quarter.
fn png(width: usize, height: usize) -> Vec<u8> {
    let mut data = Vec::new();
    for y in 0..height {
        for x in 0..width {
            data.extend_from_slice(match (x < width / 2, y < height / 2) {
                (true, true) => &[255, 0, 0],
                (false, true) => &[0, 255, 0],
                (true, false) => &[0, 0, 255],
                (false, false) => &[255, 255, 255],
            });
        }
    }
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().and_then(|mut w| w.write_image_data(&data)).expect("memory");
    out
}

fn picture(kind: ImageFormat, width: usize, height: usize) -> Vec<u8> {
    let png = png(width, height);
    let data = changed(&png, &wish(), &output(ImageFormat::Png)).expect("a picture").expect("made");
    match kind {
        ImageFormat::Png => data,
        kind => {
            let (pixels, _) = decoded(&data);
            let mut out = Vec::new();
            match kind {
                ImageFormat::Jpeg => {
                    let rgb: Vec<u8> = pixels.chunks(4).flat_map(|p| p[..3].to_vec()).collect();
                    let encoder = jpeg_encoder::Encoder::new(&mut out, 95);
                    encoder.encode(&rgb, width as u16, height as u16, jpeg_encoder::ColorType::Rgb).expect("memory");
                }
                ImageFormat::Gif => {
                    let mut pixels = pixels;
                    let frame = gif::Frame::from_rgba(width as u16, height as u16, &mut pixels);
                    let mut encoder = gif::Encoder::new(&mut out, width as u16, height as u16, &[]).expect("memory");
                    encoder.write_frame(&frame).expect("memory");
                }
                _ => image_webp::WebPEncoder::new(&mut out)
                    .encode(&pixels, width as u32, height as u32, image_webp::ColorType::Rgba8)
                    .expect("memory"),
            }
            out
        }
    }
}

/// RGBA pixels of a PNG without a palette, and its width.
fn decoded(png: &[u8]) -> (Vec<u8>, usize) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().expect("a picture");
    let mut buf = vec![0; reader.output_buffer_size().expect("a size")];
    let frame = reader.next_frame(&mut buf).expect("a picture");
    let samples = frame.color_type.samples();
    let pixels = buf.chunks(samples).flat_map(|p| [p[0], p[1], p[2], if samples == 4 { p[3] } else { 255 }]).collect();
    (pixels, frame.width as usize)
}

fn size(kind: ImageFormat, bytes: &[u8]) -> (u32, u32) {
    let Measure { width, height, .. } = head::measure_image(kind, bytes).expect("a size");
    (width, height)
}

#[test]
fn four_inks_keep_their_colours() {
    // Red and green by inks: 0 is none of cyan, magenta, yellow and black.
    let inks: Vec<u8> =
        (0..32 * 16).flat_map(|at| if at % 32 < 16 { [0, 255, 255, 0] } else { [255, 0, 255, 0] }).collect();
    for kind in [jpeg_encoder::ColorType::Cmyk, jpeg_encoder::ColorType::CmykAsYcck] {
        let mut bytes = Vec::new();
        jpeg_encoder::Encoder::new(&mut bytes, 95).encode(&inks, 32, 16, kind).expect("memory");
        let smaller = ResizeOptions { bounds: Some((16, super::ANY)), ..wish() };
        let made = changed(&bytes, &smaller, &output(ImageFormat::Jpeg)).expect("a picture").expect("made");
        let mut decoder = zune_jpeg::JpegDecoder::new(zune_core::bytestream::ZCursor::new(&made));
        let pixels = decoder.decode().expect("a picture");
        assert_eq!(pixels.len(), 16 * 8 * 3);
        let at = |x: usize| &pixels[(4 * 16 + x) * 3..][..3];
        assert!(
            matches!(at(2), [200..=255, 0..60, 0..60]) && matches!(at(13), [0..60, 200..=255, 0..60]),
            "{kind:?}: {pixels:?}"
        );
    }
}

#[test]
fn every_kind_is_measured_and_made_smaller() {
    for kind in KINDS {
        let bytes = picture(kind, 40, 30);
        assert_eq!(ImageFormat::of(&bytes), Some(kind));
        assert_eq!(size(kind, &bytes), (40, 30), "{kind:?}");
        for (bounds, crop, want) in [
            ((20, super::ANY), false, (20, 15)),
            ((super::ANY, 10), false, (13, 10)),
            ((20, 5), false, (6, 5)),
            ((20, 20), true, (20, 20)),
            ((10, 30), true, (10, 30)),
        ] {
            for force in [true, false] {
                let wish = ResizeOptions { bounds: Some(bounds), crop, force, ..wish() };
                let made = changed(&bytes, &wish, &output(kind)).expect("a picture").expect("made");
                assert_eq!((ImageFormat::of(&made), size(kind, &made)), (Some(kind), want), "{kind:?} {bounds:?}");
            }
        }
        let turned =
            changed(&bytes, &ResizeOptions { angle: 90, ..wish() }, &output(kind)).expect("a picture").expect("made");
        assert_eq!(size(kind, &turned), (30, 40));
        let met = ResizeOptions { bounds: Some((40, 30)), force: false, ..wish() };
        assert_eq!(changed(&bytes, &met, &output(kind)), Ok(None));
    }
}

#[test]
fn colours_stay_where_they_should() {
    let bytes = picture(ImageFormat::Png, 40, 40);
    let made = |wish: ResizeOptions| {
        decoded(&changed(&bytes, &wish, &output(ImageFormat::Png)).expect("a picture").expect("made"))
    };
    let corner = |(pixels, width): &(Vec<u8>, usize)| (pixels[..3].to_vec(), pixels[(width - 1) * 4..][..3].to_vec());
    let (red, green, blue, white) = (vec![255, 0, 0], vec![0, 255, 0], vec![0, 0, 255], vec![255, 255, 255]);
    let small = ResizeOptions { bounds: Some((10, 10)), ..wish() };
    assert_eq!(corner(&made(small)), (red.clone(), green.clone()));
    assert_eq!(corner(&made(ResizeOptions { angle: 90, ..small })), (green.clone(), white.clone()));
    assert_eq!(corner(&made(ResizeOptions { angle: 180, ..small })), (white, blue.clone()));
    assert_eq!(corner(&made(ResizeOptions { angle: 270, ..small })), (blue, red.clone()));
    assert_eq!(corner(&made(ResizeOptions { sharpen: 100, ..small })), (red, green));
}

#[test]
fn transparency_stays_unless_switched_off() {
    let mut pixels: Vec<u8> = (0..100).flat_map(|n| [200, 10, 10, if n % 10 < 5 { 0 } else { 255 }]).collect();
    let frame = gif::Frame::from_rgba(10, 10, &mut pixels);
    let mut bytes = Vec::new();
    let mut encoder = gif::Encoder::new(&mut bytes, 10, 10, &[]).expect("memory");
    encoder.write_frame(&frame).expect("memory");
    drop(encoder);
    for (transparency, interlace) in [(true, false), (false, true)] {
        let wish = ResizeOptions { bounds: Some((4, 4)), ..wish() };
        let output = ImageOutput { transparency, interlace, ..output(ImageFormat::Gif) };
        let made = changed(&bytes, &wish, &output).expect("a picture").expect("made");
        let mut decoder = gif::DecodeOptions::new().read_info(made.as_slice()).expect("a picture");
        let frame = decoder.next_frame_info().expect("a picture").expect("a picture");
        assert_eq!(frame.transparent.is_some(), transparency);
        assert_eq!((frame.interlaced, frame.width, frame.height), (interlace, 4, 4));
        let mut indexes = [0; 16];
        decoder.read_into_buffer(&mut indexes).expect("a picture");
        assert!(indexes.chunks(4).all(|row| row == &indexes[..4]), "rows are alike, in whatever order they are sent");
    }
}

#[test]
fn jpeg_says_its_quality() {
    let bytes = picture(ImageFormat::Jpeg, 16, 16);
    for interlace in [false, true] {
        let output = ImageOutput { jpeg_quality: 40, interlace, ..output(ImageFormat::Jpeg) };
        let made = changed(&bytes, &ResizeOptions { angle: 180, ..wish() }, &output).expect("a picture").expect("made");
        assert!(memchr::memmem::find(&made, b"quality = 40\n").is_some());
        assert_eq!(size(ImageFormat::Jpeg, &made), (16, 16));
        assert!(changed(&made, &wish(), &output).is_ok(), "it can be read again");
        assert!(changed(&bytes, &wish(), &ImageOutput { jpeg_quality: 0, ..output }).is_err());
    }
    let heavy = [&bytes[..2], &[0xff, 0xe1, 0x01, 0x00], &[0; 254], &bytes[2..]].concat();
    assert!(head::measure_image(ImageFormat::Jpeg, &heavy).is_some_and(|m| m.heavy));
    assert!(head::measure_image(ImageFormat::Jpeg, &bytes).is_some_and(|m| !m.heavy));
}

#[test]
fn pictures_too_large_and_broken_ones_are_refused() {
    for kind in KINDS {
        let bytes = picture(kind, 40, 30);
        for end in (16..bytes.len()).step_by(bytes.len() / 20 + 1) {
            let _ = changed(&bytes[..end], &wish(), &output(kind));
        }
        assert!(changed(&bytes[..20], &wish(), &output(kind)).is_err(), "{kind:?}");
        let mut random = testkit::Random::new(0x0123_4567_89ab_cdef);
        for _ in 0..500 {
            let mut bytes = bytes.clone();
            for _ in 0..3 {
                let at = random.below(bytes.len());
                bytes[at] = random.octet();
            }
            fuzzing::image(&bytes);
        }
    }
    let mut large = picture(ImageFormat::Gif, 2, 2);
    large[6..10].copy_from_slice(&[0xff; 4]);
    assert_eq!(
        changed(&large, &wish(), &output(ImageFormat::Gif)),
        Err("a picture of 65535 x 65535 pixels is not read".into())
    );
}

#[test]
fn means_of_what_is_covered() {
    let bytes: Vec<u8> = [[0, 0, 0, 255], [100, 100, 100, 255], [200, 200, 200, 255]].concat();
    let row = Pixels { width: 3, height: 1, bytes };
    assert_eq!(row.smaller(1, 1).bytes, [100, 100, 100, 255]);
    assert_eq!(row.smaller(2, 1).bytes, [33, 33, 33, 255, 167, 167, 167, 255]);
    let half = Pixels { width: 2, height: 1, bytes: [[255, 0, 0, 255], [0, 255, 0, 0]].concat() };
    assert_eq!(half.smaller(1, 1).bytes, [255, 0, 0, 128], "what cannot be seen has no colour");
}

#[test]
fn lines_of_a_block() {
    use conf_schema::table::synthetic_directive;
    let parse = |text: &str| FilterSetting::parse(&mut Cx::default(), &synthetic_directive("image_filter", text));
    for wrong in ["x", "resize", "resize 10", "resize 0 1", "resize x 1", "rotate 45", "rotate", "test 1", "crop - 0"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    let mut both = parse("resize 10 -").expect("right");
    both.append(parse("rotate 90").expect("right"));
    assert_eq!(both.mode, Mode::Resize);
    assert!(matches!(
        (&both.bounds, &both.angle),
        (Some((Number::Fixed(10), Number::Fixed(ANY))), Some(Number::Fixed(90)))
    ));
}

#[test]
fn a_head_cannot_name_more_memory_than_pictures_may_take() {
    let measure = |side: u32| Some(Measure { width: side, height: side, heavy: false });
    assert_eq!(work_bytes(1000, None), 1000);
    assert_eq!(work_bytes(1000, measure(100)), 1000 + 100 * 100 * PIXEL_BYTES);
    assert_eq!(work_bytes(1000, measure(u32::MAX)), 1000 + PIXELS_MAX * PIXEL_BYTES);
    assert_eq!(work_bytes(u64::MAX, measure(1)), u64::MAX);
}
