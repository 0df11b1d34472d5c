//! SVG plots: lines, points with error bars, bands and bars over one or two value axes.
//! Drawing never fails: values that the scale cannot show (NaN, zero on a logarithmic axis) are left out.

use std::fmt::Write as _;

use crate::svg::{SERIES, draw_marker, escape_xml, format_coordinate, style_rules, text_width};
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

    fn span(&self, axis: &Axis, values: impl Iterator<Item = f64>, wanted: usize) -> TickSpan {
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

struct PlotDrawing<'a> {
    plot: &'a Plot,
    x: TickSpan,
    y: TickSpan,
    y2: Option<TickSpan>,
    left: f64,
    top: f64,
    wide: f64,
    high: f64,
    title: Vec<String>,
    legend: Vec<Vec<usize>>,
    below: f64,
    /// Labels above bars: centre, baseline, available width, text.
    labels: Vec<(f64, f64, f64, String)>,
    out: String,
}

/// Width of the title's face relative to other text.
const TITLE: f64 = 1.36;
const LEGEND_ROW: f64 = 19.0;
const NAME_ROW: f64 = 15.0;
/// Least share of a figure's height that the curves get.
const CURVES_MIN: f64 = 0.55;
/// Pixels below which a figure is for telephones: its legend takes the full width.
const NARROW: f64 = 450.0;

impl<'a> PlotDrawing<'a> {
    fn new(plot: &'a Plot) -> Self {
        let left_values = plot.series.iter().filter(|s| !s.right).flat_map(ends);
        let bars = plot.series.iter().any(|s| s.mark == Mark::Bars).then_some(0.0);
        let y = plot.span(&plot.y, left_values.chain(bars).chain(plot.marks_y.iter().map(|m| m.0)), 5);
        let y2 = plot.y2.as_ref().map(|axis| {
            plot.span(axis, plot.series.iter().filter(|s| s.right).flat_map(ends), y.ticks.len().max(3) - 1)
        });
        let xs = plot.series.iter().flat_map(|s| s.points.iter().map(|p| p.x));
        let wanted = if plot.width < NARROW { 4 } else { 8 };
        let x = plot.span(&plot.x, xs.chain(plot.marks_x.iter().map(|m| m.0)), wanted);
        let label_room = |axis: &Axis, span: &TickSpan| {
            span.ticks.iter().map(|t| text_width(&axis.unit.write(*t))).fold(24.0, f64::max) + 34.0
        };
        let left = label_room(&plot.y, &y);
        let right = match (&plot.y2, &y2) {
            (Some(axis), Some(span)) => label_room(axis, span),
            _ => 22.0,
        };
        let mut drawing = PlotDrawing {
            plot,
            x,
            y,
            y2,
            left,
            top: 0.0,
            wide: plot.width - left - right,
            high: 0.0,
            title: lines(&plot.title, (plot.width - left - 8.0) / TITLE),
            legend: Vec::new(),
            below: 50.0,
            labels: Vec::new(),
            out: String::new(),
        };
        let rows = plot.x.names.iter().map(|name| drawing.name_lines(name).len()).max().unwrap_or(1);
        drawing.below += NAME_ROW * (rows - 1) as f64;
        drawing.lay_out_legend();
        drawing.top = drawing.below_title() + LEGEND_ROW * drawing.legend.len() as f64;
        // A long legend makes the figure taller instead of the curves flatter.
        drawing.high = (plot.height - drawing.top - drawing.below).max(plot.height * CURVES_MIN);
        drawing
    }

    fn name_lines(&self, name: &str) -> Vec<String> {
        lines(name, self.wide / self.plot.x.names.len().max(1) as f64 - 6.0)
    }

    fn below_title(&self) -> f64 {
        34.0 + 17.0 * (self.title.len().saturating_sub(1)) as f64
    }

    fn legend_left(&self) -> f64 {
        if self.plot.width < NARROW { 8.0 } else { self.left }
    }

    fn lay_out_legend(&mut self) {
        if self.plot.series.len() < 2 {
            return;
        }
        let mut room = 0.0;
        for (i, series) in self.plot.series.iter().enumerate() {
            if series.name.is_empty() {
                continue;
            }
            let needs = text_width(&series.name) + 46.0;
            if self.legend.is_empty() || room + needs > self.plot.width - self.legend_left() - 6.0 {
                self.legend.push(Vec::new());
                room = 0.0;
            }
            room += needs;
            self.legend.last_mut().expect("a row was just pushed").push(i);
        }
    }

    fn px(&self, x: f64) -> Option<f64> {
        self.x.place(x).map(|s| self.left + s * self.wide)
    }

