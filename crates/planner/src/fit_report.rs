//! The scalability fit as terminal text, JSON and a page with the curve through the points.

use std::fmt::Write as _;

use figures::page::{Page, Tone};
use figures::plot::{Axis, Mark, Plot, Point, Series};
use figures::stats::{Interval, mean, mean_interval};
use figures::table::Table;
use figures::units::{Unit, count, significant};
use serde_json::{Value, json};

use crate::sheet::Sheet;
use crate::usl::{Fit, Level};

/// Reads levels from a table: columns `n` (or `connections`, `users`, `cores`) and `rps` (or `x`), one line a run.
///
/// # Errors
/// A sentence with the line.
pub fn read_levels(text: &str) -> Result<Vec<Level>, String> {
    const N: &[&str] = &["n", "connections", "users", "cores", "concurrency"];
    const X: &[&str] = &["rps", "x", "throughput"];
    let sheet = Sheet::open(text)?;
    sheet.require(N)?;
    sheet.require(X)?;
    let mut levels: Vec<Level> = Vec::new();
    for row in sheet.rows() {
        let (n, x) = (row.positive(N)?, row.positive(X)?);
        match levels.iter_mut().find(|l| l.n == n) {
            Some(level) => level.runs.push(x),
            None => levels.push(Level { n, runs: vec![x] }),
        }
    }
    levels.sort_by(|a, b| a.n.total_cmp(&b.n));
    Ok(levels)
}

/// Reads levels from the points of a bench report (JSON) that swept connections or users, and says which were left out. Rounds that
/// scatter are left in: the intervals of the fit come from them. Rates that are not the server's are not.
///
/// # Errors
/// A sentence about what is missing, or why too few points can be used.
pub fn read_report(text: &str) -> Result<(Vec<Level>, String), String> {
    let json: Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
    let points = json["points"].as_array().ok_or("the report has no `points`: is it from `bench --sweep`?")?;
    let word = |p: &Value| p["verdict"]["word"].as_str().unwrap_or("").to_string();
    let good = |p: &&Value| p["verdict"]["usable"].as_bool().unwrap_or(true) || word(p) == "not repeatable";
    let level = |p: &Value| {
        let runs: Vec<f64> = p["rounds"].as_array()?.iter().filter_map(|r| r["rps"].as_f64()).collect();
        Some(Level { n: p["value"].as_f64()?, runs })
    };
    let levels: Vec<Level> = points.iter().filter(good).filter_map(level).collect();
    let out: Vec<String> = points
        .iter()
        .filter(|p| !good(p))
        .map(|p| format!("{} ({})", significant(p["value"].as_f64().unwrap_or(0.0)), word(p)))
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

/// The verdict of the fit as sentences.
pub fn text(levels: &[Level], fit: &Fit) -> String {
    let mut out = String::new();
    let mut table = Table::new(&["N", "measured", "± 95 %", "curve", "off by"]);
    for level in levels {
        let (m, x) = (mean(&level.runs), fit.usl.throughput(level.n));
        let interval = mean_interval(&level.runs, 0.95);
        let spread =
            if level.runs.len() > 1 { Unit::Share.write(interval.relative_half_width()) } else { "one run".into() };
        table.row([significant(level.n), count(m), spread, count(x), format!("{:+.1} %", (x / m - 1.0) * 100.0)]);
    }
    let _ = write!(out, "{}", table.text());
    let three = |i: &Interval, f: &dyn Fn(f64) -> String| format!("{} ({} to {})", f(i.mid), f(i.low), f(i.high));
    let plain = |v: f64| format!("{v:.5}");
    let _ = writeln!(out, "\nγ  throughput of one      {}", three(&fit.gamma, &count));
    let _ = writeln!(out, "α  share in series        {}", three(&fit.alpha, &plain));
    let _ = writeln!(out, "β  price of coherence     {}", three(&fit.beta, &|v| format!("{v:.7}")));
    let _ = writeln!(out, "peak at N =               {}", three(&fit.peak, &significant_or_none));
    let _ = writeln!(out, "throughput there          {}", three(&fit.peak_throughput, &count));
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
    if v.is_finite() { significant(v) } else { "none".into() }
}

/// The fit for programs.
pub fn to_json(levels: &[Level], fit: &Fit) -> Value {
    let finite = |v: f64| if v.is_finite() { json!(v) } else { Value::Null };
    let three = |i: &Interval| json!({"low": finite(i.low), "mid": finite(i.mid), "high": finite(i.high)});
    json!({
        "gamma": three(&fit.gamma), "alpha": three(&fit.alpha), "beta": three(&fit.beta), "peak": three(&fit.peak),
        "peak_throughput": three(&fit.peak_throughput), "worst_residual": fit.worst_residual, "usable": fit.refusals.is_empty(),
        "refusals": fit.refusals,
        "levels": levels.iter().map(|l| json!({"n": l.n, "runs": l.runs, "curve": fit.usl.throughput(l.n)})).collect::<Vec<_>>(),
    })
}

/// The points, the curve, and its continuation where the fit may be used for one.
pub fn plot(levels: &[Level], fit: &Fit) -> Plot {
    let mut plot = Plot::new(
        "Throughput against concurrency",
        Axis::linear("concurrency N", Unit::Count),
        Axis::linear("requests per second", Unit::PerSecond),
    );
    let points = levels.iter().map(|l| {
        let i = mean_interval(&l.runs, 0.95);
        Point { x: l.n, y: i.mid, low: i.low, high: i.high }
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
    if fit.refusals.is_empty() {
        plot.series
            .push(Series::new("beyond the measurement", Mark::Curve, curve(highest, highest * 1.5)).colour(1).dashed());
        plot.marks_x.push((fit.usl.peak(), "peak".into()));
    }
    plot
}

/// A page with the plot and the text.
pub fn html(levels: &[Level], fit: &Fit) -> String {
    let mut page = Page::new("Scalability fit");
    if fit.refusals.is_empty() {
        page.note(Tone::Good, "The fit holds.", "It may be used beyond the measured levels.");
    }
    for r in &fit.refusals {
        page.note(Tone::Bad, "Refused.", r);
    }
    page.figures(&[(plot(levels, fit).svg(), "Means of the runs with 95 % intervals, and the fitted law.".into())]);
    page.preformatted(&text(levels, fit));
    page.html()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usl::fit;

    #[test]
    fn levels_from_a_table_and_a_report() {
        let l = read_levels("connections,rps\n8,700\n1,100\n1,110\n").unwrap();
        assert_eq!(l[0], Level { n: 1.0, runs: vec![100.0, 110.0] });
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
        let levels: Vec<Level> = [1.0, 2.0, 4.0].iter().map(|n| Level { n: *n, runs: vec![100.0 * n] }).collect();
        let f = fit(&levels, 1).unwrap();
        assert_eq!(plot(&levels, &f).series.len(), 2);
        let page = html(&levels, &f);
        assert!(page.contains("Refused.") && !page.contains("The fit holds"));
    }
}
