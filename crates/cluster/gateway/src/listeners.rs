//! Gateways, ListenerSets and their listeners: checks, conflicts, certificates.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use cluster_model::{ClientVerification, FileName, HostName, ListenSocket};
use cluster_objects::types::{Gateway, ListenerSet};
use cluster_objects::{Complaint, Kind, ObjectName, ObjectSet};

use crate::api::{self, GROUP, ListenerSpec};
use crate::conditions::ConditionFault;
use crate::selectors::Namespaces;
use crate::tls::{Owner, TlsFiles};
use crate::{Settings, classes};

/// Protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ListenerProtocol {
    Http,
    Https,
    Tls,
    Tcp,
    Udp,
}

impl ListenerProtocol {
    fn parse(name: &str) -> Option<ListenerProtocol> {
        Some(match name {
            "HTTP" => ListenerProtocol::Http,
            "HTTPS" => ListenerProtocol::Https,
            "TLS" => ListenerProtocol::Tls,
            "TCP" => ListenerProtocol::Tcp,
            "UDP" => ListenerProtocol::Udp,
            _ => return None,
        })
    }

    /// Returns the kinds of routes that can attach.
    fn kinds(self) -> &'static [Kind] {
        match self {
            ListenerProtocol::Http | ListenerProtocol::Https => &[Kind::HttpRoute, Kind::GrpcRoute],
            ListenerProtocol::Tls => &[Kind::TlsRoute],
            ListenerProtocol::Tcp => &[Kind::TcpRoute],
            ListenerProtocol::Udp => &[Kind::UdpRoute],
        }
    }

    /// Returns a number that is equal for protocols which can share a port.
    fn family(self) -> u8 {
        match self {
            ListenerProtocol::Http => 0,
            ListenerProtocol::Https | ListenerProtocol::Tls => 1,
            ListenerProtocol::Tcp => 2,
            ListenerProtocol::Udp => 3,
        }
    }
}

/// Object that a listener stands in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListenerOwner {
    pub kind: Kind,
    pub name: ObjectName,
}

/// A listener with the results of its checks.
#[derive(Clone, Debug)]
pub(crate) struct GatewayListener {
    pub owner: ListenerOwner,
    /// Index in [`ListenersState::gateways`].
    pub gateway: usize,
    pub spec: ListenerSpec,
    pub protocol: Option<ListenerProtocol>,
    pub hostname: HostName,
    pub port: u16,
    pub kinds: Vec<Kind>,
    pub certificates: Vec<FileName>,
    pub client: Option<ClientVerification>,
    pub sockets: Vec<ListenSocket>,
    pub conflict: Option<ConditionFault>,
    pub accepted: Option<ConditionFault>,
    pub resolved: Option<ConditionFault>,
    pub overlaps: bool,
    pub attached: usize,
}

impl GatewayListener {
    /// Tells whether the listener is part of the model.
    pub fn is_served(&self) -> bool {
        self.conflict.is_none() && self.accepted.is_none() && !self.lacks_certificate()
    }

    pub fn is_passthrough(&self) -> bool {
        self.spec.tls.as_ref().is_some_and(|tls| tls.is_passthrough)
    }

    fn needs_certificate(&self) -> bool {
        match self.protocol {
            Some(ListenerProtocol::Https) => true,
            Some(ListenerProtocol::Tls) => !self.is_passthrough(),
            _ => false,
        }
    }

    pub fn lacks_certificate(&self) -> bool {
        self.needs_certificate() && self.certificates.is_empty()
    }
}

/// A Gateway of ours.
#[derive(Clone, Debug)]
pub(crate) struct GatewayState {
    pub name: ObjectName,
    pub object: Arc<Gateway>,
    pub addresses: Vec<IpAddr>,
    pub fault: Option<ConditionFault>,
    pub address_fault: Option<ConditionFault>,
    /// Certificate that backends are shown.
    pub certificate: Option<FileName>,
    pub certificate_fault: Option<ConditionFault>,
}

/// A ListenerSet whose parent is ours.
#[derive(Clone, Debug)]
pub(crate) struct SetState {
    pub name: ObjectName,
    pub generation: i64,
    /// Index in [`ListenersState::gateways`].
    pub gateway: usize,
    pub fault: Option<ConditionFault>,
}

/// Gateways and listeners.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListenersState {
    pub gateways: Vec<GatewayState>,
    pub sets: Vec<SetState>,
    /// In order of precedence: older Gateways first, their own listeners before those of ListenerSets.
    pub listeners: Vec<GatewayListener>,
    pub files: TlsFiles,
    pub complaints: Vec<Complaint>,
}

