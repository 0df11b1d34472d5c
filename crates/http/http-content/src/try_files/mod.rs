//! try_files (nginx: `ngx_http_try_files_module`).

use conf_schema::value::{Own, parse_decimal};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::core_table::SymlinkMode;
use http_engine::files::FileKind;
use http_engine::path::{CanonicalPath, FilePath};
use http_engine::values::Alias;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, HttpTemplate, Request, file_paths, special};
use observe::{Severity, os_error};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct TryConf from TryInput {
        /// Uses the first existing file, else the last argument: a URI, `=code` or a named location.
        /// Differs: dot segments are resolved; a file above the root does not exist, a URI above it gets 400.
        /// A URI without a slash never names a file; nginx appends it to the root's name. With `alias`, a last
        /// parameter with variables keeps the location's prefix if it had no slash without it.
        try_files: Own<Candidates>,
    }
}

#[derive(Clone)]
pub struct Candidates {
    /// Name, and whether it means a directory.
    files: Arc<Vec<(HttpTemplate, bool)>>,
    fallback: Fallback,
}

#[derive(Clone)]
enum Fallback {
    Status(u16),
    Uri(HttpTemplate),
}

impl ValueKind for Candidates {
    const SYNTAX: &'static str = "file ... uri | file ... =code";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some((last, files)) = d.args.split_last() else { return Err(Problem::invalid()) };
        let mut names = Vec::new();
        for (index, word) in files.iter().enumerate() {
            // A lone slash is the root's folder.
            let folder = word.bytes.strip_suffix(b"/");
            let text = folder.unwrap_or(&word.bytes);
            names.push((HttpTemplate::compile(cx, d, text).map_err(|p| p.at(index))?, folder.is_some()));
        }
        let fallback = match last.bytes.as_slice() {
            [b'=', digits @ ..] => {
                let code = std::str::from_utf8(digits).ok().and_then(parse_decimal::<u16>).filter(|c| *c <= 999);
                match code {
                    Some(code) => Fallback::Status(code),
                    None => {
                        let shown = last.text();
                        return Err(Problem::says(format!("invalid code \"{shown}\"")).at(files.len()));
                    }
                }
            }
            text => Fallback::Uri(HttpTemplate::compile(cx, d, text).map_err(|p| p.at(files.len()))?),
        };
        Ok(Candidates { files: Arc::new(names), fallback })
    }
}

pub struct TryFiles;

impl Feature for TryFiles {
    fn table(&self) -> FeatureTable {
        TryConf::table("try_files", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if let Some(Own(candidates)) = conf.downcast_ref::<TryConf>().and_then(|c| c.try_files.clone()) {
            block.handle(HandlerOrder::TryFiles, Arc::new(candidates));
        }
        Ok(())
    }
}

/// Logs the error of a test that does not mean that the file is missing.
fn untested(r: &Request, path: &[u8], e: &std::io::Error) {
    if r.loc().ht_names_hidden || matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG)) {
        return;
    }
    let linkless = r.loc().core.conf.disable_symlinks.mode != SymlinkMode::Allowed;
    let call = if linkless { "openat()" } else { "stat()" };
    r.log(Severity::Crit, format_args!("{call} \"{}\" failed {}", String::from_utf8_lossy(path), os_error(e)));
}

/// Returns `value` without the location's prefix that `alias` replaces. As in nginx, only parameters with variables
/// lose it.
fn below_alias<'a>(parameter: &HttpTemplate, value: &'a [u8], alias: Alias, r: &Request) -> Option<&'a [u8]> {
    let Alias::Prefix(length) = alias else { return None };
    if parameter.as_literal().is_some() {
        return None;
    }
    value.strip_prefix(r.target.path().get(..length)?)
}

impl Handler for Candidates {
    fn run(&self, r: &mut Request) -> Flow {
        let plan = r.plan_rc();
        let Some(location) = plan.locations.get(r.location_index()) else {
            base::bug!("no location {}", r.location_index());
            return Flow::Status(500);
        };
        let root = &location.core.root;
        if let Err(status) = file_paths::mapped_path(r) {
            return Flow::Status(status);
        }
        for (name, folder) in self.files.iter() {
            let mut below = name.eval(r);
            let mut path = Vec::with_capacity(128);
            root.write(r, &mut path);
            if let Some(rest) = below_alias(name, &below, root.alias, r) {
                below = rest.to_vec();
            }
            // A name outside of the root counts as missing.
            let made = CanonicalPath::made(below.clone()).and_then(|below| match root.alias {
                Alias::No => FilePath::of(path, &below),
                Alias::Prefix(_) | Alias::Whole => FilePath::aliased(path, &below, 0),
            });
            let Ok(path) = made else { continue };
            match file_paths::file_kind(r, &path) {
                Ok(kind) if (kind == FileKind::Folder) == *folder => {}
                Ok(_) => continue,
                Err(e) => {
                    untested(r, &path, &e);
                    continue;
                }
            }
            // A location without a handler of its own asks again when it opens the file.
            if !*folder && location.content.is_some() && !file_paths::guard_admits(r, &path) {
                return Flow::Status(403);
            }
            let uri = match root.alias {
                Alias::No => below,
                Alias::Prefix(length) => [r.target.path().get(..length).unwrap_or(b""), &below].concat(),
                Alias::Whole if *folder => return Flow::Declined,
                Alias::Whole => {
                    r.target.append_to_alias();
                    below
                }
            };
            // As in nginx, servers get the client's URI.
            r.target.set_path(match file_paths::canonical_path(r, uri) {
                Ok(path) => path,
                Err(status) => return Flow::Status(status),
            });
            return Flow::Declined;
        }
        match &self.fallback {
            Fallback::Status(status) => Flow::Status(*status),
            Fallback::Uri(uri) => {
                let mut target = uri.eval(r);
                if let Some(rest @ [b'/', ..]) = below_alias(uri, &target, root.alias, r) {
                    target = rest.to_vec();
                }
                if target.starts_with(b"@") {
                    return Flow::Named(target);
                }
                if target.is_empty() {
                    r.log(Severity::Error, format_args!("try_files has nothing to fall back to"));
                    return Flow::Status(500);
                }
                if !target.contains(&b'?') {
                    // As in nginx, the request's query is dropped.
                    r.target.args_mut().clear();
                    r.target.note_args(true);
                }
                match target.iter().position(|c| *c == b'?') {
                    Some(at) => {
                        let args = target.get(at + 1..).unwrap_or_default().to_vec();
                        target.truncate(at);
                        special::go_to(r, target, args)
                    }
                    None => special::go_to(r, target, Vec::new()),
                }
            }
        }
    }
}
