//! Tracks of a film that HLS carries: H.264, AAC and MP3 (ISO/IEC 14496-12, -14 and -15; QuickTime).

use crate::shared::film::boxes::{Wrong, inner_boxes, read_be32, read_be64};
use crate::shared::film::tables::{ChunkTable, Chunks, NumberTable, RunTable, Sizes};
use crate::shared::film::{Clock, Film};

/// Bytes of a visual sample entry before its boxes.
const VISUAL_BYTES: usize = 78;
/// Bytes of a sound sample entry before its boxes; versions 1 and 2 of QuickTime have more.
const SOUND_BYTES: usize = 28;
/// Maximum number of samples of a track: 25 hours of sound.
const SAMPLES_MAX: u32 = 1 << 22;

#[derive(Clone, Debug)]
pub enum Codec {
    H264 {
        /// Bytes of the length before each unit.
        length: usize,
        /// Parameter sets with start codes.
        sets: Vec<u8>,
    },
    Aac(Aac),
    Mp3 {
        /// Sampling rates of MPEG-2.
        low: bool,
    },
}

/// Fields of ADTS headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aac {
    /// Audio object type, less one.
    pub profile: u8,
    pub rate: u8,
    pub channels: u8,
}

#[derive(Debug)]
pub struct Track {
    pub codec: Codec,
    /// Units per second.
    pub scale: u32,
    /// Start of the media in the film, in units: the film shows a sample at its time plus this.
    pub shift: i64,
    /// End in the film, in units, by the edit list.
    pub limit: Option<i64>,
    pub times: RunTable,
    /// Differences of presentation and decoding.
    pub offsets: Option<RunTable>,
    /// Key frames; `None`: all samples.
    pub keys: Option<NumberTable>,
    pub in_chunks: ChunkTable,
    pub sizes: Sizes,
    pub chunks: Chunks,
}

#[derive(Debug, Default)]
pub struct Movie {
    pub video: Option<Track>,
    pub audio: Option<Track>,
}

impl Movie {
    /// Reads the `moov` box of at most `max` bytes: the first track of each kind with a supported codec.
    ///
    /// # Errors
    /// The file's fault.
    pub fn of(film: &Film, max: u64) -> Result<Movie, Wrong> {
        let name = film.name.as_str();
        let Some((at, length)) = film.find(b"moov")? else {
            return Err(format!("no mp4 moov atom was found in \"{name}\""));
        };
        if length > max {
            return Err(format!(
                "\"{name}\" mp4 moov atom is too large:{length}, you may want to increase hls_mp4_max_buffer_size"
            ));
        }
        let boxes = film.read(at, length)?;
        let boxes = inner_boxes(&boxes, name)?;
        let header = find(&boxes, b"mvhd").ok_or_else(|| format!("no mp4 mvhd atom was found in \"{name}\""))?;
        let scale = Clock::read(header, b"mvhd", name)?.scale;
        let mut movie = Movie::default();
        for (_, data) in boxes.iter().filter(|(kind, _)| kind == b"trak") {
            let Some(track) = Track::read(data, scale, name)? else { continue };
            let place = match track.codec {
                Codec::H264 { .. } => &mut movie.video,
                _ => &mut movie.audio,
            };
            place.get_or_insert(track);
        }
        if movie.video.is_none() && movie.audio.is_none() {
            return Err(format!("no tracks of H.264, AAC or MP3 were found in \"{name}\""));
        }
        Ok(movie)
    }
}

type Boxes<'a> = [([u8; 4], &'a [u8])];

fn find<'a>(boxes: &Boxes<'a>, name: &[u8; 4]) -> Option<&'a [u8]> {
    boxes.iter().find(|(kind, _)| kind == name).map(|(_, data)| *data)
}

