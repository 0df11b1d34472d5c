//! A fragment: the samples of an interval as a transport stream, which is written piece by piece.

use super::movie::{Aac, Codec, Movie, Track};
use super::timeline::{FilmSample, fragment_samples};
use super::ts::{self, ElementaryStream, PacketWriter, Unit};
use crate::shared::film::Film;
use crate::shared::film::boxes::Wrong;
use std::sync::Arc;

/// Start of a film, in ticks of 90 kHz: earlier times, of the decoder and of samples before an edit's start, stay positive.
const START_TICKS: i64 = 10 * 90_000;
/// Time between the clock and the decoder.
const DELAY_TICKS: i64 = 63_000;
/// Bytes and ticks of sound in one unit.
const SOUND_BYTES_MAX: usize = 2800;
const SOUND_TICKS_MAX: i64 = 18_000;
/// Bytes that are read at once.
const READ_BYTES: u64 = 64 * 1024;
/// Length of a frame with its header of ADTS: 13 bits.
const ADTS_BYTES_MAX: usize = 0x1fff;
/// An access unit delimiter that allows all pictures.
const DELIMITER: &[u8] = &[0, 0, 0, 1, 9, 0xf0];

#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// In milliseconds.
    pub start: u64,
    pub end: u64,
    /// Bytes of samples and of what surrounds them.
    pub bytes_max: u64,
}

/// A fragment, or the rest of one.
pub struct HlsFragment {
    film: Arc<Film>,
    sources: Vec<SampleSource>,
    writer: PacketWriter,
}

impl HlsFragment {
    /// Selects the samples of a fragment.
    ///
    /// # Errors
    /// A fragment beyond the limit.
    pub fn new(film: &Arc<Film>, movie: &Movie, range: Range) -> Result<HlsFragment, Wrong> {
        let mut left = range.bytes_max;
        let tracks: Vec<&Track> = [&movie.video, &movie.audio].into_iter().flatten().collect();
        let mut sources = Vec::new();
        for (index, track) in tracks.iter().enumerate() {
            let samples = fragment_samples(track, range.start, range.end, &mut left).ok_or_else(|| {
                let (name, start, end, max) = (&film.name, range.start, range.end, range.bytes_max);
                format!("\"{name}\" hls fragment of {start}ms to {end}ms needs more than {max} bytes, you may want to increase hls_buffers")
            })?;
            let (codec, scale) = (track.codec.clone(), track.scale);
            sources.push(SampleSource {
                index,
                codec,
                scale,
                samples: samples.into(),
                next: 0,
                reader: Reader::default(),
            });
        }
        let writer = PacketWriter::new(tracks.iter().map(|track| stream(track)).collect());
        Ok(HlsFragment { film: film.clone(), sources, writer })
    }

    /// Copies a fragment that has not begun.
    pub fn again(&self) -> HlsFragment {
        let sources = self.sources.iter().map(|source| SampleSource {
            index: source.index,
            codec: source.codec.clone(),
            scale: source.scale,
            samples: source.samples.clone(),
            next: 0,
            reader: Reader::default(),
        });
        HlsFragment { film: self.film.clone(), sources: sources.collect(), writer: self.writer.clone() }
    }

    /// Bytes of memory that a fragment holds between two pieces.
    pub fn memory(&self) -> u64 {
        let samples: usize = self.sources.iter().map(|source| source.samples.len() * size_of::<FilmSample>()).sum();
        samples as u64 + self.sources.len() as u64 * READ_BYTES
    }

    /// Writes the next units, about this many bytes; nothing at the end.
    ///
    /// # Errors
    /// The file's fault.
    pub fn write(&mut self, bytes: usize) -> Result<Vec<u8>, Wrong> {
        let mut data = Vec::new();
        // By the time of decoding.
        while self.writer.length() < bytes
            && let Some((_, source)) =
                self.sources.iter_mut().filter_map(|one| Some((one.next()?, one))).min_by_key(|(time, _)| *time)
        {
            source.write(&self.film, &mut self.writer, &mut data)?;
        }
        Ok(self.writer.take())
    }
}

