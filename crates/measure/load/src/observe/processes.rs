//! CPU time and memory of a process group: the holders of a listening port, or given processes, with their children.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Processes of a server; re-read on every look, since workers change.
#[derive(Clone, Debug)]
pub struct ProcessGroup {
    port: Option<u16>,
    roots: Vec<u32>,
    /// Highest CPU and run-queue nanoseconds per process, so that ended ones still count.
    seen: BTreeMap<u32, (u64, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// CPU seconds since the processes started.
    pub cpu: f64,
    /// Seconds of waiting for an occupied processor since they started.
    pub waited: f64,
    /// Proportional set size in bytes; resident size where unreadable.
    pub memory: f64,
    pub processes: usize,
    pub threads: usize,
}

impl ProcessGroup {
    pub fn by_port(port: u16) -> ProcessGroup {
        ProcessGroup { port: Some(port), roots: Vec::new(), seen: BTreeMap::new() }
    }

    pub fn by_pids(pids: &[u32]) -> ProcessGroup {
        ProcessGroup { port: None, roots: pids.to_vec(), seen: BTreeMap::new() }
    }

    /// Current processes. After the port's holder is found, only descendants are searched: scanning all descriptors
    /// would disturb the measurement.
    pub fn pids(&mut self) -> Vec<u32> {
        if let (Some(port), true) = (self.port, self.roots.is_empty()) {
            self.roots = holders(&listeners(port));
        }
        let mut pids = self.roots.clone();
        let mut at = 0;
        while let Some(pid) = pids.get(at).copied() {
            for child in child_processes(pid) {
                if !pids.contains(&child) {
                    pids.push(child);
                }
            }
            at += 1;
        }
        pids
    }

    /// Current CPU time and memory. `with_memory` is slow for large processes.
    pub fn look(&mut self, with_memory: bool) -> ProcessSample {
        let mut look = ProcessSample::default();
        for pid in self.pids() {
            let Some((nanoseconds, waited, threads)) = cpu(pid) else { continue };
            look.processes += 1;
            look.threads += threads;
            let slot = self.seen.entry(pid).or_default();
            *slot = (nanoseconds.max(slot.0), waited.max(slot.1));
            if with_memory {
                look.memory += memory(pid).unwrap_or(0.0);
            }
        }
        look.cpu = self.seen.values().map(|n| n.0 as f64 * 1e-9).sum();
        look.waited = self.seen.values().map(|n| n.1 as f64 * 1e-9).sum();
        look
    }
}

/// Nanoseconds on processors and in run queues, and the number of threads.
fn cpu(pid: u32) -> Option<(u64, u64, usize)> {
    let (mut sum, mut waited, mut threads) = (0, 0, 0);
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let (on, off) = thread_schedule(&task.path());
        (sum, waited, threads) = (sum + on, waited + off, threads + 1);
    }
    Some((sum, waited, threads))
}

/// Nanoseconds of a thread (its /proc directory) on a processor and in a run queue. From schedstat, since stat has
/// steps of 10 ms; zero where the kernel does not count.
pub fn thread_schedule(task: &Path) -> (u64, u64) {
    let text = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    let mut words = text.split_whitespace().map(|t| t.parse().unwrap_or(0));
    (words.next().unwrap_or(0), words.next().unwrap_or(0))
}

fn memory(pid: u32) -> Option<f64> {
    let kilobytes = |text: &str, name: &str| {
        let line = text.lines().find(|l| l.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<f64>().ok()
    };
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok();
    let pss = rollup.as_deref().and_then(|t| kilobytes(t, "Pss:"));
    let resident = || kilobytes(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS:");
    pss.or_else(resident).map(|k| k * 1024.0)
}

fn listeners(port: u16) -> HashSet<u64> {
    // State 0A is LISTEN; 07 is an unconnected datagram socket (QUIC).
    let tcp = bound(port, ["/proc/net/tcp", "/proc/net/tcp6"], "0A");
    if tcp.is_empty() { bound(port, ["/proc/net/udp", "/proc/net/udp6"], "07") } else { tcp }
}

fn bound(port: u16, files: [&str; 2], wanted: &str) -> HashSet<u64> {
    let mut inodes = HashSet::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap_or_default();
        for line in text.lines().skip(1) {
            let cells: Vec<&str> = line.split_whitespace().collect();
            let (Some(local), Some(state), Some(inode)) = (cells.get(1), cells.get(3), cells.get(9)) else { continue };
            let same = local.rsplit_once(':').and_then(|(_, p)| u16::from_str_radix(p, 16).ok()) == Some(port);
            if same && *state == wanted {
                inodes.extend(inode.parse::<u64>());
            }
        }
    }
    inodes
}

fn holders(inodes: &HashSet<u64>) -> Vec<u32> {
    if inodes.is_empty() {
        return Vec::new();
    }
    let holds = |pid: u32| {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        entries.flatten().any(|entry| {
            let link = fs::read_link(entry.path()).unwrap_or_default();
            let name = link.to_string_lossy();
            let inode = name.strip_prefix("socket:[").and_then(|n| n.strip_suffix(']')).and_then(|n| n.parse().ok());
            inode.is_some_and(|i: u64| inodes.contains(&i))
        })
    };
    all_pids().filter(|pid| *pid != std::process::id() && holds(*pid)).collect()
}

fn all_pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok())
}

/// Returns the child processes of all threads of a process.
pub fn child_processes(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .flat_map(|task| {
            let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            text.split_whitespace().filter_map(|c| c.parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

pub fn is_local(address: &SocketAddr) -> bool {
    address.ip().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_process_sees_itself() {
        let mut group = ProcessGroup::by_pids(&[std::process::id()]);
        let look = group.look(true);
        assert!(look.processes >= 1 && look.threads >= 1 && look.memory > 100_000.0, "{look:?}");
        // The time of other tests' threads leaves the sum when they end: one of many looks is enough.
        let mut x = 0u64;
        let grows = (0..100).any(|_| {
            let before = group.look(false).cpu;
            (0..5_000_000u64).for_each(|i| x = std::hint::black_box(x ^ i));
            group.look(false).cpu > before
        });
        assert!(grows);
    }

    #[test]
    fn listening_sockets_are_found() {
        let port = testkit::free_port();
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        assert_eq!(listeners(port).len(), 1);
        drop(listener);
        assert!(listeners(port).is_empty());
    }
}
