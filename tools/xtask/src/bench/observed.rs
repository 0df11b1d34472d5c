//! `cargo xtask bench --observed`: CPU time of all metrics, zones and sampled traces.
//!
//! Two processes of one binary run a scenario's configuration, one as it is, one with a zone for each server, location and
//! upstream group, the page of metrics, and traces for 1 % of the requests, exported over HTTP to a collector on the client's processor.

use super::report::value_spread;
use super::scenario::{self, Scenario};
use super::server::{BenchServer, PATIENCE};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub const SCENARIOS: [&str; 2] = ["static-5k", "proxy-1k"];

/// Connections of the client; each has one request at a time.
const CONNECTIONS: usize = 32;
/// Requests per connection and turn. Turns are short, so that what disturbs the machine disturbs both servers.
const ROUNDS: usize = 60;
/// Pairs of turns per second of `--seconds`.
const PAIRS_PER_SECOND: u64 = 5;

/// Measures the scenarios in pairs of short turns, and writes `observed.md` into `folder`.
pub fn measure_observed(scenarios: &[Scenario], binary: &Path, seconds: u64, folder: &Path) -> Result<(), String> {
    let collector = ExportCollector::start()?;
    let mut processors = rustix::thread::CpuSet::new();
    processors.set(1);
    rustix::thread::sched_setaffinity(None, &processors).map_err(|e| format!("processor 1: {e}"))?;
    let pairs = seconds * PAIRS_PER_SECOND;
    let mut text = format!(
        "# Cost of metrics, zones and traces\n\nCPU time per request of the whole process in {pairs} pairs of {} requests, without and with a zone for each \
         server, location and upstream group, `metrics`, and traces for 1 % of the requests. Medians; the quartiles of the pairs' differences in \
         brackets.\n\n| Scenario | plain | observed | difference |\n|---|---:|---:|---:|\n",
        CONNECTIONS * ROUNDS
    );
    for scenario in scenarios {
        let origin = scenario.origin.as_ref().map(|conf| BenchServer::origin(scenario, conf, binary)).transpose()?;
        let port = origin.as_ref().map_or(0, |server| server.port);
        let start = |conf: String, name| {
            let mut scenario = scenario.clone();
            scenario.conf = conf;
            let server = BenchServer::start(&scenario, binary, name, port)?;
            let client = Client::connect(&server, &scenario)?;
            Ok::<_, String>((server, client))
        };
        let mut plain = start(plain(&scenario.conf), "plain")?;
        let mut observed = start(observed(&scenario.conf, collector.port)?, "observed")?;
        let before = collector.exports.load(Ordering::Relaxed);
        let mut all = Vec::new();
        for round in 0..pairs {
            all.push(if round % 2 == 0 {
                let first = turn(&mut plain)?;
                (first, turn(&mut observed)?)
            } else {
                let first = turn(&mut observed)?;
                (turn(&mut plain)?, first)
            });
        }
        if collector.exports.load(Ordering::Relaxed) == before {
            return Err(format!("{}: no trace reached the collector", scenario.name));
        }
        let row = row(&scenario.name, &all);
        eprint!("{row}");
        text.push_str(&row);
    }
    std::fs::create_dir_all(folder).map_err(|e| e.to_string())?;
    std::fs::write(folder.join("observed.md"), text).map_err(|e| format!("{}: {e}", folder.display()))
}

/// CPU time per request in microseconds.
fn turn((server, client): &mut (BenchServer, Client)) -> Result<f64, String> {
    let before = server.cpu_ns();
    for _ in 0..ROUNDS {
        client.round().map_err(|e| format!("{}: {e}", server.name))?;
    }
    Ok((server.cpu_ns() - before) as f64 / 1000.0 / (CONNECTIONS * ROUNDS) as f64)
}

/// A client of kept connections, which sends a request on each before it reads the responses.
struct Client {
    streams: Vec<TcpStream>,
    request: String,
    /// Bytes of a response, which are always equally many.
    length: usize,
}

impl Client {
    fn connect(server: &BenchServer, scenario: &Scenario) -> Result<Client, String> {
        let streams: Result<Vec<_>, _> = (0..CONNECTIONS).map(|_| server.connect()).collect();
        let mut streams = streams?;
        let request = format!("GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", scenario.path);
        let first = streams.first_mut().ok_or("no connection")?;
        let length = length_of_response(first, &request).map_err(|e| format!("{}: {e}", server.name))?;
        Ok(Client { streams, request, length })
    }

    fn round(&mut self) -> std::io::Result<()> {
        for stream in &mut self.streams {
            stream.write_all(self.request.as_bytes())?;
        }
        let mut response = vec![0; self.length];
        for stream in &mut self.streams {
            stream.read_exact(&mut response)?;
            if !response.starts_with(b"HTTP/1.1 200 ") {
                return Err(std::io::Error::other("a response is not 200"));
            }
        }
        Ok(())
    }
}

