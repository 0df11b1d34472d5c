//! Files that directives name and that are read with the configuration: certificates, keys, password files.
//! The privileged master records them; a worker that builds the configuration again reads the record, never the disk.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ENOENT: i32 = 2;
const EIO: i32 = 5;

/// Facts of the machine and process that a configuration depends on. Only the process that reads it first looks them
/// up: a worker has other rights, possibly other CPUs, and would build a different configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineFacts {
    pub superuser: bool,
    pub cpus: usize,
}

/// Reads files with private keys in place of this process (`ssl_key_isolation`).
pub trait KeyReader: std::fmt::Debug + Send + Sync {
    /// Returns the file with stand-ins for private keys. `passwords`: the file with passwords of encrypted keys.
    ///
    /// # Errors
    /// The file cannot be read, or no process reads it.
    fn load(&self, path: &Path, passwords: Option<&Path>) -> io::Result<Arc<[u8]>>;
}

/// Contents by path, or the error number.
#[derive(Clone, Debug, Default)]
pub struct TextStore {
    /// Private keys belong to a process of their own (`ssl_key_isolation`).
    pub isolates_keys: bool,
    /// Reads files with keys; `None` in commands that only test a configuration, and in a replay.
    pub key_reader: Option<Arc<dyn KeyReader>>,
    /// Files outside of the record do not exist.
    pub replay: bool,
    /// Reads for inspection, possibly on another machine: resolves no hosts.
    pub elsewhere: bool,
    pub files: BTreeMap<PathBuf, Result<Arc<[u8]>, i32>>,
    pub machine: Option<MachineFacts>,
}

impl TextStore {
    pub fn superuser(&self) -> bool {
        self.machine.is_some_and(|machine| machine.superuser)
    }
    /// Tells whether texts have stand-ins for private keys.
    pub fn has_stand_ins(&self) -> bool {
        self.isolates_keys && (self.replay || self.key_reader.is_some())
    }
    /// Reads a PEM file, which may hold private keys: [`KeyReader::load`] where keys are isolated.
    ///
    /// # Errors
    /// As [`TextStore::read`].
    pub fn read_pem(&mut self, path: &Path, passwords: Option<&Path>) -> io::Result<Arc<[u8]>> {
        let Some(key_reader) = self.key_reader.clone().filter(|_| self.isolates_keys && !self.replay) else {
            return self.read(path);
        };
        // A later password line can decrypt a key that an earlier one could not.
        if let (Some(known), None) = (self.files.get(path), passwords) {
            return known.clone().map_err(io::Error::from_raw_os_error);
        }
        let read = key_reader.load(path, passwords).map_err(|e| number_of(&e));
        self.files.insert(path.to_path_buf(), read.clone());
        read.map_err(io::Error::from_raw_os_error)
    }
    /// Reads a file or a named pipe once, as [`conf_syntax::read_regular_or_pipe`].
    ///
    /// # Errors
    /// The file cannot be read, or a replay does not have it.
    pub fn read(&mut self, path: &Path) -> io::Result<Arc<[u8]>> {
        if let Some(known) = self.files.get(path) {
            return known.clone().map_err(io::Error::from_raw_os_error);
        }
        if self.replay {
            return Err(io::Error::from_raw_os_error(ENOENT));
        }
        let read = conf_syntax::read_regular_or_pipe(path).map(Arc::from).map_err(|e| number_of(&e));
        self.files.insert(path.to_path_buf(), read.clone());
        read.map_err(io::Error::from_raw_os_error)
    }
}

/// The system's number of an error: a replay has only numbers.
fn number_of(e: &io::Error) -> i32 {
    const EINVAL: i32 = 22;
    const EFBIG: i32 = 27;
    const ETIMEDOUT: i32 = 110;
    e.raw_os_error().unwrap_or(match e.kind() {
        io::ErrorKind::InvalidInput => EINVAL,
        io::ErrorKind::FileTooLarge => EFBIG,
        io::ErrorKind::TimedOut => ETIMEDOUT,
        _ => EIO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_replayed_without_the_disk() {
        let path = std::env::temp_dir().join(format!("tidegate-store-{}", std::process::id()));
        std::fs::write(&path, b"one").expect("write");
        let mut store = TextStore::default();
        assert_eq!(&*store.read(&path).expect("read"), b"one");
        assert!(store.read(Path::new("/none/such")).is_err());
        std::fs::remove_file(&path).expect("remove");
        let mut replay = TextStore { replay: true, ..store };
        assert_eq!(&*replay.read(&path).expect("recorded"), b"one");
        assert_eq!(replay.read(Path::new("/none/such")).expect_err("recorded").raw_os_error(), Some(2));
        assert!(replay.read(Path::new("/")).is_err());
    }
}
