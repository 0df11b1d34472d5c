//! Listeners and routes as hosts of the model.

use std::collections::{BTreeMap, BTreeSet};

use cluster_model::{
    Action, Backend, FileName, HostName, HttpListener, ListenSocket, Location, Model, ObjectOrigin, ServerTls,
    StreamAction, StreamHost, StreamListener, VirtualHost,
};
use cluster_objects::Kind;

use crate::compiled::CompiledRoute;
use crate::http::with_port;
use crate::listeners::{GatewayListener, ListenerProtocol, ListenersState};

/// Listeners of each socket that share it by the names of their hosts.
type SocketListeners = BTreeMap<ListenSocket, Vec<usize>>;

/// Builds the model, and leaves locations out that no request can reach, with a complaint.
pub(crate) fn model(state: &mut ListenersState, routes: &[CompiledRoute]) -> Model {
    let mut builder = HostsBuilder {
        shared: shared(state),
        hosts: BTreeMap::new(),
        streams: BTreeMap::new(),
        model: Model::default(),
        done: BTreeSet::new(),
    };
    builder.add_listeners(state);
    for (index, route) in routes.iter().enumerate().filter(|(_, route)| route.compiled.accepted.is_none()) {
        for attachment in &route.attachments {
            for (listener, hosts) in &attachment.listeners {
                builder.add_route(state, index, route, *listener, hosts);
            }
        }
    }
    builder.finish(state)
}

struct HostsBuilder {
    shared: SocketListeners,
    hosts: BTreeMap<(ListenSocket, HostName), VirtualHost>,
    streams: BTreeMap<(ListenSocket, HostName), StreamHost>,
    model: Model,
    /// Routes that were added to a listener's host.
    done: BTreeSet<(usize, usize, HostName)>,
}

fn shared(state: &ListenersState) -> SocketListeners {
    let mut shared = SocketListeners::new();
    for (index, listener) in state.listeners.iter().enumerate().filter(|(_, listener)| listener.is_served()) {
        if matches!(listener.protocol, Some(ListenerProtocol::Http | ListenerProtocol::Https | ListenerProtocol::Tls)) {
            for socket in &listener.sockets {
                shared.entry(*socket).or_default().push(index);
            }
        }
    }
    shared
}

/// Returns the listener of a socket that requests of a host belong to: the most specific one.
fn best(shared: &SocketListeners, state: &ListenersState, socket: ListenSocket, host: &HostName) -> Option<usize> {
    let candidates = shared.get(&socket)?.iter().copied();
    candidates
        .filter(|index| state.listeners[*index].hostname.covers(host))
        .max_by_key(|index| state.listeners[*index].hostname.specificity())
}

fn server_tls(listener: &GatewayListener) -> ServerTls {
    ServerTls { certificates: listener.certificates.clone(), client: listener.client.clone() }
}

fn listener_origin(listener: &GatewayListener) -> ObjectOrigin {
    let owner = &listener.owner;
    let origin = ObjectOrigin::new(owner.kind.name(), &owner.name.namespace, &owner.name.name);
    origin.part(format!("listener {}", listener.spec.name))
}

impl HostsBuilder {
    fn add_listeners(&mut self, state: &ListenersState) {
        for listener in state.listeners.iter().filter(|listener| listener.is_served()) {
            for socket in &listener.sockets {
                match listener.protocol {
                    Some(ListenerProtocol::Http | ListenerProtocol::Https) => {
                        self.host(*socket, listener, &listener.hostname);
                    }
                    // Names of this listener must not fall to a less specific HTTPS listener.
                    Some(ListenerProtocol::Tls) if self.has_https(state, *socket) => {
                        let host = StreamHost {
                            origin: listener_origin(listener),
                            name: listener.hostname.clone(),
                            action: StreamAction::Passthrough,
                            backends: Vec::new(),
                        };
                        self.streams.insert((*socket, listener.hostname.clone()), host);
                    }
                    _ => {}
                }
            }
        }
    }

    fn has_https(&self, state: &ListenersState, socket: ListenSocket) -> bool {
        let indexes = self.shared.get(&socket).into_iter().flatten();
        indexes.into_iter().any(|index| state.listeners[*index].protocol == Some(ListenerProtocol::Https))
    }

    fn host(&mut self, socket: ListenSocket, listener: &GatewayListener, name: &HostName) -> &mut VirtualHost {
        self.hosts.entry((socket, name.clone())).or_insert_with(|| VirtualHost {
            origin: listener_origin(listener),
            name: name.clone(),
            listener: Some(listener.hostname.clone()),
            tls: (listener.protocol == Some(ListenerProtocol::Https)).then(|| server_tls(listener)),
            locations: Vec::new(),
            extra: Vec::new(),
        })
    }

