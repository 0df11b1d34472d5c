//! The pass over the values of a group of rules, once in a phase.

use super::Transaction;
use crate::screen::{ScreenPlace, has_bit};

/// The results of a pass.
#[derive(Debug, Default)]
pub(super) struct ScreenState {
    /// The phase of the pass; 0 before the first.
    phase: u8,
    /// Links that could match some value.
    union: Vec<u64>,
    /// Numbers of values in the cache of transformations, in ascending order, with the index of their sets.
    values: Vec<(u32, u32)>,
    /// Links that could match each value: sets of the group's number of words.
    sets: Vec<u64>,
}

impl ScreenState {
    /// Returns whether a link could match the value with this number; a value without a number could always.
    pub fn admits(&self, place: ScreenPlace, id: u32) -> bool {
        let Ok(at) = self.values.binary_search_by_key(&id, |(id, _)| *id) else { return true };
        let words = self.union.len();
        let start = self.values.get(at).map_or(0, |(_, index)| *index as usize) * words;
        self.sets.get(start..start + words).is_none_or(|set| has_bit(set, place.bit))
    }
}

impl Transaction {
    /// Returns whether a link could match any value of its targets, and makes the pass of the phase if it is missing.
    pub(super) fn screens(&mut self, place: ScreenPlace) -> bool {
        let index = place.group as usize;
        let known = self.screens.get(index).filter(|state| state.phase == self.phase);
        if let Some(state) = known {
            return has_bit(&state.union, place.bit);
        }
        let rules = self.rules.clone();
        let Some(group) = rules.screens.get(index) else { return true };
        let mut found = Vec::new();
        group.targets.iter().for_each(|target| self.collect(target, &mut found));
        let mut state = ScreenState { phase: self.phase, union: vec![0; group.words], ..ScreenState::default() };
        let mut set = vec![0; group.words];
        for value in found {
            let transformed = self.transformed(&value.value, value.id, group.node);
            self.count_step(transformed.len());
            set.fill(0);
            group.look(&transformed, &mut set);
            state.union.iter_mut().zip(&set).for_each(|(union, word)| *union |= word);
            if value.id > 0 {
                state.values.push((value.id, (state.sets.len() / group.words.max(1)) as u32));
                state.sets.extend_from_slice(&set);
            }
        }
        state.values.sort_unstable();
        let admits = has_bit(&state.union, place.bit);
        if self.screens.len() <= index {
            self.screens.resize_with(rules.screens.len(), ScreenState::default);
        }
        if let Some(slot) = self.screens.get_mut(index) {
            *slot = state;
        }
        admits
    }
}
