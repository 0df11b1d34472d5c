//! Findings as text, JSON and SARIF 2.1.0, and the page of the manual.

use super::{Finding, LintLevel, all_checks};
use conf_schema::Complaint;
use conf_syntax::{SourceFiles, SourceSpan};
use serde_json::{Value, json as object};
use std::fmt::Write;

/// The checks' documentation, from the project's root.
const PAGE: &str = "docs/lint.md";

/// Writes a block of lines per finding, and the count.
pub fn findings_text(files: &SourceFiles, findings: &[Finding], colour: bool) -> String {
    let mut out = String::new();
    for finding in findings {
        let complaint = Complaint {
            span: Some(finding.span),
            hint: Some(finding.check.fix.to_string()),
            ..Complaint::emerg(finding.message.clone())
        };
        let (bold, reset) = match (colour, finding.check.level) {
            (false, _) => ("", ""),
            (true, LintLevel::Error) => ("\x1b[1;31m", "\x1b[0m"),
            (true, LintLevel::Warning) => ("\x1b[1;33m", "\x1b[0m"),
            (true, LintLevel::Note) => ("\x1b[1;36m", "\x1b[0m"),
        };
        let _ =
            writeln!(out, "{bold}{}{reset}: {} [{}]", finding.check.level.word(), finding.message, finding.check.id);
        let lines = complaint.explain(files, colour);
        let (place, hint) = lines.split_at(lines.find("  = ").unwrap_or(lines.len()));
        out.push_str(place);
        for (span, words) in &finding.also {
            let (line, column) = files.line_column(span.file, span.start);
            let _ = writeln!(out, "  = {words}: {}:{line}:{column}", files.path(span.file).display());
        }
        out.push_str(hint);
        out.push('\n');
    }
    let count = |level| findings.iter().filter(|f| f.check.level == level).count();
    let words: Vec<String> = LintLevel::ALL
        .iter()
        .rev()
        .filter(|level| count(**level) > 0)
        .map(|level| format!("{} {}{}", count(*level), level.word(), if count(*level) == 1 { "" } else { "s" }))
        .collect();
    let _ = writeln!(out, "{}", if words.is_empty() { "no findings".to_string() } else { words.join(", ") });
    out
}

/// File, line and columns of a span; lines and columns count from 1.
fn place(files: &SourceFiles, span: SourceSpan) -> (String, u32, u32, u32) {
    let (line, column) = files.line_column(span.file, span.start);
    (files.path(span.file).display().to_string(), line, column, column + span.end.saturating_sub(span.start).max(1))
}

pub fn findings_json(files: &SourceFiles, findings: &[Finding]) -> Value {
    let one = |finding: &Finding| {
        let (file, line, column, end) = place(files, finding.span);
        let also: Vec<Value> = finding
            .also
            .iter()
            .map(|(span, words)| {
                let (file, line, column, _) = place(files, *span);
                object!({ "file": file, "line": line, "column": column, "message": words })
            })
            .collect();
        object!({
            "id": finding.check.id, "level": finding.check.level.word(), "message": finding.message,
            "file": file, "line": line, "column": column, "end_column": end,
            "why": finding.check.why, "fix": finding.check.fix, "also": also,
        })
    };
    object!({ "findings": findings.iter().map(one).collect::<Vec<_>>() })
}

/// Writes a SARIF 2.1.0 log (OASIS, sections 3.13 to 3.33) with one run; `version` is the program's.
pub fn findings_sarif(files: &SourceFiles, findings: &[Finding], version: &str) -> Value {
    let rules: Vec<Value> = all_checks()
        .map(|check| {
            object!({
                "id": check.id,
                "shortDescription": { "text": check.title },
                "fullDescription": { "text": check.why },
                "help": { "text": check.fix },
                "helpUri": format!("{PAGE}#{}", check.id),
                "defaultConfiguration": { "level": check.level.word() },
            })
        })
        .collect();
    let location = |span: SourceSpan| {
        let (file, line, column, end) = place(files, span);
        object!({
            "physicalLocation": {
                "artifactLocation": { "uri": uri(&file) },
                "region": { "startLine": line, "startColumn": column, "endColumn": end },
            },
        })
    };
    let result = |finding: &Finding| {
        let related: Vec<Value> = finding
            .also
            .iter()
            .map(|(span, words)| {
                let mut place = location(*span);
                place["message"] = object!({ "text": words });
                place
            })
            .collect();
        object!({
            "ruleId": finding.check.id,
            "ruleIndex": all_checks().position(|check| check.id == finding.check.id),
            "level": finding.check.level.word(),
            "message": { "text": format!("{}: {}", finding.message, finding.check.fix) },
            "locations": [location(finding.span)],
            "relatedLocations": related,
        })
    };
    object!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "tidegate lint", "version": version, "rules": rules } },
            "columnKind": "utf16CodeUnits",
            "results": findings.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}

/// A path as a URI reference (RFC 3986): escaped, absolute ones with their scheme.
fn uri(path: &str) -> String {
    let mut out = String::from(if path.starts_with('/') { "file://" } else { "" });
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

pub fn checks_manual() -> String {
    let mut out = String::from(
        "<!-- Generated from the checks of `crates/config/advisor` by `cargo xtask docs`; changes here are lost. -->\n\n\
         # Checks of `tidegate lint`\n\n\
         `tidegate lint -c nginx.conf` reports valid configuration that is rarely intended, with the reason and a fix.\n\n\
         | Level | Meaning | Reported |\n|---|---|---|\n\
         | error | a security hole, or a setting that cannot work | by default |\n\
         | warning | probably not the intended effect | by default |\n\
         | note | depends on the circumstances | with `--level note` |\n\n\
         `--off ID` disables a check. A comment in the configuration does so for one directive, at the end of its line or on the line \
         before it, or for a whole block, on the line before the block or after its brace:\n\n\
         ```nginx\nlocation /i { # tidegate-lint: off alias-traversal\n    alias /data/i/;\n}\n```\n\n\
         `--format json` and `--format sarif` write machine-readable output; code review tools display SARIF. Exit status: 0 without \
         findings at or above `--level`, 1 with findings, 2 if the configuration cannot be read or is invalid.\n\n\
         | Check | Level | Reports |\n|---|---|---|\n",
    );
    for check in all_checks() {
        let _ =
            writeln!(out, "| [{0}](#{0}) | {1} | {2} |", check.id, check.level.word(), check.title.replace('|', "\\|"));
    }
    for check in all_checks() {
        let _ = write!(
            out,
            "\n## {}\n\n*{}*: {}.\n\n{}\n\n**Fix:** {}\n\nReported:\n\n```nginx\n{}\n```\n\nNot reported:\n\n```nginx\n{}\n```\n",
            check.id,
            check.level.word(),
            check.title,
            check.why,
            check.fix,
            check.bad.trim(),
            check.good.trim()
        );
    }
    out
}
