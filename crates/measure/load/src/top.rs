//! `tidegate top`: live view of a running server: its status page, latency probes, and its processes.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use clap::Parser;
use figures::units::{Unit, format_bytes, format_counted, format_grouped, format_seconds};
use serde::Serialize;

use crate::bench::{FAILED, OK, USAGE};
use crate::engine::job::{Job, Model, Target, Think, Tls};
use crate::engine::latency::Latency;
use crate::engine::profile::Profile;
use crate::engine::request::{Expect, RequestSpec};
use crate::engine::run::{RunControl, run_job};
use crate::interrupt;
use crate::observe::processes::{ProcessGroup, ProcessSample, is_local};
use crate::observe::status::{Status, StatusText};

const EXAMPLES: &str = "\
Examples:
  tidegate top http://127.0.0.1:8080/status                      a stub_status page of Tidegate or nginx
  tidegate top http://10.0.0.5/status --probe /                  also measure the latency of /
  tidegate top http://127.0.0.1:8080/status --json -n 10         ten intervals as JSON

Status page: location = /status { stub_status; allow 127.0.0.1; deny all; }, or metrics in Prometheus' text format. CPU time and
memory are those of the local processes that listen on the port, or of --pid.";

/// See `--help`.
#[derive(Parser, Clone, Debug)]
#[command(name = "tidegate top", about = "Monitors a running server", after_help = EXAMPLES)]
pub struct TopOptions {
    /// URL of the status page.
    #[arg(value_name = "URL")]
    page: String,
    /// Path of the latency probes on the same server [default: the status page].
    #[arg(long, value_name = "PATH")]
    probe: Option<String>,
    /// Probes per second; 0 disables them.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = crate::bench::values::parse_number::<u32>)]
    probes: u32,
    /// Refresh interval.
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = crate::bench::values::parse_time)]
    interval: f64,
    /// Exit after N intervals.
    #[arg(short = 'n', long, value_name = "N", value_parser = crate::bench::values::parse_positive)]
    count: Option<usize>,
    /// Server processes [default: local processes that listen on the port].
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = crate::bench::values::parse_pid)]
    pid: Vec<u32>,
    /// Print one line of JSON per interval.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TopSample {
    /// Seconds since the start.
    pub at: f64,
    /// Server's count without this tool's requests.
    pub requests_per_second: Option<f64>,
    pub connections_per_second: Option<f64>,
    /// Accepted but unhandled connections (`worker_connections` exceeded).
    pub dropped: Option<f64>,
    pub status: Status,
    /// Probes, their latency in seconds, and failures.
    pub probes: u64,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
    pub failed: u64,
    pub processors: Option<f64>,
    pub cpu_per_request: Option<f64>,
    pub memory: Option<f64>,
    pub processes: usize,
    /// Key process (`ssl_key_isolation`), if it was ever used.
    pub keys: Option<Keys>,
    /// The server's counters were reset.
    pub restarted: bool,
}

/// The key process in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Keys {
    pub signatures_per_second: f64,
    /// Seconds that a thread waited for one signature.
    pub wait: Option<f64>,
    /// Handshakes without a signature, and replacements of the process: in this interval, and since the server's start.
    pub failed: f64,
    pub respawned: f64,
    pub respawned_ever: f64,
}

impl Keys {
    fn between(a: &Status, b: &Status, span: f64) -> Option<Keys> {
        let used = [b.signatures, b.signatures_failed, b.keys_respawned].iter().flatten().any(|n| *n > 0.0);
        // The counters of a new worker process begin anew, except for the number of key processes.
        let grown = |of: fn(&Status) -> Option<f64>| (of(b).unwrap_or(0.0) - of(a).unwrap_or(0.0)).max(0.0);
        let (made, failed) = (grown(|s| s.signatures), grown(|s| s.signatures_failed));
        used.then(|| Keys {
            signatures_per_second: made / span,
            wait: Some(grown(|s| s.signature_wait) / (made + failed)).filter(|wait| wait.is_finite()),
            failed,
            respawned: grown(|s| s.keys_respawned),
            respawned_ever: b.keys_respawned.unwrap_or(0.0),
        })
    }
}

