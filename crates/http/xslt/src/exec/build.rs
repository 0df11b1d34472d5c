//! Construction of trees: text, elements, attributes and their namespaces.

use super::{FrameEnd, TreeOutput};
use crate::engine::{Engine, Focus};
use crate::failure::{RunResult, failed};
use crate::names::{ExpandedName, NameId, QName};
use crate::sheet::Literal;
use crate::store::NodeRef;
use crate::tree::{NIL, Node, NodeKind};
use crate::xml::scan_rules::is_ncname;
use crate::xpath::XPathValue;

impl<'s> Engine<'s> {
    pub(super) fn output(&self) -> TreeOutput {
        self.machine.outputs.last().copied().unwrap_or(TreeOutput { doc: u32::MAX, parent: 0 })
    }
    fn set_parent(&mut self, parent: u32) {
        if let Some(output) = self.machine.outputs.last_mut() {
            output.parent = parent;
        }
    }
    pub(super) fn push_output(&mut self) -> RunResult<()> {
        let doc = self.new_document()?;
        self.machine.outputs.push(TreeOutput { doc, parent: 0 });
        Ok(())
    }
    pub(super) fn pop_fragment(&mut self) -> XPathValue {
        let output = self.machine.outputs.pop();
        XPathValue::Fragment(NodeRef::root(output.map_or(u32::MAX, |output| output.doc)))
    }
    pub(super) fn pop_text(&mut self) -> RunResult<String> {
        let output = self.machine.outputs.pop();
        self.string(NodeRef::root(output.map_or(u32::MAX, |output| output.doc)))
    }
    /// Charges a new node.
    pub(super) fn spend_node(&mut self, text: usize) -> RunResult<()> {
        self.spend(size_of::<Node>() + text)
    }

