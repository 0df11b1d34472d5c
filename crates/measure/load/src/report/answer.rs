//! The sentence that answers a run's question, at the head of its report.

use figures::units::{Unit, format_seconds};

use super::model::{Point, Report, Round, Times};
use super::text::grouped_rate;

pub fn answer_sentence(report: &Report) -> String {
    if !report.search.is_empty() {
        return format!("{}.", capital(&report.search));
    }
    let Some(first) = report.points.first() else { return "Nothing was measured.".into() };
    let text = match report.points.as_slice() {
        [point] => one(report, point),
        points if report.quantity.starts_with("connections/s") => reply_times(points),
        points if report.open_loop => offered(points),
        points => most(report, points),
    };
    let doubt = match report.points.iter().filter(|p| p.verdict.word != "valid").count() {
        0 => String::new(),
        // The sentence says so itself.
        _ if report.points.len() == 1 && nothing_succeeded(first) => String::new(),
        _ if report.points.len() == 1 && !first.verdict.usable => {
            format!(" But the run was {}, so these figures do not describe the server.", first.verdict.word)
        }
        _ if report.points.len() == 1 => format!(" But it was {}.", first.verdict.word),
        n => format!(" {n} of {} points are in doubt (hollow).", report.points.len()),
    };
    text + &doubt
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}

fn time(point: &Point, of: fn(&Times) -> f64) -> String {
    point.interval(|r: &Round| r.latency.as_ref().map(of)).map_or("–".into(), |i| format_seconds(i.mid))
}

fn failing(point: &Point) -> String {
    let share = point.interval(|r| Some(r.error_share())).map_or(0.0, |i| i.mid);
    if share > 0.0 {
        format!(" {} of the requests failed or were never sent.", Unit::Share.write(share))
    } else {
        String::new()
    }
}

pub(crate) fn many(value: f64, quantity: &str) -> String {
    let noun = if value == 1.0 { quantity.trim_end_matches('s') } else { quantity };
    format!("{} {noun}", grouped_rate(value))
}

fn nothing_succeeded(point: &Point) -> bool {
    point.rounds.iter().all(|r| r.good == 0)
}

fn one(report: &Report, point: &Point) -> String {
    if nothing_succeeded(point) {
        let worst = point.rounds.iter().flat_map(Round::failure_words).max_by_key(|f| f.1);
        let why = worst.map_or(String::new(), |(class, n)| format!(" ({}: {class})", grouped_rate(n as f64)));
        let late: u64 = point.rounds.iter().map(|r| r.late).sum();
        if late > 0 {
            let more = if why.is_empty() { String::new() } else { format!(" Others failed{why}.") };
            return format!(
                "No answer came within the run; {} right ones came after its end.{more}",
                grouped_rate(late as f64)
            );
        }
        return format!("No request succeeded{why}.");
    }
    let wait = format!("median latency {}, p99 {}", time(point, |t| t.p50), time(point, |t| t.p99));
    let rps = grouped_rate(point.rps().mid);
    let begin = match report.quantity.as_str() {
        "connections" | "users" => format!("{rps} requests/s with {}", many(point.value, &report.quantity)),
        "connections/s offered" => {
            let rate = point.interval(|r| Some(r.connections_per_second)).map_or(0.0, |i| i.mid);
            let handshake = point.interval(|r| r.handshake.as_ref().map(|t| t.p50));
            let handshake = handshake
                .map_or(String::new(), |i| format!(", half of their TLS handshakes within {}", format_seconds(i.mid)));
            format!("{} new connections/s{handshake}", grouped_rate(rate))
        }
        _ => format!(
            "{rps} requests/s of {} offered",
            grouped_rate(point.interval(|r| Some(r.offered)).map_or(0.0, |i| i.mid))
        ),
    };
    format!("{begin}: {wait}.{}{}", failing(point), redirected(point))
}

/// Tells that only redirects were measured, which usually is not what the user meant.
fn redirected(point: &Point) -> String {
    let mut statuses = point.rounds.iter().flat_map(|r| r.statuses.keys()).peekable();
    let first = statuses.peek().copied();
    match first {
        Some(status) if statuses.all(|s| matches!(s, 301 | 302 | 303 | 307 | 308)) => {
            format!(" All answers are redirects ({status}): what they lead to was not measured.")
        }
        _ => String::new(),
    }
}

/// Points limited by the server, or all if there is none.
fn sound(points: &[Point]) -> Vec<&Point> {
    let good: Vec<&Point> = points.iter().filter(|p| p.verdict.usable && p.verdict.word != "overloaded").collect();
    if good.is_empty() { points.iter().collect() } else { good }
}

fn most(report: &Report, points: &[Point]) -> String {
    let by_rate = |a: &&&Point, b: &&&Point| a.rps().mid.total_cmp(&b.rps().mid);
    let good = sound(points);
    let (Some(best), Some(last)) = (good.iter().max_by(by_rate), points.last()) else { return String::new() };
    let mut text = format!(
        "At most {} requests/s, with {}: mean latency {}, p99 {}.",
        grouped_rate(best.rps().mid),
        many(best.value, &report.quantity),
        time(best, |t| t.mean),
        time(best, |t| t.p99)
    );
    if last.value != best.value {
        text += &format!(
            " With {}: {} requests/s, mean latency {}.",
            grouped_rate(last.value),
            grouped_rate(last.rps().mid),
            time(last, |t| t.mean)
        );
    }
    text
}

/// Returns the point with the lowest load; loads need not be in order.
pub(crate) fn lowest<'a>(points: impl Iterator<Item = &'a Point>) -> Option<&'a Point> {
    points.min_by(|a, b| a.value.total_cmp(&b.value))
}

