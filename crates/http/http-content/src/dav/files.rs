//! File operations, which run on a thread of the pool and return their log messages.

use super::dead;
use crate::shared::pooled;
use http_engine::Request;
use http_engine::path::bytes_path;
use http_engine::path::is_ht_name;
use observe::{Severity, os_error};
use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Nested directories per removal or copy; each needs a descriptor.
const DEPTH_MAX: usize = 256;

#[derive(Debug, Default)]
pub struct DavWork {
    pub lines: Vec<(Severity, String)>,
    /// With `.htaccess` files in use, names that begin with `.ht` are neither read nor written nor removed.
    pub ht_names_hidden: bool,
}

/// Maximum number of lines that a request logs; a tree may have many undeletable files.
const LINES_MAX: usize = 100;

/// Runs a job on the pool and logs its messages. Fails with the request's status.
pub async fn run_job<T: Send + 'static>(
    r: &Request,
    job: impl FnOnce(&mut DavWork) -> Result<T, u16> + Send + 'static,
) -> Result<T, u16> {
    let ht_names_hidden = r.plan().ht_names_hidden;
    let all = move || {
        let mut work = DavWork { ht_names_hidden, ..DavWork::default() };
        let result = job(&mut work);
        (result, work)
    };
    let Some((result, work)) = pooled::run_pooled(r, all).await else { return Err(500) };
    for (level, line) in work.lines {
        r.log(level, format_args!("{line}"));
    }
    result
}

