//! Prints errors of a configuration: nginx's line first; on a terminal or with `--explain` also the source line with a
//! caret, the reason, a suggestion and all further errors.

use crate::conf::values::{DebugPoints, is_for_a_start};
use crate::conf::{ConfFailure, ConfReading, GLOBALS};
use crate::{messages, say};
use conf_schema::{Complaint, ComplaintLevel};
use conf_syntax::{FileId, SourceFile, SourceFiles};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::Path;

#[derive(Clone, Copy, Debug)]
pub struct Style {
    explain: bool,
    colour: bool,
}

impl Style {
    pub fn new(explain: bool) -> Style {
        let terminal = std::io::stderr().is_terminal();
        Style { explain: explain || terminal, colour: terminal && std::env::var_os("NO_COLOR").is_none() }
    }
}

/// Formats `TEXT in FILE:LINE` without the level. `-g` has no lines.
fn words(complaint: &Complaint, files: &SourceFiles) -> String {
    let line = complaint.first_line(files);
    let line = line.split_once("] ").map_or(line.as_str(), |(_, rest)| rest);
    let tail = format!(" in {GLOBALS}:{}", complaint.line);
    match line.strip_suffix(&tail) {
        Some(head) => format!("{head} in {GLOBALS}"),
        None => line.to_string(),
    }
}

fn print(complaint: &Complaint, files: &SourceFiles, style: Style) {
    let level =
        if complaint.level == ComplaintLevel::Emerg { observe::Severity::Emerg } else { observe::Severity::Warn };
    messages::log_message(level, format_args!("{}", words(complaint, files)));
    if style.explain {
        eprint!("{}", complaint.explain(files, style.colour));
    }
}

pub fn print_warnings(reading: &ConfReading, style: Style) {
    if let Ok(config) = &reading.config {
        for complaint in &reading.warnings {
            print(complaint, &config.texts.files, style);
        }
    }
}

/// Prints and logs up to the first error, as nginx does; all errors with `--explain`. `syntax_ok`: the file to report
/// as syntactically valid.
pub fn print_failure(failure: &ConfFailure, style: Style, syntax_ok: Option<&str>) {
    if let Some(name) = syntax_ok {
        eprintln!("{}: the configuration file {name} syntax is ok", messages::program_name());
    }
    for complaint in &failure.complaints {
        print(complaint, &failure.files, style);
        if complaint.level == ComplaintLevel::Emerg && !style.explain {
            return;
        }
    }
    let errors = failure.complaints.iter().filter(|c| c.level == ComplaintLevel::Emerg).count();
    if errors >= conf_schema::check::ERRORS_MAX {
        eprintln!("  = more than {errors} errors; fix these first");
    } else if errors > 1 {
        eprintln!("  = {errors} errors");
    }
}

/// Logs warnings in a running master.
pub fn log_warnings(warnings: &[Complaint], files: &SourceFiles) {
    for complaint in warnings.iter().filter(|complaint| !is_for_a_start(complaint)) {
        say!(Warn, "{}", words(complaint, files));
    }
}

/// Logs the first error in a running master, as nginx does.
pub fn log_failure(failure: &ConfFailure) {
    for complaint in &failure.complaints {
        if complaint.level == ComplaintLevel::Emerg {
            say!(Emerg, "{}", words(complaint, &failure.files));
            return;
        }
        say!(Warn, "{}", words(complaint, &failure.files));
    }
}

/// Returns the first error in one line.
pub fn first_line(failure: &ConfFailure) -> String {
    failure
        .complaints
        .iter()
        .find(|c| c.level == ComplaintLevel::Emerg)
        .map_or_else(|| "for no reason given".into(), |c| words(c, &failure.files))
}

/// Maximum length of the line that a complaint quotes, in bytes.
const SOURCE_BYTES_MAX: usize = 1024;

/// Finds lines and columns as [`SourceFiles::line_column`] does. Positions that follow each other in a file cost one pass over
/// its text together: a configuration may have a hundred thousand directives.
#[derive(Default)]
pub struct Positions {
    file: Option<FileId>,
    at: usize,
    line: u32,
    line_start: usize,
}

