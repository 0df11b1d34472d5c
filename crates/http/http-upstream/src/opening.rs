//! Opens the files of requests, with responses to failures.

use http_engine::core_table::SymlinkMode;
use http_engine::files::{FileEntry, FileKind};
use http_engine::path::FilePath;
use http_engine::{Flow, Request, file_paths};
use http_types::Method;
use observe::{Severity, os_error};
use std::rc::Rc;

/// Opens a regular file for GET and HEAD, for transforming handlers. Fails with the handler's answer.
pub fn wanted_file(r: &mut Request) -> Result<(FilePath, Rc<FileEntry>), Flow> {
    if !matches!(r.target.method(), Method::Get | Method::Head) {
        return Err(Flow::Status(405));
    }
    if r.target.path().ends_with(b"/") {
        return Err(Flow::Declined);
    }
    let path = file_paths::mapped_path(r).map_err(Flow::Status)?;
    match file_paths::look_up(r, &path) {
        Ok(found) if found.kind == FileKind::File => Ok((path, found)),
        Ok(_) => Err(Flow::Declined),
        Err(e) => Err(open_failed(r, &path, &e)),
    }
}

/// Responds to a file that cannot be opened, with nginx's line: 404, 403 or 500.
pub fn open_failed(r: &mut Request, path: &[u8], e: &std::io::Error) -> Flow {
    let (level, status) = match e.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG) => (Severity::Error, 404),
        Some(libc::EACCES | libc::EMLINK | libc::ELOOP) => (Severity::Error, 403),
        // A socket; nginx responds with 500.
        Some(libc::ENXIO) => (Severity::Crit, 404),
        _ => (Severity::Crit, 500),
    };
    if status != 404 || r.loc().core.conf.log_not_found {
        let shown = String::from_utf8_lossy(path);
        let linkless = r.loc().core.conf.disable_symlinks.mode != SymlinkMode::Allowed;
        let call = if linkless { "openat()" } else { "open()" };
        r.log(level, format_args!("{call} \"{shown}\" failed {}", os_error(e)));
    }
    Flow::Status(status)
}
