//! Pods that Deployments ask for, and the statuses of Pods.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

/// Name of the only node.
pub const NODE_NAME: &str = "local";
/// Label of Pods that this process has made.
pub const DEPLOYMENT_LABEL: &str = "fake-kubelet/deployment";

/// Namespace and name.
pub type PodKey = (String, String);

/// Returns the Pods of all Deployments. The name of a Pod has a number that comes from its template: with another
/// template it is another Pod.
pub fn wanted_pods(deployments: &[Arc<Deployment>]) -> BTreeMap<PodKey, Value> {
    let mut wanted = BTreeMap::new();
    for deployment in deployments.iter().filter(|one| one.metadata.deletion_timestamp.is_none()) {
        let (Some(spec), Some(name)) = (&deployment.spec, &deployment.metadata.name) else { continue };
        let namespace = deployment.metadata.namespace.clone().unwrap_or_default();
        let template = serde_json::to_value(&spec.template).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        template.to_string().hash(&mut hasher);
        let number = hasher.finish() % 1_000_000;
        for index in 0..spec.replicas.unwrap_or(1) {
            let pod_name = format!("{name}-{number:06}-{index}");
            let mut pod = template.clone();
            pod["apiVersion"] = "v1".into();
            pod["kind"] = "Pod".into();
            pod["metadata"]["name"] = pod_name.clone().into();
            pod["metadata"]["namespace"] = namespace.clone().into();
            pod["metadata"]["labels"][DEPLOYMENT_LABEL] = name.clone().into();
            pod["spec"]["nodeName"] = NODE_NAME.into();
            wanted.insert((namespace.clone(), pod_name), pod);
        }
    }
    wanted
}

/// Returns the status of a Pod whose containers run.
pub fn running_status(spec: &Value, address: &str, node: &str, now: &str) -> Value {
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|name| json!({ "type": name, "status": "True", "lastTransitionTime": now }));
    let containers = spec["containers"].as_array().into_iter().flatten();
    let statuses: Vec<Value> = containers
        .map(|container| {
            json!({
                "name": container["name"], "image": container["image"], "imageID": container["image"],
                "ready": true, "started": true, "restartCount": 0,
                "state": { "running": { "startedAt": now } },
            })
        })
        .collect();
    json!({ "status": {
        "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }], "hostIP": node,
        "startTime": now, "conditions": conditions, "containerStatuses": statuses,
    } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(image: &str, replicas: i32) -> Arc<Deployment> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": { "name": "shop", "namespace": "n" },
                "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "shop" } }, "template": {
                    "metadata": { "labels": { "app": "shop" } },
                    "spec": { "containers": [{ "name": "c", "image": image }] },
                } },
            }))
            .unwrap(),
        )
    }

    #[test]
    fn pods_have_the_labels_of_the_template_and_a_name_for_each_replica() {
        let wanted = wanted_pods(&[deployment("a", 2)]);
        assert_eq!(wanted.len(), 2);
        for ((namespace, name), pod) in &wanted {
            assert_eq!(namespace, "n");
            assert_eq!(pod["metadata"]["name"], name.as_str());
            assert_eq!(pod["metadata"]["labels"]["app"], "shop");
            assert_eq!(pod["spec"]["nodeName"], NODE_NAME);
        }
        assert!(wanted_pods(&[deployment("a", 0)]).is_empty());
    }

    #[test]
    fn another_template_is_another_pod() {
        let names = |image: &str| -> Vec<PodKey> { wanted_pods(&[deployment(image, 1)]).into_keys().collect() };
        assert_eq!(names("a"), names("a"));
        assert_ne!(names("a"), names("b"));
    }

    #[test]
    fn the_status_of_a_running_pod_is_ready() {
        let spec = json!({ "containers": [{ "name": "c", "image": "i" }] });
        let status = running_status(&spec, "10.0.0.9", "10.0.0.1", "2026-01-01T00:00:00Z");
        let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(status).unwrap();
        let status = pod.status.unwrap();
        assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.9"));
        assert!(status.conditions.unwrap().iter().any(|one| one.type_ == "Ready" && one.status == "True"));
        assert_eq!(status.container_statuses.unwrap()[0].name, "c");
    }
}
