//! Server selection for a request: binding, next server, retry budget.

use super::groups::UpstreamRef;
use super::ntlm;
use super::upstream_state::{UpstreamState, shown_url};
use base::clock;
use http_engine::Request;
use observe::Severity;
use std::net::SocketAddr;
use std::sync::Arc;
use upstream::{Attempts, Choice, Group, PeerLease};

/// Servers that a request has tried, and what selects the next one. All calls are for one group.
pub struct PeerSelection {
    attempts: Attempts,
    key: Vec<u8>,
    bound: Option<Vec<u8>>,
}

impl PeerSelection {
    /// Begins the selection for a request in the group, and counts the request for the retry budget. Evaluates binding
    /// and key once.
    pub fn new(named: &UpstreamRef, r: &mut Request) -> PeerSelection {
        let rules = named.rules.as_deref();
        let bound = ntlm::bound_server(&named.group, r)
            .or_else(|| rules.and_then(|rules| rules.sticky.as_ref()).and_then(|sticky| sticky.bound(r)));
        let key = match (rules.and_then(|rules| rules.key.as_ref()), named.group.method) {
            (Some(key), _) => key.eval(r),
            (None, upstream::BalanceMethod::IpHash) => address_key(r.connection().peer),
            _ => Vec::new(),
        };
        if let Some(budget) = &named.group.extras.budget {
            budget.request(clock::now());
        }
        PeerSelection { attempts: named.group.attempts(), key, bound }
    }

    /// Has no preference, and has tried no server.
    pub fn any(group: &Group) -> PeerSelection {
        PeerSelection { attempts: group.attempts(), key: Vec::new(), bound: None }
    }

    /// Returns the number of servers chosen so far.
    pub fn asked(&self) -> usize {
        self.attempts.asked()
    }
    /// Returns the number of servers that a request may try, each once.
    pub fn tries(&self) -> usize {
        self.attempts.tries()
    }
    /// Returns the number of tries that failures over kept connections have added.
    pub fn extra(&self) -> usize {
        self.attempts.extra()
    }
    /// Adds a try, after a failure over a kept connection.
    pub fn allow_another(&mut self) {
        self.attempts.allow_another();
    }

    /// Permits all servers again; tries that [`PeerSelection::allow_another`] has added stay.
    pub fn begin_round(&mut self, group: &Group) {
        self.attempts.begin_round(group);
    }

    /// Returns `None` if no server is left.
    pub async fn next(&mut self, group: &Arc<Group>) -> Option<PeerLease> {
        let choice = Choice { now: clock::now(), random: random(group), key: &self.key, bound: self.bound.as_deref() };
        group.next(&choice, &mut self.attempts).await
    }
    /// Selects a server of a group without a queue; `None` if no server is available.
    pub fn choose(&mut self, group: &Arc<Group>) -> Option<PeerLease> {
        let choice = Choice { now: clock::now(), random: random(group), key: &self.key, bound: self.bound.as_deref() };
        group.choose(&choice, &mut self.attempts)
    }

    /// Counts a retry, if `retry_budget` permits one more; logs a refusal. To be called once for each retry.
    pub fn may_retry(&self, group: &Group, r: &Request) -> bool {
        let Some(budget) = &group.extras.budget else { return true };
        let may = budget.retry(clock::now());
        if !may {
            r.log(Severity::Warn, format_args!("the retry budget of upstream \"{}\" is used up", group.name));
        }
        may
    }
}

fn random(group: &Group) -> u64 {
    match group.method.is_random() {
        true => u64::from_le_bytes(half(net::random::bytes16())) | 1,
        false => 1,
    }
}

/// Binds the client to the server that has responded, if the group is `sticky`.
pub fn bind_client(named: &UpstreamRef, r: &mut Request, active: &mut PeerLease) {
    if let Some(sticky) = named.rules.as_deref().and_then(|rules| rules.sticky.as_ref()) {
        sticky.answered(r, active);
    }
}

/// Counts a failure against a server, which may make it unavailable.
pub fn count_failure(r: &mut Request, active: &mut PeerLease, uri: &[u8]) {
    metrics::process::UPSTREAM_FAILURES.up();
    if active.failed(clock::now()) {
        let doing = UpstreamState::last(r).map_or("connecting to", |one| {
            let connected = one.connect_time.map(|_| "reading response header from");
            one.doing.or(connected).unwrap_or("connecting to")
        });
        let url = shown_url(
            r.upstream.get::<UpstreamState>().map_or("http", UpstreamState::scheme),
            &active.peer().text,
            uri,
        );
        let words = "upstream server temporarily disabled";
        r.log_of(Severity::Warn, format_args!("{words} while {doing} upstream"), Some(&url));
    }
}

/// Counts a response for `outlier_ejection`, and logs a resulting ejection. `bad`: it is an error.
pub fn judge_peer(r: &Request, active: &PeerLease, bad: bool) {
    let group = active.group();
    if let Some(out) = group.judge(active.peer(), bad, clock::now()) {
        r.log(
            Severity::Warn,
            format_args!(
                "upstream server {} of \"{}\" is put aside for {} s after {} errors in {} answers",
                active.peer().text,
                group.name,
                out.for_ms / 1000,
                out.errors,
                out.of
            ),
        );
    }
}

fn half(bytes: [u8; 16]) -> [u8; 8] {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[..8]);
    out
}

fn address_key(peer: Option<SocketAddr>) -> Vec<u8> {
    match peer {
        Some(SocketAddr::V4(a)) => a.ip().octets()[..3].to_vec(),
        Some(SocketAddr::V6(a)) => a.ip().octets().to_vec(),
        None => vec![0; 3],
    }
}
