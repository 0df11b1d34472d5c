//! Part of `cargo xtask tidy`: the files that documents name exist, and so do the constants of docs/attacks.md, with their values.

use crate::wording;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Folders that documents name files in.
const FOLDERS: &[&str] = &["benches", "crates", "docs", "examples", "fuzz", "packaging", "tests", "tools"];
const LIMITS: &str = "docs/attacks.md";

/// `sources` are the Rust files below crates/, tools/ and fuzz/.
pub fn place_complaints(sources: &[(String, String)]) -> Vec<String> {
    let mut paths: Vec<String> = FOLDERS.iter().map(ToString::to_string).collect();
    FOLDERS.iter().for_each(|folder| collect(Path::new(folder), &mut paths));
    let mut out = Vec::new();
    for document in wording::written_documents() {
        let text = fs::read_to_string(&document).unwrap_or_default();
        let missing = named(&text).into_iter().filter(|name| !paths.iter().any(|path| ends_with(path, name)));
        out.extend(missing.map(|name| format!("{document}: there is no file {name}")));
    }
    let limits = fs::read_to_string(LIMITS).unwrap_or_default();
    let constants = constants(sources);
    for (name, value) in stated(&limits) {
        match (constants.get(name), value) {
            (None, _) => out.push(format!("{LIMITS}: there is no constant {name}")),
            // A limit of ten changes may be a counter that starts at eleven.
            (Some(known), Some(value))
                if !known.iter().any(|own| [None, Some(value), Some(value + 1)].contains(own)) =>
            {
                out.push(format!("{LIMITS}: {name} is {known:?}, not {value}"));
            }
            _ => {}
        }
    }
    out
}

/// Files and folders.
fn collect(folder: &Path, out: &mut Vec<String>) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        out.push(path.display().to_string());
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target" && name != "corpus") {
            collect(&path, out);
        }
    }
}

fn ends_with(path: &str, name: &str) -> bool {
    path.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

/// Returns the words in backquotes that are paths of this project: sources and cases, and paths from its root.
fn named(text: &str) -> Vec<&str> {
    let words = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_path = |word: &&str| {
        let from_root = word.split_once('/').is_some_and(|(first, _)| FOLDERS.contains(&first));
        let is_source = word.ends_with(".rs") || word.ends_with(".case");
        let plain = word.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_./".contains(&c));
        plain && !word.starts_with(['.', '/']) && (from_root || is_source)
    };
    words.filter(is_path).map(|word| word.trim_end_matches('/')).collect()
}

/// Returns constants and the numbers behind them: "`NODES_MAX` (256)".
fn stated(text: &str) -> Vec<(&str, Option<u64>)> {
    let parts: Vec<&str> = text.split('`').collect();
    let is_constant = |word: &str| {
        word.ends_with("_MAX") && word.bytes().all(|c| c.is_ascii_uppercase() || b"_0123456789".contains(&c))
    };
    let pairs = parts.iter().enumerate().skip(1).step_by(2).filter(|(_, word)| is_constant(word));
    pairs.map(|(at, word)| (*word, parts.get(at + 1).and_then(|rest| number(rest.strip_prefix(" (")?)))).collect()
}

/// "1,024 keys", "64 KB".
fn number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(text.len());
    let value: u64 = text[..end].replace(',', "").parse().ok()?;
    let unit = text[end..].trim_start();
    Some(match () {
        () if unit.starts_with("KB") => value << 10,
        () if unit.starts_with("MB") => value << 20,
        // Times are not compared.
        () if unit.starts_with('s') => return None,
        () => value,
    })
}

/// Returns the values of constants by name; `None` for an expression that is no product.
fn constants(sources: &[(String, String)]) -> BTreeMap<&str, Vec<Option<u64>>> {
    let mut found: BTreeMap<&str, Vec<Option<u64>>> = BTreeMap::new();
    for (_, text) in sources {
        for rest in text.split("const ").skip(1) {
            let Some((name, rest)) = rest.split_once(':') else { continue };
            let Some((_, value)) = rest.split_once(';').and_then(|(line, _)| line.split_once('=')) else { continue };
            found.entry(name).or_default().push(product(value));
        }
    }
    found
}

fn product(text: &str) -> Option<u64> {
    if let Some((value, bits)) = text.split_once("<<") {
        return Some(product(value)? << product(bits)?);
    }
    text.split('*').map(|factor| factor.trim().replace('_', "").parse::<u64>().ok()).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_the_end_of_their_path() {
        let text = "See `a/src/b.rs`, `tests/cases/c.case`, `/etc/x.rs`, `crates/a/`, `nginx.conf` and `B::c`.";
        assert_eq!(named(text), ["a/src/b.rs", "tests/cases/c.case", "crates/a"]);
        assert!(ends_with("crates/a/src/b.rs", "a/src/b.rs") && ends_with("b.rs", "b.rs"));
        assert!(!ends_with("crates/aa/src/b.rs", "a/src/b.rs"));
    }

    #[test]
    fn limits_are_compared_with_constants() {
        let sources =
            [("x".to_string(), "pub const A_MAX: usize = 64 * 1024;\nconst B_MAX: u64 = 1 << 20;".to_string())];
        let known = constants(&sources);
        assert_eq!((&known["A_MAX"], &known["B_MAX"]), (&vec![Some(65_536)], &vec![Some(1 << 20)]));
        let text = "`A_MAX` (64 KB a thread), `B_MAX`, `C_MAX` (1,024)";
        assert_eq!(stated(text), [("A_MAX", Some(65_536)), ("B_MAX", None), ("C_MAX", Some(1024))]);
    }
}
