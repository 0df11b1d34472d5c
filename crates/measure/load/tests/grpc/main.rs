//! gRPC over real sockets: calls of all kinds, statuses, reflection, TLS, paced streams, wrong input. No assertion is
//! about durations.

mod server;

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use load::bench::{FAILED, OK, USAGE};
use load::bench_main;
use load::report::model::Report;
use testkit::thread_server::ThreadServer;

use self::server::{Server, certificate, proto_file};

/// `tidegate bench` with these arguments; the exit status and the report.
fn bench(args: &[&str]) -> (i32, Option<Report>) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::SeqCst);
    let file = std::env::temp_dir().join(format!("bench-grpc-{}-{number}.json", std::process::id()));
    let mut args: Vec<OsString> = args.iter().map(OsString::from).collect();
    args.extend(["-q".into(), "--no-live".into(), "--json".into(), file.clone().into_os_string()]);
    let status = bench_main(args);
    let report = std::fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let _ = std::fs::remove_file(file);
    (status, report)
}

#[test]
fn calls_of_all_kinds_are_counted_with_their_messages() {
    let server = Server::start(None, None);
    let (file, _) = proto_file();
    let proto = file.to_str().unwrap();
    for (method, body, sent, received) in [
        ("Say", r#"{"name": "n{{seq}}", "count": {{rand:1:9}}}"#, 1, 1),
        ("Down", r#"{"name": "a"}"#, 1, 3),
        ("Up", r#"[{"count": 1}, {"count": 2}, {}]"#, 3, 1),
        ("Both", r#"[{"count": 1}, {"count": 2}]"#, 2, 2),
    ] {
        let before = server.seen.messages.load(Ordering::SeqCst);
        let url = server.url("grpc", method);
        let (status, report) = bench(&[&url, "--proto", proto, "-b", body, "-c", "2", "-m", "3", "-n", "60"]);
        let round = &report.unwrap().points[0].rounds[0];
        assert_eq!(
            (status, round.due, round.in_time, round.failed()),
            (OK, 60, 60, 0),
            "{method}: {:?}",
            round.failures
        );
        assert_eq!(round.grpc_statuses.get("OK"), Some(&60), "{method}");
        assert_eq!(round.messages, 60 * received, "{method}");
        assert!(round.statuses.is_empty() && round.first_byte.is_some());
        assert_eq!(server.seen.messages.load(Ordering::SeqCst) - before, 60 * sent, "{method}");
    }
}

#[test]
fn a_status_other_than_ok_is_a_failure_with_name_and_text() {
    let server = Server::start(None, None);
    let (file, _) = proto_file();
    for (method, name, text) in
        [("Fail", "NOT_FOUND", "no such thing"), ("Page", "UNAVAILABLE", "HTTP status 503 without grpc-status")]
    {
        let url = server.url("grpc", method);
        let (status, report) = bench(&[&url, "--proto", file.to_str().unwrap(), "-c", "1", "-n", "20"]);
        let round = &report.unwrap().points[0].rounds[0];
        assert_eq!((status, round.in_time, round.failed()), (FAILED, 0, 20));
        assert_eq!(round.grpc_statuses.get(name), Some(&20));
        let words: Vec<(String, u64)> = round.failure_words().collect();
        assert_eq!(words, [(format!("gRPC status ({name}: {text})"), 20)]);
    }
}

#[test]
fn reflection_describes_the_service() {
    for version in ["v1", "v1alpha"] {
        let server = Server::start(None, Some(version));
        let url = server.url("grpc", "Say");
        let (status, report) = bench(&[&url, "-b", r#"{"name": "x"}"#, "-H", "tenant: t1", "-n", "20", "-c", "2"]);
        assert_eq!((status, report.unwrap().points[0].rounds[0].in_time), (OK, 20), "{version}");
        assert!(server.seen.tenants.load(Ordering::SeqCst) > 20, "the metadata goes with the reflection as well");
        // Another method, service or field is told before a call.
        let calls = server.seen.calls.load(Ordering::SeqCst);
        for (path, body) in [("/demo.Echo/Nope", "{}"), ("/demo.Other/Say", "{}"), ("/demo.Echo/Say", r#"{"nam": 1}"#)]
        {
            let url = format!("grpc://{}{path}", server.threads.address());
            assert_eq!(bench(&[&url, "-b", body, "-n", "5"]).0, USAGE, "{path}");
        }
        assert_eq!(server.seen.calls.load(Ordering::SeqCst), calls);
    }
    let without = Server::start(None, None);
    assert_eq!(bench(&[&without.url("grpc", "Say"), "-n", "5"]).0, USAGE);
}

#[test]
fn calls_over_tls_are_agreed_by_alpn_and_verified() {
    let (config, pem) = certificate();
    let server = Server::start(Some(config), Some("v1"));
    let file = std::env::temp_dir().join(format!("bench-grpc-ca-{}.pem", std::process::id()));
    std::fs::write(&file, pem).unwrap();
    let url = server.url("grpcs", "Say");
    let (status, report) = bench(&[&url, "--cacert", file.to_str().unwrap(), "-r", "200", "-n", "40"]);
    let report = report.unwrap();
    let round = &report.points[0].rounds[0];
    assert_eq!((status, round.in_time, round.failed()), (OK, 40, 0), "{:?}", round.failures);
    assert!(round.handshake.is_some() && round.lag.is_some());
    let _ = std::fs::remove_file(file);
}

#[test]
fn paced_messages_are_sent_one_by_one() {
    let server = Server::start(None, None);
    let (file, _) = proto_file();
    let url = server.url("grpc", "Both");
    let body = r#"[{"count": 1}, {"count": 2}, {"count": 3}, {}]"#;
    let args = [&url, "--proto", file.to_str().unwrap(), "-b", body, "-c", "1", "-m", "2", "-n", "4"];
    let paced = [&args[..], &["--stream-interval", "30ms"]].concat();
    let (status, report) = bench(&paced);
    let round = &report.unwrap().points[0].rounds[0];
    assert_eq!((status, round.in_time, round.messages), (OK, 4, 16), "{:?}", round.failures);
    // All at once, each of the four calls comes in one piece.
    assert!(server.seen.pieces.load(Ordering::SeqCst) > 4, "messages come by themselves");
    let (first, whole) = (round.first_byte.as_ref().unwrap(), round.latency.as_ref().unwrap());
    assert!(first.mean < whole.mean, "the first message is answered before the last is sent");
}

#[test]
fn data_of_calls_is_looked_at_when_it_is_sent() {
    let server = Server::start(None, None);
    let (file, folder) = proto_file();
    let data = folder.join(format!("rows-{}.csv", std::process::id()));
    std::fs::write(&data, "n\n1\n2\nthree\n4\n").unwrap();
    let url = server.url("grpc", "Say");
    let args = [&url, "--proto", file.to_str().unwrap(), "-b", r#"{"count": ${n}}"#, "--data", data.to_str().unwrap()];
    let (status, report) = bench(&[&args[..], &["-c", "1", "-n", "8"]].concat());
    let round = &report.unwrap().points[0].rounds[0];
    assert_eq!((status, round.in_time, round.failed()), (FAILED, 6, 2));
    assert_eq!(round.failures.keys().collect::<Vec<_>>(), ["message not encodable"]);
    let _ = std::fs::remove_file(data);
}

#[test]
fn options_of_http_are_refused_for_calls() {
    let (file, _) = proto_file();
    let proto = file.to_str().unwrap();
    let url = "grpc://127.0.0.1:1/demo.Echo/Say";
    for wrong in [&["--expect-status", "200"][..], &["--follow", "3"], &["--show"], &["--stream-interval", "1ms"]] {
        assert_eq!(bench(&[&[url, "--proto", proto], wrong].concat()).0, USAGE, "{wrong:?}");
    }
    assert_eq!(bench(&["http://127.0.0.1:1/", "--proto", proto]).0, USAGE);
    assert_eq!(bench(&[url, "http://127.0.0.1:1/", "--proto", proto]).0, USAGE);
    assert_eq!(bench(&[url, "--proto", "/nowhere.proto"]).0, USAGE);
}

/// Writes a session file of this name.
fn session_file(name: &str, text: &str) -> String {
    let (_, folder) = proto_file();
    let file = folder.join(format!("{name}-{}.toml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_string()
}

#[test]
fn calls_are_steps_of_sessions_with_values_and_statuses() {
    let server = Server::start(None, Some("v1"));
    let file = session_file(
        "shop",
        r#"[[step]]
grpc = "demo.Echo/Say"
data = { name = "user-{{seq}}", count = 7 }
extract = { count = "json:/count", user = 'regex:"name":"([^"]+)"' }
[[step]]
grpc = "demo.Echo/Down"
headers = ["tenant: t{{var:count}}"]
data = '{"name": "{{var:user}}", "count": {{var:count}}}'
extract = { third = "json:/2/name" }
expect = { contains = "user-" }
[[step]]
grpc = "demo.Echo/Fail"
data = { name = "{{var:third}}" }
expect = { grpc = ["NOT_FOUND", "16"] }
"#,
    );
    let url = format!("grpc://{}/", server.threads.address());
    for extra in [&[][..], &["--grpc-gzip"]] {
        let (status, report) = bench(&[&[&url, "--session", &file, "-c", "1", "-n", "60"], extra].concat());
        let round = &report.unwrap().points[0].rounds[0];
        assert_eq!(
            (status, round.in_time, round.failed()),
            (OK, 60, 0),
            "{:?}",
            round.failure_words().collect::<Vec<_>>()
        );
        assert_eq!(round.grpc_statuses.get("NOT_FOUND"), Some(&20));
    }
    // Among requests over HTTP, the calls alone are calls.
    let mixed = session_file(
        "mixed",
        "[[step]]\npath = '/page'\nexpect = { status = [200] }\n[[step]]\ngrpc = 'demo.Echo/Say'\n",
    );
    let http = format!("http://{}/", server.threads.address());
    let (status, report) = bench(&[&http, "--http2", "--session", &mixed, "-c", "1", "-n", "20"]);
    let round = &report.unwrap().points[0].rounds[0];
    assert_eq!((status, round.in_time, round.grpc_statuses.get("OK")), (OK, 20, Some(&10)), "{:?}", round.failures);
    assert_eq!(round.statuses.get(&200), Some(&10));
    assert_eq!(bench(&[&http, "--session", &mixed, "-n", "2"]).0, USAGE, "calls need --http2");
    for wrong in [
        "[[step]]\ngrpc = 'demo.Echo/Nope'\n",
        "[[step]]\ngrpc = 'demo.Echo/Say'\ndata = { nam = 1 }\n",
        "[[step]]\ngrpc = 'demo.Echo/Say'\nexpect = { grpc = ['LOST'] }\n",
        "[[step]]\ngrpc = 'demo.Echo/Say'\nexpect = { status = [200] }\n",
        "[[step]]\ngrpc = 'demo.Echo/Say'\nextract = { a = 'header:x' }\n",
        "[[step]]\ngrpc = 'demo.Echo/Say'\nbody = '{}'\ndata = {}\n",
        "[[step]]\ndata = {}\npath = '/demo.Echo/Say'\n",
        "[[step]]\nthink = '1s'\n",
    ] {
        let file = session_file("wrong", wrong);
        assert_eq!(bench(&[&url, "--session", &file, "-n", "2"]).0, USAGE, "{wrong}");
    }
}

#[test]
fn an_unexpected_status_or_answer_ends_the_session() {
    let server = Server::start(None, Some("v1"));
    let url = format!("grpc://{}/", server.threads.address());
    let file = session_file(
        "ends",
        "[[step]]\ngrpc = 'demo.Echo/Say'\ndata = { name = 'a' }\nexpect = { contains = 'b' }\n[[step]]\ngrpc = 'demo.Echo/Up'\n",
    );
    let (status, report) = bench(&[&url, "--session", &file, "-c", "1", "-n", "10"]);
    let round = &report.unwrap().points[0].rounds[0];
    assert_eq!((status, round.failed(), round.grpc_statuses.get("OK")), (FAILED, 10, Some(&10)));
    assert_eq!(server.seen.calls.load(Ordering::SeqCst), 10, "no second step");
}

#[test]
fn messages_are_compressed_both_ways() {
    let server = Server::start(None, None);
    let (file, _) = proto_file();
    let name = "long ".repeat(2000);
    let body = format!("{{\"name\": \"{name}{{{{seq}}}}\"}}");
    let url = server.url("grpc", "Say");
    let args = [&url, "--proto", file.to_str().unwrap(), "-b", &body, "-c", "2", "-n", "40"];
    let (status, report) = bench(&[&args[..], &["--grpc-gzip"]].concat());
    let round = &report.unwrap().points[0].rounds[0];
    assert_eq!((status, round.in_time, round.messages), (OK, 40, 40), "{:?}", round.failures);
    assert_eq!(server.seen.packed.load(Ordering::SeqCst), 40);
    assert!(round.bytes_per_response < 500.0, "{} of 10,000", round.bytes_per_response);
    assert_eq!(bench(&["http://127.0.0.1:1/", "--grpc-gzip"]).0, USAGE);
}

#[test]
fn a_call_without_an_answer_in_time_exceeds_its_deadline() {
    let server = Server::start(None, None);
    let (file, _) = proto_file();
    let url = server.url("grpc", "Wait");
    let args = [&url, "--proto", file.to_str().unwrap(), "-c", "1", "-m", "4", "-n", "8", "--timeout", "150ms"];
    let (status, report) = bench(&args);
    let round = &report.unwrap().points[0].rounds[0];
    assert_eq!((status, round.due, round.failures.get("timeout")), (FAILED, 8, Some(&8)));
    assert_eq!(round.grpc_statuses.get("DEADLINE_EXCEEDED"), Some(&8));
    let deadlines = server.seen.deadlines.lock().unwrap();
    assert_eq!(deadlines.iter().collect::<Vec<_>>(), ["150000u"]);
}

/// A web server over HTTP/2 that answers every request with a page and `status`, an index of HPACK's static table.
fn web_server(status: u8) -> ThreadServer {
    ThreadServer::start(move |mut stream: TcpStream| {
        let (mut buffer, mut bytes) = ([0; 4096], Vec::new());
        let _ = stream.read_exact(&mut buffer[..24]);
        let _ = stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..n]);
            while let [a, b, c, kind, flags, number @ ..] = &bytes[..] {
                let length = 9 + (usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c));
                if bytes.len() < length {
                    break;
                }
                if *kind < 2 && flags & 1 == 1 {
                    let number = [number[0], number[1], number[2], number[3]];
                    let head = [&[0, 0, 1, 1, 4][..], &number, &[0x80 | status]].concat();
                    let body = [&[0, 0, 15, 0, 1][..], &number, b"<html>no</html>"].concat();
                    let _ = stream.write_all(&[head, body].concat());
                }
                bytes.drain(..length);
            }
        }
    })
}

#[test]
fn a_web_server_has_no_reflection_but_a_status() {
    for (index, words) in [(13, "HTTP status 404"), (8, "HTTP status 200 and a page")] {
        let server = web_server(index);
        let url = format!("grpc://{}/demo.Echo/Say", server.address());
        let options = load::bench::cli::parse_arguments(&[url.into()]).unwrap();
        let why = load::bench::plan::Plan::new(&options).unwrap_err();
        assert!(why.contains(words) && why.contains("as a web server"), "{why}");
    }
    let options = ["grpc://127.0.0.1:1/demo.Echo/Say", "-X", "POST"].map(std::ffi::OsString::from);
    let why = load::bench::plan::Plan::new(&load::bench::cli::parse_arguments(&options).unwrap()).unwrap_err();
    assert_eq!(why, "--method is for requests over HTTP, not for calls of gRPC");
}
