//! Ways to servers over real sockets: HTTP proxies, client certificates, several servers in one run.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use load::engine::failure::LoadFailure;
use load::engine::job::{Job, ProxyAccess, Target, Tls};
use load::engine::request::RequestSpec;
use load::engine::run::{RunControl, RunOutcome, run_job};

const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

type Heads = Arc<Mutex<Vec<String>>>;

/// Reads one head; `None` at the end of the stream.
fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8(head).unwrap())
}

/// A listener whose connections are each given to `serve` on their own thread. Its thread ends with the test.
fn listen(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, serve) = (stream.unwrap(), serve.clone());
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

fn answering(heads: &Heads) -> SocketAddr {
    let heads = heads.clone();
    listen(move |mut stream| {
        while let Some(head) = read_head(&mut stream) {
            heads.lock().unwrap().push(head);
            if stream.write_all(GOOD.as_bytes()).is_err() {
                return;
            }
        }
    })
}

/// Copies both ways until both ends are closed.
fn copy(client: TcpStream, server: TcpStream) {
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let up = std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    let (mut from, mut to) = (server, client);
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Write);
    up.join().unwrap();
}

fn target(host: &str, port: u16, address: SocketAddr) -> Target {
    Target { host: host.into(), port, address, tls: None, unix: None, proxy: None, sources: Vec::new() }
}

fn job(target: Target, requests: u64) -> Job {
    Job { budget: Some(requests), ..Job::closed(target, 2, 60.0) }
}

fn go(job: &Job) -> RunOutcome {
    run_job(job, &RunControl::default(), |_| ()).unwrap()
}

struct Certificates {
    server: Arc<rustls::ServerConfig>,
    /// The server's certificate, and the client's with its key (PEM).
    ca: String,
    client: (String, String),
}

