//! What a file is, and how large its picture, by its first bytes.

/// As much must be there of anything.
pub const BYTES: usize = 16;

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Jpeg,
    Gif,
    Png,
    Webp,
}

impl Kind {
    /// `None`: it is no picture.
    pub fn of(bytes: &[u8]) -> Option<Kind> {
        match bytes.get(..BYTES)? {
            [0xff, 0xd8, ..] => Some(Kind::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Kind::Gif),
            [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some(Kind::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Kind::Webp),
            _ => None,
        }
    }
    pub fn media(self) -> &'static str {
        match self {
            Kind::Jpeg => "image/jpeg",
            Kind::Gif => "image/gif",
            Kind::Png => "image/png",
            Kind::Webp => "image/webp",
        }
    }
    pub fn name(self) -> &'static str {
        self.media().strip_prefix("image/").unwrap_or_default()
    }
}

/// A picture's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    pub width: u32,
    pub height: u32,
    /// More than a twentieth of the file is not picture: it is written anew even where it is small enough.
    pub heavy: bool,
}

/// The size that a file says its picture has; `None`: it says none.
pub fn measure(kind: Kind, bytes: &[u8]) -> Option<Measure> {
    let at = |index: usize| bytes.get(index).map(|byte| u32::from(*byte));
    let big = |index: usize| Some(at(index)? << 8 | at(index + 1)?);
    let little = |index: usize| Some(at(index + 1)? << 8 | at(index)?);
    let (width, height) = match kind {
        Kind::Jpeg => return jpeg(bytes),
        Kind::Gif => (little(6)?, little(8)?),
        Kind::Png => (big(16)? << 16 | big(18)?, big(20)? << 16 | big(22)?),
        Kind::Webp if bytes.len() < 30 || bytes.get(12..15) != Some(b"VP8") => return None,
        Kind::Webp => match bytes.get(15)? {
            // Not a key frame, or not begun as one.
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
