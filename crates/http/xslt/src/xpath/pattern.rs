//! Patterns (XSLT 1.0, section 5.2): their parser, default priorities and matching.

use super::ast::{Axis, Expr, NodeTest, Predicate};
use super::axes;
use super::lex::Token;
use super::parse::{Parser, Scope};
use crate::engine::{Engine, Focus, Run};
use crate::store::NodeRef;
use crate::tree::NodeKind;

#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pub alternatives: Vec<Alternative>,
}

/// One path of a pattern.
#[derive(Clone, Debug)]
pub(crate) struct Alternative {
    pub start: PatternStart,
    pub steps: Vec<PatternStep>,
    /// Default priority (section 5.5).
    pub priority: f64,
}

#[derive(Clone, Debug)]
pub(crate) enum PatternStart {
    Anywhere,
    Root,
    /// `id(...)` or `key(...)`.
    Set(Expr),
}

#[derive(Clone, Debug)]
pub(crate) struct PatternStep {
    /// `Child` or `Attribute`.
    pub axis: Axis,
    pub test: NodeTest,
    pub predicates: Vec<Predicate>,
    /// Behind `//`.
    pub descends: bool,
}

/// Compiles a pattern. `None`: the text is not one.
pub(crate) fn pattern(text: &str, scope: &mut Scope<'_>) -> Option<Pattern> {
    let mut parser = Parser::new(text, scope)?;
    let mut alternatives = vec![alternative(&mut parser)?];
    while parser.eat("|") {
        alternatives.push(alternative(&mut parser)?);
    }
    parser.ended().then_some(Pattern { alternatives })
}

fn alternative(parser: &mut Parser<'_, '_>) -> Option<Alternative> {
    let mut found = Alternative { start: PatternStart::Anywhere, steps: Vec::new(), priority: 0.5 };
    let mut descends = false;
    if parser.eat("//") {
        (found.start, descends) = (PatternStart::Root, true);
    } else if parser.eat("/") {
        found.start = PatternStart::Root;
        if parser.ended() || matches!(parser.peek(), Some(Token::Sign("|"))) {
            return Some(found);
        }
    } else if let Some(function) = parser.name_ahead().filter(|name| matches!(*name, "id" | "key"))
        && matches!(parser.tokens.get(parser.at + 1), Some(Token::Sign("(")))
    {
        let is_id = function == "id";
        parser.at += 1;
        let arguments = parser.arguments()?;
        let literals = arguments.iter().all(|argument| matches!(argument, Expr::Literal(_)));
        if !literals || arguments.len() != if is_id { 1 } else { 2 } {
            return None;
        }
        let function = if is_id { super::functions::Function::Id } else { super::functions::Function::Key };
        found.start = PatternStart::Set(Expr::Call(function, arguments));
        if parser.eat("//") {
            descends = true;
        } else if !parser.eat("/") {
            return Some(found);
        }
    }
    loop {
        let step = parser.step()?;
        if !matches!(step.axis, Axis::Child | Axis::Attribute) {
            return None;
        }
        found.steps.push(PatternStep { axis: step.axis, test: step.test, predicates: step.predicates, descends });
        descends = false;
        if parser.eat("//") {
            descends = true;
        } else if !parser.eat("/") {
            break;
        }
    }
    if let (PatternStart::Anywhere, [step]) = (&found.start, found.steps.as_slice())
        && step.predicates.is_empty()
    {
        found.priority = match &step.test {
            NodeTest::Name(_) | NodeTest::Instruction(Some(_)) => 0.0,
            NodeTest::InNamespace(_) => -0.25,
            _ => -0.5,
        };
    }
    Some(found)
}

impl Engine<'_> {
    pub fn matches(&mut self, pattern: &Pattern, node: NodeRef, scope: u32) -> Run<bool> {
        for alternative in &pattern.alternatives {
            if self.matches_path(alternative, node, scope)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub fn matches_path(&mut self, path: &Alternative, node: NodeRef, scope: u32) -> Run<bool> {
        self.matches_steps(path, &path.steps, node, scope)
    }

    /// Matches the last of the steps against the node, the others against its ancestors.
    fn matches_steps(&mut self, path: &Alternative, steps: &[PatternStep], node: NodeRef, scope: u32) -> Run<bool> {
        self.step(1)?;
        let Some((step, before)) = steps.split_last() else {
            return Ok(match &path.start {
                PatternStart::Anywhere => true,
                PatternStart::Root => self.store.kind(node) == NodeKind::Document && node.ns == 0,
                PatternStart::Set(expr) => {
                    let focus = Focus { node, position: 1, size: 1, current: node, scope };
                    self.eval_nodes(expr, &focus)?.binary_search(&node).is_ok()
                }
            });
        };
        if !self.matches_step(step, node, scope)? {
            return Ok(false);
        }
        if before.is_empty() && matches!(path.start, PatternStart::Anywhere) {
            return Ok(true);
        }
        let mut at = self.store.parent(node);
        while let Some(parent) = at {
            if self.matches_steps(path, before, parent, scope)? {
                return Ok(true);
            }
            if !step.descends {
                return Ok(false);
            }
            at = self.store.parent(parent);
        }
        Ok(false)
    }

    fn matches_step(&mut self, step: &PatternStep, node: NodeRef, scope: u32) -> Run<bool> {
        let kind = self.store.kind(node);
        let on_axis = match step.axis {
            Axis::Attribute => kind == NodeKind::Attribute,
            _ => !matches!(kind, NodeKind::Attribute | NodeKind::Document) && node.ns == 0,
        };
        if !on_axis || !step.test.matches(&self.store, node, step.axis) {
            return Ok(false);
        }
        if step.predicates.is_empty() {
            return Ok(true);
        }
        if step.predicates.iter().all(|predicate| !predicate.positional) {
            let focus = Focus { node, position: 1, size: 1, current: node, scope };
            for predicate in &step.predicates {
                if !self.holds(predicate, &focus)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let Some(parent) = self.store.parent(node) else { return Ok(false) };
        let mut siblings = Vec::new();
        let visited = axes::collect(&self.store, parent, step.axis, &step.test, &mut siblings);
        self.step(visited)?;
        let focus = Focus { node, position: 1, size: 1, current: node, scope };
        let kept = self.filter(siblings, &step.predicates, &focus)?;
        Ok(kept.contains(&node))
    }
}
