//! Functions of XSLT 1.0 (section 12) and `exsl:node-set`.

use crate::engine::{Engine, Focus};
use crate::failure::{RunResult, failed};
use crate::names::{ExpandedName, NameId};
use crate::store::{DocId, NodeRef};
use crate::tree::{Document, NodeKind};
use crate::xml::{self, ParseOptions, resolve_uri};
use crate::xpath::ast::Expr;
use crate::xpath::functions::Function;
use crate::xpath::parse::{self, XPathScope};
use crate::xpath::{XPathValue, functions};
use std::collections::HashMap;

/// Documents that a transformation loads.
const DOCUMENTS_MAX: usize = 100;

impl Engine<'_> {
    pub fn call_xslt(&mut self, function: Function, arguments: &[Expr], focus: &Focus) -> RunResult<XPathValue> {
        use Function as F;
        let first = arguments.first();
        Ok(match function {
            F::Current => XPathValue::Nodes(vec![focus.current]),
            F::Document => {
                let value = self.argument(first, focus)?;
                let base = match arguments.get(1) {
                    Some(expr) => self.eval_nodes(expr, focus)?.first().copied(),
                    None => None,
                };
                XPathValue::Nodes(self.documents(value, base, focus)?)
            }
            F::Key => {
                let (name, value) = (self.text_argument(first, focus)?, self.argument(arguments.get(1), focus)?);
                XPathValue::Nodes(self.key(&name, value, focus)?)
            }
            F::FormatNumber => {
                let number = self.argument(first, focus)?;
                let number = self.number_of(&number)?;
                let picture = self.text_argument(arguments.get(1), focus)?;
                let format = match arguments.get(2) {
                    None => &self.sheet.default_format,
                    Some(expr) => {
                        let text = self.eval_text(expr, focus)?;
                        let Some(format) = self.scoped(&text, focus).and_then(|name| self.sheet.formats.get(&name))
                        else {
                            return failed("format-number() : undeclared decimal format");
                        };
                        format
                    }
                };
                XPathValue::Text(crate::format::format_number(number, &picture, format))
            }
            F::UnparsedEntityUri => {
                let name = self.text_argument(first, focus)?;
                XPathValue::Text(self.store.doc(focus.node.doc).unparsed.get(&name).cloned().unwrap_or_default())
            }
            F::GenerateId => {
                let node = self.node_argument(first, focus)?;
                XPathValue::Text(node.map_or(String::new(), |NodeRef { doc, node, ns }| match ns {
                    0 => format!("idm{doc}n{node}"),
                    ns => format!("idm{doc}n{node}ns{ns}"),
                }))
            }
            F::SystemProperty => {
                let name = self.text_argument(first, focus)?;
                let known = self.scoped(&name, focus).filter(|name| name.ns == NameId::XSL_NS);
                XPathValue::Text(match known.map(|name| self.names.text(name.local)) {
                    Some("version") => "1.0".into(),
                    Some("vendor") => "libxslt".into(),
                    Some("vendor-url") => "http://xmlsoft.org/XSLT/".into(),
                    _ => String::new(),
                })
            }
            F::ElementAvailable => {
                let name = self.text_argument(first, focus)?;
                let name = self.scoped(&name, focus);
                XPathValue::Bool(name.is_some_and(|name| self.has_element(name)))
            }
            F::IsFunctionAvailable => {
                let name = self.text_argument(first, focus)?;
                let name = self.scoped(&name, focus);
                XPathValue::Bool(name.is_some_and(|name| {
                    self.sheet.functions.contains_key(&name)
                        || functions::find(self.names.text(name.ns), self.names.text(name.local)).is_some()
                }))
            }
            F::NodeSet | F::NodeSetLibxslt | F::NodeSetSaxon | F::NodeSetXt => match self.argument(first, focus)? {
                XPathValue::Nodes(nodes) => XPathValue::Nodes(nodes),
                XPathValue::Fragment(node) => XPathValue::Nodes(vec![node]),
                value => {
                    let text = self.take_text(value)?;
                    let (node, _) = self.text_nodes(std::iter::once(text.as_str()), None)?;
                    XPathValue::Nodes(self.store.doc(node.doc).children(0).map(|at| node.at(at)).collect())
                }
            },
            F::ObjectType => XPathValue::Text(
                match self.argument(first, focus)? {
                    XPathValue::Nodes(_) => "node-set",
                    XPathValue::Number(_) => "number",
                    XPathValue::Text(_) => "string",
                    XPathValue::Bool(_) => "boolean",
                    XPathValue::Fragment(_) => "RTF",
                }
                .into(),
            ),
            F::SaxonLineNumber => {
                let node = self.node_argument(first, focus)?;
                let line = node.map_or(0, |node| self.store.doc(node.doc).node(node.node).line);
                XPathValue::Number(f64::from(line))
            }
            F::SaxonEvaluate | F::DynamicEvaluate => {
                let text = self.text_argument(first, focus)?;
                match self.dynamic(&text, focus)? {
                    Some(expr) => self.eval(&expr, focus)?,
                    None => XPathValue::Nodes(Vec::new()),
                }
            }
            _ => self.call_exslt(function, arguments, focus)?,
        })
    }

    /// Compiles an expression at run time.
    pub fn dynamic(&mut self, text: &str, focus: &Focus) -> RunResult<Option<Expr>> {
        self.step(text.len() as u64 * 4)?;
        self.spend(text.len())?;
        let namespaces = &self.sheet.in_scope(focus.scope).namespaces;
        Ok(parse::expression(text, &mut XPathScope { names: &mut self.names, namespaces }))
    }

    /// Resolves a name by the namespaces of the instruction.
    fn scoped(&mut self, name: &str, focus: &Focus) -> Option<ExpandedName> {
        let namespaces = &self.sheet.in_scope(focus.scope).namespaces;
        XPathScope { names: &mut self.names, namespaces }.resolve(name)
    }

    fn has_element(&self, name: ExpandedName) -> bool {
        let local = self.names.text(name.local);
        match self.names.text(name.ns) {
            crate::names::XSL_URI => [
                "apply-imports",
                "apply-templates",
                "attribute",
                "call-template",
                "choose",
                "comment",
                "copy",
                "copy-of",
                "element",
                "fallback",
                "for-each",
                "if",
                "message",
                "number",
                "param",
                "processing-instruction",
                "text",
                "value-of",
                "variable",
            ]
            .contains(&local),
            functions::FUNCTIONS => matches!(local, "result"),
            _ => false,
        }
    }

    /// A document of text nodes, or of elements of that name with them.
    pub fn text_nodes<'t>(
        &mut self,
        texts: impl Iterator<Item = &'t str>,
        element: Option<&str>,
    ) -> RunResult<(NodeRef, Vec<NodeRef>)> {
        let doc = self.new_document()?;
        let name = element.map(|name| crate::names::QName::local(self.names.id(name)));
        let mut nodes = Vec::new();
        for text in texts {
            self.spend(text.len() + 160)?;
            let document = self.store.doc_mut(doc);
            let parent = name.map(|name| document.append(0, NodeKind::Element, name, "", 0));
            match parent {
                Some(parent) => document.append_text(parent, NodeKind::Text, text, 0),
                None => document.append_text(0, NodeKind::Text, text, 0),
            }
            nodes.extend(parent.map(|node| NodeRef { doc, node, ns: 0 }));
        }
        Ok((NodeRef::root(doc), nodes))
    }

    fn documents(&mut self, value: XPathValue, base: Option<NodeRef>, focus: &Focus) -> RunResult<Vec<NodeRef>> {
        let mut references = Vec::new();
        match value {
            XPathValue::Nodes(nodes) => {
                for node in nodes {
                    let owner = base.unwrap_or(node);
                    references.push((self.string(node)?, self.base_of(owner)));
                }
            }
            value => {
                let base = match base {
                    Some(node) => self.base_of(node),
                    None => self.sheet.in_scope(focus.scope).base.clone(),
                };
                references.push((self.take_text(value)?, base));
            }
        }
        let mut found = Vec::new();
        for (reference, base) in references {
            let (reference, fragment) = match reference.split_once('#') {
                Some((reference, fragment)) => (reference.to_string(), Some(fragment.to_string())),
                None => (reference, None),
            };
            let Some(doc) = self.document(&resolve_uri(&base, &reference))? else { continue };
            match fragment {
                Some(id) => {
                    found.extend(self.store.doc(doc).ids.get(&id).map(|node| NodeRef { doc, node: *node, ns: 0 }))
                }
                None => found.push(NodeRef::root(doc)),
            }
        }
        self.in_order(found)
    }

    fn base_of(&self, node: NodeRef) -> String {
        self.store.doc(node.doc).base(node.node).to_string()
    }

    /// Loads a document once. `None`: it cannot be read or is not well-formed.
    fn document(&mut self, uri: &str) -> RunResult<Option<DocId>> {
        if let Some(known) = self.loaded.get(uri) {
            return Ok(*known);
        }
        if self.store.doc(self.source).uri == uri {
            return Ok(Some(self.source));
        }
        if self.loaded.len() >= DOCUMENTS_MAX {
            return failed("document() : too many documents");
        }
        let sheet = self.sheet;
        let mut document = match sheet.documents.iter().find(|(its, _)| its == uri) {
            Some((_, document)) => Some(document.clone()),
            None => self.parse_document(uri),
        };
        if let Some(document) = &mut document {
            self.spend(document.bytes())?;
            strip_spaces(document, sheet, self);
        }
        let doc = document.map(|document| self.store.add(document, true));
        self.loaded.insert(uri.into(), doc);
        Ok(doc)
    }

    fn parse_document(&mut self, uri: &str) -> Option<Document> {
        let bytes = match self.loader.load(uri) {
            Ok(bytes) => bytes,
            Err(why) => {
                self.messages.push(format!("I/O warning : failed to load external entity \"{uri}\": {why}"));
                return None;
            }
        };
        let options =
            ParseOptions { uri, external_entities: true, external_subset: true, entities: None, keep_cdata: false };
        match xml::parse_document(&bytes, &options, &mut self.names, self.loader) {
            Ok(parsed) => Some(parsed.document),
            Err(error) => {
                self.messages.push(error.report());
                None
            }
        }
    }

    fn key(&mut self, name: &str, value: XPathValue, focus: &Focus) -> RunResult<Vec<NodeRef>> {
        let Some(name) = self.scoped(name, focus).filter(|name| self.sheet.keys.contains_key(name)) else {
            return Ok(Vec::new());
        };
        let mut wanted = Vec::new();
        match value {
            XPathValue::Nodes(nodes) => {
                for node in nodes {
                    wanted.push(self.string(node)?);
                }
            }
            value => wanted.push(self.take_text(value)?),
        }
        let doc = focus.node.doc;
        if !self.keys.contains_key(&(doc, name)) {
            // A key that needs itself finds nothing.
            self.keys.insert((doc, name), HashMap::new());
            let table = self.outside(|engine| engine.build_key(doc, name))?;
            self.keys.insert((doc, name), table);
        }
        let mut found = Vec::new();
        if let Some(table) = self.keys.get(&(doc, name)) {
            wanted.iter().filter_map(|text| table.get(text)).for_each(|nodes| found.extend(nodes));
        }
        self.in_order(found)
    }

    fn build_key(&mut self, doc: DocId, name: ExpandedName) -> RunResult<HashMap<String, Vec<NodeRef>>> {
        let sheet = self.sheet;
        let mut table: HashMap<String, Vec<NodeRef>> = HashMap::new();
        for def in sheet.keys.get(&name).into_iter().flatten() {
            // Numbers are in document order, and attributes are nodes, too.
            let nodes = self.store.doc(doc).len() as u32;
            for index in 0..nodes {
                let node = NodeRef { doc, node: index, ns: 0 };
                if !self.is_attached(node) || !self.matches(&def.matches, node, def.scope)? {
                    continue;
                }
                let focus = Focus { node, position: 1, size: 1, current: node, scope: def.scope };
                let texts = match self.eval(&def.value, &focus)? {
                    XPathValue::Nodes(nodes) => {
                        let mut texts = Vec::with_capacity(nodes.len());
                        for node in nodes {
                            texts.push(self.string(node)?);
                        }
                        texts
                    }
                    value => vec![self.take_text(value)?],
                };
                for text in texts {
                    self.spend(text.len() + 64)?;
                    let nodes = table.entry(text).or_default();
                    if nodes.last() != Some(&node) {
                        nodes.push(node);
                    }
                }
            }
        }
        Ok(table)
    }

    /// Tells nodes of the tree from stripped white space, to which no sibling links.
    fn is_attached(&self, node: NodeRef) -> bool {
        let document = self.store.doc(node.doc);
        let entry = document.node(node.node);
        if !entry.kind.is_text() {
            return true;
        }
        match entry.prev {
            crate::tree::NIL => document.node(entry.parent).first == node.node,
            prev => document.node(prev).next == node.node,
        }
    }
}

