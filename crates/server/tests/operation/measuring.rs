//! The measuring tools within the server's program: stopped experiments leave nothing behind.

use crate::support::wait;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Waits for an action of the peer.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    wait(what, || if holds() { Ok(()) } else { Err("not yet") });
}

struct Lab {
    folder: PathBuf,
    file: PathBuf,
}

/// Machines are added and removed by the API under load; `plan` computes equal numbers and prices.
#[test]
fn machines_that_come_and_go_cost_as_planned() {
    let folder = std::env::temp_dir().join(format!("tidegate-scale-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lab");
    let run = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).current_dir(&folder).output().unwrap();
        let words = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{words}");
    };
    let report = |name: &str| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
    };
    run(&["lab", &format!("{examples}/autoscaling.toml"), "--out", "out", "--quick"]);
    let lab = report("out/report.json");
    let workload = &lab["workloads"][0];
    let scale = workload["scale"].as_array().unwrap();
    let machines: Vec<u64> = scale.iter().map(|one| one["machines"].as_u64().unwrap()).collect();
    assert_eq!(machines, [1, 3, 4, 3, 1]);
    // No request was lost by the changes.
    for point in workload["lines"][0]["points"].as_array().unwrap() {
        for round in point["rounds"].as_array().unwrap() {
            let failures = round["failures"].as_object().unwrap();
            assert!(failures.values().all(|count| count.as_u64() == Some(0)), "{} {failures:?}", point["value"]);
            assert!(round["rps"].as_f64() > Some(0.0));
        }
    }
    let capacity = format!("{examples}/plan/autoscaling-capacity.csv");
    run(&[
        "plan",
        "cost",
        &capacity,
        "--loads",
        "150,450,750,500,120",
        "--nodes",
        "1..",
        "--utilisation",
        "66%",
        "--json",
        "plan.json",
    ]);
    let plan = report("plan.json").to_string();
    for one in scale {
        let dollars = one["dollars_per_hour"].as_f64().unwrap();
        assert!(plan.contains(&format!("{dollars}")), "{one}: {plan}");
    }
    let _ = fs::remove_dir_all(&folder);
}

