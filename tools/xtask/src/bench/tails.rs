//! `cargo xtask bench --tails`: the slowest responses, p99 and p99.9, of closed and open loops.
//!
//! The offered rates are shares of what nginx answers in a closed loop of the same client, so that both servers get the same
//! load. A further row has 100 small clients beside one that downloads 6 GB as fast as it goes.

use super::fairness::{self, Hog};
use super::report::value_spread;
use super::scenario::Scenario;
use super::server::BenchServer;
use super::turns::{ClientLoad, Turn, patient_turn};
use super::{BenchOptions, BenchTask, same_answers};
use std::fmt::Write as _;
use std::path::Path;

/// Scenarios whose tails are measured by default.
const TAILS_OF: [&str; 6] = ["static-5k", "proxy-1k", "proxy-500k", "tls-1k", "h2-5k", "h3-5k"];
/// Offered rates, in percent of nginx's closed loop.
const SHARES: [u64; 3] = [50, 80, 95];
/// Before each turn: connections and handshakes are no part of the tails.
const WARMUP_SECONDS: u64 = 1;
/// Clients beside a download, and what they ask for together per second.
const SMALL_CLIENTS: usize = 100;
const SMALL_RATE: u64 = 1000;

/// Measures all loads in pairs with nginx, and writes `tails.md` and `tails.csv` into `folder`. `options.scenarios` names the
/// scenarios; empty: [`TAILS_OF`].
///
/// # Errors
/// Of the scenarios' files, of the servers' start and of the closed loop. A rate that a server does not answer in any try of [`patient_turn`] says
/// so in the table.
pub(super) fn measure_tails(task: &BenchTask<'_>) -> Result<(), String> {
    let &BenchTask { root, binary, client, options, folder } = task;
    let mut report = TailReport::new(options);
    for scenario in options.scenarios_or(root, &TAILS_OF)? {
        let origin = scenario.origin.as_ref().map(|conf| BenchServer::origin(&scenario, conf, binary)).transpose()?;
        let port = origin.as_ref().map_or(0, |server| server.port);
        let servers = [
            BenchServer::start(&scenario, &options.nginx, "nginx", port)?,
            BenchServer::start(&scenario, binary, "tidegate", port)?,
        ];
        same_answers(&scenario, client, &servers[1], &servers[0])?;
        let warm = |scenario: &Scenario, server: &BenchServer| {
            let seconds = options.seconds;
            ClientLoad { scenario, client, seconds, warmup_seconds: WARMUP_SECONDS, threads: None }.turn(server)
        };
        let closed = in_turns(&servers, options.pairs, &|server| warm(&scenario, server))?;
        let capacity = value_spread(closed.iter().map(|(theirs, _)| theirs.per_second)).median;
        report.row(&scenario.name, "closed loop", &closed);
        for share in SHARES {
            let rate = ((capacity * share as f64 / 100.0) as u64).max(1);
            let open = scenario.at_rate(rate);
            let load = format!("{share} %: {rate}/s");
            match in_turns(&servers, options.pairs, &|server| warm(&open, server)) {
                Ok(pairs) => report.row(&scenario.name, &load, &pairs),
                Err(words) => report.line(&format!("| {} | {load} | {words} | | | |", scenario.name)),
            }
        }
        if scenario.name == "static-5k" {
            fairness::make_download(&servers[0], &servers[1])?;
            let mut small = scenario.at_rate(SMALL_RATE);
            small.connections = SMALL_CLIENTS;
            let pairs = in_turns(&servers, options.pairs, &|server| {
                let _hog = Hog::start("download", server.port)?;
                warm(&small, server)
            })?;
            report.row(&scenario.name, &format!("{SMALL_CLIENTS} clients beside a download: {SMALL_RATE}/s"), &pairs);
        }
    }
    report.write(folder)
}

/// Measures both servers in pairs: nginx's turn, then Tidegate's. A turn that other programs disturbed is repeated.
fn in_turns(
    servers: &[BenchServer; 2],
    pairs: usize,
    turn: &dyn Fn(&BenchServer) -> Result<Turn, String>,
) -> Result<Vec<(Turn, Turn)>, String> {
    let patient = |server: &BenchServer| patient_turn(|| turn(server));
    let [theirs, ours] = servers;
    let mut all = Vec::new();
    for round in 0..pairs {
        // Alternates the order, so that drift favours neither server.
        all.push(match round % 2 {
            0 => {
                let first = patient(theirs)?;
                (first, patient(ours)?)
            }
            _ => {
                let first = patient(ours)?;
                (patient(theirs)?, first)
            }
        });
    }
    Ok(all)
}

struct TailReport {
    text: String,
    table: String,
}

impl TailReport {
    fn new(options: &BenchOptions) -> TailReport {
        TailReport {
            text: format!(
                "# Tails\n\nMedians of {} pairs of {} s behind {WARMUP_SECONDS} s of warm-up, nginx / Tidegate. Latency in milliseconds; of an open loop, from the time \
                 at which a request was due. CPU: nginx's time per request over Tidegate's.\n\n\
                 | scenario | load | CPU | p50 | p99 | p99.9 |\n|---|---|---:|---|---|---|\n",
                options.pairs, options.seconds
            ),
            table: "scenario,load,cpu_ratio,nginx_p50_us,tidegate_p50_us,nginx_p99_us,tidegate_p99_us,nginx_p999_us,tidegate_p999_us\n"
                .into(),
        }
    }
    fn row(&mut self, scenario: &str, load: &str, pairs: &[(Turn, Turn)]) {
        let ratio = value_spread(pairs.iter().map(|(theirs, ours)| theirs.cpu_us / ours.cpu_us)).median;
        let figures: [fn(&Turn) -> f64; 3] = [|t| t.p50_us, |t| t.p99_us, |t| t.p999_us];
        let medians = figures.map(|figure| {
            let theirs = value_spread(pairs.iter().map(|(theirs, _)| figure(theirs))).median;
            (theirs, value_spread(pairs.iter().map(|(_, ours)| figure(ours))).median)
        });
        let [p50, p99, p999] = medians.map(|(theirs, ours)| format!("{:.2} / {:.2}", theirs / 1e3, ours / 1e3));
        let line = format!("| {scenario} | {load} | {ratio:.2} | {p50} | {p99} | {p999} |");
        self.line(&line);
        let values: Vec<String> = medians.iter().map(|(theirs, ours)| format!("{theirs:.0},{ours:.0}")).collect();
        let _ = writeln!(self.table, "{scenario},{load},{ratio:.3},{}", values.join(","));
    }
    fn line(&mut self, line: &str) {
        eprintln!("    {line}");
        let _ = writeln!(self.text, "{line}");
    }
    fn write(&self, folder: &Path) -> Result<(), String> {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for (name, content) in [("tails.md", &self.text), ("tails.csv", &self.table)] {
            std::fs::write(folder.join(name), content).map_err(|e| format!("{}: {e}", folder.join(name).display()))?;
        }
        Ok(())
    }
}
