//! The screens of rules that are compiled together.

use super::family::{FamilyDraft, add_bit};
use super::{EntryStep, ScreenEntry, ScreenFamily, ScreenLayer, ScreenPlace, is_steady, whole_variable};
use crate::operator::{Operator, Requirement};
use crate::rule::{Link, TargetSelector};
use crate::transform::ChainTree;
use crate::variable::Variable;
use hashbrown::HashMap;

/// Texts of a layer at most; the requirements of rules beyond are their bytes.
const TEXTS_MAX: usize = 20_000;

/// The condition of a link.
enum LinkNeed {
    Value(Requirement),
    /// `@detectSQLi`
    Sqli,
}

/// A link in the making: its variables without double ones, the node of its transformations, and its condition.
struct LinkDraft {
    variables: Vec<Variable>,
    node: u32,
    is_multi: bool,
    need: LinkNeed,
    /// Variables by target, `None` for one that counts.
    targets: Vec<Option<Variable>>,
    is_steady: bool,
}

/// Collects links while rules are compiled.
#[derive(Default)]
pub(crate) struct ScreenBuilder {
    links: Vec<LinkDraft>,
    texts: usize,
}

impl ScreenBuilder {
    /// Takes a link in, which has its targets and its node; returns whether it gets a place. Without one it is always
    /// evaluated.
    pub fn take(&mut self, link: &Link) -> bool {
        self.draft_of(link).map(|draft| self.links.push(draft)).is_some()
    }

    fn draft_of(&mut self, link: &Link) -> Option<LinkDraft> {
        let condition = link.condition.as_ref().filter(|condition| !condition.negated)?;
        let need = match &condition.operator {
            Operator::DetectSqli => LinkNeed::Sqli,
            operator => {
                let mut requirement = operator.requirement(&condition.parameter)?;
                if self.texts + requirement.texts.len() > TEXTS_MAX {
                    requirement.texts.clear();
                }
                self.texts += requirement.texts.len();
                if requirement.is_empty() {
                    return None;
                }
                LinkNeed::Value(requirement)
            }
        };
        let targets = link.targets.iter().map(|target| (!target.counts).then(|| whole_variable(target.variable)));
        let targets: Vec<Option<Variable>> = targets.collect();
        let mut variables: Vec<Variable> = targets.iter().flatten().copied().collect();
        variables.sort_unstable();
        variables.dedup();
        if variables.is_empty() {
            return None;
        }
        let is_steady = link.targets.iter().all(|target| {
            !target.counts && is_steady(target.variable) && !matches!(target.selector, TargetSelector::Macro(_))
        });
        let (node, is_multi) = (link.chain_node, link.multi_match);
        Some(LinkDraft { variables, node, is_multi, need, targets, is_steady })
    }

