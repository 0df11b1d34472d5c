//! `tidegate serve`: a directory, no configuration.

use crate::support;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use support::client::Client;
use support::{BINARY, Site, free_port, signal, text, wait};

struct Served {
    child: Child,
    out: BufReader<ChildStdout>,
    port: u16,
}

impl Served {
    /// Returns the address that it prints.
    fn start(site: &Site, arguments: &[&str]) -> Served {
        let mut child = Command::new(BINARY)
            .arg("serve")
            .args(arguments)
            .current_dir(site.path("html"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.trim_start().starts_with("http://") {
            line.clear();
            assert_ne!(out.read_line(&mut line).expect("readable"), 0, "it says where it serves");
        }
        let port =
            line.trim_end().trim_end_matches('/').rsplit(':').next().and_then(|p| p.parse().ok()).expect("a port");
        Served { child, out, port }
    }
    fn get(&self, path: &str) -> (u16, String) {
        let mut client = Client::connect(self.port).expect("connected");
        client.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).expect("answered")
    }
    /// Sends SIGINT; returns exit code and output.
    fn stop(mut self) -> (Option<i32>, String, String) {
        signal(self.child.id(), "INT");
        let (mut out, mut errors) = (String::new(), String::new());
        self.out.read_to_string(&mut out).expect("readable");
        self.child.stderr.take().expect("piped").read_to_string(&mut errors).expect("readable");
        (self.child.wait().expect("waited").code(), out, errors)
    }
}

fn refused(arguments: &[&str]) -> Output {
    Command::new(BINARY).arg("serve").args(arguments).output().expect("runs")
}

#[test]
fn a_directory_is_served_until_ctrl_c() {
    let site = Site::new("", "");
    std::fs::create_dir_all(site.path("html/sub/inner")).expect("a directory");
    site.write("html/index.html", "<h1>start</h1>");
    site.write("html/sub/a b.txt", "text");
    let served = Served::start(&site, &["--listen", &free_port().to_string()]);
    assert_eq!(served.get("/"), (200, "<h1>start</h1>".into()));
    assert_eq!(served.get("/sub/a%20b.txt"), (200, "text".into()));
    let (status, listing) = served.get("/sub/");
    assert!(
        status == 200 && listing.contains("href=\"a%20b.txt\"") && listing.contains("href=\"inner/\""),
        "{listing}"
    );
    assert_eq!(served.get("/none").0, 404);
    assert_eq!(served.get("/../conf/nginx.conf").0, 400);
    let (code, log, errors) = served.stop();
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let lines: Vec<&str> = log.lines().filter(|line| line.starts_with("127.0.0.1")).collect();
    // Several threads write it: the order is theirs.
    assert!(lines.contains(&"127.0.0.1  200  14  GET /"), "{log}");
    assert_eq!(lines.len(), 5, "{log}");
}

#[test]
fn browsers_may_keep_what_has_not_changed() {
    let site = Site::new("", "");
    site.write("html/a.css", "p { }");
    let served = Served::start(&site, &["--listen", &free_port().to_string()]);
    let mut client = Client::connect(served.port).expect("connected");
    let (_, head) = client.ask_for_head("GET /a.css HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("answered");
    for line in ["Content-Type: text/css", "Cache-Control: no-cache", "Last-Modified: ", "ETag: "] {
        assert!(head.contains(line), "{line} is not in:\n{head}");
    }
    let tag = head.lines().find_map(|line| line.strip_prefix("ETag: ")).expect("a tag").to_string();
    let again = format!("GET /a.css HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\n\r\n");
    assert_eq!(client.ask_for_head(&again).expect("answered").0, 304);
    assert_eq!(served.stop().0, Some(0));
}

#[test]
fn a_directory_with_an_odd_name() {
    let site = Site::new("", "");
    for name in ["a $x \"y\" \\z", "plain \"quoted\" \\ name"] {
        let dir = site.path(name);
        std::fs::create_dir(&dir).expect("a directory");
        std::fs::write(dir.join("f"), name).expect("a file");
        let served = Served::start(&site, &[dir.to_str().expect("text"), "--listen", &free_port().to_string()]);
        assert_eq!(served.get("/f"), (200, name.into()));
        assert_eq!(served.stop().0, Some(0));
    }
}

#[test]
fn without_an_address_a_free_port_is_found() {
    let site = Site::new("", "");
    site.write("html/x", "x");
    let (one, two) = (Served::start(&site, &[]), Served::start(&site, &["."]));
    assert_ne!(one.port, two.port);
    for served in [one, two] {
        wait("an answer", || if served.get("/x").0 == 200 { Ok(()) } else { Err("none") });
        assert_eq!(served.stop().0, Some(0));
    }
}

#[test]
fn folders_that_cannot_be_served_are_refused() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = taken.local_addr().expect("address").to_string();
    for (arguments, want) in [
        (&["/none/such"][..], "tidegate: directory \"/none/such\" does not exist\n"),
        (
            &["/etc/passwd"][..],
            "tidegate: \"/etc/passwd\" is not a directory; to serve its folder: tidegate serve /etc\n",
        ),
        (
            &["--listen", "nowhere"][..],
            "tidegate: \"nowhere\" is not an address: write 8080, 127.0.0.1:8080 or [::1]:8080\n",
        ),
        (&["--listen", &address][..], "is in use by another program; choose another port with --listen\n"),
    ] {
        let output = refused(arguments);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).ends_with(want), "{}", text(&output.stderr));
    }
}

