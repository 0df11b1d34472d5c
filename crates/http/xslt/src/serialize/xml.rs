//! The method `xml`.

use super::{TextWriter, xhtml};
use crate::failure::RunResult;
use crate::tree::{NIL, NodeIndex, NodeKind};

/// Deepest indentation, as in libxml2.
const INDENT_MAX: usize = 30;

pub(super) fn write(mut writer: TextWriter<'_>, is_xhtml: bool) -> RunResult<String> {
    let options = writer.options;
    if options.omit_declaration != Some(true) {
        writer.push("<?xml version=\"");
        writer.push(options.version.as_deref().unwrap_or("1.0"));
        writer.push("\"");
        if let Some(encoding) = &options.encoding {
            writer.push(" encoding=\"");
            writer.push(encoding);
            writer.push("\"");
        }
        match options.standalone {
            Some(true) => writer.push(" standalone=\"yes\""),
            Some(false) => writer.push(" standalone=\"no\""),
            None => {}
        }
        writer.push("?>\n");
    }
    let document = writer.document;
    let doctype = options.doctype_public.is_some() || options.doctype_system.is_some();
    if let Some(root) = document.root_element().filter(|_| doctype) {
        writer.push("<!DOCTYPE ");
        writer.name(root);
        match (&options.doctype_public, &options.doctype_system) {
            (Some(public), system) => {
                writer.push(&format!(" PUBLIC \"{public}\" \"{}\"", system.as_deref().unwrap_or("")));
            }
            (None, system) => writer.push(&format!(" SYSTEM \"{}\"", system.as_deref().unwrap_or(""))),
        }
        writer.push(">\n");
    }
    let format = options.indent == Some(true);
    let mut node = document.node(0).first;
    while node != NIL {
        let next = document.node(node).next;
        tree(&mut writer, node, format, is_xhtml)?;
        if document.node(node).kind == NodeKind::Comment && next != NIL && options.indent != Some(false) {
            writer.push("\n");
        }
        node = next;
    }
    // As in libxslt, which ends the text unless `indent` is "no".
    if options.indent != Some(false) {
        writer.push("\n");
    }
    Ok(writer.out)
}

/// Writes a node with its descendants, without recursion.
fn tree(writer: &mut TextWriter<'_>, top: NodeIndex, format: bool, is_xhtml: bool) -> RunResult<()> {
    let document = writer.document;
    let (mut node, mut level) = (top, 0);
    // The element within which nothing is indented: it has text.
    let mut unformatted: Option<NodeIndex> = None;
    loop {
        writer.check()?;
        let entry = document.node(node);
        let formats = format && unformatted.is_none();
        if formats && node != top && !entry.kind.is_text() {
            indent(writer, level);
        }
        match entry.kind {
            NodeKind::Element => {
                let meta = is_xhtml && xhtml::needs_meta(writer, node);
                start_tag(writer, node, is_xhtml);
                if entry.first != NIL {
                    let has_text = document.children(node).any(|child| document.node(child).kind.is_text());
                    if formats && has_text && !meta {
                        unformatted = Some(node);
                    }
                    writer.push(">");
                    let formats = format && unformatted.is_none();
                    if meta {
                        xhtml::meta(writer, formats, level);
                    }
                    if formats {
                        writer.push("\n");
                    }
                    level += 1;
                    node = entry.first;
                    continue;
                }
                if !is_xhtml {
                    writer.push("/>");
                } else {
                    xhtml::end_empty(writer, node, meta, formats, level);
                }
            }
            NodeKind::Text | NodeKind::RawText | NodeKind::Cdata => text(writer, node),
            NodeKind::Comment => writer.comment(node),
            NodeKind::Instruction => writer.instruction(node, "?>"),
            NodeKind::Document | NodeKind::Attribute => {}
        }
        loop {
            if node == top {
                return Ok(());
            }
            let entry = document.node(node);
            if format && unformatted.is_none() {
                writer.push("\n");
            }
            if entry.next != NIL {
                node = entry.next;
                break;
            }
            node = entry.parent;
            level -= 1;
            if format && unformatted.is_none() {
                indent(writer, level);
            }
            writer.push("</");
            writer.name(node);
            writer.push(">");
            if unformatted == Some(node) {
                unformatted = None;
            }
        }
    }
}

pub(super) fn indent(writer: &mut TextWriter<'_>, level: usize) {
    (0..level.min(INDENT_MAX)).for_each(|_| writer.push("  "));
}

fn start_tag(writer: &mut TextWriter<'_>, node: NodeIndex, is_xhtml: bool) {
    writer.push("<");
    writer.name(node);
    if is_xhtml {
        xhtml::declarations(writer, node);
        xhtml::attributes(writer, node);
        return;
    }
    writer.declarations(node);
    let document = writer.document;
    for attribute in document.attributes(node) {
        writer.push(" ");
        writer.name(attribute);
        writer.push("=\"");
        writer.escape_attribute(document.value(attribute), writer.options.encoding.is_some());
        writer.push("\"");
    }
}

fn text(writer: &mut TextWriter<'_>, node: NodeIndex) {
    let document = writer.document;
    let entry = document.node(node);
    let parent = document.node(entry.parent);
    let is_cdata = parent.kind == NodeKind::Element && writer.options.cdata_elements.contains(&parent.name.expanded());
    if !is_cdata {
        match entry.kind {
            NodeKind::RawText => writer.push(document.value(node)),
            _ => writer.escape_text(document.value(node)),
        }
        return;
    }
    // Adjacent text nodes are one section; "]]>" ends it and begins another.
    let joins = |other: u32| other != NIL && document.node(other).kind.is_text();
    if !joins(entry.prev) {
        writer.push("<![CDATA[");
    }
    let value = document.value(node).replace("]]>", "]]]]><![CDATA[>");
    writer.push(&value);
    if !joins(entry.next) {
        writer.push("]]>");
    }
}
