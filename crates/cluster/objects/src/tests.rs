//! Manifests in the forms that people write, and the order of a set.

use crate::types::{Gateway, HttpRoute, Ingress, Secret, Service, TlsRoute};
use crate::{Complaint, Kind, ObjectName, ObjectSet, Referent, Referrer, read_manifests};

fn read(text: &str) -> (ObjectSet, Vec<String>) {
    let (mut set, mut complaints) = (ObjectSet::default(), Vec::new());
    read_manifests("test.yaml", text, &mut set, &mut complaints);
    (set, complaints.iter().map(Complaint::to_string).collect())
}

#[test]
fn documents_of_comments_nulls_anchors_and_foreign_kinds_are_read() {
    let (set, complaints) = read(
        "# only a comment\n---\n# another one\n\n---\napiVersion: v1\nkind: Service\nmetadata:\n  name: api\n  namespace: shop\n  \
         annotations:\n  labels: &labels\n    app: api\nspec:\n  selector: *labels\n  ports:\n  - {port: 80, targetPort: http}\n\
         --- # the next one\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\n---\n",
    );
    assert_eq!(complaints, Vec::<String>::new());
    let service = set.get::<Service>("shop", "api").expect("the service");
    assert_eq!(service.spec.as_ref().unwrap().selector.as_ref().unwrap()["app"], "api");
    assert_eq!(set.len(), 1);
}

#[test]
fn a_list_and_json_are_read() {
    let text = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"tls.crt": "YQ=="}},
        {"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "Gateway", "metadata": {"name": "g", "namespace": "infra"},
         "spec": {"gatewayClassName": "tidegate", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}}]}"#;
    let (set, complaints) = read(text);
    assert_eq!(complaints, Vec::<String>::new());
    assert_eq!(set.get::<Secret>("default", "a").unwrap().data.as_ref().unwrap()["tls.crt"].0, b"a");
    assert_eq!(set.get::<Gateway>("infra", "g").unwrap().spec.listeners.len(), 1);
}

#[test]
fn an_object_that_does_not_parse_takes_no_other_down() {
    let (set, complaints) = read(
        "apiVersion: v1\nkind: Service\nmetadata: {name: broken}\nspec: {ports: [{port: $PORT}]}\n---\n\
         a: [1\n---\napiVersion: v1\nkind: Service\nmetadata: {name: ../etc}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {name: good}\n",
    );
    assert_eq!(set.all::<Service>().map(|(name, _)| name.to_string()).collect::<Vec<_>>(), ["default/good"]);
    assert_eq!(complaints.len(), 3, "{complaints:?}");
    assert!(complaints[0].starts_with("default/Service broken: invalid type: string \"$PORT\""), "{}", complaints[0]);
    assert!(complaints[1].starts_with("test.yaml, document 2: "), "{}", complaints[1]);
    assert_eq!(complaints[2], "default/Service ../etc: metadata.name is no DNS subdomain");
}

#[test]
fn the_last_of_equal_keys_and_objects_is_used_and_said() {
    let (set, complaints) = read(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  labels: {x: \"1\"}\n  labels: {x: \"2\"}\n---\n\
         apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {x: \"3\"}}\n",
    );
    let namespace = set.get::<crate::types::Namespace>("", "a").unwrap();
    assert_eq!(namespace.metadata.labels.as_ref().unwrap()["x"], "3");
    assert_eq!(complaints.len(), 2, "{complaints:?}");
    assert_eq!(complaints[1], "Namespace a: appears more than once; the last one is used");
}

#[test]
fn old_versions_are_read_as_new_ones() {
    let (set, complaints) = read(
        "apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: a}\nspec:\n  backend: {serviceName: all, servicePort: 80}\n  \
         rules:\n  - http: {paths: [{path: /, backend: {serviceName: web, servicePort: http}}]}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1alpha2\nkind: TLSRoute\nmetadata: {name: t}\nspec: {rules: [{backendRefs: []}]}\n",
    );
    assert_eq!(complaints, Vec::<String>::new());
    let spec = set.get::<Ingress>("default", "a").unwrap().spec.clone().unwrap();
    assert_eq!(spec.default_backend.unwrap().service.unwrap().port.unwrap().number, Some(80));
    let rules = spec.rules.unwrap();
    let path = &rules[0].http.as_ref().unwrap().paths[0];
    assert_eq!(path.path_type, "ImplementationSpecific");
    assert_eq!(path.backend.service.as_ref().unwrap().port.as_ref().unwrap().name.as_deref(), Some("http"));
    assert!(set.get::<TlsRoute>("default", "t").unwrap().spec.hostnames.is_empty());
}

#[test]
fn age_orders_before_names() {
    let route = |name: &str, time: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}, creationTimestamp: {time}}}\nspec: {{}}\n---\n"
        )
    };
    let text =
        [route("b", "2026-01-02T00:00:00Z"), route("c", "2026-01-01T00:00:00Z"), route("a", "2026-01-02T00:00:00Z")];
    let (set, complaints) = read(&text.concat());
    assert_eq!(complaints, Vec::<String>::new());
    let names: Vec<_> = set.by_age::<HttpRoute>().into_iter().map(|(name, _)| name.name.clone()).collect();
    assert_eq!(names, ["c", "a", "b"]);
}

#[test]
fn a_reference_needs_a_grant_and_loses_it() {
    let (mut set, _) = read(
        "apiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: {name: g, namespace: b}\nspec:\n  \
         from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: a}]\n  to: [{group: \"\", kind: Service, name: s}]\n",
    );
    let from = Referrer { group: "gateway.networking.k8s.io", kind: "HTTPRoute", namespace: "a" };
    let to = Referent { group: "", kind: "Service", namespace: "b", name: "s" };
    assert!(set.permits(from, to));
    assert!(!set.permits(from, Referent { name: "t", ..to }));
    assert!(!set.permits(Referrer { kind: "GRPCRoute", ..from }, to));
    assert!(set.permits(from, Referent { namespace: "a", ..to }), "its own namespace");
    assert!(set.contains(Kind::ReferenceGrant, &ObjectName::new("b", "g")));
    assert!(set.remove(Kind::ReferenceGrant, "b", "g"));
    assert!(!set.permits(from, to));
}
