//! `tidegate lint`: positions, formats, exit status; no findings in correct configurations.

use crate::support;

use std::path::Path;
use support::{Site, text};

const TRAP: &str = "http { server { listen 127.0.0.1:8080;\n  location /i {\n    alias /data/i/;\n  } } }";

#[test]
fn a_finding_has_its_place_a_caret_and_a_fix() {
    let site = Site::new("", TRAP);
    let output = site.run(&["-t"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = lint_of(&site, &[]);
    let words = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{words}");
    let place = format!("--> {}:6:5", site.path("conf/nginx.conf").display());
    for part in
        ["error: \"/i../\" leads out of \"/data/i/\" [alias-traversal]", &place, "^^^^^", "  = end both", "1 error"]
    {
        assert!(words.contains(part), "{part} is not in:\n{words}");
    }
    let off = lint_of(&site, &["--off", "alias-traversal"]);
    assert_eq!((off.status.code(), text(&off.stdout).as_str()), (Some(0), "no findings\n"));
}

fn lint_of(site: &Site, more: &[&str]) -> std::process::Output {
    let conf = site.path("conf/nginx.conf");
    let mut command = std::process::Command::new(support::BINARY);
    command.arg("lint").arg("-p").arg(&site.dir).arg("-c").arg(conf).args(more).output().expect("the program runs")
}

#[test]
fn levels_formats_and_exit_status() {
    let site = Site::new("", "http { server_tokens on; server { listen 127.0.0.1:8080; } }");
    assert_eq!(lint_of(&site, &[]).status.code(), Some(0));
    let output = lint_of(&site, &["--level", "note", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["findings"][0]["id"], "version-disclosure");
    assert_eq!((&json["findings"][0]["line"], &json["findings"][0]["column"]), (&4.into(), &22.into()));
    let output = lint_of(&site, &["--level=note", "--format=sarif"]);
    let sarif: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&sarif["version"], &sarif["runs"][0]["results"][0]["ruleId"]),
        (&"2.1.0".into(), &"version-disclosure".into())
    );
    site.configure("", "http { servr { } }");
    assert_eq!(lint_of(&site, &[]).status.code(), Some(2));
    assert_eq!(lint_of(&site, &["--level", "loud"]).status.code(), Some(2));
}

/// A configuration is looked at where its certificates are not.
#[test]
fn named_files_may_be_absent() {
    let site = Site::new(
        "user tidegate-missing tidegate-absent;",
        "http { server { listen 127.0.0.1:8443 ssl; ssl_certificate /none; ssl_certificate_key /none; ssl_protocols TLSv1; } }",
    );
    let output = lint_of(&site, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("[weak-tls]"), "{}", text(&output.stdout));
}

#[test]
fn nothing_is_found_in_what_is_right() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut looked = 0;
    let examples = std::fs::read_dir(root.join("examples")).expect("examples");
    let own = examples.flatten().map(|entry| entry.path().join("nginx.conf"));
    for conf in own.chain(["/etc/nginx/nginx.conf".into()]).filter(|conf| conf.exists()) {
        let mut command = std::process::Command::new(support::BINARY);
        let output = command.arg("lint").arg("-c").arg(&conf).output().expect("the program runs");
        assert_eq!(output.status.code(), Some(0), "{}:\n{}", conf.display(), text(&output.stdout));
        looked += 1;
    }
    assert!(looked > 3, "there are examples");
}
