//! A table of host names and wildcards (`hostnames` of a map, referers): exact names first, then the longest wildcard.

use crate::AreaTypes;
use crate::names::{AreaNames, ServerName};
use conf_schema::Problem;

pub struct Hosts<A: AreaTypes, T> {
    names: AreaNames<A>,
    values: Vec<T>,
}

impl<A: AreaTypes, T> Default for Hosts<A, T> {
    fn default() -> Self {
        Hosts { names: AreaNames::default(), values: Vec::new() }
    }
}

impl<A: AreaTypes, T> Hosts<A, T> {
    /// Adds `example.com`, `*.example.com`, `.example.com` or `www.example.*`; fails with nginx's message.
    pub fn add(&mut self, name: &[u8], value: T) -> Result<(), Problem> {
        let shown = String::from_utf8_lossy(name);
        let lower = name.to_ascii_lowercase();
        let stars = lower.iter().filter(|c| **c == b'*').count();
        let kind = match lower.as_slice() {
            text if text.contains(&0) || stars > 1 || text.windows(2).any(|w| w == b"..") => None,
            [b'*', dotted @ ..] if matches!(dotted, [b'.', _, ..]) => Some(ServerName::Suffix(dotted.to_vec())),
            [b'.', below @ ..] if stars == 0 && !below.is_empty() => Some(ServerName::Below(below.to_vec())),
            [dotted @ .., b'*'] if matches!(dotted, [_, .., b'.']) => Some(ServerName::Prefix(dotted.to_vec())),
            _ if stars > 0 => None,
            _ => Some(ServerName::Exact(lower)),
        };
        let Some(kind) = kind else {
            return Err(Problem::says(format!("invalid hostname or wildcard \"{shown}\"")));
        };
        if !self.names.add(&kind, self.values.len()) {
            return Err(Problem::says(format!("conflicting parameter \"{shown}\"")));
        }
        self.values.push(value);
        Ok(())
    }
    /// Expects lower case.
    pub fn find(&self, host: &[u8]) -> Option<&T> {
        self.names.find_fixed(host).and_then(|index| self.values.get(index))
    }
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_wildcards() {
        let mut hosts = Hosts::<crate::testing::TestArea, _>::default();
        for (name, value) in [("Example.com", 1), ("*.example.com", 2), (".example.org", 3), ("mail.*", 4)] {
            hosts.add(name.as_bytes(), value).expect(name);
        }
        for (host, want) in [
            ("example.com", Some(1)),
            ("a.b.example.com", Some(2)),
            ("example.org", Some(3)),
            ("x.example.org", Some(3)),
            ("mail.example.net", Some(4)),
            ("example.net", None),
            ("", None),
        ] {
            assert_eq!(hosts.find(host.as_bytes()).copied(), want, "{host}");
        }
        for wrong in ["a*b", "*.*", "a..b", "*"] {
            let text = format!("{:?}", hosts.add(wrong.as_bytes(), 5).expect_err(wrong).words);
            assert!(text.contains("invalid hostname or wildcard"), "{text}");
        }
        let text = format!("{:?}", hosts.add(b"example.COM", 6).expect_err("twice").words);
        assert!(text.contains("conflicting parameter"), "{text}");
    }
}
