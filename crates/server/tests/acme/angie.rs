//! Angie's ACME clients: certificates for several servers, the DNS responder, hooks, the socket for http-01, the stream area. pebble is
//! Debian's; skipped with words where it is not installed.

use crate::support;

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::pebble::{Authority, Names};
use support::zone::Zone;
use support::{Site, free_port, text};

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

/// Asks over TLS under a name, trusting the authority's root only. Returns curl's exit code and the body.
fn ask_as(site: &Site, name: &str, port: u16) -> (i32, String) {
    let output = Command::new("curl")
        .arg("--cacert")
        .arg(site.path("conf/root.crt"))
        .args(["-s", "-m", "30", "--resolve", &format!("{name}:{port}:127.0.0.1"), &format!("https://{name}:{port}/")])
        .output()
        .expect("curl");
    (output.status.code().unwrap_or(-1), text(&output.stdout))
}

/// A DNS query for the TXT records of a name.
fn question(name: &str) -> Vec<u8> {
    let mut packet = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        packet.push(label.len() as u8);
        packet.extend_from_slice(label.as_bytes());
    }
    packet.extend_from_slice(&[0, 0, 16, 0, 1]);
    packet
}

/// Sends a datagram until there is a response.
fn exchange(port: u16, packet: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(("127.0.0.1", port)).expect("connected");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    let mut buf = [0; 2048];
    for _ in 0..6 {
        socket.send(packet).expect("sent");
        if let Ok(length) = socket.recv(&mut buf) {
            return buf[..length].to_vec();
        }
    }
    panic!("no response from port {port}")
}

#[test]
fn clients_of_angie_have_one_certificate_for_all_their_servers() {
    let (http, tls, dns) = (free_port(), free_port(), free_port());
    let Some(_names) = Names::start(dns) else { return };
    let site = Site::new("daemon off;", "");
    let Some(authority) = Authority::start_on(&site, free_port(), http, tls, Some(dns), &FAULTS) else { return };
    authority.root(&site);
    let state = site.path("state").display().to_string();
    let port = authority.port;
    let conf = |more: &str, in_server: &str| {
        format!(
            "http {{ resolver 127.0.0.1:1; acme_client_path {state}; acme_http_port {http};
                acme_client One https://127.0.0.1:{port}/dir email=a@angie.test key_type=rsa key_bits=2048 max_cert_size=32k
                    retry_after_error=10s renew_before_expiry=20d ssl_trusted_certificate=pebble.crt {more};
                server {{ listen 127.0.0.1:{http}; }}
                server {{ listen 127.0.0.1:{tls} ssl; server_name a.angie.test ~^c; acme one; {in_server}
                    ssl_certificate $acme_cert_one; ssl_certificate_key $acme_cert_key_one; return 200 a; }}
                server {{ listen 127.0.0.1:{tls} ssl; server_name b.angie.test; acme one;
                    ssl_certificate $acme_cert_one; ssl_certificate_key $acme_cert_key_one; return 200 b; }} }}"
        )
    };
    site.configure("daemon off;", &conf("", ""));
    let running = site.start();
    site.wait_for_log("acme issuer \"one\": issued a certificate for \"a.angie.test\"", 1);
    for name in ["a", "b"] {
        assert_eq!(ask_as(&site, &format!("{name}.angie.test"), tls), (0, name.into()));
    }
    let rows = listed(&site);
    assert_eq!(rows[0]["names"], serde_json::json!(["a.angie.test", "b.angie.test"]), "{rows}");
    assert!(site.path("state/one/account.key").exists());
    running.quit();
    // Files that Angie has left are used.
    let files = |ending: &str| {
        let all = std::fs::read_dir(site.path("state/one")).expect("the state").flatten().map(|file| file.path());
        all.filter(|path| path.to_string_lossy().ends_with(ending)).find(|path| !path.ends_with("account.key"))
    };
    std::fs::rename(files(".crt").expect("a certificate"), site.path("state/one/certificate.pem")).expect("renamed");
    std::fs::rename(files(".key").expect("a key"), site.path("state/one/private.key")).expect("renamed");
    drop(authority);
    let running = site.start();
    assert_eq!(ask_as(&site, "b.angie.test", tls), (0, "b".into()));
    running.quit();
    site.assert_no_alerts();
    for (more, in_server, says) in [
        ("eab=xxx", "", "\"acme_client\" directive has an invalid \"eab\" value"),
        ("eab=id:=", "", "\"acme_client\" directive has an invalid key value in the \"eab\" parameter"),
        ("eab=id:none:x", "", "\"acme_client\" directive has an invalid algorithm value in the \"eab\" parameter"),
        ("key_bits=1", "", "unsupported key size \"1\""),
        ("retry_after_error=x", "", "invalid parameter \"retry_after_error=x\""),
        ("", "acme two;", "ACME client \"two\" is not defined but referenced"),
        ("", "acme ONE;", "duplicate \"acme ONE\" directive"),
        (
            "",
            "server_name *.angie.test;",
            "unsupported domain format \"*.angie.test\" used by ACME client \"one\", ignored",
        ),
        ("", "location /h { acme_hook two; return 204; }", "ACME client \"two\" is not defined but referenced"),
        (
            "",
            "location /h { acme_hook one; }",
            "no request handler configured in the \"location\" block with ACME hook",
        ),
        ("", "location /h { acme_hook one; acme_hook one; return 204; }", "duplicate \"acme_hook one\" directive"),
        ("", "location /h { acme_hook one url=/; return 204; }", "invalid parameter \"url=/\""),
        ("; acme_dns_port 127.0.0.1:x", "", "invalid port value \"127.0.0.1:x\""),
        ("; acme_dns_ttl 2147483648", "", "\"acme_dns_ttl\" directive value is out of range"),
        ("; acme_client two https://127.0.0.1/dir", "", "ACME client \"two\" is defined but not used"),
    ] {
        let said = test(&site, &conf(more, in_server));
        assert!(said.contains(says), "{says}: {said}");
    }
}

