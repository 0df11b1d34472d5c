//! random_index (nginx: `ngx_http_random_index_module`): a random file of the directory per request.

use conf_schema::value::Flag;
use conf_schema::{Area, Problem, Table, directives};
use http_engine::path::bytes_path;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, Request, special};
use http_types::Method;
use observe::{Level, os};
use std::any::Any;
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
    fn table(&self) -> Table {
        RandomConf::table("random_index", Area::Http)
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
        if !r.target.path.ends_with(b"/") || !matches!(r.target.method, Method::Get | Method::Head | Method::Post) {
            return Flow::Declined;
        }
        let path = match http_engine::special::mapped_path(r) {
            Ok(path) => path.without_slash(),
            Err(status) => return Flow::Status(status),
        };
        let names = match files(&path) {
            Ok(names) => names,
            Err(e) => {
                let (level, status) = match e.raw_os_error() {
                    Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG) => (Level::Error, 404),
                    Some(libc::EACCES) => (Level::Error, 403),
                    _ => (Level::Crit, 500),
                };
                let shown = String::from_utf8_lossy(&path);
                r.log(level, format_args!("opendir() \"{shown}\" failed {}", os(&e)));
                return Flow::Status(status);
            }
        };
        if names.is_empty() {
            return Flow::Declined;
        }
        let chance = u128::from_le_bytes(net::random::bytes16());
        let Some(name) = names.get((chance % names.len() as u128) as usize) else { return Flow::Declined };
        special::go_to(r, [&r.target.path, name.as_slice()].concat(), r.target.args.clone())
    }
}

/// Except hidden ones.
fn files(path: &[u8]) -> std::io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for item in std::fs::read_dir(bytes_path(if path.is_empty() { b"/" } else { path }))? {
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
            names.push(name);
        }
    }
    Ok(names)
}
