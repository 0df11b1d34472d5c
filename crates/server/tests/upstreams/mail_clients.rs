//! The mail area with other programs: the clients of Python's library and openssl's, with and without TLS, and a real
//! nginx, which must give equal responses to equal commands. Programs that are not installed are skipped.

use crate::support;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use support::mail::{Client, auth, imap_server, pass_to, pop3_server, smtp_server};
use support::{Site, free_port, text, wait};

const NGINX: &str = "/usr/sbin/nginx";
const NGINX_MAIL: &str = "/usr/lib/nginx/modules/ngx_mail_module.so";

/// Logs in with every client of the library. Arguments: the ports in clear, those of TLS, the authority, the client's certificate.
const CLIENTS: &str = r#"
import imaplib, poplib, smtplib, socket, ssl, sys
imap, pop3, smtp, imaps, pop3s, smtps = map(int, sys.argv[1:7])
authority, pair = sys.argv[7], sys.argv[8]
socket.setdefaulttimeout(20)
context = ssl.create_default_context(cafile=authority)
context.load_cert_chain(pair)
context.check_hostname = False
host = "127.0.0.1"

def both(make, secure, upgrade, use):
    for way in "clear", "starttls", "tls":
        client = secure() if way == "tls" else make()
        if way == "starttls":
            upgrade(client)
        use(client, way)

def use_imap(client, way):
    assert "IMAP4REV1" in client.capabilities, client.capabilities
    assert client.login("user", 'se"cr\\et')[0] == "OK"
    assert client.noop()[0] == "OK"
    print("imap", way)
both(lambda: imaplib.IMAP4(host, imap), lambda: imaplib.IMAP4_SSL(host, imaps, ssl_context=context),
     lambda c: c.starttls(context), use_imap)
client = imaplib.IMAP4(host, imap)
assert client.authenticate("PLAIN", lambda _: b"\0user\0secret")[0] == "OK"
client = imaplib.IMAP4(host, imap)
assert client.login_cram_md5("user", "secret")[0] == "OK"

def use_pop3(client, way):
    assert "UIDL" in client.capa()
    client.user("user"); client.pass_("a secret")
    client.noop()
    print("pop3", way)
both(lambda: poplib.POP3(host, pop3), lambda: poplib.POP3_SSL(host, pop3s, context=context),
     lambda c: c.stls(context), use_pop3)
client = poplib.POP3(host, pop3)
client.apop("user", "secret")

def use_smtp(client, way):
    client.ehlo("client.example")
    assert client.has_extn("size")
    assert client.has_extn("starttls") == (way == "clear")
    client.login("user", "secret")
    client.mail("a@example.com")
    print("smtp", way)
both(lambda: smtplib.SMTP(host, smtp), lambda: smtplib.SMTP_SSL(host, smtps, context=context),
     lambda c: c.starttls(context=context), use_smtp)

# What is sent behind STARTTLS in clear is not heard inside.
raw = socket.create_connection((host, smtp))
raw.recv(4096)
raw.sendall(b"STARTTLS\r\nNOOP\r\n")
assert raw.recv(4096) == b"220 2.0.0 Start TLS\r\n"
inside = context.wrap_socket(raw)
inside.sendall(b"HELO me\r\n")
assert inside.recv(4096) == b"250 mx.example\r\n"
print("injected nothing")

# The server speaks the protocol that ALPN names, or none.
context.set_alpn_protocols(["imap"])
assert imaplib.IMAP4_SSL(host, imaps, ssl_context=context).sock.selected_alpn_protocol() == "imap"
try:
    imaplib.IMAP4_SSL(host, pop3s, ssl_context=context)
    raise SystemExit("spoke with a stranger")
except ssl.SSLError:
    print("alpn")
"#;

fn installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        eprintln!("no {program}: this is left out");
    }
    found
}

/// An authority's certificate, and pairs that it has issued, as files of a site.
fn certificates(site: &Site, names: &[&str]) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "the authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().expect("a key");
    site.write("conf/authority.crt", &params.clone().self_signed(&key).expect("signed").pem());
    let issuer = Issuer::from_params(&params, &key);
    for name in names {
        let own = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_string()]).expect("a name");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, *name);
        let certificate = params.signed_by(&own, &issuer).expect("signed").pem();
        site.write(&format!("conf/{name}.crt"), &(certificate + &own.serialize_pem()));
    }
}