#[test]
fn the_responder_proves_names_by_dns() {
    let (tls, dns) = (free_port(), free_port());
    let site = Site::new("daemon off;", "");
    let Some(authority) = Authority::start_on(&site, free_port(), free_port(), tls, Some(dns), &FAULTS) else { return };
    authority.root(&site);
    let state = site.path("state").display().to_string();
    let port = authority.port;
    let conf = |before: &str| {
        format!(
            "{before} http {{ acme_dns_port {dns}; acme_dns_ttl 600; acme_client_path {state};
                acme_client rsa https://127.0.0.1:{port}/dir challenge=dns key_type=RSA ssl_trusted_certificate=pebble.crt;
                acme_client ecdsa https://127.0.0.1:{port}/dir challenge=DNS ssl_trusted_certificate=pebble.crt;
                server {{ listen 127.0.0.1:{tls} ssl; server_name .own.test a.own.test other.test; acme rsa; acme ecdsa;
                    ssl_certificate $acme_cert_rsa; ssl_certificate_key $acme_cert_key_rsa;
                    ssl_certificate $acme_cert_ecdsa; ssl_certificate_key $acme_cert_key_ecdsa; return 200 own; }} }}"
        )
    };
    // The stream area has the socket: queries for own names are answered, other datagrams are the session's.
    let stream = format!("stream {{ server {{ listen 127.0.0.1:{dns} udp; return passed; }} }}");
    site.configure("daemon off;", &conf(&stream));
    let running = site.start();
    site.wait_for_log("acme issuer \"rsa\": issued a certificate for \"*.own.test\"", 1);
    site.wait_for_log("acme issuer \"ecdsa\": issued a certificate for \"*.own.test\"", 1);
    for name in ["own.test", "b.own.test", "other.test"] {
        assert_eq!(ask_as(&site, name, tls), (0, "own".into()), "{name}");
    }
    assert_eq!(listed(&site)[0]["names"], serde_json::json!(["*.own.test", "other.test", "own.test"]));
    let known = exchange(dns, &question("_acme-challenge.own.test"));
    assert_eq!(known[..12], [0x12, 0x34, 0x85, 0, 0, 1, 0, 0, 0, 0, 0, 0], "the text is removed, the name stays known");
    assert_eq!(exchange(dns, &question("_acme-challenge.foreign.test")), b"passed");
    assert_eq!(exchange(dns, b"x"), b"passed");
    // Files under Angie's names.
    let pem = std::fs::read_to_string(site.path("state/rsa/certificate.pem")).expect("a certificate");
    assert!(pem.starts_with("-----BEGIN CERTIFICATE-----") && site.path("state/rsa/private.key").exists());
    // Without the stream area the socket is the responder's, from a reload on. Bound to loopback: it is of one address.
    site.configure(
        "daemon off;",
        &conf("").replace(&format!("acme_dns_port {dns}"), &format!("acme_dns_port 127.0.0.1:{dns}")),
    );
    running.signal("HUP");
    site.wait_for_log("reconfiguring", 1);
    support::wait("the responder", || match exchange(dns, &question("_acme-challenge.foreign.test")) {
        answer if answer[3] == 5 => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
    assert_eq!(exchange(dns, &question("_acme-challenge.b.other.test"))[3], 5, "refused");
    // A new name is proven there, after malformed packets, too.
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for packet in [&b"x"[..], &[0; 12], &[0xff; 1400]] {
        sender.send_to(packet, ("127.0.0.1", dns)).expect("sent");
    }
    let conf = conf("").replace(&format!("acme_dns_port {dns}"), &format!("acme_dns_port 127.0.0.1:{dns}"));
    site.configure("daemon off;", &conf.replace("other.test", "new.test"));
    running.signal("HUP");
    site.wait_for_log("acme issuer \"ecdsa\": issued a certificate for \"*.own.test\"", 2);
    // Nothing is ordered again after a crash.
    let mut running = running;
    let worker = running.worker();
    support::signal(running.pid(), "KILL");
    running.child.wait().expect("ended");
    // The worker ends with its master; it may be gone already.
    let _ = Command::new("kill").args(["-KILL", &worker.to_string()]).status();
    support::wait("the worker's end", || if support::alive(worker) { Err("it lives") } else { Ok(()) });
    drop(running);
    let _ = std::fs::remove_file(site.path("logs/nginx.pid"));
    let orders = site.log().matches("issued a certificate").count();
    let running = site.start();
    assert_eq!(ask_as(&site, "new.test", tls), (0, "own".into()));
    assert_eq!(site.log().matches("issued a certificate").count(), orders);
    running.quit();
    site.assert_no_alerts();
}

/// Requests of hooks by their URI, and the status of the responses.
type Seen = Arc<Mutex<(Vec<String>, u16)>>;

/// A service behind a hook: changes the records of a name server.
fn service(zone: &Zone) -> (u16, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let seen: Seen = Arc::new(Mutex::new((Vec::new(), 204)));
    let (shared, records) = (seen.clone(), zone.records.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            let _ = reader.read_line(&mut line);
            let mut field = String::new();
            while reader.read_line(&mut field).is_ok_and(|n| n > 2) {
                field.clear();
            }
            let uri = line.split(' ').nth(1).unwrap_or_default().to_string();
            let status = {
                let mut seen = shared.lock().expect("not poisoned");
                seen.0.push(uri.clone());
                seen.1
            };
            let parts: Vec<&str> = uri.split('/').collect();
            if let ["", "hook", client, action, challenge, domain, _token, keyauth] = parts.as_slice() {
                assert_eq!((*client, *challenge), ("hooked", "dns"));
                let name = question(&format!("_acme-challenge.{domain}"));
                let name = name[12..name.len() - 4].to_vec();
                let record = [&[keyauth.len() as u8][..], keyauth.as_bytes()].concat();
                let mut records = records.lock().expect("not poisoned");
                match *action {
                    "add" if status < 300 => records.push((name, record)),
                    _ => records.retain(|known| *known != (name.clone(), record.clone())),
                }
            }
            let reason = if status == 200 { "Content-Length: 5\r\n\r\nhello" } else { "Content-Length: 0\r\n\r\n" };
            let _ =
                reader.get_mut().write_all(format!("HTTP/1.1 {status} x\r\nConnection: close\r\n{reason}").as_bytes());
            let _ = reader.get_mut().flush();
        }
    });
    (port, seen)
}

