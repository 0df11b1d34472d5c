//! `tidegate diff`: what differs, and the exit status.

use crate::support;

use std::process::{Command, Output};
use support::{BINARY, Site, text};

fn diff(site: &Site, more: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command
        .arg("diff")
        .arg(site.path("old.conf"))
        .arg(site.path("new.conf"))
        .args(more)
        .output()
        .expect("the program runs")
}

#[test]
fn two_configurations_are_compared_by_what_they_do() {
    let site = Site::new("", "");
    let old = "events { }\nhttp {\n  gzip off;\n  include part.conf;\n  server { listen 127.0.0.1:8080; server_name a.example; root /srv; location / { expires 1d; } }\n}\n";
    site.write(
        "part.conf",
        "log_format x \"$uri\";\nserver { listen 127.0.0.1:8080; server_name b.example; return 404; }\n",
    );
    site.write("old.conf", old);
    site.write(
        "new.conf",
        "events{}http{log_format x '$uri'; server{server_name b.example;listen 127.0.0.1:8080;return 404;}\n# moved\nserver{root /srv;location /{expires 1d;}server_name a.example;listen 127.0.0.1:8080;}}",
    );
    let output = diff(&site, &[]);
    assert_eq!(
        (output.status.code(), text(&output.stdout), text(&output.stderr)),
        (Some(0), String::new(), String::new())
    );
    site.write("new.conf", &old.replace("expires 1d", "expires 2d; gzip on").replace("b.example", "x"));
    let output = diff(&site, &[]);
    let words = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    for part in [
        "http > server a.example > location /\n",
        "  - expires 1d; ",
        "  + expires 2d; ",
        "  - gzip off; ",
        "  + gzip on; ",
        "new.conf:5\n",
        "old.conf:3\n",
    ] {
        assert!(words.contains(part), "{part:?} is not in:\n{words}");
    }
    let output = diff(&site, &["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["same"], false);
    let change = json["changes"].as_array().expect("changes").iter().find(|c| c["what"] == "expires").expect("expires");
    assert_eq!((&change["in"][2], &change["new"][0]["line"]), (&"location /".into(), &5.into()));
    site.write("new.conf", "events { } htp { }");
    let output = diff(&site, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("unknown directive \"htp\""));
}
