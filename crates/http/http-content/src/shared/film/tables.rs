//! Tables of a track: time, size and chunk of each sample.

use super::boxes::{Wrong, read_be32, read_be64, write_box};

/// Count and value.
pub type Runs = Vec<(u32, u32)>;

/// With its box's version and flags.
#[derive(Clone, Debug, Default)]
pub struct RunTable {
    pub flags: [u8; 4],
    pub runs: Runs,
}

#[derive(Clone, Debug, Default)]
pub struct NumberTable {
    pub flags: [u8; 4],
    pub numbers: Vec<u32>,
}

/// Chunk run: first chunk, samples per chunk, description (`stsc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRun {
    pub chunk: u32,
    pub samples: u32,
    pub id: u32,
}

/// `stsz`: one size for all, or one each.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    pub flags: [u8; 4],
    pub uniform: u32,
    pub count: u32,
    pub each: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
pub struct Chunks {
    pub flags: [u8; 4],
    /// 64-bit offsets.
    pub wide: bool,
    pub places: Vec<u64>,
}

fn flags(data: &[u8]) -> [u8; 4] {
    data.get(..4).and_then(|f| f.try_into().ok()).unwrap_or_default()
}

fn small(file: &str, name: &[u8; 4]) -> Wrong {
    format!("\"{file}\" mp4 {} atom too small", name.escape_ascii())
}

/// Rows of `row` numbers after a table's count.
fn rows(data: &[u8], row: usize, name: &[u8; 4], file: &str) -> Result<Vec<u32>, Wrong> {
    let count = read_be32(data, 4).ok_or_else(|| small(file, name))? as usize;
    let bytes = count.checked_mul(row * 4).ok_or_else(|| small(file, name))?;
    let table = data.get(8..).and_then(|rest| rest.get(..bytes)).ok_or_else(|| small(file, name))?;
    Ok(table.as_chunks::<4>().0.iter().map(|four| u32::from_be_bytes(*four)).collect())
}

impl RunTable {
    pub fn read(data: &[u8], name: &[u8; 4], file: &str) -> Result<RunTable, Wrong> {
        let numbers = rows(data, 2, name, file)?;
        Ok(RunTable { flags: flags(data), runs: numbers.as_chunks::<2>().0.iter().map(|[n, v]| (*n, *v)).collect() })
    }
    pub fn write(&self, name: &[u8; 4], out: &mut Vec<u8>) {
        write_box(out, name, |out| {
            out.extend_from_slice(&self.flags);
            out.extend_from_slice(&(self.runs.len() as u32).to_be_bytes());
            for (count, value) in &self.runs {
                out.extend_from_slice(&count.to_be_bytes());
                out.extend_from_slice(&value.to_be_bytes());
            }
        });
    }
    /// Drops leading samples; `false` (and an empty table) if there are too few.
    pub fn drop_first(&mut self, mut samples: u64) -> bool {
        for index in 0..self.runs.len() {
            let Some(run) = self.runs.get_mut(index) else { break };
            if samples < u64::from(run.0) {
                run.0 -= samples as u32;
                self.runs.drain(..index);
                return true;
            }
            samples -= u64::from(run.0);
        }
        self.runs.clear();
        false
    }
    /// Keeps leading samples. As in nginx, keeps the run of the end even if empty.
    pub fn keep_first(&mut self, mut samples: u64) {
        for index in 0..self.runs.len() {
            let Some(run) = self.runs.get_mut(index) else { break };
            if samples < u64::from(run.0) {
                run.0 = samples as u32;
                self.runs.truncate(index + 1);
                return;
            }
            samples -= u64::from(run.0);
        }
    }
    /// Sample at a time, with its start; `None` beyond the end.
    pub fn sample_at(&self, mut time: u64) -> Option<u64> {
        let mut sample = 0;
        for &(count, duration) in &self.runs {
            let length = u64::from(count) * u64::from(duration);
            if time < length {
                return Some(sample + time / u64::from(duration));
            }
            time -= length;
            sample += u64::from(count);
        }
        None
    }
    pub fn duration_of(&self, mut samples: u64) -> u64 {
        let mut time = 0u64;
        for &(count, duration) in &self.runs {
            let taken = samples.min(u64::from(count));
            time = time.saturating_add(taken * u64::from(duration));
            samples -= taken;
        }
        time
    }
    pub fn samples(&self) -> u64 {
        self.runs.iter().map(|(count, _)| u64::from(*count)).sum()
    }
}

