//! Log files by path: registered while the configuration is read, opened by the master, reopened on USR1.

use arc_swap::ArcSwapOption;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that lines are appended to (`O_APPEND`); its descriptor is replaced when logs are reopened.
#[derive(Debug)]
pub struct LogFile {
    pub path: PathBuf,
    fd: ArcSwapOption<OwnedFd>,
}

impl LogFile {
    /// Gives the file its descriptor, or a new one.
    pub fn set(&self, fd: OwnedFd) {
        self.fd.store(Some(Arc::new(fd)));
    }
    /// The descriptor; `None` until the file was opened.
    pub fn fd(&self) -> Option<Arc<OwnedFd>> {
        self.fd.load_full()
    }
    /// Opens (or opens anew) the file and gives it the descriptor.
    ///
    /// # Errors
    /// As `open` gives them.
    pub fn open(&self) -> std::io::Result<()> {
        self.set(open(&self.path)?);
        Ok(())
    }
    /// Appends whole lines with one write; the error is the caller's to report.
    ///
    /// # Errors
    /// As `write` gives them (a full disk, say).
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

/// The log files of one configuration, one entry a path. Kept in the configuration's `Cx` while it is read.
#[derive(Clone, Debug, Default)]
pub struct LogFiles {
    files: BTreeMap<PathBuf, Arc<LogFile>>,
}

impl LogFiles {
    /// The file of this (absolute) path; the same one for every directive that names it.
    pub fn file(&mut self, path: &Path) -> Arc<LogFile> {
        self.files
            .entry(path.to_path_buf())
            .or_insert_with(|| Arc::new(LogFile { path: path.to_path_buf(), fd: ArcSwapOption::empty() }))
            .clone()
    }
    /// Forgets the files that no directive holds any more.
    pub fn forget_unused(&mut self) {
        self.files.retain(|_, file| Arc::strong_count(file) > 1);
    }
    pub fn all(&self) -> impl Iterator<Item = &Arc<LogFile>> {
        self.files.values()
    }
}

/// Where requests are logged when no `access_log` says so; kept in the configuration's `Cx`. `None`: `logs/access.log`
/// below the prefix.
#[derive(Clone, Debug, Default)]
pub struct DefaultAccessLog(pub Option<PathBuf>);

/// Opens a log file for appending, as nginx does: created with mode 0644 less the umask. The names of the standard
/// streams mean the streams that the process has: opened by name they could not be sockets, and a plain file would be
/// written to at two places.
///
/// # Errors
/// As `open` gives them.
pub fn open(path: &Path) -> std::io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    use std::os::fd::AsFd;
    match path.to_str() {
        Some("/dev/stdout") => return std::io::stdout().as_fd().try_clone_to_owned(),
        Some("/dev/stderr") => return std::io::stderr().as_fd().try_clone_to_owned(),
        _ => {}
    }
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?)
}
