//! XML bodies of requests (RFC 4918, 14) and XML output.

use super::dead::PropertyChange;
use roxmltree::{Document, Node, ParsingOptions};

pub const DAV: &str = "DAV:";
/// Elements and texts per body.
const NODES_MAX: u32 = 4096;
const PROPERTIES_MAX: usize = 256;
const OWNER_BYTES_MAX: usize = 2048;
const VALUE_BYTES_MAX: usize = 16_384;
/// Maximum depth of the elements of an owner or a value.
const DEPTH_MAX: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertyName {
    pub namespace: String,
    pub local: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedProperties {
    All,
    Names,
    These(Vec<PropertyName>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    pub exclusive: bool,
    pub owner: Vec<u8>,
}

fn document(text: &[u8]) -> Option<Document<'_>> {
    let text = std::str::from_utf8(text).ok()?;
    // Rejects document types, which could define entities.
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).ok()?;
    // A prefix must not be bound to nothing (Namespaces in XML, 5).
    let unbound = |node: Node<'_, '_>| node.namespaces().any(|n| n.name().is_some() && n.uri().is_empty());
    if document.descendants().any(unbound) {
        return None;
    }
    Some(document)
}

fn is(node: &Node<'_, '_>, local: &str) -> bool {
    node.is_element() && node.has_tag_name((DAV, local))
}

/// Parses a PROPFIND body; an empty one requests all properties. `None`: invalid.
pub fn parse_propfind(text: &[u8]) -> Option<WantedProperties> {
    if text.is_empty() {
        return Some(WantedProperties::All);
    }
    let document = document(text)?;
    let root = document.root_element();
    if !is(&root, "propfind") {
        return None;
    }
    for child in root.children() {
        if is(&child, "allprop") {
            return Some(WantedProperties::All);
        }
        if is(&child, "propname") {
            return Some(WantedProperties::Names);
        }
        if is(&child, "prop") {
            let names: Vec<PropertyName> = child.children().filter(Node::is_element).map(|node| name(&node)).collect();
            return (names.len() <= PROPERTIES_MAX).then_some(WantedProperties::These(names));
        }
    }
    None
}

fn name(node: &Node<'_, '_>) -> PropertyName {
    let tag = node.tag_name();
    PropertyName { namespace: tag.namespace().unwrap_or_default().into(), local: tag.name().into() }
}

/// Parses a LOCK body. `None`: invalid, or the owner is too long.
pub fn lock_info(text: &[u8]) -> Option<LockInfo> {
    let document = document(text)?;
    let root = document.root_element();
    if !is(&root, "lockinfo") {
        return None;
    }
    let child = |of: Node<'_, '_>, local: &str| of.children().any(|node| is(&node, local));
    let scope = root.children().find(|node| is(node, "lockscope"))?;
    let kind = root.children().find(|node| is(node, "locktype"))?;
    if !child(kind, "write") || child(scope, "exclusive") == child(scope, "shared") {
        return None;
    }
    let mut owner = Vec::new();
    if let Some(node) = root.children().find(|node| is(node, "owner")) {
        for inner in node.children() {
            write(&inner, DEPTH_MAX, OWNER_BYTES_MAX, &mut owner)?;
        }
    }
    Some(LockInfo { exclusive: child(scope, "exclusive"), owner })
}

/// Parses a PROPPATCH body, in order. `None`: invalid, or a value is too long.
pub fn parse_proppatch(text: &[u8]) -> Option<Vec<PropertyChange>> {
    let document = document(text)?;
    let root = document.root_element();
    if !is(&root, "propertyupdate") {
        return None;
    }
    let mut changes = Vec::new();
    for part in root.children().filter(|node| is(node, "set") || is(node, "remove")) {
        for property in part.children().filter(|node| is(node, "prop")).flat_map(|prop| prop.children()) {
            if !property.is_element() {
                continue;
            }
            let name = name(&property);
            changes.push(match is(&part, "set") {
                false => PropertyChange::Remove(name),
                true => {
                    let mut value = Vec::new();
                    for inner in property.children() {
                        write(&inner, DEPTH_MAX, VALUE_BYTES_MAX, &mut value)?;
                    }
                    PropertyChange::Set(name, value)
                }
            });
        }
    }
    (!changes.is_empty() && changes.len() <= PROPERTIES_MAX).then_some(changes)
}

/// Writes a property as an empty element, or around a value.
pub fn write_element(name: &PropertyName, value: Option<&[u8]>, out: &mut Vec<u8>) {
    let tag = if name.namespace == DAV { format!("D:{}", name.local) } else { name.local.clone() };
    out.extend_from_slice(format!("<{tag}").as_bytes());
    if name.namespace != DAV {
        out.extend_from_slice(b" xmlns=\"");
        escape_xml(name.namespace.as_bytes(), out);
        out.push(b'"');
    }
    match value {
        None => out.extend_from_slice(b"/>\n"),
        Some(value) => {
            out.push(b'>');
            out.extend_from_slice(value);
            out.extend_from_slice(format!("</{tag}>\n").as_bytes());
        }
    }
}

