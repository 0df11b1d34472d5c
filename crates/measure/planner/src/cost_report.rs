//! Formats the result of `plan cost` as terminal text, CSV, JSON and an HTML page. Costs are computed in
//! [`crate::cluster`].

use std::fmt::Write as _;

use figures::page::{HtmlPage, Tone};
use figures::plot::{Axis, Mark, Plot, Point, Series};
use figures::table::TextTable;
use figures::units::{Unit, format_dollars, format_grouped, format_significant};
use serde_json::{Value, json};

use crate::capacity::PricedMachine;
use crate::cluster::{Confidence, Extras, Offer, SizingRule, cheapest_of, machine_families, ranked_offers};
use crate::compare::Disagreement;
use crate::warnings::{self, Warning};

#[derive(Clone, Debug)]
pub struct Question {
    pub machines: Vec<PricedMachine>,
    pub loads: Vec<f64>,
    pub rule: SizingRule,
    pub extras: Extras,
    /// Sentences on the origin of the capacities (source, projection, link limits).
    pub remarks: Vec<String>,
    /// Share of the maximum that the table's usable rates must be; `None` leaves them unchecked.
    pub usable: Option<f64>,
}

#[derive(Clone, Debug)]
pub struct CostAnswer {
    pub families: Vec<String>,
    pub rows: Vec<CostRow>,
    pub warnings: Vec<Warning>,
    /// Cells of the checked table that contradict its data; `None` without a table to check.
    pub disagreements: Option<Vec<Disagreement>>,
}

#[derive(Clone, Debug)]
pub struct CostRow {
    pub load: f64,
    /// Cheapest offer of each family, in the order of [`CostAnswer::families`].
    pub cells: Vec<Option<Offer>>,
    /// Cheapest offer of all families and up to three next ones, each of another machine type.
    pub best: Vec<Offer>,
}

pub fn answer_question(q: &Question) -> CostAnswer {
    let families = machine_families(&q.machines);
    let rows: Vec<CostRow> = q
        .loads
        .iter()
        .map(|load| CostRow {
            load: *load,
            cells: families
                .iter()
                .map(|f| cheapest_of(q.machines.iter().filter(|m| m.family == *f), *load, &q.rule, &q.extras))
                .collect(),
            best: ranked_offers(q.machines.iter(), *load, &q.rule, &q.extras).into_iter().take(4).collect(),
        })
        .collect();
    let chosen: Vec<Offer> = rows.iter().filter_map(|r| r.best.first().cloned()).collect();
    let mut warnings = q.usable.map_or(Vec::new(), |share| warnings::input_warnings(&q.machines, share));
    warnings.extend(warnings::scaling_warnings(&q.machines));
    warnings.extend(warnings::flip_warnings(&q.machines, &q.loads, &q.rule));
    warnings.extend(warnings::failure_warnings(&q.rule, &chosen));
    warnings.extend(warnings::price_warnings(&q.machines, &q.loads, &q.rule, &q.extras));
    CostAnswer { families, rows, warnings, disagreements: None }
}

impl CostRow {
    fn is_cheapest(&self, offer: &Offer) -> bool {
        self.cells.iter().flatten().all(|o| offer.per_hour <= o.per_hour + 1e-9)
    }
}

fn sign(offer: &Offer) -> &'static str {
    match offer.confidence {
        Confidence::Sure => "",
        Confidence::Risky => " ~",
        Confidence::Projected => " ?",
    }
}

fn rule_sentence(rule: &SizingRule) -> String {
    let nodes = match (rule.nodes_min, rule.nodes_max) {
        (a, b) if a == b => format!("exactly {a} machines of one type"),
        (1, _) => "as many machines of one type as are needed".into(),
        (a, _) => format!("{a} or more machines of one type"),
    };
    let loss = match rule.losses {
        0 => String::new(),
        k => format!(", {} at most after losing {k}", Unit::Share.write(rule.utilisation_after)),
    };
    format!("Rule: {nodes}, each used up to {}{loss}.", Unit::Share.write(rule.utilisation))
}

