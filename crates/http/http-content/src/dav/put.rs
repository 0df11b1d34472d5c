//! PUT: writes the body to a temporary file, which then replaces the target.

use super::files::{self, RenameJob};
use super::{DavPlan, refuse, set_location};
use http_engine::path::bytes_path;
use http_engine::{Flow, Request, ResponseBody, file_paths};
use http_types::Known;
use http_upstream::body_store::{self, SpooledBody};
use observe::Severity;
use observe::clock::parse_http_time;
use std::sync::Arc;

pub fn put(plan: &Arc<DavPlan>, r: &mut Request) -> Flow {
    if r.target.path().ends_with(b"/") {
        return refuse(r, 409, format_args!("cannot PUT to a collection"));
    }
    if r.header(Known::ContentRange).is_some() {
        return refuse(r, 501, format_args!("PUT with range is unsupported"));
    }
    let plan = plan.clone();
    Flow::Later(Box::new(move |mut r| {
        Box::pin(async move {
            let flow = match store(&plan, &mut r).await {
                Ok(flow) => flow,
                Err(status) => Flow::Status(status),
            };
            (r, flow)
        })
    }))
}

async fn store(plan: &DavPlan, r: &mut Request) -> Result<Flow, u16> {
    let spooled = body_store::spool_body(r).await?;
    let path = file_paths::mapped_path(r)?;
    let how = RenameJob {
        mode: Some(plan.access),
        modified: r.header(Known::Date).and_then(parse_http_time),
        folders: plan.full_path.then(|| plan.folder_access()),
    };
    let status = files::run_job(r, move |work| place(work, spooled, &path, how)).await?;
    if status == 201 {
        set_location(r);
        r.out.set_content_length(Some(0));
    }
    r.out.set_status(status);
    Ok(Flow::Content(ResponseBody::Empty))
}

fn place(work: &mut files::DavWork, spooled: SpooledBody, path: &[u8], how: RenameJob) -> Result<u16, u16> {
    let to = bytes_path(path);
    let status = match std::fs::metadata(to) {
        Ok(found) if found.is_dir() => {
            let text = format!("\"{}\" could not be created (21: Is a directory)", to.display());
            work.lines.push((Severity::Error, text));
            return Err(409);
        }
        Ok(_) => 204,
        Err(_) => 201,
    };
    let Some(from) = spooled.path() else {
        base::bug!("the body of PUT has no file");
        return Err(500);
    };
    if status == 204 {
        work.keep_properties(to, from);
    }
    work.rename(from, to, how)?;
    spooled.moved();
    Ok(status)
}
