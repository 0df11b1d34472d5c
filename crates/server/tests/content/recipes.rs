//! Starts every configuration of `examples/recipes` on free ports, with simulated applications, and sends requests.

mod everyday;

use crate::support;

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use support::client::Client;
use support::mail::{auth, imap_server, pass_to, pop3_server, smtp_server};
use support::origin::{Origin, Talk, ok};
use support::provider::Provider;
use support::{Running, Site, free_port, http2, text, wait};

const RECIPES: &[&str] = &[
    "basic-auth",
    "bots",
    "cache",
    "canary",
    "cdn",
    "compression",
    "cors",
    "error-page",
    "grpc",
    "http-to-https",
    "json-log",
    "json-routing",
    "load-balancing",
    "login",
    "mail",
    "maintenance",
    "mtls",
    "php",
    "rate-limit",
    "security-headers",
    "several-sites",
    "spa",
    "static-site",
    "subfolder",
    "tcp",
    "tls-proxy",
    "tokens",
    "unix-socket",
    "uploads",
    "websocket",
    "wordpress",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// With the test's addresses, folders and files in place of the written ones.
struct Recipe {
    site: Site,
    text: String,
}

impl Recipe {
    fn new(name: &str) -> Recipe {
        let text = std::fs::read_to_string(root().join(format!("examples/recipes/{name}.conf"))).expect(name);
        let site = Site::new("", "");
        for file in ["mime.types", "fastcgi_params"] {
            std::fs::copy(root().join("packaging").join(file), site.path("conf").join(file)).expect(file);
        }
        Recipe { site, text }
    }
    fn with(mut self, from: &str, to: &str) -> Recipe {
        assert!(self.text.contains(from), "{from} is not in the recipe");
        self.text = cases::replace_address(&self.text, from, to);
        self
    }
    /// Replaces the port by a free one.
    fn listen(mut self, port: u16) -> (Recipe, u16) {
        let free = free_port();
        let mut found = false;
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let is_it = words.next() == Some("listen")
                && words.next().is_some_and(|word| word.trim_end_matches(';') == port.to_string());
            found |= is_it;
            if is_it { line.replacen(&port.to_string(), &format!("127.0.0.1:{free}"), 1) } else { line.to_string() }
        };
        self.text = self.text.lines().map(line).collect::<Vec<_>>().join("\n");
        assert!(found, "the recipe does not listen on {port}");
        (self, free)
    }
    fn file(self, path: &str, text: &str) -> Recipe {
        let path = self.site.path(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
        self
    }
    /// Replaces a folder by the site's.
    fn folder(self, from: &str) -> Recipe {
        let to = self.site.dir.display().to_string();
        self.with(from, &to)
    }
    /// Replaces the certificate of a host.
    fn certificate(self, host: &str) -> Recipe {
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = rcgen::CertificateParams::new(vec![host.to_string()]).expect("parameters");
        let pem = certificate.self_signed(&key).expect("signed").pem();
        self.file("fullchain.pem", &pem)
            .file("privkey.pem", &key.serialize_pem())
            .folder(&format!("/etc/letsencrypt/live/{host}"))
    }
    fn site(self) -> Site {
        self.site.write("conf/nginx.conf", &format!("daemon off; worker_processes 2;\n{}", self.text));
        let tested = self.site.run(&["-t"]);
        let said = text(&tested.stderr);
        assert!(tested.status.success() && !said.contains("[warn]"), "{said}");
        self.site
    }
}

fn get(port: u16, host: &str, path: &str, more: &str) -> (u16, String, String) {
    let mut client = wait("a connection", || Client::connect(port));
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n");
    let (status, head) = client.ask_for_head(&request).expect("answered");
    let mut client = Client::connect(port).expect("connected");
    let (_, body) = client.ask(&request).expect("answered");
    (status, head, body)
}

/// Status and body of a response that must be requested only once.
fn body(port: u16, path: &str, more: &str) -> (u16, String) {
    let mut client = wait("a connection", || Client::connect(port));
    client
        .ask(&format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n{more}Connection: close\r\n\r\n"))
        .expect("answered")
}

fn end(running: Running<'_>) {
    let site = running.site;
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn every_recipe_is_tested_here_and_shown_in_its_document() {
    let mut found: Vec<String> = std::fs::read_dir(root().join("examples/recipes"))
        .expect("recipes")
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    found.sort();
    assert_eq!(found, RECIPES.iter().map(|name| format!("{name}.conf")).collect::<Vec<_>>());
    for name in RECIPES {
        let conf = Recipe::new(name).text;
        let document = std::fs::read_to_string(root().join(format!("docs/recipes/{name}.md"))).expect(name);
        assert!(document.contains(&format!("```nginx\n{conf}```")), "docs/recipes/{name}.md shows another text");
    }
}

/// Returns all files below a folder whose names end with `.conf`.
fn configurations(folder: &Path, out: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            configurations(&path, out);
        } else if path.extension().is_some_and(|end| end == "conf") {
            out.push(path);
        }
    }
}

/// Tells whether a file includes another one of its folder.
fn includes(file: &Path, other: &Path) -> bool {
    let text = std::fs::read_to_string(file).expect("a configuration");
    let mut lines = text.lines().filter_map(|line| line.trim().strip_prefix("include "));
    lines.any(|name| Some(name.trim().trim_end_matches(';')) == other.file_name().and_then(|name| name.to_str()))
}

/// Files of other programs; configurations that nginx's authors printed, with their placeholders.
const NOT_OURS: &[&str] = &["logrotate.conf", "apache.conf", "php-fpm.conf", "tls-proxy/"];

#[test]
fn examples_and_packaged_configurations_have_no_findings() {
    let mut all = Vec::new();
    for folder in ["examples", "packaging"] {
        configurations(&root().join(folder), &mut all);
    }
    let is_ours = |path: &Path| !NOT_OURS.iter().any(|part| path.to_string_lossy().contains(part));
    all.retain(|path| is_ours(path));
    assert!(all.len() > RECIPES.len() + 5, "{all:?}");
    for path in all {
        let site = Site::new("", "");
        for file in ["mime.types", "fastcgi_params", "scgi_params", "uwsgi_params"] {
            let _ = std::fs::copy(root().join("packaging").join(file), site.path("conf").join(file));
        }
        let conf = std::fs::read_to_string(&path).expect("a configuration");
        let mut others = Vec::new();
        configurations(path.parent().expect("a folder"), &mut others);
        others.retain(|other| *other != path);
        if others.iter().any(|other| includes(other, &path)) {
            // Checked with the file that includes it.
            continue;
        }
        for other in others.iter().filter(|other| includes(&path, other) || others.iter().any(|by| includes(by, other)))
        {
            let name = other.file_name().expect("a name");
            std::fs::copy(other, site.path("conf").join(name)).expect("a copy");
        }
        site.write("conf/nginx.conf", &conf);
        let mut lint = Command::new(support::BINARY);
        let out = lint
            .arg("lint")
            .arg("-p")
            .arg(&site.dir)
            .args(["-c", "conf/nginx.conf"])
            .output()
            .expect("the program runs");
        let said = format!("{}{}", text(&out.stdout), text(&out.stderr));
        assert_eq!((out.status.code(), text(&out.stdout).trim()), (Some(0), "no findings"), "{path:?}: {said}");
    }
}

#[test]
fn static_site() {
    let (recipe, port) = Recipe::new("static-site").listen(80);
    let css = "a { color: red }\n".repeat(100);
    let site = recipe
        .folder("/var/www/example.com")
        .file("index.html", "home")
        .file("404.html", "not here")
        .file("assets/app.css", &css)
        .file(".git/config", "secret")
        .site();
    let running = site.start();
    assert_eq!(get(port, "example.com", "/", "").2, "home");
    let (status, head, _) = get(port, "example.com", "/assets/app.css", "Accept-Encoding: gzip\r\n");
    assert_eq!(status, 200);
    for field in ["Content-Type: text/css", "Content-Encoding: gzip", "Cache-Control: max-age=31536000", "immutable"] {
        assert!(head.contains(field), "{field}: {head}");
    }
    assert_eq!(get(port, "example.com", "/.git/config", "").0, 403);
    let (status, _, body) = get(port, "example.com", "/none", "");
    assert_eq!((status, body.as_str()), (404, "not here"));
    let (status, head, _) = get(port, "www.example.com", "/a?b", "");
    assert!(status == 301 && head.contains("Location: http://example.com/a?b\n"), "{head}");
    end(running);
}

/// Killed on drop.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        support::signal(self.0.id(), "TERM");
        let _ = self.0.wait();
    }
}

