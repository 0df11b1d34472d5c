//! Routes: one host and path of a container or service, with its endpoint and its settings.

use cluster_model::{Endpoint, HostName, ObjectOrigin, PathMatch};
use conf_syntax::writer::WriteNode;

use crate::labels::Router;

/// Protocol towards an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndpointProtocol {
    #[default]
    Http,
    Https,
    /// HTTP/2 in cleartext.
    Http2,
    Grpc,
    /// gRPC over TLS.
    Grpcs,
    FastCgi,
    Uwsgi,
    Scgi,
}

impl EndpointProtocol {
    /// Words of labels and of `VIRTUAL_PROTO`.
    pub const WORDS: &'static [(&'static str, EndpointProtocol)] = &[
        ("http", EndpointProtocol::Http),
        ("https", EndpointProtocol::Https),
        ("h2c", EndpointProtocol::Http2),
        ("grpc", EndpointProtocol::Grpc),
        ("grpcs", EndpointProtocol::Grpcs),
        ("fastcgi", EndpointProtocol::FastCgi),
        ("uwsgi", EndpointProtocol::Uwsgi),
        ("scgi", EndpointProtocol::Scgi),
    ];
}

/// Use of HTTP and HTTPS by a host. A host without a certificate is served over HTTP in each mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpsMode {
    /// Requests over HTTP are sent to HTTPS.
    Redirect,
    /// Both are served.
    Both,
    HttpsOnly,
    HttpOnly,
}

impl HttpsMode {
    /// Words of `tidegate.https`, and those of `HTTPS_METHOD`.
    pub const WORDS: &'static [(&'static str, HttpsMode)] = &[
        ("redirect", HttpsMode::Redirect),
        ("both", HttpsMode::Both),
        ("only", HttpsMode::HttpsOnly),
        ("off", HttpsMode::HttpOnly),
        ("noredirect", HttpsMode::Both),
        ("nohttp", HttpsMode::HttpsOnly),
        ("nohttps", HttpsMode::HttpOnly),
    ];
}

/// Settings of a location: those of the first route of a host and path are in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteSettings {
    pub protocol: EndpointProtocol,
    /// Replaces the path that the route matches; empty for none.
    pub rewrite: String,
    /// Folder of scripts in the container (FastCGI, SCGI).
    pub root: Option<String>,
    /// Networks of clients; empty for all.
    pub allow: Vec<String>,
    /// Directives of the group: the way of balancing, kept connections.
    pub group: Vec<WriteNode>,
    /// Directives of the location.
    pub snippet: Vec<WriteNode>,
}

impl RouteSettings {
    /// Returns the names of the settings that differ.
    pub fn differences(&self, other: &RouteSettings) -> Vec<&'static str> {
        let parts = [
            ("protocol", self.protocol != other.protocol),
            ("rewrite", self.rewrite != other.rewrite),
            ("root", self.root != other.root),
            ("allow", self.allow != other.allow),
            ("balance", self.group != other.group),
            ("snippet", self.snippet != other.snippet),
        ];
        parts.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

/// Settings of a host. Of several routes, the first one with a value decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSettings {
    pub https: Option<HttpsMode>,
    /// Name of a certificate in the folder of certificates.
    pub certificate: Option<String>,
    /// Value of `Strict-Transport-Security`; `off` for none.
    pub hsts: Option<String>,
    /// Value without any other one: nginx-proxy sends the field by default.
    pub default_hsts: Option<String>,
    /// The server orders a certificate; the address of the authority's mails, if there is one.
    pub acme: Option<Option<String>>,
}

/// Path of one host, and an endpoint that serves it.
#[derive(Clone, Debug, PartialEq)]
pub struct HostRoute {
    pub origin: ObjectOrigin,
    pub host: HostName,
    pub path: PathMatch,
    /// `None` while the container is stopped or unhealthy, or has no address: the route exists and gets 503.
    pub endpoint: Option<Endpoint>,
    pub settings: RouteSettings,
    pub host_settings: HostSettings,
}

impl HostRoute {
    /// Returns the routes of a router, one for each of its hosts. All have the endpoint.
    pub(crate) fn all_of(origin: &ObjectOrigin, router: Router, endpoint: Option<&Endpoint>) -> Vec<HostRoute> {
        let Router { hosts, path, settings, host_settings, .. } = router;
        let route = |host| HostRoute {
            origin: origin.clone(),
            host,
            path: path.clone(),
            endpoint: endpoint.cloned(),
            settings: settings.clone(),
            host_settings: host_settings.clone(),
        };
        hosts.into_iter().map(route).collect()
    }
}

/// Returns the origin of a router: a part of its container or service, unless the router has no name.
pub(crate) fn router_origin(owner: &ObjectOrigin, router: &str) -> ObjectOrigin {
    match router {
        "" => owner.clone(),
        name => owner.part(format!("router {name}")),
    }
}