/// Writes a node with its namespaces; `None`: too long or deep.
fn write(node: &Node<'_, '_>, depth: usize, bytes_max: usize, out: &mut Vec<u8>) -> Option<()> {
    if let Some(text) = node.text().filter(|_| node.is_text()) {
        escape_xml(text.as_bytes(), out);
    } else if node.is_element() {
        let depth = depth.checked_sub(1)?;
        let PropertyName { namespace, local } = name(node);
        let of_dav = namespace == DAV;
        let tag = if of_dav { format!("D:{local}") } else { local };
        out.extend_from_slice(format!("<{tag}").as_bytes());
        if !of_dav {
            out.extend_from_slice(b" xmlns=\"");
            escape_xml(namespace.as_bytes(), out);
            out.push(b'"');
        }
        for attribute in node.attributes().filter(|attribute| attribute.namespace().is_none()) {
            out.extend_from_slice(format!(" {}=\"", attribute.name()).as_bytes());
            escape_xml(attribute.value().as_bytes(), out);
            out.push(b'"');
        }
        out.push(b'>');
        for inner in node.children() {
            write(&inner, depth, bytes_max, out)?;
        }
        out.extend_from_slice(format!("</{tag}>").as_bytes());
    }
    (out.len() <= bytes_max).then_some(())
}

pub fn escape_xml(text: &[u8], out: &mut Vec<u8>) {
    for &c in text {
        match c {
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            // XML 1.0 forbids other control characters.
            0..=8 | 11 | 12 | 14..=31 => out.push(b'?'),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn these(names: &[(&str, &str)]) -> Option<WantedProperties> {
        let name =
            |(namespace, local): &(&str, &str)| PropertyName { namespace: (*namespace).into(), local: (*local).into() };
        Some(WantedProperties::These(names.iter().map(name).collect()))
    }

    #[test]
    fn propfind_bodies() {
        let of = |text: &str| parse_propfind(text.as_bytes());
        assert_eq!(of(""), Some(WantedProperties::All));
        assert_eq!(of("<propfind xmlns='DAV:'><allprop/></propfind>"), Some(WantedProperties::All));
        assert_eq!(of("<a:propfind xmlns:a='DAV:'><a:propname/></a:propfind>"), Some(WantedProperties::Names));
        assert_eq!(
            of(
                "<?xml version='1.0'?><a:propfind xmlns:a='DAV:'><a:prop><a:getetag/><x xmlns='urn:y'/><z/></a:prop></a:propfind>"
            ),
            these(&[("DAV:", "getetag"), ("urn:y", "x"), ("", "z")])
        );
        for wrong in [
            "x",
            "<propfind/>",
            "<propfind xmlns='DAV:'>",
            "<propfind xmlns='DAV:'/>",
            "<D:propfind xmlns:D='DAV:'><D:prop><bar:foo xmlns:bar=''/></D:prop></D:propfind>",
            "<!DOCTYPE p [<!ENTITY a 'b'>]><propfind xmlns='DAV:'><prop>&a;</prop></propfind>",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        let many = "<a/>".repeat(PROPERTIES_MAX + 1);
        assert_eq!(of(&format!("<propfind xmlns='DAV:'><prop>{many}</prop></propfind>")), None);
    }

    #[test]
    fn proppatch_bodies() {
        let of = |inside: &str| {
            parse_proppatch(
                format!("<propertyupdate xmlns='DAV:' xmlns:a='urn:a'>{inside}</propertyupdate>").as_bytes(),
            )
        };
        let name = |namespace: &str, local: &str| PropertyName { namespace: namespace.into(), local: local.into() };
        assert_eq!(
            of("<set><prop><a:b>x&lt;<a:c/></a:b><d xmlns=''/></prop></set><remove><prop><a:e/></prop></remove>"),
            Some(vec![
                PropertyChange::Set(name("urn:a", "b"), b"x&lt;<c xmlns=\"urn:a\"></c>".to_vec()),
                PropertyChange::Set(name("", "d"), Vec::new()),
                PropertyChange::Remove(name("urn:a", "e")),
            ])
        );
        assert_eq!((of(""), parse_proppatch(b"<a/>"), parse_proppatch(b"")), (None, None, None));
        let long = "x".repeat(VALUE_BYTES_MAX + 1);
        assert_eq!(of(&format!("<set><prop><a:b>{long}</a:b></prop></set>")), None);
    }

    #[test]
    fn lock_bodies() {
        let of = |scope: &str, owner: &str| {
            let text = format!(
                "<D:lockinfo xmlns:D='DAV:'><D:lockscope>{scope}</D:lockscope><D:locktype><D:write/></D:locktype>{owner}</D:lockinfo>"
            );
            lock_info(text.as_bytes())
        };
        let lock = of("<D:exclusive/>", "<D:owner><D:href>a&amp;b</D:href><x y='z'/></D:owner>").expect("a lock");
        assert!(lock.exclusive);
        assert_eq!(lock.owner, b"<D:href>a&amp;b</D:href><x xmlns=\"\" y=\"z\"></x>");
        assert!(!of("<D:shared/>", "").expect("a lock").exclusive);
        assert_eq!(of("", ""), None);
        assert_eq!(of("<D:shared/>", &format!("<D:owner>{}</D:owner>", "x".repeat(OWNER_BYTES_MAX + 1))), None);
        let deep = format!("<D:owner>{}{}</D:owner>", "<a>".repeat(40), "</a>".repeat(40));
        assert_eq!(of("<D:shared/>", &deep), None);
    }
}
