//! Runs a case over real sockets.

use crate::parse::{Case, Expect, Plain, Step};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything takes; only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(15);
const GLANCE: Duration = Duration::from_millis(5);

/// Whom a case is run against.
#[derive(Clone, Debug)]
pub struct Server {
    pub binary: PathBuf,
    /// A real nginx: our own directives and checks are left out.
    pub nginx: bool,
}

/// Runs one case in a folder of its own, which is removed when all went well.
///
/// # Errors
/// Everything that did not hold, with the lines of the case.
pub fn run(server: &Server, case: &Case, name: &str) -> Result<(), String> {
    let kind = if server.nginx { "nginx" } else { "tidegate" };
    let safe: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let folder = std::env::temp_dir().join(format!("case-{kind}-{safe}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let html = folder.join("html");
    fs::create_dir_all(&html).map_err(|e| format!("{}: {e}", html.display()))?;
    let _ = fs::create_dir_all(folder.join("logs"));
    open_up(&folder);
    for (name, content) in &case.files {
        let path = html.join(name);
        if let Some(parent) = path.parent() {
            let _ = fs::create_dir_all(parent);
        }
        fs::write(&path, content).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let ports = Ports { http: free()?, stream: free()?, other: free()? };
    let port = ports.http;
    let log = folder.join("error.log");
    fs::write(folder.join("case.conf"), configuration(server, case, &folder, &ports)).map_err(|e| e.to_string())?;
    let mut running = start(server, &folder, port, &log)?;
    // The first request finds everything open that stays open.
    warm_up(port);
    // Connections to upstream servers are kept on purpose.
    let kept = (case.conf.matches("proxy_pass").count() + case.stream.matches("proxy_pass").count()) * 4;
    let before = descriptors(running.id()) + kept;
    let mut wrong = Vec::new();
    for step in &case.steps {
        let done = match &step.plain {
            None => exchange(port, step),
            Some(plain) => exchange_plain(ports.stream, &step.send, plain),
        };
        if let Err(words) = done {
            wrong.push(format!("line {}: {words}", step.line));
        }
    }
    if !server.nginx {
        let settled = wait(|| (descriptors(running.id()) <= before).then_some(()));
        if settled.is_none() {
            wrong.push(format!("descriptors leak: {before} before, {} after", descriptors(running.id())));
        }
    }
    let _ = Command::new("kill").args(["-QUIT", &running.id().to_string()]).status();
    match wait(|| running.try_wait().ok().flatten()) {
        Some(status) if status.success() => {}
        Some(status) => wrong.push(format!("it ended with {status}")),
        None => {
            let _ = running.kill();
            wrong.push("it did not stop".into());
        }
    }
    let text = fs::read_to_string(&log).unwrap_or_default();
    wrong.extend(text.lines().filter(|line| line.contains("[alert]")).map(ToString::to_string));
    for wanted in &case.log {
        if !text.contains(wanted.as_str()) {
            wrong.push(format!("the error log lacks \"{wanted}\":\n{text}"));
        }
    }
    if wrong.is_empty() {
        let _ = fs::remove_dir_all(&folder);
        return Ok(());
    }
    Err(wrong.join("\n"))
}

fn warm_up(port: u16) {
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let _ = stream.write_all(b"GET /warm-up HTTP/1.0\r\n\r\n");
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

/// A master that is root has workers that are not: they must be able to read the site.
fn open_up(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o755));
}

/// Ports of a case.
struct Ports {
    http: u16,
    stream: u16,
    other: u16,
}

/// A port that is free for both kinds of sockets.
fn free() -> Result<u16, String> {
    for _ in 0..100 {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err("no free port".into())
}

fn configuration(server: &Server, case: &Case, folder: &Path, ports: &Ports) -> String {
    let folder = folder.display();
    let own = if server.nginx { "" } else { "server_identity nginx;" };
    let port = ports.http;
    let fill = |text: &str| {
        let text = text.replace("{port}", &port.to_string()).replace("{dir}", &folder.to_string());
        text.replace("{stream}", &ports.stream.to_string()).replace("{other}", &ports.other.to_string())
    };
    let stream =
        if case.stream.is_empty() { String::new() } else { format!("stream {{\n{}\n}}\n", fill(&case.stream)) };
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/error.log info;\nevents {{ }}\nhttp {{\n\
         {own}\nroot {folder}/html;\naccess_log off;\ntypes {{ text/html html; text/css css; }}\n{}\n\
         server {{\nlisten 127.0.0.1:{port};\nserver_name localhost;\n{}\n}}\n}}\n{stream}",
        fill(&case.http),
        fill(&case.conf),
    )
}

fn start(server: &Server, folder: &Path, port: u16, log: &Path) -> Result<Child, String> {
    let mut child = Command::new(&server.binary)
        .arg("-p")
        .arg(folder)
        .arg("-c")
        .arg(folder.join("case.conf"))
        .arg("-e")
        .arg(log)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{}: {e}", server.binary.display()))?;
    let up = wait(|| {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(Err(status.to_string()));
        }
        TcpStream::connect(("127.0.0.1", port)).ok().map(|_| Ok(()))
    });
    match up {
        Some(Ok(())) => Ok(child),
        other => {
            let _ = child.kill();
            let mut text = String::new();
            if let Some(mut stderr) = child.stderr.take() {
                let _ = stderr.read_to_string(&mut text);
            }
            let _ = child.wait();
            Err(format!("it does not start ({other:?}): {text}"))
        }
    }
}

fn wait<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() > until {
            return None;
        }
        std::thread::park_timeout(GLANCE);
    }
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// A response as it came.
#[derive(Debug, Default)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

