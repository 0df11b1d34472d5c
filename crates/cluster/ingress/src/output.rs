//! From hosts and paths to the model.

use std::collections::{BTreeMap, BTreeSet};

use cluster_model::{
    Action, Backend, Conditions, FileName, Filters, GroupName, HostName, HttpListener, ListenSocket, Location, Model,
    ObjectOrigin, PathMatch, Policies, ServerTls, StreamAction, StreamHost, StreamListener, VirtualHost,
};
use cluster_objects::{Complaint, Kind};
use conf_syntax::writer::{Argument, NewDirective, WriteNode};

use crate::config::{Affinity, Config};
use crate::hosts::{Host, HostServers, IngressSource, Loc, PathComparison};
use crate::nodes::{identifier, mentions, quote_pattern};
use crate::services::{PathTarget, Services};
use crate::settings::{Defaults, Settings};
use crate::template::{parts, template};
use crate::{headers, keys};

/// State of the output.
pub(crate) struct OutputState<'a, 's> {
    pub sources: &'s [IngressSource<'a>],
    pub defaults: &'s Defaults,
    pub settings: &'s Settings,
    pub services: &'s mut Services<'a>,
    pub model: &'s mut Model,
    pub complaints: &'s mut Vec<Complaint>,
    /// Group with its settings, by the group of the Service.
    final_groups: BTreeMap<GroupName, GroupName>,
    /// Argument of `proxy_pass` behind the scheme, by group.
    targets: BTreeMap<GroupName, (Argument, Vec<GroupName>)>,
    pub definitions: Vec<WriteNode>,
    defined: BTreeSet<String>,
}

/// Parts of a host beside its locations.
#[derive(Default)]
pub(crate) struct HostParts {
    /// Locations of the host that requests reach inside the server only.
    pub inner: Vec<WriteNode>,
    pub groups: Vec<GroupName>,
    pub names: BTreeSet<String>,
}

pub(crate) fn line(name: &'static str, words: &[&str]) -> WriteNode {
    NewDirective::new(name).args(words.iter().map(Argument::plain)).into()
}

pub(crate) fn directive(name: &'static str, arguments: impl IntoIterator<Item = Argument>) -> WriteNode {
    NewDirective::new(name).args(arguments).into()
}

