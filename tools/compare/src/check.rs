//! `--check`: examples of all directives with each of their words replaced by values that people get wrong. Compares what `-t` of
//! both servers says: the exit code, the first error, and the warnings.
//!
//! The examples are those of the reference manual. A directive whose example nginx does not know is left out.

use crate::server::Binary;
use crate::{Dice, Plan};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Values for a whole word.
const WORDS: &[&str] = &[
    "''",
    "bogus",
    "-1",
    "0",
    "1",
    "99999999999999999999",
    "4294967296",
    "10x",
    "1.5",
    "on",
    "off",
    "$none",
    "$uri",
    "http://",
    "/",
    "127.0.0.1:99999",
    "unix:",
    "a=b",
    "5m",
    "1k",
    "0x10",
    "\"a b\"",
    "~[",
    "*",
];

/// Values for a parameter, behind its `=`.
const PARAMETERS: &[&str] =
    &["", "bogus", "-1", "0", "99999999999999999999", "10x", "1.5m", "on", "$uri", "a:b", ":1m", "x:0", "x:"];

/// Parts of warnings that one of the servers alone has: nginx about its tables and its build, Tidegate about limits of the machine
/// and about values that have no effect.
const OWN_WARNINGS: &[&str] = &[
    "could not build optimal",
    "you need to rebuild nginx",
    "is not supported on this platform",
    "is ignored: this version",
    "has no effect",
    "is not available",
    "without workers",
    "open files: ",
];

struct Case {
    name: String,
    mutation: String,
    text: String,
}

#[derive(Debug, PartialEq, Eq)]
struct CheckVerdict {
    accepted: bool,
    error: Option<String>,
    warnings: Vec<String>,
}

/// Runs the plan; `Ok`: a summary.
///
/// # Errors
/// Differences, each with its directive and mutation; or the reason why the run failed.
pub fn compare_checks(plan: &Plan) -> Result<String, String> {
    let folder = std::env::temp_dir().join(format!("compare-check-{}", std::process::id()));
    let result = compare(plan, &folder);
    let _ = fs::remove_dir_all(&folder);
    result
}

fn compare(plan: &Plan, folder: &Path) -> Result<String, String> {
    let say = |e: std::io::Error| format!("{}: {e}", folder.display());
    fs::create_dir_all(folder.join("logs")).map_err(say)?;
    let identity = cases::test_identity()?;
    for (name, text) in [("example.crt", identity.0), ("example.key", identity.1), ("mime.types", "types { }\n")] {
        fs::write(folder.join(name), text).map_err(say)?;
    }
    let mut all = cases(plan, folder)?;
    let mut dice = Dice::new(plan.seed);
    let (mut differences, mut compared) = (Vec::new(), 0);
    while compared < plan.count && !all.is_empty() && differences.len() < plan.differences_max {
        let case = all.swap_remove(dice.below(all.len()));
        let (theirs, ours) = (check(&plan.nginx, folder, &case.text)?, check(&plan.ours, folder, &case.text)?);
        compared += 1;
        if !is_same(&theirs, &ours, &case.text) {
            let Case { name, mutation, .. } = case;
            differences.push(format!(
                "{name}, {mutation}:\n  nginx:    {}\n  tidegate: {}",
                shown(&theirs),
                shown(&ours)
            ));
        }
    }
    let summary = format!("{compared} configurations checked by both, with {}", plan.nginx.shown);
    crate::result(summary, &differences)
}

/// Lists the mutated examples of all directives that nginx knows.
fn cases(plan: &Plan, folder: &Path) -> Result<Vec<Case>, String> {
    let output = Command::new(&plan.ours.path).args(["reference", "json"]).output().map_err(|e| e.to_string())?;
    let tables: Value = serde_json::from_slice(&output.stdout).map_err(|e| format!("the reference is no JSON: {e}"))?;
    let directives = tables["directives"].as_array().ok_or("the reference has no directives")?;
    let mut all = Vec::new();
    for directive in directives {
        let (Some(name), Some(example)) = (directive["name"].as_str(), directive["example"].as_str()) else { continue };
        if plan.only.as_deref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let events = if example.contains("events") { "" } else { "events { }\n" };
        // (Modules have to be loaded before the events block.)
        let example = format!("{example}{events}");
        if check(&plan.nginx, folder, &example)?.error.is_some_and(|words| words.contains("unknown directive")) {
            continue;
        }
        let shown = format!("{} {name}", directive["area"].as_str().unwrap_or_default());
        all.extend(mutated(name, &example).into_iter().map(|(mutation, text)| Case {
            name: shown.clone(),
            mutation,
            text,
        }));
    }
    Ok(all)
}

