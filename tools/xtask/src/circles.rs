//! `cargo xtask circles`: files of a crate that import each other in a circle, the largest of each crate first.
//!
//! An arrow leads from a file to every file of its crate that it names by `crate::` or `super::`; a name re-exported by
//! `lib.rs` counts as its source file. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

pub const HELP: &str = "\
Usage: cargo xtask circles

Lists for each crate the largest set of files that import each other in a circle: name of the crate,
files in the circle, files of the crate. \"cargo xtask tidy\" refuses larger ones.

  cargo xtask circles
";

/// The largest circles that `tidy` lets stand, where they are larger than [`FILES_MAX`]: they may shrink, not grow.
const KNOWN: &[(&str, usize)] = &[("stream-features", 8)];
/// In other crates.
const FILES_MAX: usize = 3;

pub fn print_circles(_: &[String]) -> Result<(), String> {
    for (name, files, circle) in all() {
        if circle.len() > 1 {
            println!("{name:<18} {:>2} of {files:>2}  {}", circle.len(), circle.join(" "));
        }
    }
    Ok(())
}

pub fn circle_complaints() -> Vec<String> {
    let limit = |name: &str| KNOWN.iter().find(|(known, _)| *known == name).map_or(FILES_MAX, |(_, max)| *max);
    let grown = all().into_iter().filter(|(name, _, circle)| circle.len() > limit(name));
    grown
        .map(|(name, _, circle)| {
            format!("crates/{name}: {} files import each other in a circle, more than {}", circle.len(), limit(&name))
        })
        .collect()
}

fn all() -> Vec<(String, usize, Vec<String>)> {
    let mut found: Vec<_> = crate::crates::all_crates()
        .into_iter()
        .filter_map(|(name, folder)| {
            let modules = modules(&folder.join("src"));
            (!modules.is_empty()).then(|| (name, modules.len(), largest(&arrows(&modules))))
        })
        .collect();
    found.sort_by(|a, b| b.2.len().cmp(&a.2.len()).then_with(|| a.0.cmp(&b.0)));
    found
}

/// By module path, without tests.
fn modules(source: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![(source.to_path_buf(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            let name = if prefix.is_empty() { stem.clone() } else { format!("{prefix}::{stem}") };
            if path.is_dir() {
                folders.push((path, name));
            } else if let Some(text) = source_of(&path, &stem) {
                let module = match stem.as_str() {
                    "lib" | "main" if prefix.is_empty() => "crate".to_string(),
                    "mod" => prefix.clone(),
                    _ => name,
                };
                found.insert(module, text);
            }
        }
    }
    found
}

fn source_of(path: &PathBuf, stem: &str) -> Option<String> {
    if path.extension().is_none_or(|e| e != "rs") || stem.contains("test") {
        return None;
    }
    let text = fs::read_to_string(path).ok()?;
    let code = text.split("\n#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// Maps each module to the modules that it names.
fn arrows(modules: &BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let exported = modules.get("crate").map(|text| exports(text)).unwrap_or_default();
    let mut arrows = BTreeMap::new();
    for (module, text) in modules.iter().filter(|(module, _)| *module != "crate") {
        let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
        let mut to = BTreeSet::new();
        for (start, base) in [("crate::", ""), ("super::", parent)] {
            for (at, _) in text.match_indices(start) {
                for path in paths(&text[at + start.len()..]) {
                    let path = if base.is_empty() { path } else { format!("{base}::{path}") };
                    let first = path.split("::").next().unwrap_or_default();
                    let path = exported.get(first).cloned().unwrap_or(path);
                    to.extend(resolve(modules, &path).filter(|found| found != module));
                }
            }
        }
        arrows.insert(module.clone(), to);
    }
    arrows
}

/// By the names that `pub use module::{Name, ...}` of `lib.rs` exports.
fn exports(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (at, _) in text.match_indices("pub use ") {
        for path in paths(&text[at + 8..]) {
            if let Some((module, name)) = path.rsplit_once("::") {
                found.insert(name.to_string(), module.to_string());
            }
        }
    }
    found
}

/// Parses `a::b`, or `a::{b, c::d}`.
fn paths(text: &str) -> Vec<String> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(text.len());
    let (head, rest) = text.split_at(end);
    if !rest.starts_with('{') {
        return vec![head.trim_end_matches(':').to_string()];
    }
    let (mut depth, mut start, mut found) = (0, 1, Vec::new());
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 1 => {
                found.extend(paths(rest[start..at].trim()).into_iter().map(|tail| format!("{head}{tail}")));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// Longest prefix that is a module.
fn resolve(modules: &BTreeMap<String, String>, path: &str) -> impl Iterator<Item = String> {
    let mut path = path.trim_end_matches("::self").to_string();
    loop {
        if modules.contains_key(&path) {
            return Some(path).into_iter();
        }
        let Some((shorter, _)) = path.rsplit_once("::") else { return None.into_iter() };
        path = shorter.to_string();
    }
}

/// Largest strongly connected set of modules.
fn largest(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let reach = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            for to in arrows.get(at).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    open.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = arrows.keys().map(|module| (module, reach(module))).collect();
    let circle = |module: &String| -> Vec<String> {
        let mutual =
            reached[module].iter().filter(|other| reached.get(other).is_some_and(|back| back.contains(module)));
        mutual.cloned().collect()
    };
    arrows.keys().map(circle).max_by_key(Vec::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found_through_groups_and_exports() {
        let text = |text: &str| text.to_string();
        let modules: BTreeMap<String, String> = [
            ("crate", text("pub use a::{One, Two};\nmod a;")),
            ("a", text("use crate::b::{self, c::Three};")),
            ("b", text("use std::rc::Rc;")),
            ("b::c", text("use crate::One;\nuse super::super::d;")),
            ("d", text("use crate::a;")),
        ]
        .into_iter()
        .map(|(name, text)| (name.to_string(), text))
        .collect();
        let arrows = arrows(&modules);
        assert_eq!(arrows["a"].iter().collect::<Vec<_>>(), ["b", "b::c"]);
        assert_eq!(largest(&arrows), ["a", "b::c"]);
    }
}
