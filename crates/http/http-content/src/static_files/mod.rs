//! Files (nginx: `ngx_http_static_module`): the default content handler.

use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::file_io::{self, Aio};
use http_engine::files::{self, FileKind};
use http_engine::path::FilePath;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, Request, Str, file_paths};
use http_types::Method;
use http_upstream::opening;
use net::pool::Pool;
use observe::Severity;
use std::any::Any;
use std::sync::Arc;

directives! {
    /// The module has no directives of its own; its behaviour follows the core's.
    pub struct StaticConf from StaticInput {
    }
}

pub struct StaticFiles;

impl Feature for StaticFiles {
    fn table(&self) -> FeatureTable {
        StaticConf::table("static_files", ContextArea::Http)
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        block.handle(HandlerOrder::Files, Arc::new(StaticHandler));
        Ok(())
    }
}

struct StaticHandler;

impl Handler for StaticHandler {
    fn run(&self, r: &mut Request) -> Flow {
        if !matches!(r.target.method(), Method::Get | Method::Head | Method::Post) {
            return Flow::Status(405);
        }
        if r.target.path().ends_with(b"/") {
            return Flow::Declined;
        }
        let buf = r.take_scratch();
        let path = match file_paths::map_path(r, buf) {
            Ok(path) => path,
            Err(status) => return Flow::Status(status),
        };
        if matches!(r.loc().core.conf.aio, Aio::Threads(_))
            && !files::knows_path(&path)
            && let Some(pool) = file_io::file_pool(r)
        {
            return warm(pool, path);
        }
        let flow = answer(r, &path);
        r.put_scratch(path.into_bytes());
        flow
    }
}

/// Reads a file's metadata on the pool, so that the thread finds it cached.
fn warm(pool: Arc<Pool>, path: FilePath) -> Flow {
    Flow::Later(Box::new(move |mut r| {
        Box::pin(async move {
            let looked_at = path.clone();
            match pool.run(move || files::bring_in(&looked_at)) {
                Ok(waiting) => _ = waiting.await,
                Err(full) => {
                    let name = &pool.spec().name;
                    r.log(
                        Severity::Error,
                        format_args!("thread pool \"{name}\" queue overflow: {} tasks waiting", full.waiting),
                    );
                    return (r, Flow::Status(500));
                }
            }
            let flow = answer(&mut r, &path);
            (r, flow)
        })
    }))
}

fn answer(r: &mut Request, path: &FilePath) -> Flow {
    let found = match file_paths::look_up(r, path) {
        Ok(found) => found,
        Err(e) => return opening::open_failed(r, path, &e),
    };
    match found.kind {
        FileKind::File => {}
        FileKind::Folder => return to_folder(r),
        FileKind::Other => {
            let shown = String::from_utf8_lossy(path);
            r.log(Severity::Crit, format_args!("\"{shown}\" is not a regular file"));
            return Flow::Status(404);
        }
    }
    // Apache's handler of files answers POST like GET.
    if r.target.method() == Method::Post && r.loc().file_guard.is_none() {
        return Flow::Status(405);
    }
    r.accounting.set_action(Some("sending response to client"));
    r.describe_file(found.size, found.modified, || Str::Shared(found.etag.clone()));
    Flow::Content(found.body())
}

/// Redirects a directory without its final slash.
fn to_folder(r: &mut Request) -> Flow {
    let mut target = Vec::with_capacity(r.target.path().len() + 2 + r.target.args().len());
    http_engine::path::escape_uri(r.target.path(), &mut target);
    target.push(b'/');
    if !r.target.args().is_empty() {
        target.push(b'?');
        target.extend_from_slice(r.target.args());
    }
    r.out.set_location(target);
    Flow::Status(301)
}
