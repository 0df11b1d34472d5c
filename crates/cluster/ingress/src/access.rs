//! Networks, authentication, limits and TLS towards backends.

use cluster_model::GroupName;
use conf_syntax::writer::{Argument, NewDirective, WriteNode};

use crate::config::{Config, ExternalAuth};
use crate::headers::LocationFields;
use crate::hosts::{Host, IngressSource, Loc};
use crate::lines::cors_lines;
use crate::nodes::identifier;
use crate::output::{HostParts, OutputState, directive, line};
use crate::template::template;
use crate::urls;

/// Returns `deny` and `allow`.
pub(crate) fn networks(config: &Config) -> Vec<WriteNode> {
    let mut lines: Vec<WriteNode> = config.deny.iter().map(|network| line("deny", &[network])).collect();
    if !config.allow.is_empty() {
        lines.extend(config.allow.iter().map(|network| line("allow", &[network])));
        lines.push(line("deny", &["all"]));
    }
    lines
}

/// Returns the directives of TLS towards the backend.
pub(crate) fn proxy_ssl(source: &IngressSource<'_>, is_grpc: bool) -> Vec<WriteNode> {
    let (Some(ssl), Some(credentials)) = (&source.config.proxy_ssl, &source.files.proxy_ssl) else { return Vec::new() };
    let mut lines = Vec::new();
    if let Some(authority) = &credentials.authority {
        lines.push(directive("proxy_ssl_trusted_certificate", [Argument::plain(authority.authority_path())]));
        lines.push(line("proxy_ssl_ciphers", &[&ssl.ciphers]));
        lines.push(line("proxy_ssl_protocols", &ssl.protocols.split_whitespace().collect::<Vec<_>>()));
        lines.push(line("proxy_ssl_verify", &[&ssl.verify]));
        lines.push(line("proxy_ssl_verify_depth", &[&ssl.depth.to_string()]));
    }
    if let Some(name) = &ssl.name {
        lines.push(line("proxy_ssl_name", &[name]));
    }
    lines.push(line("proxy_ssl_server_name", &[&ssl.server_name]));
    if let Some(certificate) = &credentials.certificate {
        lines.push(directive("proxy_ssl_certificate", [Argument::literal(certificate.certificate_path())]));
        lines.push(directive("proxy_ssl_certificate_key", [Argument::literal(certificate.key_path())]));
    }
    if is_grpc {
        for node in &mut lines {
            if let WriteNode::Directive(it) = node {
                let name = String::from_utf8_lossy(&it.name.bytes()).replacen("proxy_", "grpc_", 1);
                it.name = Argument::plain(name);
            }
        }
    }
    lines
}

impl OutputState<'_, '_> {
    /// Returns the lines that protect a location.
    ///
    /// # Errors
    /// If the protection cannot be set up.
    pub(crate) fn authentication(
        &mut self,
        host: &Host,
        loc: &Loc,
        source: usize,
        host_parts: &mut HostParts,
        fields: &mut LocationFields,
    ) -> Result<(Vec<WriteNode>, Vec<GroupName>), String> {
        let sources = self.sources;
        let owner = &sources[source];
        let mut lines = Vec::new();
        let mut groups = Vec::new();
        let global = self.defaults.global_auth.as_ref().filter(|_| owner.config.global_auth);
        if let Some(auth) = owner.config.external_auth.as_ref().or(global) {
            let (external, used) = self.external(host, loc, source, auth, host_parts, fields)?;
            lines.extend(external);
            groups.extend(used);
        }
        if let (Some(auth), Some(users)) = (&owner.config.auth, &owner.files.users) {
            lines.push(directive("auth_basic", [Argument::literal(&auth.realm)]));
            lines.push(directive("auth_basic_user_file", [Argument::literal(users.password_path())]));
            fields.more.push(("Authorization".into(), Argument::plain("")));
        }
        Ok((lines, groups))
    }

