//! Joins small pieces of a body, each of which would be a chunk and a part of a write.

use bytes::{Bytes, BytesMut};
use http_engine::Piece;
use std::collections::VecDeque;

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
pub fn pop_joined(queue: &mut VecDeque<Piece>) -> Option<Piece> {
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

/// Joins the pieces of a body when they are made, so that a page of many short ones takes little memory. One piece alone is not
/// copied. First [`JoinedPieces::push`], [`JoinedPieces::flush`] behind the last one, then [`JoinedPieces::pop`].
#[derive(Default)]
pub struct JoinedPieces {
    /// The first piece of the next one.
    first: Bytes,
    /// The first piece and others.
    joined: Vec<u8>,
    ready: VecDeque<Bytes>,
}

impl JoinedPieces {
    pub fn push(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        if (self.first.len() + self.joined.len() + bytes.len()) as u64 > JOINED_BYTES {
            self.flush();
        }
        if self.first.is_empty() && self.joined.is_empty() {
            self.first = bytes;
            return;
        }
        self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        self.joined.extend_from_slice(&bytes);
    }
    /// Makes a piece of all that has come.
    pub fn flush(&mut self) {
        let (first, joined) = (std::mem::take(&mut self.first), std::mem::take(&mut self.joined));
        let piece = if joined.is_empty() { first } else { joined.into() };
        if !piece.is_empty() {
            self.ready.push_back(piece);
        }
    }
    pub fn has_piece(&self) -> bool {
        !self.ready.is_empty()
    }
    pub fn pop(&mut self) -> Option<Piece> {
        self.ready.pop_front().map(Piece::Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_when_they_are_made() {
        let mut joined = JoinedPieces::default();
        let large = Bytes::from(vec![b'x'; JOINED_BYTES as usize + 1]);
        for piece in [&b"a"[..], b"", b"b", &large, b"c", b"d"] {
            joined.push(Bytes::copy_from_slice(piece));
        }
        joined.push(large.clone());
        assert!(joined.has_piece());
        joined.flush();
        joined.flush();
        let pieces: Vec<Piece> = std::iter::from_fn(|| joined.pop()).collect();
        let lengths: Vec<u64> = pieces.iter().map(Piece::len).collect();
        assert_eq!(lengths, [2, JOINED_BYTES + 1, 2, JOINED_BYTES + 1]);
        let Some(Piece::Bytes(last)) = pieces.last() else { panic!("a piece") };
        assert_eq!(last.as_ptr(), large.as_ptr(), "one piece alone is not copied");
        let full = Bytes::from(vec![b'x'; JOINED_BYTES as usize / 2]);
        (0..3).for_each(|_| joined.push(full.clone()));
        assert_eq!(joined.pop().map(|piece| piece.len()), Some(JOINED_BYTES));
    }

    #[test]
    fn small_pieces_are_joined_in_their_order() {
        let piece = |text: &[u8]| Piece::Bytes(Bytes::copy_from_slice(text));
        let large = vec![b'x'; JOINED_BYTES as usize];
        let mut queue: VecDeque<Piece> =
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