#[test]
fn the_printed_configuration_is_one_that_works() {
    let site = Site::new("", "");
    let output = Command::new(BINARY).args(["serve", "--print"]).current_dir(site.path("html")).output().expect("runs");
    site.write("conf/nginx.conf", &text(&output.stdout));
    let tested = site.run(&["-t"]);
    assert!(tested.status.success(), "{}", text(&tested.stderr));
}

#[test]
fn tls_with_an_authority_of_ones_own() {
    let site = Site::new("", "");
    site.write("html/x", "over tls");
    let data = site.path("data");
    let start = || {
        let port = free_port();
        let mut child = Command::new(BINARY)
            .args(["serve", "--tls", "--listen", &port.to_string()])
            .current_dir(site.path("html"))
            .env("XDG_DATA_HOME", &data)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.starts_with("Press") {
            line.clear();
            assert_ne!(out.read_line(&mut line).expect("readable"), 0, "it says that it serves");
        }
        (child, port, out)
    };
    let curl = |port: u16, host: &str, authority: &str| {
        let url = format!("https://{host}:{port}/x");
        let got = Command::new("curl")
            .args(["-s", "-g", "-m", "20", "-w", " %{http_version}", "--cacert", authority, &url])
            .output()
            .expect("curl");
        (got.status.code(), text(&got.stdout))
    };
    let authority = data.join("tidegate/local-authority.crt");
    let authority = authority.to_str().expect("text");
    let key = || std::fs::read(data.join("tidegate/local-authority.key")).expect("a key");
    let (mut first, port, _out) = start();
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(curl(port, host, authority), (Some(0), "over tls 2".into()), "{host}");
    }
    // Another authority is rejected.
    let key_of_another = rcgen::KeyPair::generate().expect("a key");
    let other = rcgen::CertificateParams::default().self_signed(&key_of_another).expect("signed").pem();
    site.write("other.crt", &other);
    assert_eq!(curl(port, "localhost", site.path("other.crt").to_str().expect("text")).0, Some(60));
    let before = key();
    let (mut second, port, _out) = start();
    assert_eq!(key(), before, "the authority stays");
    assert_eq!(curl(port, "localhost", authority).0, Some(0));
    use std::os::unix::fs::PermissionsExt;
    let mode = |name: &str| std::fs::metadata(data.join(name)).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode("tidegate"), mode("tidegate/local-authority.key")), (0o700, 0o600));
    for child in [&mut first, &mut second] {
        signal(child.id(), "INT");
        assert_eq!(child.wait().expect("waited").code(), Some(0));
    }
    // Reports a damaged key, and does not overwrite it.
    std::fs::write(data.join("tidegate/local-authority.key"), "no key").expect("written");
    let refused = Command::new(BINARY).args(["serve", "--tls"]).env("XDG_DATA_HOME", &data).output().expect("runs");
    assert!(text(&refused.stderr).contains("local-authority.key: ") && refused.status.code() == Some(1));
    assert_eq!(key(), b"no key");
}