fn length_of_response(stream: &mut TcpStream, request: &str) -> std::io::Result<usize> {
    stream.write_all(request.as_bytes())?;
    let mut reader = BufReader::new(stream);
    let (mut head, mut body) = (0, 0);
    loop {
        let mut line = String::new();
        head += reader.read_line(&mut line)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            body = value.trim().parse().map_err(|_| std::io::Error::other("an invalid Content-Length"))?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    std::io::copy(&mut reader.take(body as u64), &mut std::io::sink())?;
    Ok(head + body)
}

fn row(name: &str, pairs: &[(f64, f64)]) -> String {
    let mut changes: Vec<f64> = pairs.iter().map(|(plain, observed)| (observed / plain - 1.0) * 100.0).collect();
    changes.sort_by(f64::total_cmp);
    let quartile = |quarters: usize| changes.get(changes.len() * quarters / 4).copied().unwrap_or(0.0);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "| {name} | {:.2} µs | {:.2} µs | {:+.1} % ({:+.1} to {:+.1}) |",
        value_spread(pairs.iter().map(|(plain, _)| *plain)).median,
        value_spread(pairs.iter().map(|(_, observed)| *observed)).median,
        value_spread(changes.iter().copied()).median,
        quartile(1),
        quartile(3)
    );
    out
}

/// A location as the other configuration has it, without a zone.
fn plain(conf: &str) -> String {
    conf.replacen("        root html;", "        root html;\n        location / { }", 1)
}

/// Adds everything that observes requests to a configuration.
fn observed(conf: &str, collector: u16) -> Result<String, String> {
    let http = format!(
        "http {{\n    otel_exporter {{ endpoint http://127.0.0.1:{collector}/v1/traces; }}\n    \
         split_clients $otel_trace_id $sampled {{ 1% on; * off; }}\n    otel_trace $sampled;"
    );
    let mut out = conf.replacen("\nhttp {", &format!("\n{http}"), 1);
    out = out.replacen("    upstream origin {", "    upstream origin {\n        zone origin 256k;", 1);
    let location = "status_zone root;";
    out = match out.contains("        location / {") {
        true => out.replacen("        location / {", &format!("        location / {{\n            {location}"), 1),
        false => {
            out.replacen("        root html;", &format!("        root html;\n        location / {{ {location} }}"), 1)
        }
    };
    let server = "\n        status_zone main;\n        location = /metrics { metrics; }";
    out = out.replacen("backlog=16384;", &format!("backlog=16384;{server}"), 1);
    match out.matches("status_zone").count() == 2 && out.contains("otel_trace $sampled") {
        true => Ok(out),
        false => Err("the scenario's configuration has another shape than expected".into()),
    }
}

/// Accepts exports and confirms them.
struct ExportCollector {
    port: u16,
    exports: Arc<AtomicU64>,
}

impl ExportCollector {
    /// Its threads end with the program.
    fn start() -> Result<ExportCollector, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("collector: {e}"))?;
        let port = listener.local_addr().map_err(|e| format!("collector: {e}"))?.port();
        let exports = Arc::new(AtomicU64::new(0));
        let count = exports.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = count.clone();
                std::thread::spawn(move || confirm(stream, &count));
            }
        });
        Ok(ExportCollector { port, exports })
    }
}

fn confirm(stream: TcpStream, exports: &AtomicU64) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0_u64;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).ok()?;
        exports.fetch_add(1, Ordering::Relaxed);
        writer
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")
            .ok()?;
    }
}

/// Returns the scenarios of this measurement.
pub fn observed_scenarios(folder: &Path, names: &[String]) -> Result<Vec<Scenario>, String> {
    let names = match names {
        [] => SCENARIOS.map(String::from).to_vec(),
        names => names.to_vec(),
    };
    scenario::all_scenarios(folder, &names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_get_zones_and_traces() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/scenarios");
        for scenario in observed_scenarios(&folder, &[]).expect("scenarios") {
            let conf = observed(&scenario.conf, 4318).expect("a known shape");
            let zones = if scenario.origin.is_some() { 3 } else { 2 };
            assert_eq!(conf.matches("zone ").count(), zones, "{conf}");
        }
        assert!(observed("# bench:\nhttp {\n}\n", 4318).is_err());
    }

    #[test]
    fn a_row_has_the_middle_of_the_pairs() {
        let pairs = [(10.0, 10.1), (10.0, 10.2), (10.0, 13.0)];
        assert_eq!(row("x", &pairs), "| x | 10.00 µs | 10.20 µs | +2.0 % (+1.0 to +30.0) |\n");
    }
}
