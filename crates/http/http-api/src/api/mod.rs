//! api (nginx: `ngx_http_api_module` of the commercial edition): the state of the server as JSON, and changes of
//! key-value pairs and of servers of groups; below `/tidegate/` the configuration (`own/`).
//!
//! `path.rs` parses the URI, `run.rs` responds. A separate thread handles all requests in order: collecting numbers and
//! writing files delays no worker, and changes have one writer.

mod answer;
mod ask;
mod certificates;
mod configuration;
mod dashboard;
pub mod fuzzing;
mod origin;
mod own;
mod pairs;
mod path;
mod run;
mod server;
mod servers;
mod upstreams;
mod zones;

pub use configuration::{
    Attachment, ConfigRefusal, ConfigReply, ConfigRequest, Configuration, Terms, configurations_kept, has_api,
    has_writes, serve_configuration,
};
pub use dashboard::{DashboardFeature, EXPLAIN_PATIENCE, Explainer, explain_with, has_dashboard};

use answer::{ApiError, ApiResponse};
use area::access::DeniesOthers;
use ask::{ApiRequest, Verb};
use bytes::Bytes;
use conf_schema::table::synthetic_directive;
use conf_schema::value::Own;
use conf_schema::{At, Complaint, ContextArea, Contexts, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::variables::find_arg;
use http_engine::{
    BlockPlan, Feature, Flow, Handler, HandlerOrder, HttpArea, HttpTemplate, PlanOrder, Request, ResponseBody,
    body_memory,
};
use http_types::Method;
use http_upstream::body_store;
use net::Address;
use net::pool::{Pool, PoolSpec};
use observe::Severity;
use origin::OwnNames;
use own::OwnAccess;
use std::any::Any;
use std::sync::{Arc, OnceLock};
use upstream_directives::inventory::Inventory;
use variables::names::ServerName;

directives! {
    pub struct ApiConf from ApiInput {
        /// Responds with the state of the server as JSON, in versions 1 to 9 of the API of nginx's commercial edition.
        /// `write=on` permits changes of key-value pairs and of servers of groups with `zone`, resets of counters, and
        /// error log levels that last until the next reload. Below `/tidegate/1/`, `config=read` returns the
        /// configuration as a tree with the line of each directive; `config=write` (with `write=on`) also replaces it.
        /// A new configuration is checked, stored and active before the response; `keep` configurations (10) are
        /// stored, and each can be activated again. Restrict access with `allow` and `deny`, and configurations with
        /// authentication.
        /// Differs: `write=on` on an address that is not local requires authentication or `deny all`; `PUT` replaces
        /// all servers of a group at once; `If-Match` and `dry_run` protect changes; values that are not counted are
        /// left out; `config` and `keep` are Tidegate's.
        api: Own<ApiArguments>,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConfigAccess {
    Off,
    Read,
    Write,
}

/// Configurations that are kept at most, and by default.
const KEEP_MAX: usize = 1000;
const KEEP: usize = 10;

/// `write=on`, `config=read`, `keep=10`
#[derive(Clone, Copy, Debug)]
pub struct ApiArguments {
    writes: bool,
    config: ConfigAccess,
    keep: usize,
    at: At,
}

impl ValueKind for ApiArguments {
    const SYNTAX: &'static str = "[write=on | off] [config=off | read | write] [keep=number]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let at = At { span: d.span, line: d.line };
        let (mut writes, mut config, mut keep) = (None, None, None);
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            let invalid = || {
                let problem = Problem::says(format!("invalid parameter \"{text}\"")).at(index);
                match text.starts_with('/') {
                    // `api /status/;`
                    true => {
                        problem.hint("Angie names a path here: write \"api;\" without one (docs/api.md has its paths)")
                    }
                    false => problem,
                }
            };
            let duplicate = match text.split_once('=') {
                Some(("write", "on")) => writes.replace(true).is_some(),
                Some(("write", "off")) => writes.replace(false).is_some(),
                Some(("config", "off")) => config.replace(ConfigAccess::Off).is_some(),
                Some(("config", "read")) => config.replace(ConfigAccess::Read).is_some(),
                Some(("config", "write")) => config.replace(ConfigAccess::Write).is_some(),
                Some(("keep", number)) => {
                    let number = number.parse().ok().filter(|number| (1..=KEEP_MAX).contains(number));
                    let hint = format!("write a number from 1 to {KEEP_MAX}");
                    keep.replace(number.ok_or_else(|| invalid().hint(hint))?).is_some()
                }
                _ => return Err(invalid()),
            };
            if duplicate {
                return Err(Problem::says(format!("duplicate parameter \"{text}\"")).at(index));
            }
        }
        let given = ApiArguments {
            writes: writes.unwrap_or(false),
            config: config.unwrap_or(ConfigAccess::Off),
            keep: keep.unwrap_or(KEEP),
            at,
        };
        if given.config == ConfigAccess::Write && !given.writes {
            return Err(Problem::says("\"config=write\" needs \"write=on\""));
        }
        if keep.is_some() && given.config != ConfigAccess::Write {
            return Err(Problem::says("\"keep\" needs \"config=write\""));
        }
        Ok(given)
    }
}

pub struct ApiFeature;

impl Feature for ApiFeature {
    fn table(&self) -> FeatureTable {
        ApiConf::table("api", ContextArea::Http)
    }
    /// After the features that restrict access.
    fn plan_order(&self) -> PlanOrder {
        PlanOrder::Around
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let said = conf.downcast_ref::<ApiConf>().and_then(|conf| conf.api.as_ref());
        let Some(Own(given)) = said.filter(|_| block.context == Contexts::location) else { return Ok(()) };
        if !block.location.has_path() {
            let words =
                "\"api\" needs a location that is given by a prefix: the rest of the URI is the path of the API";
            return Err(Problem::says(words).of("api"));
        }
        let parameter = match given.config {
            _ if given.writes => Some("write=on"),
            ConfigAccess::Off => None,
            ConfigAccess::Read | ConfigAccess::Write => Some("config=read"),
        };
        if let Some(parameter) = parameter.filter(|_| !is_restricted(block)) {
            let open = block.listens.iter().find(|address| !is_local(address));
            let open = open.map(ToString::to_string).or(block.listens.is_empty().then(|| "*:80".into()));
            if let Some(address) = open {
                let words = format!("\"api {parameter}\" without access rules on {address}, which is not local");
                return Err(Problem::says(words).of("api").hint(
                    "add \"allow\" and \"deny all\", or authentication, to the location, or listen on 127.0.0.1, ::1 or a \
                     UNIX-domain socket",
                ));
            }
        }
        let only_unix = block.listens.iter().all(|address| matches!(address, Address::Unix(_)));
        if given.config == ConfigAccess::Write && !has_credentials(block) && (block.listens.is_empty() || !only_unix) {
            block.cx.warnings.push(Complaint {
                level: conf_schema::ComplaintLevel::Warn,
                text:
                    "\"api config=write\" without authentication: every account of an address that may connect has the \
                       privileges of the master process"
                        .into(),
                span: Some(given.at.span),
                line: given.at.line,
                hint: Some("add \"auth_basic\", or listen on a UNIX-domain socket in a folder of its users".into()),
            });
        }
        let request_id = HttpTemplate::compile(block.cx, &synthetic_directive("api", ""), b"$request_id")?;
        block.extensions.push(Arc::new(configuration::Present {
            writes: given.writes,
            keep: (given.config == ConfigAccess::Write).then_some(given.keep),
            inventory: Inventory::of(block.cx),
        }));
        block.location.content = Some(Arc::new(Api {
            prefix: block.location.name.len(),
            writes: given.writes,
            own: OwnAccess {
                config: given.config,
                names: OwnNames::new(block.server_names),
                files: block.cx.files.as_slice().into(),
            },
            inventory: Inventory::of(block.cx),
            request_id,
        }));
        Ok(())
    }
}

fn written(name: &ServerName<HttpArea>) -> String {
    String::from_utf8_lossy(&name.written()).into_owned()
}

fn is_local(address: &Address) -> bool {
    match address {
        Address::Ip(address) => address.ip().is_loopback(),
        Address::Unix(_) => true,
    }
}

/// Tells whether a block restricts access by address or credentials.
fn is_restricted(block: &BlockPlan<'_>) -> bool {
    has_credentials(block) || block.location.extensions.iter().any(|extension| extension.is::<DeniesOthers>())
}

fn has_credentials(block: &BlockPlan<'_>) -> bool {
    let checks = [HandlerOrder::AuthBasic, HandlerOrder::AuthOidc, HandlerOrder::AuthJwt, HandlerOrder::AuthRequest];
    block.location.drafts.iter().any(|(order, _)| checks.contains(order))
}

struct Api {
    prefix: usize,
    writes: bool,
    own: OwnAccess,
    inventory: Arc<Inventory>,
    request_id: HttpTemplate,
}

/// Requests that wait for the API's thread at most.
const WAITING_MAX: usize = 256;

/// Pool of one thread, so that changes have one writer. It starts with the first request.
fn pool() -> &'static Arc<Pool> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    POOL.get_or_init(|| Pool::new(PoolSpec::control("api", WAITING_MAX)))
}