impl NumberTable {
    pub fn read(data: &[u8], name: &[u8; 4], file: &str) -> Result<NumberTable, Wrong> {
        Ok(NumberTable { flags: flags(data), numbers: rows(data, 1, name, file)? })
    }
    pub fn write(&self, name: &[u8; 4], out: &mut Vec<u8>) {
        write_box(out, name, |out| {
            out.extend_from_slice(&self.flags);
            out.extend_from_slice(&(self.numbers.len() as u32).to_be_bytes());
            self.numbers.iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
        });
    }
    /// Keeps samples from `start` to before `end`, renumbered; numbers start at 1.
    pub fn crop(&mut self, start: u64, end: Option<u64>) {
        let before = self.numbers.iter().position(|n| u64::from(*n) > start).unwrap_or(self.numbers.len());
        self.numbers.drain(..before);
        if let Some(end) = end {
            let kept = self.numbers.iter().position(|n| u64::from(*n) > end).unwrap_or(self.numbers.len());
            self.numbers.truncate(kept);
        }
        for number in &mut self.numbers {
            *number = number.wrapping_sub(start as u32);
        }
    }
}

impl Sizes {
    pub fn read(data: &[u8], file: &str) -> Result<Sizes, Wrong> {
        let wrong = || small(file, b"stsz");
        let uniform = read_be32(data, 4).ok_or_else(wrong)?;
        let count = read_be32(data, 8).ok_or_else(wrong)?;
        let mut each = Vec::new();
        if uniform == 0 {
            let table =
                data.get(12..).and_then(|rest| rest.get(..(count as usize).checked_mul(4)?)).ok_or_else(wrong)?;
            each = table.as_chunks::<4>().0.iter().map(|four| u32::from_be_bytes(*four)).collect();
        }
        Ok(Sizes { flags: flags(data), uniform, count, each })
    }
    pub fn write(&self, out: &mut Vec<u8>) {
        write_box(out, b"stsz", |out| {
            out.extend_from_slice(&self.flags);
            out.extend_from_slice(&self.uniform.to_be_bytes());
            out.extend_from_slice(&self.count.to_be_bytes());
            self.each.iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
        });
    }
    /// Bytes of the `samples` samples before index `sample`.
    pub fn before(&self, sample: u64, samples: u64) -> u64 {
        if self.uniform != 0 {
            return u64::from(self.uniform).saturating_mul(samples);
        }
        let (start, end) = (sample.saturating_sub(samples) as usize, sample as usize);
        self.each.get(start..end).unwrap_or_default().iter().map(|n| u64::from(*n)).sum()
    }
    pub fn crop(&mut self, start: u64, end: Option<u64>) {
        let end = end.unwrap_or(u64::from(self.count)).min(u64::from(self.count));
        self.count = end.saturating_sub(start) as u32;
        if self.uniform == 0 {
            self.each.truncate(end as usize);
            self.each.drain(..(start as usize).min(self.each.len()));
        }
    }
}

