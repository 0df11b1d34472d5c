//! Looks at values: which links could match them? Each value is looked at once in a transaction.

use super::Transaction;
use super::resolve::{FoundValue, SelectedNames};
use crate::screen::{
    DeadLinks, EntryStep, QUIET_BYTES_MIN, RecentLooks, ScreenEntry, ScreenFamily, ScreenLayer, ScreenPlace, has_bit,
    join_bits,
};
use crate::set::RuleSet;
use crate::transform::{Transformation, UnicodeMap};
use crate::variable::Variable;
use std::sync::Arc;

/// The results of looks for one layer of rules.
#[derive(Debug, Default)]
pub(super) struct LayerLooks {
    /// The start of each value's set in `sets`, behind 1, by the value's number in the cache of transformations; 0 for
    /// values without a look.
    starts: Vec<u32>,
    /// Links that could match, by value.
    sets: Vec<u64>,
    /// The phase for which the values of an entry were looked at, and the links that could match some value.
    unions: Vec<(u8, Vec<u64>)>,
    /// By family.
    dead: Vec<DeadLinks>,
}

impl LayerLooks {
    /// Returns whether a link could match the value with this number; one without a look could always.
    fn admits(&self, id: u32, bit: u32) -> bool {
        let start = self.starts.get(id as usize).copied().unwrap_or(0) as usize;
        start == 0 || self.sets.get(start - 1..).is_none_or(|set| has_bit(set, bit))
    }

    /// Keeps a set; one that equals the last set is kept once.
    fn keep(&mut self, id: u32, set: &[u64]) {
        let slot = id as usize;
        if self.starts.len() <= slot {
            self.starts.resize(slot + 1, 0);
        }
        if !self.sets.ends_with(set) {
            self.sets.extend_from_slice(set);
        }
        let start = self.sets.len() - set.len() + 1;
        if let Some(held) = self.starts.get_mut(slot) {
            *held = u32::try_from(start).unwrap_or(0);
        }
    }

    /// Frees what only the phase that has ended needed; results for values that do not change stay.
    pub fn release_spare(&mut self) {
        (self.unions, self.dead) = (Vec::new(), Vec::new());
        self.sets.shrink_to_fit();
        self.starts.shrink_to_fit();
    }

    fn set_of(&self, id: u32, words: usize) -> Option<&[u64]> {
        let start = (self.starts.get(id as usize).copied()? as usize).checked_sub(1)?;
        self.sets.get(start..start + words)
    }
}

/// The values that a link is evaluated with: those that it could match.
#[derive(Clone, Copy)]
pub(super) struct Admission<'t>(Option<(&'t LayerLooks, u32)>);

impl Admission<'_> {
    /// Lets every value pass.
    pub const ALL: Admission<'static> = Admission(None);

    /// Returns whether the value with this number is evaluated; 0 is one without a number.
    pub fn takes(self, id: u32) -> bool {
        self.0.is_none_or(|(looks, bit)| looks.admits(id, bit))
    }
}

impl Transaction {
    /// Evaluates every rule with every value of its targets, also if it could not match: for tests that compare. Call it
    /// before the first phase.
    pub fn evaluate_all_values(&mut self) {
        self.evaluates_all = true;
    }

