//! XHTML 1.0: libxml2 writes XML with its document types so that browsers of HTML read it (appendix C).

use super::{OutputOptions, TextWriter, tags, xml};
use crate::names::NameId;
use crate::tree::NodeIndex;

const PUBLIC: &[&str] = &[
    "-//W3C//DTD XHTML 1.0 Strict//EN",
    "-//W3C//DTD XHTML 1.0 Frameset//EN",
    "-//W3C//DTD XHTML 1.0 Transitional//EN",
];
const SYSTEM: &[&str] = &[
    "http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd",
    "http://www.w3.org/TR/xhtml1/DTD/xhtml1-frameset.dtd",
    "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd",
];

pub(super) fn is_doctype(options: &OutputOptions) -> bool {
    options.doctype_public.as_deref().is_some_and(|id| PUBLIC.contains(&id))
        || options.doctype_system.as_deref().is_some_and(|id| SYSTEM.contains(&id))
}

fn local<'w>(writer: &TextWriter<'w>, node: NodeIndex) -> &'w str {
    writer.names.text(writer.document.node(node).name.local)
}

/// A `head` of `html` without a content type.
pub(super) fn needs_meta(writer: &TextWriter<'_>, node: NodeIndex) -> bool {
    let document = writer.document;
    let parent = document.node(node).parent;
    let is_head = local(writer, node) == "head"
        && writer.is_element(parent)
        && local(writer, parent) == "html"
        && document.node(parent).parent == 0;
    is_head
        && !document.children(node).any(|child| {
            writer.is_element(child)
                && local(writer, child) == "meta"
                && document.attributes(child).any(|at| {
                    local(writer, at).eq_ignore_ascii_case("http-equiv")
                        && document.value(at).eq_ignore_ascii_case("Content-Type")
                })
        })
}

pub(super) fn meta(writer: &mut TextWriter<'_>, formats: bool, level: usize) {
    if formats {
        writer.push("\n");
        xml::indent(writer, level + 1);
    }
    let encoding = writer.options.encoding.as_deref().unwrap_or("UTF-8");
    writer.push("<meta http-equiv=\"Content-Type\" content=\"text/html; charset=");
    writer.push(encoding);
    writer.push("\" />");
}

/// The end of an element without children.
pub(super) fn end_empty(writer: &mut TextWriter<'_>, node: NodeIndex, has_meta: bool, formats: bool, level: usize) {
    let is_plain = writer.document.node(node).name.prefix.is_none();
    if is_plain && tags::is_xhtml_empty(local(writer, node)) && !has_meta {
        writer.push(" />");
        return;
    }
    writer.push(">");
    if has_meta {
        meta(writer, formats, level);
        if formats {
            writer.push("\n");
            xml::indent(writer, level);
        }
    }
    writer.push("</");
    writer.name(node);
    writer.push(">");
}

/// Declarations; an element `html` gets the default namespace.
pub(super) fn declarations(writer: &mut TextWriter<'_>, node: NodeIndex) {
    let document = writer.document;
    let name = document.node(node).name;
    let has_own = document.own_declarations(node).next().is_some();
    if local(writer, node) == "html" && name.ns.is_none() && !has_own {
        writer.push(" xmlns=\"http://www.w3.org/1999/xhtml\"");
    }
    writer.declarations(node);
}

pub(super) fn attributes(writer: &mut TextWriter<'_>, node: NodeIndex) {
    let document = writer.document;
    let (mut lang, mut xml_lang, mut id, mut name) = (None, None, false, None);
    for attribute in document.attributes(node) {
        let its = document.node(attribute).name;
        let text = writer.names.text(its.local);
        match (its.ns, text) {
            (NameId::NONE, "id") => id = true,
            (NameId::NONE, "name") => name = Some(attribute),
            (NameId::NONE, "lang") => lang = Some(attribute),
            (NameId::XML_NS, "lang") => xml_lang = Some(attribute),
            _ => {}
        }
        let value = match document.value(attribute) {
            "" if its.ns.is_none() && tags::is_boolean(text) => text,
            value => value,
        };
        writer.push(" ");
        writer.name(attribute);
        pair(writer, value);
    }
    let named = ["a", "p", "div", "img", "map", "applet", "form", "frame", "iframe"];
    if let Some(name) = name.filter(|_| !id && named.contains(&local(writer, node))) {
        writer.push(" id");
        pair(writer, document.value(name));
    }
    match (lang, xml_lang) {
        (Some(lang), None) => {
            writer.push(" xml:lang");
            pair(writer, document.value(lang));
        }
        (None, Some(lang)) => {
            writer.push(" lang");
            pair(writer, document.value(lang));
        }
        _ => {}
    }
}

fn pair(writer: &mut TextWriter<'_>, value: &str) {
    writer.push("=\"");
    writer.escape_attribute(value, writer.options.encoding.is_some());
    writer.push("\"");
}
