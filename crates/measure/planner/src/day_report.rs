//! The simulated day as terminal text, JSON and a page.

use figures::page::HtmlPage;
use figures::plot::{Axis, Mark, Plot, Point, Series};
use figures::table::TextTable;
use figures::units::{Unit, format_count, format_dollars};
use serde_json::{Value, json};

use crate::day::{Day, DayOutcome};

fn table(o: &DayOutcome) -> TextTable {
    let mut t = TextTable::new(&["<", "scaled", "fixed"]);
    let most = o.minutes.iter().map(|m| m.serving).max().unwrap_or(0);
    let least = o.minutes.iter().map(|m| m.serving).min().unwrap_or(0);
    t.row(["machines".to_string(), format!("{least} to {most}"), o.nodes_static.to_string()]);
    t.row(["dollars per day".into(), format_dollars(o.cost), format_dollars(o.cost_static)]);
    t.row([
        "dollars per million requests".into(),
        format_dollars(o.cost / o.requests * 1e6),
        format_dollars(o.cost_static / o.requests * 1e6),
    ]);
    t.row(["requests per day".into(), format_count(o.requests), format_count(o.requests)]);
    t.row(["refused".into(), Unit::Share.write(o.refused / o.requests), "0 %".into()]);
    t.row(["machine starts".into(), o.starts.to_string(), "0".into()]);
    t.row([
        "highest utilisation".into(),
        Unit::Share.write(o.utilisation_worst),
        Unit::Share.write(o.utilisation_fixed),
    ]);
    t
}

fn sentence(o: &DayOutcome) -> String {
    let saved = 1.0 - o.cost / o.cost_static;
    let refused = if o.refused > 0.0 {
        let share = Unit::Share.write(o.refused / o.requests);
        format!("and refuses {} of {} requests ({share})", format_count(o.refused), format_count(o.requests))
    } else {
        "and refuses no request".into()
    };
    let (cost, fixed) = (format_dollars(o.cost), format_dollars(o.cost_static));
    match saved {
        s if s > 0.005 => {
            format!("Scaling costs {cost} per day instead of {fixed}, {} less, {refused}.", Unit::Share.write(s))
        }
        _ => format!("Scaling saves nothing here ({cost} per day; the fixed cluster {fixed}) {refused}."),
    }
}

pub fn day_text(o: &DayOutcome) -> String {
    format!("{}\n{}\n", table(o).text(), sentence(o))
}

pub fn to_json(o: &DayOutcome) -> Value {
    json!({
        "requests": o.requests, "refused": o.refused, "usd": o.cost, "usd_static": o.cost_static,
        "nodes_static": o.nodes_static, "starts": o.starts, "utilisation_worst": o.utilisation_worst,
        "minutes": o.minutes.iter().map(|m| json!([m.load, m.serving, m.paid, m.refused])).collect::<Vec<_>>(),
    })
}

pub fn day_html(day: &Day, o: &DayOutcome) -> String {
    let mut page = HtmlPage::new("A day with scaling");
    page.answer(&sentence(o));
    let hours = || Axis::linear("hour of the day", Unit::Plain).until(o.minutes.len() as f64 / 60.0);
    // One point per four minutes and the last minute, with a step where machines come or go in between.
    let every = |f: &dyn Fn(usize) -> f64, steps: bool| -> Vec<Point> {
        let last = o.minutes.len().saturating_sub(1);
        let mut points: Vec<Point> = Vec::new();
        for i in (0..o.minutes.len()).filter(|i| i % 4 == 0 || *i == last || (steps && f(*i) != f(i.saturating_sub(1))))
        {
            let before = i.checked_sub(1).map_or(f(i), &f);
            if steps && before != f(i) {
                points.push(Point::new(i as f64 / 60.0, before));
            }
            points.push(Point::new(if i == last { i as f64 + 1.0 } else { i as f64 } / 60.0, f(i)));
        }
        points
    };
    let mut load = Plot::new("Load and capacity", hours(), Axis::linear("requests per second", Unit::PerSecond));
    load.series.push(Series::new("load", Mark::Curve, every(&|i| o.minutes[i].load, false)));
    load.series.push(
        Series::new("capacity", Mark::Curve, every(&|i| f64::from(o.minutes[i].serving) * day.node_rps, true)).dashed(),
    );
    load.series.push(Series::new("refused", Mark::Curve, every(&|i| o.minutes[i].refused / 60.0, false)).colour(4));
    let mut nodes = Plot::new("Machines", hours(), Axis::linear("machines", Unit::Count));
    nodes.series.push(Series::new("serving", Mark::Curve, every(&|i| f64::from(o.minutes[i].serving), true)));
    nodes.series.push(Series::new("paid for", Mark::Curve, every(&|i| f64::from(o.minutes[i].paid), true)).dashed());
    nodes.marks_y.push((f64::from(o.nodes_static), "fixed cluster".into()));
    page.picture(&load.first_figure(), "Capacity: requests/s of the serving machines at 100 % utilisation.");
    page.figures(&[(nodes.figure(), "A machine is paid for from the decision to start it.".into())]);
    page.table(&table(o));
    page.html()
}
