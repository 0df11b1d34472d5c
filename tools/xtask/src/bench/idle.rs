//! Many connections that wait: what each costs in memory.

use super::report::BenchOutcome;
use super::scenario::Scenario;
use super::server::{BenchServer, exchange_request};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;

/// For this process and the servers.
const DESCRIPTORS: u64 = 65_536;

pub fn raise_descriptors() -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|now| now >= DESCRIPTORS) {
        return Ok(());
    }
    let maximum = limit.maximum.map(|max| max.max(DESCRIPTORS));
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum })
        .or_else(|_| setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }))
        .map_err(|e| format!("the limit of open files cannot be raised: {e}"))
}

/// Bytes per connection, in pairs: nginx, Tidegate. Starts a new server for each, because used memory is kept.
pub fn measure_idle(scenario: &Scenario, binary: &Path, nginx: &Path, pairs: usize) -> Result<BenchOutcome, String> {
    let mut out = Vec::new();
    for _ in 0..pairs {
        let theirs = bytes_each(scenario, nginx, "nginx")?;
        let ours = bytes_each(scenario, binary, "tidegate")?;
        out.push((theirs, ours));
    }
    Ok(BenchOutcome::Memory(out))
}

fn bytes_each(scenario: &Scenario, binary: &Path, name: &'static str) -> Result<f64, String> {
    let server = BenchServer::start(scenario, binary, name, 0)?;
    let request = format!("GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", scenario.path);
    let before = server.memory();
    let mut streams = Vec::with_capacity(scenario.connections);
    for _ in 0..scenario.connections {
        let mut stream = server.connect()?;
        let answer = exchange_request(&mut stream, request.as_bytes())?;
        if answer.status != 200 {
            return Err(format!("{name} answered {}", answer.status));
        }
        streams.push(stream);
    }
    // Checks that the first and the last connection are still served.
    let after = server.memory();
    for index in [0, scenario.connections - 1] {
        exchange_request(&mut streams[index], request.as_bytes())
            .map_err(|e| format!("{name}, connection {index}: {e}"))?;
    }
    Ok(after.saturating_sub(before) as f64 / scenario.connections as f64)
}
