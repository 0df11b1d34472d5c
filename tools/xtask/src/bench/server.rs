//! A server under test: started on CPU 0 in a temporary directory, queried, and watched through /proc.

use super::scenario::Scenario;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct BenchServer {
    pub name: &'static str,
    pub port: u16,
    child: Child,
    folder: PathBuf,
}

/// How a server's program is run.
#[derive(Clone, Copy)]
enum Launch {
    /// On a processor, or several (`0-1`).
    Processor(&'static str),
    /// Under valgrind, which writes each access to memory to the error output.
    Lackey,
}

impl Launch {
    fn command(self, binary: &Path) -> Command {
        let mut command = match self {
            Launch::Processor(_) => Command::new("taskset"),
            Launch::Lackey => Command::new("valgrind"),
        };
        match self {
            Launch::Processor(number) => command.args(["-c", number]).stderr(Stdio::null()),
            Launch::Lackey => command.args(["--tool=lackey", "--trace-mem=yes"]).stderr(Stdio::piped()),
        };
        command.arg(binary);
        command
    }
}

/// Equal for all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerAnswer {
    pub status: u16,
    pub length: usize,
    pub hash: u64,
}

impl BenchServer {
    /// Starts a server on CPU 0. `origin`: port of the upstream server, if any.
    pub fn start(scenario: &Scenario, binary: &Path, name: &'static str, origin: u16) -> Result<BenchServer, String> {
        BenchServer::with(scenario, &scenario.conf, binary, name, origin, Launch::Processor("0"))
    }

    /// Starts a server without a master process under valgrind's lackey; returns the trace of its accesses to memory. After the
    /// caller has begun to read it, [`BenchServer::listens`] waits for the server.
    pub fn traced(
        scenario: &Scenario,
        binary: &Path,
        name: &'static str,
        origin: u16,
    ) -> Result<(BenchServer, ChildStderr), String> {
        let mut server = BenchServer::with(scenario, &scenario.conf, binary, name, origin, Launch::Lackey)?;
        let trace = server.child.stderr.take().ok_or("no trace")?;
        Ok((server, trace))
    }

    /// Starts a server with so many worker threads (nginx: processes), 1 or 2, which run on as many processors.
    pub fn with_threads(
        scenario: &Scenario,
        conf: &str,
        binary: &Path,
        name: &'static str,
        origin: u16,
        threads: usize,
    ) -> Result<BenchServer, String> {
        let conf = conf.replace("worker_processes 1;", &format!("worker_processes {threads};"));
        let launch = Launch::Processor(if threads == 1 { "0" } else { "0-1" });
        BenchServer::with(scenario, &conf, binary, name, origin, launch)
    }

    /// Upstream server, on the client's CPU.
    pub fn origin(scenario: &Scenario, conf: &str, binary: &Path) -> Result<BenchServer, String> {
        BenchServer::with(scenario, conf, binary, "origin", 0, Launch::Processor("1"))
    }

    /// HAProxy
    pub fn haproxy(scenario: &Scenario, conf: &str, binary: &Path, origin: u16) -> Result<BenchServer, String> {
        BenchServer::with(scenario, conf, binary, "haproxy", origin, Launch::Processor("0"))
    }

    /// h2o
    pub fn h2o(scenario: &Scenario, conf: &str, binary: &Path) -> Result<BenchServer, String> {
        BenchServer::with(scenario, conf, binary, "h2o", 0, Launch::Processor("0"))
    }