    /// The values that a link with this place could match. Call it behind [`Transaction::could_match`].
    pub(super) fn admission(&self, place: Option<&ScreenPlace>) -> Admission<'_> {
        let place = place.filter(|_| !self.evaluates_all);
        Admission(place.and_then(|place| Some((self.looks.get(place.layer as usize)?, place.bit))))
    }

    /// Returns whether a link could match any value of its targets; looks at the values that have not been looked at.
    pub(super) fn could_match(&mut self, place: &ScreenPlace) -> bool {
        if self.evaluates_all {
            return true;
        }
        let looks = self.looks.get(place.layer as usize);
        let union_of = |number: &u32| {
            let union = looks.and_then(|looks| looks.unions.get(*number as usize));
            union.filter(|(phase, _)| *phase == self.phase).map(|(_, union)| union)
        };
        let mut known = place.entries.iter().flatten().map(union_of);
        if let Some(has) = known.try_fold(false, |has, union| Some(has | has_bit(union?, place.bit))) {
            return has || !place.is_steady;
        }
        let rules = self.rules.clone();
        let Some(layer) = rules.screens.get(place.layer as usize) else { return true };
        let mut could = !place.is_steady;
        for number in place.entries.iter().flatten() {
            let Some(entry) = layer.entries.get(*number as usize) else { return true };
            could |= self.union_has(place, (&rules, layer, entry), *number as usize);
        }
        could
    }

    fn union_has(
        &mut self,
        place: &ScreenPlace,
        (rules, layer, entry): (&RuleSet, &ScreenLayer, &ScreenEntry),
        number: usize,
    ) -> bool {
        let looks = self.looks.get(place.layer as usize);
        let known = looks.and_then(|looks| looks.unions.get(number)).filter(|(phase, _)| *phase == self.phase);
        if let Some((_, union)) = known {
            return has_bit(union, place.bit);
        }
        let mut found = Vec::new();
        match entry.variable {
            Variable::Xml => {
                let values = self.facts.xml.iter().flatten();
                let value = |(value, id): &(Arc<[u8]>, u32)| FoundValue::unnamed(value.clone(), *id);
                found.extend(values.map(value));
            }
            variable => self.collect_wanted(variable, &SelectedNames::All, Admission::ALL, &mut found),
        }
        if self.looks.len() <= place.layer as usize {
            self.looks.resize_with(place.layer as usize + 1, LayerLooks::default);
        }
        // The looks of a layer leave the transaction while its values are transformed.
        let mut looks = self.looks.get_mut(place.layer as usize).map(std::mem::take).unwrap_or_default();
        let mut union = Vec::new();
        if let Some(family) = layer.families.get(entry.family as usize) {
            union.resize(family.words, 0);
            looks.dead.resize_with(layer.families.len(), DeadLinks::default);
            let mut set = vec![0; family.words];
            let mut forms = ValueForms::default();
            let before = looks.sets.len();
            for value in found.iter().filter(|value| value.id > 0) {
                match looks.set_of(value.id, family.words) {
                    Some(known) => join_bits(&mut union, known),
                    None => {
                        let recent = Some(&rules.recent_looks)
                            .filter(|_| RecentLooks::suits(entry.variable, value.element.as_deref()));
                        let at = (place.layer, number as u32);
                        if recent.is_some_and(|recent| recent.find(at, &value.value, &mut set)) {
                            self.count_step(value.value.len());
                        } else {
                            if let Some(dead) = looks.dead.get_mut(entry.family as usize) {
                                self.look_at(&value.value, (family, entry), &mut forms, dead, &mut set);
                            }
                            // A look that the budget ended is not whole.
                            if let Some(recent) = recent.filter(|_| self.spent.exhausted.is_none()) {
                                recent.keep(at, &value.value, &set);
                            }
                        }
                        if self.spent.exhausted.is_some() {
                            break;
                        }
                        looks.keep(value.id, &set);
                        join_bits(&mut union, &set);
                    }
                }
            }
            let budget = self.services.budget;
            self.spent.keep((looks.sets.len() - before) * size_of::<u64>() + found.len() * size_of::<u32>(), &budget);
        }
        let has = has_bit(&union, place.bit) || self.spent.exhausted.is_some();
        if looks.unions.len() <= number {
            looks.unions.resize_with(layer.entries.len(), Default::default);
        }
        if let Some(slot) = looks.unions.get_mut(number) {
            *slot = (self.phase, union);
        }
        if let Some(slot) = self.looks.get_mut(place.layer as usize) {
            *slot = looks;
        }
        has
    }

    /// Writes the links that could match a value to `set`; not all of them if the budget ends meanwhile.
    fn look_at(
        &mut self,
        value: &[u8],
        (family, entry): (&ScreenFamily, &ScreenEntry),
        forms: &mut ValueForms,
        dead: &mut DeadLinks,
        set: &mut [u64],
    ) {
        let map = self.rules.settings.unicode_map.clone();
        set.fill(0);
        forms.begin(value, family);
        let signature = forms.signature_of(0);
        let is_quiet = value.len() >= QUIET_BYTES_MIN && entry.touched & signature == 0;
        let chosen = if is_quiet { &entry.quiet_links } else { &entry.root_links };
        add_links(set, forms.look(0, family, dead), chosen);
        self.count_look(forms);
        for step in &entry.steps {
            if is_quiet && !step.is_restless {
                forms.skip();
                continue;
            }
            let form = forms.step(step, family, map.as_deref());
            if let Some(links) = &step.links {
                add_links(set, forms.look(form, family, dead), links);
            }
            if forms.pending > 0 {
                self.count_look(forms);
                if self.spent.exhausted.is_some() {
                    return;
                }
            }
        }
    }

    /// Counts the bytes that were looked at since the last call, and the memory of the forms.
    fn count_look(&mut self, forms: &mut ValueForms) {
        self.count_step(std::mem::take(&mut forms.pending));
        let budget = self.services.budget;
        self.spent.hold(forms.held_bytes(), &budget);
    }
}