fn offered(points: &[Point]) -> String {
    let kept: Vec<&Point> = points.iter().filter(|p| !p.verdict.failed && p.verdict.word != "overloaded").collect();
    let Some(best) = kept.iter().max_by(|a, b| a.value.total_cmp(&b.value)) else {
        return "It keeps up with none of the offered rates.".into();
    };
    let next = lowest(points.iter().filter(|p| !kept.iter().any(|held| held.value == p.value)));
    let end = next.map_or(String::new(), |p| {
        let word = if p.value > best.value { "and no longer" } else { "but not" };
        format!(", {word} with {}", grouped_rate(p.value))
    });
    format!(
        "It keeps up with {} requests/s{end}: median latency {}, p99 {}.",
        grouped_rate(best.value),
        time(best, |t| t.p50),
        time(best, |t| t.p99)
    )
}

fn reply_times(points: &[Point]) -> String {
    let at = |p: &Point| {
        format!("{} (deviation {}) at {}", time(p, |t| t.mean), time(p, |t| t.deviation), grouped_rate(p.value))
    };
    let good = sound(points);
    let by_value = |a: &&&Point, b: &&&Point| a.value.total_cmp(&b.value);
    let (Some(low), Some(high)) = (good.iter().min_by(by_value), good.iter().max_by(by_value)) else {
        return String::new();
    };
    let mut text = format!("Reply time {} connections/s", at(low));
    if high.value != low.value {
        text += &format!(", and {}", at(high));
    }
    if let Some(over) = lowest(points.iter().filter(|p| !good.iter().any(|held| held.value == p.value))) {
        text += &format!("; at {} it is {}", grouped_rate(over.value), over.verdict.word);
    }
    text + "."
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::model::RateVerdict;

    pub fn point(value: f64, rps: f64, mean: f64, word: &str) -> Point {
        let times = Times { mean, p50: mean, p99: 2.0 * mean, deviation: mean / 2.0, ..Times::default() };
        let round = Round {
            rps,
            offered: value,
            connections_per_second: rps,
            good: 1000,
            due: 1000,
            in_time: 1000,
            latency: Some(times),
            ..Round::default()
        };
        let usable = crate::report::verdict::is_usable(word);
        Point {
            value,
            rounds: vec![round],
            verdict: RateVerdict { word: word.into(), usable, ..RateVerdict::default() },
        }
    }

    fn says(quantity: &str, open_loop: bool, points: Vec<Point>) -> String {
        let report = Report { quantity: quantity.into(), open_loop, points, ..Report::default() };
        answer_sentence(&report)
    }

    #[test]
    fn each_question_has_its_answer() {
        let text = says("connections", false, vec![point(50.0, 120_000.0, 0.0004, "valid")]);
        assert_eq!(text, "120,000 requests/s with 50 connections: median latency 400 µs, p99 800 µs.");
        let text = says("connections", false, vec![point(50.0, 120_000.0, 0.0004, "disturbed")]);
        assert!(text.ends_with("But the run was disturbed, so these figures do not describe the server."), "{text}");
        let mut moved = point(50.0, 120_000.0, 0.0004, "valid");
        moved.rounds[0].statuses.insert(301, 1000);
        assert!(
            says("connections", false, vec![moved.clone()])
                .ends_with("All answers are redirects (301): what they lead to was not measured.")
        );
        moved.rounds[0].statuses.insert(200, 1);
        assert!(!says("connections", false, vec![moved]).contains("redirect"));
        let mut late = point(50.0, 0.0, 0.0, "overloaded");
        (late.rounds[0].good, late.rounds[0].late) = (0, 38);
        assert!(
            says("connections", false, vec![late])
                .starts_with("No answer came within the run; 38 right ones came after its end.")
        );
        let sweep = vec![
            point(1.0, 9000.0, 0.0001, "valid"),
            point(100.0, 90_000.0, 0.001, "valid"),
            point(1000.0, 80_000.0, 0.012, "valid"),
        ];
        let text = says("connections", false, sweep);
        assert!(text.starts_with("At most 90,000 requests/s, with 100 connections: mean latency 1 ms"), "{text}");
        assert!(text.ends_with("With 1,000: 80,000 requests/s, mean latency 12 ms."), "{text}");
        let rates = || vec![point(1000.0, 1000.0, 0.001, "valid"), point(2000.0, 1500.0, 0.9, "overloaded")];
        let text = says("requests/s offered", true, rates());
        assert!(text.starts_with("It keeps up with 1,000 requests/s, and no longer with 2,000"), "{text}");
        let text = says("connections/s offered", true, rates());
        assert!(
            text.starts_with("Reply time 1 ms (deviation 500 µs) at 1,000 connections/s; at 2,000 it is overloaded."),
            "{text}"
        );
        // Loads that rise and fall.
        let of = |value, word| point(value, value, 0.001, word);
        let wave = || vec![of(150.0, "valid"), of(450.0, "valid"), of(120.0, "valid")];
        assert!(says("requests/s offered", true, wave()).starts_with("It keeps up with 450 requests/s: "));
        let text = says("connections/s offered", true, wave());
        assert!(text.ends_with("at 120 connections/s, and 1 ms (deviation 500 µs) at 450."), "{text}");
        assert_eq!(says("connections", false, vec![]), "Nothing was measured.");
        let mut none = point(1.0, 0.0, 0.0, "error-bound");
        none.rounds[0].good = 0;
        none.rounds[0].failures.insert("connection refused".into(), 7);
        let text = says("connections", false, vec![none]);
        assert_eq!(text, "No request succeeded (7: connection refused).");
        let single = says("users", false, vec![point(1.0, 10.0, 0.1, "valid")]);
        assert!(single.starts_with("10 requests/s with 1 user:"), "{single}");
    }
}
