//! Parents of routes: which listeners a route attaches to, and why not to others.

use cluster_model::HostName;
use cluster_objects::{Kind, ObjectName, ObjectSet};

use crate::api::GROUP;
use crate::conditions::ConditionFault;
use crate::listeners::ListenersState;
use crate::status::ParentReference;

/// A parent of a route, with the listeners that take it.
#[derive(Clone, Debug)]
pub(crate) struct Attachment {
    pub parent: ParentReference,
    /// Gateway of the parent, as an index.
    pub gateway: usize,
    /// Index of each listener, with the hosts that it shares with the route.
    pub listeners: Vec<(usize, Vec<HostName>)>,
    /// Reason why no listener takes the route.
    pub fault: Option<ConditionFault>,
}

/// Finds the listeners of each parent that is ours. `hosts` is empty for routes without names and for those that name none.
pub(crate) fn attach(
    set: &ObjectSet,
    state: &ListenersState,
    kind: Kind,
    route: &ObjectName,
    parents: &[ParentReference],
    hosts: &[HostName],
) -> Vec<Attachment> {
    parents.iter().filter_map(|parent| attach_to(set, state, kind, route, parent, hosts)).collect()
}

fn attach_to(
    set: &ObjectSet,
    state: &ListenersState,
    kind: Kind,
    route: &ObjectName,
    parent: &ParentReference,
    hosts: &[HostName],
) -> Option<Attachment> {
    if parent.group.as_deref().unwrap_or(GROUP) != GROUP {
        return None;
    }
    let namespace = parent.namespace.as_deref().unwrap_or(&route.namespace);
    let name = ObjectName::new(namespace, &parent.name);
    let owner_kind = match parent.kind.as_deref().unwrap_or("Gateway") {
        "Gateway" => Kind::Gateway,
        "ListenerSet" => Kind::ListenerSet,
        _ => return None,
    };
    let gateway = match owner_kind {
        Kind::Gateway => state.gateways.iter().position(|gateway| gateway.name == name)?,
        _ => state.listeners.iter().find(|one| one.owner.kind == owner_kind && one.owner.name == name)?.gateway,
    };
    let mut attachment = Attachment { parent: parent.clone(), gateway, listeners: Vec::new(), fault: None };
    let named: Vec<usize> = state
        .listeners
        .iter()
        .enumerate()
        .filter(|(_, listener)| listener.owner.kind == owner_kind && listener.owner.name == name)
        .filter(|(_, listener)| parent.section_name.as_ref().is_none_or(|name| *name == listener.spec.name))
        .filter(|(_, listener)| parent.port.is_none_or(|port| port == listener.spec.port))
        .map(|(index, _)| index)
        .collect();
    if named.is_empty() {
        attachment.fault = Some(ConditionFault::new("NoMatchingParent", "no listener has this name and port"));
        return Some(attachment);
    }
    let mut is_allowed = false;
    for index in named {
        let listener = &state.listeners[index];
        let admits = listener.spec.namespaces.admits(set, &listener.owner.name.namespace, &route.namespace);
        if !admits || !listener.kinds.contains(&kind) {
            continue;
        }
        is_allowed = true;
        let mut shared: Vec<HostName> = match hosts.is_empty() {
            true => vec![listener.hostname.clone()],
            false => hosts.iter().filter_map(|host| listener.hostname.intersection(host)).collect(),
        };
        shared.sort();
        shared.dedup();
        if !shared.is_empty() {
            attachment.listeners.push((index, shared));
        }
    }
    if attachment.listeners.is_empty() {
        attachment.fault = Some(match is_allowed {
            true => ConditionFault::new("NoMatchingListenerHostname", "no listener has one of the hosts"),
            false => ConditionFault::new("NotAllowedByListeners", "no listener allows this kind and namespace"),
        });
    }
    Some(attachment)
}