impl Track {
    /// `None`: its codec is not supported, or it has no samples. `movie`: scale of edit lists.
    fn read(trak: &[u8], movie: u32, file: &str) -> Result<Option<Track>, Wrong> {
        let boxes = inner_boxes(trak, file)?;
        let Some(media) = find(&boxes, b"mdia") else { return Ok(None) };
        let media = inner_boxes(media, file)?;
        let Some(tables) = find(&media, b"minf").map(|data| inner_boxes(data, file)).transpose()? else {
            return Ok(None);
        };
        let Some(tables) = find(&tables, b"stbl").map(|data| inner_boxes(data, file)).transpose()? else {
            return Ok(None);
        };
        let Some(codec) = find(&tables, b"stsd").map(|data| codec(data, file)).transpose()?.flatten() else {
            return Ok(None);
        };
        let missing = |name: &str| format!("no mp4 {name} atom was found in \"{file}\"");
        let clock = Clock::read(find(&media, b"mdhd").ok_or_else(|| missing("mdhd"))?, b"mdhd", file)?;
        if clock.scale == 0 {
            return Err(format!("zero time scale in \"{file}\""));
        }
        let edits = find(&boxes, b"edts").map(|data| inner_boxes(data, file)).transpose()?.unwrap_or_default();
        let (shift, limit) = find(&edits, b"elst").map_or((0, None), |data| edit(data, movie, clock.scale));
        let times = RunTable::read(find(&tables, b"stts").ok_or_else(|| missing("stts"))?, b"stts", file)?;
        let offsets = find(&tables, b"ctts").map(|data| RunTable::read(data, b"ctts", file)).transpose()?;
        let keys = find(&tables, b"stss").map(|data| NumberTable::read(data, b"stss", file)).transpose()?;
        let in_chunks = ChunkTable::read(find(&tables, b"stsc").ok_or_else(|| missing("stsc"))?, file)?;
        let sizes = Sizes::read(find(&tables, b"stsz").ok_or_else(|| missing("stsz"))?, file)?;
        if sizes.count == 0 {
            return Ok(None);
        }
        if sizes.count > SAMPLES_MAX {
            return Err(format!("too many samples in \"{file}\": {}", sizes.count));
        }
        in_chunks.check(file)?;
        let chunks = match (find(&tables, b"stco"), find(&tables, b"co64")) {
            (Some(data), _) => Chunks::read(data, false, file)?,
            (None, Some(data)) => Chunks::read(data, true, file)?,
            (None, None) => return Err(missing("stco")),
        };
        let scale = clock.scale;
        Ok(Some(Track { codec, scale, shift, limit, times, offsets, keys, in_chunks, sizes, chunks }))
    }
}

/// Reads an edit list up to its first edit with media: start and end in the film. Further edits are played as if there were none.
fn edit(data: &[u8], movie: u32, scale: u32) -> (i64, Option<i64>) {
    let wide = data.first().is_some_and(|version| *version == 1);
    let count = read_be32(data, 4).unwrap_or(0) as usize;
    let units = |time: u64| {
        let units = u128::from(time) * u128::from(scale) / u128::from(movie.max(1));
        i64::try_from(units).unwrap_or(i64::MAX)
    };
    let row = if wide { 20 } else { 12 };
    let mut delay = 0u64;
    for (index, edit) in data.get(8..).unwrap_or_default().chunks_exact(row).take(count).enumerate() {
        let (duration, start) = match wide {
            true => (read_be64(edit, 0), read_be64(edit, 8).map(|time| time as i64)),
            false => (read_be32(edit, 0).map(u64::from), read_be32(edit, 4).map(|time| i64::from(time as i32))),
        };
        let (duration, start) = (duration.unwrap_or(0), start.unwrap_or(0));
        if start < 0 {
            delay = delay.saturating_add(duration);
            continue;
        }
        let delay_units = units(delay);
        let is_last = index + 1 == count;
        let limit = (duration > 0 && is_last).then(|| units(delay.saturating_add(duration)));
        return (delay_units.saturating_sub(start), limit);
    }
    (units(delay), None)
}

/// Reads the first sample description. `None`: not supported.
fn codec(stsd: &[u8], file: &str) -> Result<Option<Codec>, Wrong> {
    let entries = inner_boxes(stsd.get(8..).unwrap_or_default(), file)?;
    let Some((kind, entry)) = entries.first() else { return Ok(None) };
    Ok(match kind {
        b"avc1" | b"avc3" => {
            let boxes = inner_boxes(entry.get(VISUAL_BYTES..).unwrap_or_default(), file)?;
            find(&boxes, b"avcC").and_then(avc)
        }
        b".mp3" => Some(Codec::Mp3 { low: false }),
        b"mp4a" => {
            let more = match entry.get(8..10) {
                Some([0, 1]) => 16,
                Some([0, 2]) => 36,
                _ => 0,
            };
            let boxes = inner_boxes(entry.get(SOUND_BYTES + more..).unwrap_or_default(), file)?;
            let wave = find(&boxes, b"wave").map(|data| inner_boxes(data, file)).transpose()?.unwrap_or_default();
            find(&boxes, b"esds").or_else(|| find(&wave, b"esds")).and_then(|data| sound(data.get(4..)?))
        }
        _ => None,
    })
}

