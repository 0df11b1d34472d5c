//! `cargo xtask circles`: files, and top modules, of a crate that import each other in a circle, the largest of each crate.
//!
//! An arrow leads from a file to every file of its crate that it names by `crate::` or `super::`; a name re-exported by
//! `lib.rs` counts as its source file. A top module is a file or folder of `src`, with the arrows of all its files to
//! other top modules. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

pub const HELP: &str = "\
Usage: cargo xtask circles

Lists for each crate the largest set of files that import each other in a circle, then the largest set of
top modules (files and folders of src): name of the crate, members of the circle, files or top modules of
the crate. \"cargo xtask tidy\" refuses larger ones.

  cargo xtask circles
";

/// Members of the largest circle of a crate, of files and of top modules.
const CIRCLE_MAX: usize = 3;
/// Larger circles that `tidy` lets stand: they may shrink, not grow.
const KNOWN_FILES: &[(&str, usize)] = &[("controller", 5)];
/// As [`KNOWN_FILES`], of top modules.
const KNOWN_FOLDERS: &[(&str, usize)] = &[("load", 6)];

struct CrateCircles {
    name: String,
    files: Circle,
    folders: Circle,
}

/// The largest circle of `count` files or top modules.
struct Circle {
    count: usize,
    members: Vec<String>,
}

impl Circle {
    fn of(arrows: &BTreeMap<String, BTreeSet<String>>) -> Circle {
        Circle { count: arrows.len(), members: largest(arrows) }
    }
}

pub fn print_circles(_: &[String]) -> Result<(), String> {
    let all = all_circles();
    print_table("Files", &all, |circles| &circles.files);
    print_table("Top modules", &all, |circles| &circles.folders);
    Ok(())
}

fn print_table(title: &str, all: &[CrateCircles], circle: impl Fn(&CrateCircles) -> &Circle) {
    println!("{title}:");
    let mut rows: Vec<_> = all.iter().map(|circles| (&circles.name, circle(circles))).collect();
    rows.sort_by_key(|(name, circle)| (std::cmp::Reverse(circle.members.len()), *name));
    for (name, Circle { count, members }) in rows.into_iter().filter(|(_, circle)| circle.members.len() > 1) {
        println!("  {name:<18} {:>2} of {count:>2}  {}", members.len(), members.join(" "));
    }
}

pub fn circle_complaints() -> Vec<String> {
    let mut complaints = Vec::new();
    for CrateCircles { name, files, folders } in all_circles() {
        for (kind, circle, known) in [("files", files, KNOWN_FILES), ("top modules", folders, KNOWN_FOLDERS)] {
            let limit = known.iter().find(|(known, _)| *known == name).map_or(CIRCLE_MAX, |(_, max)| *max);
            let size = circle.members.len();
            if size > limit {
                complaints.push(format!(
                    "crates/{name}: {size} {kind} import each other in a circle, more than {limit}; see cargo xtask circles"
                ));
            }
        }
    }
    complaints
}

fn all_circles() -> Vec<CrateCircles> {
    let circles = |(name, folder): (String, PathBuf)| {
        let arrows = arrows(&modules(&folder.join("src")));
        CrateCircles { name, files: Circle::of(&arrows), folders: Circle::of(&between_tops(&arrows)) }
    };
    crate::crates::all_crates().into_iter().map(circles).collect()
}

/// Joins the arrows of all modules below a top module.
fn between_tops(arrows: &BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    let top = |module: &str| module.split("::").next().unwrap_or_default().to_string();
    let mut joined: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, to) in arrows {
        let from = top(from);
        let others = to.iter().map(|to| top(to)).filter(|to| *to != from).collect::<Vec<_>>();
        joined.entry(from).or_default().extend(others);
    }
    joined
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
            if path.is_dir() && !stem.contains("test") {
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
    Some(code_lines(&fs::read_to_string(path).ok()?))
}

/// Leaves out comments and the module of tests at the end; `#[cfg(test)] mod name;` hides nothing behind it.
fn code_lines(text: &str) -> String {
    let is_module =
        |rest: &str| rest.lines().find(|line| !line.starts_with('#')).is_some_and(|line| line.ends_with('{'));
    let mut ends = text.match_indices("\n#[cfg(test)]\n").map(|(at, mark)| (at, &text[at + mark.len()..]));
    let end = ends.find(|(_, rest)| is_module(rest)).map_or(text.len(), |(at, _)| at);
    let lines = text[..end].lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
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

    #[test]
    fn tests_end_the_code_and_their_files_do_not() {
        let text = "mod a;\n#[cfg(test)]\nmod testing;\n// crate::c\nuse crate::b;\n\n#[cfg(test)]\nmod tests {\n    use crate::d;\n}\n";
        let code = code_lines(text);
        assert!(code.contains("crate::b") && !code.contains("crate::c") && !code.contains("crate::d"), "{code}");
    }

    #[test]
    fn top_modules_have_the_arrows_of_their_files() {
        let text = |text: &str| text.to_string();
        let modules: BTreeMap<String, String> = [
            ("a::inner", text("use crate::b::deep::Two;")),
            ("b", text("")),
            ("b::deep", text("use super::other;\nuse crate::c;")),
            ("b::other", text("")),
            ("c", text("use crate::a::inner;")),
            ("d", text("use crate::a;")),
        ]
        .into_iter()
        .map(|(name, text)| (name.to_string(), text))
        .collect();
        let arrows = arrows(&modules);
        assert!(largest(&arrows).len() == 3 && arrows.len() == 6);
        let tops = between_tops(&arrows);
        assert_eq!(tops["b"].iter().collect::<Vec<_>>(), ["c"]);
        assert_eq!(Circle::of(&tops).members, ["a", "b", "c"]);
    }
}