    fn py(&self, y: f64, right: bool) -> Option<f64> {
        let span = if right { self.y2.as_ref().unwrap_or(&self.y) } else { &self.y };
        // Zero on a logarithmic axis: draws this end of the interval at the bottom.
        let share = match span.place(y) {
            None if span.scale == Scale::Log && y == 0.0 => 0.0,
            other => other?,
        };
        Some(self.top + (1.0 - share) * self.high)
    }

    fn draw(mut self, class: &str, style: &str) -> String {
        let (w, h) = (format_coordinate(self.plot.width), format_coordinate(self.top + self.high + self.below));
        let title = escape_xml(&self.plot.title);
        let _ = writeln!(
            self.out,
            "<svg class=\"{class}\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
             role=\"img\" aria-label=\"{title}\">{style}<rect class=\"paper\" width=\"{w}\" height=\"{h}\"/>"
        );
        for (row, line) in self.title.clone().iter().enumerate() {
            self.text(self.left, 20.0 + 17.0 * row as f64, "start", "title", line);
        }
        self.draw_legend();
        self.draw_axes();
        let nothing = self.plot.series.iter().all(|s| s.points.is_empty());
        if nothing {
            let (x, y) = (self.left + self.wide / 2.0, self.top + self.high / 2.0);
            self.text(x, y, "middle", "dim", "no data");
        }
        for order in [Mark::Band, Mark::Bars, Mark::Curve, Mark::Line, Mark::Points] {
            for i in 0..self.plot.series.len() {
                if self.plot.series[i].mark == order {
                    self.draw_series(i);
                }
            }
        }
        self.draw_bar_labels();
        self.draw_marks();
        self.out.push_str("</svg>\n");
        self.out
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let _ = writeln!(
            self.out,
            "<text class=\"{class}\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            format_coordinate(x),
            format_coordinate(y),
            escape_xml(text)
        );
    }

    fn colour(&self, i: usize) -> usize {
        self.plot.series[i].colour.unwrap_or(i)
    }

    fn draw_legend(&mut self) {
        for (row, indices) in self.legend.clone().into_iter().enumerate() {
            let (mut x, y) = (self.legend_left(), self.below_title() + 6.0 + LEGEND_ROW * row as f64);
            for i in indices {
                let series = &self.plot.series[i];
                let (colour, dash) = (self.colour(i), if series.dashed { " dash" } else { "" });
                let c = colour % SERIES;
                let _ = match series.mark {
                    Mark::Band => {
                        write!(
                            self.out,
                            "<rect class=\"b{c}\" x=\"{}\" y=\"{}\" width=\"22\" height=\"9\"/>",
                            format_coordinate(x),
                            format_coordinate(y - 8.0)
                        )
                    }
                    Mark::Bars => {
                        write!(
                            self.out,
                            "<rect class=\"p{c}\" x=\"{}\" y=\"{}\" width=\"12\" height=\"9\"/>",
                            format_coordinate(x + 5.0),
                            format_coordinate(y - 8.0)
                        )
                    }
                    Mark::Points => write!(self.out, "{}", draw_marker(colour, x + 11.0, y - 4.0, false)),
                    Mark::Line | Mark::Curve => {
                        let dot = if series.mark == Mark::Line {
                            draw_marker(colour, x + 11.0, y - 4.0, false)
                        } else {
                            String::new()
                        };
                        write!(
                            self.out,
                            "<path class=\"l{c}{dash}\" d=\"M{} {}h22\"/>{dot}",
                            format_coordinate(x),
                            format_coordinate(y - 4.0)
                        )
                    }
                };
                let name = series.name.clone();
                self.text(x + 28.0, y, "start", "", &name);
                x += text_width(&name) + 46.0;
            }
        }
    }

