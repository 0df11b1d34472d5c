//! dns-01 (RFC 8555, section 8.4): TXT records by a program of the operator, or by updates to a name server (RFC 2136).
//!
//! The program runs as the workers' user, with the arguments `present|cleanup NAME VALUE`, without a shell, with no environment but
//! `PATH`, and for a limited time.

use acme::update::{self, RecordChange, TsigKey};
use acme::{Identifier, SessionWork};
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use conf_schema::value::parse_msec;
use conf_schema::{Cx, Problem};
use runtime::io::UdpSocket;
use runtime::time::with_timeout;
use rustix::process::{Pid, Signal};
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Milliseconds for a program: by default, and at most.
const HOOK_MILLIS: u64 = 120_000;
const HOOK_MILLIS_MAX: u64 = 3_600_000;
/// Interval between checks of a running program.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of a program's messages for the log.
const SAID_MAX: usize = 1024;
const DNS_PORT: u16 = 53;
/// Messages that are sent for an answer, and the time for each.
const ASKS_MAX: usize = 3;
const ANSWER: Duration = Duration::from_secs(5);
/// Unrelated packets that are read before the message is sent again.
const STRAYS_MAX: usize = 100;
const UDP_BYTES: usize = 4096;
const SEARCH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// `dns_hook`
pub struct Hook {
    program: PathBuf,
    limit: Duration,
}

impl Hook {
    pub fn parse(cx: &Cx, program: &str, limit: Option<&str>) -> Result<Hook, Problem> {
        let path = cx.conf_full_name(program);
        let found = std::fs::metadata(&path);
        let runs = found.as_ref().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
        if !runs && !cx.store.replay && !cx.store.elsewhere {
            let why =
                found.err().map_or_else(|| "it is no executable file".into(), |e| observe::os_error(&e).to_string());
            return Err(Problem::says(format!("cannot run \"{}\": {why}", path.display())).at(0));
        }
        let millis = match limit {
            None => HOOK_MILLIS,
            Some(text) => {
                let time = text.strip_prefix("timeout=").and_then(|time| parse_msec(time.as_bytes()));
                let wrong = || Problem::says(format!("invalid parameter \"{text}\"")).at(1);
                time.filter(|millis| (1..=HOOK_MILLIS_MAX).contains(millis)).ok_or_else(wrong)?
            }
        };
        Ok(Hook { program: path, limit: Duration::from_millis(millis) })
    }
}

/// `dns_update`
pub struct Updates {
    server: SocketAddr,
    /// `None`: queries the server for the zone of a name.
    zone: Option<String>,
    key: Option<TsigKey>,
}

impl Updates {
    pub fn parse(cx: &mut Cx, words: &[&str]) -> Result<Updates, Problem> {
        let Some((server, rest)) = words.split_first() else { return Err(Problem::invalid()) };
        let address = server.parse().ok().or_else(|| Some(SocketAddr::new(server.parse::<IpAddr>().ok()?, DNS_PORT)));
        let wrong = || {
            Problem::says(format!("invalid address \"{server}\"")).at(0).hint("an IP address, with a port or without")
        };
        let mut updates = Updates { server: address.ok_or_else(wrong)?, zone: None, key: None };
        for (index, word) in rest.iter().enumerate() {
            let at = |problem: Problem| problem.at(index + 1);
            match word.split_once('=') {
                Some(("zone", zone)) if updates.zone.is_none() && update::zone_question(0, zone).is_some() => {
                    updates.zone = Some(zone.to_string());
                }
                Some(("key", file)) if updates.key.is_none() => {
                    let path = cx.conf_full_name(file);
                    let shown = path.display();
                    let text = cx.store.read(&path).map_err(|e| observe::os_error(&e).to_string());
                    let key = text.and_then(|text| TsigKey::parse(&String::from_utf8_lossy(&text)));
                    let failed = |why| at(Problem::says(format!("cannot load TSIG key \"{shown}\": {why}")));
                    updates.key = Some(key.map_err(failed)?);
                }
                _ => return Err(at(Problem::says(format!("invalid parameter \"{word}\"")))),
            }
        }
        Ok(updates)
    }

