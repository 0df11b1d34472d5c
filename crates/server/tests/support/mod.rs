//! Shared by tests of whole processes: a directory with a configuration, the program started in it, and waiting for its
//! messages.

#![allow(dead_code, reason = "every test file uses another part")]

pub mod api;
pub mod client;
pub mod config_api;
pub mod crafted;
pub mod dns;
pub mod http2;
pub mod http3;
pub mod initial;
pub mod mail;
pub mod openmetrics;
pub mod origin;
pub mod otlp;
pub mod pebble;
pub mod provider;
pub mod simulated;
pub mod zone;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");
pub use testkit::free_port;

/// Above the duration of any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_millis(5);

/// Laid out for `-p`; removed if the test passes.
pub struct Site {
    pub dir: PathBuf,
}

impl Site {
    /// `main` stands before `events { }`, `rest` behind it.
    pub fn new(main: &str, rest: &str) -> Site {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("tidegate-test-{}-{n}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        for folder in ["conf", "logs", "html"] {
            std::fs::create_dir_all(dir.join(folder)).expect("a directory");
        }
        let site = Site { dir };
        site.configure(main, rest);
        site
    }
    pub fn configure(&self, main: &str, rest: &str) {
        let text = format!("error_log logs/error.log info;\n{main}\nevents {{ }}\n{rest}\n");
        self.write("conf/nginx.conf", &text);
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("a file");
    }
    /// Writes a self-signed certificate for localhost, conf/a.crt, and its key, conf/a.key. Returns the certificate (PEM).
    pub fn certify(&self) -> String {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).expect("a certificate");
        self.write("conf/a.crt", &made.cert.pem());
        self.write("conf/a.key", &made.signing_key.serialize_pem());
        made.cert.pem()
    }
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }
    pub fn log(&self) -> String {
        self.read("logs/error.log")
    }
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.arg("-p").arg(&self.dir).args(arguments).stdin(Stdio::null());
        command
    }
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program runs")
    }
    /// Waits for the pid file.
    pub fn start(&self) -> Running<'_> {
        self.start_with(&[])
    }
    /// [`Site::start`] with further arguments.
    pub fn start_with(&self, arguments: &[&str]) -> Running<'_> {
        let child =
            self.command(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut running = Running { site: self, child };
        let pid = wait("the pid file", || {
            if let Some(status) = running.child.try_wait().expect("wait") {
                let mut words = String::new();
                let _ = running.child.stderr.take().expect("piped").read_to_string(&mut words);
                panic!("ended at once ({status}): {words}");
            }
            self.pid().ok_or("none")
        });
        assert_eq!(pid, running.child.id(), "the pid file holds the process that was started");
        running
    }
    pub fn pid(&self) -> Option<u32> {
        self.read("logs/nginx.pid").strip_suffix('\n')?.parse().ok()
    }
    /// Waits until the log contains the words this many times.
    pub fn wait_for_log(&self, words: &str, times: usize) {
        wait(&format!("{times} x \"{words}\" in the log"), || {
            (self.log().matches(words).count() >= times).then_some(()).ok_or_else(|| self.log())
        });
    }
    pub fn assert_no_alerts(&self) {
        let log = self.log();
        assert!(!log.contains("[alert]"), "{log}");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// Runs in the foreground; killed on drop.
pub struct Running<'a> {
    pub site: &'a Site,
    pub child: Child,
}

impl Running<'_> {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }
    /// Waits for the worker process.
    pub fn worker(&self) -> u32 {
        wait("a worker process", || children(self.pid()).first().copied().ok_or("none"))
    }
    pub fn ended(mut self) -> ExitStatus {
        wait("the end", || self.child.try_wait().expect("wait").ok_or("it runs"))
    }
    /// Sends QUIT; expects an ordinary end.
    pub fn quit(self) {
        self.signal("QUIT");
        let site = self.site;
        assert!(self.ended().success(), "{}", site.log());
        assert!(site.pid().is_none(), "the pid file is gone");
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let workers = children(self.pid());
        let _ = self.child.kill();
        let _ = self.child.wait();
        for worker in workers.into_iter().filter(|worker| alive(*worker)) {
            signal(worker, "KILL");
        }
    }
}

/// Polls until there is a value.
pub fn wait<T, E: std::fmt::Display>(what: &str, look: impl FnMut() -> Result<T, E>) -> T {
    wait_within(PATIENCE, what, look)
}

/// The pause between two actions of a peer that is slow on purpose. Never to wait for the other side: see [`wait`].
pub fn pace(pause: Duration) {
    std::thread::sleep(pause);
}

/// Polls until a value is the same for as long as a number of looks take, and returns it.
///
/// For what announces no end: a flow that stands, a server that rests. A look that comes too early sees less, so it must
/// not make a test fail.
pub fn wait_for_rest<T: PartialEq + std::fmt::Debug>(what: &str, looks: usize, mut look: impl FnMut() -> T) -> T {
    let (mut last, mut same) = (look(), 0);
    wait(what, || {
        let now = look();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        if same < looks { Err(format!("{last:?}")) } else { Ok(()) }
    });
    last
}

/// Returns the least value of a number of looks: what a server holds at rest between its periodic works.
pub fn least_of<T: Ord>(looks: usize, mut look: impl FnMut() -> T) -> T {
    let mut least = look();
    for _ in 0..looks {
        std::thread::sleep(GLANCE);
        least = least.min(look());
    }
    least
}

/// Polls until there is a value, no longer than a duration.
pub fn wait_within<T, E: std::fmt::Display>(
    patience: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T, E>,
) -> T {
    let until = Instant::now() + patience;
    loop {
        match look() {
            Ok(value) => return value,
            Err(seen) => assert!(Instant::now() < until, "waited in vain for {what}; last seen:\n{seen}"),
        }
        std::thread::sleep(GLANCE);
    }
}

/// Stops a process and waits until none of its threads runs: the signal alone does not wait, and a thread that stops
/// late may have taken events from epoll already.
pub fn stop(pid: u32) {
    signal(pid, "STOP");
    wait("all threads to stop", || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(|e| e.to_string())?;
        for thread in threads.flatten() {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            if !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')) {
                return Err(stat);
            }
        }
        Ok(())
    });
}

pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().expect("kill runs");
    assert!(status.success(), "kill -{name} {pid}");
}

pub fn alive(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && state.rsplit(") ").next().is_some_and(|rest| !rest.starts_with('Z'))
}

pub fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).filter(|child| alive(*child)).collect()
}

pub fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count())
}

/// Memory of a process but for pages of files, in kilobytes, 0 when it is gone: the program's own code, of which a development build
/// has tens of megabytes, becomes resident when a feature first runs, and is no request's.
pub fn private_kb(pid: u32) -> u64 {
    status_kb(pid, "RssAnon:") + status_kb(pid, "RssShmem:")
}

/// A line of proc(5)'s status of a process, in kilobytes; 0 when it is gone.
pub fn status_kb(pid: u32, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).unwrap_or(0)
}

pub fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
