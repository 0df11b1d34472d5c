//! The reference: a page of every directive, an index of all, and the table of variables, from `tidegate reference json`.

use super::frame::{BookPage, Heading};
use super::highlight::{self, escape_html};
use super::links::Site;
use super::markdown::inline_html;
use super::search::SearchPart;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Documents that these pages replace.
pub const INDEX: &str = "docs/reference.md";
pub const VARIABLES: &str = "docs/variables";
pub const INDEX_URL: &str = "directives.html";
pub const VARIABLES_URL: &str = "variables.html";
pub const FOLDER: &str = "directive/";

pub struct Directive {
    pub name: String,
    area: String,
    module: String,
    since: String,
    syntax: String,
    default: Option<String>,
    contexts: String,
    arguments: String,
    support: String,
    remark: String,
    doc: String,
    example: Option<String>,
}

pub struct Variable {
    pub name: String,
    area: String,
    doc: String,
    is_settable: bool,
}

pub struct Reference {
    /// Accepted, or refused on purpose; by name.
    directives: BTreeMap<String, Vec<Directive>>,
    /// In the order of their areas.
    modules: Vec<String>,
    pub variables: Vec<Variable>,
    version: String,
    nginx: String,
}

impl Reference {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.directives.keys().map(String::as_str)
    }
}

/// Reads the tables.
///
/// # Errors
/// Text that is not what the program prints.
pub fn read_reference(text: &str) -> Result<Reference, String> {
    let all: Value = serde_json::from_str(text).map_err(|e| format!("the tables are no JSON: {e}"))?;
    let list = |name: &str| all[name].as_array().ok_or(format!("the tables have no {name}"));
    let mut reference = Reference {
        directives: BTreeMap::new(),
        modules: Vec::new(),
        variables: Vec::new(),
        version: string(&all, "version"),
        nginx: string(&all, "nginx"),
    };
    for entry in list("directives")? {
        let directive = Directive {
            name: string(entry, "name"),
            area: string(entry, "area"),
            module: string(entry, "module"),
            since: string(entry, "since"),
            syntax: string(entry, "syntax"),
            default: entry["default"].as_str().map(str::to_string),
            contexts: string(entry, "contexts"),
            arguments: string(entry, "arguments"),
            support: string(entry, "support"),
            remark: string(entry, "remark"),
            doc: string(entry, "doc"),
            example: entry["example"].as_str().map(str::to_string),
        };
        if directive.support == "not yet" {
            continue;
        }
        if !reference.modules.contains(&directive.module) {
            reference.modules.push(directive.module.clone());
        }
        reference.directives.entry(directive.name.clone()).or_default().push(directive);
    }
    for entry in list("variables")? {
        reference.variables.push(Variable {
            name: string(entry, "name"),
            area: string(entry, "area"),
            doc: string(entry, "doc"),
            is_settable: entry["settable"].as_bool().unwrap_or(false),
        });
    }
    Ok(reference)
}

fn string(entry: &Value, field: &str) -> String {
    entry[field].as_str().unwrap_or_default().to_string()
}

pub fn directive_url(name: &str) -> String {
    format!("{FOLDER}{name}.html")
}

/// Of a variable's row.
pub fn variable_anchor(variable: &str) -> String {
    variable.trim_start_matches('$').to_lowercase()
}

/// Registers the pages, so that documents can link to them.
pub fn add_reference(site: &mut Site, reference: &Reference) {
    for name in reference.names() {
        site.add_page(&directive_url(name), Vec::new());
    }
    site.add_page(INDEX_URL, reference.modules.clone());
    site.add_page(VARIABLES_URL, reference.variables.iter().map(|variable| variable_anchor(&variable.name)).collect());
}

pub fn reference_pages(site: &mut Site, reference: &Reference) -> Vec<BookPage> {
    let mut pages = vec![index(reference), variables(site, reference)];
    for (name, entries) in &reference.directives {
        pages.push(directive(site, name, entries));
    }
    pages
}

/// Returns the text for a directive's support; `true`: shown as a warning.
fn support_of(directive: &Directive) -> (&'static str, &'static str) {
    match directive.support.as_str() {
        "differs" => ("Differs from nginx", "differs"),
        "no effect" => ("Accepted, no effect", "noeffect"),
        "refused" => ("Refused", "refused"),
        _ => ("", "supported"),
    }
}

fn directive(site: &Site, name: &str, entries: &[Directive]) -> BookPage {
    let url = directive_url(name);
    let mut body = format!("<h1><code>{name}</code></h1>\n");
    let mut headings = Vec::new();
    let mut text = String::new();
    for entry in entries {
        if entries.len() > 1 {
            let anchor = entry.area.replace(' ', "-");
            let title = format!("In {}", entry.area);
            let _ = writeln!(
                body,
                "<h2 id=\"{anchor}\">{title}<a class=\"anchor\" href=\"#{anchor}\" aria-label=\"Link to this section\">#</a></h2>"
            );
            headings.push(Heading { level: 2, title, anchor });
        }
        body.push_str(&facts(entry));
        let mut paragraphs = inline_html(site, &url, name, &entry.doc);
        let (word, class) = support_of(entry);
        if !word.is_empty() {
            let remark = inline_html(site, &url, name, &entry.remark);
            let remark = remark.trim().trim_start_matches("<p>").trim_end_matches("</p>");
            let _ = writeln!(paragraphs, "<p class=\"remark {class}\"><strong>{word}:</strong> {remark}</p>");
        }
        body.push_str(&paragraphs);
        if let Some(example) = &entry.example {
            let coloured = highlight::highlight_html(example, "nginx", |other| {
                site.directive(other, &url).filter(|_| other != name)
            });
            let _ = writeln!(body, "<h3>Example</h3>\n<pre><code>{coloured}</code></pre>");
        }
        let _ = write!(text, "{} {} {} {} ", entry.syntax, entry.doc, entry.remark, entry.module);
    }
    let parts = vec![SearchPart { title: name.to_string(), anchor: String::new(), text: text.replace('`', "") }];
    BookPage { url, title: name.to_string(), body, headings, parts }
}

