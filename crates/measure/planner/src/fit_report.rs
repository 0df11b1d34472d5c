//! Reports of a scalability fit as terminal text, JSON and a page.

use std::fmt::Write as _;

use figures::page::{HtmlPage, Tone};
use figures::plot::{Axis, Mark, Plot, Point, Series};
use figures::stats::{Interval, mean_interval, sample_mean};
use figures::table::TextTable;
use figures::units::{Unit, format_count, format_significant};
use serde_json::{Value, json};

use crate::sheet::Sheet;
use crate::usl::{Fit, UslLevel};

/// Reads levels from a table with columns `n` (or `connections`, `users`, `cores`) and `rps` (or `x`), one line per
/// run.
pub fn read_levels(text: &str) -> Result<Vec<UslLevel>, String> {
    const N: &[&str] = &["n", "connections", "users", "cores", "concurrency"];
    const X: &[&str] = &["rps", "x", "throughput"];
    let sheet = Sheet::open(text)?;
    sheet.require(N)?;
    sheet.require(X)?;
    let mut levels: Vec<UslLevel> = Vec::new();
    for row in sheet.rows() {
        let (n, x) = (row.positive(N)?, row.positive(X)?);
        match levels.iter_mut().find(|l| l.n == n) {
            Some(level) => level.runs.push(x),
            None => levels.push(UslLevel { n, runs: vec![x] }),
        }
    }
    levels.sort_by(|a, b| a.n.total_cmp(&b.n));
    Ok(levels)
}

/// Reads levels from a bench report (JSON) that swept connections or users, and tells which were left out.
/// Keeps scattering rounds, from which the fit's intervals come; drops rates that were not limited by the server.
pub fn read_report(text: &str) -> Result<(Vec<UslLevel>, String), String> {
    let json: Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
    let points = json["points"].as_array().ok_or("the report has no `points`: is it from `bench --sweep`?")?;
    let word = |p: &Value| p["verdict"]["word"].as_str().unwrap_or("").to_string();
    let good = |p: &&Value| p["verdict"]["usable"].as_bool().unwrap_or(true) || word(p) == "not repeatable";
    let level = |p: &Value| {
        let runs: Vec<f64> = p["rounds"].as_array()?.iter().filter_map(|r| r["rps"].as_f64()).collect();
        Some(UslLevel { n: p["value"].as_f64()?, runs })
    };
    let levels: Vec<UslLevel> = points.iter().filter(good).filter_map(level).collect();
    let out: Vec<String> = points
        .iter()
        .filter(|p| !good(p))
        .map(|p| format!("{} ({})", format_significant(p["value"].as_f64().unwrap_or(0.0)), word(p)))
        .collect();
    let out = if out.is_empty() {
        String::new()
    } else {
        format!("left out, as their rates are not the server's: {}", out.join(", "))
    };
    if levels.len() < 3 && !out.is_empty() {
        return Err(format!("{} of {} points can be used; {out}", levels.len(), points.len()));
    }
    Ok((levels, out))
}

fn level_table(levels: &[UslLevel], fit: &Fit) -> TextTable {
    let mut table = TextTable::new(&["N", "measured", "± 95 %", "curve", "off by"]);
    for level in levels {
        let (m, x) = (sample_mean(&level.runs), fit.usl.throughput(level.n));
        let interval = mean_interval(&level.runs, 0.95);
        let spread =
            if level.runs.len() > 1 { Unit::Share.write(interval.relative_half_width()) } else { "one run".into() };
        table.row([
            format_significant(level.n),
            format_count(m),
            spread,
            format_count(x),
            format!("{:+.1} %", (x / m - 1.0) * 100.0),
        ]);
    }
    table
}

