//! Names of objects and namespaces, as the Kubernetes API server accepts them (RFC 1123).

/// Tells whether a name is a DNS label: at most 63 lower-case letters, digits and hyphens.
pub fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= 63
        && name.bytes().all(inner)
        && !matches!(name.as_bytes(), [] | [b'-', ..])
        && name.as_bytes().last() != Some(&b'-')
}

/// Tells whether a name is a DNS subdomain: labels joined by dots, at most 253 bytes.
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}
