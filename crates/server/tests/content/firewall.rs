//! The web application firewall: errors of rules, logs, budgets, files of rules.

use crate::support;

use std::process::Command;
use support::client::Client;
use support::{BINARY, Site, free_port, text, wait};

/// Lays out a site with a file of rules and one server.
fn site(rules: &str, port: u16, location: &str) -> Site {
    let http = format!(
        "http {{ server {{ listen 127.0.0.1:{port}; modsecurity on; modsecurity_rules_file rules.conf;
            location / {{ return 200 passed; }} {location} }} }}"
    );
    let site = Site::new("daemon off;", &http);
    site.write("conf/rules.conf", rules);
    site
}

fn ask(client: &mut Client, target: &str) -> u16 {
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nX-Id: from/the client\r\n\r\n");
    client.ask(&request).expect("answered").0
}

#[test]
fn an_error_of_a_rule_names_its_file_line_and_column() {
    let site = site("SecRuleEngine On\nInclude more/*.conf\n", free_port(), "");
    std::fs::create_dir_all(site.path("conf/more")).expect("a folder");
    site.write(
        "conf/more/a.conf",
        "SecAction \"id:1,phase:1,pass\"\n\nSecRule ARGS \"@bogus x\" \"id:2,phase:1,pass\"\n",
    );
    let output = site.run(&["-t", "--explain"]);
    let words = text(&output.stderr);
    assert!(!output.status.success(), "{words}");
    let rule_file = site.path("conf/more/a.conf").display().to_string();
    assert!(words.contains("unknown operator @bogus"), "{words}");
    assert!(words.contains(&format!("in {rule_file}:3")), "{words}");
    assert!(words.contains("nginx.conf:"), "{words}");
    assert!(words.contains("SecRule ARGS \"@bogus x\"") && words.contains(&format!("{rule_file}:3:")), "{words}");
    assert_eq!(words.matches("unknown operator").count(), 1, "each error once: {words}");
}

#[test]
fn remote_rules_and_unknown_words_are_refused_with_the_reason() {
    for (line, reason) in [
        ("modsecurity_rules_remote key https://example.com/rules;", "would depend on another server"),
        ("modsecurity_budget 0s;", "must be from 1ms to 60s"),
        ("modsecurity_budget 1s ajar;", "invalid value \"ajar\""),
        ("modsecurity_rules_file none.conf;", "No such file"),
        ("modsecurity on; modsecurity_rules 'SecGeoLookupDb /a.mmdb';", "no database of places"),
        ("modsecurity on; modsecurity_rules 'SecRule REMOTE_ADDR @geoLookup id:1,phase:1';", "no database of places"),
        ("modsecurity on; modsecurity_rules 'SecAuditLogType HTTPS';", "not sent over the network"),
        ("modsecurity on; modsecurity_rules 'SecAuditLogType Parallel';", "needs SecAuditLogStorageDir"),
        ("modsecurity_rules 'SecRuleEngine Perhaps';", "Perhaps"),
    ] {
        let output = Site::new("", &format!("http {{ server {{ {line} }} }}")).run(&["-t"]);
        let words = text(&output.stderr);
        assert!(!output.status.success() && words.contains(reason), "{line}: {words}");
    }
}

#[test]
fn a_directive_without_effect_is_a_warning_once() {
    let site = site(
        "SecRuleEngine On\nSecTmpDir /tmp\n",
        free_port(),
        "location /a { } location /b { modsecurity_rules 'SecRuleRemoveById 1'; }",
    );
    let output = site.run(&["-t"]);
    let words = text(&output.stderr);
    assert!(output.status.success(), "{words}");
    assert_eq!(words.matches("SecTmpDir has no effect").count(), 1, "{words}");
    assert!(words.contains("rules.conf:2"), "{words}");
}

