//! Joins the models of several translators.

use std::fmt;

use crate::names::{HostName, ListenSocket, ObjectOrigin};
use crate::{HttpListener, Model, StreamListener};

/// Part of a merged model that the first model has already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeConflict {
    /// Origin of the part that is left out.
    pub origin: ObjectOrigin,
    pub socket: ListenSocket,
    pub reason: String,
}

impl fmt::Display for MergeConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}: {}", self.socket, self.reason)
    }
}

impl Model {
    /// Adds the parts of another model. Hosts of one socket stand beside each other; of two with the same name, those
    /// of this model stay, and a host of the other model that adds locations only is appended to it. Returns the
    /// parts that are left out.
    pub fn merge(&mut self, other: Model) -> Vec<MergeConflict> {
        let mut conflicts = Vec::new();
        for (socket, listener) in other.http {
            match self.http.get_mut(&socket) {
                None => {
                    self.http.insert(socket, listener);
                }
                Some(known) => merge_http(socket, known, listener, &mut conflicts),
            }
        }
        for (socket, listener) in other.tcp {
            match self.tcp.get_mut(&socket) {
                None => {
                    self.tcp.insert(socket, listener);
                }
                Some(StreamListener::Tls(known)) if matches!(listener, StreamListener::Tls(_)) => {
                    let StreamListener::Tls(hosts) = listener else { continue };
                    for host in hosts {
                        if known.iter().any(|other| other.name == host.name) {
                            conflicts.push(taken(&host.origin, socket, &host.name));
                        } else {
                            known.push(host);
                        }
                    }
                }
                Some(_) => conflicts.extend(origins(&listener).into_iter().map(|origin| in_use(origin, socket))),
            }
        }
        for (socket, listener) in other.udp {
            match self.udp.get(&socket) {
                None => {
                    self.udp.insert(socket, listener);
                }
                Some(_) => conflicts.extend(origins(&listener).into_iter().map(|origin| in_use(origin, socket))),
            }
        }
        // Names depend on their object alone: equal names are equal groups and files.
        for (name, group) in other.groups {
            self.groups.entry(name).or_insert(group);
        }
        for (name, certificate) in other.certificates {
            self.certificates.entry(name).or_insert(certificate);
        }
        for (name, authority) in other.authorities {
            self.authorities.entry(name).or_insert(authority);
        }
        for (name, users) in other.passwords {
            self.passwords.entry(name).or_insert(users);
        }
        self.http_definitions.extend(other.http_definitions);
        self.stream_definitions.extend(other.stream_definitions);
        conflicts
    }
}

fn merge_http(socket: ListenSocket, known: &mut HttpListener, other: HttpListener, conflicts: &mut Vec<MergeConflict>) {
    if known.is_tls != other.is_tls {
        conflicts.extend(other.hosts.iter().map(|host| in_use(&host.origin, socket)));
        return;
    }
    for host in other.hosts {
        match known.hosts.iter_mut().find(|other| other.name == host.name) {
            None => known.hosts.push(host),
            Some(same) if host.extra.is_empty() && (host.tls.is_none() || host.tls == same.tls) => {
                same.locations.extend(host.locations);
            }
            Some(_) => conflicts.push(taken(&host.origin, socket, &host.name)),
        }
    }
}

fn origins(listener: &StreamListener) -> Vec<&ObjectOrigin> {
    match listener {
        StreamListener::Plain { origin, .. } => vec![origin],
        StreamListener::Tls(hosts) => hosts.iter().map(|host| &host.origin).collect(),
    }
}

fn in_use(origin: &ObjectOrigin, socket: ListenSocket) -> MergeConflict {
    MergeConflict { origin: origin.clone(), socket, reason: "the port is in use with another protocol".into() }
}

fn taken(origin: &ObjectOrigin, socket: ListenSocket, name: &HostName) -> MergeConflict {
    MergeConflict { origin: origin.clone(), socket, reason: format!("the host {name} is in use with other settings") }
}
