//! Results for programs that build software: JUnit (`--junit`), a Markdown summary (`--markdown`), and annotations of
//! GitHub (`--annotations github`).

use std::fmt::Write as _;

use figures::units::{Unit, format_seconds};

use super::gate::{GateReport, GateResult};
use crate::report::answer::answer_sentence;
use crate::report::model::{Point, Report, Times};
use crate::report::text::grouped_rate;

/// Texts of a Markdown summary at most, in bytes of each.
const CELL_MAX: usize = 300;

/// JUnit's XML: one case for each gate, and one for each point with its verdict. A gate that fails is a failure, one
/// that is undecided an error; so is a point that does not describe the server.
pub fn junit_text(report: &Report, gates: &[GateReport]) -> String {
    let seconds = |point: &Point| point.rounds.iter().map(|round| round.seconds).sum::<f64>();
    let total: f64 = report.points.iter().map(seconds).sum();
    let (mut cases, mut failures, mut errors) = (String::new(), 0, 0);
    for point in &report.points {
        let name = format!("{} {}", grouped_rate(point.value), report.quantity);
        let time = seconds(point);
        let verdict = &point.verdict;
        let why = verdict.reasons.first().map_or("", String::as_str);
        let _ = write!(cases, "  <testcase classname=\"verdict\" name=\"{}\" time=\"{time:.3}\"", escape(&name));
        let element = if verdict.failed { "failure" } else { "error" };
        match verdict.usable && !verdict.failed {
            true => cases.push_str("/>\n"),
            false => {
                *(if verdict.failed { &mut failures } else { &mut errors }) += 1;
                let (word, why) = (escape(&verdict.word), escape(why));
                let _ = writeln!(cases, ">\n    <{element} message=\"{word}: {why}\"/>\n  </testcase>");
            }
        }
    }
    for gate in gates {
        let _ = write!(cases, "  <testcase classname=\"gate\" name=\"{}\" time=\"0\"", escape(&gate.what));
        let element = match gate.outcome {
            GateResult::Holds => {
                cases.push_str("/>\n");
                continue;
            }
            GateResult::Fails => {
                failures += 1;
                "failure"
            }
            GateResult::Undecided => {
                errors += 1;
                "error"
            }
        };
        let _ = writeln!(cases, ">\n    <{element} message=\"{}\"/>\n  </testcase>", escape(&gate.why));
    }
    let count = report.points.len() + gates.len();
    let title = escape(&report.title);
    let system = escape(&answer_sentence(report));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"{title}\" tests=\"{count}\" failures=\"{failures}\" \
         errors=\"{errors}\" skipped=\"0\" time=\"{total:.3}\">\n{cases}  <system-out>{system}</system-out>\n</testsuite>\n</testsuites>\n"
    )
}

/// A short summary for a pull request: result, points, gates.
pub fn markdown_text(report: &Report, gates: &[GateReport]) -> String {
    let mut out = format!("### {}\n\n{}\n", cell(&report.title), cell(&answer_sentence(report)));
    out.push_str(
        "\n| Load | Requests/s | Median | p99 | Errors | CPU/request | Verdict |\n|---|--:|--:|--:|--:|--:|---|\n",
    );
    for point in &report.points {
        let time = |of: fn(&Times) -> f64| {
            point.interval(|r| r.latency.as_ref().map(of)).map_or("–".into(), |i| format_seconds(i.mid))
        };
        let rps = point.rps();
        let spread = match point.has_interval() {
            true => format!(" ± {}", Unit::Share.write(rps.relative_half_width())),
            false => String::new(),
        };
        let errors = point.interval(|r| Some(r.error_share())).map_or("–".into(), |i| Unit::Share.write(i.mid));
        let cpu = point.interval(|r| r.server.as_ref()?.cpu_per_request);
        let _ = writeln!(
            out,
            "| {} {} | {}{spread} | {} | {} | {errors} | {} | {} |",
            grouped_rate(point.value),
            cell(&report.quantity),
            grouped_rate(rps.mid),
            time(|t| t.p50),
            time(|t| t.p99),
            cpu.map_or("–".into(), |i| format_seconds(i.mid)),
            cell(&point.verdict.word)
        );
    }
    if !gates.is_empty() {
        out.push_str("\n| Gate | Result | Figure |\n|---|---|---|\n");
        for gate in gates {
            let word = match gate.outcome {
                GateResult::Holds => "holds",
                GateResult::Undecided => "undecided",
                GateResult::Fails => "**fails**",
            };
            let _ = writeln!(out, "| {} | {word} | {} |", cell(&gate.what), cell(&gate.why));
        }
    }
    for point in report.points.iter().filter(|point| !point.verdict.usable) {
        if let Some(reason) = point.verdict.reasons.first() {
            let _ = writeln!(out, "\n{} {}: {}", grouped_rate(point.value), cell(&report.quantity), cell(reason));
        }
    }
    out
}

