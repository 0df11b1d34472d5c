//! The web application firewall: errors of rules, logs, budgets, files of rules.

use crate::support;

use std::net::UdpSocket;
use std::process::Command;
use std::sync::{Arc, Mutex};
use support::client::Client;
use support::{BINARY, Running, Site, free_port, text, wait};

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
    assert!(words.contains("SecRule ARGS \"@bogus x\"") && words.contains(&format!("{rule_file}:3:15\n")), "{words}");
    assert_eq!(words.matches("unknown operator").count(), 1, "each error once: {words}");
    // A file that the rules name is looked up after they are compiled.
    site.write("conf/more/a.conf", "\nSecGeoLookupDb none.mmdb\n");
    let output = site.run(&["-t", "--explain"]);
    let words = text(&output.stderr);
    assert!(!output.status.success() && words.contains("it cannot be read"), "{words}");
    assert!(words.contains(&format!("in {rule_file}:2")) && words.contains(&format!("{rule_file}:2:16\n")), "{words}");
}

#[test]
fn an_audit_log_that_cannot_be_opened_is_named_with_its_place() {
    let site = site("SecRuleEngine On\nSecAuditEngine On\nInclude audit.conf\n", free_port(), "");
    let rule_file = site.path("conf/audit.conf").display().to_string();
    for name in ["SecAuditLog", "SecAuditLog2"] {
        site.write("conf/audit.conf", &format!("SecAuditLog logs/audit.log\n\n{name} none/audit.log\n"));
        let output = site.run(&["-t"]);
        let words = text(&output.stderr);
        assert!(!output.status.success(), "{words}");
        let file = site.path("none/audit.log").display().to_string();
        let wanted = format!("open() \"{file}\" failed (2: No such file or directory) in {rule_file}:3\n");
        assert!(words.contains(&wanted), "{words}");
    }
}

#[test]
fn remote_rules_and_unknown_words_are_refused_with_the_reason() {
    for (line, reason) in [
        ("modsecurity_rules_remote key https://example.com/rules;", "would depend on another server"),
        ("modsecurity_budget 0s;", "must be from 1ms to 60s"),
        ("modsecurity_budget 1s ajar;", "invalid value \"ajar\""),
        ("modsecurity_rules_file none.conf;", "No such file"),
        (
            "modsecurity on; modsecurity_rules 'SecGeoLookupDb /a.mmdb';",
            "SecGeoLookupDb \"/a.mmdb\": it cannot be read",
        ),
        ("modsecurity on; modsecurity_rules 'SecAuditLogType HTTPS';", "not sent over the network"),
        ("modsecurity on; modsecurity_rules 'SecAuditLogType Parallel';", "needs SecAuditLogStorageDir"),
        ("modsecurity_rules 'SecRuleEngine Perhaps';", "Perhaps"),
    ] {
        let output = Site::new("", &format!("http {{ server {{ {line} }} }}")).run(&["-t"]);
        let words = text(&output.stderr);
        assert!(!output.status.success() && words.contains(reason), "{line}: {words}");
    }
}

/// Errors of rules in the configuration itself: line and column of the wrong word, and what the carets are below.
#[test]
fn errors_of_inline_rules_are_shown_in_the_configuration() {
    let rule = |operator: &str, actions: &str| format!("SecRule ARGS \"{operator} foo\" \"{actions}\"");
    let (wrong, right) = (rule("@rxx", "id:1,deny"), rule("@rx", "id:2,deny"));
    let escaped = wrong.replace('"', "\\\"");
    for (lines, line, column, marked) in [
        (format!("modsecurity_rules '{wrong}';"), 1, 34, "@rxx"),
        (format!("modsecurity_rules '\n  SecRuleEngine On\n  {wrong}\n';"), 3, 17, "@rxx"),
        (format!("modsecurity_rules '{right}';\nmodsecurity_rules '{wrong}';"), 2, 34, "@rxx"),
        (format!("modsecurity_rules '{}';", rule("@rx", "id:1,phase:9,deny")), 1, 55, "9"),
        (format!("modsecurity_rules '{}';", rule("@rx", "id:1,denyy")), 1, 49, "denyy"),
        // The place of the word is not known: the directive.
        (format!("modsecurity_rules \"{escaped}\";"), 1, 1, "modsecurity_rules"),
        (format!("modsecurity_rules '{right}'; modsecurity_rules '{wrong}';"), 1, 1, "modsecurity_rules"),
        // A warning.
        ("modsecurity_rules 'SecRuleEngine On\nSecTmpDir /tmp';".to_string(), 2, 1, "SecTmpDir"),
    ] {
        let site = Site::new("", "");
        site.write("conf/nginx.conf", &format!("events {{ }} http {{ server {{ listen 127.0.0.1:1;\n{lines} }} }}"));
        let words = text(&site.run(&["-t", "--explain"]).stderr);
        let conf = site.path("conf/nginx.conf").display().to_string();
        let place = format!(" in {conf}:{}\n", line + 1);
        let first = words.lines().next().unwrap_or_default();
        assert!(words.contains(&place) && first.matches(" in ").count() == 1, "{lines}: {words}");
        let shown = words.lines().position(|said| said.ends_with(&format!(" --> {conf}:{}:{column}", line + 1)));
        let source = shown.and_then(|at| words.lines().nth(at + 1)).unwrap_or_default();
        let carets = shown.and_then(|at| words.lines().nth(at + 2)).unwrap_or_default();
        let start = carets.find('^').expect(&words);
        assert!(source[start..].starts_with(marked), "{lines}: {words}");
        if marked != "modsecurity_rules" {
            assert_eq!(carets.matches('^').count(), marked.len(), "{lines}: {words}");
        }
    }
}

