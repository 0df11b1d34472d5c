//! Detects the format and dimensions of an image by its first bytes.

/// Needed to detect a format.
pub const BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    Jpeg,
    Gif,
    Png,
    Webp,
}

impl ImageFormat {
    /// Returns `None` for bytes that are not an image.
    pub fn of(bytes: &[u8]) -> Option<ImageFormat> {
        match bytes.get(..BYTES)? {
            [0xff, 0xd8, ..] => Some(ImageFormat::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(ImageFormat::Gif),
            [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some(ImageFormat::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(ImageFormat::Webp),
            _ => None,
        }
    }
    pub fn media(self) -> &'static str {
        match self {
            ImageFormat::Jpeg => "image/jpeg",
            ImageFormat::Gif => "image/gif",
            ImageFormat::Png => "image/png",
            ImageFormat::Webp => "image/webp",
        }
    }
    pub fn name(self) -> &'static str {
        self.media().strip_prefix("image/").unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    pub width: u32,
    pub height: u32,
    /// Over a twentieth of the file is metadata: encodes it even without a change.
    pub heavy: bool,
}

impl Measure {
    /// Returns the number of pixels.
    pub fn pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }
}

/// Dimensions in the file's head; `None` without any.
pub fn measure_image(kind: ImageFormat, bytes: &[u8]) -> Option<Measure> {
    let at = |index: usize| bytes.get(index).map(|byte| u32::from(*byte));
    let big = |index: usize| Some(at(index)? << 8 | at(index + 1)?);
    let little = |index: usize| Some(at(index + 1)? << 8 | at(index)?);
    let (width, height) = match kind {
        ImageFormat::Jpeg => return jpeg(bytes),
        ImageFormat::Gif => (little(6)?, little(8)?),
        ImageFormat::Png => (big(16)? << 16 | big(18)?, big(20)? << 16 | big(22)?),
        ImageFormat::Webp if bytes.len() < 30 || bytes.get(12..15) != Some(b"VP8") => return None,
        ImageFormat::Webp => match bytes.get(15)? {
            // Not a key frame, or without its start code.
            b' ' if at(20)? & 1 == 1 || bytes.get(23..26) != Some(&[0x9d, 0x01, 0x2a]) => return None,
            b' ' => (little(26)? & 0x3fff, little(28)? & 0x3fff),
            b'L' if at(20)? != 0x2f => return None,
            b'L' => {
                let bits = little(21)? | little(23)? << 16;
                ((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1)
            }
            b'X' => ((little(24)? | at(26)? << 16) + 1, (little(27)? | at(29)? << 16) + 1),
            _ => return None,
        },
    };
    Some(Measure { width, height, heavy: false })
}

fn jpeg(bytes: &[u8]) -> Option<Measure> {
    let (mut size, mut more) = (None, 0usize);
    let mut at = 2;
    while at + 10 < bytes.len() {
        let &[first, marker, high, low] = bytes.get(at..)?.first_chunk()?;
        if first != 0xff || marker == 0xff {
            at += 1;
            continue;
        }
        if matches!(marker, 0xc0..=0xc3 | 0xc9..=0xcb) && size.is_none() {
            let [height1, height2, width1, width2] = *bytes.get(at + 5..)?.first_chunk()?;
            let pair = |one, two| u32::from(u16::from_be_bytes([one, two]));
            size = Some((pair(width1, width2), pair(height1, height2))).filter(|(width, height)| width * height != 0);
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        if matches!(marker, 0xe1..=0xef) {
            more += length;
        }
        at += 1 + length.max(1);
    }
    let (width, height) = size?;
    Some(Measure { width, height, heavy: bytes.len() / 20 < more })
}
