//! Terminal summary.

use std::fmt::Write as _;

use figures::table::TextTable;
use figures::units::{Unit, format_bytes, format_counted, format_seconds};

use super::model::{Point, Report, Round, Times};
use crate::engine::run::MachinePart;

/// Summarizes one point in full, several as a table.
pub fn report_summary(report: &Report) -> String {
    let mut out = format!("{}\n{}\n", report.load, report.target.url);
    if !report.points.is_empty() {
        let _ = writeln!(out, "\n{}", super::answer::answer_sentence(report));
    }
    match report.points.as_slice() {
        [] => out.push_str("nothing was measured\n"),
        [point] => one(report, point, &mut out),
        points => many(report, points, &mut out),
    }
    for note in &report.notes {
        let _ = writeln!(out, "\nnote: {note}");
    }
    if report.interrupted {
        out.push_str("\nstopped before the end: the figures cover the time until then\n");
    }
    out
}

fn one(report: &Report, point: &Point, out: &mut String) {
    let Some(r) = middle_round(point) else { return };
    if r.refused.is_some() {
        return verdict(point, out);
    }
    let rps = point.rps();
    let spread = match point.rounds.len() {
        1 => String::new(),
        n => format!("   ± {} over {n} rounds", Unit::Share.write(rps.relative_half_width())),
    };
    let _ = writeln!(out, "\n  {} requests/s{spread}", grouped_rate(rps.mid));
    if let Some(words) = middle_words(point) {
        let _ = writeln!(out, "  {words}:");
    }
    // Otherwise the sum of the due requests would seem to contradict it.
    let before = r.good.saturating_sub(r.in_time);
    let before = match before * 100 > r.answers {
        true => format!(", {} of them to requests due in the warm-up", grouped_rate(before as f64)),
        false => String::new(),
    };
    let _ = writeln!(
        out,
        "  {} responses{before} in {}, {}/s received",
        grouped_rate(r.answers as f64),
        format_seconds(r.seconds),
        format_bytes(r.bytes_per_second)
    );
    if report.open_loop {
        let _ = writeln!(out, "  offered {}/s", grouped_rate(r.offered));
    }
    if r.connections_per_second >= 1.0 {
        let _ = writeln!(out, "  {} new connections/s", grouped_rate(r.connections_per_second));
    }
    // The answer at the head of the report has the same figures.
    let over = match point.rounds.len() {
        1 => "<".to_string(),
        n => format!("<  means of {n} rounds"),
    };
    let mut table = TextTable::new(&[&over, "mean", "dev", "p50", "p90", "p99", "p99.9", "p99.99", "max"]);
    let mut add = |name: &str, of: fn(&Round) -> Option<&Times>| {
        if let Some(t) = point.mean_times(of) {
            let cells = [t.mean, t.deviation, t.p50, t.p90, t.p99, t.p999, t.p9999, t.max].map(format_seconds);
            table.row(std::iter::once(format!("  {name}")).chain(cells));
        }
    };
    add(if report.open_loop { "latency, from the schedule" } else { "latency" }, |r| r.latency.as_ref());
    add("latency, from the send", |r| r.service.as_ref());
    add("generator's lateness", |r| r.lag.as_ref());
    add("first byte", |r| r.first_byte.as_ref());
    add("connect", |r| r.connect.as_ref());
    add("TLS handshake", |r| r.handshake.as_ref());
    if !table.rows.is_empty() {
        let _ = write!(out, "\n{}", table.text());
    }
    if !r.machines.is_empty() {
        let _ = write!(out, "\n{}", machine_table(r).text());
    }
    if !r.requests.is_empty() {
        let _ = write!(out, "\n{}", request_table(report, r).text());
    }
    out.push('\n');
    let statuses: Vec<String> = r.statuses.iter().map(|(s, n)| format!("{s}: {}", grouped_rate(*n as f64))).collect();
    if !statuses.is_empty() {
        let _ = writeln!(out, "  status  {}", statuses.join("   "));
    }
    if !r.grpc_statuses.is_empty() {
        let codes: Vec<String> =
            r.grpc_statuses.iter().map(|(name, n)| format!("{name}: {}", grouped_rate(*n as f64))).collect();
        let messages = format_counted(r.messages, "message", "messages");
        let rate = grouped_rate((r.messages as f64 / r.seconds.max(1e-9)).round());
        let _ = writeln!(out, "  gRPC    {}   ({messages} received, {rate}/s)", codes.join("   "));
    }
    for (class, n) in r.failure_words() {
        let _ = writeln!(out, "  failed  {class}: {}", grouped_rate(n as f64));
    }
    if r.again > 0 {
        let _ = writeln!(
            out,
            "  again   {} that the server had not processed",
            format_counted(r.again, "request", "requests")
        );
    }
    if r.redirects > 0 {
        let followed = format_counted(r.redirects, "redirect", "redirects");
        let _ = writeln!(out, "  follow  {followed}, whose time is part of the latency");
    }
    let _ = writeln!(out, "  sum     {}", r.account());
    if r.data_used_up {
        let _ = writeln!(out, "  data    used up: the load ended with the last row");
    }
    if let Some(s) = &r.server {
        let _ = writeln!(
            out,
            "  server  {} CPU time per request, {:.2} CPUs, peak memory {} ({}, {})",
            s.cpu_per_request.map_or("–".into(), format_seconds),
            s.processors,
            format_bytes(s.memory_peak),
            format_counted(s.processes as u64, "process", "processes"),
            format_counted(s.threads as u64, "thread", "threads")
        );
    }
    if let Some(s) = &r.status {
        let _ = writeln!(out, "  status page  {}", s.words());
    }
    let busy: Vec<String> = r.client_busy.iter().map(|b| format!("{:.0} %", b * 100.0)).collect();
    let from = if r.ports.sources > 1 { format!(", from {} local addresses", r.ports.sources) } else { String::new() };
    let _ = writeln!(
        out,
        "  client  {} CPU time per request, threads busy {}{from}",
        r.client_cpu_per_request.map_or("–".into(), format_seconds),
        busy.join(" ")
    );
    verdict(point, out);
}

