//! The API of nginx's commercial edition: contract of its public description, pairs, and clients that others wrote.

use crate::support;

use serde_json::{Value, json};
use std::io::Read;
use std::process::{Command, Stdio};
use support::api::{address, ask, code, everything, get, raw};
use support::client::Client;
use support::origin::{Origin, ok};
use support::{Site, free_port, wait};

/// Types of values after the public description: `i` integer, `b` boolean, `s` text, `t` time, `{...}` objects; `?`: may be absent.
fn check(path: &str, value: &Value, shape: &Value) {
    match shape {
        Value::String(kind) => {
            let right = match kind.trim_end_matches('?') {
                "i" => value.is_u64(),
                "b" => value.is_boolean(),
                "s" => value.is_string(),
                "t" => value.as_str().is_some_and(|text| {
                    text.len() == 24
                        && text.ends_with('Z')
                        && text.as_bytes()[10] == b'T'
                        && text.as_bytes()[19] == b'.'
                }),
                "{i}" => value.as_object().is_some_and(|all| all.values().all(Value::is_u64)),
                other => panic!("{other}"),
            };
            assert!(right, "{path} is not {kind}: {value}");
        }
        Value::Object(shape) => {
            let all = value.as_object().unwrap_or_else(|| panic!("{path} is no object: {value}"));
            for (name, shape) in shape {
                let optional = matches!(shape, Value::String(kind) if kind.ends_with('?'));
                match all.get(name) {
                    Some(value) => check(&format!("{path}.{name}"), value, shape),
                    None => assert!(optional, "{path} lacks {name}: {value}"),
                }
            }
            let unknown: Vec<&String> = all.keys().filter(|name| !shape.contains_key(*name)).collect();
            assert!(unknown.is_empty(), "{path} has {unknown:?}");
        }
        Value::Array(shape) => {
            for (index, value) in value.as_array().unwrap_or_else(|| panic!("{path}: {value}")).iter().enumerate() {
                check(&format!("{path}[{index}]"), value, &shape[0]);
            }
        }
        _ => panic!("{shape}"),
    }
}

