//! The Helm chart: its values, their documentation, and its rendering with the defaults in `tidegate.yaml`.
//!
//! Helm renders it: `cargo xtask chart` builds Helm and names it in `TIDEGATE_HELM`. Without Helm, the digest in
//! `tidegate.yaml` shows a chart that was changed afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use aws_lc_rs::digest;
use serde_json::Value;

use crate::{check_document, documents_of, packaging, read_documents};

/// Line of `tidegate.yaml` in front of the digest of the chart.
const DIGEST_LINE: &str = "# Chart: ";

fn chart() -> PathBuf {
    packaging().join("chart/tidegate")
}

/// Files of the chart by their path in it, without its documentation.
fn files() -> BTreeMap<String, String> {
    fn read(folder: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
            match path.is_dir() {
                true => read(&path, &format!("{name}/"), found),
                false => drop(found.insert(name, fs::read_to_string(&path).unwrap())),
            }
        }
    }
    let mut found = BTreeMap::new();
    read(&chart(), "", &mut found);
    found.remove("README.md");
    found
}

fn values() -> Value {
    serde_saphyr::from_str(&files()["values.yaml"]).unwrap()
}

fn value_at<'a>(values: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(values, |value, name| value.get(name))
}

/// Paths of the values that the templates name.
fn references() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (name, text) in files() {
        if !name.starts_with("templates/") {
            continue;
        }
        for part in text.split(".Values.").skip(1) {
            let path: String = part.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '.').collect();
            found.insert(path.trim_end_matches('.').to_owned());
        }
    }
    found
}

/// Paths of all values that are no maps, or empty ones.
fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value.as_object().filter(|members| !members.is_empty()) {
        Some(members) => {
            for (name, value) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(value, &path, found);
            }
        }
        None => drop(found.insert(path.to_owned())),
    }
}

fn is_at_or_below(path: &str, other: &str) -> bool {
    path == other || path.strip_prefix(other).is_some_and(|rest| rest.starts_with('.'))
}

#[test]
fn templates_and_values_name_each_other() {
    let (values, references) = (values(), references());
    assert!(references.len() > 50, "{references:?}");
    for path in &references {
        assert!(value_at(&values, path).is_some(), ".Values.{path} is no value");
    }
    let mut all = BTreeSet::new();
    leaves(&values, "", &mut all);
    for path in &all {
        assert!(references.iter().any(|other| is_at_or_below(path, other)), "no template uses the value {path}");
    }
}

#[test]
fn the_documentation_has_all_values_with_their_defaults() {
    let text = fs::read_to_string(chart().join("README.md")).unwrap();
    let (values, mut documented) = (values(), BTreeSet::new());
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line.trim_matches('|').split(" | ").map(|cell| cell.trim().trim_matches('`'));
        let (path, default) = (cells.next().unwrap(), cells.next().unwrap());
        let default: Value = serde_saphyr::from_str(default).unwrap();
        assert_eq!(value_at(&values, path), Some(&default), "{path}");
        documented.insert(path.to_owned());
    }
    let mut all = BTreeSet::new();
    leaves(&values, "", &mut all);
    for path in &all {
        assert!(documented.iter().any(|other| is_at_or_below(path, other)), "{path} has no line in README.md");
    }
}

/// Digest of the files that the rendering depends on.
fn chart_digest() -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for (name, contents) in files() {
        context.update(format!("{name} {}\n{contents}", contents.len()).as_bytes());
    }
    context.finish().as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_manifests_are_of_this_chart() {
    let text = fs::read_to_string(packaging().join("tidegate.yaml")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(DIGEST_LINE)).unwrap_or_default();
    if helm().is_some() && std::env::var("TIDEGATE_EXPECTED").is_ok_and(|word| word == "write") {
        return;
    }
    assert_eq!(line, chart_digest(), "the chart has changed: cargo xtask chart --write");
}

