//! Parses the name of a `location` and the address of a `listen`.

use conf_syntax::Directive;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocationName {
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

impl LocationName {
    /// Returns `None` for invalid arguments, for locations that a variable or conditions select (`route_match`), and for those of path
    /// elements (`^/`).
    pub fn of(d: &Directive) -> Option<LocationName> {
        if conf_syntax::list_directives(d.block.as_deref().unwrap_or_default())
            .iter()
            .any(|row| row.name.text() == "route_match")
        {
            return None;
        }
        let first = d.args.first()?.text().into_owned();
        if let Some(second) = d.args.get(1) {
            let second = second.text().into_owned();
            return Some(match first.as_str() {
                "=" => LocationName::Exact(second),
                "^~" => LocationName::Final(second),
                "~" => LocationName::Regex { text: second, ignore_case: false },
                "~*" => LocationName::Regex { text: second, ignore_case: true },
                _ => return None,
            });
        }
        let rest = |head: &str| first.strip_prefix(head).map(str::to_string);
        Some(if let Some(name) = rest("=") {
            LocationName::Exact(name)
        } else if let Some(name) = rest("^~") {
            LocationName::Final(name)
        } else if let Some(text) = rest("~*") {
            LocationName::Regex { text, ignore_case: true }
        } else if let Some(text) = rest("~") {
            LocationName::Regex { text, ignore_case: false }
        } else if first.starts_with('$') {
            return None;
        } else if first.starts_with('@') {
            LocationName::Named(first)
        } else {
            LocationName::Prefix(first)
        })
    }
    pub fn text(&self) -> &str {
        match self {
            LocationName::Exact(text)
            | LocationName::Prefix(text)
            | LocationName::Final(text)
            | LocationName::Named(text) => text,
            LocationName::Regex { text, .. } => text,
        }
    }
    /// A plain or final prefix.
    pub fn prefix(&self) -> Option<&str> {
        match self {
            LocationName::Prefix(text) | LocationName::Final(text) => Some(text),
            _ => None,
        }
    }
    pub fn shown(&self) -> String {
        match self {
            LocationName::Exact(text) => format!("= {text}"),
            LocationName::Final(text) => format!("^~ {text}"),
            LocationName::Regex { text, ignore_case: false } => format!("~ {text}"),
            LocationName::Regex { text, ignore_case: true } => format!("~* {text}"),
            LocationName::Prefix(text) | LocationName::Named(text) => text.clone(),
        }
    }
}

/// Normalized, from a `listen` line.
pub fn listen_address(d: &Directive) -> Option<String> {
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
