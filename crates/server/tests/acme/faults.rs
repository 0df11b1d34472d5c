//! Orders beside faults: authorities that answer without end or measure, folders that cannot be written, keys that are damaged. The
//! authorities are locations of the server under test.

use crate::support;

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use support::pebble::{Authority, ask};
use support::{Site, free_port, text, wait};

fn listed(site: &Site) -> serde_json::Value {
    let mut command = Command::new(support::BINARY);
    let output = command.args(["certificates", "--json", "-p", &site.dir.display().to_string()]).output();
    serde_json::from_slice(&output.expect("it runs").stdout).expect("JSON")
}

#[test]
fn responses_of_authorities_are_bounded_and_checked() {
    let (port, secure) = (free_port(), free_port());
    let site = Site::new("daemon off;", "");
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).expect("a certificate");
    site.write("conf/own.crt", &made.cert.pem());
    site.write("conf/own.key", &made.signing_key.serialize_pem());
    site.write("html/huge", &"x".repeat(2 << 20));
    site.write("html/nested", &format!("{{\"x\":{}", "[".repeat(500_000)));
    let url = format!("http://127.0.0.1:{port}");
    let directory = |of: &str| {
        format!(
            "location = /{of} {{ return 200 '{{\"newNonce\":\"{url}/{of}/nonce\",\"newAccount\":\"{url}/{of}/account\",\"newOrder\":\"{url}/{of}/order\"}}'; }}"
        )
    };
    let account = |of: &str| {
        format!(
            "location = /{of}/account {{ add_header Location {url}/{of}/1; return 201 '{{\"status\":\"valid\"}}'; }}"
        )
    };
    let order = |of: &str, authorizations: &str| {
        format!(
            "location = /{of}/order {{ add_header Location {url}/{of}/2;
                return 201 '{{\"status\":\"pending\",\"finalize\":\"{url}/{of}/3\",\"authorizations\":[{authorizations}]}}'; }}"
        )
    };
    let silent = format!("{} location = /silent/nonce {{ return 200; }}", directory("silent"));
    let silent = silent.replace("return", "add_header_inherit off; return");
    let many = vec!["\"x\""; 1001].join(",");
    let cases: Vec<(&str, String, &str)> = vec![
        ("huge", String::new(), "too large"),
        ("nested", String::new(), "invalid JSON of the server"),
        ("endless", "location = /endless { return 302 /endless; }".into(), "too many redirects"),
        ("downgrade", format!("location = /downgrade {{ return 302 {url}/silent; }}"), "a redirect from https to http"),
        ("nowhere", "location = /nowhere { return 302 gopher://x/; }".into(), "invalid redirect"),
        ("silent", silent, "sends no nonce"),
        (
            "foreign",
            format!(
                "{} {} {} location = /foreign/authz {{ return 200 '{{\"status\":\"pending\",
                    \"identifier\":{{\"type\":\"dns\",\"value\":\"victim.test\"}},\"challenges\":[{{\"type\":\"http-01\",
                    \"url\":\"{url}/foreign/c\",\"token\":\"t\"}}]}}'; }}",
                directory("foreign"),
                account("foreign"),
                order("foreign", &format!("\"{url}/foreign/authz\""))
            ),
            "an authorization of \"victim.test\", which is not ordered",
        ),
        (
            "many",
            format!("{} {} {}", directory("many"), account("many"), order("many", &many)),
            "too many authorizations",
        ),
        (
            "broken",
            format!(
                "{} location = /broken/account {{ return 403 '{{\"type\":\"x\\ny\",\"detail\":\"a\\u001b[31m\\nb\"}}'; }}",
                directory("broken")
            ),
            "",
        ),
        (
            "stale",
            format!(
                "{} location = /stale/account {{
                    return 400 '{{\"type\":\"urn:ietf:params:acme:error:badNonce\",\"detail\":\"once more\"}}'; }}",
                directory("stale")
            ),
            "once more",
        ),
    ];
    let issuers: Vec<String> = cases
        .iter()
        .map(|(name, ..)| {
            let url = if *name == "downgrade" { format!("https://127.0.0.1:{secure}") } else { url.clone() };
            format!(
                "acme_issuer {name} {{ uri {url}/{name}; state_path off; accept_terms_of_service; ssl_trusted_certificate own.crt; }}"
            )
        })
        .collect();
    let servers: Vec<String> = cases
        .iter()
        .map(|(name, ..)| {
            format!(
                "server {{ listen 127.0.0.1:{} ssl; server_name {name}.test; acme_certificate {name};
                    ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key; }}",
                free_port()
            )
        })
        .collect();
    let locations: Vec<&str> = cases.iter().map(|(_, locations, _)| locations.as_str()).collect();
    site.configure(
        "daemon off;",
        &format!(
            "http {{ resolver 127.0.0.1:1; {} {}
                server {{ listen 127.0.0.1:{port}; listen 127.0.0.1:{secure} ssl;
                    ssl_certificate own.crt; ssl_certificate_key own.key; add_header_inherit merge; add_header Replay-Nonce n always; {} }} }}",
            issuers.join("\n"),
            servers.join("\n"),
            locations.join("\n")
        ),
    );
    let running = site.start();
    for (name, _, says) in &cases {
        let rest = format!("while ordering a certificate for \"{name}.test\" of acme issuer \"{name}\", next try in");
        site.wait_for_log(&rest, 1);
        let log = site.log();
        let line = log.lines().find(|line| line.contains(&rest)).unwrap_or_default();
        assert!(line.contains(says), "{name}: {line}");
        assert!(line.len() < 4096 && !line.contains('\u{1b}'), "{name}: {line}");
    }
    running.quit();
    site.assert_no_alerts();
}

