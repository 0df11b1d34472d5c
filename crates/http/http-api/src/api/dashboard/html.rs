//! HTML text. Only constants enter it unescaped.

use std::fmt::{self, Write as _};

/// HTML. Text that is no constant enters through [`Markup::text`], which escapes it.
#[derive(Clone, Debug, Default)]
pub struct Markup(String);

/// Escapes text that is written to it.
struct EscapeWriter<'a>(&'a mut String);

impl fmt::Write for EscapeWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // Not characters of HTML.
                '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\x7f' => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

impl Markup {
    pub fn new() -> Markup {
        Markup::default()
    }
    pub fn of(text: impl fmt::Display) -> Markup {
        Markup::new().text(text)
    }
    #[must_use]
    pub fn raw(mut self, html: &'static str) -> Markup {
        self.0.push_str(html);
        self
    }
    /// Appends a text, escaped for elements and for attributes in quotes.
    #[must_use]
    pub fn text(mut self, text: impl fmt::Display) -> Markup {
        let _ = write!(EscapeWriter(&mut self.0), "{text}");
        self
    }
    /// With the space before it.
    #[must_use]
    pub fn attribute(self, name: &'static str, value: impl fmt::Display) -> Markup {
        self.raw(" ").raw(name).raw("=\"").text(value).raw("\"")
    }
    #[must_use]
    pub fn add(mut self, other: Markup) -> Markup {
        self.0.push_str(&other.0);
        self
    }
    #[must_use]
    pub fn each<T>(self, all: impl IntoIterator<Item = T>, show: impl Fn(T) -> Markup) -> Markup {
        all.into_iter().fold(self, |markup, item| markup.add(show(item)))
    }
    pub fn into_string(self) -> String {
        self.0
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    Bad,
    Warn,
    Good,
    #[default]
    Plain,
}

impl Tone {
    pub fn class(self) -> &'static str {
        match self {
            Tone::Bad => "bad",
            Tone::Warn => "warn",
            Tone::Good => "good",
            Tone::Plain => "plain",
        }
    }
    /// A shape for readers who do not see the colour.
    pub fn shape(self) -> &'static str {
        match self {
            Tone::Bad => "■",
            Tone::Warn => "▲",
            Tone::Good => "●",
            Tone::Plain => "○",
        }
    }
}

/// A state with its colour and shape.
pub fn state_badge(tone: Tone, text: impl fmt::Display) -> Markup {
    let open = Markup::new().raw("<span class=\"badge ").raw(tone.class()).raw("\"><span aria-hidden=\"true\">");
    open.raw(tone.shape()).raw("</span> ").text(text).raw("</span>")
}

pub fn small_text(text: impl fmt::Display) -> Markup {
    Markup::new().raw("<small>").text(text).raw("</small>")
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    pub is_number: bool,
}

pub const fn words_column(name: &'static str) -> Column {
    Column { name, is_number: false }
}

pub const fn number_column(name: &'static str) -> Column {
    Column { name, is_number: true }
}

/// A cell: its text, and the number by which it is sorted.
#[derive(Clone, Debug)]
pub struct Cell {
    markup: Markup,
    value: Option<f64>,
    tone: Tone,
}

impl Cell {
    pub fn text(text: impl fmt::Display) -> Cell {
        Cell::of(Markup::of(text))
    }
    pub fn of(markup: Markup) -> Cell {
        Cell { markup, value: None, tone: Tone::Plain }
    }
    pub fn none() -> Cell {
        Cell::of(Markup::new().raw("<span class=\"none\">–</span>"))
    }
    pub fn count(count: u64) -> Cell {
        Cell::number(count as f64, super::format::format_count(count))
    }
    pub fn maybe(count: Option<u64>) -> Cell {
        count.map_or_else(Cell::none, Cell::count)
    }
    pub fn bytes(bytes: u64) -> Cell {
        Cell::number(bytes as f64, super::format::format_bytes(bytes))
    }
    pub fn number(value: f64, text: impl fmt::Display) -> Cell {
        Cell { value: Some(value), ..Cell::text(text) }
    }
    /// Marks a number above 0.
    #[must_use]
    pub fn alarming(mut self, tone: Tone) -> Cell {
        if self.value.is_some_and(|value| value > 0.0) {
            self.tone = tone;
        }
        self
    }
}

