//! api (nginx: `ngx_http_api_module` of the commercial edition): the state of the server as JSON, and changes of
//! key-value pairs and of servers of groups.
//!
//! `path.rs` parses the URI, `run.rs` answers. All requests are answered by one thread of their own, one after the
//! other: collecting numbers and writing files delays no worker, and changes have one writer.

mod answer;
mod ask;
mod dashboard;
mod pairs;
mod path;
mod run;
mod server;
mod servers;
mod upstreams;
mod zones;

pub use dashboard::{DashboardFeature, EXPLAIN_PATIENCE, Explainer, explain_with, has_dashboard};

use answer::{Answer, Refused};
use ask::{Ask, Verb};
use bytes::Bytes;
use conf_schema::table::synthetic;
use conf_schema::value::Own;
use conf_schema::{Area, Contexts, Cx, Directive, Problem, Table, Value, directives};
use http_engine::variables::find_arg;
use http_engine::{BlockPlan, Body, Feature, Flow, Handler, HandlerOrder, PlanOrder, Request, Template};
use http_types::Method;
use http_upstream::body_store;
use net::Address;
use net::pool::{Pool, PoolSpec};
use observe::Level;
use session_engine::inventory::Inventory;
use std::any::Any;
use std::sync::{Arc, OnceLock};

directives! {
    pub struct ApiConf from ApiInput {
        /// Responds with the state of the server as JSON, versions 1 to 9 of the API that nginx's commercial edition
        /// defines. `write=on` permits changes of key-value pairs and of servers of groups with `zone`, and resets of
        /// counters. Restrict access with `allow` and `deny`.
        /// Differs: `write=on` on an address that is not local requires access rules or authentication; `PUT` replaces
        /// all servers of a group at once; `If-Match` and `dry_run` protect changes; values that are not counted are
        /// left out.
        api: Own<Writes>,
    }
}

/// `write=on`
#[derive(Clone, Copy, Debug)]
pub struct Writes(bool);

impl Value for Writes {
    const SYNTAX: &'static str = "[write=on | off]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        match d.args.first().map(|word| word.bytes.as_slice()) {
            None | Some(b"write=off") => Ok(Writes(false)),
            Some(b"write=on") => Ok(Writes(true)),
            Some(_) => {
                let text = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
                Err(Problem::says(format!("invalid parameter \"{text}\"")).at(0))
            }
        }
    }
}

pub struct ApiFeature;

impl Feature for ApiFeature {
    fn table(&self) -> Table {
        ApiConf::table("api", Area::Http)
    }
    /// After the features that restrict access.
    fn plan_order(&self) -> PlanOrder {
        PlanOrder::Around
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let said = conf.downcast_ref::<ApiConf>().and_then(|conf| conf.api.as_ref());
        let Some(Own(Writes(writes))) = said.filter(|_| block.context == Contexts::location) else { return Ok(()) };
        if block.location.regex || block.location.named {
            let words =
                "\"api\" needs a location that is given by a prefix: the rest of the URI is the path of the API";
            return Err(Problem::says(words).of("api"));
        }
        if *writes && !is_restricted(block) {
            let open = block.listens.iter().find(|address| !is_local(address));
            let open = open.map(ToString::to_string).or(block.listens.is_empty().then(|| "*:80".into()));
            if let Some(address) = open {
                let words = format!("\"api write=on\" without access rules on {address}, which is not local");
                return Err(Problem::says(words).of("api").hint(
                    "add \"allow\" and \"deny\", or authentication, to the location, or listen on 127.0.0.1, ::1 or a \
                     UNIX-domain socket",
                ));
            }
        }
        let request_id = Template::compile(block.cx, &synthetic("api", ""), b"$request_id")?;
        block.location.content = Some(Arc::new(Api {
            prefix: block.location.name.len(),
            writes: *writes,
            inventory: Inventory::of(block.cx),
            request_id,
        }));
        Ok(())
    }
}

fn is_local(address: &Address) -> bool {
    match address {
        Address::Ip(address) => address.ip().is_loopback(),
        Address::Unix(_) => true,
    }
}

/// Tells whether the location checks addresses or credentials.
fn is_restricted(block: &BlockPlan<'_>) -> bool {
    let checks = [HandlerOrder::Access, HandlerOrder::AuthBasic, HandlerOrder::AuthJwt, HandlerOrder::AuthRequest];
    block.location.drafts.iter().any(|(order, _)| checks.contains(order))
}