    /// php-fpm on the client's CPU; its script is in the folder `html`.
    pub fn php(conf: &str) -> Result<BenchServer, String> {
        let sbin = fs::read_dir("/usr/sbin").map_err(|e| e.to_string())?.flatten();
        let is_fpm =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"));
        let program = sbin.map(|entry| entry.path()).find(is_fpm).ok_or("php-fpm is not installed")?;
        let folder = std::env::temp_dir().join(format!("bench-{}-php", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        let port = testkit::free_port();
        let file = folder.join("php-fpm.conf");
        fs::write(&file, conf.replace("@PORT@", &port.to_string())).map_err(|e| e.to_string())?;
        let child = Command::new("taskset")
            .args(["-c", "1"])
            .arg(program)
            .args(["-F", "-R", "-n", "-p"])
            .arg(&folder)
            .arg("-y")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("php-fpm: {e}"))?;
        let server = BenchServer { name: "php-fpm", port, child, folder };
        server.listens()?;
        Ok(server)
    }

    /// Floor program; `None`: no C compiler.
    pub fn floor(scenario: &Scenario, arguments: &[String], origin: u16) -> Result<Option<BenchServer>, String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/floor/floor.c");
        let folder = std::env::temp_dir().join(format!("bench-{}-floor", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        let program = folder.join("floor");
        match Command::new("cc").arg("-O2").arg("-o").arg(&program).arg(&source).status() {
            Ok(status) if status.success() => {}
            Ok(_) => return Err("benches/floor/floor.c does not compile".into()),
            Err(_) => return Ok(None),
        }
        let port = testkit::free_port();
        let child = Command::new("taskset")
            .args(["-c", "0"])
            .arg(&program)
            .arg(port.to_string())
            .args(arguments.iter().map(|word| word.replace("ORIGIN", &origin.to_string())))
            .stdin(Stdio::null())
            .spawn()
            .map_err(|e| format!("floor: {e}"))?;
        let server = BenchServer { name: "floor", port, child, folder };
        server.listens()?;
        server.ask(scenario)?;
        Ok(Some(server))
    }

    fn with(
        scenario: &Scenario,
        conf: &str,
        binary: &Path,
        name: &'static str,
        origin: u16,
        launch: Launch,
    ) -> Result<BenchServer, String> {
        let folder = std::env::temp_dir().join(format!("bench-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        write_files(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        if scenario.tls {
            write_certificate(&folder)?;
        }
        let port = testkit::free_port();
        let file = folder.join("server.conf");
        let conf = conf.replace("@PORT@", &port.to_string()).replace("@ORIGIN@", &origin.to_string());
        fs::write(&file, conf).map_err(|e| e.to_string())?;
        // Arguments of the test, and of the run.
        let (arguments, test, errors): (Vec<PathBuf>, &str, Vec<PathBuf>) = match name {
            "haproxy" => (vec!["-f".into(), file, "-db".into()], "-c", Vec::new()),
            "h2o" => (vec!["-c".into(), file], "-t", Vec::new()),
            _ => (
                vec!["-p".into(), folder.clone(), "-c".into(), file],
                "-t",
                vec!["-e".into(), folder.join("error.log")],
            ),
        };
        let test = Command::new(binary)
            .current_dir(&folder)
            .args(&arguments)
            .arg(test)
            .output()
            .map_err(|e| format!("{name}: {e}"))?;
        if !test.status.success() {
            let words = String::from_utf8_lossy(&test.stderr);
            let first = words.lines().find(|line| line.contains("[emerg]")).unwrap_or("no reason given");
            let first = first.replace(&*folder.to_string_lossy(), "").replace(&format!("{name}: "), "");
            let _ = fs::remove_dir_all(&folder);
            return Err(format!("{name} refuses the configuration: {}", first.trim()));
        }
        let mut command = launch.command(binary);
        command.current_dir(&folder).args(&arguments).args(&errors).stdin(Stdio::null()).stdout(Stdio::null());
        if matches!(launch, Launch::Lackey) {
            command.args(["-g", "master_process off;"]);
        }
        let child = command.spawn().map_err(|e| format!("{name}: {e}"))?;
        let server = BenchServer { name, port, child, folder };
        if matches!(launch, Launch::Lackey) {
            // It stops where its trace is not read.
            return Ok(server);
        }
        if scenario.session == Some(super::sessions::SessionKind::Udp) {
            server.hears()?;
            return Ok(server);
        }
        server.listens()?;
        // Workers start after the socket listens.
        if scenario.protocol().is_none() && scenario.session.is_none() && !scenario.tls {
            server.ask(scenario)?;
        }
        Ok(server)
    }

    /// Waits until the server accepts connections.
    pub fn listens(&self) -> Result<(), String> {
        let until = Instant::now() + 6 * PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if Instant::now() > until {
                return Err(format!("{} does not listen", self.name));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until a datagram and its reply pass.
    fn hears(&self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        let socket = UdpSocket::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        socket.set_read_timeout(Some(Duration::from_millis(50))).map_err(|e| e.to_string())?;
        while socket.send_to(b"x", ("127.0.0.1", self.port)).and_then(|_| socket.recv(&mut [0; 8])).is_err() {
            if Instant::now() > until {
                return Err(format!("{} passes no datagrams on", self.name));
            }
        }
        Ok(())
    }

    /// Includes children.
    pub fn processes(&self) -> Vec<u32> {
        let main = self.child.id();
        let text = fs::read_to_string(format!("/proc/{main}/task/{main}/children")).unwrap_or_default();
        std::iter::once(main).chain(text.split_whitespace().filter_map(|word| word.parse().ok())).collect()
    }

    /// User and system time of all processes.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_of_each().iter().map(|(_, ns)| ns).sum()
    }

    /// The started process first.
    pub fn cpu_of_each(&self) -> Vec<(u32, u64)> {
        let thread_ns = |path: PathBuf| {
            let text = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
            text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
        };
        let process_ns = |pid: u32| -> u64 {
            let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
            threads.flatten().map(|thread| thread_ns(thread.path())).sum()
        };
        self.processes().into_iter().map(|pid| (pid, process_ns(pid))).collect()
    }

    /// Resident memory of each process, in bytes; pages that several share are counted for each.
    pub fn resident(&self) -> Vec<u64> {
        let process = |pid: u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
            line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        self.processes().into_iter().map(process).collect()
    }

    /// Proportional set size of all processes, in bytes.
    pub fn memory(&self) -> u64 {
        let process = |pid: u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with("Pss:")).unwrap_or_default();
            line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        self.processes().into_iter().map(process).sum()
    }

    pub fn ask(&self, scenario: &Scenario) -> Result<ServerAnswer, String> {
        let mut stream = self.connect()?;
        let mut request = format!("GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n", scenario.path);
        for header in &scenario.headers {
            request.push_str(&format!("{header}\r\n"));
        }
        request.push_str("\r\n");
        exchange_request(&mut stream, request.as_bytes()).map_err(|e| format!("{}: {e}", self.name))
    }

    /// Uses Tidegate's client and the scenario's protocol.
    pub fn ask_by(&self, client: &Path, scenario: &Scenario) -> Result<ServerAnswer, String> {
        let mut bench = Command::new(client);
        bench.args(["bench", "--show"]).args(scenario.protocol()).arg(scenario.url(self.port));
        let output = bench.output().map_err(|e| format!("{}: {e}", client.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let after = |mark: &str| text.split_whitespace().skip_while(|word| *word != mark).nth(1);
        let (status, length) =
            (after("status").and_then(|w| w.parse().ok()), after("body").and_then(|w| w.parse().ok()));
        let hash = after("hash").and_then(|w| u64::from_str_radix(w, 16).ok());
        match (status, length, hash) {
            (Some(status), Some(length), Some(hash)) => Ok(ServerAnswer { status, length, hash }),
            _ => Err(format!("{}: {}", self.name, String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// Returns the address at which a program lies in the started process.
    pub fn address_of(&self, program: &Path) -> Result<u64, String> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.child.id())).map_err(|e| e.to_string())?;
        let program = program.canonicalize().map_err(|e| e.to_string())?;
        let line = maps.lines().find(|line| line.ends_with(&*program.to_string_lossy()));
        let begin = line.and_then(|line| line.split('-').next()).and_then(|word| u64::from_str_radix(word, 16).ok());
        begin.ok_or(format!("{} does not run", program.display()))
    }

    /// By name, to the started process.
    pub fn signal(&self, name: &str) -> Result<(), String> {
        let pid = self.child.id().to_string();
        let status =
            Command::new("kill").args([&format!("-{name}"), &pid]).status().map_err(|e| format!("kill: {e}"))?;
        if status.success() { Ok(()) } else { Err(format!("{} is gone", self.name)) }
    }

    /// A file for the bodies of POSTs.
    pub fn body_file(&self, length: usize) -> Result<PathBuf, String> {
        let file = self.folder.join("post.bin");
        fs::write(&file, filler(length)).map_err(|e| format!("{}: {e}", file.display()))?;
        Ok(file)
    }

    /// Working directory; files are in `html`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn connect(&self) -> Result<TcpStream, String> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(|e| format!("{}: {e}", self.name))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
        Ok(stream)
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Sends a request and returns the response, with a chunked or compressed body decoded.
pub fn exchange_request(stream: &mut TcpStream, request: &[u8]) -> Result<ServerAnswer, String> {
    stream.write_all(request).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    let mut buf = [0; 16 * 1024];
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or("no status")?;
            let rest = &bytes[end + 4..];
            let whole = if field("transfer-encoding:") == Some("chunked") {
                unchunk(rest)
            } else {
                let length: usize = field("content-length:").unwrap_or("").parse().map_err(|_| "no Content-Length")?;
                rest.get(..length).map(<[u8]>::to_vec)
            };
            if let Some(mut body) = whole {
                if field("content-encoding:") == Some("gzip") {
                    body = gunzip(&body)?;
                }
                // FNV-1a
                let hash = body
                    .iter()
                    .fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
                return Ok(ServerAnswer { status, length: body.len(), hash });
            }
        }
        match stream.read(&mut buf).map_err(|e| e.to_string())? {
            0 => return Err("closed before the answer was complete".into()),
            n => bytes.extend_from_slice(&buf[..n]),
        }
    }
}

/// Returns `None` for an incomplete body.
fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let line = rest.windows(2).position(|w| w == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        rest = rest.get(line + 2..)?;
        out.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
        if size == 0 {
            return Some(out);
        }
    }
}

fn gunzip(body: &[u8]) -> Result<Vec<u8>, String> {
    let mut child = Command::new("gzip")
        .arg("-dc")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .map_err(|e| format!("gzip: {e}"))?;
    let (mut stdin, body) = (child.stdin.take().ok_or("gzip has no input")?, body.to_vec());
    let writer = std::thread::spawn(move || stdin.write_all(&body));
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let _ = writer.join();
    if output.status.success() { Ok(output.stdout) } else { Err("the body is no gzip".into()) }
}

/// A certificate that signs itself, with a key on P-256.
fn write_certificate(folder: &Path) -> Result<(), String> {
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"])
        .args(["-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(folder)
        .output()
        .map_err(|e| format!("openssl: {e}"))?;
    if output.status.success() { Ok(()) } else { Err("openssl makes no certificate".into()) }
}

/// Page of 30 KB for compression: one of the documentation's, as `cargo xtask book` wrote it. Words drawn at random would
/// favour one library's matches or another's.
const PAGE: &[u8] = include_bytes!("../../../../benches/page.html");

/// Writes the scenarios' files, with equal bytes on every machine.
fn write_files(folder: &Path) -> std::io::Result<()> {
    let html = folder.join("html");
    fs::create_dir_all(html.join("assets"))?;
    fs::write(html.join("index.html"), filler(612))?;
    fs::write(html.join("1k.html"), filler(1024))?;
    fs::write(html.join("1k.php"), "<?php header('Content-Length: 1024'); echo str_repeat('tidegate', 128);")?;
    fs::write(html.join("5k.html"), filler(5120))?;
    fs::write(html.join("500k.bin"), filler(500_000))?;
    for (name, length) in super::sizes::size_files() {
        fs::write(html.join(name), filler(length))?;
    }
    fs::write(html.join("assets/5k.css"), filler(5120))?;
    fs::write(html.join("page.html"), PAGE)?;
    let status = Command::new("gzip").args(["-9", "-n", "-k"]).arg(html.join("page.html")).status()?;
    if status.success() { Ok(()) } else { Err(std::io::Error::other("gzip failed")) }
}

fn filler(length: usize) -> Vec<u8> {
    const WORDS: [&str; 8] = ["tide ", "gate ", "river ", "lock ", "harbour ", "water ", "level ", "boat\n"];
    let mut state = 1_u32;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        out.extend_from_slice(WORDS[(state >> 29) as usize].as_bytes());
    }
    out.truncate(length);
    out
}
