//! `tidegate diff`: changes for requests between two configurations.
//! Matches blocks (servers by addresses and names, locations by name) and compares the values in force after
//! inheritance and defaults. Formatting, includes and irrelevant order make no difference; an inherited change is
//! reported once, at its origin.

mod matching;
mod order;
mod report;

pub use report::{changes_json, changes_text};

use crate::location::LocationName;
use crate::scope::{ScopeId, Scopes, quote_word};
use conf_schema::value::{parse_msec, parse_offset, parse_sec};
use conf_schema::{Contexts, vocabulary};
use conf_syntax::Directive;
use std::collections::{BTreeMap, BTreeSet};

/// A line with its position; a default has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffLine {
    pub text: String,
    /// Normalized for comparison: 60s equals 1m.
    key: String,
    pub place: Option<(String, u32)>,
}

impl DiffLine {
    fn new(text: String, place: Option<(String, u32)>) -> DiffLine {
        DiffLine { key: text.clone(), text, place }
    }
    fn valued(mut self, syntax: &str) -> DiffLine {
        let word = self.text.trim_end_matches(';').split_once(' ');
        let value = word.and_then(|(name, word)| {
            let value = match syntax {
                "time" => parse_msec(word.as_bytes()).or_else(|| parse_sec(word.as_bytes())?.checked_mul(1000))?,
                "size" => parse_offset(&word.as_bytes().to_ascii_lowercase())?,
                _ => return None,
            };
            Some(format!("{name} {value}"))
        });
        if let Some(key) = value {
            self.key = key;
        }
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffChange {
    /// Enclosing blocks, outermost first: `http`, `server a.example`, `location /`.
    pub path: Vec<String>,
    pub what: String,
    pub old: Vec<DiffLine>,
    pub new: Vec<DiffLine>,
}

/// All differences, in the new configuration's order where possible.
pub fn diff_scopes(old: &Scopes<'_>, new: &Scopes<'_>) -> Vec<DiffChange> {
    let mut pair = ScopePair { old, new, changes: Vec::new(), told: Vec::new() };
    pair.compare(0, 0, &mut Vec::new());
    pair.defaults();
    pair.changes
}

struct ScopePair<'a, 't> {
    old: &'a Scopes<'t>,
    new: &'a Scopes<'t>,
    changes: Vec<DiffChange>,
    /// Differences already reported by enclosing blocks: directive, old and new lines.
    told: Vec<BTreeSet<(String, Vec<String>, Vec<String>)>>,
}

/// Directives of the rewrite module, whose relative order matters.
const REWRITE: &[&str] = &["rewrite", "set", "return", "break", "if"];
const BLOCKS: &[&str] =
    &["events", "http", "stream", "mail", "server", "location", "limit_except", "upstream", "include"];

type InForce = BTreeMap<String, Vec<DiffLine>>;

impl ScopePair<'_, '_> {
    fn compare(&mut self, a: ScopeId, b: ScopeId, path: &mut Vec<String>) {
        let context = self.new.get(b).context;
        // The defaults of all other directives are in force on both sides.
        let given: BTreeSet<&[u8]> = self.old.names_around(a).chain(self.new.names_around(b)).collect();
        let (before, after) = (in_force(self.old, a, &given), in_force(self.new, b, &given));
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let mut told = BTreeSet::new();
        for name in names {
            let none = Vec::new();
            let (old, new) = (before.get(name).unwrap_or(&none), after.get(name).unwrap_or(&none));
            let Some((old, new)) = differ(name, old, new) else { continue };
            let texts = |lines: &[DiffLine]| lines.iter().map(|line| line.key.clone()).collect::<Vec<_>>();
            let key = (name.clone(), texts(&old), texts(&new));
            let inherited = self.told.iter().any(|outer| outer.contains(&key));
            if !inherited {
                self.changes.push(DiffChange { path: path.clone(), what: name.clone(), old, new });
            }
            told.insert(key);
        }
        if context == Contexts::server || context == Contexts::location {
            self.order_of_regexes(a, b, path);
        }
        self.told.push(told);
        self.children(a, b, path);
        self.told.pop();
    }

    fn children(&mut self, a: ScopeId, b: ScopeId, path: &mut Vec<String>) {
        let (old, new) = (children(self.old, a), children(self.new, b));
        let pairs = matching::pair_scopes(self.old, &old, self.new, &new);
        for (one, other) in pairs {
            match (one, other) {
                (Some(one), Some(other)) => {
                    path.push(title(self.new, other));
                    self.compare(one, other, path);
                    path.pop();
                }
                (one, other) => {
                    let line = |scopes: &Scopes<'_>, id: Option<ScopeId>| {
                        let line = id.and_then(|id| Some((id, scopes.get(id).directive?)));
                        line.map(|(id, d)| DiffLine::new(format!("{} {{ ... }}", title(scopes, id)), place(scopes, d)))
                    };
                    let (old, new) = (line(self.old, one), line(self.new, other));
                    let what = one.map(|id| title(self.old, id)).or(other.map(|id| title(self.new, id)));
                    self.changes.push(DiffChange {
                        path: path.clone(),
                        what: what.unwrap_or_default(),
                        old: old.into_iter().collect(),
                        new: new.into_iter().collect(),
                    });
                }
            }
        }
    }

    fn order_of_regexes(&mut self, a: ScopeId, b: ScopeId, path: &[String]) {
        let names = |scopes: &Scopes<'_>, id: ScopeId| -> Vec<DiffLine> {
            let locations = scopes.get(id).children.iter().filter_map(|child| scopes.get(*child).directive);
            let regexes = locations.filter_map(|d| match LocationName::of(d)? {
                name @ LocationName::Regex { .. } => {
                    Some(DiffLine::new(format!("location {}", name.shown()), place(scopes, d)))
                }
                _ => None,
            });
            regexes.collect()
        };
        let (old, new) = (names(self.old, a), names(self.new, b));
        let shared = |lines: &[DiffLine], others: &[DiffLine]| -> Vec<DiffLine> {
            lines.iter().filter(|line| others.iter().any(|other| other.text == line.text)).cloned().collect()
        };
        let (old, new) = (shared(&old, &new), shared(&new, &old));
        if !same(&old, &new) {
            let what = "order of regular expressions".to_string();
            self.changes.push(DiffChange { path: path.to_vec(), what, old, new });
        }
    }

