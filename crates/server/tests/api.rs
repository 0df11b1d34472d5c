//! The API of nginx's commercial edition: contract of its public description, changes of servers and pairs, durability,
//! and clients that others wrote.

mod support;

use serde_json::{Value, json};
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use support::client::Client;
use support::origin::{Origin, ok};
use support::{Running, Site, free_port, signal, wait};

/// Asks the API; `path` is below `/api`. Returns status and JSON, `Null` without a body.
fn ask(port: u16, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    ask_with(port, method, path, "", body)
}

fn ask_with(port: u16, method: &str, path: &str, fields: &str, body: Option<&Value>) -> (u16, Value) {
    let text = body.map(ToString::to_string).unwrap_or_default();
    raw(port, method, path, fields, &text)
}

fn raw(port: u16, method: &str, path: &str, fields: &str, text: &str) -> (u16, Value) {
    let length = text.len();
    let head = format!(
        "{method} /api{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}Content-Length: {length}\r\n\r\n{text}"
    );
    let (status, text) = Client::connect(port).and_then(|mut c| c.ask(&head)).expect("an answer");
    let value = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).expect(&text) };
    (status, value)
}

fn get(port: u16, path: &str) -> Value {
    let (status, value) = ask(port, "GET", path, None);
    assert_eq!(status, 200, "{path}: {value}");
    value
}

fn code(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1.pointer("/error/code").and_then(Value::as_str).unwrap_or_default())
}

fn address(origin: &Origin) -> String {
    format!("127.0.0.1:{}", origin.port)
}

