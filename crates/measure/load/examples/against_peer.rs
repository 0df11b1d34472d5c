//! Compares the load generator with wrk, or over HTTP/2 with h2load, on the same server, in pairs: requests/s, CPU time of the client a
//! request, and the times that both report for a closed loop (h2load knows no percentiles: its mean is put in their place).
//!
//!     cargo build --release -p load --bin tidegate-load
//!     cargo run --release -p load --example against_peer -- target/release/tidegate-load http://127.0.0.1:8080/ 64 7 3 1
//!
//! Arguments: the program, URL, connections, pairs, seconds a run, processor to pin both to, and streams a
//! connection, with which it is h2load. Prints CSV, then what the pairs show.

use std::process::Command;

use figures::paired::compare_pairs;
use figures::units::{format_significant, parse_seconds};
use load::bench::read_report;

/// Results of one run.
#[derive(Clone, Copy, Debug)]
struct Run {
    rps: f64,
    /// CPU seconds a request of the threads that make load, and of the whole process with its start, its watching of the
    /// server and its report. (wrk is taken as a whole both times: it does nothing else.)
    cpu: f64,
    whole: f64,
    p50: f64,
    p99: f64,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (fixed, streams) = args.split_at(args.len().min(6));
    let [program, url, connections, pairs, seconds, cpu] = fixed else {
        eprintln!("usage: against_peer PROGRAM URL CONNECTIONS PAIRS SECONDS PROCESSOR [STREAMS]");
        std::process::exit(2);
    };
    let streams = streams.first();
    let peer = if streams.is_some() { "h2load" } else { "wrk" };
    let pairs: usize = pairs.parse().expect("a number of pairs");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    println!("pair,tool,rps,client_cpu_us_per_request,process_cpu_us_per_request,p50_us,p99_us");
    for pair in 0..pairs {
        // A B B A: the order within the pair alternates.
        for turn in 0..2 {
            let is_ours = (pair + turn) % 2 == 0;
            let run = if is_ours {
                tidegate(program, url, connections, seconds, cpu, streams)
            } else if let Some(streams) = streams {
                h2load(url, connections, seconds, cpu, streams)
            } else {
                wrk(url, connections, seconds, cpu)
            };
            let name = if is_ours { "tidegate" } else { peer };
            println!(
                "{pair},{name},{:.0},{:.3},{:.3},{:.1},{:.1}",
                run.rps,
                run.cpu * 1e6,
                run.whole * 1e6,
                run.p50 * 1e6,
                run.p99 * 1e6
            );
            if is_ours { ours.push(run) } else { theirs.push(run) }
        }
    }
    println!("\n{peer} / tidegate, geometric mean over {pairs} pairs with 95 % interval:");
    let figures: [(&str, fn(&Run) -> f64); 5] = [
        ("requests/s", |r| r.rps),
        ("client CPU time per request", |r| r.cpu),
        ("whole process", |r| r.whole),
        ("p50", |r| r.p50),
        ("p99", |r| r.p99),
    ];
    for (name, of) in figures {
        let values = |runs: &[Run]| runs.iter().map(of).collect::<Vec<f64>>();
        let c = compare_pairs(&values(&ours), &values(&theirs));
        println!(
            "{name:22} {} ({} to {})  {:?}",
            format_significant(c.ratio.mid),
            format_significant(c.ratio.low),
            format_significant(c.ratio.high),
            c.verdict
        );
    }
}

/// CPU seconds of all children that have ended, in steps of 10 ms.
fn children_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |x| x.1);
    let cells: Vec<f64> = after.split_whitespace().filter_map(|c| c.parse().ok()).collect();
    // The state is not a number, so cutime and cstime (fields 16 and 17) are at 12 and 13 of what follows it.
    (cells[12] + cells[13]) / 100.0
}

fn pinned(cpu: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", cpu]);
    command
}

fn tidegate(program: &str, url: &str, connections: &str, seconds: &str, cpu: &str, streams: Option<&String>) -> Run {
    let file = std::env::temp_dir().join(format!("against-wrk-{}.json", std::process::id()));
    let before = children_cpu();
    let status = pinned(cpu)
        .args([
            program,
            "bench",
            url,
            "-c",
            connections,
            "-t",
            "1",
            "-d",
            &format!("{seconds}s"),
            "--warmup",
            "0s",
            "-q",
            "--json",
        ])
        .arg(&file)
        .args(streams.iter().flat_map(|n| ["--http2", "-m", n.as_str()]))
        .status();
    assert!(status.is_ok_and(|s| s.success()), "the run failed");
    let used = children_cpu() - before;
    let report = read_report(&file).expect("a report");
    let _ = std::fs::remove_file(&file);
    let round = &report.points[0].rounds[0];
    let latency = round.latency.as_ref().expect("answers");
    Run {
        rps: round.rps,
        cpu: round.client_cpu_per_request.unwrap_or(f64::NAN),
        whole: used / round.answers as f64,
        p50: if streams.is_some() { latency.mean } else { latency.p50 },
        p99: if streams.is_some() { latency.mean } else { latency.p99 },
    }
}

fn h2load(url: &str, connections: &str, seconds: &str, cpu: &str, streams: &str) -> Run {
    let before = children_cpu();
    let output = pinned(cpu)
        .args(["h2load", "-t1", "-c", connections, "-m", streams, "-D", seconds, url])
        .output()
        .expect("h2load is installed");
    let used = children_cpu() - before;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line =
        |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("no {name} in:\n{text}"));
    // "requests: 9 total, 9 started, 9 done, 9 succeeded, ...", "time for request: min max mean sd +/- sd"
    let done = line("requests:").split(',').find_map(|part| part.trim().strip_suffix(" succeeded"));
    let requests: f64 = done.and_then(|n| n.parse().ok()).expect("a count of requests");
    let mean = parse_seconds(line("time for request:").split_whitespace().nth(5).expect("a mean")).expect("a time");
    let length: f64 = seconds.parse().expect("seconds");
    Run { rps: requests / length, cpu: used / requests, whole: used / requests, p50: mean, p99: mean }
}

fn wrk(url: &str, connections: &str, seconds: &str, cpu: &str) -> Run {
    let before = children_cpu();
    let output = pinned(cpu)
        .args(["wrk", "-t1", "-c", connections, "-d", &format!("{seconds}s"), "--latency", url])
        .output()
        .expect("wrk is installed");
    let used = children_cpu() - before;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let after = |name: &str| {
        let line =
            text.lines().find(|l| l.trim_start().starts_with(name)).unwrap_or_else(|| panic!("no {name} in:\n{text}"));
        line.trim_start()[name.len()..].trim().to_string()
    };
    let requests: f64 = text
        .lines()
        .find(|l| l.contains(" requests in "))
        .and_then(|l| l.split_whitespace().next()?.parse().ok())
        .expect("a count of requests");
    Run {
        rps: after("Requests/sec:").parse().expect("a rate"),
        cpu: used / requests,
        whole: used / requests,
        p50: parse_seconds(&after("50%")).expect("a time"),
        p99: parse_seconds(&after("99%")).expect("a time"),
    }
}