/// Returns the table of syntax, default, contexts and module.
fn facts(entry: &Directive) -> String {
    let mut out = String::from(
        "<div class=\"table\" role=\"region\" aria-label=\"Table\" tabindex=\"0\"><table class=\"facts\">\n",
    );
    let mut row = |name: &str, html: String| {
        let _ = writeln!(out, "<tr><th scope=\"row\">{name}</th><td>{html}</td></tr>");
    };
    let code = |text: &str| format!("<code>{}</code>", escape_html(text));
    row("Syntax", code(&entry.syntax));
    let default = match entry.default.as_deref() {
        None => "none".to_string(),
        Some("") => code("\"\""),
        Some(text) => code(text),
    };
    row("Default", default);
    row("Context", escape_html(&entry.contexts));
    row("Takes", escape_html(&entry.arguments));
    let anchor = escape_html(&entry.module);
    row("Module", format!("<a href=\"../{INDEX_URL}#{anchor}\">{anchor}</a>"));
    if !entry.since.is_empty() {
        row("Since", format!("nginx {}", escape_html(&entry.since)));
    }
    out.push_str("</table></div>\n");
    out
}

fn index(reference: &Reference) -> BookPage {
    let count: usize = reference.directives.values().map(Vec::len).sum();
    let mut body = format!(
        "<h1>Directives</h1>\n<p>The {count} directives of Tidegate {}, by module, with the names, contexts and defaults of {}. \
         <code>tidegate explain NAME</code> prints a page of this reference. \
         <a href=\"compatibility.html\">Compatibility</a> also lists the directives that are not supported.</p>\n\
         <p class=\"legend\"><span class=\"differs\">differs from nginx</span> <span class=\"noeffect\">accepted, no effect</span> \
         <span class=\"refused\">refused</span></p>\n<p><input id=\"filter\" type=\"search\" placeholder=\"Filter by name\" aria-label=\"Filter by name\" autocomplete=\"off\"></p>\n",
        escape_html(&reference.version),
        escape_html(&reference.nginx)
    );
    let mut headings = Vec::new();
    for module in &reference.modules {
        let _ = writeln!(body, "<section class=\"module\"><h2 id=\"{module}\">{module}</h2>\n<ul class=\"names\">");
        for (name, entries) in &reference.directives {
            for entry in entries.iter().filter(|entry| entry.module == *module) {
                let (_, class) = support_of(entry);
                let link = if entries.len() > 1 {
                    format!("{}#{}", directive_url(name), entry.area.replace(' ', "-"))
                } else {
                    directive_url(name)
                };
                let _ = writeln!(body, "<li class=\"{class}\"><a href=\"{link}\">{name}</a></li>");
            }
        }
        body.push_str("</ul></section>\n");
        headings.push(Heading { level: 2, title: module.clone(), anchor: module.clone() });
    }
    let parts =
        vec![SearchPart { title: "Directives".into(), anchor: String::new(), text: reference.modules.join(" ") }];
    BookPage { url: INDEX_URL.into(), title: "Directives".into(), body, headings, parts }
}

fn variables(site: &Site, reference: &Reference) -> BookPage {
    let mut body = String::from(
        "<h1>Variables</h1>\n<p>Variables that exist without a directive. A name that ends with <code>NAME</code> is a family: \
         <code>$arg_page</code> is the argument <code>page</code>.</p>\n\
         <p><input id=\"filter\" type=\"search\" placeholder=\"Filter by name\" aria-label=\"Filter by name\" autocomplete=\"off\"></p>\n\
         <div class=\"table\" role=\"region\" aria-label=\"Table\" tabindex=\"0\"><table>\n<thead><tr><th>Variable</th><th>Value</th></tr></thead>\n<tbody>\n",
    );
    let mut seen = std::collections::HashSet::new();
    let mut parts = vec![SearchPart { title: "Variables".into(), anchor: String::new(), text: String::new() }];
    for variable in &reference.variables {
        let anchor = variable_anchor(&variable.name);
        let id = if seen.insert(anchor.clone()) { format!(" id=\"{anchor}\"") } else { String::new() };
        let doc = inline_html(site, VARIABLES_URL, "", &variable.doc);
        let settable = if variable.is_settable { " It may be set." } else { "" };
        let _ = writeln!(
            body,
            "<tr{id}><td><code>{}</code><small>{}</small></td><td>{}{settable}</td></tr>",
            escape_html(&variable.name),
            variable.area,
            doc.trim().trim_start_matches("<p>").trim_end_matches("</p>")
        );
        parts.push(SearchPart {
            title: variable.name.clone(),
            anchor,
            text: format!("{} {}", variable.area, variable.doc.replace('`', "")),
        });
    }
    body.push_str("</tbody></table></div>\n");
    BookPage { url: VARIABLES_URL.into(), title: "Variables".into(), body, headings: Vec::new(), parts }
}