/// Collects and checks the listeners of all Gateways of ours.
pub(crate) fn collect(set: &ObjectSet, settings: &Settings) -> ListenersState {
    let mut state = ListenersState::default();
    for (name, gateway) in set.by_age::<Gateway>() {
        if !classes::is_ours(set, settings, gateway) {
            continue;
        }
        let index = state.gateways.len();
        let found = gateway_state(set, settings, name, gateway, &mut state.files);
        state.gateways.push(found);
        let owner = ListenerOwner { kind: Kind::Gateway, name: name.clone() };
        for listener in &gateway.spec.listeners {
            let listener = check(set, settings, &mut state, index, &owner, ListenerSpec::from(listener));
            state.listeners.push(listener);
        }
        listener_sets(set, settings, &mut state, index);
    }
    find_conflicts(&mut state.listeners);
    find_overlaps(&mut state.listeners);
    state
}

fn gateway_state(
    set: &ObjectSet,
    settings: &Settings,
    name: &ObjectName,
    gateway: &Arc<Gateway>,
    files: &mut TlsFiles,
) -> GatewayState {
    let mut state = GatewayState {
        name: name.clone(),
        object: gateway.clone(),
        addresses: Vec::new(),
        fault: None,
        address_fault: None,
        certificate: None,
        certificate_fault: None,
    };
    let assigned = || settings.addresses.get(name).cloned().unwrap_or_default();
    let mut wants_any = false;
    for address in gateway.spec.addresses.iter().flatten() {
        let kind = address.r#type.as_deref().unwrap_or("IPAddress");
        let value = address.value.as_deref().unwrap_or("");
        if kind != "IPAddress" {
            state.fault = Some(ConditionFault::new(
                "UnsupportedAddress",
                format!("addresses of the type {kind} are not supported"),
            ));
        } else if value.is_empty() {
            wants_any = true;
        } else if let Ok(address) = value.parse::<IpAddr>() {
            if settings.usable_addresses.as_ref().is_some_and(|usable| !usable.contains(&address)) {
                state.address_fault = Some(ConditionFault::new(
                    "AddressNotUsable",
                    format!("{address} is no address of this controller"),
                ));
            } else {
                state.addresses.push(address);
            }
        } else {
            state.fault = Some(ConditionFault::new(
                "UnsupportedAddress",
                format!("\"{}\" is no IP address", value.escape_debug()),
            ));
        }
    }
    let asks = gateway.spec.addresses.as_ref().is_some_and(|addresses| !addresses.is_empty());
    if !asks || wants_any {
        state.addresses.extend(assigned());
    }
    state.addresses.sort();
    state.addresses.dedup();
    if state.addresses.is_empty() && (wants_any || state.address_fault.is_some()) && state.fault.is_none() {
        let fault = ConditionFault::new("AddressNotAssigned", "no address is assigned to this Gateway");
        state.address_fault = state.address_fault.or(Some(fault));
    }
    let infrastructure = gateway.spec.infrastructure.as_ref();
    if let Some(reference) = infrastructure.and_then(|infrastructure| infrastructure.parameters_ref.as_ref()) {
        let words = format!("infrastructure.parametersRef: {} is not supported", reference.kind);
        state.fault = Some(ConditionFault::new("InvalidParameters", words));
    }
    let backend = gateway.spec.tls.as_ref().and_then(|tls| tls.backend.as_ref());
    if let Some(reference) = backend.and_then(|backend| backend.client_certificate_ref.as_ref()) {
        let reference = api::SecretRef {
            group: reference.group.clone().unwrap_or_default(),
            kind: reference.kind.clone().unwrap_or_else(|| "Secret".into()),
            namespace: reference.namespace.clone(),
            name: reference.name.clone(),
        };
        let owner = Owner { kind: "Gateway", namespace: &name.namespace, name: &name.name };
        match files.certificate(set, owner, &reference, "InvalidClientCertificateRef") {
            Ok(file) => state.certificate = Some(file),
            Err(fault) => state.certificate_fault = Some(fault),
        }
    }
    state
}

/// Adds the listeners of the ListenerSets of a Gateway, the oldest first.
fn listener_sets(set: &ObjectSet, settings: &Settings, state: &mut ListenersState, gateway: usize) {
    for (name, object) in set.by_age::<ListenerSet>() {
        let parent = &object.spec.parent_ref;
        let namespace = parent.namespace.as_deref().unwrap_or(&name.namespace);
        let target = ObjectName::new(namespace, &parent.name);
        let is_gateway = parent.group.as_deref().unwrap_or(GROUP) == GROUP
            && parent.kind.as_deref().unwrap_or("Gateway") == "Gateway";
        let found = &state.gateways[gateway];
        if !is_gateway || target != found.name {
            continue;
        }
        let allowed: Namespaces = api::allowed_listeners(&found.object);
        let fault = if !allowed.admits(set, &found.name.namespace, &name.namespace) {
            Some(ConditionFault::new("NotAllowed", format!("Gateway {target} admits no ListenerSet of this namespace")))
        } else {
            found.fault.as_ref().map(|fault| ConditionFault::new("ParentNotAccepted", fault.message.clone()))
        };
        let is_admitted = fault.is_none();
        let generation = object.metadata.generation.unwrap_or(0);
        state.sets.push(SetState { name: name.clone(), generation, gateway, fault });
        if !is_admitted {
            continue;
        }
        let owner = ListenerOwner { kind: Kind::ListenerSet, name: name.clone() };
        for listener in &object.spec.listeners {
            let listener = check(set, settings, state, gateway, &owner, ListenerSpec::from(listener));
            state.listeners.push(listener);
        }
    }
}

