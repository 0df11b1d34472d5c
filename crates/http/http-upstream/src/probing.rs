//! A location's way of sending requests, for health checks; in `Location::extensions`.

use super::groups::UpstreamRef;
use super::tls::Wanted;
use http_engine::Request;
use std::sync::Arc;
use std::time::Duration;

pub trait Prober: Send + Sync {
    fn named(&self) -> Option<UpstreamRef>;
    /// Tells whether servers speak gRPC: [`Prober::request`] then returns the header block of `r`.
    fn is_grpc(&self) -> bool;
    /// Returns a request for this URI; `close`: announces that no other request follows.
    fn request(&self, r: &mut Request, uri: &str, close: bool) -> Vec<u8>;
    /// TLS requirements for an address; `None`: cleartext. Fails with a log message.
    fn tls(&self, r: &mut Request, address: String) -> Result<Option<Wanted>, String>;
    fn timeouts(&self) -> Timeouts;
    fn head_max(&self) -> usize;
}

/// For each step without progress.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub connect: Duration,
    pub send: Duration,
    pub read: Duration,
}

#[derive(Clone)]
pub struct Probing(pub Arc<dyn Prober>);
