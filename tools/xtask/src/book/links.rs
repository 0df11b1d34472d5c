//! Addresses of the book: which document becomes which page, and where a link of a document leads.

use super::reference::{self, Reference};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Link targets, and faults found so far.
pub struct Site {
    root: PathBuf,
    /// By the page's address.
    anchors: HashMap<String, HashSet<String>>,
    /// By path in the repository.
    documents: BTreeMap<String, String>,
    directives: HashSet<String>,
    variables: HashSet<String>,
    copied: BTreeSet<String>,
    faults: Vec<String>,
}

impl Site {
    pub fn new(root: &Path, reference: &Reference) -> Site {
        Site {
            root: root.to_path_buf(),
            anchors: HashMap::new(),
            documents: BTreeMap::new(),
            directives: reference.names().map(str::to_string).collect(),
            variables: reference.variables.iter().map(|variable| variable.name.clone()).collect(),
            copied: BTreeSet::new(),
            faults: Vec::new(),
        }
    }

    pub fn add_document(&mut self, path: &str, anchors: Vec<String>) {
        let url = url_of(path);
        self.documents.insert(path.to_string(), url.clone());
        self.add_page(&url, anchors);
    }

    pub fn add_page(&mut self, url: &str, anchors: Vec<String>) {
        self.anchors.insert(url.to_string(), anchors.into_iter().collect());
    }

    pub fn fault(&mut self, text: String) {
        self.faults.push(text);
    }

    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// Returns the address of a directive's page, as seen from a page.
    pub fn directive(&self, name: &str, from: &str) -> Option<String> {
        self.directives.contains(name).then(|| relative_link(from, &reference::directive_url(name)))
    }

    /// Returns the address of a variable's row, as seen from a page. `$arg_NAME` and its like stand for a family.
    pub fn variable(&self, name: &str, from: &str) -> Option<String> {
        let known = self.variables.get(name)?;
        Some(format!("{}#{}", relative_link(from, reference::VARIABLES_URL), reference::variable_anchor(known)))
    }

    /// Returns the address for a link of a document; `None` if the target is shown without one (a folder). A target that does
    /// not exist is a fault.
    pub fn resolve(&mut self, document: &str, target: &str) -> Option<String> {
        if target.contains("://") || target.starts_with("mailto:") {
            return Some(target.to_string());
        }
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let from = url_of(document);
        let path = if path.is_empty() { document.to_string() } else { joined(document, path) };
        let url = match self.documents.get(&path) {
            Some(url) => url.clone(),
            None if path == reference::INDEX => reference::INDEX_URL.to_string(),
            None if self.root.join(&path).is_file() => {
                self.copied.insert(path.clone());
                return Some(relative_link(&from, &format!("files/{path}")));
            }
            None if self.root.join(&path).is_dir() => return None,
            None => {
                self.fault(format!("{document}: the link {target} leads nowhere"));
                return None;
            }
        };
        if anchor.is_empty() {
            return Some(relative_link(&from, &url));
        }
        if !self.anchors.get(&url).is_some_and(|anchors| anchors.contains(anchor)) {
            self.fault(format!("{document}: {target}: {path} has no heading #{anchor}"));
        }
        Some(format!("{}#{anchor}", relative_link(&from, &url)))
    }

    /// Reads the files that pages link to.
    ///
    /// # Errors
    /// The first file that cannot be read.
    pub fn copies(&self) -> Result<Vec<(String, Vec<u8>)>, String> {
        let read = |path: &String| {
            let bytes = std::fs::read(self.root.join(path)).map_err(|e| format!("{path}: {e}"))?;
            Ok((format!("files/{path}"), bytes))
        };
        self.copied.iter().map(read).collect()
    }
}

/// Returns the address of a document's page: `docs/` is the book's root, README.md its first page.
pub fn url_of(document: &str) -> String {
    if document == "README.md" {
        return "index.html".to_string();
    }
    let name = document.strip_prefix("docs/").unwrap_or(document);
    let name = name.strip_suffix(".md").unwrap_or(name);
    // Names of root documents are in capitals.
    if name.chars().all(|c| !c.is_lowercase()) {
        format!("{}.html", name.to_lowercase())
    } else {
        format!("{name}.html")
    }
}

fn joined(document: &str, link: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Both are addresses from the book's root.
pub fn relative_link(from: &str, to: &str) -> String {
    let up = from.matches('/').count();
    format!("{}{to}", "../".repeat(up))
}
