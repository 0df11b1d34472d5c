//! A turn: the load of a scenario on one server, by wrk or by Tidegate's own client.

use super::scenario::Scenario;
use super::server::BenchServer;
use std::path::Path;
use std::process::Command;

/// Turns of Tidegate's client until one has not been disturbed by other programs.
const TRIES: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    pub cpu_us: f64,
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Of Tidegate's client; wrk does not tell it.
    pub p999_us: f64,
}

/// Runs wrk; returns the CPU time of the server's processes.
pub fn wrk_turn(scenario: &Scenario, server: &BenchServer, seconds: u64) -> Result<Turn, String> {
    let before = server.cpu_ns();
    let mut wrk = Command::new("taskset");
    wrk.args(["-c", "1", "wrk", "--latency", "-t1"]);
    wrk.arg(format!("-c{}", scenario.connections)).arg(format!("-d{seconds}s"));
    for header in &scenario.headers {
        wrk.args(["-H", &header.replace(':', ": ")]);
    }
    let output = wrk.arg(scenario.url(server.port)).output().map_err(|e| format!("wrk: {e}"))?;
    let after = server.cpu_ns();
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = text.lines().find(|line| line.contains("Non-2xx") || line.contains("Socket errors")) {
        return Err(format!("wrong answers from {}: {}", server.name, line.trim()));
    }
    let word = |mark: &str, index: usize| {
        let line = text.lines().find(|line| line.contains(mark))?;
        line.split_whitespace().nth(index).map(ToString::to_string)
    };
    let requests: f64 = word("requests in", 0).and_then(|w| w.parse().ok()).unwrap_or(0.0);
    if requests < 1.0 {
        return Err(format!("{} answered nothing", server.name));
    }
    Ok(Turn {
        cpu_us: (after - before) as f64 / 1000.0 / requests,
        per_second: word("Requests/sec:", 1).and_then(|w| w.parse().ok()).unwrap_or(0.0),
        p50_us: percentile_us(&text, "50%"),
        p99_us: percentile_us(&text, "99%"),
        p999_us: 0.0,
    })
}

/// A turn of Tidegate's client on processor 1, without a warm-up: at an offered rate with equal arrivals, or over HTTP/2.
pub fn turn_by(scenario: &Scenario, server: &BenchServer, client: &Path, seconds: u64) -> Result<Turn, String> {
    ClientLoad { scenario, client, seconds, warmup_seconds: 0, threads: None }.turn(server)
}

/// Repeats a turn that other programs disturbed, up to [`TRIES`] times in all; returns the last error.
pub fn patient_turn<T>(turn: impl Fn() -> Result<T, String>) -> Result<T, String> {
    (1..TRIES).find_map(|_| turn().ok()).map_or_else(&turn, Ok)
}

/// Load of Tidegate's client.
pub struct ClientLoad<'a> {
    pub scenario: &'a Scenario,
    pub client: &'a Path,
    pub seconds: u64,
    /// Before these seconds; no latency in it counts.
    pub warmup_seconds: u64,
    /// Threads of the client, on as many processors from 0 on; `None`: one on processor 1.
    pub threads: Option<usize>,
}

impl ClientLoad<'_> {
    /// Loads the server; returns the CPU time of its processes.
    ///
    /// # Errors
    /// When more than a hundredth of the requests failed, and in the words of the client.
    pub fn turn(&self, server: &BenchServer) -> Result<Turn, String> {
        let (scenario, client) = (self.scenario, self.client);
        let mut bench = bench_command(scenario, server, client, self.threads)?;
        bench.args(["-c", &scenario.connections.to_string(), "-d", &format!("{}s", self.seconds)]);
        bench.args(["--warmup", &format!("{}s", self.warmup_seconds)]);
        if let Some(streams) = scenario.streams {
            bench.args(["-m", &streams.to_string()]);
        }
        bench.args(scenario.fresh.then_some("--no-keepalive"));
        if let Some(rate) = scenario.rate {
            bench.args(["-r", &rate.to_string()]);
        }
        bench.arg(scenario.url(server.port));
        let before = server.cpu_ns();
        let output = bench.output().map_err(|e| format!("{}: {e}", client.display()))?;
        let after = server.cpu_ns();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| format!("the client says: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
        let round = &report["points"][0]["rounds"][0];
        let figure = |value: &serde_json::Value| value.as_f64().unwrap_or(0.0);
        let (due, good) = (figure(&round["due"]), figure(&round["good"]));
        // Failed requests cost another amount of time, or none. Those in flight at the end have not failed.
        let in_flight = scenario.connections * scenario.streams.unwrap_or(1);
        if good + (in_flight as f64) < due * 0.99 || good < 1.0 {
            return Err(format!("{} answered {good} of {due} requests", server.name));
        }
        // CPU time is that of the warm-up, too.
        let whole = good * (self.seconds + self.warmup_seconds) as f64 / self.seconds as f64;
        Ok(Turn {
            cpu_us: (after - before) as f64 / 1000.0 / whole,
            per_second: figure(&round["good_rps"]),
            p50_us: figure(&round["latency"]["p50"]) * 1e6,
            p99_us: figure(&round["latency"]["p99"]) * 1e6,
            p999_us: figure(&round["latency"]["p999"]) * 1e6,
        })
    }
}

