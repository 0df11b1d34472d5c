//! Lines of hosts and of their locations, in the order of ingress-nginx's template.

use std::collections::BTreeSet;

use cluster_model::{GroupName, ObjectOrigin};
use conf_syntax::writer::{Argument, NewDirective, TemplatePart, WriteNode};

use crate::access;
use crate::config::{BackendProtocol, Config};
use crate::headers::{self, LocationFields};
use crate::hosts::{Host, Loc};
use crate::lines::{FASTCGI_PARAMS, cors_lines, proxy_lines, redirect_words, with_scheme};
use crate::nodes::{mentions, without_repeated};
use crate::output::{HostParts, OutputState, directive, line};
use crate::template::{parts, template};
use crate::urls;

impl OutputState<'_, '_> {
    /// Returns the directives of a server in front of its locations.
    pub(crate) fn server_lines(&mut self, host: &Host, is_tls: bool) -> Vec<WriteNode> {
        let mut lines = Vec::new();
        if !self.defaults.server.is_empty() {
            lines.extend(self.config_map_comment());
            lines.extend(self.defaults.server.iter().cloned());
            lines.push(WriteNode::Blank);
        }
        if is_tls {
            lines.extend(self.defaults.tls_server.iter().cloned());
            if let Some(ciphers) = &host.ssl_ciphers {
                lines.push(directive("ssl_ciphers", [Argument::plain(ciphers)]));
            }
            if let Some(prefers) = host.prefer_server_ciphers {
                lines.push(line("ssl_prefer_server_ciphers", &[if prefers { "on" } else { "off" }]));
            }
            if let Some(hsts) = self.defaults.hsts.as_ref().filter(|_| host.has_tls) {
                let field = Argument::plain(format!("Strict-Transport-Security: {hsts}"));
                lines.push(directive("more_set_headers", [field]));
            }
        }
        lines.push(line("port_in_redirect", &["off"]));
        lines.extend(proxy_lines(&self.defaults.proxy, None, false));
        let words = redirect_words(&self.defaults.proxy);
        if words != ["default"] {
            lines.push(line("proxy_redirect", &words));
        }
        lines.extend(headers::fields("proxy_set_header", self.defaults, &self.host_fields(host)));
        if let Some(source) = host.auth_tls {
            lines.extend(self.client_verification(source, is_tls));
        }
        if let Some(source) = host.server_snippet {
            let snippet = &self.sources[source].snippets.server;
            without_repeated(&mut lines, snippet);
            // The host may be another Ingress's.
            lines.push(WriteNode::Comment(self.sources[source].origin("server-snippet").to_string()));
            lines.extend(snippet.iter().cloned());
            lines.push(WriteNode::Blank);
        }
        let mut roots = BTreeSet::new();
        for source in &host.sources {
            let Some(root) = &self.sources[*source].config.app_root else { continue };
            if roots.insert(root) {
                let scheme = self.scheme();
                let host = self.host_variable();
                let location = parts(&[Err(scheme), Ok("://"), Err(host), Ok(root)]);
                let answer = directive("return", ["302".into(), location]);
                lines.push(
                    NewDirective::new("if").args(["($uri", "=", "/)"].map(Argument::plain)).block(vec![answer]).into(),
                );
            }
        }
        lines
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.defaults.uses_forwarded_headers { "pass_access_scheme" } else { "scheme" }
    }

