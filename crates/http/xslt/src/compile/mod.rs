//! Compiles stylesheets: loads what they include and import, then the declarations, then the templates.

mod body;
mod declarations;

use crate::names::{ExpandedName, NameId, NameTable};
use crate::serialize::OutputOptions;
use crate::sheet::{
    Avt, AvtPart, BlockId, DecimalFormat, InScope, Instruction, NodeBlock, RuleTable, SheetTemplate, Stylesheet,
    TemplateRule,
};
use crate::tree::{Document, NIL, NodeIndex, NodeKind};
use crate::xml::{self, Loader, ParseOptions, resolve_uri};
use crate::xpath::ast::{Expr, NodeTest};
use crate::xpath::parse::{self, XPathScope};
use crate::xpath::pattern::{self, MatchPattern};
use std::collections::HashMap;
use std::sync::Arc;

/// Stylesheets of a stylesheet, and instructions of all.
pub const MODULES_MAX: usize = 1000;
/// Nested imports and includes.
const IMPORT_DEPTH_MAX: usize = 40;

/// Error of a stylesheet, worded as libxml2 and libxslt do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SheetError {
    pub uri: String,
    /// Line, from 1; 0 if the error has none.
    pub line: u32,
    /// All lines of the report.
    pub report: String,
}

type CompileResult<T> = Result<T, SheetError>;

/// Declaration of a stylesheet with its import precedence.
#[derive(Clone, Copy)]
struct Declaration {
    doc: usize,
    node: NodeIndex,
    precedence: u32,
    lowest: u32,
}

struct Compiler<'c> {
    names: NameTable,
    loader: &'c mut dyn Loader,
    documents: Vec<(String, Document)>,
    next_precedence: u32,
    declarations: Vec<Declaration>,
    aliases: HashMap<NameId, NameId>,
    scopes: Vec<InScope>,
    scope_of: HashMap<(usize, NodeIndex), u32>,
    blocks: Vec<NodeBlock>,
    templates: Vec<SheetTemplate>,
    /// Priority attribute and order of each template.
    priorities: Vec<Option<f64>>,
    modes: Vec<Option<ExpandedName>>,
    sheet: SheetParts,
    words: CompilerWords,
}

/// Parts that declarations fill.
#[derive(Default)]
struct SheetParts {
    named: HashMap<ExpandedName, usize>,
    functions: HashMap<ExpandedName, crate::sheet::FunctionDef>,
    globals: HashMap<ExpandedName, crate::sheet::GlobalDef>,
    global_precedence: HashMap<ExpandedName, u32>,
    global_order: Vec<ExpandedName>,
    keys: HashMap<ExpandedName, Vec<crate::sheet::KeyDef>>,
    attribute_sets: HashMap<ExpandedName, Vec<crate::sheet::AttributeSet>>,
    formats: HashMap<ExpandedName, DecimalFormat>,
    default_format: DecimalFormat,
    spaces: Vec<crate::sheet::SpaceRule>,
    output: OutputOptions,
}

/// Names that the compiler looks for.
struct CompilerWords {
    space: NameId,
    exclude: NameId,
    extension: NameId,
    functions: NameId,
}

/// Compiles the stylesheet of an address.
pub fn compile_stylesheet(uri: &str, loader: &mut dyn Loader) -> Result<Stylesheet, SheetError> {
    let mut names = NameTable::default();
    let words = CompilerWords {
        space: names.id("space"),
        exclude: names.id("exclude-result-prefixes"),
        extension: names.id("extension-element-prefixes"),
        functions: names.id(crate::xpath::functions::FUNCTIONS),
    };
    let mut compiler = Compiler {
        names,
        loader,
        documents: Vec::new(),
        next_precedence: 1,
        declarations: Vec::new(),
        aliases: HashMap::new(),
        scopes: vec![InScope::default()],
        scope_of: HashMap::new(),
        blocks: vec![Vec::new()],
        templates: Vec::new(),
        priorities: Vec::new(),
        modes: Vec::new(),
        sheet: SheetParts::default(),
        words,
    };
    let doc = compiler.load(uri, None)?;
    compiler.module(doc, &mut Vec::new())?;
    for declaration in compiler.declarations.clone() {
        compiler.alias(declaration)?;
    }
    for declaration in compiler.declarations.clone() {
        compiler.declare(declaration)?;
    }
    compiler.finish()
}

