//! The frame of every page: head, bar with search and switch, navigation, contents of the page.

use super::highlight::escape_html;
use super::links::{relative_link, url_of};
use super::reference;
use super::search::SearchPart;
use std::fmt::Write;

pub struct Heading {
    pub level: usize,
    pub title: String,
    pub anchor: String,
}

pub struct BookPage {
    /// From the book's root.
    pub url: String,
    pub title: String,
    pub body: String,
    pub headings: Vec<Heading>,
    /// For the search.
    pub parts: Vec<SearchPart>,
}

/// The sections with the addresses and titles of their pages.
pub struct Navigation {
    sections: Vec<(&'static str, Vec<(String, String)>)>,
}

/// Longer lists are left out: a table of directives has hundreds of headings.
const CONTENTS_MAX: usize = 40;

/// Sets the theme before the first paint, so that a page does not flash.
const EARLY_SCRIPT: &str =
    "try{var t=localStorage.getItem('theme');if(t)document.documentElement.dataset.theme=t}catch(e){}";

impl Navigation {
    pub fn new(sections: &[(&'static str, Vec<String>)], pages: &[BookPage]) -> Navigation {
        let title = |url: &str| {
            let page = pages.iter().find(|page| page.url == url);
            page.map_or_else(|| url.to_string(), |page| page.title.clone())
        };
        let entry = |document: &String| {
            let url = match document.as_str() {
                reference::INDEX => reference::INDEX_URL.to_string(),
                reference::VARIABLES => reference::VARIABLES_URL.to_string(),
                document => url_of(document),
            };
            let title = if url == "index.html" { "Overview".to_string() } else { title(&url) };
            (url, title)
        };
        let sections =
            sections.iter().map(|(name, documents)| (*name, documents.iter().map(entry).collect())).collect();
        Navigation { sections }
    }

    pub fn frame(&self, page: &BookPage) -> String {
        let home = relative_link(&page.url, "");
        let title = escape_html(&page.title);
        let name = if page.url == "index.html" { title.clone() } else { format!("{title} · Tidegate") };
        format!(
            "<!doctype html>\n<html lang=\"en\" data-root=\"{home}\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{name}</title>\n<link rel=\"icon\" href=\"data:,\">\n<script>{EARLY_SCRIPT}</script>\n\
             <link rel=\"stylesheet\" href=\"{home}style.css\">\n</head>\n<body>\n\
             <a class=\"skip\" href=\"#main\">Skip to the text</a>\n\
             <header>\n<button id=\"menu\" aria-label=\"Contents\" aria-expanded=\"false\" aria-controls=\"nav\">☰</button>\n\
             <a class=\"home\" href=\"{home}index.html\">Tidegate</a>\n\
             <div class=\"search\" role=\"search\"><input id=\"search\" type=\"search\" placeholder=\"Search (press /)\" aria-label=\"Search\" \
             autocomplete=\"off\" spellcheck=\"false\"><ol id=\"results\" hidden></ol></div>\n\
             <button id=\"theme\" aria-label=\"Light or dark\">◐</button>\n</header>\n\
             <div class=\"columns\">\n<nav id=\"nav\" aria-label=\"Pages\">\n{navigation}</nav>\n<main id=\"main\">\n{body}</main>\n{contents}</div>\n\
             <script src=\"{home}script.js\"></script>\n</body>\n</html>\n",
            navigation = self.list(&page.url),
            body = page.body,
            contents = contents(page),
        )
    }

    /// Opens the section of the current page.
    fn list(&self, current: &str) -> String {
        let mut out = String::new();
        for (name, pages) in &self.sections {
            let is_here = pages.iter().any(|(url, _)| url == current)
                || (*name == "Reference" && current.starts_with(reference::FOLDER));
            let is_open = is_here || matches!(*name, "Start" | "Recipes");
            let open = if is_open { " open" } else { "" };
            let _ = write!(out, "<details{open}><summary>{name}</summary><ul>");
            for (url, title) in pages {
                let mark = if url == current { " aria-current=\"page\"" } else { "" };
                let _ = write!(
                    out,
                    "<li><a href=\"{}\"{mark}>{}</a></li>",
                    relative_link(current, url),
                    escape_html(title)
                );
            }
            out.push_str("</ul></details>\n");
        }
        out
    }
}

/// For wide windows.
fn contents(page: &BookPage) -> String {
    let listed: Vec<&Heading> = page.headings.iter().filter(|heading| matches!(heading.level, 2 | 3)).collect();
    let listed: Vec<&Heading> = if listed.len() > CONTENTS_MAX {
        listed.into_iter().filter(|heading| heading.level == 2).collect()
    } else {
        listed
    };
    if listed.len() < 2 {
        return "<aside></aside>\n".to_string();
    }
    let mut out = String::from("<aside aria-label=\"On this page\"><h2>On this page</h2><ul>");
    for heading in listed {
        let _ = write!(
            out,
            "<li class=\"level{}\"><a href=\"#{}\">{}</a></li>",
            heading.level,
            heading.anchor,
            escape_html(&heading.title)
        );
    }
    out.push_str("</ul></aside>\n");
    out
}
