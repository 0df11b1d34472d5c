//! pebble, the small authority of Let's Encrypt's developers, and its name server (Debian's package).

use super::{Site, free_port, text, wait};
use std::process::{Child, Command, Stdio};

/// Validates over the given ports instead of 80 and 443. Ends on drop.
pub struct Authority {
    child: Child,
    pub port: u16,
    pub management: u16,
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Authority {
    /// `None` where pebble is not installed.
    pub fn start(site: &Site, http: u16, tls: u16) -> Option<Authority> {
        Authority::start_with(site, http, tls, None)
    }
    /// `dns`: port of the name server that it asks.
    pub fn start_with(site: &Site, http: u16, tls: u16, dns: Option<u16>) -> Option<Authority> {
        let faults = [("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "30")];
        Authority::start_on(site, free_port(), http, tls, dns, &faults)
    }
    /// An authority whose certificates name an OCSP responder.
    pub fn start_with_ocsp(site: &Site, tls: u16, dns: u16, responder: &str) -> Option<Authority> {
        Authority::start_as(site, free_port(), free_port(), tls, Some(dns), &[("PEBBLE_VA_NOSLEEP", "1")], responder)
    }
    /// `faults`: pebble's environment.
    pub fn start_on(
        site: &Site,
        port: u16,
        http: u16,
        tls: u16,
        dns: Option<u16>,
        faults: &[(&str, &str)],
    ) -> Option<Authority> {
        Authority::start_as(site, port, http, tls, dns, faults, "")
    }
    fn start_as(
        site: &Site,
        port: u16,
        http: u16,
        tls: u16,
        dns: Option<u16>,
        faults: &[(&str, &str)],
        responder: &str,
    ) -> Option<Authority> {
        // Several authorities of a site have one certificate.
        if !site.path("conf/pebble.key").exists() {
            let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_string()]).expect("a certificate");
            site.write("conf/pebble.crt", &made.cert.pem());
            site.write("conf/pebble.key", &made.signing_key.serialize_pem());
        }
        let management = free_port();
        let path = |name: &str| site.path(name).display().to_string();
        let conf = serde_json::json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": path("conf/pebble.crt"),
            "privateKey": path("conf/pebble.key"),
            "httpPort": http,
            "tlsPort": tls,
            "ocspResponderURL": responder,
            "externalAccountBindingRequired": false,
        }});
        site.write("conf/pebble.json", &conf.to_string());
        let mut command = Command::new("pebble");
        if let Some(port) = dns {
            command.args(["-dnsserver", &format!("127.0.0.1:{port}")]);
        }
        let child = command
            .arg("-config")
            .arg(site.path("conf/pebble.json"))
            .envs(faults.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            testkit::missing_peer("pebble is not installed: no certificate is ordered");
            return None;
        };
        let authority = Authority { child, port, management };
        wait("pebble", || std::net::TcpStream::connect(("127.0.0.1", port)).map(drop));
        wait("pebble's management", || std::net::TcpStream::connect(("127.0.0.1", management)).map(drop));
        Some(authority)
    }

    /// Stores the root that issued certificates lead to.
    pub fn root(&self, site: &Site) {
        let url = format!("https://127.0.0.1:{}/roots/0", self.management);
        let output = Command::new("curl").args(["-sk", &url]).output().expect("curl");
        site.write("conf/root.crt", &text(&output.stdout));
    }
}

/// Trusts only the authority's root.
pub fn ask(site: &Site, port: u16) -> String {
    let url = format!("https://127.0.0.1:{port}/");
    let output = Command::new("curl").args(["-s", "--cacert"]).arg(site.path("conf/root.crt")).arg(&url).output();
    let output = output.expect("curl");
    format!("{} {}", output.status.code().unwrap_or(-1), text(&output.stdout).trim())
}

/// TXT records are set over HTTP. Ends on drop.
pub struct Names(Child, pub u16);

impl Drop for Names {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Names {
    /// Returns `None` if the program is not installed. The name of an option depends on its version.
    pub fn start(dns: u16) -> Option<Names> {
        let management = free_port();
        for option in ["-dns01", "-dnsserver"] {
            let command = Command::new("pebble-challtestsrv")
                .args(["-management", &format!("127.0.0.1:{management}"), option, &format!("127.0.0.1:{dns}")])
                .args([
                    "-http01",
                    "",
                    "-https01",
                    "",
                    "-tlsalpn01",
                    "",
                    "-defaultIPv6",
                    "",
                    "-defaultIPv4",
                    "127.0.0.1",
                ])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let Ok(child) = command else {
                testkit::missing_means("pebble-challtestsrv is not installed: nothing is proven by DNS");
                return None;
            };
            let mut names = Names(child, management);
            let ready = wait("the name server", || {
                if std::net::TcpStream::connect(("127.0.0.1", management)).is_ok() {
                    return Ok(true);
                }
                match names.0.try_wait() {
                    Ok(None) => Err("it starts"),
                    _ => Ok(false),
                }
            });
            if ready {
                return Some(names);
            }
        }
        panic!("pebble-challtestsrv knows neither option")
    }
}