impl Positions {
    /// Returns line and column, both from 1.
    pub fn find(&mut self, files: &SourceFiles, file: FileId, offset: u32) -> (u32, u32) {
        let Some(text) = files.get(file).map(|file| &file.text) else { return (0, 0) };
        let at = (offset as usize).min(text.len());
        if self.file != Some(file) || at < self.at {
            *self = Positions { file: Some(file), at: 0, line: 1, line_start: 0 };
        }
        for (index, byte) in text.iter().enumerate().take(at).skip(self.at) {
            if *byte == b'\n' {
                self.line += 1;
                self.line_start = index + 1;
            }
        }
        self.at = at;
        (self.line, (at - self.line_start) as u32 + 1)
    }
    /// Returns the text of the line that was found, up to [`SOURCE_BYTES_MAX`].
    fn line_text<'a>(&self, files: &'a SourceFiles) -> &'a [u8] {
        let file = self.file.and_then(|file| files.get(file));
        let rest = file.and_then(|file| file.text.get(self.line_start..)).unwrap_or_default();
        let rest = rest.get(..SOURCE_BYTES_MAX).unwrap_or(rest);
        let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
        line.strip_suffix(b"\r").unwrap_or(line)
    }
}

/// Converts complaints. `shown` formats file names.
pub fn complaints_json(complaints: &[Complaint], files: &SourceFiles, shown: impl Fn(&Path) -> String) -> Value {
    let mut positions = Positions::default();
    let one = |complaint: &Complaint| {
        let level = if complaint.level == ComplaintLevel::Emerg { "emerg" } else { "warn" };
        let message = words(complaint, files);
        let mut value =
            json!({ "level": level, "reason": complaint.text, "suggestion": complaint.hint, "message": message });
        if let (Some(span), Value::Object(value)) = (complaint.span, &mut value) {
            let (line, column) = positions.find(files, span.file, span.start);
            value.insert("file".into(), json!(shown(files.path(span.file))));
            value.insert("line".into(), json!(line));
            value.insert("column".into(), json!(column));
            value.insert("source".into(), json!(String::from_utf8_lossy(positions.line_text(files))));
        }
        value
    };
    complaints.iter().map(one).collect()
}

/// Returns the files of a configuration, without the text of `-g`.
pub fn source_files(files: &SourceFiles) -> impl Iterator<Item = &SourceFile> {
    files.all.iter().filter(|file| file.path.as_os_str() != GLOBALS)
}

pub fn dump_files(files: &SourceFiles) {
    for file in source_files(files) {
        base::outln!("# configuration file {}:", file.path.display());
        base::stdout::write_octets(&file.text);
        base::outln!("");
    }
}

/// Sets the action of `bug!` besides logging (`debug_points`).
pub fn debug_points(points: Option<DebugPoints>) {
    let code = match points {
        None => 0,
        Some(DebugPoints::Stop) => 1,
        Some(DebugPoints::Abort) => 2,
    };
    messages::set_debug_action(code);
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_syntax::{SourceFile, SourceSpan};

    #[test]
    fn positions_are_those_of_the_files() {
        let file = |text: &str| SourceFile { path: "a.conf".into(), text: text.into() };
        let files = SourceFiles { all: vec![file("a;\nbc; d;\r\n\n  e;"), file("f; g;\nh;")] };
        let mut positions = Positions::default();
        for (file, offset) in [(0, 0), (0, 3), (0, 7), (0, 14), (0, 3), (1, 3), (1, 6), (0, 14), (0, 99), (2, 0)] {
            let file = FileId(file);
            assert_eq!(positions.find(&files, file, offset), files.line_column(file, offset), "{file:?}, {offset}");
            if files.get(file).is_some() {
                assert_eq!(positions.line_text(&files), files.line_text(file, offset), "{file:?}, {offset}");
            }
        }
    }

    #[test]
    fn complaints_of_one_long_line_quote_its_start() {
        let text = "x 1; ".repeat(20_000);
        let files = SourceFiles { all: vec![SourceFile { path: "a.conf".into(), text: text.into() }] };
        let complaint = |n: u32| {
            let span = SourceSpan { file: FileId(0), start: n * 5, end: n * 5 + 4 };
            Complaint { span: Some(span), line: 1, ..Complaint::emerg("unknown") }
        };
        let complaints: Vec<Complaint> = (0..20_000).map(complaint).collect();
        let all = complaints_json(&complaints, &files, |path| path.display().to_string());
        assert_eq!(all[19_999]["column"], 99_996);
        assert_eq!(all[19_999]["source"].as_str().map(str::len), Some(SOURCE_BYTES_MAX));
    }
}
