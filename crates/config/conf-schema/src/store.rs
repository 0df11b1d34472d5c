//! Files that directives name and that are read with the configuration: certificates, keys, password files.
//! The privileged master records them; a worker that builds the configuration again reads the record, never the disk.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Facts of the machine and process that a configuration depends on. Only the process that reads it first looks them
/// up: a worker has other rights, possibly other CPUs, and would build a different configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    pub superuser: bool,
    pub cpus: usize,
}

/// Contents by path, or the error number.
#[derive(Clone, Debug, Default)]
pub struct Store {
    /// Files outside of the record do not exist.
    pub replay: bool,
    /// Reads for inspection, possibly on another machine: resolves no hosts.
    pub elsewhere: bool,
    pub files: BTreeMap<PathBuf, Result<Arc<[u8]>, i32>>,
    pub machine: Option<Machine>,
}

impl Store {
    pub fn superuser(&self) -> bool {
        self.machine.is_some_and(|machine| machine.superuser)
    }
    pub fn read(&mut self, path: &Path) -> io::Result<Arc<[u8]>> {
        const ENOENT: i32 = 2;
        const EIO: i32 = 5;
        if let Some(known) = self.files.get(path) {
            return known.clone().map_err(io::Error::from_raw_os_error);
        }
        if self.replay {
            return Err(io::Error::from_raw_os_error(ENOENT));
        }
        let read = std::fs::read(path).map(Arc::from).map_err(|e| e.raw_os_error().unwrap_or(EIO));
        self.files.insert(path.to_path_buf(), read.clone());
        read.map_err(io::Error::from_raw_os_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_replayed_without_the_disk() {
        let path = std::env::temp_dir().join(format!("tidegate-store-{}", std::process::id()));
        std::fs::write(&path, b"one").expect("write");
        let mut store = Store::default();
        assert_eq!(&*store.read(&path).expect("read"), b"one");
        assert!(store.read(Path::new("/none/such")).is_err());
        std::fs::remove_file(&path).expect("remove");
        let mut replay = Store { replay: true, ..store };
        assert_eq!(&*replay.read(&path).expect("recorded"), b"one");
        assert_eq!(replay.read(Path::new("/none/such")).expect_err("recorded").raw_os_error(), Some(2));
        assert!(replay.read(Path::new("/")).is_err());
    }
}
