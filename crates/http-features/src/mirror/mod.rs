//! mirror (nginx: `ngx_http_mirror_module`): copies of a request in the background, whose answers nobody waits for.
//!
//! The connection takes its next request when the copies have been answered, too, and only then the request is logged.

use conf_schema::value::Flag;
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use http_engine::path::CanonicalPath;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, Request, RequestBody, subrequest};
use http_upstream::body_store;
use std::any::Any;
use std::sync::Arc;

directives! {
    /// What the module is told in a block.
    pub struct MirrorConf from MirrorInput {
        /// A URI that every request is mirrored to; `off`: none.
        mirror: Targets = "off",
        /// Whether the client's body is read, and mirrored, before the request goes on.
        /// Differs: with `off` the copy says that it has no body; nginx passes the client's Content-Length on, and the copy's server
        /// waits for what never comes, unless `proxy_set_header Content-Length ""` is there.
        mirror_request_body: Flag = "on",
    }
}

/// `mirror` lines.
#[derive(Clone)]
pub struct Targets {
    uris: Vec<CanonicalPath>,
    off: bool,
}

impl Value for Targets {
    const SYNTAX: &'static str = "uri | off";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = d.args.first().map(|w| w.bytes.as_slice()).unwrap_or_default();
        let off = word == b"off";
        Ok(Targets {
            uris: if off { Vec::new() } else { vec![CanonicalPath::configured(word).map_err(|p| p.at(0))?] },
            off,
        })
    }
    fn append(&mut self, later: Self) {
        self.uris.extend(later.uris);
        self.off |= later.off;
    }
    fn meets(&self, later: &Self, _: &mut Cx, _: &Directive) -> Result<(), Problem> {
        if self.off || later.off { Err(Problem::duplicate()) } else { Ok(()) }
    }
}

/// The feature.
pub struct Mirror;

impl Feature for Mirror {
    fn table(&self) -> Table {
        MirrorConf::table("mirror", Area::Http)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<MirrorConf>() else { return Ok(()) };
        let Targets { uris, .. } = &conf.mirror;
        if !uris.is_empty() {
            let copy = Copies { uris: uris.as_slice().into(), body: conf.mirror_request_body };
            block.handle(HandlerOrder::Mirror, Arc::new(copy));
        }
        Ok(())
    }
}

struct Copies {
    uris: Arc<[CanonicalPath]>,
    body: bool,
}

impl Handler for Copies {
    fn run(&self, r: &mut Request) -> Flow {
        if r.is_subrequest() {
            return Flow::Declined;
        }
        if !self.body || !matches!(r.body, RequestBody::Unread(_)) {
            return send(r, &self.uris, self.body);
        }
        let uris = self.uris.clone();
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let flow = match body_store::read(&mut r).await {
                    Ok(_) => send(&mut r, &uris, true),
                    Err(status) => Flow::Status(status),
                };
                (r, flow)
            })
        }))
    }
}

fn send(r: &mut Request, uris: &[CanonicalPath], body: bool) -> Flow {
    for uri in uris {
        let args = r.args.clone();
        let Ok(mut child) = r.subrequest(uri.clone(), args) else { return Flow::Status(500) };
        child.head_only = true;
        child.set_method_of(r);
        if !body && body_store::kept(r).is_none() {
            // What the request itself reads later is not read for the copy.
            child.leave_body();
        }
        subrequest::background(child);
    }
    Flow::Declined
}