    fn defaults(&mut self) {
        let (old, new) = (matching::default_servers(self.old), matching::default_servers(self.new));
        let servers = |scopes: &Scopes<'_>| scopes.of(Contexts::server).collect::<Vec<_>>();
        let pairs = matching::pair_scopes(self.old, &servers(self.old), self.new, &servers(self.new));
        for (address, other) in &new {
            let Some(one) = old.get(address) else { continue };
            if pairs.contains(&(Some(*one), Some(*other))) {
                continue;
            }
            let line = |scopes: &Scopes<'_>, id: ScopeId| {
                DiffLine::new(title(scopes, id), scopes.get(id).directive.and_then(|d| place(scopes, d)))
            };
            self.changes.push(DiffChange {
                path: vec!["http".into()],
                what: format!("default server of {address}"),
                old: vec![line(self.old, *one)],
                new: vec![line(self.new, *other)],
            });
        }
    }
}

fn same(old: &[DiffLine], new: &[DiffLine]) -> bool {
    old.len() == new.len() && old.iter().zip(new).all(|(a, b)| a.key == b.key)
}

/// Returns `None` for equal lines.
fn differ(name: &str, old: &[DiffLine], new: &[DiffLine]) -> Option<(Vec<DiffLine>, Vec<DiffLine>)> {
    if same(old, new) {
        return None;
    }
    let split = |lines: &[DiffLine], others: &[DiffLine]| -> (Vec<DiffLine>, Vec<DiffLine>) {
        let mut rest: Vec<&str> = others.iter().map(|line| line.key.as_str()).collect();
        let is_shared =
            |line: &DiffLine| rest.iter().position(|key| *key == line.key).map(|at| rest.remove(at)).is_some();
        lines.iter().cloned().partition(is_shared)
    };
    let ((shared, gone), (still, added)) = (split(old, new), split(new, old));
    let moved = order::moved_lines(name, &shared, &still);
    let of = |changed: Vec<DiffLine>, shared: &[DiffLine]| {
        let moved = shared.iter().filter(|line| moved.contains(line.key.as_str())).cloned();
        changed.into_iter().chain(moved).collect::<Vec<_>>()
    };
    let (before, after) = (of(gone, &shared), of(added, &still));
    (!before.is_empty() || !after.is_empty()).then_some((before, after))
}

/// Tells whether a change is one of order alone.
fn is_move(old: &[DiffLine], new: &[DiffLine]) -> bool {
    let keys = |lines: &[DiffLine]| {
        let mut keys: Vec<String> = lines.iter().map(|line| line.key.clone()).collect();
        keys.sort();
        keys
    };
    !old.is_empty() && keys(old) == keys(new)
}

