//! The configurations in `examples/`: `-t` takes them, and each serves what lies beside it.

mod support;

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
    let conf =
        conf.replace(address, &format!("127.0.0.1:{port}")).replace("worker_processes 16;", "worker_processes 2;");
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

/// Tests it, starts it, asks.
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

#[test]
fn site() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/site");
    for name in ["index.html", "style.css", "notes/first.txt"] {
        assert!(folder.join(name).is_file(), "{name} is what README's first command serves");
    }
}
