//! Rendered configurations answer requests as their manifests say: `requests.txt` of each folder of manifests (the format is described in
//! `crates/cluster/render/tests/manifests.rs`), sent by curl to the server of this repository, behind which another one plays the backends.
//!
//! Addresses of the manifests are replaced by free ports of 127.0.0.1. `REQUESTS=word` runs the folders whose name has the word.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::free_port;

/// Requests per line with shares. A share may be off by [`SHARE_TOLERANCE`] of all, which is more than six standard deviations.
const DRAWS: usize = 600;
const SHARE_TOLERANCE: f64 = 0.13;
/// A server that starts takes less, on any machine.
const START_MAX: Duration = Duration::from_secs(60);

struct Server {
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// The server's program, which CI builds before the tests.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().expect("a path");
    let beside = own.parent()?.parent()?.join("tidegate");
    beside.exists().then_some(beside)
}

fn start(program: &Path, folder: &Path, text: &str, ports: &[u16]) -> Result<Server, String> {
    fs::create_dir_all(folder.join("logs")).expect("a folder");
    let conf = folder.join("nginx.conf");
    fs::write(&conf, text).expect("written");
    let tested = Command::new(program).args(["-t", "-q", "-p"]).arg(folder).arg("-c").arg(&conf).output().expect("run");
    if !tested.status.success() {
        return Err(format!("-t: {}", String::from_utf8_lossy(&tested.stderr)));
    }
    let child = Command::new(program)
        .arg("-p")
        .arg(folder)
        .arg("-c")
        .arg(&conf)
        .stderr(fs::File::create(folder.join("stderr")).expect("a file"))
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    let server = Server { child };
    let end = Instant::now() + START_MAX;
    for port in ports {
        while TcpStream::connect(("127.0.0.1", *port)).is_err() {
            if Instant::now() > end {
                return Err(format!("port {port}: {}", fs::read_to_string(folder.join("stderr")).unwrap_or_default()));
            }
            std::thread::yield_now();
        }
    }
    Ok(server)
}

/// The rendered text with ports of this machine, the ports of the listeners by those of the manifests, and the backends: names by port.
struct Localized {
    text: String,
    listeners: BTreeMap<u16, u16>,
    backends: BTreeMap<u16, String>,
}

fn localized(text: &str) -> Localized {
    let (mut out, mut listeners, mut backends) = (String::new(), BTreeMap::new(), BTreeMap::new());
    let (mut service, mut by_address) = (String::new(), BTreeMap::<String, u16>::new());
    for line in text.lines() {
        let words = line.trim().trim_end_matches(';');
        let indent = &line[..line.len() - line.trim_start().len()];
        if let Some(named) = words.strip_prefix("# Service ").and_then(|named| named.split_once(", port ")) {
            service = format!("{}:{}", named.0, named.1);
        }
        let mut parts = words.split(' ');
        match (parts.next(), parts.next()) {
            (Some("listen"), Some(address)) if !address.starts_with("unix:") => {
                let wanted: u16 = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
                let port = *listeners.entry(wanted).or_insert_with(free_port);
                let rest: Vec<&str> = parts.collect();
                let _ = writeln!(
                    out,
                    "{indent}{};",
                    ["listen", &format!("127.0.0.1:{port}")].into_iter().chain(rest).collect::<Vec<_>>().join(" ")
                );
            }
            (Some("server"), Some(address)) if address.contains(':') && !address.starts_with("unix:") => {
                let port = *by_address.entry(format!("{service} {address}")).or_insert_with(free_port);
                backends.insert(port, service.clone());
                let rest: Vec<&str> = parts.collect();
                let _ = writeln!(
                    out,
                    "{indent}{};",
                    ["server", &format!("127.0.0.1:{port}")].into_iter().chain(rest).collect::<Vec<_>>().join(" ")
                );
            }
            (Some("access_log"), Some("/dev/stdout")) => {}
            (Some("worker_processes"), _) => out.push_str("worker_processes 1;\ndaemon off;\nmaster_process off;\n"),
            _ => out.push_str(&format!("{line}\n")),
        }
    }
    Localized { text: out, listeners, backends }
}