fn check(
    set: &ObjectSet,
    settings: &Settings,
    state: &mut ListenersState,
    gateway: usize,
    owner: &ListenerOwner,
    spec: ListenerSpec,
) -> GatewayListener {
    let found = state.gateways[gateway].clone();
    let protocol = ListenerProtocol::parse(&spec.protocol);
    let mut listener = GatewayListener {
        owner: owner.clone(),
        gateway,
        protocol,
        hostname: HostName::Any,
        port: 0,
        kinds: Vec::new(),
        certificates: Vec::new(),
        client: None,
        sockets: Vec::new(),
        conflict: None,
        accepted: None,
        resolved: None,
        overlaps: false,
        attached: 0,
        spec,
    };
    let Some(protocol) = protocol else {
        let words = format!("the protocol {} is not supported", listener.spec.protocol.escape_debug());
        listener.accepted = Some(ConditionFault::new("UnsupportedProtocol", words));
        return listener;
    };
    match u16::try_from(listener.spec.port) {
        Ok(port) if settings.reserved_ports.contains(&port) => {
            listener.accepted =
                Some(ConditionFault::new("PortUnavailable", format!("port {port} belongs to the controller")));
        }
        Ok(port) if port > 0 => listener.port = port,
        _ => {
            listener.accepted =
                Some(ConditionFault::new("PortUnavailable", format!("{} is no port", listener.spec.port)))
        }
    }
    match HostName::parse(listener.spec.hostname.as_deref().unwrap_or("")) {
        Ok(name) => listener.hostname = name,
        Err(words) => listener.accepted = Some(ConditionFault::new("UnsupportedValue", words)),
    }
    if found.fault.is_none() && found.address_fault.is_none() {
        let addresses: Vec<Option<IpAddr>> = match found.addresses.is_empty() {
            true => vec![None],
            false => found.addresses.iter().copied().map(Some).collect(),
        };
        listener.sockets = addresses.into_iter().map(|address| ListenSocket { port: listener.port, address }).collect();
    }
    check_kinds(&mut listener, protocol);
    check_tls(set, state, &found, &mut listener, protocol);
    listener
}

fn check_kinds(listener: &mut GatewayListener, protocol: ListenerProtocol) {
    let possible = protocol.kinds();
    let Some(listed) = listener.spec.kinds.as_ref().filter(|listed| !listed.is_empty()) else {
        listener.kinds = possible.to_vec();
        return;
    };
    for (group, name) in listed {
        let kind = possible.iter().find(|kind| kind.name() == name && group.as_deref().unwrap_or(GROUP) == GROUP);
        match kind {
            Some(kind) if !listener.kinds.contains(kind) => listener.kinds.push(*kind),
            Some(_) => {}
            None => {
                let words = format!("{} cannot attach to {}", name.escape_debug(), listener.spec.protocol);
                listener.resolved = Some(ConditionFault::new("InvalidRouteKinds", words));
            }
        }
    }
}

fn check_tls(
    set: &ObjectSet,
    state: &mut ListenersState,
    gateway: &GatewayState,
    listener: &mut GatewayListener,
    protocol: ListenerProtocol,
) {
    let (spec, owner) = (listener.spec.clone(), listener.owner.clone());
    if !matches!(protocol, ListenerProtocol::Https | ListenerProtocol::Tls) {
        return;
    }
    if protocol == ListenerProtocol::Https && spec.tls.as_ref().is_some_and(|tls| tls.is_passthrough) {
        listener.accepted = Some(ConditionFault::new("UnsupportedValue", "HTTPS needs the TLS mode Terminate"));
        return;
    }
    if spec.tls.as_ref().is_some_and(|tls| tls.has_options) {
        let subject = Complaint::about(owner.kind, &owner.name.namespace, &owner.name.name, "");
        let reason = format!("listener {}: tls.options are left out", spec.name);
        state.complaints.push(Complaint { reason, ..subject });
    }
    if listener.is_passthrough() {
        return;
    }
    let owner = Owner { kind: owner.kind.name(), namespace: &owner.name.namespace, name: &owner.name.name };
    let references = spec.tls.as_ref().map(|tls| tls.certificates.clone()).unwrap_or_default();
    if references.is_empty() {
        listener.resolved = Some(ConditionFault::new("InvalidCertificateRef", "no certificate is named"));
    }
    for reference in &references {
        match state.files.certificate(set, owner, reference, "InvalidCertificateRef") {
            Ok(file) => listener.certificates.push(file),
            Err(fault) => listener.resolved = Some(fault),
        }
    }
    listener.certificates.dedup();
    if protocol != ListenerProtocol::Https {
        return;
    }
    if let Some(validation) = api::client_validation(&gateway.object, listener.spec.port) {
        let (client, fault) = state.files.client(set, &gateway.object, listener.spec.port, &validation);
        if let Some(fault) = &fault
            && client.is_none()
        {
            listener.accepted = Some(ConditionFault::new("NoValidCACertificate", fault.message.clone()));
        }
        listener.client = client;
        listener.resolved = listener.resolved.take().or(fault);
    }
}

