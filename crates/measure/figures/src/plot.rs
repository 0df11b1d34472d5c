//! SVG plots: lines, points with error bars, bands and bars over one or two value axes.
//! Drawing never fails: values that the scale cannot show (NaN, zero on a logarithmic axis) are left out.

use crate::drawing::PlotDrawing;
use crate::svg::style_rules;
use crate::ticks::{Scale, TickSpan};
use crate::units::Unit;

#[derive(Clone, Debug)]
pub struct Axis {
    pub label: String,
    pub unit: Unit,
    pub scale: Scale,
    /// Category names in place of numbers, at 0, 1, 2 … (for bars).
    pub names: Vec<String>,
    /// Replaces the computed ticks (for percentile axes).
    pub ticks: Vec<(f64, String)>,
    /// Fixed end of the axis, in place of a round one (hours of a day, length of a run).
    pub end: Option<f64>,
}

impl Axis {
    pub fn linear(label: &str, unit: Unit) -> Self {
        Axis { label: label.into(), unit, scale: Scale::Linear, names: Vec::new(), ticks: Vec::new(), end: None }
    }
    pub fn log(label: &str, unit: Unit) -> Self {
        Axis { scale: Scale::Log, ..Axis::linear(label, unit) }
    }
    pub fn until(self, end: f64) -> Self {
        Axis { end: Some(end), ..self }
    }
    pub fn names(label: &str, names: Vec<String>) -> Self {
        Axis { names, ..Axis::linear(label, Unit::Plain) }
    }
}

/// A value with its interval; `low == y == high` without one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub low: f64,
    pub high: f64,
    /// Draws the marker hollow: the value is not trustworthy.
    pub hollow: bool,
}

impl Point {
    pub fn new(x: f64, y: f64) -> Self {
        Point { x, y, low: y, high: y, hollow: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Line,
    /// Line without markers, for dense data such as a percentile curve.
    Curve,
    Points,
    Band,
    /// Bars from zero, side by side for several series; needs an axis of names.
    Bars,
}

#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub mark: Mark,
    pub points: Vec<Point>,
    pub right: bool,
    pub dashed: bool,
    /// Colour and marker number; by default the index in the plot.
    pub colour: Option<usize>,
}

impl Series {
    pub fn new(name: &str, mark: Mark, points: Vec<Point>) -> Self {
        Series { name: name.into(), mark, points, right: false, dashed: false, colour: None }
    }
    pub fn colour(mut self, colour: usize) -> Self {
        self.colour = Some(colour);
        self
    }
    pub fn dashed(mut self) -> Self {
        self.dashed = true;
        self
    }
    pub fn right(mut self) -> Self {
        self.right = true;
        self
    }
}

/// Sizes in CSS pixels.
#[derive(Clone, Debug)]
pub struct Plot {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub y2: Option<Axis>,
    pub series: Vec<Series>,
    pub marks_x: Vec<(f64, String)>,
    pub marks_y: Vec<(f64, String)>,
    pub width: f64,
    pub height: f64,
}

impl Plot {
    /// Starts an empty plot of 720 × 380 pixels.
    pub fn new(title: &str, x: Axis, y: Axis) -> Self {
        Plot {
            title: title.into(),
            x,
            y,
            y2: None,
            series: Vec::new(),
            marks_x: Vec::new(),
            marks_y: Vec::new(),
            width: 720.0,
            height: 380.0,
        }
    }

    /// Draws the figure for an HTML page that carries [`style_rules`].
    pub fn svg(&self) -> String {
        PlotDrawing::new(self).draw("fig", "")
    }

    /// Draws the figure twice, for a page column and for a telephone; the page's style shows the one that fits.
    pub fn figure(&self) -> String {
        self.sized("wide", 570.0, 340.0) + &self.sized("narrow", 350.0, 320.0)
    }

    pub fn first_figure(&self) -> String {
        self.sized("full", 1130.0, 420.0) + &self.figure()
    }

    fn sized(&self, class: &str, width: f64, height: f64) -> String {
        let plot = Plot { width, height, ..self.clone() };
        PlotDrawing::new(&plot).draw(&format!("fig {class}"), "")
    }

    pub fn has_hollow(&self) -> bool {
        self.series.iter().any(|s| s.points.iter().any(|p| p.hollow))
    }

    /// Draws the figure as a stand-alone file with its style inside.
    pub fn svg_file(&self) -> String {
        PlotDrawing::new(self).draw("fig", &format!("<style>{}</style>", style_rules(true)))
    }

