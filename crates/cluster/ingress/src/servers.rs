//! Rules of all Ingresses, sorted by host and path: settings of the path belong to the Ingress that names it first, and
//! settings of the host to the first Ingress that has them.

use std::collections::BTreeMap;

use cluster_model::{FileName, GroupName, HostName, Model, ObjectOrigin};
use cluster_objects::{Complaint, Kind, ObjectName};

use crate::config::Canary;
use crate::hosts::{Host, HostServers, IngressSource, Loc};
use crate::secrets::{Secrets, covers};
use crate::services::{PathTarget, PortRef, Services};
use crate::settings::Settings;

/// State of the assembly.
pub(crate) struct Assembly<'a, 's> {
    pub sources: &'s [IngressSource<'a>],
    pub settings: &'s Settings,
    pub secrets: &'s Secrets<'a>,
    pub services: &'s mut Services<'a>,
    pub model: &'s mut Model,
    pub complaints: &'s mut Vec<Complaint>,
    hosts: BTreeMap<String, Host>,
    default_certificate: Option<FileName>,
}

impl<'a, 's> Assembly<'a, 's> {
    pub fn new(
        sources: &'s [IngressSource<'a>],
        settings: &'s Settings,
        secrets: &'s Secrets<'a>,
        services: &'s mut Services<'a>,
        model: &'s mut Model,
        complaints: &'s mut Vec<Complaint>,
    ) -> Assembly<'a, 's> {
        let default_certificate = settings.default_certificate.as_ref().and_then(|name| {
            let certificate = secrets.certificate(name, model);
            certificate
                .map_err(|error| {
                    let words = format!("the default certificate: {error}");
                    complaints.push(Complaint::about(Kind::Secret, &name.namespace, &name.name, words));
                })
                .ok()
        });
        Assembly {
            sources,
            settings,
            secrets,
            services,
            model,
            complaints,
            hosts: BTreeMap::new(),
            default_certificate,
        }
    }

    fn complain(&mut self, source: usize, words: impl Into<String>) {
        let name = self.sources[source].name;
        self.complaints.push(Complaint::about(Kind::Ingress, &name.namespace, &name.name, words));
    }

    pub fn run(mut self) -> HostServers {
        let catch_all = self.catch_all();
        self.hosts.insert(String::new(), catch_all);
        for index in 0..self.sources.len() {
            if self.sources[index].config.canary.is_none() {
                self.default_rule(index);
                self.host_settings(index);
            }
        }
        for index in 0..self.sources.len() {
            if self.sources[index].config.canary.is_none() {
                self.paths(index);
            }
        }
        let canaries = self.canaries();
        self.remove_taken_aliases();
        let has_catch_all = self.hosts[""].locations.iter().any(|location| !location.is_rest)
            || self.hosts[""].locations.iter().any(|location| location.target.is_some());
        // Hosts without TLS of their own, and other hosts, have the default certificate.
        for host in self.hosts.values_mut().filter(|host| host.certificate.is_none()) {
            host.certificate.clone_from(&self.default_certificate);
        }
        if !has_catch_all && self.default_certificate.is_none() {
            self.hosts.remove("");
        }
        HostServers { hosts: self.hosts.into_values().collect(), canaries }
    }

    fn catch_all(&mut self) -> Host {
        let target = self.settings.default_backend.clone().and_then(|name| {
            let target = self.services.first_port(&name);
            target
                .map_err(|error| {
                    let words = format!("the default backend: {error}");
                    self.complaints.push(Complaint::about(Kind::Service, &name.namespace, &name.name, words));
                })
                .ok()
        });
        let rest = Loc {
            path: "/".into(),
            is_exact: false,
            target,
            source: None,
            is_rest: true,
            origin: ObjectOrigin::new("default backend", "", ""),
        };
        let mut host = new_host(HostName::Any, rest);
        host.certificate.clone_from(&self.default_certificate);
        host.has_tls = host.certificate.is_some();
        host
    }

    fn origin(&self, source: usize) -> ObjectOrigin {
        let name = self.sources[source].name;
        ObjectOrigin::new("Ingress", &name.namespace, &name.name)
    }

    fn backend(&mut self, source: usize, backend: &IngressBackend) -> Result<PathTarget, String> {
        let Some(service) = &backend.service else {
            return Err("its backend is no Service".into());
        };
        let port = service.port.as_ref();
        let port = match (port.and_then(|port| port.number), port.and_then(|port| port.name.as_deref())) {
            (Some(number), _) => PortRef::Number(number),
            (None, Some("use-annotation")) => {
                return Err("the port \"use-annotation\" is one of the AWS controller".into());
            }
            (None, Some(name)) if name.contains(['$', '<', '{', '_']) => {
                return Err(format!("the port \"{}\" is a placeholder", name.escape_debug()));
            }
            (None, Some(name)) => PortRef::Name(name.to_owned()),
            (None, None) => return Err(format!("Service {}: no port is given", service.name.escape_debug())),
        };
        let namespace = &self.sources[source].name.namespace;
        let is_service = self.sources[source].config.service_upstream;
        self.services.resolve(&ObjectName::new(namespace, &service.name), &port, is_service)
    }

    /// Takes the backend of an Ingress without rules for all hosts.
    fn default_rule(&mut self, index: usize) {
        let Some(spec) = &self.sources[index].ingress.spec else { return };
        let Some(backend) = spec.default_backend.clone() else { return };
        if !spec.rules.as_ref().is_none_or(Vec::is_empty) {
            return;
        }
        match self.backend(index, &backend) {
            Err(error) => self.complain(index, format!("defaultBackend: {error}")),
            Ok(target) => {
                let origin = self.origin(index).part("defaultBackend");
                let rest = self.hosts.get_mut("").map(|host| &mut host.locations[0]);
                match rest {
                    Some(rest) if rest.is_rest && rest.source.is_none() => {
                        *rest =
                            Loc { target: Some(target), source: Some(index), is_rest: false, origin, ..rest.clone() };
                    }
                    _ => self.complain(index, "defaultBackend: another Ingress has it already"),
                }
            }
        }
    }

    /// Adds the hosts of an Ingress, and its settings of them.
    fn host_settings(&mut self, index: usize) {
        let source = &self.sources[index];
        let spec = source.ingress.spec.as_ref();
        let default_backend = spec.and_then(|spec| spec.default_backend.clone());
        for (number, rule) in spec.into_iter().flat_map(|spec| spec.rules.iter().flatten()).enumerate() {
            let text = rule.host.as_deref().unwrap_or("");
            let name = match HostName::parse(&text.to_ascii_lowercase()) {
                Ok(name) => name,
                Err(error) => {
                    self.complain(index, format!("rule {}: {error}", number + 1));
                    continue;
                }
            };
            let key = host_key(&name);
            if !self.hosts.contains_key(&key) {
                let target = default_backend.as_ref().and_then(|backend| self.backend(index, backend).ok());
                let origin = self.origin(index).part("rest of the host");
                let rest =
                    Loc { path: "/".into(), is_exact: false, target, source: Some(index), is_rest: true, origin };
                self.hosts.insert(key.clone(), new_host(name.clone(), rest));
            }
            self.apply_to_host(index, &key);
            self.certificate(index, &key, text);
        }
    }

    fn apply_to_host(&mut self, index: usize, key: &str) {
        let source = &self.sources[index];
        let Some(host) = self.hosts.get_mut(key) else { return };
        let mut words = Vec::new();
        if !host.sources.contains(&index) {
            host.sources.push(index);
        }
        if !source.config.aliases.is_empty() {
            if host.aliases.is_empty() {
                for alias in &source.config.aliases {
                    match HostName::parse(&alias.to_ascii_lowercase()) {
                        Ok(name) if name != HostName::Any => host.aliases.push(name),
                        _ => words.push(format!("server-alias: \"{}\" is left out: no name", alias.escape_debug())),
                    }
                }
            } else {
                words.push(format!("server-alias: {} has names of another Ingress", host.name));
            }
        }
        if !source.snippets.server.is_empty() {
            match host.server_snippet {
                None => host.server_snippet = Some(index),
                Some(known) if known != index => {
                    words.push(format!("server-snippet: {} has one of another Ingress", host.name));
                }
                Some(_) => {}
            }
        }
        host.is_passthrough |= source.config.ssl_passthrough;
        if source.config.ssl_passthrough && host.name == HostName::Any {
            host.is_passthrough = false;
            words.push("ssl-passthrough needs a host: clients send no other name".into());
        }
        host.ssl_ciphers = host.ssl_ciphers.take().or_else(|| source.config.ssl_ciphers.clone());
        host.prefer_server_ciphers = host.prefer_server_ciphers.or(source.config.prefer_server_ciphers);
        if host.auth_tls.is_none() && source.config.auth_tls.is_some() {
            host.auth_tls = Some(index);
        }
        for words in words {
            self.complain(index, words);
        }
    }

    /// Chooses the certificate of a host: by its name in `tls.hosts`, then by the names of the certificates.
    fn certificate(&mut self, index: usize, key: &str, host_name: &str) {
        let source = &self.sources[index];
        let tls: Vec<_> = source.ingress.spec.iter().flat_map(|spec| spec.tls.iter().flatten()).collect();
        if tls.is_empty() || self.hosts.get(key).is_none_or(|host| host.has_tls) {
            return;
        }
        let namespace = &source.name.namespace;
        let named = tls.iter().find(|entry| {
            entry.hosts.iter().flatten().any(|host| host.eq_ignore_ascii_case(host_name) && !host_name.is_empty())
        });
        let mut found = None;
        match named {
            Some(entry) => {
                if let Some(secret) = entry.secret_name.as_deref().filter(|name| !name.is_empty()) {
                    match self.secrets.certificate(&ObjectName::new(namespace, secret), self.model) {
                        Ok(file) if self.model.certificates.get(&file).is_some_and(|it| covers(it, host_name)) => {
                            found = Some(file);
                        }
                        Ok(_) => self.complain(
                            index,
                            format!("Secret {namespace}/{secret} has no certificate for {host_name}: the default one is used"),
                        ),
                        Err(error) => self.complain(index, format!("{error}: the default certificate is used")),
                    }
                }
            }
            None => {
                for secret in tls.iter().filter_map(|entry| entry.secret_name.as_deref()) {
                    let name = ObjectName::new(namespace, secret);
                    if let Ok(file) = self.secrets.certificate(&name, self.model)
                        && self.model.certificates.get(&file).is_some_and(|it| covers(it, host_name))
                    {
                        found = Some(file);
                        break;
                    }
                }
            }
        }
        let certificate = found.or_else(|| self.default_certificate.clone());
        if certificate.is_none() {
            let words =
                format!("{} is not served over TLS: no certificate, and no --default-certificate", display(host_name));
            self.complain(index, words);
        }
        if let Some(host) = self.hosts.get_mut(key) {
            host.certificate = certificate;
            host.has_tls = true;
        }
    }

    /// Adds the paths of an Ingress.
    fn paths(&mut self, index: usize) {
        let spec = self.sources[index].ingress.spec.as_ref();
        for (number, rule) in spec.into_iter().flat_map(|spec| spec.rules.iter().flatten()).enumerate() {
            let Ok(name) = HostName::parse(&rule.host.as_deref().unwrap_or("").to_ascii_lowercase()) else { continue };
            let key = host_key(&name);
            for path in rule.http.iter().flat_map(|http| &http.paths) {
                let text = path.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
                let at = format!("rule {}, path {}", number + 1, text.escape_debug());
                if !text.starts_with('/') || text.bytes().any(|byte| byte.is_ascii_control()) {
                    self.complain(index, format!("{at}: no path"));
                    continue;
                }
                if text.ends_with("/*") {
                    self.complain(index, format!("{at}: the asterisk is compared as text; write the path without it"));
                }
                let target = match self.backend(index, &path.backend) {
                    Ok(target) => Some(target),
                    Err(error) => {
                        self.complain(index, format!("{at}: {error}"));
                        None
                    }
                };
                let origin = self.origin(index).part(format!("rule {}", number + 1));
                let loc = Loc {
                    path: text.to_owned(),
                    is_exact: path.path_type == "Exact",
                    target,
                    source: Some(index),
                    is_rest: false,
                    origin,
                };
                self.add_path(index, &key, loc, &at);
            }
        }
    }

    fn add_path(&mut self, index: usize, key: &str, loc: Loc, at: &str) {
        let Some(host) = self.hosts.get_mut(key) else { return };
        let same = |other: &&mut Loc| other.path == loc.path && other.is_exact == loc.is_exact;
        let taken = match host.locations.iter_mut().find(same) {
            None => {
                host.locations.push(loc);
                None
            }
            Some(known) if known.is_rest => {
                *known = loc;
                None
            }
            Some(known) => Some(known.source),
        };
        if let Some(owner) = taken {
            let owner = owner.map_or(String::new(), |owner| format!(" of {}", self.sources[owner].name));
            self.complain(index, format!("{at}: the path is in use by a rule{owner}"));
        }
    }

    /// Gives canaries to the groups of their hosts and paths.
    fn canaries(&mut self) -> BTreeMap<GroupName, (PathTarget, Canary)> {
        let mut found: BTreeMap<GroupName, (PathTarget, Canary)> = BTreeMap::new();
        for index in 0..self.sources.len() {
            let source = &self.sources[index];
            let Some(canary) = source.config.canary.clone() else { continue };
            let spec = source.ingress.spec.as_ref();
            let rules: Vec<_> = spec.into_iter().flat_map(|spec| spec.rules.iter().flatten()).collect();
            for (number, rule) in rules.into_iter().enumerate() {
                let key = HostName::parse(&rule.host.as_deref().unwrap_or("").to_ascii_lowercase());
                let key = key.map(|name| host_key(&name)).unwrap_or_default();
                for path in rule.http.iter().flat_map(|http| &http.paths) {
                    let text = path.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
                    let at = format!("rule {}, path {}", number + 1, text.escape_debug());
                    let is_exact = path.path_type == "Exact";
                    let host = self.hosts.get(&key);
                    let primary = host.and_then(|host| {
                        let same = |other: &&Loc| other.path == text && other.is_exact == is_exact && !other.is_rest;
                        host.locations.iter().find(same)
                    });
                    let Some(primary) = primary.and_then(|location| location.target.clone()) else {
                        self.complain(index, format!("{at}: a canary without an Ingress of the same host and path"));
                        continue;
                    };
                    match self.backend(index, &path.backend) {
                        Err(error) => self.complain(index, format!("{at}: {error}")),
                        Ok(target) if target.group == primary.group => {
                            self.complain(index, format!("{at}: the canary is its own primary"));
                        }
                        Ok(target) => {
                            let known = found.entry(primary.group).or_insert_with(|| (target.clone(), canary.clone()));
                            if known.0.group != target.group {
                                self.complain(index, format!("{at}: another canary has the path already"));
                            }
                        }
                    }
                }
            }
        }
        found
    }

    fn remove_taken_aliases(&mut self) {
        let mut taken: Vec<String> = self.hosts.keys().cloned().collect();
        for host in self.hosts.values_mut() {
            host.aliases.retain(|alias| {
                let key = host_key(alias);
                let is_free = !taken.contains(&key);
                taken.push(key);
                is_free
            });
        }
    }
}

type IngressBackend = cluster_objects::types::IngressBackend;

fn new_host(name: HostName, rest: Loc) -> Host {
    Host {
        name,
        aliases: Vec::new(),
        locations: vec![rest],
        certificate: None,
        has_tls: false,
        is_passthrough: false,
        sources: Vec::new(),
        server_snippet: None,
        ssl_ciphers: None,
        prefer_server_ciphers: None,
        auth_tls: None,
    }
}

fn host_key(name: &HostName) -> String {
    match name {
        HostName::Any => String::new(),
        name => name.to_string(),
    }
}

fn display(host: &str) -> &str {
    if host.is_empty() { "the rule without a host" } else { host }
}