impl Handler for Api {
    fn run(&self, r: &mut Request) -> Flow {
        let path = r.target.path().get(self.prefix..).unwrap_or_default();
        let Ok(path) = std::str::from_utf8(path).map(str::to_string) else { return Flow::Status(404) };
        let verb = match r.target.method() {
            Method::Get | Method::Head => Verb::Get,
            Method::Post => Verb::Post,
            Method::Put => Verb::Put,
            Method::Patch => Verb::Patch,
            Method::Delete => Verb::Delete,
            _ => Verb::Other,
        };
        let arg = |name: &[u8]| {
            let value = find_arg(r.target.args(), name)?;
            let mut plain = Vec::with_capacity(value.len());
            http_engine::path::unescape_path(value, &mut plain);
            Some(String::from_utf8_lossy(&plain).into_owned())
        };
        let mut ask = ApiRequest {
            path,
            verb,
            fields: arg(b"fields"),
            key: arg(b"key"),
            tag: arg(b"tag"),
            dry_run: is_rehearsed(r.target.args()),
            if_match: None,
            foreign: false,
            body: Bytes::new(),
            writes: self.writes,
            local: r.connection().local.to_string(),
            inventory: self.inventory.clone(),
        };
        ask.foreign = verb != Verb::Get && origin::is_foreign(r, &self.own.names);
        let own = own::path_below(&ask.path).is_some().then(|| self.own.clone());
        let if_match = r.headers().find(|(name, _)| name.eq_ignore_ascii_case(b"if-match"));
        ask.if_match = if_match.map(|(_, value)| String::from_utf8_lossy(value).trim().to_string());
        let id = String::from_utf8_lossy(&self.request_id.eval(r)).into_owned();
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                // A change waits before it is made.
                let flow = match body_memory::reserve_memory(&r, RESPONSE_BYTES).await {
                    Ok(memory) => memory.hold_content(answer(&mut r, ask, own, &id).await),
                    Err(none) => Flow::Status(none.status()),
                };
                (r, flow)
            })
        }))
    }
}