fn no_offer(rule: &SizingRule) -> String {
    match rule.nodes_max {
        n if n <= rule.losses => format!("none left of {n}"),
        n => format!("{n} too few"),
    }
}

/// Creates the price table in dollars per hour: one row per load, one column per family.
pub fn price_table(q: &Question, a: &CostAnswer) -> TextTable {
    let heads: Vec<String> =
        std::iter::once("requests/s".to_string()).chain(a.families.iter().map(|f| format!("{f} $/h"))).collect();
    let mut table = TextTable::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for row in &a.rows {
        let cells = row.cells.iter().map(|c| match c {
            Some(o) => format!("{:.3}{}{}", o.per_hour, if row.is_cheapest(o) { " *" } else { "" }, sign(o)),
            None => no_offer(&q.rule),
        });
        table.row(std::iter::once(format_grouped(row.load as i64)).chain(cells));
    }
    table
}

pub fn choice_table(q: &Question, a: &CostAnswer) -> TextTable {
    let mut heads =
        vec!["requests/s", "<choice", "$/h", "$/M requests", "used", "after a loss", "slowdown then", "<next best"];
    if q.extras.user_cycle > 0.0 {
        heads.insert(4, "$/1000 users·h");
    }
    let mut table = TextTable::new(&heads);
    for row in &a.rows {
        let Some(best) = row.best.first() else {
            table.row([
                format_grouped(row.load as i64),
                format!("no machine type has the capacity: {}", no_offer(&q.rule)),
            ]);
            continue;
        };
        let others: Vec<String> = row.best[1..]
            .iter()
            .map(|o| format!("{} × {} {}", o.nodes, o.machine, format_dollars(o.per_hour)))
            .collect();
        let used = if best.utilisation.high > best.utilisation.low {
            format!(
                "{} ({}–{})",
                Unit::Share.write(best.utilisation.mid),
                format_significant(best.utilisation.low * 100.0),
                format_significant(best.utilisation.high * 100.0)
            )
        } else {
            Unit::Share.write(best.utilisation.mid)
        };
        let slower = match best.stretch_after_loss {
            s if s.is_finite() => format!("{} ×", format_significant(s)),
            _ => "overload".into(),
        };
        let mut cells = vec![
            format_grouped(row.load as i64),
            format!("{} × {}{}", best.nodes, best.machine, sign(best)),
            format_dollars(best.per_hour),
            format_dollars(best.per_million),
            used,
            Unit::Share.write(best.after_loss),
            slower,
            others.join(", "),
        ];
        if q.extras.user_cycle > 0.0 {
            cells.insert(4, format_dollars(best.per_user * 1000.0));
        }
        table.row(cells);
    }
    table
}

const LEGEND: &str = "* cheapest of its row;   ~ another run may change the choice (fits by less than 5 %, or not at the low end of the \
                      measured interval);   ? projected, not measured on this type";

fn sentence(q: &Question, a: &CostAnswer) -> String {
    let mut rows: Vec<&CostRow> = a.rows.iter().collect();
    if let [first, .., last] = a.rows.as_slice()
        && a.rows.len() > 3
    {
        rows = vec![first, &a.rows[a.rows.len() / 2], last];
    }
    let each: Vec<String> = rows
        .iter()
        .map(|row| {
            let load = format_grouped(row.load as i64);
            match row.best.first() {
                Some(o) => {
                    format!(
                        "{load} requests/s: {} × {} for {} per hour",
                        o.nodes,
                        o.machine,
                        format_dollars(o.per_hour)
                    )
                }
                None => format!("{load} requests/s: no machine type has the capacity ({})", no_offer(&q.rule)),
            }
        })
        .collect();
    format!("{}.", each.join("; "))
}

fn checked(list: &[Disagreement]) -> String {
    match list.len() {
        0 => "Every cell of the checked table follows from its own data by the rule.".into(),
        1 => "One cell of the checked table does not follow from its own data.".into(),
        n => format!("{n} cells of the checked table do not follow from its own data."),
    }
}