/// Computes an interval from the looks at its ends; `own` are this tool's requests.
pub fn compute_sample(
    before: &(f64, Status, ProcessSample),
    after: &(f64, Status, ProcessSample),
    own: f64,
) -> TopSample {
    let span = (after.0 - before.0).max(1e-3);
    let (a, b) = (&before.1, &after.1);
    let grown = |of: fn(&Status) -> Option<f64>| Some(of(b)? - of(a)?);
    let restarted = grown(|s| s.requests).is_some_and(|n| n < 0.0) || grown(|s| s.accepted).is_some_and(|n| n < 0.0);
    let grown = |of: fn(&Status) -> Option<f64>| grown(of).filter(|_| !restarted);
    let requests = grown(|s| s.requests).map(|n| (n - own).max(0.0));
    let local = after.2.processes > 0 && before.2.processes > 0;
    let cpu = if local { Some((after.2.cpu - before.2.cpu).max(0.0)) } else { grown(|s| s.cpu) };
    let all = grown(|s| s.requests).filter(|n| *n > 0.0);
    TopSample {
        at: after.0,
        requests_per_second: requests.map(|n| n / span),
        connections_per_second: grown(|s| s.accepted).map(|n| n / span),
        dropped: grown(|s| s.accepted)
            .zip(grown(|s| s.handled))
            .map(|(accepted, handled)| (accepted - handled).max(0.0)),
        status: *b,
        processors: cpu.map(|cpu| cpu / span),
        // Over all requests: the processes served this tool's as well.
        cpu_per_request: cpu.zip(all).map(|(cpu, n)| cpu / n),
        memory: if local { Some(after.2.memory) } else { b.memory },
        processes: after.2.processes,
        keys: Keys::between(a, b, span),
        restarted,
        ..TopSample::default()
    }
}

/// Runs `tidegate top` with the arguments after the subcommand's name; returns the exit status.
pub fn main(args: Vec<OsString>) -> i32 {
    let args = std::iter::once(OsString::from("tidegate top")).chain(args);
    let options = match TopOptions::try_parse_from(args) {
        Ok(options) => options,
        Err(e) => return crate::print_usage(&e),
    };
    let page = match StatusText::new(&options.page) {
        Ok(_) if options.probe.is_some() && options.probes == 0 => {
            eprintln!("tidegate top: --probe needs --probes above 0");
            return USAGE;
        }
        Ok(page) if options.interval >= 0.05 => page,
        Ok(_) => {
            eprintln!("tidegate top: --interval is 50 ms or more");
            return USAGE;
        }
        Err(message) => {
            eprintln!("tidegate top: {message}");
            return USAGE;
        }
    };
    if let Some(pid) = options.pid.iter().find(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
        eprintln!("tidegate top: --pid {pid}: there is no such process");
        return USAGE;
    }
    interrupt::watch();
    match watch(&options, &page) {
        Ok(()) => OK,
        Err(message) => {
            eprintln!("tidegate top: {message}");
            FAILED
        }
    }
}

