//! Rebuilds a film's boxes and tables for a time range, and selects the file's bytes that follow.

use crate::shared::film::boxes::{self, BoxHead, Wrong, inner_boxes, write_box};
use crate::shared::film::tables::{ChunkTable, Chunks, NumberTable, RunTable, SamplePlace, Sizes};
use crate::shared::film::{BOXES_MAX, Clock, Film};

const TYPE_BYTES_MAX: u64 = 1024;

#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub start: u64,
    /// Milliseconds; 0: to the end.
    pub length: u64,
    pub key_frame: bool,
    /// Maximum number of bytes of `moov`.
    pub tables_max: u64,
}

#[derive(Debug)]
pub enum Rebuilt {
    AsItIs,
    /// New head, then a range of the file.
    New {
        head: Vec<u8>,
        start: u64,
        length: u64,
    },
}

/// Fails with the file's fault.
pub fn rebuild_film(film: &Film, cut: &Cut) -> Result<Rebuilt, Wrong> {
    let name = film.name.as_str();
    let (mut kind, mut movie, mut data_end) = (None, None, None);
    let mut at = 0;
    for _ in 0..BOXES_MAX {
        if at >= film.size {
            break;
        }
        let left = film.size - at;
        let Some(head) = boxes::parse_head(&film.read(at, left.min(16))?, left, name)? else { break };
        let BoxHead { head: own, data, .. } = head;
        match &head.name {
            b"ftyp" if data > TYPE_BYTES_MAX => {
                return Err(format!("\"{name}\" mp4 ftyp atom is too large:{data}"));
            }
            b"ftyp" => kind = Some(film.read(at + own, data)?),
            b"moov" => {
                if data_end.is_none() && cut.start == 0 && cut.length == 0 {
                    return Ok(Rebuilt::AsItIs);
                }
                if movie.is_some() {
                    return Err(format!("duplicate mp4 moov atom in \"{name}\""));
                }
                if data > cut.tables_max {
                    return Err(format!(
                        "\"{name}\" mp4 moov atom is too large:{data}, you may want to increase mp4_max_buffer_size"
                    ));
                }
                movie = Some(Movie::read(&film.read(at + own, data)?, cut, name)?);
            }
            b"mdat" => data_end = Some(at + own + data),
            _ => {}
        }
        if movie.is_some() && data_end.is_some() {
            break;
        }
        at += own + data;
    }
    let movie = movie.filter(|movie| !movie.tracks.is_empty());
    let movie = movie.ok_or_else(|| format!("no mp4 trak atoms were found in \"{name}\""))?;
    let data_end = data_end.ok_or_else(|| format!("no mp4 mdat atom was found in \"{name}\""))?;
    movie.cut(film, cut, kind, data_end)
}

struct Movie {
    header: Option<Vec<u8>>,
    tracks: Vec<Track>,
}

fn units(milliseconds: u64, scale: u32) -> u64 {
    (u128::from(milliseconds) * u128::from(scale) / 1000).min(u128::from(u64::MAX)) as u64
}

fn remaining(duration: u64, scale: u32, cut: &Cut) -> u64 {
    let rest = duration.saturating_sub(units(cut.start, scale));
    if cut.length == 0 { rest } else { rest.min(units(cut.length, scale)) }
}

impl Movie {
    fn read(data: &[u8], cut: &Cut, file: &str) -> Result<Movie, Wrong> {
        let (mut header, mut tracks, mut scale) = (None, Vec::new(), 0);
        for (name, data) in inner_boxes(data, file)? {
            match &name {
                b"mvhd" => {
                    let clock = Clock::read(data, b"mvhd", file)?;
                    if clock.duration < units(cut.start, clock.scale) {
                        return Err(format!("\"{file}\" mp4 start time exceeds file duration"));
                    }
                    let mut data = data.to_vec();
                    clock.set(&mut data, remaining(clock.duration, clock.scale, cut));
                    scale = clock.scale;
                    header = Some(data);
                }
                b"trak" => tracks.extend(Track::read(data, scale, cut, file)?),
                b"cmov" => {
                    return Err(format!("\"{file}\" mp4 compressed moov atom (cmov) is not supported"));
                }
                _ => {}
            }
        }
        Ok(Movie { header, tracks })
    }

