//! SVG output: escaped text, short numbers, and the style sheet with light and dark colours.

use std::fmt::Write as _;

/// Series with a distinct colour and marker; further ones repeat.
pub const SERIES: usize = 8;

/// Light mode: contrast ≥ 3:1 against white, distinguishable by the colour-blind (Okabe–Ito, darkened).
const LIGHT: [&str; SERIES] = ["#0063a8", "#c44e00", "#00795a", "#a3407f", "#6b6b00", "#3d8fc4", "#8a2d2d", "#5a4fb0"];
/// Dark mode: contrast ≥ 3:1 against #16181d.
const DARK: [&str; SERIES] = ["#56b4e9", "#f0954a", "#2fc79a", "#e08cc0", "#d8cf4e", "#9ad0f0", "#f08a8a", "#a99df5"];

/// Style rules of figures for a page, or with `standalone` for a separate SVG file.
pub fn style_rules(standalone: bool) -> String {
    let root = if standalone { "svg" } else { ":root" };
    let mut css = colours(root, &LIGHT, "--ink:#1c1f24;--dim:#5c636e;--grid:#dfe2e7;--paper:#ffffff;");
    css.push_str("@media (prefers-color-scheme:dark){\n");
    css.push_str(&colours(root, &DARK, "--ink:#e6e8ec;--dim:#a0a7b4;--grid:#343a45;--paper:#16181d;"));
    css.push_str("}\n");
    css.push_str(
        "svg.fig{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',sans-serif;\
         max-width:100%;height:auto}\n\
         svg.fig text{fill:var(--ink)}svg.fig .dim{fill:var(--dim)}svg.fig .halo{paint-order:stroke;stroke:var(--paper);\n\
         stroke-width:3px}svg.fig .title{font-size:14px;font-weight:600}\n\
         svg.fig .paper{fill:var(--paper)}svg.fig .grid{stroke:var(--grid);stroke-width:1}\
         svg.fig .axis{stroke:var(--dim);stroke-width:1}svg.fig .note{stroke:var(--dim);stroke-width:1;\
         stroke-dasharray:2 3}\n",
    );
    for i in 0..SERIES {
        let _ = writeln!(
            css,
            "svg.fig .l{i}{{stroke:var(--s{i});fill:none;stroke-width:2;stroke-linejoin:round}}\
             svg.fig .p{i}{{fill:var(--s{i})}}svg.fig .b{i}{{fill:var(--s{i});fill-opacity:.18}}\
             svg.fig .e{i}{{stroke:var(--s{i});stroke-width:1.2}}\
             svg.fig .h{i}{{stroke:var(--s{i});stroke-width:1.6;fill:var(--paper)}}"
        );
    }
    css.push_str("svg.fig .dash{stroke-dasharray:6 4}\n");
    css
}

fn colours(selector: &str, series: &[&str; SERIES], others: &str) -> String {
    let mut css = format!("{selector}{{{others}");
    for (i, colour) in series.iter().enumerate() {
        let _ = write!(css, "--s{i}:{colour};");
    }
    css + "}\n"
}

/// Escapes text for XML and HTML, in content and attributes.
pub fn escape_xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML 1.0 forbids control characters even escaped.
            c if c < ' ' && !matches!(c, '\t' | '\n' | '\r') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

pub fn format_coordinate(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(String::from).unwrap_or(text)
}

/// Estimated width of `text` in pixels in the 12-pixel face, to lay out legends without a browser.
pub fn text_width(text: &str) -> f64 {
    text.chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | '.' | ',' | ':' | '|' | '\'' | 'I' => 3.6,
            'f' | 't' | 'r' | '(' | ')' | '/' | ' ' | '-' => 4.6,
            'm' | 'w' | 'M' | 'W' | '%' | '@' => 10.4,
            'A'..='Z' => 8.2,
            _ => 6.9,
        })
        .sum()
}

/// Draws the marker of series `i` (circle, square, triangle, diamond: colour is never the only difference).
pub fn draw_marker(series: usize, x: f64, y: f64, hollow: bool) -> String {
    let (fill, number) = (if hollow { 'h' } else { 'p' }, series % SERIES);
    let class = format!("{fill}{number}");
    let (x0, y0) = (format_coordinate(x), format_coordinate(y));
    match series % 4 {
        0 => format!("<circle class=\"{class}\" cx=\"{x0}\" cy=\"{y0}\" r=\"3.4\"/>"),
        1 => format!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"6.2\" height=\"6.2\"/>",
            format_coordinate(x - 3.1),
            format_coordinate(y - 3.1)
        ),
        2 => {
            format!("<path class=\"{class}\" d=\"M{x0} {}l4.1 7.2h-8.2z\"/>", format_coordinate(y - 4.4))
        }
        _ => format!("<path class=\"{class}\" d=\"M{x0} {}l4.4 4.4l-4.4 4.4l-4.4-4.4z\"/>", format_coordinate(y - 4.4)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_texts_are_escaped() {
        assert_eq!(escape_xml("<a href='x'>&\"\u{1}"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\u{fffd}");
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!(
            (format_coordinate(3.0), format_coordinate(7.14159), format_coordinate(-0.04)),
            ("3".into(), "7.1".into(), "-0".into())
        );
    }

    #[test]
    fn both_modes_are_styled() {
        let css = style_rules(false);
        assert!(
            css.contains("prefers-color-scheme:dark") && css.contains("--s7:#5a4fb0") && css.contains("--s7:#a99df5")
        );
        assert_eq!(css.matches('{').count(), css.matches('}').count());
    }
}
