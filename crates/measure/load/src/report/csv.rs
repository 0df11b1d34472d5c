//! The report as CSV: one line for each round of each point.

use figures::table::TextTable;

use super::model::{Report, Round, Times};

const HEADS: [&str; 37] = [
    "value",
    "round",
    "<verdict",
    "seconds",
    "offered_per_s",
    "rps",
    "good_rps",
    "connections_per_s",
    "bytes_per_s",
    "due",
    "answered_in_time",
    "answered_late",
    "never_sent",
    "errors",
    "error_share",
    "mean_s",
    "deviation_s",
    "min_s",
    "p50_s",
    "p75_s",
    "p90_s",
    "p95_s",
    "p99_s",
    "p999_s",
    "p9999_s",
    "max_s",
    "service_p50_s",
    "service_p99_s",
    "lag_p99_s",
    "connect_p50_s",
    "handshake_p50_s",
    "client_busy",
    "client_waited",
    "server_cpu_per_request_s",
    "server_processors",
    "server_memory_peak_bytes",
    "listen_overflows",
];

pub fn csv_table(report: &Report) -> TextTable {
    let mut table = TextTable::new(&HEADS);
    for point in &report.points {
        for (i, r) in point.rounds.iter().enumerate() {
            table.row(cells(point.value, i + 1, &point.verdict.word, r));
        }
    }
    table
}

fn cells(value: f64, number: usize, verdict: &str, r: &Round) -> Vec<String> {
    let time = |t: &Option<Times>, f: fn(&Times) -> f64| t.as_ref().map_or(String::new(), |t| format!("{:.9}", f(t)));
    let l = &r.latency;
    let server = |f: &dyn Fn(&super::model::ServerUse) -> String| r.server.as_ref().map_or(String::new(), f);
    vec![
        value.to_string(),
        number.to_string(),
        verdict.into(),
        format!("{:.3}", r.seconds),
        format!("{:.1}", r.offered),
        format!("{:.1}", r.rps),
        format!("{:.1}", r.good_rps),
        format!("{:.1}", r.connections_per_second),
        format!("{:.0}", r.bytes_per_second),
        r.due.to_string(),
        r.in_time.to_string(),
        r.late.to_string(),
        r.unsent().to_string(),
        r.failed().to_string(),
        format!("{:.6}", r.error_share()),
        time(l, |t| t.mean),
        time(l, |t| t.deviation),
        time(l, |t| t.min),
        time(l, |t| t.p50),
        time(l, |t| t.p75),
        time(l, |t| t.p90),
        time(l, |t| t.p95),
        time(l, |t| t.p99),
        time(l, |t| t.p999),
        time(l, |t| t.p9999),
        time(l, |t| t.max),
        time(&r.service, |t| t.p50),
        time(&r.service, |t| t.p99),
        time(&r.lag, |t| t.p99),
        time(&r.connect, |t| t.p50),
        time(&r.handshake, |t| t.p50),
        format!("{:.3}", r.client_busy.iter().copied().fold(0.0, f64::max)),
        format!("{:.3}", r.client_waited.iter().copied().fold(0.0, f64::max)),
        server(&|s| s.cpu_per_request.map_or(String::new(), |c| format!("{c:.9}"))),
        server(&|s| format!("{:.3}", s.processors)),
        server(&|s| format!("{:.0}", s.memory_peak)),
        r.kernel.listen_overflows.to_string(),
    ]
}
