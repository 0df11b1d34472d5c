//! Metrics of requests, of the process and of its configuration, and metrics that a configuration defines.

use crate::support;

use std::fmt::Write as _;
use std::net::UdpSocket;
use support::client::Client;
use support::http2::Client as Http2;
use support::http3::{Client as Http3, config};
use support::openmetrics::{self, Family, Sample};
use support::origin::{Origin, ok};
use support::{Site, free_port, text, wait};

fn page(port: u16, path: &str, fields: &str) -> (u16, String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    Client::connect(port).and_then(|mut client| client.ask_for_all(&request)).expect("an answer")
}

fn scrape(port: u16) -> Vec<Family> {
    let (status, _, body) = page(port, "/metrics?format=openmetrics", "");
    assert_eq!(status, 200);
    openmetrics::parse(&body).unwrap_or_else(|why| panic!("{why}\n{body}"))
}

fn value(families: &[Family], name: &str, labels: &[(&str, &str)]) -> f64 {
    match openmetrics::find(families, name, labels) {
        Some(sample) => sample.value,
        None => panic!("there is no {name} with {labels:?}"),
    }
}

/// Trace ids of a histogram's exemplars.
fn traces(families: &[Family], name: &str, labels: &[(&str, &str)]) -> Vec<String> {
    let fits = |sample: &&Sample| {
        sample.name == format!("{name}_bucket")
            && labels.iter().all(|(l, v)| sample.labels.get(*l).is_some_and(|found| found == v))
    };
    let samples = families.iter().flat_map(|family| &family.samples).filter(fits);
    samples.filter_map(|sample| sample.exemplar.as_ref()?.labels.get("trace_id").cloned()).collect()
}