/// A configuration whose servers name themselves and tell what they were asked.
fn backends_text(backends: &BTreeMap<u16, String>, headers: &[String]) -> String {
    let mut text = String::from(
        "worker_processes 1;\ndaemon off;\nmaster_process off;\nerror_log stderr;\npid backends.pid;\nevents { }\nhttp {\n    http2 on;\n    \
         geo $service { }\n    log_format name \"$service $request_uri\";\n",
    );
    for (port, name) in backends {
        let mut answer = format!("{name}\\npath=$request_uri\\nhost=$http_host\\n");
        for header in headers {
            let _ = write!(answer, "header={header}:$http_{}\\n", header.replace('-', "_"));
        }
        let _ = write!(
            text,
            "    server {{\n        listen 127.0.0.1:{port};\n        set $service \"{name}\";\n        access_log asked.log name;\n        \
             location / {{ return 200 \"{answer}\"; }}\n    }}\n"
        );
    }
    text + "}\n"
}

struct RequestLine {
    text: String,
    method: String,
    scheme: String,
    host: String,
    port: u16,
    path: String,
    headers: Vec<(String, String)>,
    answers: Vec<(String, f64)>,
    details: Vec<(String, String)>,
}

fn parse(line: &str) -> RequestLine {
    let (request, answer) = line.split_once(" -> ").expect(line);
    let mut words = request.split(' ');
    let (method, url) = (words.next().expect(line), words.next().expect(line));
    let headers = words.map(|word| {
        let (name, value) = word.split_once(':').expect(line);
        (name.to_string(), value.replace('_', " "))
    });
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let at = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().expect(line)),
        None => (authority, if scheme == "https" { 443 } else { 80 }),
    };
    let (mut answers, mut details) = (Vec::new(), Vec::new());
    let mut words = answer.split(' ').peekable();
    while let Some(word) = words.next() {
        if let Some((name, value)) =
            word.split_once('=').filter(|(name, _)| ["path", "host", "header", "mirror"].contains(name))
        {
            details.push((name.to_string(), value.replace('_', " ")));
            continue;
        }
        if word.starts_with("http") && word.contains("://") {
            details.push(("location".into(), word.into()));
            continue;
        }
        let share = words.peek().and_then(|next| next.strip_suffix('%')).map(|share| share.parse::<f64>().expect(line));
        if share.is_some() {
            words.next();
        }
        answers.push((word.to_string(), share.unwrap_or(100.0) / 100.0));
    }
    RequestLine {
        text: line.into(),
        method: method.into(),
        scheme: scheme.into(),
        host: host.into(),
        port,
        path: path.into(),
        headers: headers.collect(),
        answers,
        details,
    }
}

/// Status, field `Location` and body of each answer, in the order of the requests; an empty list for a refused handshake.
fn ask(request: &RequestLine, port: u16, times: usize) -> Vec<(String, String, String)> {
    let url = format!("{}://{}:{}{}", request.scheme, request.host, request.port, request.path);
    let mut command = Command::new("curl");
    command.args(["-s", "-k", "--path-as-is", "--globoff", "--max-time", "60", "-X", &request.method]);
    command.args(["--connect-to", &format!("::127.0.0.1:{port}"), "-w", "\n%{http_code}\u{1}%header{location}\u{2}"]);
    for (name, value) in &request.headers {
        command.arg("-H").arg(format!("{name}: {value}"));
    }
    if request.method == "POST" {
        command.args(["-d", "x"]);
    }
    command.args(std::iter::repeat_n(&url, times));
    let output = command.output().expect("curl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let answers = text.split('\u{2}').filter(|part| !part.is_empty()).filter_map(|part| {
        let (body, facts) = part.rsplit_once('\n')?;
        let (status, location) = facts.split_once('\u{1}')?;
        (status != "000").then(|| (status.to_string(), location.to_string(), body.to_string()))
    });
    answers.collect()
}

/// The name of an answer as `requests.txt` has it.
fn named(answer: &(String, String, String)) -> String {
    match (answer.0.as_str(), answer.2.lines().next()) {
        ("200", Some(first)) if first.contains('/') && first.contains(':') => first.into(),
        (status, _) => status.into(),
    }
}

