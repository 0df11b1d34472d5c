//! `tidegate-controller render` as people call it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn manifests(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../render/tests/manifests").join(case).join("input.yaml")
}

fn render(arguments: &[&str]) -> Output {
    let command = env!("CARGO_BIN_EXE_tidegate-controller");
    Command::new(command).arg("render").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A folder that is removed with its contents.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tidegate-controller-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn without_an_output_the_configuration_goes_to_the_standard_output() {
    let input = manifests("http-simple");
    let output = render(&["--input", input.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), fs::read_to_string(input.with_file_name("expected.conf")).unwrap());
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn the_standard_input_gives_the_same_configuration() {
    let input = manifests("http-simple");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate-controller"))
        .args(["render", "--input", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&fs::read(&input).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), fs::read_to_string(input.with_file_name("expected.conf")).unwrap());
}

#[test]
fn a_complaint_fails_with_strict_only() {
    let input = manifests("http-backend-missing");
    let input = input.to_str().unwrap();
    let output = render(&["--input", input]);
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "shop/HTTPRoute gone: BackendNotFound: Service shop/gone: does not exist\n");
    let output = render(&["--input", input, "--strict"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).ends_with("tidegate-controller: 1 parts are left out\n"));
    assert!(!output.stdout.is_empty(), "the configuration is written nevertheless");
}

#[test]
fn an_output_folder_has_keys_for_their_owner_only() {
    let folder = Folder::new("output");
    let input = manifests("https-terminate");
    let status = folder.0.join("status.json");
    let arguments = ["--input", input.to_str().unwrap(), "--output", folder.0.to_str().unwrap(), "--status"];
    let output = render(&[&arguments[..], &[status.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty());
    let expected = fs::read_to_string(input.with_file_name("expected.conf")).unwrap();
    assert_eq!(fs::read_to_string(folder.0.join("nginx.conf")).unwrap(), expected);
    let mode = |name: &str| fs::metadata(folder.0.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("certificates/shop/tls.key"), 0o600);
    assert!(fs::read_to_string(folder.0.join("certificates/shop/tls.crt")).unwrap().contains("BEGIN CERTIFICATE"));
    let expected = fs::read_to_string(input.with_file_name("status.json")).unwrap();
    assert_eq!(fs::read_to_string(status).unwrap(), expected);
}

#[test]
fn manifests_without_a_gateway_are_an_error() {
    let folder = Folder::new("empty");
    fs::write(folder.0.join("a.yaml"), "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\n")
        .unwrap();
    fs::write(folder.0.join("notes.txt"), "no manifest").unwrap();
    let output = render(&["--input", folder.0.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "default/Ingress a: left out: it has no class (--ingress-without-class serves it)\n\
                    tidegate-controller: nothing to serve: no Gateway of ours has a valid listener, and no Ingress is of our class\n";
    assert_eq!(text(&output.stderr), expected);
    let output = render(&["--input", "/does/not/exist"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("tidegate-controller: /does/not/exist: "));
}

#[test]
fn a_class_selects_gateways() {
    let input = manifests("gateway-classes");
    let output = render(&["--input", input.to_str().unwrap(), "--class", "other"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("# Gateway shop/foreign, listener http"));
    assert!(!text(&output.stdout).contains("# Gateway shop/public"));
}

#[test]
fn the_port_of_probes_is_no_port_of_a_listener() {
    let input = manifests("http-redirect-port-of-listener");
    let output = render(&["--input", input.to_str().unwrap(), "--probe-port", "8080"]);
    assert_eq!(output.status.code(), Some(1));
    let words = "shop/Gateway public: listener http: PortUnavailable: port 8080 belongs to the controller\n";
    assert!(text(&output.stderr).starts_with(words), "{}", text(&output.stderr));
    let output = render(&["--input", input.to_str().unwrap(), "--probe-port", "8081"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("location = /healthz {"));
}

#[test]
fn the_help_has_examples() {
    let help = text(&render(&["--help"]).stdout);
    for word in ["kubectl get gateways", "--strict", "NAMESPACE/KIND NAME: reason"] {
        assert!(help.contains(word), "{word} in\n{help}");
    }
}

#[test]
fn ingresses_stand_beside_gateways() {
    let text = "\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: web
  namespace: shop
  annotations: {nginx.ingress.kubernetes.io/configuration-snippet: 'more_set_headers \"X-A: b\";'}
spec:
  ingressClassName: internal
  rules:
  - host: web.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80}]}
";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("beside-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("ingress.yaml");
    fs::write(&file, text).unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate-controller"))
            .args(["render", "--input"])
            .arg(&file)
            .args(arguments)
            .output()
            .unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (config, words) = run(&["--ingress-class", "internal", "--allow-snippets"]);
    assert_eq!(words, "");
    assert!(config.contains("more_set_headers \"X-A: b\";") && config.contains("server_name web.example;"), "{config}");
    let (_, words) = run(&["--ingress-class", "internal"]);
    assert_eq!(words, "shop/Ingress web: configuration-snippet is ignored: snippets need --allow-snippets\n");
    let (_, words) = run(&[]);
    assert!(words.starts_with("shop/Ingress web: left out: its class is \"internal\"\n"), "{words}");
    fs::remove_dir_all(&folder).unwrap();
}
