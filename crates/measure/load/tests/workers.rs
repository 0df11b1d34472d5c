//! Load from several machines over real sockets: shares, lost and stopped workers, secrets, links over TLS.
//!
//! No assertion is about time; every listener has a port of the system's choice.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use load::bench::link::LinkTls;
use load::bench::worker::{WorkerAccess, coordinate_workers, serve_coordinators};
use load::bench::{OK, USAGE};
use load::bench_main;
use load::engine::feed::{LoadData, RowOrder};
use load::engine::job::{Job, Model, Target, Think};
use load::engine::profile::{Arrivals, Profile};
use load::engine::request::RequestSpec;
use load::engine::run::{RunControl, run_job};
use testkit::thread_server::ThreadServer;

const SECRET: &str = "sixteen letters!";

/// A server that answers every request.
fn target_server() -> ThreadServer {
    ThreadServer::start(|mut stream: TcpStream| {
        let (mut buffer, mut request) = ([0; 4096], Vec::new());
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            request.extend_from_slice(&buffer[..n]);
            while let Some(end) = request.windows(4).position(|w| w == b"\r\n\r\n") {
                request.drain(..end + 4);
                if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_err() {
                    return;
                }
            }
        }
    })
}

fn job(server: &ThreadServer, connections: usize, requests: u64) -> Job {
    let address = server.address();
    let target = Target {
        host: "localhost".into(),
        port: address.port(),
        address,
        tls: None,
        unix: None,
        proxy: None,
        sources: Vec::new(),
    };
    Job { budget: Some(requests), ..Job::closed(target, connections, 60.0) }
}

fn endless(server: &ThreadServer) -> Job {
    Job { profile: Profile::constant(2.0, 600.0), budget: None, ..job(server, 2, 1) }
}

fn access(secret: &str) -> WorkerAccess {
    WorkerAccess::new(secret.into(), None).unwrap()
}

/// A thread that stops the run when the load has reached the server.
fn stop_under_load(control: &RunControl, server: &Arc<ThreadServer>) -> JoinHandle<()> {
    let (stop, seen) = (control.stop.clone(), Arc::clone(server));
    std::thread::spawn(move || {
        while seen.accepted() < 2 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::SeqCst);
    })
}

/// A worker with a thread for `jobs` jobs of up to 1000 s, and its name.
fn start_worker(access: &WorkerAccess, jobs: usize) -> (String, JoinHandle<Result<(), String>>) {
    start_threads(access, jobs, 1)
}

/// A worker as [`start_worker`] starts it, with a number of client threads.
fn start_threads(access: &WorkerAccess, jobs: usize, threads: usize) -> (String, JoinHandle<Result<(), String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = listener.local_addr().unwrap().to_string();
    let access = access.clone();
    (name, std::thread::spawn(move || serve_coordinators(&listener, &access, jobs, 1000.0, threads)))
}

/// A server that lists the paths of the requests that it answers.
fn listing_server() -> (ThreadServer, Arc<Mutex<Vec<String>>>) {
    let paths: Arc<Mutex<Vec<String>>> = Arc::default();
    let list = paths.clone();
    let server = ThreadServer::start(move |stream: TcpStream| {
        let mut answer = stream.try_clone().unwrap();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if let Some(path) = line.strip_prefix("GET ") {
                list.lock().unwrap().push(path.trim_end_matches(" HTTP/1.1").to_string());
            } else if line.is_empty() && answer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                return;
            }
        }
    });
    (server, paths)
}

