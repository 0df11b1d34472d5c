//! Document type definitions: entities, default values and types of attributes. Content models are not checked.

use super::scan::{Scan, ScanFault, fault, is_space};
use super::{AMPLIFICATION_MAX, ENTITY_DEPTH_MAX, EXPANSION_FREE, Loader, XmlError, decode_document, resolve_uri};
use std::collections::HashMap;

/// Declared entity.
#[derive(Clone, Debug)]
pub struct Entity {
    pub value: EntityValue,
    /// Declared in an external subset or entity.
    pub external: bool,
}

#[derive(Clone, Debug)]
pub enum EntityValue {
    Text(String),
    /// Address of an external entity.
    External(String),
    /// Address of an entity that is not XML (`NDATA`).
    Unparsed(String),
}

/// Declared attribute.
#[derive(Clone, Debug)]
pub struct AttributeDef {
    pub name: String,
    pub default: Option<String>,
    pub is_id: bool,
    pub is_cdata: bool,
}

/// Declarations of both subsets.
#[derive(Clone, Debug, Default)]
pub struct Dtd {
    pub general: HashMap<String, Entity>,
    pub(super) parameters: HashMap<String, Entity>,
    pub(super) attributes: HashMap<String, Vec<AttributeDef>>,
    /// A reference to a parameter entity, or an external subset, may have declared more.
    pub may_have_more: bool,
}

/// Reader of subsets: the declarations so far, and the cost of entities.
pub(super) struct Subset<'l> {
    pub dtd: Dtd,
    pub loader: &'l mut dyn Loader,
    pub expanded: usize,
    pub input: usize,
    /// Reads external entities; otherwise they are empty, and `ignored` has them.
    pub external: bool,
    pub ignored: Vec<(String, String, String)>,
}