/// Marks listeners that cannot share a port: first those that conflict with a listener of an object with precedence,
/// then, of those that are left, all that conflict with each other within one object.
fn find_conflicts(listeners: &mut [GatewayListener]) {
    let mut by_port: BTreeMap<(u16, bool), Vec<usize>> = BTreeMap::new();
    for (index, listener) in listeners.iter().enumerate() {
        let (Some(protocol), None) = (listener.protocol, &listener.accepted) else { continue };
        by_port.entry((listener.port, protocol == ListenerProtocol::Udp)).or_default().push(index);
    }
    for indexes in by_port.values() {
        let mut served: Vec<usize> = Vec::new();
        let owners = indexes.chunk_by(|a, b| listeners[*a].owner == listeners[*b].owner);
        let owners: Vec<Vec<usize>> = owners.map(<[usize]>::to_vec).collect();
        for own in owners {
            let with = |listeners: &[GatewayListener], index: usize, others: &[usize]| {
                let mut others = others.iter().filter(|other| **other != index);
                others.find_map(|other| conflict(&listeners[index], &listeners[*other]))
            };
            let mut left: Vec<usize> = Vec::new();
            for index in own {
                match with(listeners, index, &served) {
                    Some(fault) => listeners[index].conflict = Some(fault),
                    None => left.push(index),
                }
            }
            let faults: Vec<Option<ConditionFault>> = left.iter().map(|index| with(listeners, *index, &left)).collect();
            for (index, fault) in left.into_iter().zip(faults) {
                match fault {
                    Some(fault) => listeners[index].conflict = Some(fault),
                    None => served.push(index),
                }
            }
        }
    }
}

fn conflict(listener: &GatewayListener, other: &GatewayListener) -> Option<ConditionFault> {
    // Gateways with addresses of their own share no socket.
    let same_gateway = listener.gateway == other.gateway;
    let shares = same_gateway || listener.sockets.iter().any(|socket| other.sockets.contains(socket));
    let (a, b) = (listener.protocol?, other.protocol?);
    // The areas of a configuration cannot share a port, not even on all addresses and on one of them.
    let is_everywhere = |listener: &GatewayListener| listener.sockets.iter().any(|socket| socket.address.is_none());
    let is_stream = |protocol: ListenerProtocol| matches!(protocol, ListenerProtocol::Tls | ListenerProtocol::Tcp);
    let crosses = (is_everywhere(listener) || is_everywhere(other)) && is_stream(a) != is_stream(b);
    if !shares && !crosses {
        return None;
    }
    let place = format!("listener {} of {} {}", other.spec.name, other.owner.kind.name(), other.owner.name);
    if a.family() != b.family() || (crosses && !shares) {
        let words = format!("port {} has another protocol in {place}", listener.port);
        return Some(ConditionFault::new("ProtocolConflict", words));
    }
    if listener.hostname == other.hostname {
        let words = format!("port {} has the same host in {place}", listener.port);
        return Some(ConditionFault::new("HostnameConflict", words));
    }
    None
}

/// Marks listeners with TLS whose hosts overlap with those of another one on their port.
fn find_overlaps(listeners: &mut [GatewayListener]) {
    let has_tls =
        |listener: &GatewayListener| matches!(listener.protocol, Some(ListenerProtocol::Https | ListenerProtocol::Tls));
    let overlapping: Vec<bool> = listeners
        .iter()
        .enumerate()
        .map(|(index, listener)| {
            has_tls(listener)
                && listeners.iter().enumerate().any(|(other_index, other)| {
                    other_index != index
                        && has_tls(other)
                        && other.port == listener.port
                        && other.gateway == listener.gateway
                        && other.hostname.intersection(&listener.hostname).is_some()
                })
        })
        .collect();
    for (listener, overlaps) in listeners.iter_mut().zip(overlapping) {
        listener.overlaps = overlaps;
    }
}
