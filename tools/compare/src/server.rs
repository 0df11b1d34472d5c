//! One server with one configuration: start, requests, stop; with its responses and logs.

use crate::pool::PoolRequest;
use crate::{normal, peers, site};
use cases::Over;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longer than anything takes; only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(15);
const GLANCE: Duration = Duration::from_millis(2);

/// A program to compare.
#[derive(Clone, Debug)]
pub struct Binary {
    pub path: PathBuf,
    pub nginx: bool,
    /// Major and minor number of the nginx that is compared with.
    pub version: (u32, u32),
    /// For the summary.
    pub shown: String,
}

/// Where a server's files are.
pub struct Dirs {
    pub folder: PathBuf,
}

/// Result of a run.
pub struct ServerRun {
    /// Messages of a server that did not start.
    pub refused: Option<String>,
    pub answers: Vec<Vec<u8>>,
    pub access: Vec<String>,
    pub errors: Vec<String>,
    /// Lines of the error log about connections of HTTP/2, which most modes do not compare.
    pub connections: Vec<String>,
    /// The line on which the configuration ends, and its http block.
    pub last_line: u32,
}

impl ServerRun {
    /// Starts the server, sends all requests, and stops it.
    ///
    /// # Errors
    /// Failures of the run, except a rejected configuration.
    pub fn of(
        binary: &Binary,
        conf: &dyn Fn(&Dirs, u16) -> String,
        requests: &[&PoolRequest],
        over: Over,
        backend: Option<u16>,
    ) -> Result<ServerRun, String> {
        let all = |port: u16| -> Result<Vec<Vec<u8>>, String> {
            let one = |one: &&PoolRequest| match over {
                Over::H2c => ask_h2c(port, one),
                Over::H3 => ask_h3(port, one),
                _ => ask(port, &one.bytes(), false),
            };
            requests.iter().map(one).collect()
        };
        ServerRun::with(binary, conf, &all, backend)
    }

    /// `of` for raw requests; `half`: the client closes its sending side after them.
    ///
    /// # Errors
    /// As [`ServerRun::of`].
    pub fn of_bytes(
        binary: &Binary,
        conf: &dyn Fn(&Dirs, u16) -> String,
        requests: &[Vec<u8>],
        half: bool,
        backend: Option<u16>,
    ) -> Result<ServerRun, String> {
        let all = |port: u16| requests.iter().map(|one| ask(port, one, half)).collect();
        ServerRun::with(binary, conf, &all, backend)
    }

    pub(crate) fn with(
        binary: &Binary,
        conf: &dyn Fn(&Dirs, u16) -> String,
        ask: &dyn Fn(u16) -> Result<Vec<Vec<u8>>, String>,
        backend: Option<u16>,
    ) -> Result<ServerRun, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Both have names of the same length: they stand in answers and logs.
        let kind = if binary.nginx { "n" } else { "t" };
        let folder = std::env::temp_dir().join(format!("compare-{}-{kind}{number:06}", std::process::id()));
        let dirs = Dirs { folder };
        let run = run(binary, &dirs, conf, ask, backend);
        let _ = fs::remove_dir_all(&dirs.folder);
        run
    }
}

