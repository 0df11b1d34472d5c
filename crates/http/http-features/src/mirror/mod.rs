//! mirror (nginx: `ngx_http_mirror_module`): copies requests in the background and discards the responses. The next
//! request and the log wait for the copies.

use conf_schema::value::Flag;
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use http_engine::path::CanonicalPath;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, Request, RequestBody, subrequest};
use http_upstream::body_store;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct MirrorConf from MirrorInput {
        /// Copies every request to this URI, as a subrequest whose response is discarded; `off` turns it off.
        mirror: Targets = "off",
        /// Reads the request body first and sends it with the copy.
        /// Differs: with `off` the copy has no `Content-Length`; nginx keeps the client's, and the server waits for a
        /// body unless `proxy_set_header Content-Length ""` is set.
        mirror_request_body: Flag = "on",
    }
}

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

pub struct Mirror;

impl Feature for Mirror {
    fn table(&self) -> Table {
        MirrorConf::table("mirror", Area::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
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
        if !self.body || !matches!(r.incoming.body, RequestBody::Unread(_)) {
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
        let args = r.target.args.clone();
        let Ok(mut child) = r.subrequest(uri.clone(), args) else { return Flow::Status(500) };
        child.reply.head_only = true;
        child.set_method_of(r);
        if !body && body_store::kept(r).is_none() {
            // A body that is read later is not read for the copy.
            child.leave_body();
        }
        subrequest::background(child);
    }
    Flow::Declined
}
