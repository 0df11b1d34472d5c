//! Hosts, their paths, and the order in which the server compares them.

use std::collections::BTreeMap;

use cluster_model::{FileName, GroupName, HostName, ObjectOrigin};
use cluster_objects::ObjectName;
use cluster_objects::types::Ingress;
use conf_syntax::writer::WriteNode;

use crate::config::{Canary, Config};
use crate::secrets::Credentials;
use crate::services::PathTarget;

/// Ingress with its settings.
pub(crate) struct IngressSource<'a> {
    pub name: &'a ObjectName,
    pub ingress: &'a Ingress,
    pub config: Config,
    pub snippets: Snippets,
    pub files: SettingFiles,
}

impl IngressSource<'_> {
    /// Returns the origin of lines that one of the annotations makes.
    pub fn origin(&self, annotation: &'static str) -> ObjectOrigin {
        ObjectOrigin::new("Ingress", &self.name.namespace, &self.name.name).part(annotation)
    }
}

/// Checked snippets of an Ingress.
#[derive(Default)]
pub(crate) struct Snippets {
    pub location: Vec<WriteNode>,
    pub server: Vec<WriteNode>,
    pub auth: Vec<WriteNode>,
    pub stream: Vec<WriteNode>,
}

/// Files and fields that the settings of an Ingress name.
#[derive(Default)]
pub(crate) struct SettingFiles {
    pub users: Option<FileName>,
    pub proxy_ssl: Option<Credentials>,
    pub auth_tls: Option<Result<Credentials, String>>,
    pub response_fields: Vec<(String, String)>,
    pub auth_fields: Vec<(String, String)>,
    pub fastcgi_params: Vec<(String, String)>,
}

/// Host with its paths.
pub(crate) struct Host {
    pub name: HostName,
    pub aliases: Vec<HostName>,
    pub locations: Vec<Loc>,
    /// Certificate of its own, or the default one.
    pub certificate: Option<FileName>,
    /// A rule names a certificate, even if it is the default one: requests in cleartext are redirected.
    pub has_tls: bool,
    pub is_passthrough: bool,
    /// Ingresses whose settings are those of the host.
    pub sources: Vec<usize>,
    pub server_snippet: Option<usize>,
    pub ssl_ciphers: Option<String>,
    pub prefer_server_ciphers: Option<bool>,
    pub auth_tls: Option<usize>,
}

/// Path of a host.
#[derive(Clone)]
pub(crate) struct Loc {
    pub path: String,
    pub is_exact: bool,
    /// `None` for the backend of requests that no rule takes.
    pub target: Option<PathTarget>,
    /// Ingress with the settings; `None` for the host of all requests without any.
    pub source: Option<usize>,
    /// No rule names the path: it is the rest of the host.
    pub is_rest: bool,
    pub origin: ObjectOrigin,
}

impl Loc {
    /// Tells whether the settings rewrite the path.
    pub fn needs_rewrite(&self, sources: &[IngressSource<'_>]) -> bool {
        let target = self.source.and_then(|source| sources[source].config.rewrite_target.as_ref());
        target.is_some_and(|target| *target != self.path)
    }

    fn uses_regex(&self, sources: &[IngressSource<'_>]) -> bool {
        self.needs_rewrite(sources) || self.source.is_some_and(|source| sources[source].config.use_regex)
    }
}

/// Path that the server compares.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathComparison {
    Exact(String),
    /// Path elements, as one prefix and one exact path of ingress-nginx do.
    Elements(String),
    Text(String),
    Regex(String),
}

impl Host {
    /// Returns the locations with what the server compares, in the order of ingress-nginx: with a regular expression
    /// anywhere on the host, all paths are regular expressions, and the longest text goes first.
    pub fn compared(&self, sources: &[IngressSource<'_>]) -> Vec<(PathComparison, Loc)> {
        let mut locations = self.locations.clone();
        locations.sort_by(|a, b| b.path.len().cmp(&a.path.len()).then_with(|| b.path.cmp(&a.path)));
        let is_regex = locations.iter().any(|location| location.uses_regex(sources));
        let has_exact = |path: &str| locations.iter().any(|other| other.is_exact && other.path == path);
        let compare = |location: &Loc| {
            let path = &location.path;
            let is_plain_prefix = !location.is_exact && path != "/" && !location.uses_regex(sources);
            match (is_regex, location.is_exact) {
                (true, _) if is_plain_prefix && has_exact(path) && !path.ends_with('/') => {
                    PathComparison::Regex(format!("^{path}/"))
                }
                (true, _) => PathComparison::Regex(format!("^{path}")),
                (false, true) => PathComparison::Exact(path.clone()),
                (false, false) if path == "/" || path.ends_with('/') => PathComparison::Text(path.clone()),
                (false, false) => PathComparison::Elements(path.clone()),
            }
        };
        locations.iter().map(|location| (compare(location), location.clone())).collect()
    }
}

/// Hosts, and the groups that a canary shares requests with.
pub(crate) struct HostServers {
    pub hosts: Vec<Host>,
    /// Canaries by the group of their primary.
    pub canaries: BTreeMap<GroupName, (PathTarget, Canary)>,
}
