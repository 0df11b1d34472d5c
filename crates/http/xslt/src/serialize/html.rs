//! The method `html`.

use super::TextWriter;
use super::tags::{self, Tag};
use crate::failure::RunResult;
use crate::names::{NameTable, QName};
use crate::tree::{Document, NIL, NodeIndex, NodeKind};

/// Names the encoding in a `meta` of `head` (section 16.2).
pub(super) fn set_meta_encoding(document: &mut Document, names: &mut NameTable, encoding: &str) {
    let find = |document: &Document, parent: NodeIndex, name: &str| {
        document.children(parent).find(|at| {
            let node = document.node(*at);
            node.kind == NodeKind::Element && names.text(node.name.local).eq_ignore_ascii_case(name)
        })
    };
    let html = find(document, 0, "html");
    let Some(head) = html.and_then(|html| find(document, html, "head")).or_else(|| find(document, 0, "head")) else {
        return;
    };
    let content = format!("text/html; charset={encoding}");
    let attribute = |document: &Document, meta: NodeIndex, name: &str| {
        document.attributes(meta).find(|at| names.text(document.node(*at).name.local).eq_ignore_ascii_case(name))
    };
    for child in document.children(head) {
        let node = document.node(child);
        if node.kind != NodeKind::Element || !names.text(node.name.local).eq_ignore_ascii_case("meta") {
            continue;
        }
        let is_type = attribute(document, child, "http-equiv")
            .is_some_and(|at| document.value(at).eq_ignore_ascii_case("Content-Type"));
        let Some(old) = attribute(document, child, "content").filter(|_| is_type) else { continue };
        if !document.value(old).to_ascii_lowercase().contains(&encoding.to_ascii_lowercase()) {
            let name = document.node(old).name;
            document.set_attribute(child, name, &content);
        }
        return;
    }
    let (meta, equiv, value) = (names.id("meta"), names.id("http-equiv"), names.id("content"));
    let node = document.append(head, NodeKind::Element, QName::local(meta), "", 0);
    document.append_attribute(node, QName::local(equiv), "Content-Type");
    document.append_attribute(node, QName::local(value), &content);
    document.move_last_to_front(head);
}

pub(super) fn write(mut writer: TextWriter<'_>) -> RunResult<String> {
    let options = writer.options;
    let document = writer.document;
    match (&options.doctype_public, &options.doctype_system) {
        (None, None) => {}
        (public, system) => {
            writer.push("<!DOCTYPE html");
            match (public, system) {
                (Some(public), system) => {
                    writer.push(&format!(" PUBLIC \"{public}\""));
                    if let Some(system) = system {
                        writer.push(&format!(" \"{system}\""));
                    }
                }
                (None, Some(system)) if system != "about:legacy-compat" => {
                    writer.push(&format!(" SYSTEM \"{system}\""));
                }
                _ => {}
            }
            writer.push(">\n");
        }
    }
    let format = options.indent != Some(false);
    let mut node = document.node(0).first;
    while node != NIL {
        writer.check()?;
        let entry = document.node(node);
        match entry.kind {
            NodeKind::Element => {
                let tag = tag_of(&writer, node);
                start_tag(&mut writer, node);
                if tag.is_some_and(|tag| tag.is_empty) {
                    writer.push(">");
                } else if entry.first == NIL {
                    writer.push(">");
                    if !tag.is_some_and(|tag| tag.omits_end) {
                        end_tag(&mut writer, node);
                    }
                } else {
                    writer.push(">");
                    let breaks =
                        format && is_block(tag) && !is_text(document, entry.first) && entry.first != entry.last;
                    if breaks && !starts_with_p(&writer, node) {
                        writer.push("\n");
                    }
                    node = entry.first;
                    continue;
                }
                break_behind(&mut writer, node, tag, format);
            }
            NodeKind::Text | NodeKind::RawText | NodeKind::Cdata => text(&mut writer, node),
            NodeKind::Comment => writer.comment(node),
            NodeKind::Instruction => writer.instruction(node, ">"),
            NodeKind::Document | NodeKind::Attribute => {}
        }
        loop {
            let entry = document.node(node);
            if entry.next != NIL {
                node = entry.next;
                break;
            }
            node = entry.parent;
            if node == 0 || node == NIL {
                writer.push("\n");
                return Ok(writer.out);
            }
            let (entry, tag) = (document.node(node), tag_of(&writer, node));
            let breaks = format && is_block(tag) && !is_text(document, entry.last) && entry.first != entry.last;
            if breaks && !starts_with_p(&writer, node) {
                writer.push("\n");
            }
            end_tag(&mut writer, node);
            break_behind(&mut writer, node, tag, format);
        }
    }
    Ok(writer.out)
}

