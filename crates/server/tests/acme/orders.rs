//! Certificates from pebble, the small authority of Let's Encrypt's developers (Debian's package); skipped with words where it is
//! not installed.

use crate::support;

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use support::pebble::{Authority, Names, ask};
use support::zone::Zone;
use support::{Site, free_port, text, wait};

fn orders_of(site: &Site) -> usize {
    site.log().matches("issued a certificate for").count()
}

#[test]
fn certificates_are_ordered_stored_and_served() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let (http, tls) = (free_port(), free_port());
        let site = Site::new("daemon off;", "");
        let Some(authority) = Authority::start(&site, http, tls) else { return };
        authority.root(&site);
        let state = site.path("state").display().to_string();
        let rest = format!(
            "http {{
                resolver 127.0.0.1:1;
                acme_issuer test {{
                    uri https://127.0.0.1:{}/dir; ssl_trusted_certificate pebble.crt; state_path {state};
                    challenge {challenge}; contact a@example.test; accept_terms_of_service;
                }}
                server {{ listen 127.0.0.1:{http}; location / {{ deny all; }} }}
                server {{
                    listen 127.0.0.1:{tls} ssl;
                    acme_certificate test 127.0.0.1;
                    ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
                    ssl_certificate_cache max=2;
                    location / {{ return 200 served; }}
                }} }}",
            authority.port
        );
        let conf = "daemon off;";
        site.configure(conf, &rest);
        let running = site.start();
        site.wait_for_log("issued a certificate for \"127.0.0.1\"", 1);
        assert_eq!(ask(&site, tls), "0 served", "{challenge}");
        for entry in std::fs::read_dir(site.path("state")).expect("the state").flatten() {
            let mode = entry.metadata().expect("a file").permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{:?}", entry.file_name());
        }
        // The certificate outlives a reload and, from its files, a restart.
        site.configure(conf, &rest.replace("return 200 served", "return 200 reloaded"));
        running.signal("HUP");
        wait("the new configuration", || {
            let said = ask(&site, tls);
            if said == "0 reloaded" { Ok(()) } else { Err(said) }
        });
        running.quit();
        drop(authority);
        let running = site.start();
        wait("the stored certificate", || {
            let said = ask(&site, tls);
            if said == "0 reloaded" { Ok(()) } else { Err(said) }
        });
        assert_eq!(orders_of(&site), 1, "{}", site.log());
        running.quit();
        site.assert_no_alerts();
    }
}

#[test]
fn an_authority_that_is_not_there_delays_nothing() {
    let (tls, absent) = (free_port(), free_port());
    let site = Site::new(
        "daemon off;",
        &format!(
            "http {{
                resolver 127.0.0.1:1;
                acme_issuer test {{ uri http://127.0.0.1:{absent}/dir; state_path off; }}
                server {{
                    listen 127.0.0.1:{tls} ssl; acme_certificate test 127.0.0.1;
                    ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
                    location / {{ return 200 served; }}
                }} }}"
        ),
    );
    let running = site.start();
    // A placeholder serves clients that trust anything.
    let output = Command::new("curl").args(["-sk", &format!("https://127.0.0.1:{tls}/")]).output().expect("curl");
    assert_eq!(text(&output.stdout), "served");
    site.wait_for_log("while ordering a certificate for \"127.0.0.1\" of acme issuer \"test\", next try in", 1);
    assert!(site.log().contains("connect() failed (111: Connection refused)"), "{}", site.log());
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn unknown_tokens_belong_to_the_configuration() {
    let port = free_port();
    let site = Site::new(
        "daemon off;",
        &format!(
            "http {{
                resolver 127.0.0.1:1;
                acme_issuer test {{ uri http://127.0.0.1:1/dir; state_path off; }}
                server {{ listen 127.0.0.1:{port}; location / {{ return 200 own; }} }} }}"
        ),
    );
    let running = site.start();
    let url = format!("http://127.0.0.1:{port}/.well-known/acme-challenge/unknown");
    let output = Command::new("curl").args(["-s", &url]).output().expect("curl");
    assert_eq!(text(&output.stdout), "own");
    running.quit();
}

/// For 127.0.0.1.
fn one_certificate(authority: u16, http: u16, tls: u16, state: &str) -> String {
    format!(
        "http {{ resolver 127.0.0.1:1;
            acme_issuer test {{ uri https://127.0.0.1:{authority}/dir; ssl_trusted_certificate pebble.crt; state_path {state}; accept_terms_of_service; }}
            server {{ listen 127.0.0.1:{http}; }}
            server {{ listen 127.0.0.1:{tls} ssl; acme_certificate test 127.0.0.1;
                ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
                location / {{ return 200 served; }} }} }}"
    )
}

fn listed(site: &Site, more: &[&str]) -> (i32, serde_json::Value) {
    let arguments = [&["certificates", "--json"], more].concat();
    let mut command = Command::new(support::BINARY);
    let output = command.args(arguments).args(["-p", &site.dir.display().to_string()]).output().expect("it runs");
    let rows = serde_json::from_slice(&output.stdout);
    (output.status.code().unwrap_or(-1), rows.unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr))))
}

