//! `tidegate doctor [-c FILE]`: compares the limits of this machine with the needs of a configuration.

mod certificates;
mod confinement;
mod stores;

use crate::conf;
use crate::machine_limits::demand::Demand;
use crate::machine_limits::examine::{Finding, FindingVerdict, examine_machine, first_to_bind, format_number};
use crate::machine_limits::machine::DoctorMachine;
use crate::options;
use crate::report;
use conf_schema::TextStore;
use conf_syntax::Disk;
use observe::LogFiles;
use std::ffi::OsString;
use std::io::IsTerminal;

pub const HELP: &str = "\
Usage: tidegate doctor [-c FILE] [-p PREFIX] [-g DIRECTIVES] [--json]

Compares the limits of this machine (open files, queues, ports, memory, connection tracking ...)
with the needs of the configuration. Prints the limit that binds first, and the command that raises
each limit that is too low. For HTTP/3, checks UDP buffers, segmentation and firewalls. Reports
whether the kernel supports the sandbox, whether the store of shared_store is there, and
certificates that expire soon, are for other names, or have an incomplete chain. Run it as the
server's user, inside the server's container or unit, because limits differ between them.

  -c, -p, -g   as for the server; -c also finds a file of the current directory
  --json       print one JSON object instead of the table

Exit code: 0 if all limits suffice, 1 if a limit is too low, 2 if the configuration is invalid.
";

pub fn run_doctor(arguments: &[OsString]) -> i32 {
    let json = arguments.iter().any(|a| a == "--json");
    let rest: Vec<OsString> = arguments.iter().filter(|a| *a != "--json").cloned().collect();
    let invocation = match options::parse_place(&rest) {
        Ok(invocation) => invocation,
        Err(words) => {
            eprintln!("tidegate: {words}\n  = \"tidegate doctor --help\" lists the options");
            return 2;
        }
    };
    let reading = conf::read_config(&Disk, TextStore::default(), &invocation, LogFiles::default());
    let config = match &reading.config {
        Ok(config) => config,
        Err(failure) => {
            report::print_failure(failure, report::Style::new(true), None);
            return 2;
        }
    };
    let demand = Demand::of(&invocation, config);
    let mut findings = examine_machine(&DoctorMachine::read(), &demand);
    findings.extend(certificates::examine_certificates(config, base::clock::unix_seconds()));
    findings.extend(confinement::examine_confinement(config));
    findings.extend(stores::examine_store(config));
    let name = invocation.conf_file.display().to_string();
    if json {
        base::outln!("{}", as_json(&name, &demand, &findings));
    } else {
        base::out!("{}", as_text(&name, &demand, &findings, std::io::stdout().is_terminal()));
    }
    i32::from(findings.iter().any(|f| f.verdict == FindingVerdict::Short))
}

fn as_text(name: &str, demand: &Demand, findings: &[Finding], colour: bool) -> String {
    let paint = |code: &str, text: &str| if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() };
    let mut out = format!(
        "{name}: {} x {}, {}, {}\n\n",
        counted(demand.workers, ["worker thread", "worker threads"]),
        counted(demand.connections_each, ["connection", "connections"]),
        counted(demand.addresses.len() as u64, ["listen address", "listen addresses"]),
        counted(demand.upstreams, ["upstream server", "upstream servers"]),
    );
    out += &format!("  {:<26}{:>14}{:>14}\n", "limit", "available", "needed");
    for f in findings {
        let verdict = match f.verdict {
            FindingVerdict::Fine => paint("32", "fine"),
            FindingVerdict::Note => paint("33", "note"),
            FindingVerdict::Short => paint("31", "short"),
        };
        out += &format!("  {:<26}{:>14}{:>14}  {verdict}\n", f.name, f.here, f.needed);
    }
    for f in findings.iter().filter(|f| f.verdict != FindingVerdict::Fine) {
        out += &format!("\n{}: {}\n  = {}\n", f.name, f.why, f.remedy);
    }
    let (limit, connections) = first_to_bind(findings, demand);
    out += &format!("\nFirst limit: {limit}, at {} simultaneous connections.\n", format_number(connections));
    out
}

/// Chooses the singular or the plural of the noun.
fn counted(n: u64, [one, many]: [&str; 2]) -> String {
    match n {
        0 => format!("no {many}"),
        1 => format!("1 {one}"),
        n => format!("{} {many}", format_number(n)),
    }
}

fn as_json(name: &str, demand: &Demand, findings: &[Finding]) -> serde_json::Value {
    let (limit, connections) = first_to_bind(findings, demand);
    let limits: Vec<_> = findings
        .iter()
        .map(|f| {
            let fine = f.verdict == FindingVerdict::Fine;
            serde_json::json!({
                "limit": f.name, "here": f.here, "needed": f.needed, "connections": f.connections,
                "verdict": format!("{:?}", f.verdict).to_lowercase(),
                "why": (!fine).then_some(&f.why), "remedy": (!fine).then_some(&f.remedy),
            })
        })
        .collect();
    serde_json::json!({
        "configuration": name, "workers": demand.workers, "connections": demand.connections(),
        "first_to_bind": limit, "connections_possible": connections, "limits": limits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_what_binds_and_what_lifts_it() {
        let machine = DoctorMachine { descriptors_hard: Some(1024), ..DoctorMachine::default() };
        let demand = Demand { workers: 1, connections_each: 4096, ..Demand::default() };
        let findings = examine_machine(&machine, &demand);
        let text = as_text("nginx.conf", &demand, &findings, false);
        assert!(text.contains("open files") && text.contains("short") && text.contains("LimitNOFILE="), "{text}");
        assert!(text.contains("First limit: open files, at "), "{text}");
        let json = as_json("nginx.conf", &demand, &findings);
        assert_eq!(json["first_to_bind"], "open files");
        assert_eq!(json["limits"][0]["verdict"], "short");
    }
}