impl Subset<'_> {
    /// Charges expanded bytes.
    pub fn charge(&mut self, bytes: usize) -> Result<(), ScanFault> {
        self.expanded = self.expanded.saturating_add(bytes.saturating_add(20));
        match self.expanded > EXPANSION_FREE && self.expanded / AMPLIFICATION_MAX > self.input {
            true => fault(89, "Maximum entity amplification factor exceeded"),
            false => Ok(()),
        }
    }

    /// Reads a subset until its end, or until the `]` of an internal one.
    pub fn read(&mut self, scan: &mut Scan<'_>, base: &str, external: bool, depth: usize) -> Result<(), ScanFault> {
        if depth > ENTITY_DEPTH_MAX {
            return fault(89, "Detected an entity reference loop");
        }
        loop {
            scan.skip_space();
            if scan.ended() || (scan.peek() == Some(b']')) {
                return Ok(());
            }
            if scan.eat("%") {
                let name = scan.name();
                if name.is_empty() || !scan.eat(";") {
                    return fault(69, "PEReference: expecting ';'");
                }
                self.dtd.may_have_more = true;
                if let Some((text, base)) = self.parameter(name, base)? {
                    let mut inner = Scan::new(&text);
                    self.read(&mut inner, &base, true, depth + 1)?;
                }
            } else if scan.eat("<!--") {
                if scan.until("-->").is_none() {
                    return fault(45, "Comment not terminated");
                }
            } else if scan.eat("<?") {
                if scan.until("?>").is_none() {
                    return fault(47, "xmlParsePI : PI not terminated");
                }
            } else if external && scan.eat("<![") {
                self.section(scan, base, depth)?;
            } else if scan.eat("<!") {
                let declaration = declaration(scan)?;
                let expanded = match external && declaration.contains('%') {
                    true => self.expand(declaration, base, depth)?,
                    false => declaration.to_string(),
                };
                self.declare(&expanded, base, external)?;
            } else {
                return fault(60, "xmlParseInternalSubset: error detected in Markup declaration");
            }
        }
    }

    /// Conditional section behind `<![`.
    fn section(&mut self, scan: &mut Scan<'_>, base: &str, depth: usize) -> Result<(), ScanFault> {
        let Some(keyword) = scan.until("[") else { return fault(59, "Conditional section '[' expected") };
        let keyword = self.expand(keyword, base, depth)?;
        let (mut level, start) = (1, scan.at);
        while level > 0 {
            match (scan.rest().find("<!["), scan.rest().find("]]>")) {
                (Some(open), Some(close)) if open < close => (level, scan.at) = (level + 1, scan.at + open + 3),
                (_, Some(close)) => (level, scan.at) = (level - 1, scan.at + close + 3),
                _ => return fault(59, "Conditional Section not closed"),
            }
        }
        match keyword.trim() {
            "INCLUDE" => {
                let text = scan.text.get(start..scan.at.saturating_sub(3)).unwrap_or("");
                self.read(&mut Scan::new(text), base, true, depth + 1)
            }
            "IGNORE" => Ok(()),
            _ => fault(59, "Conditional section INCLUDE or IGNORE keyword expected"),
        }
    }

    /// Replacement text of a parameter entity and its base; `None` if it is not declared or not read.
    fn parameter(&mut self, name: &str, base: &str) -> Result<Option<(String, String)>, ScanFault> {
        let Some(entity) = self.dtd.parameters.get(name).cloned() else { return Ok(None) };
        match entity.value {
            EntityValue::Text(text) => {
                self.charge(text.len())?;
                Ok(Some((text, base.into())))
            }
            EntityValue::External(uri) => {
                let Ok(bytes) = self.loader.load(&uri) else { return Ok(None) };
                self.charge(bytes.len())?;
                let text = decode_document(&bytes)?;
                Ok(Some((without_declaration(&text).into(), uri)))
            }
            EntityValue::Unparsed(_) => Ok(None),
        }
    }

    /// Replaces references to parameter entities within a declaration.
    fn expand(&mut self, text: &str, base: &str, depth: usize) -> Result<String, ScanFault> {
        if depth > ENTITY_DEPTH_MAX {
            return fault(89, "Detected an entity reference loop");
        }
        let (mut out, mut scan) = (String::new(), Scan::new(text));
        while let Some(before) = scan.until("%") {
            out.push_str(before);
            let at = scan.at;
            let name = scan.name();
            if name.is_empty() || !scan.eat(";") {
                // The percent sign of `<!ENTITY % name`.
                scan.at = at;
                out.push('%');
                continue;
            }
            if let Some((text, base)) = self.parameter(name, base)? {
                let text = self.expand(&text, &base, depth + 1)?;
                let quoted = out.matches('"').count() % 2 == 1 || out.matches('\'').count() % 2 == 1;
                out.push_str(if quoted { "" } else { " " });
                out.push_str(&text);
                out.push_str(if quoted { "" } else { " " });
            }
        }
        out.push_str(scan.rest());
        Ok(out)
    }

    fn declare(&mut self, text: &str, base: &str, external: bool) -> Result<(), ScanFault> {
        let mut scan = Scan::new(text);
        if scan.eat("ENTITY") {
            self.entity(&mut scan, base, external)
        } else if scan.eat("ATTLIST") {
            self.attribute_list(&mut scan)
        } else if scan.eat("ELEMENT") || scan.eat("NOTATION") {
            Ok(())
        } else {
            fault(60, "xmlParseInternalSubset: error detected in Markup declaration")
        }
    }

    fn entity(&mut self, scan: &mut Scan<'_>, base: &str, external: bool) -> Result<(), ScanFault> {
        scan.skip_space();
        let is_parameter = scan.eat("%");
        scan.skip_space();
        let name = scan.name().to_string();
        if name.is_empty() {
            return fault(68, "xmlParseEntityDecl: no name");
        }
        scan.skip_space();
        let value = if scan.eat("SYSTEM") || scan.rest().starts_with("PUBLIC") {
            let public = match scan.eat("PUBLIC") {
                true => quoted(scan)?,
                false => String::new(),
            };
            let system = quoted(scan)?;
            scan.skip_space();
            let uri = resolve_uri(base, &system);
            let unparsed = scan.eat("NDATA");
            if !self.external && !unparsed {
                self.ignored.push((name.clone(), public, system));
                EntityValue::Text(String::new())
            } else if unparsed {
                EntityValue::Unparsed(uri)
            } else {
                EntityValue::External(uri)
            }
        } else {
            EntityValue::Text(entity_value(&quoted(scan)?)?)
        };
        let entities = if is_parameter { &mut self.dtd.parameters } else { &mut self.dtd.general };
        // The first declaration is binding (XML 1.0, section 4.2).
        entities.entry(name).or_insert(Entity { value, external });
        Ok(())
    }

    fn attribute_list(&mut self, scan: &mut Scan<'_>) -> Result<(), ScanFault> {
        scan.skip_space();
        let element = scan.name().to_string();
        loop {
            scan.skip_space();
            if scan.ended() {
                return Ok(());
            }
            let name = scan.name().to_string();
            scan.skip_space();
            let kind = match scan.peek() {
                Some(b'(') => {
                    scan.until(")");
                    "ENUMERATION"
                }
                _ => scan.name(),
            };
            scan.skip_space();
            if kind == "NOTATION" && scan.peek() == Some(b'(') {
                scan.until(")");
                scan.skip_space();
            }
            if name.is_empty() || kind.is_empty() {
                return fault(68, "xmlParseAttributeListDecl: no name for Attribute");
            }
            let default = if scan.eat("#REQUIRED") || scan.eat("#IMPLIED") {
                None
            } else {
                if scan.eat("#FIXED") {
                    scan.skip_space();
                }
                Some(quoted(scan)?)
            };
            let def = AttributeDef { name, default, is_id: kind == "ID", is_cdata: kind == "CDATA" };
            let defs = self.dtd.attributes.entry(element.clone()).or_default();
            if !defs.iter().any(|other| other.name == def.name) {
                defs.push(def);
            }
        }
    }
}