    fn external(
        &mut self,
        host: &Host,
        loc: &Loc,
        source: usize,
        auth: &ExternalAuth,
        host_parts: &mut HostParts,
        fields: &mut LocationFields,
    ) -> Result<(Vec<WriteNode>, Vec<GroupName>), String> {
        let sources = self.sources;
        let owner = &sources[source];
        let variables = crate::snippets::variables(&owner.snippets.auth);
        let mut own = variables.clone();
        own.extend(crate::snippets::variables(&owner.snippets.location));
        let position = host.locations.iter().position(|other| other.path == loc.path && other.is_exact == loc.is_exact);
        let number = position.unwrap_or(0);
        let uri = format!("/_external-auth-{number}");
        let way = urls::way(&auth.url, "auth_target", &own, self.settings.has_resolver, self.services)
            .map_err(|error| format!("auth-url: {error}"))?;
        let mut inner = vec![line("internal", &[]), line("access_log", &["off"])];
        if let Some(key) = &auth.cache_key {
            let key = template(&format!("{}{uri}{key}", host.name), &own)
                .map_err(|error| format!("auth-cache-key: {error}"))?;
            if self.is_new("auth_cache") {
                let path = [
                    "/tmp/tidegate-auth-cache",
                    "levels=1:2",
                    "keys_zone=auth_cache:10m",
                    "max_size=128m",
                    "inactive=30m",
                    "use_temp_path=off",
                ];
                self.definitions.push(line("proxy_cache_path", &path));
            }
            inner.push(line("proxy_cache", &["auth_cache"]));
            for duration in &auth.cache_durations {
                inner.push(line("proxy_cache_valid", &duration.split_whitespace().collect::<Vec<_>>()));
            }
            inner.push(directive("proxy_cache_key", [key]));
            inner.push(line("proxy_buffering", &["on"]));
        }
        inner.push(line("proxy_intercept_errors", &["off"]));
        inner.push(line("proxy_pass_request_body", &["off"]));
        let set = |name: &str, value: Argument| directive("proxy_set_header", [Argument::plain(name), value]);
        inner.push(set("Content-Length", "".into()));
        inner.push(set("X-Forwarded-Proto", "".into()));
        inner.push(set("X-Request-ID", "$req_id".into()));
        if let Some(method) = &auth.method {
            inner.push(line("proxy_method", &[method]));
            inner.push(set("X-Original-URI", "$request_uri".into()));
            inner.push(set("X-Scheme", Argument::variable(self.scheme())));
        }
        let name = template(&way.host, &own).map_err(|error| format!("auth-url: {error}"))?;
        inner.push(set("Host", name));
        inner.push(set("X-Original-URL", "$scheme://$http_host$request_uri".into()));
        inner.push(set("X-Original-Method", "$request_method".into()));
        inner.push(set("X-Sent-From", "nginx-ingress-controller".into()));
        inner.push(set("X-Real-IP", "$remote_addr".into()));
        inner.push(set("X-Forwarded-For", "$remote_addr".into()));
        let redirect = auth.request_redirect.as_ref().map(|value| template(value, &own)).transpose();
        let redirect = redirect.map_err(|error| format!("auth-request-redirect: {error}"))?;
        inner.push(set("X-Auth-Request-Redirect", redirect.unwrap_or_else(|| "$request_uri".into())));
        inner.extend(self.host_fields(host).client);
        for (name, value) in &owner.files.auth_fields {
            let value = template(value, &own).map_err(|error| format!("auth-proxy-set-headers: {error}"))?;
            inner.push(set(name, value));
        }
        inner.extend(owner.snippets.auth.iter().cloned());
        if owner.snippets.auth.iter().any(is_request_set) {
            let words = "auth-snippet: auth_request_set has no effect in the location of auth-url: write it in configuration-snippet";
            self.complain(source, words);
        }
        inner.extend(way.lines);
        if host_parts.names.insert(uri.clone()) {
            host_parts.inner.extend(self.inner_location(
                &owner.origin("auth-url"),
                &["="],
                Argument::plain(&uri),
                inner,
            ));
        }
        let mut lines = vec![
            line("auth_request", &[&uri]),
            line("auth_request_set", &["$auth_cookie", "$upstream_http_set_cookie"]),
        ];
        let always: &[&str] = if auth.always_set_cookie { &["always"] } else { &[] };
        lines.push(line("add_header", &[&["Set-Cookie", "$auth_cookie"], always].concat()));
        for (index, name) in auth.response_headers.iter().enumerate() {
            let variable = format!("auth_header_{index}");
            let header = format!("upstream_http_{}", name.to_ascii_lowercase().replace('-', "_"));
            lines.push(directive("auth_request_set", [Argument::variable(&variable), Argument::variable(header)]));
            fields.more.push((name.clone(), Argument::variable(variable)));
        }
        if let Some(signin) = &auth.signin {
            lines.extend(self.signin(number, source, auth, signin, &own, host_parts)?);
        }
        Ok((lines, way.group.into_iter().collect()))
    }

