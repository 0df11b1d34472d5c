//! The servers of a host that a location or a request names; how they are found stands in `session_engine::upstreams`.

use super::groups::{Groups, Named};
use super::resolving::Resolving;
use http_engine::Request;

pub use session_engine::upstreams::hosts::{NoAim, bind};

/// The servers of a host that a request has named.
///
/// # Errors
/// See [`NoAim`].
pub async fn named(groups: &Groups, r: &mut Request, host: &str, default_port: u16) -> Result<Named, NoAim> {
    let resolving = r.loc().thing::<Resolving>().cloned();
    session_engine::upstreams::hosts::named(groups, resolving, host, default_port).await
}
