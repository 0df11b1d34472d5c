//! The measuring tools as one program with the server: experiments that are stopped leave nothing behind.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Waits for something that the other side does; the limit only ends a test that has failed.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Lab {
    folder: PathBuf,
    file: PathBuf,
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

/// Whether nothing of it runs, and its ports are free.
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
fn a_lab_that_is_killed_leaves_no_server() {
    let lab = lab("kill");
    let mut child = lab.start(&[]);
    let started = lab.running();
    signal(&child, rustix::process::Signal::KILL);
    child.wait().unwrap();
    until("the servers end with it", || gone(&started));
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
