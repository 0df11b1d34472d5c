//! gRPC over real sockets: calls of all kinds, statuses, reflection, TLS, paced streams, wrong input.
//!
//! The server is a small one over `wire-h2`: it echoes messages and follows the path. No assertion is about durations.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http_types::{Event, TakenLines};
use load::bench::{FAILED, OK, USAGE};
use load::bench_main;
use load::report::model::Report;
use prost_reflect::prost::Message as _;
use testkit::thread_server::ThreadServer;
use wire_h2::ServerLimits;

const PROTO: &str = "syntax = \"proto3\"; package demo;
message Ping { string name = 1; int32 count = 2; }
service Echo {
  rpc Say(Ping) returns (Ping);
  rpc Down(Ping) returns (stream Ping);
  rpc Up(stream Ping) returns (Ping);
  rpc Both(stream Ping) returns (stream Ping);
  rpc Fail(Ping) returns (Ping);
  rpc Page(Ping) returns (Ping);
  rpc Wait(Ping) returns (Ping);
}
";

/// Counters of a server.
#[derive(Default)]
struct Seen {
    calls: AtomicUsize,
    messages: AtomicUsize,
    /// DATA events with less than the whole body of their call.
    pieces: AtomicUsize,
    tenants: AtomicUsize,
    /// Calls with compressed messages, and the deadlines of calls.
    packed: AtomicUsize,
    deadlines: Mutex<BTreeSet<String>>,
}

struct Server {
    threads: ThreadServer,
    seen: Arc<Seen>,
}

impl Server {
    /// Starts a server that answers reflection of this version with these descriptors.
    fn start(tls: Option<Arc<rustls::ServerConfig>>, reflection: Option<&'static str>) -> Server {
        let seen = Arc::<Seen>::default();
        let counters = seen.clone();
        let threads = ThreadServer::start(move |stream| match tls.clone() {
            None => serve(stream, &counters, reflection),
            Some(config) => {
                let connection = rustls::ServerConnection::new(config).unwrap();
                serve(rustls::StreamOwned::new(connection, stream), &counters, reflection)
            }
        });
        Server { threads, seen }
    }

    fn url(&self, scheme: &str, method: &str) -> String {
        format!("{scheme}://localhost:{}/demo.Echo/{method}", self.threads.address().port())
    }
}

struct Call {
    path: String,
    body: Vec<u8>,
    /// Messages that were answered while the call went on.
    answered: usize,
    /// Its messages are compressed, and so is the echo.
    is_packed: bool,
}

fn serve<S: Read + Write>(mut stream: S, seen: &Seen, reflection: Option<&str>) {
    let mut core = wire_h2::Server::new(ServerLimits::default());
    let mut calls: HashMap<u32, Call> = HashMap::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        while let Some(event) = core.poll_event() {
            match event {
                Event::Head { stream, list, end, .. } => {
                    let id = stream as u32;
                    let field =
                        |name: &[u8]| list.iter().find(|(one, _)| *one == name).map(|(_, value)| value.to_vec());
                    let path = String::from_utf8(field(b":path").unwrap()).unwrap();
                    seen.calls.fetch_add(usize::from(path.starts_with("/demo.")), Ordering::SeqCst);
                    let is_tenant = field(b"tenant").is_some_and(|value| value == b"t1");
                    seen.tenants.fetch_add(usize::from(is_tenant), Ordering::SeqCst);
                    let is_packed = field(b"grpc-encoding").is_some_and(|value| value == b"gzip");
                    seen.packed.fetch_add(usize::from(is_packed), Ordering::SeqCst);
                    if let Some(deadline) = field(b"grpc-timeout") {
                        seen.deadlines.lock().unwrap().insert(String::from_utf8(deadline).unwrap());
                    }
                    let call = Call { path, body: Vec::new(), answered: 0, is_packed };
                    match end {
                        true => finish(&mut core, id, call, seen, reflection),
                        false => drop(calls.insert(id, call)),
                    }
                }
                Event::Body(stream) => {
                    let id = stream as u32;
                    loop {
                        match core.take_body(id) {
                            TakenLines::Bytes(bytes) => {
                                let Some(call) = calls.get_mut(&id) else { break };
                                call.body.extend_from_slice(&bytes);
                                let whole = frames(&call.body).len();
                                if call.path == "/demo.Echo/Both" && call.answered == 0 {
                                    head(&mut core, id, call.is_packed);
                                }
                                if call.path == "/demo.Echo/Both" {
                                    for frame in frames(&call.body).into_iter().skip(call.answered) {
                                        core.send_body(id, &echoed(&frame, call.is_packed), 16_384, false);
                                    }
                                    seen.pieces.fetch_add(usize::from(whole > call.answered), Ordering::SeqCst);
                                    call.answered = whole;
                                }
                            }
                            TakenLines::End => {
                                let Some(call) = calls.remove(&id) else { break };
                                finish(&mut core, id, call, seen, reflection);
                                break;
                            }
                            _ => break,
                        }
                    }
                }
                Event::Reset(stream) => drop(calls.remove(&(stream as u32))),
                Event::Capacity(_) | Event::Goaway => {}
            }
        }
        while !core.output().is_empty() {
            let Ok(n) = stream.write(core.output()) else { return };
            core.advance(n);
        }
        if stream.flush().is_err() {
            return;
        }
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => drop(core.receive(&buffer[..n])),
            _ => return,
        }
    }
}

