//! Bodies of the fuzz targets that need a whole configuration. They panic if an invariant is violated. `fuzz/` runs
//! them under libFuzzer, and `tests/operation/smoke.rs` with a seeded generator in every `cargo test`.

mod reloads;

pub use reloads::run_reloads;

use crate::conf::{self, Invocation};
use conf_schema::TextStore;
use conf_syntax::Disk;
use http_engine::{HttpPlan, ResponseBody};
use observe::log_file::LogFiles;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use worker::rehearsal::{self, RehearsalClient};

/// Contents that no response may contain: a file outside the root, the `.htaccess` file, a file of an `internal`
/// location.
const OUTSIDE: &str = "8c1d04e7-outside";
const RULES: &str = "5fb2a963-rules";
const INTERNAL: &str = "e07a3d18-internal";

struct Site {
    dir: PathBuf,
    html: PathBuf,
    plan: Arc<HttpPlan>,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Paths that a folder's `.htaccess` file and a client make together. Up to the first NUL the input is the file, behind it a request
/// target and, behind a line end, fields. `true`: a file or a text was the answer.
///
/// # Panics
/// A response contains one of the forbidden contents.
#[allow(clippy::expect_used, reason = "a fuzz target reports by panics")]
pub fn htaccess_request(data: &[u8]) -> bool {
    thread_local! {
        static SITE: Site = lay_out().expect("a site");
    }
    SITE.with(|site| answers_below_the_root(site, data))
}

#[allow(clippy::expect_used, reason = "a fuzz target reports by panics")]
fn answers_below_the_root(site: &Site, data: &[u8]) -> bool {
    let mut parts = data.splitn(2, |c| *c == 0);
    let (rules, request) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let rules = [format!("# {RULES}\n").as_bytes(), rules].concat();
    std::fs::write(site.html.join(".htaccess"), rules).expect("a file");
    let mut lines = request.splitn(2, |c| *c == b'\n');
    let (target, fields) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let (status, bytes) = ask(&site.plan, target, fields);
    // `try_files $arg_f` of the operator gives any client any file below the root, as in nginx.
    let any = data.windows(3).any(|word| word == b"try");
    for mark in [OUTSIDE, RULES, INTERNAL].into_iter().filter(|mark| !(any && *mark == INTERNAL)) {
        let found = bytes.windows(mark.len()).any(|text| text == mark.as_bytes());
        assert!(!found, "{mark}: {}", data.escape_ascii());
    }
    status == 200 && !bytes.is_empty()
}

/// The status and the body of an answer; 0 without one.
#[allow(clippy::expect_used, reason = "a fuzz target reports by panics")]
fn ask(plan: &Arc<HttpPlan>, target: &[u8], fields: &[u8]) -> (u16, Vec<u8>) {
    let head = [b"GET /", target, b" HTTP/1.1\r\nHost: a\r\n", fields, b"\r\n\r\n"].concat();
    let client = RehearsalClient { listener: 0, local: None, peer: None, tls: None };
    let Some((r, body)) = rehearsal::rehearse_request(plan, &client, &head, None) else { return (0, Vec::new()) };
    let bytes = match body {
        Some(ResponseBody::Bytes(bytes)) => bytes.to_vec(),
        Some(ResponseBody::File(part)) => {
            let mut bytes = vec![0; usize::try_from(part.length).expect("a small file")];
            part.file.file.read_exact_at(&mut bytes, part.start).expect("read");
            bytes
        }
        _ => Vec::new(),
    };
    (r.out.status(), bytes)
}

#[allow(clippy::expect_used, reason = "a fuzz target reports by panics")]
fn lay_out() -> std::io::Result<Site> {
    static SITES: AtomicU32 = AtomicU32::new(0);
    let number = SITES.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("tidegate-fuzz-{}-{number}", std::process::id()));
    let html = dir.join("html");
    for (name, text) in [
        ("secret.txt", OUTSIDE),
        ("html-old/secret.txt", OUTSIDE),
        ("html/a.txt", "a"),
        ("html/files/b.txt", "b"),
        ("html/files/.htpasswd", RULES),
        ("html/kept/in.txt", INTERNAL),
        ("html/short/c.txt", "c"),
    ] {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        std::fs::write(path, text)?;
    }
    let conf_file = dir.join("nginx.conf");
    std::fs::write(
        &conf_file,
        "events { } error_log stderr emerg; http { access_log off; server { listen 127.0.0.1:8080; root html; htaccess on;
            location / { } location /kept/ { internal; } location /s { alias html/short; } location /try { try_files $arg_f =404; }
            location ~ ^/reg/(.*)$ { alias html/files/$1; } location /made { rewrite ^ /files/$arg_f last; } } }",
    )?;
    let pid = dir.join("pid");
    let invocation = Invocation {
        prefix: dir.clone(),
        conf_file,
        error_log: None,
        error_log_said: false,
        pid,
        globals: Vec::new(),
        text: None,
    };
    let reading = conf::read_config(&Disk, TextStore::default(), &invocation, LogFiles::default());
    let config = reading.config.expect("a configuration");
    let plan = config.http.expect("an http block");
    assert_eq!(ask(&plan, b"files/b.txt", b""), (200, b"b".to_vec()));
    Ok(Site { dir, html, plan })
}

/// A request of the API, which has groups, pairs and zones: see `http_api::fuzzing::api`. Returns the status.
#[allow(clippy::expect_used, reason = "a fuzz target reports by panics")]
pub fn api(data: &[u8]) -> u16 {
    thread_local! {
        static PLAN: Arc<HttpPlan> = api_plan();
    }
    PLAN.with(|plan| http_api::fuzzing::api(plan, data))
}

#[allow(clippy::expect_used, reason = "a fuzz target reports by panics")]
fn api_plan() -> Arc<HttpPlan> {
    let text = "events { } error_log stderr emerg; http { access_log off; limit_req_zone $uri zone=rate:32k rate=1r/s;
        keyval_zone zone=pairs:64k; keyval_zone zone=mortal:64k timeout=1h; keyval $uri $pair zone=pairs;
        upstream app { zone app 64k; server 127.0.0.1:1; server 127.0.0.1:2 backup; }
        upstream hashed { zone hashed 64k; server 127.0.0.1:1; hash $uri; } upstream fixed { server 127.0.0.1:1; }
        server { listen 127.0.0.1:8080; status_zone site; location /api { api write=on config=read; } } }
        stream { upstream tcp { zone tcp 64k; server 127.0.0.1:1; } server { listen 127.0.0.1:8081; proxy_pass tcp; } }";
    let invocation = Invocation {
        prefix: "/nowhere/".into(),
        conf_file: "/nowhere/n.conf".into(),
        error_log: None,
        error_log_said: false,
        pid: "/nowhere/pid".into(),
        globals: Vec::new(),
        text: Some(text.into()),
    };
    let reading = conf::read_config(&Disk, TextStore::default(), &invocation, LogFiles::default());
    let config = reading.config.expect("a configuration");
    // Groups of the stream block live as long as the inventory.
    config.http.expect("an http block")
}
