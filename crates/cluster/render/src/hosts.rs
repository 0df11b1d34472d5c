//! `server` blocks of HTTP.

use std::collections::BTreeSet;

use cluster_model::{
    ClientMode, HostName, HttpListener, ListenSocket, Location, PathMatch, ServerTls, StreamListener, VirtualHost,
};
use conf_syntax::writer::{Argument, NewDirective, WriteNode};

use crate::groups::GroupArea;
use crate::{Renderer, authority_path, certificate_path, comment, joined, key_path, line};

impl Renderer<'_> {
    /// Returns the lines of the `http` block behind its defaults.
    pub(crate) fn http(&mut self) -> Vec<WriteNode> {
        let model = self.model;
        let mut servers = Vec::new();
        for (socket, listener) in &model.http {
            servers.extend(self.listener(*socket, listener));
        }
        let definitions = model.http_definitions.clone();
        joined([definitions, self.weight_definitions(GroupArea::Http), self.upstreams(GroupArea::Http), servers])
    }

    fn listener(&mut self, socket: ListenSocket, listener: &HttpListener) -> Vec<WriteNode> {
        let mut hosts: Vec<&VirtualHost> = listener.hosts.iter().collect();
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        let mut nodes = Vec::new();
        let names: BTreeSet<&HostName> = hosts.iter().filter_map(|host| host.listener.as_ref()).collect();
        let has_several = listener.is_tls && names.len() > 1;
        if has_several {
            nodes.extend([
                WriteNode::Blank,
                WriteNode::Comment(format!("Listeners of port {socket} by the name of the handshake")),
            ]);
            nodes.push(handshake_listeners(socket, &names));
        }
        for host in &hosts {
            let misdirected = host.listener.as_ref().filter(|_| has_several).map(|name| misdirected(socket, name));
            if let Some(server) = self.server_block(socket, listener.is_tls, host, misdirected) {
                nodes.extend([WriteNode::Blank, comment(&host.origin), server]);
            }
        }
        if !hosts.iter().any(|host| host.name == HostName::Any) {
            let mut lines = self.listen(socket, listener.is_tls, true);
            let answer = if listener.is_tls { ("ssl_reject_handshake", "on") } else { ("return", "404") };
            lines.push(line(answer.0, &[answer.1]));
            let words = format!("Other hosts of port {socket}");
            nodes.extend([
                WriteNode::Blank,
                WriteNode::Comment(words),
                NewDirective::new("server").block(lines).into(),
            ]);
        }
        nodes
    }

    fn server_block(
        &mut self,
        socket: ListenSocket,
        is_tls: bool,
        host: &VirtualHost,
        misdirected: Option<WriteNode>,
    ) -> Option<WriteNode> {
        let is_default = host.name == HostName::Any;
        let mut lines = self.listen(socket, is_tls, is_default);
        lines.push(server_name(&host.name));
        if let Some(tls) = &host.tls {
            lines.extend(server_tls(tls));
        }
        lines.push(line("set", &["$route_namespace", ""]));
        lines.push(line("set", &["$route", ""]));
        lines.extend(misdirected);
        let is_strict = host.listener.is_some() && host.tls.as_ref().is_some_and(requires_client);
        if is_strict {
            // The handshake is complete already. Gateway API wants no response; the language has 400.
            lines.push(line("error_page", &["495", "496", "=", "@rejected"]));
        }
        lines.extend(host.extra.iter().cloned());
        let mut lines = self.checked(&host.origin, lines)?;
        let mut mirrors = BTreeSet::new();
        for location in &host.locations {
            lines.extend(self.location(location, &mut mirrors));
        }
        for (group, protocol) in mirrors {
            lines.extend(self.mirror_location(&group, protocol));
        }
        if is_strict {
            let closed = NewDirective::new("location").arg("@rejected").block(vec![line("return", &["444"])]);
            lines.extend([WriteNode::Blank, closed.into()]);
        }
        let everything = PathMatch::Prefix("/".into());
        let slash = PathMatch::Text("/".into());
        let any = PathMatch::Regex { pattern: "^/".into(), is_case_insensitive: true };
        let is_open = |location: &Location| {
            ![&everything, &slash, &any].contains(&&location.path) || !location.conditions.is_empty()
        };
        if host.locations.iter().all(is_open) {
            let rest = NewDirective::new("location").arg("^/").arg("/").block(vec![line("return", &["404"])]);
            lines.extend([WriteNode::Blank, rest.into()]);
        }
        Some(NewDirective::new("server").block(lines).into())
    }

    /// Returns the `listen` lines of a server.
    fn listen(&self, socket: ListenSocket, is_tls: bool, is_default: bool) -> Vec<WriteNode> {
        let mut words: Vec<Argument> = Vec::new();
        if is_tls {
            words.push("ssl".into());
        }
        if is_default {
            words.push("default_server".into());
        }
        // TLS streams have the port itself, and hand over by a socket of the process.
        if matches!(self.model.tcp.get(&socket), Some(StreamListener::Tls(_))) {
            let inner = Argument::plain(self.inner_socket("https", socket));
            return vec![
                NewDirective::new("listen").arg(inner).args(words).arg("proxy_protocol").into(),
                line("set_real_ip_from", &["unix:"]),
                line("real_ip_header", &["proxy_protocol"]),
            ];
        }
        listen_addresses(socket, self.settings.ipv6)
            .into_iter()
            .map(|address| NewDirective::new("listen").arg(Argument::plain(address)).args(words.iter().cloned()).into())
            .collect()
    }

    pub(crate) fn inner_socket(&self, kind: &str, socket: ListenSocket) -> String {
        let address =
            socket.address.map_or(String::new(), |address| format!("-{}", address.to_string().replace(':', "_")));
        format!("unix:{}/{kind}-{}{address}.sock", self.settings.run_folder, socket.port)
    }
}

