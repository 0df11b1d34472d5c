//! OCSP stapling of certificates by ACME: for ordered, renewed and demanded ones, with the `openssl` program as the responder.

use crate::support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use support::pebble::{Authority, Names};
use support::{Site, free_port, text, wait};

struct Responder {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    revokes: Arc<AtomicBool>,
}

fn openssl(arguments: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("openssl").args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then_some(output.stdout)
}

/// Decodes the last part of a request's URI.
fn decoded(target: &str) -> Vec<u8> {
    use base64::Engine as _;
    let text = target.trim_start_matches('/').replace("%2B", "+").replace("%2F", "/").replace("%3D", "=");
    base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default()
}

impl Responder {
    /// `folder` has `issuer.pem` and `issuer.key` once the authority runs.
    fn start(folder: std::path::PathBuf) -> Responder {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let responder = Responder { port, asked: Arc::default(), revokes: Arc::default() };
        let (asked, revokes) = (Arc::clone(&responder.asked), Arc::clone(&responder.revokes));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream);
                let mut first = String::new();
                let _ = reader.read_line(&mut first);
                let mut line = String::from("x");
                while !line.trim().is_empty() {
                    line.clear();
                    let _ = reader.read_line(&mut line);
                }
                let path = |name: &str| folder.join(name).display().to_string();
                let _ = std::fs::write(path("request"), decoded(first.split(' ').nth(1).unwrap_or_default()));
                let shown = openssl(&["ocsp", "-reqin", &path("request"), "-req_text"]).unwrap_or_default();
                let shown = text(&shown);
                let serial = shown.split("Serial Number: ").nth(1).and_then(|rest| rest.lines().next());
                let serial = serial.unwrap_or_default().trim().to_string();
                let state = match revokes.load(Ordering::SeqCst) {
                    true => "R\t401231235959Z\t250101000000Z",
                    false => "V\t401231235959Z\t",
                };
                let _ = std::fs::write(path("index"), format!("{state}\t{serial}\tunknown\t/CN=x\n"));
                let made = openssl(&[
                    "ocsp",
                    "-index",
                    &path("index"),
                    "-CA",
                    &path("issuer.pem"),
                    "-rsigner",
                    &path("issuer.pem"),
                    "-rkey",
                    &path("issuer.key"),
                    "-reqin",
                    &path("request"),
                    "-respout",
                    &path("response"),
                    "-ndays",
                    "1",
                ]);
                let body = made.and_then(|_| std::fs::read(path("response")).ok()).unwrap_or_default();
                asked.lock().expect("not poisoned").push(serial);
                let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = reader.into_inner().write_all(&[head.as_bytes(), &body].concat());
            }
        });
        responder
    }
    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("not poisoned").clone()
    }
}