    fn draw_axes(&mut self) {
        let (bottom, right_edge) = (self.top + self.high, self.left + self.wide);
        for tick in self.y.ticks.clone() {
            if let Some(y) = self.py(tick, false) {
                let _ = write!(
                    self.out,
                    "<path class=\"grid\" d=\"M{} {}H{}\"/>",
                    format_coordinate(self.left),
                    format_coordinate(y),
                    format_coordinate(right_edge)
                );
                let label = self.plot.y.unit.write(tick);
                self.text(self.left - 7.0, y + 4.0, "end", "dim", &label);
            }
        }
        if let (Some(axis), Some(span)) = (&self.plot.y2, self.y2.clone()) {
            for tick in span.ticks {
                if let Some(y) = self.py(tick, true) {
                    self.text(right_edge + 7.0, y + 4.0, "start", "dim", &axis.unit.write(tick));
                }
            }
        }
        let mut free_from = f64::NEG_INFINITY;
        for (i, tick) in self.x.ticks.clone().into_iter().enumerate() {
            let Some(x) = self.px(tick) else { continue };
            let label = match self.plot.x.names.get(i) {
                Some(name) => name.clone(),
                None => match self.plot.x.ticks.iter().find(|t| t.0 == tick) {
                    Some(named) => named.1.clone(),
                    None => self.plot.x.unit.write(tick),
                },
            };
            let _ = write!(
                self.out,
                "<path class=\"axis\" d=\"M{} {}v5\"/>",
                format_coordinate(x),
                format_coordinate(bottom)
            );
            if !self.plot.x.names.is_empty() {
                for (row, line) in self.name_lines(&label).iter().enumerate() {
                    self.text(x, bottom + 19.0 + NAME_ROW * row as f64, "middle", "dim", line);
                }
                continue;
            }
            // Omits labels that would overlap; the tick stays.
            let half = text_width(&label) / 2.0;
            if x - half > free_from {
                free_from = x + half + 6.0;
                self.text(x, bottom + 19.0, "middle", "dim", &label);
            }
        }
        let _ = writeln!(
            self.out,
            "<path class=\"axis\" fill=\"none\" d=\"M{} {}V{}H{}\"/>",
            format_coordinate(self.left),
            format_coordinate(self.top),
            format_coordinate(bottom),
            format_coordinate(right_edge)
        );
        let (x_label, y_label) = (self.plot.x.label.clone(), self.plot.y.label.clone());
        self.text(self.left + self.wide / 2.0, bottom + self.below - 11.0, "middle", "", &x_label);
        self.side_label(14.0, &y_label);
        if let Some(axis) = &self.plot.y2 {
            let label = axis.label.clone();
            self.side_label(self.plot.width - 8.0, &label);
        }
    }

    fn side_label(&mut self, x: f64, text: &str) {
        let y = self.top + self.high / 2.0;
        let _ = writeln!(
            self.out,
            "<text transform=\"translate({} {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            format_coordinate(x),
            format_coordinate(y),
            escape_xml(text)
        );
    }

    /// Draws the figures above bars; where one is too wide, its unit goes to a second line.
    fn draw_bar_labels(&mut self) {
        for (x, y, room, label) in std::mem::take(&mut self.labels) {
            if text_width(&label) < room + 4.0 {
                self.text(x, y, "middle", "dim halo", &label);
            } else if let Some((number, unit)) = label.split_once(' ')
                && text_width(number) < room + 4.0
            {
                self.text(x, y - 12.0, "middle", "dim halo", number);
                self.text(x, y, "middle", "dim halo", unit);
            } else if text_width(&label) < room + 14.0 {
                self.text(x, y, "middle", "dim halo", &label);
            }
        }
    }

    fn draw_marks(&mut self) {
        let (mut last, mut row) = (f64::NEG_INFINITY, 0.0);
        for (value, word) in &self.plot.marks_x {
            let Some(x) = self.px(*value) else { continue };
            row = if (x - last).abs() < text_width(word) + 12.0 { row + 1.0 } else { 0.0 };
            last = x;
            let _ = write!(
                self.out,
                "<path class=\"note\" d=\"M{} {}v{}\"/>",
                format_coordinate(x),
                format_coordinate(self.top),
                format_coordinate(self.high)
            );
            let near_end = x + text_width(word) + 10.0 > self.left + self.wide;
            let (x, anchor) = if near_end { (x - 5.0, "end") } else { (x + 5.0, "start") };
            self.text(x, self.top + 12.0 + 14.0 * row, anchor, "dim", word);
        }
        for (value, word) in &self.plot.marks_y {
            let Some(y) = self.py(*value, false) else { continue };
            let _ = write!(
                self.out,
                "<path class=\"note\" d=\"M{} {}h{}\"/>",
                format_coordinate(self.left),
                format_coordinate(y),
                format_coordinate(self.wide)
            );
            self.text(self.left + self.wide - 4.0, y - 5.0, "end", "dim", word);
        }
    }

    fn draw_series(&mut self, i: usize) {
        let series = &self.plot.series[i];
        match series.mark {
            Mark::Band => self.draw_band(i),
            Mark::Bars => self.draw_bars(i),
            Mark::Line | Mark::Curve | Mark::Points => self.draw_points(i),
        }
    }

