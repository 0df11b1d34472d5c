//! Issuers of certificates beside a single ACME server: several in order, the local authority, names on demand, authorities that
//! fail or lie, and many certificates. pebble is Debian's; skipped with words where it is not installed.

use crate::support;

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex};
use support::pebble::{Authority, Names, ask};
use support::{Site, free_port, text, wait};

/// Faults of pebble that all tests have.
const FAULTS: [(&str, &str); 2] = [("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "10")];

fn listed(site: &Site) -> serde_json::Value {
    let mut command = Command::new(support::BINARY);
    let output = command.args(["certificates", "--json", "-p", &site.dir.display().to_string()]).output();
    serde_json::from_slice(&output.expect("it runs").stdout).expect("JSON")
}

fn test(site: &Site, rest: &str) -> String {
    site.configure("daemon off;", rest);
    text(&site.run(&["-t"]).stderr)
}

/// Asks over TLS under a name. Returns curl's exit code and the body; `root`: trusted, anything otherwise.
fn ask_as(site: &Site, name: &str, port: u16, root: Option<&str>) -> (i32, String) {
    let mut curl = Command::new("curl");
    match root {
        Some(root) => curl.arg("--cacert").arg(site.path(root)),
        None => curl.arg("-k"),
    };
    let output = curl
        .args(["-s", "-m", "30", "--resolve", &format!("{name}:{port}:127.0.0.1"), &format!("https://{name}:{port}/")])
        .output()
        .expect("curl");
    (output.status.code().unwrap_or(-1), text(&output.stdout))
}

#[test]
fn the_next_issuer_serves_while_one_is_down() {
    let (http, tls, first) = (free_port(), free_port(), free_port());
    let site = Site::new("daemon off;", "");
    let Some(second) = Authority::start(&site, http, tls) else { return };
    second.root(&site);
    let state = |name: &str| site.path(name).display().to_string();
    let rest = format!(
        "http {{ resolver 127.0.0.1:1;
            acme_issuer first {{ uri https://127.0.0.1:{first}/dir; ssl_trusted_certificate pebble.crt; state_path {};
                accept_terms_of_service; fallback second; }}
            acme_issuer second {{ uri https://127.0.0.1:{}/dir; ssl_trusted_certificate pebble.crt; state_path {};
                accept_terms_of_service; fallback first; }}
            server {{ listen 127.0.0.1:{http}; }}
            server {{ listen 127.0.0.1:{tls} ssl; acme_certificate first 127.0.0.1;
                ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
                location / {{ return 200 served; }} }} }}",
        state("one"),
        second.port,
        state("two")
    );
    site.configure("daemon off;", &rest);
    let running = site.start();
    site.wait_for_log("of acme issuer \"first\", next try in 0 s", 1);
    site.wait_for_log("acme issuer \"second\": issued a certificate for \"127.0.0.1\"", 1);
    assert_eq!(ask(&site, tls), "0 served");
    let by = |wanted: &str| {
        wait("the state", || {
            let row = listed(&site)[0].clone();
            let is = row["acme"]["served_by"] == wanted && row["acme"]["state"] == "issued" && row["problem"].is_null();
            if is { Ok(()) } else { Err(row.to_string()) }
        });
    };
    by("second");
    // A restart knows who has issued, and orders nothing.
    running.quit();
    let running = site.start();
    assert_eq!(ask(&site, tls), "0 served");
    by("second");
    // The first issuer comes, and the next order is its.
    let Some(came) = Authority::start_on(&site, first, http, tls, None, &FAULTS) else { return };
    let renew = || {
        let prefix = site.dir.display().to_string();
        let asked = Command::new(support::BINARY).args(["certificates", "--renew-all", "-p", &prefix]).output();
        assert!(asked.expect("it runs").status.success());
    };
    renew();
    site.wait_for_log("acme issuer \"first\": issued a certificate for \"127.0.0.1\"", 1);
    by("first");
    came.root(&site);
    assert_eq!(ask(&site, tls), "0 served");
    // Both are down: the certificate stays, after a restart, too.
    drop((came, second));
    renew();
    site.wait_for_log("while ordering a certificate for \"127.0.0.1\" of acme issuer \"second\"", 1);
    running.quit();
    let running = site.start();
    assert_eq!(ask(&site, tls), "0 served");
    running.quit();
    site.assert_no_alerts();
    let said = test(&site, &rest.replace("fallback second", "fallback third"));
    assert!(said.contains("issuer \"third\" is missing"), "{said}");
}