    fn signin(
        &mut self,
        number: usize,
        source: usize,
        auth: &ExternalAuth,
        signin: &str,
        own: &[String],
        host_parts: &mut HostParts,
    ) -> Result<Vec<WriteNode>, String> {
        let parameter = auth.redirect_param.as_deref().unwrap_or("rd");
        let query = signin.split_once('?').map(|(_, query)| query);
        let names = |query: &str| query.split('&').any(|pair| pair.split('=').next() == Some(parameter));
        let back = format!("{parameter}=${}://$http_host$escaped_request_uri", self.scheme());
        let url = match query {
            None => format!("{signin}?{back}"),
            Some(query) if names(query) => signin.to_owned(),
            Some(_) => format!("{signin}&{back}"),
        };
        let url = template(&url, own).map_err(|error| format!("auth-signin: {error}"))?;
        let name = format!("@signin-{number}");
        if host_parts.names.insert(name.clone()) {
            let mut inner = vec![line("internal", &[]), line("add_header", &["Set-Cookie", "$auth_cookie"])];
            if let Some(cors) = &self.sources[source].config.cors {
                inner.extend(cors_lines(cors));
            }
            inner.push(directive("return", ["302".into(), url]));
            let origin = self.sources[source].origin("auth-signin");
            host_parts.inner.extend(self.inner_location(&origin, &[], Argument::plain(&name), inner));
        }
        Ok(vec![
            line("set_escape_uri", &["$escaped_request_uri", "$request_uri"]),
            directive("error_page", ["401", "=", &name].map(Argument::plain)),
        ])
    }

    /// Returns the limits of a location. Zones belong to the Ingress: its paths count together.
    pub(crate) fn limits(&mut self, source: usize) -> Vec<WriteNode> {
        let sources = self.sources;
        let owner = &sources[source];
        let limits = &owner.config.limits;
        let mut lines = Vec::new();
        let base = format!("{}_{}", owner.name.namespace, owner.name.name);
        let is_limited = limits.rps > 0 || limits.rpm > 0 || limits.connections > 0;
        if is_limited && self.is_new(&format!("limits {base}")) {
            let mut key = self.defaults.limit_key.clone();
            let mut nodes = vec![WriteNode::Blank, WriteNode::Comment(format!("Ingress {}", owner.name))];
            if !limits.allow.is_empty() {
                let end = identifier(&base);
                let (allowed, limited) = (self.unique(&format!("allow_{end}")), self.unique(&format!("limit_{end}")));
                let mut entries = vec![line("default", &["0"])];
                entries.extend(
                    limits
                        .allow
                        .iter()
                        .map(|network| WriteNode::from(NewDirective::entry(Argument::plain(network)).arg("1"))),
                );
                let geo = NewDirective::new("geo").arg("$remote_addr").arg(Argument::variable(&allowed));
                nodes.push(geo.block(entries).into());
                let entries = vec![
                    NewDirective::entry("0".into()).arg(key).into(),
                    NewDirective::entry("1".into()).arg("").into(),
                ];
                let map = NewDirective::new("map").arg(Argument::variable(allowed)).arg(Argument::variable(&limited));
                nodes.push(map.block(entries).into());
                key = Argument::variable(limited);
            }
            let zone = |kind: &str| Argument::plain(format!("zone={base}_{kind}:5m"));
            if limits.connections > 0 {
                nodes.push(directive("limit_conn_zone", [key.clone(), zone("conn")]));
            }
            for (kind, unit, count) in [("rps", "s", limits.rps), ("rpm", "m", limits.rpm)] {
                if count > 0 {
                    let rate = Argument::plain(format!("rate={count}r/{unit}"));
                    nodes.push(directive("limit_req_zone", [key.clone(), zone(kind), rate]));
                }
            }
            self.definitions.extend(nodes);
        }
        if limits.connections > 0 {
            lines.push(line("limit_conn", &[&format!("{base}_conn"), &limits.connections.to_string()]));
        }
        for (kind, count) in [("rps", limits.rps), ("rpm", limits.rpm)] {
            if count > 0 {
                let burst = format!("burst={}", count.saturating_mul(limits.burst_multiplier));
                lines.push(line("limit_req", &[&format!("zone={base}_{kind}"), &burst, "nodelay"]));
            }
        }
        if limits.rate_after > 0 {
            lines.push(line("limit_rate_after", &[&format!("{}k", limits.rate_after)]));
        }
        if limits.rate > 0 {
            lines.push(line("limit_rate", &[&format!("{}k", limits.rate)]));
        }
        lines
    }
}

fn is_request_set(node: &WriteNode) -> bool {
    matches!(node, WriteNode::Directive(it) if it.name == Argument::plain("auth_request_set"))
}