    /// Sends a message until a response is understood.
    async fn ask<T>(&self, message: &[u8], read: impl Fn(&[u8]) -> Option<T>) -> Result<T, String> {
        for _ in 0..ASKS_MAX {
            let socket = UdpSocket::connect(self.server).map_err(|e| observe::os_error(&e).to_string())?;
            let answered = with_timeout(ANSWER, async {
                socket.send(message).await?;
                let mut bytes = Vec::with_capacity(UDP_BYTES);
                for _ in 0..STRAYS_MAX {
                    bytes.clear();
                    socket.recv(&mut bytes).await?;
                    if let Some(answer) = read(&bytes) {
                        return Ok(answer);
                    }
                }
                Err(std::io::Error::from(std::io::ErrorKind::InvalidData))
            });
            if let Ok(Ok(answer)) = answered.await {
                return Ok(answer);
            }
        }
        Err(format!("no valid answer of the name server {}", self.server))
    }

    async fn change(&self, change: RecordChange, name: &str, value: &str) -> Result<(), String> {
        let id = || {
            let [high, low, ..] = net::random::bytes16();
            u16::from_be_bytes([high, low])
        };
        let invalid = || format!("invalid name \"{name}\"");
        let zone = match &self.zone {
            Some(zone) => zone.clone(),
            None => {
                let id = id();
                let question = update::zone_question(id, name).ok_or_else(invalid)?;
                self.ask(&question, |answer| update::zone_of(answer, id, name)).await??
            }
        };
        let id = id();
        let message = update::write_change(id, &zone, name, value, change).ok_or_else(invalid)?;
        base::clock::update();
        let now = base::clock::unix_millis() / 1000;
        match &self.key {
            None => self.ask(&message, |answer| update::judge_outcome(answer, id, None)).await?,
            Some(key) => {
                let signed = update::sign_message(message, key, now);
                self.ask(&signed.bytes, |answer| update::judge_outcome(answer, id, Some((key, &signed.code)))).await?
            }
        }
    }
}

/// A way to change DNS records.
pub enum DnsProvider {
    Hook(Hook),
    Updates(Box<Updates>),
}

/// The DNS records of challenges.
pub struct Records {
    pub provider: DnsProvider,
    /// Time until a change is visible to the authority.
    pub propagation: Duration,
}

/// Returns name and value of the TXT record of a challenge.
pub fn challenge_record(identifier: &Identifier, authorization: &str) -> (String, String) {
    let name = identifier.to_string();
    let name = name.strip_prefix("*.").unwrap_or(&name);
    let digest = digest::digest(&digest::SHA256, authorization.as_bytes());
    (format!("_acme-challenge.{name}."), URL_SAFE_NO_PAD.encode(digest))
}

impl Records {
    /// Returns the longest time for adding a record and removing it.
    pub fn patience(&self) -> Duration {
        let change = match &self.provider {
            DnsProvider::Hook(hook) => hook.limit,
            DnsProvider::Updates(_) => ANSWER * (2 * ASKS_MAX as u32),
        };
        self.propagation + change * 2
    }
    pub fn add(self: Arc<Self>, identifier: &Identifier, authorization: &str) -> SessionWork<Result<(), String>> {
        let (name, value) = challenge_record(identifier, authorization);
        Box::pin(async move {
            self.change(RecordChange::Add, name, value).await?;
            runtime::time::sleep_for(self.propagation).await;
            base::clock::update();
            Ok(())
        })
    }
    pub fn remove(self: Arc<Self>, identifier: &Identifier, authorization: &str) -> SessionWork<()> {
        let (name, value) = challenge_record(identifier, authorization);
        Box::pin(async move {
            // A record that stays harms nothing; the next order's differs.
            let _ = self.change(RecordChange::Remove, name, value).await;
        })
    }

    async fn change(&self, change: RecordChange, name: String, value: String) -> Result<(), String> {
        match (&self.provider, change) {
            (DnsProvider::Hook(hook), RecordChange::Add) => hook.run("present", name, value).await,
            (DnsProvider::Hook(hook), RecordChange::Remove) => hook.run("cleanup", name, value).await,
            (DnsProvider::Updates(updates), change) => updates.change(change, &name, &value).await,
        }
    }
}