/// Writes a whole fragment.
///
/// # Errors
/// The file's fault, or a fragment beyond the limit.
pub fn write_fragment(film: &Arc<Film>, movie: &Movie, range: Range) -> Result<Vec<u8>, Wrong> {
    HlsFragment::new(film, movie, range)?.write(usize::MAX)
}

fn stream(track: &Track) -> ElementaryStream {
    match track.codec {
        Codec::H264 { .. } => ts::H264,
        Codec::Aac(_) => ts::AAC,
        Codec::Mp3 { low: false } => ts::MPEG1_AUDIO,
        Codec::Mp3 { low: true } => ts::MPEG2_AUDIO,
    }
}

struct SampleSource {
    index: usize,
    codec: Codec,
    scale: u32,
    samples: Arc<[FilmSample]>,
    /// Index of the next sample.
    next: usize,
    reader: Reader,
}

impl SampleSource {
    /// Returns the decoding time of the next sample, in ticks.
    fn next(&self) -> Option<i64> {
        Some(ticks(self.samples.get(self.next)?.dts, self.scale))
    }

    /// Writes the next sample, with those of sound that follow it shortly.
    fn write(&mut self, film: &Film, writer: &mut PacketWriter, data: &mut Vec<u8>) -> Result<(), Wrong> {
        let Some(first) = self.samples.get(self.next) else { return Ok(()) };
        self.next += 1;
        data.clear();
        let scale = self.scale;
        let (pts, dts) = (ticks(first.pts, scale), ticks(first.dts, scale));
        match &self.codec {
            Codec::H264 { length, sets } => picture(self.reader.read(film, first)?, *length, sets, first.key, data)
                .ok_or_else(|| format!("invalid sample of H.264 at {} in \"{}\"", first.at, film.name))?,
            codec => {
                self.reader.sound(film, first, codec, data)?;
                while let Some(next) = self.samples.get(self.next).filter(|next| {
                    data.len() + next.size as usize <= SOUND_BYTES_MAX
                        && ticks(next.pts, scale) - pts <= SOUND_TICKS_MAX
                }) {
                    self.next += 1;
                    self.reader.sound(film, next, codec, data)?;
                }
            }
        }
        writer.unit(&Unit {
            stream: self.index,
            pts: pts as u64,
            dts: (dts != pts).then_some(dts as u64),
            clock: (self.index == 0).then_some((dts - DELAY_TICKS) as u64),
            key: first.key,
            last: self.next == self.samples.len(),
            data,
        });
        Ok(())
    }
}

/// Time in the stream. Times before the start of a stream wrap.
fn ticks(units: i64, scale: u32) -> i64 {
    let ticks = (i128::from(units) * 90_000).div_euclid(i128::from(scale.max(1)));
    // 33 bits count; the sum of two does not overflow.
    (ticks % (1 << 40)) as i64 + START_TICKS
}

/// Reads samples in order, many at once.
#[derive(Default)]
struct Reader {
    at: u64,
    bytes: Vec<u8>,
}

impl Reader {
    fn read(&mut self, film: &Film, sample: &FilmSample) -> Result<&[u8], Wrong> {
        let size = u64::from(sample.size);
        let end = sample.at.checked_add(size).filter(|end| *end <= film.size);
        let end = end.ok_or_else(|| format!("\"{}\" mp4 file truncated", film.name))?;
        if sample.at < self.at || end > self.at + self.bytes.len() as u64 {
            let length = READ_BYTES.min(film.size - sample.at).max(size);
            self.bytes = film.read(sample.at, length)?;
            self.at = sample.at;
        }
        let start = (sample.at - self.at) as usize;
        Ok(self.bytes.get(start..start + size as usize).unwrap_or_default())
    }

