//! Caches of upstream responses: `proxy_cache`, `proxy_store` and others (nginx: `ngx_http_file_cache.c`); see
//! `http-upstream`. Mounts a table per protocol and defines the variables.

use conf_schema::{
    Complaint, ComplaintLevel, ContextArea, Contexts, Cx, Directive, FeatureTable, Problem, ValueKind, directives,
};
use http_engine::plan::Folder;
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, HttpBuild, PlanOrder, Request};
use http_types::Known;
use http_upstream::caching::conf::{CacheSettings, DeclaredCaches, StoreTo};
use http_upstream::caching::paths::{CachePaths, Caches};
use http_upstream::caching::purge::PurgeLocation;
use http_upstream::caching::{CachePlan, CacheState, StoreRules, stored_fields};
use std::any::Any;
use std::sync::Arc;

http_upstream::cache_directives! {
    pub struct ProxyCacheConf from ProxyCacheInput, "proxy";
    proxy_cache_path proxy_cache proxy_cache_key proxy_cache_valid proxy_cache_bypass proxy_no_cache proxy_cache_purge
    proxy_cache_tags proxy_cache_purge_tags proxy_cache_lock proxy_cache_lock_timeout proxy_cache_lock_age proxy_cache_use_stale proxy_cache_background_update
    proxy_cache_revalidate proxy_cache_min_uses proxy_cache_methods proxy_cache_max_range_offset proxy_cache_rfc9111
    proxy_store proxy_store_access
    { convert_head proxy_cache_convert_head }
}

http_upstream::cache_directives! {
    pub struct FastcgiCacheConf from FastcgiCacheInput, "fastcgi";
    fastcgi_cache_path fastcgi_cache fastcgi_cache_key fastcgi_cache_valid fastcgi_cache_bypass fastcgi_no_cache fastcgi_cache_purge
    fastcgi_cache_tags fastcgi_cache_purge_tags fastcgi_cache_lock fastcgi_cache_lock_timeout fastcgi_cache_lock_age fastcgi_cache_use_stale fastcgi_cache_background_update
    fastcgi_cache_revalidate fastcgi_cache_min_uses fastcgi_cache_methods fastcgi_cache_max_range_offset fastcgi_cache_rfc9111
    fastcgi_store fastcgi_store_access
    { }
}

http_upstream::cache_directives! {
    pub struct ScgiCacheConf from ScgiCacheInput, "scgi";
    scgi_cache_path scgi_cache scgi_cache_key scgi_cache_valid scgi_cache_bypass scgi_no_cache scgi_cache_purge
    scgi_cache_tags scgi_cache_purge_tags scgi_cache_lock scgi_cache_lock_timeout scgi_cache_lock_age scgi_cache_use_stale scgi_cache_background_update
    scgi_cache_revalidate scgi_cache_min_uses scgi_cache_methods scgi_cache_max_range_offset scgi_cache_rfc9111
    scgi_store scgi_store_access
    { }
}

http_upstream::cache_directives! {
    pub struct UwsgiCacheConf from UwsgiCacheInput, "uwsgi";
    uwsgi_cache_path uwsgi_cache uwsgi_cache_key uwsgi_cache_valid uwsgi_cache_bypass uwsgi_no_cache uwsgi_cache_purge
    uwsgi_cache_tags uwsgi_cache_purge_tags uwsgi_cache_lock uwsgi_cache_lock_timeout uwsgi_cache_lock_age uwsgi_cache_use_stale uwsgi_cache_background_update
    uwsgi_cache_revalidate uwsgi_cache_min_uses uwsgi_cache_methods uwsgi_cache_max_range_offset uwsgi_cache_rfc9111
    uwsgi_store uwsgi_store_access
    { }
}

macro_rules! cache_feature {
    ($(#[doc = $about:literal])* $Feature:ident, $Conf:ident, $Input:ident, $name:literal, $variables:expr) => {
        $(#[doc = $about])*
        pub struct $Feature;

        impl Feature for $Feature {
            fn table(&self) -> FeatureTable {
                FeatureTable {
                    inherit: |inner, outer| {
                        if let (Some(inner), Some(outer)) = (inner.downcast_mut::<$Input>(), outer.downcast_ref()) {
                            $Input::choose(inner);
                            inner.inherit(outer);
                        }
                    },
                    ..$Conf::table($name, ContextArea::Http)
                }
            }
            fn variables(&self) -> &'static [Builtin] {
                $variables
            }
            fn plan_order(&self) -> PlanOrder {
                PlanOrder::Before
            }
            fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
                let Some(conf) = conf.downcast_ref::<$Conf>() else { return Ok(()) };
                plan(conf.settings(), block)
            }
        }
    };
}

cache_feature! {
    ProxyCache, ProxyCacheConf, ProxyCacheInput, "proxy_cache", VARIABLES
}
cache_feature! {
    FastcgiCache, FastcgiCacheConf, FastcgiCacheInput, "fastcgi_cache", &[]
}
cache_feature! {
    ScgiCache, ScgiCacheConf, ScgiCacheInput, "scgi_cache", &[]
}
cache_feature! {
    UwsgiCache, UwsgiCacheConf, UwsgiCacheInput, "uwsgi_cache", &[]
}

