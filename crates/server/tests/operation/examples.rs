//! The configurations in `examples/`: `-t` takes them, and each serves what lies beside it.

use crate::support;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use support::client::Client;
use support::{Site, free_port, text, wait};

/// A copy of an example with another port, so that tests can run beside each other and beside a server.
fn copied(name: &str) -> (Site, u16) {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let site = Site::new("", "");
    copy(&source, &site.dir);
    let conf = std::fs::read_to_string(source.join("nginx.conf")).expect("the example");
    let port = free_port();
    let line = conf.lines().find(|line| line.trim_start().starts_with("listen ")).expect("it listens");
    let address = line.split_whitespace().nth(1).expect("an address");
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    // The log where the tests look for it; of 16 threads two are enough here, and not every user may have that many files.
    let conf = cases::replace_address(&conf, address, &format!("127.0.0.1:{port}"))
        .replace("worker_processes 16;", "worker_processes 2;");
    let conf = conf.replace("worker_rlimit_nofile 262144;", "worker_rlimit_nofile 1024;");
    let conf = conf.replace("error_log error.log;", "error_log logs/error.log;");
    site.write("nginx.conf", &conf.replace("error_log stderr warn;", "error_log logs/error.log warn;"));
    (site, port)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("readable").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

fn serves(name: &str, requests: &[(&str, &str, &str)]) {
    let (site, port) = copied(name);
    let tested = site.run(&["-t", "-c", "nginx.conf"]);
    assert!(tested.status.success(), "{name}: {}", text(&tested.stderr));
    assert!(text(&tested.stderr).contains("syntax is ok"), "{}", text(&tested.stderr));
    let mut child = site.command(&["-c", "nginx.conf"]).spawn().expect("starts");
    let mut client = wait("a connection", || Client::connect(port));
    for (request, field, words) in requests {
        let (status, head) = client.ask_for_head(&request.replace("$port", &port.to_string())).expect("answered");
        assert_eq!(status, 200, "{request}: {head}");
        assert!(head.contains(field), "{request}: {field} is missing in {head}");
        if !words.is_empty() {
            let (_, body) = client.ask(request).expect("answered");
            assert!(body.contains(words), "{request}: {body}");
        }
    }
    drop(client);
    support::signal(child.id(), "QUIT");
    wait("the end", || child.try_wait().expect("wait").ok_or("it runs"));
    site.assert_no_alerts();
}

#[test]
fn static_content() {
    serves(
        "static-content",
        &[
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "Content-Type: text/html", "Static content"),
            ("GET /files/tides.html HTTP/1.1\r\nHost: a\r\n\r\n", "Cache-Control: max-age=2592000", "Tides of a day"),
            (
                "GET /files/tides.html HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n",
                "Content-Encoding: gzip",
                "",
            ),
        ],
    );
}

#[test]
fn localhost_benchmark() {
    serves(
        "localhost-benchmark",
        &[("GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n", "Content-Type: text/", "Ready to be measured")],
    );
}

/// A process that is ended with the test.
struct Stopped(std::process::Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        // TERM, so that its own processes end with it.
        support::signal(self.0.id(), "TERM");
        let _ = self.0.wait();
    }
}

#[test]
fn php_behind_apache() {
    let apache = "/usr/sbin/apache2";
    let php = std::fs::read_dir("/etc/apache2/mods-available").is_ok_and(|entries| {
        entries.flatten().any(|e| e.file_name().to_str().is_some_and(|n| n.starts_with("php") && n.ends_with(".load")))
    });
    if !Path::new(apache).exists() || !php {
        testkit::missing_peer("there is no Apache with PHP here");
        return;
    }
    let (site, port) = copied("php-behind-apache");
    let behind = free_port().to_string();
    for file in ["nginx.conf", "apache.conf"] {
        let text = cases::replace_address(&site.read(file), "127.0.0.1:8083", &format!("127.0.0.1:{behind}"));
        site.write(file, &text);
    }
    let mut command = std::process::Command::new(apache);
    command.arg("-f").arg(site.path("apache.conf")).arg("-DFOREGROUND").env("APACHE_DIR", &site.dir);
    // Apache ends with a signal to its process group, which must not be the test's.
    let _apache = Stopped(command.process_group(0).spawn().expect("Apache starts"));
    wait("Apache", || Client::connect(behind.parse().expect("a port")));
    let child = site.command(&["-c", "nginx.conf"]).spawn().expect("starts");
    let mut client = wait("a connection", || Client::connect(port));
    let _ours = Stopped(child);
    let mut ask =
        |target: &str| client.ask(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")).expect("answered");
    for _ in 0..3 {
        let (status, body) = ask("/?name=%3Cb%3E");
        assert!(
            status == 200 && body.contains("Hello, &lt;b&gt;, from PHP; you come from 127.0.0.1."),
            "{status} {body}"
        );
        let (status, body) = ask("/harbour.svg");
        assert!(status == 200 && body.starts_with("<svg"), "{status} {body}");
        assert_eq!(ask("/none.php").0, 404);
        assert_eq!(ask("/.git/config").0, 403);
    }
}

#[test]
fn the_example_site_is_served() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/site");
    for name in ["index.html", "style.css", "notes/first.txt"] {
        assert!(folder.join(name).is_file(), "{name} is what README's first command serves");
    }
}

/// `lab/tls-proxy.toml` uses published files unchanged, except for paths, addresses and the user.
#[test]
fn a_published_configuration_is_taken_as_printed() {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/lab/tls-proxy");
    let site = Site::new("", "");
    std::fs::create_dir_all(site.path("conf.d")).expect("a directory");
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_string()]).expect("parameters");
    site.write("ecdsa.crt", &certificate.self_signed(&key).expect("signed").pem());
    site.write("ecdsa.key", &key.serialize_pem());
    site.write("mime.types", "types { text/html html; }");
    let dir = site.dir.display().to_string();
    let read = |name: &str| {
        let text = std::fs::read_to_string(source.join(name)).expect(name);
        let there =
            [("/etc/nginx/ssl", dir.as_str()), ("/etc/nginx", &dir), ("/var/log/nginx", &dir), ("/var/run", &dir)];
        let text = there.iter().fold(text, |text, (from, to)| text.replace(from, to));
        text.replace("<upstream_pri_ip_dns>", "127.0.0.1").replace("user nginx;", "")
    };
    site.write("nginx.conf", &read("nginx.conf"));
    let free: Vec<u16> = (0..4).map(|_| free_port()).collect();
    for name in ["files-default.conf", "proxy-default.conf"] {
        let at = |port: u16| format!("listen 127.0.0.1:{port} ssl reuseport;");
        let all: String = free.iter().map(|port| at(*port)).collect();
        let text = read(name)
            .replace("listen 443-446 ssl reuseport;", &all)
            .replace("listen 443 ssl reuseport;", &at(free[0]));
        site.write("conf.d/default.conf", &text);
        let tested = site.run(&["-t", "-c", "nginx.conf"]);
        assert!(tested.status.success(), "{name}: {}", text_of(&tested.stderr));
        assert!(!text_of(&tested.stderr).contains("[warn]"), "{name}: {}", text_of(&tested.stderr));
    }
}

fn text_of(bytes: &[u8]) -> String {
    text(bytes).to_string()
}