#[test]
fn files_of_rules_and_data_are_found_beside_the_including_file() {
    let port = free_port();
    let site = site("SecRuleEngine On\nInclude set/*.conf\n", port, "");
    std::fs::create_dir_all(site.path("conf/set")).expect("a folder");
    site.write("conf/set/one.conf", "SecRule ARGS \"@pmFromFile words.data\" \"id:1,phase:1,deny\"\n");
    site.write("conf/set/two.conf", "SecRule ARGS \"@streq two\" \"id:2,phase:1,deny,status:409\"\n");
    site.write("conf/set/words.data", "# words\nforbidden\n");
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    assert_eq!(ask(&mut client, "/?a=forbidden"), 403);
    assert_eq!(ask(&mut client, "/?a=two"), 409);
    assert_eq!(ask(&mut client, "/?a=other"), 200);
    running.quit();
}

#[test]
fn a_serial_audit_log_is_reopened_and_names_the_transaction() {
    let port = free_port();
    let rules = "SecRuleEngine On\nSecAuditEngine RelevantOnly\nSecAuditLog logs/audit.log\nSecAuditLogFormat JSON\n\
                 SecRule ARGS \"@streq bad\" \"id:1,phase:1,deny,msg:'one'\"\n";
    let site = site(
        rules,
        port,
        "modsecurity_transaction_id $http_x_id; error_page 403 /page; location /page { modsecurity off; return 200 page; }",
    );
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    assert_eq!(ask(&mut client, "/?a=good"), 200);
    assert_eq!(ask(&mut client, "/?a=bad"), 403);
    let lines = |log: &str| site.read(log).lines().map(ToString::to_string).collect::<Vec<_>>();
    let entries = wait("an entry", || {
        let lines = lines("logs/audit.log");
        if lines.is_empty() { Err("none") } else { Ok(lines) }
    });
    assert_eq!(entries.len(), 1, "{entries:?}");
    let entry: serde_json::Value = serde_json::from_str(&entries[0]).expect("JSON");
    let transaction = &entry["transaction"];
    assert_eq!(transaction["messages"][0]["details"]["ruleId"], "1");
    assert_eq!(transaction["unique_id"], "from/the_client");
    assert_eq!(transaction["response"]["http_code"], 403);
    std::fs::rename(site.path("logs/audit.log"), site.path("logs/audit.old")).expect("renamed");
    running.signal("USR1");
    wait("the new file", || if site.path("logs/audit.log").exists() { Ok(()) } else { Err("none") });
    // The master makes the file, and each worker turns to it when it hears of the signal.
    wait("an entry in the new file", || {
        assert_eq!(ask(&mut client, "/?a=bad"), 403);
        if lines("logs/audit.log").is_empty() { Err(site.read("logs/audit.old")) } else { Ok(()) }
    });
    let report = Command::new(BINARY).args(["waf", "report"]).arg(site.path("logs/audit.log")).output();
    let words = text(&report.expect("the program runs").stdout);
    assert!(words.contains(" transactions, 1 rules"), "{words}");
    running.quit();
}

#[test]
fn parallel_audit_entries_have_files_and_an_index() {
    let port = free_port();
    let rules = "SecRuleEngine DetectionOnly\nSecAuditEngine RelevantOnly\nSecAuditLog logs/index.log\nSecAuditLogParts ABHZ\n\
                 SecAuditLogType Parallel\nSecAuditLogStorageDir audit\nSecRule ARGS \"@streq bad\" \"id:1,phase:1,deny\"\n";
    let site = site(rules, port, "modsecurity_transaction_id $http_x_id;");
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    assert_eq!(ask(&mut client, "/?a=bad"), 200, "detection refuses nothing");
    let index = wait("the index", || {
        let line = site.read("logs/index.log");
        if line.ends_with('\n') { Ok(line) } else { Err(line) }
    });
    let name = index.split_whitespace().find(|word| word.starts_with('/') && word.contains("from")).expect("a name");
    let entry = format!("audit{name}");
    wait("the entry", || {
        let entry = site.read(&entry);
        if entry.contains("-Z--") { Ok(()) } else { Err(entry) }
    });
    assert!(site.read(&entry).contains("[id \"1\"]"), "{}", site.read(&entry));
    running.quit();
}

