//! Body of the mp4 fuzz target.

use super::rebuild::{Cut, Rebuilt, rebuild_film};
use crate::shared::film::Film;
use bytes::Bytes;

/// Panics unless a cut film's range is within the file and its head is bounded by the original's (plus edit list and
/// chunk entries).
pub fn mp4(data: &[u8]) {
    let (times, file) = data.split_at(data.len().min(4));
    let time = |at: usize| u64::from(times.get(at).copied().unwrap_or(0)) * 20;
    let film =
        Film { name: "film".into(), size: file.len() as u64, content: Some(Bytes::copy_from_slice(file)), file: None };
    let key_frame = times.get(2).is_some_and(|flags| flags & 1 == 1);
    let cut = Cut { start: time(0), length: time(1), key_frame, tables_max: 1 << 16 };
    if let Ok(Rebuilt::New { head, start, length }) = rebuild_film(&film, &cut) {
        assert!(length > 0 && start + length <= film.size);
        assert!(head.len() <= 4 * file.len() + 1024, "{} of {}", head.len(), file.len());
        assert!(head.ends_with(b"mdat"));
    }
}
