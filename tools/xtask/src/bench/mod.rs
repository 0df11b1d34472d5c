//! `cargo xtask bench`: Tidegate and nginx on the same configuration, in pairs.
//!
//! Both servers run, pinned to processor 0; the client (wrk) runs on processor 1, with the origin of the scenarios that have one,
//! and loads them turn by turn, A B A B. Where a scenario has a `haproxy.cfg`, HAProxy takes a turn after each pair; where its first line
//! has `floor=`, so does the program of `benches/floor`, which is built with `cc`. What is
//! compared is the servers' CPU time a request, and only within a pair: it survives a busy machine, which requests a second do
//! not. A scenario of HTTP/2 (`streams=`) or HTTP/3 (`http3`) has `tidegate bench` as its client; with an `h2o.conf` h2o takes a turn after each pair. A scenario with `rates=` is measured at these offered rates, too, with `tidegate bench` as the client (open loop): there
//! a server wakes up for every request. `--syscalls` counts system calls a request of one kept connection instead, `--fairness` measures what a second
//! client waits beside a hog, `--large` what a test and a reload of 1,000 servers cost, `--scrape` the latency beside scrapes of 1,000 zones, `--observed`
//! the CPU time of zones and sampled traces, `--sizes` responses by size, `--tails` the slowest responses, `--threads` two worker threads beside one. A scenario of the stream area (`session=tcp`, `session=udp`) has a client of its own, and counts
//! megabytes or datagrams. Scenarios
//! stand in `benches/scenarios`, a folder each; results go to `benches/runs`, whatever they are.

mod calls;
mod fairness;
mod idle;
mod large;
mod observed;
mod report;
mod scenario;
mod scrape;
mod server;
mod sessions;
mod sizes;
mod tails;
mod threads;
mod touched;
mod turns;

use report::{BenchOutcome, ReportRow};
use scenario::Scenario;
use server::BenchServer;
use std::path::{Path, PathBuf};
use std::process::Command;
use turns::{Turn, patient_turn, turn_by, wrk_turn};

pub const HELP: &str = "\
Usage: cargo xtask bench [SCENARIO...] [OPTIONS]

Measures Tidegate and nginx on the same configuration, alternately, on CPU 0, with the client on CPU 1: CPU
time per request, or memory per idle connection. Without a name it runs all scenarios of benches/scenarios.
Needs nginx, wrk, taskset and gzip; HAProxy, h2o and a C compiler (cc) add rows where they are installed.

  --pairs N       turns of each server (default: 5)
  --seconds S     duration of a turn (default: 3)
  --nginx PATH    nginx to compare with (default: /usr/sbin/nginx)
  --binary PATH   Tidegate to measure (default: this checkout, built as for packages)
  --client PATH   Tidegate whose \"bench\" generates the load (default: the measured one)
  --out DIR       directory of the results (default: a new one in benches/runs)
  --note WORDS    remark for the results

Instead of CPU time:

  --syscalls      count system calls per request (needs strace; default: static-5k and proxy-1k)
  --fairness      measure the latency of a second client beside one that saturates the server
  --large         measure -t and reloads of a configuration with 1,000 servers
  --scrape        measure latency beside scrapes of the metrics of 1,000 zones
  --sizes         measure responses of 1 KB to 4 MB over 1 and 64 connections: CPU time, p50 and p99;
                  SCENARIO is static, proxied, TLS, HTTP/2 or HTTP/3
  --tails         measure p50, p99 and p99.9 of a closed loop, at 50, 80 and 95 % of nginx's rate, and of 100
                  clients beside a download (default: six scenarios)
  --threads       measure two worker threads beside one, with as many processors (default: six scenarios)
  --touched       count the cache lines and pages that a request touches (needs valgrind and nm; default: five
                  scenarios)
  --order FILE    with --touched: write a linker script that places the functions beside each other
  --observed      measure the CPU time of zones, metrics and sampled traces (default: static-5k and proxy-1k)

  cargo xtask bench static-5k h2-5k --pairs 7
";

/// Scenarios of `--syscalls` by default: a static file and a proxied response.
const CALLS_OF: [&str; 2] = ["static-5k", "proxy-1k"];

