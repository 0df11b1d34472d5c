//! The encoders behind one interface: whole responses at once, streams whose state is kept between steps, and streams of segments.
//!
//! A segment ends with its step, and the next one begins with a new state: nothing is held between steps. gzip continues with a
//! new deflate block, Brotli with a stream without header and end (`BARE_STREAM`, `CATABLE` of the crate `brotli`), zstd
//! with a frame (RFC 8878, 3). Dropping a state compresses nothing.

use super::deflate::Deflater;
use brotli::enc::StandardAlloc;
use brotli::enc::encode::{
    BrotliEncoderDestroyInstance, BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct,
};
use net::pool::ResultInterest;
use std::io::{Error, ErrorKind, Result, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    Gzip,
    Brotli,
    Zstd,
}

impl Coding {
    pub fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        }
    }
    pub fn extension(self) -> &'static str {
        match self {
            Coding::Gzip => ".gz",
            Coding::Brotli => ".br",
            Coding::Zstd => ".zst",
        }
    }
}

/// Coding of a response, with its level and the window's size as a power of two (Brotli).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderSettings {
    pub coding: Coding,
    pub level: u32,
    pub window: u32,
}

/// Input of a segment, except for gzip.
pub const SEGMENT_BYTES: usize = 128 * 1024;
/// Input between two looks for the client; Brotli's least block.
const LOOK_BYTES: usize = 64 * 1024;
/// Brotli's levels below have no streams without an end.
const BARE_LEVEL_MIN: u32 = 4;
/// Level of Brotli in place of 7 to 9, whose tables take 8 to 34 MB, for an input no longer than a segment: one percent larger.
const TABLE_LEVEL_MAX: u32 = 6;
/// Levels of Brotli from here on need 12 MB for a segment of full length.
const OPTIMAL_LEVEL: u32 = 10;
/// Levels 5 to 9 of Brotli need 33 MB for a smaller window.
const HASHED_WINDOW_MIN: u32 = 17;

impl EncoderSettings {
    /// Tells whether a step may take tens of milliseconds. Brotli and zstd compress whole blocks, at a megabyte a second at their
    /// highest levels.
    pub fn is_slow(&self) -> bool {
        match self.coding {
            Coding::Gzip => false,
            Coding::Brotli => self.level >= 10,
            Coding::Zstd => self.level >= 13,
        }
    }
    /// Input of a step.
    pub fn segment_bytes(&self) -> usize {
        match self.coding {
            Coding::Gzip => super::compress::STEP_BYTES,
            Coding::Brotli if self.level >= OPTIMAL_LEVEL => LOOK_BYTES,
            Coding::Brotli | Coding::Zstd => SEGMENT_BYTES,
        }
    }
    /// Bytes of a state that is kept between steps, with a window of this power of two (measured, and rounded up).
    fn kept_bytes(&self, window: u32) -> u64 {
        const MEGABYTE: u64 = 1 << 20;
        match self.coding {
            Coding::Gzip => 340 * 1024,
            Coding::Brotli => {
                let hashes = match self.level {
                    0..=4 => 0,
                    5 => MEGABYTE,
                    6 => 2 * MEGABYTE,
                    7 => 8 * MEGABYTE,
                    8 => 16 * MEGABYTE,
                    9 => 34 * MEGABYTE,
                    _ => 11 << window,
                };
                MEGABYTE + (9 << window) + hashes
            }
            Coding::Zstd => {
                // Chains and hashes of `ZSTD_defaultCParameters`, as powers of two.
                let (chains, hashes) = match self.level {
                    0..=1 => (13, 14),
                    2 => (15, 16),
                    3 => (16, 17),
                    4..=6 => (18, 19),
                    7..=8 => (19, 20),
                    9..=11 => (21, 22),
                    12..=16 => (23, 23),
                    _ => (24, 23),
                };
                (1 << window) + (384 << 10) + (4 << chains) + (4 << hashes)
            }
        }
    }
    /// Window of a kept state that needs at most this many bytes, and its bytes.
    pub fn kept_within(&self, bytes_max: u64) -> Option<(u32, u64)> {
        let (most, least) = match self.coding {
            Coding::Gzip => (15, 15),
            Coding::Brotli => (self.brotli_window(), self.brotli_window()),
            Coding::Zstd => (self.zstd_window(), 19),
        };
        let fitting = (least..=most).rev().map(|window| (window, self.kept_bytes(window)));
        fitting.into_iter().find(|(_, bytes)| *bytes <= bytes_max)
    }
    /// Bytes that a step needs: its output, and on the pool its state. The states of the other steps are a thread's.
    pub fn step_memory(&self) -> u64 {
        match self.coding {
            Coding::Brotli if self.is_slow() => 6 << 20,
            Coding::Zstd if self.is_slow() => 3 << 20,
            _ => 64 << 10,
        }
    }
    /// Level of Brotli for an input of this length.
    fn brotli_level(&self, length: usize) -> u32 {
        match self.level {
            7..OPTIMAL_LEVEL if length <= SEGMENT_BYTES => TABLE_LEVEL_MAX,
            level => level,
        }
    }
    fn brotli_window(&self) -> u32 {
        if (5..OPTIMAL_LEVEL).contains(&self.level) { self.window.max(HASHED_WINDOW_MIN) } else { self.window }
    }
    fn window_min(&self) -> u32 {
        if (5..OPTIMAL_LEVEL).contains(&self.level) { HASHED_WINDOW_MIN } else { LOOK_BYTES.ilog2() }
    }
    fn zstd_window(&self) -> u32 {
        match self.level {
            0..=1 => 19,
            2 => 20,
            3..=8 => 21,
            9..=16 => 22,
            _ => 23,
        }
    }
    /// Window for an input of this length: no smaller one compresses it as well.
    fn window_of(&self, length: usize) -> u32 {
        let needed = length.max(2).next_power_of_two().ilog2().max(self.window_min());
        self.brotli_window().min(needed)
    }
}

