//! Real Podman: containers from an image without a distribution, with the host's network on loopback addresses.
//!
//! Podman needs root and a kernel that permits namespaces. Its storage is in a folder of the test.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::fake_http::{TempFolder, socket_path};
use super::{DiscoveryWorld, program};
use testkit::free_port;

/// Program of the containers: answers with its port.
const PROGRAM: &str = r#"
use std::io::{Read, Write};
fn main() {
    let port = std::env::var("PORT").unwrap();
    let listener = std::net::TcpListener::bind(format!("127.0.0.1:{port}")).unwrap();
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let _ = stream.read(&mut [0; 4096]);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", port.len());
        let _ = stream.write_all(format!("{head}{port}").as_bytes());
    }
}
"#;

/// An engine of one test.
struct Podman {
    folder: PathBuf,
    service: Child,
    _guard: TempFolder,
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = self.call(&["rm", "--all", "--force", "--time", "0"]);
        let _ = self.service.kill();
        let _ = self.service.wait();
    }
}

/// Returns a command in a mount namespace of its own: `crun` refuses a hierarchy of both versions of cgroups.
fn podman(folder: &Path) -> Command {
    let mut command = Command::new("unshare");
    let script = "umount /sys/fs/cgroup/unified 2>/dev/null; exec podman \"$@\"";
    command.args(["--mount", "sh", "-c", script, "podman"]);
    command.arg("--root").arg(folder.join("root")).arg("--runroot").arg(folder.join("run"));
    command.args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file"]);
    command.stdin(Stdio::null());
    command
}

impl Podman {
    /// Starts the engine's API; `None`, with a record, if Podman is missing or cannot run containers here.
    fn start() -> Option<Podman> {
        if Command::new("podman").arg("--version").output().is_err() {
            testkit::missing_peer("podman");
            return None;
        }
        let (socket, guard) = socket_path();
        let folder = socket.parent().unwrap().to_owned();
        let program = folder.join("answer");
        fs::write(folder.join("answer.rs"), PROGRAM).unwrap();
        let mut compiler = Command::new("rustc");
        compiler.args(["-C", "target-feature=+crt-static", "-o"]).arg(&program).arg(folder.join("answer.rs"));
        assert!(compiler.status().unwrap().success(), "the program of the containers");
        let packed =
            Command::new("tar").arg("-C").arg(&folder).arg("-cf").arg(folder.join("image.tar")).arg("answer").status();
        assert!(packed.unwrap().success());
        let mut service = podman(&folder);
        service.args(["system", "service", "--time", "0", &format!("unix://{}", socket.display())]);
        let service = service.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().ok();
        let Some(service) = service else {
            testkit::missing_means("unshare is missing: no container runs here");
            return None;
        };
        let podman = Podman { folder, service, _guard: guard };
        let imported = podman.call(&[
            "import",
            "--change",
            "ENTRYPOINT [\"/answer\"]",
            &podman.file("image.tar"),
            "localhost/answer",
        ]);
        let probe = free_port();
        let ran = imported.status.success().then(|| podman.run("probe", probe, &[]));
        match ran {
            Some(Ok(())) => {
                podman.call(&["rm", "--force", "--time", "0", "probe"]);
                Some(podman)
            }
            Some(Err(reason)) => {
                testkit::missing_means(&format!("podman runs no container here: {reason}"));
                None
            }
            None => {
                let reason = String::from_utf8_lossy(&imported.stderr).into_owned();
                testkit::missing_means(&format!("podman has no storage here: {}", reason.trim()));
                None
            }
        }
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn address(&self) -> String {
        format!("unix:{}", self.file("source.sock"))
    }

    fn call(&self, words: &[&str]) -> Output {
        podman(&self.folder).args(words).output().unwrap()
    }

    /// Runs a container that listens on a loopback port.
    fn run(&self, name: &str, port: u16, labels: &[&str]) -> Result<(), String> {
        let port = format!("PORT={port}");
        let mut words = vec!["run", "--detach", "--name", name, "--network", "host", "--cgroups=disabled"];
        words.extend([
            "--ulimit",
            "nofile=1024:1024",
            "--ulimit",
            "nproc=1024:1024",
            "--stop-timeout",
            "1",
            "--env",
            &port,
        ]);
        words.extend(labels.iter().flat_map(|label| ["--label", label]));
        words.push("localhost/answer");
        let output = self.call(&words);
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_of_real_podman_are_served() {
    let Some(program) = program() else { return };
    let Some(podman) = Podman::start() else { return };
    let end = Instant::now() + Duration::from_secs(60);
    while !Path::new(&podman.file("source.sock")).exists() {
        assert!(Instant::now() < end, "the engine has no socket");
        std::thread::yield_now();
    }
    let (first, second) = (free_port(), free_port());
    let label = |port: u16| format!("tidegate.port={port}");
    podman.run("one", first, &["tidegate.host=a.test", &label(first)]).unwrap();
    let world = DiscoveryWorld::start(program, &["--provider", "podman", "--engine", &podman.address()]);
    world.answers("a.test", 200).await;
    assert_eq!(world.get("a.test").unwrap().1, first.to_string());
    podman.run("two", second, &["tidegate.host=a.test", &label(second)]).unwrap();
    world.group_has("podman_a.test", &[first, second].into()).await;
    assert!(podman.call(&["stop", "--time", "0", "one"]).status.success());
    world.group_has("podman_a.test", &[second].into()).await;
    assert_eq!(world.get("a.test").unwrap(), (200, second.to_string()));
    assert!(podman.call(&["start", "one"]).status.success());
    world.group_has("podman_a.test", &[first, second].into()).await;
    podman.call(&["rm", "--force", "--time", "0", "one"]);
    podman.call(&["rm", "--force", "--time", "0", "two"]);
    world.answers("a.test", 404).await;
}