fn shapes() -> Vec<(&'static str, Value)> {
    let verify =
        json!({"no_cert": "i", "expired_cert": "i", "revoked_cert": "i", "hostname_mismatch": "i", "other": "i"});
    let ssl = json!({"handshakes": "i", "handshakes_failed": "i", "session_reuses": "i", "no_common_protocol": "i",
        "no_common_cipher": "i", "handshake_timeout": "i", "peer_rejected_cert": "i", "verify_failures": verify});
    let responses = json!({"1xx": "i", "2xx": "i", "3xx": "i", "4xx": "i", "5xx": "i", "codes": "{i}", "total": "i"});
    let connections = json!({"accepted": "i", "dropped": "i", "active": "i", "idle": "i"});
    let checks = json!({"checks": "i", "fails": "i", "unhealthy": "i", "last_passed": "b?"});
    let histogram = json!({"count": "i", "sum": "i", "buckets": "{i}"});
    let cached = json!({"responses": "i"});
    let limit = json!({"passed": "i", "rejected": "i", "rejected_dry_run": "i"});
    let peer = json!({"id": "i", "server": "s", "name": "s", "backup": "b", "weight": "i", "state": "s", "active": "i",
        "max_conns": "i?", "requests": "i", "responses": responses, "sent": "i", "received": "i", "fails": "i",
        "unavail": "i", "health_checks": checks, "downtime": "i", "downstart": "t?", "selected": "t?",
        "header_time": "i?", "response_time": "i?", "response_time_hist": histogram});
    let stream_peer = json!({"id": "i", "server": "s", "name": "s", "backup": "b", "weight": "i", "state": "s",
        "active": "i", "max_conns": "i?", "connections": "i", "sent": "i", "received": "i", "fails": "i", "unavail": "i",
        "health_checks": checks, "downtime": "i", "downstart": "t?", "selected": "t?", "connect_time": "i?",
        "first_byte_time": "i?", "response_time": "i?"});
    let conf = json!({"id": "i", "server": "s", "weight": "i", "max_conns": "i", "max_fails": "i", "fail_timeout": "s",
        "slow_start": "s", "route": "s?", "backup": "b", "down": "b", "drain": "b?"});
    let queue = json!({"size": "i", "max_size": "i", "overflows": "i"});
    let worker = json!({"id": "i", "pid": "i", "connections": connections,
        "http": {"requests": {"total": "i", "current": "i"}}});
    vec![
        (
            "/nginx",
            json!({"version": "s", "build": "s", "address": "s", "generation": "i", "load_timestamp": "t",
            "timestamp": "t", "pid": "i", "ppid": "i"}),
        ),
        ("/processes", json!({"respawned": "i"})),
        ("/connections", connections.clone()),
        ("/ssl", ssl.clone()),
        ("/slabs/pairs", json!({"pages": {"used": "i", "free": "i"}, "slots": {}})),
        ("/http/requests", json!({"total": "i", "current": "i"})),
        (
            "/http/server_zones/site",
            json!({"processing": "i", "requests": "i", "responses": responses, "discarded": "i",
            "received": "i", "sent": "i", "ssl": ssl}),
        ),
        (
            "/http/location_zones/app",
            json!({"requests": "i", "responses": responses, "discarded": "i", "received": "i",
            "sent": "i"}),
        ),
        (
            "/http/caches/store",
            json!({"size": "i", "max_size": "i?", "cold": "b", "hit": cached, "miss": cached,
            "expired": cached, "bypass": cached, "stale": cached, "updating": cached, "revalidated": cached}),
        ),
        ("/http/limit_conns/number", limit.clone()),
        (
            "/http/limit_reqs/rate",
            json!({"passed": "i", "delayed": "i", "rejected": "i", "delayed_dry_run": "i",
            "rejected_dry_run": "i"}),
        ),
        (
            "/http/upstreams/app",
            json!({"peers": [peer], "keepalive": "i", "zombies": "i", "zone": "s", "queue": queue}),
        ),
        ("/http/upstreams/app/servers", json!([conf])),
        (
            "/stream/server_zones/door",
            json!({"processing": "i", "connections": "i",
            "sessions": {"2xx": "i", "4xx": "i", "5xx": "i", "total": "i"}, "discarded": "i", "received": "i",
            "sent": "i", "ssl": ssl}),
        ),
        ("/stream/limit_conns/sessions", limit),
        ("/stream/upstreams/tcp", json!({"peers": [stream_peer], "zombies": "i", "zone": "s"})),
        ("/stream/upstreams/tcp/servers", json!([conf])),
        (
            "/resolvers/names",
            json!({"requests": {"name": "i", "srv": "i", "addr": "i"},
            "responses": {"noerror": "i", "formerr": "i", "servfail": "i", "nxdomain": "i", "notimp": "i", "refused": "i",
            "timedout": "i", "unknown": "i"}}),
        ),
        (
            "/license",
            json!({"active_till": "i", "eval": "b",
            "reporting": {"healthy": "b", "fails": "i", "grace": "i"}}),
        ),
        ("/workers", json!([worker])),
        ("/workers/0", worker),
    ]
}