    pub(super) fn add_text(&mut self, text: &str, raw: bool) -> RunResult<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.spend_node(text.len())?;
        let output = self.output();
        let kind = if raw { NodeKind::RawText } else { NodeKind::Text };
        self.store.doc_mut(output.doc).append_text(output.parent, kind, text, 0);
        Ok(())
    }

    /// libxslt adds an empty node for a number without digits: its parent is not an empty element.
    pub(super) fn add_empty_text(&mut self) -> RunResult<()> {
        self.spend_node(0)?;
        let output = self.output();
        self.store.doc_mut(output.doc).append(output.parent, NodeKind::Text, QName::default(), "", 0);
        Ok(())
    }

    pub(super) fn add_comment(&mut self, text: &str) -> RunResult<()> {
        if text.contains("--") || text.ends_with('-') {
            return failed("xsl:comment : '--' or ending '-' not allowed in comment");
        }
        self.spend_node(text.len())?;
        let output = self.output();
        let document = self.store.doc_mut(output.doc);
        document.append(output.parent, NodeKind::Comment, QName::default(), text, 0);
        Ok(())
    }

    pub(super) fn add_processing(&mut self, name: &str, text: &str) -> RunResult<()> {
        if !is_ncname(name) || name.eq_ignore_ascii_case("xml") {
            return failed(format!("xsl:processing-instruction: The effective name '{name}' is not a valid NCName."));
        }
        if text.contains("?>") {
            return failed("xsl:processing-instruction: '?>' not allowed within PI content");
        }
        self.spend_node(text.len())?;
        let name = QName::local(self.names.id(name));
        let output = self.output();
        self.store.doc_mut(output.doc).append(output.parent, NodeKind::Instruction, name, text, 0);
        Ok(())
    }

    /// Opens an element whose name has no namespace yet.
    pub(super) fn open_element(&mut self, name: QName) -> RunResult<u32> {
        self.spend_node(0)?;
        let output = self.output();
        let element = self.store.doc_mut(output.doc).append(output.parent, NodeKind::Element, name, "", 0);
        self.set_parent(element);
        Ok(element)
    }
    pub(super) fn close_element(&mut self) {
        let output = self.output();
        let parent = self.store.doc(output.doc).node(output.parent).parent;
        self.set_parent(if parent == NIL { 0 } else { parent });
    }

    /// Declares a namespace unless the binding is in scope.
    pub(super) fn declare(&mut self, element: u32, prefix: NameId, uri: NameId) -> RunResult<()> {
        let doc = self.output().doc;
        if self.store.doc(doc).resolve(element, prefix) == Some(uri) {
            return Ok(());
        }
        self.spend(16)?;
        self.store.doc_mut(doc).declare(element, prefix, uri);
        Ok(())
    }

    /// Declares the namespace of an element's name, and names the element.
    pub(super) fn name_element(&mut self, element: u32, name: QName) -> RunResult<()> {
        let named = self.bind_name(element, name)?;
        let doc = self.output().doc;
        self.store.doc_mut(doc).rename(element, named);
        Ok(())
    }

    /// The name with a prefix that is bound to its namespace at the element.
    fn bind_name(&mut self, element: u32, name: QName) -> RunResult<QName> {
        let doc = self.output().doc;
        let document = self.store.doc(doc);
        if document.resolve(element, name.prefix) == Some(name.ns) {
            return Ok(name);
        }
        if name.ns.is_none() {
            self.store.doc_mut(doc).declare(element, NameId::NONE, NameId::NONE);
            return Ok(QName { prefix: NameId::NONE, ..name });
        }
        let mut prefix = name.prefix;
        let taken = |prefix: NameId, engine: &Self| {
            engine.store.doc(doc).own_declarations(element).any(|(_, decl)| decl.prefix == prefix)
        };
        let mut number = 0;
        while taken(prefix, self) {
            if self.store.doc(doc).resolve(element, prefix) == Some(name.ns) {
                return Ok(QName { prefix, ..name });
            }
            number += 1;
            let base = if name.prefix.is_none() { "ns" } else { self.names.text(name.prefix) };
            let text = format!("{base}_{number}");
            prefix = self.names.id(&text);
        }
        self.declare(element, prefix, name.ns)?;
        Ok(QName { prefix, ..name })
    }

    /// Adds an attribute to the open element.
    pub(super) fn add_attribute(&mut self, name: QName, value: &str) -> RunResult<()> {
        let output = self.output();
        let document = self.store.doc(output.doc);
        let element = document.node(output.parent);
        if element.kind != NodeKind::Element {
            return failed("xsl:attribute: Cannot add an attribute node to a non-element node.");
        }
        if element.first != NIL {
            return failed(
                "xsl:attribute: Cannot add attributes to an element, if children have been already added to the element.",
            );
        }
        self.spend_node(value.len())?;
        // The search for an attribute of this name.
        let count = self.store.doc(output.doc).attributes(output.parent).count();
        self.step(count as u64)?;
        let mut name = name;
        if !name.ns.is_none() && name.ns != NameId::XML_NS {
            let document = self.store.doc(output.doc);
            if name.prefix.is_none() {
                let bound = document.namespaces(output.parent);
                let bound = bound.iter().find(|(_, decl)| decl.uri == name.ns && !decl.prefix.is_none());
                name.prefix = match bound {
                    Some((_, decl)) => decl.prefix,
                    None => self.names.id("ns_1"),
                };
            }
            name = self.bind_name(output.parent, name)?;
        }
        self.store.doc_mut(output.doc).set_attribute(output.parent, name, value);
        Ok(())
    }

    /// Resolves the computed name of an element or attribute. `None` of `default`: attributes have no default namespace.
    fn computed_name(
        &mut self,
        kind: &str,
        text: &str,
        namespace: Option<&str>,
        default: Option<NameId>,
        focus: &Focus,
    ) -> RunResult<QName> {
        let (prefix, local) = match text.split_once(':') {
            Some((prefix, local)) => (prefix, local),
            None => ("", text),
        };
        if !is_ncname(local) || !(prefix.is_empty() || is_ncname(prefix)) || (prefix.is_empty() && text.contains(':')) {
            return failed(format!("xsl:{kind}: The effective name '{text}' is not a valid QName."));
        }
        // Names stay until the end.
        self.spend(text.len() + namespace.map_or(0, str::len))?;
        let (prefix_id, local_id) = (self.names.id(prefix), self.names.id(local));
        if let Some(uri) = namespace {
            let ns = self.names.id(uri);
            if ns.is_none() {
                return Ok(QName::local(local_id));
            }
            let prefix = if prefix == "xmlns" { NameId::NONE } else { prefix_id };
            return Ok(QName { ns, local: local_id, prefix });
        }
        if prefix.is_empty() {
            return Ok(QName { ns: default.unwrap_or(NameId::NONE), local: local_id, prefix: NameId::NONE });
        }
        if prefix == "xml" {
            return Ok(QName { ns: NameId::XML_NS, local: local_id, prefix: NameId::XML });
        }
        let scope = self.sheet.in_scope(focus.scope);
        match scope.namespaces.iter().find(|(bound, _)| *bound == prefix_id) {
            Some((_, ns)) => Ok(QName { ns: *ns, local: local_id, prefix: prefix_id }),
            None => failed(format!(
                "xsl:{kind}: The QName '{text}' has no namespace binding in scope in the stylesheet; this is an error, since the namespace was not specified by the instruction itself."
            )),
        }
    }

    pub(super) fn open_named_element(&mut self, name: &str, namespace: Option<&str>, focus: &Focus) -> RunResult<()> {
        let default = self.sheet.in_scope(focus.scope).default_namespace;
        let name = self.computed_name("element", name, namespace, Some(default), focus)?;
        let element = self.open_element(name)?;
        self.name_element(element, name)
    }

    pub(super) fn add_named_attribute(
        &mut self,
        name: &str,
        namespace: Option<&str>,
        value: &str,
        focus: &Focus,
    ) -> RunResult<()> {
        if name == "xmlns" {
            return failed("xsl:attribute: The effective name 'xmlns' is not allowed.");
        }
        let output = self.output();
        if self.store.doc(output.doc).node(output.parent).kind != NodeKind::Element {
            // As in libxslt, a fragment's document has no attributes.
            return Ok(());
        }
        let name = self.computed_name("attribute", name, namespace, None, focus)?;
        self.add_attribute(name, value)
    }

    pub(super) fn literal(&mut self, literal: &'s Literal, focus: Focus) -> RunResult<()> {
        let element = self.open_element(literal.name)?;
        for (prefix, uri) in &literal.declarations {
            self.declare(element, *prefix, *uri)?;
        }
        self.name_element(element, literal.name)?;
        if literal.sets.is_empty() {
            return self.literal_content(literal, &focus);
        }
        self.push(super::NO_BLOCK, focus, FrameEnd::Literal(literal));
        self.push_sets(&literal.sets, focus)
    }

    pub(super) fn literal_content(&mut self, literal: &'s Literal, focus: &Focus) -> RunResult<()> {
        for (name, value) in &literal.attributes {
            let value = self.avt(value, focus)?;
            self.add_attribute(*name, &value)?;
        }
        let block = self.sheet.block(literal.body);
        match block.is_empty() {
            true => self.close_element(),
            false => self.push(block, *focus, FrameEnd::CloseElement),
        }
        Ok(())
    }

    /// Pushes the frames of attribute sets, the first one on top.
    pub(super) fn push_sets(&mut self, sets: &[ExpandedName], focus: Focus) -> RunResult<()> {
        let sheet = self.sheet;
        let mut blocks = Vec::new();
        for name in sets {
            blocks.extend(sheet.attribute_sets.get(name).into_iter().flatten().copied());
        }
        for block in blocks.into_iter().rev() {
            let frame = std::mem::replace(&mut self.frame, self.locals.len());
            self.push(sheet.block(block), focus, FrameEnd::AttributeSet { frame });
        }
        Ok(())
    }
}
