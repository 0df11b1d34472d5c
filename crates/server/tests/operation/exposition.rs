//! The page of metrics as others read it: OpenMetrics by strict readers, the names of nginx's exporter by its program.

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use support::client::Client;
use support::openmetrics::{self, Family};
use support::origin::{Origin, ok};
use support::{Site, free_port, text, wait};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

fn page(port: u16, path: &str, fields: &str) -> (u16, String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    Client::connect(port).and_then(|mut client| client.ask_for_all(&request)).expect("an answer")
}

fn get(port: u16, path: &str) -> u16 {
    page(port, path, "").0
}

fn everything(port: u16, watch: u16, stream: u16, origin: &Origin, more: &str) -> Site {
    let origin = format!("127.0.0.1:{}", origin.port);
    let conf = format!(
        "http {{
            proxy_cache_path cache keys_zone=store:1m max_size=1m;
            limit_req_zone $arg_key zone=rate:32k rate=1r/m;
            limit_conn_zone $arg_key zone=number:32k;
            resolver 127.0.0.1:1 status_zone=names;
            upstream app {{ zone app 64k; server {origin} max_conns=100; server 127.0.0.1:1 down; }}
            {more}
            server {{
                listen 127.0.0.1:{port}; status_zone site; root html; add_header X-Request $request_id;
                location / {{ status_zone app; proxy_pass http://app; }}
                location /cached {{ proxy_cache store; proxy_cache_valid 1h; proxy_pass http://app; }}
                location /limited {{ limit_req zone=rate; limit_conn number 9; alias html/slow; }}
                location /none {{ return 404; }}
                location /slow {{ status_zone slow; limit_rate 4k; limit_rate_after 1; alias html/slow; }}
            }}
            server {{
                listen 127.0.0.1:{watch};
                location /metrics {{ metrics; }}
                location = /fixed {{ metrics format=nginx; }}
                location /api {{ api; }}
                location = /status {{ stub_status; }}
            }}
        }}
        stream {{
            limit_conn_zone $remote_addr zone=sessions:32k;
            upstream tcp {{ zone tcp 64k; server {origin}; }}
            server {{ listen 127.0.0.1:{stream}; status_zone door; limit_conn sessions 10; proxy_pass tcp; }}
        }}"
    );
    let site = Site::new("daemon off; worker_processes 2;", &conf);
    site.write("html/slow", &"x".repeat(3000));
    site
}

fn visit(port: u16, stream: u16) {
    for (path, want) in [
        ("/", 200),
        ("/cached", 200),
        ("/cached", 200),
        ("/limited?key=a", 200),
        ("/limited?key=a", 503),
        ("/none", 404),
    ] {
        assert_eq!(get(port, path), want, "{path}");
    }
    assert_eq!(get(stream, "/"), 200);
}

fn scrape(port: u16) -> Vec<Family> {
    let (status, head, body) = page(port, "/metrics", "Accept: application/openmetrics-text\r\n");
    assert_eq!(status, 200);
    assert!(head.contains(OPENMETRICS), "{head}");
    openmetrics::parse(&body).unwrap_or_else(|why| panic!("{why}\n{body}"))
}

#[test]
fn openmetrics_is_negotiated_and_strict() {
    let (port, watch, stream) = (free_port(), free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = everything(port, watch, stream, &origin, "");
    let running = site.start();
    visit(port, stream);
    for (accept, want) in [
        ("", PROMETHEUS),
        ("Accept: */*\r\n", PROMETHEUS),
        (
            "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n",
            OPENMETRICS,
        ),
        ("Accept: application/openmetrics-text;q=0.4, text/plain;q=0.5\r\n", PROMETHEUS),
        ("Accept: text/plain;q=0.5\r\nAccept: application/openmetrics-text\r\n", OPENMETRICS),
    ] {
        let (status, head, body) = page(watch, "/metrics", accept);
        assert_eq!(status, 200);
        assert!(head.contains(want) && head.contains("Vary: Accept\n"), "{accept}: {head}");
        assert_eq!(body.ends_with("# EOF\n"), want == OPENMETRICS, "{accept}");
        assert_eq!(body.contains("_created"), want == OPENMETRICS, "{accept}");
    }
    let families = scrape(watch);
    let unit = |name: &str| families.iter().find(|family| family.name == name).map(|family| family.unit.as_str());
    assert_eq!(unit("tidegate_http_sent_bytes"), Some("bytes"));
    assert_eq!(unit("tidegate_upstream_peer_header_seconds"), Some("seconds"));
    assert_eq!(unit("tidegate_http_discarded"), Some(""));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs_f64();
    let created: Vec<f64> = families
        .iter()
        .flat_map(|family| &family.samples)
        .filter(|sample| sample.name.ends_with("_created"))
        .map(|sample| sample.value)
        .collect();
    assert!(created.len() > 50 && created.iter().all(|at| *at > now - 600.0 && *at <= now + 1.0), "{created:?}");
    running.quit();
    site.assert_no_alerts();
}

/// The reader of the Python library that Prometheus' project publishes.
#[test]
fn pythons_parser_reads_the_page() {
    const READ: &str = "import sys\n\
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as read\n\
        families = list(read(sys.stdin.read()))\n\
        print(len(families), sum(1 for f in families for s in f.samples if s.exemplar))\n";
    let (port, watch, stream) = (free_port(), free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = everything(port, watch, stream, &origin, "");
    let running = site.start();
    visit(port, stream);
    let (_, _, body) = page(watch, "/metrics?format=openmetrics", "");
    running.quit();
    let (families, place) = (openmetrics::parse(&body).expect("strict").len(), site.path("venv"));
    let works = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    let is_there = works(Command::new("python3").args(["-m", "venv"]).arg(&place))
        && works(Command::new(place.join("bin/pip")).args(["install", "--quiet", "prometheus_client>=0.20"]));
    if !is_there {
        testkit::missing_means("Python's prometheus_client cannot be installed");
        return;
    }
    let mut child = Command::new(place.join("bin/python"))
        .args(["-c", READ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Python");
    child.stdin.take().expect("piped").write_all(body.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("ended");
    assert!(output.status.success(), "{}\n{body}", text(&output.stderr));
    let read = text(&output.stdout);
    let mut numbers = read.split_whitespace().map(|word| word.parse::<usize>().expect("a number"));
    let (found, exemplars) = (numbers.next(), numbers.next());
    assert!(found == Some(families) && exemplars >= Some(2), "{read}");
}

/// By name and labels; also returns the kinds of families.
fn samples(page: &str, prefix: &str) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let (mut all, mut kinds) = (BTreeMap::new(), BTreeMap::new());
    for line in page.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a kind");
            if name.starts_with(prefix) {
                kinds.insert(name.to_string(), kind.to_string());
            }
        }
        if !line.starts_with(prefix) {
            continue;
        }
        let (name, value) = line.rsplit_once(' ').expect("a value");
        // Labels in one order.
        let name = match name.split_once('{') {
            Some((name, labels)) => {
                let mut labels: Vec<&str> = labels.trim_end_matches('}').split(',').collect();
                labels.sort_unstable();
                format!("{name}{{{}}}", labels.join(","))
            }
            None => name.to_string(),
        };
        assert_eq!(all.insert(name.clone(), value.to_string()), None, "{name} is repeated");
    }
    (all, kinds)
}

fn read_all(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Starts the exporter and reads its page once.
fn exported(arguments: &[String], up: &str) -> Option<String> {
    let listen = free_port();
    let program = std::env::var("TIDEGATE_TEST_NGINX_EXPORTER").unwrap_or_else(|_| "prometheus-nginx-exporter".into());
    let mut command = Command::new(program);
    command.args(arguments).arg(format!("-web.listen-address=127.0.0.1:{listen}"));
    let mut child = match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(child) => child,
        Err(e) => {
            testkit::missing_peer(&format!("prometheus-nginx-exporter is not installed ({e})"));
            return None;
        }
    };
    let page = wait("the exporter's page", || {
        if let Ok(Some(status)) = child.try_wait() {
            panic!("the exporter ended: {status}");
        }
        let page = read_all(listen).map_err(|e| e.to_string())?;
        if page.contains(up) { Ok(page) } else { Err(page) }
    });
    let _ = child.kill();
    let _ = child.wait();
    Some(page)
}

/// Names of values that each scrape changes, and one that the exporter misses (0.11 reads `keepalives`, the API has `keepalive`).
fn is_restless(name: &str) -> bool {
    let name = name.split('{').next().unwrap_or_default();
    let name = name.strip_prefix("nginxplus_").or(name.strip_prefix("nginx_")).unwrap_or(name);
    name == "upstream_keepalives" || name.starts_with("connections_") || name.starts_with("http_requests_")
}

#[test]
fn names_and_values_are_those_of_the_exporter() {
    let (port, watch, stream) = (free_port(), free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = everything(port, watch, stream, &origin, "");
    let running = site.start();
    visit(port, stream);
    let at = |path: &str| format!("-nginx.scrape-uri=http://127.0.0.1:{watch}/{path}");
    for (format, prefix, arguments) in [
        ("nginx", "nginx_", vec![at("status")]),
        ("nginxplus", "nginxplus_", vec![at("api"), "-nginx.plus".to_string()]),
    ] {
        let Some(theirs) = exported(&arguments, &format!("{prefix}up 1")) else { break };
        let (status, head, ours) = page(watch, &format!("/metrics?format={format}"), "");
        assert!(status == 200 && head.contains(PROMETHEUS), "{head}");
        let ((theirs, their_kinds), (mut ours, mut our_kinds)) = (samples(&theirs, prefix), samples(&ours, prefix));
        // Names of later versions of the exporter.
        let is_later = |name: &String| name.starts_with("nginxplus_cache_") || name.starts_with("nginxplus_worker_");
        ours.retain(|name, _| !is_later(name));
        our_kinds.retain(|name, _| !is_later(name));
        assert_eq!(our_kinds, their_kinds);
        let names = |all: &BTreeMap<String, String>| all.keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(names(&ours), names(&theirs));
        if format == "nginxplus" {
            let distinct: BTreeSet<&str> = ours.keys().filter_map(|name| name.split('{').next()).collect();
            assert!(distinct.len() >= 80, "{} names", distinct.len());
        }
        for (name, value) in ours.iter().filter(|(name, _)| !is_restless(name)) {
            let number = |text: &str| text.parse::<f64>().expect("a number");
            assert!((number(value) - number(&theirs[name])).abs() < 0.5, "{name}: {value}, {}", theirs[name]);
        }
    }
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_format_is_chosen_by_directive_argument_or_path() {
    let (port, watch, stream) = (free_port(), free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = everything(port, watch, stream, &origin, "");
    let running = site.start();
    for (path, has, lacks) in [
        ("/metrics/nginx", "\nnginx_up 1\n", "tidegate_"),
        ("/metrics/nginxplus", "\nnginxplus_up 1\n", "tidegate_"),
        ("/metrics?format=tidegate", "\ntidegate_tasks_active ", "\nnginx_up"),
        ("/metrics/all", "\nnginx_up 1\n", "# EOF"),
        ("/metrics?format=all", "\nnginxplus_up 1\n", "# EOF"),
        ("/metrics?format=all", "\ntidegate_tasks_active ", "# EOF"),
        ("/fixed", "\nnginx_up 1\n", "tidegate_"),
        ("/fixed?format=json", "\"tidegate_tasks_active\":", "# TYPE"),
        // Another path below the prefix chooses no format.
        ("/metrics/other", "\ntidegate_tasks_active ", "\nnginx_up"),
    ] {
        let (status, head, body) = page(watch, path, "");
        assert_eq!(status, 200, "{path}");
        assert!(body.contains(has) && !body.contains(lacks), "{path}: {body}");
        let negotiates = path == "/metrics/other" || path == "/metrics?format=tidegate";
        assert_eq!(head.contains("Vary: Accept"), negotiates, "{path}: {head}");
    }
    // The request for the page is counted once.
    for (path, lines) in [
        (
            "/metrics/nginx",
            ["nginx_connections_active 1", "nginx_connections_writing 1", "nginx_connections_waiting 0"],
        ),
        (
            "/metrics",
            ["tidegate_connections_active 1", "tidegate_connections_writing 1", "tidegate_connections_waiting 0"],
        ),
        ("/metrics/nginxplus", ["nginxplus_connections_active 1", "nginxplus_connections_idle 0", "nginxplus_up 1"]),
        ("/api/9/connections", ["\"active\":1,", "\"idle\":0", "\"accepted\":"]),
    ] {
        wait("other clients gone", || match page(watch, path, "").2 {
            body if lines.iter().all(|line| body.contains(line)) => Ok(()),
            body => Err(body),
        });
    }
    assert_eq!(get(watch, "/metrics?format=xml"), 400);
    let request = "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(Client::connect(watch).and_then(|mut client| client.ask(request)).expect("an answer").0, 405);
    running.quit();
    let conf = site.read("conf/nginx.conf");
    site.write("conf/nginx.conf", &conf.replace("metrics format=nginx;", "metrics format=xml;"));
    let output = site.run(&["-t", "--explain"]);
    let said = text(&output.stderr) + &text(&output.stdout);
    assert!(!output.status.success() && said.contains("invalid parameter \"format=xml\""), "{said}");
    assert!(said.contains("the formats are tidegate, prometheus"), "{said}");
}