struct BenchOptions {
    scenarios: Vec<String>,
    pairs: usize,
    seconds: u64,
    nginx: PathBuf,
    binary: Option<PathBuf>,
    /// Binary whose `bench` generates open-loop load; default: the measured one.
    client: Option<PathBuf>,
    calls: bool,
    /// Latency of a second client beside a saturating one.
    fairness: bool,
    /// Measure `-t` and reloads of a large configuration.
    large: bool,
    /// Measure latency beside scrapes of many zones.
    scrape: bool,
    /// Measure the cost of metrics, zones and traces.
    observed: bool,
    /// Measure responses by size.
    sizes: bool,
    /// Measure the slowest responses.
    tails: bool,
    /// Measure two worker threads beside one.
    threads: bool,
    /// Count lines and pages of a request.
    touched: bool,
    /// Linker script to be written.
    order: Option<PathBuf>,
    out: Option<PathBuf>,
    note: String,
}

/// The input of a way to measure scenarios.
struct BenchTask<'a> {
    /// The checkout.
    root: &'a Path,
    /// Tidegate under test.
    binary: &'a Path,
    /// Tidegate whose `bench` generates load.
    client: &'a Path,
    options: &'a BenchOptions,
    /// Of the results; it need not exist.
    folder: &'a Path,
}

pub fn run_bench(arguments: &[String]) -> Result<(), String> {
    if let [flag, kind, port] = arguments
        && flag == "--hog"
    {
        return fairness::run_hog(kind, port.parse().map_err(|_| "--hog wants a port")?);
    }
    let options = parse(arguments)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().map_err(|e| e.to_string())?;
    let binary = match &options.binary {
        Some(path) => path.canonicalize().map_err(|e| format!("{}: {e}", path.display()))?,
        None => build(&root)?,
    };
    let client = match &options.client {
        Some(path) => path.canonicalize().map_err(|e| format!("{}: {e}", path.display()))?,
        None => binary.clone(),
    };
    let folder = options.out.clone().unwrap_or_else(|| root.join("benches/runs").join(report::run_name()));
    if options.large {
        return large::measure_large(&binary, &options.nginx, options.pairs, &folder);
    }
    if options.scrape {
        return scrape::measure_scrapes(&binary, &client, options.pairs, options.seconds, &folder);
    }
    let own = match () {
        () if options.calls => "strace",
        () if options.touched => "valgrind",
        () => "wrk",
    };
    let programs = [own, "taskset", "gzip"];
    for program in programs {
        if Command::new(program).arg("--version").output().is_err() {
            return Err(format!("{program} is not installed"));
        }
    }
    idle::raise_descriptors()?;
    if options.fairness {
        let scenarios = scenario::all_scenarios(&root.join("benches/scenarios"), &["static-5k".to_string()])?;
        let scenario = scenarios.first().ok_or("there is no scenario \"static-5k\"")?;
        return fairness::measure_fairness(scenario, &binary, &options.nginx, options.pairs, options.seconds, &folder);
    }
    if options.observed {
        let scenarios = observed::observed_scenarios(&root.join("benches/scenarios"), &options.scenarios)?;
        return observed::measure_observed(&scenarios, &binary, options.seconds, &folder);
    }
    let task = BenchTask { root: &root, binary: &binary, client: &client, options: &options, folder: &folder };
    if options.sizes {
        return sizes::run(&task);
    }
    if options.touched {
        return touched::measure_touched(&task);
    }
    if options.threads {
        return threads::measure_threads(&task);
    }
    if options.tails {
        return tails::measure_tails(&task);
    }
    let mut rows = Vec::new();
    for scenario in scenario::all_scenarios(&root.join("benches/scenarios"), &options.scenarios)? {
        eprintln!("==> {}", scenario.name);
        let outcome = match measure(&scenario, &binary, &client, &options) {
            Ok(outcome) => outcome,
            Err(words) => BenchOutcome::NotRun(words),
        };
        let row = ReportRow { name: scenario.name.clone(), load: report::load_average(), outcome };
        eprintln!("    {}", report::row_line(&row));
        rows.push(row);
    }
    let (pairs, seconds) = (options.pairs, options.seconds);
    report::write_report(
        &folder,
        &rows,
        &report::BenchRun { pairs, seconds, nginx: version(&options.nginx), note: options.note },
    )
}