fn program(names: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin", "/usr/local/bin"].iter().find_map(|folder| {
        let is = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(names));
        std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(|path| is(path))
    })
}

#[test]
fn recipe_php() {
    let (recipe, port) = Recipe::new("php").listen(80);
    let site = recipe
        .folder("/var/www/example.com")
        .folder("/run/php")
        .file("public/index.php", "<?php echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'];")
        .file("public/style.css", "body { }")
        .file("public/uploads/evil.php", "<?php echo 'executed';")
        .site();
    let Some(fpm) = program("php-fpm") else {
        testkit::missing_peer("no php-fpm here");
        return;
    };
    let socket = site.path("php-fpm.sock");
    site.write(
        "php-fpm.conf",
        &format!(
            "[global]\ndaemonize = no\nerror_log = {}\n[www]\nlisten = {}\nlisten.mode = 0666\npm = static\npm.max_children = 5\n",
            site.path("logs/php.log").display(),
            socket.display()
        ),
    );
    let mut command = Command::new(fpm);
    command.arg("-n").arg("-R").arg("-y").arg(site.path("php-fpm.conf")).stdin(Stdio::null()).stderr(Stdio::null());
    // php-fpm that root starts needs the name of an account.
    if rustix::process::geteuid().is_root() {
        let conf = site.read("php-fpm.conf");
        site.write("php-fpm.conf", &format!("{conf}user = nobody\n"));
    }
    let _fpm = Program(command.spawn().expect("php-fpm starts"));
    wait("php-fpm", || std::os::unix::net::UnixStream::connect(&socket));
    let running = site.start();
    assert_eq!(get(port, "example.com", "/articles/7?x=1", "").2, "GET /articles/7?x=1");
    assert_eq!(get(port, "example.com", "/", "").2, "GET /");
    assert!(get(port, "example.com", "/style.css", "").1.contains("Content-Type: text/css"));
    assert_eq!(get(port, "example.com", "/uploads/evil.php", "").2, "<?php echo 'executed';");
    assert_eq!(get(port, "example.com", "/none.php", "").0, 404);
    end(running);
}

