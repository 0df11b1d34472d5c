//! Names: origins, sockets, hosts and groups.

use std::fmt;
use std::net::IpAddr;

use crate::checks::check_pattern;

/// Object that a part of the model comes from: `HTTPRoute shop/api, rule 2`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectOrigin {
    /// `HTTPRoute`, `Ingress`, `container`.
    pub kind: String,
    /// Empty where the source has none.
    pub namespace: String,
    pub name: String,
    /// Part of the object: `rule 2`; may be empty.
    pub part: String,
}

impl ObjectOrigin {
    pub fn new(kind: &str, namespace: &str, name: &str) -> ObjectOrigin {
        ObjectOrigin { kind: kind.into(), namespace: namespace.into(), name: name.into(), part: String::new() }
    }

    /// Returns the origin with this part.
    #[must_use]
    pub fn part(&self, part: impl Into<String>) -> ObjectOrigin {
        ObjectOrigin { part: part.into(), ..self.clone() }
    }
}

impl fmt::Display for ObjectOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)?;
        if !self.part.is_empty() {
            write!(f, ", {}", self.part)?;
        }
        Ok(())
    }
}

/// Address and port that clients connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenSocket {
    pub port: u16,
    /// `None` for all addresses.
    pub address: Option<IpAddr>,
}

impl fmt::Display for ListenSocket {
    /// Writes the socket as the argument of `listen`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            None => write!(f, "{}", self.port),
            Some(IpAddr::V4(address)) => write!(f, "{address}:{}", self.port),
            Some(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
        }
    }
}

/// Host that requests or TLS names are compared with. The order is from the most specific to the least specific one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostName {
    Exact(String),
    /// `*.example.com`, stored as `example.com`: one or more labels before it.
    Wildcard(String),
    /// `www.example.*`, stored as `www.example`: one or more labels behind it.
    Prefix(String),
    /// Regular expression (PCRE2), as `server_name` takes it behind `~`; compiled by [`HostName::parse_server_name`].
    Pattern(String),
    /// All hosts.
    Any,
}

impl HostName {
    /// Parses a name of lower-case labels, which may begin with `*.`. An empty name means all hosts.
    ///
    /// # Errors
    /// If it is no DNS name.
    pub fn parse(name: &str) -> Result<HostName, String> {
        let (wildcard, rest) = match name.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, name),
        };
        if name.is_empty() {
            return Ok(HostName::Any);
        }
        let label = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if name.len() > 253 || !rest.split('.').all(label) {
            return Err(format!("\"{}\" is no name of a host", name.escape_debug()));
        }
        Ok(if wildcard { HostName::Wildcard(rest.into()) } else { HostName::Exact(rest.into()) })
    }

    /// Parses a name in the forms of `server_name`: besides those of [`HostName::parse`], `www.example.*` and `~` with a
    /// regular expression; `*` and `_` mean all hosts. Letters outside of a regular expression may be capital.
    ///
    /// # Errors
    /// If it has none of these forms, or the regular expression is invalid.
    pub fn parse_server_name(name: &str) -> Result<HostName, String> {
        if let Some(pattern) = name.strip_prefix('~') {
            check_pattern(pattern)?;
            return Ok(HostName::Pattern(pattern.into()));
        }
        let name = name.to_ascii_lowercase();
        if matches!(name.as_str(), "*" | "_") {
            return Ok(HostName::Any);
        }
        if let Some(begin) = name.strip_suffix(".*") {
            return match HostName::parse(begin)? {
                HostName::Exact(begin) => Ok(HostName::Prefix(begin)),
                _ => Err(format!("\"{}\" is no name of a host", name.escape_debug())),
            };
        }
        match HostName::parse(&name)? {
            HostName::Any => Err("an empty name of a host".into()),
            name => Ok(name),
        }
    }

    /// Tells whether each host of `other` is one of this name.
    pub fn covers(&self, other: &HostName) -> bool {
        match (self, other) {
            (HostName::Any, _) => true,
            (HostName::Exact(a), HostName::Exact(b)) => a == b,
            (HostName::Wildcard(a), HostName::Exact(b)) => is_below(b, a),
            (HostName::Wildcard(a), HostName::Wildcard(b)) => a == b || is_below(b, a),
            (HostName::Prefix(a), HostName::Exact(b)) => {
                b.strip_prefix(a.as_str()).is_some_and(|rest| rest.len() > 1 && rest.starts_with('.'))
            }
            (HostName::Prefix(_) | HostName::Pattern(_), _) => self == other,
            _ => false,
        }
    }

    /// Returns the hosts that both names have, if any: of two names, one covers the other or they share none.
    pub fn intersection(&self, other: &HostName) -> Option<HostName> {
        match (self.covers(other), other.covers(self)) {
            (true, _) => Some(other.clone()),
            (_, true) => Some(self.clone()),
            _ => None,
        }
    }

    /// Returns how specific the name is: exact names first, then by length.
    pub fn specificity(&self) -> (u8, usize) {
        match self {
            HostName::Exact(name) => (4, name.len()),
            HostName::Wildcard(name) => (3, name.len()),
            HostName::Prefix(name) => (2, name.len()),
            HostName::Pattern(pattern) => (1, pattern.len()),
            HostName::Any => (0, 0),
        }
    }
}

impl fmt::Display for HostName {
    /// Writes the name as people write it; `*` for all hosts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostName::Exact(name) => f.write_str(name),
            HostName::Wildcard(name) => write!(f, "*.{name}"),
            HostName::Prefix(name) => write!(f, "{name}.*"),
            HostName::Pattern(pattern) => write!(f, "~{pattern}"),
            HostName::Any => f.write_str("*"),
        }
    }
}

fn is_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

/// Name of a group of servers: letters, digits, hyphens, dots and underscores.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(String);

impl GroupName {
    /// Joins parts by underscores. Names of Kubernetes contain none, so different parts give different names; other
    /// bytes are written in hexadecimal.
    pub fn new(parts: &[&str]) -> GroupName {
        let mut name = String::new();
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                name.push('_');
            }
            for byte in part.bytes() {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => name.push(char::from(byte)),
                    _ => name.push_str(&format!("_{byte:02x}_")),
                }
            }
        }
        GroupName(name)
    }

    /// Returns another group's name with a word of the language at its end.
    pub fn joined(name: &GroupName, word: &'static str) -> GroupName {
        GroupName(format!("{name}_{word}"))
    }

    /// Returns another group's name with further parts.
    pub fn extended(name: &GroupName, parts: &[&str]) -> GroupName {
        GroupName(format!("{name}_{}", GroupName::new(parts)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
