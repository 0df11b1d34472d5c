//! `tidegate lab --dry-run`: describes an experiment.

use std::fmt::Write as _;

use figures::units::{format_counted, format_seconds};

use super::file::{Lab, LabServer};
use super::servers::{TestMachine, is_installed};
use crate::report::text::grouped_rate;

/// Estimated seconds of a server's start and end.
const START: f64 = 0.3;
const GREATEST: f64 = 1.2;

pub fn describe_plan(lab: &Lab, testbed: &TestMachine, server_cpus: &[usize], client_cpus: &[usize]) -> String {
    let mut out = format!("{}\n\nservers on CPUs {server_cpus:?}, client on {client_cpus:?}\n", lab.title);
    let _ = writeln!(out, "directory {}", testbed.directory.display());
    for command in &lab.setup {
        let _ = writeln!(out, "first     {}", testbed.fill(command, ""));
    }
    let mut present = 0;
    for (role, server) in lab.backends.iter().map(|s| ("backend", s)).chain(lab.servers.iter().map(|s| ("server", s))) {
        let (line, there) = starts(testbed, server);
        present += usize::from(role == "server" && there);
        let _ = writeln!(out, "{role:9} {} on port {}\n          {line}", server.name, testbed.port(&server.name));
        for name in server.files.keys() {
            let _ = writeln!(out, "          file {}", testbed.fill(name, &server.name));
        }
    }
    for name in lab.files.keys() {
        let _ = writeln!(out, "file      {name}");
    }
    let (length, warmup) = lab.times();
    let mut total = present as f64 * START;
    for w in &lab.workloads {
        let servers = lab.servers.iter().filter(|s| w.includes(&s.name)).filter(|s| starts(testbed, s).1).count();
        let levels: Vec<String> = w
            .values
            .iter()
            .map(|v| match v.value(100.0) {
                Some(share) if v.is_share() => format!("{} % of the greatest rate", grouped_rate(share)),
                Some(value) => grouped_rate(value),
                None => "?".into(),
            })
            .collect();
        let turns = levels.len() * servers * lab.rounds;
        total += turns as f64 * (length + warmup + if lab.isolate { START } else { 0.0 });
        if w.values.iter().any(|v| v.is_share()) {
            total += servers as f64 * (GREATEST + START);
        }
        let requests: Vec<String> = w.specs().iter().map(|r| format!("{} {}", r.method, r.path)).collect();
        let _ = writeln!(
            out,
            "workload  {}: {} at {} {}, {}, {} of {}: {}",
            w.name,
            requests.join(", "),
            levels.join("; "),
            w.quantity(),
            format_counted(servers as u64, "server", "servers"),
            format_counted(lab.rounds as u64, "round", "rounds"),
            format_seconds(length),
            format_counted(turns as u64, "turn", "turns")
        );
    }
    total += (lab.rounds * present) as f64 * START;
    let _ = writeln!(out, "\nabout {} in total; nothing was started or written", format_seconds(total));
    out
}

/// Start command of a server, and whether its program is installed.
fn starts(testbed: &TestMachine, server: &LabServer) -> (String, bool) {
    if !server.backend.is_empty() {
        return (format!("the backend {} itself, asked directly", server.backend), true);
    }
    let command = testbed.fill(&server.command, &server.name);
    match is_installed(&command) {
        true => (command, true),
        false => (format!("{command} (left out: its program is not installed)"), false),
    }
}
