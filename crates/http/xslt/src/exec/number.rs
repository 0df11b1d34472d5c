//! `xsl:number` (section 7.7), with libxslt's rules where the section leaves freedom.

use crate::engine::{Engine, Focus};
use crate::failure::RunResult;
use crate::format;
use crate::sheet::{NumberInstruction, NumberLevel};
use crate::store::NodeRef;
use crate::tree::NIL;
use crate::xpath::pattern::MatchPattern;

impl Engine<'_> {
    pub(super) fn number(&mut self, number: &NumberInstruction, focus: &Focus) -> RunResult<String> {
        let numbers = match &number.value {
            Some(value) => vec![self.eval_number(value, focus)?],
            None => self.count(number, focus)?,
        };
        let format = self.avt(&number.format, focus)?;
        let separator = match &number.separator {
            Some(avt) => self.avt(avt, focus)?,
            None => String::new(),
        };
        let size = match &number.size {
            Some(avt) => self.avt(avt, focus)?.trim().parse().unwrap_or(0),
            None => 0,
        };
        Ok(format::number_list(&numbers, &format, &separator, size))
    }

    fn count(&mut self, number: &NumberInstruction, focus: &Focus) -> RunResult<Vec<f64>> {
        if number.level == NumberLevel::Any {
            return self.count_any(number, focus);
        }
        let most = if number.level == NumberLevel::Single { 1 } else { usize::MAX };
        let mut found = Vec::new();
        let mut at = Some(focus.node);
        while let Some(node) = at {
            let parent = self.store.parent(node);
            if parent.is_none() || self.matches_from(&number.from, node, focus.scope)? {
                break;
            }
            if self.counts(&number.count, node, focus)? {
                let mut count = 1.0;
                let mut sibling = if node.ns > 0 { NIL } else { self.store.doc(node.doc).node(node.node).prev };
                while sibling != NIL && self.store.kind(node) != crate::tree::NodeKind::Attribute {
                    let other = node.at(sibling);
                    if self.counts(&number.count, other, focus)? {
                        count += 1.0;
                    }
                    sibling = self.store.doc(node.doc).node(sibling).prev;
                }
                found.push(count);
                if found.len() >= most {
                    break;
                }
            }
            at = parent;
        }
        found.reverse();
        Ok(found)
    }

    fn count_any(&mut self, number: &NumberInstruction, focus: &Focus) -> RunResult<Vec<f64>> {
        let mut count = 0.0;
        let mut node = focus.node;
        loop {
            if self.counts(&number.count, node, focus)? {
                count += 1.0;
            }
            if self.matches_from(&number.from, node, focus.scope)? {
                break;
            }
            let document = self.store.doc(node.doc);
            let is_side = node.ns > 0 || self.store.kind(node) == crate::tree::NodeKind::Attribute;
            let prev = if is_side { NIL } else { document.node(node.node).prev };
            if prev == NIL {
                match self.store.parent(node) {
                    Some(parent) => node = parent,
                    None => break,
                }
                continue;
            }
            let mut at = prev;
            while document.node(at).last != NIL {
                at = document.node(at).last;
            }
            node = node.at(at);
        }
        Ok(vec![count])
    }

    fn matches_from(&mut self, from: &Option<MatchPattern>, node: NodeRef, scope: u32) -> RunResult<bool> {
        match from {
            Some(pattern) => self.matches(pattern, node, scope),
            None => Ok(false),
        }
    }

    /// Matches `count`; without it, nodes of the current node's type and name.
    fn counts(&mut self, count: &Option<MatchPattern>, node: NodeRef, focus: &Focus) -> RunResult<bool> {
        self.step(1)?;
        match count {
            Some(pattern) => self.matches(pattern, node, focus.scope),
            None => Ok(self.store.kind(node) == self.store.kind(focus.node)
                && self.store.name(node).expanded() == self.store.name(focus.node).expanded()),
        }
    }
}
