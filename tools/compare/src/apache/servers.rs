//! A real Apache and Tidegate over the same folder, and their answers.

use super::pool;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything takes; only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(15);
const GLANCE: Duration = Duration::from_millis(5);

const MODULES: &str = "/usr/lib/apache2/modules";

/// Modules of a usual installation.
const LOADED: &[&str] = &[
    "mpm_prefork",
    "authn_core",
    "authn_file",
    "auth_basic",
    "authz_core",
    "authz_host",
    "authz_user",
    "authz_groupfile",
    "access_compat",
    "alias",
    "dir",
    "mime",
    "rewrite",
    "headers",
    "expires",
    "setenvif",
    "env",
    "cgi",
    "autoindex",
    "filter",
    "negotiation",
    "deflate",
];

/// A running server, which ends with the value.
pub struct RunningServer {
    child: Child,
    pub port: u16,
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let until = Instant::now() + PATIENCE;
        while self.child.try_wait().ok().flatten().is_none() && Instant::now() < until {
            std::thread::park_timeout(GLANCE);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes the files that both servers serve; `folders`: texts of .htaccess files.
///
/// # Errors
/// A file cannot be written.
pub fn lay_out(dir: &Path, folders: &[(&str, String)]) -> Result<(), String> {
    let say = |e: std::io::Error| format!("{}: {e}", dir.display());
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir.join("logs")).map_err(say)?;
    for (name, content) in pool::TREE {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap_or(dir)).map_err(say)?;
        fs::write(&path, content).map_err(say)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(say)?;
    }
    symlink("inner.txt", dir.join("html/sub/link.txt")).map_err(say)?;
    for (folder, text) in folders {
        fs::write(dir.join(folder).join(".htaccess"), text).map_err(say)?;
    }
    Ok(())
}

/// Starts Apache with a virtual host; `None`: it refuses the configuration.
///
/// # Errors
/// Apache does not start for another reason.
pub fn start_apache(program: &Path, dir: &Path, host: &str) -> Result<Option<RunningServer>, String> {
    let port = testkit::free_port();
    let shown = dir.display();
    let mut conf = format!(
        "ServerRoot {shown}\nPidFile {shown}/logs/apache.pid\nErrorLog {shown}/logs/apache.log\nLogLevel warn\n\
         Listen 127.0.0.1:{port}\nServerName localhost\nStartServers 2\nMutex posixsem\nTypesConfig {shown}/conf/mime.types\n\
         User www-data\nGroup www-data\n"
    );
    for module in LOADED {
        let file = format!("{MODULES}/mod_{module}.so");
        if Path::new(&file).exists() {
            conf += &format!("LoadModule {module}_module {file}\n");
        }
    }
    // Names that begin with ".ht" are hidden in every installation. Scripts are those of the operator.
    conf += &format!(
        "<FilesMatch \"^\\.ht\">\nRequire all denied\n</FilesMatch>\n<FilesMatch \"\\.php$\">\nSetHandler cgi-script\n</FilesMatch>\n\
         <Directory {shown}>\nOptions FollowSymLinks ExecCGI\n</Directory>\n<VirtualHost 127.0.0.1:{port}>\n{host}</VirtualHost>\n"
    );
    let path = dir.join("conf/apache.conf");
    fs::write(&path, conf).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut command = Command::new(program);
    command.arg("-f").arg(&path).arg("-DFOREGROUND");
    // Apache sends signals to its process group.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(|e| format!("{}: {e}", program.display()))?;
    let mut running = RunningServer { child, port };
    let until = Instant::now() + PATIENCE;
    while !dir.join("logs/apache.pid").exists() {
        if running.child.try_wait().ok().flatten().is_some() {
            return Ok(None);
        }
        if Instant::now() > until {
            return Err("Apache does not start".into());
        }
        std::thread::park_timeout(GLANCE);
    }
    Ok(Some(running))
}

/// Result of a translation.
pub enum ApacheTranslation {
    Made(String),
    /// There is no output.
    Refused,
}

