//! The page as a document, and its sections as JSON.

use super::data::{Data, Rates};
use super::format;
use super::history::{self, HistorySpan};
use super::html::{Markup, Tone, state_badge};
use super::views::{self, Section, explain};
use super::{DashboardState, HTML, JSON, assets, content, explainer, on_thread, origin};
use base::clock::{self, Instant};
use http_engine::variables::find_arg;
use http_engine::{Flow, HttpPlan, Request};
use metrics::Lifecycle;
use net::pool::{Pool, PoolSpec};
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

/// Sections are built again after this time.
const FRESH: Duration = Duration::from_millis(900);
/// Pages get another token after this time; earlier ones stay valid.
const TOKEN_AGE: Duration = Duration::from_secs(60);
/// Time that an explanation may wait for something.
pub const EXPLAIN_PATIENCE: Duration = Duration::from_secs(2);
/// URLs that wait for an explanation.
const EXPLAIN_WAITING_MAX: usize = 4;
/// Longest URL to be explained, in bytes.
const URL_BYTES_MAX: usize = 2048;

/// Kept between looks.
#[derive(Default)]
pub struct PageState {
    rates: Rates,
    /// For forms, and when it was made.
    token: Option<(Instant, String)>,
    last: Option<Arc<RenderedSections>>,
}

pub struct PageSection {
    pub id: &'static str,
    pub title: &'static str,
    pub html: String,
    /// Hash of `html`.
    pub hash: u64,
}

pub struct RenderedSections {
    at: Instant,
    /// The overview with lines of minutes, and of an hour.
    overview: [PageSection; 2],
    parts: Vec<PageSection>,
    alerts: (usize, usize),
}

fn part(section: Section) -> PageSection {
    let html = section.body.into_string();
    let mut hasher = DefaultHasher::new();
    hasher.write(html.as_bytes());
    PageSection { id: section.id, title: section.title, html, hash: hasher.finish() }
}

impl RenderedSections {
    /// Returns the sections, with the overview of a span first.
    pub fn parts(&self, span: HistorySpan) -> impl Iterator<Item = &PageSection> {
        let overview = match span {
            HistorySpan::Minutes => &self.overview[0],
            HistorySpan::Hour => &self.overview[1],
        };
        std::iter::once(overview).chain(&self.parts)
    }
}

/// Builds the sections, or returns those of less than a second ago. Called on the API's thread.
pub fn rendered_sections(shared: &DashboardState, plan: &Arc<HttpPlan>) -> Arc<RenderedSections> {
    clock::update();
    let now = clock::now();
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    let state = &mut *state;
    if let Some(last) = state.last.as_ref().filter(|last| now.micros_since(last.at) < FRESH.as_micros() as u64) {
        return last.clone();
    }
    state.rates.begin(now);
    let made = state.token.take().filter(|(at, _)| now.micros_since(*at) < TOKEN_AGE.as_micros() as u64);
    let (_, token) = &*state.token.insert(made.unwrap_or_else(|| (now, origin::form_token(&shared.location))));
    let mut data = Data {
        plan,
        inventory: &shared.inventory,
        files: &shared.files,
        writes: shared.writes,
        history: history::view_history(HistorySpan::Minutes),
        rates: &mut state.rates,
        alerts: Vec::new(),
        now: clock::unix_millis(),
        token,
    };
    let (overview, sections) = views::build_views(&mut data);
    let bad = data.alerts.iter().filter(|alert| alert.tone == Tone::Bad).count();
    let alerts = (bad, data.alerts.len() - bad);
    let overview = overview.map(|body| part(Section { id: "overview", title: "Overview", body }));
    let rendered =
        Arc::new(RenderedSections { at: now, overview, parts: sections.into_iter().map(part).collect(), alerts });
    state.last = Some(rendered.clone());
    rendered
}

/// Writes sections as JSON: all, or those whose hash differs from `known`, which is brought up to date. `None`: nothing
/// has changed.
pub fn update_json(rendered: &RenderedSections, span: HistorySpan, known: &mut Vec<u64>) -> Option<String> {
    let old = std::mem::take(known);
    let mut sections = serde_json::Map::new();
    let mut order = Vec::new();
    for (index, part) in rendered.parts(span).enumerate() {
        if old.get(index) != Some(&part.hash) {
            sections.insert(part.id.into(), Value::String(part.html.clone()));
        }
        known.push(part.hash);
        order.push(part.id);
    }
    let (bad, warn) = rendered.alerts;
    let changed = json!({ "sections": sections, "order": order, "critical": bad, "warnings": warn });
    (!sections.is_empty()).then(|| changed.to_string())
}

pub fn query_span(r: &Request) -> HistorySpan {
    if find_arg(r.target.args(), b"span") == Some(b"hour") { HistorySpan::Hour } else { HistorySpan::Minutes }
}

/// Answers with all sections as JSON, for clients that cannot keep a stream.
pub async fn respond_data(r: &mut Request, shared: Arc<DashboardState>) -> Flow {
    let (plan, span) = (r.plan().clone(), query_span(r));
    let done =
        on_thread(move || update_json(&rendered_sections(&shared, &plan), span, &mut Vec::new()).unwrap_or_default())
            .await;
    match done {
        Ok(text) => content(r, 200, JSON, text),
        Err(status) => Flow::Status(status),
    }
}

#[derive(Default)]
pub struct Extra {
    span: HistorySpan,
    message: Option<(Tone, String)>,
    url: String,
    told: Option<Result<Value, String>>,
}

