//! Samples of a film in time: borders of fragments, and the samples of one.

use super::movie::{Codec, Movie, Track};
use super::ts::PACKET_BYTES;
use crate::shared::film::boxes::Wrong;

/// Maximum number of fragments of a playlist.
const FRAGMENTS_MAX: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilmSample {
    pub at: u64,
    pub size: u32,
    /// Times of decoding and presentation in the film, in units of the track.
    pub dts: i64,
    pub pts: i64,
    pub duration: u32,
    pub key: bool,
}

/// Iterates over the samples of a track, in the order of decoding.
pub struct Samples<'a> {
    track: &'a Track,
    index: u32,
    time: i64,
    /// Index of a run, and samples taken from it.
    times: (usize, u32),
    offsets: (usize, u32),
    key: usize,
    chunk: usize,
    run: usize,
    /// Samples taken from the chunk, and their bytes.
    taken: (u32, u64),
}

impl<'a> Samples<'a> {
    pub fn of(track: &'a Track) -> Samples<'a> {
        Samples { track, index: 0, time: 0, times: (0, 0), offsets: (0, 0), key: 0, chunk: 0, run: 0, taken: (0, 0) }
    }

    /// Finds the chunk of the next sample.
    fn seek(&mut self) -> Option<u64> {
        loop {
            let place = *self.track.chunks.places.get(self.chunk)?;
            let runs = &self.track.in_chunks.runs;
            while runs.get(self.run + 1).is_some_and(|next| next.chunk as usize <= self.chunk + 1) {
                self.run += 1;
            }
            if self.taken.0 < runs.get(self.run)?.samples {
                return Some(place);
            }
            self.chunk += 1;
            self.taken = (0, 0);
        }
    }
}

/// Takes one from a run; `None` behind the last.
fn take(runs: &[(u32, u32)], place: &mut (usize, u32)) -> Option<u32> {
    loop {
        let (count, value) = *runs.get(place.0)?;
        if place.1 < count {
            place.1 += 1;
            return Some(value);
        }
        *place = (place.0 + 1, 0);
    }
}

impl Iterator for Samples<'_> {
    type Item = FilmSample;
    fn next(&mut self) -> Option<FilmSample> {
        let track = self.track;
        if self.index >= track.sizes.count {
            return None;
        }
        let chunk = self.seek()?;
        let size = match track.sizes.uniform {
            0 => *track.sizes.each.get(self.index as usize)?,
            uniform => uniform,
        };
        let duration = take(&track.times.runs, &mut self.times)?;
        let offset = track.offsets.as_ref().and_then(|offsets| take(&offsets.runs, &mut self.offsets)).unwrap_or(0);
        self.index += 1;
        let key = track.keys.as_ref().is_none_or(|keys| {
            while keys.numbers.get(self.key).is_some_and(|number| *number < self.index) {
                self.key += 1;
            }
            keys.numbers.get(self.key) == Some(&self.index)
        });
        let dts = self.time.saturating_add(track.shift);
        let at = chunk.saturating_add(self.taken.1);
        // Offsets may be negative, in files of either version.
        let pts = dts.saturating_add(i64::from(offset as i32));
        self.time = self.time.saturating_add(i64::from(duration));
        self.taken = (self.taken.0 + 1, self.taken.1.saturating_add(u64::from(size)));
        Some(FilmSample { at, size, dts, pts, duration, key })
    }
}

impl Track {
    /// First unit that is not before this time in milliseconds.
    fn unit(&self, ms: u64) -> i64 {
        let units = (u128::from(ms) * u128::from(self.scale)).div_ceil(1000);
        i64::try_from(units).unwrap_or(i64::MAX)
    }
    fn milliseconds(&self, units: i64) -> u64 {
        u64::try_from(i128::from(units) * 1000 / i128::from(self.scale.max(1))).unwrap_or(0)
    }
    fn is_shown(&self, sample: &FilmSample) -> bool {
        sample.size > 0 && self.limit.is_none_or(|limit| sample.pts < limit)
    }
    /// Milliseconds that include the start of each sample, and the duration of the last one.
    fn end(&self, last_pts: i64, end: i64) -> u64 {
        let end = self.limit.map_or(end, |limit| limit.min(end));
        let whole = (i128::from(end.max(0)) * 1000).div_euclid(i128::from(self.scale.max(1)));
        let exact = whole * i128::from(self.scale) == i128::from(end.max(0)) * 1000;
        let end = u64::try_from(whole + i128::from(!exact)).unwrap_or(u64::MAX);
        end.max(self.milliseconds(last_pts).saturating_add(1))
    }
}

