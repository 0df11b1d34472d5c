//! Tests that every check reports its bad example and not its good one.

use super::*;
use conf_syntax::{Memory, load_text};
use std::path::Path;

fn found(text: &str) -> Vec<&'static str> {
    let schema = Schema::new(Vec::new(), "tidegate 0");
    let read = load_text(&Memory::default(), Path::new("/n.conf"), text.into());
    lint_config(&schema, &read.files, &read.items, &[]).iter().map(|f| f.check.id).collect()
}

fn whole(text: &str) -> String {
    if text.contains("http {") { text.to_string() } else { format!("events {{ }} http {{\n{text}\n}}") }
}

#[test]
fn every_check_finds_its_bad_example_and_not_its_good_one() {
    for check in all_checks() {
        let bad = found(&whole(check.bad));
        assert!(bad.contains(&check.id), "{} does not find its example: {bad:?}", check.id);
        let good = found(&whole(check.good));
        assert!(good.is_empty(), "the good example of {} has {good:?}", check.id);
    }
}

#[test]
fn identifiers_are_unique_and_well_formed() {
    let ids: Vec<&str> = all_checks().map(|check| check.id).collect();
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
    let findings = lint_config(&schema, &read.files, &read.items, &[]);
    let log = findings_sarif(&read.files, &findings, "0.1.0");
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
fn values_of_clients_are_judged_by_their_place() {
    let inside = |text: &str| found(&whole(&format!("resolver 127.0.0.53; server {{ listen 80; {text} }}")));
    assert_eq!(inside("location / { set $to http://some$request_uri; proxy_pass $to; }"), [""; 0]);
    assert_eq!(inside("location / { set $to http://$arg_x; proxy_pass $to; }"), ["ssrf"]);
    assert_eq!(inside("location ~ ^/b/(?<rest>.*) { proxy_pass http://some$rest; }"), ["ssrf"]);
    assert_eq!(inside("location ~ ^/b/(?<rest>.*) { proxy_pass http://some/$rest; }"), [""; 0]);
    assert_eq!(inside("location ~ ^/t/([^/]+)/ { proxy_pass http://10.0.0.1/$1; }"), ["line-breaks"]);
    assert_eq!(inside("location ~ ^/t/(.+)/ { proxy_pass http://10.0.0.1/$1; }"), [""; 0]);
}

/// A trap is found in its other forms, and not where it does no harm.
#[test]
fn protection_and_transport_are_judged_in_their_other_forms() {
    let inside = |text: &str| found(&whole(text));
    let at = |text: &str| inside(&format!("server {{ listen 80; root /d; {text} }}"));
    assert_eq!(inside("auth_basic a; server { listen 80; root /d; location / { } }"), ["auth-without-file"]);
    assert_eq!(at("auth_basic a; location / { auth_basic_user_file /p; }"), [""; 0]);
    assert_eq!(at("location / { auth_basic off; }"), [""; 0]);
    assert_eq!(at("location / { auth_basic a; auth_basic_user_file /p; return 302 /x; }"), ["access-after-return"]);
    assert_eq!(at("location / { auth_request /a; rewrite ^ https://b.example/ permanent; }"), ["access-after-return"]);
    assert_eq!(at("location / { deny all; return 403; }"), [""; 0]);
    for network in ["::/0", "0.0.0.0/0", "128.0.0.0/1"] {
        assert_eq!(at(&format!("set_real_ip_from {network};")), ["real-ip-any"], "{network}");
    }
    assert_eq!(inside("server { listen 127.0.0.1:80; root /d; set_real_ip_from 0.0.0.0/0; }"), [""; 0]);
    let php = |location: &str, check: &str| {
        at(&format!(
            "location ~ {location} {{ {check} fastcgi_pass 127.0.0.1:9; fastcgi_param SCRIPT_FILENAME $request_filename; }}"
        ))
    };
    assert_eq!(php("[^/]\\.php(/|$)", ""), ["php-unchecked"]);
    assert_eq!(php("[^/]\\.php(/|$)", "if (!-f $request_filename) { return 404; }"), [""; 0]);
    assert_eq!(php("^/index\\.php(/|$)", ""), [""; 0]);
    for what in ["metrics", "api", "dashboard"] {
        assert_eq!(at(&format!("location = /s {{ {what}; }}")), ["status-open"], "{what}");
        assert_eq!(at(&format!("location = /s {{ {what}; allow 10.0.0.0/8; deny all; }}")), [""; 0], "{what}");
    }
    let keyed = |key: &str| at(&format!("location / {{ fastcgi_pass 127.0.0.1:9; fastcgi_cache_key {key}; }}"));
    assert_eq!(keyed("$host$uri"), ["cache-key"]);
    assert_eq!(keyed("$request_method$host$request_uri"), [""; 0]);
    assert_eq!(inside("server { listen [::]:443; root /d; }"), ["listen-plain"]);
    assert_eq!(
        inside(
            "server { listen 443 ssl default_server; root /d; ssl_certificate /c; ssl_certificate_key /k; } \
             server { listen 443; root /d; server_name b.example; }"
        ),
        [""; 0]
    );
    assert_eq!(at("location / { grpc_pass grpcs://192.0.2.1; }"), ["upstream-unverified"]);
    assert_eq!(at("location / { proxy_pass https://127.0.0.1:8443; }"), [""; 0]);
    assert_eq!(
        at("more_set_headers 'Access-Control-Allow-Origin: $http_origin' 'Access-Control-Allow-Credentials: true';"),
        ["cors-reflected"]
    );
    assert_eq!(at("location /i/ { internal; location $args { } }"), [""; 0]);
}

#[test]
fn rules_reach_the_blocks_where_the_firewall_is_on() {
    const RULES: &str = "modsecurity_rules 'SecRuleEngine On\nSecRequestBodyAccess On';";
    let check = |http: &str, server: &str, location: &str, other: &str| {
        let location = format!("location / {{ {location} root /d; }} location /other/ {{ {other} root /d; }}");
        found(&whole(&format!("{http} server {{ listen 80; {server} {location} }}"))).contains(&"firewall-not-on")
    };
    assert!(check(RULES, "", "", ""));
    assert!(check("modsecurity_rules_file waf.conf;", "modsecurity off;", "", ""));
    assert!(check("", "", RULES, "modsecurity on;"), "a sibling");
    assert!(check("modsecurity on;", "", &format!("modsecurity off; {RULES}"), ""));
    assert!(!check(RULES, "", "", "modsecurity on;"));
    assert!(!check(RULES, "modsecurity ON;", "", ""));
    assert!(!check("modsecurity on;", "", RULES, ""));
}
