//! The way from a path to its file: [`map_path`] maps the request's path by `root` and `alias`; [`look_up`], [`file_kind`] and
//! [`probe_path`] look files up under `disable_symlinks`, and [`look_up`] and [`guard_admits`] ask the location's guard.

use crate::core_table::SymlinkMode;
use crate::path::{self, CanonicalPath, FilePath};
use crate::request::Request;
use crate::values::Alias;

/// File of the request's path by `root` or `alias` (nginx: `ngx_http_map_uri_to_path`). Logged failures: 500 if a
/// rewritten path left `alias`, 400 outside of the folder.
pub fn mapped_path(r: &mut Request) -> Result<FilePath, u16> {
    map_path(r, Vec::with_capacity(128))
}

/// [`mapped_path`] with a caller's buffer.
pub fn map_path(r: &mut Request, buf: Vec<u8>) -> Result<FilePath, u16> {
    let path = std::mem::take(&mut r.target.path);
    let mapped = map_file(r, &path, buf);
    r.target.path = path;
    mapped
}

/// File of another path in the request's location.
pub fn map_file(r: &mut Request, path: &CanonicalPath, mut buf: Vec<u8>) -> Result<FilePath, u16> {
    let plan = r.plan_rc();
    let location = plan.loc(r.scope.location);
    let root = &location.core.root;
    if root.alias != Alias::No && r.target.left_location {
        let name = String::from_utf8_lossy(&location.name).into_owned();
        r.log(
            observe::Severity::Alert,
            format_args!("\"alias\" cannot be used in location \"{name}\" where URI was rewritten"),
        );
        return Err(500);
    }
    buf.clear();
    root.write(r, &mut buf);
    let made = match (root.path.as_literal(), root.alias) {
        (Some(_), _) => Ok(()),
        (None, _) => path::only_own_dots(&root.path, &buf),
    };
    let mapped = made.and_then(|()| match root.alias {
        Alias::No => FilePath::of(buf, path),
        Alias::Prefix(length) => FilePath::aliased(buf, path, length),
        Alias::Whole if r.target.append_to_alias => FilePath::of(buf, path),
        Alias::Whole => FilePath::configured(&root.path, buf),
    });
    mapped.map_err(|_| {
        let (name, path) = (String::from_utf8_lossy(&location.name), String::from_utf8_lossy(path));
        r.log(observe::Severity::Error, format_args!("\"{path}\" leads out of the root of location \"{name}\""));
        // A path without a slash comes from the configuration: nginx appends it to the root's name and finds nothing.
        if path.is_empty() || path.starts_with('/') { 400 } else { 404 }
    })
}

/// Resolves dot segments of a path from the configuration, a file or a server. Fails with 400 above the root; logged.
pub fn canonical_path(r: &Request, path: Vec<u8>) -> Result<CanonicalPath, u16> {
    let shown = || String::from_utf8_lossy(&path).into_owned();
    CanonicalPath::made(path.clone()).map_err(|_| {
        r.log(observe::Severity::Error, format_args!("\"{}\" leads above the root", shown()));
        400
    })
}

/// Kind and size of any path, for conditions, which never read files.
pub fn probe_path(r: &mut Request, path: &[u8]) -> std::io::Result<(crate::files::FileKind, u64)> {
    match look_at(r, path) {
        Ok(found) => Ok((found.kind, found.size)),
        // As in nginx, a file exists without the permission to read it, or a free descriptor.
        Err(e)
            if r.loc().core.conf.disable_symlinks.mode == SymlinkMode::Allowed && !crate::files::is_about_path(&e) =>
        {
            crate::files::stat(path)
        }
        Err(e) => Err(e),
    }
}

/// Kind of a file that a handler tests and does not read. Fails with EACCES for `.ht` names where `.htaccess` applies,
/// and for paths that name no file; unreadable files have a kind, too. Does not ask the location's guard.
pub fn file_kind(r: &mut Request, path: &FilePath) -> std::io::Result<crate::files::FileKind> {
    visible(r, path)?;
    probe_path(r, path).map(|(kind, _)| kind)
}

/// Entry of a file under `disable_symlinks`. Fails with EACCES for `.ht` names where `.htaccess` applies, and for files that
/// the location's guard refuses.
pub fn look_up(r: &mut Request, path: &FilePath) -> std::io::Result<std::rc::Rc<crate::files::FileEntry>> {
    visible(r, path)?;
    if !guard_admits(r, path) {
        return Err(std::io::Error::from_raw_os_error(libc::EACCES));
    }
    look_at(r, path)
}

/// Asks the location's guard for a file that a handler is about to open, run, replace or create.
pub fn guard_admits(r: &mut Request, path: &FilePath) -> bool {
    match r.loc().file_guard.clone() {
        Some(guard) => guard.admits(r, path),
        None => true,
    }
}

fn visible(r: &Request, path: &FilePath) -> std::io::Result<()> {
    let name = path.rsplit(|c| *c == b'/').next().unwrap_or_default();
    match r.loc().ht_names_hidden && path::is_ht_name(name) {
        true => Err(std::io::Error::from_raw_os_error(libc::EACCES)),
        false => Ok(()),
    }
}

/// Entry of a `.htaccess` file, which [`look_up`] denies.
pub fn folder_file(r: &mut Request, path: &FilePath) -> std::io::Result<std::rc::Rc<crate::files::FileEntry>> {
    look_at(r, path)
}

fn look_at(r: &mut Request, path: &[u8]) -> std::io::Result<std::rc::Rc<crate::files::FileEntry>> {
    let core = &r.loc().core;
    if core.conf.disable_symlinks.mode == SymlinkMode::Allowed {
        return crate::files::look(path);
    }
    let core = core.clone();
    let from = core.conf.disable_symlinks.from.as_ref().map(|t| t.eval(r)).unwrap_or_default();
    // Checks the whole path unless the exempted prefix matches and ends at a segment boundary.
    let from = match path.strip_prefix(&from[..]) {
        Some([]) => return crate::files::look(path),
        Some([b'/', ..]) => from.len(),
        Some(_) if from.ends_with(b"/") => from.len() - 1,
        _ => 0,
    };
    crate::files::look_without_links(path, from, core.conf.disable_symlinks.mode == SymlinkMode::IfNotOwner)
}
