//! Buffer of outgoing ciphertext.

use crate::stream::{KEPT_MAX, RECORD_MAX};
use std::cell::Cell;

/// Largest buffer that a thread keeps for its connections.
const SPARE_MAX: usize = 256 * 1024;

thread_local! {
    /// Buffer of a connection that became idle: the responses of a turn need no memory that is cleared for them.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Outgoing ciphertext; stays initialised, so that records need no clearing.
#[derive(Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Output {
    pub(crate) fn filled(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }
    pub(crate) fn room(&mut self, size: usize) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        if self.start > 0 && self.bytes.len() < self.end + size {
            // A socket that never takes everything would let the buffer grow with all that was ever sent.
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.bytes.is_empty() {
            self.bytes = spare(size);
        }
        if self.bytes.len() < self.end + size {
            self.bytes.resize(self.end + size, 0);
        }
        self.bytes.get_mut(self.end..).unwrap_or_default()
    }
    /// Moves octets that the socket does not take to memory of their own size.
    pub(crate) fn release_written(&mut self) {
        if self.bytes.len() - (self.end - self.start) > RECORD_MAX {
            self.bytes = self.filled().to_vec();
            (self.start, self.end) = (0, self.bytes.len());
        }
    }
    pub(crate) fn advance(&mut self, n: usize) {
        self.start = self.end.min(self.start + n);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.bytes.len() > KEPT_MAX {
                self.release();
            }
        }
    }
    /// Gives up the buffer, which has no octets left to send.
    pub(crate) fn release(&mut self) {
        (self.start, self.end) = (0, 0);
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.len() > SPARE_MAX {
            return;
        }
        // Fails while the thread ends.
        let _ = SPARE.try_with(|spare| {
            let kept = spare.take();
            spare.set(if kept.len() < bytes.len() { bytes } else { kept });
        });
    }
    pub(crate) fn add(&mut self, written: usize) {
        self.end += written;
    }
}

/// Takes the thread's spare buffer if it fits: a small response does not occupy a large one.
fn spare(size: usize) -> Vec<u8> {
    let taken = SPARE.try_with(|spare| {
        let kept = spare.take();
        if (size..=size.saturating_mul(4)).contains(&kept.len()) {
            return kept;
        }
        spare.set(kept);
        Vec::new()
    });
    taken.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(output: &mut Output, octets: &[u8]) {
        output.room(octets.len())[..octets.len()].copy_from_slice(octets);
        output.add(octets.len());
    }

    #[test]
    fn the_buffer_of_an_idle_connection_serves_the_next_one() {
        let (mut first, mut second, mut small) = (Output::default(), Output::default(), Output::default());
        write(&mut first, &[1; 90_000]);
        let at = first.filled().as_ptr();
        first.advance(90_000);
        assert!(first.bytes.is_empty());
        write(&mut small, &[2; 100]);
        assert_ne!(small.filled().as_ptr(), at, "a small response takes no large buffer");
        write(&mut second, &[3; 50_000]);
        assert_eq!(second.filled().as_ptr(), at);
        assert_eq!(second.filled(), [3; 50_000]);
    }

    #[test]
    fn octets_that_wait_are_moved_within_the_buffer_instead_of_growing_it() {
        let mut output = Output::default();
        for n in 0..100 {
            write(&mut output, &[n; 1000]);
            if n > 0 {
                output.advance(1000);
            }
            assert_eq!(output.filled(), [n; 1000]);
        }
        assert!(output.bytes.len() <= 3000, "{}", output.bytes.len());
    }
}
