//! Documentation of directives, from the tables, for `tidegate explain` and the generated manual.

pub mod example;

use conf_schema::{ContextArea, Contexts, DirectiveRow, KnownDirective, Schema, vocabulary};
use std::collections::BTreeMap;
use std::fmt::Write;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    Full,
    Differs(String),
    /// Accepted without effect.
    NoEffect(String),
    Refused(String),
    NotYet,
}

pub struct Entry {
    pub known: &'static KnownDirective,
    pub row: Option<&'static DirectiveRow>,
    pub support: Support,
    /// Documentation without the remarks in `support`.
    pub doc: String,
}

/// Prefixes of remarks in a directive's documentation.
const MARKS: [(&str, fn(String) -> Support); 3] =
    [("Differs:", Support::Differs), ("No effect:", Support::NoEffect), ("Refused:", Support::Refused)];

/// Directives of the engine itself.
const STRUCTURAL: [(&str, &str); 12] = [
    ("include", "Includes another file, or all files that match a pattern, in place of the line."),
    ("events", "Contains the directives for connection processing."),
    ("http", "Contains the HTTP configuration."),
    ("stream", "Contains the configuration of TCP and UDP proxying."),
    ("mail", "Contains the configuration of the mail proxy."),
    ("server", "Defines a virtual server: addresses, names and the handling of requests or sessions."),
    (
        "location",
        "Configures the requests whose path matches, or for which a text with variables is neither empty nor `0` (`location $name`).",
    ),
    ("if", "Applies directives if a condition holds."),
    ("limit_except", "Restricts access for all methods except the listed ones."),
    ("upstream", "Defines a group of servers that requests or sessions are passed to."),
    ("types", "Maps file name extensions to media types."),
    ("map", "Defines a variable whose value depends on another string."),
];

impl Entry {
    pub fn of(schema: &Schema, known: &'static KnownDirective) -> Entry {
        let row = schema.row(known);
        let text =
            row.map_or(String::new(), |row| row.doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "));
        let mark =
            MARKS.iter().filter_map(|(mark, kind)| Some((text.find(mark)?, mark.len(), kind))).min_by_key(|m| m.0);
        let (mut doc, support) = match mark {
            Some((at, length, kind)) => (text[..at].trim().to_string(), kind(text[at + length..].trim().to_string())),
            None if schema.supports(known) => (text, Support::Full),
            None => (text, Support::NotYet),
        };
        if doc.is_empty()
            && let Some((_, words)) = STRUCTURAL.iter().find(|(name, _)| *name == known.name)
        {
            doc = (*words).to_string();
        }
        Entry { known, row, support, doc }
    }

    /// Returns `name syntax;`, as far as it is known.
    pub fn syntax(&self) -> String {
        let name = self.known.name;
        let end = if self.known.block { " { ... }" } else { ";" };
        match self.row {
            Some(row) if row.syntax.ends_with('}') => format!("{name} {}", row.syntax),
            Some(row) if !row.syntax.is_empty() => format!("{name} {}{end}", row.syntax),
            _ if self.known.block && self.known.arity == conf_schema::Arity::exact(0) => format!("{name}{end}"),
            _ => format!("{name} ...{end}"),
        }
    }

    /// This version's, or nginx's for unsupported directives.
    pub fn default(&self) -> Option<&'static str> {
        match self.row {
            Some(row) => row.default,
            None => Some(self.known.default).filter(|text| !text.is_empty()),
        }
    }

    pub fn contexts(&self) -> String {
        if self.known.name == "include" { "any".into() } else { contexts(self.known.contexts) }
    }
}

fn contexts(contexts: Contexts) -> String {
    contexts.to_string()
}

