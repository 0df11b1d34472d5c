//! `cargo xtask h2spec`: runs the public conformance test of HTTP/2 in cleartext, over TLS and through the proxy.
//!
//! `--h2spec FILE` names the program; otherwise Go's tools build it, if installed (once, below `target`).

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const HELP: &str = "\
Usage: cargo xtask h2spec [--in-ci] [--h2spec FILE]

Runs h2spec against the debug build: in cleartext, over TLS and through the proxy. Fails on failures that
are not in the list of known ones. Build the binary first: cargo build -p tidegate.

  --h2spec FILE   the program h2spec (default: one built with Go's tools)
  --in-ci         succeed without a test if h2spec cannot be built; must be the first option

  cargo xtask h2spec
";

const MODULE: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";
const PATIENCE: Duration = Duration::from_secs(20);

/// Expected failures: section, start of the text, reason.
const KNOWN: &[(&str, &str, &str)] = &[
    (
        "http2/8.1.2",
        "",
        "a malformed request is answered with 400, as nginx's own tests want it, not with a reset alone",
    ),
    (
        "http2/4.2",
        "Sends a large size HEADERS frame",
        "its 20 KB are within the frame size that we have announced (128 KB); it goes by the default",
    ),
    ("http2/3.5", "Sends invalid connection preface", "in clear it is a broken request of HTTP/1, and answered as one"),
    (
        "http2/6.9.1",
        "Sends multiple WINDOW_UPDATE frames increasing the flow control window to above 2^31-1 on a stream",
        "the stream was answered and ended before the frames came",
    ),
];

pub fn run_h2spec(arguments: &[String]) -> Result<(), String> {
    let (in_ci, rest) = match arguments.split_first() {
        Some((first, rest)) if first == "--in-ci" => (true, rest),
        _ => (false, arguments),
    };
    let named = match rest {
        [] => None,
        [name, file] if name == "--h2spec" => Some(PathBuf::from(file)),
        _ => return Err("unknown arguments; see cargo xtask h2spec --help".into()),
    };
    let program = match named.map_or_else(build, |file| Ok(Some(file)))? {
        Some(program) => program,
        None if in_ci => {
            eprintln!("there is no Go to build h2spec with: left out");
            return Ok(());
        }
        None => return Err("no h2spec: name one with --h2spec, or install Go".into()),
    };
    let folder = std::env::temp_dir().join(format!("h2spec-{}", std::process::id()));
    let result = within(&program, &folder);
    let _ = fs::remove_dir_all(&folder);
    result
}

fn within(program: &Path, folder: &Path) -> Result<(), String> {
    let say = |e: std::io::Error| e.to_string();
    fs::create_dir_all(folder.join("logs")).map_err(say)?;
    fs::write(folder.join("index.html"), "hello, hello\n").map_err(say)?;
    let (certificate, key) = cases::test_identity()?;
    fs::write(folder.join("s.crt"), certificate).map_err(say)?;
    fs::write(folder.join("s.key"), key).map_err(say)?;
    let [clear, tls, origin] = std::array::from_fn(|_| testkit::free_port());
    let dir = folder.display();
    let conf = format!(
        "daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log info; events {{ }}
         http {{ access_log off; http2 on; ssl_certificate {dir}/s.crt; ssl_certificate_key {dir}/s.key;
             server {{ listen 127.0.0.1:{clear}; listen 127.0.0.1:{tls} ssl; root {dir};
                 location = / {{ index index.html; error_page 405 =200 /index.html; }}
                 location /proxied/ {{ proxy_pass http://127.0.0.1:{origin}/; }} }}
             server {{ listen 127.0.0.1:{origin}; return 200 \"hello, hello\"; }} }}"
    );
    fs::write(folder.join("nginx.conf"), conf).map_err(say)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let mut server = start(&target.join("debug/tidegate"), folder, clear)?;
    let mut wrong = Vec::new();
    let targets: [(&str, &[&str], u16); 3] =
        [("in clear", &[], clear), ("through the proxy", &["-P", "/proxied/"], clear), ("in TLS", &["-t", "-k"], tls)];
    // Most tests wait for the absence of a frame.
    let results = std::thread::scope(|scope| {
        let runs = targets.map(|(name, options, port)| {
            (name, scope.spawn(move || one(program, &folder.join(name.replace(' ', "-")), options, port)))
        });
        runs.map(|(name, run)| (name, run.join().unwrap_or_else(|_| Err("it panicked".into()))))
    });
    for (name, result) in results {
        match result {
            Ok((all, failed)) => {
                let known = failed.iter().filter(|f| f.2).count();
                println!("{name}: {} of {all} hold, {known} are known not to", all - failed.len());
                wrong.extend(failed.into_iter().filter(|f| !f.2).map(|f| format!("{name}: {} {}", f.0, f.1)));
            }
            Err(words) => wrong.push(format!("{name}: {words}")),
        }
    }
    let _ = server.kill();
    let _ = server.wait();
    if wrong.is_empty() { Ok(()) } else { Err(format!("\n{}", wrong.join("\n"))) }
}

/// Section, text, and `true` for a known failure.
type FailedCase = (String, String, bool);

/// Number of cases, and the failed ones.
fn one(program: &Path, report: &Path, options: &[&str], port: u16) -> Result<(usize, Vec<FailedCase>), String> {
    let status = Command::new(program)
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-o", "2", "-j"])
        .arg(report)
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.map_err(|e| format!("{}: {e}", program.display()))?;
    let text = fs::read_to_string(report).map_err(|e| format!("it has written no report: {e}"))?;
    let mut all = 0;
    let mut failed = Vec::new();
    for case in text.split("<testcase ").skip(1) {
        all += 1;
        let of = |name: &str| {
            let value = case.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
            value.unwrap_or_default().replace("&#34;", "\"")
        };
        let inside = case.split("</testcase>").next().unwrap_or_default();
        if inside.contains("<error") || inside.contains("<failure") {
            let (section, words) = (of("package"), of("classname"));
            let is_known = KNOWN.iter().any(|(place, begin, _)| section.starts_with(place) && words.starts_with(begin));
            failed.push((section, words, is_known));
        }
    }
    // The program has about 145 tests; without a connection it reports none.
    if all < 100 { Err(format!("only {all} cases were run")) } else { Ok((all, failed)) }
}

fn start(binary: &Path, folder: &Path, port: u16) -> Result<Child, String> {
    let mut child = Command::new(binary)
        .arg("-p")
        .arg(folder)
        .arg("-c")
        .arg(folder.join("nginx.conf"))
        .stdin(Stdio::null())
        .spawn()
        .map_err(|e| format!("{}: {e}", binary.display()))?;
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if Instant::now() > until || child.try_wait().is_ok_and(|ended| ended.is_some()) {
            let _ = child.kill();
            let log = fs::read_to_string(folder.join("error.log")).unwrap_or_default();
            return Err(format!("the server does not start: {log}"));
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    Ok(child)
}

/// Builds the program with Go's tools; `None` if they or its sources are unavailable.
fn build() -> Result<Option<PathBuf>, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let folder = std::path::absolute(target.join("peers")).map_err(|e| e.to_string())?;
    let program = folder.join("h2spec");
    if program.exists() {
        return Ok(Some(program));
    }
    let built = Command::new("go").args(["install", MODULE]).env("GOBIN", &folder).stdin(Stdio::null()).output();
    Ok(built.is_ok_and(|built| built.status.success()).then_some(program))
}
