//! Starts and stops the measured processes: directory, ports, configuration files, processors.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use figures::rng::Rng;

use super::file::{Lab, LabServer};
use crate::interrupt;

/// Longest start, and longest end, of a server.
const START: Duration = Duration::from_secs(10);
const STOP: Duration = Duration::from_secs(5);

pub struct TestMachine {
    pub directory: PathBuf,
    cpus: Vec<usize>,
    values: BTreeMap<String, String>,
    ports: BTreeMap<String, u16>,
}

impl TestMachine {
    /// Chooses ports and resolves `@NAMES@`; writes nothing. Fails without a free port or on an unknown name.
    pub fn prepare(lab: &Lab, directory: &Path, base: &Path, cpus: &[usize]) -> Result<TestMachine, String> {
        let absolute = |p: &Path| std::path::absolute(p).unwrap_or_else(|_| p.to_path_buf());
        let directory = absolute(directory);
        let mut testbed = TestMachine {
            directory: directory.clone(),
            cpus: cpus.to_vec(),
            values: BTreeMap::new(),
            ports: BTreeMap::new(),
        };
        let base = if base.as_os_str().is_empty() { Path::new(".") } else { base };
        testbed.values.insert("DIR".into(), directory.display().to_string());
        testbed.values.insert("FILE".into(), absolute(base).display().to_string());
        testbed.values.insert("CPUS".into(), cpus.len().max(1).to_string());
        // Holds all listeners until every port is chosen, so that none repeats.
        let mut held = Vec::new();
        for server in lab.backends.iter().chain(&lab.servers) {
            for number in 1..=9 {
                let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("no free port: {e}"))?;
                let port = listener.local_addr().map_err(|e| e.to_string())?.port();
                held.push(listener);
                let name =
                    if number == 1 { format!("PORT:{}", server.name) } else { format!("PORT{number}:{}", server.name) };
                testbed.values.insert(name, port.to_string());
                if number == 1 {
                    testbed.ports.insert(server.name.clone(), port);
                }
            }
        }
        for server in lab.servers.iter().filter(|s| !s.backend.is_empty()) {
            let port = testbed.port(&server.backend);
            testbed.values.insert(format!("PORT:{}", server.name), port.to_string());
            testbed.ports.insert(server.name.clone(), port);
        }
        drop(held);
        testbed.check(lab)?;
        Ok(testbed)
    }

    pub fn build(&self, lab: &Lab) -> Result<(), String> {
        fs::create_dir_all(&self.directory).map_err(|e| format!("{}: {e}", self.directory.display()))?;
        let testbed = self;
        for (name, content) in &lab.files {
            testbed.write(name, content, "")?;
        }
        for server in lab.backends.iter().chain(&lab.servers) {
            for (name, content) in &server.files {
                testbed.write(name, content, &server.name)?;
            }
        }
        for command in &lab.setup {
            let words: Vec<String> = split_command(&testbed.fill(command, ""));
            let Some((program, args)) = words.split_first() else { continue };
            let said = self.directory.join("setup.log");
            let file = fs::File::create(&said).map_err(|e| format!("{}: {e}", said.display()))?;
            let mut setup = self::program_command(program, args);
            setup.current_dir(&self.directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
            setup.process_group(0);
            let mut child = spawn_on(&[], setup).map_err(|e| format!("setup `{command}`: {e}"))?;
            interrupt::started(child.id());
            let status = loop {
                if let Some(status) = child.try_wait().map_err(|e| format!("setup `{command}`: {e}"))? {
                    break status;
                }
                if interrupt::told() {
                    // Includes its descendants; not waited for.
                    let group = rustix::process::Pid::from_child(&child);
                    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
                std::thread::sleep(Duration::from_millis(10));
            };
            interrupt::ended(child.id());
            if interrupt::told() {
                return Ok(());
            }
            if !status.success() {
                let said = fs::read_to_string(&said).unwrap_or_default();
                return Err(format!("setup `{command}`: {}", said.trim()));
            }
        }
        Ok(())
    }

    /// Fails on an unknown upper-case `@NAMES@`, which would otherwise reach the server.
    fn check(&self, lab: &Lab) -> Result<(), String> {
        let texts = |s: &LabServer| -> Vec<String> {
            s.files.iter().flat_map(|(name, text)| [name.clone(), text.clone()]).chain([s.command.clone()]).collect()
        };
        let own = lab.backends.iter().chain(&lab.servers).map(|s| (s.name.as_str(), texts(s)));
        let common = lab.files.iter().flat_map(|(name, text)| [name.clone(), text.clone()]).chain(lab.setup.clone());
        for (server, texts) in own.chain([("", common.collect())]) {
            for text in &texts {
                if let Some(name) = self.unknown(text, server) {
                    let place =
                        if server.is_empty() { "files or setup".to_string() } else { format!("server `{server}`") };
                    return Err(match name.split_once(':') {
                        Some(_) => format!("{place}: @{name}@ names no server and no backend"),
                        None => format!(
                            "{place}: @{name}@ is not a placeholder; there are @DIR@, @FILE@, @CPUS@, @PORT:name@, and for a server \
                             @PORT@ and @PORT2@ to @PORT9@"
                        ),
                    });
                }
            }
        }
        Ok(())
    }

    fn unknown(&self, text: &str, server: &str) -> Option<String> {
        let mut rest = text;
        while let Some(start) = rest.find('@') {
            rest = &rest[start + 1..];
            let end = rest.find('@')?;
            let name = &rest[..end];
            let word = name.split(':').next().unwrap_or("");
            let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            // A host and its port (`me@HOST:25`) is no placeholder.
            let placeholder = word.starts_with(|c: char| c.is_ascii_uppercase())
                && word.chars().all(is_name)
                && (word == name || word.starts_with("PORT"));
            if placeholder && name.len() < 80 && !name.contains('\n') {
                let key = if word.starts_with("PORT") && !name.contains(':') {
                    format!("{name}:{server}")
                } else {
                    name.into()
                };
                if !self.values.contains_key(&key) {
                    return Some(name.into());
                }
                rest = &rest[end + 1..];
            }
        }
        None
    }

    pub fn port(&self, server: &str) -> u16 {
        self.ports.get(server).copied().unwrap_or(0)
    }

    pub fn fill(&self, text: &str, server: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find('@') {
            let after = &rest[start + 1..];
            let name = after.split('@').next().unwrap_or("");
            let own =
                if name.starts_with("PORT") && !name.contains(':') { format!("{name}:{server}") } else { name.into() };
            out.push_str(&rest[..start]);
            match self.values.get(&own).filter(|_| after.len() > name.len()) {
                Some(value) => {
                    out.push_str(value);
                    rest = &after[name.len() + 1..];
                }
                None => {
                    out.push('@');
                    rest = after;
                }
            }
        }
        out + rest
    }

    fn write(&self, name: &str, content: &str, server: &str) -> Result<(), String> {
        let name = self.fill(name, server);
        let path = self.directory.join(&name);
        if Path::new(&name).is_absolute() || name.split('/').any(|p| p == "..") {
            return Err(format!("file `{name}` is outside of the experiment's directory"));
        }
        let wrong = |e: std::io::Error| format!("{}: {e}", path.display());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(wrong)?;
        }
        match content.strip_prefix("size:").map(figures::units::parse_count) {
            Some(Some(size)) => {
                let mut rng = Rng::new(size as u64);
                let bytes: Vec<u8> = (0..size as u64).map(|_| rng.bits() as u8).collect();
                fs::write(&path, bytes).map_err(wrong)
            }
            _ => fs::write(&path, self.fill(content, server)).map_err(wrong),
        }
    }

    /// Starts a server on its processors and waits until it listens. Errors quote its standard error.
    pub fn start(&self, server: &LabServer) -> Result<RunningServer, String> {
        let words = split_command(&self.fill(&server.command, &server.name));
        let (program, args) = words.split_first().ok_or_else(|| format!("{}: no command", server.name))?;
        let log = self.directory.join(format!("{}.log", server.name));
        let file = fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let errors = file.try_clone().map_err(|e| e.to_string())?;
        let mut command = self::program_command(program, args);
        command.current_dir(&self.directory).stdin(Stdio::null()).stdout(file).stderr(errors);
        // A separate process group, so that children which outlive it end with it.
        command.process_group(0);
        let child = spawn_on(&self.cpus, command).map_err(|e| format!("{program}: {e}"))?;
        interrupt::started(child.id());
        let pid = child.id();
        let mut running =
            RunningServer { name: server.name.clone(), port: self.port(&server.name), pid, child: Some(child) };
        let begin = Instant::now();
        loop {
            if TcpStream::connect(("127.0.0.1", running.port)).is_ok() {
                return Ok(running);
            }
            let ended = running.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if interrupt::told() {
                return Err(format!("{}: stopped before it listened", server.name));
            }
            if ended.is_some() || begin.elapsed() > START {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let said: Vec<&str> = said.lines().rev().take(5).collect();
                let how = if ended.is_some() { "ended at once" } else { "does not listen" };
                let said = said.into_iter().rev().collect::<Vec<_>>().join("\n");
                return Err(format!("{} {how}\n{said}", server.name));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Starts a command on these processors, inherited from the starting thread. It receives a signal when this thread
/// ends, so that a killed lab leaves no servers.
fn spawn_on(cpus: &[usize], mut command: Command) -> std::io::Result<Child> {
    net::process::end_with_parent(&mut command);
    let own = rustix::thread::sched_getaffinity(None);
    if !cpus.is_empty() {
        let mut set = rustix::thread::CpuSet::new();
        cpus.iter().for_each(|c| set.set(*c));
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    let child = command.spawn();
    if let Ok(own) = own {
        let _ = rustix::thread::sched_setaffinity(None, &own);
    }
    child
}

/// Splits a command; quotes keep white space.
pub fn split_command(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut open) = (Vec::new(), String::new(), None, false);
    for c in text.chars() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            (c, Some(_)) => word.push(c),
            ('\'' | '"', None) => (quote, open) = (Some(c), true),
            (c, None) if c.is_whitespace() => {
                if open || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                open = false;
            }
            (c, None) => word.push(c),
        }
    }
    if open || !word.is_empty() {
        words.push(word);
    }
    words
}

pub fn is_installed(command: &str) -> bool {
    let Some(program) = split_command(command).into_iter().next() else { return false };
    if program.contains('/') {
        return program.starts_with('@') || Path::new(&program).exists();
    }
    find(&program).is_some()
}

/// Finds a program; `tidegate` is this executable.
fn find(program: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok().filter(|exe| exe.file_name().is_some_and(|name| name == program));
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers are often outside of users' PATH.
    let places = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from));
    own.or_else(|| places.into_iter().map(|p| p.join(program)).find(|p| p.is_file()))
}