fn parameters(fit: &Fit) -> TextTable {
    let mut table = TextTable::new(&["<", "value", "95 % from", "to", "<meaning"]);
    let plain = |v: f64| if v.is_finite() { format!("{v:.5}") } else { "–".into() };
    let fine = |v: f64| if v.is_finite() { format!("{v:.7}") } else { "–".into() };
    let rows: [(&str, &str, &Interval, &dyn Fn(f64) -> String); 5] = [
        ("γ", "throughput of one", &fit.gamma, &|v| Unit::PerSecond.write(v)),
        ("α", "serial fraction", &fit.alpha, &plain),
        ("β", "coherency cost", &fit.beta, &fine),
        ("peak", "concurrency of the highest throughput", &fit.peak, &significant_or_none),
        ("throughput there", "", &fit.peak_throughput, &|v| Unit::PerSecond.write(v)),
    ];
    for (name, what, i, write) in rows {
        let end = |v: f64| if v.is_nan() { "unknown".into() } else { write(v) };
        table.row([name.to_string(), write(i.mid), end(i.low), end(i.high), what.to_string()]);
    }
    let knee = significant_or_none(fit.usl.knee());
    table.row(["knee".to_string(), knee, String::new(), String::new(), "where the two bounds cross".into()]);
    table
}

fn answer(levels: &[UslLevel], fit: &Fit) -> String {
    let highest = levels.iter().map(|l| l.n).fold(0.0, f64::max);
    let peak = fit.usl.peak();
    match peak.is_finite() && peak <= highest {
        true => format!(
            "Throughput is highest at a concurrency of {}, with {} requests/s; beyond that it decreases.",
            format_significant(peak.round()),
            format_count(fit.usl.throughput(peak))
        ),
        false => format!(
            "Throughput still grows at the highest level: {} requests/s at a concurrency of {}.",
            format_count(fit.usl.throughput(highest)),
            format_significant(highest)
        ),
    }
}

pub fn fit_text(levels: &[UslLevel], fit: &Fit) -> String {
    let mut out = level_table(levels, fit).text();
    let three = |i: &Interval, f: &dyn Fn(f64) -> String| match i.low.is_nan() {
        true => format!("{} (no interval: three single runs have no spread)", f(i.mid)),
        false => format!("{} ({} to {})", f(i.mid), f(i.low), f(i.high)),
    };
    let plain = |v: f64| format!("{v:.5}");
    let _ = writeln!(out, "\nγ  throughput of one      {}", three(&fit.gamma, &format_count));
    let _ = writeln!(out, "α  serial fraction        {}", three(&fit.alpha, &plain));
    let _ = writeln!(out, "β  coherency cost         {}", three(&fit.beta, &|v| format!("{v:.7}")));
    let _ = writeln!(out, "peak at N =               {}", three(&fit.peak, &significant_or_none));
    let _ = writeln!(out, "throughput there          {}", three(&fit.peak_throughput, &format_count));
    let _ = writeln!(out, "knee (bounds cross) N =   {}", significant_or_none(fit.usl.knee()));
    if fit.refusals.is_empty() {
        let _ = writeln!(out, "The fit holds: it may be used beyond the measured levels.");
    } else {
        let _ = writeln!(out, "The fit is refused for anything beyond the measured levels:");
        fit.refusals.iter().for_each(|r| {
            let _ = writeln!(out, "  {r}");
        });
    }
    out
}

fn significant_or_none(v: f64) -> String {
    if v.is_finite() { format_significant(v) } else { "none".into() }
}

pub fn to_json(levels: &[UslLevel], fit: &Fit) -> Value {
    let finite = |v: f64| if v.is_finite() { json!(v) } else { Value::Null };
    let three = |i: &Interval| json!({"low": finite(i.low), "mid": finite(i.mid), "high": finite(i.high)});
    json!({
        "gamma": three(&fit.gamma), "alpha": three(&fit.alpha), "beta": three(&fit.beta), "peak": three(&fit.peak),
        "peak_throughput": three(&fit.peak_throughput), "worst_residual": fit.worst_residual, "usable": fit.refusals.is_empty(),
        "refusals": fit.refusals,
        "levels": levels.iter().map(|l| json!({"n": l.n, "runs": l.runs, "curve": fit.usl.throughput(l.n)})).collect::<Vec<_>>(),
    })
}

