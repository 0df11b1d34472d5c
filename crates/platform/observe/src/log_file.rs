//! Log files by path: registered while the configuration is read, opened by the master, reopened on USR1.

use arc_swap::ArcSwapOption;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file opened with `O_APPEND`; reopening logs replaces its descriptor.
#[derive(Debug)]
pub struct LogFile {
    pub path: PathBuf,
    /// Holds secrets: a new file can be read by its owner only.
    secret: bool,
    fd: ArcSwapOption<OwnedFd>,
}

impl LogFile {
    pub fn set(&self, fd: OwnedFd) {
        self.fd.store(Some(Arc::new(fd)));
    }
    /// `None` before the file is opened.
    pub fn fd(&self) -> Option<Arc<OwnedFd>> {
        self.fd.load_full()
    }
    pub fn open(&self) -> std::io::Result<()> {
        self.set(self.descriptor()?);
        Ok(())
    }
    /// Opens the file without using it yet.
    pub fn descriptor(&self) -> std::io::Result<OwnedFd> {
        open_with(&self.path, if self.secret { 0o600 } else { 0o644 })
    }
    /// Appends complete lines with one write. The caller reports errors.
    pub fn append(&self, bytes: &[u8]) -> std::io::Result<()> {
        let fd = self.fd.load();
        let Some(fd) = fd.as_ref() else { return Ok(()) };
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(fd.as_ref(), rest) {
                Ok(n) => rest = rest.get(n..).unwrap_or(&[]),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

/// Log files of a configuration, and those of the one before that it may share.
#[derive(Clone, Debug, Default)]
pub struct LogFiles {
    files: BTreeMap<PathBuf, Arc<LogFile>>,
    /// Files that a directive names, or a default that is in use.
    used: BTreeSet<PathBuf>,
    /// Where other files than those of the configuration name them.
    places: BTreeMap<PathBuf, String>,
}

impl LogFiles {
    /// Returns the file of an absolute path, shared by all directives that name it.
    pub fn file(&mut self, path: &Path) -> Arc<LogFile> {
        self.entry(path, false)
    }
    /// [`LogFiles::file`] for secrets: the file is created with mode 0600.
    pub fn secret_file(&mut self, path: &Path) -> Arc<LogFile> {
        self.entry(path, true)
    }
    /// Begins a configuration, which uses no file yet.
    #[must_use]
    pub fn for_next(mut self) -> LogFiles {
        self.used.clear();
        self.places.clear();
        self
    }
    /// Notes where a file is named, for a message if it cannot be opened: `FILE:LINE`. The first place is kept.
    pub fn note_place(&mut self, path: &Path, place: impl FnOnce() -> String) {
        self.places.entry(path.to_path_buf()).or_insert_with(place);
    }
    /// Returns ` in FILE:LINE` for a file whose place is noted, else an empty text.
    pub fn place_suffix(&self, path: &Path) -> String {
        self.places.get(path).map_or_else(String::new, |place| format!(" in {place}"))
    }
    pub fn is_used(&self, path: &Path) -> bool {
        self.used.contains(path)
    }
    /// Takes back the use of a file that only a default names: [`LogFiles::all`] leaves it out until [`LogFiles::keep`].
    pub fn release(&mut self, path: &Path) {
        self.used.remove(path);
    }
    /// Marks a file as used.
    pub fn keep(&mut self, path: &Path) {
        self.used.insert(path.to_path_buf());
    }
    fn entry(&mut self, path: &Path, secret: bool) -> Arc<LogFile> {
        self.keep(path);
        self.files
            .entry(path.to_path_buf())
            .or_insert_with(|| Arc::new(LogFile { path: path.to_path_buf(), secret, fd: ArcSwapOption::empty() }))
            .clone()
    }
    pub fn forget_unused(&mut self) {
        self.files.retain(|_, file| Arc::strong_count(file) > 1);
    }
    /// Returns the files in use, which are opened.
    pub fn all(&self) -> impl Iterator<Item = &Arc<LogFile>> {
        self.files.iter().filter(|(path, _)| self.used.contains(*path)).map(|(_, file)| file)
    }
}

/// Default path of the access log, in `Cx`. `None`: `logs/access.log` below the prefix.
#[derive(Clone, Debug, Default)]
pub struct DefaultAccessLog(pub Option<PathBuf>);

/// Opens a log file for appending, with mode 0644 less the umask as in nginx. Names of the standard streams mean the
/// process's own streams: by name, sockets cannot be opened, and a plain file would be written at two offsets.
pub fn open_log(path: &Path) -> std::io::Result<OwnedFd> {
    open_with(path, 0o644)
}

fn open_with(path: &Path, mode: u32) -> std::io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    use std::os::fd::AsFd;
    match path.to_str() {
        Some("/dev/stdout") => return std::io::stdout().as_fd().try_clone_to_owned(),
        Some("/dev/stderr") => return std::io::stderr().as_fd().try_clone_to_owned(),
        _ => {}
    }
    // Without NONBLOCK, opening a pipe that no process reads waits for its reader; with it, the error is ENXIO.
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?;
    // Lines are written whole.
    rustix::fs::fcntl_setfl(&file, rustix::fs::fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}