    fn cut(mut self, film: &Film, cut: &Cut, kind: Option<Vec<u8>>, data_end: u64) -> Result<Rebuilt, Wrong> {
        let name = film.name.as_str();
        let (mut start, mut end) = (film.size, 0);
        for track in &mut self.tracks {
            if let Some(span) = track.cut(film, cut, data_end)? {
                start = start.min(span.0);
                end = end.max(span.1);
            }
        }
        if end <= start {
            return Err(format!("no data between start time and end time in \"{name}\""));
        }
        if start >= data_end {
            return Err(format!("start time is out mp4 mdat atom in \"{name}\""));
        }
        let mut head = Vec::new();
        if let Some(kind) = &kind {
            write_box(&mut head, b"ftyp", |out| out.extend_from_slice(kind));
        }
        let length = end - start;
        let data_head: u64 = if length > u64::from(u32::MAX) - boxes::HEAD_BYTES { 16 } else { 8 };
        // All chunks move equally; the distance depends on the head's length, which does not depend on it.
        let before = head.len() as u64 + self.write(0).len() as u64 + data_head;
        let moved = before.wrapping_sub(start) as i64;
        head.extend_from_slice(&self.write(moved));
        match data_head {
            16 => {
                head.extend_from_slice(&1u32.to_be_bytes());
                head.extend_from_slice(b"mdat");
                head.extend_from_slice(&(length + data_head).to_be_bytes());
            }
            _ => {
                head.extend_from_slice(&((length + data_head) as u32).to_be_bytes());
                head.extend_from_slice(b"mdat");
            }
        }
        Ok(Rebuilt::New { head, start, length })
    }

    fn write(&self, moved: i64) -> Vec<u8> {
        let mut out = Vec::new();
        write_box(&mut out, b"moov", |out| {
            if let Some(header) = &self.header {
                write_box(out, b"mvhd", |out| out.extend_from_slice(header));
            }
            for track in &self.tracks {
                track.write(moved, out);
            }
        });
        out
    }
}

#[derive(Default)]
struct Track {
    header: Option<Vec<u8>>,
    shown: u64,
    media: Option<(Vec<u8>, MediaClock)>,
    handler: Option<Vec<u8>>,
    medium: Option<([u8; 4], Vec<u8>)>,
    sources: Option<Vec<u8>>,
    descriptions: Option<Vec<u8>>,
    times: Option<RunTable>,
    keys: Option<NumberTable>,
    offsets: Option<RunTable>,
    in_chunks: Option<ChunkTable>,
    sizes: Option<Sizes>,
    chunks: Option<Chunks>,
    /// Sent duration before the requested start, in the track's scale.
    prefix: u64,
}

#[derive(Clone, Copy)]
struct MediaClock {
    clock: Clock,
    rest: u64,
}

fn once<T>(slot: &mut Option<T>, value: T, name: &str, file: &str) -> Result<(), Wrong> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("duplicate mp4 {name} atom in \"{file}\"")),
    }
}

impl Track {
    /// Returns `None` for a track that ends before the requested start.
    fn read(data: &[u8], scale: u32, cut: &Cut, file: &str) -> Result<Option<Track>, Wrong> {
        let mut track = Track::default();
        for (name, data) in inner_boxes(data, file)? {
            match &name {
                b"tkhd" => {
                    let clock = Clock::read(data, b"tkhd", file)?;
                    if clock.duration <= units(cut.start, scale) {
                        return Ok(None);
                    }
                    track.shown = remaining(clock.duration, scale, cut);
                    let mut data = data.to_vec();
                    clock.set(&mut data, track.shown);
                    once(&mut track.header, data, "tkhd", file)?;
                }
                b"mdia" if !track.read_media(data, cut, file)? => return Ok(None),
                _ => {}
            }
        }
        Ok(Some(track))
    }

