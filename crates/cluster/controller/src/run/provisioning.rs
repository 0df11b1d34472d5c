//! Objects of a Gateway that has pods of its own: a Deployment and a Service, made of a pod template.
//!
//! They are in the namespace of the controller: pods with its account can read all Secrets, and who may create pods in
//! the Gateway's namespace could use that account there (decision 0162).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use aws_lc_rs::digest;
use cluster_gateway::{GatewayStatus, ListenerStatus, ObjectCondition, Statuses, is_ours};
use cluster_objects::types::{Gateway, ListenerSet};
use cluster_objects::{Complaint, Kind, ObjectName, ObjectSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Map, Value, json};

use super::store::Snapshot;

/// Bytes of the file with the pod template at most.
const TEMPLATE_MAX: u64 = 1 << 20;
/// Bytes of a label's value, and of the name of a Service, at most.
const LABEL_MAX: usize = 63;
/// Label with the name of the objects: the selector of the pods.
const SELECTOR_LABEL: &str = "tidegate.invalid/gateway";
/// Label with the installation that has made an object.
pub const OWNER_LABEL: &str = "tidegate.invalid/provisioned-by";
/// Label with the name of the Gateway, as Gateway API defines it.
const GATEWAY_LABEL: &str = "gateway.networking.k8s.io/gateway-name";
const NAMESPACE_LABEL: &str = "tidegate.invalid/gateway-namespace";

/// Port and protocol (`TCP`, `UDP`) of a Service.
pub type ServicePort = (u16, &'static str);

/// Ports of the listeners of each Gateway that has pods of its own; none if no listener is valid.
pub type GatewayPorts = BTreeMap<ObjectName, BTreeSet<ServicePort>>;

/// Template of pods, and the place of the objects.
#[derive(Clone, Debug)]
pub struct PodTemplate {
    /// A `PodTemplateSpec` with the containers `tidegate` and `controller`.
    pod: Value,
    /// Namespace of the controller.
    pub namespace: String,
    /// Installation: the name of its Lease.
    pub owner: String,
}

/// Objects of one Gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Provision {
    pub name: String,
    pub deployment: Value,
    pub service: Value,
}

