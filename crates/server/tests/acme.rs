//! Certificates from pebble, the small authority of Let's Encrypt's developers (Debian's package); skipped with words where it is
//! not installed.

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use support::{Site, free_port, text, wait};

/// An authority that asks the given ports instead of 80 and 443. Ends with its owner.
struct Authority {
    child: Child,
    port: u16,
    management: u16,
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Authority {
    /// `None` where pebble is not installed.
    fn start(site: &Site, http: u16, tls: u16) -> Option<Authority> {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_string()]).expect("a certificate");
        site.write("conf/pebble.crt", &made.cert.pem());
        site.write("conf/pebble.key", &made.signing_key.serialize_pem());
        let (port, management) = (free_port(), free_port());
        let path = |name: &str| site.path(name).display().to_string();
        let conf = serde_json::json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": path("conf/pebble.crt"),
            "privateKey": path("conf/pebble.key"),
            "httpPort": http,
            "tlsPort": tls,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
        }});
        site.write("conf/pebble.json", &conf.to_string());
        let child = Command::new("pebble")
            .arg("-config")
            .arg(site.path("conf/pebble.json"))
            .envs([("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "30")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            eprintln!("pebble is not installed: no certificate is ordered");
            return None;
        };
        let authority = Authority { child, port, management };
        wait("pebble", || std::net::TcpStream::connect(("127.0.0.1", port)).map(drop));
        wait("pebble's management", || std::net::TcpStream::connect(("127.0.0.1", management)).map(drop));
        Some(authority)
    }

    /// Stores the root that issued certificates lead to.
    fn root(&self, site: &Site) {
        let url = format!("https://127.0.0.1:{}/roots/0", self.management);
        let output = Command::new("curl").args(["-sk", &url]).output().expect("curl");
        site.write("conf/root.crt", &text(&output.stdout));
    }
}

/// Asks over TLS, trusting nothing but the authority's root.
fn ask(site: &Site, port: u16) -> String {
    let url = format!("https://127.0.0.1:{port}/");
    let output = Command::new("curl").args(["-s", "--cacert"]).arg(site.path("conf/root.crt")).arg(&url).output();
    let output = output.expect("curl");
    format!("{} {}", output.status.code().unwrap_or(-1), text(&output.stdout).trim())
}

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
