//! Drawing of a plot as SVG: legend, axes, marks.

use std::fmt::Write as _;

use crate::plot::{Axis, Mark, Plot, Point, Series};
use crate::svg::{SERIES, draw_marker, escape_xml, format_coordinate, text_width};
use crate::ticks::{Scale, TickSpan};

pub(crate) struct PlotDrawing<'a> {
    pub(crate) plot: &'a Plot,
    pub(crate) x: TickSpan,
    pub(crate) y: TickSpan,
    pub(crate) y2: Option<TickSpan>,
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) wide: f64,
    pub(crate) high: f64,
    pub(crate) title: Vec<String>,
    pub(crate) legend: Vec<Vec<usize>>,
    pub(crate) below: f64,
    /// Labels above bars: centre, baseline, available width, text.
    pub(crate) labels: Vec<(f64, f64, f64, String)>,
    pub(crate) out: String,
}

/// Width of the title's face relative to other text.
const TITLE: f64 = 1.36;

const LEGEND_ROW: f64 = 19.0;

const NAME_ROW: f64 = 15.0;

/// Least share of a figure's height that the curves get.
pub(crate) const CURVES_MIN: f64 = 0.55;

/// Pixels below which a figure is for telephones: its legend takes the full width.
const NARROW: f64 = 450.0;

impl<'a> PlotDrawing<'a> {
    pub(crate) fn new(plot: &'a Plot) -> Self {
        let left_values = plot.series.iter().filter(|s| !s.right).flat_map(ends);
        let bars = plot.series.iter().any(|s| s.mark == Mark::Bars).then_some(0.0);
        let y = plot.measure_span(&plot.y, left_values.chain(bars).chain(plot.marks_y.iter().map(|m| m.0)), 5);
        let y2 = plot.y2.as_ref().map(|axis| {
            plot.measure_span(axis, plot.series.iter().filter(|s| s.right).flat_map(ends), y.ticks.len().max(3) - 1)
        });
        let xs = plot.series.iter().flat_map(|s| s.points.iter().map(|p| p.x));
        let wanted = if plot.width < NARROW { 4 } else { 8 };
        let x = plot.measure_span(&plot.x, xs.chain(plot.marks_x.iter().map(|m| m.0)), wanted);
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

    pub(crate) fn draw(mut self, class: &str, style: &str) -> String {
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