impl Hook {
    async fn run(&self, action: &'static str, name: String, value: String) -> Result<(), String> {
        let (program, limit) = (self.program.clone(), self.limit);
        let (done, result) = tokio::sync::oneshot::channel();
        // Outside the pool: programs wait for minutes, and would hold up other work.
        let work = move || drop(done.send(run(&program, [action, &name, &value], limit)));
        std::thread::Builder::new().name("acme hook".into()).spawn(work).map_err(|e| e.to_string())?;
        let ended = result.await.unwrap_or_else(|_| Err("its thread has ended".into()));
        base::clock::update();
        ended.map_err(|why| format!("\"{} {action}\" failed: {why}", self.program.display()))
    }
}

/// Runs a program to its end, or kills it and its children at the end of its time. Blocks.
fn run(program: &Path, arguments: [&str; 3], limit: Duration) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", SEARCH).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|e| observe::os_error(&e).to_string())?;
    let mut errors = child.stderr.take();
    if let Some(errors) = &errors {
        rustix::io::ioctl_fionbio(errors, true).map_err(|e| e.to_string())?;
    }
    let (until, mut said) = (Instant::now() + limit, Vec::new());
    let status = loop {
        let ended = child.try_wait().map_err(|e| e.to_string())?;
        // Reads on beyond the limit, so that the program is not held up.
        let mut some = [0; 4096];
        while let Some(count) = errors.as_mut().and_then(|errors| errors.read(&mut some).ok()).filter(|n| *n > 0) {
            said.extend_from_slice(some.get(..count.min(SAID_MAX.saturating_sub(said.len()))).unwrap_or_default());
        }
        match ended {
            Some(status) => break status,
            None if Instant::now() >= until => {
                kill(&mut child);
                return Err(format!("it was killed after {} s", limit.as_secs_f32()));
            }
            None => std::thread::sleep(LOOK),
        }
    };
    if status.success() {
        return Ok(());
    }
    let said: String = String::from_utf8_lossy(&said).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let said = said.trim();
    Err(if said.is_empty() { status.to_string() } else { format!("{status}: {said}") })
}

fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tidegate-hook-{}-{name}", std::process::id()));
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("executable");
        path
    }

    #[test]
    fn records_of_challenges() {
        let parse = |text: &str| Identifier::parse(text).expect("valid");
        let (name, value) = challenge_record(&parse("*.example.com"), "a.b");
        assert_eq!(name, "_acme-challenge.example.com.");
        assert_eq!(value.len(), 43);
        assert_eq!(challenge_record(&parse("example.com"), "a.b"), (name, value));
    }

    #[test]
    fn programs_are_bounded_and_have_a_clean_environment() {
        let out = std::env::temp_dir().join(format!("tidegate-hook-{}-out", std::process::id()));
        let limit = Duration::from_secs(60);
        let path = script("ok", &format!("{{ env; echo \"$@\"; }} > {}", out.display()));
        assert_eq!(run(&path, ["present", "a b;", "$(x)"], limit), Ok(()));
        let seen = std::fs::read_to_string(&out).expect("written");
        assert!(seen.contains("present a b; $(x)\n"), "{seen}");
        assert!(!seen.contains("HOME=") && !seen.contains("CARGO"), "{seen}");
        let failed = run(&script("bad", "echo no such zone >&2; exit 3"), ["present", "a", "b"], limit);
        assert_eq!(failed, Err("exit status: 3: no such zone".into()));
        let loud = script("loud", "head -c 1000000 /dev/zero >&2; exit 0");
        assert_eq!(run(&loud, ["present", "a", "b"], limit), Ok(()));
        // The child of a killed program is killed, too: its pipe would keep the reader.
        let slow = script("slow", "sleep 1000 & sleep 1000");
        let killed = run(&slow, ["present", "a", "b"], Duration::from_millis(300));
        assert!(killed.as_ref().is_err_and(|why| why.starts_with("it was killed after")), "{killed:?}");
        assert!(run(Path::new("/nowhere/hook"), ["present", "a", "b"], limit).is_err());
        for name in ["ok", "bad", "loud", "slow", "out"] {
            let _ = std::fs::remove_file(out.with_file_name(format!("tidegate-hook-{}-{name}", std::process::id())));
        }
    }
}
