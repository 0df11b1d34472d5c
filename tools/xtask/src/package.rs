//! `cargo xtask package`: builds the Debian package, installs it below a temporary directory, starts, queries, reloads
//! and removes it.
//!
//! dpkg runs the package's scripts in that folder (`chroot`), which needs root; the few programs that they call are copied there. Nothing
//! of the machine's own is changed. `--in-ci` takes the debug build.

use crate::deb;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const HELP: &str = "\
Usage: cargo xtask package [--in-ci]

Builds the Debian package, installs it below a temporary directory, starts the server, queries and reloads
it, and removes the package. Needs root and dpkg; without them it prints a notice and succeeds.

  --in-ci   package the debug build instead of the release build

  cargo xtask package
";

/// Programs of the scripts, and those that dpkg looks for.
const PROGRAMS: &[&str] = &["sh", "mkdir", "cp", "ln", "readlink", "rm", "ldconfig", "start-stop-daemon", "rmdir"];
/// Above the duration of any step.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run_package(arguments: &[String]) -> Result<(), String> {
    let release = match arguments {
        [] => true,
        [one] if one == "--in-ci" => false,
        _ => return Err("unknown arguments; see cargo xtask package --help".into()),
    };
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n");
    if !is_root || Command::new("dpkg").arg("--version").output().is_err() {
        eprintln!("xtask package: needs root and dpkg: nothing is installed");
        return Ok(());
    }
    let package = deb::build_deb(release)?;
    let root = std::env::temp_dir().join(format!("tidegate-package-{}", std::process::id()));
    let result = check(&package, &root);
    let log = fs::read_to_string(root.join("var/log/tidegate/error.log")).unwrap_or_default();
    let _ = fs::remove_dir_all(&root);
    result.map_err(|why| format!("{why}\n{log}"))
}

