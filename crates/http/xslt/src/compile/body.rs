//! Bodies of templates: instructions and literal result elements.

use super::{CompileResult, Compiler};
use crate::names::{ExpandedName, NameId, QName};
use crate::sheet::{
    Avt, AvtPart, BlockId, Instruction, Literal, LocatedNode, NumberInstruction, NumberLevel, SortKey, WithParam,
};
use crate::tree::{NIL, NodeIndex, NodeKind};
use crate::xpath::ast::{Axis, Expr, NodeTest, Path, PathStart, Step};

impl Compiler<'_> {
    /// Compiles the children of an element. `top`: they are the content of a template.
    pub(super) fn block(&mut self, doc: usize, parent: NodeIndex, top: bool) -> CompileResult<BlockId> {
        let nodes: Vec<NodeIndex> = self.document(doc).1.children(parent).collect();
        self.block_of_nodes(doc, &nodes, top)
    }

    pub(super) fn block_of_nodes(&mut self, doc: usize, nodes: &[NodeIndex], top: bool) -> CompileResult<BlockId> {
        let mut block: Vec<LocatedNode> = Vec::new();
        for node in nodes.iter().copied() {
            let instruction = match self.document(doc).1.node(node).kind {
                NodeKind::Element => self.instruction(doc, node, top)?,
                kind if kind.is_text() && !self.is_ignorable(doc, node) => {
                    Some(Instruction::text(self.document(doc).1.value(node)))
                }
                _ => None,
            };
            let Some(instruction) = instruction else { continue };
            let (scope, line) = (self.scope(doc, node), self.document(doc).1.node(node).line);
            block.push(LocatedNode { instruction, scope, line });
        }
        Ok(self.add_block(block))
    }

    /// In forwards-compatible mode (section 2.5).
    pub(super) fn is_forwards(&mut self, doc: usize, node: NodeIndex) -> bool {
        let mut at = node;
        while at != NIL && at != 0 {
            let is_xsl = self.document(doc).1.node(at).name.ns == NameId::XSL_NS;
            let version = match is_xsl {
                true => self.attribute(doc, at, "version"),
                false => self.xsl_attribute(doc, at, "version"),
            };
            if let Some(version) = version {
                return version.trim() != "1.0";
            }
            at = self.document(doc).1.node(at).parent;
        }
        false
    }

    fn instruction(&mut self, doc: usize, node: NodeIndex, top: bool) -> CompileResult<Option<Instruction>> {
        let (ns, local) = self.name_of(doc, node);
        if ns == NameId::XSL_NS {
            return self.xsl(doc, node, &local);
        }
        if ns == self.words.functions && local == "result" {
            return Ok(Some(Instruction::FunctionResult(self.variable_value(doc, node)?)));
        }
        // As in libxslt, an element does not make itself an extension.
        let parent = self.document(doc).1.node(node).parent;
        if !ns.is_none() && self.listed(doc, parent, false).contains(&ns) {
            let fallbacks = self.fallbacks(doc, node)?;
            let uri = self.names.text(ns).to_string();
            return match fallbacks {
                Some(body) => Ok(Some(Instruction::Fallback(body))),
                None if uri == crate::xpath::functions::COMMON && local == "document" => {
                    self.error(doc, node, "exsl:document: writing files is not supported")
                }
                None => Ok(Some(Instruction::Unsupported(format!(
                    "xsltApplySequenceConstructor: failed to find extension {local}"
                )))),
            };
        }
        self.literal(doc, node, top).map(Some)
    }

    /// Bodies of the `xsl:fallback` children. `None`: there is none.
    fn fallbacks(&mut self, doc: usize, node: NodeIndex) -> CompileResult<Option<BlockId>> {
        let children: Vec<NodeIndex> = self.document(doc).1.children(node).collect();
        let mut nodes = Vec::new();
        let mut found = false;
        for child in children {
            if self.name_of(doc, child) == (NameId::XSL_NS, "fallback".into()) {
                found = true;
                nodes.extend(self.document(doc).1.children(child));
            }
        }
        match found {
            true => self.block_of_nodes(doc, &nodes, false).map(Some),
            false => Ok(None),
        }
    }

    /// Namespaces that `exclude-result-prefixes`, or `extension-element-prefixes`, of the ancestors list.
    fn listed(&mut self, doc: usize, node: NodeIndex, excluded: bool) -> Vec<NameId> {
        let attributes =
            if excluded { vec![self.words.exclude, self.words.extension] } else { vec![self.words.extension] };
        let mut found = Vec::new();
        let mut at = node;
        while at != NIL && at != 0 {
            let document = self.document(doc).1;
            let is_xsl = document.node(at).name.ns == NameId::XSL_NS;
            let ns = if is_xsl { NameId::NONE } else { NameId::XSL_NS };
            let mut lists = Vec::new();
            for local in &attributes {
                lists.extend(document.attribute(at, ExpandedName { ns, local: *local }).map(str::to_string));
            }
            for word in lists.iter().flat_map(|list| list.split_ascii_whitespace()) {
                let prefix = if word == "#default" { NameId::NONE } else { self.names.id(word) };
                found.extend(self.document(doc).1.resolve(at, prefix));
            }
            at = self.document(doc).1.node(at).parent;
        }
        found
    }

    fn aliased(&self, name: QName) -> QName {
        match self.aliases.get(&name.ns) {
            Some(ns) => QName { ns: *ns, ..name },
            None => name,
        }
    }

    fn literal(&mut self, doc: usize, node: NodeIndex, top: bool) -> CompileResult<Instruction> {
        let excluded = self.listed(doc, node, true);
        let document = self.document(doc).1;
        let own: Vec<(NameId, NameId)> =
            document.own_declarations(node).map(|(_, decl)| (decl.prefix, decl.uri)).collect();
        let mut declarations = own;
        if top {
            let parent = document.node(node).parent;
            for (_, decl) in document.namespaces(parent) {
                if !declarations.iter().any(|(prefix, _)| *prefix == decl.prefix) {
                    declarations.push((decl.prefix, decl.uri));
                }
            }
        }
        declarations.retain(|(_, uri)| *uri != NameId::XSL_NS && !excluded.contains(uri) && !uri.is_none());
        for (_, uri) in &mut declarations {
            if let Some(alias) = self.aliases.get(uri) {
                *uri = *alias;
            }
        }
        let name = self.aliased(document.node(node).name);
        let found: Vec<(QName, String)> =
            document.attributes(node).map(|at| (document.node(at).name, document.value(at).to_string())).collect();
        let (mut attributes, mut sets) = (Vec::new(), Vec::new());
        for (name, value) in found {
            if name.ns == NameId::XSL_NS {
                if self.names.text(name.local) == "use-attribute-sets" {
                    sets = self.names_list(doc, node, &value)?;
                }
                continue;
            }
            let value = self.template(doc, node, &value)?;
            attributes.push((if name.ns.is_none() { name } else { self.aliased(name) }, value));
        }
        let body = self.block(doc, node, false)?;
        Ok(Instruction::Literal(Box::new(Literal { name, declarations, attributes, sets, body })))
    }

    fn select(&mut self, doc: usize, node: NodeIndex, name: &str) -> CompileResult<Expr> {
        let text = self.required(doc, node, name)?;
        self.expression(doc, node, &text, name)
    }
    fn optional_template(&mut self, doc: usize, node: NodeIndex, name: &str) -> CompileResult<Option<Avt>> {
        match self.attribute(doc, node, name) {
            Some(text) => self.template(doc, node, &text).map(Some),
            None => Ok(None),
        }
    }
    fn required_template(&mut self, doc: usize, node: NodeIndex, name: &str) -> CompileResult<Avt> {
        let text = self.required(doc, node, name)?;
        self.template(doc, node, &text)
    }
    fn used_sets(&mut self, doc: usize, node: NodeIndex) -> CompileResult<Vec<ExpandedName>> {
        let text = self.attribute(doc, node, "use-attribute-sets").unwrap_or_default();
        self.names_list(doc, node, &text)
    }

    fn xsl(&mut self, doc: usize, node: NodeIndex, local: &str) -> CompileResult<Option<Instruction>> {
        let instruction = match local {
            "text" => {
                let document = self.document(doc).1;
                if document.children(node).any(|at| document.node(at).kind == NodeKind::Element) {
                    return self.error(doc, node, "xsltParseTemplateContent: xslt:text content problem");
                }
                let mut text = String::new();
                document.children(node).filter(|at| document.node(*at).kind.is_text()).for_each(|at| {
                    text.push_str(document.value(at));
                });
                let raw = self.yes_or_no(doc, node, "disable-output-escaping")?.unwrap_or(false);
                Instruction::Text { text, raw }
            }
            "value-of" => {
                let select = self.select(doc, node, "select")?;
                let raw = self.yes_or_no(doc, node, "disable-output-escaping")?.unwrap_or(false);
                Instruction::ValueOf { select, raw }
            }
            "copy-of" => Instruction::CopyOf(self.select(doc, node, "select")?),
            "copy" => Instruction::Copy { sets: self.used_sets(doc, node)?, body: self.block(doc, node, false)? },
            "apply-templates" => {
                let select = match self.attribute(doc, node, "select") {
                    Some(text) => Some(self.expression(doc, node, &text, "select")?),
                    None => None,
                };
                let mode = match self.attribute(doc, node, "mode") {
                    Some(text) => Some(self.qname(doc, node, &text)?),
                    None => None,
                };
                let (sorts, _) = self.sorts(doc, node)?;
                Instruction::ApplyTemplates { select, mode, sorts, params: self.with_params(doc, node)? }
            }
            "apply-imports" => Instruction::ApplyImports(self.with_params(doc, node)?),
            "call-template" => {
                let name = self.required(doc, node, "name")?;
                Instruction::CallTemplate { name: self.qname(doc, node, &name)?, params: self.with_params(doc, node)? }
            }
            "for-each" => {
                let select = self.select(doc, node, "select")?;
                let (sorts, rest) = self.sorts(doc, node)?;
                Instruction::ForEach { select, sorts, body: self.block_of_nodes(doc, &rest, false)? }
            }
            "if" => Instruction::If { test: self.select(doc, node, "test")?, body: self.block(doc, node, false)? },
            "choose" => self.choose(doc, node)?,
            "variable" | "param" => {
                let text = self.required(doc, node, "name")?;
                let name = self.qname(doc, node, &text)?;
                let value = self.variable_value(doc, node)?;
                match local {
                    "variable" => Instruction::Variable { name, value },
                    _ => Instruction::Param { name, value },
                }
            }
            "element" => Instruction::Element {
                name: self.required_template(doc, node, "name")?,
                namespace: self.optional_template(doc, node, "namespace")?,
                sets: self.used_sets(doc, node)?,
                body: self.block(doc, node, false)?,
            },
            "attribute" => Instruction::Attribute {
                name: self.required_template(doc, node, "name")?,
                namespace: self.optional_template(doc, node, "namespace")?,
                body: self.block(doc, node, false)?,
            },
            "comment" => Instruction::Comment(self.block(doc, node, false)?),
            "processing-instruction" => Instruction::Processing {
                name: self.required_template(doc, node, "name")?,
                body: self.block(doc, node, false)?,
            },
            "number" => Instruction::Number(Box::new(self.number(doc, node)?)),
            "message" => Instruction::Message {
                terminate: self.yes_or_no(doc, node, "terminate")?.unwrap_or(false),
                body: self.block(doc, node, false)?,
            },
            // Those of their parents.
            "fallback" => return Ok(None),
            "sort" | "with-param" => return self.error(doc, node, format!("xsl:{local} : misplaced element")),
            _ => {
                if !self.is_forwards(doc, node) {
                    return self.error(doc, node, format!("xsltStylePreCompute: unknown xsl:{local}"));
                }
                match self.fallbacks(doc, node)? {
                    Some(body) => Instruction::Fallback(body),
                    None => Instruction::Unsupported(format!("xsl:{local}: unknown instruction without xsl:fallback")),
                }
            }
        };
        Ok(Some(instruction))
    }

    fn choose(&mut self, doc: usize, node: NodeIndex) -> CompileResult<Instruction> {
        let (mut whens, mut otherwise) = (Vec::new(), None);
        let children: Vec<NodeIndex> = self.document(doc).1.children(node).collect();
        for child in children {
            match self.document(doc).1.node(child).kind {
                NodeKind::Element => match self.name_of(doc, child) {
                    (NameId::XSL_NS, local) if local == "when" && otherwise.is_none() => {
                        let test = self.select(doc, child, "test")?;
                        whens.push((test, self.block(doc, child, false)?));
                    }
                    (NameId::XSL_NS, local) if local == "otherwise" && otherwise.is_none() => {
                        otherwise = Some(self.block(doc, child, false)?);
                    }
                    _ => return self.error(doc, child, "xsl:choose: xsl:when expected first"),
                },
                kind if kind.is_text() && !self.is_ignorable(doc, child) => {
                    return self.error(doc, child, "xsl:choose: text is not allowed");
                }
                _ => {}
            }
        }
        match whens.is_empty() {
            true => self.error(doc, node, "xsl:choose: empty content not allowed"),
            false => Ok(Instruction::Choose { whens, otherwise }),
        }
    }

    /// The `xsl:sort`s of an instruction, and its other children.
    fn sorts(&mut self, doc: usize, node: NodeIndex) -> CompileResult<(Vec<SortKey>, Vec<NodeIndex>)> {
        let (mut sorts, mut rest) = (Vec::new(), Vec::new());
        let children: Vec<NodeIndex> = self.document(doc).1.children(node).collect();
        for child in children {
            if self.name_of(doc, child) != (NameId::XSL_NS, "sort".into()) {
                rest.push(child);
                continue;
            }
            let select = match self.attribute(doc, child, "select") {
                Some(text) => self.expression(doc, child, &text, "select")?,
                None => {
                    let step = Step { axis: Axis::SelfNode, test: NodeTest::Node, predicates: Vec::new() };
                    Expr::Path(Box::new(Path { start: PathStart::Context, steps: vec![step] }))
                }
            };
            sorts.push(SortKey {
                select,
                numeric: self.optional_template(doc, child, "data-type")?,
                order: self.optional_template(doc, child, "order")?,
                scope: self.scope(doc, child),
            });
        }
        Ok((sorts, rest))
    }

    fn with_params(&mut self, doc: usize, node: NodeIndex) -> CompileResult<Vec<WithParam>> {
        let mut params = Vec::new();
        let children: Vec<NodeIndex> = self.document(doc).1.children(node).collect();
        for child in children {
            if self.name_of(doc, child) == (NameId::XSL_NS, "with-param".into()) {
                let text = self.required(doc, child, "name")?;
                let name = self.qname(doc, child, &text)?;
                let value = self.variable_value(doc, child)?;
                params.push(WithParam { name, value, scope: self.scope(doc, child) });
            }
        }
        Ok(params)
    }

    fn number(&mut self, doc: usize, node: NodeIndex) -> CompileResult<NumberInstruction> {
        let value = match self.attribute(doc, node, "value") {
            Some(text) => Some(self.expression(doc, node, &text, "value")?),
            None => None,
        };
        let level = match self.attribute(doc, node, "level").as_deref() {
            None | Some("single") => NumberLevel::Single,
            Some("multiple") => NumberLevel::Multiple,
            Some("any") => NumberLevel::Any,
            Some(other) => {
                let message = format!("xsl:number : invalid value {other} for level");
                return self.error(doc, node, message);
            }
        };
        let mut patterns = [None, None];
        for (slot, name) in patterns.iter_mut().zip(["count", "from"]) {
            if let Some(text) = self.attribute(doc, node, name) {
                *slot = Some(self.pattern(doc, node, &text)?);
            }
        }
        let [count, from] = patterns;
        let format = match self.optional_template(doc, node, "format")? {
            Some(format) => format,
            None => Avt(vec![AvtPart::Text("1".into())]),
        };
        Ok(NumberInstruction {
            value,
            level,
            count,
            from,
            format,
            separator: self.optional_template(doc, node, "grouping-separator")?,
            size: self.optional_template(doc, node, "grouping-size")?,
        })
    }
}
