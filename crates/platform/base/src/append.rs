//! Appending long pieces to a buffer.

/// Octets that are copied at once.
///
/// glibc copies more than 2,112 octets by `rep movsb` on processors with `fsrm`. On AMD Zen 4 that is up to 27 times slower where the
/// destination is 1 to 15 octets behind the source modulo the page size, as behind the head of a frame (decision 0132).
pub const SLICE: usize = 2048;

/// As [`Vec::extend_from_slice`], for pieces that may be long and follow a short head.
#[inline]
pub fn append_bytes(out: &mut Vec<u8>, piece: &[u8]) {
    if piece.len() <= SLICE {
        return out.extend_from_slice(piece);
    }
    out.reserve(piece.len());
    piece.chunks(SLICE).for_each(|slice| out.extend_from_slice(slice));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_appended_whole() {
        let piece: Vec<u8> = (0..3 * SLICE + 7).map(|n| (n % 251) as u8).collect();
        for length in [0, 1, SLICE, SLICE + 1, piece.len()] {
            let mut out = b"head".to_vec();
            append_bytes(&mut out, &piece[..length]);
            assert_eq!(out, [b"head", &piece[..length]].concat());
        }
    }
}
