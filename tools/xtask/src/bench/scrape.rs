//! `cargo xtask bench --scrape`: latency of requests while Prometheus scrapes 1,000 zones.
//!
//! One worker and the control thread share processor 0, which is the worst case: the page of metrics is made beside the requests, on
//! their processor. Turns with and without scrapes alternate on one server, at an offered rate.

use super::report::value_spread;
use super::scenario::{self, Scenario};
use super::server::{BenchServer, PATIENCE};
use super::turns::{patient_turn, turn_by};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Servers with a zone each, and groups of upstream servers with a zone each.
const ZONES: usize = 1000;
const RATE: u64 = 2000;
/// Time between the starts of two scrapes. Prometheus's default is 15 s.
const PACE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// CPU time per request of all threads, in microseconds.
    cpu_us: f64,
    /// CPU time per request of the worker thread, in microseconds.
    worker_us: f64,
    p50_us: f64,
    p99_us: f64,
    /// Median time of a scrape, in milliseconds.
    scrape_ms: f64,
    /// Bytes of the last page.
    page: usize,
}

/// Measures one server with and without scrapes in turns, and writes `scrape.md` into `folder`.
pub fn measure_scrapes(binary: &Path, client: &Path, pairs: usize, seconds: u64, folder: &Path) -> Result<(), String> {
    let mut scenario = scenario::parse_scenario("scrape".into(), configuration())?;
    scenario.rate = Some(RATE);
    let server = BenchServer::start(&scenario, binary, "tidegate", 0)?;
    let mut turns = [Vec::new(), Vec::new()];
    for round in 0..pairs {
        for scrapes in if round % 2 == 0 { [false, true] } else { [true, false] } {
            turns[usize::from(scrapes)].push(turn(&scenario, &server, client, seconds, scrapes)?);
        }
    }
    let [quiet, scraped] = &turns;
    let middle = |turns: &[Figures], figure: fn(&Figures) -> f64| value_spread(turns.iter().map(figure)).median;
    let page = scraped.last().map_or(0, |figures| figures.page);
    let mut text = format!(
        "# Scrapes of {ZONES} zones\n\nMedians of {pairs} pairs of {seconds} s at {RATE} requests/s; one scrape per second: {page} bytes in {:.0} \
         ms. Worker and control thread share one processor.\n\n| | without scrapes | with scrapes | difference: median, from, to |\n|---|---|---|---|\n",
        middle(scraped, |f| f.scrape_ms)
    );
    let rows: [(&str, fn(&Figures) -> f64); 4] = [
        ("p50, us", |f| f.p50_us),
        ("p99, us", |f| f.p99_us),
        ("CPU per request, worker thread, us", |f| f.worker_us),
        ("CPU per request, all threads, us", |f| f.cpu_us),
    ];
    for (name, figure) in rows {
        let difference = value_spread(quiet.iter().zip(scraped).map(|(without, with)| figure(with) - figure(without)));
        let _ = writeln!(
            text,
            "| {name} | {:.1} | {:.1} | {:+.1}, {:+.1} to {:+.1} |",
            middle(quiet, figure),
            middle(scraped, figure),
            difference.median,
            difference.least,
            difference.most
        );
    }
    eprint!("{text}");
    std::fs::create_dir_all(folder).map_err(|e| e.to_string())?;
    std::fs::write(folder.join("scrape.md"), text).map_err(|e| format!("{}: {e}", folder.display()))
}

fn turn(
    scenario: &Scenario,
    server: &BenchServer,
    client: &Path,
    seconds: u64,
    scrapes: bool,
) -> Result<Figures, String> {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let scraper = scope.spawn(|| if scrapes { scrape_until(&ended, server) } else { Ok((0.0, 0)) });
        let once = || {
            let before = worker_cpu_ns(server);
            let turn = turn_by(scenario, server, client, seconds)?;
            let requests = turn.per_second * seconds as f64;
            Ok((turn, (worker_cpu_ns(server) - before) as f64 / 1000.0 / requests))
        };
        let measured = patient_turn(once);
        ended.store(true, Ordering::Relaxed);
        let scraped = scraper.join().map_err(|_| "the scraper panicked".to_string())?;
        let ((turn, worker_us), (scrape_ms, page)) = (measured?, scraped?);
        Ok(Figures { cpu_us: turn.cpu_us, worker_us, p50_us: turn.p50_us, p99_us: turn.p99_us, scrape_ms, page })
    })
}

/// CPU time of the server's worker threads so far.
fn worker_cpu_ns(server: &BenchServer) -> u64 {
    let threads = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |path: &Path| {
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        let times = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        let ns = times.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        ns.filter(|_| name.starts_with("worker ")).unwrap_or(0)
    };
    server.processes().into_iter().flat_map(threads).map(|thread| of(&thread.path())).sum()
}

/// In milliseconds, with the bytes of the last page.
fn scrape_until(ended: &AtomicBool, server: &BenchServer) -> Result<(f64, usize), String> {
    let mut processors = rustix::thread::CpuSet::new();
    processors.set(1);
    rustix::thread::sched_setaffinity(None, &processors).map_err(|e| format!("processor 1: {e}"))?;
    let (mut times, mut page) = (Vec::new(), 0);
    while !ended.load(Ordering::Relaxed) {
        let began = Instant::now();
        page = scrape(server)?;
        times.push(began.elapsed().as_secs_f64() * 1000.0);
        while !ended.load(Ordering::Relaxed) && began.elapsed() < PACE {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok((value_spread(times.into_iter()).median, page))
}

/// Requests the page once; returns its length.
fn scrape(server: &BenchServer) -> Result<usize, String> {
    let mut stream = server.connect()?;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: metrics\r\nConnection: close\r\n\r\n")
        .map_err(|e| format!("scrape: {e}"))?;
    let (mut page, until) = (Vec::new(), Instant::now() + PATIENCE);
    let read = stream.read_to_end(&mut page).map_err(|e| format!("scrape: {e}"))?;
    let zones = page.windows(ROW.len()).filter(|window| *window == ROW).count();
    if !page.starts_with(b"HTTP/1.1 200 ") || zones < ZONES || Instant::now() > until {
        return Err(format!("a scrape returned {read} bytes with {zones} zones"));
    }
    Ok(read)
}

const ROW: &[u8] = b"\ntidegate_server_zone_requests_total{";

/// With the placeholder `@PORT@`.
fn configuration() -> String {
    let mut out = String::from(
        "# bench: path=/ connections=64\ndaemon off;\nworker_processes 1;\nevents { worker_connections 1024; }\nerror_log error.log;\n\
         pid server.pid;\nhttp {\naccess_log off;\nkeepalive_requests 100000000;\n",
    );
    out.push_str("server {\n    listen 127.0.0.1:@PORT@ default_server; status_zone main;\n");
    out.push_str(
        "    location / { return 200 \"a response of some bytes\\n\"; }\n    location = /metrics { metrics; }\n}\n",
    );
    for index in 1..ZONES {
        let _ = writeln!(
            out,
            "server {{ listen 127.0.0.1:@PORT@; server_name s{index}.example.com; status_zone s{index}; }}"
        );
    }
    out.push_str("}\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_zone_has_a_server() {
        assert_eq!(configuration().matches("status_zone").count(), ZONES);
    }
}
