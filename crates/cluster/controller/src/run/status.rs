//! Statuses of all objects in the form of the API, merged with the entries of other controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster_gateway::{ConditionStatus, GatewayStatus, ListenerStatus, ObjectCondition, Statuses};
use cluster_objects::{Kind, ObjectName};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::addresses::PublishedAddresses;
use super::provisioning::PodTemplate;
use super::store::{Live, ObjectKey, Snapshot};

/// Bytes of a condition's message at most, as the definitions have it.
const MESSAGE_MAX: usize = 32_000;
/// Addresses of a Gateway, and ancestors of a policy, at most.
const LIST_MAX: usize = 16;

/// Facts beside the translation.
pub struct Context<'a> {
    pub controller_name: &'a str,
    /// The server's complaints, if it keeps its old configuration.
    pub refused: Option<&'a [String]>,
    /// Addresses of Ingresses, and of Gateways that have none themselves.
    pub published: &'a PublishedAddresses,
    /// Ingresses of this controller's classes.
    pub ingresses: &'a BTreeSet<ObjectName>,
    /// Name under which this controller writes.
    pub manager: &'a str,
    /// Gateways have pods and Services of their own.
    pub template: Option<&'a PodTemplate>,
    /// Services with an endpoint that takes requests, if there is a template.
    pub ready: &'a BTreeSet<ObjectName>,
}

/// Status that an object should have.
#[derive(Debug, PartialEq)]
pub struct StatusWrite {
    pub key: ObjectKey,
    pub live: Arc<Live>,
    pub status: Value,
}

/// Returns the statuses that differ from those of the API server. Objects that changed since the translation are left to
/// the next one.
pub fn status_differences(
    statuses: &Statuses,
    translated: &Snapshot,
    now: &BTreeMap<ObjectKey, Arc<Live>>,
    context: &Context<'_>,
) -> Vec<StatusWrite> {
    let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut writes = Vec::new();
    for (key, live) in now {
        let is_current = translated.live.get(key).is_some_and(|old| old.generation == live.generation);
        let wanted = is_current.then(|| wanted(statuses, translated, key, live, context)).flatten();
        let Some(mut status) = wanted else { continue };
        keep_times(&mut status, &live.status, &time);
        if status != live.status {
            writes.push(StatusWrite { key: key.clone(), live: live.clone(), status });
        }
    }
    writes
}

/// Returns the whole status of an object; `None` if it is none of ours.
fn wanted(
    statuses: &Statuses,
    snapshot: &Snapshot,
    key: &ObjectKey,
    live: &Live,
    context: &Context<'_>,
) -> Option<Value> {
    let (kind, name) = key;
    let full = name.to_string();
    let mut status = live.status.as_object().cloned().unwrap_or_default();
    match kind {
        Kind::GatewayClass => {
            let class = statuses.classes.get(&full)?;
            let features: Vec<Value> = class.supported_features.iter().map(|name| json!({ "name": name })).collect();
            set(&mut status, "conditions", &class.conditions);
            status.insert("supportedFeatures".into(), features.into());
        }
        Kind::Gateway => {
            let mut gateway = statuses.gateways.get(&full)?.clone();
            let own = context.template.map(|template| PublishedAddresses::of_service(template.service_of(name)));
            match &own {
                // Another server serves it.
                Some(own) => await_pods(
                    &mut gateway,
                    own.service.as_ref().is_some_and(|service| context.ready.contains(service)),
                ),
                None => {
                    refuse(&mut gateway.conditions, context.refused);
                    refuse_listeners(&mut gateway.listeners, context.refused);
                }
            }
            let mut all: Vec<(&str, String)> =
                gateway.addresses.iter().map(|address| ("IPAddress", address.clone())).collect();
            if all.is_empty() {
                all = own.as_ref().unwrap_or(context.published).addresses(snapshot);
            }
            let all = all.iter().take(LIST_MAX).map(|(kind, value)| json!({ "type": kind, "value": value }));
            status.insert("addresses".into(), all.collect());
            set(&mut status, "conditions", &gateway.conditions);
            set(&mut status, "listeners", &gateway.listeners);
            status.insert("attachedListenerSets".into(), gateway.attached_listener_sets.into());
        }
        Kind::ListenerSet => {
            let mut found = statuses.listener_sets.get(&full)?.clone();
            refuse(&mut found.conditions, context.refused);
            refuse_listeners(&mut found.listeners, context.refused);
            set(&mut status, "conditions", &found.conditions);
            set(&mut status, "listeners", &found.listeners);
        }
        Kind::HttpRoute | Kind::GrpcRoute | Kind::TlsRoute | Kind::TcpRoute | Kind::UdpRoute => {
            let parents = statuses.routes.get(&format!("{} {full}", kind.name()));
            merge_list(&mut status, "parents", parents.map(Vec::as_slice), context, usize::MAX)?;
        }
        Kind::BackendTlsPolicy => {
            let ancestors = statuses.policies.get(&full);
            merge_list(&mut status, "ancestors", ancestors.map(Vec::as_slice), context, LIST_MAX)?;
        }
        Kind::Ingress => {
            let addresses = ingress_addresses(snapshot, name, live, context)?;
            status.insert("loadBalancer".into(), json!({ "ingress": addresses }));
        }
        _ => return None,
    }
    let mut status = Value::Object(status);
    shorten(&mut status);
    Some(status)
}

