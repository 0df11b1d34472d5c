//! dashboard: a page about the state of the server, and changes of the servers of groups through the API's own code.
//!
//! `views` builds the sections as HTML on the API's thread, at most once per second for all readers; `events.rs`
//! streams changed sections, `forms.rs` handles changes. The page contains all sections without scripts, too.

mod assets;
mod data;
mod events;
mod format;
mod forms;
mod history;
mod html;
mod page;
mod svg;
mod views;

use super::origin::{self, OwnNames};
use super::{is_local, is_restricted, on_thread, pool, written};
use conf_schema::value::Own;
use conf_schema::{ContextArea, Contexts, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::variables::find_arg;
use http_engine::{
    BlockPlan, Feature, Flow, Handler, HttpBuild, HttpPlan, PlanOrder, Request, ResponseBody, body_memory,
};
use http_types::Method;
use observe::tail::TailReader;
pub use page::EXPLAIN_PATIENCE;
use std::any::Any;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use upstream_directives::inventory::Inventory;
use views::servers::ConfiguredServer;

directives! {
    pub struct DashboardConf from DashboardInput {
        /// Responds with a page about the state of the server, refreshed every second: traffic, errors, servers of
        /// groups, certificates, caches, limits, the error log and the configuration. `write=on` adds forms that change
        /// servers of groups with `zone`, as the API does. The page loads nothing from other hosts and works without
        /// scripts. On an address that is not local it requires authentication or `deny all`.
        dashboard: Own<DashboardAccess>,
    }
}

/// `write=on`
#[derive(Clone, Copy, Debug)]
pub struct DashboardAccess {
    writes: bool,
}

/// In `Cx`: the configuration has a dashboard.
#[derive(Default)]
struct DashboardMark(bool);

/// In the extensions of a plan with a dashboard: lines of error logs are kept as long as the plan lives.
struct Present {
    _reader: TailReader,
}

pub fn has_dashboard(plan: &HttpPlan) -> bool {
    plan.ext::<Present>().is_some()
}

impl ValueKind for DashboardAccess {
    const SYNTAX: &'static str = "[write=on | off]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        cx.get::<DashboardMark>().0 = true;
        match d.args.first().map(|word| word.bytes.as_slice()) {
            None | Some(b"write=off") => Ok(DashboardAccess { writes: false }),
            Some(b"write=on") => Ok(DashboardAccess { writes: true }),
            Some(_) => {
                let text = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
                Err(Problem::says(format!("invalid parameter \"{text}\"")).at(0))
            }
        }
    }
}

pub struct DashboardFeature;

impl Feature for DashboardFeature {
    fn table(&self) -> FeatureTable {
        DashboardConf::table("dashboard", ContextArea::Http)
    }
    /// After the features that restrict access.
    fn plan_order(&self) -> PlanOrder {
        PlanOrder::Around
    }
    fn plan_http(&self, _: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        if http.cx.get::<DashboardMark>().0 {
            assets::prepare_assets();
            http.extensions.push(Arc::new(Present { _reader: TailReader::new() }));
            http.background.push(Arc::new(history::Sampler));
        }
        Ok(())
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if !block.cx.get::<DashboardMark>().0 {
            return Ok(());
        }
        if matches!(block.context, Contexts::server | Contexts::location) {
            let (names, listens) = match block.context {
                Contexts::server => (block.server_names.iter().map(written).collect(), listens(block)),
                _ => (Vec::new(), Vec::new()),
            };
            block.location.extensions.push(Arc::new(ConfiguredServer { context: block.context, names, listens }));
        }
        let said = conf.downcast_ref::<DashboardConf>().and_then(|conf| conf.dashboard.as_ref());
        let Some(Own(DashboardAccess { writes })) = said.filter(|_| block.context == Contexts::location) else {
            return Ok(());
        };
        if !block.location.has_path() || block.location.exact {
            let words = "\"dashboard\" needs a location that is given by a prefix: its files are below it";
            return Err(Problem::says(words).of("dashboard"));
        }
        if !is_restricted(block) {
            let open = block.listens.iter().find(|address| !is_local(address));
            let open = open.map(ToString::to_string).or(block.listens.is_empty().then(|| "*:80".into()));
            if let Some(address) = open {
                let words = format!("\"dashboard\" without access rules on {address}, which is not local");
                return Err(Problem::says(words).of("dashboard").hint(
                    "add \"allow\" and \"deny all\", or authentication, to the location, or listen on 127.0.0.1, ::1 or a \
                     UNIX-domain socket",
                ));
            }
        }
        block.location.content = Some(Arc::new(Dashboard(Arc::new(DashboardState {
            location: block.location.name.clone(),
            writes: *writes,
            names: OwnNames::new(block.server_names),
            inventory: Inventory::of(block.cx),
            files: block.cx.files.as_slice().into(),
            state: Mutex::default(),
        }))));
        Ok(())
    }
}

fn listens(block: &BlockPlan<'_>) -> Vec<String> {
    match block.listens {
        [] => vec!["*:80".into()],
        all => all.iter().map(ToString::to_string).collect(),
    }
}