/// Returns the example unchanged and with each mistake; only the former if the directive has no line of its own.
fn mutated(name: &str, example: &str) -> Vec<(String, String)> {
    let mut all = vec![("unchanged".to_string(), example.to_string())];
    let is_own = |line: &&str| {
        let line = line.trim();
        words(line.trim_end_matches(';')).first().is_some_and(|word| word == name)
            && line.ends_with(';')
            && line.matches(';').count() == 1
    };
    let Some(line) = example.lines().find(is_own) else { return all };
    let statement = line.trim().trim_end_matches(';');
    let words = words(statement);
    let mut add = |mutation: String, text: &str| {
        all.push((mutation, example.replacen(line, text, 1)));
    };
    add("without arguments".into(), &format!("{name};"));
    add("twice".into(), &format!("{statement}; {statement};"));
    add("with a word more".into(), &format!("{statement} bogus;"));
    add("with a parameter more".into(), &format!("{statement} bogus=1;"));
    add("with a block".into(), &format!("{statement} {{ }}"));
    for (index, word) in words.iter().enumerate().skip(1) {
        let mut values: Vec<String> = WORDS.iter().map(ToString::to_string).collect();
        if let Some((key, _)) = word.split_once('=').filter(|(key, _)| !key.starts_with(['"', '\'', '~'])) {
            values.extend(PARAMETERS.iter().map(|value| format!("{key}={value}")));
            values.push(key.to_string());
        }
        for value in values {
            let mut words = words.clone();
            words[index].clone_from(&value);
            add(format!("word {index} {value}"), &format!("{};", words.join(" ")));
        }
    }
    all
}

/// Splits a directive's line at spaces outside of quotes; quotes stay.
fn words(text: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut quote = None;
    for c in text.chars() {
        match quote {
            None if c.is_whitespace() => {
                all.push(String::new());
                continue;
            }
            None if c == '\'' || c == '"' => quote = Some(c),
            Some(open) if c == open => quote = None,
            _ => {}
        }
        all.last_mut().expect("there is one").push(c);
    }
    all.retain(|word| !word.is_empty());
    all
}

fn check(binary: &Binary, folder: &Path, text: &str) -> Result<CheckVerdict, String> {
    let path: PathBuf = folder.join("check.conf");
    fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    let output = Command::new(&binary.path)
        .args(["-t".as_ref(), "-p".as_ref(), folder.as_os_str(), "-c".as_ref(), path.as_os_str()])
        .args(["-e".as_ref(), folder.join("error.log").as_os_str()])
        .output()
        .map_err(|e| format!("{}: {e}", binary.path.display()))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines = |level: &'static str| {
        let mark = format!("[{level}] ");
        let lines: Vec<String> = stderr
            .lines()
            .filter_map(|line| {
                let words = line.split_once(&mark)?.1;
                // Lines of the log have the process's number in front.
                let is_number = |text: &str| text.bytes().all(|c| c.is_ascii_digit() || c == b'#');
                Some(
                    words
                        .split_once(": ")
                        .filter(|(number, _)| is_number(number))
                        .map_or(words, |(_, rest)| rest)
                        .to_string(),
                )
            })
            .collect();
        lines
    };
    let accepted = output.status.success();
    let mut warnings = if accepted { lines("warn") } else { Vec::new() };
    warnings.retain(|words| !OWN_WARNINGS.iter().any(|own| words.contains(own)));
    warnings.sort();
    warnings.dedup();
    let error = if accepted { None } else { lines("emerg").into_iter().next() };
    Ok(CheckVerdict { accepted, error, warnings })
}

/// Ignores directives that Tidegate rejects by name, and a line that nginx does not name, or for which it names the end of a block.
fn is_same(theirs: &CheckVerdict, ours: &CheckVerdict, text: &str) -> bool {
    if theirs == ours || ours.error.as_ref().is_some_and(|words| words.contains("is not supported by")) {
        return true;
    }
    let (Some(theirs), Some(ours)) = (&theirs.error, &ours.error) else { return false };
    let split = |words: &str| match words.rsplit_once(" in ") {
        Some((before, place)) if place.contains("check.conf:") => {
            (before.to_string(), place.rsplit(':').next().and_then(|n| n.parse::<usize>().ok()))
        }
        _ => (words.to_string(), None),
    };
    let ((their_words, their_line), (our_words, our_line)) = (split(theirs), split(ours));
    let is_end = |line: usize| text.lines().nth(line.saturating_sub(1)).is_some_and(|line| line.trim() == "}");
    their_words == our_words && (their_line.is_none() || (our_line < their_line && their_line.is_some_and(is_end)))
}

fn shown(verdict: &CheckVerdict) -> String {
    let mut words: Vec<&str> = verdict.error.as_deref().into_iter().collect();
    words.extend(verdict.warnings.iter().map(String::as_str));
    let first = if verdict.accepted { "accepts it" } else { "refuses it" };
    format!("{first} {}", words.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_replaced_in_its_line_only() {
        let example = "http {\n    limit_x zone=a burst='1 2';\n    other zone=a;\n}\n";
        let all = mutated("limit_x", example);
        assert_eq!(all.len(), 1 + 5 + 2 * (WORDS.len() + PARAMETERS.len() + 1));
        assert!(
            all.iter().any(|(_, text)| text.contains("limit_x zone=a burst=10x;") && text.contains("other zone=a;"))
        );
        assert_eq!(mutated("absent", example).len(), 1);
    }

    #[test]
    fn a_line_that_nginx_lacks_is_no_difference() {
        let says = |words: &str| CheckVerdict { accepted: false, error: Some(words.into()), warnings: Vec::new() };
        let text = "http {\n    x;\n}\n";
        assert!(is_same(&says("a"), &says("a in /d/check.conf:2"), text));
        assert!(is_same(&says("a in /d/check.conf:3"), &says("a in /d/check.conf:2"), text));
        assert!(!is_same(&says("a in /d/check.conf:2"), &says("a in /d/check.conf:1"), text));
        assert!(!is_same(&says("a"), &says("b in /d/check.conf:2"), text));
    }
}
