//! The report as data: what `--json` writes and `--baseline`, `plan` and the coordinating side read back.
//!
//! Times are seconds, sizes bytes, rates per second. What was not measured is absent, never zero.

use std::collections::BTreeMap;

use figures::stats::Interval;
use serde::{Deserialize, Serialize};

use crate::engine::failure::Failure;
use crate::observe::kernel::Counters;
use crate::observe::machine::Machine;

/// A whole `bench` run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub tool: String,
    pub version: String,
    pub title: String,
    /// The command line that made it.
    pub command: Vec<String>,
    /// Seconds since 1970.
    pub started: u64,
    pub machine: Machine,
    pub target: Target,
    /// What the load is, in words, and the quantity that points differ in (`connections`, `requests/s offered` …).
    pub load: String,
    pub quantity: String,
    pub open_loop: bool,
    pub points: Vec<Point>,
    /// What the server can do by this report.
    pub capacity: Option<Capacity>,
    /// What a search found out, in a sentence; empty when nothing was searched.
    #[serde(default)]
    pub search: String,
    /// The search came to no end: the machine was too noisy, the client too slow.
    #[serde(default)]
    pub undecided: bool,
    /// The run was told to stop before its end.
    #[serde(default)]
    pub interrupted: bool,
    /// What belongs beside the figures and is no verdict: lines of a log that were left out.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Whom the report is about.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Target {
    pub url: String,
    pub address: String,
    /// Client and server share this machine.
    pub loopback: bool,
    pub tls: String,
    pub requests: Vec<String>,
}

/// One load level, measured in one or more rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Value of the report's quantity.
    pub value: f64,
    pub rounds: Vec<Round>,
    pub verdict: Verdict,
}

impl Point {
    /// Mean and 95 % interval over rounds of a figure; `None` when a round lacks it. Figures that are all positive (times, rates)
    /// are taken by their logarithms, so that no interval reaches below zero; their mean is the geometric one.
    pub fn interval(&self, of: impl Fn(&Round) -> Option<f64>) -> Option<Interval> {
        let values: Option<Vec<f64>> = self.rounds.iter().map(of).collect();
        let values = values.filter(|v| !v.is_empty())?;
        if values.iter().all(|v| *v > 0.0) {
            let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
            return Some(figures::stats::mean_interval(&logs, 0.95).map(f64::exp));
        }
        Some(figures::stats::mean_interval(&values, 0.95))
    }

    /// Whether an interval over the rounds says anything.
    pub fn has_interval(&self) -> bool {
        self.rounds.len() >= 3
    }
    /// Answers per second.
    pub fn rps(&self) -> Interval {
        self.interval(|r| Some(r.rps)).unwrap_or(Interval::exact(0.0))
    }
}

