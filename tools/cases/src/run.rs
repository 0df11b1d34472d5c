//! Runs a case over real sockets.

use crate::expect::check_answers;
use crate::http1::Http1;
use crate::http2::Http2;
use crate::http3::Http3;
use crate::origin::Origin;
use crate::parse::{Act, Case, CaseSession, CaseStep, Over, Plain};
use crate::wire::{IDENTITY, Wire};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::free_port;

/// Above the duration of any step: only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(15);
/// Shown part of a log, in octets.
const LOG_SHOWN: usize = 2000;
const GLANCE: Duration = Duration::from_millis(5);

/// Target of the cases.
#[derive(Clone, Debug)]
pub struct Server {
    pub binary: PathBuf,
    /// An nginx: skips Tidegate's directives and checks.
    pub nginx: bool,
    /// Added environment variables.
    pub env: Vec<(&'static str, &'static str)>,
}

/// Runs one case over one protocol, in a temporary directory, which is removed on success.
///
/// # Errors
/// Everything that did not hold, with the lines of the case.
pub fn run_case(server: &Server, case: &Case, name: &str, over: Over) -> Result<(), String> {
    let case = &case.said_over(over)?;
    let kind = if server.nginx { "nginx" } else { "tidegate" };
    let safe: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let folder = std::env::temp_dir().join(format!("case-{kind}-{safe}-{}-{}", over.name(), std::process::id()));
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
    let origins: Vec<Origin> =
        case.origins.iter().map(|script| Origin::start(script, PATIENCE)).collect::<Result<_, _>>()?;
    let log = folder.join("error.log");
    let begin = || {
        let ports = Ports::free();
        let conf = configuration(server, case, &folder, &ports, &origins, over)?;
        fs::write(folder.join("case.conf"), conf).map_err(|e| e.to_string())?;
        let running = start(server, &folder, ports.http, &log)?;
        Ok::<_, String>((ports, running))
    };
    // Another program may have taken a port meanwhile.
    let (ports, mut running) = match begin() {
        Err(words) if words.contains("Address already in use") => begin()?,
        begun => begun?,
    };
    // The first requests find everything open that stays open.
    warm_up(ports.http);
    // Connections to upstream servers are kept on purpose.
    let kept = (case.conf.matches("proxy_pass").count() + case.stream.matches("proxy_pass").count()) * 4;
    let before = descriptors(running.id()) + kept;
    let mut wrong = Vec::new();
    for session in &case.sessions {
        wrong.extend(run_session(session, &ports, over));
    }
    wrong.extend(origins.iter().flat_map(Origin::wrong));
    if !server.nginx {
        let settled = wait(|| (descriptors(running.id()) <= before).then_some(()));
        if settled.is_none() {
            wrong.push(format!("descriptors leak: {before} before, {} after", descriptors(running.id())));
        }
    }
    // Background work may be logged later than the last answer.
    let logged = || fs::read_to_string(&log).is_ok_and(|text| case.log.iter().all(|wanted| text.contains(wanted)));
    if !case.log.is_empty() {
        let _ = wait(|| logged().then_some(()));
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
            let end = text.get(text.len().saturating_sub(LOG_SHOWN)..).unwrap_or(&text);
            wrong.push(format!("the error log lacks \"{wanted}\": ...{end}"));
        }
    }
    if wrong.is_empty() {
        let _ = fs::remove_dir_all(&folder);
        return Ok(());
    }
    Err(format!("over {}:\n{}", over.name(), wrong.join("\n")))
}

/// Runs the steps of one connection; returns the failures.
fn run_session(session: &CaseSession, ports: &Ports, over: Over) -> Vec<String> {
    // Steps that HTTP/2 and HTTP/3 cannot express go over cleartext HTTP/1, so that the case continues.
    let is_of_http1 = |step: &CaseStep| match &step.act {
        Act::Request(request) => request.is_of_http1() && !step.is_of_streams(),
        Act::Raw(_) | Act::Plain(_) => true,
    };
    let has_streams = over.has_streams() && !session.steps.iter().any(is_of_http1);
    let (mut one, mut two, mut three) = (None, None, None);
    let mut wrong = Vec::new();
    let meant = |step: &&CaseStep| step.over.as_ref().is_none_or(|only| only.contains(&over));
    for step in session.steps.iter().filter(meant) {
        let mut exchange = || match &step.act {
            Act::Plain(plain) => exchange_plain(ports.stream, plain),
            _ if has_streams && over == Over::H3 => {
                let client = match &mut three {
                    Some(client) => client,
                    empty => {
                        let identity = IDENTITY.as_ref().map_err(ToString::to_string)?;
                        empty.insert(Http3::connect(ports.tls, identity, PATIENCE)?)
                    }
                };
                check_answers(&client.exchange(step)?, &step.expect, true)
            }
            _ if has_streams => {
                let client = match &mut two {
                    Some(client) => client,
                    empty => empty.insert(Http2::new(connect(ports, over)?)),
                };
                check_answers(&client.exchange(step)?, &step.expect, true)
            }
            _ => {
                let client = match &mut one {
                    Some(client) => client,
                    empty => {
                        let over = if over == Over::Tls { over } else { Over::H1 };
                        empty.insert(Http1::new(connect(ports, over)?, session.kept))
                    }
                };
                check_answers(&client.exchange(step)?, &step.expect, false)
            }
        };
        if let Err(words) = exchange() {
            wrong.push(format!("line {}: {words}", step.line));
        }
    }
    wrong
}

