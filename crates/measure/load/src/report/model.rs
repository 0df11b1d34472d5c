//! The report as data, written by `--json` and read by `--baseline`, `plan` and the coordinator. Times in seconds,
//! sizes in bytes, rates per second; unmeasured values are absent, never zero.

use std::collections::BTreeMap;

use figures::stats::Interval;
use serde::{Deserialize, Serialize};

use crate::engine::failure::LoadFailure;
use crate::engine::run::MachinePart;
use crate::observe::kernel::Counters;
use crate::observe::machine::ObservedMachine;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub tool: String,
    pub version: String,
    pub title: String,
    pub command: Vec<String>,
    /// Since 1970.
    pub started: u64,
    pub machine: ObservedMachine,
    pub target: Target,
    /// Load in words, and the quantity in which points differ (`connections`, `requests/s offered` …).
    pub load: String,
    pub quantity: String,
    pub open_loop: bool,
    pub points: Vec<Point>,
    pub capacity: Option<Capacity>,
    /// Result of a search; empty without one.
    #[serde(default)]
    pub search: String,
    /// The search did not converge (noise, slow client).
    #[serde(default)]
    pub undecided: bool,
    #[serde(default)]
    pub interrupted: bool,
    /// Notes that are not verdicts, such as omitted log lines.
    #[serde(default)]
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Target {
    pub url: String,
    pub address: String,
    /// Client and server share this machine.
    pub loopback: bool,
    pub tls: String,
    pub requests: Vec<String>,
}

/// One load level, in one or more rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub value: f64,
    pub rounds: Vec<Round>,
    pub verdict: RateVerdict,
}

impl Point {
    /// Mean and 95 % interval over rounds; `None` when a round lacks the figure. Positive figures use logarithms: their
    /// mean is geometric, and no interval reaches zero.
    pub fn interval(&self, of: impl Fn(&Round) -> Option<f64>) -> Option<Interval> {
        let values: Option<Vec<f64>> = self.rounds.iter().map(of).collect();
        let values = values.filter(|v| !v.is_empty())?;
        if values.iter().all(|v| *v > 0.0) {
            let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
            return Some(figures::stats::mean_interval(&logs, 0.95).map(f64::exp));
        }
        Some(figures::stats::mean_interval(&values, 0.95))
    }

    /// Means over the rounds of a distribution's figures, as [`Point::interval`] has them; without its histogram. `None`
    /// when a round lacks the distribution.
    pub fn mean_times(&self, of: impl Fn(&Round) -> Option<&Times>) -> Option<Times> {
        if let [round] = self.rounds.as_slice() {
            return of(round).cloned();
        }
        let mean = |figure: fn(&Times) -> f64| Some(self.interval(|r| of(r).map(figure))?.mid);
        Some(Times {
            count: self.rounds.iter().filter_map(&of).map(|t| t.count).sum(),
            mean: mean(|t| t.mean)?,
            deviation: mean(|t| t.deviation)?,
            min: mean(|t| t.min)?,
            max: mean(|t| t.max)?,
            p50: mean(|t| t.p50)?,
            p75: mean(|t| t.p75)?,
            p90: mean(|t| t.p90)?,
            p95: mean(|t| t.p95)?,
            p99: mean(|t| t.p99)?,
            p999: mean(|t| t.p999)?,
            p9999: mean(|t| t.p9999)?,
            histogram: String::new(),
        })
    }

