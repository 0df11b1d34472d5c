//! `stream`: TCP, UDP, and TLS by the name that the client sends.

use cluster_model::{Backend, HostName, ListenSocket, ObjectOrigin, StreamAction, StreamHost, StreamListener};
use conf_syntax::writer::{Argument, NewDirective, WriteNode};

use crate::groups::GroupArea;
use crate::hosts::{listen_addresses, server_name, server_tls};
use crate::{Renderer, comment, line};

impl Renderer<'_> {
    /// Returns the lines of the `stream` block; none if nothing needs it.
    pub(crate) fn stream(&mut self) -> Vec<WriteNode> {
        let model = self.model;
        let mut servers = Vec::new();
        for (socket, listener) in &model.tcp {
            let (origin, lines) = match listener {
                StreamListener::Plain { origin, backends } => {
                    (origin.clone(), self.plain(*socket, origin, backends, false))
                }
                StreamListener::Tls(hosts) => {
                    let origin = hosts.first().map(|host| host.origin.clone()).unwrap_or_default();
                    (origin, self.tls(*socket, hosts))
                }
            };
            servers.extend(self.checked(&origin, lines).unwrap_or_default());
        }
        for (socket, listener) in &model.udp {
            if let StreamListener::Plain { origin, backends } = listener {
                servers.extend(self.plain(*socket, origin, backends, true));
            }
        }
        let definitions = model.stream_definitions.clone();
        [definitions, self.weight_definitions(GroupArea::Stream), self.upstreams(GroupArea::Stream), servers].concat()
    }

    fn plain(
        &mut self,
        socket: ListenSocket,
        origin: &ObjectOrigin,
        backends: &[Backend],
        is_udp: bool,
    ) -> Vec<WriteNode> {
        let Some(target) = self.stream_target(origin, backends) else { return Vec::new() };
        let mut lines = self.stream_listen(socket, if is_udp { &["udp"] } else { &[] });
        lines.push(NewDirective::new("proxy_pass").arg(target).into());
        vec![WriteNode::Blank, comment(origin), NewDirective::new("server").block(lines).into()]
    }

    /// Returns the argument of `proxy_pass`: a group, or a variable with one; `None` without a backend.
    fn stream_target(&mut self, origin: &ObjectOrigin, backends: &[Backend]) -> Option<Argument> {
        let mut entries: Vec<(String, u32)> = Vec::new();
        for backend in backends.iter().filter(|backend| backend.weight > 0) {
            let name = backend.group.as_ref().and_then(|group| self.use_group(GroupArea::Stream, group));
            // An empty target closes the connection.
            let value = name.map_or(String::new(), |name| name.to_string());
            match entries.iter_mut().find(|(known, _)| *known == value) {
                Some((_, weight)) => *weight = weight.saturating_add(backend.weight),
                None => entries.push((value, backend.weight)),
            }
        }
        match entries.as_slice() {
            [] => None,
            [(value, _)] if value.is_empty() => None,
            [(value, _)] => Some(Argument::plain(value)),
            _ => Some(Argument::variable(self.weights(GroupArea::Stream, origin, entries))),
        }
    }

    fn stream_listen(&self, socket: ListenSocket, words: &[&str]) -> Vec<WriteNode> {
        let words: Vec<Argument> = words.iter().map(Argument::plain).collect();
        listen_addresses(socket, self.settings.ipv6)
            .into_iter()
            .map(|address| NewDirective::new("listen").arg(Argument::plain(address)).args(words.iter().cloned()).into())
            .collect()
    }

    /// A listener whose hosts are all decrypted has their certificates itself. Otherwise a server reads the name, and
    /// hands connections of decrypted names to sockets of the process.
    fn tls(&mut self, socket: ListenSocket, hosts: &[StreamHost]) -> Vec<WriteNode> {
        let mut hosts: Vec<&StreamHost> = hosts.iter().collect();
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        let is_shared = self.model.http.contains_key(&socket);
        let has_passthrough = hosts.iter().any(|host| host.action == StreamAction::Passthrough);
        if !is_shared && !has_passthrough {
            return self.terminating(socket, &hosts, false);
        }
        let inner = Argument::plain(self.inner_socket("tls", socket));
        let https = Argument::plain(self.inner_socket("https", socket));
        let mut entries: Vec<(HostName, Option<Argument>, bool)> = Vec::new();
        for host in &hosts {
            match host.action {
                StreamAction::Passthrough => {
                    let target = self.stream_target(&host.origin, &host.backends);
                    entries.push((host.name.clone(), target, false));
                }
                StreamAction::Terminate(_) => entries.push((host.name.clone(), Some(inner.clone()), true)),
            }
        }
        for host in self.model.http.get(&socket).into_iter().flat_map(|listener| &listener.hosts) {
            if !hosts.iter().any(|other| other.name == host.name) {
                entries.push((host.name.clone(), Some(https.clone()), true));
            }
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let suffix = socket.to_string().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let mut nodes = vec![WriteNode::Blank, name_map(&format!("tls_{suffix}"), &entries)];
        let hands_over = entries.iter().any(|(_, _, is_inner)| *is_inner);
        let target = Argument::variable(format!("tls_{suffix}"));
        let front = |lines: Vec<WriteNode>, target: Argument, with_address: bool| {
            let mut lines = lines;
            lines.push(line("ssl_preread", &["on"]));
            if with_address {
                lines.push(line("proxy_protocol", &["on"]));
            }
            lines.push(NewDirective::new("proxy_pass").arg(target).into());
            WriteNode::from(NewDirective::new("server").block(lines))
        };
        // PROXY protocol tells inner servers the client's address; backends of passed connections would not expect it.
        if hands_over {
            let step = self.inner_socket("names", socket);
            let rest: Vec<_> = entries
                .iter()
                .map(|(name, target, is_inner)| {
                    let target = if *is_inner { Some(Argument::plain(&step)) } else { target.clone() };
                    (name.clone(), target, *is_inner)
                })
                .collect();
            nodes.pop();
            nodes.push(name_map(&format!("tls_{suffix}"), &rest));
            let inner: Vec<_> = entries.iter().filter(|(_, _, is_inner)| *is_inner).cloned().collect();
            nodes.extend([WriteNode::Blank, name_map(&format!("tls_{suffix}_inner"), &inner)]);
            let words = WriteNode::Comment(format!("Names of port {socket} that are decrypted"));
            let listen = vec![NewDirective::new("listen").arg(Argument::plain(&step)).into()];
            let inner = Argument::variable(format!("tls_{suffix}_inner"));
            nodes.extend([WriteNode::Blank, words, front(listen, inner, true)]);
        }
        let words = WriteNode::Comment(format!("Names of port {socket}"));
        nodes.extend([WriteNode::Blank, words, front(self.stream_listen(socket, &[]), target, false)]);
        let terminated: Vec<&StreamHost> =
            hosts.into_iter().filter(|host| host.action != StreamAction::Passthrough).collect();
        nodes.extend(self.terminating(socket, &terminated, true));
        nodes
    }

    fn terminating(&mut self, socket: ListenSocket, hosts: &[&StreamHost], is_inner: bool) -> Vec<WriteNode> {
        let mut nodes = Vec::new();
        for host in hosts {
            let StreamAction::Terminate(tls) = &host.action else { continue };
            let Some(target) = self.stream_target(&host.origin, &host.backends) else { continue };
            let default: &[&str] = if host.name == HostName::Any { &["ssl", "default_server"] } else { &["ssl"] };
            let mut lines = if is_inner {
                let words = default.iter().copied().chain(["proxy_protocol"]).map(Argument::plain);
                let inner = Argument::plain(self.inner_socket("tls", socket));
                vec![NewDirective::new("listen").arg(inner).args(words).into(), line("set_real_ip_from", &["unix:"])]
            } else {
                self.stream_listen(socket, default)
            };
            lines.push(server_name(&host.name));
            lines.extend(server_tls(tls));
            lines.push(NewDirective::new("proxy_pass").arg(target).into());
            nodes.extend([WriteNode::Blank, comment(&host.origin), NewDirective::new("server").block(lines).into()]);
        }
        if !nodes.is_empty() && !hosts.iter().any(|host| host.name == HostName::Any) && !is_inner {
            let mut lines = self.stream_listen(socket, &["ssl", "default_server"]);
            lines.push(line("ssl_reject_handshake", &["on"]));
            let words = format!("Other names of port {socket}");
            nodes.extend([
                WriteNode::Blank,
                WriteNode::Comment(words),
                NewDirective::new("server").block(lines).into(),
            ]);
        }
        nodes
    }
}

/// Returns the map from names to targets; names without a target close the connection.
fn name_map(variable: &str, entries: &[(HostName, Option<Argument>, bool)]) -> WriteNode {
    let mut lines = vec![line("hostnames", &[])];
    for (name, target, _) in entries {
        let key = match name {
            HostName::Any => Argument::plain("default"),
            // These words mean something else at the beginning of a line.
            HostName::Exact(name) if matches!(name.as_str(), "default" | "hostnames" | "include" | "volatile") => {
                Argument::plain(format!("\\{name}"))
            }
            name => Argument::plain(name.to_string()),
        };
        lines.push(NewDirective::entry(key).arg(target.clone().unwrap_or_else(|| Argument::plain(""))).into());
    }
    if !entries.iter().any(|(name, _, _)| *name == HostName::Any) {
        lines.push(line("default", &[""]));
    }
    let variable = Argument::variable(variable);
    NewDirective::new("map").arg("$ssl_preread_server_name").arg(variable).block(lines).into()
}