/// Returns the entries of `status.loadBalancer.ingress`; `None` if they stay as they are. Those of an Ingress that is not ours any more
/// are removed, unless another controller has written them since.
fn ingress_addresses(snapshot: &Snapshot, name: &ObjectName, live: &Live, context: &Context<'_>) -> Option<Vec<Value>> {
    let ours = context.ingresses.contains(name).then(|| context.published.of_ingresses(snapshot)).flatten();
    if ours.is_none() && live.addresses_manager.as_deref() != Some(context.manager) {
        return None;
    }
    let one = |(kind, value): &(&str, String)| match *kind {
        "Hostname" => json!({ "hostname": value }),
        _ => json!({ "ip": value }),
    };
    let list: Vec<Value> = ours.iter().flatten().take(LIST_MAX).map(one).collect();
    let old = live.status.pointer("/loadBalancer/ingress").and_then(Value::as_array);
    (old.map_or(&[][..], Vec::as_slice) != list.as_slice()).then_some(list)
}

/// Replaces the entries of this controller; those of others stay in their places. `None` if there are none of ours.
fn merge_list<T: Serialize>(
    status: &mut Map<String, Value>,
    name: &str,
    ours: Option<&[T]>,
    context: &Context<'_>,
    max: usize,
) -> Option<()> {
    let is_ours = |entry: &Value| entry.get("controllerName").and_then(Value::as_str) == Some(context.controller_name);
    let old = status.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let had_ours = old.iter().any(is_ours);
    let ours = ours.unwrap_or_default();
    if ours.is_empty() && !had_ours {
        return None;
    }
    let mut list: Vec<Value> = old.into_iter().filter(|entry| !is_ours(entry)).collect();
    list.extend(ours.iter().filter_map(|entry| serde_json::to_value(entry).ok()));
    list.truncate(max);
    status.insert(name.into(), list.into());
    Some(())
}

fn set<T: Serialize>(status: &mut Map<String, Value>, name: &str, value: &T) {
    status.insert(name.into(), serde_json::to_value(value).unwrap_or_default());
}

/// Says in `Programmed` that the server keeps its old configuration.
fn refuse(conditions: &mut [ObjectCondition], refused: Option<&[String]>) {
    let Some(complaints) = refused else { return };
    for condition in conditions.iter_mut().filter(|condition| condition.r#type == "Programmed" && condition.is_true()) {
        condition.status = ConditionStatus::False;
        condition.reason = "Invalid";
        condition.message = format!("the server keeps its old configuration: {}", complaints.join("; "));
    }
}

/// Says in `Programmed` that no pod of the Gateway serves yet.
fn await_pods(gateway: &mut GatewayStatus, is_ready: bool) {
    let conditions = gateway.conditions.iter_mut();
    let all = conditions.chain(gateway.listeners.iter_mut().flat_map(|listener| &mut listener.conditions));
    for condition in all.filter(|condition| !is_ready && condition.r#type == "Programmed" && condition.is_true()) {
        condition.status = ConditionStatus::False;
        condition.reason = "Pending";
        condition.message = "no pod of the Gateway is ready".into();
    }
}

fn refuse_listeners(listeners: &mut [ListenerStatus], refused: Option<&[String]>) {
    listeners.iter_mut().for_each(|listener| refuse(&mut listener.conditions, refused));
}

fn shorten(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(message)) = object.get_mut("message") {
                while message.len() > MESSAGE_MAX {
                    message.truncate(message.floor_char_boundary(MESSAGE_MAX));
                }
            }
            object.values_mut().for_each(shorten);
        }
        Value::Array(list) => list.iter_mut().for_each(shorten),
        _ => {}
    }
}

/// Sets `lastTransitionTime` of all conditions: the old time if the old condition has the same state, otherwise now.
/// Entries of lists are found by the members that name them.
fn keep_times(wanted: &mut Value, old: &Value, now: &str) {
    match wanted {
        Value::Object(object) if is_condition(object) => {
            let same = old.get("status") == object.get("status");
            let kept = old.get("lastTransitionTime").filter(|_| same).cloned();
            object.entry("lastTransitionTime").or_insert_with(|| kept.unwrap_or_else(|| now.into()));
        }
        Value::Object(object) => {
            for (name, value) in object {
                keep_times(value, old.get(name).unwrap_or(&Value::Null), now);
            }
        }
        Value::Array(list) => {
            let empty = Vec::new();
            let olds = old.as_array().unwrap_or(&empty);
            for value in list {
                let same = olds.iter().find(|old| identity(old) == identity(value));
                keep_times(value, same.unwrap_or(&Value::Null), now);
            }
        }
        _ => {}
    }
}

fn is_condition(object: &Map<String, Value>) -> bool {
    ["type", "status", "reason"].iter().all(|name| object.contains_key(*name))
}

fn identity(value: &Value) -> [Option<&Value>; 5] {
    ["type", "name", "parentRef", "ancestorRef", "controllerName"].map(|name| value.get(name))
}
