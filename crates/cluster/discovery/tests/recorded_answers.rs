//! Recorded answers and their configurations: each folder of `tests/recorded` has an `input.json` (`docker inspect`, or answers of
//! `/v1/health/service/NAME`), and its translation in `expected.conf` and `complaints.txt` (absent if nothing is left out).
//! `settings.txt` has settings, one `NAME=VALUE` a line. Folders that begin with `consul-` and `podman-` are of these providers.
//!
//! `TIDEGATE_EXPECTED=write cargo test -p cluster-discovery --test recorded_answers` writes the expected files again: read the
//! difference before committing it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cluster_discovery::{
    AcmeSettings, Catalog, CertificateFolder, FolderFile, HttpsMode, Provider, Settings, VARIABLES, VariableUse,
    labels, read_recorded, translate_catalog,
};
use cluster_render::{ConfigText, render_model};
use testkit::expected::{assert_files, folders_of};

fn cases() -> Vec<PathBuf> {
    folders_of(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded"))
}

fn provider(case: &Path) -> Provider {
    match case.file_name().unwrap().to_str().unwrap().split('-').next() {
        Some("consul") => Provider::Consul,
        Some("podman") => Provider::Podman,
        _ => Provider::Docker,
    }
}

/// Certificates whose keys stay the same: rendered configurations name files only.
fn certificates(names: &str) -> CertificateFolder {
    let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    let mut files = Vec::new();
    for name in names.split(',') {
        files.push(FolderFile { name: format!("{name}.crt"), contents: made.cert.pem().into() });
        files.push(FolderFile { name: format!("{name}.key"), contents: made.signing_key.serialize_pem().into() });
    }
    CertificateFolder::new(&files)
}

fn settings(case: &Path) -> (Settings, Option<String>) {
    let mut settings = Settings { provider: provider(case), ..Settings::default() };
    let mut resolver = None;
    for line in fs::read_to_string(case.join("settings.txt")).unwrap_or_default().lines() {
        let (name, value) = line.split_once('=').expect(line);
        let text = value.to_owned();
        match name {
            "server-container" => settings.server_container = Some(text),
            "server-hostname" => settings.server_hostname = Some(text),
            "network" => settings.network = Some(text),
            "published-ports" => settings.uses_published_ports = true,
            "prefer-ipv6" => settings.prefers_ipv6 = true,
            "allow-snippets" => settings.allows_snippets = true,
            "default-host" => settings.default_host = Some(text),
            "address" => settings.address = Some(value.parse().expect(line)),
            "https-port" => settings.https_port = value.parse().expect(line),
            "https-method" => settings.https = HttpsMode::WORDS.iter().find(|(word, _)| *word == value).map(|it| it.1),
            "certificates" => settings.certificates = Arc::new(certificates(value)),
            "resolver" => resolver = Some(text),
            "acme" => {
                settings.acme = Some(AcmeSettings {
                    directory: text,
                    contact: None,
                    state_folder: "/var/lib/tidegate/acme".into(),
                    trusted_certificate: None,
                });
            }
            other => panic!("{}: unknown setting {other}", case.display()),
        }
    }
    settings.has_resolver = resolver.is_some();
    (settings, resolver)
}

/// Rendered configuration and complaints.
fn run(case: &Path) -> (String, String) {
    let (settings, resolver) = settings(case);
    let mut catalog = Catalog::default();
    let text = fs::read_to_string(case.join("input.json")).unwrap();
    let errors = read_recorded(&text, settings.provider, &mut catalog).err().unwrap_or_default();
    let translation = translate_catalog(&catalog, &settings, &BTreeSet::new());
    let render_settings = cluster_render::Settings { resolver, ..cluster_render::Settings::default() };
    let config = render_model(&translation.model, &render_settings);
    let text = ConfigText::new(&config);
    assert_eq!(text.with_servers(&config.groups, &render_settings), config.main, "{}", case.display());
    let mut lines = errors;
    lines.extend(translation.complaints.iter().map(ToString::to_string));
    lines.extend(config.complaints.iter().map(|(origin, reason)| format!("{origin}: {reason}")));
    // The parts in front of the hosts are those of every configuration.
    let begin = config.main.find("    # Services without endpoints").expect("the server of empty groups");
    (config.main[begin..].to_owned(), lines.into_iter().map(|line| line + "\n").collect())
}

#[test]
fn recorded_answers_give_the_expected_configurations() {
    let cases = cases();
    assert!(cases.len() >= 12, "{} cases", cases.len());
    assert_files(&cases, |case| {
        let (config, complaints) = run(case);
        vec![("expected.conf", config), ("complaints.txt", complaints)]
    });
}

#[test]
fn the_document_has_each_label_and_variable() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/containers.md");
    let text = fs::read_to_string(path).unwrap();
    let label = |key: &labels::LabelKey| {
        let name = if key.is_of_router { "`tidegate.[NAME.]" } else { "`tidegate." };
        format!("| {name}{}` | {} | {} |", key.name, key.values, key.meaning)
    };
    let variable = |(name, treatment): &(&str, VariableUse)| match treatment {
        VariableUse::Supported => format!("| `{name}` | yes |"),
        VariableUse::Ignored(reason) => format!("| `{name}` | no: {reason} |"),
    };
    let rows = labels::KEYS.iter().map(label).chain(VARIABLES.iter().map(variable));
    let missing: Vec<String> = rows.filter(|row| !text.lines().any(|line| line == row)).collect();
    assert!(missing.is_empty(), "docs/containers.md lacks:\n{}", missing.join("\n"));
}