#[test]
fn hooks_prove_names_by_a_location() {
    let tls = free_port();
    let zone = Zone::start();
    let (port, seen) = service(&zone);
    let site = Site::new("daemon off;", "");
    let Some(authority) = Authority::start_on(&site, free_port(), free_port(), tls, Some(zone.port), &FAULTS) else {
        return;
    };
    authority.root(&site);
    let state = site.path("state").display().to_string();
    let conf = |names: &str| {
        format!(
            "http {{ resolver 127.0.0.1:1; acme_client_path {state};
                server {{ listen 127.0.0.1:{tls} ssl; server_name {names}; acme hooked;
                    ssl_certificate $acme_cert_hooked; ssl_certificate_key $acme_cert_key_hooked; return 200 own;
                    auth_basic closed; auth_basic_user_file nowhere; }}
                server {{ listen 127.0.0.1:{}; server_name hooks.test; deny all;
                    location @hook {{
                        set $path /hook/$acme_hook_client/$acme_hook_name/$acme_hook_challenge/$acme_hook_domain;
                        acme_hook Hooked uri=/x?$acme_hook_domain;
                        proxy_pass http://127.0.0.1:{port}$path/$acme_hook_token/$acme_hook_keyauth; }}
                    location = /unset {{ allow all; return 200 <$acme_hook_name>; }} }}
                acme_client hooked https://127.0.0.1:{}/dir challenge=dns retry_after_error=2s ssl_trusted_certificate=pebble.crt;
            }}",
            free_port(),
            authority.port
        )
    };
    site.configure("daemon off;", &conf("*.hook.test hook.test"));
    let running = site.start();
    site.wait_for_log("acme issuer \"hooked\": issued a certificate for \"*.hook.test\"", 1);
    let requests = std::mem::take(&mut seen.lock().expect("not poisoned").0);
    assert_eq!(requests.len(), 4, "{requests:?}");
    for (request, action) in requests.iter().zip(["add", "remove", "add", "remove"]) {
        assert!(request.starts_with(&format!("/hook/hooked/{action}/dns/hook.test/")), "{requests:?}");
    }
    assert!(zone.records.lock().expect("not poisoned").is_empty());
    // A response that is an error fails the order, with its reason; there is nothing to remove.
    seen.lock().expect("not poisoned").1 = 503;
    site.configure("daemon off;", &conf("b.hook.test"));
    running.signal("HUP");
    site.wait_for_log(
        "\"acme_hook hooked\" in location \"@hook\" failed (add for \"b.hook.test\"): the response has status 503",
        1,
    );
    let requests = std::mem::take(&mut seen.lock().expect("not poisoned").0);
    assert!(!requests.is_empty() && requests.iter().all(|uri| uri.contains("/add/")), "{requests:?}");
    // It is repeated.
    seen.lock().expect("not poisoned").1 = 200;
    site.wait_for_log("acme issuer \"hooked\": issued a certificate for \"b.hook.test\"", 1);
    // A service that is not there is an error page.
    site.configure("daemon off;", &conf("c.hook.test").replace(&format!("127.0.0.1:{port}"), "127.0.0.1:1"));
    running.signal("HUP");
    site.wait_for_log("failed (add for \"c.hook.test\"): the response has status 502", 1);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn the_socket_for_challenges_serves_nothing_else() {
    let (http, tls, tcp, dns) = (free_port(), free_port(), free_port(), free_port());
    let Some(_names) = Names::start(dns) else { return };
    let site = Site::new("daemon off;", "");
    let Some(authority) = Authority::start_on(&site, free_port(), http, tls, Some(dns), &FAULTS) else { return };
    authority.root(&site);
    let state = site.path("state").display().to_string();
    // The stream area has the only server.
    let conf = format!(
        "http {{ acme_client_path {state}; acme_http_port 127.0.0.1:{http};
            acme_client both https://127.0.0.1:{}/dir ssl_trusted_certificate=pebble.crt; }}
         stream {{ server {{ listen 127.0.0.1:{tcp} ssl; server_name tcp.angie.test; acme both;
            ssl_certificate $acme_cert_both; ssl_certificate_key $acme_cert_key_both; return session; }} }}",
        authority.port
    );
    site.configure("daemon off;", &conf);
    let running = site.start();
    site.wait_for_log("acme issuer \"both\": issued a certificate for \"tcp.angie.test\"", 1);
    let output = Command::new("openssl")
        .args(["s_client", "-quiet", "-verify_return_error", "-servername", "tcp.angie.test", "-CAfile"])
        .arg(site.path("conf/root.crt"))
        .args(["-connect", &format!("127.0.0.1:{tcp}")])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("openssl");
    assert!(text(&output.stdout).contains("session"), "{}", text(&output.stderr));
    for path in ["/", "/.well-known/acme-challenge/unknown"] {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", http)).expect("connected");
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).expect("sent");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(text(&answer), "", "{path}");
    }
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn stream_servers_prove_names_by_tls() {
    let (tls, dns, api) = (free_port(), free_port(), free_port());
    let Some(_names) = Names::start(dns) else { return };
    let site = Site::new("daemon off;", "");
    let Some(authority) = Authority::start_on(&site, free_port(), free_port(), tls, Some(dns), &FAULTS) else { return };
    authority.root(&site);
    let state = site.path("state").display().to_string();
    let key = site.path("conf/accounts/own.key");
    std::fs::create_dir(site.path("conf/accounts")).expect("a folder");
    let port = authority.port;
    // Two clients for one name, whose challenges differ in nothing that the authority sends: one after the other. Account keys that do
    // not exist yet, one of them in the folder of another client.
    let conf = |more: &str| {
        let client = |name: &str, more: &str| {
            let trusted = "ssl_trusted_certificate=pebble.crt";
            format!("acme_client {name} https://127.0.0.1:{port}/dir challenge=alpn {trusted} {more};")
        };
        let server = |name: &str, clients: &[&str]| {
            let of = |client: &&str| {
                format!(
                    "acme {client}; ssl_certificate $acme_cert_{client}; ssl_certificate_key $acme_cert_key_{client};"
                )
            };
            let clients: String = clients.iter().map(of).collect();
            format!(
                "server {{ listen 127.0.0.1:{tls} ssl; server_name {name}; {clients} ssl_alpn other; return session; }}"
            )
        };
        format!(
            "http {{ acme_client_path {state}; {} {} {}
                server {{ listen 127.0.0.1:{api}; location /api/ {{ api write=on; }} }} }}
             stream {{ log_format own \"$status <$ssl_alpn_protocol> $bytes_sent\"; access_log logs/stream.log own; {} {} }}",
            client("rsa", "key_type=rsa account_key=accounts/own.key"),
            client("shared", &format!("account_key={state}/ecdsa/account.key")),
            client("ecdsa", more),
            server("tcp.alpn.test", &["rsa", "ecdsa"]),
            server("shared.alpn.test", &["shared"]),
        )
    };
    let said = test(&site, &conf(""));
    assert!(said.contains("test is successful") && !key.exists(), "a test creates nothing: {said}");
    let running = site.start();
    for (client, name) in [("rsa", "tcp"), ("ecdsa", "tcp"), ("shared", "shared")] {
        site.wait_for_log(&format!("acme issuer \"{client}\": issued a certificate for \"{name}.alpn.test\""), 1);
    }
    let mode = std::fs::metadata(&key).expect("a key").permissions().mode() & 0o777;
    let pem = site.read("conf/accounts/own.key");
    assert!(mode == 0o600 && pem.starts_with("-----BEGIN PRIVATE KEY-----"), "{mode:o}");
    assert!(!site.path("state/rsa/account.key").exists());
    assert!(!site.log().contains("while ordering"), "{}", site.log());
    let output = Command::new("openssl")
        .args(["s_client", "-quiet", "-verify_return_error", "-servername", "tcp.alpn.test", "-CAfile"])
        .arg(site.path("conf/root.crt"))
        .args(["-connect", &format!("127.0.0.1:{tls}")])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("openssl");
    assert!(text(&output.stdout).contains("session"), "{}", text(&output.stderr));
    // Without a challenge under way the protocol is one that the server does not have.
    let output = Command::new("openssl")
        .args(["s_client", "-alpn", "acme-tls/1", "-servername", "tcp.alpn.test"])
        .args(["-connect", &format!("127.0.0.1:{tls}")])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("openssl");
    assert!(!text(&output.stdout).contains("ALPN protocol: acme-tls/1"), "{}", text(&output.stdout));
    let shown = |name: &str| {
        let url = format!("http://127.0.0.1:{api}/api/tidegate/1/certificates");
        let body = text(&Command::new("curl").args(["-s", &url]).output().expect("curl").stdout);
        let rows: serde_json::Value = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}"));
        let all = rows.as_array().expect("a list");
        all.iter().find(|row| row["acme"]["issuer"] == name).expect("a row")["acme"].clone()
    };
    assert_eq!((&shown("rsa")["state"], &shown("rsa")["challenge"]), (&"issued".into(), &"tls-alpn-01".into()));
    // A client that is disabled has no next order.
    site.configure("daemon off;", &conf("enabled=off"));
    running.signal("HUP");
    support::wait("the disabled client", || {
        let acme = shown("ecdsa");
        if acme["state"] == "disabled" && acme["next_order_at"].is_null() { Ok(()) } else { Err(acme.to_string()) }
    });
    assert_eq!(site.read("conf/accounts/own.key"), pem, "the key stays");
    running.quit();
    let log = site.read("logs/stream.log");
    // Validations are no sessions of the server. (Some end before their handshake, when the authority has seen the certificate.)
    let validations: Vec<&str> = log.lines().filter(|line| line.contains("<acme-tls/1>")).collect();
    assert!(validations.iter().all(|line| *line == "200 <acme-tls/1> 0") && log.contains("200 <-> 7"), "{log}");
    site.assert_no_alerts();
    for (more, says) in [
        ("", "test is successful"),
        ("account_key=nowhere/own.key", "cannot create account key"),
        ("account_key=pebble.json", "cannot load account key"),
    ] {
        let said = test(&site, &conf(more));
        assert!(said.contains(says), "{says}: {said}");
    }
}

