//! EndpointSlices of Services with selectors.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

/// Value of the label of slices that this process writes; slices with another one, or without, are left alone.
pub const MANAGER: &str = "fake-kubelet";
const MANAGER_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Returns the slice of a Service; `None` for one without a selector.
pub fn slice_of(service: &Service, pods: &[Arc<Pod>]) -> Option<Value> {
    let spec = service.spec.as_ref()?;
    let selector = spec.selector.as_ref().filter(|selector| !selector.is_empty())?;
    let (namespace, name) = (service.metadata.namespace.as_deref()?, service.metadata.name.as_deref()?);
    let mut own: Vec<&Pod> = pods
        .iter()
        .map(Arc::as_ref)
        .filter(|pod| pod.metadata.namespace.as_deref() == Some(namespace) && is_selected(pod, selector))
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .collect();
    own.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let ports: Vec<Value> = spec.ports.iter().flatten().filter_map(|port| port_of(port, &own)).collect();
    let endpoints: Vec<Value> = own.iter().filter_map(|pod| endpoint(pod)).collect();
    Some(json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{name}-{MANAGER}"),
            "namespace": namespace,
            "labels": { MANAGER_LABEL: MANAGER, SERVICE_LABEL: name },
        },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": endpoints,
    }))
}

/// Tells whether a slice is one of this process.
pub fn is_ours(slice: &EndpointSlice) -> bool {
    slice.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGER_LABEL)).is_some_and(|label| label == MANAGER)
}

fn is_selected(pod: &Pod, selector: &BTreeMap<String, String>) -> bool {
    let labels = pod.metadata.labels.as_ref();
    selector.iter().all(|(name, value)| labels.and_then(|labels| labels.get(name)) == Some(value))
}

fn port_of(port: &ServicePort, pods: &[&Pod]) -> Option<Value> {
    let number = match &port.target_port {
        None => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => named_port(name, pods)?,
    };
    let mut value = json!({
        "name": port.name.clone().unwrap_or_default(),
        "protocol": port.protocol.clone().unwrap_or_else(|| "TCP".into()),
        "port": number,
    });
    if let Some(protocol) = &port.app_protocol {
        value["appProtocol"] = protocol.clone().into();
    }
    Some(value)
}

fn named_port(name: &str, pods: &[&Pod]) -> Option<i32> {
    let containers = pods.iter().filter_map(|pod| pod.spec.as_ref()).flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports.find(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port)
}

fn endpoint(pod: &Pod) -> Option<Value> {
    let status = pod.status.as_ref()?;
    let is_ready =
        status.conditions.iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    Some(json!({
        "addresses": [status.pod_ip.as_ref()?],
        "conditions": { "ready": is_ready, "serving": is_ready, "terminating": false },
        "nodeName": pod.spec.as_ref()?.node_name,
        "targetRef": {
            "kind": "Pod",
            "namespace": pod.metadata.namespace,
            "name": pod.metadata.name,
            "uid": pod.metadata.uid,
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn pod(name: &str, app: &str, address: Option<&str>, ready: &str) -> Arc<Pod> {
        let status = json!({ "podIP": address, "conditions": [{ "type": "Ready", "status": ready }] });
        Arc::new(object(json!({
            "metadata": { "name": name, "namespace": "n", "labels": { "app": app }, "uid": name },
            "spec": { "nodeName": "node", "containers": [
                { "name": "c", "ports": [{ "name": "web", "containerPort": 3000 }] },
            ] },
            "status": status,
        })))
    }

    #[test]
    fn endpoints_are_the_selected_pods_with_an_address() {
        let service: Service = object(json!({
            "metadata": { "name": "shop", "namespace": "n" },
            "spec": { "selector": { "app": "shop" }, "ports": [
                { "port": 80 }, { "name": "named", "port": 81, "targetPort": "web" },
                { "name": "number", "port": 82, "targetPort": 8443, "protocol": "UDP", "appProtocol": "x" },
                { "name": "unknown", "port": 83, "targetPort": "none" },
            ] },
        }));
        let pods = [
            pod("b", "shop", Some("10.0.0.2"), "False"),
            pod("a", "shop", Some("10.0.0.1"), "True"),
            pod("c", "shop", None, "False"),
            pod("d", "other", Some("10.0.0.4"), "True"),
        ];
        let slice = slice_of(&service, &pods).unwrap();
        let ports: Vec<String> = slice["ports"].as_array().unwrap().iter().map(Value::to_string).collect();
        assert_eq!(
            ports,
            [
                r#"{"name":"","port":80,"protocol":"TCP"}"#,
                r#"{"name":"named","port":3000,"protocol":"TCP"}"#,
                r#"{"appProtocol":"x","name":"number","port":8443,"protocol":"UDP"}"#,
            ]
        );
        let endpoints: Vec<String> = slice["endpoints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| format!("{} {}", one["addresses"][0], one["conditions"]["ready"]))
            .collect();
        assert_eq!(endpoints, [r#""10.0.0.1" true"#, r#""10.0.0.2" false"#]);
    }

    #[test]
    fn services_without_a_selector_have_slices_of_others() {
        let service: Service = object(json!({
            "metadata": { "name": "manual", "namespace": "n" }, "spec": { "ports": [{ "port": 80 }] },
        }));
        assert_eq!(slice_of(&service, &[pod("a", "shop", Some("10.0.0.1"), "True")]), None);
    }
}