#[test]
fn clients_of_others() {
    if !installed("python3") {
        return;
    }
    let ((imap, _), (pop3, _), (smtp, _)) = (imap_server(true), pop3_server(), smtp_server());
    let (auth, told) = auth(move |request| match request {
        r if r.contains("Auth-Protocol: imap\n") => pass_to(imap, "Auth-Pass: x\r\n"),
        r if r.contains("Auth-Protocol: pop3\n") => pass_to(pop3, "Auth-Pass: x\r\n"),
        _ => pass_to(smtp, ""),
    });
    let ports: Vec<u16> = (0..6).map(|_| free_port()).collect();
    let mut servers = String::new();
    for (i, protocol) in ["imap", "pop3", "smtp"].iter().enumerate() {
        let _ = write!(
            servers,
            "server {{ listen 127.0.0.1:{}; listen 127.0.0.1:{} ssl; protocol {protocol}; }} ",
            ports[i],
            ports[i + 3]
        );
    }
    let site = Site::new(
        "daemon off;",
        &format!(
            "mail {{ auth_http 127.0.0.1:{auth}; auth_http_pass_client_cert on; server_name mx.example; smtp_capabilities SIZE;
             imap_auth plain cram-md5; pop3_auth plain apop; starttls on; ssl_verify_client optional;
             ssl_certificate mx.example.crt; ssl_certificate_key mx.example.crt; ssl_client_certificate authority.crt;
             {servers} }}"
        ),
    );
    certificates(&site, &["mx.example", "client.example"]);
    site.write("clients.py", CLIENTS);
    let running = site.start();
    let out = Command::new("python3")
        .arg(site.path("clients.py"))
        .args(ports.iter().map(ToString::to_string))
        .args([site.path("conf/authority.crt"), site.path("conf/client.example.crt")])
        .output()
        .expect("python3 runs");
    assert!(out.status.success(), "{}{}\n{}", text(&out.stdout), text(&out.stderr), site.log());
    let want = "imap clear\nimap starttls\nimap tls\npop3 clear\npop3 starttls\npop3 tls\nsmtp clear\nsmtp starttls\nsmtp tls\n\
                injected nothing\nalpn\n";
    assert_eq!(text(&out.stdout), want);
    let requests = told.take();
    let secure: Vec<&String> = requests.iter().filter(|request| request.contains("Auth-SSL: on\n")).collect();
    assert_eq!((requests.len(), secure.len()), (12, 6), "{requests:?}");
    for request in &secure {
        for field in [
            "Auth-SSL-Protocol: TLSv1.3\n",
            "Auth-SSL-Cipher: TLS_",
            "Auth-SSL-Verify: SUCCESS\n",
            "Auth-SSL-Subject: CN=client.example\n",
            "Auth-SSL-Issuer: CN=the authority\n",
            "Auth-SSL-Serial: ",
            "Auth-SSL-Fingerprint: ",
            "Auth-SSL-Cert: -----BEGIN%20CERTIFICATE-----%0A",
        ] {
            assert!(request.contains(field), "{field} in {request}");
        }
    }
    for method in ["Auth-Method: cram-md5\n", "Auth-Method: apop\n"] {
        let request = requests.iter().find(|request| request.contains(method)).expect(method);
        assert!(request.contains("Auth-Salt: <") && request.contains("@mx.example>\n"), "{request}");
    }
    running.quit();
    site.assert_no_alerts();
    assert!(site.log().contains(" using starttls, server: "), "{}", site.log());
}

