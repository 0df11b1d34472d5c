//! A document as a page: Markdown to HTML, with anchors, resolved links, coloured examples and linked directives.

use super::frame::{BookPage, Heading};
use super::highlight;
use super::links::{Site, url_of};
use super::search::SearchPart;
use pulldown_cmark::{CodeBlockKind, CowStr, Event, Options, Parser, Tag, TagEnd, html};

/// Documents about directives, in which a plain word in code, such as `root`, is one.
const ABOUT_DIRECTIVES: &[&str] = &["docs/compatibility.md", "docs/lint.md"];

fn parser(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH)
}

pub fn list_headings(text: &str) -> Vec<String> {
    let mut anchors = Anchors::default();
    let mut heading: Option<String> = None;
    let mut found = Vec::new();
    for event in parser(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => found.extend(heading.take().map(|title| anchors.of(&title))),
            Event::Text(words) | Event::Code(words) => {
                if let Some(title) = &mut heading {
                    title.push_str(&words);
                }
            }
            _ => {}
        }
    }
    found
}

/// As hosting sites do: lower case, hyphens, a number for repetitions.
#[derive(Default)]
struct Anchors(std::collections::HashMap<String, usize>);

impl Anchors {
    fn of(&mut self, title: &str) -> String {
        let kept = title.to_lowercase();
        let kept: String = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_')).collect();
        let anchor = kept.replace(' ', "-");
        let count = self.0.entry(anchor.clone()).or_default();
        *count += 1;
        if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
    }
}

struct Conversion<'a> {
    site: &'a mut Site,
    document: &'a str,
    url: String,
    out: Vec<Event<'a>>,
    anchors: Anchors,
    headings: Vec<Heading>,
    parts: Vec<SearchPart>,
    /// Title of the heading in progress, and where its events begin.
    heading: Option<(String, usize)>,
    code: Option<(String, String)>,
    /// Links that are open; inside them code is not linked again.
    open_links: Vec<bool>,
}

/// Reports faults of links to the site.
pub fn document_page(site: &mut Site, document: &str, text: &str) -> BookPage {
    let url = url_of(document);
    let mut conversion = Conversion {
        site,
        document,
        url: url.clone(),
        out: Vec::new(),
        anchors: Anchors::default(),
        headings: Vec::new(),
        parts: Vec::new(),
        heading: None,
        code: None,
        open_links: Vec::new(),
    };
    for event in parser(text) {
        conversion.take(event);
    }
    let Conversion { out, headings, parts, .. } = conversion;
    let mut body = String::new();
    html::push_html(&mut body, out.into_iter());
    let title = headings.first().map_or_else(|| document.to_string(), |heading| heading.title.clone());
    BookPage { url, title, body, headings, parts }
}

