//! Choice of templates and their calls.

use super::{ExecTarget, FrameEnd, NO_BLOCK, Params, TemplateCall};
use crate::engine::{Engine, Focus};
use crate::failure::{RunResult, failed};
use crate::names::ExpandedName;
use crate::sheet::{TemplateRule, VariableValue};
use crate::store::NodeRef;
use crate::tree::NodeKind;
use crate::xpath::XPathValue;
use std::rc::Rc;

impl<'s> Engine<'s> {
    pub(super) fn children(&self, node: NodeRef) -> Vec<NodeRef> {
        match node.ns {
            0 => self.store.doc(node.doc).children(node.node).map(|at| node.at(at)).collect(),
            _ => Vec::new(),
        }
    }

    /// Evaluates the remaining parameters of a call, then performs it.
    pub(super) fn invoke(&mut self, mut call: TemplateCall<'s>) -> RunResult<()> {
        while let Some(param) = call.params.get(call.at) {
            let focus = Focus { scope: param.scope, ..call.focus };
            let value = match &param.value {
                VariableValue::Empty => XPathValue::Text(String::new()),
                VariableValue::Select(expr) => self.eval(expr, &focus)?,
                VariableValue::Body(body) => {
                    self.push_output()?;
                    let block = self.sheet.block(*body);
                    self.push(block, focus, FrameEnd::WithParam(Box::new(call)));
                    return Ok(());
                }
            };
            call.values.push((param.name, value));
            call.at += 1;
        }
        let params: Params = Rc::new(call.values);
        match call.target {
            ExecTarget::Template(index) => {
                let (rule, mode) = (self.machine.rule, self.machine.mode);
                self.enter(index, rule, mode, call.focus, params)
            }
            ExecTarget::Apply { nodes, mode } => {
                self.push(NO_BLOCK, call.focus, FrameEnd::Apply { nodes, at: 0, mode, params });
                Ok(())
            }
            ExecTarget::Imports => {
                let current = self.machine.rule.and_then(|rule| self.sheet.templates.get(rule));
                let Some(current) = current else {
                    return failed("xsl:apply-imports : internal problem, no current template rule");
                };
                let range = current.lowest..current.precedence;
                let mode = self.machine.mode;
                match self.find_rule(call.focus.node, mode, Some(range))? {
                    Some(index) => self.enter(index, Some(index), mode, call.focus, params),
                    None => self.built_in(call.focus, mode, params),
                }
            }
        }
    }

    pub(super) fn apply_rule(&mut self, focus: Focus, mode: Option<ExpandedName>, params: Params) -> RunResult<()> {
        match self.find_rule(focus.node, mode, None)? {
            Some(index) => self.enter(index, Some(index), mode, focus, params),
            None => self.built_in(focus, mode, params),
        }
    }

    fn enter(
        &mut self,
        index: usize,
        rule: Option<usize>,
        mode: Option<ExpandedName>,
        focus: Focus,
        params: Params,
    ) -> RunResult<()> {
        let Some(template) = self.sheet.templates.get(index) else { return Ok(()) };
        if self.machine.depth >= self.limits.depth {
            return failed(format!(
                "xsltApplyXSLTTemplate: A potential infinite template recursion was detected. (currently set to {})",
                self.limits.depth
            ));
        }
        self.spend(super::size_of_params(&params))?;
        self.machine.depth += 1;
        let machine = &mut self.machine;
        let end = FrameEnd::Template {
            frame: self.frame,
            rule: std::mem::replace(&mut machine.rule, rule),
            mode: std::mem::replace(&mut machine.mode, mode),
            params: std::mem::replace(&mut machine.params, params),
            mark: self.store.mark(),
        };
        self.frame = self.locals.len();
        let block = self.sheet.block(template.body);
        self.push(block, focus, end);
        Ok(())
    }

    /// Built-in template rules (section 5.8). As in libxslt, parameters pass through.
    fn built_in(&mut self, focus: Focus, mode: Option<ExpandedName>, params: Params) -> RunResult<()> {
        if focus.node.ns > 0 {
            return Ok(());
        }
        match self.store.kind(focus.node) {
            NodeKind::Document | NodeKind::Element => {
                let nodes = self.children(focus.node);
                self.push(NO_BLOCK, focus, FrameEnd::Apply { nodes, at: 0, mode, params });
            }
            NodeKind::Attribute | NodeKind::Text | NodeKind::RawText | NodeKind::Cdata => {
                let text = self.string(focus.node)?;
                self.add_text(&text, false)?;
            }
            NodeKind::Comment | NodeKind::Instruction => {}
        }
        Ok(())
    }

    /// The template of highest precedence and priority; the last one of a stylesheet, as section 5.5 allows.
    fn find_rule(
        &mut self,
        node: NodeRef,
        mode: Option<ExpandedName>,
        range: Option<std::ops::Range<u32>>,
    ) -> RunResult<Option<usize>> {
        let sheet = self.sheet;
        let Some(table) = sheet.rules.get(&mode) else { return Ok(None) };
        let mut named: &'s [TemplateRule] = &[];
        if node.ns == 0
            && matches!(self.store.kind(node), NodeKind::Element | NodeKind::Attribute)
            && let Some(rules) = table.by_name.get(&self.store.name(node).expanded())
        {
            named = rules;
        }
        let mut others: &'s [TemplateRule] = &table.others;
        loop {
            let rule = match (named.split_first(), others.split_first()) {
                (Some((a, rest)), other) if other.is_none_or(|(b, _)| a.rank < b.rank) => {
                    named = rest;
                    a
                }
                (_, Some((b, rest))) => {
                    others = rest;
                    b
                }
                _ => return Ok(None),
            };
            self.step(1)?;
            let Some(template) = sheet.templates.get(rule.template) else { continue };
            if range.as_ref().is_some_and(|range| !range.contains(&template.precedence)) {
                continue;
            }
            if self.matches_path(&rule.path, node, template.scope)? {
                return Ok(Some(rule.template));
            }
        }
    }
}
