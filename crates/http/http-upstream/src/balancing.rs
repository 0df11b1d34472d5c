//! Server selection for a request: binding, next server, retry budget.

use super::groups::UpstreamRef;
use super::ntlm;
use super::upstream_state::{UpstreamState, shown_url};
use base::clock;
use http_engine::Request;
use observe::Level;
use std::net::SocketAddr;
use upstream::{Attempts, Choice, PeerLease};

/// With the servers tried.
pub struct PeerSelection<'a> {
    named: &'a UpstreamRef,
    state: SelectionState,
}

pub struct SelectionState {
    attempts: Attempts,
    key: Vec<u8>,
    bound: Option<Vec<u8>>,
}

impl SelectionState {
    /// Adds a try, after a failure over a kept connection.
    pub fn allow_another(&mut self) {
        self.attempts.allow_another();
    }
}

impl<'a> PeerSelection<'a> {
    pub fn new(named: &'a UpstreamRef, r: &mut Request) -> PeerSelection<'a> {
        let rules = named.rules.as_deref();
        let bound = ntlm::server(&named.group, r)
            .or_else(|| rules.and_then(|rules| rules.sticky.as_ref()).and_then(|sticky| sticky.bound(r)));
        let key = match (rules.and_then(|rules| rules.key.as_ref()), named.group.method) {
            (Some(key), _) => key.eval(r),
            (None, upstream::Method::IpHash) => address_key(r.connection().peer),
            _ => Vec::new(),
        };
        if let Some(budget) = &named.group.extras.budget {
            budget.request(clock::now());
        }
        PeerSelection { named, state: SelectionState { attempts: named.group.attempts(), key, bound } }
    }
    pub fn resume(named: &'a UpstreamRef, state: SelectionState) -> PeerSelection<'a> {
        PeerSelection { named, state }
    }
    pub fn into_state(self) -> SelectionState {
        self.state
    }

    pub fn asked(&self) -> usize {
        self.state.attempts.asked()
    }
    pub fn tries(&self) -> usize {
        self.state.attempts.tries()
    }

    /// Returns the number of tries that failures over kept connections have added.
    pub fn extra(&self) -> usize {
        self.state.attempts.extra()
    }
    /// Adds a try, after a failure over a kept connection.
    pub fn allow_another(&mut self) {
        self.state.allow_another();
    }

    /// Returns `None` if no server is left.
    pub async fn next(&mut self) -> Option<PeerLease> {
        let random = self.random();
        let SelectionState { attempts, key, bound } = &mut self.state;
        let choice = Choice { now: clock::now(), random, key, bound: bound.as_deref() };
        self.named.group.next(&choice, attempts).await
    }
    /// Selects a server of a group without a queue; `None` if no server is available.
    pub fn first(&mut self) -> Option<PeerLease> {
        let random = self.random();
        let SelectionState { attempts, key, bound } = &mut self.state;
        let choice = Choice { now: clock::now(), random, key, bound: bound.as_deref() };
        self.named.group.choose(&choice, attempts)
    }
    fn random(&self) -> u64 {
        match self.named.group.method.is_random() {
            true => u64::from_le_bytes(half(net::random::bytes16())) | 1,
            false => 1,
        }
    }

    pub fn may_retry(&self, r: &Request) -> bool {
        let Some(budget) = &self.named.group.extras.budget else { return true };
        let may = budget.retry(clock::now());
        if !may {
            let name = &self.named.group.name;
            r.log(Level::Warn, format_args!("the retry budget of upstream \"{name}\" is used up"));
        }
        may
    }

    pub fn answered(&self, r: &mut Request, active: &mut PeerLease) {
        if let Some(sticky) = self.named.rules.as_deref().and_then(|rules| rules.sticky.as_ref()) {
            sticky.answered(r, active);
        }
    }
}

/// Counts a failure against a server, which may make it unavailable.
pub fn failed(r: &mut Request, active: &mut PeerLease, uri: &[u8]) {
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
        r.log_of(Level::Warn, format_args!("{words} while {doing} upstream"), Some(&url));
    }
}

pub fn judge(r: &Request, active: &PeerLease, bad: bool) {
    let group = active.group();
    if let Some(out) = group.judge(active.peer(), bad, clock::now()) {
        r.log(
            Level::Warn,
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
