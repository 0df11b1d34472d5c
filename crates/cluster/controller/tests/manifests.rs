//! The manifests in `packaging/kubernetes` are objects of the API.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn documents() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/kubernetes/tidegate.yaml");
    let text = fs::read_to_string(path).unwrap();
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// Reads an object, and checks that its type has a field for each member.
fn read<T: DeserializeOwned + Serialize>(value: &Value) -> T {
    let object: T = serde_json::from_value(value.clone()).unwrap();
    let mut written = serde_json::to_value(&object).unwrap();
    written.as_object_mut().unwrap().extend(["apiVersion", "kind"].map(|name| (name.to_owned(), value[name].clone())));
    assert_eq!(written, *value, "a member is unknown");
    object
}

#[test]
fn every_document_has_the_form_of_its_kind() {
    for document in documents() {
        match document["kind"].as_str().unwrap() {
            "Namespace" => drop(read::<Namespace>(&document)),
            "ServiceAccount" => drop(read::<ServiceAccount>(&document)),
            "ClusterRole" => drop(read::<ClusterRole>(&document)),
            "ClusterRoleBinding" => drop(read::<ClusterRoleBinding>(&document)),
            "Role" => drop(read::<Role>(&document)),
            "RoleBinding" => drop(read::<RoleBinding>(&document)),
            "Service" => drop(read::<Service>(&document)),
            "PodDisruptionBudget" => drop(read::<PodDisruptionBudget>(&document)),
            "Deployment" => drop(read::<Deployment>(&document)),
            "GatewayClass" => {
                let kind = cluster_objects::Kind::GatewayClass;
                let name = cluster_gateway::CONTROLLER_NAME;
                assert!(cluster_objects::parse_object(kind, "gateway.networking.k8s.io/v1", document.clone()).is_ok());
                assert_eq!(document["spec"]["controllerName"], name);
            }
            "IngressClass" => assert_eq!(document["spec"]["controller"], cluster_ingress::CONTROLLER_NAME),
            other => panic!("unknown kind {other}"),
        }
    }
}

#[test]
fn rights_are_few_and_only_the_controller_has_the_token() {
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
    let deployment: Deployment = read(of_kind("Deployment"));
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.automount_service_account_token, Some(false));
    for container in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
        let security = container.security_context.as_ref().unwrap();
        assert_eq!(security.read_only_root_filesystem, Some(true), "{}", container.name);
        assert_eq!(security.allow_privilege_escalation, Some(false), "{}", container.name);
        let has_token = container.volume_mounts.iter().flatten().any(|mount| mount.name == "token");
        assert_eq!(has_token, container.name == "controller");
    }
}

/// The arguments of the manifests are arguments of the program.
#[test]
fn the_program_knows_the_arguments_of_the_deployment() {
    let documents = documents();
    let deployment: Deployment = read(documents.iter().find(|document| document["kind"] == "Deployment").unwrap());
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    for command in ["run", "bootstrap"] {
        let words = pod
            .containers
            .iter()
            .chain(pod.init_containers.iter().flatten())
            .map(|container| container.command.clone().unwrap())
            .find(|words| words[1] == command)
            .unwrap();
        let program = env!("CARGO_BIN_EXE_tidegate-controller");
        let help = std::process::Command::new(program).args([command, "--help"]).output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        for word in &words[2..] {
            let name = word.split('=').next().unwrap();
            assert!(help.contains(&format!("{name} ")), "{name} in\n{help}");
        }
    }
}
