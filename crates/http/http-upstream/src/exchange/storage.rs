//! Connects the exchange with cache and `proxy_store`: before servers, after failures, at response heads.

use super::conf::IgnoreHeaders;
use super::{PassPlan, response};
use crate::caching::conf::StoreTo;
use crate::caching::{self, CacheRequest, CacheSession, CacheStart, CacheState, StoreTarget};
use crate::target::{self, OriginUri};
use bytes::Bytes;
use cache::freshness::IgnoredFields;
use http_engine::path::FilePath;
use http_engine::{Flow, Request, file_paths};
use http_types::{Known, ResponseHead};
use observe::Severity;
use observe::clock::parse_http_time;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;

fn ignored(plan: &PassPlan) -> IgnoredFields {
    let ignored = plan.conf.ignore_headers;
    caching::ignored_fields(
        ignored.has(IgnoreHeaders::EXPIRES_IN),
        ignored.has(IgnoreHeaders::EXPIRES),
        ignored.has(IgnoreHeaders::CACHE_CONTROL),
        ignored.has(IgnoreHeaders::SET_COOKIE),
        ignored.has(IgnoreHeaders::VARY),
    )
}

/// Looks up the response. `Some`: the response from the cache. Sets `alone` if the fetch continues without the client.
pub async fn begin_lookup(
    plan: &Arc<PassPlan>,
    r: &mut Request,
    place: &OriginUri,
    alone: &Cell<bool>,
) -> Option<Flow> {
    // Left by an earlier location.
    r.take_ext::<CacheRequest>();
    let Some(caching) = &plan.caching else {
        r.take_ext::<CacheState>();
        return None;
    };
    let key = if caching.key.is_some() {
        Vec::new()
    } else {
        target::cache_key(&place.origin, place.uri.as_deref().unwrap_or_default())
    };
    let give = |r: &mut Request, head: &_, buf: &_| response::take_stored(plan, r, head, buf);
    match Box::pin(caching::begin_session(caching, r, &give, key)).await {
        CacheStart::Off => None,
        CacheStart::Answer(flow) => Some(flow),
        CacheStart::Ask => {
            alone.set(alone.get() || r.ext::<CacheSession>().is_some_and(CacheSession::goes_on_alone));
            None
        }
    }
}

/// Responds with the stale entry if `proxy_cache_use_stale` has the failure's bit, otherwise with the status.
pub fn answer_failure(plan: &Arc<PassPlan>, r: &mut Request, bit: u32, status: u16) -> Flow {
    let Some(mut session) = CacheSession::take(r) else { return Flow::Status(status) };
    let give = |r: &mut Request, head: &_, buf: &_| response::take_stored(plan, r, head, buf);
    if let Some(flow) = session.instead(r, bit, true, &give) {
        return flow;
    }
    session.failed(status);
    Flow::Status(status)
}

/// Responds with the stale entry before other servers are tried, if `proxy_cache_use_stale` has the failure's bit.
pub fn answer_stale(plan: &Arc<PassPlan>, r: &mut Request, bit: u32) -> Option<Flow> {
    if bit == 0 {
        return None;
    }
    let mut session = CacheSession::take(r)?;
    let give = |r: &mut Request, head: &_, buf: &_| response::take_stored(plan, r, head, buf);
    let flow = session.instead(r, bit, false, &give);
    if flow.is_none() {
        session.put(r);
    }
    flow
}

/// Responds with the stored entry after a 304 to the cache's own conditions.
pub fn answer_revalidated(plan: &Arc<PassPlan>, r: &mut Request, head: &ResponseHead, buf: &[u8]) -> Option<Flow> {
    if head.status != 304 {
        return None;
    }
    let mut session = CacheSession::take(r)?;
    let give = |r: &mut Request, head: &_, buf: &_| response::take_stored(plan, r, head, buf);
    let flow = session.revalidated(r, head, buf, ignored(plan), &give);
    if flow.is_none() {
        session.put(r);
    }
    flow
}

/// Decides by the head whether the response is stored, and invalidates entries after an unsafe method.
pub fn judge_response(plan: &PassPlan, r: &mut Request, head: &ResponseHead, buf: &[u8]) {
    if let Some(mut session) = CacheSession::take(r) {
        if session.invalidates(head.status) {
            invalidate(plan, r, &session, head, buf);
        }
        session.judged(r, head, buf, ignored(plan));
        session.put(r);
    }
}

/// Invalidates entries after an unsafe method: of the request's URI, and of URIs in the response.
fn invalidate(plan: &PassPlan, r: &mut Request, session: &CacheSession, head: &ResponseHead, buf: &[u8]) {
    let mut targets = caching::related_uris(r, head, buf);
    targets.push(r.head.request_uri().of(&r.buf).to_vec());
    let mut keys = Vec::new();
    for target in targets {
        if let Some(mut copy) = caching::aimed_at(r, &target) {
            keys.extend(session.key_for(&mut copy).or_else(|| plan.target.key(&copy)));
        }
    }
    session.invalidate(r, &keys);
}

/// Tells whether the response is being stored.
pub fn is_storing(r: &Request) -> bool {
    r.ext::<CacheSession>().is_some_and(CacheSession::goes_on_alone)
}

/// Stores a replaced error response as the status alone.
pub fn note_intercepted(r: &mut Request, flow: &Flow) {
    if let (Flow::Status(status), Some(mut session)) = (flow, CacheSession::take(r)) {
        session.intercepted(*status);
    }
}

/// Prepares the head for the client: see [`CacheSession::dress`].
pub fn dress_response(r: &mut Request, head: &ResponseHead, buf: &[u8]) {
    match CacheSession::take(r) {
        Some(session) => {
            session.dress(r, head, buf);
            session.put(r);
        }
        // The server has evaluated the conditions.
        None => r.reply.ignore_conditions(true),
    }
}

/// Returns the place for the response; `None`: it is not stored.
pub fn store_target(plan: &PassPlan, r: &mut Request, head: &ResponseHead, raw: &[u8]) -> Option<StoreTarget> {
    if let Some(mut session) = CacheSession::take(r) {
        let meta = session.entry(r, head)?;
        return Some(StoreTarget::Entry { session, meta, head: Bytes::copy_from_slice(raw) });
    }
    let storing = plan.storing.as_ref()?;
    if head.status != 200 || r.is_head() {
        return None;
    }
    let path = match &storing.to {
        StoreTo::Off => return None,
        StoreTo::Mapped => file_paths::mapped_path(r).ok()?,
        StoreTo::Path(path) => {
            let text = path.eval(r);
            match FilePath::configured(path, text) {
                Ok(path) => path,
                Err(_) => {
                    r.log(Severity::Error, format_args!("a variable makes the path to store at lead elsewhere"));
                    return None;
                }
            }
        }
    };
    if path.is_empty() {
        return None;
    }
    let path = PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(path.into_bytes()));
    let modified = head.fields.first(Known::LastModified).and_then(|v| parse_http_time(v.of(raw)));
    Some(StoreTarget::File { path, mode: storing.mode, modified })
}