fn watch(options: &TopOptions, page: &StatusText) -> Result<(), String> {
    let mut group = match (options.pid.as_slice(), is_local(&page.address())) {
        ([], true) => Some(ProcessGroup::by_port(page.address().port())),
        ([], false) => None,
        (pids, _) => Some(ProcessGroup::by_pids(pids)),
    };
    let mut look = |page: &StatusText| -> Result<(f64, Status, ProcessSample), String> {
        let (at, status) = page.read()?;
        Ok((at, status, group.as_mut().map(|g| g.look(true)).unwrap_or_default()))
    };
    let mut before = look(page)?;
    let mut screen = Screen::new(options, page);
    let mut number = 0;
    while options.count.is_none_or(|count| number < count) && !interrupt::told() {
        let (probes, failed) = probe(options, page)?;
        // Tolerates a restart; reports a server that stays away.
        let after = match look(page) {
            Ok(after) => after,
            Err(why) => {
                screen.lost(&why);
                number += 1;
                continue;
            }
        };
        // Counts the page's request and all probes.
        let own = probes.count() as f64 + failed as f64 + 1.0;
        let time = |q: f64| Some(probes.quantile(q)).filter(|v| v.is_finite());
        let sample = TopSample {
            probes: probes.count(),
            p50: time(0.5),
            p99: time(0.99),
            max: time(1.0),
            failed,
            ..compute_sample(&before, &after, own)
        };
        screen.show(&sample);
        before = after;
        number += 1;
    }
    Ok(())
}

/// Probes for one interval, with pauses on a kept connection, to build no queue; returns latencies and failures.
fn probe(options: &TopOptions, page: &StatusText) -> Result<(Latency, u64), String> {
    if options.probes == 0 {
        let until = std::time::Instant::now() + Duration::from_secs_f64(options.interval);
        while std::time::Instant::now() < until && !interrupt::told() {
            std::thread::sleep(
                Duration::from_millis(20).min(until.saturating_duration_since(std::time::Instant::now())),
            );
        }
        return Ok((Latency::default(), 0));
    }
    let url = page.url();
    let path = options.probe.as_deref().unwrap_or(&url.path);
    let target = Target {
        host: url.host.clone(),
        port: url.port,
        address: page.address(),
        tls: url.tls.then(Tls::default),
        proxy: None,
        unix: None,
        sources: Vec::new(),
    };
    let expect = Expect { status: Vec::new(), ..Expect::default() };
    let job = Job {
        requests: vec![RequestSpec { expect, ..RequestSpec::get(path) }],
        model: Model::Closed { think: Think { mean: 1.0 / f64::from(options.probes), random: true } },
        profile: Profile::constant(1.0, options.interval),
        timeout: options.interval.max(1.0),
        connect_timeout: 1.0,
        ..Job::closed(target, 1, options.interval)
    };
    let outcome = run_job(&job, &RunControl::until(interrupt::flag()), |_| ())?;
    Ok((outcome.total.corrected.clone(), outcome.total.failures.total()))
}

/// Columns of the spark line.
const SPARKS: usize = 60;

/// Pictures on a terminal, lines elsewhere.
struct Screen {
    json: bool,
    terminal: bool,
    title: String,
    rates: Vec<f64>,
    lines: usize,
}

impl Screen {
    fn new(options: &TopOptions, page: &StatusText) -> Screen {
        let terminal = io::stdout().is_terminal() && !options.json;
        let title = format!("tidegate top  {}", options.page);
        let screen = Screen { json: options.json, terminal, title, rates: Vec::new(), lines: 0 };
        if terminal {
            // Uses the alternate screen, so that the previous one returns at the end.
            screen.write(format_args!("\x1b[?1049h\x1b[?25l"));
        } else if !options.json {
            screen.write(format_args!("{} ({})\n", screen.title, page.address()));
        }
        screen
    }