    fn read_media(&mut self, data: &[u8], cut: &Cut, file: &str) -> Result<bool, Wrong> {
        for (name, data) in inner_boxes(data, file)? {
            match &name {
                b"mdhd" => {
                    let clock = Clock::read(data, b"mdhd", file)?;
                    if clock.duration <= units(cut.start, clock.scale) {
                        return Ok(false);
                    }
                    let rest = remaining(clock.duration, clock.scale, cut);
                    once(&mut self.media, (data.to_vec(), MediaClock { clock, rest }), "mdhd", file)?;
                }
                b"hdlr" => once(&mut self.handler, data.to_vec(), "hdlr", file)?,
                b"minf" => {
                    for (name, data) in inner_boxes(data, file)? {
                        match &name {
                            b"vmhd" | b"smhd" => once(&mut self.medium, (name, data.to_vec()), "vmhd/smhd", file)?,
                            b"dinf" => once(&mut self.sources, data.to_vec(), "dinf", file)?,
                            b"stbl" => self.read_tables(data, file)?,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(true)
    }

    fn read_tables(&mut self, data: &[u8], file: &str) -> Result<(), Wrong> {
        for (name, data) in inner_boxes(data, file)? {
            match &name {
                b"stsd" => once(&mut self.descriptions, data.to_vec(), "stsd", file)?,
                b"stts" => once(&mut self.times, RunTable::read(data, b"stts", file)?, "stts", file)?,
                b"stss" => once(&mut self.keys, NumberTable::read(data, b"stss", file)?, "stss", file)?,
                b"ctts" => once(&mut self.offsets, RunTable::read(data, b"ctts", file)?, "ctts", file)?,
                b"stsc" => once(&mut self.in_chunks, ChunkTable::read(data, file)?, "stsc", file)?,
                b"stsz" => once(&mut self.sizes, Sizes::read(data, file)?, "stsz", file)?,
                b"stco" => once(&mut self.chunks, Chunks::read(data, false, file)?, "stco/co64", file)?,
                b"co64" => once(&mut self.chunks, Chunks::read(data, true, file)?, "stco/co64", file)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Cuts the tables; returns the needed byte range of the file, if any.
    fn cut(&mut self, film: &Film, cut: &Cut, data_end: u64) -> Result<Option<(u64, u64)>, Wrong> {
        let file = film.name.as_str();
        let (start, end) = self.cut_times(cut, file)?;
        if let Some(keys) = &mut self.keys {
            keys.crop(start, end);
        }
        if let Some(offsets) = &mut self.offsets {
            offsets.drop_first(start);
            if let Some(end) = end {
                offsets.keep_first(end - start);
            }
        }
        let missing = |name: &str| format!("no mp4 {name} atoms were found in \"{file}\"");
        let in_chunks = self.in_chunks.as_mut().ok_or_else(|| missing("stsc"))?;
        let chunks = self.chunks.as_mut().ok_or_else(|| missing("stco"))?;
        let kind = if chunks.wide { "co64" } else { "stco" };
        in_chunks.check(file)?;
        let count = chunks.places.len() as u64;
        let from = in_chunks.place(start, count, "start", file)?;
        let to = match end {
            Some(end) => Some(in_chunks.place(end, count, "end", file)?),
            None => None,
        };
        let first_bytes = match &self.sizes {
            Some(sizes) if start >= u64::from(sizes.count) => {
                return Err(format!("start time is out mp4 stsz samples in \"{file}\""));
            }
            Some(sizes) => sizes.before(start, from.before),
            None => 0,
        };
        // Bytes of the last chunk's needed samples.
        let last_bytes = match (&self.sizes, end, to) {
            (Some(sizes), Some(end), Some(_)) if end > u64::from(sizes.count) => {
                return Err(format!("end time is out mp4 stsz samples in \"{file}\""));
            }
            (Some(sizes), Some(end), Some(to)) => sizes.before(end, samples_at_end(in_chunks, from, to, end - start)),
            _ => 0,
        };
        if first_bytes > film.size || last_bytes > film.size {
            let which = if first_bytes > film.size { "start" } else { "end" };
            return Err(format!("too large mp4 {which} samples size in \"{file}\""));
        }
        in_chunks.crop(from, to, count);
        if let Some(sizes) = &mut self.sizes {
            sizes.crop(start, end);
        }
        if from.chunk >= count {
            return Err(format!("start time is out mp4 {kind} chunks in \"{file}\""));
        }
        let stop = to.map_or(count, |to| to.chunk + u64::from(to.before > 0));
        if stop > count {
            return Err(format!("end time is out mp4 {kind} chunks in \"{file}\""));
        }
        let place = |chunk: u64, bytes: u64| {
            let place = chunks.places.get(chunk as usize).copied().unwrap_or(u64::MAX);
            match place.checked_add(bytes).filter(|place| *place <= film.size) {
                Some(place) => Ok(place),
                None => Err(format!("too large chunk offset in \"{file}\"")),
            }
        };
        let begin = place(from.chunk, first_bytes)?;
        let until = match to {
            None => data_end,
            Some(_) if stop > from.chunk => {
                // In the first chunk, preceding bytes count from the chunk's start.
                place(stop - 1, last_bytes)?
            }
            Some(_) => begin,
        };
        chunks.places.truncate(stop as usize);
        chunks.places.drain(..from.chunk as usize);
        if let Some(first) = chunks.places.first_mut() {
            *first = begin;
        }
        Ok((!chunks.places.is_empty()).then_some((begin, until)))
    }

    /// Cuts the time table; returns the first sample and the end (`None`: all).
    fn cut_times(&mut self, cut: &Cut, file: &str) -> Result<(u64, Option<u64>), Wrong> {
        let scale = self.media.as_ref().map_or(0, |(_, media)| media.clock.scale);
        let times = self.times.as_mut().ok_or_else(|| format!("no mp4 stts atoms were found in \"{file}\""))?;
        let asked = times.sample_at(units(cut.start, scale));
        let asked = asked.ok_or_else(|| format!("start time is out mp4 stts samples in \"{file}\""))?;
        let mut start = asked;
        if cut.key_frame
            && let Some(keys) = &self.keys
        {
            if keys.numbers.contains(&0) {
                return Err(format!("zero sync sample in \"{file}\""));
            }
            // Sample numbers start at 1, ascending.
            let before = keys.numbers.iter().take_while(|number| u64::from(**number) <= asked + 1).last();
            start = before.map_or(asked, |number| u64::from(*number) - 1);
        }
        self.prefix = times.duration_of(asked).saturating_sub(times.duration_of(start));
        times.drop_first(start);
        if cut.length == 0 {
            return Ok((start, None));
        }
        let length = match times.sample_at(units(cut.length, scale).saturating_add(self.prefix)) {
            Some(length) => {
                times.keep_first(length);
                length
            }
            None => times.samples(),
        };
        Ok((start, Some(start + length)))
    }

    fn write(&self, moved: i64, out: &mut Vec<u8>) {
        let raw = |out: &mut Vec<u8>, name: &[u8; 4], data: &Option<Vec<u8>>| {
            if let Some(data) = data {
                write_box(out, name, |out| out.extend_from_slice(data));
            }
        };
        write_box(out, b"trak", |out| {
            raw(out, b"tkhd", &self.header);
            if self.prefix > 0 {
                write_box(out, b"edts", |out| write_box(out, b"elst", |out| self.write_edit(out)));
            }
            write_box(out, b"mdia", |out| {
                if let Some((data, media)) = &self.media {
                    let mut data = data.clone();
                    media.clock.set(&mut data, media.rest.saturating_add(self.prefix));
                    write_box(out, b"mdhd", |out| out.extend_from_slice(&data));
                }
                raw(out, b"hdlr", &self.handler);
                write_box(out, b"minf", |out| {
                    if let Some((name, data)) = &self.medium {
                        write_box(out, name, |out| out.extend_from_slice(data));
                    }
                    raw(out, b"dinf", &self.sources);
                    write_box(out, b"stbl", |out| self.write_tables(moved, out));
                });
            });
        });
    }

    fn write_tables(&self, moved: i64, out: &mut Vec<u8>) {
        if let Some(descriptions) = &self.descriptions {
            write_box(out, b"stsd", |out| out.extend_from_slice(descriptions));
        }
        if let Some(times) = &self.times {
            times.write(b"stts", out);
        }
        if let Some(keys) = &self.keys {
            keys.write(b"stss", out);
        }
        if let Some(offsets) = self.offsets.as_ref().filter(|offsets| !offsets.runs.is_empty()) {
            offsets.write(b"ctts", out);
        }
        if let Some(in_chunks) = &self.in_chunks {
            in_chunks.write(out);
        }
        if let Some(sizes) = &self.sizes {
            sizes.write(out);
        }
        if let Some(chunks) = &self.chunks {
            chunks.write(moved, out);
        }
    }

    /// Writes an edit list (version 1): samples before the start are decoded but not shown.
    fn write_edit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[1, 0, 0, 0]);
        out.extend_from_slice(&1u32.to_be_bytes());
        out.extend_from_slice(&self.shown.to_be_bytes());
        out.extend_from_slice(&self.prefix.to_be_bytes());
        out.extend_from_slice(&[0, 1, 0, 0]);
    }
}

/// Samples of the last needed chunk before the end.
fn samples_at_end(table: &ChunkTable, from: SamplePlace, to: SamplePlace, shown: u64) -> u64 {
    if to.before > 0 {
        return to.before;
    }
    // The end is a chunk's start: the preceding chunk is whole, unless the film starts in it.
    let last = to.chunk.saturating_sub(1);
    let run = table.runs.iter().take_while(|run| u64::from(run.chunk) <= last + 1).last();
    let samples = run.map_or(0, |run| u64::from(run.samples));
    if last == from.chunk { samples.min(from.before + shown) } else { samples }
}