/// Explains a URL by the running configuration: a JSON object as `tidegate explain --json` prints it. May block.
pub type Explainer = Arc<dyn Fn(&str) -> Result<serde_json::Value, String> + Send + Sync>;

static EXPLAINER: RwLock<Option<Explainer>> = RwLock::new(None);

/// Sets the explainer of the configuration that serves.
pub fn explain_with(explainer: Option<Explainer>) {
    *EXPLAINER.write().unwrap_or_else(PoisonError::into_inner) = explainer;
}

fn explainer() -> Option<Explainer> {
    EXPLAINER.read().unwrap_or_else(PoisonError::into_inner).clone()
}

struct DashboardState {
    /// Prefix of the location.
    location: Vec<u8>,
    writes: bool,
    /// Names of the server.
    names: OwnNames,
    inventory: Arc<Inventory>,
    files: Arc<[PathBuf]>,
    state: Mutex<page::PageState>,
}

struct Dashboard(Arc<DashboardState>);

fn home(location: &[u8]) -> Vec<u8> {
    let mut home = Vec::new();
    http_engine::path::escape_uri(location, &mut home);
    if !home.ends_with(b"/") {
        home.push(b'/');
    }
    home
}

/// On every response.
fn protect(r: &mut Request) {
    const POLICY: &str =
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";
    r.out.add("Content-Security-Policy", POLICY);
    r.out.add("X-Content-Type-Options", "nosniff");
    r.out.add("Referrer-Policy", "no-referrer");
    r.out.add("Cross-Origin-Resource-Policy", "same-origin");
}

fn content(r: &mut Request, status: u16, media_type: &'static str, body: impl Into<bytes::Bytes>) -> Flow {
    let body = body.into();
    protect(r);
    r.out.add("Cache-Control", "no-store");
    r.respond(status, media_type, body)
}

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

impl Handler for Dashboard {
    fn run(&self, r: &mut Request) -> Flow {
        let shared = &self.0;
        let path = r.target.path().get(shared.location.len()..).unwrap_or_default();
        if path.is_empty() && !shared.location.ends_with(b"/") {
            r.out.set_location(home(&shared.location));
            return Flow::Status(301);
        }
        let Ok(path) = std::str::from_utf8(path).map(str::to_string) else { return Flow::Status(404) };
        let path = if shared.location.ends_with(b"/") { path.as_str() } else { path.strip_prefix('/').unwrap_or("?") };
        let reads = matches!(r.target.method(), Method::Get | Method::Head);
        if let Some(asset) = assets::find_asset(path) {
            return if reads { file(r, asset) } else { Flow::Status(405) };
        }
        if !matches!(path, "" | "data" | "events") {
            return Flow::Status(404);
        }
        let changes = path.is_empty() && r.target.method() == Method::Post && shared.writes;
        if !reads && !changes {
            return Flow::Status(405);
        }
        if !shared.names.has(r.target.host()) {
            return content(r, 421, "text/plain; charset=utf-8", origin::UNKNOWN_HOST);
        }
        if r.is_rehearsal() {
            return content(r, 200, HTML, "");
        }
        let shared = shared.clone();
        match (path, reads) {
            ("data", _) => later(move |r| Box::pin(page::respond_data(r, shared))),
            ("events", _) => later(move |r| Box::pin(events::start_events(r, shared))),
            (_, true) => later(move |r| Box::pin(page::respond_page(r, shared))),
            (_, false) => later(move |r| Box::pin(forms::apply_form(r, shared))),
        }
    }
}

/// Expected size of a page.
const PAGE_BYTES: u64 = 64 << 10;

type AnswerJob<'a> = std::pin::Pin<Box<dyn Future<Output = Flow> + 'a>>;

fn later(work: impl for<'a> FnOnce(&'a mut Request) -> AnswerJob<'a> + 'static) -> Flow {
    Flow::Later(Box::new(move |mut r| {
        Box::pin(async move {
            let flow = match body_memory::reserve_memory(&r, PAGE_BYTES).await {
                Ok(memory) => memory.hold_content(work(&mut r).await),
                Err(none) => Flow::Status(none.status()),
            };
            (r, flow)
        })
    }))
}

fn file(r: &mut Request, asset: &'static assets::Asset) -> Flow {
    let accept = r.headers().find(|(name, _)| name.eq_ignore_ascii_case(b"accept-encoding"));
    let (body, coding) = asset.coded(accept.map(|(_, value)| value).unwrap_or_default());
    let is_versioned = find_arg(r.target.args(), b"v") == Some(assets::VERSION.as_bytes());
    protect(r);
    r.out.add("Cache-Control", if is_versioned { "max-age=31536000, immutable" } else { "no-cache" });
    r.out.add("Vary", "Accept-Encoding");
    r.out.set_status(200);
    r.out.set_content_type(asset.media_type);
    r.out.set_content_encoding(coding);
    r.out.set_content_length(Some(body.len() as u64));
    Flow::Content(ResponseBody::Bytes(body))
}