/// State of a coding, with its output.
pub enum EncoderState {
    Gzip(Box<GzipStream>),
    Brotli(Box<BrotliStream>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
}

impl EncoderState {
    /// Starts a stream whose state is kept. `window`: of [`EncoderSettings::kept_within`].
    ///
    /// # Errors
    /// The library refuses the parameters.
    pub fn kept(settings: &EncoderSettings, window: u32) -> Result<EncoderState> {
        Ok(match settings.coding {
            Coding::Gzip => EncoderState::Gzip(Box::new(GzipStream::new(settings.level))),
            Coding::Brotli => {
                EncoderState::Brotli(Box::new(BrotliStream::new(settings.level, window, BrotliPart::Whole)))
            }
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), settings.level as i32)?;
                if window < settings.zstd_window() {
                    encoder.window_log(window)?;
                }
                EncoderState::Zstd(Box::new(encoder))
            }
        })
    }
    /// Compresses input. Fails if the result is not wanted any more.
    fn write(&mut self, input: &[u8], wanted: &ResultInterest<'_>) -> Result<()> {
        for part in input.chunks(LOOK_BYTES) {
            if !wanted.is_wanted() {
                return Err(ErrorKind::Interrupted.into());
            }
            match self {
                EncoderState::Gzip(stream) => stream.write(part)?,
                EncoderState::Brotli(stream) => stream.run(part, BrotliEncoderOperation::BROTLI_OPERATION_PROCESS)?,
                EncoderState::Zstd(encoder) => encoder.write_all(part)?,
            }
        }
        if wanted.is_wanted() { Ok(()) } else { Err(ErrorKind::Interrupted.into()) }
    }
    /// Emits what the state holds.
    fn flush(&mut self) -> Result<()> {
        match self {
            EncoderState::Gzip(stream) => stream.deflater.flush(),
            EncoderState::Brotli(stream) => stream.run(&[], BrotliEncoderOperation::BROTLI_OPERATION_FLUSH),
            EncoderState::Zstd(encoder) => encoder.flush(),
        }
    }
    fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            EncoderState::Gzip(stream) => &mut stream.deflater.out,
            EncoderState::Brotli(stream) => &mut stream.out,
            EncoderState::Zstd(encoder) => encoder.get_mut(),
        })
    }
    fn finish(self) -> Result<Vec<u8>> {
        match self {
            EncoderState::Gzip(stream) => stream.finish(),
            EncoderState::Brotli(mut stream) => {
                stream.run(&[], BrotliEncoderOperation::BROTLI_OPERATION_FINISH)?;
                Ok(std::mem::take(&mut stream.out))
            }
            EncoderState::Zstd(encoder) => encoder.finish(),
        }
    }
}