impl PodTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// If the file is no `PodTemplateSpec` with a container `controller` that has a command.
    pub fn read(path: &Path, namespace: &str, owner: &str) -> Result<PodTemplate, String> {
        let error = |words: String| format!("{}: {words}", path.display());
        let length = std::fs::metadata(path).map_err(|cause| error(cause.to_string()))?.len();
        if length > TEMPLATE_MAX {
            return Err(error(format!("longer than {TEMPLATE_MAX} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|cause| error(cause.to_string()))?;
        PodTemplate::parse(&text, namespace, owner).map_err(error)
    }

    /// Parses the text of a template, in YAML or JSON.
    ///
    /// # Errors
    /// As [`PodTemplate::read`].
    pub fn parse(text: &str, namespace: &str, owner: &str) -> Result<PodTemplate, String> {
        let pod: Value = serde_saphyr::from_str(text).map_err(|cause| cause.to_string())?;
        serde_json::from_value::<PodTemplateSpec>(pod.clone()).map_err(|cause| cause.to_string())?;
        let is_complete = container(&pod, "tidegate").is_some()
            && container(&pod, "controller").is_some_and(|controller| controller["command"].is_array());
        if !is_complete {
            return Err("a pod template needs the containers tidegate and controller, with their commands".into());
        }
        Ok(PodTemplate { pod, namespace: namespace.into(), owner: label(owner) })
    }

    /// Returns the name of the Service of a Gateway.
    pub fn service_of(&self, gateway: &ObjectName) -> ObjectName {
        ObjectName::new(&self.namespace, &provision_name(gateway))
    }

    /// Makes the objects of a Gateway.
    pub fn provision(
        &self,
        gateway: &ObjectName,
        status: &GatewayStatus,
        ports: &BTreeSet<ServicePort>,
        snapshot: &Snapshot,
    ) -> Provision {
        let name = provision_name(gateway);
        let metadata = self.metadata(gateway, &name, status, snapshot);
        let mut pod = self.pod.clone();
        let members = entry(&mut pod, "metadata");
        extend(entry(members, "labels"), &metadata["labels"]);
        extend(entry(members, "annotations"), &metadata["annotations"]);
        if let Some(Value::Array(command)) = container_mut(&mut pod, "controller").map(|one| &mut one["command"]) {
            command.push(format!("--gateway={gateway}").into());
        }
        let selector = json!({ SELECTOR_LABEL: name });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            // Without a number of replicas: an autoscaler may own it.
            "spec": {
                "selector": { "matchLabels": selector },
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } },
                "template": pod,
            },
        });
        let ports = ports.iter().map(|(port, protocol)| {
            let name = format!("{}-{port}", protocol.to_lowercase());
            json!({ "name": name, "port": port, "targetPort": port, "protocol": protocol })
        });
        let mut spec = json!({
            "type": "LoadBalancer", "externalTrafficPolicy": "Local", "selector": selector,
            "ports": ports.collect::<Value>(),
        });
        let (address, _) = wanted_address(&snapshot.set, gateway);
        if let Some(address) = address {
            spec["loadBalancerIP"] = address.to_string().into();
        }
        let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec });
        Provision { name, deployment, service }
    }

    fn metadata(&self, gateway: &ObjectName, name: &str, status: &GatewayStatus, snapshot: &Snapshot) -> Value {
        let mut labels: BTreeMap<&str, &str> =
            status.infrastructure_labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let gateway_name = label(&gateway.name);
        labels.extend([
            ("app.kubernetes.io/managed-by", "tidegate-controller"),
            (OWNER_LABEL, self.owner.as_str()),
            (SELECTOR_LABEL, name),
            (GATEWAY_LABEL, gateway_name.as_str()),
            (NAMESPACE_LABEL, gateway.namespace.as_str()),
        ]);
        let mut metadata = json!({
            "name": name, "namespace": self.namespace,
            "labels": labels, "annotations": status.infrastructure_annotations,
        });
        // Owners are in the namespace of their objects: elsewhere, the leader removes the objects with the Gateway.
        let live = snapshot.live.get(&(Kind::Gateway, gateway.clone()));
        if let Some(live) = live.filter(|live| gateway.namespace == self.namespace && !live.uid.is_empty()) {
            metadata["ownerReferences"] = json!([{
                "apiVersion": live.api_version, "kind": "Gateway", "name": gateway.name, "uid": live.uid,
                "controller": true, "blockOwnerDeletion": true,
            }]);
        }
        metadata
    }
}

/// Returns the name of the objects of a Gateway: a label of at most 63 bytes that no other Gateway has.
pub fn provision_name(gateway: &ObjectName) -> String {
    let hash = digest::digest(&digest::SHA256, gateway.to_string().as_bytes());
    let hash: String = hash.as_ref().iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    let mut words = format!("gw-{}-{}", gateway.namespace, gateway.name).replace('.', "-");
    words.truncate(LABEL_MAX - 1 - hash.len());
    format!("{}-{hash}", words.trim_end_matches('-'))
}

/// Cuts a text to a value of a label. A cut value ends with a hash of the whole text.
fn label(text: &str) -> String {
    if text.len() <= LABEL_MAX {
        return text.to_owned();
    }
    provision_name(&ObjectName::new("", text))
}

/// Gives each Gateway a private address, so that none shares a socket with another one, and takes its own addresses away, which
/// belong to its Service. Returns the private addresses.
pub fn separate_gateways(
    set: &mut ObjectSet,
    settings: &cluster_gateway::Settings,
) -> BTreeMap<ObjectName, Vec<IpAddr>> {
    let gateways: Vec<(ObjectName, Gateway)> = set
        .all::<Gateway>()
        .filter(|(_, gateway)| is_ours(set, settings, gateway))
        .map(|(name, gateway)| (name.clone(), (**gateway).clone()))
        .collect();
    let mut addresses = BTreeMap::new();
    for (number, (name, mut gateway)) in (1..).zip(gateways) {
        gateway.spec.addresses = None;
        // It was in the set under this name.
        let _ = set.upsert(gateway.into());
        addresses.insert(name, vec![IpAddr::V6(Ipv6Addr::from_bits(PRIVATE_ADDRESSES | number))]);
    }
    addresses
}

/// First one of the private addresses: those of the discard prefix (RFC 6666).
const PRIVATE_ADDRESSES: u128 = 0x0100 << 112;