struct Api {
    /// Length of the location's prefix.
    prefix: usize,
    writes: bool,
    inventory: Arc<Inventory>,
    request_id: Template,
}

/// Requests that wait for the API's thread at most.
const WAITING_MAX: usize = 256;

/// Pool of one thread, so that changes have one writer. It starts with the first request.
fn pool() -> &'static Arc<Pool> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    POOL.get_or_init(|| Pool::new(PoolSpec { name: "api".into(), threads: 1, queue_max: WAITING_MAX }))
}

impl Handler for Api {
    fn run(&self, r: &mut Request) -> Flow {
        let path = r.target.path.get(self.prefix..).unwrap_or_default();
        let Ok(path) = std::str::from_utf8(path).map(str::to_string) else { return Flow::Status(404) };
        let verb = match r.target.method {
            Method::Get | Method::Head => Verb::Get,
            Method::Post => Verb::Post,
            Method::Put => Verb::Put,
            Method::Patch => Verb::Patch,
            Method::Delete => Verb::Delete,
            _ => Verb::Other,
        };
        let arg = |name: &[u8]| {
            let value = find_arg(&r.target.args, name)?;
            let mut plain = Vec::with_capacity(value.len());
            http_engine::path::unescape(value, &mut plain);
            Some(String::from_utf8_lossy(&plain).into_owned())
        };
        let mut ask = Ask {
            path,
            verb,
            fields: arg(b"fields"),
            key: arg(b"key"),
            dry_run: matches!(arg(b"dry_run").as_deref(), Some("" | "1" | "on" | "true")),
            if_match: None,
            foreign: false,
            body: Bytes::new(),
            writes: self.writes,
            local: r.connection().local.to_string(),
            inventory: self.inventory.clone(),
        };
        ask.foreign = verb != Verb::Get && is_foreign(r);
        let if_match = r.headers().find(|(name, _)| name.eq_ignore_ascii_case(b"if-match"));
        ask.if_match = if_match.map(|(_, value)| String::from_utf8_lossy(value).trim().to_string());
        let id = String::from_utf8_lossy(&self.request_id.eval(r)).into_owned();
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let flow = answer(&mut r, ask, &id).await;
                (r, flow)
            })
        }))
    }
}

/// Tells whether a browser sends the request for a page of another site.
fn is_foreign(r: &Request) -> bool {
    let field = |name: &[u8]| r.headers().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    if field(b"sec-fetch-site").is_some_and(|site| !matches!(site, b"same-origin" | b"none")) {
        return true;
    }
    let authority = |origin: &[u8]| {
        let at = origin.windows(3).position(|part| part == b"://").map_or(0, |at| at + 3);
        origin.get(at..).unwrap_or_default().to_ascii_lowercase()
    };
    match (field(b"origin"), field(b"host")) {
        (Some(origin), Some(host)) => authority(origin) != host.to_ascii_lowercase(),
        (origin, _) => origin.is_some(),
    }
}

async fn answer(r: &mut Request, mut ask: Ask, id: &str) -> Flow {
    let reads = ask.reads_body();
    let version = path::version(&ask.path);
    let done = match if reads { body_store::read_small(r).await } else { Ok(Bytes::new()) } {
        Ok(body) => {
            ask.body = body;
            match pool().run(move || run::run(&ask)) {
                Ok(work) => work.await.unwrap_or_else(|_| Err(Refused::internal("the request failed"))),
                Err(_) => Err(Refused::new(503, "TooManyRequests", "too many requests of the API are waiting")),
            }
        }
        Err(413) => Err(Refused::new(413, "RequestEntityTooLarge", "the body exceeds client_body_buffer_size")),
        Err(status @ (499 | 444)) => return Flow::Status(status),
        Err(status) => Err(Refused::new(status.clamp(400, 599), "BodyReadError", "reading request body failed")),
    };
    if let Err(refused) = &done
        && refused.status >= 500
    {
        r.log(Level::Error, format_args!("api: {}", refused.text));
    }
    let Answer { status, body, etag } = done.unwrap_or_else(|refused| refused.answer(version, id));
    r.out.status = status;
    r.out.add("Cache-Control", b"no-store".to_vec());
    if let Some(etag) = etag {
        r.out.add("ETag", etag.into_bytes());
    }
    match body {
        Some(text) => {
            r.out.content_type = "application/json".into();
            r.out.content_length = Some(text.len() as u64);
            Flow::Content(Body::Bytes(Bytes::from(text)))
        }
        None => Flow::Content(Body::Empty),
    }
}