pub fn program_command(name: &str, args: &[String]) -> Command {
    let file = if name.contains('/') { None } else { find(name) };
    let mut command = Command::new(file.unwrap_or_else(|| name.into()));
    command.args(args);
    command
}

pub struct RunningServer {
    pub name: String,
    pub port: u16,
    pid: u32,
    /// `None` for a backend as server, which its starter stops.
    child: Option<Child>,
}

impl RunningServer {
    pub fn backend(name: &str, backend: &RunningServer) -> RunningServer {
        RunningServer { name: name.into(), port: backend.port, pid: backend.pid, child: None }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Terminates it; kills its group if it does not end.
    fn stop(&mut self) {
        use rustix::process::{Pid, Signal, kill_process, kill_process_group};
        let (Some(child), Some(pid)) = (&mut self.child, Pid::from_raw(self.pid as i32)) else { return };
        let _ = kill_process(pid, Signal::TERM);
        let begin = Instant::now();
        while begin.elapsed() < STOP {
            if matches!(child.try_wait(), Ok(Some(_))) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = child.wait();
        interrupt::ended(self.pid);
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::file::read_lab;

    #[test]
    fn commands_are_split_like_a_shell_would() {
        assert_eq!(split_command("a  b 'c d' \"e'f\" ''"), ["a", "b", "c d", "e'f", ""]);
        assert!(is_installed("sh -c x") && !is_installed("no-such-program-here") && !is_installed(""));
    }

    #[test]
    fn substitutions_and_files() {
        let directory = std::env::temp_dir().join(format!("lab-test-{}", std::process::id()));
        let lab = read_lab(
            "title='t'\nfiles={'html/5kb'='size:5120','x.txt'='at @DIR@ mail@example'}\nsetup=['mkdir made']\n\
             [[backend]]\nname='b'\ncommand='b'\n[[server]]\nname='a'\ncommand='a'\n\
             [[workload]]\nname='w'\nload='rate'\npath='/'\nvalues=[1]\n",
        )
        .unwrap();
        let testbed = TestMachine::prepare(&lab, &directory, Path::new("."), &[0]).unwrap();
        assert!(!directory.exists(), "nothing is written yet");
        testbed.build(&lab).unwrap();
        assert_eq!(fs::metadata(directory.join("html/5kb")).unwrap().len(), 5120);
        assert!(directory.join("made").is_dir());
        let port = testbed.port("b");
        assert_eq!(testbed.fill("p=@PORT:b@ @CPUS@ @NOPE@", "a"), format!("p={port} 1 @NOPE@"));
        assert_ne!(testbed.fill("@PORT@", "a"), testbed.fill("@PORT2@", "a"));
        assert!(fs::read_to_string(directory.join("x.txt")).unwrap().ends_with("mail@example"));
        assert!(testbed.write("../x", "", "").is_err() && testbed.write("/tmp/x", "", "").is_err());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn names_that_stand_for_nothing_are_no_riddle_for_a_server() {
        let lab = |command: &str| {
            read_lab(&format!(
                "title='t'\n[[backend]]\nname='b'\ncommand='b'\n[[server]]\nname='a'\ncommand='{command}'\n\
                 [[server]]\nname='direct'\nbackend='b'\n\
                 [[workload]]\nname='w'\nload='rate'\npath='/'\nvalues=[1]\n"
            ))
            .unwrap()
        };
        let prepare = |command: &str| TestMachine::prepare(&lab(command), Path::new("/nowhere"), Path::new("."), &[0]);
        for bad in ["a @PORT:c@", "a @PORT10@", "a @PORT:@"] {
            assert!(prepare(bad).is_err_and(|why| why.contains("server `a`: @PORT")), "{bad}");
        }
        for bad in ["a -c @BOGUS@", "a @DIR@ @NO_SUCH@", "a x@DIRS@"] {
            let why = prepare(bad).err().unwrap();
            assert!(why.contains("is not a placeholder; there are @DIR@, @FILE@"), "{bad}: {why}");
        }
        let mut common = lab("a");
        common.files.insert("x".into(), "@NOPE@".into());
        let why = TestMachine::prepare(&common, Path::new("/nowhere"), Path::new("."), &[0]).err().unwrap();
        assert!(why.starts_with("files or setup: @NOPE@"), "{why}");
        for good in ["a me@HOST you@HOST", "a me@HOST:25 you@x", "a @fallback@", "a 1@A,2@B"] {
            assert!(prepare(good).is_ok(), "{good}");
        }
        let testbed = prepare("a @PORT:b@ @PORT2@ @DIR@ me@host you@HOST").unwrap();
        assert_eq!(testbed.port("direct"), testbed.port("b"), "the backend itself");
    }
}