impl BenchOptions {
    /// Reads the named scenarios; without a name, those of `default`.
    fn scenarios_or(&self, root: &Path, default: &[&str]) -> Result<Vec<Scenario>, String> {
        let names = match self.scenarios.as_slice() {
            [] => default.iter().map(ToString::to_string).collect(),
            names => names.to_vec(),
        };
        scenario::all_scenarios(&root.join("benches/scenarios"), &names)
    }
}

fn parse(arguments: &[String]) -> Result<BenchOptions, String> {
    let mut options = BenchOptions {
        scenarios: Vec::new(),
        pairs: 5,
        seconds: 3,
        nginx: "/usr/sbin/nginx".into(),
        binary: None,
        client: None,
        calls: false,
        fairness: false,
        large: false,
        scrape: false,
        observed: false,
        sizes: false,
        tails: false,
        threads: false,
        touched: false,
        order: None,
        out: None,
        note: String::new(),
    };
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--pairs" => options.pairs = value()?.parse().map_err(|_| "--pairs wants a number")?,
            "--seconds" => options.seconds = value()?.parse().map_err(|_| "--seconds wants a number")?,
            "--nginx" => options.nginx = value()?.into(),
            "--binary" => options.binary = Some(value()?.into()),
            "--client" => options.client = Some(value()?.into()),
            "--syscalls" => options.calls = true,
            "--fairness" => options.fairness = true,
            "--large" => options.large = true,
            "--scrape" => options.scrape = true,
            "--observed" => options.observed = true,
            "--sizes" => options.sizes = true,
            "--tails" => options.tails = true,
            "--threads" => options.threads = true,
            "--touched" => options.touched = true,
            "--order" => options.order = Some(value()?.into()),
            "--out" => options.out = Some(value()?.into()),
            "--note" => options.note = value()?.clone(),
            flag if flag.starts_with('-') => {
                return Err(format!("unknown option \"{flag}\"; see cargo xtask bench --help"));
            }
            name => options.scenarios.push(name.to_string()),
        }
    }
    if options.calls && options.scenarios.is_empty() {
        options.scenarios = CALLS_OF.iter().map(ToString::to_string).collect();
    }
    if options.pairs == 0 || options.seconds == 0 {
        return Err("at least one pair of one second".into());
    }
    Ok(options)
}

