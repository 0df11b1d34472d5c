//! A location's way of sending requests, for health checks; in `Location::extensions`.

use super::groups::UpstreamRef;
use super::tls::UpstreamTlsRequest;
use http_engine::Request;
use http_types::Method;
use std::sync::Arc;
use std::time::Duration;
use transport::ConnectOptions;

/// The requests of a location as health checks send them.
pub trait Prober: Send + Sync {
    /// Returns the group; `None`: the location has no group to check.
    fn named(&self) -> Option<UpstreamRef>;
    /// Tells whether servers speak gRPC.
    fn is_grpc(&self) -> bool;
    /// Tells whether servers speak HTTP/2 or HTTP/3.
    fn multiplexes(&self) -> bool;
    /// HTTP/3
    fn over_quic(&self) -> bool;
    /// Returns the method that [`Prober::request`] writes.
    fn method(&self, r: &mut Request) -> Method;
    /// Returns a request for this URI, which is also that of `r`: in HTTP/1, or a header block. `close`: announces over
    /// HTTP/1 that no other request follows.
    fn request(&self, r: &mut Request, uri: &str, close: bool) -> Vec<u8>;
    /// Returns the options of sockets.
    fn options(&self, r: &mut Request) -> ConnectOptions;
    /// TLS requirements for an address; `None`: cleartext. Fails with a log message.
    fn tls(&self, r: &mut Request, address: String) -> Result<Option<UpstreamTlsRequest>, String>;
    /// Returns the location's timeouts.
    fn timeouts(&self) -> Timeouts;
    /// Returns the maximum size of a response head in bytes.
    fn head_max(&self) -> usize;
}

/// For each step without progress.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// To connect.
    pub connect: Duration,
    /// Between two writes.
    pub send: Duration,
    /// Between two reads.
    pub read: Duration,
}

/// Keeps a prober among a location's extensions.
#[derive(Clone)]
pub struct ProbeBody(pub Arc<dyn Prober>);
