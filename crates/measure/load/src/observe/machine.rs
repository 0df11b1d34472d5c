//! Describes the machine that runs the measurement, for reports and for checks of pinned CPUs.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObservedMachine {
    pub kernel: String,
    pub processor: String,
    pub cpus: usize,
    /// CPUs that share a core, one list per core in the kernel's format (`0,4` or `0-1`).
    pub siblings: Vec<String>,
    /// In bytes.
    pub memory: f64,
    /// Number of local ports for outgoing connections.
    pub ports: usize,
}

/// Fails if a list of an option contains a CPU that this machine does not have.
pub fn check_cpus(option: &str, cpus: &[usize]) -> Result<(), String> {
    match cpus.iter().find(|cpu| !Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists()) {
        Some(cpu) => Err(format!("{option} {cpu}: this machine has no CPU with that number")),
        None => Ok(()),
    }
}

impl ObservedMachine {
    pub fn read() -> ObservedMachine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let processor = cpuinfo.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':').map(|x| x.1.trim()));
        let cpus = cpuinfo.lines().filter(|l| l.starts_with("processor")).count();
        let mut siblings: Vec<String> = (0..cpus)
            .map(|c| read(&format!("/sys/devices/system/cpu/cpu{c}/topology/thread_siblings_list")).trim().to_string())
            .filter(|s| !s.is_empty())
            .collect();
        siblings.dedup();
        siblings.sort();
        siblings.dedup();
        let memory = read("/proc/meminfo")
            .lines()
            .find_map(|l| l.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<f64>().ok());
        let range: Vec<usize> =
            read("/proc/sys/net/ipv4/ip_local_port_range").split_whitespace().filter_map(|t| t.parse().ok()).collect();
        ObservedMachine {
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            processor: processor.unwrap_or("unknown processor").into(),
            cpus: cpus.max(1),
            siblings,
            memory: memory.unwrap_or(0.0) * 1024.0,
            ports: match range[..] {
                [low, high] => high.saturating_sub(low) + 1,
                _ => 28_232,
            },
        }
    }

    pub fn sentence(&self) -> String {
        let shared = self.siblings.iter().filter(|s| s.contains([',', '-'])).count();
        let smt = if shared > 0 { format!(", {shared} cores with two threads") } else { String::new() };
        format!(
            "{} × {}{smt}, {} of memory, Linux {}",
            self.cpus,
            self.processor,
            figures::units::format_bytes(self.memory),
            self.kernel
        )
    }

    /// Tells whether two CPUs are threads of one core, for which a pinned client and server would compete.
    pub fn share_a_core(&self, a: usize, b: usize) -> bool {
        a != b && self.siblings.iter().any(|s| in_list(s, a) && in_list(s, b))
    }
}

fn in_list(list: &str, cpu: usize) -> bool {
    list.split(',').any(|part| match part.split_once('-') {
        Some((low, high)) => low.parse().is_ok_and(|l: usize| l <= cpu) && high.parse().is_ok_and(|h: usize| cpu <= h),
        None => part.parse() == Ok(cpu),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_processors() {
        let m = ObservedMachine::read();
        assert!(m.cpus >= 1 && m.memory > 1e6 && m.ports > 100);
        assert!(m.sentence().contains("Linux"));
    }

    #[test]
    fn siblings_are_parsed() {
        let m = ObservedMachine { siblings: vec!["0,4".into(), "1-2".into()], ..ObservedMachine::default() };
        assert!(m.share_a_core(0, 4) && m.share_a_core(1, 2));
        assert!(!m.share_a_core(0, 1) && !m.share_a_core(0, 0));
    }
}