fn many(report: &Report, points: &[Point], out: &mut String) {
    let mut table = TextTable::new(&[
        &report.quantity,
        "requests/s",
        "± 95 %",
        "mean",
        "p50",
        "p99",
        "p99.9",
        "errors",
        "CPU/request",
        "memory",
        "<verdict",
    ]);
    for point in points {
        let Some(r) = middle_round(point) else { continue };
        let time = |f: fn(&Times) -> f64| {
            point.interval(|r| r.latency.as_ref().map(f)).map_or("–".into(), |i| format_seconds(i.mid))
        };
        let spread =
            if point.rounds.len() > 1 { Unit::Share.write(point.rps().relative_half_width()) } else { String::new() };
        let server = |f: fn(&super::model::ServerUse) -> Option<f64>| {
            point.interval(|r| r.server.as_ref().and_then(f)).map(|i| i.mid)
        };
        table.row([
            grouped_rate(point.value),
            grouped_rate(point.rps().mid),
            spread,
            time(|t| t.mean),
            time(|t| t.p50),
            time(|t| t.p99),
            time(|t| t.p999),
            Unit::Share.write(r.error_share()),
            server(|s| s.cpu_per_request).map_or("–".into(), format_seconds),
            server(|s| Some(s.memory_peak)).map_or("–".into(), format_bytes),
            point.verdict.word.clone(),
        ]);
    }
    let _ = write!(out, "\n{}", table.text());
    // Merges equal verdicts of several points.
    let mut said: Vec<&str> = vec!["valid"];
    for point in points {
        let word = point.verdict.word.as_str();
        if said.contains(&word) {
            continue;
        }
        said.push(word);
        let same = points.iter().filter(|p| p.verdict.word == word).count();
        let more = if same > 1 { format!(" (and {} more)", same - 1) } else { String::new() };
        let reason = point.verdict.reasons.first().map_or("", |r| r.as_str());
        let _ = writeln!(out, "  {word} at {}{more}: {reason}", grouped_rate(point.value));
    }
}

fn verdict(point: &Point, out: &mut String) {
    let _ = writeln!(out, "\n  verdict: {}", point.verdict.word);
    for reason in &point.verdict.reasons {
        let _ = writeln!(out, "    {reason}");
    }
}

pub fn request_table(report: &Report, round: &Round) -> TextTable {
    let mut table = TextTable::new(&["<  request", "answers", "failed", "mean", "p50", "p99", "max"]);
    let time = |v: Option<f64>| v.map_or("–".into(), format_seconds);
    for (i, r) in round.requests.iter().enumerate() {
        let name = report.target.requests.get(i).map_or("?", String::as_str);
        table.row([
            format!("  {name}"),
            grouped_rate(r.answers as f64),
            grouped_rate(r.failed as f64),
            time(r.mean),
            time(r.p50),
            time(r.p99),
            time(r.max),
        ]);
    }
    table
}

