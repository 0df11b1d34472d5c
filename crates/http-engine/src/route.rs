//! Which server, which location: nginx's precedence, decided on the canonical path.

use crate::path::CanonicalPath;
use crate::plan::{HttpPlan, Server};
use crate::regex::{MatchFailed, Pattern};
use crate::request::Request;
use crate::trace::StepKind;
use crate::values::LocationKind;
use hashbrown::HashMap;
use std::sync::Arc;

pub type Names = session_engine::names::Names<Request>;

/// The locations of a server, or inside a location.
#[derive(Default)]
pub struct Tree {
    exact: HashMap<Vec<u8>, usize>,
    /// Sorted by name.
    prefixes: Vec<Prefix>,
    regexes: Vec<(Arc<Pattern>, usize)>,
    named: HashMap<Vec<u8>, usize>,
}

struct Prefix {
    name: Vec<u8>,
    location: usize,
    /// `^~`
    final_: bool,
    /// Index + 1 of the longest other prefix that this one starts with.
    parent: usize,
}

enum Match {
    Nothing,
    /// Decided: no regular expression is looked at.
    Final(usize),
    /// The longest prefix so far.
    Prefix(usize),
    /// `/name` where `/name/` is a location that wants its slash.
    Slash(usize),
}

impl Tree {
    /// # Errors
    /// A duplicate: the location that has the name.
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
    /// Sorts the prefixes; call it once, after the last `add`.
    #[allow(
        clippy::indexing_slicing,
        reason = "only a configuration comes here; a candidate is an earlier entry's index + 1"
    )]
    pub fn finish(&mut self) {
        self.prefixes.sort_by(|a, b| a.name.cmp(&b.name));
        for index in 0..self.prefixes.len() {
            let mut candidate = index;
            // The nearest earlier entry, or one of its own ancestors, is the longest that this one starts with.
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
    fn static_location(&self, plan: &HttpPlan, path: &CanonicalPath) -> (Match, bool) {
        if !self.exact.is_empty()
            && let Some(location) = self.exact.get(&path[..])
        {
            return (Match::Final(*location), false);
        }
        let after = self.prefixes.partition_point(|p| p.name.as_slice() <= &path[..]);
        let mut candidate = after;
        while let Some(prefix) = candidate.checked_sub(1).and_then(|index| self.prefixes.get(index)) {
            if path.starts_with(&prefix.name) {
                return (Match::Prefix(prefix.location), prefix.final_);
            }
            candidate = prefix.parent;
        }
        if let Some(slash) = self.wants_slash(plan, path) {
            return (Match::Slash(slash), false);
        }
        (Match::Nothing, false)
    }
    /// `/name` for a location `/name/` that wants its slash, when no other location is that very name.
    fn wants_slash(&self, plan: &HttpPlan, path: &[u8]) -> Option<usize> {
        let after = self.prefixes.partition_point(|p| p.name.as_slice() <= path);
        self.prefixes
            .get(after..)?
            .iter()
            .take_while(|p| p.name.starts_with(path))
            .find(|p| p.name.len() == path.len() + 1 && p.name.ends_with(b"/"))
            .filter(|p| plan.loc(p.location).auto_redirect)
            .map(|p| p.location)
    }
}

/// The outcome of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The server's own level.
    Server,
    Location(usize),
    /// Redirect to the same URI with a slash.
    Slash(usize),
}

/// Finds the location of the request's path.
///
/// # Errors
/// A regular expression could not be decided on.
pub fn find(r: &mut Request) -> Result<Route, MatchFailed> {
    let plan = r.plan_rc();
    let server: &Server = plan.srv(r.server);
    let path = std::mem::take(&mut r.path);
    let route = within(&plan, &server.tree, &path, r);
    r.path = path;
    Ok(route?.map_or(Route::Server, |(route, _)| route))
}

/// Notes what the names without regular expressions came to.
#[cold]
fn note_prefix(plan: &HttpPlan, r: &Request, found: &Match, final_: bool) {
    let (location, words) = match found {
        Match::Nothing => return,
        Match::Final(location) => (*location, "is the path itself: nothing else is looked at"),
        Match::Slash(location) => (*location, "wants its slash: a redirect"),
        Match::Prefix(location) if final_ => {
            (*location, "is the longest prefix, and final: no regular expression is tried")
        }
        Match::Prefix(location) => (*location, "is the longest prefix; regular expressions come before it"),
    };
    let location = plan.loc(location);
    let sign = match (location.exact, final_) {
        (true, _) => "= ",
        (_, true) => "^~ ",
        _ => "",
    };
    let name = String::from_utf8_lossy(&location.name).into_owned();
    r.note(StepKind::Candidate, location.at, |_| format!("{sign}{name}: {words}"));
}

/// Searches one tree and those inside; the flag says that nothing further may override the result.
fn within(
    plan: &HttpPlan,
    tree: &Tree,
    path: &CanonicalPath,
    r: &mut Request,
) -> Result<Option<(Route, bool)>, MatchFailed> {
    let (found, final_) = tree.static_location(plan, path);
    let mut best = None;
    if r.trace.is_some() {
        note_prefix(plan, r, &found, final_);
    }
    match found {
        Match::Final(location) => return Ok(Some((Route::Location(location), true))),
        Match::Slash(location) => return Ok(Some((Route::Slash(location), true))),
        Match::Nothing => {}
        Match::Prefix(location) => {
            if plan.loc(location).name.len() < path.len()
                && let Some(slash) = tree.wants_slash(plan, path)
            {
                return Ok(Some((Route::Slash(slash), true)));
            }
            let inner = &plan.loc(location).inner;
            best = Some((Route::Location(location), false));
            if !inner.is_empty()
                && let Some(deeper) = within(plan, inner, path, r)?
            {
                if deeper.1 {
                    return Ok(Some(deeper));
                }
                best = Some(deeper);
            }
        }
    }
    if !final_ {
        for (pattern, location) in &tree.regexes {
            let matches = pattern.run(r, path)?;
            r.note(StepKind::Candidate, plan.loc(*location).at, |_| {
                let text = String::from_utf8_lossy(pattern.text()).into_owned();
                format!("~ {text}: {}", if matches { "matches" } else { "does not match" })
            });
            if matches {
                let inner = &plan.loc(*location).inner;
                if !inner.is_empty()
                    && let Some((deeper, _)) = within(plan, inner, path, r)?
                {
                    return Ok(Some((deeper, true)));
                }
                return Ok(Some((Route::Location(*location), true)));
            }
        }
    }
    Ok(best.map(|(route, _)| (route, false)))
}