#[test]
fn the_local_authority_needs_no_server() {
    let (tls, absent) = (free_port(), free_port());
    let site = Site::new("daemon off;", "");
    let state = site.path("state").display().to_string();
    let conf = |names: &str, rows: &str| {
        format!(
            "http {{
                acme_issuer local {{ local_authority; state_path {state}; }}
                acme_issuer public {{ uri http://127.0.0.1:{absent}/dir; state_path {state}; {rows} }}
                server {{ listen 127.0.0.1:{tls} ssl; server_name {names}; acme_certificate local;
                    ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
                    location / {{ return 200 served; }} }} }}"
        )
    };
    site.configure("daemon off;", &conf("localhost *.shop.test 127.0.0.1", ""));
    let exported = site.path("root.crt").display().to_string();
    let export = || {
        let prefix = site.dir.display().to_string();
        let arguments = ["certificates", "--local-root", exported.as_str(), "-p", prefix.as_str()];
        Command::new(support::BINARY).args(arguments).output().expect("it runs")
    };
    let early = export();
    assert_eq!(early.status.code(), Some(1));
    assert!(text(&early.stderr).contains("creates the authority"), "{}", text(&early.stderr));
    let running = site.start();
    wait("the authority", || if export().status.success() { Ok(()) } else { Err(site.log()) });
    for name in ["localhost", "a.shop.test"] {
        assert_eq!(ask_as(&site, name, tls, Some("root.crt")), (0, "served".into()), "{name}");
    }
    assert_eq!(ask_as(&site, "other.test", tls, Some("root.crt")).0, 60, "another name");
    let mode = |name: &str| std::fs::metadata(site.path("state").join(name)).expect("a file").permissions().mode();
    assert_eq!((mode("local-authority.key") & 0o777, mode("local-authority.crt") & 0o777), (0o600, 0o644));
    let verified =
        Command::new("openssl").args(["x509", "-noout", "-text", "-in", &exported]).output().expect("openssl");
    assert!(text(&verified.stdout).contains("X509v3 Name Constraints: critical"), "{}", text(&verified.stdout));
    // The authority outlives its certificates.
    let prefix = site.dir.display().to_string();
    let asked = Command::new(support::BINARY).args(["certificates", "--renew-all", "-p", &prefix]).output();
    assert!(asked.expect("it runs").status.success());
    site.wait_for_log("acme issuer \"local\": issued a certificate for \"localhost\"", 1);
    running.quit();
    let running = site.start();
    assert_eq!(ask_as(&site, "localhost", tls, Some("root.crt")), (0, "served".into()));
    running.quit();
    // A local name whose public authority is down.
    let both = conf("localhost", "fallback local;")
        .replace("acme_certificate local;", "acme_certificate public; resolver 127.0.0.1:1;");
    site.configure("daemon off;", &both);
    let running = site.start();
    site.wait_for_log("acme issuer \"local\": issued a certificate for \"localhost\"", 2);
    assert_eq!(ask_as(&site, "localhost", tls, Some("root.crt")), (0, "served".into()));
    running.quit();
    site.assert_no_alerts();
    for (names, rows, says) in [
        ("www.example.com", "", "the local authority \"local\" cannot issue for \"www.example.com\""),
        ("localhost", "local_authority;", "\"uri\" and \"local_authority\" exclude each other in issuer \"public\""),
        ("localhost", "fallback;", "invalid number of arguments in \"fallback\" directive"),
    ] {
        let said = test(&site, &conf(names, rows));
        assert!(said.contains(says), "{says}: {said}");
    }
    for (row, says) in [
        ("local_authority lifetime=1s;", "invalid parameter \"lifetime=1s\""),
        ("local_authority; challenge dns-01;", "\"challenge\" has no meaning beside \"local_authority\""),
        ("state_path off;", "\"uri\" is missing in issuer \"a\""),
    ] {
        let said = test(&site, &format!("http {{ acme_issuer a {{ {row} }} }}"));
        assert!(said.contains(says), "{says}: {said}");
    }
}

