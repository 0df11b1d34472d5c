//! Directives that change rules which stand anywhere: `SecRuleRemoveById`, `SecRuleUpdateTargetById` and their kind.

use super::actions::{ActionList, parse_actions};
use super::text::{Directive, Word};
use super::{Compiler, Entry};
use crate::failure::{Place, Refusal, RuleWarning};
use crate::rule::{Rule, Target};
use hashbrown::HashMap;
use std::fmt;
use std::sync::Arc;

/// The rules that a directive means.
pub(crate) enum RuleChoice {
    Ids(u64, u64),
    Tag(String),
    Message(String),
}

impl fmt::Display for RuleChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleChoice::Ids(first, last) if first == last => write!(f, "has the id {first}"),
            RuleChoice::Ids(first, last) => write!(f, "has an id from {first} to {last}"),
            RuleChoice::Tag(tag) => write!(f, "has the tag \"{tag}\""),
            RuleChoice::Message(message) => write!(f, "has the message \"{message}\""),
        }
    }
}

impl RuleChoice {
    fn chooses(&self, rule: &Rule) -> bool {
        match self {
            RuleChoice::Ids(first, last) => (*first..=*last).contains(&rule.id),
            RuleChoice::Tag(tag) => rule.has_tag(tag),
            RuleChoice::Message(message) => rule.has_message(message),
        }
    }
}

/// A change of rules, made when all files are read.
pub(crate) enum RuleUpdate {
    Remove(RuleChoice),
    Targets(RuleChoice, Vec<Target>, Vec<Target>),
    Actions(u64, usize, Box<ActionList>),
}

/// A directive with an update, for a warning if it meets no rule.
pub(super) struct UpdateSource {
    pub place: Place,
    /// As written.
    pub name: String,
}

impl RuleUpdate {
    /// Returns what no rule is or has, if the update would change none of `entries`, nor a rule with one of `ids`, which may be
    /// removed already.
    fn unmet_need(&self, entries: &[Entry], ids: &HashMap<u64, Place>) -> Option<String> {
        let choice = match self {
            RuleUpdate::Remove(choice) | RuleUpdate::Targets(choice, ..) => choice,
            RuleUpdate::Actions(id, ..) => &RuleChoice::Ids(*id, *id),
        };
        let is_met = match choice {
            RuleChoice::Ids(first, last) if first == last => ids.contains_key(first),
            RuleChoice::Ids(first, last) => ids.keys().any(|id| (*first..=*last).contains(id)),
            _ => entries.iter().any(|entry| matches!(entry, Entry::Rule(rule) if choice.chooses(rule))),
        };
        (!is_met).then(|| choice.to_string())
    }

    /// Changes those of `entries` that it means.
    pub fn apply(&self, entries: &mut Vec<Entry>) {
        match self {
            RuleUpdate::Remove(choice) => {
                entries.retain(|entry| !matches!(entry, Entry::Rule(rule) if choice.chooses(rule)));
            }
            RuleUpdate::Targets(choice, added, excluded) => {
                let rules = entries.iter_mut().filter_map(|entry| match entry {
                    Entry::Rule(rule) if choice.chooses(rule) => Some(rule),
                    _ => None,
                });
                for rule in rules {
                    let rule = Arc::make_mut(rule);
                    if let Some(head) = rule.links.first_mut().filter(|head| head.condition.is_some()) {
                        head.targets.extend(added.iter().cloned());
                        head.exclusions.extend(excluded.iter().cloned());
                        if !added.is_empty() {
                            (head.screen, head.has_asked_screen) = (None, false);
                        }
                    }
                }
            }
            RuleUpdate::Actions(id, offset, list) => {
                let found = entries.iter_mut().find_map(|entry| match entry {
                    Entry::Rule(rule) if rule.id == *id => Some(rule),
                    _ => None,
                });
                if let Some(rule) = found {
                    update_rule(Arc::make_mut(rule), *offset, list);
                }
            }
        }
    }
}

fn update_rule(rule: &mut Rule, offset: usize, list: &ActionList) {
    if offset == 0 {
        rule.disruption = list.disruption.clone().or(rule.disruption.take());
        rule.status = list.status.or(rule.status);
        rule.skip = if list.skip > 0 { list.skip } else { rule.skip };
        rule.skip_after = list.skip_after.clone().or(rule.skip_after.take());
        rule.tag_texts.extend(list.tag_texts.iter().cloned());
        rule.message_text = list.message_text.clone().or(rule.message_text.take());
    }
    if let Some(link) = rule.links.get_mut(offset) {
        if list.ignores_default_chain {
            link.transformations.clear();
        }
        link.transformations.extend(&list.transformations);
        link.ignores_default_chain |= list.ignores_default_chain;
        // The values of a screen depend on them.
        (link.screen, link.has_asked_screen) = (None, false);
        list.clone().update(link);
    }
}

impl Compiler<'_> {
    /// Warns about updates of these texts, which are those from `first` on, that meet no rule before any of them is made.
    pub(super) fn warn_unmet_updates(&mut self, first: usize) {
        for (update, source) in self.updates.iter().skip(first).zip(&self.update_sources) {
            if let Some(need) = update.unmet_need(&self.entries, &self.ids) {
                let reason = format!("{} has no effect: no rule of this block and its parents {need}", source.name);
                self.warnings.push(RuleWarning { place: source.place.clone(), reason });
            }
        }
    }

    /// Keeps an update for the end of the compilation.
    pub(super) fn add_update(&mut self, directive: &Directive, name: &Word, word: &Word, update: RuleUpdate) {
        let place = directive.place(&self.file, word.start);
        self.update_sources.push(UpdateSource { place, name: name.text.clone() });
        self.updates.push(Arc::new(update));
    }

    /// `SecRuleUpdateActionById ID[:OFFSET] ACTIONS`.
    pub(super) fn update_actions(
        &mut self,
        directive: &Directive,
        name: &Word,
        id: &Word,
        actions: &Word,
    ) -> Result<(), (usize, Refusal)> {
        let (number, offset) = id.text.split_once(':').unwrap_or((&id.text, "0"));
        let (Ok(number), Ok(offset)) = (number.parse(), offset.parse()) else {
            return Err((id.start, Refusal::new(format!("\"{}\" is no id of a rule", id.text))));
        };
        let list = parse_actions(&actions.text).map_err(|refusal| (actions.start, refusal))?;
        if list.id.is_some() || list.phase.is_some() || list.chained {
            let refusal = Refusal::new("id, phase and chain of a rule cannot be changed");
            return Err((actions.start, refusal));
        }
        self.add_update(directive, name, id, RuleUpdate::Actions(number, offset, Box::new(list)));
        Ok(())
    }
}
