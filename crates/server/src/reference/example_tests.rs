//! Tests that `-t` accepts every example, in a directory with the files that examples name.

use super::*;
use crate::conf::{self, Invocation};
use crate::reference::{Entry, Support};
use advisor::lint::{self, LintLevel};
use conf_schema::TextStore;
use observe::LogFiles;
use std::path::{Path, PathBuf};

struct NoFiles;

impl conf_syntax::TextSource for NoFiles {
    fn read(&self, _: &Path) -> std::io::Result<Vec<u8>> {
        Err(std::io::ErrorKind::NotFound.into())
    }
    fn glob(&self, _: &str) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// A folder with certificates, keys, lists and databases under the names that examples use; removed at the end.
struct ExampleFolder(PathBuf);

impl Drop for ExampleFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn folder(name: &str) -> ExampleFolder {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut parameters = rcgen::CertificateParams::new(vec!["example.com".to_string()]).expect("parameters");
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    parameters.key_usages = vec![rcgen::KeyUsagePurpose::CrlSign, rcgen::KeyUsagePurpose::KeyCertSign];
    // The address of an OCSP responder: id-pe-authorityInfoAccess, id-ad-ocsp (RFC 5280, 4.2.2.1).
    let mut access = vec![0x30, 35, 0x30, 33, 6, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, 1, 0x86, 21];
    access.extend_from_slice(b"http://127.0.0.1:8889");
    parameters.custom_extensions = vec![rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], access)];
    let certificate = parameters.self_signed(&key).expect("signed").pem();
    let issuer = rcgen::Issuer::new(parameters, &key);
    let revoked = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2026, 1, 1),
        next_update: rcgen::date_time_ymd(2099, 1, 1),
        crl_number: rcgen::SerialNumber::from(1u64),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let revoked = revoked.signed_by(&issuer).expect("signed").pem().expect("text");
    let key = key.serialize_pem();
    let mut files: Vec<(&str, Vec<u8>)> = vec![
        ("htpasswd", b"user:{PLAIN}secret\n".to_vec()),
        ("passwords", b"secret\n".to_vec()),
        ("redis.pass", b"secret\n".to_vec()),
        ("keys.json", br#"{"kty":"oct","k":"c2VjcmV0"}"#.to_vec()),
        ("ticket.key", vec![7; 80]),
        ("quic.key", vec![7; 32]),
        // A response with the status `unauthorized` and nothing else.
        ("ocsp.der", vec![0x30, 3, 0x0a, 1, 6]),
        ("city.dat", vec![0xff, 0xff, 0xff, 2, 1, 0, 0]),
        ("country.dat", vec![0xff; 3]),
        ("org.dat", vec![0xff, 0xff, 0xff, 5, 1, 0, 0]),
        ("country.mmdb", mmdb()),
        ("entities.dtd", b"<!ENTITY a \"b\">\n".to_vec()),
        ("listing.xslt", LISTING.to_vec()),
        ("waf.conf", b"SecRuleEngine On\nSecRequestBodyAccess On\n".to_vec()),
        ("ca.crl", revoked.into_bytes()),
    ];
    for name in ["example.crt", "client.crt", "ca.crt"] {
        files.push((name, certificate.clone().into_bytes()));
    }
    for name in ["example.key", "client.key"] {
        files.push((name, key.clone().into_bytes()));
    }
    files.push(("dhparam.pem", b"-----BEGIN DH PARAMETERS-----\nMAYCAQcCAQI=\n-----END DH PARAMETERS-----\n".to_vec()));
    let folder = ExampleFolder(std::env::temp_dir().join(format!("tidegate-examples-{name}-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("a folder");
    for (name, bytes) in files {
        std::fs::write(folder.0.join(name), bytes).expect("a file");
    }
    folder
}

const LISTING: &[u8] = b"<xsl:stylesheet version=\"1.0\" xmlns:xsl=\"http://www.w3.org/1999/XSL/Transform\">\
    <xsl:template match=\"/\"><r/></xsl:template></xsl:stylesheet>";

/// The smallest database of MaxMind's format: one node, no addresses.
fn mmdb() -> Vec<u8> {
    let mut out = vec![0; 6 + 16];
    out.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    out.push(7 << 5 | 4);
    for (name, value) in
        [("node_count", [6 << 5 | 1, 1]), ("record_size", [5 << 5 | 1, 24]), ("ip_version", [5 << 5 | 1, 4])]
    {
        out.push(2 << 5 | name.len() as u8);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&value);
    }
    out.push(2 << 5 | 27);
    out.extend_from_slice(b"binary_format_major_version");
    out.extend_from_slice(&[5 << 5 | 1, 2]);
    out
}

fn invocation(text: &str, folder: &Path) -> Invocation {
    let events = if text.lines().any(|line| line.starts_with("events {")) { "" } else { "events { }\n" };
    Invocation {
        prefix: folder.to_path_buf(),
        conf_file: folder.join("nginx.conf"),
        error_log: None,
        error_log_said: false,
        pid: "nginx.pid".into(),
        globals: Vec::new(),
        text: Some(format!("{events}{text}").into_bytes()),
    }
}

/// Reads a text as `-t` does. Returns messages of errors, or the warnings.
fn tested(text: &str, folder: &Path) -> Result<Vec<String>, Vec<String>> {
    let invocation = invocation(text, folder);
    let reading = conf::read_config(&NoFiles, TextStore::default(), &invocation, LogFiles::default());
    match reading.config {
        Ok(_) => Ok(reading.warnings.into_iter().map(|complaint| complaint.text).collect()),
        Err(failure) => Err(failure.complaints.into_iter().map(|complaint| complaint.text).collect()),
    }
}

/// Returns the warnings and errors of `tidegate lint` about a text.
fn findings(text: &str, folder: &Path) -> Vec<String> {
    let invocation = invocation(text, folder);
    let (files, items) = conf::load_config(&NoFiles, &invocation).unwrap_or_else(|_| panic!("{text}"));
    let findings = lint::lint_config(&conf::full_schema(), &files, &items, &[]);
    let findings = findings.into_iter().filter(|finding| finding.check.level >= LintLevel::Warning).collect::<Vec<_>>();
    if findings.is_empty() { Vec::new() } else { vec![lint::findings_text(&files, &findings, false)] }
}

#[test]
fn every_supported_directive_has_an_example_that_is_accepted() {
    let schema = conf::full_schema();
    let folder = folder("examples");
    let mut faults = Vec::new();
    let mut count = 0;
    for known in vocabulary::all() {
        let entry = Entry::of(&schema, known);
        let is_done = !matches!(entry.support, Support::NotYet | Support::Refused(_));
        let Some(text) = directive_example(known) else {
            if is_done {
                faults.push(format!("{} ({:?}) has no example", known.name, known.area()));
            }
            continue;
        };
        count += 1;
        if !is_done {
            faults.push(format!("{} has an example and is not supported", known.name));
        }
        if !text.lines().any(|line| first_word(line.trim_start()) == known.name) {
            faults.push(format!("{} is not in its example:\n{text}", known.name));
        }
        match tested(&text, &folder.0) {
            Err(said) => faults.push(format!("{}: {}\n{text}", known.name, said.join("\n"))),
            Ok(mut said) => {
                // (nginx's own warnings.)
                const EXPECTED: [&str; 3] = ["obsolete", "deprecated", "send_lowat\" is not supported, ignored"];
                said.retain(|text| !EXPECTED.iter().any(|word| text.contains(word)));
                if !said.is_empty() && entry.support == Support::Full {
                    faults.push(format!("{} warns: {}\n{text}", known.name, said.join("\n")));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} of {count} examples:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn every_example_is_of_a_directive_and_none_is_there_twice() {
    let mut seen = std::collections::HashSet::new();
    for (area, name, lines) in parsed(TEXT) {
        let members = members(area, &name, &lines);
        assert!(!members.is_empty(), "{name} is no directive of {area:?}");
        for (member, lines) in members {
            assert!(known_in(area, &member).is_some(), "{member} is no directive of {area:?}");
            // A line for one module may come before the line for all.
            assert!(!lines.is_empty() && (seen.insert((area, member)) || name.starts_with("*_")), "{name} is twice");
        }
    }
}

#[test]
fn an_example_is_complete() {
    let text = |name: &str, area: ContextArea| {
        directive_example(known_in(area, name).expect("a directive")).expect("an example")
    };
    assert_eq!(text("daemon", ContextArea::Main), "daemon off;\n");
    assert_eq!(
        text("proxy_read_timeout", ContextArea::Http),
        "http {\n    server {\n        location / {\n            proxy_read_timeout 120s;\n            \
         proxy_pass http://127.0.0.1:8080;\n        }\n    }\n}\n"
    );
    assert!(text("ssl_protocols", ContextArea::Mail).contains("listen 127.0.0.1:993 ssl;\n"));
}

/// The documents for users of other servers: their tables have lines of nginx.conf in the second column.
const COMING_FROM: [&str; 3] = ["from-caddy", "from-haproxy", "from-ingress-nginx"];

/// Completes lines of one table cell to a configuration: `stream { ... }` and the like as they are, others in `http`.
fn completed(lines: &[String]) -> String {
    let mut held: Vec<Vec<String>> = vec![Vec::new(); 4];
    for line in lines {
        let word = first_word(line);
        if let Some(known) = known_in(ContextArea::Main, word).filter(|_| known_in(ContextArea::Http, word).is_none()) {
            let is_event = known.contexts.to_string() == "events";
            held[0].push(if is_event { format!("events {{ {line} }}") } else { line.clone() });
        } else {
            held[depth_beside(ContextArea::Http, word, 3)].push(line.clone());
        }
    }
    let mut out = String::new();
    write_blocks(blocks(ContextArea::Http), &held, 0, &mut out);
    out
}

#[test]
fn tables_for_users_of_other_servers_are_accepted() {
    let folder = folder("tables");
    let mut faults = Vec::new();
    let mut rows = 0;
    for name in COMING_FROM {
        let path = format!("{}/../../docs/{name}.md", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect(name);
        let mut is_nginx = false;
        for row in text.lines().filter(|line| line.starts_with('|')) {
            let row = row.replace("\\|", "\u{1}");
            let cells: Vec<&str> = row.split('|').collect();
            let cell = cells[2].replace('\u{1}', "|");
            if cell.trim() == "nginx.conf" || cell.contains("Tidegate") {
                is_nginx = cell.trim() == "nginx.conf";
                continue;
            }
            let lines: Vec<String> = cell
                .split('`')
                .skip(1)
                .step_by(2)
                .filter(|code| code.ends_with([';', '}']))
                .map(str::to_string)
                .collect();
            if !is_nginx || cell.starts_with("---") {
                continue;
            }
            if lines.is_empty() {
                assert!(cell.trim().starts_with('('), "{name}: a row without lines: {row}");
                continue;
            }
            rows += 1;
            let text = completed(&lines);
            match tested(&text, &folder.0) {
                Ok(said) if said.is_empty() => {}
                Ok(said) | Err(said) => faults.push(format!("{name}: {}\n{text}", said.join("\n"))),
            }
        }
        for block in text.split("```nginx\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            if let Err(said) = tested(block, &folder.0) {
                faults.push(format!("{name}: {}\n{block}", said.join("\n")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(rows > 100, "{rows} rows");
}

/// Lines that a fragment of a document needs: a text of the fragment, a text that makes them unnecessary, the lines.
const AROUND: [(&str, &str, &str); 6] = [
    (
        "letsencrypt",
        "acme_issuer letsencrypt",
        "acme_issuer letsencrypt { uri https://127.0.0.1:1/; accept_terms_of_service; }",
    ),
    ("letsencrypt", "resolver ", "resolver 127.0.0.1:1;"),
    ("acme_hook example", "acme_client ", "acme_client example https://127.0.0.1:1/directory;"),
    ("$acme_cert_example", "acme_client ", "acme_client example https://127.0.0.1:1/directory;"),
    ("$ratio_sampler", "split_clients ", "split_clients $otel_trace_id $ratio_sampler { 10% on; * off; }"),
    ("otel_trace ", "otel_exporter ", "otel_exporter { endpoint localhost:4317; }"),
];

/// Splits a fragment into its outermost directives.
fn outermost(text: &str) -> Vec<String> {
    let (mut all, mut one, mut depth) = (Vec::new(), String::new(), 0);
    for line in text.lines().map(|line| line.split("# ").next().unwrap_or_default()) {
        for c in line.chars().chain(['\n']) {
            one.push(c);
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 && matches!(c, ';' | '}') {
                all.push(std::mem::take(&mut one).trim().to_string());
            }
        }
    }
    all
}

/// Completes a fragment, with the test's files in place of those that it names.
fn fragment(text: &str) -> String {
    let around = AROUND.iter().filter(|(name, unless, _)| text.contains(name) && !text.contains(unless));
    let around: String = around.map(|(_, _, lines)| format!("{lines}\n")).collect();
    let text = match text.contains("http {") {
        _ if around.is_empty() => text.to_string(),
        true => text.replace("http {", &format!("http {{ {around}")),
        false => format!("http {{ {around}{text} }}"),
    };
    let word = |word: &str| {
        let plain = word.trim_end_matches(';');
        let to = match () {
            () if plain.starts_with('$') || plain.contains("://") => plain,
            () if plain.ends_with(".crt") || plain.ends_with(".pem") => "example.crt",
            () if plain.ends_with("eab.key") => "eab.key",
            () if plain.ends_with("dns-hook") => "/bin/true",
            () if plain.ends_with(".key") => "example.key",
            () if plain == "/etc/tidegate/operators" => "htpasswd",
            () if plain.starts_with("/etc/tidegate/waf") && plain.ends_with("/main.conf") => "waf.conf",
            () => plain,
        };
        format!("{to}{}", &word[plain.len()..])
    };
    let words = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    let text: String = text.lines().map(|line| words(line) + "\n").collect();
    let lines = outermost(&text);
    match lines.iter().any(|line| ["http {", "mail {", "stream {"].iter().any(|block| line.starts_with(block))) {
        true => text,
        false => completed(&lines),
    }
}

/// Documents whose blocks other tests read: recipes with their files, generated ones.
const READ_ELSEWHERE: [&str; 5] =
    ["lint.md", "reference.md", "compatibility.md", "metrics.md", "from-ingress-nginx.md"];

#[test]
fn configurations_in_documents_are_accepted_without_findings() {
    let folder = folder("documents");
    std::fs::write(folder.0.join("eab.key"), "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ").expect("a file");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let documents = ["docs", "docs/recipes"].map(|part| root.join(part)).into_iter().flat_map(std::fs::read_dir);
    let (mut faults, mut count) = (Vec::new(), 0);
    for path in documents.flatten().flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.ends_with(".md") || READ_ELSEWHERE.contains(&name.as_str()) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a document");
        for block in text.split("```nginx\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            // The test of recipes starts them.
            if block.starts_with('#') {
                continue;
            }
            count += 1;
            let block = fragment(&block.replace("include fastcgi_params;", ""));
            match tested(&block, &folder.0) {
                Ok(_) => {
                    faults.extend(findings(&block, &folder.0).iter().map(|said| format!("{name}: {said}\n{block}")))
                }
                Err(said) => faults.push(format!("{name}: {}\n{block}", said.join("\n"))),
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 20, "{count} configurations");
}