/// The forms of a value behind transformations, kept to reuse their memory.
#[derive(Debug, Default)]
struct ValueForms {
    forms: Vec<ValueForm>,
    /// Forms in use.
    count: usize,
    /// The form behind each step so far.
    by_step: Vec<u32>,
    /// Results of steps: the form before, the step, the form behind it.
    results: Vec<(u32, Transformation, u32)>,
    /// Bytes that were made or looked at and are not yet counted.
    pending: usize,
}

#[derive(Debug, Default)]
struct ValueForm {
    bytes: Vec<u8>,
    signature: u64,
    /// The form that differs from this one in case alone and is looked at in its place.
    alike: Option<u32>,
    is_looked_at: bool,
    links: Vec<u64>,
}

impl ValueForms {
    fn begin(&mut self, value: &[u8], family: &ScreenFamily) {
        self.count = 0;
        self.by_step.clear();
        self.results.clear();
        self.add(|bytes| bytes.extend_from_slice(value), None, family);
    }

    fn add(&mut self, fill: impl FnOnce(&mut Vec<u8>), alike: Option<u32>, family: &ScreenFamily) -> u32 {
        if self.forms.len() <= self.count {
            self.forms.push(ValueForm::default());
        }
        if let Some(form) = self.forms.get_mut(self.count) {
            form.bytes.clear();
            fill(&mut form.bytes);
            form.signature = family.signature(&form.bytes);
            form.alike = alike;
            form.is_looked_at = false;
            self.pending += form.bytes.len();
        }
        self.count += 1;
        self.count as u32 - 1
    }

    fn signature_of(&self, form: u32) -> u64 {
        self.forms.get(form as usize).map_or(u64::MAX, |form| form.signature)
    }

    fn held_bytes(&self) -> usize {
        self.forms.iter().take(self.count).map(|form| form.bytes.len()).sum()
    }

    /// Leaves out a step on which no other one depends.
    fn skip(&mut self) {
        self.by_step.push(0);
    }

    /// Makes the form behind the next step, and returns its number; 0 is the value itself.
    fn step(&mut self, step: &EntryStep, family: &ScreenFamily, map: Option<&UnicodeMap>) -> u32 {
        let before = step.parent.map_or(0, |parent| self.by_step.get(parent as usize).copied().unwrap_or(0));
        let Some(form) = self.forms.get(before as usize) else { return 0 };
        // These make letters lower case besides.
        let is_lowering = matches!(step.step, Transformation::Lowercase | Transformation::CmdLine);
        let is_untouched = |touched: u64| {
            form.bytes.len() >= QUIET_BYTES_MIN
                && touched & form.signature == 0
                && step.step != Transformation::Uppercase
                && !(is_lowering && form.bytes.iter().any(u8::is_ascii_uppercase))
        };
        let known = self.results.iter().find(|(known, made, _)| *known == before && *made == step.step);
        let after = match known {
            Some((_, _, after)) => *after,
            None if step.touched.is_some_and(is_untouched) => before,
            None => {
                let alike = form.alike.unwrap_or(before);
                let after = match step.step.apply(&form.bytes, map) {
                    None => before,
                    Some(changed) => {
                        self.add(|bytes| *bytes = changed, (step.touched == Some(0)).then_some(alike), family)
                    }
                };
                self.results.push((before, step.step, after));
                after
            }
        };
        self.by_step.push(after);
        after
    }

    /// The links that could match a form.
    fn look(&mut self, form: u32, family: &ScreenFamily, dead: &mut DeadLinks) -> &[u64] {
        let alike = self.forms.get(form as usize).and_then(|form| form.alike).unwrap_or(form);
        let Some(form) = self.forms.get_mut(alike as usize) else { return &[] };
        if !form.is_looked_at {
            form.is_looked_at = true;
            self.pending += form.bytes.len();
            form.links.resize(family.words, 0);
            family.look(&form.bytes, form.signature, dead, &mut form.links);
        }
        &form.links
    }
}

/// Adds those of `links` that are in `chosen`.
fn add_links(set: &mut [u64], links: &[u64], chosen: &[u64]) {
    set.iter_mut().zip(links.iter().zip(chosen)).for_each(|(word, (links, chosen))| *word |= links & chosen);
}

#[cfg(test)]
#[path = "screening_tests.rs"]
mod tests;
