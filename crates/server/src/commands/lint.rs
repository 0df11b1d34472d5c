//! `tidegate lint [-c FILE]`: reports common mistakes as text, JSON or SARIF.

use crate::conf;
use crate::conf::layout::Layout;
use crate::conf::unread;
use crate::options;
use crate::{messages, report};
use advisor::lint::{self, LintLevel};
use conf_schema::TextStore;
use conf_schema::suggest::nearest_word;
use conf_syntax::Disk;
use observe::LogFiles;
use std::ffi::OsString;
use std::io::IsTerminal;

pub const HELP: &str = "\
Usage: tidegate lint [-c FILE] [-p PREFIX] [-g DIRECTIVES] [--format text|json|sarif]
                     [--level note|warning|error] [--off ID[,ID]]
       tidegate lint --list | --explain ID

Reports valid configuration that is rarely intended: an alias that allows path traversal, headers
that an inner block drops, access rules that a regular expression bypasses. Each finding has its
place, the reason and a fix.

  tidegate lint -c nginx.conf                       all findings, with their lines
  tidegate lint -c nginx.conf --level error         only security holes and settings that cannot work
  tidegate lint -c nginx.conf --format sarif        for code review tools
  tidegate lint --list                              list all checks
  tidegate lint --explain alias-traversal           document one check, with examples

  -c, -p, -g                  as for the server; -c also finds a file of the current directory
  --format text|json|sarif    output format (default: text); SARIF is version 2.1.0
  --level note|warning|error  lowest level to report and to count (default: warning)
  --off ID                    disable a check; may be repeated. A comment does the same at the end of
                              a line, or before a directive or block: # tidegate-lint: off ID
  --list                      list all checks
  --explain ID                document one check, with examples

Exit code: 0 without findings at or above the level, 1 with findings, 2 if the configuration cannot
be read. Certificates and hosts need not exist; -t checks them.
";

struct LintArguments {
    format: String,
    level: LintLevel,
    off: Vec<String>,
    list: bool,
    explain: Option<String>,
    rest: Vec<OsString>,
}

pub fn run_lint(arguments: &[OsString]) -> i32 {
    let (asked, invocation) = match parse(arguments).and_then(|asked| Ok((options::parse_place(&asked.rest)?, asked))) {
        Ok((invocation, asked)) => (asked, invocation),
        Err(words) => {
            eprintln!("tidegate: {words}\n  = \"tidegate lint --help\" lists the options");
            return 2;
        }
    };
    if asked.list {
        for check in lint::all_checks() {
            base::outln!("{:<26} {:<8} {}", check.id, check.level.word(), check.title);
        }
        return 0;
    }
    if let Some(id) = &asked.explain {
        return explain(id);
    }
    let reading = conf::read_config(&Disk, TextStore::default(), &invocation, LogFiles::default());
    let style = report::Style::new(true);
    let loaded = conf::load_config(&Disk, &invocation);
    if let Err(failure) = &reading.config {
        report::print_failure(failure, style, None);
    }
    let (files, items) = match loaded {
        Ok((files, items)) if reading.config.is_ok() || conf::is_well_formed(&invocation, &files, &items) => {
            (files, items)
        }
        _ => return 2,
    };
    if reading.config.is_err() {
        eprintln!("  = -t refuses the configuration on this machine; only its text is checked");
    }
    let unread = match Layout::of(&invocation.conf_file).filter(|_| reading.config.is_ok()) {
        Some(layout) => reading.config.as_ref().map_or_else(
            |_| Vec::new(),
            |config| unread::unread_edits(&layout, &config.texts.files, &config.texts.matches),
        ),
        None => Vec::new(),
    };
    for words in &unread {
        eprintln!("{}: [warn] {words}", messages::program_name());
    }
    let mut findings = lint::lint_config(&conf::full_schema(), &files, &items, &asked.off);
    findings.retain(|finding| finding.check.level >= asked.level);
    match asked.format.as_str() {
        "json" => base::outln!("{:#}", lint::findings_json(&files, &findings)),
        "sarif" => base::outln!("{:#}", lint::findings_sarif(&files, &findings, env!("CARGO_PKG_VERSION"))),
        _ => {
            let stdout = std::io::stdout();
            let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none();
            base::out!("{}", lint::findings_text(&files, &findings, colour));
        }
    }
    i32::from(!findings.is_empty() || !unread.is_empty())
}

fn parse(arguments: &[OsString]) -> Result<LintArguments, String> {
    let mut asked = LintArguments {
        format: "text".into(),
        level: LintLevel::Warning,
        off: Vec::new(),
        list: false,
        explain: None,
        rest: Vec::new(),
    };
    let mut names = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        let (name, given) = match text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name.to_string(), Some(value.to_string())),
            _ => (text.to_string(), None),
        };
        let mut value = || {
            let next = || arguments.next().map(|a| a.to_string_lossy().into_owned());
            given.clone().or_else(next).ok_or_else(|| format!("option \"{name}\" requires a value"))
        };
        names.push(name.clone());
        match name.as_str() {
            "--list" if given.is_none() => asked.list = true,
            "--explain" => asked.explain = Some(value()?),
            "--format" => {
                let format = value()?;
                if !["text", "json", "sarif"].contains(&format.as_str()) {
                    return Err(format!("unknown format \"{format}\"; supported: text, json, sarif"));
                }
                asked.format = format;
            }
            "--level" => {
                let word = value()?;
                let level = LintLevel::ALL.into_iter().find(|level| level.word() == word);
                asked.level = level.ok_or(format!("unknown level \"{word}\"; supported: note, warning, error"))?;
            }
            "--off" => {
                for id in value()?.split(',') {
                    if !lint::all_checks().any(|check| check.id == id) {
                        return Err(unknown(id));
                    }
                    asked.off.push(id.to_string());
                }
            }
            _ => asked.rest.push(argument.clone()),
        }
    }
    // Both print parts of the manual, whatever the configuration.
    for alone in ["--list", "--explain"] {
        if let Some(other) = names.iter().find(|name| *name != alone).filter(|_| names.iter().any(|n| n == alone)) {
            return Err(format!("options \"{alone}\" and \"{other}\" exclude each other"));
        }
    }
    Ok(asked)
}

fn unknown(id: &str) -> String {
    match nearest_word(id, lint::all_checks().map(|check| check.id)) {
        Some(near) => format!("unknown check \"{id}\"; did you mean \"{near}\"?"),
        None => format!("unknown check \"{id}\"; --list lists them"),
    }
}

fn explain(id: &str) -> i32 {
    let Some(check) = lint::all_checks().find(|check| check.id == id) else {
        eprintln!("tidegate: {}", unknown(id));
        return 2;
    };
    base::outln!("{} ({}): {}\n\n{}\n\nInstead: {}\n", check.id, check.level.word(), check.title, check.why, check.fix);
    base::outln!("Found:\n  {}\n\nNot found:\n  {}", check.bad.trim(), check.good.trim());
    0
}
