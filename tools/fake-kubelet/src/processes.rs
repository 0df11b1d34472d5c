//! Processes of Pods, each in a network namespace of its own, which is gone with the process.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::net::IpAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::jiff::Timestamp;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::Notify;

/// Lines of the log of a Pod at most; older ones are dropped.
const LOG_LINES_MAX: usize = 20_000;

/// Waits for its interface, takes the address, and becomes the program.
const SCRIPT: &str = r#"
echo
read -r _ || exit 1
set -e
ip link set lo up
ip address add "$POD_ADDRESS/32" dev eth0
ip link set eth0 up
ip route add "$NODE_ADDRESS" dev eth0
ip route add default via "$NODE_ADDRESS"
exec "$@" 2>&1 < /dev/null
"#;

/// Lines of a program with the times of their arrival.
#[derive(Debug, Default)]
pub struct PodLog {
    lines: Mutex<VecDeque<(Timestamp, String)>>,
}

impl PodLog {
    fn push(&self, line: String) {
        let mut lines = self.lines();
        if lines.len() == LOG_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back((Timestamp::now(), line));
    }

    /// Returns the lines since a time, each with a line feed.
    pub fn text_since(&self, since: Option<Timestamp>) -> String {
        let lines = self.lines();
        let found = lines.iter().filter(|(time, _)| since.is_none_or(|since| *time >= since));
        found.map(|(_, line)| format!("{line}\n")).collect()
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<(Timestamp, String)>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running program. The process ends when this value is dropped.
#[derive(Debug)]
pub struct PodProcess {
    pub address: IpAddr,
    pub log: Arc<PodLog>,
    _child: Child,
}

/// Program of a Pod, and its place in the network.
pub struct PodProgram<'a> {
    pub words: Vec<&'a OsStr>,
    pub variables: BTreeMap<String, String>,
    pub address: IpAddr,
    pub node: IpAddr,
    /// Number that no other interface of this process has.
    pub number: u32,
}

impl PodProcess {
    /// Starts a program, and waits for its first line: a server writes it when it listens. `changed` wakes at its end.
    pub async fn start(program: PodProgram<'_>, changed: Arc<Notify>) -> Result<PodProcess, String> {
        let error = |error: std::io::Error| error.to_string();
        let (address, node) = (program.address, program.node);
        let mut child = Command::new("unshare")
            .args(["--net", "sh", "-c", SCRIPT, "pod"])
            .args(&program.words)
            .envs(&program.variables)
            .env("POD_ADDRESS", address.to_string())
            .env("NODE_ADDRESS", node.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|reason| format!("unshare: {reason}"))?;
        let ended = || "the process has ended".to_owned();
        let stdout = child.stdout.take().ok_or_else(ended)?;
        let mut lines = BufReader::new(stdout).lines();
        lines.next_line().await.map_err(error)?.ok_or_else(ended)?;
        let id = child.id().ok_or_else(ended)?;
        connect(id, program.number, address, node).await?;
        let mut stdin = child.stdin.take().ok_or_else(ended)?;
        stdin.write_all(b"\n").await.map_err(error)?;
        let log = Arc::new(PodLog::default());
        let first = lines.next_line().await.map_err(error)?.ok_or_else(ended)?;
        log.push(first);
        tokio::spawn(copy_lines(lines, log.clone(), changed));
        Ok(PodProcess { address, log, _child: child })
    }
}

async fn copy_lines(mut lines: Lines<BufReader<ChildStdout>>, log: Arc<PodLog>, changed: Arc<Notify>) {
    while let Ok(Some(line)) = lines.next_line().await {
        log.push(line);
    }
    changed.notify_one();
}

/// Makes a pair of interfaces: one end here, with a route to the Pod, and one in the namespace of the process.
async fn connect(process: u32, number: u32, address: IpAddr, node: IpAddr) -> Result<(), String> {
    let name = format!("pod{number}");
    let process = process.to_string();
    run_ip(&["link", "add", &name, "type", "veth", "peer", "name", "eth0", "netns", &process]).await?;
    run_ip(&["link", "set", &name, "up"]).await?;
    run_ip(&["route", "add", &address.to_string(), "dev", &name, "src", &node.to_string()]).await
}

async fn run_ip(words: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(words).output().await.map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_bounded_and_begin_at_a_time() {
        let log = PodLog::default();
        log.push("old".into());
        let later = Timestamp::now().checked_add(k8s_openapi::jiff::SignedDuration::from_hours(1)).unwrap();
        assert_eq!(log.text_since(None), "old\n");
        assert_eq!(log.text_since(Some(later)), "");
        for number in 0..LOG_LINES_MAX {
            log.push(number.to_string());
        }
        let text = log.text_since(None);
        assert!(text.starts_with("0\n") && text.lines().count() == LOG_LINES_MAX);
    }
}
