//! The end of a compilation: updates, nodes of transformations, screens.

use super::{Compiler, Entry};
use crate::body::xml::XmlPath;
use crate::failure::{RuleError, RuleWarning};
use crate::rule::{Rule, Step, TargetSelector};
use crate::screen::{RecentLooks, ScreenBuilder};
use crate::set::{RuleParts, RuleSet};
use crate::transform::ChainTree;
use crate::variable::Variable;
use hashbrown::HashMap;
use std::sync::Arc;

impl Compiler<'_> {
    pub(super) fn finish(mut self) -> Result<(RuleSet, Vec<RuleWarning>), RuleError> {
        if let Some(place) = self.open_chain.take() {
            let reason = "the rule ends with \"chain\", and no rule follows".to_string();
            return Err(RuleError { place, reason, suggestion: Some("remove chain, or add the next rule".into()) });
        }
        self.apply_updates();
        self.check_markers()?;
        let parent = self.parent.clone();
        let mut chains = parent.as_ref().map(|parent| parent.chains.clone()).unwrap_or_default();
        let mut xml_paths = parent.as_ref().map(|parent| parent.xml_paths.clone()).unwrap_or_default();
        let mut screens = parent.as_ref().map(|parent| parent.screens.clone()).unwrap_or_default();
        let mut uses_full_request = parent.as_ref().is_some_and(|parent| parent.uses_full_request);
        for index in 0..self.entries.len() {
            let Some(Entry::Rule(rule)) = self.entries.get(index) else { continue };
            let nodes = self.link_nodes(rule, &mut chains);
            let mut is_settled = true;
            for (link, node) in rule.links.iter().zip(&nodes) {
                is_settled &=
                    link.chain_node == *node && link.targets.iter().all(|target| is_known(target, &xml_paths));
                let targets = link.targets.iter().chain(&link.exclusions);
                uses_full_request |= targets.map(|target| target.variable).any(is_full_request);
            }
            if let Some(Entry::Rule(rule)) = self.entries.get_mut(index).filter(|_| !is_settled) {
                settle(Arc::make_mut(rule), &nodes, &mut xml_paths);
            }
        }
        if let Some(layer) = self.place_links(&chains, screens.len() as u32) {
            screens.push(Arc::new(layer));
        }
        let mut phases: [Vec<Step>; 5] = Default::default();
        let mut markers: [HashMap<Arc<str>, Vec<u32>>; 5] = Default::default();
        for entry in &self.entries {
            match entry {
                Entry::Marker(name) => {
                    for (steps, markers) in phases.iter_mut().zip(&mut markers) {
                        markers.entry(name.clone()).or_default().push(steps.len() as u32);
                        steps.push(Step::Marker);
                    }
                }
                Entry::Rule(rule) => {
                    if let Some(steps) = phases.get_mut(usize::from(rule.phase).saturating_sub(1)) {
                        steps.push(Step::Rule(rule.clone()));
                    }
                }
            }
        }
        let set = RuleSet {
            settings: self.settings,
            phases,
            defaults: self.defaults,
            chains,
            screens,
            recent_looks: RecentLooks::default(),
            markers,
            xml_paths,
            uses_full_request,
            parts: RuleParts { entries: self.entries, updates: self.updates, ids: self.ids, links: self.links },
        };
        Ok((set, self.warnings))
    }

    /// Applies the updates of the parents to rules of their own, and the updates of these texts to all rules.
    fn apply_updates(&mut self) {
        let of_parent = self.parent.as_ref().map_or(0, |parent| parent.parts.updates.len());
        let first = self.parent.as_ref().map_or(0, |parent| parent.parts.entries.len());
        let mut own = self.entries.split_off(first.min(self.entries.len()));
        self.updates.iter().take(of_parent).for_each(|update| update.apply(&mut own));
        self.entries.append(&mut own);
        self.warn_unmet_updates(of_parent);
        for update in self.updates.iter().skip(of_parent) {
            update.apply(&mut self.entries);
        }
    }

    /// The nodes of a rule's links, behind the transformations of `SecDefaultAction`.
    fn link_nodes(&self, rule: &Rule, chains: &mut ChainTree) -> Vec<u32> {
        let default = self.defaults.get(usize::from(rule.phase).saturating_sub(1));
        let nodes = rule.links.iter().map(|link| {
            let inherited = default.filter(|_| !link.ignores_default_chain);
            let inherited = inherited.map(|default| default.chain.as_slice()).unwrap_or_default();
            chains.sequence(&[inherited, &link.transformations].concat())
        });
        nodes.collect()
    }

    /// Gives places to links that have none, and returns their layer, if there are such links.
    fn place_links(&mut self, chains: &ChainTree, number: u32) -> Option<crate::screen::ScreenLayer> {
        let mut builder = ScreenBuilder::default();
        let mut taken = Vec::new();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let Entry::Rule(rule) = entry else { continue };
            if rule.links.iter().all(|link| link.has_asked_screen) {
                continue;
            }
            let links = Arc::make_mut(rule).links.iter_mut().enumerate();
            for (offset, link) in links.filter(|(_, link)| !link.has_asked_screen) {
                link.has_asked_screen = true;
                if builder.take(link) {
                    taken.push((index, offset));
                }
            }
        }
        if taken.is_empty() {
            return None;
        }
        let (layer, places) = builder.finish(chains, number);
        for ((index, offset), place) in taken.into_iter().zip(places) {
            if let Some(Entry::Rule(rule)) = self.entries.get_mut(index)
                && let Some(link) = Arc::make_mut(rule).links.get_mut(offset)
            {
                link.screen = Some(Arc::new(place));
            }
        }
        Some(layer)
    }

    /// A `skipAfter` without its marker would skip all remaining rules of the phase.
    fn check_markers(&self) -> Result<(), RuleError> {
        for (index, entry) in self.entries.iter().enumerate() {
            let Entry::Rule(rule) = entry else { continue };
            let Some(name) = &rule.skip_after else { continue };
            let later = self.entries.iter().skip(index + 1);
            let is_end = |entry: &Entry| match entry {
                Entry::Marker(marker) => marker == name,
                Entry::Rule(_) => false,
            };
            if !later.into_iter().any(is_end) {
                let reason = format!("skipAfter:{name} has no SecMarker \"{name}\" behind the rule");
                let suggestion =
                    Some(format!("add SecMarker \"{name}\"; without it all remaining rules of the phase are skipped"));
                return Err(RuleError { place: rule.place.clone(), reason, suggestion });
            }
        }
        Ok(())
    }
}

fn is_full_request(variable: Variable) -> bool {
    matches!(variable, Variable::FullRequest | Variable::FullRequestLength)
}

/// Returns whether a target's path is among those of the set, of which transactions keep the values.
fn is_known(target: &crate::rule::Target, known: &[Arc<XmlPath>]) -> bool {
    match &target.selector {
        TargetSelector::Path(path) => known.iter().any(|known| Arc::ptr_eq(known, path)),
        _ => true,
    }
}

/// Gives the links of a rule their nodes, and equal paths one object.
fn settle(rule: &mut Rule, nodes: &[u32], xml_paths: &mut Vec<Arc<XmlPath>>) {
    for (link, node) in rule.links.iter_mut().zip(nodes) {
        if link.chain_node != *node {
            link.chain_node = *node;
            (link.screen, link.has_asked_screen) = (None, false);
        }
        for target in &mut link.targets {
            if let TargetSelector::Path(path) = &mut target.selector {
                match xml_paths.iter().find(|known| *known == path) {
                    Some(known) => *path = known.clone(),
                    None => xml_paths.push(path.clone()),
                }
            }
        }
    }
}
