//! `convert-ingress`, and the document that lists annotations.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use cluster_ingress::{ANNOTATIONS, REFUSED_DIRECTIVES, REFUSED_VALUES, Treatment};

const INGRESS: &str = "\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: api
  namespace: shop
  annotations:
    nginx.ingress.kubernetes.io/proxy-body-size: 8m
    nginx.ingress.kubernetes.io/proxy-read-timeout: 30s
    nginx.ingress.kubernetes.io/rate-limit: \"10\"
    nginx.ingress.kubernetes.io/http2-push-preload: \"true\"
spec:
  ingressClassName: nginx
  rules:
  - host: shop.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80}]}
";

fn run(text: &str, arguments: &[&str]) -> (String, Option<i32>) {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("convert-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("input.yaml");
    fs::write(&file, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-controller"))
        .arg("convert-ingress")
        .arg(&file)
        .args(arguments)
        .output()
        .unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

#[test]
fn each_annotation_has_a_line_with_its_directives_or_the_reason() {
    let (text, code) = run(INGRESS, &[]);
    assert_eq!(code, Some(1));
    for line in [
        "Ingress shop/api",
        "  proxy-body-size     client_max_body_size",
        "! proxy-read-timeout  proxy_read_timeout, grpc_read_timeout",
        "! rate-limit          \"rate-limit\" is no annotation of ingress-nginx and has no effect: write limit-rps",
        "! http2-push-preload  browsers do not take pushes any more",
        "shop/Ingress api: proxy-read-timeout: \"30s\" is ignored: expected an integer without a unit",
        "4 annotations: 1 translated, 3 with a complaint or without an equal (!)",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn json_has_the_same_findings() {
    let (text, code) = run(INGRESS, &["--json"]);
    assert_eq!(code, Some(1));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let treatments: Vec<_> =
        value["annotations"].as_array().unwrap().iter().map(|it| (&it["annotation"], &it["treatment"])).collect();
    assert_eq!(treatments.len(), 4);
    assert_eq!(treatments[0].1, "no-equal");
    assert_eq!(value["annotations"][2]["complaints"].as_array().unwrap().len(), 1, "{text}");
}

#[test]
fn a_complete_translation_exits_with_zero() {
    let text: String = INGRESS
        .lines()
        .filter(|line| !line.contains("30s") && !line.contains("rate-limit") && !line.contains("http2"))
        .fold(String::new(), |all, line| all + line + "\n");
    assert_eq!(run(&text, &[]).1, Some(0));
}

/// Returns the tables of the document.
fn tables() -> String {
    let mut text = String::from("\n| Annotation | Becomes |\n|---|---|\n");
    let cell = |words: &str| words.replace('|', "\\|");
    for known in ANNOTATIONS {
        let words = match known.treatment {
            Treatment::Translated | Treatment::Refused => known.becomes.to_owned(),
            Treatment::Snippet => format!("with `--allow-snippets`: {}", known.becomes),
            Treatment::NoEqual => format!("no effect: {}", known.becomes),
            Treatment::NotNeeded => format!("not needed: {}", known.becomes),
        };
        writeln!(text, "| `{}` | {} |", known.name, cell(&words)).unwrap();
    }
    text.push_str("\nRefused, so that the paths of the Ingress answer 503:\n\n| Value | Reason |\n|---|---|\n");
    for known in REFUSED_VALUES {
        writeln!(text, "| {} | {} |", known.name, known.becomes).unwrap();
    }
    text.push_str("\nKeys of the ConfigMap (`--config-map`):\n\n| Key | Becomes |\n|---|---|\n");
    for (keys, becomes) in cluster_ingress::config_keys() {
        writeln!(text, "| {keys} | {} |", cell(becomes)).unwrap();
    }
    text.push_str(
        "\nDirectives that are refused in snippets; the Ingress is left out:\n\n| Directive | Reason |\n|---|---|\n",
    );
    for (name, reason) in REFUSED_DIRECTIVES {
        writeln!(text, "| `{name}` | {reason} |").unwrap();
    }
    text
}

/// `TIDEGATE_EXPECTED=write` writes the tables again.
#[test]
fn the_document_has_the_tables_of_the_code() {
    const BEGIN: &str = "<!-- annotations: made of the code by a test -->\n";
    const END: &str = "<!-- end of annotations -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/kubernetes.md");
    let text = fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once(BEGIN).expect(BEGIN);
    let (found, tail) = rest.split_once(END).expect(END);
    if std::env::var("TIDEGATE_EXPECTED").is_ok_and(|word| word == "write") {
        fs::write(&path, format!("{head}{BEGIN}{}\n{END}{tail}", tables())).unwrap();
    } else {
        assert_eq!(found, tables() + "\n", "TIDEGATE_EXPECTED=write writes the tables again");
    }
}
