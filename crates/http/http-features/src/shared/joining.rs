//! Joins small pieces of a body, each of which would be a chunk and a part of a write.

use bytes::{Bytes, BytesMut};
use http_engine::Piece;

/// Bytes up to which pieces are joined.
pub const JOINED_BYTES: u64 = 16 * 1024;

/// Joins bytes with following ones while `next` returns some that fit.
pub fn join_pieces(first: Bytes, mut next: impl FnMut(u64) -> Option<Bytes>) -> Bytes {
    let room = |length: usize| JOINED_BYTES.saturating_sub(length as u64);
    let Some(second) = next(room(first.len())) else { return first };
    let mut all = BytesMut::with_capacity(first.len() + second.len() + 1024);
    all.extend_from_slice(&first);
    all.extend_from_slice(&second);
    while let Some(more) = next(room(all.len())) {
        all.extend_from_slice(&more);
    }
    all.freeze()
}

/// Next piece of a queue, joined with small ones after it.
pub fn pop_joined(queue: &mut std::collections::VecDeque<Piece>) -> Option<Piece> {
    match queue.pop_front()? {
        Piece::Bytes(first) => Some(Piece::Bytes(join_pieces(first, |room| match queue.front() {
            Some(Piece::Bytes(next)) if next.len() as u64 <= room => match queue.pop_front() {
                Some(Piece::Bytes(next)) => Some(next),
                _ => None,
            },
            _ => None,
        }))),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_are_joined_in_their_order() {
        let piece = |text: &[u8]| Piece::Bytes(Bytes::copy_from_slice(text));
        let large = vec![b'x'; JOINED_BYTES as usize];
        let mut queue: std::collections::VecDeque<Piece> =
            [piece(b"a"), piece(b"b"), piece(b"c"), Piece::Flush, piece(b"d"), piece(&large), piece(b"e")].into();
        let mut seen = Vec::new();
        while let Some(next) = pop_joined(&mut queue) {
            seen.push(match next {
                Piece::Bytes(bytes) => bytes.to_vec(),
                _ => b"flush".to_vec(),
            });
        }
        assert_eq!(seen, [b"abc".to_vec(), b"flush".to_vec(), b"d".to_vec(), large, b"e".to_vec()]);
    }
}
