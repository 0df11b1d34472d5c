//! The configuration by the API: shown, rehearsed, replaced, kept; durable at every step, under load, and against misuse.

use crate::support;

use serde_json::{Value, json};
use std::path::Path;
use support::client::Client;
use support::config_api::{API, CONFIG, ask, conf, files, get, page, post, site_of, try_ask, wait_for_page};
use support::{alive, free_port, wait};

#[test]
fn the_configuration_is_shown_with_its_places() {
    let port = free_port();
    let text = conf(port, "one").replace("events { }", "events { }\ninclude more/*.conf;");
    let site = site_of(&text);
    std::fs::create_dir(site.path("conf/more")).expect("a folder");
    site.write("conf/more/env.conf", "env\n  SOME;\n");
    let running = site.start();
    assert_eq!(get(port, ""), json!([1]));
    assert_eq!(
        get(port, "/1/"),
        json!(["caches", "certificates", "config", "firewall", "logs", "stores", "upstreams"])
    );
    let facts = get(port, CONFIG);
    assert_eq!((&facts["generation"], &facts["by"], &facts["writable"]), (&json!(1), &json!("start"), &json!(true)));
    let main = site.path("conf/nginx.conf").display().to_string();
    assert_eq!(facts["main"], json!(main));
    assert!(facts["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{facts}");
    let tree = get(port, "/1/config/tree");
    let find = |name: &str| tree["tree"].as_array().expect("directives").iter().find(|d| d["directive"] == json!(name));
    let env = find("env").expect("the included line");
    assert_eq!((&env["line"], &env["column"], &env["args"]), (&json!(1), &json!(1), &json!(["SOME"])));
    assert_eq!(env["file"], json!(site.path("conf/more/env.conf").display().to_string()));
    let http = find("http").expect("the block");
    let listen = &http["block"][0]["block"][0];
    assert_eq!((&listen["directive"], &listen["line"], &listen["column"]), (&json!("listen"), &json!(7), &json!(9)));
    let plan = get(port, "/1/config/plan");
    let lines = plan["plan"].as_array().expect("lines");
    let listens = lines.iter().find(|line| line["text"] == json!(format!("listen 127.0.0.1:{port};"))).expect("it");
    assert_eq!((&listens["depth"], &listens["place"]), (&json!(2), &json!(format!("{main}:7"))));
    assert!(lines.iter().any(|line| line["place"] == json!("default")));
    let output = site.run(&["--plan"]);
    assert_eq!(support::text(&output.stdout).lines().count(), lines.len(), "as -t --plan has it");
    let all = get(port, "/1/config/files");
    assert_eq!(all["files"], json!({"nginx.conf": text, "more/env.conf": "env\n  SOME;\n"}));
    assert_eq!(get(port, "/1/config/generations")[0]["by"], json!("start"));
    let said = post(port, CONFIG, &all.to_string());
    assert_eq!(said.generation(), 2);
    assert_eq!(site.read("conf/nginx.conf"), text, "files on the disk are the same, and stay where they are");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_rehearsal_leaves_the_sockets_that_serve() {
    let port = free_port();
    let site = site_of("events { }");
    let path = site.path("socket");
    let also = |text: String| text.replacen("listen ", &format!("listen unix:{}; listen ", path.display()), 1);
    site.write("conf/nginx.conf", &also(conf(port, "one")));
    let running = site.start();
    wait_for_page(port, "one");
    let said = post(port, "/1/config?dry_run", &also(conf(port, "two")));
    assert_eq!((said.status, &said.value["dry_run"]), (200, &json!(true)), "{}", said.value);
    std::os::unix::net::UnixStream::connect(&path).expect("connected");
    running.quit();
}

#[test]
fn a_rehearsal_says_what_the_test_of_the_command_line_says() {
    let port = free_port();
    let text = conf(port, "one");
    let site = site_of(&text);
    let running = site.start();
    let dry = "/1/config?dry_run";
    let said = post(port, dry, &conf(port, "two"));
    assert_eq!((said.status, &said.value["dry_run"]), (200, &json!(true)), "{}", said.value);
    let change = &said.value["diff"]["changes"][0];
    assert!(change["old"][0]["text"].as_str().is_some_and(|text| text.contains("one")), "{}", said.value);
    assert!(change["new"][0]["text"].as_str().is_some_and(|text| text.contains("two")), "{}", said.value);
    assert_eq!(change["new"][0]["line"], json!(8));
    let same = post(port, dry, &text.replace("return 200", "return   200"));
    assert_eq!(same.value["diff"], json!({"same": true, "changes": []}));
    // (A warning of the API itself.)
    assert!(same.value["warnings"][0]["reason"].as_str().is_some_and(|words| words.contains("without authentication")));
    let wrong = text.replace("return 200", "retrun 200");
    for path in [dry, CONFIG] {
        let said = post(port, path, &wrong);
        assert_eq!(said.code(), (400, "ConfigInvalid"), "{}", said.value);
        let complaint = &said.value["complaints"]
            .as_array()
            .and_then(|all| all.iter().find(|complaint| complaint["level"] == json!("emerg")).cloned());
        let complaint = complaint.as_ref().expect("a complaint");
        assert_eq!((&complaint["line"], &complaint["column"]), (&json!(8), &json!(22)), "{complaint}");
        assert_eq!(complaint["file"], json!(site.path("conf/nginx.conf").display().to_string()));
        assert!(complaint["suggestion"].as_str().is_some_and(|words| words.contains("return")), "{complaint}");
        let message = complaint["message"].as_str().expect("words");
        site.write("conf/wrong.conf", &wrong);
        let output = site.run(&["-t", "-c", "conf/wrong.conf"]);
        let printed = support::text(&output.stderr).replace("wrong.conf", "nginx.conf");
        assert!(printed.contains(message), "{printed} {message}");
    }
    // Reasons that only the system knows.
    let missing = text.replace("events { }", "events { }\nerror_log none/such/error.log;");
    let said = post(port, dry, &missing);
    assert_eq!(said.code(), (400, "ConfigInvalid"));
    assert!(
        said.value["complaints"][0]["reason"].as_str().is_some_and(|words| words.contains("none/such")),
        "{}",
        said.value
    );
    assert_eq!(site.read("conf/nginx.conf"), text);
    assert_eq!(get(port, "/1/config/generations").as_array().map(Vec::len), Some(1));
    assert_eq!(page(port).as_deref(), Ok("one"));
    running.quit();
}

#[test]
fn a_change_is_in_force_and_on_the_disk_before_its_answer() {
    let port = free_port();
    let site = site_of(&conf(port, "one"));
    let running = site.start();
    let worker = running.worker();
    let said = post(port, CONFIG, &conf(port, "two"));
    assert_eq!((said.generation(), &said.value["previous"]), (2, &json!(1)), "{}", said.value);
    assert_eq!(page(port).as_deref(), Ok("two"));
    assert_eq!(site.read("conf/nginx.conf"), conf(port, "two"));
    assert_eq!(get(port, CONFIG)["by"], json!("api"));
    // A change of a configuration that is not the one in force.
    for stale in ["\"1\"", "\"7\"", "W/\"2\"", "\"x\"", "1, \"3\""] {
        let said = ask(port, "POST", CONFIG, &format!("If-Match: {stale}\r\n"), &conf(port, "three"));
        assert_eq!(said.code(), (412, "PreconditionFailed"), "{stale}");
    }
    assert_eq!(ask(port, "PUT", CONFIG, "If-Match: \"9\", \"2\"\r\n", &conf(port, "three")).generation(), 3);
    assert_eq!(ask(port, "POST", CONFIG, "If-Match: *\r\n", &conf(port, "four")).generation(), 4);
    // A reload of the same texts keeps the generation; another text is another generation.
    running.signal("HUP");
    site.wait_for_log("reconfiguring", 1);
    let load = |n: u64| wait("the reload", || if get(port, CONFIG)["load"] == json!(n) { Ok(()) } else { Err("old") });
    load(5);
    assert_eq!((&get(port, CONFIG)["generation"], running.worker()), (&json!(4), worker));
    site.write("conf/nginx.conf", &conf(port, "by hand"));
    running.signal("HUP");
    wait_for_page(port, "by hand");
    load(6);
    let facts = get(port, CONFIG);
    assert_eq!((&facts["generation"], &facts["by"]), (&json!(5), &json!("reload")));
    running.quit();
    let running = site.start();
    wait_for_page(port, "by hand");
    assert_eq!(get(port, CONFIG)["generation"], json!(5));
    // Keeps a limited number, each of which can be activated again.
    let numbers = |port| -> Vec<u64> {
        let all = get(port, "/1/config/generations");
        all.as_array().expect("a list").iter().map(|one| one["generation"].as_u64().expect("a number")).collect()
    };
    assert_eq!(numbers(port), [2, 3, 4, 5]);
    assert_eq!(get(port, "/1/config/generations/3")["files"], json!({"nginx.conf": conf(port, "three")}));
    assert_eq!(ask(port, "GET", "/1/config/generations/1", "", "").code(), (404, "ConfigNotFound"));
    let dry = ask(port, "POST", "/1/config/generations/3?dry_run", "", "");
    assert_eq!((dry.status, page(port).as_deref()), (200, Ok("by hand")), "{}", dry.value);
    assert_eq!(ask(port, "POST", "/1/config/generations/3", "If-Match: \"5\"\r\n", "").generation(), 6);
    assert_eq!(page(port).as_deref(), Ok("three"));
    let facts = get(port, CONFIG);
    assert_eq!((&facts["by"], &facts["from"]), (&json!("rollback"), &json!(3)));
    assert_eq!(numbers(port), [3, 4, 5, 6]);
    running.quit();
    site.assert_no_alerts();
}

/// Several files become active with one rename of the main file.
#[test]
fn several_files_are_one_change() {
    let port = free_port();
    let main = |more: &str| {
        format!(
            "error_log logs/error.log info; daemon off;\nevents {{ }}\nhttp {{\n    include types;\n    server {{\n        \
             listen 127.0.0.1:{port};\n        {API}\n        include sites/*.conf; {more}\n    }}\n}}\n"
        )
    };
    let location = |words: &str| format!("location / {{ return 200 \"{words}\"; }}\n");
    let site = site_of(&main(""));
    std::fs::create_dir(site.path("conf/sites")).expect("a folder");
    site.write("conf/sites/a.conf", &location("disk"));
    site.write("conf/types", "types { text/html html; }\n");
    let running = site.start();
    wait_for_page(port, "disk");
    let sent = |words: &str| files(&[("nginx.conf", &main("")), ("sites/b.conf", &location(words))]);
    assert_eq!(post(port, CONFIG, &sent("sent")).generation(), 2);
    assert_eq!(page(port).as_deref(), Ok("sent"));
    // The main file names the directory of its generation; other files are read from the disk.
    assert!(
        site.read("conf/nginx.conf").contains("include .tidegate/2/conf/sites/*.conf;"),
        "{}",
        site.read("conf/nginx.conf")
    );
    assert!(site.read("conf/nginx.conf").contains("include types;"));
    assert_eq!(site.read("conf/sites/a.conf"), location("disk"), "files of the operator stay");
    let all = get(port, "/1/config/files");
    assert_eq!(all["files"]["nginx.conf"], json!(main("")));
    assert_eq!(all["files"]["sites/b.conf"], json!(location("sent")));
    assert_eq!(all["files"].as_object().map(serde_json::Map::len), Some(3));
    // A new main file keeps them, whatever changes below sites/.
    site.write("conf/sites/a.conf", &location("edited"));
    assert_eq!(post(port, CONFIG, &main("location /more { return 204; }")).generation(), 3);
    assert_eq!(page(port).as_deref(), Ok("sent"));
    // Complaints name files as they were sent.
    let said = post(port, CONFIG, &files(&[("nginx.conf", &main("")), ("sites/b.conf", "\n nonsense;\n")]));
    assert_eq!(said.code(), (400, "ConfigInvalid"));
    let complaint = said.value["complaints"].as_array().and_then(|all| all.last()).expect("a complaint");
    assert_eq!((&complaint["line"], &complaint["column"]), (&json!(2), &json!(2)), "{complaint}");
    assert_eq!(complaint["file"], json!(site.path("conf/sites/b.conf").display().to_string()));
    // A reload, a restart, and the test of the command line read the same.
    running.signal("HUP");
    site.wait_for_log("reconfiguring", 1);
    assert_eq!(page(port).as_deref(), Ok("sent"));
    assert_eq!(get(port, CONFIG)["generation"], json!(3));
    assert!(site.run(&["-t"]).status.success());
    running.quit();
    let running = site.start();
    wait_for_page(port, "sent");
    assert_eq!(get(port, CONFIG)["generation"], json!(3));
    // Back to the files of the disk: they differ by now, so that those of the generation are read.
    assert_eq!(post(port, "/1/config/generations/1", "").generation(), 4);
    assert_eq!(page(port).as_deref(), Ok("disk"));
    assert!(site.read("conf/nginx.conf").contains(".tidegate/4/conf/sites/*.conf"));
    site.write("conf/sites/a.conf", &location("disk"));
    assert_eq!(post(port, "/1/config/generations/1", "").generation(), 5);
    assert_eq!(site.read("conf/nginx.conf"), main(""), "they are the same again");
    // Generations named by a main file are kept beyond the limit.
    assert_eq!(post(port, CONFIG, &sent("held")).generation(), 6);
    let held = site.read("conf/nginx.conf");
    for n in 7..13 {
        assert_eq!(post(port, CONFIG, &conf(port, &format!("page {n}"))).generation(), n);
        assert!(n > 8 || Path::new(&site.path("conf/.tidegate/6")).exists());
    }
    assert!(!held.is_empty());
    for (name, text) in
        [("../x", "a;"), ("/etc/x", "a;"), (".tidegate/1/conf/x", "a;"), ("sites/", "a;"), ("nginx.conf/x", "a;")]
    {
        let said = post(port, CONFIG, &files(&[("nginx.conf", &main("")), (name, text)]));
        assert_eq!(said.code(), (400, "ConfigFormatError"), "{name}: {}", said.value);
    }
    assert_eq!(post(port, CONFIG, &files(&[("other.conf", "")])).code(), (400, "ConfigFormatError"));
    assert_eq!(post(port, CONFIG, &held).code(), (400, "ConfigFormatError"), "it names a generation");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_change_that_fails_changes_nothing() {
    let port = free_port();
    let site = site_of(&conf(port, "one"));
    let running = site.start();
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = busy.local_addr().expect("an address").port();
    let text = conf(port, "two").replace("listen", &format!("listen 127.0.0.1:{taken};\n listen"));
    let said = post(port, CONFIG, &text);
    assert_eq!(said.code(), (409, "AddressUnavailable"), "{}", said.value);
    assert!(said.value["complaints"].to_string().contains(&taken.to_string()), "{}", said.value);
    // The directory of generations is a file: nothing can be stored, and nothing changes.
    std::fs::remove_dir_all(site.path("conf/.tidegate")).expect("removed");
    site.write("conf/.tidegate", "");
    assert_eq!(post(port, CONFIG, &conf(port, "three")).code(), (500, "InternalError"));
    assert_eq!(site.read("conf/nginx.conf"), conf(port, "one"));
    assert_eq!(page(port).as_deref(), Ok("one"));
    // The pid file cannot be written: the old main file is placed again.
    std::fs::remove_file(site.path("conf/.tidegate")).expect("removed");
    std::fs::create_dir(site.path("logs/folder")).expect("a folder");
    let text = conf(port, "four").replace("daemon off;", "daemon off; pid logs/folder;");
    let said = post(port, CONFIG, &text);
    assert_eq!(said.code(), (500, "ConfigRefused"), "{}", said.value);
    assert_eq!(site.read("conf/nginx.conf"), conf(port, "one"));
    assert_eq!((page(port).as_deref(), &get(port, CONFIG)["generation"]), (Ok("one"), &json!(1)));
    assert_eq!(std::fs::read_dir(site.path("conf")).expect("entries").count(), 2, "nothing is left");
    assert_eq!(post(port, CONFIG, &conf(port, "five")).status, 200, "the next one works");
    assert_eq!(page(port).as_deref(), Ok("five"));
    running.quit();
}

/// A setting of the process: another worker process serves before the answer, and the old one gives it.
#[test]
fn a_change_that_replaces_the_worker_process_is_answered() {
    let port = free_port();
    let site = site_of(&conf(port, "one"));
    let running = site.start();
    let first = running.worker();
    let said = post(port, CONFIG, &conf(port, "two").replace("daemon off;", "daemon off; worker_priority 5;"));
    assert_eq!(said.generation(), 2, "{}", said.value);
    wait_for_page(port, "two");
    wait("the old process's end", || if alive(first) { Err("it lives") } else { Ok(()) });
    assert_eq!(get(port, CONFIG)["generation"], json!(2));
    assert_eq!(
        post(port, CONFIG, &conf(port, "three").replace("daemon off;", "daemon off; worker_priority 5;")).generation(),
        3
    );
    running.quit();
    site.assert_no_alerts();
}

/// A configuration without the API ends the API; its files are on the disk.
#[test]
fn a_configuration_may_end_its_api() {
    let port = free_port();
    let site = site_of(&conf(port, "one"));
    let running = site.start();
    let said = post(port, CONFIG, &conf(port, "two").replace(API, "location /api { api; }"));
    assert_eq!(said.generation(), 2);
    assert_eq!(ask(port, "GET", CONFIG, "", "").code(), (404, "PathNotFound"));
    assert_eq!(post(port, CONFIG, "x").code(), (404, "PathNotFound"));
    running.quit();
    assert!(site.run(&["-t"]).status.success());
}

#[test]
fn access_is_as_the_directive_says() {
    let port = free_port();
    let text = conf(port, "one").replace(
        API,
        &format!("{API} location /off/api {{ api write=on; }} location /read/api {{ api config=read; }}"),
    );
    let site = site_of(&text);
    let running = site.start();
    let at = |prefix: &str, method: &str, path: &str, fields: &str, host: &str| {
        let head = format!(
            "{method} {prefix}/api/tidegate{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\
             Content-Length: 1\r\n\r\nx"
        );
        let (status, text) = Client::connect(port).and_then(|mut c| c.ask(&head)).expect("an answer");
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        (status, value.pointer("/error/code").and_then(Value::as_str).unwrap_or_default().to_string())
    };
    let local = format!("localhost:{port}");
    let origin = format!("Origin: http://{local}\r\n");
    let rebound = format!("Origin: http://evil.example:{port}\r\n");
    for (prefix, method, path, fields, host, want) in [
        ("/off", "GET", CONFIG, "", "localhost", (404, "PathNotFound")),
        ("/off", "GET", "/1/logs", "", "localhost", (200, "")),
        ("/read", "GET", CONFIG, "", "localhost", (200, "")),
        ("/read", "POST", CONFIG, "", "localhost", (405, "MethodDisabled")),
        ("/read", "POST", "/1/config/generations/1", "", "localhost", (405, "MethodDisabled")),
        ("/read", "PATCH", "/1/logs", "", "localhost", (405, "MethodDisabled")),
        ("", "DELETE", CONFIG, "", "localhost", (405, "MethodDisabled")),
        ("", "OPTIONS", CONFIG, "", "localhost", (405, "MethodDisabled")),
        ("", "GET", "/2/config", "", "localhost", (404, "UnknownVersion")),
        ("", "GET", "/1/none", "", "localhost", (404, "PathNotFound")),
        ("", "GET", "/1/config/tree", "", "evil.example", (421, "UnknownHost")),
        ("", "POST", CONFIG, "", "evil.example", (421, "UnknownHost")),
        ("", "POST", CONFIG, "Origin: http://evil.example\r\n", "localhost", (403, "ForeignOrigin")),
        ("", "POST", CONFIG, "Sec-Fetch-Site: cross-site\r\n", "localhost", (403, "ForeignOrigin")),
        ("", "POST", CONFIG, "Origin: null\r\n", "localhost", (403, "ForeignOrigin")),
        // (The body is no configuration.)
        ("", "POST", CONFIG, &origin, &local, (400, "ConfigInvalid")),
    ] {
        let said = at(prefix, method, path, fields, host);
        assert_eq!((said.0, said.1.as_str()), want, "{prefix} {method} {path} {fields} {host}");
    }
    // Changes of nginx's API from a page whose name was made to resolve to this server.
    let head = format!(
        "DELETE /api/9/connections HTTP/1.1\r\nHost: evil.example:{port}\r\nConnection: close\r\n{rebound}\r\n"
    );
    let (status, text) = Client::connect(port).and_then(|mut c| c.ask(&head)).expect("an answer");
    assert!(status == 403 && text.contains("ForeignOrigin"), "{status} {text}");
    running.quit();
    for (listen, line, rules, words) in [
        ("8080", "config=read", "", "which is not local"),
        ("8080", "write=on config=write", "", "which is not local"),
        ("127.0.0.1:8080", "config=write", "", "needs \"write=on\""),
        ("127.0.0.1:8080", "keep=3", "", "needs \"config=write\""),
        ("127.0.0.1:8080", "write=on config=write keep=0", "", "invalid parameter"),
        ("127.0.0.1:8080", "write=on config=write keep=1001", "", "invalid parameter"),
        ("127.0.0.1:8080", "config=all", "", "invalid parameter"),
        ("127.0.0.1:8080", "config=read config=off", "", "duplicate parameter"),
    ] {
        site.configure(
            "",
            &format!("http {{ server {{ listen {listen}; location /api {{ api {line}; {rules} }} }} }}"),
        );
        let output = site.run(&["-t"]);
        let printed = support::text(&output.stderr);
        assert!(!output.status.success() && printed.contains(words), "{line}: {printed}");
    }
    let warned = |listen: &str, rules: &str| {
        let api = "api write=on config=write;";
        site.configure("", &format!("http {{ server {{ listen {listen}; location /api {{ {api} {rules} }} }} }}"));
        let output = site.run(&["-t"]);
        let printed = support::text(&output.stderr);
        assert!(output.status.success(), "{printed}");
        printed.contains("without authentication")
    };
    assert!(warned("127.0.0.1:8080", ""));
    assert!(warned("8080", "allow 127.0.0.1; deny all;"));
    assert!(!warned("unix:api.sock", ""));
    assert!(!warned("127.0.0.1:8080", "auth_basic x; auth_basic_user_file conf/nginx.conf;"));
}

#[test]
fn the_level_of_error_logs_changes_at_once_until_the_next_reload() {
    let port = free_port();
    let text = conf(port, "one").replace("error_log logs/error.log info;", "error_log logs/error.log crit;");
    let text = text.replace("location / {", "location /missing { root /nowhere; } location / {");
    let site = site_of(&text);
    let running = site.start();
    let logs = |method: &str, body: &str| ask(port, method, "/1/logs", "", body);
    let miss = || {
        let request = "GET /missing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        assert_eq!(Client::connect(port).and_then(|mut c| c.ask(request)).expect("an answer").0, 404);
        site.log().matches("/nowhere/missing").count()
    };
    assert_eq!(miss(), 0);
    let shown = logs("GET", "").value;
    assert_eq!((&shown["level"], &shown["error_logs"][0]["level"]), (&Value::Null, &json!("crit")), "{shown}");
    assert_eq!(shown["error_logs"][0]["line"], json!(1));
    let said = logs("PATCH", r#"{"level": "info"}"#);
    assert_eq!((said.status, &said.value["level"]), (200, &json!("info")), "{}", said.value);
    assert_eq!(miss(), 1);
    // The master, too.
    running.signal("USR1");
    site.wait_for_log("reopening logs", 2);
    assert_eq!(logs("PATCH", r#"{"level": null}"#).value["level"], Value::Null);
    assert_eq!(miss(), 1);
    assert_eq!(logs("PUT", r#"{"level": "debug"}"#).status, 200);
    assert_eq!(miss(), 2);
    running.signal("HUP");
    wait("the reload", || if get(port, CONFIG)["load"] == json!(2) { Ok(()) } else { Err("old") });
    assert_eq!(miss(), 2);
    for wrong in ["", "{}", r#"{"level": "loud"}"#, r#"{"level": 1}"#] {
        let said = logs("PATCH", wrong);
        assert!(matches!(said.status, 400 | 415), "{wrong}: {}", said.value);
    }
    running.quit();
}

#[test]
fn clients_of_every_kind_are_bounded() {
    let port = free_port();
    let text = conf(port, "one").replace(API, &format!("{API} client_max_body_size 64k; client_body_timeout 300ms;"));
    let site = site_of(&text);
    let running = site.start();
    let head = |fields: &str| format!("POST /api/tidegate/1/config HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n");
    // Slow: the body's limit of time, while others are served.
    let mut slow = Client::connect(port).expect("connects");
    let started = std::thread::spawn({
        let head = head("Content-Length: 1000");
        move || slow.ask(&format!("{head}events")).map(|(status, _)| status)
    });
    assert_eq!(post(port, "/1/config?dry_run", &text).status, 200);
    assert!(matches!(started.join().expect("the client"), Ok(408) | Err(_)));
    let large = "#".repeat(70_000);
    let said = try_ask(port, "POST", CONFIG, "", &large);
    assert!(said.is_err() || said.is_ok_and(|said| said.status == 413), "announced");
    let chunks: String = (0..70).map(|_| format!("400\r\n{}\r\n", "#".repeat(1024))).collect();
    let mut client = Client::connect(port).expect("connects");
    let answer = client.ask(&format!("{}{chunks}0\r\n\r\n", head("Transfer-Encoding: chunked")));
    assert!(answer.is_err() || answer.is_ok_and(|(status, _)| status == 413), "in chunks");
    for (body, want) in [
        ("", (400, "ConfigFormatError")),
        ("{", (415, "JsonError")),
        ("{\"nginx.conf\": 1}", (400, "ConfigFormatError")),
        ("{\"files\": {}}", (400, "ConfigFormatError")),
        ("\u{0}\u{1}", (400, "ConfigInvalid")),
        ("events { }", (200, "")),
    ] {
        let path = "/1/config?dry_run=1";
        let said = post(port, path, body);
        assert_eq!(said.code(), want, "{body:?}: {}", said.value);
    }
    let deep = format!("{}{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    assert_eq!(post(port, CONFIG, &deep).code(), (415, "JsonError"));
    let blocks = format!("{}{}", "http {".repeat(5_000), "}".repeat(5_000));
    assert_eq!(post(port, CONFIG, &blocks).code(), (400, "ConfigInvalid"));
    // Concurrent changes are made one at a time, and none is lost.
    let clients: Vec<_> = (0..40)
        .map(|n| {
            let body = text.replace("one", &format!("page {n}"));
            std::thread::spawn(move || (n, ask(port, "POST", CONFIG, "", &body)))
        })
        .collect();
    let mut made = 0;
    for client in clients {
        let (_, said) = client.join().expect("the client");
        match said.status {
            200 => made += 1,
            _ => assert!(matches!(said.code(), (409, "ConfigBusy") | (503, _)), "{}", said.value),
        }
    }
    assert!(made > 0);
    assert_eq!(get(port, CONFIG)["generation"], json!(made + 1));
    let page = page(port).expect("a page");
    assert_eq!(site.read("conf/nginx.conf"), text.replace("one", &page));
    running.quit();
    site.assert_no_alerts();
}

/// Without a master process, and for a configuration in memory, changes are unavailable.
#[test]
fn without_a_master_the_configuration_is_shown_only() {
    let port = free_port();
    let text = conf(port, "one").replace("daemon off;", "daemon off; master_process off;");
    let site = site_of(&text);
    let running = site.start();
    wait_for_page(port, "one");
    assert_eq!(get(port, "/1/config/files")["files"]["nginx.conf"], json!(text));
    assert_eq!(post(port, CONFIG, &text).code(), (503, "ConfigUnavailable"));
    assert_eq!(ask(port, "PATCH", "/1/logs", "", r#"{"level": "debug"}"#).value["level"], json!("debug"));
    running.quit();
}

/// Every request of docs/api.md, in its order.
#[test]
fn documented_requests_work() {
    let port = free_port();
    let text = format!(
        "error_log logs/error.log info; daemon off; user root;\nevents {{ }}\nhttp {{\n\
         proxy_cache_path cache keys_zone=pages:1m;\n\
         upstream app {{ zone app 256k; server 127.0.0.1:1; server 127.0.0.1:2; }}\n\
         server {{ listen 127.0.0.1:{port}; status_zone site;\n{API}\n\
         location / {{ proxy_cache pages; proxy_pass http://app; }} }} }}\n"
    );
    let site = site_of(&text);
    let running = site.start();
    site.write("nginx.conf", &text);
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md")).expect("the page");
    let requests: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("    curl ")).collect();
    assert!(requests.len() > 15, "{requests:?}");
    for request in requests {
        let answer = ask_nginx(port, "GET", "/9/http/upstreams/app/servers");
        let id = answer[0]["id"].as_u64().expect("a server");
        let generation = get(port, CONFIG)["generation"].as_u64().expect("a generation");
        let request = request
            .replace("$A", &format!("http://127.0.0.1:{port}/api"))
            .replace("servers/3", &format!("servers/{id}"))
            .replace("\"7\"", &format!("\"{generation}\""))
            .replace("generations/7", &format!("generations/{generation}"));
        let script = format!("curl -s -w '\\n%{{http_code}}' {request}");
        let output = std::process::Command::new("sh").args(["-c", &script]).current_dir(&site.dir).output();
        let Ok(output) = output.map_err(|e| e.to_string()).and_then(|output| match output.status.code() {
            Some(127) => Err("curl is not installed".into()),
            _ => Ok(output),
        }) else {
            testkit::missing_peer("curl is not installed");
            return;
        };
        let mut said = support::text(&output.stdout);
        if request.contains("> all.json") {
            // The file also contains the status.
            said = site.read("all.json");
            site.write("all.json", said.rsplit_once('\n').map_or("", |(body, _)| body));
        }
        let status: u16 = said.rsplit('\n').next().and_then(|line| line.parse().ok()).unwrap_or(0);
        match request.contains("example.com") {
            true => assert_eq!(status, 404, "no certificate is ordered here: {said}"),
            false => assert!((200..300).contains(&status), "{request}: {said}"),
        }
    }
    running.quit();
    site.assert_no_alerts();
}

fn ask_nginx(port: u16, method: &str, path: &str) -> Value {
    let head = format!("{method} /api{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let (status, text) = Client::connect(port).and_then(|mut c| c.ask(&head)).expect("an answer");
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn caches_and_certificates_are_listed_and_changed() {
    use support::origin::{Origin, ok};
    let (port, tls) = (free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let made = rcgen::generate_simple_self_signed(vec!["a.example".to_string()]).expect("a certificate");
    let text = format!(
        "error_log logs/error.log info; daemon off; user root;\nevents {{ }}\nhttp {{\n\
         proxy_cache_path cache keys_zone=pages:1m; add_header X-Cache $upstream_cache_status always;\n\
         server {{ listen 127.0.0.1:{port};\n{API}\nlocation / {{ proxy_cache pages; proxy_cache_key $uri; \
         proxy_cache_valid 1h; proxy_pass http://127.0.0.1:{}; }} }}\n\
         server {{ listen 127.0.0.1:{tls} ssl; ssl_certificate a.crt; ssl_certificate_key a.key; }} }}\n",
        origin.port
    );
    let site = site_of(&text);
    site.write("conf/a.crt", &made.cert.pem());
    site.write("conf/a.key", &made.signing_key.serialize_pem());
    let running = site.start();
    let fetch = |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let (_, head) = Client::connect(port).and_then(|mut c| c.ask_for_head(&head)).expect("an answer");
        head.lines().find_map(|line| line.strip_prefix("X-Cache: ").map(str::to_string)).unwrap_or_default()
    };
    let purge = |query: &str| ask(port, "DELETE", &format!("/1/caches/pages{query}"), "", "");
    let fill = || ["/a", "/b/1", "/b/2", "/c"].map(&fetch);
    assert_eq!(fill(), ["MISS"; 4]);
    assert_eq!(fill(), ["HIT"; 4]);
    assert_eq!(get(port, "/1/caches")["pages"]["entries"], json!(4));
    assert_eq!(purge("?key=/a").status, 204);
    assert_eq!(purge("?key=/none").code(), (404, "CacheKeyNotFound"));
    assert_eq!(fill(), ["MISS", "HIT", "HIT", "HIT"]);
    assert_eq!(purge("?key=/b/%2A").status, 204);
    assert_eq!(fill(), ["HIT", "MISS", "MISS", "HIT"]);
    assert_eq!(purge("").status, 204);
    assert_eq!(fill(), ["MISS"; 4]);
    assert_eq!(ask(port, "DELETE", "/1/caches/none", "", "").code(), (404, "CacheNotFound"));
    let all = get(port, "/1/certificates");
    assert_eq!((&all[0]["names"], &all[0]["acme"]), (&json!(["a.example"]), &Value::Null), "{all}");
    assert!(
        all[0]["days_left"].as_i64() > Some(0)
            && all[0]["configured"][0].as_str().is_some_and(|p| p.contains("nginx.conf:"))
    );
    assert_eq!(post(port, "/1/certificates", r#"{"renew": "a.example"}"#).code(), (404, "CertificateNotFound"));
    assert_eq!(post(port, "/1/certificates", "[]").code(), (400, "CertificateFormatError"));
    // A configuration whose certificate is missing is refused as by -t, with its line.
    std::fs::rename(site.path("conf/a.crt"), site.path("conf/b.crt")).expect("renamed");
    let said = post(port, "/1/config?dry_run", &text);
    assert_eq!(said.code(), (400, "ConfigInvalid"));
    assert!(said.value["complaints"].to_string().contains("a.crt"), "{}", said.value);
    running.quit();
    site.assert_no_alerts();
}