#[test]
fn certificates_are_listed_and_renewed_on_request() {
    let (http, tls) = (free_port(), free_port());
    let site = Site::new("daemon off;", "");
    let Some(authority) = Authority::start(&site, http, tls) else { return };
    let state = site.path("state").display().to_string();
    // (Port 1 stays closed: other test programs, which run at the same time, connect to it.)
    let of_file = free_port();
    let file = format!(
        "http {{ server {{ listen 127.0.0.1:{of_file} ssl; server_name a.test;\n ssl_certificate pebble.crt; ssl_certificate_key pebble.key; }}"
    );
    let rest = one_certificate(authority.port, http, tls, &state).replacen("http {", &file, 1);
    site.configure("daemon off;", &rest);
    let (code, rows) = listed(&site, &[]);
    assert_eq!(code, 1, "the certificate is not there yet: {rows}");
    assert_eq!((&rows[1]["problem"], &rows[1]["acme"]["state"]), (&"not issued yet".into(), &serde_json::Value::Null));
    let running = site.start();
    site.wait_for_log("issued a certificate for \"127.0.0.1\"", 1);
    let settled = |times: usize| {
        wait("the state of the order", || {
            let (code, rows) = listed(&site, &[]);
            let row = &rows[1];
            let is = code == 0 && row["acme"]["state"] == "issued" && orders_of(&site) == times;
            if is { Ok(row.clone()) } else { Err(rows.to_string()) }
        })
    };
    let first = settled(1);
    assert_eq!(first["names"], serde_json::json!(["127.0.0.1"]));
    assert_eq!((&first["acme"]["issuer"], &first["acme"]["challenge"]), (&"test".into(), &"http-01".into()));
    assert!(first["acme"]["next_order_at"].as_i64() > first["not_before"].as_i64(), "{first}");
    assert!(first["days_left"].as_i64() > Some(0) && first["acme"]["last_error"].is_null(), "{first}");
    let (_, rows) = listed(&site, &[]);
    assert_eq!(rows[0]["names"], serde_json::json!(["127.0.0.1"]), "of the file");
    let conf = site.path("conf/nginx.conf").display().to_string();
    assert_eq!(rows[0]["configured"], serde_json::json!([format!("{conf}:5")]));
    assert_eq!(listed(&site, &["--within", "36500"]).0, 1);
    let renew = |name: &str| {
        let prefix = site.dir.display().to_string();
        Command::new(support::BINARY).args(["certificates", "--renew", name, "-p", &prefix]).output().expect("it runs")
    };
    assert_eq!(renew("b.test").status.code(), Some(1));
    let asked = renew("127.0.0.1");
    assert!(asked.status.success() && text(&asked.stdout).contains("asked the server"), "{}", text(&asked.stderr));
    site.wait_for_log("issued a certificate for \"127.0.0.1\"", 2);
    let second = settled(2);
    assert_ne!(first["serial"], second["serial"]);
    // The authority goes: the certificate stays, and the list tells why.
    drop(authority);
    assert!(renew("127.0.0.1").status.success());
    wait("the failure", || {
        let (code, rows) = listed(&site, &[]);
        let row = &rows[1];
        let is = code == 0 && row["acme"]["state"] == "failed" && row["acme"]["last_error"].is_string();
        if is { Ok(()) } else { Err(rows.to_string()) }
    });
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn processes_with_one_state_order_once() {
    let (http, tls) = (free_port(), free_port());
    let site = Site::new("daemon off;", "");
    let Some(authority) = Authority::start(&site, http, tls) else { return };
    let state = site.path("state").display().to_string();
    site.configure("daemon off;", &one_certificate(authority.port, http, tls, &state));
    let other = Site::new("daemon off;", "");
    std::fs::copy(site.path("conf/pebble.crt"), other.path("conf/pebble.crt")).expect("copied");
    let tls_too = free_port();
    other.configure("daemon off;", &one_certificate(authority.port, free_port(), tls_too, &state));
    authority.root(&site);
    let (one, two) = (site.start(), other.start());
    for port in [tls, tls_too] {
        wait("the certificate", || match ask(&site, port).as_str() {
            "0 served" => Ok(()),
            said => Err(said.to_string()),
        });
    }
    assert_eq!(orders_of(&site) + orders_of(&other), 1, "{}{}", site.log(), other.log());
    one.quit();
    two.quit();
    site.assert_no_alerts();
    other.assert_no_alerts();
}

#[test]
fn orders_survive_kills_at_their_steps() {
    let (http, tls) = (free_port(), free_port());
    let site = Site::new("daemon off;", "");
    let Some(authority) = Authority::start(&site, http, tls) else { return };
    authority.root(&site);
    let steps: [(&str, fn(&Site, &str) -> bool); 4] = [
        ("account key", |_, state| std::path::Path::new(&format!("{state}/account.key")).exists()),
        ("account", |_, state| std::path::Path::new(&format!("{state}/account.url")).exists()),
        ("order", |site, _| listed(site, &[]).1[0]["acme"]["state"] == "ordering"),
        ("key of the certificate", |_, state| {
            let entries = std::fs::read_dir(state).map(|all| all.flatten().map(|e| e.file_name()).collect::<Vec<_>>());
            entries.is_ok_and(|all| {
                all.iter().any(|name| {
                    name.to_string_lossy().starts_with("127.0.0.1") && name.to_string_lossy().ends_with(".key")
                })
            })
        }),
    ];
    for (number, (step, reached)) in steps.into_iter().enumerate() {
        let state = site.path(&format!("state-{number}")).display().to_string();
        site.configure("daemon off;", &one_certificate(authority.port, http, tls, &state));
        let mut running = site.start();
        let worker = running.worker();
        wait(step, || if reached(&site, &state) { Ok(()) } else { Err(site.log()) });
        support::signal(running.pid(), "KILL");
        running.child.wait().expect("ended");
        // The worker ends with its master; it may be gone already.
        let _ = Command::new("kill").args(["-KILL", &worker.to_string()]).status();
        wait("the worker's end", || if support::alive(worker) { Err("it lives") } else { Ok(()) });
        drop(running);
        let _ = std::fs::remove_file(site.path("logs/nginx.pid"));
        let running = site.start();
        wait("the certificate", || match ask(&site, tls).as_str() {
            "0 served" => Ok(()),
            said => Err(format!("{step}: {said} {}", site.log())),
        });
        running.quit();
    }
    site.assert_no_alerts();
}

#[test]
fn wildcards_are_proven_by_dns() {
    let (tls, dns) = (free_port(), free_port());
    let Some(names) = Names::start(dns) else { return };
    let site = Site::new("daemon off;", "");
    let Some(authority) = Authority::start_with(&site, free_port(), tls, Some(dns)) else { return };
    authority.root(&site);
    let url = format!("http://127.0.0.1:{}", names.1);
    let hook = format!(
        "#!/bin/sh\ncase \"$1\" in
            present) exec curl -sf -d \"{{\\\"host\\\":\\\"$2\\\",\\\"value\\\":\\\"$3\\\"}}\" {url}/set-txt ;;
            cleanup) exec curl -sf -d \"{{\\\"host\\\":\\\"$2\\\"}}\" {url}/clear-txt ;;
        esac\nexit 1\n"
    );
    site.write("conf/hook", &hook);
    std::fs::set_permissions(site.path("conf/hook"), std::fs::Permissions::from_mode(0o755)).expect("executable");
    let state = site.path("state").display().to_string();
    let conf = |hook: &str, names: &str| {
        format!(
            "http {{ resolver 127.0.0.1:1;
                acme_issuer test {{ uri https://127.0.0.1:{}/dir; ssl_trusted_certificate pebble.crt; state_path {state};
                    accept_terms_of_service; challenge dns-01; dns_hook {hook} timeout=20s; dns_propagation 0; }}
                server {{ listen 127.0.0.1:{tls} ssl; server_name {names}; acme_certificate test;
                    ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
                    location / {{ return 200 served; }} }} }}",
            authority.port
        )
    };
    site.configure("daemon off;", &conf("hook", "*.wild.test wild.test"));
    let running = site.start();
    site.wait_for_log("issued a certificate for \"*.wild.test\"", 1);
    for name in ["a.wild.test", "wild.test"] {
        let output = Command::new("curl")
            .args(["-s", "--cacert", &site.path("conf/root.crt").display().to_string()])
            .args(["--resolve", &format!("{name}:{tls}:127.0.0.1"), &format!("https://{name}:{tls}/")])
            .output()
            .expect("curl");
        assert_eq!(text(&output.stdout), "served", "{name}");
    }
    // A program that fails is a reason to wait, and no more.
    site.write("conf/bad", "#!/bin/sh\necho no such zone >&2\nexit 3\n");
    std::fs::set_permissions(site.path("conf/bad"), std::fs::Permissions::from_mode(0o755)).expect("executable");
    site.configure("daemon off;", &conf("bad", "*.other.test"));
    running.signal("HUP");
    site.wait_for_log("failed: exit status: 3: no such zone while ordering a certificate for \"*.other.test\"", 1);
    running.quit();
    site.assert_no_alerts();
    for (hook, names, says) in [
        ("nowhere", "*.a.test", "cannot run"),
        ("pebble.json", "*.a.test", "it is no executable file"),
        ("hook", "127.0.0.1", "is an address, which \"challenge dns-01\" cannot prove"),
    ] {
        site.configure("daemon off;", &conf(hook, names));
        let output = site.run(&["-t"]);
        assert!(text(&output.stderr).contains(says), "{says}: {}", text(&output.stderr));
    }
    site.configure("daemon off;", &conf("hook", "*.a.test").replace("dns-01", "http-01"));
    assert!(text(&site.run(&["-t"]).stderr).contains("need each other"), "a hook without dns-01");
}

