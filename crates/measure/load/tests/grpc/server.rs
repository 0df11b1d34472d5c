//! A small gRPC server over `wire-h2`: it echoes messages, follows the path, and answers reflection.

use std::collections::{BTreeSet, HashMap};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http_types::{Event, TakenLines};
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
pub struct Seen {
    pub calls: AtomicUsize,
    pub messages: AtomicUsize,
    /// DATA events with less than the whole body of their call.
    pub pieces: AtomicUsize,
    pub tenants: AtomicUsize,
    /// Calls with compressed messages, and the deadlines of calls.
    pub packed: AtomicUsize,
    pub deadlines: Mutex<BTreeSet<String>>,
}

pub struct Server {
    pub threads: ThreadServer,
    pub seen: Arc<Seen>,
}

impl Server {
    /// Starts a server that answers reflection of this version with these descriptors.
    pub fn start(tls: Option<Arc<rustls::ServerConfig>>, reflection: Option<&'static str>) -> Server {
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

    pub fn url(&self, scheme: &str, method: &str) -> String {
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
pub fn proto_file() -> (PathBuf, PathBuf) {
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

pub fn certificate() -> (Arc<rustls::ServerConfig>, String) {
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
