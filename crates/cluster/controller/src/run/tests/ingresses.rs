//! Statuses of Ingresses, and counted requests.

use cluster_objects::Kind;
use serde_json::{Value, json};

use super::cluster::ClusterState;
use super::{ClusterWorld, service};

/// An Ingress of the class `tidegate` that passes requests to the Service `api`.
pub fn test_ingress(name: &str, annotations: Value) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": name, "namespace": "shop", "annotations": annotations},
        "spec": {"ingressClassName": "tidegate", "rules": [{"host": format!("{name}.test"), "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "api", "port": {"number": 80}}}}]}}]}})
}

pub fn ingress_class() -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "tidegate"},
        "spec": {"controller": cluster_ingress::CONTROLLER_NAME}})
}

pub fn snippet_annotations(text: &str) -> Value {
    json!({"nginx.ingress.kubernetes.io/configuration-snippet": text})
}

fn addresses(state: &ClusterState, name: &str) -> Value {
    state.objects[&format!("ingresses/shop/{name}")]["status"]["loadBalancer"]["ingress"].clone()
}

fn front(entries: Value) -> Value {
    let mut front = service("front");
    front["spec"]["type"] = "LoadBalancer".into();
    front["status"] = json!({"loadBalancer": {"ingress": entries}});
    front
}

#[tokio::test(start_paused = true)]
async fn ingresses_have_the_addresses_of_the_service_in_front() {
    let world = ClusterWorld::start().await;
    world.cluster.apply(ingress_class());
    world.cluster.apply(front(json!([{"ip": "192.0.2.1"}, {"hostname": "lb.test"}])));
    let mut foreign = test_ingress("foreign", json!({}));
    foreign["spec"]["ingressClassName"] = "other".into();
    foreign["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    world.cluster.apply(foreign);
    world.cluster.apply(test_ingress("a", json!({})));
    let controller = world.controller(&["--publish-service", "shop/front"]);
    let expected = json!([{"ip": "192.0.2.1"}, {"hostname": "lb.test"}]);
    world.cluster.until("both addresses", |state| addresses(state, "a") == expected).await;
    world.cluster.apply(front(json!([{"ip": "192.0.2.7"}])));
    world.cluster.until("the new address", |state| addresses(state, "a") == json!([{"ip": "192.0.2.7"}])).await;
    // It goes to another controller, which has not written its own addresses yet.
    let mut moved = test_ingress("a", json!({}));
    moved["spec"]["ingressClassName"] = "other".into();
    world.cluster.apply(moved);
    world.cluster.until("no address", |state| addresses(state, "a") == json!([])).await;
    let state = world.cluster.state();
    assert_eq!(addresses(&state, "foreign"), json!([{"ip": "192.0.2.1"}]), "another controller's");
    assert!(!state.events.iter().any(|event| event["regarding"]["name"] == "foreign"), "{:?}", state.events);
    drop((state, controller));
}

#[tokio::test(start_paused = true)]
async fn given_addresses_stand_for_those_of_a_service() {
    let world = ClusterWorld::start().await;
    world.cluster.apply(ingress_class());
    world.cluster.apply(test_ingress("a", json!({})));
    let _controller = world.controller(&["--publish-status-address", "192.0.2.4,2001:db8::4,lb.test"]);
    let expected = json!([{"ip": "192.0.2.4"}, {"ip": "2001:db8::4"}, {"hostname": "lb.test"}]);
    world.cluster.until("the addresses", |state| addresses(state, "a") == expected).await;
    let of_gateway = |state: &ClusterState| state.objects["gateways/shop/public"]["status"]["addresses"][2].clone();
    let expected = json!({"type": "Hostname", "value": "lb.test"});
    world.cluster.until("the Gateway's addresses", |state| of_gateway(state) == expected).await;
}

#[tokio::test(start_paused = true)]
async fn ingresses_with_an_address_of_their_own_publish_it() {
    let world = ClusterWorld::start().await;
    world.cluster.apply(ingress_class());
    world.cluster.apply(test_ingress("a", json!({})));
    let _controller = world.controller(&["--address-pool", "192.0.2.16/28", "--ingress-address", "192.0.2.16"]);
    world.cluster.until("its address", |state| addresses(state, "a") == json!([{"ip": "192.0.2.16"}])).await;
    let main = world.server.state().main.clone();
    assert!(main.contains("listen 192.0.2.16:80"), "{main}");
    assert!(main.contains("listen 192.0.2.17:80"), "the Gateway has another one: {main}");
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_object_if_wanted() {
    let world = ClusterWorld::start().await;
    world.cluster.apply(ingress_class());
    world.cluster.apply(test_ingress("i", json!({})));
    let controller = world.controller(&["--route-metrics"]);
    world.server.until("both are counted", |state| state.main.contains("status_zone shop/Ingress/i;")).await;
    assert!(world.server.state().main.contains("status_zone shop/HTTPRoute/a;"));
    drop(controller);
    let _controller = world.controller(&[]);
    world.server.until("none is counted", |state| !state.main.contains("status_zone")).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_pod_takes_the_addresses_with_it() {
    let world = ClusterWorld::start().await;
    world.cluster.apply(ingress_class());
    world.cluster.apply(front(json!([{"ip": "192.0.2.1"}])));
    world.cluster.apply(test_ingress("a", json!({})));
    let endpoint = |ready: bool| {
        let mut slice = super::slice("front", &["10.0.0.9"]);
        slice["endpoints"][0]["conditions"] = json!({"ready": ready, "serving": true, "terminating": !ready});
        slice
    };
    world.cluster.apply(endpoint(true));
    let controller = world.controller(&["--publish-service", "shop/front", "--update-status-on-shutdown"]);
    world.cluster.until("an address", |state| addresses(state, "a") == json!([{"ip": "192.0.2.1"}])).await;
    let store = controller.parts.store.clone();
    let is_read = || store.snapshot().live[&(Kind::Ingress, name("a"))].addresses_manager.is_some();
    world.cluster.until("the status is read back", |_| is_read()).await;
    controller.parts.status_writer().withdraw_addresses().await;
    assert_eq!(addresses(&world.cluster.state(), "a"), json!([{"ip": "192.0.2.1"}]), "another pod serves");
    world.cluster.apply(endpoint(false));
    let published = controller.parts.published.clone();
    world.cluster.until("no pod is ready", |_| !published.has_ready_endpoints(&store.snapshot())).await;
    let parts = controller.end().await;
    parts.status_writer().withdraw_addresses().await;
    assert_eq!(addresses(&world.cluster.state(), "a"), json!([]));
}

fn name(name: &str) -> cluster_objects::ObjectName {
    cluster_objects::ObjectName::new("shop", name)
}
