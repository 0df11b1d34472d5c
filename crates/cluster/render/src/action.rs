//! Proxying and redirects.

use std::time::Duration;

use cluster_model::{
    Backend, BackendProtocol, BackendTls, Filters, Location, ModelRedirect, PathRewrite, Policies, RedirectPath, Trust,
};
use conf_syntax::writer::{Argument, NewDirective, TemplatePart, WriteNode};

use crate::skeleton::{grpc_fields, proxy_fields};
use crate::{Renderer, authority_path, certificate_path, key_path, line};

/// nginx's limit between two reads from a server, which longer limits of a route raise.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Stands for no limit.
const NO_TIMEOUT: &str = "365d";

/// Directives that proxying over HTTP and over gRPC have alike.
struct ProxyWords {
    pass: &'static str,
    schemes: [&'static str; 2],
    request_timeout: &'static str,
    try_timeout: &'static str,
    read_timeout: &'static str,
    send_timeout: &'static str,
    retry: &'static str,
    ssl: [&'static str; 8],
}

const PROXY: ProxyWords = ProxyWords {
    pass: "proxy_pass",
    schemes: ["http://", "https://"],
    request_timeout: "proxy_request_timeout",
    try_timeout: "proxy_try_timeout",
    read_timeout: "proxy_read_timeout",
    send_timeout: "proxy_send_timeout",
    retry: "proxy_retry",
    ssl: [
        "proxy_ssl_server_name",
        "proxy_ssl_name",
        "proxy_ssl_verify",
        "proxy_ssl_verify_depth",
        "proxy_ssl_trusted_certificate",
        "proxy_ssl_verify_names",
        "proxy_ssl_certificate",
        "proxy_ssl_certificate_key",
    ],
};

const GRPC: ProxyWords = ProxyWords {
    pass: "grpc_pass",
    schemes: ["grpc://", "grpcs://"],
    request_timeout: "grpc_request_timeout",
    try_timeout: "grpc_try_timeout",
    read_timeout: "grpc_read_timeout",
    send_timeout: "grpc_send_timeout",
    retry: "grpc_retry",
    ssl: [
        "grpc_ssl_server_name",
        "grpc_ssl_name",
        "grpc_ssl_verify",
        "grpc_ssl_verify_depth",
        "grpc_ssl_trusted_certificate",
        "grpc_ssl_verify_names",
        "grpc_ssl_certificate",
        "grpc_ssl_certificate_key",
    ],
};

impl Renderer<'_> {
    /// Returns the lines that send a request to `target`: a group, or a variable with the name of one.
    pub(crate) fn pass(
        &self,
        location: &Location,
        filters: &Filters,
        backend: &Backend,
        target: Argument,
    ) -> Vec<WriteNode> {
        let names = if backend.protocol == BackendProtocol::Grpc { &GRPC } else { &PROXY };
        let mut lines = policies(&location.policies, names);
        if let Some(tls) = &backend.tls {
            lines.extend(self.backend_tls(tls, &names.ssl));
        }
        let host = filters.host.as_ref().map(Argument::literal);
        match backend.protocol {
            BackendProtocol::Http1 => lines.extend(host.map(|host| proxy_fields(host, true)).unwrap_or_default()),
            BackendProtocol::Http2 => {
                lines.push(line("proxy_http_version", &["2"]));
                lines.extend(proxy_fields(host.unwrap_or_else(|| Argument::variable("http_host")), false));
            }
            BackendProtocol::Grpc => lines.extend(host.map(grpc_fields).unwrap_or_default()),
        }
        match &filters.path {
            None => {}
            Some(PathRewrite::Full(path)) => {
                let path = Argument::literal(path);
                lines.push(NewDirective::new("rewrite").arg("^").arg(path).arg("break").into());
            }
            Some(PathRewrite::Prefix(path)) => {
                let path = if path.is_empty() { "/" } else { path };
                lines.push(NewDirective::new("rewrite_prefix").arg(Argument::plain(path)).into());
            }
        }
        let scheme = names.schemes[usize::from(backend.tls.is_some())];
        let target = match target {
            Argument::Plain(group) => Argument::Plain([scheme.as_bytes(), &group].concat()),
            Argument::Template(mut parts) => {
                parts.insert(0, TemplatePart::Text(scheme.as_bytes().to_vec()));
                Argument::Template(parts)
            }
        };
        lines.push(NewDirective::new(names.pass).arg(target).into());
        lines
    }

    fn backend_tls(&self, tls: &BackendTls, names: &[&'static str; 8]) -> Vec<WriteNode> {
        let [send_name, name, verify, depth, trusted, verify_names, certificate, key] = *names;
        let mut lines =
            vec![line(send_name, &["on"]), NewDirective::new(name).arg(Argument::literal(&tls.server_name)).into()];
        let authorities = match &tls.trust {
            Trust::System => Some(self.settings.system_authorities.clone()),
            Trust::Authority(file) => Some(authority_path(file)),
            Trust::None => None,
        };
        if let Some(authorities) = authorities {
            lines.push(line(verify, &["on"]));
            lines.push(line(depth, &["4"]));
            lines.push(NewDirective::new(trusted).arg(Argument::plain(authorities)).into());
            if !tls.names.is_empty() {
                lines.push(NewDirective::new(verify_names).args(tls.names.iter().map(Argument::plain)).into());
            }
        }
        if let Some(file) = &tls.certificate {
            lines.push(NewDirective::new(certificate).arg(Argument::literal(certificate_path(file))).into());
            lines.push(NewDirective::new(key).arg(Argument::literal(key_path(file))).into());
        }
        lines
    }
}

fn policies(policies: &Policies, names: &ProxyWords) -> Vec<WriteNode> {
    let mut lines = Vec::new();
    if let Some(limit) = policies.request_timeout {
        lines.push(line(names.request_timeout, &[&time(limit)]));
    }
    if let Some(limit) = policies.try_timeout {
        lines.push(line(names.try_timeout, &[&time(limit)]));
    }
    // A longer limit of a whole request or try must not be cut by the one between two reads.
    let read = match policies.try_timeout.or(policies.request_timeout) {
        Some(Duration::ZERO) => Some(NO_TIMEOUT.to_owned()),
        Some(limit) if limit > READ_TIMEOUT => Some(time(limit)),
        _ => None,
    };
    if let Some(read) = read {
        lines.push(line(names.read_timeout, &[&read]));
        lines.push(line(names.send_timeout, &[&read]));
    }
    if let Some(retry) = &policies.retry {
        let mut directive = NewDirective::new(names.retry);
        if let Some(attempts) = retry.attempts {
            directive = directive.arg(Argument::plain(format!("attempts={attempts}")));
        }
        if !retry.statuses.is_empty() {
            let statuses: Vec<String> = retry.statuses.iter().map(u16::to_string).collect();
            directive = directive.arg(Argument::plain(format!("codes={}", statuses.join(","))));
        }
        if let Some(backoff) = retry.backoff {
            directive = directive.arg(Argument::plain(format!("backoff={}", time(backoff))));
        }
        lines.push(directive.into());
    }
    lines
}

fn time(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_millis()),
    }
}

/// Returns `redirect_to` with its parts. Its paths are encoded: a dollar sign is `%24`.
pub(crate) fn redirect_to(redirect: &ModelRedirect) -> WriteNode {
    let mut directive = NewDirective::new("redirect_to");
    let mut part = |name: &str, value: &str| {
        directive.args.push(Argument::plain(format!("{name}={}", value.replace('$', "%24"))));
    };
    if let Some(scheme) = &redirect.scheme {
        part("scheme", scheme);
    }
    if let Some(host) = &redirect.host {
        part("host", host);
    }
    if let Some(port) = redirect.port {
        part("port", &port.to_string());
    }
    match &redirect.path {
        None => {}
        Some(RedirectPath::Full(path)) => part("path", path),
        Some(RedirectPath::Prefix(path)) if path.is_empty() => part("prefix", "/"),
        Some(RedirectPath::Prefix(path)) => part("prefix", path),
    }
    part("code", &redirect.status.to_string());
    directive.into()
}