/// Returns the certificate that a server shows for a name.
fn shown_certificate(name: &str, port: u16) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-servername", name, "-connect", &format!("127.0.0.1:{port}")])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("openssl");
    let said = text(&output.stdout);
    let begin = said.find("-----BEGIN CERTIFICATE-----").unwrap_or_default();
    let end = said.find("-----END CERTIFICATE-----").unwrap_or_default();
    said.get(begin..end).unwrap_or_default().to_string()
}

#[test]
fn certificates_serve_before_and_without_orders() {
    let (tls, absent) = (free_port(), free_port());
    let site = Site::new("daemon off;", "");
    let mut stored = Vec::new();
    for (name, of) in [("disabled", "disabled.test"), ("unused", "a.test"), ("changed", "old.test")] {
        // With the extension that questions for renewal windows need.
        let mut parameters = rcgen::CertificateParams::new(vec![of.to_string()]).expect("a name");
        parameters.use_authority_key_identifier_extension = true;
        let key = rcgen::KeyPair::generate().expect("a key");
        let pem = parameters.self_signed(&key).expect("a certificate").pem();
        // As Angie's master leaves them: of its own account alone.
        std::fs::create_dir_all(site.path(&format!("state/{name}"))).expect("a folder");
        site.write(&format!("state/{name}/certificate.pem"), &pem);
        site.write(&format!("state/{name}/private.key"), &key.serialize_pem());
        for file in ["certificate.pem", "private.key"] {
            let path = site.path(&format!("state/{name}/{file}"));
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("private");
        }
        stored.push((name, pem));
    }
    let made = rcgen::generate_simple_self_signed(vec!["own.test".into()]).expect("a certificate");
    site.write("conf/own.crt", &made.cert.pem());
    site.write("conf/own.key", &made.signing_key.serialize_pem());
    let state = site.path("state").display().to_string();
    let client = |name: &str, more: &str| format!("acme_client {name} http://127.0.0.1:{absent}/dir {more};");
    let server = |name: &str, acme: &str, certificate: &str, key: &str| {
        format!(
            "server {{ listen 127.0.0.1:{tls} ssl; server_name {name}.test; {acme} ssl_certificate {certificate};
                ssl_certificate_key {key}; return 200 \"[$acme_cert_new$acme_cert_key_new]\"; }}"
        )
    };
    let own =
        |name: &str, acme: &str| server(name, acme, &format!("$acme_cert_{name}"), &format!("$acme_cert_key_{name}"));
    let conf = [
        format!("http {{ acme_client_path {state}; acme_http_port 127.0.0.1:{};", free_port()),
        client("disabled", "enabled=off") + &client("unused", "") + &client("changed", "retry_after_error=off"),
        client("new", "challenge=alpn"),
        "map $acme_cert_new $certificate { \"\" own.crt; default $acme_cert_new; }".into(),
        "map $acme_cert_key_new $key { \"\" own.key; default $acme_cert_key_new; }".into(),
        own("disabled", "acme disabled;") + &own("unused", "") + &own("changed", "acme changed;"),
        own("new", "acme new;") + &server("mapped", "acme new;", "$certificate", "$key") + "}",
    ];
    site.configure("daemon off;", &conf.join("\n"));
    let running = site.start();
    for (name, pem) in &stored {
        let shown = shown_certificate(&format!("{name}.test"), tls);
        assert!(!shown.is_empty() && pem.replace("\r\n", "\n").starts_with(&shown), "{name}: {shown}");
    }
    let mapped = shown_certificate("mapped.test", tls);
    assert!(!mapped.is_empty() && made.cert.pem().replace("\r\n", "\n").starts_with(&mapped), "{mapped}");
    let placeholder = shown_certificate("new.test", tls);
    assert!(!placeholder.is_empty() && placeholder != mapped);
    let output = Command::new("curl")
        .args(["-sk", "--resolve", &format!("new.test:{tls}:127.0.0.1"), &format!("https://new.test:{tls}/")])
        .output()
        .expect("curl");
    assert_eq!(text(&output.stdout), "[]", "empty before the first certificate");
    // Another name needs another certificate, at once; an order that is not repeated has no next time.
    site.wait_for_log("of acme issuer \"changed\", not repeated (\"retry_after_error=off\")", 1);
    support::wait("the states", || {
        let rows = listed(&site);
        let of = |name: &str| {
            let row = rows.as_array()?.iter().find(|row| row["acme"]["issuer"] == name)?;
            row["acme"]["next_order_at"]
                .is_null()
                .then(|| row["acme"]["state"].as_str().unwrap_or_default().to_string())
        };
        match (of("disabled").as_deref(), of("changed").as_deref()) {
            (Some("disabled"), Some("disabled after a failure")) => Ok(()),
            _ => Err(rows.to_string()),
        }
    });
    let rows = listed(&site);
    let of = |name: &str| rows.as_array().into_iter().flatten().find(|row| row["acme"]["issuer"] == name).cloned();
    assert!(
        of("disabled").is_some_and(|row| row["problem"].is_null() && row["days_left"].as_i64() > Some(0)),
        "{rows}"
    );
    assert!(of("changed").is_some_and(|row| row["problem"] == "not issued yet"), "{rows}");
    assert!(
        !site.log().contains("issuer \"disabled\""),
        "the authority of a disabled client is not asked: {}",
        site.log()
    );
    running.quit();
    site.assert_no_alerts();
}