/// One run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Round {
    /// Length of the measured part.
    pub seconds: f64,
    /// Requests that were due; answers, right answers and new connections within the measured part.
    pub due: u64,
    /// Of the due requests, those that got their right answer within the run, and those that got it after its end. What is due is
    /// `in_time` + `late` + all `failures`.
    #[serde(default)]
    pub in_time: u64,
    #[serde(default)]
    pub late: u64,
    pub answers: u64,
    pub good: u64,
    pub connections: u64,
    /// Per second: due, answers, right answers, new connections, bytes received.
    pub offered: f64,
    pub rps: f64,
    pub good_rps: f64,
    pub connections_per_second: f64,
    pub bytes_per_second: f64,
    /// Mean bytes of an answer, head included.
    pub bytes_per_response: f64,
    pub failures: BTreeMap<String, u64>,
    pub statuses: BTreeMap<u16, u64>,
    /// Streams that the server reset, by code (HTTP/2), and requests sent again because it had done nothing about them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resets: BTreeMap<u16, u64>,
    #[serde(default)]
    pub again: u64,
    /// From the plan to the last byte. In an open loop this is what users wait.
    pub latency: Option<Times>,
    /// From the send to the last byte.
    pub service: Option<Times>,
    /// From the plan to the moment at which the generator took the request up.
    pub lag: Option<Times>,
    pub first_byte: Option<Times>,
    pub connect: Option<Times>,
    pub handshake: Option<Times>,
    /// Share of the time that each client thread was on a processor.
    pub client_busy: Vec<f64>,
    /// Share of the time for which each client thread waited for a processor that others had.
    #[serde(default)]
    pub client_waited: Vec<f64>,
    /// How much longer requests waited for each second that they were due later: the growth of a queue.
    #[serde(default)]
    pub growth: Option<f64>,
    /// Client's CPU seconds per answer; absent without an answer.
    #[serde(default)]
    pub client_cpu_per_request: Option<f64>,
    /// The requests, where there are several, in the order of the report's target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestUse>,
    /// The round was cut short.
    #[serde(default)]
    pub interrupted: bool,
    /// Users of a closed loop, and how many of them waited for more than half of the round in vain: figures of answers do not show
    /// them.
    #[serde(default)]
    pub users: u64,
    #[serde(default)]
    pub starved: u64,
    /// What the first TLS failure was.
    #[serde(default)]
    pub tls_error: Option<String>,
    /// Local ports: what there was, and what finding one cost.
    #[serde(default)]
    pub ports: Ports,
    pub server: Option<ServerUse>,
    /// What the server's status page said (`--watch`).
    #[serde(default)]
    pub status: Option<StatusUse>,
    /// Processors that what stands behind the server used (lab only).
    #[serde(default)]
    pub backend_processors: Option<f64>,
    pub kernel: Counters,
    /// Processors that programs other than client, server and backends used; absent when the server was not watched.
    #[serde(default)]
    pub others: Option<f64>,
    pub series: Vec<Tick>,
}

impl Round {
    /// Works out [`Round::others`] from what is known; `wall` is the time between the readings of the kernel's counters.
    pub fn settle_others(&mut self, wall: f64) {
        let Some(server) = &self.server else { return };
        let client: f64 = self.client_busy.iter().sum();
        let known = server.processors + client + self.backend_processors.unwrap_or(0.0);
        self.others = Some((self.kernel.busy / wall.max(1e-9) - known).max(0.0));
    }

    /// Failures by class, in words.
    pub fn failure_words(&self) -> impl Iterator<Item = (String, u64)> {
        self.failures.iter().map(|(class, n)| match &self.tls_error {
            Some(why) if class == Failure::Tls.word() => (format!("{class} ({why})"), *n),
            _ if class == Failure::StreamReset.word() => {
                let codes = self.resets.iter().map(|(code, n)| format!("{} {n}", reset_word(*code)));
                (format!("{class} ({})", codes.collect::<Vec<_>>().join(", ")), *n)
            }
            _ => (class.clone(), *n),
        })
    }

    /// Whether so many users got nothing that percentiles of answers mislead.
    pub fn starves(&self) -> bool {
        self.starved as f64 > STARVED_MAX * self.users as f64
    }

    /// Requests without a right answer.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Requests without a right answer as a share of those that were due.
    pub fn error_share(&self) -> f64 {
        self.failed() as f64 / self.due.max(1) as f64
    }

    /// Due requests that were not even sent.
    pub fn unsent(&self) -> u64 {
        self.failures.get(Failure::Unsent.word()).copied().unwrap_or(0)
    }

    /// Where the due requests went: all of them, as a sum.
    pub fn account(&self) -> String {
        use figures::units::grouped;
        let n = |n: u64| grouped(n as i64);
        let mut parts = vec![format!("{} answered", n(self.in_time))];
        if self.late > 0 {
            parts.push(format!("{} answered after the end", n(self.late)));
        }
        parts.extend(self.failure_words().map(|(class, count)| format!("{} {class}", n(count))));
        format!("{} due = {}", n(self.due), parts.join(" + "))
    }
}

/// Codes of RST_STREAM by name (RFC 9113, 7).
pub fn reset_word(code: u16) -> String {
    const NAMES: [&str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
    NAMES.get(usize::from(code)).map_or_else(|| format!("code {code}"), |name| (*name).to_string())
}

/// The client's local ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ports {
    /// Local addresses that were connected from, and the ports of all of them.
    pub sources: usize,
    pub available: u64,
    /// Mean CPU seconds of a `connect` call; absent when few were timed.
    pub connect_cpu: Option<f64>,
}