pub fn fit_plot(levels: &[UslLevel], fit: &Fit) -> Plot {
    let mut plot = Plot::new(
        "Throughput against concurrency",
        Axis::linear("concurrency N", Unit::Count),
        Axis::linear("requests per second", Unit::PerSecond),
    );
    let points = levels.iter().map(|l| {
        let i = mean_interval(&l.runs, 0.95);
        let (low, high) = if l.runs.len() > 2 { (i.low, i.high) } else { (i.mid, i.mid) };
        Point { low, high, ..Point::new(l.n, i.mid) }
    });
    plot.series.push(Series::new("measured (mean, 95 %)", Mark::Points, points.collect()));
    let highest = levels.iter().map(|l| l.n).fold(0.0, f64::max);
    let curve = |from: f64, to: f64| -> Vec<Point> {
        (0..=120)
            .map(|i| from + (to - from) * f64::from(i) / 120.0)
            .map(|n| Point::new(n, fit.usl.throughput(n)))
            .collect()
    };
    let lowest = levels.iter().map(|l| l.n).fold(f64::INFINITY, f64::min);
    plot.series.push(Series::new("scalability law", Mark::Curve, curve(lowest, highest)));
    // The bounds that cross at the knee: one request at a time, and the serial part.
    let knee = fit.usl.knee();
    if knee.is_finite() && knee > lowest && knee < highest * 1.5 {
        let bound = [0.0, knee, highest.max(knee)].map(|n| Point::new(n, fit.usl.gamma * n.min(knee)));
        plot.series.push(Series::new("bounds", Mark::Curve, bound.to_vec()).colour(2).dashed());
        plot.marks_x.push((knee, "knee".into()));
    }
    if fit.refusals.is_empty() {
        plot.series
            .push(Series::new("beyond the measurement", Mark::Curve, curve(highest, highest * 1.5)).colour(1).dashed());
        plot.marks_x.push((fit.usl.peak(), "peak".into()));
    }
    plot
}

pub fn fit_html(levels: &[UslLevel], fit: &Fit) -> String {
    let mut page = HtmlPage::new("Scalability fit");
    page.answer(&answer(levels, fit));
    let caption = "Means of the runs with 95 % intervals, the fitted law, and the two bounds that cross at its knee.";
    page.picture(&fit_plot(levels, fit).first_figure(), caption);
    if fit.refusals.is_empty() {
        page.note(Tone::Good, "The fit holds.", "It may be used beyond the measured levels.");
    }
    for r in &fit.refusals {
        page.note(Tone::Bad, "Refused.", r);
    }
    page.heading("Parameters");
    page.table(&parameters(fit));
    page.heading("Levels");
    page.table(&level_table(levels, fit));
    page.html()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usl::fit_law;

    #[test]
    fn levels_from_a_table_and_a_report() {
        let l = read_levels("connections,rps\n8,700\n1,100\n1,110\n").unwrap();
        assert_eq!(l[0], UslLevel { n: 1.0, runs: vec![100.0, 110.0] });
        let json = r#"{"points":[{"value":1,"rounds":[{"rps":5},{"rps":6}]},
            {"value":2,"rounds":[{"rps":9}],"verdict":{"usable":false}}]}"#;
        let why = read_report(json).unwrap_err();
        assert!(why.starts_with("1 of 2 points can be used; left out"), "{why}");
        let three = r#"{"points":[{"value":1,"rounds":[{"rps":5}]},{"value":2,"rounds":[{"rps":6}],
            "verdict":{"usable":false,"word":"not repeatable"}},{"value":3,"rounds":[{"rps":7}]},
            {"value":4,"rounds":[{"rps":8}],"verdict":{"usable":false,"word":"client-bound"}}]}"#;
        let (levels, out) = read_report(three).unwrap();
        assert_eq!(levels.iter().map(|l| l.n).collect::<Vec<_>>(), [1.0, 2.0, 3.0]);
        assert!(out.ends_with(": 4 (client-bound)"), "{out}");
        assert!(read_levels("n,rps\n1,x\n").is_err());
    }

    #[test]
    fn a_refused_fit_is_not_drawn_beyond_its_levels() {
        let levels: Vec<UslLevel> = [1.0, 2.0, 4.0].iter().map(|n| UslLevel { n: *n, runs: vec![100.0 * n] }).collect();
        let f = fit_law(&levels, 1).unwrap();
        assert_eq!(fit_plot(&levels, &f).series.len(), 2);
        let page = fit_html(&levels, &f);
        assert!(page.contains("Refused.") && !page.contains("The fit holds"));
    }
}
