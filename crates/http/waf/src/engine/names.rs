//! Answers of DNS for `@rbl`: the evaluation stops at a link without them and goes on with them.

use super::evaluate::LinkMatch;
use super::resolve::FoundValue;
use super::{Transaction, Verdict};
use crate::operator::{BlockList, Evaluation};
use crate::rule::Link;
use crate::transform::each_change;
use std::net::IpAddr;

/// Names that a transaction asks for. Beyond them the budget has ended.
pub const NAMES_MAX: usize = 32;

/// The place in a phase where the evaluation goes on.
pub(super) struct PausedPhase {
    pub step: usize,
    pub link: usize,
    /// The match of the link before.
    pub last: Option<LinkMatch>,
}

/// The names of a transaction.
#[derive(Default)]
pub(super) struct NameLookups {
    /// Names with their first address; `None` for a name that is not listed or that could not be resolved.
    answers: Vec<(String, Option<IpAddr>)>,
    /// Names that the paused link waits for.
    wanted: Vec<String>,
    pub paused: Option<PausedPhase>,
}

impl NameLookups {
    /// Returns whether a link waits.
    pub fn is_waiting(&self) -> bool {
        !self.wanted.is_empty()
    }
    fn answer(&self, name: &str) -> Option<&Option<IpAddr>> {
        self.answers.iter().find(|(known, _)| known == name).map(|(_, answer)| answer)
    }
}

impl Transaction {
    /// The names that a phase waits for; empty if the phase has ended. Call [`Transaction::answer_name`] for each of them and
    /// [`Transaction::resume`], before the next phase. Only phases 1 and 2 wait, and only with
    /// [`crate::Services::asks_names`].
    pub fn wanted_names(&self) -> &[String] {
        &self.names.wanted
    }

    /// Hands in the first address of a name, or `None` for a name without one.
    pub fn answer_name(&mut self, name: &str, answer: Option<IpAddr>) {
        if self.names.answer(name).is_none() && self.names.answers.len() < NAMES_MAX {
            self.names.answers.push((name.to_string(), answer));
        }
    }

    /// Goes on with the phase that waits. Names without an answer are not listed. Returns the verdict of the phase, which may
    /// wait again.
    pub fn resume(&mut self) -> Verdict {
        for name in std::mem::take(&mut self.names.wanted) {
            self.answer_name(&name, None);
        }
        match self.names.paused.take() {
            Some(paused) => self.run_steps(self.phase, Some(paused)),
            None => self.verdict.clone(),
        }
    }

    /// Notes the names of a link's values that have no answer yet; returns whether there are any.
    pub(super) fn want_names(&mut self, list: &BlockList, link: &Link, values: &[(usize, FoundValue)]) -> bool {
        if !self.services.asks_names || self.phase > 2 {
            return false;
        }
        let rules = self.rules.clone();
        let mut wanted: Vec<String> = Vec::new();
        let key = rules.settings.block_list_key.as_deref();
        for (_, found) in values {
            let mut changes = Vec::new();
            if link.multi_match {
                let map = rules.settings.unicode_map.as_deref();
                let all = each_change(&rules.chains, link.chain_node, &found.value, map);
                changes.extend(all.into_iter().map(|(value, _)| value));
            } else {
                changes.push(self.transformed(&found.value, found.id, link.chain_node));
            }
            for value in changes {
                let Some(name) = list.name_of(&value, key) else { continue };
                if self.names.answer(&name).is_some() || wanted.contains(&name) {
                    continue;
                }
                if self.names.answers.len() + wanted.len() >= NAMES_MAX {
                    self.spent.exhaust_names();
                    return false;
                }
                wanted.push(name);
            }
        }
        self.names.wanted = wanted;
        self.names.is_waiting()
    }

    /// Evaluates `@rbl` for a value with the answers that are there. `target` is the variable's name.
    pub(super) fn evaluate_list(&self, list: &BlockList, value: &[u8], target: &str) -> Evaluation {
        let key = self.rules.settings.block_list_key.as_deref();
        let Some(name) = list.name_of(value, key) else { return Evaluation::default() };
        match self.names.answer(&name) {
            Some(Some(answer)) => {
                let text = list.finding(&name, target, *answer).into_bytes();
                Evaluation { matches: true, captures: vec![(0, text)], ..Evaluation::default() }
            }
            _ => Evaluation::default(),
        }
    }
}
