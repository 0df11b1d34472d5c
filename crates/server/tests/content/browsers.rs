//! A real browser as the client: Chromium opens a WebSocket over HTTP/2, talks, and sees it closed cleanly (RFC 8441, 5); it loads a
//! page over HTTP/3, before and after a reload; it shows the dashboard. Skipped, with a message, where no Chromium is installed.

use crate::support;

use aws_lc_rs::digest::{SHA256, digest};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use rcgen::PublicKeyData as _;
use std::process::{Child, Command, Stdio};
use support::client::Client;
use support::origin::{Origin, Talk};
use support::{Site, free_port, wait};

const PAGE: &str = r#"<!doctype html><title>waiting</title><body>waiting<script>
const socket = new WebSocket("wss://" + location.host + "/socket");
let heard = "";
socket.onopen = () => socket.send("there and back");
socket.onmessage = (event) => { heard = event.data; socket.close(1000, "done"); };
socket.onclose = (event) => {
  fetch(`/over?heard=${encodeURIComponent(heard)}&clean=${event.wasClean}&code=${event.code}`);
};
</script>"#;

/// Echoes text frames, answers a Close frame by one, and ends (RFC 6455, 5).
fn echo(talk: &mut Talk<'_>) {
    talk.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    loop {
        // Short frames of a browser: two octets, a mask of four, at most 125 of payload.
        let whole = |bytes: &[u8]| Some(6 + usize::from(bytes.get(1)? & 0x7f)).filter(|n| bytes.len() >= *n);
        let Some(frame) = talk.until(whole) else { return };
        let (opcode, mask) = (frame[0] & 0x0f, &frame[2..6]);
        let payload: Vec<u8> = frame[6..].iter().zip(mask.iter().cycle()).map(|(octet, key)| octet ^ key).collect();
        let mut answer = vec![0x80 | opcode, payload.len() as u8];
        answer.extend_from_slice(&payload);
        talk.send(&answer);
        if opcode == 8 {
            return;
        }
    }
}

fn chromium() -> Option<&'static str> {
    let runs = |name: &&str| {
        let status = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(runs)
}

/// A running browser; ended on drop.
struct Browser(Child);