    fn add_route(
        &mut self,
        state: &ListenersState,
        number: usize,
        route: &CompiledRoute,
        index: usize,
        hosts: &[HostName],
    ) {
        let listener = &state.listeners[index];
        if !listener.is_served() {
            return;
        }
        let origin = ObjectOrigin::new(route.kind.name(), &route.name.namespace, &route.name.name);
        let backends = &route.compiled.backends;
        match route.kind {
            Kind::TcpRoute | Kind::UdpRoute => {
                let is_udp = route.kind == Kind::UdpRoute;
                for socket in &listener.sockets {
                    let streams = if is_udp { &mut self.model.udp } else { &mut self.model.tcp };
                    let plain = StreamListener::Plain { origin: origin.clone(), backends: backends.clone() };
                    streams.entry(*socket).or_insert(plain);
                }
                return;
            }
            _ => {}
        }
        let certificate = &state.gateways[listener.gateway].certificate;
        for host in hosts {
            for socket in &listener.sockets {
                let is_best = best(&self.shared, state, *socket, host) == Some(index);
                if !is_best || (listener.sockets.len() == 1 && !self.done.insert((number, index, host.clone()))) {
                    continue;
                }
                if route.kind == Kind::TlsRoute {
                    self.add_tls(*socket, listener, &origin, host, backends);
                    continue;
                }
                let locations: Vec<Location> = route
                    .compiled
                    .locations
                    .iter()
                    .map(|location| at_listener(location, listener.port, certificate.as_ref()))
                    .collect();
                self.host(*socket, listener, host).locations.extend(locations);
            }
        }
    }

    fn add_tls(
        &mut self,
        socket: ListenSocket,
        listener: &GatewayListener,
        origin: &ObjectOrigin,
        host: &HostName,
        backends: &[Backend],
    ) {
        let action = match listener.is_passthrough() {
            true => StreamAction::Passthrough,
            false => StreamAction::Terminate(server_tls(listener)),
        };
        let new = StreamHost { origin: origin.clone(), name: host.clone(), action, backends: backends.to_vec() };
        let known = self.streams.entry((socket, host.clone())).or_insert_with(|| new.clone());
        // The place of a listener without routes, or an older route's.
        if known.backends.is_empty() {
            *known = new;
        }
    }

    fn finish(mut self, state: &mut ListenersState) -> Model {
        for ((socket, _), mut host) in std::mem::take(&mut self.hosts) {
            host.sort_locations();
            drop_unreachable(socket, &mut host, state);
            let is_tls = host.tls.is_some();
            let listener = self.model.http.entry(socket).or_insert(HttpListener { is_tls, hosts: Vec::new() });
            listener.hosts.push(host);
        }
        for ((socket, _), host) in self.streams {
            let listener = self.model.tcp.entry(socket).or_insert_with(|| StreamListener::Tls(Vec::new()));
            if let StreamListener::Tls(hosts) = listener {
                hosts.push(host);
            }
        }
        for (name, certificate) in &state.files.certificates {
            self.model.certificates.insert(name.clone(), certificate.clone());
        }
        for (name, authority) in &state.files.authorities {
            self.model.authorities.insert(name.clone(), authority.clone());
        }
        self.model
    }
}

/// Drops locations behind one of the same path without conditions: the precedence of routes gave it all requests.
fn drop_unreachable(socket: ListenSocket, host: &mut VirtualHost, state: &mut ListenersState) {
    let mut kept: Vec<Location> = Vec::with_capacity(host.locations.len());
    for location in std::mem::take(&mut host.locations) {
        let winner = kept.last().filter(|last| last.path == location.path && last.conditions.is_empty());
        match winner {
            None => kept.push(location),
            Some(winner) => {
                let ObjectOrigin { kind, namespace, name, part } = &location.origin;
                let path = location.path.text().escape_debug();
                let reason =
                    format!("{part}: {path} of {} at port {socket} is served by {} already", host.name, winner.origin);
                let subject = format!("{namespace}/{kind} {name}");
                state.complaints.push(cluster_objects::Complaint { subject, reason });
            }
        }
    }
    host.locations = kept;
}

/// Returns a location with the values that depend on the listener and its Gateway.
fn at_listener(location: &Location, port: u16, certificate: Option<&FileName>) -> Location {
    let mut location = location.clone();
    match &mut location.action {
        Action::Redirect(redirect) => *redirect = with_port(redirect, port),
        Action::Respond(_) | Action::Lines { .. } => {}
        Action::Proxy { backends, .. } => {
            for backend in backends {
                backend.redirect = backend.redirect.as_ref().map(|redirect| with_port(redirect, port));
                if let Some(tls) = &mut backend.tls {
                    tls.certificate = certificate.cloned();
                }
            }
        }
    }
    location
}