fn check(package: &Path, root: &Path) -> Result<(), String> {
    prepare(root)?;
    dpkg(root, &["--install", &package.display().to_string()])?;
    let here = |path: &str| root.join(path);
    for path in [
        "etc/tidegate/nginx.conf",
        "etc/tidegate/mime.types",
        "usr/sbin/tidegate",
        "usr/sbin/nginx",
        "var/log/tidegate",
        "var/lib/tidegate",
        "var/www/html/index.tidegate.html",
        "etc/logrotate.d/httpd-prerotate/tidegate",
    ] {
        if fs::symlink_metadata(here(path)).is_err() {
            return Err(format!("/{path} is not there after the installation"));
        }
    }
    let port = testkit::free_port();
    // The configuration of the package, on another port and below the folder. The server runs outside of it: it needs /proc.
    let conf = fs::read_to_string(here("etc/tidegate/nginx.conf")).map_err(|e| e.to_string())?;
    let below = root.display();
    let changed = conf
        .replace("listen 80;", &format!("listen 127.0.0.1:{port};"))
        .replace("/var/log/", &format!("{below}/var/log/"))
        .replace("/var/www/", &format!("{below}/var/www/"));
    if !changed.contains(&format!("listen 127.0.0.1:{port};")) {
        return Err("the package's configuration has no \"listen 80;\"".into());
    }
    fs::write(here("etc/tidegate/nginx.conf"), changed).map_err(|e| e.to_string())?;
    fs::write(here("var/www/html/index.html"), "installed\n").map_err(|e| e.to_string())?;
    let globals = format!("daemon off; pid {below}/run/tidegate.pid;");
    let installed = |name: &str, more: &[&str]| {
        let mut command = Command::new(here("usr/sbin").join(name));
        command.arg("-p").arg(root).arg("-c").arg(here("etc/tidegate/nginx.conf")).args(["-g", &globals]).args(more);
        command
    };
    succeed(&mut installed("tidegate", &["-t"]))?;
    let started = installed("tidegate", &[]).stdin(Stdio::null()).spawn();
    let mut server = RunningProgram(started.map_err(|e| format!("the installed binary: {e}"))?);
    answers(port, &mut server, "/", "installed\n")?;
    let listen = format!("listen 127.0.0.1:{port};");
    let reloaded = format!("{listen} location = /reloaded {{ return 200 \"reloaded\\n\"; }}");
    let conf = fs::read_to_string(here("etc/tidegate/nginx.conf")).map_err(|e| e.to_string())?;
    fs::write(here("etc/tidegate/nginx.conf"), conf.replace(&listen, &reloaded)).map_err(|e| e.to_string())?;
    succeed(&mut installed("nginx", &["-s", "reload"]))?;
    answers(port, &mut server, "/reloaded", "reloaded\n")?;
    succeed(&mut installed("tidegate", &["-s", "quit"]))?;
    let end = Instant::now() + PATIENCE;
    loop {
        match server.0.try_wait().map_err(|e| e.to_string())? {
            Some(status) if status.success() => break,
            Some(status) => return Err(format!("the server ended with {status}")),
            None if Instant::now() > end => return Err("the server does not end".into()),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    dpkg(root, &["--remove", "tidegate"])?;
    for path in ["usr/sbin/tidegate", "usr/sbin/nginx"] {
        if fs::symlink_metadata(here(path)).is_ok() {
            return Err(format!("/{path} is still there after the removal"));
        }
    }
    if !here("etc/tidegate/nginx.conf").exists() {
        return Err("the removal has taken the configuration".into());
    }
    dpkg(root, &["--purge", "tidegate"])?;
    if ["etc/tidegate", "var/log/tidegate", "var/lib/tidegate"].iter().any(|path| here(path).exists()) {
        return Err("the purge has left files".into());
    }
    println!("xtask package: installed, started, asked, reloaded, removed");
    Ok(())
}

/// Killed on drop.
struct RunningProgram(Child);

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks until the server answers with this body: it may not have started, or may still have its old configuration.
fn answers(port: u16, server: &mut RunningProgram, path: &str, body: &str) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let asked = TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes())?;
            let mut text = String::new();
            stream.read_to_string(&mut text).map(|_| text)
        });
        match asked {
            Ok(text) if text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with(body) => return Ok(()),
            _ if server.0.try_wait().is_ok_and(|ended| ended.is_some()) => return Err("the server has ended".into()),
            Ok(text) if Instant::now() > end => return Err(format!("the server answers {path} with {text:?}")),
            Err(e) if Instant::now() > end => return Err(format!("the server does not answer: {e}")),
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// A folder in which dpkg and the package's scripts can run.
fn prepare(root: &Path) -> Result<(), String> {
    let say = |e: std::io::Error| format!("{}: {e}", root.display());
    for folder in [
        "var/lib/dpkg/info",
        "var/lib/dpkg/updates",
        "var/lib/dpkg/triggers",
        "var/www/html",
        "run",
        "tmp",
        "dev",
        "etc",
        "var/log",
    ] {
        fs::create_dir_all(root.join(folder)).map_err(say)?;
    }
    fs::write(root.join("var/lib/dpkg/status"), "").map_err(say)?;
    fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\nwww-data:x:33:33::/var/www:/bin/sh\n").map_err(say)?;
    fs::write(root.join("etc/group"), "root:x:0:\nwww-data:x:33:\n").map_err(say)?;
    fs::write(root.join("dev/null"), "").map_err(say)?;
    for program in PROGRAMS {
        let found = ["/bin", "/usr/bin", "/sbin", "/usr/sbin"]
            .iter()
            .map(|at| Path::new(at).join(program))
            .find(|at| at.exists());
        let found = found.ok_or(format!("{program} is not installed"))?;
        copy(&found, root)?;
        libraries(&found)?.iter().try_for_each(|library| copy(library, root))?;
    }
    Ok(())
}

fn copy(from: &Path, root: &Path) -> Result<(), String> {
    let to = root.join(from.strip_prefix("/").unwrap_or(from));
    let say = |e: std::io::Error| format!("{}: {e}", to.display());
    fs::create_dir_all(to.parent().unwrap_or(root)).map_err(say)?;
    fs::copy(from, &to).map(|_| ()).map_err(say)
}

/// The libraries of a program, and their loader.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, String> {
    let out = Command::new("ldd").arg(program).output().map_err(|e| format!("ldd: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    Ok(text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

fn dpkg(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new("dpkg");
    command.arg(format!("--root={}", root.display())).args(["--force-depends", "--no-triggers"]).args(arguments);
    succeed(&mut command)
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    let out = command.stdin(Stdio::null()).output().map_err(|e| format!("{shown}: {e}"))?;
    if out.status.success() {
        return Ok(());
    }
    Err(format!(
        "{shown}: {}\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    ))
}