#[test]
fn rows_of_data_are_sent_once_over_workers_and_threads() {
    let rows: Vec<Vec<String>> = (0..101).map(|i| vec![format!("{i:03}")]).collect();
    let expected: Vec<String> = (0..101).map(|i| format!("/{i:03}")).collect();
    let (closed, open) = (Model::Closed { think: Think::default() }, Model::Open { arrivals: Arrivals::Fixed });
    // Workers, threads of each, connections, model, requests at most.
    let runs = [
        (0, 1, 1, &closed, None),
        (0, 3, 1, &closed, None),
        (1, 2, 1, &closed, None),
        (2, 2, 1, &closed, None),
        (3, 2, 1, &closed, None),
        (3, 2, 4, &closed, None),
        (2, 2, 3, &closed, Some(101)),
        (2, 2, 8, &open, None),
        (0, 3, 8, &open, None),
    ];
    for (order, (workers, threads, connections, model, budget)) in
        [RowOrder::Once, RowOrder::Order].into_iter().flat_map(|order| runs.map(|run| (order, run)))
    {
        let (server, paths) = listing_server();
        let mut all = job(&server, connections, 101);
        all.budget = if order == RowOrder::Once { budget } else { Some(101) };
        all.model = model.clone();
        all.threads = threads;
        if model.is_open() {
            all.profile = Profile::constant(2000.0, 60.0);
        }
        all.requests = vec![RequestSpec::get("/{{path-column:0}}")];
        all.data = Some(LoadData { order, rows: rows.clone().into() });
        let (names, handles): (Vec<_>, Vec<_>) =
            (0..workers).map(|_| start_threads(&access(SECRET), 1, threads)).unzip();
        let outcome = match workers {
            0 => run_job(&all, &RunControl::default(), |_| ()).unwrap(),
            _ => coordinate_workers(&names, &access(SECRET), &all, &RunControl::default()).unwrap(),
        };
        handles.into_iter().for_each(|handle| handle.join().unwrap().unwrap());
        let mut seen = std::mem::take(&mut *paths.lock().unwrap());
        seen.sort();
        let run = format!("{workers} workers, {threads} threads, {connections} connections, {order:?}, {model:?}");
        assert_eq!(seen, expected, "{run}");
        assert_eq!((outcome.total.good, outcome.rows_left), (101, 0), "{run}");
        assert!(outcome.seconds < 30.0, "{run}: {} s of 60 without rows", outcome.seconds);
    }
}

fn bench(args: &[&str]) -> i32 {
    bench_main(args.iter().map(OsString::from).collect())
}

#[test]
fn a_worker_that_is_lost_is_named_and_the_others_stop() {
    let server = target_server();
    let (good, honest) = start_worker(&access(SECRET), 1);
    // Takes the order, and is gone after the start.
    let (lost, thread) = scripted_worker(&[]);
    let names = vec![good, lost];
    let long = endless(&server);
    let why = coordinate_workers(&names, &access(SECRET), &long, &RunControl::default()).unwrap_err();
    assert!(why.contains(&format!("worker {} was lost", names[1])) && why.contains("no figures"), "{why}");
    thread.join().unwrap();
    // The other one has stopped its ten minutes, and is there for the next job.
    let outcome =
        coordinate_workers(&names[..1], &access(SECRET), &job(&server, 2, 10), &RunControl::default()).unwrap();
    assert_eq!(outcome.total.good, 10);
    honest.join().unwrap().unwrap();
}

