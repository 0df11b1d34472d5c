//! Self-contained HTML pages: one file, no script, no network, light and dark.

use std::fmt::Write as _;

use crate::svg::{escape_xml, style_rules};
use crate::table::{Align, TextTable};

/// Colour of a figure, always accompanied by a word, for readers who cannot distinguish colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Warning,
    Bad,
    Neutral,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Tone::Good => "good",
            Tone::Warning => "warn",
            Tone::Bad => "bad",
            Tone::Neutral => "plain",
        }
    }
}

/// Escapes all text, except that of [`HtmlPage::raw`].
#[derive(Clone, Debug)]
pub struct HtmlPage {
    title: String,
    body: String,
}

impl HtmlPage {
    /// Starts a page whose first heading is `title`.
    pub fn new(title: &str) -> Self {
        HtmlPage { title: title.into(), body: format!("<h1>{}</h1>\n", escape_xml(title)) }
    }

    pub fn heading(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", escape_xml(text));
    }

    pub fn subheading(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h3>{}</h3>", escape_xml(text));
    }

    pub fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escape_xml(text));
    }

    pub fn answer(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p class=\"answer\">{}</p>", escape_xml(text));
    }

    /// Adds the leading picture, as wide as the page (see [`crate::plot::Plot::first_figure`]).
    pub fn picture(&mut self, svg: &str, caption: &str) {
        let caption = escape_xml(caption);
        let _ = writeln!(self.body, "<figure class=\"first\">{svg}<figcaption>{caption}</figcaption></figure>");
    }

    pub fn note(&mut self, tone: Tone, word: &str, text: &str) {
        let _ = writeln!(
            self.body,
            "<p class=\"note {}\"><b>{}</b> {}</p>",
            tone.class(),
            escape_xml(word),
            escape_xml(text)
        );
    }

    pub fn preformatted(&mut self, text: &str) {
        let _ = writeln!(self.body, "<pre>{}</pre>", escape_xml(text));
    }

    pub fn cards(&mut self, cards: &[(String, String, String)]) {
        self.body.push_str("<div class=\"cards\">");
        for (value, name, remark) in cards {
            let _ = write!(
                self.body,
                "<div><span>{}</span><b>{}</b><small>{}</small></div>",
                escape_xml(name),
                escape_xml(value),
                escape_xml(remark)
            );
        }
        self.body.push_str("</div>\n");
    }

    pub fn table(&mut self, table: &TextTable) {
        self.table_with(table, |_, _| None);
    }

    /// Adds a table whose cells are coloured by `tint(row, column)`, for heat maps.
    pub fn table_with(&mut self, table: &TextTable, tint: impl Fn(usize, usize) -> Option<Tone>) {
        let side = |c: usize| if table.aligns[c] == Align::Left { " class=\"left\"" } else { "" };
        self.body.push_str("<div class=\"scroll\"><table><thead><tr>");
        for (c, head) in table.heads.iter().enumerate() {
            let _ = write!(self.body, "<th{}>{}</th>", side(c), escape_xml(head));
        }
        self.body.push_str("</tr></thead><tbody>\n");
        for (r, row) in table.rows.iter().enumerate() {
            self.body.push_str("<tr>");
            for (c, cell) in row.iter().enumerate() {
                let class = match tint(r, c) {
                    Some(tone) => {
                        format!(" class=\"{}{}\"", tone.class(), if side(c).is_empty() { "" } else { " left" })
                    }
                    None => side(c).to_string(),
                };
                let _ = write!(self.body, "<td{class}>{}</td>", escape_xml(cell));
            }
            self.body.push_str("</tr>\n");
        }
        self.body.push_str("</tbody></table></div>\n");
    }

    /// Adds captioned figures, side by side where the window is wide enough.
    pub fn figures(&mut self, figures: &[(String, String)]) {
        self.body.push_str("<div class=\"figures\">");
        for (svg, caption) in figures {
            let _ = write!(self.body, "<figure>{svg}<figcaption>{}</figcaption></figure>", escape_xml(caption));
        }
        self.body.push_str("</div>\n");
    }

    pub fn details(&mut self, summary: &str, text: &str) {
        let _ = writeln!(
            self.body,
            "<details><summary>{}</summary><pre>{}</pre></details>",
            escape_xml(summary),
            escape_xml(text)
        );
    }

    /// Adds a folded section; `inside` writes its contents.
    pub fn fold(&mut self, summary: &str, inside: impl FnOnce(&mut HtmlPage)) {
        let _ = writeln!(self.body, "<details><summary>{}</summary>", escape_xml(summary));
        inside(self);
        self.body.push_str("</details>\n");
    }

    pub fn raw(&mut self, html: &str) {
        self.body.push_str(html);
    }

    pub fn html(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}{}</style></head>\n\
             <body><main>\n{}</main></body></html>\n",
            escape_xml(&self.title),
            style_rules(false),
            PAGE_STYLE,
            self.body
        )
    }
}

