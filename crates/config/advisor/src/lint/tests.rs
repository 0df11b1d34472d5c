//! Tests that every check reports its bad example and not its good one.

use super::*;
use conf_syntax::{Memory, load_text};
use std::path::Path;

fn found(text: &str) -> Vec<&'static str> {
    let schema = Schema::new(Vec::new(), "tidegate 0");
    let read = load_text(&Memory::default(), Path::new("/n.conf"), text.into());
    lint(&schema, &read.files, &read.items, &[]).iter().map(|f| f.check.id).collect()
}

fn whole(text: &str) -> String {
    if text.contains("http {") { text.to_string() } else { format!("events {{ }} http {{\n{text}\n}}") }
}

#[test]
fn every_check_finds_its_bad_example_and_not_its_good_one() {
    for check in checks() {
        let bad = found(&whole(check.bad));
        assert!(bad.contains(&check.id), "{} does not find its example: {bad:?}", check.id);
        let good = found(&whole(check.good));
        assert!(good.is_empty(), "the good example of {} has {good:?}", check.id);
    }
}

#[test]
fn identifiers_are_unique_and_well_formed() {
    let ids: Vec<&str> = checks().map(|check| check.id).collect();
    for (index, id) in ids.iter().enumerate() {
        assert!(id.bytes().all(|c| c.is_ascii_lowercase() || c == b'-'), "{id}");
        assert!(!ids.iter().skip(index + 1).any(|other| other == id), "{id} is there twice");
    }
}

#[test]
fn comments_switch_checks_off() {
    let conf = |before: &str, behind: &str| {
        whole(&format!("server {{ listen 80;\n{before}\nlocation /i {{ {behind}\nalias /data/i/;\n}} }}"))
    };
    assert_eq!(found(&conf("", "")), ["alias-traversal"]);
    assert_eq!(found(&conf("# tidegate-lint: off alias-traversal", "")), [""; 0]);
    assert_eq!(found(&conf("# tidegate-lint: off", "")), [""; 0]);
    assert_eq!(found(&conf("", "# tidegate-lint: off alias-traversal")), [""; 0]);
    assert_eq!(found(&conf("# tidegate-lint: off header-lost", "")), ["alias-traversal"]);
    let at_the_line = "server { listen 80; location /i {\nalias /data/i/; # tidegate-lint: off alias-traversal\n} }";
    assert_eq!(found(&whole(at_the_line)), [""; 0]);
    let unknown = "server { listen 80; # tidegate-lint: off no-such-check\n}";
    assert_eq!(found(&whole(unknown)), ["unknown-check"]);
}

#[test]
fn sarif_has_a_rule_for_every_result() {
    let schema = Schema::new(Vec::new(), "tidegate 0");
    let text = "events { } http { server { listen 80; location /i { alias /data/i/; } } }";
    let read = load_text(&Memory::default(), Path::new("/a b.conf"), text.into());
    let findings = lint(&schema, &read.files, &read.items, &[]);
    let log = sarif(&read.files, &findings, "0.1.0");
    let result = &log["runs"][0]["results"][0];
    assert_eq!(result["ruleId"], "alias-traversal");
    let index = result["ruleIndex"].as_u64().expect("a number") as usize;
    assert_eq!(log["runs"][0]["tool"]["driver"]["rules"][index]["id"], "alias-traversal");
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "file:///a%20b.conf");
    assert_eq!((&place["region"]["startLine"], &place["region"]["startColumn"]), (&1.into(), &53.into()));
}

/// A variable may be harmless in one position and not in another.
#[test]
fn what_a_client_decides_is_told_by_where_it_stands() {
    let inside = |text: &str| found(&whole(&format!("resolver 127.0.0.53; server {{ listen 80; {text} }}")));
    assert_eq!(inside("location / { set $to http://some$request_uri; proxy_pass $to; }"), [""; 0]);
    assert_eq!(inside("location / { set $to http://$arg_x; proxy_pass $to; }"), ["ssrf"]);
    assert_eq!(inside("location ~ ^/b/(?<rest>.*) { proxy_pass http://some$rest; }"), ["ssrf"]);
    assert_eq!(inside("location ~ ^/b/(?<rest>.*) { proxy_pass http://some/$rest; }"), [""; 0]);
    assert_eq!(inside("location ~ ^/t/([^/]+)/ { proxy_pass http://10.0.0.1/$1; }"), ["line-breaks"]);
    assert_eq!(inside("location ~ ^/t/(.+)/ { proxy_pass http://10.0.0.1/$1; }"), [""; 0]);
}
