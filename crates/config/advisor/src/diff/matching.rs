//! Matches blocks of the new configuration with those of the old.

use crate::location::address;
use crate::scope::{ScopeId, Scopes};
use conf_schema::Contexts;
use std::collections::{BTreeMap, HashSet};

pub fn names(scopes: &Scopes<'_>, id: ScopeId) -> Vec<String> {
    let lines = scopes.own(id, "server_name");
    let names: Vec<String> = lines.iter().flat_map(|d| &d.args).map(|word| word.text().to_ascii_lowercase()).collect();
    if names.is_empty() { vec![String::new()] } else { names }
}

pub fn addresses(scopes: &Scopes<'_>, id: ScopeId) -> Vec<String> {
    let lines = scopes.own(id, "listen");
    let mut out: Vec<String> = lines.iter().filter_map(|d| address(d)).collect();
    if out.is_empty() {
        out.push("*:80".into());
    }
    out.sort();
    out.dedup();
    out
}

pub fn defaults(scopes: &Scopes<'_>) -> BTreeMap<String, ScopeId> {
    let mut out: BTreeMap<String, (ScopeId, bool)> = BTreeMap::new();
    for server in scopes.of(Contexts::server) {
        let lines = scopes.own(server, "listen");
        for address in addresses(scopes, server) {
            let said = lines.iter().any(|d| {
                self::address(d).as_ref() == Some(&address)
                    && d.args.iter().any(|word| word.bytes == b"default_server" || word.bytes == b"default")
            });
            let entry = out.entry(address).or_insert((server, said));
            if said && !entry.1 {
                *entry = (server, true);
            }
        }
    }
    out.into_iter().map(|(address, (server, _))| (address, server)).collect()
}

/// Pairs of blocks in the new order, removed blocks last; `None` marks a missing counterpart.
pub fn pairs(
    old: &Scopes<'_>,
    mine: &[ScopeId],
    new: &Scopes<'_>,
    others: &[ScopeId],
) -> Vec<(Option<ScopeId>, Option<ScopeId>)> {
    let mut free: Vec<ScopeId> = mine.to_vec();
    let mut found: Vec<Option<ScopeId>> = vec![None; others.len()];
    // Best matches first: a server that lost a name must not match another that gained it.
    let mut scores: Vec<(usize, usize, ScopeId)> = Vec::new();
    for (index, other) in others.iter().enumerate() {
        for one in mine {
            let score = likeness(old, *one, new, *other);
            if score > 0 {
                scores.push((score, index, *one));
            }
        }
    }
    scores.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    for (_, index, one) in scores {
        if let Some(slot) = found.get_mut(index).filter(|slot| slot.is_none())
            && free.contains(&one)
        {
            *slot = Some(one);
            free.retain(|id| *id != one);
        }
    }
    let matched = found.into_iter().zip(others).map(|(one, other)| (one, Some(*other)));
    matched.chain(free.into_iter().map(|one| (Some(one), None))).collect()
}

/// Similarity of two blocks; 0 for different ones.
fn likeness(old: &Scopes<'_>, one: ScopeId, new: &Scopes<'_>, other: ScopeId) -> usize {
    let (a, b) = (old.get(one), new.get(other));
    if a.context != b.context {
        return 0;
    }
    if !matches!(a.context, Contexts::server | Contexts::stream_server) {
        return usize::from(super::title(old, one) == super::title(new, other));
    }
    let set = |list: Vec<String>| list.into_iter().collect::<HashSet<_>>();
    let (names_a, names_b) = (set(names(old, one)), set(names(new, other)));
    let (at_a, at_b) = (set(addresses(old, one)), set(addresses(new, other)));
    let shared_names = names_a.intersection(&names_b).count();
    let shared_at = at_a.intersection(&at_b).count();
    let exact = usize::from(names_a == names_b) * 1_000 + usize::from(at_a == at_b) * 500;
    match (shared_names, shared_at) {
        (0, 0) => 0,
        (0, _) if names_a.len() + names_b.len() > 2 => 0,
        (names, at) => exact + names * 10 + at,
    }
}
