//! Which keys have variants beside their main entry, so that a purge by key finds them when the main entry is gone: it is the
//! one that says what they depend on. A file in the cache's folder keeps the list over a restart; it grows by 16 bytes for
//! each key that varies.

use crate::key::Hash;
use crate::store;
use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The name of the list; no entry can have it.
pub const FILE: &str = ".variants";

/// See the module's documentation.
#[derive(Debug)]
pub struct Variants {
    file: PathBuf,
    /// Keys that are listed; as many as the zone has room for.
    max: usize,
    known: Mutex<Known>,
}

#[derive(Debug)]
enum Known {
    These(HashSet<Hash>),
    /// It cannot be said any more: every key is taken for one that varies.
    Any,
}

impl Variants {
    /// With the list that an earlier process left. A folder with entries and without a list may hold variants of any key.
    pub fn new(root: &Path, max: usize) -> Variants {
        let file = root.join(FILE);
        let known = match fs::read(&file) {
            Ok(bytes) if bytes.len() % 16 == 0 && bytes.len() / 16 <= max => {
                Known::These(bytes.chunks_exact(16).filter_map(|c| c.try_into().ok().map(Hash)).collect())
            }
            // Something longer than it may be, or half written.
            Ok(_) => Known::Any,
            Err(e) if e.kind() == io::ErrorKind::NotFound && !has_entries(root) => Known::These(HashSet::new()),
            Err(_) => Known::Any,
        };
        Variants { file, max, known: Mutex::new(known) }
    }
    /// Whether this main key may have variants.
    pub fn has(&self, main: &Hash) -> bool {
        match &*self.known.lock().unwrap_or_else(PoisonError::into_inner) {
            Known::These(known) => known.contains(main),
            Known::Any => true,
        }
    }
    /// A variant of this main key is about to be stored.
    ///
    /// # Errors
    /// The list could not be written: from now on every key counts as one that varies.
    pub fn note(&self, main: &Hash) -> io::Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Known::These(list) = &mut *known else { return Ok(()) };
        if !list.insert(*main) {
            return Ok(());
        }
        let full = list.len() > self.max;
        let written = if full { self.write(&[0]) } else { self.write(&main.0) };
        if full || written.is_err() {
            *known = Known::Any;
        }
        written
    }
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        if let Some(folder) = self.file.parent() {
            store::make_folders(folder)?;
        }
        OpenOptions::new().append(true).create(true).mode(0o600).open(&self.file)?.write_all(bytes)
    }
}

fn has_entries(root: &Path) -> bool {
    let Ok(mut entries) = fs::read_dir(root) else { return false };
    entries.any(|entry| entry.is_ok_and(|entry| !entry.file_name().as_encoded_bytes().starts_with(b".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_outlives_the_process_and_has_a_bound() {
        let root = std::env::temp_dir().join(format!("tidegate-variants-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let key = |n: u8| Hash::of(&[n]);
        let variants = Variants::new(&root, 3);
        assert!(!variants.has(&key(1)));
        for n in [1, 2, 1] {
            variants.note(&key(n)).expect("written");
        }
        assert!(variants.has(&key(1)) && !variants.has(&key(3)));
        let again = Variants::new(&root, 3);
        assert!(again.has(&key(2)) && !again.has(&key(3)));
        assert_eq!(fs::read(root.join(FILE)).expect("the list").len(), 32, "each key once");
        for n in 3..6 {
            again.note(&key(n)).expect("written");
        }
        assert!(again.has(&key(99)), "too many to say");
        assert!(Variants::new(&root, 3).has(&key(99)), "also after a restart");
        fs::remove_file(root.join(FILE)).expect("removed");
        assert!(!Variants::new(&root, 3).has(&key(1)), "an empty folder");
        fs::write(root.join("entry"), "x").expect("written");
        assert!(Variants::new(&root, 3).has(&key(1)), "a folder whose list is gone");
        fs::remove_dir_all(&root).expect("clean up");
    }
}
