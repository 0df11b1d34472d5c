//! Names of objects and namespaces, as the Kubernetes API server accepts them (RFC 1123).

/// Tells whether a name is a DNS label: at most 63 lower-case letters, digits and hyphens.
pub fn is_label(name: &str) -> bool {
    name.len() <= 63 && has_label_form(name)
}

/// Tells whether a name is a DNS subdomain: labels joined by dots, at most 253 bytes. As in Kubernetes, a label of it may
/// have more than 63 bytes: EndpointSlices and Pods have such names.
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(has_label_form)
}

fn has_label_form(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.bytes().all(inner) && !matches!(name.as_bytes(), [] | [b'-', ..]) && name.as_bytes().last() != Some(&b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdomains_may_have_long_labels_and_labels_may_not() {
        let long = "a".repeat(64);
        assert!(is_subdomain(&long) && !is_label(&long));
        assert!(is_subdomain("a-1.b") && !is_label("a-1.b") && is_label("a-1"));
        for name in ["", "-a", "a-", "A", "a..b", "a_b", "../etc", &"a".repeat(254)] {
            assert!(!is_subdomain(name) && !is_label(name), "{name}");
        }
    }
}