impl Extra {
    pub fn message(tone: Tone, text: String) -> Extra {
        Extra { message: Some((tone, text)), ..Extra::default() }
    }
}

/// Thread for explanations: they run the engine, and may explain this page.
fn explaining() -> &'static Arc<Pool> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    POOL.get_or_init(|| Pool::new(PoolSpec::control("explain", EXPLAIN_WAITING_MAX)))
}

async fn explained(url: &str) -> Result<Value, String> {
    let explain = explainer().ok_or("the configuration is being replaced; try again")?;
    let url = url.to_string();
    let work = explaining().run(move || explain(&url)).map_err(|_| "too many URLs wait to be explained; try again")?;
    work.await.unwrap_or_else(|_| Err("the explanation failed".into()))
}

/// `explain=URL` explains a URL.
pub async fn respond_page(r: &mut Request, shared: Arc<DashboardState>) -> Flow {
    let mut extra = Extra { span: query_span(r), ..Extra::default() };
    if let Some(value) = find_arg(r.target.args(), b"explain") {
        let mut plain = Vec::with_capacity(value.len());
        let value: Vec<u8> = value.iter().map(|c| if *c == b'+' { b' ' } else { *c }).collect();
        http_engine::path::unescape_path(&value, &mut plain);
        extra.url = String::from_utf8_lossy(&plain).trim().to_string();
        if extra.url.starts_with('/') {
            // A path is one of the host that shows this page.
            let host = r.headers().find(|(name, _)| name.eq_ignore_ascii_case(b"host"));
            let host = String::from_utf8_lossy(host.map(|(_, host)| host).unwrap_or_default()).into_owned();
            let scheme = if r.connection().tls.is_some() { "https" } else { "http" };
            if !host.is_empty() {
                extra.url = format!("{scheme}://{host}{}", extra.url);
            }
        }
        extra.told = Some(if extra.url.len() > URL_BYTES_MAX {
            Err("the URL is too long".into())
        } else {
            explained(&extra.url).await
        });
    }
    show_page(r, shared, 200, extra).await
}

pub async fn show_page(r: &mut Request, shared: Arc<DashboardState>, status: u16, extra: Extra) -> Flow {
    let plan = r.plan().clone();
    match on_thread(move || document(&shared, &rendered_sections(&shared, &plan), &extra)).await {
        Ok(html) => content(r, status, HTML, html),
        Err(status) => Flow::Status(status),
    }
}

fn document(shared: &DashboardState, rendered: &RenderedSections, extra: &Extra) -> String {
    let life = Lifecycle::now();
    let version = &*assets::VERSION;
    let span = if extra.span == HistorySpan::Hour { "hour" } else { "minutes" };
    let head = Markup::new()
        .raw("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Tidegate</title>")
        .raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")
        .raw("<meta name=\"color-scheme\" content=\"light dark\"><meta name=\"robots\" content=\"noindex\">")
        .raw("<link rel=\"icon\" href=\"icon.svg?v=")
        .text(version)
        .raw("\">")
        .raw("<link rel=\"stylesheet\" href=\"dashboard.css?v=")
        .text(version)
        .raw("\">")
        .raw("<script src=\"dashboard.js?v=")
        .text(version)
        .raw("\" defer></script></head><body")
        .attribute("data-span", span)
        .raw("><a class=\"skip\" href=\"#main\">Skip to content</a><header><h1>Tidegate</h1><p class=\"facts\">");
    let facts = head
        .text(env!("CARGO_PKG_VERSION"))
        .raw(" · configuration ")
        .text(life.loads)
        .raw(" since ")
        .text(format::format_time(life.loaded_at))
        .raw(" · process ")
        .text(std::process::id())
        .raw(if shared.writes { " · <b>changes allowed</b>" } else { " · read-only" })
        .raw("</p><p class=\"live\"><span id=\"live\" role=\"status\">")
        .text(format::format_time(clock::unix_millis()))
        .raw("</span> <a id=\"again\" href=\"./")
        .raw(if extra.span == HistorySpan::Hour { "?span=hour" } else { "" })
        .raw("\">Refresh</a></p></header><nav aria-label=\"Sections\"><ul>");
    let links = rendered.parts(extra.span).map(|part| (part.id, part.title)).chain([("explain", "Explain a URL")]);
    let nav = facts
        .each(links, |(id, title)| Markup::new().raw("<li><a href=\"#").raw(id).raw("\">").raw(title).raw("</a></li>"));
    let main = nav.raw("</ul></nav><main id=\"main\">");
    let main = match &extra.message {
        Some((tone, text)) => {
            main.raw("<p class=\"message\" role=\"alert\">").add(state_badge(*tone, text)).raw("</p>")
        }
        None => main.raw("<p class=\"message\" role=\"alert\" hidden></p>"),
    };
    let mut out = main.into_string();
    // Tables are landmarks; sections are not, to avoid two landmarks of one name.
    for part in rendered.parts(extra.span) {
        for piece in ["<section id=\"", part.id, "\"><h2>", part.title, "</h2><div class=\"body\">", &part.html] {
            out.push_str(piece);
        }
        out.push_str("</div></section>");
    }
    let explain = Markup::new().raw("<section id=\"explain\"><h2>Explain a URL</h2>");
    let explain =
        explain.add(explain::explain_body(&extra.url, extra.told.as_ref())).raw("</section></main></body></html>\n");
    out.push_str(&explain.into_string());
    out
}

/// Forgets the built sections, so that the next look shows a change.
pub fn forget_sections(shared: &DashboardState) {
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    state.last = None;
}