fn exchange(port: u16, step: &Step) -> Result<(), String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(|e| e.to_string())?;
    let _ = stream.set_read_timeout(Some(PATIENCE));
    stream.write_all(&step.send).map_err(|e| e.to_string())?;
    let wanted = step.expect.iter().filter(|e| !e.contains(&Expect::Closed)).count();
    // A step that expects the end reads up to it; others are content with their responses.
    let to_the_end = wanted < step.expect.len();
    let (mut bytes, mut buf, mut ended) = (Vec::new(), [0; 16 * 1024], false);
    let mut answers = Vec::new();
    while answers.len() < wanted || (to_the_end && !ended) {
        if let Some((answer, length)) = one(&bytes, step.head, ended)? {
            answers.push(answer);
            bytes.drain(..length);
            continue;
        }
        if ended {
            break;
        }
        match stream.read(&mut buf) {
            Ok(0) => ended = true,
            Ok(n) => bytes.extend_from_slice(&buf[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => ended = true,
            Err(e) => return Err(format!("{e}; so far: {}", String::from_utf8_lossy(&bytes))),
        }
    }
    if to_the_end && (answers.len() > wanted || !bytes.is_empty()) {
        return Err(format!("more came than was expected: {}", String::from_utf8_lossy(&bytes)));
    }
    if answers.len() < wanted {
        let got = String::from_utf8_lossy(&bytes);
        return Err(format!("{} responses instead of {wanted}; what is left: {got}", answers.len()));
    }
    for (answer, wanted) in answers.iter().zip(&step.expect) {
        for expect in wanted {
            check(answer, expect).map_err(|words| format!("{words}; got {} {:?}", answer.status, answer.headers))?;
        }
    }
    Ok(())
}

/// Bytes or a datagram to the stream block, and what comes back.
fn exchange_plain(port: u16, send: &[u8], wanted: &Plain) -> Result<(), String> {
    let mut got = Vec::new();
    if wanted.udp {
        let socket = UdpSocket::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let _ = socket.set_read_timeout(Some(PATIENCE));
        socket.send_to(send, ("127.0.0.1", port)).map_err(|e| e.to_string())?;
        got.resize(65_535, 0);
        let length = socket.recv(&mut got).map_err(|e| e.to_string())?;
        got.truncate(length);
    } else {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(|e| e.to_string())?;
        let _ = stream.set_read_timeout(Some(PATIENCE));
        // A session that is refused may have ended by now.
        let _ = stream.write_all(send);
        let mut buf = [0; 16 * 1024];
        while !wanted.begins || got.len() < wanted.answer.len() {
            match stream.read(&mut buf) {
                Ok(0) => break,
                Ok(n) => got.extend_from_slice(&buf[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(e) => return Err(format!("{e}; so far: {}", String::from_utf8_lossy(&got))),
            }
        }
    }
    let got = String::from_utf8_lossy(&got);
    let holds = got == wanted.answer || (wanted.begins && got.starts_with(&wanted.answer));
    if holds { Ok(()) } else { Err(format!("expected \"{}\", got \"{got}\"", wanted.answer)) }
}

/// The first response of some bytes, and its length; `None` while it is not complete.
fn one(bytes: &[u8], head_only: bool, ended: bool) -> Result<Option<(Answer, usize)>, String> {
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or("");
    let status = first.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or(format!("no status line: {first}"))?;
    let headers: Vec<(String, String)> =
        lines.filter_map(|l| l.split_once(": ").map(|(n, v)| (n.to_string(), v.to_string()))).collect();
    let header = |name: &str| headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str());
    let rest = &bytes[end + 4..];
    let bodiless = head_only || matches!(status, 100..=199 | 204 | 304);
    let (body, used) = if bodiless {
        (Vec::new(), 0)
    } else if header("transfer-encoding") == Some("chunked") {
        match dechunk(rest) {
            Some(done) => done,
            None => return Ok(None),
        }
    } else if let Some(length) = header("content-length").and_then(|l| l.parse::<usize>().ok()) {
        if rest.len() < length {
            return Ok(None);
        }
        (rest[..length].to_vec(), length)
    } else if ended {
        (rest.to_vec(), rest.len())
    } else {
        return Ok(None);
    };
    Ok(Some((Answer { status, headers, body }, end + 4 + used)))
}

fn dechunk(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut out, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes[at..].windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[at..at + line]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        at += line + 2;
        if size == 0 {
            let end = bytes[at..].windows(2).position(|w| w == b"\r\n")?;
            return Some((out, at + end + 2));
        }
        out.extend_from_slice(bytes.get(at..at + size)?);
        at += size + 2;
    }
}

fn check(answer: &Answer, expect: &Expect) -> Result<(), String> {
    let header = |name: &str| {
        let all = answer.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        all.map(|(_, v)| v.as_str()).collect::<Vec<_>>().join(", ")
    };
    let body = String::from_utf8_lossy(&answer.body);
    let holds = match expect {
        Expect::Status(status) => answer.status == *status,
        Expect::Header(name, value) => header(name) == *value || (value.is_empty() && !header(name).is_empty()),
        Expect::NoHeader(name) => !answer.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name)),
        Expect::Names(names) => answer.headers.iter().map(|(n, _)| n.as_str()).eq(names.split_whitespace()),
        Expect::Body(text) => body == text.as_str(),
        Expect::BodyHas(text) => body.contains(text.as_str()),
        Expect::Closed => true,
    };
    if holds { Ok(()) } else { Err(format!("expected {expect:?}, body: {body}")) }
}
