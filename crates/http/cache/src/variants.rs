//! Lists keys with variants beside their main entry, so that a purge finds them without that entry's `Vary`.
//! A file in the cache's directory keeps the list; it grows by 16 bytes per key.

use crate::key::Hash;
use crate::store;
use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// File of the list; no entry can have this name.
pub const FILE: &str = ".variants";

#[derive(Debug)]
pub struct Variants {
    file: PathBuf,
    /// Listed keys at most: the zone's capacity.
    max: usize,
    known: Mutex<KnownVariants>,
}

#[derive(Debug)]
enum KnownVariants {
    These(HashSet<Hash>),
    /// Unknown: any key may have variants.
    Any,
}

impl Variants {
    /// Loads the list of an earlier process. Without one, a directory with entries may hold variants of any key.
    pub fn new(root: &Path, max: usize) -> Variants {
        let file = root.join(FILE);
        let known = match fs::read(&file) {
            Ok(bytes) if bytes.len() % 16 == 0 && bytes.len() / 16 <= max => {
                KnownVariants::These(bytes.chunks_exact(16).filter_map(|c| c.try_into().ok().map(Hash)).collect())
            }
            // Too long or truncated.
            Ok(_) => KnownVariants::Any,
            Err(e) if e.kind() == io::ErrorKind::NotFound && !has_entries(root) => KnownVariants::These(HashSet::new()),
            Err(_) => KnownVariants::Any,
        };
        Variants { file, max, known: Mutex::new(known) }
    }
    /// Tells whether a main key may have variants.
    pub fn has(&self, main: &Hash) -> bool {
        match &*self.known.lock().unwrap_or_else(PoisonError::into_inner) {
            KnownVariants::These(known) => known.contains(main),
            KnownVariants::Any => true,
        }
    }
    /// Records a main key before its variant is stored. Fails when the list cannot be written: any key may then have
    /// variants.
    pub fn note(&self, main: &Hash) -> io::Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let KnownVariants::These(list) = &mut *known else { return Ok(()) };
        if !list.insert(*main) {
            return Ok(());
        }
        let full = list.len() > self.max;
        let written = if full { self.write(&[0]) } else { self.write(&main.0) };
        if full || written.is_err() {
            *known = KnownVariants::Any;
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
