//! `tidegate waf setup` in folders that are there: levels of the rule set, options that files contradict.

use crate::support;

use std::process::Command;
use support::client::Client;
use support::{BINARY, Site, free_port, text};

/// A site with a rule set of version 4: a rule refuses with the status 400 and the level.
fn rule_site(port: u16) -> Site {
    let http = format!(
        "http {{ server {{ listen 127.0.0.1:{port}; modsecurity on; modsecurity_rules_file {{own}}/main.conf; }} }}"
    );
    let site = Site::new("daemon off;", "");
    let own = site.path("own").display().to_string();
    site.configure("daemon off;", &http.replace("{own}", &own));
    for folder in ["crs/rules", "crs/plugins", "other/rules", "other/plugins", "p/plugins"] {
        std::fs::create_dir_all(site.path(folder)).expect("a folder");
    }
    let level = |level: u8| {
        format!("SecRule TX:blocking_paranoia_level \"@eq {level}\" \"id:{level},phase:1,deny,status:40{level}\"\n")
    };
    for set in ["crs", "other"] {
        site.write(&format!("{set}/rules/a.conf"), &(1..=4).map(level).collect::<String>());
        site.write(&format!("{set}/plugins/empty-before.conf"), "");
        let setup = "#SecAction \"id:900000,phase:1,pass,setvar:tx.blocking_paranoia_level=1\"\n";
        site.write(&format!("{set}/crs-setup.conf"), setup);
    }
    site.write("p/plugins/a-config.conf", "");
    site
}

/// Runs the command with the rule set `crs`; returns its exit code, output and errors.
fn set_up(site: &Site, options: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(BINARY);
    command.args(["waf", "setup"]).arg(site.path("own"));
    if !options.contains(&"--crs") {
        command.arg("--crs").arg(site.path("crs"));
    }
    let output = command.args(options).output().expect("the program runs");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn levels_of_the_setup_file_go_before_those_of_the_option() {
    let port = free_port();
    let site = rule_site(port);
    let log = site.path("logs/audit.log").display().to_string();
    let (code, words, errors) = set_up(&site, &["--paranoia", "2", "--block", "--audit-log", &log]);
    assert!(code == Some(0) && !words.contains("only log"), "{words}{errors}");
    let refused = || {
        let running = site.start();
        let mut client = Client::connect(port).expect("connected");
        let status = client.get().expect("answered").0;
        running.quit();
        status
    };
    assert_eq!(refused(), 402);
    for level in ["1", "4"] {
        let line = format!("SecAction \"id:900000,phase:1,pass,setvar:tx.blocking_paranoia_level={level}\"\n");
        site.write("own/crs-setup.conf", &line);
        assert_eq!(refused().to_string(), format!("40{level}"));
        let (code, _, errors) = set_up(&site, &["--paranoia", "2"]);
        assert!(code == Some(1) && errors.contains(&format!("the level is {level} in")), "{errors}");
        assert!(errors.contains("crs-setup.conf"), "{errors}");
    }
    assert_eq!(set_up(&site, &["--paranoia", "4"]).0, Some(0));
    let core = site.read("own/crs.conf");
    assert!(core.contains("change levels there"), "{core}");
    // A file of an earlier version has the line of crs-setup.conf first.
    let is_setup = |line: &&str| line.contains("crs-setup.conf\"");
    let lines = core.lines().filter(is_setup).chain(core.lines().filter(|line| !is_setup(line)));
    site.write("own/crs.conf", &lines.collect::<Vec<&str>>().join("\n"));
    let (code, words, errors) = set_up(&site, &["--paranoia", "3"]);
    assert!(code == Some(1) && errors.contains("the level is 2 in") && errors.contains("own/crs.conf"), "{errors}");
    assert!(words.contains("below the SecAction 10000"), "{words}");
}

#[test]
fn options_that_kept_files_contradict_are_errors() {
    let site = rule_site(free_port());
    let (plugin, other) = (site.path("p").display().to_string(), site.path("other").display().to_string());
    let first = ["--audit-log", "/srv/one.log", "--paranoia", "1"];
    for _ in 0..2 {
        let (code, words, errors) = set_up(&site, &first);
        assert!(code == Some(0) && errors.is_empty() && words.contains("The rules only log"), "{words}{errors}");
    }
    for (options, parts) in [
        (&["--block"][..], ["is DetectionOnly", "Write \"SecRuleEngine On\" into", "engine.conf"]),
        (&["--audit-log", "/srv/two.log"], ["/srv/one.log", "Write SecAuditLog \"/srv/two.log\"", "engine.conf"]),
        (&["--paranoia", "3"], ["level is 1", "setvar:tx.blocking_paranoia_level=3", "crs.conf"]),
        (&["--plugin", &plugin], ["does not include it", "p/plugins/*-config.conf\"", "crs.conf"]),
        (&["--wordpress"], ["wordpress-rule-exclusions-plugin", "--plugin FOLDER", "crs.conf"]),
        (&["--crs", &other], ["includes other rules", "other/rules/*.conf\"", "crs.conf"]),
    ] {
        let (code, words, errors) = set_up(&site, options);
        assert!(code == Some(1) && words.contains("The rules only log"), "{options:?}: {words}{errors}");
        let start = format!("tidegate: {}", options.first().expect("an option"));
        assert!(errors.starts_with(&start) && errors.lines().count() == 1, "{errors}");
        assert!(parts.iter().all(|part| errors.contains(part)), "{errors}");
    }
    let engine = site.read("own/engine.conf").replace("SecRuleEngine DetectionOnly", "SecRuleEngine On");
    site.write("own/engine.conf", &engine);
    let (code, words, errors) = set_up(&site, &["--block"]);
    assert!(code == Some(0) && !words.contains("only log"), "{words}{errors}");
}
