//! Servers of a host that a location or a request names, found by `upstream_directives`.

use super::groups::{HttpGroups, UpstreamRef};
use super::resolving::ResolveRules;
use http_engine::Request;

pub use upstream_directives::hosts::{NoTarget, bind_host};

/// Finds the group of a host's name, or its addresses by the location's `resolver`. Fails with a log message and the
/// status.
pub async fn named_group(
    groups: &HttpGroups,
    r: &mut Request,
    host: &str,
    default_port: u16,
) -> Result<UpstreamRef, NoTarget> {
    let resolving = r.loc().ext::<ResolveRules>().cloned();
    upstream_directives::hosts::named_host(groups, resolving, host, default_port).await
}
