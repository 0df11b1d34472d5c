//! `cargo xtask ci`: everything that must hold before a change lands. `.ci/run` calls it.

mod suite;

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Instant;

pub const HELP: &str = "\
Usage: cargo xtask ci

Runs everything that a change must pass, in this order: fmt, tidy, clippy (also of the fuzz targets), the
book, all tests; then, side by side, comparisons with nginx and Apache, the Debian package, h2spec. On
Debian, as root, it installs missing programs that tests use as peers; a peer that is missing then is an
error. With TIDEGATE_PEERS=optional the tests that need it check less. Checks that the machine does not
permit are listed.

Each step is printed with the minutes and seconds since the start.

  cargo xtask ci
";

/// When the run started: read first by the first step.
static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Programs that tests use, with Debian's packages.
const PEERS: &[(&str, &str)] = &[
    ("curl", "curl"),
    ("dig", "bind9-dnsutils"),
    ("node", "nodejs"),
    ("openssl", "openssl"),
    ("nginx", "nginx-extras"),
    ("apache2", "apache2"),
    ("php", "libapache2-mod-php"),
    ("php-fpm", "php-fpm"),
    ("uwsgi", "uwsgi-plugin-python3"),
    ("memcached", "memcached"),
    ("redis-server", "redis-server"),
    ("podman", "podman"),
    ("pebble", "pebble"),
    ("certbot", "python3-certbot-nginx"),
    ("pg_ctlcluster", "postgresql"),
    ("prometheus-nginx-exporter", "prometheus-nginx-exporter"),
    ("promtool", "prometheus"),
    ("chromium", "chromium"),
    // A library; its folder shows that it is installed.
    ("/usr/lib/python3/dist-packages/jwcrypto", "python3-jwcrypto"),
];

pub fn run_ci(_: &[String]) -> Result<(), String> {
    // Read before the file is replaced by a build, which keeps its path.
    let own = std::env::current_exe().map_err(|e| format!("the path of xtask: {e}"))?;
    // The download of peers takes about as long as the checks.
    let peers = std::thread::scope(|scope| {
        let peers = scope.spawn(install_peers);
        check(&own)?;
        peers.join().map_err(|_| "the installation of peers panicked".to_string())
    })?;
    progress(&format!("peers: {} of {}", PEERS.len() - peers.len(), PEERS.len()));
    if !peers.is_empty() && !is_optional() {
        return Err(format!("peers are missing: {} (TIDEGATE_PEERS=optional tests without them)", peers.join(", ")));
    }
    progress("cargo test --workspace, two programs at a time");
    suite::run_suite()?;
    let compared = [crate::compare::CI, crate::compare::STREAM_CI, crate::compare::APACHE_CI];
    let compared = compared.map(|seeds| [&["compare", "--in-ci"], seeds].concat());
    let last = [vec!["package", "--in-ci"], vec!["h2spec", "--in-ci"]];
    let own = &own;
    // They mostly wait.
    let failed: Vec<String> = std::thread::scope(|scope| {
        let begin = |args| scope.spawn(move || quiet_step(own, args));
        let running: Vec<_> = compared.into_iter().chain(last).map(begin).collect();
        running.into_iter().filter_map(|step| step.join().unwrap_or(Err("a step panicked".into())).err()).collect()
    });
    progress("done");
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Runs a command of xtask, and prints its output when it ends.
fn quiet_step(own: &Path, args: Vec<&str>) -> Result<(), String> {
    let shown = args.join(" ");
    progress(&format!("xtask {shown}"));
    let output = command(&own.to_string_lossy(), &args).output().map_err(|e| format!("{shown}: {e}"))?;
    let (mut to, mut errors) = (std::io::stdout().lock(), std::io::stderr().lock());
    let printed = to.write_all(&output.stdout).and_then(|()| errors.write_all(&output.stderr));
    printed.map_err(|e| format!("{shown}: {e}"))?;
    drop((to, errors));
    progress(&format!("xtask {shown}: {}", output.status));
    if output.status.success() { Ok(()) } else { Err(format!("xtask {shown} failed")) }
}

/// Runs the steps that need no peer.
fn check(own: &Path) -> Result<(), String> {
    step("cargo", &["fmt", "--all", "--check"])?;
    own_step(own, &["tidy"])?;
    // The only step that compiles the fuzz targets.
    let clippy = ["clippy", "--workspace", "--all-targets", "--features", "fuzz/targets", "--quiet"];
    step("cargo", &[&clippy[..], &["--", "-D", "warnings"]].concat())?;
    step("cargo", &["build", "--quiet", "--workspace", "--bins"])?;
    // Finds dead links of documents.
    own_step(own, &["book"])
}

/// Runs a command of xtask as it is built. ("cargo xtask" would build it again, with the features of its own crates instead of the workspace's.)
fn own_step(own: &Path, args: &[&str]) -> Result<(), String> {
    step(&own.to_string_lossy(), args)
}

/// Prints that a step begins.
fn progress(step: &str) {
    let seconds = STARTED.elapsed().as_secs();
    eprintln!("==> {:02}:{:02} {step}", seconds / 60, seconds % 60);
}

fn step(program: &str, args: &[&str]) -> Result<(), String> {
    let shown = format!("{program} {}", args.join(" "));
    progress(&shown);
    let status = command(program, args).status().map_err(|e| format!("{shown}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown} failed")) }
}

/// Returns a command under which a system call that the sandbox's lists lack ends the process instead of failing.
fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env("TIDEGATE_SANDBOX", "kill");
    if !is_optional() {
        command.env("TIDEGATE_PEERS", "required");
    }
    command
}

/// Tells whether tests may check less for lack of a peer.
fn is_optional() -> bool {
    std::env::var("TIDEGATE_PEERS").is_ok_and(|word| word == "optional")
}

/// Installs missing programs where possible (Debian, as root). Returns the packages that are missing afterwards.
fn install_peers() -> Vec<&'static str> {
    let missing = || -> Vec<&'static str> {
        PEERS.iter().filter(|(program, _)| !found(program)).map(|(_, package)| *package).collect()
    };
    let wanted = missing();
    if wanted.is_empty() || !found("apt-get") {
        return wanted;
    }
    progress(&format!("apt-get install {}", wanted.join(" ")));
    // Prevents packages from starting services, which would take port 80.
    let policy = "/usr/sbin/policy-rc.d";
    let ours = !std::path::Path::new(policy).exists() && std::fs::write(policy, "#!/bin/sh\nexit 101\n").is_ok();
    if ours {
        let _ = Command::new("chmod").args(["755", policy]).status();
    }
    let _ = Command::new("apt-get").args(["-qq", "update"]).status();
    let _ = Command::new("apt-get")
        .args(["-qq", "-y", "install"])
        .args(&wanted)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(std::process::Stdio::null())
        .status();
    if ours {
        let _ = std::fs::remove_file(policy);
    }
    missing()
}

fn found(program: &str) -> bool {
    if program.starts_with('/') {
        return std::path::Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // (php-fpm has its version in its name.)
    let is = |name: &std::ffi::OsStr| {
        let name = name.to_string_lossy();
        name.strip_prefix(program).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
    };
    let has = |folder: std::path::PathBuf| {
        std::fs::read_dir(folder).is_ok_and(|all| all.flatten().any(|entry| is(&entry.file_name())))
    };
    std::env::split_paths(&path).chain(["/usr/sbin".into()]).any(has)
}
