//! Documents: elements, text, references and the namespaces of names.

use super::dtd::{Dtd, EntityValue, Subset, quoted, without_declaration};
use super::scan::{Scan, ScanFault, fault, is_char, is_ncname, is_space};
use super::{DEPTH_MAX, ENTITY_DEPTH_MAX, INPUT_MAX, Loader, TREE_MAX, XmlError, decode_document, resolve_uri};
use crate::failure::UNWANTED;
use crate::names::{NameId, NameTable, QName};
use crate::tree::{Document, NodeIndex, NodeKind};
use std::collections::HashSet;

/// Rules of a document.
pub struct ParseOptions<'o> {
    /// Address of the document.
    pub uri: &'o str,
    /// Reads external entities of the internal subset; otherwise they are empty.
    pub external_entities: bool,
    /// Reads the external subset; otherwise `entities` takes its place.
    pub external_subset: bool,
    /// Declarations that take the place of an external subset.
    pub entities: Option<&'o Dtd>,
    /// Keeps CDATA sections apart from text.
    pub keep_cdata: bool,
}

/// Parsed document.
pub struct ParsedDocument {
    pub document: Document,
    /// Violations of Namespaces in XML and references to unknown entities, which leave the document usable.
    pub errors: Vec<XmlError>,
    /// External entities that were not read: name, public and system identifiers.
    pub ignored: Vec<(String, String, String)>,
}

struct OpenElement {
    index: NodeIndex,
    name: String,
    line: u32,
    bindings: usize,
}

struct XmlParser<'p> {
    options: &'p ParseOptions<'p>,
    subset: Subset<'p>,
    names: &'p mut NameTable,
    document: Document,
    open: Vec<OpenElement>,
    bindings: Vec<(NameId, NameId)>,
    has_doctype: bool,
    errors: Vec<XmlError>,
    entity_depth: usize,
    /// Parts of contents so far.
    parts: usize,
}

/// Parts of contents between two questions for the receiver.
const PARTS_UNASKED: usize = 4096;

/// Parses a document. Errors have the position of the document, or of the entity that has them.
pub fn parse_document(
    bytes: &[u8],
    options: &ParseOptions<'_>,
    names: &mut NameTable,
    loader: &mut dyn Loader,
) -> Result<ParsedDocument, XmlError> {
    let uri = options.uri;
    if bytes.len() > INPUT_MAX {
        return Err(Scan::new("").locate((1, "document too large".into()), uri));
    }
    let text = decode_document(bytes).map_err(|fault| Scan::new("").locate(fault, uri))?;
    let mut scan = Scan::new(&text);
    if let Some((at, c)) = text.char_indices().find(|(_, c)| !is_char(*c)) {
        scan.at = at;
        return Err(scan.locate((9, format!("PCDATA invalid Char value {}", c as u32)), uri));
    }
    let subset = Subset {
        dtd: Dtd::default(),
        loader,
        expanded: 0,
        input: text.len(),
        external: options.external_entities,
        ignored: Vec::new(),
    };
    let mut parser = XmlParser {
        options,
        subset,
        names,
        document: Document::new(uri.into()),
        open: Vec::new(),
        bindings: Vec::new(),
        has_doctype: false,
        errors: Vec::new(),
        entity_depth: 0,
        parts: 0,
    };
    if let Err(fault) = parser.document(&mut scan) {
        return Err(scan.locate(fault, uri));
    }
    let XmlParser { mut document, subset, errors, .. } = parser;
    for (name, entity) in subset.dtd.general {
        if let EntityValue::Unparsed(uri) = entity.value {
            document.unparsed.insert(name, uri);
        }
    }
    Ok(ParsedDocument { document, errors, ignored: subset.ignored })
}

