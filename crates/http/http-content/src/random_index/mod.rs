//! random_index (nginx: `ngx_http_random_index_module`): a random file of the directory per request.

use crate::shared::pooled;
use conf_schema::value::Flag;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::path::bytes_path;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, Request, special};
use http_types::Method;
use observe::{Severity, os_error};
use std::any::Any;
use std::fs::ReadDir;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

directives! {
    pub struct RandomConf from RandomInput {
        /// Responds to requests for a directory with a random file from it.
        random_index: Flag = "off",
    }
}

pub struct RandomIndex;

impl Feature for RandomIndex {
    fn table(&self) -> FeatureTable {
        RandomConf::table("random_index", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if conf.downcast_ref::<RandomConf>().is_some_and(|conf| conf.random_index) {
            block.handle(HandlerOrder::RandomIndex, Arc::new(Choose));
        }
        Ok(())
    }
}

struct Choose;

impl Handler for Choose {
    fn run(&self, r: &mut Request) -> Flow {
        if !r.target.path().ends_with(b"/") || !matches!(r.target.method(), Method::Get | Method::Head | Method::Post) {
            return Flow::Declined;
        }
        let path = match http_engine::file_paths::mapped_path(r) {
            Ok(path) => path.without_slash(),
            Err(status) => return Flow::Status(status),
        };
        let mut names = match FolderNames::open(&path) {
            Ok(names) => names,
            Err(e) => return failed(r, &path, &e),
        };
        match names.read(NAMES_AT_ONCE) {
            Ok(true) => choose(r, &names.found),
            Ok(false) => Flow::Later(Box::new(move |mut r| {
                Box::pin(async move {
                    let all = pooled::run_pooled(&r, move || names.read(usize::MAX).map(|_| names.found));
                    let flow = match all.await {
                        Some(Ok(found)) => choose(&mut r, &found),
                        Some(Err(e)) => failed(&r, &path, &e),
                        None => Flow::Status(500),
                    };
                    (r, flow)
                })
            })),
            Err(e) => failed(r, &path, &e),
        }
    }
}

fn choose(r: &mut Request, names: &[Vec<u8>]) -> Flow {
    if names.is_empty() {
        return Flow::Declined;
    }
    let chance = u128::from_le_bytes(net::random::bytes16());
    let Some(name) = names.get((chance % names.len() as u128) as usize) else { return Flow::Declined };
    special::go_to(r, [r.target.path(), name.as_slice()].concat(), r.target.args().to_vec())
}

fn failed(r: &Request, path: &[u8], e: &std::io::Error) -> Flow {
    let (level, status) = match e.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG) => (Severity::Error, 404),
        Some(libc::EACCES) => (Severity::Error, 403),
        _ => (Severity::Crit, 500),
    };
    let shown = String::from_utf8_lossy(path);
    r.log(level, format_args!("opendir() \"{shown}\" failed {}", os_error(e)));
    Flow::Status(status)
}

/// Names that a request reads at once: half a millisecond. A thread of the pool reads larger directories.
const NAMES_AT_ONCE: usize = 1024;

/// A directory that is being read: its regular files, except hidden ones.
struct FolderNames {
    rest: ReadDir,
    found: Vec<Vec<u8>>,
}

impl FolderNames {
    fn open(path: &[u8]) -> std::io::Result<FolderNames> {
        let rest = std::fs::read_dir(bytes_path(if path.is_empty() { b"/" } else { path }))?;
        Ok(FolderNames { rest, found: Vec::new() })
    }
    /// Reads up to this many further entries. Returns `true` at the end of the directory.
    fn read(&mut self, most: usize) -> std::io::Result<bool> {
        for _ in 0..most {
            let Some(item) = self.rest.next() else { return Ok(true) };
            let item = item?;
            let name = item.file_name().into_vec();
            if name.starts_with(b".") {
                continue;
            }
            let kind = item.file_type()?;
            let regular = if kind.is_symlink() {
                std::fs::metadata(item.path()).is_ok_and(|meta| meta.is_file())
            } else {
                kind.is_file()
            };
            if regular {
                self.found.push(name);
            }
        }
        Ok(false)
    }
}
