//! The report as one self-contained page.

use figures::page::{HtmlPage, Tone};
use figures::plot::Plot;
use figures::table::TextTable;
use figures::units::{Unit, format_bytes, format_count, format_seconds};

use super::model::{Point, RateVerdict, Report, Round, Times};
use super::plots;
use super::text::{grouped_rate, middle_round};

pub fn report_page(report: &Report) -> String {
    let mut page = HtmlPage::new(&report.title);
    page.answer(&super::answer::answer_sentence(report));
    if report.interrupted {
        page.note(Tone::Warning, "Stopped before the end.", "The figures cover the time until then.");
    }
    if !report.points.is_empty() {
        let (plot, caption) = picture(report);
        page.picture(&plot.first_figure(), &caption);
    }
    page.paragraph(&format!("{} {}", report.load, report.target.url));
    if let [point] = report.points.as_slice()
        && let Some(round) = middle_round(point)
    {
        page.cards(&cards(report, point, round));
        let of = super::text::middle_words(point).map_or(String::new(), |words| format!("In {words}: "));
        page.paragraph(&format!("{of}{}.", round.account()));
    }
    if !report.points.is_empty() {
        figures(&mut page, report);
        tables(&mut page, report);
    }
    doubts(&mut page, report);
    environment(&mut page, report);
    page.html()
}

fn picture(report: &Report) -> (Plot, String) {
    let rounds = report.points.iter().map(|p| p.rounds.len()).max().unwrap_or(1);
    if report.points.len() == 1 {
        let plot = plots::percentile_plot(&plots::percentile_curves(report));
        return (plot, "Each sample is one request; nothing is interpolated.".into());
    }
    if report.quantity == "connections/s offered" {
        let plot = plots::reply_time(report);
        let caption = plots::plot_caption(&plot, rounds);
        return (plot, format!("{caption} A growing deviation is the first sign of saturation."));
    }
    let plot = plots::rate_and_latency(report);
    let caption = plots::plot_caption(&plot, rounds);
    (plot, caption)
}

fn doubts(page: &mut HtmlPage, report: &Report) {
    page.heading("Doubts");
    if let [point] = report.points.as_slice() {
        verdict(page, &point.verdict);
    } else if !report.points.is_empty() {
        sweep_verdicts(page, report);
    }
    if report.undecided {
        page.note(Tone::Warning, "Undecided.", report.search.trim_start_matches("undecided: "));
    }
    for note in &report.notes {
        page.note(Tone::Neutral, "Note.", note);
    }
}

pub fn verdict_tone(verdict: &RateVerdict) -> Tone {
    match verdict.word.as_str() {
        "valid" => Tone::Good,
        "overloaded" | "not repeatable" => Tone::Warning,
        _ => Tone::Bad,
    }
}

fn verdict(page: &mut HtmlPage, verdict: &RateVerdict) {
    page.note(verdict_tone(verdict), &format!("Verdict: {}.", verdict.word), &verdict.reasons.join(". "));
}

fn sweep_verdicts(page: &mut HtmlPage, report: &Report) {
    let odd: Vec<&Point> = report.points.iter().filter(|p| p.verdict.word != "valid").collect();
    if odd.is_empty() {
        page.note(Tone::Good, "Verdict: valid.", "Every point.");
    }
    // Merges equal doubts about several points.
    let mut said: Vec<(&RateVerdict, Vec<String>, String)> = Vec::new();
    for point in odd {
        let reason = point.verdict.reasons.first().cloned().unwrap_or_default();
        match said.iter_mut().find(|(verdict, ..)| verdict.word == point.verdict.word) {
            Some((_, values, _)) => values.push(grouped_rate(point.value)),
            None => said.push((&point.verdict, vec![grouped_rate(point.value)], reason)),
        }
    }
    for (verdict, values, reason) in said {
        let first = if values.len() > 1 { format!("(at {}) ", values[0]) } else { String::new() };
        page.note(
            verdict_tone(verdict),
            &format!("At {}: {}.", values.join("; "), verdict.word),
            &format!("{first}{reason}"),
        );
    }
}