    /// Tells whether an interval over the rounds is meaningful.
    pub fn has_interval(&self) -> bool {
        self.rounds.len() >= 3
    }
    pub fn rps(&self) -> Interval {
        self.interval(|r| Some(r.rps)).unwrap_or(Interval::exact(0.0))
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Round {
    pub seconds: f64,
    /// Due requests; answers, right answers and new connections within the measured part.
    pub due: u64,
    /// Right answers to due requests within the run, and after its end. `due` = `in_time` + `late` + all `failures`.
    #[serde(default)]
    pub in_time: u64,
    #[serde(default)]
    pub late: u64,
    pub answers: u64,
    pub good: u64,
    pub connections: u64,
    /// Seconds until the last request became due, if a number of requests limits an open loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<f64>,
    /// Rates per second: scheduled requests, responses, correct responses, new connections, received bytes.
    pub offered: f64,
    pub rps: f64,
    pub good_rps: f64,
    pub connections_per_second: f64,
    pub bytes_per_second: f64,
    pub bytes_per_response: f64,
    pub failures: BTreeMap<String, u64>,
    pub statuses: BTreeMap<u16, u64>,
    /// Calls of gRPC by the name of their status, and messages of their answers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub grpc_statuses: BTreeMap<String, u64>,
    #[serde(default)]
    pub messages: u64,
    /// HTTP/2 streams reset by the server, by code, and requests sent again unprocessed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resets: BTreeMap<u16, u64>,
    #[serde(default)]
    pub again: u64,
    /// Redirects followed, which are no answers; the first reason of a redirect not followed, or of a status of gRPC.
    #[serde(default)]
    pub redirects: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_error: Option<String>,
    /// Reason of the first malformed response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<String>,
    /// The rows of data were used up before the end.
    #[serde(default)]
    pub data_used_up: bool,
    /// Parts of the load machines (`--workers`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachinePart>,
    /// Times from the schedule to the last byte; in an open loop, the wait of a user.
    pub latency: Option<Times>,
    /// Times from the send to the last byte.
    pub service: Option<Times>,
    /// Times from the schedule until the generator takes up the request.
    pub lag: Option<Times>,
    pub first_byte: Option<Times>,
    pub connect: Option<Times>,
    pub handshake: Option<Times>,
    /// Share of time that each client thread was on a processor.
    pub client_busy: Vec<f64>,
    /// Share of time that each client thread waited for an occupied processor.
    #[serde(default)]
    pub client_waited: Vec<f64>,
    /// Growth of the wait per second of due time.
    #[serde(default)]
    pub growth: Option<f64>,
    /// Client's CPU seconds per answer.
    #[serde(default)]
    pub client_cpu_per_request: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestUse>,
    #[serde(default)]
    pub interrupted: bool,
    /// Users of a closed loop, and those who waited in vain for over half of the round, whom figures of answers do not
    /// show.
    #[serde(default)]
    pub users: u64,
    #[serde(default)]
    pub starved: u64,
    /// Seconds at the end of the round in which no answer came while requests failed; absent if they are few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence: Option<f64>,
    #[serde(default)]
    pub tls_error: Option<String>,
    /// Reason of a refused first connection, which ended the run.
    #[serde(default)]
    pub refused: Option<String>,
    /// Available local ports, and the cost of finding one.
    #[serde(default)]
    pub ports: PortUse,
    pub server: Option<ServerUse>,
    #[serde(default)]
    pub status: Option<StatusUse>,
    /// Processors used by backends (lab only).
    #[serde(default)]
    pub backend_processors: Option<f64>,
    pub kernel: Counters,
    /// Processors used by programs other than client, server and backends; absent when the server was not watched.
    #[serde(default)]
    pub others: Option<f64>,
    pub series: Vec<Tick>,
}

impl Round {
    /// Computes [`Round::others`]; `wall` is the time between the readings of the kernel's counters.
    pub fn settle_others(&mut self, wall: f64) {
        let Some(server) = &self.server else { return };
        let client: f64 = self.client_busy.iter().sum();
        let known = server.processors + client + self.backend_processors.unwrap_or(0.0);
        self.others = Some((self.kernel.busy / wall.max(1e-9) - known).max(0.0));
    }

    pub fn failure_words(&self) -> impl Iterator<Item = (String, u64)> {
        self.failures.iter().map(|(class, n)| match (&self.tls_error, &self.refused) {
            (Some(why), _)
                if [LoadFailure::Tls, LoadFailure::Proxy, LoadFailure::Upgrade]
                    .iter()
                    .any(|own| class == own.word()) =>
            {
                (format!("{class} ({why})"), *n)
            }
            (_, Some(why)) if class == LoadFailure::Connect.word() => (format!("{class} ({why})"), *n),
            _ if class == LoadFailure::Redirect.word() || class == LoadFailure::GrpcStatus.word() => {
                let why = self.answer_error.as_ref().map_or(String::new(), |why| format!(" ({why})"));
                (format!("{class}{why}"), *n)
            }
            _ if class == LoadFailure::Protocol.word() => {
                let why = self.malformed.as_ref().map_or(String::new(), |why| format!(" ({why})"));
                (format!("{class}{why}"), *n)
            }
            _ if class == LoadFailure::StreamReset.word() => {
                let codes = self.resets.iter().map(|(code, n)| format!("{} {n}", reset_word(*code)));
                (format!("{class} ({})", codes.collect::<Vec<_>>().join(", ")), *n)
            }
            _ => (class.clone(), *n),
        })
    }

    /// Tells whether too many users are unanswered for percentiles to be meaningful.
    pub fn starves(&self) -> bool {
        self.starved as f64 > STARVED_MAX * self.users as f64
    }

    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Share of due requests without a right answer.
    pub fn error_share(&self) -> f64 {
        self.failed() as f64 / self.due.max(1) as f64
    }

    pub fn unsent(&self) -> u64 {
        self.failures.get(LoadFailure::Unsent.word()).copied().unwrap_or(0)
    }

    /// Writes the outcomes of all due requests as a sum.
    pub fn account(&self) -> String {
        use figures::units::format_grouped;
        let n = |n: u64| format_grouped(n as i64);
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortUse {
    /// Source addresses, and their ports.
    pub sources: usize,
    pub available: u64,
    /// Mean CPU seconds of `connect`; absent when few calls were timed.
    pub connect_cpu: Option<f64>,
}

/// Share of starved users beyond which percentiles mean nothing.
const STARVED_MAX: f64 = 0.01;

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
    /// HdrHistogram, V2 compressed, base64; nanoseconds.
    pub histogram: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerUse {
    pub processes: usize,
    pub threads: usize,
    /// CPU seconds of the measured part, per answer, and as an average number of processors.
    pub cpu: f64,
    #[serde(default)]
    pub cpu_per_request: Option<f64>,
    pub processors: f64,
    /// Processors that its threads waited for.
    #[serde(default)]
    pub waited: f64,
    pub memory_before: f64,
    pub memory_peak: f64,
}

/// Results of one of several requests. Times accurate to 1/16, means exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestUse {
    pub answers: u64,
    pub failed: u64,
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
}

/// Differences of the status page over a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusUse {
    /// Rate by the server's counter, which includes requests of other clients.
    pub requests_per_second: Option<f64>,
    pub connections_per_second: Option<f64>,
    /// Connections at most, and accepted but unhandled ones.
    pub active: Option<f64>,
    pub dropped: Option<f64>,
    pub processors: Option<f64>,
    pub cpu_per_request: Option<f64>,
    pub memory: Option<f64>,
}

impl StatusUse {
    pub fn words(&self) -> String {
        use figures::units::{format_bytes, format_counted, format_grouped, format_seconds};
        let n = |v: f64| format_grouped(v.round() as i64);
        let parts = [
            self.requests_per_second.map(|v| format!("{} requests/s by its own count", n(v))),
            self.connections_per_second.map(|v| format!("{} new connections/s", n(v))),
            self.active.map(|v| format!("up to {}", format_counted(v.round() as u64, "connection", "connections"))),
            self.dropped.filter(|v| *v > 0.0).map(|v| format!("{} dropped", n(v))),
            self.processors.map(|v| format!("{v:.2} CPUs")),
            self.cpu_per_request.map(|v| format!("{} CPU time per request", format_seconds(v))),
            self.memory.map(format_bytes),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tick {
    /// End of the interval, from the measured start.
    pub at: f64,
    pub offered: f64,
    pub rps: f64,
    pub connections_per_second: f64,
    pub failures: u64,
    /// Latency by due time; absent where none was due.
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
    pub open: usize,
    pub pending: usize,
    /// Processors and memory of the server, if watched.
    pub processors: Option<f64>,
    pub memory: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RateVerdict {
    /// `valid`, `disturbed`, `client-bound`, `port-bound`, `error-bound`, `overloaded`, `not repeatable`.
    pub word: String,
    pub reasons: Vec<String>,
    /// The rate may be attributed to the server.
    pub usable: bool,
    /// Too many requests failed, whatever the first reason.
    #[serde(default)]
    pub failed: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Capacity {
    pub rps: Bounds,
    /// Objective that the rate meets; empty for the greatest rate seen.
    pub objective: String,
    pub cpu_seconds_per_request: Option<f64>,
    pub bytes_per_response: f64,
}

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
