//! Conditions of Gateways, ListenerSets and their listeners.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cluster_model::ClientMode;
use cluster_objects::Kind;

use crate::api::GROUP;
use crate::conditions::{ConditionFault, ObjectCondition};
use crate::listeners::{GatewayListener, GatewayState, ListenersState, SetState};
use crate::status::{GatewayStatus, ListenerSetStatus, ListenerStatus, RouteKindStatus, Statuses};

/// Writes the conditions of Gateways, ListenerSets and listeners.
pub(crate) fn write(state: &ListenersState, statuses: &mut Statuses) {
    for (index, gateway) in state.gateways.iter().enumerate() {
        let generation = gateway.object.metadata.generation.unwrap_or(0);
        let own: Vec<&GatewayListener> = state
            .listeners
            .iter()
            .filter(|listener| listener.gateway == index && listener.owner.kind == Kind::Gateway)
            .collect();
        let all = || state.listeners.iter().filter(|listener| listener.gateway == index);
        let mut conditions = vec![match &gateway.fault {
            Some(fault) => ObjectCondition::bad("Accepted", fault, generation),
            None => accepted(&own, generation, all().any(GatewayListener::is_served)),
        }];
        let fault = gateway.fault.as_ref().map(|fault| ConditionFault::new("Invalid", fault.message.clone()));
        let fault = fault.or_else(|| gateway.address_fault.clone()).or_else(|| {
            (!all().any(GatewayListener::is_served)).then(|| ConditionFault::new("Invalid", "no listener is served"))
        });
        conditions.push(ObjectCondition::of("Programmed", "Programmed", fault.as_ref(), generation));
        let unresolved = own.iter().find(|listener| listener.resolved.is_some());
        let fault = gateway.certificate_fault.clone().or_else(|| {
            unresolved
                .map(|listener| ConditionFault::new("ListenersNotResolved", format!("listener {}", listener.spec.name)))
        });
        conditions.push(ObjectCondition::of("ResolvedRefs", "ResolvedRefs", fault.as_ref(), generation));
        let is_insecure = |listener: &GatewayListener| {
            listener.client.as_ref().is_some_and(|client| client.mode == ClientMode::Unverified)
        };
        if all().any(is_insecure) {
            let words = "clients without a valid certificate are accepted";
            let fault = ConditionFault::new("ConfigurationChanged", words);
            conditions.push(ObjectCondition::raised("InsecureFrontendValidationMode", &fault, generation));
        }
        let infrastructure = gateway.object.spec.infrastructure.clone().unwrap_or_default();
        let status = GatewayStatus {
            addresses: gateway.addresses.iter().map(IpAddr::to_string).collect(),
            attached_listener_sets: state
                .sets
                .iter()
                .filter(|set| set.gateway == index && is_attached(state, set))
                .count(),
            conditions,
            listeners: own.iter().map(|listener| listener_status(gateway, listener, generation)).collect(),
            infrastructure_labels: infrastructure.labels.unwrap_or_default(),
            infrastructure_annotations: infrastructure.annotations.unwrap_or_default(),
        };
        statuses.gateways.insert(gateway.name.to_string(), status);
    }
    for found in &state.sets {
        let own: Vec<&GatewayListener> = set_listeners(state, found).collect();
        let generation = found.generation;
        let is_served = is_attached(state, found);
        let conditions = match &found.fault {
            Some(fault) => {
                vec![
                    ObjectCondition::bad("Accepted", fault, generation),
                    ObjectCondition::bad("Programmed", fault, generation),
                ]
            }
            None => {
                let fault = (!is_served).then(|| ConditionFault::new("ListenersNotValid", "no listener is served"));
                let programmed = ObjectCondition::of("Programmed", "Programmed", fault.as_ref(), generation);
                // Also without a certificate: unlike a Gateway, a set is accepted for its listeners alone.
                let accepted = match &fault {
                    Some(fault) => ObjectCondition::bad("Accepted", fault, generation),
                    None => accepted(&own, generation, true),
                };
                vec![accepted, programmed]
            }
        };
        let gateway = &state.gateways[found.gateway];
        let listeners = own.iter().map(|listener| listener_status(gateway, listener, generation)).collect();
        statuses.listener_sets.insert(found.name.to_string(), ListenerSetStatus { conditions, listeners });
    }
}

fn set_listeners<'a>(state: &'a ListenersState, set: &'a SetState) -> impl Iterator<Item = &'a GatewayListener> {
    let is_own =
        |listener: &&GatewayListener| listener.owner.kind == Kind::ListenerSet && listener.owner.name == set.name;
    state.listeners.iter().filter(is_own)
}

/// Tells whether a set is accepted: one of its listeners is served.
fn is_attached(state: &ListenersState, set: &SetState) -> bool {
    set.fault.is_none() && set_listeners(state, set).any(GatewayListener::is_served)
}

fn accepted(listeners: &[&GatewayListener], generation: i64, is_served: bool) -> ObjectCondition {
    let broken: BTreeSet<&str> = listeners
        .iter()
        .filter(|listener| listener.accepted.is_some() || listener.conflict.is_some())
        .map(|listener| listener.spec.name.as_str())
        .collect();
    if broken.is_empty() {
        return ObjectCondition::good("Accepted", "Accepted", generation);
    }
    let names: Vec<&str> = broken.into_iter().collect();
    let fault = ConditionFault::new("ListenersNotValid", format!("not valid: {}", names.join(", ")));
    match is_served {
        true => ObjectCondition::raised("Accepted", &fault, generation),
        false => ObjectCondition::bad("Accepted", &fault, generation),
    }
}

fn listener_status(gateway: &GatewayState, listener: &GatewayListener, generation: i64) -> ListenerStatus {
    let mut conditions = Vec::new();
    let invalid = |fault: &ConditionFault| ConditionFault::new("Invalid", fault.message.clone());
    match (&listener.conflict, &listener.accepted) {
        (Some(conflict), _) => {
            conditions.push(ObjectCondition::bad("Accepted", conflict, generation));
            conditions.push(ObjectCondition::raised("Conflicted", conflict, generation));
        }
        (None, fault) => {
            conditions.push(ObjectCondition::of("Accepted", "Accepted", fault.as_ref(), generation));
            let none = ConditionFault::new("NoConflicts", "");
            conditions.push(ObjectCondition::bad("Conflicted", &none, generation));
        }
    }
    conditions.push(ObjectCondition::of("ResolvedRefs", "ResolvedRefs", listener.resolved.as_ref(), generation));
    let lacks_certificate = listener.lacks_certificate().then(|| ConditionFault::new("Invalid", "no certificate"));
    let fault = listener.conflict.clone().or_else(|| listener.accepted.as_ref().map(invalid));
    let fault = fault
        .or(lacks_certificate)
        .or_else(|| gateway.fault.as_ref().map(invalid))
        .or_else(|| gateway.address_fault.as_ref().map(|fault| ConditionFault::new("Pending", fault.message.clone())));
    conditions.push(ObjectCondition::of("Programmed", "Programmed", fault.as_ref(), generation));
    if listener.overlaps {
        let fault =
            ConditionFault::new("OverlappingHostnames", "another listener with TLS on this port has some of the hosts");
        conditions.push(ObjectCondition::raised("OverlappingTLSConfig", &fault, generation));
    }
    ListenerStatus {
        name: listener.spec.name.clone(),
        attached_routes: listener.attached,
        supported_kinds: listener
            .kinds
            .iter()
            .map(|kind| RouteKindStatus { group: GROUP, kind: kind.name() })
            .collect(),
        conditions,
    }
}