/// A larger share of users who wait in vain spoils the percentiles.
const STARVED_MAX: f64 = 0.01;

/// A distribution of times.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Times {
    pub count: u64,
    pub mean: f64,
    pub deviation: f64,
    pub min: f64,
    pub max: f64,
    pub p50: f64,
    pub p75: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub p9999: f64,
    /// HdrHistogram, V2 compressed, base64; values in nanoseconds.
    pub histogram: String,
}

/// What the server used during a round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerUse {
    pub processes: usize,
    pub threads: usize,
    /// CPU seconds in the measured part, and per answer (absent without an answer); and how many processors that is on average.
    pub cpu: f64,
    #[serde(default)]
    pub cpu_per_request: Option<f64>,
    pub processors: f64,
    /// For how many processors' time its threads could have run, but others had them.
    #[serde(default)]
    pub waited: f64,
    /// Memory before, and the most that was seen.
    pub memory_before: f64,
    pub memory_peak: f64,
}

/// What came of one of several requests. Times are right to one part in sixteen, means exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestUse {
    pub answers: u64,
    pub failed: u64,
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
}

/// What a server said of itself during a round; what its page does not tell is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusUse {
    /// By the server's own count, ours and everybody's.
    pub requests_per_second: Option<f64>,
    pub connections_per_second: Option<f64>,
    /// Most connections at a time, and those that were accepted but not handled.
    pub active: Option<f64>,
    pub dropped: Option<f64>,
    pub processors: Option<f64>,
    pub cpu_per_request: Option<f64>,
    pub memory: Option<f64>,
}

impl StatusUse {
    /// In words.
    pub fn words(&self) -> String {
        use figures::units::{bytes, grouped, seconds};
        let n = |v: f64| grouped(v.round() as i64);
        let parts = [
            self.requests_per_second.map(|v| format!("{} requests/s by its own count", n(v))),
            self.connections_per_second.map(|v| format!("{} new connections/s", n(v))),
            self.active.map(|v| format!("up to {} connections", n(v))),
            self.dropped.filter(|v| *v > 0.0).map(|v| format!("{} dropped", n(v))),
            self.processors.map(|v| format!("{v:.2} processors")),
            self.cpu_per_request.map(|v| format!("{} CPU a request", seconds(v))),
            self.memory.map(bytes),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// One interval of the time series.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tick {
    /// End of the interval from the start of the measured part.
    pub at: f64,
    pub offered: f64,
    pub rps: f64,
    pub connections_per_second: f64,
    pub failures: u64,
    /// Latency of the requests that were due in the interval, whenever they were answered; absent where none was due.
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
    pub open: usize,
    pub pending: usize,
    /// Processors that the server used, and its memory; absent when it was not watched.
    pub processors: Option<f64>,
    pub memory: Option<f64>,
}

/// What to think of a figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// `valid`, `disturbed`, `client-bound`, `port-bound`, `error-bound`, `overloaded`, `not repeatable`.
    pub word: String,
    /// Why, in a sentence; further remarks follow.
    pub reasons: Vec<String>,
    /// Whether the rate may be used as the server's.
    pub usable: bool,
    /// More requests failed than a figure bears, whatever the reason that comes first.
    #[serde(default)]
    pub failed: bool,
}

/// What the server can do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Capacity {
    pub rps: Bounds,
    /// The objective that this rate holds; empty for the greatest rate that was seen.
    pub objective: String,
    pub cpu_seconds_per_request: Option<f64>,
    pub bytes_per_response: f64,
}

/// An interval in JSON.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Bounds {
    pub low: f64,
    pub mid: f64,
    pub high: f64,
}

impl From<Interval> for Bounds {
    fn from(i: Interval) -> Self {
        Bounds { low: i.low, mid: i.mid, high: i.high }
    }
}