fn is_text(document: &Document, node: NodeIndex) -> bool {
    document.node(node).kind.is_text()
}
fn is_block(tag: Option<Tag>) -> bool {
    tag.is_some_and(|tag| !tag.is_inline)
}
/// `p`, `pre`, `param`: no line is broken in them.
fn starts_with_p(writer: &TextWriter<'_>, node: NodeIndex) -> bool {
    writer.names.text(writer.document.node(node).name.local).starts_with('p')
}

fn tag_of(writer: &TextWriter<'_>, node: NodeIndex) -> Option<Tag> {
    let name = writer.document.node(node).name;
    if name.ns.is_none() { tags::tag(writer.names.text(name.local)) } else { None }
}

fn break_behind(writer: &mut TextWriter<'_>, node: NodeIndex, tag: Option<Tag>, format: bool) {
    let entry = writer.document.node(node);
    let breaks = format && is_block(tag) && entry.next != NIL && !is_text(writer.document, entry.next);
    if breaks && entry.parent != 0 && !starts_with_p(writer, entry.parent) {
        writer.push("\n");
    }
}

fn end_tag(writer: &mut TextWriter<'_>, node: NodeIndex) {
    writer.push("</");
    writer.name(node);
    writer.push(">");
}

fn start_tag(writer: &mut TextWriter<'_>, node: NodeIndex) {
    writer.push("<");
    writer.name(node);
    writer.declarations(node);
    let document = writer.document;
    for attribute in document.attributes(node) {
        writer.push(" ");
        writer.name(attribute);
        let name = document.node(attribute).name;
        let text = writer.names.text(name.local);
        if tags::is_boolean(text) {
            continue;
        }
        let is_link = name.ns.is_none()
            && document.node(node).name.ns.is_none()
            && (["href", "action", "src"].iter().any(|link| text.eq_ignore_ascii_case(link))
                || (text.eq_ignore_ascii_case("name")
                    && writer.names.text(document.node(node).name.local).eq_ignore_ascii_case("a")));
        writer.push("=");
        match is_link {
            true => {
                let escaped = escape_link(document.value(attribute));
                value(writer, &escaped);
            }
            false => value(writer, document.value(attribute)),
        }
    }
}

fn value(writer: &mut TextWriter<'_>, text: &str) {
    // As in libxml2, double quotes stand in single ones where that needs no escape.
    let quote = if text.contains('"') && !text.contains('\'') { "'" } else { "\"" };
    writer.push(quote);
    for (at, c) in text.char_indices() {
        match c {
            '"' if quote == "\"" => writer.push("&quot;"),
            '<' => writer.push("&lt;"),
            '>' => writer.push("&gt;"),
            '\r' => writer.push("&#13;"),
            // Script macros (HTML 4, appendix B.7).
            '&' if text.get(at + 1..).is_some_and(|rest| rest.starts_with('{')) => writer.push("&"),
            '&' => writer.push("&amp;"),
            c => writer.out.push(c),
        }
    }
    writer.push(quote);
}

/// Escapes a link: other characters than those of links, and leading spaces are dropped.
fn escape_link(text: &str) -> String {
    let text = text.trim_start_matches([' ', '\t', '\n', '\r']);
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.!~*'()@/:=?;#%&,+<>".contains(&byte) {
            true => out.push(byte as char),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn text(writer: &mut TextWriter<'_>, node: NodeIndex) {
    let document = writer.document;
    let entry = document.node(node);
    let parent = writer.names.text(document.node(entry.parent).name.local);
    let is_raw = entry.kind == NodeKind::RawText
        || parent.eq_ignore_ascii_case("script")
        || parent.eq_ignore_ascii_case("style");
    match is_raw {
        true => writer.push(document.value(node)),
        false => writer.escape_text(document.value(node)),
    }
}
