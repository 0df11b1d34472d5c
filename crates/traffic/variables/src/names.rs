//! Server names: `server_name` lines, and the selection of a server by name.

use crate::AreaTypes;
use crate::regex::{MatchFailed, Pattern};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use hashbrown::HashMap;
use std::sync::Arc;

pub struct ServerNames<A: AreaTypes>(pub Vec<ServerName<A>>);

impl<A: AreaTypes> Clone for ServerNames<A> {
    fn clone(&self) -> Self {
        ServerNames(self.0.clone())
    }
}

pub enum ServerName<A: AreaTypes> {
    /// Lower case; may be empty (requests without a host).
    Exact(Vec<u8>),
    /// `*.example.com`: the part after the star, with its dot.
    Suffix(Vec<u8>),
    /// `.example.com`: the name and its subdomains.
    Below(Vec<u8>),
    /// `www.example.*`: the part before the star, with its dot.
    Prefix(Vec<u8>),
    Regex(Arc<Pattern<A>>),
}

impl<A: AreaTypes> Clone for ServerName<A> {
    fn clone(&self) -> Self {
        match self {
            ServerName::Exact(n) => ServerName::Exact(n.clone()),
            ServerName::Suffix(n) => ServerName::Suffix(n.clone()),
            ServerName::Below(n) => ServerName::Below(n.clone()),
            ServerName::Prefix(n) => ServerName::Prefix(n.clone()),
            ServerName::Regex(p) => ServerName::Regex(p.clone()),
        }
    }
}

impl<A: AreaTypes> std::fmt::Debug for ServerName<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.written()))
    }
}

impl<A: AreaTypes> std::fmt::Debug for ServerNames<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

impl<A: AreaTypes> ServerName<A> {
    /// `$server_name`
    pub fn written(&self) -> Vec<u8> {
        match self {
            ServerName::Exact(n) | ServerName::Below(n) => n.clone(),
            ServerName::Suffix(n) => [b"*", n.as_slice()].concat(),
            ServerName::Prefix(n) => [n.as_slice(), b"*"].concat(),
            ServerName::Regex(p) => [b"~", p.text()].concat(),
        }
    }
    /// As in the configuration: unlike `$server_name`, with the dot of `.example.com`.
    pub fn configured(&self) -> Vec<u8> {
        match self {
            ServerName::Below(n) => [b".", n.as_slice()].concat(),
            name => name.written(),
        }
    }
    /// Tells whether the name is neither a host nor a wildcard, such as `a*b`: nginx accepts it for the only server of an
    /// address, which needs no name.
    pub fn is_unusable(&self) -> bool {
        let ServerName::Exact(name) = self else { return false };
        name.contains(&b'*') || name.windows(2).any(|pair| pair == b"..")
    }
    pub fn shown(&self) -> String {
        match self {
            ServerName::Below(n) => format!(".{}", String::from_utf8_lossy(n)),
            ServerName::Regex(_) => String::new(),
            name => String::from_utf8_lossy(&name.written()).into_owned(),
        }
    }
}

impl<A: AreaTypes> ValueKind for ServerNames<A> {
    const SYNTAX: &'static str = "name ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut names = Vec::new();
        for (index, word) in d.args.iter().enumerate() {
            names.push(server_name(cx, d, &word.bytes).map_err(|p| p.at(index))?);
        }
        Ok(ServerNames(names))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

fn server_name<A: AreaTypes>(cx: &mut Cx, d: &Directive, text: &[u8]) -> Result<ServerName<A>, Problem> {
    let shown = String::from_utf8_lossy(text).into_owned();
    let invalid = || Problem::says(format!("server name \"{shown}\" is invalid"));
    if let Some(pattern) = text.strip_prefix(b"~") {
        if pattern.is_empty() {
            return Err(Problem::says(format!("empty regex in server name \"{shown}\"")));
        }
        // nginx ignores case if the pattern contains capitals, because hosts are in lower case.
        let caseless = pattern.iter().any(u8::is_ascii_uppercase);
        return Pattern::new(cx, pattern, caseless).map(|p| ServerName::Regex(Arc::new(p)));
    }
    if text.eq_ignore_ascii_case(b"$hostname") {
        return Ok(ServerName::Exact(net::process::host_name().to_vec()));
    }
    let lower = text.to_ascii_lowercase();
    if lower.contains(&b'/') {
        cx.warn(d, format!("server name \"{shown}\" has suspicious symbols"));
    }
    let is_short = match lower.as_slice() {
        [b'*', rest @ ..] => !matches!(rest, [b'.', _, ..]),
        name => name == b".",
    };
    if lower.contains(&0) || is_short {
        return Err(invalid());
    }
    // Is unusable as an exact name.
    if lower.windows(2).any(|w| w == b"..") || lower.iter().filter(|c| **c == b'*').count() > 1 {
        return Ok(ServerName::Exact(lower));
    }
    match lower.as_slice() {
        [b'*', dotted @ ..] if matches!(dotted, [b'.', _, ..]) => Ok(ServerName::Suffix(dotted.to_vec())),
        [b'.', below @ ..] if !below.is_empty() && !below.contains(&b'*') => Ok(ServerName::Below(below.to_vec())),
        [dotted @ .., b'*'] if matches!(dotted, [_, .., b'.']) => Ok(ServerName::Prefix(dotted.to_vec())),
        _ => Ok(ServerName::Exact(lower)),
    }
}

pub struct AreaNames<A: AreaTypes> {
    exact: HashMap<Vec<u8>, usize>,
    /// `.example.com` by its part after the star.
    suffix: HashMap<Vec<u8>, usize>,
    prefix: HashMap<Vec<u8>, usize>,
    regex: Vec<(Arc<Pattern<A>>, usize)>,
}

impl<A: AreaTypes> Default for AreaNames<A> {
    fn default() -> Self {
        AreaNames { exact: HashMap::new(), suffix: HashMap::new(), prefix: HashMap::new(), regex: Vec::new() }
    }
}

impl<A: AreaTypes> std::fmt::Debug for AreaNames<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let AreaNames { exact, suffix, prefix, regex } = self;
        write!(f, "Names({} exact, {} wildcards, {regex:?})", exact.len(), suffix.len() + prefix.len())
    }
}