/// Stores a location's settings for the feature that passes its requests.
fn plan(settings: CacheSettings, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
    let family = settings.family;
    let stores = !matches!(settings.store, StoreTo::Off);
    if let Some(purging) = PurgeLocation::new(&settings, block.cx)? {
        let directive = purging.directive();
        if block.context == Contexts::server {
            let text = format!("\"{directive}\" with a zone and a key is not allowed here");
            return Err(Problem::says(text).of(directive).hint("write it into a location, whose requests then purge"));
        }
        block.location.extensions.push(Arc::new(Arc::new(purging)));
        return Ok(());
    }
    if let Some(caching) = CachePlan::new(&settings, block.cx)? {
        if stores {
            let text = format!("\"{family}_cache\" directive is incompatible with \"{family}_store\"");
            return Err(Problem::says(text));
        }
        // Only `proxy_cache_key` has a default; without a key all responses would share one.
        if family != "proxy" && settings.key.is_none() {
            let at = block.location.at;
            let text = format!("no \"{family}_cache_key\" for \"{family}_cache\"");
            let complaint =
                Complaint { level: ComplaintLevel::Warn, text, span: Some(at.span), line: at.line, hint: None };
            if !block.cx.warnings.contains(&complaint) {
                block.cx.warnings.push(complaint);
            }
        }
        block.location.extensions.push(Arc::new(Arc::new(caching)));
    }
    if stores {
        let CacheSettings { store: to, store_access: mode, .. } = settings;
        block.location.extensions.push(Arc::new(Arc::new(StoreRules { family, to, mode })));
    }
    Ok(())
}

directives! {
    pub struct MemoryConf from MemoryInput {
        /// Memory for frequently requested cached responses of up to 64 KB, shared by all caches. They are served
        /// without file access. For longer responses the file is kept open instead, up to an eighth of the process's
        /// descriptors. `off`: every response is read from its file.
        tidegate_response_memory: Bytes = "64m",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl ValueKind for Bytes {
    const SYNTAX: &'static str = "size | off";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = d.args.first().map(|w| w.bytes.as_slice()).unwrap_or_default();
        if word == b"off" {
            return Ok(Bytes(0));
        }
        conf_schema::value::parse_offset(word).map(Bytes).ok_or_else(|| Problem::invalid().at(0))
    }
}

pub struct ResponseMemory;

impl Feature for ResponseMemory {
    fn table(&self) -> FeatureTable {
        MemoryConf::table("response_memory", ContextArea::Http)
    }
    fn plan_http(&self, conf: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<MemoryConf>() else { return Ok(()) };
        let paths: Vec<_> = http.cx.get::<DeclaredCaches>().all().cloned().collect();
        if !paths.is_empty() {
            let folders =
                paths.iter().map(|path| Folder { path: path.zone.root().to_path_buf(), needed: true, is_state: false });
            http.folders.extend(folders);
            http.extensions.push(Arc::new(CachePaths(paths.clone())));
            http.background.push(Arc::new(Caches { paths, memory: conf.tidegate_response_memory.0 }));
        }
        Ok(())
    }
    fn plan_order(&self) -> PlanOrder {
        PlanOrder::Around
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(purging) = block.location.ext::<Arc<PurgeLocation>>().cloned() else { return Ok(()) };
        if block.location.content.is_some() {
            let text = format!("\"{}\" is incompatible with another handler of the location", purging.directive());
            let problem = Problem::says(text).of(purging.directive());
            return Err(problem.hint("write \"proxy_pass\" and the like into another location"));
        }
        block.location.content = Some(purging);
        Ok(())
    }
}

static VARIABLES: &[Builtin] = &[
    Builtin::one(
        "upstream_cache_status",
        |r, out| state(r, out, |s| s.status.as_bytes().to_vec()),
        "MISS, BYPASS, EXPIRED, STALE, UPDATING, REVALIDATED or HIT.",
    ),
    Builtin::one("upstream_cache_key", |r, out| state(r, out, |s| s.key.clone()), "The key of the response."),
    Builtin::one(
        "upstream_cache_last_modified",
        last_modified,
        "The Last-Modified of a stale response that is being revalidated.",
    ),
    Builtin::one("upstream_cache_etag", etag, "The ETag of a stale response that is being revalidated."),
];

fn state(r: &mut Request, out: &mut Vec<u8>, read: impl Fn(&CacheState) -> Vec<u8>) -> bool {
    let Some(value) = r.ext::<CacheState>().map(read) else { return false };
    out.extend_from_slice(&value);
    !value.is_empty()
}

fn revalidating(r: &Request) -> bool {
    r.ext::<CacheState>().is_some_and(|s| s.revalidating && s.status == "EXPIRED")
}

fn last_modified(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let Some(stored) = r.ext::<CacheState>().and_then(|s| s.stored.as_ref()).filter(|_| revalidating(r)) else {
        return false;
    };
    if stored.meta.last_modified < 0 {
        return false;
    }
    out.extend_from_slice(&observe::clock::http_time(stored.meta.last_modified));
    true
}

fn etag(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if !revalidating(r) {
        return false;
    }
    let found = stored_fields(r, |head, buf| head.fields.first(Known::Etag).map(|v| v.of(buf).to_vec()));
    match found.flatten() {
        Some(etag) => {
            out.extend_from_slice(&etag);
            true
        }
        None => false,
    }
}
