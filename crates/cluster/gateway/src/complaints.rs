//! One line for everything that is left out.

use std::collections::BTreeSet;

use cluster_objects::Complaint;

use crate::compiled::CompiledRoute;
use crate::conditions::ObjectCondition;
use crate::status::Statuses;

/// Conditions that are good news when they do not hold.
const GOOD_WHEN_FALSE: &[&str] =
    &["Conflicted", "OverlappingTLSConfig", "PartiallyInvalid", "InsecureFrontendValidationMode"];

/// Collects the complaints of statuses and translators, in order and without duplicates.
pub(crate) fn collect(
    statuses: &Statuses,
    listeners: Vec<Complaint>,
    routes: &[CompiledRoute],
    backends: Vec<Complaint>,
) -> Vec<Complaint> {
    let mut found: BTreeSet<Complaint> = listeners.into_iter().chain(backends).collect();
    let mut add = |kind: &str, name: &str, place: &str, conditions: &[ObjectCondition]| {
        for condition in conditions {
            let is_bad = match condition.r#type {
                "PartiallyInvalid" => condition.is_true(),
                kind if GOOD_WHEN_FALSE.contains(&kind) => false,
                "Programmed" => false,
                _ => !condition.is_true(),
            };
            if !is_bad {
                continue;
            }
            let subject = match name.split_once('/') {
                Some((namespace, name)) => format!("{namespace}/{kind} {name}"),
                None => format!("{kind} {name}"),
            };
            let ObjectCondition { reason, message, .. } = condition;
            let words = if message.is_empty() { (*reason).to_owned() } else { format!("{reason}: {message}") };
            found.insert(Complaint { subject, reason: format!("{place}{words}") });
        }
    };
    for (name, status) in &statuses.classes {
        add("GatewayClass", name, "", &status.conditions);
    }
    for (name, status) in &statuses.gateways {
        // Listeners say it themselves.
        let own: Vec<ObjectCondition> = status
            .conditions
            .iter()
            .filter(|condition| !matches!(condition.reason, "ListenersNotValid" | "ListenersNotResolved"))
            .cloned()
            .collect();
        add("Gateway", name, "", &own);
        for listener in &status.listeners {
            add("Gateway", name, &format!("listener {}: ", listener.name), &listener.conditions);
        }
    }
    for (name, status) in &statuses.listener_sets {
        let own: Vec<ObjectCondition> =
            status.conditions.iter().filter(|condition| condition.reason != "ListenersNotValid").cloned().collect();
        add("ListenerSet", name, "", &own);
        for listener in &status.listeners {
            add("ListenerSet", name, &format!("listener {}: ", listener.name), &listener.conditions);
        }
    }
    for (name, parents) in &statuses.routes {
        let Some((kind, name)) = name.split_once(' ') else { continue };
        for parent in parents {
            add(kind, name, "", &parent.conditions);
        }
    }
    for (name, ancestors) in &statuses.policies {
        for ancestor in ancestors {
            add("BackendTLSPolicy", name, "", &ancestor.conditions);
        }
    }
    for route in routes {
        for words in &route.compiled.leftovers {
            found.insert(Complaint::about(route.kind, &route.name.namespace, &route.name.name, words));
        }
    }
    found.into_iter().collect()
}