impl<A: AreaTypes> AreaNames<A> {
    /// Adds a server's name; `false` if it was added before.
    pub fn add(&mut self, name: &ServerName<A>, server: usize) -> bool {
        fn insert(table: &mut HashMap<Vec<u8>, usize>, key: &[u8], server: usize) -> bool {
            if table.contains_key(key) {
                return false;
            }
            table.insert(key.to_vec(), server);
            true
        }
        match name {
            ServerName::Exact(n) => insert(&mut self.exact, n, server),
            ServerName::Suffix(n) => insert(&mut self.suffix, n, server),
            ServerName::Below(n) => {
                let dotted = [b".", n.as_slice()].concat();
                insert(&mut self.exact, n, server) & insert(&mut self.suffix, &dotted, server)
            }
            ServerName::Prefix(n) => insert(&mut self.prefix, n, server),
            ServerName::Regex(p) => {
                self.regex.push((p.clone(), server));
                true
            }
        }
    }
    /// Server of a lower-case host: exact name, longest wildcard, first regular expression, which may fail.
    pub fn find(&self, host: &[u8], r: &mut A::Session) -> Result<Option<usize>, MatchFailed> {
        if let Some(server) = self.find_fixed(host) {
            return Ok(Some(server));
        }
        for (pattern, server) in &self.regex {
            if pattern.run(r, host)? {
                return Ok(Some(*server));
            }
        }
        Ok(None)
    }
    /// `find` without regular expressions.
    pub fn find_fixed(&self, host: &[u8]) -> Option<usize> {
        if let Some(server) = self.exact.get(host) {
            return Some(*server);
        }
        if !self.suffix.is_empty() {
            let dots = host.iter().enumerate().filter(|(_, c)| **c == b'.').map(|(i, _)| i);
            for dot in dots {
                if let Some(server) = host.get(dot..).and_then(|dotted| self.suffix.get(dotted)) {
                    return Some(*server);
                }
            }
        }
        if !self.prefix.is_empty() {
            let dots: Vec<usize> = host.iter().enumerate().filter(|(_, c)| **c == b'.').map(|(i, _)| i).collect();
            for dot in dots.into_iter().rev() {
                if let Some(server) = host.get(..=dot).and_then(|dotted| self.prefix.get(dotted)) {
                    return Some(*server);
                }
            }
        }
        None
    }
    #[must_use]
    pub fn regexes_only(self) -> Self {
        AreaNames { regex: self.regex, ..AreaNames::default() }
    }
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.suffix.is_empty() && self.prefix.is_empty() && self.regex.is_empty()
    }
}

/// Validates a request's host, lower-cases it, and returns its port (nginx: `ngx_http_validate_host`; RFC 3986, 3.2.2).
/// Fails on anything but a host name, address or IP literal with an optional port.
pub fn parse_host(text: &[u8], out: &mut Vec<u8>) -> Option<Option<u16>> {
    out.clear();
    let in_name = |c: u8| {
        c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&'..=b',' | b';' | b'=')
    };
    let end = if text.first() == Some(&b'[') {
        text.iter().position(|c| *c == b']')? + 1
    } else {
        text.iter().position(|c| *c == b':').unwrap_or(text.len())
    };
    let (name, rest) = text.split_at_checked(end)?;
    let is_name = match name {
        [b'[', literal @ .., b']'] => literal.iter().all(|c| in_name(*c) || *c == b':'),
        _ => name.iter().all(|c| in_name(*c) || *c == b'%'),
    };
    if !is_name {
        return None;
    }
    if name.windows(2).any(|w| w == b"..") {
        return None;
    }
    let port = match rest {
        [] => None,
        [b':', digits @ ..] => {
            let mut port: u32 = 0;
            for d in digits {
                port = port * 10 + (*d as char).to_digit(10)?;
                if port > 65535 {
                    return None;
                }
            }
            u16::try_from(port).ok().filter(|p| *p > 0)
        }
        _ => return None,
    };
    let name = name.strip_suffix(b".").unwrap_or(name);
    if name.is_empty() {
        return None;
    }
    out.extend(name.iter().map(u8::to_ascii_lowercase));
    Some(port)
}

/// Validates a host from a handshake or header: lower case, without port.
pub fn valid_host(text: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    parse_host(text, &mut name)?;
    Some(name)
}