impl<'a> Conversion<'a> {
    fn take(&mut self, event: Event<'a>) {
        match event {
            Event::Start(Tag::Heading { .. }) => self.heading = Some((String::new(), self.out.len())),
            Event::End(TagEnd::Heading(level)) => self.end_heading(level as usize),
            Event::Start(Tag::CodeBlock(kind)) => {
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, String::new()));
            }
            Event::End(TagEnd::CodeBlock) => self.end_code(),
            Event::Start(Tag::Link { dest_url, .. }) => self.start_link(&dest_url),
            Event::End(TagEnd::Link) => {
                let has_address = self.open_links.pop().unwrap_or(false);
                self.raw(if has_address { "</a>" } else { "</span>" });
            }
            Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                let address = self.site.resolve(self.document, &dest_url).unwrap_or_default();
                self.out.push(Event::Start(Tag::Image { link_type, dest_url: address.into(), title, id }));
            }
            Event::Start(Tag::Table(columns)) => {
                // A region that has the focus scrolls by keyboard.
                self.raw("<div class=\"table\" role=\"region\" aria-label=\"Table\" tabindex=\"0\">");
                self.out.push(Event::Start(Tag::Table(columns)));
            }
            Event::End(TagEnd::Table) => {
                self.out.push(Event::End(TagEnd::Table));
                self.raw("</div>");
            }
            Event::Text(words) => self.text(words),
            Event::Code(words) => self.inline_code(&words),
            // Comments of generators; other HTML is not used in documents.
            Event::Html(words) | Event::InlineHtml(words) => {
                if !words.trim_start().starts_with("<!--") {
                    self.site.fault(format!("{}: HTML in a document: {}", self.document, words.trim()));
                }
            }
            event => {
                if matches!(
                    event,
                    Event::SoftBreak
                        | Event::HardBreak
                        | Event::End(TagEnd::TableCell | TagEnd::Paragraph | TagEnd::Item)
                ) {
                    self.note(" ");
                }
                self.out.push(event);
            }
        }
    }

    fn raw(&mut self, html: &str) {
        self.out.push(Event::InlineHtml(CowStr::from(html.to_string())));
    }

    fn note(&mut self, words: &str) {
        if let Some((title, _)) = &mut self.heading {
            title.push_str(words);
        } else if let Some(part) = self.parts.last_mut() {
            part.text.push_str(words);
        }
    }

    fn text(&mut self, words: CowStr<'a>) {
        if let Some((_, code)) = &mut self.code {
            code.push_str(&words);
            return;
        }
        self.note(&words);
        self.out.push(Event::Text(words));
    }

    fn end_heading(&mut self, level: usize) {
        let Some((title, start)) = self.heading.take() else { return };
        let anchor = self.anchors.of(&title);
        let inside = self.out.split_off(start);
        self.raw(&format!("<h{level} id=\"{anchor}\">"));
        self.out.extend(inside);
        if level > 1 {
            self.raw(&format!("<a class=\"anchor\" href=\"#{anchor}\" aria-label=\"Link to this section\">#</a>"));
        }
        self.raw(&format!("</h{level}>\n"));
        self.parts.push(SearchPart { title: title.clone(), anchor: anchor.clone(), text: String::new() });
        self.headings.push(Heading { level, title, anchor });
    }

    fn end_code(&mut self) {
        let Some((language, code)) = self.code.take() else { return };
        if language == "mermaid" {
            self.site.fault(format!("{}: a diagram in mermaid needs a script; draw an SVG", self.document));
        }
        self.note(&format!(" {code} "));
        let coloured = highlight::highlight_html(&code, &language, |name| self.site.directive(name, &self.url));
        self.out.push(Event::Html(CowStr::from(format!("<pre><code>{coloured}</code></pre>\n"))));
    }

    fn start_link(&mut self, target: &str) {
        let address = self.site.resolve(self.document, target);
        self.open_links.push(address.is_some());
        match address {
            Some(address) => self.raw(&format!("<a href=\"{}\">", highlight::escape_html(&address))),
            None => self.raw("<span>"),
        }
    }

    /// Links a directive or a variable that stands in code.
    fn inline_code(&mut self, words: &str) {
        self.note(words);
        // Whole lines of a configuration: each directive has its own link.
        if words.ends_with([';', '}']) && self.open_links.is_empty() && self.heading.is_none() {
            let coloured = highlight::highlight_html(words, "nginx", |name| self.site.directive(name, &self.url));
            self.raw(&format!("<code class=\"lines\">{coloured}</code>"));
            return;
        }
        let linked = if self.open_links.is_empty() && self.heading.is_none() { self.reference(words) } else { None };
        let code = short_code(words);
        match linked {
            Some(address) => self.raw(&format!("<a class=\"code\" href=\"{address}\">{code}</a>")),
            None => self.raw(&code),
        }
    }

    fn reference(&self, words: &str) -> Option<String> {
        if words.starts_with('$') {
            return self.site.variable(words, &self.url);
        }
        let is_clear = words.contains('_') || ABOUT_DIRECTIVES.contains(&self.document);
        let name = words.split(' ').next().filter(|_| is_clear)?;
        self.site.directive(name, &self.url)
    }
}

/// Longest code that is kept on one line, in characters; it fits into the narrowest screens.
const UNBROKEN_MAX: usize = 22;

/// Returns code within a line of text. Short code with spaces or hyphens stays on one line (`tidegate -t`); long names may be
/// broken after an underscore, so that tables fit.
fn short_code(words: &str) -> String {
    let code = highlight::escape_html(words);
    if words.contains([' ', '-']) && words.chars().count() <= UNBROKEN_MAX {
        return format!("<code class=\"short\">{code}</code>");
    }
    format!("<code>{}</code>", code.replace('_', "_<wbr>"))
}

/// Converts a short text of the tables: code and links, no blocks.
pub fn inline_html(site: &Site, url: &str, own: &str, text: &str) -> String {
    let mut out = Vec::new();
    for event in Parser::new(text) {
        match event {
            Event::Code(words) => {
                let address = match words.strip_prefix('$') {
                    Some(_) => site.variable(&words, url),
                    None => words
                        .split([' ', ';'])
                        .next()
                        .filter(|name| *name != own)
                        .and_then(|name| site.directive(name, url)),
                };
                let code = short_code(&words);
                let html = match address {
                    Some(address) => format!("<a class=\"code\" href=\"{address}\">{code}</a>"),
                    None => code,
                };
                out.push(Event::InlineHtml(CowStr::from(html)));
            }
            Event::Html(words) | Event::InlineHtml(words) => out.push(Event::Text(words)),
            event => out.push(event),
        }
    }
    let mut html = String::new();
    html::push_html(&mut html, out.into_iter());
    html
}