pub fn cost_text(q: &Question, a: &CostAnswer) -> String {
    let first = a.disagreements.as_ref().map(|list| checked(list) + "\n").unwrap_or_default();
    let mut out = first + &sentence(q, a) + "\n" + &rule_sentence(&q.rule) + "\n";
    for remark in &q.remarks {
        let _ = writeln!(out, "{remark}");
    }
    let _ = write!(out, "\n{}{LEGEND}\n\n{}", price_table(q, a).text(), choice_table(q, a).text());
    if let Some(list) = &a.disagreements {
        let _ = writeln!(out, "\nCells of the checked table that its own data contradict: {}", list.len());
        for d in list {
            let _ = writeln!(out, "  {}", d.sentence());
        }
    }
    if !a.warnings.is_empty() {
        let _ = writeln!(out, "\nWarnings");
        for w in &a.warnings {
            let _ = writeln!(out, "  [{}] {}", w.kind.word(), w.text);
        }
    }
    out
}

pub fn cost_csv(a: &CostAnswer) -> String {
    let mut table = TextTable::new(&[
        "requests_per_s",
        "<family",
        "<machine",
        "nodes",
        "usd_per_hour",
        "usd_per_million_requests",
        "usd_per_user_hour",
        "utilisation",
        "utilisation_low",
        "utilisation_high",
        "utilisation_after_loss",
        "<sureness",
    ]);
    for row in &a.rows {
        for o in row.cells.iter().flatten() {
            table.row([
                row.load.to_string(),
                o.family.clone(),
                o.machine.clone(),
                o.nodes.to_string(),
                format!("{:.6}", o.per_hour),
                format!("{:.6}", o.per_million),
                if o.per_user.is_nan() { String::new() } else { format!("{:.9}", o.per_user) },
                format!("{:.4}", o.utilisation.mid),
                format!("{:.4}", o.utilisation.low),
                format!("{:.4}", o.utilisation.high),
                format!("{:.4}", o.after_loss),
                confidence_word(o.confidence).into(),
            ]);
        }
    }
    table.csv()
}

fn confidence_word(s: Confidence) -> &'static str {
    match s {
        Confidence::Sure => "sure",
        Confidence::Risky => "risky",
        Confidence::Projected => "projected",
    }
}