/// Compresses a whole response.
///
/// # Errors
/// The library refuses the parameters, or the result is not wanted any more.
pub fn encode_whole(settings: &EncoderSettings, input: &[u8], wanted: &ResultInterest<'_>) -> Result<Vec<u8>> {
    let mut state = match settings.coding {
        Coding::Brotli => {
            let window = settings.window_of(input.len());
            let level = settings.brotli_level(input.len());
            let mut stream = BrotliStream::new(level, window, BrotliPart::Whole);
            stream.hint(level, input.len());
            EncoderState::Brotli(Box::new(stream))
        }
        Coding::Zstd => sized_zstd(settings.level, input.len())?,
        Coding::Gzip => EncoderState::kept(settings, 15)?,
    };
    state.write(input, wanted)?;
    state.finish()
}

/// A frame of known length: small inputs need small states.
fn sized_zstd(level: u32, length: usize) -> Result<EncoderState> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level as i32)?;
    encoder.set_pledged_src_size(Some(length as u64))?;
    Ok(EncoderState::Zstd(Box::new(encoder)))
}

/// End of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepEnd {
    Continue,
    Flush,
    Finish,
}

/// A stream that is compressed step by step.
pub struct StreamEncoder {
    settings: EncoderSettings,
    state: StreamState,
}

enum StreamState {
    /// No step yet.
    New,
    Kept(EncoderState),
    Segments(SegmentState),
    Ended,
}

#[derive(Default)]
struct SegmentState {
    /// A segment has been written.
    is_begun: bool,
    /// gzip: checksum and length so far.
    sum: flate2::Crc,
}

