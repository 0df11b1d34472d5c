//! The block of `cors`.

use conf_schema::value::parse_sec;
use conf_schema::{Cx, Directive, Problem, ValueKind};
use std::sync::Arc;

/// `None`: off.
#[derive(Clone, Debug)]
pub struct Cors(pub Option<Arc<CorsRules>>);

#[derive(Debug)]
pub struct CorsRules {
    origins: Vec<OriginRule>,
    pub methods: CorsNames,
    pub headers: CorsNames,
    pub exposed: CorsNames,
    pub credentials: bool,
    /// Seconds.
    pub max_age: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum OriginRule {
    All,
    /// In lower case, as browsers send it.
    Exact(Vec<u8>),
    /// `https://*.example.com:8443`: the text before and behind `*`.
    Wildcard(Vec<u8>, Vec<u8>),
}

#[derive(Debug, Default)]
pub enum CorsNames {
    #[default]
    None,
    All,
    /// Joined by `, `.
    List(Vec<u8>),
}

impl CorsNames {
    /// Returns the value of a field.
    pub fn text(&self) -> &[u8] {
        match self {
            CorsNames::None => b"",
            CorsNames::All => b"*",
            CorsNames::List(names) => names,
        }
    }
    fn add(&mut self, name: &[u8]) {
        match self {
            _ if name == b"*" => *self = CorsNames::All,
            CorsNames::All => {}
            CorsNames::None => *self = CorsNames::List(name.to_vec()),
            CorsNames::List(names) => {
                names.extend_from_slice(b", ");
                names.extend_from_slice(name);
            }
        }
    }
}

impl OriginRule {
    fn parse(text: &[u8]) -> Option<OriginRule> {
        if text == b"*" {
            return Some(OriginRule::All);
        }
        let text = text.to_ascii_lowercase();
        let scheme_end = text.windows(3).position(|part| part == b"://")?;
        let (scheme, host) = (text.get(..scheme_end)?, text.get(scheme_end + 3..)?);
        let is_scheme = scheme.first().is_some_and(u8::is_ascii_alphabetic)
            && scheme.iter().all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(c));
        let (name, port) = match host.iter().rposition(|c| *c == b':').filter(|_| !host.ends_with(b"]")) {
            Some(colon) => (host.get(..colon)?, host.get(colon + 1..)?),
            None => (host, b"0".as_slice()),
        };
        let is_port = port.iter().all(u8::is_ascii_digit)
            && std::str::from_utf8(port).is_ok_and(|port| port.parse::<u16>().is_ok());
        let is_name = |name: &[u8]| match name.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]")) {
            Some(address) => address.iter().all(|c| c.is_ascii_hexdigit() || b":.".contains(c)),
            None => name.iter().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(c)),
        };
        if !is_scheme || !is_port || name.is_empty() {
            return None;
        }
        match name.strip_prefix(b"*") {
            Some(rest @ ([] | [b'.', _, ..])) if is_name(rest) => {
                let behind = host.get(1..)?.to_vec();
                Some(OriginRule::Wildcard(text.get(..scheme_end + 3)?.to_vec(), behind))
            }
            None if is_name(name) => Some(OriginRule::Exact(text)),
            _ => None,
        }
    }
    fn matches(&self, origin: &[u8]) -> bool {
        match self {
            OriginRule::All => true,
            OriginRule::Exact(text) => origin == text,
            OriginRule::Wildcard(before, behind) => {
                let labels =
                    origin.strip_prefix(before.as_slice()).and_then(|rest| rest.strip_suffix(behind.as_slice()));
                let is_label = |c: &u8| c.is_ascii_alphanumeric() || b"-._".contains(c);
                // Without a name behind it, `*` is the whole host.
                labels.is_some_and(|labels| {
                    !labels.is_empty() && !labels.starts_with(b".") && labels.iter().all(is_label)
                })
            }
        }
    }
}

