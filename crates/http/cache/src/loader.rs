//! Fills the index from the files after a start, in batches on its own thread.

use crate::key::Hash;
use crate::purge;
use crate::variants;
use crate::zone::{Limits, Zone};
use base::clock;
use observe::Severity;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub type Say<'a> = &'a (dyn Fn(Severity, &str) + Sync);

/// Seconds after which unfinished files of other processes are removed.
const LEFTOVER_SECONDS: i64 = 3600;
/// Nested directories at most; a cache has three.
const DEPTH_MAX: u32 = 8;

/// Later calls do nothing.
pub fn load_zone(zone: &Zone, limits: &Limits, say: Say<'_>) {
    if !zone.cold.load(Ordering::Relaxed) || zone.loading.swap(true, Ordering::Relaxed) {
        return;
    }
    clock::update();
    let mut walk = LoaderWalk { zone, limits, say, files: 0, began: clock::now(), full: false };
    walk.folder(zone.root(), 0);
    zone.cold.store(false, Ordering::Relaxed);
    zone.loading.store(false, Ordering::Relaxed);
    let megabytes = zone.size.load(Ordering::Relaxed) as f64 / (1024.0 * 1024.0);
    say(Severity::Notice, &format!("http file cache: {} {megabytes:.3}M", zone.root().display()));
}

struct LoaderWalk<'a> {
    zone: &'a Zone,
    limits: &'a Limits,
    say: Say<'a>,
    files: u64,
    began: clock::Instant,
    full: bool,
}

impl LoaderWalk<'_> {
    fn folder(&mut self, folder: &Path, depth: u32) {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(e) => {
                if depth > 0 || e.kind() != std::io::ErrorKind::NotFound {
                    let text = format!("opendir() \"{}\" failed {}", folder.display(), observe::os_error(&e));
                    (self.say)(Severity::Crit, &text);
                }
                return;
            }
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(facts) = fs::symlink_metadata(&path) else { continue };
            if facts.is_dir() {
                if entry.file_name().as_bytes() != b"temp" && depth < DEPTH_MAX {
                    self.folder(&path, depth + 1);
                }
                continue;
            }
            self.file(&path, entry.file_name().as_bytes(), &facts);
            self.pace();
        }
    }
    fn file(&mut self, path: &Path, name: &[u8], facts: &fs::Metadata) {
        if name.starts_with(purge::FILE.as_bytes()) || name == variants::FILE.as_bytes() {
            return;
        }
        // Unfinished entry (32 digits, a dot, ten digits): another process may be writing it.
        if name.len() == 43 && name[32] == b'.' && Hash::from_hex(&name[..32]).is_some() {
            if clock::unix_seconds() - facts.mtime() > LEFTOVER_SECONDS {
                let _ = fs::remove_file(path);
            }
            return;
        }
        let hash = Hash::from_hex(name).filter(|hash| facts.is_file() && self.zone.place.path(hash) == path);
        let Some(hash) = hash else {
            (self.say)(Severity::Warn, &format!("\"{}\" is no cache file, ignored", path.display()));
            return;
        };
        if facts.len() < crate::entry::FIXED as u64 {
            (self.say)(Severity::Crit, &format!("cache file \"{}\" is too small", path.display()));
            let _ = fs::remove_file(path);
            return;
        }
        if !self.zone.add(hash, facts.blocks() * 512, clock::unix_seconds()) {
            if !std::mem::replace(&mut self.full, true) {
                let name = &self.zone.name;
                (self.say)(Severity::Alert, &format!("could not allocate node in cache keys zone \"{name}\""));
            }
            // Without an index entry the file would never be removed.
            let _ = fs::remove_file(path);
        }
    }
    fn pace(&mut self) {
        self.files += 1;
        clock::update();
        let pace = &self.limits.loader;
        if self.files >= pace.files || clock::now().millis_since(self.began) >= pace.threshold_ms {
            std::thread::sleep(Duration::from_millis(pace.sleep_ms));
            clock::update();
            (self.files, self.began) = (0, clock::now());
        }
    }
}