impl XmlParser<'_> {
    fn document(&mut self, scan: &mut Scan<'_>) -> Result<(), ScanFault> {
        if scan.ended() {
            return fault(4, "Document is empty");
        }
        if scan.rest().strip_prefix("<?xml").is_some_and(|rest| rest.bytes().next().is_some_and(is_space)) {
            self.declaration(scan)?;
        }
        self.miscellany(scan)?;
        if scan.eat("<!DOCTYPE") {
            self.doctype(scan)?;
            self.miscellany(scan)?;
        }
        if scan.peek() != Some(b'<') {
            return fault(4, "Start tag expected, '<' not found");
        }
        self.start_tag(scan)?;
        if !self.open.is_empty() {
            self.content(scan, 0)?;
        }
        self.miscellany(scan)?;
        match scan.ended() {
            true => Ok(()),
            false => fault(5, "Extra content at the end of the document"),
        }
    }

    fn declaration(&mut self, scan: &mut Scan<'_>) -> Result<(), ScanFault> {
        scan.at += 5;
        let Some(text) = scan.until("?>") else { return fault(57, "parsing XML declaration: '?>' expected") };
        let mut inner = Scan::new(text);
        for (at, name) in ["version", "encoding", "standalone"].into_iter().enumerate() {
            inner.skip_space();
            if inner.eat(name) {
                inner.skip_space();
                if !inner.eat("=") {
                    return fault(75, "expected '='");
                }
                let value = quoted(&mut inner).map_err(|_| (33, "String not started expecting ' or \"".to_string()))?;
                if name == "version" && !(value.starts_with("1.") && value.len() > 2) {
                    return fault(109, format!("Unsupported version '{value}'"));
                }
            } else if at == 0 {
                return fault(96, "Malformed declaration expecting version");
            }
        }
        inner.skip_space();
        if inner.ended() { Ok(()) } else { fault(57, "parsing XML declaration: '?>' expected") }
    }

    /// Comments, processing instructions and space outside of the root element.
    fn miscellany(&mut self, scan: &mut Scan<'_>) -> Result<(), ScanFault> {
        loop {
            scan.skip_space();
            if scan.eat("<!--") {
                self.comment(scan)?;
            } else if scan.eat("<?") {
                self.instruction(scan)?;
            } else {
                return Ok(());
            }
        }
    }

    /// Fails if the tree is too large.
    fn check_room(&self) -> Result<(), ScanFault> {
        match self.document.bytes() > TREE_MAX {
            true => fault(2, "Memory allocation failed"),
            false => Ok(()),
        }
    }

    fn parent(&self) -> NodeIndex {
        self.open.last().map_or(0, |open| open.index)
    }

    fn comment(&mut self, scan: &mut Scan<'_>) -> Result<(), ScanFault> {
        let line = scan.line();
        let Some(text) = scan.until("--") else { return fault(45, "Comment not terminated") };
        if !scan.eat(">") {
            return fault(80, "Double hyphen within comment");
        }
        self.document.append(self.parent(), NodeKind::Comment, QName::default(), text, line);
        Ok(())
    }

    fn instruction(&mut self, scan: &mut Scan<'_>) -> Result<(), ScanFault> {
        let line = scan.line();
        let name = scan.name();
        if name.is_empty() {
            return fault(46, "xmlParsePI : no target name");
        }
        if name.eq_ignore_ascii_case("xml") {
            return fault(64, "XML declaration allowed only at the start of the document");
        }
        let spaced = scan.skip_space();
        let Some(text) = scan.until("?>") else { return fault(47, "xmlParsePI : PI not terminated") };
        if !spaced && !text.is_empty() {
            return fault(65, "ParsePI: PI name space expected");
        }
        let name = QName::local(self.names.id(name));
        self.document.append(self.parent(), NodeKind::Instruction, name, text, line);
        Ok(())
    }

    fn doctype(&mut self, scan: &mut Scan<'_>) -> Result<(), ScanFault> {
        self.has_doctype = true;
        scan.skip_space();
        if scan.name().is_empty() {
            return fault(68, "xmlParseDocTypeDecl : no DOCTYPE name !");
        }
        scan.skip_space();
        let mut system = None;
        if scan.eat("SYSTEM") {
            system = Some(quoted(scan)?);
        } else if scan.eat("PUBLIC") {
            quoted(scan)?;
            system = Some(quoted(scan)?);
        }
        scan.skip_space();
        if scan.eat("[") {
            self.subset.read(scan, self.options.uri, false, 0)?;
            if !scan.eat("]") {
                return fault(60, "xmlParseInternalSubset: error detected in Markup declaration");
            }
            scan.skip_space();
        }
        if !scan.eat(">") {
            return fault(61, "DOCTYPE improperly terminated");
        }
        self.subset.dtd.may_have_more |= system.is_some();
        if let Some(system) = system.filter(|_| self.options.external_subset) {
            let uri = resolve_uri(self.options.uri, &system);
            // A subset that is absent is a warning of libxml2.
            if let Ok(bytes) = self.subset.loader.load(&uri) {
                self.subset.input += bytes.len();
                let text = decode_document(&bytes)?;
                self.subset.read(&mut Scan::new(without_declaration(&text)), &uri, true, 0)?;
            }
        }
        Ok(())
    }

    /// Content until the open elements are `floor`: for an entity, its end.
    fn content(&mut self, scan: &mut Scan<'_>, floor: usize) -> Result<(), ScanFault> {
        let is_entity = floor > 0;
        loop {
            self.parts = self.parts.wrapping_add(1);
            if self.parts.is_multiple_of(PARTS_UNASKED) && !self.subset.loader.is_wanted() {
                return fault(1, UNWANTED);
            }
            if scan.ended() {
                return match self.open.last() {
                    Some(open) if self.open.len() > floor => {
                        fault(77, format!("Premature end of data in tag {} line {}", open.name, open.line))
                    }
                    _ => Ok(()),
                };
            }
            let rest = scan.rest();
            let end = rest.find(['<', '&']).unwrap_or(rest.len());
            if end > 0 {
                let text = rest.get(..end).unwrap_or("");
                if let Some(at) = text.find("]]>") {
                    scan.at += at;
                    return fault(62, "Sequence ']]>' not allowed in content");
                }
                let line = scan.line();
                self.document.append_text(self.parent(), NodeKind::Text, text, line);
                scan.at += end;
            } else if scan.peek() == Some(b'&') {
                self.reference(scan)?;
            } else if scan.rest().starts_with("</") {
                if self.open.len() <= floor && is_entity {
                    return fault(85, "Entity value required");
                }
                self.end_tag(scan)?;
                if self.open.is_empty() {
                    return Ok(());
                }
            } else if scan.eat("<!--") {
                self.comment(scan)?;
            } else if scan.eat("<![CDATA[") {
                let line = scan.line();
                let Some(text) = scan.until("]]>") else { return fault(63, "CData section not finished") };
                match self.options.keep_cdata {
                    true => {
                        self.document.append(self.parent(), NodeKind::Cdata, QName::default(), text, line);
                    }
                    false => self.document.append_text(self.parent(), NodeKind::Text, text, line),
                }
            } else if scan.eat("<?") {
                self.instruction(scan)?;
            } else {
                self.start_tag(scan)?;
            }
        }
    }

    fn reference(&mut self, scan: &mut Scan<'_>) -> Result<(), ScanFault> {
        scan.at += 1;
        let line = scan.line();
        if scan.eat("#") {
            let c = scan.char_reference()?;
            self.document.append_text(self.parent(), NodeKind::Text, c.encode_utf8(&mut [0; 4]), line);
            return Ok(());
        }
        let name = entity_name(scan)?;
        if let Some(text) = predefined(name) {
            self.document.append_text(self.parent(), NodeKind::Text, text, line);
            return Ok(());
        }
        let Some(entity) = self.entity(name)? else {
            self.note(scan, 26, format!("Entity '{name}' not defined"));
            return Ok(());
        };
        let (text, base) = match entity {
            EntityValue::Text(text) => (text, None),
            EntityValue::External(uri) => {
                let bytes = match self.subset.loader.load(&uri) {
                    Ok(bytes) => bytes,
                    Err(_) => return Ok(()),
                };
                (without_declaration(&decode_document(&bytes)?).to_string(), Some(uri))
            }
            EntityValue::Unparsed(_) => return fault(28, format!("Entity reference to unparsed entity {name}")),
        };
        self.subset.charge(text.len())?;
        if self.entity_depth >= ENTITY_DEPTH_MAX {
            return fault(89, "Detected an entity reference loop");
        }
        self.entity_depth += 1;
        let floor = self.open.len();
        let first = self.document.len() as NodeIndex;
        let mut inner = Scan::new(&text);
        if let Some((_, c)) = text.char_indices().find(|(_, c)| !is_char(*c)) {
            return fault(9, format!("PCDATA invalid Char value {}", c as u32));
        }
        self.content(&mut inner, floor)?;
        if let Some(base) = base {
            let parent = self.parent();
            let nodes: Vec<NodeIndex> = (first..self.document.len() as NodeIndex)
                .filter(|at| {
                    self.document.node(*at).parent == parent && self.document.node(*at).kind == NodeKind::Element
                })
                .collect();
            self.document.bases.extend(nodes.into_iter().map(|node| (node, base.clone())));
        }
        self.entity_depth -= 1;
        Ok(())
    }

    /// Looks an entity up. `None`: it is not declared, and an unread subset may have declared it.
    fn entity(&mut self, name: &str) -> Result<Option<EntityValue>, ScanFault> {
        let outer = self.options.entities.filter(|_| self.has_doctype);
        let found = self.subset.dtd.general.get(name).or_else(|| outer.and_then(|dtd| dtd.general.get(name)));
        match found {
            Some(entity) => Ok(Some(entity.value.clone())),
            None if self.subset.dtd.may_have_more => Ok(None),
            None => fault(26, format!("Entity '{name}' not defined")),
        }
    }

    fn end_tag(&mut self, scan: &mut Scan<'_>) -> Result<(), ScanFault> {
        scan.at += 2;
        let name = scan.name();
        scan.skip_space();
        if !scan.eat(">") {
            return fault(73, "expected '>'");
        }
        let Some(open) = self.open.pop() else { return fault(5, "Extra content at the end of the document") };
        if open.name != name {
            let OpenElement { name: opened, line, .. } = open;
            return fault(76, format!("Opening and ending tag mismatch: {opened} line {line} and {name}"));
        }
        self.bindings.truncate(open.bindings);
        Ok(())
    }

    fn start_tag(&mut self, scan: &mut Scan<'_>) -> Result<(), ScanFault> {
        scan.at += 1;
        let name = scan.name().to_string();
        if name.is_empty() {
            return fault(68, "xmlParseStartTag: invalid element name");
        }
        let mut attributes = self.attributes(scan, &name)?;
        self.add_defaults(&name, &mut attributes)?;
        let empty = scan.eat("/>");
        if !empty && !scan.eat(">") {
            return fault(73, format!("Couldn't find end of Start Tag {name} line {}", scan.line()));
        }
        if self.open.len() >= DEPTH_MAX {
            return fault(1, format!("Excessive depth in document: {DEPTH_MAX} use XML_PARSE_HUGE option"));
        }
        let (line, parent, bindings) = (scan.line(), self.parent(), self.bindings.len());
        let index = self.document.append(parent, NodeKind::Element, QName::default(), "", line);
        for (attribute, value) in &attributes {
            let prefix = match attribute.strip_prefix("xmlns") {
                Some("") => "",
                Some(rest) => match rest.strip_prefix(':') {
                    Some(prefix) => prefix,
                    None => continue,
                },
                None => continue,
            };
            let (prefix, uri) = (self.names.id(prefix), self.names.id(value));
            if prefix == NameId::XML {
                continue;
            }
            if uri.is_none() && !prefix.is_none() {
                let message = format!("xmlns:{}: Empty XML namespace is not allowed", self.names.text(prefix));
                self.note(scan, 201, message);
                continue;
            }
            self.document.declare(index, prefix, uri);
            self.bindings.push((prefix, uri));
        }
        self.check_room()?;
        let resolved = self.element_name(scan, &name);
        self.document.rename(index, resolved);
        let mut seen: HashSet<(NameId, NameId)> = HashSet::new();
        for (attribute, value) in &attributes {
            if attribute == "xmlns" || attribute.starts_with("xmlns:") {
                continue;
            }
            let resolved = self.attribute_name(scan, attribute, &name);
            if !seen.insert((resolved.ns, resolved.local)) {
                return match resolved.ns.is_none() {
                    true => fault(42, format!("Attribute {attribute} redefined")),
                    false => fault(203, format!("Namespaced Attribute {attribute} redefined")),
                };
            }
            self.check_room()?;
            self.document.append_attribute(index, resolved, value);
            let is_xml_id = resolved.ns == NameId::XML_NS && self.names.text(resolved.local) == "id";
            let defs = self.subset.dtd.attributes.get(&name);
            if is_xml_id || defs.is_some_and(|defs| defs.iter().any(|def| def.is_id && def.name == *attribute)) {
                self.document.ids.entry(value.clone()).or_insert(index);
            }
        }
        match empty {
            true => self.bindings.truncate(bindings),
            false => self.open.push(OpenElement { index, name, line, bindings }),
        }
        Ok(())
    }

    fn attributes(&mut self, scan: &mut Scan<'_>, element: &str) -> Result<Vec<(String, String)>, ScanFault> {
        let mut attributes: Vec<(String, String)> = Vec::new();
        let mut seen: HashSet<String> = HashSet::new();
        loop {
            let spaced = scan.skip_space();
            if matches!(scan.peek(), Some(b'>' | b'/') | None) {
                return Ok(attributes);
            }
            let name = scan.name().to_string();
            if name.is_empty() || !spaced {
                return match spaced {
                    true => fault(68, "xmlParseStartTag: problem parsing attributes"),
                    false => fault(65, "attributes construct error"),
                };
            }
            scan.skip_space();
            if !scan.eat("=") {
                return fault(41, format!("Specification mandates value for attribute {name}"));
            }
            scan.skip_space();
            let mark = match scan.peek() {
                Some(b'"') => "\"",
                Some(b'\'') => "'",
                _ => return fault(39, "AttValue: \" or ' expected"),
            };
            scan.at += 1;
            let Some(raw) = scan.until(mark) else { return fault(40, "AttValue: ' expected") };
            if let Some(at) = raw.find('<') {
                scan.at -= raw.len() - at + 1;
                return fault(38, "Unescaped '<' not allowed in attributes values");
            }
            let mut value = String::new();
            self.attribute_value(raw, &mut value, 0)?;
            let defs = self.subset.dtd.attributes.get(element);
            if defs.is_some_and(|defs| defs.iter().any(|def| !def.is_cdata && def.name == name)) {
                value = value.split(' ').filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
            }
            if !seen.insert(name.clone()) {
                return fault(42, format!("Attribute {name} redefined"));
            }
            attributes.push((name, value));
        }
    }

    fn attribute_value(&mut self, raw: &str, out: &mut String, depth: usize) -> Result<(), ScanFault> {
        if depth > ENTITY_DEPTH_MAX {
            return fault(89, "Detected an entity reference loop");
        }
        let mut scan = Scan::new(raw);
        let plain = |text: &str, out: &mut String| {
            out.extend(text.chars().map(|c| if matches!(c, '\t' | '\n' | '\r') { ' ' } else { c }));
        };
        while let Some(before) = scan.until("&") {
            plain(before, out);
            if scan.eat("#") {
                out.push(scan.char_reference()?);
                continue;
            }
            let name = entity_name(&mut scan)?;
            if let Some(text) = predefined(name) {
                out.push_str(text);
                continue;
            }
            match self.entity(name)? {
                Some(EntityValue::Text(text)) => {
                    self.subset.charge(text.len())?;
                    if text.contains('<') {
                        return fault(38, format!("'<' in entity '{name}' is not allowed in attributes values"));
                    }
                    self.attribute_value(&text, out, depth + 1)?;
                }
                Some(_) => return fault(29, format!("Attribute references external entity '{name}'")),
                None => {}
            }
        }
        plain(scan.rest(), out);
        Ok(())
    }

    /// Adds the declared defaults of absent attributes.
    fn add_defaults(&mut self, element: &str, attributes: &mut Vec<(String, String)>) -> Result<(), ScanFault> {
        let Some(defs) = self.subset.dtd.attributes.get(element) else { return Ok(()) };
        let absent: Vec<(String, String)> = defs
            .iter()
            .filter(|def| !attributes.iter().any(|(name, _)| *name == def.name))
            .filter_map(|def| Some((def.name.clone(), def.default.clone()?)))
            .collect();
        for (name, raw) in absent {
            let mut value = String::new();
            self.attribute_value(&raw, &mut value, 0)?;
            self.subset.charge(value.len())?;
            attributes.push((name, value));
        }
        Ok(())
    }

    fn binding(&self, prefix: NameId) -> Option<NameId> {
        if prefix == NameId::XML {
            return Some(NameId::XML_NS);
        }
        self.bindings.iter().rev().find(|(bound, _)| *bound == prefix).map(|(_, uri)| *uri)
    }

    fn note(&mut self, scan: &mut Scan<'_>, code: u32, message: String) {
        if self.errors.len() < 10 {
            let error = scan.locate((code, message), self.options.uri);
            self.errors.push(error);
        }
    }

    fn element_name(&mut self, scan: &mut Scan<'_>, name: &str) -> QName {
        let (prefix, local) = split(name);
        let (prefix_id, local_id) = (self.names.id(prefix), self.names.id(local));
        match self.binding(prefix_id) {
            Some(ns) => QName { ns, local: local_id, prefix: prefix_id },
            None if prefix.is_empty() => QName::local(local_id),
            None => {
                self.note(scan, 201, format!("Namespace prefix {prefix} on {local} is not defined"));
                QName::local(self.names.id(name))
            }
        }
    }

    fn attribute_name(&mut self, scan: &mut Scan<'_>, name: &str, element: &str) -> QName {
        let (prefix, local) = split(name);
        if prefix.is_empty() {
            return QName::local(self.names.id(name));
        }
        let (prefix_id, local_id) = (self.names.id(prefix), self.names.id(local));
        match self.binding(prefix_id) {
            Some(ns) => QName { ns, local: local_id, prefix: prefix_id },
            None => {
                let message = format!("Namespace prefix {prefix} for {local} on {} is not defined", split(element).1);
                self.note(scan, 201, message);
                QName::local(self.names.id(name))
            }
        }
    }
}

/// Prefix and local part; a name that is not qualified is a local part.
fn split(name: &str) -> (&str, &str) {
    match name.split_once(':') {
        Some((prefix, local)) if is_ncname(prefix) && is_ncname(local) => (prefix, local),
        _ => ("", name),
    }
}

fn entity_name<'t>(scan: &mut Scan<'t>) -> Result<&'t str, ScanFault> {
    let name = scan.name();
    if name.is_empty() {
        return fault(68, "xmlParseEntityRef: no name");
    }
    match scan.eat(";") {
        true => Ok(name),
        false => fault(23, "EntityRef: expecting ';'"),
    }
}

fn predefined(name: &str) -> Option<&'static str> {
    Some(match name {
        "lt" => "<",
        "gt" => ">",
        "amp" => "&",
        "quot" => "\"",
        "apos" => "'",
        _ => return None,
    })
}