impl CorsRules {
    pub fn allows_all(&self) -> bool {
        self.origins.contains(&OriginRule::All)
    }
    pub fn allows(&self, origin: &[u8]) -> bool {
        let origin = origin.to_ascii_lowercase();
        self.origins.iter().any(|rule| rule.matches(&origin))
    }
    fn line(&mut self, row: &Directive) -> Result<(), Problem> {
        let name = row.name.text();
        let says = |words: &str| Problem::says(format!("\"{name}\" of \"cors\" {words}")).on(row);
        if row.block.is_some() {
            return Err(says("needs a \";\" instead of a block"));
        }
        if row.args.is_empty() {
            return Err(says("needs a value"));
        }
        let only = || match row.args.as_slice() {
            [word] => Ok(word.bytes.as_slice()),
            _ => Err(says("takes one value")),
        };
        let names = match &*name {
            "allow_origin" => {
                for word in &row.args {
                    let rule = OriginRule::parse(&word.bytes).ok_or_else(|| {
                        says(&format!("has an invalid origin \"{}\"", word.text()))
                            .hint("scheme://host[:port] without a path; \"https://*.example.com\"; or \"*\"")
                    })?;
                    self.origins.push(rule);
                }
                return Ok(());
            }
            "allow_credentials" => {
                self.credentials = match only()? {
                    b"on" => true,
                    b"off" => false,
                    _ => return Err(says("is \"on\" or \"off\"")),
                };
                return Ok(());
            }
            "max_age" => {
                self.max_age = parse_sec(only()?).ok_or_else(|| says("needs a time, such as 10m"))?;
                return Ok(());
            }
            "allow_methods" => &mut self.methods,
            "allow_headers" => &mut self.headers,
            "expose_headers" => &mut self.exposed,
            _ => {
                return Err(Problem::says(format!("unknown line \"{name}\" in \"cors\"")).on(row).hint(
                    "one of: allow_origin, allow_methods, allow_headers, expose_headers, allow_credentials, max_age",
                ));
            }
        };
        for word in &row.args {
            // One character that is none of a token's ends the list of names.
            let is_token = |c: &u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(c);
            if word.bytes.is_empty() || !word.bytes.iter().all(is_token) {
                return Err(
                    says(&format!("has an invalid name \"{}\"", word.text())).hint("names, separated by spaces")
                );
            }
            names.add(&word.bytes);
        }
        Ok(())
    }
}

impl ValueKind for Cors {
    const SYNTAX: &'static str = "off | { ... }";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        match (d.args.as_slice(), &d.block) {
            ([word], None) if word.bytes == b"off" => return Ok(Cors(None)),
            ([], Some(_)) => {}
            _ => return Err(Problem::says("\"cors\" has a block, or the value \"off\"")),
        }
        let mut rules = CorsRules {
            origins: Vec::new(),
            methods: CorsNames::None,
            headers: CorsNames::None,
            exposed: CorsNames::None,
            credentials: false,
            max_age: 5,
        };
        for row in conf_syntax::list_directives(d.block.as_deref().unwrap_or_default()) {
            rules.line(row)?;
        }
        if rules.origins.is_empty() {
            return Err(Problem::directive("has no \"allow_origin\"").hint("\"allow_origin *;\" allows all origins"));
        }
        Ok(Cors(Some(Arc::new(rules))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_match_exactly_or_by_their_first_labels() {
        let matches = |rule: &str, origin: &str| {
            let rule = OriginRule::parse(rule.as_bytes()).expect(rule);
            rule.matches(origin.as_bytes())
        };
        assert!(matches("https://A.example", "https://a.example"));
        assert!(
            !matches("https://a.example", "http://a.example")
                && !matches("https://a.example", "https://a.example:8443")
        );
        assert!(matches("https://*.example.com", "https://a.example.com"));
        assert!(matches("https://*.example.com", "https://a.b.example.com"));
        for other in ["https://example.com", "https://.example.com", "https://aexample.com", "https://x/.example.com"] {
            assert!(!matches("https://*.example.com", other), "{other}");
        }
        assert!(!matches("https://*.example.com", "https://a.example.com.evil") && matches("*", "null"));
        assert!(matches("https://*.a.example:8443", "https://b.a.example:8443"));
        assert!(!matches("https://*.a.example", "https://b.a.example:8443"));
        assert!(matches("https://*", "https://any.example") && !matches("https://*", "https://any.example:1"));
        assert!(matches("http://[::1]:81", "http://[::1]:81") && matches("http://[::1]", "http://[::1]"));
    }

    #[test]
    fn invalid_origins_are_refused() {
        for wrong in [
            "",
            "a.example",
            "https://",
            "https://a/",
            "https://a.*.b",
            "https://*a",
            "https://a:x",
            "https://a b",
            "https://*.",
        ] {
            assert_eq!(OriginRule::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