/// Returns all directives: by module in the order of the areas, then by name.
pub fn list_modules(schema: &Schema) -> BTreeMap<(u8, &'static str), Vec<Entry>> {
    let mut modules: BTreeMap<(u8, &'static str), Vec<Entry>> = BTreeMap::new();
    for known in vocabulary::all() {
        modules.entry((known.area() as u8, known.module)).or_default().push(Entry::of(schema, known));
    }
    for entries in modules.values_mut() {
        entries.sort_by_key(|entry| entry.known.name);
    }
    modules
}

const GENERATED: &str = "<!-- Generated from the directive tables by `cargo xtask docs`; changes here are lost. -->\n";

pub fn directive_manual(schema: &Schema) -> String {
    let mut out = format!(
        "{GENERATED}\n# Directives\n\nAll directives that Tidegate reads, by nginx module. `tidegate explain NAME` prints an entry on \
         the command line. [compatibility.md](compatibility.md) also lists missing directives.\n"
    );
    for ((_, module), entries) in list_modules(schema) {
        let done: Vec<&Entry> = entries.iter().filter(|entry| entry.support != Support::NotYet).collect();
        if done.is_empty() {
            continue;
        }
        let _ = write!(out, "\n## {module}\n");
        for entry in done {
            let _ = write!(out, "\n### {}\n\n", entry.known.name);
            let _ = writeln!(out, "- Syntax: `{}`", entry.syntax());
            if let Some(default) = entry.default() {
                let shown = if default.is_empty() { "\"\"" } else { default };
                let _ = writeln!(out, "- Default: `{shown}`");
            }
            let _ = writeln!(out, "- Context: {}", entry.contexts());
            if !entry.doc.is_empty() {
                let _ = write!(out, "\n{}\n", entry.doc);
            }
            let remark = match &entry.support {
                Support::Differs(words) => ("Differs from nginx", words),
                Support::NoEffect(words) => ("Accepted, no effect", words),
                Support::Refused(words) => ("Refused", words),
                Support::Full | Support::NotYet => continue,
            };
            let _ = write!(out, "\n**{}:** {}\n", remark.0, remark.1);
        }
    }
    let _ = write!(out, "\n## Variables\n\n| Variable | Area | Value |\n|---|---|---|\n");
    for variable in list_variables() {
        let name = variable_name(variable.name);
        let _ = writeln!(out, "| `{name}` | {} | {} |", variable.area, variable.doc.replace('|', "\\|"));
    }
    out
}

pub struct VariableEntry {
    pub name: &'static str,
    pub area: &'static str,
    pub doc: &'static str,
    pub is_settable: bool,
}

/// Returns the variables of all areas, sorted by name.
pub fn list_variables() -> Vec<VariableEntry> {
    let http = crate::http_registry::http_variables().map(|v| (v.name, "http", v.doc, v.set.is_some()));
    let stream = stream_features::stream_variables().map(|v| (v.name, "stream", v.doc, v.set.is_some()));
    let entry = |(name, area, doc, is_settable)| VariableEntry { name, area, doc, is_settable };
    let mut all: Vec<VariableEntry> = http.chain(stream).map(entry).collect();
    all.sort_by_key(|variable| (variable.name, variable.area));
    all
}

/// Formats a variable's name; a family's name ends before the variable part.
pub fn variable_name(name: &str) -> String {
    if name.ends_with('_') { format!("${name}NAME") } else { format!("${name}") }
}

pub fn compatibility_table(schema: &Schema) -> String {
    let modules = list_modules(schema);
    let all = || modules.values().flatten();
    let count = |test: fn(&Support) -> bool| all().filter(|entry| test(&entry.support)).count();
    let mut out = format!(
        "{GENERATED}\n# Compatibility\n\nAll directives of {}, of third-party modules that Tidegate supports, and of Tidegate. No directive \
         is silently ignored: `tidegate -t` rejects refused and missing directives, and names the line.\n\n",
        crate::version::NGINX
    );
    let _ = writeln!(out, "| | Directives |\n|---|---:|");
    let _ = writeln!(out, "| supported | {} |", count(|s| *s == Support::Full));
    let _ = writeln!(out, "| supported, differs | {} |", count(|s| matches!(s, Support::Differs(_))));
    let _ = writeln!(out, "| accepted, no effect | {} |", count(|s| matches!(s, Support::NoEffect(_))));
    let _ = writeln!(out, "| refused | {} |", count(|s| matches!(s, Support::Refused(_))));
    let _ = writeln!(out, "| not yet | {} |", count(|s| *s == Support::NotYet));
    for ((_, module), entries) in &modules {
        let _ = write!(out, "\n## {module}\n\n| Directive | Context | Support |\n|---|---|---|\n");
        for entry in entries {
            let here = match &entry.support {
                Support::Full => "supported".to_string(),
                Support::Differs(words) => format!("differs: {words}"),
                Support::NoEffect(words) => format!("no effect: {words}"),
                Support::Refused(words) => format!("refused: {words}"),
                Support::NotYet => "not yet".to_string(),
            };
            let _ = writeln!(out, "| `{}` | {} | {} |", entry.known.name, entry.contexts(), here.replace('|', "\\|"));
        }
    }
    out
}

/// Returns all directives with their examples and all variables as JSON, for `cargo xtask book`.
pub fn reference_json(schema: &Schema) -> serde_json::Value {
    let directive = |entry: &Entry| {
        let (support, remark) = match &entry.support {
            Support::Full => ("supported", ""),
            Support::Differs(words) => ("differs", words.as_str()),
            Support::NoEffect(words) => ("no effect", words.as_str()),
            Support::Refused(words) => ("refused", words.as_str()),
            Support::NotYet => ("not yet", ""),
        };
        serde_json::json!({
            "name": entry.known.name,
            "area": area(entry.known.area()),
            "module": entry.known.module,
            "since": entry.known.since,
            "syntax": entry.syntax(),
            "default": entry.default(),
            "contexts": entry.contexts(),
            "arguments": entry.known.arity.words(),
            "support": support,
            "remark": remark,
            "doc": entry.doc,
            "example": example::directive_example(entry.known),
        })
    };
    let variable = |variable: &VariableEntry| {
        serde_json::json!({
            "name": variable_name(variable.name),
            "area": variable.area,
            "doc": variable.doc,
            "settable": variable.is_settable,
        })
    };
    serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "nginx": crate::version::NGINX,
        "directives": list_modules(schema).values().flatten().map(directive).collect::<Vec<_>>(),
        "variables": list_variables().iter().map(variable).collect::<Vec<_>>(),
    })
}

