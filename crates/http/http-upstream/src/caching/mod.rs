//! Caching of upstream responses for all protocols (nginx: the cache's part of `ngx_http_upstream.c`).
//! Handlers call [`at_once`], then [`begin_session`]; a fetched request has a [`CacheSession`] with its upstream request
//! ([`CacheRequest`]), failure substitute, and storage. `session.rs` has the rules, `serve.rs` serves entries,
//! `fill.rs` stores.

pub mod conf;
mod fill;
pub mod paths;
pub mod purge;
mod rfc;
mod serve;
pub mod session;
mod shared_purges;
pub mod tagging;

use crate::zones;
use cache::freshness::{IgnoredFields, Valid};
use cache::strict::Use;
use cache::{Hash, StoredEntry, vary};
use conf::{CacheName, CacheSettings, Methods, StoreTo, UseStale};
use conf_schema::{Cx, Problem};
use http_engine::{CacheCount, Flow, HttpTemplate, Request, template};
use http_types::{Known, Method, ResponseHead};
use paths::CachePath;
use purge::PurgeForm;
use std::sync::Arc;

pub use fill::{StoreTarget, fill_entry as fill};
pub use rfc::{aimed_at, related_uris};
pub use session::{CacheSession, CacheStart, begin_session, finish_session};

/// Converts a response head, new or stored, into the request's response. `Some`: replaced by this answer.
pub type Respond<'a> = &'a dyn Fn(&mut Request, &ResponseHead, &[u8]) -> Option<Flow>;

enum Which {
    Fixed(Arc<CachePath>),
    Computed(HttpTemplate, Vec<Arc<CachePath>>),
}

/// The cache of a location, with its rules. `None` for a key: the protocol's default.
pub struct CachePlan {
    /// Prefix of the directives, such as `proxy`.
    pub family: &'static str,
    which: Which,
    /// Configured key.
    pub key: Option<HttpTemplate>,
    valid: Vec<Valid>,
    bypass: Vec<HttpTemplate>,
    no_cache: Vec<HttpTemplate>,
    purge: Vec<HttpTemplate>,
    tags: Vec<HttpTemplate>,
    purge_tags: Vec<HttpTemplate>,
    lock: bool,
    lock_timeout_ms: u64,
    lock_age_ms: u64,
    use_stale: UseStale,
    background_update: bool,
    revalidate: bool,
    min_uses: u32,
    methods: Methods,
    convert_head: bool,
    max_range_offset: Option<u64>,
    rfc9111: bool,
}

/// `proxy_store` of a location.
pub struct StoreRules {
    /// Prefix of the directives, such as `proxy`.
    pub family: &'static str,
    /// Place of the files.
    pub to: StoreTo,
    /// Permission bits of the files (`proxy_store_access`).
    pub mode: u32,
}

/// Returns the cache of a zone of the same family. `what`: the directive's name without the family.
fn find_path(family: &str, name: &str, what: &str, cx: &mut Cx) -> Result<Arc<CachePath>, Problem> {
    if let Some(path) = cx.get::<conf::DeclaredCaches>().of(family).iter().find(|path| path.zone.name == *name) {
        return Ok(path.clone());
    }
    let other = cx.get::<conf::DeclaredCaches>().all().any(|path| path.zone.name == *name);
    let problem = match zones::find_zone::<CachePath>(cx, "cache", name) {
        _ if other => {
            zones::name_taken(name).hint(format!("this zone belongs to a directive other than \"{family}_cache_path\""))
        }
        Err(problem) if !format!("{:?}", problem.words).contains("zero size") => problem,
        _ => Problem::says(format!("\"{family}_{what}\" zone \"{name}\" is unknown"))
            .hint(format!("no \"{family}_cache_path\" declares a zone of this name")),
    };
    Err(problem.of(format!("{family}_{what}")))
}