/// Workflow commands of GitHub Actions: an error for each gate that fails, a warning for each that is undecided and for
/// each point in doubt, and a notice with the result.
pub fn github_annotations(report: &Report, gates: &[GateReport]) -> String {
    let mut out = String::new();
    let mut command = |kind: &str, title: &str, message: &str| {
        let title = property(title);
        let _ = writeln!(out, "::{kind} title={title}::{}", data(message));
    };
    command("notice", &report.title, &answer_sentence(report));
    for point in report.points.iter().filter(|point| !point.verdict.usable || point.verdict.failed) {
        let title = format!("{} {}: {}", grouped_rate(point.value), report.quantity, point.verdict.word);
        command("warning", &title, point.verdict.reasons.first().map_or("", String::as_str));
    }
    for gate in gates {
        match gate.outcome {
            GateResult::Holds => {}
            GateResult::Undecided => command("warning", &format!("undecided: {}", gate.what), &gate.why),
            GateResult::Fails => command("error", &format!("fails: {}", gate.what), &gate.why),
        }
    }
    out
}

/// A report as a baseline: without time series and the commands' environment, which a comparison does not read.
pub fn baseline_report(report: &Report) -> Report {
    let mut baseline = report.clone();
    for round in baseline.points.iter_mut().flat_map(|point| &mut point.rounds) {
        round.series.clear();
    }
    baseline
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML has no other control characters (XML 1.0, 2.2).
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A text within a table or a line of Markdown.
fn cell(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(CELL_MAX) {
        match c {
            '|' | '<' | '>' | '*' | '_' | '`' | '[' | ']' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Data of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Value of a property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{RateVerdict, Round};

    fn report() -> Report {
        let times = Times { p50: 0.001, p99: 0.005, ..Times::default() };
        let round = Round { seconds: 2.0, rps: 1000.0, good: 5, due: 5, latency: Some(times), ..Round::default() };
        let verdict = RateVerdict {
            word: "client-bound".into(),
            reasons: vec!["a <b> & \"c\" | d".into()],
            ..RateVerdict::default()
        };
        let valid = RateVerdict { word: "valid".into(), usable: true, ..RateVerdict::default() };
        Report {
            title: "Load of <x>\nnext".into(),
            quantity: "connections".into(),
            points: vec![
                Point { value: 50.0, rounds: vec![round.clone()], verdict: valid },
                Point { value: 100.0, rounds: vec![round], verdict },
            ],
            ..Report::default()
        }
    }

    fn gates() -> Vec<GateReport> {
        let gate = |outcome, what: &str| GateReport { outcome, what: what.into(), why: "7 ms".into() };
        vec![
            gate(GateResult::Holds, "errors<1%"),
            gate(GateResult::Fails, "p99<5ms"),
            gate(GateResult::Undecided, "rps>5k"),
        ]
    }

    #[test]
    fn junit_counts_failures_and_errors() {
        let text = junit_text(&report(), &gates());
        assert!(text.contains("<testsuite name=\"Load of &lt;x&gt; next\" tests=\"5\" failures=\"1\" errors=\"2\" skipped=\"0\" time=\"4.000\">"), "{text}");
        assert!(text.contains("name=\"p99&lt;5ms\" time=\"0\">\n    <failure message=\"7 ms\"/>"), "{text}");
        assert!(text.contains("<error message=\"client-bound: a &lt;b&gt; &amp; &quot;c&quot; | d\"/>"), "{text}");
        assert!(text.contains("name=\"50 connections\" time=\"2.000\"/>"), "{text}");
        assert_eq!((text.matches("<testcase").count(), text.matches("</testcase>").count()), (5, 3));
    }

    #[test]
    fn markdown_keeps_its_table() {
        let text = markdown_text(&report(), &gates());
        assert!(text.starts_with("### Load of \\<x\\> next\n"), "{text}");
        assert!(text.contains("| 50 connections | 1,000 | 1 ms | 5 ms |"), "{text}");
        assert!(text.contains("| p99\\<5ms | **fails** | 7 ms |"), "{text}");
        assert!(text.contains("100 connections: a \\<b\\> & \"c\" \\| d\n"), "{text}");
    }

    #[test]
    fn annotations_are_workflow_commands() {
        let text = github_annotations(&report(), &gates());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("::notice title=Load of <x>%0Anext::"), "{text}");
        assert!(lines[1].starts_with("::warning title=100 connections%3A client-bound::a <b>"), "{text}");
        assert_eq!(&lines[2..], ["::error title=fails%3A p99<5ms::7 ms", "::warning title=undecided%3A rps>5k::7 ms"]);
    }
}