#[test]
fn openssl_begins_tls_in_every_protocol_and_certificates_may_be_required() {
    if !installed("python3") || Command::new("openssl").arg("version").output().is_err() {
        return;
    }
    let (auth, _) = auth(|_| String::new());
    let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
    let servers: String = ["imap", "pop3", "smtp"]
        .iter()
        .zip(&ports)
        .map(|(protocol, port)| format!("server {{ listen 127.0.0.1:{port}; protocol {protocol}; }} "))
        .collect();
    let site = Site::new(
        "daemon off;",
        &format!(
            "mail {{ auth_http 127.0.0.1:{auth}; starttls only; ssl_verify_client on; ssl_client_certificate authority.crt;
             ssl_certificate mx.example.crt; ssl_certificate_key mx.example.crt; {servers} }}"
        ),
    );
    certificates(&site, &["mx.example", "client.example"]);
    let running = site.start();
    let no_certificate = ["* BYE No required", "-ERR No required", "421 4.7.1 No required"];
    for (i, (protocol, end)) in [("imap", "a LOGOUT"), ("pop3", "QUIT"), ("smtp", "QUIT")].iter().enumerate() {
        for with_certificate in [true, false] {
            let mut command = Command::new("openssl");
            command.args(["s_client", "-quiet", "-crlf", "-ign_eof", "-connect", &format!("127.0.0.1:{}", ports[i])]);
            command.args(["-starttls", protocol]).arg("-CAfile").arg(site.path("conf/authority.crt"));
            if with_certificate {
                let pair = site.path("conf/client.example.crt");
                command.arg("-cert").arg(&pair).arg("-key").arg(&pair);
            }
            let words = site.path("words");
            std::fs::write(&words, format!("{end}\n")).expect("a file");
            let out = command.stdin(std::fs::File::open(&words).expect("it")).output().expect("openssl runs");
            let said = text(&out.stdout);
            let want = if with_certificate { ["OK completed", "+OK", "221 2.0.0 Bye"][i] } else { no_certificate[i] };
            assert!(said.contains(want), "{protocol} {with_certificate}: {said}{}", text(&out.stderr));
        }
    }
    let mut client = Client::greeted(ports[0]);
    assert_eq!(client.ask("a LOGIN u p"), "a BAD invalid command");
    drop(client);
    running.quit();
    site.assert_no_alerts();
}

/// Complete dialogues, each sent at once and ended by the connection.
const TALKS: &[(&str, &[&str])] = &[
    (
        "imap",
        &[
            "a NOOP\r\nb noop x\r\nc CAPABILITY\r\nz LOGOUT\r\n",
            "\r\na\r\n* NOOP\r\na* NOOP\r\na FETCH 1\r\nz LOGOUT\r\n",
            "a LOGIN\r\na LOGIN u\r\na LOGIN u p q\r\na LOGIN \"\" p\r\na LOGIN {x}\r\nz LOGOUT\r\n",
            "a LOGIN \"us er\" \"p\\\"q\"\r\nb X\r\nz LOGOUT\r\n",
            "a LOGIN {4+}\r\nuser {2+}\r\npq\r\nb X\r\nz LOGOUT\r\n",
            "a LOGIN {4}\r\nuser {2}\r\npq\r\nz LOGOUT\r\n",
            "a LOGIN refuse p\r\n",
            "a AUTHENTICATE\r\na AUTHENTICATE FOO\r\na AUTHENTICATE PLAIN x y\r\nz LOGOUT\r\n",
            "a AUTHENTICATE PLAIN\r\nAHUAcA==\r\nz LOGOUT\r\n",
            "a AUTHENTICATE LOGIN\r\ndQ==\r\ncA==\r\nz LOGOUT\r\n",
            "a AUTHENTICATE PLAIN\r\n*\r\nz LOGOUT\r\n",
            "a STARTTLS\r\nz LOGOUT\r\n",
        ],
    ),
    (
        "pop3",
        &[
            "NOOP\r\nnoop x\r\nCAPA\r\nAUTH\r\nQUIT\r\n",
            "LIST\r\nUS1R a\r\n\r\n USER a\r\nQUIT\r\n",
            "USER u v\r\nNOOP\r\nCAPA\r\nPASS p q \r\nLIST\r\nQUIT\r\n",
            "USER u\r\nUSER v\r\nPASS p\r\nQUIT\r\n",
            "USER refuse\r\nPASS p\r\n",
            "PASS p\r\nUSER\r\nAPOP u 0123\r\nQUIT\r\n",
            "AUTH PLAIN\r\nAHUAcA==\r\nLIST\r\nQUIT\r\n",
            "AUTH PLAIN AHUAcA\r\nLIST\r\nQUIT\r\n",
            "AUTH LOGIN\r\n!\r\nAUTH CRAM-MD5\r\nSTLS\r\nQUIT\r\n",
        ],
    ),
    (
        "smtp",
        &[
            "HELO\r\nHELO a b\r\nHELO a\r\nEHLO a\r\nQUIT\r\n",
            "NOOP x\r\nRSET x\r\nVRFY a\r\nHELP\r\nDATA\r\nQUIT\r\n",
            "MAIL\r\nRCPT TO:<a>\r\nAUTH\r\nAUTH FOO\r\nSTARTTLS\r\nQUIT\r\n",
            "EHLO a\r\nAUTH PLAIN AHUAcA==\r\nMAIL FROM:<a>\r\nQUIT\r\n",
            "EHLO a\r\nAUTH LOGIN dQ==\r\ncA==\r\nMAIL FROM:<a>\r\nQUIT\r\n",
            "AUTH PLAIN AHJlZnVzZQBw\r\n",
            "EHLO a\r\nMAIL FROM:<a> SIZE=1 \r\nMAIL FROM:<b>\r\nRCPT   TO:<c>\r\nDATA\r\nQUIT\r\n",
        ],
    ),
];

