//! Matches blocks of the new configuration with those of the old.

use crate::location::listen_address;
use crate::scope::{ScopeId, Scopes};
use conf_schema::Contexts;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

pub fn server_names(scopes: &Scopes<'_>, id: ScopeId) -> Vec<String> {
    let lines = scopes.own(id, "server_name");
    let names: Vec<String> = lines.iter().flat_map(|d| &d.args).map(|word| word.text().to_ascii_lowercase()).collect();
    if names.is_empty() { vec![String::new()] } else { names }
}

pub fn listen_addresses(scopes: &Scopes<'_>, id: ScopeId) -> Vec<String> {
    let lines = scopes.own(id, "listen");
    let mut out: Vec<String> = lines.iter().filter_map(|d| listen_address(d)).collect();
    if out.is_empty() {
        out.push("*:80".into());
    }
    out.sort();
    out.dedup();
    out
}

pub fn default_servers(scopes: &Scopes<'_>) -> BTreeMap<String, ScopeId> {
    let mut out: BTreeMap<String, (ScopeId, bool)> = BTreeMap::new();
    for server in scopes.of(Contexts::server) {
        let lines = scopes.own(server, "listen");
        for address in listen_addresses(scopes, server) {
            let said = lines.iter().any(|d| {
                self::listen_address(d).as_ref() == Some(&address)
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
pub fn pair_scopes(
    old: &Scopes<'_>,
    mine: &[ScopeId],
    new: &Scopes<'_>,
    others: &[ScopeId],
) -> Vec<(Option<ScopeId>, Option<ScopeId>)> {
    let mut free: BTreeMap<ScopeId, BlockFacts> = mine.iter().map(|id| (*id, BlockFacts::of(old, *id))).collect();
    let mut found: Vec<Option<ScopeId>> = vec![None; others.len()];
    let theirs: Vec<BlockFacts> = others.iter().map(|id| BlockFacts::of(new, *id)).collect();
    // Blocks with an equal counterpart are no other's best match.
    let mut equal: HashMap<BlockFacts, VecDeque<ScopeId>> = HashMap::new();
    for (id, block) in &free {
        equal.entry(block.clone()).or_default().push_back(*id);
    }
    for (slot, other) in found.iter_mut().zip(&theirs) {
        *slot = equal.get_mut(other).and_then(VecDeque::pop_front);
        if let Some(one) = slot {
            free.remove(one);
        }
    }
    // Then best matches first: a server that lost a name must not match another that gained it.
    let mut scores: Vec<(usize, usize, ScopeId)> = Vec::new();
    for (index, other) in theirs.iter().enumerate().filter(|(index, _)| found.get(*index) == Some(&None)) {
        for (one, block) in &free {
            let score = block.likeness(other);
            if score > 0 {
                scores.push((score, index, *one));
            }
        }
    }
    scores.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    for (_, index, one) in scores {
        if let Some(slot) = found.get_mut(index).filter(|slot| slot.is_none())
            && free.remove(&one).is_some()
        {
            *slot = Some(one);
        }
    }
    let free: Vec<ScopeId> = mine.iter().copied().filter(|id| free.contains_key(id)).collect();
    let matched = found.into_iter().zip(others).map(|(one, other)| (one, Some(*other)));
    matched.chain(free.into_iter().map(|one| (Some(one), None))).collect()
}

/// Facts of a block by which it is matched.
#[derive(Clone, PartialEq, Eq, Hash)]
enum BlockFacts {
    Server { context: Contexts, names: BTreeSet<String>, addresses: BTreeSet<String> },
    Other { context: Contexts, title: String },
}

impl BlockFacts {
    fn of(scopes: &Scopes<'_>, id: ScopeId) -> BlockFacts {
        let context = scopes.get(id).context;
        if !matches!(context, Contexts::server | Contexts::stream_server) {
            return BlockFacts::Other { context, title: super::title(scopes, id) };
        }
        let (names, addresses) = (server_names(scopes, id), listen_addresses(scopes, id));
        BlockFacts::Server { context, names: names.into_iter().collect(), addresses: addresses.into_iter().collect() }
    }
    /// 0: different.
    fn likeness(&self, other: &BlockFacts) -> usize {
        let (
            BlockFacts::Server { context, names, addresses },
            BlockFacts::Server { context: other_context, names: other_names, addresses: other_addresses },
        ) = (self, other)
        else {
            return usize::from(self == other);
        };
        if context != other_context {
            return 0;
        }
        let shared_names = names.intersection(other_names).count();
        let shared_at = addresses.intersection(other_addresses).count();
        let exact = usize::from(names == other_names) * 1_000 + usize::from(addresses == other_addresses) * 500;
        match (shared_names, shared_at) {
            (0, 0) => 0,
            (0, _) if names.len() + other_names.len() > 2 => 0,
            (names, at) => exact + names * 10 + at,
        }
    }
}