fn area(area: ContextArea) -> &'static str {
    match area {
        ContextArea::Main => "main",
        ContextArea::Http => "http",
        ContextArea::HttpUpstream => "upstream",
        ContextArea::Stream => "stream",
        ContextArea::StreamUpstream => "stream upstream",
        ContextArea::Mail => "mail",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_are_taken_out_of_the_documentation() {
        let schema = crate::conf::full_schema();
        let entry = |name: &str| Entry::of(&schema, vocabulary::find_directives(name)[0]);
        let workers = entry("worker_processes");
        assert!(matches!(&workers.support, Support::Differs(words) if words.starts_with("the workers are threads")));
        assert!(workers.doc.ends_with("per available CPU."), "{}", workers.doc);
        assert_eq!(workers.syntax(), "worker_processes number | auto;");
        for name in ["lock_file", "timer_resolution", "aio_write"] {
            assert!(matches!(entry(name).support, Support::NoEffect(_)), "{name}");
        }
        assert!(matches!(entry("ssl_engine").support, Support::Refused(_)));
        assert_eq!(entry("user").support, Support::Full);
        assert!(matches!(entry("quic_bpf").support, Support::NoEffect(_)));
        assert_eq!(entry("include").support, Support::Full);
    }

    #[test]
    fn every_row_is_documented_and_its_default_parses() {
        let schema = crate::conf::full_schema();
        let mut cx = conf_schema::Cx::default();
        for table in schema.tables() {
            for row in table.rows {
                assert!(!row.doc.is_empty(), "{} has no documentation", row.name);
                let parsed = (row.check_default)(&mut cx);
                assert!(parsed.is_ok(), "the default of {} does not parse: {parsed:?}", row.name);
            }
        }
    }

    #[test]
    fn generated_documents_are_up_to_date() {
        let schema = crate::conf::full_schema();
        for (name, want) in [
            ("reference.md", directive_manual(&schema)),
            ("compatibility.md", compatibility_table(&schema)),
            ("lint.md", advisor::lint::checks_manual()),
            ("metrics.md", metrics::metrics_reference()),
        ] {
            let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
            let have = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(have == want, "docs/{name} differs from the tables: run `cargo xtask docs`");
        }
    }
}
