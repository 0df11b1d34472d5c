//! The regions simulation as terminal text, JSON and a page.

use figures::page::HtmlPage;
use figures::plot::{Axis, Mark, Plot, Point, Series};
use figures::table::TextTable;
use figures::units::{Unit, format_dollars};
use serde_json::{Value, json};

use crate::regions::{RegionsOutcome, Scenario};

fn tables(s: &Scenario, o: &RegionsOutcome) -> (TextTable, TextTable) {
    let mut groups = TextTable::new(&["<users", "share", "<nearest", "median", "p95", "unanswered", "worst second"]);
    for (g, r) in s.groups.iter().zip(&o.groups) {
        groups.row([
            r.name.clone(),
            Unit::Share.write(g.share),
            r.nearest.clone(),
            Unit::Seconds.write(r.median),
            Unit::Seconds.write(r.p95),
            Unit::Share.write(r.failed),
            Unit::Share.write(r.failed_worst),
        ]);
    }
    let mut regions = TextTable::new(&["<region", "machines", "used, usual", "used, worst", "$/h"]);
    for (g, r) in s.regions.iter().zip(&o.regions) {
        regions.row([
            r.name.clone(),
            g.nodes.to_string(),
            Unit::Share.write(r.utilisation_usual),
            Unit::Share.write(r.utilisation_worst),
            format_dollars(r.per_hour),
        ]);
    }
    (groups, regions)
}

fn summary(s: &Scenario, o: &RegionsOutcome) -> String {
    let medians = || o.groups.iter().filter(|g| g.median.is_finite());
    let quickest = medians().min_by(|a, b| a.median.total_cmp(&b.median));
    let slowest = medians().max_by(|a, b| a.median.total_cmp(&b.median));
    let waits = match (quickest, slowest) {
        (Some(a), Some(b)) if a.name != b.name => format!(
            "Half of the users wait less than {} ({}) to {} ({}) for the first byte. ",
            Unit::Seconds.write(a.median),
            a.name,
            Unit::Seconds.write(b.median),
            b.name
        ),
        (Some(a), _) => {
            format!("Half of the users wait less than {} for the first byte. ", Unit::Seconds.write(a.median))
        }
        _ => String::new(),
    };
    let lost: Vec<&str> = s.losses.iter().map(|loss| loss.region.as_str()).collect();
    let failed = Unit::Share.write(o.failed);
    let unanswered = match (lost.is_empty(), o.recovery_s) {
        (true, _) => format!("{failed} of all requests get no response"),
        (_, Some(t)) => format!(
            "With the loss of {}, {failed} of all requests get no response, and it takes {t} s until fewer than 1 % fail",
            lost.join(" and ")
        ),
        (_, None) => format!(
            "With the loss of {}, {failed} of all requests get no response, and service does not recover within the simulated time",
            lost.join(" and ")
        ),
    };
    format!(
        "{waits}{unanswered}. It costs {} per hour, {} per million requests.",
        format_dollars(o.per_hour),
        format_dollars(o.per_hour * 1e6 / (3600.0 * s.rate))
    )
}

pub fn regions_text(s: &Scenario, o: &RegionsOutcome) -> String {
    let (groups, regions) = tables(s, o);
    format!("{}\n{}\n{}\n", groups.text(), regions.text(), summary(s, o))
}

pub fn to_json(o: &RegionsOutcome) -> Value {
    json!({
        "groups": o.groups.iter().map(|g| json!({"name": g.name, "nearest": g.nearest, "median_s": g.median, "p95_s": g.p95,
            "failed": g.failed, "failed_worst": g.failed_worst})).collect::<Vec<_>>(),
        "regions": o.regions.iter().map(|r| json!({"name": r.name, "utilisation_usual": r.utilisation_usual,
            "utilisation_worst": r.utilisation_worst, "usd_per_hour": r.per_hour})).collect::<Vec<_>>(),
        "failed": o.failed, "usd_per_hour": o.per_hour, "recovery_s": o.recovery_s,
    })
}

pub fn regions_html(s: &Scenario, o: &RegionsOutcome) -> String {
    let mut page = HtmlPage::new("Regions");
    page.answer(&summary(s, o));
    let mut arrivals = Plot::new(
        "Where requests go",
        Axis::linear("time (s)", Unit::Plain).until(o.seconds.len() as f64),
        Axis::linear("requests per second", Unit::PerSecond),
    );
    let step = (o.seconds.len() / 400).max(1);
    let sampled = || o.seconds.iter().enumerate().step_by(step);
    for (r, region) in s.regions.iter().enumerate() {
        let points = sampled().map(|(i, x)| Point::new(i as f64, x.arrived[r])).collect();
        arrivals.series.push(Series::new(&region.name, Mark::Curve, points));
    }
    let failed = sampled().map(|(i, x)| Point::new(i as f64, x.failed)).collect();
    arrivals.series.push(Series::new("unanswered", Mark::Curve, failed).dashed());
    for loss in &s.losses {
        arrivals.marks_x.push((f64::from(loss.at_s), format!("{} lost", loss.region)));
    }
    let mut bars = Plot::new(
        "Time to first byte by place",
        Axis::names("", o.groups.iter().map(|g| g.name.clone()).collect()),
        Axis::linear("time", Unit::Seconds),
    );
    for (name, value) in [("median", 0), ("p95", 1)] {
        let points =
            o.groups.iter().enumerate().map(|(i, g)| Point::new(i as f64, if value == 0 { g.median } else { g.p95 }));
        bars.series.push(Series::new(name, Mark::Bars, points.collect()));
    }
    page.picture(&arrivals.first_figure(), "Rates sent to each region, and requests without a response.");
    page.figures(&[(bars.figure(), "Answered requests only.".into())]);
    let (groups, regions) = tables(s, o);
    page.heading("Users");
    page.table(&groups);
    page.heading("Regions");
    page.table(&regions);
    page.html()
}
