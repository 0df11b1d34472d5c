//! `examples/database`: reads are spread over replicas of a real PostgreSQL, which are killed one after the other.
//! Skipped with a notice without PostgreSQL.

use crate::support;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use support::{BINARY, Site, free_port, signal, text, wait, wait_within};

/// A cluster is made and copied twice: that takes a while on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
const WHO: &str = "select current_setting('cluster_name')";

fn psql(port: u16) -> Command {
    let mut command = Command::new("psql");
    let port = port.to_string();
    command.args(["-h", "127.0.0.1", "-p", &port, "-U", "tidegate", "-d", "postgres", "-qAtX"]);
    command.env("PGCONNECT_TIMEOUT", "20");
    command
}

/// Runs one statement on a new connection.
fn ask(port: u16, sql: &str) -> Result<String, String> {
    let out = psql(port).args(["-c", sql]).output().map_err(|e| e.to_string())?;
    match out.status.success() {
        true => Ok(text(&out.stdout).trim_end().to_string()),
        false => Err(text(&out.stderr)),
    }
}

struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    fn new(port: u16) -> Session {
        let mut child =
            psql(port).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("psql runs");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Session { child, input, output: BufReader::new(output) }
    }
    /// The first line of an answer; empty: the session is over.
    fn ask(&mut self, sql: &str) -> String {
        let _ = writeln!(self.input, "{sql};");
        let mut line = String::new();
        let _ = self.output.read_line(&mut line);
        line.trim_end().to_string()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        signal(self.0.id(), "TERM");
        let _ = self.0.wait();
    }
}

fn kill(site: &Site, name: &str) {
    let pid = site.read(&format!("data/{name}/postmaster.pid"));
    signal(pid.lines().next().and_then(|pid| pid.parse().ok()).expect("a process"), "KILL");
}

#[test]
fn reads_go_on_while_replicas_die() {
    let installed = std::fs::read_dir("/usr/lib/postgresql").is_ok() && psql(1).arg("--version").output().is_ok();
    if !installed {
        testkit::missing_peer("no PostgreSQL here");
        return;
    }
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/database");
    let (site, reads, writes) = (Site::new("", ""), free_port(), free_port());
    for name in ["run", "nginx.conf"] {
        let script = std::fs::read_to_string(source.join(name)).expect(name);
        let own = cases::replace_address(&script, "127.0.0.1:8432", &format!("127.0.0.1:{reads}"));
        site.write(name, &cases::replace_address(&own, "127.0.0.1:8433", &format!("127.0.0.1:{writes}")));
    }
    let log = std::fs::File::create(site.path("logs/run.log")).expect("a log");
    let child = Command::new("sh")
        .arg(site.path("run"))
        .env("TIDEGATE", BINARY)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .spawn()
        .expect("started");
    let mut running = Running(child);
    wait_within(PATIENCE, "the command to work", || {
        let log = site.read("logs/run.log");
        let ended = running.0.try_wait().expect("wait");
        assert!(ended.is_none(), "{ended:?}: {log}");
        if log.contains("psql -h 127.0.0.1") { Ok(()) } else { Err(log) }
    });
    wait("an answer", || ask(reads, WHO));

    // Writes reach both replicas eventually.
    assert_eq!(ask(writes, WHO).as_deref(), Ok("primary"));
    ask(writes, "create table notes as select n from generate_series(1, 1000) n").expect("written");
    let mut sessions = [Session::new(reads), Session::new(reads)];
    let mut names: Vec<String> = sessions.iter_mut().map(|session| session.ask(WHO)).collect();
    for session in &mut sessions {
        wait("what was written", || match session.ask("select count(*) from pg_class where relname = 'notes'") {
            one if one == "1" => Ok(()),
            other => Err(other),
        });
        assert_eq!(session.ask("select sum(n) from notes"), "500500");
    }
    let [mut doomed, mut kept] = sessions;
    if names.first().is_some_and(|name| name == "replica2") {
        std::mem::swap(&mut doomed, &mut kept);
    }
    names.sort();
    assert_eq!(names, ["replica1", "replica2"], "each where the fewest are");
    assert!(ask(reads, "create table nobody(n int)").is_err_and(|why| why.contains("read-only")));

    kill(&site, "replica1");
    // Its processes go when they notice.
    let ended = |session: &mut Session| match session.ask(WHO) {
        none if none.is_empty() => Ok(()),
        other => Err(other),
    };
    wait("the end of its session", || ended(&mut doomed));
    for _ in 0..20 {
        assert_eq!(ask(reads, WHO).as_deref(), Ok("replica2"), "{}", site.read("logs/run.log"));
    }
    assert_eq!(kept.ask("select sum(n) from notes"), "500500", "a session of the other one goes on");
    kill(&site, "replica2");
    wait("the end of the other's", || ended(&mut kept));
    for _ in 0..5 {
        assert_eq!(ask(reads, WHO).as_deref(), Ok("primary"), "{}", site.read("logs/run.log"));
    }
}
