//! The uploads of a zone, by their identifiers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Approximate octets of an upload besides its identifier.
const UPLOAD_BYTES: u64 = 256;

#[derive(Debug, Default)]
pub struct Upload {
    length: u64,
    received: AtomicU64,
    status: AtomicU16,
    /// Seconds since 1970 until which it is kept; 0 while in progress.
    until: AtomicI64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadState {
    Starting,
    Uploading,
    Done,
    Error,
}

impl UploadState {
    const ALL: [(&'static str, UploadState); 4] = [
        ("starting", UploadState::Starting),
        ("uploading", UploadState::Uploading),
        ("done", UploadState::Done),
        ("error", UploadState::Error),
    ];
    pub fn named(name: &str) -> Option<UploadState> {
        Self::ALL.iter().find(|(own, _)| *own == name).map(|(_, state)| *state)
    }
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, state)| *state == self).map_or("", |(name, _)| name)
    }
}

impl Upload {
    pub fn add(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }
    pub fn set_status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }
    pub fn end(&self, until: i64) {
        self.until.store(until.max(1), Ordering::Relaxed);
    }
    pub fn state(&self) -> UploadState {
        match self.status.load(Ordering::Relaxed) {
            400.. => UploadState::Error,
            _ if self.until.load(Ordering::Relaxed) != 0 => UploadState::Done,
            _ if self.length == 0 && self.received.load(Ordering::Relaxed) == 0 => UploadState::Starting,
            _ => UploadState::Uploading,
        }
    }
    /// Length, received octets and status; without a length, the received octets.
    pub fn numbers(&self) -> (u64, u64, u16) {
        let received = self.received.load(Ordering::Relaxed);
        let length = if self.length == 0 { received } else { self.length };
        (length, received.min(length), self.status.load(Ordering::Relaxed))
    }
    fn is_over(&self, now: i64) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until != 0 && until < now
    }
}

#[derive(Debug)]
pub struct Tracker {
    bytes_max: u64,
    uploads: Mutex<Uploads>,
}

#[derive(Debug, Default)]
struct Uploads {
    by_id: HashMap<Vec<u8>, Arc<Upload>>,
    bytes: u64,
    swept: i64,
}

fn cost(id: &[u8]) -> u64 {
    id.len() as u64 + UPLOAD_BYTES
}

impl Uploads {
    fn sweep(&mut self, now: i64) {
        if self.swept == now {
            return;
        }
        self.swept = now;
        let bytes = &mut self.bytes;
        self.by_id.retain(|id, upload| {
            let stays = !upload.is_over(now);
            if !stays {
                *bytes = bytes.saturating_sub(cost(id));
            }
            stays
        });
    }
}

impl Tracker {
    pub fn new(bytes_max: u64) -> Tracker {
        Tracker { bytes_max, uploads: Mutex::default() }
    }
    /// Returns `None` if the zone is full.
    pub fn begin(&self, id: &[u8], length: u64, now: i64) -> Option<Arc<Upload>> {
        let mut uploads = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
        uploads.sweep(now);
        let is_new = !uploads.by_id.contains_key(id);
        if is_new && uploads.bytes + cost(id) > self.bytes_max {
            return None;
        }
        let upload = Arc::new(Upload { length, ..Upload::default() });
        if is_new {
            uploads.bytes += cost(id);
        }
        uploads.by_id.insert(id.to_vec(), upload.clone());
        Some(upload)
    }
    pub fn find(&self, id: &[u8], now: i64) -> Option<Arc<Upload>> {
        let mut uploads = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
        uploads.sweep(now);
        uploads.by_id.get(id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_has_its_states_and_its_end() {
        let tracker = Tracker::new(1 << 16);
        let upload = tracker.begin(b"a", 10, 100).expect("room");
        assert_eq!(upload.state(), UploadState::Uploading);
        upload.add(4);
        assert_eq!(tracker.find(b"a", 100).expect("there").numbers(), (10, 4, 0));
        upload.end(130);
        assert_eq!(upload.state(), UploadState::Done);
        assert!(tracker.find(b"a", 130).is_some() && tracker.find(b"a", 131).is_none());
        let refused = tracker.begin(b"b", 0, 131).expect("room");
        assert_eq!(refused.state(), UploadState::Starting);
        refused.set_status(413);
        assert_eq!(refused.state(), UploadState::Error);
    }

    #[test]
    fn a_zone_is_bounded() {
        let tracker = Tracker::new(3 * cost(b"x"));
        let begun = (0..5u8).filter(|id| tracker.begin(&[*id], 1, 1).is_some()).count();
        assert_eq!(begun, 3);
        tracker.find(&[0], 1).expect("there").end(1);
        assert!(tracker.begin(&[9], 1, 3).is_some(), "those that are over make room");
    }
}
