//! Report of an experiment: page, text, table and plots.

use std::fs;
use std::path::Path;

use figures::page::{HtmlPage, Tone};
use figures::table::TextTable;
use figures::units::{Unit, format_bytes, format_seconds, format_significant};

use super::conduct::{LabLine, Results, WorkloadResult, line_verdict};
use super::{answer, curves};
use crate::report::html::verdict_tone;
use crate::report::model::{Point, Round, Times};
use crate::report::plots;
use crate::report::text::grouped_rate;

/// Writes report.html, report.json, report.csv and the plots. Errors name the file.
pub fn write_report(results: &Results, out: &Path) -> Result<(), String> {
    let save = |name: &str, content: String| {
        let path = out.join(name);
        fs::write(&path, content).map_err(|e| format!("{}: {e}", path.display()))
    };
    save("report.html", page(results))?;
    save("report.json", serde_json::to_string(results).unwrap_or_default() + "\n")?;
    save("report.csv", csv(results))?;
    for workload in &results.workloads {
        save(&format!("{}-answer.svg", slug(&workload.name)), answer::workload_plot(workload).svg_file())?;
        for (name, plot, _) in curves::workload_curves(workload, results.rounds) {
            save(&format!("{}-{name}.svg", slug(&workload.name)), plot.svg_file())?;
        }
    }
    Ok(())
}

fn slug(name: &str) -> String {
    let text: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    text.split('-').filter(|p| !p.is_empty()).collect::<Vec<_>>().join("-")
}

pub fn report_text(results: &Results) -> String {
    let mut out = format!("{}\n", results.title);
    if results.interrupted {
        out.push_str("stopped before the end: the figures cover the time until then\n");
    }
    for w in &results.workloads {
        out.push_str(&format!("\n{}: {}\n", w.name, answer::winner_sentence(w)));
    }
    if let Some(state) = answer::machine_sentence(results) {
        out.push_str(&format!("\n{state}\n"));
    }
    for w in &results.workloads {
        out.push_str(&format!("\n{} ({})\n", w.name, w.quantity));
        out.push_str(&level_table(w).text());
        for line in &w.lines {
            out.push_str(&format!("  {}: {}\n", line.server, line.bottleneck));
        }
        for c in w.comparisons.iter().filter(|c| c.value.is_none()) {
            out.push_str(&format!("  {}: {}\n", c.server, c.sentence));
        }
    }
    for d in &results.differences {
        out.push_str(&format!("differs: {d}\n"));
    }
    out
}

fn interval(point: &Point, of: fn(&Round) -> Option<f64>, write: impl Fn(f64) -> String) -> String {
    point.interval(of).map_or("–".into(), |i| write(i.mid))
}

fn level_table(w: &WorkloadResult) -> TextTable {
    let mut table = TextTable::new(&[
        "<server",
        &w.quantity,
        "requests/s",
        "± 95 %",
        "mean",
        "deviation",
        "p50",
        "p99",
        "max",
        "errors",
        "CPU/request",
        "CPUs",
        "memory",
        "<verdict",
    ]);
    for line in &w.lines {
        for p in &line.points {
            let time = |f: fn(&Round) -> Option<f64>| interval(p, f, format_seconds);
            table.row([
                line.server.clone(),
                grouped_rate(p.value),
                grouped_rate(p.rps().mid),
                if p.rounds.len() > 1 { Unit::Share.write(p.rps().relative_half_width()) } else { "–".into() },
                time(|r| r.latency.as_ref().map(|t| t.mean)),
                time(|r| r.latency.as_ref().map(|t| t.deviation)),
                time(|r| r.latency.as_ref().map(|t| t.p50)),
                time(|r| r.latency.as_ref().map(|t| t.p99)),
                time(|r| r.latency.as_ref().map(|t| t.max)),
                interval(p, |r| Some(r.error_share()), |v| Unit::Share.write(v)),
                time(|r| r.server.as_ref()?.cpu_per_request),
                interval(p, |r| r.server.as_ref().map(|s| s.processors), |v| format!("{v:.2}")),
                interval(p, |r| r.server.as_ref().map(|s| s.memory_peak), format_bytes),
                p.verdict.word.clone(),
            ]);
        }
    }
    table
}

