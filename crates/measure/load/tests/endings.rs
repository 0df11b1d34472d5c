//! Ends of a run: by signals in every phase, by limits of the system, by numbers of requests; with the reports that
//! remain.
//!
//! Signals are sent after the server saw an event of the phase, not after a delay.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use load::bench::read_report;
use load::report::model::Report;

/// Answers the first `answered` requests, and no more; tells of each request.
struct Server {
    address: SocketAddr,
    seen: Receiver<u64>,
    connections: Arc<AtomicUsize>,
}

fn server(answered: u64) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, seen) = channel();
    let (count, sender) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(sender)));
    let connections = Arc::<AtomicUsize>::default();
    let made = connections.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            made.fetch_add(1, Ordering::SeqCst);
            let (count, sender) = (count.clone(), sender.clone());
            std::thread::spawn(move || {
                let mut stream: TcpStream = stream;
                let (mut buffer, mut request) = ([0; 4096], Vec::new());
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    request.extend_from_slice(&buffer[..n]);
                    while let Some(end) = request.windows(4).position(|w| w == b"\r\n\r\n") {
                        request.drain(..end + 4);
                        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                        let _ = sender.lock().unwrap().send(number);
                        if number <= answered
                            && stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_err()
                        {
                            return;
                        }
                    }
                }
            });
        }
    });
    Server { address, seen, connections }
}

struct Run {
    child: Child,
    folder: PathBuf,
}

fn start(name: &str, server: &Server, arguments: &[&str]) -> Run {
    let folder = std::env::temp_dir().join(format!("endings-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| folder.join(name).display().to_string();
    let child = Command::new(env!("CARGO_BIN_EXE_tidegate-load"))
        .args(["bench", &format!("http://{}/", server.address), "--no-live"])
        .args(["--json", &file("r.json"), "--csv", &file("r.csv"), "--html", &file("r.html")])
        .args(if arguments.contains(&"--timeout") { &[][..] } else { &["--timeout", "60s"] })
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Run { child, folder }
}

impl Run {
    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Exit status, summary, report; all files must be there.
    fn end(self) -> (i32, String, Report) {
        let output = self.child.wait_with_output().unwrap();
        let report = read_report(&self.folder.join("r.json")).unwrap();
        assert!(std::fs::read_to_string(self.folder.join("r.csv")).unwrap().starts_with("value,"));
        assert!(std::fs::read_to_string(self.folder.join("r.html")).unwrap().contains("</html>"));
        std::fs::remove_dir_all(&self.folder).unwrap();
        (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).unwrap(), report)
    }
}

fn wait_for(server: &Server, number: u64) {
    while server.seen.recv().unwrap() < number {}
}

#[test]
fn a_run_that_is_stopped_reports_what_it_has() {
    use rustix::process::Signal;
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let server = server(u64::MAX);
        let run = start(&format!("measuring-{status}"), &server, &["-c", "2", "-d", "300s", "--warmup", "0s"]);
        wait_for(&server, 100);
        run.signal(signal);
        let (code, text, report) = run.end();
        assert_eq!(code, status);
        let round = &report.points[0].rounds[0];
        assert!(report.interrupted && round.interrupted && round.good >= 90, "{}", round.good);
        assert_eq!(round.due, round.in_time + round.late + round.failed());
        assert!(text.contains("stopped before the end") && text.contains("sum"), "{text}");
    }
}

#[test]
fn in_the_warm_up_there_is_nothing_to_report_but_the_files() {
    let server = server(u64::MAX);
    let run = start("warm-up", &server, &["-c", "2", "-d", "300s", "--warmup", "300s"]);
    wait_for(&server, 10);
    run.signal(rustix::process::Signal::INT);
    let (code, text, report) = run.end();
    assert_eq!((code, report.points.len()), (130, 0));
    assert!(text.contains("nothing was measured"), "{text}");
}

#[test]
fn while_answers_are_waited_for_the_end_comes_at_once() {
    // Ten requests of an open loop, none answered: after the plan's second the run waits for a minute.
    let server = server(0);
    let run = start("drain", &server, &["-r", "10", "--arrivals", "fixed", "-d", "1s", "--warmup", "0s"]);
    wait_for(&server, 10);
    run.signal(rustix::process::Signal::INT);
    let (code, _, report) = run.end();
    let round = &report.points[0].rounds[0];
    assert_eq!((code, round.due), (130, round.failed()));
    assert!(round.due >= 9, "{}", round.due);
}