/// Strips white space as `xsl:strip-space` asks (section 3.4).
pub(crate) fn strip_spaces(document: &mut Document, sheet: &crate::sheet::Stylesheet, engine: &mut Engine<'_>) {
    if !sheet.spaces.iter().any(|rule| rule.strip) {
        return;
    }
    let space = ExpandedName { ns: NameId::XML_NS, local: engine.names.id("space") };
    let mut stripped = Vec::new();
    for index in 0..document.len() as u32 {
        let node = document.node(index);
        if !matches!(node.kind, NodeKind::Text | NodeKind::Cdata)
            || !document.value(index).bytes().all(crate::xml::scan_rules::is_space)
        {
            continue;
        }
        let name = document.node(node.parent).name;
        let rule = sheet.spaces.iter().find(|rule| match &rule.test {
            crate::xpath::ast::NodeTest::Name(wanted) => *wanted == name.expanded(),
            crate::xpath::ast::NodeTest::InNamespace(ns) => *ns == name.ns,
            _ => true,
        });
        if !rule.is_some_and(|rule| rule.strip) {
            continue;
        }
        let mut at = node.parent;
        let mut preserved = false;
        while at != crate::tree::NIL {
            if let Some(value) = document.attribute(at, space) {
                preserved = value == "preserve";
                break;
            }
            at = document.node(at).parent;
        }
        if !preserved {
            stripped.push(index);
        }
    }
    stripped.into_iter().for_each(|index| document.unlink(index));
}