    fn sound(&mut self, film: &Film, sample: &FilmSample, codec: &Codec, out: &mut Vec<u8>) -> Result<(), Wrong> {
        if let Codec::Aac(aac) = codec {
            let head = adts(aac, sample.size as usize)
                .ok_or_else(|| format!("too large sample of AAC at {} in \"{}\"", sample.at, film.name))?;
            out.extend_from_slice(&head);
        }
        out.extend_from_slice(self.read(film, sample)?);
        Ok(())
    }
}

/// Returns a header of ADTS (ISO/IEC 13818-7, 6.2) for a frame; `None`: it is too large.
fn adts(aac: &Aac, size: usize) -> Option<[u8; 7]> {
    let length = size.checked_add(7).filter(|length| *length <= ADTS_BYTES_MAX)?;
    Some([
        0xff,
        0xf1,
        aac.profile << 6 | aac.rate << 2 | aac.channels >> 2,
        (aac.channels & 3) << 6 | (length >> 11) as u8,
        (length >> 3) as u8,
        (length << 5) as u8 | 0x1f,
        0xfc,
    ])
}

/// Writes units with start codes (ISO/IEC 14496-10, annex B) in place of lengths, with a delimiter, and with parameter sets before a key
/// frame. `None`: a unit exceeds the sample.
fn picture(mut sample: &[u8], length: usize, sets: &[u8], key: bool, out: &mut Vec<u8>) -> Option<()> {
    out.extend_from_slice(DELIMITER);
    let mut wanted = key;
    while !sample.is_empty() {
        let (size, rest) = sample.split_at_checked(length)?;
        let size = size.iter().fold(0usize, |size, byte| size << 8 | usize::from(*byte));
        let (unit, rest) = rest.split_at_checked(size)?;
        sample = rest;
        match unit.first().map(|byte| byte & 0x1f) {
            None | Some(9) => continue,
            // The sample has its own sets.
            Some(7) => wanted = false,
            // Slices.
            Some(1..=5) if wanted => {
                out.extend_from_slice(sets);
                wanted = false;
            }
            _ => {}
        }
        out.extend_from_slice(&[0, 0, 0, 1]);
        out.extend_from_slice(unit);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_sound_have_headers() {
        let aac = Aac { profile: 1, rate: 4, channels: 2 };
        assert_eq!(adts(&aac, 371 - 7), Some([0xff, 0xf1, 0x50, 0x80, 0x2e, 0x7f, 0xfc]));
        assert!(adts(&aac, 8184).is_some() && adts(&aac, 8185).is_none());
    }

    #[test]
    fn pictures_have_start_codes_and_sets() {
        let made = |sample: &[u8], length, key| {
            let mut out = Vec::new();
            picture(sample, length, b"SETS", key, &mut out).map(|()| out)
        };
        let of = |parts: &[&[u8]]| Some([DELIMITER, &parts.concat()].concat());
        assert_eq!(
            made(&[0, 0, 0, 2, 0x65, 1, 0, 0, 0, 1, 0x65], 4, true),
            of(&[b"SETS", &[0, 0, 0, 1, 0x65, 1, 0, 0, 0, 1, 0x65]])
        );
        assert_eq!(made(&[0, 2, 9, 16, 0, 1, 0x41], 2, false), of(&[&[0, 0, 0, 1, 0x41]]));
        assert_eq!(made(&[1, 0x67, 1, 0x65], 1, true), of(&[&[0, 0, 0, 1, 0x67, 0, 0, 0, 1, 0x65]]));
        assert_eq!([made(&[0, 0, 0], 4, true), made(&[0, 0, 0, 2, 1], 4, true)], [None, None]);
    }

    #[test]
    fn times_of_any_sample_are_bounded() {
        assert_eq!([ticks(0, 1), ticks(-1, 2), ticks(1, 3)], [900_000, 855_000, 930_000]);
        for units in [i64::MIN, i64::MAX] {
            assert!((ticks(units, 1) - DELAY_TICKS).abs() < 1 << 41);
        }
    }
}