#[test]
fn name_servers_are_updated() {
    let (zone, tls) = (Zone::start(), free_port());
    let site = Site::new("daemon off;", "");
    let Some(authority) = Authority::start_with(&site, free_port(), tls, Some(zone.port)) else { return };
    site.write("conf/key", support::zone::KEY);
    // Read by the master: the workers' user may not.
    std::fs::set_permissions(site.path("conf/key"), std::fs::Permissions::from_mode(0o600)).expect("private");
    site.write("conf/other", &support::zone::KEY.replace("MDEy", "AAAA"));
    let state = site.path("state").display().to_string();
    let conf = |update: &str, names: &str| {
        format!(
            "http {{ resolver 127.0.0.1:1;
                acme_issuer test {{ uri https://127.0.0.1:{}/dir; ssl_trusted_certificate pebble.crt; state_path {state};
                    accept_terms_of_service; challenge dns-01; dns_update {update}; }}
                server {{ listen 127.0.0.1:{tls} ssl; server_name {names}; acme_certificate test;
                    ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key; }} }}",
            authority.port
        )
    };
    let server = format!("127.0.0.1:{}", zone.port);
    // The name server tells the zone of a name.
    site.configure("daemon off;", &conf(&format!("{server} key=key"), "*.a.upd.test upd.test"));
    let running = site.start();
    site.wait_for_log("issued a certificate for \"*.a.upd.test\"", 1);
    assert!(zone.records.lock().expect("not poisoned").is_empty(), "records are removed");
    assert_eq!(*zone.updates.lock().expect("not poisoned"), 4);
    site.configure("daemon off;", &conf(&format!("{server} zone=upd.test key=key"), "b.upd.test"));
    running.signal("HUP");
    site.wait_for_log("issued a certificate for \"b.upd.test\"", 1);
    site.configure("daemon off;", &conf(&format!("{server} zone=upd.test key=other"), "c.upd.test"));
    running.signal("HUP");
    site.wait_for_log(
        "the name server refuses the update (NOTAUTH) while ordering a certificate for \"c.upd.test\"",
        1,
    );
    running.quit();
    site.assert_no_alerts();
    for (update, says) in [
        ("ns.test", "invalid address \"ns.test\""),
        ("127.0.0.1 zone=a..b", "invalid parameter \"zone=a..b\""),
        ("127.0.0.1 key=nowhere", "cannot load TSIG key"),
        ("127.0.0.1 key=pebble.json", "it has no \"algorithm\""),
        ("127.0.0.1; dns_hook key", "exclude each other"),
    ] {
        site.configure("daemon off;", &conf(update, "a.test"));
        let output = site.run(&["-t"]);
        assert!(text(&output.stderr).contains(says), "{says}: {}", text(&output.stderr));
    }
}