/// A lab of two servers with a backend, whose points last for minutes.
fn lab(name: &str) -> Lab {
    let folder = std::env::temp_dir().join(format!("measuring-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let conf = |name: &str, inside: &str| {
        format!(
            "daemon off; pid @DIR@/{name}.pid; events {{}} error_log @DIR@/{name}.err;\n\
             http {{ access_log @DIR@/{name}.access; server {{ listen 127.0.0.1:@PORT@; location / {{ {inside} }} }} }}"
        )
    };
    let server = |kind: &str, name: &str, inside: &str| {
        format!(
            "[[{kind}]]\nname = \"{name}\"\ncommand = \"tidegate -e @DIR@/{name}.err -p @DIR@ -c @DIR@/{name}.conf\"\n\
             files.\"{name}.conf\" = '''{}'''\n",
            conf(name, inside)
        )
    };
    let text = format!(
        "title = \"t\"\nduration = \"300s\"\nwarmup = \"10ms\"\nrounds = 2\n{}{}{}\
         [[server]]\nname = \"direct\"\nbackend = \"behind\"\n\
         [[workload]]\nname = \"w\"\nload = \"connections\"\nvalues = [2]\npath = \"/\"\n",
        server("backend", "behind", "return 200 x;"),
        server("server", "front", "proxy_pass http://127.0.0.1:@PORT:behind@;"),
        server("server", "other", "return 200 x;"),
    );
    let file = folder.join("lab.toml");
    fs::write(&file, text).unwrap();
    Lab { folder, file }
}

impl Lab {
    fn start(&self, arguments: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["lab", &self.file.display().to_string(), "--out", &self.out().display().to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn out(&self) -> PathBuf {
        self.folder.join("out")
    }

    /// Processes and ports of all that was started, once load has reached a server in its long point.
    fn running(&self) -> (Vec<i32>, Vec<u16>) {
        let work = self.out().join("work");
        let logs = ["front", "other", "behind"].map(|name| work.join(format!("{name}.access")));
        // The answers that are compared before the first round make a line or two each.
        until("load", || logs.iter().any(|log| lines(log) > 50));
        let pids = ["behind", "front", "other"].map(|name| fs::read_to_string(work.join(format!("{name}.pid"))));
        let pids: Vec<i32> = pids.into_iter().map(|text| text.unwrap().trim().parse().unwrap()).collect();
        let ports = ["behind", "front", "other"].map(|name| {
            let text = fs::read_to_string(work.join(format!("{name}.conf"))).unwrap();
            let at = text.split("listen 127.0.0.1:").nth(1).unwrap();
            at.split(';').next().unwrap().parse().unwrap()
        });
        (pids, ports.to_vec())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn lines(file: &Path) -> usize {
    fs::File::open(file).map_or(0, |file| BufReader::new(file).lines().take(100).count())
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Tells whether all processes have ended and their ports are free.
fn gone((pids, ports): &(Vec<i32>, Vec<u16>)) -> bool {
    pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        && ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_err())
}

#[test]
fn a_lab_that_is_stopped_reports_and_leaves_no_server() {
    for (with, status) in [(rustix::process::Signal::INT, 130), (rustix::process::Signal::TERM, 143)] {
        let lab = lab(&format!("stop-{status}"));
        let child = lab.start(&[]);
        let started = lab.running();
        signal(&child, with);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status));
        assert!(gone(&started), "{started:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("stopped before the end"));
        for file in ["report.html", "report.json", "report.csv"] {
            assert!(lab.out().join(file).is_file(), "{file}");
        }
    }
}

#[test]
fn a_lab_that_is_stopped_before_it_measures_reports_all_the_same() {
    // In a setup that never ends, at a backend that never listens, and at a server that never listens.
    let never = "[[KIND]]\nname = \"never\"\ncommand = \"sh -c 'echo $$ > @DIR@/never.pid; exec sleep 300'\"\n";
    let setup = "setup = [\"sh -c 'echo $$ > @DIR@/never.pid; exec sleep 300'\"]\n".to_string();
    let phases =
        [("setup", setup), ("backend", never.replace("KIND", "backend")), ("server", never.replace("KIND", "server"))];
    for (phase, text) in phases {
        let lab = lab(&format!("early-{phase}"));
        let before = fs::read_to_string(&lab.file).unwrap();
        let (head, tables) = before.split_once("[[backend]]").unwrap();
        fs::write(&lab.file, format!("{head}{text}[[backend]]{tables}")).unwrap();
        let child = lab.start(&[]);
        let file = lab.out().join("work/never.pid");
        let pid = || fs::read_to_string(&file).ok()?.trim().parse::<i32>().ok();
        until("what never ends has begun", || pid().is_some());
        signal(&child, rustix::process::Signal::INT);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{phase}: {output:?}");
        for file in ["report.html", "report.json", "report.csv"] {
            assert!(lab.out().join(file).is_file(), "{phase}: {file}");
        }
        assert!(gone(&(vec![pid().unwrap()], Vec::new())), "{phase}");
        let work = lab.out().join("work");
        let left = ["behind", "front", "other"].iter().filter(|name| {
            let pid = fs::read_to_string(work.join(format!("{name}.pid"))).unwrap_or_default();
            !pid.trim().is_empty() && Path::new(&format!("/proc/{}", pid.trim())).exists()
        });
        assert_eq!(left.count(), 0, "{phase}");
    }
}

#[test]
fn a_lab_that_is_killed_leaves_no_server() {
    let lab = lab("kill");
    let mut child = lab.start(&[]);
    let started = lab.running();
    signal(&child, rustix::process::Signal::KILL);
    child.wait().unwrap();
    until("the servers end with it", || gone(&started));
}

struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        signal(&self.0, rustix::process::Signal::QUIT);
        let _ = self.0.wait();
    }
}

/// A server in the foreground, with a port for `@PORT@` in its configuration.
fn server(program: &str, folder: &Path, http: &str) -> (Serving, u16) {
    let port = testkit::free_port();
    let conf = format!(
        "daemon off; worker_processes 1; pid nginx.pid; error_log error.log; events {{}}\nhttp {{ access_log access.log; {} }}",
        http.replace("@PORT@", &port.to_string())
    );
    fs::create_dir_all(folder.join("logs")).unwrap();
    fs::write(folder.join("server.conf"), conf).unwrap();
    let child = Command::new(program)
        .args(["-e", "error.log", "-p"])
        .arg(folder)
        .arg("-c")
        .arg(folder.join("server.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let child = Serving(child);
    until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    (child, port)
}

fn servers(name: &str) -> Vec<(&'static str, PathBuf)> {
    let mut out = Vec::new();
    for program in [env!("CARGO_BIN_EXE_tidegate"), "/usr/sbin/nginx"] {
        if !Path::new(program).exists() {
            testkit::missing_peer(&format!("no {program} here"));
            continue;
        }
        let of = Path::new(program).file_name().unwrap().to_string_lossy().into_owned();
        let folder = std::env::temp_dir().join(format!("measuring-{name}-{}-{of}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        // Workers of servers started by root run as another user.
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        out.push((program, folder));
    }
    out
}

/// Runs `tidegate bench`; its output, its first point's first round, and the whole report.
fn bench(folder: &Path, arguments: &[&str]) -> (std::process::Output, serde_json::Value, serde_json::Value) {
    let json = folder.join("report.json");
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("bench")
        .args(arguments)
        .args(["--json"])
        .arg(&json)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = fs::read_to_string(&json).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    (output, report["points"][0]["rounds"][0].clone(), report)
}

/// httperf's working set, over a tree of files as its manual wants it.
#[test]
fn a_working_set_is_asked_for_file_by_file() {
    for (program, folder) in servers("wset") {
        for number in 0..120 {
            let (hundreds, tens, ones) = (number / 100, number / 10 % 10, number % 10);
            let at = folder.join(format!("html/set/{hundreds}/{tens}"));
            fs::create_dir_all(&at).unwrap();
            fs::write(at.join(format!("{ones}.html")), number.to_string()).unwrap();
        }
        let (child, port) = server(program, &folder, "server { listen 127.0.0.1:@PORT@; root html; }");
        let port = port.to_string();
        let words = ["httperf", "--server", "127.0.0.1", "--port", &port, "--uri", "/set", "--wset", "120,0.5"];
        let (output, round, _) = bench(&folder, &[&words[..], &["--num-conns", "100", "--num-calls", "3"]].concat());
        drop(child);
        assert!(output.status.success(), "{program}: {output:?}");
        assert_eq!((round["due"].as_u64(), round["good"].as_u64()), (Some(300), Some(300)), "{program}: {round}");
        let access = fs::read_to_string(folder.join("access.log")).unwrap();
        let asked: Vec<&str> =
            access.lines().filter_map(|line| line.split("\"GET /set").nth(1)?.split(' ').next()).collect();
        // Three hundred requests, each file twice in a row, from the first one again after the last.
        let wanted = (0..300).map(|i| i / 2 % 120).map(|n| format!("/{}/{}/{}.html", n / 100, n / 10 % 10, n % 10));
        assert_eq!(asked, wanted.collect::<Vec<_>>(), "{program}");
        let _ = fs::remove_dir_all(&folder);
    }
}

#[test]
fn a_replay_says_what_it_leaves_out() {
    for (program, folder) in servers("replay") {
        fs::create_dir_all(folder.join("html")).unwrap();
        fs::write(folder.join("html/a"), "a").unwrap();
        let line = |request: &str, status| {
            format!("127.0.0.1 - - [21/Nov/2026:20:48:43 +0000] \"{request}\" {status} 1 \"-\" \"curl\"\n")
        };
        let log = [
            line("GET /a HTTP/1.1", 200),
            line("POST /form HTTP/1.1", 200),
            line("POST /form HTTP/1.1", 200),
            line("PUT /a HTTP/1.1", 201),
            line("HEAD /a HTTP/1.1", 200),
            line("GET /missing HTTP/1.1", 404),
            line("\\x16\\x03\\x01", 400),
            "cut off\n".to_string(),
        ];
        let file = folder.join("old.log");
        fs::write(&file, log.concat()).unwrap();
        let (child, port) = server(program, &folder, "server { listen 127.0.0.1:@PORT@; root html; }");
        let url = format!("http://127.0.0.1:{port}/");
        let (output, round, report) = bench(&folder, &[&url, "--replay", &file.display().to_string(), "--speed", "10"]);
        drop(child);
        assert!(output.status.success(), "{program}: {output:?}");
        assert_eq!((round["due"].as_u64(), round["good"].as_u64()), (Some(3), Some(3)), "{program}: {round}");
        // Once in the summary, and in the report.
        let note = "5 of 8 lines of the log were left out: 2 POST, 1 PUT, 2 in another format (only GET and HEAD are repeated)";
        assert!(!String::from_utf8_lossy(&output.stderr).contains(note), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).matches(note).count(), 1, "{output:?}");
        assert!(report["notes"].as_array().unwrap().iter().any(|said| said == note), "{}", report["notes"]);
        let _ = fs::remove_dir_all(&folder);
    }
}

/// Where nginx is installed it is asked, too.
#[test]
fn load_over_http2_is_counted_alike_by_client_and_server() {
    for (name, folder) in servers("h2") {
        let http = "keepalive_requests 60; http2_max_concurrent_streams 4;
            server { listen 127.0.0.1:@PORT@ http2; location / { return 200 hello; } }";
        let (child, port) = server(name, &folder, http);
        let url = format!("http://127.0.0.1:{port}/");
        let words = [&url, "--http2", "-c", "3", "-m", "8", "-n", "1000", "--no-live"];
        let (output, round, _) = bench(&folder, &words);
        drop(child);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert_eq!((round["due"].as_u64(), round["in_time"].as_u64()), (Some(1000), Some(1000)), "{name}: {text}");
        // Connections were given up after 60 requests, and no request was lost or answered twice.
        assert!(round["connections"].as_u64().unwrap() >= 1000 / 60 - 3, "{name}: {text}");
        let access = fs::read_to_string(folder.join("access.log")).unwrap();
        assert_eq!(access.lines().filter(|line| line.contains("\"GET / HTTP/2.0\" 200")).count(), 1000, "{name}");
        let _ = fs::remove_dir_all(&folder);
    }
}

#[test]
fn a_dry_run_starts_and_writes_nothing() {
    let lab = lab("dry");
    let output = lab.start(&["--dry-run"]).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !lab.out().exists(), "{text}");
    for part in ["backend   behind", "server    direct", "asked directly", "6 turns", "nothing was started"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_backend_is_measured_as_a_server_of_its_own() {
    let lab = lab("direct");
    let mut child = lab.start(&["--duration", "50ms", "--rounds", "3"]);
    assert!(child.wait().unwrap().success());
    let json = fs::read_to_string(lab.out().join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let names: Vec<&str> = report["servers"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["front", "other", "direct"]);
    let compared = report["workloads"][0]["comparisons"].as_array().unwrap();
    let pair = |a: &str, b: &str| compared.iter().any(|c| c["server"] == a && c["base"] == b);
    assert!(pair("other", "front") && pair("direct", "front") && pair("direct", "other"), "every pair");
    let lines = report["workloads"][0]["lines"].as_array().unwrap();
    let behind = |i: usize| lines[i]["points"][0]["rounds"][0]["backend_processors"].as_f64().is_some();
    assert!(behind(0) && !behind(2), "what is asked directly has nothing behind it");
}

#[test]
fn a_workload_over_http2_has_its_streams() {
    let folder = std::env::temp_dir().join(format!("measuring-{}-streams", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    // HTTP/1.1 in the log comes only from the probe.
    let text = "title = \"t\"\nduration = \"100ms\"\nwarmup = \"10ms\"\nrounds = 1\n[[server]]\nname = \"one\"\n\
         command = \"tidegate -e @DIR@/one.err -p @DIR@ -c @DIR@/one.conf\"\nfiles.\"one.conf\" = '''\n\
         daemon off; pid @DIR@/one.pid; events {} error_log @DIR@/one.err;\n\
         http { log_format c \"$server_protocol\"; access_log @DIR@/one.access c; server { listen 127.0.0.1:@PORT@; http2 on;\n\
         location / { return 200 x; } } }'''\n[[workload]]\nname = \"w\"\nload = \"connections\"\nstreams = 4\nvalues = [2]\n\
         path = \"/\"\n";
    let lab = Lab { file: folder.join("lab.toml"), folder };
    fs::write(&lab.file, text).unwrap();
    assert!(lab.start(&[]).wait().unwrap().success());
    let report = fs::read_to_string(lab.out().join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let round = &report["workloads"][0]["lines"][0]["points"][0]["rounds"][0];
    let good = round["good"].as_u64().unwrap();
    assert!(good > 8 && round["failures"].as_object().unwrap().is_empty(), "{round}");
    let access = fs::read_to_string(lab.out().join("work/one.access")).unwrap();
    assert!(access.lines().filter(|line| *line == "HTTP/2.0").count() as u64 >= good);
}

/// `-` is the standard output, on which the result then stands alone.
#[test]
fn results_go_to_the_standard_output() {
    for (program, folder) in servers("stdout") {
        let (child, port) = server(program, &folder, "server { listen 127.0.0.1:@PORT@; return 200 x; }");
        let url = format!("http://127.0.0.1:{port}/");
        let run = |form: &str| {
            let arguments = ["bench", &url, "-n", "20", "-c", "1", form, "-"];
            let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).current_dir(&folder).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{output:?}");
            assert!(!folder.join("-").exists(), "no file has that name");
            String::from_utf8(output.stdout).unwrap()
        };
        let report: serde_json::Value = serde_json::from_str(&run("--json")).unwrap();
        assert!(report["points"].is_array(), "{report}");
        assert!(run("--html").starts_with("<!DOCTYPE html>") || run("--html").starts_with("<!doctype html>"));
        assert!(run("--csv").lines().count() >= 2);
        drop(child);
        let _ = fs::remove_dir_all(&folder);
    }
}
