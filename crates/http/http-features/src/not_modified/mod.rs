//! Conditional requests (nginx: `ngx_http_not_modified_filter_module`; RFC 9110, 13).

use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::values::IfModifiedSince;
use http_engine::{BlockPlan, Feature, Filter, FilterOrder, Request, ResponseBody, Str};
use http_types::Known;
use observe::clock::parse_http_time;
use std::any::Any;
use std::sync::Arc;

directives! {
    /// The filter has no directives of its own.
    pub struct NotModifiedConf from NotModifiedInput {
    }
}

pub struct NotModified;

impl Feature for NotModified {
    fn table(&self) -> FeatureTable {
        NotModifiedConf::table("not_modified", ContextArea::Http)
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        block.location.filters.push((FilterOrder::NotModified, Arc::new(ModifiedCheck)));
        Ok(())
    }
}

struct ModifiedCheck;

impl Filter for ModifiedCheck {
    fn name(&self) -> &'static str {
        "not_modified"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        if r.out.status() != 200 || r.reply.ignores_conditions() {
            return Ok(body);
        }
        if let Some(since) = r.header(Known::IfUnmodifiedSince)
            && !unmodified(r, since)
        {
            r.out.clear();
            return Err(412);
        }
        if let Some(list) = r.header(Known::IfMatch)
            && !matches(list, r.out.etag(), false)
        {
            r.out.clear();
            return Err(412);
        }
        let (since, list) = (r.header(Known::IfModifiedSince), r.header(Known::IfNoneMatch));
        let since = since.filter(|_| !(r.reply.is_etag_alone() && list.is_some()));
        if since.is_none() && list.is_none() {
            return Ok(body);
        }
        if since.is_some_and(|since| modified(r, since)) {
            return Ok(body);
        }
        if list.is_some_and(|list| !matches(list, r.out.etag(), true)) {
            return Ok(body);
        }
        r.out.set_status(304);
        r.out.set_status_line(None);
        r.out.set_content_type(Str::default());
        r.out.set_content_length(None);
        r.out.allow_ranges(false);
        r.out.set_accept_ranges(None);
        r.out.set_content_encoding(Str::default());
        Ok(ResponseBody::Empty)
    }
}

fn unmodified(r: &Request, since: &[u8]) -> bool {
    let Some(last) = r.out.last_modified() else { return false };
    parse_http_time(since).is_some_and(|since| since >= last)
}

fn modified(r: &Request, since: &[u8]) -> bool {
    let Some(last) = r.out.last_modified() else { return true };
    let mode = r.loc().core.conf.if_modified_since;
    if mode == IfModifiedSince::Off {
        return true;
    }
    match parse_http_time(since) {
        Some(since) if since == last => false,
        Some(since) => mode == IfModifiedSince::Exact || since < last,
        None => true,
    }
}

/// Tells whether a list of entity tags contains ours; weak comparison ignores `W/`.
fn matches(list: &[u8], ours: &[u8], weak: bool) -> bool {
    if list == b"*" {
        return true;
    }
    if ours.is_empty() {
        return false;
    }
    let strip =
        |tag: &[u8]| -> Vec<u8> { if weak { tag.strip_prefix(b"W/").unwrap_or(tag).to_vec() } else { tag.to_vec() } };
    let ours = strip(ours);
    let mut rest = list;
    while !rest.is_empty() {
        let theirs = if weak { rest.strip_prefix(b"W/").unwrap_or(rest) } else { rest };
        if let Some(after) = theirs.strip_prefix(ours.as_slice()) {
            let after = after.trim_ascii_start();
            if after.is_empty() || after.starts_with(b",") {
                return true;
            }
        }
        match rest.iter().position(|c| *c == b',') {
            Some(comma) => rest = rest.get(comma + 1..).unwrap_or_default().trim_ascii_start(),
            None => return false,
        }
    }
    false
}
