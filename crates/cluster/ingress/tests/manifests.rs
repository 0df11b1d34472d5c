//! Manifests and their configurations: each folder of `tests/manifests` has an `input.yaml`, and its translation in
//! `expected.conf` and `complaints.txt` (absent if nothing is left out). `settings.txt` has settings of the controller,
//! one a line: `class NAME`, `without-class`, `allow-snippets`, `firewall-folder DIR`, `resolver`, `default-certificate NAMESPACE/NAME`,
//! `default-backend NAMESPACE/NAME`, `config-map NAMESPACE/NAME`. `requests.txt` is for a runner that starts a server;
//! its form is that of the manifests of `cluster-render`.
//!
//! `TIDEGATE_EXPECTED=write cargo test -p cluster-ingress --test manifests` writes the expected files again: read the
//! difference before committing it.

use std::fs;
use std::path::{Path, PathBuf};

use cluster_ingress::{Settings, translate_ingresses};
use cluster_objects::{Complaint, ObjectName, ObjectSet, read_manifests};
use cluster_render::{RenderedConfig, render_model, render_tree};
use conf_syntax::writer::first_difference;
use conf_syntax::{FileId, parse_file};
use proptest::prelude::*;
use testkit::expected::{assert_files, folders_of};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests")
}

fn cases() -> Vec<PathBuf> {
    folders_of(folder())
}

fn settings(case: &Path) -> Settings {
    let mut settings = Settings::default();
    let name = |text: &str| {
        let (namespace, name) = text.split_once('/').expect(text);
        Some(ObjectName::new(namespace, name))
    };
    for line in fs::read_to_string(case.join("settings.txt")).unwrap_or_default().lines() {
        let (word, value) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "class" => settings.class = Some(value.into()),
            "without-class" => settings.serves_without_class = true,
            "allow-snippets" => settings.allows_snippets = true,
            "firewall-folder" => settings.firewall_folder = Some(value.into()),
            "resolver" => settings.has_resolver = true,
            "default-certificate" => settings.default_certificate = name(value),
            "default-backend" => settings.default_backend = name(value),
            "config-map" => settings.config_map = name(value),
            _ => panic!("{}: {line}", case.display()),
        }
    }
    settings
}

fn read(text: &str) -> (ObjectSet, Vec<Complaint>) {
    let (mut set, mut complaints) = (ObjectSet::default(), Vec::new());
    read_manifests("input.yaml", text, &mut set, &mut complaints);
    (set, complaints)
}

/// Rendered configuration and complaints.
fn run(case: &Path) -> (RenderedConfig, String) {
    let (set, mut complaints) = read(&fs::read_to_string(case.join("input.yaml")).unwrap());
    let translation = translate_ingresses(&set, &settings(case));
    complaints.extend(translation.complaints);
    let config = render_model(&translation.model, &cluster_render::Settings::default());
    let tree = render_tree(&translation.model, &cluster_render::Settings::default());
    assert_eq!(first_difference(&tree, &parse_file(FileId(0), config.main.as_bytes())), None, "{}", case.display());
    let mut lines: Vec<String> = complaints.iter().map(Complaint::to_string).collect();
    lines.extend(config.complaints.iter().map(|(origin, reason)| format!("{origin}: {reason}")));
    (config, lines.into_iter().map(|line| line + "\n").collect())
}

#[test]
fn manifests_give_the_expected_configurations() {
    let cases = cases();
    assert!(cases.len() >= 90, "{} cases", cases.len());
    assert_files(&cases, |case| {
        let (config, complaints) = run(case);
        vec![("expected.conf", own_part(&config.main)), ("complaints.txt", complaints)]
    });
}

/// Leaves out the parts that all configurations have: those of `cluster-render` show them.
fn own_part(text: &str) -> String {
    let end = "            return 503;\n    }\n".replace("            ", "        ");
    text.split_once(&end).map_or(text, |(_, rest)| rest).to_owned()
}

/// Charts of others use annotations as they are meant.
#[test]
fn manifests_of_charts_have_no_complaint() {
    let charts: Vec<PathBuf> = cases()
        .into_iter()
        .filter(|case| case.file_name().is_some_and(|name| name.to_string_lossy().starts_with("chart-")))
        .collect();
    assert!(charts.len() >= 25, "{} charts", charts.len());
    for case in charts {
        let (config, complaints) = run(&case);
        assert_eq!(complaints, "", "{}", case.display());
        assert!(config.main.contains("# Ingress "), "{}", case.display());
    }
}