/// An application that echoes its request head, on a port in place of a recipe's.
fn echoing() -> Origin {
    Origin::answering(ok)
}

fn curl(arguments: &[&str]) -> Option<String> {
    let Some(curl) = program("curl") else {
        testkit::missing_peer("no curl here");
        return None;
    };
    let out = Command::new(curl).args(["-sS", "-k", "--max-time", "20"]).args(arguments).output().expect("curl runs");
    assert!(out.status.success(), "curl {arguments:?}: {}", text(&out.stderr));
    Some(text(&out.stdout))
}

#[test]
fn tls_proxy() {
    let app = echoing();
    let (recipe, clear) = Recipe::new("tls-proxy").listen(80);
    let (recipe, port) = recipe.listen(443);
    let site = recipe.certificate("example.com").with("127.0.0.1:3000", &format!("127.0.0.1:{}", app.port)).site();
    let running = site.start();
    let (status, head, _) = get(clear, "example.com", "/a", "");
    assert!(status == 301 && head.contains("Location: https://example.com/a\n"), "{head}");
    let to = format!("example.com:{port}:127.0.0.1");
    let url = format!("https://example.com:{port}/path?x");
    for _ in 0..2 {
        let Some(said) = curl(&["-i", "--http2", "--resolve", &to, &url]) else { break };
        for part in [
            "HTTP/2 200",
            "strict-transport-security: max-age=31536000",
            "GET /path?x HTTP/1.1",
            "Host: example.com\r\n",
            "X-Forwarded-For: 127.0.0.1\r\n",
            "X-Forwarded-Proto: https\r\n",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    assert!(app.connections() <= 2, "connections to the application are kept");
    end(running);
}

#[test]
fn json_routing() {
    // Responds with its name and the request's path and body.
    let app = |name: &'static str| {
        Origin::new(move |mut talk: Talk<'_>| {
            while let Some(request) = talk.request() {
                if !talk.send(&ok(&format!("{name} {request}"))) {
                    return;
                }
            }
        })
    };
    let (usual, reports) = (app("usual"), app("reports"));
    let (recipe, port) = Recipe::new("json-routing").listen(80);
    let recipe = recipe.with("127.0.0.1:3000", &format!("127.0.0.1:{}", usual.port));
    let site = recipe.with("127.0.0.1:3001", &format!("127.0.0.1:{}", reports.port)).site();
    let _running = site.start();
    let post = |kind: &str, body: &str| {
        let mut client = wait("a connection", || Client::connect(port));
        let head = format!("POST /rpc HTTP/1.1\r\nHost: example.com\r\nContent-Type: {kind}\r\nConnection: close\r\n");
        client.ask(&format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).expect("answered")
    };
    let report = r#"{"id":7,"method":"report.sales"}"#;
    let (status, seen) = post("application/json", report);
    assert!(status == 200 && seen.starts_with("reports POST /rpc/report.sales HTTP/1.1"), "{seen}");
    let (_, seen) = post("application/json; charset=utf-8", r#"{"method":"add"}"#);
    assert!(seen.starts_with("usual POST /rpc/add HTTP/1.1"), "{seen}");
    // Invalid, and of another type.
    for (kind, body) in [("application/json", "{"), ("text/plain", report)] {
        let (_, seen) = post(kind, body);
        assert!(seen.starts_with("usual POST /rpc/ HTTP/1.1"), "{seen}");
    }
    assert_eq!(post("application/json", &format!("\"{}\"", "x".repeat(70_000))).0, 413);
    assert_eq!(body(port, "/rpc/report.sales", "").0, 404);
}

#[test]
fn recipe_websocket() {
    // Switches protocols on request, then echoes.
    let app = Origin::new(|mut talk: Talk<'_>| {
        while let Some(request) = talk.request() {
            if !request.to_ascii_lowercase().contains("connection: upgrade") {
                if !talk.send(&ok(&request)) {
                    return;
                }
                continue;
            }
            talk.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
            while let Some(bytes) = talk.some() {
                talk.send(&bytes);
            }
        }
    });
    let (recipe, port) = Recipe::new("websocket").listen(80);
    let site = recipe.with("127.0.0.1:3000", &format!("127.0.0.1:{}", app.port)).site();
    let running = site.start();
    let (_, _, seen) = get(port, "example.com", "/page", "");
    assert!(seen.starts_with("GET /page HTTP/1.1\r\nHost: example.com\r\n"), "{seen}");
    assert!(!seen.to_ascii_lowercase().contains("upgrade"), "{seen}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
    stream
        .write_all(b"GET /chat HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    assert!(text(&head).starts_with("HTTP/1.1 101 "), "{}", text(&head));
    for message in [&b"\x81\x05hello"[..], b"\x81\x05again"] {
        stream.write_all(message).expect("sent");
        let mut back = [0; 7];
        stream.read_exact(&mut back).expect("sent back");
        assert_eq!(back, message);
    }
    drop(stream);
    end(running);
}

/// A gRPC service that echoes each message, with the status in the trailers.
fn service(mut talk: Talk<'_>) {
    let mut server = wire_h2::Server::new(wire_h2::ServerLimits::default());
    loop {
        let out = server.output().to_vec();
        server.advance(out.len());
        if !talk.send(&out) {
            return;
        }
        let Some(bytes) = talk.some() else { return };
        if server.receive(&bytes).is_err() {
            return;
        }
        let mut asked = Vec::new();
        while let Some(event) = server.poll_event() {
            if let http_types::Event::Head { stream, .. } = event {
                asked.push(stream as u32);
            }
        }
        for stream in asked {
            let fields = [(&b"content-type"[..], &b"application/grpc"[..])];
            server.send_head(stream, 200, fields.into_iter(), false);
            server.send_body(stream, b"\0\0\0\0\x02hi", 16_384, false);
            server.send_trailers(stream, [(&b"grpc-status"[..], &b"0"[..])].into_iter());
        }
    }
}

/// Calls a method. Returns fields and bytes.
fn call(port: u16, path: &str) -> (Vec<(String, String)>, Vec<u8>) {
    let mut client = http2::Client::connect(port);
    let mut block = Vec::new();
    client.encoder.begin(&mut block);
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "grpc.example.com"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        client.encoder.field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    client.send(&http2::frame(http2::HEADERS, 4, 1, &block));
    client.send(&http2::frame(http2::DATA, 1, 1, b"\0\0\0\0\x02hi"));
    let (mut fields, mut body) = (Vec::new(), Vec::new());
    let limits = http_types::ListLimits { bytes_max: 65_536, fields_max: 100, field_max: 65_536 };
    while let Some((kind, flags, stream, payload)) = client.next() {
        match kind {
            http2::HEADERS => {
                let list = client.decoder.decode(&payload, &limits).expect("a block");
                fields.extend(list.iter().map(|(name, value)| (text(name), text(value))));
            }
            http2::DATA => body.extend_from_slice(&payload),
            _ => {}
        }
        if stream == 1 && flags & 1 != 0 && matches!(kind, http2::HEADERS | http2::DATA) {
            return (fields, body);
        }
    }
    panic!("the connection ended: {fields:?}");
}

#[test]
fn recipe_grpc() {
    let server = Origin::new(service);
    let (recipe, port) = Recipe::new("grpc").listen(50050);
    let site = recipe.with("127.0.0.1:50051", &format!("127.0.0.1:{}", server.port)).site();
    let running = site.start();
    let has = |fields: &[(String, String)], name: &str, value: &str| {
        assert!(fields.iter().any(|(n, v)| n == name && v == value), "{name}: {value} is not in {fields:?}");
    };
    let (fields, body) = call(port, "/helloworld.Greeter/SayHello");
    has(&fields, ":status", "200");
    has(&fields, "grpc-status", "0");
    assert_eq!(body, b"\0\0\0\0\x02hi");
    let (fields, body) = call(port, "/other.Service/Call");
    has(&fields, ":status", "200");
    has(&fields, "content-type", "application/grpc");
    has(&fields, "grpc-status", "12");
    assert!(body.is_empty());
    drop(server);
    let (fields, _) = call(port, "/helloworld.Greeter/SayHello");
    has(&fields, ":status", "200");
    has(&fields, "grpc-status", "14");
    end(running);
}

#[test]
fn load_balancing() {
    let named = |name: &'static str| Origin::answering(move |_| ok(name));
    let fails = Arc::new(AtomicBool::new(false));
    let its = fails.clone();
    let first = Origin::answering(move |_| match its.load(Ordering::Relaxed) {
        true => b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec(),
        false => ok("first"),
    });
    let (second, spare) = (named("second"), named("spare"));
    let (mut recipe, port) = Recipe::new("load-balancing").listen(80);
    for (written, origin) in [("3001", &first), ("3002", &second), ("3003", &spare)] {
        recipe = recipe.with(&format!("127.0.0.1:{written}"), &format!("127.0.0.1:{}", origin.port));
    }
    // The check of the recipe takes seconds; the test does not.
    let site = recipe.with("interval=5s", "interval=100ms").site();
    let running = site.start();
    let until = |wanted: &[&str]| {
        wait("the servers that answer", || {
            let mut seen: Vec<String> = (0..6).map(|_| body(port, "/", "").1).collect();
            seen.sort();
            seen.dedup();
            if seen == wanted { Ok(()) } else { Err(format!("{seen:?}")) }
        });
    };
    until(&["first", "second"]);
    // A failing server costs no request: the next one is tried.
    fails.store(true, Ordering::Relaxed);
    assert!((0..4).all(|_| body(port, "/", "") == (200, "second".to_string())));
    fails.store(false, Ordering::Relaxed);
    until(&["first", "second"]);
    fails.store(true, Ordering::Relaxed);
    drop(second);
    until(&["spare"]);
    end(running);
}

#[test]
fn recipe_cache() {
    let is_down = Arc::new(AtomicBool::new(false));
    let its = is_down.clone();
    let app = Origin::answering(move |request| {
        let path = request.split(' ').nth(1).unwrap_or_default().to_string();
        match (its.load(Ordering::Relaxed), path.as_str()) {
            (true, _) => b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n".to_vec(),
            _ => ok(&path),
        }
    });
    let (recipe, port) = Recipe::new("cache").listen(80);
    let cache = recipe.site.path("cache").display().to_string();
    let site =
        recipe.with("/var/cache/tidegate", &cache).with("127.0.0.1:3000", &format!("127.0.0.1:{}", app.port)).site();
    let running = site.start();
    let state = |path: &str, more: &str| {
        let mut client = wait("a connection", || Client::connect(port));
        let request = format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n{more}Connection: close\r\n\r\n");
        let (status, head) = client.ask_for_head(&request).expect("answered");
        let state = head.lines().find_map(|line| line.strip_prefix("X-Cache: ")).unwrap_or_default().to_string();
        (status, state)
    };
    let said = |status: u16, word: &str| (status, word.to_string());
    assert_eq!(state("/page", ""), said(200, "MISS"));
    assert_eq!(state("/page", ""), said(200, "HIT"));
    assert_eq!(state("/page", "Cookie: session=1\r\n"), said(200, "BYPASS"));
    assert_eq!(state("/own", "Cookie: session=1\r\n"), said(200, "BYPASS"));
    assert_eq!(state("/own", ""), said(200, "MISS"), "pages of a session are not stored");
    is_down.store(true, Ordering::Relaxed);
    assert_eq!(state("/page", ""), said(200, "HIT"));
    assert_eq!(state("/new", "").0, 500);
    end(running);
}

#[test]
fn rate_limit() {
    let app = echoing();
    let (recipe, port) = Recipe::new("rate-limit").listen(80);
    let site = recipe
        .folder("/var/www/example.com")
        .file("index.html", "home")
        .file("downloads/file", "file")
        .with("127.0.0.1:3000", &format!("127.0.0.1:{}", app.port))
        .site();
    let running = site.start();
    // One and a burst of five; the next place is free after 12 seconds.
    let statuses: Vec<u16> = (0..12).map(|_| body(port, "/login", "").0).collect();
    assert!(statuses[..6].iter().all(|status| *status == 200), "{statuses:?}");
    assert!(statuses[6..].contains(&429), "{statuses:?}");
    assert_eq!(body(port, "/", ""), (200, "home".to_string()));
    assert_eq!(body(port, "/downloads/file", ""), (200, "file".to_string()));
    end(running);
}

#[test]
fn recipe_tokens() {
    // Signed with the key of the provider below.
    const USER: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6Im9uZSJ9.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUuY29tIiwiZXhwIjo0MTAyNDQ0ODAwLCJzdWIiOiJqb2UiLCJqdGkiOiIxIiwidGVuYW50IjoiYWNtZSIsInJvbGVzIjpbInVzZXIiXX0.cVo0LodXaf4SPaPSFJTi--ywC16B3ja0HAiTTirsneY";
    const ADMIN: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6Im9uZSJ9.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUuY29tIiwiZXhwIjo0MTAyNDQ0ODAwLCJzdWIiOiJhbm4iLCJqdGkiOiIyIiwidGVuYW50IjoiYWNtZSIsInJvbGVzIjpbInVzZXIiLCJhZG1pbiJdfQ.S9VPqI09rIJi_qVtDq-XOndS__09yzK9EYWnIFsqdkE";
    const REVOKED: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6Im9uZSJ9.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUuY29tIiwiZXhwIjo0MTAyNDQ0ODAwLCJzdWIiOiJldmUiLCJqdGkiOiJzdG9sZW4iLCJ0ZW5hbnQiOiJhY21lIn0.4rXwLHHEy1ld2irXcHtUUdOCpcqY2NC82MCTNKTMdys";
    const TENANTLESS: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6Im9uZSJ9.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUuY29tIiwiZXhwIjo0MTAyNDQ0ODAwLCJzdWIiOiJ0b20iLCJqdGkiOiIzIiwidGVuYW50Ijoib3RoZXIifQ.Y9GHdxqhw642IlYSavvcrjlAyJK3Ny-V8sF3kD8YwCo";
    const STRANGER: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6Im9uZSJ9.eyJpc3MiOiJodHRwczovL2Vsc2V3aGVyZS5leGFtcGxlIiwiZXhwIjo0MTAyNDQ0ODAwLCJzdWIiOiJtYXgiLCJqdGkiOiI0IiwidGVuYW50IjoiYWNtZSJ9.mTDcQOVHbaa3Wzgs9GsiKcfriNxBUl9gM0AW3RW9RKM";
    let provider = Origin::answering(|_| {
        ok(r#"{"keys":[{"kty":"oct","kid":"one","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"}]}"#)
    });
    let (app, admin) = (echoing(), echoing());
    let (recipe, port) = Recipe::new("tokens").listen(80);
    let site = recipe
        .folder("/var/lib/tidegate")
        .file("revoked.keyval", r#"{"stolen":"by eve"}"#)
        .file("backends.keyval", &format!("{{\"acme\":\"127.0.0.1:{}\"}}", app.port))
        .with("127.0.0.1:8180", &format!("127.0.0.1:{}", provider.port))
        .with("127.0.0.1:3000", &format!("127.0.0.1:{}", admin.port))
        .site();
    let running = site.start();
    let ask = |path: &str, token: &str| body(port, path, &format!("Authorization: Bearer {token}\r\n"));
    let (status, seen) = ask("/orders", USER);
    assert_eq!(status, 200);
    assert!(seen.contains("X-User: joe") && !seen.contains("Authorization"), "{seen}");
    assert_eq!(ask("/admin/", USER).0, 403);
    let (status, seen) = ask("/admin/", ADMIN);
    assert!(status == 200 && seen.contains("X-User: ann"), "{seen}");
    assert_eq!((ask("/", REVOKED).0, ask("/admin/", REVOKED).0), (401, 401));
    assert_eq!((ask("/", TENANTLESS).0, ask("/", STRANGER).0), (403, 401));
    assert_eq!((body(port, "/", "").0, body(port, "/jwks", "").0), (401, 404));
    assert_eq!(provider.connections(), 1, "the keys are kept");
    // Twenty-one failures, and none of the refusals above was one.
    let forged = USER.rsplit_once('.').expect("three parts").0.to_string() + ".AAAA";
    let statuses: Vec<u16> = (0..60).map(|_| ask("/", &forged).0).collect();
    assert!(statuses[..21].iter().all(|status| *status == 401), "{statuses:?}");
    assert!(statuses[21..].contains(&429), "{statuses:?}");
    end(running);
}

#[test]
fn recipe_login() {
    let (provider, app) = (Provider::start(), echoing());
    let issuer = provider.inner().issuer.clone();
    let (recipe, port) = Recipe::new("login").listen(443);
    let site = recipe
        .certificate("portal.example.com")
        .folder("/var/lib/tidegate")
        .with("https://login.example.com", &issuer)
        .with("client_id     portal", "client_id client")
        .with("secret of this client", "se cret+")
        .with("127.0.0.1:3000", &format!("127.0.0.1:{}", app.port))
        .site();
    let running = site.start();
    let (host, jar) = ("portal.example.com", site.path("jar").display().to_string());
    let to = format!("{host}:{port}:127.0.0.1");
    let ask = |path: &str| {
        let url = format!("https://{host}:{port}{path}");
        curl(&["-i", "-b", &jar, "-c", &jar, "--resolve", &to, &url])
    };
    let Some(sent) = ask("/orders") else { return end(running) };
    let location = |said: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix("Location: "));
        line.unwrap_or_else(|| panic!("no Location: {said}")).trim().to_string()
    };
    let log_in = |groups: fn(&mut serde_json::Value)| {
        provider.inner().claims = groups;
        let sent = ask("/orders").expect("answered");
        ask(&provider.agree(&location(&sent))).expect("answered")
    };
    assert!(
        location(&sent).starts_with(&issuer) && location(&sent).contains("scope=openid%20email%20groups"),
        "{sent}"
    );
    assert!(ask("/goodbye").expect("answered").contains("Good bye."));
    assert!(location(&log_in(|_| {})).ends_with("/orders"));
    let page = ask("/orders").expect("answered");
    assert!(page.contains("GET /orders HTTP/1.1") && page.contains("X-User: joe"), "{page}");
    assert!(ask("/admin/").expect("answered").starts_with("HTTP/1.1 403"));
    assert!(location(&ask("/logout").expect("answered")).starts_with(&format!("{issuer}/end?")));
    log_in(|claims| claims["groups"] = serde_json::json!(["staff", "admin"]));
    let page = ask("/admin/users").expect("answered");
    assert!(page.contains("GET /admin/users HTTP/1.1"), "{page}");
    assert!(ask(&format!("/logout-by-provider?iss={issuer}&sid=sid-1")).expect("answered").contains("200 OK"));
    assert!(location(&ask("/admin/").expect("answered")).starts_with(&issuer));
    assert!(ask("/is-admin").expect("answered").starts_with("HTTP/1.1 404"));
    end(running);
}

#[test]
fn recipe_mail() {
    let (imap, imap_told) = imap_server(false);
    let (pop3, pop3_told) = pop3_server();
    let (smtp, smtp_told) = smtp_server();
    let (auth, asked) = auth(move |request| {
        let port = match request.lines().find_map(|line| line.strip_prefix("Auth-Protocol: ")) {
            Some("imap") => imap,
            Some("pop3") => pop3,
            _ => smtp,
        };
        pass_to(port, "")
    });
    let (recipe, clear) = Recipe::new("mail").listen(143);
    let (recipe, imaps) = recipe.listen(993);
    let (recipe, pop3s) = recipe.listen(995);
    let (recipe, smtps) = recipe.listen(465);
    let site = recipe.certificate("mail.example.com").with("127.0.0.1:9000", &format!("127.0.0.1:{auth}")).site();
    let running = site.start();
    let mut client = support::mail::Client::greeted(clear);
    assert!(client.ask("a1 LOGIN user secret").starts_with("a1 BAD"), "no login in clear");
    assert!(client.ask("a2 STARTTLS").starts_with("a2 OK"));
    assert_eq!(asked.count(), 0);
    let logged_in = |url: &str, more: &[&str]| {
        let all: Vec<&str> = ["-u", "user:secret", url].iter().chain(more).copied().collect();
        curl(&all).is_some()
    };
    if logged_in(&format!("imaps://127.0.0.1:{imaps}/"), &["-X", "NOOP"]) {
        assert!(imap_told.take().iter().any(|line| line.ends_with("NOOP")));
        assert!(logged_in(&format!("pop3s://127.0.0.1:{pop3s}/"), &["-X", "NOOP", "-I"]));
        assert!(pop3_told.take().contains(&"PASS secret".to_string()));
        assert!(logged_in(&format!("smtps://127.0.0.1:{smtps}/"), &["-X", "NOOP"]));
        assert!(smtp_told.take().contains(&"NOOP".to_string()));
        assert!(asked.take().iter().all(|request| request.contains("Auth-User: user\n")));
    }
    drop(client);
    end(running);
}

#[test]
fn recipe_tcp() {
    let named = |name: &'static str| {
        Origin::new(move |mut talk: Talk<'_>| {
            if talk.some().is_some() {
                talk.send(name.as_bytes());
            }
        })
    };
    let (database, spare, by_name, other) = (named("database"), named("spare"), named("mail"), named("web"));
    let (recipe, port) = Recipe::new("tcp").listen(5432);
    let (recipe, tls) = recipe.listen(443);
    let (recipe, udp) = recipe.listen(53);
    let mut recipe = recipe.folder("/var/log/nginx");
    for (written, origin) in [("15432", &database), ("15433", &spare), ("10443", &by_name), ("20443", &other)] {
        recipe = recipe.with(&format!("127.0.0.1:{written}"), &format!("127.0.0.1:{}", origin.port));
    }
    let names = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let site = recipe.with("127.0.0.1:5353", &names.local_addr().expect("an address").to_string()).site();
    let running = site.start();
    let said = |port: u16, bytes: &[u8]| {
        let mut stream = wait("a connection", || TcpStream::connect(("127.0.0.1", port)));
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
        stream.write_all(bytes).expect("sent");
        let mut all = String::new();
        let _ = stream.read_to_string(&mut all);
        all
    };
    assert_eq!(said(port, b"hello"), "database");
    drop(database);
    assert_eq!(said(port, b"hello"), "spare");
    assert_eq!(said(tls, &hello("mail.example.com")), "mail");
    assert_eq!(said(tls, &hello("www.example.com")), "web");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let its = asked.clone();
    let answering = std::thread::spawn(move || {
        let mut buf = [0; 64];
        let (n, from) = names.recv_from(&mut buf).expect("a question");
        its.lock().expect("alive").extend_from_slice(&buf[..n]);
        names.send_to(b"answer", from).expect("sent");
    });
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    client.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
    client.send_to(b"question", ("127.0.0.1", udp)).expect("sent");
    let mut buf = [0; 64];
    let (n, _) = client.recv_from(&mut buf).expect("an answer");
    answering.join().expect("the name server");
    assert_eq!((&buf[..n], asked.lock().expect("alive").as_slice()), (&b"answer"[..], &b"question"[..]));
    let spare_address = format!("127.0.0.1:{}", spare.port);
    wait("the session's line", || {
        let log = site.read("stream.log");
        if log.contains(&spare_address) { Ok(()) } else { Err(log) }
    });
    end(running);
}

/// The first message of a TLS handshake, with a server's name (RFC 8446, 4.1.2; RFC 6066, 3).
fn hello(name: &str) -> Vec<u8> {
    let long = |bytes: Vec<u8>| [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat();
    let names = long([vec![0], long(name.as_bytes().to_vec())].concat());
    let extensions = long([vec![0, 0], long(names)].concat());
    let body = [vec![3, 3], vec![7; 32], vec![0], long(vec![0x13, 1]), vec![1, 0], extensions].concat();
    let message = [&[1, 0][..], &long(body)].concat();
    [vec![0x16, 3, 1], long(message)].concat()
}
