//! Locations by name and regular expression (nginx: `ngx_http_location_tree_node_t`).

use crate::area::{HttpPattern, HttpTemplate};
use crate::route_match::RouteMatches;
use crate::values::{LocationKind, PrefixRule};
use hashbrown::HashMap;
use std::sync::Arc;

/// The locations of a block by name. [`Tree::add`] all, then [`Tree::finish`], then search.
#[derive(Default)]
pub struct Tree {
    exact: HashMap<Vec<u8>, usize>,
    /// Lengths and last octets of the exact names, by [`name_bit`]: most paths are ruled out without a hash.
    exact_bits: u64,
    /// Exact locations `/name/` by `/name`, for redirects, and the bits of these names.
    slashed: HashMap<Vec<u8>, usize>,
    slashed_bits: u64,
    prefixes: PrefixList<usize>,
    pub(crate) regexes: Vec<RegexLocation>,
    /// Predicates and their locations, in the order of the configuration.
    pub(crate) predicates: Vec<(HttpTemplate, usize)>,
    named: HashMap<Vec<u8>, usize>,
    conditional: Option<Box<ConditionalLocations>>,
}

pub(crate) struct RegexLocation {
    /// The regular expression.
    pub pattern: Arc<HttpPattern>,
    /// Index of the location.
    pub location: usize,
    /// Its `route_match`, if any.
    pub conditions: Option<RouteMatches>,
}

/// Locations of a name that have a `route_match`, in the order of the configuration.
type Conditional = Vec<(RouteMatches, usize)>;

/// Locations with a `route_match`, but for regular expressions. Those without are considered after those of the same name.
#[derive(Default)]
struct ConditionalLocations {
    exact: HashMap<Vec<u8>, Conditional>,
    prefixes: PrefixList<Conditional>,
}

/// Sorted by name.
struct PrefixList<T>(Vec<Prefix<T>>);

impl<T> Default for PrefixList<T> {
    fn default() -> Self {
        PrefixList(Vec::new())
    }
}

struct Prefix<T> {
    name: Vec<u8>,
    location: T,
    rule: PrefixRule,
    /// Index + 1 of the longest other prefix of this name; 0: none.
    parent: usize,
}

impl<T> Prefix<T> {
    fn is_of(&self, path: &[u8]) -> bool {
        path.starts_with(&self.name)
            && (self.rule != PrefixRule::Elements
                || self.name.ends_with(b"/")
                || path.get(self.name.len()).is_none_or(|next| *next == b'/'))
    }
}

impl<T> PrefixList<T> {
    /// Returns the location of an equal name and rule of elements, or adds it.
    fn entry(&mut self, name: &[u8], rule: PrefixRule) -> Option<&mut Prefix<T>> {
        let of_elements = rule == PrefixRule::Elements;
        self.0.iter_mut().find(|p| p.name == *name && (p.rule == PrefixRule::Elements) == of_elements)
    }
    fn add(&mut self, name: &[u8], rule: PrefixRule, location: T) {
        self.0.push(Prefix { name: name.to_vec(), location, rule, parent: 0 });
    }
    /// Sorts; to be called once, after the last `add`.
    #[allow(
        clippy::indexing_slicing,
        reason = "only a configuration comes here; a candidate is an earlier entry's index + 1"
    )]
    fn finish(&mut self) {
        // Of equal names the one of elements is the more special one.
        self.0.sort_by(|a, b| {
            a.name.cmp(&b.name).then((a.rule == PrefixRule::Elements).cmp(&(b.rule == PrefixRule::Elements)))
        });
        for index in 0..self.0.len() {
            let mut candidate = index;
            // The nearest earlier entry, or one of its ancestors, is the longest prefix of this one.
            let mut parent = 0;
            while candidate > 0 {
                let earlier = &self.0[candidate - 1];
                if self.0[index].name.starts_with(&earlier.name) {
                    parent = candidate;
                    break;
                }
                candidate = earlier.parent;
            }
            self.0[index].parent = parent;
        }
    }
    /// Returns the end of the entries that sort up to the path.
    fn after(&self, path: &[u8]) -> usize {
        self.0.partition_point(|p| p.name.as_slice() <= path)
    }
    /// Returns the longest prefix of the path among the entries before `after`.
    fn longest(&self, after: usize, path: &[u8]) -> Option<&Prefix<T>> {
        let mut candidate = after;
        loop {
            let prefix = self.0.get(candidate.checked_sub(1)?)?;
            if prefix.is_of(path) {
                return Some(prefix);
            }
            candidate = prefix.parent;
        }
    }
}

/// Returns one of 64 bits, by length and last octet. Paths of one length often end differently: `/metrics`, `/a/b.css`.
#[inline]
fn name_bit(name: &[u8]) -> u64 {
    let last = name.last().copied().unwrap_or_default();
    1 << ((name.len() + usize::from(last) * 7) % 64)
}

/// Without regular expressions.
pub enum Match {
    /// No location.
    Nothing,
    /// A location that ends the search: one with an exact name.
    Final(usize),
    /// The location of the longest prefix, unless a regular expression replaces it.
    Prefix(usize),
    /// `/name`, where a location `/name/` redirects to itself.
    Slash(usize),
}