/// Errors are shown at the block whose rules they are in: files of a location, and those that rules of `http` include.
#[test]
fn errors_are_shown_at_the_block_that_brought_the_rule() {
    let site = Site::new("", "");
    let conf = site.path("conf/nginx.conf").display().to_string();
    site.write(
        "conf/nginx.conf",
        "events { } http {\n modsecurity_rules 'SecRuleEngine On\n SecAction \"id:1,phase:1,pass\"\n Include i.conf';\n \
         server { listen 127.0.0.1:1; modsecurity on;\n location / {\n modsecurity_rules_file l.conf; } } }",
    );
    let twice = "\n\nSecAction \"id:7,phase:1,pass\"\n\n\n\n\n\nSecAction \"id:7,phase:1,pass\"\n";
    let once = "\n\nSecAction \"id:1,phase:1,pass\"\n";
    let wrong = "SecAction \"id:2,phase:1,bogus\"\n";
    for (included, own, line, parts) in [
        ("", twice, 7, ["l.conf:3:1 has the id 7 as well in", "l.conf:9:12\n"]),
        ("", once, 7, ["nginx.conf:3:2 has the id 1 as well in", "l.conf:3:12\n"]),
        (wrong, "", 2, ["unknown action \"bogus\" in", "i.conf:1:25\n"]),
    ] {
        site.write("conf/i.conf", included);
        site.write("conf/l.conf", own);
        let output = site.run(&["-t", "--explain"]);
        let words = text(&output.stderr);
        assert!(!output.status.success() && parts.iter().all(|part| words.contains(part)), "{words}");
        assert_eq!(words.matches(&format!(" --> {conf}:")).count(), 1, "{words}");
        assert!(words.contains(&format!(" --> {conf}:{line}:")), "{words}");
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
    assert_eq!(words.matches("SecRuleRemoveById has no effect: no rule of this block").count(), 1, "{words}");
    site.write("conf/rules.conf", "SecRuleEngine On\nSecAction \"id:1,phase:1,pass\"\n\nSecRuleRemoveById 888888\n");
    let words = text(&site.run(&["-t"]).stderr);
    assert_eq!(words.matches("SecRuleRemoveById has no effect").count(), 1, "{words}");
    assert!(words.contains("has the id 888888 in") && words.contains("rules.conf:4"), "{words}");
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

#[test]
fn explain_shows_the_rules_that_match_and_their_refusal() {
    let port = free_port();
    let rules = "SecRuleEngine On\nSecAction \"id:1,phase:1,pass,nolog,initcol:ip=%{REMOTE_ADDR},setvar:ip.seen=+1\"\n\
                 SecRule ARGS:a \"@streq seen\" \"id:2,phase:1,pass,log,msg:'Seen %{ARGS.a}'\"\n\
                 SecRule ARGS:a \"@streq bad\" \"id:3,phase:2,deny,status:409,msg:'Refused'\"\n";
    // `return` would answer before phase 2.
    let site = site(rules, port, "location /file { root html; }");
    site.write("html/file", "file");
    let shown = |target: &str| {
        let mut command = Command::new(BINARY);
        command.arg("explain").arg(format!("http://localhost:{port}{target}")).arg("-p").arg(&site.dir);
        text(&command.output().expect("the program runs").stdout)
    };
    let words = shown("/file?a=seen");
    assert!(words.contains("rule 2 matches (phase 1): Seen seen") && words.contains("200"), "{words}");
    let words = shown("/file?a=bad");
    assert!(words.contains("rule 3 denies with 409 (phase 2): Refused") && words.contains("409"), "{words}");
    assert!(!words.contains("rule 1 ") && !words.contains("rule 2 "), "{words}");
    assert!(!shown("/file?a=other").contains("rule "), "{}", shown("/file?a=other"));
}

#[test]
fn a_body_in_a_file_is_inspected_to_its_end() {
    let port = free_port();
    let rules = "SecRuleEngine On\nSecRequestBodyAccess On\nSecRequestBodyNoFilesLimit 1000000\n\
                 SecRule ARGS:last \"@streq bad\" \"id:1,phase:2,deny,status:409\"\n";
    // `return` would answer before phase 2.
    let site =
        site(rules, port, "location /file { client_body_buffer_size 1k; error_page 405 =200 /passed; root html; }");
    site.write("html/file", "file");
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    // Above what one read of a file returns.
    let filler = "x".repeat(100_000);
    for (last, status) in [("good", 200), ("bad", 409), ("good", 200)] {
        let body = format!("first={filler}&last={last}");
        let length = body.len();
        let head = format!("POST /file HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n");
        let request = format!("{head}Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}");
        assert_eq!(client.ask(&request).expect("answered").0, status, "{last}");
    }
    running.quit();
}

/// A request with a number of parameters of which the last is bad: in the query, a form, JSON, a multipart body.
fn requests_with_parameters(count: usize) -> [String; 4] {
    let names: Vec<String> = (1..count).map(|number| format!("p{number}")).collect();
    let form = names.iter().map(|name| format!("{name}=1&")).collect::<String>() + "last=bad";
    let members = names.iter().map(|name| format!("\"{name}\":1,")).collect::<String>();
    let part =
        |name: &str, value: &str| format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    let parts = names.iter().map(|name| part(name, "1")).collect::<String>() + &part("last", "bad") + "--b--\r\n";
    let post = |kind: &str, body: &str| {
        let length = body.len();
        format!("POST /file HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    [
        format!("GET /file?{form} HTTP/1.1\r\nHost: a\r\n\r\n"),
        post("application/x-www-form-urlencoded", &form),
        post("application/json", &format!("{{{members}\"last\":\"bad\"}}")),
        post("multipart/form-data; boundary=b", &parts),
    ]
}

#[test]
fn parameters_beyond_the_limit_do_not_pass_unseen() {
    let port = free_port();
    let rule = "SecRule ARGS \"@streq bad\" \"id:1,phase:2,deny,msg:'Bad'\"\n";
    let settings = format!("SecRuleEngine On\n{}\n{rule}", waf::RECOMMENDED_SETTINGS);
    // As "waf setup" wrote them before rule 200007.
    let earlier = "SecRuleEngine On\nSecRequestBodyAccess On\n\
        SecRule REQUEST_HEADERS:Content-Type \"^application/json\" \"id:2,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON\"\n\
        SecRule REQBODY_ERROR \"!@eq 0\" \"id:200002,phase:2,log,deny,status:400\"\n";
    for rules in [settings, format!("{earlier}{rule}")] {
        let site = site(&rules, port, "large_client_header_buffers 4 32k; location /file { root html; }");
        site.write("html/file", "file");
        let running = site.start();
        for (count, status) in [(999, 403), (1001, 400)] {
            for request in requests_with_parameters(count) {
                let mut client = Client::connect(port).expect("connected");
                let answer = client.ask(&request).expect("answered").0;
                assert_eq!(answer, status, "{count}: {}", request.get(..60).unwrap_or_default());
            }
        }
        running.quit();
    }
}

/// Bytes that the worker's threads with such names have read so far.
fn bytes_read(running: &Running<'_>, name: &str) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", running.worker())).expect("tasks");
    let of = |task: std::path::PathBuf| {
        let comm = std::fs::read_to_string(task.join("comm")).ok()?;
        let counts = std::fs::read_to_string(task.join("io")).ok().filter(|_| comm.starts_with(name))?;
        counts.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse::<u64>().ok()
    };
    tasks.filter_map(|task| of(task.ok()?.path())).sum()
}

#[test]
fn a_file_is_read_on_the_pool_for_phase_4() {
    const LENGTH: usize = 1_000_000;
    let port = free_port();
    let rules = "SecRuleEngine On\nSecResponseBodyAccess On\nSecResponseBodyMimeType text/plain\nSecResponseBodyLimit 2097152\n\
                 SecRule RESPONSE_BODY \"@endsWith bad end\" \"id:1,phase:4,deny,status:409\"\n";
    let site = site(rules, port, "location /file { root html; default_type text/plain; }");
    std::fs::create_dir_all(site.path("html/file")).expect("a folder");
    site.write("html/file/good.txt", &"x".repeat(LENGTH));
    site.write("html/file/bad.txt", &format!("{}bad end", "x".repeat(LENGTH)));
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    assert_eq!(ask(&mut client, "/passed"), 200);
    let before = bytes_read(&running, "worker");
    for (name, status) in [("good", 200), ("bad", 409)] {
        assert_eq!(ask(&mut client, &format!("/file/{name}.txt")), status, "{name}");
    }
    let (pool, worker) = (bytes_read(&running, "pool"), bytes_read(&running, "worker") - before);
    assert!(pool >= 2 * LENGTH as u64 && worker < LENGTH as u64 / 2, "pool {pool}, worker {worker}");
    running.quit();
}

#[test]
fn reloads_give_the_memory_of_earlier_rules_back() {
    const RELOADS: usize = 8;
    let port = free_port();
    // Patterns that ordinary requests compile, on the pool.
    let rules: String = (1..=300)
        .map(|n| format!("SecRule ARGS|REQUEST_HEADERS \"@rx ^[a-z0-9/. ]{{1,{}}}(?:[g-z]+[0-9]?)+$\" \"id:{n},phase:2,pass,nolog\"\n", 20 + n % 40))
        .collect();
    let site = site(&format!("SecRuleEngine On\n{rules}"), port, "");
    let running = site.start();
    let memory = || support::private_kb(running.worker());
    let mut first = 0;
    for reload in 1..=RELOADS {
        running.signal("HUP");
        site.wait_for_log(&format!("configuration {reload} is no longer used"), 1);
        let mut client = Client::connect(port).expect("connected");
        assert_eq!(ask(&mut client, "/passed?a=b"), 200);
        if reload == 2 {
            first = support::wait_for_rest("compiled patterns", 20, memory);
        }
    }
    // An idle thread of the pool ends later, and gives all back.
    wait("the memory of earlier rules", || match memory() {
        now if now < first + first / 2 => Ok(()),
        now => Err(format!("{now} KB, {first} KB after the second reload")),
    });
    running.quit();
}

#[test]
fn requests_are_counted_by_rule_in_the_api_the_metrics_and_the_dashboard() {
    let port = free_port();
    let rules = "SecRuleEngine On\nSecAction \"id:1,phase:1,pass,nolog\"\n\
                 SecRule ARGS \"@contains <b>\" \"id:2,phase:1,pass,msg:'Markup <b>'\"\n\
                 SecRule ARGS \"@contains bad\" \"id:3,phase:1,deny,msg:'Bad'\"\n";
    let location = "location /api { modsecurity off; api; } location = /metrics { modsecurity off; metrics; }
        location /dash/ { modsecurity off; dashboard; }";
    let site = site(rules, port, location);
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    let mut get = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
        client.ask(&request).expect("answered")
    };
    assert!(!get("/metrics").1.contains("firewall_rule"), "no rule has matched");
    assert_eq!(get("/one?secret=1").0, 200);
    assert_eq!(get("/two?a=%3Cb%3E&b=%3Cb%3E").0, 200);
    assert_eq!(get("/three?a=%3Cb%3E&b=bad").0, 403);
    let facts: serde_json::Value = serde_json::from_str(&get("/api/tidegate/1/firewall").1).expect("JSON");
    assert_eq!((&facts["inspected"], &facts["denied"]), (&3.into(), &1.into()), "{facts}");
    let expected = serde_json::json!({
        "2": { "message": "Markup <b>", "passed": 1, "denied": 1 },
        "3": { "message": "Bad", "passed": 0, "denied": 1 },
    });
    assert_eq!(facts["rules"], expected, "{facts}");
    let last = &facts["findings"][0];
    assert_eq!((&last["path"], &last["status"], &last["denied"]), (&"/three".into(), &403.into(), &true.into()));
    assert_eq!((&last["rules"], &last["method"]), (&serde_json::json!([2, 3]), &"GET".into()), "{facts}");
    assert_eq!(facts["findings"].as_array().map(Vec::len), Some(2), "{facts}");
    let page = get("/metrics").1;
    for line in [
        "tidegate_firewall_rule_requests_total{rule=\"2\",verdict=\"passed\"} 1",
        "tidegate_firewall_rule_requests_total{rule=\"2\",verdict=\"denied\"} 1",
        "tidegate_firewall_rule_requests_total{rule=\"3\",verdict=\"denied\"} 1",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    let page = get("/dash/").1;
    assert!(page.contains("table-firewall") && page.contains("table-findings"), "{page}");
    assert!(page.contains("Markup &lt;b&gt;") && page.contains("GET /three") && !page.contains("secret"), "{page}");
    running.quit();
}

#[test]
fn a_proposed_exclusion_lets_its_request_pass() {
    let port = free_port();
    let rules = "SecRuleEngine On\nSecAuditEngine RelevantOnly\nSecAuditLog logs/audit.log\nSecAuditLogFormat JSON\n\
                 Include before.conf\nSecRule ARGS \"@contains bad\" \"id:5,phase:1,deny,msg:'Bad'\"\n";
    let site = site(rules, port, "");
    site.write("conf/before.conf", "# none\n");
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    assert_eq!(ask(&mut client, "/edit?text=bad"), 403);
    assert_eq!(ask(&mut client, "/edit?text=bad"), 403);
    let log = site.path("logs/audit.log");
    wait("two entries", || match site.read("logs/audit.log").lines().count() {
        2 => Ok(()),
        count => Err(count),
    });
    let report = Command::new(BINARY).args(["waf", "report"]).arg(log).output().expect("the program runs");
    let words = text(&report.stdout);
    let (_, proposed) = words.split_once("Proposed exclusions, if these requests were harmless:").expect("a proposal");
    running.quit();
    site.write("conf/before.conf", proposed);
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    assert_eq!(ask(&mut client, "/edit?text=bad"), 200, "{proposed}");
    assert_eq!(ask(&mut client, "/edit?other=bad"), 403, "{proposed}");
    assert_eq!(ask(&mut client, "/other?text=bad"), 403, "{proposed}");
    running.quit();
}

#[test]
fn a_report_of_other_files_says_what_it_could_not_read() {
    let site = Site::new("", "");
    let report = |name: &str| {
        let output =
            Command::new(BINARY).args(["waf", "report"]).arg(site.path(name)).output().expect("the program runs");
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let entry = "{\"transaction\": {\"request\": {\"uri\": \"/\"}, \"messages\": []}}\n";
    site.write("whole.log", entry);
    let (code, words) = report("whole.log");
    assert!(code == Some(0) && !words.contains("could not be read"), "{words}");
    site.write("cut.log", &format!("{entry}{}", &entry[..30]));
    let (code, words) = report("cut.log");
    assert!(code == Some(0) && words.contains("1 transactions"), "{words}");
    assert!(words.contains("cut.log\": 1 lines could not be read, the first is line 2"), "{words}");
    for (name, content) in [("empty.log", ""), ("other.log", "127.0.0.1 - - GET /\nsecond\n")] {
        site.write(name, content);
        let (code, words) = report(name);
        assert!(code == Some(1) && words.contains("no entry of an audit log was read"), "{words}");
        assert_eq!(words.contains("2 lines could not be read"), name == "other.log", "{words}");
    }
}

/// A name server that lists 1.0.0.127 and "bad.test" on list.example, and knows no other name. Returns its port, and the
/// questions that it was asked.
fn list_server() -> (u16, Arc<Mutex<Vec<String>>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("an address").port();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let questions = asked.clone();
    std::thread::spawn(move || {
        let mut buf = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buf) {
            let mut labels = Vec::new();
            let mut at = 12;
            while buf[at] > 0 {
                let end = at + 1 + usize::from(buf[at]);
                labels.push(String::from_utf8_lossy(&buf[at + 1..end]).into_owned());
                at = end;
            }
            let name = labels.join(".");
            let is_listed = ["1.0.0.127.list.example", "bad.test.list.example"].contains(&name.as_str());
            questions.lock().expect("questions").push(name);
            let mut answer = buf[..length].to_vec();
            let (code, count) = if is_listed { (0x80, 1) } else { (0x83, 0) };
            answer[2..8].copy_from_slice(&[0x81, code, 0, 1, 0, count]);
            if is_listed {
                answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 2]);
            }
            let _ = socket.send_to(&answer, from);
        }
    });
    (port, asked)
}

#[test]
fn lists_in_dns_are_asked_in_both_phases_of_a_request() {
    let (port, (names, asked)) = (free_port(), list_server());
    let rules = "SecRuleEngine On\nSecRequestBodyAccess On\n\
                 SecRule ARGS_GET:h \"@rbl list.example\" \"id:1,phase:1,deny,status:403,capture,msg:'%{tx.0}'\"\n\
                 SecRule ARGS_POST:h \"@rbl list.example\" \"id:2,phase:2,deny,status:409\"\n";
    let location =
        format!("resolver 127.0.0.1:{names} ipv6=off; location /file {{ error_page 405 =200 /passed; root html; }}");
    let site = site(rules, port, &location);
    site.write("html/file", "file");
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    assert_eq!(ask(&mut client, "/?h=127.0.0.1"), 403);
    assert_eq!(ask(&mut client, "/?h=127.0.0.2"), 200);
    assert_eq!(ask(&mut client, "/?h=bad.test"), 403);
    assert_eq!(ask(&mut client, "/"), 200);
    let mut post = |body: &str| {
        let length = body.len();
        let head = format!("POST /file HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n");
        client.ask(&format!("{head}Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}")).expect("answered").0
    };
    let filler = "x".repeat(2000);
    assert_eq!((post("h=bad.test"), post("h=good.test")), (409, 200), "in the loop");
    assert_eq!((post(&format!("h=bad.test&f={filler}")), post(&format!("h=new.test&f={filler}"))), (409, 200));
    running.quit();
    assert!(site.log().contains("RBL lookup of bad.test.list.example succeeded at ARGS_GET:h."), "{}", site.log());
    let asked = asked.lock().expect("questions");
    assert_eq!(asked.iter().filter(|name| *name == "bad.test.list.example").count(), 1, "remembered: {asked:?}");
    site.assert_no_alerts();
}

#[test]
fn lookups_without_their_source_are_warnings_once() {
    let rules = "SecRuleEngine On\nSecRule REMOTE_ADDR \"@geoLookup\" \"id:1,phase:1,deny\"\n\
                 SecRule REMOTE_ADDR \"@rbl dnsbl.httpbl.org\" \"id:2,phase:1,deny\"\n\
                 SecRule REMOTE_ADDR \"@rbl list.example\" \"id:3,phase:1,deny\"\n\
                 SecRule REMOTE_ADDR \"@rbl list.example\" \"id:4,phase:3,deny\"\n";
    let port = free_port();
    let site = site(rules, port, "location /a { } location /b { }");
    let words = text(&site.run(&["-t"]).stderr);
    for warning in [
        "@geoLookup does not match without SecGeoLookupDb in ",
        "@rbl does not match without SecHttpBlKey, which this list needs, in ",
        "@rbl does not match without \"resolver\" in ",
        "@rbl does not match in phase 3: only phases 1 and 2 wait for DNS, in ",
    ] {
        assert_eq!(words.matches(warning).count(), 1, "{warning}: {words}");
    }
    assert!(words.contains("rules.conf:2") && words.contains("rules.conf:4"), "{words}");
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    assert_eq!(ask(&mut client, "/"), 200, "none matches");
    running.quit();
}

/// A legacy database with a country for every address: one node, both records of which are leaves.
fn country_database(country: u8) -> Vec<u8> {
    let leaf = [country, 0xff, 0xff];
    [&leaf[..], &leaf, &[0xff, 0xff, 0xff, 1]].concat()
}

#[test]
fn places_of_addresses_come_from_the_database_beside_the_rules() {
    let port = free_port();
    let rules = "SecRuleEngine On\nSecGeoLookupDb country.dat\n\
                 SecRule ARGS:address \"@geoLookup\" \"id:1,phase:1,deny,status:409,chain\"\n\
                 SecRule GEO:COUNTRY_CODE \"@streq US\"\n";
    let site = site(rules, port, "location /none { modsecurity_rules 'SecRuleRemoveById 1'; return 200 passed; }");
    site.write("conf/country.dat", "");
    std::fs::write(site.path("conf/country.dat"), country_database(225)).expect("a database");
    let words = text(&site.run(&["-t"]).stderr);
    assert!(!words.contains("geoLookup"), "{words}");
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    assert_eq!(ask(&mut client, "/?address=192.0.2.1"), 409);
    assert_eq!(ask(&mut client, "/?address=no-address"), 200);
    assert_eq!(ask(&mut client, "/none?address=192.0.2.1"), 200);
    running.quit();
    site.write("conf/country.dat", "no database");
    let words = text(&site.run(&["-t"]).stderr);
    assert!(words.contains("it is no database of countries or cities"), "{words}");
}
