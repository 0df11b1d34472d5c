//! `SecRule`, `SecAction` and `SecDefaultAction`: rules and their chains.

use super::actions::{ActionList, parse_actions};
use super::targets::parse_targets;
use super::text::{Directive, Word};
use super::{Compiler, Entry, RULES_MAX, TRANSFORMATIONS_MAX};
use crate::failure::Refusal;
use crate::operator::{OperatorContext, make_operator};
use crate::rule::{Condition, DefaultAction, Disruption, Link, Rule};
use crate::template::Template;
use std::sync::Arc;

impl Compiler<'_> {
    /// Adds a rule, or a link to the open chain.
    pub(super) fn rule(
        &mut self,
        directive: &Directive,
        tested: Option<(&Word, &Word)>,
        actions: Option<&Word>,
    ) -> Result<(), (usize, Refusal)> {
        let start = actions.map_or_else(|| tested.map_or(0, |(targets, _)| targets.start), |word| word.start);
        let list = match actions {
            Some(word) => parse_actions(&word.text).map_err(|refusal| (word.start, refusal))?,
            None => ActionList::default(),
        };
        if list.transformations.len() > TRANSFORMATIONS_MAX {
            let words = format!("more than {TRANSFORMATIONS_MAX} transformations");
            return Err((start, Refusal::new(words)));
        }
        self.links += 1;
        if self.links > RULES_MAX {
            return Err((0, Refusal::new(format!("more than {RULES_MAX} rules"))));
        }
        let (mut targets, mut exclusions, mut condition) = (Vec::new(), Vec::new(), None);
        if let Some((words, operator)) = tested {
            (targets, exclusions) =
                parse_targets(&words.text, &list.namespaces).map_err(|refusal| (words.start, refusal))?;
            if targets.is_empty() {
                return Err((words.start, Refusal::new("a rule needs a variable besides exclusions")));
            }
            condition = Some(Arc::new(self.condition(operator).map_err(|refusal| (operator.start, refusal))?));
        }
        let place = directive.place(&self.file, 0);
        let mut link = Link {
            targets,
            exclusions,
            condition,
            chain_node: 0,
            screen: None,
            has_asked_screen: false,
            multi_match: false,
            captures: false,
            changes: Vec::new(),
            effects: Vec::new(),
            labels: Default::default(),
            line: directive.line(),
            transformations: list.transformations.clone(),
            ignores_default_chain: list.ignores_default_chain,
            logs: None,
            audits: None,
        };
        let continues = list.chained;
        if let Some(Entry::Rule(head)) = self.entries.last_mut().filter(|_| self.open_chain.is_some()) {
            let misplaced = [
                ("id", list.id.is_some()),
                (
                    "a disruptive action",
                    matches!(&list.disruption, Some(found) if !matches!(found, Disruption::Pass | Disruption::Block)),
                ),
                ("skip", list.skip > 0),
                ("skipAfter", list.skip_after.is_some()),
                ("phase", list.phase.is_some_and(|phase| phase != head.phase)),
            ];
            if let Some((words, _)) = misplaced.iter().find(|(_, is_used)| *is_used) {
                let refusal = Refusal::new(format!("{words} belongs to the first rule of a chain"));
                return Err((start, refusal));
            }
            list.update(&mut link);
            Arc::make_mut(head).links.push(link);
        } else {
            let id = list.id.ok_or_else(|| {
                (
                    start,
                    Refusal::new("a rule needs an id")
                        .suggest("add id:NUMBER to the actions; no other rule may have it"),
                )
            })?;
            if let Some(first) = self.ids.insert(id, place.clone()) {
                return Err((start, Refusal::new(format!("the rule at {first} has the id {id} as well"))));
            }
            let mut rule = Rule {
                id,
                phase: list.phase.unwrap_or(2),
                place: place.clone(),
                links: Vec::new(),
                disruption: list.disruption.clone(),
                status: list.status,
                skip: list.skip,
                skip_after: list.skip_after.clone(),
                tag_texts: list.tag_texts.clone(),
                message_text: list.message_text.clone(),
            };
            list.update(&mut link);
            rule.links.push(link);
            self.entries.push(Entry::Rule(Arc::new(rule)));
        }
        self.open_chain = continues.then_some(place);
        Ok(())
    }

    fn condition(&self, word: &Word) -> Result<Condition, Refusal> {
        let text = word.text.as_str();
        let trimmed = text.trim_start();
        let (negated, rest) = match trimmed.strip_prefix('!') {
            Some(rest) => (true, rest.trim_start()),
            None => (false, trimmed),
        };
        let offset = text.len() - rest.len();
        let (name, parameter) = match rest.strip_prefix('@') {
            // The pattern of an operator-less rule is taken as written.
            None => ("rx", if negated { rest } else { text }),
            Some(called) => {
                let end = called.find(|c: char| c.is_ascii_whitespace()).unwrap_or(called.len());
                let (name, parameter) = called.split_at(end);
                (name, parameter.trim_start())
            }
        };
        let parameter = if name.eq_ignore_ascii_case("rx") { parameter } else { parameter.trim_end() };
        let parameter_offset = text.len() - parameter.len();
        let is_text = |name: &str| matches!(name.to_ascii_lowercase().as_str(), "pm" | "pmf" | "pmfromfile");
        let template = match is_text(name) {
            true => Template::literal(parameter.as_bytes()),
            false => Template::parse(parameter.as_bytes()).map_err(|refusal| refusal.at(parameter_offset))?,
        };
        let cx = OperatorContext { files: self.files, file: &self.file, match_steps: self.settings.match_steps };
        // Without a name, the parameter begins where the name would.
        let behind = if rest.starts_with('@') { parameter_offset - offset } else { 0 };
        let (operator, shown) =
            make_operator(name, (parameter, behind), &template, &cx).map_err(|refusal| refusal.at(offset))?;
        Ok(Condition { negated, operator, name: shown, parameter: template })
    }

    pub(super) fn default_action(&mut self, word: &Word) -> Result<(), (usize, Refusal)> {
        let list = parse_actions(&word.text).map_err(|refusal| (word.start, refusal))?;
        let refused = |words: &str| Err((word.start, Refusal::new(format!("SecDefaultAction {words}"))));
        let Some(phase) = list.phase else { return refused("needs a phase") };
        if matches!(list.disruption, Some(Disruption::Block)) {
            return refused("defines what block does, and cannot block itself");
        }
        if list.id.is_some() || list.chained || !list.changes.is_empty() {
            return refused("cannot have id, chain or setvar");
        }
        if let Some(slot) = self.defaults.get_mut(usize::from(phase) - 1) {
            *slot = DefaultAction {
                disruption: list.disruption,
                status: list.status,
                logs: list.logs,
                audits: list.audits,
                effects: list.effects,
                chain: list.transformations,
            };
        }
        Ok(())
    }
}