/// Load machines of a round, with the spread between them in the last line.
pub fn machine_table(round: &Round) -> TextTable {
    let mut table = TextTable::new(&["<  load machine", "requests/s", "p50", "p99", "due", "failed", "busiest thread"]);
    let time = |v: Option<f64>| v.map_or("–".into(), format_seconds);
    for m in &round.machines {
        table.row([
            format!("  {}", m.name),
            grouped_rate(m.rps),
            time(m.p50),
            time(m.p99),
            grouped_rate(m.due as f64),
            grouped_rate(m.failed as f64),
            Unit::Share.write(m.busy),
        ]);
    }
    // Greatest value over least.
    let spread = |of: &dyn Fn(&MachinePart) -> Option<f64>| {
        let values: Option<Vec<f64>> = round.machines.iter().map(of).collect();
        let ends = values.and_then(|v| Some((v.iter().copied().reduce(f64::min)?, v.into_iter().reduce(f64::max)?)));
        ends.filter(|(least, _)| *least > 0.0).map_or("–".into(), |(least, most)| format!("{:.2} : 1", most / least))
    };
    if round.machines.len() > 1 {
        table.row([
            "  most : least".into(),
            spread(&|m| Some(m.rps)),
            spread(&|m| m.p50),
            spread(&|m| m.p99),
            spread(&|m| Some(m.due as f64)),
            String::new(),
            spread(&|m| Some(m.busy)),
        ]);
    }
    table
}

/// Distributions of all points in the text form of HdrHistogram's tools (as in wrk2): milliseconds, share, count,
/// reciprocal of the remainder.
pub fn report_spectra(report: &Report) -> String {
    let mut out = String::new();
    for point in &report.points {
        let Some(r) = middle_round(point) else { continue };
        let from_send = if report.open_loop { &r.service } else { &None };
        for (name, times) in [("from the schedule", &r.latency), ("from the send, uncorrected", from_send)] {
            let Some(times) = times else { continue };
            let Ok(latency) = crate::engine::latency::Latency::decode(&times.histogram) else { continue };
            let _ = writeln!(out, "\n{} {}, {name}", grouped_rate(point.value), report.quantity);
            let _ =
                writeln!(out, "{:>12} {:>14} {:>10} {:>14}", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
            for (q, value) in latency.curve() {
                let count = (q * times.count as f64).round();
                let beyond = if q < 1.0 { format!("{:.2}", 1.0 / (1.0 - q)) } else { "inf".into() };
                let _ = writeln!(out, "{:>12.3} {q:>14.6} {count:>10} {beyond:>14}", value * 1e3);
            }
            let (mean, deviation, max) = (times.mean * 1e3, times.deviation * 1e3, times.max * 1e3);
            let _ = writeln!(out, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]");
            let _ = writeln!(out, "#[Max     = {max:>12.3}, Total count    = {:>12}]", times.count);
        }
    }
    out
}

/// Round with the median rate: a consistent set of figures.
pub fn middle_round(point: &Point) -> Option<&Round> {
    numbered_middle(point).map(|(_, round)| round)
}

fn numbered_middle(point: &Point) -> Option<(usize, &Round)> {
    let mut rounds: Vec<(usize, &Round)> = point.rounds.iter().enumerate().collect();
    rounds.sort_by(|a, b| a.1.rps.total_cmp(&b.1.rps));
    rounds.get(rounds.len().saturating_sub(1) / 2).copied()
}

/// Names the round of [`middle_round`]; `None` if there is one round.
pub fn middle_words(point: &Point) -> Option<String> {
    let (index, _) = numbered_middle(point).filter(|_| point.rounds.len() > 1)?;
    Some(format!("round {} of {}, the one with the median rate", index + 1, point.rounds.len()))
}

/// Writes a rate with grouped thousands; small ones with a fraction.
pub fn grouped_rate(value: f64) -> String {
    if value.abs() >= 100.0 || value.fract() == 0.0 {
        figures::units::format_grouped(value.round() as i64)
    } else {
        figures::units::format_significant(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::RateVerdict;

    #[test]
    fn the_latencies_of_rounds_agree_with_the_answer() {
        let round = |rps: f64, p99: f64| Round {
            rps,
            good: 100,
            answers: rps as u64,
            latency: Some(Times { count: 1, p50: p99 / 2.0, p99, ..Times::default() }),
            ..Round::default()
        };
        let rounds = vec![round(300.0, 0.008), round(100.0, 0.001), round(200.0, 0.001)];
        let mut report = crate::bench::gate::tests::report(5.0, &[], "valid");
        report.points = vec![Point { value: 5.0, rounds, verdict: RateVerdict::default() }];
        let text = report_summary(&report);
        assert!(text.contains("median latency 1 ms, p99 2 ms"), "{text}");
        let line = text.lines().find(|line| line.starts_with("  latency")).unwrap();
        let head = text.lines().find(|line| line.starts_with("  means of 3 rounds")).unwrap();
        let column = |name: &str| head.split("  ").filter(|c| !c.trim().is_empty()).position(|c| c.trim() == name);
        let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        assert_eq!((cells[column("p50").unwrap()], cells[column("p99").unwrap()]), ("1 ms", "2 ms"), "{text}");
        assert!(text.contains("\n  round 3 of 3, the one with the median rate:\n  200 responses"), "{text}");
        report.points[0].rounds.truncate(1);
        let text = report_summary(&report);
        assert!(!text.contains("round 1") && !text.contains("means of"), "{text}");
    }
}
