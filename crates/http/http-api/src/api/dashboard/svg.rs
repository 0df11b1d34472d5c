//! Small line charts.

use super::history::HistorySpan;
use super::html::Markup;
use std::fmt::Write as _;

const WIDTH: f32 = 120.0;
const HEIGHT: f32 = 30.0;

fn highest_of(lines: &[&[f32]]) -> f32 {
    lines.iter().flat_map(|line| line.iter()).copied().filter(|v| v.is_finite()).fold(0.0, f32::max)
}

/// Draws lines with their scale: 0 and the highest value, which `show` writes, and the period. The label of the
/// drawing says the same to readers who do not see it.
pub fn draw_chart(
    lines: &[&[f32]],
    label: impl std::fmt::Display,
    span: HistorySpan,
    show: impl Fn(f64) -> String,
) -> Markup {
    let highest = highest_of(lines);
    let top = if highest > 0.0 { show(f64::from(highest)) } else { String::new() };
    let open = Markup::new().raw("<div class=\"chart\"><span class=\"top\" aria-hidden=\"true\">").text(top);
    let zero = open.raw("</span><span class=\"zero\" aria-hidden=\"true\">0</span>").add(sparkline(lines, label));
    let from = zero.raw("<span class=\"from\" aria-hidden=\"true\">").raw(span.begins());
    from.raw("</span><span class=\"to\" aria-hidden=\"true\">now</span></div>")
}

/// Draws lines over a common scale from 0. `label` describes them. Values that are not numbers leave gaps.
fn sparkline(lines: &[&[f32]], label: impl std::fmt::Display) -> Markup {
    let highest = highest_of(lines);
    let open =
        Markup::new().raw("<svg class=\"spark\" role=\"img\" viewBox=\"0 0 120 30\" preserveAspectRatio=\"none\"");
    let open = open.attribute("aria-label", label).raw(">");
    let drawn = open.each(lines.iter().enumerate(), |(index, line)| {
        let class = ["line one", "line two", "line three"].get(index).copied().unwrap_or("line");
        let path = path(line, highest);
        let area = match (index, lines.len()) {
            (0, 1) if !path.is_empty() => {
                Markup::new().raw("<path class=\"area\"").attribute("d", area(line, highest)).raw("/>")
            }
            _ => Markup::new(),
        };
        area.raw("<path class=\"").raw(class).raw("\"").attribute("d", path).raw("/>")
    });
    drawn.raw("</svg>")
}

fn point(index: usize, count: usize, value: f32, highest: f32) -> (f32, f32) {
    let x = index as f32 * WIDTH / (count.max(2) - 1) as f32;
    let share = if highest > 0.0 { value / highest } else { 0.0 };
    (x, HEIGHT - 1.5 - share * (HEIGHT - 3.0))
}

fn path(line: &[f32], highest: f32) -> String {
    let mut out = String::new();
    let mut is_down = false;
    for (index, value) in line.iter().enumerate() {
        if !value.is_finite() {
            is_down = false;
            continue;
        }
        let (x, y) = point(index, line.len(), *value, highest);
        let _ = write!(out, "{}{x:.0} {y:.1}", if is_down { "L" } else { "M" });
        is_down = true;
    }
    out
}

/// The area below each part of the line.
fn area(line: &[f32], highest: f32) -> String {
    let mut out = String::new();
    for part in line.iter().enumerate().collect::<Vec<_>>().chunk_by(|a, b| a.1.is_finite() == b.1.is_finite()) {
        let Some(((first, value), (last, _))) = part.first().zip(part.last()) else { continue };
        if !value.is_finite() {
            continue;
        }
        let _ = write!(out, "M{:.0} {HEIGHT}", point(*first, line.len(), 0.0, highest).0);
        for (index, value) in part {
            let (x, y) = point(*index, line.len(), **value, highest);
            let _ = write!(out, "L{x:.0} {y:.1}");
        }
        let _ = write!(out, "L{:.0} {HEIGHT}Z", point(*last, line.len(), 0.0, highest).0);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_gaps_and_a_scale() {
        assert_eq!(path(&[0.0, 10.0], 10.0), "M0 28.5L120 1.5");
        assert_eq!(path(&[0.0, f32::NAN, 10.0], 10.0), "M0 28.5M120 1.5");
        assert_eq!(path(&[0.0, 0.0], 0.0), "M0 28.5L120 28.5");
        assert_eq!(area(&[f32::NAN, 10.0, 0.0], 10.0), "M60 30L60 1.5L120 28.5L120 30Z");
        let svg = sparkline(&[&[1.0, 2.0]], "a \"label\"").into_string();
        assert!(svg.contains("aria-label=\"a &quot;label&quot;\""), "{svg}");
        let chart = draw_chart(&[&[1.0, f32::NAN, 2.0]], "", HistorySpan::Hour, |v| format!("{v}/s")).into_string();
        for part in [">2/s</span>", ">0</span>", ">1\u{a0}h ago</span>", ">now</span>"] {
            assert!(chart.contains(part), "{part}: {chart}");
        }
    }
}