fn build(root: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--profile", "dist", "--quiet", "--package", "tidegate", "--bin", "tidegate"])
        .current_dir(root)
        .status()
        .map_err(|e| format!("cargo cannot be run: {e}"))?;
    if !status.success() {
        return Err("the binary does not build".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("dist/tidegate"))
}

fn version(nginx: &Path) -> String {
    let output = Command::new(nginx).arg("-v").output();
    let words = output.map(|o| String::from_utf8_lossy(&o.stderr).into_owned()).unwrap_or_default();
    words.trim().rsplit(' ').next().unwrap_or("nginx").to_string()
}

fn measure(scenario: &Scenario, binary: &Path, client: &Path, options: &BenchOptions) -> Result<BenchOutcome, String> {
    if scenario.idle && options.calls {
        return Err("idle connections make no calls".into());
    }
    if let (Some(kind), false) = (scenario.session, options.calls) {
        return sessions::measure_sessions(scenario, kind, binary, options);
    }
    if scenario.idle {
        return idle::measure_idle(scenario, binary, &options.nginx, options.pairs);
    }
    let origin = match (&scenario.origin, &scenario.php) {
        (Some(conf), _) => Some(BenchServer::origin(scenario, conf, binary)?),
        (None, Some(conf)) => Some(BenchServer::php(conf)?),
        (None, None) => None,
    };
    let port = origin.as_ref().map_or(0, |server| server.port);
    let ours = BenchServer::start(scenario, binary, "tidegate", port)?;
    let theirs = BenchServer::start(scenario, &options.nginx, "nginx", port)?;
    if options.calls && scenario.protocol().is_some() {
        return Err("calls are counted over HTTP/1.1".into());
    }
    if options.calls {
        compare(&ours, &ours.ask(scenario)?, &theirs, &theirs.ask(scenario)?)?;
        return Ok(BenchOutcome::Calls(calls::count_calls(scenario, &theirs)?, calls::count_calls(scenario, &ours)?));
    }
    let mut peers = Vec::new();
    if let Some(conf) = scenario.haproxy.as_ref().filter(|_| is_there("haproxy")) {
        peers.push(BenchServer::haproxy(scenario, conf, Path::new("haproxy"), port)?);
    }
    if let Some(conf) = scenario.h2o.as_ref().filter(|_| is_there("h2o")) {
        peers.push(BenchServer::h2o(scenario, conf, Path::new("h2o"))?);
    }
    same_answers(scenario, client, &ours, &theirs)?;
    for peer in &peers {
        same_answers(scenario, client, peer, &theirs)?;
    }
    // The floor program sends only the length, not the content.
    if let Some(mode) = &scenario.floor {
        peers.extend(BenchServer::floor(scenario, mode, port)?);
    }
    let turn = |server: &BenchServer| match scenario.by_bench() {
        true => patient_turn(|| turn_by(scenario, server, client, options.seconds)),
        false => wrk_turn(scenario, server, options.seconds),
    };
    let outcome = in_pairs(&ours, &theirs, &peers, options.pairs, &turn)?;
    same_answers(scenario, client, &ours, &theirs)?;
    Ok(outcome)
}

/// Compares the scenario's response of two servers.
fn same_answers(scenario: &Scenario, client: &Path, a: &BenchServer, b: &BenchServer) -> Result<(), String> {
    match scenario.tls || scenario.protocol().is_some() {
        false => compare(a, &a.ask(scenario)?, b, &b.ask(scenario)?),
        true => compare(a, &a.ask_by(client, scenario)?, b, &b.ask_by(client, scenario)?),
    }
}

/// Tells whether a peer is installed.
fn is_there(program: &str) -> bool {
    Command::new(program).arg("-v").output().is_ok()
}

/// Measures the peers after each pair.
fn in_pairs(
    ours: &BenchServer,
    theirs: &BenchServer,
    peers: &[BenchServer],
    pairs: usize,
    turn: &dyn Fn(&BenchServer) -> Result<Turn, String>,
) -> Result<BenchOutcome, String> {
    let mut all = Vec::new();
    let mut others: Vec<(&'static str, Vec<Turn>)> = peers.iter().map(|peer| (peer.name, Vec::new())).collect();
    for round in 0..pairs {
        // Alternates the order, so that drift favours neither server.
        let pair = if round % 2 == 0 {
            let first = turn(theirs)?;
            (first, turn(ours)?)
        } else {
            let first = turn(ours)?;
            (turn(theirs)?, first)
        };
        all.push(pair);
        for (peer, (_, turns)) in peers.iter().zip(&mut others) {
            turns.push(turn(peer)?);
        }
    }
    Ok(BenchOutcome::Speed(all, others))
}

/// Compares status, length and bytes before and after the load.
fn compare(
    ours: &BenchServer,
    a: &server::ServerAnswer,
    theirs: &BenchServer,
    b: &server::ServerAnswer,
) -> Result<(), String> {
    if a.status != 200 || a != b {
        let show = |s: &BenchServer, x: &server::ServerAnswer| {
            format!("{} {} with {} bytes, hash {:x}", s.name, x.status, x.length, x.hash)
        };
        return Err(format!("the answers differ: {}, {}", show(ours, a), show(theirs, b)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/scenarios");
        let all = scenario::all_scenarios(&folder, &[]).expect("scenarios");
        assert!(all.len() >= 9);
        for (name, rate) in
            [("static-5k@2000", 2000), ("static-5k@8000", 8000), ("proxy-1k@2000", 2000), ("proxy-1k@8000", 8000)]
        {
            let scenario = all.iter().find(|s| s.name == name).expect(name);
            assert_eq!((scenario.rate, scenario.connections), (Some(rate), 64));
        }
        let h2 = all.iter().find(|s| s.name == "h2-5k").expect("h2-5k");
        assert_eq!(
            (h2.streams, h2.tls, h2.connections, h2.url(1).as_str()),
            (Some(16), true, 16, "https://127.0.0.1:1/5k.html")
        );
        assert!(h2.by_bench() && h2.h2o.is_some());
        for scenario in all {
            assert!(folder.join(scenario.folder()).join("goal.md").is_file(), "{} has no goal", scenario.name);
            assert!(scenario.conf.contains("listen 127.0.0.1:@PORT@"), "{} listens elsewhere", scenario.name);
        }
    }
}