/// The text of a declaration behind `<!`, up to its `>`.
fn declaration<'t>(scan: &mut Scan<'t>) -> Result<&'t str, ScanFault> {
    let (start, mut quote) = (scan.at, None);
    while let Some(byte) = scan.peek() {
        match quote {
            Some(mark) if byte == mark => quote = None,
            Some(_) => {}
            None if byte == b'>' => {
                let text = scan.text.get(start..scan.at).unwrap_or("");
                scan.at += 1;
                return Ok(text);
            }
            None if matches!(byte, b'"' | b'\'') => quote = Some(byte),
            None => {}
        }
        scan.at += 1;
    }
    fault(60, "xmlParseInternalSubset: error detected in Markup declaration")
}

pub(super) fn quoted(scan: &mut Scan<'_>) -> Result<String, ScanFault> {
    scan.skip_space();
    for mark in ["\"", "'"] {
        if scan.eat(mark) {
            return match scan.until(mark) {
                Some(text) => Ok(text.into()),
                None => fault(44, "Unfinished System or Public ID \" or ' expected"),
            };
        }
    }
    fault(43, "SystemLiteral \" or ' expected")
}

/// Replaces the character references of an entity's value (XML 1.0, section 4.4.5).
fn entity_value(text: &str) -> Result<String, ScanFault> {
    let (mut out, mut scan) = (String::new(), Scan::new(text));
    while let Some(before) = scan.until("&#") {
        out.push_str(before);
        out.push(scan.char_reference()?);
    }
    out.push_str(scan.rest());
    Ok(out)
}

/// Text behind the text declaration of an external entity.
pub(super) fn without_declaration(text: &str) -> &str {
    match text.strip_prefix("<?xml") {
        Some(rest) if rest.bytes().next().is_some_and(is_space) => {
            rest.find("?>").and_then(|end| rest.get(end + 2..)).unwrap_or("")
        }
        _ => text,
    }
}

/// Parses an external subset, such as the file of `xml_entities`.
pub fn parse_dtd(bytes: &[u8], uri: &str, loader: &mut dyn Loader) -> Result<Dtd, XmlError> {
    let text = decode_document(bytes).map_err(|fault| Scan::new("").locate(fault, uri))?;
    let mut subset =
        Subset { dtd: Dtd::default(), loader, expanded: 0, input: text.len(), external: true, ignored: Vec::new() };
    let mut scan = Scan::new(without_declaration(&text));
    match subset.read(&mut scan, uri, true, 0) {
        Ok(()) if scan.ended() => Ok(subset.dtd),
        Ok(()) => Err(scan.locate((5, "Extra content at the end of the document".into()), uri)),
        Err(fault) => Err(scan.locate(fault, uri)),
    }
}
