//! Deflate streams whose state is used again: a new one clears 384 KB, a reset one 128 KB, and small responses cost less than that to
//! compress.

use flate2::{Compress, Compression, FlushCompress, Status};
use std::cell::RefCell;
use std::io::{Error, Result};

/// States kept per thread, of about 330 KB each.
const KEPT: usize = 2;
/// Free space in the output for each call.
const ROOM: usize = 512;
const WINDOW_BITS: u8 = 15;

struct State {
    level: u32,
    compress: Compress,
}

impl State {
    /// Takes a kept state, or makes one.
    fn of(level: u32) -> State {
        let kept = STATES.with_borrow_mut(|states| {
            let at = states.iter().rposition(|state| state.level == level)?;
            Some(states.remove(at))
        });
        kept.unwrap_or_else(|| State {
            level,
            compress: Compress::new_with_window_bits(Compression::new(level), false, WINDOW_BITS),
        })
    }
}

thread_local! {
    /// Most recently used last.
    static STATES: RefCell<Vec<State>> = const { RefCell::new(Vec::new()) };
}

/// Compresses into a vector. Takes a state with the first input; it returns to the thread that drops it.
pub struct Deflater {
    level: u32,
    state: Option<State>,
    pub out: Vec<u8>,
}

impl Deflater {
    pub fn new(level: u32) -> Deflater {
        Deflater { level, state: None, out: Vec::new() }
    }
    /// Compresses all of `input`; output may stay in the state.
    pub fn write(&mut self, input: &[u8]) -> Result<()> {
        self.run(input, FlushCompress::None)
    }
    /// Emits what the state holds.
    pub fn flush(&mut self) -> Result<()> {
        self.run(&[], FlushCompress::Sync)
    }
    /// Ends the stream and returns the rest of the output.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.run(&[], FlushCompress::Finish)?;
        Ok(std::mem::take(&mut self.out))
    }
    fn run(&mut self, mut input: &[u8], flush: FlushCompress) -> Result<()> {
        let State { compress, .. } = self.state.get_or_insert_with(|| State::of(self.level));
        loop {
            self.out.reserve(ROOM.max(input.len() / 4));
            let before = compress.total_in();
            let status = compress.compress_vec(input, &mut self.out, flush).map_err(Error::other)?;
            let used = (compress.total_in() - before) as usize;
            input = input.get(used..).unwrap_or_default();
            // Output with free space is complete.
            let is_done = match flush {
                FlushCompress::Finish => status == Status::StreamEnd,
                _ => input.is_empty() && self.out.len() < self.out.capacity(),
            };
            if is_done {
                return Ok(());
            }
        }
    }
}

impl Drop for Deflater {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        state.compress.reset();
        // Fails while the thread ends.
        let _ = STATES.try_with(|states| {
            let mut states = states.borrow_mut();
            if states.len() == KEPT {
                states.remove(0);
            }
            states.push(state);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn inflate(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        flate2::read::DeflateDecoder::new(bytes).read_to_end(&mut out).expect("a deflate stream");
        out
    }

    fn text(length: usize) -> Vec<u8> {
        (0..length as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 % 61).collect()
    }

    #[test]
    fn a_state_that_was_used_compresses_as_a_new_one() {
        let once = |pieces: &[&[u8]]| {
            let mut deflater = Deflater::new(4);
            pieces.iter().for_each(|piece| deflater.write(piece).expect("compresses"));
            deflater.finish().expect("ends")
        };
        let (first, second) = (text(100_000), text(300));
        let fresh = std::thread::scope(|scope| scope.spawn(|| once(&[&second])).join().expect("no panic"));
        let long = once(&[&first[..70_000], &first[70_000..]]);
        assert_eq!(inflate(&long), first);
        assert_eq!(once(&[&second]), fresh);
        assert_eq!(inflate(&fresh), second);
    }

    #[test]
    fn an_abandoned_stream_leaves_nothing_behind() {
        let mut abandoned = Deflater::new(6);
        abandoned.write(&text(5000)).expect("compresses");
        drop(abandoned);
        let mut next = Deflater::new(6);
        next.write(b"hello").expect("compresses");
        assert_eq!(inflate(&next.finish().expect("ends")), b"hello");
    }

    #[test]
    fn a_flush_emits_everything() {
        let mut deflater = Deflater::new(2);
        deflater.write(&text(3000)).expect("compresses");
        deflater.flush().expect("flushes");
        let mut shown = vec![0; 3000];
        flate2::read::DeflateDecoder::new(&deflater.out[..]).read_exact(&mut shown).expect("all of it");
        assert_eq!(shown, text(3000));
    }

    #[test]
    fn few_states_are_kept() {
        for level in 1..=9 {
            Deflater::new(level).flush().expect("flushes");
        }
        assert_eq!(STATES.with_borrow(Vec::len), KEPT);
    }
}
