//! `cargo xtask names`: counts names that a search does not find, and those that say nothing at their place of use.
//!
//! CONTRIBUTING.md states the rules. Free functions, types and tests count where they begin a line without indentation (tests: at
//! any indentation); methods do not, because their type says the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub const HELP: &str = "\
Usage: cargo xtask names [--list]

Counts the names of public free functions, types and tests against the limits that \"cargo xtask
tidy\" holds: functions of one word and those imported without their module, types of one name in more
than three files, participles as types, tests of one word or with a pronoun in front.

  --list   print each such name with its file

  cargo xtask names
  cargo xtask names --list
";

/// Public free functions of one word, in percent of all. They are called with their module (`clock::now`).
const ONE_WORD_PERCENT_MAX: usize = 35;
/// Files of a type's name beyond which it is a common one, and the number of common names.
const FILES_OF_A_TYPE_MAX: usize = 3;
const COMMON_TYPES_MAX: usize = 15;
/// First words of a test's name that replace the subject.
const PRONOUNS: &[&str] = &["what", "who", "whom", "it", "they", "this", "that", "those", "these"];
/// Irregular participles. Nouns of equal form (`Set`, `Put`, `Read`, `Run`, `Split`) are none.
const IRREGULAR: &[&str] = &[
    "Begun", "Bound", "Built", "Chosen", "Done", "Drawn", "Found", "Given", "Gone", "Held", "Hidden", "Kept", "Known",
    "Laid", "Left", "Lost", "Made", "Met", "Said", "Seen", "Sent", "Shown", "Shut", "Spent", "Spoken", "Taken",
    "Thrown", "Told", "Torn", "Written",
];
/// Nouns that end as participles do.
const NOUNS: &[&str] = &[
    "Binding", "Coding", "Encoding", "Finding", "Heading", "Listing", "Packing", "Reading", "Ring", "Routing", "Seed",
    "Setting", "Speed", "String", "Timing", "Warning",
];

/// Names of the tree, each with its file.
#[derive(Debug, Default)]
struct NameCensus {
    functions: Vec<(String, String)>,
    types: BTreeMap<String, BTreeSet<String>>,
    participles: Vec<(String, String)>,
    tests: usize,
    vague_tests: Vec<(String, String)>,
    bare_imports: Vec<(String, String)>,
}

pub fn print_names(arguments: &[String]) -> Result<(), String> {
    let is_list = match arguments {
        [] => false,
        [option] if option == "--list" => true,
        [other, ..] => return Err(format!("unknown argument \"{other}\"; see --help")),
    };
    let census = take_census(&crate::tidy::rust_sources());
    let one_word: Vec<_> = census.functions.iter().filter(|(name, _)| is_one_word(name)).collect();
    let common = common_types(&census);
    println!(
        "public free functions     {:>5}, of one word {} ({} %, at most {ONE_WORD_PERCENT_MAX})",
        census.functions.len(),
        one_word.len(),
        percent(one_word.len(), census.functions.len())
    );
    println!("  imported by themselves  {:>5} (none)", census.bare_imports.len());
    println!("types in over {FILES_OF_A_TYPE_MAX} files     {:>5} (at most {COMMON_TYPES_MAX})", common.len());
    println!("participles as types      {:>5} (none)", census.participles.len());
    println!(
        "tests                     {:>5}, of one word or with a pronoun in front {} (none)",
        census.tests,
        census.vague_tests.len()
    );
    if is_list {
        for (name, file) in &one_word {
            println!("function    {name:<24} {file}");
        }
        for (name, files) in common {
            println!("type        {name:<24} {}", files.iter().map(String::as_str).collect::<Vec<_>>().join(" "));
        }
        for (kind, found) in
            [("import", &census.bare_imports), ("participle", &census.participles), ("test", &census.vague_tests)]
        {
            found.iter().for_each(|(name, file)| println!("{kind:<11} {name:<24} {file}"));
        }
    }
    Ok(())
}

