//! COPY and MOVE.

use super::files::{self, DavWork, RenameJob, shown_path};
use super::{DavPlan, Depth, depth, has_body, later, refuse};
use http_engine::path::bytes_path;
use http_engine::path::{CanonicalPath, unsafe_uri};
use http_engine::values::Alias;
use http_engine::{Flow, Request, file_paths};
use http_types::{Known, Method};
use observe::Severity;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BadDestination {
    NoHost,
    Elsewhere,
    Invalid,
    /// Malformed, or above the root.
    Unsafe,
}

/// Path of a `Destination` or an `If` resource: absolute, or a URL of this server.
pub fn own_path<'a>(r: &Request, text: &'a [u8]) -> Result<&'a [u8], BadDestination> {
    if text.starts_with(b"/") {
        return Ok(text);
    }
    if r.target.host().is_empty() {
        return Err(BadDestination::NoHost);
    }
    let scheme: &[u8] = if r.connection().tls.is_some() { b"https://" } else { b"http://" };
    let rest = text.strip_prefix(scheme).ok_or(BadDestination::Invalid)?;
    let (host, after) = rest.split_at_checked(r.target.host().len()).ok_or(BadDestination::Elsewhere)?;
    if !host.eq_ignore_ascii_case(r.target.host()) {
        return Err(BadDestination::Elsewhere);
    }
    // Either a port follows, or it is another server's longer name.
    if !matches!(after.first(), None | Some(b'/' | b':')) {
        return Err(BadDestination::Elsewhere);
    }
    let slash = after.iter().position(|c| *c == b'/').ok_or(BadDestination::Invalid)?;
    after.get(slash..).ok_or(BadDestination::Invalid)
}

/// Unescaped path of a `Destination`, without dot segments.
pub fn parse_destination(r: &Request, text: &[u8]) -> Result<CanonicalPath, BadDestination> {
    let path = own_path(r, text)?;
    unsafe_uri(path).map(|(path, _)| path).map_err(|_| BadDestination::Unsafe)
}

struct CopyJob {
    moving: bool,
    source: Vec<u8>,
    /// Without a final slash.
    target: Vec<u8>,
    /// Both paths end with a slash.
    slashed: bool,
    overwrite: bool,
    /// URI and destination as received, for the log.
    uri: String,
    wanted: String,
    folders: u32,
}

pub fn copy_move(plan: &Arc<DavPlan>, r: &mut Request) -> Flow {
    let job = match prepare(plan, r) {
        Ok(job) => job,
        Err(flow) => return flow,
    };
    let (plan, uri, moving) = (plan.clone(), r.target.path().clone(), job.moving);
    later(
        move |work| job.run(work),
        move |_, status| {
            if moving {
                plan.forget_locks(&uri);
            }
            Flow::Status(status)
        },
    )
}

fn prepare(plan: &DavPlan, r: &mut Request) -> Result<CopyJob, Flow> {
    if has_body(r) {
        return Err(refuse(r, 415, format_args!("COPY and MOVE with body are unsupported")));
    }
    let Some(wanted) = r.header(Known::Destination).map(<[u8]>::to_vec) else {
        return Err(refuse(r, 400, format_args!("client sent no \"Destination\" header")));
    };
    let said = shown_path(&wanted);
    let to = parse_destination(r, &wanted).map_err(|bad| match bad {
        BadDestination::NoHost => refuse(r, 400, format_args!("client sent no \"Host\" header")),
        BadDestination::Elsewhere => refuse(
            r,
            400,
            format_args!("\"Destination\" URI \"{said}\" is handled by different repository than the source URI"),
        ),
        BadDestination::Invalid | BadDestination::Unsafe => {
            if bad == BadDestination::Unsafe {
                let path = shown_path(own_path(r, &wanted).unwrap_or_default());
                r.log(Severity::Error, format_args!("unsafe URI \"{path}\" was detected"));
            }
            refuse(r, 400, format_args!("client sent invalid \"Destination\" header: \"{said}\""))
        }
    })?;
    if r.plan().ht_names_hidden && to.has_ht_name() {
        return Err(refuse(r, 403, format_args!("names that begin with \".ht\" are not for clients")));
    }
    let uri = shown_path(r.target.path());
    let slashed = r.target.path().ends_with(b"/");
    if slashed != wanted.ends_with(b"/") {
        return Err(refuse(
            r,
            409,
            format_args!(
                "both URI \"{uri}\" and \"Destination\" URI \"{said}\" should be either collections or non-collections"
            ),
        ));
    }
    if matches!(r.loc().core.root.alias, Alias::Prefix(length) if to.len() < length) {
        return Err(refuse(r, 400, format_args!("client sent invalid \"Destination\" header: \"{said}\"")));
    }
    let moving = r.target.method() == Method::Move;
    match depth(r, Depth::Infinity) {
        Some(Depth::Infinity) => {}
        Some(Depth::Zero) if !moving => {}
        _ if moving => return Err(refuse(r, 400, format_args!("\"Depth\" header must be infinity"))),
        _ => return Err(refuse(r, 400, format_args!("\"Depth\" header must be 0 or infinity"))),
    }
    let overwrite = match r.header(Known::Overwrite) {
        None | Some(b"T" | b"t") => true,
        Some(b"F" | b"f") => false,
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            return Err(refuse(r, 400, format_args!("client sent invalid \"Overwrite\" header: \"{other}\"")));
        }
    };
    let source = file_paths::mapped_path(r).map_err(Flow::Status)?;
    let target = file_paths::map_file(r, &to, Vec::new()).map_err(Flow::Status)?;
    if !file_paths::guard_admits(r, &source) || !file_paths::guard_admits(r, &target) {
        return Err(Flow::Status(403));
    }
    if http_engine::is_denied_elsewhere(r, &to, &target) {
        return Err(refuse(r, 403, format_args!("\"Destination\" URI \"{said}\" is forbidden by its location")));
    }
    let (source, mut target) = (single_slashes(&source), single_slashes(&target));
    let slashed = target.ends_with(b"/");
    if slashed {
        target.pop();
    }
    check_places(r, &source, &target, slashed, &said)?;
    Ok(CopyJob { moving, source, target, slashed, overwrite, uri, wanted: said, folders: plan.folder_access() })
}