/// `AVCDecoderConfigurationRecord`
fn avc(data: &[u8]) -> Option<Codec> {
    let length = usize::from(data.get(4)? & 3) + 1;
    let mut sets = Vec::new();
    let mut at = 5;
    for mask in [0x1f, 0xff] {
        let count = *data.get(at)? & mask;
        at += 1;
        for _ in 0..count {
            let size = usize::from(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?));
            sets.extend_from_slice(&[0, 0, 0, 1]);
            sets.extend_from_slice(data.get(at + 2..at + 2 + size)?);
            at += 2 + size;
        }
    }
    Some(Codec::H264 { length, sets })
}

/// Takes a descriptor (ISO/IEC 14496-1) of this tag off the front.
fn descriptor<'a>(bytes: &mut &'a [u8], wanted: u8) -> Option<&'a [u8]> {
    let (tag, mut rest) = bytes.split_first()?;
    let mut size = 0usize;
    for _ in 0..4 {
        let (byte, more) = rest.split_first()?;
        rest = more;
        size = size << 7 | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    let (data, more) = rest.split_at_checked(size)?;
    *bytes = more;
    (*tag == wanted).then_some(data)
}

/// Reads an `ES_Descriptor`.
fn sound(mut bytes: &[u8]) -> Option<Codec> {
    let stream = descriptor(&mut bytes, 3)?;
    let flags = *stream.get(2)?;
    let mut at = 3 + if flags & 0x80 != 0 { 2 } else { 0 };
    if flags & 0x40 != 0 {
        at += 1 + usize::from(*stream.get(at)?);
    }
    at += if flags & 0x20 != 0 { 2 } else { 0 };
    let mut inner = stream.get(at..)?;
    let decoder = descriptor(&mut inner, 4)?;
    match *decoder.first()? {
        0x40 | 0x67 => {
            let mut inner = decoder.get(13..)?;
            aac(descriptor(&mut inner, 5)?).map(Codec::Aac)
        }
        0x69 => Some(Codec::Mp3 { low: true }),
        0x6b => Some(Codec::Mp3 { low: false }),
        _ => None,
    }
}

/// Reads an `AudioSpecificConfig`. `None`: ADTS cannot express it.
fn aac(config: &[u8]) -> Option<Aac> {
    let bits = config.iter().chain(&[0; 8]).take(8).fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let take = |at: u32, count: u32| (bits << at >> (64 - count)) as u8;
    let mut kind = take(0, 5);
    let (rate, mut channels) = (take(5, 4), take(9, 4));
    // SBR and PS: the core's type follows the extension's rate.
    if kind == 5 || kind == 29 {
        let wide = take(13, 4) == 15;
        kind = if wide { take(41, 5) } else { take(17, 5) };
    }
    // 7.1 has the configuration 7; beyond, ADTS has no bits.
    channels = if channels > 7 { 0 } else { channels };
    ((1..=4).contains(&kind) && rate < 13 && channels > 0).then(|| Aac { profile: kind - 1, rate, channels })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_is_described() {
        assert_eq!(aac(&[0x12, 0x10]), Some(Aac { profile: 1, rate: 4, channels: 2 }));
        // HE-AAC: a core of 24 kHz below 48 kHz.
        assert_eq!(aac(&[0x2b, 0x11, 0x88, 0]), Some(Aac { profile: 1, rate: 6, channels: 2 }));
        // xHE-AAC, a rate of its own, channels by an element.
        assert_eq!([aac(&[0xf9, 0x46, 0x40]), aac(&[0x17, 0x80, 0, 0, 0x10]), aac(&[0x12, 0]), aac(&[])], [None; 4]);
    }

    #[test]
    fn edits_move_the_media() {
        let list = |rows: &[[u32; 3]]| {
            let numbers = rows.iter().flatten().flat_map(|n| n.to_be_bytes());
            [vec![0; 4], (rows.len() as u32).to_be_bytes().to_vec(), numbers.collect()].concat()
        };
        let none = u32::MAX;
        assert_eq!(edit(&list(&[[2000, 512, 1]]), 1000, 10_000), (-512, Some(20_000)));
        assert_eq!(edit(&list(&[[500, none, 1], [2000, 0, 1]]), 1000, 10_000), (5000, Some(25_000)));
        assert_eq!(edit(&list(&[[0, 7, 1]]), 1000, 10_000), (-7, None));
        assert_eq!(edit(&list(&[[1, 7, 1], [2, 9, 1]]), 1000, 10_000), (-7, None));
        assert_eq!(edit(&list(&[[500, none, 1]]), 0, 1), (500, None));
        assert_eq!(edit(b"", 1000, 1), (0, None));
    }
}
