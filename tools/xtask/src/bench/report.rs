//! Results: a line while running, a table, and all rounds as JSON.

use super::calls::{self, Calls};
use super::turns::Turn;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// nginx's value first, then Tidegate's.
pub enum BenchOutcome {
    /// With the turns of further servers, by name.
    Speed(Vec<(Turn, Turn)>, Vec<(&'static str, Vec<Turn>)>),
    /// Per connection.
    Memory(Vec<(f64, f64)>),
    /// Per request.
    Calls(Calls, Calls),
    NotRun(String),
}

pub struct ReportRow {
    pub name: String,
    /// Load average at the scenario's end.
    pub load: String,
    pub outcome: BenchOutcome,
}

pub struct BenchRun {
    pub pairs: usize,
    pub seconds: u64,
    pub nginx: String,
    pub note: String,
}

/// Median, minimum and maximum.
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

pub fn value_spread(values: impl Iterator<Item = f64>) -> Spread {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    let (low, high) = (all.len().saturating_sub(1) / 2, all.len() / 2);
    let at = |index: usize| all.get(index).copied().unwrap_or(0.0);
    Spread { median: (at(low) + at(high)) / 2.0, least: at(0), most: at(all.len().saturating_sub(1)) }
}

pub fn row_line(row: &ReportRow) -> String {
    table_row(row).trim_matches('|').trim().to_string()
}

fn table_row(row: &ReportRow) -> String {
    match &row.outcome {
        BenchOutcome::Speed(pairs, peers) => {
            let ratio = value_spread(pairs.iter().map(|(theirs, ours)| theirs.cpu_us / ours.cpu_us));
            let mut beside = String::new();
            for (name, turns) in peers {
                let cpu = value_spread(turns.iter().map(|t| t.cpu_us)).median;
                beside += &match *name {
                    // The minimum of this kernel, as a share of Tidegate's time.
                    "floor" => {
                        let share =
                            value_spread(pairs.iter().zip(turns).map(|((_, ours), floor)| floor.cpu_us / ours.cpu_us));
                        format!(" (floor {cpu:.1} µs, share {:.2})", share.median)
                    }
                    name => {
                        let of =
                            value_spread(pairs.iter().zip(turns).map(|((_, ours), peer)| peer.cpu_us / ours.cpu_us));
                        let name = if name == "haproxy" { "HAProxy" } else { name };
                        format!(" ({name} {cpu:.1} µs, ratio {:.2})", of.median)
                    }
                };
            }
            format!(
                "| {} | {:.1} µs | {:.1} µs | **{:.2}** | {:.2} to {:.2}{beside} |",
                row.name,
                value_spread(pairs.iter().map(|p| p.0.cpu_us)).median,
                value_spread(pairs.iter().map(|p| p.1.cpu_us)).median,
                ratio.median,
                ratio.least,
                ratio.most
            )
        }
        BenchOutcome::Memory(pairs) => {
            // A ratio has no meaning where nothing was needed.
            let ratio = value_spread(pairs.iter().map(|(theirs, ours)| theirs / ours.max(1.0)));
            format!(
                "| {} | {:.0} B | {:.0} B | **{:.2}** | {:.2} to {:.2} |",
                row.name,
                value_spread(pairs.iter().map(|p| p.0)).median,
                value_spread(pairs.iter().map(|p| p.1)).median,
                ratio.median,
                ratio.least,
                ratio.most
            )
        }
        BenchOutcome::Calls(theirs, ours) => {
            let total = |calls: &Calls| calls.iter().map(|call| call.1).sum::<f64>();
            format!(
                "| {}, calls | {} | {} | **{:.2}** | |",
                row.name,
                calls::calls_words(theirs),
                calls::calls_words(ours),
                total(theirs) / total(ours).max(f64::MIN_POSITIVE)
            )
        }
        BenchOutcome::NotRun(words) => format!("| {} | not run: {words} | | | |", row.name),
    }
}

fn json_row(row: &ReportRow) -> Value {
    let turn = |t: &Turn| {
        let round = |x: f64| (x * 1000.0).round() / 1000.0;
        json!({ "cpu_us": round(t.cpu_us), "per_second": t.per_second.round(), "p50_us": t.p50_us, "p99_us": t.p99_us, "p999_us": t.p999_us })
    };
    let rounds: Value = match &row.outcome {
        BenchOutcome::Speed(pairs, peers) => pairs
            .iter()
            .enumerate()
            .map(|(i, (a, b))| {
                let mut round = json!({ "nginx": turn(a), "tidegate": turn(b) });
                for (name, turns) in peers {
                    round[*name] = turns.get(i).map_or(Value::Null, turn);
                }
                round
            })
            .collect(),
        BenchOutcome::Memory(pairs) => {
            let each = |x: f64| json!({ "bytes_per_connection": x.round() });
            pairs.iter().map(|(a, b)| json!({ "nginx": each(*a), "tidegate": each(*b) })).collect()
        }
        BenchOutcome::Calls(theirs, ours) => {
            let each = |calls: &Calls| -> Value { calls.iter().map(|(name, n)| (name.clone(), json!(n))).collect() };
            return json!({ "scenario": row.name, "calls_per_request": { "nginx": each(theirs), "tidegate": each(ours) } });
        }
        BenchOutcome::NotRun(words) => return json!({ "scenario": row.name, "not_run": words }),
    };
    json!({ "scenario": row.name, "load_average": row.load, "pairs": rounds })
}

pub fn write_report(folder: &Path, rows: &[ReportRow], run: &BenchRun) -> Result<(), String> {
    let at = |name: &str| folder.join(name);
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let all: Vec<Value> = rows.iter().map(json_row).collect();
    let head = json!({
        "pairs": run.pairs, "seconds": run.seconds, "nginx": run.nginx, "processors": processors(), "note": run.note,
        "scenarios": all,
    });
    let text = serde_json::to_string_pretty(&head).map_err(|e| e.to_string())?;
    std::fs::write(at("results.json"), text + "\n").map_err(|e| e.to_string())?;
    let mut page = format!("# `cargo xtask bench`: tidegate and {} in pairs\n\n", run.nginx);
    if rows.iter().any(|row| matches!(row.outcome, BenchOutcome::Calls(..))) {
        page.push_str(
            "System calls of all the server's threads while one kept connection asks again and again (strace -c -f), a \
             request; the ratio is nginx over tidegate, so above 1 tidegate makes fewer.\n\n",
        );
    } else {
        page.push_str(&format!(
            "{} pairs of {} s; server on processor 0, client on processor 1 of {}. \
             CPU time a request of all the server's threads (memory a connection for `idle`), medians; the ratio is nginx over \
             tidegate, the median of the pairs' ratios, so above 1 tidegate needs less; other servers' ratios are theirs over tidegate. Status, length and hash of the answers \
             are compared before and after; an answer other than 2xx or a socket error spoils the scenario. `NAME@RATE` is an \
             open loop: requests arrive at that rate, at random (Poisson), whatever the server does.\n\n",
            run.pairs,
            run.seconds,
            processors()
        ));
    }
    if !run.note.is_empty() {
        page.push_str(&format!("{}\n\n", run.note));
    }
    page.push_str("| Scenario | nginx | tidegate | Ratio | Least and most |\n|---|---:|---:|---:|---|\n");
    for row in rows {
        page.push_str(&table_row(row));
        page.push('\n');
    }
    page.push_str("\n`results.json` has every turn with requests a second and latencies, and the machine's load.\n");
    std::fs::write(at("README.md"), page).map_err(|e| e.to_string())?;
    println!("{}", at("README.md").display());
    Ok(())
}

pub fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("").to_string()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// `2026-11-21-2cpu/paired`
pub fn run_name() -> String {
    let output = Command::new("date").args(["-u", "+%F"]).output();
    let date = output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string()).unwrap_or_default();
    format!("{date}-{}cpu/paired", processors())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ends() {
        let s = value_spread([3.0, 1.0, 2.0].into_iter());
        assert_eq!((s.median, s.least, s.most), (2.0, 1.0, 3.0));
        assert_eq!(value_spread([1.0, 2.0].into_iter()).median, 1.5);
        assert_eq!(value_spread(std::iter::empty()).median, 0.0);
    }

    #[test]
    fn calls_have_a_row() {
        let outcome =
            BenchOutcome::Calls(vec![("read".into(), 2.0), ("write".into(), 1.0)], vec![("read".into(), 1.5)]);
        let row = ReportRow { name: "x".into(), load: String::new(), outcome };
        assert_eq!(table_row(&row), "| x, calls | 3.00 (read 2.00, write 1.00) | 1.50 (read 1.50) | **2.00** | |");
        assert_eq!(json_row(&row)["calls_per_request"]["nginx"]["write"], 1.0);
    }

    #[test]
    fn a_row_says_why_it_is_empty() {
        let outcome = BenchOutcome::NotRun("tidegate refuses it".into());
        let row = ReportRow { name: "x".into(), load: String::new(), outcome };
        assert_eq!(table_row(&row), "| x | not run: tidegate refuses it | | | |");
        let turn = |cpu_us| Turn { cpu_us, ..Turn::default() };
        let row = ReportRow { outcome: BenchOutcome::Speed(vec![(turn(8.0), turn(4.0))], Vec::new()), ..row };
        assert_eq!(row_line(&row), "x | 8.0 µs | 4.0 µs | **2.00** | 2.00 to 2.00");
        let row = ReportRow {
            outcome: BenchOutcome::Speed(vec![(turn(8.0), turn(4.0))], vec![("haproxy", vec![turn(16.0)])]),
            ..row
        };
        assert_eq!(row_line(&row), "x | 8.0 µs | 4.0 µs | **2.00** | 2.00 to 2.00 (HAProxy 16.0 µs, ratio 4.00)");
        assert_eq!(json_row(&row)["pairs"][0]["haproxy"]["cpu_us"], 16.0);
        let peers = vec![("floor", vec![turn(3.0)])];
        let row = ReportRow { outcome: BenchOutcome::Speed(vec![(turn(8.0), turn(4.0))], peers), ..row };
        assert_eq!(row_line(&row), "x | 8.0 µs | 4.0 µs | **2.00** | 2.00 to 2.00 (floor 3.0 µs, share 0.75)");
    }
}