    pub(crate) fn host_variable(&self) -> &'static str {
        if self.defaults.uses_forwarded_headers { "best_http_host" } else { "http_host" }
    }

    /// Returns the fields that all locations of a host have.
    pub(crate) fn host_fields(&self, host: &Host) -> LocationFields {
        let Some(source) = host.auth_tls else { return LocationFields::default() };
        let source = &self.sources[source];
        let Some(Ok(credentials)) = &source.files.auth_tls else { return LocationFields::default() };
        if credentials.authority.is_none() {
            return LocationFields::default();
        }
        let passes = source.config.auth_tls.as_ref().is_some_and(|tls| tls.passes_certificate);
        let mut client = Vec::new();
        if passes {
            client.push(("ssl-client-cert", "$ssl_client_escaped_cert"));
        }
        client.extend([
            ("ssl-client-verify", "$ssl_client_verify"),
            ("ssl-client-subject-dn", "$ssl_client_s_dn"),
            ("ssl-client-issuer-dn", "$ssl_client_i_dn"),
        ]);
        let client = client.into_iter().map(|(name, value)| line("proxy_set_header", &[name, value])).collect();
        LocationFields { client, ..LocationFields::default() }
    }

    fn client_verification(&mut self, source: usize, is_tls: bool) -> Vec<WriteNode> {
        let owner = &self.sources[source];
        let Some(tls) = &owner.config.auth_tls else { return Vec::new() };
        let authority = match &owner.files.auth_tls {
            Some(Ok(credentials)) => credentials.authority.clone(),
            Some(Err(error)) => {
                let words = format!("auth-tls-secret: {error}: the host answers 403");
                self.complain(source, words);
                return vec![line("return", &["403"])];
            }
            None => None,
        };
        let Some(authority) = authority else {
            self.complain(source, "auth-tls-secret: the Secret has no ca.crt: the host answers 403");
            return vec![line("return", &["403"])];
        };
        let mut lines = Vec::new();
        if let Some(pattern) = &tls.match_cn {
            let test = [Argument::plain("($ssl_client_s_dn"), "!~".into(), Argument::plain(format!("{pattern})"))];
            let answer = directive("return", ["403".into(), "client certificate unauthorized".into()]);
            lines.push(NewDirective::new("if").args(test).block(vec![answer]).into());
        }
        if is_tls {
            lines.push(directive("ssl_client_certificate", [Argument::plain(authority.authority_path())]));
            lines.push(line("ssl_verify_client", &[&tls.verify]));
            lines.push(line("ssl_verify_depth", &[&tls.depth.to_string()]));
            if let Some(page) = &tls.error_page {
                lines.push(directive("error_page", ["495", "496", "=", page].map(Argument::plain)));
            }
        }
        lines
    }

    /// Returns the lines of a location, and the groups that they name.
    pub(crate) fn location_lines(
        &mut self,
        host: &Host,
        loc: &Loc,
        is_tls: bool,
        host_parts: &mut HostParts,
    ) -> (Vec<GroupName>, Vec<WriteNode>) {
        let Some(source) = loc.source else {
            return self.pass_to_default(loc);
        };
        let sources = self.sources;
        let owner = &sources[source];
        let config = &owner.config;
        if let Some(reason) = &config.denied {
            self.complain(source, format!("{reason}: its paths answer 503"));
            return (Vec::new(), vec![line("return", &["503"])]);
        }
        let redirects = self.redirects_to_tls(host, loc, Some(config));
        let always_redirects = redirects && !is_tls && !self.defaults.uses_forwarded_headers;
        let mut lines = Vec::new();
        if !config.access_log {
            lines.push(line("access_log", &["off"]));
        }
        if config.rewrite_log {
            lines.push(line("rewrite_log", &["on"]));
        }
        if config.relative_redirects {
            lines.push(line("absolute_redirect", &["off"]));
        }
        if let Some(cors) = &config.cors {
            lines.extend(cors_lines(cors));
        }
        for (name, value) in &owner.files.response_fields {
            lines.push(directive("more_set_headers", [Argument::literal(format!("{name}: {value}"))]));
        }
        lines.extend(self.firewall_lines(source));
        let ending = self.redirect_lines(config, redirects, always_redirects);
        if always_redirects || config.redirect.is_some() {
            lines.extend(owner.snippets.location.iter().cloned());
            lines.extend(self.default_snippet(loc));
            lines.extend(ending);
            return (Vec::new(), self.with_variables(loc, lines));
        }
        lines.extend(ending);
        if config.port_in_redirects {
            lines.push(line("port_in_redirect", &["on"]));
        }
        let mut groups = Vec::new();
        let mut fields = self.host_fields(host);
        let is_open = self.defaults.no_auth_paths.iter().any(|path| loc.path.starts_with(path));
        lines.extend(access::networks(config));
        if let Some(satisfy) = &config.satisfy {
            lines.push(line("satisfy", &[satisfy]));
        }
        if !is_open {
            match self.authentication(host, loc, source, host_parts, &mut fields) {
                Ok((auth, used)) => {
                    lines.extend(auth);
                    groups.extend(used);
                }
                Err(reason) => {
                    self.complain(source, format!("{reason}: its paths answer 503"));
                    return (Vec::new(), vec![line("return", &["503"])]);
                }
            }
        }
        lines.extend(self.limits(source));
        lines.extend(self.mirror(source, host_parts));
        lines.extend(proxy_lines(&config.proxy, Some(&self.defaults.proxy), config.protocol.is_grpc()));
        lines.extend(self.custom_errors(source, host_parts));
        let snippet = &owner.snippets.location;
        without_repeated(&mut lines, snippet);
        lines.extend(self.pass(loc, source, fields, &mut groups));
        (groups, self.with_variables(loc, lines))
    }

    /// Returns the comment of lines that come from the ConfigMap of the controller.
    fn config_map_comment(&self) -> Option<WriteNode> {
        let name = self.settings.config_map.as_ref()?;
        Some(WriteNode::Comment(ObjectOrigin::new("ConfigMap", &name.namespace, &name.name).to_string()))
    }

    /// Returns the snippet that all locations have, between comments of the ConfigMap and of the location's own object.
    fn default_snippet(&self, loc: &Loc) -> Vec<WriteNode> {
        if self.defaults.location.is_empty() {
            return Vec::new();
        }
        let mut lines: Vec<WriteNode> = self.config_map_comment().into_iter().collect();
        lines.extend(self.defaults.location.iter().cloned());
        lines.push(WriteNode::Comment(loc.origin.to_string()));
        lines
    }

    fn redirect_lines(&self, config: &Config, redirects: bool, is_certain: bool) -> Vec<WriteNode> {
        let mut lines = Vec::new();
        if let Some((status, url)) = &config.redirect {
            lines.push(directive("return", [Argument::plain(status.to_string()), Argument::literal(url)]));
        } else if redirects && (is_certain || self.defaults.uses_forwarded_headers) {
            let uri = if config.preserve_trailing_slash { "request_uri" } else { "redirect_uri" };
            let location = parts(&[Ok("https://"), Err("host"), Err(uri)]);
            let status = Argument::plain(self.defaults.redirect_status.to_string());
            let answer = directive("return", [status, location]);
            if is_certain {
                lines.push(answer);
            } else {
                let test = ["($pass_access_scheme", "=", "http)"].map(Argument::plain);
                lines.push(NewDirective::new("if").args(test).block(vec![answer]).into());
            }
        }
        lines
    }

    /// Sets the variables of ingress-nginx that lines of snippets use.
    fn with_variables(&self, loc: &Loc, lines: Vec<WriteNode>) -> Vec<WriteNode> {
        let mut used = BTreeSet::new();
        mentions(&lines, &mut used);
        let service = loc.target.as_ref().map_or("", |target| target.service.name.as_str());
        let port = loc.target.as_ref().map_or("", |target| target.port.as_str());
        let values = [
            ("namespace", loc.origin.namespace.as_str()),
            ("ingress_name", loc.origin.name.as_str()),
            ("service_name", service),
            ("service_port", port),
            ("location_path", loc.path.as_str()),
        ];
        let mut all = Vec::new();
        for (name, value) in values {
            if used.contains(name) {
                all.push(directive("set", [Argument::variable(name), Argument::literal(value)]));
            }
        }
        let is_set =
            |node: &WriteNode| matches!(node, WriteNode::Directive(it) if it.name == Argument::plain("set_escape_uri"));
        if used.contains("escaped_request_uri") && !lines.iter().any(is_set) {
            all.push(line("set_escape_uri", &["$escaped_request_uri", "$request_uri"]));
        }
        all.extend(lines);
        all
    }

    fn pass_to_default(&mut self, loc: &Loc) -> (Vec<GroupName>, Vec<WriteNode>) {
        let Some(target) = &loc.target else {
            return (Vec::new(), vec![line("access_log", &["off"]), line("return", &["404"])]);
        };
        let (argument, groups) = self.target(target);
        (groups, vec![line("access_log", &["off"]), directive("proxy_pass", [with_scheme("http://", argument)])])
    }

    /// Returns the lines that pass requests to the backend.
    fn pass(
        &mut self,
        loc: &Loc,
        source: usize,
        mut fields: LocationFields,
        groups: &mut Vec<GroupName>,
    ) -> Vec<WriteNode> {
        let sources = self.sources;
        let owner = &sources[source];
        let config = &owner.config;
        let mut lines = Vec::new();
        let mut variables = crate::snippets::variables(&owner.snippets.location);
        variables.extend(crate::snippets::variables(&owner.snippets.auth));
        let evaluated = |output: &mut Self, name: &str, value: &Option<String>| {
            let value = value.as_ref()?;
            template(value, &variables).map_err(|error| output.complain(source, format!("{name}: {error}"))).ok()
        };
        if let Some(vhost) = evaluated(self, "upstream-vhost", &config.upstream_vhost) {
            fields.host = Some(vhost);
        }
        fields.connection = config.connection_header.as_ref().map(Argument::plain);
        // A rewritten request would skip the answer of a path without a backend.
        let rewrites = loc.needs_rewrite(self.sources) && loc.target.is_some();
        let rewrite = evaluated(self, "rewrite-target", &config.rewrite_target).filter(|_| rewrites);
        if let (Some(prefix), true) = (&config.forwarded_prefix, rewrite.is_some()) {
            fields.more.push(("X-Forwarded-Prefix".into(), Argument::literal(prefix)));
        }
        if let Some(target) = rewrite {
            // A capture of the regular expression; data could not be one.
            let pattern = Argument::plain(format!("(?i){}", loc.path));
            lines.push(directive("rewrite", [pattern, target, "break".into()]));
        }
        let snippet_sets_fields = {
            let is_setter = |node: &WriteNode| matches!(node, WriteNode::Directive(it) if it.name == Argument::plain("proxy_set_header"));
            owner.snippets.location.iter().chain(&self.defaults.location).any(is_setter)
        };
        let is_grpc = config.protocol.is_grpc();
        let differs = fields.host.is_some() || fields.connection.is_some() || !fields.more.is_empty();
        if is_grpc {
            for node in &mut fields.client {
                if let WriteNode::Directive(it) = node {
                    it.name = Argument::plain("grpc_set_header");
                }
            }
            lines.extend(headers::fields("grpc_set_header", self.defaults, &fields));
        } else if differs || snippet_sets_fields {
            lines.extend(headers::fields("proxy_set_header", self.defaults, &fields));
        }
        let snippet = [owner.snippets.location.clone(), self.default_snippet(loc)].concat();
        without_repeated(&mut lines, &snippet);
        lines.extend(snippet.iter().cloned());
        let head = std::mem::take(&mut lines);
        lines.extend(access::proxy_ssl(owner, is_grpc));
        let Some(target) = &loc.target else {
            // No rule takes the path, or its Service does not exist.
            return [head, vec![line("return", &[if loc.is_rest { "404" } else { "503" }])]].concat();
        };
        let mut target = target.clone();
        if target.is_empty
            && let Some(name) = &config.default_backend
        {
            let name = cluster_objects::ObjectName::new(&owner.name.namespace, name);
            match self.services.first_port(&name) {
                Ok(other) if !other.is_empty => {
                    target = other;
                    if !differs && !snippet_sets_fields && !is_grpc {
                        lines.extend(headers::fields("proxy_set_header", self.defaults, &fields));
                    }
                    lines.push(line("proxy_set_header", &["X-Code", "503"]));
                    lines.push(line("proxy_set_header", &["X-Format", "$http_accept"]));
                }
                Ok(_) => {}
                Err(error) => self.complain(source, format!("default-backend: {error}")),
            }
        }
        let (argument, used) = self.target(&target);
        groups.extend(used);
        let (name, scheme) = match config.protocol {
            BackendProtocol::Http => ("proxy_pass", Ok("http://")),
            BackendProtocol::Https => ("proxy_pass", Ok("https://")),
            BackendProtocol::AutoHttp => ("proxy_pass", Err("scheme")),
            BackendProtocol::Grpc => ("grpc_pass", Ok("grpc://")),
            BackendProtocol::Grpcs => ("grpc_pass", Ok("grpcs://")),
            BackendProtocol::Fcgi => ("fastcgi_pass", Ok("")),
        };
        if config.protocol == BackendProtocol::Fcgi {
            lines.extend(FASTCGI_PARAMS.iter().map(|(name, value)| line("fastcgi_param", &[name, value])));
            if let Some(index) = &config.fastcgi_index {
                lines.push(directive("fastcgi_index", [Argument::literal(index)]));
            }
            for (name, value) in &owner.files.fastcgi_params {
                match template(value, &variables) {
                    Ok(value) => lines.push(directive("fastcgi_param", [Argument::plain(name), value])),
                    Err(error) => self.complain(source, format!("fastcgi-params-configmap: {error}")),
                }
            }
        }
        let argument = match scheme {
            Ok(scheme) => with_scheme(scheme, argument),
            Err(variable) => {
                let mut parts = vec![TemplatePart::Variable(variable.into()), TemplatePart::Text(b"://".to_vec())];
                match argument {
                    Argument::Plain(group) => parts.push(TemplatePart::Text(group)),
                    Argument::Template(inner) => parts.extend(inner),
                }
                Argument::Template(parts)
            }
        };
        let has_variables = matches!(argument, Argument::Template(_));
        lines.push(directive(name, [argument]));
        let words = redirect_words(&config.proxy);
        if name == "proxy_pass" && words != redirect_words(&self.defaults.proxy) {
            if words == ["default"] && has_variables {
                self.complain(source, "proxy-redirect-from: \"default\" has no effect with a canary or AUTO_HTTP");
            } else {
                lines.push(line("proxy_redirect", &words));
            }
        }
        without_repeated(&mut lines, &snippet);
        [head, lines].concat()
    }

    fn mirror(&mut self, source: usize, host_parts: &mut HostParts) -> Vec<WriteNode> {
        let Some(mirror) = &self.sources[source].config.mirror else { return Vec::new() };
        let uri = format!("/_mirror-{source}");
        let body = if mirror.sends_body { "on" } else { "off" };
        if host_parts.names.insert(uri.clone()) {
            let has_resolver = self.settings.has_resolver;
            match urls::way(&mirror.target, "mirror_target", &[], has_resolver, self.services) {
                Err(error) => {
                    self.complain(source, format!("mirror-target: {error}"));
                    return Vec::new();
                }
                Ok(way) => {
                    let name = mirror.host.as_deref().unwrap_or(&way.host);
                    let mut lines = vec![line("internal", &[])];
                    match template(name, &[]) {
                        Ok(name) => lines.push(directive("proxy_set_header", ["Host".into(), name])),
                        Err(error) => self.complain(source, format!("mirror-host: {error}")),
                    }
                    lines.extend(way.lines);
                    host_parts.groups.extend(way.group);
                    let origin = self.sources[source].origin("mirror-target");
                    host_parts.inner.extend(self.inner_location(&origin, &["="], Argument::plain(&uri), lines));
                }
            }
        }
        vec![line("mirror", &[&uri]), line("mirror_request_body", &[body])]
    }

    /// Passes statuses of the backend to another one.
    fn custom_errors(&mut self, source: usize, host_parts: &mut HostParts) -> Vec<WriteNode> {
        let owner = &self.sources[source];
        let config = &owner.config;
        if config.custom_errors.is_empty() {
            return Vec::new();
        }
        let namespace = &owner.name.namespace;
        let name = config.default_backend.as_ref().map(|name| cluster_objects::ObjectName::new(namespace, name));
        let Some(name) = name.or_else(|| self.settings.default_backend.clone()) else {
            self.complain(source, "custom-http-errors needs default-backend");
            return Vec::new();
        };
        let target = match self.services.first_port(&name) {
            Ok(target) => target,
            Err(error) => {
                self.complain(source, format!("default-backend: {error}"));
                return Vec::new();
            }
        };
        let group = self.final_group(&target.group);
        let mut lines = Vec::new();
        if config.intercepts_errors {
            lines.push(line("proxy_intercept_errors", &["on"]));
        }
        for status in &config.custom_errors {
            let status = status.to_string();
            let name = format!("@custom_{group}_{status}");
            lines.push(directive("error_page", [&status, "=", &name].map(Argument::plain)));
            if !host_parts.names.insert(name.clone()) {
                continue;
            }
            host_parts.groups.push(group.clone());
            let inner = vec![
                line("internal", &[]),
                line("proxy_intercept_errors", &["off"]),
                line("proxy_set_header", &["X-Code", &status]),
                line("proxy_set_header", &["X-Format", "$http_accept"]),
                line("proxy_set_header", &["X-Original-URI", "$request_uri"]),
                directive("proxy_set_header", ["X-Namespace".into(), Argument::literal(namespace)]),
                directive("proxy_set_header", ["X-Ingress-Name".into(), Argument::literal(&owner.name.name)]),
                line("proxy_set_header", &["X-Request-ID", "$req_id"]),
                line("proxy_set_header", &["X-Forwarded-For", "$remote_addr"]),
                line("proxy_set_header", &["Host", "$http_host"]),
                line("rewrite", &["(.*)", "/", "break"]),
                directive("proxy_pass", [Argument::plain(format!("http://{group}"))]),
            ];
            let origin = owner.origin("custom-http-errors");
            host_parts.inner.extend(self.inner_location(&origin, &[], Argument::plain(name), inner));
        }
        lines
    }
}