/// A row with a key that is unique in its table.
#[derive(Clone, Debug)]
pub struct TableRow {
    pub key: String,
    pub tone: Tone,
    pub cells: Vec<Cell>,
}

/// Rows of one table; further rows are counted, not shown.
pub const ROWS_MAX: usize = 500;

#[derive(Debug)]
pub struct HtmlTable {
    pub id: String,
    pub caption: Markup,
    pub columns: &'static [Column],
    pub rows: Vec<TableRow>,
}

impl HtmlTable {
    pub fn show(self) -> Markup {
        let HtmlTable { id, caption, columns, rows } = self;
        let more = rows.len().saturating_sub(ROWS_MAX);
        let open = Markup::new().raw("<div class=\"scroll\" role=\"region\" tabindex=\"0\"");
        let open = open.attribute("aria-labelledby", format_args!("caption-{id}")).raw("><table");
        let open = open.attribute("id", format_args!("table-{id}")).raw("><caption");
        let head =
            open.attribute("id", format_args!("caption-{id}")).raw(">").add(caption).raw("</caption><thead><tr>");
        let head = head.each(columns, |column| {
            let class = if column.is_number { "<th scope=\"col\" class=\"n\">" } else { "<th scope=\"col\">" };
            Markup::new().raw(class).text(column.name).raw("</th>")
        });
        let body = head.raw("</tr></thead><tbody>").each(rows.into_iter().take(ROWS_MAX), |row| {
            let open = Markup::new().raw("<tr class=\"").raw(row.tone.class()).raw("\"").attribute("data-key", row.key);
            let cells =
                open.raw(">").each(row.cells.into_iter().zip(columns).enumerate(), |(index, (cell, column))| {
                    let head = index == 0;
                    let open = Markup::new().raw(if head { "<th scope=\"row\"" } else { "<td" });
                    let open = match (column.is_number, cell.tone) {
                        (true, Tone::Plain) => open.raw(" class=\"n\""),
                        (true, tone) => open.raw(" class=\"n ").raw(tone.class()).raw("\""),
                        (false, Tone::Plain) => open,
                        (false, tone) => open.raw(" class=\"").raw(tone.class()).raw("\""),
                    };
                    let open = match cell.value {
                        Some(value) => open.attribute("data-v", value),
                        None => open,
                    };
                    open.raw(">").add(cell.markup).raw(if head { "</th>" } else { "</td>" })
                });
            cells.raw("</tr>")
        });
        let table = body.raw("</tbody></table></div>");
        match more {
            0 => table,
            more => {
                let rows = super::format::format_counted(more as u64, "more row", "more rows");
                table.raw("<p class=\"note\">Not shown: ").text(rows).raw(".</p>")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let markup = Markup::new().raw("<b").attribute("title", "\"><script>'").raw(">").text("<i>&\0\x1b\t\n");
        let want = "<b title=\"&quot;&gt;&lt;script&gt;&#39;\">&lt;i&gt;&amp;\u{fffd}\u{fffd}\t\n";
        assert_eq!(markup.into_string(), want);
    }

    #[test]
    fn tables_are_bounded() {
        const COLUMNS: &[Column] = &[words_column("name"), number_column("count")];
        let row =
            |n: u64| TableRow { key: n.to_string(), tone: Tone::Plain, cells: vec![Cell::text(n), Cell::count(n)] };
        let rows = (0..ROWS_MAX as u64 + 3).map(row).collect();
        let table = HtmlTable { id: "t".into(), caption: Markup::of("<x>"), columns: COLUMNS, rows };
        let html = table.show().into_string();
        assert_eq!(html.matches("<tr class=").count(), ROWS_MAX);
        assert!(html.contains("Not shown: 3\u{a0}more rows.") && html.contains("&lt;x&gt;") && !html.contains("<x>"));
    }
}
