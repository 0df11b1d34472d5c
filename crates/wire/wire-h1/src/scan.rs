//! Searches eight bytes at a time in an ordinary register, without `unsafe`.
//! A mask has the top bit of each matching byte set. Bits above the lowest may be wrong (borrows run upwards): masks
//! are valid for "none" and "the first" only.

pub(crate) const WIDTH: usize = 8;

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

const fn all(b: u8) -> u64 {
    ONES * b as u64
}

/// First byte from `at` on that `mask` matches, by whole words. `None` before the last word: callers search the rest.
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
    // Reaches back to fill the last word, and shifts the seen bytes out.
    let seen = WIDTH - rest.len();
    let word = u64::from_le_bytes(*buf.last_chunk::<WIDTH>()?);
    let found = if seen < WIDTH { mask(word >> (8 * seen) | TOPS << (8 * rest.len())) } else { 0 };
    let n = index(found);
    (found != 0 && n < rest.len()).then_some(at + n)
}

#[inline(always)]
pub(crate) fn index(mask: u64) -> usize {
    mask.trailing_zeros() as usize / 8
}

#[inline(always)]
pub(crate) fn eq(word: u64, b: u8) -> u64 {
    let zero = word ^ all(b);
    zero.wrapping_sub(ONES) & !zero & TOPS
}

/// Bytes below `b`, which is at most 0x80.
#[inline(always)]
pub(crate) fn below(word: u64, b: u8) -> u64 {
    word.wrapping_sub(all(b)) & !word & TOPS
}

/// Bytes that a plain path cannot contain: spaces, controls, DEL, `?`, `#`, `%`, and `/` before `/` or `.`. `next` is
/// the word one byte later.
#[inline(always)]
pub(crate) fn not_plain_path(word: u64, next: u64) -> u64 {
    // `?` and DEL differ by one bit, as do `/` and `.`.
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
