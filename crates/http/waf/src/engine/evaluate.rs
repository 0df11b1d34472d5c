//! The evaluation of phases, rules and links.

use super::facts::{MatchedName, MatchedValue};
use super::names::PausedPhase;
use super::resolve::FoundValue;
use super::{ExhaustedAction, Transaction, Verdict};
use crate::message::RuleMatch;
use crate::operator::{Evaluation, MatchFailure, Operator};
use crate::rule::{AllowReach, Condition, EngineState, Link, Rule, Step, Target, TargetSelector};
use crate::transform::each_change;
use crate::variable::Variable;
use std::sync::Arc;

/// Values of a rule's targets that are evaluated at most.
const VALUES_MAX: usize = 100_000;
/// Values of `MATCHED_VARS`.
const MATCHED_MAX: usize = 1000;

/// The last match of a link, for the message.
pub(super) struct LinkMatch {
    pub name: MatchedName,
    pub value: Arc<[u8]>,
    /// The operator's parameter, expanded; empty if the rule makes no message.
    pub parameter: Vec<u8>,
    /// Empty if the rule makes no message.
    pub reference: String,
}

/// The result of a rule with its chain.
enum RuleOutcome {
    Matches,
    Fails,
    /// A link waits for names of DNS.
    Waits {
        link: usize,
        last: Option<LinkMatch>,
    },
}

impl Transaction {
    /// Evaluates the rules of a phase, from 1 to 5.
    pub(super) fn run_phase(&mut self, phase: u8) -> Verdict {
        if self.engine == EngineState::Off {
            return Verdict::Pass;
        }
        let is_logging = phase == 5;
        if self.verdict != Verdict::Pass && !is_logging {
            return self.verdict.clone();
        }
        match self.allowed {
            Some(AllowReach::Transaction) if !is_logging => return Verdict::Pass,
            Some(AllowReach::Request) if phase <= 2 => return Verdict::Pass,
            _ => self.allowed = None,
        }
        if is_logging {
            let budget = self.services.budget;
            self.spent.allow_logging(&budget);
        }
        if self.spent.exhausted.is_some() {
            return self.verdict.clone();
        }
        self.phase = phase;
        self.run_steps(phase, None)
    }

    /// Evaluates the steps of a phase, from its start or from the link that waited for names.
    pub(super) fn run_steps(&mut self, phase: u8, paused: Option<PausedPhase>) -> Verdict {
        self.spent.begin_phase(self.services.work.spent());
        let rules = self.rules.clone();
        let steps = rules.phases.get(usize::from(phase).saturating_sub(1)).map(Vec::as_slice).unwrap_or_default();
        let decided = self.verdict.clone();
        let mut skip = 0_u32;
        let mut next = paused.as_ref().map_or(0, |paused| paused.step);
        let mut begun = paused.map(|paused| (paused.link, paused.last));
        while let Some(step) = steps.get(next) {
            let number = next;
            next += 1;
            let Step::Rule(rule) = step else { continue };
            if skip > 0 {
                skip -= 1;
                continue;
            }
            if self.is_removed(rule) {
                continue;
            }
            match self.evaluate_rule(rule, begun.take()) {
                RuleOutcome::Matches => {
                    skip = rule.skip;
                    if let Some(name) = &rule.skip_after {
                        // The compiler has checked that the marker is there.
                        next = rules.marker_behind(phase, name, number).unwrap_or(steps.len());
                    }
                }
                RuleOutcome::Fails => {}
                RuleOutcome::Waits { link, last } => {
                    self.names.paused = Some(PausedPhase { step: number, link, last });
                    self.spent.end_phase(self.services.work.spent());
                    return self.verdict.clone();
                }
            }
            if let Some(what) = self.spent.exhausted {
                self.exhaust(what, rule, phase);
                break;
            }
            if self.engine == EngineState::Off || self.allowed.is_some() || self.verdict != decided {
                break;
            }
        }
        self.current = None;
        self.spent.end_phase(self.services.work.spent());
        self.verdict.clone()
    }

    fn is_removed(&self, rule: &Rule) -> bool {
        let removals = &self.removals;
        removals.ids.iter().any(|(first, last)| (*first..=*last).contains(&rule.id))
            || removals.tags.iter().any(|tag| rule.has_tag(tag))
            || removals.messages.iter().any(|message| rule.has_message(message))
    }