    pub(crate) fn measure_span(&self, axis: &Axis, values: impl Iterator<Item = f64>, wanted: usize) -> TickSpan {
        if !axis.names.is_empty() {
            let high = axis.names.len() as f64 - 0.5;
            return TickSpan {
                low: -0.5,
                high,
                scale: Scale::Linear,
                ticks: (0..axis.names.len()).map(|i| i as f64).collect(),
            };
        }
        let usable = |v: &f64| v.is_finite() && (axis.scale == Scale::Linear || *v > 0.0);
        let (low, high) =
            values.filter(usable).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        let mut span = TickSpan::around(low, high, axis.scale, wanted);
        if !axis.ticks.is_empty() {
            span = TickSpan { low, high: if high > low { high } else { low + 1.0 }, ticks: Vec::new(), ..span };
            span.ticks = axis.ticks.iter().map(|t| t.0).filter(|t| *t >= span.low && *t <= span.high).collect();
        } else if let Some(end) = axis.end {
            span = TickSpan::until(end, wanted);
        }
        span
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::CURVES_MIN;

    fn example() -> Plot {
        let mut plot = Plot::new(
            "Requests/s & latency",
            Axis::log("connections", Unit::Count),
            Axis::linear("rate", Unit::PerSecond),
        );
        plot.y2 = Some(Axis::linear("latency", Unit::Seconds));
        let points = |k: f64| (0..6).map(|i| Point::new(2f64.powi(i), k * f64::from(i + 1))).collect();
        plot.series.push(Series::new("nginx <1>", Mark::Line, points(1000.0)));
        plot.series.push(Series::new("latency", Mark::Line, points(0.001)).right().dashed());
        plot.marks_x.push((8.0, "knee".into()));
        plot
    }

    #[test]
    fn a_plot_is_well_formed_and_escaped() {
        let svg = example().svg_file();
        assert!(svg.contains("Requests/s &amp; latency") && svg.contains("nginx &lt;1&gt;"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(svg.contains("knee") && svg.contains("6k/s") && svg.contains("6 ms"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn nothing_but_nonsense_still_draws() {
        let mut plot = example();
        plot.series[0].points = vec![Point::new(f64::NAN, 1.0), Point::new(0.0, f64::INFINITY)];
        plot.series[1].points.clear();
        let svg = plot.svg();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(
            Plot::new("t", Axis::linear("x", Unit::Count), Axis::linear("y", Unit::Count)).svg().contains("no data")
        );
    }

    #[test]
    fn an_interval_does_not_press_the_curve_flat() {
        let mut plot = example();
        let highest = |plot: &Plot| PlotDrawing::new(plot).y.high;
        let before = highest(&plot);
        plot.series[0].points[2].high = 1e9;
        plot.series[0].points[2].low = 1.0;
        assert_eq!(highest(&plot), before);
        let svg = plot.svg();
        let bar = svg.split("class=\"e0\"").nth(1).unwrap().split('"').nth(1).unwrap();
        assert_eq!(bar.matches('h').count(), 1, "the end that lies outside has no cap: {bar}");
    }

    #[test]
    fn a_page_has_a_figure_for_each_of_its_widths() {
        let mut plot = example();
        plot.title = "A title that is much too long for the screen of a telephone in one line".into();
        plot.series[0].points[1].hollow = true;
        let svg = plot.first_figure();
        assert_eq!(["fig full", "fig wide", "fig narrow"].map(|class| svg.matches(class).count()), [1, 1, 1]);
        let narrow = svg.split("fig narrow").nth(1).unwrap();
        assert!(narrow.contains("viewBox=\"0 0 350 320\"") && narrow.matches("class=\"title\"").count() > 1);
        assert!(narrow.contains("class=\"h0\"") && plot.has_hollow());
    }

    #[test]
    fn a_long_legend_does_not_press_the_curves_flat() {
        let mut plot = example();
        let one = plot.series[0].clone();
        plot.series.extend((0..7).map(|i| Series { name: format!("another server, number {i}"), ..one.clone() }));
        (plot.width, plot.height) = (350.0, 320.0);
        let drawing = PlotDrawing::new(&plot);
        assert!(drawing.legend.len() > 4 && drawing.high >= 320.0 * CURVES_MIN);
        let svg = plot.svg();
        let tall: f64 = svg.split("height=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
        assert!(tall > 320.0, "{tall}");
    }

    #[test]
    fn names_and_figures_of_bars_are_whole_on_narrow_screens() {
        let names = ["Americas", "Europe, Africa", "Asia, Oceania"].map(String::from).to_vec();
        let mut plot = Plot::new("t", Axis::names("", names), Axis::linear("time", Unit::Seconds));
        for (name, value) in [("median", 0.0723), ("p95", 0.212)] {
            let points = (0..3).map(|i| Point::new(f64::from(i), value)).collect();
            plot.series.push(Series::new(name, Mark::Bars, points));
        }
        let narrow = plot.sized("narrow", 350.0, 320.0);
        for part in [">Americas<", ">Europe,<", ">Africa<", ">Oceania<", ">72.3<", ">ms<"] {
            assert!(narrow.contains(part), "{part}: {narrow}");
        }
        assert!(narrow.rfind("<rect").unwrap() < narrow.find("halo").unwrap());
    }

    #[test]
    fn an_axis_of_hours_ends_with_the_day() {
        let mut plot = Plot::new("t", Axis::linear("hour", Unit::Plain).until(24.0), Axis::linear("y", Unit::Count));
        plot.series.push(Series::new("a", Mark::Curve, vec![Point::new(0.0, 1.0), Point::new(24.0, 2.0)]));
        let svg = plot.svg();
        assert!(svg.contains(">24<") && !svg.contains(">25<") && !svg.contains(">30<"), "{svg}");
    }

    #[test]
    fn bars_stand_side_by_side() {
        let names = vec!["nginx".into(), "apache".into()];
        let mut plot = Plot::new("CPU per request", Axis::names("", names), Axis::linear("µs", Unit::Seconds));
        for k in [1.0, 2.0] {
            let points =
                (0..2).map(|i| Point { low: 0.9e-6 * k, high: 1.1e-6 * k, ..Point::new(f64::from(i), k * 1e-6) });
            plot.series.push(Series::new(&format!("k{k}"), Mark::Bars, points.collect()));
        }
        let svg = plot.svg();
        assert_eq!(
            svg.matches("<rect class=\"p0").count() + svg.matches("<rect class=\"p1").count(),
            4 + 2,
            "four bars, two legend keys"
        );
        assert!(svg.contains("apache"));
    }
}