impl CachePlan {
    /// Prepares a location's settings; `None`: no cache. Fails on an unknown zone.
    pub fn new(settings: &CacheSettings, cx: &mut Cx) -> Result<Option<CachePlan>, Problem> {
        let which = match &settings.cache {
            CacheName::Off => return Ok(None),
            CacheName::Computed(name) => {
                Which::Computed(name.clone(), cx.get::<conf::DeclaredCaches>().of(settings.family).to_vec())
            }
            CacheName::Zone(name) => Which::Fixed(find_path(settings.family, name, "cache", cx)?),
        };
        let purge = match PurgeForm::of(settings)? {
            PurgeForm::Conditions => settings.purge.clone(),
            // An entry's location has no cache.
            PurgeForm::Off | PurgeForm::Entry { .. } => Vec::new(),
        };
        let mut use_stale = settings.use_stale;
        if use_stale.has(UseStale::OFF) {
            use_stale = UseStale(0);
        }
        Ok(Some(CachePlan {
            family: settings.family,
            which,
            key: settings.key.clone(),
            valid: settings.valid.clone(),
            bypass: settings.bypass.clone(),
            no_cache: settings.no_cache.clone(),
            purge,
            tags: settings.tags.clone(),
            purge_tags: settings.purge_tags.clone(),
            lock: settings.lock,
            lock_timeout_ms: settings.lock_timeout_ms,
            lock_age_ms: settings.lock_age_ms,
            use_stale,
            background_update: settings.background_update,
            revalidate: settings.revalidate,
            min_uses: u32::try_from(settings.min_uses).unwrap_or(u32::MAX),
            methods: Methods(settings.methods.unwrap_or_default().0 | Methods::GET.0 | Methods::HEAD.0),
            convert_head: settings.convert_head,
            max_range_offset: settings.max_range_offset,
            rfc9111: settings.rfc9111,
        }))
    }

    fn caches(&self, method: Method) -> bool {
        match method {
            Method::Get => true,
            Method::Head => true,
            // RFC 9111 lets a response to POST serve GET requests at most.
            Method::Post => self.methods.has(Methods::POST) && !self.rfc9111,
            _ => false,
        }
    }
    /// Fails, with a log line, for an unknown name.
    fn path(&self, r: &mut Request) -> Result<Option<Arc<CachePath>>, ()> {
        match &self.which {
            Which::Fixed(path) => Ok(Some(path.clone())),
            Which::Computed(name, all) => {
                let name = name.eval(r);
                if name.is_empty() || name == b"off" {
                    return Ok(None);
                }
                match all.iter().find(|path| path.zone.name.as_bytes() == name) {
                    Some(path) => Ok(Some(path.clone())),
                    None => {
                        let shown = String::from_utf8_lossy(&name).into_owned();
                        r.log(observe::Severity::Error, format_args!("cache \"{shown}\" not found"));
                        Err(())
                    }
                }
            }
        }
    }
}

fn any(r: &mut Request, conditions: &[HttpTemplate]) -> bool {
    conditions.iter().any(|condition| template::is_true(&condition.eval(r)))
}

/// Facts about the cache that a request keeps for variables.
#[derive(Default)]
pub struct CacheState {
    /// `$upstream_cache_status`; empty: not known.
    pub status: &'static str,
    /// For fields of its head.
    pub stored: Option<Arc<StoredEntry>>,
    /// The cache key.
    pub key: Vec<u8>,
    /// Revalidation: `$upstream_cache_last_modified` and `$upstream_cache_etag` have values.
    pub revalidating: bool,
}

/// Changes that the cache asks for in the request to the server.
#[derive(Clone, Debug, Default)]
pub struct CacheRequest {
    /// A HEAD request is sent as GET, so that its response can be stored.
    pub as_get: bool,
    /// Replace the client's conditions and ranges.
    pub if_modified_since: Option<Vec<u8>>,
    /// Replaces the client's `If-None-Match`.
    pub if_none_match: Option<Vec<u8>>,
}

/// Client fields that are not passed on if the response may be stored; lower case.
pub const OWN_CONDITIONS: &[&str] =
    &["if-modified-since", "if-unmodified-since", "if-none-match", "if-match", "range", "if-range"];

impl CacheRequest {
    /// Returns the request's changes; `None`: no cache is involved.
    pub fn of(r: &Request) -> Option<&CacheRequest> {
        r.ext()
    }
}

