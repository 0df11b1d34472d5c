//! Gateways with pods of their own.

use std::path::PathBuf;

use cluster_objects::ObjectName;
use serde_json::{Value, json};

use super::cluster::ClusterState;
use super::ingresses::{ingress_class, test_ingress};
use super::{ClusterWorld, gateway, route};
use crate::run::provisioning::provision_name;

/// Pod template as the chart has it, as far as the controller reads it.
const TEMPLATE: &str = "\
metadata: {labels: {app.kubernetes.io/name: tidegate}, annotations: {a: b}}
spec:
  serviceAccountName: tidegate
  containers:
    - {name: tidegate, image: i, command: [/usr/sbin/tidegate]}
    - {name: controller, image: i, command: [/usr/sbin/tidegate-controller, run, --ipv6]}
";

/// File with the template; removed with its owner.
struct TemplateFile(PathBuf);

impl TemplateFile {
    fn new(name: &str) -> TemplateFile {
        let path = std::env::temp_dir().join(format!("tidegate-template-{name}-{}.yaml", std::process::id()));
        std::fs::write(&path, TEMPLATE).unwrap();
        TemplateFile(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TemplateFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn named(namespace: &str, name: &str, ports: &[(u16, &str)]) -> Value {
    let mut object = gateway();
    object["metadata"] = json!({"name": name, "namespace": namespace});
    let listener =
        |(port, protocol): &(u16, &str)| json!({"name": format!("l{port}"), "port": port, "protocol": protocol});
    object["spec"]["listeners"] = ports.iter().map(listener).collect();
    object
}

fn object(state: &ClusterState, plural: &str, gateway: (&str, &str)) -> Option<Value> {
    let name = provision_name(&ObjectName::new(gateway.0, gateway.1));
    state.objects.get(&format!("{plural}/tidegate/{name}")).cloned()
}

fn ports(state: &ClusterState, gateway: (&str, &str)) -> Vec<(u64, String)> {
    let service = object(state, "services", gateway).unwrap_or_default();
    let one = |port: &Value| (port["port"].as_u64().unwrap(), port["protocol"].as_str().unwrap().to_owned());
    service["spec"]["ports"].as_array().into_iter().flatten().map(one).collect()
}

const PUBLIC: (&str, &str) = ("shop", "public");
const OTHER: (&str, &str) = ("shop", "other");

/// Checks the objects of the Gateway `public`.
fn check_objects(state: &ClusterState) {
    let (deployment, service) =
        (object(state, "deployments", PUBLIC).unwrap(), object(state, "services", PUBLIC).unwrap());
    for object in [&deployment, &service, &deployment["spec"]["template"]] {
        assert_eq!(object["metadata"]["labels"]["team"], "shop", "{object}");
        assert_eq!(object["metadata"]["annotations"]["lb"], "internal", "{object}");
        assert_eq!(object["metadata"]["labels"]["gateway.networking.k8s.io/gateway-name"], "public", "{object}");
    }
    let pod = &deployment["spec"]["template"];
    let command = pod["spec"]["containers"][1]["command"].as_array().unwrap();
    assert_eq!(command.last().unwrap(), "--gateway=shop/public");
    let selector = service["spec"]["selector"].as_object().unwrap();
    assert!(selector.iter().all(|(name, value)| pod["metadata"]["labels"][name] == *value), "{selector:?}");
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], service["spec"]["selector"]);
    assert_eq!(service["spec"]["loadBalancerIP"], "192.0.2.5");
    assert_eq!(deployment["spec"].get("replicas"), None);
}

#[tokio::test(start_paused = true)]
async fn each_gateway_has_a_deployment_and_a_service_until_it_goes() {
    let (world, template) = (ClusterWorld::start().await, TemplateFile::new("objects"));
    world.cluster.apply(ingress_class());
    world.cluster.apply(test_ingress("i", json!({})));
    let mut public = named("shop", "public", &[(80, "HTTP"), (53, "UDP"), (53, "TCP")]);
    public["spec"]["infrastructure"] = json!({"labels": {"team": "shop"}, "annotations": {"lb": "internal"}});
    public["spec"]["addresses"] = json!([{"type": "IPAddress", "value": "192.0.2.5"}]);
    world.cluster.apply(public.clone());
    // On one machine, the two would conflict.
    world.cluster.apply(named("shop", "other", &[(80, "HTTP")]));
    let _controller = world.controller(&["--provision", template.path()]);
    world
        .cluster
        .until("two Deployments", |state| {
            object(state, "deployments", PUBLIC).is_some() && object(state, "deployments", OTHER).is_some()
        })
        .await;
    check_objects(&world.cluster.state());
    assert_eq!(ports(&world.cluster.state(), PUBLIC), [(53, "TCP".into()), (53, "UDP".into()), (80, "TCP".into())]);
    // The shared server has Ingresses only.
    world.server.until("Ingresses are served", |state| state.main.contains("server_name i.test;")).await;
    assert!(!world.server.state().main.contains("a.test"));
    // An autoscaler's number of replicas stays.
    let mut scaled = object(&world.cluster.state(), "deployments", PUBLIC).unwrap();
    scaled["spec"]["replicas"] = 5.into();
    world.cluster.apply(scaled);
    public["spec"]["listeners"] = json!([{"name": "l", "port": 8080, "protocol": "HTTP"}]);
    public["spec"]["infrastructure"]["labels"] = json!({"team": "web"});
    world.cluster.apply(public);
    world.cluster.until("the new port", |state| ports(state, PUBLIC) == [(8080, "TCP".into())]).await;
    let is_applied =
        |state: &ClusterState| object(state, "deployments", PUBLIC).unwrap()["metadata"]["labels"]["team"] == "web";
    world.cluster.until("the new label", is_applied).await;
    assert_eq!(object(&world.cluster.state(), "deployments", PUBLIC).unwrap()["spec"]["replicas"], 5);
    world.cluster.delete("Gateway", "shop", "public");
    world
        .cluster
        .until("its objects go", |state| {
            object(state, "deployments", PUBLIC).is_none() && object(state, "services", PUBLIC).is_none()
        })
        .await;
    assert!(object(&world.cluster.state(), "services", OTHER).is_some());
    assert!(object(&world.cluster.state(), "services", ("x", "y")).is_none());
}

#[tokio::test(start_paused = true)]
async fn objects_of_others_stay_and_removed_ones_come_again() {
    let (world, template) = (ClusterWorld::start().await, TemplateFile::new("others"));
    let foreign = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "foreign", "namespace": "tidegate",
        "labels": {"tidegate.invalid/provisioned-by": "another-installation"}}, "spec": {}});
    world.cluster.apply(foreign);
    let _controller = world.controller(&["--provision", template.path()]);
    world.cluster.until("a Deployment", |state| object(state, "deployments", PUBLIC).is_some()).await;
    let name = provision_name(&ObjectName::new("shop", "public"));
    world.cluster.delete("Service", "tidegate", &name);
    world.cluster.until("the Service comes again", |state| object(state, "services", PUBLIC).is_some()).await;
    assert!(world.cluster.state().objects.contains_key("services/tidegate/foreign"));
    // Invalid listeners take no address away.
    world.cluster.apply(named("shop", "public", &[(80, "Guess")]));
    let is_invalid = |state: &ClusterState| {
        state.objects["gateways/shop/public"]["status"]["listeners"][0]["conditions"]
            .to_string()
            .contains("UnsupportedProtocol")
    };
    world.cluster.until("the listener is invalid", is_invalid).await;
    tokio::time::sleep(std::time::Duration::from_secs(180)).await;
    assert!(object(&world.cluster.state(), "services", PUBLIC).is_some());
    // Neither do fields that cannot be read.
    let mut unreadable = named("shop", "public", &[]);
    unreadable["spec"]["listeners"] = "none".into();
    world.cluster.apply(unreadable);
    tokio::time::sleep(std::time::Duration::from_secs(180)).await;
    assert!(object(&world.cluster.state(), "services", PUBLIC).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_gateway_is_programmed_once_a_pod_of_its_own_is_ready() {
    let (world, template) = (ClusterWorld::start().await, TemplateFile::new("status"));
    world.cluster.apply(named("shop", "other", &[(80, "HTTP")]));
    let _controller = world.controller(&["--provision", template.path()]);
    let programmed = |state: &ClusterState, name: &str| {
        let conditions = state.objects[&format!("gateways/shop/{name}")]["status"]["conditions"].as_array().cloned();
        let found = conditions.into_iter().flatten().find(|one| one["type"] == "Programmed");
        found.map(|one| (one["status"].as_str().unwrap().to_owned(), one["reason"].as_str().unwrap().to_owned()))
    };
    let pending = Some(("False".to_owned(), "Pending".to_owned()));
    world
        .cluster
        .until("both wait", |state| programmed(state, "public") == pending && programmed(state, "other") == pending)
        .await;
    world.cluster.until("a Service", |state| object(state, "services", PUBLIC).is_some()).await;
    let name = provision_name(&ObjectName::new("shop", "public"));
    let mut service = object(&world.cluster.state(), "services", PUBLIC).unwrap();
    service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.8"}]}});
    world.cluster.apply(service);
    let mut slice = super::slice(&name, &["10.0.0.5"]);
    slice["metadata"]["namespace"] = "tidegate".into();
    world.cluster.apply(slice);
    let is_programmed = |state: &ClusterState| programmed(state, "public").is_some_and(|(status, _)| status == "True");
    world.cluster.until("it is programmed", is_programmed).await;
    let address = json!([{"type": "IPAddress", "value": "192.0.2.8"}]);
    world
        .cluster
        .until("its address", |state| state.objects["gateways/shop/public"]["status"]["addresses"] == address)
        .await;
    assert_eq!(programmed(&world.cluster.state(), "other"), pending);
    let accepted = &world.cluster.state().objects["httproutes/shop/a"]["status"]["parents"][0]["conditions"][0];
    assert_eq!((&accepted["type"], &accepted["status"]), (&json!("Accepted"), &json!("True")));
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_gateway_serve_it_alone_and_write_no_status() {
    let world = ClusterWorld::start().await;
    world.cluster.apply(ingress_class());
    world.cluster.apply(test_ingress("i", json!({})));
    let mut public = gateway();
    public["spec"]["addresses"] = json!([{"type": "IPAddress", "value": "192.0.2.5"}]);
    world.cluster.apply(public);
    world.cluster.apply(named("shop", "other", &[(80, "HTTP")]));
    let mut other = route("b", "b.test", "api");
    other["spec"]["parentRefs"] = json!([{"name": "other"}]);
    world.cluster.apply(other);
    let _controller = world.controller(&["--gateway", "shop/public"]);
    world.server.until("the Gateway is served", |state| state.main.contains("server_name a.test;")).await;
    let main = world.server.state().main.clone();
    assert!(main.contains("listen 80;"), "the address is the Service's: {main}");
    assert!(!main.contains("b.test") && !main.contains("i.test"), "{main}");
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(world.cluster.state().writes, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn ports_of_listener_sets_are_ports_of_the_service() {
    let (world, template) = (ClusterWorld::start().await, TemplateFile::new("sets"));
    let mut public = named("shop", "public", &[(80, "HTTP")]);
    public["spec"]["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
    world.cluster.apply(public);
    let set = |name: &str, namespace: &str, port: u16| {
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"parentRef": {"name": "public", "namespace": "shop"},
                "listeners": [{"name": "more", "port": port, "protocol": "HTTP"}]}})
    };
    world.cluster.apply(set("more", "shop", 8080));
    world.cluster.apply(set("refused", "other", 8090));
    let _controller = world.controller(&["--provision", template.path()]);
    let expected = [(80, "TCP".to_owned()), (8080, "TCP".to_owned())];
    world.cluster.until("both ports", |state| ports(state, PUBLIC) == expected).await;
}
