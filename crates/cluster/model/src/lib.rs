//! The model of a running server: listeners, virtual hosts, routes, backends, certificates and policies.
//!
//! Each translator (Gateway API, Ingress, later containers and catalogues of services) ends in a [`Model`]; `render`
//! makes a configuration of it. The crate knows neither Kubernetes nor nginx.conf, except for [`Location::extra`], and
//! does no I/O.
//!
//! # How a translator ends here
//!
//! 1. For each address and port that it serves over HTTP, one [`HttpListener`]; for each other one, a
//!    [`StreamListener`]. A request or connection belongs to the host whose [`HostName`] is the most specific one.
//! 2. For each host, a [`VirtualHost`] with its [`Location`]s. Their order decides between locations of one path: call
//!    [`VirtualHost::sort_locations`] for the precedence of Gateway API, or keep an order of your own. The first
//!    location whose [`Conditions`] hold takes the request; if none holds, the search goes on with shorter prefixes. A
//!    request that no location takes gets 404.
//! 3. For each service and port, one [`EndpointGroup`] in [`Model::groups`], by a [`GroupName`] that depends on the service
//!    alone, never on routes or endpoints: endpoints change without a new configuration.
//! 4. Certificates and authorities under names, which [`ServerTls`] and [`BackendTls`] refer to.
//! 5. Directives that the model has no field for go into [`Location::extra`], [`VirtualHost::extra`],
//!    [`EndpointGroup::settings`] and [`Model::http_definitions`], as a tree of
//!    `conf_syntax::writer`; names of directives are part of the program, never data.
//! 6. [`Model::merge`] joins the models of several translators.
//!
//! Each part carries an [`ObjectOrigin`], which comments, logs and complaints name. Values are data: no field contains
//! nginx's language. A translator checks host names with [`HostName::parse`], field names and values with
//! [`check_field`], paths with [`decode_path`] and regular expressions with [`anchor_pattern`]: the server refuses a whole
//! configuration for one invalid value.

#![forbid(unsafe_code)]

mod backends;
mod certificates;
mod checks;
mod http;
mod merge;
mod names;
mod stream;

use std::collections::BTreeMap;

use conf_syntax::writer::WriteNode;

pub use backends::{Backend, BackendProtocol, BackendTls, Endpoint, EndpointGroup, EndpointSource, Trust};
pub use certificates::{Authority, Certificate, FileName};
pub use checks::{anchor_pattern, check_field, check_pattern, decode_path, is_field_name, is_field_value};
pub use http::{
    Action, ClientMode, ClientVerification, Conditions, Cors, FieldEdits, Filters, HttpListener, Location, Mirror,
    ModelRedirect, PathMatch, PathRewrite, Policies, RedirectPath, Retry, ServerTls, ValueMatch, VirtualHost,
};
pub use merge::MergeConflict;
pub use names::{GroupName, HostName, ListenSocket, ObjectOrigin};
pub use stream::{StreamAction, StreamHost, StreamListener};

/// Everything that a server serves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// At most one for each socket.
    pub http: BTreeMap<ListenSocket, HttpListener>,
    /// At most one for each socket. A socket may also stand in [`Model::http`], if both have TLS: the name that the
    /// client sends (SNI) decides.
    pub tcp: BTreeMap<ListenSocket, StreamListener>,
    /// At most one for each socket.
    pub udp: BTreeMap<ListenSocket, StreamListener>,
    pub groups: BTreeMap<GroupName, EndpointGroup>,
    pub certificates: BTreeMap<FileName, Certificate>,
    pub authorities: BTreeMap<FileName, Authority>,
    /// Files of users and hashed passwords.
    pub passwords: BTreeMap<FileName, Vec<u8>>,
    /// Directives of the `http` block in front of groups and hosts: maps, zones.
    pub http_definitions: Vec<WriteNode>,
    /// Directives of the `stream` block.
    pub stream_definitions: Vec<WriteNode>,
}

#[cfg(test)]
mod tests;