#[test]
fn answers_have_the_form_of_the_public_description() {
    let (port, stream_port) = (free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = everything(port, stream_port, &address(&origin), "");
    let running = site.start();
    for path in ["/", "/cached", "/cached", "/limited?key=a", "/none"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        Client::connect(port).and_then(|mut c| c.ask(&request)).expect("an answer");
    }
    let through = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert_eq!(Client::connect(stream_port).and_then(|mut c| c.ask(through)).expect("an answer").0, 200);
    assert_eq!(get(port, ""), json!([1, 2, 3, 4, 5, 6, 7, 8, 9]));
    assert_eq!(get(port, "/"), get(port, ""));
    let names = |path| get(port, path).as_array().expect("names").len();
    assert_eq!((names("/9"), names("/9/http"), names("/9/stream/"), names("/1/")), (10, 8, 4, 7));
    for (path, shape) in shapes() {
        check(path, &get(port, &format!("/9{path}")), &shape);
        assert_eq!(ask(port, "GET", &format!("/9{path}/"), None).0, 200, "{path}/");
        // The collection has the same object.
        let Some((collection, name)) = path.rsplit_once('/').filter(|(all, _)| all.matches('/').count() > 1) else {
            continue;
        };
        if name != "servers" {
            assert!(get(port, &format!("/9{collection}")).get(name).is_some(), "{path}");
            let all = get(port, &format!("/9{collection}/?fields="));
            assert!(all.as_array().expect("names").contains(&json!(name)), "{path}: {all}");
        }
    }
    let site_zone = get(port, "/9/http/server_zones/site");
    assert_eq!(site_zone.pointer("/responses/codes/404"), Some(&json!(1)), "{site_zone}");
    assert_eq!(get(port, "/9/http/location_zones/app").pointer("/responses/2xx"), Some(&json!(1)));
    let cache = get(port, "/9/http/caches/store");
    assert_eq!((cache.pointer("/hit/responses"), cache.pointer("/miss/responses")), (Some(&json!(1)), Some(&json!(1))));
    wait("the session's end", || {
        let door = get(port, "/9/stream/server_zones/door");
        let done = door.pointer("/sessions/2xx") == Some(&json!(1)) && door["sent"].as_u64() > Some(0);
        if done { Ok(()) } else { Err(door.to_string()) }
    });
    let app = get(port, "/9/http/upstreams/app");
    let first = &app["peers"][0];
    assert_eq!(
        (&first["requests"], &first["state"], &app["peers"][1]["state"]),
        (&json!(2), &json!("up"), &json!("down"))
    );
    assert!(first["sent"].as_u64() > Some(0) && first["received"].as_u64() > Some(0), "{first}");
    assert_eq!(first.pointer("/response_time_hist/count"), Some(&json!(2)));
    let tcp = get(port, "/9/stream/upstreams/tcp");
    assert_eq!(tcp.pointer("/peers/0/connections"), Some(&json!(1)));
    assert_eq!(get(port, "/9/nginx?fields=version,build").as_object().map(serde_json::Map::len), Some(2));
    // Earlier versions lack later paths.
    let old = get(port, "/6/http/server_zones/site");
    assert!(old.get("ssl").is_none() && old.pointer("/responses/codes").is_none(), "{old}");
    assert!(get(port, "/8/http/upstreams/app").pointer("/peers/0/response_time_hist").is_none());
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn errors_have_their_codes_and_counters_are_reset() {
    let (port, stream_port) = (free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = everything(port, stream_port, &address(&origin), "");
    let running = site.start();
    for (method, path, body, want) in [
        ("GET", "/10/nginx", "", (404, "UnknownVersion")),
        ("GET", "/9/none", "", (404, "PathNotFound")),
        ("GET", "/9/stream/zone_sync", "", (404, "PathNotFound")),
        ("POST", "/9/nginx", "{}", (405, "MethodDisabled")),
        ("OPTIONS", "/9/nginx", "", (405, "MethodDisabled")),
        ("GET", "/9/slabs/none", "", (404, "SlabNotFound")),
        ("GET", "/9/http/server_zones/none", "", (404, "ServerZoneNotFound")),
        ("GET", "/9/http/location_zones/none", "", (404, "LocationZoneNotFound")),
        ("GET", "/9/http/caches/none", "", (404, "CacheNotFound")),
        ("GET", "/9/http/limit_conns/sessions", "", (404, "LimitConnNotFound")),
        ("GET", "/9/stream/limit_conns/number", "", (404, "LimitConnNotFound")),
        ("GET", "/9/http/limit_reqs/none", "", (404, "LimitReqNotFound")),
        ("GET", "/9/resolvers/none", "", (404, "ResolverZoneNotFound")),
        ("GET", "/9/workers/7", "", (404, "WorkerNotFound")),
        ("GET", "/9/http/upstreams/none", "", (404, "UpstreamNotFound")),
        ("GET", "/9/http/upstreams/fixed", "", (400, "UpstreamStatic")),
        ("POST", "/9/http/upstreams/fixed/servers/", "{}", (400, "UpstreamStatic")),
        ("GET", "/9/http/upstreams/app/servers/x", "", (400, "UpstreamBadServerId")),
        ("GET", "/9/http/upstreams/app/servers/+1", "", (400, "UpstreamBadServerId")),
        ("DELETE", "/9/http/requests?dry_run=1", "", (400, "DryRunUnsupported")),
        ("DELETE", "/9/http/upstreams/app?dry_run", "", (400, "DryRunUnsupported")),
        ("DELETE", "/9/workers?dry_run", "", (400, "DryRunUnsupported")),
        ("GET", "/9/http/upstreams/app/servers/99", "", (404, "UpstreamServerNotFound")),
        ("DELETE", "/9/http/upstreams/app/servers/99", "", (404, "UpstreamServerNotFound")),
        ("POST", "/9/http/upstreams/app/servers/", "{", (415, "JsonError")),
        ("POST", "/9/http/upstreams/app/servers/", "[]", (400, "UpstreamConfFormatError")),
        ("POST", "/9/http/upstreams/app/servers/", "{}", (400, "UpstreamConfFormatError")),
        (
            "POST",
            "/9/http/upstreams/app/servers/",
            r#"{"server":"127.0.0.1:2","id":3}"#,
            (400, "UpstreamConfFormatError"),
        ),
        ("POST", "/9/http/upstreams/app/servers/", r#"{"server":["127.0.0.1:2"]}"#, (400, "UpstreamConfFormatError")),
        ("POST", "/9/http/upstreams/app/servers/", r#"{"server":"127.0.0.1:99999"}"#, (400, "UpstreamBadAddress")),
        (
            "POST",
            "/9/http/upstreams/app/servers/",
            r#"{"server":"127.0.0.1:2","weight":0}"#,
            (400, "UpstreamBadWeight"),
        ),
        (
            "POST",
            "/9/http/upstreams/app/servers/",
            r#"{"server":"127.0.0.1:2","weight":"2"}"#,
            (400, "UpstreamConfFormatError"),
        ),
        (
            "POST",
            "/9/http/upstreams/app/servers/",
            r#"{"server":"127.0.0.1:2","max_conns":-1}"#,
            (400, "UpstreamBadMaxConns"),
        ),
        (
            "POST",
            "/9/http/upstreams/app/servers/",
            r#"{"server":"127.0.0.1:2","max_fails":-1}"#,
            (400, "UpstreamBadMaxFails"),
        ),
        (
            "POST",
            "/9/http/upstreams/app/servers/",
            r#"{"server":"127.0.0.1:2","fail_timeout":"x"}"#,
            (400, "UpstreamBadFailTimeout"),
        ),
        (
            "POST",
            "/9/http/upstreams/app/servers/",
            r#"{"server":"127.0.0.1:2","slow_start":"x"}"#,
            (400, "UpstreamBadSlowStart"),
        ),
        (
            "POST",
            "/9/http/upstreams/hashed/servers/",
            r#"{"server":"127.0.0.1:2","backup":true}"#,
            (400, "UpstreamNoBackup"),
        ),
        ("POST", "/9/stream/upstreams/tcp/servers/", r#"{"server":"127.0.0.1"}"#, (400, "UpstreamBadAddress")),
        ("POST", "/9/stream/upstreams/tcp/servers/", r#"{"server":"name.example:1"}"#, (400, "UpstreamConfNoResolver")),
        ("POST", "/9/http/upstreams/app/servers/", r#"{"server":"127.0.0.1:1"}"#, (409, "EntryExists")),
        ("GET", "/9/http/keyvals/none", "", (404, "KeyvalNotFound")),
        ("GET", "/9/http/keyvals/pairs?key=none", "", (404, "KeyvalKeyNotFound")),
        ("POST", "/9/http/keyvals/pairs", "{}", (400, "KeyvalFormatError")),
        ("POST", "/9/http/keyvals/pairs", "x", (415, "JsonError")),
        ("POST", "/9/http/keyvals/pairs", r#"{"a":{"value":"1","expire":5}}"#, (400, "KeyvalFormatError")),
        ("PATCH", "/9/http/keyvals/pairs", r#"{"a":"1"}"#, (404, "KeyvalKeyNotFound")),
        ("PATCH", "/9/http/keyvals/pairs", r#"{"a":"1","b":"2"}"#, (400, "KeyvalFormatError")),
    ] {
        let answer = raw(port, method, path, "", body);
        assert_eq!(code(&answer), want, "{method} {path} {body}: {}", answer.1);
        assert_eq!(answer.1.pointer("/error/status"), Some(&json!(want.0)));
        assert_eq!(answer.1["request_id"].as_str().map(str::len), Some(32));
    }
    for line in ["DELETE /api/tidegate/1/caches/store?dry_run", "PATCH /api/tidegate/1/logs?dry_run"] {
        let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let (status, text) = Client::connect(port).and_then(|mut c| c.ask(&request)).expect("an answer");
        assert!(status == 400 && text.contains("DryRunUnsupported"), "{line}: {status} {text}");
    }
    for field in ["Origin: http://other.example\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
        let answer = raw(port, "POST", "/9/http/keyvals/pairs", field, "{\"a\":\"1\"}");
        assert_eq!(code(&answer), (403, "ForeignOrigin"), "{field}");
    }
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(20_000));
    assert_eq!(code(&raw(port, "POST", "/9/http/keyvals/pairs", "", &large)), (413, "RequestEntityTooLarge"));
    // Without write=on.
    let request = "DELETE /read/9/connections HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let (status, text) = Client::connect(port).and_then(|mut c| c.ask(request)).expect("an answer");
    assert!(status == 405 && text.contains("MethodDisabled"), "{status} {text}");
    // Resets start counts anew.
    let requests = |path: &str| get(port, path)["requests"].as_u64().expect("a number");
    assert!(requests("/9/http/server_zones/site") > 40);
    for path in [
        "/processes",
        "/connections",
        "/ssl",
        "/slabs/pairs",
        "/http/requests",
        "/http/server_zones/site",
        "/http/location_zones/app",
        "/http/caches/store",
        "/http/limit_conns/number",
        "/http/limit_reqs/rate",
        "/http/upstreams/app/",
        "/stream/server_zones/door",
        "/stream/limit_conns/sessions",
        "/stream/upstreams/tcp/",
        "/resolvers/names",
        "/workers/",
        "/workers/1",
    ] {
        assert_eq!(ask(port, "DELETE", &format!("/9{path}"), None), (204, Value::Null), "{path}");
    }
    assert!(requests("/9/http/server_zones/site") < 20);
    assert!(get(port, "/9/http/requests")["total"].as_u64() < Some(25));
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn an_api_that_writes_is_local_or_restricted() {
    let site = Site::new("daemon off;", "");
    let locally = |listen: &str, lines: &str| {
        let provider = "oidc_provider staff { issuer http://127.0.0.1:1; client_id api; }";
        let rest = format!("http {{ {provider} server {{ {listen} location /api {{ api write=on; {lines} }} }} }}");
        site.configure("daemon off;", &rest);
        let output = site.run(&["-t"]);
        (output.status.success(), support::text(&output.stderr))
    };
    for (listen, lines, right) in [
        ("listen 127.0.0.1:8080;", "", true),
        ("listen [::1]:8080;", "", true),
        ("listen unix:api.sock;", "", true),
        ("listen 8080;", "", false),
        ("", "", false),
        ("listen 127.0.0.1:8080; listen 192.0.2.1:8080;", "", false),
        ("listen 8080;", "allow 127.0.0.1; deny all;", true),
        ("listen 8080; deny all;", "", true),
        ("listen 8080;", "allow 127.0.0.1;", false),
        ("listen 8080;", "deny 192.0.2.1;", false),
        ("listen 8080;", "auth_basic x; auth_basic_user_file conf/nginx.conf;", true),
        ("listen 8080;", "auth_request /check;", true),
        ("listen 8080;", "auth_oidc staff;", true),
    ] {
        let (ok, words) = locally(listen, lines);
        assert_eq!(ok, right, "{listen} {lines}: {words}");
        assert!(ok || words.contains("without access rules") && words.contains("nginx.conf:"), "{words}");
    }
}

#[test]
fn pairs_are_added_changed_and_removed() {
    let (port, stream_port) = (free_port(), free_port());
    let site = everything(port, stream_port, "127.0.0.1:1", "");
    let running = site.start();
    let zone = "/9/http/keyvals/pairs";
    let send = |method: &str, path: &str, body: Value| ask(port, method, path, Some(&body));
    assert_eq!(send("POST", zone, json!({"a": "1", "b": "2"})).0, 201);
    assert_eq!(code(&send("POST", zone, json!({"c": "1", "d": "2"}))), (400, "KeyvalFormatError"));
    assert_eq!(code(&send("POST", zone, json!({"a": "3"}))), (409, "KeyvalKeyExists"));
    assert_eq!(send("POST", zone, json!({"c": "3"})).0, 201);
    assert_eq!(send("PATCH", zone, json!({"c": "4"})), (204, Value::Null));
    assert_eq!(send("PATCH", zone, json!({"b": null})).0, 204);
    assert_eq!(get(port, zone), json!({"a": "1", "c": "4"}));
    assert_eq!(get(port, &format!("{zone}/?key=c")), json!({"c": "4"}));
    let request = "GET /pair?key=c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert_eq!(Client::connect(port).and_then(|mut c| c.ask(request)).expect("an answer"), (200, "4".into()));
    let mortal = "/9/http/keyvals/mortal";
    assert_eq!(send("POST", mortal, json!({"a": {"value": "1", "expire": 3_600_000}})).0, 201);
    assert_eq!(send("PATCH", mortal, json!({"a": {"expire": 0}})).0, 204);
    assert_eq!(get(port, mortal), json!({}));
    assert_eq!(send("POST", "/9/stream/keyvals/stream_pairs", json!({"x": "y"})).0, 201);
    assert_eq!(get(port, "/9/stream/keyvals"), json!({"stream_pairs": {"x": "y"}}));
    assert_eq!(ask(port, "DELETE", zone, None).0, 204);
    assert_eq!(get(port, "/9/http/keyvals"), json!({"pairs": {}, "mortal": {}}));
    running.quit();
    site.assert_no_alerts();
}

fn exporter(arguments: &[String]) -> Option<std::process::Child> {
    let program = std::env::var("TIDEGATE_TEST_NGINX_EXPORTER").unwrap_or_else(|_| "prometheus-nginx-exporter".into());
    let child = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    match child {
        Ok(child) => Some(child),
        Err(e) => {
            testkit::missing_peer(&format!("prometheus-nginx-exporter is not installed ({e})"));
            None
        }
    }
}

fn page(port: u16) -> Result<String, String> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).map_err(|e| e.to_string())?;
    std::io::Write::write_all(&mut stream, b"GET /metrics HTTP/1.0\r\n\r\n").map_err(|e| e.to_string())?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(|e| e.to_string())?;
    Ok(text)
}

#[test]
fn the_exporter_reads_both_pages() {
    let (port, stream_port) = (free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = everything(port, stream_port, &address(&origin), "server { listen unix:status.sock; stub_status; }");
    let conf = site.read("conf/nginx.conf");
    site.write(
        "conf/nginx.conf",
        &conf.replace("location /none", "location = /status { stub_status; } location /none"),
    );
    let running = site.start();
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert_eq!(Client::connect(port).and_then(|mut c| c.ask(request)).expect("an answer").0, 200);
    let wanted: [(&str, &[&str]); 2] = [
        ("status", &["nginx_up 1", "nginx_connections_active ", "nginx_http_requests_total "]),
        (
            "api",
            &[
                "nginxplus_up 1",
                "nginxplus_connections_accepted ",
                "nginxplus_http_requests_total ",
                "nginxplus_server_zone_requests{server_zone=\"site\"} ",
                "nginxplus_location_zone_requests{location_zone=\"app\"} 1",
                "nginxplus_server_zone_ssl_handshakes{server_zone=\"site\"} 0",
                "nginxplus_limit_request_passed{zone=\"rate\"} ",
                "nginxplus_limit_connection_passed{zone=\"number\"} ",
                "nginxplus_resolver_name{resolver=\"names\"} ",
                "nginxplus_stream_server_zone_connections{server_zone=\"door\"} ",
                "nginxplus_stream_limit_connection_passed{zone=\"sessions\"} ",
                "nginxplus_stream_upstream_server_state{server=",
            ],
        ),
    ];
    for (path, lines) in wanted {
        let listen = free_port();
        let mut arguments = vec![
            format!("-nginx.scrape-uri=http://127.0.0.1:{port}/{path}"),
            format!("-web.listen-address=127.0.0.1:{listen}"),
        ];
        if path == "api" {
            arguments.push("-nginx.plus".into());
        }
        let Some(mut child) = exporter(&arguments) else { break };
        let text = wait("the exporter's page", || match page(listen) {
            Ok(text) if text.contains("_up ") => Ok(text),
            Ok(text) => Err(text),
            Err(why) => match child.try_wait() {
                Ok(Some(status)) => panic!("the exporter ended: {status}"),
                _ => Err(why),
            },
        });
        let _ = child.kill();
        let _ = child.wait();
        for line in lines {
            assert!(text.lines().any(|found| found.starts_with(line)), "there is no {line}:\n{text}");
        }
    }
    running.quit();
    site.assert_no_alerts();
}
