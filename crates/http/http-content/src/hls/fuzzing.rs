//! Body of the hls fuzz target.

use super::movie::Movie;
use super::timeline::fragment_borders;
use super::ts::PACKET_BYTES;
use super::{Playlist, Range, fragment, write_playlist};
use crate::shared::film::Film;
use bytes::Bytes;
use std::sync::Arc;

const BYTES_MAX: u64 = 1 << 16;

/// Panics unless borders ascend, and the fragments between them are whole packets within the limit.
pub fn hls(file: &[u8]) {
    let content = Some(Bytes::copy_from_slice(file));
    let film = Arc::new(Film { name: "film".into(), size: file.len() as u64, content, file: None });
    let Ok(movie) = Movie::of(&film, BYTES_MAX) else { return };
    let playlist = Playlist { start: 0, end: None, length: 1000, offset: None, name: "f".into(), args: String::new() };
    let _ = write_playlist(&film, &movie, &playlist);
    let Ok(borders) = fragment_borders(&movie, 0, None, 1000, "film") else { return };
    for (start, end) in borders.iter().zip(borders.iter().skip(1)).take(8) {
        assert!(start < end);
        let range = Range { start: *start, end: *end, bytes_max: BYTES_MAX };
        if let Ok(fragment) = fragment::write_fragment(&film, &movie, range) {
            assert_eq!(fragment.len() % PACKET_BYTES, 0);
            // Start codes of four bytes replace lengths of one. Rounds of two streams and two tables take packets more.
            assert!(fragment.len() as u64 <= 4 * BYTES_MAX + 40 * PACKET_BYTES as u64);
        }
    }
}