impl Tree {
    /// Fails with the index of an equally named location. `conditions`: of `route_match`; such locations may have equal names.
    pub fn add(&mut self, kind: &LocationKind, location: usize, conditions: Option<RouteMatches>) -> Result<(), usize> {
        match (kind, conditions) {
            (LocationKind::Exact(name), Some(conditions)) => {
                let all = &mut self.conditional.get_or_insert_default().exact;
                all.entry_ref(name).or_default().push((conditions, location));
                return Ok(());
            }
            (LocationKind::Prefix(name, rule), Some(conditions)) => {
                let all = &mut self.conditional.get_or_insert_default().prefixes;
                match all.entry(name, *rule) {
                    Some(entry) => entry.location.push((conditions, location)),
                    None => all.add(name, *rule, vec![(conditions, location)]),
                }
                return Ok(());
            }
            (LocationKind::Regex(pattern), conditions) => {
                self.regexes.push(RegexLocation { pattern: pattern.clone(), location, conditions });
                return Ok(());
            }
            _ => {}
        }
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
            LocationKind::Prefix(name, rule) => {
                if let Some(first) = self.prefixes.entry(name, *rule) {
                    return Err(first.location);
                }
                self.prefixes.add(name, *rule, location);
            }
            LocationKind::Regex(_) => {}
            LocationKind::Predicate(predicate, _) => self.predicates.push((predicate.clone(), location)),
        }
        Ok(())
    }
    /// Sorts the prefixes; to be called once, after the last `add`.
    pub fn finish(&mut self) {
        self.prefixes.finish();
        if let Some(conditional) = &mut self.conditional {
            conditional.prefixes.finish();
        }
    }
    /// Tells whether the block has no locations but named ones.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty()
            && self.prefixes.0.is_empty()
            && self.regexes.is_empty()
            && self.predicates.is_empty()
            && self.conditional.is_none()
    }
    /// Returns the index of a named location. `name` begins with `@`.
    pub fn named(&self, name: &[u8]) -> Option<usize> {
        self.named.get(name).copied()
    }
    /// Finds the location without regular expressions; the flag excludes them. `wants_slash`: the location redirects
    /// `/name` to `/name/`. `holds`: for locations with conditions.
    pub fn static_location(
        &self,
        wants_slash: &dyn Fn(usize) -> bool,
        path: &[u8],
        holds: &mut dyn FnMut(&RouteMatches, usize) -> bool,
    ) -> (Match, bool) {
        let bit = name_bit(path);
        if let Some(conditional) = &self.conditional
            && let Some(all) = conditional.exact.get(path)
            && let Some((_, location)) = all.iter().find(|(conditions, location)| holds(conditions, *location))
        {
            return (Match::Final(*location), false);
        }
        if self.exact_bits & bit != 0
            && let Some(location) = self.exact.get(path)
        {
            return (Match::Final(*location), false);
        }
        let after = self.prefixes.after(path);
        let longest = self.prefixes.longest(after, path);
        if let Some(conditional) = &self.conditional
            && let Some(found) = conditional.longest(path, longest.map_or(0, |prefix| prefix.name.len()), holds)
        {
            return found;
        }
        // A location named as the path itself does not redirect.
        if longest.is_none_or(|prefix| prefix.name.len() < path.len())
            && let Some(slash) = self.slash(after, bit, wants_slash, path)
        {
            return (Match::Slash(slash), false);
        }
        longest.map_or((Match::Nothing, false), |prefix| {
            (Match::Prefix(prefix.location), prefix.rule == PrefixRule::Final)
        })
    }
    /// Returns the location `/name/` that redirects `/name`, from the first entry behind the path. An exact one
    /// has precedence if either redirects. `bit`: that of the path.
    fn slash(&self, after: usize, bit: u64, wants_slash: &dyn Fn(usize) -> bool, path: &[u8]) -> Option<usize> {
        let behind = self.prefixes.0.get(after..)?.iter().take_while(|p| p.name.starts_with(path));
        let mut named = behind.filter(|p| p.name.len() == path.len() + 1 && p.name.ends_with(b"/"));
        let prefix = named.next().map(|p| p.location);
        let exact = if self.slashed_bits & bit == 0 { None } else { self.slashed.get(path).copied() };
        let redirects = [exact, prefix].into_iter().flatten().any(wants_slash);
        exact.or(prefix).filter(|_| redirects)
    }
}

impl ConditionalLocations {
    /// Returns the location of the longest prefix, of at least `least` octets, whose conditions hold.
    fn longest(
        &self,
        path: &[u8],
        least: usize,
        holds: &mut dyn FnMut(&RouteMatches, usize) -> bool,
    ) -> Option<(Match, bool)> {
        let mut after = self.prefixes.after(path);
        loop {
            let prefix = self.prefixes.longest(after, path).filter(|prefix| prefix.name.len() >= least)?;
            if let Some((_, location)) =
                prefix.location.iter().find(|(conditions, location)| holds(conditions, *location))
            {
                return Some((Match::Prefix(*location), prefix.rule == PrefixRule::Final));
            }
            after = prefix.parent;
        }
    }
}
