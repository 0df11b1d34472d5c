//! Declarations: elements at the top of stylesheets.

use super::{CompileResult, Compiler, Declaration};
use crate::names::{ExpandedName, NameId};
use crate::serialize::OutputMethod;
use crate::sheet::{
    AttributeSet, DecimalFormat, FunctionDef, GlobalDef, KeyDef, SheetTemplate, SpaceRule, VariableValue,
};
use crate::tree::{NodeIndex, NodeKind};
use crate::xpath::ast::NodeTest;
use crate::xpath::pattern::{Alternative, MatchPattern, PatternStart};

impl Compiler<'_> {
    pub(super) fn alias(&mut self, at: Declaration) -> CompileResult<()> {
        let (doc, node) = (at.doc, at.node);
        let (ns, local) = self.name_of(doc, node);
        if ns != NameId::XSL_NS || local != "namespace-alias" {
            return Ok(());
        }
        let (from, to) = (self.required(doc, node, "stylesheet-prefix")?, self.required(doc, node, "result-prefix")?);
        let find = |compiler: &mut Self, text: &str| {
            let prefix = if text == "#default" { NameId::NONE } else { compiler.names.id(text) };
            compiler.document(doc).1.resolve(node, prefix)
        };
        match (find(self, &from), find(self, &to)) {
            (Some(from), Some(to)) => {
                self.aliases.insert(from, to);
                Ok(())
            }
            _ => {
                self.error(doc, node, format!("xsl:namespace-alias: prefix {from} or {to} not bound to any namespace"))
            }
        }
    }

    pub(super) fn declare(&mut self, at: Declaration) -> CompileResult<()> {
        let (doc, node) = (at.doc, at.node);
        let (ns, local) = self.name_of(doc, node);
        if ns == self.words.functions {
            return match local.as_str() {
                "function" => self.function(at),
                _ => self.error(doc, node, format!("func:{local} is not supported")),
            };
        }
        let is_root = self.document(doc).1.node(node).parent == 0;
        if is_root {
            // A literal result element as a stylesheet is the template of the root.
            let body = self.block_of_nodes(doc, &[node], true)?;
            let root = Alternative { start: PatternStart::Root, steps: Vec::new(), priority: 0.5 };
            self.add_template(at, Some(MatchPattern { alternatives: vec![root] }), body, None, None);
            return Ok(());
        }
        if ns != NameId::XSL_NS {
            // Elements of other namespaces are data (section 2.2).
            return match ns.is_none() {
                true => self.error(doc, node, format!("Found a top-level element {local} with null namespace URI")),
                false => Ok(()),
            };
        }
        match local.as_str() {
            "template" => self.top_template(at),
            "variable" | "param" => self.global(at, local == "param"),
            "output" => self.output(at),
            "key" => self.key(at),
            "attribute-set" => self.attribute_set(at),
            "decimal-format" => self.decimal_format(at),
            "strip-space" | "preserve-space" => self.spaces(at, local == "strip-space"),
            "namespace-alias" => Ok(()),
            _ => {
                // Later versions have more (section 2.5).
                let message = format!("xsltParseTopLevelXSLTElem: ignoring unknown {local} element");
                if self.is_forwards(doc, node) { Ok(()) } else { self.error(doc, node, message) }
            }
        }
    }

    fn add_template(
        &mut self,
        at: Declaration,
        matches: Option<MatchPattern>,
        body: u32,
        priority: Option<f64>,
        mode: Option<ExpandedName>,
    ) {
        let scope = self.scope(at.doc, at.node);
        let (precedence, lowest) = (at.precedence, at.lowest);
        self.templates.push(SheetTemplate { matches, body, scope, precedence, lowest });
        self.priorities.push(priority);
        self.modes.push(mode);
    }

    fn top_template(&mut self, at: Declaration) -> CompileResult<()> {
        let (doc, node) = (at.doc, at.node);
        let matches = match self.attribute(doc, node, "match") {
            Some(text) => Some(self.pattern(doc, node, &text)?),
            None => None,
        };
        let priority = self.attribute(doc, node, "priority").map(|text| crate::xpath::number::parse(&text));
        let mode = match self.attribute(doc, node, "mode") {
            Some(text) => Some(self.qname(doc, node, &text)?),
            None => None,
        };
        let name = match self.attribute(doc, node, "name") {
            Some(text) => Some((self.qname(doc, node, &text)?, text)),
            None => None,
        };
        if matches.is_none() && name.is_none() {
            return self.error(doc, node, "xsl:template: match or name attribute expected");
        }
        let body = self.block(doc, node, true)?;
        if let Some((name, text)) = name {
            let index = self.templates.len();
            if let Some(other) = self.sheet.named.insert(name, index)
                && self.templates.get(other).is_some_and(|other| other.precedence == at.precedence)
            {
                return self.error(doc, node, format!("xsl:template: error duplicate name '{text}'"));
            }
        }
        self.add_template(at, matches, body, priority.filter(|priority| !priority.is_nan()), mode);
        Ok(())
    }

    fn function(&mut self, at: Declaration) -> CompileResult<()> {
        let text = self.required(at.doc, at.node, "name")?;
        let name = self.qname(at.doc, at.node, &text)?;
        if name.ns.is_none() {
            return self.error(at.doc, at.node, "func:function: not a namespace qualified name");
        }
        let body = self.block(at.doc, at.node, false)?;
        self.sheet.functions.insert(name, FunctionDef { body });
        Ok(())
    }

    fn global(&mut self, at: Declaration, is_param: bool) -> CompileResult<()> {
        let (doc, node) = (at.doc, at.node);
        let text = self.required(doc, node, "name")?;
        let name = self.qname(doc, node, &text)?;
        let value = self.variable_value(doc, node)?;
        let scope = self.scope(doc, node);
        if self.sheet.global_precedence.insert(name, at.precedence) == Some(at.precedence) {
            return self.error(doc, node, format!("xsl:variable : redefining {text}"));
        }
        if self.sheet.globals.insert(name, GlobalDef { value, is_param, scope }).is_none() {
            self.sheet.global_order.push(name);
        }
        Ok(())
    }

    pub(super) fn variable_value(&mut self, doc: usize, node: NodeIndex) -> CompileResult<VariableValue> {
        let has_content = self.document(doc).1.children(node).any(|child| {
            let kind = self.document(doc).1.node(child).kind;
            kind == NodeKind::Element || (kind.is_text() && !self.is_ignorable(doc, child))
        });
        if let Some(select) = self.attribute(doc, node, "select") {
            if has_content {
                let (_, element) = self.name_of(doc, node);
                let message =
                    format!("xsl:{element}: There must be no child nodes, since the attribute 'select' was specified.");
                return self.error(doc, node, message);
            }
            return Ok(VariableValue::Select(self.expression(doc, node, &select, "select")?));
        }
        match has_content {
            true => Ok(VariableValue::Body(self.block(doc, node, false)?)),
            false => Ok(VariableValue::Empty),
        }
    }

    fn output(&mut self, at: Declaration) -> CompileResult<()> {
        let (doc, node) = (at.doc, at.node);
        if let Some(method) = self.attribute(doc, node, "method") {
            let method = match method.as_str() {
                "xml" => OutputMethod::Xml,
                "html" => OutputMethod::Html,
                "text" => OutputMethod::Text,
                "xhtml" => OutputMethod::Xml,
                _ => return self.error(doc, node, format!("invalid value for method: {method}")),
            };
            self.sheet.output.method = Some(method);
        }
        for name in ["version", "encoding", "media-type", "doctype-public", "doctype-system"] {
            let Some(value) = self.attribute(doc, node, name) else { continue };
            let output = &mut self.sheet.output;
            match name {
                "version" => output.version = Some(value),
                "encoding" => {
                    if !crate::serialize::is_known_encoding(&value) {
                        return self.error(doc, node, format!("xsl:output : unsupported encoding {value}"));
                    }
                    self.sheet.output.encoding = Some(value);
                }
                "media-type" => output.media_type = Some(value),
                "doctype-public" => output.doctype_public = Some(value),
                _ => output.doctype_system = Some(value),
            }
        }
        if let Some(yes) = self.yes_or_no(doc, node, "standalone")? {
            self.sheet.output.standalone = Some(yes);
        }
        if let Some(yes) = self.yes_or_no(doc, node, "indent")? {
            self.sheet.output.indent = Some(yes);
        }
        if let Some(yes) = self.yes_or_no(doc, node, "omit-xml-declaration")? {
            self.sheet.output.omit_declaration = Some(yes);
        }
        if let Some(list) = self.attribute(doc, node, "cdata-section-elements") {
            for word in list.split_ascii_whitespace() {
                let mut name = self.qname(doc, node, word)?;
                if !word.contains(':') {
                    // The default namespace applies to names of elements (section 16.1).
                    name.ns = self.document(doc).1.resolve(node, NameId::NONE).unwrap_or(NameId::NONE);
                }
                self.sheet.output.cdata_elements.push(name);
            }
        }
        Ok(())
    }

    fn key(&mut self, at: Declaration) -> CompileResult<()> {
        let (doc, node) = (at.doc, at.node);
        let text = self.required(doc, node, "name")?;
        let name = self.qname(doc, node, &text)?;
        let (matches, value) = (self.required(doc, node, "match")?, self.required(doc, node, "use")?);
        let matches = self.pattern(doc, node, &matches)?;
        let value = self.expression(doc, node, &value, "use")?;
        let scope = self.scope(doc, node);
        self.sheet.keys.entry(name).or_default().push(KeyDef { matches, value, scope });
        Ok(())
    }

    fn attribute_set(&mut self, at: Declaration) -> CompileResult<()> {
        let (doc, node) = (at.doc, at.node);
        let text = self.required(doc, node, "name")?;
        let name = self.qname(doc, node, &text)?;
        let uses = self.attribute(doc, node, "use-attribute-sets").unwrap_or_default();
        let uses = self.names_list(doc, node, &uses)?;
        let children: Vec<NodeIndex> = self.document(doc).1.children(node).collect();
        let mut attributes = Vec::new();
        for child in children {
            if self.document(doc).1.node(child).kind != NodeKind::Element {
                continue;
            }
            if self.name_of(doc, child) != (NameId::XSL_NS, "attribute".into()) {
                return self.error(doc, child, "xsl:attribute-set : unexpected child");
            }
            let key = format!(
                "{}|{}",
                self.attribute(doc, child, "name").unwrap_or_default(),
                self.attribute(doc, child, "namespace").unwrap_or_default()
            );
            attributes.push((key, self.block_of_nodes(doc, &[child], false)?));
        }
        let set = AttributeSet { uses, attributes, precedence: at.precedence };
        self.sheet.attribute_sets.entry(name).or_default().push(set);
        Ok(())
    }

    fn decimal_format(&mut self, at: Declaration) -> CompileResult<()> {
        let (doc, node) = (at.doc, at.node);
        let mut format = DecimalFormat::default();
        let set = |compiler: &mut Self, name: &str, slot: &mut char| {
            if let Some(c) = compiler.attribute(doc, node, name).and_then(|text| text.chars().next()) {
                *slot = c;
            }
        };
        set(self, "decimal-separator", &mut format.decimal);
        set(self, "grouping-separator", &mut format.grouping);
        set(self, "minus-sign", &mut format.minus);
        set(self, "percent", &mut format.percent);
        set(self, "per-mille", &mut format.per_mille);
        set(self, "zero-digit", &mut format.zero);
        set(self, "digit", &mut format.digit);
        set(self, "pattern-separator", &mut format.separator);
        if let Some(text) = self.attribute(doc, node, "infinity") {
            format.infinity = text;
        }
        if let Some(text) = self.attribute(doc, node, "NaN") {
            format.nan = text;
        }
        match self.attribute(doc, node, "name") {
            Some(text) => {
                let name = self.qname(doc, node, &text)?;
                self.sheet.formats.insert(name, format);
            }
            None => self.sheet.default_format = format,
        }
        Ok(())
    }

    fn spaces(&mut self, at: Declaration, strip: bool) -> CompileResult<()> {
        let (doc, node) = (at.doc, at.node);
        for word in self.required(doc, node, "elements")?.split_ascii_whitespace() {
            let test = match word {
                "*" => NodeTest::Any,
                word => match word.strip_suffix(":*") {
                    Some(prefix) => NodeTest::InNamespace(self.qname(doc, node, &format!("{prefix}:x"))?.ns),
                    None => NodeTest::Name(self.qname(doc, node, word)?),
                },
            };
            self.sheet.spaces.push(SpaceRule { test, strip, precedence: at.precedence });
        }
        Ok(())
    }
}