fn connect(ports: &Ports, over: Over) -> Result<Wire, String> {
    match over {
        Over::H1 | Over::H2c => Wire::connect(ports.http, None, PATIENCE),
        Over::Tls => Wire::connect(ports.tls, Some("http/1.1"), PATIENCE),
        Over::H2 => Wire::connect(ports.tls, Some("h2"), PATIENCE),
        Over::H3 => Err("HTTP/3 has sockets of its own".into()),
    }
}

fn warm_up(port: u16) {
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let _ = stream.write_all(b"GET /warm-up HTTP/1.0\r\n\r\n");
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

/// Workers of a root master run as another user, which must be able to read the site.
fn open_up(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o755));
}

struct Ports {
    http: u16,
    tls: u16,
    stream: u16,
    other: u16,
}

impl Ports {
    fn free() -> Ports {
        Ports { http: free_port(), tls: free_port(), stream: free_port(), other: free_port() }
    }
}

fn configuration(
    server: &Server,
    case: &Case,
    folder: &Path,
    ports: &Ports,
    origins: &[Origin],
    over: Over,
) -> Result<String, String> {
    let mut own = if server.nginx { String::new() } else { "server_identity nginx;".to_string() };
    // Adds a TLS or QUIC port to servers in cleartext.
    let tls = format!("127.0.0.1:{} {}", ports.tls, if over == Over::H3 { "quic" } else { "ssl" });
    let listen = |text: &str| {
        let clear = "listen 127.0.0.1:{port}";
        if over.is_tls() { text.replace(&format!("{clear};"), &format!("{clear}; listen {tls};")) } else { text.into() }
    };
    if over.is_tls() {
        let identity = IDENTITY.as_ref().map_err(ToString::to_string)?;
        fs::write(folder.join("case.crt"), &identity.certificate).map_err(|e| e.to_string())?;
        fs::write(folder.join("case.key"), &identity.key).map_err(|e| e.to_string())?;
        own += "\nssl_certificate {dir}/case.crt;\nssl_certificate_key {dir}/case.key;";
    }
    if over.is_h2() {
        own += "\nhttp2 on;";
    }
    let fill = |text: &str| {
        let text = text.replace("{port}", &ports.http.to_string()).replace("{dir}", &folder.display().to_string());
        let text = text.replace("{stream}", &ports.stream.to_string()).replace("{other}", &ports.other.to_string());
        let of = |text: String, o: &Origin| text.replace(&format!("{{{}}}", o.name), &format!("127.0.0.1:{}", o.port));
        origins.iter().fold(text, of)
    };
    let stream =
        if case.stream.is_empty() { String::new() } else { format!("stream {{\n{}\n}}\n", fill(&case.stream)) };
    let http = format!(
        "{own}\nroot {{dir}}/html;\naccess_log off;\ntypes {{ text/html html; text/css css; }}\n{}\n\
         server {{\n{}\nserver_name localhost;\n{}\n}}",
        listen(&case.http),
        listen("listen 127.0.0.1:{port};"),
        case.conf,
    );
    let main = "daemon off;\nmaster_process off;\npid {dir}/pid;\nerror_log {dir}/error.log info;\nevents { }\n";
    Ok(format!("{}http {{\n{}\n}}\n{stream}", fill(main), fill(&http)))
}

fn start(server: &Server, folder: &Path, port: u16, log: &Path) -> Result<Child, String> {
    let mut child = Command::new(&server.binary)
        .arg("-p")
        .arg(folder)
        .arg("-c")
        .arg(folder.join("case.conf"))
        .arg("-e")
        .arg(log)
        .envs(server.env.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{}: {e}", server.binary.display()))?;
    let up = wait(|| {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(Err(status.to_string()));
        }
        // The pid file follows the sockets: another program may have one of the port.
        let has_begun = folder.join("pid").exists();
        TcpStream::connect(("127.0.0.1", port)).ok().filter(|_| has_begun).map(|_| Ok(()))
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

/// Sends bytes or a datagram to the stream block, and returns the response.
fn exchange_plain(port: u16, wanted: &Plain) -> Result<(), String> {
    let mut got = Vec::new();
    if wanted.udp {
        let socket = UdpSocket::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let _ = socket.set_read_timeout(Some(PATIENCE));
        socket.send_to(&wanted.sent, ("127.0.0.1", port)).map_err(|e| e.to_string())?;
        got.resize(65_535, 0);
        let length = socket.recv(&mut got).map_err(|e| e.to_string())?;
        got.truncate(length);
    } else {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(|e| e.to_string())?;
        let _ = stream.set_read_timeout(Some(PATIENCE));
        // A session that is refused may have ended by now.
        let _ = stream.write_all(&wanted.sent);
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