fn page(results: &Results) -> String {
    let mut page = HtmlPage::new(&results.title);
    if results.interrupted {
        page.note(Tone::Warning, "Stopped before the end.", "The figures cover the time until then.");
    }
    let many = results.workloads.len() > 1;
    for w in &results.workloads {
        if many {
            page.subheading(&w.name);
        }
        page.answer(&answer::winner_sentence(w));
        if is_line(w) {
            let plot = answer::workload_plot(w);
            page.picture(&plot.first_figure(), &plots::plot_caption(&plot, results.rounds));
        } else if let Some((_, plot, caption)) = curves::workload_curves(w, results.rounds).into_iter().next() {
            page.picture(&plot.first_figure(), &caption);
        }
    }
    if let Some(state) = answer::machine_sentence(results) {
        page.note(Tone::Warning, "The machine was not quiet.", &state);
    }
    for paragraph in results.about.split("\n\n").filter(|p| !p.trim().is_empty()) {
        page.paragraph(paragraph.trim());
    }
    for w in &results.workloads {
        page.heading(&w.name);
        page.paragraph(&w.requests.join(", "));
        let skip = usize::from(!is_line(w));
        let list: Vec<(String, String)> = curves::workload_curves(w, results.rounds)
            .into_iter()
            .skip(skip)
            .map(|(_, plot, caption)| (plot.figure(), caption))
            .collect();
        page.figures(&list);
        let table = level_table(w);
        let words: Vec<&Point> = w.lines.iter().flat_map(|l| &l.points).collect();
        let last = table.heads.len() - 1;
        page.table_with(&table, |r, c| (c == last).then(|| verdict_tone(&words[r].verdict)));
        if !w.scale.is_empty() {
            page.subheading("Machines and their price");
            page.table(&machines(w));
        }
        let overall = comparison_table(w, false);
        if !overall.rows.is_empty() {
            page.subheading("In pairs, over all levels");
            page.table_with(&overall, |r, c| {
                (c + 1 == overall.heads.len()).then(|| ranked(&overall.rows[r][c])).flatten()
            });
        }
        let comparisons = comparison_table(w, true);
        if !comparisons.rows.is_empty() {
            page.fold("In pairs, level by level", |page| page.table(&comparisons));
        }
    }
    page.heading("Doubts");
    for w in &results.workloads {
        if many {
            page.subheading(&w.name);
        }
        for line in &w.lines {
            let tone = line_verdict(line).map_or(Tone::Neutral, verdict_tone);
            page.note(tone, &format!("{}.", line.server), &line.bottleneck);
        }
        reasons(&mut page, w);
    }
    for m in &results.missing {
        page.note(Tone::Neutral, "Left out.", m);
    }
    for d in &results.differences {
        page.note(Tone::Warning, "Different responses.", d);
    }
    environment(&mut page, results);
    page.html()
}

fn is_line(w: &WorkloadResult) -> bool {
    w.lines.len() == 1 || w.lines.iter().any(|l| l.points.len() != 1)
}

fn ranked(word: &str) -> Option<Tone> {
    match word {
        "better" => Some(Tone::Good),
        "worse" => Some(Tone::Bad),
        _ => None,
    }
}

fn reasons(page: &mut HtmlPage, w: &WorkloadResult) {
    let mut text = String::new();
    for line in &w.lines {
        for p in line.points.iter().filter(|p| p.verdict.word != "valid") {
            text.push_str(&format!("{} at {}: {}\n", line.server, grouped_rate(p.value), p.verdict.reasons.join("; ")));
        }
    }
    if !text.is_empty() {
        page.details("Points that are not valid, and why", text.trim_end());
    }
}

fn comparison_table(w: &WorkloadResult, levels: bool) -> TextTable {
    let mut table = TextTable::new(&[
        "<server",
        "<against",
        "<figure",
        &w.quantity,
        "ratio",
        "95 % from",
        "to",
        "robust",
        "pairs",
        "<so",
    ]);
    for c in w.comparisons.iter().filter(|c| levels == c.value.is_some()) {
        let end = |value: f64| if c.has_interval() { format_significant(value) } else { "–".into() };
        table.row([
            c.server.clone(),
            c.base.clone(),
            c.figure.clone(),
            c.value.map_or("all".into(), grouped_rate),
            format_significant(c.ratio.mid),
            end(c.ratio.low),
            end(c.ratio.high),
            format_significant(c.robust),
            c.pairs.to_string(),
            c.so.clone(),
        ]);
    }
    table
}