impl StreamEncoder {
    pub fn new(settings: EncoderSettings) -> StreamEncoder {
        StreamEncoder { settings, state: StreamState::New }
    }
    pub fn settings(&self) -> &EncoderSettings {
        &self.settings
    }
    /// Tells whether the stream has not decided whether its state is kept.
    pub fn is_new(&self) -> bool {
        matches!(self.state, StreamState::New)
    }
    pub fn is_ended(&self) -> bool {
        matches!(self.state, StreamState::Ended)
    }
    /// Tells whether steps are segments.
    pub fn is_segmented(&self) -> bool {
        matches!(self.state, StreamState::Segments(_))
    }
    /// Keeps the state from now on. Fails as [`EncoderState::kept`].
    pub fn keep(&mut self, window: u32) -> Result<()> {
        self.state = StreamState::Kept(EncoderState::kept(&self.settings, window)?);
        Ok(())
    }
    /// Compresses in segments from now on.
    pub fn divide(&mut self) {
        self.state = StreamState::Segments(SegmentState::default());
    }
    /// Compresses the input of a step, and returns the output so far. A new stream needs its decision first, unless the step is its last.
    ///
    /// # Errors
    /// The library refuses the parameters, or the result is not wanted any more.
    pub fn step(&mut self, input: &[u8], end: StepEnd, wanted: &ResultInterest<'_>) -> Result<Vec<u8>> {
        match (std::mem::replace(&mut self.state, StreamState::Ended), end) {
            (StreamState::Ended, _) => Ok(Vec::new()),
            (StreamState::New, StepEnd::Finish) => encode_whole(&self.settings, input, wanted),
            (StreamState::New, _) => self.segment(SegmentState::default(), input, end, wanted),
            (StreamState::Segments(so_far), _) => self.segment(so_far, input, end, wanted),
            (StreamState::Kept(mut state), _) => {
                if !input.is_empty() {
                    state.write(input, wanted)?;
                }
                match end {
                    StepEnd::Finish => return state.finish(),
                    StepEnd::Flush => state.flush()?,
                    StepEnd::Continue => {}
                }
                let out = state.take();
                self.state = StreamState::Kept(state);
                Ok(out)
            }
        }
    }
    fn segment(
        &mut self,
        so_far: SegmentState,
        input: &[u8],
        end: StepEnd,
        wanted: &ResultInterest<'_>,
    ) -> Result<Vec<u8>> {
        let SegmentState { is_begun, mut sum } = so_far;
        let is_last = end == StepEnd::Finish;
        let level = self.settings.level;
        // An empty response has one, empty segment.
        let is_empty = input.is_empty() && (is_begun || !is_last);
        let mut out = match self.settings.coding {
            Coding::Gzip => {
                let mut stream = GzipStream::continued(level, sum, !is_begun);
                stream.write(input)?;
                if is_last {
                    return stream.finish();
                }
                stream.deflater.flush()?;
                sum = stream.sum;
                std::mem::take(&mut stream.deflater.out)
            }
            Coding::Brotli => {
                let mut out = Vec::new();
                if !is_empty {
                    let part = if is_begun { BrotliPart::Next } else { BrotliPart::First };
                    let window = self.settings.window_of(self.settings.segment_bytes());
                    let level = self.settings.brotli_level(0).max(BARE_LEVEL_MIN);
                    let mut stream = BrotliStream::new(level, window, part);
                    stream.hint(level, input.len());
                    let mut state = EncoderState::Brotli(Box::new(stream));
                    state.write(input, wanted)?;
                    out = state.finish()?;
                }
                if is_last {
                    out.push(BROTLI_END);
                }
                out
            }
            Coding::Zstd if is_empty => Vec::new(),
            Coding::Zstd => {
                let mut state = sized_zstd(level, input.len())?;
                state.write(input, wanted)?;
                state.finish()?
            }
        };
        out.shrink_to_fit();
        if !is_last {
            let is_begun = is_begun || !is_empty || self.settings.coding == Coding::Gzip;
            self.state = StreamState::Segments(SegmentState { is_begun, sum });
        }
        Ok(out)
    }
}

/// The last, empty meta-block of a stream of bare ones (RFC 7932, 9.2).
const BROTLI_END: u8 = 3;

/// Place of a Brotli stream in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BrotliPart {
    Whole,
    /// Has the header, and no end.
    First,
    /// Refers neither to earlier parts nor to the dictionary, whose distances depend on them.
    Next,
}

/// Without the crate's writer, whose drop compresses all buffered input.
pub struct BrotliStream {
    state: BrotliEncoderStateStruct<StandardAlloc>,
    pub out: Vec<u8>,
}

impl BrotliStream {
    fn new(level: u32, window: u32, part: BrotliPart) -> BrotliStream {
        use BrotliEncoderParameter as Parameter;
        let mut state = BrotliEncoderStateStruct::new(StandardAlloc::default());
        state.set_parameter(Parameter::BROTLI_PARAM_QUALITY, level);
        state.set_parameter(Parameter::BROTLI_PARAM_LGWIN, window);
        if part != BrotliPart::Whole {
            state.set_parameter(Parameter::BROTLI_PARAM_BARE_STREAM, 1);
            let kind = match part {
                BrotliPart::Next => Parameter::BROTLI_PARAM_CATABLE,
                _ => Parameter::BROTLI_PARAM_APPENDABLE,
            };
            state.set_parameter(kind, 1);
        }
        BrotliStream { state, out: Vec::new() }
    }
    /// For input of known length: its size, and the least blocks, between which the client is looked for.
    fn hint(&mut self, level: u32, length: usize) {
        if level >= OPTIMAL_LEVEL {
            self.state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_LGBLOCK, LOOK_BYTES.ilog2());
        }
        let hint = u32::try_from(length).unwrap_or(u32::MAX);
        self.state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_SIZE_HINT, hint);
    }
    fn run(&mut self, input: &[u8], operation: BrotliEncoderOperation) -> Result<()> {
        let (mut left, mut at) = (input.len(), 0);
        let mut buffer = [0; 4096];
        let is_process = operation == BrotliEncoderOperation::BROTLI_OPERATION_PROCESS;
        loop {
            let (mut room, mut written) = (buffer.len(), 0);
            let is_done = self.state.compress_stream(
                operation,
                &mut left,
                input,
                &mut at,
                &mut room,
                &mut buffer,
                &mut written,
                &mut None,
                &mut |_, _, _, _| (),
            );
            if !is_done {
                return Err(Error::other("the Brotli encoder failed"));
            }
            self.out.extend_from_slice(buffer.get(..written).unwrap_or_default());
            let is_finish = operation == BrotliEncoderOperation::BROTLI_OPERATION_FINISH;
            if left == 0 && !self.state.has_more_output() && (is_process || !is_finish || self.state.is_finished()) {
                return Ok(());
            }
        }
    }
}