impl Compiler<'_> {
    fn error<T>(&self, doc: usize, node: NodeIndex, message: impl AsRef<str>) -> CompileResult<T> {
        let (uri, document) = self.document(doc);
        let line = document.node(node).line;
        let element = self.names.text(document.node(node).name.local);
        let report = format!("compilation error: file {uri} line {line} element {element}\n{}", message.as_ref());
        Err(SheetError { uri: uri.into(), line, report })
    }

    fn document(&self, doc: usize) -> (&str, &Document) {
        static EMPTY: std::sync::OnceLock<Document> = std::sync::OnceLock::new();
        match self.documents.get(doc) {
            Some((uri, document)) => (uri, document),
            None => ("", EMPTY.get_or_init(Document::default)),
        }
    }

    /// Reads and parses a stylesheet. `from`: the element that refers to it.
    fn load(&mut self, uri: &str, from: Option<(usize, NodeIndex)>) -> CompileResult<usize> {
        let bytes = match self.loader.load(uri) {
            Ok(bytes) => bytes,
            Err(why) => {
                return match from {
                    Some((doc, node)) => self.error(doc, node, format!("unable to load {uri}: {why}")),
                    None => Err(SheetError {
                        uri: uri.into(),
                        line: 0,
                        report: format!("I/O warning : failed to load external entity \"{uri}\": {why}"),
                    }),
                };
            }
        };
        if self.documents.len() >= MODULES_MAX {
            return Err(SheetError { uri: uri.into(), line: 0, report: "too many stylesheets".into() });
        }
        let options =
            ParseOptions { uri, external_entities: true, external_subset: true, entities: None, keep_cdata: false };
        match xml::parse_document(&bytes, &options, &mut self.names, self.loader) {
            Ok(parsed) => {
                self.documents.push((uri.into(), parsed.document));
                Ok(self.documents.len() - 1)
            }
            Err(error) => Err(SheetError { uri: error.uri.clone(), line: error.line, report: error.report() }),
        }
    }

    /// Gathers the declarations of a stylesheet, behind those of its imports.
    fn module(&mut self, doc: usize, chain: &mut Vec<String>) -> CompileResult<()> {
        let lowest = self.next_precedence;
        let mut own = Vec::new();
        self.gather(doc, chain, &mut own)?;
        let precedence = self.next_precedence;
        self.next_precedence += 1;
        self.declarations.extend(own.into_iter().map(|(doc, node)| Declaration { doc, node, precedence, lowest }));
        Ok(())
    }

    fn gather(&mut self, doc: usize, chain: &mut Vec<String>, own: &mut Vec<(usize, NodeIndex)>) -> CompileResult<()> {
        let uri = self.document(doc).0.to_string();
        let Some(root) = self.document(doc).1.root_element() else { return Ok(()) };
        if chain.contains(&uri) || chain.len() >= IMPORT_DEPTH_MAX {
            return self.error(doc, root, format!("xsl:import : recursion detected on imported URL {uri}"));
        }
        chain.push(uri);
        let (ns, local) = self.name_of(doc, root);
        if ns != NameId::XSL_NS || !matches!(local.as_str(), "stylesheet" | "transform") {
            // A literal result element as a stylesheet (section 2.3).
            let version = self.xsl_attribute(doc, root, "version");
            if version.is_none() || ns == NameId::XSL_NS {
                return self.error(doc, root, "xsltParseStylesheetProcess : document is not a stylesheet");
            }
            own.push((doc, root));
            chain.pop();
            return Ok(());
        }
        let mut imports_end = false;
        let children: Vec<NodeIndex> = self.document(doc).1.children(root).collect();
        for node in children {
            if self.document(doc).1.node(node).kind != NodeKind::Element {
                continue;
            }
            let (ns, local) = self.name_of(doc, node);
            let is_import = local == "import";
            if ns != NameId::XSL_NS || !(is_import || local == "include") {
                imports_end |= ns == NameId::XSL_NS;
                own.push((doc, node));
                continue;
            }
            let Some(href) = self.attribute(doc, node, "href") else {
                return self.error(doc, node, format!("xsl:{local} : missing href attribute"));
            };
            if is_import && imports_end {
                return self.error(doc, node, "xsltParseTopLevelXSLTElem: ignoring misplaced import element");
            }
            let uri = resolve_uri(self.document(doc).1.base(node), &href);
            if chain.contains(&uri) {
                return self.error(doc, node, format!("xsl:{local} : recursion detected on imported URL {uri}"));
            }
            let loaded = self.load(&uri, Some((doc, node)))?;
            match is_import {
                true => self.module(loaded, chain)?,
                false => {
                    imports_end = true;
                    self.gather(loaded, chain, own)?;
                }
            }
        }
        chain.pop();
        Ok(())
    }

    fn name_of(&self, doc: usize, node: NodeIndex) -> (NameId, String) {
        let name = self.document(doc).1.node(node).name;
        (name.ns, self.names.text(name.local).to_string())
    }

    /// Attribute without a namespace.
    fn attribute(&mut self, doc: usize, node: NodeIndex, name: &str) -> Option<String> {
        let local = self.names.id(name);
        self.document(doc).1.attribute(node, ExpandedName { ns: NameId::NONE, local }).map(str::to_string)
    }
    /// Attribute of XSLT on a literal result element.
    fn xsl_attribute(&mut self, doc: usize, node: NodeIndex, name: &str) -> Option<String> {
        let local = self.names.id(name);
        self.document(doc).1.attribute(node, ExpandedName { ns: NameId::XSL_NS, local }).map(str::to_string)
    }
    fn required(&mut self, doc: usize, node: NodeIndex, name: &str) -> CompileResult<String> {
        match self.attribute(doc, node, name) {
            Some(value) => Ok(value),
            None => {
                let (_, element) = self.name_of(doc, node);
                self.error(doc, node, format!("xsl:{element} : {name} is missing"))
            }
        }
    }
    fn yes_or_no(&mut self, doc: usize, node: NodeIndex, name: &str) -> CompileResult<Option<bool>> {
        match self.attribute(doc, node, name).as_deref() {
            None => Ok(None),
            Some("yes") => Ok(Some(true)),
            Some("no") => Ok(Some(false)),
            Some(_) => {
                let (_, element) = self.name_of(doc, node);
                self.error(doc, node, format!("xsl:{element} : {name} allows only yes or no"))
            }
        }
    }

    /// Namespaces in scope of an element.
    fn scope(&mut self, doc: usize, node: NodeIndex) -> u32 {
        let document = self.document(doc).1;
        let mut owner = node;
        while owner != NIL && document.node(owner).declarations == NIL {
            owner = document.node(owner).parent;
        }
        let has_bases = !document.bases.is_empty();
        let key = (doc, if has_bases { node } else { owner });
        if let Some(scope) = self.scope_of.get(&key) {
            return *scope;
        }
        let namespaces = document.namespaces(node);
        let namespaces = namespaces.iter().filter(|(_, decl)| !decl.prefix.is_none()).map(|(_, d)| (d.prefix, d.uri));
        let default_namespace = document.resolve(node, NameId::NONE).unwrap_or(NameId::NONE);
        let base = document.base(node).into();
        let scope = InScope { namespaces: namespaces.collect(), default_namespace, base };
        self.scopes.push(scope);
        let id = self.scopes.len() as u32 - 1;
        self.scope_of.insert(key, id);
        id
    }

    fn with_scope<T>(&mut self, doc: usize, node: NodeIndex, compile: impl FnOnce(&mut XPathScope<'_>) -> T) -> T {
        let id = self.scope(doc, node) as usize;
        let namespaces = self.scopes.get(id).map_or(&[][..], |scope| &scope.namespaces);
        compile(&mut XPathScope { names: &mut self.names, namespaces })
    }

    fn qname(&mut self, doc: usize, node: NodeIndex, text: &str) -> CompileResult<ExpandedName> {
        let text = text.trim();
        let valid = text.split(':').count() <= 2 && text.split(':').all(crate::xml::scan_rules::is_ncname);
        match self.with_scope(doc, node, |scope| scope.resolve(text)).filter(|_| valid) {
            Some(name) => Ok(name),
            None => self.error(doc, node, format!("The name '{text}' is not a QName, or its prefix is not declared")),
        }
    }

    fn expression(&mut self, doc: usize, node: NodeIndex, text: &str, attribute: &str) -> CompileResult<Expr> {
        match self.with_scope(doc, node, |scope| parse::expression(text, scope)) {
            Some(expr) => Ok(expr),
            None => {
                let (_, element) = self.name_of(doc, node);
                let message = format!(
                    "XPath error : Invalid expression\n{text}\nxsl:{element} : could not compile {attribute} expression '{text}'"
                );
                self.error(doc, node, message)
            }
        }
    }

    fn pattern(&mut self, doc: usize, node: NodeIndex, text: &str) -> CompileResult<MatchPattern> {
        match self.with_scope(doc, node, |scope| pattern::pattern(text, scope)) {
            Some(pattern) => Ok(pattern),
            None => self.error(doc, node, format!("xsltCompilePattern : failed to compile '{text}'")),
        }
    }

    fn names_list(&mut self, doc: usize, node: NodeIndex, text: &str) -> CompileResult<Vec<ExpandedName>> {
        text.split_ascii_whitespace().map(|word| self.qname(doc, node, word)).collect()
    }

    /// Attribute value template.
    fn template(&mut self, doc: usize, node: NodeIndex, text: &str) -> CompileResult<Avt> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, after) = rest.split_at(at);
            plain.push_str(before);
            if let Some(after) = after.strip_prefix("{{") {
                plain.push('{');
                rest = after;
            } else if let Some(after) = after.strip_prefix("}}") {
                plain.push('}');
                rest = after;
            } else if let Some(after) = after.strip_prefix('}') {
                // libxslt keeps a brace that opens nothing.
                plain.push('}');
                rest = after;
            } else {
                let inner = after.get(1..).unwrap_or("");
                let (mut quote, mut end) = (None, None);
                for (at, c) in inner.char_indices() {
                    match (quote, c) {
                        (Some(mark), c) if c == mark => quote = None,
                        (None, '"' | '\'') => quote = Some(c),
                        (None, '}') => {
                            end = Some(at);
                            break;
                        }
                        _ => {}
                    }
                }
                let Some(end) = end else {
                    return self.error(doc, node, format!("Attribute value template \"{text}\": unmatched '{{'"));
                };
                if !plain.is_empty() {
                    parts.push(AvtPart::Text(std::mem::take(&mut plain)));
                }
                let expr = inner.get(..end).unwrap_or("");
                if !expr.trim().is_empty() {
                    parts.push(AvtPart::Expr(self.expression(doc, node, expr, "attribute")?));
                }
                rest = inner.get(end + 1..).unwrap_or("");
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(AvtPart::Text(plain));
        }
        Ok(Avt(parts))
    }

    fn finish(mut self) -> CompileResult<Stylesheet> {
        let mut all: Vec<(Option<ExpandedName>, TemplateRule, f64, u32, usize)> = Vec::new();
        for (index, template) in self.templates.iter().enumerate() {
            let Some(pattern) = &template.matches else { continue };
            let mode = self.modes.get(index).copied().flatten();
            for path in &pattern.alternatives {
                let priority = self.priorities.get(index).copied().flatten().unwrap_or(path.priority);
                let rule = TemplateRule { template: index, path: path.clone(), rank: 0 };
                all.push((mode, rule, priority, template.precedence, index));
            }
        }
        all.sort_by(|a, b| {
            (b.3.cmp(&a.3)).then(b.2.partial_cmp(&a.2).unwrap_or(std::cmp::Ordering::Equal)).then(b.4.cmp(&a.4))
        });
        let mut rules: HashMap<Option<ExpandedName>, RuleTable> = HashMap::new();
        for (rank, (mode, mut rule, ..)) in all.into_iter().enumerate() {
            rule.rank = rank as u32;
            let table = rules.entry(mode).or_default();
            match rule.path.steps.last().map(|step| &step.test) {
                Some(NodeTest::Name(name)) => table.by_name.entry(*name).or_default().push(rule),
                _ => table.others.push(rule),
            }
        }
        let rank = |rule: &crate::sheet::SpaceRule| match rule.test {
            NodeTest::Name(_) => 0,
            NodeTest::InNamespace(_) => 1,
            _ => 2,
        };
        self.sheet.spaces.reverse();
        self.sheet.spaces.sort_by_key(|rule| (std::cmp::Reverse(rule.precedence), rank(rule)));
        self.check_attribute_sets()?;
        let sets = &self.sheet.attribute_sets;
        let attribute_sets = sets
            .keys()
            .map(|name| (*name, merged_set(*name, sets).into_iter().map(|(_, block)| block).collect()))
            .collect();
        let SheetParts { named, functions, globals, global_order, keys, formats, .. } = self.sheet;
        Ok(Stylesheet {
            names: Arc::new(self.names),
            scopes: self.scopes,
            documents: self.documents,
            blocks: self.blocks,
            templates: self.templates,
            named,
            rules,
            functions,
            globals,
            global_order,
            keys,
            attribute_sets,
            formats,
            default_format: self.sheet.default_format,
            spaces: self.sheet.spaces,
            output: self.sheet.output,
        })
    }

    /// Fails for attribute sets that use each other.
    fn check_attribute_sets(&self) -> CompileResult<()> {
        let sets = &self.sheet.attribute_sets;
        for name in sets.keys() {
            let mut reached = vec![*name];
            let mut at = 0;
            while let Some(next) = reached.get(at).copied() {
                at += 1;
                for set in sets.get(&next).into_iter().flatten() {
                    for used in &set.uses {
                        if used == name {
                            let message = format!(
                                "xsl:attribute-set : use-attribute-sets recursion detected on {}",
                                self.names.text(name.local)
                            );
                            return self.error(0, 0, message);
                        }
                        if !reached.contains(used) {
                            reached.push(*used);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn add_block(&mut self, block: NodeBlock) -> BlockId {
        if block.is_empty() {
            return 0;
        }
        self.blocks.push(block);
        self.blocks.len() as u32 - 1
    }

    /// Text of white space alone that the stylesheet does not preserve.
    fn is_ignorable(&self, doc: usize, node: NodeIndex) -> bool {
        let document = self.document(doc).1;
        if !document.value(node).bytes().all(crate::xml::scan_rules::is_space) {
            return false;
        }
        let name = ExpandedName { ns: NameId::XML_NS, local: self.words.space };
        let mut at = document.node(node).parent;
        while at != NIL {
            match document.attribute(at, name) {
                Some("preserve") => return false,
                Some(_) => return true,
                None => at = document.node(at).parent,
            }
        }
        true
    }
}

/// The attributes of a set: its own, those of the sets it uses, then those of imported definitions.
fn merged_set(
    name: ExpandedName,
    sets: &HashMap<ExpandedName, Vec<crate::sheet::AttributeSet>>,
) -> Vec<(String, BlockId)> {
    let definitions = sets.get(&name).map_or(&[][..], |definitions| definitions);
    let mut precedences: Vec<u32> = definitions.iter().map(|set| set.precedence).collect();
    precedences.sort_unstable_by(|a, b| b.cmp(a));
    precedences.dedup();
    let mut merged: Vec<(String, BlockId)> = Vec::new();
    for precedence in precedences {
        let group = || definitions.iter().filter(|set| set.precedence == precedence);
        let mut own: Vec<(String, BlockId)> = Vec::new();
        for (key, block) in group().flat_map(|set| &set.attributes) {
            match own.iter_mut().find(|(other, _)| other == key) {
                Some((_, other)) => *other = *block,
                None => own.push((key.clone(), *block)),
            }
        }
        own.extend(group().flat_map(|set| &set.uses).flat_map(|used| merged_set(*used, sets)));
        for (key, block) in own {
            if !merged.iter().any(|(other, _)| *other == key) {
                merged.push((key, block));
            }
        }
    }
    merged
}

impl Instruction {
    fn text(text: &str) -> Instruction {
        Instruction::Text { text: text.into(), raw: false }
    }
}
