//! Selects the servers of a pool: groups by a variable, the first of them with available servers, and these by weight.

use super::lines::{DownAnswer, GroupChoice, GroupName, PoolLine};
use crate::StreamTemplate;
use crate::groups::StreamGroups;
use crate::session::StreamSession;
use base::clock::{self, Instant};
use conf_schema::Problem;
use dns_zone::{AddressFamily, Selection, draw_positions};
use metrics::process;
use net::Address;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use upstream::{Group, Peer};

type GroupList = Vec<Arc<Group>>;

enum BoundChoice {
    Same(GroupList),
    ByValue { of: StreamTemplate, cases: HashMap<Vec<u8>, GroupList>, default: GroupList },
}

/// A pool with its groups.
pub struct Pool {
    choice: BoundChoice,
    answers: usize,
    down: DownAnswer,
}

fn bind_group(name: &GroupName, groups: &StreamGroups) -> Result<Arc<Group>, Problem> {
    let wrong = |words: String, hint: &str| Problem { inner: Some(name.at), ..Problem::says(words) }.hint(hint);
    let Some(named) = groups.get(&name.text) else {
        let words = format!("no upstream \"{}\" for a pool", name.text);
        return Err(wrong(words, "a pool answers with the servers of an \"upstream\" of the stream block"));
    };
    let is_socket = |address: &Address| matches!(address, Address::Unix(_));
    if named.group.members().all().any(|peer| is_socket(&peer.spec.address)) {
        let words =
            format!("upstream \"{}\" of a pool has a UNIX-domain socket, which has no address to answer", name.text);
        return Err(wrong(words, "use a group of its own, with addresses that clients reach"));
    }
    Ok(named.group.clone())
}

impl Pool {
    /// Finds the groups of a line.
    pub fn bind(line: &PoolLine, groups: &StreamGroups) -> Result<Pool, Problem> {
        let bind = |names: &Vec<GroupName>| -> Result<GroupList, Problem> {
            names.iter().map(|name| bind_group(name, groups)).collect()
        };
        let choice = match &line.choice {
            GroupChoice::Same(names) => BoundChoice::Same(bind(names)?),
            GroupChoice::ByValue { of, cases, default } => {
                let bound = cases.iter().map(|(value, names)| Ok((value.clone(), bind(names)?)));
                let cases = bound.collect::<Result<_, Problem>>()?;
                BoundChoice::ByValue { of: of.clone(), cases, default: bind(default)? }
            }
        };
        Ok(Pool { choice, answers: line.answers, down: line.down })
    }

    /// Returns the groups, for health checks.
    pub fn groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        let (first, more): (&GroupList, Vec<&GroupList>) = match &self.choice {
            BoundChoice::Same(groups) => (groups, Vec::new()),
            BoundChoice::ByValue { cases, default, .. } => (default, cases.values().collect()),
        };
        first.iter().chain(more.into_iter().flatten())
    }

    /// Appends addresses of a family, of the first group that has available servers, by weight. Returns the group's
    /// name, too.
    pub fn select(
        &self,
        s: &mut StreamSession,
        family: AddressFamily,
        out: &mut Vec<IpAddr>,
    ) -> (Selection, Option<Arc<Group>>) {
        let (groups, by_place) = match &self.choice {
            BoundChoice::Same(groups) => (groups, false),
            BoundChoice::ByValue { of, cases, default } => {
                let value = of.eval(s).to_ascii_lowercase();
                (cases.get(&value).unwrap_or(default), true)
            }
        };
        let now = clock::now();
        let found = groups.iter().find_map(|group| available(group, now).map(|peers| (group.clone(), peers)));
        let (group, peers) = match (found, groups.first()) {
            (Some((group, peers)), _) => (Some(group), peers),
            (None, Some(first)) => {
                process::DNS_POOLS_DOWN.up();
                match self.down {
                    DownAnswer::All => (Some(first.clone()), in_use(first)),
                    DownAnswer::NoData => (None, Vec::new()),
                    DownAnswer::ServFail => return (Selection { by_place, failed: true }, None),
                }
            }
            (None, None) => (None, Vec::new()),
        };
        let mut weighted: Vec<(IpAddr, u32)> = Vec::with_capacity(peers.len());
        for peer in &peers {
            let Address::Ip(address) = &peer.spec.address else { continue };
            let ip = address.ip();
            if family.has(&ip) && !weighted.iter().any(|(known, _)| *known == ip) {
                weighted.push((ip, peer.spec.weight));
            }
        }
        let weights: Vec<u32> = weighted.iter().map(|(_, weight)| *weight).collect();
        let drawn = draw_positions(&weights, self.answers, random_number);
        out.extend(drawn.into_iter().filter_map(|index| weighted.get(index)).map(|(ip, _)| *ip));
        (Selection { by_place, failed: false }, group)
    }
}

/// Returns the servers that the configuration or the API has not taken out of use, available or not.
fn in_use(group: &Group) -> Vec<Arc<Peer>> {
    group.members().all().filter(|peer| !peer.spec.down && !peer.spec.drain).cloned().collect()
}

/// Returns the available servers: primary ones, otherwise backups. `None`: there is none.
fn available(group: &Group, now: Instant) -> Option<Vec<Arc<Peer>>> {
    let members = group.members();
    let of = |list: &[Arc<Peer>]| -> Vec<Arc<Peer>> {
        let is_well = |peer: &&Arc<Peer>| !peer.spec.down && !peer.spec.drain && !peer.unavailable(now);
        list.iter().filter(is_well).cloned().collect()
    };
    let primary = of(&members.primary);
    let found = if primary.is_empty() { of(&members.backup) } else { primary };
    (!found.is_empty()).then_some(found)
}

/// Draws a random number.
pub fn random_number() -> u64 {
    u64::from_ne_bytes(net::random::bytes())
}