fn set_status(r: &mut Request, status: &'static str) {
    if let Some(count) = r.accounting.cache_count_mut() {
        count.set_status(status);
    }
    match r.ext_mut::<CacheState>() {
        Some(state) => state.status = status,
        None => r.keep(CacheState { status, ..CacheState::default() }),
    }
}

/// Responds from memory without waiting, if possible.
pub fn at_once(
    caching: &CachePlan,
    r: &mut Request,
    give: Respond<'_>,
    default_key: impl FnOnce(&Request) -> Option<Vec<u8>>,
) -> Option<Flow> {
    let Which::Fixed(path) = &caching.which else { return None };
    if !caching.caches(r.target.method())
        || any(r, &caching.purge)
        || any(r, &caching.bypass)
        || r.ext::<CacheSession>().is_some()
        || r.incoming.is_body_unread()
    {
        return None;
    }
    let mut key = r.take_scratch();
    key.clear();
    match &caching.key {
        Some(template) => template.write(r, &mut key),
        None => key = default_key(r)?,
    }
    let flow = from_memory(caching, r, &path.clone(), &key, give);
    key.clear();
    r.put_scratch(key);
    flow
}

fn from_memory(
    caching: &CachePlan,
    r: &mut Request,
    path: &Arc<CachePath>,
    key: &[u8],
    give: Respond<'_>,
) -> Option<Flow> {
    let now = base::clock::unix_seconds();
    let main = Hash::of(key);
    let mut stored = path.zone.hot(&main, now)?;
    if !stored.meta.vary.is_empty() {
        let variant = vary::variant_hash(&main, &stored.meta.vary, r.headers());
        if variant != stored.meta.variant {
            stored = path.zone.hot(&variant, now)?;
        }
    }
    if *stored.key != *key
        || rfc::entry_use(caching, r, &stored.meta, now) != Use::Fresh
        || path.zone.purges.hit_by_tag(&stored)
        || !path.zone.recheck(&stored, now)
    {
        return None;
    }
    r.accounting.count_cache(CacheCount::new(path.metrics.clone(), "HIT"));
    r.keep(CacheState { status: "HIT", stored: Some(stored.clone()), ..CacheState::default() });
    serve::answer_stored(caching, r, &stored, give, true)
}

impl CacheSession {
    /// Takes the session out of the request, for one use; [`CacheSession::put`] returns it.
    pub fn take(r: &mut Request) -> Option<Box<CacheSession>> {
        r.take_ext()
    }
    /// Keeps the session with the request.
    pub fn put(self: Box<CacheSession>, r: &mut Request) {
        r.keep_boxed(self);
    }
}

/// Combines the flags of `proxy_ignore_headers` that concern caches.
pub fn ignored_fields(
    x_accel_expires: bool,
    expires: bool,
    cache_control: bool,
    set_cookie: bool,
    vary: bool,
) -> IgnoredFields {
    IgnoredFields { x_accel_expires, expires, cache_control, set_cookie, vary }
}

/// Calls with the stored head that the response was made from, for `$upstream_http_*`.
pub fn stored_fields<R>(r: &Request, read: impl FnOnce(&ResponseHead, &[u8]) -> R) -> Option<R> {
    let stored = r.ext::<CacheState>()?.stored.as_ref()?;
    Some(read(serve::parsed_head(stored)?, &stored.head))
}

/// Tells whether the request's range starts at or beyond `proxy_cache_max_range_offset`.
fn range_too_far(caching: &CachePlan, r: &Request) -> bool {
    let (Some(max), Some(range)) = (caching.max_range_offset, r.header(Known::Range)) else { return false };
    if max == 0 {
        return true;
    }
    let Some((unit, list)) = range.split_at_checked(6) else { return false };
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return false;
    }
    let list = list.trim_ascii_start();
    if list.starts_with(b"-") {
        return true;
    }
    let digits = list.iter().take_while(|c| c.is_ascii_digit()).count();
    let offset = list.get(..digits).and_then(|n| std::str::from_utf8(n).ok()?.parse::<u64>().ok());
    offset.unwrap_or(if digits > 0 { u64::MAX } else { 0 }) >= max
}
