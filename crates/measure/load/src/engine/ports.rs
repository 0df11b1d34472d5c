//! Local ports: how many a run has, and the addresses it connects from.
//! The kernel searches ports by trying, which becomes the largest cost when most are taken. Loopback has 16 million
//! addresses, which a run uses by itself; elsewhere `--source` names more.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use super::job::{Job, Model};

/// Share of an address's ports that may be taken: below it a search takes three tries on average (the kernel tries
/// every second port first).
const TAKEN_MAX: f64 = 1.0 / 3.0;
/// Addresses that a run takes by itself, at most.
const SOURCES_MAX: usize = 64;
/// Seconds that the closing side keeps a pair of ports (TIME_WAIT).
pub const TIME_WAIT: f64 = 60.0;

#[derive(Clone, Debug, PartialEq)]
pub struct Ports {
    pub sources: Vec<IpAddr>,
    /// Connections after which the next address is used; 0 rotates.
    pub each: usize,
    pub available: u64,
}

impl Ports {
    pub fn of(job: &Job) -> Ports {
        let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
        Ports::with(job, range(&read("ip_local_port_range")), read("tcp_tw_reuse").trim() != "0")
    }

    /// With `range` ports per address; `reuse` when the kernel reuses ports in TIME_WAIT after a second (on loopback).
    fn with(job: &Job, range: u64, reuse: bool) -> Ports {
        let mut sources = job.target.sources.clone();
        let mut each = 0;
        if job.target.unix.is_some() {
            return Ports { available: 0, sources: Vec::new(), each };
        }
        if sources.is_empty() && job.target.address.ip().is_loopback() && job.target.address.is_ipv4() {
            let (at_a_time, closed) = needed(job, reuse);
            let share = range as f64 * TAKEN_MAX;
            let wanted = (((at_a_time + closed) / share).ceil() as usize).min(SOURCES_MAX);
            if wanted > 1 {
                sources = (1..=wanted).map(|n| IpAddr::V4(Ipv4Addr::new(127, 0, 0, n as u8))).collect();
            }
            if closed < share {
                each = share as usize / job.threads.max(1);
            }
        }
        Ports { available: range * sources.len().max(1) as u64, sources, each }
    }

    /// Index of the next connection's address, after `made` connections and with `open` connections per address.
    pub fn choose(&self, made: usize, open: &[usize]) -> usize {
        let room = |n: &usize| *n < self.each;
        open.iter().position(room).unwrap_or(made % open.len().max(1))
    }
}

/// Maximum number of ports used at a time: by open connections, and by closed ones.
fn needed(job: &Job, reuse: bool) -> (f64, f64) {
    let each = if job.session { job.connections_each.max(1) } else { 1 };
    let highest = job.profile.highest() * each as f64;
    let at_a_time = if matches!(job.model, Model::Closed { .. }) { highest } else { job.connections_max as f64 };
    // After a single request the server closes and keeps the pair; after several the client does.
    let closed = match job.model {
        _ if job.calls < 2 || job.reset => 0.0,
        Model::Connections { .. } => highest,
        Model::Open { .. } => highest / f64::from(job.calls),
        Model::Closed { .. } | Model::Replay { .. } => 0.0,
    };
    (at_a_time, closed * if reuse { 1.0 } else { TIME_WAIT })
}

fn range(text: &str) -> u64 {
    let mut ends = text.split_whitespace().filter_map(|w| w.parse::<u64>().ok());
    match (ends.next(), ends.next()) {
        (Some(low), Some(high)) if high >= low => high - low + 1,
        _ => 28_232,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::job::{Target, Think};
    use crate::engine::profile::{Arrivals, Profile};

    fn job(address: &str, connections: usize) -> Job {
        let target = Target {
            host: "h".into(),
            port: 80,
            address: address.parse().unwrap(),
            tls: None,
            proxy: None,
            unix: None,
            sources: Vec::new(),
        };
        let mut job = Job::closed(target, connections, 1.0);
        job.model = Model::Connections { arrivals: Arrivals::Fixed, think: Think::default() };
        job.profile = Profile::constant(30_000.0, 1.0);
        job.calls = 1;
        job
    }

    #[test]
    fn loopback_has_as_many_addresses_as_are_needed() {
        let of = |job: &Job| Ports::with(job, 28_232, true);
        assert_eq!(of(&job("127.0.0.1:80", 1000)), Ports { sources: Vec::new(), available: 28_232, each: 9410 });
        let many = of(&job("127.0.0.1:80", 15_000));
        assert_eq!((many.sources.len(), many.available), (2, 56_464));
        assert_eq!(many.sources[0].to_string(), "127.0.0.1");
        let chosen = [[0, 0], [9409, 5000], [9410, 5000], [9410, 9410]].map(|open| many.choose(51, &open));
        assert_eq!(chosen, [0, 0, 1, 1], "the first address as long as it has room");
        assert_eq!(of(&job("[::1]:80", 15_000)).sources.len(), 0, "there is only one address of IPv6 loopback");
        assert_eq!(of(&job("10.0.0.1:80", 15_000)).sources.len(), 0, "whose addresses are not ours to take");
        let mut own = job("127.0.0.1:80", 15_000);
        own.target.sources = vec!["127.0.0.9".parse().unwrap()];
        assert_eq!(of(&own).sources, own.target.sources, "what is asked for is done");
        let mut several = job("127.0.0.1:80", 1000);
        several.calls = 3;
        assert_eq!(of(&several).sources.len(), 4);
        assert_eq!([0, 1, 5].map(|made| of(&several).choose(made, &[7; 4])), [0, 1, 1], "in turn");
        assert_eq!(Ports::with(&several, 28_232, false).sources.len(), SOURCES_MAX);
        several.reset = true;
        assert_eq!(of(&several).sources.len(), 0);
    }

    #[test]
    fn the_range_is_read() {
        assert_eq!((range("32768\t60999\n"), range("1024 65535"), range("")), (28_232, 64_512, 28_232));
    }
}
