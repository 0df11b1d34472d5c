//! Matching of nodes against patterns.

use crate::engine::{Engine, Focus};
use crate::failure::RunResult;
use crate::store::NodeRef;
use crate::tree::NodeKind;
use crate::xpath::ast::Axis;
use crate::xpath::axes;
use crate::xpath::pattern::{Alternative, MatchPattern, PatternStart, PatternStep};

impl Engine<'_> {
    pub fn matches(&mut self, pattern: &MatchPattern, node: NodeRef, scope: u32) -> RunResult<bool> {
        for alternative in &pattern.alternatives {
            if self.matches_path(alternative, node, scope)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub fn matches_path(&mut self, path: &Alternative, node: NodeRef, scope: u32) -> RunResult<bool> {
        self.matches_steps(path, &path.steps, node, scope)
    }

    /// Matches the last of the steps against the node, the others against its ancestors.
    fn matches_steps(
        &mut self,
        path: &Alternative,
        steps: &[PatternStep],
        node: NodeRef,
        scope: u32,
    ) -> RunResult<bool> {
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

    fn matches_step(&mut self, step: &PatternStep, node: NodeRef, scope: u32) -> RunResult<bool> {
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