/// Returns times in milliseconds: starts of fragments of at least `length`, and the end. Between two times, a fragment
/// begins with a key frame.
///
/// # Errors
/// The film has too many fragments.
pub fn fragment_borders(
    movie: &Movie,
    start: u64,
    end: Option<u64>,
    length: u64,
    file: &str,
) -> Result<Vec<u64>, Wrong> {
    let length = length.max(1);
    let mut borders = vec![start];
    let mut last = 0;
    let mut next = start.saturating_add(length);
    let too_many = || format!("\"{file}\" has too many hls fragments");
    for track in [&movie.video, &movie.audio].into_iter().flatten() {
        let is_video = matches!(track.codec, Codec::H264 { .. });
        let (mut last_pts, mut track_end) = (0, 0);
        let mut unit = track.unit(next);
        for sample in Samples::of(track).filter(|sample| track.is_shown(sample)) {
            last_pts = last_pts.max(sample.pts);
            track_end = track_end.max(sample.pts.saturating_add(i64::from(sample.duration)));
            if is_video && sample.key && sample.pts >= unit {
                let at = track.milliseconds(sample.pts);
                if end.is_some_and(|end| at >= end) {
                    unit = i64::MAX;
                    continue;
                }
                borders.push(at);
                if borders.len() > FRAGMENTS_MAX {
                    return Err(too_many());
                }
                next = at.saturating_add(length);
                unit = track.unit(next);
            }
        }
        last = track.end(last_pts, track_end).max(last);
    }
    let end = end.map_or(last, |end| end.min(last));
    if movie.video.is_none() {
        if (end.saturating_sub(start) / length) as usize > FRAGMENTS_MAX {
            return Err(too_many());
        }
        while next < end {
            borders.push(next);
            next = next.saturating_add(length);
        }
    }
    if end <= start {
        return Ok(Vec::new());
    }
    borders.push(end);
    Ok(borders)
}

/// Returns the samples of a fragment: from the first key frame that is not before `start` to before the one that is not before `end`,
/// so that adjacent fragments share and miss none. `left`: bytes that remain for samples with what surrounds them.
pub fn fragment_samples(track: &Track, start: u64, end: u64, left: &mut u64) -> Option<Vec<FilmSample>> {
    let (is_video, sets) = match &track.codec {
        Codec::H264 { sets, .. } => (true, sets.len()),
        _ => (false, 0),
    };
    let (from, to) = (track.unit(start), track.unit(end));
    // Decoders need the frames before the first shown one.
    let primed = -i64::from(track.scale / 2);
    let (mut found, mut taking) = (Vec::new(), false);
    let whole = *left;
    for sample in Samples::of(track) {
        if is_video {
            if sample.key {
                if sample.pts >= to {
                    break;
                }
                if start == 0 && sample.pts <= 0 {
                    found.clear();
                    *left = whole;
                }
                taking |= sample.pts >= from;
            }
            taking |= start == 0;
        } else {
            if sample.pts >= to {
                break;
            }
            taking = sample.pts >= if start == 0 { primed } else { from };
        }
        if taking && track.is_shown(&sample) {
            // Each sample takes a packet at least, and key frames have parameter sets.
            let more = if sample.key { PACKET_BYTES + sets } else { PACKET_BYTES };
            *left = left.checked_sub(u64::from(sample.size).saturating_add(more as u64))?;
            found.push(sample);
        }
    }
    Some(found)
}