#[test]
fn while_connections_are_made_the_end_comes_at_once() {
    // The HTTP/2 server sends no SETTINGS, for which a closed loop waits before it begins.
    let server = server(0);
    let run = start("made", &server, &["--http2", "-c", "4", "-m", "8", "-d", "300s", "--connect-timeout", "300s"]);
    wait_for(&server, 4);
    run.signal(rustix::process::Signal::INT);
    let (code, text, report) = run.end();
    let due: u64 = report.points.iter().flat_map(|point| &point.rounds).map(|round| round.in_time).sum();
    assert_eq!((code, due), (130, 0), "{text}");
}

#[test]
fn in_a_search_and_among_new_connections_files_are_there_too() {
    for (name, arguments) in [
        ("search", &["--find", "p99<1s", "-d", "300s"][..]),
        ("new", &["--conn-rate", "200", "-d", "300s", "--warmup", "0s"][..]),
        ("rounds", &["-c", "2", "-d", "300s", "--no-keepalive", "--rounds", "3", "--warmup", "0s"][..]),
    ] {
        let server = server(u64::MAX);
        let run = start(name, &server, arguments);
        wait_for(&server, 50);
        run.signal(rustix::process::Signal::TERM);
        let (code, text, report) = run.end();
        assert_eq!((code, report.interrupted), (143, true), "{name}: {text}");
        for round in report.points.iter().flat_map(|point| &point.rounds) {
            assert_eq!(round.due, round.in_time + round.late + round.failed(), "{name}");
        }
        assert!(text.contains("stopped before the end"), "{name}: {text}");
    }
}

#[test]
fn finished_points_of_a_sweep_are_kept() {
    let server = server(50);
    let run = start("sweep", &server, &["--sweep", "1,2,3", "-n", "50", "-d", "300s"]);
    wait_for(&server, 51);
    run.signal(rustix::process::Signal::TERM);
    let (code, text, report) = run.end();
    assert_eq!((code, report.points.len()), (143, 2), "{text}");
    let first = &report.points[0].rounds[0];
    assert!(first.good == 50 && !first.interrupted && report.points[1].rounds[0].interrupted);
}

#[test]
fn a_server_that_dies_fails_the_run() {
    // A thousand answers, then none: few requests fail, because their users wait.
    let server = server(1000);
    let limits = ["-c", "2", "-d", "4s", "--warmup", "0s", "--timeout", "1s"];
    let (code, text, report) = start("dies", &server, &limits).end();
    let round = &report.points[0].rounds[0];
    assert!(round.good == 1000 && round.failed() <= 10, "{} failed", round.failed());
    assert!(round.silence.is_some_and(|silence| silence >= 1.0), "{:?}", round.silence);
    assert_eq!((code, report.points[0].verdict.word.as_str()), (load::bench::FAILED, "error-bound"), "{text}");
    assert!(text.contains("no answer in the last "), "{text}");
}

#[test]
fn a_number_of_requests_is_a_number_of_requests() {
    let counted = server(u64::MAX);
    let run = start("number", &counted, &["-n", "50", "-c", "2"]);
    let (code, _, report) = run.end();
    let round = &report.points[0].rounds[0];
    assert_eq!((code, round.good, round.due, round.failed()), (0, 50, 50, 0));
    assert_eq!(counted.seen.try_iter().count(), 50, "the server saw as many");
    // In an open loop, and with a warm-up, which is not part of it.
    let warm = server(u64::MAX);
    let run = start("number-open", &warm, &["-n", "50", "-r", "500", "--warmup", "100ms"]);
    let (_, _, report) = run.end();
    assert_eq!(report.points[0].rounds[0].due, 50);
    assert!(warm.seen.try_iter().count() > 50);
}

