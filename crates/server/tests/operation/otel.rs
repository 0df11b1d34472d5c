//! OpenTelemetry traces: what nginx-otel's own tests check, over every version of HTTP, and the export over gRPC and HTTP with
//! receivers that fail.

use crate::support;

use std::fmt::Write as _;
use std::io::{BufRead, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use support::client::Client;
use support::origin::{Origin, ok};
use support::otlp::{Export, Kind, Receiver, Reply, Span, Value};
use support::{Site, free_port, http2, http3, text, wait};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b9c7c989f97918e1";
const STATE: &str = "congo=ucfJifl5GOE,rojo=00f067aa0ba902b7";
const MAIN: &str = "load_module modules/ngx_otel_module.so; daemon off; worker_processes 2;";
/// Exports spans at once.
const SOON: &str = "interval 1ms;";

fn conf(port: u16, endpoint: &str, exporter: &str, http: &str, server: &str) -> String {
    format!(
        "http {{ access_log off; otel_exporter {{ endpoint {endpoint}; {exporter} }} otel_trace on; {http}
            server {{ listen 127.0.0.1:{port}; server_name localhost; {server} }} }}"
    )
}

fn grpc(receiver: &Receiver) -> String {
    format!("127.0.0.1:{}", receiver.port)
}

/// A request; status, head and body of the response.
fn get(port: u16, path: &str, fields: &[(&str, &str)]) -> (u16, String, String) {
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test/1\r\nConnection: close\r\n");
    for (name, value) in fields {
        let _ = write!(request, "{name}: {value}\r\n");
    }
    let answered = Client::connect(port).and_then(|mut client| client.ask_for_all(&format!("{request}\r\n")));
    answered.unwrap_or_else(|e| panic!("GET {path}: {e}"))
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn parent() -> String {
    format!("00-{TRACE}-{PARENT}-01")
}

const USUAL: &str = "
    location /ok { return 200 OK; }
    location /err { return 500 ERR; }
    location /custom {
        otel_span_name custom_location;
        otel_span_attr http.request.completion $request_completion;
        otel_span_attr http.response.header.content.type $sent_http_content_type;
        otel_span_attr http.request $request;
        return 200 OK;
    }
    location /vars {
        otel_trace_context extract;
        add_header X-Otel-Trace-Id $otel_trace_id;
        add_header X-Otel-Span-Id $otel_span_id;
        add_header X-Otel-Parent-Id $otel_parent_id;
        add_header X-Otel-Parent-Sampled $otel_parent_sampled;
        return 204;
    }
    location /ignore { proxy_pass http://127.0.0.1:{port}/notrace; }
    location /extract { otel_trace_context extract; proxy_pass http://127.0.0.1:{port}/notrace; }
    location /inject { otel_trace_context inject; proxy_pass http://127.0.0.1:{port}/notrace; }
    location /propagate { otel_trace_context propagate; proxy_pass http://127.0.0.1:{port}/notrace; }
    location /notrace {
        otel_trace off;
        add_header X-Otel-Traceparent $http_traceparent;
        add_header X-Otel-Tracestate $http_tracestate;
        return 204;
    }";

/// The configuration of nginx-otel's tests.
fn usual(port: u16, receiver: &Receiver) -> String {
    let server =
        format!("http2 on; listen 127.0.0.1:{port} quic; ssl_certificate a.crt; ssl_certificate_key a.key; {USUAL}");
    conf(port, &grpc(receiver), SOON, "", &server.replace("{port}", &port.to_string()))
}

fn site(conf: &str) -> Site {
    let site = Site::new(MAIN, conf);
    site.certify();
    site
}

#[test]
fn automatic_attributes_of_every_version() {
    let (receiver, port) = (Receiver::start(Kind::Grpc), free_port());
    let site = site(&usual(port, &receiver));
    let running = site.start();
    let mut quic = http3::Client::connect(port, "localhost", &http3::config());
    quic.until("the handshake", |client| client.connected.is_some());
    for (path, status, length) in [("/ok", 200, 2), ("/err", 500, 3)] {
        for version in ["1.1", "2.0", "3.0"] {
            match version {
                "1.1" => assert_eq!(get(port, path, &[]).0, status),
                "2.0" => {
                    let mut client = http2::Client::connect(port);
                    let block = client.block(path, &[("user-agent", "test/1")]);
                    client.send(&http2::frame(http2::HEADERS, 5, 1, &block));
                    assert_eq!(client.answer(1).0, status.to_string());
                }
                _ => {
                    let fields = [
                        (":method", "GET"),
                        (":scheme", "https"),
                        (":authority", "localhost"),
                        (":path", path),
                        ("user-agent", "test/1"),
                    ];
                    let stream = quic.ask(&fields, None);
                    assert_eq!(quic.answer(stream).status, status);
                }
            }
            let span = receiver.span();
            assert_eq!((span.name.as_str(), span.kind, span.parent_id.as_str()), (path, 2, ""), "{version}");
            assert_eq!(span.status, if status == 500 { 2 } else { 0 });
            let scheme = if version == "3.0" { "https" } else { "http" };
            for (name, want) in [
                ("http.method", "GET"),
                ("http.target", path),
                ("http.route", path),
                ("http.scheme", scheme),
                ("http.flavor", version),
                ("http.user_agent", "test/1"),
                ("net.host.name", "localhost"),
                ("net.sock.peer.addr", "127.0.0.1"),
            ] {
                assert_eq!(span.get(name), &Value::from(want), "{version} {name}");
            }
            for (name, want) in [
                ("http.request_content_length", 0),
                ("http.response_content_length", length),
                ("http.status_code", i64::from(status)),
                ("net.host.port", i64::from(port)),
            ] {
                assert_eq!(span.get(name), &Value::from(want), "{version} {name}");
            }
            assert!(matches!(span.get("net.sock.peer.port"), Value::Number(1024..=65535)));
            assert!(!span.attributes.contains_key("url.path"));
        }
    }
    quic.close();
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn http_09_and_untraced_requests() {
    let (receiver, port) = (Receiver::start(Kind::Grpc), free_port());
    let site = site(&usual(port, &receiver));
    let running = site.start();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.write_all(b"GET /ok\n").expect("sent");
    let mut body = String::new();
    stream.read_to_string(&mut body).expect("an answer");
    assert_eq!(body, "OK");
    let span = receiver.span();
    assert_eq!(span.name, "/ok");
    assert!(!span.attributes.contains_key("http.flavor"));
    // Neither an untraced request nor one that is malformed makes a span; the one after them does.
    assert_eq!(get(port, "/notrace", &[]).0, 204);
    assert_eq!(get(port, "/ok", &[("Content-Length", "x")]).0, 400);
    assert_eq!(get(port, "/custom", &[]).0, 200);
    let span = receiver.span();
    assert_eq!(span.name, "custom_location");
    assert_eq!(span.get("http.request.completion"), &Value::from("OK"));
    assert_eq!(span.get("http.response.header.content.type"), &Value::List(vec!["text/plain".into()]));
    assert_eq!(span.get("http.request"), &Value::from("GET /custom HTTP/1.1"));
    running.quit();
    assert!(receiver.is_empty());
    site.assert_no_alerts();
}

#[test]
fn variables_have_the_context() {
    let (receiver, port) = (Receiver::start(Kind::Grpc), free_port());
    let site = site(&usual(port, &receiver));
    let running = site.start();
    let parent = parent();
    for (fields, has_parent) in [
        (vec![], false),
        (vec![("Traceparent", parent.as_str()), ("Tracestate", STATE)], true),
        (
            vec![("traceparent", parent.as_str()), ("TRACESTATE", "congo=ucfJifl5GOE"), ("tracestate", &STATE[18..])],
            true,
        ),
        // Malformed and repeated ones are none.
        (vec![("traceparent", &parent[..54])], false),
        (vec![("traceparent", parent.as_str()), ("traceparent", parent.as_str())], false),
    ] {
        let (status, head, _) = get(port, "/vars", &fields);
        assert_eq!(status, 204);
        let span = receiver.span();
        assert_eq!(field(&head, "X-Otel-Trace-Id"), Some(span.trace_id.as_str()), "{fields:?}");
        assert_eq!(field(&head, "X-Otel-Span-Id"), Some(span.span_id.as_str()));
        assert_eq!(field(&head, "X-Otel-Parent-Sampled"), Some(if has_parent { "1" } else { "0" }));
        if has_parent {
            assert_eq!((span.trace_id.as_str(), span.parent_id.as_str(), span.state.as_str()), (TRACE, PARENT, STATE));
            assert_eq!((field(&head, "X-Otel-Parent-Id"), span.flags), (Some(PARENT), 0x301));
        } else {
            assert_eq!((span.parent_id.as_str(), span.state.as_str(), span.flags), ("", "", 0x101));
            assert_eq!(field(&head, "X-Otel-Parent-Id"), None);
            assert_ne!(span.trace_id, TRACE);
        }
    }
    running.quit();
    site.assert_no_alerts();
}

/// Checks what a server received against what the span and the mode demand.
fn judge_context(path: &str, with_parent: bool, span: &Span, got: (Option<&str>, Option<&str>)) {
    let extracts = with_parent && ["/extract", "/propagate"].contains(&path);
    if extracts {
        assert_eq!((span.trace_id.as_str(), span.parent_id.as_str(), span.state.as_str()), (TRACE, PARENT, STATE));
    } else {
        assert!(span.trace_id != TRACE && span.parent_id.is_empty() && span.state.is_empty(), "{span:?}");
    }
    let injected = format!("00-{}-{}-01", span.trace_id, span.span_id);
    let parent = parent();
    let want = match path {
        "/inject" | "/propagate" => (Some(injected.as_str()), extracts.then_some(STATE)),
        _ => (with_parent.then_some(parent.as_str()), with_parent.then_some(STATE)),
    };
    assert_eq!(got, want, "{path} {with_parent}");
}

#[test]
fn context_in_its_four_modes() {
    let (receiver, port) = (Receiver::start(Kind::Grpc), free_port());
    let site = site(&usual(port, &receiver));
    let running = site.start();
    let mut quic = http3::Client::connect(port, "localhost", &http3::config());
    quic.until("the handshake", |client| client.connected.is_some());
    let parent = parent();
    for path in ["/ignore", "/extract", "/inject", "/propagate"] {
        for with_parent in [false, true] {
            let fields: &[(&str, &str)] =
                if with_parent { &[("traceparent", &parent), ("tracestate", STATE)] } else { &[] };
            let (status, head, _) = get(port, path, fields);
            assert_eq!(status, 204);
            let got = (field(&head, "X-Otel-Traceparent"), field(&head, "X-Otel-Tracestate"));
            judge_context(path, with_parent, &receiver.span(), got);
            let usual = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", path)];
            let stream = quic.ask(&[&usual[..], fields].concat(), None);
            let answer = quic.answer(stream);
            let got = (answer.field("x-otel-traceparent"), answer.field("x-otel-tracestate"));
            judge_context(path, with_parent, &receiver.span(), got);
        }
    }
    quic.close();
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn sampling_by_parent_ratio_and_variables() {
    let (receiver, port) = (Receiver::start(Kind::Grpc), free_port());
    let http = "split_clients $otel_trace_id $all { 100% on; * off; } \
                split_clients $otel_trace_id $none { 100% off; * on; } \
                split_clients $otel_trace_id $half { 50% on; * off; } \
                split_clients $otel_trace_id $written { 100% off; * off; }";
    let server = "otel_trace_context propagate; rewrite ^/moved /all; set $written on;
        location /half { otel_trace $half; return 200 $half; }
        location /written { otel_trace $written; return 200; }
        location /parent { otel_trace $otel_parent_sampled; proxy_pass http://127.0.0.1:{port}/seen; }
        location /all { otel_trace $all; return 200; }
        location /none { otel_trace $none; return 200; }
        location /seen { otel_trace off; otel_trace_context ignore; return 200 $http_traceparent; }
        location /redirected { error_page 404 = /none; return 404; }
        location / { rewrite ^ /none last; }";
    let conf = conf(port, &grpc(&receiver), SOON, http, &server.replace("{port}", &port.to_string()));
    let site = site(&conf);
    let running = site.start();
    let flags = |sent: &str| {
        let (_, _, body) = get(port, "/parent", &[("traceparent", &format!("00-{TRACE}-{PARENT}-{sent}"))]);
        assert!(body.starts_with(&format!("00-{TRACE}-")) && !body.contains(PARENT), "{body}");
        body[53..].to_string()
    };
    assert_eq!(flags("00"), "00");
    assert_eq!(flags("01"), "01");
    let span = receiver.span();
    assert_eq!((span.trace_id.as_str(), span.parent_id.as_str()), (TRACE, PARENT));
    assert_eq!(get(port, "/none", &[]).0, 200);
    assert_eq!(get(port, "/all", &[]).0, 200);
    assert_eq!(receiver.span().name, "/all");
    // The decision of the first location stands; a rewrite of the server comes before it.
    for path in ["/other", "/redirected", "/moved"] {
        assert_eq!(get(port, path, &[]).0, 200);
        assert_eq!(receiver.span().name, if path == "/moved" { "/all" } else { "/none" });
    }
    // The sampler's value in a response is the decision; a value that `set` has written stands.
    let mut values = std::collections::BTreeSet::new();
    for _ in 0..30 {
        let (_, _, body) = get(port, "/half", &[]);
        if body == "on" {
            assert_eq!(receiver.span().name, "/half");
        }
        values.insert(body);
    }
    assert!(values.contains("on") && values.contains("off"), "{values:?}");
    assert_eq!(get(port, "/written", &[]).0, 200);
    assert_eq!(receiver.span().name, "/written");
    running.quit();
    assert!(receiver.is_empty());
    site.assert_no_alerts();
}

#[test]
fn a_share_decides_before_ids_are_known() {
    let (receiver, port) = (Receiver::start(Kind::Grpc), free_port());
    let http = "split_clients $otel_trace_id $all { 100% on; * off; } \
                split_clients $otel_trace_id $none { 100% off; * on; } \
                split_clients $otel_trace_id $half { 50% on; * off; }";
    let server = "otel_trace $half;
        location /half { return 200 $half; }
        location /moved { rewrite ^ /half last; }
        location /passed { error_page 418 = /half; return 418; }
        location /all { otel_trace $all; return 200 on; }
        location /none { otel_trace $none; return 200 off; }";
    let site = site(&conf(port, &grpc(&receiver), SOON, http, server));
    let running = site.start();
    for path in ["/half", "/moved", "/passed"] {
        let mut values = std::collections::BTreeSet::new();
        for _ in 0..30 {
            let (_, _, body) = get(port, path, &[]);
            if body == "on" {
                assert_eq!(receiver.span().name, "/half");
            }
            values.insert(body);
            assert_eq!(get(port, "/none", &[]).2, "off");
        }
        assert!(values.contains("on") && values.contains("off"), "{path}: {values:?}");
        assert_eq!(get(port, "/all", &[]).2, "on");
        assert_eq!(receiver.span().name, "/all");
    }
    running.quit();
    assert!(receiver.is_empty());
    site.assert_no_alerts();
}

#[test]
fn batches_and_the_queue_are_bounded() {
    let (receiver, port) = (Receiver::start(Kind::Grpc), free_port());
    let exporter = "interval 1h; batch_size 3; batch_count 3;";
    let server = "location /ok { return 200 OK; } location /metrics { otel_trace off; metrics format=prometheus; }";
    let conf = conf(port, &format!("http://127.0.0.1:{}", receiver.port), exporter, "", server);
    let site = site(&conf);
    let running = site.start();
    let mut got: Vec<Export> = Vec::new();
    for _ in 0..3 {
        for _ in 0..3 {
            assert_eq!(get(port, "/ok", &[]).0, 200);
        }
        got.extend(receiver.exports(3));
    }
    assert_eq!(got.iter().map(|one| one.spans.len()).collect::<Vec<_>>(), [3, 3, 3]);
    for export in &got {
        assert_eq!(export.resource.get("service.name"), Some(&Value::from("unknown_service:nginx")));
        assert_eq!(export.scope, ("tidegate".to_string(), env!("CARGO_PKG_VERSION").to_string()));
        assert_eq!(export.path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    }
    assert_eq!(receiver.connections(), 1, "kept");
    let metrics = |words: &str| {
        wait(words, || {
            let (_, _, metrics) = get(port, "/metrics", &[]);
            if metrics.contains(words) { Ok(()) } else { Err(metrics) }
        });
    };
    metrics("tidegate_otel_spans_total{result=\"exported\"} 9\n");
    // The receiver is silent: nine spans are held, the batch being sent included; the tenth is dropped.
    receiver.reply(Reply::Hang);
    for _ in 0..12 {
        assert_eq!(get(port, "/ok", &[]).0, 200);
    }
    metrics("tidegate_otel_spans_total{result=\"exported\"} 9\n");
    metrics("tidegate_otel_spans_total{result=\"dropped\"} 3\n");
    assert!(site.log().contains("[notice]") && site.log().contains("OTel dropped records: 1"), "{}", site.log());
    drop(receiver);
    running.quit();
    site.wait_for_log("OTel export failure: connect() failed", 1);
    site.assert_no_alerts();
}

#[test]
fn everything_leaves_before_the_exit_and_after_a_reload() {
    let (receiver, port) = (Receiver::start(Kind::Grpc), free_port());
    let conf = |name: &str| {
        let http = format!("otel_service_name {name};");
        conf(port, &grpc(&receiver), "interval 1h;", &http, "location / { return 200 OK; }")
    };
    let site = site(&conf("first"));
    let running = site.start();
    let mut kept = Client::connect(port).expect("connected");
    let ask = "GET /old HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(kept.ask(ask).expect("an answer").0, 200);
    site.configure(MAIN, &conf("second"));
    running.signal("HUP");
    wait("the second configuration", || {
        let reloads = site.log().matches("reconfiguring").count();
        (reloads > 0).then_some(()).ok_or_else(|| site.log())
    });
    assert_eq!(get(port, "/new", &[]).0, 200);
    drop(kept);
    running.quit();
    let mut all = receiver.exports(2);
    all.sort_by_key(|one| one.spans[0].text("http.target").to_string());
    let found: Vec<_> = all.iter().map(|one| (one.spans.len(), one.spans[0].text("http.target"))).collect();
    let (old, new) = ("/old", "/new");
    match found.as_slice() {
        [(1, a), (1, b)] => assert_eq!((*a, *b), (new, old)),
        // The new configuration may serve only after the request.
        [(2, _)] => {}
        other => panic!("{other:?}"),
    }
    site.assert_no_alerts();
}

#[test]
fn headers_resource_and_protocol_of_http() {
    let (receiver, port) = (Receiver::start(Kind::Http), free_port());
    let http =
        "otel_service_name test_service; otel_resource_attr my.name 'my name'; otel_resource_attr my.service old;
        otel_resource_attr my.service 'my service'; otel_resource_attr service.name ignored;";
    let exporter = format!("{SOON} header X-API-TOKEN api.value; header Authorization 'Basic value';");
    let endpoint = format!("http://localhost:{}/custom/path?a=b", receiver.port);
    let site = site(&conf(port, &endpoint, &exporter, http, "location / { return 200 OK; }"));
    let running = site.start();
    get(port, "/ok", &[]);
    let export = receiver.exports(1).remove(0);
    assert_eq!(export.path, "/custom/path?a=b");
    assert_eq!(export.field("x-api-token"), Some("api.value"));
    assert_eq!(export.field("authorization"), Some("Basic value"));
    let want = [("my.name", "my name"), ("my.service", "my service"), ("service.name", "test_service")];
    let want = want.map(|(name, value)| (name.to_string(), Value::from(value)));
    assert_eq!(export.resource.into_iter().collect::<Vec<_>>(), want);
    // Transient errors are tried again.
    let retries = [
        Reply::Http(429, "Retry-After: 0\r\n"),
        Reply::Http(502, "Retry-After: 0\r\n"),
        Reply::Http(503, "Retry-After: 0\r\n"),
        Reply::Http(504, "Retry-After: 0\r\n"),
        Reply::Close,
    ];
    retries.into_iter().for_each(|reply| receiver.reply(reply));
    get(port, "/again", &[]);
    assert_eq!(receiver.span().text("http.target"), "/again");
    // Others are given up.
    receiver.reply(Reply::Http(400, ""));
    get(port, "/lost", &[]);
    site.wait_for_log("OTel export failure: HTTP status 400", 1);
    receiver.reply(Reply::Rejected(1, "too old"));
    get(port, "/rejected", &[]);
    assert_eq!(receiver.span().text("http.target"), "/rejected");
    site.wait_for_log("OTel receiver rejected 1 of 1 spans: too old", 1);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn failures_of_grpc() {
    let (receiver, port) = (Receiver::start(Kind::Grpc), free_port());
    let exporter = format!("{SOON} header X-API-TOKEN api.value; header Authorization 'Basic value';");
    let server = "location / { return 200 OK; } location /metrics { otel_trace off; metrics format=prometheus; }";
    let site = site(&conf(port, &grpc(&receiver), &exporter, "", server));
    let running = site.start();
    for reply in [Reply::Grpc(14, "busy"), Reply::Http(503, ""), Reply::Close] {
        receiver.reply(reply);
    }
    get(port, "/again", &[]);
    let export = receiver.exports(1).remove(0);
    assert_eq!(export.field("x-api-token"), Some("api.value"));
    assert_eq!(export.field("authorization"), Some("Basic value"));
    assert_eq!(export.field(":authority"), Some(format!("127.0.0.1:{}", receiver.port).as_str()));
    site.wait_for_log("OTel export is tried again: gRPC status 14: busy", 1);
    for (reply, words) in [
        (Reply::Grpc(16, "no token"), "OTel export failure: gRPC status 16: no token"),
        (Reply::Http(404, ""), "OTel export failure: no gRPC status, HTTP status 404"),
    ] {
        receiver.reply(reply);
        get(port, "/lost", &[]);
        site.wait_for_log(words, 1);
    }
    receiver.reply(Reply::Rejected(1, "why"));
    get(port, "/rejected", &[]);
    receiver.span();
    site.wait_for_log("OTel receiver rejected 1 of 1 spans: why", 1);
    let (_, _, metrics) = get(port, "/metrics", &[]);
    for (result, n) in [("exported", 1), ("dropped", 0), ("rejected", 1), ("failed", 2)] {
        assert!(metrics.contains(&format!("tidegate_otel_spans_total{{result=\"{result}\"}} {n}\n")), "{metrics}");
    }
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_receiver_that_starts_later() {
    let (place, port) = (free_port(), free_port());
    let site = site(&conf(port, &format!("127.0.0.1:{place}"), SOON, "", "location / { return 200 OK; }"));
    let running = site.start();
    get(port, "/early", &[]);
    site.wait_for_log("OTel export is tried again: connect() failed", 1);
    let listener = TcpListener::bind(("127.0.0.1", place)).expect("a port");
    let receiver = Receiver::on(listener, Kind::Grpc);
    assert_eq!(receiver.span().text("http.target"), "/early");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn export_over_tls() {
    let port = free_port();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a configuration");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let receiver = Receiver::start(Kind::GrpcTls(Arc::new(config)));
    let endpoint = format!("https://localhost:{}", receiver.port);
    let server = "location / { return 200 OK; }";
    let site = Site::new(MAIN, &conf(port, &endpoint, "interval 1ms; trusted_certificate r.crt;", "", server));
    site.write("conf/r.crt", &made.cert.pem());
    let running = site.start();
    get(port, "/ok", &[]);
    assert_eq!(receiver.span().name, "/");
    running.quit();
    // An untrusted receiver gets no data.
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).expect("a certificate");
    site.write("conf/r.crt", &other.cert.pem());
    let running = site.start();
    get(port, "/ok", &[]);
    site.wait_for_log("OTel export failure: upstream SSL certificate verify error", 1);
    running.quit();
    assert!(receiver.is_empty());
    site.assert_no_alerts();
}

#[test]
fn tries_of_servers_are_spans() {
    let (receiver, port) = (Receiver::start(Kind::Grpc), free_port());
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let its = seen.clone();
    let answer = move |status: &'static str| {
        let its = its.clone();
        move |request: &str| {
            let parent = request.lines().find_map(|line| line.strip_prefix("traceparent: ")).map(str::to_string);
            its.lock().expect("parents").push(parent);
            format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
        }
    };
    let (bad, good) = (Origin::answering(answer("503 Busy")), Origin::answering(answer("200 OK")));
    let http = format!(
        "proxy_cache_path cache keys_zone=c:1m; otel_upstream_spans on; otel_trace_context propagate;
        upstream u {{ server 127.0.0.1:{} max_fails=0; server 127.0.0.1:{} backup; }}",
        bad.port, good.port
    );
    let server = format!(
        "location /retry {{ proxy_pass http://u; proxy_next_upstream http_503; }}
        location /guarded {{ auth_request /auth; empty_gif; }}
        location /checked {{ auth_request /auth; proxy_pass http://127.0.0.1:{}; }}
        location /cached {{ proxy_cache c; proxy_cache_valid 1h; proxy_pass http://127.0.0.1:{}; }}
        location /off {{ otel_upstream_spans off; proxy_pass http://127.0.0.1:{}; }}
        location /auth {{ internal; proxy_pass http://127.0.0.1:{}; }}",
        good.port, good.port, good.port, good.port
    );
    let site = site(&conf(port, &grpc(&receiver), SOON, &http, &server));
    let running = site.start();
    let named = |parent: &Option<String>| parent.as_deref().expect("a parent")[36..52].to_string();
    assert_eq!(get(port, "/retry", &[("traceparent", &parent())]).0, 200);
    let spans = receiver.spans(3);
    let parents: Vec<String> = std::mem::take(&mut *seen.lock().expect("parents")).iter().map(named).collect();
    assert_eq!([&spans[1].span_id, &spans[2].span_id], [&parents[0], &parents[1]]);
    for (at, status, port) in [(1, 503, bad.port), (2, 200, good.port)] {
        let span = &spans[at];
        assert_eq!((span.kind, span.name.as_str(), span.trace_id.as_str()), (3, "upstream GET", TRACE));
        assert_eq!(span.parent_id, spans[0].span_id);
        assert_eq!(span.status, if status == 503 { 2 } else { 0 });
        assert_eq!(span.get("http.status_code"), &Value::from(status));
        assert_eq!(span.get("net.sock.peer.addr"), &Value::from("127.0.0.1"));
        assert_eq!(span.get("net.sock.peer.port"), &Value::from(i64::from(port)));
        assert_eq!(span.attributes.get("http.resend_count"), (at == 2).then_some(&Value::from(1)));
        assert!(span.start >= spans[0].start && span.end <= spans[0].end, "{spans:?}");
    }
    // Spans of tries have microseconds, as those of requests.
    let lengths: Vec<u64> = (0..5)
        .flat_map(|_| {
            assert_eq!(get(port, "/retry", &[]).0, 200);
            let spans = receiver.spans(3);
            [1, 2].map(|at| spans[at].end - spans[at].start)
        })
        .collect();
    assert!(lengths.iter().any(|nanos| nanos % 1_000_000 != 0), "{lengths:?}");
    // Subrequests.
    assert_eq!(get(port, "/guarded", &[]).0, 200);
    let spans = receiver.spans(2);
    assert_eq!((spans[1].text("tidegate.subrequest"), spans[1].kind), ("/auth", 3));
    assert_eq!(spans[1].parent_id, spans[0].span_id);
    assert_eq!(get(port, "/checked", &[]).0, 200);
    let spans = receiver.spans(3);
    assert_eq!(spans[1].text("tidegate.subrequest"), "/auth");
    assert!(!spans[2].attributes.contains_key("tidegate.subrequest"));
    // The cache.
    assert_eq!(get(port, "/cached", &[]).0, 200);
    let spans = receiver.spans(2);
    assert_eq!(spans[0].text("tidegate.cache.status"), "MISS");
    assert_eq!(get(port, "/cached", &[]).0, 200);
    assert_eq!(receiver.span().text("tidegate.cache.status"), "HIT");
    // Without spans of tries, the server receives the request's span.
    seen.lock().expect("parents").clear();
    assert_eq!(get(port, "/off", &[]).0, 200);
    let span = receiver.span();
    assert_eq!(named(&seen.lock().expect("parents")[0]), span.span_id);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn stable_names() {
    let (receiver, port) = (Receiver::start(Kind::Grpc), free_port());
    let origin = Origin::answering(|_| ok(""));
    let http = "otel_semconv stable; otel_upstream_spans on;";
    let server = format!(
        "set_real_ip_from 127.0.0.1; real_ip_header X-Client;
        location /a {{ proxy_pass http://127.0.0.1:{}; }} location /b {{ otel_semconv both; return 500; }}",
        origin.port
    );
    let site = site(&conf(port, &grpc(&receiver), SOON, http, &server));
    let running = site.start();
    assert_eq!(get(port, "/a/x?y=z&sig=secret", &[("X-Client", "192.0.2.7")]).0, 200);
    let spans = receiver.spans(2);
    let (own, tried) = (&spans[0], &spans[1]);
    assert_eq!((own.name.as_str(), tried.name.as_str()), ("GET /a", "GET"));
    for (name, want) in [
        ("http.request.method", "GET"),
        ("url.path", "/a/x"),
        ("url.query", "y=z&sig=REDACTED"),
        ("url.scheme", "http"),
        ("http.route", "/a"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "test/1"),
        ("server.address", "localhost"),
        ("client.address", "192.0.2.7"),
        ("network.peer.address", "127.0.0.1"),
    ] {
        assert_eq!(own.get(name), &Value::from(want), "{name}");
    }
    assert_eq!(own.get("http.response.status_code"), &Value::from(200));
    assert_eq!(own.get("server.port"), &Value::from(i64::from(port)));
    assert_eq!(own.get("http.response.body.size"), &Value::from(0));
    assert!(!own.attributes.contains_key("http.method") && !own.attributes.contains_key("error.type"));
    assert_eq!(tried.get("server.port"), &Value::from(i64::from(origin.port)));
    assert_eq!(tried.get("http.response.status_code"), &Value::from(200));
    assert_eq!(get(port, "/b", &[]).0, 500);
    let span = receiver.span();
    assert_eq!((span.name.as_str(), span.text("error.type"), span.status), ("/b", "500", 2));
    assert_eq!(span.get("http.status_code"), span.get("http.response.status_code"));
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn octets_that_are_no_text() {
    let (receiver, port) = (Receiver::start(Kind::Grpc), free_port());
    let server = "otel_span_attr arg $arg_a; otel_span_attr cookie $http_x; location / { return 200; }";
    let site = site(&conf(port, &grpc(&receiver), SOON, "", server));
    let running = site.start();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    let request = b"GET /?a=\xc3\x28 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: \xff\xfe\r\n\r\n";
    stream.write_all(request).expect("sent");
    stream.read_to_end(&mut Vec::new()).expect("an answer");
    let span = receiver.span();
    assert_eq!((span.text("arg"), span.text("cookie")), ("\u{fffd}(", "\u{fffd}\u{fffd}"));
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn large_batches_are_divided() {
    let (receiver, port) = (Receiver::start(Kind::Grpc), free_port());
    let http = "large_client_header_buffers 4 64k; otel_span_attr copy $http_x; otel_span_attr other $http_x;";
    let exporter = "interval 1h; batch_size 50;";
    let site = site(&conf(port, &grpc(&receiver), exporter, http, "location / { return 200; }"));
    let running = site.start();
    let long = "x".repeat(60_000);
    for _ in 0..50 {
        assert_eq!(get(port, "/", &[("X", &long)]).0, 200);
    }
    let all = receiver.exports(50);
    let counts: Vec<usize> = all.iter().map(|one| one.spans.len()).collect();
    assert_eq!(counts, [25, 25]);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn mistakes_are_refused() {
    let check = |block: &str, more: &str| {
        let conf = format!("http {{ {block} server {{ listen 127.0.0.1:1; {more} }} }}");
        let site = Site::new("", &conf);
        let output = site.run(&["-t"]);
        assert!(!output.status.success(), "{conf}");
        text(&output.stderr)
    };
    for (block, words) in [
        ("", "\"otel_exporter\" requires \"endpoint\""),
        ("endpoint a:1; endpoint b:1;", "\"endpoint\" directive of \"otel_exporter\" is duplicate"),
        ("endpoint;", "invalid number of arguments in \"endpoint\" directive of \"otel_exporter\""),
        ("endpoit a:1;", "unknown directive \"endpoit\" in \"otel_exporter\""),
        ("endpoint ftp://a;", "in endpoint \"ftp://a\" of \"otel_exporter\""),
        ("endpoint a:1/x; protocol grpc;", "gRPC needs an endpoint without a path"),
        ("endpoint a:1; protocol http/json;", "invalid protocol \"http/json\""),
        ("endpoint a:1; interval 0;", "\"interval\" directive of \"otel_exporter\" has invalid value \"0\""),
        ("endpoint a:1; batch_size 0;", "\"batch_size\" directive of \"otel_exporter\" has invalid value \"0\""),
        ("endpoint a:1; batch_size 1m; batch_count 2;", "exceed the limit"),
        ("endpoint a:1; header 'a b' c;", "\"header\" directive of \"otel_exporter\" has invalid header name"),
        ("endpoint a:1; header a 'b\tc';", "\"header\" directive of \"otel_exporter\" has invalid header value"),
        ("endpoint a:1; header Host c;", "must not set \"host\""),
        ("endpoint https://a:1; trusted_certificate none.crt;", "cannot load certificate"),
    ] {
        let said = check(&format!("otel_exporter {{ {block} }}"), "");
        assert!(said.contains(words) && said.contains("nginx.conf:"), "{block}: {said}");
    }
    for (http, server, words) in [
        ("", "otel_trace on;", "\"otel_exporter\" block is missing"),
        (
            "otel_exporter { endpoint a:1; } otel_exporter { endpoint a:1; }",
            "",
            "\"otel_exporter\" directive is duplicate",
        ),
        ("otel_exporter { endpoint a:1; }", "otel_trace_context both;", "invalid value \"both\""),
        ("otel_exporter { endpoint a:1; }", "otel_semconv new;", "invalid value \"new\""),
        ("otel_exporter { endpoint a:1; }", "otel_span_attr '' b;", "empty attribute name"),
        ("otel_exporter { endpoint a:1; }", "otel_span_name $unknown_thing;", "unknown \"unknown_thing\" variable"),
    ] {
        let said = check(http, server);
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// The receiver of the OpenTelemetry project's own messages and of gRPC's own server, if they are installed.
#[test]
fn the_python_packages_understand_us() {
    let python = std::env::var("TIDEGATE_TEST_OTLP_PYTHON").unwrap_or_else(|_| "python3".into());
    let modules = "import grpc, opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc";
    let installed = Command::new(&python).args(["-c", modules]).stderr(Stdio::null()).status();
    if !installed.is_ok_and(|status| status.success()) {
        testkit::missing_means(&format!(
            "{python} has no modules grpcio and opentelemetry-proto (TIDEGATE_TEST_OTLP_PYTHON)"
        ));
        return;
    }
    let port = free_port();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/otlp_receiver.py");
    let mut receiver = Command::new(&python)
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the receiver starts");
    let stdout = std::io::BufReader::new(receiver.stdout.take().expect("piped"));
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let line = || lines.recv_timeout(std::time::Duration::from_secs(20)).expect("a line of the receiver");
    let ports: Vec<u16> = line().split(' ').map(|port| port.parse().expect("a port")).collect();
    let endpoints = [format!("127.0.0.1:{}", ports[0]), format!("http://127.0.0.1:{}/v1/traces", ports[1])];
    for (endpoint, protocol) in endpoints.iter().zip(["grpc", "http"]) {
        let server = "location / { otel_trace_context extract; otel_span_attr a.list.no b; return 500; }";
        let http = "otel_semconv both; otel_resource_attr my.name 'my name';";
        let site = Site::new(MAIN, &conf(port, endpoint, SOON, http, server));
        let running = site.start();
        get(port, "/x?y", &[("traceparent", &parent()), ("tracestate", STATE)]);
        let got: serde_json::Value = serde_json::from_str(&line()).expect("an object");
        assert_eq!(got["protocol"], protocol);
        assert_eq!(got["resource"]["my.name"], "my name");
        for (name, want) in
            [("trace_id", TRACE), ("parent", PARENT), ("state", STATE), ("name", "/"), ("kind", "SPAN_KIND_SERVER")]
        {
            assert_eq!(got[name], want, "{got}");
        }
        assert_eq!(got["status"], "STATUS_CODE_ERROR");
        assert_eq!((&got["attributes"]["http.status_code"], &got["flags"]), (&500.into(), &0x301.into()));
        assert_eq!(got["attributes"]["url.query"], "y");
        assert_eq!(got["attributes"]["a.list.no"], "b");
        assert_eq!(got["unknown_fields"], 0, "{got}");
        running.quit();
        site.assert_no_alerts();
    }
    drop(receiver.stdin.take());
    assert!(receiver.wait().expect("the receiver ends").success());
}