/// A server that takes only the client's certificate, if `asks`.
fn certificates(asks: bool) -> Certificates {
    let own = |name: &str| {
        let pair = rcgen::KeyPair::generate().unwrap();
        (rcgen::CertificateParams::new(vec![name.to_string()]).unwrap().self_signed(&pair).unwrap(), pair)
    };
    let ((server, server_key), (client, client_key)) = (own("localhost"), own("client"));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(server_key.serialize_der()).unwrap();
    let builder = if asks {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(client.der().clone()).unwrap();
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let config = builder.with_single_cert(vec![server.der().clone()], key).unwrap();
    Certificates { server: Arc::new(config), ca: server.pem(), client: (client.pem(), client_key.serialize_pem()) }
}

fn tls_server(config: Arc<rustls::ServerConfig>) -> SocketAddr {
    listen(move |stream| {
        let mut stream = rustls::StreamOwned::new(rustls::ServerConnection::new(config.clone()).unwrap(), stream);
        while read_head(&mut stream).is_some() {
            if stream.write_all(GOOD.as_bytes()).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    })
}

#[test]
fn a_proxy_gets_whole_urls_in_cleartext() {
    let heads = Heads::default();
    let proxy = answering(&heads);
    let mut target = target("no-such-host.invalid", 8080, proxy);
    target.proxy = Some(ProxyAccess { authorization: Some("Basic dTpw".into()) });
    let outcome = go(&job(target, 20));
    assert_eq!((outcome.total.in_time, outcome.total.failures.total()), (20, 0));
    let heads = heads.lock().unwrap();
    assert!(
        heads[0].starts_with("GET http://no-such-host.invalid:8080/ HTTP/1.1\r\nHost: no-such-host.invalid:8080\r\n")
    );
    assert!(heads.iter().all(|head| head.contains("Proxy-Authorization: Basic dTpw\r\n")), "{}", heads[0]);
}

#[test]
fn a_proxy_opens_a_tunnel_for_tls() {
    let certificates = certificates(false);
    let server = tls_server(certificates.server);
    let heads = Heads::default();
    let seen = heads.clone();
    let proxy = listen(move |mut stream| {
        let Some(head) = read_head(&mut stream) else { return };
        seen.lock().unwrap().push(head);
        let server = TcpStream::connect(server).unwrap();
        stream.write_all(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n").unwrap();
        copy(stream, server);
    });
    let mut target = target("localhost", 8443, proxy);
    target.tls = Some(Tls { ca: Some(certificates.ca), ..Tls::default() });
    target.proxy = Some(ProxyAccess::default());
    let outcome = go(&job(target, 20));
    assert_eq!((outcome.total.in_time, outcome.total.failures.total()), (20, 0), "{:?}", outcome.tls_error);
    let expected = "CONNECT localhost:8443 HTTP/1.1\r\nHost: localhost:8443\r\n\r\n";
    assert!(heads.lock().unwrap().iter().all(|head| head == expected));
}

#[test]
fn a_proxy_that_refuses_is_told() {
    let proxy = listen(|mut stream| {
        let _ = read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
    });
    let mut target = target("localhost", 443, proxy);
    target.tls = Some(Tls::default());
    target.proxy = Some(ProxyAccess::default());
    let outcome = go(&job(target, 4));
    assert_eq!((outcome.total.failures.of(LoadFailure::Proxy), outcome.total.due), (4, 4));
    let why = outcome.tls_error.unwrap();
    assert!(why.contains("407 Proxy Authentication Required"), "{why}");
}

#[test]
fn malformed_and_missing_answers_have_reasons() {
    let garbage = listen(|mut stream| {
        let _ = read_head(&mut stream);
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n\x01\x02");
    });
    let plain = go(&job(target("localhost", garbage.port(), garbage), 3));
    assert_eq!(plain.total.failures.of(LoadFailure::Protocol), 3);
    assert_eq!(plain.malformed.unwrap(), "it begins with `SSH-2.0-OpenSSH_9.2`, not with `HTTP/1.1` and a status");
    let http2 = Job { http2: Some(Default::default()), ..job(target("localhost", garbage.port(), garbage), 3) };
    let why = go(&http2).malformed.unwrap();
    assert!(why.contains("`SSH-2.0-OpenSSH_9.2`, not with SETTINGS"), "{why}");
    // Reads, and answers nothing.
    let silent = listen(|mut stream| drop(std::io::copy(&mut stream, &mut std::io::sink())));
    let base = Job { connect_timeout: 0.2, ..job(target("localhost", silent.port(), silent), 2) };
    let mut secure = base.clone();
    secure.target.tls = Some(Tls::default());
    let upgrade = Job { websocket: true, ..base };
    for (job, class) in [(secure, LoadFailure::Tls), (upgrade, LoadFailure::Upgrade)] {
        let outcome = go(&job);
        assert_eq!(outcome.total.failures.of(class), 2);
        assert_eq!(outcome.tls_error.unwrap(), "no answer within --connect-timeout (200 ms)");
    }
}

#[test]
fn a_client_certificate_is_shown() {
    let certificates = certificates(true);
    let server = tls_server(certificates.server);
    let mut target = target("localhost", server.port(), server);
    target.tls = Some(Tls { identity: Some(certificates.client), ..Tls::default() });
    let outcome = go(&job(target.clone(), 10));
    assert_eq!((outcome.total.in_time, outcome.total.failures.total()), (10, 0), "{:?}", outcome.tls_error);
    target.tls = Some(Tls::default());
    let outcome = go(&job(target, 4));
    assert_eq!(outcome.total.in_time, 0, "the server asks for a certificate");
}

#[test]
fn servers_share_a_run_by_weight() {
    let (first, second) = (Heads::default(), Heads::default());
    let (a, b) = (answering(&first), answering(&second));
    let mut job = job(target("127.0.0.1", a.port(), a), 40);
    job.servers = vec![target("127.0.0.1", b.port(), b)];
    job.profile = load::engine::profile::Profile::constant(4.0, 60.0);
    let request = |path: &str, server, weight| RequestSpec { server, weight, ..RequestSpec::get(path) };
    job.requests = vec![request("/a", 0, 3.0), request("/b", 1, 1.0)];
    let outcome = go(&job);
    assert_eq!((outcome.total.in_time, outcome.total.failures.total()), (40, 0));
    let count = |heads: &Heads, path: &str| heads.lock().unwrap().iter().filter(|h| h.contains(path)).count();
    assert_eq!((count(&first, "GET /a "), count(&second, "GET /b ")), (30, 10));
    let host = format!("Host: {b}\r\n");
    assert!(second.lock().unwrap().iter().all(|head| head.contains(&host)));
    assert_eq!(outcome.kinds.0.iter().map(|kind| kind.latency.count).collect::<Vec<_>>(), [30, 10]);
}

/// Answers upgrades as RFC 6455 wants, then returns every message; `status` is that of the upgrade.
fn echo(heads: &Heads, status: &'static str) -> SocketAddr {
    let heads = heads.clone();
    listen(move |mut stream| {
        let Some(head) = read_head(&mut stream) else { return };
        heads.lock().unwrap().push(head);
        // The accept value of the generator's key.
        let accept = "AAHq4EcIAVITZGuWk0lzulExa/M=";
        let answer = format!(
            "HTTP/1.1 {status}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
        let mut start = [0; 6];
        while stream.read_exact(&mut start).is_ok() && start[0] != 0x88 {
            let length = usize::from(start[1] & 0x7f);
            let mut payload = vec![0; length];
            if stream.read_exact(&mut payload).is_err() {
                return;
            }
            let plain: Vec<u8> = payload.iter().zip(start[2..].iter().cycle()).map(|(b, m)| b ^ m).collect();
            if stream.write_all(&[&[start[0], length as u8][..], &plain].concat()).is_err() {
                return;
            }
        }
    })
}

#[test]
fn messages_are_answered_over_websocket_in_every_load_model() {
    use load::engine::job::{Model, Think};
    use load::engine::profile::{Arrivals, Profile};
    use load::engine::request::Expect;
    let heads = Heads::default();
    let server = echo(&heads, "101 Switching Protocols");
    let mut job = job(target("127.0.0.1", server.port(), server), 40);
    job.websocket = true;
    job.requests = vec![RequestSpec {
        body: "n={{seq}}".into(),
        expect: Expect { contains: Some("n=".into()), ..Expect::default() },
        ..RequestSpec::get("/echo")
    }];
    let outcome = go(&job);
    assert_eq!((outcome.total.in_time, outcome.total.failures.total()), (40, 0), "{:?}", outcome.tls_error);
    assert_eq!((outcome.total.corrected.count(), outcome.total.statuses.sorted().len()), (40, 0));
    assert!(heads.lock().unwrap().len() == 2 && heads.lock().unwrap()[0].starts_with("GET /echo HTTP/1.1\r\n"));
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(400.0, 60.0);
    let outcome = go(&job);
    assert_eq!((outcome.total.in_time, outcome.total.failures.total()), (40, 0));
    job.model = Model::Connections { arrivals: Arrivals::Fixed, think: Think::default() };
    job.profile = Profile::constant(100.0, 60.0);
    // Ten connections with three messages each, however long they take.
    (job.calls, job.budget) = (3, Some(10));
    let outcome = go(&job);
    assert_eq!((outcome.total.due, outcome.total.in_time, outcome.total.failures.total()), (30, 30, 0));
    job.requests[0].expect.contains = Some("other".into());
    let outcome = go(&job);
    assert_eq!((outcome.total.due, outcome.total.failures.of(LoadFailure::Body)), (30, 30));
}

#[test]
fn an_upgrade_that_is_refused_is_told() {
    let server = echo(&Heads::default(), "403 Forbidden");
    let mut job = job(target("127.0.0.1", server.port(), server), 4);
    job.websocket = true;
    let outcome = go(&job);
    assert_eq!(outcome.total.failures.of(LoadFailure::Upgrade), 4);
    let why = outcome.tls_error.unwrap();
    assert!(why.contains("`HTTP/1.1 403 Forbidden`"), "{why}");
}