impl<'a, 's> OutputState<'a, 's> {
    pub fn new(
        sources: &'s [IngressSource<'a>],
        defaults: &'s Defaults,
        settings: &'s Settings,
        services: &'s mut Services<'a>,
        model: &'s mut Model,
        complaints: &'s mut Vec<Complaint>,
    ) -> OutputState<'a, 's> {
        OutputState {
            sources,
            defaults,
            settings,
            services,
            model,
            complaints,
            final_groups: BTreeMap::new(),
            targets: BTreeMap::new(),
            definitions: Vec::new(),
            defined: BTreeSet::new(),
        }
    }

    pub fn complain(&mut self, source: usize, words: impl Into<String>) {
        let name = self.sources[source].name;
        let complaint = Complaint::about(Kind::Ingress, &name.namespace, &name.name, words);
        // Both listeners of a host have its paths.
        if !self.complaints.contains(&complaint) {
            self.complaints.push(complaint);
        }
    }

    pub fn run(mut self, servers: &HostServers) {
        self.group_settings(servers);
        self.canaries(servers);
        let plain = ListenSocket { port: self.settings.http_port, address: self.settings.address };
        let secure = ListenSocket { port: self.settings.https_port, address: self.settings.address };
        let mut listeners =
            [(plain, HttpListener::default()), (secure, HttpListener { is_tls: true, hosts: Vec::new() })];
        let mut passed = Vec::new();
        for host in &servers.hosts {
            if host.is_passthrough {
                passed.extend(self.passthrough(host));
            }
            for (_, listener) in &mut listeners {
                let is_served = !listener.is_tls || (host.certificate.is_some() && !host.is_passthrough);
                if is_served {
                    self.host(host, listener);
                }
            }
        }
        self.www_redirects(servers, &mut listeners);
        for (socket, listener) in listeners {
            if !listener.hosts.is_empty() {
                self.model.http.insert(socket, listener);
            }
        }
        if !passed.is_empty() {
            self.model.tcp.insert(secure, StreamListener::Tls(passed));
        }
        for source in self.sources {
            if !source.snippets.stream.is_empty() {
                self.model.stream_definitions.push(WriteNode::Comment(source.origin("stream-snippet").to_string()));
                self.model.stream_definitions.extend(source.snippets.stream.iter().cloned());
                self.model.stream_definitions.push(WriteNode::Blank);
            }
        }
        self.model.stream_definitions.extend(self.defaults.stream.iter().cloned());
        let mut definitions = self.defaults.http.clone();
        let hosts = self.model.http.values().flat_map(|listener| &listener.hosts);
        let mut used = BTreeSet::new();
        for host in hosts {
            mentions(&host.extra, &mut used);
            for location in &host.locations {
                mentions(&location.extra, &mut used);
                if let Action::Lines { lines, .. } = &location.action {
                    mentions(lines, &mut used);
                }
            }
        }
        definitions.extend(headers::definitions(&used, self.defaults));
        definitions.extend(self.definitions);
        self.model.http_definitions = definitions;
        self.model.groups = std::mem::take(&mut self.services.groups);
    }

    /// Gives groups the settings of the Ingresses that use them.
    fn group_settings(&mut self, servers: &HostServers) {
        #[derive(Default)]
        struct Found {
            affinity: Option<Affinity>,
            paths: BTreeSet<String>,
            hash_by: Option<String>,
            load_balance: Option<String>,
            source: usize,
        }
        let mut found: BTreeMap<GroupName, Found> = BTreeMap::new();
        let mut locations: Vec<&Loc> = servers.hosts.iter().flat_map(|host| &host.locations).collect();
        locations.sort_by_key(|location| location.source);
        for location in locations {
            let (Some(target), Some(source)) = (&location.target, location.source) else { continue };
            let config = &self.sources[source].config;
            let entry = found.entry(target.group.clone()).or_insert(Found { source, ..Found::default() });
            if let Some(affinity) = &config.affinity {
                entry.affinity = Some(affinity.clone());
                entry.paths.insert(location.path.clone());
            }
            entry.hash_by = entry.hash_by.take().or_else(|| config.hash_by.clone());
            entry.load_balance = entry.load_balance.take().or_else(|| config.load_balance.clone());
        }
        for (primary, (target, _)) in &servers.canaries {
            let Some(known) = found.get(primary) else { continue };
            let copy = Found {
                affinity: known.affinity.clone().filter(|affinity| affinity.is_sticky_canary),
                paths: known.paths.clone(),
                source: known.source,
                ..Found::default()
            };
            if copy.affinity.is_some() {
                let words = "affinity-canary-behavior: requests of a canary are drawn anew, as with \"legacy\"";
                self.complain(known.source, words);
            }
            found.entry(target.group.clone()).or_insert(copy);
        }
        for (group, entry) in found {
            let mut lines = Vec::new();
            match (&entry.hash_by, entry.load_balance.as_deref()) {
                (Some(key), _) => match template(key, &[]) {
                    Ok(key) => lines.push(directive("hash", [key, "consistent".into()])),
                    Err(error) => self.complain(entry.source, format!("upstream-hash-by: {error}")),
                },
                (None, Some("ewma")) => lines.push(line("least_time", &["header"])),
                (None, None | Some("round_robin")) => {}
                (None, Some(other)) => {
                    let words = format!("load-balance: \"{}\" is unknown: round_robin is used", other.escape_debug());
                    self.complain(entry.source, words);
                }
            }
            if let Some(affinity) = &entry.affinity {
                lines.push(sticky(affinity, &entry.paths));
            }
            lines.extend(self.defaults.group.iter().cloned());
            let own = self.services.with_settings(&group, lines);
            self.final_groups.insert(group, own);
        }
    }

    pub fn final_group(&self, group: &GroupName) -> GroupName {
        self.final_groups.get(group).unwrap_or(group).clone()
    }

    /// Defines the variables that draw between a group and its canary.
    fn canaries(&mut self, servers: &HostServers) {
        for (primary, (target, canary)) in &servers.canaries {
            let (primary_group, other) = (self.final_group(primary), self.final_group(&target.group));
            let [first, second] = [&primary_group, &other].map(|group| Argument::plain(group.as_str()));
            let base = self.unique(&format!("canary_{}", identifier(primary.as_str())));
            let mut last = first.clone();
            if canary.weight >= canary.weight_total {
                last = second.clone();
            } else if canary.weight > 0 {
                let name = format!("{base}_weight");
                // Hundredths of a percent.
                let share = canary.weight * 10_000 / canary.weight_total;
                let share = Argument::plain(format!("{}.{:02}%", share / 100, share % 100));
                let lines = vec![
                    NewDirective::entry(share).arg(second.clone()).into(),
                    NewDirective::new("*").arg(first.clone()).into(),
                ];
                let split = NewDirective::new("split_clients").arg("$request_id").arg(Argument::variable(&name));
                self.definitions.extend([WriteNode::Blank, split.block(lines).into()]);
                last = Argument::variable(name);
            }
            let mut choose =
                |definitions: &mut Vec<WriteNode>, input: String, name: String, yes: Argument, no: bool| {
                    let mut lines = vec![NewDirective::new("default").arg(last.clone()).into()];
                    lines.push(NewDirective::entry(yes).arg(second.clone()).into());
                    if no {
                        lines.push(NewDirective::entry(Argument::plain("~^never$")).arg(first.clone()).into());
                    }
                    let map = NewDirective::new("map").arg(Argument::variable(input)).arg(Argument::variable(&name));
                    definitions.extend([WriteNode::Blank, map.block(lines).into()]);
                    last = Argument::variable(name);
                };
            let always = || Argument::plain("~^always$");
            if let Some(cookie) = &canary.cookie {
                let input = format!("cookie_{}", cookie.replace('-', "_"));
                choose(&mut self.definitions, input, format!("{base}_cookie"), always(), true);
            }
            if let Some(header) = &canary.header {
                let input = format!("http_{}", header.to_ascii_lowercase().replace('-', "_"));
                let name = format!("{base}_header");
                match (&canary.header_value, &canary.header_pattern) {
                    (Some(value), _) => {
                        let key = Argument::plain(format!("~^{}$", quote_pattern(value)));
                        choose(&mut self.definitions, input, name, key, false);
                    }
                    (None, Some(pattern)) => {
                        let key = Argument::plain(format!("~{pattern}"));
                        choose(&mut self.definitions, input, name, key, false);
                    }
                    (None, None) => choose(&mut self.definitions, input, name, always(), true),
                }
            }
            self.targets.insert(primary.clone(), (last, vec![primary_group, other]));
        }
    }

    /// Returns a name that no other definition has.
    pub fn unique(&mut self, base: &str) -> String {
        let mut name = base.to_owned();
        for number in 2.. {
            if self.defined.insert(name.clone()) {
                break;
            }
            name = format!("{base}_{number}");
        }
        name
    }

    /// Tells whether a definition is the first one of its name.
    pub fn is_new(&mut self, name: &str) -> bool {
        self.defined.insert(name.to_owned())
    }

    /// Returns the argument of `proxy_pass` behind the scheme, and its groups.
    pub fn target(&self, target: &PathTarget) -> (Argument, Vec<GroupName>) {
        self.targets.get(&target.group).cloned().unwrap_or_else(|| {
            let group = self.final_group(&target.group);
            (Argument::plain(group.as_str()), vec![group])
        })
    }

    fn passthrough(&mut self, host: &Host) -> Option<StreamHost> {
        let root = host.locations.iter().find(|location| location.path == "/" && location.target.is_some());
        let source = host.sources.first().copied();
        let Some(root) = root else {
            if let Some(source) = source {
                self.complain(source, "ssl-passthrough needs a rule with the path /");
            }
            return None;
        };
        let group = root.target.as_ref().map(|target| target.group.clone());
        Some(StreamHost {
            origin: root.origin.clone(),
            name: host.name.clone(),
            action: StreamAction::Passthrough,
            backends: vec![Backend::new(group)],
        })
    }

    /// Adds a host and its aliases to a listener.
    fn host(&mut self, host: &Host, listener: &mut HttpListener) {
        let mut host_parts = HostParts::default();
        let mut locations = Vec::new();
        for (comparison, loc) in host.compared(self.sources) {
            let Some(path) = self.path(&comparison, &loc) else { continue };
            let (groups, lines) = self.location_lines(host, &loc, listener.is_tls, &mut host_parts);
            locations.push(Location {
                origin: loc.origin.clone(),
                path,
                conditions: Conditions::default(),
                filters: Filters::default(),
                policies: Policies::default(),
                action: Action::Lines { groups, lines },
                extra: Vec::new(),
            });
        }
        // Groups of inner locations have to be known, too.
        if let Some(Location { action: Action::Lines { groups, .. }, .. }) = locations.first_mut() {
            groups.append(&mut host_parts.groups);
        }
        let mut extra = self.server_lines(host, listener.is_tls);
        extra.extend(host_parts.inner);
        let tls = listener
            .is_tls
            .then(|| ServerTls { certificates: host.certificate.iter().cloned().collect(), client: None });
        let source = host.sources.first().map(|source| self.sources[*source].name);
        let origin = source.map_or(ObjectOrigin::new("default backend", "", ""), |name| {
            ObjectOrigin::new("Ingress", &name.namespace, &name.name)
        });
        for name in std::iter::once(&host.name).chain(&host.aliases) {
            listener.hosts.push(VirtualHost {
                origin: origin.clone(),
                name: name.clone(),
                listener: None,
                tls: tls.clone(),
                locations: locations.clone(),
                extra: extra.clone(),
            });
        }
    }

    fn path(&mut self, comparison: &PathComparison, loc: &Loc) -> Option<PathMatch> {
        match comparison {
            PathComparison::Exact(path) => Some(PathMatch::Exact(path.clone())),
            PathComparison::Elements(path) => Some(PathMatch::Prefix(path.clone())),
            PathComparison::Text(path) => Some(PathMatch::Text(path.clone())),
            PathComparison::Regex(pattern) => match cluster_model::check_pattern(pattern) {
                Ok(()) => Some(PathMatch::Regex { pattern: pattern.clone(), is_case_insensitive: true }),
                Err(error) => {
                    if let Some(source) = loc.source {
                        self.complain(source, format!("path {}: {error}", loc.path.escape_debug()));
                    }
                    None
                }
            },
        }
    }

    /// Adds servers that redirect a name with or without `www.` to the other one.
    fn www_redirects(&mut self, servers: &HostServers, listeners: &mut [(ListenSocket, HttpListener); 2]) {
        for host in &servers.hosts {
            let HostName::Exact(to) = &host.name else { continue };
            let source = host.sources.iter().find(|source| self.sources[**source].config.www_redirect);
            let Some(&source) = source else { continue };
            let from = to.strip_prefix("www.").map_or(format!("www.{to}"), str::to_owned);
            let Ok(from_name) = HostName::parse(&from) else { continue };
            let is_taken =
                |name: &HostName| servers.hosts.iter().any(|other| other.name == *name || other.aliases.contains(name));
            if is_taken(&from_name) {
                self.complain(source, format!("from-to-www-redirect: {from} is a host of its own"));
                continue;
            }
            let location = parts(&[Err("scheme"), Ok("://"), Ok(to), Ok(":"), Err("server_port"), Err("redirect_uri")]);
            let status = Argument::plain(self.defaults.redirect_status.to_string());
            let name = self.sources[source].name;
            let origin = ObjectOrigin::new("Ingress", &name.namespace, &name.name).part("from-to-www-redirect");
            for (_, listener) in listeners.iter_mut() {
                let certificate = host.certificate.clone().filter(|file| self.covers(file, &from));
                if listener.is_tls && certificate.is_none() {
                    continue;
                }
                let tls = listener
                    .is_tls
                    .then(|| ServerTls { certificates: certificate.into_iter().collect(), client: None });
                listener.hosts.push(VirtualHost {
                    origin: origin.clone(),
                    name: from_name.clone(),
                    listener: None,
                    tls,
                    locations: Vec::new(),
                    extra: vec![directive("return", [status.clone(), location.clone()])],
                });
            }
        }
    }

    fn covers(&self, file: &FileName, host: &str) -> bool {
        self.model.certificates.get(file).is_some_and(|certificate| crate::secrets::covers(certificate, host))
    }

    /// Tells whether requests in cleartext of a path are redirected.
    pub fn redirects_to_tls(&self, host: &Host, loc: &Loc, config: Option<&Config>) -> bool {
        let Some(config) = config else { return false };
        let is_exempt = self.defaults.no_redirect_paths.iter().any(|path| loc.path.starts_with(path));
        !is_exempt && (config.force_ssl_redirect || (config.ssl_redirect && host.has_tls))
    }
}

fn sticky(affinity: &Affinity, paths: &BTreeSet<String>) -> WriteNode {
    let mut line = NewDirective::new("sticky").arg("cookie").arg(Argument::plain(&affinity.name));
    let mut part = |name: &str, value: &str| line.args.push(Argument::plain(format!("{name}={value}")));
    if let Some(age) = affinity.max_age.filter(|age| *age > 0) {
        part("expires", &format!("{age}s"));
    }
    if let Some(domain) = &affinity.domain {
        part("domain", domain);
    }
    let common = paths.first().filter(|path| {
        paths.len() == 1 && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte))
    });
    part("path", affinity.path.as_deref().or(common.map(String::as_str)).unwrap_or("/"));
    if let Some(word) = &affinity.same_site {
        part("samesite", word);
    }
    line.args.push("httponly".into());
    if affinity.secure {
        line.args.push("secure".into());
    }
    line.into()
}

/// Words of the list of keys, for documents.
pub fn config_keys() -> &'static [(&'static str, &'static str)] {
    keys::CONFIG_KEYS
}
