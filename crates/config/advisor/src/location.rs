//! Parses the name of a `location` and the address of a `listen`.

use conf_syntax::Directive;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    Exact(String),
    Prefix(String),
    /// `^~`: skips regular expressions.
    Final(String),
    Regex {
        text: String,
        ignore_case: bool,
    },
    Named(String),
}

impl Name {
    /// Returns `None` for invalid arguments, for locations that a variable or conditions select (`route_match`), and for those of path
    /// elements (`^/`).
    pub fn of(d: &Directive) -> Option<Name> {
        if conf_syntax::directives(d.block.as_deref().unwrap_or_default())
            .iter()
            .any(|row| row.name.text() == "route_match")
        {
            return None;
        }
        let first = d.args.first()?.text().into_owned();
        if let Some(second) = d.args.get(1) {
            let second = second.text().into_owned();
            return Some(match first.as_str() {
                "=" => Name::Exact(second),
                "^~" => Name::Final(second),
                "~" => Name::Regex { text: second, ignore_case: false },
                "~*" => Name::Regex { text: second, ignore_case: true },
                _ => return None,
            });
        }
        let rest = |head: &str| first.strip_prefix(head).map(str::to_string);
        Some(if let Some(name) = rest("=") {
            Name::Exact(name)
        } else if let Some(name) = rest("^~") {
            Name::Final(name)
        } else if let Some(text) = rest("~*") {
            Name::Regex { text, ignore_case: true }
        } else if let Some(text) = rest("~") {
            Name::Regex { text, ignore_case: false }
        } else if first.starts_with('$') {
            return None;
        } else if first.starts_with('@') {
            Name::Named(first)
        } else {
            Name::Prefix(first)
        })
    }
    pub fn text(&self) -> &str {
        match self {
            Name::Exact(text) | Name::Prefix(text) | Name::Final(text) | Name::Named(text) => text,
            Name::Regex { text, .. } => text,
        }
    }
    /// A plain or final prefix.
    pub fn prefix(&self) -> Option<&str> {
        match self {
            Name::Prefix(text) | Name::Final(text) => Some(text),
            _ => None,
        }
    }
    pub fn shown(&self) -> String {
        match self {
            Name::Exact(text) => format!("= {text}"),
            Name::Final(text) => format!("^~ {text}"),
            Name::Regex { text, ignore_case: false } => format!("~ {text}"),
            Name::Regex { text, ignore_case: true } => format!("~* {text}"),
            Name::Prefix(text) | Name::Named(text) => text.clone(),
        }
    }
}

/// Normalized, from a `listen` line.
pub fn address(d: &Directive) -> Option<String> {
    let text = d.args.first()?.text().into_owned();
    if text.starts_with("unix:") {
        return Some(text);
    }
    if text.bytes().all(|c| c.is_ascii_digit()) {
        return Some(format!("*:{text}"));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|c| c.is_ascii_digit()) && !host.ends_with(':') => (host, port),
        _ => (text.as_str(), "80"),
    };
    let host = if matches!(host, "0.0.0.0" | "*" | "") { "*" } else { host };
    Some(format!("{host}:{port}"))
}
