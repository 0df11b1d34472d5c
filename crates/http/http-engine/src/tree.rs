//! Locations by name and regular expression (nginx: `ngx_http_location_tree_node_t`).

use crate::area::{Pattern, Template};
use crate::values::LocationKind;
use hashbrown::HashMap;
use std::sync::Arc;

#[derive(Default)]
pub struct Tree {
    exact: HashMap<Vec<u8>, usize>,
    /// Lengths and last octets of the exact names, by [`name_bit`]: most paths are ruled out without a hash.
    exact_bits: u64,
    /// Exact locations `/name/` by `/name`, for redirects, and the bits of these names.
    slashed: HashMap<Vec<u8>, usize>,
    slashed_bits: u64,
    prefixes: Vec<Prefix>,
    pub(crate) regexes: Vec<(Arc<Pattern>, usize)>,
    /// Predicates and their locations, in the order of the configuration.
    pub(crate) predicates: Vec<(Template, usize)>,
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

/// Returns one of 64 bits, by length and last octet. Paths of one length often end differently: `/metrics`, `/a/b.css`.
#[inline]
fn name_bit(name: &[u8]) -> u64 {
    let last = name.last().copied().unwrap_or_default();
    1 << ((name.len() + usize::from(last) * 7) % 64)
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
                self.exact_bits |= name_bit(name);
                if let Some(bare) = name.strip_suffix(b"/") {
                    self.slashed.insert(bare.to_vec(), location);
                    self.slashed_bits |= name_bit(bare);
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
            LocationKind::Predicate(predicate, _) => self.predicates.push((predicate.clone(), location)),
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
        self.exact.is_empty() && self.prefixes.is_empty() && self.regexes.is_empty() && self.predicates.is_empty()
    }
    pub fn named(&self, name: &[u8]) -> Option<usize> {
        self.named.get(name).copied()
    }
    /// Finds the location without regular expressions; the flag excludes them. `wants_slash`: the location redirects
    /// `/name` to `/name/`.
    pub fn static_location(&self, wants_slash: &dyn Fn(usize) -> bool, path: &[u8]) -> (Match, bool) {
        let bit = name_bit(path);
        if self.exact_bits & bit != 0
            && let Some(location) = self.exact.get(path)
        {
            return (Match::Final(*location), false);
        }
        let after = self.prefixes.partition_point(|p| p.name.as_slice() <= path);
        let longest = self.longest_prefix(after, path);
        // A location named as the path itself does not redirect.
        if longest.is_none_or(|prefix| prefix.name.len() < path.len())
            && let Some(slash) = self.slash(after, bit, wants_slash, path)
        {
            return (Match::Slash(slash), false);
        }
        longest.map_or((Match::Nothing, false), |prefix| (Match::Prefix(prefix.location), prefix.final_))
    }
    /// Returns the longest prefix of the path among the entries before `after`, the end of those that sort up to the path.
    fn longest_prefix(&self, after: usize, path: &[u8]) -> Option<&Prefix> {
        let mut candidate = after;
        loop {
            let prefix = self.prefixes.get(candidate.checked_sub(1)?)?;
            if path.starts_with(&prefix.name) {
                return Some(prefix);
            }
            candidate = prefix.parent;
        }
    }
    /// Returns the location `/name/` that redirects `/name`, from the first entry behind the path. An exact one
    /// has precedence if either redirects. `bit`: that of the path.
    fn slash(&self, after: usize, bit: u64, wants_slash: &dyn Fn(usize) -> bool, path: &[u8]) -> Option<usize> {
        let behind = self.prefixes.get(after..)?.iter().take_while(|p| p.name.starts_with(path));
        let mut named = behind.filter(|p| p.name.len() == path.len() + 1 && p.name.ends_with(b"/"));
        let prefix = named.next().map(|p| p.location);
        let exact = if self.slashed_bits & bit == 0 { None } else { self.slashed.get(path).copied() };
        let redirects = [exact, prefix].into_iter().flatten().any(wants_slash);
        exact.or(prefix).filter(|_| redirects)
    }
}