pub fn to_json(q: &Question, a: &CostAnswer) -> Value {
    let finite = |v: f64| if v.is_finite() { json!(v) } else { Value::Null };
    let offer = |o: &Offer| {
        json!({
            "machine": o.machine, "family": o.family, "nodes": o.nodes, "usd_per_hour": finite(o.per_hour),
            "usd_per_million_requests": finite(o.per_million), "usd_per_user_hour": finite(o.per_user),
            "utilisation": {"low": finite(o.utilisation.low), "mid": finite(o.utilisation.mid), "high": finite(o.utilisation.high)},
            "utilisation_after_loss": finite(o.after_loss), "slower_after_loss": finite(o.stretch_after_loss),
            "spare": finite(o.spare), "sureness": confidence_word(o.confidence),
        })
    };
    json!({
        "rule": {
            "nodes_min": q.rule.nodes_min, "nodes_max": q.rule.nodes_max, "utilisation": q.rule.utilisation,
            "losses": q.rule.losses, "utilisation_after": q.rule.utilisation_after,
        },
        "remarks": q.remarks,
        "rows": a.rows.iter().map(|r| json!({
            "requests_per_s": r.load,
            "families": r.cells.iter().zip(&a.families).map(|(c, f)| json!({"family": f, "offer": c.as_ref().map(offer)}))
                .collect::<Vec<_>>(),
            "best": r.best.iter().map(offer).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "warnings": a.warnings.iter().map(|w| json!({"kind": w.kind.word(), "text": w.text})).collect::<Vec<_>>(),
        "disagreements": a.disagreements.as_ref().map(|list| list.iter().map(|d| json!({
            "requests_per_s": d.load, "family": d.family, "printed": d.printed,
            "computed": d.computed.as_ref().map(|c| c.0), "machine": d.computed.as_ref().map(|c| c.1.clone()),
        })).collect::<Vec<_>>()),
    })
}

pub fn cost_html(q: &Question, a: &CostAnswer) -> String {
    let mut page = HtmlPage::new("Machines and dollars");
    if let Some(list) = &a.disagreements {
        page.answer(&checked(list));
    }
    page.answer(&sentence(q, a));
    let caption = "The cheapest cluster of each family over the load, under the rule below.";
    match a.rows.as_slice() {
        [only] => page
            .picture(&price_bars(a, only).first_figure(), "The cheapest cluster of each family, under the rule below."),
        _ => page.picture(&price_plot(a).first_figure(), caption),
    }
    page.paragraph(&rule_sentence(&q.rule));
    for remark in &q.remarks {
        page.paragraph(remark);
    }
    page.heading("Dollars per hour");
    let table = price_table(q, a);
    page.table_with(&table, |r, c| {
        let row = a.rows.get(r)?;
        let offer = row.cells.get(c.checked_sub(1)?)?.as_ref()?;
        let cheapest = row.cells.iter().flatten().map(|o| o.per_hour).fold(f64::INFINITY, f64::min);
        Some(match () {
            () if row.is_cheapest(offer) && offer.confidence == Confidence::Sure => Tone::Good,
            () if offer.per_hour <= cheapest * 1.25 => Tone::Warning,
            () => Tone::Bad,
        })
    });
    page.paragraph(LEGEND);
    page.paragraph(
        "Green: cheapest with certainty. Yellow: within 25 % of the cheapest, or cheapest without certainty. Red: more expensive.",
    );
    page.heading("The choice for each load");
    page.table(&choice_table(q, a));
    page.paragraph(
        "“Used” is the share of the measured capacity with all machines up (with its interval where one was measured), “after a \
         loss” that of the survivors, “slower then” how many times slower than idle they answer if requests queue as in M/M/m with \
         one server a vCPU.",
    );
    if let Some(list) = &a.disagreements {
        page.heading("The checked table against its own data");
        if list.is_empty() {
            page.note(Tone::Good, "Agrees.", "Every cell follows from the data by the rule.");
        }
        for d in list {
            page.note(Tone::Bad, "Differs.", &d.sentence());
        }
    }
    page.heading("Warnings");
    for w in &a.warnings {
        page.note(Tone::Warning, w.kind.word(), &w.text);
    }
    if a.warnings.is_empty() {
        page.paragraph("None.");
    }
    page.heading("Capacities used");
    let mut table = TextTable::new(&["<type", "vCPU", "requests/s", "low", "high", "$/h", "<source"]);
    for m in &q.machines {
        table.row([
            m.name.clone(),
            m.vcpu.to_string(),
            format_grouped(m.rps.mid as i64),
            format_grouped(m.rps.low as i64),
            format_grouped(m.rps.high as i64),
            format_dollars(m.price),
            if m.projected { "projected" } else { "measured" }.into(),
        ]);
    }
    page.table(&table);
    page.html()
}

fn price_bars(a: &CostAnswer, row: &CostRow) -> Plot {
    let offers = || a.families.iter().zip(&row.cells).filter_map(|(f, cell)| Some((f, cell.as_ref()?)));
    let names = offers().map(|(f, o)| if o.machine == *f { f.clone() } else { format!("{} × {}", o.nodes, o.machine) });
    let title = format!("Price of the cheapest cluster for {} requests/s", format_grouped(row.load as i64));
    let mut plot = Plot::new(&title, Axis::names("", names.collect()), Axis::linear("dollars per hour", Unit::Dollars));
    let points = offers().enumerate().map(|(i, (_, o))| Point::new(i as f64, o.per_hour)).collect();
    plot.series.push(Series::new("dollars per hour", Mark::Bars, points));
    plot
}

fn price_plot(a: &CostAnswer) -> Plot {
    let mut plot = Plot::new(
        "Price of the cheapest cluster",
        Axis::log("requests per second", Unit::Count),
        Axis::log("dollars per hour", Unit::Dollars),
    );
    for (f, family) in a.families.iter().enumerate() {
        let points = a.rows.iter().filter_map(|r| r.cells[f].as_ref().map(|o| Point::new(r.load, o.per_hour)));
        plot.series.push(Series::new(family, Mark::Line, points.collect()));
    }
    plot
}
