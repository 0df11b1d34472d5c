//! Eight bytes at a time in an ordinary register: which byte is the first one that matters? No `unsafe`, no particular
//! machine.
//!
//! Every mask has the top bit of a byte set where the byte matches. Bits above the lowest one may be wrong (a borrow
//! runs upwards), so a mask is good for "none" and "the first" only.

pub(crate) const WIDTH: usize = 8;

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

const fn all(b: u8) -> u64 {
    ONES * b as u64
}

/// The first byte of `buf` at or after `at` in which `mask` finds something, searched by whole words. `None` when there
/// is none before the last word of `buf`: the caller has a slower way for the rest.
#[inline(always)]
pub(crate) fn first(buf: &[u8], mut at: usize, mask: impl Fn(u64) -> u64) -> Option<usize> {
    let mut rest = buf.get(at..)?;
    while let Some((bytes, tail)) = rest.split_first_chunk::<WIDTH>() {
        let found = mask(u64::from_le_bytes(*bytes));
        if found != 0 {
            return Some(at + index(found));
        }
        rest = tail;
        at += WIDTH;
    }
    // What is left is less than a word: reach back, and shift out what has been seen.
    let seen = WIDTH - rest.len();
    let word = u64::from_le_bytes(*buf.last_chunk::<WIDTH>()?);
    let found = if seen < WIDTH { mask(word >> (8 * seen) | TOPS << (8 * rest.len())) } else { 0 };
    let n = index(found);
    (found != 0 && n < rest.len()).then_some(at + n)
}

/// The index of the first matching byte; 8 for an empty mask.
#[inline(always)]
pub(crate) fn index(mask: u64) -> usize {
    mask.trailing_zeros() as usize / 8
}

/// Bytes equal to `b`.
#[inline(always)]
pub(crate) fn eq(word: u64, b: u8) -> u64 {
    let zero = word ^ all(b);
    zero.wrapping_sub(ONES) & !zero & TOPS
}

/// Bytes less than `b`, which is at most 0x80.
#[inline(always)]
pub(crate) fn below(word: u64, b: u8) -> u64 {
    word.wrapping_sub(all(b)) & !word & TOPS
}

/// Bytes that the plain path of a request line cannot hold: spaces, controls, DEL, `?`, `#` and `%`, and a `/` that has
/// a `/` or a `.` after it. `next` is the word one byte on.
#[inline(always)]
pub(crate) fn not_plain_path(word: u64, next: u64) -> u64 {
    // `?` and DEL are one bit apart, as are `/` and `.`.
    let pair = (word ^ all(b'/')) | ((next | ONES) ^ all(b'/'));
    below(word, b' ' + 1)
        | eq(word | all(0x40), 0x7f)
        | eq(word, b'#')
        | eq(word, b'%')
        | (pair.wrapping_sub(ONES) & !pair & TOPS)
}

/// Bytes that end a query: spaces, controls, DEL and `#`.
#[inline(always)]
pub(crate) fn args_end(word: u64) -> u64 {
    below(word, b' ' + 1) | eq(word, 0x7f) | eq(word, b'#')
}