/// A worker of the test's own, which takes one order and sends `lines` after the start.
fn scripted_worker(lines: &'static [&str]) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = BufReader::new(stream.try_clone().unwrap()).lines();
        writeln!(stream, r#"{{"protocol":"tidegate-bench/7","number":"00","threads":1}}"#).unwrap();
        assert_eq!(heard.next().unwrap().unwrap(), "tidegate-bench");
        assert!(heard.next().unwrap().unwrap().contains("proof"));
        writeln!(stream, r#""Ready""#).unwrap();
        assert_eq!(heard.next().unwrap().unwrap(), r#""go""#);
        lines.iter().for_each(|line| writeln!(stream, "{line}").unwrap());
    });
    (name, thread)
}

#[test]
fn signs_of_life_are_no_results_and_strangers_are_told() {
    let server = target_server();
    let coordinate = |name: String| {
        let run = coordinate_workers(&[name], &access(SECRET), &endless(&server), &RunControl::default());
        run.unwrap_err()
    };
    let (name, thread) = scripted_worker(&[r#""Running""#, r#""Running""#, r#"{"Refused":"no more"}"#]);
    assert_eq!(coordinate(name.clone()), format!("worker {name}: no more"));
    thread.join().unwrap();
    let web = ThreadServer::start(|mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let why = coordinate(web.address().to_string());
    assert!(why.contains("no worker of `tidegate bench`") && why.contains("`HTTP/1.1 400 Bad Request`"), "{why}");
}

#[test]
fn workers_that_are_told_to_stop_report_what_they_have() {
    let server = Arc::new(target_server());
    let (name, thread) = start_worker(&access(SECRET), 1);
    let names = vec![name];
    let long = endless(&server);
    let control = RunControl::default();
    let stopper = stop_under_load(&control, &server);
    let outcome = coordinate_workers(&names, &access(SECRET), &long, &control).unwrap();
    assert!(outcome.seconds < 500.0);
    stopper.join().unwrap();
    thread.join().unwrap().unwrap();
}

#[test]
fn workers_share_a_load_and_refuse_strangers() {
    let server = target_server();
    let mut names = Vec::new();
    let mut threads = Vec::new();
    for _ in 0..2 {
        let (name, thread) = start_worker(&access(SECRET), 1);
        names.push(name);
        threads.push(thread);
    }
    let job = job(&server, 5, 501);
    let stranger = coordinate_workers(&names, &access("another secret!!"), &job, &RunControl::default()).unwrap_err();
    assert!(stranger.contains("secret is wrong"), "{stranger}");
    let too_long = Job { profile: Profile::constant(5.0, 2000.0), ..job.clone() };
    // The stranger's second worker was left in the middle of its greeting; it goes on to the next coordinator.
    let refused = coordinate_workers(&names, &access(SECRET), &too_long, &RunControl::default()).unwrap_err();
    assert!(refused.contains("longer than"), "{refused}");
    let outcome = coordinate_workers(&names, &access(SECRET), &job, &RunControl::default()).unwrap();
    assert_eq!((outcome.total.good, outcome.total.corrected.count()), (501, 501));
    assert_eq!(outcome.busy.len(), 2);
    let parts: Vec<&str> = outcome.machines.iter().map(|machine| machine.name.as_str()).collect();
    names.sort();
    assert_eq!(parts, names);
    let total: u64 = outcome.machines.iter().map(|machine| machine.due).sum();
    assert!(total == 501 && outcome.machines.iter().all(|machine| machine.p99.is_some() && machine.due >= 200));
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
}

#[test]
fn the_kubernetes_example_gives_flags_that_exist() {
    let text = include_str!("../../../../examples/lab/kubernetes-job.yaml");
    let worker = text.lines().find_map(|l| l.trim().strip_prefix("args: ")).unwrap();
    let worker: Vec<String> = serde_json::from_str(worker).unwrap();
    assert_eq!(worker[..2], ["bench", "worker"]);
    // Help ends before anything is done, but flags that are not known come first.
    let ask = |args: &[String]| bench(&args.iter().map(String::as_str).chain(["--help"]).collect::<Vec<_>>());
    assert_eq!(ask(&worker[1..]), OK);
    let list = text.split("- bench\n").nth(1).unwrap();
    let flags = list.lines().map_while(|l| l.trim().strip_prefix("- "));
    let flags: Vec<String> = flags.map(|f| f.split(" #").next().unwrap().trim().to_string()).collect();
    assert!(flags.len() == 9 && flags[0].starts_with("http://"), "{flags:?}");
    assert!(worker.contains(&"--cacert".to_string()) && flags.contains(&"--workers-cacert=/tls/ca.crt".to_string()));
    let options = load::bench::cli::parse_arguments(&flags.iter().map(OsString::from).collect::<Vec<_>>()).unwrap();
    assert_eq!((options.workers.len(), options.require.len(), options.rate), (4, 1, Some(40_000.0)));
    assert_eq!(ask(&["worker".into(), "--no-such-flag".into()]), 2);
}

/// An authority with certificates for a worker (of `host`) and a coordinator.
struct Authority {
    pem: String,
    worker: (String, String),
    coordinator: (String, String),
}

fn authority(host: &str) -> Authority {
    let pair = rcgen::KeyPair::generate().unwrap();
    let mut own = rcgen::CertificateParams::new(Vec::new()).unwrap();
    own.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = own.self_signed(&pair).unwrap();
    let issuer = rcgen::Issuer::from_params(&own, &pair);
    let signed = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec![name.to_string()]).unwrap();
        (parameters.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    };
    Authority { pem: certificate.pem(), worker: signed(host), coordinator: signed("coordinator") }
}

fn tls_access(identity: &(String, String), authorities: &str) -> WorkerAccess {
    let tls = LinkTls::from_pem(&identity.0, &identity.1, authorities);
    WorkerAccess::new(SECRET.into(), Some(tls)).unwrap()
}

#[test]
fn workers_over_tls_share_a_load_and_know_their_coordinator() {
    let server = target_server();
    let own = authority("127.0.0.1");
    let workers: Vec<_> = (0..2).map(|_| start_worker(&tls_access(&own.worker, &own.pem), 1)).collect();
    let names: Vec<String> = workers.iter().map(|(name, _)| name.clone()).collect();
    let other = authority("127.0.0.1");
    let load = job(&server, 4, 400);
    let ask = |access: &WorkerAccess| coordinate_workers(&names, access, &load, &RunControl::default());
    // A certificate of another authority ends the handshake, on either side.
    let unknown = ask(&tls_access(&other.coordinator, &own.pem)).unwrap_err();
    assert!(unknown.contains("does not take the certificate of --workers-cert"), "{unknown}");
    let distrusted = ask(&tls_access(&own.coordinator, &other.pem)).unwrap_err();
    assert!(distrusted.contains("not in --workers-cacert"), "{distrusted}");
    let clear = ask(&access(SECRET)).unwrap_err();
    assert!(clear.contains("over TLS only: pass --workers-cert"), "{clear}");
    // The secret is asked for as well.
    let tls = LinkTls::from_pem(&own.coordinator.0, &own.coordinator.1, &own.pem);
    let guess = ask(&WorkerAccess::new("another secret!!".into(), Some(tls)).unwrap()).unwrap_err();
    assert!(guess.contains("secret is wrong"), "{guess}");
    assert_eq!(server.accepted(), 0);
    let outcome = ask(&tls_access(&own.coordinator, &own.pem)).unwrap();
    assert_eq!((outcome.total.good, outcome.machines.len()), (400, 2));
    for (_, thread) in workers {
        thread.join().unwrap().unwrap();
    }
}

#[test]
fn a_worker_without_tls_or_of_another_host_is_told_apart() {
    let server = target_server();
    let own = authority("worker.invalid");
    let coordinator = tls_access(&own.coordinator, &own.pem);
    let ask = |name: &str| {
        coordinate_workers(&[name.to_string()], &coordinator, &job(&server, 1, 1), &RunControl::default()).unwrap_err()
    };
    let (clear, clear_thread) = start_worker(&access(SECRET), 1);
    let why = ask(&clear);
    assert!(why.contains("the worker does not speak TLS: start it with --cert"), "{why}");
    let (elsewhere, elsewhere_thread) = start_worker(&tls_access(&own.worker, &own.pem), 1);
    let why = ask(&elsewhere);
    assert!(why.contains("does not name its host"), "{why}");
    // Both serve the next coordinator.
    let done = |name: &str, access: &WorkerAccess| {
        coordinate_workers(&[name.to_string()], access, &job(&server, 1, 10), &RunControl::default())
    };
    assert_eq!(done(&clear, &access(SECRET)).unwrap().total.good, 10);
    clear_thread.join().unwrap().unwrap();
    drop(elsewhere_thread);
}

#[test]
fn certificates_of_authorities_are_explained_to_both_sides() {
    // As `openssl req -x509` makes it, used for everything; then without the right to sign others.
    let alone = |is_ca: rcgen::IsCa| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_string()]).unwrap();
        parameters.is_ca = is_ca;
        (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
    };
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("alone-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let server = target_server();
    for (identity, works) in [
        (alone(rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained)), false),
        (alone(rcgen::IsCa::ExplicitNoCa), true),
    ] {
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_string()
        };
        let (secret, cert, key) = (file("secret", SECRET), file("crt", &identity.0), file("key", &identity.1));
        let mut worker = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate-load"))
            .args(["bench", "worker", "--listen", "127.0.0.1:0", "--jobs", "1", "--secret", &secret])
            .args(["--cert", &cert, "--key", &key, "--cacert", &cert])
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(worker.stderr.take().unwrap()).lines().map_while(Result::ok);
        let first = lines.next().unwrap();
        let name = first.rsplit(' ').next().unwrap().to_string();
        let access = tls_access(&identity, &identity.0);
        let done = coordinate_workers(&[name], &access, &job(&server, 1, 10), &RunControl::default());
        if works {
            assert_eq!(done.unwrap().total.good, 10);
            assert!(worker.wait().unwrap().success());
            continue;
        }
        let told = done.unwrap_err();
        assert!(
            told.contains("does not take the certificate of --workers-cert") && told.contains("CA:FALSE"),
            "{told}"
        );
        let told = lines.next().unwrap();
        assert!(
            told.contains("the coordinator's certificate is one of an authority") && told.contains("CA:FALSE"),
            "{told}"
        );
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn workers_over_tls_stop_when_they_are_told() {
    let server = Arc::new(target_server());
    let own = authority("127.0.0.1");
    let (name, thread) = start_worker(&tls_access(&own.worker, &own.pem), 1);
    let control = RunControl::default();
    let stopper = stop_under_load(&control, &server);
    let access = tls_access(&own.coordinator, &own.pem);
    let outcome = coordinate_workers(&[name], &access, &endless(&server), &control).unwrap();
    assert!(outcome.seconds < 500.0);
    stopper.join().unwrap();
    thread.join().unwrap().unwrap();
}

#[test]
fn unusable_files_of_a_link_are_refused_before_the_start() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("link-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (own, other) = (authority("127.0.0.1"), authority("127.0.0.1"));
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    let secret = file("secret", SECRET);
    let (cert, key, ca) = (file("tls.crt", &own.worker.0), file("tls.key", &own.worker.1), file("ca.crt", &own.pem));
    let (foreign, empty) = (file("foreign.key", &other.worker.1), file("empty", ""));
    for (cert, key, ca) in [(&cert, &foreign, &ca), (&empty, &key, &ca), (&cert, &empty, &ca), (&cert, &key, &empty)] {
        let files = ["--cert", cert, "--key", key, "--cacert", ca];
        assert_eq!(bench(&[&["worker", "--listen", "127.0.0.1:0", "--secret", &secret][..], &files].concat()), USAGE);
        let files = ["--workers-cert", cert, "--workers-key", key, "--workers-cacert", ca];
        let coordinator = ["http://127.0.0.1:1/", "--workers", "127.0.0.1:1", "--secret", &secret];
        assert_eq!(bench(&[&coordinator[..], &files].concat()), USAGE);
    }
    assert_eq!(bench(&["worker", "--secret", &secret, "--cert", &cert]), USAGE, "the key is missing");
    let exchanged = LinkTls::read(Path::new(&cert), Path::new(&foreign), Path::new(&ca)).unwrap_err();
    assert_eq!(exchanged, format!("{cert} and {foreign}: the key does not belong to the certificate"));
    assert!(LinkTls::read(Path::new(&cert), Path::new(&key), Path::new(&ca)).is_ok());
    std::fs::remove_dir_all(&folder).unwrap();
}
