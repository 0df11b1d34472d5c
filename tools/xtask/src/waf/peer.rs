//! A server with a firewall, for `--pairs`: its configuration, its processes, their time and memory.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Until a server listens or answers; compiling the rules takes seconds on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program that is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerProgram {
    /// nginx with a module: the connector of ModSecurity.
    Nginx {
        binary: PathBuf,
        module: PathBuf,
    },
    Tidegate {
        binary: PathBuf,
    },
    /// Another program, run as `PROGRAM PORT RULES_FILE FOLDER BACKEND_PORT`. It serves FOLDER at 127.0.0.1:PORT, passes `/form` on
    /// to the backend, and has no firewall if RULES_FILE is empty.
    Other {
        name: String,
        binary: PathBuf,
    },
}

impl PeerProgram {
    /// Name in tables.
    pub fn name(&self) -> &str {
        match self {
            PeerProgram::Nginx { .. } => "nginx",
            PeerProgram::Tidegate { .. } => "tidegate",
            PeerProgram::Other { name, .. } => name,
        }
    }

    /// File that the program needs and that does not exist.
    pub fn missing_file(&self) -> Option<&Path> {
        let files: Vec<&Path> = match self {
            PeerProgram::Nginx { binary, module } => vec![binary, module],
            PeerProgram::Tidegate { binary } | PeerProgram::Other { binary, .. } => vec![binary],
        };
        files.into_iter().find(|file| !file.is_file())
    }
}

/// Rules of a started server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerRules<'a> {
    /// No firewall.
    Off,
    /// The rules of a checkout of CRS, at this paranoia level.
    Core { folder: &'a Path, paranoia: u8 },
}

impl PeerRules<'_> {
    /// Name in tables.
    pub fn name(self) -> String {
        match self {
            PeerRules::Off => "no rules".into(),
            PeerRules::Core { paranoia, .. } => format!("paranoia {paranoia}"),
        }
    }
}

/// A running server, on processor 0 alone.
pub struct FirewallPeer {
    pub name: String,
    port: u16,
    child: Child,
    folder: PathBuf,
}

/// Nanoseconds on a processor of each thread: a sum over all would lose those of threads that end.
pub struct ThreadTimes(HashMap<u32, u64>);

impl ThreadTimes {
    /// Nanoseconds since `earlier`, without those of threads that have ended.
    pub fn since(&self, earlier: &ThreadTimes) -> u64 {
        let spent = |(thread, now): (&u32, &u64)| now.saturating_sub(earlier.0.get(thread).copied().unwrap_or(0));
        self.0.iter().map(spent).sum()
    }
}

impl FirewallPeer {
    /// Writes a configuration and starts a server with one worker. `backend`: port of the server behind `/form`.
    ///
    /// # Errors
    /// The server cannot be run, ends, or does not listen in time.
    pub fn start(program: &PeerProgram, rules: PeerRules<'_>, backend: u16) -> Result<FirewallPeer, String> {
        let port = testkit::free_port();
        let folder = std::env::temp_dir().join(format!("waf-pairs-{}-{port}", std::process::id()));
        let html = folder.join("html");
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(&html).map_err(failed)?;
        std::fs::write(html.join("index.html"), "x".repeat(600)).map_err(failed)?;
        let rules_file = folder.join("rules.conf");
        if let PeerRules::Core { folder: core, paranoia } = rules {
            std::fs::write(&rules_file, rules_text(core, paranoia)?).map_err(failed)?;
        }
        let has_rules = rules != PeerRules::Off;
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]);
        match program {
            PeerProgram::Nginx { binary, module } => {
                let module = if has_rules { format!("load_module {};\n", module.display()) } else { String::new() };
                write_server(&folder, &module, has_rules, port, backend).map_err(failed)?;
                command.arg(binary).arg("-p").arg(&folder).arg("-c").arg(folder.join("server.conf"));
            }
            PeerProgram::Tidegate { binary } => {
                write_server(&folder, "", has_rules, port, backend).map_err(failed)?;
                command.arg(binary).arg("-p").arg(&folder).arg("-c").arg(folder.join("server.conf"));
            }
            PeerProgram::Other { binary, .. } => {
                let rules_file = if has_rules { rules_file.as_path() } else { Path::new("") };
                command.arg(binary).arg(port.to_string()).arg(rules_file).arg(&html).arg(backend.to_string());
            }
        }
        let log = std::fs::File::create(folder.join("output.log")).map_err(failed)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("taskset for {}: {error}", program.name()))?;
        let mut peer = FirewallPeer { name: program.name().into(), port, child, folder };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > until || peer.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                let words = std::fs::read_to_string(peer.folder.join("output.log")).unwrap_or_default();
                return Err(format!("{} does not start: {}", peer.name, words.lines().last().unwrap_or("no message")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(peer)
    }

    /// Opens a connection, whose reads end with an error after [`PATIENCE`].
    pub fn connect(&self) -> Result<TcpStream, String> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(|error| format!("{}: {error}", self.name))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(stream)
    }

    /// Sends a request and reads the response to its end, which `Content-Length` says; returns its status.
    pub fn ask(&self, stream: &mut TcpStream, request: &[u8]) -> Result<u16, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.name);
        stream.write_all(request).map_err(failed)?;
        let head = read_message(stream).map_err(failed)?;
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        status.ok_or_else(|| format!("{}: no status", self.name))
    }

    /// The started process and its children.
    fn processes(&self) -> Vec<u32> {
        let main = self.child.id();
        let text = std::fs::read_to_string(format!("/proc/{main}/task/{main}/children")).unwrap_or_default();
        std::iter::once(main).chain(text.split_whitespace().filter_map(|word| word.parse().ok())).collect()
    }

    /// Time of all threads of all processes so far.
    pub fn thread_times(&self) -> ThreadTimes {
        let mut times = HashMap::new();
        for pid in self.processes() {
            let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
            for thread in threads.into_iter().flatten().flatten() {
                let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
                let spent = text.split_whitespace().next().and_then(|word| word.parse().ok());
                if let (Some(id), Some(spent)) = (thread.file_name().to_str().and_then(|name| name.parse().ok()), spent)
                {
                    times.insert(id, spent);
                }
            }
        }
        ThreadTimes(times)
    }

    /// Memory of all processes in KB by the given lines of smaps_rollup, such as `Pss:`.
    fn memory_kb(&self, prefix: &str) -> Result<u64, String> {
        let kilobytes = self.processes().into_iter().map(|pid| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            let lines = text.lines().filter(|line| line.starts_with(prefix));
            lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum::<u64>()
        });
        match kilobytes.sum() {
            0 => Err(format!("{} has no memory", self.name)),
            sum => Ok(sum),
        }
    }

    /// Memory in KB that only one of the server's processes uses.
    pub fn private_kb(&self) -> Result<u64, String> {
        self.memory_kb("Private_")
    }

    /// Memory of all processes in KB, in which a page that a master and its worker share counts once.
    pub fn proportional_kb(&self) -> Result<u64, String> {
        self.memory_kb("Pss:")
    }
}

