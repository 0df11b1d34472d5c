//! TLS of whole processes, towards clients and towards servers, with a client of our own.

use crate::support;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::{Site, free_port, text, wait};
use tls::{ClientRules, ClientSettings, Target, TlsStream};

/// An authority that issues what a test needs.
struct Authority {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        Authority::called("the authority")
    }
    fn called(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key");
        let pem = params.clone().self_signed(&key).expect("signed").pem();
        Authority { params, key, pem }
    }
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_string()]).expect("a name");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = Issuer::from_params(&self.params, &self.key);
        (params.signed_by(&key, &issuer).expect("signed").pem(), key.serialize_pem())
    }
    /// Writes certificate and key to a site: `NAME.crt`, `NAME.key`.
    fn put(&self, site: &Site, name: &str) {
        let (certificate, key) = self.issue(name);
        site.write(&format!("conf/{name}.crt"), &certificate);
        site.write(&format!("conf/{name}.key"), &key);
    }
}

fn clock() -> tls::Clock {
    Arc::new(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
}

struct Client {
    rules: Arc<ClientRules>,
    port: u16,
}

impl Client {
    fn new(port: u16, authority: &Authority, certificate: Option<(String, String)>) -> Client {
        let trusted = tls::certs::parse_certificates(authority.pem.as_bytes()).expect("PEM");
        let certificate = certificate
            .map(|(c, k)| tls::certs::KeyPair::load(c.as_bytes(), k.as_bytes(), &[]).expect("a certificate"));
        let settings = ClientSettings { verify: true, trusted, certificate, ..ClientSettings::default() };
        Client { rules: ClientRules::build(&settings, &clock(), &mut Vec::new()).expect("rules"), port }
    }

    /// Sends one request on a new connection. Returns the complete response.
    fn get(&self, sni: &str, host: &str, uri: &str) -> Result<String, String> {
        self.send(sni, &format!("GET {uri} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    }
    /// Sends bytes on a new connection. Returns the complete response.
    fn send(&self, sni: &str, request: &str) -> Result<String, String> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).map_err(|e| e.to_string())?;
        socket.set_read_timeout(Some(Duration::from_secs(20))).map_err(|e| e.to_string())?;
        let target = Target { peer: "here".into(), name: sni.into(), send_name: true, alpn: Vec::new() };
        let mut stream = TlsStream::client(&self.rules, &target, None).map_err(|e| e.to_string())?;
        let (mut answer, mut sent) = (Vec::new(), false);
        loop {
            if !sent && !stream.is_handshaking() {
                stream.send(&[IoSlice::new(request.as_bytes())]).map_err(|e| e.to_string())?;
                sent = true;
            }
            socket.write_all(stream.output()).map_err(|e| e.to_string())?;
            stream.advance(stream.output().len());
            let mut bytes = vec![0; 16 * 1024];
            let n = socket.read(&mut bytes).map_err(|e| e.to_string())?;
            let received = stream.receive(&mut bytes[..n], &mut answer).map_err(|e| e.to_string())?;
            if received.closed || n == 0 {
                // Without a close_notify the end of the bytes is not the end of the response.
                assert!(received.closed || !sent, "no close_notify");
                return Ok(text(&answer));
            }
        }
    }
}

const MAIN: &str = "daemon off; worker_processes 2;";

#[test]
fn names_choose_servers_and_their_certificates() {
    let port = free_port();
    let authority = Authority::new();
    let site = Site::new(
        MAIN,
        &format!(
            "http {{ ssl_session_cache shared:S:1m;
            server {{ listen 127.0.0.1:{port} ssl; server_name a.example; ssl_certificate a.example.crt;
                ssl_certificate_key a.example.key;
                return 200 \"a $ssl_server_name $ssl_protocol $ssl_session_reused $https $ssl_client_verify\"; }}
            server {{ listen 127.0.0.1:{port} ssl; server_name *.b.example; ssl_certificate $ssl_server_name.crt;
                ssl_certificate_key $ssl_server_name.key; return 200 \"b $ssl_server_name $ssl_cipher $ssl_curve\"; }}
            server {{ listen 127.0.0.1:{port} ssl; server_name no.example; ssl_reject_handshake on; }} }}"
        ),
    );
    authority.put(&site, "a.example");
    authority.put(&site, "x.b.example");
    let running = site.start();
    let client = Client::new(port, &authority, None);
    let body = |sni: &str| wait("an answer", || client.get(sni, sni, "/"));
    assert!(body("a.example").ends_with("a a.example TLSv1.3 . on NONE"));
    assert!(body("a.example").ends_with("a a.example TLSv1.3 r on NONE"));
    // Sessions and the keys of tickets outlive a reload with their cache.
    running.signal("HUP");
    site.wait_for_log("configuration 1 is no longer used", 1);
    assert!(body("a.example").ends_with("a a.example TLSv1.3 r on NONE"));
    assert!(body("x.b.example").ends_with("b x.b.example TLS_AES_256_GCM_SHA384 X25519MLKEM768"));
    assert_eq!(
        client.get("no.example", "no.example", "/").expect_err("rejected"),
        "error:0A000458:SSL routines::tlsv1 unrecognized name:SSL alert number 112"
    );
    // The variable names a missing file.
    assert_eq!(
        client.get("y.b.example", "y.b.example", "/").expect_err("no certificate"),
        "error:0A000438:SSL routines::tlsv1 alert internal error:SSL alert number 80"
    );
    site.wait_for_log("y.b.example.crt\": BIO_new_file() failed (SSL: error:80000002:system library::No such file", 1);
    running.quit();
    site.assert_no_alerts();
}

/// Seen with nginx 1.31.5: its `conf_ctx` is that of the server which SNI names, until a valid host has named another.
#[test]
fn the_server_of_the_handshake_holds_until_a_host_names_another() {
    let port = free_port();
    let authority = Authority::new();
    let site = Site::new(
        MAIN,
        &format!(
            "http {{ ssl_certificate a.test.crt; ssl_certificate_key a.test.key;
            server {{ listen 127.0.0.1:{port} ssl default_server; server_name a.test; error_page 400 =200 /a;
                location / {{ return 200 \"a $uri [$http_x_under]\"; }} }}
            server {{ listen 127.0.0.1:{port} ssl; server_name b.test; error_page 400 =200 /b; merge_slashes off;
                underscores_in_headers on; large_client_header_buffers 2 1k;
                location / {{ return 200 \"b $uri [$http_x_under]\"; }} }}
            server {{ listen 127.0.0.1:{port} ssl; server_name ~^(?<name>.+)\\.re\\.test$; error_page 400 =200 /re;
                location / {{ return 200 \"re $uri $name\"; }} }} }}"
        ),
    );
    authority.put(&site, "a.test");
    let _running = site.start();
    let settings = ClientSettings::default();
    let rules = ClientRules::build(&settings, &clock(), &mut Vec::new()).expect("rules");
    let client = Client { rules, port };
    let long = "x".repeat(2000);
    for (sni, request, want) in [
        // A path that is none, a request that is none, a host that is none: the server of the handshake answers.
        ("b.test", "GET /%zz HTTP/1.1\r\nHost: b.test".to_string(), "b /b []"),
        ("b.test", "BAD".to_string(), "b /b []"),
        ("b.test", "GET / HTTP/1.1\r\nHost: a b".to_string(), "b /b []"),
        ("x.re.test", "GET /%zz HTTP/1.1\r\nHost: b.test".to_string(), "re /re "),
        ("none.test", "GET /%zz HTTP/1.1\r\nHost: b.test".to_string(), "a /a []"),
        // Its limits and rules hold for the request line.
        ("b.test", "GET //x//y HTTP/1.1\r\nHost: b.test".to_string(), "b //x//y []"),
        ("a.test", "GET //x//y HTTP/1.1\r\nHost: b.test".to_string(), "b /x/y []"),
        ("b.test", format!("GET /{long} HTTP/1.1\r\nHost: b.test"), "414 Request-URI Too Large"),
        // Fields behind the host go by the server that it names.
        ("b.test", "GET / HTTP/1.1\r\nHost: b.test\r\nX_Under: 1".to_string(), "b / [1]"),
        ("a.test", "GET / HTTP/1.1\r\nHost: b.test\r\nX_Under: 1".to_string(), "b / [1]"),
        ("b.test", "GET / HTTP/1.1\r\nHost: a.test\r\nX_Under: 1".to_string(), "a / []"),
        // Those before it go by the server of the handshake.
        ("b.test", "GET / HTTP/1.1\r\nX_Under: 1\r\nHost: a.test".to_string(), "a / [1]"),
        ("a.test", "GET / HTTP/1.1\r\nX_Under: 1\r\nHost: b.test".to_string(), "b / []"),
        // A malformed field before the host, and behind it.
        ("b.test", "GET / HTTP/1.1\r\nX Y: 1\r\nHost: a.test".to_string(), "b /b []"),
        ("b.test", "GET / HTTP/1.1\r\nHost: a.test\r\nX Y: 1".to_string(), "a /a []"),
        // No host, and an unknown one: the default server.
        ("b.test", "GET / HTTP/1.1\r\nX: 1".to_string(), "a /a []"),
        ("b.test", "GET /c HTTP/1.0\r\nX: 1".to_string(), "a /c []"),
        ("b.test", "GET /c HTTP/1.1\r\nHost: q.test".to_string(), "a /c []"),
        ("b.test", "GET /c HTTP/1.1\r\nHost: x.re.test".to_string(), "re /c x"),
    ] {
        let answer = client.send(sni, &format!("{request}\r\nConnection: close\r\n\r\n"));
        let answer = answer.unwrap_or_else(|why| panic!("{sni} {request}: {why}"));
        assert!(answer.contains(want), "{sni} {request:.60}: {want:?} is not in {answer}");
    }
}

#[test]
fn clients_are_asked_for_certificates() {
    let port = free_port();
    let authority = Authority::new();
    let site = Site::new(
        MAIN,
        &format!(
            "http {{ ssl_certificate a.example.crt; ssl_certificate_key a.example.key; ssl_client_certificate ca.crt;
            server {{ listen 127.0.0.1:{port} ssl; server_name a.example; add_header X-Of a always;
                return 200 open; }}
            server {{ listen 127.0.0.1:{port} ssl; server_name on.example; ssl_certificate on.example.crt;
                ssl_certificate_key on.example.key; ssl_verify_client on;
                return 200 \"$ssl_client_verify $ssl_client_s_dn\"; }} }}"
        ),
    );
    authority.put(&site, "a.example");
    authority.put(&site, "on.example");
    site.write("conf/ca.crt", &authority.pem);
    let running = site.start();
    let nobody = Client::new(port, &authority, None);
    let user = Client::new(port, &authority, Some(authority.issue("user")));
    let stranger = Client::new(port, &authority, Some(Authority::new().issue("stranger")));
    let starts = |answer: Result<String, String>, status: &str, words: &str| {
        let answer = answer.expect("an answer");
        assert!(answer.starts_with(status) && answer.contains(words), "{answer}");
    };
    wait("an answer", || nobody.get("a.example", "a.example", "/"));
    starts(user.get("on.example", "on.example", "/"), "HTTP/1.1 200", "SUCCESS CN=user");
    starts(nobody.get("on.example", "on.example", "/"), "HTTP/1.1 400", "No required SSL certificate was sent");
    starts(stranger.get("on.example", "on.example", "/"), "HTTP/1.1 400", "The SSL certificate error");
    // A session of another server's rules gets 421, from the server of the handshake.
    starts(user.get("a.example", "on.example", "/"), "HTTP/1.1 421", "Misdirected");
    starts(user.get("a.example", "on.example", "/"), "HTTP/1.1 421", "X-Of: a");
    starts(user.get("on.example", "a.example", "/"), "HTTP/1.1 200", "open");
    // A name that chooses nothing in the handshake is the default server's; its own rules still hold for the request.
    starts(user.get("a.example", "unknown.example", "/"), "HTTP/1.1 200", "open");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn clients_whose_status_cannot_be_asked_are_refused_with_nginxs_line() {
    let (port, closed) = (free_port(), free_port());
    let authority = Authority::new();
    let site = Site::new(
        MAIN,
        &format!(
            "http {{ server {{ listen 127.0.0.1:{port} ssl; ssl_certificate a.example.crt;
                ssl_certificate_key a.example.key; ssl_client_certificate ca.crt; ssl_verify_client on; ssl_ocsp on;
                ssl_ocsp_responder http://127.0.0.1:{closed}/; keepalive_timeout 0; return 200 open; }} }}"
        ),
    );
    authority.put(&site, "a.example");
    site.write("conf/ca.crt", &authority.pem);
    let running = site.start();
    let user = Client::new(port, &authority, Some(authority.issue("user")));
    let answer = wait("an answer", || user.get("a.example", "a.example", "/"));
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let words = "client SSL certificate verify error: certificate status request failed while reading client request \
                 headers, client: 127.0.0.1";
    site.wait_for_log(words, 1);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn plain_http_on_the_port_is_told_so() {
    let port = free_port();
    let authority = Authority::new();
    let site = Site::new(
        MAIN,
        &format!(
            "http {{ server {{ listen 127.0.0.1:{port} ssl; ssl_certificate a.example.crt;
                ssl_certificate_key a.example.key; return 200 secret; }} }}"
        ),
    );
    authority.put(&site, "a.example");
    let running = site.start();
    let (status, body) = wait("an answer", || support::client::get(port));
    assert!(status == 400 && body.contains("The plain HTTP request was sent to HTTPS port"), "{body}");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_reload_brings_the_certificate_that_is_on_the_disk() {
    let port = free_port();
    let (old, new) = (Authority::new(), Authority::called("another"));
    let site = Site::new(
        MAIN,
        &format!(
            "http {{ server {{ listen 127.0.0.1:{port} ssl; ssl_certificate a.example.crt;
                ssl_certificate_key a.example.key; return 200 ok; }} }}"
        ),
    );
    old.put(&site, "a.example");
    let running = site.start();
    wait("an answer", || Client::new(port, &old, None).get("a.example", "a.example", "/"));
    let refused = Client::new(port, &new, None).get("a.example", "a.example", "/");
    assert_eq!(refused, Err("certificate verify error: (21:unable to verify the first certificate)".into()));
    new.put(&site, "a.example");
    running.signal("HUP");
    wait("the new certificate", || Client::new(port, &new, None).get("a.example", "a.example", "/"));
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn servers_are_asked_over_tls_and_verified() {
    let (front, back) = (free_port(), free_port());
    let (authority, other) = (Authority::new(), Authority::called("another"));
    let site = Site::new(
        MAIN,
        &format!(
            "http {{ proxy_ssl_name a.example; proxy_ssl_server_name on; proxy_ssl_verify on; proxy_set_header Host a.example;
            upstream kept {{ server 127.0.0.1:{back}; keepalive 4; }}
            server {{ listen 127.0.0.1:{back} ssl; http2 on; ssl_certificate a.example.crt; ssl_certificate_key a.example.key;
                ssl_verify_client optional; ssl_client_certificate ca.crt;
                location / {{ return 200 \"$ssl_server_name $ssl_client_verify $connection_requests $request_uri\"; }}
                location /long {{ root html; }} }}
            server {{ listen 127.0.0.1:{front};
                proxy_ssl_trusted_certificate ca.crt;
                location / {{ proxy_pass https://kept; }}
                location /user {{ proxy_pass https://127.0.0.1:{back};
                    proxy_ssl_certificate user.crt; proxy_ssl_certificate_key user.key; }}
                location /one-of {{ proxy_pass https://127.0.0.1:{back}; proxy_ssl_name b.example;
                    proxy_ssl_verify_names spiffe://c/d a.example; }}
                location /none-of {{ proxy_pass https://127.0.0.1:{back}; proxy_ssl_verify_names spiffe://c/d c.example; }}
                location /grpc {{ grpc_pass grpcs://127.0.0.1:{back}; grpc_ssl_verify on; grpc_ssl_trusted_certificate ca.crt;
                    grpc_ssl_name b.example; grpc_ssl_server_name on; grpc_ssl_verify_names a.example; }}
                location /grpc/none {{ grpc_pass grpcs://127.0.0.1:{back}; grpc_ssl_verify on; grpc_ssl_trusted_certificate ca.crt;
                    grpc_ssl_name a.example; grpc_ssl_verify_names d.example; }}
                location /name {{ proxy_pass https://127.0.0.1:{back}; proxy_ssl_name b.example; }}
                location /other {{ proxy_pass https://127.0.0.1:{back}; proxy_ssl_trusted_certificate other.crt; }}
                location /off {{ proxy_pass https://127.0.0.1:{back}; proxy_ssl_verify off; proxy_ssl_name b.example;
                    proxy_set_header Host b.example; }}
            }} }}"
        ),
    );
    authority.put(&site, "a.example");
    authority.put(&site, "user");
    site.write("conf/ca.crt", &authority.pem);
    site.write("conf/other.crt", &other.pem);
    let long: String = (0..200_000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
    site.write("html/long", &long);
    let running = site.start();
    let get = |uri: &str| {
        wait("an answer", || {
            let mut client = support::client::Client::connect(front)?;
            client.ask(&format!("GET {uri} HTTP/1.1\r\nHost: a\r\n\r\n"))
        })
    };
    assert_eq!(get("/one"), (200, "a.example NONE 1 /one".into()));
    assert_eq!(get("/user"), (200, "a.example SUCCESS 1 /user".into()));
    assert_eq!(get("/off"), (200, "b.example NONE 1 /off".into()));
    assert_eq!(get("/long"), (200, long));
    assert_eq!(get("/one-of"), (200, "b.example NONE 1 /one-of".into()));
    assert_eq!(get("/grpc"), (200, "b.example NONE 1 /grpc".into()));
    assert_eq!((get("/none-of").0, get("/grpc/none").0), (502, 502));
    for names in ["spiffe://c/d, c.example", "d.example"] {
        let line = format!("upstream SSL certificate does not match \"{names}\" while SSL handshaking to upstream");
        site.wait_for_log(&line, 1);
    }
    assert_eq!((get("/name").0, get("/other").0), (502, 502));
    site.wait_for_log("upstream SSL certificate does not match \"b.example\" while SSL handshaking to upstream", 1);
    site.wait_for_log(
        "upstream SSL certificate verify error: (21:unable to verify the first certificate) while SSL handshaking to upstream",
        1,
    );
    // Each worker thread keeps connections of its own: some request meets one that was used before.
    wait("a connection that is used again", || match get("/again") {
        (200, body) if !body.starts_with("a.example NONE 1 ") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_handshake_that_fails_is_one_line() {
    let port = free_port();
    let site = Site::new(
        MAIN,
        &format!(
            "http {{ client_header_timeout 1s;
            server {{ listen 127.0.0.1:{port} ssl; ssl_certificate a.crt; ssl_certificate_key a.key; }} }}"
        ),
    );
    Authority::new().put(&site, "a");
    let running = site.start();
    let send = |bytes: &[u8]| {
        let mut stream = wait("a connection", || TcpStream::connect(("127.0.0.1", port)));
        stream.write_all(bytes).expect("sent");
        stream
    };
    // Not a message of a handshake; the end in the middle of one; nothing more for too long.
    let _ = send(b"\x16\x03\x01\x00\x05hello").read_to_end(&mut Vec::new());
    site.wait_for_log("SSL_do_handshake() failed (SSL: ", 1);
    drop(send(b"\x16\x03\x01\x00\x50\x01\x00"));
    site.wait_for_log("peer closed connection in SSL handshake while SSL handshaking", 1);
    let _ = send(b"\x16\x03\x01\x00\x50\x01\x00").read_to_end(&mut Vec::new());
    site.wait_for_log("client timed out (110: Connection timed out) while SSL handshaking", 1);
    running.quit();
    let log = site.log();
    let lines = |words: &str| log.lines().filter(|line| line.contains(words)).count();
    assert_eq!((lines("while SSL handshaking, client: 127.0.0.1"), lines(", client: ")), (3, 3), "{log}");
}

#[test]
fn tls_complaints_have_nginxs_words() {
    let authority = Authority::new();
    let try_with = |server: &str| {
        let site = Site::new("", &format!("http {{ server {{ listen 127.0.0.1:8443 ssl; {server} }} }}"));
        authority.put(&site, "a");
        authority.put(&site, "b");
        let out = site.run(&["-t"]);
        (out.status.success(), text(&out.stderr))
    };
    for (server, words) in [
        ("", "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive in "),
        ("ssl_certificate a.crt;", "no \"ssl_certificate_key\" is defined for certificate \"a.crt\""),
        ("ssl_certificate c.crt; ssl_certificate_key a.key;", "c.crt\": BIO_new_file() failed (SSL: error:80000002:"),
        ("ssl_certificate a.key; ssl_certificate_key a.key;", "PEM_read_bio_X509_AUX() failed (SSL: error:0480006C:"),
        ("ssl_certificate a.crt; ssl_certificate_key b.key;", "key values mismatch)"),
        ("ssl_certificate a.crt; ssl_certificate_key engine:x:y;", "keys from \"engine:\" are not available"),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_verify_client on;",
            "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client",
        ),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_protocols TLSv1;",
            "only TLSv1.2 and TLSv1.3 are available",
        ),
        ("ssl_certificate a.crt; ssl_certificate_key a.key; ssl_ciphers nothing;", "no cipher match"),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_ecdh_curve x;",
            "SSL_CTX_set1_curves_list(\"x\") failed",
        ),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_conf_command A b;",
            "SSL_CONF_cmd(\"A\", \"b\") failed",
        ),
    ] {
        let (success, said) = try_with(server);
        assert!(!success && said.contains(words), "{server}: {said}");
    }
    // Debian's nginx.conf.
    let stock = "ssl_certificate a.crt; ssl_certificate_key a.key; \
                 ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3; ssl_prefer_server_ciphers on;";
    let (success, said) = try_with(stock);
    assert!(
        success && said.contains("versions before TLSv1.2 are not available, TLSv1.2 and TLSv1.3 will be used"),
        "{said}"
    );
}

#[test]
fn the_doctor_looks_at_certificates() {
    let authority = Authority::new();
    let site = Site::new(
        "",
        "http { server { listen 127.0.0.1:8443 ssl; server_name b.example; ssl_certificate a.example.crt;
            ssl_certificate_key a.example.key; } }",
    );
    authority.put(&site, "a.example");
    let conf = site.path("conf/nginx.conf").display().to_string();
    let prefix = site.dir.display().to_string();
    let out = std::process::Command::new(support::BINARY)
        .args(["doctor", "-c", &conf, "-p", &prefix])
        .output()
        .expect("runs");
    let said = text(&out.stdout);
    assert!(said.contains("the certificate of \"CN=a.example\" is not for b.example"), "{said}");
    assert!(said.contains("is sent without its chain: clients that do not have"), "{said}");
}

#[test]
fn both_sides_log_the_same_secrets() {
    let (front, middle, back) = (free_port(), free_port(), free_port());
    let authority = Authority::new();
    let site = Site::new(
        MAIN,
        &format!(
            "http {{
            server {{ listen 127.0.0.1:{back} ssl; ssl_certificate a.example.crt; ssl_certificate_key a.example.key;
                ssl_key_log logs/servers.keys; return 200 $ssl_protocol; }}
            server {{ listen 127.0.0.1:{front}; proxy_ssl_key_log logs/clients.keys;
                location / {{ proxy_pass https://127.0.0.1:{back}; }}
                location /old {{ proxy_pass https://127.0.0.1:{back}; proxy_ssl_protocols TLSv1.2; }}
                location /secret {{ proxy_pass https://127.0.0.1:{back}; proxy_ssl_key_log logs/others.keys; }} }} }}
            stream {{ server {{ listen 127.0.0.1:{middle}; proxy_pass 127.0.0.1:{back}; proxy_ssl on;
                proxy_ssl_key_log logs/clients.keys; }} }}"
        ),
    );
    authority.put(&site, "a.example");
    let running = site.start();
    let get = |port: u16, uri: &str| {
        wait("an answer", || {
            let mut client = support::client::Client::connect(port)?;
            client.ask(&format!("GET {uri} HTTP/1.1\r\nHost: a\r\n\r\n"))
        })
    };
    assert_eq!(get(front, "/new"), (200, "TLSv1.3".into()));
    assert_eq!(get(front, "/old"), (200, "TLSv1.2".into()));
    assert_eq!(get(middle, "/"), (200, "TLSv1.3".into()));
    // A server derives the secret of early data from each resumed session, a client only to use it.
    let sorted = |name: &str| {
        let lines = site.read(name);
        let lines = lines.lines().filter(|line| !line.starts_with("CLIENT_EARLY_TRAFFIC_SECRET "));
        let mut lines: Vec<String> = lines.map(str::to_string).collect();
        lines.sort();
        lines
    };
    let (servers, clients) = (sorted("logs/servers.keys"), sorted("logs/clients.keys"));
    assert_eq!(servers, clients);
    let count = |label: &str| servers.iter().filter(|line| line.split(' ').next() == Some(label)).count();
    assert_eq!((count("CLIENT_RANDOM"), count("CLIENT_TRAFFIC_SECRET_0"), count("SERVER_TRAFFIC_SECRET_0")), (1, 2, 2));
    for line in &servers {
        let parts: Vec<&str> = line.split(' ').collect();
        let is_hex = |text: &str| text.bytes().all(|c| c.is_ascii_hexdigit());
        assert!(matches!(parts[..], [_, random, secret] if random.len() == 64 && is_hex(random) && is_hex(secret)));
    }
    // Another location has connections of its own, whose secrets are in its file.
    assert_eq!(get(front, "/secret"), (200, "TLSv1.3".into()));
    assert_eq!(sorted("logs/others.keys").len() + clients.len(), sorted("logs/servers.keys").len());
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(site.path("logs/servers.keys")).expect("the file").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    running.quit();
    site.assert_no_alerts();
}
