//! Host name verification (`X509_check_host` of OpenSSL with default flags, RFC 6125).

use crate::x509::{Certificate, name};
use std::net::IpAddr;

/// Matches DNS names, or common names without any.
pub fn matches_host(certificate: &Certificate, host: &str) -> bool {
    let names = &certificate.extensions.dns_names;
    if host.is_empty() {
        return false;
    }
    if !names.is_empty() {
        return names.iter().any(|pattern| matches(pattern, host.as_bytes()));
    }
    name::common_names(certificate.subject()).iter().any(|pattern| matches(pattern.as_bytes(), host.as_bytes()))
}

/// Subject alternative name that a certificate must have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AlternativeName {
    /// Matched by the DNS names of a certificate, wildcards included, and not by its common names.
    Dns(String),
    /// Compared octet by octet (RFC 9525, 6.5, without its normalization; SPIFFE ID, 2).
    Uri(String),
}

impl AlternativeName {
    /// Returns the name as configured.
    pub fn text(&self) -> &str {
        match self {
            AlternativeName::Dns(text) | AlternativeName::Uri(text) => text,
        }
    }
    /// Tells whether a certificate has the name.
    pub fn is_of(&self, certificate: &Certificate) -> bool {
        match self {
            AlternativeName::Dns(host) => {
                let names = &certificate.extensions.dns_names;
                !host.is_empty() && names.iter().any(|pattern| matches(pattern, host.as_bytes()))
            }
            AlternativeName::Uri(uri) => certificate.extensions.uris.iter().any(|own| own == uri.as_bytes()),
        }
    }
}

/// Tells whether a certificate names an address.
pub fn matches_address(certificate: &Certificate, address: IpAddr) -> bool {
    let octets = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    certificate.extensions.addresses.contains(&octets)
}

fn matches(pattern: &[u8], host: &[u8]) -> bool {
    if pattern.is_empty() || pattern.contains(&0) {
        return false;
    }
    // A host ".example.com" matches any name below.
    if host.first() == Some(&b'.') && host.len() > 1 {
        let tail = pattern.len().checked_sub(host.len()).filter(|at| *at > 0).and_then(|at| pattern.get(at..));
        return tail.is_some_and(|tail| tail.eq_ignore_ascii_case(host));
    }
    match star(pattern) {
        Some(at) => {
            let (before, after) = (pattern.get(..at).unwrap_or_default(), pattern.get(at + 1..).unwrap_or_default());
            wildcard(before, after, host)
        }
        None => pattern.eq_ignore_ascii_case(host),
    }
}

/// Position of the pattern's only `*`, if valid (`valid_star`).
fn star(pattern: &[u8]) -> Option<usize> {
    let mut found = None;
    let mut dots = 0;
    for (label_index, label) in pattern.split(|c| *c == b'.').enumerate() {
        if label.is_empty() || label.first() == Some(&b'-') || label.last() == Some(&b'-') {
            return None;
        }
        if label_index > 0 {
            dots += 1;
        }
        if let Some(at) = label.iter().position(|c| *c == b'*') {
            let idna = label.get(..4).is_some_and(|l| l.eq_ignore_ascii_case(b"xn--"));
            // One `*` in the first label, at its start or end.
            if label_index > 0 || found.is_some() || idna || (at != 0 && at + 1 != label.len()) {
                return None;
            }
            found = Some(at);
        }
        if !label.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'*')) {
            return None;
        }
        if label.iter().filter(|c| **c == b'*').count() > 1 {
            return None;
        }
    }
    found.filter(|_| dots >= 2)
}

fn wildcard(before: &[u8], after: &[u8], host: &[u8]) -> bool {
    let (Some(head), Some(at)) = (host.get(..before.len()), host.len().checked_sub(after.len())) else { return false };
    let Some(middle) = host.get(before.len()..at) else { return false };
    if !head.eq_ignore_ascii_case(before) || !host.get(at..).is_some_and(|tail| tail.eq_ignore_ascii_case(after)) {
        return false;
    }
    let whole_label = before.is_empty() && after.first() == Some(&b'.');
    // A whole label stands for at least one character, a part for any number; neither for a dot.
    if whole_label && middle.is_empty() {
        return false;
    }
    // Only a whole-label `*` matches an internationalised label.
    if !whole_label && host.get(..4).is_some_and(|l| l.eq_ignore_ascii_case(b"xn--")) {
        return false;
    }
    middle.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'-' || *c == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_openssls_do() {
        for (pattern, host, want) in [
            ("a.example", "A.Example", true),
            ("a.example", "b.example", false),
            ("*.a.example", "x.a.example", true),
            ("*.a.example", "a.example", false),
            ("*.a.example", "x.y.a.example", false),
            ("*.a.example", ".a.example", true),
            ("*.example", "x.example", false),
            ("*", "x", false),
            ("f*.a.example", "foo.a.example", true),
            ("*o.a.example", "foo.a.example", true),
            ("f*o.a.example", "foo.a.example", false),
            ("x.*.example", "x.y.example", false),
            ("*.*.example", "x.y.example", false),
            ("xn--*.a.example", "xn--b.a.example", false),
            ("*.a.example", "xn--b.a.example", true),
            ("x*.a.example", "xn--b.a.example", false),
            ("", "", false),
            ("a.example", "a.example.", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), host.as_bytes()), want, "{pattern} {host}");
        }
    }
}