#[test]
fn a_run_ends_when_what_it_must_not_do_happens() {
    // The first fifty answers come, the rest do not.
    let server = server(50);
    let arguments = ["-c", "60", "-d", "300s", "--warmup", "0s", "--abort-on", "errors>30%", "--interval", "100ms"];
    let metrics = std::env::temp_dir().join(format!("endings-{}.jsonl", std::process::id()));
    let metrics_text = metrics.display().to_string();
    let run = start("abort", &server, &[&arguments[..], &["--timeout", "100ms", "--metrics", &metrics_text]].concat());
    let (code, text, report) = run.end();
    assert_eq!(code, 1);
    assert!(report.interrupted && report.notes.iter().any(|n| n.starts_with("stopped by errors>30%")), "{text}");
    let lines = std::fs::read_to_string(&metrics).unwrap();
    std::fs::remove_file(&metrics).unwrap();
    assert!(lines.lines().count() >= 1 && lines.contains("\"rps\""), "{lines}");
}

#[test]
fn saved_runs_stand_side_by_side() {
    let server = server(u64::MAX);
    let folder = std::env::temp_dir().join(format!("endings-{}-compare", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| folder.join(name).display().to_string();
    let bench = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate-load")).arg("bench").args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let url = format!("http://{}/", server.address);
    for name in ["a.json", "b.json"] {
        let text = bench(&[&url, "-n", "200", "-c", "2", "--json", &file(name), "--spectrum", "--ms", "--no-live"]);
        assert!(text.contains("1/(1-Percentile)") && text.contains("Total count    =          200"), "{text}");
        assert!(!text.contains(" µs"), "all in milliseconds: {text}");
    }
    let text = bench(&["compare", &file("a.json"), &file("b.json"), "--names", "old,new", "--html", &file("c.html")]);
    assert!(text.contains("old  2 connections") && text.contains("new  2 connections"), "{text}");
    let page = std::fs::read_to_string(folder.join("c.html")).unwrap();
    assert!(page.contains(">old</text>") && page.contains(">new</text>"), "both curves");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_client_whose_processor_somebody_else_has_is_disturbed() {
    use std::sync::atomic::AtomicBool;
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    // Two that never rest, on the client's processor: it gets a third of it.
    let neighbours = [(); 2].map(|()| {
        let over = over.clone();
        std::thread::spawn(move || {
            let mut one = rustix::thread::CpuSet::new();
            one.set(cpu);
            rustix::thread::sched_setaffinity(None, &one).unwrap();
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    });
    let server = server(u64::MAX);
    let run = start("disturbed", &server, &["-c", "16", "-d", "1s", "--pin", &cpu.to_string(), "--require", "rps>1G"]);
    let (code, text, report) = run.end();
    over.store(true, Ordering::Relaxed);
    neighbours.into_iter().for_each(|n| n.join().unwrap());
    let (point, round) = (&report.points[0], &report.points[0].rounds[0]);
    if std::fs::read_to_string("/proc/self/schedstat").is_ok_and(|t| t.split_whitespace().nth(1) != Some("0")) {
        assert!(round.client_waited[0] > 0.3, "{:?}", round.client_waited);
        assert!(point.verdict.word == "disturbed" && !point.verdict.usable, "{:?}", point.verdict);
        assert!(text.contains("waited for a CPU"), "{text}");
        assert_eq!(code, 3, "it fails nothing by that");
    }
}

#[test]
fn a_closed_pipe_does_not_cost_the_files() {
    let server = server(u64::MAX);
    let mut run = start("head", &server, &["-n", "20", "-c", "1"]);
    drop(run.child.stdout.take());
    let (code, _, report) = run.end();
    assert_eq!((code, report.points[0].rounds[0].good), (0, 20));
}

#[test]
fn without_descriptors_a_closed_loop_ends_and_says_so() {
    let server = server(u64::MAX);
    let folder = std::env::temp_dir().join(format!("endings-{}-descriptors", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let json = folder.join("r.json");
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 40; exec \"$0\" bench \"$1\" -c 60 -d 1s --warmup 0s --no-live --json \"$2\""])
        .arg(env!("CARGO_BIN_EXE_tidegate-load"))
        .arg(format!("http://{}/", server.address))
        .arg(&json)
        .output()
        .unwrap();
    let report = read_report(&json).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let (point, round) = (&report.points[0], &report.points[0].rounds[0]);
    assert!(round.good > 0 && round.failures["no descriptor left"] > 0, "{:?}", round.failures);
    assert!((0.9..3.0).contains(&round.seconds), "the length that was asked for: {}", round.seconds);
    assert!(point.verdict.reasons[0].contains("ulimit"), "{:?}", point.verdict);
    assert!(server.connections.load(Ordering::SeqCst) < 60);
    assert!(!output.stdout.is_empty());
}
