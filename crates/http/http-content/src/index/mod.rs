//! index (nginx: `ngx_http_index_module`): looks URIs with a final slash up as files of that directory.

use crate::shared::NamedIndex;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::files::FileKind;
use http_engine::path::FilePath;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, HttpTemplate, Request, file_paths, special};
use http_types::Method;
use observe::{Severity, os_error};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct IndexConf from IndexInput {
        /// File names to try, in order, for a directory.
        index: IndexNames = "index.html",
    }
}

#[derive(Clone)]
pub struct IndexNames(Arc<Vec<HttpTemplate>>);

impl ValueKind for IndexNames {
    const SYNTAX: &'static str = "file ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut names = Vec::new();
        for (index, word) in d.args.iter().enumerate() {
            if word.bytes.is_empty() {
                return Err(Problem::says("index \"\" in \"index\" directive is invalid").at(index));
            }
            if word.bytes.starts_with(b"/") && index + 1 != d.args.len() {
                cx.warn(d, "only the last index in \"index\" directive should be absolute");
            }
            names.push(HttpTemplate::compile(cx, d, &word.bytes).map_err(|p| p.at(index))?);
        }
        Ok(IndexNames(Arc::new(names)))
    }
    fn append(&mut self, later: Self) {
        Arc::make_mut(&mut self.0).extend(later.0.iter().cloned());
    }
}

pub struct Index;

impl Feature for Index {
    fn table(&self) -> FeatureTable {
        IndexConf::table("index", ContextArea::Http)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if let Some(conf) = conf.downcast_ref::<IndexConf>() {
            let look = Arc::new(IndexLook(conf.index.0.clone()));
            block.handle(HandlerOrder::Index, look);
        }
        Ok(())
    }
}

struct IndexLook(Arc<Vec<HttpTemplate>>);

impl Handler for IndexLook {
    fn run(&self, r: &mut Request) -> Flow {
        if !r.target.path().ends_with(b"/") || !matches!(r.target.method(), Method::Get | Method::Head | Method::Post) {
            return Flow::Declined;
        }
        if r.ext::<NamedIndex>().is_some_and(|named| named.folder == r.target.path()[..]) {
            return Flow::Declined;
        }
        let folder = match http_engine::file_paths::mapped_path(r) {
            Ok(folder) => folder,
            Err(status) => return Flow::Status(status),
        };
        let mut folder_seen = false;
        for name in self.0.iter() {
            let name = name.eval(r);
            if name.starts_with(b"/") {
                return special::go_to(r, name, r.target.args().to_vec());
            }
            let Ok(file) = folder.join(&name) else {
                if !folder.ends_with(b"/") && !name.starts_with(b"../") {
                    // An `alias` without a final slash: the name would be appended to that of the directory.
                    if let Some(flow) = unlisted(r, &folder, &name) {
                        return flow;
                    }
                    continue;
                }
                r.log(
                    Severity::Error,
                    format_args!("index \"{}\" leads above the root", String::from_utf8_lossy(&name)),
                );
                return Flow::Status(400);
            };
            match file_paths::file_kind(r, &file) {
                // Even a directory, to whose name the next round adds a slash. An empty name is the directory
                // itself, which ends as a redirection cycle.
                Ok(_) => {
                    return special::go_to(r, [r.target.path(), name.as_slice()].concat(), r.target.args().to_vec());
                }
                Err(e) => match e.raw_os_error() {
                    Some(libc::EACCES) => {
                        let shown = String::from_utf8_lossy(&file);
                        r.log(Severity::Error, format_args!("\"{shown}\" is forbidden {}", os_error(&e)));
                        return Flow::Status(403);
                    }
                    Some(libc::EMLINK | libc::ELOOP) => return Flow::Status(403),
                    Some(libc::ENOTDIR | libc::ENAMETOOLONG) => return not_found(r, &file, &e),
                    Some(libc::ENOENT | libc::EINVAL) | None => {
                        if !folder_seen && let Some(flow) = missing_folder(r, &folder, &file) {
                            return flow;
                        }
                        folder_seen = true;
                    }
                    Some(_) => {
                        let shown = String::from_utf8_lossy(&file);
                        r.log(Severity::Crit, format_args!("stat() \"{shown}\" failed {}", os_error(&e)));
                        return Flow::Status(500);
                    }
                },
            }
        }
        Flow::Declined
    }
}

/// Answers for an `alias` without a final slash that names no directory (nginx: `ngx_http_index_test_dir`).
fn unlisted(r: &mut Request, folder: &FilePath, index: &[u8]) -> Option<Flow> {
    match file_paths::look_up(r, folder) {
        Ok(found) if found.kind == FileKind::Folder => None,
        Ok(_) => {
            let shown = String::from_utf8_lossy(folder);
            r.log(
                Severity::Crit,
                format_args!("\"{shown}\" is not a directory, though a URI with a final slash is mapped to it"),
            );
            Some(Flow::Status(500))
        }
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => None,
        Err(e) => Some(not_found(r, &[folder, index].concat(), &e)),
    }
}

/// A missing directory gives 404 instead of a listing's 403.
fn missing_folder(r: &mut Request, folder: &FilePath, file: &[u8]) -> Option<Flow> {
    let bare = folder.without_slash();
    let path = if bare.is_empty() { folder } else { &bare };
    match file_paths::look_up(r, path) {
        Ok(found) if found.kind == FileKind::Folder => None,
        Ok(_) => {
            let shown = String::from_utf8_lossy(path);
            r.log(Severity::Error, format_args!("\"{shown}\" is not a directory"));
            Some(Flow::Status(404))
        }
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => None,
        Err(e) => Some(not_found(r, file, &e)),
    }
}

/// nginx logs the index file, whatever part of its path is missing.
fn not_found(r: &Request, file: &[u8], e: &std::io::Error) -> Flow {
    if r.loc().core.conf.log_not_found {
        let shown = String::from_utf8_lossy(file);
        r.log(Severity::Error, format_args!("\"{shown}\" is not found {}", os_error(e)));
    }
    Flow::Status(404)
}