fn children(scopes: &Scopes<'_>, id: ScopeId) -> Vec<ScopeId> {
    scopes.get(id).children.clone()
}

pub(crate) fn title(scopes: &Scopes<'_>, id: ScopeId) -> String {
    let scope = scopes.get(id);
    let Some(d) = scope.directive else { return "main".into() };
    if matches!(scope.context, Contexts::server | Contexts::stream_server) {
        let names = matching::server_names(scopes, id);
        let addresses = matching::listen_addresses(scopes, id);
        let shown = if names.iter().all(String::is_empty) { &addresses } else { &names };
        return format!("server {}", shown.join(" "));
    }
    if let (Contexts::location, Some(name)) = (scope.context, LocationName::of(d)) {
        return format!("location {}", name.shown());
    }
    let words: Vec<String> = d.args.iter().map(|word| quote_word(&word.text(), false)).collect();
    format!("{} {}", d.name.text(), words.join(" ")).trim_end().to_string()
}

fn place(scopes: &Scopes<'_>, d: &Directive) -> Option<(String, u32)> {
    Some(scopes.start_of(d))
}

fn normal(d: &Directive) -> String {
    let mut words: Vec<String> = d.args.iter().map(|word| quote_word(&word.text(), false)).collect();
    if d.name.bytes == b"server_name" {
        // The first name is $server_name; the others are equal.
        if let Some((_, rest)) = words.split_first_mut() {
            rest.sort();
        }
    }
    if d.name.bytes == b"listen"
        && let (Some(first), Some(address)) = (words.first_mut(), crate::location::listen_address(d))
    {
        *first = address;
    }
    let mut out = format!("{} {}", d.name.text(), words.join(" ")).trim_end().to_string();
    match &d.block {
        None => out.push(';'),
        Some(block) => {
            let inner: Vec<String> = conf_syntax::list_directives(block).iter().map(|d| normal(d)).collect();
            out.push_str(&format!(" {{ {} }}", inner.join(" ")));
        }
    }
    out
}

/// Returns the effective values of the `given` directives in a block.
fn in_force(scopes: &Scopes<'_>, id: ScopeId, given: &BTreeSet<&[u8]>) -> InForce {
    let context = scopes.get(id).context;
    let mut out = InForce::new();
    let line = |d: &&Directive| DiffLine::new(normal(d), place(scopes, d));
    let known = given.iter().filter_map(|name| std::str::from_utf8(name).ok()).flat_map(vocabulary::find_directives);
    for known in known.filter(|known| known.contexts.has(context)) {
        if BLOCKS.contains(&known.name) || REWRITE.contains(&known.name) || matches!(known.name, "allow" | "deny") {
            continue;
        }
        let mut lines: Vec<DiffLine> = scopes.effective(id, known.name).iter().map(line).collect();
        let syntax = scopes.schema.row(known).map_or("", |row| row.syntax);
        if lines.is_empty()
            && let Some(default) = scopes.schema.row(known).and_then(|row| row.default).filter(|text| !text.is_empty())
        {
            lines.push(DiffLine::new(format!("{} {default};", known.name), None));
        }
        if !lines.is_empty() {
            let lines = lines.into_iter().map(|line| line.valued(syntax)).collect();
            out.insert(known.name.to_string(), lines);
        }
    }
    let own = |names: &[&str], id: ScopeId| -> Vec<DiffLine> {
        let own = scopes.get(id).own.iter().filter(|d| names.contains(&&*d.name.text()));
        own.map(|d| DiffLine::new(if d.name.bytes == b"if" { title_of(d) } else { normal(d) }, place(scopes, d)))
            .collect()
    };
    if Contexts::HTTP_ALL.has(context) && context != Contexts::upstream {
        let script = own(REWRITE, id);
        if !script.is_empty() {
            out.insert("rewrite".into(), script);
        }
    }
    let rules = scopes.around(id).map(|outer| own(&["allow", "deny"], outer)).find(|rules| !rules.is_empty());
    if let Some(rules) = rules {
        out.insert("allow, deny".into(), rules);
    }
    if context == Contexts::upstream || context == Contexts::stream_upstream {
        let servers = own(&["server"], id);
        if !servers.is_empty() {
            out.insert("server".into(), servers);
        }
    }
    out
}

fn title_of(d: &Directive) -> String {
    let words: Vec<String> = d.args.iter().map(|word| quote_word(&word.text(), false)).collect();
    format!("{} {}", d.name.text(), words.join(" "))
}

#[cfg(test)]
mod tests;