/// Returns the definition of the variable with the listener that the name of a handshake (SNI) belongs to.
fn handshake_listeners(socket: ListenSocket, names: &BTreeSet<&HostName>) -> WriteNode {
    let mut lines = vec![line("hostnames", &[])];
    for name in names {
        let value = Argument::plain(name.to_string());
        lines.push(match name {
            HostName::Any => NewDirective::new("default").arg(value).into(),
            name => NewDirective::entry(Argument::plain(name.to_string())).arg(value).into(),
        });
    }
    let variable = Argument::variable(handshake_variable(socket));
    NewDirective::new("map").arg("$ssl_server_name").arg(variable).block(lines).into()
}

fn handshake_variable(socket: ListenSocket) -> String {
    let address = socket.address.map(|address| format!("_{}", address.to_string().replace(['.', ':'], "_")));
    format!("handshake_listener{}_{}", address.unwrap_or_default(), socket.port)
}

/// Returns the answer to requests whose handshake belongs to another listener (RFC 9110, 15.5.20).
fn misdirected(socket: ListenSocket, listener: &HostName) -> WriteNode {
    let test = [format!("(${}", handshake_variable(socket)), "!=".into(), format!("{listener})")];
    let answer = vec![line("return", &["421"])];
    NewDirective::new("if").args(test.iter().map(Argument::plain)).block(answer).into()
}

/// Returns the addresses of a socket, as arguments of `listen`.
pub(crate) fn listen_addresses(socket: ListenSocket, ipv6: bool) -> Vec<String> {
    let mut addresses = vec![socket.to_string()];
    if socket.address.is_none() && ipv6 {
        addresses.push(format!("[::]:{}", socket.port));
    }
    addresses
}

pub(crate) fn server_name(name: &HostName) -> WriteNode {
    let name = match name {
        HostName::Any => Argument::plain("_"),
        name => Argument::plain(name.to_string()),
    };
    NewDirective::new("server_name").arg(name).into()
}

fn requires_client(tls: &ServerTls) -> bool {
    tls.client.as_ref().is_some_and(|client| client.mode == ClientMode::Required)
}

/// Returns certificates and the verification of clients.
pub(crate) fn server_tls(tls: &ServerTls) -> Vec<WriteNode> {
    let mut lines = Vec::new();
    for name in &tls.certificates {
        lines.push(NewDirective::new("ssl_certificate").arg(Argument::literal(certificate_path(name))).into());
        lines.push(NewDirective::new("ssl_certificate_key").arg(Argument::literal(key_path(name))).into());
    }
    if let Some(client) = &tls.client {
        let authority = Argument::plain(authority_path(&client.authority));
        match client.mode {
            ClientMode::Required => {
                lines.push(NewDirective::new("ssl_client_certificate").arg(authority).into());
                lines.push(line("ssl_verify_client", &["on"]));
                lines.push(line("ssl_verify_depth", &["4"]));
            }
            ClientMode::Unverified => lines.push(line("ssl_verify_client", &["optional_no_ca"])),
        }
    }
    lines
}
