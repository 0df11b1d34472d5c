//! The manifests in `packaging/kubernetes` are objects of the API.

mod chart;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PodSpec, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/kubernetes")
}

/// Returns the documents of a text that have more than comments.
fn read_documents(text: &str) -> Vec<Value> {
    let text = format!("\n{text}");
    let is_comment = |line: &str| line.is_empty() || line.starts_with('#');
    let documents = text.split("\n---\n").filter(|document| !document.lines().all(is_comment));
    documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

fn documents() -> Vec<Value> {
    read_documents(&fs::read_to_string(packaging().join("tidegate.yaml")).unwrap())
}

fn documents_of(documents: &[Value], kind: &str) -> Vec<Value> {
    documents.iter().filter(|document| document["kind"] == kind).cloned().collect()
}

/// Reads an object, and checks that its type has a field for each member.
fn read<T: DeserializeOwned + Serialize>(value: &Value) -> T {
    let object: T = serde_json::from_value(value.clone()).unwrap();
    let mut written = serde_json::to_value(&object).unwrap();
    written.as_object_mut().unwrap().extend(["apiVersion", "kind"].map(|name| (name.to_owned(), value[name].clone())));
    assert_eq!(written, *value, "a member is unknown");
    object
}

/// Checks that a document is an object of the API.
fn check_document(document: &Value) {
    match document["kind"].as_str().unwrap() {
        "Namespace" => drop(read::<Namespace>(document)),
        "ServiceAccount" => drop(read::<ServiceAccount>(document)),
        "ClusterRole" => drop(read::<ClusterRole>(document)),
        "ClusterRoleBinding" => drop(read::<ClusterRoleBinding>(document)),
        "Role" => drop(read::<Role>(document)),
        "RoleBinding" => drop(read::<RoleBinding>(document)),
        "Service" => drop(read::<Service>(document)),
        "ConfigMap" => drop(read::<ConfigMap>(document)),
        "Secret" => drop(read::<Secret>(document)),
        "PodDisruptionBudget" => drop(read::<PodDisruptionBudget>(document)),
        "HorizontalPodAutoscaler" => drop(read::<HorizontalPodAutoscaler>(document)),
        "NetworkPolicy" => drop(read::<NetworkPolicy>(document)),
        "ValidatingWebhookConfiguration" => drop(read::<ValidatingWebhookConfiguration>(document)),
        "Deployment" => check_pod(&read::<Deployment>(document).spec.unwrap().template.spec.unwrap()),
        "DaemonSet" => check_pod(&read::<DaemonSet>(document).spec.unwrap().template.spec.unwrap()),
        "GatewayClass" => {
            let kind = cluster_objects::Kind::GatewayClass;
            assert!(cluster_objects::parse_object(kind, "gateway.networking.k8s.io/v1", document.clone()).is_ok());
        }
        "IngressClass" => assert!(document["spec"]["controller"].is_string()),
        // Definitions of other projects.
        "ScaledObject" | "ServiceMonitor" | "Issuer" | "Certificate" => {}
        other => panic!("unknown kind {other}"),
    }
}

#[test]
fn every_document_has_the_form_of_its_kind() {
    let documents = documents();
    documents.iter().for_each(check_document);
    let class = &documents_of(&documents, "GatewayClass")[0];
    assert_eq!(class["spec"]["controllerName"], cluster_gateway::CONTROLLER_NAME);
    let class = &documents_of(&documents, "IngressClass")[0];
    assert_eq!(class["spec"]["controller"], cluster_ingress::CONTROLLER_NAME);
}

/// Each container is restricted, only the controller has the token, and the program knows its arguments.
fn check_pod(pod: &PodSpec) {
    assert_eq!(pod.automount_service_account_token, Some(false));
    for container in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
        let security = container.security_context.as_ref().unwrap();
        assert_eq!(security.read_only_root_filesystem, Some(true), "{}", container.name);
        assert_eq!(security.allow_privilege_escalation, Some(false), "{}", container.name);
        let has_token = container.volume_mounts.iter().flatten().any(|mount| mount.name == "token");
        assert_eq!(has_token, container.name == "controller");
        let command = container.command.clone().unwrap();
        if command[0] != "/usr/sbin/tidegate-controller" {
            continue;
        }
        let program = env!("CARGO_BIN_EXE_tidegate-controller");
        let help = std::process::Command::new(program).args([&command[1], "--help"]).output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        for word in &command[2..] {
            let name = word.split('=').next().unwrap();
            assert!(help.contains(&format!("{name} ")) || help.contains(&format!("{name}\n")), "{name} in\n{help}");
        }
    }
}

#[test]
fn rights_are_few() {
    let documents = documents();
    let of_kind = |kind: &str| documents.iter().find(|document| document["kind"] == kind).unwrap();
    let role: ClusterRole = read(of_kind("ClusterRole"));
    for rule in role.rules.unwrap() {
        let verbs: BTreeSet<&str> = rule.verbs.iter().map(String::as_str).collect();
        let resources = rule.resources.unwrap();
        let expected = match resources[0].as_str() {
            "events" => ["create"].into(),
            name if name.ends_with("/status") => ["patch"].into(),
            _ => ["list", "watch"].into(),
        };
        assert_eq!(verbs, expected, "{resources:?}");
    }
}
