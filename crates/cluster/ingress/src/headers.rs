//! Header fields towards backends, and the variables of ingress-nginx's configuration.

use std::collections::BTreeSet;

use conf_syntax::writer::{Argument, NewDirective, WriteNode};

use crate::output::{directive, line};
use crate::settings::Defaults;

/// Fields of a location that differ from those of the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocationFields {
    pub host: Option<Argument>,
    pub connection: Option<Argument>,
    /// Fields of the host's verification of clients.
    pub client: Vec<WriteNode>,
    pub more: Vec<(String, Argument)>,
}

/// Returns the fields towards a backend.
pub(crate) fn fields(name: &'static str, defaults: &Defaults, fields: &LocationFields) -> Vec<WriteNode> {
    let forwards = defaults.uses_forwarded_headers;
    let scheme = if forwards { "$pass_access_scheme" } else { "$scheme" };
    let host = if forwards { "$best_http_host" } else { "$http_host" };
    let port = if forwards { "$pass_port" } else { "$server_port" };
    let original = format!("$http_{}", defaults.forwarded_for.to_ascii_lowercase().replace('-', "_"));
    let own_host = fields.host.clone().unwrap_or_else(|| host.into());
    let connection = fields.connection.clone().unwrap_or_else(|| "$connection_upgrade".into());
    let mut nodes = vec![directive(name, ["Host".into(), own_host])];
    nodes.extend(fields.client.iter().cloned());
    nodes.push(line(name, &["Upgrade", "$http_upgrade"]));
    nodes.push(directive(name, ["Connection".into(), connection]));
    for (field, value) in [
        ("X-Request-ID", "$req_id"),
        ("X-Real-IP", "$remote_addr"),
        ("X-Forwarded-For", "$remote_addr"),
        ("X-Forwarded-Host", host),
        ("X-Forwarded-Port", port),
        ("X-Forwarded-Proto", scheme),
        ("X-Forwarded-Scheme", scheme),
        ("X-Scheme", scheme),
        ("X-Original-Forwarded-For", original.as_str()),
        ("X-Original-Forwarded-Host", "$http_x_forwarded_host"),
        ("Proxy", ""),
    ] {
        nodes.push(line(name, &[field, value]));
    }
    if defaults.adds_original_uri {
        nodes.push(line(name, &["X-Original-URI", "$request_uri"]));
    }
    let all = defaults.proxy_set_headers.iter().chain(&fields.more);
    nodes.extend(all.map(|(field, value)| directive(name, [Argument::plain(field), value.clone()])));
    nodes
}

/// Returns the definitions of variables that lines use and nginx does not have.
pub(crate) fn definitions(used: &BTreeSet<String>, defaults: &Defaults) -> Vec<WriteNode> {
    let mut nodes = Vec::new();
    let mut map = |name: &'static str, input: &'static str, lines: &[(&'static str, &'static str)]| {
        let lines = lines
            .iter()
            .map(|(key, value)| NewDirective::entry(Argument::plain(key)).arg(Argument::plain(value)).into());
        let head = NewDirective::new("map").arg(input).arg(Argument::variable(name));
        nodes.extend([WriteNode::Blank, head.block(lines.collect()).into()]);
    };
    let uses = |name: &str| used.contains(name);
    let forwards = defaults.uses_forwarded_headers;
    if uses("req_id") {
        map("req_id", "$http_x_request_id", &[("default", "$http_x_request_id"), ("", "$request_id")]);
    }
    if uses("pass_access_scheme") {
        let first = if forwards { "$http_x_forwarded_proto" } else { "$scheme" };
        map("pass_access_scheme", "$http_x_forwarded_proto", &[("default", first), ("", "$scheme")]);
    }
    if uses("best_http_host") {
        let first = if forwards { "$http_x_forwarded_host" } else { "$http_host" };
        map("best_http_host", "$http_x_forwarded_host", &[("default", first), ("", "$http_host")]);
    }
    if uses("pass_port") {
        let first = if forwards { "$http_x_forwarded_port" } else { "$server_port" };
        map("pass_port", "$http_x_forwarded_port", &[("default", first), ("", "$server_port")]);
    }
    if uses("the_real_ip") {
        map("the_real_ip", "$remote_addr", &[("default", "$remote_addr")]);
    }
    if uses("redirect_uri") {
        let without = [("default", "$request_uri"), ("~^(?<redirect_path>.*)/$", "$redirect_path")];
        map("redirect_uri", "$request_uri", &without);
    }
    nodes
}