/// Returns the program that `cargo xtask chart` names; records that it is missing otherwise.
fn helm() -> Option<PathBuf> {
    let program = std::env::var_os("TIDEGATE_HELM").map(PathBuf::from);
    if program.is_none() {
        testkit::missing_means("Helm, which \"cargo xtask chart\" builds, is not named in TIDEGATE_HELM");
    }
    program
}

/// Renders the chart; an error of Helm is returned.
fn render(helm: &Path, settings: &[&str]) -> Result<String, String> {
    let mut command = Command::new(helm);
    command.args(["template", "tidegate"]).arg(chart());
    command.args(["--namespace", "tidegate", "--kube-version", "1.33.0"]);
    for setting in settings {
        command.args(["--set", setting]);
    }
    let output = command.output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

/// Returns the text of `tidegate.yaml`: the rendering with the namespace, which Helm makes itself.
fn manifests(rendered: &str) -> String {
    let lines: Vec<&str> = rendered.lines().filter(|line| !line.starts_with("# Source: ")).collect();
    format!(
        "# Tidegate for Gateway API and Ingress. Install the definitions of Gateway API first; then: kubectl apply -f tidegate.yaml\n\
         # docs/kubernetes.md describes operation, and what each right is for. Written by \"cargo xtask chart --write\".\n\
         {DIGEST_LINE}{}\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: tidegate\n{}\n",
        chart_digest(),
        lines.join("\n").trim_end()
    )
}

#[test]
fn the_manifests_are_the_rendering_with_the_defaults() {
    let Some(helm) = helm() else { return };
    let path = packaging().join("tidegate.yaml");
    let text = manifests(&render(&helm, &[]).unwrap());
    if std::env::var("TIDEGATE_EXPECTED").is_ok_and(|word| word == "write") {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "cargo xtask chart --write");
    assert!(Command::new(&helm).args(["lint", "--strict"]).arg(chart()).status().unwrap().success());
}

/// Settings, kinds that they add, and words of the rendering.
const VARIATIONS: &[(&[&str], &[&str], &[&str])] = &[
    (&["kind=DaemonSet", "hostPorts=true"], &["DaemonSet"], &["hostPort: 443"]),
    (
        &["hostNetwork=true", "addressPool={192.0.2.16/28,192.0.2.40}"],
        &[],
        &["--address-pool=192.0.2.16/28,192.0.2.40"],
    ),
    (&["autoscaling.enabled=true"], &["HorizontalPodAutoscaler"], &["averageUtilization: 80"]),
    (
        &["keda.enabled=true", "keda.serverAddress=http://prometheus:9090"],
        &["ScaledObject"],
        &["tidegate_http_requests_total"],
    ),
    (&["webhook.enabled=true"], &["ValidatingWebhookConfiguration", "Secret"], &["--webhook-key=", "caBundle: "]),
    (
        &["webhook.enabled=true", "webhook.certManager=true"],
        &["Issuer", "Certificate"],
        &["inject-ca-from: tidegate/tidegate-webhook"],
    ),
    (&["serviceMonitor.create=true", "serviceMonitor.labels.release=p"], &["ServiceMonitor"], &["release: p"]),
    (
        &["networkPolicy.create=true", "networkPolicy.probesFrom[0].podSelector.matchLabels.app=p"],
        &["NetworkPolicy"],
        &["app: p"],
    ),
    (
        &["ingress.allowSnippets=true", "ingress.config.use-gzip=true", "ingressClass.default=true"],
        &["ConfigMap"],
        &["--allow-snippets", "use-gzip: \"true\"", "is-default-class: \"true\""],
    ),
    (
        &["provision.enabled=true", "webhook.enabled=true"],
        &["ConfigMap", "Role"],
        &["--provision=/etc/tidegate-provision/pod.yaml"],
    ),
    (
        &["image.digest=sha256:00", "image.pullPolicy=Always", "imagePullSecrets[0].name=r"],
        &[],
        &["tidegate-kubernetes@sha256:00", "imagePullPolicy: Always"],
    ),
    (
        &["publishStatusAddress={192.0.2.1,lb.test}", "service.create=false"],
        &[],
        &["--publish-status-address=192.0.2.1,lb.test"],
    ),
    (
        &[
            "controller.extraArgs={--ipv6}",
            "resolver=10.0.0.10",
            "server.routeMetrics=true",
            "updateStatusOnShutdown=true",
            "fullnameOverride=edge",
        ],
        &[],
        &[
            "- --ipv6",
            "--resolver=10.0.0.10",
            "--route-metrics",
            "--lease-name=edge-controller",
            "--update-status-on-shutdown",
        ],
    ),
    (
        &[
            "ingress.defaultCertificate=a/b",
            "ingress.defaultBackend=a/c",
            "ingress.address=192.0.2.9",
            "ingress.withoutClass=true",
        ],
        &[],
        &["--default-certificate=a/b", "--ingress-address=192.0.2.9"],
    ),
    (
        &["gatewayClass.controllerName=example.com/g", "ingressClass.controllerName=example.com/i"],
        &[],
        &["--controller-name=example.com/g", "--ingress-controller-name=example.com/i"],
    ),
    (
        &[
            "podAnnotations.a=b",
            "podLabels.c=d",
            "nodeSelector.e=f",
            "tolerations[0].operator=Exists",
            "priorityClassName=high",
            "topologySpreadConstraints[0].maxSkew=1",
            "topologySpreadConstraints[0].topologyKey=zone",
            "topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway",
        ],
        &[],
        &["priorityClassName: high"],
    ),
];

#[test]
fn each_variation_has_objects_of_the_api_and_arguments_of_the_program() {
    let Some(helm) = helm() else { return };
    for (settings, kinds, words) in VARIATIONS {
        let text = render(&helm, settings).unwrap();
        let documents = read_documents(&text);
        for document in &documents {
            check_document(document);
        }
        for kind in *kinds {
            assert!(documents.iter().any(|document| document["kind"] == *kind), "{settings:?}: no {kind}");
        }
        for words in *words {
            assert!(text.contains(words), "{settings:?}: {words} in\n{text}");
        }
    }
    for (settings, words) in [
        (&["kind=StatefulSet"][..], "Deployment or DaemonSet"),
        (&["keda.enabled=true"], "keda.serverAddress"),
        (&["autoscaling.enabled=true", "kind=DaemonSet"], "needs kind: Deployment"),
        (&["provision.enabled=true", "addressPool={192.0.2.1}"], "provision and addressPool"),
    ] {
        let error = render(&helm, settings).expect_err(words);
        assert!(error.contains(words), "{settings:?}: {error}");
    }
}

/// The template of Gateways' pods is selected by no Service of the chart, and has no argument of the shared pods.
#[test]
fn the_template_of_gateways_is_a_pod_of_its_own() {
    let Some(helm) = helm() else { return };
    let text =
        render(&helm, &["provision.enabled=true", "webhook.enabled=true", "ingress.allowSnippets=true"]).unwrap();
    let documents = read_documents(&text);
    let config = documents_of(&documents, "ConfigMap").into_iter().next().unwrap();
    let template = config["data"]["pod.yaml"].as_str().unwrap();
    let pod: Value = serde_saphyr::from_str(template).unwrap();
    let labels = pod["metadata"]["labels"].as_object().unwrap();
    for service in documents_of(&documents, "Service") {
        let selector = service["spec"]["selector"].as_object().unwrap();
        assert!(!selector.iter().all(|(name, value)| labels.get(name) == Some(value)), "{service}");
    }
    for words in ["--provision", "--webhook", "--publish", "--allow-snippets"] {
        assert!(!template.contains(words), "{words} in\n{template}");
    }
}
