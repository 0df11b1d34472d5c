//! Limits of this machine: kernel settings and process limits, from `/proc` and `/sys`.

use std::fs;
use std::path::{Path, PathBuf};

/// `None`: the machine does not report a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DoctorMachine {
    /// Soft limit of open files per process.
    pub descriptors_soft: Option<u64>,
    pub descriptors_hard: Option<u64>,
    /// fs.file-max, of all processes.
    pub descriptors_all: Option<u64>,
    /// net.core.somaxconn
    pub accept_queue: Option<u64>,
    /// Per address (net.ipv4.tcp_max_syn_backlog).
    pub handshakes: Option<u64>,
    /// The kernel answers further handshakes without memory (net.ipv4.tcp_syncookies).
    pub syn_cookies: Option<bool>,
    /// net.ipv4.ip_local_port_range
    pub ports: Option<(u64, u64)>,
    /// Reuse of ports in TIME_WAIT: 1 always, 2 on loopback (net.ipv4.tcp_tw_reuse).
    pub reuse: Option<u64>,
    /// nf_conntrack
    pub tracked_max: Option<u64>,
    pub tracked: Option<u64>,
    /// In bytes (net.core.rmem_max, net.core.wmem_max).
    pub receive_buffer: Option<u64>,
    pub send_buffer: Option<u64>,
    /// Major, minor.
    pub kernel: Option<(u64, u64)>,
    /// Per user (fs.inotify.max_user_watches).
    pub watches: Option<u64>,
    /// Available bytes, of the machine or of the container's limit, whichever is less.
    pub memory: Option<u64>,
    /// Available CPUs, and the container's CPU quota in thousandths of a CPU.
    pub processors: Option<u64>,
    pub quota_millis: Option<u64>,
    pub root: bool,
}

impl DoctorMachine {
    pub fn read() -> DoctorMachine {
        let mut machine = DoctorMachine::below(Path::new("/"));
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        machine.descriptors_soft = Some(limit.current.unwrap_or(u64::MAX));
        machine.descriptors_hard = Some(limit.maximum.unwrap_or(u64::MAX));
        machine.processors = std::thread::available_parallelism().ok().map(|n| n.get() as u64);
        machine.root = rustix::process::geteuid().is_root();
        machine
    }

    /// Reads the limits in files below `root` (a directory of the test in tests).
    pub fn below(root: &Path) -> DoctorMachine {
        let text = |path: &str| fs::read_to_string(root.join(path)).ok();
        let number = |path: &str| text(path).and_then(|t| t.split_whitespace().next()?.parse::<u64>().ok());
        let group = group_folder(root);
        let in_group = |name: &str| group.as_ref().and_then(|folder| fs::read_to_string(folder.join(name)).ok());
        let limit = in_group("memory.max").and_then(|t| t.trim().parse::<u64>().ok());
        let used = in_group("memory.current").and_then(|t| t.trim().parse::<u64>().ok()).unwrap_or(0);
        let available = text("proc/meminfo").and_then(|t| meminfo(&t, "MemAvailable"));
        DoctorMachine {
            descriptors_all: number("proc/sys/fs/file-max"),
            accept_queue: number("proc/sys/net/core/somaxconn"),
            handshakes: number("proc/sys/net/ipv4/tcp_max_syn_backlog"),
            syn_cookies: number("proc/sys/net/ipv4/tcp_syncookies").map(|n| n > 0),
            ports: text("proc/sys/net/ipv4/ip_local_port_range").and_then(|t| {
                let mut numbers = t.split_whitespace().map_while(|n| n.parse().ok());
                Some((numbers.next()?, numbers.next()?))
            }),
            reuse: number("proc/sys/net/ipv4/tcp_tw_reuse"),
            tracked_max: number("proc/sys/net/netfilter/nf_conntrack_max"),
            tracked: number("proc/sys/net/netfilter/nf_conntrack_count"),
            receive_buffer: number("proc/sys/net/core/rmem_max"),
            send_buffer: number("proc/sys/net/core/wmem_max"),
            kernel: text("proc/sys/kernel/osrelease").and_then(|t| {
                let mut numbers = t.split(['.', '-']).map_while(|n| n.trim().parse().ok());
                Some((numbers.next()?, numbers.next()?))
            }),
            watches: number("proc/sys/fs/inotify/max_user_watches"),
            memory: match (available, limit.map(|limit| limit.saturating_sub(used))) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
            quota_millis: in_group("cpu.max").and_then(|t| {
                let mut words = t.split_whitespace();
                let (quota, period) = (words.next()?.parse::<u64>().ok()?, words.next()?.parse::<u64>().ok()?);
                Some(quota.saturating_mul(1000) / period.max(1))
            }),
            ..DoctorMachine::default()
        }
    }
}

/// In bytes.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Directory with the limits of the own control group (version 2); in a container, the root of its view.
fn group_folder(root: &Path) -> Option<PathBuf> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let all = root.join("sys/fs/cgroup");
    [all.join(path), all].into_iter().find(|folder| folder.join("memory.max").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_read_from_files() {
        let root = std::env::temp_dir().join(format!("tidegate-doctor-{}", std::process::id()));
        for (path, text) in [
            ("proc/sys/fs/file-max", "9223372036854775807\n"),
            ("proc/sys/net/core/somaxconn", "4096\n"),
            ("proc/sys/net/ipv4/tcp_syncookies", "1\n"),
            ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
            ("proc/sys/net/core/rmem_max", "212992\n"),
            ("proc/sys/kernel/osrelease", "6.12.9-amd64\n"),
            ("proc/meminfo", "MemTotal:  2048 kB\nMemAvailable:  1024 kB\n"),
            ("proc/self/cgroup", "0::/app.slice\n"),
            ("sys/fs/cgroup/app.slice/memory.max", "524288\n"),
            ("sys/fs/cgroup/app.slice/memory.current", "24288\n"),
            ("sys/fs/cgroup/app.slice/cpu.max", "150000 100000\n"),
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        let machine = DoctorMachine::below(&root);
        fs::remove_dir_all(&root).expect("removed");
        assert_eq!(machine.accept_queue, Some(4096));
        assert_eq!(machine.ports, Some((32768, 60999)));
        assert_eq!(machine.memory, Some(500_000), "the container's rest is less than the machine's");
        assert_eq!(machine.quota_millis, Some(1500));
        assert_eq!((machine.receive_buffer, machine.send_buffer), (Some(212_992), None));
        assert_eq!(machine.kernel, Some((6, 12)));
        assert_eq!(machine.tracked_max, None);
    }

    #[test]
    fn the_machine_can_be_read() {
        let machine = DoctorMachine::read();
        assert!(machine.descriptors_hard >= machine.descriptors_soft && machine.memory.is_some(), "{machine:?}");
    }
}
