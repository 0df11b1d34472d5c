//! Locations by name and regular expression (nginx: `ngx_http_location_tree_node_t`).

use crate::session::Pattern;
use crate::values::LocationKind;
use hashbrown::HashMap;
use std::sync::Arc;

#[derive(Default)]
pub struct Tree {
    exact: HashMap<Vec<u8>, usize>,
    prefixes: Vec<Prefix>,
    pub(crate) regexes: Vec<(Arc<Pattern>, usize)>,
    named: HashMap<Vec<u8>, usize>,
}

struct Prefix {
    name: Vec<u8>,
    location: usize,
    /// `^~`
    final_: bool,
    /// Index + 1 of the longest other prefix of this name; 0: none.
    parent: usize,
}

/// Without regular expressions.
pub enum Match {
    Nothing,
    Final(usize),
    Prefix(usize),
    /// `/name`, where a location `/name/` redirects to itself.
    Slash(usize),
}

impl Tree {
    /// Fails with the index of an equally named location.
    pub fn add(&mut self, kind: &LocationKind, location: usize) -> Result<(), usize> {
        match kind {
            LocationKind::Exact(name) => {
                if let Some(first) = self.exact.insert(name.clone(), location) {
                    return Err(first);
                }
            }
            LocationKind::Named(name) => {
                if let Some(first) = self.named.insert(name.clone(), location) {
                    return Err(first);
                }
            }
            LocationKind::Prefix(name, final_) => {
                if let Some(first) = self.prefixes.iter().find(|p| p.name == *name) {
                    return Err(first.location);
                }
                self.prefixes.push(Prefix { name: name.clone(), location, final_: *final_, parent: 0 });
            }
            LocationKind::Regex(pattern) => self.regexes.push((pattern.clone(), location)),
        }
        Ok(())
    }
    /// Sorts the prefixes; to be called once, after the last `add`.
    #[allow(
        clippy::indexing_slicing,
        reason = "only a configuration comes here; a candidate is an earlier entry's index + 1"
    )]
    pub fn finish(&mut self) {
        self.prefixes.sort_by(|a, b| a.name.cmp(&b.name));
        for index in 0..self.prefixes.len() {
            let mut candidate = index;
            // The nearest earlier entry, or one of its ancestors, is the longest prefix of this one.
            let mut parent = 0;
            while candidate > 0 {
                let earlier = &self.prefixes[candidate - 1];
                if self.prefixes[index].name.starts_with(&earlier.name) {
                    parent = candidate;
                    break;
                }
                candidate = earlier.parent;
            }
            self.prefixes[index].parent = parent;
        }
    }
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefixes.is_empty() && self.regexes.is_empty()
    }
    pub fn named(&self, name: &[u8]) -> Option<usize> {
        self.named.get(name).copied()
    }
    /// Finds the location without regular expressions; the flag excludes them. `wants_slash`: the location redirects
    /// `/name` to `/name/`.
    pub fn static_location(&self, wants_slash: &dyn Fn(usize) -> bool, path: &[u8]) -> (Match, bool) {
        if !self.exact.is_empty()
            && let Some(location) = self.exact.get(path)
        {
            return (Match::Final(*location), false);
        }
        let after = self.prefixes.partition_point(|p| p.name.as_slice() <= path);
        let mut candidate = after;
        while let Some(prefix) = candidate.checked_sub(1).and_then(|index| self.prefixes.get(index)) {
            if path.starts_with(&prefix.name) {
                return (Match::Prefix(prefix.location), prefix.final_);
            }
            candidate = prefix.parent;
        }
        if let Some(slash) = self.wants_slash(wants_slash, path) {
            return (Match::Slash(slash), false);
        }
        (Match::Nothing, false)
    }
    /// Returns the location `/name/` that redirects `/name`, unless a location is named `/name`.
    pub fn wants_slash(&self, wants_slash: &dyn Fn(usize) -> bool, path: &[u8]) -> Option<usize> {
        let after = self.prefixes.partition_point(|p| p.name.as_slice() <= path);
        self.prefixes
            .get(after..)?
            .iter()
            .take_while(|p| p.name.starts_with(path))
            .find(|p| p.name.len() == path.len() + 1 && p.name.ends_with(b"/"))
            .filter(|p| wants_slash(p.location))
            .map(|p| p.location)
    }
}
