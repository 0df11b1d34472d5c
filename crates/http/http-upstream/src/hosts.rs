//! Servers of a host that a location or a request names, found by `session_engine::upstreams`.

use super::groups::{Groups, UpstreamRef};
use super::resolving::Resolving;
use http_engine::Request;

pub use session_engine::upstreams::hosts::{NoTarget, bind};

/// Finds the group of a host's name, or its addresses by the location's `resolver`. Fails with a log message and the
/// status.
pub async fn named(groups: &Groups, r: &mut Request, host: &str, default_port: u16) -> Result<UpstreamRef, NoTarget> {
    let resolving = r.loc().ext::<Resolving>().cloned();
    session_engine::upstreams::hosts::named(groups, resolving, host, default_port).await
}