pub fn shown_path(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[derive(Clone, Copy, Debug, Default)]
pub struct RenameJob {
    /// Mode to set first.
    pub mode: Option<u32>,
    /// Modification time to set first, in Unix seconds.
    pub modified: Option<i64>,
    /// Mode of missing directories to create.
    pub folders: Option<u32>,
}

impl DavWork {
    fn line(&mut self, level: Severity, text: String) {
        if self.lines.len() < LINES_MAX {
            self.lines.push((level, text));
        }
    }
    pub fn says(&mut self, status: u16, text: String) -> u16 {
        self.line(Severity::Error, text);
        status
    }
    /// Logs a failed call and returns the status (nginx: `ngx_http_dav_error`).
    pub fn failed(&mut self, e: &io::Error, not_found: u16, call: &str, path: &Path) -> u16 {
        let (level, status) = match e.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG) => (Severity::Error, not_found),
            Some(libc::EACCES | libc::EPERM) => (Severity::Error, 403),
            Some(libc::EEXIST) => (Severity::Error, 405),
            Some(libc::ENOSPC) => (Severity::Crit, 507),
            _ => (Severity::Crit, 500),
        };
        self.line(level, format!("{call} \"{}\" failed {}", path.display(), os_error(e)));
        status
    }

    /// Refuses links to names that begin with `.ht`, and directories that contain such names. Fails with 403, or 500
    /// for a tree that is too deep.
    pub fn refuse_ht_names(&mut self, path: &[u8]) -> Result<(), u16> {
        if !self.ht_names_hidden {
            return Ok(());
        }
        let path = bytes_path(path.strip_suffix(b"/").unwrap_or(path));
        let hidden = |name: Option<&std::ffi::OsStr>| name.is_some_and(|name| is_ht_name(name.as_bytes()));
        let resolved = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if hidden(resolved.file_name()) {
            return Err(self.says(403, format!("\"{}\" is not for clients", path.display())));
        }
        // Moves or removes a link itself, not its target.
        let mut folders = Vec::new();
        if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
            folders.push((path.to_path_buf(), 0));
        }
        while let Some((folder, depth)) = folders.pop() {
            if depth > DEPTH_MAX {
                return Err(self.says(500, format!("\"{}\" is too deep", folder.display())));
            }
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                if hidden(Some(&entry.file_name())) {
                    let found = entry.path();
                    return Err(self.says(403, format!("\"{}\" is not for clients", found.display())));
                }
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push((entry.path(), depth + 1));
                }
            }
        }
        Ok(())
    }

    /// Tells whether the path to delete is a directory.
    pub fn kind_to_delete(&mut self, path: &[u8]) -> Result<bool, u16> {
        let path = bytes_path(path);
        match std::fs::symlink_metadata(path) {
            Ok(found) => Ok(found.is_dir()),
            Err(e) => {
                let status = if e.raw_os_error() == Some(libc::ENOTDIR) { 409 } else { 404 };
                Err(self.failed(&e, status, "lstat()", path))
            }
        }
    }

    /// Removes a file, or a directory with its contents; logs and skips undeletable parts. Fails if the path remains.
    pub fn delete(&mut self, path: &[u8], folder: bool) -> Result<(), u16> {
        let path = bytes_path(path.strip_suffix(b"/").unwrap_or(path));
        if folder {
            self.delete_inside(path, DEPTH_MAX)?;
            return std::fs::remove_dir(path).map_err(|e| self.failed(&e, 404, "rmdir()", path));
        }
        std::fs::remove_file(path).map_err(|e| self.failed(&e, 404, "unlink()", path))
    }

    fn delete_inside(&mut self, folder: &Path, depth: usize) -> Result<(), u16> {
        if depth == 0 {
            return Err(self.says(500, format!("\"{}\" is too deep to delete", folder.display())));
        }
        let entries = std::fs::read_dir(folder).map_err(|e| {
            self.failed(&e, 500, "opendir()", folder);
            500u16
        })?;
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => return Err(self.failed(&e, 500, "readdir()", folder)),
            };
            let path = entry.path();
            if self.ht_names_hidden && is_ht_name(entry.file_name().as_bytes()) {
                // Created after the check: keeps it and its directory.
                self.says(0, format!("\"{}\" is not for clients", path.display()));
                continue;
            }
            // A symbolic link is no directory.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let _ = self.delete_inside(&path, depth - 1);
                if let Err(e) = std::fs::remove_dir(&path) {
                    self.failed(&e, 0, "rmdir()", &path);
                }
            } else if let Err(e) = std::fs::remove_file(&path) {
                self.failed(&e, 0, "unlink()", &path);
            }
        }
        Ok(())
    }

    /// Fails with `not_found` without the parent directory.
    pub fn make_folder(&mut self, path: &[u8], mode: u32, not_found: u16) -> Result<(), u16> {
        let path = bytes_path(path.strip_suffix(b"/").unwrap_or(path));
        let made = DirBuilder::new().mode(mode).create(path);
        made.map_err(|e| self.failed(&e, not_found, "mkdir()", path))
    }

    /// Refuses to put a directory into itself or over its parent by a link in one of the paths, which would copy copies, or
    /// remove the source first. Fails with 403.
    pub fn refuse_inside(&mut self, from: &Path, to: &Path) -> Result<(), u16> {
        let Ok(source) = from.canonicalize() else { return Ok(()) };
        let into = to.parent().and_then(|parent| parent.canonicalize().ok()).is_some_and(|p| p.starts_with(&source));
        if into || to.canonicalize().is_ok_and(|target| source.starts_with(target)) {
            return Err(self.says(403, format!("\"{}\" and \"{}\" overlap", from.display(), to.display())));
        }
        Ok(())
    }

    /// Copies a directory's contents into an existing one; logs and skips failures, links, devices and similar. Fails
    /// if the directory is unreadable.
    pub fn copy_inside(&mut self, from: &Path, to: &Path) -> Result<(), u16> {
        self.copy_level(from, to, DEPTH_MAX)
    }

    fn copy_level(&mut self, from: &Path, to: &Path, depth: usize) -> Result<(), u16> {
        if depth == 0 {
            return Err(self.says(500, format!("\"{}\" is too deep to copy", from.display())));
        }
        let entries = std::fs::read_dir(from).map_err(|e| {
            self.failed(&e, 500, "opendir()", from);
            500u16
        })?;
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => return Err(self.failed(&e, 500, "readdir()", from)),
            };
            let (source, target) = (entry.path(), to.join(entry.file_name()));
            let Ok(found) = entry.metadata() else { continue };
            if self.ht_names_hidden && is_ht_name(entry.file_name().as_bytes()) {
                self.says(0, format!("\"{}\" is not for clients", source.display()));
                continue;
            }
            if found.is_dir() {
                if let Err(e) = DirBuilder::new().mode(found.mode() & 0o777).create(&target) {
                    self.failed(&e, 0, "mkdir()", &target);
                }
                let _ = self.copy_level(&source, &target, depth - 1);
                self.keep_properties(&source, &target);
                if let Ok(folder) = File::open(&target) {
                    let _ = folder.set_modified(time(found.mtime()));
                }
            } else if found.is_file() {
                let _ = self.copy_file(&source, &target, &found, 0);
            }
        }
        Ok(())
    }

    /// Copies dead properties; logs failures.
    pub fn keep_properties(&mut self, from: &Path, to: &Path) {
        if let Err(e) = dead::copy_properties(from, to) {
            let (from, to) = (from.display(), to.display());
            self.line(Severity::Warn, format!("properties of \"{from}\" are not those of \"{to}\" {}", os_error(&e)));
        }
    }

    /// Copies a file with mode and times. Fails with `not_found` without the parent directory.
    pub fn copy_file(&mut self, from: &Path, to: &Path, found: &Metadata, not_found: u16) -> Result<(), u16> {
        if std::fs::metadata(to).is_ok_and(|other| (other.dev(), other.ino()) == (found.dev(), found.ino())) {
            return Err(self.says(403, format!("\"{}\" and \"{}\" are the same file", from.display(), to.display())));
        }
        // A FIFO or device must not block the thread.
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(from);
        let mut source = opened.map_err(|e| self.failed(&e, 404, "open()", from))?;
        if !source.metadata().is_ok_and(|m| m.is_file()) {
            return Err(self.says(403, format!("\"{}\" is not a regular file", from.display())));
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(found.mode() & 0o777).custom_flags(libc::O_NONBLOCK);
        let mut target = options.open(to).map_err(|e| self.failed(&e, not_found, "open()", to))?;
        io::copy(&mut source, &mut target).map_err(|e| self.failed(&e, 500, "write()", to))?;
        self.keep_properties(from, to);
        target.set_modified(time(found.mtime())).map_err(|e| self.failed(&e, 500, "utimes()", to))
    }

    /// Renames a file, across file systems if needed (nginx: `ngx_ext_rename_file`). Fails with 409 when directories
    /// are missing and not to be created.
    pub fn rename(&mut self, from: &Path, to: &Path, how: RenameJob) -> Result<(), u16> {
        if let Some(mode) = how.mode {
            let changed = std::fs::set_permissions(from, Permissions::from_mode(mode));
            changed.map_err(|e| self.failed(&e, 500, "chmod()", from))?;
        }
        if let Some(modified) = how.modified {
            let set = OpenOptions::new().write(true).open(from).and_then(|file| file.set_modified(time(modified)));
            set.map_err(|e| self.failed(&e, 500, "utimes()", from))?;
        }
        let mut renamed = std::fs::rename(from, to);
        if let (Err(e), Some(mode), Some(folder)) = (&renamed, how.folders, to.parent())
            && e.kind() == io::ErrorKind::NotFound
        {
            // Another request may create them concurrently.
            DirBuilder::new().recursive(true).mode(mode).create(folder).map_err(|e| {
                self.failed(&e, 500, "mkdir()", folder);
                500u16
            })?;
            renamed = std::fs::rename(from, to);
        }
        match renamed {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => self.rename_over(from, to),
            Err(e) => {
                let missing = matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR));
                let (from, to) = (from.display(), to.display());
                self.line(Severity::Crit, format!("rename() \"{from}\" to \"{to}\" failed {}", os_error(&e)));
                Err(if missing { 409 } else { 500 })
            }
        }
    }

    /// Renames a complete copy to its destination, so that no partial file is visible.
    fn rename_over(&mut self, from: &Path, to: &Path) -> Result<(), u16> {
        let found = std::fs::symlink_metadata(from).map_err(|e| self.failed(&e, 404, "lstat()", from))?;
        let beside = beside(to);
        let copied = self.copy_file(from, &beside, &found, 409).and_then(|()| {
            let kept = std::fs::set_permissions(&beside, Permissions::from_mode(found.mode() & 0o777));
            kept.and_then(|()| std::fs::rename(&beside, to)).map_err(|e| self.failed(&e, 500, "rename()", to))
        });
        if copied.is_err() {
            let _ = std::fs::remove_file(&beside);
            return copied;
        }
        std::fs::remove_file(from).map_err(|e| self.failed(&e, 500, "unlink()", from))
    }
}

/// In the directory of the path.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    let random: String = net::random::bytes16().iter().take(8).map(|b| format!("{b:02x}")).collect();
    name.push(format!(".{random}"));
    name.into()
}

fn time(seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    if seconds < 0 { epoch.checked_sub(distance) } else { epoch.checked_add(distance) }.unwrap_or(epoch)
}

pub fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