    fn draw_points(&mut self, i: usize) {
        let plot = self.plot;
        let series = &plot.series[i];
        let (colour, class) = (self.colour(i), self.colour(i) % SERIES);
        let mut path = String::new();
        let mut dots = String::new();
        let mut pen_down = false;
        for p in &series.points {
            let (Some(x), Some(y)) = (self.px(p.x), if p.y.is_finite() { self.py(p.y, series.right) } else { None })
            else {
                pen_down = false;
                continue;
            };
            let _ =
                write!(path, "{}{} {}", if pen_down { "L" } else { "M" }, format_coordinate(x), format_coordinate(y));
            pen_down = true;
            if series.mark == Mark::Curve {
                continue;
            }
            if p.high > p.low
                && let (Some(a), Some(b)) = (self.py(p.low, series.right), self.py(p.high, series.right))
            {
                // Intervals are cut at the axis limits and have no cap there.
                let (bottom, top) = (self.top + self.high, self.top);
                let cap = |inside: bool, y: f64| {
                    if inside {
                        format!("M{} {}h6", format_coordinate(x - 3.0), format_coordinate(y))
                    } else {
                        String::new()
                    }
                };
                let _ = write!(
                    dots,
                    "<path class=\"e{class}\" d=\"M{} {}V{}{}{}\"/>",
                    format_coordinate(x),
                    format_coordinate(a.min(bottom)),
                    format_coordinate(b.max(top)),
                    cap(a <= bottom, a),
                    cap(b >= top, b)
                );
            }
            dots.push_str(&draw_marker(colour, x, y, p.hollow));
        }
        if series.mark != Mark::Points && !path.is_empty() {
            let dash = if series.dashed { " dash" } else { "" };
            let _ = writeln!(self.out, "<path class=\"l{class}{dash}\" d=\"{path}\"/>");
        }
        self.out.push_str(&dots);
        self.out.push('\n');
    }

    fn draw_band(&mut self, i: usize) {
        let series = &self.plot.series[i];
        let class = self.colour(i) % SERIES;
        let edge = |p: &Point, y: f64| Some((self.px(p.x)?, self.py(y, series.right)?));
        let upper = series.points.iter().filter_map(|p| edge(p, p.high));
        let lower = series.points.iter().rev().filter_map(|p| edge(p, p.low));
        let places: Vec<String> =
            upper.chain(lower).map(|(x, y)| format!("{} {}", format_coordinate(x), format_coordinate(y))).collect();
        if places.len() > 2 {
            let _ = writeln!(self.out, "<path class=\"b{class}\" d=\"M{}Z\"/>", places.join("L"));
        }
    }

    fn draw_bars(&mut self, i: usize) {
        let plot = self.plot;
        let bar_series: Vec<usize> = (0..plot.series.len()).filter(|s| plot.series[*s].mark == Mark::Bars).collect();
        let place = bar_series.iter().position(|s| *s == i).unwrap_or(0) as f64;
        let groups = (self.x.high - self.x.low).max(1.0);
        let thick = (self.wide / groups * 0.72 / bar_series.len() as f64).min(64.0);
        let offset = (place - bar_series.len() as f64 / 2.0) * thick;
        let class = self.colour(i) % SERIES;
        let Some(zero) = self.py(0.0, false) else { return };
        for p in &plot.series[i].points {
            let (Some(x), Some(y)) = (self.px(p.x), self.py(p.y, false)) else { continue };
            let x = x + offset;
            let _ = write!(
                self.out,
                "<rect class=\"{}{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                if p.hollow { 'h' } else { 'p' },
                format_coordinate(x + 1.0),
                format_coordinate(y.min(zero)),
                format_coordinate(thick - 2.0),
                format_coordinate((zero - y).abs())
            );
            let mut label_y = y.min(zero);
            if p.high > p.low
                && let (Some(a), Some(b)) = (self.py(p.low, false), self.py(p.high, false))
            {
                let middle = format_coordinate(x + thick / 2.0);
                let (a, b) = (a.min(self.top + self.high), b.max(self.top));
                let _ = write!(
                    self.out,
                    "<path class=\"axis\" d=\"M{middle} {}V{}\"/>",
                    format_coordinate(a),
                    format_coordinate(b)
                );
                label_y = b;
            }
            self.labels.push((x + thick / 2.0, label_y - 4.0, thick, plot.y.unit.write(p.y)));
        }
    }
}

/// Values that an axis must cover. Excludes intervals, since one wide interval would flatten all curves.
fn ends(series: &Series) -> impl Iterator<Item = f64> + '_ {
    let band = series.mark == Mark::Band;
    series.points.iter().flat_map(move |p| if band { [p.low, p.y, p.high] } else { [p.y; 3] })
}

/// Breaks text into lines no wider than `room` in the title's face.
fn lines(text: &str, room: f64) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match out.last_mut() {
            Some(line) if text_width(line) + text_width(word) + 4.6 < room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => out.push(word.into()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

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