fn check(request: &RequestLine, port: u16, folder: &Path) -> Result<(), String> {
    let has_shares = request.answers.len() > 1;
    let answers = ask(request, port, if has_shares { DRAWS } else { 1 });
    if request.answers[0].0 == "reject" {
        return if answers.is_empty() { Ok(()) } else { Err(format!("answered {answers:?}")) };
    }
    if has_shares {
        for (name, share) in &request.answers {
            let count = answers.iter().filter(|answer| named(answer) == *name).count();
            let got = count as f64 / DRAWS as f64;
            if (got - share).abs() > SHARE_TOLERANCE {
                return Err(format!("{name} answered {got:.2} of the requests instead of {share:.2}"));
            }
        }
        return Ok(());
    }
    let Some(answer) = answers.first() else { return Err("no answer".into()) };
    if named(answer) != request.answers[0].0 {
        return Err(format!("{} ({})", named(answer), answer.1));
    }
    for (name, value) in &request.details {
        let holds = match name.as_str() {
            // (Of a variable: the port that stands for the manifest's.)
            "location" => answer.1.replace(&format!(":{port}"), &format!(":{}", request.port)) == *value,
            "mirror" => {
                // A copy is sent behind the answer.
                let end = Instant::now() + START_MAX;
                loop {
                    let log = fs::read_to_string(folder.join("backends/asked.log")).unwrap_or_default();
                    if log.lines().any(|line| line.split(' ').next() == Some(value)) {
                        break true;
                    }
                    if Instant::now() > end {
                        break false;
                    }
                    std::thread::yield_now();
                }
            }
            name => answer.2.lines().any(|line| line == format!("{name}={value}")),
        };
        if !holds {
            return Err(format!("{name} is not {value}: {answer:?}"));
        }
    }
    Ok(())
}

/// Returns the failures of a folder of manifests.
fn run(case: &Path, program: &Path) -> Vec<String> {
    let text = fs::read_to_string(case.join("requests.txt")).expect("requests");
    let requests: Vec<RequestLine> =
        text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(parse).collect();
    let name = case.file_name().expect("a name").to_string_lossy().into_owned();
    let folder = std::env::temp_dir().join(format!("tidegate-requests-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let (front, back) = (folder.join("front"), folder.join("backends"));
    fs::create_dir_all(&front).expect("a folder");
    fs::create_dir_all(&back).expect("a folder");
    let mut render = Command::new(env!("CARGO_BIN_EXE_tidegate-controller"));
    render
        .args(["render", "--input"])
        .arg(case.join("input.yaml"))
        .arg("--output")
        .arg(&front)
        .arg("--run-folder")
        .arg(&front);
    for line in fs::read_to_string(case.join("settings.txt")).unwrap_or_default().lines() {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            "class" | "without-class" => render.arg(format!("--ingress-{name}")),
            "resolver" => render.args(["--resolver", "127.0.0.1:1"]),
            _ => render.arg(format!("--{name}")),
        };
        render.args((!value.is_empty()).then_some(value));
    }
    let rendered = render.output().expect("rendered");
    assert!(rendered.status.success(), "{name}: {}", String::from_utf8_lossy(&rendered.stderr));
    let text = fs::read_to_string(front.join("nginx.conf")).expect("a configuration");
    let local = localized(&text);
    let headers = requests.iter().flat_map(|request| &request.details).filter(|detail| detail.0 == "header");
    let mut headers: Vec<String> = headers.filter_map(|detail| Some(detail.1.split_once(':')?.0.to_string())).collect();
    headers.sort();
    headers.dedup();
    let backends: Vec<u16> = local.backends.keys().copied().collect();
    let listeners: Vec<u16> = local.listeners.values().copied().collect();
    let mut failures = Vec::new();
    let servers = start(program, &back, &backends_text(&local.backends, &headers), &backends)
        .and_then(|back| Ok((back, start(program, &front, &local.text, &listeners)?)));
    match servers {
        Err(why) => failures.push(format!("{name}: {why}")),
        Ok(_servers) => {
            for request in &requests {
                let Some(port) = local.listeners.get(&request.port) else {
                    failures.push(format!("{name}: {}: nothing listens on this port", request.text));
                    continue;
                };
                if let Err(why) = check(request, *port, &folder) {
                    failures.push(format!("{name}: {}: {why}", request.text));
                }
            }
        }
    }
    let _ = fs::remove_dir_all(&folder);
    failures
}

#[test]
fn rendered_configurations_answer_as_their_manifests_say() {
    let Some(program) = program() else { return testkit::missing_means("the program tidegate is not built") };
    if Command::new("curl").arg("--version").output().is_err() {
        return testkit::missing_peer("curl");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = [root.join("render/tests/manifests"), root.join("ingress/tests/manifests")];
    let word = std::env::var("REQUESTS").unwrap_or_default();
    let mut cases: Vec<PathBuf> = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .map(|entry| entry.expect("an entry").path())
        .collect();
    cases.retain(|case| case.join("requests.txt").exists() && case.to_string_lossy().contains(&word));
    cases.sort();
    assert!(!cases.is_empty());
    let failures: Vec<String> = cases.iter().flat_map(|case| run(case, &program)).collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