/// Tells whether `dry_run` is among the arguments: alone, or with a value that does not deny it.
fn is_rehearsed(args: &[u8]) -> bool {
    let mut words = args.split(|c| *c == b'&');
    words.any(|word| match word.strip_prefix(b"dry_run") {
        Some(b"=0" | b"=off" | b"=no" | b"=false") | None => false,
        Some(rest) => matches!(rest.first(), None | Some(b'=')),
    })
}

/// Runs a job on the API's thread. Fails with the status of the response.
async fn on_thread<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Result<T, u16> {
    match pool().run(job) {
        Ok(work) => work.await.map_err(|_| 500),
        Err(_) => Err(503),
    }
}

/// Expected size of a response.
const RESPONSE_BYTES: u64 = 64 << 10;

/// `own`: the path is below `/tidegate`.
async fn answer(r: &mut Request, mut ask: ApiRequest, own: Option<OwnAccess>, id: &str) -> Flow {
    let version = path::path_version(&ask.path);
    let changes = ask.verb != Verb::Get;
    let done = match own {
        Some(own) => {
            let path = own::path_below(&ask.path).unwrap_or_default().to_string();
            own::answer_own(r, ask, &path, &own).await
        }
        None => {
            let reads = ask.reads_body();
            match if reads { body_store::read_small(r).await } else { Ok(Bytes::new()) } {
                Ok(body) => {
                    ask.body = body;
                    match on_thread(move || run::run_request(&ask)).await {
                        Ok(done) => done,
                        Err(503) => {
                            Err(ApiError::new(503, "TooManyRequests", "too many requests of the API are waiting"))
                        }
                        Err(_) => Err(ApiError::internal("the request failed")),
                    }
                }
                Err(status) => Err(own::body_error(status, "client_body_buffer_size")),
            }
        }
    };
    if let Err(ApiError { status: status @ (499 | 444), .. }) = &done {
        return Flow::Status(*status);
    }
    if let Err(refused) = &done
        && refused.status >= 500
    {
        r.log(Severity::Error, format_args!("api: {}", refused.text));
    }
    // The change was made or refused by its own condition, which is no longer that of the response.
    if changes {
        r.reply.ignore_conditions(true);
    }
    let ApiResponse { status, body, etag } = done.unwrap_or_else(|refused| refused.answer(version, id));
    r.out.set_status(status);
    r.out.add("Cache-Control", b"no-store".to_vec());
    if let Some(etag) = etag {
        r.out.add("ETag", etag.into_bytes());
    }
    match body {
        Some(text) => r.respond(status, "application/json", text),
        None => Flow::Content(ResponseBody::Empty),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rehearsals_are_asked_for_in_any_way() {
        for args in ["dry_run", "dry_run=", "a=b&dry_run=1", "dry_run=yes&x", "dry_run=on"] {
            assert!(is_rehearsed(args.as_bytes()), "{args}");
        }
        for args in ["", "dry_run=0", "dry_run=off", "dry_running", "x=dry_run", "dry_run=false"] {
            assert!(!is_rehearsed(args.as_bytes()), "{args}");
        }
    }
}