/// The operator's URL: permits names that begin with "ok". Returns its port, and the targets that it was asked for.
fn gatekeeper() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("an address").port();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let notes = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            let _ = reader.read_line(&mut line);
            let mut head = String::from("x");
            while !head.trim().is_empty() {
                head.clear();
                let _ = reader.read_line(&mut head);
            }
            let target = line.split(' ').nth(1).unwrap_or_default().to_string();
            let status = if target.contains("domain=ok") { "200 OK" } else { "403 Forbidden" };
            notes.lock().expect("not poisoned").push(target);
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = reader.into_inner().write_all(answer.as_bytes());
        }
    });
    (port, asked)
}

fn on_demand(authority: u16, gatekeeper: u16, tls: u16, plain: u16, state: &str, more: &str) -> String {
    format!(
        "http {{ resolver 127.0.0.1:1;
            acme_issuer test {{ uri https://127.0.0.1:{authority}/dir; ssl_trusted_certificate pebble.crt; state_path {state};
                challenge tls-alpn-01; accept_terms_of_service; }}
            server {{ listen 127.0.0.1:{plain}; location / {{ return 200 plain; }} }}
            server {{ listen 127.0.0.1:{tls} ssl; server_name _;
                acme_on_demand test ask=http://127.0.0.1:{gatekeeper}/check?x=1 {more};
                ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
                location / {{ return 200 \"served $ssl_server_name\"; }} }} }}"
    )
}

#[test]
fn names_on_demand_are_ordered_while_their_handshake_waits() {
    let (tls, plain, dns) = (free_port(), free_port(), free_port());
    let Some(_names) = Names::start(dns) else { return };
    let site = Site::new("worker_processes 1;\ndaemon off;", "");
    let Some(authority) = Authority::start_with(&site, free_port(), tls, Some(dns)) else { return };
    authority.root(&site);
    let (gate, asked) = gatekeeper();
    let state = site.path("state").display().to_string();
    let main = "worker_processes 1;\ndaemon off;";
    site.configure(main, &on_demand(authority.port, gate, tls, plain, &state, "rate=100r/m"));
    let running = site.start();
    // Ten handshakes at once: one question, one order. The only worker thread goes on serving.
    std::thread::scope(|scope| {
        let handshakes: Vec<_> =
            (0..10).map(|_| scope.spawn(|| ask_as(&site, "ok1.demand.test", tls, Some("conf/root.crt")))).collect();
        wait("the question", || if asked.lock().expect("not poisoned").is_empty() { Err("none") } else { Ok(()) });
        assert_eq!(support::client::get(plain).expect("served").0, 200);
        for handshake in handshakes {
            assert_eq!(handshake.join().expect("ended"), (0, "served ok1.demand.test".into()));
        }
    });
    let questions = || asked.lock().expect("not poisoned").clone();
    assert_eq!(questions(), ["/check?x=1&domain=ok1.demand.test"]);
    let orders = |name: &str| site.log().matches(&format!("issued a certificate for \"{name}\"")).count();
    assert_eq!(orders("ok1.demand.test"), 1);
    // Later handshakes need neither.
    assert_eq!(ask_as(&site, "OK1.demand.test", tls, None), (0, "served ok1.demand.test".into()));
    assert_eq!(questions().len(), 1);
    // A refused name: an alert, and one question for all its handshakes.
    for _ in 0..3 {
        assert_eq!(ask_as(&site, "bad.demand.test", tls, None).0, 35);
    }
    assert_eq!(questions().len(), 2);
    // Names that no authority would take are not asked for; without a name there is no certificate.
    for name in ["single", "under_score.test", "a..test", "*.ok.test"] {
        let hello = Command::new("openssl")
            .args(["s_client", "-connect", &format!("127.0.0.1:{tls}"), "-servername", name])
            .stdin(std::process::Stdio::null())
            .output()
            .expect("openssl");
        assert!(!hello.status.success(), "{name}");
    }
    assert_ne!(ask_as(&site, "127.0.0.1", tls, None).0, 0);
    assert_eq!(questions().len(), 2);
    let rows = listed(&site);
    assert_eq!(
        (&rows[0]["names"][0], &rows[0]["acme"]["state"]),
        (&"ok1.demand.test".into(), &"issued".into()),
        "{rows}"
    );
    // A reload keeps the certificate. After a restart it comes from its file, and the question is asked again.
    running.signal("HUP");
    assert_eq!(ask_as(&site, "ok1.demand.test", tls, None).0, 0);
    running.quit();
    drop(authority);
    let running = site.start();
    assert_eq!(ask_as(&site, "ok1.demand.test", tls, Some("conf/root.crt")), (0, "served ok1.demand.test".into()));
    assert_eq!((questions().len(), orders("ok1.demand.test")), (3, 1));
    // The authority is down: the handshake fails when the order has, and further ones at once.
    assert_eq!(ask_as(&site, "ok2.demand.test", tls, None).0, 35);
    assert_eq!(ask_as(&site, "ok2.demand.test", tls, None).0, 35);
    assert!(site.log().contains("while ordering a certificate for \"ok2.demand.test\""), "{}", site.log());
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn orders_on_demand_are_bounded() {
    let (tls, plain, dns) = (free_port(), free_port(), free_port());
    let Some(_names) = Names::start(dns) else { return };
    let site = Site::new("daemon off;", "");
    let Some(authority) = Authority::start_with(&site, free_port(), tls, Some(dns)) else { return };
    let (gate, asked) = gatekeeper();
    let state = site.path("state").display().to_string();
    site.configure("daemon off;", &on_demand(authority.port, gate, tls, plain, &state, "rate=2r/m max=1"));
    let running = site.start();
    for name in ["ok1.bound.test", "ok2.bound.test"] {
        assert_eq!(ask_as(&site, name, tls, None).0, 0, "{name}");
    }
    assert_eq!(ask_as(&site, "ok3.bound.test", tls, None).0, 35);
    site.wait_for_log("no certificate on demand for \"ok3.bound.test\": the rate is exceeded", 1);
    // One name is kept in memory; the other's certificate comes from its file, without an order.
    assert_eq!(ask_as(&site, "ok1.bound.test", tls, None).0, 0);
    assert_eq!(site.log().matches("issued a certificate").count(), 2);
    assert_eq!(asked.lock().expect("not poisoned").len(), 4);
    running.quit();
    site.assert_no_alerts();
    // Without the operator's URL there is no certificate, and the log tells why.
    let state = site.path("state-2").display().to_string();
    let absent = free_port();
    site.configure("daemon off;", &on_demand(authority.port, absent, tls, plain, &state, ""));
    let running = site.start();
    assert_eq!(ask_as(&site, "ok4.bound.test", tls, None).0, 35);
    site.wait_for_log("while asking about the name \"ok4.bound.test\" on demand", 1);
    running.quit();
    for (more, says) in [
        ("rate=x", "invalid parameter \"rate=x\""),
        ("max=0", "invalid parameter \"max=0\""),
        ("key=rsa:1", "unsupported key size \"1\""),
        ("other", "invalid parameter \"other\""),
    ] {
        let said = test(&site, &on_demand(1, 1, tls, plain, &state, more));
        assert!(said.contains(says), "{says}: {said}");
    }
    let bare = on_demand(1, 1, tls, plain, &state, "").replace("ask=http://127.0.0.1:1/check?x=1", "max=5");
    assert!(test(&site, &bare).contains("must have \"ask\" parameter"));
}

/// A server in front of the authority that answers with the certificate of another key.
#[test]
fn certificates_of_authorities_that_lie_are_not_used() {
    let (http, tls, liar) = (free_port(), free_port(), free_port());
    let site = Site::new("daemon off;", "");
    let Some(authority) = Authority::start(&site, http, tls) else { return };
    authority.root(&site);
    let lie = site.read("conf/pebble.crt");
    let state = site.path("state").display().to_string();
    let conf = |lie: &str| {
        format!(
            "http {{ resolver 127.0.0.1:1;
                server {{ listen 127.0.0.1:{liar} ssl; ssl_certificate pebble.crt; ssl_certificate_key pebble.key;
                    location / {{ proxy_pass https://127.0.0.1:{}; proxy_set_header Host $http_host; }} {lie} }}
                acme_issuer test {{ uri https://127.0.0.1:{liar}/dir; ssl_trusted_certificate pebble.crt; state_path {state};
                    accept_terms_of_service; }}
                server {{ listen 127.0.0.1:{http}; }}
                server {{ listen 127.0.0.1:{tls} ssl; acme_certificate test 127.0.0.1;
                    ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
                    location / {{ return 200 served; }} }} }}",
            authority.port
        )
    };
    site.configure("daemon off;", &conf(""));
    let running = site.start();
    site.wait_for_log("issued a certificate for \"127.0.0.1\"", 1);
    site.configure("daemon off;", &conf(&format!("location /certZ/ {{ return 200 \"{lie}\"; }}")));
    running.signal("HUP");
    wait("the lie", || {
        let url = format!("https://127.0.0.1:{liar}/certZ/x");
        let output = Command::new("curl").args(["-sk", &url]).output().expect("curl");
        if text(&output.stdout) == lie { Ok(()) } else { Err(text(&output.stdout)) }
    });
    let prefix = site.dir.display().to_string();
    let asked = Command::new(support::BINARY).args(["certificates", "--renew-all", "-p", &prefix]).output();
    assert!(asked.expect("it runs").status.success());
    site.wait_for_log("the server sent an unusable certificate: key values mismatch while ordering", 1);
    assert_eq!(ask(&site, tls), "0 served", "the old certificate");
    running.quit();
    let running = site.start();
    assert_eq!(ask(&site, tls), "0 served");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn faults_of_authorities_are_survived() {
    let (http, tls) = (free_port(), free_port());
    let site = Site::new("daemon off;", "");
    // Half of the nonces are refused; two more roots.
    let faults = [("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "50"), ("PEBBLE_ALTERNATE_ROOTS", "2")];
    let Some(authority) = Authority::start_on(&site, free_port(), http, tls, None, &faults) else { return };
    let root = |number: usize| {
        let url = format!("https://127.0.0.1:{}/roots/{number}", authority.management);
        text(&Command::new("curl").args(["-sk", &url]).output().expect("curl").stdout)
    };
    site.write("conf/root.crt", &root(2));
    let shown = Command::new("openssl")
        .args(["x509", "-noout", "-subject", "-nameopt", "multiline", "-in"])
        .arg(site.path("conf/root.crt"))
        .output()
        .expect("openssl");
    let subject = text(&shown.stdout);
    let name = subject.lines().find_map(|line| line.trim().strip_prefix("commonName")).expect("a name");
    let name = name.trim().trim_start_matches('=').trim();
    let state = site.path("state").display().to_string();
    site.configure(
        "daemon off;",
        &format!(
            "http {{ resolver 127.0.0.1:1;
                acme_issuer test {{ uri https://127.0.0.1:{}/dir; ssl_trusted_certificate pebble.crt; state_path {state};
                    accept_terms_of_service; preferred_chain \"{name}\"; }}
                server {{ listen 127.0.0.1:{http}; }}
                server {{ listen 127.0.0.1:{tls} ssl; acme_certificate test 127.0.0.1;
                    ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
                    location / {{ return 200 served; }} }} }}",
            authority.port
        ),
    );
    let running = site.start();
    wait("the certificate of the third root", || match ask(&site, tls).as_str() {
        "0 served" => Ok(()),
        said => Err(format!("{said} {}", site.log())),
    });
    running.quit();
    site.assert_no_alerts();
}

/// A hundred certificates, or as many as `TIDEGATE_ACME_NAMES` says: all are ordered once, several at a time, and stored.
#[test]
fn many_certificates_are_ordered_at_a_time() {
    let count = std::env::var("TIDEGATE_ACME_NAMES").ok().and_then(|text| text.parse().ok()).unwrap_or(100_usize);
    let (tls, dns, http) = (free_port(), free_port(), free_port());
    let Some(_names) = Names::start(dns) else { return };
    let site = Site::new("daemon off;", "");
    let Some(authority) = Authority::start_on(&site, free_port(), http, tls, Some(dns), &FAULTS) else { return };
    authority.root(&site);
    let state = site.path("state").display().to_string();
    let mut servers = String::new();
    for n in 0..count {
        servers.push_str(&format!(
            "server {{ listen 127.0.0.1:{tls} ssl; server_name n{n}.many.test; acme_certificate test;
                ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key; return 200 n{n}; }}\n"
        ));
    }
    site.configure(
        "daemon off;",
        &format!(
            "http {{ resolver 127.0.0.1:1; server_names_hash_bucket_size 128;
                acme_issuer test {{ uri https://127.0.0.1:{}/dir; ssl_trusted_certificate pebble.crt; state_path {state};
                    accept_terms_of_service; }}
                server {{ listen 127.0.0.1:{http}; }}
                {servers} }}",
            authority.port
        ),
    );
    let begun = std::time::Instant::now();
    let running = site.start();
    let mut patience = count / 20 + 10;
    loop {
        let log = site.log();
        let issued = log.matches("issued a certificate for").count();
        if issued >= count {
            break;
        }
        // Progress, not speed: each look waits for some more.
        let wanted = (issued + 20).min(count);
        wait("more certificates", || {
            let issued = site.log().matches("issued a certificate for").count();
            if issued >= wanted { Ok(()) } else { Err(format!("{issued} of {count}")) }
        });
        patience -= 1;
        assert!(patience > 0, "{log}");
    }
    eprintln!("{count} certificates in {:.1} s", begun.elapsed().as_secs_f32());
    for n in [0, count / 2, count - 1] {
        let name = format!("n{n}.many.test");
        assert_eq!(ask_as(&site, &name, tls, Some("conf/root.crt")), (0, format!("n{n}")));
        assert_eq!(site.log().matches(&format!("issued a certificate for \"{name}\"")).count(), 1);
    }
    let files = std::fs::read_dir(site.path("state")).expect("the state").flatten();
    let stored = files.filter(|file| file.file_name().to_string_lossy().ends_with(".crt")).count();
    assert!(stored >= count - 8, "{stored}");
    running.quit();
    // A restart orders nothing.
    let running = site.start();
    assert_eq!(ask_as(&site, "n1.many.test", tls, Some("conf/root.crt")), (0, "n1".into()));
    assert_eq!(site.log().matches("issued a certificate for").count(), count);
    running.quit();
    site.assert_no_alerts();
}