/// Returns the serial number of the certificate that a server shows for a name, and the status that it staples.
fn shown(port: u16, name: &str) -> (String, Option<String>) {
    let at = format!("127.0.0.1:{port}");
    let said = Command::new("openssl")
        .args(["s_client", "-connect", &at, "-servername", name, "-status"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .expect("openssl");
    let said = text(&said.stdout);
    let status = said.split("Cert Status: ").nth(1).and_then(|rest| rest.lines().next()).map(str::to_string);
    let stapled = said.split("Serial Number: ").nth(1).and_then(|rest| rest.lines().next());
    // The response has certificates, too.
    let leaf = said.split("Server certificate").nth(1).unwrap_or_default();
    let mut x509 = Command::new("openssl")
        .args(["x509", "-noout", "-serial"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl");
    x509.stdin.take().expect("piped").write_all(leaf.as_bytes()).expect("written");
    let serial = text(&x509.wait_with_output().expect("openssl").stdout);
    let serial = serial.trim().trim_start_matches("serial=").to_string();
    assert!(stapled.is_none_or(|stapled| stapled.trim() == serial), "a response about another certificate: {said}");
    (serial, status)
}

fn stapled(port: u16, name: &str, other_than: &str) -> String {
    wait("a stapled response", || match shown(port, name) {
        (serial, Some(status)) if status == "good" && serial != other_than => Ok(serial),
        other => Err(format!("{other:?}")),
    })
}

#[test]
fn certificates_by_acme_have_their_status() {
    let (tls, dns, plain) = (free_port(), free_port(), free_port());
    let Some(_names) = Names::start(dns) else { return };
    let site = Site::new("daemon off;", "");
    let responder = Responder::start(site.dir.clone());
    let url = format!("http://127.0.0.1:{}/", responder.port);
    let Some(authority) = Authority::start_with_ocsp(&site, tls, dns, &url) else { return };
    for (path, name) in [("intermediates/0", "issuer.pem"), ("intermediate-keys/0", "issuer.key")] {
        let url = format!("https://127.0.0.1:{}/{path}", authority.management);
        let output = Command::new("curl").args(["-sk", &url]).output().expect("curl");
        site.write(name, &text(&output.stdout));
    }
    let state = site.path("state").display().to_string();
    let gate = "http://127.0.0.1:PORT/".replace("PORT", &plain.to_string());
    site.configure(
        "daemon off;",
        &format!(
            "http {{ resolver 127.0.0.1:1; ssl_stapling on; ssl_stapling_verify on; ssl_certificate_cache max=10;
            ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
            acme_issuer test {{ uri https://127.0.0.1:{}/dir; ssl_trusted_certificate pebble.crt; state_path {state};
                challenge tls-alpn-01; accept_terms_of_service; }}
            server {{ listen 127.0.0.1:{plain}; return 200; }}
            server {{ listen 127.0.0.1:{tls} ssl; server_name a.staple.test; acme_certificate test; }}
            server {{ listen 127.0.0.1:{tls} ssl default_server; server_name _; acme_on_demand test ask={gate} rate=100r/m; }} }}",
            authority.port
        ),
    );
    let running = site.start();
    site.wait_for_log("issued a certificate for \"a.staple.test\"", 1);
    let first = stapled(tls, "a.staple.test", "");
    assert_eq!(responder.asked(), std::slice::from_ref(&first), "later handshakes have the response");
    // A renewed certificate has its own response.
    let output = Command::new(support::BINARY)
        .args(["certificates", "--renew", "a.staple.test", "-p"])
        .arg(&site.dir)
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let second = stapled(tls, "a.staple.test", &first);
    assert_eq!(responder.asked(), [first, second.clone()]);
    // One on demand, too.
    let demanded = stapled(tls, "b.staple.test", "");
    assert_eq!(responder.asked()[1..], [second, demanded]);
    // A revoked certificate is told to the operator, and no response is shown.
    responder.revokes.store(true, Ordering::SeqCst);
    assert_eq!(shown(tls, "c.staple.test").1, None);
    site.wait_for_log("OCSP stapling: certificate status \"revoked\" in the OCSP response", 1);
    assert_eq!(shown(tls, "c.staple.test").1, None);
    assert_eq!(responder.asked().len(), 4);
    running.quit();
    site.assert_no_alerts();
}

/// Responders that hang delay only the certificates that name them.
#[test]
fn responders_that_hang_delay_no_other() {
    let (port, site) = (free_port(), Site::new("daemon off;", ""));
    site.certify();
    let responder = || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        listener.set_nonblocking(true).expect("set");
        let port = listener.local_addr().expect("an address").port();
        (listener, port)
    };
    let ((hanging, slow), (answering, quick)) = (responder(), responder());
    let server = |name: &str, responder: u16| {
        format!(
            "server {{ listen 127.0.0.1:{port} ssl; server_name {name}; ssl_stapling_responder http://127.0.0.1:{responder}/; }}"
        )
    };
    let mut servers: Vec<String> = (0..20).map(|n| server(&format!("n{n}.test"), slow)).collect();
    servers.push(server("last.test", quick));
    let servers = servers.join("\n");
    let certificate = "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_trusted_certificate a.crt;";
    site.configure("daemon off;", &format!("http {{ ssl_stapling on; {certificate} {servers} }}"));
    let running = site.start();
    // The queries of the others are accepted by the kernel, and never answered.
    drop(wait("a query", || answering.accept()));
    let asked = std::iter::from_fn(|| hanging.accept().ok()).count();
    assert!((1..20).contains(&asked), "{asked} queries of one responder at a time");
    running.quit();
    site.assert_no_alerts();
}