/// Reports each limit that the names pass. `sources`: paths with their texts.
pub fn name_complaints(sources: &[(String, String)]) -> Vec<String> {
    let census = take_census(sources);
    let mut complaints = Vec::new();
    let one_word = census.functions.iter().filter(|(name, _)| is_one_word(name)).count();
    if percent(one_word, census.functions.len()) > ONE_WORD_PERCENT_MAX {
        complaints.push(format!(
            "{one_word} of {} public free functions have a name of one word, more than {ONE_WORD_PERCENT_MAX} % (cargo xtask names --list)",
            census.functions.len()
        ));
    }
    let common = common_types(&census);
    if common.len() > COMMON_TYPES_MAX {
        complaints.push(format!(
            "{} type names stand in more than {FILES_OF_A_TYPE_MAX} files each, at most {COMMON_TYPES_MAX} may: {}",
            common.len(),
            common.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
        ));
    }
    let each = |found: &[(String, String)], words: &str| -> Vec<String> {
        found.iter().map(|(name, file)| format!("{file}: {name}: {words}")).collect()
    };
    complaints.extend(each(&census.bare_imports, "a function of one word is called with its module"));
    complaints.extend(each(&census.participles, "a participle as a type; name the thing (CONTRIBUTING.md)"));
    complaints.extend(each(&census.vague_tests, "a test's name says the rule, with its subject"));
    complaints
}

fn take_census(sources: &[(String, String)]) -> NameCensus {
    let mut census = NameCensus::default();
    for (path, text) in sources.iter().filter(|(path, _)| !path.starts_with("fuzz/")) {
        count_tests(path, text, &mut census);
        if !path.contains("/src/") {
            continue;
        }
        for line in text.lines() {
            if let Some(name) = public_function(line) {
                census.functions.push((name.to_owned(), path.clone()));
            } else if let Some(name) = type_name(line) {
                census.types.entry(name.to_owned()).or_default().insert(path.clone());
                if is_participle(name) {
                    census.participles.push((name.to_owned(), path.clone()));
                }
            }
        }
    }
    let mut known: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, file) in census.functions.iter().filter(|(name, _)| is_one_word(name)) {
        known.entry(name).or_default().insert(module_name(file));
    }
    let mut bare = Vec::new();
    for (path, text) in sources {
        for (module, name) in imported_names(text) {
            // Bodies of fuzz targets have the targets' names.
            if module != "fuzzing" && known.get(name.as_str()).is_some_and(|modules| modules.contains(&module)) {
                bare.push((format!("{module}::{name}"), path.clone()));
            }
        }
    }
    census.bare_imports = bare;
    census
}

/// Types of one name in more files than [`FILES_OF_A_TYPE_MAX`], the most frequent first.
fn common_types(census: &NameCensus) -> Vec<(&String, &BTreeSet<String>)> {
    let mut common: Vec<_> = census.types.iter().filter(|(_, files)| files.len() > FILES_OF_A_TYPE_MAX).collect();
    common.sort_by_key(|(_, files)| std::cmp::Reverse(files.len()));
    common
}

fn count_tests(path: &str, text: &str, census: &mut NameCensus) {
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            is_test |= line == concat!("#[", "test]");
        } else {
            if is_test && let Some(name) = line.strip_prefix("fn ").and_then(first_word) {
                census.tests += 1;
                let is_vague = is_one_word(name) || name.split('_').next().is_some_and(|word| PRONOUNS.contains(&word));
                if is_vague {
                    census.vague_tests.push((name.to_owned(), path.to_owned()));
                }
            }
            is_test = false;
        }
    }
}

