//! Part of `cargo xtask tidy`: counts comment and documentation lines whose opening hides the subject.
//!
//! CONTRIBUTING.md states the rule for English. Counts are per crate, per tool and per document. Each has a ceiling
//! that may be lowered and never raised; an area that is not in the table has the ceiling 0.

use std::fs;
use std::path::Path;

/// Openings of a comment that replace the noun.
const OPENINGS: &[&str] = &["What ", "Whether ", "The same"];
/// Clauses that replace the noun inside a comment.
const CLAUSES: &[&str] = &["what is ", "what was ", "what it ", "what comes ", "what came ", "whether it is "];
/// Pronouns that stand for a noun the reader has to guess. Inside backquotes `nobody` is the account.
const PRONOUNS: &[&str] = &["whoever", "nobody", "anybody", "somebody", "everybody"];
/// Written by `cargo xtask docs` from the directive tables, which have their own ceilings.
const GENERATED: &[&str] = &["docs/reference.md", "docs/compatibility.md", "docs/lint.md", "docs/metrics.md"];
/// Documents outside of docs/. CHANGELOG.md is history and is not counted.
const ROOT_DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"];
/// Lines that remain per area. Lower a number when lines are rewritten; never raise one.
const CEILINGS: &[(&str, usize)] = &[];

/// Reports every area above its ceiling. `sources` are the Rust files below crates/, tools/ and fuzz/.
pub fn wording_complaints(sources: &[(String, String)]) -> Vec<String> {
    let mut areas: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    for (path, text) in sources {
        let area = crate::crates::crate_of(Path::new(path)).map_or_else(|| path.clone(), |(name, _)| name);
        *areas.entry(area).or_default() += in_comments(text);
    }
    for path in written_documents() {
        let text = fs::read_to_string(&path).unwrap_or_default();
        areas.insert(path, text.lines().filter(|line| is_telltale(line)).count());
    }
    let ceiling = |area: &str| CEILINGS.iter().find(|(known, _)| *known == area).map_or(0, |(_, max)| *max);
    areas
        .into_iter()
        .filter(|(area, count)| *count > ceiling(area))
        .map(|(area, count)| {
            format!(
                "{area}: {count} lines begin with \"What\", \"Whether\" or \"The same\", or contain \"what is\", \"whoever\", \
                 \"nobody\" or the like; at most {} may (name the noun: CONTRIBUTING.md, English)",
                ceiling(&area)
            )
        })
        .collect()
}

/// Hand-written documents: those of the root, docs/*.md without the generated ones, and the recipes.
pub fn written_documents() -> Vec<String> {
    let mut found: Vec<String> = ROOT_DOCUMENTS.iter().map(ToString::to_string).collect();
    let folders = ["docs", "docs/recipes"].into_iter().flat_map(fs::read_dir);
    for entry in folders.flatten().flatten() {
        let path = entry.path().display().to_string();
        if path.ends_with(".md") && !GENERATED.contains(&path.as_str()) {
            found.push(path);
        }
    }
    found
}

/// Counts the telltale lines among the comments of a Rust file.
fn in_comments(text: &str) -> usize {
    text.lines().filter_map(comment).filter(|words| is_telltale(words)).count()
}

/// Returns the comment of a line, without its slashes. A `//` inside a word, as in a URL, starts no comment.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = if line.starts_with("//") { line } else { line.split_once(" //")?.1 };
    Some(rest.trim_start_matches(['/', '!']))
}

/// Tells a line that opens with one of [`OPENINGS`], or contains one of [`CLAUSES`] or [`PRONOUNS`] outside of backquotes.
fn is_telltale(line: &str) -> bool {
    let opening = line.trim_start_matches([' ', '#', '>', '*', '-', '|']);
    if OPENINGS.iter().any(|words| opening.starts_with(words)) {
        return true;
    }
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_ascii_lowercase();
    if CLAUSES.iter().any(|words| prose.contains(words)) {
        return true;
    }
    prose.split(|c: char| !c.is_alphanumeric()).any(|word| PRONOUNS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_that_hide_the_noun_are_counted() {
        let hidden =
            concat!("//! Wh", "at a peer sends.\n    /// Wh", "ether it is open.\n// The s", "ame, for a task.\n");
        assert_eq!(in_comments(hidden), 3);
        assert_eq!(in_comments(concat!("call(); // For who", "ever asks.\n/// No", "body waits.\n")), 2);
        assert_eq!(
            in_comments(concat!("/// Sends wh", "at is due.\n// For some", "body else.\n// Sends `what is `.\n")),
            2
        );
    }

    #[test]
    fn code_urls_and_accounts_are_not_counted() {
        let text = concat!(
            "let user = \"no",
            "body\";\n",
            "let url = \"http://no",
            "body/\";\n",
            "/// Runs as `no",
            "body`.\n",
            "/// Returns the timeout. Wh",
            "at follows a sentence is allowed.\n",
        );
        assert_eq!(in_comments(text), 0);
    }

    #[test]
    fn documents_are_counted_by_line() {
        let text = concat!("## Wh", "at it says\n| Wh", "ether | x |\n- The s", "ame\nReads it.\n");
        assert_eq!(text.lines().filter(|line| is_telltale(line)).count(), 3);
    }
}