fn run(
    binary: &Binary,
    dirs: &Dirs,
    conf: &dyn Fn(&Dirs, u16) -> String,
    ask: &dyn Fn(u16) -> Result<Vec<Vec<u8>>, String>,
    backend: Option<u16>,
) -> Result<ServerRun, String> {
    let say = |e: std::io::Error| format!("{}: {e}", dirs.folder.display());
    fs::create_dir_all(dirs.folder.join("logs")).map_err(say)?;
    site::make_files(dirs).map_err(say)?;
    peers::write_identity(&dirs.folder)?;
    let port = testkit::free_port();
    let path = dirs.folder.join("compare.conf");
    let text = conf(dirs, port);
    let last_line = text.lines().count() as u32;
    fs::write(&path, text).map_err(say)?;
    let mut child = Command::new(&binary.path)
        .args(["-p".as_ref(), dirs.folder.as_os_str(), "-c".as_ref(), path.as_os_str()])
        .args(["-e".as_ref(), dirs.folder.join("error.log").as_os_str()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{}: {e}", binary.path.display()))?;
    let clean = |text: &str| normal::normal_text(text, &dirs.folder, port, backend);
    if !up(&mut child, port)? {
        let mut text = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            let _ = stderr.read_to_string(&mut text);
        }
        let _ = child.wait();
        let first = text.lines().find(|line| line.contains("[emerg]")).unwrap_or(&text);
        let said = first.split_once("[emerg] ").map_or(first, |(_, words)| words);
        return Ok(ServerRun {
            refused: Some(clean(said)),
            answers: Vec::new(),
            access: Vec::new(),
            errors: Vec::new(),
            connections: Vec::new(),
            last_line,
        });
    }
    let answers = ask(port)?.iter().map(|bytes| normal::normal_answer(bytes, &clean)).collect();
    // The end of the process is the end of its log lines.
    let _ = Command::new("kill").args(["-QUIT", &child.id().to_string()]).status();
    let until = Instant::now() + PATIENCE;
    while child.try_wait().ok().flatten().is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{} does not end", binary.path.display()));
        }
        std::thread::park_timeout(GLANCE);
    }
    let read = |name: &str| String::from_utf8_lossy(&fs::read(dirs.folder.join(name)).unwrap_or_default()).into_owned();
    // nginx leaves the query of the last argument of `try_files` undefined: it shows as missing or empty.
    let access = read("access.log").lines().map(|line| clean(line).replace("||HTTP/", "|-|HTTP/")).collect();
    let log: Vec<String> = read("error.log").lines().map(clean).collect();
    let errors = log.iter().filter_map(|line| normal::log_line(line)).collect();
    let connections = log.iter().filter_map(|line| normal::connection_line(line)).collect();
    Ok(ServerRun { refused: None, answers, access, errors, connections, last_line })
}

/// Waits for the start; `false`: the server has ended.
fn up(child: &mut Child, port: u16) -> Result<bool, String> {
    let until = Instant::now() + PATIENCE;
    loop {
        if child.try_wait().ok().flatten().is_some() {
            return Ok(false);
        }
        // A connect to an unused port may get that port as its own and reach itself.
        if TcpStream::connect(("127.0.0.1", port)).is_ok_and(|s| s.local_addr().ok() != s.peer_addr().ok()) {
            return Ok(true);
        }
        if Instant::now() > until {
            let _ = child.kill();
            return Err("a server does not start".into());
        }
        std::thread::park_timeout(GLANCE);
    }
}

/// Sends one request over a cleartext HTTP/2 connection. Returns the response in HTTP/1 form.
fn ask_h2c(port: u16, ask: &PoolRequest) -> Result<Vec<u8>, String> {
    let mut client = cases::Http2::new(cases::Wire::connect(port, None, PATIENCE)?);
    Ok(as_http1("HTTP/2", client.ask(&ask.request())))
}

/// Sends one request over a new HTTP/3 connection. Returns the response in HTTP/1 form.
fn ask_h3(port: u16, ask: &PoolRequest) -> Result<Vec<u8>, String> {
    let mut client = cases::Http3::to(port, PATIENCE)?;
    Ok(as_http1("HTTP/3", client.ask(&ask.request())))
}

/// Answer of a server that sends nothing for [`PATIENCE`].
pub const SILENCE: &[u8] = b"<nothing comes for too long>";

fn as_http1(version: &str, came: Result<cases::Came, String>) -> Vec<u8> {
    let came = match came {
        Ok(came) => came,
        Err(words) => return format!("<{words}>").into_bytes(),
    };
    let mut out = Vec::new();
    for answer in came.answers {
        out.extend_from_slice(format!("{version} {}\r\n", answer.status).as_bytes());
        for (name, value) in answer.headers {
            out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&answer.body);
    }
    if let Some(code) = came.reset {
        out.extend_from_slice(format!("<reset with {code}>").as_bytes());
    }
    out
}

fn ask(port: u16, request: &[u8], half: bool) -> Result<Vec<u8>, String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(|e| e.to_string())?;
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = stream.write_all(request);
    if half {
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    let (mut all, mut buf) = (Vec::new(), [0; 16 * 1024]);
    loop {
        match stream.read(&mut buf) {
            Ok(n) if n > 0 => all.extend_from_slice(&buf[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                all.extend_from_slice(b"<and nothing more for a long time>");
                return Ok(all);
            }
            _ => return Ok(all),
        }
    }
}