impl Drop for BrotliStream {
    fn drop(&mut self) {
        BrotliEncoderDestroyInstance(&mut self.state);
    }
}

/// gzip (RFC 1952) around a deflate stream, which may be one of several.
pub struct GzipStream {
    deflater: Deflater,
    sum: flate2::Crc,
}

/// Deflate, no flags, no time, no hints, Unix: zlib's header.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
/// The header's hint at the slowest level.
const SLOWEST: u8 = 2;

impl GzipStream {
    fn new(level: u32) -> GzipStream {
        GzipStream::continued(level, flate2::Crc::new(), true)
    }
    fn continued(level: u32, sum: flate2::Crc, is_first: bool) -> GzipStream {
        // zlib-rs's level 1 is faster but a fifth larger; its level 2 matches zlib's 1.
        let mut deflater = Deflater::new(level.max(2));
        if is_first {
            deflater.out.extend_from_slice(&GZIP_HEADER);
            if let (9, Some(hint)) = (level, deflater.out.get_mut(8)) {
                *hint = SLOWEST;
            }
        }
        GzipStream { deflater, sum }
    }
    fn write(&mut self, input: &[u8]) -> Result<()> {
        self.sum.update(input);
        self.deflater.write(input)
    }
    fn finish(self) -> Result<Vec<u8>> {
        let GzipStream { deflater, sum } = self;
        let mut out = deflater.finish()?;
        out.extend_from_slice(&sum.sum().to_le_bytes());
        out.extend_from_slice(&sum.amount().to_le_bytes());
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn plain(coding: Coding, coded: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match coding {
            Coding::Gzip => _ = flate2::read::GzDecoder::new(coded).read_to_end(&mut out).expect("gzip"),
            Coding::Brotli => _ = brotli::Decompressor::new(coded, 4096).read_to_end(&mut out).expect("Brotli"),
            Coding::Zstd => out = zstd::decode_all(coded).expect("zstd"),
        }
        out
    }

    /// Words of a small vocabulary: each piece could refer to earlier ones.
    fn text(length: usize) -> Vec<u8> {
        let word = |n: usize| format!("word-{} ", n.wrapping_mul(2_654_435_761) % 977);
        (0..length).flat_map(|n| word(n).into_bytes()).take(length).collect()
    }

    fn all() -> impl Iterator<Item = EncoderSettings> {
        let gzip = (1..=9).map(|level| (Coding::Gzip, level));
        let brotli = (0..=11).map(|level| (Coding::Brotli, level));
        let zstd = [1, 3, 9, 13, 19].map(|level| (Coding::Zstd, level));
        let all = gzip.chain(brotli).chain(zstd);
        all.flat_map(|(coding, level)| [19, 12].map(|window| EncoderSettings { coding, level, window }))
    }

    #[test]
    fn every_coding_decodes_whole_in_segments_and_kept() {
        let text = text(150_000);
        for settings in all() {
            let coded = encode_whole(&settings, &text, &ResultInterest::ALWAYS).expect("compresses");
            assert_eq!(plain(settings.coding, &coded), text, "{settings:?}");
            for is_kept in [false, true] {
                let mut stream = StreamEncoder::new(settings);
                match settings.kept_within(u64::MAX).filter(|_| is_kept) {
                    Some((window, _)) => stream.keep(window).expect("parameters"),
                    None => stream.divide(),
                }
                let mut out = Vec::new();
                let mut step = |input: &[u8], end| {
                    out.extend(stream.step(input, end, &ResultInterest::ALWAYS).expect("compresses"))
                };
                step(&text[..50_000], StepEnd::Continue);
                step(&text[50_000..50_010], StepEnd::Flush);
                step(b"", StepEnd::Flush);
                step(&text[50_010..140_000], StepEnd::Continue);
                step(&text[140_000..], StepEnd::Finish);
                assert!(stream.is_ended());
                assert_eq!(plain(settings.coding, &out), text, "{settings:?}, kept: {is_kept}");
            }
        }
    }

    #[test]
    fn empty_streams_and_empty_ends_decode() {
        for settings in all() {
            for (is_kept, first) in [(false, &b""[..]), (true, b""), (false, b"abc"), (true, b"abc")] {
                let mut stream = StreamEncoder::new(settings);
                match settings.kept_within(u64::MAX).filter(|_| is_kept) {
                    Some((window, _)) => stream.keep(window).expect("parameters"),
                    None => stream.divide(),
                }
                let mut out = stream.step(first, StepEnd::Flush, &ResultInterest::ALWAYS).expect("compresses");
                out.extend(stream.step(b"", StepEnd::Finish, &ResultInterest::ALWAYS).expect("ends"));
                assert_eq!(plain(settings.coding, &out), first, "{settings:?}");
            }
            let coded = encode_whole(&settings, b"", &ResultInterest::ALWAYS).expect("compresses");
            assert_eq!(plain(settings.coding, &coded), b"");
        }
    }

    #[test]
    fn a_flush_shows_all_input_at_once() {
        for settings in all() {
            let mut stream = StreamEncoder::new(settings);
            stream.divide();
            let shown = stream.step(b"an event", StepEnd::Flush, &ResultInterest::ALWAYS).expect("compresses");
            let mut out = vec![0; 8];
            match settings.coding {
                Coding::Gzip => flate2::read::GzDecoder::new(&*shown).read_exact(&mut out).expect("gzip"),
                Coding::Brotli => brotli::Decompressor::new(&*shown, 4096).read_exact(&mut out).expect("Brotli"),
                Coding::Zstd => out = zstd::decode_all(&*shown).expect("a frame"),
            }
            assert_eq!(out, b"an event", "{settings:?}");
        }
    }

    #[test]
    fn a_state_is_kept_within_its_memory() {
        let settings = |coding, level| EncoderSettings { coding, level, window: 19 };
        for (settings, window) in [
            (settings(Coding::Gzip, 6), Some(15)),
            (settings(Coding::Brotli, 6), None),
            (settings(Coding::Zstd, 1), Some(19)),
            (settings(Coding::Zstd, 3), Some(19)),
            (settings(Coding::Zstd, 19), None),
        ] {
            let kept = settings.kept_within(2 << 20);
            assert_eq!(kept.map(|(window, _)| window), window, "{settings:?}");
            assert!(kept.is_none_or(|(_, bytes)| bytes <= 2 << 20));
        }
        assert_eq!(settings(Coding::Zstd, 3).kept_within(8 << 20).map(|(window, _)| window), Some(21));
    }

    #[test]
    fn work_that_is_not_wanted_ends_within_a_step() {
        let settings = EncoderSettings { coding: Coding::Brotli, level: 11, window: 19 };
        let looks = std::cell::Cell::new(0);
        let is_wanted = || {
            looks.set(looks.get() + 1);
            looks.get() < 2
        };
        let failed =
            encode_whole(&settings, &text(1 << 20), &ResultInterest::new(&is_wanted)).expect_err("the client has left");
        assert_eq!((failed.kind(), looks.get()), (ErrorKind::Interrupted, 2));
    }
}