/// Name of a function that begins at this line and that every crate may call; `main` is no name.
fn public_function(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("pub ")?;
    for word in ["const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    first_word(rest.strip_prefix("fn ")?).filter(|name| *name != "main")
}

/// Name of a type that begins at this line.
fn type_name(line: &str) -> Option<&str> {
    let mut rest = line;
    if let Some(after) = rest.strip_prefix("pub") {
        rest = match after.strip_prefix('(') {
            Some(inner) => inner.split_once(')')?.1,
            None => after,
        }
        .trim_start();
    }
    ["struct ", "enum ", "trait ", "type ", "union "]
        .iter()
        .find_map(|word| rest.strip_prefix(word))
        .and_then(first_word)
}

fn first_word(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    text.get(..end).filter(|word| !word.is_empty())
}

fn is_one_word(name: &str) -> bool {
    !name.contains('_')
}

/// Tells a type's name of one word that is a participle.
fn is_participle(name: &str) -> bool {
    let is_one_word = name.chars().skip(1).all(|c| !c.is_uppercase());
    is_one_word
        && !NOUNS.contains(&name)
        && (name.ends_with("ed") || name.ends_with("ing") || IRREGULAR.contains(&name))
}

/// Name of the module that a file is: its folder's for `mod.rs`, its crate's for `lib.rs`.
fn module_name(path: &str) -> String {
    let path = Path::new(path);
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    match stem.as_str() {
        "lib" | "main" => crate::crates::crate_of(path).map(|(name, _)| name.replace('-', "_")).unwrap_or_default(),
        "mod" => {
            path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        }
        _ => stem,
    }
}

/// Names in lower case that `use` declarations import, each with the module in front.
fn imported_names(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut declaration = String::new();
    for line in text.lines().map(str::trim) {
        let is_begin = line.starts_with("use ") || line.starts_with("pub use ");
        if declaration.is_empty() && !is_begin {
            continue;
        }
        declaration.push_str(line);
        if line.ends_with(';') {
            let path = declaration.trim_start_matches("pub ").trim_start_matches("use ").trim_end_matches(';');
            collect_imports(path, "", &mut found);
            declaration.clear();
        }
    }
    found
}

fn collect_imports(tree: &str, module: &str, found: &mut Vec<(String, String)>) {
    let (head, group) = match tree.split_once('{') {
        Some((head, group)) => (head, group.strip_suffix('}')),
        None => (tree, None),
    };
    let mut parts: Vec<&str> = head.split("::").map(str::trim).filter(|part| !part.is_empty()).collect();
    let Some(group) = group else {
        let leaf = parts.pop().unwrap_or_default();
        let name = leaf.split(' ').next().unwrap_or_default();
        let module = parts.last().copied().unwrap_or(module);
        if name.starts_with(|c: char| c.is_ascii_lowercase()) {
            found.push((module.to_owned(), name.to_owned()));
        }
        return;
    };
    let module = parts.last().copied().unwrap_or(module);
    let (mut depth, mut start) = (0usize, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                collect_imports(group[start..at].trim(), module, found);
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = group[start..].trim();
    if !last.is_empty() {
        collect_imports(last, module, found);
    }
}

fn percent(part: usize, whole: usize) -> usize {
    (part * 100).checked_div(whole).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn census(text: &str) -> NameCensus {
        take_census(&[("crates/platform/base/src/clock.rs".to_owned(), text.to_owned())])
    }

    #[test]
    fn functions_of_one_word_are_counted_where_they_are_public() {
        let found = census("pub fn now() {}\npub const fn read_clock() {}\nfn later() {}\n    pub fn method() {}\n");
        let names: Vec<&str> = found.functions.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["now", "read_clock"]);
    }

    #[test]
    fn functions_of_one_word_are_not_imported_by_themselves() {
        let found = census("use crate::clock::{now, Instant};\nuse super::clock;\npub fn now() {}\n");
        assert_eq!(found.bare_imports, [("clock::now".to_owned(), "crates/platform/base/src/clock.rs".to_owned())]);
        assert!(census("use base::clock::{self, read_clock};\npub fn now() {}\n").bare_imports.is_empty());
    }

    #[test]
    fn participles_are_no_types() {
        let found =
            census("pub struct Kept;\npub(crate) enum Waiting { A }\nstruct Warning;\npub type KeptKey = u8;\n");
        let names: Vec<&str> = found.participles.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Kept", "Waiting"]);
    }

    #[test]
    fn tests_have_a_subject() {
        let attribute = concat!("#[", "test]\n");
        let text = format!(
            "{attribute}fn what_is_read() {{}}\n{attribute}fn smoke() {{}}\n{attribute}fn times_are_read() {{}}\n"
        );
        let found = census(&text);
        assert_eq!((found.tests, found.vague_tests.len()), (3, 2));
    }
}