#[test]
fn the_end_of_a_budget_refuses_or_passes_as_configured() {
    let port = free_port();
    // Every pattern looks at every argument; a millisecond is not enough for all of them.
    let rules: String = (1..=400)
        .map(|id| format!("SecRule ARGS \"@rx ^(?:[a-z]+[0-9]*)+!?(?:{id})?$\" \"id:{id},phase:1,pass,nolog,t:none,t:urlDecodeUni,t:htmlEntityDecode\"\n"))
        .collect();
    let location = "modsecurity_budget 1ms; location /open { modsecurity_budget 1ms open; return 200 passed; }
        location /detection { modsecurity_rules 'SecRuleEngine DetectionOnly'; return 200 passed; }";
    let site = site(&format!("SecRuleEngine On\n{rules}"), port, location);
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    let arguments: String = (0..150).map(|n| format!("&a{n}=abcdefghijklmnopqrstuvwxyz")).collect();
    assert_eq!(ask(&mut client, &format!("/closed?x=1{arguments}")), 403);
    assert_eq!(ask(&mut client, &format!("/open?x=1{arguments}")), 200);
    assert_eq!(ask(&mut client, &format!("/detection?x=1{arguments}")), 200);
    site.wait_for_log("the budget of the transaction ended (time)", 3);
    running.quit();
}

#[test]
fn refusals_are_errors_and_other_matches_information() {
    let port = free_port();
    let rules = "SecRuleEngine On\nSecRule ARGS \"@streq seen\" \"id:1,phase:1,pass,msg:'seen'\"\n\
                 SecRule ARGS \"@streq bad\" \"id:2,phase:1,deny,msg:'bad'\"\n";
    let site = site(rules, port, "location /quiet { modsecurity_use_error_log off; return 200 passed; }");
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    assert_eq!(ask(&mut client, "/?a=seen"), 200);
    assert_eq!(ask(&mut client, "/?a=bad"), 403);
    assert_eq!(ask(&mut client, "/quiet?a=bad"), 403);
    assert_eq!(ask(&mut client, "/?a=seen"), 200);
    site.wait_for_log("[id \"1\"]", 2);
    let log = site.log();
    let level = |words: &str| {
        let line = log.lines().find(|line| line.contains(words)).unwrap_or_default();
        line.split(['[', ']']).nth(1).unwrap_or_default().to_string()
    };
    assert_eq!(level("ModSecurity: Warning. Matched"), "info", "{log}");
    assert_eq!(level("ModSecurity: Access denied with code 403 (phase 1)"), "error", "{log}");
    assert_eq!(log.matches("[id \"2\"]").count(), 1, "off keeps refusals out: {log}");
    assert!(log.contains("[hostname \"localhost\"]") && log.contains(", request: \"GET /?a=bad HTTP/1.1\""), "{log}");
    running.quit();
}

#[test]
fn explain_names_the_rules_that_a_request_meets() {
    let port = free_port();
    let off = "location /off { modsecurity off; return 200 off; }";
    let site = site("SecRuleEngine On\nSecAction \"id:1,phase:1,pass\"\n", port, off);
    let shown = |target: &str| {
        let mut command = Command::new(BINARY);
        command.arg("explain").arg(format!("http://localhost:{port}{target}")).arg("-p").arg(&site.dir);
        text(&command.output().expect("the program runs").stdout)
    };
    let words = shown("/");
    assert!(words.contains("engine on, 1 rules, bodies of requests not inspected"), "{words}");
    assert!(words.contains("rules.conf"), "{words}");
    assert!(!shown("/off").contains("engine on"), "{}", shown("/off"));
}