/// Whole messages of framed octets.
fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(length) = bytes.get(1..5) {
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
        let Some(message) = bytes.get(5..5 + length) else { break };
        all.push(message.to_vec());
        bytes = &bytes[5 + length..];
    }
    all
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

/// A framed message, marked as compressed if it came so.
fn echoed(message: &[u8], is_packed: bool) -> Vec<u8> {
    let mut frame = framed(message);
    frame[0] = u8::from(is_packed);
    frame
}

fn head(core: &mut wire_h2::Server, id: u32, is_packed: bool) {
    let fields = [(&b"content-type"[..], &b"application/grpc"[..]), (b"grpc-encoding", b"gzip")];
    core.send_head(id, 200, fields.into_iter().take(1 + usize::from(is_packed)), false);
}

fn trailers(core: &mut wire_h2::Server, id: u32, code: &str, text: &str) {
    let fields = [(&b"grpc-status"[..], code.as_bytes()), (b"grpc-message", text.as_bytes())];
    core.send_trailers(id, fields.into_iter());
    core.finish(id);
}

fn finish(core: &mut wire_h2::Server, id: u32, call: Call, seen: &Seen, reflection: Option<&str>) {
    let messages = frames(&call.body);
    if let Some(method) = call.path.strip_prefix("/demo.Echo/") {
        seen.messages.fetch_add(messages.len(), Ordering::SeqCst);
        match method {
            "Both" if call.answered > 0 => {}
            "Fail" => {
                let fields = [(&b"grpc-status"[..], &b"5"[..]), (b"grpc-message", b"no%20such thing")];
                core.send_head(id, 200, fields.into_iter(), true);
                return core.finish(id);
            }
            "Page" => {
                core.send_head(id, 503, std::iter::empty(), true);
                return core.finish(id);
            }
            "Wait" => return,
            _ => head(core, id, call.is_packed),
        }
        let times = if method == "Down" { 3 } else { usize::from(method != "Both") };
        for _ in 0..times {
            let message = messages.first().map_or(&[][..], Vec::as_slice);
            core.send_body(id, &echoed(message, call.is_packed), 16_384, false);
        }
        return trailers(core, id, "0", "");
    }
    let version =
        reflection.filter(|v| call.path == format!("/grpc.reflection.{v}.ServerReflection/ServerReflectionInfo"));
    if version.is_none() {
        core.send_head(id, 200, [(&b"grpc-status"[..], &b"12"[..])].into_iter(), true);
        return core.finish(id);
    }
    head(core, id, false);
    core.send_body(id, &framed(&reflect(&messages[0])), 65_536, false);
    trailers(core, id, "0", "");
}

/// Answers a question of reflection: the list of services (field 7), or a file (fields 3 and 4).
fn reflect(question: &[u8]) -> Vec<u8> {
    let field = |tag: u8, value: &[u8]| {
        let mut out = vec![tag << 3 | 2];
        prost_reflect::prost::encoding::encode_varint(value.len() as u64, &mut out);
        out.extend_from_slice(value);
        out
    };
    // Skips the host.
    let rest = &question[2 + usize::from(question[1])..];
    match rest[0] >> 3 {
        7 => field(6, &field(1, &field(1, b"demo.Echo"))),
        _ => {
            let pool = compiled();
            let file = pool.files().find(|file| file.name().ends_with("demo.proto")).unwrap();
            field(4, &field(1, &file.file_descriptor_proto().encode_to_vec()))
        }
    }
}

fn compiled() -> prost_reflect::DescriptorPool {
    let (file, folder) = proto_file();
    protox::Compiler::new([folder]).unwrap().open_file(file).unwrap().descriptor_pool()
}

/// The service's file, and its folder.
fn proto_file() -> (PathBuf, PathBuf) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("grpc");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("demo.proto");
    if std::fs::read_to_string(&file).ok().as_deref() != Some(PROTO) {
        // Tests run at the same time: the file appears whole.
        let beside = folder.join(format!("{}.{:?}", std::process::id(), std::thread::current().id()));
        std::fs::write(&beside, PROTO).unwrap();
        std::fs::rename(&beside, &file).unwrap();
    }
    (file, folder)
}

fn certificate() -> (Arc<rustls::ServerConfig>, String) {
    let pair = rcgen::KeyPair::generate().unwrap();
    let cert = rcgen::CertificateParams::new(vec!["localhost".to_string()]).unwrap().self_signed(&pair).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(pair.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    (Arc::new(config), cert.pem())
}

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
