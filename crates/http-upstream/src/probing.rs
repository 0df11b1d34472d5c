//! What a location can tell of the way it asks servers, so that they can be probed the same way; kept in
//! `Location::extensions` by whatever passes requests on.

use super::groups::UpstreamRef;
use super::tls::Wanted;
use http_engine::Request;
use std::sync::Arc;
use std::time::Duration;

/// How a location asks its servers.
pub trait Prober: Send + Sync {
    /// The group, if it is the same for every request.
    fn named(&self) -> Option<UpstreamRef>;
    /// The bytes of a request for this URI; `close`: the server is told that it is the only one.
    fn request(&self, r: &mut Request, uri: &str, close: bool) -> Vec<u8>;
    /// What a connection to this address must be like when the servers are asked over TLS.
    ///
    /// # Errors
    /// Words for the error log.
    fn tls(&self, r: &mut Request, address: String) -> Result<Option<Wanted>, String>;
    fn timeouts(&self) -> Timeouts;
    /// The most that the head of a response may take.
    fn head_max(&self) -> usize;
}

/// For how long each step may make no progress.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub connect: Duration,
    pub send: Duration,
    pub read: Duration,
}

/// The thing that is kept.
#[derive(Clone)]
pub struct Probing(pub Arc<dyn Prober>);
