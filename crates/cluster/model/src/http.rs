//! HTTP: listeners, hosts, locations, filters and policies.

use std::cmp::Reverse;
use std::time::Duration;

use conf_syntax::writer::WriteNode;

use crate::backends::Backend;
use crate::certificates::FileName;
use crate::names::{GroupName, HostName, ObjectOrigin};

/// A socket that speaks HTTP. Hosts without TLS and hosts with TLS never share one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpListener {
    pub is_tls: bool,
    /// With different names. A request of another host gets 404, or no handshake over TLS.
    pub hosts: Vec<VirtualHost>,
}

/// Host of a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct VirtualHost {
    pub origin: ObjectOrigin,
    pub name: HostName,
    /// Host of the listener of Gateway API that the host belongs to. A request gets 421 if the name of its TLS handshake
    /// belongs to another listener of the port.
    pub listener: Option<HostName>,
    /// Certificates; on listeners with TLS only.
    pub tls: Option<ServerTls>,
    /// In order of precedence among those of one path.
    pub locations: Vec<Location>,
    /// Directives in front of the locations.
    pub extra: Vec<WriteNode>,
}

impl VirtualHost {
    /// Orders locations by the precedence of Gateway API: exact paths, regular expressions (the longest first), longer
    /// prefixes first; then those with a method, with more fields, with more query parameters. The sort is stable: equal
    /// ones keep their order, which is by age, rule and match.
    pub fn sort_locations(&mut self) {
        self.locations.sort_by_key(|location| {
            let kind = match location.path {
                PathMatch::Exact(_) => 0,
                PathMatch::Regex { .. } => 1,
                PathMatch::Prefix(_) | PathMatch::Text(_) => 2,
            };
            let conditions = &location.conditions;
            // Locations of one path stand together.
            (
                kind,
                Reverse(location.path.text().len()),
                location.path.text().to_owned(),
                Reverse(conditions.method.is_some()),
                Reverse(conditions.fields.len()),
                Reverse(conditions.query.len()),
            )
        });
    }
}

/// Certificates of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerTls {
    /// Certificates of several types of keys may stand beside each other.
    pub certificates: Vec<FileName>,
    pub client: Option<ClientVerification>,
}

/// Certificates that clients show.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientVerification {
    pub authority: FileName,
    pub mode: ClientMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMode {
    /// A connection needs a valid certificate.
    Required,
    /// A missing or invalid certificate is accepted.
    Unverified,
}

/// Path of a location, decoded (`%20` is a space).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    Exact(String),
    /// Whole path elements: `/v2` takes `/v2` and `/v2/x`, never `/v2x`. Without a slash at its end, except for `/`.
    Prefix(String),
    /// Begin of the path, as nginx compares it: `/v2` takes `/v2x`, too.
    Text(String),
    /// Regular expression, as the server compiles it (PCRE2), with its anchors.
    Regex {
        pattern: String,
        is_case_insensitive: bool,
    },
}

impl PathMatch {
    /// Returns the path or the pattern.
    pub fn text(&self) -> &str {
        match self {
            PathMatch::Exact(text)
            | PathMatch::Prefix(text)
            | PathMatch::Text(text)
            | PathMatch::Regex { pattern: text, .. } => text,
        }
    }
}

/// Conditions on a request beside its path. All of them must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    pub method: Option<String>,
    /// Header fields by name.
    pub fields: Vec<(String, ValueMatch)>,
    /// Query parameters by name.
    pub query: Vec<(String, ValueMatch)>,
}

impl Conditions {
    pub fn is_empty(&self) -> bool {
        self.method.is_none() && self.fields.is_empty() && self.query.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueMatch {
    Exact(String),
    /// Regular expression with its anchors.
    Regex(String),
}

/// Requests of one path, and their treatment.
#[derive(Clone, Debug, PartialEq)]
pub struct Location {
    pub origin: ObjectOrigin,
    pub path: PathMatch,
    pub conditions: Conditions,
    pub filters: Filters,
    pub policies: Policies,
    pub action: Action,
    /// Directives that no other field has, in front of the action.
    pub extra: Vec<WriteNode>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// One of the backends by weight; none with a weight above zero answers with `no_backend`.
    Proxy {
        backends: Vec<Backend>,
        no_backend: u16,
    },
    Redirect(ModelRedirect),
    /// Answers with this status and no body of a backend.
    Respond(u16),
    /// Lines of a translator whose source has a way of its own; `groups` are those that the lines name.
    Lines {
        groups: Vec<GroupName>,
        lines: Vec<WriteNode>,
    },
}

/// Changes of requests and responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    pub request_fields: FieldEdits,
    pub response_fields: FieldEdits,
    /// `Host` towards the backend.
    pub host: Option<String>,
    pub path: Option<PathRewrite>,
    pub mirrors: Vec<Mirror>,
    pub cors: Option<Cors>,
}

impl Filters {
    /// Applies the filters of a backend behind those of its route.
    #[must_use]
    pub fn then(&self, inner: &Filters) -> Filters {
        let mut both = self.clone();
        both.request_fields.append(&inner.request_fields);
        both.response_fields.append(&inner.response_fields);
        both.host = inner.host.clone().or(both.host);
        both.path = inner.path.clone().or(both.path);
        both.mirrors.extend(inner.mirrors.iter().cloned());
        both.cors = inner.cors.clone().or(both.cors);
        both
    }
}

/// Edits of header fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldEdits {
    pub set: Vec<(String, String)>,
    /// Values that are appended to those of the message.
    pub add: Vec<(String, String)>,
    pub remove: Vec<String>,
}

impl FieldEdits {
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }

    fn append(&mut self, other: &FieldEdits) {
        self.set.extend(other.set.iter().cloned());
        self.add.extend(other.add.iter().cloned());
        self.remove.extend(other.remove.iter().cloned());
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRewrite {
    /// Replaces the whole path (decoded).
    Full(String),
    /// Replaces the prefix of the location (decoded); may be empty.
    Prefix(String),
}

/// Copies of requests, whose responses are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    pub group: GroupName,
    pub protocol: crate::BackendProtocol,
    /// Share of requests in hundredths of a percent, up to 10,000.
    pub share: u32,
}

/// Cross-origin requests (Fetch standard).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    pub allow_origins: Vec<String>,
    pub allow_methods: Vec<String>,
    pub allow_headers: Vec<String>,
    pub expose_headers: Vec<String>,
    pub allow_credentials: bool,
    pub max_age: Option<Duration>,
}

/// Answer with a `Location`; absent parts are those of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRedirect {
    /// `http` or `https`.
    pub scheme: Option<String>,
    pub host: Option<String>,
    pub port: Option<u16>,
    pub path: Option<RedirectPath>,
    pub status: u16,
}

/// Path as it stands in the `Location` (encoded).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedirectPath {
    Full(String),
    /// Replaces the prefix of the location.
    Prefix(String),
}

/// Limits of requests. Zero switches a limit off; an absent one is the server's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// Whole request with its retries; 504 behind it.
    pub request_timeout: Option<Duration>,
    /// One try.
    pub try_timeout: Option<Duration>,
    pub retry: Option<Retry>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    /// Tries beside the first one.
    pub attempts: Option<u32>,
    /// Statuses that are tried again, beside failures to connect.
    pub statuses: Vec<u16>,
    pub backoff: Option<Duration>,
}
