//! `cargo xtask book`: the documents and the reference as static pages, with a search that needs no server.
//!
//! Markdown becomes HTML in `markdown.rs`, the directive tables in `reference.rs`, both inside the frame of `frame.rs`. Every link
//! is resolved here: to a page, to a copied file of the repository, or to an error. No page refers to another host's resources.

mod frame;
mod highlight;
mod links;
mod markdown;
mod reference;
mod search;

use crate::server_program::{build_server, target_folder};
use links::Site;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HELP: &str = "\
Usage: cargo xtask book [--out DIR]

Writes the documents and a page per directive as a static site with search, and fails on dead links.

  --out DIR   directory of the site (default: target/book)

  cargo xtask book && tidegate serve target/book
";

/// A section of the navigation: title, documents in order. A name that ends with `/` stands for all documents of a folder.
const SECTIONS: &[(&str, &[&str])] = &[
    ("Start", &["README.md", "docs/operations.md"]),
    ("Recipes", &["docs/recipes/"]),
    (
        "Coming from",
        &[
            "docs/replace-nginx.md",
            "docs/from-nginx-plus.md",
            "docs/apache.md",
            "docs/from-caddy.md",
            "docs/from-haproxy.md",
            "docs/from-ingress-nginx.md",
        ],
    ),
    (
        "Reference",
        &[
            "docs/reference.md",
            "docs/variables",
            "docs/compatibility.md",
            "docs/lint.md",
            "docs/dashboard.md",
            "docs/metrics.md",
            "docs/grafana.md",
            "docs/tracing.md",
            "docs/mail.md",
            "docs/certificates.md",
            "docs/api.md",
            "docs/one-to-many.md",
            "docs/many-nodes.md",
            "docs/waf.md",
            "docs/dns.md",
            "docs/kubernetes.md",
            "docs/containers.md",
        ],
    ),
    ("Measure", &["docs/bench.md", "docs/bench-from-others.md", "docs/lab.md", "docs/plan.md", "docs/top.md"]),
    (
        "Trust",
        &[
            "SECURITY.md",
            "docs/attacks.md",
            "docs/conformance.md",
            "docs/hardening.md",
            "docs/dependencies.md",
            "docs/release.md",
            "CHANGELOG.md",
        ],
    ),
    (
        "Develop",
        &[
            "ARCHITECTURE.md",
            "CONTRIBUTING.md",
            "docs/adding.md",
            "docs/lexicon.md",
            "docs/upstream/quinn-proto-idle.md",
        ],
    ),
    ("Decisions", &["docs/decisions/"]),
];

const ASSETS: &[(&str, &str)] =
    &[("style.css", include_str!("assets/style.css")), ("script.js", include_str!("assets/script.js"))];

pub fn build_book(arguments: &[String]) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().map_err(|e| e.to_string())?;
    let out = match arguments {
        [] => target_folder().join("book"),
        [flag, folder] if flag == "--out" => PathBuf::from(folder),
        _ => return Err("unknown arguments; see cargo xtask book --help".to_string()),
    };
    let reference = reference::read_reference(&tables()?)?;
    let pages = build(&root, &reference)?;
    // Removes stale pages of an earlier book, but empties no other folder.
    if out.join("search-index.js").is_file() {
        fs::remove_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    } else if fs::read_dir(&out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!("{} is not empty and holds no book", out.display()));
    }
    let mut words = 0;
    for (path, bytes) in &pages {
        let path = out.join(path);
        let folder = path.parent().unwrap_or(&out);
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
        words += usize::from(path.extension().is_some_and(|end| end == "html"));
    }
    println!("{words} pages in {}; look at them with: tidegate serve {}", out.display(), out.display());
    Ok(())
}

/// As the program prints them.
fn tables() -> Result<String, String> {
    let server = build_server()?;
    let output =
        Command::new(&server).args(["reference", "json"]).output().map_err(|e| format!("{}: {e}", server.display()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Returns all files of the book, by path. All faults of links are reported together.
fn build(root: &Path, reference: &reference::Reference) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut site = Site::new(root, reference);
    let sections = sections(root)?;
    let mut documents = Vec::new();
    for document in sections.iter().flat_map(|(_, documents)| documents) {
        // Both pages are generated from the tables.
        if document == reference::INDEX || document == reference::VARIABLES {
            continue;
        }
        let text = fs::read_to_string(root.join(document)).map_err(|e| format!("{document}: {e}"))?;
        site.add_document(document, markdown::list_headings(&text));
        documents.push((document.clone(), text));
    }
    reference::add_reference(&mut site, reference);
    let mut pages = Vec::new();
    for (document, text) in &documents {
        pages.push(markdown::document_page(&mut site, document, text));
    }
    pages.extend(reference::reference_pages(&mut site, reference));
    let faults = site.faults();
    if !faults.is_empty() {
        return Err(format!("{} faults:\n{}", faults.len(), faults.join("\n")));
    }
    let navigation = frame::Navigation::new(&sections, &pages);
    let mut files: Vec<(String, Vec<u8>)> =
        pages.iter().map(|page| (page.url.clone(), navigation.frame(page).into_bytes())).collect();
    files.push(("search-index.js".into(), search::search_index(&pages).into_bytes()));
    files.extend(ASSETS.iter().map(|(name, text)| ((*name).to_string(), text.as_bytes().to_vec())));
    files.extend(site.copies()?);
    let mut seen = HashSet::new();
    match files.iter().find(|(name, _)| !seen.insert(name.as_str())) {
        Some((name, _)) => Err(format!("two pages have the address {name}")),
        None => Ok(files),
    }
}

/// Returns the sections with the documents of folders written out. A document that no section names is an error.
fn sections(root: &Path) -> Result<Vec<(&'static str, Vec<String>)>, String> {
    let mut sections = Vec::new();
    for (title, names) in SECTIONS {
        let mut documents = Vec::new();
        for name in *names {
            match name.strip_suffix('/') {
                Some(folder) => documents.extend(markdown_in(root, folder)),
                None => documents.push((*name).to_string()),
            }
        }
        sections.push((*title, documents));
    }
    let is_named = |document: &String| sections.iter().any(|(_, documents)| documents.contains(document));
    match markdown_in(root, "docs").into_iter().find(|document| !is_named(document)) {
        Some(document) => {
            Err(format!("{document} is in no section: add it to SECTIONS in tools/xtask/src/book/mod.rs"))
        }
        None => Ok(sections),
    }
}

/// Sorted; `index.md` first.
fn markdown_in(root: &Path, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
    let mut found: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("{folder}/{name}"))
        .collect();
    found.sort_by_key(|name| (!name.ends_with("/index.md"), name.clone()));
    found
}

#[cfg(test)]
mod tests;
