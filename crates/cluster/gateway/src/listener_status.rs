//! Conditions of Gateways, ListenerSets and their listeners.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cluster_model::ClientMode;
use cluster_objects::Kind;

use crate::api::GROUP;
use crate::conditions::{Condition, Fault};
use crate::listeners::{GatewayState, Listener, SetState, State};
use crate::status::{GatewayStatus, ListenerSetStatus, ListenerStatus, RouteKindStatus, Statuses};

/// Writes the conditions of Gateways, ListenerSets and listeners.
pub(crate) fn write(state: &State, statuses: &mut Statuses) {
    for (index, gateway) in state.gateways.iter().enumerate() {
        let generation = gateway.object.metadata.generation.unwrap_or(0);
        let own: Vec<&Listener> = state
            .listeners
            .iter()
            .filter(|listener| listener.gateway == index && listener.owner.kind == Kind::Gateway)
            .collect();
        let all = || state.listeners.iter().filter(|listener| listener.gateway == index);
        let mut conditions = vec![match &gateway.fault {
            Some(fault) => Condition::bad("Accepted", fault, generation),
            None => accepted(&own, generation, all().any(Listener::is_served)),
        }];
        let fault = gateway.fault.as_ref().map(|fault| Fault::new("Invalid", fault.message.clone()));
        let fault = fault
            .or_else(|| gateway.address_fault.clone())
            .or_else(|| (!all().any(Listener::is_served)).then(|| Fault::new("Invalid", "no listener is served")));
        conditions.push(Condition::of("Programmed", "Programmed", fault.as_ref(), generation));
        let unresolved = own.iter().find(|listener| listener.resolved.is_some());
        let fault = gateway.certificate_fault.clone().or_else(|| {
            unresolved.map(|listener| Fault::new("ListenersNotResolved", format!("listener {}", listener.spec.name)))
        });
        conditions.push(Condition::of("ResolvedRefs", "ResolvedRefs", fault.as_ref(), generation));
        let is_insecure =
            |listener: &Listener| listener.client.as_ref().is_some_and(|client| client.mode == ClientMode::Unverified);
        if all().any(is_insecure) {
            let words = "clients without a valid certificate are accepted";
            let fault = Fault::new("ConfigurationChanged", words);
            conditions.push(Condition::raised("InsecureFrontendValidationMode", &fault, generation));
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
        let own: Vec<&Listener> = set_listeners(state, found).collect();
        let generation = found.generation;
        let is_served = is_attached(state, found);
        let conditions = match &found.fault {
            Some(fault) => {
                vec![Condition::bad("Accepted", fault, generation), Condition::bad("Programmed", fault, generation)]
            }
            None => {
                let fault = (!is_served).then(|| Fault::new("ListenersNotValid", "no listener is served"));
                let programmed = Condition::of("Programmed", "Programmed", fault.as_ref(), generation);
                // Also without a certificate: unlike a Gateway, a set is accepted for its listeners alone.
                let accepted = match &fault {
                    Some(fault) => Condition::bad("Accepted", fault, generation),
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

fn set_listeners<'a>(state: &'a State, set: &'a SetState) -> impl Iterator<Item = &'a Listener> {
    let is_own = |listener: &&Listener| listener.owner.kind == Kind::ListenerSet && listener.owner.name == set.name;
    state.listeners.iter().filter(is_own)
}

/// Tells whether a set is accepted: one of its listeners is served.
fn is_attached(state: &State, set: &SetState) -> bool {
    set.fault.is_none() && set_listeners(state, set).any(Listener::is_served)
}

fn accepted(listeners: &[&Listener], generation: i64, is_served: bool) -> Condition {
    let broken: BTreeSet<&str> = listeners
        .iter()
        .filter(|listener| listener.accepted.is_some() || listener.conflict.is_some())
        .map(|listener| listener.spec.name.as_str())
        .collect();
    if broken.is_empty() {
        return Condition::good("Accepted", "Accepted", generation);
    }
    let names: Vec<&str> = broken.into_iter().collect();
    let fault = Fault::new("ListenersNotValid", format!("not valid: {}", names.join(", ")));
    match is_served {
        true => Condition::raised("Accepted", &fault, generation),
        false => Condition::bad("Accepted", &fault, generation),
    }
}

fn listener_status(gateway: &GatewayState, listener: &Listener, generation: i64) -> ListenerStatus {
    let mut conditions = Vec::new();
    let invalid = |fault: &Fault| Fault::new("Invalid", fault.message.clone());
    match (&listener.conflict, &listener.accepted) {
        (Some(conflict), _) => {
            conditions.push(Condition::bad("Accepted", conflict, generation));
            conditions.push(Condition::raised("Conflicted", conflict, generation));
        }
        (None, fault) => {
            conditions.push(Condition::of("Accepted", "Accepted", fault.as_ref(), generation));
            let none = Fault::new("NoConflicts", "");
            conditions.push(Condition::bad("Conflicted", &none, generation));
        }
    }
    conditions.push(Condition::of("ResolvedRefs", "ResolvedRefs", listener.resolved.as_ref(), generation));
    let lacks_certificate = listener.lacks_certificate().then(|| Fault::new("Invalid", "no certificate"));
    let fault = listener.conflict.clone().or_else(|| listener.accepted.as_ref().map(invalid));
    let fault = fault
        .or(lacks_certificate)
        .or_else(|| gateway.fault.as_ref().map(invalid))
        .or_else(|| gateway.address_fault.as_ref().map(|fault| Fault::new("Pending", fault.message.clone())));
    conditions.push(Condition::of("Programmed", "Programmed", fault.as_ref(), generation));
    if listener.overlaps {
        let fault = Fault::new("OverlappingHostnames", "another listener with TLS on this port has some of the hosts");
        conditions.push(Condition::raised("OverlappingTLSConfig", &fault, generation));
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
