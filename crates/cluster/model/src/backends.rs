//! Groups of endpoints, and the way in which a location uses them.

use std::net::IpAddr;

use conf_syntax::writer::WriteNode;

use crate::certificates::FileName;
use crate::http::{Filters, ModelRedirect};
use crate::names::{GroupName, ObjectOrigin};

/// Endpoints of one port of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointGroup {
    pub origin: ObjectOrigin,
    /// In order and without duplicates.
    pub endpoints: Vec<Endpoint>,
    /// Directives of the group besides its servers: the way of balancing, sticky sessions.
    pub settings: Vec<WriteNode>,
    /// Origin of the endpoints; `None` if they are a part of another object, which is translated as a whole.
    pub source: Option<EndpointSource>,
    /// Some endpoints of the source are left out, because their addresses cannot be used.
    pub has_unusable: bool,
}

/// Port of a service whose endpoints are objects of their own. A change of these objects changes the endpoints of the groups with this
/// source, and nothing else in the model unless a group becomes empty or was empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointSource {
    pub namespace: String,
    pub service: String,
    /// Name of the port; empty if it has none.
    pub port: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

/// Server of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// IP address, or a name that the server resolves.
    pub host: String,
    pub port: u16,
    /// Share of the group's requests, relative to the sum; at least 1.
    pub weight: u16,
}

impl Endpoint {
    /// Returns an endpoint with weight 1.
    pub fn new(host: impl Into<String>, port: u16) -> Endpoint {
        Endpoint { host: host.into(), port, weight: 1 }
    }
}

impl From<(IpAddr, u16)> for Endpoint {
    fn from((address, port): (IpAddr, u16)) -> Endpoint {
        Endpoint::new(address.to_string(), port)
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Share of a location's requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// `None` for a backend that does not exist or is not permitted: its share is answered with an error.
    pub group: Option<GroupName>,
    /// Counts relative to the sum; zero gets nothing.
    pub weight: u32,
    pub protocol: BackendProtocol,
    pub tls: Option<BackendTls>,
    pub filters: Filters,
    /// Answers instead of the group.
    pub redirect: Option<ModelRedirect>,
}

impl Backend {
    /// Returns a backend in cleartext HTTP/1.1, with weight 1.
    pub fn new(group: Option<GroupName>) -> Backend {
        Backend {
            group,
            weight: 1,
            protocol: BackendProtocol::Http1,
            tls: None,
            filters: Filters::default(),
            redirect: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackendProtocol {
    /// HTTP/1.1, with WebSocket.
    Http1,
    /// HTTP/2, in cleartext with prior knowledge.
    Http2,
    Grpc,
}

/// TLS towards a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendTls {
    /// Name that is sent (SNI), and verified unless `names` has entries.
    pub server_name: String,
    /// Subject alternative names that are accepted: DNS names or URIs.
    pub names: Vec<String>,
    pub trust: Trust,
    /// Certificate of the client.
    pub certificate: Option<FileName>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Authorities of the operating system.
    System,
    Authority(FileName),
    /// No verification.
    None,
}
