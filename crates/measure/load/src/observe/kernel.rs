//! Kernel counters that explain a bad figure: full backlogs, stolen time, throttling.

use std::fs;

use serde::{Deserialize, Serialize};

/// Counters since boot, or differences over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Full accept queues; the client then waits a second before retrying.
    pub listen_overflows: u64,
    pub listen_drops: u64,
    pub retransmits: u64,
    /// Seconds of all cores taken by the hypervisor.
    pub steal: f64,
    #[serde(default)]
    pub busy: f64,
    /// Seconds that a quota held this control group back.
    pub throttled: f64,
}

impl Counters {
    /// Reads the counters; unreadable ones are 0.
    pub fn read() -> Counters {
        let netstat = fs::read_to_string("/proc/net/netstat").unwrap_or_default();
        let snmp = fs::read_to_string("/proc/net/snmp").unwrap_or_default();
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let steal = stat.lines().next().and_then(|l| l.split_whitespace().nth(8)?.parse::<f64>().ok());
        let quota = fs::read_to_string("/sys/fs/cgroup/cpu.stat").unwrap_or_default();
        let throttled = quota.lines().find_map(|l| l.strip_prefix("throttled_usec ")?.trim().parse::<f64>().ok());
        Counters {
            listen_overflows: counter(&netstat, "TcpExt:", "ListenOverflows"),
            listen_drops: counter(&netstat, "TcpExt:", "ListenDrops"),
            retransmits: counter(&snmp, "Tcp:", "RetransSegs"),
            // /proc/stat counts in hundredths of a second (USER_HZ) on supported architectures.
            steal: steal.unwrap_or(0.0) / 100.0,
            busy: busy(&stat),
            throttled: throttled.unwrap_or(0.0) * 1e-6,
        }
    }

    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            listen_overflows: self.listen_overflows.saturating_sub(earlier.listen_overflows),
            listen_drops: self.listen_drops.saturating_sub(earlier.listen_drops),
            retransmits: self.retransmits.saturating_sub(earlier.retransmits),
            steal: (self.steal - earlier.steal).max(0.0),
            busy: (self.busy - earlier.busy).max(0.0),
            throttled: (self.throttled - earlier.throttled).max(0.0),
        }
    }
}

/// Seconds in /proc/stat's first line that were neither idle, nor I/O wait, nor stolen.
fn busy(stat: &str) -> f64 {
    let cells: Vec<f64> =
        stat.lines().next().unwrap_or("").split_whitespace().skip(1).filter_map(|c| c.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq; guest time is part of user time.
    let of = |i: usize| cells.get(i).copied().unwrap_or(0.0);
    (of(0) + of(1) + of(2) + of(5) + of(6)) / 100.0
}

fn counter(text: &str, table: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|l| l.starts_with(table));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let at = names.split_whitespace().position(|n| n == name);
    at.and_then(|i| values.split_whitespace().nth(i)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_two_lines() {
        let text = "TcpExt: A ListenOverflows B\nTcpExt: 1 23 4\nIpExt: X\nIpExt: 9\n";
        assert_eq!(counter(text, "TcpExt:", "ListenOverflows"), 23);
        assert_eq!(counter(text, "TcpExt:", "None"), 0);
        assert_eq!(counter("", "Tcp:", "X"), 0);
    }

    #[test]
    fn busy_time_leaves_out_idle_waiting_and_stolen() {
        assert_eq!(busy("cpu  100 10 50 9999 888 7 3 55 0 0\ncpu0 1 2 3\n"), 1.7);
    }

    #[test]
    fn counters_are_subtracted() {
        let a = Counters { listen_overflows: 5, steal: 1.0, ..Counters::default() };
        let b = Counters { listen_overflows: 7, steal: 1.5, ..Counters::default() };
        assert_eq!(b.since(&a), Counters { listen_overflows: 2, steal: 0.5, ..Counters::default() });
    }
}