    /// Records that the budget ended, and decides.
    fn exhaust(&mut self, what: &str, rule: &Rule, phase: u8) {
        let mut denied = None;
        if self.engine == EngineState::On
            && self.verdict == Verdict::Pass
            && phase != 5
            && let ExhaustedAction::Deny(status) = self.services.exhausted
        {
            self.verdict = Verdict::Deny { status, rule: 0 };
            denied = Some(status);
        }
        self.matches.push(RuleMatch::exhausted(what, rule, phase, denied, &self.message_context()));
    }

    /// Evaluates a rule with its chain; `begun` is a link that waited for names, with the match of the link before.
    fn evaluate_rule(&mut self, rule: &Arc<Rule>, begun: Option<(usize, Option<LinkMatch>)>) -> RuleOutcome {
        let (first, mut last) = begun.unwrap_or_default();
        for (number, link) in rule.links.iter().enumerate().skip(first) {
            if link.screen.as_ref().is_some_and(|place| !self.could_match(place)) {
                self.facts.matched.clear();
                return RuleOutcome::Fails;
            }
            if self.current.as_ref().is_none_or(|current| current.id != rule.id) {
                self.current = Some(rule.clone());
            }
            match self.evaluate_link(rule, link) {
                Some(found) => last = found.or(last),
                None if self.names.is_waiting() => return RuleOutcome::Waits { link: number, last },
                None => {
                    self.facts.matched.clear();
                    return RuleOutcome::Fails;
                }
            }
        }
        self.perform_rule(rule, last);
        RuleOutcome::Matches
    }

    /// Evaluates one link that could match. `None` if it does not match, or waits for names of DNS; a `SecAction` matches
    /// without a value.
    fn evaluate_link(&mut self, rule: &Arc<Rule>, link: &Link) -> Option<Option<LinkMatch>> {
        let Some(condition) = &link.condition else {
            self.perform_changes(link);
            return Some(None);
        };
        let mut values = std::mem::take(&mut self.values);
        self.collect_link(rule, link, &mut values);
        if let Operator::BlockList(list) = &condition.operator
            && self.want_names(list, link, &values)
        {
            values.clear();
            self.values = values;
            return None;
        }
        // MATCHED_VARS of the link before are already among the values.
        self.facts.matched.clear();
        let parameter = self.expanded(&condition.parameter);
        let mut last = None;
        for (index, found) in values.drain(..) {
            let Some(target) = link.targets.get(index) else { continue };
            if link.multi_match {
                let rules = self.rules.clone();
                let map = rules.settings.unicode_map.as_deref();
                for (value, node) in each_change(&rules.chains, link.chain_node, &found.value, map) {
                    last = self.test_value((rule, link, condition, target), &found, value, node, &parameter).or(last);
                }
            } else {
                let value = self.transformed(&found.value, found.id, link.chain_node);
                let of = (rule.as_ref(), link, condition.as_ref(), target);
                last = self.test_value(of, &found, value, link.chain_node, &parameter).or(last);
            }
        }
        self.values = values;
        last.map(Some)
    }

    /// Adds the values of a link's targets without the excluded ones, with the index of the target.
    fn collect_link(&self, rule: &Rule, link: &Link, values: &mut Vec<(usize, FoundValue)>) {
        let mut buffer = Vec::new();
        let removed = self.removals.targets.iter().filter(|(owner, _)| owner.owns(rule)).map(|(_, target)| target);
        let dropped: Vec<&Target> = removed.collect();
        for (index, target) in link.targets.iter().enumerate() {
            let is_whole = |excluded: &Target| {
                excluded.variable == target.variable
                    && (matches!(excluded.selector, TargetSelector::All)
                        || excluded.text.eq_ignore_ascii_case(&target.text))
            };
            let exclusions = || link.exclusions.iter().chain(dropped.iter().copied());
            if !target.counts && exclusions().any(is_whole) {
                continue;
            }
            self.collect(target, self.admission(link.screen.as_deref()), &mut buffer);
            for found in buffer.drain(..) {
                let is_excluded = |excluded: &Target| excluded.covers(target.variable, found.element.as_deref());
                if values.len() < VALUES_MAX && (target.counts || !exclusions().any(is_excluded)) {
                    values.push((index, found));
                }
            }
        }
    }