    /// Restores the terminal and ends the process if the output cannot be written.
    fn write(&self, text: fmt::Arguments<'_>) {
        let mut out = io::stdout().lock();
        if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
            drop(out);
            self.restore();
            base::stdout::end(&error);
        }
    }

    fn restore(&self) {
        if self.terminal {
            let mut out = io::stdout().lock();
            let _ = out.write_all(b"\x1b[?25h\x1b[?1049l").and_then(|()| out.flush());
        }
    }

    fn show(&mut self, s: &TopSample) {
        if self.json {
            self.write(format_args!("{}\n", serde_json::to_string(s).unwrap_or_default()));
        } else if self.terminal {
            self.rates.push(s.requests_per_second.unwrap_or(0.0));
            let text = picture(&self.title, s, &self.rates);
            self.write(format_args!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n")));
        } else {
            if self.lines.is_multiple_of(20) {
                self.write(format_args!("{}\n", HEADS.map(|h| format!("{h:>13}")).concat()));
            }
            self.write(format_args!("{}\n", line(s)));
        }
        self.lines += 1;
    }

    fn lost(&self, why: &str) {
        match self.terminal {
            true => self.write(format_args!("\x1b[H{}\x1b[K\n\n  no answer: {why}\x1b[K\n\x1b[J", self.title)),
            false if self.json => self.write(format_args!("{}\n", serde_json::json!({ "lost": why }))),
            false => self.write(format_args!("no answer: {why}\n")),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.restore();
    }
}

const HEADS: [&str; 8] = ["requests/s", "new/s", "connections", "p50", "p99", "CPU/request", "CPUs", "memory"];

fn or_dash(value: Option<f64>, write: impl Fn(f64) -> String) -> String {
    value.map_or("–".into(), write)
}

fn line(s: &TopSample) -> String {
    let whole = |v: f64| format_grouped(v.round() as i64);
    let cells = [
        or_dash(s.requests_per_second, whole),
        or_dash(s.connections_per_second, whole),
        or_dash(s.status.active, whole),
        or_dash(s.p50, format_seconds),
        or_dash(s.p99, format_seconds),
        or_dash(s.cpu_per_request, format_seconds),
        or_dash(s.processors, |v| format!("{v:.2}")),
        or_dash(s.memory, format_bytes),
    ];
    let mut text: String = cells.map(|c| format!("{c:>13}")).concat();
    if s.restarted {
        text += "  restarted";
    }
    if let Some(keys) = s.keys.filter(|keys| keys.failed > 0.0 || keys.respawned > 0.0) {
        text += &format!(
            "  {} failed, {} replaced",
            format_counted(keys.failed.round() as u64, "signature", "signatures"),
            format_counted(keys.respawned.round() as u64, "key process", "key processes")
        );
    }
    if s.failed > 0 {
        text += &format!("  {} failed", format_counted(s.failed, "probe", "probes"));
    }
    text
}

/// Draws an interval as eight lines, and one about the key process if there is one.
fn picture(title: &str, s: &TopSample, rates: &[f64]) -> String {
    let whole = |v: f64| format_grouped(v.round() as i64);
    let shown = &rates[rates.len().saturating_sub(SPARKS)..];
    let detail = [("reading", s.status.reading), ("writing", s.status.writing), ("waiting", s.status.waiting)];
    let detail: Vec<String> = detail.iter().filter_map(|(name, n)| Some(format!("{} {name}", whole((*n)?)))).collect();
    let dropped = s.dropped.filter(|n| *n > 0.0).map_or(String::new(), |n| format!("   {} dropped", whole(n)));
    let failed = if s.failed > 0 { format!("   {} of {} failed", s.failed, s.probes) } else { String::new() };
    let restarted = if s.restarted { "   restarted" } else { "" };
    let keys = s.keys.map_or(String::new(), |keys| {
        let wait = or_dash(keys.wait, format_seconds);
        let (made, failed) = (Unit::Count.write(keys.signatures_per_second), whole(keys.failed));
        let respawned = whole(keys.respawned_ever);
        format!("  keys         {made:>10} signatures/s   {wait} each   {failed} failed   {respawned} restarts\n")
    });
    format!(
        "{title}   {}\n\n  requests/s   {:>10}{restarted}\n               {}\n  connections  {:>10}   {}   {}/s new{dropped}\n  \
         latency      {:>10} p50   {} p99   {} max   ({} probes){failed}\n  CPU          {:>10} a request   {} processors\n  \
         memory       {:>10}   {}\n{keys}",
        format_seconds(s.at),
        or_dash(s.requests_per_second, whole),
        crate::bench::live::draw_sparks(shown, SPARKS),
        or_dash(s.status.active, whole),
        detail.join(", "),
        or_dash(s.connections_per_second, |v| Unit::Count.write(v)),
        or_dash(s.p50, format_seconds),
        or_dash(s.p99, format_seconds),
        or_dash(s.max, format_seconds),
        s.probes,
        or_dash(s.cpu_per_request, format_seconds),
        or_dash(s.processors, |v| format!("{v:.2}")),
        or_dash(s.memory, format_bytes),
        format_counted(s.processes as u64, "process", "processes")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn status(accepted: f64, requests: f64) -> Status {
        Status {
            accepted: Some(accepted),
            handled: Some(accepted - 1.0),
            requests: Some(requests),
            ..Status::default()
        }
    }

    #[test]
    fn rates_are_without_our_own_requests() {
        TopOptions::command().debug_assert();
        let look = |cpu| ProcessSample { cpu, memory: 5e6, processes: 2, threads: 3, ..ProcessSample::default() };
        let s = compute_sample(&(1.0, status(10.0, 100.0), look(1.0)), &(3.0, status(14.0, 1121.0), look(1.5)), 21.0);
        assert_eq!((s.requests_per_second, s.connections_per_second), (Some(500.0), Some(2.0)));
        assert_eq!((s.processors, s.dropped, s.restarted), (Some(0.25), Some(0.0), false));
        assert!((s.cpu_per_request.unwrap() - 0.5 / 1021.0).abs() < 1e-12);
        let text = picture("t", &TopSample { p50: Some(0.001), ..s.clone() }, &[1.0, 500.0]);
        assert!(text.contains("500") && text.contains("1 ms p50") && text.contains("5 MB"), "{text}");
        assert_eq!(line(&s).split_whitespace().next(), Some("500"));
    }

    #[test]
    fn a_restart_is_no_negative_rate() {
        let none = ProcessSample::default();
        let s = compute_sample(&(1.0, status(10.0, 100.0), none), &(2.0, status(1.0, 3.0), none), 1.0);
        assert!(s.restarted && s.requests_per_second.is_none() && s.processors.is_none());
        assert!(line(&s).ends_with("restarted"));
        let remote = |cpu| Status { cpu: Some(cpu), ..status(1.0, cpu * 1000.0) };
        let s = compute_sample(&(1.0, remote(1.0), none), &(2.0, remote(1.5), none), 0.0);
        assert_eq!((s.processors, s.cpu_per_request), (Some(0.5), Some(0.001)), "what metrics say of a remote one");
    }

    #[test]
    fn the_key_process_has_a_line_when_it_is_used() {
        let none = ProcessSample::default();
        let status = |signatures, wait, respawned| Status {
            signatures: Some(signatures),
            signatures_failed: Some(0.0),
            signature_wait: Some(wait),
            keys_respawned: Some(respawned),
            ..status(1.0, 1.0)
        };
        let unused = compute_sample(&(1.0, status(0.0, 0.0, 0.0), none), &(2.0, status(0.0, 0.0, 0.0), none), 0.0);
        assert!(unused.keys.is_none() && !picture("t", &unused, &[]).contains("signatures"));
        let s = compute_sample(&(1.0, status(10.0, 1.0, 1.0), none), &(3.0, status(14.0, 1.004, 2.0), none), 0.0);
        let keys = s.keys.expect("used");
        assert_eq!((keys.signatures_per_second, keys.failed, keys.respawned), (2.0, 0.0, 1.0));
        assert!((keys.wait.expect("signatures") - 0.001).abs() < 1e-9);
        let text = picture("t", &s, &[]);
        assert!(text.contains("2 signatures/s   1 ms each   0 failed   2 restarts"), "{text}");
        assert!(line(&s).contains("0 signatures failed, 1 key process replaced"), "{}", line(&s));
    }
}
