//! Names and variables in trees of directives.

use std::collections::BTreeSet;

use conf_syntax::writer::WriteNode;

/// Returns a name of letters, digits and underscores.
pub(crate) fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

/// Escapes the characters that mean something in a regular expression.
pub(crate) fn quote_pattern(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if "\\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Directives that may stand more than once in a block.
const REPEATABLE: &[&str] = &[
    "access_log",
    "add_header",
    "allow",
    "auth_request_set",
    "deny",
    "error_page",
    "fastcgi_param",
    "grpc_set_header",
    "if",
    "limit_conn",
    "limit_req",
    "location",
    "mirror",
    "modsecurity_rules",
    "modsecurity_rules_file",
    "more_set_headers",
    "proxy_cache_valid",
    "proxy_hide_header",
    "proxy_set_header",
    "return",
    "rewrite",
    "set",
    "set_escape_uri",
    "set_real_ip_from",
];

/// Removes lines whose directive a snippet of the same block has, too: the server refuses a second one.
pub(crate) fn without_repeated(lines: &mut Vec<WriteNode>, snippet: &[WriteNode]) {
    let names: BTreeSet<Vec<u8>> = snippet
        .iter()
        .filter_map(|node| match node {
            WriteNode::Directive(directive) => Some(directive.name.bytes()),
            WriteNode::Comment(_) | WriteNode::Blank => None,
        })
        .filter(|name| !REPEATABLE.iter().any(|known| known.as_bytes() == name.as_slice()))
        .collect();
    lines.retain(|node| !matches!(node, WriteNode::Directive(directive) if names.contains(&directive.name.bytes())));
}

/// Collects the names of variables in directives.
pub(crate) fn mentions(nodes: &[WriteNode], found: &mut BTreeSet<String>) {
    for node in nodes {
        let WriteNode::Directive(directive) = node else { continue };
        for argument in &directive.args {
            let text = argument.bytes();
            let mut rest = text.as_slice();
            while let Some(at) = rest.iter().position(|byte| *byte == b'$') {
                rest = &rest[at + 1..];
                rest = rest.strip_prefix(b"{").unwrap_or(rest);
                let end = rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
                let name = &rest[..end.unwrap_or(rest.len())];
                found.insert(String::from_utf8_lossy(name).into_owned());
            }
        }
        mentions(directive.block.as_deref().unwrap_or_default(), found);
    }
}