/// Refuses to put a directory into itself or over its parent.
fn check_places(r: &Request, source: &[u8], target: &[u8], slashed: bool, said: &str) -> Result<(), Flow> {
    let source = source.strip_suffix(b"/").unwrap_or(source);
    let uri = shown_path(r.target.path());
    if source == target {
        return Err(refuse(
            r,
            403,
            format_args!("both URI \"{uri}\" and \"Destination\" URI \"{said}\" point to the same location"),
        ));
    }
    let within = |inner: &[u8], outer: &[u8]| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with(b"/"));
    if slashed && (within(target, source) || within(source, target)) {
        let method = r.target.method().name();
        return Err(refuse(r, 403, format_args!("\"{uri}\" could not be {method}ed to collection \"{said}\"")));
    }
    Ok(())
}

fn single_slashes(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for &c in path {
        if c != b'/' || out.last() != Some(&b'/') {
            out.push(c);
        }
    }
    out
}

impl CopyJob {
    fn run(mut self, work: &mut DavWork) -> Result<u16, u16> {
        work.refuse_ht_names(&self.source)?;
        work.refuse_ht_names(&self.target)?;
        let target = bytes_path(&self.target).to_path_buf();
        let over_folder = match std::fs::symlink_metadata(&target) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                self.overwrite = false;
                false
            }
            Err(e) => return Err(work.failed(&e, 404, "lstat()", &target)),
            Ok(found) if found.is_dir() && !self.slashed => {
                let method = if self.moving { "MOVE" } else { "COPY" };
                let text = format!("\"{}\" could not be {method}ed to collection \"{}\"", self.uri, self.wanted);
                return Err(work.says(409, text));
            }
            Ok(_) if !self.overwrite => {
                let text = format!("\"{}\" could not be created (17: File exists)", target.display());
                return Err(work.says(412, text));
            }
            Ok(found) => found.is_dir(),
        };
        let source = bytes_path(&self.source).to_path_buf();
        let found = std::fs::symlink_metadata(&source).map_err(|e| work.failed(&e, 404, "lstat()", &source))?;
        if found.is_dir() {
            if !self.source.ends_with(b"/") {
                return Err(work.says(400, format!("\"{}\" is collection", self.uri)));
            }
            work.refuse_inside(&source, &target)?;
            if self.overwrite {
                work.delete(&self.target, over_folder)?;
            }
            return self.folder(work, found.mode());
        }
        if self.moving {
            work.rename(&source, &target, RenameJob { folders: Some(self.folders), ..RenameJob::default() })?;
            return Ok(204);
        }
        // Copies the target of the link.
        let found = std::fs::metadata(&source).map_err(|e| work.failed(&e, 404, "stat()", &source))?;
        work.copy_file(&source, &target, &found, 409)?;
        Ok(204)
    }

    fn folder(&self, work: &mut DavWork, mode: u32) -> Result<u16, u16> {
        let source = bytes_path(self.source.strip_suffix(b"/").unwrap_or(&self.source));
        let target = bytes_path(&self.target);
        if self.moving && std::fs::rename(source, target).is_ok() {
            return Ok(201);
        }
        work.make_folder(files::path_bytes(target), mode & 0o777, 404)?;
        work.copy_inside(source, target)?;
        work.keep_properties(source, target);
        if self.moving {
            if work.lines.iter().any(|(level, _)| *level <= Severity::Error) {
                // nginx would remove a directory that it failed to copy.
                return Err(500);
            }
            work.delete(&self.source, true)?;
        }
        Ok(201)
    }
}
