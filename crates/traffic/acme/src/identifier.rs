//! Identifiers of certificates: names, wildcards, addresses (RFC 8555, section 9.7.7; RFC 8738).

use std::fmt;
use std::net::IpAddr;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identifier {
    /// In lower case, without a final dot; a wildcard begins with `*.`.
    Dns(String),
    Ip(IpAddr),
}

impl Identifier {
    /// Parses a name or an address.
    pub fn parse(text: &str) -> Option<Identifier> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse() {
            return Some(Identifier::Ip(ip));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let host = name.strip_prefix("*.").unwrap_or(&name);
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
        };
        (host.len() <= 253 && host.split('.').all(label)).then_some(Identifier::Dns(name))
    }

    /// Tells whether an authorization of `other` proves this identifier: an equal one, the name of a wildcard, or a parent domain
    /// (RFC 9444).
    pub(crate) fn is_proven_by(&self, other: &Identifier) -> bool {
        match (self, other) {
            (Identifier::Dns(own), Identifier::Dns(other)) => {
                let own = own.strip_prefix("*.").unwrap_or(own);
                own == other || own.strip_suffix(other.as_str()).is_some_and(|rest| rest.ends_with('.'))
            }
            _ => self == other,
        }
    }

    /// Returns the type's name in orders.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Identifier::Dns(_) => "dns",
            Identifier::Ip(_) => "ip",
        }
    }

    /// Returns the name by which a server that validates tls-alpn-01 asks: of an address, its reverse name (RFC 8738, section
    /// 6).
    pub fn server_name(&self) -> String {
        match self {
            Identifier::Dns(name) => name.clone(),
            Identifier::Ip(IpAddr::V4(ip)) => {
                let [a, b, c, d] = ip.octets();
                format!("{d}.{c}.{b}.{a}.in-addr.arpa")
            }
            Identifier::Ip(IpAddr::V6(ip)) => {
                let nibbles = ip.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
                let text: Vec<String> = nibbles.map(|nibble| format!("{nibble:x}")).collect();
                format!("{}.ip6.arpa", text.join("."))
            }
        }
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identifier::Dns(name) => f.write_str(name),
            Identifier::Ip(ip) => ip.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorizations_concern_an_ordered_name() {
        let parse = |text: &str| Identifier::parse(text).expect(text);
        let proves = |ordered: &str, proven: &str| parse(ordered).is_proven_by(&parse(proven));
        assert!(proves("a.test", "A.test.") && proves("*.a.test", "a.test") && proves("b.a.test", "a.test"));
        assert!(proves("127.0.0.1", "127.0.0.1"));
        for (ordered, proven) in [
            ("a.test", "b.test"),
            ("a.test", "b.a.test"),
            ("ba.test", "a.test"),
            ("127.0.0.1", "::1"),
            ("a.test", "127.0.0.1"),
        ] {
            assert!(!proves(ordered, proven), "{ordered} {proven}");
        }
    }

    #[test]
    fn names_and_addresses() {
        let parsed = |text: &str| Identifier::parse(text).map(|id| (id.kind(), id.to_string()));
        assert_eq!(parsed("WWW.Example.test."), Some(("dns", "www.example.test".into())));
        assert_eq!(parsed("*.example.test"), Some(("dns", "*.example.test".into())));
        assert_eq!(parsed("127.0.0.1"), Some(("ip", "127.0.0.1".into())));
        assert_eq!(parsed("[::1]"), Some(("ip", "::1".into())));
        for text in ["", ".", "a..b", ".a", "a b", "www.*", "a.*.b", "~^a$", &"a".repeat(64), &"a.".repeat(150)] {
            assert_eq!(parsed(text), None, "{text}");
        }
        let reverse = |text: &str| Identifier::parse(text).map(|id| id.server_name()).unwrap_or_default();
        assert_eq!(reverse("192.0.2.1"), "1.2.0.192.in-addr.arpa");
        assert!(
            reverse("2001:db8::1").starts_with("1.0.0.0.")
                && reverse("2001:db8::1").ends_with(".8.b.d.0.1.0.0.2.ip6.arpa")
        );
    }
}