/// Returns the ports of the accepted listeners of Gateways, and of the ListenerSets that they admit.
pub fn gateway_ports<'a>(
    set: &ObjectSet,
    statuses: &Statuses,
    gateways: impl Iterator<Item = &'a ObjectName>,
) -> GatewayPorts {
    let mut all: GatewayPorts = gateways.map(|name| (name.clone(), BTreeSet::new())).collect();
    let mut add = |gateway: &ObjectName, statuses: &[ListenerStatus], name: &str, port: i32, protocol: &str| {
        let is_accepted = |condition: &ObjectCondition| condition.r#type == "Accepted" && condition.is_true();
        let status = statuses.iter().find(|status| status.name == name);
        let accepted = status.is_some_and(|status| status.conditions.iter().any(is_accepted));
        if let (true, Some(ports), Ok(port)) = (accepted, all.get_mut(gateway), u16::try_from(port)) {
            ports.insert((port, if protocol == "UDP" { "UDP" } else { "TCP" }));
        }
    };
    for (name, gateway) in set.all::<Gateway>() {
        let Some(status) = statuses.gateways.get(&name.to_string()) else { continue };
        for listener in &gateway.spec.listeners {
            add(name, &status.listeners, &listener.name, listener.port, &listener.protocol);
        }
    }
    for (name, listeners) in set.all::<ListenerSet>() {
        let Some(status) = statuses.listener_sets.get(&name.to_string()) else { continue };
        let parent = &listeners.spec.parent_ref;
        let gateway = ObjectName::new(parent.namespace.as_deref().unwrap_or(&name.namespace), &parent.name);
        for listener in &listeners.spec.listeners {
            add(&gateway, &status.listeners, &listener.name, listener.port, &listener.protocol);
        }
    }
    all
}

/// Returns the address that a Gateway asks for, and complaints about those that a Service cannot have.
pub fn wanted_address(set: &ObjectSet, name: &ObjectName) -> (Option<IpAddr>, Vec<Complaint>) {
    let Some(gateway) = set.get::<Gateway>(&name.namespace, &name.name) else { return (None, Vec::new()) };
    let asked: Vec<&str> = gateway.spec.addresses.iter().flatten().filter_map(|one| one.value.as_deref()).collect();
    let mut found = None;
    let mut complaints = Vec::new();
    for text in asked {
        match text.parse::<IpAddr>() {
            Ok(address) if found.is_none() => found = Some(address),
            _ => {
                let words = format!("UnsupportedAddress: {text} is left out: a Service of its own has one IP address");
                complaints.push(Complaint::about(Kind::Gateway, &name.namespace, &name.name, words));
            }
        }
    }
    (found, complaints)
}

fn container<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    pod.pointer("/spec/containers")?.as_array()?.iter().find(|one| one["name"] == name)
}

fn container_mut<'a>(pod: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    pod.pointer_mut("/spec/containers")?.as_array_mut()?.iter_mut().find(|one| one["name"] == name)
}

/// Returns a member, which becomes an object if it is none.
fn entry<'a>(value: &'a mut Value, name: &str) -> &'a mut Value {
    let member = &mut value[name];
    if !member.is_object() {
        *member = Value::Object(Map::new());
    }
    member
}

fn extend(target: &mut Value, source: &Value) {
    if let (Some(target), Some(source)) = (target.as_object_mut(), source.as_object()) {
        target.extend(source.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_that_differ() {
        let name = |namespace: &str, name: &str| provision_name(&ObjectName::new(namespace, name));
        let long = "a".repeat(253);
        let all = [name("a", "b-c"), name("a-b", "c"), name("a", "b.c"), name("x", &long), name("x", &long[1..])];
        for (index, one) in all.iter().enumerate() {
            assert!(one.len() <= LABEL_MAX && cluster_objects::is_label(one), "{one}");
            assert!(!all[..index].contains(one), "{one}");
        }
    }

    #[test]
    fn a_template_needs_both_containers() {
        let parse = |text: &str| PodTemplate::parse(text, "tidegate", "tidegate-controller").map(drop);
        assert!(parse("spec: {containers: [{name: tidegate}, {name: controller, command: [a]}]}").is_ok());
        for text in ["spec: {containers: [{name: tidegate}]}", "spec: 1", "a: [", "{}"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