/// Translates files with `tidegate convert apache`.
///
/// # Errors
/// The program cannot run.
pub fn translate_files(ours: &Path, files: &[PathBuf]) -> Result<ApacheTranslation, String> {
    let output = Command::new(ours)
        .args(["convert", "apache"])
        .args(files)
        .output()
        .map_err(|e| format!("{}: {e}", ours.display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(match output.status.code() {
        Some(0 | 1) => ApacheTranslation::Made(text(&output.stdout)),
        _ => ApacheTranslation::Refused,
    })
}

/// Starts Tidegate with a configuration in which `@port` is the server's port.
///
/// # Errors
/// Tidegate refuses the configuration, with its message.
pub fn start_tidegate(ours: &Path, dir: &Path, conf: &str, backend: u16) -> Result<RunningServer, String> {
    let port = testkit::free_port();
    let conf = conf.replace("@port", &port.to_string()).replace("@scripts", &backend.to_string());
    let path = dir.join("conf/nginx.conf");
    fs::write(&path, conf).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut child = Command::new(ours)
        .args(["-p".as_ref(), dir.as_os_str(), "-c".as_ref(), path.as_os_str()])
        .args(["-e".as_ref(), dir.join("logs/error.log").as_os_str()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{}: {e}", ours.display()))?;
    let until = Instant::now() + PATIENCE;
    loop {
        if child.try_wait().ok().flatten().is_some() {
            let mut words = String::new();
            if let Some(mut stderr) = child.stderr.take() {
                let _ = stderr.read_to_string(&mut words);
            }
            return Err(format!("Tidegate does not start: {words}"));
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok_and(|s| s.local_addr().ok() != s.peer_addr().ok()) {
            return Ok(RunningServer { child, port });
        }
        if Instant::now() > until {
            let _ = child.kill();
            return Err("Tidegate does not start".into());
        }
        std::thread::park_timeout(GLANCE);
    }
}

/// Compared parts of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenAnswer {
    pub status: u16,
    pub location: Option<String>,
    pub fields: Vec<String>,
    pub body: String,
}

/// Fields that depend on rules.
const FIELDS: &[&str] = &["cache-control", "vary", "www-authenticate", "content-type"];

/// Sends a request of the pool.
///
/// # Errors
/// The connection fails.
pub fn ask_server(port: u16, request: &str) -> Result<SeenAnswer, String> {
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut fields = String::new();
    for word in words {
        let (name, value) = word.split_once(':').ok_or_else(|| format!("\"{word}\" is no field"))?;
        match (name, value) {
            ("Authorization", "joe") => fields += "Authorization: Basic am9lOnNlY3JldA==\r\n",
            ("Authorization", "anna") => fields += "Authorization: Basic YW5uYTpzZWNyZXQ=\r\n",
            ("Authorization", _) => fields += "Authorization: Basic am9lOndyb25n\r\n",
            _ => fields += &format!("{name}: {value}\r\n"),
        }
    }
    let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
    let say = |e: std::io::Error| format!("{request}: {e}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(say)?;
    let _ = stream.set_read_timeout(Some(PATIENCE));
    write!(stream, "{method} {target} HTTP/1.0\r\nHost: localhost:{port}\r\n{fields}{length}\r\n").map_err(say)?;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    Ok(seen(&String::from_utf8_lossy(&answer), port))
}

fn seen(answer: &str, port: u16) -> SeenAnswer {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let lines = || head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let own_page = body.contains("<hr>") || body.contains("<!DOCTYPE HTML");
    let kept = |name: &str| match name {
        "content-type" => status == 200 && !own_page,
        name => name.starts_with("x-") || FIELDS.contains(&name),
    };
    let mut fields: Vec<String> = lines()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, _)| kept(name))
        .map(|(name, value)| format!("{name}: {}", value.replace("; ", ";").replace(", ", ",").to_ascii_lowercase()))
        .collect();
    fields.sort();
    let location = lines().find(|(name, _)| name.eq_ignore_ascii_case("location"));
    SeenAnswer {
        status,
        location: location.map(|(_, value)| value.replace(&format!(":{port}"), "")),
        fields,
        // Pages of errors and listings differ between the servers.
        body: if own_page { String::new() } else { body.to_string() },
    }
}