impl Browser {
    fn open(program: &str, site: &Site, options: &[&str], url: &str) -> Browser {
        let child = Command::new(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .arg("--remote-debugging-port=0")
            .args(options)
            .arg(format!("--user-data-dir={}", site.path("profile").display()))
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Browser(child.expect("the browser starts"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_websocket_over_http2_closes_clean() {
    let Some(browser) = chromium() else {
        return testkit::missing_peer("no Chromium is installed (Debian's package chromium)");
    };
    let origin = Origin::new(|mut talk| {
        if talk.request().is_some() {
            echo(&mut talk);
        }
    });
    let port = free_port();
    let site = Site::new(
        "daemon off;",
        &format!(
            "http {{ log_format own '$server_protocol $request_method $request_uri $status'; access_log logs/access.log own;
              map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}
              server {{ listen 127.0.0.1:{port} ssl; http2 on; ssl_certificate cert.pem; ssl_certificate_key key.pem;
               location / {{ root html; default_type text/html; }} location = /over {{ return 204; }}
               location /socket {{ proxy_pass http://127.0.0.1:{}; proxy_http_version 1.1;
                proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade; }} }} }}",
            origin.port
        ),
    );
    let key = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
    site.write("conf/cert.pem", &key.cert.pem());
    site.write("conf/key.pem", &key.signing_key.serialize_pem());
    site.write("html/index.html", PAGE);
    let running = site.start();
    let url = format!("https://localhost:{port}/");
    let child = Browser::open(browser, &site, &["--ignore-certificate-errors"], &url);
    wait("the socket's end in the access log", || {
        let log = site.read("logs/access.log");
        (log.contains("/over?") && log.contains("/socket")).then_some(()).ok_or(log)
    });
    drop(child);
    let log = site.read("logs/access.log");
    assert!(log.contains("HTTP/2.0 GET / 200"), "{log}");
    assert!(log.contains("/over?heard=there%20and%20back&clean=true&code=1000 204"), "{log}");
    assert!(log.contains("HTTP/2.0 GET /socket 200"), "the WebSocket has a stream of the page's connection: {log}");
    running.quit();
    site.assert_no_alerts();
}

/// Tells the server, again and again, which protocols the page and each request came by.
const TIMING_PAGE: &str = r#"<!doctype html><title>timing</title><script>
const page = performance.getEntriesByType("navigation")[0].nextHopProtocol;
let last = "none";
setInterval(async () => {
  await fetch(`/told?page=${page}&last=${last}`);
  last = performance.getEntriesByType("resource").pop().nextHopProtocol;
  performance.clearResourceTimings();
}, 100);
</script>"#;

#[test]
fn a_page_over_http3_outlives_a_reload() {
    let Some(browser) = chromium() else {
        return testkit::missing_peer("no Chromium is installed (Debian's package chromium)");
    };
    let port = free_port();
    let conf = |log: &str| {
        format!(
            "http {{ log_format own '$server_protocol $request_uri $status $connection'; access_log logs/{log}.log own;
              server {{ listen 127.0.0.1:{port} quic; ssl_certificate cert.pem; ssl_certificate_key key.pem;
               location / {{ root html; default_type text/html; }} location = /told {{ return 204; }} }} }}"
        )
    };
    let site = Site::new("daemon off;", &conf("before"));
    let key = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
    site.write("conf/cert.pem", &key.cert.pem());
    site.write("conf/key.pem", &key.signing_key.serialize_pem());
    site.write("html/index.html", TIMING_PAGE);
    let running = site.start();
    // Over QUIC, Chromium trusts a certificate of no public authority only by its key.
    let trusted = BASE64_STANDARD.encode(digest(&SHA256, &key.signing_key.subject_public_key_info()));
    let options = [
        format!("--origin-to-force-quic-on=localhost:{port}"),
        format!("--ignore-certificate-errors-spki-list={trusted}"),
        "--host-resolver-rules=MAP localhost 127.0.0.1".into(),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let child = Browser::open(browser, &site, &options, &format!("https://localhost:{port}/"));
    let told = |log: &str| {
        wait(&format!("two requests of the page in {log}.log"), || {
            let text = site.read(&format!("logs/{log}.log"));
            let line = text.lines().find(|line| line.contains("/told?page=h3&last=h3"));
            line.map(str::to_string).ok_or(text)
        })
    };
    let before = told("before");
    site.configure("daemon off;", &conf("after"));
    running.signal("HUP");
    let after = told("after");
    drop(child);
    assert!(before.starts_with("HTTP/3.0 ") && after.starts_with("HTTP/3.0 "), "{before}\n{after}");
    // One connection, or the reload would have ended it.
    let connection = |line: &str| line.rsplit(' ').next().map(str::to_string);
    assert_eq!(connection(&before), connection(&after));
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn the_dashboard_loads_its_files_and_opens_its_stream() {
    let Some(browser) = chromium() else {
        return testkit::missing_peer("no Chromium is installed (Debian's package chromium)");
    };
    let port = free_port();
    let site = Site::new(
        "daemon off;",
        &format!(
            "http {{ log_format own '$request_method $uri $status $bytes_sent'; access_log logs/access.log own;
              server {{ listen 127.0.0.1:{port}; location /dash/ {{ dashboard; }} }} }}"
        ),
    );
    let running = site.start();
    let child = Browser::open(browser, &site, &[], &format!("http://127.0.0.1:{port}/dash/"));
    // The page's policy permits its own script and style. The stream is logged at its end: reloads end it, one after the
    // other, as it may begin between two.
    let mut loads = 1;
    let log = wait("the stream in the access log", || {
        let log = site.read("logs/access.log");
        if log.contains("GET /dash/events 200") {
            return Ok(log);
        }
        if log.contains("GET /dash/dashboard.js 200") {
            running.signal("HUP");
            loads += 1;
            wait("the reload", || {
                let request = "GET /dash/data HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
                let (_, data) = Client::connect(port)?.ask(request)?;
                if data.contains(&format!("serves as configuration {loads}<")) { Ok(()) } else { Err(data) }
            });
        }
        Err(log)
    });
    drop(child);
    for path in ["/dash/ 200", "/dash/dashboard.css 200"] {
        assert!(log.contains(path), "no {path}: {log}");
    }
    assert!(!log.contains("/favicon.ico"), "{log}");
    running.quit();
    site.assert_no_alerts();
}