fn environment(page: &mut HtmlPage, results: &Results) {
    page.heading("How it was measured");
    page.paragraph(&format!(
        "{}. Servers on CPUs {:?}, client on CPUs {:?}, over the loopback interface: no network card, no interrupts, segments of \
         up to 64 kB. The figures compare servers with each other and do not predict performance over a network.",
        results.machine.sentence(),
        results.server_cpus,
        results.client_cpus
    ));
    page.paragraph(&format!(
        "{} of {} per point. Every round restarted the servers; at each level they were measured in random order. \
         Intervals are over rounds, ratios over pairs of adjacent turns. Responses were compared before the first round.",
        figures::units::format_counted(results.rounds as u64, "round", "rounds"),
        format_seconds(results.seconds)
    ));
    let mut table = TextTable::new(&["<server", "<version", "<command", "<note"]);
    for s in &results.servers {
        table.row([s.name.clone(), s.version.clone(), s.command.clone(), s.note.clone()]);
    }
    page.table(&table);
    let mut table = TextTable::new(&["<workload", "<server", "status", "body bytes", "<hash", "head bytes"]);
    for w in &results.workloads {
        for l in &w.lines {
            if let Some(s) = &l.seen {
                table.row([
                    w.name.clone(),
                    l.server.clone(),
                    s.status.to_string(),
                    s.length.to_string(),
                    s.hash.clone(),
                    s.head.to_string(),
                ]);
            }
        }
    }
    page.subheading("Responses");
    page.table(&table);
}

/// Machines of each level, and a fleet that is sized for the highest one.
fn machines(w: &WorkloadResult) -> TextTable {
    let mut table = TextTable::new(&["load, requests/s", "machines", "dollars per hour"]);
    for one in &w.scale {
        table.row(vec![one.value.to_string(), one.machines.to_string(), format!("{:.3}", one.dollars_per_hour)]);
    }
    let most = w.scale.iter().max_by(|a, b| a.machines.cmp(&b.machines));
    if let Some(most) = most {
        let (machines, dollars) = (most.machines.to_string(), format!("{:.3}", most.dollars_per_hour));
        table.row(vec!["a fleet for the peak".into(), machines, dollars]);
    }
    table
}

fn csv(results: &Results) -> String {
    let mut table = TextTable::new(&[
        "<workload",
        "<server",
        "value",
        "round",
        "<verdict",
        "rps",
        "good_rps",
        "offered",
        "connections_per_s",
        "mean_s",
        "deviation_s",
        "p50_s",
        "p90_s",
        "p99_s",
        "p999_s",
        "max_s",
        "errors",
        "server_cpu_per_request_s",
        "server_processors",
        "server_memory_peak_bytes",
        "backend_processors",
        "client_busy",
    ]);
    for w in &results.workloads {
        for l in &w.lines {
            for p in &l.points {
                for (i, r) in p.rounds.iter().enumerate() {
                    table.row(csv_row(w, l, p, i, r));
                }
            }
        }
    }
    table.csv()
}

fn csv_row(w: &WorkloadResult, l: &LabLine, p: &Point, i: usize, r: &Round) -> Vec<String> {
    let time = |f: fn(&Times) -> f64| r.latency.as_ref().map_or(String::new(), |t| format!("{:.9}", f(t)));
    let server = |f: fn(&crate::report::model::ServerUse) -> f64| {
        r.server.as_ref().map_or(String::new(), |s| format!("{:.9}", f(s)))
    };
    vec![
        w.name.clone(),
        l.server.clone(),
        p.value.to_string(),
        (i + 1).to_string(),
        p.verdict.word.clone(),
        format!("{:.1}", r.rps),
        format!("{:.1}", r.good_rps),
        format!("{:.1}", r.offered),
        format!("{:.1}", r.connections_per_second),
        time(|t| t.mean),
        time(|t| t.deviation),
        time(|t| t.p50),
        time(|t| t.p90),
        time(|t| t.p99),
        time(|t| t.p999),
        time(|t| t.max),
        r.failures.values().sum::<u64>().to_string(),
        r.server.as_ref().and_then(|s| s.cpu_per_request).map_or(String::new(), |c| format!("{c:.9}")),
        server(|s| s.processors),
        server(|s| s.memory_peak),
        r.backend_processors.map_or(String::new(), |b| format!("{b:.3}")),
        format!("{:.3}", r.client_busy.iter().copied().fold(0.0, f64::max)),
    ]
}