#[test]
fn each_annotation_has_a_manifest() {
    let mut text = String::new();
    for case in cases() {
        text.push_str(&fs::read_to_string(case.join("input.yaml")).unwrap());
    }
    let missing: Vec<&str> = cluster_ingress::ANNOTATIONS
        .iter()
        .map(|known| known.name)
        .filter(|name| !text.contains(&format!("{}{name}:", cluster_ingress::PREFIX)))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

fn hostile() -> impl Strategy<Value = String> {
    let known = [
        "}\n",
        "; }",
        "\";",
        "';",
        "\\",
        "$host",
        "${x",
        "#",
        "\r\nX: y",
        "\0",
        "../../etc",
        "~^(.*)$",
        "*",
        " ",
        "",
        "{",
        "\u{2028}",
        "%0a",
        "/x y;",
        "(",
        "default",
        "true",
        "1",
        "https://a.example/$request_uri",
        "a,b",
        "unix:/x",
    ];
    prop_oneof![
        prop::sample::select(known.to_vec()).prop_map(str::to_owned),
        ".{0,40}",
        "[ \\t\\r\\n;{}\"'\\\\$#~]{0,12}",
        prop::collection::vec(prop::sample::select(known.to_vec()), 1..4).prop_map(|words| words.concat()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Any value of an annotation, a host, a path or a Service.
    #[test]
    fn no_value_leaves_its_argument(
        values in prop::collection::vec((any::<prop::sample::Index>(), hostile()), 1..6),
        host in hostile(),
        path in hostile(),
        service in hostile(),
        snippets in any::<bool>(),
    ) {
        let mut annotations = serde_json_map(&values);
        annotations.push_str("\"x\": \"y\"");
        let text = format!(
            "{{\"apiVersion\": \"networking.k8s.io/v1\", \"kind\": \"Ingress\", \"metadata\": {{\"name\": \"a\", \"annotations\": \
             {{{annotations}}}}}, \"spec\": {{\"ingressClassName\": \"nginx\", \"tls\": [{{}}], \"rules\": [{{\"host\": \"a.example\", \"http\": \
             {{\"paths\": [{{\"path\": \"/{0}\", \"pathType\": \"Prefix\", \"backend\": {{\"service\": {{\"name\": \"b\", \"port\": \
             {{\"number\": 80}}}}}}}}, {{\"path\": {1}, \"pathType\": \"Exact\", \"backend\": {{\"service\": {{\"name\": {2}, \"port\": {{\"name\": {2}}}}}}}}}]}}}}, \
             {{\"host\": {3}}}]}}}}\n{{\"apiVersion\": \"v1\", \"kind\": \"Service\", \"metadata\": {{\"name\": \"b\"}}, \
             \"spec\": {{\"ports\": [{{\"port\": 80}}]}}}}",
            quote(&path).trim_matches('"'), quote(&path), quote(&service), quote(&host),
        );
        let (set, _) = read(&text);
        let settings = Settings { allows_snippets: snippets, has_resolver: true, ..Settings::default() };
        let translation = translate_ingresses(&set, &settings);
        for complaint in &translation.complaints {
            prop_assert!(!complaint.to_string().contains(['\n', '\r']), "one line each");
        }
        let settings = cluster_render::Settings::default();
        let config = render_model(&translation.model, &settings);
        let read = parse_file(FileId(0), config.main.as_bytes());
        assert_eq!(first_difference(&render_tree(&translation.model, &settings), &read), None);
    }
}

fn serde_json_map(values: &[(prop::sample::Index, String)]) -> String {
    let all = cluster_ingress::ANNOTATIONS;
    let entry = |(index, value): &(prop::sample::Index, String)| {
        format!("\"{}{}\": {}, ", cluster_ingress::PREFIX, index.get(all).name, quote(value))
    };
    values.iter().map(entry).collect()
}

/// Returns a string of JSON.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn the_order_of_objects_has_no_effect(seed in any::<u64>()) {
        for case in cases() {
            let text = fs::read_to_string(case.join("input.yaml")).unwrap();
            let mut documents: Vec<&str> = text.split("\n---\n").collect();
            let expected = translate_ingresses(&read(&text).0, &settings(&case));
            let mut state = seed | 1;
            for index in (1..documents.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                documents.swap(index, (state >> 33) as usize % (index + 1));
            }
            let found = translate_ingresses(&read(&documents.join("\n---\n")).0, &settings(&case));
            prop_assert_eq!(&expected.model, &found.model);
            prop_assert_eq!(&expected.complaints, &found.complaints);
        }
    }
}