fn cards(report: &Report, point: &Point, r: &Round) -> Vec<(String, String, String)> {
    let spread = match point.rounds.len() {
        1 => "one run".to_string(),
        n => format!("± {} over {n} rounds", Unit::Share.write(point.rps().relative_half_width())),
    };
    let mut cards = vec![(grouped_rate(point.rps().mid), "requests/s".to_string(), spread)];
    if report.open_loop {
        cards.push((grouped_rate(r.offered), "offered/s".into(), "by the plan".into()));
    }
    if let Some(t) = point.mean_times(|r| r.latency.as_ref()) {
        let longest = point.rounds.iter().filter_map(|r| r.latency.as_ref()).map(|t| t.max).fold(0.0, f64::max);
        cards.push((format_seconds(t.p50), "median latency".into(), format!("mean {}", format_seconds(t.mean))));
        cards.push((format_seconds(t.p99), "p99".into(), format!("p99.9 {}", format_seconds(t.p999))));
        cards.push((format_seconds(longest), "longest".into(), format!("of {}", format_count(t.count as f64))));
    }
    if let Some(t) = point.mean_times(|r| r.handshake.as_ref()).filter(|_| !report.target.tls.is_empty()) {
        let connect = point.mean_times(|r| r.connect.as_ref());
        let first = connect.map_or(String::new(), |c| format!("after {} for TCP", format_seconds(c.p50)));
        cards.push((format_seconds(t.p50), "TLS handshake".into(), first));
    }
    if let Some(t) = point.mean_times(|r| r.first_byte.as_ref()) {
        cards.push((format_seconds(t.p50), "first byte".into(), format!("p99 {}", format_seconds(t.p99))));
    }
    cards.push((
        Unit::Share.write(r.error_share()),
        "errors".into(),
        format!("{} failed", r.failures.values().sum::<u64>()),
    ));
    if let Some(s) = &r.server {
        cards.push((
            s.cpu_per_request.map_or("–".into(), format_seconds),
            "server CPU/request".into(),
            format!("{:.2} CPUs", s.processors),
        ));
        cards.push((
            format_bytes(s.memory_peak),
            "server memory".into(),
            figures::units::format_counted(s.processes as u64, "process", "processes"),
        ));
    }
    cards
}

fn figures(page: &mut HtmlPage, report: &Report) {
    let rounds = report.points.iter().map(|p| p.rounds.len()).max().unwrap_or(1);
    let mut list: Vec<(String, String)> = Vec::new();
    if report.points.len() > 1 {
        if report.quantity == "connections/s offered" {
            let plot = plots::rate_and_latency(report);
            list.push((plot.figure(), plots::plot_caption(&plot, rounds)));
        }
        if report.open_loop {
            list.push((
                plots::answered_against_offered(report).figure(),
                "The server is saturated where the curve leaves the diagonal.".into(),
            ));
        }
        let samples: u64 =
            report.points.iter().flat_map(|p| &p.rounds).filter_map(|r| r.latency.as_ref()).map(|t| t.count).sum();
        let reply = plots::reply_time(report);
        list.extend((report.quantity != "connections/s offered").then(|| {
            (
                reply.figure(),
                format!(
                    "Over {} samples in all. A growing deviation is the first sign of saturation.",
                    format_count(samples as f64)
                ),
            )
        }));
        if let Some((memory, cpu)) = plots::server_plots(report) {
            list.push((memory.figure(), "Proportional set size of all its processes.".into()));
            list.push((cpu.figure(), "User and system time of all its processes; falls as batches grow.".into()));
        }
    }
    if report.points.len() > 1 {
        let plot = plots::percentile_plot(&plots::percentile_curves(report));
        list.push((plot.figure(), "Each sample is one request; nothing is interpolated.".into()));
    }
    if let [point] = report.points.as_slice()
        && let Some(round) = middle_round(point)
    {
        list.extend(plots::over_time(&round.series, report.open_loop).iter().map(|p| (p.figure(), String::new())));
    }
    page.heading("Figures");
    page.figures(&list);
}

