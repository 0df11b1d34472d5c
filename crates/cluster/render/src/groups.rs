//! Groups of servers, and the variables that draw one of them by weight.

use cluster_model::{Endpoint, GroupName, ObjectOrigin};
use conf_syntax::writer::{Argument, NewDirective, WriteNode};

use crate::{Renderer, Settings, comment, line, text};

/// Longest name of a group or variable, in bytes.
const NAME_BYTES_MAX: usize = 1024;
/// Indentation of servers: blocks of areas, and of groups in them.
const SERVER_INDENT: &str = "        ";

/// Block that a group belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupArea {
    Http,
    Stream,
}

/// Name of a group in its area. It depends on namespace, service and port only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    pub area: GroupArea,
    pub name: GroupName,
}

/// Server of a group, as the API takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupServer {
    /// `10.0.0.1:8080`, a name with its port, or `unix:` and a path.
    pub server: String,
    /// Share of the group's requests, relative to the sum.
    pub weight: u16,
    /// No request goes there: it stands for a group without endpoints.
    pub is_down: bool,
}

/// Returns the servers of a group with these endpoints; without any, the server that stands for none. [`crate::render`] makes the servers
/// of all groups by it.
pub fn group_servers(area: GroupArea, endpoints: &[Endpoint], settings: &Settings) -> Vec<GroupServer> {
    let named = endpoints.iter().filter(|endpoint| endpoint.host.len() <= NAME_BYTES_MAX);
    let mut servers: Vec<GroupServer> = named
        .map(|endpoint| GroupServer { server: endpoint.to_string(), weight: endpoint.weight.max(1), is_down: false })
        .collect();
    if servers.is_empty() {
        servers.push(match area {
            GroupArea::Http => GroupServer { server: settings.unavailable_address(), weight: 1, is_down: false },
            GroupArea::Stream => GroupServer { server: "127.0.0.1:9".into(), weight: 1, is_down: true },
        });
    }
    servers
}

/// Returns the line of a server in its group's block, with its indentation and its end.
pub(crate) fn server_line(server: &GroupServer, settings: &Settings) -> String {
    format!("{SERVER_INDENT}{}", text(&[server_node(server, settings)]))
}

fn server_node(server: &GroupServer, settings: &Settings) -> WriteNode {
    // Probes of the cluster decide about endpoints: a timeout of one route must not take them from the others.
    let mut directive = NewDirective::new("server").arg(Argument::plain(&server.server)).arg("max_fails=0");
    if server.weight != 1 {
        directive = directive.arg(Argument::plain(format!("weight={}", server.weight)));
    }
    if server.is_down {
        directive = directive.arg("down");
    }
    let host = server.server.rsplit_once(':').map_or("", |(host, _)| host);
    let is_name = !host.starts_with('[') && host != "unix" && host.parse::<std::net::Ipv4Addr>().is_err();
    if is_name && settings.resolver.is_some() && !server.server.starts_with("unix:") {
        directive = directive.arg("resolve");
    }
    directive.into()
}

impl Renderer<'_> {
    /// Notes that an area uses a group, and returns the group's name. `None` if the model has no such group.
    pub(crate) fn use_group(&mut self, area: GroupArea, name: &GroupName) -> Option<GroupName> {
        let group = self.model.groups.get(name)?;
        if name.as_str().len() > NAME_BYTES_MAX {
            self.complain(&group.origin, "the group's name is too long");
            return None;
        }
        let servers = group_servers(area, &group.endpoints, self.settings);
        self.groups.insert(GroupId { area, name: name.clone() }, servers);
        Some(name.clone())
    }

    /// Returns the `upstream` blocks of the groups that an area uses.
    pub(crate) fn upstreams(&self, area: GroupArea) -> Vec<WriteNode> {
        let mut nodes = Vec::new();
        for (id, servers) in self.groups.iter().filter(|(id, _)| id.area == area) {
            let name = Argument::plain(id.name.as_str());
            let origin = self.model.groups.get(&id.name).map(|group| comment(&group.origin));
            let mut lines: Vec<WriteNode> = origin.into_iter().collect();
            // Zones of both areas share one set of names.
            let zone = match area {
                GroupArea::Http => name.clone(),
                GroupArea::Stream => Argument::plain(format!("{}_stream", id.name)),
            };
            lines.push(NewDirective::new("zone").arg(zone).arg("64k").into());
            let settings = self.model.groups.get(&id.name).map(|group| group.settings.as_slice());
            lines.extend(settings.into_iter().flatten().cloned());
            for server in servers {
                lines.push(server_node(server, self.settings));
            }
            nodes.extend([WriteNode::Blank, NewDirective::new("upstream").arg(name).block(lines).into()]);
        }
        nodes
    }

    /// Returns the name of a variable that draws one of the entries by weight: one name for equal entries of one rule.
    pub(crate) fn weights(&mut self, area: GroupArea, origin: &ObjectOrigin, entries: Vec<(String, u32)>) -> String {
        let mut base = String::from("weights");
        for part in [&origin.namespace, &origin.name, &origin.part].into_iter().filter(|part| !part.is_empty()) {
            base.push('_');
            base.extend(part.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }));
        }
        // Only ASCII so far.
        base.truncate(NAME_BYTES_MAX);
        let mut name = base.clone();
        for number in 2.. {
            match self.weights.get(&(area, name.clone())) {
                Some(known) if *known != entries => name = format!("{base}_{number}"),
                _ => break,
            }
        }
        self.weights.insert((area, name.clone()), entries);
        name
    }

    /// Returns the definitions of the variables of an area.
    pub(crate) fn weight_definitions(&self, area: GroupArea) -> Vec<WriteNode> {
        let mut nodes = Vec::new();
        for ((_, name), entries) in self.weights.iter().filter(|((used, _), _)| *used == area) {
            let directive = match area {
                GroupArea::Http => {
                    let lines = entries.iter().map(|(value, weight)| {
                        NewDirective::entry(Argument::plain(value)).arg(weight.to_string().as_str()).into()
                    });
                    NewDirective::new("backend_weights").arg(Argument::variable(name)).block(lines.collect())
                }
                GroupArea::Stream => NewDirective::new("split_clients")
                    .arg("$connection")
                    .arg(Argument::variable(name))
                    .block(shares(entries)),
            };
            nodes.extend([WriteNode::Blank, directive.into()]);
        }
        nodes
    }
}

/// Returns the lines of `split_clients`: percentages with two digits, the remainder for the last entry.
fn shares(entries: &[(String, u32)]) -> Vec<WriteNode> {
    let entries: Vec<_> = entries.iter().filter(|(_, weight)| *weight > 0).collect();
    let sum: u64 = entries.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let mut nodes = Vec::new();
    for (index, (value, weight)) in entries.iter().enumerate() {
        let value = Argument::plain(value);
        if index + 1 == entries.len() {
            nodes.push(NewDirective::new("*").arg(value).into());
            continue;
        }
        let share = u64::from(*weight) * 10_000 / sum.max(1);
        // nginx refuses zero.
        if share > 0 {
            let share = Argument::plain(format!("{}.{:02}%", share / 100, share % 100));
            nodes.push(NewDirective::entry(share).arg(value).into());
        }
    }
    if nodes.is_empty() {
        nodes.push(line("*", &["-"]));
    }
    nodes
}
