//! The engine over real sockets: plain, TLS with full and resumed handshakes, and the exit status of the command.
//!
//! No assertion is about time; every server listens on a port of the system's choice and ends with its test.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use load::bench::{FAILED, INVALID, OK, WORSE};
use load::bench_main;
use load::engine::failure::LoadFailure;
use load::engine::job::{Job, Model, Target, Tls};
use load::engine::profile::{Arrivals, Profile};
use load::engine::run::{RunControl, run_job};

/// A server that answers every request with `answer`, on as many threads as there are connections, until it is dropped.
struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    accepted: Arc<AtomicUsize>,
    resumed: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(answer: &'static str, tls: Option<Arc<rustls::ServerConfig>>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, accepted, resumed) =
            (Arc::new(AtomicBool::new(false)), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (stopped, count, resumptions) = (stop.clone(), accepted.clone(), resumed.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                let (tls, resumptions) = (tls.clone(), resumptions.clone());
                std::thread::spawn(move || match tls {
                    None => serve(stream, answer, |_| ()),
                    Some(config) => {
                        let connection = rustls::ServerConnection::new(config).unwrap();
                        serve(rustls::StreamOwned::new(connection, stream), answer, |s| {
                            if s.conn.handshake_kind() == Some(rustls::HandshakeKind::Resumed) {
                                resumptions.fetch_add(1, Ordering::SeqCst);
                            }
                        });
                    }
                });
            }
        });
        Server { address, stop, accepted, resumed, thread: Some(thread) }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accept.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve<S: Read + Write>(mut stream: S, answer: &str, mut first: impl FnMut(&S)) {
    let (mut buffer, mut request) = ([0; 4096], Vec::new());
    let mut fresh = true;
    while let Ok(n) = stream.read(&mut buffer) {
        if n == 0 {
            return;
        }
        request.extend_from_slice(&buffer[..n]);
        while let Some(end) = request.windows(4).position(|w| w == b"\r\n\r\n") {
            request.drain(..end + 4);
            if std::mem::take(&mut fresh) {
                first(&stream);
            }
            if stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    }
}

const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn job(server: &Server, connections: usize, requests: u64) -> Job {
    let target = Target {
        host: "localhost".into(),
        port: server.address.port(),
        address: server.address,
        tls: None,
        unix: None,
        proxy: None,
        sources: Vec::new(),
    };
    Job { budget: Some(requests), ..Job::closed(target, connections, 60.0) }
}

fn go(job: &Job) -> load::engine::run::RunOutcome {
    run_job(job, &RunControl::default(), |_| ()).unwrap()
}

fn certificate() -> (Arc<rustls::ServerConfig>, String) {
    certificate_for("localhost", rcgen::IsCa::NoCa)
}

fn certificate_for(name: &str, is_ca: rcgen::IsCa) -> (Arc<rustls::ServerConfig>, String) {
    let pair = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec![name.to_string()]).unwrap();
    parameters.is_ca = is_ca;
    let cert = parameters.self_signed(&pair).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(pair.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    (Arc::new(config), cert.pem())
}

#[test]
fn every_request_is_answered_and_counted() {
    let server = Server::start(GOOD, None);
    let mut job = job(&server, 8, 1000);
    job.threads = 2;
    let outcome = go(&job);
    assert_eq!((outcome.total.answers, outcome.total.good), (1000, 1000));
    assert_eq!(outcome.total.corrected.count(), 1000);
    assert_eq!(outcome.total.body_bytes, 5000);
    assert_eq!(outcome.total.failures.total(), 0);
    assert_eq!((server.accepted.load(Ordering::SeqCst), outcome.busy.len()), (8, 2));
}

#[test]
fn a_connection_for_each_request() {
    let server = Server::start(GOOD, None);
    let mut job = job(&server, 4, 100);
    job.calls = 1;
    let outcome = go(&job);
    assert_eq!((outcome.total.good, outcome.total.connections), (100, 100));
    assert_eq!(outcome.total.connect.count(), 100);
}

#[test]
fn large_bodies_are_counted_though_discarded() {
    let body: &'static str =
        Box::leak(format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{}", "x".repeat(1_000_000)).into());
    let server = Server::start(body, None);
    let mut job = job(&server, 3, 30);
    job.requests[0].expect.length = Some(1_000_000);
    let outcome = go(&job);
    assert_eq!((outcome.total.good, outcome.total.body_bytes), (30, 30_000_000));
}

#[test]
fn tls_with_full_and_with_resumed_handshakes() {
    let (config, pem) = certificate();
    let server = Server::start(GOOD, Some(config));
    let mut job = job(&server, 2, 40);
    job.calls = 2;
    job.target.tls = Some(Tls::default());
    let outcome = go(&job);
    // Two requests on each connection; the last ones may be alone on theirs.
    assert_eq!(outcome.total.good, 40, "{:?}", outcome.total.failures);
    assert!((20..=21).contains(&outcome.total.handshake.count()));
    assert_eq!(server.resumed.load(Ordering::SeqCst), 0, "full handshakes unless asked for otherwise");
    job.target.tls = Some(Tls { resume: true, ca: Some(pem), ..Tls::default() });
    assert_eq!(go(&job).total.good, 40);
    assert!(server.resumed.load(Ordering::SeqCst) > 0);
    let (_, other) = certificate();
    job.target.tls = Some(Tls { ca: Some(other), ..Tls::default() });
    job.budget = Some(2);
    let refused = go(&job);
    assert_eq!(
        (refused.total.good, refused.total.failures.of(LoadFailure::Tls)),
        (0, 2),
        "the wrong authority is noticed"
    );
}

#[test]
fn a_burst_over_tls_begins_so_many_handshakes_and_no_more() {
    // A server without TLS: every handshake hangs, while a thousand requests are due.
    let server = Server::start(GOOD, None);
    let mut job = Job { budget: None, ..job(&server, 10_000, 0) };
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(5000.0, 0.2);
    (job.timeout, job.connect_timeout) = (0.2, 30.0);
    job.target.tls = Some(Tls::default());
    let outcome = go(&job);
    assert_eq!((outcome.total.due, outcome.total.failures.of(LoadFailure::Unsent)), (1000, 1000));
    assert!(server.accepted.load(Ordering::SeqCst) <= 128, "{:?}", server.accepted);
    // Without TLS connections stand at once, and each makes room for another. On a busy machine some requests are late or
    // never sent.
    job.target.tls = None;
    job.timeout = 30.0;
    let outcome = go(&job);
    let total = &outcome.total;
    assert!(total.in_time + total.late + total.failures.of(LoadFailure::Unsent) == 1000, "{:?}", total.failures);
    assert!(total.in_time + total.late > 0);
}

#[test]
fn a_certificate_that_signs_itself_is_its_own_authority() {
    // As `openssl req -x509` makes it: one that may sign others, which no chain may end in.
    let authority = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    for (name, good, why) in [("localhost", 4, None), ("elsewhere", 0, Some("not valid for name"))] {
        let (config, pem) = certificate_for(name, authority);
        let server = Server::start(GOOD, Some(config));
        let mut job = job(&server, 1, 4);
        job.target.tls = Some(Tls { ca: Some(pem), ..Tls::default() });
        let outcome = go(&job);
        assert_eq!(outcome.total.good, good);
        let said = outcome.tls_error.unwrap_or_default();
        assert!(why.map_or(said.is_empty(), |why| said.contains(why)), "{said}");
    }
}

#[test]
fn a_server_that_is_not_there_is_refused() {
    let address = SocketAddr::from(([127, 0, 0, 1], testkit::free_port()));
    let gone =
        Server { address, stop: Arc::default(), accepted: Arc::default(), resumed: Arc::default(), thread: None };
    let outcome = go(&job(&gone, 2, 4));
    assert_eq!((outcome.total.answers, outcome.total.failures.of(LoadFailure::ConnectRefused)), (0, 4));
}

fn bench(args: &[&str]) -> i32 {
    bench_main(args.iter().map(OsString::from).collect())
}

#[test]
fn the_exit_status_tells_good_from_bad() {
    let server = Server::start(GOOD, None);
    let url = server.url();
    let run = |extra: &[&str]| {
        let mut args = vec![url.as_str(), "-n", "200", "-c", "2", "-d", "60s", "--warmup", "0s", "-q"];
        args.extend(extra);
        bench(&args)
    };
    assert_eq!(run(&[]), OK);
    assert_eq!(run(&["--expect-status", "404"]), FAILED, "others end with success when every request failed");
    // Conditions independent of the machine's speed: a body, a rate that any machine exceeds, a latency that none
    // reaches.
    assert_eq!(run(&["--show"]), OK);
    assert_eq!(run(&["--expect-contains", "hello"]), OK);
    // FNV-1a of "hello".
    assert_eq!(run(&["--expect-hash", "a430d84680aabd0b"]), OK);
    assert_eq!(run(&["--expect-hash", "a430d84680aabd0c"]), FAILED);
    assert!([OK, INVALID].contains(&run(&["--require", "errors<1%"])));
    assert!([WORSE, INVALID].contains(&run(&["--require", "p50<1ns"])));
    assert_eq!(bench(&["http://127.0.0.1:1/", "-n", "2", "-c", "1", "-q", "--no-live"]), FAILED);
}

#[test]
fn impossible_runs_are_refused_before_the_start() {
    // Nothing listens: a run would end with FAILED.
    let says = |args: &[&str]| bench(&[&["http://127.0.0.1:1/", "-q", "-n", "1"], args].concat());
    let folder = std::env::temp_dir().join(format!("bench-before-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let (empty, none) = (file("empty", "\n# nothing\n"), folder.join("missing").display().to_string());
    let usage = load::bench::USAGE;
    for args in [
        &["--json", "/nowhere/x.json"][..],
        &["--html", "/nowhere/x.html"],
        &["--csv", "/nowhere/x.csv"],
        &["--baseline", &none],
        &["--baseline", &empty],
        &["--paths", &empty],
        &["--paths", &none],
        &["--request-file", &empty],
        &["-H", "no colon"],
        &["-b", "{{what}}"],
        &["--expect-hash", "zz"],
        &["--require", "p99<5"],
        &["--source", "192.0.2.1"],
        &["--pin", "4095"],
        &["--pid", "4194304"],
        &["-r", "5", "--pipeline", "2"],
    ] {
        assert_eq!(says(args), usage, "{args:?}");
    }
    let kept = folder.join("new.json");
    assert_eq!(says(&["--json", &kept.display().to_string()]), FAILED);
    assert!(kept.is_file(), "written although the run failed");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_overload_is_not_a_success() {
    // A silent server: due requests are never answered.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let run = |extra: &[&str]| {
        let args = [&[url.as_str(), "-r", "100", "-c", "3", "-d", "500ms", "--timeout", "200ms", "-q"], extra].concat();
        bench(&args)
    };
    assert_eq!(run(&[]), FAILED);
    assert_eq!(run(&["--require", "p50<20s"]), WORSE);
    assert_eq!(run(&["--require", "errors<1%"]), WORSE);
}

#[test]
fn a_status_page_is_watched() {
    const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 119\r\n\r\nActive connections: 2 \n\
                        server accepts handled requests\n 10 10 20 \nReading: 0 Writing: 1 Waiting: 1 \n\
                        0123456789012345678";
    assert_eq!(PAGE.split("\r\n\r\n").nth(1).unwrap().len(), 119);
    let (page, other) = (Server::start(PAGE, None), Server::start(GOOD, None));
    let top = |url: &str, extra: &[&str]| {
        load::top_main([&[url, "-n", "2", "-i", "60ms", "--json"], extra].concat().iter().map(OsString::from).collect())
    };
    assert_eq!(top(&page.url(), &[]), OK);
    assert_eq!(top(&page.url(), &["--probes", "0"]), OK);
    assert_eq!(top(&other.url(), &[]), FAILED, "that is no status page");
    assert_eq!(top("ftp://x/", &[]), load::bench::USAGE);
    let directory = std::env::temp_dir().join(format!("bench-status-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let json = directory.join("r.json").display().to_string();
    let run = |watch: &Server| {
        bench(&[&other.url(), "-d", "400ms", "-c", "1", "-q", "--watch", &watch.url(), "--json", &json])
    };
    assert_eq!(run(&page), OK);
    let status = load::bench::read_report(json.as_ref()).unwrap().points[0].rounds[0].status.unwrap();
    assert_eq!((status.active, status.dropped), (Some(2.0), Some(0.0)));
    assert_eq!(run(&other), load::bench::USAGE);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn unix_sockets_are_asked_too() {
    use std::os::unix::net::UnixListener;
    let path = std::env::temp_dir().join(format!("bench-unix-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream, GOOD, |_| ()));
        }
    });
    let path_text = path.display().to_string();
    let run = |extra: &[&str]| {
        bench(&[&["http://app.test/", "--unix", &path_text, "-n", "100", "-c", "3", "-q"], extra].concat())
    };
    assert_eq!(run(&[]), OK);
    assert_eq!(run(&["--expect-contains", "hello"]), OK);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(run(&[]), FAILED);
}

#[test]
fn reports_are_written_and_read_back() {
    let server = Server::start(GOOD, None);
    let directory = std::env::temp_dir().join(format!("bench-test-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = |name: &str| directory.join(name).display().to_string();
    let (json, html, csv) = (file("r.json"), file("r.html"), file("r.csv"));
    let args = [
        &server.url(),
        "-n",
        "100",
        "--sweep",
        "1,2",
        "--rounds",
        "2",
        "-d",
        "60s",
        "-q",
        "--warmup",
        "0s",
        "--json",
        &json,
        "--html",
        &html,
        "--csv",
        &csv,
    ];
    assert_eq!(bench(&args), OK);
    let report = load::bench::read_report(json.as_ref()).unwrap();
    assert_eq!(report.points.iter().map(|p| p.rounds.len()).collect::<Vec<_>>(), [2, 2]);
    assert!(report.points.iter().all(|p| p.rounds.iter().all(|r| r.good == 100)));
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("<svg") && !page.contains("<script") && !page.contains("src="));
    assert_eq!(std::fs::read_to_string(&csv).unwrap().lines().count(), 5);
    std::fs::remove_dir_all(&directory).unwrap();
}