#[test]
fn a_directory_is_served_under_a_public_name() {
    let (http, tls) = (free_port(), free_port());
    let site = Site::new("", "");
    let Some(authority) = Authority::start(&site, http, tls) else { return };
    authority.root(&site);
    site.write("html/index.html", "a public page");
    let mut serve = Command::new(support::BINARY)
        .args(["serve", "html", "--domain", "127.0.0.1", "--email", "a@example.test"])
        .args(["--listen", &tls.to_string(), "--http", &http.to_string()])
        .args(["--acme", &format!("https://127.0.0.1:{}/dir", authority.port)])
        .args(["--acme-ca", "conf/pebble.crt"])
        .env("XDG_DATA_HOME", site.path("data"))
        .current_dir(site.path("."))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    wait("the certificate", || match ask(&site, tls) {
        answer if answer == "0 a public page" => Ok(()),
        answer => Err(answer),
    });
    let output = Command::new("curl")
        .args(["-s", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}"])
        .arg(format!("http://127.0.0.1:{http}/a?b"))
        .output()
        .expect("curl");
    assert_eq!(text(&output.stdout), format!("301 https://127.0.0.1:{tls}/a?b"));
    support::signal(serve.id(), "INT");
    assert!(serve.wait().expect("ends").success());
    // Another start needs no order.
    assert!(site.path("data/tidegate/acme").read_dir().expect("a state").count() > 0);
}