impl Drop for FirewallPeer {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Reads a message with `Content-Length` to its end; returns its head in lower case.
fn read_message(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 32 * 1024];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.and_then(|word| word.trim().parse().ok()).unwrap_or(0);
            let mut missing = (end + 4 + length).saturating_sub(bytes.len());
            while missing > 0 {
                let count = stream.read(&mut buffer)?;
                if count == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                missing = missing.saturating_sub(count);
            }
            return Ok(head);
        }
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
    }
}

/// Starts the server behind `/form`, in threads of this process: it reads a request with `Content-Length` and answers 200 with two
/// bytes. Returns its port.
///
/// # Errors
/// No port is free.
pub fn start_backend() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("backend: {error}"))?;
    let port = listener.local_addr().map_err(|error| format!("backend: {error}"))?.port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let response = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";
                while read_message(&mut stream).is_ok() && stream.write_all(response).is_ok() {}
            });
        }
    });
    Ok(port)
}

/// Writes the configuration that nginx and Tidegate read alike.
fn write_server(folder: &Path, module: &str, has_rules: bool, port: u16, backend: u16) -> std::io::Result<()> {
    let folder_text = folder.display();
    let firewall = format!("modsecurity on; modsecurity_rules_file {folder_text}/rules.conf;");
    let firewall = if has_rules { firewall.as_str() } else { "" };
    let conf = format!(
        "{module}worker_processes 1;\ndaemon off;\npid {folder_text}/pid;\nerror_log {folder_text}/error.log crit;\nevents {{ }}\n\
         http {{ access_log off; client_body_buffer_size 64k; keepalive_requests 100000; client_body_temp_path {folder_text}/body;\n\
         upstream backend {{ server 127.0.0.1:{backend}; keepalive 4; }}\n\
         server {{ listen 127.0.0.1:{port}; root {folder_text}/html; {firewall}\n\
         location = /form {{ proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }} }}\n"
    );
    std::fs::write(folder.join("server.conf"), conf)
}

/// The rules of a checkout with the engine on; bodies of responses are not read.
fn rules_text(folder: &Path, paranoia: u8) -> Result<String, String> {
    let folder = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
    let settings =
        super::SETTINGS.replace("DetectionOnly", "On").replace("SecResponseBodyAccess On", "SecResponseBodyAccess Off");
    let levels = format!(
        "SecAction \"id:900005,phase:1,nolog,pass,t:none,setvar:tx.blocking_paranoia_level={paranoia},\
         setvar:tx.detection_paranoia_level={paranoia}\"\n"
    );
    let setup = folder.join("crs-setup.conf.example");
    let rules = folder.join("rules/*.conf");
    Ok(format!("{settings}Include {}\n{levels}Include {}\n", setup.display(), rules.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_threads_that_end_is_left_out() {
        let earlier = ThreadTimes(HashMap::from([(1, 10), (2, 500)]));
        let later = ThreadTimes(HashMap::from([(1, 25), (3, 7)]));
        assert_eq!(later.since(&earlier), 22);
    }

    #[test]
    fn backend_answers_each_request_of_a_connection() {
        let port = start_backend().unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        for _ in 0..2 {
            stream.write_all(b"POST /form HTTP/1.1\r\nContent-Length: 3\r\n\r\na=b").unwrap();
            assert!(read_message(&mut stream).unwrap().starts_with("http/1.1 200 ok"));
        }
    }
}