/// A client of Angie and an issuer of nginx's module, with a state each.
fn conf(authority: u16, http: u16, tls: u16, state: &str) -> String {
    format!(
        "http {{ resolver 127.0.0.1:1;
            acme_issuer test {{ uri https://127.0.0.1:{authority}/dir; ssl_trusted_certificate pebble.crt;
                state_path {state}; accept_terms_of_service; }}
            server {{ listen 127.0.0.1:{http}; }}
            server {{ listen 127.0.0.1:{tls} ssl; acme_certificate test 127.0.0.1;
                ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
                location / {{ return 200 served; }} location /api/ {{ api write=on; }} }} }}"
    )
}

#[test]
fn a_damaged_state_is_named_and_mended() {
    let (http, tls) = (free_port(), free_port());
    let site = Site::new("daemon off;", "");
    let Some(authority) = Authority::start(&site, http, tls) else { return };
    authority.root(&site);
    let state = site.path("state").display().to_string();
    site.configure("daemon off;", &conf(authority.port, http, tls, &state));
    // A lock that cannot be opened, as on a file system that is read only: nothing is ordered, as every start would order again.
    std::fs::create_dir_all(site.path("state/lock")).expect("a folder");
    std::fs::set_permissions(site.path("state"), std::fs::Permissions::from_mode(0o777)).expect("writable");
    let running = site.start();
    site.wait_for_log("[warn]", 1);
    let refused = format!("the state cannot be stored: {state}: ");
    site.wait_for_log(&refused, 1);
    let row = wait("the state", || {
        let row = listed(&site)[0].clone();
        if row["acme"]["last_error"].is_string() { Ok(row) } else { Err(row.to_string()) }
    });
    assert!(row["acme"]["last_error"].as_str().is_some_and(|why| why.contains(&refused)), "{row}");
    std::fs::remove_dir(site.path("state/lock")).expect("removed");
    site.wait_for_log("issued a certificate for \"127.0.0.1\"", 1);
    assert_eq!(ask(&site, tls), "0 served");
    running.quit();
    // A certificate that cannot be stored is used, and stored as soon as there is room.
    let file = row["file"].as_str().expect("a file").to_string();
    let running = site.start();
    // Once it has the certificate: without one it would order at its start, too, and store that order's.
    assert_eq!(ask(&site, tls), "0 served");
    std::fs::remove_file(&file).expect("removed");
    std::fs::create_dir(&file).expect("a folder");
    let prefix = site.dir.display().to_string();
    let asked = Command::new(support::BINARY).args(["certificates", "--renew-all", "-p", &prefix]).output();
    assert!(asked.expect("it runs").status.success());
    site.wait_for_log(&format!("the certificate for \"127.0.0.1\" is not stored: {state}: "), 1);
    assert_eq!(ask(&site, tls), "0 served");
    std::fs::remove_dir(&file).expect("removed");
    site.wait_for_log("the certificate for \"127.0.0.1\" is stored now", 1);
    assert!(std::fs::read_to_string(&file).expect("stored").starts_with("-----BEGIN CERTIFICATE-----"));
    running.quit();
    // A key that was being written when the power went: made again. One that is damaged: named.
    for (key, says) in [("", "issued a certificate"), ("no key", "account.key: no private key; remove it")] {
        site.write("state/account.key", key);
        let before = site.log().matches(says).count();
        let running = site.start();
        assert_eq!(ask(&site, tls), "0 served", "the certificate is unaffected");
        let prefix = site.dir.display().to_string();
        let asked = Command::new(support::BINARY).args(["certificates", "--renew-all", "-p", &prefix]).output();
        assert!(asked.expect("it runs").status.success());
        site.wait_for_log(says, before + 1);
        running.quit();
    }
    // A certificate without its end, and a key of another: the placeholder serves until there is a new one.
    std::fs::remove_file(site.path("state/account.key")).expect("removed");
    let stored = |ending: &str| {
        let all = std::fs::read_dir(site.path("state")).expect("the state").flatten().map(|file| file.path());
        all.filter(|path| path.to_string_lossy().ends_with(ending)).collect::<Vec<_>>().remove(0)
    };
    let pem = std::fs::read_to_string(stored(".crt")).expect("a certificate");
    std::fs::write(stored(".crt"), &pem[..pem.len() / 3]).expect("cut");
    let before = site.log().matches("issued a certificate").count();
    let running = site.start();
    site.wait_for_log("issued a certificate", before + 1);
    assert_eq!(ask(&site, tls), "0 served");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn the_api_knows_orders_that_nothing_stores() {
    let (http, tls) = (free_port(), free_port());
    let site = Site::new("daemon off;", "");
    let Some(authority) = Authority::start(&site, http, tls) else { return };
    authority.root(&site);
    site.configure("daemon off;", &conf(authority.port, http, tls, "off"));
    let running = site.start();
    site.wait_for_log("issued a certificate for \"127.0.0.1\"", 1);
    let shown = |path: &str| {
        let url = format!("https://127.0.0.1:{tls}{path}");
        let output = Command::new("curl").args(["-s", "--cacert"]).arg(site.path("conf/root.crt")).arg(&url).output();
        let body = text(&output.expect("curl").stdout);
        serde_json::from_str::<serde_json::Value>(&body).unwrap_or_else(|e| panic!("{e}: {body}"))
    };
    let rows = shown("/api/tidegate/1/certificates");
    let acme = &rows[0]["acme"];
    assert_eq!((&acme["state"], &acme["failures"], &acme["served_by"]), (&"issued".into(), &0.into(), &"test".into()));
    assert_eq!(acme["uri"], format!("https://127.0.0.1:{}/dir", authority.port));
    let (next, end) = (acme["next_order_at"].as_i64(), rows[0]["not_after"].as_i64());
    assert!(next > rows[0]["not_before"].as_i64() && next < end, "{rows}");
    assert!(acme["last_error"].is_null() && acme["last_error_at"].is_null(), "{rows}");
    running.quit();
    site.assert_no_alerts();
}

/// A local certificate is made at the start; it is used and reported without room for it, and stored later.
#[test]
fn a_local_certificate_is_stored_when_there_is_room() {
    let tls = free_port();
    let site = Site::new("daemon off;", "");
    let state = site.path("state").display().to_string();
    site.configure(
        "daemon off;",
        &format!(
            "http {{ acme_issuer local {{ local_authority; state_path {state}; }}
                server {{ listen 127.0.0.1:{tls} ssl; acme_certificate local 127.0.0.1;
                    ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key; }} }}"
        ),
    );
    site.start().quit();
    let file = listed(&site)[0]["file"].as_str().expect("a file").to_string();
    std::fs::remove_file(&file).expect("stored");
    std::fs::create_dir(&file).expect("a folder");
    let running = site.start();
    site.wait_for_log(&format!("the certificate for \"127.0.0.1\" is not stored: {state} cannot be written"), 1);
    std::fs::remove_dir(&file).expect("removed");
    site.wait_for_log("the certificate for \"127.0.0.1\" is stored now", 1);
    assert!(std::fs::read_to_string(&file).expect("stored").starts_with("-----BEGIN CERTIFICATE-----"));
    running.quit();
    site.assert_no_alerts();
}