const PAGE_STYLE: &str = "\
:root{--good:#dff3e4;--warn:#fdf0cd;--bad:#fbdedb;--edge-good:#2e8b57;--edge-warn:#b58105;--edge-bad:#c0392b;--card:#f5f6f8;--shade:#8a909c88}
@media (prefers-color-scheme:dark){:root{--good:#173d27;--warn:#443510;--bad:#4d201c;--edge-good:#4fbf83;
--edge-warn:#e0b040;--edge-bad:#ef7a6d;--card:#1f232b;--shade:#000c}}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',sans-serif}
main{max-width:1500px;margin:0 auto;padding:24px;overflow-wrap:anywhere}
@media (max-width:619px){main{padding:14px 12px}}
.answer{font-size:18px;line-height:1.4;margin:6px 0 10px;max-width:90ch}
h1{font-size:25px;line-height:1.25;margin:0 0 12px}h2{font-size:19px;margin:34px 0 8px;padding-top:14px;
border-top:1px solid var(--grid)}h3{font-size:15px;margin:20px 0 6px}
p{margin:8px 0;max-width:100ch}
pre{background:var(--card);padding:10px 12px;overflow-x:auto;font-size:13px;line-height:1.4;border-radius:6px}
.cards{display:flex;flex-wrap:wrap;gap:10px;margin:14px 0}
.cards div{background:var(--card);border-radius:8px;padding:9px 14px;min-width:128px}
.cards span,.cards small{display:block;color:var(--dim);font-size:12.5px}.cards b{font-size:21px;font-weight:600}
.note{border-left:4px solid var(--grid);background:var(--card);padding:8px 12px;border-radius:0 6px 6px 0}
.note.good{border-color:var(--edge-good)}.note.warn{border-color:var(--edge-warn)}.note.bad{border-color:var(--edge-bad)}
.scroll{overflow-x:auto;overflow-wrap:normal;margin:10px 0;
background:linear-gradient(90deg,var(--paper) 40%,transparent) 0 0/44px 100% no-repeat local,
linear-gradient(270deg,var(--paper) 40%,transparent) 100% 0/44px 100% no-repeat local,
linear-gradient(90deg,var(--shade),transparent) 0 0/16px 100% no-repeat scroll,
linear-gradient(270deg,var(--shade),transparent) 100% 0/16px 100% no-repeat scroll}
table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:4px 8px;border-bottom:1px solid var(--grid);text-align:right;white-space:nowrap}
th{color:var(--dim);font-weight:600}.left{text-align:left}
td.good{background:var(--good)}td.warn{background:var(--warn)}td.bad{background:var(--bad)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,500px),1fr));gap:12px}
figure{margin:8px 0;max-width:860px;min-width:0}.figures figure:only-child{max-width:600px}figure.first{max-width:none}figure svg{display:none;width:100%}
figcaption{color:var(--dim);font-size:13px;padding:2px 0 0 4px}
figure svg.narrow{display:block}
@media (min-width:620px){figure svg.narrow{display:none}figure svg.wide{display:block}figure.first{max-width:860px}}
@media (min-width:1000px){figure svg.full{display:block}figure.first{max-width:none}figure.first svg.wide{display:none}}
details{margin:10px 0}summary{cursor:pointer;color:var(--dim)}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_nothing_else() {
        let mut page = HtmlPage::new("a <b> report");
        page.heading("one & two");
        page.cards(&[("1".into(), "n".into(), "<i>".into())]);
        let mut table = TextTable::new(&["<name", "x"]);
        table.row(["<script>", "1"]);
        page.table_with(&table, |_, c| (c == 1).then_some(Tone::Good));
        let html = page.html();
        for banned in ["<script", "src=", "href=", "@import", "url("] {
            assert!(!html.contains(banned), "{banned}");
        }
        assert!(html.contains("&lt;script&gt;") && html.contains("<td class=\"good\">1</td>"));
        assert!(html.contains("prefers-color-scheme:dark"));
    }
}
