//! Manifests and their configurations: each folder of `tests/manifests` has an `input.yaml`, and its translation in
//! `expected.conf`, `status.json` and `complaints.txt` (absent if nothing is left out). `addresses.txt` has addresses of
//! Gateways, one `NAMESPACE/NAME=ADDRESS` a line.
//!
//! `TIDEGATE_EXPECTED=write cargo test -p cluster-render --test manifests` writes the expected files again: read the
//! difference before committing it.
//!
//! `requests.txt` has one request a line, for a runner that starts a server: `METHOD [SCHEME://]HOST[:PORT]/PATH
//! [NAME:VALUE]... -> ANSWER`. Schemes are `http` and `https`; values of fields have `_` for a space. An answer is
//! `NAMESPACE/SERVICE:PORT` for a backend, a status, a status and its `Location`, or `reject` for a refused handshake;
//! several of them with shares in percent are drawn by weight. Behind a backend, `path=`, `host=`, `header=NAME:VALUE`
//! name parts of the request that it receives, and `mirror=` which backend receives a copy.

use std::fs;
use std::path::{Path, PathBuf};

use cluster_gateway::{Settings, translate_gateways};
use cluster_objects::{Complaint, ObjectName, ObjectSet, read_manifests};
use cluster_render::{ConfigText, RenderedConfig, render_model, render_skeleton, render_tree};
use conf_syntax::writer::first_difference;
use conf_syntax::{FileId, parse_file};
use testkit::expected::{assert_files, folders_of};

fn cases() -> Vec<PathBuf> {
    folders_of(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests"))
}

fn settings(case: &Path) -> Settings {
    let mut settings = Settings::default();
    let text = fs::read_to_string(case.join("addresses.txt")).unwrap_or_default();
    for line in text.lines() {
        let (name, address) = line.split_once('=').expect(line);
        let (namespace, name) = name.split_once('/').expect(line);
        settings.addresses.entry(ObjectName::new(namespace, name)).or_default().push(address.parse().expect(line));
    }
    settings
}

/// Rendered configuration, statuses and complaints.
fn run(case: &Path) -> (RenderedConfig, String, String) {
    let (mut set, mut complaints) = (ObjectSet::default(), Vec::new());
    let text = fs::read_to_string(case.join("input.yaml")).unwrap();
    read_manifests("input.yaml", &text, &mut set, &mut complaints);
    let translation = translate_gateways(&set, &settings(case));
    complaints.extend(translation.complaints);
    let config = render_model(&translation.model, &cluster_render::Settings::default());
    let tree = render_tree(&translation.model, &cluster_render::Settings::default());
    assert_eq!(first_difference(&tree, &parse_file(FileId(0), config.main.as_bytes())), None, "{}", case.display());
    let text = ConfigText::new(&config);
    let skeleton = render_skeleton(&translation.model, &cluster_render::Settings::default());
    assert_eq!(text.skeleton(), skeleton, "{}", case.display());
    assert_eq!(text.remove_servers(&config.main), skeleton, "{}", case.display());
    assert_eq!(
        text.with_servers(&config.groups, &cluster_render::Settings::default()),
        config.main,
        "{}",
        case.display()
    );
    let status = serde_json::to_string_pretty(&translation.statuses).unwrap() + "\n";
    let mut lines: Vec<String> = complaints.iter().map(Complaint::to_string).collect();
    lines.extend(config.complaints.iter().map(|(origin, reason)| format!("{origin}: {reason}")));
    let lines = lines.into_iter().map(|line| line + "\n").collect();
    (config, status, lines)
}

#[test]
fn manifests_give_the_expected_configurations() {
    let cases = cases();
    assert!(cases.len() >= 40, "{} cases", cases.len());
    assert_files(&cases, |case| {
        let (config, status, complaints) = run(case);
        vec![("expected.conf", config.main), ("status.json", status), ("complaints.txt", complaints)]
    });
}

#[test]
fn requests_have_the_documented_form() {
    for case in cases() {
        let Ok(text) = fs::read_to_string(case.join("requests.txt")) else { continue };
        for line in text.lines() {
            let (request, answer) = line.split_once(" -> ").unwrap_or_else(|| panic!("{}: {line}", case.display()));
            let mut words = request.split(' ');
            let method = words.next().unwrap_or("");
            assert!(method.bytes().all(|byte| byte.is_ascii_uppercase()), "{line}");
            assert!(words.next().is_some_and(|target| target.contains('/')), "{line}");
            assert!(words.all(|field| field.contains(':')), "{line}");
            assert!(!answer.is_empty(), "{line}");
        }
    }
}