#[test]
fn exemplars_lead_to_requests() {
    let port = free_port();
    let origin = Origin::answering(|_| ok("from behind"));
    let conf = format!(
        "http {{
            upstream app {{ zone app 64k; server 127.0.0.1:{}; }}
            server {{
                listen 127.0.0.1:{port}; add_header X-Request $request_id;
                location /traced {{ status_zone traced; return 200; }}
                location /unsampled {{ status_zone unsampled; return 200; }}
                location /invalid {{ status_zone invalid; return 200; }}
                location /plain {{ status_zone plain; return 200; }}
                location /up {{ proxy_set_header X-Request-ID $request_id; proxy_pass http://app; }}
                location = /metrics {{ metrics; }}
            }}
        }}",
        origin.port
    );
    let site = Site::new("daemon off; worker_processes 2;", &conf);
    let running = site.start();
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let field = |id: &str, flags: &str| format!("traceparent: 00-{id}-00f067aa0ba902b7-{flags}\r\n");
    let asked = |path: &str, fields: &str| {
        let (status, head, _) = page(port, path, fields);
        assert_eq!(status, 200, "{path}");
        let line = head.lines().find_map(|line| line.strip_prefix("X-Request: "));
        line.expect("the request's id").to_string()
    };
    asked("/traced", &field(id, "01"));
    asked("/unsampled", &field(id, "00"));
    let invalid = asked("/invalid", &field("00000000000000000000000000000000", "01"));
    let plain = asked("/plain", "");
    let passed = asked("/up", "");
    let zone = "tidegate_location_zone_request_seconds";
    let families = wait("all counted", || {
        let families = scrape(port);
        let count = |zone_name: &str| value(&families, &format!("{zone}_count"), &[("location_zone", zone_name)]);
        let all = ["traced", "unsampled", "invalid", "plain"].iter().map(|name| count(name)).sum::<f64>();
        if all == 4.0 { Ok(families) } else { Err(all.to_string()) }
    });
    let of = |name: &str| traces(&families, zone, &[("location_zone", name)]);
    assert_eq!((of("traced"), of("unsampled")), (vec![id.to_string()], vec![]));
    assert_eq!((of("invalid"), of("plain")), (vec![invalid], vec![plain]));
    for name in ["tidegate_upstream_peer_header_seconds", "tidegate_upstream_peer_response_seconds"] {
        assert_eq!(traces(&families, name, &[("upstream", "app")]), std::slice::from_ref(&passed), "{name}");
    }
    // Prometheus text has none.
    let (_, _, body) = page(port, "/metrics?format=prometheus", "");
    assert!(!body.contains("trace_id"), "{body}");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn the_process_and_its_reloads() {
    let port = free_port();
    let server = format!("listen 127.0.0.1:{port}; http2 on; root html; location = /metrics {{ metrics; }}");
    let site = Site::new("daemon off; worker_processes 2;", &format!("http {{ server {{ {server} }} }}"));
    site.write("html/file", "hello");
    let running = site.start();
    let families = wait("all threads", || {
        let families = scrape(port);
        let cpu = |worker| openmetrics::find(&families, "tidegate_worker_cpu_seconds_total", &[("worker", worker)]);
        if cpu("0").is_some() && cpu("1").is_some() { Ok(families) } else { Err("a worker is missing") }
    });
    let process = |name: &str| value(&families, &format!("tidegate_process_{name}"), &[]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs_f64();
    assert!(process("resident_memory_bytes") > 1e6);
    assert!(process("descriptors_open") > 5.0 && process("descriptors_limit") >= process("descriptors_open"));
    let start = process("start_timestamp_seconds");
    assert!(start > now - 600.0 && start <= now + 1.0, "{start}");
    assert!(process("cpu_seconds_total") > 0.0);
    let of_workers = |families: &[Family], name: &str| {
        let of = |worker| value(families, &format!("tidegate_worker_{name}"), &[("worker", worker)]);
        of("0") + of("1")
    };
    let spent = of_workers(&families, "cpu_seconds_total");
    assert!(spent > 0.0 && spent <= process("cpu_seconds_total"), "{spent}");
    // An iteration counts when it is over.
    wait("iterations of the event loops", || {
        let families = scrape(port);
        let of_all = value(&families, "tidegate_loop_turn_seconds_count", &[]);
        let turned = of_workers(&families, "loop_turn_seconds_count");
        if turned > 0.0 && of_all > 0.0 { Ok(()) } else { Err(format!("{turned} {of_all}")) }
    });

    let reloads = |success: f64, failure: f64, last: f64| {
        wait("the reload counted", || {
            let families = scrape(port);
            let of = |result: &str| value(&families, "tidegate_reloads_total", &[("result", result)]);
            let found = (of("success"), of("failure"), value(&families, "tidegate_reload_last_success", &[]));
            if found == (success, failure, last) { Ok(()) } else { Err(format!("{found:?}")) }
        });
    };
    reloads(0.0, 0.0, 1.0);
    running.signal("HUP");
    reloads(1.0, 0.0, 1.0);
    let conf = site.read("conf/nginx.conf");
    site.write("conf/nginx.conf", &conf.replace("root html;", "root;"));
    running.signal("HUP");
    reloads(1.0, 1.0, 0.0);
    site.write("conf/nginx.conf", &conf);
    running.signal("HUP");
    reloads(2.0, 1.0, 1.0);

    let version = [("version", "2")];
    let before = value(&scrape(port), "tidegate_multiplexed_connections_total", &version);
    let mut client = Http2::connect(port);
    client.ask(1, "/file");
    assert_eq!(client.answer(1).0, "200");
    let families = scrape(port);
    assert_eq!(value(&families, "tidegate_multiplexed_connections_total", &version), before + 1.0);
    assert_eq!(value(&families, "tidegate_multiplexed_connections_active", &version), 1.0);
    assert_eq!(value(&families, "tidegate_multiplexed_connections_total", &[("version", "3")]), 0.0);
    assert_eq!(value(&families, "tidegate_http_requests_total", &version), 1.0);
    drop(client);
    wait("the connection gone", || match value(&scrape(port), "tidegate_multiplexed_connections_active", &version) {
        0.0 => Ok(()),
        n => Err(n.to_string()),
    });
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn requests_over_http3_are_told_apart() {
    let (port, watch) = (free_port(), free_port());
    let conf = format!(
        "http {{
            server {{
                listen 127.0.0.1:{port} quic; ssl_certificate cert.pem; ssl_certificate_key key.pem; status_zone three;
                location / {{ return 200 hello; }}
            }}
            server {{ listen 127.0.0.1:{watch}; location = /metrics {{ metrics; }} }}
        }}"
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).expect("a certificate");
    site.write("conf/cert.pem", &made.cert.pem());
    site.write("conf/key.pem", &made.signing_key.serialize_pem());
    let running = site.start();
    let mut client = Http3::connect(port, "localhost", &config());
    client.until("the handshake", |client| client.connected.is_some());
    let stream = client.get("localhost", "/");
    assert_eq!(client.answer(stream).status, 200);
    let families = scrape(watch);
    let three = [("version", "3")];
    assert_eq!(value(&families, "tidegate_http_requests_total", &three), 1.0);
    assert_eq!(value(&families, "tidegate_http_requests_total", &[("version", "2")]), 0.0);
    assert_eq!(value(&families, "tidegate_multiplexed_connections_total", &three), 1.0);
    assert_eq!(value(&families, "tidegate_multiplexed_connections_active", &three), 1.0);
    assert_eq!(value(&families, "tidegate_tls_handshake_versions_total", &[("version", "1.3")]), 1.0);
    assert!(value(&families, "tidegate_quic_datagrams_received_total", &[]) > 1.0);
    client.close();
    wait("the connection gone", || match value(&scrape(watch), "tidegate_multiplexed_connections_active", &three) {
        0.0 => Ok(()),
        n => Err(n.to_string()),
    });
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn certificates_caches_and_datagrams() {
    let (port, secure, datagrams) = (free_port(), free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let echo = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let echo_at = echo.local_addr().expect("an address").port();
    let conf = format!(
        "http {{
            proxy_cache_path cache keys_zone=store:1m;
            server {{
                listen 127.0.0.1:{port}; listen 127.0.0.1:{secure} ssl;
                ssl_certificate cert.pem; ssl_certificate_key key.pem;
                location = /metrics {{ metrics; }}
                location / {{ proxy_cache store; proxy_cache_valid 1h; proxy_pass http://127.0.0.1:{}; }}
            }}
        }}
        stream {{
            upstream far {{ zone far 64k; server 127.0.0.1:{echo_at}; }}
            server {{ listen 127.0.0.1:{datagrams} udp; proxy_responses 1; proxy_requests 1; proxy_pass far; status_zone udp; }}
        }}",
        origin.port
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    let certificate = |year| {
        let mut params = rcgen::CertificateParams::new(["localhost".to_string()]).expect("names");
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a key");
        let cert = params.self_signed(&key).expect("a certificate");
        site.write("conf/cert.pem", &cert.pem());
        site.write("conf/key.pem", &key.serialize_pem());
    };
    certificate(2100);
    let running = site.start();
    let dates = |families: &[Family]| {
        let of = |name: &str| {
            value(families, &format!("tidegate_certificate_{name}_timestamp_seconds"), &[("certificate", "cert.pem")])
        };
        (of("not_before"), of("not_after"))
    };
    assert_eq!(dates(&scrape(port)), (1_577_836_800.0, 4_102_444_800.0));
    // A renewed file counts with the reload that reads it.
    certificate(2101);
    assert_eq!(dates(&scrape(port)).1, 4_102_444_800.0);
    running.signal("HUP");
    wait("the new certificate", || match dates(&scrape(port)).1 {
        4_133_980_800.0 => Ok(()),
        other => Err(other.to_string()),
    });

    assert_eq!([page(port, "/", "").0, page(port, "/", "").0], [200, 200]);
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    client.send_to(b"hello", ("127.0.0.1", datagrams)).expect("sent");
    let mut buf = [0; 64];
    let (n, from) = echo.recv_from(&mut buf).expect("received");
    assert_eq!(&buf[..n], b"hello");
    echo.send_to(b"hello back", from).expect("sent");
    assert_eq!(client.recv(&mut buf).expect("received"), 10);
    let families = wait("the session over", || {
        let families = scrape(port);
        match value(&families, "tidegate_stream_zone_session_seconds_count", &[("server_zone", "udp")]) {
            1.0 => Ok(families),
            n => Err(n.to_string()),
        }
    });
    let peer = |name: &str| value(&families, &format!("tidegate_upstream_peer_{name}"), &[("upstream", "far")]);
    assert_eq!((peer("sent_bytes_total"), peer("received_bytes_total")), (5.0, 10.0));
    let cache = |status: &str| {
        value(&families, "tidegate_cache_zone_sent_bytes_total", &[("cache", "store"), ("status", status)])
    };
    assert!(cache("hit") > 11.0 && cache("miss") > 11.0 && cache("stale") == 0.0);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_configuration_defines_metrics() {
    let port = free_port();
    let origin = Origin::answering(|_| ok("from behind"));
    let conf = format!(
        "http {{
            map $p8s_value $state {{ volatile; \"up\" 1; \"down\" 2; default 3; }}
            prometheus_template mine {{
                app_connections $p8s_value path=/connections/accepted type=counter 'help=Accepted connections';
                'app_requests{{zone=\"$1\"}}' $p8s_value path=~^/http/server_zones/([^/]+)/requests/total$ type=counter;
                'app_responses{{zone=\"$1\",code=\"$2\"}}' $p8s_value
                    path=~^/http/server_zones/([^/]+)/responses/([^/]+)$ type=counter 'help=Response codes';
                'app_state{{upstream=\"$group\",peer=\"$peer\"}}' $state
                    path=~^/http/upstreams/(?<group>[^/]+)/peers/(?<peer>[^/]+)/state$ type=gauge;
                app_hosts $arg_number type=gauge;
                app_empty $arg_none;
                never_reached $p8s_value path=/connections/accepted;
            }}
            upstream app {{ zone app 64k; server 127.0.0.1:{}; server 127.0.0.1:1 down; }}
            server {{
                listen 127.0.0.1:{port}; status_zone site;
                location = /mine {{ prometheus mine; }}
                location = /ok {{ return 200 OK; }}
                location = /none {{ return 403; }}
                location / {{ proxy_pass http://app; }}
            }}
        }}",
        origin.port
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    let running = site.start();
    assert_eq!(["/ok", "/ok", "/none", "/"].map(|path| page(port, path, "").0), [200, 200, 403, 200]);
    let (status, head, body) = page(port, "/mine?number=7", "");
    assert!(status == 200 && head.contains("text/plain; version=0.0.4") && head.contains("Cache-Control: no-cache"));
    let up = format!("app_state{{upstream=\"app\",peer=\"127.0.0.1:{}\"}} 1", origin.port);
    for line in [
        "# Tidegate Prometheus template \"mine\"",
        "# HELP app_connections Accepted connections",
        "# TYPE app_connections counter",
        "app_connections 5",
        "app_requests{zone=\"site\"} 5",
        "app_responses{zone=\"site\",code=\"200\"} 3",
        "app_responses{zone=\"site\",code=\"403\"} 1",
        &up,
        "app_state{upstream=\"app\",peer=\"127.0.0.1:1\"} 2",
        "app_hosts 7",
    ] {
        assert_eq!(body.lines().filter(|found| *found == line).count(), 1, "{line}:\n{body}");
    }
    for word in ["app_empty", "never_reached"] {
        assert!(!body.contains(word), "{word}:\n{body}");
    }
    let request = "POST /mine HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(Client::connect(port).and_then(|mut client| client.ask(request)).expect("an answer").0, 405);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn metrics_that_cannot_be_are_refused() {
    let site = Site::new("", "http { }");
    for (line, want) in [
        ("a $p8s_value path=/connections/lost;", "the statistics have no \"/connections/lost\""),
        ("a $p8s_value path=~^/caches;", ""),
        ("a $p8s_value path=~^/http/caches/([^/]+)/shards/([^/]+)/size$;", "the statistics have no \"~^/http/caches"),
        ("a $p8s_value path=~(;", "pcre2_compile() failed"),
        ("a $p8s_value path=;", "empty metric matching path"),
        ("a $p8s_value type=number;", "invalid metric type \"number\""),
        ("a $p8s_value kind=gauge;", "invalid metric parameter \"kind=gauge\""),
        ("a 5;", "metric value \"5\" isn't a variable"),
        ("a $unknown;", "unknown \"unknown\" variable"),
        ("a;", "invalid number of metric parameters"),
        ("a$1 $p8s_value;", "only labels can contain variables"),
        ("1a $p8s_value;", "invalid metric name: \"1a\""),
        ("a-b $p8s_value;", "invalid metric name: \"a-b\""),
    ] {
        site.configure(
            "",
            &format!("http {{ prometheus_template t {{ {line} }} server {{ location / {{ prometheus t; }} }} }}"),
        );
        let output = site.run(&["-t"]);
        let said = text(&output.stderr) + &text(&output.stdout);
        match want {
            "" => {
                assert!(output.status.success() && said.contains("matches no path of the statistics"), "{line}: {said}")
            }
            _ => assert!(
                !output.status.success() && said.contains(want) && said.contains("nginx.conf"),
                "{line}: {said}"
            ),
        }
    }
    for (rest, want) in [
        ("server { location / { prometheus other; } }", "unknown Prometheus template \"other\""),
        ("prometheus_template t { } prometheus_template t { }", "duplicate Prometheus template \"t\""),
    ] {
        site.configure("", &format!("http {{ {rest} }}"));
        let output = site.run(&["-t"]);
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(!output.status.success() && said.contains(want), "{rest}: {said}");
    }
}

/// A separate thread adds up a thousand zones, and the page has all samples.
#[test]
fn a_thousand_zones() {
    const ZONES: usize = 1000;
    let port = free_port();
    let mut servers = String::new();
    for n in 0..ZONES {
        let _ =
            writeln!(servers, "server {{ listen 127.0.0.1:{port}; server_name s{n}; status_zone z{n}; return 204; }}");
    }
    let watch = free_port();
    let conf =
        format!("http {{ {servers} server {{ listen 127.0.0.1:{watch}; location = /metrics {{ metrics; }} }} }}");
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    let running = site.start();
    let threads = || -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", running.worker())).expect("tasks").flatten();
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok()).collect()
    };
    assert!(!threads().iter().any(|name| name.trim() == "pool metrics"), "{:?}", threads());
    let mut client = Client::connect(port).expect("connects");
    for n in 0..ZONES {
        // Paths and hosts of clients make no samples.
        let request = format!("GET /{n}?{n} HTTP/1.1\r\nHost: s{}\r\nUser-Agent: {n}\r\n\r\n", n / 2);
        assert_eq!(client.ask(&request).expect("an answer").0, 204);
    }
    let (status, _, body) = page(watch, "/metrics?format=openmetrics", "");
    // Before the page is read, which may take longer than the thread waits for more work.
    assert!(threads().iter().any(|name| name.trim() == "pool metrics"), "{:?}", threads());
    assert_eq!(status, 200);
    let families = openmetrics::parse(&body).unwrap_or_else(|why| panic!("{why}"));
    let requests = families.iter().find(|family| family.name == "tidegate_server_zone_requests").expect("the family");
    let total = requests.samples.iter().filter(|sample| sample.name.ends_with("_total"));
    assert_eq!((total.clone().count(), total.map(|sample| sample.value).sum::<f64>()), (ZONES, ZONES as f64));
    let zoned = families.iter().filter(|family| family.name.starts_with("tidegate_server_zone_"));
    let samples: usize = zoned.map(|family| family.samples.len()).sum();
    assert!(samples.is_multiple_of(ZONES) && samples / ZONES < 100, "{samples}");
    let rest: usize = families.iter().map(|family| family.samples.len()).sum::<usize>() - samples;
    assert!(rest < 500, "{rest}");
    running.quit();
    site.assert_no_alerts();
}

/// Clients choose the keys, and so the length of the page.
#[test]
fn the_display_of_traffic_is_written_beside_the_workers() {
    let port = free_port();
    let http = format!(
        "http {{
            vhost_traffic_status_zone;
            server {{
                listen 127.0.0.1:{port};
                location / {{ vhost_traffic_status_filter_by_set_key $arg_k keys; return 200; }}
                location /status {{ vhost_traffic_status_display; vhost_traffic_status_display_format json; }}
            }}
        }}"
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    assert_eq!(page(port, "/?k=one", "").0, 200);
    let (status, head, body) = page(port, "/status", "");
    assert_eq!(status, 200, "{head}");
    assert!(body.contains("\"keys\":{\"one\":{\"requestCounter\":1,"), "{body}");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", running.worker())).expect("tasks");
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let names: Vec<String> = names.collect();
    assert!(names.iter().any(|name| name.trim() == "pool metrics"), "{names:?}");
    running.quit();
}