    /// Evaluates the operator for one value behind its transformations, and performs the actions of a match.
    fn test_value(
        &mut self,
        (rule, link, condition, target): (&Rule, &Link, &Condition, &Target),
        found: &FoundValue,
        value: Arc<[u8]>,
        node: u32,
        parameter: &[u8],
    ) -> Option<LinkMatch> {
        if self.spent.exhausted.is_some() {
            return None;
        }
        self.count_step(value.len());
        let steps = self.rules.settings.match_steps;
        let places = self.services.places.as_deref();
        let evaluation = match &condition.operator {
            Operator::BlockList(list) => {
                let shown = MatchedName::new(target, found.element.clone()).text();
                self.evaluate_list(list, &value, &String::from_utf8_lossy(&shown))
            }
            operator => operator.evaluate(&value, parameter, link.captures, steps, places),
        };
        if let Some(failure) = evaluation.failure {
            self.note_failure(failure);
        }
        if evaluation.matches == condition.negated {
            return None;
        }
        self.keep_captures(link, &evaluation);
        let name = MatchedName::new(target, found.element.clone());
        let mut reference = String::new();
        let reports = self.could_report(rule);
        if reports {
            evaluation.offsets.iter().for_each(|(start, length)| reference.push_str(&format!("o{start},{length}")));
            if let Some((start, length)) = found.origin {
                reference.push_str(&format!("v{start},{length}"));
            }
            reference.push_str(&self.rules.chains.shown(node));
        }
        if self.facts.matched.len() < MATCHED_MAX {
            self.facts.matched.push(MatchedValue { name: name.clone(), value });
        }
        if let Some(place) = evaluation.place {
            let entries = place.into_iter();
            self.facts.geo =
                entries.map(|(name, value)| (name.into_bytes().into(), Arc::from(value.into_bytes()))).collect();
        }
        self.perform_changes(link);
        let parameter = if reports { parameter.to_vec() } else { Vec::new() };
        Some(LinkMatch { name, value: found.value.clone(), parameter, reference })
    }

    /// Counts a look at a value of so many bytes.
    pub(super) fn count_step(&mut self, bytes: usize) {
        let Transaction { spent, services, .. } = self;
        spent.evaluate(bytes, &services.budget, &*services.work);
    }

    fn note_failure(&mut self, failure: MatchFailure) {
        self.facts.set(Variable::MscPcreError, b"1", None);
        if failure == MatchFailure::Limit {
            self.facts.set(Variable::MscPcreLimitsExceeded, b"1", None);
            self.facts.tx.set(b"MSC_PCRE_LIMITS_EXCEEDED", Arc::from(&b"1"[..]));
        }
    }

    /// Sets `TX.0` and following; numbers up to 9 that the match does not set are removed.
    fn keep_captures(&mut self, link: &Link, evaluation: &Evaluation) {
        if !link.captures || evaluation.captures.is_empty() {
            return;
        }
        for number in 0..=9_usize {
            if !evaluation.captures.iter().any(|(group, _)| *group == number) {
                self.facts.tx.remove(number.to_string().as_bytes());
            }
        }
        for (group, text) in &evaluation.captures {
            self.set_tx(group.to_string().as_bytes(), text.as_slice().into());
        }
    }

    /// Sets a variable of `TX` within the budget of memory.
    pub(super) fn set_tx(&mut self, name: &[u8], value: Arc<[u8]>) {
        let budget = self.services.budget;
        self.spent.keep(name.len() + value.len(), &budget);
        self.facts.tx.set(name, value);
    }

    /// The value behind the transformations of a node, from the cache if it has been computed.
    pub(super) fn transformed(&mut self, value: &Arc<[u8]>, id: u32, node: u32) -> Arc<[u8]> {
        if node == 0 {
            return value.clone();
        }
        let slot = id as usize;
        if id > 0
            && let Some(known) = self.cache.get(slot)
            && let Some((_, cached)) = known.iter().find(|(known, _)| *known == node)
        {
            return cached.clone();
        }
        let rules = self.rules.clone();
        let Some(step) = rules.chains.node(node) else { return value.clone() };
        let before = self.transformed(value, id, step.parent);
        let budget = self.services.budget;
        let after = match step.step.apply(&before, rules.settings.unicode_map.as_deref()) {
            Some(changed) => {
                self.spent.keep(changed.len(), &budget);
                changed.into()
            }
            None => before,
        };
        if id > 0 {
            if self.cache.len() <= slot {
                self.cache.resize_with(slot + 1, Vec::new);
            }
            if let Some(known) = self.cache.get_mut(slot) {
                known.push((node, after.clone()));
            }
        }
        after
    }
}
