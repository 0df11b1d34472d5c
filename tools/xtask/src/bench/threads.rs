//! `cargo xtask bench --threads`: two worker threads beside one.
//!
//! With one, the server, its client and the origin share processor 0; with two, each has a thread on each of two processors. So the load of a
//! processor is the same, and what a request costs more is the price of sharing: locks, counters, and a client on the other processor.

use super::report::value_spread;
use super::scenario::Scenario;
use super::server::BenchServer;
use super::turns::{ClientLoad, Turn, patient_turn};
use super::{BenchOptions, BenchTask, same_answers};
use std::fmt::Write as _;
use std::path::Path;

/// Scenarios by default: files, groups of servers, the cache, limits that all threads share.
const THREADS_OF: [&str; 6] = ["static-5k", "proxy-1k", "proxy-cache-hit", "limit-req", "tls-1k", "h2-5k"];
const CONNECTIONS_EACH: usize = 32;

/// Measures all scenarios with one thread and with two, in turns with nginx, and writes `threads.md` into `folder`.
/// `options.scenarios` names the scenarios; empty: [`THREADS_OF`].
///
/// # Errors
/// Of the scenarios' files, of the servers' start and of a turn that failed in all tries of [`patient_turn`].
pub(super) fn measure_threads(task: &BenchTask<'_>) -> Result<(), String> {
    let &BenchTask { root, binary, client, options, folder } = task;
    let mut text = format!(
        "# Two worker threads beside one\n\nMedians of {} turns of {} s. CPU time per request with one thread (nginx: process) and with two, in \
         microseconds, and the first over the second: 1 means that a second processor does as much as the first.\n\n\
         | scenario | nginx | | Tidegate | | responses per second, nginx | Tidegate |\n|---|---|---:|---|---:|---|---|\n",
        options.pairs, options.seconds
    );
    for scenario in options.scenarios_or(root, &THREADS_OF)? {
        let line = match measure_scenario(&scenario, binary, client, options) {
            Ok([theirs, ours]) => format!(
                "| {} | {} | {} | {} | {} |",
                scenario.name,
                theirs.cpu_cells(),
                ours.cpu_cells(),
                theirs.rate_cell(),
                ours.rate_cell()
            ),
            Err(words) => format!("| {} | not run: {words} | | | | | |", scenario.name),
        };
        eprintln!("    {line}");
        let _ = writeln!(text, "{line}");
    }
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let file = folder.join("threads.md");
    std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))
}

/// Turns of a server with one thread, and with two.
#[derive(Default)]
struct ThreadTurns {
    turns: Vec<(Turn, Turn)>,
}

impl ThreadTurns {
    fn median(&self, figure: impl Fn(&(Turn, Turn)) -> f64) -> f64 {
        value_spread(self.turns.iter().map(figure)).median
    }
    fn cpu_cells(&self) -> String {
        let (one, two) = (self.median(|(one, _)| one.cpu_us), self.median(|(_, two)| two.cpu_us));
        let share = value_spread(self.turns.iter().map(|(one, two)| one.cpu_us / two.cpu_us));
        format!("{one:.1} / {two:.1} | **{:.2}** ({:.2} to {:.2})", share.median, share.least, share.most)
    }
    fn rate_cell(&self) -> String {
        format!("{:.0} / {:.0}", self.median(|(one, _)| one.per_second), self.median(|(_, two)| two.per_second))
    }
}

/// Returns the turns of nginx, then Tidegate's.
fn measure_scenario(
    scenario: &Scenario,
    binary: &Path,
    client: &Path,
    options: &BenchOptions,
) -> Result<[ThreadTurns; 2], String> {
    let programs = [(options.nginx.as_path(), "nginx"), (binary, "tidegate")];
    let mut all = [ThreadTurns::default(), ThreadTurns::default()];
    for _ in 0..options.pairs {
        for (of_server, (program, name)) in all.iter_mut().zip(programs) {
            let mut by_threads = [Turn::default(); 2];
            for (threads, turn) in (1..).zip(&mut by_threads) {
                *turn = measure_turn(scenario, (program, name), (binary, client), threads, options.seconds)?;
            }
            let [one, two] = by_threads;
            of_server.turns.push((one, two));
        }
    }
    Ok(all)
}

/// Starts a server with so many threads, and its origin by Tidegate's `binary`, and loads it by as many threads of the client.
fn measure_turn(
    scenario: &Scenario,
    (program, name): (&Path, &'static str),
    (binary, client): (&Path, &Path),
    threads: usize,
    seconds: u64,
) -> Result<Turn, String> {
    let origin = scenario.origin.as_ref();
    let origin =
        origin.map(|conf| BenchServer::with_threads(scenario, conf, binary, "origin", 0, threads)).transpose()?;
    let port = origin.as_ref().map_or(0, |server| server.port);
    let server = BenchServer::with_threads(scenario, &scenario.conf, program, name, port, threads)?;
    same_answers(scenario, client, &server, &server)?;
    let mut loaded = scenario.clone();
    loaded.connections = CONNECTIONS_EACH * threads;
    let load = ClientLoad { scenario: &loaded, client, seconds, warmup_seconds: 1, threads: Some(threads) };
    patient_turn(|| load.turn(&server))
}