fn tables(page: &mut HtmlPage, report: &Report) {
    page.heading("Latency");
    if report.points.iter().any(|point| point.rounds.len() > 1) {
        page.paragraph(
            "Latencies are means over the rounds of a point; answers and resources are those of the round with the median rate.",
        );
    }
    let mut table = TextTable::new(&[
        &report.quantity,
        "<",
        "requests/s",
        "mean",
        "deviation",
        "min",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "p99.99",
        "max",
    ]);
    for point in &report.points {
        let mut add = |name: &str, of: fn(&Round) -> Option<&Times>| {
            if let Some(t) = point.mean_times(of) {
                let cells =
                    [t.mean, t.deviation, t.min, t.p50, t.p90, t.p99, t.p999, t.p9999, t.max].map(format_seconds);
                let first = [grouped_rate(point.value), name.to_string(), grouped_rate(point.rps().mid)];
                table.row(first.into_iter().chain(cells));
            }
        };
        add(if report.open_loop { "from the schedule" } else { "latency" }, |r| r.latency.as_ref());
        add("from the send", |r| r.service.as_ref());
        add("generator's lateness", |r| r.lag.as_ref());
        add("first byte", |r| r.first_byte.as_ref());
        add("connect", |r| r.connect.as_ref());
        add("TLS handshake", |r| r.handshake.as_ref());
    }
    page.table(&table);
    if let [point] = report.points.as_slice()
        && let Some(r) = middle_round(point).filter(|r| !r.requests.is_empty())
    {
        page.subheading("By request");
        page.table(&super::text::request_table(report, r));
    }
    page.heading("Answers and resources");
    let mut table = TextTable::new(&[
        &report.quantity,
        "rounds",
        "± 95 %",
        "answers",
        "<statuses",
        "<failures",
        "received/s",
        "connections/s",
        "server CPU/request",
        "server CPUs",
        "server memory",
        "client CPU/request",
        "client busy",
        "<verdict",
    ]);
    for point in &report.points {
        let Some(r) = middle_round(point) else { continue };
        let list = |items: Vec<String>| if items.is_empty() { "none".to_string() } else { items.join(", ") };
        let s = r.server.as_ref();
        table.row([
            grouped_rate(point.value),
            point.rounds.len().to_string(),
            if point.rounds.len() > 1 { Unit::Share.write(point.rps().relative_half_width()) } else { "–".into() },
            grouped_rate(r.answers as f64),
            list(
                (r.statuses.iter().map(|(s, n)| (s.to_string(), n)))
                    .chain(r.grpc_statuses.iter().map(|(name, n)| (name.clone(), n)))
                    .map(|(s, n)| format!("{s}: {}", format_count(*n as f64)))
                    .collect(),
            ),
            list(r.failure_words().map(|(c, n)| format!("{c}: {}", format_count(n as f64))).collect()),
            format_bytes(r.bytes_per_second),
            format_count(r.connections_per_second),
            s.map_or("–".into(), |s| s.cpu_per_request.map_or("–".into(), format_seconds)),
            s.map_or("–".into(), |s| format!("{:.2}", s.processors)),
            s.map_or("–".into(), |s| format_bytes(s.memory_peak)),
            r.client_cpu_per_request.map_or("–".into(), format_seconds),
            Unit::Share.write(r.client_busy.iter().copied().fold(0.0, f64::max)),
            point.verdict.word.clone(),
        ]);
    }
    let column = table.heads.len() - 1;
    page.table_with(&table, |row, c| (c == column).then(|| verdict_tone(&report.points[row].verdict)));
}

fn environment(page: &mut HtmlPage, report: &Report) {
    page.heading("How it was measured");
    for point in &report.points {
        if let Some(s) = middle_round(point).and_then(|r| r.status.as_ref()) {
            page.paragraph(&format!("The server's status page, at {}: {}.", grouped_rate(point.value), s.words()));
        }
    }
    page.paragraph(&report.machine.sentence());
    if report.target.loopback {
        page.paragraph(
            "Client and server shared this machine and its loopback interface: no network card, no interrupts, segments of up to \
             64 kB, and the client takes CPU time from the server. Compare only results that were measured the same way.",
        );
    }
    let tls = if report.target.tls.is_empty() { String::new() } else { format!(", {}", report.target.tls) };
    page.paragraph(&format!("{} {} to {}{tls}.", report.tool, report.version, report.target.address));
    page.preformatted(&report.command.join(" "));
    if report.target.requests.len() > 1 {
        page.details("Requests", &report.target.requests.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(values: &[f64]) -> Report {
        let point = |value: &f64| {
            let mut latency = crate::engine::latency::Latency::default();
            (1..100).for_each(|i| latency.record(i * 10_000));
            let round = Round {
                rps: value * 10.0,
                good: 100,
                due: 100,
                in_time: 99,
                late: 1,
                latency: crate::report::build::latency_times(&latency),
                ..Round::default()
            };
            let verdict = crate::report::verdict::judge_rounds(std::slice::from_ref(&round), false);
            Point { value: *value, rounds: vec![round], verdict }
        };
        Report {
            title: "t".into(),
            quantity: "connections".into(),
            points: values.iter().map(point).collect(),
            ..Report::default()
        }
    }

    #[test]
    fn the_answer_comes_first_then_its_picture_the_figures_the_doubts() {
        for values in [&[50.0][..], &[1.0, 10.0, 100.0]] {
            let html = report_page(&report(values));
            let at = |what: &str| html.find(what).unwrap_or_else(|| panic!("{what} is missing"));
            let order = [
                at("class=\"answer\""),
                at("<figure class=\"first\""),
                at("<h2>Figures"),
                at("<h2>Doubts"),
                at("<h2>How it was measured"),
            ];
            assert!(order.is_sorted(), "{order:?}");
            for form in ["fig full", "fig wide", "fig narrow"] {
                assert!(html.contains(form), "{form}");
            }
        }
        assert!(report_page(&report(&[50.0])).contains("100 due = 99 answered + 1 answered after the end."));
        assert!(report_page(&report(&[])).contains("Nothing was measured."));
    }
}