fn everything(port: u16, stream_port: u16, origin: &str, more: &str) -> Site {
    let conf = format!(
        "http {{
            proxy_cache_path cache keys_zone=store:1m max_size=1m;
            limit_req_zone $arg_key zone=rate:32k rate=1r/m;
            limit_conn_zone $arg_key zone=number:32k;
            keyval_zone zone=pairs:64k;
            keyval_zone zone=mortal:64k timeout=1h;
            keyval $arg_key $pair zone=pairs;
            resolver 127.0.0.1:1 status_zone=names;
            upstream app {{ zone app 64k; server {origin} max_conns=100; server 127.0.0.1:1 down; queue 5; }}
            upstream fixed {{ server {origin}; }}
            upstream hashed {{ zone hashed 64k; server {origin}; hash $uri; }}
            {more}
            server {{
                listen 127.0.0.1:{port}; status_zone site;
                location /api {{ api write=on; status_zone off; }}
                location /read/ {{ api; }}
                location / {{ status_zone app; proxy_pass http://app; }}
                location /cached {{ proxy_cache store; proxy_cache_valid 1h; proxy_pass http://app; }}
                location /limited {{ limit_req zone=rate; limit_conn number 9; return 200; }}
                location /pair {{ return 200 \"$pair\"; }}
                location /none {{ return 404; }}
            }}
        }}
        stream {{
            limit_conn_zone $remote_addr zone=sessions:32k;
            keyval_zone zone=stream_pairs:32k;
            upstream tcp {{ zone tcp 64k; server {origin}; }}
            server {{
                listen 127.0.0.1:{stream_port}; status_zone door; limit_conn sessions 10; proxy_pass tcp;
            }}
        }}"
    );
    Site::new("daemon off; worker_processes 2;", &conf)
}

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

fn generation_of(port: u16, path: &str) -> String {
    let head = format!("GET /api{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let (_, head) = Client::connect(port).and_then(|mut c| c.ask_for_head(&head)).expect("an answer");
    head.lines().find_map(|line| line.strip_prefix("ETag: ")).expect("an ETag").to_string()
}

fn servers(port: u16, path: &str) -> Vec<(u64, String)> {
    let all = get(port, &format!("{path}/servers"));
    let one = |server: &Value| (server["id"].as_u64().expect("id"), server["server"].as_str().expect("server").into());
    all.as_array().expect("a list").iter().map(one).collect()
}

#[test]
fn servers_are_added_changed_drained_and_removed() {
    let (port, stream_port) = (free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = everything(port, stream_port, &address(&origin), "");
    let running = site.start();
    let group = "/9/http/upstreams/app";
    let path = format!("{group}/servers/");
    let before = servers(port, group);
    let (status, added) = ask(port, "POST", &path, Some(&json!({"server": "127.0.0.1:2", "weight": 3, "down": true})));
    let id = added["id"].as_u64().expect("an id");
    assert_eq!((status, &added["fail_timeout"], &added["weight"]), (201, &json!("10s"), &json!(3)), "{added}");
    assert!(before.iter().all(|(known, _)| *known != id));
    let one = format!("{path}{id}/");
    let (status, changed) = ask(
        port,
        "PATCH",
        &one,
        Some(
            &json!({"weight": 7, "fail_timeout": "3s", "slow_start": "1500ms", "down": false, "drain": true, "route": "r"}),
        ),
    );
    assert_eq!(status, 200, "{changed}");
    assert_eq!(
        (&changed["weight"], &changed["fail_timeout"], &changed["slow_start"], &changed["drain"], &changed["route"]),
        (&json!(7), &json!("3s"), &json!("1500ms"), &json!(true), &json!("r"))
    );
    assert_eq!(get(port, &one), changed);
    let peers = get(port, group);
    let peer = peers["peers"].as_array().expect("peers").iter().find(|peer| peer["id"] == json!(id)).expect("it");
    assert_eq!((&peer["state"], &peer["weight"]), (&json!("draining"), &json!(7)));
    // An address may change, and the id stays.
    assert_eq!(ask(port, "PATCH", &one, Some(&json!({"server": "127.0.0.1"}))).1["server"], json!("127.0.0.1:80"));
    let (status, left) = ask(port, "DELETE", &one, None);
    assert_eq!((status, left.as_array().map(Vec::len)), (200, Some(before.len())));
    assert_eq!(servers(port, group), before);
    let (_, again) = ask(port, "POST", &path, Some(&json!({"server": "127.0.0.1:2", "down": true})));
    assert_ne!(again["id"], json!(id), "ids are not used twice");
    // Replaces the whole list: rehearsed, rejected, done.
    let list = json!([{"server": address(&origin), "weight": 9}, {"server": "127.0.0.1:3", "down": true}]);
    assert_eq!(ask(port, "PUT", &format!("{path}?dry_run=1"), Some(&list)).1.as_array().map(Vec::len), Some(2));
    assert_eq!(servers(port, group).len(), before.len() + 1);
    let stale = ask_with(port, "PUT", &path, "If-Match: \"0\"\r\n", Some(&list));
    assert_eq!(code(&stale), (412, "PreconditionFailed"));
    let current = format!("If-Match: {}\r\n", generation_of(port, &path));
    let dry = ask_with(port, "PUT", &format!("{path}?dry_run"), &current, Some(&list));
    assert_eq!((dry.0, servers(port, group).len()), (200, before.len() + 1));
    let (status, done) = ask_with(port, "PUT", &path, &current, Some(&list));
    assert_eq!((status, &done[0]["id"], &done[0]["weight"]), (200, &json!(before[0].0), &json!(9)), "{done}");
    let wrong = json!([{"server": "127.0.0.1:4"}, {"server": "127.0.0.1:5", "weight": 0}]);
    assert_eq!(code(&ask(port, "PUT", &path, Some(&wrong))), (400, "UpstreamBadWeight"));
    assert_eq!(servers(port, group).len(), 2, "all or nothing");
    // A reload: what the API added stays, the file's lines are as written.
    running.signal("HUP");
    let all = wait("the lines of the file", || {
        let all = servers(port, group);
        if all.len() == 3 { Ok(all) } else { Err(format!("{all:?}")) }
    });
    let texts: Vec<&str> = all.iter().map(|(_, text)| text.as_str()).collect();
    assert!(texts.contains(&"127.0.0.1:3") && texts.contains(&"127.0.0.1:1"), "{texts:?}");
    assert_eq!(get(port, &format!("{path}{}", before[0].0))["weight"], json!(1));
    // The stream area has its own.
    let (status, tcp) = ask(
        port,
        "POST",
        "/9/stream/upstreams/tcp/servers/",
        Some(&json!({"server": "127.0.0.1:2", "slow_start": "0s", "max_conns": 5})),
    );
    assert_eq!((status, &tcp["max_conns"]), (201, &json!(5)), "{tcp}");
    assert_eq!(servers(port, "/9/stream/upstreams/tcp").len(), 2);
    running.quit();
    site.assert_no_alerts();
}

fn with_state(port: u16, main: &str) -> Site {
    let conf = format!(
        "http {{
            upstream app {{ zone app 64k; state app.servers; }}
            server {{
                listen 127.0.0.1:{port};
                location /api {{ api write=on; }}
                location / {{ proxy_pass http://app; proxy_read_timeout 20s; }}
            }}
        }}"
    );
    Site::new(main, &conf)
}

fn crash(site: &Site, running: &Running<'_>) {
    let old = running.worker();
    signal(old, "KILL");
    wait("another worker", || if running.worker() == old { Err("the old one") } else { Ok(()) });
    let _ = site;
}

#[test]
fn a_state_file_survives_reload_crash_and_restart() {
    let port = free_port();
    let origin = Origin::answering(|_| ok("from behind"));
    let site = with_state(port, "user root; daemon off; worker_processes 2;");
    let running = site.start();
    let group = "/9/http/upstreams/app";
    let path = format!("{group}/servers/");
    let fetch = || {
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        Client::connect(port).and_then(|mut c| c.ask(request)).map(|(status, _)| status)
    };
    assert_eq!(fetch().expect("an answer"), 502, "no server yet");
    assert_eq!(servers(port, group), []);
    let mut tags = vec![generation_of(port, &path)];
    assert_eq!(ask(port, "POST", &path, Some(&json!({"server": address(&origin), "weight": 2}))).0, 201);
    // It is on the disk and in force before the answer.
    assert_eq!(site.read("app.servers"), format!("server {} weight=2;\n", address(&origin)));
    assert_eq!(fetch().expect("an answer"), 200);
    let id = servers(port, group)[0].0;
    tags.push(generation_of(port, &path));
    running.signal("HUP");
    site.wait_for_log("reconfiguring", 1);
    assert_eq!(servers(port, group), [(id, address(&origin))], "a reload keeps servers and ids");
    // A change after the reload is durable, too, and survives a crash of the worker.
    assert_eq!(ask(port, "PATCH", &format!("{path}{id}"), Some(&json!({"max_conns": 5}))).0, 200);
    tags.push(generation_of(port, &path));
    crash(&site, &running);
    wait("the server again", || match fetch() {
        Ok(200) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(get(port, &path)[0]["max_conns"], json!(5));
    assert_eq!(get(port, "/9/processes")["respawned"], json!(1));
    running.quit();
    let running = site.start();
    assert_eq!(fetch().expect("an answer"), 200);
    assert_eq!(get(port, &path)[0]["max_conns"], json!(5));
    let tag = generation_of(port, &path);
    assert!(!tags.contains(&tag), "a tag of another process: {tag}");
    // A file that cannot be replaced: no change is made.
    std::fs::remove_file(site.path("app.servers")).expect("removed");
    std::fs::create_dir_all(site.path("app.servers/x")).expect("a folder");
    let failed = ask(port, "POST", &path, Some(&json!({"server": "127.0.0.1:2"})));
    assert_eq!(code(&failed), (500, "InternalError"), "{}", failed.1);
    assert_eq!(servers(port, group).len(), 1);
    running.quit();
    std::fs::remove_dir_all(site.path("app.servers")).expect("removed");
    site.write("app.servers", "server 127.0.0.1:1;\nlisten 80;\n");
    let output = site.run(&["-t"]);
    let words = support::text(&output.stderr);
    assert!(!output.status.success() && words.contains("app.servers:2"), "{words}");
}

/// A server that is removed finishes its requests, and counts as a zombie until then.
#[test]
fn removed_servers_finish_their_requests() {
    let port = free_port();
    let gate = Arc::new(Mutex::new(()));
    let passed = gate.clone();
    let origin = Origin::answering(move |_| {
        drop(passed.lock().unwrap_or_else(PoisonError::into_inner));
        ok("late")
    });
    // Dropped before the origin, which waits for its requests.
    let closed = gate.lock().expect("an unpoisoned lock");
    let site = with_state(port, "user root; daemon off; worker_processes 1;");
    site.write("app.servers", &format!("server {};\n", address(&origin)));
    let running = site.start();
    let group = "/9/http/upstreams/app";
    let client = std::thread::spawn(move || {
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        Client::connect(port).and_then(|mut c| c.ask(request)).expect("an answer")
    });
    wait("the request", || {
        let app = get(port, group);
        if app.pointer("/peers/0/active") == Some(&json!(1)) { Ok(()) } else { Err(app.to_string()) }
    });
    let id = servers(port, group)[0].0;
    assert_eq!(ask(port, "DELETE", &format!("{group}/servers/{id}"), None), (200, json!([])));
    let app = get(port, group);
    assert_eq!((&app["zombies"], &app["peers"]), (&json!(1), &json!([])));
    drop(closed);
    assert_eq!(client.join().expect("the client"), (200, "late".into()));
    wait("the zombie's end", || {
        let app = get(port, group);
        if app["zombies"] == json!(0) { Ok(()) } else { Err(app.to_string()) }
    });
    running.quit();
    site.assert_no_alerts();
}

/// As a client that synchronizes servers with a cloud's list: reads, adds, removes, all under load.
#[test]
fn synchronizing_servers_loses_no_request() {
    const CHANGES: u64 = 200;
    let port = free_port();
    let origins: Vec<Origin> = (0..4).map(|_| Origin::answering(|_| ok("from behind"))).collect();
    let site = with_state(port, "user root; daemon off; worker_processes 2;");
    site.write("app.servers", &format!("server {};\n", address(&origins[0])));
    let running = site.start();
    let (over, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let (over, served) = (over.clone(), served.clone());
            std::thread::spawn(move || {
                let mut client = Client::connect(port).expect("connects");
                while !over.load(Ordering::Acquire) {
                    let answer = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("an answer");
                    assert_eq!(answer.0, 200);
                    served.fetch_add(1, Ordering::AcqRel);
                    // (After `keepalive_requests`.)
                    if client.closing {
                        client = Client::connect(port).expect("connects");
                    }
                }
            })
        })
        .collect();
    let group = "/9/http/upstreams/app";
    let mut dice = 7_u64;
    for _ in 0..CHANGES {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The target list: the first origin stays, others change.
        let wanted: Vec<String> = origins
            .iter()
            .enumerate()
            .filter(|(index, _)| *index == 0 || dice >> (20 + index) & 1 == 1)
            .map(|(_, origin)| address(origin))
            .collect();
        let present = servers(port, group);
        for server in wanted.iter().filter(|server| present.iter().all(|(_, known)| known != *server)) {
            let body = json!({"server": server, "max_fails": 1, "fail_timeout": "10s", "slow_start": "0s"});
            assert_eq!(ask(port, "POST", &format!("{group}/servers/"), Some(&body)).0, 201);
        }
        for (id, _) in present.iter().filter(|(_, known)| !wanted.contains(known)) {
            assert_eq!(ask(port, "DELETE", &format!("{group}/servers/{id}"), None).0, 200);
        }
        let mut now: Vec<String> = servers(port, group).into_iter().map(|(_, server)| server).collect();
        now.sort();
        let mut wanted = wanted;
        wanted.sort();
        assert_eq!(now, wanted);
    }
    wait("some load", || if served.load(Ordering::Acquire) > 100 { Ok(()) } else { Err("too few requests") });
    over.store(true, Ordering::Release);
    for client in clients {
        client.join().expect("no request was lost");
    }
    running.quit();
    site.assert_no_alerts();
}

fn exporter(arguments: &[String]) -> Option<std::process::Child> {
    let program = std::env::var("TIDEGATE_TEST_NGINX_EXPORTER").unwrap_or_else(|_| "prometheus-nginx-exporter".into());
    let child = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    match child {
        Ok(child) => Some(child),
        Err(e) => {
            eprintln!("NOT TESTED: prometheus-nginx-exporter is not installed ({e})");
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
