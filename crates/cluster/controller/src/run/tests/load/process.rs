//! The server as a process of its own.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use cluster_model::Model;
use serde_json::Value;

/// Steps of a change at which debug builds stop (`TIDEGATE_CONFIG_STOP`).
pub const STEPS: &[&str] = &["checked", "kept", "written", "placed", "sent", "in-force"];

/// Returns the server's program, which CI builds before the tests.
pub fn server_program() -> Option<PathBuf> {
    let own = std::env::current_exe().expect("a path");
    let beside = own.parent()?.parent()?.join("tidegate");
    beside.exists().then_some(beside)
}

/// A server with the configuration of `bootstrap`. It ends with the value, and its folder is removed.
pub struct ServerProcess {
    program: PathBuf,
    folder: PathBuf,
    child: Child,
    is_running: bool,
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.is_running {
            self.kill();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl ServerProcess {
    pub fn start(program: PathBuf) -> ServerProcess {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("tidegate-load-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let settings = cluster_render::Settings {
            run_folder: folder.display().to_string(),
            ..cluster_render::Settings::default()
        };
        fs::write(folder.join("nginx.conf"), cluster_render::render_model(&Model::default(), &settings).main).unwrap();
        let child = spawn(&program, &folder, None);
        ServerProcess { program, folder, child, is_running: true }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("api.sock")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("error.log")).unwrap_or_default()
    }

    /// Kills all processes of the server at once.
    pub fn kill(&mut self) {
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", self.child.id())]).status();
        let _ = self.child.wait();
        self.is_running = false;
    }

    /// Starts the server again, after [`ServerProcess::kill`].
    pub fn restart(&mut self, stop_at: Option<&str>) {
        self.child = spawn(&self.program, &self.folder, stop_at);
        self.is_running = true;
    }

    /// Tells whether the master process has stopped at its step.
    pub fn is_stopped(&self) -> bool {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        text.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    }

    /// Returns the master process and its children.
    pub fn processes(&self) -> Vec<u32> {
        let master = self.child.id();
        let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap_or_default();
        std::iter::once(master).chain(children.split_whitespace().filter_map(|pid| pid.parse().ok())).collect()
    }

    /// Returns the response of the API, if there is one.
    pub fn get(&self, path: &str) -> Option<Value> {
        let mut stream = UnixStream::connect(self.socket()).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
    }
}

/// Starts the server in a group of processes of its own.
fn spawn(program: &Path, folder: &Path, stop_at: Option<&str>) -> Child {
    let mut command = Command::new(program);
    command.args(["-g", "daemon off;", "-p"]).arg(folder).arg("-c").arg(folder.join("nginx.conf"));
    command.arg("-e").arg(folder.join("error.log"));
    if let Some(step) = stop_at {
        command.env("TIDEGATE_CONFIG_STOP", step);
    }
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("error.log")).unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0).spawn().unwrap()
}