#[test]
fn a_real_nginx_says_the_same() {
    if !std::path::Path::new(NGINX).exists() || !std::path::Path::new(NGINX_MAIL).exists() {
        testkit::missing_peer("no nginx with its mail module: nothing is compared");
        return;
    }
    let ((imap, told_imap), (pop3, told_pop3), (smtp, told_smtp)) = (imap_server(false), pop3_server(), smtp_server());
    let (auth, told) = auth(move |request| match request {
        r if r.contains("Auth-User: refuse\n") => "HTTP/1.0 200 OK\r\nAuth-Status: not you\r\n\r\n".into(),
        r if r.contains("Auth-Protocol: imap\n") => pass_to(imap, "Auth-User: another one\r\n"),
        r if r.contains("Auth-Protocol: pop3\n") => pass_to(pop3, ""),
        _ => pass_to(smtp, ""),
    });
    let ports: Vec<u16> = (0..6).map(|_| free_port()).collect();
    let conf = |ports: &[u16]| {
        let servers: String = ["imap", "pop3", "smtp"]
            .iter()
            .zip(ports)
            .map(|(protocol, port)| format!("server {{ listen 127.0.0.1:{port}; protocol {protocol}; }} "))
            .collect();
        format!(
            "mail {{ auth_http 127.0.0.1:{auth}/a; server_name mx.example; max_errors 100; smtp_capabilities \"SIZE 1\" 8BITMIME;
             smtp_auth plain login none; auth_http_header X-Key value; {servers} }}"
        )
    };
    let site = Site::new("daemon off;", &conf(&ports[..3]));
    let running = site.start();
    let theirs = format!(
        "load_module {NGINX_MAIL}; error_log {0}/logs/theirs.log; pid {0}/logs/theirs.pid; daemon off; master_process off; \
         events {{ }} {1}",
        site.dir.display(),
        conf(&ports[3..])
    );
    site.write("conf/theirs.conf", &theirs);
    let mut nginx = Command::new(NGINX)
        .arg("-p")
        .arg(&site.dir)
        .args(["-c", "conf/theirs.conf"])
        .stderr(Stdio::null())
        .spawn()
        .expect("nginx starts");
    wait("nginx", || std::net::TcpStream::connect(("127.0.0.1", ports[3])));
    let run = |port: u16, talk: &str| {
        let mut client = Client::new(port);
        client.send(talk);
        let said = client.rest();
        let peers: Vec<String> =
            [&told, &told_imap, &told_pop3, &told_smtp].iter().flat_map(|told| told.take()).collect();
        (said, peers)
    };
    let mut differences = Vec::new();
    for (i, (_, talks)) in TALKS.iter().enumerate() {
        for talk in *talks {
            let (ours, theirs) = (run(ports[i], talk), run(ports[i + 3], talk));
            if ours != theirs {
                differences.push(format!("{talk:?}\nours:   {ours:?}\ntheirs: {theirs:?}"));
            }
        }
    }
    let _ = nginx.kill();
    let _ = nginx.wait();
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    running.quit();
    site.assert_no_alerts();
}
