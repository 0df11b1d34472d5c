//! Client certificates beside the checks of `satisfy`: every combination in this server and in nginx.

use crate::support;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use support::{Site, free_port, text, wait};

const NGINX: &str = "/usr/sbin/nginx";
const MODES: [&str; 4] = ["off", "on", "optional", "optional_no_ca"];
const CLIENTS: [Option<&str>; 3] = [None, Some("known"), Some("stranger")];

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes an authority's certificate, and one with its key that the authority has issued to a client.
pub(super) fn authority(site: &Site, authority: &str, client: &str) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, authority);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate().expect("a key");
    site.write(&format!("conf/{authority}.crt"), &params.clone().self_signed(&key).expect("signed").pem());
    let own = KeyPair::generate().expect("a key");
    let mut leaf = CertificateParams::new(vec!["localhost".to_string()]).expect("a name");
    leaf.distinguished_name.push(DnType::CommonName, client);
    let issuer = Issuer::from_params(&params, &key);
    site.write(&format!("conf/{client}.crt"), &leaf.signed_by(&own, &issuer).expect("signed").pem());
    site.write(&format!("conf/{client}.key"), &own.serialize_pem());
}

/// A server for each mode of verification, and in it a location for each combination of rules.
fn http(ports: &[u16; 4]) -> String {
    let mut locations = String::from(
        "location = /certificate { internal; if ($ssl_client_verify = SUCCESS) { return 204; } return 403; }\n",
    );
    for satisfy in ["any", "all"] {
        for (access, rule) in [("in", "allow all;"), ("out", "deny all;"), ("none", "")] {
            for (basic, check) in [("basic", "auth_basic b; auth_basic_user_file passwords;"), ("open", "")] {
                for (by, request) in [("asked", "auth_request /certificate;"), ("not", "")] {
                    locations.push_str(&format!(
                        "location /{satisfy}/{access}/{basic}/{by} {{ satisfy {satisfy}; {rule} {check} {request}
                            alias page; }}\n"
                    ));
                }
            }
        }
    }
    let servers: String = MODES
        .iter()
        .zip(ports)
        .map(|(mode, port)| {
            format!(
                "server {{ listen 127.0.0.1:{port} ssl; ssl_verify_client {mode};
                    ssl_client_certificate authority.crt; ssl_certificate known.crt; ssl_certificate_key known.key;
                    {locations} }}\n"
            )
        })
        .collect();
    format!("http {{ access_log off; {servers} }}")
}

/// Returns the statuses of all paths.
fn ask(site: &Site, port: u16, client: Option<&str>, password: &str, paths: &[String]) -> Vec<String> {
    let mut curl = Command::new("curl");
    curl.args(["-sk", "-w", "%{http_code}\n", "-u", &format!("joe:{password}")]);
    if let Some(client) = client {
        let file = |end: &str| site.path(&format!("conf/{client}.{end}"));
        curl.arg("--cert").arg(file("crt")).arg("--key").arg(file("key"));
    }
    for path in paths {
        curl.args(["-o", "/dev/null", &format!("https://127.0.0.1:{port}{path}")]);
    }
    text(&curl.output().expect("curl").stdout).lines().map(str::to_string).collect()
}

fn paths() -> Vec<String> {
    let mut all = Vec::new();
    for satisfy in ["any", "all"] {
        for access in ["in", "out", "none"] {
            for rest in ["basic/asked", "basic/not", "open/asked", "open/not"] {
                all.push(format!("/{satisfy}/{access}/{rest}"));
            }
        }
    }
    all
}

/// `ssl_verify_client` decides before the access phase: a certificate neither satisfies a location by itself nor is its absence forgiven.
/// `auth_request` makes it one of the checks.
#[test]
fn client_certificates_count_through_auth_request_alone() {
    let ports = [(); 4].map(|()| free_port());
    let main = "worker_processes 1;\ndaemon off;";
    let site = Site::new(main, &http(&ports));
    authority(&site, "authority", "known");
    authority(&site, "other", "stranger");
    site.write("conf/passwords", "joe:{PLAIN}secret\n");
    site.write("page", "page");
    site.write("html/page", "page");
    let running = site.start();
    let theirs = [(); 4].map(|()| free_port());
    let nginx = std::path::Path::new(NGINX).exists().then(|| {
        let main = format!("{main} master_process off; pid logs/other.pid; error_log logs/other.log; events {{ }}");
        site.write("conf/other.conf", &format!("{main}\n{}", http(&theirs)));
        let nginx =
            Command::new(NGINX).arg("-p").arg(&site.dir).args(["-c", "conf/other.conf"]).stderr(Stdio::null()).spawn();
        let nginx = Killed(nginx.expect("nginx runs"));
        wait("nginx", || TcpStream::connect(("127.0.0.1", theirs[0])).map_err(|e| e.to_string()));
        nginx
    });
    if nginx.is_none() {
        testkit::missing_peer("there is no nginx here to compare with");
    }
    let (paths, mut compared) = (paths(), 0);
    for (index, mode) in MODES.iter().enumerate() {
        for client in CLIENTS {
            for password in ["secret", "wrong"] {
                let ours = ask(&site, ports[index], client, password, &paths);
                assert_eq!(ours.len(), paths.len());
                // 495 and 496, which a client sees as 400.
                let is_refused = matches!((*mode, client), ("on" | "optional", Some("stranger")) | ("on", None));
                for (path, status) in paths.iter().zip(&ours) {
                    let wanted = if is_refused { "400" } else { expected(mode, client, password, path) };
                    assert_eq!(status, wanted, "ssl_verify_client {mode}, {client:?}, {password}, {path}");
                }
                if nginx.is_some() {
                    let theirs = ask(&site, theirs[index], client, password, &paths);
                    assert_eq!(ours, theirs, "nginx: ssl_verify_client {mode}, {client:?}, {password}: {paths:?}");
                    compared += ours.len();
                }
            }
        }
    }
    eprintln!("{compared} answers compared with nginx");
    running.quit();
    site.assert_no_alerts();
}

/// Returns the status by the rules of `satisfy`.
fn expected(mode: &str, client: Option<&str>, password: &str, path: &str) -> &'static str {
    let has = |word: &str| path.split('/').any(|part| part == word);
    let mut checks = Vec::new();
    if !has("none") {
        checks.push(if has("in") { None } else { Some("403") });
    }
    if has("basic") {
        checks.push(if password == "secret" { None } else { Some("401") });
    }
    if has("asked") {
        let is_known = mode != "off" && client == Some("known");
        checks.push(if is_known { None } else { Some("403") });
    }
    let failed: Vec<&str> = checks.iter().copied().flatten().collect();
    let is_any = has("any");
    if failed.is_empty() || is_any && failed.len() < checks.len() {
        return "200";
    }
    // A challenge is kept for clients that none of the checks has admitted.
    if is_any && failed.contains(&"401") { "401" } else { failed[0] }
}