/// Sends requests one after the other over one connection, with patience for a slow server.
pub fn turn_of_requests(scenario: &Scenario, server: &BenchServer, client: &Path, requests: u32) -> Result<(), String> {
    let mut bench = bench_command(scenario, server, client, None)?;
    bench.args(["--warmup", "0s", "-c", "1", "--requests", &requests.to_string(), "--timeout", "60s"]);
    bench.args(scenario.streams.map(|_| "-m1"));
    let output = bench.arg(scenario.url(server.port)).output().map_err(|e| format!("{}: {e}", client.display()))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_string()) }
}

/// Tidegate's client, with the scenario's request; without its load and URL. `threads`: see [`ClientLoad`].
fn bench_command(
    scenario: &Scenario,
    server: &BenchServer,
    client: &Path,
    threads: Option<usize>,
) -> Result<Command, String> {
    let processors = threads.map_or_else(|| "1".into(), |count| format!("0-{}", count.max(1) - 1));
    let mut bench = Command::new("taskset");
    bench.args(["-c", &processors]).arg(client).args(["bench", "--no-live", "--quiet", "--json", "/dev/stdout"]);
    bench.args(["-t", &threads.unwrap_or(1).to_string()]);
    bench.args(scenario.protocol());
    if let Some(length) = scenario.post {
        bench.args(["-X", "POST", "-b", &format!("@{}", server.body_file(length)?.display())]);
    }
    for header in &scenario.headers {
        bench.args(["-H", &header.replace(':', ": ")]);
    }
    Ok(bench)
}

/// Reads a line of wrk's distribution, such as `     50%    1.23ms`: other lines may end in a share like `62.50%`.
fn percentile_us(text: &str, percent: &str) -> f64 {
    let mut rows = text.lines().map(str::split_whitespace);
    let row = rows.find_map(|mut words| (words.next() == Some(percent)).then(|| words.next()).flatten());
    row.map_or(0.0, microseconds)
}

/// wrk's format: `1.23ms`.
fn microseconds(word: &str) -> f64 {
    let (number, factor) = match word {
        w if w.ends_with("us") => (&w[..w.len() - 2], 1.0),
        w if w.ends_with("ms") => (&w[..w.len() - 2], 1e3),
        w => (w.trim_end_matches('s'), 1e6),
    };
    number.parse::<f64>().map_or(0.0, |n| n * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_not_the_shares_of_other_lines() {
        let text = "    Latency   266.74ms   60.10ms 351.80ms   70.99%\n    Req/Sec   222.00     25.50   260.00     62.50%\n\
                    Latency Distribution\n     50%  269.30ms\n     99%  351.78ms\n";
        assert!((percentile_us(text, "50%") - 269_300.0).abs() < 1e-6);
        assert!((percentile_us(text, "99%") - 351_780.0).abs() < 1e-6);
        assert!(percentile_us("", "50%").abs() < 1e-6);
    }

    #[test]
    fn times_as_wrk_writes_them() {
        for (word, want) in [("743.00us", 743.0), ("1.25ms", 1250.0), ("2.00s", 2e6), ("x", 0.0)] {
            assert!((microseconds(word) - want).abs() < 1e-6, "{word}");
        }
    }
}
