//! Responses without a status line, treated as HTTP/0.9: all bytes are the body (`ngx_http_proxy_process_status_line`).

use super::failure::note_failure;
use crate::caching::CacheState;
use crate::target::UpstreamTarget;
use crate::upstream_state::UpstreamState;
use http_engine::Request;
use http_types::{ResponseHead, Version};
use upstream::Peer;

/// Tells whether a head was made for a response without one.
pub fn is_headless(head: &ResponseHead) -> bool {
    head.version == Version::Http09
}

/// Passes the body until close. nginx keeps the client's connection open without a delimiter, and sends the invalid
/// status 000 over HTTP/2.
pub fn pass_headless(r: &mut Request, peer: &Peer, target: &UpstreamTarget<'_>) {
    note_failure(r, peer, target, "upstream sent no valid HTTP/1.0 header", "reading response header from");
    let is_cached = r.ext::<CacheState>().is_some();
    if let Some(one) = UpstreamState::last(r) {
        // With a cache, nginx has none.
        one.status = if is_cached { 0 } else { 200 };
    }
    r.out.set_status_line(None);
    if r.target.version() > Version::Http11 {
        r.out.set_status(200);
    } else {
        r.target.set_version(Version::Http09);
        r.reply.set_keep_alive(false);
    }
}