    /// Makes the layer with this index, and the places of links in the order in which they were taken.
    pub fn finish(self, chains: &ChainTree, layer: u32) -> (ScreenLayer, Vec<ScreenPlace>) {
        let families = families_of(&self.links);
        let mut drafts: Vec<FamilyDraft> = Vec::new();
        // Entries by variable, and links by node of each.
        let mut entries: Vec<(Variable, u32, Vec<(u32, Vec<u32>)>)> = Vec::new();
        let mut places = Vec::with_capacity(self.links.len());
        for link in self.links {
            let Some(family) = link.variables.first().and_then(|variable| families.get(variable)).copied() else {
                continue;
            };
            while drafts.len() <= family as usize {
                drafts.push(FamilyDraft::default());
            }
            let Some(draft) = drafts.get_mut(family as usize) else { continue };
            let bit = draft.links;
            draft.links += 1;
            match link.need {
                LinkNeed::Sqli => draft.sqli.push(bit),
                LinkNeed::Value(requirement) => {
                    for set in requirement.bytes {
                        draft.clauses.entry(set).or_default().push(bit);
                    }
                    if !requirement.texts.is_empty() {
                        draft.with_texts.push(bit);
                    }
                    for text in requirement.texts {
                        let owners = draft.texts.entry(text).or_default();
                        if owners.last() != Some(&bit) {
                            owners.push(bit);
                        }
                    }
                }
            }
            // A link with "multiMatch" sees the value behind each of its transformations.
            let nodes: Vec<u32> = match link.is_multi {
                true => chains.path_of(link.node).chain([0]).collect(),
                false => vec![link.node],
            };
            for variable in &link.variables {
                let known = entries.iter().position(|(known, ..)| known == variable);
                let index = known.unwrap_or_else(|| {
                    entries.push((*variable, family, Vec::new()));
                    entries.len() - 1
                });
                let Some((_, _, by_node)) = entries.get_mut(index) else { continue };
                for node in &nodes {
                    match by_node.iter_mut().find(|(known, _)| known == node) {
                        Some((_, links)) => links.push(bit),
                        None => by_node.push((*node, vec![bit])),
                    }
                }
            }
            let number = |variable: &Variable| entries.iter().position(|(known, ..)| known == variable);
            let numbers = link.targets.iter().map(|target| target.as_ref().and_then(number));
            let entries = numbers.map(|number| number.and_then(|number| u32::try_from(number).ok())).collect();
            places.push(ScreenPlace { layer, bit, entries, is_steady: link.is_steady });
        }
        let touched = |node: u32| chains.touched_bytes(node);
        for (_, family, by_node) in &entries {
            if let Some(draft) = drafts.get_mut(*family as usize) {
                for set in by_node.iter().filter_map(|(node, _)| touched(*node)) {
                    if !set.is_empty() && !draft.touched.contains(&set) {
                        draft.touched.push(set);
                    }
                }
            }
        }
        let families: Vec<ScreenFamily> = drafts.into_iter().map(ScreenFamily::new).collect();
        let entries = entries.into_iter().filter_map(|(variable, family, by_node)| {
            let made = families.get(family as usize)?;
            Some(make_entry((variable, family), made, &by_node, chains))
        });
        (ScreenLayer { entries: entries.collect(), families }, places)
    }
}

fn make_entry(
    (variable, number): (Variable, u32),
    family: &ScreenFamily,
    by_node: &[(u32, Vec<u32>)],
    chains: &ChainTree,
) -> ScreenEntry {
    let empty = || -> Box<[u64]> { vec![0; family.words].into() };
    let (mut touched, mut quiet_links, mut root_links) = (0, empty(), empty());
    let mut nodes: Vec<u32> = by_node.iter().flat_map(|(node, _)| chains.path_of(*node)).collect();
    // A node has a higher number than the one before it.
    nodes.sort_unstable();
    nodes.dedup();
    let index_of = |node: u32| nodes.binary_search(&node).ok();
    let mut steps: Vec<EntryStep> = Vec::with_capacity(nodes.len());
    for node in nodes.iter().filter_map(|node| chains.node(*node)) {
        steps.push(EntryStep {
            parent: index_of(node.parent).and_then(|index| u32::try_from(index).ok()),
            step: node.step,
            touched: node.step.touched_bytes().map(|set| family.signature_of(set)),
            is_restless: false,
            links: None,
        });
    }
    for (node, links) in by_node {
        let mut set = empty();
        links.iter().for_each(|bit| add_bit(&mut set, *bit));
        match chains.touched_bytes(*node) {
            Some(bytes) => {
                touched |= family.signature_of(bytes);
                super::join_bits(&mut quiet_links, &set);
            }
            None => {
                for index in chains.path_of(*node).filter_map(index_of) {
                    if let Some(step) = steps.get_mut(index) {
                        step.is_restless = true;
                    }
                }
            }
        }
        match index_of(*node).and_then(|index| steps.get_mut(index)) {
            Some(step) => step.links = Some(set),
            None => root_links = set,
        }
    }
    ScreenEntry { variable, family: number, touched, quiet_links, root_links, steps }
}

/// Numbers the families: variables of one link are in one.
fn families_of(links: &[LinkDraft]) -> HashMap<Variable, u32> {
    let mut groups: Vec<Vec<Variable>> = Vec::new();
    for link in links {
        let mut joined = link.variables.clone();
        groups.retain(|group| {
            let meets = group.iter().any(|variable| link.variables.contains(variable));
            if meets {
                joined.extend(group);
            }
            !meets
        });
        joined.sort_unstable();
        joined.dedup();
        groups.push(joined);
    }
    let numbered = groups.into_iter().zip(0..);
    numbered.flat_map(|(group, number)| group.into_iter().map(move |variable| (variable, number))).collect()
}