impl Chunks {
    pub fn read(data: &[u8], wide: bool, file: &str) -> Result<Chunks, Wrong> {
        let (name, width) = if wide { (b"co64", 2) } else { (b"stco", 1) };
        let numbers = rows(data, width, name, file)?;
        let places = match wide {
            false => numbers.into_iter().map(u64::from).collect(),
            true => {
                let count = numbers.len() / 2;
                (0..count).map_while(|index| read_be64(data, 8 + index * 8)).collect()
            }
        };
        Ok(Chunks { flags: flags(data), wide, places })
    }
    /// Writes the table with moved offsets, which wrap in a 32-bit one, as in nginx.
    pub fn write(&self, moved: i64, out: &mut Vec<u8>) {
        write_box(out, if self.wide { b"co64" } else { b"stco" }, |out| {
            out.extend_from_slice(&self.flags);
            out.extend_from_slice(&(self.places.len() as u32).to_be_bytes());
            for place in &self.places {
                let place = place.wrapping_add_signed(moved);
                match self.wide {
                    true => out.extend_from_slice(&place.to_be_bytes()),
                    false => out.extend_from_slice(&(place as u32).to_be_bytes()),
                }
            }
        });
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SamplePlace {
    /// Chunk index from 0.
    pub chunk: u64,
    pub before: u64,
}

#[derive(Clone, Debug, Default)]
pub struct ChunkTable {
    pub flags: [u8; 4],
    pub runs: Vec<ChunkRun>,
}

impl ChunkTable {
    pub fn read(data: &[u8], file: &str) -> Result<ChunkTable, Wrong> {
        let numbers = rows(data, 3, b"stsc", file)?;
        let runs = numbers.as_chunks::<3>().0.iter();
        let runs = runs.map(|[chunk, samples, id]| ChunkRun { chunk: *chunk, samples: *samples, id: *id });
        Ok(ChunkTable { flags: flags(data), runs: runs.collect() })
    }
    pub fn write(&self, out: &mut Vec<u8>) {
        write_box(out, b"stsc", |out| {
            out.extend_from_slice(&self.flags);
            out.extend_from_slice(&(self.runs.len() as u32).to_be_bytes());
            for run in &self.runs {
                for number in [run.chunk, run.samples, run.id] {
                    out.extend_from_slice(&number.to_be_bytes());
                }
            }
        });
    }
    /// Checks that chunks ascend and have samples.
    pub fn check(&self, file: &str) -> Result<(), Wrong> {
        if self.runs.is_empty() {
            return Err(format!("zero number of entries in stsc atom in \"{file}\""));
        }
        if self.runs.iter().any(|run| run.chunk == 0) {
            return Err(format!("zero chunk in \"{file}\""));
        }
        if self.runs.windows(2).any(|pair| matches!(pair, [one, two] if two.chunk < one.chunk)) {
            return Err(format!("unordered mp4 stsc chunks in \"{file}\""));
        }
        Ok(())
    }
    /// Position of a sample among the chunks; the one after the last is at the end. `which` names the time in the log.
    pub fn place(&self, mut sample: u64, chunks: u64, which: &str, file: &str) -> Result<SamplePlace, Wrong> {
        for (index, run) in self.runs.iter().enumerate() {
            let next = self.runs.get(index + 1).map_or(chunks + 1, |next| u64::from(next.chunk));
            let last = index + 1 == self.runs.len();
            let count = next
                .checked_sub(u64::from(run.chunk))
                .ok_or_else(|| format!("unordered mp4 stsc chunks in \"{file}\""))?;
            let samples = count * u64::from(run.samples);
            if sample < samples || (last && sample == samples) {
                let each = u64::from(run.samples);
                let within = sample.checked_div(each);
                let chunk = within.ok_or_else(|| format!("zero number of samples in \"{file}\""))?;
                return Ok(SamplePlace { chunk: u64::from(run.chunk) - 1 + chunk, before: sample % each });
            }
            sample -= samples;
        }
        Err(format!("{which} time is out mp4 stsc chunks in \"{file}\""))
    }
    /// Keeps samples between two positions, renumbering chunks from 1; a partial chunk gets its own run.
    pub fn crop(&mut self, start: SamplePlace, end: Option<SamplePlace>, chunks: u64) {
        let runs = std::mem::take(&mut self.runs);
        // One beyond the last chunk.
        let stop = end.map_or(chunks, |end| end.chunk + u64::from(end.before > 0));
        for (index, run) in runs.iter().enumerate() {
            let first = u64::from(run.chunk) - 1;
            let next = runs.get(index + 1).map_or(chunks, |next| u64::from(next.chunk) - 1);
            let (mut first, next) = (first.max(start.chunk), next.min(stop));
            if first >= next {
                continue;
            }
            let ends_here = end.filter(|end| end.before > 0 && end.chunk + 1 == next);
            if first == start.chunk && start.before > 0 {
                let until = ends_here.filter(|end| end.chunk == first).map_or(u64::from(run.samples), |end| end.before);
                self.add(first - start.chunk, until.saturating_sub(start.before), run.id);
                first += 1;
            }
            let whole_until = ends_here.map_or(next, |end| end.chunk);
            if first < whole_until {
                self.add(first - start.chunk, u64::from(run.samples), run.id);
            }
            if let Some(end) = ends_here.filter(|end| end.chunk >= first) {
                self.add(end.chunk - start.chunk, end.before, run.id);
            }
        }
    }
    fn add(&mut self, chunk: u64, samples: u64, id: u32) {
        self.runs.push(ChunkRun { chunk: (chunk + 1) as u32, samples: samples as u32, id });
    }
}
